"""Model-based transfer learning: on which contexts to train policies. No `Curriculum`, but functions around `train`.

Cho, Jayawardana, Li and Wu (2024), "Model-based transfer learning for contextual reinforcement learning" (NeurIPS,
arXiv:2408.04498). A task has K contexts x_i (masses, lengths, inductances). Policies are trained one after another,
each fully on one context, its source, and are evaluated without further training on all contexts, the targets. V(i, j)
is the performance on context j of the policy trained on context i, normalised to about [0, 1]. After k sources:

    predict   V(i, j) = J(i) - slope |x_i - x_j|, J a Gaussian process given the V(i, i) of the sources trained so far
    propose   the source argmax_i  mean_j max(0, mu(i) + sqrt(log(k + 1)) sigma(i) - slope |x_i - x_j| - max_l V(l, j)),
              mu and sigma the mean and standard deviation of J: the source with the largest predicted gain over the
              best sources so far; the first source is the middle of the range
    update    train a policy on it, measure V(i, j) on all targets, and condition the process on V(i, i)

A target is served by the best source for it, so the performance after k sources is mean_j max_l V(l, j).

The process is the authors': zero mean, a constant times a squared-exponential kernel, a given observation noise, and
the constant and length scale of largest marginal likelihood, here on a grid and not by gradients. It is conditioned on
one observation at a time, for all points of the grid at once (`observe`). That is exact and needs no factorisation, as
the likelihood is the product of the predictive densities; it costs O(grid K^2) for each source.

Deviations from the authors' code: the process is conditioned on V(i, i) of a source, not on the best performance of any
source there. Performances are not clipped at 0. One observation does not identify the length scale; of equally likely
ones the longest is taken, and not one spacing, with which the second source would be a neighbour of the first.
The slope may be estimated from the sources trained so far (least squares through the origin). Usage:

    levels = level_batch(params, lambda params, x: params.replace(mass_cart=x), contexts)
    transfer = jax.jit(lambda key: transfer_matrix(algo, key, levels, 100_000))(key)  # (K, K), raw returns
    found = select(normalised(transfer, 0.0, 500.0), Config(num_sources=15))  # found.source, found.performance

or without the matrix, with policies trained inside the loop: `select_by(lambda i: row i of V, K)`; or step by step with
`init`, `propose` and `update`. The file ends with baselines: `greedy_oracle`, `equidistant`, `random_order`, and the
`performance` of any order of sources. Results: `experiments/mbtl`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Integer

from jaxrl.algorithm import Algorithm, check_at_least_one, train
from jaxrl.curriculum.protocol import check_levels
from jaxrl.environment import check_params, is_concrete, pytree, strongly_typed
from jaxrl.evaluation import evaluate


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    num_sources: int = 15  # policies to train
    estimate_slope: bool = False  # the slope is estimated from the sources so far, and hyper.slope is not read
    num_variances: int = 25  # grid points of the kernel's variance, in [1e-3, 1e3]
    num_lengths: int = 25  # grid points of the kernel's length scale, in [1e-2, 1e2] spacings of contexts

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_sources", "num_variances", "num_lengths")


@pytree
class Hyper:
    """Dynamic settings, those of the authors for control tasks."""

    slope: jax.Array = 0.005  # normalised performance lost per spacing of contexts
    noise: jax.Array = 0.1  # standard deviation of an observed performance
    exploration: jax.Array = 1.0  # factor of sqrt(log(k + 1)); with 0 sources are proposed by the mean alone


# ---- the Gaussian process


@pytree
class Process:
    """Gaussian processes at K points, one for each of G kernels, conditioned on the observations so far."""

    mean: jax.Array  # (G, K)
    covariance: jax.Array  # (G, K, K)
    log_likelihood: jax.Array  # (G,) of all observations


def prior(x: Float[Array, " K"], variance: Float[Array, " G"], length: Float[Array, " G"]) -> Process:
    """Zero mean and covariance variance * exp(-(x - x')^2 / (2 length^2))."""
    away = (x[:, None] - x) / length[:, None, None]
    covariance = variance[:, None, None] * jnp.exp(-jnp.square(away) / 2)
    return Process(jnp.zeros((len(length), len(x))), covariance, jnp.zeros(len(length)))


def observe(
    process: Process, i: Integer[Array, ""] | int, y: Float[Array, ""], noise: Float[Array, ""] | float
) -> Process:
    """The processes after observing `y` at point `i`, with noise of that standard deviation (Rasmussen and Williams
    2006, eq. 2.23 and 2.24, for one observation: a Kalman filter's step)."""
    variance = jnp.maximum(process.covariance[:, i, i], 0) + noise**2
    error = y - process.mean[:, i]
    column = process.covariance[:, :, i] / jnp.sqrt(variance)[:, None]
    return Process(
        mean=process.mean + column * (error / jnp.sqrt(variance))[:, None],
        covariance=process.covariance - column[:, :, None] * column[:, None, :],
        log_likelihood=process.log_likelihood - (error**2 / variance + jnp.log(2 * jnp.pi * variance)) / 2,
    )


def observations(
    process: Process, where: Int[Array, " n"], y: Float[Array, " n"], noise: Float[Array, ""] | float
) -> Process:
    """The processes after observing each y at its point. The order does not matter."""
    return jax.lax.scan(lambda p, seen: (observe(p, *seen, noise), None), process, (where, y))[0]


def likeliest(process: Process) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Mean and standard deviation of the process of largest likelihood."""
    best = jnp.argmax(process.log_likelihood)
    variance = jnp.diagonal(process.covariance[best])
    return process.mean[best], jnp.sqrt(jnp.maximum(variance, 0))


# ---- the choice of the next source


@pytree
class MBTLState:
    process: Process
    covered: jax.Array  # (K,) best performance of any source on each target; -inf before the first
    trained: jax.Array  # (K,) bool: the context was a source
    moments: jax.Array  # (2,) sums over sources and targets of distance * gap and of distance^2, for the slope
    hyper: Hyper


def init(num_contexts: int, config: Config = Config(), hyper: Hyper | None = None) -> MBTLState:
    """The state before the first source. Raises ValueError for settings out of range."""
    settings = strongly_typed(Hyper() if hyper is None else hyper)
    if config.num_sources > num_contexts:
        raise ValueError(f"num_sources={config.num_sources}: there are {num_contexts} contexts to train on.")
    if is_concrete(settings):
        for name, allowed, good in (("slope", ">= 0", np.greater_equal), ("noise", "> 0", np.greater)):
            value = np.asarray(getattr(settings, name))
            if not np.all(good(value, 0)):
                raise ValueError(f"{name}={value}: it must be {allowed}.")
    # The longest length comes first: `likeliest` takes the first of equal likelihoods, and after one observation all
    # lengths are equally likely.
    length, variance = jnp.meshgrid(
        jnp.logspace(2, -2, config.num_lengths), jnp.logspace(-3, 3, config.num_variances), indexing="ij"
    )
    return MBTLState(
        process=prior(jnp.arange(num_contexts, dtype=float), variance.ravel(), length.ravel()),
        covered=jnp.full(num_contexts, -jnp.inf, float),
        trained=jnp.zeros(num_contexts, bool),
        moments=jnp.zeros(2),
        hyper=settings,
    )


def distances(num_contexts: int) -> Float[Array, "K K"]:
    """|x_i - x_j| in spacings of contexts."""
    x = jnp.arange(num_contexts, dtype=float)
    return jnp.abs(x[:, None] - x)


def acquisition(
    optimistic: Float[Array, " K"], slope: Float[Array, ""] | float, covered: Float[Array, " K"]
) -> Float[Array, " K"]:
    """How much each source is predicted to add to the performance, if it reaches `optimistic` on its own context."""
    predicted = optimistic[:, None] - slope * distances(len(covered))
    return jnp.maximum(predicted - covered, 0).mean(1)


def slope_of(state: MBTLState, config: Config) -> Float[Array, ""]:
    """Performance lost per spacing: as given, or the least-squares slope of the gaps seen so far, at least 0."""
    if not config.estimate_slope:
        return state.hyper.slope
    product, square = state.moments
    return jnp.maximum(product, 0) / jnp.maximum(square, 1e-12)


def propose(state: MBTLState, config: Config = Config()) -> Int[Array, ""]:
    """The context to train on next: the first of largest acquisition among those that were not yet trained on."""
    K, k = len(state.trained), state.trained.sum()
    mean, deviation = likeliest(state.process)
    optimistic = mean + state.hyper.exploration * jnp.sqrt(jnp.log(k + 1.0)) * deviation
    value = acquisition(optimistic, slope_of(state, config), jnp.where(k > 0, state.covered, 0))
    return jnp.where(k > 0, jnp.argmax(jnp.where(state.trained, -jnp.inf, value)), (K - 1) // 2).astype(jnp.int32)


def update(state: MBTLState, source: Integer[Array, ""] | int, row: Float[Array, " K"]) -> MBTLState:
    """The state after training a policy on context `source`; `row` are its normalised performances on all contexts."""
    away = distances(len(row))[source]
    return state.replace(
        process=observe(state.process, source, row[source], state.hyper.noise),
        covered=jnp.maximum(state.covered, row),
        trained=state.trained.at[source].set(True),
        moments=state.moments + jnp.stack([(away * (row[source] - row)).sum(), (away**2).sum()]),
    )


class Selection(NamedTuple):
    """The sources in the order of training."""

    source: Int[Array, " n"]
    performance: Float[Array, " n"]  # after each source: mean over the targets of the best source so far
    slope: Float[Array, " n"]  # with which each source was chosen


def select_by(
    row_fn: Callable[[Array], Array], num_contexts: int, config: Config = Config(), hyper: Hyper | None = None
) -> Selection:
    """MBTL where `row_fn(i)` gives the normalised performances (K,) of a policy trained on context i.

    It is called once for each source, inside a scan, so it may train that policy.
    """

    def step(state, _):
        source, slope = propose(state, config), slope_of(state, config)
        state = update(state, source, row_fn(source))
        return state, Selection(source, state.covered.mean(), slope)

    return jax.lax.scan(step, init(num_contexts, config, hyper), length=config.num_sources)[1]


def select(
    transfer: Float[Array, "sources targets"], config: Config = Config(), hyper: Hyper | None = None
) -> Selection:
    """MBTL on a known transfer matrix of normalised performances: sources along rows, targets along columns.

    Raises ValueError unless it is square and finite.
    """
    if transfer.shape[0] != transfer.shape[1]:
        raise ValueError(f"transfer has shape {transfer.shape}: every context is a source and a target.")
    if is_concrete(transfer) and not np.all(np.isfinite(transfer)):
        raise ValueError(f"transfer has {np.sum(~np.isfinite(transfer))} entries that are not finite.")
    return select_by(lambda i: transfer[i], len(transfer), config, hyper)


# ---- transfer matrices


def level_batch(params: Any, level_at: Callable[[Any, Array], Any], contexts: Float[Array, " K"]) -> Any:
    """The levels `level_at(params, context)`, leading axis K. Raises ValueError where these are no env params."""
    params = strongly_typed(params)
    levels = strongly_typed(jax.vmap(lambda x: level_at(params, x))(contexts))
    one = jax.eval_shape(lambda: jax.tree.map(lambda x: x[0], levels))
    check_levels("mbtl: level_at", one, params, "the environment's params")
    return levels


def performances(
    algo: Algorithm,
    policy: Any,
    key: Array,
    levels: Any,
    num_episodes: int = 16,
    max_steps: int | None = None,
    greedy: bool = False,
) -> Float[Array, " K"]:
    """Mean return of one policy on each level."""
    keys = jax.random.split(key, jax.tree.leaves(levels)[0].shape[0])

    def on(level, key):
        return evaluate(
            algo, policy, key, algo.venv.env, level, num_episodes=num_episodes, max_steps=max_steps, greedy=greedy
        ).returns.mean()

    return jax.vmap(on)(levels, keys)


def transfer_matrix(
    algo: Algorithm,
    key: Array,
    levels: Any,
    total_steps: int,
    hyper: Any = None,
    num_episodes: int = 16,
    max_steps: int | None = None,
    greedy: bool = False,
) -> Float[Array, "K K"]:
    """Mean returns of K policies, each trained on one level, on all K levels. Pure; jit it, or vmap it over keys.

    All policies are trained as one vmapped program. On a target all of them meet the same random numbers.
    """
    train_key, evaluation_key = jax.random.split(key)
    keys = jax.random.split(train_key, jax.tree.leaves(levels)[0].shape[0])
    if is_concrete(levels):
        check_params(algo.venv.env, levels)
    policies = jax.vmap(lambda key, level: algo.policy(train(algo, key, total_steps, hyper, level)[0]))(keys, levels)
    return jax.vmap(lambda p: performances(algo, p, evaluation_key, levels, num_episodes, max_steps, greedy))(policies)


def normalised(transfer: Float[Array, "*n K"], low: float, high: float) -> Float[Array, "*n K"]:
    """Returns on a scale on which `low` is 0 and `high` is 1. Raises ValueError unless high > low."""
    if not high > low:
        raise ValueError(f"low={low}, high={high}: high must be above low.")
    return (transfer - low) / (high - low)


# ---- baselines of MBTL


def performance(transfer: Float[Array, "K K"], sources: Integer[Array, " n"]) -> Float[Array, " n"]:
    """Performance after each of these sources: mean over the targets of the best source so far."""
    return jax.lax.cummax(transfer[sources], 0).mean(1)


def independent(transfer: Float[Array, "K K"]) -> Float[Array, ""]:
    """Performance of K policies, one trained on each context and deployed there only."""
    return jnp.diagonal(transfer).mean()


def oracle(transfer: Float[Array, "K K"]) -> Float[Array, ""]:
    """Performance of the best of all K policies on each context, which no choice of sources exceeds."""
    return transfer.max(0).mean()


def greedy_oracle(transfer: Float[Array, "K K"], num_sources: int) -> Int[Array, " n"]:
    """The sources of a greedy choice that knows the matrix: each time the one with the largest gain."""

    def step(carry, _):
        covered, trained = carry
        best = jnp.argmax(jnp.where(trained, -jnp.inf, jnp.maximum(covered, transfer).mean(1)))
        return (jnp.maximum(covered, transfer[best]), trained.at[best].set(True)), best.astype(jnp.int32)

    start = jnp.full(len(transfer), -jnp.inf, transfer.dtype), jnp.zeros(len(transfer), bool)
    return jax.lax.scan(step, start, length=num_sources)[1]


def equidistant(num_contexts: int, num_sources: int) -> Int[Array, " n"]:
    """The middles of `num_sources` equal parts of the contexts.

    That is the best set of sources if all have the same performance and the same slope.
    """
    middles = (jnp.arange(num_sources) + 0.5) * num_contexts / num_sources - 0.5
    return jnp.floor(middles + 0.5).astype(jnp.int32)


def random_order(key: Array, num_contexts: int, num_sources: int) -> Int[Array, " n"]:
    """Sources drawn without repetition."""
    return jax.random.permutation(key, num_contexts)[:num_sources].astype(jnp.int32)


def sources_needed(curve: Float[Array, " n"], level: Float[Array, ""] | float) -> Float[Array, ""]:
    """The number of sources needed to reach the performance `level`; infinity if they do not reach it."""
    reached = curve >= level
    return jnp.where(reached.any(), jnp.argmax(reached) + 1.0, jnp.inf)
