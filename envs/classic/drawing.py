"""Pictures of the classic-control states, shared within the family. Host only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import UInt8

from jaxrl.canvas import BLUE, GREEN, GREY, INK, ORANGE, PALE, RED, WHITE, Canvas, Point

Picture = UInt8[np.ndarray, "height width 3"]


def along(start: Point, angle: float, length: float) -> Point:
    """The point `length` from `start` in the direction `angle` [rad, counter-clockwise from +x]."""
    return start[0] + length * math.cos(angle), start[1] + length * math.sin(angle)


def draw_cart_pole(state: Any, params: Any, falls: bool = True) -> Picture:
    """Track with its ends, cart, pole, and the angle beyond which it has fallen unless it may (`falls=False`)."""
    x, theta, x_max, pole = float(state.x), float(state.theta), float(params.x_max), 2 * float(params.length)
    if math.isinf(x_max):  # no end in sight
        x_max = max(2.4, abs(x))
    canvas = Canvas(600, 400, span=2.4 * x_max, center=(0.0, 0.35))
    canvas.line([(-x_max, -0.12), (x_max, -0.12)], 0.02, GREY)
    for end in (-x_max, x_max):
        canvas.line([(end, -0.24), (end, 0.0)], 0.04, RED)
    axle = (x, 0.12)
    if falls and math.isfinite(params.theta_max):
        for side in (-1, 1):
            canvas.dashed(
                axle, along(axle, math.pi / 2 + side * float(params.theta_max), 1.15 * pole), 0.01, GREY, 0.04
            )
    canvas.rectangle((x - 0.25, -0.06), (x + 0.25, 0.12), INK)
    for wheel in (-0.15, 0.15):
        canvas.circle((x + wheel, -0.06), 0.05, GREY)
    canvas.line([axle, along(axle, math.pi / 2 - theta, pole)], 0.08, ORANGE)  # clockwise positive
    canvas.circle(axle, 0.035, WHITE)
    canvas.caption(f"t = {int(state.time)}   x = {x:+.2f} m   theta = {math.degrees(theta):+.1f} deg")
    return canvas.image()


def draw_pendulum(state: Any, params: Any) -> Picture:
    """The rod, its axle, and an arrow as long as the speed."""
    theta, theta_dot, length = float(state.theta), float(state.theta_dot), float(params.length)
    canvas = Canvas(400, 400, span=2.8 * length)
    canvas.circle((0.0, 0.0), length, PALE, outline=0.012 * length)
    canvas.dashed((0.0, 0.0), (0.0, 1.15 * length), 0.012 * length, GREY, 0.04 * length)
    angle = math.pi / 2 + theta
    canvas.line([(0.0, 0.0), along((0.0, 0.0), angle, length)], 0.14 * length, ORANGE)
    canvas.circle((0.0, 0.0), 0.05 * length, INK)
    sweep = 0.15 * theta_dot
    if abs(sweep) > 0.02:
        canvas.arc((0.0, 0.0), 1.18 * length, angle, sweep, 0.025 * length, BLUE)
    angle = math.degrees(math.remainder(theta, 2 * math.pi))
    canvas.caption(f"t = {int(state.time)}   theta = {angle:+.0f} deg   {theta_dot:+.2f} rad/s")
    return canvas.image()


def draw_hanging_arm(state: Any, params: Any, goal_height: float | None = None) -> Picture:
    """Two links from a shoulder in the middle, and the line to reach or else the point at the top."""
    length_1, length_2 = float(params.length_1), float(params.length_2)
    theta_1, theta_2 = float(state.theta_1), float(state.theta_2)
    reach = length_1 + length_2
    canvas = Canvas(400, 400, span=2.3 * reach)
    canvas.circle((0.0, 0.0), reach, PALE, outline=0.008 * reach)
    if goal_height is None:
        canvas.circle((0.0, reach), 0.04 * reach, GREEN, outline=0.012 * reach)
    else:
        canvas.dashed((-1.15 * reach, goal_height), (1.15 * reach, goal_height), 0.012 * reach, GREEN, 0.04 * reach)
    elbow = along((0.0, 0.0), theta_1 - math.pi / 2, length_1)
    tip = along(elbow, theta_1 + theta_2 - math.pi / 2, length_2)
    draw_links(canvas, elbow, tip, 0.06 * reach)
    canvas.caption(f"t = {int(state.time)}   {float(state.theta_1_dot):+.1f}, {float(state.theta_2_dot):+.1f} rad/s")
    return canvas.image()


def draw_links(canvas: Canvas, elbow: Point, tip: Point, width: float) -> None:
    """Two links from the origin over `elbow` to `tip`."""
    canvas.line([(0.0, 0.0), elbow], width, ORANGE)
    canvas.line([elbow, tip], width, BLUE)
    for joint in ((0.0, 0.0), elbow):
        canvas.circle(joint, 0.4 * width, INK)


def draw_mountain_car(state: Any, params: Any) -> Picture:
    """The road, the flag, and the car on the slope with an arrow as long as its speed."""
    position, velocity = float(state.position), float(state.velocity)
    low, high, goal = float(params.min_position), float(params.max_position), float(params.goal_position)

    def road(x: Any) -> Any:
        return 0.45 * np.sin(3 * x) + 0.55  # whose slope is the reference's cos(3 x) up to a factor

    canvas = Canvas(600, 400, span=high - low, center=((low + high) / 2, 0.6))
    xs = np.linspace(low, high, 160)
    surface = [(float(x), float(road(x))) for x in xs]
    canvas.polygon([(low, -1.0), *surface, (high, -1.0)], PALE)
    canvas.line(surface, 0.01, GREY)
    flag = (goal, float(road(goal)))
    pole = (goal, flag[1] + 0.16)
    canvas.line([flag, pole], 0.008, INK)
    canvas.polygon([pole, (goal, pole[1] - 0.06), (goal + 0.08, pole[1] - 0.03)], GREEN)

    slope = math.atan(1.35 * math.cos(3 * position))

    def on_car(forward: float, up: float) -> Point:
        return along(along((position, float(road(position))), slope, forward), slope + math.pi / 2, up)

    canvas.polygon([on_car(-0.06, 0.025), on_car(0.06, 0.025), on_car(0.05, 0.08), on_car(-0.05, 0.08)], INK)
    for wheel in (-0.035, 0.035):
        canvas.circle(on_car(wheel, 0.022), 0.02, ORANGE)
    canvas.arrow(on_car(0.0, 0.12), on_car(4 * velocity, 0.12), 0.01, BLUE)
    canvas.caption(f"t = {int(state.time)}   position = {position:+.3f}   velocity = {velocity:+.4f}")
    return canvas.image()


def draw_point_mass(state: Any, params: Any) -> Picture:
    """The arena, the goal, and the mass with its velocity."""
    arena, position = float(params.arena), (float(state.x), float(state.y))
    canvas = Canvas(400, 400, span=2.1 * arena, background=PALE)
    canvas.rectangle((-arena, -arena), (arena, arena), WHITE)
    goal = (float(state.goal_x), float(state.goal_y))
    canvas.circle(goal, 0.05 * arena, GREEN, outline=0.012 * arena)
    canvas.circle(goal, 0.012 * arena, GREEN)
    canvas.circle(position, 0.035 * arena, ORANGE)
    canvas.arrow(
        position, (position[0] + float(state.x_dot) / 2, position[1] + float(state.y_dot) / 2), 0.012 * arena, BLUE
    )
    canvas.caption(f"t = {int(state.time)}   speed = {math.hypot(float(state.x_dot), float(state.y_dot)):.2f} m/s")
    return canvas.image()


def draw_reacher(state: Any, params: Any, success_radius: float) -> Picture:
    """The table from above: the disc of targets, the target with the radius that counts as success, and the arm."""
    length_1, length_2 = float(params.length_1), float(params.length_2)
    theta_1, theta_2 = float(state.theta_1), float(state.theta_2)
    reach = length_1 + length_2
    canvas = Canvas(400, 400, span=2.3 * reach)
    canvas.circle((0.0, 0.0), float(params.target_radius), PALE)
    target = (float(state.target_x), float(state.target_y))
    canvas.circle(target, success_radius, GREEN, outline=0.01 * reach)
    elbow = along((0.0, 0.0), theta_1, length_1)
    tip = along(elbow, theta_1 + theta_2, length_2)
    draw_links(canvas, elbow, tip, 0.07 * reach)
    canvas.circle(tip, 0.035 * reach, RED)
    canvas.caption(f"t = {int(state.time)}   distance = {100 * math.dist(tip, target):.1f} cm")
    return canvas.image()
