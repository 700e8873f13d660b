"""Pictures of a walker on its track, of planar models and of a point maze."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.canvas import BLUE, GREEN, GREY, INK, ORANGE, PALE, Canvas

from . import biped


def draw_walker(state: Any) -> np.ndarray:
    """`state` of a StumpWalker, and the track from 4 m behind it to 8 m ahead."""
    q = np.asarray(state.qpos, np.float64)
    heights = np.asarray(state.track.heights)
    spacing, start, width = (float(x) for x in (state.track.spacing, state.track.start, state.track.width))
    low, high = q[0] - 4, q[0] + 8
    canvas = Canvas(600, 250, 12.0, (q[0] + 2, 1.9))
    canvas.rectangle((low, 0.0), (high, -2.0), PALE)
    canvas.line([(low, 0.0), (high, 0.0)], 0.04, GREY)
    for n, height in enumerate(heights):
        left = start + n * (spacing + width)
        if height > 0 and low - width < left < high:
            canvas.rectangle((left, 0.0), (left + width, float(height)), GREY)

    def end(point: tuple[float, float], angle: float, length: float) -> tuple[float, float]:
        return point[0] + length * np.sin(angle), point[1] - length * np.cos(angle)

    def leg(n: int, color: tuple[int, int, int]) -> None:
        hip = end((q[0], q[1]), q[2], biped.HIP)
        thigh = q[2] + q[3 + 2 * n]
        knee = end(hip, thigh, biped.LEG)
        foot = end(knee, thigh + q[4 + 2 * n], biped.FOOT)
        canvas.line([hip, knee], 2 * biped.THIGH_RADIUS, color)
        canvas.line([knee, foot], 2 * biped.SHANK_RADIUS, color)

    leg(0, GREY)
    cosine, sine = np.cos(q[2]), np.sin(q[2])
    canvas.polygon([(q[0] + cosine * x - sine * z, q[1] + sine * x + cosine * z) for x, z in biped.HULL], BLUE)
    leg(1, ORANGE)
    for x in np.arange(np.ceil(low / 5) * 5, high, 5):
        canvas.text((x, -0.3), f"{x:.0f} m", INK, 11)
    return canvas.image()


def draw_model(compiled: Any, plan: Any, qpos: np.ndarray, model: Any) -> np.ndarray:
    """A planar model in the state `qpos`: capsules, spheres and level boxes, of those that run what is about them."""
    import mujoco

    from . import planar

    at = jax.tree.map(float, planar.frames(plan, model, list(jnp.asarray(qpos))))
    links = {link.body: n for n, link in enumerate(plan.links)}
    boxes = compiled.geom_type == mujoco.mjtGeom.mjGEOM_BOX
    shapes = []
    for geom in range(compiled.ngeom):
        if compiled.geom_bodyid[geom] in links:
            link, turn = links[compiled.geom_bodyid[geom]], np.zeros(9)
            mujoco.mju_quat2Mat(turn, compiled.geom_quat[geom])
            long = compiled.geom_type[geom] == mujoco.mjtGeom.mjGEOM_CAPSULE
            way = tuple(turn.reshape(3, 3)[list(plan.axes), 2].tolist()) if long else None
            ends = planar.ends(plan, model, at, planar.Round(geom, link, way))
            ends = [tuple(map(float, planar.plus(at.origins[link], end))) for end in ends]
            size = np.asarray(model["geom_size"][geom], float).tolist()
            shapes.append((ends, size, link, bool(boxes[geom])))
    level = plan.axes == (0, 1)
    runs = bool(plan.touches)
    center = (float(at.origins[0][0]), 0.9) if runs else (0.0, 0.0 if level else 0.3)
    span = 5.0 if runs else (0.6 if level else 3.2)
    rail = 0.0
    if not runs and not level and boxes.any():  # what hangs must be seen, too
        rail = float(at.origins[0][1])
        center, span = (0.0, rail), 4.0
    canvas = Canvas(600, 360, span, center)
    if runs:
        low, high = center[0] - span / 2, center[0] + span / 2
        canvas.rectangle((low, 0.0), (high, -2.0), PALE)
        canvas.line([(low, 0.0), (high, 0.0)], 0.02, GREY)
        for x in np.arange(np.ceil(low), high):
            canvas.line([(x, 0.0), (x, -0.06)], 0.015, GREY)
            canvas.text((x, -0.15), f"{x:.0f} m", INK, 11)
    elif not level:
        reach = 1.8 if rail else 1.0
        canvas.line([(-reach, rail), (reach, rail)], 0.02, GREY)
    shown = len(plan.links)
    for ends, (radius, _, tall), link, box in shapes:
        color = ORANGE if "left" in compiled.body(plan.links[link].body).name or link == shown - 1 else BLUE
        if box:
            (x, z), *_ = ends
            canvas.rectangle((x - radius, z - tall), (x + radius, z + tall), color)
            continue
        canvas.line(ends, 2 * radius, color)
        for end in ends:
            canvas.circle(end, radius, color)
    return canvas.image()


def draw_point_maze(state: Any, params: Any, cell: float, radius: float) -> np.ndarray:
    """The maze from above, portals and exits, the goal's radius and the ball; `cell` and `radius` in metres."""
    walls = np.asarray(params.walls)
    rows, columns = walls.shape
    width, height = cell * columns, cell * rows
    canvas = Canvas(600, round(600 * height / width), width, (width / 2 - 1.5 * cell, height / 2 - 1.5 * cell))
    for row, column in np.argwhere(walls).tolist():
        canvas.rectangle((cell * (column - 1.5), cell * (row - 1.5)), (cell * (column - 0.5), cell * (row - 0.5)), GREY)
    for places, color in ((params.portals, BLUE), (params.exits, PALE)):
        for x, y in np.asarray(places).tolist():
            canvas.circle((x, y), radius, color)
    goal = (float(state.goal_x), float(state.goal_y))
    canvas.circle(goal, float(params.goal_radius), GREEN, outline=0.15)
    canvas.circle(goal, 0.2, GREEN)
    canvas.circle((float(state.x), float(state.y)), radius, ORANGE)
    canvas.caption(f"t = {int(state.time)}")
    return canvas.image()
