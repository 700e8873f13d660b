"""Where the biped's limbs touch the ground and the stumps."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.math import fence

from ..planar.scalars import Pair, dot
from .body import SHANK_RADIUS, THIGH_RADIUS, Limbs, Track


class Touch(NamedTuple):
    """Contacts of each leg's limbs: (2, 2, 4), on the ground, on a face, on two corners."""

    distance: Any  # m
    normal: Pair  # which way the track pushes
    center: Pair  # m, the point of the limb's axis that is nearest


RADII = np.array([THIGH_RADIUS, SHANK_RADIUS])


def window(
    track: Track, low: Float[Array, "*limbs"], count: int
) -> tuple[Float[Array, "*limbs {count}"], Float[Array, "*limbs {count}"]]:
    """Left edges and heights [m] of the first stumps that end beyond `low` [m]."""
    pitch = track.spacing + track.width
    first = jnp.floor((low - track.start - track.width) / pitch) + 1
    number = first[..., None] + jnp.arange(count, dtype=first.dtype)
    index = number.astype(jnp.int32)
    heights = track.heights[jnp.clip(index, 0, track.heights.shape[0] - 1)]
    return track.start + number * pitch, jnp.where(index >= 0, heights, -1.0).astype(heights.dtype)


def on_face(point: Pair, radii: Float[Array, "2"], track: Track) -> tuple[Any, Pair]:
    """Distance and normal of discs to the top or side of a stump, the deeper of two: a disc is narrower than a stump.

    Where a corner is nearest, the face is far.
    """
    left, height = window(track, point[0] - radii, 2)
    x, z = point[0][..., None], point[1][..., None]
    outside, above = jnp.maximum(left - x, x - left - track.width), z - height
    side = outside > above
    distance = jnp.where((outside > 0) & (above > 0), 2.0, jnp.where(side, outside, above))
    push = jnp.where(side, jnp.where(x > left + 0.5 * track.width, 1.0, -1.0), 0.0).astype(x.dtype)
    near = distance[..., 1] < distance[..., 0]
    distance, push = (jnp.where(near, a[..., 1], a[..., 0]) for a in (distance, push))
    return distance - radii, (push, 1 - jnp.abs(push))


def on_corners(limbs: Limbs, radii: Float[Array, "2"], track: Track) -> list[tuple[Any, Pair, Pair]]:
    """Distance, normal and center of the two deepest contacts of each limb with upper corners of stumps."""
    start, end = limbs
    way = end[0] - start[0], end[1] - start[1]
    inverse = 1 / dot(way, way)
    # Four stumps are as many as a limb spans, for they and their gaps are 0.47 m.
    left, height = window(track, jnp.minimum(start[0], end[0]) - radii, 4)
    x, z = jnp.concatenate([left, left + track.width], -1), jnp.concatenate([height, height], -1)

    def nearest(x: Any, z: Any, start: Any, way: Any, inverse: Any) -> Pair:
        share = jnp.clip(((x - start[0]) * way[0] + (z - start[1]) * way[1]) * inverse, 0.0, 1.0)
        return start[0] + share * way[0], start[1] + share * way[1]

    center = nearest(x, z, *jax.tree.map(lambda leaf: leaf[..., None], (start, way, inverse)))
    square = fence((center[0] - x) ** 2 + (center[1] - z) ** 2)
    out = []
    for _ in range(2):
        chosen = jnp.argmin(square, -1)[..., None] == jnp.arange(8)
        corner = jnp.sum(jnp.where(chosen, x, 0.0), -1), jnp.sum(jnp.where(chosen, z, 0.0), -1)
        square = jnp.where(chosen, jnp.inf, square)
        center = nearest(*corner, start, way, inverse)
        away = center[0] - corner[0], center[1] - corner[1]
        far = jnp.sqrt(jnp.maximum(dot(away, away), 1e-12))
        out.append((far - radii, (away[0] / far, away[1] / far), center))
    return out


def touches(limbs: Limbs, track: Track) -> Touch:
    """All contacts."""
    end = limbs.end
    radii = jnp.asarray(RADII, end[0].dtype)
    flat = end[1] - radii, (jnp.zeros_like(end[1]), jnp.ones_like(end[1])), end
    found = flat, (*on_face(end, radii, track), end), *on_corners(limbs, radii, track)
    return Touch(*jax.tree.map(lambda *leaves: jnp.stack(leaves, -1), *fence(found)))
