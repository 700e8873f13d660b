"""The quadcopter core against gym-pybullet-drones, learning-to-fly, RLtools and crazyflow (golden data, float64 to
1e-10), against the laws of mechanics, and as a JAX program; and the rotations it stands on."""

import functools
import importlib.util
import json
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from jaxrl.envs.quadcopter import checks, dynamics, models, rotations
from jaxrl.envs.quadcopter.courses import paths
from jaxrl.envs.quadcopter.dynamics import Physics, Surroundings, at_rest
from jaxrl.envs.quadcopter.integrators import INTEGRATORS
from jaxrl.envs.quadcopter.simulate import simulate, stack
from jaxrl.testing.golden import golden

GOLDEN = Path(__file__).parents[2] / "golden"
spec: Any = importlib.util.spec_from_file_location("make_quadcopter", GOLDEN / "make_quadcopter.py")
make_quadcopter: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_quadcopter)
START, STATE, wobble = make_quadcopter.START, make_quadcopter.STATE, make_quadcopter.wobble
EVERY = make_quadcopter.EVERY

TOLERANCE = 1e-10
LIGHT = models.CRAZYFLIE


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def cases():
    return json.loads((GOLDEN / "quadcopter_cases.json").read_text())


@functools.partial(jax.jit, static_argnames=("physics", "steps"))
def flown(model, rpm, initial, physics, dt, steps=None, surroundings=dynamics.CALM):
    return simulate(model, rpm, initial, physics, dt, steps, surroundings)


@functools.partial(jax.jit, static_argnames="physics")
def later(model, drone, rpm, physics, dt, steps):
    """The state after any number of steps, in one program."""
    drone = jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(float)), drone)
    return jax.lax.fori_loop(0, steps, lambda _, d: dynamics.step(model, d, tuple(rpm), dt, physics), drone)


def agree(flight, case, rates="body_rates", tolerance=TOLERANCE):
    """The last state of a flight is that of a case."""
    q = case["quat_wxyz"] if "quat_wxyz" in case else np.roll(case["quat_xyzw"], 1)
    for got, expected in (
        (flight.position, case["pos"]),
        (flight.quaternion, q),
        (flight.velocity, case["vel"]),
        (flight.body_rates, case[rates]),
    ):
        np.testing.assert_allclose(got[-1], expected, rtol=0, atol=tolerance)


def rows(flight, world_rates=False):
    """(T, 13 or 17) of position, quaternion, velocity, rates and, unless these are in the world, rotors; from the
    first step on. `world_rates=None`: rates in the body and no rotors."""
    rates = flight.body_rates
    if world_rates:
        rates = jnp.stack(rotations.rotate(tuple(flight.quaternion.T), tuple(rates.T)), -1)
        return np.concatenate([flight.position, flight.quaternion, flight.velocity, rates], -1)[1:]
    return np.concatenate([*flight[: 4 if world_rates is None else 5]], -1)[1:]


def same_attitudes(got, expected, tolerance=TOLERANCE):
    """Rows equal but for the sign of the quaternion."""
    sign = np.sign(np.sum(got[..., 3:7] * expected[..., 3:7], -1, keepdims=True))
    got = np.concatenate([got[..., :3], sign * got[..., 3:7], got[..., 7:]], -1)
    np.testing.assert_allclose(got[..., :13], expected[..., :13], rtol=0, atol=tolerance)
    np.testing.assert_allclose(got[..., 13:], expected[..., 13:], rtol=1e-12, atol=tolerance)  # rotors: thousands


def begin(model, rpm=None, start=START):
    return at_rest(model, start["position"], make_quadcopter.quaternion(start["rpy"]), rpm)


# ---- golden: gym-pybullet-drones

GPD = {"cf2x": models.CF2X, "cf2p": models.CF2P, "racer": models.RACER}
LINKS = {"cf2x": models.CF2X_LINKS, "cf2p": models.CF2P, "racer": models.RACER_LINKS}
GPD_PHYSICS = {
    "dyn": dynamics.GPD_DYN,
    "pyb": dynamics.GPD_PYB,
    "pyb_gnd": dynamics.GPD_PYB.replace(ground_effect=True),
    "pyb_drag": dynamics.GPD_PYB.replace(drag="rotor_lagged"),
    "pyb_gnd_drag_dw": dynamics.GPD_PYB_GND_DRAG_DW,
}


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("kind", GPD_PHYSICS)
def test_gpd_flies_three_models(double, kind):
    """From a tilted start near the floor: explicit dynamics and PyBullet's, with its damping, its late links, ground
    effect and drag, all to rounding error."""
    data = golden("quadcopter_gpd")
    for name, model in (GPD if kind == "dyn" else LINKS).items():
        rpm = wobble(float(model.hover_rpm), 120)
        flight = flown(model, rpm, begin(model, 0.0), GPD_PHYSICS[kind], 1 / 240)
        got = rows(flight, None if kind == "dyn" else True)[EVERY]
        same_attitudes(got, _rates(data[f"{name}_{kind}"], flight, kind), 1e-12)


def _rates(data, flight, kind):
    """What the explicit dynamics observes as rates are the body rates turned by the attitude of one step before."""
    if kind != "dyn":
        return data
    before = tuple(flight.quaternion[:-1][EVERY].T)
    return np.concatenate([data[:, :10], np.stack(rotations.unrotate(before, tuple(data[:, 10:].T)), -1)], -1)


@pytest.mark.slow
def test_gpd_physics_steps_within_a_control_step(double):
    data = golden("quadcopter_gpd")
    for kind, physics in GPD_PHYSICS.items():
        model = (GPD if kind == "dyn" else LINKS)["cf2x"]
        rpm = np.repeat(wobble(float(model.hover_rpm), 24), 5, 0)
        flight = flown(model, rpm, begin(model, 0.0), physics, 1 / 240)
        got = rows(flight, True)[4:60:5][:, :10]
        np.testing.assert_allclose(got, data[f"cf2x_48_{kind}"][:, :10], rtol=0, atol=1e-12)


def test_gpd_downwash_of_a_pair(double):
    """The lower of two drones, whose own attitude the force follows one step late."""
    model = models.CF2X_LINKS
    commands = wobble(float(model.hover_rpm), 120)
    drone = jax.tree.map(lambda *x: jnp.stack(x), *(begin(model, 0.0, start) for start in make_quadcopter.PAIR))

    @jax.jit
    def fly(drone, commands):
        def body(drone, command):
            around = Surroundings(downwash=dynamics.downwash(model, jnp.stack(drone.position, -1)))
            both = tuple(jnp.broadcast_to(n, (2,)) for n in command)
            new = dynamics.step(model, drone, both, 1 / 240, dynamics.GPD_PYB, around)
            return new, stack(new)

        return jax.lax.scan(body, drone, commands)[1]

    flight = fly(drone, commands)
    got = np.concatenate([flight.position, flight.quaternion, flight.velocity], -1).swapaxes(0, 1)[:, EVERY]
    expected = golden("quadcopter_gpd")["pair_pyb_dw"]
    np.testing.assert_allclose(got, expected[..., :10], rtol=0, atol=1e-12)
    alone = flown(model, commands, begin(model, 0.0, make_quadcopter.PAIR[0]), dynamics.GPD_PYB, 1 / 240)
    assert np.max(np.abs(alone.position[1:][EVERY] - got[0, :, :3])) > 1e-3  # it did something


def test_gpd_constants_c01(double, cases):
    for name, case in cases["cases"]["C01_gpd_constants"].items():
        model = GPD[name]
        np.testing.assert_allclose(model.hover_rpm, case["hover"], rtol=1e-14)
        np.testing.assert_allclose(model.max_rpm, case["max"], rtol=1e-14)
        np.testing.assert_allclose(model.max_thrust, case["max_thrust"], rtol=1e-14)
        np.testing.assert_allclose(model.thrust_to_weight, case["t2w"], rtol=1e-14)
        np.testing.assert_allclose([model.mass, *model.inertia], [case["m"], *case["J"]])
        np.testing.assert_allclose([model.thrust[2], model.torque[2]], [case["kf"], case["km"]])
        np.testing.assert_allclose(model.propeller_radius, case["rp"])
        arm = np.hypot(model.rotor_x, model.rotor_y)
        np.testing.assert_allclose(arm, case["L"], rtol=1e-14)


@pytest.mark.slow
def test_gpd_cases_c02_to_c06(double, cases):
    table, seen = cases["cases"], cases["gym_pybullet_drones"]
    hover = float(models.CF2X.hover_rpm)
    roll, pitch = np.array([0.99, 0.99, 1.01, 1.01]), np.array([0.99, 1.01, 1.01, 0.99])
    single = {
        "C02_gpd_free_fall_240steps": (np.zeros(4), 240),
        "C03_gpd_hover_240steps": (np.full(4, hover), 240),
        "C04_gpd_pure_yaw_48steps": (hover * np.sqrt([0.95, 1.05, 0.95, 1.05]), 48),
        "C05a_gpd_roll_24steps": (hover * roll, 24),
        "C05b_gpd_pitch_24steps": (hover * pitch, 24),
    }
    start = at_rest(models.CF2X, (0.0, 0.0, 1.0), rpm=0.0)
    for name, (rpm, steps) in single.items():
        if "rpm" in table[name]:
            np.testing.assert_allclose(rpm, table[name]["rpm"], rtol=1e-14)
        # One program for all: the commands after the case's end are not looked at.
        flight = flown(models.CF2X, np.tile(rpm, (240, 1)), start, dynamics.GPD_DYN, 1 / 240)
        flight = jax.tree.map(lambda x, n=steps: x[: n + 1], flight)
        agree(flight, table[name])
        agree(flight, seen[name.split("_")[0]]["state"])
        np.testing.assert_allclose(rotations.euler(flight.quaternion[-1]), table[name]["rpy"], rtol=0, atol=TOLERANCE)
    for name, model in GPD.items():
        rpm = wobble(float(model.hover_rpm), 120)
        start = at_rest(model, (0.0, 0.0, 1.0), rpm=0.0)
        flight = flown(model, rpm, start, dynamics.GPD_DYN, 1 / 240)
        agree(flight, table[f"C06_gpd_tumble_{name}_120steps"])
        agree(flight, seen[f"C06_{name}"]["state"])
    for kind in ("pyb", "pyb_drag", "pyb_gnd_drag_dw"):
        model = models.CF2X_LINKS
        rpm = wobble(float(model.hover_rpm), 120)
        flight = flown(model, rpm, at_rest(model, (0.0, 0.0, 1.0), rpm=0.0), GPD_PHYSICS[kind], 1 / 240)
        case = seen[f"C06_cf2x_{kind.upper()}"]
        case["world"] = rows(flight, True)[-1, 10:]
        np.testing.assert_allclose(case["world"], case["ang_vel_world_obs"], rtol=0, atol=TOLERANCE)
        agree(flight, case | {"body_rates": flight.body_rates[-1]})


def test_gpd_bullet_falls_as_seen(double, cases):
    """PyBullet's own damping in 4 s of free fall from 200 m."""
    seen = cases["gym_pybullet_drones"]["PYB_free_fall"]
    model = models.CF2X_LINKS
    drone = at_rest(model, (0.0, 0.0, 200.0), rpm=0.0)
    for steps, speed in zip((240, 240, 480), seen["vz_1s_2s_4s"], strict=True):
        drone = later(model, drone, np.zeros(4), dynamics.GPD_PYB, 1 / 240, steps)
        np.testing.assert_allclose(drone.velocity[2], speed, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(drone.position[2], seen["z_4s_from_200"], rtol=0, atol=TOLERANCE)


def test_gpd_ground_effect_c08(double, cases):
    for name, case in cases["cases"]["C08_gpd_ground_effect"].items():
        model = GPD[name]
        for height, ratio in zip(case["heights"], case["ratio_extra_over_base"], strict=True):
            drone = at_rest(model, (0.0, 0.0, height))
            extra = dynamics.ground_effect(model, drone, (1000.0,) * 4)
            np.testing.assert_allclose(extra, ratio * model.thrust[2] * 1e6, rtol=1e-12)
        tipped = at_rest(model, (0.0, 0.0, 0.1), rotations.from_euler(0.0, 2.0, 0.0))
        assert not np.any(dynamics.ground_effect(model, tipped, (1000.0,) * 4))
    seen = cases["gym_pybullet_drones"]["PYB_GND_z0.06_1step"]
    start = at_rest(models.CF2X_LINKS, (0.0, 0.0, 0.06))
    flight = flown(models.CF2X_LINKS, np.tile(start.rpm[0], (120, 4)), start, GPD_PHYSICS["pyb_gnd"], 1 / 240)
    agree(jax.tree.map(lambda x: x[:2], flight), seen, "ang_vel_world_obs")


def test_gpd_downwash_c09(double, cases):
    table = cases["cases"]["C09_gpd_downwash_Fz_body"]
    loss = jax.jit(lambda p: dynamics.downwash(models.CF2X, p))
    pairs = jnp.array([[[0.0, 0.0, 1.0], [case["dxy"], 0.0, 1.0 + case["dz"]]] for case in table])
    got = jax.vmap(loss)(pairs)
    np.testing.assert_allclose(got[:, 0], [case["Fz"] for case in table], rtol=0, atol=TOLERANCE)
    seen = cases["gym_pybullet_drones"]["PYB_DW_dz1_dxy.05_lower_force"]
    np.testing.assert_allclose(got[4], [seen, 0.0], rtol=0, atol=TOLERANCE)
    positions = jnp.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.6875], [20.0, 0.0, 1.5]])  # singular; too far
    assert np.all(np.isfinite(jax.jit(jax.jacobian(loss))(positions)))


def test_gpd_drag_c10(double, cases):
    case = cases["cases"]["C10_gpd_drag"]
    drone = begin(models.CF2X, start={"position": (0, 0, 1.0), "rpy": case["rpy"]})
    drone = drone._replace(velocity=tuple(case["v_world"]))
    force = dynamics.drag_force(models.CF2X, drone, tuple(case["rpm"]), None, Physics(drag="rotor"))
    np.testing.assert_allclose(force, case["F_world"], rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(rotations.unrotate(drone.quaternion, force), case["F_body"], rtol=0, atol=TOLERANCE)
    still = dynamics.drag_force(models.CF2X, drone, tuple(case["rpm"]), tuple(case["v_world"]), Physics(drag="rotor"))
    assert not np.any(still)  # drag is of the air's velocity


# ---- golden: learning-to-fly, RLtools


@pytest.mark.slow
def test_l2f_c11_to_c14(double, cases):
    table, model = cases["cases"], models.CRAZYFLIE
    case = table["C11_l2f_constants"]
    np.testing.assert_allclose(model.hover_rpm, case["hover_rpm"], rtol=1e-14)
    np.testing.assert_allclose(2 * model.hover_rpm / model.max_rpm - 1, case["hover_action"], rtol=1e-13)
    np.testing.assert_allclose(model.thrust_to_weight, case["max_thrust_to_weight"], rtol=1e-14)
    np.testing.assert_allclose(0.05 * model.weight, case["dist_force_std"])
    np.testing.assert_allclose(1e-4 * model.weight, case["dist_torque_std"])

    case = table["C12_l2f_motor_lag"]
    start = at_rest(model, rpm=float(case["rpm0"]))
    flight = flown(model, np.full((100, 4), float(case["setpoint"])), start, dynamics.L2F, 0.01)
    np.testing.assert_allclose(flight.rpm[1:16, 0], case["rpm_after_each_step"], rtol=1e-13)
    exact = dynamics.motor_exact(model, start.rpm, (case["setpoint"],) * 4, 0.15)
    np.testing.assert_allclose(exact, case["exact_at_15"], rtol=1e-13)

    flight = flown(model, np.tile(model.hover_rpm, (100, 4)), at_rest(model), dynamics.L2F, 0.01)
    agree(flight, table["C13_l2f_hover_100steps"], "omega_body")

    case = table["C14_l2f_wobble_disturbed_50steps"]
    action = table["C11_l2f_constants"]["hover_action"] + 0.1 * np.sin(0.2 * np.arange(50)[:, None] + np.arange(4))
    around = Surroundings(np.array(case["F_world"]), np.array(case["T_body"]))
    flight = flown(model, 10851 * action + 10851, at_rest(model), dynamics.L2F, 0.01, surroundings=around)
    agree(flight, case, "omega_body")
    np.testing.assert_allclose(flight.rpm[-1], case["rpm"], rtol=1e-13)


@pytest.mark.slow
@pytest.mark.light
def test_rltools_flies_five_models(double):
    data = golden("quadcopter_rltools")
    for name in make_quadcopter.RLTOOLS:
        model = models.MODELS[name]
        rpm = wobble(make_quadcopter.THROTTLE, 50, 0.2, 0.3)
        start = moving(model, make_quadcopter.THROTTLE)
        flight = flown(model, rpm, start, dynamics.RLTOOLS, 0.01)
        same_attitudes(rows(flight)[EVERY], data[name])


def moving(model, rpm):
    """`STATE` as a drone."""
    drone = begin(model, rpm, STATE)
    cast = functools.partial(jnp.asarray, dtype=jnp.result_type(float))
    return drone._replace(
        velocity=tuple(map(cast, STATE["velocity"])), body_rates=tuple(map(cast, STATE["body_rates"]))
    )


# ---- golden: crazyflow

PUSHED = Surroundings(np.array(STATE["force"]), np.array(STATE["torque"]))


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["euler", "rk4"])
def test_crazyflow_0_4_flies_four_drones(double, integrator):
    data = golden("quadcopter_crazyflow")
    physics = dynamics.CRAZYFLOW_0_4.replace(integrator=f"exponential_{integrator}")
    for name, model in models.CRAZYFLOW_0_4.items():
        hover = float(model.hover_rpm)
        flight = flown(model, wobble(hover, 60, 0.02, 0.05), moving(model, hover), physics, 0.002, surroundings=PUSHED)
        same_attitudes(rows(flight)[EVERY], data[f"{name}_{integrator}"])


def test_crazyflow_0_1_derivative_of_four_drones(double):
    data = golden("quadcopter_crazyflow")
    for name, model in models.CRAZYFLOW_0_1.items():
        drone = moving(model, 0.0)._replace(rpm=STATE["rpm"])
        around = Surroundings(STATE["force"], STATE["torque"])
        rate = dynamics.derivative(model, drone, STATE["command"], dynamics.CRAZYFLOW, around)
        got = np.concatenate([rate.velocity, rate.body_rates, rate.rpm])
        np.testing.assert_allclose(got, data[f"old_{name}"], rtol=1e-12, atol=1e-12)


def test_crazyflow_c16_to_c19(double, cases):
    table, model = cases["cases"], models.CRAZYFLOW_0_1["cf2x_L250"]
    case = table["C16_cf_constants"]
    hover = case["hover_rpm"]
    np.testing.assert_allclose(model.hover_rpm, hover, rtol=1e-14)
    limits = [case["rpm_at_thrust_min"], case["rpm_at_thrust_max"]]
    np.testing.assert_allclose([model.min_rpm, model.max_rpm], limits, rtol=1e-14)
    np.testing.assert_allclose(model.thrust_to_weight, case["T2W"], rtol=1e-13)
    start = at_rest(model, (0.0, 0.0, 1.0))

    flight = flown(model, np.full((250, 4), hover), start, dynamics.CRAZYFLOW, 0.002)
    agree(flight, table["C17_cf_hover_250steps"], "ang_vel_body")

    for name, (first, then) in {"up_10k_to_15k": (1e4, 1.5e4), "down_15k_to_10k": (1.5e4, 1e4)}.items():
        flight = flown(model, np.full((250, 4), then), at_rest(model, rpm=first), dynamics.CRAZYFLOW, 0.002)
        expected = table["C18_cf_motor_up_down"][f"{name}_at_10_25_50"]
        np.testing.assert_allclose(flight.rpm[np.array([10, 25, 50]), 0], expected, rtol=1e-12)

    case = table["C19_cf_wobble_disturbed_100steps"]
    around = Surroundings(np.array(case["F_world"]), np.array(case["T_world"]))
    flight = flown(model, wobble(hover, 100, 0.02, 0.05), start, dynamics.CRAZYFLOW, 0.002, surroundings=around)
    agree(flight, case, "ang_vel_body")
    np.testing.assert_allclose(flight.rpm[-1], case["rotor_rpm"], rtol=1e-13)


def test_reference_paths_c24(double, cases):
    """The figure-eights of learning-to-fly and crazyflow, RLtools' Lissajous curve with its velocity."""
    table = cases["cases"]["C24_trajectories"]
    for name, case in (("figure_eight", table["l2f_fig8"]), ("lissajous", table["rltools_lissajous"])):
        time = jnp.array(case["t"])
        got = paths.position(paths.PATHS[name], time)
        np.testing.assert_allclose(got, np.stack([case["x"], case["y"], np.zeros(4)], -1), rtol=0, atol=TOLERANCE)
    got = paths.velocity(paths.PATHS["lissajous"], time)
    np.testing.assert_allclose(got[:, :2], np.stack([case["vx"], case["vy"]], -1), rtol=0, atol=TOLERANCE)
    case = table["crazyflow_fig8_freq50"]
    got = paths.position(paths.PATHS["upright_eight"], jnp.array(case["idx"]) / 50)
    np.testing.assert_allclose(got[:, ::2] + jnp.array([0.0, 1.0]), case["xz"], rtol=0, atol=TOLERANCE)


# ---- float32


@pytest.mark.slow
@pytest.mark.parametrize(
    "physics", [dynamics.L2F, dynamics.GPD_PYB, dynamics.CRAZYFLOW], ids=["l2f", "pyb", "crazyflow"]
)
def test_float32_stays_within_1e_4_of_float64_for_100_steps(physics):
    model, dt = {
        "rk4": (LIGHT, 0.01),
        "semi_implicit": (models.CF2X_LINKS, 1 / 240),
        "exponential_euler": (models.CRAZYFLOW_0_4["cf2x_L250"], 0.002),
    }[physics.integrator]
    rpm = wobble(float(model.hover_rpm), 100, 0.02)
    single = flown(model, rpm, begin(model), physics, dt)
    assert {x.dtype for x in single} == {jnp.dtype("float32")}
    with jax.enable_x64(True):
        exact = flown(model, rpm, begin(model), physics, dt)
    for got, expected in zip(single[:4], exact[:4], strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4)


# ---- laws of mechanics

FREE = LIGHT.replace(gravity=0.0)
ALONE = Physics("rk4", "instant")


def tumbling(model=LIGHT, rpm=0.0):
    start = begin(model, rpm)
    velocity, rates = (jnp.array([0.3, -1.0, 2.0]), jnp.array([4.0, -7.0, 3.0]))
    return start._replace(velocity=tuple(velocity), body_rates=tuple(rates))


def momentum(model, flight):
    """Angular, in the world."""
    spin = tuple((np.asarray(model.inertia) * flight.body_rates).T)
    return np.stack(rotations.rotate(tuple(flight.quaternion.T), spin), -1)


def test_free_fall(double):
    """A body without thrust moves on a parabola, which RK4 integrates exactly, and its attitude does not matter."""
    start = tumbling()
    flight = flown(LIGHT, np.zeros(4), start, ALONE, 0.01, steps=100)
    t = 0.01 * np.arange(101)[:, None]
    down = np.array([0, 0, -9.81])
    expected = np.array(start.position) + np.array(start.velocity) * t + 0.5 * down * t**2
    np.testing.assert_allclose(flight.position, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", models.MODELS)
def test_hover_is_an_equilibrium(double, name):
    """Under every stage at once but the floor: at rest at hover speed nothing changes."""
    model = models.MODELS[name]
    physics = Physics("euler", "asymmetric", "body", "physical")
    start = at_rest(model, (0.0, 0.0, 1.0))
    rate = dynamics.derivative(model, start, start.rpm, physics)
    thrust, torque = dynamics.wrench(model, dynamics.rotor_thrusts(model, start.rpm), start.rpm)
    np.testing.assert_allclose(thrust, model.weight, rtol=1e-12)
    np.testing.assert_allclose(torque, 0, atol=1e-14)
    for field in rate:
        np.testing.assert_allclose(field, 0, atol=1e-10)


def test_torque_free_motion_keeps_momentum_and_energy(double):
    """Angular momentum in the world, kinetic energy of the spin, and linear momentum where there is no weight."""
    flight = flown(FREE, np.zeros(4), tumbling(), ALONE, 0.001, steps=1000)
    spin = momentum(FREE, flight)
    np.testing.assert_allclose(spin, np.broadcast_to(spin[0], spin.shape), rtol=0, atol=1e-9 * np.abs(spin[0]).max())
    energy = 0.5 * np.sum(np.asarray(FREE.inertia) * flight.body_rates**2, -1)
    np.testing.assert_allclose(energy, energy[0], rtol=1e-9)
    np.testing.assert_allclose(flight.velocity, np.broadcast_to(flight.velocity[0], (1001, 3)), rtol=0, atol=1e-15)
    assert np.ptp(np.asarray(flight.body_rates[:, 0])) > 1  # it tumbles


def test_gravity_conserves_energy(double):
    flight = flown(LIGHT, np.zeros(4), tumbling(), ALONE, 0.01, steps=100)
    energy = 0.5 * np.sum(np.square(flight.velocity), -1) + 9.81 * np.asarray(flight.position[:, 2])
    np.testing.assert_allclose(energy, energy[0], rtol=1e-12)


def test_forces_and_torques_change_momentum_as_newton_says(double):
    """dp/dt = F and dL/dt = R torque: over a step of RK4, to its order."""
    around = Surroundings(np.array([0.01, -0.02, 0.03]), np.array([2e-6, -1e-6, 3e-6]))
    flight = flown(FREE, np.zeros(4), tumbling(), ALONE, 0.001, steps=500, surroundings=around)
    gained = FREE.mass * (flight.velocity - flight.velocity[0])
    t = 0.001 * np.arange(501)[:, None]
    np.testing.assert_allclose(gained, around.force * t, rtol=0, atol=1e-12)
    torque = np.stack(rotations.rotate(tuple(flight.quaternion.T), tuple(around.torque)), -1)
    weights = np.ones(501)  # Simpson's rule
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    spin = momentum(FREE, flight)
    np.testing.assert_allclose(spin[-1] - spin[0], weights @ torque * 0.001 / 3, rtol=1e-7)


def test_symmetric_top_precesses(double):
    """Torque-free, two inertias equal: the body rates' cross part turns at (1 - Jz / Jx) r, r is constant; and the
    axis of the body goes round the angular momentum at |L| / Jx."""
    model = FREE.replace(inertia=np.array([3e-6, 3e-6, 5e-6]))
    start = tumbling()
    flight = flown(model, np.zeros(4), start, ALONE, 0.0005, steps=1000)
    t = 0.0005 * np.arange(1001)
    p, q, r = (float(x) for x in start.body_rates)
    turn = (1 - 5 / 3) * r * t  # p' = (1 - Jz/Jx) r q, q' = -(1 - Jz/Jx) r p
    expected = np.stack([p * np.cos(turn) + q * np.sin(turn), q * np.cos(turn) - p * np.sin(turn), r + 0 * t], -1)
    np.testing.assert_allclose(flight.body_rates, expected, rtol=0, atol=1e-9)
    spin = momentum(model, flight)[0]
    axis = np.stack(rotations.up(tuple(flight.quaternion.T)), -1)
    around = Rotation.from_rotvec(t[:, None] * spin / 3e-6)
    np.testing.assert_allclose(axis, around.apply(axis[0]), rtol=0, atol=1e-9)


def test_gyroscopic_torque_does_no_work(double):
    """Of propellers at constant speed; upstream's old signs do. Nor does it act on a drone that does not turn."""
    model, drone = models.CRAZYFLOW_0_1["cf2x_L250"], tumbling()
    rpm, rest = (1e4, 2e4, 1.2e4, 1.9e4), (0.0,) * 4
    torque = dynamics.gyroscopic_torque(model, drone, rpm, rest, Physics(gyro="physical"))
    assert abs(rotations.dot(torque, drone.body_rates)) < 1e-18 < abs(torque[0])
    upstream = dynamics.gyroscopic_torque(model, drone, rpm, rest, Physics(gyro="crazyflow"))
    assert abs(rotations.dot(upstream, drone.body_rates)) > 1e-6
    still = drone._replace(body_rates=(0.0,) * 3)
    assert not any(dynamics.gyroscopic_torque(model, still, rpm, rest, Physics(gyro="physical")))
    # Speeding up the rotors that spin one way turns the body the other way: the total angular momentum stays.
    rate = (100.0, 0.0, 100.0, 0.0)
    reaction = dynamics.gyroscopic_torque(model, still, rpm, rate, Physics(gyro="physical"))[2]
    np.testing.assert_allclose(reaction, -2 * 100 * 2 * np.pi / 60 * model.propeller_inertia)


def test_gyroscopic_precession_about_the_total_momentum(double):
    """With propellers running at unequal speeds, body and propellers together keep their angular momentum."""
    model = models.CRAZYFLOW_0_1["cf2x_L250"].replace(gravity=0.0, thrust=np.zeros(3), torque=np.zeros(3))
    rpm = np.array([1e4, 2e4, 1.2e4, 1.9e4])
    physics = ALONE.replace(gyro="physical")
    flight = flown(model, rpm, tumbling()._replace(rpm=tuple(rpm)), physics, 0.001, steps=200)
    own = -np.sum(np.asarray(model.rotor_spin) * rpm) * 2 * np.pi / 60 * model.propeller_inertia
    axis = np.stack(rotations.up(tuple(flight.quaternion.T)), -1)
    total = momentum(model, flight) + own * axis
    np.testing.assert_allclose(total, np.broadcast_to(total[0], total.shape), rtol=0, atol=1e-9 * np.abs(total).max())
    assert abs(own) > 1e-6


def test_terminal_speed_of_drag(double):
    """Falling with linear drag along the body's axes: v = m g / D (1 - exp(-D t / m))."""
    model = models.CRAZYFLOW_0_4["cf2x_L250"].replace(min_rpm=0.0)  # its rotors stand still
    physics = ALONE.replace(drag="body")
    flight = flown(model, np.zeros(4), at_rest(model, rpm=0.0), physics, 0.01, steps=300)
    rate = model.body_drag[2] / model.mass
    t = 0.01 * np.arange(301)
    np.testing.assert_allclose(flight.velocity[:, 2], -9.81 / rate * (1 - np.exp(-rate * t)), rtol=0, atol=1e-9)


@pytest.mark.slow
def test_floors_hold(double):
    start = at_rest(LIGHT, (0.0, 0.0, 0.05), rpm=0.0)._replace(velocity=(0.5, 0.0, -1.0))
    for floor, depth in (("stop", 0.001), ("contact", 0.03)):
        heights, drone = [], start
        for _ in range(60):
            drone = later(LIGHT, drone, np.zeros(4), ALONE.replace(floor=floor), 0.005, 10)
            heights.append(float(drone.position[2]))
        assert -depth - 1e-9 <= min(heights) < 0
        np.testing.assert_allclose(drone.velocity, 0, atol=1e-3)
    below = begin(LIGHT, start={"position": (0, 0, -0.01), "rpy": (0, 0, 0)})._replace(velocity=(0.0, 0.0, 5.0))
    assert np.all(np.asarray(dynamics.contact_acceleration(below)) >= 0)  # it does not hold what leaves


def test_motors_settle_and_stay_within_limits(double):
    for motors in ("first_order", "asymmetric", "exact"):
        model = models.CRAZYFLIE_RLTOOLS
        physics = Physics("euler", motors)
        rpm = np.array([0.2, 0.9, 2.0, -1.0])
        drone = later(model, at_rest(model, rpm=0.5), rpm, physics, 0.01, 300)
        np.testing.assert_allclose(drone.rpm, [0.2, 0.9, 1.0, 0.0], rtol=0, atol=2e-5)
    drone = later(model, at_rest(model, rpm=0.5), rpm, physics, 0.01, 20)
    down = 0.2 + 0.3 * np.exp(-0.2 / 0.24939393939393945)
    up = 0.9 - 0.4 * np.exp(-0.2 / 0.05545454545454546)
    np.testing.assert_allclose(drone.rpm[:2], [down, up], rtol=0, atol=1e-12)


# ---- integrators


ORDERS = {"euler": 1, "exponential_euler": 1, "semi_implicit": 1, "rk4": 4, "exponential_rk4": 2}
"""crazyflow's Runge-Kutta method turns once, by the mean of the stages' rates: exact about an axis that stays."""


@pytest.mark.slow(but_first=3)
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_order_of_integrators(double, integrator):
    """Halving the step divides the error of a flight, in position, attitude, velocity and rates, by 2^order."""
    start = tumbling(LIGHT, 15000.0)
    rpm = np.array([13000.0, 15500.0, 14000.0, 16000.0])

    def end(integrator, steps):
        drone = later(LIGHT, start, rpm, Physics(integrator, "first_order"), 0.32 / steps, steps)
        return np.concatenate([np.array(x) for x in drone[:4]])

    exact = end("rk4", 2048)
    coarse, fine = (np.abs(end(integrator, steps) - exact).max() for steps in (64, 128))
    assert abs(np.log2(coarse / fine) - ORDERS[integrator]) < 0.2
    start = start._replace(body_rates=(start.body_rates[0] * 0, start.body_rates[1] * 0, start.body_rates[2]))
    rpm = np.array([13000.0, 15500.0, 13000.0, 15500.0])  # about the z axis only
    exact = end("rk4", 2048)
    coarse, fine = (np.abs(end(integrator, steps) - exact).max() for steps in (16, 32))
    assert abs(np.log2(coarse / fine) - (4 if "rk4" in integrator else 1)) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["rk4", "exponential_rk4", "semi_implicit"])
def test_quaternion_keeps_its_length_for_100_000_steps(integrator):
    """In float32."""
    q = np.array(later(FREE, tumbling(FREE), np.zeros(4), Physics(integrator, "instant"), 0.001, 100_000).quaternion)
    assert q.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(q), 1, atol=1e-6)


# ---- symmetries and JAX


@pytest.mark.slow
@pytest.mark.parametrize("physics", [dynamics.L2F, dynamics.GPD_PYB_GND_DRAG_DW, dynamics.CRAZYFLOW_0_4])
def test_nothing_depends_on_heading_or_place(double, physics):
    """A start turned about z and moved sideways, pushed accordingly, flies the same path turned and moved."""
    model = models.CRAZYFLOW_0_4["cf2x_L250"].replace(
        rotor_drag=np.array([9e-7, 9e-7, 1e-6]), ground_effect=11.0, propeller_radius=0.0231
    )
    turn = rotations.from_euler(0.0, 0.0, 0.8)
    shift = np.array([3.0, -2.0, 0.0])
    start = tumbling(model, 15000.0)
    force, wind = (0.01, -0.02, 0.005), (1.0, 2.0, -0.5)
    moved = start._replace(
        position=tuple(jnp.stack(rotations.rotate(turn, start.position)) + shift),
        quaternion=rotations.product(turn, start.quaternion),
        velocity=rotations.rotate(turn, start.velocity),
    )
    rpm = wobble(16000.0, 50)
    around = Surroundings(np.array(force), wind=np.array(wind))
    turned = Surroundings(*(jnp.stack(rotations.rotate(turn, x)) for x in (force,)), wind=None)
    turned = turned._replace(wind=jnp.stack(rotations.rotate(turn, wind)))
    a = flown(model, rpm, start, physics, 0.002, surroundings=around)
    b = flown(model, rpm, moved, physics, 0.002, surroundings=turned)

    def back(v):
        return np.stack(rotations.unrotate(turn, tuple(v.T)), -1)

    np.testing.assert_allclose(back(b.position - shift), a.position, rtol=0, atol=1e-12)
    np.testing.assert_allclose(back(b.velocity), a.velocity, rtol=0, atol=1e-12)
    np.testing.assert_allclose(b.body_rates, a.body_rates, rtol=0, atol=1e-12)
    np.testing.assert_allclose(b.rpm, a.rpm, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_vmap_is_a_loop_and_jit_changes_nothing(double):
    """Over every leaf of the model, and over drones."""
    base = models.CRAZYFLIE
    keys = jax.random.split(jax.random.key(0), 3)
    many = jax.vmap(lambda key: models.randomize(key, base, models.Ranges()))(keys)
    rpm = wobble(14000.0, 20)

    def fly(model):
        return simulate(model, rpm, tumbling(base, 14000.0), dynamics.L2F)

    batch = jax.jit(jax.vmap(fly))(many)
    for i in range(3):
        one = jax.tree.map(lambda x, i=i: x[i], many)
        for got, expected in zip(batch, fly(one), strict=True):
            np.testing.assert_allclose(got[i], expected, rtol=1e-12, atol=1e-12)


USED = {
    "l2f": (
        dynamics.L2F,
        models.CRAZYFLIE,
        {"mass", "inertia", "rotor_x", "rotor_y", "rotor_spin", "thrust", "torque", "spin_up", "gravity"},
    ),
    "crazyflow": (
        dynamics.CRAZYFLOW_0_4,
        models.CRAZYFLOW_0_4["cf2x_L250"],
        {
            "mass",
            "inertia",
            "rotor_x",
            "rotor_y",
            "rotor_spin",
            "thrust",
            "torque",
            "spin_up",
            "spin_down",
            "gravity",
            "body_drag",
            "propeller_inertia",
        },
    ),
    "pyb": (
        dynamics.GPD_PYB_GND_DRAG_DW,
        models.CF2X_LINKS,
        {
            "mass",
            "inertia",
            "rotor_x",
            "rotor_y",
            "rotor_spin",
            "thrust",
            "torque",
            "gravity",
            "rotor_drag",
            "propeller_radius",
            "ground_effect",
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", USED)
def test_gradients_reach_every_number_that_is_used(double, name):
    """Finite for all leaves, zero exactly for those that the physics does not read; also from a drone at rest."""
    physics, model, used = USED[name]
    model = jax.tree.map(lambda x: jnp.asarray(x, float), model)
    rpm = wobble(float(model.hover_rpm), 12, 0.1, 0.5)

    def loss(model, start):
        flight = simulate(model, rpm, start, physics, 0.01)
        return sum(jnp.sum(jnp.sin(jnp.arange(x.shape[-1]) + 1) * x[-1]) for x in flight[:4])

    gradient = jax.jit(jax.grad(loss, (0, 1)))
    for start in (tumbling(model, float(model.hover_rpm)), at_rest(model, (0.0, 0.0, 0.3), rpm=14000.0)):
        by_model, by_start = gradient(model, start)
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves((by_model, by_start)))
    by_model, by_start = gradient(model, tumbling(model, float(model.hover_rpm)))
    for field in model.__dataclass_fields__:
        nonzero = any(np.any(np.asarray(x) != 0) for x in jax.tree.leaves(getattr(by_model, field)))
        assert nonzero == (field in used), field
    assert all(np.any(np.asarray(x) != 0) for x in by_start[:4])


# ---- bad input


def test_simulate_refuses_commands_that_do_not_fit():
    with pytest.raises(ValueError, match=r"rpm has shape \(3,\)"):
        simulate(LIGHT, np.zeros(3), steps=5)
    with pytest.raises(ValueError, match="steps="):
        simulate(LIGHT, np.zeros(4))
    with pytest.raises(ValueError, match=r"\(5, 4\); it needs \(4,\)"):
        simulate(LIGHT, np.zeros((5, 4)), steps=6)


def test_physics_names_what_there_is():
    for stage in ("integrator", "motors", "drag", "gyro", "floor"):
        with pytest.raises(ValueError, match=f"{stage}='best'; it is one of "):
            Physics(**{stage: "best"})


def test_check_model():
    for model in models.MODELS.values():
        checks.check_model(model)
    for name, value in (
        ("mass", 0.0),
        ("mass", -1.0),
        ("mass", np.nan),
        ("max_rpm", 0.0),
        ("inertia", np.array([1e-5, 0.0, 1e-5])),
        ("inertia", np.array([1e-5, np.inf, 1e-5])),
    ):
        with pytest.raises(ValueError, match=f"Drone: {name}=.* finite and positive"):
            checks.check_model(LIGHT.replace(**{name: value}), "Drone")
    with pytest.raises(ValueError, match="of no solid"):
        checks.check_model(LIGHT.replace(inertia=np.array([1e-5, 1e-5, 2.1e-5])))
    for name in ("thrust", "torque"):
        with pytest.raises(ValueError, match="at max_rpm=.* thrust .* positive and its torque .* not negative"):
            checks.check_model(LIGHT.replace(**{name: tuple(-np.asarray(x) for x in getattr(LIGHT, name))}))
    with pytest.warns(UserWarning, match="cannot hover"):
        checks.check_model(LIGHT.replace(mass=0.07))
    many = jax.tree.map(lambda x: np.stack([x, x]), jax.tree.map(np.asarray, LIGHT))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checks.check_model(many)
    with pytest.raises(ValueError, match="mass"):
        checks.check_model(many.replace(mass=np.array([0.03, -0.03])))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_rpm": 30000.0}, r"min_rpm=30000.0 must be below max_rpm=21702"),
        ({"min_rpm": -1.0}, "min_rpm=-1.0 must be finite and not negative"),
        ({"spin_up": (-5.0, 0.0)}, "spin_up=.* not negative"),
        ({"rotor_x": np.full(4, np.nan)}, "rotor_x=.* must be finite"),
        ({"gravity": np.nan}, "gravity=nan"),
        ({"thrust": np.array([0.0, np.nan, 1e-10])}, "thrust=.* must be finite"),
        ({"radius": -1.0}, "radius=-1.0"),
        ({"rotor_x": np.zeros(4), "rotor_y": np.zeros(4)}, "each on its own"),
        ({"rotor_y": np.zeros(4)}, "each on its own"),
        ({"rotor_spin": np.ones(4)}, "each on its own"),
        ({"torque": np.zeros(3)}, "each on its own"),
        ({"rotor_y": LIGHT.rotor_x}, "each on its own"),
    ],
)
def test_check_model_finds_what_cannot_fly(changes, message):
    with pytest.raises(ValueError, match=message):
        checks.check_model(LIGHT.replace(**changes))


def test_check_model_of_tuples_that_are_batched():
    """Three models of which each is sound, though the numbers of an axis over the batch would be of no solid."""
    sizes = np.array([1.0, 10.0, 1.0])
    fields = ("inertia", "rotor_x", "rotor_y", "rotor_spin", "thrust", "torque", "spin_up", "spin_down")
    tuples = {name: tuple(float(x) * np.ones(3) for x in getattr(LIGHT, name)) for name in fields}
    many = LIGHT.replace(**{**tuples, "inertia": tuple(x * sizes for x in tuples["inertia"])})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checks.check_model(many)
        checks.check_fit(many, dynamics.RLTOOLS)
        checks.check_model(many.replace(mass=np.array([0.02, 0.03, 0.04])))
    with pytest.warns(UserWarning, match="cannot hover"):
        checks.check_model(many.replace(mass=np.array([0.02, 0.03, 0.07])))
    with pytest.raises(ValueError, match="of no solid"):
        checks.check_model(many.replace(inertia=(1e-5, 1e-5, np.array([1e-5, 1e-5, 2.1e-5]))))


GROUND = dynamics.GPD_PYB_GND_DRAG_DW
THROTTLE = models.X500_SIM


@pytest.mark.parametrize(
    ("model", "physics", "acting", "message"),
    [
        (models.CF2X, dynamics.L2F, {}, r"first_order.*spin_up\[0\] above 0.*motors='instant'"),
        (models.CF2X, dynamics.RLTOOLS, {}, "spin_up above 0"),
        (LIGHT.replace(spin_down=(0.0, 0.0)), dynamics.RLTOOLS, {}, "spin_down above 0"),
        (LIGHT.replace(spin_up=(0.0, 1e-4)), dynamics.L2F, {}, r"spin_up\[0\]"),
        (models.MODELS["cf2x_L250"], Physics(motors="exact"), {}, r"spin_down\[0\]"),
        (LIGHT, GROUND, {}, "propeller_radius and ground_effect"),
        (LIGHT, dynamics.L2F, {"wind": True}, "wind acts only on physics with drag"),
        (LIGHT, dynamics.CRAZYFLOW, {"wind": True}, "body_drag is not zero"),
        (LIGHT, dynamics.L2F.replace(drag="rotor"), {"wind": True}, "rotor_drag is not zero"),
        (models.MODELS["cf2x_L250"], dynamics.L2F.replace(drag="rotor"), {"wind": True}, "rotor_drag"),
        (LIGHT, dynamics.L2F, {"downwash": True}, r"downwash\[0\] and propeller_radius"),
        (models.CF2X.replace(propeller_radius=0.0), dynamics.GPD_DYN, {"downwash": True}, "propeller_radius"),
        (THROTTLE, dynamics.L2F, {"battery": True}, "throttle"),
        (LIGHT, "crazyflow", {}, r"physics='crazyflow' is not a dynamics.Physics; .*dynamics.L2F.*dynamics.CRAZYFLOW"),
    ],
)
def test_physics_needs_numbers_that_fit(model, physics, acting, message):
    with pytest.raises(ValueError, match="Drone: .*" + message):
        checks.check_fit(model, physics, "Drone", **acting)
    two = jax.tree.map(lambda x: np.stack([x, x]), jax.tree.map(np.asarray, model))
    with pytest.raises(ValueError, match=message):
        checks.check_fit(two, physics, "Drone", **acting)
    if isinstance(physics, Physics):
        jax.jit(lambda model: checks.check_fit(model, physics, **acting) or model.mass)(model)  # not looked at


def test_what_fits_is_accepted():
    for name, model in models.MODELS.items():
        lags = model.spin_up[0] > 0
        checks.check_fit(model, dynamics.L2F if lags else dynamics.GPD_DYN, name)
        checks.check_fit(model, dynamics.RLTOOLS if lags else dynamics.GPD_DYN, name, battery=model.max_rpm > 1)
    checks.check_fit(models.CF2X, GROUND, wind=True, downwash=True, battery=True)
    cf21b = models.MODELS["cf21B_500"]
    checks.check_fit(cf21b, dynamics.CRAZYFLOW_0_4, wind=True, battery=True)
    some = jax.tree.map(lambda x: np.stack([x, x]), jax.tree.map(np.asarray, cf21b))
    some = some.replace(body_drag=some.body_drag * np.array([[0.0], [1.0]]))  # a sweep from no drag to some
    checks.check_fit(some, dynamics.CRAZYFLOW_0_4, wind=True)


def test_simulate_refuses_models_that_do_not_fit():
    full = jnp.full(4, 21000.0)
    with pytest.raises(ValueError, match=r"simulate: .*spin_up\[0\]"):
        simulate(models.CF2X, full, steps=2)
    with pytest.raises(ValueError, match="wind acts only"):
        simulate(LIGHT, full, steps=2, surroundings=Surroundings(wind=(1.0, 0.0, 0.0)))
    with pytest.raises(ValueError, match="body_drag"):
        simulate(LIGHT, full, None, Physics(drag="body"), steps=2, surroundings=Surroundings(wind=np.ones((2, 3))))
    flight = simulate(LIGHT, full, steps=2, surroundings=Surroundings(wind=(0.0, 0.0, 0.0)))
    assert flight.velocity[-1, 2] > 0


# ---- rotations, against scipy

small = st.floats(-1.0, 1.0, allow_subnormal=False)
vectors = st.tuples(small, small, small)
nonzero = st.tuples(small, small, small, small).filter(lambda q: np.linalg.norm(q) > 1e-3)


def as_scipy(q):
    return Rotation.from_quat(np.roll(np.array(q), -1))


def cast(x):
    return tuple(jnp.asarray(i, jnp.result_type(float)) for i in x)


@pytest.mark.slow
@pytest.mark.light
@given(vectors, st.floats(0.0, 3.1))
def test_exponential_and_logarithm(axis, angle):
    with jax.enable_x64(True):
        vector = np.array(axis) * angle / np.sqrt(3)
        q = rotations.exponential(cast(vector))
        np.testing.assert_allclose(as_scipy(q).as_rotvec(), vector, rtol=0, atol=1e-9)
        np.testing.assert_allclose(rotations.logarithm(q), vector, rtol=0, atol=1e-9)
        np.testing.assert_allclose(rotations.logarithm(tuple(-x for x in q)), vector, rtol=0, atol=1e-9)


@given(nonzero, vectors)
def test_rotate_is_a_rotation(q, v):
    with jax.enable_x64(True):
        q, v = rotations.unit(cast(q)), cast(v)
        turned = rotations.rotate(q, v)
        np.testing.assert_allclose(turned, as_scipy(q).apply(np.array(v)), rtol=0, atol=1e-12)
        np.testing.assert_allclose(rotations.dot(turned, turned), rotations.dot(v, v), rtol=0, atol=1e-12)
        np.testing.assert_allclose(rotations.unrotate(q, turned), v, rtol=0, atol=1e-12)
        np.testing.assert_allclose(turned, np.array(rotations.matrix(q)) @ np.array(v), rtol=0, atol=1e-12)
        np.testing.assert_allclose(rotations.up(q), np.array(rotations.matrix(q))[:, 2], rtol=0, atol=1e-15)


@given(nonzero, nonzero)
def test_products_compose(p, q):
    with jax.enable_x64(True):
        p, q = rotations.unit(cast(p)), rotations.unit(cast(q))
        both = as_scipy(rotations.product(p, q)).as_matrix()
        np.testing.assert_allclose(both, (as_scipy(p) * as_scipy(q)).as_matrix(), rtol=0, atol=1e-12)
        np.testing.assert_allclose(rotations.product(p, rotations.conjugate(p)), [1, 0, 0, 0], rtol=0, atol=1e-12)


@given(nonzero)
def test_from_matrix_inverts_matrix(q):
    with jax.enable_x64(True):
        q = rotations.unit(cast(q))
        again = rotations.from_matrix(rotations.matrix(q))
        assert again[0] >= 0
        np.testing.assert_allclose(abs(np.dot(np.array(again), np.array(q))), 1, rtol=0, atol=1e-12)


@given(st.floats(-3.1, 3.1), st.floats(-1.5, 1.5), st.floats(-3.1, 3.1))
def test_euler_round_trip(roll, pitch, yaw):
    with jax.enable_x64(True):
        q = rotations.from_euler(roll, pitch, yaw)
        np.testing.assert_allclose(rotations.euler(q), [roll, pitch, yaw], rtol=0, atol=1e-9)
        expected = Rotation.from_euler("ZYX", [yaw, pitch, roll]).as_matrix()
        np.testing.assert_allclose(rotations.matrix(q), expected, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_rotations_have_derivatives_everywhere():
    """At no turn at all, and through half a turn."""
    for at in ((0.0, 0.0, 0.0), (np.pi, 0.0, 0.0)):
        jacobian = jax.jit(jax.jacobian(rotations.exponential))(cast(at))
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(jacobian))
    for q in ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (-1.0, 0.0, 0.0, 0.0)):
        for function in (rotations.logarithm, rotations.euler, lambda q: rotations.from_matrix(rotations.matrix(q))):
            jacobian = jax.jit(jax.jacobian(function))(cast(q))
            assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(jacobian)), (q, function)


# ---- live


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # theirs
def test_live_gym_pybullet_drones(double):
    """Where both are installed: a flight of this minute."""
    pytest.importorskip("pybullet")
    pytest.importorskip("gym_pybullet_drones")
    for kind, physics in GPD_PHYSICS.items():
        model = (GPD if kind == "dyn" else LINKS)["cf2x"]
        flight = flown(model, wobble(float(model.hover_rpm), 60), begin(model, 0.0), physics, 1 / 240)
        seen = make_quadcopter.fly_gpd("cf2x", kind, 60)[0]
        np.testing.assert_allclose(rows(flight, True)[EVERY][:, :10], seen[:, :10], rtol=0, atol=1e-10)
