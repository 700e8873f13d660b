"""Contexts of the tasks on MuJoCo models: what of a body or its ground a curriculum may vary, as points of a box.

    params = at_point(params, ("mass", "slope"), jnp.array([0.8, 0.5]))      each coordinate in [0, 1]

A coordinate of 0.5 is the task itself. The factors of `gravity`, `mass`, `friction` and `gear` run from 1/2 to 2 in
their logarithm; `slope` runs from 0.2 rad downhill to 0.2 rad uphill, along x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

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


def at_point(params: Any, names: tuple[str, ...], point: Float[Array, "d"]) -> Any:
    """`params` in the context of a point of the unit box, a coordinate a name.

    Raises ValueError for a name that is no context, with those there are, and for another number of coordinates.
    """
    if len(names) != point.shape[-1]:
        raise ValueError(f"{len(names)} contexts {list(names)} for a point of {point.shape[-1]} coordinates.")
    for name, x in zip(names, point, strict=True):
        if name not in CONTEXTS:
            raise ValueError(f"{name!r} is no context; there are {', '.join(CONTEXTS)}.")
        params = CONTEXTS[name](params, x)
    return params
