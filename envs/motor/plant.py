"""What a drive is made of: its numbers, and the states of its plant and of an episode. Types only."""

from __future__ import annotations

from typing import Any

import jax

from jaxrl.environment import pytree


@pytree
class Params:
    """Machine, load, supply and references are pytrees whose classes say which they are: put another in their place."""

    max_steps: jax.Array
    tau: jax.Array  # s, the control step
    machine: Any
    limits: Any  # machine.Ratings
    nominal: Any  # machine.Ratings: references and random initial states stay within
    load: Any
    supply: Any
    references: Any  # a tuple, in the order of MotorDrive.referenced
    weights: Any  # of the reward, in the order of MotorDrive.rewarded
    initial_low: Any  # of the load's and the machine's states: an episode starts anywhere between
    initial_high: Any
    gamma: jax.Array = 0.9
    bias: jax.Array = 0.0
    violation_reward: Any = None  # None: min((bias - sum of weights) / (1 - gamma), 0)
    interlocking_time: jax.Array = 0.0  # s, needs MotorDrive.interlocking
    noise_scale: jax.Array = 0.0  # of a limit, of what MotorDrive.noise names


@pytree
class Plant:
    """Everything but the task."""

    load: Any  # rad/s and more, in the order of the load's states
    motor: Any  # in the order of the machine's states
    frame: Any  # in which currents are measured
    voltage: Any  # V, as measured
    u_sup: Any  # V, one or three
    supply: Any
    bridges: Any  # what each half bridge did last, where that matters
    pending: Any  # actions on their way, the next first
    flux: Any  # V s, the observer's


@pytree
class State:
    time: jax.Array  # steps since reset
    plant: Any
    references: Any
    noise: Any  # added to normalised measurements
