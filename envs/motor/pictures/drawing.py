"""A picture of a drive: every measured quantity as a bar between its limits, references, and vectors. Host only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import UInt8

from jaxrl.canvas import BLUE, GREEN, GREY, INK, ORANGE, PALE, RED, Canvas

from ..machines.transforms import clarke


def draw_drive(env: Any, state: Any, params: Any) -> UInt8[np.ndarray, "height width 3"]:
    """Bars from -limit to limit (red beyond it), references as green lines; of machines with an angle also the stator's
    plane with rotor (grey), current (blue) and voltage (orange)."""
    values = {name: float(x) for name, x in env.normalised(state.plant, state.noise, params).items()}
    units = {name: float(x) for name, x in env.signals(state.plant, params).items()}
    targets = env.targets(state.references, params)
    wanted = {name: float(x) for name, x in zip(env.referenced, targets, strict=True)}
    names = [n for n in env.names(params) if n in values]
    row, plane = 0.1, params.machine.has_angle
    height = max(row * (len(names) + 2.5), 1.6 if plane else 0.0)
    left = -1.9 if plane else 0.0
    canvas = Canvas(
        720 if plane else 460,
        round((720 / 3.7 if plane else 460 / 1.8) * height),
        span=3.7 if plane else 1.8,
        center=((left + 1.8) / 2, -height / 2),
    )
    center, half = 1.1, 0.6
    for i, name in enumerate(names):
        y = -row * (i + 1.8)
        canvas.rectangle((center - half, y - 0.3 * row), (center + half, y + 0.3 * row), PALE)
        value = values[name] if math.isfinite(values[name]) else 0.0
        shown = max(-1.15, min(1.15, value))
        colour = RED if abs(value) > 1 else BLUE
        canvas.rectangle(
            (center + half * min(shown, 0), y - 0.25 * row), (center + half * max(shown, 0), y + 0.25 * row), colour
        )
        canvas.line([(center, y - 0.4 * row), (center, y + 0.4 * row)], 0.006, INK)
        if name in wanted:
            x = center + half * wanted[name]
            canvas.line([(x, y - 0.45 * row), (x, y + 0.45 * row)], 0.02, GREEN)
        canvas.text((0.02, y), f"{name} {units[name]:.4g}", INK, 12)
    if plane:
        _vectors(canvas, env, state, params, (-0.95, -height / 2), 0.7)
    canvas.caption(f"{env.id}   t = {int(state.time) * float(params.tau) * 1e3:.2f} ms")
    return canvas.image()


def _vectors(canvas: Canvas, env: Any, state: Any, params: Any, origin: tuple[float, float], size: float) -> None:
    machine, plant = params.machine, state.plant
    canvas.circle(origin, size, PALE)
    canvas.circle(origin, size, GREY, outline=0.008)
    epsilon = float(plant.motor[-1])
    tip = (origin[0] + size * math.cos(epsilon), origin[1] + size * math.sin(epsilon))
    canvas.line([origin, tip], 0.05, GREY)
    currents = machine.measured_currents(plant.motor, plant.frame)[:3]
    for phases, limit, colour in ((currents, params.limits.i, BLUE), (plant.voltage[:3], params.limits.u, ORANGE)):
        alpha, beta = (float(x) / float(limit) for x in clarke(phases))
        if not (math.isfinite(alpha) and math.isfinite(beta)):
            continue
        shorter = min(1.0, 1.2 / max(math.hypot(alpha, beta), 1e-9))
        end = (origin[0] + size * shorter * alpha, origin[1] + size * shorter * beta)
        if math.hypot(alpha, beta) > 0.02:
            canvas.arrow(origin, end, 0.02, colour)
