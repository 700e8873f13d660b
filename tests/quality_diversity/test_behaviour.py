"""What is measured of an episode: against stepping it by hand, and what is said where nothing can be measured."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make, vectorize
from jaxrl.algos import map_elites, taxons
from jaxrl.environment import NO_LIMIT
from jaxrl.envs.classic.point_mass import PointMass
from jaxrl.evaluation import evaluate
from jaxrl.quality_diversity import behaviour, elites
from jaxrl.testing.probes import DelayedReward, ObservationActionReward, Privileged

KEY = jax.random.key(0)
SMALL = dict(population_size=3, num_steps=12, hidden=(4,), cells=(5,))


@dataclasses.dataclass(frozen=True)
class FromOnePlace(PointMass):
    """So that what a genome does is always the same."""

    def initial(self, key, params):
        state = super().initial(key, params)
        at = jnp.full_like(state.x, 0.1)
        return state.replace(x=at, y=-at, goal_x=5 * at, goal_y=at)


def point_mass():
    env = FromOnePlace()
    return env, env.default_params


@cache
def algo_of(**more):
    return map_elites.make(point_mass()[0], map_elites.Config(**{**SMALL, **more}))


def by_hand(algo, policy, env, params, num_steps):
    obs, state = env.reset(KEY, params)
    total, places = 0.0, []
    for _ in range(num_steps):
        action, _ = algo.act(policy, KEY, obs, greedy=True)
        obs, state, reward, terminated, truncated, _ = env.step(KEY, state, action, params)
        total, places = total + float(reward), [*places, (float(state.x), float(state.y))]
        if terminated or truncated:
            break
    return total, np.array(places)


@pytest.mark.parametrize("summary", behaviour.SUMMARIES)
def test_a_genome_is_judged_by_its_first_episode(summary):
    env, params = point_mass()
    params = params.replace(arena=jnp.float32(0.2))  # left within the steps by some, whose episode ends there
    algo = algo_of(summary=summary)
    state = algo.init(KEY, env_params=params)
    played, rollout = jax.jit(algo.collect)(state)
    assert played.step == 36 and 1 <= int(rollout.ends.done.sum()) <= 3
    for row in range(3):
        policy = behaviour.policy_of(state.replace(archive=state.archive.replace(genome=state.population)), row)
        total, places = by_hand(algo, policy, env, params, 12)
        np.testing.assert_allclose(rollout.fitness[row], total, rtol=1e-4)
        expected = places[-1] if summary == "final" else places.mean(0)
        np.testing.assert_allclose(rollout.descriptor[row], expected, atol=1e-5)


def test_every_cell_does_what_it_is_there_for():
    env, params = point_mass()
    algo = algo_of(num_steps=100)
    state = algo.init(KEY, env_params=params)
    update = jax.jit(algo.update)
    for _ in range(3):
        state, metrics = update(state)
    filled = np.flatnonzero(state.archive.filled)
    assert len(filled) == round(float(metrics["coverage"]) * 25) > 2
    judge = jax.jit(lambda policy: evaluate(algo, policy, KEY, env, params, num_episodes=2).returns)
    for cell in filled:
        np.testing.assert_allclose(judge(behaviour.policy_of(state, int(cell))), state.archive.fitness[cell], rtol=1e-3)
    deployed = judge(algo.policy(state))
    np.testing.assert_allclose(deployed, metrics["fitness_best"], rtol=1e-3)
    np.testing.assert_array_equal(elites.cell_of(state.archive, state.archive.descriptor[filled]), filled)


@dataclasses.dataclass(frozen=True)
class Broken(ObservationActionReward):
    """What is worth nothing that is a number, for half of the actions."""

    def reward(self, state, action):
        return jnp.where(action == 0, jnp.nan, 1.0)


def test_a_fitness_that_is_no_number_enters_no_cell():
    algo = map_elites.make(Broken(), map_elites.Config(**{**SMALL, "population_size": 32, "num_steps": 1}))
    state, metrics = jax.jit(algo.update)(algo.init(KEY))
    assert 0 < metrics["refused"] < 32 and metrics["fitness"] == 1 and metrics["fitness_best"] == 1
    assert np.isfinite(metrics["qd_score"]) and metrics["accepted"] == 32 - metrics["refused"]


def test_where_all_died_there_is_no_mean():
    algo = map_elites.make(Broken(), map_elites.Config(**{**SMALL, "num_steps": 1}))
    state, rollout = algo.collect(algo.init(KEY))
    _, metrics = algo.learn(state, rollout._replace(fitness=jnp.full(3, jnp.nan)))
    assert metrics["refused"] == 3 and metrics["coverage"] == 0
    assert np.isnan([metrics[name] for name in ("fitness", "loss", "fitness_best")]).all()


def test_a_generation_is_as_long_as_the_tasks_episodes():
    env, params = make("PointMass-v0")
    algo = map_elites.make(env, map_elites.Config(population_size=2, hidden=(4,)))
    assert algo.steps_per_update == 2 * params.max_steps
    assert jax.eval_shape(algo.collect, algo.init(KEY))[1].ends.done.shape == (params.max_steps, 2)
    algo.init(KEY, env_params=params.replace(max_steps=params.max_steps - 1))  # shorter ones fit
    with pytest.raises(ValueError, match=r"num_steps=0.*101: set num_steps"):
        algo.init(KEY, env_params=params.replace(max_steps=params.max_steps + 1))
    with pytest.raises(ValueError, match=r"num_steps=0.*no time limit: set num_steps"):
        map_elites.make(Endless(), map_elites.Config(population_size=2))


@dataclasses.dataclass(frozen=True)
class Endless(PointMass):
    @property
    def default_params(self):
        return super().default_params.replace(max_steps=jnp.int32(NO_LIMIT))


@pytest.mark.parametrize("centroids", [0, 6])
def test_the_box_is_of_the_params_that_are_trained_on(centroids):
    env, params = make("PointMass-v0")
    algo = algo_of(centroids=centroids, num_steps=2)
    archive = algo.init(KEY, env_params=params).archive
    wide = jax.jit(lambda key, arena: algo.init(key, env_params=params.replace(arena=arena)).archive)(KEY, 6.0)
    np.testing.assert_array_equal(archive.high, [2, 2])
    np.testing.assert_array_equal([wide.low, wide.high], [[-6, -6], [6, 6]])
    np.testing.assert_allclose(wide.centroids, 3 * archive.centroids, rtol=1e-5)
    given = algo_of(descriptor_low=(-1.0, -1.0), descriptor_high=(1.0, 1.0), num_steps=2)
    archive = given.init(KEY, env_params=params.replace(arena=jnp.float32(6))).archive
    np.testing.assert_array_equal(archive.high, [1, 1])
    several = map_elites.make(vectorize(env, 3, batched_params=True), map_elites.Config(**SMALL, common_starts=False))
    rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (3, *x.shape)), params)
    archive = several.init(KEY, env_params=rows.replace(arena=jnp.array([1.0, 5.0, 3.0]))).archive
    np.testing.assert_array_equal([archive.low, archive.high], [[-5, -5], [5, 5]])


def described(env, **config):
    return behaviour.descriptor_of(vectorize(env, 2), behaviour.Config(**config))


def test_names_and_limits_come_from_the_task():
    found = described(make("PointMass-v0")[0])
    assert found.names == ("x [m]", "y [m]") and found.low == (-2, -2) and found.high == (2, 2)
    one = described(
        make("PointMass-v0")[0], descriptor=("y_dot [m/s]",), descriptor_low=(-1.0,), descriptor_high=(3.0,)
    )
    assert one.names == ("y_dot [m/s]",) and one.high == (3,)
    observed = described(ObservationActionReward())
    assert observed.names == ("obs[0]",) and (observed.low, observed.high) == ((-1,), (1,))
    assert described(Privileged()).names == ("obs[0]",)
    two = described(make("PointMass-v0")[0], descriptor_low=(-1.0,) * 3, descriptor_high=(1.0,) * 3)
    assert two.names == ("x [m]", "y [m]", "x_dot [m/s]")


def two_agents():
    return dataclasses.dataclass(frozen=True)(type("Two", (DelayedReward,), {"num_agents": 2}))()


def refused(env, **config):
    return lambda: map_elites.make(env, map_elites.Config(**{**SMALL, **config}))


POINT = make("PointMass-v0")[0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (refused(POINT, descriptor=("height",)), r"descriptor 'height': PointMass-v0 measures no number.*'x \[m\]'"),
        (refused(POINT, descriptor=("x_dot [m/s]",)), r"'x_dot \[m/s\]': PointMass-v0 says no limits.*descriptor_low"),
        (refused(POINT, descriptor_low=(0.0,)), r"must be as many"),
        (refused(POINT, descriptor_low=(0.0, 0.0), descriptor_high=(1.0, 0.0)), r"from 0 to 0"),
        (
            refused(POINT, descriptor=("x [m]",), descriptor_low=(0.0, 0.0), descriptor_high=(1.0, 1.0)),
            r"a number for each of \('x \[m\]',\)",
        ),
        (refused(POINT, cells=(3, 3, 3)), r"cells=\(3, 3, 3\)"),
        (refused(POINT, descriptor=("x [m]", "x [m]")), r"each name once"),
        (refused(POINT, num_steps=-1), r"num_steps=-1"),
        (refused(POINT, summary="last"), r"summary='last'.*final, mean"),
        (refused(POINT, emitter="cma"), r"emitter='cma'.*iso_line"),
        (refused(two_agents()), r"2 agents"),
        (
            lambda: map_elites.make(vectorize(POINT, 3, batched_params=True), map_elites.Config(**SMALL)),
            r"common_starts=True.*batched_params",
        ),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_more_frames_than_steps_are_refused():
    small = dict(hidden=(4,), num_steps=4, population_size=4, num_parents=2, num_kept=2)
    algo = taxons.make(POINT, taxons.Config(**small, num_frames=5))
    with pytest.raises(ValueError, match=r"num_frames=5: .*num_steps=4 have at most 4"):
        jax.eval_shape(lambda key: algo.update(algo.init(key)), KEY)


def test_centroids_episodes_and_levels():
    env, params = make("PointMass-v0")
    venv = vectorize(env, 6, level_fn=lambda key, params: params.replace(mass=jax.random.uniform(key, (), minval=1.0)))
    config = map_elites.Config(**SMALL, num_episodes=2, centroids=7, emitter="gaussian")
    algo = map_elites.make(venv, config)
    state = jax.eval_shape(lambda key: algo.update(algo.init(key, env_params=params))[0], KEY)
    assert state.archive.fitness.shape == (7,) and state.archive.shape == ()
