"""StumpWalker-v0: its physics against MuJoCo's own, its sensors against brute force, its task by hand."""

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import ppo
from jaxrl.environment import strongly_typed
from jaxrl.envs.physics import biped
from jaxrl.envs.physics.stump_walker import (
    END,
    FINISH,
    FLAT,
    FPS,
    START,
    STEP,
    Params,
    Track,
    draw_track,
    hull,
    hull_touches,
    lidar,
    reward_terms,
)

ENV, PARAMS = jaxrl.make("StumpWalker-v0")
KEY = jax.random.key(0)
UPRIGHT = (4.667, 2.54, 0.0, 0.05, -0.1, -0.05, -0.1)
LIMBS = ("thigh0", "shank0", "thigh1", "shank1")


def track_of(heights, spacing=0.6, start=4.9) -> Any:
    """A track in float64, of NumPy arrays."""
    padded = np.full(40, -1.0)
    padded[: len(heights)] = heights
    leaves: Any = [np.asarray(x, np.float64) for x in (padded, spacing, start, STEP)]
    return Track(*leaves)


def physics_of(dtype=np.float64):
    return jax.tree.map(lambda x: np.asarray(x, dtype), biped.Physics())


# ---- MuJoCo in C, with the contacts that the biped finds


def motors(action):
    with jax.enable_x64(True):
        return biped.motors(jnp.asarray(action), physics_of())


class Twin:
    """MuJoCo's model of the body, whose contacts are spheres on the limbs and planes that touch the track."""

    def __init__(self):
        spec = mujoco.MjSpec.from_string(biped.mjcf())
        for geom in spec.geoms:
            geom.contype = geom.conaffinity = 0
        friction = float(biped.Physics().friction)
        sphere, plane = mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_PLANE
        for n, limb in enumerate(LIMBS):
            for k in range(4):
                names, radius = (f"s{n}{k}", f"p{n}{k}"), float(biped.RADII[n % 2])
                spec.body(limb).add_geom(name=names[0], type=sphere, size=[radius, 0, 0], contype=0, conaffinity=0)
                spec.worldbody.add_geom(name=names[1], type=plane, size=[1, 1, 1], contype=0, conaffinity=0)
                pair = {"geomname1": names[0], "geomname2": names[1], "condim": 3}
                spec.add_pair(**pair, friction=[friction, friction, 0.005, 0.0001, 0.0001])
        self.model = spec.compile()
        self.model.geom_sameframe[:] = 0  # else positions of geoms at a body's origin are taken for zero
        self.model.opt.iterations, self.model.opt.tolerance = 100, 1e-14
        self.data = mujoco.MjData(self.model)

        @jax.jit
        def touches(qpos, track):
            q = biped.absolute(qpos)
            return biped.touches(biped.limbs(q, [(jnp.sin(x), jnp.cos(x)) for x in q[2:]]), track)

        self.touches = touches

    def place(self, track):
        model, data = self.model, self.data
        mujoco.mj_kinematics(model, data)
        with jax.enable_x64(True):
            distance, normal, center = jax.device_get(self.touches(jnp.asarray(data.qpos), track))
        for n, limb in enumerate(LIMBS):
            body = model.body(limb).id
            turn = data.xmat[body].reshape(3, 3)
            for k in range(4):
                at = n // 2, n % 2, k
                axis, way = (np.array([x[at], 0.0, z[at]]) for x, z in (center, normal))
                model.geom_pos[model.geom(f"s{n}{k}").id] = turn.T @ (axis - data.xpos[body])
                plane = model.geom(f"p{n}{k}").id
                model.geom_pos[plane] = axis - way * (biped.RADII[n % 2] + distance[at])
                tilt = np.arctan2(way[0], way[2]) / 2
                model.geom_quat[plane] = [np.cos(tilt), 0, np.sin(tilt), 0]

    def step(self, action, track=None, substeps=4):
        drive, brake = motors(action)
        self.data.ctrl[:] = np.stack(drive, 1).ravel()
        self.model.dof_damping[3:] = np.stack(brake, 1).ravel()
        for _ in range(substeps):
            if track is not None:
                self.place(track)
            mujoco.mj_step(self.model, self.data)


@pytest.fixture(scope="module")
def twin():
    return Twin()


@pytest.fixture(scope="module")
def advance():
    return jax.jit(lambda *args: biped.advance(*args))


TRACKS = {
    "dense": track_of(np.random.default_rng(0).uniform(0.05, 1.0, 40), spacing=0.05),
    "sparse": track_of(np.random.default_rng(1).uniform(0.2, 1.2, 40), spacing=0.6),
    "flat": track_of([]),
}


def test_scales_of_softness(twin):
    for n, limb in enumerate(LIMBS):
        np.testing.assert_allclose(twin.model.body(limb).invweight0[0], biped.WEIGHTS[n % 2], rtol=1e-7)
    np.testing.assert_allclose(twin.model.dof_invweight0[3:], np.tile(biped.JOINT_WEIGHTS, 2), rtol=1e-7)
    np.testing.assert_allclose(twin.model.body_mass.sum(), biped.MASS)


def test_inertia_and_bias(twin):
    """M and the centrifugal forces and weight in MuJoCo's own coordinates, at random motions."""
    rng = np.random.default_rng(0)
    data = mujoco.MjData(twin.model)
    to_absolute = np.stack([np.concatenate([np.ravel(x) for x in np_absolute(e)]) for e in np.eye(7)], 1)
    for _ in range(5):
        data.qpos[:], data.qvel[:] = rng.normal(size=7), 3 * rng.normal(size=7)
        mujoco.mj_forward(twin.model, data)
        full = np.zeros((7, 7))
        for i, unit in enumerate(np.eye(7)):
            mujoco.mj_mulM(twin.model, data, full[i], unit)
        q = np_absolute(data.qpos)
        turns = [(np.sin(x), np.cos(x)) for x in q[2:]]
        m = dense(biped.inertia(turns))
        np.testing.assert_allclose(to_absolute.T @ m @ to_absolute, full, atol=1e-12)
        force = np.concatenate([np.ravel(x) for x in biped.bias(turns, np_absolute(data.qvel), 10.0)])
        np.testing.assert_allclose(to_absolute.T @ force, data.qfrc_bias, atol=1e-11)


def np_absolute(q):
    return [q[0], q[1], q[2], q[2] + q[3::2], q[2] + q[3::2] + q[4::2]]


def dense(matrix):
    """The 7 x 7 matrix of an arrow: hull, thighs, shanks."""
    index = [[0], [1], [2], [3, 4], [5, 6]]
    out = np.zeros((7, 7))
    for (i, j), x in matrix.items():
        for leg in range(max(len(index[i]), len(index[j]))):
            a, b = index[i][leg % len(index[i])], index[j][leg % len(index[j])]
            out[a, b] = out[b, a] = np.ravel(x)[leg % np.size(x)]
    return out


def test_arrows_are_multiplied_and_solved():
    rng = np.random.default_rng(2)
    turns = [(np.sin(x), np.cos(x)) for x in (0.3, rng.normal(size=2), rng.normal(size=2))]
    matrix = biped.inertia(turns)
    vector = [0.3, -1.0, 2.0, rng.normal(size=2), rng.normal(size=2)]
    flat = np.concatenate([np.ravel(x) for x in vector])
    product = np.concatenate([np.ravel(x) for x in biped.multiply(matrix, vector)])
    np.testing.assert_allclose(product, dense(matrix) @ flat, rtol=1e-12)
    solution = np.concatenate([np.ravel(x) for x in biped.solve(matrix, vector)])
    np.testing.assert_allclose(solution, np.linalg.solve(dense(matrix), flat), rtol=1e-10)
    np.testing.assert_allclose(biped.product(vector, vector), flat @ flat)


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("name", TRACKS)
def test_steps_are_mujocos(name, twin, advance):
    """Each step from the state that C reached: float64 to 1e-9, float32 to its rounding."""
    track, data = TRACKS[name], twin.data
    narrow = jax.tree.map(lambda x: np.float32(x), (track, physics_of()))
    rng = np.random.default_rng(3)
    wide_errors, narrow_errors, contacts = [], [], 0
    for _ in range(2):
        mujoco.mj_resetData(twin.model, data)
        data.qpos[:] = UPRIGHT
        data.qvel[0] = 2.0
        action = np.zeros(4)
        for t in range(40):
            action = rng.uniform(-1, 1, 4) if t % 4 == 0 else action
            before = tuple(x.copy() for x in (data.qpos, data.qvel, data.qacc))
            twin.step(action, track)
            contacts += data.ncon
            with jax.enable_x64(True):
                ours = [np.asarray(x) for x in advance(*before, action, track, physics_of())]
            wide_errors.append(max(np.abs(ours[0] - data.qpos).max(), np.abs(ours[1] - data.qvel).max()))
            ours = np.asarray(advance(*(np.float32(x) for x in (*before, action)), *narrow)[0])
            narrow_errors.append(np.abs(ours - data.qpos).max())
    assert contacts > 30
    assert np.max(wide_errors) < 1e-9
    assert np.max(narrow_errors) < 1e-5


def test_capsules_and_boxes(advance):
    """A quarter of a second among real boxes, by MuJoCo's own collisions, is the same but for rounding of contacts."""
    track = track_of([0.3, 0.25, 0.4, 0.2], spacing=0.5, start=5.0)
    model = mujoco.MjModel.from_xml_string(biped.mjcf(track))
    assert sum(model.geom_type == mujoco.mjtGeom.mjGEOM_BOX) == 4
    data = mujoco.MjData(model)
    data.qpos[:] = UPRIGHT
    data.qvel[0] = 1.5
    q, v, a = data.qpos.copy(), data.qvel.copy(), np.zeros(7)
    action = np.array([0.3, 0.2, -0.2, 0.4])
    drive, brake = motors(action)
    data.ctrl[:] = np.stack(drive, 1).ravel()
    model.dof_damping[3:] = np.stack(brake, 1).ravel()
    touched = False
    for _ in range(12):
        for _ in range(4):
            mujoco.mj_step(model, data)
            boxes = [c for c in data.contact if model.geom_type[list(c.geom)].max() == mujoco.mjtGeom.mjGEOM_BOX]
            touched |= bool(boxes)
        with jax.enable_x64(True):
            q, v, a = advance(q, v, a, action, track, physics_of())
    assert touched
    np.testing.assert_allclose(q, data.qpos, atol=5e-3)


@pytest.mark.slow
def test_free_flight_conserves(advance):
    """Nothing touches, nothing pulls: whatever the motors do, momentum stays."""
    rng = np.random.default_rng(5)
    q, v = np.array([5.0, 50.0, 0.2, 0.1, -0.8, -0.2, -0.6]), rng.normal(size=7) * 0.5
    physics = physics_of().replace(gravity=np.float64(0.0))

    def momentum(q, v):
        q, v = np_absolute(q), np_absolute(v)
        pushed = biped.multiply(biped.inertia([(np.sin(x), np.cos(x)) for x in q[2:]]), v)
        return np.array(pushed[:2])

    losses = []
    for parts in (4, 64):
        moved = q, v
        with jax.enable_x64(True):
            for t in range(parts):
                action = np.sin(np.floor(4 * t / parts) + np.arange(4.0))
                moved = advance(*moved[:2], np.zeros(7), action, TRACKS["flat"], physics, 0.08 / parts)
            losses.append(np.abs(momentum(*map(np.asarray, moved[:2])) - momentum(q, v)).max())
    assert 1e-4 < losses[0] < 0.1
    assert 13 < losses[0] / losses[1] < 19  # an error of the first order in the step


# ---- the task


@pytest.fixture(scope="module")
def step():
    return jax.jit(ENV.step)


@pytest.mark.slow
def test_it_stands_on_the_ground(step):
    """On one leg, for a second, by a controller: the foot sinks in by a millimetre or so and stays where it is."""
    params = strongly_typed(FLAT)
    _, state = jax.jit(ENV.reset)(KEY, params)
    target, hips = np.array([0.15, -0.3, -0.25, -0.3]), np.array([2.0, 0.0, 2.0, 0.0])
    feet = []
    for _ in range(50):
        q, v = np.asarray(state.qpos), np.asarray(state.qvel)
        action = 3 * (target - q[3:]) - 0.1 * v[3:] + hips * (q[2] + 0.25 * v[2])
        ts = step(KEY, state, action.astype(np.float32), params)
        state = ts.state
        assert not ts.terminated
        angles = np_absolute(np.asarray(state.qpos))
        x, z = angles[0] + biped.HIP * np.sin(angles[2]), angles[1] - biped.HIP * np.cos(angles[2])
        for angle, length in ((angles[3][0], biped.LEG), (angles[4][0], biped.FOOT)):
            x, z = x + length * np.sin(angle), z - length * np.cos(angle)
        feet.append((x, z - biped.SHANK_RADIUS))
    x, z = np.array(feet[20:]).T
    assert np.all((z > -0.003) & (z < 0))
    assert np.ptp(x) < 0.002


def test_stumps_block(advance):
    """A walker thrown at a wall of 1.4 m is stopped by its legs."""
    track = track_of([1.4], start=6.0)
    q, v, a = np.array(UPRIGHT), np.array([4.0, 0, 0, 0, 0, 0, 0]), np.zeros(7)
    with jax.enable_x64(True):
        for _ in range(40):
            q, v, a = (np.asarray(x) for x in advance(q, v, a, np.zeros(4), track, physics_of()))
            angles = np_absolute(q)
            knee = q[0] + biped.HIP * np.sin(q[2]) + biped.LEG * np.sin(angles[3])
            foot = knee + biped.FOOT * np.sin(angles[4])
            hip = q[1] - biped.HIP * np.cos(q[2])
            low = hip - biped.LEG * np.cos(angles[3]) - biped.FOOT * np.cos(angles[4])
            assert np.all((foot + biped.SHANK_RADIUS < 6.0 + 0.03) | (low > 1.4))
    assert q[0] < 6.0 + 1.5


def test_tracks_are_drawn_as_in_the_paper():
    params = strongly_typed(Params().replace(stump_height=2.0, stump_spacing=1.0))
    tracks = jax.jit(jax.vmap(draw_track, (0, None)))(jax.random.split(KEY, 200), params)
    count = int(np.ceil((END - START) / (STEP + 1.0)))
    assert np.all(tracks.heights[:, :count] > 0) and np.all(tracks.heights[:, count:] == -1)
    heights = np.asarray(tracks.heights[:, :count]) / STEP
    np.testing.assert_allclose(heights.mean(), 2.0, atol=4 * 0.1 / np.sqrt(heights.size))
    np.testing.assert_allclose(heights.std(), 0.1, rtol=0.05)
    assert np.abs(np.corrcoef(heights[:, 0], heights[:, 1])[0, 1]) < 0.3

    least = draw_track(KEY, params.replace(stump_height=jnp.float32(0.0), stump_spacing=jnp.float32(0.0)))
    assert least.spacing == np.float32(0.01) and np.all(least.heights > 0)
    np.testing.assert_allclose(np.min(least.heights), 0.05 * STEP, rtol=1e-6)
    assert np.all(draw_track(KEY, strongly_typed(FLAT)).heights == -1)


def test_lidar():
    """Against MuJoCo's rays through the boxes, and the ground straight below."""
    rng = np.random.default_rng(4)
    track = track_of(rng.uniform(0.1, 1.4, 30), spacing=0.3, start=5.0)
    model = mujoco.MjModel.from_xml_string(biped.mjcf(track))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    group, found = np.zeros(1, np.int32), []
    points = np.stack([rng.uniform(3, 18, 60), rng.uniform(1.5, 2.6, 60)], 1)
    for x, z in points:
        rays = []
        for i in range(10):
            way = np.array([np.sin(0.15 * i), 0.0, -np.cos(0.15 * i)])
            far = mujoco.mj_ray(model, data, np.array([x, 0.0, z]), way, None, 1, -1, group)
            rays.append(min(far, 160 / 30) / (160 / 30) if far >= 0 else 1.0)
        found.append(rays)
    with jax.enable_x64(True):
        ours = jax.jit(jax.vmap(lidar, (0, 0, None)))(points[:, 0], points[:, 1], track)
    np.testing.assert_allclose(ours, found, atol=1e-9)
    assert np.std(np.asarray(ours)[:, 5:]) > 0.05


def test_falls():
    """The hull against the track point by point."""
    rng = np.random.default_rng(6)
    track = track_of(rng.uniform(0.2, 1.2, 30), spacing=0.2, start=5.0)
    q = np.zeros((300, 7))
    q[:, 0], q[:, 1], q[:, 2] = rng.uniform(3, 14, 300), rng.uniform(0.2, 2.0, 300), rng.uniform(-3, 3, 300)
    with jax.enable_x64(True):
        ours = np.asarray(jax.jit(jax.vmap(hull_touches, (0, None)))(q, track))
        corners = jax.vmap(hull)(jnp.asarray(q))
    share = np.linspace(0, 1, 400)[:, None]
    expected = []
    for x, z in zip(*map(np.asarray, corners), strict=True):
        px, pz = (c + share * (np.roll(c, -1) - c) for c in (x, z))
        number = np.floor((px - 5.0) / (0.2 + STEP)).astype(int)
        on = (px - 5.0 - number * (0.2 + STEP) <= STEP) & (number >= 0)
        top = np.where(on, np.asarray(track.heights)[np.clip(number, 0, 39)], 0.0)
        margin = (pz - np.maximum(top, 0.0)).min()
        expected.append(None if abs(margin) < 0.02 else bool(margin < 0))
    clear = np.array([e is not None for e in expected])
    assert 50 < sum(e is True for e in expected) < 250 and clear.sum() > 200
    np.testing.assert_array_equal(ours[clear], [e for e in expected if e is not None])


@pytest.mark.slow
def test_reward_by_hand(step):
    before, after = np.zeros(7, np.float32), np.zeros(7, np.float32)
    before[:3], after[:3] = (5.0, 2.0, 0.1), (5.3, 2.0, -0.3)
    action = np.array([0.5, -1.0, 0.0, 0.25], np.float32)
    moved = jnp.asarray(before), jnp.asarray(after), jnp.asarray(action)
    terms = reward_terms(*moved, jnp.bool_(False), PARAMS)
    np.testing.assert_allclose(terms["reward/forward"], 130 / 30 * 0.3, rtol=1e-5)
    np.testing.assert_allclose(terms["reward/upright"], -5 * 0.2, rtol=1e-5)
    np.testing.assert_allclose(terms["reward/effort"], -0.00035 * 80 * 1.75, rtol=1e-5)
    lost = reward_terms(*moved, jnp.bool_(True), PARAMS)
    assert sum(float(x) for x in lost.values()) == -100.0

    _, state = jax.jit(ENV.reset)(KEY, PARAMS)
    ts = step(KEY, state, 5 * action, PARAMS)  # clipped
    np.testing.assert_allclose(ts.info["reward/effort"], -0.028 * 3, rtol=1e-5)
    np.testing.assert_allclose(ts.reward, sum(v for k, v in ts.info.items() if k.startswith("reward/")), rtol=1e-5)
    shift = 130 / 30 * (ts.state.qpos[0] - state.qpos[0]) - 5 * np.abs(ts.state.qpos[2])
    np.testing.assert_allclose(ts.reward + 0.028 * 3, shift, atol=1e-4)


def test_ends(step):
    _, start = jax.jit(ENV.reset)(KEY, PARAMS)

    def at(**changes):
        q = np.array(start.qpos)
        for i, x in changes.items():
            q[int(i[1])] = x
        ts = step(KEY, start.replace(qpos=jnp.asarray(q)), np.zeros(4, np.float32), PARAMS)
        return bool(ts.terminated), float(ts.reward), bool(ts.info["success"])

    assert at()[::2] == (False, False)
    assert at(q1=0.28, q2=np.pi) == (True, -100.0, False)  # on its back
    assert at(q0=-0.1) == (True, -100.0, False)
    ended, reward, success = at(q0=FINISH + 0.1, q1=4.0)
    assert ended and success and reward > -10


def test_observation():
    reset = jax.jit(ENV.reset)
    obs, state = reset(KEY, PARAMS)
    np.testing.assert_allclose(obs[4:14], [-0.05, 0, 0.9, 0, 0, 0.05, 0, 0.9, 0, 0], atol=1e-6)
    np.testing.assert_allclose(obs[14], float(state.qpos[1]) / (160 / 30), rtol=1e-5)
    q, v = np.asarray(state.qpos).copy(), np.array([1.0, -2.0, 3.0, 0.4, 0.5, 0.6, 0.7], np.float32)
    q[1] -= 0.01  # into the ground, with the right leg
    obs = jax.jit(ENV.observe)(KEY, state.replace(qpos=jnp.asarray(q), qvel=jnp.asarray(v)), PARAMS)
    x, z = biped.TRUNK.com
    np.testing.assert_allclose(obs[:4], [0, 2 * 3 / FPS, 6 / FPS * (1 - 3 * z), 4 / FPS * (-2 + 3 * x)], atol=1e-6)
    np.testing.assert_allclose(obs[5:13:5], [0.1, 0.15], rtol=1e-5)
    np.testing.assert_allclose(obs[7:13:5], [0.5 / 6, 0.7 / 6], rtol=1e-5)
    assert obs[8] + obs[13] >= 1
    assert ENV.observation_space(PARAMS).contains(obs)


@pytest.mark.slow
def test_batches_are_loops_of_plain_operations():
    """Levels of heights and spacings in one program; no call of a library that could hang (docs/decisions.md)."""
    params = jax.tree.map(lambda x: jnp.stack([x] * 3), PARAMS)
    params = params.replace(stump_height=jnp.array([0.0, 1.5, 3.0]), stump_spacing=jnp.array([6.0, 0.5, 0.0]))
    keys = jax.random.split(KEY, 3)
    _, states = jax.jit(jax.vmap(ENV.reset))(keys, params)
    batched = jax.jit(jax.vmap(ENV.step))
    action = jax.random.uniform(KEY, (3, 4), minval=-1.0)
    text = batched.lower(keys, states, action, params).compile().as_text() or ""
    assert "custom-call" not in text and "fusion" in text
    ts = batched(keys, states, action, params)
    alone = jax.jit(ENV.step)
    for i in range(3):
        one = alone(*jax.tree.map(lambda x, i=i: x[i], (keys, states, action, params)))
        jax.tree.map(
            lambda x, y, i=i: np.testing.assert_allclose(x[i], y, rtol=1e-4, atol=1e-4), tuple(ts)[2:], tuple(one)[2:]
        )
        np.testing.assert_allclose(ts.obs[i], one.obs, rtol=1e-4, atol=1e-4)
    batched(keys, ts.state, action, params)
    assert batched._cache_size() == 1  # pyright: ignore[reportFunctionMemberAccess]


def test_bad_settings():
    with pytest.raises(ValueError, match="substeps=1 must be from 2 to"):
        jaxrl.make("StumpWalker-v0", substeps=1)
    with pytest.raises(ValueError, match="iterations=-1 must be from 1 to"):
        jaxrl.make("StumpWalker-v0", iterations=-1)
    for name, value, words in (
        ("stump_spacing", -1.0, "stump_spacing=-1.0 must be finite and not negative"),
        ("stump_height", np.nan, "stump_height=nan must be finite"),
        ("height_std", -0.1, "height_std=-0.1"),
    ):
        with pytest.raises(ValueError, match=words):
            ENV.validate(PARAMS.replace(**{name: value}))
    with pytest.raises(ValueError, match=r"friction=0\.0 must be finite and positive"):
        ENV.validate(PARAMS.replace(physics=PARAMS.physics.replace(friction=0.0)))


def test_render():
    _, state = jax.jit(ENV.reset)(KEY, PARAMS)
    frame = ENV.render(state, PARAMS)
    assert frame.shape == (250, 600, 3) and frame.dtype == np.uint8
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 5
    ahead = state.replace(qpos=state.qpos.at[0].add(1.0))
    assert np.any(ENV.render(ahead, PARAMS) != frame)


@pytest.mark.slow
def test_ppo_trains():
    algo = ppo.make(ENV, ppo.Config(num_envs=4, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,)))
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 2 * algo.steps_per_update))(KEY)
    assert int(state.step) == 64 and np.all(np.isfinite(metrics["loss"]))


@pytest.mark.slow
def test_no_engine_is_imported():
    code = """
import sys, jax, jaxrl
env, params = jaxrl.make("StumpWalker-v0")
jax.eval_shape(env.reset, jax.random.key(0), params)
print(sorted({"mujoco", "brax"} & set(sys.modules)))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    assert done.stdout.strip() == "[]", done.stderr[-1000:]
