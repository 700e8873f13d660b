"""An episode over time as a part of a page: errors, signals by unit, actions, reward terms, planes, parameters."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.host.report.page import folded, page, table, text
from jaxrl.host.report.svg import COLORS, Line, chart, number
from jaxrl.telemetry import Episode, Plane, Quantity, panels, split

ENDS = {"terminated": "the task ended it", "truncated": "its time was up", "cut": "cut there"}
ACTS = {"greedy": "acting greedily", "sampled": "acting by samples", "search": "acting by search"}


def write_episode(out: str | Path, episode: Episode, title: str | None = None) -> Path:
    """A page of one episode: of a classical controller, say, that no run folder knows of."""
    title = title or episode.env
    made = f"jaxrl, {datetime.date.today().isoformat()}"
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page(title, f"{episode.env}; {made}", section(episode)), encoding="utf-8")
    return out


def section(episode: Episode, level: int = 3) -> str:
    """What is said and shown of an episode; headings are of this level."""
    told, (time, what) = episode.told, episode.clock()
    words = [f"{episode.steps:,} steps"]
    if episode.period is not None:
        words[0] += f" of {number(episode.period)} s"
    words.append(f"return {number(float(np.nansum(episode.rewards['reward'])))}")
    words += [f"seed {told['seed']}"] if "seed" in told else []
    words += [ACTS[told["act"]]] if told.get("act") in ACTS else []
    words += [f"after {told['update']} updates"] if "update" in told else []
    words += [ENDS[told["end"]]] if told.get("end") in ENDS else []
    parts = [f"<p>{text(', '.join(words))}. Dotted: references; dashed: limits. Point at a chart to read it.</p>"]
    if errors := episode.errors():
        header = ["signal", "mean", "rms", "largest", "unit"]
        rows = [
            [split(name)[0], *(number(e[k]) for k in ("mean", "rms", "largest")), split(name)[1]]
            for name, e in errors.items()
        ]
        shares = [e["share"] for e in errors.values()]
        if np.isfinite(shares).any():
            header.append("mean, % of limit")
            rows = [[*row, f"{100 * x:.3g}" if np.isfinite(x) else "–"] for row, x in zip(rows, shares, strict=True)]
        parts.append(f"<h{level}>Tracking errors</h{level}>")
        parts.append(table(header, rows))
    axis = "steps" if what == "steps" else f"time [{what}]"
    charts = []
    for unit, names in panels(list(episode.signals)).items():
        for some in _apart(names, episode.signals):
            signals = {name: episode.signals[name] for name in some}
            heading = ", ".join(split(name)[0] for name in some)
            charts.append(_over_time(time, signals, heading, axis, f"[{unit}]" if unit else ""))
    held = {name: q._replace(value=_held(q.value)) for name, q in episode.actions.items()}
    for some in _apart(list(held), held):
        charts.append(_over_time(time, {n: held[n] for n in some}, "actions", axis, "", "step"))
    terms = list(episode.rewards.items())
    lines = [
        Line(name, time[1:], x, 5 if name == "reward" else (i - 1) % 5, "bold" if name == "reward" else "line")
        for i, (name, x) in enumerate(terms)
    ]
    charts.append(_figure("reward and its terms" if len(terms) > 1 else "reward", chart(lines, "reward", axis)))
    parts.append(f'<h{level}>Over time</h{level}><div class="grid2">{"".join(charts)}</div>')
    if episode.planes:
        planes = "".join(_plane(plane) for plane in episode.planes)
        parts.append(f'<h{level}>In the plane</h{level}><div class="grid2">{planes}</div>')
    if episode.parameters:
        parts.append(folded("Parameters of the task", table(("name", "value", ""), episode.parameters)))
    return "\n".join(parts)


def _apart(names: list[str], signals: Mapping[str, Quantity], most: int = COLORS) -> list[list[str]]:
    """Names in charts of at most so many; what has a reference comes first, together."""
    wanted = [name for name in names if signals[name].reference is not None]
    rest = [name for name in names if name not in wanted]
    groups = [wanted, rest] if wanted and len(names) > 4 else [names]
    return [group[i : i + most] for group in groups for i in range(0, len(group), most)]


def _held(x: Any) -> np.ndarray:
    """The last action is held until the last sample."""
    return np.append(x, x[-1:])


def _over_time(
    time: np.ndarray, signals: Mapping[str, Quantity], heading: str, axis: str, unit: str, kind: str = "line"
) -> str:
    from jaxrl.host.run.episodes import _near

    lines = []
    limits: dict[Any, int] = {}
    for i, (name, (value, reference, low, high)) in enumerate(signals.items()):
        what = split(name)[0]
        lines.append(Line(what, time, value, i, kind))
        if reference is not None:
            lines.append(Line(f"{what} wanted", time, np.broadcast_to(reference, time.shape), i, "dot"))
        for limit in (low, high):
            if limit is not None and _near(limit, value):
                limits.setdefault(limit if isinstance(limit, float | int) else tuple(limit), i)
    shared = len(limits) < len(signals) or len(signals) == 1
    for limit, i in limits.items():
        y = np.broadcast_to(np.asarray(limit, float), time.shape)
        lines.append(Line("limit", time, y, 5 if shared else i, "dash", shown=False))
    return _figure(heading, chart(lines, heading, axis, unit))


def _figure(heading: str, drawn: str) -> str:
    return drawn.replace("<figure>", f"<figure><figcaption>{text(heading)}</figcaption>", 1)


def _plane(plane: Plane) -> str:
    kinds = {"path": "line", "line": "line", "dash": "dash", "dots": "dots"}
    lines, color, alone = [], -1, sum(curve.style == "path" for curve in plane.curves) == 1
    for curve in plane.curves:
        color += curve.style == "path"
        own = 5 if curve.style in ("line", "dash") else 1 if alone and curve.style == "dots" else max(color, 0)
        lines.append(Line(curve.name, curve.x, curve.y, own, kinds[curve.style]))
        if curve.style == "path":
            x, y = (np.asarray(v, float) for v in (curve.x, curve.y))
            lines.append(Line(f"{curve.name}: start", x[:1], y[:1], own, "dots"))
    drawn = chart(lines, plane.title, plane.x, plane.y, height=320, equal=plane.equal, plane=True)
    return _figure(plane.title, drawn)
