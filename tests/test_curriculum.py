"""The level buffer and scores against brute force, and robust PLR around a student."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import curriculum
from jaxrl.algos import dqn, plr, ppo
from jaxrl.curriculum import LevelBatch, LevelBuffer, Outcomes

BUFFER = LevelBuffer(
    levels={"mass": jnp.asarray([1.0, 2.0, 3.0, 4.0, 0.0])},
    score=jnp.asarray([0.5, 2.0, -1.0, 1.0, -jnp.inf]),
    max_return=jnp.asarray([5.0, 6.0, 7.0, 8.0, -jnp.inf]),
    sampled_at=jnp.asarray([9, 10, 4, 7, 0]),
    clock=jnp.int32(10),
)


def test_weights_mix_rank_and_age():
    by_rank = np.array([1 / 3, 1.0, 1 / 4, 1 / 2, 0]) ** 2  # temperature 0.5
    by_age = np.array([1, 0, 6, 3, 0.0])
    expected = 0.7 * by_rank / by_rank.sum() + 0.3 * by_age / by_age.sum()
    weights = curriculum.buffer_weights(BUFFER, 0.5, 0.3)
    np.testing.assert_allclose(weights, expected, rtol=1e-5)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-6)


def test_staleness_is_monotone_and_an_empty_buffer_weighs_nothing():
    weights = np.asarray(curriculum.buffer_weights(BUFFER, 0.5, 1.0))
    assert weights[2] > weights[3] > weights[0] > weights[1] == weights[4] == 0
    empty = curriculum.buffer_init({"mass": jnp.zeros(())}, 3)
    assert not curriculum.buffer_weights(empty, 0.5, 0.3).any()


def test_draw_follows_the_weights_without_repetition():
    weights = jnp.asarray([0.1, 0.0, 0.6, 0.3])
    draws = jax.vmap(lambda k: curriculum.buffer_draw(k, weights, 2))(jax.random.split(jax.random.key(0), 4000))
    assert (draws[:, 0] != draws[:, 1]).all() and not (draws == 1).any()
    np.testing.assert_allclose(np.bincount(draws[:, 0], minlength=4) / 4000, weights, atol=0.03)
    many = curriculum.buffer_draw(jax.random.key(1), weights, 6)
    assert sorted(set(many.tolist())) == [0, 2, 3]


def test_insert_replaces_the_least_useful_where_the_new_is_better():
    usefulness = jnp.asarray([0.1, 0.5, 0.05, 0.35, 0.0])
    after = curriculum.buffer_insert(
        BUFFER,
        {"mass": jnp.asarray([10.0, 11.0, 12.0])},
        jnp.asarray([0.2, -jnp.inf, 3.0]),
        jnp.asarray([1.0, 2.0, 3.0]),
        usefulness,
    )
    # The best (12) takes the empty slot, the second (10, score 0.2) the least useful (slot 2, -1.0); -inf stays out.
    np.testing.assert_array_equal(after.levels["mass"], [1, 2, 10, 4, 12])
    np.testing.assert_allclose(after.score, [0.5, 2.0, 0.2, 1.0, 3.0])
    np.testing.assert_array_equal(after.max_return, [5, 6, 1, 8, 3])
    np.testing.assert_array_equal(after.sampled_at, [9, 10, 10, 7, 10])


def test_insert_keeps_a_useless_but_better_level():
    full = BUFFER.replace(score=BUFFER.score.at[4].set(5.0))
    after = curriculum.buffer_insert(
        full, {"mass": jnp.asarray([9.0])}, jnp.asarray([4.0]), jnp.zeros(1), jnp.asarray([0.3, 0.3, 0.2, 0.15, 0.05])
    )
    np.testing.assert_array_equal(after.levels["mass"], full.levels["mass"])


def rollout(**changes):
    false = jnp.zeros((3, 2), bool)
    fields = dict(
        obs=None, action=None, log_prob=None, next_value=jnp.asarray([[2.0, 1.0], [0.0, 1.0], [4.0, 1.0]]),
        value=jnp.asarray([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]]), reward=jnp.asarray([[1.0, 0.0], [1.0, 0.0], [0.0,
        0.0]]), terminated=false.at[1, 0].set(True), truncated=false, episode_return=jnp.asarray([[1.0, 0.0], [2.0,
        0.0], [0.0, 0.0]]), episode_length=jnp.asarray([[1, 1], [2, 2], [1, 3]]),
    )  # fmt: skip
    return ppo.Rollout(**{**fields, **changes})


def test_scores_by_hand():
    seen = curriculum.outcomes(rollout(), curriculum.max_mc, jnp.asarray([1.5, -jnp.inf]), 0.5, 0.0)
    np.testing.assert_array_equal(seen.episodes, [1, 0])
    np.testing.assert_allclose(seen.episode_return, [2.0, 0.0])
    np.testing.assert_allclose(seen.episode_length, [2.0, 0.0])
    np.testing.assert_allclose(seen.success, [1.0, 0.0])
    np.testing.assert_allclose(seen.max_return, [2.0, -np.inf])
    np.testing.assert_allclose(seen.score, [0.0, -np.inf])  # 2 - mean(1, 2, 3); never finished
    # lambda 0: advantage = reward + gamma next_value (unless terminated) - value = 1, -1, -1 and -0.5 thrice
    pvl = curriculum.positive_value_loss(rollout(), jnp.zeros(2), 0.5, 0.0)
    np.testing.assert_allclose(pvl, [1 / 3, 0.0], atol=1e-6)


def cartpole_level(key, params):
    """A two-parameter family: pole length and mass."""
    length, mass = jax.random.uniform(key, (2,), minval=0.2, maxval=3.0)
    return params.replace(length=length * params.length, mass_pole=mass * params.mass_pole)


@pytest.fixture(scope="module")
def robust_plr():
    env, _ = jaxrl.make("CartPole-v1")
    venv = jaxrl.vectorize(env, 4, batched_params=True)
    student = ppo.make(venv, ppo.Config(num_envs=4, num_steps=16, num_epochs=1, num_minibatches=2, hidden=(8,)))
    hyper = plr.Hyper(replay_prob=0.5, min_fill=0.5)
    algo = curriculum.attach(student, plr.make(cartpole_level, plr.Config(buffer_size=12), hyper))
    return algo, jax.jit(algo.init), jax.jit(algo.collect), jax.jit(algo.learn), jax.jit(algo.update)


def test_robust_plr_learns_from_replayed_levels_only(robust_plr):
    algo, init, collect, learn, _ = robust_plr
    state = init(jax.random.key(3))
    replays = 0
    for _ in range(24):
        before = state
        state, made = collect(before)
        replayed = bool((made.batch.slot >= 0).all())
        assert replayed or bool((made.batch.slot < 0).all())
        if replayed:  # the levels are the buffer's, and the students' params are the levels
            held = before.curriculum.buffer.levels.length[made.batch.slot]
            np.testing.assert_array_equal(held, made.batch.params.length)
        np.testing.assert_array_equal(state.env_params.length, made.batch.params.length)
        assert len(set(made.batch.params.length.tolist())) == 4
        state, metrics = learn(state, made)
        change = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), before.weights, state.weights)
        assert (max(jax.tree.leaves(change)) > 0) == replayed
        assert np.isfinite(metrics["loss"])
        replays += replayed
    assert 3 <= replays <= 20
    score = np.asarray(state.curriculum.buffer.score)
    assert np.isfinite(score).sum() >= 6


def test_replay_updates_score_and_keeps_the_best_return(robust_plr):
    cur = plr.make(cartpole_level, plr.Config(buffer_size=5))
    _, params = jaxrl.make("CartPole-v1")
    state = cur.init(jax.random.key(0), params)
    levels = jax.vmap(cartpole_level, (0, None))(jax.random.split(jax.random.key(0), 5), params)
    state = state.replace(buffer=BUFFER.replace(levels=levels))
    batch = LevelBatch(
        params=jax.tree.map(lambda x: x[jnp.asarray([2, 0])], levels),
        slot=jnp.asarray([2, 0]), learn_mask=jnp.ones(2, bool), parent=jnp.full(2, -1), max_return=jnp.asarray([7.0,
        5.0]),
    )  # fmt: skip
    seen = Outcomes(
        *[jnp.zeros(2)] * 3, score=jnp.asarray([4.0, -jnp.inf]), max_return=jnp.asarray([6.0, 9.0]), episodes=1
    )
    buffer = cur.update(jax.random.key(1), state, batch, seen).buffer
    np.testing.assert_allclose(buffer.score, [0.5, 2.0, 4.0, 1.0, -np.inf])
    np.testing.assert_allclose(buffer.max_return, [5.0, 6.0, 7.0, 8.0, -np.inf])
    np.testing.assert_array_equal(buffer.levels.length, levels.length)


def test_attached_algorithm_trains_and_resumes_unchanged(robust_plr):
    algo, init, _, _, update = robust_plr
    state, metrics = jax.jit(lambda k: jaxrl.train(algo, k, 6 * algo.steps_per_update))(jax.random.key(1))
    assert metrics["loss"].shape == (6,) and int(state.step) == 6 * algo.steps_per_update
    again = init(jax.random.key(1))
    for _ in range(6):
        again, _ = update(again)
    leaves = zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True)
    for a, b in leaves:
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    action, _ = algo.act(algo.policy(state), jax.random.key(0), jnp.zeros((3, 4)))
    assert action.shape == (3,)


def test_changing_levels_does_not_recompile(robust_plr):
    _, init, _, _, update = robust_plr
    state = init(jax.random.key(0))
    state, _ = update(state)
    size = update._cache_size()
    for _ in range(3):
        state, _ = update(state)
    assert update._cache_size() == size


def test_errors_name_the_remedy():
    env, params = jaxrl.make("CartPole-v1")
    with pytest.raises(ValueError, match="batched_params=True"):
        curriculum.attach(ppo.make(env, ppo.Config(num_envs=4)), plr.make(cartpole_level))
    with pytest.raises(ValueError, match="buffer_size=0"):
        plr.Config(buffer_size=0)
    blind = dqn.make(jaxrl.vectorize(env, 10, batched_params=True), dqn.Config(num_envs=10))
    attached = curriculum.attach(blind, plr.make(cartpole_level, plr.Config(buffer_size=10)))
    with pytest.raises(ValueError, match="rollouts of dqn have no learn_mask, next_value, value.*ppo_rnn"):
        jax.eval_shape(lambda key: attached.update(attached.init(key)), jax.random.key(0))
    cur = plr.make(cartpole_level, plr.Config(buffer_size=2))
    with pytest.raises(ValueError, match="buffer_size=2 cannot fill a batch of 3"):
        cur.sample(jax.random.key(0), cur.init(jax.random.key(0), params), 3)
