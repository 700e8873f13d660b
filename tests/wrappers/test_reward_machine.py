"""Reward machines on a corridor whose values are known: first the left end, then the right one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import Environment, Transition, pytree
from jaxrl.environment import Hints
from jaxrl.exact.mdp import explore
from jaxrl.exact.solvers import value_iteration
from jaxrl.spaces import Box, Discrete
from jaxrl.testing import check_environment
from jaxrl.wrappers import RewardMachine, machine_of
from jaxrl.wrappers.reward_machine import experiences, index_of, potentials, shaped

KEY, GAMMA = jax.random.key(0), 0.9
LEFT, RIGHT = 0, 1
LEFT_THEN_RIGHT = machine_of(3, 2, [(0, {LEFT: True}, 1, 0.0), (1, {RIGHT: True}, 2, 1.0)], terminal=(2,))


@pytree
class Params:
    max_steps: jax.Array = 20


@pytree
class State:
    time: jax.Array
    cell: jax.Array


@dataclasses.dataclass(frozen=True)
class Corridor(Environment):
    """Five cells; begins in the middle; pays 7 a step, which the machine replaces."""

    id: str = dataclasses.field(default="Corridor", kw_only=True)
    hints = Hints(deterministic=True)
    Params = Params

    def initial(self, key, params):
        return State(jnp.int32(0), jnp.int32(2))

    def transition(self, key, state, action, params):
        cell = jnp.clip(state.cell + 2 * action.astype(jnp.int32) - 1, 0, 4)
        return Transition(state.replace(cell=cell), jnp.float32(7), jnp.bool_(False), jnp.bool_(False), {})

    def observe(self, key, state, params):
        return state.cell.astype(float) / 4

    def observation_space(self, params):
        return Box(0.0, 1.0, ())

    def action_space(self, params):
        return Discrete(2)


def labels(state, action, next_state, params):
    return jnp.stack([next_state.cell == 0, next_state.cell == 4])


@dataclasses.dataclass(frozen=True)
class Pit(Corridor):
    """The corridor itself ends in one cell, whatever the machine says."""

    pit: int = 3

    def transition(self, key, state, action, params):
        out = super().transition(key, state, action, params)
        return out._replace(terminated=out.state.cell == self.pit)


TASK = RewardMachine(Corridor(), labels, states=3, propositions=2)
PARAMS = TASK.running(Corridor().default_params, LEFT_THEN_RIGHT)


def test_a_machine_of_edges_by_hand():
    """Columns are the sets {}, {left}, {right}, {both}."""
    np.testing.assert_array_equal(LEFT_THEN_RIGHT.transition, [[0, 1, 0, 1], [1, 1, 2, 2], [2, 2, 2, 2]])
    np.testing.assert_array_equal(LEFT_THEN_RIGHT.reward, [[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(LEFT_THEN_RIGHT.terminal, [False, False, True])
    first = machine_of(2, 2, [(0, {0: True, 1: False}, 1, 1.0), (0, {}, 0, -1.0)])  # the first that fits
    np.testing.assert_array_equal(first.transition[0], [0, 1, 0, 0])
    np.testing.assert_array_equal(first.reward[0], [-1, 1, -1, -1])
    holds = jnp.array([[False, False], [True, False], [False, True], [True, True]])
    np.testing.assert_array_equal(index_of(holds), [0, 1, 2, 3])


def test_an_episode_by_hand():
    """Left, left (the machine moves), right four times: paid once, and it is over."""
    obs, state = TASK.reset(KEY, PARAMS)
    np.testing.assert_array_equal(obs["machine"], [1, 0, 0])
    seen = []
    for action in (0, 0, 1, 1, 1, 1):
        ts = TASK.step(KEY, state, jnp.int32(action), PARAMS)
        state = ts.state
        seen.append((int(state.memory), float(ts.reward), bool(ts.terminated), float(ts.info["task_reward"])))
    assert seen == [(0, 0, False, 7), (1, 0, False, 7), *[(1, 0, False, 7)] * 3, (2, 1, True, 7)]
    np.testing.assert_array_equal(ts.obs["machine"], [0, 0, 1])
    assert ts.obs["obs"] == 1.0
    # Right first is of no use: the machine waits for the left end.
    _, state = TASK.reset(KEY, PARAMS)
    for action in (1, 1, 1):
        ts = TASK.step(KEY, state, jnp.int32(action), PARAMS)
        state = ts.state
    assert (state.memory, ts.reward, ts.terminated) == (0, 0, False)


def solved(machine, task=TASK):
    """The exact solution of corridor and machine together, by the cell and the machine's state."""
    mdp, states = explore(task, PARAMS.replace(machine=machine))
    found = value_iteration(mdp, GAMMA, 1e-6)
    place = list(zip(np.asarray(states.env.cell).tolist(), np.asarray(states.memory).tolist(), strict=True))
    return dict(zip(place, np.asarray(found.value), strict=True)), dict(zip(place, np.asarray(found.q), strict=True))


def test_values_and_shaping_are_exact():
    """Two steps to the left end, four to the right one: the value is gamma ** 5. Shaping takes off the potential."""
    value, q = solved(LEFT_THEN_RIGHT)
    np.testing.assert_allclose(value[2, 0], GAMMA**5, rtol=1e-4)
    np.testing.assert_allclose(value[1, 1], GAMMA**2, rtol=1e-4)
    potential = potentials(LEFT_THEN_RIGHT, GAMMA)
    np.testing.assert_allclose(potential, [GAMMA, 1, 0], rtol=1e-6)
    other, other_q = solved(shaped(LEFT_THEN_RIGHT, potential, GAMMA))
    for (cell, u), now in other.items():
        np.testing.assert_allclose(now, value[cell, u] - potential[u], atol=1e-4)
        assert np.argmax(other_q[cell, u]) == np.argmax(q[cell, u])
    # Where it pays in a loop, values need more sweeps: 1 / (1 - gamma).
    loop = machine_of(1, 1, [(0, {0: True}, 0, 1.0)])
    np.testing.assert_allclose(potentials(loop, GAMMA, 200), 10.0, rtol=1e-4)


@pytest.mark.parametrize("pit", [1, 3, 4])
def test_shaping_moves_returns_by_a_constant_of_the_start_where_the_task_itself_ends(pit):
    """Before progress, after it, and with the machine: whatever ends the episode, there is no potential any more."""
    task, potential = RewardMachine(Pit(pit=pit), labels, states=3, propositions=2), jnp.array([0.7, 0.9, 0.4])
    twice = shaped(shaped(LEFT_THEN_RIGHT, potential, GAMMA), potential, GAMMA)  # shapings add up

    def returned(machine, actions):
        _, state = task.reset(KEY, PARAMS.replace(machine=machine))
        total = 0.0
        for t, action in enumerate(actions):
            ts = task.step(KEY, state, jnp.int32(action), PARAMS.replace(machine=machine))
            state, total = ts.state, total + GAMMA**t * ts.reward
            assert ts.terminated == (t == len(actions) - 1)
        return total

    ways = {1: [(0,), (1, 0, 0)], 3: [(1,), (0, 1, 1), (0, 0, 1, 1, 1)], 4: [(1, 1), (0, 0, 1, 1, 1, 1)]}
    for actions in ways[pit]:
        plain = returned(LEFT_THEN_RIGHT, actions)
        np.testing.assert_allclose(returned(twice, actions) - plain, -2 * potential[0], rtol=1e-5)
    value, q = solved(LEFT_THEN_RIGHT, task)
    other, other_q = solved(twice, task)
    for cell, u in value.keys() - {(pit, 0), (pit, 1)} - {(cell, 2) for cell in range(5)}:
        np.testing.assert_allclose(other[cell, u], value[cell, u] - 2 * potential[u], atol=1e-4)
        np.testing.assert_allclose(other_q[cell, u], q[cell, u] - 2 * potential[u], atol=1e-4)


def test_counterfactual_experiences_are_the_steps_from_each_state_of_the_machine():
    for cell, action in ((1, 0), (3, 1), (2, 1)):
        place = State(jnp.int32(3), jnp.int32(cell))
        after = Corridor().step(KEY, place, jnp.int32(action), PARAMS.env).state
        would = experiences(LEFT_THEN_RIGHT, labels(place, action, after, PARAMS.env))
        for u in range(3):
            _, state = TASK.reset(KEY, PARAMS)
            ts = TASK.step(KEY, state.replace(env=place, memory=jnp.int32(u)), jnp.int32(action), PARAMS)
            got = (would.next_state[u], would.reward[u], would.terminated[u])
            assert got == (ts.state.memory, ts.reward, ts.terminated)


def test_counterfactual_experiences_of_a_step_that_ends_the_task():
    """In each state of the machine: over, and without what is ahead."""
    machine = shaped(LEFT_THEN_RIGHT, jnp.array([0.5, 1.0, 9.0]), GAMMA)
    would = experiences(machine, jnp.array([True, False]), jnp.bool_(True))
    np.testing.assert_array_equal(would.terminated, [True, True, True])
    np.testing.assert_allclose(would.reward, [-0.5, -1.0, 0.0], atol=1e-6)
    going_on = experiences(machine, jnp.array([True, False]))
    np.testing.assert_array_equal(going_on.terminated, [False, False, True])
    np.testing.assert_allclose(going_on.reward, [GAMMA - 0.5, GAMMA - 1.0, 0.0], atol=1e-6)


def test_machines_are_leaves():
    """Two machines in one program: the other asks for the ends in the other order."""
    other = machine_of(3, 2, [(0, {RIGHT: True}, 1, 0.0), (1, {LEFT: True}, 2, 1.0)], terminal=(2,))
    both = jax.tree.map(lambda x, y: jnp.stack([x, y]), LEFT_THEN_RIGHT, other)

    def returned(machine):
        def step(carry, action):
            ts = TASK.step(KEY, carry, action, PARAMS.replace(machine=machine))
            return ts.state, ts.reward

        _, state = TASK.reset(KEY, PARAMS.replace(machine=machine))
        return jnp.sum(jax.lax.scan(step, state, jnp.array([0, 0, 1, 1, 1, 1]))[1])

    np.testing.assert_array_equal(jax.jit(jax.vmap(returned))(both), [1, 0])


def stepped(holds):
    """One traced step of a machine whose labels are these."""
    task = dataclasses.replace(TASK, labels=lambda *_: holds)
    _, state = task.reset(KEY, PARAMS)
    return jax.eval_shape(task.step, KEY, state, jnp.int32(0), PARAMS)


@pytest.mark.slow
def test_the_contract():
    check_environment(TASK, PARAMS)


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: machine_of(0, 1, ()), "states=0: a machine has at least 1"),
        (lambda: machine_of(2, 17, ()), "propositions=17: it must be from 1 to 16"),
        (
            lambda: machine_of(2, 1, [(0, {}, 2, 1.0)]),
            r"edge \(0, \{\}, 2, 1.0\): state 2 does not exist",
        ),
        (lambda: machine_of(2, 1, [(0, {1: True}, 1, 1.0)]), "proposition 1 does not exist, they are 0 to 0"),
        (lambda: machine_of(2, 1, (), terminal=(3,)), r"terminal=\(3,\): state 3 does not exist"),
        (lambda: TASK.reset(KEY, TASK.running(PARAMS.env, machine_of(2, 2, ()))), "states=3 and propositions=2 need"),
        (
            lambda: TASK.reset(
                KEY, PARAMS.replace(machine=LEFT_THEN_RIGHT.replace(transition=LEFT_THEN_RIGHT.transition + 1))
            ),
            "transitions to states 1 to 3; there are 0 to 2",
        ),
        (
            lambda: TASK.reset(KEY, PARAMS.replace(machine=LEFT_THEN_RIGHT.replace(ahead=jnp.zeros(2)))),
            r"states=3 and propositions=2 need \(\(3, 4\), \(3, 4\), \(3,\), \(3,\)\)",
        ),
        *(
            (lambda wrong=wrong: stepped(wrong), said)
            for wrong, said in (
                (jnp.zeros(3, bool), r"labels are of shape \(3,\); propositions=2 needs \(2,\)"),
                (jnp.zeros(1, bool), r"labels are of shape \(1,\); propositions=2 needs \(2,\)"),
                (jnp.zeros((), bool), r"labels are of shape \(\); propositions=2"),
                (jnp.zeros((1, 2), bool), r"labels are of shape \(1, 2\); propositions=2"),
            )
        ),
    ],
)
def test_what_is_refused(make, said):
    with pytest.raises(ValueError, match=said) as error:
        make()
    assert "\n" not in str(error.value)
