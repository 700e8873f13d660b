"""A learned dynamics model: an ensemble of networks, each of which predicts a normal distribution of the next step.

Chua, Calandra, McAllister and Levine (2018), "Deep reinforcement learning in a handful of trials using probabilistic
dynamics models", as MBPO and MOPO use it. Each network predicts mean and variance of `(next_obs - obs, reward)` from
`(obs, action)`. Its loss, on batches that are drawn for each network separately, is the negative log-likelihood

    mean_B sum_d ((y_d - mean_d)^2 exp(-v_d) + v_d) + bound_coef sum_d (high_d - low_d)

where v is the logarithm of the variance, softly bounded by `low` and `high`, which are learned, too. A share of the
dataset is held out. Each network keeps the weights that had the least error there, and the best networks, the elites,
make up the ensemble.

Deviations: targets are normalised as inputs are, so that rewards and observations of any scale have the same weight
(predictions and uncertainties are in the task's units); each network keeps its best weights, where MBPO stops all at
once; only elites are kept. Observations must be flat.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from jaxrl.data.datasets import Dataset, with_successors
from jaxrl.environment import pytree
from jaxrl.math import fast_key
from jaxrl.nn.networks import MLP
from jaxrl.off_policy.imagination import Model, Prediction


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_members: int = 7
    num_elites: int = 5
    hidden: tuple[int, ...] = (200, 200, 200, 200)
    activation: str = "silu"
    num_checks: int = 100  # evaluations of the held-out error
    num_updates: int = 500  # gradient steps before each evaluation
    batch_size: int = 256  # of each member
    validation_share: float = 0.2  # of the steps, held out

    def __post_init__(self) -> None:
        for name in ("num_members", "num_elites", "num_checks", "num_updates", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: it must be at least 1.")
        if self.num_elites > self.num_members:
            raise ValueError(f"num_elites={self.num_elites}: there are num_members={self.num_members}.")
        if not 0 < self.validation_share < 1:
            raise ValueError(f"validation_share={self.validation_share}: it must be above 0 and below 1.")


@pytree
class Hyper:
    """Dynamic settings."""

    learning_rate: jax.Array = 1e-3
    weight_decay: jax.Array = 2.5e-5  # of AdamW
    bound_coef: jax.Array = 0.01  # weight of the distance between the variance's bounds in the loss


@pytree
class Scale:
    mean: jax.Array
    std: jax.Array

    def to_unit(self, x: Array) -> Array:
        return (x - self.mean) / self.std


@pytree(static=("hidden", "activation"))
class Ensemble:
    """The model that `fit` returns; leading axis E of the elites, D the numbers of an observation and the reward."""

    weights: Any
    low: jax.Array  # (E, D), of the logarithm of the variance
    high: jax.Array
    inputs: Scale
    targets: Scale
    hidden: tuple[int, ...]
    activation: str


def bounded(
    x: Float[Array, "*#batch D"], low: Float[Array, "*#batch D"], high: Float[Array, "*#batch D"]
) -> Float[Array, "*batch D"]:
    """x, softly bounded by low and high (Chua et al. 2018, appendix A.1)."""
    x = high - jax.nn.softplus(high - x)
    return low + jax.nn.softplus(x - low)


def likelihood_loss(
    mean: Float[Array, "K B D"], log_var: Float[Array, "K B D"], target: Float[Array, "K B D"]
) -> Float[Array, ""]:
    """Twice the negative log-likelihood up to a constant: a mean over steps, a sum over members."""
    return jnp.sum(jnp.mean(jnp.sum((target - mean) ** 2 * jnp.exp(-log_var) + log_var, -1), -1))


def _network(hidden: tuple[int, ...], activation: str, size: int) -> MLP:
    return MLP(hidden, 2 * size, activation)


def _apply(network: MLP, weights: Any, x: Float[Array, "K B I"]) -> tuple[Array, Array]:
    """Mean and unbounded log-variance, (K, B, D) each, of members on separate inputs."""
    out: Any = jax.vmap(network.apply)(weights, x)
    mean, log_var = jnp.split(out, 2, -1)
    return mean, log_var


def check_vectors(dataset: Dataset) -> None:
    """Raise ValueError unless observations and actions are one vector of numbers for each step."""
    if len(getattr(dataset.obs, "shape", ())) != 2:
        shapes = jax.tree.map(lambda x: x.shape, dataset.obs)
        raise ValueError(f"observations of shape {shapes}: a model of dynamics takes flat ones, (steps, numbers).")
    if jnp.ndim(dataset.action) != 2 or not jnp.issubdtype(dataset.action.dtype, jnp.floating):
        kind = f"{dataset.action.dtype}{jnp.shape(dataset.action)}"
        raise ValueError(f"actions {kind}: a model of dynamics takes vectors, (steps, numbers).")


def fit(
    key: Key[Array, ""], dataset: Dataset, config: Config = Config(), hyper: Hyper | None = None
) -> tuple[Ensemble, Float[Array, "checks K"]]:
    """`(ensemble, mean squared error on the held-out steps, normalised, at each check)`.

    Raises ValueError as `check_vectors` does, and for fewer than two steps.
    """
    check_vectors(dataset)
    dataset = with_successors(dataset)
    if dataset.size < 2:
        raise ValueError(f"a dataset of {dataset.size} steps: at least 2 are needed, to learn from and to hold out.")
    return _fit(key, jax.tree.map(jnp.asarray, dataset), hyper or Hyper(), config)


@functools.partial(jax.jit, static_argnames="config")
def _fit(key: Array, data: Dataset, hyper: Hyper, config: Config) -> tuple[Ensemble, Array]:
    members, size = config.num_members, data.size
    split_key, init_key, steps_key = jax.random.split(key, 3)
    x = jnp.concatenate([data.obs, data.action], -1)
    y = jnp.concatenate([data.next_obs - data.obs, data.reward[:, None]], -1)
    order = jax.random.permutation(split_key, size)
    held = min(max(1, round(config.validation_share * size)), size - 1)
    inputs, targets = (_scale(z[order[held:]]) for z in (x, y))
    x, y = inputs.to_unit(x)[order], targets.to_unit(y)[order]

    network = _network(config.hidden, config.activation, y.shape[-1])
    nets = jax.vmap(lambda key: network.init(key, x[0]))(jax.random.split(init_key, members))
    nets = {"params": nets["params"]}
    bound = jnp.ones((members, y.shape[-1]))
    weights = {"nets": nets, "low": -10.0 * bound, "high": 0.5 * bound}
    decayed = {"nets": True, "low": False, "high": False}
    optimizer = optax.adamw(hyper.learning_rate, weight_decay=hyper.weight_decay, mask=decayed)

    def loss(weights: Any, x: Array, y: Array) -> Array:
        mean, log_var = _apply(network, weights["nets"], x)
        low, high = weights["low"][:, None], weights["high"][:, None]
        return likelihood_loss(mean, bounded(log_var, low, high), y) + hyper.bound_coef * jnp.sum(high - low)

    def error(weights: Any) -> Float[Array, " K"]:
        own = jnp.broadcast_to(x[:held], (members, *x[:held].shape))
        return jnp.mean((_apply(network, weights["nets"], own)[0] - y[:held]) ** 2, (1, 2))

    def step(carry: tuple, key: Array) -> tuple[tuple, None]:
        weights, state = carry
        rows = jax.random.randint(key, (members, config.batch_size), held, size)
        change, state = optimizer.update(jax.grad(loss)(weights, x[rows], y[rows]), state, weights)
        return (optax.apply_updates(weights, change), state), None

    def check(carry: tuple, key: Array) -> tuple[tuple, Array]:
        (weights, state), best, least = carry
        carry, _ = jax.lax.scan(step, (weights, state), jax.random.split(key, config.num_updates))
        found = error(carry[0])
        better = found < least

        def kept(new: Array, old: Array) -> Array:
            return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        return (carry, jax.tree.map(kept, carry[0], best), jnp.where(better, found, least)), found

    first = (weights, optimizer.init(weights)), weights, jnp.full(members, jnp.inf)
    keys = jax.random.split(fast_key(steps_key), config.num_checks)
    (_, best, least), errors = jax.lax.scan(check, first, keys)
    elites = jnp.argsort(least)[: config.num_elites]
    best = jax.tree.map(lambda x: x[elites], best)
    return Ensemble(best["nets"], best["low"], best["high"], inputs, targets, config.hidden, config.activation), errors


def _scale(x: Float[Array, "n D"]) -> Scale:
    std = jnp.std(x, 0)
    return Scale(jnp.mean(x, 0), jnp.where(std > 1e-6, std, 1.0))  # a constant number is not scaled


def predict(
    ensemble: Ensemble, obs: Float[Array, "B O"], action: Float[Array, "B A"]
) -> tuple[Float[Array, "E B D"], Float[Array, "E B D"]]:
    """Mean and standard deviation of (next_obs - obs, reward), predicted by each elite, in the task's units."""
    x = ensemble.inputs.to_unit(jnp.concatenate([obs, action], -1))
    network = _network(ensemble.hidden, ensemble.activation, ensemble.low.shape[-1])
    mean, log_var = _apply(network, ensemble.weights, jnp.broadcast_to(x, (len(ensemble.low), *x.shape)))
    std = jnp.exp(bounded(log_var, ensemble.low[:, None], ensemble.high[:, None]) / 2)
    return mean * ensemble.targets.std + ensemble.targets.mean, std * ensemble.targets.std


# ---- measures of uncertainty of predictions (E, B, D)

Measure = Callable[[Array, Array], Array]
Ends = Callable[[Array, Array, Array], Bool[Array, " B"]]
"""`(obs, action, next_obs) -> terminated`, of a batch."""


def largest_std(mean: Float[Array, "E B D"], std: Float[Array, "E B D"]) -> Float[Array, " B"]:
    """max_k |std_k|, the measure of MOPO."""
    return jnp.max(jnp.sqrt(jnp.sum(std**2, -1)), 0)


def disagreement(mean: Float[Array, "E B D"], std: Float[Array, "E B D"]) -> Float[Array, " B"]:
    """max_{k, l} |mean_k - mean_l|, the measure of MOReL."""
    return jnp.max(jnp.sqrt(jnp.sum((mean[:, None] - mean[None]) ** 2, -1)), (0, 1))


def uncertainties(ensemble: Ensemble, dataset: Dataset, measure: Measure = disagreement) -> Float[Array, " n"]:
    """The model's uncertainty at each step of a dataset, to choose thresholds from."""

    def of_step(step: tuple[Array, Array]) -> Array:
        obs, action = step
        return measure(*predict(ensemble, obs[None], action[None]))[0]

    steps = jnp.asarray(dataset.obs), jnp.asarray(dataset.action)
    return jax.lax.map(of_step, steps, batch_size=4096)  # activations of all steps at once may not fit into memory


def predictor(
    ensemble: Ensemble,
    measure: Measure = largest_std,
    terminated: Ends | None = None,
) -> Model:
    """The ensemble as a `Model`: each row is predicted by a random elite, its uncertainty measured over all elites.

    Args:
        terminated: the termination function of the task, which is not learned; None: the task never terminates.
    """

    def model(key: Key[Array, ""], obs: Float[Array, "B O"], action: Float[Array, "B A"]) -> Prediction:
        elite_key, noise_key = jax.random.split(key)
        mean, std = predict(ensemble, obs, action)
        member, row = jax.random.randint(elite_key, (len(obs),), 0, len(mean)), jnp.arange(len(obs))
        drawn = mean[member, row] + std[member, row] * jax.random.normal(noise_key, mean.shape[1:], mean.dtype)
        next_obs = obs + drawn[:, :-1]
        ends = jnp.zeros(len(obs), bool) if terminated is None else terminated(obs, action, next_obs)
        return Prediction(next_obs, drawn[:, -1], ends, measure(mean, std))

    return model
