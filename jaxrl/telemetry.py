"""What an episode looks like over time: quantities of states by name, with what they should be and may be.

Names end in their unit in brackets where they have one: `x [m]`. `Environment.telemetry` says what is measured of a
state, `Environment.observation_names` and `action_names` what the numbers of an observation and an action are, and
`Environment.planes` which curves in a plane belong to an episode. `Episode` holds one, as arrays of numpy;
`jaxrl.host.run.episodes` records, keeps and draws it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Quantity(NamedTuple):
    """One number of a state (of M agents: an array (M,)); what is None is not known or not asked for."""

    value: Any
    reference: Any = None
    """What it should be."""
    low: Any = None
    """Least and greatest that it may be."""
    high: Any = None


class Curve(NamedTuple):
    """A line in a plane, or dots."""

    name: str
    x: Any
    y: Any
    style: str = "line"
    """`path` (what was gone through), `line`, `dash` or `dots`."""


class Plane(NamedTuple):
    """Curves of two quantities, with the names of these."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    equal: bool = False
    """One scale for both axes: a map."""


def split(name: str) -> tuple[str, str]:
    """`x [m]` as `("x", "m")`."""
    if name.endswith("]") and " [" in name:
        at = name.rindex(" [")
        return name[:at], name[at + 2 : -1]
    return name, ""


def named(names: Sequence[str], prefix: str) -> list[str]:
    """The names with something before each, and the unit still last."""
    return [f"{prefix}{name}" for name in names]


def panels(names: Sequence[str]) -> dict[str, list[str]]:
    """Names by their unit: what shares an axis."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(split(name)[1], []).append(name)
    return found


def period(env: Any, params: Any) -> float | None:
    """Seconds of a step of the task's own clock, or None where it has none."""
    while hasattr(env, "env"):  # what wraps it does not change its clock
        env = env.env
    if hasattr(params, "tau") and not hasattr(params, "dt"):
        return float(params.tau)
    return float(params.dt) * getattr(env, "substeps", 1) if hasattr(params, "dt") else None


@dataclasses.dataclass(frozen=True)
class Episode:
    """T steps of one episode, as arrays of numpy."""

    env: str
    period: float | None
    """Seconds of a step; None: time is counted in steps."""
    signals: Mapping[str, Quantity]
    """Signals by name, each (T + 1,); references likewise, limits (T + 1,) or numbers."""
    actions: Mapping[str, Quantity]
    """Actions by name, each (T,)."""
    rewards: Mapping[str, Any]
    """`reward`, and its terms where the task names them, each (T,)."""
    planes: Sequence[Plane] = ()
    parameters: Sequence[tuple[str, str, str]] = ()
    """Name, value and unit or meaning."""
    told: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What else is known: `seed`, `act`, `end`, `update`."""

    @property
    def steps(self) -> int:
        return len(np.asarray(next(iter(self.rewards.values()))))

    def clock(self) -> tuple[np.ndarray, str]:
        """Times of the T + 1 samples, and their unit: ms where it is short, s, or steps."""
        count = np.arange(self.steps + 1)
        if self.period is None:
            return count.astype(float), "steps"
        seconds = count * self.period
        return (seconds, "s") if seconds[-1] > 0.5 else (1e3 * seconds, "ms")

    def errors(self) -> dict[str, dict[str, float]]:
        """Of every signal with a reference: mean, root mean square and largest error after the first sample, and the
        mean as a share of its upper limit, NaN without one."""
        table = {}
        for name, (value, reference, _, high) in self.signals.items():
            if reference is not None:
                error = np.abs(np.asarray(value, float) - np.asarray(reference, float))[1:]
                most = np.nan if high is None else float(np.max(high))
                table[name] = {
                    "mean": float(error.mean()),
                    "rms": float(np.sqrt((error**2).mean())),
                    "largest": float(error.max()),
                    "share": float(error.mean() / most) if np.isfinite(most) and most > 0 else float("nan"),
                }
        return table
