"""Pictures of drones in space: a parallel projection from the front right and above."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from jaxrl.canvas import BLUE, GREEN, GREY, INK, ORANGE, PALE, Canvas, Color

WIDTH, HEIGHT = 480, 400
GRID: Color = (204, 210, 219)
AZIMUTH, ELEVATION = math.radians(-60), math.radians(28)  # from where it is seen


class Scene:
    """A picture in world coordinates [m], `span` wide about `center`, with a scale. Host only.

    `floor` is the height of a grid, ground or not: where nothing else is seen, it shows what is level and what moves.
    """

    def __init__(self, center: Sequence[float], span: float, floor: float = 0.0) -> None:
        self.span, self.floor = span, floor
        self.canvas = Canvas(WIDTH, HEIGHT, span=span, center=self.project(center))
        self._grid(center, floor)
        self._scale(self.project(center))
        self._axes(self.project(center))

    @classmethod
    def of_arena(cls, low: Any, high: Any) -> Scene:
        """A box with room around it, its bottom the floor."""
        low, high = (np.array([float(a) for a in corner]) for corner in (low, high))
        ends = np.array([cls.project(corner) for corner in _corners(low, high)])
        wide, tall = np.ptp(ends, 0)
        scene = cls(((low + high) / 2).tolist(), 1.15 * max(wide, tall * WIDTH / HEIGHT), low[2])
        scene.box(low, high, GREY, 0.4)
        return scene

    @staticmethod
    def project(point: Any) -> tuple[float, float]:
        """Where a point of the world is in the picture's plane."""
        x, y, z = (float(a) for a in point)
        right = -x * math.sin(AZIMUTH) + y * math.cos(AZIMUTH)
        away = -x * math.cos(AZIMUTH) - y * math.sin(AZIMUTH)
        return right, z * math.cos(ELEVATION) + away * math.sin(ELEVATION)

    def _grid(self, center: Sequence[float], floor: float) -> None:
        step = 10.0 ** round(math.log10(self.span / 8))
        half = step * math.ceil(self.span / (1.6 * step))
        x, y = (step * round(c / step) for c in center[:2])
        for d in np.arange(-half, half + step / 2, step):
            self.path([(x + d, y - half, floor), (x + d, y + half, floor)], GRID, 0.3)
            self.path([(x - half, y + d, floor), (x + half, y + d, floor)], GRID, 0.3)

    def _scale(self, center: tuple[float, float]) -> None:
        """A bar of 1, 2 or 5 times a power of ten in the lower left corner: lengths across the picture are true."""
        power = 10.0 ** math.floor(math.log10(self.span / 5))
        length = max(n * power for n in (1, 2, 5) if n * power <= self.span / 5)
        x, y, tick = center[0] - 0.47 * self.span, center[1] - 0.385 * self.span, 0.01 * self.span
        for line in ([(x, y), (x + length, y)], *([(end, y - tick), (end, y + tick)] for end in (x, x + length))):
            self.canvas.line(line, self.span / 250, INK)
        self.canvas.text((x + length + 0.02 * self.span, y), f"{length:g} m", INK, 13)

    def _axes(self, center: tuple[float, float]) -> None:
        """Where x, y and z go, in the lower right corner."""
        x, y, length = center[0] + 0.42 * self.span, center[1] - 0.37 * self.span, 0.06 * self.span
        for i, name in enumerate("xyz"):
            right, up = self.project([length * (i == j) for j in range(3)])
            self.canvas.line([(x, y), (x + right, y + up)], self.span / 250, INK)
            self.canvas.text((x + 1.3 * right - 0.007 * self.span, y + 1.3 * up), name, INK, 12)

    def box(self, low: Any, high: Any, color: Color, width: float = 0.8) -> None:
        """The edges of a box."""
        corners = _corners(np.asarray(low), np.asarray(high))
        for a, b in itertools.combinations(range(8), 2):
            if (a ^ b).bit_count() == 1:
                self.path([corners[a], corners[b]], color, width)

    def trails(self, flown: Float[np.ndarray, "T *drones 3"]) -> None:
        """The paths so far, of one drone or several, and below the first the shadow of its own."""
        paths = np.moveaxis(flown.reshape(len(flown), -1, 3), 0, 1)
        if len(flown) > 1:
            self.path([(x, y, self.floor) for x, y, _ in paths[0]], PALE, 0.5)
            for path in paths[::-1]:
                self.path(path, GREY if path is not paths[0] and len(paths) > 1 else BLUE, 0.5)

    def path(self, points: Iterable[Any], color: Color = INK, width: float = 1.0) -> None:
        """A polyline; widths are in 1/200 of the span."""
        self.canvas.line([self.project(p) for p in points], width * self.span / 200, color)

    def mark(self, point: Any, color: Color = GREEN) -> None:
        """A disc at `point` and its shadow's place."""
        self.path([point, (point[0], point[1], self.floor)], PALE, 0.5)
        self.canvas.circle(self.project(point), self.span / 90, color)

    def drone(self, position: Any, quaternion: Any, arm: float, color: Color = INK) -> None:
        """A cross of arms, the front pair orange, over the place below it on the floor."""
        w, x, y, z = (float(a) for a in quaternion)
        forward = np.array([1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)])
        left = np.array([2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)])
        p = np.array([float(a) for a in position])
        self.path([p, (p[0], p[1], self.floor)], PALE, 0.5)
        for along, across in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            tip = p + arm * (along * forward + across * left)
            self.path([p, tip], color, 0.8)
            self.canvas.circle(self.project(tip), 0.45 * arm, ORANGE if along > 0 else GREY)

    def drones(self, swarm: Any) -> None:
        """All of a `Drone` of scalars or of (M,) arrays; arms are drawn long enough to be seen."""
        position = np.stack([np.atleast_1d(x) for x in swarm.position], -1)
        quaternion = np.stack([np.atleast_1d(x) for x in swarm.quaternion], -1)
        arm = self.span / (30 if len(position) == 1 else 45)
        for i, (p, q) in enumerate(zip(position, quaternion, strict=True)):
            self.drone(p, q, arm, BLUE if i == 0 and len(position) > 1 else INK)

    def image(self) -> UInt8[np.ndarray, "height width 3"]:
        """The finished picture."""
        return self.canvas.image()


def _corners(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The eight of a box, by the bits of their number."""
    return np.array([np.where([i >> axis & 1 for axis in range(3)], high, low) for i in range(8)])
