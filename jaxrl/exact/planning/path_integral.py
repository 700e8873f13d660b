"""MPPI: model-predictive path integral control."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.environment import Environment, pytree
from jaxrl.exact.planning.noise import colored_noise, whitened
from jaxrl.exact.planning.planner import Carry, Planner, TerminalValue, check_at_least_one, model_of, shifted
from jaxrl.math import precise
from jaxrl.spaces import Box


@dataclasses.dataclass(frozen=True)
class MPPIConfig:
    """Static settings: each value compiles its own program."""

    horizon: int = 40  # steps ahead
    num_samples: int = 256  # plans tried an iteration
    num_iterations: int = 1  # a decision
    standardize: bool = True  # the temperature is in standard deviations of the samples' returns; else in their units

    def __post_init__(self) -> None:
        check_at_least_one(self)


@pytree
class MPPIHyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    temperature: jax.Array = 0.1  # lambda: low follows the best sample, high averages all
    std: jax.Array = 0.5  # of the noise, in units of the box
    beta: jax.Array = 0.5  # its color: 0 white
    alpha: jax.Array = 1.0  # the paper's: 1 - alpha weighs the cost of leaving the uncontrolled distribution
    gamma: jax.Array = 1.0  # discount


def mppi_weights(values: Float[Array, " K"], temperature: Float[Array, ""] | float) -> Float[Array, " K"]:
    """exp(value / temperature), normalised (Williams et al. 2017, eq. 22 and algorithm 2; a value is minus a cost)."""
    return jax.nn.softmax(values / temperature)


def standardized(values: Float[Array, " K"]) -> Float[Array, " K"]:
    """Zero mean and unit standard deviation; differences that are mere rounding stay small."""
    centred = values - jnp.mean(values)
    rounding = 16 * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values))
    return centred / jnp.maximum(jnp.sqrt(jnp.mean(centred**2)), jnp.maximum(rounding, jnp.finfo(values.dtype).tiny))


@functools.cache
def mppi(env: Environment, config: MPPIConfig = MPPIConfig(), terminal_value: TerminalValue | None = None) -> Planner:
    """Model-predictive path integral control (Williams et al. 2017, "Information theoretic MPC", algorithm 2).

    Samples are the plan plus normal noise; the plan moves to their average with the weights of `mppi_weights`.
    Deviations: noise may be colored (beta > 0); a sample is clipped to the box before its noise is weighted, so plans
    stay inside; the temperature is relative to the spread of returns unless `standardize=False`; no smoothing filter.

    Raises ValueError for action spaces other than Box, and for several agents.
    """
    model = model_of("mppi", env, terminal_value, Box)

    @precise
    def plan(key: Array, carry: Carry, state: Any, params: Any) -> tuple[Any, Carry]:
        hyper = carry.hyper
        low, high = model.scale(params)[2:]

        def improve(plan, key):
            noise_key, model_key = jax.random.split(key)
            noise = colored_noise(noise_key, (config.num_samples, *plan.shape), hyper.beta)
            samples = jnp.clip(plan + hyper.std * noise, low, high)
            values = model.values(model_key, state, samples, params, hyper.gamma)
            scores = standardized(values) if config.standardize else values
            # lambda (1 - alpha) u' Sigma^-1 epsilon of each sample.
            there, plan_white = whitened(samples - plan, hyper.beta), whitened(plan, hyper.beta)
            away = jnp.sum(plan_white * there, (1, 2)) / hyper.std**2
            scores = scores - hyper.temperature * (1 - hyper.alpha) * away
            weights = mppi_weights(scores, hyper.temperature)
            return jnp.tensordot(weights, samples, 1), weights @ values

        best, values = jax.lax.scan(improve, carry.plan, jax.random.split(key, config.num_iterations))
        return model.action(best[0], params), carry.replace(plan=shifted(best), value=values[-1])

    init = functools.partial(model.init, config.horizon, MPPIHyper, {"temperature": "positive", "std": "positive"})
    return Planner("mppi", env, config, MPPIHyper, init, plan)
