"""What cannot be: airframes, and physics that need numbers which an airframe lacks. Host only."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl.environment import is_concrete

from . import dynamics
from .dynamics import Model, Physics, polynomial


def vector(x: Any) -> np.ndarray:
    """A field of several numbers, given as a tuple or as an array, with the components on the last axis. Host only."""
    return np.stack(np.broadcast_arrays(*x), -1) if isinstance(x, tuple) else np.asarray(x)


POSITIVE = ("mass", "inertia", "max_rpm")
NOT_NEGATIVE = (
    "min_rpm",
    "spin_up",
    "spin_down",
    "body_drag",
    "rotor_drag",
    "propeller_radius",
    "propeller_inertia",
    "ground_effect",
    "radius",
    "gravity",
)


def check_model(model: Model, who: str = "Model") -> None:
    """Raise ValueError for an airframe that cannot be; warn about one that cannot hover. Host only; may be batched."""
    import warnings

    for name, value in vars(model).items():
        value = vector(value)
        right, rule = True, "finite"
        if name in POSITIVE:
            right, rule = value > 0, "finite and positive"
        elif name in NOT_NEGATIVE:
            right, rule = value >= 0, "finite and not negative"
        if not np.all(np.isfinite(value) & right):
            raise ValueError(f"{who}: {name}={value} must be {rule}.")
    inertia = vector(model.inertia)
    if np.any(2 * inertia.max(-1) > inertia.sum(-1) * (1 + 1e-6)):
        raise ValueError(
            f"{who}: inertia={inertia} is of no solid: each of the three is at most the sum of the others."
        )
    speed = np.asarray(model.max_rpm)
    if np.any(np.asarray(model.min_rpm) >= speed):
        raise ValueError(f"{who}: min_rpm={model.min_rpm} must be below max_rpm={speed}.")
    x, y, spin = (vector(getattr(model, name)) for name in ("rotor_x", "rotor_y", "rotor_spin"))
    yaw = spin * np.any(vector(model.torque) != 0, -1, keepdims=True)
    rows = np.stack(np.broadcast_arrays(np.ones(4), x, y, yaw), -2)
    size = np.abs(rows).max(-1, keepdims=True)
    if np.any(size == 0) or np.any(np.abs(np.linalg.det(rows / size)) < 1e-6):
        raise ValueError(
            f"{who}: rotors at rotor_x={x}, rotor_y={y} with rotor_spin={spin} and torque={model.torque} cannot lift, "
            "roll, pitch and yaw the body each on its own."
        )
    most = 4 * polynomial(np.moveaxis(vector(model.thrust), -1, 0), speed)
    drag = polynomial(np.moveaxis(vector(model.torque), -1, 0), speed)
    if np.any(most <= 0) or np.any(drag < 0):
        raise ValueError(
            f"{who}: at max_rpm={speed} the thrust {most / 4} N of a rotor must be positive and its torque {drag} N m "
            "not negative."
        )
    weight = np.asarray(model.mass) * np.asarray(model.gravity)
    if np.any(most <= weight):
        warnings.warn(
            f"{who}: the most thrust {most} N does not exceed the weight {weight} N: it cannot hover.", stacklevel=2
        )


def check_physics(physics: Any, who: str) -> None:
    """Raise ValueError for what is not a `Physics`: the name of one, say."""
    if not isinstance(physics, Physics):
        named = ", ".join(f"dynamics.{name}" for name, value in vars(dynamics).items() if isinstance(value, Physics))
        raise ValueError(f"{who}: physics={physics!r} is not a dynamics.Physics; named ones are {named}.")


def check_fit(
    model: Model,
    physics: Any,
    who: str = "check_fit",
    *,
    wind: bool = False,
    downwash: bool = False,
    battery: bool = False,
) -> None:
    """Raise ValueError where `physics`, or `wind`, `downwash` or a `battery`, needs numbers that `model` lacks.

    On the host: a model that is being traced is not looked at. It may be batched; a coefficient of what acts from
    outside may then be zero in some, but not in all.
    """
    check_physics(physics, who)
    if not is_concrete(model):
        return
    up, down = vector(model.spin_up), vector(model.spin_down)
    rates = {
        "instant": {},
        "first_order": {"spin_up[0]": up[..., 0]},
        "asymmetric": {"spin_up": up.sum(-1), "spin_down": down.sum(-1)},
        "exact": {"spin_up[0]": up[..., 0], "spin_down[0]": down[..., 0]},
    }[physics.motors]
    for name, rate in rates.items():
        if not np.all(rate > 0):
            raise ValueError(
                f"{who}: physics with motors={physics.motors!r} needs a model with {name} above 0, else its rotors "
                f"never follow a command; not {rate}. Without lag: physics.replace(motors='instant')."
            )
    radius = np.asarray(model.propeller_radius)
    if physics.ground_effect and not (np.all(radius > 0) and np.all(np.asarray(model.ground_effect) > 0)):
        raise ValueError(
            f"{who}: physics with ground effect needs a model with propeller_radius and ground_effect above 0, not "
            f"{radius} and {model.ground_effect}."
        )
    if wind and physics.drag == "none":
        raise ValueError(f"{who}: wind acts only on physics with drag, not on {physics}.")
    drag = "body_drag" if physics.drag == "body" else "rotor_drag"
    if wind and not np.any(vector(getattr(model, drag)) != 0):
        raise ValueError(f"{who}: wind with drag={physics.drag!r} needs a model whose {drag} is not zero.")
    if downwash and not np.any((vector(model.downwash)[..., 0] > 0) & (radius > 0)):
        raise ValueError(
            f"{who}: downwash needs a model with downwash[0] and propeller_radius above 0, not "
            f"{model.downwash} and {radius}."
        )
    if battery and not np.all(np.asarray(model.max_rpm) > 1):
        raise ValueError(
            f"{who}: a battery needs a model whose rotor speeds are in rpm; with max_rpm={model.max_rpm} they are a "
            "throttle, from which no power follows."
        )
