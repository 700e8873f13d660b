"""RiverSwim: a small reward downstream, a large one behind a current that pushes back.

Strehl and Littman (2008), "An analysis of model-based interval estimation for Markov decision processes", figure 2;
with the probabilities of Osband, Russo and Van Roy (2013), "(More) efficient reinforcement learning via posterior
sampling", figure 1, which later work uses.

The observation is the index of one of six states in a row. Action 0 swims left and always succeeds; 1 swims right:

| state | back | stays | on |
|---|---|---|---|
| leftmost | | 0.4 | 0.6 |
| between | 0.05 | 0.6 | 0.35 |
| rightmost | 0.4 | 0.6 | |

Reward: 5 / 1000 for swimming left in the leftmost state, 1 for swimming right in the rightmost one, else 0. Episodes
start leftmost and never end; the time limit is 20 steps, the horizon of the second paper.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer

from jaxrl.environment import pytree
from jaxrl.exact.mdp import Outcomes, TabularEnvironment


@pytree
class Params:
    max_steps: jax.Array = 20
    advance: jax.Array = 0.35  # probability of moving right, between the ends
    back: jax.Array = 0.05  # of being pushed back there
    first_advance: jax.Array = 0.6  # of leaving the leftmost state
    last_back: jax.Array = 0.4  # of being pushed out of the rightmost one
    small: jax.Array = 0.005  # reward on the left
    large: jax.Array = 1.0  # reward on the right


@dataclasses.dataclass(frozen=True)
class RiverSwim(TabularEnvironment):
    id: str = dataclasses.field(default="RiverSwim-v0", kw_only=True)
    num_states: int = 6
    num_actions: int = dataclasses.field(default=2, init=False)
    Params = Params
    static_ranges = {"num_states": (2, 1_000_000)}

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        last = self.num_states - 1
        first_state, last_state, right = state == 0, state == last, action == 1
        on = jnp.where(first_state, params.first_advance, jnp.where(last_state, 0, params.advance))
        back = jnp.where(first_state, 0, jnp.where(last_state, params.last_back, params.back))
        on, back = jnp.where(right, on, 0), jnp.where(right, back, 1)
        reward = jnp.where(right & last_state, params.large, jnp.where(~right & first_state, params.small, 0))
        return Outcomes(
            probability=jnp.stack([back, 1 - on - back, on]),
            next_state=jnp.stack([jnp.maximum(state - 1, 0), state, jnp.minimum(state + 1, last)]).astype(jnp.int32),
            reward=jnp.broadcast_to(reward, (3,)),
            terminated=jnp.zeros(3, bool),
        )

    def validate(self, params: Params) -> None:
        for name in ("first_advance", "last_back"):
            if not np.all((np.asarray(getattr(params, name)) >= 0) & (np.asarray(getattr(params, name)) <= 1)):
                raise ValueError(f"RiverSwim: {name}={getattr(params, name)} must be a probability.")
        if np.any(np.asarray(params.advance) + np.asarray(params.back) > 1):
            raise ValueError("RiverSwim: advance + back must not exceed 1.")
