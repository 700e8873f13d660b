"""What a drive did, in SI units: a closed loop recorded, its errors, and what a report shows of it. Host only.

    run, actions = record(env, params, controllers.make(env), jax.random.key(0), 2000)
    tracking(env, params, run)                       {'i_sd': {'mean': ...}, ...}
    jaxrl.host.report.write_episode("drive.html", episode(env, params, run, actions))

A run is a dict of arrays (T + 1,) by name, as `simulate` returns; what a quantity should be has its name with a star.
`plots.py` has the same as pictures. A trained policy's episode is in the report of its run folder, `jaxrl report`.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxrl.telemetry import Episode, Quantity

from ..control.controllers import Controller
from ..control.outer_loops import signals_wanted
from ..drive import MotorDrive
from ..machines.machine import Ratings
from ..plant import Params
from .torque_speed import plane
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


# ---- what is shown of it


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


def parameters(params: Params) -> list[tuple[str, str, str]]:
    """Of the drive: name, value and unit, of everything but the task's."""
    rows = [("control step: tau", f"{float(params.tau):.4g}", "s")]
    for part in ("machine", "limits", "nominal", "load", "supply"):
        owner = getattr(params, part)
        of = part if isinstance(owner, Ratings) else f"{part} ({type(owner).__name__})"
        for field in dataclasses.fields(owner):
            value = getattr(owner, field.name)
            if value is not None and not isinstance(value, bool) and not callable(value):
                shown = f"{float(value):.4g}" if np.ndim(value) == 0 else f"array of shape {np.shape(value)}"
                rows.append((f"{of}: {field.name}", shown, unit(field.name)))
    return rows


def episode(
    env: MotorDrive,
    params: Params,
    run: Mapping[str, Any],
    actions: Any = None,
    names: Iterable[str] | None = None,
) -> Episode:
    """`run` as a report shows it: signals with references and limits, actions, reward, the torque-speed plane, and the
    drive's parameters.

    Args:
        actions: (T,) or (T, A), those of `run`; default: not shown.
        names: signals of `run`; default: all measured quantities, without angles.

    Raises ValueError for a name that `run` has not.
    """
    if names is None:
        names = [name for name in env.names(params) if unit(name) not in ("rad", "") or f"{name}*" in run]
    names = list(names)
    check_names(names, run, "the run")
    table, signals = env.measured(params), {}
    for name in names:
        most = float(table[name].limit(params, params.limits)) if name in env.ending else None
        least = None if most is None or table[name].low == 0 else -most
        signals[f"{name} [{unit(name)}]"] = Quantity(np.asarray(run[name]), run.get(f"{name}*"), least, most)
    acted = {}
    if actions is not None:
        columns = np.asarray(actions, float).reshape(len(run[names[0]]) - 1, -1)
        finite = env.converter.finite
        acted = {
            name: Quantity(column, None, None if finite else float(low), None if finite else 1.0)
            for name, column, low in zip(env.action_names, columns.T, _lows(env, params, columns.shape[1]), strict=True)
        }
    steps = len(run[names[0]]) - 1
    rewards = {name: np.asarray(run[name])[1:] for name in ("reward", "violation") if name in run}
    return Episode(
        env.id,
        float(params.tau),
        signals,
        acted,
        rewards or {"reward": np.full(steps, np.nan)},
        [plane(params, run, env.voltage_radius)],
        parameters(params),
    )


def _lows(env: MotorDrive, params: Params, count: int) -> np.ndarray:
    """The least of each number of a continuous action."""
    return np.broadcast_to(getattr(env.action_space(params), "low", np.nan), (count,))
