"""What every machine is: a pytree of its parameters with the functions that `../motion.py` and `../drive.py` call.

A machine's class says which model it is, its leaves are numbers. Quantities are tuples of scalars. Phase quantities are
what the converter sees; `inputs` are the same voltages on the axes of the differential equation, and a *frame* is what
turns one into the other, sines and cosines of the state's angles.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxrl.environment import Replaceable, pytree
from jaxrl.math import sincos


@pytree
class Ratings:
    """Limits or nominal values of what is measured. Limits normalise the observation."""

    omega: Any  # rad/s
    torque: Any  # N m
    i: Any  # A, armature, or every stator and rotor current
    u: Any  # V, armature, or every phase, d and q voltage: half the voltage of the DC link
    i_e: Any = None  # A, excitation, where there is one
    u_e: Any = None  # V


def check_ratings(who: str, limits: Ratings, nominal: Ratings) -> None:
    """Raise ValueError for limits or nominal values that are not positive, and limits below nominal values. Host only;
    leaves may be batched."""
    for name in ("omega", "torque", "i", "u", "i_e", "u_e"):
        limit, rated = getattr(limits, name), getattr(nominal, name)
        if limit is None:
            continue
        limit, rated = np.asarray(limit), np.asarray(rated)
        if not np.all(np.isfinite(limit) & (limit > 0) & (rated > 0)):
            raise ValueError(f"{who}: limits.{name}={limit} and nominal.{name}={rated} must be finite and positive.")
        if np.any(limit < rated * (1 - 1e-5)):
            raise ValueError(f"{who}: limits.{name}={limit} must not be below nominal.{name}={rated}.")


class Machine(Replaceable):
    """Base of the machines' parameter classes."""

    states: ClassVar[tuple[str, ...]]
    """Of the differential equation, in its order, without the speed."""
    currents: ClassVar[tuple[str, ...]]
    voltages: ClassVar[tuple[str, ...]]
    """Names of what is reported."""
    axes: ClassVar[tuple[str, ...]] = ()
    """Reported currents and voltages that are components on turning axes; all others are of windings."""
    dq_actions: ClassVar[tuple[str, ...]] = ()
    """Voltages that actions on turning axes ask for; none where a machine has no such axes."""
    vector_reach: ClassVar[float] = 2 / 3
    """The longest voltage vector of windings that each lie within half of the supply's voltage, of that voltage."""
    stator: ClassVar[tuple[str, ...]] = ()
    """Stator currents, of the states and of those reported, whose length a constraint on squares is about."""
    fluxes: ClassVar[tuple[str, ...]] = ()
    """States that are flux linkages; those that are neither these nor the angle are currents."""
    one_sided: ClassVar[tuple[str, ...]] = ()
    """Quantities that are not negative whatever the converter."""
    terminals: ClassVar[int] = 3
    """Voltages that a converter gives it."""
    upstream_swap: ClassVar[bool] = False
    """gym-electric-motor draws the first state where the second belongs, and the second where the first does."""
    turning: ClassVar[bool] = False
    """The equation stands on turning axes, on which a converter's voltage does not stay still."""
    positive: ClassVar[tuple[str, ...]] = ()
    """Parameters that must be finite and above zero."""

    j_rotor: Any

    @property
    def dq(self) -> int:
        """Number of actions on turning axes; zero where there are none."""
        return len(self.dq_actions)

    @property
    def has_angle(self) -> bool:
        return self.states[-1] == "epsilon"

    def ratings(self) -> tuple[Ratings, Ratings]:
        """Default limits and nominal values."""
        raise NotImplementedError

    def frame(self, state: Any) -> tuple:
        """Sines and cosines of the angles of `state`."""
        return ()

    def upstream_first(self, state: Any) -> tuple:
        """The frame in which gym-electric-motor measures the currents of `state` before the first step."""
        return self.frame(state)

    def upstream_later(self, frame: tuple) -> tuple:
        """`frame`, that before a step, in the form of `upstream_first`."""
        return tuple(frame)

    def angle_frame(self, state: Any) -> tuple:
        """Sine and cosine of the rotor's electrical angle."""
        return sincos(jnp.asarray(state[-1]))

    def inputs(self, phases: Any, frame: Any) -> tuple:
        """Phase voltages [V] on the axes of the equation."""
        return tuple(phases)

    def derivative(self, state: Any, inputs: Any, omega: Any) -> tuple:
        """d/dt of `states` under `inputs` [V] at the mechanical speed `omega` [rad/s]."""
        raise NotImplementedError

    def torque(self, state: Any) -> Any:
        """Of the air gap [N m]."""
        raise NotImplementedError

    def phase_currents(self, state: Any, frame: Any, upstream: bool = False) -> tuple:
        """What the converter delivers [A], one for each of its outputs."""
        return self.measured_currents(state, frame)[: self.terminals]

    def measured_currents(self, state: Any, frame: Any) -> tuple:
        """In the order of `currents` [A]."""
        return tuple(state)

    def measured_voltages(self, phases: Any, frame: Any) -> tuple:
        """In the order of `voltages` [V]."""
        return tuple(phases)

    def action_frame(self, state: Any, flux: Any, omega: Any, ahead: Any, upstream: bool) -> Any:
        """The frame in which actions on turning axes are meant, `ahead` seconds on. `flux`: an observer's, or None."""
        raise NotImplementedError

    def phases(self, dq: Any, frame: Any) -> tuple:
        """Phase quantities of those on turning axes: the inverse of `inputs` for actions."""
        raise NotImplementedError

    def base_point(self, ratings: Ratings) -> tuple[Any, Any]:
        """Torque [N m] and speed [rad/s] of the rated current at the rated voltage, without resistance: the corner
        beyond which a field has to be weakened. Least current for the torque (MTPA); space vectors, so a stator voltage
        up to 2 u / sqrt 3."""
        raise NotImplementedError

    def power(self, state: Any, inputs: Any) -> Any:
        """Electrical power that goes in [W]."""
        raise NotImplementedError

    def loss(self, state: Any) -> Any:
        """Heat of the windings [W]."""
        raise NotImplementedError

    def energy(self, state: Any) -> Any:
        """Stored in the magnetic field [J]."""
        raise NotImplementedError

    def validate(self, who: str, upstream: bool = False) -> None:
        """Raise ValueError for a machine that cannot be. Host only; leaves may be batched."""
        for name in self.positive:
            value = np.asarray(getattr(self, name))
            if not np.all(np.isfinite(value) & (value > 0)):
                raise ValueError(f"{who}: {name}={value} must be finite and positive.")
        for name in set(vars(self)) - set(self.positive):
            value = np.asarray(getattr(self, name))
            if value.dtype.kind == "f" and not np.all(np.isfinite(value)):
                raise ValueError(f"{who}: {name}={value} must be finite.")


def rpm(speed: float | int) -> float:
    """Revolutions per minute in rad/s."""
    return speed * math.pi / 30
