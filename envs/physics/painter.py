"""A picture of a MuJoCo model, by casting a parallel ray a pixel: no window system, no graphics driver."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

SKY, GROUND = np.array([236, 240, 244.0]), (np.array([214, 219, 225.0]), np.array([196, 203, 211.0]))
TO_EYE = np.array([0.35, -1.0, 0.45]) / np.linalg.norm([0.35, -1.0, 0.45])
TO_LIGHT = np.array([0.2, -0.5, 1.0]) / np.linalg.norm([0.2, -0.5, 1.0])
TILE = 0.25
"""Of the ground's squares: a part of the picture's height."""

PLANE, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX = 0, 2, 3, 4, 5, 6  # mujoco.mjtGeom


def paint(model: Any, geom_xpos: np.ndarray, geom_xmat: np.ndarray, size: int = 320) -> np.ndarray:
    """`(size, size, 3)` bytes: the geoms of a `mujoco.MjModel` at these places (g, 3) and turns (g, 3, 3).

    Seen from beside and a little above, x to the right; the view follows what moves. Meshes are drawn as the boxes
    around them. Groups from 3 on, which MuJoCo hides, and what is transparent are left out.
    """
    places, turns = np.asarray(geom_xpos, float), np.asarray(geom_xmat, float).reshape(-1, 3, 3)
    seen = [i for i in range(model.ngeom) if model.geom_group[i] < 3 and _color(model, i)[3] > 0]
    solid = [i for i in seen if model.geom_type[i] != PLANE]
    moving = [i for i in solid if model.body_weldid[model.geom_bodyid[i]] != 0] or solid
    middle = places[moving].mean(0)
    # The model's own extent counts scenery; half of the picture must hold what moves, now.
    reach = max(np.linalg.norm(places[moving] - middle, axis=1) + np.minimum(model.geom_rbound[moving], 10.0))
    half = 1.25 * float(reach)

    pixels = 2 * size  # four rays a pixel
    right = np.cross([0.0, 0.0, 1.0], TO_EYE)
    right /= np.linalg.norm(right)
    up = np.cross(TO_EYE, right)
    across = half * (2 * (np.arange(pixels) + 0.5) / pixels - 1)
    origins = middle + across[None, :, None] * right - across[:, None, None] * up + 100 * half * TO_EYE

    nearest = np.full((pixels, pixels), np.inf)
    picture = np.broadcast_to(SKY, (pixels, pixels, 3)).copy()
    for i in seen:
        part = _window(model, i, (places[i] - middle) / half, right, up, half, pixels)
        rays = origins[part]
        far, normal = _hit(model, i, (rays - places[i]) @ turns[i], -TO_EYE @ turns[i])
        hit = far < nearest[part]
        nearest[part][hit] = far[hit]
        if model.geom_type[i] == PLANE:
            where = (rays[hit] - far[hit][:, None] * TO_EYE) / (2 * half * TILE)
            odd = np.floor(where[:, :2]).sum(1).astype(int) % 2
            picture[part][hit] = np.where(odd[:, None], *GROUND)
        else:
            light = 0.45 + 0.55 * np.clip(normal[hit] @ turns[i].T @ TO_LIGHT, 0, 1)
            picture[part][hit] = 255 * _color(model, i)[:3] * light[:, None]
    return picture.reshape(size, 2, size, 2, 3).mean((1, 3)).round().astype(np.uint8)


def paint_at(model: Any, qpos: np.ndarray, numbers: dict[str, Any], mocap_pos: np.ndarray | None = None) -> np.ndarray:
    """The picture of a `mujoco.MjModel` with these `numbers` of its own, of any names, at coordinates (q,), and (n, 3)
    of bodies that are placed from outside."""
    import mujoco

    model = copy.copy(model)
    if "geom_size" in numbers:  # the spheres around geoms, which the painter looks into, grow with them
        factors = np.asarray(numbers["geom_size"]) / np.where(model.geom_size > 0, model.geom_size, np.inf)
        model.geom_rbound[:] *= np.maximum(factors.max(1), np.where(model.geom_size[:, 0] > 0, 0.0, 1.0))
    for name in ("geom_size", "geom_pos", "body_pos", "jnt_pos", "qpos0"):
        if name in numbers:
            getattr(model, name)[:] = np.asarray(numbers[name])
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    if mocap_pos is not None:
        data.mocap_pos[:] = mocap_pos
    mujoco.mj_kinematics(model, data)
    return paint(model, data.geom_xpos, data.geom_xmat)


def _window(
    model: Any, i: int, place: np.ndarray, right: np.ndarray, up: np.ndarray, half: float, pixels: int
) -> tuple[slice, slice]:
    """Rows and columns in which a geom may be seen."""
    if model.geom_type[i] == PLANE:
        return slice(None), slice(None)
    ends = np.array([-1.0, 1.0]) * model.geom_rbound[i] / half
    row, column = ((pixels * (0.5 + 0.5 * (x + ends))).clip(0, pixels) for x in (-place @ up, place @ right))
    return slice(int(row[0]), int(row[1]) + 1), slice(int(column[0]), int(column[1]) + 1)


def _color(model: Any, i: int) -> np.ndarray:
    material = model.geom_matid[i]
    return np.asarray(model.geom_rgba[i] if material < 0 else model.mat_rgba[material], float)


def _hit(model: Any, i: int, origin: np.ndarray, along: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far a geom is along rays in its own frame, infinite where they miss, and its normals there (h, w, 3)."""
    kind, size = model.geom_type[i], model.geom_size[i]
    if kind == PLANE:
        far = -origin[..., 2] / along[2] if abs(along[2]) > 1e-9 else np.full(origin.shape[:-1], np.inf)
        place = np.abs(origin + far[..., None] * along) if np.isfinite(far).all() else origin
        inside = ((size[:2] == 0) | (place[..., :2] <= size[:2])).all(-1)
        return np.where(inside & (far > 0), far, np.inf), np.broadcast_to([0.0, 0.0, 1.0], origin.shape)
    if kind in (SPHERE, ELLIPSOID):
        return _ball(origin, along, size if kind == ELLIPSOID else np.full(3, size[0]))
    if kind == CAPSULE:
        ends = [_ball(origin - [0, 0, end], along, np.full(3, size[0])) for end in (size[1], -size[1])]
        return _first(_side(origin, along, size[0], size[1]), *ends)
    if kind == CYLINDER:
        caps = []
        for end in (size[1], -size[1]):
            far, normal = _slab(origin, along, end)
            place = origin + np.where(np.isfinite(far), far, 0.0)[..., None] * along
            caps.append((np.where((place[..., :2] ** 2).sum(-1) <= size[0] ** 2, far, np.inf), normal))
        return _first(_side(origin, along, size[0], size[1]), *caps)
    middle, half = (0.0, size) if kind == BOX else (model.geom_aabb[i, :3], model.geom_aabb[i, 3:])
    return _box(origin - middle, along, half)


def _first(*hits: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    far, normal = hits[0]
    for other_far, other_normal in hits[1:]:
        nearer = other_far < far
        far, normal = np.where(nearer, other_far, far), np.where(nearer[..., None], other_normal, normal)
    return far, normal


def _entry(a: Any, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The smaller root of a t^2 + 2 b t + c, infinite where there is none."""
    inside = b**2 - a * c
    return np.where(inside > 0, (-b - np.sqrt(np.maximum(inside, 0))) / max(a, 1e-12), np.inf)


def _ball(origin: np.ndarray, along: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    o, d = origin / size, along / size
    far = _entry(d @ d, o @ d, (o**2).sum(-1) - 1)
    normal = (o + np.where(np.isfinite(far), far, 0.0)[..., None] * d) / size
    return far, normal / np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-12)


def _side(origin: np.ndarray, along: np.ndarray, radius: float, half: float) -> tuple[np.ndarray, np.ndarray]:
    """Of a cylinder along z."""
    o, d = origin[..., :2], along[:2]
    far = _entry(d @ d, o @ d, (o**2).sum(-1) - radius**2)
    place = origin + np.where(np.isfinite(far), far, 0.0)[..., None] * along
    normal = np.concatenate([place[..., :2] / radius, np.zeros_like(place[..., :1])], -1)
    return np.where(np.abs(place[..., 2]) <= half, far, np.inf), normal


def _slab(origin: np.ndarray, along: np.ndarray, height: float) -> tuple[np.ndarray, np.ndarray]:
    """Of the plane z = height."""
    far = (height - origin[..., 2]) / along[2] if abs(along[2]) > 1e-9 else np.full(origin.shape[:-1], np.inf)
    return far, np.broadcast_to([0.0, 0.0, np.sign(height)], origin.shape)


def _box(origin: np.ndarray, along: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    safe = np.where(np.abs(along) < 1e-9, 1e-9, along)
    enter, leave = (-np.sign(safe) * half - origin) / safe, (np.sign(safe) * half - origin) / safe
    far, axis = enter.max(-1), enter.argmax(-1)
    normal = -np.sign(safe) * np.eye(3)[axis]
    return np.where(far < leave.min(-1), far, np.inf), normal
