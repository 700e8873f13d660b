"""Linear bandits: the mean reward of an arm is the inner product of its features with an unknown vector.

| id | features |
|---|---|
| `LinearBandit-v0` | fixed, one row an arm |
| `ContextualLinearBandit-v0` | drawn anew each round, every entry uniform in [-`bound`, `bound`] |
| `SparseLinearBandit-v0` | fixed; of the unknown vector only `sparsity` entries are not zero |

Reward: features of the arm times `theta`, plus normal noise of standard deviation `scale`. Observation: the features of
this round's arms, (K, d), for all three. The action is an arm, an episode one problem of `max_steps` rounds, and
`info["regret"]` the expected loss of the round against the arm that is best in it. `generate(key, params)` draws a
problem: `theta` normal with covariance I / d (so that its length is about 1; sparse: on a random support of s entries,
covariance I / s) and fixed features uniform as above.

Auer (2002), "Using confidence bounds for exploitation-exploration trade-offs"; Li et al. (2010), "A contextual-bandit
approach to personalized news article recommendation"; sparse: Abbasi-Yadkori, Pal and Szepesvari (2012),
"Online-to-confidence-set conversions and application to sparse stochastic bandits".
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Key

from jaxrl.environment import Transition, pytree, strongly_typed
from jaxrl.spaces import Box, Space

from .bandit import Bandit, pick, regret


@pytree
class Params:
    features: jax.Array  # (K, d) of each arm
    theta: jax.Array  # (d,) unknown to the player
    scale: jax.Array = 0.1  # standard deviation of the noise
    bound: jax.Array = 1.0  # of the features that `generate` draws
    max_steps: jax.Array = 1000


@pytree
class SparseParams(Params):
    sparsity: jax.Array = 3  # entries of theta that `generate` makes other than zero


@pytree
class ContextualParams:
    theta: jax.Array  # (d,) unknown to the player
    scale: jax.Array = 0.1
    bound: jax.Array = 1.0  # every entry of a feature vector is uniform in [-bound, bound]
    max_steps: jax.Array = 1000


@pytree
class ContextualState:
    time: jax.Array  # rounds played
    features: jax.Array  # (K, d) of this round's arms


def mean_reward(features: Float[Array, "K d"], theta: Float[Array, " d"]) -> Float[Array, " K"]:
    """Of each arm. A sum of products, not a matrix product, so that it fuses with what follows."""
    return jnp.sum(features * theta, -1)


@dataclasses.dataclass(frozen=True)
class LinearBandit(Bandit):
    """`arms` fixed feature vectors of length `dim`."""

    dim: int = 5
    id: str = dataclasses.field(default="LinearBandit-v0", kw_only=True)

    Params = Params
    static_ranges = {"dim": (1, 1000)}

    @property
    def default_params(self) -> Any:
        """A problem like those of `generate`, always the same."""
        random = np.random.default_rng(0)
        features = random.uniform(-1, 1, (self.arms, self.dim))
        theta = random.normal(size=self.dim) / math.sqrt(self.dim)
        return strongly_typed(self.Params(jnp.asarray(features, float), jnp.asarray(theta, float)))

    def generate(self, key: Key[Array, ""], params: Any) -> Any:
        """A problem: features uniform in [-bound, bound], theta normal of length about 1."""
        features_key, theta_key = jax.random.split(key)
        features = jax.random.uniform(features_key, (self.arms, self.dim), minval=-params.bound, maxval=params.bound)
        return params.replace(features=features, theta=jax.random.normal(theta_key, (self.dim,)) / math.sqrt(self.dim))

    def observe(self, key: Array, state: Any, params: Any) -> Float[Array, "K d"]:
        return params.features

    def transition(self, key: Array, state: Any, action: Integer[Array, ""], params: Any) -> Transition:
        mean = mean_reward(params.features, params.theta)
        reward = pick(mean, action) + params.scale * jax.random.normal(key, dtype=mean.dtype)
        return Transition(state, reward, jnp.bool_(False), jnp.bool_(False), {"regret": regret(mean, action)})

    def observation_space(self, params: Any) -> Space:
        return Box(-jnp.inf, jnp.inf, (self.arms, self.dim))

    def validate(self, params: Any) -> None:
        shapes: dict[str, tuple[int, ...]] = {"theta": (self.dim,)}
        if hasattr(params, "features"):
            shapes["features"] = (self.arms, self.dim)
        for name, shape in shapes.items():
            found = np.shape(getattr(params, name))
            if found[-len(shape) :] != shape:
                raise ValueError(f"{self.id}: {name} has shape {found}; arms={self.arms}, dim={self.dim} need {shape}.")
        for name, value in (("scale", params.scale), ("bound", params.bound)):
            if not np.all(np.asarray(value) >= 0):
                raise ValueError(f"{self.id}: {name}={value} must not be negative.")


@dataclasses.dataclass(frozen=True)
class SparseLinearBandit(LinearBandit):
    arms: int = 20
    dim: int = 20
    id: str = dataclasses.field(default="SparseLinearBandit-v0", kw_only=True)

    Params = SparseParams

    @property
    def default_params(self) -> SparseParams:
        """A problem like those of `generate`, always the same: the first entries of theta are the support."""
        params = super().default_params
        theta = jnp.where(jnp.arange(self.dim) < params.sparsity, 1 / jnp.sqrt(params.sparsity), 0)
        return params.replace(theta=theta.astype(params.theta.dtype))

    def generate(self, key: Key[Array, ""], params: SparseParams) -> SparseParams:
        """A problem: features uniform in [-bound, bound], theta normal on `sparsity` entries drawn at random."""
        dense_key, support_key = jax.random.split(key)
        params = super().generate(dense_key, params)
        support = jax.random.permutation(support_key, self.dim) < params.sparsity
        return params.replace(theta=jnp.where(support, params.theta * jnp.sqrt(self.dim / params.sparsity), 0))

    def validate(self, params: SparseParams) -> None:
        super().validate(params)
        sparsity = np.asarray(params.sparsity)
        if not np.all((sparsity >= 1) & (sparsity <= self.dim)):
            raise ValueError(f"{self.id}: sparsity={sparsity}; it must be from 1 to dim={self.dim}.")


@dataclasses.dataclass(frozen=True)
class ContextualLinearBandit(LinearBandit):
    id: str = dataclasses.field(default="ContextualLinearBandit-v0", kw_only=True)

    Params = ContextualParams

    @property
    def default_params(self) -> ContextualParams:
        """All entries of theta equal, length 1."""
        return strongly_typed(ContextualParams(jnp.full(self.dim, 1 / math.sqrt(self.dim))))

    def generate(self, key: Key[Array, ""], params: ContextualParams) -> ContextualParams:
        """A problem: theta normal of length about 1."""
        return params.replace(theta=jax.random.normal(key, (self.dim,)) / math.sqrt(self.dim))

    def initial(self, key: Array, params: ContextualParams) -> ContextualState:
        return ContextualState(jnp.int32(0), self._draw(key, params)[0])

    def observe(self, key: Array, state: ContextualState, params: Any) -> Float[Array, "K d"]:
        return state.features

    def transition(
        self, key: Array, state: ContextualState, action: Integer[Array, ""], params: ContextualParams
    ) -> Transition:
        mean = mean_reward(state.features, params.theta)
        features, noise = self._draw(key, params)
        info = {"regret": regret(mean, action)}
        state = state.replace(features=features.astype(state.features.dtype))
        return Transition(state, pick(mean, action) + noise, jnp.bool_(False), jnp.bool_(False), info)

    def observation_space(self, params: ContextualParams) -> Space:
        return Box(-params.bound, params.bound, (self.arms, self.dim))

    def _draw(self, key: Array, params: ContextualParams) -> tuple[Float[Array, "K d"], Float[Array, ""]]:
        """The next round's features, and a reward's noise, from one draw."""
        dtype = params.theta.dtype
        above = jnp.nextafter(jnp.asarray(-1, dtype), jnp.asarray(0, dtype))  # the noise at -1 would be infinite
        u = jax.random.uniform(key, (self.arms * self.dim + 1,), dtype, minval=above, maxval=1)
        noise = params.scale * math.sqrt(2) * jax.scipy.special.erfinv(u[-1])
        return params.bound * u[:-1].reshape(self.arms, self.dim), noise
