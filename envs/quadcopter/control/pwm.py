"""What the controllers in units of PWM share: the mixer, and how their gains become those of another airframe."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..dynamics import Model
from ..rotations import Vector
from .allocation import yaw_ratio


def mixer(model: Model) -> Any:
    """Rows of roll, pitch and yaw of each rotor: half of one sign or the other where rotors are at the corners, one
    where they are on the axes."""
    x, y = ([column[i] for i in range(4)] for column in (model.rotor_x, model.rotor_y))
    across, along = 2 / sum(abs(v) for v in y), 2 / sum(abs(v) for v in x)
    return tuple((across * y[i], -along * x[i], model.rotor_spin[i]) for i in range(4))


def authority_of(model: Model, slope: Any) -> Vector:
    """Angular acceleration [rad/s^2] of the body for each PWM of torque, `slope` [N] being a rotor's thrust for one."""
    rows = mixer(model)
    roll = sum(model.rotor_y[i] * rows[i][0] for i in range(4))
    pitch = -sum(model.rotor_x[i] * rows[i][1] for i in range(4))
    yaw = 4 * yaw_ratio(model)
    return tuple(slope * arm / model.inertia[i] for i, arm in enumerate((roll, pitch, yaw)))


def rescaled(gains: Any, mass: Any, authority: Any) -> Any:
    """Position gains times `mass`, attitude gains by `authority`: accelerations stay what they were."""
    by_mass = ("position_p", "position_i", "position_d")
    by_authority = [name for name in ("attitude_p", "attitude_i", "attitude_d", "rates_d") if hasattr(gains, name)]
    changes = {name: tuple(g * mass for g in getattr(gains, name)) for name in by_mass}
    for name in by_authority:
        changes[name] = tuple(g / a for g, a in zip(getattr(gains, name), authority, strict=True))
    return gains.replace(**changes)


def if_lagging(model: Model, value: Any) -> Any:
    return jnp.where(model.spin_up[0] + model.spin_up[1] > 0, value, 0.0)
