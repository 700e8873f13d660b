"""Reacher-v0: bring the fingertip of a two-link arm on a table to a target.

The task of Gymnasium's MuJoCo `Reacher` (same link lengths, targets and form of reward) on analytic dynamics: uniform
rods in a horizontal plane, viscous joints, no joint limits, one Runge-Kutta step of 0.02 s (`two_link.py`).

| observation | unit | range |
|---|---|---|
| cos of theta_1, theta_2 | 1 | +-1 |
| sin of theta_1, theta_2 | 1 | +-1 |
| target x, y | m | +-0.2 |
| theta_1_dot, theta_2_dot | rad/s | unbounded |
| fingertip minus target x, y | m | +-0.41 |

theta_1 is measured from the x axis and theta_2 from the first link, counter-clockwise. Action: shoulder and elbow
torque in [-1, 1], clipped, times `max_torque` [N m]. Reward: `-distance - control_cost |action|^2`, the distance [m]
after the step. Never ends but for the time limit of 50 steps. `info["success"]`: the fingertip is within 2 cm of the
target.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import Environment, Hints, Transition, pytree, require_non_negative, require_positive
from jaxrl.math import sincos
from jaxrl.spaces import Box
from jaxrl.telemetry import Curve, Plane, Quantity

from .two_link import mass_matrix, move

SUCCESS_RADIUS = 0.02  # m


@pytree
class Params:
    max_steps: jax.Array = 50
    mass_1: jax.Array = 0.05  # kg
    mass_2: jax.Array = 0.05  # kg
    length_1: jax.Array = 0.1  # m
    length_2: jax.Array = 0.11  # m
    damping: jax.Array = 0.002  # N m s, in each joint
    gravity: jax.Array = 0.0  # m/s^2; otherwise the table stands upright and -x is up
    max_torque: jax.Array = 0.05  # N m
    dt: jax.Array = 0.02  # s
    target_radius: jax.Array = 0.2  # m, targets are uniform in a disc
    control_cost: jax.Array = 0.1  # m

    @property
    def com_1(self) -> Array:
        return self.length_1 / 2

    @property
    def com_2(self) -> Array:
        return self.length_2 / 2

    @property
    def inertia_1(self) -> Array:
        return self.mass_1 * self.length_1**2 / 12

    @property
    def inertia_2(self) -> Array:
        return self.mass_2 * self.length_2**2 / 12


@pytree
class State:
    time: jax.Array  # steps since reset
    theta_1: jax.Array  # rad
    theta_2: jax.Array  # rad
    theta_1_dot: jax.Array  # rad/s
    theta_2_dot: jax.Array  # rad/s
    target_x: jax.Array  # m
    target_y: jax.Array  # m


def dynamics(state: State, torque: tuple[Float[Array, ""], Float[Array, ""]], params: Params) -> State:
    """One step under the shoulder's and the elbow's `torque` [N m]."""
    motion = (state.theta_1, state.theta_2, state.theta_1_dot, state.theta_2_dot)
    theta_1, theta_2, theta_1_dot, theta_2_dot = move(motion, *torque, params, params.dt)
    return state.replace(theta_1=theta_1, theta_2=theta_2, theta_1_dot=theta_1_dot, theta_2_dot=theta_2_dot)


def offset(state: State, params: Params) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Fingertip minus target, x and y [m]."""
    (sin_1, cos_1), (sin_2, cos_2) = sincos(state.theta_1), sincos(state.theta_2)
    x = params.length_1 * cos_1 + params.length_2 * (cos_1 * cos_2 - sin_1 * sin_2)
    y = params.length_1 * sin_1 + params.length_2 * (sin_1 * cos_2 + cos_1 * sin_2)
    return x - state.target_x, y - state.target_y


def distance(state: State, params: Params) -> Float[Array, ""]:
    """Distance [m] of the fingertip from the target; its gradient on the target is zero, not NaN."""
    dx, dy = offset(state, params)
    square = dx**2 + dy**2
    apart = square > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1)), 0)


def reward_terms(gap: Float[Array, ""], command: Float[Array, "2"], params: Params) -> dict[str, Float[Array, ""]]:
    """What the reward is the sum of, from the distance [m] after the step and the clipped action."""
    return {"reward/distance": -gap, "reward/control": -params.control_cost * (command[0] ** 2 + command[1] ** 2)}


def check_step(id: str, params: Params) -> None:
    """Raise ValueError where a Runge-Kutta step of `dt` is too long for the arm, so that its speeds overflow.

    Of the lightest motion, `dt damping / inertia` is to be at most 2.5 (Runge-Kutta decays up to 2.8). A joint at full
    torque is to turn by at most a radian in a step in the end, or `dt^2 torque / inertia` to be at most 0.6. Of 20,000
    arms with random numbers one within these limits overflowed in an episode.
    """
    lightness = []  # 1 / (kg m^2): the largest eigenvalue of the inverse inertia matrix, folded, square and stretched
    arm = jax.tree.map(lambda x: jnp.asarray(x, float), params)
    for cos_2 in (-1.0, 0.0, 1.0):
        m_11, m_12, m_22 = (np.asarray(x, float) for x in mass_matrix(jnp.full_like(arm.mass_1, cos_2), arm))
        trace, determinant = m_11 + m_22, m_11 * m_22 - m_12**2
        lightness.append((trace + np.sqrt(np.maximum(trace**2 - 4 * determinant, 0))) / (2 * determinant))
    dt, damping, torque = (np.asarray(x, float) for x in (params.dt, params.damping, params.max_torque))
    decay, turn = dt * damping * np.max(lightness, 0), dt**2 * torque * np.max(lightness, 0)
    if np.any((decay > 2.5) | ((turn > 0.6) & (dt * torque > damping))):
        raise ValueError(
            f"{id}: dt={params.dt} is too long for an arm of masses {params.mass_1}, {params.mass_2}, lengths "
            f"{params.length_1}, {params.length_2}, damping={params.damping} and max_torque={params.max_torque}: "
            "Runge-Kutta overflows. Make the arm heavier or longer, or dt shorter."
        )


@dataclasses.dataclass(frozen=True)
class Reacher(Environment):
    id: str = dataclasses.field(default="Reacher-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    observation_names = (
        "cos(theta_1)",
        "cos(theta_2)",
        "sin(theta_1)",
        "sin(theta_2)",
        "target_x [m]",
        "target_y [m]",
        "theta_1_dot [rad/s]",
        "theta_2_dot [rad/s]",
        "tip_x - target_x [m]",
        "tip_y - target_y [m]",
    )
    action_names = (
        "shoulder torque, 1 is max_torque",
        "elbow torque, 1 is max_torque",
    )

    def initial(self, key: Array, params: Params) -> State:
        draw = jax.random.uniform(key, (6,))
        theta_1, theta_2 = 0.2 * draw[0] - 0.1, 0.2 * draw[1] - 0.1
        theta_1_dot, theta_2_dot = 0.01 * draw[2] - 0.005, 0.01 * draw[3] - 0.005
        radius = params.target_radius * jnp.sqrt(draw[4])
        sin, cos = sincos(2 * math.pi * draw[5])
        return State(jnp.int32(0), theta_1, theta_2, theta_1_dot, theta_2_dot, radius * cos, radius * sin)

    def transition(self, key: Array, state: State, action: Float[Array, "2"], params: Params) -> Transition:
        command = jnp.clip(action, -1, 1)
        state = dynamics(state, (command[0] * params.max_torque, command[1] * params.max_torque), params)
        gap = distance(state, params)
        terms = reward_terms(gap, command, params)
        reward = terms["reward/distance"] + terms["reward/control"]
        info = {**terms, "success": gap < SUCCESS_RADIUS}
        return Transition(state, reward, jnp.bool_(False), jnp.bool_(False), info)

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "10"]:
        (sin_1, cos_1), (sin_2, cos_2) = sincos(state.theta_1), sincos(state.theta_2)
        target = [state.target_x, state.target_y]
        speeds = [state.theta_1_dot, state.theta_2_dot]
        return jnp.stack([cos_1, cos_2, sin_1, sin_2, *target, *speeds, *offset(state, params)])

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        dx, dy = offset(state, params)
        return {
            "tip_x [m]": Quantity(state.target_x + dx, state.target_x),
            "tip_y [m]": Quantity(state.target_y + dy, state.target_y),
            "theta_1 [rad]": Quantity(state.theta_1),
            "theta_2 [rad]": Quantity(state.theta_2),
            "theta_1_dot [rad/s]": Quantity(state.theta_1_dot),
            "theta_2_dot [rad/s]": Quantity(state.theta_2_dot),
        }

    def planes(self, telemetry: dict[str, Quantity], params: Params) -> list[Plane]:
        x, y = telemetry["tip_x [m]"], telemetry["tip_y [m]"]
        curves = [
            Curve("fingertip", x.value, y.value, "path"),
            Curve("target", x.reference[:1], y.reference[:1], "dots"),
        ]
        return [Plane("The table from above", "x [m]", "y [m]", curves, equal=True)]

    def observation_space(self, params: Params) -> Box:
        one, inf = jnp.ones_like(params.length_1), jnp.full_like(params.length_1, jnp.inf)
        target, gap = params.target_radius, params.target_radius + params.length_1 + params.length_2
        high = jnp.stack([one, one, one, one, target, target, inf, inf, gap, gap])
        return Box(-high, high, (10,))

    def action_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (2,))

    def validate(self, params: Params) -> None:
        require_positive(self, params, "mass_1", "mass_2", "length_1", "length_2", "max_torque", "dt", "target_radius")
        require_non_negative(self, params, "damping", "control_cost")
        check_step(self.id, params)

    def render(self, state: State, params: Params) -> np.ndarray:
        from .drawing import draw_reacher

        return draw_reacher(state, params, SUCCESS_RADIUS)
