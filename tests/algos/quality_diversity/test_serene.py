"""SERENE: where emitters begin, what they keep and bring to the archives, when they end, and whose turn it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make
from jaxrl.algos import serene
from jaxrl.algos.quality_diversity.novelty_search import Members

KEY = jax.random.key(0)
CONFIG = serene.Config(
    population_size=8, num_parents=4, num_emitters=3, members=2, step_size=4, num_kept=2, neighbours=3,
    capacity=20, reward_capacity=20, bootstrap=6,
)  # fmt: skip
EMPTY = serene.no_emitters(CONFIG, 1, 1)


def children(fitness, descriptor=None):
    fitness = jnp.asarray(fitness, jnp.float32)
    place = jnp.arange(len(fitness), dtype=jnp.float32) if descriptor is None else jnp.asarray(descriptor)
    return Members(10 * jnp.arange(len(fitness), dtype=jnp.float32)[:, None], fitness, place[:, None])


def test_the_std_is_the_distance_to_the_nearest_other():
    rng = np.random.default_rng(0)
    others = rng.normal(size=(7, 3)).astype(np.float32)
    expected = [np.sort(np.linalg.norm(others - others[i], axis=-1))[1] for i in (5, 6)]
    np.testing.assert_allclose(serene.spacing(jnp.asarray(others[5:]), jnp.asarray(others)), expected, rtol=1e-4)


def test_what_earns_something_starts_an_emitter_while_there_is_room():
    fitness = [0.0, 0.5, -np.inf, 0.1, 0.9, 0.2, 0.0, -1.0]
    value = jnp.array([9.0, 1.0, 9.0, jnp.inf, 3.0, 2.0, 9.0, 9.0])  # novelty: 3, then 4, then 5, then 1
    begun = serene.started(EMPTY, children(fitness), jnp.arange(8.0), value, EMPTY)
    np.testing.assert_array_equal(begun.ancestor.genome[:, 0], [30, 40, 50])
    np.testing.assert_array_equal(begun.sigma, [3, 4, 5])
    assert begun.active.all() and not jnp.isfinite(begun.members.fitness).any()
    one_free = begun._replace(active=jnp.array([True, False, True]), steps=jnp.array([3, 9, 4]))
    again = serene.started(one_free, children([0.0] * 6 + [0.7, 0.8]), jnp.arange(8.0), jnp.arange(8.0), EMPTY)
    np.testing.assert_array_equal(again.ancestor.genome[:, 0], [30, 70, 50])
    np.testing.assert_array_equal(again.steps, [3, 0, 4])
    none = serene.started(begun, children([1.0] * 8), jnp.arange(8.0), jnp.arange(8.0), EMPTY)
    jax.tree.map(np.testing.assert_array_equal, none, begun)


def test_members_are_the_best_and_archives_get_what_exceeds():
    emitters = EMPTY._replace(active=jnp.array([True, False, True]))
    owner = jnp.array([0, 0, 0, 0, 2, 2, 2, 2])
    step = jax.jit(lambda e, c, v: serene.advanced(e, c, v, owner))
    value = jnp.array([1.0, 5, 2, 3, 0, 0, 7, 0])
    emitters, enters = step(emitters, children([0.1, 0.3, 0.2, np.nan, 0.0, -0.5, 0.0, 0.0]), value)
    np.testing.assert_allclose(emitters.members.fitness[0], [0.3, 0.2])
    np.testing.assert_array_equal(emitters.members.genome[0, :, 0], [10, 20])
    np.testing.assert_array_equal(enters, np.arange(8) == 1)  # the first time the best alone; a reward of 0 never
    np.testing.assert_array_equal(emitters.steps, [1, 0, 1])
    np.testing.assert_allclose(emitters.first[0, 0], 0.25)
    assert np.isnan(emitters.first[0, 1]) and np.isnan(emitters.first[1]).all()
    np.testing.assert_allclose(emitters.most_novel, [5, -np.inf, 7])
    assert emitters.novel.genome[0, 0, 0] == 10
    emitters, enters = step(emitters, children([0.4, 0.35, 0.0, 0.25, 0.0, 0.0, 0.0, 0.0]), value + 3.5)
    np.testing.assert_array_equal(enters, np.arange(8) < 2)
    np.testing.assert_allclose(emitters.limit, [0.4, -np.inf, -np.inf])
    np.testing.assert_array_equal(emitters.rises[0], [2, 2])
    np.testing.assert_array_equal(np.sort(emitters.novel.genome[0, :, 0]), [10, 30])
    emitters, enters = step(emitters, children([0.39, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]), value)
    assert not enters.any()
    np.testing.assert_array_equal(emitters.rises[0], [2, 3])  # the median rose, the best did not
    np.testing.assert_allclose(emitters.first[0], [0.25, 0.375, 0.395], rtol=1e-5)


def test_who_does_not_improve_is_given_up_and_who_stops_rising_ends():
    flat, rising = jnp.full(3, 0.5), jnp.array([0.5, 0.6, 0.7])
    emitters = EMPTY._replace(
        active=jnp.ones(3, bool),
        steps=jnp.array([6, 200, 200]),
        first=jnp.stack([flat, flat, flat]),
        recent=jnp.stack([flat, rising, rising]),
        rises=jnp.array([[6, 6], [150, 99], [150, 180]]),
    )
    given_up, ended = serene.verdicts(emitters, 6, 100)
    np.testing.assert_array_equal(given_up, [True, False, False])
    np.testing.assert_array_equal(ended, [False, True, False])
    young = emitters._replace(steps=jnp.array([5, 5, 5]), rises=jnp.zeros((3, 2), int))
    assert not any(x.any() for x in serene.verdicts(young, 6, 1))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_emitters_that_get_better_go_on_however_few_there_are(number):
    """With few emitters each has several parts of a generation, which is one generation all the same."""
    emitters = EMPTY._replace(active=jnp.arange(3) < number)
    for generation in range(8):
        owner = serene.owners(jax.random.key(generation), emitters, jnp.arange(3.0), CONFIG)
        better = children(1 + generation + 0.1 * np.arange(8))
        emitters, _ = serene.advanced(emitters, better, jnp.zeros(8), owner)
        given_up, ended = serene.verdicts(emitters, CONFIG.bootstrap, 100)
        assert not given_up.any() and not ended.any(), generation
    assert emitters.steps.max() >= CONFIG.bootstrap, "none was judged"


def test_new_ones_come_first_then_those_that_few_surpass():
    E = 4
    config = serene.Config(population_size=8, num_parents=4, num_emitters=E, members=2, step_size=4, num_kept=2)
    improvement = jnp.array([0.2, 0.1, 0.3, 0.0])
    emitters = serene.no_emitters(config, 1, 1)._replace(
        active=jnp.ones(E, bool),
        steps=jnp.array([9, 9, 9, 2]),
        first=jnp.zeros((E, 3)),
        recent=jnp.broadcast_to(improvement[:, None], (E, 3)),
    )
    value = jnp.array([2.0, 1.0, 0.5, 0.1])  # 0 surpasses 1, and neither 0 nor 2 the other
    seen = {tuple(np.asarray(serene.owners(jax.random.key(s), emitters, value, config))[::4]) for s in range(20)}
    assert seen == {(3, 0), (3, 2)}
    alone = emitters._replace(active=jnp.array([False, True, False, False]))
    np.testing.assert_array_equal(serene.owners(KEY, alone, value, config), 1)
    nobody = emitters._replace(active=jnp.zeros(E, bool))
    np.testing.assert_array_equal(serene.owners(KEY, nobody, value, config), E)


@pytest.mark.slow
def test_it_finds_and_climbs_both_areas_of_the_maze():
    """Of a robot that drives faster than SERENE's, for 250 steps: 24,000 episodes."""
    env, params = make("HardMaze-v0")
    params = params.replace(max_steps=jnp.int32(250), max_speed=jnp.float32(0.025))
    algo = serene.make(env, serene.Config(num_steps=250, hidden=(5, 5), descriptor=("x", "y")))
    state, update = jax.jit(algo.init)(KEY, env_params=params), jax.jit(algo.update)
    for _ in range(120):
        state, metrics = update(state)
    place = np.asarray(state.archive.descriptor)[np.asarray(state.archive.fitness) > 0.5]
    areas = np.asarray(params.areas)
    inside = np.linalg.norm(place[:, None] - areas[:, :2], axis=-1) < areas[:, 2]
    assert inside.any(0).all() and metrics["rewarded"] > 20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(step_size=10), "step_size=10.*population_size=204"),
        (dict(members=13), "members=13"),
        (dict(reward_capacity=100), "reward_capacity=100.*268"),
        (dict(chunk=0), "chunk=0"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        serene.Config(**settings)


def test_it_explores_by_novelty_alone():
    with pytest.raises(ValueError, match="selection='random'"):
        serene.make(make("PointMass-v0")[0], serene.Config(selection="random"))
