"""The static settings of a drive: what `MotorDrive` is made with, and what they say by themselves."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxrl.environment import Environment

from . import checks, converters, quantities, tasks
from .defaults import components
from .motion import Stepping
from .plant import Params


@dataclasses.dataclass(frozen=True)
class Settings(Environment):
    """What is None is the task's default."""

    motor: str = "PMSM"
    task: str = "CC"  # current, torque (TC) or speed control (SC), and FW, DTC, PC
    control: str = "Cont"  # or "Finite": the control set
    upstream: bool = False
    converter: Any = None  # a Converter or a key, "Cont-2QC", "Cont-B6C+Cont-4QC"
    load: str | None = None  # a key of loads.KEYS
    supply: str | None = None  # a key of supplies.KEYS
    referenced: tuple[str, ...] | None = None  # measured quantities that have a reference
    rewarded: tuple[str, ...] | None = None  # whose errors the reward weighs (from 0 where there is no reference)
    reward_power: float = 1.0
    constraints: tasks.Constraints | None = None
    merge: str = "max"  # of several degrees of violation; or "product": 1 - prod(1 - v)
    observed: tuple[str, ...] | None = None  # measured quantities in the observation, in this order
    solver: str = "rk4"
    substeps: int = 1  # solver steps a control step
    hold: str | None = None  # "rotor" or "stator": axes on which a voltage stays still, for machines on rotor axes
    interlocking: bool = False  # half bridges have a dead time, params.interlocking_time
    dq_actions: bool = False
    dead_time: int = 0  # control steps before an action reaches the converter
    flux_observer: bool = False  # psi_abs, psi_angle of induction machines
    stator_flux: bool | None = None  # psi_s, the length of the stator's flux linkage
    cos_sin: bool = False  # cosine and sine of epsilon
    remove_angle: bool = False  # and no epsilon
    current_sum: tuple[str, ...] | None = None  # currents whose sum is measured as i_sum
    current_sum_limit: str = "max"  # of their limits; or "sum"
    noise: tuple[str, ...] = ()  # measured quantities with normal noise; ("all",) for all
    random_init: str = "none"  # or "uniform", "normal", in params.initial_low .. high and the constraints
    static_ranges = {"substeps": (1, 1000), "dead_time": (0, 100)}

    def __post_init__(self) -> None:
        super().__post_init__()
        tasks.check(self.motor, self.task, self.control)
        if self.hold is None:  # a voltage on rotor axes turns with them, which no inverter does
            object.__setattr__(self, "hold", "stator" if self.task in tasks.MORE_TASKS else "rotor")
        if self.stator_flux is None:
            object.__setattr__(self, "stator_flux", self.task == "DTC")
        checks.check_choices(self)
        row = tasks.MOTORS[self.motor]
        defaults = {
            "converter": tasks.converter(self.motor, self.task, self.control),
            "referenced": tasks.referenced(self.motor, self.task),
            "constraints": tasks.constraints(self.motor, self.task),
            "current_sum": row.current_sum,
        }
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        object.__setattr__(self, "converter", converters.find(self.converter))
        if self.rewarded is None:
            object.__setattr__(self, "rewarded", self.referenced)
        checks.check_settings(self, tuple(quantities.measured(self, components(self))))

    @property
    def observation_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the observation's entries, for the default kinds of load and supply."""
        return self.observed_names(components(self)) + tuple(f"{name}*" for name in self.referenced or ())

    def observed_names(self, params: Params) -> tuple[str, ...]:
        """Measured quantities in the observation, in its order."""
        return tuple(quantities.measured(self, params)) if self.observed is None else self.observed

    def noisy_names(self, params: Params) -> tuple[str, ...]:
        """Measured quantities with noise."""
        return tuple(quantities.measured(self, params)) if self.noise == ("all",) else self.noise

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of a continuous converter the voltages that it is asked for, of a finite one what it switches."""
        machine = components(self).machine
        if self.dq_actions:
            return machine.dq_actions
        made = tuple(name for name in machine.voltages if name not in machine.axes)
        if not self.converter.finite:
            return made[: len(self.converter.low)]
        pieces = converters.cut(made, [part.outputs for part in self.converter.each])
        return tuple(f"switches of {', '.join(piece)}" for piece in pieces)

    @property
    def ending(self) -> frozenset[str]:
        """Measured quantities that can end an episode."""
        return frozenset(name for _, names in self.constraints or () for name in names)

    @property
    def voltage_radius(self) -> float:
        """The longest voltage vector in every direction that a three-phase converter makes, of the supply's voltage."""
        return converters.voltage_radius(self.converter, self.dq_actions)

    @property
    def shares_out(self) -> bool:
        """Whether references are shares of what the machine can do."""
        return self.task == "DTC" and self.referenced == ("torque", "psi_s")

    @property
    def stepping(self) -> Stepping:
        """How a control step is taken."""
        return Stepping(
            self.converter,
            self.hold or "rotor",
            self.solver,
            self.substeps,
            self.interlocking,
            self.dead_time,
            self.dq_actions,
            self.flux_observer,
            self.upstream,
        )
