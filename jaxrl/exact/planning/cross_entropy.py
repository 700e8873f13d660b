"""CEM: the cross-entropy method."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.environment import Environment, pytree
from jaxrl.exact.planning.noise import colored_noise
from jaxrl.exact.planning.planner import Carry, Planner, TerminalValue, check_at_least_one, model_of, shifted
from jaxrl.spaces import Box, Discrete


@dataclasses.dataclass(frozen=True)
class CEMConfig:
    """Static settings: each value compiles its own program."""

    horizon: int = 50  # steps ahead
    num_samples: int = 128  # plans tried an iteration
    num_elites: int = 16  # of them that the next distribution is fitted to
    num_iterations: int = 3  # a decision

    def __post_init__(self) -> None:
        check_at_least_one(self)
        if self.num_elites > self.num_samples:
            raise ValueError(
                f"num_elites={self.num_elites} of num_samples={self.num_samples}: at most all of them, usually a tenth."
            )


@pytree
class CEMHyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    std: jax.Array = 0.5  # at the start of a decision, in units of the box
    min_std: jax.Array = 0.05  # it never falls below
    smoothing: jax.Array = 0.1  # share of the old distribution that is kept in an iteration
    beta: jax.Array = 1.0  # the noise's color: 0 white
    exploration: jax.Array = 0.5  # Discrete: share of uniform probability mixed in at the start of a decision
    gamma: jax.Array = 1.0  # discount


def elites(
    values: Float[Array, " K"], plans: Float[Array, "K H A"], k: int
) -> tuple[Float[Array, " k"], Float[Array, "k H A"]]:
    """The `k` best plans and their values, the best first."""
    values, best = jax.lax.top_k(values, k)
    return values, plans[best]


@functools.cache
def cem(env: Environment, config: CEMConfig = CEMConfig(), terminal_value: TerminalValue | None = None) -> Planner:
    """The cross-entropy method (Rubinstein 1999; de Boer et al. 2005) with the colored noise of iCEM.

    Independent normals, in a Discrete space categoricals, are fitted to the best samples and smoothed; the action is
    the mean of the first, or its most probable one. Action masks are not read: the environment treats what is
    forbidden as it does.

    Raises ValueError for action spaces other than Box and Discrete, and for several agents.
    """
    model = model_of("cem", env, terminal_value, Box, Discrete)
    discrete = isinstance(model.space, Discrete)

    def sample(key, mean, std, hyper, params):
        if discrete:
            logits = jnp.log(jnp.maximum(mean, 1e-12))
            shape = (config.num_samples, config.horizon)
            return jax.nn.one_hot(jax.random.categorical(key, logits, shape=shape), model.size, dtype=mean.dtype)
        low, high = model.scale(params)[2:]
        noise = colored_noise(key, (config.num_samples, *mean.shape), hyper.beta)
        return jnp.clip(mean + std * noise, low, high)

    def plan(key: Array, carry: Carry, state: Any, params: Any) -> tuple[Any, Carry]:
        hyper = carry.hyper

        def improve(fit, key):
            mean, std = fit
            sample_key, model_key = jax.random.split(key)
            samples = sample(sample_key, mean, std, hyper, params)
            values = model.values(model_key, state, samples, params, hyper.gamma)
            values, best = elites(values, samples, config.num_elites)
            keep = hyper.smoothing
            mean = keep * mean + (1 - keep) * jnp.mean(best, 0)
            std = jnp.maximum(keep * std + (1 - keep) * jnp.std(best, 0), hyper.min_std)
            return (mean, std), jnp.mean(values)

        mean = carry.plan
        if discrete:
            mean = (1 - hyper.exploration) * mean + hyper.exploration / model.size
        start = (mean, jnp.broadcast_to(hyper.std, mean.shape))
        (mean, _), values = jax.lax.scan(improve, start, jax.random.split(key, config.num_iterations))
        return model.action(mean[0], params), carry.replace(plan=shifted(mean), value=values[-1])

    share = "at least 0 and at most 1"
    ranges = {"std": "positive", "smoothing": share, "exploration": share}
    init = functools.partial(model.init, config.horizon, CEMHyper, ranges)
    return Planner("cem", env, config, CEMHyper, init, plan)
