"""Electric drives: gym-electric-motor's trajectories, tables and rewards; physics against closed forms; bad input."""

import dataclasses
import functools
import importlib.util
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl.envs.motor import converters, defaults, loads, supplies, tasks
from jaxrl.envs.motor.drive import MotorDrive
from jaxrl.envs.motor.machines import transforms
from jaxrl.envs.motor.machines.machine import Machine
from jaxrl.envs.motor.machines.pmsm import PMSM, flux_maps
from jaxrl.envs.motor.simulate import simulate
from jaxrl.testing.golden import GOLDEN, golden

CASES = json.loads((GOLDEN / "motor_cases.json").read_text())["cases"]
GIVEN = list(CASES)[:20]
"""Those of the first author; the other half of the checks of each case is slow."""


@functools.cache
def stored(name: str) -> dict[str, np.ndarray]:
    return golden(name)


def sine(t):
    return 60 + 40 * jnp.sin(2 * jnp.pi * 20 * t)


def run(name: str, substeps: int, **changes) -> dict[str, np.ndarray]:
    case = CASES[name]
    overrides = {**case["overrides"], **changes}
    if "speed_profile" in overrides:
        overrides["speed_profile"] = sine
    actions = stored("motor_cases")[f"{name}/actions"]
    result = simulate(
        case["env_id"],
        actions,
        case["initial"],
        case["references"],
        **{"upstream": True, "substeps": substeps, **overrides},
    )
    return {k: np.asarray(v) for k, v in result.items()}


def around(x):
    return (x + math.pi) % (2 * math.pi) - math.pi


HARSH = {"cont_cc_pmsm_cossin": 3, "cont_sc_permexdc_stops": 300, "finite_sc_sixpmsm": 3}
"""Faster turning, a brake whose torque has a kink, half the limit of six-phase current in a step."""


def check_case(name: str, substeps: int, tolerance: float) -> None:
    tolerance *= HARSH.get(name, 1) * (5 if "six" in name else 1)
    case, data = CASES[name], stored("motor_cases")
    found = run(name, substeps)
    names, states = case["names"], data[f"{name}/states"]
    assert all(x.dtype == np.float64 for x in found.values())
    for i, (key, limit) in enumerate(zip(names, case["limits"], strict=True)):
        error = found[key] - states[:, i]
        if key == "epsilon":
            error = around(error)
        if key == "psi_angle":
            continue  # of no meaning where there is no flux
        scale = max(limit, np.abs(states[:, i]).max())  # constraints are off: some are far beyond the limit
        assert np.abs(error).max() < tolerance * scale, key
    machine = tasks.machine(case["env_id"].split("-")[2], True)
    ode = data[f"{name}/ode"]
    for i, key in enumerate(("omega", *machine.states)):
        error = found[key] - ode[:, i]
        error = around(error) if key == "epsilon" else error
        limit = limit_of(key, case)
        assert np.abs(error).max() < tolerance * max(limit, np.abs(ode[:, i]).max()), key
    phases = [n for n in machine.voltages if not n.endswith(("d", "q", "x", "y"))]
    follows = "dq_actions" in case["overrides"] or case["overrides"].get("supply") == "rc"  # the state, so no closer
    for key in () if follows else (*phases, "u_sup"):
        column = states[:, names.index(key)]
        np.testing.assert_allclose(found[key], column, rtol=0, atol=1e-11 * case["limits"][names.index(key)])
    reward = data[f"{name}/reward"]
    np.testing.assert_allclose(found["reward"][1:], reward, rtol=0, atol=max(tolerance, 1e-6 * (substeps == 1)))


def limit_of(key: str, case: dict) -> float:
    if key.startswith("psi"):
        return 0.1
    named = {"i_salpha": "i_sd", "i_sbeta": "i_sd"}.get(key, key)
    return case["limits"][case["names"].index(named)] if named in case["names"] else math.pi


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("name", GIVEN)
def test_one_step_of_runge_kutta_agrees_with_the_adaptive_solver(name):
    check_case(name, 1, 1e-6)


@pytest.mark.optimised
@pytest.mark.slow(but_first=2)
@pytest.mark.parametrize("name", [n for n in CASES if n not in GIVEN])
def test_eight_steps_agree_to_nine_digits(name):
    check_case(name, 8, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_case_at_both_step_sizes(name):
    check_case(name, 1, 1e-6)
    check_case(name, 8, 1e-9)


# ---- the 60 tasks


def make(env_id: str, **settings) -> MotorDrive:
    return MotorDrive(id=env_id, **tasks.find(env_id), **settings)


@pytest.mark.parametrize("env_id", tasks.IDS)
def test_the_tables_are_those_of_gym_electric_motor(env_id):
    data = of_task(env_id)
    env = make(env_id, upstream=True)
    params = defaults.complete(env, defaults.components(env))
    names = env.names(params)
    assert names == tuple(data["names"])
    np.testing.assert_allclose([env.limit(n, params) for n in names], data["limits"], rtol=1e-12)
    np.testing.assert_allclose([env.limit(n, params, params.nominal) for n in names], data["nominal"], rtol=1e-12)
    np.testing.assert_array_equal([env.measured(params)[n].low for n in names], data["low"])
    np.testing.assert_array_equal([env.measured(params)[n].high for n in names], data["high"])
    np.testing.assert_allclose([r.low for r in params.references], data["reference_low"], rtol=1e-12)
    np.testing.assert_allclose([r.high for r in params.references], data["reference_high"], rtol=1e-12)
    np.testing.assert_allclose([(r.sigma_low, r.sigma_high) for r in params.references], data["sigma"], rtol=1e-12)
    assert (env.task in ("CC", "TC", "SC")) and params.tau == data["tau"]
    np.testing.assert_allclose(float(env.penalty(params)), data["penalty"], rtol=1e-6)
    assert env.observation_names == (*names, *(f"{n}*" for n in env.referenced or ()))


def episode(env, params, actions, references):
    """Observations, rewards and ends of `env` whose references are given ones."""

    @jax.jit
    def play(params, actions, references):
        _, state = env.reset(jax.random.key(0), params)

        def body(state, inputs):
            action, shown = inputs
            given = tuple((value, sigma, left) for value, (_, sigma, left) in zip(shown, state.references, strict=True))
            ts = env.step(jax.random.key(1), state.replace(references=given), action, params)
            return ts.state, (ts.obs, ts.reward, ts.terminated, ts.info["violation"])

        return jax.lax.scan(body, state, (actions, references))[1]

    return [np.asarray(x) for x in play(params, actions, references)]


def of_task(env_id):
    return {k.split("/")[1]: v for k, v in stored("motor_tasks").items() if k.startswith(env_id + "/")}


def check_task(env_id, data, factor=1.0):
    """The largest difference of observations, or of rewards. `factor`: by which our machine is another one."""
    with jax.enable_x64(True):
        env = make(env_id, upstream=True, substeps=4)
        params = env.default_params
        params = params.replace(machine=jax.tree.map(lambda x: factor * x, params.machine))
        obs, reward, terminated, violation = episode(
            env, params, jnp.asarray(data["actions"]), jnp.asarray(data["references"])
        )
    rows, seen = data["observation"][:, 0].astype(int), data["observation"][:, 1:]
    measured = obs[rows, : seen.shape[1]]
    angle = env.observation_names.index("epsilon") if "epsilon" in env.observation_names else None
    error = measured - seen
    if angle is not None:
        error[:, angle] = around(np.pi * error[:, angle]) / np.pi
    worst = max(np.abs(error / np.maximum(1, np.abs(seen))).max(), np.abs(reward - data["reward"]).max())
    assert worst < 1e-6
    assert terminated[-1] == data["terminated"] and not terminated[:-1].any()
    np.testing.assert_array_equal(violation, terminated)
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ("Cont-CC-PMSM-v0", "Finite-TC-SCIM-v0"))
def test_a_machine_that_differs_by_a_thousandth_fails_the_comparison(env_id):
    with pytest.raises(AssertionError):
        check_task(env_id, of_task(env_id), 1.001)


QUICK = ("Cont-CC-PMSM-v0", "Finite-TC-SCIM-v0", "Cont-SC-ShuntDc-v0", "Cont-CC-SIXPMSM-v0", "Finite-SC-EESM-v0")


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("env_id", QUICK)
def test_episodes_end_and_pay_as_those_of_gym_electric_motor(env_id):
    check_task(env_id, of_task(env_id))


@pytest.mark.slow
@pytest.mark.parametrize("env_id", [id for id in tasks.IDS if id not in QUICK])
def test_episodes_of_every_id(env_id):
    check_task(env_id, of_task(env_id))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_random_id_and_seed_beside_gym_electric_motor_itself(seed):
    """Where it is installed, as by the extra `reference`: what `make_motor.py` stores of each id, at another seed.

    To replay a failure put the number that it printed in the place of the drawn one.
    """
    pytest.importorskip("gym_electric_motor", reason="needs gym-electric-motor, of the extra `reference`")
    spec = importlib.util.spec_from_file_location("make_motor", GOLDEN / "make_motor.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    drawn = int(np.random.default_rng().integers(2**31))
    print(f"{seed=} {drawn=}")  # pytest shows it of a failure
    env_id, number = chosen(seed, drawn)
    print(env_id, number)
    print(check_task(env_id, script.run_task(env_id, number)))


def chosen(seed: int, drawn: int) -> tuple[str, int]:
    """An id and a seed of its episode, by two numbers."""
    rng = np.random.default_rng((seed, drawn))
    return str(rng.choice(list(tasks.IDS))), int(rng.integers(2**31))


def test_a_run_beside_gym_electric_motor_can_be_replayed():
    assert chosen(3, 5) == chosen(3, 5) and len({chosen(seed, 5) for seed in range(8)}) == 8


# ---- physics

MACHINES = {motor: tasks.machine(motor, False) for motor in tasks.MOTORS}
MACHINES["saturated"] = flux_maps(PMSM(), (-400.0, 400.0), (-400.0, 400.0))


def pieces(machine: Machine, seed: int = 0) -> tuple[tuple, tuple, float]:
    """A state, voltages and a speed of usual size."""
    rng = np.random.default_rng(seed)
    limits, _ = machine.ratings()
    size = {"epsilon": math.pi, "i_e": limits.i_e or limits.i}
    scale = [0.5 if n.startswith("psi") else size.get(n, limits.i) for n in machine.states]
    state = tuple(float(x) for x in rng.uniform(-0.5, 0.5, len(scale)) * scale)
    phases = tuple(float(x) for x in rng.uniform(-1, 1, machine.terminals) * limits.u)
    return state, phases, float(rng.uniform(-0.5, 0.5) * limits.omega)


@pytest.mark.parametrize("motor", [m for m in MACHINES if m != "saturated"])
@pytest.mark.parametrize("seed", (0, 1))
def test_electrical_power_is_mechanical_power_and_loss_and_what_is_stored(motor, seed):
    machine = MACHINES[motor]
    with jax.enable_x64(True):
        state, phases, omega = pieces(machine, seed)
        inputs = machine.inputs(phases, machine.frame(state))
        slopes = machine.derivative(state, inputs, omega)
        _, stored_power = jax.jvp(machine.energy, (state,), (tuple(jnp.float64(x) for x in slopes),))
        electrical = machine.power(state, inputs)
        parts = (machine.torque(state) * omega, machine.loss(state), stored_power)
        assert abs(electrical - sum(parts)) < 1e-12 * sum(abs(x) for x in (electrical, *parts))
        # The same power at the terminals, zero sequences apart.
        currents = machine.phase_currents(state, machine.frame(state))
        terminal = sum(u * i for u, i in zip(phases, currents, strict=True))
        np.testing.assert_allclose(terminal, electrical, rtol=1e-11)


def saturated(points: int, cross: float):
    """Maps of a machine whose coenergy is that of two bent axes and a product of both currents' squares."""
    d, q = np.linspace(-400, 400, points)[:, None], np.linspace(-400, 400, points)[None, :]
    maps = flux_maps(PMSM(), (-400.0, 400.0), (-400.0, 400.0), points)
    psi_d = 66e-3 + 0.1 * np.tanh(3e-3 * d) - 2 * cross * d * q**2
    return maps.replace(psi_d=jnp.asarray(psi_d), psi_q=jnp.asarray(0.3 * np.tanh(3e-3 * q) - 2 * cross * d**2 * q))


def imbalance(machine, seed):
    """What power in, out, lost and stored leave, of their sum."""
    state, phases, omega = pieces(machine, seed)
    inputs = machine.inputs(phases, machine.frame(state))
    slopes = tuple(jnp.float64(x) for x in machine.derivative(state, inputs, omega))
    _, stored_power = jax.jvp(machine.energy, (tuple(jnp.float64(x) for x in state),), (slopes,))
    parts = (machine.power(state, inputs), machine.torque(state) * omega, machine.loss(state), stored_power)
    return abs(parts[0] - sum(parts[1:])) / sum(abs(x) for x in parts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_power_of_a_saturated_machine(seed):
    """Exact where the axes do not couple; otherwise up to the lines between the points of the maps, whose slopes are
    constant."""
    with jax.enable_x64(True):
        assert imbalance(saturated(21, 0.0), seed) < 1e-12
        coarse, fine = (imbalance(saturated(points, 2e-10), seed) for points in (21, 201))
        assert coarse < 1e-2 and fine < 1e-3 and fine < 0.5 * coarse


@pytest.mark.slow
def test_energy_of_a_saturated_machine():
    currents = (120.0, -210.0, 0.0)
    with jax.enable_x64(True):
        linear = flux_maps(PMSM(), (-400.0, 400.0), (-400.0, 400.0))
        np.testing.assert_allclose(linear.energy(currents), PMSM().energy(currents), rtol=1e-9)
        beyond = (-500.0, 450.0, 0.0)
        np.testing.assert_allclose(linear.energy(beyond), PMSM().energy(beyond), rtol=1e-9)
        batch = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * 2), linear)
        np.testing.assert_allclose(jax.vmap(lambda m: m.energy(currents))(batch), PMSM().energy(currents), rtol=1e-9)


@pytest.mark.parametrize("motor", ["SIXPMSM"])
def test_the_six_phase_machine_of_gym_electric_motor_loses_power(motor):
    machine = tasks.machine(motor, True)
    state, phases, omega = pieces(machine)
    inputs = machine.inputs(phases, machine.frame(state))
    _, stored_power = jax.jvp(machine.energy, (state,), (machine.derivative(state, inputs, omega),))
    balance = machine.power(state, inputs) - machine.torque(state) * omega - machine.loss(state) - stored_power
    assert abs(balance) > 0.1 * abs(machine.torque(state) * omega)


@pytest.mark.slow(but_first=2)
@pytest.mark.parametrize("motor", MACHINES)
def test_the_gradient_of_torque_and_currents_in_every_parameter(motor):
    machine = MACHINES[motor]
    with jax.enable_x64(True):
        machine = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), machine)
        state, phases, omega = pieces(machine)
        state = (*state[:-1], 0.4 * state[-1])

        @jax.jit
        def after(machine):
            inputs = machine.inputs(phases, machine.frame(state))
            slopes = machine.derivative(state, inputs, omega)
            later = tuple(x + 1e-4 * d for x, d in zip(state, slopes, strict=True))
            return jnp.stack([machine.torque(later), *later])

        jacobian = jax.jit(jax.jacrev(after))(machine)
        middle = np.asarray(after(machine))
        for field in dataclasses.fields(machine):
            value = getattr(machine, field.name)
            if not isinstance(value, jax.Array) or value.ndim:
                continue
            h = 1e-5 * float(value)
            high, low = (np.asarray(after(machine.replace(**{field.name: value + d}))) for d in (h, -h))
            numeric = (high - low) / (2 * h)
            size = np.abs(middle) / abs(float(value))
            assert np.all(np.abs(getattr(jacobian, field.name) - numeric) < 1e-6 * size + 1e-12), field.name


def steady(env_id, action, seconds, **overrides):
    """The last sample under a constant action, with long steps."""
    steps = round(seconds / 1e-4)
    found = simulate(env_id, np.tile(action, (steps, 1)), substeps=2, **overrides)
    return {k: float(v[-1]) for k, v in found.items()}


def test_a_dc_machine_settles_where_ohms_law_says():
    found = steady("Cont-CC-PermExDc-v0", [0.4], 0.02, omega=50.0)
    assert found["i"] == pytest.approx((24 - 0.165 * 50) / 16e-3, rel=1e-6)
    assert found["torque"] == pytest.approx(0.165 * found["i"])


def test_a_loaded_dc_machine_runs_where_torque_and_brake_meet():
    b, psi, r, u = 0.02, 0.165, 16e-3, 24.0
    found = steady("Cont-SC-PermExDc-v0", [0.4], 0.5, b=b, j_load=0.0, j_rotor=1e-4)
    omega = u * psi / (psi**2 + r * b)
    # the slow zone of a brake without dry friction is empty
    assert found["omega"] == pytest.approx(omega, rel=1e-6)
    assert found["torque"] == pytest.approx(b * omega, rel=1e-6)


def test_a_synchronous_machine_settles_at_the_solution_of_its_voltage_equations():
    u_d, u_q, speed = -30.0, 45.0, 3 * 100.0
    found = steady("Cont-CC-PMSM-v0", [u_d / 150, u_q / 150], 0.8, dq_actions=True, hold="stator")
    l_d, l_q, r, psi = 0.37e-3, 1.2e-3, 18e-3, 66e-3
    matrix = np.array([[r, -speed * l_q], [speed * l_d, r]])
    # Held on the stator, the mean voltage of a step has the chord's length.
    half = speed * 1e-4 / 2
    i_d, i_q = np.linalg.solve(matrix, [u_d * np.sinc(half / np.pi), u_q * np.sinc(half / np.pi) - speed * psi])
    assert found["i_sd"] == pytest.approx(i_d, rel=3e-3)
    assert found["i_sq"] == pytest.approx(i_q, rel=3e-3)


def test_an_induction_machine_settles_at_its_equivalent_circuit():
    """A stator voltage that turns at 60 rad/s electrical, a rotor at 100 mechanical: it brakes."""
    speed, turn, volts, tau = 2 * 20.0, 60.0, 90.0, 1e-4
    steps = 20_000
    angle = turn * tau * (np.arange(steps) + 0.5)
    phases = np.stack([np.cos(angle - k * 2 * np.pi / 3) for k in range(3)], 1) * volts / 210
    found = simulate("Cont-CC-SCIM-v0", phases, omega=20.0)
    m = MACHINES["SCIM"]
    slip = turn - speed
    rotor = m.r_r * turn / slip + 1j * turn * m.l_sigr
    stator = m.r_s + 1j * turn * m.l_sigs
    magnet = 1j * turn * m.l_m
    current = volts / (stator + magnet * rotor / (magnet + rotor))
    rotor_current = current * magnet / (magnet + rotor)
    torque = 1.5 * m.p * abs(rotor_current) ** 2 * m.r_r / slip
    amplitude = np.hypot(found["i_salpha"][-1], found["i_sbeta"][-1])
    assert amplitude == pytest.approx(abs(current), rel=1e-4)
    assert float(found["torque"][-1]) == pytest.approx(torque, rel=1e-4)


def test_maps_of_a_linear_machine_are_that_machine():
    state, phases, omega = pieces(PMSM())
    maps = MACHINES["saturated"]
    with jax.enable_x64(True):
        maps = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), flux_maps(PMSM(), (-400.0, 400.0), (-400.0, 400.0)))
        inputs = PMSM().inputs(phases, PMSM().frame(state))
        np.testing.assert_allclose(
            maps.derivative(state, inputs, omega), PMSM().derivative(state, inputs, omega), rtol=1e-9
        )
        np.testing.assert_allclose(maps.torque(state), PMSM().torque(state), rtol=1e-10)
        bent = maps.replace(psi_d=0.1 * jnp.tanh(maps.psi_d / 0.1))
        found = simulate("Cont-CC-PMSM-v0", np.full((50, 3), 0.3), machine=bent)
        assert np.isfinite(found["torque"]).all()


number = st.floats(-100, 100, allow_nan=False)
turns = st.floats(-10, 10, allow_nan=False)


@jax.jit
def there_and_back(dq, angle):
    abc = transforms.dq_to_abc(dq, angle)
    return abc, transforms.abc_to_dq(abc, angle), transforms.inverse_clarke(transforms.clarke(abc))


@pytest.mark.slow
@given(st.tuples(number, number), turns)
def test_clarke_and_park_have_their_inverses(dq, angle):
    with jax.enable_x64(True):
        abc, dq_again, abc_again = jax.tree.map(np.asarray, there_and_back(dq, jnp.float64(angle)))
    abc = np.asarray(abc)
    assert abs(abc.sum()) < 1e-10
    np.testing.assert_allclose(dq_again, dq, atol=1e-10)
    np.testing.assert_allclose(abc_again, abc, atol=1e-10)
    # A vector is a wave of that height, first in phase a when it lies on the d axis at angle zero.
    waves = dq[0] * np.cos(angle - 2 * np.pi / 3 * np.arange(3)) - dq[1] * np.sin(angle - 2 * np.pi / 3 * np.arange(3))
    np.testing.assert_allclose(abc, waves, atol=1e-10)


@pytest.mark.slow
@given(st.tuples(number, number, number, number))
def test_the_six_phase_decomposition_has_its_inverse(vector):
    phases = transforms.inverse_vsd(vector)
    np.testing.assert_allclose(transforms.vsd(phases), vector, atol=1e-10)
    assert abs(sum(phases[:3])) < 1e-9 and abs(sum(phases[3:])) < 1e-9


@pytest.mark.slow
@given(st.integers(0, 9), st.lists(st.floats(-1, 1), min_size=4, max_size=4))
def test_actions_on_turning_axes_are_what_the_machine_sees(index, action):
    motor = [m for m in tasks.MOTORS if MACHINES[m].dq]
    machine = MACHINES[motor[index % len(motor)]]
    state = pieces(machine, index)[0]
    frame = machine.frame(state)
    if machine.states[0] == "i_salpha":
        seen = machine.measured_voltages(machine.phases(tuple(action[: machine.dq]), frame_of(machine, frame)), frame)
        names = [n for n in machine.voltages if n.endswith(("d", "q"))]
        seen = [v for n, v in zip(machine.voltages, seen, strict=True) if n in names]
    else:
        seen = machine.inputs(machine.phases(tuple(action[: machine.dq]), frame), frame)
    np.testing.assert_allclose(seen, action[: machine.dq], atol=2e-6)


def frame_of(machine, frame):
    """Of the flux against the stator and against the rotor."""
    if len(frame) == 2:
        return frame
    sin, cos = frame[:2]
    slip = transforms.unturn((cos, sin), frame[2:])
    return sin, cos, slip[1], slip[0]


# ---- converters, supplies, loads


def decay(i, u, omega, seconds):
    """The permanently excited machine's current, exactly."""
    r, l_a, psi = 16e-3, 19e-6, 0.165
    final = (u - psi * omega) / r
    return final + (i - final) * np.exp(-seconds * r / l_a)


@pytest.mark.parametrize("start", (20.0, -20.0))
def test_a_half_bridge_that_changes_leaves_the_current_to_its_diodes_for_the_dead_time(start):
    actions = np.array([2, 1, 1, 0])
    found = simulate(
        "Finite-CC-PermExDc-v0", actions, [10.0, start], converter="Finite-2QC", interlocking_time=4e-6, substeps=4
    )
    i, expected = start, [start]
    for k in range(4):
        waits = k == 1
        diodes = 60.0 if i < 0 else 0.0
        i = decay(i, diodes, 10.0, 4e-6) if waits else i
        i = decay(i, (0.0, 60.0, 60.0, 60.0 if i < 0 else 0.0)[k], 10.0, 6e-6 if waits else 1e-5)
        expected.append(i)
    np.testing.assert_allclose(found["i"], expected, rtol=1e-9)


def test_dead_times_cost_a_four_quadrant_converter_voltage_against_the_current():
    found = simulate("Cont-CC-PermExDc-v0", np.full((2, 1), 0.5), [0.0, 50.0], interlocking_time=5e-6)
    assert found["u"][1] == pytest.approx(60 * (0.5 - 2 * 5e-6 / 1e-4))
    found = simulate("Cont-CC-PermExDc-v0", np.full((2, 1), 0.5), [0.0, 50.0], interlocking_time=5e-6, upstream=True)
    assert found["u"][1] == pytest.approx(30)


def test_modulation_reaches_the_hexagon():
    angles = np.linspace(0, 2 * np.pi, 25)
    waves = np.stack([np.cos(angles - k * 2 * np.pi / 3) for k in range(3)], 1)

    def vectors(modulation, amplitude):
        bridge = converters.ContB6C(modulation)
        out = bridge.voltage(bridge.command(tuple(jnp.asarray(2 * amplitude * waves.T))), (0.0,) * 3, None, False)
        return np.asarray(transforms.clarke(out))

    inside = 0.577 * np.asarray(transforms.clarke(tuple(waves.T)))  # of the supply's voltage
    for modulation in ("space_vector", "hexagon"):
        np.testing.assert_allclose(vectors(modulation, 0.577), inside, atol=1e-6)
    assert np.abs(vectors("clip", 0.577) - inside).max() > 0.03
    far = vectors("hexagon", 2.0)
    assert np.abs(around(np.arctan2(far[1], far[0]) - np.arctan2(inside[1], inside[0]))).max() < 1e-5
    length = np.hypot(*far)
    # Corners at 2/3, the middles of the sides at 1 / sqrt 3.
    assert length.max() == pytest.approx(2 / 3, abs=1e-5) and length.min() == pytest.approx(3**-0.5, abs=1e-5)


def test_every_switch_of_a_finite_bridge():
    bridge = converters.FiniteB6C()
    currents = (jnp.float32(1.0),) * 3
    for action in range(8):
        found = bridge.voltage(bridge.command((jnp.int32(action),)), currents, None, False)
        assert [float(x) + 0.5 for x in found] == [action >> 2 & 1, action >> 1 & 1, action & 1]


def test_supplies():
    idle = np.zeros((200, 1))
    rc = simulate("Cont-CC-PermExDc-v0", idle + 1.0, [0.0, 0.0], supply="rc", resistance=0.5, capacitance=2e-3)
    u, i = 60.0, rc["i"]
    for k in range(200):
        assert rc["u_sup"][k + 1] == pytest.approx(u, rel=1e-12)
        u = 60 - 0.5 * i[k] + (u - 60 + 0.5 * i[k]) * np.exp(-1e-4 / 1e-3)
    ac = simulate("Cont-CC-PermExDc-v0", idle, supply="ac1", u_nominal=230.0, phase_low=0.5, phase_high=0.5)
    t = 1e-4 * np.arange(200)
    np.testing.assert_allclose(ac["u_sup"][1:], 230 * 2**0.5 * np.sin(2 * np.pi * 50 * t + 0.5), atol=1e-8)
    three = simulate(
        "Cont-CC-SCIM-v0", np.zeros((200, 0)), supply="ac3", u_nominal=400.0, converter="None-3", phase_high=0.0
    )
    np.testing.assert_allclose(
        three["u_sb"][1:], 400 * (2 / 3) ** 0.5 * np.sin(2 * np.pi * (50 * t + 1 / 3)), atol=1e-7
    )
    battery = simulate("Cont-CC-PermExDc-v0", idle + 1, supply="battery", u_nominal=60.0, u_empty=50.0, capacity=100.0)
    drawn = np.concatenate([[0], np.cumsum(battery["i"][:-1])])[:-1] * 1e-4
    charge = 1 - drawn / 100
    np.testing.assert_allclose(battery["u_sup"][1:], 50 + 10 * charge - 0.05 * battery["i"][:-1], rtol=1e-9)


def test_loads():
    coast = simulate(
        "Cont-SC-PermExDc-v0", np.zeros((400, 1)), {"omega": 50.0}, converter="Cont-2QC", load="two_mass", b=0.0
    )
    # Without a brake, momentum and torque: J w + J_load w_load = integral of the torque.
    momentum = 0.025 * coast["omega"] + 0.01 * coast["omega_load"]
    np.testing.assert_allclose(momentum[-1] - momentum[0], np.trapezoid(coast["torque"], dx=1e-4), rtol=1e-4)
    bench = simulate("Cont-CC-PermExDc-v0", np.zeros((50, 1)), speed_profile=sine)
    np.testing.assert_allclose(bench["omega"], 60 + 40 * np.sin(2 * np.pi * 20 * 1e-4 * np.arange(51)), rtol=1e-12)
    cycle = simulate("Cont-CC-PermExDc-v0", np.zeros((50, 1)), speed_profile=np.linspace(0, 40, 41))
    np.testing.assert_allclose(cycle["omega"], np.minimum(np.arange(51), 40), atol=1e-9)


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("load", loads.KEYS)
@pytest.mark.parametrize("supply", supplies.KEYS)
def test_every_load_and_supply_is_simulated(load, supply):
    bridge = {"converter": "None-3"} if supply == "ac3" else {}
    actions = np.zeros((4, 0)) if bridge else np.full((4, 3), [0.2, -0.1, -0.1])
    found = simulate("Cont-CC-SCIM-v0", actions, load=load, supply=supply, **bridge)
    assert all(x.shape == (5,) and np.isfinite(x).all() for x in found.values())


def test_a_random_load_is_what_is_expected_of_it_unless_there_is_a_key():
    numbers = {"load": "ornstein_uhlenbeck", "mu": 10.0, "sigma": 30.0, "theta": 50.0}
    still = simulate("Cont-CC-PermExDc-v0", np.zeros((400, 1)), {"omega": 60.0}, **numbers)
    expected = 10 + 50 * np.exp(-50 * 1e-4 * np.arange(401))
    np.testing.assert_allclose(still["omega"], expected, rtol=1e-9)
    keys = jax.random.split(jax.random.key(0), 2)
    one, again, other = (
        simulate("Cont-CC-PermExDc-v0", np.zeros((400, 1)), {"omega": 60.0}, key=key, **numbers)["omega"]
        for key in (keys[0], keys[0], keys[1])
    )
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.1
    noise = np.diff(one - expected) + 50 * 1e-4 * (one - expected)[:-1]  # sigma sqrt(tau) a step
    assert noise.std() == pytest.approx(30 * 1e-2, rel=0.1) and abs(noise.mean()) < 0.05


def test_a_speed_profile_may_be_a_number():
    found = simulate("Cont-CC-PermExDc-v0", np.zeros((3, 1)), speed_profile=100.0)
    np.testing.assert_allclose(found["omega"], 100.0)
    np.testing.assert_allclose(loads.ExternalSpeed(samples=jnp.float32(7.0)).speed(3.0), 7.0)


def test_the_ornstein_uhlenbeck_load_has_its_stationary_spread():
    load = loads.OrnsteinUhlenbeck(mu=10.0, sigma=30.0, theta=50.0, omega_low=-200.0, omega_high=200.0)
    words = jax.random.bits(jax.random.key(0), (400, 512))

    def step(omega, word):
        omega = omega + 1e-3 * load.plan((word,), (omega,), 0.0, 1e-3)
        return omega, omega

    start = load.start((words[0],), ())[0]
    assert -200 <= start.min() < -100 and 100 < start.max() <= 200
    _, path = jax.lax.scan(step, start, words)
    last = np.asarray(path[200:])
    assert abs(last.mean() - 10) < 0.3
    assert last.std() == pytest.approx(30 / (2 * 50) ** 0.5, rel=0.03)


@pytest.mark.slow
def test_wiener_references_keep_to_their_margins_and_their_widths():
    env = make("Cont-CC-PMSM-v0")
    params = env.default_params
    reference = params.references[0]
    words = jax.random.bits(jax.random.key(1), (4000, 64, 2))

    def step(state, word):
        state = jax.vmap(lambda w, s: reference.step(tuple(w), s, 1e-4))(word, state)
        return state, state

    start = jax.vmap(lambda w: reference.start(tuple(w), 1e-4))(jax.random.bits(jax.random.key(2), (64, 3)))
    _, (value, sigma, left) = jax.lax.scan(step, start, words)
    value, sigma, left = (np.asarray(x) for x in (value, sigma, left))
    assert np.abs(value).max() <= 0.6 + 1e-6
    assert 1e-3 <= sigma.min() < 1.2e-3 and 0.085 < sigma.max() <= 0.1
    assert left.min() == 0 and left.max() < 2000
    changes = np.diff(sigma, axis=0) != 0
    assert 500 < 4000 * 64 / changes.sum() < 1700  # 1250 in the mean
    z = (np.diff(value, axis=0) / sigma[1:])[np.abs(value[1:]) < 0.3]
    assert abs(z.mean()) < 0.02 and z.std() == pytest.approx(1, abs=0.02)


# ---- settings and bad input


def test_solvers_agree():
    actions = np.tile([[0.3, -0.2, 0.1]], (50, 1))
    fine = simulate("Cont-CC-PMSM-v0", actions, substeps=32)
    euler = simulate("Cont-CC-PMSM-v0", actions, solver="euler", substeps=512)
    np.testing.assert_allclose(euler["i_sq"], fine["i_sq"], atol=0.02)
    pytest.importorskip("diffrax")
    adaptive = simulate("Cont-CC-PMSM-v0", actions, solver="diffrax")
    np.testing.assert_allclose(adaptive["i_sq"], fine["i_sq"], atol=1e-6)


@pytest.mark.slow
@pytest.mark.light
def test_a_voltage_held_on_the_stator_turns_against_the_rotor():
    """What is held on rotor axes goes ahead by half the angle of a step."""
    actions = np.tile([[0.2, -0.1, -0.1]], (1, 1))
    start = [200.0, 10.0, 20.0, 0.4]
    rotor = simulate("Cont-CC-PMSM-v0", actions, start, substeps=16)
    stator = simulate("Cont-CC-PMSM-v0", actions, start, substeps=16, hold="stator")
    turned = simulate(
        "Cont-CC-PMSM-v0",
        np.array([transforms.dq_to_abc(transforms.abc_to_dq(tuple(actions[0]), 0.03), 0.0)]),
        start,
        substeps=16,
    )
    near = abs(stator["i_sq"][-1] - turned["i_sq"][-1])
    assert near < 0.05 * abs(stator["i_sq"][-1] - rotor["i_sq"][-1])


def test_measured_phase_currents_are_at_the_angle_that_is_measured_with_them():
    found = simulate("Cont-CC-PMSM-v0", np.tile([[0.3, -0.2, 0.1]], (30, 1)))
    with jax.enable_x64(True):
        abc = transforms.dq_to_abc((found["i_sd"], found["i_sq"]), jnp.asarray(found["epsilon"]))
        np.testing.assert_allclose(np.stack(abc), [found[f"i_{x}"] for x in "abc"], atol=1e-9)


@pytest.mark.slow
def test_random_initial_states_are_within_their_ranges():
    env = make("Cont-CC-EESM-v0", random_init="uniform")
    params = env.default_params
    _, state = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(jax.random.key(0), 256), params)
    i_d, i_q, i_e, epsilon = (np.asarray(x) for x in state.plant.motor)
    assert np.abs(i_d).max() <= 120 and np.abs(i_d).max() > 100 and np.abs(i_e).max() > 130
    assert np.abs(epsilon).max() > 3
    narrow = params.replace(initial_high=(*params.initial_high[:1], jnp.float32(-100.0), *params.initial_high[2:]))
    for upstream, which in ((False, 0), (True, 1)):
        env = make("Cont-CC-EESM-v0", random_init="uniform", upstream=upstream)
        _, state = jax.jit(env.reset)(jax.random.key(3), narrow)
        assert float(state.plant.motor[which]) <= -100


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("env_id", [f"Cont-CC-{motor}-v0" for motor in ("EESM", "SCIM", "DFIM", "SIXPMSM")])
def test_random_initial_currents_are_within_the_constraints(env_id):
    def violations(**settings):
        env = make(env_id, random_init="uniform", **settings)
        params = env.default_params

        def one(key):
            plant = env.initial(key, params).plant
            return env.judge(env.normalised(plant, (), params), [0.0] * len(env.referenced or ()), params)[1], plant

        violation, plant = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 2000))
        return np.asarray(violation).mean(), plant.motor

    share, motor = violations()
    assert share == 0
    share, theirs = violations(upstream=True)
    if env_id != "Cont-CC-SCIM-v0":  # whose nominal current is too small for it
        assert share > 0.005
        moved = np.asarray(motor[0]) != np.asarray(theirs[0])
        assert 0.005 < moved.mean() < 0.2 or env_id == "Cont-CC-EESM-v0"  # where theirs are swapped


def test_the_excited_machine_is_stable_unless_asked_for_gym_electric_motors():
    assert float(tasks.machine("EESM", False).sigma) == pytest.approx(0.3716, abs=1e-4)
    assert float(tasks.machine("EESM", True).sigma) == pytest.approx(-0.3112, abs=1e-4)


def nearly_too_much(i):
    return jnp.clip((jnp.abs(i) - 0.1) / 0.4, 0, 1)


def somewhat_too_much(i):
    return 0.25 * jnp.abs(i)


@pytest.mark.parametrize(
    ("merge", "expected"),
    [
        ("max", {20: -0.35913062547, 60: -4.57338340410, 120: -9.92325656557, 121: -10.0}),
        ("product", {20: -0.50012194981, 60: -4.95697456162, 120: -9.93279001378, 121: -10.0}),
    ],
)
def test_constraints_that_are_violated_by_degrees_pay_as_in_gym_electric_motor(merge, expected):
    """Rewards of gym-electric-motor 3.0.3, whose `merge_violations` was max and, as its "product" raises TypeError, a
    function of that formula."""
    soft = ((nearly_too_much, ("i",)), (somewhat_too_much, ("i",)), ("limit", ("i",)))
    env = make("Cont-CC-SeriesDc-v0", constraints=soft, merge=merge, upstream=True)
    params = env.default_params
    actions, references = jnp.ones((122, 1)), jnp.full((122, 1), 0.3)
    _, reward, terminated, violation = episode(env, params, actions, references)
    np.testing.assert_allclose(reward[list(expected)], list(expected.values()), rtol=2e-6)
    assert terminated[-1] and not terminated[:-1].any() and 0 < violation[60] < 1


@pytest.mark.slow
def test_hard_constraints_merge_alike():
    found = []
    for merge in ("max", "product"):
        env = make("Cont-CC-EESM-v0", merge=merge)
        found.append(episode(env, env.default_params, jnp.ones((40, 4)), jnp.zeros((40, 3))))
    assert found[0][2].any()
    jax.tree.map(np.testing.assert_array_equal, *found)


def test_the_limit_of_a_sum_of_currents_is_the_largest_or_their_sum():
    for which, limit in (("max", 210.0), ("sum", 420.0)):
        env = make("Cont-CC-ShuntDc-v0", current_sum_limit=which)
        params = env.default_params
        assert float(env.limit("i_sum", params)) == limit
        assert float(env.limit("i_sum", params, params.nominal)) == 97 * limit / 210
        obs, _, _, _ = episode(env, params, jnp.full((20, 1), 0.5), jnp.zeros((20, 1)))
        row = dict(zip(env.observation_names, obs[-1], strict=True))
        assert row["i_sum"] * limit == pytest.approx(210 * (row["i_a"] + row["i_e"]), rel=1e-5)


def test_observed_quantities_noise_and_weights_can_be_chosen():
    env = make("Cont-CC-PMSM-v0", observed=("i_sq", "omega"), rewarded=("i_sd", "torque"), noise=("i_sq",))
    params = env.default_params.replace(noise_scale=jnp.float32(0.1))
    assert env.observation_names == ("i_sq", "omega", "i_sd*", "i_sq*")
    first, state = jax.jit(env.reset)(jax.random.key(0), params)
    step = jax.jit(jax.vmap(lambda k: env.step(k, state, jnp.zeros(3), params)))
    ts = step(jax.random.split(jax.random.key(1), 512))
    assert np.asarray(ts.obs[:, 0]).std() == pytest.approx(0.1, rel=0.15)
    assert np.ptp(ts.obs[:, 1]) == 0
    assert first.shape == (4,)


def bad(match, error=ValueError):
    return pytest.raises(error, match=match)


def test_bad_input_is_refused_with_the_numbers():
    idle = np.zeros((1, 3))
    with bad("Cont-CC-PMSM-v0"):
        simulate("Cont-CC-PMS-v0", idle)
    with bad("l_m=.* must be below 1"):
        simulate("Cont-CC-EESM-v0", np.zeros((1, 4)), l_m=1.6e-3)
    with bad("l_sigs=.* coupled"):
        simulate("Cont-CC-SCIM-v0", idle, l_sigs=0.0)
    for name, value in (("r_s", 0.0), ("r_s", np.nan), ("j_rotor", -1.0), ("l_d", 0.0)):
        with bad(f"{name}=.*finite and positive"):
            simulate("Cont-CC-PMSM-v0", idle, **{name: value})
    with bad("'l_dd'.*Did you mean 'l_d'"):
        simulate("Cont-CC-PMSM-v0", idle, l_dd=1e-3)
    with bad("needs \\(T, 3\\)"):
        simulate("Cont-CC-PMSM-v0", np.zeros((1, 2)))
    with bad("initial has 'i_x'"):
        simulate("Cont-CC-PMSM-v0", idle, {"i_x": 1.0})
    with bad("needs \\(4,\\): omega, i_sd"):
        simulate("Cont-CC-PMSM-v0", idle, [1.0, 2.0])
    with bad("referenced has 'i_x'"):
        simulate("Cont-CC-PMSM-v0", idle, references={"i_x": 1.0})
    env = make("Cont-CC-PMSM-v0")
    params = env.default_params
    limits = params.limits.replace(i=jnp.float32(200.0))
    with bad("limits.i=200.0 must not be below nominal.i=240"):
        env.validate(params.replace(limits=limits))
    with bad("interlocking_time=.*without interlocking"):
        env.validate(params.replace(interlocking_time=jnp.float32(1e-6)))
    with bad("gamma=1"):
        env.validate(params.replace(gamma=jnp.float32(1.0)))
    with pytest.warns(UserWarning, match="100.*give u_a at most 50.0.*150"):
        env.validate(params.replace(supply=supplies.Ideal(jnp.float32(100.0))))
    with pytest.warns(UserWarning, match="300.*give u_a at most 150.0.*limit is 200"):
        env.validate(params.replace(limits=params.limits.replace(u=jnp.float32(200.0))))
    with bad("merge='min'; it is one of max, product"):
        make("Cont-CC-PMSM-v0", merge="min")
    with bad("current_sum_limit='min'; it is one of max, sum"):
        make("Cont-CC-PMSM-v0", current_sum_limit="min")
    with bad("'soft' is neither 'limit', 'squared' nor a function"):
        make("Cont-CC-PMSM-v0", constraints=(("soft", ("i_sd",)),))
    with bad("'PMSN'.*Did you mean 'PMSM'"):
        MotorDrive(motor="PMSN")
    with bad("converter gives 1 voltages; PMSM takes 3"):
        make("Cont-CC-PMSM-v0", converter="Cont-4QC")
    with bad("three phases needs converter='None-3'"):
        env.validate(params.replace(supply=supplies.AC3()))


def test_numbers_of_a_task_that_make_no_sense_are_refused():
    env = make("Cont-CC-PMSM-v0")
    params = env.default_params
    nan = jnp.float32(jnp.nan)
    with bad("weight of i_sq, nan, must be finite"):
        env.validate(params.replace(weights=(params.weights[0], nan)))
    with bad("the weight of .* must be finite and not negative"):
        env.validate(params.replace(weights=tuple(-x for x in params.weights)))
    with bad("violation_reward=1.0 must be finite and not positive"):
        env.validate(params.replace(violation_reward=jnp.float32(1.0)))
    env.validate(params.replace(violation_reward=jnp.float32(-1.0)))
    with bad("noise_scale=-0.1.* must be finite and not negative"):
        env.validate(params.replace(noise_scale=jnp.float32(-0.1)))
    with bad("noise_scale=0.1.* has no effect without noise="):
        env.validate(params.replace(noise_scale=jnp.float32(0.1)))
    noisy = make("Cont-CC-PMSM-v0", noise=("i_sq",))
    noisy.validate(noisy.default_params.replace(noise_scale=jnp.float32(0.1)))
    with bad("initial_low=1.0 of i_sd must not be above initial_high=0.0"):
        env.validate(params.replace(initial_low=(params.initial_low[0], jnp.float32(1.0), *params.initial_low[2:])))
    with bad("initial_low=nan.* of omega must be finite"):
        env.validate(params.replace(initial_low=(nan, *params.initial_low[1:])))
    with bad("u_empty=500.0 must not be above u_nominal=400.0"):
        env.validate(params.replace(supply=supplies.Battery(jnp.float32(400.0), jnp.float32(500.0))))
    with bad("charge=1.5 must be in"):
        env.validate(params.replace(supply=supplies.Battery(charge=jnp.float32(1.5))))
    for initial, match in (({"i_sq": np.nan}, "initial has i_sq=nan"), ([0.0, np.inf, 0.0, 0.0], "must be finite")):
        with bad(match):
            simulate("Cont-CC-PMSM-v0", np.zeros((1, 3)), initial)
    direct = make("Cont-DTC-PMSM-v0")
    with bad("SaturatedPMSM has no flux_range"):
        direct.validate(direct.default_params.replace(machine=MACHINES["saturated"]))


def test_actions_that_an_environment_would_clip_are_refused():
    for actions in ([[0.0, 0.0, 1.5]], [[0.0, 0.0, np.nan]], [[0.0, 0.0, np.inf]]):
        with bad(f"actions\\[0\\] has {actions[0][2]} in place 2.*outside of Cont-CC-PMSM-v0's -1.0 to 1.0"):
            simulate("Cont-CC-PMSM-v0", np.array(actions))
    with bad("has -0.5 in place 0.* 0.0 to 1.0"):
        simulate("Cont-CC-PermExDc-v0", np.array([[-0.5]]), converter="Cont-1QC")
    for env_id, actions, match in (
        ("Finite-CC-PMSM-v0", [0, 8], "actions\\[1\\] has 8 in place 0.* 0 to 7"),
        ("Finite-CC-PMSM-v0", [-1], "has -1"),
        ("Finite-CC-PMSM-v0", [2**32], "has 4294967296"),
        ("Finite-CC-EESM-v0", [[7, 4]], "has 4 in place 1.* 0 to 3"),
        ("Finite-CC-PMSM-v0", [0.5], "actions are float64; a finite control set needs integers"),
    ):
        with bad(match):
            simulate(env_id, np.array(actions))
    simulate("Finite-CC-PMSM-v0", np.array([0, 7], np.uint8))
    # What is traced cannot be looked at.
    duty = jax.jit(lambda a: simulate("Cont-CC-PMSM-v0", a, dtype=jnp.float32)["u_a"])(jnp.full((1, 3), 2.0))
    assert np.isfinite(duty).all()


def test_a_number_of_another_load_or_supply_says_whose_it_is():
    with bad("'a' is a number of load='polynomial' or 'two_mass' or 'servo'; its load is ConstantSpeed"):
        simulate("Cont-CC-PMSM-v0", np.zeros((1, 3)), a=0.1)
    with bad("'capacitance' is a number of supply='rc'; its supply is Ideal"):
        simulate("Cont-CC-PMSM-v0", np.zeros((1, 3)), capacitance=0.1)
    with pytest.raises(ValueError, match="has no 'zzz'") as error:
        simulate("Cont-CC-PMSM-v0", np.zeros((1, 3)), zzz=0.1)
    names = str(error.value).split("It has ")[1].rstrip(".").split(", ")
    assert len(names) == len(set(names)) and {"load", "supply"} <= set(names)


def test_a_battery_is_emptier_than_full_whatever_the_voltage():
    for motor in ("PermExDc", "SCIM"):
        env = make(f"Cont-CC-{motor}-v0", supply="battery")
        supply = env.default_params.supply
        assert float(supply.u_empty) == pytest.approx(0.75 * float(supply.u_nominal))
        env.validate(env.default_params)


def test_published_defaults_are_valid_and_do_not_warn(recwarn):
    for env_id in tasks.IDS:
        for upstream in (False, True):
            env = make(env_id, upstream=upstream)
            env.validate(defaults.complete(env, defaults.components(env)))
    assert not [w for w in recwarn if issubclass(w.category, UserWarning)]


def test_the_first_sample_of_a_doubly_fed_machine_that_is_turned_is_that_of_gym_electric_motor():
    """Numbers of gym-electric-motor 3.0.3 of Cont-CC-DFIM-v0, whose motor was reset to this state."""
    state = {"i_salpha": 1.0, "i_sbeta": -2.0, "psi_ralpha": 0.15, "psi_rbeta": 0.1, "epsilon": 0.8}
    actions = np.array([[0.1, 0.2, -0.1, 0.05, 0.0, 0.1]])
    shown = simulate("Cont-CC-DFIM-v0", actions, state, upstream=True, substeps=8)
    expected = {
        "i_sd": (-0.2773500981126147, -0.22174231545876733),
        "i_sq": (-2.2188007849009166, -2.1775484995435184),
        "i_ra": (-0.4563596423377989, 1.167553800036015),
        "i_rb": (2.090398365242984, 0.9788332607104746),
        "i_rc": (-1.634038722905185, -2.1463870607464894),
        "i_rd": (-0.8985950011464012, 0.7617572721980197),
        "i_rq": (2.0061409941129726, 2.0096206325526125),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(shown[name], values, rtol=1e-7, atol=1e-7, err_msg=name)
    physical = simulate("Cont-CC-DFIM-v0", actions, state)
    rotor = transforms.clarke([physical[name][0] for name in ("i_ra", "i_rb", "i_rc")])
    on_stator = transforms.turn(rotor, (math.sin(0.8), math.cos(0.8)))
    machine = MACHINES["DFIM"]
    wanted = ((0.15 - machine.l_m * 1.0) / machine.l_r, (0.1 + machine.l_m * 2.0) / machine.l_r)
    np.testing.assert_allclose(on_stator, wanted, rtol=1e-12)
