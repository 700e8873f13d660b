"""What a drive did, in SI units: a closed loop recorded, its errors, and one HTML page to look into. Host only.

    run, actions = record(env, params, controllers.make(env), jax.random.key(0), 2000)
    tracking(env, params, run)                       {'i_sd': {'mean': ...}, ...}
    write_report("drive.html", env, params, run)     needs plotly: pip install 'jaxrl[report]'

A run is a dict of arrays (T + 1,) by name, as `simulate` returns; what a quantity should be has its name with a star.
`plots.py` has the same as pictures.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import html
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxrl.canvas import COLORS

from ..control.controllers import Controller
from ..control.outer_loops import signals_wanted
from ..drive import MotorDrive
from ..machines.machine import Ratings
from ..plant import Params
from .torque_speed import borders
from .units import unit


def check_names(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise ValueError for the first name that is not known, with the nearest that is."""
    known = list(known)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{what} has no {name!r}.{hint} It has {', '.join(known)}.")


# ---- recording


def record(
    env: MotorDrive, params: Params, controller: Controller, key: Key[Array, ""], steps: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A closed loop as `simulate` shows an open one, `steps + 1` samples in SI units, and its actions, (steps, ...).

    With references, `i_sd*`: each sample's is the one that it was judged by. `reward` and `violation` are 0 at the
    first sample. Nothing ends the loop. `controller` may be any with those functions, a learned policy's `act` too,
    which has the observation from `env.observe(key, state, params)`.
    """
    if steps < 1:
        raise ValueError(f"steps={steps} must be at least 1.")
    run, actions = _closed_loop(env, params, controller, key, steps)
    order = (*params.machine.states, *env.names(params), *run)  # jit returns names sorted
    return {name: np.asarray(run[name]) for name in dict.fromkeys(order)}, np.asarray(actions)


@functools.partial(jax.jit, static_argnames=("env", "controller", "steps"))
def _closed_loop(env: MotorDrive, params: Params, controller: Controller, key: Any, steps: int) -> Any:
    reset_key, key = jax.random.split(key)
    _, start = env.reset(reset_key, params)
    gains = controller.tune(params)

    def wanted(state):
        return {f"{name}*": x for name, x in signals_wanted(env, params, state).items()}

    def measured(plant):
        own = dict(zip(params.machine.states, plant.motor, strict=True))
        return {**own, **env.signals(plant, params)}

    def body(loop, key):
        state, carry = loop
        action, carry = controller.act(params, state, carry, gains)
        ts = env.step(key, state, action, params)
        judged = {"reward": ts.reward, "violation": ts.info["violation"]}
        return (ts.state, carry), ({**measured(ts.state.plant), **wanted(state), **judged}, action)

    _, (rest, actions) = jax.lax.scan(body, (start, controller.init()), jax.random.split(key, steps))
    first = {**measured(start.plant), **wanted(start)}
    run = {name: jnp.concatenate([jnp.asarray(first.get(name, 0.0))[None], x]) for name, x in rest.items()}
    return run, actions


def tracking(env: MotorDrive, params: Params, run: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Of every quantity with a reference in `run`: mean, root mean square and largest error in its unit after the first
    sample, and the mean of its limit (`share`)."""
    table = {}
    for name in (star[:-1] for star in run if star.endswith("*")):
        error = np.abs(np.asarray(run[name], float) - np.asarray(run[f"{name}*"], float))[1:]
        table[name] = {
            "mean": float(error.mean()),
            "rms": float(np.sqrt((error**2).mean())),
            "largest": float(error.max()),
            "share": float(error.mean() / env.limit(name, params)),
        }
    return table


# ---- the page


def panels(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by their unit: what shares an axis."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(unit(name), []).append(name)
    return found


def clock(samples: int, tau: Any) -> tuple[np.ndarray, str]:
    """Times of the samples, and their unit: ms, or s where it is long."""
    seconds = np.arange(samples) * float(tau)
    return (seconds, "s") if seconds[-1] > 0.5 else (1e3 * seconds, "ms")


def parameters(params: Params) -> list[tuple[str, str, str, str]]:
    """Of the drive: (part, name, value, unit), of everything but the task's."""
    rows = [("control step", "tau", f"{float(params.tau):.4g}", "s")]
    for part in ("machine", "limits", "nominal", "load", "supply"):
        owner = getattr(params, part)
        of = part if isinstance(owner, Ratings) else f"{part} ({type(owner).__name__})"
        for field in dataclasses.fields(owner):
            value = getattr(owner, field.name)
            if value is not None and not isinstance(value, bool) and not callable(value):
                shown = f"{float(value):.4g}" if np.ndim(value) == 0 else f"array of shape {np.shape(value)}"
                rows.append((of, field.name, shown, unit(field.name)))
    return rows


# plotly 7 has a button that uploads the figure unless told otherwise, and the policy keeps the page offline whatever is
# in plotly's script.
CONFIG = {"showSendToCloud": False, "plotlyServerURL": "", "displaylogo": False, "responsive": True}
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
LAYOUT = {"template": "plotly_white", "margin": {"l": 70, "r": 20, "t": 20, "b": 50}}
STYLE = """body { font: 15px/1.4 sans-serif; color: #1a202c; max-width: 1100px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .15em .9em .15em 0; text-align: left }
th { border-bottom: 1px solid #a0aec0 } td.number { text-align: right; font-variant-numeric: tabular-nums }"""


def write_report(
    out: str | Path,
    env: MotorDrive,
    params: Params,
    run: Mapping[str, Any],
    names: Iterable[str] | None = None,
    title: str | None = None,
) -> Path:
    """One HTML file that needs no network: the drive and its parameters, `run` over time with zoom and hover, its path
    in the torque-speed plane, and tracking errors. plotly's 5 MB of script are in it.

    Args:
        names: signals of `run` over time; default: all measured quantities, without angles.

    Raises ValueError for a name that `run` has not, ImportError without plotly (`pip install 'jaxrl[report]'`).
    """
    try:
        import plotly.graph_objects  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("write_report needs plotly: pip install 'jaxrl[report]'.") from error
    if names is None:
        names = [name for name in env.names(params) if unit(name) not in ("rad", "") or f"{name}*" in run]
    names = list(names)
    check_names(names, run, "the run")
    figures = (_time_figure(params.tau, run, names), _plane_figure(env, params, run))
    settings = {"full_html": False, "config": CONFIG}
    over_time, plane = (
        figure.to_html(include_plotlyjs=i == 0, div_id=("time", "plane")[i], **settings)
        for i, figure in enumerate(figures)
    )
    errors = [
        (name, f"{e['mean']:.4g}", f"{e['rms']:.4g}", f"{e['largest']:.4g}", unit(name), f"{100 * e['share']:.3g}")
        for name, e in tracking(env, params, run).items()
    ]
    header = html.escape(title or env.id)
    steps = len(run[names[0]]) - 1
    summary = f"{env.motor} on {type(env.converter).__name__}, {steps} control steps of {float(params.tau) * 1e3:g} ms"
    if "reward" in run:
        summary += f"; mean reward a step {np.mean(run['reward'][1:]):.4g}"
    if "violation" in run:
        summary += f"; a constraint violated in {int(np.sum(run['violation']))} of them"
    pieces = [
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>",
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{header}</title>',
        f"<style>{STYLE}</style></head><body><h1>{header}</h1><p>{html.escape(env.id)}: {summary}.</p>",
        "<h2>Tracking errors</h2>" if errors else "",
        _table(("signal", "mean", "rms", "largest", "unit", "mean, % of limit"), errors) if errors else "",
        "<h2>Over time</h2><p>Drag to zoom, double click to go back; click a name to hide it.</p>",
        over_time,
        "<h2>Torque-speed plane</h2>",
        plane,
        "<h2>The drive</h2>",
        _table(("part", "parameter", "value", "unit"), parameters(params)),
        "</body></html>",
    ]
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(pieces), encoding="utf-8")
    return out


def _time_figure(tau: Any, run: Mapping[str, Any], names: list[str]) -> Any:
    from plotly.subplots import make_subplots  # pyright: ignore[reportMissingImports]

    groups = panels(names)
    time, seconds = clock(len(run[names[0]]), tau)
    axis = {"x0": 0, "dx": time[1], "mode": "lines"}  # in place of times for every line, which would double the file
    figure = make_subplots(len(groups), 1, shared_xaxes=True, vertical_spacing=0.12 / len(groups))
    for row, (what, members) in enumerate(groups.items(), 1):
        for i, name in enumerate(members):
            color = COLORS[i % len(COLORS)]
            for line, dash in ((name, "solid"), (f"{name}*", "dot")):
                if line in run:
                    y, style = np.asarray(run[line], np.float32), {"color": color, "dash": dash}
                    figure.add_scatter(y=y, name=line, line=style, legend=f"legend{row}", row=row, col=1, **axis)
        figure.update_yaxes(title_text=f"[{what}]" if what else "", row=row, col=1)
        top = figure.layout[f"yaxis{row}"].domain[1]
        figure.update_layout({f"legend{row}": {"y": top, "yanchor": "top"}})
    figure.update_xaxes(title_text=f"time [{seconds}]", row=len(groups), col=1)
    figure.update_layout(height=190 * len(groups) + 80, hovermode="x unified", hoversubplots="axis", **LAYOUT)
    return figure


def _plane_figure(env: MotorDrive, params: Params, run: Mapping[str, Any]) -> Any:
    import plotly.graph_objects as go  # pyright: ignore[reportMissingImports]

    speeds, found = borders(env, params, {"": run})
    figure = go.Figure()
    for (label, (least, most)), dash in zip(found.items(), ("solid", "dash"), strict=True):
        x, y = np.concatenate([speeds, [np.nan], speeds]), np.concatenate([most, [np.nan], least])
        figure.add_scatter(x=x, y=y, name=label, mode="lines", line={"color": COLORS[-1], "dash": dash})
    torque, omega = (np.asarray(x, float) for x in params.machine.base_point(params.nominal))
    figure.add_scatter(x=[omega], y=[torque], name="base point", mode="markers", marker={"color": "black", "size": 9})
    time, seconds = clock(len(run["omega"]), params.tau)
    hover = f"%{{x:.4g}} rad/s, %{{y:.4g}} N m at %{{customdata:.4g}} {seconds}<extra></extra>"
    path = {"customdata": time.astype(np.float32), "hovertemplate": hover, "line": {"color": COLORS[0]}}
    x, y = (np.asarray(run[name], np.float32) for name in ("omega", "torque"))
    figure.add_scatter(x=x, y=y, name="run", mode="lines", **path)
    figure.update_xaxes(title_text="omega [rad/s]")
    figure.update_yaxes(title_text="torque [N m]")
    figure.update_layout(height=460, **LAYOUT)
    return figure


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    def cell(text):
        number = text.removeprefix("-")[:1].isdigit()
        return f"<td{' class=number' if number else ''}>{html.escape(text)}</td>"

    head = "".join(f"<th>{html.escape(text)}</th>" for text in header)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>\n" for row in rows)
    return f"<table><tr>{head}</tr>\n{body}</table>"
