"""Finite MDPs: simulator and table agree, any deterministic environment becomes one, sticky actions by brute force."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Environment, Transition, pytree
from jaxrl.environment import Hints
from jaxrl.envs.tabular.chains.river_swim import RiverSwim
from jaxrl.exact.mdp import (
    MDP,
    Outcomes,
    TabularEnvironment,
    as_environment,
    certain,
    draw,
    explore,
    sticky,
    tabulate,
)
from jaxrl.exact.solvers import value_iteration
from jaxrl.spaces import Box, Discrete
from jaxrl.testing.environments import check_environment

KEY = jax.random.key(0)


def garnet(key, S=7, A=3, K=4, ends=0.1):
    """A random MDP whose outcomes may end the episode."""
    keys = jax.random.split(key, 4)
    return MDP(
        jax.random.dirichlet(keys[0], jnp.ones(K), (S, A)),
        jax.random.randint(keys[1], (S, A, K), 0, S, jnp.int32),
        jax.random.normal(keys[2], (S, A, K)),
        jax.random.bernoulli(keys[3], ends, (S, A, K)),
        jnp.arange(1.0, S + 1) / (S * (S + 1) / 2),
    )


@pytest.mark.slow
@pytest.mark.light
def test_dense_is_the_sum_over_outcomes():
    mdp = garnet(KEY)
    p, r = np.zeros((7, 3, 7)), np.zeros((7, 3))
    for s, a, k in np.ndindex(7, 3, 4):
        r[s, a] += mdp.probability[s, a, k] * mdp.reward[s, a, k]
        if not mdp.terminated[s, a, k]:
            p[s, a, mdp.next_state[s, a, k]] += mdp.probability[s, a, k]
    dense = mdp.dense()
    np.testing.assert_allclose(dense.transition, p, atol=1e-6)
    np.testing.assert_allclose(dense.reward, r, atol=1e-5)
    value = jnp.arange(7.0)
    np.testing.assert_allclose(mdp.expect(value), dense.expect(value), atol=1e-5)
    assert dense.dense() is dense


def test_draw_inverts_the_distribution_function():
    p = jnp.asarray([0.25, 0.0, 0.5, 0.25])
    got = jax.vmap(lambda u: draw(u, p))(jnp.asarray([0.0, 0.2499, 0.25, 0.7499, 0.75, 0.99999994]))
    np.testing.assert_array_equal(got, [0, 0, 2, 2, 3, 3])


@pytest.mark.slow
@pytest.mark.light
def test_what_is_sampled_is_what_is_tabulated():
    env, params = as_environment(garnet(KEY))
    table = tabulate(env, params)
    jax.tree.map(np.testing.assert_array_equal, table, params.mdp)
    n = 200_000

    @jax.jit
    def counts(key):
        reset_key, step_key = jax.random.split(key)
        first = jax.vmap(lambda k: env.initial(k, params).index)(jax.random.split(reset_key, n))
        state = env.initial(KEY, params).replace(index=jnp.int32(2))
        ts = jax.vmap(lambda k: env.step(k, state, jnp.int32(1), params))(jax.random.split(step_key, n))
        going = jnp.zeros(7).at[ts.state.index].add(~ts.terminated)
        return jnp.bincount(first, length=7) / n, going / n, ts.reward.mean(), ts.terminated.mean()

    first, going, reward, ended = counts(KEY)
    dense = table.dense()
    np.testing.assert_allclose(first, table.initial, atol=5e-3)
    np.testing.assert_allclose(going, dense.transition[2, 1], atol=5e-3)
    np.testing.assert_allclose(reward, dense.reward[2, 1], atol=1e-2)
    np.testing.assert_allclose(ended, 1 - dense.transition[2, 1].sum(), atol=5e-3)


@pytest.mark.slow
def test_a_table_keeps_the_contract():
    check_environment(*as_environment(garnet(KEY), max_steps=20))


@pytest.mark.slow
@pytest.mark.light
def test_many_tables_are_one_program():
    mdps = jax.vmap(garnet)(jax.random.split(KEY, 3))
    env, params = as_environment(jax.tree.map(lambda x: x[0], mdps))
    many = params.replace(mdp=mdps, max_steps=jnp.full(3, 9))
    venv = jaxrl.vectorize(env, 3, batched_params=True)
    obs, state = venv.reset(KEY, many)
    ts = venv.step(KEY, state, jnp.zeros(3, jnp.int32), many)
    assert ts.obs.shape == (3,) and obs.dtype == jnp.int32


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda m: m.replace(probability=2 * m.probability), "probability must be a distribution"),
        (lambda m: m.replace(initial=jnp.zeros(7)), "initial must be a distribution"),
        (lambda m: m.replace(next_state=m.next_state + 5), r"next_state must be in \[0, 7\)"),
        (lambda m: jax.tree.map(lambda x: x[:5], m), "a table of"),
    ],
)
def test_impossible_tables_are_refused(change, message):
    env, params = as_environment(garnet(KEY))
    with pytest.raises(ValueError, match=message):
        env.reset(KEY, params.replace(mdp=change(params.mdp)))


# ---- exploring


@dataclasses.dataclass(frozen=True)
class Corridor(TabularEnvironment):
    """States 0 .. 4; action 1 goes on, 0 back; the end pays. Indices 5 and 6 cannot be reached."""

    num_states: int = 7
    num_actions: int = 2
    hints = Hints(deterministic=True)

    @pytree
    class Params:
        max_steps: jax.Array = 12
        prize: jax.Array = 2.0

    def outcomes(self, state, action, params) -> Outcomes:
        end = (state == 4) & (action == 1)
        return certain(jnp.clip(state + 2 * action - 1, 0, 4), jnp.where(end, params.prize, 0.0), end)


@pytest.mark.slow
def test_exploring_finds_the_reachable_part_of_a_table():
    env = Corridor(id="Corridor")
    check_environment(env)
    params = env.default_params
    whole, (found, states) = tabulate(env, params), explore(env, params)
    assert found.num_states == 5
    old = np.asarray(states.index)
    np.testing.assert_array_equal(np.sort(old), np.arange(5))
    np.testing.assert_array_equal(found.reward, whole.reward[old])
    np.testing.assert_array_equal(found.terminated, whole.terminated[old])
    going = ~np.asarray(found.terminated)
    np.testing.assert_array_equal(old[found.next_state][going], np.asarray(whole.next_state)[old][going])
    np.testing.assert_allclose(value_iteration(found, 0.9).value[0], 2.0 * 0.9**4, rtol=1e-5)


@pytree
class LightsState:
    time: jax.Array
    on: jax.Array  # (3,) bool


@dataclasses.dataclass(frozen=True)
class Lights(Environment):
    """Not tabular: three lamps, an action toggles one, all on ends it. Two starts."""

    hints = Hints(deterministic=True)

    @pytree
    class Params:
        max_steps: jax.Array = 9

    def initial(self, key, params):
        return LightsState(jnp.int32(0), jnp.asarray([False, True, False]) & jax.random.bernoulli(key))

    def transition(self, key, state, action, params):
        on = state.on ^ (jnp.arange(3) == action)
        return Transition(state.replace(on=on), jnp.float32(-1), on.all(), jnp.bool_(False), {})

    def observe(self, key, state, params):
        return state.on.astype(jnp.float32)

    def observation_space(self, params):
        return Box(0.0, 1.0, (3,))

    def action_space(self, params):
        return Discrete(3)


@pytest.mark.slow
@pytest.mark.light
def test_exploring_an_environment_that_is_no_table():
    env = Lights(id="Lights")
    mdp, states = explore(env, env.default_params, num_starts=64)
    assert mdp.num_states == 7 and states.on.shape == (7, 3)  # all but the last one, which ends
    assert np.count_nonzero(mdp.initial) == 2 and float(mdp.initial.sum()) == pytest.approx(1)
    value = value_iteration(mdp, 1.0).value
    np.testing.assert_allclose(value, np.asarray(states.on).sum(1) - 3)


@pytest.mark.slow
@pytest.mark.light
def test_exploring_refuses_what_it_cannot_list():
    with pytest.raises(ValueError, match="deterministic environment with Discrete actions"):
        explore(RiverSwim(), RiverSwim().default_params)
    env, params = jaxrl.make("MountainCar-v0")
    with pytest.raises(ValueError, match="more than max_states=300"):
        explore(env, params, max_states=300)


@pytest.mark.slow
@pytest.mark.light
def test_exploring_dynamics_that_read_the_clock():
    """Which of five delays was chosen is all of DiscountingChain's state; what it pays depends on the time."""
    for id in ("DiscountingChain-bsuite", "MemoryLength-bsuite"):
        with pytest.raises(ValueError, match="read the clock"):
            explore(*jaxrl.make(id))
    mdp, states = explore(*jaxrl.make("DiscountingChain-bsuite"), clock=True)
    assert mdp.num_states == 1 + 5 * 99 and int(states.time.max()) == 99
    np.testing.assert_allclose(value_iteration(mdp, 1.0).value[0], 1.1, rtol=1e-6)


def test_what_lists_no_outcomes_has_no_table():
    with pytest.raises(ValueError, match="CartPole-v1 lists no outcomes"):
        tabulate(*jaxrl.make("CartPole-v1"))


@pytest.mark.slow
@pytest.mark.light
def test_sticky_actions_by_brute_force():
    """The augmented table against following the rule by hand, state by state."""
    mdp = garnet(KEY, S=4, A=2, K=2)
    table = jax.device_get(sticky(mdp, 0.25))
    assert table.probability.shape == (12, 2, 4)
    np.testing.assert_allclose(table.initial.reshape(4, 3)[:, 2], mdp.initial, rtol=1e-6)
    base, got = jax.device_get(mdp), table
    for s, previous, action in np.ndindex(4, 3, 2):
        expected: dict = {}
        for executed, p in ((action, 0.75), (action if previous == 2 else previous, 0.25)):
            for k in range(2):
                item = (
                    int(base.next_state[s, executed, k]) * 3 + executed,
                    float(base.reward[s, executed, k]),
                    bool(base.terminated[s, executed, k]),
                )
                expected[item] = expected.get(item, 0) + p * base.probability[s, executed, k]
        listed: dict = {}
        row = s * 3 + previous
        for k in range(4):
            item = (
                int(got.next_state[row, action, k]),
                float(got.reward[row, action, k]),
                bool(got.terminated[row, action, k]),
            )
            listed[item] = listed.get(item, 0) + got.probability[row, action, k]
        assert listed.keys() == expected.keys()
        for item, p in expected.items():
            assert listed[item] == pytest.approx(p, abs=1e-6)
