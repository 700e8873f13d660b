"""Mechanical loads. Each is a pytree of its numbers; its class says which it is.

| class | motion |
|---|---|
| ConstantSpeed | none: the speed is given |
| Polynomial | J dw/dt = T - sgn(w) c w^2 - b w - A(w); A is sgn(w) a beyond the slow zone, J / tau_decay w in it |
| ExternalSpeed | follows a profile, whatever the torque |
| OrnsteinUhlenbeck | dw = theta (mu - w) dt + sigma dW, in a range, whatever the torque |
| Servo | as Polynomial, with the position: dx/dt = w |
| TwoMass | rotor and load on an elastic, damped shaft; the load brakes as Polynomial |

T is the machine's torque [N m], w the rotor's speed [rad/s]. J is the whole inertia (TwoMass: the rotor's alone).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.environment import Replaceable, pytree

from .references import normal


class Load(Replaceable):
    """Base."""

    states: ClassVar[tuple[str, ...]] = ("omega",)
    start_words: ClassVar[int] = 0  # random ones
    words: ClassVar[int] = 0
    positive: ClassVar[tuple[str, ...]] = ()
    not_negative: ClassVar[tuple[str, ...]] = ()
    j_load: Any = 0.0

    def start(self, words: Any, drawn: tuple) -> tuple:
        """`states` at the start of an episode; `drawn` are those of the parameters' initial range."""
        return drawn

    def plan(self, words: Any, state: tuple, time: Any, tau: Any) -> Any:
        """What is decided at the start of a control step, `time` seconds into the episode. Without `words`: what is
        expected of it."""
        return None

    def derivative(self, state: tuple, torque: Any, j_rotor: Any, time: Any, tau: Any, plan: Any) -> tuple:
        """d/dt of `states` under the machine's torque [N m], `time` seconds into the episode."""
        raise NotImplementedError

    def demand(self, omega: float) -> tuple[float, float] | None:
        """The speed [rad/s] at which the load asks most of a machine of rated speed `omega`, and the torque [N m] that
        holds it there; None where nobody said. Host only."""
        return None

    def validate(self, who: str) -> None:
        """Raise ValueError for numbers that make no sense. Host only."""
        for names, least in ((self.positive, "positive"), (self.not_negative, "not negative")):
            for name in names:
                value = np.asarray(getattr(self, name))
                if not np.all(np.isfinite(value) & ((value > 0) if least == "positive" else (value >= 0))):
                    raise ValueError(f"{who}: load {name}={value} must be finite and {least}.")


@pytree
class ConstantSpeed(Load):
    omega: jax.Array = 0.0  # rad/s

    def start(self, words: Any, drawn: tuple) -> tuple:
        return (jnp.asarray(self.omega),)

    def demand(self, omega: float) -> tuple[float, float] | None:
        return float(self.omega), 0.0

    def derivative(self, state: tuple, torque: Any, j_rotor: Any, time: Any, tau: Any, plan: Any) -> tuple:
        return (0.0,)


def static_torque(omega: Any, a: Any, b: Any, c: Any, inertia: Any, tau_decay: Any) -> Any:
    """Friction and drag [N m]. The constant part grows over a slow zone, so that a standing machine stands."""
    sign = jnp.sign(omega)
    constant = jnp.where(jnp.abs(omega) > a / inertia * tau_decay, sign * a, inertia / tau_decay * omega)
    return sign * c * omega**2 + b * omega + constant


@pytree
class Polynomial(Load):
    a: jax.Array = 0.0  # N m, dry friction
    b: jax.Array = 0.0  # N m s, viscous friction
    c: jax.Array = 0.0  # N m s^2, air drag
    j_load: jax.Array = 1e-5  # kg m^2
    tau_decay: jax.Array = 1e-3  # s

    positive = ("tau_decay",)
    not_negative = ("a", "b", "c", "j_load")

    def derivative(self, state: tuple, torque: Any, j_rotor: Any, time: Any, tau: Any, plan: Any) -> tuple:
        inertia = j_rotor + self.j_load
        brake = static_torque(state[0], self.a, self.b, self.c, inertia, self.tau_decay)
        return ((torque - brake) / inertia,)

    def demand(self, omega: float) -> tuple[float, float] | None:
        return omega, float(self.a) + float(self.b) * omega + float(self.c) * omega**2


@pytree
class Servo(Polynomial):
    """An axis with a position, counted over whole turns, as an absolute multi-turn encoder does."""

    travel: jax.Array = 4 * math.pi  # rad, from the middle to either end stop

    states = ("omega", "position")
    positive = ("tau_decay", "travel")

    def derivative(self, state: tuple, torque: Any, j_rotor: Any, time: Any, tau: Any, plan: Any) -> tuple:
        return *super().derivative(state[:1], torque, j_rotor, time, tau, plan), state[0]


@pytree(static=("profile", "upstream"))
class ExternalSpeed(Load):
    """The speed of a test bench: `profile(t)` [rad/s], a function of jax, or `samples` every `spacing` seconds, between
    which it is interpolated and after which the last holds: a driving cycle.

    The speed reaches profile(t) at every control step. In gym-electric-motor (`upstream`) it follows with a lag,
    dw/dt = (profile(t + tau) - w) / tau.
    """

    samples: jax.Array = (0.0, 0.0)  # (K,) rad/s, or one speed
    spacing: jax.Array = 1.0  # s
    profile: Callable[[Any], Any] | None = None
    upstream: bool = False

    positive = ("spacing",)

    def speed(self, time: Any) -> Any:
        """[rad/s] at `time` [s]."""
        if self.profile is not None:
            return self.profile(time)
        samples = jnp.atleast_1d(jnp.asarray(self.samples))
        last = samples.shape[0] - 1
        x = jnp.clip(time / self.spacing, 0, last)
        left = jnp.clip(jnp.floor(x), 0, max(last - 1, 0)).astype(jnp.int32)
        return samples[left] + (x - left) * (samples[jnp.minimum(left + 1, last)] - samples[left])

    def start(self, words: Any, drawn: tuple) -> tuple:
        return (jnp.asarray(self.speed(jnp.zeros_like(jnp.asarray(self.spacing)))),)

    def demand(self, omega: float) -> tuple[float, float] | None:
        if self.profile is not None:
            return None
        samples = np.atleast_1d(np.asarray(self.samples, float))
        return float(samples[np.abs(samples).argmax()]), 0.0

    def plan(self, words: Any, state: tuple, time: Any, tau: Any) -> Any:
        return (self.speed(time + tau) - state[0]) / tau

    def derivative(self, state: tuple, torque: Any, j_rotor: Any, time: Any, tau: Any, plan: Any) -> tuple:
        if self.upstream:
            return ((self.speed(time + tau) - state[0]) / tau,)
        return (plan,)


@pytree
class OrnsteinUhlenbeck(Load):
    """Exact in distribution at the control steps, straight between them. gym-electric-motor's cannot be constructed."""

    mu: jax.Array = 0.0  # rad/s, the mean
    sigma: jax.Array = 1e-4  # rad/s^1.5
    theta: jax.Array = 1.0  # 1/s, the drift
    omega_low: jax.Array = -200.0  # rad/s; an episode starts anywhere between
    omega_high: jax.Array = 200.0

    start_words = 1
    words = 1
    positive = ("theta",)
    not_negative = ("sigma",)

    def start(self, words: Any, drawn: tuple) -> tuple:
        unit = (words[0] >> 8).astype(jnp.result_type(float)) * 2.0**-24
        return (self.omega_low + unit * (self.omega_high - self.omega_low),)

    def demand(self, omega: float) -> tuple[float, float] | None:
        return max(float(self.omega_low), float(self.omega_high), key=abs), 0.0

    def plan(self, words: Any, state: tuple, time: Any, tau: Any) -> Any:
        decay = jnp.exp(-self.theta * tau)
        spread = self.sigma * jnp.sqrt(-jnp.expm1(-2 * self.theta * tau) / (2 * self.theta))
        noise = normal(words[0], state[0].dtype) if words else 0.0
        after = self.mu + (state[0] - self.mu) * decay + spread * noise
        return (jnp.clip(after, self.omega_low, self.omega_high) - state[0]) / tau

    def derivative(self, state: tuple, torque: Any, j_rotor: Any, time: Any, tau: Any, plan: Any) -> tuple:
        return (plan,)

    def validate(self, who: str) -> None:
        super().validate(who)
        if not np.all(np.asarray(self.omega_low) <= np.asarray(self.omega_high)):
            raise ValueError(f"{who}: load omega_low={self.omega_low} must not be above omega_high={self.omega_high}.")


@pytree
class TwoMass(Load):
    """J_rotor dw/dt = T - k twist - d (w - w_load); J_load dw_load/dt = k twist + d (w - w_load) - brake(w_load)."""

    j_load: jax.Array = 1e-2  # kg m^2
    stiffness: jax.Array = 100.0  # N m/rad
    damping: jax.Array = 0.01  # N m s
    a: jax.Array = 0.0  # N m, brake as of Polynomial
    b: jax.Array = 0.01  # N m s
    c: jax.Array = 0.0  # N m s^2
    tau_decay: jax.Array = 1e-3  # s

    states = ("omega", "omega_load", "twist")
    positive = ("j_load", "stiffness", "tau_decay")
    not_negative = ("damping", "a", "b", "c")

    def derivative(self, state: tuple, torque: Any, j_rotor: Any, time: Any, tau: Any, plan: Any) -> tuple:
        omega, omega_load, twist = state
        shaft = self.stiffness * twist + self.damping * (omega - omega_load)
        brake = static_torque(omega_load, self.a, self.b, self.c, self.j_load, self.tau_decay)
        return (torque - shaft) / j_rotor, (shaft - brake) / self.j_load, omega - omega_load

    def demand(self, omega: float) -> tuple[float, float] | None:
        return omega, float(self.a) + float(self.b) * omega + float(self.c) * omega**2


KEYS: dict[str, Any] = {
    "constant_speed": ConstantSpeed,
    "polynomial": Polynomial,
    "external_speed": ExternalSpeed,
    "ornstein_uhlenbeck": OrnsteinUhlenbeck,
    "two_mass": TwoMass,
    "servo": Servo,
}
