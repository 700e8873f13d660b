"""Novelty search: survivors by brute force, what is kept, and the control that draws its survivors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algos import novelty_search as ns
from jaxrl.quality_diversity import novelty

KEY = jax.random.key(0)
CONFIG = ns.Config(population_size=8, num_parents=4, neighbours=3, num_kept=2, capacity=6)


def members(rng, count, missing=()):
    fitness = rng.normal(size=count)
    fitness[list(missing)] = -np.inf
    genome, descriptor = rng.normal(size=(count, 2)), rng.normal(size=(count, 2))
    return ns.Members(*map(jnp.asarray, (genome, fitness, descriptor)))


def test_the_most_novel_survive():
    rng = np.random.default_rng(0)
    parents, children = members(rng, 4, [2]), members(rng, 8, [5])
    genome, fitness, descriptor = members(rng, 3)
    kept = novelty.keep(novelty.empty(6, 2, 2), genome, fitness, descriptor, jnp.ones(3, bool))
    places = np.concatenate([parents.descriptor, children.descriptor])
    alive = np.isfinite(np.concatenate([parents.fitness, children.fitness]))
    values = np.full(12, -np.inf)
    for i in np.flatnonzero(alive):
        others = [places[j] for j in np.flatnonzero(alive) if j != i] + list(np.asarray(kept.descriptor)[:3])
        values[i] = np.sort(np.linalg.norm(np.array(others) - places[i], axis=-1))[:3].mean()
    best = np.argsort(-values)[:4]
    after = jax.jit(lambda p, k, c: ns.next_parents(KEY, ns.Search(p, k), c, CONFIG))(parents, kept, children)
    genomes = np.concatenate([parents.genome, children.genome])
    np.testing.assert_allclose(after.genome, genomes[best], rtol=1e-6)


def test_kept_are_drawn_from_those_that_are_numbers():
    rng = np.random.default_rng(1)
    children, seen = members(rng, 8, [0, 3]), set()
    for seed in range(30):
        kept = ns.drawn(jax.random.key(seed), novelty.empty(6, 2, 2), children, 2)
        assert kept.count == 2
        seen |= {int(np.argmin(np.abs(np.asarray(children.fitness) - f))) for f in np.asarray(kept.fitness)[:2]}
    assert seen == {1, 2, 4, 5, 6, 7}
    assert ns.drawn(KEY, novelty.empty(6, 2, 2), members(rng, 8, range(1, 8)), 2).count == 1


def test_the_control_draws_its_survivors():
    rng = np.random.default_rng(2)
    parents, children = members(rng, 4), members(rng, 8)
    control = ns.Config(population_size=8, num_parents=4, capacity=6, selection="random")
    search = ns.Search(parents, novelty.empty(6, 2, 2))
    drawn = {
        tuple(np.asarray(ns.next_parents(jax.random.key(s), search, children, control).genome[:, 0])) for s in range(5)
    }
    assert len(drawn) == 5


def test_each_parent_has_as_many_children():
    parents = ns.Members(jnp.array([[0.0], [4.5]]), jnp.zeros(2), jnp.zeros((2, 1)))
    child = ns.children_of(KEY, parents, 200, ns.Hyper(sigma=0.5))
    np.testing.assert_allclose(child[:100].mean(), 0, atol=0.2)
    assert child[100:].min() > 2 and child.max() == 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(population_size=7, num_parents=4), "population_size=7.*num_parents=4"),
        (dict(num_kept=300), "num_kept=300"),
        (dict(selection="best"), "selection='best'.*novelty, random"),
        (dict(neighbours=0), "neighbours=0"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ns.Config(**settings)
