"""One step of a drone's equations: Euler's, semi-implicit, Runge-Kutta's, with the attitude turned exactly or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxrl.math import fence

from .rotations import add, exponential, product, unit

INTEGRATORS = ("euler", "exponential_euler", "semi_implicit", "rk4", "exponential_rk4")


def _advance(drone: Any, rate: Any, dt: Any) -> Any:
    return type(drone)(*(add(x, dx, dt) for x, dx in zip(drone, rate, strict=True)))


def _turned(quaternion: Any, body_rates: Any, dt: Any) -> Any:
    q = product(quaternion, exponential(tuple(dt * w for w in body_rates)))
    scale = 1.5 - 0.5 * sum(x * x for x in q)  # Newton's step to length 1, from which float32 drifts by 1e-8 a step
    return tuple(scale * x for x in q)


def _advance_turning(drone: Any, rate: Any, body_rates: Any, dt: Any) -> Any:
    return _advance(drone, rate._replace(quaternion=(0.0,) * 4), dt)._replace(
        quaternion=_turned(drone.quaternion, body_rates, dt)
    )


def _semi_implicit(f, drone: Any, dt: Any) -> Any:
    new = _advance(drone, f(drone), dt)
    position = add(drone.position, new.velocity, dt)
    return new._replace(position=position, quaternion=_turned(drone.quaternion, new.body_rates, dt))


def _runge_kutta(f, drone: Any, dt: Any) -> Any:
    # Summed up as the stages come: the four derivatives together would not stay in registers.
    total = rate = f(drone)
    for ahead, weight in ((0.5, 2), (0.5, 2), (1, 1)):
        rate = f(_advance(drone, rate, ahead * dt))
        total = _advance(total, rate, weight)
    return _advance(drone, total, dt / 6)


def _exponential_runge_kutta(f, drone: Any, dt: Any) -> Any:
    stage, rate = drone, f(drone)
    total, turning = rate, drone.body_rates
    for ahead, weight in ((0.5, 2), (0.5, 2), (1, 1)):
        stage = _advance_turning(drone, rate, stage.body_rates, ahead * dt)
        # Else each number of the new state makes all turns anew.
        quaternion, body_rates = fence((stage.quaternion, stage.body_rates))
        stage = stage._replace(quaternion=quaternion, body_rates=body_rates)
        rate = f(stage)
        total, turning = _advance(total, rate, weight), add(turning, stage.body_rates, weight)
    return _advance_turning(drone, total, turning, dt / 6)


def integrate(f: Callable[[Any], Any], drone: Any, dt: Any, integrator: str) -> Any:
    """The state `dt` [s] later, where `f(state)` is its derivative; a NamedTuple that begins as Drone does."""
    if integrator == "semi_implicit":
        return _semi_implicit(f, drone, dt)
    if integrator == "exponential_euler":
        return _advance_turning(drone, f(drone), drone.body_rates, dt)
    if integrator == "exponential_rk4":
        return _exponential_runge_kutta(f, drone, dt)
    new = _advance(drone, f(drone), dt) if integrator == "euler" else _runge_kutta(f, drone, dt)
    return new._replace(quaternion=unit(new.quaternion))
