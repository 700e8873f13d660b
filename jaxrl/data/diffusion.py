"""Synthetic experience: a diffusion model of a dataset's transitions, from which new ones are sampled.

Lu, Ball, Teh and Parker-Holder (2023), "Synthetic experience replay" (SynthER). A transition is one standardised
vector: observation, action, reward, next observation and, where the dataset has both terminal and other transitions,
`terminated`. The model is that of Karras, Aittala, Aila and Laine (2022),
"Elucidating the design space of diffusion-based generative models" (EDM): a denoiser

    D(x; sigma) = c_skip x + c_out F(c_in x, c_noise)

is trained on data with added normal noise, whose standard deviation sigma is log-normally distributed. Samples follow
the probability flow from pure noise to none by Heun's second-order steps; a little noise is added before each (churn).
Rows can be conditioned on other rows: a `fit` of actions given observations is a behaviour policy with several modes.

Deviations from the authors' code: `terminated` is standardised, too; the network has 128 units and 3 residual blocks by
default, theirs 1,024 or 2,048 and 6; the decay of the average weights begins at (1 + t) / (10 + t), so that short
trainings can use the average.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key

from jaxrl.algorithm import check_at_least_one
from jaxrl.data.datasets import Dataset
from jaxrl.math import fast_key
from jaxrl.nn.networks import Dense, orthogonal
from jaxrl.nn.optim import optimizer_of, polyak

SIGMA_DATA = 1.0  # deviation of standardised data
CHUNK = 4096  # rows drawn together: their activations stay in a CPU's cache
Denoiser = Callable[[Float[Array, "B D"], Float[Array, " B"]], Float[Array, "B D"]]


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings. Defaults are the authors', unless the docstring of this file says otherwise."""

    num_updates: int = 100_000  # gradient steps
    batch_size: int = 256
    learning_rate: float = 3e-4  # initial; cosine decay to zero
    width: int = 128  # of the denoiser
    num_blocks: int = 3  # residual blocks of the denoiser
    num_frequencies: int = 16  # of the Fourier features of the noise level
    ema: float = 0.995  # decay of the average weights, every `ema_every` gradient steps
    ema_every: int = 10
    log_sigma_mean: float = -1.2  # of the noise level in training
    log_sigma_std: float = 1.2
    num_steps: int = 128  # Heun steps of a sample
    sigma_min: float = 0.002
    sigma_max: float = 80.0
    rho: float = 7.0  # above 1: shorter steps at lower noise levels
    churn: float = 80.0  # noise added over all steps; 0: samples are a function of the initial noise
    churn_min: float = 0.05  # range of noise levels at which it is added
    churn_max: float = 50.0
    churn_noise: float = 1.003  # factor of added noise; above 1, as denoisers remove too much

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_updates", "batch_size", "width", "num_frequencies", "ema_every")
        if self.num_steps < 2:
            raise ValueError(f"num_steps={self.num_steps}: it must be at least 2.")
        if not 0 < self.sigma_min < self.sigma_max:
            raise ValueError(
                f"sigma_min={self.sigma_min}, sigma_max={self.sigma_max}: it must be 0 < sigma_min < sigma_max."
            )


# ---- EDM, as functions


def preconditioning(sigma: Float[Array, "..."]) -> tuple[Array, Array, Array, Array]:
    """`c_skip, c_out, c_in, c_noise` (Karras et al. 2022, table 1): the network's input and target have variance 1."""
    total = sigma**2 + SIGMA_DATA**2
    root = jnp.sqrt(total)
    return SIGMA_DATA**2 / total, sigma * SIGMA_DATA / root, 1 / root, jnp.log(sigma) / 4


def loss_weight(sigma: Float[Array, "..."]) -> Float[Array, "..."]:
    """(sigma^2 + sigma_data^2) / (sigma sigma_data)^2 (the same table): one over c_out's square."""
    return (sigma**2 + SIGMA_DATA**2) / (sigma * SIGMA_DATA) ** 2


def denoising_loss(
    denoise: Denoiser,
    x: Float[Array, "B D"],
    noise: Float[Array, "B D"],
    sigma: Float[Array, " B"],
) -> Float[Array, ""]:
    """mean loss_weight(sigma) (D(x + sigma noise; sigma) - x)^2 (equation 2 with the weights of the loss)."""
    error = denoise(x + sigma[:, None] * noise, sigma) - x
    return jnp.mean(loss_weight(sigma)[:, None] * error**2)


def noise_levels(config: Config) -> Float[np.ndarray, " levels"]:
    """From `sigma_max` to `sigma_min`, equally spaced in their `rho`-th roots, then 0 (equation 5)."""
    high, low = config.sigma_max ** (1 / config.rho), config.sigma_min ** (1 / config.rho)
    return np.append(np.linspace(high, low, config.num_steps) ** config.rho, 0.0)


def heun(
    denoise: Denoiser, x: Float[Array, "B D"], sigma: Array | float, sigma_next: Array | float
) -> Float[Array, "B D"]:
    """A second-order step from one noise level to a lower one, to zero a step of first order (algorithm 1)."""

    def slope(x, sigma):
        return (x - denoise(x, jnp.full(x.shape[:1], sigma, x.dtype))) / sigma

    first = slope(x, sigma)
    euler = x + (sigma_next - sigma) * first
    second = slope(euler, jnp.where(sigma_next > 0, sigma_next, sigma))
    return jnp.where(sigma_next > 0, x + (sigma_next - sigma) * (first + second) / 2, euler)


def draw(
    key: Key[Array, ""], denoise: Denoiser, shape: tuple[int, int], config: Config = Config()
) -> Float[Array, "B D"]:
    """Samples (B, D) of the distribution whose denoiser it is (algorithm 2)."""
    levels = noise_levels(config)
    most = min(config.churn / config.num_steps, math.sqrt(2) - 1)
    churned = (levels[:-1] >= config.churn_min) & (levels[:-1] <= config.churn_max)
    raised = levels[:-1] * np.where(churned, 1 + most, 1)
    added = config.churn_noise * np.sqrt(raised**2 - levels[:-1] ** 2)
    key, first_key = jax.random.split(fast_key(key))

    def step(x, inputs):
        key, added, sigma, sigma_next = inputs
        x = x + added * jax.random.normal(key, shape)
        return heun(denoise, x, sigma, sigma_next), None

    numbers = (jnp.asarray(x, jnp.result_type(float)) for x in (added, raised, levels[1:]))
    keys = jax.random.split(key, config.num_steps)
    return jax.lax.scan(step, config.sigma_max * jax.random.normal(first_key, shape), (keys, *numbers))[0]


# ---- a model of rows


class Network(nn.Module):
    """F: a residual network of x, the condition `given`, and random Fourier features of the noise level."""

    width: int
    num_blocks: int
    num_frequencies: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "B D"], c_noise: Float[Array, " B"], given: Float[Array, "B C"] | None = None
    ) -> Float[Array, "B D"]:
        size, dense = x.shape[-1], functools.partial(Dense, kernel_init=orthogonal())
        frequencies = 2 * math.pi * np.random.default_rng(0).normal(size=self.num_frequencies).astype(np.float32)
        angle = c_noise[:, None] * frequencies
        level = jnp.concatenate([c_noise[:, None], jnp.sin(angle), jnp.cos(angle)], -1).astype(x.dtype)
        level = dense(self.width)(nn.silu(dense(self.width)(level)))
        x = dense(self.width)(x if given is None else jnp.concatenate([x, given], -1)) + level
        for _ in range(self.num_blocks):
            x = x + dense(self.width)(nn.relu(x))
        return Dense(size, kernel_init=nn.initializers.zeros)(nn.relu(x))


def denoiser(config: Config, weights: Any, given: Float[Array, "B C"] | None = None) -> Denoiser:
    """D of a network's weights, conditioned on `given` where `fit` was."""
    network = Network(config.width, config.num_blocks, config.num_frequencies)

    def denoise(x, sigma):
        c_skip, c_out, c_in, c_noise = (c[:, None] for c in preconditioning(sigma))
        return c_skip * x + c_out * network.apply(weights, c_in * x, c_noise[:, 0], given)

    return denoise


def fit(
    key: Key[Array, ""],
    rows: Float[Array, "n D"],
    config: Config = Config(),
    given: Float[Array, "n C"] | None = None,
) -> tuple[Any, Float[Array, ""]]:
    """`(weights, loss)`: average weights of a denoiser of standardised rows, and the loss over the last tenth.

    Args:
        given: the condition of each row, standardised, too; `draw(key, denoiser(config, weights, given), ...)` then
            draws one row for each row of `given`.
    """
    key, init_key = jax.random.split(key)
    n, size, batch = *rows.shape, config.batch_size
    network = Network(config.width, config.num_blocks, config.num_frequencies)
    first = jnp.zeros((1, size), rows.dtype), jnp.zeros(1, rows.dtype), None if given is None else given[:1]
    flat, unravel = ravel_pytree(network.init(init_key, *first))
    adam = optimizer_of("adam")

    def step(carry, inputs):
        flat, average, state = carry
        key, t = inputs
        row_key, noise_key = jax.random.split(key)
        row = jax.random.randint(row_key, (batch,), 0, n)
        x, of = rows[row], None if given is None else given[row]
        normals = jax.random.normal(noise_key, (batch, 1 + size), x.dtype)  # of the levels and of the noise
        sigma = jnp.exp(config.log_sigma_mean + config.log_sigma_std * normals[:, 0])

        def loss(weights):
            return denoising_loss(denoiser(config, weights, of), x, normals[:, 1:], sigma)

        value, grads = jax.value_and_grad(loss)(unravel(flat))
        rate = config.learning_rate * (1 + jnp.cos(jnp.pi * t / config.num_updates)) / 2
        flat, state, _ = adam.descend(flat, state, grads, rate)
        times = t // config.ema_every
        forget = 1 - jnp.minimum(config.ema, (1 + times) / (10 + times))
        average = polyak(average, flat, jnp.where(t % config.ema_every == 0, forget, 0))
        return (flat, average, state), value

    keys = jax.random.split(fast_key(key), config.num_updates)
    carry = flat, flat, adam.init(unravel(flat), config.learning_rate)
    (_, average, _), losses = jax.lax.scan(step, carry, (keys, jnp.arange(config.num_updates)))
    return unravel(average), jnp.mean(losses[-max(1, config.num_updates // 10) :])


def rows_like(
    key: Key[Array, ""], rows: Float[Array, "n D"], num: int, config: Config = Config()
) -> tuple[Float[Array, "{num} D"], Float[Array, ""]]:
    """`(new rows, loss)` of a model fitted to `rows`. Pure: jit it, and vmap it over seeds or datasets of one size."""
    fit_key, draw_key = jax.random.split(key)
    mean, std = jnp.mean(rows, 0), jnp.std(rows, 0)
    std = jnp.where(std > 1e-6, std, 1)  # a constant column keeps its value, up to the remaining noise
    weights, loss = fit(fit_key, (rows - mean) / std, config)
    chunk = min(num, CHUNK)
    keys = jax.random.split(draw_key, -(-num // chunk))
    found = jax.lax.map(lambda key: draw(key, denoiser(config, weights), (chunk, rows.shape[1]), config), keys)
    return found.reshape(-1, rows.shape[1])[:num] * std + mean, loss


# ---- transitions as rows


def to_rows(dataset: Dataset) -> Float[np.ndarray, "n D"]:
    """Observation, action, reward, next observation, and `terminated` as 0 or 1 where the data has both.

    Raises ValueError for observations or actions that are not vectors of floats.
    """
    for name, x in (("observations", dataset.obs), ("actions", dataset.action)):
        if not hasattr(x, "dtype") or not jnp.issubdtype(x.dtype, jnp.floating) or x.ndim != 2:
            kind = f"{x.dtype}{tuple(x.shape)}" if hasattr(x, "dtype") else type(x).__name__
            raise ValueError(f"a diffusion model of {name} of kind {kind}: they must be floats (n, size).")
    columns = [dataset.obs, dataset.action, np.asarray(dataset.reward)[:, None], dataset.next_obs]
    if _has_both(dataset):
        columns.append(np.asarray(dataset.terminated)[:, None])
    return np.concatenate([np.asarray(x, np.float32) for x in columns], 1)


def of_rows(rows: Float[Array, "m D"] | Float[np.ndarray, "m D"], like: Dataset) -> Dataset:
    """The dataset of rows in the format of `to_rows(like)`; every transition is an episode of one step."""
    sizes = like.obs.shape[1], like.action.shape[1], 1, like.next_obs.shape[1]
    parts: list[Any] = np.split(np.asarray(rows), np.cumsum(sizes), 1)
    obs, action, reward, next_obs, ended = parts
    always = np.asarray(like.terminated)[:1].repeat(len(rows))
    terminated: Any = ended[:, 0] > 0.5 if _has_both(like) else always
    last: Any = np.ones(len(rows), bool)
    return Dataset(obs, action, reward[:, 0], terminated, last, next_obs)


def _has_both(dataset: Dataset) -> bool:
    ended = np.asarray(dataset.terminated)
    return bool(ended.any() and not ended.all())


def synthesise(key: Key[Array, ""], dataset: Dataset, num: int, config: Config = Config()) -> Dataset:
    """`num` new transitions, sampled from a model fitted to the dataset's; each is an episode of one step.

    Actions may leave the box a little; `datasets.stored` clips them. As returns of episodes are unknown, the result is
    of no use to learners that need them (Cal-QL, weights of episodes). Raises ValueError for `num` below 1 and for
    observations or actions that are not vectors of floats.
    """
    if num < 1:
        raise ValueError(f"num={num}: it must be at least 1.")
    rows = jnp.asarray(to_rows(dataset))
    return of_rows(jax.jit(rows_like, static_argnums=(2, 3))(key, rows, num, config)[0], dataset)
