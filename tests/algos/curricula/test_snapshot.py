"""Starts in stored states, on every environment; snapshots of a teacher; clusters against brute force; students."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import curriculum
from jaxrl.algos import ppo, sac
from jaxrl.algos.curricula import snapshot
from jaxrl.environment import Hints, pytree
from jaxrl.exact.mdp import TabularEnvironment, TabularState, certain
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.environments import check_environment
from jaxrl.wrappers import FromStates, StickyActions

KEY = jax.random.key(0)


@pytree
class CorridorParams:
    max_steps: jax.Array = 30


class Corridor(TabularEnvironment):
    """Cells 0 to 9, from left to right; the last one ends the episode and pays 1."""

    num_states, num_actions = 10, 2
    Params = CorridorParams
    hints = Hints(deterministic=True)

    def outcomes(self, state, action, params):
        to = jnp.clip(state + 2 * action - 1, 0, 9)
        return certain(to, jnp.where(to == 9, 1.0, 0.0), to == 9)


ENV = Corridor(id="Corridor")
PARAMS = ENV.default_params
STARTS = FromStates(ENV)


def cells(*index):
    index = jnp.array(index, jnp.int32)
    return TabularState(time=index + 7, index=index)  # the clock does not matter


def begins(params, n=4000):
    _, state = jax.vmap(STARTS.reset, (0, None))(jax.random.split(KEY, n), params)
    assert (np.asarray(state.time) == 0).all()
    return np.bincount(np.asarray(state.index), minlength=10) / n


# ---- FromStates


@pytest.mark.slow
@pytest.mark.light
def test_it_is_an_environment():
    starts = FromStates(jaxrl.make("CartPole-v1")[0])
    check_environment(starts, starts.default_params, KEY)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", ["Pendulum-v1", "FrozenLake-v1", "Maze-v0"])
def test_any_state_may_be_a_start(id):
    env, params = jaxrl.make(id)
    starts = FromStates(env)
    # Anywhere in an episode: stored, started again and stepped as the environment steps.
    obs, state = env.reset(KEY, params)
    for i in range(3):
        key = jax.random.fold_in(KEY, i)
        obs, state, *_ = env.step(key, state, env.action_space(params).sample(key), params)
    again, begun = starts.reset(KEY, starts.starting(params, jax.tree.map(lambda x: x[None], state)))
    assert begun.time == 0 and state.time == 3
    jax.tree.map(np.testing.assert_array_equal, begun, state.replace(time=jnp.zeros_like(state.time)))
    if env.hints.noiseless or env.hints.deterministic:
        jax.tree.map(np.testing.assert_allclose, again, obs)
    action = env.action_space(params).sample(KEY)
    there = starts.step(KEY, begun, action, starts.starting(params, jax.tree.map(lambda x: x[None], state)))
    jax.tree.map(np.testing.assert_array_equal, there, env.step(KEY, begun, action, params))


@pytest.mark.slow
@pytest.mark.light
def test_weights_and_share():
    np.testing.assert_array_equal(begins(STARTS.default_params), np.eye(10)[0])
    params = STARTS.starting(PARAMS, cells(4, 2, 6, 8), jnp.array([0.0, 3.0, 1.0, 0.0]))
    np.testing.assert_allclose(begins(params)[[2, 6]], [0.75, 0.25], atol=0.03)
    half = begins(params.replace(share=0.5))
    np.testing.assert_allclose(half[[0, 2, 6]], [0.5, 0.375, 0.125], atol=0.03)
    np.testing.assert_allclose(begins(STARTS.starting(PARAMS, cells(1, 5)))[[1, 5]], 0.5, atol=0.03)


@pytest.mark.slow
@pytest.mark.light
def test_the_limit_holds_while_episodes_start_from_states():
    params = STARTS.starting(PARAMS, cells(4), limit=5)
    assert params.max_steps == 5 and params.replace(share=jnp.zeros(())).max_steps == 30
    assert params.replace(limit=jnp.int32(99)).max_steps == 30
    known = jax.jit(lambda x: x + np.asarray(params.max_steps))(1)  # though something else is traced
    assert known == 6
    venv = jaxrl.vectorize(STARTS, 3)
    _, state = venv.reset(KEY, params)
    for i in range(1, 8):
        ts = venv.step(jax.random.fold_in(KEY, i), state, jnp.array([0, 0, 1]), params)
        state = ts.state
        np.testing.assert_array_equal(ts.truncated, [i == 5] * 3)  # the third one, too, at the goal
        np.testing.assert_array_equal(ts.terminated, [False, False, i == 5])
        if i == 5:
            np.testing.assert_array_equal(state.env.index, 4)  # all begin again in the stored state
            np.testing.assert_array_equal(state.env.time, 0)


def test_around_a_wrapper_that_remembers():
    env = StickyActions(ENV)
    starts, params = FromStates(env), env.default_params
    _, state = env.reset(KEY, params)
    state = env.step(KEY, state, jnp.int32(1), params).state
    _, begun = starts.reset(KEY, starts.starting(params, jax.tree.map(lambda x: x[None], state)))
    assert begun.time == 0 and begun.env.index == 1 and begun.memory == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"states": {"x": jnp.zeros(2)}}, "states are dict, not states of Corridor"),
        ({"states": TabularState(jnp.zeros(2, jnp.int32), jnp.zeros(2))}, r"states.index is float32 \(2,\)"),
        ({"states": cells(1, 2, 3)}, r"time is int32 \(3,\); \(2,\) states of Corridor need int32 \(2,\)"),
        ({"weights": jnp.zeros(2)}, "must be finite, none below 0 and some above"),
        ({"weights": jnp.array([1.0, -1.0])}, "must be finite, none below 0"),
        ({"share": jnp.array(1.5)}, "share=1.5 must be from 0 to 1"),
        ({"limit": jnp.int32(0)}, "limit=0 must be at least 1"),
    ],
)
def test_impossible_starts(change, words):
    params = STARTS.starting(PARAMS, cells(1, 2))
    STARTS.validate(params)
    with pytest.raises(ValueError, match=words):
        STARTS.reset(KEY, params.replace(**change))


# ---- clusters


def error_of(values, labels):
    return sum(((values[labels == c] - values[labels == c].mean()) ** 2).sum() for c in np.unique(labels))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_the_best_ones(seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=9).round(1).astype(np.float32) * 100 + 5000
    labels = np.asarray(snapshot.clusters(jnp.asarray(values), jnp.ones(9, bool), 3))
    best = min(error_of(values, np.array(l)) for l in itertools.product(range(3), repeat=9))  # noqa: E741
    assert error_of(values, labels) <= best * 1.001 + 1e-3
    assert set(labels) == {0, 1, 2}
    order = np.argsort(values)
    assert (np.diff(labels[order]) >= 0).all()


@pytest.mark.slow
@pytest.mark.light
def test_clusters_of_few_and_of_invalid_values():
    values = jnp.array([5.0, 1.0, jnp.nan, 5.2, 9.0, 1.1, jnp.inf])
    valid = jnp.array([True, True, False, True, True, True, False])
    labels = np.asarray(snapshot.clusters(values, valid, 3))
    np.testing.assert_array_equal(labels[[1, 5, 0, 3, 4]], [0, 0, 1, 1, 2])
    weights = snapshot.uniform_in_clusters(jnp.asarray(labels), valid, 3)
    np.testing.assert_allclose(weights, [1 / 6, 1 / 6, 0, 1 / 6, 1 / 3, 1 / 6, 0], rtol=1e-6)
    few = np.asarray(snapshot.clusters(jnp.array([2.0, 2.0, 1.0]), jnp.ones(3, bool), 6))
    assert few[0] == few[1] != few[2]
    weights = snapshot.uniform_in_clusters(jnp.asarray(few), jnp.ones(3, bool), 6)
    np.testing.assert_allclose(weights, [0.25, 0.25, 0.5])


# ---- snapshots of a teacher


def teacher(policy_of):
    """An algorithm of which only `act` is called."""
    algo = ppo.make(ENV, ppo.Config(num_envs=2, num_steps=4, num_minibatches=1, hidden=(4,)))
    return algo._replace(act=lambda policy, key, obs, carry=(), greedy=False: (policy_of(key, obs), carry))


RIGHT = teacher(lambda key, obs: jnp.ones_like(obs))
CONFIG = snapshot.Config(num_episodes=4, keep=2, every=3, max_steps=13, clusters=2)


@pytest.mark.slow
@pytest.mark.light
def test_snapshots_by_hand():
    table = snapshot.take(KEY, RIGHT, (), ENV, PARAMS, CONFIG, gamma=0.9)
    # At times 0, 3, 6, 9 and 12; after the ninth step the episode is over. Two episodes of four are kept.
    valid = np.asarray(table.weights) > 0
    assert valid.sum() == 6
    np.testing.assert_array_equal(np.sort(table.states.index[valid]), [0, 0, 3, 3, 6, 6])
    np.testing.assert_array_equal(table.states.time[valid], table.states.index[valid])
    np.testing.assert_allclose(table.value[valid], 0.9 ** (8 - np.asarray(table.states.index[valid])), rtol=1e-6)
    np.testing.assert_allclose(np.sum(table.weights), 1, rtol=1e-6)
    # Values 0.43, 0.59, 0.81: the last one is a cluster of its own.
    by_cell = [np.asarray(table.weights)[valid & (np.asarray(table.states.index) == c)].sum() for c in (0, 3, 6)]
    np.testing.assert_allclose(by_cell, [0.25, 0.25, 0.5], rtol=1e-6)


def test_the_best_episodes_are_kept_and_values_may_be_given():
    walk = teacher(lambda key, obs: jax.random.bernoulli(key, 0.7, obs.shape).astype(jnp.int32))
    config = snapshot.Config(num_episodes=12, keep=3, every=2, max_steps=12, clusters=3)
    table = jax.jit(lambda key: snapshot.take(key, walk, (), ENV, PARAMS, config, value=lambda obs: obs + 1.0))(KEY)
    np.testing.assert_allclose(table.value, table.states.index + 1)
    episode = np.tile(np.arange(12), 6)
    used = np.unique(episode[np.asarray(table.weights) > 0])
    assert len(used) == 3
    reached = np.array([np.asarray(table.states.index)[episode == e].max() for e in range(12)])
    assert reached[used].min() >= 7  # those that arrive; a random one rarely comes so far in twelve steps


@pytest.mark.slow
def test_a_recurrent_time_limit_ends_an_episode():
    limited = PARAMS.replace(max_steps=jnp.int32(4))
    table = snapshot.take(KEY, RIGHT, (), ENV, limited, CONFIG)
    np.testing.assert_array_equal(np.unique(table.states.index[np.asarray(table.weights) > 0]), [0, 3])


# ---- students

TABLE = snapshot.take(KEY, RIGHT, (), ENV, PARAMS, CONFIG)
SMALL = ppo.Config(num_envs=4, num_steps=8, num_minibatches=1, hidden=(8,))


@pytest.mark.slow
@pytest.mark.light
def test_staged_training_starts_from_snapshots_and_then_at_the_start():
    algo = snapshot.staged(ppo.make(STARTS, SMALL), 64)
    assert algo is snapshot.staged(ppo.make(STARTS, SMALL), 64)
    state = algo.init(KEY, None, snapshot.params_of(STARTS, PARAMS, TABLE, limit=5))
    update = jax.jit(algo.update)
    for i in range(8):
        state, _ = update(state)
        assert state.env_params.share == (i < 2)
        # At the rollout's end: none can be far from its start, which is a snapshot, at first.
        assert (np.asarray(state.env_state.env.time) < (5 if i < 2 else 30)).all()
    assert update._cache_size() == 1  # pyright: ignore[reportFunctionMemberAccess]
    apart, rollout = jax.jit(algo.collect)(state)
    assert apart.env_params.share == 0 and set(np.asarray(rollout.obs)[:, 0]) <= set(range(10))


@pytest.mark.slow
@pytest.mark.light
def test_a_student_off_policy():
    env, params = jaxrl.make("Pendulum-v1")
    starts = FromStates(env)
    hanging = jax.vmap(lambda a: env.initial(KEY, params).replace(theta=a, theta_dot=0 * a))(jnp.array([0.0, 0.1]))
    table = snapshot.Snapshots(hanging, jnp.zeros(2), jnp.zeros(2, jnp.int32), jnp.full(2, 0.5))
    config = sac.Config(num_envs=2, num_steps=4, batch_size=8, buffer_size=64, hidden=(8,))
    algo = snapshot.staged(sac.make(starts, config), 16)
    start = sac.Hyper(learning_starts=4), snapshot.params_of(starts, params, table)
    state, metrics = jaxrl.train(algo, KEY, 32, *start)
    assert np.isfinite(np.asarray(metrics["loss"])[-1])


@pytest.mark.slow
@pytest.mark.light
def test_as_a_curriculum():
    cur = snapshot.make(TABLE, snapshot.Hyper(batches=2, limit=5))
    state = cur.init(KEY, cur.hyper, STARTS.default_params)
    batch, after = cur.sample(KEY, state, jnp.ones(4000, bool))
    np.testing.assert_allclose(
        np.bincount(np.asarray(batch.params.states.index)[:, 0], minlength=7)[[0, 3, 6]] / 4000,
        [0.25, 0.25, 0.5],
        atol=0.03,
    )
    assert (np.asarray(batch.params.max_steps) == 5).all()
    assert_no_key_reuse(lambda key, state: cur.sample(key, state, jnp.ones(3, bool)), jax.random.key(1), state)
    _, after = cur.sample(KEY, after, jnp.ones(8, bool))
    batch, _ = cur.sample(KEY, after, jnp.ones(8, bool))
    assert (np.asarray(batch.params.share) == 0).all() and (np.asarray(batch.params.max_steps) == 30).all()
    config = ppo.Config(num_envs=64, num_steps=6, num_minibatches=1, hidden=(8,))
    algo = curriculum.attach(ppo.make(jaxrl.vectorize(STARTS, 64, batched_params=True), config), cur)

    def update(state, _):
        state, rollout = algo.collect(state)
        state, metrics = algo.learn(state, rollout)
        return state, (rollout.student.obs[0], metrics["loss"])

    firsts, losses = jax.jit(lambda key: jax.lax.scan(update, algo.init(key), length=3))(KEY)[1]
    # Episodes from snapshots last 5 steps, so that each rollout of 6 ends one, and the next starts anew.
    assert [set(np.asarray(x).tolist()) for x in firsts] == [{0, 3, 6}] * 2 + [{0}]
    assert np.isfinite(losses).all()


def test_impossible_settings():
    with pytest.raises(ValueError, match="keep=3: there are num_episodes=2"):
        snapshot.Config(num_episodes=2, keep=3)
    with pytest.raises(ValueError, match="every=0"):
        snapshot.Config(every=0)
    with pytest.raises(ValueError, match="max_steps=100000, every=1 make 1000000 snapshots"):
        snapshot.Config(max_steps=100_000, every=1)
    with pytest.raises(ValueError, match=r"Corridor must be wrapped, FromStates\(env\)"):
        snapshot.staged(ppo.make(ENV, SMALL), 10)
    student = ppo.make(STARTS, SMALL)
    with pytest.raises(ValueError, match="snapshot_steps=0"):
        snapshot.staged(student, 0)
    for params in (None, STARTS.default_params):
        with pytest.raises(ValueError, match="start nothing from a snapshot"):
            snapshot.staged(student, 10).init(KEY, None, params)
    with pytest.raises(ValueError, match="limit=0 must be at least 1"):
        snapshot.make(TABLE, snapshot.Hyper(limit=0))
    with pytest.raises(ValueError, match="CorridorParams are no params of a FromStates"):
        snapshot.make(TABLE).init(KEY, snapshot.Hyper(), PARAMS)
