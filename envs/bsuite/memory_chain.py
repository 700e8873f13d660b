"""MemoryLength-bsuite and MemorySize-bsuite: remember a few bits, and say which one was asked for at the end.

Osband et al. (2020), experiments `memory_len` (one bit, delays up to 100) and `memory_size` (a delay of 2, up to 40
bits). Observation, (1, num_bits + 2): the fraction of time left, the index of the wanted bit (only on the last
observation before the answer, 0 before), and the bits as +-1 (only at first, 0 later). Action: 0 or 1; only the last
one counts. Reward: 0, and +1 or -1 for the answer, on which the episode ends, after `memory_length + 1` steps.
`info["regret"]`: 2 for a wrong answer.

Quirk of the reference, kept: it observes before its clock ticks, so that the first step shows the first observation
(with the bits) a second time.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree, strongly_typed
from jaxrl.spaces import Box, Discrete


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    memory_length: jax.Array = 10  # steps between the bits and the question


@pytree
class State:
    time: jax.Array  # steps since reset
    context: jax.Array  # (num_bits,) int32, 0 or 1
    query: jax.Array  # int32, index of the wanted bit


@dataclasses.dataclass(frozen=True)
class MemoryLength(Environment):
    num_bits: int = 1
    id: str = dataclasses.field(default="MemoryLength-bsuite", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"num_bits": (1, 100_000)}

    def initial(self, key: Array, params: Params) -> State:
        # A word of random bits for every 32 of the context, and one for the query.
        words = jax.random.bits(key, (1 + -(-self.num_bits // 32),), jnp.uint32)
        bit = jnp.arange(self.num_bits, dtype=jnp.uint32)
        context = (words[1 + bit // 32] >> (bit % 32)) & 1
        query = words[0] % jnp.uint32(self.num_bits)
        return State(jnp.int32(0), context.astype(jnp.int32), query.astype(jnp.int32))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        end = state.time == params.memory_length
        right = action.astype(jnp.int32) == state.context[state.query]
        reward = jnp.where(end, jnp.where(right, 1, -1), 0).astype(float)
        regret = jnp.where(end & ~right, 2, 0).astype(float)
        return Transition(state, reward, end, jnp.bool_(False), {"regret": regret})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "1 n"]:
        shown = jnp.maximum(state.time - 1, 0)  # the quirk
        left = (params.memory_length - shown) / params.memory_length
        query = jnp.where(shown == params.memory_length - 1, state.query, 0)
        context = jnp.where(shown == 0, 2 * state.context - 1, 0)
        parts = [left[None], query[None], context]
        return jnp.concatenate([x.astype(jnp.float32) for x in parts])[None]

    def observation_space(self, params: Params) -> Box:
        one = np.ones(self.num_bits)
        low, high = [0.0, 0.0, *-one], [1.0, self.num_bits - 1.0, *one]
        return Box(np.array([low]), np.array([high]), (1, self.num_bits + 2))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(2)

    def validate(self, params: Params) -> None:
        if not np.all(np.asarray(params.memory_length) > 0):
            raise ValueError(f"{self.id}: memory_length={params.memory_length} must be positive.")


@dataclasses.dataclass(frozen=True)
class MemorySize(MemoryLength):
    """The same with ten bits and a delay of 2."""

    num_bits: int = 10
    id: str = dataclasses.field(default="MemorySize-bsuite", kw_only=True)
    hints = MemoryLength.hints._replace(reset="dense")  # every third step is a reset

    @property
    def default_params(self) -> Params:
        return strongly_typed(Params(memory_length=jnp.int32(2)))
