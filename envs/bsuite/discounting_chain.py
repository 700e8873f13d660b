"""DiscountingChain-bsuite: the first action picks one of five delays, and one of them pays a tenth more.

Osband et al. (2020), experiment `discounting_chain`. Observation, (1, 2): the first action (-1 before it) and
time / length in [0, 1]. Action: 0 .. 4; only the first counts. Reward: that of the chosen chain after exactly 1, 3, 10,
30 or 100 steps, else 0. Ends after 100 steps.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree, strongly_typed
from jaxrl.spaces import Box, Discrete

NUM_CHAINS = 5


@pytree
class Params:
    rewards: jax.Array  # (5,) of each chain
    delays: jax.Array  # (5,) int32, steps until each
    length: jax.Array = 100  # steps of an episode
    max_steps: jax.Array = NO_LIMIT


@pytree
class State:
    time: jax.Array  # steps since reset
    chain: jax.Array  # int32, the first action; -1 before it


def bsuite_rewards(mapping_seed: int) -> np.ndarray:
    """The chains' rewards in bsuite's task of this seed, shape (5,)."""
    return np.where(np.arange(NUM_CHAINS) == mapping_seed % NUM_CHAINS, 1.1, 1.0)


@dataclasses.dataclass(frozen=True)
class DiscountingChain(Environment):
    id: str = dataclasses.field(default="DiscountingChain-bsuite", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True, reset="dense", fenced=False)

    @property
    def default_params(self) -> Params:
        """bsuite's `discounting_chain/0`: the shortest delay pays most."""
        rewards, delays = jnp.asarray(bsuite_rewards(0), float), jnp.array([1, 3, 10, 30, 100], jnp.int32)
        return strongly_typed(Params(rewards, delays))

    def initial(self, key: Array, params: Params) -> State:
        return State(jnp.int32(0), jnp.int32(-1))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        chain = jnp.where(state.time == 0, action.astype(jnp.int32), state.chain)
        time = state.time + 1
        reward = jnp.zeros((), params.rewards.dtype)
        # On scalars, which fuse with the rest of the step where a lookup or a sum would not.
        for i in range(NUM_CHAINS):
            reward = jnp.where((chain == i) & (time == params.delays[i]), params.rewards[i], reward)
        return Transition(state.replace(chain=chain), reward, time == params.length, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "1 2"]:
        # Compiled as a product with the inverse, the quotient may exceed 1 in the last digit.
        time = jnp.minimum(state.time / params.length, 1)
        return jnp.stack([state.chain.astype(jnp.float32), time.astype(jnp.float32)])[None]

    def observation_space(self, params: Params) -> Box:
        return Box(np.array([[-1.0, 0.0]]), np.array([[NUM_CHAINS - 1.0, 1.0]]), (1, 2))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(NUM_CHAINS)

    def validate(self, params: Params) -> None:
        for name in ("rewards", "delays"):
            if np.shape(getattr(params, name))[-1:] != (NUM_CHAINS,):
                raise ValueError(f"{self.id}: {name} {np.shape(getattr(params, name))}; there are {NUM_CHAINS} chains.")
        if not np.all(np.asarray(params.length) > 0):
            raise ValueError(f"{self.id}: length={params.length} must be positive.")
