"""The slung load: conservation laws, the pendulum's period, the cable's constraints, and the task by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.quadcopter import dynamics, models
from jaxrl.envs.quadcopter.dynamics import Physics
from jaxrl.envs.quadcopter.tasks import payload

LOAD, LENGTH = 0.02, 0.5  # kg, m
PHYSICS = Physics("rk4", "instant")
MASS, GRAVITY = models.CRAZYFLIE.mass, 9.81
WEIGHT = (MASS + LOAD) * GRAVITY


@pytest.fixture(scope="module")
def fly():
    """`fly(thrust, angle, swing, dt, steps)`: the carriers and tensions of a flight in float64."""
    with jax.enable_x64(True):
        model = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), models.CRAZYFLIE)

        @jax.jit
        def run(rpm, angle, swing, dt):
            sine, cosine = jnp.sin(angle), jnp.cos(angle)
            cable = (sine, 0 * sine, -cosine)
            drone = dynamics.at_rest(model, rpm=rpm)
            carrier = payload.Carrier(*drone, cable, (swing[0] * cosine, swing[1], swing[0] * sine))

            def body(carrier, _):
                new, pull = payload.step(model, carrier, (rpm,) * 4, dt, LOAD, LENGTH, PHYSICS)
                return new, (new, pull)

            return jax.lax.scan(body, carrier, None, 3000)[1]

        def fly(thrust, angle, swing, dt, steps):
            rpm = dynamics.thrust_to_rpm(model, jnp.float64(thrust / 4))
            out = run(rpm, jnp.float64(angle), jnp.array(swing, jnp.float64), jnp.float64(dt))
            return jax.tree.map(lambda x: np.asarray(x)[:steps], out)

        yield fly


def energy(carrier, thrust):
    """Of drone and load [J]; the constant vertical thrust has a potential of its own."""
    velocity, (place, motion) = np.array(carrier.velocity), payload.load(carrier, LENGTH)
    kinetic = 0.5 * MASS * (velocity**2).sum(0) + 0.5 * LOAD * (np.array(motion) ** 2).sum(0)
    height = np.array(carrier.position[2])
    return kinetic + GRAVITY * (MASS * height + LOAD * np.array(place)[2]) - thrust * height


@pytest.mark.slow
@pytest.mark.parametrize("thrust", [0.0, 0.3, WEIGHT])
def test_energy_and_momentum(fly, thrust):
    """Conserved, to the fourth order of the step; the cable stays as long as it is, and its rate at right angles."""
    drift = []
    for dt in (0.01, 0.005):
        carrier, pull = fly(thrust, 0.8, (0.3, 2.0), dt, round(1 / dt))
        total = energy(carrier, thrust)
        drift.append(np.ptp(total))
        momentum = MASS * np.array(carrier.velocity) + LOAD * np.array(payload.load(carrier, LENGTH)[1])
        time = dt * np.arange(1, len(total) + 1)
        np.testing.assert_allclose(np.ptp(momentum[:2], 1), 0, atol=1e-6)
        np.testing.assert_allclose(np.ptp(momentum[2] - (thrust - WEIGHT) * time), 0, atol=1e-6)
        np.testing.assert_allclose(sum(x * x for x in carrier.cable), 1, rtol=1e-14)
        across = sum(a * b for a, b in zip(carrier.cable, carrier.swing, strict=True))
        np.testing.assert_allclose(across, 0, atol=1e-14)
        assert np.all(pull > 0)
    assert drift[1] < 1e-7
    assert drift[1] < drift[0] / 10


def test_period_of_small_swings(fly):
    """Under a thrust equal to the weight the load swings against the drone: T = 2 pi sqrt(M l / ((M + m) g))."""
    carrier, pull = fly(WEIGHT, 1e-3, (0.0, 0.0), 0.002, 3000)
    x = carrier.cable[0]
    i = np.flatnonzero((x[:-1] > 0) & (x[1:] <= 0))
    crossing = 0.002 * (i + x[i] / (x[i] - x[i + 1]))
    np.testing.assert_allclose(np.diff(crossing), 2 * math.pi * math.sqrt(MASS * LENGTH / WEIGHT), rtol=1e-6)
    np.testing.assert_allclose(pull, LOAD * GRAVITY, rtol=1e-5)


def test_hanging_and_falling(fly):
    """A load that hangs under a hovering drone stays; in free fall the cable is slack, and pulls if they turn."""
    carrier, pull = fly(WEIGHT, 0.0, (0.0, 0.0), 0.01, 200)
    np.testing.assert_allclose(np.array(carrier.position), 0, atol=1e-12)
    np.testing.assert_allclose(pull, LOAD * GRAVITY, rtol=1e-10)
    carrier, pull = fly(0.0, 0.5, (0.0, 0.0), 0.01, 100)
    np.testing.assert_allclose(pull, 0, atol=1e-12)
    np.testing.assert_allclose(carrier.velocity[2][-1], -GRAVITY, rtol=1e-10)
    carrier, pull = fly(0.0, 0.5, (0.0, 3.0), 0.01, 100)
    np.testing.assert_allclose(pull, LOAD * MASS / (LOAD + MASS) * LENGTH * 9, rtol=1e-6)  # reduced mass


def test_against_the_constraint(fly):
    """The tension is that which keeps the accelerations of both ends along the cable at the centripetal one."""
    carrier, _ = fly(0.3, 0.8, (0.3, 2.0), 0.005, 1)
    model = models.CRAZYFLIE
    now = jax.tree.map(lambda x: jnp.asarray(x[0], jnp.float32), carrier)
    rate, pull = payload.derivative(model, now, now.rpm, LOAD, LENGTH, PHYSICS)
    cable, swing = np.array(now.cable), np.array(now.swing)
    load_acceleration = -np.array([0, 0, GRAVITY]) - float(pull) / LOAD * cable
    apart = load_acceleration - np.array(rate.velocity)
    rule = np.cross(np.array(rate.swing), cable) + np.cross(swing, np.cross(swing, cable))
    np.testing.assert_allclose(apart, LENGTH * rule, atol=1e-4)


# ---- the task


ENV = payload.Payload(substeps=1)
RESET, STEP = jax.jit(ENV.reset), jax.jit(ENV.step)
KEY = jax.random.key(0)


@pytest.mark.slow
def test_reward_and_end():
    params = ENV.default_params.replace(goal=jnp.array([1.0, 2.0, 3.0]), start_position=jnp.array(0.1))
    _, state = RESET(KEY, params)
    assert ENV.observe(KEY, state, params).shape == (18 + 9 + 4,)
    ts = STEP(KEY, state, jnp.array([0.2, 0.1, 0.0, -0.1]), params)
    place, _ = payload.load(ts.state.drone, 0.3)
    distance = np.linalg.norm(np.array(place) - [1, 2, 3])
    cost = 0.02 * np.sum(np.square(payload.cable_rate(ts.state.drone)))
    cost = cost + 2e-3 * np.sum(np.square(ts.state.drone.body_rates))
    np.testing.assert_allclose(ts.reward, np.exp(-distance) - cost, rtol=1e-5)
    assert not ts.terminated and ts.info["tension"] > 0
    np.testing.assert_allclose(ts.info["distance"], distance, rtol=1e-5)

    def after(**changes):
        return STEP(KEY, state.replace(drone=state.drone._replace(**changes)), jnp.zeros(4), params)

    far = after(position=tuple(jnp.asarray(x) for x in (1.0, 4.5, 3.0)))
    upside_down = after(quaternion=tuple(jnp.asarray(x) for x in (0.0, 1.0, 0.0, 0.0)))
    above = after(cable=tuple(jnp.asarray(x) for x in (0.0, 0.0, 1.0)), swing=(jnp.zeros(()),) * 3)
    for ts, slack in ((far, False), (upside_down, True), (above, True)):
        assert ts.terminated and bool(ts.info["slack"]) == slack and ts.reward < -8


def test_starts():
    params = ENV.default_params
    carriers = jax.jit(jax.vmap(lambda key: ENV.start(key, params)[0]))(jax.random.split(KEY, 500))
    np.testing.assert_allclose(sum(x * x for x in carriers.cable), 1, rtol=1e-5)
    angle = np.arccos(-carriers.cable[2])
    assert angle.max() <= math.pi / 6 + 1e-3 and angle.max() > 0.45
    place = np.array(payload.load(carriers, params.cable)[0])
    assert np.abs(place).max() <= 1 + 1e-5 and np.abs(place).max() > 0.95


def test_refused():
    with pytest.raises(ValueError, match="rk4"):
        payload.Payload(physics=dynamics.GPD_DYN)
    with pytest.raises(ValueError, match="cable"):
        ENV.validate(ENV.default_params.replace(cable=jnp.array(0.0)))
    with pytest.raises(ValueError, match="start_swing"):
        ENV.validate(ENV.default_params.replace(start_swing=jnp.array(2.0)))


@pytest.mark.slow
@pytest.mark.parametrize("motors", ["instant", "first_order", "asymmetric"])
def test_loops_see_the_lag_of_the_physics(motors):
    """With a swing at the start: without a lag to counter the loop keeps still."""
    env = payload.Payload(physics=Physics("rk4", motors), action="velocity")
    params = env.default_params.replace(start_position=0.0)

    @jax.jit
    def rates(key):
        def body(state, _):
            ts = env.step(key, state, jnp.zeros(4), params)
            return ts.state, (jnp.stack(ts.state.drone.body_rates), ts.terminated)

        return jax.lax.scan(body, env.reset(key, params)[1], length=100)[1]

    rates, ended = rates(jax.random.key(0))
    assert not np.any(ended)
    assert np.max(np.abs(rates[50:])) < 1.0
