"""Runs in SI units, the torque-speed plane against a search by hand, what pictures and the report show."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.canvas import RED, Canvas
from jaxrl.envs.motor import tasks
from jaxrl.envs.motor.control import controllers
from jaxrl.envs.motor.drive import MotorDrive
from jaxrl.envs.motor.machines import envelope
from jaxrl.envs.motor.machines.pmsm import flux_maps
from jaxrl.envs.motor.pictures import plots, report
from jaxrl.envs.motor.pictures.units import unit
from jaxrl.envs.motor.simulate import simulate
from jaxrl.host.report import write_episode


@pytest.fixture(scope="module")
def pmsm():
    env, params = jaxrl.make("Cont-CC-PMSM-v0")
    return env, params, *report.record(env, params, controllers.make(env), jax.random.key(0), 200)


@pytest.mark.slow
def test_a_recorded_loop_is_what_its_actions_do(pmsm):
    env, params, run, actions = pmsm
    assert actions.shape == (200, 3) and all(x.shape == (201,) for x in run.values())
    np.testing.assert_allclose(run["omega"], 100.0)  # rad/s, as the load says
    again = simulate("Cont-CC-PMSM-v0", actions, initial={"omega": 100.0}, dtype=np.float32)
    for name in ("i_sd", "i_sq", "torque", "u_a", "epsilon"):
        np.testing.assert_allclose(run[name], again[name], atol=2e-3 * float(env.limit(name, params)), err_msg=name)


def test_references_are_those_that_judged(pmsm):
    env, params, run, _ = pmsm
    error = sum(np.abs(run[name] - run[f"{name}*"]) for name in ("i_sd", "i_sq"))
    np.testing.assert_allclose(run["reward"][1:], -0.5 * error[1:] / 2 / 400, atol=1e-6)
    table = report.tracking(env, params, run)
    assert list(table) == ["i_sd", "i_sq"]
    error = np.abs(run["i_sq"] - run["i_sq*"])[1:]
    expected = [error.mean(), np.sqrt((error**2).mean()), error.max(), error.mean() / 400]
    np.testing.assert_allclose(list(table["i_sq"].values()), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="steps=0"):
        report.record(env, params, controllers.make(env), jax.random.key(0), 0)


@pytest.mark.parametrize("id", ["Cont-CC-PMSM-v0", "Cont-SC-PermExDc-v0"])
def test_a_picture_of_a_drive_has_units_limits_and_a_legend(id, monkeypatch):
    env, params = jaxrl.make(id)
    _, state = jax.jit(env.reset)(jax.random.key(0), params)
    told = []
    monkeypatch.setattr(Canvas, "text", lambda self, at, text, *rest: told.append(text))
    env.render(state, params)
    values = [text.split(" ", 2) for text in told if text.split()[0] in env.names(params)]
    assert {name: of for name, _, of in values} == {name: unit(name) for name in env.names(params)}
    legend = ["of the limit", "beyond it", "reference"]
    legend += ["rotor", "current", "voltage", "circle: limits"] if "PMSM" in id else []
    others = [text for text in told if text.split()[0] not in env.names(params)]
    assert others[len(values) :] == legend
    for limit, name in zip(others, env.names(params), strict=False):
        most = f"{float(env.limit(name, params)):.4g} {unit(name)}"
        assert limit in (f"± {most}", most) and limit.startswith("±") == (env.measured(params)[name].low != 0)


def test_units():
    expected = {"i_sd": "A", "i_sq*": "A", "u_sup": "V", "omega": "rad/s", "torque": "N m", "psi_s": "V s"}
    expected |= {"psi_angle": "rad", "epsilon": "rad", "l_e_prime": "H", "r_s": "ohm", "reward": "", "cos(epsilon)": ""}
    assert {name: unit(name) for name in expected} == expected


def searched(machine, omega, i_max, u_max, points):
    """The most torque of a grid of currents, with steady voltages from the machine's own differential equation."""
    machine = jax.tree.map(lambda x: np.asarray(x, float), machine)
    induction = "psi_ralpha" in machine.states
    free = 2 if induction or hasattr(machine, "psi_PM") else len(machine.states) - machine.has_angle
    inputs = 2 if induction else len(machine.states) - machine.has_angle
    largest = [i_max[0], i_max[0], i_max[1]] if machine.has_angle else list(i_max)
    grid = np.meshgrid(*(np.linspace(-most, most, points) for most in largest[:free]))
    currents = np.stack([axis.ravel() for axis in grid])
    length = np.hypot(*currents[:2]) if machine.has_angle else np.abs(currents[0])
    currents = currents[:, length <= i_max[0]]
    state = [*currents, *np.zeros((inputs - free + machine.has_angle, currents.shape[1]))]
    target = np.zeros((inputs, currents.shape[1]))
    if induction:  # all turns with the flux l_m i_d
        state = [*currents, machine.l_m * currents[0], 0 * currents[0], 0 * currents[0]]
        flux = np.where(currents[0] == 0, np.nan, state[2])
        slip = machine.derivative(state, (0.0, 0.0), omega)[3] / flux
        target = slip * np.stack([-currents[1], currents[0]])

    def slopes(state, volts):
        return np.stack(np.broadcast_arrays(*machine.derivative(state, volts, omega)[:inputs]))

    still = [np.zeros(1)] * len(state)
    rest = slopes(still, np.zeros(inputs))
    gain = np.concatenate([slopes(still, volts) - rest for volts in np.eye(inputs)], 1)
    volts = np.linalg.inv(gain) @ (target - slopes(state, np.zeros(inputs)))
    used = np.hypot(volts[0], volts[1]) if machine.has_angle else np.abs(volts).max(0)
    torque = machine.torque(state)[used <= u_max]
    return (torque.min(), torque.max()) if torque.size else (np.nan, np.nan)


MACHINES = {m: (1501, 0.02) for m in tasks.MOTORS if m not in ("DFIM", "EESM", "ShuntDc")} | {"EESM": (121, 0.05)}


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("motor", MACHINES)
def test_the_border_of_the_plane_is_that_of_a_search(motor):
    env = MotorDrive(**tasks.find(f"Cont-SC-{motor}-v0"), id=motor)
    params = env.default_params
    points, tolerance = MACHINES[motor]
    i_max = tuple(float(x) for x in (params.limits.i, params.limits.i_e or params.limits.i))
    u_max = float(params.supply.u_nominal) / (3**0.5 if params.machine.dq else 1)
    omega = np.array([0.1, 0.55, 1.0]) * float(params.limits.omega)
    found = np.stack([envelope.most_torque(params, omega, env.voltage_radius, sign=sign) for sign in (-1, 1)], 1)
    expected = np.array([searched(params.machine, w, i_max, u_max, points) for w in omega])
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-6)
    most, best = np.nan_to_num(np.abs(found)), np.nan_to_num(np.abs(expected))
    assert np.all(most >= best * (1 - 1e-3) - 1e-6)  # a grid can only miss some


@pytest.mark.slow
def test_the_border_of_a_doubly_fed_machine():
    """Against random currents and fluxes that turn at random speeds, with voltages from the differential equation."""
    env, params = jaxrl.make("Cont-SC-DFIM-v0")
    machine = jax.tree.map(lambda x: np.asarray(x, float), params.machine)
    i_max, u_max = float(params.limits.i), float(params.supply.u_nominal) / 3**0.5
    for omega in (50.0, 250.0, 500.0):
        most = envelope.most_torque(params, np.array([omega]), env.voltage_radius)[0]
        random = np.random.default_rng(0).uniform(size=(4, 2_000_000))
        i_d, i_q = i_max * (2 * random[0] - 1), i_max * random[1]
        psi, speed = machine.l_m * 2 * i_max * random[2], machine.p * omega * random[3]
        state = (i_d, i_q, psi, 0 * psi, 0 * psi)
        turning = (-speed * i_q, speed * i_d, 0 * psi, speed * psi)
        alone = machine.derivative(state, (0.0,) * 4, omega)
        u_r = tuple(x - y for x, y in zip(turning[2:], alone[2:], strict=False))
        fed = machine.derivative(state, (0.0, 0.0, *u_r), omega)
        u_s = tuple(machine.sigma * machine.l_s * (x - y) for x, y in zip(turning[:2], fed[:2], strict=True))
        fine = (np.hypot(*u_s) <= u_max) & (np.hypot(*u_r) <= u_max) & (np.hypot(i_d, i_q) <= i_max)
        fine &= np.hypot(*machine.rotor_current(state)) <= i_max
        best = machine.torque(state)[fine].max()
        assert 0.9 * most < best < 1.01 * most


def test_other_machines_of_the_plane():
    env, params = jaxrl.make("Cont-SC-ShuntDc-v0")
    machine, omega = params.machine, np.array([40.0, 120.0, 300.0])
    u = np.linspace(0, 60, 60_001)[:, None]
    i_e = u / machine.r_e
    i_a = (u - machine.l_e_prime * omega * i_e) / machine.r_a
    torque = np.where((np.abs(i_a) <= 210) & (i_e <= 210), machine.l_e_prime * i_a * i_e, 0)
    most, least = (envelope.most_torque(params, omega, env.voltage_radius, sign=sign) for sign in (1, -1))
    np.testing.assert_allclose(most, torque.max(0), rtol=5e-3)
    np.testing.assert_allclose(least, torque.min(0), rtol=5e-3)

    env, params = jaxrl.make("Cont-FW-PMSM-v0")
    omega = np.array([100.0, 500.0, 1100.0])
    maps = params.replace(machine=flux_maps(params.machine, (-400, 400), (-400, 400)))
    plain = envelope.most_torque(params, omega, env.voltage_radius)
    np.testing.assert_allclose(envelope.most_torque(maps, omega, env.voltage_radius), plain, rtol=1e-3)
    # The rated current's corner is on the border of the rated current, but for the resistance.
    torque, corner = (float(x) for x in params.machine.base_point(params.nominal))
    assert envelope.most_torque(params, np.array([corner * 0.9]), env.voltage_radius, params.nominal) == pytest.approx(
        torque, rel=1e-3
    )
    with pytest.raises(ValueError, match="sign=0"):
        envelope.most_torque(params, omega, env.voltage_radius, sign=0)


def test_signals_over_time(pmsm):
    env, params, run, _ = pmsm
    figure = plots.plot_time(run, params.tau, ["i_sd", "u_sd", "i_sq"], {"u_sd": 12.0}, {"i_sd": 400.0, "u_sd": 150})
    amperes, volts = figure.axes
    assert [axes.get_ylabel() for axes in figure.axes] == ["[A]", "[V]"] and volts.get_xlabel() == "time [ms]"
    lines = [line.get_ydata() for line in amperes.lines]
    for line, expected in zip(lines, (run["i_sd"], run["i_sd*"], run["i_sq"], run["i_sq*"]), strict=False):
        np.testing.assert_array_equal(line, expected)
    assert [list(y) for y in lines[4:]] == [[400, 400], [-400, -400]]
    np.testing.assert_allclose(amperes.lines[0].get_xdata(), 0.1 * np.arange(201), rtol=1e-6)
    assert set(volts.lines[1].get_ydata()) == {12.0}
    assert sorted(text.get_text() for text in amperes.texts) == ["i_sd", "i_sq"]
    for wrong in ({"names": ["i_sdd"]}, {"names": ["i_sd"], "limits": {"i_sdd": 1.0}}):
        with pytest.raises(ValueError, match="Did you mean 'i_sd'"):
            plots.plot_time(run, params.tau, **wrong)
    with pytest.raises(ValueError, match="at least one"):
        plots.plot_time(run, params.tau, [])


@pytest.mark.parametrize(
    ("id", "name", "share"),
    [("Cont-CC-PMSM-v0", "u_sq", 2 / 3), ("Cont-CC-DFIM-v0", "u_rd", 2 / 3), ("Cont-CC-SIXPMSM-v0", "u_sx", 0.644)],
)
def test_why_a_voltage_passes_its_limit_is_in_the_picture(id, name, share):
    """Phases at their limits in a corner of the hexagon, beyond which no action of any bridge gets."""
    actions = np.random.default_rng(0).choice([-1.0, 1.0], (300, tasks.machine(id.split("-")[2], False).terminals))
    run = simulate(id, actions)
    link = run["u_sup"][0]
    other = name[:-1] + {"q": "d", "d": "q", "x": "y"}[name[-1]]
    longest = np.hypot(run[name], run[other])
    assert longest.max() == pytest.approx(share * link, rel=1e-3) and np.abs(run[name]).max() > 0.5 * link
    figure = plots.plot_time(run, 1e-4, [name], limits={name: 0.5 * link})
    (axes,) = figure.axes
    dotted = [float(line.get_ydata()[0]) for line in axes.lines if line.get_linestyle() == ":"]
    assert dotted == pytest.approx([share * link, -share * link], rel=1e-3)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["limit (of voltages: a phase's)", "most that phases make on d, q"]


def test_limits_of_windings_are_only_limits():
    run = simulate("Cont-CC-PMSM-v0", np.ones((5, 3)))
    for name in ("u_a", "i_sd"):
        figure = plots.plot_time(run, 1e-4, [name], limits={name: 150.0})
        assert not [line for line in figure.axes[0].lines if line.get_linestyle() == ":"]


def test_a_bar_is_red_beyond_what_phases_within_their_limits_make(monkeypatch):
    env, params = jaxrl.make("Cont-CC-PMSM-v0")
    _, state = jax.jit(env.reset)(jax.random.key(0), params)
    colours = []
    monkeypatch.setattr(Canvas, "rectangle", lambda self, low, high, colour: colours.append(colour))
    for volts, red in ((199.0, 0), (201.0, 1)):
        colours.clear()
        plant = state.plant.replace(voltage=(jnp.zeros(()),) * 3 + (jnp.asarray(volts), jnp.zeros(())))
        env.render(state.replace(plant=plant), params)
        assert colours.count(RED) == red + 1  # one of the legend


def test_an_open_loop_is_drawn_too():
    run = simulate("Finite-CC-PermExDc-v0", np.array([1] * 30 + [0] * 30), references={"i": 0.2})
    (axes,) = plots.plot_time(run, 1e-5, ["i"], {"i": 0.2 * 210}).axes
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), run["i"])


@pytest.mark.parametrize(
    ("id", "settings", "actions", "expected"),
    [
        ("Finite-CC-PMSM-v0", {}, [4, 3, 7], {"u_a": [1, 0, 1], "u_b": [0, 1, 1], "u_c": [0, 1, 1]}),
        ("Finite-CC-PMSM-v0", {"dead_time": 1}, [4, 3, 7], {"u_a": [0, 1, 0], "u_b": [0, 0, 1], "u_c": [0, 0, 1]}),
        ("Finite-CC-PermExDc-v0", {}, [1, 2], {"u+": [1, 0], "u-": [0, 1]}),
        ("Finite-CC-PermExDc-v0", {"converter": "Finite-2QC"}, [0, 1, 2], {"u": [np.nan, 1, 0]}),
        ("Cont-CC-PermExDc-v0", {}, [[0.5]], {"u+": [0.75], "u-": [0.25]}),
    ],
)
def test_half_bridges(id, settings, actions, expected):
    found = plots.half_bridges(MotorDrive(**tasks.find(id), id=id, **settings), np.array(actions))
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, err_msg=name)


def test_every_converter_has_names():
    for motor in tasks.MOTORS:
        env = MotorDrive(**tasks.find(f"Cont-CC-{motor}-v0"), id=motor)
        found = plots.half_bridges(env, np.zeros((2, env.converter.num_actions)))
        assert len(found) == env.converter.half_bridges


def test_switching(pmsm):
    env, params, run, actions = pmsm
    above, below = plots.plot_switching(env, actions, params.tau, run).axes
    assert [label.get_text() for label in above.get_yticklabels()] == ["u_a", "u_b", "u_c"]
    for line, name in zip(below.lines, ("i_a", "i_b", "i_c"), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), run[name])
    with pytest.raises(ValueError, match="100 actions do not belong to 201 samples"):
        plots.plot_switching(env, actions[:100], params.tau, run)
    with pytest.raises(ValueError, match=r"it needs \(T, 3\)"):
        plots.plot_switching(env, actions[:, :2], params.tau, run)
    turning = MotorDrive(**tasks.find(env.id), id=env.id, dq_actions=True)
    with pytest.raises(ValueError, match="dq_actions"):
        plots.plot_switching(turning, actions, params.tau, run)


def test_torque_speed_plane(pmsm):
    env, params, run, _ = pmsm
    (axes,) = plots.plot_torque_speed(env, params, {"a run": run}).axes
    drawn = {line.get_label(): line for line in axes.lines}
    np.testing.assert_array_equal(drawn["a run"].get_ydata(), run["torque"])
    border = drawn["current limit, 400 A"]
    expected = envelope.most_torque(params, np.asarray(border.get_xdata()), env.voltage_radius)
    np.testing.assert_array_equal(border.get_ydata(), expected)
    base = [float(x) for x in params.machine.base_point(params.nominal)]
    np.testing.assert_allclose(drawn["base point"].get_xydata(), [base[::-1]])
    assert axes.get_xlim()[0] == 0 and axes.get_ylim()[0] < run["torque"].min() < 0
    (axes,) = plots.plot_torque_speed(env, params).axes
    assert axes.get_ylim()[0] > -50  # without a run that brakes: motoring


def test_report(pmsm, tmp_path):
    env, params, run, actions = pmsm
    shown = report.episode(env, params, run, actions)
    assert {"i_sq [A]", "torque [N m]", "u_sup [V]"} <= {*shown.signals} and "epsilon [rad]" not in shown.signals
    current = shown.signals["i_sq [A]"]
    np.testing.assert_array_equal(current.value, run["i_sq"])
    np.testing.assert_array_equal(current.reference, run["i_sq*"])
    assert (current.low, current.high) == (-400.0, 400.0) and shown.signals["omega [rad/s]"].high is None
    assert list(shown.actions) == ["u_a", "u_b", "u_c"]
    np.testing.assert_array_equal(shown.actions["u_b"].value, actions[:, 1])
    table, errors = report.tracking(env, params, run), shown.errors()
    for name in ("i_sd", "i_sq"):
        np.testing.assert_allclose([*errors[f"{name} [A]"].values()], [*table[name].values()], rtol=1e-6)
    (plane,) = shown.planes
    np.testing.assert_array_equal(plane.curves[-1].x, run["omega"])

    page = write_episode(tmp_path / "new" / "run.html", shown, title="<PMSM>").read_text()
    assert "<title>&lt;PMSM&gt;</title>" in page and "http" not in page.replace("http-equiv", "")
    assert len(page) < 400_000  # with plotly it was 5 MB
    assert f">{table['i_sq']['rms']:.4g}</td>" in page
    assert '<td>machine (PMSM): psi_p</td><td class="n">0.066</td><td>V s</td>' in page
    assert "Torque-speed plane" in page and 'data-name="i_sq wanted"' in page
    with pytest.raises(ValueError, match="Did you mean 'i_sq'"):
        report.episode(env, params, run, names=["i_sqq"])


def test_telemetry_is_what_is_recorded(pmsm):
    """What a trained policy's episode shows is what the recorded loop of a controller has."""
    env, params, run, _ = pmsm
    _, state = jax.jit(env.reset)(jax.random.split(jax.random.key(0))[0], params)
    found = env.telemetry(state, params)
    for name in ("omega", "torque", "i_sd", "i_sq", "u_sup"):
        of = found[f"{name} [{unit(name)}]"]
        np.testing.assert_allclose(of.value, run[name][0], rtol=1e-6)
        assert (of.reference is not None) == (f"{name}*" in run)
    np.testing.assert_allclose(found["i_sq [A]"].reference, run["i_sq*"][0], rtol=1e-6)
    assert (float(found["i_sq [A]"].low), float(found["i_sq [A]"].high)) == (-400.0, 400.0)


@pytest.mark.parametrize(
    ("id", "settings", "expected"),
    [
        ("Cont-CC-EESM-v0", {}, ["u_a", "u_b", "u_c", "u_e"]),
        ("Cont-CC-EESM-v0", {"dq_actions": True}, ["u_sd", "u_sq", "u_e"]),
        ("Cont-CC-DFIM-v0", {}, ["u_sa", "u_sb", "u_sc", "u_ra", "u_rb", "u_rc"]),
        ("Finite-CC-ExtExDc-v0", {}, ["switches of u_a", "switches of u_e"]),
        ("Finite-CC-PMSM-v0", {}, ["switches of u_a, u_b, u_c"]),
    ],
)
def test_actions_have_names(id, settings, expected):
    assert list(MotorDrive(**tasks.find(id), id=id, **settings).action_names) == expected
