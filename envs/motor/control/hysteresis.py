"""`hysteresis`: a band about each phase's or winding's current."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..drive import MotorDrive
from ..machines.dfim import DFIM
from ..plant import Params, Plant, State
from .gains import Carry, Gains
from .outer_loops import measured
from .prediction import joined


def hysteresis(
    env: MotorDrive, params: Params, gains: Gains, state: State, plant: Plant, wanted: tuple, carry: Carry
) -> tuple[Any, Carry]:
    """Each half bridge of three keeps its phase in the band; a bridge of four drives forward, idles or backward."""
    machine, frame = params.machine, params.machine.frame(plant.motor)
    now = machine.phase_currents(plant.motor, frame)
    if isinstance(machine, DFIM):
        goals = machine.phases((*wanted, 0.0, 0.0), frame)
    elif machine.dq:
        goals = machine.phases(wanted, frame)
    else:
        now, goals = measured(env, params, plant), wanted
    actions, switches, done = [], list(carry.switches), 0
    for part in env.converter.each:
        errors = [goals[done + k] - now[done + k] for k in range(part.outputs)]
        width = gains.band * (params.limits.i_e if machine.dq and part.outputs == 1 else params.limits.i)
        if part.outputs == 3:
            legs = [jnp.where(e > width, 1, jnp.where(e < -width, 0, switches[done + k])) for k, e in enumerate(errors)]
            switches[done : done + 3] = legs
            action = 4 * legs[0] + 2 * legs[1] + legs[2]
            if isinstance(machine, DFIM) and done:
                action = 0 * action  # the rotor is short-circuited
        else:
            idle = 1 if not part.locks else 0
            action = jnp.where(errors[0] > width, 1, jnp.where(errors[0] < -width, 0 if idle else 2, 0))
        actions.append(action.astype(jnp.int32))
        done += part.outputs
    return joined(actions), carry._replace(switches=tuple(x.astype(jnp.int32) for x in switches))
