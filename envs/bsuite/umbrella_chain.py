"""UmbrellaLength-bsuite and UmbrellaDistract-bsuite: the first action decides about the last reward; all else is noise.

Osband et al. (2020), experiments `umbrella_length` (20 distractors, up to 100 steps) and `umbrella_distract` (20 steps,
up to 100 distractors). Observation, (1, 3 + n_distractor): whether an umbrella is needed, whether one is had (random
before the first action), the fraction of time left, and random bits drawn anew every step. Action: 0 or 1, on the first
step: leave or take the umbrella; later ones do nothing. Reward: +1 or -1 at random, and on the last step +1 if had ==
needed, else -1. Ends after `chain_length` steps. `info["regret"]`: 2 for the wrong end.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import NO_LIMIT, Environment, Transition, pytree
from jaxrl.spaces import Box, Discrete


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    chain_length: jax.Array = 20  # steps


@pytree
class State:
    time: jax.Array  # steps since reset
    need: jax.Array  # bool
    have: jax.Array  # bool
    distractors: jax.Array  # (n_distractor,) bool, shown now


def random_bits(key: Array, n: int) -> Bool[Array, " n"]:
    """`n` fair coins from as few random words as hold them."""
    words = jax.random.bits(key, (-(-n // 32),), jnp.uint32)
    bit = jnp.arange(n, dtype=jnp.uint32)
    return ((words[bit // 32] >> (bit % 32)) & 1).astype(bool)


def step(
    state: State, action: Integer[Array, ""], coin: Bool[Array, ""], params: Params
) -> tuple[Bool[Array, ""], Float[Array, ""], Bool[Array, ""]]:
    """`(have, reward, end)` of a step whose reward, if it is not the last, is that of the `coin`."""
    have = jnp.where(state.time == 0, action == 1, state.have)
    end = state.time + 1 == params.chain_length
    good = jnp.where(end, have == state.need, coin)
    return have, jnp.where(good, 1, -1).astype(float), end


@dataclasses.dataclass(frozen=True)
class Umbrella(Environment):
    n_distractor: int = 20
    id: str = dataclasses.field(default="UmbrellaLength-bsuite", kw_only=True)
    Params = Params
    static_ranges = {"n_distractor": (0, 100_000)}

    def initial(self, key: Array, params: Params) -> State:
        bits = random_bits(key, 2 + self.n_distractor)
        return State(jnp.int32(0), bits[0], bits[1], bits[2:])

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        bits = random_bits(key, 1 + self.n_distractor)
        have, reward, end = step(state, action, bits[0], params)
        regret = jnp.where(end, 1 - reward, 0)
        return Transition(
            state.replace(have=have, distractors=bits[1:]), reward, end, jnp.bool_(False), {"regret": regret}
        )

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "1 n"]:
        left = (params.chain_length - state.time) / params.chain_length
        parts = [state.need[None], state.have[None], left[None], state.distractors]
        return jnp.concatenate([x.astype(jnp.float32) for x in parts])[None]

    def observation_space(self, params: Params) -> Box:
        return Box(0.0, 1.0, (1, 3 + self.n_distractor))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(2)

    def validate(self, params: Params) -> None:
        if not np.all(np.asarray(params.chain_length) > 0):
            raise ValueError(f"{self.id}: chain_length={params.chain_length} must be positive.")
