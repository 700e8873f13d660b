"""CMA-ES of the study of the hard maze: a generation by hand, and what it does where nothing pays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import cma_me

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def climbed(of_study):
    (searches,) = of_study("quality_diversity", "searches")
    return jax.jit(searches.climbed, static_argnums=0)


def learner(id, **settings):
    config = cma_me.Config(population_size=8, num_emitters=1, hidden=(2,), num_steps=4, cells=(4,), **settings)
    return cma_me.make(jaxrl.make(id)[0], config)


def test_a_generation_climbs_the_reward(climbed):
    box = {"descriptor_low": (-4.0, -8.0), "descriptor_high": (4.0, 8.0)}
    algo = learner("Pendulum-v1", descriptor=("theta [rad]", "theta_dot [rad/s]"), **box)
    state = algo.init(KEY)
    _, rollout = jax.jit(algo.collect)(state)
    after = climbed(algo, state, jnp.zeros(state.population.shape[1]))
    order = np.argsort(-np.asarray(rollout.fitness))  # not by what is new in the archive
    emitter = jax.tree.map(lambda x: x[0], state.search.emitters)
    told = jax.jit(cma_me.tell)(emitter, state.search.noise, jnp.asarray(order), jnp.int32(4))
    for now, by_hand in zip(after.search.emitters, told, strict=True):
        np.testing.assert_allclose(now[0], by_hand, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        after.population, cma_me.ask(told, after.search.noise), rtol=1e-5, atol=1e-6
    )  # what plays next
    assert after.search.restarts == 0 and after.archive.filled.any()


def test_where_nothing_pays_it_begins_anew(climbed):
    algo = learner("HardMaze-v0")  # no area is met in four steps
    state = algo.init(KEY)
    anew = jnp.linspace(-1.0, 1.0, state.population.shape[1])
    after = climbed(algo, state, anew)
    np.testing.assert_array_equal(after.search.emitters.mean[0], anew)
    assert after.search.emitters.sigma[0] == state.hyper.sigma and after.search.restarts == 1
