"""CMA-ME and CMA-MAE: evolution strategies that climb the improvement of an archive instead of fitness.

Fontaine, Togelius, Nikolaidis and Hoover (2020), "Covariance matrix adaptation for the rapid illumination of behavior
space" (arXiv:1912.02400), with its improvement emitter; Fontaine and Nikolaidis (2023), "Covariance matrix adaptation
MAP-annealing" (arXiv:2205.10752). Each of `num_emitters` emitters is an evolution strategy, which draws its share of a
generation about its mean, x = m + sigma M z. All go into one archive, and each emitter moves towards what improved it:

    CMA-ME      genomes of empty cells come first, then those that exceed their cell's best by most; the parents are
                all that entered. An emitter none of whose genomes enters begins anew at a random cell's genome.
    CMA-MAE     (`Config.soft`) by f - t alone, t the threshold of the cell, which follows what it accepts by
                t <- (1 - alpha) t + alpha f from `lowest_fitness`; the better half are the parents.

The strategy is the matrix adaptation of Beyer and Sendhoff (2017), "Simplify your covariance matrix adaptation
evolution strategy": with y = sum_i w_i z_i over the mu parents and the usual rates of Hansen (2016, arXiv:1604.00772),

    p <- (1 - c_s) p + sqrt(mu_w c_s (2 - c_s)) y          m <- m + sigma M y
    M <- M (I + c_1/2 (p p^T - I) + c_mu/2 (sum_i w_i z_i z_i^T - I))
    sigma <- sigma exp(min(1, c_s/d (|p| / E|N(0, I)| - 1)))

It behaves as CMA-ES and needs no eigenvectors: products of matrices alone, also under `vmap` over emitters and seeds.
`covariance="diagonal"` keeps M diagonal, for large networks, with rates (D + 2) / 3 times as large (Ros and Hansen
2008). An emitter also begins anew where its distribution has shrunk to a point or everything it drew was worth the
same. Deployed is the genome of the best cell; `behaviour.policy_of` is that of any.

Deviations: the papers' emitters are CMA-ES. A cell keeps its best ever, for which the authors have a second archive.
Results: `docs/algos/quality_diversity.md`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrl.algorithm import Algorithm, algorithm_of, check_at_least_one, shared
from jaxrl.environment import Environment, is_concrete, pytree
from jaxrl.nn.networks import Network
from jaxrl.quality_diversity import behaviour, elites
from jaxrl.quality_diversity.behaviour import Rollout, State
from jaxrl.vector_env import VectorEnv

COVARIANCES = ("full", "diagonal")
MOST_WEIGHTS = 2_000
"""The largest number of weights for full matrices."""
TINY = 1e-11
"""Where a distribution's largest deviation is below it, its emitter begins anew; as pycma's `tolx`."""
FLAT = 1e-12
"""Where the worth of all that an emitter drew differs by less, it begins anew; as pycma's `tolfun`."""


@dataclasses.dataclass(frozen=True)
class Config(behaviour.Config):
    """Static settings: each value compiles its own program."""

    population_size: int = 144  # genomes of a generation, of all emitters together
    num_emitters: int = 4  # strategies that draw its parts
    soft: bool = False  # CMA-MAE instead of CMA-ME
    covariance: str = "full"  # or "diagonal"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "num_emitters")
        if self.population_size % self.num_emitters or self.population_size < 2 * self.num_emitters:
            raise ValueError(
                f"population_size={self.population_size} must be a multiple of num_emitters={self.num_emitters}, at "
                "least 2 for each."
            )
        if self.covariance not in COVARIANCES:
            raise ValueError(f"covariance={self.covariance!r} is unknown; use one of {', '.join(COVARIANCES)}.")


@pytree
class Hyper(behaviour.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    sigma: jax.Array = 0.5  # initial step size of an emitter
    alpha: jax.Array = 0.01  # soft: how far a threshold goes towards what it accepts, from 0 to 1
    lowest_fitness: jax.Array = -jnp.inf  # soft: threshold of an empty cell, which has to be finite


class Emitter(NamedTuple):
    """An evolution strategy over D numbers."""

    mean: Any  # (D,)
    sigma: Any  # step size
    matrix: Any  # (D, D), or (D,) where it is diagonal
    path: Any  # (D,): p


class Search(NamedTuple):
    emitters: Any  # Emitter, leaves with a leading axis E
    noise: Any  # (P, D): the z that the population is made of
    restarts: Any  # int32: how often an emitter began anew


def fresh(mean: Float[Array, " D"], sigma: Any, covariance: str) -> Emitter:
    """A round distribution about `mean`."""
    D = mean.shape[0]
    matrix = jnp.eye(D, dtype=mean.dtype) if covariance == "full" else jnp.ones(D, mean.dtype)
    return Emitter(mean, jnp.asarray(sigma, mean.dtype), matrix, jnp.zeros_like(mean))


def turned(matrix: Float[Array, "..."], z: Float[Array, "*K D"]) -> Float[Array, "*K D"]:
    """M z of each row."""
    return z * matrix if matrix.ndim == 1 else jnp.matmul(z, matrix.T, precision=jax.lax.Precision.HIGHEST)


def ask(emitter: Emitter, z: Float[Array, "K D"]) -> Float[Array, "K D"]:
    """The genomes that standard normal noise stands for."""
    return emitter.mean + emitter.sigma * turned(emitter.matrix, z)


def tell(emitter: Emitter, z: Float[Array, "K D"], order: Int[Array, " K"], num_parents: Int[Array, ""]) -> Emitter:
    """The emitter after the rows of `order`, the best first, of which the first `num_parents` are parents."""
    K, D = z.shape
    place = jnp.arange(K)
    raw = jnp.where(place < num_parents, jnp.log(num_parents + 0.5) - jnp.log(place + 1.0), 0)
    w = (raw / jnp.maximum(jnp.sum(raw), jnp.finfo(z.dtype).tiny)).astype(z.dtype)
    mu_w = 1 / jnp.maximum(jnp.sum(w * w), jnp.finfo(z.dtype).tiny)
    full = emitter.matrix.ndim == 2
    c_s = (mu_w + 2) / (D + mu_w + 5)
    damping = 1 + c_s + 2 * jnp.maximum(0, jnp.sqrt(jnp.maximum(mu_w - 1, 0) / (D + 1)) - 1)
    # A diagonal has D numbers to learn and not D^2, and learns faster.
    faster = 1.0 if full else (D + 2) / 3
    c_1 = jnp.minimum(1.0, faster * 2 / ((D + 1.3) ** 2 + mu_w))
    c_mu = jnp.minimum(1 - c_1, faster * 2 * (mu_w - 2 + 1 / mu_w) / ((D + 2) ** 2 + mu_w))

    best = z[order]
    y = jnp.sum(w[:, None] * best, 0)
    path = (1 - c_s) * emitter.path + jnp.sqrt(mu_w * c_s * (2 - c_s)) * y
    mean = emitter.mean + emitter.sigma * turned(emitter.matrix, y)
    if full:
        exact = jax.lax.Precision.HIGHEST
        products = jnp.matmul((w[:, None] * best).T, best, precision=exact)
        change = c_1 / 2 * (jnp.outer(path, path) - jnp.eye(D)) + c_mu / 2 * (products - jnp.eye(D))
        matrix = emitter.matrix + jnp.matmul(emitter.matrix, change, precision=exact)
    else:
        products = jnp.sum(w[:, None] * best * best, 0)
        matrix = emitter.matrix * (1 + c_1 / 2 * (path * path - 1) + c_mu / 2 * (products - 1))
    expected = math.sqrt(D) * (1 - 1 / (4 * D) + 1 / (21 * D * D))
    length = jnp.sqrt(jnp.sum(path * path))
    sigma = emitter.sigma * jnp.exp(jnp.minimum(1, c_s / damping * (length / expected - 1)))
    new = Emitter(mean, sigma, matrix.astype(z.dtype), path)
    return jax.tree.map(lambda new, old: jnp.where(num_parents > 0, new, old), new, emitter)


def ranked(
    new: Bool[Array, " K"], improvement: Float[Array, " K"], accepted: Bool[Array, " K"], soft: bool
) -> tuple[Int[Array, " K"], Int[Array, ""]]:
    """`(order, number of parents)` of an emitter's genomes, the best first."""
    if soft:
        usable = jnp.sum(improvement > -jnp.inf)
        return jnp.argsort(-improvement, stable=True), jnp.minimum(improvement.shape[0] // 2, usable)
    return jnp.lexsort((-improvement, ~new)), jnp.sum(accepted)


def exhausted(emitter: Emitter, improvement: Float[Array, " K"], new: Bool[Array, " K"]) -> Bool[Array, ""]:
    """Whether an emitter can do no more: a point, no distribution any more, or everything was worth the same."""
    rows = emitter.matrix if emitter.matrix.ndim == 1 else jnp.sqrt(jnp.sum(emitter.matrix**2, -1))
    width = emitter.sigma * jnp.max(jnp.abs(rows))
    usable = improvement > -jnp.inf
    most = jnp.max(jnp.where(usable, improvement, -jnp.inf))
    least = jnp.min(jnp.where(usable, improvement, jnp.inf))
    flat = ~(most - least >= FLAT) & (jnp.all(new) | ~jnp.any(new))
    return ~(width >= TINY) | ~jnp.isfinite(width) | ~jnp.all(jnp.isfinite(emitter.mean)) | flat


@dataclasses.dataclass(frozen=True)
class _CmaMe(behaviour.Shell):
    """The static settings of the learner; its methods are the Algorithm's functions."""

    def apart(self, x: Array) -> Array:
        """Rows (P, ...) of all emitters as (E, K, ...)."""
        return x.reshape(self.config.num_emitters, -1, *x.shape[1:])

    def drawn(self, key: Array, emitters: Emitter, restarts: Array) -> tuple[Array, Search]:
        """`(population, search)` of a new generation."""
        E, D = emitters.mean.shape
        z = jax.random.normal(key, (E, self.config.population_size // E, D), emitters.mean.dtype)
        return jax.vmap(ask)(emitters, z).reshape(-1, D), Search(emitters, z.reshape(-1, D), restarts)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        state, config = self.begin(Hyper, key, hyper, env_params), self.config
        if is_concrete(state.hyper.alpha) and np.any(np.asarray(state.hyper.alpha) > 1):
            raise ValueError(f"hyper.alpha={state.hyper.alpha}: it must be from 0 to 1.")
        lowest = state.hyper.lowest_fitness
        if config.soft and is_concrete(lowest) and not np.isfinite(np.asarray(lowest)).all():
            raise ValueError(f"hyper.lowest_fitness={lowest}: with soft it is an empty cell's threshold, so finite.")
        key, draw_key = jax.random.split(state.key)
        means = state.population[:: config.population_size // config.num_emitters]
        emitters = jax.vmap(lambda mean: fresh(mean, state.hyper.sigma, config.covariance))(means)
        population, search = self.drawn(draw_key, emitters, jnp.int32(0))
        archive = state.archive
        if config.soft:
            lowest = jnp.broadcast_to(lowest, archive.threshold.shape).astype(archive.threshold.dtype)
            archive = archive.replace(threshold=lowest)
        return state.replace(key=key, population=population, search=search, archive=archive)

    def learn(self, state: State, rollout: Rollout) -> tuple[State, dict[str, Array]]:
        config, search = self.config, state.search
        key, anew_key, draw_key = jax.random.split(state.key, 3)
        rate = state.hyper.alpha if config.soft else 1.0
        played = rollout.population, rollout.fitness, rollout.descriptor
        archive, inserted = elites.insert(state.archive, *played, rate)

        def after(emitter, z, new, improvement, accepted, anew):
            order, num_parents = ranked(new, improvement, accepted, config.soft)
            told = tell(emitter, z, order, num_parents)
            over = exhausted(told, improvement, new) | (num_parents == 0)
            begun = fresh(anew, state.hyper.sigma, config.covariance)
            return jax.tree.map(lambda x, y: jnp.where(over, x, y), begun, told), over

        anew = elites.parents(anew_key, archive, config.num_emitters)
        told = search.noise, inserted.new, inserted.improvement, inserted.accepted
        z, new, improvement, accepted = jax.tree.map(self.apart, told)
        emitters, over = jax.vmap(after)(search.emitters, z, new, improvement, accepted, anew)
        restarts = search.restarts + over.sum(dtype=jnp.int32)
        population, search = self.drawn(draw_key, emitters, restarts)
        metrics = {
            **self.metrics(archive, inserted, rollout, state.hyper),
            "sigma": jnp.mean(emitters.sigma),
            "restarts": restarts,
        }
        return self.recorded(state, archive).replace(key=key, population=population, search=search), metrics


@shared
def make(env: Environment | VectorEnv, config: Config = Config(), *, network: Network | None = None) -> Algorithm:
    """CMA-ME, or with `config.soft` CMA-MAE, on `env`. Equal arguments give the same functions, so they share one jit
    cache.

    Args:
        network: a flax module from observations to logits, or for a Box to means in units of the box (-1 to 1 a side).

    Raises ValueError for what `behaviour.parts` refuses, and for a network that is too large for full matrices.
    """
    learner = _CmaMe(*behaviour.parts("cma_me", env, config, network))
    size = learner.genome_size
    if config.covariance == "full" and size > MOST_WEIGHTS:
        raise ValueError(
            f"covariance='full': each emitter would have a {size} x {size} matrix; make the network smaller (at most "
            f"{MOST_WEIGHTS} weights) or use covariance='diagonal'."
        )
    return algorithm_of("cma_me", learner, Hyper, learner.steps_per_update)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
