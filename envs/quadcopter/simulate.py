"""The open-loop flight of a quadcopter under rotor speed commands."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import is_concrete

from .checks import check_fit, vector
from .dynamics import CALM, L2F, Drone, Model, Physics, Surroundings, at_rest, step


class Trajectory(NamedTuple):
    """What `simulate` returns: the states at 0, dt, ..., steps dt."""

    position: Float[Array, "T 3"]
    quaternion: Float[Array, "T 4"]
    velocity: Float[Array, "T 3"]
    body_rates: Float[Array, "T 3"]
    rpm: Float[Array, "T 4"]


def stack(drone: Drone) -> Trajectory:
    """A drone's fields as arrays with the components last."""
    return Trajectory(*(jnp.stack([jnp.asarray(x) for x in field], -1) for field in drone))


def simulate(
    model: Model,
    rpm: Any,
    initial: Drone | None = None,
    physics: Physics = L2F,
    dt: Any = 0.01,
    steps: int | None = None,
    surroundings: Surroundings = CALM,
) -> Trajectory:
    """The open-loop flight under rotor speed commands, as `steps + 1` states of `(steps + 1, 3 or 4)` arrays.

    Args:
        rpm: one command (4,) for all steps, or one for each (steps, 4) [rpm].
        initial: at rest in the origin, rotors at hover speed, when None.
        surroundings: constant over the flight; a field with a leading axis of `steps` varies with it.

    Everything is computed in the precision jax has by default: float64 under `jax.enable_x64`. Raises ValueError for
    commands that do not fit, and for a model without what `physics` needs.
    """
    wind = surroundings.wind
    blown = wind is not None and is_concrete(wind) and bool(np.any(vector(wind) != 0))
    check_fit(model, physics, "simulate", wind=blown)
    dtype = jnp.result_type(float)
    rpm = jnp.asarray(rpm, dtype)
    steps = (len(rpm) if rpm.ndim == 2 else None) if steps is None else steps
    if rpm.shape not in ((4,), (steps, 4)) or steps is None:
        raise ValueError(f"rpm has shape {rpm.shape}; it needs (4,) with steps= a number, or (steps, 4).")
    commands = jnp.broadcast_to(rpm, (steps, 4))
    model = jax.tree.map(lambda x: jnp.asarray(x, dtype), model)
    initial = at_rest(model) if initial is None else initial
    drone = Drone(*(tuple(jnp.asarray(x, dtype) for x in field) for field in initial))
    sizes = Surroundings((3,), (3,), (3,), ())

    def at_each_step(value, shape):
        return None if value is None else jnp.broadcast_to(jnp.asarray(value, dtype), (steps, *shape))

    around = Surroundings(*(at_each_step(value, shape) for value, shape in zip(surroundings, sizes, strict=True)))

    def body(drone, inputs):
        command, around = inputs
        new = step(model, drone, tuple(command), dt, physics, around)
        return new, stack(new)

    _, flight = jax.lax.scan(body, drone, (commands, around))
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), stack(drone), flight)
