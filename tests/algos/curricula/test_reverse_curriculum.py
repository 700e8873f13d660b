"""Walks from a goal, which starts are kept, by hand; a student that nothing else teaches."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Environment, Transition, curriculum
from jaxrl.algos import ppo
from jaxrl.algos.curricula import reverse_curriculum as reverse
from jaxrl.curriculum.protocol import Outcomes
from jaxrl.environment import Hints, pytree
from jaxrl.exact.mdp import TabularEnvironment, TabularState, certain
from jaxrl.spaces import Box, Discrete
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.wrappers import FromStates

KEY = jax.random.key(0)
LENGTH = 40


@pytree
class CorridorParams:
    max_steps: jax.Array = 60


class Corridor(TabularEnvironment):
    """From cell 0 to the last one, which ends the episode and pays 1."""

    num_states, num_actions = LENGTH, 2
    Params = CorridorParams
    hints = Hints(deterministic=True)

    def outcomes(self, state, action, params):
        to = jnp.clip(state + 2 * action - 1, 0, LENGTH - 1)
        return certain(to, jnp.where(to == LENGTH - 1, 1.0, 0.0), to == LENGTH - 1)


@pytree
class FencedState:
    time: jax.Array
    x: jax.Array


@dataclasses.dataclass(frozen=True)
class Fenced(Environment):
    """A line that is left, not ended, beyond 3."""

    id: str = dataclasses.field(default="Fenced", kw_only=True)
    Params = CorridorParams
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return FencedState(jnp.int32(0), jnp.int32(0))

    def transition(self, key, state, action, params):
        after = state.replace(x=state.x + 2 * action - 1)
        return Transition(after, jnp.float32(0), jnp.bool_(False), jnp.abs(after.x) > 3, {})

    def observe(self, key, state, params):
        return state.x.astype(float)[None]

    def observation_space(self, params):
        return Box(-4.0, 4.0, (1,))

    def action_space(self, params):
        return Discrete(2)


ENV = Corridor(id="Corridor")
STARTS = FromStates(ENV)
PARAMS = STARTS.default_params


def cells(*index):
    index = jnp.array(index, jnp.int32)
    return TabularState(time=jnp.zeros_like(index), index=index)


GOAL = cells(LENGTH - 1)
CUR = reverse.make(STARTS, GOAL, reverse.Config(capacity=8, history=4, walk_steps=3, repeats=1))


def seen(success, episodes=None):
    success = jnp.asarray(success, jnp.float32)
    episodes = jnp.ones(len(success), jnp.int32) if episodes is None else jnp.asarray(episodes)
    return Outcomes(success, success, success, success, success, episodes)


@pytest.mark.slow
@pytest.mark.light
def test_walks_are_short_and_do_not_end_episodes():
    n = 3000
    states = jax.vmap(lambda i: TabularState(jnp.int32(5), i))(jnp.full(n, 30, jnp.int32))
    after = reverse.walked(KEY, ENV, states, ENV.default_params, 3)
    np.testing.assert_array_equal(after.time, 5)
    share = np.bincount(np.asarray(after.index) - 27, minlength=7) / n
    # 1, 2 or 3 steps, alike often: of these +-1; -2, 0, 0, +2; +-3 once and +-1 three times of eight.
    np.testing.assert_allclose(share, np.array([1, 2, 7, 4, 7, 2, 1]) / 24, atol=0.03)
    near = reverse.walked(KEY, ENV, cells(*[LENGTH - 2] * n), ENV.default_params, 3)
    assert near.index.max() == LENGTH - 2  # a step into the goal is not taken
    fenced = Fenced(id="Fenced")
    states = FencedState(jnp.zeros(n, jnp.int32), jnp.full(n, 2, jnp.int32))
    walked = reverse.walked(KEY, fenced, states, fenced.default_params, 3)
    assert set(np.unique(walked.x)) == {-1, 0, 1, 2, 3}  # nor one out of the arena, a truncation


def test_starts_that_are_kept():
    success, known = jnp.array([0.0, 0.1, 0.5, 0.9, 1.0]), jnp.ones(5, bool)
    np.testing.assert_array_equal(reverse.kept(success, known, 0.1, 0.9), [False, True, True, True, False])
    none = known.at[1:4].set(False)
    np.testing.assert_array_equal(reverse.kept(success, none, 0.1, 0.9), [False, False, False, False, True])
    assert not reverse.kept(success, none.at[4].set(False), 0.1, 0.9).any()


@pytest.mark.slow
@pytest.mark.light
def test_good_starts_by_hand():
    start = CUR.init(KEY, CUR.hyper, PARAMS)
    assert start.good.size == 1 and start.old.size == 0
    batch, _ = CUR.sample(KEY, start, jnp.ones(6, bool))
    batch = batch._replace(
        params=batch.params.replace(states=jax.tree.map(lambda x: x[:, None], cells(1, 2, 3, 4, 5, 6)))
    )
    state = CUR.update(KEY, start, batch, seen([0.05, 0.5, 0.3, 1.0, 0.5, 0.9], [1, 1, 1, 1, 0, 1]))
    assert state.good.size == 3
    np.testing.assert_array_equal(state.good.states.index[:3], [2, 3, 6])
    np.testing.assert_array_equal(state.old.states.index[:3], [2, 3, 6])
    state = CUR.update(KEY, state, batch, seen([1, 1, 0, 0, 0, 0]))  # none between: those mastered
    np.testing.assert_array_equal(state.good.states.index[:2], [1, 2])
    np.testing.assert_array_equal(state.old.states.index, [2, 3, 6, 1])
    assert state.good.size == 2 and state.old.count == 5
    after = CUR.update(KEY, state, batch, seen(np.zeros(6)))
    jax.tree.map(np.testing.assert_array_equal, after, state)


@pytest.mark.slow
@pytest.mark.light
def test_batches_are_walks_from_good_starts_and_old_ones():
    cur = reverse.make(STARTS, GOAL, reverse.Config(8, 4, 3, 1), reverse.Hyper(old_share=0.25, own_share=0.2, limit=9))
    start = cur.init(KEY, cur.hyper, PARAMS)
    batch, _ = cur.sample(KEY, start, jnp.ones(2000, bool))
    index = np.asarray(batch.params.states.index)[:, 0]
    assert index.min() >= LENGTH - 4 and (index < LENGTH - 1).mean() > 0.5
    np.testing.assert_allclose(np.mean(batch.params.share), 0.8, atol=0.03)
    assert (np.asarray(batch.params.limit) == 9).all()
    state = start.replace(
        good=start.good.replace(states=cells(*[20] * 8), count=jnp.int32(5)),
        old=start.old.replace(states=cells(1, 2, 3, 4), count=jnp.int32(2)),
    )
    index = np.asarray(cur.sample(KEY, state, jnp.ones(2000, bool))[0].params.states.index)[:, 0]
    assert set(index) <= {1, 2, *range(17, 24)}
    np.testing.assert_allclose((index <= 2).mean(), 0.25, atol=0.03)
    # Slots that start by themselves say nothing of the state they were given.
    own = batch._replace(params=batch.params.replace(share=jnp.zeros(2000)))
    jax.tree.map(np.testing.assert_array_equal, cur.update(KEY, start, own, seen(np.full(2000, 0.5))), start)


@pytest.mark.slow
@pytest.mark.light
def test_slots_that_share_a_start():
    cur = reverse.make(STARTS, GOAL, reverse.Config(8, 4, 3, repeats=3), reverse.Hyper(low=0.3))
    start = cur.init(KEY, cur.hyper, PARAMS)
    batch, _ = cur.sample(KEY, start, jnp.ones(300, bool))
    index = np.asarray(batch.params.states.index).reshape(100, 3)
    assert (index == index[:, :1]).all() and len(set(index[:, 0])) > 1
    six, _ = cur.sample(KEY, start, jnp.ones(9, bool))
    states = jax.tree.map(lambda x: x[:, None], cells(7, 7, 7, 8, 8, 8, 9, 9, 9))
    share = jnp.array([1.0, 1, 1, 1, 1, 1, 1, 0, 0])
    six = six._replace(params=six.params.replace(states=states, share=share))
    # One of four episodes; one of three; one of one, as the others start elsewhere.
    outcomes = seen([0.5, 0, 0, 1, 0, 0, 1, 0, 0], [2, 2, 0, 1, 1, 1, 1, 9, 9])
    state = cur.update(KEY, start, six, outcomes)
    assert state.good.size == 1 and state.good.states.index[0] == 8
    with pytest.raises(ValueError, match="repeats=3: 10 slots are no multiple of it"):
        cur.sample(KEY, start, jnp.ones(10, bool))


def cycle(key, state):
    sample_key, update_key = jax.random.split(key)
    batch, state = CUR.sample(sample_key, state, jnp.ones(6, bool))
    return CUR.update(update_key, state, batch, seen(batch.params.states.index[:, 0] / LENGTH))


@pytest.mark.slow
def test_keys_compilations_and_batches_of_runs():
    state = jax.jit(CUR.init)(KEY, CUR.hyper, PARAMS)
    assert_no_key_reuse(cycle, jax.random.key(1), state)
    again, states = jax.jit(cycle), [state] * 3
    keys = jax.random.split(KEY, 3)
    together = jax.vmap(lambda key: jax.lax.fori_loop(0, 5, lambda i, s: cycle(jax.random.fold_in(key, i), s), state))
    together = jax.jit(together)(keys)
    for j in range(3):
        for i in range(5):
            states[j] = again(jax.random.fold_in(keys[j], i), states[j])
        jax.tree.map(lambda a, b, j=j: np.testing.assert_array_equal(a[j], b), together, states[j])
    assert again._cache_size() == 1  # pyright: ignore[reportFunctionMemberAccess]


@pytest.mark.slow
def test_a_student_reaches_the_goal_from_the_other_end():
    config = ppo.Config(num_envs=16, num_steps=64, num_minibatches=4, hidden=(32,))
    hyper = ppo.Hyper(learning_rate=3e-3, ent_coef=0.01)
    student = ppo.make(jaxrl.vectorize(STARTS, 16, batched_params=True), config)
    cur = reverse.make(STARTS, GOAL, reverse.Config(capacity=16, history=256, walk_steps=8, repeats=2))
    algo = curriculum.attach(student, cur)
    steps = 60_000
    state, _ = jax.jit(lambda key: jaxrl.train(algo, key, steps, hyper))(KEY)
    plain = ppo.make(ENV, config)
    alone, metrics = jax.jit(lambda key: jaxrl.train(plain, key, steps, hyper))(KEY)

    def success(algo, state):
        stats = jaxrl.evaluation.evaluate(algo, algo.policy(state), KEY, ENV, ENV.default_params, num_episodes=64)
        return stats.returns.mean()

    assert success(algo, state) > 0.9
    assert success(plain, alone) < 0.1  # 60 random steps lead over 39 cells about once in a million times


@pytest.mark.parametrize(
    ("hyper", "words"),
    [
        ({"low": 0.75, "high": 0.5}, "low=0.75 and high=0.5"),
        ({"high": 1.5}, "0 <= low <= high <= 1"),
        ({"old_share": -0.1}, "old_share=-0.1.*: it must be in"),
        ({"own_share": 2.0}, "own_share=2.0: it must be in"),
        ({"limit": 0}, "limit=0: it must be at least 1"),
    ],
)
def test_impossible_settings(hyper, words):
    with pytest.raises(ValueError, match=words):
        reverse.make(STARTS, GOAL, hyper=reverse.Hyper(**hyper))


def test_impossible_environments_and_states():
    with pytest.raises(ValueError, match=r"Corridor must be wrapped, FromStates\(env\)"):
        reverse.make(ENV, GOAL)
    with pytest.raises(ValueError, match="states are dict, not states of Corridor"):
        reverse.make(STARTS, {"index": jnp.zeros(1)})
    with pytest.raises(ValueError, match="walk_steps=0"):
        reverse.Config(walk_steps=0)
    with pytest.raises(ValueError, match="repeats=0"):
        reverse.Config(repeats=0)
    with pytest.raises(ValueError, match="CorridorParams are no params of a FromStates"):
        CUR.init(KEY, CUR.hyper, ENV.default_params)
