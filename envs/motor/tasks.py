"""gym-electric-motor's 60 tasks as tables: what `MotorDrive(motor, task, control)` has for defaults.

Ids are `{Cont,Finite}-{CC,TC,SC}-{motor}-v0`: continuous or finite control set; current, torque or speed control.
"""

from __future__ import annotations

import difflib
import importlib
from typing import Any, NamedTuple

from . import loads, references

CONTROLS = ("Cont", "Finite")
TASKS = ("CC", "TC", "SC")
TASK_NAMES = {"CC": "current", "TC": "torque", "SC": "speed"}


class Motor(NamedTuple):
    """One motor's row."""

    module: str
    cls: str
    converter: str  # `{}` stands for the control
    controlled: tuple[str, ...]  # currents with references in current control
    constraints: tuple[tuple[str, tuple[str, ...]], ...]
    u_nominal: float  # V, of the supply
    current_sum: tuple[str, ...] = ()


def _squared(*names: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
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
"""Settings of `MotorDrive` of each id."""


def find(id: str) -> dict[str, str]:
    """Settings of an id. Raises ValueError for an unknown one, naming the nearest."""
    if id in IDS:
        return IDS[id]
    folded = {known.lower(): known for known in IDS}
    near = difflib.get_close_matches(id.lower(), folded, n=1, cutoff=0.3)
    hint = f" Did you mean {folded[near[0]]!r}?" if near else ""
    raise ValueError(f"Unknown motor task {id!r}.{hint} Ids are {{Cont,Finite}}-{{CC,TC,SC}}-{{motor}}-v0.")


def check(motor: str, task: str, control: str) -> None:
    """Raise ValueError for a combination that does not exist, naming what does."""
    for what, value, allowed in (("motor", motor, MOTORS), ("task", task, TASKS), ("control", control, CONTROLS)):
        if value not in allowed:
            near = difflib.get_close_matches(value, list(allowed), n=1, cutoff=0.3)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{what}={value!r} is not one of {', '.join(allowed)}.{hint}")


def machine(motor: str, upstream: bool) -> Any:
    """Default parameters."""
    row = MOTORS[motor]
    cls = getattr(importlib.import_module(f".{row.module}", __package__), row.cls)
    return cls.upstream() if upstream and hasattr(cls, "upstream") else cls()


def referenced(motor: str, task: str) -> tuple[str, ...]:
    """Names of what has a reference."""
    return {"CC": MOTORS[motor].controlled, "TC": ("torque",), "SC": ("omega",)}[task]


def weights(motor: str, task: str, names: tuple[str, ...]) -> tuple[float, ...]:
    """Of the errors in the reward: equal, and of sum 1 but for the six-phase machine's currents."""
    if motor == "SIXPMSM" and names == _SIX:
        return (0.5,) * 4
    return tuple(1 / len(names) for _ in names)


def u_nominal(motor: str, task: str, control: str) -> float:
    """The supply's voltage [V]."""
    return U_NOMINAL.get((control, task, motor), MOTORS[motor].u_nominal)


def load(motor: str, task: str, control: str) -> Any:
    """Default load."""
    if task == "SC":
        a, b, j_load = LOADS.get(motor, {}).get(control, (0.01, 0.01, 1e-5))
        return loads.Polynomial(a=a, b=b, j_load=j_load)
    omega: Any = 230.0 if (control, task, motor) == ("Cont", "TC", "ShuntDc") else 100.0
    return loads.ConstantSpeed(omega)


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
