"""DelayedChain: the first action alone decides the reward at the end of the chain.

Oh, Hessel, Czarnecki, Xu, van Hasselt, Singh and Silver (2020), "Discovering reinforcement learning algorithms" (LPG),
appendix A.3, arXiv:2007.08794. An episode takes `length` steps of two actions. If the first was the right one, the
last pays 1, else -1; nothing else matters. The five variants of the paper are settings of this one:

| | `max_length` | `noisy` | `distractor_bits` |
|---|---|---|---|
| short, short and noisy | 30 | False, True | 0 |
| long, long and noisy | 50 | False, True | 0 |
| state distraction | 30 | False | 20 |

With `noisy`, every step but the first and the last pays +-1 at equal chance. The observation is the number of the
state: 0 at the start, `2 * steps - 1` on the right way, one more on the wrong one. With `distractor_bits` it is two
bits, "at the start" and "on the right way", and that many random ones, drawn anew at each step (our reading of "two
relevant inputs"). `generate(key, params)` draws a lifetime: `length` uniform in [`min_length`, `max_length`] and the
right action.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Key, Shaped

from jaxrl.environment import NO_LIMIT, Hints, pytree, strongly_typed
from jaxrl.exact.mdp import Outcomes, TabularEnvironment, TabularState, certain
from jaxrl.spaces import Box, Discrete

from ..checks import require_index


@pytree
class Params:
    length: jax.Array  # int32, steps of an episode, from 1 to max_length
    min_length: jax.Array = 5  # int32, that `generate` draws
    max_steps: jax.Array = NO_LIMIT
    right_action: jax.Array = 0  # int32
    reward: jax.Array = 1.0  # at the end after the right action, and lost after the wrong one
    noise: jax.Array = 1.0  # size of the rewards on the way, with noisy=True


@dataclasses.dataclass(frozen=True)
class DelayedChain(TabularEnvironment):
    id: str = dataclasses.field(default="DelayedChain-v0", kw_only=True)
    max_length: int = 30
    noisy: bool = False
    distractor_bits: int = 0
    num_actions: int = dataclasses.field(default=2, init=False)
    Params = Params
    static_ranges = {"max_length": (1, 1_000_000), "distractor_bits": (0, 1_000_000)}

    @property
    def num_states(self) -> int:
        return 2 * self.max_length + 1

    @property
    def hints(self) -> Hints:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Hints(deterministic=not (self.noisy or self.distractor_bits), reset="dense")

    @property
    def default_params(self) -> Params:
        return strongly_typed(Params(length=jnp.int32(self.max_length)))

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """A lifetime: chain length and right action."""
        uniform = jax.random.uniform(key, (2,))
        length = params.min_length + jnp.floor(uniform[0] * (self.max_length + 1 - params.min_length)).astype(jnp.int32)
        return params.replace(length=length, right_action=(uniform[1] < 0.5).astype(jnp.int32))

    def optimal_value(self, params: Params, gamma: float | Float[Array, ""] = 1.0) -> Float[Array, ""]:
        """The expected return of the best policy from the start."""
        return params.reward * jnp.asarray(gamma, params.reward.dtype) ** (params.length - 1)

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        step = (state + 1) // 2  # steps taken before this one
        right = jnp.where(state == 0, action == params.right_action, state % 2 == 1)
        done = step + 1 >= params.length
        next_state = jnp.minimum(2 * step + jnp.where(right, 1, 2), self.num_states - 1)
        final = jnp.where(done, jnp.where(right, params.reward, -params.reward), 0)
        if not self.noisy:
            return certain(next_state, final, done)
        noise = jnp.where(done | (state == 0), 0, params.noise)
        return Outcomes(
            jnp.full(2, 0.5, params.reward.dtype),
            jnp.broadcast_to(next_state, (2,)).astype(jnp.int32),
            jnp.stack([final + noise, final - noise]),
            jnp.broadcast_to(done, (2,)),
        )

    def observe(self, key: Array, state: TabularState, params: Params) -> Shaped[Array, "..."]:
        if not self.distractor_bits:
            return state.index
        relevant = jnp.stack([state.index == 0, state.index % 2 == 1])
        return jnp.concatenate([relevant, jax.random.bernoulli(key, shape=(self.distractor_bits,))])

    def observation_space(self, params: Params) -> Box | Discrete:
        if not self.distractor_bits:
            return Discrete(self.num_states)
        return Box(0, 1, (2 + self.distractor_bits,), jnp.bool_)

    def validate(self, params: Params) -> None:
        require_index(self, params, "right_action", 2)
        for name in ("length", "min_length"):
            value = np.asarray(getattr(params, name))
            if not np.all((value >= 1) & (value <= self.max_length)):
                raise ValueError(f"{self.id}: {name}={value} must be from 1 to max_length={self.max_length}.")
