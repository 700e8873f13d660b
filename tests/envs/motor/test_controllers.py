"""Controllers of electric drives: gym-electric-motor's gains and scores, steady states, operating points, bad input."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.motor import references, tasks
from jaxrl.envs.motor.control import controllers, operating_points
from jaxrl.envs.motor.drive import MotorDrive
from jaxrl.envs.motor.machines.pmsm import flux_maps

N = 4


def drive(id: str, **settings) -> MotorDrive:
    return MotorDrive(**tasks.find(id), id=id, **settings)


@functools.cache
def closed_loop(env: MotorDrive, method: str | None, steps: int, tuning: str = "magnitude"):
    """A compiled loop over a batch of params: rewards, ends and measured quantities, (N, T) each."""
    controller = controllers.make(env, method, tuning)

    def one(key, params):
        start_key, key = jax.random.split(key)
        _, start = env.reset(start_key, params)
        gains = controller.tune(params)

        def step(loop, key):
            state, carry = loop
            action, carry = controller.act(params, state, carry, gains)
            ts = env.step(key, state, action, params)
            signals = env.signals(ts.state.plant, params)
            state = jax.tree.map(lambda new, old: jnp.where(ts.terminated, new, old), start, ts.state)
            return (state, carry), (ts.reward, ts.terminated, signals)

        return jax.lax.scan(step, (start, controller.init()), jax.random.split(key, steps))[1]

    return jax.jit(jax.vmap(one))


def run(id, params=None, method=None, steps=400, tuning="magnitude", seed=0, **settings):
    env = drive(id, **settings)
    params = env.default_params if params is None else params
    batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (N, *jnp.shape(x))), params)
    return closed_loop(env, method, steps, tuning)(jax.random.split(jax.random.key(seed), N), batch)


def hold(id: str, *values: float, **settings) -> Any:
    """Default params whose references stand at `values` (of the limits)."""
    params = drive(id, **settings).default_params
    still = tuple(
        r.replace(low=jnp.asarray(v), high=jnp.asarray(v), start_low=jnp.asarray(v), start_high=jnp.asarray(v))
        for r, v in zip(params.references, values, strict=True)
    )
    return params.replace(references=still)


def fine(rewards, ends, signals) -> None:
    assert np.isfinite(rewards).all()
    assert all(np.isfinite(x).all() for x in signals.values())
    assert not np.asarray(ends).any()


# ---- gains

GEM = {
    "Cont-CC-PMSM-v0": ((0.925, 3.0), (578.125, 1875.0)),
    "Finite-CC-PMSM-v0": ((9.25, 30.0), (57812.5, 187500.0)),
    "Cont-CC-SeriesDc-v0": ((13.5475,), (8467.1875,)),
    "Cont-CC-PermExDc-v0": ((0.0475,), (29.6875,)),
    "Cont-CC-ShuntDc-v0": ((0.0475,), (29.6875,)),
    "Cont-CC-ExtExDc-v0": ((0.0475, 13.5), (29.6875, 8437.5)),
    "Cont-CC-SynRM-v0": ((25.25, 10.25), (15781.25, 6406.25)),
    "Cont-CC-SCIM-v0": ((276.0516605166051,) * 2, (172532.2878228782,) * 2),
}
"""gem_controllers of gym-electric-motor 3.0.3: V/A and V/(A s)."""


@pytest.mark.parametrize("id", GEM)
def test_the_symmetric_optimum_gives_the_gains_of_gym_electric_motor(id):
    env = drive(id, upstream=True)
    gains = controllers.tune(env, env.default_params, "symmetric")
    p, i = GEM[id]
    np.testing.assert_allclose(gains.current_p, p, rtol=1e-5)
    np.testing.assert_allclose(gains.current_i, i, rtol=1e-5)


def test_speed_gains():
    env = drive("Cont-SC-PermExDc-v0")
    gains = controllers.tune(env, env.default_params)
    np.testing.assert_allclose((gains.speed_p, gains.speed_i), (3.921875, 612.79296875), rtol=1e-5)


def test_the_magnitude_optimum_cancels_the_winding():
    env = drive("Cont-CC-PMSM-v0")
    params = env.default_params
    gains = controllers.tune(env, params)
    machine = params.machine
    np.testing.assert_allclose(gains.current_p, np.array([0.37e-3, 1.2e-3]) / 2e-4, rtol=1e-5)
    ratio = np.array([machine.r_s / machine.l_d, machine.r_s / machine.l_q])
    np.testing.assert_allclose(np.array(gains.current_i) / np.array(gains.current_p), ratio, rtol=1e-5)


# ---- current control

SCORES = {
    "PMSM": (-0.0099, -0.256),
    "SynRM": (-0.0064, -0.328),
    "SeriesDc": (-0.0186, -0.083),
    "PermExDc": (-0.0208, -3.72),
    "ShuntDc": (-0.0078, -3.47),
    "ExtExDc": (-0.0299, -3.51),
}
"""Mean reward a step of gym-electric-motor's PI, six seeds of 4,000 steps, and of random actions, one seed."""


@pytest.mark.slow
@pytest.mark.parametrize("motor", SCORES)
def test_current_control_scores_as_gym_electric_motors(motor):
    rewards, ends, signals = run(f"Cont-CC-{motor}-v0")
    fine(rewards, ends, signals)
    stock, chance = SCORES[motor]
    assert rewards.mean() > 1.5 * stock  # references of other draws
    assert rewards.mean() > 0.4 * chance


@pytest.mark.slow
@pytest.mark.parametrize("id", tasks.IDS)
def test_no_controller_violates_a_constraint(id):
    fine(*run(id, steps=2000))


STEADY = {
    "PMSM": (-0.3, 0.4),
    "SynRM": (0.3, 0.4),
    "SeriesDc": (0.4,),
    "PermExDc": (0.3,),
    "ExtExDc": (0.1, 0.3),
    "EESM": (-0.2, 0.4, 0.5),
    "SCIM": (0.5, 0.4),
    "DFIM": (0.4, 0.3),
    "SIXPMSM": (-0.2, 0.3, 0.05, -0.05),
}


@pytest.mark.slow
@pytest.mark.parametrize("motor", STEADY)
def test_currents_settle_at_their_references(motor):
    id, wanted = f"Cont-CC-{motor}-v0", STEADY[motor]
    rewards, ends, signals = run(id, hold(id, *wanted))
    fine(rewards, ends, signals)
    env = drive(id)
    for name, value in zip(env.referenced or (), wanted, strict=True):
        found = signals[name][:, -20:] / env.limit(name, env.default_params)
        np.testing.assert_allclose(found, value, atol=0.01 if motor in ("SCIM", "DFIM") else 2e-3)


@pytest.mark.slow
def test_currents_stay_within_limits_when_references_jump():
    """What holds the other axis's current comes before what pushes one."""
    id = "Cont-CC-EESM-v0"
    params = drive(id).default_params
    jumps = tuple(
        references.Ramp(r.low, r.high, *(jnp.float32(x) for x in (1e6, 12.0, 40.0)), jnp.zeros(()), jnp.zeros(()))
        for r in params.references
    )
    fine(*run(id, params.replace(references=jumps), steps=2000))


@pytest.mark.slow
def test_a_doubly_fed_machine_follows_currents_against_its_flux():
    """Its rotor's voltage keeps the flux that the stator's current takes away, within the rotor's own limit."""
    id = "Cont-CC-DFIM-v0"
    rewards, ends, signals = run(id, hold(id, -0.6, 0.4))
    fine(rewards, ends, signals)
    np.testing.assert_allclose(signals["i_sd"][:, -50:] / 9, -0.6, atol=2e-3)
    np.testing.assert_allclose(signals["i_sq"][:, -50:] / 9, 0.4, atol=2e-3)
    assert np.hypot(signals["i_rd"], signals["i_rq"]).max() < 9


@pytest.mark.slow
def test_a_squirrel_cage_machine_without_flux_still_follows_the_q_current():
    id = "Cont-CC-SCIM-v0"
    rewards, ends, signals = run(id, hold(id, -0.4, 0.3))
    fine(rewards, ends, signals)
    np.testing.assert_allclose(signals["i_sd"][:, -50:] / 5.5, 0.0, atol=0.02)
    np.testing.assert_allclose(signals["i_sq"][:, -50:] / 5.5, 0.3, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"dq_actions": True}, {"method": "mpc"}])
def test_rotor_voltages_by_other_ways(settings):
    id = "Cont-CC-DFIM-v0"
    still = {name: x for name, x in settings.items() if name != "method"}
    rewards, ends, signals = run(id, hold(id, -0.4, 0.3, **still), **settings)
    fine(rewards, ends, signals)
    np.testing.assert_allclose(signals["i_sd"][:, -20:] / 9, -0.4, atol=0.01)


@pytest.mark.slow
def test_one_program_controls_different_machines():
    id = "Cont-CC-PMSM-v0"
    params = jax.tree.map(lambda x: jnp.broadcast_to(x, (N, *jnp.shape(x))), hold(id, -0.3, 0.4))
    factors = jnp.array([0.5, 0.8, 1.3, 2.0])
    machine = params.machine.replace(l_d=params.machine.l_d * factors, psi_p=params.machine.psi_p / factors)
    params = params.replace(machine=machine)
    rewards, ends, signals = closed_loop(drive(id), None, 400)(jax.random.split(jax.random.key(0), N), params)
    fine(rewards, ends, signals)
    np.testing.assert_allclose(signals["i_sq"][:, -20:] / 400, 0.4, atol=2e-3)
    gains = jax.vmap(lambda p: controllers.tune(drive(id), p))(params)
    np.testing.assert_allclose(gains.current_p[0], 1.85 * factors, rtol=1e-5)


@pytest.mark.slow
def test_actions_on_turning_axes_and_dead_time():
    id = "Cont-CC-PMSM-v0"
    settings = {"dead_time": 2, "dq_actions": True}
    rewards, ends, signals = run(id, hold(id, -0.3, 0.4, **settings), **settings)
    fine(rewards, ends, signals)
    np.testing.assert_allclose(signals["i_sq"][:, -20:] / 400, 0.4, atol=2e-3)


# ---- operating points


def brute_force(l_d, l_q, psi, constant, torque, i_max, psi_max):
    """The same by looking everywhere, to a 500th of the current."""
    d, q = np.meshgrid(np.linspace(-i_max, i_max, 2001), np.linspace(0, i_max, 2001), indexing="ij")
    made = constant * (psi + (l_d - l_q) * d) * q
    free = (np.hypot(d, q) <= i_max) & (np.hypot(psi + l_d * d, l_q * q) <= psi_max)
    best = np.where(free, made, -np.inf).max()
    enough = free & (made >= min(abs(torque), best) * (1 - 1e-6))
    return best, np.where(enough, np.hypot(d, q), np.inf).min()


PMSM_AXES, SYNRM_AXES, ROUND = (0.37e-3, 1.2e-3, 66e-3, 4.5), (10.1e-3, 4.1e-3, 0.0, 6.0), (1e-3, 1e-3, 0.05, 4.5)


@pytest.mark.slow(but_first=3)
@pytest.mark.parametrize(
    ("axes", "torque", "i_max", "psi_max"),
    [
        (PMSM_AXES, 50.0, 240.0, 10.0),  # most torque per current
        (PMSM_AXES, -50.0, 240.0, 0.09),  # field weakening
        (PMSM_AXES, 100.0, 240.0, 0.03),  # more than there is
        (PMSM_AXES, 1e3, 240.0, 10.0),  # at the current's limit
        (SYNRM_AXES, 1.5, 18.0, 10.0),
        (SYNRM_AXES, -1.5, 18.0, 0.06),
        (ROUND, 10.0, 100.0, 10.0),
        (ROUND, 10.0, 100.0, 0.055),
    ],
)
def test_operating_points_are_the_best_of_all(axes, torque, i_max, psi_max):
    i_d, i_q, made = (float(x) for x in OPTIMUM(*axes, torque, i_max, psi_max))
    l_d, l_q, psi, constant = axes
    best, least = brute_force(l_d, l_q, psi, constant, torque, i_max, psi_max)
    assert made == pytest.approx(constant * (psi + (l_d - l_q) * i_d) * i_q, rel=1e-4)
    assert abs(made) == pytest.approx(min(abs(torque), best), rel=5e-3)
    assert np.hypot(i_d, i_q) <= least * (1 + 5e-3)
    assert np.hypot(i_d, i_q) <= i_max * (1 + 1e-4)
    assert np.hypot(psi + l_d * i_d, l_q * i_q) <= psi_max * (1 + 1e-4)
    assert made * torque > 0


OPTIMUM = jax.jit(operating_points.synchronous_point)


# ---- torque and speed


@pytest.mark.slow
def test_torque_of_a_synchronous_machine():
    id = "Cont-TC-PMSM-v0"
    rewards, ends, signals = run(id, hold(id, -0.5))
    fine(rewards, ends, signals)
    np.testing.assert_allclose(signals["torque"][:, -50:], -0.5 * 160.612, atol=1)
    assert (np.asarray(signals["i_sd"])[:, -50:] < -20).all()  # reluctance helps


@pytest.mark.slow
def test_torque_of_an_induction_machine():
    id = "Cont-TC-SCIM-v0"
    rewards, ends, signals = run(id, hold(id, 0.4), steps=1500)
    fine(rewards, ends, signals)
    np.testing.assert_allclose(signals["torque"][:, -50:], 0.4 * 6.26675, rtol=0.02)


@pytest.mark.slow
def test_speed_beyond_what_the_voltage_gives_without_field_weakening():
    id = "Cont-SC-PMSM-v0"
    wanted = 0.95  # of 4000 rpm: its magnets alone would need 79 V of 58
    params = hold(id, wanted)
    params = params.replace(
        supply=params.supply.replace(u_nominal=jnp.asarray(100.0)),
        machine=params.machine.replace(j_rotor=jnp.asarray(2e-3)),
    )
    rewards, ends, signals = run(id, params, steps=3000)
    fine(rewards, ends, signals)
    np.testing.assert_allclose(signals["omega"][:, -50:], wanted * 418.879, rtol=0.01)
    assert (np.asarray(signals["i_sd"])[:, -50:] < -50).all()


# ---- finite control sets


def errors(id: str, wanted: tuple, method: str, steps: int = 300):
    rewards, ends, signals = run(id, hold(id, *wanted), method=method, steps=steps)
    fine(rewards, ends, signals)
    env = drive(id)
    return [
        np.abs(signals[name][:, -60:] / env.limit(name, env.default_params) - value).mean()
        for name, value in zip(env.referenced or (), wanted, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["hysteresis", "mpc"])
def test_finite_current_control_of_a_synchronous_machine(method):
    assert max(errors("Finite-CC-PMSM-v0", (-0.3, 0.4), method)) < 0.02


@pytest.mark.slow
def test_prediction_beats_hysteresis_on_an_excited_machine():
    found = {m: errors("Finite-CC-ExtExDc-v0", (0.2, 0.1), m, 1500) for m in ("hysteresis", "mpc")}
    assert sum(found["mpc"]) < sum(found["hysteresis"]) < 0.2


@pytest.mark.slow
def test_direct_torque_control():
    assert errors("Finite-TC-PMSM-v0", (0.4,), "dtc")[0] < 0.03


@pytest.mark.slow
def test_gradients_through_the_plant_settle_in_a_few_steps():
    settings = {"method": "mpc", "steps": 60}
    id = "Cont-CC-PMSM-v0"
    rewards, ends, signals = run(id, hold(id, -0.3, 0.4), **settings)
    fine(rewards, ends, signals)
    np.testing.assert_allclose(signals["i_sq"][:, -20:] / 400, 0.4, atol=1e-4)


# ---- the rest


def test_saturated_machines_have_the_gains_of_their_maps():
    env = drive("Cont-CC-PMSM-v0")
    params = env.default_params
    plain = controllers.tune(env, params)
    maps = flux_maps(params.machine, (-400.0, 400.0), (-400.0, 400.0))
    np.testing.assert_allclose(
        controllers.tune(env, params.replace(machine=maps)).current_p, plain.current_p, rtol=1e-3
    )


def bent(machine):
    """Its flux linkages, but for iron that saturates at 0.1 V s."""
    maps = flux_maps(machine, (-400.0, 400.0), (-400.0, 400.0))
    return maps.replace(psi_d=0.1 * jnp.tanh(maps.psi_d / 0.1), psi_q=0.3 * jnp.tanh(maps.psi_q / 0.3))


@pytest.mark.slow
def test_direct_torque_control_of_a_saturated_machine():
    id = "Finite-TC-PMSM-v0"
    params = hold(id, 0.3)
    params = params.replace(machine=bent(params.machine))
    rewards, ends, signals = run(id, params, method="dtc", steps=300)
    fine(rewards, ends, signals)
    torque = np.asarray(signals["torque"])[:, -60:] / float(params.limits.torque)
    assert np.abs(torque.mean() - 0.3) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [0.3, -0.7])
def test_torque_of_a_saturated_machine(wanted):
    """Of the machine linearised about no current it would be 0.28 and -0.61."""
    id = "Cont-TC-PMSM-v0"
    params = hold(id, wanted)
    rewards, ends, signals = run(id, params.replace(machine=bent(params.machine)))
    fine(rewards, ends, signals)
    np.testing.assert_allclose(signals["torque"][:, -50:] / params.limits.torque, wanted, atol=5e-3)


def test_equal_arguments_give_the_same_functions():
    first = controllers.make(drive("Cont-CC-PMSM-v0"))
    assert controllers.make(drive("Cont-CC-PMSM-v0"), "pi", tuning="magnitude", a=4.0) is first
    assert controllers.make(drive("Cont-CC-PMSM-v0"), a=3.0).act is not first.act
    assert controllers.make(drive("Cont-CC-SynRM-v0")).act is not first.act


@pytest.mark.slow(but_first=7)
@pytest.mark.parametrize("id", tasks.IDS)
def test_every_task_has_a_controller_whose_action_is_in_the_space(id):
    env = drive(id)
    params = env.default_params
    controller = controllers.make(env)

    def shapes(key):
        _, state = env.reset(key, params)
        return controller.act(params, state, controller.init())

    action, carry = jax.eval_shape(shapes, jax.random.key(0))
    space = env.action_space(params)
    assert action.shape == space.shape
    assert jax.tree.map(lambda x: (x.shape, x.dtype), carry) == jax.tree.map(
        lambda x: (x.shape, x.dtype), controller.init()
    )


@pytest.mark.parametrize(
    ("id", "settings", "arguments", "message"),
    [
        ("Cont-CC-PMSM-v0", {}, {"method": "dtc"}, "one of"),
        ("Cont-CC-PMSM-v0", {}, {"tuning": "best"}, "tuning"),
        ("Cont-CC-PMSM-v0", {}, {"a": 0.5}, "above 1"),
        ("Cont-CC-PMSM-v0", {"referenced": ("u_sq",)}, {}, "follow"),
        ("Finite-CC-PMSM-v0", {}, {"method": "dtc"}, "torque or speed"),
        ("Finite-TC-SynRM-v0", {"referenced": ("torque", "psi_s"), "stator_flux": True}, {}, "knows SynRM"),
        ("Cont-TC-SynRM-v0", {"referenced": ("torque", "psi_s"), "stator_flux": True}, {}, "knows SynRM"),
    ],
)
def test_what_does_not_fit_is_refused(id, settings, arguments, message):
    with pytest.raises(ValueError, match=message):
        controllers.make(drive(id, **settings), **arguments)
