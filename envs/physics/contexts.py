"""Contexts of the tasks on MuJoCo models: what of a body or its ground a curriculum may vary, as points of a box.

    params = at_point(params, ("mass", "slope"), jnp.array([0.8, 0.5]), env)      each coordinate in [0, 1]

A coordinate of 0.5 is the task itself. The factors of `gravity`, `mass`, `friction` and `gear` run from 1/2 to 2 in
their logarithm; `slope` runs from 0.2 rad downhill to 0.2 rad uphill, along x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import is_concrete

from .task import scaled

SPREAD = 2.0
"""The largest factor."""
STEEPEST = 0.2
"""The steepest slope [rad]."""


def sloped(params: Any, angle: float | Float[Array, ""]) -> Any:
    """`params` on ground that rises along x by `angle` [rad]: its gravity is turned about y.

    The task's own axes are along the ground and across it, so heights and pitch are measured from the ground.
    """
    x, y, z = params.model["gravity"]
    s, c = jnp.sin(angle), jnp.cos(angle)
    gravity = jnp.stack([c * x + s * z, y, c * z - s * x]).astype(params.model["gravity"].dtype)
    return params.replace(model={**params.model, "gravity": gravity})


def _factor(*names: str) -> Callable[[Any, Any], Any]:
    def vary(params: Any, x: Float[Array, ""]) -> Any:
        factor = jnp.exp(jnp.log(SPREAD) * (2 * x - 1))
        return scaled(params, **dict.fromkeys(names, factor))

    return vary


CONTEXTS: dict[str, Callable[[Any, Any], Any]] = {
    "gravity": _factor("gravity"),
    "mass": _factor("body_mass", "body_inertia"),
    "friction": _factor("geom_friction"),
    "gear": _factor("actuator_gear"),
    "slope": lambda params, x: sloped(params, STEEPEST * (2 * x - 1)),
}
"""A function `(params, x in [0, 1]) -> params` of each name."""


def at_point(params: Any, names: tuple[str, ...], point: Float[Array, "d"], env: Any = None) -> Any:
    """`params` in the context of a point of the unit box, a coordinate a name.

    With the task as `env`, what MuJoCo derives of masses follows the mass (`ModelTask.with_constants`), as when MuJoCo
    compiles the body anew; without it, it stays the default body's, as after a write into MuJoCo's model.

    A coordinate that a task has no use for, as the friction of what touches nothing, changes nothing. Raises ValueError
    for a name that is no context, with those there are, for a point of another shape or outside the box, and for a task
    of Brax or Playground.
    """
    if jnp.shape(point) != (len(names),):
        raise ValueError(f"{len(names)} contexts {list(names)} for a point of shape {jnp.shape(point)}.")
    if is_concrete(point) and not np.all((np.asarray(point) >= 0) & (np.asarray(point) <= 1)):
        raise ValueError(f"the point {np.asarray(point).tolist()} is not in the unit box.")
    if "actuator_gear" not in params.model:
        raise ValueError("contexts are of the tasks on MuJoCo models; of others, `scaled` varies the numbers.")
    for name, x in zip(names, point, strict=True):
        if name not in CONTEXTS:
            raise ValueError(f"{name!r} is no context; there are {', '.join(CONTEXTS)}.")
        params = CONTEXTS[name](params, x)
    return params if env is None else env.with_constants(params)
