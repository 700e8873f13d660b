"""Voltages that a converter can make, and the action that makes them."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp

from .. import converters
from ..drive import MotorDrive
from ..machines.dfim import DFIM
from ..machines.eesm import EESM
from ..machines.scim import Induction
from ..machines.six_pmsm import SixPMSM
from ..machines.transforms import clarke, inverse_clarke, unturn
from ..plant import Params, Plant, State
from .operating_points import alike, within


def limited(
    env: MotorDrive, params: Params, volts: tuple, u_sup: Any, holds: tuple = (0.0, 0.0)
) -> tuple[tuple, tuple]:
    """Voltages that the converter can make, and of each whether it was not cut.

    Of a three-phase vector what `holds` the currents comes first, up to 0.9 of the voltage: less of all would let one
    axis go while the other is pushed.
    """
    if not params.machine.dq:
        pairs = zip(volts, env.converter.low, env.converter.reaches, strict=True)
        cut = tuple(jnp.clip(u, low * reach * u_sup, reach * u_sup) for u, low, reach in pairs)
        return cut, tuple(u == v for u, v in zip(volts, cut, strict=True))
    most = env.voltage_radius * u_sup
    if isinstance(params.machine, SixPMSM):
        vectors, share = volts[:4], 1.0
    else:  # the largest share with |holds + share push| <= most
        enough = jnp.minimum(0.9 * most / jnp.sqrt(holds[0] ** 2 + holds[1] ** 2 + 1e-12), 1)
        holds = tuple(enough * h for h in holds)
        push = tuple(u - h for u, h in zip(volts[:2], holds, strict=True))
        square, along = push[0] ** 2 + push[1] ** 2 + 1e-12, holds[0] * push[0] + holds[1] * push[1]
        room = most**2 - holds[0] ** 2 - holds[1] ** 2
        share = jnp.clip((jnp.sqrt(jnp.maximum(along**2 + square * room, 0)) - along) / square, 0, 1)
        vectors = tuple(h + share * u for u, h in zip(push, holds, strict=True))
    # The two windings of six phases see dq and xy together.
    length = sum(jnp.sqrt(vectors[k] ** 2 + vectors[k + 1] ** 2 + 1e-30) for k in range(0, len(vectors), 2))
    shrink = jnp.minimum(most / jnp.maximum(length, 1e-12), 1)
    rest = tuple(within(u, u_sup) for u in volts[len(vectors) :])
    fits = (share >= 1) & (length <= most)
    free = (fits,) * len(vectors) + tuple(u == v for u, v in zip(volts[len(vectors) :], rest, strict=True))
    return (*(u * shrink for u in vectors), *rest), free


def to_action(env: MotorDrive, params: Params, state: State, plant: Plant, volts: tuple) -> Any:
    """The action that makes voltages on the axes of the controlled currents. An induction machine's are on stator axes,
    and a doubly fed one's rotor comes after its stator."""
    machine, u_sup = params.machine, plant.u_sup[0]
    turning = isinstance(machine, Induction)
    if not machine.dq:
        phases = volts
    elif turning:
        phases = inverse_clarke(volts[:2])
        if isinstance(machine, DFIM):
            phases += inverse_clarke(unturn(volts[2:], machine.angle_frame(plant.motor)))
    else:
        half = 0.5 * params.tau * machine.p * plant.load[0] if env.hold == "stator" else 0.0
        phases = machine.phases(volts, machine.frame((*plant.motor[:-1], plant.motor[-1] + half)))
    if env.dq_actions:
        ahead = (0.5 + env.dead_time) * params.tau
        frame = machine.action_frame(
            state.plant.motor, state.plant.flux or None, state.plant.load[0], ahead, env.upstream
        )
        if turning:
            dq = unturn(clarke(phases[:3]), frame[:2])
            dq += unturn(clarke(phases[3:]), frame[2:]) if isinstance(machine, DFIM) else ()
        else:
            dq = machine.inputs(phases, frame)
        scale = (2.0,) * 2 + ((1.0,) if isinstance(machine, EESM) else (2.0, 2.0))
        action = tuple(s * u / u_sup for s, u in zip(scale, dq, strict=False))
    else:
        action = ()
        pieces = converters.cut(phases, [part.outputs for part in env.converter.each])
        for part, piece in zip(env.converter.each, pieces, strict=True):
            if part.outputs == 3:  # the middle of the largest and the smallest on the middle of the link
                high = functools.reduce(jnp.maximum, piece)
                low = functools.reduce(jnp.minimum, piece)
                piece = tuple(u - 0.5 * (high + low) for u in piece)
            action += tuple(u / (part.reach * u_sup) for u in piece)
    low = -1.0 if env.dq_actions else jnp.asarray(env.converter.low)
    return jnp.clip(jnp.stack(alike(*action)), low, 1.0)
