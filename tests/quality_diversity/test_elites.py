"""Archives of cells: what a loop in NumPy keeps, what several candidates for one cell do, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl.quality_diversity import elites

KEY = jax.random.key(0)
insert = jax.jit(elites.insert)


def loop(fitness, threshold, cells, candidates, rate):
    """The rule of the papers, one candidate after the other, the worse first; what there is of genomes is a row."""
    best, threshold, row = np.array(fitness, float), np.array(threshold, float), np.full(len(fitness), -1)
    for i in np.argsort(candidates, kind="stable"):
        f, c = float(candidates[i]), int(cells[i])
        if not np.isfinite(f):
            continue
        if f > threshold[c]:
            threshold[c] = (1 - rate) * threshold[c] + rate * f if np.isfinite(threshold[c]) else f
        if f > best[c]:
            best[c], row[c] = f, i
    return best, threshold, row


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**16), rate=st.sampled_from([1.0, 0.3, 0.01, 0.0]), lowest=st.sampled_from([-np.inf, -1.0]))
def test_insertion_is_the_loop(seed, rate, lowest):
    rng = np.random.default_rng(seed)
    archive = elites.grid((0, -1), (1, 1), (2, 3), 2, lowest)
    best, threshold = np.full(6, -np.inf), np.full(6, lowest)
    for _ in range(3):
        # Few values, so that there are equals; a cell has several candidates.
        fitness = rng.choice([-2.0, -0.5, 0.0, 0.25, 1.0, 3.0, np.nan], 12)
        descriptor = rng.uniform((0, -1), (1, 1), (12, 2))
        genome = rng.normal(size=(12, 2))
        cell = (descriptor[:, 0] * 2).astype(int) * 3 + ((descriptor[:, 1] + 1) / 2 * 3).astype(int)
        before = threshold.copy(), best.copy()
        best, threshold, row = loop(best, threshold, cell, fitness, rate)
        old = archive
        played = genome, fitness, descriptor
        archive, inserted = insert(archive, *map(jnp.asarray, played), rate)
        if rate == 1:
            jax.tree.map(np.testing.assert_array_equal, archive, insert(old, *map(jnp.asarray, played))[0])
        np.testing.assert_array_equal(archive.fitness, best)
        np.testing.assert_allclose(archive.threshold, threshold, rtol=1e-5)
        expected = np.where(row[:, None] >= 0, genome[row], old.genome)
        np.testing.assert_allclose(archive.genome, expected, rtol=1e-6)
        places = np.where(row[:, None] >= 0, descriptor[row], old.descriptor)
        np.testing.assert_allclose(archive.descriptor, places, rtol=1e-6)
        fine = np.isfinite(fitness)
        np.testing.assert_array_equal(inserted.refused, ~fine)
        np.testing.assert_array_equal(np.asarray(inserted.cell)[fine], cell[fine])
        np.testing.assert_array_equal(inserted.accepted, fine & (np.nan_to_num(fitness, nan=-9) > before[0][cell]))
        np.testing.assert_array_equal(inserted.new, fine & np.isinf(before[1][cell]))
    np.testing.assert_allclose(archive.coverage, np.isfinite(best).mean())
    np.testing.assert_allclose(archive.qd_score(-2.0), (best[np.isfinite(best)] + 2).sum(), rtol=1e-6)


def test_the_threshold_of_a_soft_archive_by_hand():
    archive = elites.grid((0.0,), (1.0,), (1,), 1, lowest=0.0)
    place = jnp.full((3, 1), 0.5)
    archive, inserted = insert(archive, jnp.zeros((3, 1)), jnp.array([4.0, -1.0, 2.0]), place, 0.5)
    # 0 -> 1 by the candidate of 2, then 2.5 by that of 4; the one of -1 is below all.
    np.testing.assert_allclose(archive.threshold, [2.5])
    np.testing.assert_allclose(archive.fitness, [4.0])
    np.testing.assert_allclose(inserted.improvement, [4, -1, 2])
    np.testing.assert_array_equal(inserted.accepted, [True, False, True])
    # A worse one is accepted by the threshold and does not replace the best.
    archive, inserted = insert(archive, jnp.ones((1, 1)), jnp.array([3.0]), place[:1], 0.5)
    assert inserted.accepted[0] and archive.fitness[0] == 4 and archive.genome[0, 0] == 0
    np.testing.assert_allclose(archive.threshold, [2.75])


def test_a_rate_of_one_sorts_nothing():
    archive, played = elites.grid((0.0,), (1.0,), (4,), 1), (jnp.zeros((8, 1)), jnp.zeros(8), jnp.zeros((8, 1)))
    assert " sort[" not in str(jax.make_jaxpr(elites.insert)(archive, *played))
    assert " sort[" in str(jax.make_jaxpr(elites.insert)(archive, *played, 0.5))


def test_an_archive_is_stretched_over_another_box():
    low, high = jnp.array([1.0, -4.0]), jnp.array([3.0, 4.0])
    whole = elites.grid((1, -4), (3, 4), (2, 4), 1)
    unit = elites.grid((0, 0), (1, 1), (2, 4), 1)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), elites.stretched(unit, low, high), whole)


def test_the_first_of_equals_stays():
    archive = elites.grid((0.0,), (1.0,), (2,), 1)
    genome = jnp.arange(3.0)[:, None]
    archive, _ = insert(archive, genome, jnp.array([1.0, 2.0, 2.0]), jnp.full((3, 1), 0.9))
    np.testing.assert_array_equal(archive.genome, [[0], [1]])
    archive, inserted = insert(archive, genome + 5, jnp.array([2.0, 1.0, 2.0]), jnp.full((3, 1), 0.9))
    assert archive.genome[1, 0] == 1 and not inserted.accepted.any() and archive.best == 1


def test_what_is_outside_is_at_the_edge_and_what_is_no_number_nowhere():
    archive = elites.grid((0, 0), (1, 1), (4, 4), 1)
    descriptor = jnp.array([[-5, 0.1], [1.0, 1.0], [2, 9], [np.nan, 0], [0, np.inf]])
    archive, inserted = insert(archive, jnp.zeros((5, 1)), jnp.ones(5), descriptor)
    np.testing.assert_array_equal(inserted.cell, [0, 15, 15, 16, 16])
    np.testing.assert_array_equal(inserted.outside, [True, False, True, False, False])
    np.testing.assert_array_equal(inserted.refused, [False, False, False, True, True])
    assert archive.filled.sum() == 2


def test_a_voronoi_archive_has_cells_of_equal_size():
    low, high = (0.0, -2.0), (1.0, 6.0)
    centroids = jax.jit(lambda key: elites.spread_out(key, low, high, 32, 4_000, 30))(KEY)
    archive = elites.voronoi(low, high, centroids, 1)
    points = jax.random.uniform(jax.random.key(1), (8_000, 2)) * jnp.array([1.0, 8.0]) + jnp.array(low)
    cell = np.asarray(elites.cell_of(archive, points))
    unit = np.array([1.0, 8.0])
    distance = np.linalg.norm((np.asarray(points)[:, None] - np.asarray(centroids)) / unit, axis=-1)
    assert (distance[np.arange(len(cell)), cell] <= distance.min(1) + 1e-5).all()
    counts = np.bincount(cell, minlength=32)
    assert counts.min() > 0.5 * counts.mean() and counts.max() < 1.7 * counts.mean()
    archive, _ = insert(archive, jnp.zeros((8_000, 1)), jnp.arange(8_000.0), points)
    best = np.zeros(32)
    np.maximum.at(best, cell, np.arange(8_000.0))
    np.testing.assert_array_equal(archive.fitness, best)


def test_parents_are_drawn_from_what_is_filled():
    archive = elites.grid((0.0,), (1.0,), (8,), 1)
    assert not elites.parents(KEY, archive, 4).any()
    archive, _ = insert(archive, jnp.array([[3.0], [5.0]]), jnp.zeros(2), jnp.array([[0.2], [0.9]]))
    drawn = np.asarray(elites.parents(KEY, archive, 400))[:, 0]
    assert set(drawn) == {3.0, 5.0} and 0.4 < (drawn == 3).mean() < 0.6


def test_emitters_have_the_spread_they_name():
    parent, other = jnp.zeros((20_000, 3)), jnp.broadcast_to(jnp.array([0.0, 0.0, 10.0]), (20_000, 3))
    np.testing.assert_allclose(elites.gaussian(KEY, parent, 0.2).std(0), 0.2, rtol=0.03)
    child = np.asarray(elites.iso_line(KEY, parent, other, 0.1, 0.3))
    np.testing.assert_allclose(child.std(0), [0.1, 0.1, np.hypot(0.1, 3)], rtol=0.03)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: elites.grid((0.0,), (0.0,), (3,), 1), "from 0 to 0: low must be below high"),
        (lambda: elites.grid((0.0,), (np.inf,), (3,), 1), "from 0 to inf"),
        (lambda: elites.grid((0.0, 1.0), (1.0,), (3,), 1), "one a descriptor"),
        (lambda: elites.grid((0.0,), (1.0,), (3, 3), 1), r"cells=\(3, 3\).*1 descriptors"),
        (lambda: elites.grid((0.0,), (1.0,), (0,), 1), r"cells=\(0,\)"),
        (lambda: elites.voronoi((0.0,), (1.0,), jnp.zeros((4, 2)), 1), r"\(4, 2\).*\(cells, 1\)"),
    ],
)
def test_impossible_archives_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
