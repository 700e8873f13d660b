"""The teachers of continuous parameters by hand, against references on the host, and what all of them keep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import curriculum
from jaxrl.algos import ppo
from jaxrl.algos.curricula import alp_gmm, covar_gmm, oracle_teacher, random_teacher, riac
from jaxrl.curriculum.protocol import Outcomes
from jaxrl.curriculum.teaching import ranges
from jaxrl.exact.mixtures import Mixture
from jaxrl.testing.assertions import assert_no_key_reuse

KEY = jax.random.key(0)
TEACHERS = {  # two dimensions, so small that a fit and a split come soon
    "alp_gmm": (alp_gmm, alp_gmm.Config(2, fit_rate=20, largest=3, history=30), alp_gmm.Hyper(0.0, 1.0)),
    "covar_gmm": (covar_gmm, covar_gmm.Config(2, fit_rate=20, largest=3), covar_gmm.Hyper(0.0, 1.0)),
    "riac": (riac, riac.Config(2, region_size=20, attempts=5, max_regions=9), riac.Hyper(0.0, 1.0)),
    "random": (random_teacher, random_teacher.Config(2)),
    "oracle": (oracle_teacher, oracle_teacher.Config(2), oracle_teacher.Hyper(threshold=0.0)),
}


def level_at(params, x):
    return x


def seen(returns, episodes=None):
    returns = jnp.asarray(returns, jnp.float32)
    episodes = jnp.ones(len(returns), jnp.int32) if episodes is None else jnp.asarray(episodes)
    return Outcomes(returns, returns, returns > 0, returns, returns, episodes)


def step(cur, key, state, n=2):
    """One batch of tasks, on which the return is higher the nearer to the corner at (1, 1)."""
    sample_key, update_key = jax.random.split(key)
    batch, state = cur.sample(sample_key, state, jnp.ones(n, bool))
    return cur.update(update_key, state, batch, seen(batch.note.sum(1) / 2)), batch.note


def run(cur, key, steps=30):
    return jax.lax.scan(
        lambda state, key: step(cur, key, state), cur.init(key, cur.hyper, ()), jax.random.split(key, steps)
    )


# ---- what all keep


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", TEACHERS)
def test_a_batch_of_runs_is_the_single_runs(name):
    module, *settings = TEACHERS[name]
    cur = module.make(level_at, *settings)
    keys = jax.random.split(KEY, 3)
    states, x = jax.jit(jax.vmap(lambda key: run(cur, key)))(keys)
    assert ((np.asarray(x) >= 0) & (np.asarray(x) <= 1)).all()
    one = jax.jit(lambda key: run(cur, key))
    for i in range(3):
        alone = one(keys[i])
        for a, b in zip(jax.tree.leaves((states, x)), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEACHERS)
def test_keys_and_compilations(name):
    module, *settings = TEACHERS[name]
    cur = module.make(level_at, *settings)
    state = jax.jit(cur.init)(KEY, cur.hyper, ())
    # A key of its own: the checker remembers which were used.
    assert_no_key_reuse(lambda key, state: step(cur, key, state), jax.random.key(1), state)
    again = jax.jit(lambda key, state: step(cur, key, state)[0])
    for i in range(12):
        state = again(jax.random.fold_in(KEY, i), state)
    assert again._cache_size() == 1  # pyright: ignore[reportFunctionMemberAccess]


@pytest.mark.slow
@pytest.mark.parametrize("name", TEACHERS)
def test_unfinished_episodes_do_not_count(name):
    module, *settings = TEACHERS[name]
    cur = module.make(level_at, *settings)
    start = cur.init(KEY, cur.hyper, ())
    batch, _ = cur.sample(KEY, start, jnp.ones(25, bool))
    after = cur.update(KEY, start, batch, seen(jnp.ones(25), jnp.zeros(25, jnp.int32)))
    jax.tree.map(np.testing.assert_array_equal, start, after)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", TEACHERS)
def test_dimensions_come_from_the_level_function(name):
    params = jaxrl.make("CartPole-v1")[1]
    lengths = ranges(params, {"length": (0.2, 3.0), "mass_pole": (0.05, 1.0)})
    module, _, *hyper = TEACHERS[name]
    cur = module.make(lengths, module.Config(), *hyper)
    batch, _ = cur.sample(KEY, cur.init(KEY, cur.hyper, params), jnp.ones(64, bool))
    assert batch.note.shape == (64, 2)
    np.testing.assert_allclose(batch.params.length, 0.2 + 2.8 * batch.note[:, 0], rtol=1e-5)
    with pytest.raises(ValueError, match="dimensions=3: level_at varies 2"):
        module.make(lengths, module.Config(dimensions=3), *hyper)


# ---- ALP-GMM


def test_learning_progress_by_hand():
    x = jnp.array([[0.0], [1.0], [0.52], [0.9], [0.98]])
    reward = jnp.array([0.1, 0.5, 0.6, 0.2, 0.9])
    past = jnp.array([[0.1], [0.5], [0.7], [0.0]]), jnp.array([0.4, 0.5, 0.0, 9.0]), jnp.array([1, 1, 1, 0], bool)
    finished = jnp.array([True, True, True, False, True])
    alp = alp_gmm.learning_progress(x, reward, finished, *past, jnp.int32(10))
    # Nearest: 0.1, 0.7, 0.5, 1.0 of the batch, and 1.0 again, as 0.9 has not finished.
    np.testing.assert_allclose(alp, [0.3, 0.5, 0.1, 0.3, 0.4], atol=1e-6)
    few = alp_gmm.learning_progress(x, reward, finished, *past, jnp.int32(3))
    np.testing.assert_allclose(few, [0, 0, 0, 0.3, 0.4], atol=1e-6)  # more than five before: from the fourth on


@pytest.mark.slow
def test_learning_progress_is_that_of_one_task_after_another():
    cur = alp_gmm.make(level_at, alp_gmm.Config(2, fit_rate=20, largest=2, history=100), alp_gmm.Hyper(0.0, 1.0))
    x = np.asarray(jax.random.uniform(KEY, (48, 2)))
    reward = np.asarray(jax.random.uniform(jax.random.key(1), (48,)))
    expected = []
    for i in range(48):
        nearest = ((x[:i] - x[i]) ** 2).sum(1).argmin() if i > 5 else None
        expected.append(0 if nearest is None else abs(reward[i] - reward[nearest]))
    state, update = cur.init(KEY, cur.hyper, ()), jax.jit(cur.update)
    batch, _ = cur.sample(KEY, state, jnp.ones(8, bool))
    for i in range(0, 48, 8):
        state = update(KEY, state, batch._replace(note=jnp.asarray(x[i : i + 8])), seen(reward[i : i + 8]))
    np.testing.assert_allclose(state.history.rows[:48, :2], x)
    np.testing.assert_allclose(state.history.rows[:48, 3], expected, atol=1e-6)


@pytest.mark.slow
def test_rewards_are_returns_in_their_bounds():
    cur = alp_gmm.make(level_at, TEACHERS["alp_gmm"][1], alp_gmm.Hyper(return_low=-150.0, return_high=350.0))
    state = cur.init(KEY, cur.hyper, ())
    batch, _ = cur.sample(KEY, state, jnp.ones(4, bool))
    state = cur.update(KEY, state, batch, seen([-200.0, -150.0, 100.0, 400.0]))
    np.testing.assert_allclose(state.history.rows[:4, 2], [0, 0, 0.5, 1])


def two_places(utility, d):
    """Components at (0.2, 0.2) and (0.8, 0.8), the last dimensions as given."""
    mean = jnp.concatenate([jnp.array([[0.2, 0.2], [0.8, 0.8], [0.5, 0.5]]), utility], 1)
    return Mixture(jnp.array([0.5, 0.5, 0.0]), mean, jnp.broadcast_to(1e-4 * jnp.eye(d), (3, d, d)))


@pytest.mark.slow
def test_alp_gmm_samples_where_progress_is():
    cur = alp_gmm.make(level_at, *TEACHERS["alp_gmm"][1:])
    state = cur.init(KEY, cur.hyper, ())
    state = state.replace(mixture=two_places(jnp.array([[0.1], [0.3], [9.0]]), 3))
    x = np.asarray(cur.sample(KEY, state, jnp.ones(8000, bool))[0].note)
    np.testing.assert_allclose(x.mean(0), 0.5, atol=0.02)  # nothing but random tasks before the first fit
    np.testing.assert_allclose(x.std(0), 12**-0.5, atol=0.01)
    x = np.asarray(
        cur.sample(KEY, state.replace(history=state.history.replace(count=jnp.int32(20))), jnp.ones(8000, bool))[0].note
    )
    at_first, at_second = (np.abs(x - c).max(1) < 0.05 for c in (0.2, 0.8))
    np.testing.assert_allclose(at_first.mean(), 0.2 * 0.1**2 + 0.8 / 4, atol=0.02)
    np.testing.assert_allclose(at_second.mean(), 0.2 * 0.1**2 + 0.8 * 3 / 4, atol=0.02)


@pytest.mark.slow
@pytest.mark.light
def test_fits_fall_due_every_fit_rate_episodes():
    cur = alp_gmm.make(level_at, *TEACHERS["alp_gmm"][1:])
    state, fitted = cur.init(KEY, cur.hyper, ()), []
    advance = jax.jit(lambda key, state: step(cur, key, state, 8)[0])
    for i in range(6):
        before, state = state, advance(jax.random.fold_in(KEY, i), state)
        fitted.append(not np.array_equal(before.mixture.mean, state.mixture.mean))
    assert fitted == [False, False, True, False, True, False]  # at 24, the first past 20, and at 40


# ---- Covar-GMM


@pytest.mark.slow
@pytest.mark.light
def test_covar_gmm_samples_where_rewards_grow():
    cur = covar_gmm.make(level_at, *TEACHERS["covar_gmm"][1:])
    state = cur.init(KEY, cur.hyper, ())
    mixture = two_places(jnp.full((3, 2), 0.5), 4)
    covariance = mixture.covariance.at[:, 2, 3].set(jnp.array([-5e-5, 5e-5, 5e-5]))
    mixture = mixture.replace(covariance=covariance.at[:, 3, 2].set(covariance[:, 2, 3]))
    state = state.replace(mixture=mixture, history=state.history.replace(count=jnp.int32(20)))
    x = np.asarray(cur.sample(KEY, state, jnp.ones(4000, bool))[0].note)
    np.testing.assert_allclose((np.abs(x - 0.8).max(1) < 0.05).mean(), 0.2 * 0.1**2 + 0.8, atol=0.02)


@pytest.mark.slow
def test_covar_gmm_fits_tasks_times_and_rewards():
    cur = covar_gmm.make(level_at, covar_gmm.Config(1, fit_rate=40, smallest=1, largest=1), covar_gmm.Hyper(0.0, 1.0))
    state, x = cur.init(KEY, cur.hyper, ()), np.asarray(jax.random.uniform(KEY, (40, 1)))
    reward = np.linspace(0, 1, 40) ** 2
    batch, _ = cur.sample(KEY, state, jnp.ones(20, bool))
    for part in (slice(0, 20), slice(20, 40)):
        assert not state.mixture.weight.any()
        state = cur.update(KEY, state, batch._replace(note=jnp.asarray(x[part])), seen(reward[part]))
    points = np.stack([x[:, 0], np.arange(40) / 40, reward], 1)
    np.testing.assert_allclose(state.mixture.mean[0], points.mean(0), rtol=1e-4)
    np.testing.assert_allclose(state.mixture.covariance[0], np.cov(points.T, bias=True), rtol=1e-3, atol=1e-5)


# ---- RIAC


def alp_of(rewards, window):
    rewards = np.asarray(rewards, float)
    if len(rewards) <= 2:
        return 0.0
    recent = min(len(rewards), window)
    half = recent // 2
    return abs(rewards[-recent:-half].mean() - rewards[-half:].mean())


def test_progress_by_hand():
    rewards = jnp.array([5.0, 0.0, 0.0, 1.0, 1.0, 1.0, 7.0])
    rank = jnp.array([9, 0, 1, 2, 3, 4, 9])
    for count, window, expected in (5, 9, 3 / 3 - 1 / 3), (5, 4, 1 - 1 / 2), (5, 3, 0), (3, 9, 1), (2, 9, 0):
        np.testing.assert_allclose(riac.progress(rewards, rank, jnp.int32(count), window), expected, atol=1e-6)


@pytest.mark.slow
def test_the_split_with_the_most_different_progress_wins():
    config = riac.Config(1, region_size=40, attempts=200)
    x = np.random.default_rng(0).permutation(np.linspace(0.005, 0.995, 41))
    reward = np.where(x > 0.6, np.arange(41) >= 20, 0.3).astype(np.float32)  # what changes lies above 0.6
    box = jnp.zeros(1), jnp.ones(1)
    split = riac.best_split(KEY, jnp.asarray(x, jnp.float32)[:, None], jnp.asarray(reward), *box, config, 1 / 15)
    place = float(split.high[0, 0])
    assert split.valid and split.low.tolist() == [[0], [place]] and split.high.tolist() == [[place], [1]]

    def score(place):
        below = x <= place
        return below.sum() * (~below).sum() * abs(alp_of(reward[below], 40) - alp_of(reward[~below], 40))

    everywhere = [score(p) for p in np.linspace(1 / 15, 14 / 15, 500)]
    np.testing.assert_allclose(score(place), max(everywhere), rtol=1e-5)
    below = x <= place
    for side, mine in enumerate((below, ~below)):
        assert split.held[side] == mine.sum()
        np.testing.assert_allclose(split.x[side, : mine.sum(), 0], x[mine], rtol=1e-6)
        np.testing.assert_allclose(split.reward[side, : mine.sum()], reward[mine])
        np.testing.assert_allclose(split.alp[side], alp_of(reward[mine], 40), atol=1e-6)


@pytest.mark.slow
def test_a_leaf_that_cannot_split_forgets_its_oldest_quarter():
    cur = riac.make(level_at, riac.Config(1, region_size=20), riac.Hyper(0.0, 1.0))
    state = cur.init(KEY, cur.hyper, ())
    batch, _ = cur.sample(KEY, state, jnp.ones(21, bool))
    x = jnp.linspace(0.0, 0.05, 21)[:, None]  # any cut between them leaves less than 1/15 on one side
    state = jax.jit(cur.update)(KEY, state, batch._replace(note=x), seen(jnp.arange(21) / 21))
    tree = state.tree
    assert tree.size == 1 and tree.held[0] == 16
    np.testing.assert_allclose(riac.in_order(tree.x[0], tree.oldest[0])[:16], x[5:])
    np.testing.assert_allclose(tree.alp[0], alp_of(np.arange(5, 21) / 21, 20), atol=1e-6)


@pytest.mark.slow
def test_the_tree_is_a_partition_and_each_region_knows_its_own():
    config = riac.Config(2, region_size=20, attempts=10, max_regions=31)
    cur = riac.make(level_at, config, riac.Hyper(0.0, 1.0))
    x = np.asarray(jax.random.uniform(KEY, (400, 2)))
    reward = np.arange(400) / 400  # tells when
    state, update = cur.init(KEY, cur.hyper, ()), jax.jit(cur.update)
    batch, _ = cur.sample(KEY, state, jnp.ones(8, bool))
    for i in range(0, 400, 8):
        given = batch._replace(note=jnp.asarray(x[i : i + 8]))
        state = update(jax.random.fold_in(KEY, i), state, given, seen(reward[i : i + 8]))
    tree = jax.tree.map(np.asarray, state.tree)
    assert 10 < tree.size <= 31 and tree.leaf[: tree.size].sum() == (tree.size + 1) // 2
    volume = (tree.high - tree.low).prod(1)
    np.testing.assert_allclose(volume[: tree.size][tree.leaf[: tree.size]].sum(), 1, rtol=1e-5)
    assert ((tree.high - tree.low)[: tree.size] >= 1 / 15 - 1e-6).all()
    for r in range(tree.size):
        rows = np.asarray(riac.in_order(state.tree.reward[r], state.tree.oldest[r]))[: tree.held[r]]
        inside = ((tree.low[r] <= x) & (x <= tree.high[r])).all(1)
        latest = reward[inside][-tree.held[r] :]
        np.testing.assert_allclose(rows, latest, rtol=1e-5)
        assert tree.held[r] <= 21 if not tree.leaf[r] else tree.held[r] <= 20
        np.testing.assert_allclose(tree.alp[r], alp_of(latest, 20), atol=1e-5)
    held = np.asarray(riac.in_order(state.tree.reward[0], state.tree.oldest[0]))
    np.testing.assert_allclose(held, reward[-21:], rtol=1e-5)  # the root holds the last of all


@pytest.mark.slow
def test_riac_samples_regions_by_progress_and_mutates_their_worst_task():
    cur = riac.make(level_at, TEACHERS["riac"][1], riac.Hyper(0.0, 1.0, mutation=0.01))
    state = cur.init(KEY, cur.hyper, ())
    tree = state.tree.replace(
        low=state.tree.low.at[1, 0].set(0.5).at[2, 1].set(0.9),
        high=state.tree.high.at[2].set(jnp.array([0.1, 1.0])),
        alp=state.tree.alp.at[1:3].set(jnp.array([3.0, 1.0])),
        size=jnp.int32(3),
        held=state.tree.held.at[1:3].set(3),
        x=state.tree.x.at[1:3, :3].set(jnp.array([[[0.9, 0.5], [0.7, 0.5], [0.6, 0.5]], [[0.05, 0.95]] * 3])),
        reward=state.tree.reward.at[1:3, :3].set(jnp.array([0.5, 0.1, 0.1])),
    )
    x = np.asarray(cur.sample(KEY, state.replace(tree=tree), jnp.ones(20_000, bool))[0].note)
    assert ((x[:, 0] >= 0) & (x <= 1).all(1)).all()
    worst = (np.abs(x - np.array([0.7, 0.5])) < 0.03).all(1)
    np.testing.assert_allclose(worst.mean(), 0.1 * 0.75 + 0.2 * 0.0036 + 0.7 * 0.75 * 0.0072, atol=0.01)
    corner = (x[:, 0] <= 0.1) & (x[:, 1] >= 0.9)
    np.testing.assert_allclose(corner.mean(), 0.1 / 4 + 0.2 * 0.01 + 0.7 / 4, atol=0.01)
    half = x[:, 0] > 0.5
    np.testing.assert_allclose(half.mean(), 0.1 * 0.75 + 0.2 * 0.5 + 0.7 * 0.75, atol=0.01)


# ---- oracle and random


def test_the_oracles_window():
    hyper = oracle_teacher.Hyper(threshold=5.0, step=(0.5, -0.3), window=0.25, num_returns=4.0)
    cur = oracle_teacher.make(level_at, oracle_teacher.Config(2), hyper)
    state = cur.init(KEY, cur.hyper, ())
    np.testing.assert_allclose(state.low, [0, 0.75])
    batch, _ = cur.sample(KEY, state, jnp.ones(2000, bool))
    x = np.asarray(batch.note) - np.array([0, 0.75])
    assert x.min() >= 0 and x.max() <= 0.25
    np.testing.assert_allclose(x.mean(0), 0.125, atol=0.01)
    batch = batch._replace(note=batch.note[:2])
    for returns, low in (
        ([9.0, 9.0], [0, 0.75]),  # too few
        ([1.0, 1.0], [0, 0.75]),  # a mean of 5 is not above 5
        ([9.0, 9.0], [0, 0.75]),  # the four before are forgotten
        ([2.0, 1.0], [0.5, 0.45]),
        ([9.0, 9.0], [0.5, 0.45]),
        ([9.0, 9.0], [0.75, 0.15]),  # no farther than the end
        ([9.0, 9.0], [0.75, 0.15]),
        ([9.0, 9.0], [0.75, 0]),
    ):
        state = cur.update(KEY, state, batch, seen(returns))
        np.testing.assert_allclose(state.low, low, atol=1e-6)


def test_random_tasks_fill_the_box():
    cur = random_teacher.make(level_at, random_teacher.Config(2))
    batch, _ = cur.sample(KEY, cur.init(KEY, cur.hyper, ()), jnp.ones(4000, bool))
    counts = np.histogram2d(*np.asarray(batch.note).T, bins=4, range=[[0, 1]] * 2)[0]
    np.testing.assert_allclose(counts, 250, atol=70)


# ---- a student


@pytest.mark.slow
def test_a_student_under_a_teacher():
    env, params = jaxrl.make("CartPole-v1")
    lengths = ranges(params, {"length": (0.2, 3.0), "mass_pole": (0.05, 1.0)})
    config = alp_gmm.Config(fit_rate=40, largest=3)
    cur = alp_gmm.make(lengths, config, alp_gmm.Hyper(0.0, 500.0))
    venv = jaxrl.vectorize(env, 8, batched_params=True)
    student = ppo.make(venv, ppo.Config(num_envs=8, num_steps=64, num_epochs=1, num_minibatches=2, hidden=(8,)))
    algo = curriculum.attach(student, cur)
    state, update = jax.jit(algo.init)(KEY), jax.jit(algo.update)
    for _ in range(12):
        state, _ = update(state)
    assert 40 <= state.curriculum.history.count <= 96 and state.curriculum.mixture.weight.any()
    length = np.asarray(state.env_params.length)
    assert (length >= 0.2).all() and (length <= 3.0).all() and len(np.unique(length)) == 8
    assert update._cache_size() == 1  # pyright: ignore[reportFunctionMemberAccess]


# ---- refusals


@pytest.mark.parametrize(
    ("module", "hyper", "says"),
    [
        (alp_gmm, {"return_low": 2.0}, "return_low=2.0 must be below return_high=1.0"),
        (alp_gmm, {"random_share": 1.5}, "random_share=1.5"),
        (covar_gmm, {"return_high": 0.0}, "return_low=0.0"),
        (riac, {"random_share": 1.0}, "random_share=1.0 and mutation_share=0.1"),
        (riac, {"min_width": 0.0}, "min_width=0.0"),
        (oracle_teacher, {"step": (0.1, 0.1, 0.1)}, r"step has shape \(3,\): a number or 2"),
        (oracle_teacher, {"window": 0.0}, "window=0.0"),
        (oracle_teacher, {"num_returns": 0.0}, "num_returns=0.0"),
    ],
)
def test_refuses_hyper(module, hyper, says):
    with pytest.raises(ValueError, match=says):
        needed = {"threshold": 0.0} if module is oracle_teacher else {"return_low": 0.0, "return_high": 1.0}
        module.make(level_at, module.Config(2), module.Hyper(**{**needed, **hyper}))


@pytest.mark.parametrize(
    ("config", "settings", "says"),
    [
        (alp_gmm.Config, {"smallest": 4, "largest": 3}, "smallest=4, largest=3"),
        (alp_gmm.Config, {"history": 100}, "history=100.* fit_rate=250"),
        (covar_gmm.Config, {"largest": 300}, "largest=300, fit_rate=250"),
        (riac.Config, {"region_size": 2}, "region_size=2"),
        (riac.Config, {"max_regions": 0}, "max_regions=0"),
    ],
)
def test_refuses_config(config, settings, says):
    with pytest.raises(ValueError, match=says):
        config(**settings)


def test_refuses_a_level_function_that_does_not_say_its_dimensions():
    with pytest.raises(ValueError, match="dimensions=None"):
        alp_gmm.make(level_at, alp_gmm.Config(), alp_gmm.Hyper(0.0, 1.0))
