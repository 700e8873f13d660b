"""Write `motor_cases.json`, `motor_cases.npz`, `motor_tasks.npz`: what gym-electric-motor does, for `test_motor_plant`.

    python tests/golden/make_motor.py        with gym-electric-motor 3.0.3

`motor_cases`: open-loop trajectories with constant references, constraints off. The JSON has, of each case, its id,
what differs from the id's defaults (in the words of `jaxrl.envs.motor.simulate`), its initial state and references; the
npz `<case>/actions`, `<case>/states` (T + 1, n) by the JSON's `names`, `<case>/ode` (T + 1, m) = [speed, machine's
states] in SI units and `<case>/reward` (T,). The first 20 cases keep the actions that the npz has: it is input, too.

`motor_tasks`: each of the 60 ids as it is made, constraints and random references on, until its constraint is violated
or 80 steps have passed: `<id>/actions`, `<id>/references` shown before each step, `<id>/observation` after every 16th
and the last, `<id>/reward`, `<id>/terminated`; `<id>/limits`, `nominal`, `low`, `high`, `reference_low`,
`reference_high`, `names`, and the numbers of its references' generators.

The solver is dopri5 with rtol 1e-11, atol 1e-13.
"""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path
from typing import Any

import gym_electric_motor as gem
import numpy as np
from gym_electric_motor import physical_system_wrappers as wrappers
from gym_electric_motor import physical_systems as ps
from gym_electric_motor import reference_generators as generators

HERE = Path(__file__).resolve().parent
STEPS = 60
TASK_STEPS = 80
VERSION = "3.0.3"

CONVERTERS = {
    "Finite-1QC": ps.FiniteOneQuadrantConverter,
    "Finite-2QC": ps.FiniteTwoQuadrantConverter,
    "Finite-4QC": ps.FiniteFourQuadrantConverter,
    "Finite-B6C": ps.FiniteB6BridgeConverter,
    "Cont-1QC": ps.ContOneQuadrantConverter,
    "Cont-2QC": ps.ContTwoQuadrantConverter,
    "Cont-4QC": ps.ContFourQuadrantConverter,
    "Cont-B6C": ps.ContB6BridgeConverter,
}
USUAL = {
    "PermExDc": "{}-4QC",
    "ExtExDc": "{}-4QC+{}-4QC",
    "SeriesDc": "{}-4QC",
    "ShuntDc": "{}-4QC",
    "EESM": "{}-B6C+{}-4QC",
    "DFIM": "{}-B6C+{}-B6C",
    "SIXPMSM": "{}-B6C+{}-B6C",
}
MACHINE = ("p l_d l_q l_m l_e l_sigs l_sigr l_e_prime l_a l_x l_y r_s r_r r_a r_e psi_p psi_e k j_rotor").split()


def sine(t: float) -> float:
    """The speed profile of the cases with `speed_profile` [rad/s]."""
    return 60 + 40 * np.sin(2 * np.pi * 20 * t)


def case(env_id: str, initial: list[float], references: dict[str, float], hold: int = 1, **overrides: Any) -> dict:
    return {
        "env_id": env_id,
        "initial": initial,
        "references": references,
        "hold": hold,
        "overrides": overrides,
    }


DQ = {"i_sd": -0.1, "i_sq": 0.2}
KEPT = {
    "cont_cc_pmsm": case("Cont-CC-PMSM-v0", [100, -20, 35, 0.3], DQ),
    "cont_tc_pmsm": case("Cont-TC-PMSM-v0", [200, 0, 0, 0], {"torque": 0.3}),
    "cont_sc_pmsm": case("Cont-SC-PMSM-v0", [50, -20, 35, 0.3], {"omega": 0.4}),
    "finite_cc_pmsm_interlock": case("Finite-CC-PMSM-v0", [100, -20, 35, 0.3], DQ, interlocking_time=2e-6),
    "cont_cc_seriesdc": case("Cont-CC-SeriesDc-v0", [100, 15], {"i": 0.2}),
    "cont_sc_seriesdc": case("Cont-SC-SeriesDc-v0", [5, 0], {"omega": 0.2}, c=1e-4),
    "finite_cc_seriesdc": case("Finite-CC-SeriesDc-v0", [100, 15], {"i": 0.2}),
    "finite_4qc_interlock_permexdc": case("Finite-CC-PermExDc-v0", [100, 0], {"i": 0.1}, interlocking_time=2e-6),
    "cont_2qc_interlock_permexdc": case(
        "Cont-CC-PermExDc-v0", [100, 0], {"i": 0.1}, converter="Cont-2QC", interlocking_time=5e-6
    ),
    "cont_cc_shuntdc": case("Cont-CC-ShuntDc-v0", [100, 10, 20], {"i_a": 0.1}),
    "cont_cc_scim": case("Cont-CC-SCIM-v0", [100, 0, 0, 0, 0, 0], {"i_sd": 0.3, "i_sq": 0.3}),
    "cont_sc_scim": case("Cont-SC-SCIM-v0", [0, 0, 0, 0, 0, 0], {"omega": 0.3}),
    "cont_cc_eesm": case("Cont-CC-EESM-v0", [100, -5, 10, 8, 0.3], {**DQ, "i_e": 0.3}),
    "cont_cc_eesm_phys": case("Cont-CC-EESM-v0", [100, -5, 10, 8, 0.3], {**DQ, "i_e": 0.3}, l_m=1.1e-3),
    "cont_sc_dfim": case("Cont-SC-DFIM-v0", [20, 0, 0, 0, 0, 0], {"omega": 0.3}),
    "cont_cc_sixpmsm": case(
        "Cont-CC-SIXPMSM-v0", [20, 0, 0, 0, 0, 0], {"i_sd": 0.0, "i_sq": 0.05, "i_sx": 0.0, "i_sy": 0.0}
    ),
    "cont_cc_pmsm_dq_deadtime": case("Cont-CC-PMSM-v0", [100, -20, 35, 0.3], DQ, dq_actions=True, dead_time=1),
    "cont_cc_pmsm_dqspace": case("Cont-CC-PMSM-v0", [100, -20, 35, 0.3], DQ, dq_actions=True),
    "cont_4qc_ac1_permexdc": case(
        "Cont-CC-PermExDc-v0", [100, 0], {"i": 0.1}, supply="ac1", u_nominal=60.0, phase_low=0.5, phase_high=0.5
    ),
    "cont_4qc_extspeed_permexdc": case("Cont-CC-PermExDc-v0", [60, 0], {"i": 0.1}, speed_profile="sine"),
}
"""200 steps, of another author's script, whose actions the npz has."""

MADE = {
    "finite_cc_pmsm": case("Finite-CC-PMSM-v0", [100, -20, 35, 0.3], DQ),
    "finite_cc_synrm_deadtime": case("Finite-CC-SynRM-v0", [100, 2, 3, -0.5], DQ, dead_time=2),
    "cont_tc_synrm": case("Cont-TC-SynRM-v0", [100, 2, 3, -0.5], {"torque": 0.2}),
    "cont_cc_pmsm_cossin": case("Cont-CC-PMSM-v0", [300, 20, -35, 3.0], DQ, cos_sin=True),
    "cont_cc_pmsm_interlock_rc": case(
        "Cont-CC-PMSM-v0", [100, -20, 35, 0.3], DQ, interlocking_time=4e-6, supply="rc", u_nominal=300.0
    ),
    "cont_1qc_rc_seriesdc": case(
        "Cont-CC-SeriesDc-v0", [100, 15], {"i": 0.2}, converter="Cont-1QC", supply="rc", u_nominal=60.0
    ),
    "finite_1qc_rc_seriesdc": case(
        "Finite-CC-SeriesDc-v0", [100, 15], {"i": 0.2}, converter="Finite-1QC", supply="rc", u_nominal=60.0
    ),
    "finite_2qc_interlock_rc_shuntdc": case(
        "Finite-TC-ShuntDc-v0",
        [100, 10, 20],
        {"torque": 0.2},
        converter="Finite-2QC",
        interlocking_time=2e-6,
        supply="rc",
        u_nominal=60.0,
    ),
    "cont_2qc_shuntdc": case("Cont-SC-ShuntDc-v0", [40, 10, 20], {"omega": 0.2}, converter="Cont-2QC"),
    "cont_4qc_interlock_seriesdc": case("Cont-CC-SeriesDc-v0", [100, 15], {"i": 0.2}, interlocking_time=5e-6),
    "cont_cc_extexdc": case("Cont-CC-ExtExDc-v0", [100, 10, 20], {"i_a": 0.1, "i_e": 0.2}),
    "finite_sc_extexdc_interlock": case(
        "Finite-SC-ExtExDc-v0", [100, 10, 20], {"omega": 0.1}, hold=4, interlocking_time=2e-6
    ),
    "cont_sc_permexdc_stops": case("Cont-SC-PermExDc-v0", [2, 0], {"omega": 0.0}, a=3.0, b=0.1, c=1e-3),
    "cont_cc_eesm_dq_deadtime": case(
        "Cont-CC-EESM-v0", [100, -5, 10, 8, 0.3], {**DQ, "i_e": 0.3}, l_m=1.1e-3, dq_actions=True, dead_time=1
    ),
    "finite_cc_eesm": case("Finite-CC-EESM-v0", [100, -5, 10, 8, 0.3], {**DQ, "i_e": 0.3}, l_m=1.1e-3),
    "cont_cc_scim_fluxobs": case("Cont-CC-SCIM-v0", [100, 1, -1, 0, 0, 0.4], DQ, flux_observer=True),
    "cont_tc_scim_dq": case(
        "Cont-TC-SCIM-v0", [100, 1, -1, 0, 0, 0.4], {"torque": 0.2}, flux_observer=True, dq_actions=True
    ),
    "finite_cc_scim_interlock": case("Finite-CC-SCIM-v0", [100, 1, -1, 0, 0, 0.4], DQ, hold=3, interlocking_time=3e-6),
    "cont_cc_dfim": case("Cont-CC-DFIM-v0", [80, 0.5, -1, 0, 0, 0], DQ),
    "cont_cc_dfim_dq": case("Cont-CC-DFIM-v0", [80, 0.5, -1, 0, 0, 0], DQ, flux_observer=True, dq_actions=True),
    "finite_tc_dfim_interlock": case(
        "Finite-TC-DFIM-v0", [80, 0.5, -1, 0, 0, 0], {"torque": 0.1}, hold=3, interlocking_time=2e-6
    ),
    "finite_sc_sixpmsm": case("Finite-SC-SIXPMSM-v0", [20, 1, 2, 3, 4, 0.5], {"omega": 0.1}),
}


def converter(key: str, interlocking_time: float, finite: bool) -> Any:
    parts = [CONVERTERS[name](interlocking_time=interlocking_time) for name in key.split("+")]
    if len(parts) == 1:
        return parts[0]
    return (ps.FiniteMultiConverter if finite else ps.ContMultiConverter)(subconverters=parts)


def supply(kind: str, given: dict[str, Any]) -> Any:
    u_nominal = given["u_nominal"]
    if kind == "rc":
        return ps.RCVoltageSupply(u_nominal)
    if kind == "ac1":
        return ps.AC1PhaseSupply(u_nominal, {"frequency": 50, "phase": given["phase_low"]})
    return ps.IdealVoltageSupply(u_nominal)


def make(env_id: str, spec: dict | None) -> Any:
    """The environment of a case, or of an id as it is."""
    kwargs: dict[str, Any] = {"ode_solver": ps.ScipyOdeSolver("dopri5", rtol=1e-11, atol=1e-13)}
    if spec is None:
        return gem.make(env_id, **kwargs).unwrapped
    given, start = dict(spec["overrides"]), spec["initial"]
    control, task, motor = env_id.split("-")[:3]
    default = gem.make(env_id).unwrapped.physical_system
    while hasattr(default, "_physical_system"):
        default = default._physical_system
    names = {"PMSM": 3, "SynRM": 3, "EESM": 4, "SIXPMSM": 5}
    states = list(type(default.electrical_motor)._default_initializer["states"])
    if motor in names:  # gym-electric-motor writes the values of this dict in the order they come in
        states = ["i_sd", "i_sq", *[s for s in states if s not in ("i_sd", "i_sq", "epsilon")], "epsilon"]
    parameter = {k: v for k, v in given.items() if k in MACHINE}
    initial = {**dict(zip(states, start[1:], strict=True))}
    kwargs["motor"] = type(default.electrical_motor)(
        motor_parameter=parameter, motor_initializer={"states": initial, "interval": None, "random_init": None}
    )
    if given.get("speed_profile"):
        kwargs["load"] = ps.ExternalSpeedLoad(sine, tau=default.tau)
    elif task == "SC":
        own = {k: given.get(k, v) for k, v in default.mechanical_load.load_parameter.items()}
        kwargs["load"] = ps.PolynomialStaticLoad(
            own, load_initializer={"states": {"omega": float(start[0])}, "interval": None, "random_init": None}
        )
    else:
        kwargs["load"] = ps.ConstantSpeedLoad(float(start[0]))
    if "converter" in given or "interlocking_time" in given:
        key = given.get("converter", USUAL.get(motor, "{}-B6C").replace("{}", control))
        kwargs["converter"] = converter(key, given.get("interlocking_time", 0.0), control == "Finite")
    if "supply" in given:
        kwargs["supply"] = supply(given["supply"], given)
    wrapped: list[Any] = []
    if given.get("flux_observer"):
        wrapped.append(wrappers.FluxObserver())
    if given.get("dead_time"):
        wrapped.append(wrappers.DeadTimeProcessor(given["dead_time"]))
    if given.get("dq_actions"):
        wrapped.append(wrappers.DqToAbcActionProcessor.make(motor))
    if given.get("cos_sin"):
        wrapped.append(wrappers.CosSinProcessor())
    constants = [generators.ConstReferenceGenerator(name, value) for name, value in spec["references"].items()]
    reference = constants[0] if len(constants) == 1 else generators.MultipleReferenceGenerator(constants)
    return gem.make(
        env_id, **kwargs, physical_system_wrappers=tuple(wrapped), constraints=(), reference_generator=reference
    ).unwrapped


def inner(env: Any) -> Any:
    system = env.physical_system
    while hasattr(system, "_physical_system"):
        system = system._physical_system
    return system


def draw(rng: np.random.Generator, space: Any, steps: int, hold: int) -> np.ndarray:
    """Random actions, each for `hold` steps. The first finite one is no short circuit: after a step in which nothing
    moves, the adaptive solver gives up, and the direction of a flux that is not there is rounding."""
    blocks = -(-steps // hold)
    if hasattr(space, "n"):
        rows = rng.integers(space.n, size=blocks)
        rows[0] = rng.integers(1, max(space.n - 1, 2))
    elif hasattr(space, "nvec"):
        rows = rng.integers(space.nvec, size=(blocks, len(space.nvec)))
        rows[0] = rng.integers(1, space.nvec - 1)
    else:
        rows = rng.uniform(space.low, space.high, (blocks, *space.shape)).astype(np.float32).astype(np.float64)
    return np.repeat(rows, hold, axis=0)[:steps]


def seed_of(name: str) -> int:
    return zlib.crc32(name.encode())


def run_case(name: str, spec: dict, actions: np.ndarray | None) -> tuple[dict, dict[str, np.ndarray]]:
    env = make(spec["env_id"], spec)
    system = env.physical_system
    if actions is None:
        actions = draw(np.random.default_rng(seed_of(name)), env.action_space, STEPS, spec["hold"])
    (state, _), _ = env.reset(seed=0)
    states, odes, rewards = [state * env.limits], [np.array(inner(env)._ode_solver.y)], []
    for action in actions:
        (state, _), reward, terminated, _, _ = env.step(action)
        assert not terminated
        states.append(state * env.limits)
        odes.append(np.array(inner(env)._ode_solver.y))
        rewards.append(reward)
    meta = {**spec, "names": list(system.state_names), "limits": [float(x) for x in env.limits]}
    arrays = {"actions": actions, "states": np.array(states), "ode": np.array(odes), "reward": np.array(rewards)}
    return meta, arrays


def run_task(env_id: str, seed: int | None = None) -> dict[str, np.ndarray]:
    """An episode; `seed` of actions and references in place of what the stored ones have."""
    env = make(env_id, None)
    rng = np.random.default_rng(seed_of(env_id) if seed is None else seed)
    actions = draw(rng, env.action_space, TASK_STEPS, 20)
    (_, reference), _ = env.reset(seed=1 if seed is None else seed)
    shown, seen, rewards, ended = [], [], [], False
    for k, action in enumerate(actions):
        shown.append(np.array(reference))
        (state, reference), reward, ended, _, _ = env.step(action)
        rewards.append(reward)
        if k % 16 == 0 or ended or k == TASK_STEPS - 1:
            seen.append(np.concatenate([[k], state]))
        if ended:
            break
    system = env.physical_system
    generator = env.reference_generator
    single = getattr(generator, "_sub_generators", [generator])
    return {
        "actions": actions[: len(rewards)],
        "references": np.array(shown),
        "observation": np.array(seen),
        "reward": np.array(rewards),
        "terminated": np.array(bool(ended)),
        "names": np.array(list(system.state_names)),
        "limits": np.array(system.limits),
        "nominal": np.array(system.nominal_state),
        "low": np.array(system.state_space.low),
        "high": np.array(system.state_space.high),
        "reference_low": np.array(generator.reference_space.low),
        "reference_high": np.array(generator.reference_space.high),
        "sigma": np.array([g._sigma_range for g in single]),
        "tau": np.array(system.tau),
        "penalty": np.array(env.reward_function._violation_reward),
    }


def main() -> None:
    import importlib.metadata

    version = importlib.metadata.version("gym-electric-motor")
    if version != VERSION:
        sys.exit(f"gym-electric-motor {version} is installed; the data are of {VERSION}.")
    old = np.load(HERE / "motor_cases.npz") if (HERE / "motor_cases.npz").exists() else {}
    metas, arrays = {}, {}
    for name, spec in {**KEPT, **MADE}.items():
        kept = old[f"{name}/actions"] if f"{name}/actions" in old else None
        if name in KEPT and kept is None:
            sys.exit(f"{name}: motor_cases.npz lacks its actions, which nothing else has.")
        metas[name], found = run_case(name, spec, kept if name in KEPT else None)
        arrays |= {f"{name}/{key}": value for key, value in found.items()}
        print(name, found["ode"][-1], found["reward"].sum(), flush=True)
    tasks = {}
    ids = [id for id in gem.gymnasium.registry if id.endswith("-v0") and id.split("-")[1] in ("CC", "TC", "SC")]
    for env_id in sorted(ids):
        found = run_task(env_id)
        tasks |= {f"{env_id}/{key}": value for key, value in found.items()}
        print(env_id, len(found["reward"]), bool(found["terminated"]), found["reward"][-1], flush=True)
    np.savez_compressed(HERE / "motor_cases.npz", **arrays)
    np.savez_compressed(HERE / "motor_tasks.npz", **tasks)
    text = json.dumps({"package": f"gym-electric-motor {version}", "cases": metas}, indent=1)
    (HERE / "motor_cases.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
