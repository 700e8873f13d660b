"""Swarms: rewards by hand, who sees whom, collisions and downwash, and learning with shared weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import train, vectorize
from jaxrl.algos import ppo
from jaxrl.envs.quadcopter import dynamics
from jaxrl.envs.quadcopter.swarms import flock, formation, leader_follower, meetup, swarm
from jaxrl.evaluation import evaluate
from jaxrl.wrappers import agents_as_slots

POSITION = tuple(jnp.array(x) for x in ([0.1, 0.5, -0.2], [0.0, 0.3, 0.4], [0.9, 0.6, 1.1]))  # of three drones


def placed(env, params, position):
    """A state whose drones hover in `position`."""
    _, state = env.reset(jax.random.key(0), params)
    return state.replace(drone=state.drone._replace(position=tuple(jnp.asarray(x) for x in position)))


def test_rewards_of_the_2021_tasks():
    np.testing.assert_allclose(flock.reward(POSITION), [-(0.01 + 0.01), -0.09, -0.25], rtol=1e-5)
    followers = [-0.09 / 3, -0.04 / 3]
    np.testing.assert_allclose(leader_follower.reward(POSITION), [-(0.01 + 0.16), *followers], rtol=1e-5)
    pair = -(0.09 + 0.16 + 0.04)
    np.testing.assert_allclose(meetup.reward(POSITION), [pair, 0.0, pair], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "reward"),
    [
        (flock.Flock, flock.reward),
        (leader_follower.LeaderFollower, leader_follower.reward),
        (meetup.Meetup, meetup.reward),
    ],
)
def test_the_reward_is_of_the_state_after_the_step(task, reward):
    env, shared = task(num_agents=3), task(num_agents=3, shared_reward=True)
    params = env.default_params
    state, action = placed(env, params, POSITION), jnp.array([[0.3] * 4, [-0.2] * 4, [0.0, 0.1, 0.0, -0.1]])
    ts = jax.jit(env.step)(jax.random.key(1), state, action, params)
    assert np.any(ts.state.drone.position[2] != POSITION[2])
    np.testing.assert_allclose(ts.reward, reward(ts.state.drone.position), rtol=1e-6)
    together = jax.jit(shared.step)(jax.random.key(1), state, action, params)
    np.testing.assert_allclose(together.reward, np.full(3, np.mean(ts.reward)), rtol=1e-6)
    assert not ts.terminated and not ts.truncated


@pytest.mark.slow
def test_who_is_seen():
    env = flock.Flock(num_agents=3, neighbors=1)
    params = env.default_params
    state = placed(env, params, POSITION)
    velocity = (jnp.array([1.0, 2.0, 3.0]), jnp.zeros(3), jnp.zeros(3))
    state = state.replace(drone=state.drone._replace(velocity=velocity))
    obs = env.observe(jax.random.key(0), state, params)
    assert obs.shape == (3, 18 + 1 + 6 + 6) == (3, *env.observation_space(params).shape)
    p = np.stack(POSITION, -1)
    np.testing.assert_allclose(obs[:, :3], p - [0, 0, 1], atol=1e-6)
    np.testing.assert_array_equal(obs[:, 18], [1, 0, 0])
    np.testing.assert_allclose(obs[:, 19:22], p[[0, 0, 1]] - p, atol=1e-6)  # the one before
    np.testing.assert_allclose(obs[:, 22], [0, -1, -1])
    np.testing.assert_allclose(obs[:, 25:28], p[[2, 0, 0]] - p, atol=1e-6)  # 0.54, 0.58 and 0.54 m away
    np.testing.assert_allclose(obs[:, 28], [2, -1, -2])
    assert leader_follower.LeaderFollower().partners(jnp.arange(4.0)).tolist() == [0, 0, 0, 0]
    assert meetup.Meetup().partners(jnp.arange(4.0)).tolist() == [3, 2, 1, 0]


def test_nearest_first():
    position = (jnp.array([0.0, 3.0, 1.0, -0.5]), jnp.zeros(4), jnp.zeros(4))
    seen = np.stack(swarm.nearest(position, position, 3), -1).reshape(4, 3, 6)
    np.testing.assert_allclose(seen[0, :, 0], [-0.5, 1, 3])
    np.testing.assert_allclose(seen[1, :, 0], [-2, -3, -3.5])
    np.testing.assert_allclose(seen[:, :, 3], seen[:, :, 0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("height", "beside", "force"),
    [(0.5, 0, -0.30335943669061677), (0.5, 0.05, -0.07564334559224163), (1, 0.05, -0.04599919981650316)]
    + [(2, 0.3, -0.006834077381588346), (3, 0.5, -0.003381516191593203)],
)
def test_downwash_pushes_the_lower_drone(height, beside, force):
    """Case C09 of gym-pybullet-drones: the force [N], from the acceleration."""
    with jax.enable_x64(True):
        env = flock.Flock(num_agents=2, downwash=True, substeps=1, physics=dynamics.GPD_DYN)
        params = env.default_params
        state = placed(env, params, ([0.0, beside], [0.0, 0.0], [1.0, 1.0 + height]))
        around = env.surroundings(state, state.drone, params)
        rate = dynamics.derivative(params.model, state.drone, state.drone.rpm, env.physics, around)
        np.testing.assert_allclose(rate.velocity[2] * params.model.mass, [force, 0], rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_collisions():
    close = ([0.0, 0.11, 1.0], [0.0] * 3, [1.0] * 3)
    key, action = jax.random.key(0), jnp.zeros((3, 4))
    steps = {}
    for collisions in swarm.COLLISIONS:
        env = meetup.Meetup(num_agents=3, collisions=collisions)
        params = env.default_params
        steps[collisions] = jax.jit(env.step)(key, placed(env, params, close), action, params)
    assert swarm.touching(tuple(jnp.asarray(x) for x in close), 0.06).tolist() == [True, True, False]
    assert swarm.touching(tuple(jnp.asarray(x) for x in close), 0.054).tolist() == [False] * 3
    for name, ts in steps.items():
        assert ts.info["collided"].tolist() == [True, True, False]
        assert bool(ts.terminated) == (name == "terminate")
    plain, less = steps["ignore"].reward, steps["penalty"].reward
    np.testing.assert_allclose(less, plain - jnp.array([1.0, 1.0, 0.0]), atol=1e-6)
    np.testing.assert_allclose(steps["terminate"].reward, less, atol=1e-6)


@pytest.mark.slow
def test_formation():
    env = formation.Formation(num_agents=3)
    params = env.default_params.replace(start_spread=jnp.array(0.0))
    ahead, velocity = formation.slots(jnp.array(2.0), params)
    behind = formation.slots(jnp.array(1.998), params)[0]
    for a, b, v in zip(ahead, behind, velocity, strict=True):
        np.testing.assert_allclose((a - b) / 0.002, v, atol=2e-3)
    np.testing.assert_allclose(ahead[0][0], 0.5 * np.cos(1.0) + 0.5, rtol=1e-6)
    starts = jax.jit(jax.vmap(lambda key: env.start(key, params)[0].position))(jax.random.split(jax.random.key(0), 20))
    across = np.asarray(starts[1])  # y: a different one for each corner
    np.testing.assert_allclose(
        np.sort(across, 1), np.tile(np.sort(formation.polygon(3, 0.7)[:, 1]), (20, 1)), atol=1e-6
    )
    assert len(np.unique(across.round(3), axis=0)) == 6  # all orders occur
    reward = formation.reward((jnp.array([0.0, 0.3]), jnp.array([0.0, 0.0]), jnp.array([0.0, 0.4])))
    np.testing.assert_allclose(reward, [1.0, np.exp(-1.0)], rtol=1e-6)


@pytest.mark.slow
def test_a_lost_drone_ends_the_formation():
    env = formation.Formation(num_agents=2, action="rpm_band", substeps=1)
    params = env.default_params
    step = jax.jit(env.step)
    for position, ends in ((([1.0, 0.0], [0.0, 0.0], [1.0, 1.0]), False), (([4.1, 0.0], [0.0, 0.0], [1.0, 1.0]), True)):
        assert (
            bool(step(jax.random.key(0), placed(env, params, position), jnp.zeros((2, 4)), params).terminated) == ends
        )
    grounded = placed(env, params, ([1.0, 0.0], [0.0, 0.0], [1.0, 0.05]))
    assert step(jax.random.key(0), grounded, jnp.zeros((2, 4)), params).terminated


def test_refused():
    for settings, message in (
        ({"num_agents": 1}, "num_agents=1 must be from 2"),
        ({"neighbors": 4}, "neighbors=4 must be from 0 to 3"),
        ({"collisions": "bounce"}, "ignore, penalty, terminate"),
    ):
        with pytest.raises(ValueError, match=message):
            flock.Flock(**settings)
    env = formation.Formation(num_agents=3)
    with pytest.raises(ValueError, match="3 drones need"):
        env.validate(env.default_params.replace(offsets=formation.polygon(2)))


@pytest.mark.slow
def test_ppo_with_shared_weights():
    """A leader near its place and three at its height, where untrained ones drift: in 96,000 steps of the swarm."""
    env = leader_follower.LeaderFollower()
    venv = agents_as_slots(vectorize(env, 16))
    algo = ppo.make(
        venv, ppo.Config(num_envs=64, num_steps=60, num_epochs=8, normalize_obs=True, normalize_reward=True)
    )
    hyper = ppo.Hyper(learning_rate=1e-3, ent_coef=0.0)
    state, _ = jax.jit(lambda key: train(algo, key, 100 * algo.steps_per_update, hyper))(jax.random.key(0))

    @jax.jit
    def returns_of(policy):
        return evaluate(algo, policy, jax.random.key(1), env, env.default_params, num_episodes=4, greedy=True).returns

    untrained, trained = returns_of(algo.policy(algo.init(jax.random.key(0)))), returns_of(algo.policy(state))
    assert trained.shape == (4, 4)
    assert trained[:, 0].mean() > untrained[:, 0].mean() + 300


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 16, 32])
def test_no_formation_begins_with_a_collision(count):
    env = formation.Formation(num_agents=count)
    params = env.default_params
    env.validate(params)
    radius = params.model.radius
    drone = jax.jit(jax.vmap(lambda key: env.start(key, params)[0]))(jax.random.split(jax.random.key(0), 200))
    assert not np.any(jax.vmap(swarm.touching, (0, None))(drone.position, radius))
    slots, _ = formation.slots(jnp.float32(1.0), params)
    assert not np.any(swarm.touching(slots, radius))
    lost = jax.vmap(lambda drone: env.crashed(env.reset(jax.random.key(0), params)[1], drone, params))(drone)
    assert not np.any(lost)


def test_formations_that_touch_are_refused():
    env = formation.Formation(num_agents=16)
    params = env.default_params
    with pytest.raises(ValueError, match="slots are"):
        env.validate(params.replace(offsets=formation.polygon(16, 0.2)))
    with pytest.raises(ValueError, match="start_radius"):
        env.validate(params.replace(start_radius=jnp.float32(0.3)))
