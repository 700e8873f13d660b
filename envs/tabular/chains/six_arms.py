"""SixArms: six one-armed bandits behind doors, the better the harder to enter.

Strehl and Littman (2008), "An analysis of model-based interval estimation for Markov decision processes", figure 2.

The observation is the index of one of seven states; episodes start in state 0, the room. Action a there leads to arm a
+ 1 with its probability, else nowhere:

| arm | 1 | 2 | 3 | 4 | 5 | 6 |
|---|---|---|---|---|---|---|
| probability of entering | 1 | 0.15 | 0.1 | 0.05 | 0.03 | 0.01 |
| reward of playing | 50 | 133 | 300 | 800 | 1660 | 6000 |

Arm i > 1 is played by the action i - 1 that led there; all others return to the room. Arm 1 is played by every action
but 4, which returns. Episodes never end; the time limit is 5000 steps, over which the paper sums the rewards (discount
0.95).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Integer

from jaxrl.environment import Hints, pytree
from jaxrl.exact.mdp import Outcomes, TabularEnvironment

from ..checks import require_probability, require_shape


@pytree
class Params:
    max_steps: jax.Array = 5000
    enter: jax.Array = (1.0, 0.15, 0.1, 0.05, 0.03, 0.01)  # (6,) probability of entering each arm
    reward: jax.Array = (50.0, 133.0, 300.0, 800.0, 1660.0, 6000.0)  # (6,) of playing each arm


@dataclasses.dataclass(frozen=True)
class SixArms(TabularEnvironment):
    id: str = dataclasses.field(default="SixArms-v0", kw_only=True)
    num_states: int = dataclasses.field(default=7, init=False)
    num_actions: int = dataclasses.field(default=6, init=False)
    Params = Params
    hints = Hints(reset="dense")

    @property
    def default_params(self) -> Params:
        default = Params()
        return Params(jnp.int32(default.max_steps), *(jnp.array(x, float) for x in (default.enter, default.reward)))

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        room = state == 0
        plays = jnp.where(state == 1, action != 4, action == state - 1)
        enter = jnp.sum(jnp.where(jnp.arange(6) == action, params.enter, 0))
        reward = jnp.sum(jnp.where(jnp.arange(1, 7) == state, params.reward, 0))  # none in the room
        first = jnp.where(room, enter, jnp.where(plays, 1, 0))
        return Outcomes(
            probability=jnp.stack([first, 1 - first]),
            next_state=jnp.stack([jnp.where(room, action + 1, state), jnp.zeros_like(state)]).astype(jnp.int32),
            reward=jnp.stack([reward, jnp.zeros_like(reward)]),
            terminated=jnp.zeros(2, bool),
        )

    def validate(self, params: Params) -> None:
        require_shape(self, params, "enter", 6)
        require_shape(self, params, "reward", 6)
        require_probability(self, params, "enter")
