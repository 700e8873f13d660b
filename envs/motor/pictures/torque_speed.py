"""The torque-speed plane: what a machine can hold at each speed, and the path of a run in it. Host only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl.telemetry import Curve, Plane

from ..machines.envelope import most_torque
from ..plant import Params


def borders(params: Params, runs: Mapping[str, Mapping[str, Any]], radius: float) -> tuple[Any, dict[str, tuple]]:
    """What both pictures of the plane show: speeds [rad/s], and by name `(least, most)` torque [N m] at each.

    Of the quadrants that `runs` go through: forward and motoring at least. `radius` as in `most_torque`.
    """
    limits = params.limits
    omega = np.concatenate([[0.0], *(np.asarray(run["omega"], float) for run in runs.values())])
    torque = np.concatenate([[0.0], *(np.asarray(run["torque"], float) for run in runs.values())])
    top = 1.02 * max(float(limits.omega), np.abs(omega).max())
    speeds = np.linspace(-top if omega.min() < -0.02 * top else 0.0, top, 301)
    brakes = torque.min() < -0.02 * float(limits.torque)
    found = {}
    for label, ratings in (("current limit", limits), ("nominal current", params.nominal)):
        most = most_torque(params, speeds, radius, ratings)
        least = most_torque(params, speeds, radius, ratings, -1) if brakes else np.minimum(most, 0)
        found[f"{label}, {float(ratings.i):g} A"] = (least, most)
    return speeds, found


def plane(params: Params, run: Mapping[str, Any], radius: float) -> Plane:
    """The path of a run, dict of signals in SI units, among what the machine can hold."""
    speeds, found = borders(params, {"": run}, radius)
    curves = []
    for (label, (least, most)), style in zip(found.items(), ("line", "dash"), strict=True):
        x, y = np.concatenate([speeds, [np.nan], speeds]), np.concatenate([most, [np.nan], least])
        curves.append(Curve(label, x, y, style))
    torque, omega = (np.asarray(x, float) for x in params.machine.base_point(params.nominal))
    if omega <= speeds[-1]:
        curves.append(Curve("base point", omega[None], torque[None], "dots"))
    curves.append(Curve("run", np.asarray(run["omega"], float), np.asarray(run["torque"], float), "path"))
    return Plane("Torque-speed plane", "omega [rad/s]", "torque [N m]", curves)
