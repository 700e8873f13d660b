"""BestArmIdentification-v0: find the best arm with a budget of pulls; only the final choice counts.

Audibert, Bubeck and Munos (2010), "Best arm identification in multi-armed bandits": `max_steps` - 1 rounds of
exploration, in which the action is the arm to pull, then one in which it is the arm to recommend. Pulls are Bernoulli.

| observation | unit | range |
|---|---|---|
| the sample of the last pull | - | 0 or 1 |
| the arm last pulled, one-hot (K) | - | 0 or 1; all 0 in the first round |
| rounds left, the recommendation included, of all | - | [0, 1] |

Reward: 0 for pulls; for the recommendation 1 if no arm is better, else 0 (`paid="correct"`), or minus the simple
regret, by which its mean falls short of the best arm's (`paid="simple_regret"`). `info["regret"]` is the simple regret
of the recommendation, 0 in the rounds before: exploring costs nothing here. Terminates with the recommendation.
`generate(key, params)` draws a problem: means uniform in [`low`, `high`].
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Key

from jaxrl.environment import NO_LIMIT, Transition, pytree, strongly_typed
from jaxrl.spaces import Box, Space

from .bandit import Bandit, pick, regret


@pytree
class Params:
    mean: jax.Array  # (K,) of each arm
    low: jax.Array = 0.0  # of the means that `generate` draws
    high: jax.Array = 1.0
    max_steps: jax.Array = 2001  # the budget of pulls, and the recommendation


@pytree
class State:
    time: jax.Array  # rounds played
    arm: jax.Array  # int32, last pulled; -1 before the first pull
    sample: jax.Array  # of that pull


@dataclasses.dataclass(frozen=True)
class BestArmIdentification(Bandit):
    arms: int = 20
    paid: Literal["correct", "simple_regret"] = "correct"
    id: str = dataclasses.field(default="BestArmIdentification-v0", kw_only=True)

    Params = Params

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.paid not in ("correct", "simple_regret"):
            raise ValueError(f"{self.id}: paid={self.paid!r}; choose correct or simple_regret.")

    @property
    def default_params(self) -> Params:
        """Audibert, Bubeck and Munos (2010), experiment 1: the first arm has mean 0.5, all others 0.4."""
        return strongly_typed(Params(jnp.where(jnp.arange(self.arms) == 0, 0.5, 0.4)))

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """A problem: means uniform in [low, high]."""
        return params.replace(mean=jax.random.uniform(key, (self.arms,), minval=params.low, maxval=params.high))

    def initial(self, key: Array, params: Params) -> State:
        return State(jnp.int32(0), jnp.int32(-1), jnp.zeros((), params.mean.dtype))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        recommends = state.time >= params.max_steps - 1
        chance = pick(params.mean, action)
        sample = (jax.random.uniform(key, dtype=chance.dtype) < chance).astype(state.sample.dtype)
        simple = regret(params.mean, action)
        pay = -simple if self.paid == "simple_regret" else (simple <= 0).astype(chance.dtype)
        reward, lost = jnp.where(recommends, pay, 0), jnp.where(recommends, simple, 0)
        state = state.replace(arm=action.astype(jnp.int32), sample=sample)
        return Transition(state, reward, recommends, jnp.bool_(False), {"regret": lost})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, " K_plus_2"]:
        pulled = (jnp.arange(self.arms) == state.arm).astype(state.sample.dtype)
        left = (1 - state.time / params.max_steps).astype(state.sample.dtype)
        return jnp.concatenate([state.sample[None], pulled, left[None]])

    def observation_space(self, params: Params) -> Space:
        return Box(0.0, 1.0, (self.arms + 2,))

    def validate(self, params: Params) -> None:
        mean, limit = np.asarray(params.mean), np.asarray(params.max_steps)
        if mean.shape[-1:] != (self.arms,):
            raise ValueError(f"{self.id}: mean has shape {mean.shape} for arms={self.arms}.")
        for name in ("mean", "low", "high"):
            value = np.asarray(getattr(params, name))
            if not np.all((value >= 0) & (value <= 1)):
                raise ValueError(f"{self.id}: {name}={value.tolist()} must be in [0, 1].")
        if not np.all((limit >= 2) & (limit < NO_LIMIT)):
            raise ValueError(f"{self.id}: max_steps={limit} is the pulls and one round more: finite, and 2 at least.")
