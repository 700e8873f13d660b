"""A picture of a drive: every measured quantity as a bar between its limits, references, and vectors. Host only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from jaxrl.canvas import BLUE, GREEN, GREY, INK, ORANGE, PALE, RED, Canvas, Color

from ..machines.transforms import clarke
from ..plant import Params, Plant
from ..quantities import Quantity


class Bar(NamedTuple):
    """A measured quantity of a state."""

    quantity: Quantity
    share: Any  # of the limit
    value: Any  # in the quantity's unit
    limit: Any
    reference: Any = None  # of the limit
    reach: Any = None  # how far it gets where every winding is within its limit, if that is beyond the limit


def draw_drive(caption: str, bars: Sequence[Bar], plant: Plant, params: Params) -> UInt8[np.ndarray, "height width 3"]:
    """Bars from -limit to limit (red beyond it) with values and limits in SI units, references as green lines; of
    machines with an angle also the stator's plane with rotor (grey), current (blue) and voltage (orange).

    A voltage on turning axes is not red before it is beyond what windings within their limits make of it.
    """
    row, plane = 0.1, params.machine.has_angle
    height = max(row * (len(bars) + 3.5), 1.9 if plane else 0.0)
    left = -1.9 if plane else 0.0
    canvas = Canvas(
        720 if plane else 460,
        round((720 / 3.7 if plane else 460 / 1.8) * height),
        span=3.7 if plane else 1.8,
        center=((left + 1.8) / 2, -height / 2),
    )
    center, half = 1.02, 0.34
    for i, bar in enumerate(bars):
        quantity, y = bar.quantity, -row * (i + 1.8)
        canvas.rectangle((center - half, y - 0.3 * row), (center + half, y + 0.3 * row), PALE)
        share, limit = float(bar.share), float(bar.limit)
        share = share if math.isfinite(share) else 0.0
        shown = max(-1.1, min(1.1, share))
        most = 1.0 if bar.reach is None else max(1.0, float(bar.reach) / limit * (1 + 1e-6))
        colour = RED if abs(share) > most else BLUE
        canvas.rectangle(
            (center + half * min(shown, 0), y - 0.25 * row), (center + half * max(shown, 0), y + 0.25 * row), colour
        )
        canvas.line([(center, y - 0.4 * row), (center, y + 0.4 * row)], 0.006, INK)
        if bar.reference is not None:
            x = center + half * float(bar.reference)
            canvas.line([(x, y - 0.45 * row), (x, y + 0.45 * row)], 0.02, GREEN)
        canvas.text((0.02, y), f"{quantity.name} {float(bar.value):.4g} {quantity.unit}", INK, 12)
        ends = f"{limit:.4g} {quantity.unit}"
        canvas.text((center + half + 0.03, y), ends if quantity.low == 0 else f"± {ends}", INK, 11)
    colours = [("of the limit", BLUE), ("beyond it", RED), ("reference", GREEN)]
    wanted = any(bar.reference is not None for bar in bars)
    _legend(canvas, (0.02, 0.1 - height), colours if wanted else colours[:2])
    if plane:
        _vectors(canvas, plant, params, (-0.95, -height / 2), 0.7)
        vectors = [("rotor", GREY), ("current", BLUE), ("voltage", ORANGE)]
        _legend(canvas, (left + 0.25, 0.1 - height), [*vectors, ("circle: limits", PALE)])
    canvas.caption(caption)
    return canvas.image()


def _legend(canvas: Canvas, at: tuple[float, float], entries: list[tuple[str, Color]]) -> None:
    x, y = at
    for text, color in entries:
        canvas.rectangle((x, y - 0.025), (x + 0.06, y + 0.025), color)
        canvas.text((x + 0.08, y), text, INK, 11)
        x += 0.16 + 0.032 * len(text)


def _vectors(canvas: Canvas, plant: Plant, params: Params, origin: tuple[float, float], size: float) -> None:
    machine = params.machine
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
