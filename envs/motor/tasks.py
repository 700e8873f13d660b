"""Tasks as tables: what `MotorDrive(motor, task, control)` has for defaults.

Ids are `{Cont,Finite}-{CC,TC,SC}-{motor}-v0`, gym-electric-motor's 60: continuous or finite control set; current,
torque or speed control. `MORE_IDS` are of three tasks that it lacks, for the motors on which drives are built that way:

| task | motors | what it is |
|---|---|---|
| FW | PMSM | speed control beyond base speed, where the voltage is used up and the field has to be weakened |
| DTC | PMSM, SCIM | torque and the length of the stator's flux, without a current loop in between |
| PC | PMSM, PermExDc | the position of a servo axis |

FW is for magnets: they cannot be turned down, so a d current has to oppose them, and where it fails their voltage
drives the link. Machines without need no more than less excitation. The position is a load's, so any motor can have a
`servo`.

Sources: FW, Morimoto, Takeda, Hirasa and Taniguchi (1990), "Expansion of operating limits for permanent magnet motor by
current vector control considering inverter capacity"; DTC, after Takahashi and Noguchi, and Zhong, Rahman, Hu and Lim
(1997), "Analysis of direct torque control in permanent magnet synchronous motor drives"; PC, Leonhard (2001), "Control
of electrical drives".
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from . import converters, loads, references
from .machines.machine import rpm

CONTROLS = ("Cont", "Finite")
TASKS = ("CC", "TC", "SC")
"""gym-electric-motor's."""
MORE_TASKS = {"FW": ("PMSM",), "DTC": ("PMSM", "SCIM"), "PC": ("PMSM", "PermExDc")}
"""Others, and their motors."""

Constraints = tuple[tuple[str | Callable[..., Any], tuple[str, ...]], ...]
"""Pairs of "limit" (each), "squared" (the sum of squares) or a function, and the normalised quantities it is about. A
function of these has the degree of violation: 0 to 1, at which the episode ends."""


class Motor(NamedTuple):
    """One motor's row."""

    module: str
    cls: str
    converter: str  # `{}` stands for the control
    controlled: tuple[str, ...]  # currents with references in current control
    constraints: Constraints
    u_nominal: float  # V, of the supply
    current_sum: tuple[str, ...] = ()


def _squared(*names: str) -> Constraints:
    return (("squared", names),)


_DQ = ("i_sd", "i_sq")
_SIX = ("i_sd", "i_sq", "i_sx", "i_sy")
_BOTH = ("i_a", "i_e")

MOTORS: dict[str, Motor] = {
    "PermExDc": Motor("perm_ex_dc", "PermExDc", "{}-4QC", ("i",), (("limit", ("i",)),), 60.0),
    "ExtExDc": Motor("ext_ex_dc", "ExtExDc", "{}-4QC+{}-4QC", _BOTH, (("limit", _BOTH),), 60.0),
    "SeriesDc": Motor("series_dc", "SeriesDc", "{}-4QC", ("i",), (("limit", ("i",)),), 60.0),
    "ShuntDc": Motor("shunt_dc", "ShuntDc", "{}-4QC", ("i_a",), (("limit", _BOTH),), 60.0, _BOTH),
    "PMSM": Motor("pmsm", "PMSM", "{}-B6C", _DQ, _squared("i_sq", "i_sd"), 420.0),
    "EESM": Motor(
        "eesm", "EESM", "{}-B6C+{}-4QC", (*_DQ, "i_e"), (*_squared("i_sq", "i_sd"), ("limit", ("i_e",))), 420.0
    ),
    "SynRM": Motor("synrm", "SynRM", "{}-B6C", _DQ, _squared("i_sq", "i_sd"), 420.0),
    "SCIM": Motor("scim", "SCIM", "{}-B6C", _DQ, _squared("i_sq", "i_sd"), 420.0),
    "DFIM": Motor("dfim", "DFIM", "{}-B6C+{}-B6C", _DQ, _squared("i_sq", "i_sd"), 420.0),
    "SIXPMSM": Motor("six_pmsm", "SixPMSM", "{}-B6C+{}-B6C", _SIX, _squared(*_SIX), 300.0),
}

U_NOMINAL: dict[tuple[str, str, str], float] = {
    ("Finite", "CC", "SeriesDc"): 420.0,
    ("Finite", "TC", "SeriesDc"): 420.0,
    ("Cont", "CC", "PMSM"): 300.0,
    ("Cont", "CC", "EESM"): 300.0,
}
"""Where the supply's voltage is another than the motor's row says [V]."""

LOADS: dict[str, dict[str, Any]] = {
    "PermExDc": {"Cont": (0.0, 0.0, 1e-4), "Finite": (0.0, 0.0, 1e-3)},
    "ExtExDc": {"Cont": (0.0, 0.0, 1e-4), "Finite": (0.0, 0.0, 1e-4)},
    "SeriesDc": {"Cont": (0.01, 0.05, 1e-4), "Finite": (0.15, 0.05, 1e-4)},
    "ShuntDc": {"Cont": (0.05, 0.01, 1e-4), "Finite": (0.05, 0.01, 1e-4)},
    "EESM": {"Cont": (0.01, 0.01, 1e-5), "Finite": (0.0, 0.0, 1e-5)},
}
"""a, b, j_load of speed control; (0.01, 0.01, 1e-5) otherwise."""

TOP_SPEED = rpm(11000)
"""rad/s, mechanical, of field weakening: 4.5 times base speed. What exciting-environments has for the same machine,
BRUSA's HSM1."""
FASTER = 2.0
"""Times base speed, the lowest reference of field weakening. The voltage binds from 1 on at rated torque, from 2 on at
a fifth of it, which friction and speeding up take, and from 3.4 on without any."""

SIGMA: dict[tuple[str, str], dict[str, Any]] = {
    ("SC", "PermExDc"): {"Cont": (1e-3, 5e-2), "Finite": (1e-3, 5e-3)},
    ("SC", "SeriesDc"): {"Cont": (1e-3, 2e-2), "Finite": (1e-3, 5e-3)},
    ("SC", "ShuntDc"): {"Cont": (1e-3, 3e-2), "Finite": (1e-3, 5e-3)},
    ("CC", "PermExDc"): {"Cont": (1e-2, 1e-1), "Finite": (1e-2, 1e-1)},
    ("TC", "PermExDc"): {"Cont": (1e-2, 1e-1), "Finite": (1e-2, 1e-1)},
    ("SC", "SynRM"): {"Cont": (1e-3, 1e-2), "Finite": (1e-3, 1e-2)},
    ("SC", "SCIM"): {"Cont": (1e-3, 1e-2), "Finite": (1e-3, 1e-2)},
    ("SC", "DFIM"): {"Cont": (1e-3, 1e-2), "Finite": (1e-3, 1e-2)},
}
"""Range of the reference's step width; (1e-3, 1e-1) otherwise."""

IDS: dict[str, dict[str, str]] = {
    f"{control}-{task}-{motor}-v0": {"motor": motor, "task": task, "control": control}
    for motor in MOTORS
    for task in TASKS
    for control in CONTROLS
}
"""Settings of `MotorDrive` of each id of gym-electric-motor."""

MORE_IDS: dict[str, dict[str, str]] = {
    f"{control}-{task}-{motor}-v0": {"motor": motor, "task": task, "control": control}
    for task, motors in MORE_TASKS.items()
    for motor in motors
    for control in CONTROLS
}
"""Settings of each other id."""


def find(id: str) -> dict[str, str]:
    """Settings of an id. Raises ValueError for an unknown one, naming the nearest."""
    all_ids = IDS | MORE_IDS
    if id in all_ids:
        return all_ids[id]
    folded = {known.lower(): known for known in all_ids}
    near = difflib.get_close_matches(id.lower(), folded, n=1, cutoff=0.3)
    hint = f" Did you mean {folded[near[0]]!r}?" if near else ""
    kinds = ",".join((*TASKS, *MORE_TASKS))
    raise ValueError(f"Unknown motor task {id!r}.{hint} Ids are {{Cont,Finite}}-{{{kinds}}}-{{motor}}-v0.")


def check(motor: str, task: str, control: str) -> None:
    """Raise ValueError for a combination that does not exist, naming what does."""
    tasks = (*TASKS, *MORE_TASKS)
    for what, value, allowed in (("motor", motor, MOTORS), ("task", task, tasks), ("control", control, CONTROLS)):
        if value not in allowed:
            near = difflib.get_close_matches(value, list(allowed), n=1, cutoff=0.3)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{what}={value!r} is not one of {', '.join(allowed)}.{hint}")
    if motor not in MORE_TASKS.get(task, MOTORS):
        raise ValueError(f"task={task!r} is for {', '.join(MORE_TASKS[task])}; motor={motor!r}.")


def machine(motor: str, upstream: bool) -> Any:
    """Default parameters."""
    row = MOTORS[motor]
    cls = getattr(importlib.import_module(f".machines.{row.module}", __package__), row.cls)
    return cls.upstream() if upstream and hasattr(cls, "upstream") else cls()


def referenced(motor: str, task: str) -> tuple[str, ...]:
    """Names of what has a reference."""
    return {
        "CC": MOTORS[motor].controlled,
        "TC": ("torque",),
        "SC": ("omega",),
        "FW": ("omega",),
        "DTC": ("torque", "psi_s"),
        "PC": ("position",),
    }[task]


def weights(motor: str, task: str, names: tuple[str, ...]) -> tuple[float, ...]:
    """Of the errors in the reward: equal, and of sum 1 but for the six-phase machine's currents."""
    if motor == "SIXPMSM" and names == _SIX:
        return (0.5,) * 4
    return tuple(1 / len(names) for _ in names)


def u_nominal(motor: str, task: str, control: str) -> float:
    """The supply's voltage [V]. To weaken a field: twice the voltage limit, so that this is what the link gives."""
    if task == "FW":
        return 2 * machine(motor, False).ratings()[0].u
    return U_NOMINAL.get((control, task, motor), MOTORS[motor].u_nominal)


def load(motor: str, task: str, control: str) -> Any:
    """Default load."""
    if task == "SC":
        a, b, j_load = LOADS.get(motor, {}).get(control, (0.01, 0.01, 1e-5))
        return loads.Polynomial(a=a, b=b, j_load=j_load)
    if task == "FW":
        return loads.Polynomial(a=0.01, b=0.02)  # at top speed half of the torque that is left there  # pyright: ignore
    if task == "PC":
        a, b, j_load = LOADS.get(motor, {}).get(control, (0.01, 0.01, 1e-5))
        return loads.Servo(a=a, b=b, j_load=j_load)
    omega: Any = 230.0 if (control, task, motor) == ("Cont", "TC", "ShuntDc") else 100.0
    return loads.ConstantSpeed(omega)


def converter(motor: str, task: str, control: str) -> str | converters.Converter:
    """Default converter. Drives use the whole hexagon of their link; gym-electric-motor's bridge cuts each phase."""
    key = MOTORS[motor].converter.replace("{}", control)
    return converters.ContB6C("hexagon") if task in MORE_TASKS and key == "Cont-B6C" else key


def constraints(motor: str, task: str) -> Constraints:
    """Default constraints: the currents', overspeed where the field is weakened, the end stops of an axis."""
    more = {"FW": (("limit", ("omega",)),), "PC": (("limit", ("position",)),)}
    return (*MOTORS[motor].constraints, *more.get(task, ()))


def ratings(motor: str, task: str, limits: Any, nominal: Any) -> tuple[Any, Any]:
    """Limits and nominal values of a task from a machine's."""
    if task != "FW":
        return limits, nominal
    return limits.replace(omega=TOP_SPEED), nominal.replace(omega=0.9 * TOP_SPEED)


def tau(motor: str, control: str) -> float:
    """The control step [s]."""
    return 1e-5 if control == "Finite" and motor != "SIXPMSM" else 1e-4


def margin(motor: str, task: str, control: str, name: str, ratio: float, one_sided: bool) -> tuple[float, float]:
    """How close to the limits a reference comes: to the nominal value, but for two tasks."""
    if (motor, task, control) == ("ShuntDc", "TC", "Cont"):
        return 0.0, 0.8
    if (motor, task, control, name) == ("EESM", "CC", "Cont", "i_e"):
        return 0.0, 1.0
    return (0.0 if one_sided else -ratio), ratio


def generator(motor: str, task: str, control: str, low: Any, high: Any) -> references.Wiener:
    """Default reference generator."""
    sigma_low, sigma_high = SIGMA.get((task, motor), {}).get(control, (1e-3, 1e-1))
    return references.Wiener(low, high, sigma_low, sigma_high, start_low=low, start_high=high)


def targets(task: str, name: str, params: Any) -> references.Reference | None:
    """Default reference of the tasks that gym-electric-motor lacks. None: as of the others, between the nominal values.

    Seconds, not steps, are what a machine needs to follow, so that they ask the same of both control sets.
    """
    tau, nominal, limits = params.tau, params.nominal, params.limits
    if (task, name) == ("FW", "omega"):
        low = FASTER * params.machine.base_point(nominal)[1] / limits.omega
        high = nominal.omega / limits.omega
        return _ramp(low, high, 0.3, 0.2, 0.6, low, tau)
    if (task, name) == ("DTC", "torque"):
        return _ramp(-0.8, 0.8, 200.0, 5e-3, 5e-2, 0.0, tau)
    if (task, name) == ("DTC", "psi_s"):
        start, rate = DTC_FLUX[type(params.machine).__name__]
        return _ramp(0.0, 1.0, rate, 5e-2, 0.5, start, tau)
    if (task, name) == ("PC", "position"):
        wave: dict[str, Any] = {"low": -0.5, "high": 0.5, "steps_low": 0.5 / tau, "steps_high": 2 / tau}
        wave |= {"frequency_low": 0.5, "frequency_high": 2.0, "amplitude_high": 0.15}
        wave |= {"offset_low": -0.1, "offset_high": 0.1}
        kinds = (references.Step(**wave), references.Sine(**wave), _ramp(-0.5, 0.5, 1.5, 0.2, 1.0, 0.0, tau))
        return references.Switched(kinds, steps_low=0.5 / tau, steps_high=2 / tau)
    return None


DTC_FLUX: dict[str, tuple[float, float]] = {"PMSM": (0.57, 20.0), "SCIM": (0.5, 1.0)}
"""Where the flux reference starts, of its range, and how fast it moves [1/s]. An induction machine's rotor follows in a
tenth of a second; a synchronous machine without current has nearly this flux."""


def _ramp(low: Any, high: Any, rate: float, shortest: float, longest: float, start: Any, tau: Any) -> references.Ramp:
    """Set points every `shortest` to `longest` seconds."""
    return references.Ramp(low, high, rate, shortest / tau, longest / tau, start, start)  # pyright: ignore


def initial(task: str, params: Any) -> dict[str, Any]:
    """Where episodes start, where it is not rest: at the speed of the first reference; with the first flux."""
    if task == "FW":
        return {"omega": FASTER * params.machine.base_point(params.nominal)[1]}
    machine = params.machine
    if task == "DTC" and "psi_ralpha" in machine.states:
        low, high = machine.flux_range(params.nominal)
        current = (low + DTC_FLUX["SCIM"][0] * (high - low)) / machine.l_s
        return {"i_salpha": current, "psi_ralpha": machine.l_m * current}
    return {}
