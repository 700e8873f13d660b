"""The single-drone tasks: against gym-pybullet-drones' episodes, closed forms, and controllers that solve them."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.canvas import BLUE, Canvas
from jaxrl.environment import strongly_typed
from jaxrl.envs.quadcopter import dynamics, models, rotations
from jaxrl.envs.quadcopter.control import actions, controllers
from jaxrl.envs.quadcopter.courses import paths
from jaxrl.envs.quadcopter.dynamics import at_rest
from jaxrl.envs.quadcopter.swarms.flock import Flock
from jaxrl.envs.quadcopter.swarms.multi_hover import MultiHover
from jaxrl.envs.quadcopter.tasks import gpd_hover, hover, velocity_tracking
from jaxrl.envs.quadcopter.tasks.gpd_hover import GpdHover
from jaxrl.envs.quadcopter.tasks.hover import Hover
from jaxrl.envs.quadcopter.tasks.landing import Landing
from jaxrl.envs.quadcopter.tasks.reach import Reach
from jaxrl.envs.quadcopter.tasks.recover import Recover
from jaxrl.envs.quadcopter.tasks.trajectory_tracking import TrajectoryTracking
from jaxrl.envs.quadcopter.tasks.velocity_tracking import VelocityTracking
from jaxrl.math import rough_normals
from jaxrl.testing.golden import golden

TASKS = (Hover, GpdHover, MultiHover, Reach, Landing, Recover, VelocityTracking, TrajectoryTracking)


def steer(x, y, z):
    """The action of the `velocity` level for a velocity in m/s."""
    return jnp.stack([jnp.clip(v / 3, -1, 1) for v in (x, y, z)] + [jnp.zeros(())])


def episodes(env, policy, carry, steps, params=None, seed=0):
    """Of `policy(state, carry, params)`, a row of `carry` an episode: rewards, infos, ends, positions, each (n, T)."""
    params = env.default_params if params is None else params

    def one(key, carry):
        _, state = env.reset(key, params)

        def body(loop, _):
            state, carry = loop
            action, carry = policy(state, carry, params)
            ts = env.step(key, state, action, params)
            return (ts.state, carry), (ts.reward, ts.info, ts.terminated, jnp.stack(ts.state.drone.position))

        return jax.lax.scan(body, (state, carry), None, steps)[1]

    n = jax.tree.leaves(carry)[0].shape[0]
    return jax.device_get(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), n), carry))


def start(env, params, seed=0):
    """`(obs, state)`"""
    return jax.jit(env.reset)(jax.random.key(seed), params)


# ---- against the references


@functools.cache
def reference():
    return golden("quadcopter_tasks")


def replay(env, commands):
    """Observed without history, rewards, ends and cuts of an episode, in double precision; and the last observation."""
    params = env.default_params
    _, state = start(env, params)

    def body(state, action):
        ts = env.step(jax.random.key(0), state, action, params)
        seen = jnp.stack(env.measured(ts.state, params), -1)
        return ts.state, (seen, ts.reward, ts.terminated, ts.truncated, ts.obs)

    return jax.device_get(jax.jit(lambda state, a: jax.lax.scan(body, state, a)[1])(state, jnp.asarray(commands)))


# 30 Hz is slow for the PID: it chatters, and rounding errors double every few steps.
LEVELS = {"rpm": ("rpm_band", 1e-10), "one_d_rpm": ("one_d_rpm", 1e-10), "pid": ("pid", 1e-9), "vel": ("vel", 1e-7)}
LEVELS["one_d_pid"] = ("one_d_pid", 1e-3)


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("kind", LEVELS)
def test_episodes_of_gym_pybullet_drones(kind):
    level, tolerance = LEVELS[kind]
    want = {k.removeprefix(f"hover_{kind}_"): v for k, v in reference().items() if k.startswith(f"hover_{kind}_")}
    with jax.enable_x64(True):
        seen, gains, ended, cut, obs = replay(GpdHover(action=level), want["actions"][:, 0])
    np.testing.assert_allclose(seen[:15], want["states"][:15, 0], rtol=0, atol=min(tolerance, 1e-9))
    np.testing.assert_allclose(seen, want["states"][:, 0], rtol=0, atol=tolerance)
    np.testing.assert_allclose(gains, want["rewards"], rtol=0, atol=1e-10)
    np.testing.assert_array_equal(ended, want["terminated"])
    np.testing.assert_array_equal(cut, want["truncated"])
    np.testing.assert_allclose(obs[-1], want["obs"][0], atol=max(tolerance, 2e-6))  # stored in single precision


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "tolerance"), [("rpm", 1e-10), ("vel", 1e-6)])
def test_episodes_of_two_drones(kind, tolerance):
    want = {k.removeprefix(f"multi_{kind}_"): v for k, v in reference().items() if k.startswith(f"multi_{kind}_")}
    with jax.enable_x64(True):
        env = MultiHover(action=LEVELS[kind][0])
        seen, gains, _, cut, obs = replay(env, want["actions"].reshape(len(want["actions"]), -1))
    np.testing.assert_allclose(seen, want["states"], rtol=0, atol=tolerance)
    np.testing.assert_allclose(gains, want["rewards"], rtol=0, atol=1e-8)
    np.testing.assert_array_equal(cut, want["truncated"])
    np.testing.assert_allclose(obs[-1], want["obs"].ravel(), atol=2e-6)


def test_time_limit_is_that_of_gym_pybullet_drones():
    want = reference()
    with jax.enable_x64(True):
        env = GpdHover(action="one_d_rpm")
        seen, gains, _, cut, _ = replay(env, np.zeros((243, 1)))
    np.testing.assert_array_equal(np.flatnonzero(cut), np.flatnonzero(want["hover_time_truncated"]))
    np.testing.assert_allclose(seen, want["hover_time_states"][:, 0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(gains, want["hover_time_rewards"], rtol=0, atol=1e-12)
    assert np.flatnonzero(cut)[0] == 241


def test_action_maps():
    """C07 of the fact sheet, and the two of learning-to-fly (C11)."""
    with jax.enable_x64(True):
        for a, want in zip(
            (-1.0, -0.5, 0.0, 0.5),
            (13745.007724325664, 14106.718453913181, 14468.429183500699, 14830.139913088215),
            strict=True,
        ):
            rpm, _ = actions.hold("one_d_rpm", jnp.array([a]), (), at_rest(models.CF2X), models.CF2X, None, 1 / 30)
            np.testing.assert_allclose(rpm, [want] * 4, rtol=1e-14)
        crazyflie = models.CRAZYFLIE
        rpm, _ = actions.hold(
            "rpm", jnp.array([-1.0, 0.0, 0.334053, 1.0]), (), at_rest(crazyflie), crazyflie, None, 0.01
        )
        np.testing.assert_allclose(rpm, [0, 10851, 14475.81, 21702], atol=0.01)
        rpm, _ = actions.hold("thrust", jnp.array([-1.0, 0.0, 0.5, 1.0]), (), at_rest(crazyflie), crazyflie, None, 0.01)
        np.testing.assert_allclose(np.square(rpm) / 21702**2, [0, 0.5, 0.75, 1], atol=1e-12)


def test_hover_reward_at_the_stages_of_the_curriculum():
    """C15: learning-to-fly's reward."""
    stages = {
        1.7673531225036063: hover.Weights(),
        1.7400138745036062: hover.Weights(position=6.0, velocity=0.014, action=0.014),
        1.7069889273036063: hover.Weights(position=7.2, velocity=0.0196, action=0.0196),
        0.5790142425036064: hover.EVALUATION,
    }
    turn = (0.9800665778412416, 0.19866933079506122, 0.0, 0.0)
    with jax.enable_x64(True):
        for want, weights in stages.items():
            terms = hover.rewards(
                *(jnp.array(x) for x in ((0.1, -0.2, 0.05), turn, (0.5, 0.0, -0.3), (0.0, 0.2, 0.4, 0.6))),
                strongly_typed(weights),
            )
            np.testing.assert_allclose(sum(terms.values()), want, rtol=1e-14)


def test_gpd_hover_reward():
    """C25."""
    cases = {
        (0.0, 0.0, 0.1125): 1.3795976318359378,
        (0.0, 0.0, 1.0): 2.0,
        (0.5, 0.5, 0.5): 1.4375,
        (1.4, 0.0, 0.1): 0.0,
    }
    with jax.enable_x64(True):
        for position, want in cases.items():
            got = gpd_hover.reward(tuple(map(jnp.asarray, position)), (0.0, 0.0, 1.0))
            np.testing.assert_allclose(got, want, rtol=1e-14)


def test_paths_of_the_simulators():
    """C24."""
    with jax.enable_x64(True):
        time = jnp.array([0.0, 1.0, 2.5, 5.0])
        eight = np.asarray(paths.position(paths.PATHS["figure_eight"], time))
        x = [0.0, -0.7557495743542582, 0.5406408174555976, 0.9096319953545183]
        y = [0.0, -1.8192639907090369, -0.5634651136828595, 1.081281634911195]
        np.testing.assert_allclose(eight, np.stack([x, y, np.zeros(4)], 1), atol=1e-12)
        lissajous = paths.PATHS["lissajous"]
        x = [0.0, 0.4675081213427074, -0.496354437049027, -0.11965783214377904]
        y = [0.0, 0.8229838658936564, 0.6631226582407952, -0.992708874098054]
        vx = [0.966643893412244, -0.34277664863380547, 0.11651604590099239, -0.9385549786734789]
        vy = [0.966643893412244, 0.5491163184904448, -0.723543343873025, 0.11651604590099239]
        np.testing.assert_allclose(paths.position(lissajous, time)[:, :2], np.stack([x, y], 1), atol=1e-12)
        np.testing.assert_allclose(paths.velocity(lissajous, time)[:, :2], np.stack([vx, vy], 1), atol=1e-12)
        upright = paths.position(paths.PATHS["upright_eight"], jnp.array([0, 125, 250, 499]) / 50)
        xz = [
            [0.0, 0.0],
            [0.9999950454033061, -0.0031478676351178],
            [-0.006295735270235435, 0.006295610499228],
            [0.0, 0.0],
        ]
        np.testing.assert_allclose(upright[:, (0, 2)], xz, atol=1e-9)


# ---- paths


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("name", [name for name in paths.PATHS if name != "random"])
def test_velocity_and_acceleration_are_derivatives(name):
    with jax.enable_x64(True):
        path = strongly_typed(paths.PATHS[name])
        time = jnp.linspace(-3.0, 17.0, 37)  # before the start and more than a round
        for f, df in ((paths.position, paths.velocity), (paths.velocity, paths.acceleration)):
            _, want = jax.jvp(lambda t, f=f: f(path, t), (time,), (jnp.ones_like(time),))
            np.testing.assert_allclose(df(path, time), want, atol=1e-9)


def test_waypoints_are_passed_smoothly():
    with jax.enable_x64(True):
        path = paths.PATHS["waypoints"]
        knots = jnp.arange(len(path.points)) * path.period / len(path.points)
        np.testing.assert_allclose(paths.position(path, knots), path.points, atol=1e-12)
        np.testing.assert_allclose(paths.position(path, knots + path.period), path.points, atol=1e-9)
        for f in (paths.position, paths.velocity, paths.acceleration):
            np.testing.assert_allclose(f(path, knots - 1e-9), f(path, knots + 1e-9), atol=1e-6)


@pytest.mark.slow
def test_random_paths_stay_within_their_amplitude_and_mutate_a_little():
    ranges = strongly_typed(paths.RandomPaths(offset=(0.0, 1.0, 2.0)))
    keys = jax.random.split(jax.random.key(0), 200)
    time = jnp.linspace(0, 8, 100)

    @jax.jit
    @jax.vmap
    def draw(key):
        path = paths.generate(key, ranges)
        near = paths.mutate(key, path, 0.1)
        return path, near, paths.position(path, time), paths.position(near, time)

    drawn, mutated, there, beside = draw(keys)
    away = np.abs(there - np.array([0.0, 1.0, 2.0])).max((0, 1))
    assert np.all(away <= [1.0 + 1e-5, 1.0 + 1e-5, 0.5 + 1e-5]) and np.all(away > [0.8, 0.8, 0.4])
    moved = np.abs(beside - there).max((1, 2))
    assert 0.01 < moved.min() and moved.max() < 0.6
    np.testing.assert_allclose(np.sum(mutated.amplitude, 1), np.sum(drawn.amplitude, 1), rtol=1e-5)
    paths.validate(drawn)
    speed, force = paths.demands(paths.PATHS["circle"])
    rate = 2 * math.pi / 5.5
    np.testing.assert_allclose((speed, force), (rate, rate**2), rtol=1e-5)


# ---- what is drawn


def test_attitudes_are_uniform_among_those_within_the_largest_tilt():
    u = jax.random.uniform(jax.random.key(0), (3, 20_000))
    for most in (0.3, math.pi / 2, math.pi):
        q = np.stack(hover.tilted(tuple(u), most))
        np.testing.assert_allclose(np.linalg.norm(q, axis=0), 1, atol=1e-6)
        angle = 2 * np.arctan2(np.linalg.norm(q[1:], axis=0), q[0])
        share = np.sort((angle - np.sin(angle)) / (most - math.sin(most)))  # its distribution function: uniform
        assert share[-1] <= 1 + 1e-4
        distance = np.abs(share - (np.arange(len(share)) + 0.5) / len(share)).max()
        assert distance < 1.63 / math.sqrt(len(share))  # Kolmogorov and Smirnov, 1 %
        axis = q[1:] / np.linalg.norm(q[1:], axis=0)
        np.testing.assert_allclose(axis.mean(1), 0, atol=0.015)
        np.testing.assert_allclose(axis @ axis.T / len(share), np.eye(3) / 3, atol=0.015)


def test_sensor_noise_is_normal():
    x = np.asarray(rough_normals(jax.random.key(0), (400, 1001)), np.float64)
    n = x.size
    assert abs(x.mean()) < 4 / math.sqrt(n) and abs(x.var() - 1) < 4 * math.sqrt(2 / n)
    assert abs((x**3).mean()) < 4 * math.sqrt(15 / n) and abs((x**4).mean() - 3) < 4 * math.sqrt(96 / n)
    flat = x.ravel()
    assert abs((flat[1:] * flat[:-1]).mean()) < 4 / math.sqrt(n)
    half = (n + 1) // 2  # the two of one random word
    assert abs((flat[:half][: n - half] * flat[half:]).mean()) < 4 / math.sqrt(n - half)


def test_noise_has_the_widths_of_the_params():
    env = Hover(history=0)
    params = env.default_params
    _, state = start(env, params)
    keys = jax.random.split(jax.random.key(1), 4000)
    seen = jax.jit(jax.vmap(env.observe, (0, None, None)))(keys, state, params)
    exact = np.stack([np.asarray(x) for x in env.measured(state, params)])
    want = np.repeat([0.001, 0.001, 0.002, 0.002], [3, 9, 3, 3])
    np.testing.assert_allclose(np.std(seen - exact, 0), want, rtol=0.08)


# ---- what every task shares


@pytest.mark.slow
def test_an_action_that_is_no_number_ends_that_episode_alone():
    env = Reach(action="rpm")
    venv = jaxrl.vectorize(env, 4, "dense")
    params = env.default_params
    _, vstate = start(venv, params)
    action = jnp.full((4, 4), 0.3)
    step = jax.jit(venv.step)
    good = step(jax.random.key(1), vstate, action, params)
    bad = step(jax.random.key(1), vstate, action.at[2, 1].set(jnp.nan), params)
    np.testing.assert_array_equal(bad.info["invalid"], [False, False, True, False])
    np.testing.assert_array_equal(bad.terminated, [False, False, True, False])
    others = jnp.array([0, 1, 3])
    for a, b in zip(jax.tree.leaves((good.obs, good.reward)), jax.tree.leaves((bad.obs, bad.reward)), strict=True):
        np.testing.assert_array_equal(a[others], b[others])
    for leaf in jax.tree.leaves((bad.obs, bad.reward, bad.state, bad.info)):
        assert np.all(np.isfinite(leaf))
    after = step(jax.random.key(2), bad.state, action, params)
    assert not np.any(after.info["invalid"])


def test_a_drone_of_a_swarm_whose_action_is_no_number_is_named():
    env = Flock(num_agents=3)
    params = env.default_params
    _, state = start(env, params)
    action = jnp.full((3, 4), 0.5)
    step = jax.jit(env.step)
    good, bad = (step(jax.random.key(1), state, a, params) for a in (action, action.at[1, 0].set(jnp.nan)))
    np.testing.assert_array_equal(bad.info["invalid"], [False, True, False])
    assert bad.terminated and not good.terminated and not np.any(good.info["invalid"])
    height = [np.asarray(ts.state.drone.position[2]) for ts in (good, bad)]
    np.testing.assert_array_equal(height[0][[0, 2]], height[1][[0, 2]])
    assert height[1][1] != height[0][1]
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((bad.obs, bad.reward, bad.state)))


@pytest.mark.slow
def test_latency_shifts_actions_and_history_holds_them():
    late, now = Hover(noise=False, latency=3, history=4), Hover(noise=False, history=4)
    params = now.default_params
    commands = jax.random.uniform(jax.random.key(1), (12, 4), minval=-1.0)

    def fly(env, commands):
        _, state = start(env, params)

        def body(state, action):
            ts = env.step(jax.random.key(0), state, action, params)
            return ts.state, (ts.obs, jnp.stack(ts.state.drone.position))

        return jax.jit(lambda s, a: jax.lax.scan(body, s, a)[1])(state, commands)

    obs, delayed = fly(late, commands)
    _, shifted = fly(now, jnp.concatenate([jnp.zeros((3, 4)), commands[:-3]]))
    np.testing.assert_allclose(delayed, shifted, atol=1e-6)
    np.testing.assert_array_equal(obs[9, 18:].reshape(4, 4), commands[6:10])  # those given, not those applied


@pytest.mark.slow
def test_privileged_part():
    env = Hover(privileged=True)
    params = env.default_params
    _, state = start(env, params, 3)
    ts = jax.jit(env.step)(jax.random.key(4), state, jnp.full(4, 2.0), params)  # clipped to 1
    hidden = np.asarray(ts.obs["privileged"])
    drone = ts.state.drone
    assert hidden.shape == (28,) and ts.obs["obs"].shape == (146,)
    rows = np.asarray(rotations.matrix(drone.quaternion)).ravel()
    want = [*drone.position, *rows, *drone.velocity, *drone.body_rates, *state.force, *state.torque]
    np.testing.assert_allclose(hidden[:24], np.asarray(want), atol=1e-6)
    np.testing.assert_allclose(hidden[24:], np.stack(drone.rpm) / 10851 - 1, atol=1e-5)
    np.testing.assert_array_equal(ts.obs["obs"][-4:], 1)
    np.testing.assert_allclose(ts.obs["obs"][:18], hidden[:18], atol=0.012)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"action='speed'; it is one of rpm, rpm_band"):
        Reach(action="speed")
    with pytest.raises(ValueError, match="num_drones=1"):
        MultiHover(num_drones=1)
    with pytest.raises(ValueError, match="path='square'"):
        TrajectoryTracking(path="square")
    with pytest.raises(ValueError, match="lookahead=-1"):
        TrajectoryTracking(lookahead=-1)
    with pytest.raises(ValueError, match="segments=0"):
        VelocityTracking(segments=0)


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        (Reach, {"goal_low": (2.0, 0.0, 0.5)}, "goal_low"),
        (Reach, {"reached": 0.0}, "reached"),
        (Landing, {"start_low": (-1.0, -1.0, -0.5)}, "start_low"),
        (Recover, {"start_tilt": 4.0}, "start_tilt"),
        (Recover, {"start_height": (2.0, 1.0)}, "start_height"),
        (VelocityTracking, {"hold": 0.0}, "hold"),
        (GpdHover, {"dt": -1.0}, "dt"),
        (Hover, {"arena": np.nan}, "arena"),
        (Hover, {"start_tilt": 5.0}, "start_tilt"),
        (Hover, {"guidance": 7.0}, "guidance"),
        (Hover, {"target": (0.0, np.nan, 0.0)}, "target"),
        (Hover, {"force_std": np.nan}, "force_std"),
        (Hover, {"position_noise": -1.0}, "position_noise"),
        (Hover, {"max_steps": -3}, "max_steps"),
        (Landing, {"pad": (0.0, 0.0, 1.0)}, "pad"),
        (MultiHover, {"start": np.zeros((3, 3))}, "start has shape"),
        (TrajectoryTracking, {"path": paths.PATHS["circle"].replace(period=0.0)}, "period"),
        (TrajectoryTracking, {"path": paths.PATHS["circle"].replace(phase=np.zeros((2, 3)))}, "phase"),
        (TrajectoryTracking, {"path": paths.Waypoints(np.zeros((2, 3)), 1.0)}, "3 points"),
        (TrajectoryTracking, {"path": paths.Waypoints(np.full((3, 3), np.nan), 1.0)}, "finite"),
    ],
)
def test_params_that_make_no_sense_are_refused(task, changes, message):
    env = task()
    with pytest.raises(ValueError, match=message):
        env.validate(strongly_typed(env.default_params.replace(**changes)))


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("task", TASKS)
def test_pictures(task):
    env = task()
    params = env.default_params
    frame = env.render(start(env, params)[1], params)
    assert frame.dtype == np.uint8 and frame.shape == (400, 480, 3) and len(np.unique(frame.reshape(-1, 3), axis=0)) > 3


def test_a_picture_tells_time_place_and_scale(monkeypatch):
    told = []
    monkeypatch.setattr(Canvas, "text", lambda self, at, text, *rest: told.append(text))
    monkeypatch.setattr(Canvas, "caption", lambda self, text: told.append(text))
    env = Hover(substeps=2, noise=False)
    params = env.default_params
    drone = at_rest(params.model, (0.25, -0.5, 1.0))
    state = start(env, params)[1].replace(time=jnp.int32(7), drone=drone)
    picture = env.render(state, params)
    assert told == ["0.5 m", *"xyz", "t = 0.14 s   at (0.25, -0.50, 1.00) m"]
    bar = np.all(picture[-50:, :115] < 80, -1).any(0)
    span = env.scene(state, params).span
    assert bar.sum() == pytest.approx(0.5 * 480 / span, abs=3), "a 480th of the span is a pixel"


def test_a_film_shows_the_path_so_far_in_the_arena():
    env = Hover(noise=False)
    params = env.default_params
    state = start(env, params)[1]
    drones = [at_rest(params.model, (x, 0.3 - x, 0.4)) for x in (-0.4, 0.0, 0.3)]
    states = jax.tree.map(lambda *x: jnp.stack(x), *[state.replace(drone=drone) for drone in drones])
    frames = env.render_episode(jax.device_get(states), params)
    blue = [np.all(np.abs(frame.astype(int) - BLUE) < 60, -1) for frame in frames]
    assert not blue[0].any() and 0 < blue[1].sum() < blue[2].sum()
    scene = env.scene(state, params)
    half = [np.ptp([scene.project(corner)[i] for corner in np.ndindex(2, 2, 2)]) * 2 * 0.6 for i in (0, 1)]
    assert half[0] < scene.span and half[1] < scene.span * 400 / 480, "all of the arena is seen"
    np.testing.assert_array_equal(env.render(jax.tree.map(lambda x: x[0], states), params), frames[0])


# ---- each task


def test_hover_judges_the_state_before_the_step_and_ends_at_its_box():
    env = Hover(noise=False)
    params = strongly_typed(env.default_params.replace(guidance=1.0, force_std=0.0, torque_std=0.0))
    step = jax.jit(env.step)
    _, state = start(env, params)
    action = jnp.array([0.1, -0.2, 0.5, 1.7])  # the last is clipped to 1

    def placed(x, vx):
        drone = at_rest(params.model, (x, 0.2, -0.1))
        return state.replace(drone=drone._replace(velocity=(jnp.float32(vx), jnp.float32(0), jnp.float32(0))))

    before = placed(-0.595, 1.0)
    inside = step(jax.random.key(0), before, action, params)
    effort = sum((a - 0.334) ** 2 for a in (0.1, -0.2, 0.5, 1.0))
    want = 2 - 0.5 * (5 * (0.595**2 + 0.2**2 + 0.1**2) + 0.01 * 1.0 + 0.01 * effort)
    assert not inside.terminated and float(inside.reward) == pytest.approx(want, rel=1e-5)
    terms = {k.removeprefix("reward/"): float(v) for k, v in inside.info.items() if k.startswith("reward/")}
    assert terms["orientation"] == 0 and terms["velocity"] == pytest.approx(-0.005)
    assert sum(terms.values()) == pytest.approx(float(inside.reward), rel=1e-6)
    outside = step(jax.random.key(0), placed(0.595, 1.0), action, params)
    assert outside.terminated and outside.reward == 0


def test_hover_guides_a_share_of_its_starts():
    env = Hover()
    params = strongly_typed(env.default_params.replace(guidance=0.25))
    drone = jax.jit(jax.vmap(lambda key: env.start(key, params)[0]))(jax.random.split(jax.random.key(0), 4000))
    position, tilt = np.stack(drone.position), np.asarray(drone.quaternion[0])
    guided = np.all(position == 0, 0)
    assert np.mean(guided) == pytest.approx(0.25, abs=0.03)
    np.testing.assert_array_equal(guided, tilt == 1)
    assert np.abs(position[:, ~guided]).max() == pytest.approx(0.2, rel=0.01)
    assert 2 * np.arccos(tilt).max() == pytest.approx(math.pi / 2, rel=0.01)


def test_a_velocity_can_be_held_for_ever():
    env = VelocityTracking()
    params = strongly_typed(env.default_params.replace(hold=np.inf))
    env.validate(params)
    _, state = start(env, params)
    first = env.reference(state, params)
    later = env.reference(state.replace(time=jnp.int32(10**6)), params)
    np.testing.assert_array_equal(first, later)
    assert np.any(np.asarray(first) != 0)


@pytest.mark.slow
def test_loops_fly_drones_whose_motors_do_not_lag():
    env = Reach(action="velocity", physics=dynamics.L2F.replace(motors="instant"))

    def still(state, carry, params):
        return jnp.zeros(4), carry

    _, _, ended, position = episodes(env, still, jnp.zeros((2, 1)), 200)
    assert not ended.any()
    # A force that is not known leaves a small error of velocity; an unstable loop falls to the floor.
    assert np.abs(position[:, -1] - position[:, 100]).max() < 0.15


@pytest.mark.slow
def test_agents_of_multi_hover_share_out_its_reward():
    joint, apart = MultiHover(num_drones=3), MultiHover(num_drones=3, joint=False)
    params = joint.default_params
    np.testing.assert_allclose(params.start[:, 0], [0, 0.1588, 0.3176], atol=1e-6)
    np.testing.assert_allclose(params.target[:, 2], [1.1125, 0.6125, 0.1125 + 1 / 3], atol=1e-6)
    obs, state = start(joint, params)
    action = jax.random.uniform(jax.random.key(1), (3, 4), minval=-1.0)
    together = jax.jit(joint.step)(jax.random.key(0), state, action.ravel(), params)
    each = jax.jit(apart.step)(jax.random.key(0), state, action, params)
    assert obs.shape == (3 * 72,) and each.obs.shape == (3, 72) and each.reward.shape == (3,)
    np.testing.assert_allclose(together.reward, each.reward.sum(), rtol=1e-6)
    np.testing.assert_allclose(together.obs, each.obs.ravel(), atol=1e-6)


def test_downwash_presses_on_the_drone_below():
    still, washed = MultiHover(), MultiHover(downwash=True)
    params = still.default_params
    params = params.replace(start=jnp.array([[0.0, 0.0, 0.5], [0.0, 0.0, 1.0]]))
    _, state = start(still, params)
    heights = [
        np.asarray(jax.jit(env.step)(jax.random.key(0), state, jnp.zeros(8), params).state.drone.position[2])
        for env in (still, washed)
    ]
    assert heights[1][0] < heights[0][0] - 1e-3 and abs(heights[1][1] - heights[0][1]) < 1e-6


@pytest.mark.optimised  # rounding decides when it leaves the band
def test_gpd_hover_is_worth_474_to_a_controller_of_its_height():
    """One-dimensional: thrust from height and its rate, through the 5 % band."""

    def policy(state, carry, params):
        height, rise = state.drone.position[2], state.drone.velocity[2]
        return jnp.clip(jnp.array([6.0]) * (1 - height) - 4.5 * rise, -1, 1), carry

    gains, _, ended, _ = episodes(GpdHover(action="one_d_rpm"), policy, jnp.zeros(1), 242)
    assert 474 < gains.sum() < 484 and not ended.any()


@pytest.mark.slow
@pytest.mark.parametrize("level", ["velocity", "waypoint"])
def test_reach_is_solved_and_falling_ends_it(level):
    def policy(state, falls, params):
        x, y, z = rotations.add(state.goal, state.drone.position, -1)
        if level == "waypoint":
            action = jnp.stack([*(jnp.clip(v, -1, 1) for v in (x, y, z)), jnp.zeros(())])
        else:
            action = steer(1.5 * x, 1.5 * y, 1.5 * z)
        return jnp.where(falls, jnp.array([0.0, 0.0, -1.0, 0.0]), action), falls

    gains, info, ended, positions = episodes(Reach(action=level), policy, jnp.arange(10) >= 6, 400)
    assert info["success"][:6, -1].all() and not ended[:6].any()
    assert info["distance"][:6, -1].max() < 0.07 and gains[:6, -1].min() > 0.85
    for i in range(6, 10):
        first = int(np.flatnonzero(ended[i])[0])
        assert positions[i, first, 2] < 0 and (positions[i, :first, 2] >= 0).all()
        assert gains[i, first] == -1 and (gains[i, :first] > 0).all()


@pytest.mark.slow
def test_attitude_and_rates_do_what_they_say():
    """A lean of 0.2 rad forward, and a turn to the left at 1 rad/s, at about the thrust that carries the weight."""
    for level, size in (("attitude", math.pi / 2), ("body_rates", 6.0)):
        env = Reach(action=level)
        params = env.default_params
        lift = 2 * params.model.weight / params.model.max_thrust - 1
        part = jnp.array([lift, 0.0, 0.2 / size, 0.0] if level == "attitude" else [lift, 0.0, 0.0, 1.0 / size])
        _, state = start(env, params)
        state, _ = jax.jit(
            lambda s, env=env, part=part, params=params: jax.lax.scan(
                lambda s, _: (env.step(jax.random.key(0), s, part, params).state, None), s, None, 150
            )
        )(state)
        if level == "attitude":
            np.testing.assert_allclose(rotations.euler(state.drone.quaternion), (0, 0.2, 0), atol=0.02)
        else:
            np.testing.assert_allclose(state.drone.body_rates, (0, 0, 1.0), atol=0.05)


@pytest.mark.slow
def test_landing_softly_succeeds_and_hard_crashes():
    def policy(state, descent, params):
        x, y, _ = state.drone.position
        return steer(-x, -y, jnp.where(x * x + y * y < 0.04, -descent, 0.0)), descent

    descents = jnp.where(jnp.arange(10) < 6, 0.4, 1.5)
    gains, info, ended, _ = episodes(Landing(action="velocity"), policy, descents, 700)
    assert info["success"][:6, -1].all() and not ended[:6].any() and gains[:6, -1].min() > 0.6
    for i in range(6, 10):
        first = int(np.flatnonzero(ended[i])[0])
        assert info["crashed"][i, first] and gains[i, first] == -1 and not info["success"][i, : first + 1].any()


@pytest.mark.slow
def test_recover_counts_the_time_at_rest():
    env = Recover(action="velocity")
    params = env.default_params.replace(
        start_tilt=jnp.asarray(1.0), start_rates=jnp.asarray(2.0), start_velocity=jnp.asarray(1.0)
    )
    gains, info, ended, _ = episodes(env, lambda s, c, p: (jnp.zeros(4), c), jnp.zeros(16), 300, params)
    saved = info["success"][:, -1]
    assert saved.mean() > 0.8 and not ended[saved].any()
    assert gains[saved, -1].min() > 0.8 and not info["success"][:, :49].any()


@pytest.mark.slow
def test_velocity_references_change_when_they_should():
    env = VelocityTracking(action="velocity")

    def policy(state, carry, params):
        return steer(*env.reference(state, params)), carry

    gains, info, ended, _ = episodes(env, policy, jnp.zeros(8), 500)
    assert not ended.any() and info["success"].mean() > 0.4 and gains.mean() > 0.6
    terms = info["reward/tracking"] + info["reward/rates"] + info["reward/crash"]
    np.testing.assert_allclose(gains, terms, atol=1e-6)

    params = env.default_params
    _, state = start(env, params)
    seen = np.asarray(
        jax.vmap(lambda t: jnp.stack(env.reference(state.replace(time=t), params)))(jnp.arange(500, dtype=jnp.int32))
    )
    changes = np.flatnonzero(np.any(np.diff(seen, axis=0) != 0, 1))
    assert len(changes) == 4 or len(changes) == 3
    np.testing.assert_allclose(np.diff(changes), 125, atol=1)  # 1.25 s
    assert np.abs(seen).max() <= 1


def test_crazyflow_reward_of_a_velocity():
    velocity, reference, rates = jnp.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    terms = velocity_tracking.reward(velocity, reference, rates, velocity_tracking.CRAZYFLOW)
    np.testing.assert_allclose(sum(terms), math.exp(-1), rtol=1e-6)


def follow(env):
    """The position loop, as an `rpm` policy, that knows the path."""

    def policy(state, carry, params):
        path, time = env.flown(state, params), env.now(state, params)
        setpoint = controllers.Setpoint(
            *(tuple(f(path, time)) for f in (paths.position, paths.velocity, paths.acceleration))
        )
        gains = strongly_typed(controllers.CascadeGains())
        rpm, carry = controllers.position_loop(carry, state.drone, setpoint, gains, params.model, params.dt)
        return jnp.stack(rpm) * 2 / params.model.max_rpm - 1, carry

    return policy


@pytest.mark.slow
@pytest.mark.parametrize(("path", "error"), [("random", 0.1), ("figure_eight", 0.3)])
def test_a_controller_follows_the_path(path, error):
    env = TrajectoryTracking(action="rpm", path=path)
    carry = jax.tree.map(lambda x: jnp.zeros(8), controllers.cascade_init())
    _, info, ended, _ = episodes(env, follow(env), carry, 400)
    assert not ended.any() and info["distance"].mean() < error


def test_tracking_shows_a_hover_policy_what_it_knows():
    env = TrajectoryTracking(action="rpm", history=32, lookahead=0)
    params = env.default_params
    obs, state = start(env, params)
    assert obs.shape == (146,)
    away = state.drone._replace(
        position=tuple(x + d for x, d in zip(state.drone.position, (3.0, -0.1, 0.0), strict=True))
    )
    seen = jax.jit(env.observe)(jax.random.key(0), state.replace(drone=away), params)
    at, velocity = env.target(state, params)
    np.testing.assert_allclose(seen[0], 0.6)
    np.testing.assert_allclose(seen[1], away.position[1] - at[1], atol=1e-6)
    np.testing.assert_allclose(seen[12:15], jnp.stack(state.drone.velocity) - jnp.stack(velocity), atol=1e-6)


@pytest.mark.slow
def test_points_ahead_are_where_the_path_will_be():
    env = TrajectoryTracking(path="lissajous", lookahead=3)
    params = env.default_params
    obs, state = start(env, params)
    for k in (1, 2, 3):
        later = env.now(state.replace(time=jnp.int32(10 * k)), params)  # 0.1 s are ten steps
        want = paths.position(env.flown(state, params), later) - jnp.stack(state.drone.position)
        np.testing.assert_allclose(obs[15 + 3 * k : 18 + 3 * k], want, atol=1e-5)


@pytest.mark.slow
def test_a_path_is_a_level():
    env = TrajectoryTracking(path="random").as_levels()
    params = env.default_params
    assert isinstance(params.path, paths.Fourier)

    def draw(key, params):
        return params.replace(path=paths.generate(key, strongly_typed(paths.RandomPaths())))

    venv = jaxrl.vectorize(env, 3, level_fn=draw)
    _, vstate = start(venv, params)
    assert len(np.unique(vstate.params.path.phase[:, 0, 0])) == 3
