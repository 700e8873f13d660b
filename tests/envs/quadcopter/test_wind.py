"""Gusts against the closed forms of the spectra; the battery against its equations."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, linalg

from jaxrl.environment import strongly_typed
from jaxrl.envs.quadcopter import battery, dynamics, models, wind
from jaxrl.envs.quadcopter.swarms.multi_hover import MultiHover
from jaxrl.envs.quadcopter.tasks.hover import Hover
from jaxrl.envs.quadcopter.tasks.payload import Payload
from jaxrl.envs.quadcopter.tasks.reach_avoid import ReachAvoid, ReachAvoidLevel
from jaxrl.envs.quadcopter.tasks.trajectory_tracking import TrajectoryTracking
from jaxrl.envs.quadcopter.wind import Dryden

TURBULENCE = Dryden((1.3, 0.9, 0.6), (8.0, 5.0, 3.0), 4.0)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@functools.partial(jax.jit, static_argnums=(2, 3))
def series(key, params, steps, batch, dt):
    first, rest = jax.random.split(key)
    state = wind.init(jax.random.normal(first, (5, batch)), params)

    def body(state, key):
        return wind.step(state, jax.random.normal(key, (5, batch)), params, dt)

    return jnp.stack(jax.lax.scan(body, state, jax.random.split(rest, steps))[1], -1)  # (steps, batch, 3)


@pytest.fixture(scope="module")
def flow():
    with jax.enable_x64(True):
        return np.asarray(series(jax.random.key(0), TURBULENCE, 120, 20_000, 0.05))


@pytest.mark.slow
def test_every_sample_has_the_stationary_variance(flow):
    np.testing.assert_allclose(flow.var(1).mean(0), np.square(TURBULENCE.sigma), rtol=0.02)
    np.testing.assert_allclose(flow[[0, -1]].std(1), np.tile(TURBULENCE.sigma, (2, 1)), rtol=0.02)
    np.testing.assert_allclose(flow.mean((0, 1)), 0, atol=0.02)
    assert abs(np.corrcoef(flow[60].T) - np.eye(3)).max() < 0.03


@pytest.mark.slow
def test_autocorrelation_is_the_closed_form(flow):
    for lag in (1, 4, 16, 40, 100):
        ratio = 0.05 * lag * TURBULENCE.airspeed / np.array(TURBULENCE.length)
        wanted = np.exp(-ratio) * np.array([1, 1 - ratio[1] / 2, 1 - ratio[2] / 2])
        found = (flow[lag:] * flow[:-lag]).mean((0, 1)) / np.square(TURBULENCE.sigma)
        np.testing.assert_allclose(found, wanted, atol=0.015)


def test_the_spectra_have_variance_one():
    """The autocorrelations used above belong to the filters of the docstring."""

    def across(w):
        return abs((1 + math.sqrt(3) * 1j * w) / (1 + 1j * w) ** 2) ** 2 / math.pi

    def along(w):
        return 2 / (1 + w * w) / math.pi

    for spectrum, correlation in ((along, lambda t: math.exp(-t)), (across, lambda t: (1 - t / 2) * math.exp(-t))):
        assert abs(integrate.quad(spectrum, 0, np.inf)[0] - 1) < 1e-9
        assert abs(integrate.quad(spectrum, 0, np.inf, weight="cos", wvar=1.7)[0] - correlation(1.7)) < 1e-6


def transition(z, dtype):
    """The discrete filter as a matrix and a covariance, by unit vectors."""

    def apply(y1, y2, n1, n2):
        return jnp.stack(wind._second_order((y1, y2), n1, n2, jnp.asarray(z, dtype)))

    columns = [apply(*(jnp.asarray(float(i == j), dtype) for j in range(4))) for i in range(4)]
    table = np.stack([np.asarray(c, np.float64) for c in columns], 1)
    return table[:, :2], table[:, 2:] @ table[:, 2:].T


@pytest.mark.slow(but_first=5)
@pytest.mark.parametrize("z", [1e-6, 1e-3, 0.1, 0.499, 0.501, 3.0, 40.0])
def test_discretisation_is_exact(z):
    """Against Van Loan's matrix exponential, and against its leading order where that has no digits left."""
    drift, noise = np.array([[-1.0, 0.0], [1.0, -1.0]]), np.array([[2.0, 0.0], [0.0, 0.0]])
    phi, covariance = transition(z, jnp.float64)
    np.testing.assert_allclose(phi, linalg.expm(drift * z), rtol=1e-12, atol=1e-15)
    if z < 30:
        both = linalg.expm(np.block([[-drift, noise], [np.zeros((2, 2)), drift.T]]) * z)
        np.testing.assert_allclose(covariance, both[2:, 2:].T @ both[:2, 2:], rtol=1e-9, atol=1e-15)
    if z < 1e-2:
        np.testing.assert_allclose(covariance, [[2 * z, z**2], [z**2, 2 * z**3 / 3]], rtol=3 * z)
    single = transition(z, jnp.float32)[1]
    np.testing.assert_allclose(single, covariance, rtol=3e-6, atol=1e-30)


def test_two_half_steps_are_one():
    """In distribution: Phi^2 and Phi Q Phi' + Q."""
    phi, q = transition(0.35, jnp.float64)
    twice, both = transition(0.7, jnp.float64)
    np.testing.assert_allclose(phi @ phi, twice, rtol=1e-12)
    np.testing.assert_allclose(phi @ q @ phi.T + q, both, rtol=1e-12)
    stationary = np.array([[1, 0.5], [0.5, 0.5]])
    np.testing.assert_allclose(phi @ stationary @ phi.T + q, stationary, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.light
def test_vmap_over_params_and_dtypes():
    params = Dryden((jnp.ones(3, jnp.float32),) * 3, (jnp.array([1, 10, 100], jnp.float32),) * 3, jnp.float32(5))
    normals = jax.random.normal(jax.random.key(1), (5, 3), jnp.float32)

    @jax.jit
    @jax.vmap
    def one(sigma, length, normals):
        params = Dryden((sigma,) * 3, (length,) * 3, jnp.float32(5))
        return wind.step(wind.init(normals, params), normals[::-1], params, jnp.float32(0.01))

    state, gust = one(params.sigma[0], params.length[0], normals.T)
    together, same = wind.step(wind.init(normals, params), normals[::-1], params, jnp.float32(0.01))
    for a, b in zip(jax.tree.leaves((state, gust)), jax.tree.leaves((together, same)), strict=True):
        assert a.dtype == jnp.float32
        np.testing.assert_allclose(a, b, rtol=1e-6)
    slope = jax.jit(jax.grad(lambda v: wind.step(state, normals, params.replace(airspeed=v), 0.01)[1][2].sum()))(5.0)
    assert np.isfinite(slope) and slope != 0


def test_low_altitude_values():
    """MIL-F-8785C at 100 feet with 30 knots, in its own units by hand."""
    knots, foot = 0.514444, 0.3048
    params = wind.low_altitude(100 * foot, 30 * knots, 10.0)
    shape = 0.177 + 0.0823
    np.testing.assert_allclose(np.array(params.length) / foot, [100 / shape**1.2, 100 / shape**1.2, 100], rtol=1e-9)
    np.testing.assert_allclose(np.array(params.sigma) / knots, [3 / shape**0.4, 3 / shape**0.4, 3], rtol=1e-9)


def test_the_world_gets_the_wind_turned():
    np.testing.assert_allclose(wind.in_world((1.0, 2.0, 3.0), math.pi / 2, 4.0), (-2, 5, 3), atol=1e-12)


# ---- battery


def test_voltage_and_current_solve_the_circuit():
    cell, model = battery.Battery(), models.CRAZYFLIE
    rpm = (16_000.0, 17_000.0, 18_000.0, 15_000.0)
    volts = battery.voltage(0.6, rpm, model, cell)
    torque = model.torque[2] * np.square(rpm)
    electric = float(np.sum(torque * np.array(rpm) * 2 * math.pi / 60)) / cell.efficiency
    np.testing.assert_allclose(battery.power(rpm, model, cell), electric, rtol=1e-12)
    current = electric / volts
    np.testing.assert_allclose(volts, 3.2 + 0.6 - cell.resistance * current, rtol=1e-12)
    np.testing.assert_allclose(battery.discharge(0.6, rpm, model, cell, 0.5), 0.6 - 0.5 * current / 900, rtol=1e-12)


def test_ratio_falls_with_load_and_charge_and_is_one_when_idle():
    cell, model = battery.Battery(), models.CRAZYFLIE
    assert battery.voltage_ratio(1.0, (0.0,) * 4, model, cell) == 1
    ratios = [float(battery.voltage_ratio(c, (n,) * 4, model, cell)) for c, n in ((1, 8e3), (1, 2e4), (0.2, 2e4))]
    assert 1 > ratios[0] > ratios[1] > ratios[2] > 0.5
    ideal = cell.replace(resistance=0.0)
    assert battery.voltage_ratio(0.5, (2e4,) * 4, model, ideal) == pytest.approx(3.7 / 4.2)


def test_more_than_the_battery_can_give():
    cell, model = battery.Battery(resistance=2.0), models.CRAZYFLIE
    assert battery.voltage(1.0, (2.1e4,) * 4, model, cell) == pytest.approx(2.1)
    assert battery.discharge(1.0, (2.1e4,) * 4, model, cell, 1.0) == pytest.approx(1 - 4.2 / 4 / 900)
    slope = jax.grad(lambda c: battery.voltage(c, (2.1e4,) * 4, model, cell))(0.9)
    assert np.isfinite(slope)


def test_a_crazyflie_hovers_for_about_seven_minutes():
    cell, model = battery.Battery(), models.CRAZYFLIE
    rpm = (float(model.hover_rpm),) * 4
    charges = jax.lax.scan(lambda c, _: (battery.discharge(c, rpm, model, cell, 1.0),) * 2, 1.0, None, 1000)[1]
    assert 6.5 < int((charges > 0).sum()) / 60 < 7.5


# ---- in the tasks

MOVING = {"physics": dynamics.CRAZYFLOW_0_4.replace(floor="none"), "substeps": 5}


def flown(env, params, steps=60):
    """The states of an episode under hovering actions."""

    def body(carry, key):
        ts = env.step(key, carry, jnp.zeros(env.action_space(params).shape), params)
        return ts.state, ts.state

    _, state = env.reset(jax.random.key(0), params)
    return jax.lax.scan(body, state, jax.random.split(jax.random.key(1), steps))[1]


@pytest.fixture(scope="module")
def gusty():
    env = Hover(gusts=True, privileged=True, noise=False, history=0, **MOVING)
    params = env.default_params.replace(
        model=models.CRAZYFLOW_0_4["cf2x_L250"], dt=jnp.float32(0.002), wind=tuple(map(jnp.float32, (3.0, 4.0, 0.0)))
    )
    return env, params


@pytest.mark.slow
def test_gusts_turn_with_the_wind_and_are_stepped_by_the_task(gusty):
    env, params = gusty
    calm = params.replace(turbulence=params.turbulence.replace(sigma=jnp.array([1.0, 1e-6, 1e-6])))
    state = jax.jit(jax.vmap(lambda key: env.initial(key, calm)))(jax.random.split(jax.random.key(0), 4096))
    seen = np.stack(jax.vmap(lambda s: jnp.stack(env.wind_at(s, calm)))(state))
    np.testing.assert_allclose(seen.mean(0), [3, 4, 0], atol=0.06)
    along = (seen - [3, 4, 0]) @ [0.6, 0.8, 0]
    assert along.std() == pytest.approx(1, rel=0.05)
    np.testing.assert_allclose(seen - [3, 4, 0], along[:, None] * [0.6, 0.8, 0], atol=1e-5)
    walk = np.asarray(flown(env, params).gust.u)
    assert not env.hints.deterministic
    assert len(np.unique(walk)) == len(walk)
    rate = 5 * 0.002 * float(params.turbulence.airspeed / params.turbulence.length[0])
    assert np.diff(walk).std() == pytest.approx(math.sqrt(2 * rate), rel=0.3)


@pytest.mark.slow
def test_the_wind_carries_a_drone_away_through_its_drag(gusty):
    env, params = gusty
    still = params.replace(wind=(0.0, 0.0, 0.0), turbulence=params.turbulence.replace(sigma=jnp.full(3, 1e-9)))
    blown = still.replace(wind=(8.0, 0.0, 0.0))
    ends = [jax.jit(flown, static_argnums=0)(env, p).drone.velocity[0][-1] for p in (still, blown)]
    drag = float(params.model.body_drag[0]) * 8 / float(params.model.mass)
    assert float(ends[1] - ends[0]) == pytest.approx(drag * 60 * 5 * 0.002, rel=0.2)


@pytest.mark.slow
def test_a_battery_empties_and_a_low_one_lifts_less():
    env = Hover(battery=True, noise=False, history=0, privileged=True)
    params = env.default_params.replace(force_std=jnp.float32(0), torque_std=jnp.float32(0), arena=jnp.float32(1e3))
    params = params.replace(guidance=jnp.float32(1))
    fly = jax.jit(flown, static_argnums=0)
    full, low = (fly(env, params.replace(start_charge=(c, c))) for c in (1.0, 0.2))
    assert np.all(np.diff(full.charge) < 0)
    assert full.drone.velocity[2][-1] > low.drone.velocity[2][-1] + 0.1
    after, cell = jax.tree.map(lambda x: x[-1], low), params.battery
    command = (float(params.model.max_rpm) / 2,) * 4  # of action 0
    ratio = battery.voltage_ratio(after.charge, after.drone.rpm, params.model, cell)
    np.testing.assert_allclose(np.array(after.drone.rpm), np.array(command) * ratio, rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [lambda **s: MultiHover(num_drones=2, **s), Payload, ReachAvoid, ReachAvoidLevel, TrajectoryTracking]
)
def test_every_kind_of_task_has_gusts_and_a_battery(make):
    env = make(gusts=True, battery=True, privileged=True, physics=dynamics.L2F.replace(drag="body", motors="instant"))
    params = env.default_params
    params = strongly_typed(params.replace(model=params.model.replace(body_drag=(0.01, 0.01, 0.02))))
    env.validate(params)
    obs, state = jax.jit(env.reset)(jax.random.key(0), params)
    space = env.observation_space(params)
    assert space.contains(obs)
    ts = jax.jit(env.step)(jax.random.key(1), state, env.action_space(params).sample(jax.random.key(2)), params)
    assert space.contains(ts.obs)
    assert np.all(np.asarray(ts.state.charge) < np.asarray(state.charge))
    assert float(ts.state.gust.u) != float(state.gust.u)


@pytest.mark.slow
def test_gradients_reach_the_mean_wind_where_it_is_still(gusty):
    env, params = gusty
    still = params.replace(wind=tuple(map(jnp.float32, (0.0, 0.0, 0.0))))
    _, state = env.reset(jax.random.key(0), still)

    def speed(wind):
        around = env.wind_at(state, still.replace(wind=wind))
        return sum(x**2 for x in around)

    slopes = np.asarray(jax.grad(speed)(still.wind))
    assert np.all(np.isfinite(slopes)) and np.all(slopes != 0)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="gusts=True needs physics with drag"):
        Hover(gusts=True)
    env = Hover()
    with pytest.raises(ValueError, match="wind .*acts only on physics with drag"):
        env.validate(env.default_params.replace(wind=(1.0, 0.0, 0.0)))
    with pytest.raises(ValueError, match="battery=False and its numbers"):
        env.validate(env.default_params.replace(battery=battery.Battery()))
    env = Hover(battery=True)
    with pytest.raises(ValueError, match="start_charge"):
        env.validate(env.default_params.replace(start_charge=(0.5, 0.2)))
    with pytest.raises(ValueError, match="capacity"):
        env.validate(env.default_params.replace(battery=battery.Battery(capacity=0.0)))
