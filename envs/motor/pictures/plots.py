"""Figures of drives, by matplotlib. Host only.

Of runs, dicts of signals in SI units by name as `simulate` or `report.record` returns: over time, in the torque-speed
plane, and with what the half bridges do (`figure.savefig("x.png")`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrl.canvas import COLORS, new_figure

from .. import tasks
from ..converters import LOWER, UPPER
from ..drive import MotorDrive
from ..plant import Params
from .report import check_names, clock, panels
from .torque_speed import borders

INK_LINE, GREY_LINE = "#1a202c", "#718096"
"""Of figures."""


def plot_time(
    run: Mapping[str, Any],
    tau: Any,
    names: Iterable[str],
    references: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
) -> Any:
    """Signals over time, a panel for each unit, as a matplotlib Figure.

    Args:
        tau: s, from sample to sample.
        references: by name, in SI units, numbers or (T + 1,), drawn dark over what should follow them; what is not in
            it is `run[f"{name}*"]`, where there is one.
        limits: by name, in SI units: dashed, on either side. A voltage's is that of each winding, half of the link's;
            windings within it make more on turning axes, so where such a voltage (`u_sd`, `u_sq`) has a limit, dotted
            lines are the most that they make, in the corners of the bridge's hexagon.

    Raises ValueError for a name that the run has not.
    """
    names, limits = list(names), dict(limits or {})
    references = {name[:-1]: x for name, x in run.items() if name.endswith("*")} | dict(references or {})
    for given in (names, references, limits):
        check_names(given, run, "the run")
    if not names:
        raise ValueError("plot_time needs at least one name.")
    groups = panels(names)
    reaches = _reaches(run)
    time, seconds = clock(len(run[names[0]]), tau)
    figure, grid = _figure(len(groups), 1.7 * len(groups) + 0.9)
    for axes, (unit, members) in zip(grid, groups.items(), strict=True):
        for name, color in zip(members, _colors(len(members)), strict=True):
            axes.plot(time, run[name], color=color, linewidth=2.2 if name in references else 1.3)
            if name in references:  # thin, so that what follows it well is still seen
                wanted = np.broadcast_to(np.asarray(references[name], float), time.shape)
                axes.step(time, wanted, color=INK_LINE, linewidth=0.8, where="pre")
        signed = any(np.min(run[name]) < 0 for name in members if name in limits)
        for limit in {float(limits[name]) for name in members if name in limits}:
            for y in (limit, -limit) if signed else (limit,):
                axes.plot(time[[0, -1]], [y, y], color=GREY_LINE, linestyle="--", linewidth=1)
        for most in [reaches[name] for name in members if name in limits and name in reaches][:1]:  # alike for all
            for y in (most, -most) if signed else (most,):
                axes.plot(time, y, color=GREY_LINE, linestyle=":", linewidth=1.2)
        axes.set(ylabel=f"[{unit}]" if unit else "", xlim=(time[0], time[-1]))
        _label_ends(axes, {name: float(np.asarray(run[name])[-1]) for name in members})
    grid[-1].set_xlabel(f"time [{seconds}]")
    keys = {"reference": {"color": INK_LINE, "linewidth": 0.8}} if set(names) & set(references) else {}
    limited = set(names) & set(limits)
    turned = bool(limited & set(reaches))
    label = "limit (of voltages: a phase's)" if turned else "limit"
    keys |= {label: {"color": GREY_LINE, "linestyle": "--", "linewidth": 1}} if limited else {}
    if turned:
        keys["most that phases make on d, q"] = {"color": GREY_LINE, "linestyle": ":"}
    _keys(figure, keys)
    return figure


def _reaches(run: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The most [V] that a bridge makes of voltages on turning axes, (T + 1,), by the machine of these signals."""
    if "u_sup" not in run:  # no bridge
        return {}
    machines = [tasks.machine(motor, False) for motor in tasks.MOTORS]
    fitting = [machine for machine in machines if {*machine.currents, *machine.voltages} <= set(run)]
    machine = max(fitting, key=lambda machine: len(machine.voltages), default=None)
    if machine is None:
        return {}
    link = np.asarray(run["u_sup"], float)
    return {name: machine.vector_reach * link for name in machine.voltages if name in machine.axes}


def plot_torque_speed(env: MotorDrive, params: Params, runs: Mapping[str, Mapping[str, Any]] | None = None) -> Any:
    """The torque that the machine can make at each speed (`machines/envelope.py`), at its limit and its nominal
    current, and the paths of `runs` by name, from a dot to a square, as a matplotlib Figure."""
    runs = dict(runs or {})
    speeds, found = borders(params, runs, env.voltage_radius)
    figure, (axes,) = _figure(1, 4.4)
    for (label, (least, most)), style in zip(found.items(), ("-", "--"), strict=True):
        (line,) = axes.plot(speeds, most, style, color=GREY_LINE, linewidth=1.5, label=label)
        if np.nanmin(least) < 0:
            axes.plot(speeds, least, style, color=line.get_color(), linewidth=1.5)
        if style == "-":
            axes.fill_between(speeds, least, most, color=GREY_LINE, alpha=0.12, linewidth=0)
    torque, omega = (float(x) for x in params.machine.base_point(params.nominal))
    if omega <= speeds[-1]:
        axes.plot([omega], [torque], "o", color=INK_LINE, markersize=6, label="base point", zorder=3)
    for (name, run), color in zip(runs.items(), _colors(len(runs)), strict=True):
        axes.plot(run["omega"], run["torque"], color=color, linewidth=1, label=name)
        axes.plot(run["omega"][:1], run["torque"][:1], "o", color=color, markersize=4)
        axes.plot(run["omega"][-1:], run["torque"][-1:], "s", color=color, markersize=4)
    axes.set(xlabel="omega [rad/s]", ylabel="torque [N m]", xlim=(speeds[0], speeds[-1]))
    axes.axhline(0, color=INK_LINE, linewidth=0.6)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return figure


def plot_switching(env: MotorDrive, actions: Any, tau: Any, run: Mapping[str, Any]) -> Any:
    """What each half bridge does over time, and the currents that come of it beneath, as a matplotlib Figure.

    `actions`, (T,) or (T, A), are those of `run`, (T + 1,) samples. Finite control sets: filled where the upper switch
    conducts, a gap where both are off; continuous: the duty cycle, between the two lines.

    Raises ValueError where actions do not fit, or are on turning axes, so that they are no duty cycles.
    """
    duties = half_bridges(env, actions)
    machine = env.default_params.machine
    currents = [name for name in machine.currents if name not in machine.axes]
    samples = len(run[currents[0]])
    if any(len(duty) != samples - 1 for duty in duties.values()):
        raise ValueError(f"{env.id}: {np.shape(actions)[0]} actions do not belong to {samples} samples of a run.")
    time, seconds = clock(samples, tau)
    figure, (above, below) = _figure(2, 0.42 * len(duties) + 3.0, heights=(0.42 * len(duties) + 0.3, 1.8))
    rows = len(duties) - 1 - np.arange(len(duties))
    for row, duty, color in zip(rows, duties.values(), _colors(len(duties)), strict=True):
        held = row + 0.8 * np.append(duty, duty[-1])
        above.fill_between(time, row, held, step="post", color=color, alpha=0.45, linewidth=0)
        above.step(time, held, where="post", color=color, linewidth=0.7)
        for y in (row, row + 0.8):
            above.axhline(y, color=GREY_LINE, linewidth=0.5)
    above.set_yticks(rows + 0.4, list(duties))
    above.set(ylabel="upper switch" if env.converter.finite else "duty cycle", xlim=(time[0], time[-1]))
    above.grid(False)
    for name, color in zip(currents, _colors(len(currents)), strict=True):
        below.plot(time, run[name], color=color, linewidth=1.1)
    below.set(ylabel="[A]", xlabel=f"time [{seconds}]")
    _label_ends(below, {name: float(np.asarray(run[name])[-1]) for name in currents})
    return figure


def half_bridges(env: MotorDrive, actions: Any) -> dict[str, np.ndarray]:
    """By half bridge, what share of each control step its upper switch is to conduct, (T,); NaN where both are off.

    Named by the voltage that it makes; with `+` and `-` where two make one. Dead time delays it. Raises ValueError for
    actions that do not fit, or are on turning axes.
    """
    if env.dq_actions or not env.converter.half_bridges:
        raise ValueError(f"{env.id}: its actions do not say what half bridges do (dq_actions, or no converter).")
    converter, actions = env.converter, jnp.asarray(actions)
    columns = actions[:, None] if actions.ndim == 1 else actions
    if columns.ndim != 2 or columns.shape[1] != converter.num_actions:
        raise ValueError(f"{env.id}: actions have shape {actions.shape}; it needs (T, {converter.num_actions}).")
    late = min(env.dead_time, len(columns))
    columns = jnp.concatenate([jnp.zeros_like(columns[:late]), columns[: len(columns) - late]])
    commands = [np.asarray(x) for x in converter.command(tuple(columns.T))]
    if converter.finite:
        commands = [np.select([x == UPPER, x == LOWER], [1.0, 0.0], np.nan) for x in commands]
    machine, names = env.default_params.machine, []
    phases = [name for name in machine.voltages if name not in machine.axes]
    for part in converter.each:
        made, phases = phases[: part.outputs], phases[part.outputs :]
        twice = part.half_bridges > part.outputs
        names += [f"{name}{sign}" for name in made for sign in (("+", "-") if twice else ("",))]
    return dict(zip(names, commands, strict=True))


def _figure(rows: int, height: float, heights: Iterable[float] | None = None) -> tuple[Any, Any]:
    """A figure and its axes from top to bottom."""
    figure = new_figure(figsize=(7, height), layout="constrained")
    settings = {"height_ratios": list(heights)} if heights else {}
    grid = figure.subplots(rows, 1, sharex=True, squeeze=False, gridspec_kw=settings)[:, 0]
    for axes in grid:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    figure.align_ylabels(grid)
    return figure, grid


def _colors(count: int) -> list[str]:
    return [COLORS[i % len(COLORS)] for i in range(count)]


def _label_ends(axes: Any, ends: dict[str, float]) -> None:
    """Names next to where their lines end, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    gap = (high - low) / 8
    colors = dict(zip(ends, _colors(len(ends)), strict=True))
    order = sorted(ends, key=lambda name: ends[name])
    heights = [ends[name] for name in order]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    moved = sum(heights) / len(heights) - sum(ends.values()) / len(ends)
    down = max(min(moved, heights[0] - low), heights[-1] - high)
    for name, y in zip(order, heights, strict=True):
        axes.annotate(
            name,
            (1, y - down),
            (6, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            color=colors[name],
            va="center",
            annotation_clip=False,
        )


def _keys(figure: Any, styles: dict[str, dict[str, Any]]) -> None:
    """A legend of lines that are in every panel, above them."""
    from matplotlib.lines import Line2D

    if styles:
        lines = [Line2D([], [], label=name, **style) for name, style in styles.items()]
        figure.legend(handles=lines, loc="outside upper center", ncols=len(lines), frameon=False, fontsize=9)
