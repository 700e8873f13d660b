"""The hard maze: steps and episodes of kheperax, geometry by hand, and what the areas are worth."""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make
from jaxrl.envs.navigation import hard_maze
from jaxrl.testing import golden

KEY = jax.random.key(0)


@cache
def kheperax():
    return make("KheperaxMaze-v0")


def pose_of(x, y, theta):
    return jnp.float32(x), jnp.float32(y), jnp.float32(theta)


def wrapped(angle):
    return (np.asarray(angle, float) + np.pi) % (2 * np.pi) - np.pi


def test_each_step_is_kheperaxs():
    env, params = kheperax()
    data = golden("kheperax")
    pose, obs = (data[name][:, :-1].reshape(-1, data[name].shape[-1]) for name in ("pose", "obs"))
    after, after_obs = (data[name][:, 1:].reshape(-1, data[name].shape[-1]) for name in ("pose", "obs"))

    @jax.jit
    @jax.vmap
    def step(pose, bumpers, action):
        state = hard_maze.State(jnp.int32(0), pose[0], pose[1], pose[2], bumpers)
        return env.observe(KEY, state, params), env.step(KEY, state, action, params)

    seen, ts = step(pose, obs[:, 3:], data["action"].reshape(-1, 2))
    np.testing.assert_allclose(seen, obs, atol=2e-5)
    np.testing.assert_allclose(ts.state.x, after[:, 0], atol=1e-6)
    np.testing.assert_allclose(ts.state.y, after[:, 1], atol=1e-6)
    np.testing.assert_allclose(wrapped(ts.state.theta - after[:, 2]), 0, atol=1e-5)
    np.testing.assert_allclose(ts.obs, after_obs, atol=2e-5)
    np.testing.assert_allclose(ts.reward, data["reward"].ravel(), rtol=1e-5)
    held = np.all(pose == after, -1)
    assert 50 < held.sum() < 1000 and not (ts.terminated | ts.truncated).any()
    assert (obs[:, :3] < 0.19).any(0).all()  # all lasers see something


def test_250_steps_of_each_robot_are_kheperaxs():
    env, params = kheperax()
    data = golden("kheperax")

    @jax.jit
    @jax.vmap
    def episode(start, actions):
        _, state = env.reset(KEY, params.replace(start=start))

        def step(state, action):
            ts = env.step(KEY, state, action, params)
            return ts.state, (jnp.stack([ts.state.x, ts.state.y, ts.state.theta]), ts.truncated)

        return jax.lax.scan(step, state, actions)[1]

    pose, truncated = episode(data["pose"][:, 0], data["action"])
    difference = np.asarray(pose) - data["pose"][:, 1:]
    np.testing.assert_allclose(difference[..., :2], 0, atol=1e-4)
    np.testing.assert_allclose(wrapped(difference[..., 2]), 0, atol=1e-3)
    np.testing.assert_array_equal(truncated.sum(1), 1)
    assert truncated[:, -1].all()
    np.testing.assert_allclose(data["pose"][0, 0], params.start, atol=1e-6)


def test_an_arc_by_hand():
    quarter = hard_maze.moved(pose_of(0.0, 0.0, 0.0), jnp.float32(0), jnp.float32(math.pi), jnp.float32(1.0))
    # About the left wheel, at (0, 1): a quarter of a circle of radius 1.
    np.testing.assert_allclose(quarter, [1, 1, math.pi / 2], atol=1e-6)
    turn = hard_maze.moved(pose_of(1.0, 2.0, 0.0), jnp.float32(-1), jnp.float32(1), jnp.float32(1.0))
    np.testing.assert_allclose(turn, [1, 2, 1], atol=1e-6)
    for wheel in (1e-3, 1e-5, 0.0):  # the series and the sine meet
        near = hard_maze.moved(pose_of(0.0, 0.0, 0.3), jnp.float32(0.1), jnp.float32(0.1 + wheel), jnp.float32(0.1))
        np.testing.assert_allclose(near[0], (0.1 + wheel / 2) * math.cos(0.3 + wheel / 0.4), rtol=1e-5)
    slope = jax.grad(lambda r: hard_maze.moved(pose_of(0.0, 0.0, 0.0), jnp.float32(0.1), r, jnp.float32(0.1))[0])(
        jnp.float32(0.1)
    )
    assert np.isfinite(slope)


def test_lasers_and_bumpers_by_hand():
    params = make("HardMaze-v0")[1]
    params = params.replace(radius=jnp.float32(0.05), laser_range=jnp.float32(0.2))
    params = params.replace(walls=params.walls[:4])  # the border alone
    seen = hard_maze.lasers(pose_of(0.5, 0.9, math.pi / 2), params)
    np.testing.assert_allclose(seen, [0.1 * math.sqrt(2), 0.1, 0.1 * math.sqrt(2)], rtol=1e-5)
    np.testing.assert_allclose(hard_maze.lasers(pose_of(0.5, 0.5, 0.0), params), 0.2)
    for heading, expected in ((0.1, [1, -1]), (-0.1, [-1, 1]), (3.0, [-1, -1])):
        np.testing.assert_array_equal(hard_maze.bumpers(pose_of(0.97, 0.5, heading), params), expected)
    assert hard_maze.touches(*pose_of(0.97, 0.5, 0)[:2], params)
    assert not hard_maze.touches(*pose_of(0.94, 0.5, 0)[:2], params)


def test_a_robot_turns_at_a_wall_or_sticks_to_it():
    env, params = make("HardMaze-v0")
    params = params.replace(start=jnp.array([0.98, 0.9, 0.2]))
    for walls, moves in (("turns", True), ("sticks", False)):
        task = hard_maze.HardMaze(walls=walls)
        _, state = task.reset(KEY, params)
        for _ in range(3):
            state = task.step(KEY, state, jnp.ones(2), params).state
        stuck = state.x
        assert (stuck <= 1 - params.radius) == moves
        turned = task.step(KEY, state, jnp.array([-1.0, 1.0]), params).state
        assert (turned.theta != state.theta) == moves
        for _ in range(20):
            state = task.step(KEY, state, jnp.array([-1.0, -0.9]), params).state
        assert (state.x < 0.95) == moves
    assert env.walls == "turns"


def test_the_walls_and_the_robot_are_chosen_apart():
    serene, kheperax = make("HardMaze-v0")[1], make("KheperaxMaze-v0")[1]
    for walls in ("turns", "sticks"):
        for robot, params in (("serene", serene), ("kheperax", kheperax)):
            default = hard_maze.HardMaze(walls=walls, robot=robot).default_params
            jax.tree.map(np.testing.assert_array_equal, default, params)
    assert serene.max_speed < kheperax.max_speed and serene.max_steps == 2000 and kheperax.max_steps == 250


def test_areas_pay_in_the_last_step():
    env, params = make("HardMaze-v0")
    params = params.replace(max_steps=jnp.int32(3))
    still = jnp.zeros(2)
    for place, worth, area in (
        ((0.1, 0.9), 1, 1),
        ((0.1, 0.9 - 1 / 24), 0.5, 1),
        ((1 / 6, 2 / 3), 1, 2),
        ((0.5, 0.1), 0, 0),
    ):
        _, state = env.reset(KEY, params.replace(start=jnp.array([*place, 0.0])))
        rewards = []
        for _ in range(3):
            ts = env.step(KEY, state, still, params)
            rewards, state = [*rewards, float(ts.reward)], ts.state
        np.testing.assert_allclose(rewards, [0, 0, worth], atol=1e-5)
        assert ts.truncated and not ts.terminated and ts.info["area"] == area


def test_the_target_ends_an_episode():
    task = hard_maze.HardMaze(task="target", walls="sticks", robot="kheperax")
    params = task.default_params
    _, state = task.reset(KEY, params.replace(start=jnp.array([0.15, 0.84, math.pi / 2])))
    ts = task.step(KEY, state, jnp.ones(2), params)
    np.testing.assert_allclose(ts.reward, -0.035, atol=1e-6)
    assert ts.terminated


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: hard_maze.HardMaze(task="goal"), "task='goal'; it is one of areas, energy, target"),
        (lambda: hard_maze.HardMaze(walls="slides"), "walls='slides'"),
        (lambda: hard_maze.HardMaze(robot="khepera"), "robot='khepera'; it is one of serene, kheperax"),
        (lambda: spec_of(radius=0.0), "radius"),
        (lambda: spec_of(walls=jnp.zeros((3, 2))), r"walls has shape \(3, 2\)"),
        (lambda: spec_of(areas=jnp.array([[0.0, 0.0, 0.0]])), "areas: a radius of"),
    ],
)
def test_impossible_mazes_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def spec_of(**changes):
    env, params = make("HardMaze-v0")
    env.validate(params.replace(**changes))
