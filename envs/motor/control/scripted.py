"""The usual controller of a drive as a policy: what `jaxrl dataset make ... --recipe scripted` drives with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..drive import MotorDrive
from .controllers import make

IDS = ("Cont-*", "Finite-*")
"""Shell patterns of the ids that have one."""


def scripted(env: MotorDrive) -> tuple[Any, Callable[..., tuple[Any, Any]]]:
    """`(carry, act)` with `act(params, state, carry) -> (action, carry)`, of one drive. Raises ValueError as `make`."""
    controller = make(env)
    return controller.init(), controller.act
