"""The action distributions that policies need, as pytrees of plain arrays.

Each has `sample(key)`, `mode()`, `log_prob(x)`, `entropy()`, `sample_and_log_prob(key)` and `kl(other)`, all pure and
batched over leading axes. Continuous ones are diagonal: the last axis is the event, and log_prob, entropy and kl sum
over it. Their samples are reparameterised (a Beta's by implicit differentiation, which JAX offers to first order only).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, digamma
from jaxtyping import Array, Bool, Float, Int, Key

from jaxrl.environment import pytree
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space

_LOG_2PI = math.log(2 * math.pi)
_UNROLLED = 32
"""Categories up to which the inverse-CDF draw is unrolled; beyond it Gumbel noise compiles faster."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)


def mask_logits(logits: Float[Array, "*batch n"], mask: Bool[Array, "*#batch n"]) -> Float[Array, "*batch n"]:
    """Logits with the actions where `mask` is False made impossible: never sampled, probability and gradient zero.

    The fill is large but finite, so log_prob, entropy, kl and their gradients stay finite. A mask without a True is
    uniform.
    """
    return jnp.where(mask, logits, jnp.asarray(_fill(logits), logits.dtype))


def allowed(logits: Float[Array, "*batch n"]) -> Bool[Array, "*batch n"]:
    """Which actions `mask_logits` left possible: all, where no mask was applied."""
    return logits > _fill(logits) / 2


def _fill(logits: Array) -> float:
    return max(-1e8, float(jnp.finfo(logits.dtype).min) / 4)


def invert_cdf(u: Float[Array, "*batch"], mass: Float[Array, "*batch n"]) -> Int[Array, "*batch"]:
    """The category at quantile `u` in [0, 1), where category i has a probability proportional to mass[i].

    One random word instead of n: 1.5 to 5 times faster than Gumbel noise on CPU. Meant for small n, which is unrolled.
    The sums run in sequence, not as a tree, so that a category without mass has an interval of exactly zero length.
    """
    cdf = [mass[..., 0]]
    for i in range(1, mass.shape[-1]):
        cdf.append(cdf[-1] + mass[..., i])
    threshold = u * cdf[-1]
    return sum(((c <= threshold).astype(jnp.int32) for c in cdf[:-1]), jnp.zeros(u.shape, jnp.int32))


@pytree
class Categorical:
    """One of n actions, with probabilities softmax(logits)."""

    logits: jax.Array  # (..., n), finite: use mask_logits to forbid actions

    def sample(self, key: Key[Array, ""]) -> Int[Array, "..."]:
        """Draw an action."""
        *batch, n = self.logits.shape
        if n > _UNROLLED:
            return jax.random.categorical(key, self.logits).astype(jnp.int32)
        return invert_cdf(jax.random.uniform(key, batch, self.logits.dtype), jax.nn.softmax(self.logits))

    def mode(self) -> Int[Array, "..."]:
        """The most probable action, the first one of a tie."""
        return jnp.argmax(self.logits, -1).astype(jnp.int32)

    def log_prob(self, x: Int[Array, "..."]) -> Float[Array, "..."]:
        """Log-probability of action `x` in 0 .. n-1 (not checked)."""
        # Selecting by comparison, and before the normaliser, is 1.5 to 2 times faster on CPU than a gather with its
        # scattered gradient or a log_softmax computed anew for each entry.
        shifted = self.logits - jax.lax.stop_gradient(jnp.max(self.logits, -1, keepdims=True))
        chosen = jnp.arange(self.logits.shape[-1]) == x[..., None]
        return jnp.sum(jnp.where(chosen, shifted, 0), -1) - jnp.log(jnp.sum(jnp.exp(shifted), -1))

    def entropy(self) -> Float[Array, "..."]:
        """Shannon entropy, nats."""
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, -1)

    def sample_and_log_prob(self, key: Key[Array, ""]) -> tuple[Int[Array, "..."], Float[Array, "..."]]:
        """An action and its log-probability."""
        x = self.sample(key)
        return x, self.log_prob(x)

    def kl(self, other: Categorical) -> Float[Array, "..."]:
        """KL(self || other), nats."""
        log_p, log_q = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(other.logits)
        return jnp.sum(jnp.exp(log_p) * (log_p - log_q), -1)


@pytree(static=("nvec",))
class MultiCategorical:
    """Independent categorical actions, entry i one of nvec[i]; their logits lie end to end on the last axis."""

    logits: jax.Array  # (..., sum(nvec))
    nvec: tuple[int, ...]

    def factors(self) -> list[Categorical]:
        """The distribution of each entry. Raises ValueError when the logits do not have sum(nvec) columns."""
        if self.logits.shape[-1] != sum(self.nvec):
            raise ValueError(
                f"MultiCategorical: {self.logits.shape[-1]} logits; nvec={self.nvec} needs {sum(self.nvec)}."
            )
        ends = np.cumsum(self.nvec)
        return [Categorical(self.logits[..., end - n : end]) for n, end in zip(self.nvec, ends, strict=True)]

    def sample(self, key: Key[Array, ""]) -> Int[Array, "... entries"]:
        """Draw all entries with one call to the generator."""
        factors = self.factors()
        if max(self.nvec) > _UNROLLED:
            keys = jax.random.split(key, len(factors))
            return jnp.stack([f.sample(k) for f, k in zip(factors, keys, strict=True)], -1)
        u = jax.random.uniform(key, (*self.logits.shape[:-1], len(factors)), self.logits.dtype)
        return jnp.stack([invert_cdf(u[..., i], jax.nn.softmax(f.logits)) for i, f in enumerate(factors)], -1)

    def mode(self) -> Int[Array, "... entries"]:
        """The most probable action."""
        return jnp.stack([f.mode() for f in self.factors()], -1)

    def log_prob(self, x: Int[Array, "... entries"]) -> Float[Array, "..."]:
        """Log-probability of the joint action."""
        return sum((f.log_prob(x[..., i]) for i, f in enumerate(self.factors())), jnp.zeros((), self.logits.dtype))

    def entropy(self) -> Float[Array, "..."]:
        """Shannon entropy of the joint action, nats."""
        return sum((f.entropy() for f in self.factors()), jnp.zeros((), self.logits.dtype))

    def sample_and_log_prob(self, key: Key[Array, ""]) -> tuple[Int[Array, "... entries"], Float[Array, "..."]]:
        """A joint action and its log-probability."""
        x = self.sample(key)
        return x, self.log_prob(x)

    def kl(self, other: MultiCategorical) -> Float[Array, "..."]:
        """KL(self || other), nats."""
        pairs = zip(self.factors(), other.factors(), strict=True)
        return sum((p.kl(q) for p, q in pairs), jnp.zeros((), self.logits.dtype))


@pytree
class Normal:
    """Independent normals over the last axis. Accurate in float32 for |log_std| up to 40."""

    mean: jax.Array  # (..., A)
    log_std: jax.Array  # broadcasts to mean

    def _noise(self, key: Array) -> Array:
        return jax.random.normal(key, jnp.broadcast_shapes(self.mean.shape, self.log_std.shape), self.mean.dtype)

    def sample(self, key: Key[Array, ""]) -> Float[Array, "... A"]:
        """Draw mean + std * noise."""
        return self.mean + jnp.exp(self.log_std) * self._noise(key)

    def mode(self) -> Float[Array, "... A"]:
        """The mean."""
        return self.mean

    def log_prob(self, x: Float[Array, "... A"]) -> Float[Array, "..."]:
        """Log-density of `x`."""
        z = (x - self.mean) * jnp.exp(-self.log_std)
        return -jnp.sum(0.5 * z * z + self.log_std + 0.5 * _LOG_2PI, -1)

    def entropy(self) -> Float[Array, "..."]:
        """Differential entropy, nats."""
        shape = jnp.broadcast_shapes(self.mean.shape, self.log_std.shape)
        return jnp.sum(jnp.broadcast_to(self.log_std, shape) + 0.5 * (_LOG_2PI + 1), -1)

    def sample_and_log_prob(self, key: Key[Array, ""]) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        """A draw and its log-density, from the noise itself rather than from (x - mean) / std."""
        noise = self._noise(key)
        log_prob = -jnp.sum(0.5 * noise * noise + self.log_std + 0.5 * _LOG_2PI, -1)
        return self.mean + jnp.exp(self.log_std) * noise, log_prob

    def kl(self, other: Normal) -> Float[Array, "..."]:
        """KL(self || other), nats."""
        shift = (self.mean - other.mean) * jnp.exp(-other.log_std)
        log_ratio = self.log_std - other.log_std
        return 0.5 * jnp.sum(jnp.expm1(2 * log_ratio) - 2 * log_ratio + shift * shift, -1)


def _log_det_tanh(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(1 - tanh(u)^2), without cancellation at either end (soft actor-critic, appendix C)."""
    return 2 * (math.log(2) - u - jax.nn.softplus(-2 * u))


@pytree
class TanhNormal:
    """tanh of independent normals: actions in (-1, 1)."""

    mean: jax.Array  # (..., A), before tanh
    log_std: jax.Array  # broadcasts to mean

    @property
    def base(self) -> Normal:
        """The distribution before tanh."""
        return Normal(self.mean, self.log_std)

    def sample(self, key: Key[Array, ""]) -> Float[Array, "... A"]:
        """Draw an action; it can round to -1 or 1."""
        return jnp.tanh(self.base.sample(key))

    def mode(self) -> Float[Array, "... A"]:
        """tanh(mean): the median, by convention the greedy action. (The density may peak near -1 and 1 instead.)"""
        return jnp.tanh(self.mean)

    def log_prob(self, x: Float[Array, "... A"]) -> Float[Array, "..."]:
        """Log-density of `x`. Actions that round to +-1 count as the nearest inside; prefer sample_and_log_prob."""
        edge = 1 - float(jnp.finfo(x.dtype).epsneg)
        u = jnp.arctanh(jnp.clip(x, -edge, edge))
        return self.base.log_prob(u) - jnp.sum(_log_det_tanh(u), -1)

    def entropy(self) -> Float[Array, "..."]:
        """Differential entropy, nats, by 32-point Gauss-Hermite quadrature.

        There is no closed form. Absolute error per dimension: 1e-6 for std up to 1, 2e-4 at std 2, 0.07 at std 7.
        """
        nodes, weights = (jnp.asarray(x, self.mean.dtype) for x in (_NODES, _WEIGHTS / _WEIGHTS.sum()))
        u = self.mean[..., None] + jnp.exp(self.log_std)[..., None] * nodes
        return self.base.entropy() + jnp.sum(_log_det_tanh(u) * weights, (-2, -1))

    def sample_and_log_prob(self, key: Key[Array, ""]) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        """A draw and its log-density, computed before tanh: exact where the action rounds to +-1."""
        u, log_prob = self.base.sample_and_log_prob(key)
        return jnp.tanh(u), log_prob - jnp.sum(_log_det_tanh(u), -1)

    def kl(self, other: TanhNormal) -> Float[Array, "..."]:
        """KL(self || other), nats: that of the normals, which a bijection such as tanh does not change."""
        return self.base.kl(other.base)


@pytree
class Beta:
    """Independent Beta variables on [0, 1] (Chou et al. 2017; there alpha, beta > 1, so that there is one peak inside).

    In float32 log_prob is accurate to 2e-4 and entropy to 2e-3 for concentrations up to 1,000.
    """

    alpha: jax.Array  # (..., A), positive
    beta: jax.Array  # (..., A), positive

    def _inside(self, x: Array) -> Array:
        info = jnp.finfo(x.dtype)
        return jnp.clip(x, info.tiny, 1 - float(info.epsneg))

    def sample(self, key: Key[Array, ""]) -> Float[Array, "... A"]:
        """Draw a value strictly between 0 and 1."""
        return self._inside(jax.random.beta(key, self.alpha, self.beta, dtype=self.alpha.dtype))

    def mode(self) -> Float[Array, "... A"]:
        """The mode where alpha, beta > 1; else the mean, as the density then peaks at 0 or 1 or nowhere."""
        peaked = (self.alpha > 1) & (self.beta > 1)
        shift = peaked.astype(self.alpha.dtype)
        return (self.alpha - shift) / (self.alpha + self.beta - 2 * shift)

    def log_prob(self, x: Float[Array, "... A"]) -> Float[Array, "..."]:
        """Log-density of `x`; at 0 and 1 that of the nearest value inside."""
        x = self._inside(x)
        kernel = (self.alpha - 1) * jnp.log(x) + (self.beta - 1) * jnp.log1p(-x)
        return jnp.sum(kernel - betaln(self.alpha, self.beta), -1)

    def entropy(self) -> Float[Array, "..."]:
        """Differential entropy, nats."""
        a, b = self.alpha, self.beta
        return jnp.sum(
            betaln(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b),
            -1,
        )

    def sample_and_log_prob(self, key: Key[Array, ""]) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        """A draw and its log-density."""
        x = self.sample(key)
        return x, self.log_prob(x)

    def kl(self, other: Beta) -> Float[Array, "..."]:
        """KL(self || other), nats."""
        a, b, c, d = self.alpha, self.beta, other.alpha, other.beta
        digammas = (a - c) * digamma(a) + (b - d) * digamma(b) + (c + d - a - b) * digamma(a + b)
        return jnp.sum(betaln(c, d) - betaln(a, b) + digammas, -1)


Distribution = Categorical | MultiCategorical | Normal | TanhNormal | Beta


def num_outputs(space: Space) -> int:
    """The number of outputs of a policy for an action space: logits, or the means of a Box.

    Raises ValueError for other spaces than Discrete, MultiDiscrete and one-dimensional Box.
    """
    if isinstance(space, Discrete):
        return space.n
    if isinstance(space, MultiDiscrete):
        return sum(space.nvec)
    if isinstance(space, Box) and len(space.shape) == 1:
        return space.shape[0]
    raise ValueError(f"{space} is no Discrete, MultiDiscrete or one-dimensional Box space.")


def of_space(
    space: Space, outputs: Any, action_mask: Bool[Array, "..."] | None = None
) -> Categorical | MultiCategorical | Normal:
    """The action distribution of a network's outputs: logits or, for a Box, `(mean, log_std)` in units of the box."""
    if isinstance(space, Box):
        mean, log_std = outputs  # a state-independent log_std is broadcast to the mean's axes
        return Normal(mean, jnp.broadcast_to(log_std, mean.shape))
    logits = outputs if action_mask is None else mask_logits(outputs, action_mask)
    return MultiCategorical(logits, space.nvec) if isinstance(space, MultiDiscrete) else Categorical(logits)
