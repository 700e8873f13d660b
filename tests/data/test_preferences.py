"""Preferences between segments: labels by brute force, queries, what is no preference, and reward models by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.data import preferences, reward_models
from jaxrl.data.datasets import Dataset
from jaxrl.data.preferences import Preferences, Teacher
from jaxrl.exact.mdp import tabulate
from jaxrl.exact.solvers import value_iteration
from jaxrl.spaces import Box, Discrete

KEY = jax.random.key(0)


def steps(lengths=(5, 3, 6), ends=(True, False, True)):
    """Three episodes of random numbers; the first and the last end by the task."""
    rng, n = np.random.default_rng(0), sum(lengths)
    last = np.zeros(n, bool)
    last[np.cumsum(lengths) - 1] = True
    terminated = last.copy()
    terminated[np.cumsum(lengths) - 1] = ends
    obs, action = rng.normal(size=(n, 2)).astype(np.float32), rng.uniform(-1, 1, (n, 1)).astype(np.float32)
    return Dataset(obs, action, rng.normal(size=n).astype(np.float32), terminated, last, obs + 1)


def few(label=(1.0, 0.0), first=((0, 8), (5, 1)), length=3):
    return Preferences(steps(), np.array(first, np.int32), np.array(label, np.float32), length)


def test_returns_and_regrets_by_brute_force():
    data, rng = steps(), np.random.default_rng(1)
    before, after = rng.normal(size=(2, data.size))
    first = np.array([[0, 2], [5, 11]], np.int32)  # the second of each ends the task
    gamma, length = 0.9, 3
    returns = preferences.scores(data, first, length, gamma)
    minus = preferences.scores(data, first, length, gamma, (before, after))
    for at in np.ndindex(2, 2):
        row = first[at]
        expected = sum(gamma**t * data.reward[row + t] for t in range(length))
        np.testing.assert_allclose(returns[at], expected, rtol=1e-5)
        ahead = 0.0 if data.terminated[row + length - 1] else gamma**length * after[row + length - 1]
        np.testing.assert_allclose(minus[at], expected + ahead - before[row], rtol=1e-5)
    assert data.terminated[[4, 13]].all() and not data.terminated[7]


@pytest.mark.parametrize("gamma", [0.8, 0.95])
def test_nothing_is_regretted_of_the_best_actions_and_all_else_is(gamma):
    """With exact values the regret is the sum of what each action loses, in a deterministic table."""
    env, params = jaxrl.make("CliffWalking-v1")
    mdp = tabulate(env, params)
    found = value_iteration(mdp, gamma)
    lost = np.asarray(found.value[:, None] - found.q)
    rng, state, path = np.random.default_rng(0), int(np.argmax(mdp.initial)), []
    for _ in range(12):
        action = int(rng.integers(4))
        reward, after, end = (np.asarray(x)[state, action, 0] for x in (mdp.reward, mdp.next_state, mdp.terminated))
        path.append((state, action, reward, int(after), bool(end)))
        if end:
            break
        state = int(after)
    regret = preferences.regrets_of(
        jnp.array([step[2] for step in path]),
        jnp.asarray(path[-1][4]),
        found.value[path[0][0]],
        found.value[path[-1][3]],
        gamma,
    )
    np.testing.assert_allclose(regret, sum(gamma**t * lost[s, a] for t, (s, a, *_) in enumerate(path)), atol=2e-4)


def test_labels():
    score = jnp.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [0.0, 0.05]])
    np.testing.assert_array_equal(preferences.labels(KEY, score), [1, 0, 0.5, 1])
    np.testing.assert_array_equal(preferences.labels(KEY, score, Teacher(ties=0.1)), [1, 0, 0.5, 0.5])
    many = jnp.broadcast_to(jnp.array([0.0, 1.5]), (20_000, 2))
    chance = 1 / (1 + math.exp(-1.5 / 0.5))
    drawn = preferences.labels(KEY, many, Teacher(temperature=0.5))
    assert set(np.unique(drawn)) == {0, 1} and abs(drawn.mean() - chance) < 0.01
    erred = preferences.labels(KEY, many, Teacher(temperature=0.5, mistakes=0.2))
    assert abs(erred.mean() - (0.8 * chance + 0.2 * (1 - chance))) < 0.01
    assert preferences.NOISES["none"] == Teacher()


@pytest.mark.parametrize("changes", [{"temperature": -1.0}, {"ties": np.inf}, {"mistakes": 0.5}, {"mistakes": np.nan}])
def test_no_teacher(changes):
    with pytest.raises(ValueError, match=f"{next(iter(changes))}=.* must be"):
        Teacher(**changes)


def test_queries_are_segments_of_episodes():
    data = steps()
    np.testing.assert_array_equal(preferences.starts(data, 3), [0, 1, 2, 5, 8, 9, 10, 11])
    np.testing.assert_array_equal(preferences.starts(data, 6), [8])
    asked = preferences.uniform_queries(np.random.default_rng(0), data, 4000, 3)
    assert (asked[:, 0] != asked[:, 1]).all()
    for side in asked.T:
        counts = np.unique(side, return_counts=True)
        np.testing.assert_array_equal(counts[0], preferences.starts(data, 3))
        assert abs(counts[1] / 4000 - 1 / 8).max() < 0.02
    for length in (6, 7):
        with pytest.raises(ValueError, match=f"no pair of segments of {length} steps in a dataset of 14, .* has 6"):
            preferences.uniform_queries(np.random.default_rng(0), data, 1, length)


def test_a_tree_of_factors():
    """Against loops, and the same in whatever units the factors are."""
    factors = np.random.default_rng(0).normal(size=(50, 2, 3)).astype(np.float32)
    for sigmas in (0.0, 1.0, np.array([0.5, 1.0, 2.0], np.float32)):
        given = sigmas if isinstance(sigmas, float) else jnp.asarray(sigmas)
        found = preferences.tree_labels(jnp.asarray(factors), given)
        margin = np.broadcast_to(sigmas, 3) * factors.std((0, 1))
        for label, (first, second) in zip(found, factors, strict=True):
            expected = 0.5
            for level in range(3):
                if abs(second[level] - first[level]) > margin[level]:
                    expected = float(second[level] > first[level])
                    break
            assert label == expected
        units = jnp.array([1000.0, 0.25, 64.0])
        np.testing.assert_array_equal(preferences.tree_labels(jnp.asarray(factors) * units, given), found)
    assert set(np.asarray(preferences.tree_labels(jnp.asarray(factors), 2.0))) == {0.0, 0.5, 1.0}


def test_disagreement():
    margin = jnp.array([[0.0, 3.0, -2.0], [0.0, 3.0, 2.0]])
    found = preferences.disagreement(margin)
    sigmoid = 1 / (1 + math.exp(-2))
    np.testing.assert_allclose(found, [0, 0, sigmoid - 0.5], atol=1e-6)


BAD = [
    (few(label=(1.0, 1.2)), "1 of 2 labels are outside 0 to 1, as 1.2"),
    (few(label=(np.nan, 0.0)), "1 of 2 labels are outside 0 to 1, as nan"),
    (few(label=(1.0,)), "1 labels of 2 pairs"),
    (few(label=(), first=np.zeros((0, 2))), "there is no pair of segments to learn from"),
    (few(first=((0, 3), (5, 1))), "1 of 4 segments of 3 steps are not within one episode, as .* row 3 of 14"),
    (few(first=((-1, 0), (5, 1))), "1 of 4 segments"),
    (few(first=((0, 12), (5, 1))), "1 of 4 segments"),
    (few(length=0), "segments of length 0"),
    (few(first=(0, 8)), "must be two integers a pair"),
]


@pytest.mark.parametrize("found, said", BAD, ids=[said for _, said in BAD])
def test_what_is_no_preference(found, said):
    for use in (preferences.check, lambda x: preferences.stored(x, Box(-1.0, 1.0, (1,)))):
        with pytest.raises(ValueError, match=said) as error:
            use(found)
        assert "\n" not in str(error.value)


def test_segments_at_hand():
    data = steps()
    parts = [jax.tree.map(lambda x, i=i: x[i : i + 3], data) for i in (0, 8, 5, 1)]
    found = preferences.of_segments(parts[0::2], parts[1::2], [1.0, 0.5])
    assert (found.size, found.length, found.steps.size) == (2, 3, 12)
    np.testing.assert_array_equal(found.first, [[0, 3], [6, 9]])
    np.testing.assert_array_equal(found.steps.obs[3:6], data.obs[8:11])
    shorter = jax.tree.map(lambda x: x[:2], data)
    with pytest.raises(ValueError, match="segments of different lengths, 2 to 3: cut them to one length"):
        preferences.of_segments([parts[0]], [shorter], [1.0])
    with pytest.raises(ValueError, match="no pair"):
        preferences.of_segments([], [], [])
    with pytest.raises(ValueError, match="1 first segments, 0 second ones, 1 labels"):
        preferences.of_segments([parts[0]], [], [1.0])


def test_what_learners_draw():
    found, space = few(), Box(-2.0, 2.0, (1,))
    replay = preferences.stored(found, space)
    batch = jax.jit(lambda key: replay.sample(key, (), 64))(KEY)
    assert not hasattr(batch, "reward") and batch.pair_obs.shape == (64, 2, 3, 2)
    data = found.steps
    for label, obs, action in zip(batch.label, batch.pair_obs, batch.pair_action, strict=True):
        pair = 0 if label == 1 else 1
        for side in range(2):
            rows = found.first[pair, side] + np.arange(3)
            np.testing.assert_array_equal(obs[side], data.obs[rows])
            np.testing.assert_allclose(action[side], data.action[rows] / 2, rtol=1e-6)
    assert set(np.asarray(batch.label)) == {0.0, 1.0}
    known = {tuple(x) for x in np.asarray(data.obs)}
    assert {tuple(x) for x in np.asarray(batch.obs)} <= known
    np.testing.assert_allclose(batch.next_obs, batch.obs + 1, rtol=1e-6)


def test_bradley_terry_by_hand():
    """The loss of two pairs, and its gradient label by label: P - label, divided by the number of pairs."""
    margin, label = jnp.array([[0.7, -1.2], [0.0, 2.0]]), jnp.array([1.0, 0.25])
    chance = [[1 / (1 + math.exp(-x)) for x in row] for row in margin.tolist()]
    expected = sum(
        -(y * math.log(p) + (1 - y) * math.log(1 - p)) / 2
        for row in chance
        for p, y in zip(row, label.tolist(), strict=True)
    )
    value, gradient = jax.value_and_grad(reward_models.bradley_terry_loss)(margin, label)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient, (np.array(chance) - np.asarray(label)) / 2, rtol=1e-5)
    reward = jnp.array([[[1.0, 2.0], [4.0, 0.5]]])
    np.testing.assert_allclose(reward_models.margin_of(reward), [1.5])
    assert reward_models.accuracy(jnp.array([1.0, -1.0, -1.0]), jnp.array([1.0, 1.0, 0.5])) == 0.5
    large = reward_models.bradley_terry_loss(jnp.array([200.0]), jnp.array([0.0]))
    np.testing.assert_allclose(large, 200.0)


@pytest.mark.parametrize("discrete", [False, True])
def test_a_reward_is_recovered(discrete):
    """A reward linear in observation and action: order of segments, and correlation with the truth."""
    rng, n, length = np.random.default_rng(0), 1200, 6
    obs, last = rng.normal(size=(n, 2)).astype(np.float32), np.arange(n) % 24 == 23
    if discrete:
        space, action = Discrete(3), rng.integers(0, 3, n).astype(np.int32)
        reward = obs[:, 0] + (action == 2)
    else:
        space, action = Box(-2.0, 2.0, (1,)), rng.uniform(-2, 2, (n, 1)).astype(np.float32)
        reward = obs[:, 0] - action[:, 0]
    data = Dataset(obs, action, reward.astype(np.float32), last & False, last, obs)
    first = preferences.uniform_queries(rng, data, 600, length)
    score = preferences.scores(data, first, length)
    label = np.asarray(preferences.labels(KEY, jnp.asarray(score)), np.float32)
    config = reward_models.Config(num_members=2, hidden=(16,), num_checks=4, num_updates=100, batch_size=32)
    found = Preferences(data, first, label, length)
    seen = Box(-np.inf, np.inf, (2,))
    model, losses = reward_models.fit(KEY, found, seen, space, config, reward_models.Hyper(learning_rate=5e-3))
    assert losses.shape == (4, 2) and np.all(losses.min(0) < 0.25)
    learned = reward_models.relabelled(model, data)
    assert learned.reward.dtype == np.float32 and abs(learned.reward.mean()) < 1e-3
    assert np.corrcoef(learned.reward, reward)[0, 1] > 0.97
    margins = reward_models.margins(model, data, first, length)
    assert margins.shape == (2, 600) and reward_models.accuracy(margins, jnp.asarray(label)) > 0.95
    rows, one = preferences.rows_of(jnp.asarray(first[:9]), length), jax.tree.map(lambda x: x[1], model.weights)
    taken = jnp.asarray(action[rows] if discrete else action[rows] / 2)
    raw = np.asarray(model.network.apply(one, jnp.asarray(obs[rows]), taken)).sum(-1)
    np.testing.assert_allclose(margins[1, :9], raw[:, 1] - raw[:, 0], rtol=1e-3, atol=1e-4)  # as it was fitted
    members = model.members(jnp.asarray(obs[:5]), jnp.asarray(action[:5]))
    np.testing.assert_allclose(model.worst(jnp.asarray(obs[:5]), jnp.asarray(action[:5])), members.min(0))
    worst = reward_models.relabelled(model, data, worst=True)
    assert np.all(worst.reward <= learned.reward + 1e-5)


def test_a_reward_needs_two_pairs():
    one = few(label=(1.0,), first=((0, 8),))
    with pytest.raises(ValueError, match="1 pair: at least 2"):
        reward_models.fit(KEY, one, Box(-np.inf, np.inf, (2,)), Box(-1.0, 1.0, (1,)))
    with pytest.raises(ValueError, match="validation_share=1.0"):
        reward_models.Config(validation_share=1.0)


def test_equal_regrets_are_ties_however_their_numbers_are_rounded():
    """Walks along a line of best actions: all regrets are 0, and float32 adds them up to other numbers."""
    rng, n, gamma, length = np.random.default_rng(0), 400, 0.97, 7
    reward = rng.uniform(-1, 0, n).astype(np.float32)
    value = np.zeros(n + 1)
    for t in reversed(range(n)):
        value[t] = reward[t] + gamma * value[t + 1]
    data = Dataset(rng.normal(size=(n, 1)), np.zeros((n, 1)), reward, np.zeros(n, bool), np.arange(n) == n - 1, None)
    data = data.replace(next_obs=data.obs)
    values = value[:-1].astype(np.float32), value[1:].astype(np.float32)
    first = preferences.uniform_queries(rng, data, 200, length)
    score = jnp.asarray(preferences.scores(data, first, length, gamma, values), jnp.float32)
    apart = preferences.rounding(data, first, length, gamma, values)
    assert np.mean(preferences.labels(KEY, score) == 0.5) < 0.2  # rounding decides
    np.testing.assert_array_equal(preferences.labels(KEY, score, rounding=apart), 0.5)
    worse = data.replace(reward=reward - 1e-3 * (np.arange(n) % 3 == 0).astype(np.float32))  # a real difference is none
    score = preferences.scores(worse, first, length, gamma, values)
    told = np.asarray(preferences.labels(KEY, jnp.asarray(score, jnp.float32), rounding=apart))
    apart64 = score[:, 1] - score[:, 0]
    clear = np.abs(apart64) > 1e-5
    assert 20 < clear.sum() and (told[~clear] == 0.5).all()
    np.testing.assert_array_equal(told[clear], apart64[clear] > 0)
