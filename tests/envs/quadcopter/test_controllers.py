"""The quadcopter's controllers: against gym-pybullet-drones and crazyflow (golden data, float64 to 1e-10), against
scipy, in closed loop on every airframe, and as JAX programs."""

import dataclasses
import functools
import importlib.util
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from jaxrl.environment import strongly_typed
from jaxrl.envs.quadcopter import dynamics, models, rotations
from jaxrl.envs.quadcopter.control import actions, controllers
from jaxrl.envs.quadcopter.control.setpoints import Attitude, Rates, Setpoint
from jaxrl.envs.quadcopter.dynamics import Drone, Physics
from jaxrl.envs.quadcopter.simulate import stack

GOLDEN = Path(__file__).parents[2] / "golden"
make = importlib.util.module_from_spec(
    spec := importlib.util.spec_from_file_location("make", GOLDEN / "make_quadcopter_controllers.py")
)
spec.loader.exec_module(make)
CASES = json.loads((GOLDEN / "quadcopter_cases.json").read_text())["cases"]
DATA = {k: np.array(v) for k, v in json.loads((GOLDEN / "quadcopter_controllers.json").read_text()).items()}
TARGET = Setpoint(**make.TARGET)

INSTANT = dynamics.GPD_DYN
LAGGING = Physics("semi_implicit", "asymmetric", "body", "physical")
WITHOUT_LAG = ("cf2x", "cf2p", "racer")
WITH_LAG = ("crazyflie", "crazyflie_rltools", "x500_sim", "flightmare", "arpl", "cf2x_L250", "cf2x_T350", "cf21B_500")
FLEETS = {"without_lag": (WITHOUT_LAG, INSTANT, 1 / 240), "with_lag": (WITH_LAG, LAGGING, 1 / 200)}


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def scalars(values):
    return tuple(jnp.asarray(x, jnp.result_type(float)) for x in values)


def drone_at(position, rpy, velocity=(0, 0, 0), body_rates=(0, 0, 0), rpm=(0, 0, 0, 0)):
    quaternion = Rotation.from_euler("xyz", rpy).as_quat()[[3, 0, 1, 2]]
    return Drone(*map(scalars, (position, quaternion, velocity, body_rates, rpm)))


def drones():
    """Those of the golden files."""
    return [drone_at(*rows) for rows in zip(*make.states().values(), strict=True)]


def fleet(names):
    """Models with a leading axis."""

    def leaves(name):
        model = models.MODELS[name]
        return {f.name: jnp.asarray(getattr(model, f.name), jnp.result_type(float)) for f in dataclasses.fields(model)}

    return dynamics.Model(**jax.tree.map(lambda *rows: jnp.stack(rows), *map(leaves, names)))


def ctbr_and_rates(carry, drone, setpoint, gains, model, dt):
    rates, _ = controllers.ctbr((), drone, setpoint, controllers.CTBRGains(), model, dt)
    return controllers.body_rates_loop(carry, drone, rates, gains, model, dt)


def constant(gains):
    return lambda model, dt: gains


TRACKERS = {
    "position_loop": (controllers.position_loop, controllers.cascade_init, constant(controllers.CascadeGains())),
    "ctbr": (ctbr_and_rates, controllers.cascade_init, constant(controllers.CascadeGains())),
    "se3": (controllers.se3, controllers.se3_init, constant(controllers.SE3Gains())),
    "lqr": (controllers.lqr, controllers.lqr_init, lambda model, dt: controllers.lqr_gains(model, dt=dt)),
    "dslpid": (controllers.dslpid, controllers.dslpid_init, lambda model, dt: controllers.dslpid_gains(model, 0.4)),
    "mellinger": (
        controllers.mellinger,
        controllers.mellinger_init,
        lambda model, dt: controllers.mellinger_gains(model),
    ),
}


@functools.partial(jax.jit, static_argnames=("tracker", "setpoint_at", "physics", "dt", "steps"))
def fly(tracker, setpoint_at, model, start, physics, dt, steps, gains=None):
    """The flight of `tracker` after `setpoint_at(time)`, from `start(model)`."""
    control, init, default = TRACKERS[tracker] if isinstance(tracker, str) else tracker
    gains = default(model, dt) if gains is None else gains

    def step(carry, time):
        drone, memory = carry
        rpm, memory = control(memory, drone, setpoint_at(time), gains, model, dt)
        drone = dynamics.step(model, drone, rpm, dt, physics)
        return (drone, memory), stack(drone)

    return jax.lax.scan(step, (start, init()), dt * jnp.arange(steps))[1]


def at_rest(model, position, quaternion=(1.0, 0.0, 0.0, 0.0)):
    return dynamics.at_rest(model, position, quaternion)


def hover(time):
    return Setpoint(position=(0.0, 0.0, 1.0), yaw=0.5)


def eight(time, period=5.5, ahead=1.0, across=0.5):
    """A figure-eight, 2 m long and 1 m wide, with its derivatives."""
    w = 2 * math.pi / period
    phase = w * time + math.pi / 2 * jnp.arange(5)
    x = ahead * w ** jnp.arange(5) * jnp.sin(phase)
    y = across * (2 * w) ** jnp.arange(5) * jnp.sin(phase + w * time)
    z = (1.0, 0.0, 0.0, 0.0, 0.0)
    position, velocity, acceleration, jerk, snap = ((x[n], y[n], z[n]) for n in range(5))
    return Setpoint(position, velocity, acceleration, jerk=jerk, snap=snap)


# ---- against the references


def test_dslpid_agrees_on_two_calls(double):
    case = CASES["C21_dslpid_two_calls"]
    drone = drone_at(case["pos"], case["rpy"], case["vel"])
    setpoint, carry = Setpoint(position=case["target"]), controllers.dslpid_init()
    for call in ("rpm_call1", "rpm_call2"):
        rpm, carry = controllers.dslpid(carry, drone, setpoint, controllers.DSLPIDGains(), models.CF2X, case["dt"])
        np.testing.assert_allclose(rpm, case[call], rtol=1e-12)


def closed_loop(model, start, setpoint, steps, substeps):
    """gym-pybullet-drones' order: rotors stand for the first control step."""
    model = strongly_typed(model)

    def step(carry, _):
        drone, memory, rpm = carry
        for _ in range(substeps):
            drone = dynamics.step(model, drone, rpm, 1 / 240, INSTANT)
        rpm, memory = controllers.dslpid(memory, drone, setpoint, controllers.DSLPIDGains(), model, substeps / 240)
        return (drone, memory, rpm), (stack(drone), jnp.stack(rpm))

    start = start._replace(rpm=scalars((0,) * 4))
    return jax.jit(lambda: jax.lax.scan(step, (start, controllers.dslpid_init(), start.rpm), None, steps)[1])()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("substeps", "seconds", "rows"), [(1, 4.0, "ctrl240_states_every_half_s_4s"), (5, 0.5, "ctrl48_state_at_half_s")]
)
def test_dslpid_agrees_in_closed_loop(double, substeps, seconds, rows):
    case = CASES["C22_dslpid_closed_loop_DYN"]
    start = drone_at(case["start"], (0, 0, 0))
    flight, _ = closed_loop(
        models.CF2X, start, Setpoint(position=case["target"]), int(240 * seconds) // substeps, substeps
    )
    at = slice(120 // substeps - 1, None, 120 // substeps)
    for ours, theirs in (("position", "pos"), ("velocity", "vel"), ("body_rates", "body_rates")):
        np.testing.assert_allclose(getattr(flight, ours)[at], [row[theirs] for row in case[rows]], atol=1e-10, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cf2x", "cf2p"])
def test_dslpid_agrees_with_yaw_and_velocity_wanted(double, name):
    start = drone_at(make.START["position"], make.START["rpy"])
    flight, rpm = closed_loop(models.MODELS[name], start, TARGET, 480, 1)
    ours = np.concatenate([flight.position, flight.quaternion, flight.velocity, rpm], -1)[47::48]
    np.testing.assert_allclose(ours, DATA[f"dslpid_{name}"], atol=1e-10, rtol=1e-10)


def test_ctbr_agrees(double):
    setpoint = TARGET._replace(acceleration=(0.0, 0.0, 0.0), yaw=0.0)
    for drone, (thrust, *body_rates) in zip(drones(), DATA["ctbr"], strict=True):
        rates, _ = controllers.ctbr((), drone, setpoint, controllers.CTBRGains(), models.CF2X, 1 / 240)
        np.testing.assert_allclose(rates.thrust, thrust * models.CF2X.mass, rtol=1e-12)
        np.testing.assert_allclose(rates.body_rates, body_rates, atol=1e-12)


def test_mellinger_agrees_by_stages(double):
    case, model, gains = (
        CASES["C23_mellinger_one_call"],
        models.CRAZYFLOW_0_1["cf2x_L250"],
        controllers.MellingerGains(),
    )
    drone = drone_at(case["pos"], case["rpy"], case["vel"], case["ang_vel"])
    command = case["cmd13"]
    setpoint = Setpoint(command[:3], command[3:6], command[6:9], command[9])
    attitude, carry = controllers.mellinger_state(controllers.mellinger_init(), drone, setpoint, gains, model, 1 / 100)
    np.testing.assert_allclose(rotations.euler(attitude.quaternion), case["rpy_des"], atol=1e-10)
    np.testing.assert_allclose(attitude.thrust, case["thrust_des"], atol=1e-10)
    wrench, carry = controllers.mellinger_attitude(carry, drone, attitude, gains, model, 1 / 500)
    np.testing.assert_allclose(wrench.thrust, case["force_out"], atol=1e-10)
    np.testing.assert_allclose(wrench.torque, case["torque_out"], atol=1e-10)
    rpm, _ = controllers.mellinger_wrench(carry, drone, wrench, gains, model, 1 / 500)
    np.testing.assert_allclose(rpm, case["rotor_rpm"], rtol=1e-10)


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("name", sorted(controllers.MELLINGER))
def test_mellinger_agrees_on_consecutive_calls(double, name):
    carry, setpoint = controllers.mellinger_init(), TARGET._replace(yaw_rate=0.0)
    for drone, rpm in zip(drones(), DATA[f"mellinger_{name}"], strict=True):
        ours, carry = controllers.mellinger(
            carry, drone, setpoint, controllers.MELLINGER[name], models.CRAZYFLOW_0_4[name], 1 / 500
        )
        np.testing.assert_allclose(ours, rpm, rtol=1e-10)


# ---- allocation and motors


@pytest.mark.slow
@given(
    st.sampled_from(sorted(models.MODELS)),
    st.floats(-0.5, 2.5),
    st.tuples(*[st.floats(-1.5, 1.5)] * 3),
)
def test_allocation_gives_up_yaw_then_thrust_then_tilt(name, lift, share):
    model = strongly_typed(models.MODELS[name])
    ratio = 4 * np.polyval(np.array(model.torque)[::-1], model.hover_rpm) / model.weight
    newtons = float(model.max_thrust) / 4
    arm = float(np.abs(np.array(model.rotor_x)).max())
    thrust = lift * float(model.weight)
    torque = np.array(share) * np.array([2 * arm, 2 * arm, 2 * float(ratio)]) * newtons
    f = np.array(allocate(model, thrust, tuple(torque)))
    low, high = (float(np.polyval(np.array(model.thrust)[::-1], n)) for n in (model.min_rpm, model.max_rpm))
    slack = 1e-5 * (high - low)
    assert np.all(f >= low - slack) and np.all(f <= high + slack)
    x, y, spin = (np.array(v) for v in (model.rotor_x, model.rotor_y, model.rotor_spin))
    given_ = np.array([y @ f, -x @ f, float(ratio) * spin @ f])
    tilt, wanted = given_[:2], torque[:2]
    # Roll and pitch keep their direction, and are whole unless they alone exceed the rotors' range.
    share_of_tilt = np.dot(tilt, wanted) / max(np.dot(wanted, wanted), 1e-12)
    np.testing.assert_allclose(tilt, share_of_tilt * wanted, atol=1e-4 * arm * newtons)
    lone = y / np.dot(y, y) * wanted[0] - x / np.dot(x, x) * wanted[1]
    if np.ptp(lone) < high - low and np.abs(wanted).max() > 1e-3 * arm * newtons:
        assert share_of_tilt == pytest.approx(1, abs=1e-3)
        # Thrust is what was asked for where that leaves room for them.
        if np.all(lone + thrust / 4 >= low) and np.all(lone + thrust / 4 <= high):
            assert f.sum() == pytest.approx(thrust, rel=1e-4, abs=1e-4 * newtons)
    # Yaw never turns around.
    assert given_[2] * torque[2] >= -1e-5 * newtons * ratio * abs(torque[2])


allocate = jax.jit(controllers.allocate)


@pytest.mark.slow(but_first=5)
@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_allocation_is_exact_within_limits(double, name):
    model = strongly_typed(models.MODELS[name])
    rpm = model.hover_rpm * jnp.array([1.01, 0.99, 1.02, 0.985])
    thrusts = dynamics.rotor_thrusts(model, tuple(rpm))
    ratio = 4 * dynamics.polynomial(model.torque, model.hover_rpm) / model.weight
    total, torque = dynamics.wrench(model, thrusts, tuple(rpm))
    torque = (*torque[:2], ratio * sum(s * f for s, f in zip(model.rotor_spin, thrusts, strict=True)))
    found = controllers.allocate(model, total, torque)
    np.testing.assert_allclose(found, thrusts, rtol=1e-10)
    drone = drone_at((0, 0, 0), (0, 0, 0), rpm=rpm)
    np.testing.assert_allclose(controllers.rotor_speeds(model, drone, found, 0.0, 0.01), rpm, rtol=1e-10)


def test_rotors_that_lag_follow_with_the_bandwidth_asked_for(double):
    model, dt, bandwidth = strongly_typed(models.CRAZYFLIE), 0.001, 40.0
    start = model.hover_rpm
    wanted = dynamics.rotor_thrusts(model, (1.02 * start,) * 4)

    @jax.jit
    def step(drone):
        rpm = controllers.rotor_speeds(model, drone, wanted, bandwidth, dt)
        return dynamics.step(model, drone, rpm, dt, dynamics.L2F)

    drone = dynamics.at_rest(model)
    for _ in range(25):  # one time constant
        drone = step(drone)
    assert (drone.rpm[0] / start - 1) / 0.02 == pytest.approx(1 - math.exp(-1), abs=0.01)


@pytest.mark.parametrize(
    ("motors", "up", "down"),
    [
        ("instant", (0, 0), (0, 0)),
        ("first_order", (2, 0), (2, 0)),
        ("asymmetric", (2, 3e-4), (5, 7e-4)),
        ("exact", (2, 0), (5, 0)),
    ],
)
def test_loops_see_the_lag_of_the_physics(motors, up, down):
    model = models.CRAZYFLIE.replace(spin_up=np.array([2, 3e-4]), spin_down=(5.0, 7e-4))
    seen = actions.loop_model(model, Physics(motors=motors))
    np.testing.assert_array_equal([seen.spin_up, seen.spin_down], [up, down])
    assert all(getattr(seen, name) is x for name, x in vars(model).items() if name not in ("spin_up", "spin_down"))


@pytest.mark.slow
@pytest.mark.parametrize("level", sorted(actions.LOOPS))
@pytest.mark.parametrize("motors", dynamics.MOTORS)
def test_action_levels_are_stable_with_all_motors(motors, level):
    """After a push, whatever the lag in the model: nothing trembles. Loops that saw its lag shook at 20 rad/s."""
    physics, dt = Physics("rk4", motors), 0.01
    model = strongly_typed(models.CRAZYFLIE.replace(spin_down=(0.5, 0.0) if motors == "first_order" else (6.6, 0.0)))
    seen = actions.loop_model(model, physics)
    action = jnp.zeros(4).at[0].set(0.0 if level in ("velocity", "waypoint") else -0.1)

    @jax.jit
    def fly(drone):
        def body(carry, _):
            drone, control = carry
            held, control = actions.hold(level, action, control, drone, seen, None, dt)
            rpm, control = actions.command(level, held, control, drone, seen, None, dt)
            drone = dynamics.step(model, drone, rpm, dt, physics)
            return (drone, control), jnp.stack(drone.body_rates)

        return jax.lax.scan(body, (drone, actions.initial_carry(level)), length=200)[1]

    start = at_rest(model, (0.0, 0.0, 0.0), rotations.from_euler(0.1, -0.1, 0.05))
    assert np.max(np.abs(fly(start._replace(body_rates=scalars((0.5, -0.5, 0.2))))[50:])) < 0.2


# ---- closed loop


def test_there_is_a_flight_for_every_airframe():
    flown = {*WITH_LAG, *WITHOUT_LAG}
    left = {name for name in models.MODELS if name not in flown}
    assert all(name.endswith(("_links", "_0.1.0")) or name in ("x500_real", "cf2x_P250") for name in left), left


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(FLEETS))
@pytest.mark.parametrize("tracker", sorted(TRACKERS))
def test_every_airframe_hovers_after_a_start_beside(tracker, kind):
    names, physics, dt = FLEETS[kind]
    stack = fleet(names)
    start = jax.vmap(lambda model: at_rest(model, (0.4, -0.3, 0.7)))(stack)
    flight = jax.vmap(lambda model, start: fly(tracker, hover, model, start, physics, dt, int(6 / dt)))(stack, start)
    last = slice(-int(0.5 / dt), None)
    away = np.abs(np.array(flight.position)[:, last] - [0, 0, 1]).max((1, 2))
    # The PIDs of Crazyflies integrate slowly: 5 % of the start is left.
    most = 0.025 if tracker in ("dslpid", "mellinger") else 0.005
    assert np.all(away < most), dict(zip(names, away, strict=True))
    spin = np.abs(np.array(flight.body_rates)[:, last]).max((1, 2))
    assert np.all(spin < 0.1), dict(zip(names, spin, strict=True))
    quaternion = np.moveaxis(np.array(flight.quaternion)[:, -1], -1, 0)
    if tracker != "ctbr":
        np.testing.assert_allclose(np.array(rotations.euler(quaternion))[2], 0.5, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("tracker", "most"), [("se3", 0.005), ("mellinger", 0.06)])
def test_figure_eight(tracker, most):
    """Root mean square error over the second of two rounds of 5.5 s at up to 2.5 m/s."""
    model, dt = strongly_typed(models.CRAZYFLIE), 0.01
    flight = fly(tracker, eight, model, at_rest(model, (0.0, 0.0, 1.0)), dynamics.L2F, dt, 1100)
    wanted = np.stack(jax.vmap(eight)(dt * jnp.arange(1, 1101)).position, -1)
    error = np.array(flight.position) - wanted
    assert np.sqrt((error[550:] ** 2).sum(-1).mean()) < most


def test_far_waypoint_without_overspeed_or_tumbling():
    model, dt = strongly_typed(models.CF2X), 1 / 240
    there = (12.0, -9.0, 4.0)
    flight = fly(
        "position_loop", lambda time: Setpoint(position=there), model, at_rest(model, (0.0,) * 3), INSTANT, dt, 3000
    )
    speed = np.linalg.norm(flight.velocity, axis=-1)
    assert 2.5 < speed.max() < 3.5
    assert np.abs(np.array(flight.position)[-1] - there).max() < 0.05
    w, x, y, z = np.array(flight.quaternion).T
    assert (1 - 2 * (x**2 + y**2)).min() > math.cos(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["position_loop", "se3"])
def test_recovers_from_upside_down(tracker):
    """Although rotors with a lag of 0.15 s first have to stop."""
    model, dt = strongly_typed(models.CRAZYFLIE), 0.01
    start = at_rest(model, (0.0, 0.0, 1.0), tuple(Rotation.from_euler("xyz", (3.0, 0.3, 0.0)).as_quat()[[3, 0, 1, 2]]))
    flight = fly(tracker, hover, model, start, dynamics.L2F, dt, 800)
    np.testing.assert_allclose(np.array(flight.position)[-1], [0, 0, 1], atol=0.02)
    assert np.array(flight.position)[:, 2].min() > -0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cf2x", "crazyflie"])
def test_inner_loops_reach_what_they_are_asked_for(name):
    model = strongly_typed(models.MODELS[name])
    physics, dt = (INSTANT, 1 / 240) if name == "cf2x" else (dynamics.L2F, 0.01)
    gains, start = constant(controllers.CascadeGains()), at_rest(model, (0.0, 0.0, 2.0))
    tilted = rotations.from_euler(0.2, -0.3, 0.4)

    def run(loop, setpoint, seconds):
        tracker = (loop, controllers.cascade_init, gains)
        return fly(tracker, lambda time: setpoint, model, start, physics, dt, int(seconds / dt))

    rates = (0.8, -0.5, 0.3)
    flight = run(controllers.body_rates_loop, Rates(model.weight, rates), 1.0)
    np.testing.assert_allclose(flight.body_rates[-1], rates, atol=0.05)
    flight = run(controllers.attitude_loop, Attitude(model.weight, tilted), 2.0)
    np.testing.assert_allclose(flight.quaternion[-1], tilted, atol=0.01)
    velocity = (0.8, -0.6, 0.4)
    flight = run(controllers.velocity_loop, Setpoint(velocity=velocity, yaw=0.3), 6.0)
    np.testing.assert_allclose(flight.velocity[-1], velocity, atol=0.02)


def test_integrals_hold_against_a_steady_push_and_a_wrong_mass():
    model, dt = strongly_typed(models.CF2X), 1 / 240
    around = dynamics.Surroundings(force=(0.03, -0.02, 0.0), torque=(2e-5, 1e-5, 0.0))
    heavier = model.replace(mass=1.1 * model.mass)
    gains = controllers.CascadeGains()

    def step(carry, _):
        drone, memory = carry
        rpm, memory = controllers.position_loop(memory, drone, hover(0.0), gains, model, dt)
        return (dynamics.step(heavier, drone, rpm, dt, INSTANT, around), memory), None

    start = (at_rest(model, (0.0, 0.0, 1.0)), controllers.cascade_init())
    drone, _ = jax.jit(lambda: jax.lax.scan(step, start, None, 4800)[0])()
    np.testing.assert_allclose(drone.position, (0, 0, 1), atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tracker", "limits"),
    [
        ("position_loop", {"acceleration": (3, 3, 3), "spin": (20, 20, 5)}),
        ("dslpid", {"position": (2, 2, 0.15), "attitude": (1, 1, 1500)}),
        ("mellinger", {"position": (2, 2, 0.4), "attitude": (1, 1, 1500)}),
    ],
)
def test_integrals_stop_at_their_limits(tracker, limits):
    """Held by the hand for a hundred seconds, far away."""
    control, init, _ = TRACKERS[tracker]
    gains = {"position_loop": controllers.CascadeGains, "dslpid": controllers.DSLPIDGains}.get(
        tracker, controllers.MellingerGains
    )()
    drone = drone_at((30, -20, 10), (0.5, -0.4, 0.3), (1, -1, 1), (0.5, -0.5, 0.5))
    model = strongly_typed(models.CF2X)

    def step(memory, _):
        return control(memory, drone, hover(0.0), gains, model, 0.1)[::-1]

    memory, rpm = jax.jit(lambda: jax.lax.scan(step, init(), None, 1000))()
    for name, limit in limits.items():
        held = np.abs(np.array(getattr(memory, name)))
        assert np.all(held <= np.array(limit) * (1 + 1e-6))
        assert np.any(np.isclose(held, limit))
    assert np.all((np.array(rpm) >= model.min_rpm) & (np.array(rpm) <= model.max_rpm))


# ---- symmetry, gradients, batches


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("tracker", sorted({*TRACKERS} - {"dslpid"}))
def test_the_heading_of_the_world_does_not_matter(double, tracker):
    control, init, default = TRACKERS[tracker]
    model, turn = strongly_typed(models.CRAZYFLIE), 2.1
    given = {k: v[0] for k, v in make.states(1).items()}
    wanted = TARGET._replace(jerk=(0.5, -1.0, 0.3), snap=(2.0, 1.0, -1.0))
    about_z = Rotation.from_euler("z", turn)
    gains = jax.jit(lambda: default(model, 0.01))()

    def rpm(rotation, yaw):
        body = (rotation * Rotation.from_euler("xyz", given["rpy"])).as_euler("xyz")
        drone = drone_at(
            rotation.apply(given["position"]),
            body,
            rotation.apply(given["velocity"]),
            given["body_rates"],
            [float(model.hover_rpm)] * 4,
        )
        vectors = {
            k: tuple(rotation.apply(getattr(wanted, k)))
            for k in ("position", "velocity", "acceleration", "jerk", "snap")
        }
        setpoint = wanted._replace(yaw=wanted.yaw + yaw, **vectors)
        return np.array(control(init(), drone, setpoint, gains, model, 0.01)[0])

    np.testing.assert_allclose(rpm(about_z, turn), rpm(Rotation.identity(), 0.0), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("tracker", sorted(TRACKERS))
def test_gradients_are_finite_at_awkward_places(tracker):
    """No force at all wanted, hanging upside down, rotors that stand, exactly there."""
    control, init, default = TRACKERS[tracker]
    model = strongly_typed(models.CF2X)
    gains = strongly_typed(jax.jit(lambda: default(model, 0.01))())

    def loss(drone, setpoint, gains, model):
        rpm, memory = control(init(), drone, setpoint, gains, model, 0.01)
        return sum(jnp.sum(x) for x in jax.tree.leaves((rpm, memory))) / 1e4

    places = [
        (
            drone_at((0.0, 0.0, 1.0), rpy, rpm=(rpm,) * 4),
            strongly_typed(Setpoint((0.0, 0.0, 1.0), acceleration=(0.0, 0.0, a))),
        )
        for rpy in ((0, 0, 0), (math.pi, 0, 0), (0, math.pi / 2, 0))
        for a in (0.0, -9.8, -30.0)
        for rpm in (0.0, float(model.hover_rpm))
    ]
    stack = jax.tree.map(lambda *rows: jnp.stack(rows), *places)
    gradient = jax.vmap(jax.value_and_grad(loss, (0, 1, 2, 3)), (0, 0, None, None))
    answer = gradient(*stack, gains, model)  # not compiled as one program: that takes longer than all of this
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(answer))


@pytest.mark.slow
def test_gains_batch_and_can_be_learned():
    model, dt = strongly_typed(models.CF2X), 1 / 240
    gains = strongly_typed(controllers.SE3Gains())
    start = at_rest(model, (0.4, -0.3, 0.7))

    def cost(gains):
        flight = fly("se3", hover, model, start, INSTANT, dt, 240, gains)
        return jnp.mean(jnp.sum((flight.position - jnp.array([0.0, 0.0, 1.0])) ** 2, -1))

    batch = jax.tree.map(lambda x: x * jnp.array([0.7, 1.0, 1.3]), gains)
    stiffer = jax.tree.map(jnp.zeros_like, gains).replace(position=(jnp.ones(()),) * 3)
    costs, slopes = jax.jit(jax.vmap(lambda gains: jax.jvp(cost, (gains,), (stiffer,))))(batch)
    assert np.all(np.diff(costs) < 0)
    assert np.all(np.array(slopes) < 0)


@pytest.mark.slow
def test_a_swarm_is_the_same_code_on_arrays():
    model, gains = strongly_typed(models.CRAZYFLIE), controllers.CascadeGains()
    each = drones()
    swarm = jax.tree.map(lambda *x: jnp.stack(x), *each)
    loop = controllers.position_loop
    together, _ = loop(controllers.cascade_init(), swarm, TARGET, gains, model, 0.01)
    for i, drone in enumerate(each):
        alone, _ = loop(controllers.cascade_init(), drone, TARGET, gains, model, 0.01)
        np.testing.assert_allclose([x[i] for x in together], alone, rtol=1e-5)


# ---- LQR


@pytest.mark.slow
def test_lqr_agrees_with_scipy(double):
    names = ("cf2x", "racer", "crazyflie", "arpl")
    q, r, dt = np.diag(controllers.LQR_Q), np.diag(controllers.LQR_R), 0.01
    a, b = jax.jit(jax.vmap(lambda model: controllers.linearise(model, dt)))(fleet(names))
    gains = jax.jit(jax.vmap(lambda model: controllers.lqr_gains(model, dt=dt)))(fleet(names))
    solutions = jax.vmap(lambda a, b: controllers.riccati(a, b, jnp.array(q), jnp.array(r)))(a, b)
    for a_, b_, p, k in zip(*map(np.array, (a, b, solutions, gains.feedback)), strict=True):
        theirs = scipy.linalg.solve_discrete_are(a_, b_, q, r)
        np.testing.assert_allclose(p, theirs, atol=1e-9 * np.abs(theirs).max())
        wanted = np.linalg.solve(r + b_.T @ theirs @ b_, b_.T @ theirs @ a_)
        np.testing.assert_allclose(k, wanted, atol=1e-9 * np.abs(wanted).max())
        assert np.abs(np.linalg.eigvals(a_ - b_ @ k)).max() < 1


@pytest.mark.slow
def test_lqr_in_single_precision():
    model = strongly_typed(models.CF2X)
    single = jax.jit(controllers.lqr_gains)(model, dt=1 / 240).feedback
    with jax.enable_x64(True):
        double = jax.jit(controllers.lqr_gains)(strongly_typed(models.CF2X), dt=1 / 240).feedback
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, double, atol=1e-4 * np.abs(double).max())


@pytest.mark.slow
def test_linearisation_is_that_of_the_physics(double):
    """A hover that is pushed a little moves as A and B say."""
    model, dt = strongly_typed(models.CF2X), 0.01
    a, b = controllers.linearise(model, dt)
    u = np.array([1.0, -2.0, 0.5, 1.5]) * 1e-4
    x = np.array([0.3, -0.2, 0.1, 0.2, 0.1, -0.1, 0.4, -0.3, 0.2, 0.1, -0.2, 0.3]) * 1e-4
    thrusts = tuple(model.weight / 4 * (1 + u))
    rpm = tuple(dynamics.thrust_to_rpm(model, f) for f in thrusts)
    drone = Drone(scalars(x[:3]), rotations.exponential(scalars(x[6:9])), scalars(x[3:6]), scalars(x[9:]), rpm)
    new = dynamics.step(model, drone, rpm, dt, Physics("rk4", "instant"))
    moved = [*new.position, *new.velocity, *rotations.logarithm(new.quaternion), *new.body_rates]
    np.testing.assert_allclose(moved, a @ x + b @ u, atol=1e-8)


# ---- gains of other airframes


def test_rescaled_gains_of_the_airframes_they_are_from(double):
    for ours, theirs in (
        (controllers.dslpid_gains(models.CF2X), controllers.DSLPIDGains()),
        (
            controllers.mellinger_gains(models.CRAZYFLOW_0_1["cf2x_L250"]).replace(
                motor_bandwidth=0.0,
                mass=0.029,
                thrust_scale=132000.0,
                thrust_to_torque=0.007350862856566459,
                torque_limit=(32000.0,) * 3,
            ),
            controllers.MellingerGains(),
        ),
    ):
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4), ours, theirs)
