"""What a controller of drives is set to, by an optimum for its drive, and what it remembers from step to step.

Their formulas are at the top of `controllers.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from jaxrl.environment import pytree

from .. import tasks
from ..drive import MotorDrive
from ..plant import Params
from .operating_points import inductances, resistances

FLUX = ("torque", "psi_s")
OUTER = (("torque",), ("omega",), ("position",), FLUX)
"""References that are not the controlled currents'."""


@pytree
class Gains:
    current_p: Any  # V/A, of each controlled current
    current_i: Any  # V/(A s)
    speed_p: jax.Array  # N m s/rad
    speed_i: jax.Array  # N m/rad
    flux_p: jax.Array = 20.0  # induction machines: how much faster than by itself the flux follows
    flux: jax.Array = 1.0  # the least flux, of the rated; 0: that of least loss, which answers slower
    margin: jax.Array = 0.1  # of a current's limit, that references of torque and speed control leave free
    voltage: jax.Array = 0.9  # of what the converter gives, that a steady operating point asks for
    band: jax.Array = 0.01  # half the width of hysteresis, of the limit
    rate: jax.Array = 0.5  # of a gradient step of `mpc`, of Newton's
    position_p: jax.Array = 0.0  # 1/s
    brake: jax.Array = 0.5  # of the torque limit, with which position control means to brake


class Carry(NamedTuple):
    current: Any  # integrals of current errors, A s
    speed: Any  # of the speed error, rad
    switches: Any  # what hysteresis did last: of each phase; (flux, torque) of direct torque control
    position: Any = ()  # position control: what the reference was, rad


def controlled_currents(env: MotorDrive) -> tuple[str, ...]:
    """Names of the currents that have a loop of their own."""
    return tasks.MOTORS[env.motor].controlled


def tune(env: MotorDrive, params: Params, tuning: str = "magnitude", a: Any = 4.0) -> Gains:
    """Gains of the optimum named by `tuning`. Leaves may be batched."""
    tau, machine = params.tau * (1 + env.dead_time), params.machine
    lag = inductances(machine, env.upstream and tuning == "symmetric")
    if tuning == "symmetric":
        p = tuple(h / (a * tau) for h in lag)
        i = tuple(k / (a * a * tau) for k in p)
    else:
        p = tuple(h / (2 * tau) for h in lag)
        i = tuple(r / (2 * tau) + 0 * k for r, k in zip(resistances(machine), p, strict=True))
    slow = a * a * a * tau
    inertia = machine.j_rotor + params.load.j_load
    position = 1 / (a * slow) if env.referenced == ("position",) else 0.0
    return Gains(p, i, inertia / slow, inertia / slow**2, position_p=position)  # pyright: ignore
