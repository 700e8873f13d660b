"""CombinationLock: one of ten actions is right at each of H steps, and what is seen is rotated and noisy.

Misra, Henaff, Krishnamurthy and Langford (2020), "Kinematic state abstraction and provably efficient rich-observation
reinforcement learning" (the "diabolical" lock), with the numbers of the code of Zhou, Sekhari, Song and Sun (2023),
"Offline data enhanced on-policy policy gradient with provable guarantees" (HNPG), arXiv:2311.08384.

At each of H = 50 levels there are three latent states, A, B and dead; an episode starts in A or B at equal chance. A
and B each have one good action a level: it leads on to A or B, switching with probability 1/2; the other nine lead to
dead, which leads to dead. Reward: 1 for the good action on the last level; without it, 0.1 there with probability 1/2
(also from dead: the reward that lures). The episode ends after H steps. HNPG's agents act by a softmax over ten
numbers, which is the same environment with a distribution over the ten actions.

| `observation` | |
|---|---|
| `"rich"` | `R (e + n)`, 2^ceil(log2(H + 4)) numbers: R a Hadamard matrix, e the one-hot state and level, n normal noise of standard deviation 0.1 on the first H + 3 components |
| `"index"` | the number of the latent state, 3 * level + (0 A, 1 B, 2 dead) |

`generate(key, params)` draws the good actions. The optimal value is 1.
"""  # noqa: E501

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Shaped

from jaxrl.environment import NO_LIMIT, pytree, strongly_typed
from jaxrl.exact.mdp import Outcomes, TabularEnvironment, TabularState
from jaxrl.spaces import Box, Discrete

from ..checks import require_index, require_probability, require_shape

A, B, DEAD = range(3)


@pytree
class Params:
    good_actions: jax.Array  # (2, H) int32, of A and of B
    max_steps: jax.Array = NO_LIMIT
    switch: jax.Array = 0.5  # probability of changing between A and B
    start_in_a: jax.Array = 0.5  # probability
    reward: jax.Array = 1.0  # for the good action on the last level
    lure: jax.Array = 0.1  # reward for another one there ...
    lure_probability: jax.Array = 0.5  # ... with this probability
    noise: jax.Array = 0.1  # standard deviation, before the rotation


def hadamard(size: int) -> Float[np.ndarray, "size size"]:
    """Sylvester's matrix of +-1: entry (i, j) by the parity of the bits that i and j share."""
    shared = np.arange(size)[:, None] & np.arange(size)
    return 1.0 - 2.0 * (np.array([[int(x).bit_count() for x in row] for row in shared]) % 2)


@dataclasses.dataclass(frozen=True)
class CombinationLock(TabularEnvironment):
    id: str = dataclasses.field(default="CombinationLock-v0", kw_only=True)
    horizon: int = 50
    num_actions: int = 10
    observation: str = "rich"
    Params = Params
    static_ranges = {"horizon": (1, 10_000), "num_actions": (1, 10_000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.observation not in ("rich", "index"):
            raise ValueError(f"{self.id}: observation={self.observation!r} must be 'rich' or 'index'.")

    @property
    def num_states(self) -> int:
        """Three for each level, and three that are only seen when the episode has ended."""
        return 3 * (self.horizon + 1)

    @property
    def size(self) -> int:
        """Of the rich observation."""
        return 1 << (self.horizon + 3).bit_length()

    @property
    def default_params(self) -> Params:
        """Good actions drawn once for all."""
        params = strongly_typed(Params(jnp.zeros((2, self.horizon), jnp.int32)))
        return self.generate(jax.random.key(0), params)

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """A lock with other good actions, each equally likely."""
        actions = jax.random.randint(key, (2, self.horizon), 0, self.num_actions, jnp.int32)
        return params.replace(good_actions=actions)

    def outcomes(self, state: Array, action: Array, params: Params) -> Outcomes:
        level, latent = jnp.minimum(state // 3, self.horizon - 1), state % 3
        good = (latent != DEAD) & (action == params.good_actions[jnp.minimum(latent, B), level])
        last = state // 3 >= self.horizon - 1
        # Two outcomes: switched or lured, and not.
        first = jnp.where(good, params.switch, params.lure_probability)
        to = jnp.where(good, jnp.stack([1 - latent, latent]), DEAD)
        lured = jnp.stack([params.lure, jnp.zeros_like(params.lure)])
        reward = jnp.where(last, jnp.where(good, params.reward, lured), 0)
        return Outcomes(
            probability=jnp.stack([first, 1 - first]),
            next_state=(3 * (level + 1) + to).astype(jnp.int32),
            reward=reward,
            terminated=jnp.broadcast_to(last, (2,)),
        )

    def initial_distribution(self, params: Params) -> Float[Array, " S"]:
        start = jnp.stack([params.start_in_a, 1 - params.start_in_a])
        return jnp.zeros(self.num_states, start.dtype).at[:2].set(start)

    def initial(self, key: Array, params: Params) -> TabularState:
        index = jnp.where(jax.random.uniform(key) < params.start_in_a, A, B)
        return TabularState(jnp.int32(0), index.astype(jnp.int32))

    def observe(self, key: Array, state: TabularState, params: Params) -> Shaped[Array, "..."]:
        if self.observation == "index":
            return state.index
        dtype = params.noise.dtype
        noisy = self.horizon + 3
        component = jnp.arange(self.size)
        one_hot = (component == state.index % 3) | (component == 3 + state.index // 3)
        noise = params.noise * jax.random.normal(key, (noisy,), dtype)
        seen = one_hot.astype(dtype) + jnp.pad(noise, (0, self.size - noisy))
        return jnp.asarray(hadamard(self.size), dtype) @ seen

    def observation_space(self, params: Params) -> Box | Discrete:
        if self.observation == "index":
            return Discrete(self.num_states)
        return Box(-jnp.inf, jnp.inf, (self.size,))

    def validate(self, params: Params) -> None:
        require_shape(self, params, "good_actions", 2, self.horizon)
        require_index(self, params, "good_actions", self.num_actions)
        require_probability(self, params, "switch", "start_in_a", "lure_probability")
        if np.any(np.asarray(params.noise) < 0):
            raise ValueError(f"{self.id}: noise={params.noise} must not be negative.")
