"""Voltage supplies. Each is a pytree of its numbers; its class says which it is.

| class | voltage |
|---|---|
| Ideal | u_nominal |
| RC | of a capacitor behind a resistor: R C du/dt = u_nominal - u - R i |
| AC1 | sqrt(2) u_nominal sin(2 pi f t + phase) |
| AC3 | three of sqrt(2/3) u_nominal sin(2 pi f t + phase + 2 pi k / 3), u_nominal between two lines |
| Battery | open-circuit voltage by state of charge, less R i |

A supply is read once a control step, at its start, with the current that the converter draws then.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.environment import Replaceable, pytree
from jaxrl.math import sincos, wrap


class Supply(Replaceable):
    """Base: a supply without state."""

    phases: ClassVar[int] = 1
    low: ClassVar[float] = 0.0
    """The least voltage, of u_nominal; `high` the most. They scale the error of a reward on the supply."""
    high: ClassVar[float] = 1.0
    words: ClassVar[int] = 0  # random ones, for a start
    drains: ClassVar[bool] = False  # the current that is drawn matters
    positive: ClassVar[tuple[str, ...]] = ("u_nominal",)

    u_nominal: Any

    def start(self, words: Any) -> tuple:
        """State at the start of an episode."""
        return ()

    def voltage(self, state: Any, current: Any) -> tuple:
        """[V] at the start of a control step in which `current` [A] is drawn."""
        raise NotImplementedError

    def step(self, state: Any, current: Any, tau: Any) -> tuple:
        """State `tau` seconds later."""
        return state

    def validate(self, who: str) -> None:
        """Raise ValueError for numbers that make no sense. Host only."""
        for name in self.positive:
            value = np.asarray(getattr(self, name))
            if not np.all(np.isfinite(value) & (value > 0)):
                raise ValueError(f"{who}: supply {name}={value} must be finite and positive.")


@pytree
class Ideal(Supply):
    u_nominal: jax.Array = 600.0  # V

    def voltage(self, state: Any, current: Any) -> tuple:
        return (jnp.asarray(self.u_nominal),)


@pytree(static=("upstream",))
class RC(Supply):
    """A charged capacitor at the start. `upstream`: gym-electric-motor's Euler step, with the current of the step after
    it; else exact for a current that is constant over a step."""

    u_nominal: jax.Array = 600.0  # V
    resistance: jax.Array = 1.0  # ohm
    capacitance: jax.Array = 4e-3  # F
    upstream: bool = False

    drains = True
    positive = ("u_nominal", "resistance", "capacitance")

    def start(self, words: Any) -> tuple:
        u = jnp.asarray(self.u_nominal)
        return (u, jnp.zeros_like(u)) if self.upstream else (u,)

    def voltage(self, state: Any, current: Any) -> tuple:
        if not self.upstream:
            return state
        u, waited = state
        slope = (self.u_nominal - u - self.resistance * current) / (self.resistance * self.capacitance)
        return (u + waited * slope,)

    def step(self, state: Any, current: Any, tau: Any) -> tuple:
        if self.upstream:
            return self.voltage(state, current)[0], tau * jnp.ones_like(state[1])
        final = self.u_nominal - self.resistance * current
        return (final + (state[0] - final) * jnp.exp(-tau / (self.resistance * self.capacitance)),)


@pytree
class AC1(Supply):
    u_nominal: jax.Array = 230.0  # V, root of the mean square
    frequency: jax.Array = 50.0  # Hz
    phase_low: jax.Array = 0.0  # rad, drawn for each episode between these
    phase_high: jax.Array = 2 * math.pi

    low = -math.sqrt(2)
    high = math.sqrt(2)
    words = 1

    def start(self, words: Any) -> tuple:
        unit = (words[0] >> 8).astype(jnp.result_type(float)) * 2.0**-24
        return (self.phase_low + unit * (self.phase_high - self.phase_low),)

    def voltage(self, state: Any, current: Any) -> tuple:
        return (math.sqrt(2) * self.u_nominal * sincos(state[0])[0],)

    def step(self, state: Any, current: Any, tau: Any) -> tuple:
        return (wrap(state[0] + 2 * math.pi * self.frequency * tau, 0.0, 2 * math.pi),)


@pytree
class AC3(AC1):
    """For a machine without converter."""

    u_nominal: jax.Array = 400.0  # V, between two lines, root of the mean square

    phases = 3
    low = -math.sqrt(2 / 3)
    high = math.sqrt(2 / 3)

    def voltage(self, state: Any, current: Any) -> tuple:
        amplitude = math.sqrt(2 / 3) * self.u_nominal
        return tuple(amplitude * sincos(state[0] + 2 * math.pi * k / 3)[0] for k in range(3))


@pytree
class Battery(Supply):
    """An open-circuit voltage that falls in a straight line with the charge, behind a resistor."""

    u_nominal: jax.Array = 400.0  # V, full and without load
    u_empty: jax.Array = 300.0  # V
    resistance: jax.Array = 0.05  # ohm
    capacity: jax.Array = 180e3  # C (A s)
    charge: jax.Array = 1.0  # at the start, of the capacity

    drains = True
    positive = ("u_nominal", "u_empty", "resistance", "capacity")

    def validate(self, who: str) -> None:
        super().validate(who)
        if not np.all(np.asarray(self.u_empty) <= np.asarray(self.u_nominal)):
            raise ValueError(f"{who}: supply u_empty={self.u_empty} must not be above u_nominal={self.u_nominal}.")
        charge = np.asarray(self.charge)
        if not np.all((charge >= 0) & (charge <= 1)):
            raise ValueError(f"{who}: supply charge={charge} must be in [0, 1].")

    def start(self, words: Any) -> tuple:
        return (jnp.asarray(self.charge),)

    def voltage(self, state: Any, current: Any) -> tuple:
        charge = jnp.clip(state[0], 0, 1)
        return (self.u_empty + charge * (self.u_nominal - self.u_empty) - self.resistance * current,)

    def step(self, state: Any, current: Any, tau: Any) -> tuple:
        return (jnp.clip(state[0] - tau * current / self.capacity, 0, 1),)


KEYS: dict[str, Any] = {"ideal": Ideal, "rc": RC, "ac1": AC1, "ac3": AC3, "battery": Battery}
