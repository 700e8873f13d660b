"""A picture of a drive: every measured quantity as a bar between its limits, references, and vectors. Host only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import UInt8

from jaxrl.canvas import BLUE, GREEN, GREY, INK, ORANGE, PALE, RED, Canvas, Color

from ..machines.transforms import clarke
from .units import unit


def draw_drive(env: Any, state: Any, params: Any) -> UInt8[np.ndarray, "height width 3"]:
    """Bars from -limit to limit (red beyond it) with values and limits in SI units, references as green lines; of
    machines with an angle also the stator's plane with rotor (grey), current (blue) and voltage (orange)."""
    values = {name: float(x) for name, x in env.normalised(state.plant, state.noise, params).items()}
    in_units = {name: float(x) for name, x in env.signals(state.plant, params).items()}
    targets = env.targets(state.references, params)
    wanted = {name: float(x) for name, x in zip(env.referenced, targets, strict=True)}
    names = [n for n in env.names(params) if n in values]
    row, plane = 0.1, params.machine.has_angle
    height = max(row * (len(names) + 3.5), 1.9 if plane else 0.0)
    left = -1.9 if plane else 0.0
    canvas = Canvas(
        720 if plane else 460,
        round((720 / 3.7 if plane else 460 / 1.8) * height),
        span=3.7 if plane else 1.8,
        center=((left + 1.8) / 2, -height / 2),
    )
    center, half = 1.02, 0.34
    for i, name in enumerate(names):
        y = -row * (i + 1.8)
        canvas.rectangle((center - half, y - 0.3 * row), (center + half, y + 0.3 * row), PALE)
        value = values[name] if math.isfinite(values[name]) else 0.0
        shown = max(-1.1, min(1.1, value))
        colour = RED if abs(value) > 1 else BLUE
        canvas.rectangle(
            (center + half * min(shown, 0), y - 0.25 * row), (center + half * max(shown, 0), y + 0.25 * row), colour
        )
        canvas.line([(center, y - 0.4 * row), (center, y + 0.4 * row)], 0.006, INK)
        if name in wanted:
            x = center + half * wanted[name]
            canvas.line([(x, y - 0.45 * row), (x, y + 0.45 * row)], 0.02, GREEN)
        canvas.text((0.02, y), f"{name} {in_units[name]:.4g} {unit(name)}", INK, 12)
        most = f"{float(env.limit(name, params)):.4g} {unit(name)}"
        canvas.text((center + half + 0.03, y), most if env.low(name, params) == 0 else f"± {most}", INK, 11)
    bars = [("of the limit", BLUE), ("beyond it", RED), ("reference", GREEN)]
    _legend(canvas, (0.02, 0.1 - height), bars if wanted else bars[:2])
    if plane:
        _vectors(canvas, env, state, params, (-0.95, -height / 2), 0.7)
        vectors = [("rotor", GREY), ("current", BLUE), ("voltage", ORANGE)]
        _legend(canvas, (left + 0.25, 0.1 - height), [*vectors, ("circle: limits", PALE)])
    canvas.caption(f"{env.id}   t = {int(state.time) * float(params.tau) * 1e3:.2f} ms")
    return canvas.image()


def _legend(canvas: Canvas, at: tuple[float, float], entries: list[tuple[str, Color]]) -> None:
    x, y = at
    for text, color in entries:
        canvas.rectangle((x, y - 0.025), (x + 0.06, y + 0.025), color)
        canvas.text((x + 0.08, y), text, INK, 11)
        x += 0.16 + 0.032 * len(text)


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
