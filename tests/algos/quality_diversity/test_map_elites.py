"""MAP-Elites: its rule on a function whose best cells are known, and the two kinds of children."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algos import map_elites
from jaxrl.quality_diversity import elites

KEY = jax.random.key(0)


def arm(genome):
    """A planar arm of D joints in [-pi, pi]: where its tip is, and how even its angles are."""
    angle = jnp.cumsum((2 * genome - 1) * jnp.pi)
    tip = jnp.stack([jnp.sum(jnp.cos(angle)), jnp.sum(jnp.sin(angle))]) / genome.shape[0]
    return -jnp.std(genome), tip


def illuminate(emitter, generations, hyper):
    archive = elites.grid((-1, -1), (1, 1), (10, 10), 8)

    @jax.jit
    def generation(carry, key):
        archive, population = carry
        fitness, descriptor = jax.vmap(arm)(population)
        archive, inserted = elites.insert(archive, population, fitness, descriptor)
        population = jnp.clip(map_elites.emit(key, archive, hyper, 64, emitter), 0, 1)
        return (archive, population), (archive.coverage, archive.qd_score(-1.0), inserted.outside.sum())

    start = archive, jax.random.uniform(KEY, (64, 8))
    return jax.lax.scan(generation, start, jax.random.split(KEY, generations))


def test_its_pieces_fill_an_archive_of_any_function():
    for emitter in map_elites.EMITTERS:
        (archive, _), (coverage, qd_score, outside) = illuminate(emitter, 80, map_elites.Hyper(sigma=0.1))
        assert coverage[-1] > 0.72 and coverage[0] < 0.35  # a disc has 0.785 of its square
        assert (np.diff(qd_score) >= -1e-3).all() and not outside.any()
        fitness, tip = jax.vmap(arm)(archive.genome)
        filled = np.asarray(archive.filled)
        np.testing.assert_allclose(archive.fitness[filled], fitness[filled], atol=1e-5)
        np.testing.assert_array_equal(elites.cell_of(archive, tip)[filled], np.flatnonzero(filled))


def test_children_are_clipped():
    archive = elites.grid((0.0,), (1.0,), (2,), 3)
    archive, _ = elites.insert(archive, jnp.full((1, 3), 4.9), jnp.zeros(1), jnp.zeros((1, 1)))
    child = map_elites.emit(KEY, archive, map_elites.Hyper(sigma=1.0, weight_clip=5.0), 100, "gaussian")
    assert child.max() == 5.0 and child.min() > 0
    # One parent alone: no line to spread along.
    child = map_elites.emit(KEY, archive, map_elites.Hyper(iso_sigma=0.0, line_sigma=9.0), 100)
    np.testing.assert_allclose(child, 4.9, rtol=1e-6)
