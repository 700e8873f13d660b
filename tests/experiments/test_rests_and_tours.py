"""Cloned knapsacks and tours: demonstrations are optimal, equal rests have equal logits, 2-opt is never too good."""

from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.routing import tsp
from jaxrl.exact.routing import distances, held_karp


@pytest.fixture(scope="module")
def study(of_study):
    return of_study("bq_nco", "rests", "tours")


def test_demonstrations_follow_a_shortest_tour(study, monkeypatch):
    """The best way on from what is shown, by enumeration of the rest, begins with the city that is shown."""
    _, tours = study
    monkeypatch.setattr(tours, "TRAINED", 6)
    monkeypatch.setattr(tours, "STATES", 12)
    obs, action = jax.tree.map(np.asarray, jax.jit(tours.demonstrations)(jax.random.key(0)))
    for i, chosen in enumerate(action):
        left = np.flatnonzero(obs["action_mask"][i])
        ends = obs["origin"][i], obs["destination"][i]

        def way(order, i=i, ends=ends):
            places = np.stack([ends[0], *obs["cities"][i][list(order)], ends[1]])
            return np.linalg.norm(np.diff(places, axis=0), axis=1).sum()

        best = min(permutations(left), key=way)
        first = min((order for order in permutations(left) if order[0] == chosen), key=way)
        assert chosen in left and way(first) <= way(best) + 1e-6


def test_two_opt_is_never_shorter_than_the_shortest_tour(study):
    _, tours = study
    for seed in range(5):
        cities = jax.random.uniform(jax.random.key(seed), (7, 2))
        best = float(held_karp(distances(cities))[0])
        assert best - 1e-5 <= tours.two_opt(cities) <= 1.25 * best


def test_logits_are_of_the_rest_alone(study):
    """Items or cities that are gone, wherever they stand and however many, change nothing."""
    rests, tours = study
    items = jnp.array([[0.5, 0.2], [0.0, 0.0], [0.3, 0.6], [0.9, 0.4]])
    full = {"items": items, "capacity": jnp.array(0.7), "action_mask": items[:, 1] > 0}
    short = jax.tree.map(lambda x: x[jnp.array([0, 2, 3])] if jnp.ndim(x) else x, full)
    env = tsp.TSP(5)
    obs, _ = env.reset(jax.random.key(1), env.default_params)
    obs = {**obs, "action_mask": obs["action_mask"].at[2].set(False), "cities": obs["cities"].at[2].set(0)}
    kept = jnp.array([0, 1, 3, 4])
    fewer = {**obs, "cities": obs["cities"][kept], "action_mask": obs["action_mask"][kept]}
    for actor, whole, part, at in (
        (rests.RestActor(8, 1), full, short, jnp.array([0, 2, 3])),
        (tours.TourActor(8, 1), obs, fewer, kept),
    ):
        weights = actor.init(jax.random.key(0), whole)
        np.testing.assert_allclose(actor.apply(weights, whole)[at], actor.apply(weights, part), atol=1e-5)
