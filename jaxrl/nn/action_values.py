"""Networks of action values (dueling heads, noisy layers), and greedy and epsilon-greedy actions."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrl.math import fence
from jaxrl.nn.distributions import Categorical, mask_logits
from jaxrl.nn.networks import MLP, Encoder, activation_function
from jaxrl.spaces import Discrete, Space


class NoisyDense(nn.Module):
    """A dense layer with factorised Gaussian noise on weights and bias (Fortunato et al. 2018, eq. 9 to 11).

    The noise is drawn with the rng "noise" of `apply`; without that rng the layer uses the mean weights.
    """

    features: int
    sigma: float = 0.5  # initial standard deviation times the square root of the number of inputs

    @nn.compact
    def __call__(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch out"]:
        bound = x.shape[-1] ** -0.5

        def uniform(key, shape):
            return jax.random.uniform(key, shape, minval=-bound, maxval=bound)

        shapes = {"kernel": (x.shape[-1], self.features), "bias": (self.features,)}
        mean = {name: self.param(name, uniform, shape) for name, shape in shapes.items()}
        spread = nn.initializers.constant(self.sigma * bound)
        scale = {name: self.param(f"{name}_sigma", spread, shape) for name, shape in shapes.items()}
        out = x @ mean["kernel"] + mean["bias"]
        if not self.has_rng("noise"):
            return out
        noise = jax.random.normal(self.make_rng("noise"), (sum(shapes["kernel"]),), x.dtype)
        # Without the fence XLA draws the noise again for every element of the products: Rainbow takes 5 times as long.
        noise = fence(jnp.sign(noise) * jnp.sqrt(jnp.abs(noise)))
        before, after = noise[: x.shape[-1]], noise[x.shape[-1] :]
        # Kernel noise is an outer product, so it is applied to inputs and outputs, without a noisy matrix.
        return out + ((x * before) @ scale["kernel"] + scale["bias"]) * after


class QNetwork(nn.Module):
    """A network from observations (..., *) to values (..., n) of n actions, or to outputs (..., n, num_outputs)."""

    observation_space: Space
    num_actions: int
    hidden: tuple[int, ...]
    activation: str
    dueling: bool
    num_outputs: int = 1
    noisy: bool = False
    conv: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, obs: Any) -> Float[Array, "... n"]:
        # Both streams of a dueling head are linear in the last hidden layer: one matrix.
        rows = self.num_actions + self.dueling
        x = Encoder(self.observation_space, self.conv, self.activation)(obs)
        if self.noisy:
            for width in self.hidden:
                x = activation_function(self.activation)(NoisyDense(width)(x))
                self.sow("intermediates", "active", jnp.mean(x > 0))
            out = NoisyDense(rows * self.num_outputs)(x)
        else:
            out = MLP(self.hidden, rows * self.num_outputs, self.activation)(x)
        if self.num_outputs == 1:
            return dueling_values(out[..., 0], out[..., 1:]) if self.dueling else out
        out = out.reshape(*out.shape[:-1], rows, self.num_outputs)
        return jax.vmap(dueling_values, -1, -1)(out[..., 0, :], out[..., 1:, :]) if self.dueling else out


def dueling_values(value: Float[Array, "*batch"], advantage: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """Action values of a state value and advantages; their mean is the value (Wang et al. 2016, eq. 9)."""
    return value[..., None] + advantage - jnp.mean(advantage, -1, keepdims=True)


def epsilon_at(step: Int[Array, ""], hyper: Any) -> Float[Array, ""]:
    """The probability of a random action at environment step `step`.

    From `hyper.epsilon_start` to `epsilon_end`, linear over `exploration_steps`.
    """
    done = jnp.where(hyper.exploration_steps > 0, step / jnp.maximum(hyper.exploration_steps, 1), 1)
    start, end = hyper.epsilon_start, hyper.epsilon_end
    return start + jnp.clip(done, 0, 1).astype(start.dtype) * (end - start)


def epsilon_greedy(
    q: Float[Array, "*batch n"], epsilon: Float[Array, ""] | float, action_mask: Bool[Array, "*batch n"] | None = None
) -> Categorical:
    """The best allowed action with probability 1 - epsilon, else a uniformly drawn allowed one."""
    mask = jnp.ones(q.shape, bool) if action_mask is None else action_mask
    best = jax.nn.one_hot(best_action(q, action_mask), q.shape[-1], dtype=q.dtype)
    probability = (1 - epsilon) * best + epsilon * mask / jnp.sum(mask, -1, keepdims=True)
    return Categorical(mask_logits(jnp.log(probability), probability > 0))


def best_action(
    q: Float[Array, "*batch n"], action_mask: Bool[Array, "*batch n"] | None = None
) -> Int[Array, "*batch"]:
    """The allowed action with the largest value, the first one of a tie."""
    q = q if action_mask is None else jnp.where(action_mask, q, -jnp.inf)
    return jnp.argmax(q, -1).astype(jnp.int32)


def best_value(
    q: Float[Array, "*batch n"], action_mask: Bool[Array, "*batch n"] | None = None
) -> Float[Array, "*batch"]:
    """The largest value of the allowed actions."""
    return value_of(q, best_action(q, action_mask))


def value_of(q: Float[Array, "*batch n"], action: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
    """The entry of `q` that belongs to `action`."""
    # A one-hot select fuses with what comes before where a gather (and the scatter that is its gradient) would not.
    return jnp.sum(jnp.where(jnp.arange(q.shape[-1]) == action[..., None], q, 0), -1)


def outputs_of(outputs: Float[Array, "..."], action: Int[Array, "*batch"]) -> Float[Array, "..."]:
    """The outputs (*batch) or (*batch, m) of `action`, from `outputs` (*batch, n) or (*batch, n, m) of all actions."""
    each = value_of if outputs.ndim == action.ndim + 1 else jax.vmap(value_of, (-1, None), -1)
    return each(outputs, action)


def check_shape(shape: tuple[int, ...], needed: tuple[int, ...]) -> None:
    """Raise ValueError unless a network gives values (or outputs) of the shape `needed`, (N, n, ...)."""
    if shape != needed:
        raise ValueError(
            f"network gives values {shape} for {needed[0]} observations; {Discrete(needed[1])} needs {needed}."
        )
