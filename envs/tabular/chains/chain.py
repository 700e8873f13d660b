"""Chain: a large reward at the end of five steps forward, a small one for giving up, and actions that slip.

Strens (2000), "A Bayesian framework for reinforcement learning", figure 1; the same problem as "Chain" of Dearden,
Friedman and Russell (1998) and as `NChain-v0` of early Gym.

The observation is the index of one of five states in a row, episodes start in the first. Action 0 goes one state on,
and in the last one stays there for a reward of 10; action 1 returns to the first state for a reward of 2. With
probability 0.2 the other action is carried out. Episodes never end; the time limit is 1000 steps, the length of one of
Strens' phases. Always going on is optimal and earns 3.6768 a step in the long run (3677 a phase). Discount there:
0.95.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Integer

from jaxrl.environment import Hints, pytree
from jaxrl.exact.mdp import Outcomes, TabularEnvironment

from ..checks import require_probability


@pytree
class Params:
    max_steps: jax.Array = 1000
    slip: jax.Array = 0.2  # probability that the other action is carried out
    small: jax.Array = 2.0  # reward of returning
    large: jax.Array = 10.0  # reward of going on in the last state


@dataclasses.dataclass(frozen=True)
class Chain(TabularEnvironment):
    id: str = dataclasses.field(default="Chain-v0", kw_only=True)
    num_states: int = 5
    num_actions: int = dataclasses.field(default=2, init=False)
    Params = Params
    hints = Hints(reset="dense")
    static_ranges = {"num_states": (1, 1_000_000)}

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        last = self.num_states - 1
        on = jnp.where(action == 0, 1 - params.slip, params.slip)
        ahead = jnp.minimum(state + 1, last)
        return Outcomes(
            probability=jnp.stack([on, 1 - on]),
            next_state=jnp.stack([ahead, jnp.zeros_like(ahead)]).astype(jnp.int32),
            reward=jnp.stack([jnp.where(state == last, params.large, 0), params.small]),
            terminated=jnp.zeros(2, bool),
        )

    def validate(self, params: Params) -> None:
        require_probability(self, params, "slip")
