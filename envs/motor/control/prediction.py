"""The plant some control steps on: when an action of now reaches the converter, and what comes of an action."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp

from .. import motion
from ..drive import MotorDrive
from ..plant import Params, Plant, State


def arriving(env: MotorDrive, params: Params, state: State) -> Plant:
    """The plant when an action of now reaches the converter."""
    plant = state.plant
    for i, action in enumerate(state.plant.pending):
        plant = plant_after(env, params, plant, joined(list(action)), state.time + i)
    return plant


@functools.cache
def prompt(env: MotorDrive) -> MotorDrive:
    """The drive whose actions reach the converter at once and as they are."""
    return dataclasses.replace(env, dead_time=0, dq_actions=False)


def plant_after(env: MotorDrive, params: Params, plant: Plant, action: Any, time: Any) -> Plant:
    """The plant a step after an action reaches the converter, with what is expected of a random load."""
    return motion.advance(prompt(env).stepping, (), plant.replace(pending=()), action, time, params)


def joined(actions: list) -> Any:
    return actions[0] if len(actions) == 1 else jnp.stack(actions)
