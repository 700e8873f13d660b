"""DoublePendulum-v0: swing a hanging two-link arm up and hold it upright.

The motors are a static choice: `actuation="elbow"` (the acrobot), `"shoulder"` (the pendubot) or `"both"`. Links are
uniform rods; physics in `two_link.py`, one Runge-Kutta step of 0.02 s. Spong (1995), "The Swing Up Control Problem for
the Acrobot"; Spong and Block (1995), "The Pendubot".

| observation | unit | range |
|---|---|---|
| cos, sin of theta_1, first link, 0 hanging down | 1 | +-1 |
| cos, sin of theta_2, second link relative to the first | 1 | +-1 |
| theta_1_dot, theta_2_dot | rad/s | +-30 |

Action: one number for each motor (shoulder first), in [-1, 1], clipped, times `max_torque` [N m]: too weak to lift the
arm at once. Reward, in [-0.01, 1]: `height - control_cost * mean(action^2)`, with the height of the tip scaled from 0
(hanging) to 1 (upright). Never ends but for the time limit.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import Environment, Hints, Transition, pytree, require_non_negative, require_positive
from jaxrl.math import sincos
from jaxrl.spaces import Box
from jaxrl.telemetry import Quantity

from .two_link import move

ACTUATIONS = ("elbow", "shoulder", "both")


@pytree
class Params:
    max_steps: jax.Array = 500
    gravity: jax.Array = 9.81  # m/s^2
    mass_1: jax.Array = 1.0  # kg
    mass_2: jax.Array = 1.0  # kg
    length_1: jax.Array = 0.5  # m
    length_2: jax.Array = 0.5  # m
    damping: jax.Array = 0.02  # N m s, in each joint
    max_torque: jax.Array = 3.0  # N m; holding the arm level takes 9.8
    max_speed: jax.Array = 30.0  # rad/s
    dt: jax.Array = 0.02  # s
    control_cost: jax.Array = 0.01

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


def dynamics(state: State, torque: tuple[Float[Array, ""], Float[Array, ""]], params: Params) -> State:
    """One step under the shoulder's and the elbow's `torque` [N m]; speeds are clipped."""
    motion = (state.theta_1, state.theta_2, state.theta_1_dot, state.theta_2_dot)
    theta_1, theta_2, theta_1_dot, theta_2_dot = move(motion, *torque, params, params.dt)
    return state.replace(
        theta_1=theta_1,
        theta_2=theta_2,
        theta_1_dot=jnp.clip(theta_1_dot, -params.max_speed, params.max_speed),
        theta_2_dot=jnp.clip(theta_2_dot, -params.max_speed, params.max_speed),
    )


def height(state: State, params: Params) -> Float[Array, ""]:
    """Height of the tip: 0 hanging, 1 upright."""
    (sin_1, cos_1), (sin_2, cos_2) = sincos(state.theta_1), sincos(state.theta_2)
    reach = params.length_1 + params.length_2
    return 0.5 - 0.5 * (params.length_1 * cos_1 + params.length_2 * (cos_1 * cos_2 - sin_1 * sin_2)) / reach


def reward_terms(state: State, command: Float[Array, " motors"], params: Params) -> dict[str, Float[Array, ""]]:
    """What the reward is the sum of, from the state after the step and the clipped action."""
    return {"reward/height": height(state, params), "reward/control": -params.control_cost * jnp.mean(command**2)}


@dataclasses.dataclass(frozen=True)
class DoublePendulum(Environment):
    actuation: str = "elbow"
    id: str = dataclasses.field(default="DoublePendulum-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    observation_names = (
        "cos(theta_1)",
        "sin(theta_1)",
        "cos(theta_2)",
        "sin(theta_2)",
        "theta_1_dot [rad/s]",
        "theta_2_dot [rad/s]",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.actuation not in ACTUATIONS:
            raise ValueError(f"{self.id}: actuation={self.actuation!r} must be one of {', '.join(ACTUATIONS)}.")

    def initial(self, key: Array, params: Params) -> State:
        theta_1, theta_2, theta_1_dot, theta_2_dot = jax.random.uniform(key, (4,), minval=-0.1, maxval=0.1)
        theta_1_dot, theta_2_dot = (
            jnp.clip(x, -params.max_speed, params.max_speed) for x in (theta_1_dot, theta_2_dot)
        )
        return State(jnp.int32(0), theta_1, theta_2, theta_1_dot, theta_2_dot)

    def transition(self, key: Array, state: State, action: Float[Array, " motors"], params: Params) -> Transition:
        command = jnp.clip(action, -1, 1)
        none = jnp.zeros_like(command[0])
        drive = {"elbow": (none, command[-1]), "shoulder": (command[0], none), "both": (command[0], command[-1])}
        shoulder, elbow = drive[self.actuation]
        state = dynamics(state, (shoulder * params.max_torque, elbow * params.max_torque), params)
        terms = reward_terms(state, command, params)
        reward = terms["reward/height"] + terms["reward/control"]
        return Transition(state, reward, jnp.bool_(False), jnp.bool_(False), terms)

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "6"]:
        (sin_1, cos_1), (sin_2, cos_2) = sincos(state.theta_1), sincos(state.theta_2)
        return jnp.stack([cos_1, sin_1, cos_2, sin_2, state.theta_1_dot, state.theta_2_dot])

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        motors = ("shoulder", "elbow") if self.actuation == "both" else (self.actuation,)
        return tuple(f"{motor} torque, 1 is max_torque" for motor in motors)

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        speeds = {
            f"theta_{i}_dot [rad/s]": Quantity(speed, low=-params.max_speed, high=params.max_speed)
            for i, speed in ((1, state.theta_1_dot), (2, state.theta_2_dot))
        }
        return {
            "theta_1 [rad]": Quantity(state.theta_1),
            "theta_2 [rad]": Quantity(state.theta_2),
            **speeds,
            "height": Quantity(height(state, params), jnp.ones_like(state.theta_1)),
        }

    def observation_space(self, params: Params) -> Box:
        one, speed = jnp.ones_like(params.max_speed), params.max_speed
        high = jnp.stack([one, one, one, one, speed, speed])
        return Box(-high, high, (6,))

    def action_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (2 if self.actuation == "both" else 1,))

    def validate(self, params: Params) -> None:
        require_positive(self, params, "mass_1", "mass_2", "length_1", "length_2", "max_torque", "max_speed", "dt")
        require_non_negative(self, params, "gravity", "damping", "control_cost")
        for i in ("1", "2"):
            mass, length = (np.asarray(getattr(params, f"{name}_{i}"), float) for name in ("mass", "length"))
            acceleration = np.asarray(params.max_torque) / (mass * length**2) + np.asarray(params.gravity) / length
            if np.any(np.asarray(params.dt) ** 2 * acceleration > 10):
                raise ValueError(
                    f"{self.id}: dt={params.dt} is too long for mass_{i}={mass} and length_{i}={length}: in a step "
                    "such an arm makes several turns, and Runge-Kutta overflows. Make the arm longer or dt shorter."
                )

    def render(self, state: State, params: Params) -> np.ndarray:
        from .drawing import draw_hanging_arm

        return draw_hanging_arm(state, params)
