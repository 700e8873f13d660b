"""Curling-v0: push a ball with an arm of two joints so that it lies in one of two areas when time is up.

The task of Paolo, Coninx, Doncieux and Laflaquiere (2021), "Sparse reward exploration via novelty search and emitters",
arXiv:2102.03140 (SERENE 83bc38a), on equations of this file instead of Box2D's. A step is two substeps of h = dt / 2.

The arm is moved, not driven: a joint turns at its action times `joint_speed`, up to `most_angle`, and stays where the
elbow or the tip would go into a wall. The ball is a disc of unit mass, whose drag has a closed form,

    v' = v exp(-damping h)        x' = x + v (1 - exp(-damping h)) / damping        spin' = spin exp(-spin_damping h)

A wall, or a link (a capsule), that the ball is within by `depth`, with the normal n and the speed u of its surface,
gives it an impulse of `push` along n and of `rub` across it, Coulomb's friction up to rolling:

    push = max(-(1 + e) (v - u).n, 0)        rub = -slip / 3, at most friction push        x' = x + (1 + e) depth n

slip is the speed of the two surfaces across n; e = `restitution`, or 0 below an approach of `bounce_speed`. At a wall
x' is exact, as drag makes the speed fall in proportion to the way. A ball that finds no place between arm and walls
stops, and stops the arm. It is at most (radius + half_width) / dt fast, so it cannot pass through a link in a substep.

| observation | range |
|---|---|
| place of the ball [m] | the table without a rim of `radius` |
| angle of the shoulder from straight up, of the elbow from the first link [rad] | +-most_angle |
| speed of both [rad/s] | +-joint_speed |

Action: speeds of shoulder and elbow in [-1, 1], clipped. Reward: in the last of `max_steps` alone, 1 - d / radius of
the first area that the ball is in, else 0. `info["area"]` is that area's number, from 1; 0 for none. Deterministic.

Sizes, speeds, damping, friction, restitution, areas and start are the authors'. What differs from their Box2D world:
its links have masses and motors of 100 N m, which a ball of 0.07 kg hardly slows; they are rectangles, the second from
0.1 m before the elbow; it steps once in 1/60 s with damping by 1 / (1 + damping dt). No episode was compared with it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.canvas import BLUE, GREEN, INK, ORANGE, PALE, Canvas
from jaxrl.environment import Environment, Hints, Transition, pytree, require_non_negative, require_positive
from jaxrl.math import sincos
from jaxrl.spaces import Box
from jaxrl.telemetry import Curve, Plane, Quantity

from .redundant_arm import area_and_worth

SUBSTEPS = 2
PASSES = 3  # over both links and the walls: a ball in a corner is pushed out of one into the other
TOLERANCE = 1e-4  # m that a ball may be within a link
NEAR = 1e-6  # m: no direction leads from a link's middle line to what is on it

Number = Float[Array, "..."]
"""Of one table; all is elementwise, so that `validate` may be given a batch of params."""


def _leaf(values: Any) -> Any:
    return dataclasses.field(default_factory=lambda: np.asarray(values, float))


@pytree
class Params:
    """The middle of the table is (0, 0)."""

    max_steps: jax.Array = 500
    dt: jax.Array = 1 / 60  # s
    table: jax.Array = 1.45  # m from the middle to a wall
    root: jax.Array = -1.5  # m, y of the shoulder, at x = 0
    lengths: jax.Array = _leaf((1.0, 0.85))  # (2,) m, of the links' middle lines
    half_width: jax.Array = 0.05  # m, of a link
    most_angle: jax.Array = _leaf((0.4 * math.pi, 0.9 * math.pi))  # (2,) rad
    joint_speed: jax.Array = 1.0  # rad/s of an action of 1
    radius: jax.Array = 0.15  # m, of the ball
    damping: jax.Array = 1.1  # 1/s, of the ball's speed
    spin_damping: jax.Array = 2.0  # 1/s
    restitution: jax.Array = 0.9
    bounce_speed: jax.Array = 1.0  # m/s of approach below which nothing bounces
    link_friction: jax.Array = 0.9
    wall_friction: jax.Array = 0.9**0.5 * 0.2**0.5  # Box2D's mean of the ball's and of a wall's
    start: jax.Array = _leaf((-0.5, 0.2, 0.0, 0.0))  # (4,) ball's x, y [m], angles [rad]
    areas: jax.Array = _leaf(((0.8, 0.8, 0.4), (0.8, -0.8, 0.2)))  # (G, 3) x, y, radius


@pytree
class Ball:
    x: jax.Array  # m
    y: jax.Array
    vx: jax.Array  # m/s
    vy: jax.Array
    spin: jax.Array  # rad/s, counter-clockwise


@pytree
class Arm:
    angle_1: jax.Array  # rad, counter-clockwise from straight up
    angle_2: jax.Array  # rad, counter-clockwise from the first link
    speed_1: jax.Array  # rad/s, of the last substep
    speed_2: jax.Array


@pytree
class State:
    time: jax.Array  # steps since reset
    ball: Ball
    arm: Arm


@pytree
class Link:
    x: jax.Array  # m, where it begins
    y: jax.Array
    along_x: jax.Array  # m, from there to its end
    along_y: jax.Array
    vx: jax.Array  # m/s, of its beginning
    vy: jax.Array
    rate: jax.Array  # rad/s


def links(arm: Arm, params: Params) -> tuple[Link, Link]:
    """The middle lines of both links, and how they move."""
    (sin_1, cos_1), (sin_2, cos_2) = sincos(arm.angle_1), sincos(arm.angle_1 + arm.angle_2)
    first, second = params.lengths[..., 0], params.lengths[..., 1]
    x, y = -first * sin_1, first * cos_1
    zero = jnp.zeros_like(x)
    upper = Link(zero, zero + params.root, x, y, zero, zero, arm.speed_1)
    elbow = (x, y + params.root, -second * sin_2, second * cos_2)
    return upper, Link(*elbow, -arm.speed_1 * y, arm.speed_1 * x, arm.speed_1 + arm.speed_2)


def from_link(ball: Ball, link: Link) -> tuple[Number, Number, Number]:
    """From the nearest point of a link's middle line to the ball's centre: the direction and the distance."""
    x, y = ball.x - link.x, ball.y - link.y
    share = (x * link.along_x + y * link.along_y) / (link.along_x**2 + link.along_y**2)
    share = jnp.clip(share, 0, 1)
    x, y = x - share * link.along_x, y - share * link.along_y
    distance = jnp.sqrt(jnp.maximum(x * x + y * y, NEAR**2))
    return x / distance, y / distance, distance


def hit(
    ball: Ball, depth: Number, normal: tuple[Number, Number], surface: tuple[Number, Number], friction: Any, params: Any
) -> Ball:
    """The ball after a contact with what it is `depth` within, whose surface moves; as it was where that is below 0."""
    (nx, ny), within = normal, jnp.maximum(depth, 0)
    vx, vy = ball.vx - surface[0], ball.vy - surface[1]
    approach = jnp.where(depth > 0, jnp.maximum(-(vx * nx + vy * ny), 0), 0)
    slip = vy * nx - vx * ny - params.radius * ball.spin
    bounce = jnp.where(approach > params.bounce_speed, params.restitution, 0)
    push = (1 + bounce) * approach
    rub = jnp.clip(-slip / 3, -friction * push, friction * push)  # a disc's rim is a third as heavy: it turns, too
    return Ball(
        ball.x + (1 + bounce) * within * nx,
        ball.y + (1 + bounce) * within * ny,
        ball.vx + push * nx - rub * ny,
        ball.vy + push * ny + rub * nx,
        ball.spin - 2 * rub / params.radius,
    )


def off_link(ball: Ball, link: Link, params: Params) -> Ball:
    nx, ny, distance = from_link(ball, link)
    touch = distance - params.half_width  # of the ball's centre from the link's surface
    x, y = ball.x - touch * nx - link.x, ball.y - touch * ny - link.y
    surface = link.vx - link.rate * y, link.vy + link.rate * x
    return hit(ball, params.radius - touch, (nx, ny), surface, params.link_friction, params)


def off_walls(ball: Ball, params: Params) -> Ball:
    far = params.table - params.radius
    still = jnp.zeros_like(ball.x)
    side_x, side_y = jnp.where(ball.x > 0, -1.0, 1.0), jnp.where(ball.y > 0, -1.0, 1.0)
    side_x, side_y = side_x.astype(ball.x.dtype), side_y.astype(ball.x.dtype)
    ball = hit(ball, jnp.abs(ball.x) - far, (side_x, still), (still, still), params.wall_friction, params)
    ball = hit(ball, jnp.abs(ball.y) - far, (still, side_y), (still, still), params.wall_friction, params)
    return ball.replace(x=jnp.clip(ball.x, -far, far), y=jnp.clip(ball.y, -far, far))


def rolled(ball: Ball, h: Number, params: Params) -> Ball:
    """The ball `h` later, if nothing is in its way."""
    most = (params.radius + params.half_width) / (SUBSTEPS * h)
    speed = jnp.sqrt(jnp.maximum(ball.vx**2 + ball.vy**2, NEAR**2))
    slower = jnp.minimum(most / speed, 1)
    vx, vy = ball.vx * slower, ball.vy * slower
    left, way = jnp.exp(-params.damping * h), -jnp.expm1(-params.damping * h) / params.damping
    spin = ball.spin * jnp.exp(-params.spin_damping * h)
    return Ball(ball.x + vx * way, ball.y + vy * way, vx * left, vy * left, spin)


def settled(ball: Ball, arm: Arm, params: Params) -> tuple[Ball, Bool[Array, "..."]]:
    """The ball out of the links and walls that it is within, and whether there was a place for it."""
    parts = links(arm, params)

    def once(ball: Ball, _: None) -> tuple[Ball, None]:
        for link in reversed(parts):
            ball = off_link(ball, link, params)
        return off_walls(ball, params), None

    ball = jax.lax.scan(once, ball, None, length=PASSES)[0]  # a loop, as written out it takes a minute to compile
    nearest = jnp.minimum(*(from_link(ball, link)[2] for link in parts))
    return ball, nearest >= params.radius + params.half_width - TOLERANCE


def among_walls(angle_1: Number, angle_2: Number, params: Params) -> Bool[Array, "..."]:
    """Whether elbow and tip, and with them the links above the lower wall, touch none."""
    still = jnp.zeros_like(angle_1)
    lower = links(Arm(angle_1, angle_2, still, still), params)[1]
    tip_x, tip_y = lower.x + lower.along_x, lower.y + lower.along_y
    far = jnp.maximum(jnp.maximum(jnp.abs(lower.x), jnp.abs(lower.y)), jnp.maximum(jnp.abs(tip_x), jnp.abs(tip_y)))
    return far <= params.table - params.half_width


def moved(arm: Arm, speed_1: Number, speed_2: Number, h: Number, params: Params) -> Arm:
    """The arm `h` later, if no ball is in its way: one joint after the other."""
    most_1, most_2 = params.most_angle[..., 0], params.most_angle[..., 1]
    angle_1 = jnp.clip(arm.angle_1 + h * speed_1, -most_1, most_1)
    angle_1 = jnp.where(among_walls(angle_1, arm.angle_2, params), angle_1, arm.angle_1)
    angle_2 = jnp.clip(arm.angle_2 + h * speed_2, -most_2, most_2)
    angle_2 = jnp.where(among_walls(angle_1, angle_2, params), angle_2, arm.angle_2)
    most = params.joint_speed
    speeds = (jnp.clip(turned / h, -most, most) for turned in (angle_1 - arm.angle_1, angle_2 - arm.angle_2))
    return Arm(angle_1, angle_2, *speeds)


def dynamics(state: State, action: Float[Array, "2"], params: Params) -> State:
    """The state a step later; its clock is not moved."""
    speed_1, speed_2 = action[0] * params.joint_speed, action[1] * params.joint_speed
    h, still = params.dt / SUBSTEPS, jnp.zeros_like(state.ball.x)

    def substep(carry: tuple[Ball, Arm], _: None) -> tuple[tuple[Ball, Arm], None]:
        ball, arm = carry
        went = moved(arm, speed_1, speed_2, h, params)
        pushed, fits = settled(rolled(ball, h, params), went, params)
        held = Ball(ball.x, ball.y, still, still, still), Arm(arm.angle_1, arm.angle_2, still, still)
        return jax.tree.map(lambda a, b: jnp.where(fits, a, b), (pushed, went), held), None

    ball, arm = jax.lax.scan(substep, (state.ball, state.arm), None, length=SUBSTEPS)[0]
    return state.replace(ball=ball, arm=arm)


@dataclasses.dataclass(frozen=True)
class Curling(Environment):
    id: str = dataclasses.field(default="Curling-v0", kw_only=True)

    Params = Params
    hints = Hints(deterministic=True, reset="dense")
    observation_names = (
        *("ball x [m]", "ball y [m]", "shoulder [rad]", "elbow [rad]"),
        *("shoulder_dot [rad/s]", "elbow_dot [rad/s]"),
    )
    action_names = ("shoulder, 1 is joint_speed", "elbow, 1 is joint_speed")

    def initial(self, key: Array, params: Params) -> State:
        x, y, angle_1, angle_2 = params.start
        still = jnp.zeros_like(x)
        return State(jnp.int32(0), Ball(x, y, still, still, still), Arm(angle_1, angle_2, still, still))

    def transition(self, key: Array, state: State, action: Float[Array, "2"], params: Params) -> Transition:
        after = dynamics(state, jnp.clip(action, -1, 1).astype(state.ball.x.dtype), params)
        area, worth = area_and_worth(after.ball.x, after.ball.y, params.areas)
        reward = jnp.where(state.time + 1 >= params.max_steps, worth, 0)
        return Transition(after, reward, jnp.bool_(False), jnp.bool_(False), {"area": area})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "6"]:
        arm = state.arm
        return jnp.stack([state.ball.x, state.ball.y, arm.angle_1, arm.angle_2, arm.speed_1, arm.speed_2])

    def observation_space(self, params: Params) -> Box:
        far, most, speed = map(jnp.asarray, (params.table - params.radius, params.most_angle, params.joint_speed))
        high = jnp.stack([far, far, most[..., 0], most[..., 1], speed, speed], -1)
        return Box(-high, high, (6,))

    def action_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (2,))

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        far, ball = params.table - params.radius, state.ball
        return {"ball x": Quantity(ball.x, low=-far, high=far), "ball y": Quantity(ball.y, low=-far, high=far)}

    def planes(self, telemetry: dict[str, Quantity], params: Params) -> list[Plane]:
        areas = np.asarray(params.areas, float)
        curves = [Curve("ball", telemetry["ball x"].value, telemetry["ball y"].value, "path")]
        curves.append(Curve("areas", areas[:, 0], areas[:, 1], "dots"))
        return [Plane("The table from above", "x", "y", curves, equal=True)]

    def validate(self, params: Params) -> None:
        require_positive(self, params, "dt", "table", "lengths", "half_width", "most_angle", "joint_speed", "radius")
        require_positive(self, params, "damping")
        require_non_negative(self, params, "spin_damping", "bounce_speed", "link_friction", "wall_friction")
        for name, columns in (("lengths", 2), ("most_angle", 2), ("start", 4), ("areas", 3)):
            if np.shape(getattr(params, name))[-1:] != (columns,):
                raise ValueError(f"{self.id}: {name} has shape {np.shape(getattr(params, name))}: (..., {columns}).")
        if not np.all(np.asarray(params.areas)[..., 2] > 0):
            raise ValueError(f"{self.id}: areas: a radius of {np.asarray(params.areas)[..., 2]} must be positive.")
        bounce = np.asarray(params.restitution)
        if not np.all((bounce >= 0) & (bounce <= 1)):
            raise ValueError(f"{self.id}: restitution={bounce} must be in [0, 1]: a contact makes no energy.")
        first, second = np.moveaxis(np.asarray(params.lengths), -1, 0)
        step = np.asarray(params.joint_speed) * (first + 2 * second) * np.asarray(params.dt) / SUBSTEPS
        if not np.all(step < (np.asarray(params.radius) + np.asarray(params.half_width)) / 2):
            raise ValueError(
                f"{self.id}: at joint_speed={params.joint_speed} the tip goes up to {step} m in a substep, "
                "and could pass through the ball: that must be below half of radius + half_width."
            )
        self._check_start(params)

    def _check_start(self, params: Params) -> None:
        """Raises ValueError where the first state is none that the equations may start from."""
        x, y, angle_1, angle_2 = (jnp.asarray(part) for part in np.moveaxis(np.asarray(params.start), -1, 0))
        params = jax.tree.map(jnp.asarray, params)
        beyond = jnp.abs(jnp.stack([angle_1, angle_2], -1)) > params.most_angle
        if not np.all(among_walls(angle_1, angle_2, params)) or np.any(beyond):
            raise ValueError(f"{self.id}: start={params.start}: the arm would be in a wall or beyond most_angle.")
        still, far = jnp.zeros_like(x), params.table - params.radius
        ball, parts = Ball(x, y, still, still, still), links(Arm(angle_1, angle_2, still, still), params)
        apart = jnp.minimum(*(from_link(ball, link)[2] for link in parts)) - params.radius - params.half_width
        if not np.all((apart >= -TOLERANCE) & (jnp.abs(x) <= far) & (jnp.abs(y) <= far)):
            raise ValueError(f"{self.id}: start={params.start}: the ball would be in a wall or in the arm.")

    def render(self, state: State, params: Params) -> np.ndarray:
        table, radius = float(params.table), float(params.radius)
        canvas = Canvas(400, 400, 2.2 * table, (0.0, 0.0), INK)
        canvas.rectangle((-table, -table), (table, table), PALE)
        for x, y, area in np.asarray(params.areas, float).tolist():
            canvas.circle((x, y), area, GREEN)
        ball = float(state.ball.x), float(state.ball.y)
        canvas.circle(ball, radius, ORANGE)
        angle, width, (x, y) = 0.0, 2 * float(params.half_width), (0.0, float(params.root))
        places, turns = [(x, y)], (float(state.arm.angle_1), float(state.arm.angle_2))
        for length, turn in zip(np.asarray(params.lengths, float).tolist(), turns, strict=True):
            angle += turn
            x, y = x - length * math.sin(angle), y + length * math.cos(angle)
            places.append((x, y))
        for start, end in zip(places, places[1:], strict=False):
            canvas.line([start, end], width, BLUE)
        for place in places[:2]:
            canvas.circle(place, width / 4, INK)
        return canvas.image()
