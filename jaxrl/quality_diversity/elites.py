"""An archive of cells: of every region of what a genome can do, the best genome found there.

A descriptor says what a genome did, as the place where its robot ended. A cell is a box of a `grid` over the space of
descriptors, or what is nearest to one of the centroids of a `voronoi` archive (Vassiliades et al. 2018, CVT-MAP-Elites,
arXiv:1610.05729). All functions are pure and know nothing of environments:

    archive = elites.grid((0.0, 0.0), (1.0, 1.0), (50, 50), genome_size)
    archive, inserted = elites.insert(archive, genome, fitness, descriptor)    # (N, D), (N,), (N, B)

A cell has a `threshold`, too, which is what a candidate is measured against. As a rule it is the fitness of the cell's
best. With a `rate` alpha below 1 it follows what it accepts slowly, t <- (1 - alpha) t + alpha f (Fontaine and
Nikolaidis 2023, CMA-MAE, arXiv:2205.10752), so that a search is paid for staying where improvement is small: alpha = 0
is a search for the best alone, alpha = 1 one for a full archive.

Several candidates for one cell are taken as if one came after the other, the worse first. That order is the archive's:
what came in the same batch does not depend on its place there. pyribs moves the threshold to the mean of those it
accepts instead, which for small alpha is nearly the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxrl.environment import pytree
from jaxrl.math import nth

MOST_CELLS = 1_000_000
"""Cells of an archive at most."""


@pytree(static=("shape",))
class Cells:
    """C cells, each with at most one genome of D numbers."""

    genome: jax.Array  # (C, D)
    fitness: jax.Array  # (C,), -inf: empty
    descriptor: jax.Array  # (C, B)
    threshold: jax.Array  # (C,): what a candidate must exceed to be accepted
    low: jax.Array  # (B,): the box of descriptors
    high: jax.Array  # (B,)
    centroids: jax.Array  # (C, B): middles of the cells of a grid
    shape: tuple[int, ...]  # cells along each side of a grid; () for a Voronoi archive

    @property
    def filled(self) -> Bool[Array, " C"]:
        return self.fitness > -jnp.inf

    @property
    def coverage(self) -> Float[Array, ""]:
        """The share of cells with a genome."""
        return jnp.mean(self.filled, dtype=self.fitness.dtype)

    def qd_score(self, offset: Any = 0.0) -> Float[Array, ""]:
        """The sum of what the genomes' fitness exceeds `offset` by, which should be below every fitness."""
        return jnp.sum(jnp.where(self.filled, self.fitness - offset, 0))

    @property
    def best(self) -> Int[Array, ""]:
        """The cell of the highest fitness."""
        return jnp.argmax(self.fitness)


class Inserted(NamedTuple):
    """What became of N candidates, each measured against the archive as it was before all of them."""

    cell: Array  # (N,) int32; C for what was refused
    new: Array  # (N,) bool: its cell was empty
    accepted: Array  # (N,) bool: above its cell's threshold
    improvement: Array  # (N,): fitness above the threshold, or above 0 where there was none
    refused: Array  # (N,) bool: its fitness or descriptor is not finite
    outside: Array  # (N,) bool: its descriptor is outside the box, and so in a cell at the edge


def grid(
    low: Sequence[float | int],
    high: Sequence[float | int],
    shape: Sequence[int],
    genome_size: int,
    lowest: Any = -np.inf,
) -> Cells:
    """An empty grid of `shape` over the box from `low` to `high`. `lowest` is the threshold of an empty cell.

    Raises ValueError for a box that is none.
    """
    shape = tuple(int(n) for n in shape)
    start, end = box_of(low, high)
    if len(shape) != len(start) or min(shape) < 1 or math.prod(shape) > MOST_CELLS:
        raise ValueError(
            f"cells={shape}: a grid over {len(start)} descriptors has as many sides, each of at least 1 cell and "
            f"together at most {MOST_CELLS:,}."
        )
    sides = [(np.arange(n) + 0.5) / n * (b - a) + a for n, a, b in zip(shape, start, end, strict=True)]
    middles = np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, len(shape))
    return _empty(start, end, jnp.asarray(middles, jnp.result_type(float)), shape, genome_size, lowest)


def voronoi(
    low: Sequence[float | int],
    high: Sequence[float | int],
    centroids: Float[Array, "C B"],
    genome_size: int,
    lowest: Any = -np.inf,
) -> Cells:
    """An empty archive whose cells are what is nearest to each of the centroids; see `spread_out`."""
    start, end = box_of(low, high)
    if centroids.ndim != 2 or centroids.shape[1] != len(start) or centroids.shape[0] > MOST_CELLS:
        raise ValueError(f"centroids have shape {centroids.shape}: (cells, {len(start)}) is meant.")
    return _empty(start, end, centroids, (), genome_size, lowest)


def box_of(low: Sequence[float | int], high: Sequence[float | int]) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the box of descriptors. Raises ValueError unless every side is finite and not empty."""
    start, end = np.asarray(low, float), np.asarray(high, float)
    if start.ndim != 1 or start.shape != end.shape or not len(start):
        raise ValueError(f"the descriptors' low={low} and high={high} must be as many numbers, one a descriptor.")
    for name, a, b in zip(range(len(start)), start, end, strict=True):
        if not (np.isfinite(a) and np.isfinite(b) and a < b):
            raise ValueError(f"descriptor {name} is from {a:g} to {b:g}: low must be below high, and both finite.")
    return start, end


def _empty(low: Any, high: Any, centroids: Array, shape: tuple[int, ...], genome_size: int, lowest: Any) -> Cells:
    C, dtype = centroids.shape[0], centroids.dtype
    return Cells(
        genome=jnp.zeros((C, genome_size), dtype),
        fitness=jnp.full(C, -jnp.inf, dtype),
        descriptor=jnp.zeros_like(centroids),
        threshold=jnp.broadcast_to(jnp.asarray(lowest, dtype), (C,)),
        low=jnp.asarray(low, dtype),
        high=jnp.asarray(high, dtype),
        centroids=centroids,
        shape=shape,
    )


def stretched(archive: Cells, low: Float[Array, " B"], high: Float[Array, " B"]) -> Cells:
    """An empty archive with its box, and its cells in it, moved to that from `low` to `high`, which may be traced."""
    low, high = low.astype(archive.low.dtype), high.astype(archive.low.dtype)
    unit = (archive.centroids - archive.low) / (archive.high - archive.low)
    return archive.replace(low=low, high=high, centroids=low + unit * (high - low))


def spread_out(
    key: Key[Array, ""],
    low: Sequence[float | int],
    high: Sequence[float | int],
    cells: int,
    samples: int = 25_000,
    iterations: int = 50,
) -> Float[Array, "C B"]:
    """`cells` centroids of regions of nearly equal size: Lloyd's algorithm on uniform samples of the box."""
    start, end = (jnp.asarray(x, jnp.result_type(float)) for x in box_of(low, high))
    points = jax.random.uniform(key, (max(samples, cells), len(start)), start.dtype)

    def lloyd(centroids, _):
        cell = nearest(points, centroids)
        count = jax.ops.segment_sum(jnp.ones_like(points[:, 0]), cell, cells)
        total = jax.ops.segment_sum(points, cell, cells)
        return jnp.where(count[:, None] > 0, total / jnp.maximum(count, 1)[:, None], centroids), None

    centroids, _ = jax.lax.scan(lloyd, points[:cells], length=iterations)
    return start + centroids * (end - start)


def nearest(points: Float[Array, "N B"], centroids: Float[Array, "C B"]) -> Int[Array, " N"]:
    """The centroid nearest to each point."""
    # |p|^2 is the same for all centroids; about their middle, so that little is lost to rounding.
    middle = jnp.mean(centroids, 0)
    p, c = points - middle, centroids - middle
    dots = jnp.matmul(p, c.T, precision=jax.lax.Precision.HIGHEST)
    return jnp.argmin(jnp.sum(c * c, -1) - 2 * dots, -1)


def cell_of(archive: Cells, descriptor: Float[Array, "N B"]) -> Int[Array, " N"]:
    """The cell of each descriptor; what is outside the box is in a cell at its edge."""
    if not archive.shape:
        unit = (descriptor - archive.low) / (archive.high - archive.low)
        return nearest(unit, (archive.centroids - archive.low) / (archive.high - archive.low))
    sides = np.asarray(archive.shape)
    unit = jnp.clip((descriptor - archive.low) / (archive.high - archive.low), 0, 1)
    place = jnp.clip(jnp.floor(unit * sides), 0, sides - 1).astype(jnp.int32)
    strides = np.cumprod([1, *archive.shape[:0:-1]])[::-1].astype(np.int32)
    return jnp.sum(place * strides, -1, dtype=jnp.int32)


def insert(
    archive: Cells,
    genome: Float[Array, "N D"],
    fitness: Float[Array, " N"],
    descriptor: Float[Array, "N B"],
    rate: Any = 1.0,
) -> tuple[Cells, Inserted]:
    """`(archive, what became of each)` after N candidates. A cell keeps the best that was ever found in it.

    What is NaN or infinite is refused. Among equals the first keeps its place.
    """
    N, C = fitness.shape[0], archive.fitness.shape[0]
    fitness = fitness.astype(archive.fitness.dtype)
    descriptor = descriptor.astype(archive.descriptor.dtype)
    usable = jnp.isfinite(fitness) & jnp.all(jnp.isfinite(descriptor), -1)
    outside = usable & jnp.any((descriptor < archive.low) | (descriptor > archive.high), -1)
    cell = jnp.where(usable, cell_of(archive, jnp.where(usable[:, None], descriptor, archive.low)), C)
    threshold = archive.threshold.at[cell].get(mode="fill", fill_value=jnp.inf)
    before = archive.fitness.at[cell].get(mode="fill", fill_value=jnp.inf)
    accepted = usable & (fitness > threshold)

    # The best candidate of each cell, the first of equals.
    better = usable & (fitness > before)
    top = jax.ops.segment_max(jnp.where(better, fitness, -jnp.inf), cell, C)
    tops = better & (fitness == top.at[cell].get(mode="fill", fill_value=jnp.inf))
    first = jax.ops.segment_min(jnp.where(tops, jnp.arange(N), N), cell, C)
    taken = first < N
    row = jnp.minimum(first, N - 1)
    accepted_cell = jnp.where(accepted, cell, C)
    if isinstance(rate, int | float) and rate == 1:  # the best alone counts, and nothing has to be sorted
        best = jax.ops.segment_max(fitness, accepted_cell, C)
        threshold_after = jnp.maximum(archive.threshold, best)
    else:
        threshold_after = _followed(archive.threshold, fitness, accepted_cell, rate)
    new = archive.replace(
        genome=jnp.where(taken[:, None], genome[row], archive.genome),
        fitness=jnp.where(taken, fitness[row], archive.fitness),
        descriptor=jnp.where(taken[:, None], descriptor[row], archive.descriptor),
        threshold=threshold_after,
    )
    base = jnp.where(jnp.isfinite(threshold), threshold, 0)
    improvement = jnp.where(usable, fitness - base, -jnp.inf)
    is_new = usable & ~(before > -jnp.inf)
    return new, Inserted(cell.astype(jnp.int32), is_new, accepted, improvement, ~usable, outside)


def _followed(
    threshold: Float[Array, " C"], fitness: Float[Array, " N"], cell: Int[Array, " N"], rate: Any
) -> Float[Array, " C"]:
    """Thresholds after t <- (1 - rate) t + rate f of the accepted, the worse first; their `cell` is below C.

    In this order all of a batch stay accepted, as t stays below the f that it goes to. So the k-th of K has the weight
    rate (1 - rate)^(K - k) in the end. A cell without a threshold starts at the worst that it accepts.
    """
    N, C = fitness.shape[0], threshold.shape[0]
    order = jnp.lexsort((fitness, cell))
    cell, fitness = cell[order], fitness[order]
    place = jnp.arange(N)
    start = jax.ops.segment_min(place, cell, C)
    number = jax.ops.segment_sum(jnp.ones_like(place), cell, C)
    rank = start.at[cell].get(mode="fill", fill_value=0) + number.at[cell].get(mode="fill", fill_value=0) - 1 - place
    keep = jnp.asarray(1 - jnp.asarray(rate, threshold.dtype))
    # 0 ** 0 is 1: with rate 1 the best alone counts.
    weight = (1 - keep) * keep ** jnp.maximum(rank, 0)
    moved = jax.ops.segment_sum(weight * fitness, cell, C)
    worst = jax.ops.segment_min(fitness, cell, C)
    base = jnp.where(jnp.isfinite(threshold), threshold, jnp.where(number > 0, worst, 0))
    # To the last bit: no rounding leads out of what is between, and with rate 1 the threshold is the best fitness.
    best = jax.ops.segment_max(fitness, cell, C)
    followed = jnp.clip(keep ** jnp.maximum(number, 0) * base + moved, base, best)
    followed = jnp.where(keep <= 0, best, followed)
    return jnp.where(number > 0, followed, threshold)


def parents(key: Key[Array, ""], archive: Cells, count: int) -> Float[Array, "N D"]:
    """Genomes of filled cells, all equally likely, drawn with repetition; zeros while there are none."""
    return _genomes(archive, _drawn(key, archive, count))


def pairs(key: Key[Array, ""], archive: Cells, count: int) -> tuple[Float[Array, "N D"], Float[Array, "N D"]]:
    """Two parents for each of `count` children, as `parents` draws them.

    Cells are drawn at once, which compiles sooner, and genomes read apart: to split them takes a CPU three times as
    long as all else in a generation of 1,024 cheap evaluations.
    """
    one, other = jnp.split(_drawn(key, archive, 2 * count), 2)
    return _genomes(archive, one), _genomes(archive, other)


def _drawn(key: Key[Array, ""], archive: Cells, count: int) -> Int[Array, " N"]:
    ranks = jax.random.randint(key, (count,), 0, jnp.maximum(jnp.sum(archive.filled), 1))
    return nth(archive.filled, ranks)


def _genomes(archive: Cells, cell: Int[Array, " N"]) -> Float[Array, "N D"]:
    return archive.genome.at[cell].get(mode="fill", fill_value=0)


def report(archive: Cells, offset: Any = 0.0) -> dict[str, Array]:
    """Metrics of an archive: `coverage`, `qd_score` and `fitness_best`, NaN while it is empty."""
    best = jnp.max(archive.fitness)
    return {
        "coverage": archive.coverage,
        "qd_score": archive.qd_score(offset),
        "fitness_best": jnp.where(jnp.isfinite(best), best, jnp.nan),
    }


# ---- emitters of MAP-Elites: children of parents


def gaussian(key: Key[Array, ""], parent: Float[Array, "N D"], sigma: Any) -> Float[Array, "N D"]:
    """Children with noise of this std on every number."""
    return parent + sigma * jax.random.normal(key, parent.shape, parent.dtype)


def iso_line(
    key: Key[Array, ""],
    parent: Float[Array, "N D"],
    other: Float[Array, "N D"],
    iso_sigma: Any,
    line_sigma: Any,
) -> Float[Array, "N D"]:
    """Children about their parent, spread along the line to another: parent + iso_sigma z + line_sigma (other - parent)
    u, with z a normal vector and u a normal number (Vassiliades and Mouret 2018, arXiv:1804.03906)."""
    iso_key, line_key = jax.random.split(key)
    z = jax.random.normal(iso_key, parent.shape, parent.dtype)
    u = jax.random.normal(line_key, (parent.shape[0], 1), parent.dtype)
    return parent + iso_sigma * z + line_sigma * (other - parent) * u
