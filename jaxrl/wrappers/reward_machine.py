"""Reward machines: tasks in stages, written as an automaton that reads what happens and pays.

Toro Icarte et al. (2022), "Reward machines: exploiting reward function structure in reinforcement learning" (JAIR
73). A machine has states, and `labels` says which propositions hold after a step. In state u, where the set sigma of
propositions holds, it pays `reward[u, sigma]` and goes to `transition[u, sigma]`; in a terminal state the episode ends.
The agent sees the machine's state beside the observation, so that a task with a memory is a Markov decision process
again.

A machine is arrays, leaves of params: many machines, as tasks of a curriculum or a batch, are one program. Sigma is a
number, bit i of which is proposition i. `machine_of` writes one from a list of edges:

    COFFEE, OFFICE = 0, 1
    machine = machine_of(3, 2, [(0, {COFFEE: True}, 1, 0.0), (1, {OFFICE: True}, 2, 1.0)], terminal=(2,))
    task = RewardMachine(env, labels, states=3, propositions=2)
    params = task.running(env_params, machine)

`experiences` are the paper's counterfactual ones (CRM): what the same step would have been in every state of the
machine. `potentials` and `shaped` are its automated reward shaping, by the values of the machine taken for a task of
its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrl.environment import Levels, Transition, is_concrete, pytree, strongly_typed
from jaxrl.spaces import Box, Dict
from jaxrl.wrappers.base import AddsParams, WrapperState
from jaxrl.wrappers.memory import added


@pytree
class Machine:
    transition: jax.Array  # (U, 2 ** P) int32, the next state of the machine
    reward: jax.Array  # (U, 2 ** P), what it pays
    terminal: jax.Array  # (U,) bool; entering such a state ends the episode
    ahead: jax.Array  # (U,), gamma times the next state's potential, as `shaped` put it into rewards; else 0


@pytree
class MachineParams:
    env: Any  # the wrapped environment's params
    machine: Machine

    @property
    def max_steps(self) -> Array:
        return self.env.max_steps


class Experiences(NamedTuple):
    """One entry for each state that the machine might have been in, (U,)."""

    next_state: Array  # int32
    reward: Array
    terminated: Array  # bool: by the machine, or as the task itself ended


def machine_of(
    states: int,
    propositions: int,
    edges: Sequence[tuple[int, Mapping[int, bool], int, float]],
    terminal: Sequence[int] = (),
) -> Machine:
    """A machine of edges `(from, condition, to, reward)`; host only.

    A condition says of some propositions whether they hold, the others may or may not; the first edge that fits is
    taken, and without one the machine stays where it is and pays 0. So it does in terminal states. Raises ValueError
    for a state or a proposition that does not exist.
    """
    require_size(states, propositions)
    for edge in edges:
        source, condition, target, _ = edge
        for what, i, size in [("state", source, states), ("state", target, states)] + [
            ("proposition", i, propositions) for i in condition
        ]:
            if not 0 <= i < size:
                raise ValueError(f"edge {edge}: {what} {i} does not exist, they are 0 to {size - 1}.")
    for u in terminal:
        if not 0 <= u < states:
            raise ValueError(f"terminal={tuple(terminal)}: state {u} does not exist, they are 0 to {states - 1}.")
    transition = np.repeat(np.arange(states)[:, None], 2**propositions, 1)
    reward = np.zeros(transition.shape)
    for sigma in range(2**propositions):
        holds = [bool(sigma >> i & 1) for i in range(propositions)]
        for source, condition, target, pays in reversed(edges):
            if source not in terminal and all(holds[i] == wanted for i, wanted in condition.items()):
                transition[source, sigma], reward[source, sigma] = target, pays
    ends = np.isin(np.arange(states), list(terminal))
    pays = jnp.asarray(reward, float)
    return strongly_typed(
        Machine(jnp.asarray(transition, jnp.int32), pays, jnp.asarray(ends), jnp.zeros_like(pays[:, 0]))
    )


def require_size(states: int, propositions: int) -> None:
    """Raise ValueError for a machine without a state, or with too many propositions for a table of their sets."""
    if states < 1:
        raise ValueError(f"states={states}: a machine has at least 1.")
    if not 1 <= propositions <= 16:
        raise ValueError(
            f"propositions={propositions}: it must be from 1 to 16, for tables of 2 ** propositions columns."
        )


def index_of(holds: Bool[Array, "*batch P"]) -> Int[Array, "*batch"]:
    """Sigma: the column of the set of propositions that hold."""
    bits = 2 ** jnp.arange(holds.shape[-1], dtype=jnp.int32)
    return jnp.sum(jnp.where(holds, bits, 0), -1)


def experiences(machine: Machine, holds: Bool[Array, " P"], ended: bool | Bool[Array, ""] = False) -> Experiences:
    """What a step with these propositions is in each state of the machine (CRM): a learner may store all of them.

    `ended`: the task itself ended with this step. Then there is no potential ahead, whatever the machine's state.
    """
    sigma = index_of(holds)
    following = machine.transition[:, sigma]
    reward = machine.reward[:, sigma] - jnp.where(ended, machine.ahead[following], 0)
    return Experiences(following, reward, machine.terminal[following] | ended)


def potentials(machine: Machine, gamma: float | Float[Array, ""], sweeps: int | None = None) -> Float[Array, " U"]:
    """Values of the machine's states if one could choose what holds, 0 in terminal ones: value iteration.

    Their sign is that of values, so that with `shaped` it costs to wait; the authors' code turns it (docs/errata.md).
    `sweeps` default to as many as there are states, after which values of a machine that pays at its end are exact.
    """

    def sweep(_: Any, value: Array) -> Array:
        following = machine.transition
        ahead = jnp.where(machine.terminal[following], 0, value[following])
        return jnp.where(machine.terminal, 0, jnp.max(machine.reward + gamma * ahead, -1))

    size = len(machine.terminal)
    return jax.lax.fori_loop(0, size if sweeps is None else sweeps, sweep, jnp.zeros(size, machine.reward.dtype))


def shaped(machine: Machine, potential: Float[Array, " U"], gamma: float | Float[Array, ""]) -> Machine:
    """The machine whose rewards have gamma potential(next) - potential added: no policy gains by it (Ng et al. 1999).

    Terminal states have no potential, nor has the state that the task itself ends in: there `experiences` takes off
    what is ahead, and so does `RewardMachine`.
    """
    potential = jnp.where(machine.terminal, 0, potential)
    ahead = gamma * potential
    reward = machine.reward + ahead[machine.transition] - potential[:, None]
    return machine.replace(reward=reward, ahead=machine.ahead + ahead)


@dataclasses.dataclass(frozen=True)
class RewardMachine(AddsParams):
    """The machine `params.machine` pays in the place of the task, whose own reward is `info["task_reward"]`.

    Adds `machine` (U,), its state one-hot, to the observation. With the default params it stays in one state and pays
    nothing. Episodes also end where the task's do. Raises ValueError for several agents and for sizes that cannot be;
    `validate` raises it for a machine of other sizes, and for states that do not exist; a step raises it where `labels`
    are not one for each proposition.
    """

    labels: Callable[[Any, Any, Any, Any], Any]  # (state, action, next state, the task's params) -> bool (P,)
    states: int = 2
    propositions: int = 1

    Params = MachineParams

    def __post_init__(self) -> None:
        super().__post_init__()
        require_size(self.states, self.propositions)
        if self.num_agents > 1:
            raise ValueError(f"RewardMachine: {self.id} has {self.num_agents} agents; a machine pays one.")

    def _inner(self, state: WrapperState) -> Any:
        return state.env

    @property
    def default_params(self) -> MachineParams:
        return self.running(self.env.default_params, machine_of(self.states, self.propositions, ()))

    def running(self, params: Any, machine: Machine) -> MachineParams:
        """The wrapped environment's `params` with this machine."""
        return strongly_typed(MachineParams(params, machine))

    def initial(self, key: Array, params: MachineParams) -> WrapperState:
        return WrapperState(self.env.initial(key, params.env), jnp.int32(0))

    def transition(self, key: Array, state: WrapperState, action: Any, params: MachineParams) -> Transition:
        out = self.env.transition(key, state.env, action, params.env)
        holds = jnp.asarray(self.labels(state.env, action, out.state, params.env))
        if holds.shape != (self.propositions,):
            raise ValueError(
                f"RewardMachine: labels are of shape {holds.shape}; propositions={self.propositions} needs "
                f"{(self.propositions,)}, whether each holds."
            )
        would = experiences(params.machine, holds, out.terminated)
        u = state.memory
        return Transition(
            WrapperState(out.state, would.next_state[u]),
            would.reward[u],
            would.terminated[u],
            out.truncated,
            {**out.info, "task_reward": out.reward},
        )

    def observe(self, key: Array, state: WrapperState, params: MachineParams) -> dict[str, Any]:
        return added(super().observe(key, state, params), machine=jax.nn.one_hot(state.memory, self.states))

    def observation_space(self, params: MachineParams) -> Dict:
        return Dict(added(super().observation_space(params), machine=Box(0.0, 1.0, (self.states,))))

    @property
    def observation_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return ()

    def terminal(self, obs: Any, params: MachineParams) -> Bool[Array, ""]:
        """Raises NotImplementedError: the machine's end cannot be read from one observation."""
        raise NotImplementedError(f"RewardMachine ends {self.id} where its machine does.")

    @property
    def levels(self) -> Levels | None:
        return self.levels_inside()

    def validate(self, params: MachineParams) -> None:
        super().validate(params)
        machine, size = params.machine, (self.states, 2**self.propositions)
        arrays = (machine.transition, 2), (machine.reward, 2), (machine.terminal, 1), (machine.ahead, 1)
        shapes, needed = tuple(np.shape(x)[-n:] for x, n in arrays), (size, size, size[:1], size[:1])
        if shapes != needed:
            raise ValueError(
                f"RewardMachine: arrays of shapes {shapes}; states={self.states} and propositions="
                f"{self.propositions} need {needed}."
            )
        if is_concrete(machine):
            found = np.asarray(machine.transition)
            if found.min() < 0 or found.max() >= self.states:
                raise ValueError(
                    f"RewardMachine: transitions to states {found.min()} to {found.max()}; there are 0 to "
                    f"{self.states - 1}."
                )
