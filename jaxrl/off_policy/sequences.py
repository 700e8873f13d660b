"""Acting and storing of recurrent off-policy learners: a rollout of each environment is one sequence of the replay.

An item of the replay is a `Sequence` of one environment, so a replay of single items (`uniform`, `prioritised`) serves,
and its size and its batches count sequences. The carry is stored once a sequence: the one before its burn-in, which
`burnt_in` advances with the present weights, without a gradient (Kapturowski et al. 2019, section 3).

Episodes may start and end anywhere in a sequence. `start` says where the carry is reset. Where an episode ended, the
observation that follows is the first of the next one: after a termination it is not needed, and after a truncation the
true successor is not stored, so that nothing can be bootstrapped from there. `learns` says which steps have a target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxrl import algorithm
from jaxrl.algorithm import check_at_least_one
from jaxrl.environment import pytree
from jaxrl.nn.cells import check_cell
from jaxrl.nn.recurrent import Carry, Past, past_of
from jaxrl.rollout import Ends, rollout
from jaxrl.vector_env import VectorEnv


class Sequence(NamedTuple):
    """`num_steps` steps of one environment, as the replay holds them; a batch is time-major, leaves (T, B, ...)."""

    past: Past  # the carry before the burn-in (without an axis of time), the burn-in's observations and starts
    obs: Any  # (num_steps + 1, ...): those acted on, and the one after the last step
    start: Array  # (num_steps + 1,): the observation is the first of an episode
    action: Array  # (num_steps, ...), in units of the box; discrete ones as they are
    reward: Array
    terminated: Array
    truncated: Array


class Rollout(NamedTuple):
    """A sequence of each environment, leaves (N, T, ...): the rows that enter the replay."""

    sequence: Sequence
    ends: Ends


@pytree
class State(algorithm.State):
    """The state of a recurrent off-policy learner."""

    weights: Any
    target_weights: Any
    optimizer: Any
    replay: Any  # the state of the replay buffer
    carry: Carry
    past: Past  # what the next sequence is replayed from


def check_config(config: Any, without: str) -> None:
    """Raise ValueError for counts below 1, an unknown cell, a burn-in longer than a sequence, or too small a replay.

    `without` is the algorithm without memory, for the message.
    """
    counts = "num_envs", "num_steps", "num_updates", "batch_size", "buffer_size", "rnn_size", "window"
    check_at_least_one(config, *counts)
    check_cell(config.rnn, without)
    if not 0 <= config.burn_in <= config.num_steps:
        raise ValueError(f"burn_in={config.burn_in}: it must be 0 to num_steps={config.num_steps}.")
    least = max(config.num_envs, config.batch_size)
    if config.buffer_size < least:
        raise ValueError(
            f"buffer_size={config.buffer_size}: it counts sequences, and must hold those of a rollout, num_envs="
            f"{config.num_envs}, and a batch, batch_size={config.batch_size}; {least} does."
        )


def learns(terminated: Bool[Array, "T *batch"], truncated: Bool[Array, "T *batch"]) -> Bool[Array, "T *batch"]:
    """Whether a step has a target: not where its episode was truncated, whose last observation is not stored."""
    return terminated | ~truncated


def example(past: Past, obs: Any, action: Array, num_steps: int) -> Sequence:
    """An item of the replay, from a `Past` and observations (N, ...), and one action: gives the replay its shapes."""

    def steps(x: Any, length: int) -> Any:
        return jax.tree.map(lambda x: jnp.zeros((length, *jnp.shape(x)), jnp.result_type(x)), x)

    hidden, obs = jax.tree.map(lambda x: x[0], (past.hidden, obs))
    seen, started = jax.tree.map(lambda x: x[:, 0], (past.obs, past.start))
    reward, flag = jnp.zeros((), jnp.result_type(float)), jnp.bool_(False)
    taken = steps((action, reward, flag, flag), num_steps)
    return Sequence(Past(hidden, seen, started), *steps((obs, flag), num_steps + 1), *taken)


def swapped(sequence: Sequence) -> Sequence:
    """Axes of time and of environments (or of a batch) swapped; a carry has none of time."""

    def swap(tree: Any) -> Any:
        return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)

    past = sequence.past
    return Sequence(Past(past.hidden, swap(past.obs), swap(past.start)), *swap(sequence[1:]))


def collect(
    venv: VectorEnv,
    state: State,
    num_steps: int,
    burn_in: int,
    act: Callable[..., tuple[Any, Any, Carry]],
    seen: Callable[[Any], Any] = lambda obs: obs,
) -> tuple[State, Rollout]:
    """`(state, rollout)` after `num_steps` steps of every environment.

    `act(key, obs, carry) -> (action, stored, carry)`: the environment's action, and the action as it is stored.
    `seen(obs)` is what is stored of observations.
    """

    def step(key, obs, carry):
        action, stored, after = act(key, obs, carry)
        return action, (stored, carry.start, after.hidden), after

    def ended(carry, done):
        return carry._replace(start=done)

    new, carry, steps = rollout(venv, state, num_steps, step, state.carry, ended)
    action, start, hidden = steps.output
    obs = seen(steps.obs)
    past = past_of(state.carry.hidden, hidden, obs, start, burn_in)
    last = seen(new.obs), carry.start
    obs, start = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), (obs, start), last)
    taken = action, steps.reward, steps.terminated, steps.truncated
    sequence = Sequence(state.past, obs, start, *taken)
    return new.replace(carry=carry, past=past), Rollout(swapped(sequence), steps.ends)
