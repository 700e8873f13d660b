"""Gate racing: gates and laps by hand, tracks and their curves, the reward, random levels, and the classical pilot."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.environment import strongly_typed
from jaxrl.envs.quadcopter import rotations
from jaxrl.envs.quadcopter.control.se3 import SE3Gains
from jaxrl.envs.quadcopter.courses import tracks
from jaxrl.envs.quadcopter.tasks import gate_racing
from jaxrl.envs.quadcopter.tasks.gate_racing import GateRacing, geometric_lap

ENV = GateRacing()
RESET, STEP = jax.jit(ENV.reset), jax.jit(ENV.step)
KEY = jax.random.key(0)


def point(*x):
    return tuple(jnp.asarray(a, float) for a in x)


# ---- gates


@pytest.mark.parametrize(
    ("yaw", "pitch", "normal", "left", "up"),
    [
        (0, 0, (1, 0, 0), (0, 1, 0), (0, 0, 1)),
        (90, 0, (0, 1, 0), (-1, 0, 0), (0, 0, 1)),
        (0, 90, (0, 0, 1), (0, 1, 0), (-1, 0, 0)),
        (180, -90, (0, 0, -1), (0, -1, 0), (-1, 0, 0)),
    ],
)
def test_axes_of_a_gate(yaw, pitch, normal, left, up):
    axes = tracks.axes(jnp.radians(yaw), jnp.radians(pitch))
    np.testing.assert_allclose(np.array(axes), [normal, left, up], atol=1e-6)


def test_crossing():
    """A gate at (1, 0, 2) that looks along y."""
    gate = point(1, 0, 2), jnp.array(math.pi / 2), jnp.array(0.0)
    crosses, forward, share, offset = tracks.crossing(point(1.2, -1, 2.5), point(1.6, 3, 2.9), *gate)
    assert crosses and forward
    np.testing.assert_allclose([share, offset], [0.25, 0.6], rtol=1e-6)  # at (1.3, 0, 2.6)
    crosses, forward, share, offset = tracks.crossing(point(1.6, 3, 2), point(1.2, -1, 2), *gate)
    assert crosses and not forward
    np.testing.assert_allclose([share, offset], [0.75, 0.3], rtol=1e-6)
    assert not tracks.crossing(point(1, -1, 2), point(1, -0.1, 2), *gate)[0]


def ring():
    """Four gates on the x axis, all along it, half a metre wide to either side, frames of 0.2 m."""
    gates = jnp.array([[0.0, 0, 1], [2, 0, 1], [4, 0, 1], [6, 0, 1]])
    return tracks.Track(gates, jnp.zeros(4), jnp.zeros(4), jnp.array(0.5), jnp.array(0.2))


def test_race():
    """Gates count in order, forwards and through the hole; frames are hit either way; laps are timed between steps."""
    track, radius = ring(), 0.1
    race = tracks.race_start(0)

    def move(race, x, y=0.0, back=False, time=0.0):
        way = (point(x - 1, y, 1), point(x + 1, y, 1))
        before, after = way[::-1] if back else way
        return tracks.race_step(race, track, before, after, radius, time, 0.5)[:3]

    race, passed, hit = move(race, 2.0)
    assert not passed and not hit and race.gate == 0  # the second gate is not next
    _, passed, hit = move(race, 0.0, back=True)
    assert not passed and not hit
    for y, through, frame in ((0.39, True, False), (0.41, False, True), (0.79, False, True), (0.81, False, False)):
        _, passed, hit = move(race, 0.0, y)
        assert (bool(passed), bool(hit)) == (through, frame)
        assert bool(move(race, 4.0, y, back=True)[2]) == frame
    for lap in range(3):
        for gate in range(4):
            race, passed, hit = move(race, 2.0 * gate, time=10.0 * lap**2 + gate)
            assert passed and not hit and race.passed == 4 * lap + gate + 1 and race.gate == (gate + 1) % 4
            np.testing.assert_allclose(race.lap_time, [0, 10, 30][lap])
    np.testing.assert_allclose(race.lap_start, 40 + 0.25)  # half way through the step


# ---- tracks


@pytest.mark.slow
@pytest.mark.parametrize("name", tracks.TRACKS)
def test_curve_through_a_track(name):
    """Through every centre along its normal, forwards; time derivatives are those of the position."""
    track = strongly_typed(tracks.TRACKS[name])
    gate_racing.validate(ENV.default_params.replace(track=track))
    curve = tracks.smoothest_curve(track)
    rate = jnp.float32(1.5)
    at = jax.vmap(lambda phase: jnp.stack([jnp.stack(x) for x in tracks.along(curve, phase, rate)]))
    here = at(jnp.asarray(curve.phase, jnp.float32))
    np.testing.assert_allclose(here[:, 0], track.gates, atol=1e-3)
    direction = here[:, 1] / np.linalg.norm(here[:, 1], axis=1, keepdims=True)
    normal = np.stack(tracks.axes(track.yaw, track.pitch)[0], -1)
    np.testing.assert_allclose(np.sum(direction * normal, 1), 1, atol=1e-4)
    if name == "loop":
        phase = jnp.linspace(0, 2 * math.pi, 401)
        all_ = np.asarray(at(phase), float)
        difference = np.gradient(all_[:, :4], axis=0) * float(rate) / (2 * math.pi / 400)
        scale = np.abs(all_[:, 1:]).max((0, 2), keepdims=True)
        np.testing.assert_allclose(difference[5:-5] / scale, all_[5:-5, 1:] / scale, atol=0.02)


@pytest.mark.slow
def test_tracks_are_a_batch_of_levels():
    many = jax.tree.map(lambda *x: jnp.stack(x), *(strongly_typed(t) for t in tracks.TRACKS.values()))
    params = ENV.default_params.replace(track=many)
    axes = jax.tree.map(lambda _: None, ENV.default_params).replace(track=jax.tree.map(lambda _: 0, many))
    obs, state = jax.jit(jax.vmap(ENV.reset, (None, axes)))(KEY, params)
    assert obs.shape == (5, 34) and len(np.unique(state.drone.position[0])) > 1
    gate_racing.validate(params)


@pytest.mark.slow
def test_random_levels():
    params = ENV.default_params
    keys = jax.random.split(KEY, 300)
    levels = jax.jit(jax.vmap(gate_racing.generate, (0, None)))(keys, params)
    gate_racing.validate(levels)
    assert np.all(np.abs(levels.track.gates[..., :2]).max((1, 2)) < 8)
    turns = np.diff(np.unwrap(levels.track.yaw, axis=1), axis=1).sum(1)
    assert (turns > 0).mean() > 0.3 and (turns < 0).mean() > 0.3
    near = jax.jit(jax.vmap(gate_racing.mutate))(keys, levels)
    gate_racing.validate(near)
    moved = np.any(near.track.gates != levels.track.gates, -1).sum(1)
    assert np.all(moved <= 1) and moved.mean() > 0.8


@pytest.mark.slow
@pytest.mark.light
def test_refused():
    params = ENV.default_params
    track = params.track
    low = track.replace(gates=track.gates.at[2, 2].set(0.5))
    together = track.replace(gates=track.gates.at[2].set(track.gates[3] + 0.1))
    for bad, message in (
        (params.replace(track=low), "in the ground"),
        (params.replace(track=together), "closer to the next"),
        (params.replace(track=track.replace(half_width=jnp.array(0.1))), "half_width"),
        (params.replace(track=track.replace(yaw=track.yaw[:3])), "yaw"),
        (params.replace(arena=jnp.array([5.0, 5.0, 5.0])), "arena"),
    ):
        with pytest.raises(ValueError, match=message):
            ENV.validate(bad)
    with pytest.raises(ValueError, match="history"):
        GateRacing(history=0)
    with pytest.raises(ValueError, match="frame='drone'; it is one of world, body"):
        GateRacing(frame="drone")


# ---- the task


def flying(position, velocity, gate=1, attitude=(1.0, 0.0, 0.0, 0.0)):
    _, state = RESET(KEY, ENV.default_params)
    drone = state.drone._replace(
        position=point(*position), velocity=point(*velocity), quaternion=tuple(jnp.asarray(x) for x in attitude)
    )
    return state.replace(drone=drone, goal=tracks.race_start(gate))


def straight():
    return ENV.default_params.replace(
        track=ring().replace(gates=jnp.array([[0.0, 0, 2], [3, 0, 2], [6, 0, 2], [9, 0, 2]]))
    )


@pytest.mark.slow
def test_reward_and_end():
    params = straight()
    action = jnp.array([0.1, 0.2, -0.3, 0.4])
    for position, velocity, passed, crashed in (
        ((1.0, 0.1, 2.1), (5.0, 0.0, 0.0), False, False),
        ((2.95, 0.1, 2.1), (5.0, 0.0, 0.0), True, False),
        ((2.95, 0.45, 2.1), (5.0, 0.0, 0.0), False, True),  # the frame
        ((1.0, 0.0, 0.21), (0.0, 0.0, -3.0), False, True),  # the ground
        ((1.0, 9.99, 2.0), (0.0, 3.0, 0.0), False, True),  # the arena
    ):
        state = flying(position, velocity)
        ts = STEP(KEY, state, action, params)
        drone = ts.state.drone
        center = np.array([3.0, 0, 2])
        progress = np.linalg.norm(position - center) - np.linalg.norm(np.array(drone.position) - center)
        rates = np.linalg.norm(np.array(drone.body_rates))
        expected = progress + passed - 2e-3 * rates - 1e-3 * 0.3 - 5 * crashed
        np.testing.assert_allclose(ts.reward, expected, atol=1e-5)
        assert bool(ts.terminated) == bool(ts.info["crashed"]) == crashed
        assert int(ts.info["gates"]) == passed and int(ts.state.goal.gate) == 1 + passed


def test_observation():
    """The next two gates in the body: the drone looks along y, and the last gate is followed by the first."""
    params = straight()
    attitude = rotations.from_euler(0.0, 0.0, math.pi / 2)
    state = flying((7.0, 1.0, 1.5), (1.0, 2.0, 3.0), gate=3, attitude=attitude)
    obs = ENV.observe(KEY, state, params)
    assert obs.shape == ENV.observation_space(params).shape == (34,)
    np.testing.assert_allclose(obs[:3], [-2, 1, -0.5], atol=1e-6)
    np.testing.assert_allclose(obs[18:24], [-1, -2, 0.5, 0, -1, 0], atol=1e-5)
    np.testing.assert_allclose(obs[24:30], [-1, 7, 0.5, 0, -1, 0], atol=1e-5)
    env = GateRacing(frame="body")
    seen = env.observe(KEY, state, params)
    assert seen.shape == env.observation_space(params).shape == (len(env.observation_names),) == (26,)
    np.testing.assert_allclose(seen[:10], [-0.5, 0, 0, 1, 2, -1, 3, 0, 0, 0], atol=1e-5)
    np.testing.assert_array_equal(seen[10:], obs[18:])
    rolled = rotations.from_euler(math.pi / 2, 0.0, 0.0)  # its left is the world's up
    seen = env.observe(KEY, flying((7.0, 1.0, 1.5), (1.0, 2.0, 3.0), attitude=rolled), params)
    np.testing.assert_allclose(seen[1:7], [0, 1, 0, 1, 3, -2], atol=1e-5)


def test_course():
    """Gates and shares of the way from one to the next, on whatever line: a lap is as many as there are gates."""
    params = straight()
    weights = params.weights.replace(progress=0.0, gate=0.0, rates=0.0, smoothness=0.0, course=2.0)
    params = params.replace(weights=weights)
    action = jnp.array([0.1, 0.2, -0.3, 0.4])
    for position, passed, after in (((1.0, 0.1, 2.1), 0, 3.0), ((2.95, 0.1, 2.1), 1, 6.0)):
        ts = STEP(KEY, flying(position, (5.0, 0.0, 0.0)), action, params)
        left = np.linalg.norm(np.array(ts.state.drone.position) - [after, 0, 2]) / 3
        expected = passed + np.linalg.norm(np.array(position) - [3.0, 0, 2]) / 3 - left
        np.testing.assert_allclose(ts.reward, 2 * expected, atol=1e-5)
        np.testing.assert_allclose(ts.info["reward/course"], ts.reward, atol=1e-6)
    first = gate_racing.left_of_leg(params.track, jnp.int32(0), point(-4.5, 0, 2))
    np.testing.assert_allclose(first, 0.5, rtol=1e-6)  # from the last gate, 9 m before the first


def test_gap_of_a_crossing():
    """Holes half a metre to either side, a sphere of 0.1 m, frames of 0.2 m: room up to 0.4 m off the centre."""

    def gap(y, x=(-0.5, 0.5), gate=0):
        ends = [(jnp.float32(x), jnp.float32(y), jnp.float32(1)) for x in x]
        return tracks.race_step(tracks.race_start(jnp.int32(gate)), ring(), *ends, 0.1, jnp.float32(0), 0.1)[3]

    np.testing.assert_allclose([gap(0.0), gap(-0.35), gap(0.6)], [0.4, 0.05, -0.2], atol=1e-6)
    assert all(np.isposinf([gap(0.9), gap(0.0, (0.5, -0.5)), gap(0.0, (-0.5, -0.1)), gap(0.0, gate=1)]))
    np.testing.assert_allclose(jax.grad(gap)(0.35), -1, rtol=1e-6)


def test_clearance():
    """What is missing of 0.3 m costs its square, where the gate is crossed; a derivative says which way is out."""
    params = straight()
    weights = params.weights.replace(progress=0.0, gate=0.0, rates=0.0, smoothness=0.0, crash=0.0, clearance=3.0)
    params = params.replace(weights=weights, clearance=jnp.float32(0.3))

    def reward(y, params):
        ts = STEP(KEY, flying((2.95, y, 2.0), (5.0, 0.0, 0.0)), jnp.zeros(4), params)
        return ts.reward, ts

    room = float(params.track.half_width - params.model.radius)
    for y, lacking in ((0.0, 0.0), (0.45, 0.45 + 0.3 - room), (-0.6, 0.6 + 0.3 - room), (4.0, 0.0)):
        (value, ts), slope = jax.value_and_grad(reward, has_aux=True)(jnp.float32(y), params)
        np.testing.assert_allclose(value, -3 * lacking**2, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(ts.info["reward/clearance"], value, rtol=1e-6)
        np.testing.assert_allclose(slope, -3 * 2 * lacking * np.sign(y), rtol=1e-3, atol=1e-6)
    free = params.replace(weights=weights.replace(clearance=jnp.float32(0.0)))
    assert jax.grad(reward, has_aux=True)(jnp.float32(0.6), free)[0] == 0
    with pytest.raises(ValueError, match="clearance"):
        ENV.validate(params.replace(clearance=jnp.float32(-0.1)))


@pytest.mark.slow
def test_starts():
    """Before the first gate or a random one, facing it."""
    params = ENV.default_params.replace(start_anywhere=jnp.array(0.75))
    drones, races = jax.jit(jax.vmap(lambda key: ENV.start(key, params)))(jax.random.split(KEY, 800))
    gates = np.asarray(races.gate)
    share = np.bincount(gates, minlength=8) / 800
    np.testing.assert_allclose(share, [0.25 + 0.75 / 8] + [0.75 / 8] * 7, atol=0.04)
    normal = np.stack(tracks.axes(params.track.yaw, params.track.pitch)[0], -1)
    behind = np.asarray(params.track.gates - 2 * normal)[gates]
    assert np.abs(np.stack(drones.position, -1) - behind).max() <= 0.3 + 1e-5
    np.testing.assert_allclose(rotations.unrotate(drones.quaternion, tuple(normal[gates].T))[0], 1, atol=1e-5)
    none = jax.vmap(lambda key: ENV.start(key, params.replace(start_anywhere=jnp.array(0.0)))[1].gate)
    assert not np.any(none(jax.random.split(KEY, 50)))


# ---- the classical pilot


@pytest.mark.slow
def test_geometric_lap():
    """In one program over time scales and gains: on time where that is slow enough, and not where it is too fast."""
    track = tracks.CIRCLE
    scales = jnp.array([1.2, 3.0, 4.0, 4.0])
    loose = SE3Gains().position
    gains = strongly_typed(SE3Gains()).replace(position=jnp.array([loose, loose, loose, (0.3, 0.3, 0.3)]))
    axes = jax.tree.map(lambda _: None, gains).replace(position=0)
    flown = jax.jit(jax.vmap(lambda gains, scale: geometric_lap(track, gains, scale, duration=8.5, laps=1), (axes, 0)))(
        gains, scales
    )
    assert flown.valid.tolist()[:3] == [False, True, True]
    np.testing.assert_allclose(flown.lap_time[1:3], scales[1:3], rtol=1e-3)
    assert np.all(flown.passed[1:3] == 9)
    radius = np.hypot(flown.position[1, :500, 0], flown.position[1, :500, 1])
    np.testing.assert_allclose(radius, 5, atol=0.2)
