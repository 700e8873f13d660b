"""Charts as SVG text: lines with bands, dots, planes. Colours and inks are the page's CSS variables, so that a chart is
dark where the page is; what is drawn is at most `POINTS` points a line, the extremes kept.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

COLORS = 8
"""Of lines, one after another; `page.STYLE` says which."""

POINTS = 600

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 480, 58, 20, 24, 34
"""Of a chart, in its own units; about pixels on a desk."""


class Line(NamedTuple):
    """What is drawn of one series."""

    name: str
    x: Any
    y: Any
    color: int = 0
    kind: str = "line"
    """`line`, `bold`, `thin`, `dash`, `dot`, `step` or `dots`."""
    low: Any = None
    """A band, behind."""
    high: Any = None
    shown: bool = True
    """Whether pointing at the chart tells its value, and the legend its name."""


def number(x: float) -> str:
    """Four digits, with thousands apart."""
    if x is None or not math.isfinite(x):
        return "–"
    if abs(x) >= 1e4:
        return f"{x:,.0f}" if abs(x) < 1e9 else f"{x:.3e}"
    return f"{x:.4g}"


def short(x: float) -> str:
    """A number as the axis of a figure shows it: 20k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= size and abs(x) >= 1e4 or (letter != "k" and abs(x) >= size):
            return f"{x / size:.6g}{letter}"
    return f"{x:.6g}"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, about so many."""
    span = high - low
    size = 10.0 ** math.floor(math.log10(span / count))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if span / (size * m) <= count)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [0.0 if k == 0 else k * step for k in range(first, last + 1)]


def thinned(x: np.ndarray, y: np.ndarray, points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest of each stretch of the series, in their order, and both ends; NaN where a stretch has none."""
    if len(y) <= points:
        return x, y
    edges = np.linspace(0, len(y), points // 2 + 1).astype(int)
    kept = [0]
    for a, b in zip(edges, edges[1:], strict=False):
        part = y[a:b]
        kept += [a] if np.isnan(part).all() else sorted({a + int(np.nanargmin(part)), a + int(np.nanargmax(part))})
    kept = sorted({*kept, len(y) - 1})
    return x[kept], y[kept]


def chart(
    lines: Sequence[Line],
    title: str,
    x: str,
    y: str = "",
    height: int = 230,
    equal: bool = False,
    plane: bool = False,
    zero: bool = False,
) -> str:
    """An SVG of the lines, and a legend of those that are shown under it.

    Args:
        title: what it shows, for who cannot see it; not drawn.
        x: under the axis.
        y: over the axis.
        equal: one scale for both axes.
        plane: pointing tells the nearest point in the plane, not that above the pointer.
        zero: the vertical axis has its zero.
    """
    lines = [line._replace(x=np.asarray(line.x, float), y=np.asarray(line.y, float)) for line in lines]
    x_low, x_high = _range([line.x[np.isfinite(line.y)] for line in lines], 0.0 if not plane else 0.06)
    seen = [part for line in lines for part in (line.y, line.low, line.high) if part is not None]
    y_low, y_high = _range(seen, 0.06, zero)
    right, bottom = WIDTH - RIGHT, height - BOTTOM
    if equal:  # the box keeps its shape, the shorter range grows
        scale = max((x_high - x_low) / (right - LEFT), (y_high - y_low) / (bottom - TOP))
        x_middle, y_middle = (x_low + x_high) / 2, (y_low + y_high) / 2
        x_low, x_high = (x_middle + side * scale * (right - LEFT) / 2 for side in (-1, 1))
        y_low, y_high = (y_middle + side * scale * (bottom - TOP) / 2 for side in (-1, 1))
    k_x, k_y = (right - LEFT) / (x_high - x_low), (bottom - TOP) / (y_high - y_low)

    def across(value: Any) -> Any:
        return LEFT + (value - x_low) * k_x

    def up(value: Any) -> Any:
        return bottom - (value - y_low) * k_y

    parts = []
    for value in ticks(y_low, y_high, max(3, (bottom - TOP) // 40)):
        at = up(value)
        parts.append(f'<path class="grid" d="M{LEFT},{at:.1f}H{right}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{short(value)}</text>')
    for value in ticks(x_low, x_high):
        at = across(value)
        parts.append(f'<path class="grid" d="M{at:.1f},{TOP}V{bottom}"/>')
        parts.append(f'<text class="tick" x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">{short(value)}</text>')
    parts.append(f'<text class="axis" x="{right}" y="{height - 4}" text-anchor="end">{html.escape(x)}</text>')
    parts.append(f'<text class="axis" x="2" y="13">{html.escape(y)}</text>' if y else "")
    for line in lines:
        if line.low is not None:
            parts.append(_band(line, across, up))
    for line in lines:
        parts.append(_drawn(line, across, up))
    scales = f'data-x="{x_low:.6g} {1 / k_x:.6g} {LEFT}" data-y="{y_low:.6g} {1 / k_y:.6g} {bottom}"'
    kind = ' data-plane=""' if plane else ""
    name = html.escape(f"{title}: {_words(lines)}")
    picture = (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{name}" {scales}{kind} '
        f'data-label="{html.escape(x)}">{"".join(parts)}<path class="cursor" d=""/></svg>'
    )
    return f'<figure><div class="plot">{picture}</div>{legend(lines)}</figure>'


def legend(lines: Iterable[Line]) -> str:
    """Names with their colours, but of dotted lines, which go with others; one alone is said by the chart's heading."""
    shown = list({line.name: line for line in lines if line.shown and line.kind != "dot"}.values())
    if len(shown) < 2:
        return ""
    keys = "".join(
        f'<li><svg viewBox="0 0 22 10" aria-hidden="true">{_key(line)}</svg>{html.escape(line.name)}</li>'
        for line in shown
    )
    return f'<ul class="legend">{keys}</ul>'


def strip(rows: Sequence[tuple[str, int, Sequence[tuple[str, float]], Any]], title: str, x: str) -> str:
    """One row an entry: dots with what they are called, and `(middle, low, high)` as a mark and a bar, or None.

    Rows are `(name, colour, dots, middle)`.
    """
    values = [v for _, _, dots, _ in rows for _, v in dots if math.isfinite(v)]
    low, high = _range([np.array(values)], 0.06)
    row, right = 34, WIDTH - RIGHT
    height = 12 + row * len(rows) + BOTTOM
    scale = (right - LEFT + 40) / (high - low)

    def across(value: float) -> float:
        return LEFT - 40 + (value - low) * scale

    parts = []
    for value in ticks(low, high):
        at = across(value)
        parts.append(f'<path class="grid" d="M{at:.1f},6V{height - BOTTOM}"/>')
        parts.append(
            f'<text class="tick" x="{at:.1f}" y="{height - BOTTOM + 15}" text-anchor="middle">{short(value)}</text>'
        )
    for i, (name, color, dots, middle) in enumerate(rows):
        y = 12 + row * i + 22
        parts.append(f'<text class="name" x="{LEFT - 40}" y="{y - 12}">{html.escape(name)}</text>')
        if middle is not None:
            centre, least, most = middle
            parts.append(f'<path class="bar c{color % COLORS}" d="M{across(least):.1f},{y}H{across(most):.1f}"/>')
            parts.append(
                f'<path class="mark c{color % COLORS}" d="M{across(centre):.1f},{y - 7}V{y + 7}"><title>'
                f"{html.escape(name)}: {number(centre)} ({number(least)} to {number(most)})</title></path>"
            )
        for label, value in dots:
            if math.isfinite(value):
                parts.append(
                    f'<circle class="seed f{color % COLORS}" cx="{across(value):.1f}" cy="{y}" r="4.5"><title>'
                    f"{html.escape(label)}: {number(value)}</title></circle>"
                )
    parts.append(f'<text class="axis" x="{right}" y="{height - 4}" text-anchor="end">{html.escape(x)}</text>')
    told = "; ".join(f"{name} {', '.join(number(v) for _, v in dots)}" for name, _, dots, _ in rows)
    return (
        f'<figure class="narrow"><div class="plot"><svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{html.escape(f"{title}: {told}")}">{"".join(parts)}</svg></div></figure>'
    )


def _range(values: Iterable[Any], room: float, zero: bool = False) -> tuple[float, float]:
    """Least and greatest of finite numbers, with some room; never of no length."""
    known = [np.asarray(v, float)[np.isfinite(np.asarray(v, float))].ravel() for v in values]
    joined = np.concatenate([*known, np.zeros(1 if zero else 0)])
    low, high = (float(joined.min()), float(joined.max())) if joined.size else (0.0, 1.0)
    span = high - low
    if span <= 1e-9 * max(abs(low), abs(high), 1e-9):
        around = abs(high) / 20 or 1.0
        return low - around, high + around
    return low - room * span, high + room * span


def _path(x: np.ndarray, y: np.ndarray, step: bool = False) -> str:
    """A polyline; a gap where a number is not finite, a dot for one between gaps."""
    pieces, drawing, before = [], False, ""
    for px, py in zip(x, y, strict=True):
        if not (math.isfinite(px) and math.isfinite(py)):
            drawing = False
            continue
        at = f"{px:.1f},{py:.1f}"
        if not drawing:
            pieces.append(f"M{at}h.01")
        elif at != before:
            pieces.append(f"H{px:.1f}V{py:.1f}" if step else f"L{at}")
        drawing, before = True, at
    return "".join(pieces)


def _drawn(line: Line, across: Any, up: Any) -> str:
    name = f' data-name="{html.escape(line.name)}"' if line.shown else ""
    x, y = line.x, line.y
    if line.kind == "dots" or np.isfinite(y).sum() == 1:
        dots = [(across(a), up(b)) for a, b in zip(x, y, strict=True) if math.isfinite(a) and math.isfinite(b)]
        told = "".join(f"M{a:.1f},{b:.1f}h.01" for a, b in dots)
        return f'<path class="l dots c{line.color % COLORS}"{name} d="{told}"/>'
    x, y = thinned(x, y)
    step = line.kind == "step"
    return f'<path class="l {line.kind} c{line.color % COLORS}"{name} d="{_path(across(x), up(y), step)}"/>'


def _band(line: Line, across: Any, up: Any) -> str:
    """The region between `low` and `high`, in as many pieces as both are known in."""
    x, low, high = (np.asarray(v, float) for v in (line.x, line.low, line.high))
    known = np.isfinite(low) & np.isfinite(high)
    pieces = []
    for part in np.split(np.arange(len(x)), np.flatnonzero(np.diff(known)) + 1):
        if len(part) > 1 and known[part[0]]:
            there = [f"{across(x[i]):.1f},{up(high[i]):.1f}" for i in part]
            back = [f"{across(x[i]):.1f},{up(low[i]):.1f}" for i in part[::-1]]
            pieces.append("M" + "L".join([*there, *back]) + "Z")
    return f'<path class="band f{line.color % COLORS}" d="{"".join(pieces)}"/>'


def _key(line: Line) -> str:
    if line.kind == "dots":
        return f'<circle class="f{line.color % COLORS}" cx="11" cy="5" r="4"/>'
    kind = "line" if line.kind == "step" else line.kind
    return f'<path class="l {kind} c{line.color % COLORS}" d="M1,5H21"/>'


def _words(lines: Iterable[Line]) -> str:
    """First, last, least and greatest of each line that is shown, for who cannot see it."""
    told = []
    for line in lines:
        y = line.y[np.isfinite(line.y)]
        if line.shown and y.size:
            told.append(
                f"{line.name} from {number(y[0])} to {number(y[-1])}, least {number(y.min())}, "
                f"greatest {number(y.max())}"
            )
    return "; ".join(told) or "nothing to draw"
