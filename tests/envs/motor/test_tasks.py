"""Field weakening, direct torque control and position control; levels of electric drives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.environment import strongly_typed
from jaxrl.envs.motor import levels, loads, tasks
from jaxrl.envs.motor.control import controllers, operating_points
from jaxrl.envs.motor.drive import MotorDrive
from jaxrl.envs.motor.machines.eesm import EESM
from jaxrl.envs.motor.machines.machine import Ratings
from jaxrl.envs.motor.machines.pmsm import PMSM, flux_maps
from jaxrl.envs.motor.machines.scim import SCIM
from jaxrl.envs.motor.machines.six_pmsm import SixPMSM
from jaxrl.envs.motor.machines.synrm import SynRM
from jaxrl.envs.motor.references import Ramp
from jaxrl.envs.motor.simulate import simulate
from jaxrl.testing.environments import check_environment

N = 12
"""Environments of every run, so that a task compiles once."""
CLASSICAL, ZERO, RANDOM = 0, 1, 2
THIRDS = jnp.repeat(jnp.arange(3), N // 3)


@functools.cache
def drive(id: str, **settings) -> MotorDrive:
    return MotorDrive(**tasks.find(id), id=id, **settings)


@functools.cache
def loop(env: MotorDrive, steps: int):
    """Compiled, over N keys, params and who acts: rewards, ends, errors and measurements, (N, T, ...) each."""
    controller = controllers.make(env)
    space = env.action_space(env.default_params)

    def one(key, params, who):
        start_key, key = jax.random.split(key)
        _, start = env.reset(start_key, params)
        gains = controller.tune(params)

        def step(carried, key):
            state, carry = carried
            action, carry = controller.act(params, state, carry, gains)
            chance = space.sample(jax.random.fold_in(key, 1))
            action = jnp.where(who == CLASSICAL, action, jnp.where(who == RANDOM, chance, jnp.zeros_like(chance)))
            targets = env.targets(state.references, params)
            ts = env.step(key, state, action, params)
            values = env.normalised(ts.state.plant, (), params)
            errors = [jnp.abs(values[name] - x) for name, x in zip(env.referenced or (), targets, strict=True)]
            state = jax.tree.map(lambda new, old: jnp.where(ts.terminated, new, old), start, ts.state)
            return (state, carry), (ts.reward, ts.terminated, jnp.stack(errors), values)

        return jax.lax.scan(step, (start, controller.init()), jax.random.split(key, steps))[1]

    return jax.jit(jax.vmap(one))


STEPS = {"CC": 400, "SC": 400, "FW": 4000, "DTC": 3000, "PC": 6000}


def run(id: str, params=None, who=CLASSICAL, batched: bool = False):
    """`params` are of one drive unless `batched`; the same for `who`."""
    env = drive(id)
    steps = STEPS[env.task] * (5 if id.startswith("Finite-PC") else 1)
    params = env.default_params if params is None else params
    if not batched:
        params = jax.tree.map(lambda x: jnp.broadcast_to(x, (N, *x.shape)), params)
    result = loop(env, steps)(jax.random.split(jax.random.key(1), N), params, jnp.broadcast_to(jnp.asarray(who), (N,)))
    return jax.tree.map(np.asarray, result)


# ---- the tasks


@pytest.mark.parametrize("id", tasks.MORE_IDS)
def test_every_task_is_found_valid_and_named(id, recwarn):
    env = drive(id)
    params = env.default_params
    env.validate(params)
    assert not recwarn.list
    obs, _ = jax.eval_shape(env.reset, jax.random.key(0), params)
    assert obs.shape == (len(env.observation_names),)
    assert env.observation_names[-len(params.references) :] == tuple(f"{name}*" for name in env.referenced or ())
    assert env.converter.finite == id.startswith("Finite") and env.hold == "stator"
    assert env.as_levels() is env


def test_gym_electric_motors_tasks_are_still_sixty():
    assert len(tasks.IDS) == 60 and not set(tasks.IDS) & set(tasks.MORE_IDS)
    env = drive("Cont-SC-PMSM-v0")
    assert (env.hold, env.stator_flux) == ("rotor", False) and "psi_s" not in env.observation_names


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"motor": "SCIM", "task": "FW"}, "'FW' is for PMSM"),
        ({"motor": "PMSM", "task": "DTX"}, "Did you mean 'DTC'"),
        ({"motor": "PermExDc", "task": "CC", "stator_flux": True}, "three-phase"),
        ({"motor": "PMSM", "task": "SC", "referenced": ("position",)}, "referenced has 'position'"),
    ],
)
def test_what_does_not_fit_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        MotorDrive(id="test", **settings)


@pytest.mark.slow
@pytest.mark.parametrize("id", tasks.MORE_IDS)
def test_the_contract_of_every_environment(id):
    check_environment(drive(id))


# ---- classical control of each, against doing nothing and anything

BARS = {
    "Cont-FW-PMSM-v0": (0.0002,),
    "Finite-FW-PMSM-v0": (0.00005,),
    "Cont-DTC-PMSM-v0": (0.0015, 0.0003),
    "Finite-DTC-PMSM-v0": (0.008, 0.008),
    "Cont-DTC-SCIM-v0": (0.003, 0.0001),
    "Finite-DTC-SCIM-v0": (0.012, 0.004),
    "Cont-PC-PMSM-v0": (0.004,),
    "Finite-PC-PMSM-v0": (0.005,),
    "Cont-PC-PermExDc-v0": (0.03,),
    "Finite-PC-PermExDc-v0": (0.04,),
}
"""Mean distance from each reference, of the limit. Of a finite set the band is a step of current or more; of position a
share of the references are jumps, which take a tenth of a second."""
QUICK = ("Cont-FW-PMSM-v0", "Cont-DTC-PMSM-v0", "Finite-DTC-SCIM-v0", "Cont-PC-PMSM-v0", "Cont-PC-PermExDc-v0")


@pytest.mark.slow
@pytest.mark.parametrize("id", [pytest.param(id, marks=() if id in QUICK else pytest.mark.slow) for id in BARS])
def test_a_classical_controller_solves_what_chance_does_not(id):
    rewards, ends, errors, values = run(id, who=THIRDS)
    assert np.isfinite(rewards).all() and all(np.isfinite(x).all() for x in values.values())
    assert not ends[THIRDS == CLASSICAL].any()
    found = errors[THIRDS == CLASSICAL].mean((0, 1))
    assert (found < BARS[id]).all(), found
    mean = [rewards[THIRDS == who].mean() for who in (CLASSICAL, ZERO, RANDOM)]
    # A position starts near its reference, and takes time to jump; elsewhere standing by is worse by far.
    assert max(mean[1:]) < (2 if drive(id).task == "PC" else 20) * mean[0], mean


@pytest.mark.slow
def test_top_speed_asks_for_negative_d_current_within_both_limits():
    id = "Cont-FW-PMSM-v0"
    params = drive(id).default_params
    (ramp,) = params.references
    high = ramp.high
    top = high * params.limits.omega
    params = params.replace(
        references=(ramp.replace(low=high, start_low=high, start_high=high),),
        initial_low=(top, *params.initial_low[1:]),
        initial_high=(top, *params.initial_high[1:]),
    )
    rewards, ends, errors, values = run(id, params)
    assert not ends.any()
    assert errors[:, -500:].max() < 1e-3
    magnets = float(params.machine.p * top * params.machine.psi_p)
    link = float(params.supply.u_nominal)
    assert magnets > link / 3**0.5  # they alone are above what the link can hold
    volts = np.hypot(values["u_sd"], values["u_sq"]) * float(params.limits.u)
    assert volts.max() < 2 / 3 * link * 1.001 and volts[:, -500:].max() < link / 3**0.5
    assert np.hypot(values["i_sd"], values["i_sq"]).max() < 1
    assert (values["i_sd"][:, -500:] < -0.2).all()


def test_overspeed_and_end_stops_end_an_episode():
    for id, start in (("Cont-FW-PMSM-v0", {"omega": 1160.0}), ("Cont-PC-PMSM-v0", {"position": 12.6})):
        actions = np.zeros((1, *drive(id).action_space(drive(id).default_params).shape))
        assert simulate(id, actions, start)["violation"][1] == 1
        assert simulate(id, actions)["violation"][1] == 0


def held(reference, value):
    """`reference` without any change; leaves may be batched."""
    names = ("low", "high", "start_low", "start_high")
    return reference.replace(**{n: 0 * getattr(reference, n) + value for n in names if hasattr(reference, n)})


@pytest.mark.slow
@pytest.mark.parametrize("motor", ["PMSM", "PermExDc"])
def test_a_servo_goes_round_several_times_and_stops_where_it_should(motor):
    id, way = f"Cont-PC-{motor}-v0", 0.6 * 4 * np.pi
    params = drive(id).default_params
    (switched,) = params.references
    switched = switched.replace(generators=tuple(held(r, 0.6) for r in switched.generators))
    _, ends, errors, values = run(id, params.replace(references=(switched,)))
    assert not ends.any()
    position = values["position"][0] * 4 * np.pi
    assert position[-1] == pytest.approx(way, abs=2e-3)
    assert position.max() < way * 1.01  # no overshoot to speak of
    assert np.argmax(position > 0.99 * way) < 4000


def test_a_servos_motion_is_the_integral_of_its_speed():
    run = simulate("Cont-PC-PermExDc-v0", np.full((200, 1), 0.02), {"position": 1.0}, substeps=4)
    speed = run["omega"]
    integral = 1.0 + np.concatenate([[0], np.cumsum(0.5e-4 * (speed[1:] + speed[:-1]))])
    np.testing.assert_allclose(run["position"], integral, atol=1e-5)
    plain = simulate("Cont-SC-PermExDc-v0", np.full((200, 1), 0.02), substeps=4, load=loads.Polynomial(j_load=1e-4))
    np.testing.assert_allclose(run["omega"], plain["omega"], atol=1e-9)


# ---- flux and torque

RATED = Ratings(1.0, 1.0, 240.0, 150.0, 100.0)


@pytest.mark.parametrize(
    ("machine", "state"),
    [
        (PMSM(), (-50.0, 80.0, 0.3)),
        (SynRM(), (5.0, 8.0, 0.3)),
        (EESM(), (20.0, 80.0, 60.0, 0.3)),
        (SCIM(), (2.0, -3.0, 0.3, 0.2, 0.1)),
        (flux_maps(PMSM(), (-400.0, 400.0), (-400.0, 400.0)), (-50.0, 80.0, 0.3)),
    ],
)
def test_stator_flux_obeys_faraday_and_makes_the_torque(machine, state):
    inputs, omega = (20.0, -30.0, 5.0)[: 3 if isinstance(machine, EESM) else 2], 40.0
    state = tuple(jnp.asarray(x) for x in state)
    slope = machine.derivative(state, inputs, omega)
    psi, change = jax.jvp(machine.stator_flux, (state,), (tuple(jnp.asarray(x, state[0].dtype) for x in slope),))
    turn = 0.0 if isinstance(machine, SCIM) else machine.p * omega
    wanted = (
        inputs[0] - machine.r_s * state[0] + turn * psi[1],
        inputs[1] - machine.r_s * state[1] - turn * psi[0],
    )
    np.testing.assert_allclose(change, wanted, rtol=2e-3)
    made = 1.5 * machine.p * (psi[0] * state[1] - psi[1] * state[0])
    np.testing.assert_allclose(made, machine.torque(state), rtol=1e-4)


@pytest.mark.slow
def test_stator_flux_without_any_has_a_finite_derivative():
    env = drive("Cont-CC-SCIM-v0", stator_flux=True)
    params = env.default_params
    _, state = env.reset(jax.random.key(0), params)

    def psi(motor):
        return env.signals(state.plant.replace(motor=motor), params)["psi_s"]

    assert float(psi(state.plant.motor)) == 0
    assert all(np.isfinite(x) for x in jax.grad(psi)(state.plant.motor))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("changes", [{}, {"l_q": 0.37e-3}, {"l_q": 0.5e-3, "psi_p": 0.15}, {"l_q": 0.3e-3}])
def test_most_torque_of_a_flux_is_that_of_all_load_angles(changes, share):
    machine = PMSM(**changes)
    low, high = (float(x) for x in machine.flux_range(RATED))
    assert 0 < low <= high
    psi = low + share * (high - low)
    angle = np.linspace(0, np.pi, 100_001)
    i_d, i_q = (psi * np.cos(angle) - machine.psi_p) / machine.l_d, psi * np.sin(angle) / machine.l_q
    torque = np.asarray(machine.torque((i_d, i_q, 0.0)))
    allowed = np.hypot(i_d, i_q) <= RATED.i * (1 + 1e-6)
    assert allowed[0]  # no torque can be had
    first = len(allowed) if allowed.all() else int(np.argmin(allowed))
    assert float(machine.most_torque(psi, RATED.i)) == pytest.approx(torque[:first].max(), rel=2e-3)
    assert (np.diff(torque[: first and int(np.argmax(torque[:first]))]) > 0).all()  # rises with the angle up to there


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_most_torque_of_an_induction_machines_flux(share):
    machine, current = SCIM(), 3.9
    low, high = machine.flux_range(Ratings(1.0, 1.0, current, 280.0))
    psi = low + share * (high - low)
    d = np.linspace(0, current, 100_001)
    q = np.sqrt(np.maximum(psi**2 - (machine.l_s * d) ** 2, 0)) / (machine.sigma * machine.l_s)
    torque = 1.5 * machine.p * machine.l_m**2 / machine.l_r * d * q
    best = torque[np.hypot(d, q) <= current].max()
    assert float(machine.most_torque(psi, current)) == pytest.approx(best, rel=1e-3)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("motor", ["PMSM", "SCIM"])
def test_references_of_torque_and_flux_can_be_had_together(motor):
    env = drive(f"Cont-DTC-{motor}-v0")
    params = env.default_params
    low, high = params.machine.flux_range(params.nominal)
    shares = jnp.array([[-0.8, 0.0], [0.8, 0.5], [0.4, 1.0]])
    for torque, flux in shares:
        states = tuple(r.resume((jnp.uint32(0),) * 2, v, 1e-4) for r, v in zip(params.references, (torque, flux)))  # noqa: B905
        wanted = env.targets(states, params)
        psi = wanted[1] * env.limit("psi_s", params)
        np.testing.assert_allclose(psi, low + flux * (high - low), rtol=1e-5)
        _, state = env.reset(jax.random.key(0), params)
        goal = wanted[0] * params.limits.torque
        if motor == "PMSM":
            i_d, i_q = operating_points.flux_point(params.machine, state.plant, goal, psi, 1e3)
            np.testing.assert_allclose(params.machine.torque((i_d, i_q, 0.0)), goal, rtol=1e-3)
            np.testing.assert_allclose(jnp.hypot(*params.machine.stator_flux((i_d, i_q, 0.0))), psi, rtol=1e-4)
            assert jnp.hypot(i_d, i_q) < params.nominal.i
        else:
            assert abs(goal) <= 0.8001 * params.machine.most_torque(psi, params.nominal.i)


def test_base_points_are_those_of_least_current():
    for machine, psi in ((PMSM(), 66e-3), (SynRM(), 0.0), (PMSM(l_q=0.37e-3), 66e-3)):
        torque, speed = machine.base_point(RATED)
        i_d, i_q, made = operating_points.synchronous_point(
            machine.l_d, machine.l_q, psi, 1.5 * machine.p, float(torque) * 0.9999, 240.5, 10.0
        )
        assert float(jnp.hypot(i_d, i_q)) == pytest.approx(240.0, rel=1e-3)
        flux = float(jnp.hypot(psi + machine.l_d * i_d, machine.l_q * i_q))
        assert float(speed) * machine.p * flux == pytest.approx(2 / 3**0.5 * 150, rel=1e-3)
        assert float(made) == pytest.approx(float(torque), rel=1e-3)
    assert SixPMSM().base_point(RATED)[0] == pytest.approx(float(SixPMSM().torque((0, 240.0, 0, 0))), rel=1e-2)


# ---- the reference of these tasks


def test_ramps_stay_within_range_and_rate():
    ramp = strongly_typed(Ramp(-0.4, 0.9, 3.0, 20.0, 200.0, 0.1, 0.2))

    def play(key):
        first, rest = jax.random.split(key)
        state = ramp.start(tuple(jax.random.bits(first, (2,))), 1e-2)

        def body(state, key):
            return ramp.step((jax.random.bits(key, ()),), state, 1e-2), ramp.value(state)

        return jax.lax.scan(body, state, jax.random.split(rest, 1000))[1]

    values = np.asarray(jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), 64)))
    assert values[:, 0].min() >= 0.1 and values[:, 0].max() <= 0.2
    assert values.min() >= -0.4 and values.max() <= 0.9
    np.testing.assert_allclose(np.abs(np.diff(values)).max(), 0.03, rtol=1e-4)
    assert values.max() > 0.8 and values.min() < -0.35
    with pytest.raises(ValueError, match="rate=-1"):
        ramp.replace(rate=jnp.float32(-1.0)).validate("test")


# ---- levels

DRIVES = [f"Cont-CC-{motor}-v0" for motor in tasks.MOTORS] + ["Cont-SC-PMSM-v0", "Cont-FW-PMSM-v0", "Cont-DTC-SCIM-v0"]
SPREADS = jnp.array([1.2, 2.0, 4.0])
MANY = 32


@functools.cache
def drawn(id: str):
    """MANY levels of each spread."""
    params = drive(id).default_params
    keys = jax.random.split(jax.random.key(7), (len(SPREADS), MANY))
    return jax.jit(jax.vmap(lambda s, k: jax.vmap(lambda k: levels.generate(k, params, s))(k)))(SPREADS, keys)


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("id", DRIVES)
def test_every_level_is_a_drive(id, recwarn):
    env = drive(id)
    params, many = env.default_params, drawn(id)
    levels.validate(many)
    env.validate(many)
    assert not recwarn.list
    assert jax.tree.structure(many) == jax.tree.structure(params)
    for a, b in zip(jax.tree.leaves(many), jax.tree.leaves(params), strict=True):
        assert a.shape == (len(SPREADS), MANY, *b.shape) and a.dtype == b.dtype
    # What the rated current makes stays the same share of the rating.
    torque, speed = many.machine.base_point(many.nominal)
    usual = params.machine.base_point(params.nominal)
    np.testing.assert_allclose(torque / many.nominal.torque, usual[0] / params.nominal.torque, rtol=1e-4)
    np.testing.assert_allclose(speed / many.nominal.omega, usual[1] / params.nominal.omega, rtol=1e-4)
    ratio = np.log(np.asarray(many.nominal.i) / np.asarray(params.nominal.i))
    assert (np.abs(ratio) <= np.log(SPREADS)[:, None] + 1e-5).all() and (ratio.std(1) > 0.3 * np.log(SPREADS)).all()


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize(
    "id", [pytest.param(id, marks=() if id[5:] in ("CC-PMSM-v0", "FW-PMSM-v0") else pytest.mark.slow) for id in DRIVES]
)
@pytest.mark.parametrize("spread", range(len(SPREADS)))
def test_levels_run_under_any_action(id, spread):
    some = jax.tree.map(lambda x: x[spread, :N], drawn(id))
    rewards, _, _, values = run(id, some, THIRDS, batched=True)
    assert np.isfinite(rewards).all() and all(np.isfinite(x).all() for x in values.values())


def test_machines_keep_what_makes_them_what_they_are():
    pmsm, eesm = drawn("Cont-CC-PMSM-v0").machine, drawn("Cont-CC-EESM-v0").machine
    assert (pmsm.l_q > pmsm.l_d).all() and np.ptp(pmsm.l_q / pmsm.l_d) > 1
    assert ((eesm.sigma > 0) & (eesm.sigma < 1)).all()
    assert (pmsm.p == 3).all()
    load = drawn("Cont-CC-PMSM-v0").load.omega
    assert (load > 0).all() and (load <= drawn("Cont-CC-PMSM-v0").nominal.omega * 1.001).all()


def test_a_spread_of_one_is_the_drive_itself_and_a_mutation_is_near():
    for id in ("Cont-CC-PMSM-v0", "Cont-DTC-SCIM-v0"):
        params = drive(id).default_params
        same, near = levels.generate(jax.random.key(0), params, 1.0), levels.mutate(jax.random.key(0), params)
        for a, b, c in zip(*(jax.tree.leaves(x) for x in (same, params, near)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4)
            np.testing.assert_allclose(c, b, rtol=0.5)
        assert float(near.machine.r_s) != float(params.machine.r_s)


@pytest.mark.slow
def test_one_controller_follows_all_levels():
    params = jax.tree.map(lambda x: x[1, :N], drawn("Cont-CC-PMSM-v0"))
    references = tuple(held(r, v) for r, v in zip(params.references, (-0.3, 0.3), strict=True))
    _, ends, errors, _ = run("Cont-CC-PMSM-v0", params.replace(references=references), batched=True)
    assert not ends.any()
    assert np.median(errors[:, -50:]) < 1e-3


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize(
    ("load", "supply"),
    [("two_mass", "rc"), ("external_speed", "battery"), ("servo", "ac1"), ("ornstein_uhlenbeck", None)],
)
def test_all_kinds_of_load_and_supply_have_levels(load, supply):
    env = MotorDrive(id="test", motor="PermExDc", task="TC", load=load, supply=supply)
    params = env.default_params
    level = jax.jit(levels.generate)(jax.random.key(0), params)
    assert jax.tree.structure(level) == jax.tree.structure(params)
    levels.validate(level)
    again = jax.jit(levels.generate)(jax.random.key(0), params, 1.0)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_saturated_machines_have_levels():
    env = drive("Cont-CC-PMSM-v0")
    maps = strongly_typed(flux_maps(PMSM(), (-400.0, 400.0), (-400.0, 400.0)))
    params = env.default_params.replace(machine=maps)
    level = levels.generate(jax.random.key(3), params)
    levels.validate(level)
    # One factor for both maps: the torque of a current is that of the flux.
    share = level.machine.psi_q[:, -1] / maps.psi_q[:, -1]
    np.testing.assert_allclose(level.machine.psi_d / maps.psi_d, share[0], rtol=1e-4)


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("machine", {"r_s": -1.0}, "r_s=.*positive"),
        ("machine", {"r_s": 10.0}, "drops .* V"),
        ("limits", {"i": 100.0}, "limits.i=100.0"),
        ("supply", {"u_nominal": 50.0}, "supply's 50.0 V"),
    ],
)
def test_what_is_no_level_is_refused(part, changes, message):
    params = drive("Cont-CC-PMSM-v0").default_params
    part_of = getattr(params, part).replace(**{name: jnp.float32(v) for name, v in changes.items()})
    with pytest.raises(ValueError, match=message):
        levels.validate(params.replace(**{part: part_of}))
