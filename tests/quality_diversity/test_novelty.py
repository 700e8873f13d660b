"""Novelty equals sorting all distances, and an archive keeps the latest of what it was given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl.quality_diversity import novelty


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**16), k=st.sampled_from([1, 3, 30]))
def test_novelty_is_the_mean_of_the_sorted_distances(seed, k):
    rng = np.random.default_rng(seed)
    known, present = rng.normal(size=(20, 2)).astype(np.float32), rng.random(20) < 0.7
    point = np.concatenate([known[:5], rng.normal(size=(4, 2)).astype(np.float32)])
    itself = np.concatenate([np.arange(5), np.full(4, -1)])
    expected = []
    for p, own in zip(point, itself, strict=True):
        others = [j for j in range(20) if present[j] and j != own]
        distances = np.sort(np.linalg.norm(known[others] - p, axis=-1))[:k]
        expected.append(distances.mean() if len(distances) else np.inf)
    points, everything, there = (jnp.asarray(x) for x in (point, known, present))
    found = novelty.novelty(points, everything, there, k, jnp.asarray(itself))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_stranger_at_distance_zero_counts_and_the_point_itself_does_not():
    """Code that leaves out the nearest takes the stranger for the point."""
    known, all_ = jnp.array([[0.0], [0.0], [3.0]]), jnp.ones(3, bool)
    np.testing.assert_allclose(novelty.novelty(known[:1], known, all_, 2, jnp.array([0])), [1.5])
    np.testing.assert_allclose(novelty.novelty(known[:1], known, all_, 2), [0.0])


def test_what_is_no_number_is_never_novel():
    known = jnp.array([[0.0], [np.nan], [2.0]])
    found = novelty.novelty(jnp.array([[1.0], [np.nan]]), known, jnp.ones(3, bool), 2)
    np.testing.assert_array_equal(found, [1.0, -np.inf])
    assert novelty.novelty(known[:1], known, jnp.zeros(3, bool), 2)[0] == np.inf
    np.testing.assert_array_equal(novelty.fittest(jnp.array([1.0, np.nan, 3.0, 3.0]), 3), [2, 3, 0])


def test_keeps_the_latest():
    keep = jax.jit(novelty.keep)
    archive, kept = novelty.empty(5, 1, 1), []
    rng = np.random.default_rng(0)
    for _ in range(6):
        fitness = rng.integers(0, 100, 4).astype(np.float32)
        fitness[rng.random(4) < 0.2] = np.nan
        mask = rng.random(4) < 0.6
        archive = keep(archive, fitness[:, None], fitness, fitness[:, None], mask)
        kept += [f for f, m in zip(fitness, mask, strict=True) if m and np.isfinite(f)]
        present = np.asarray(archive.fitness)[np.asarray(archive.present)]
        assert sorted(present) == sorted(kept[-5:]) and archive.count == len(kept)
    archive = keep(novelty.empty(2, 1, 1), jnp.zeros((4, 1)), jnp.arange(4.0), jnp.zeros((4, 1)), jnp.ones(4, bool))
    assert sorted(archive.fitness.tolist()) == [2, 3]
    with pytest.raises(ValueError, match="capacity=0"):
        novelty.empty(0, 1, 1)
