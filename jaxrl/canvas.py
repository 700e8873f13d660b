"""What `Environment.render` draws on: a small canvas in world units, and pictures side by side. Numpy and pillow."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Color = tuple[int, int, int]
Point = tuple[float, float]

INK: Color = (38, 43, 51)
GREY: Color = (170, 176, 186)
PALE: Color = (226, 230, 236)
WHITE: Color = (255, 255, 255)
BLUE: Color = (46, 110, 196)
ORANGE: Color = (224, 122, 47)
RED: Color = (200, 60, 58)
GREEN: Color = (52, 148, 96)

COLORS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568")
"""Of curves, one after another."""

SUPERSAMPLING = 3


def new_figure(**settings: Any) -> Figure:
    """A matplotlib figure that nobody has to close, of the `settings` of `matplotlib.figure.Figure`.

    A notebook shows it where it is a cell's last line. With other figures IPython does so only once pyplot is imported.
    """
    return _shown_figure()(**settings)


@functools.cache
def _shown_figure() -> type[Figure]:
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            held = io.BytesIO()
            self.savefig(held, format="png", dpi=90)
            return held.getvalue()

    return ShownFigure


class Canvas:
    """A picture in world coordinates: x to the right, y up, lengths in world units, text sizes in pixels.

    `center` is the world point in the middle and `span` the world width of the picture. Drawing happens at three times
    the resolution and `image()` scales down, which is the anti-aliasing.
    """

    def __init__(
        self, width: int, height: int, span: float, center: Point = (0.0, 0.0), background: Color = WHITE
    ) -> None:
        from PIL import Image, ImageDraw

        self.width, self.height, self.center = width, height, center
        self.scale = width * SUPERSAMPLING / span
        self._image = Image.new("RGB", (width * SUPERSAMPLING, height * SUPERSAMPLING), background)
        self._draw = ImageDraw.Draw(self._image)

    def _pixel(self, point: Point) -> Point:
        # Far outside the picture is as good as infinitely far, and Pillow overflows on huge coordinates.
        limit = 1e4 * SUPERSAMPLING
        x = self.width * SUPERSAMPLING / 2 + (point[0] - self.center[0]) * self.scale
        y = self.height * SUPERSAMPLING / 2 - (point[1] - self.center[1]) * self.scale
        return min(max(x, -limit), limit), min(max(y, -limit), limit)

    def polygon(self, points: Sequence[Point], color: Color) -> None:
        """A filled polygon."""
        self._draw.polygon([self._pixel(p) for p in points], fill=color)

    def rectangle(self, corner: Point, opposite: Point, color: Color) -> None:
        """A filled rectangle between two opposite corners."""
        (x0, y0), (x1, y1) = corner, opposite
        self.polygon([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], color)

    def circle(self, center: Point, radius: float, color: Color, outline: float | None = None) -> None:
        """A filled disc, or a ring of width `outline`."""
        (x, y), r = self._pixel(center), radius * self.scale
        box = (x - r, y - r, x + r, y + r)
        if outline is None:
            self._draw.ellipse(box, fill=color)
        else:
            self._draw.ellipse(box, outline=color, width=max(1, round(outline * self.scale)))

    def line(self, points: Sequence[Point], width: float, color: Color) -> None:
        """A polyline with round joints and ends."""
        pixels, thickness = [self._pixel(p) for p in points], max(1, round(width * self.scale))
        self._draw.line(pixels, fill=color, width=thickness, joint="curve")
        for x, y in (pixels[0], pixels[-1]):
            r = thickness / 2
            self._draw.ellipse((x - r, y - r, x + r, y + r), fill=color)

    def dashed(self, start: Point, end: Point, width: float, color: Color, dash: float) -> None:
        """A line of dashes and gaps of length `dash`."""
        length = math.dist(start, end)
        count = max(1, round(length / (2 * dash)))
        along = [tuple(point) for point in np.linspace(start, end, 2 * count)]
        for a, b in zip(along[::2], along[1::2], strict=True):
            self.line([a, b], width, color)

    def arrow(self, start: Point, end: Point, width: float, color: Color) -> None:
        """A straight arrow, its head 4 widths long. Nothing is drawn where it would have no length."""
        length = math.dist(start, end)
        if length < 1e-9:
            return
        ux, uy = (end[0] - start[0]) / length, (end[1] - start[1]) / length
        head = min(4 * width, length)
        neck = (end[0] - head * ux, end[1] - head * uy)
        self.line([start, neck], width, color)
        side = 0.5 * head
        self.polygon(
            [end, (neck[0] - side * uy, neck[1] + side * ux), (neck[0] + side * uy, neck[1] - side * ux)], color
        )

    def arc(self, center: Point, radius: float, start: float, sweep: float, width: float, color: Color) -> None:
        """An arc from angle `start` over `sweep` [rad, counter-clockwise from +x] that ends in an arrow head."""
        head = min(4 * width / radius, abs(sweep)) * math.copysign(1, sweep)
        angles = start + np.linspace(0, sweep - head, 24)
        self.line([(center[0] + radius * math.cos(a), center[1] + radius * math.sin(a)) for a in angles], width, color)

        def at(angle: float, r: float) -> Point:
            return center[0] + r * math.cos(angle), center[1] + r * math.sin(angle)

        neck = start + sweep - head
        self.polygon([at(start + sweep, radius), at(neck, radius + 2 * width), at(neck, radius - 2 * width)], color)

    def text(self, position: Point, text: str, color: Color = INK, size: int = 14) -> None:
        """A line of text, left-aligned, its vertical middle at `position`; `size` in pixels of the finished picture."""
        from PIL import ImageFont

        font = ImageFont.load_default(size * SUPERSAMPLING)
        self._draw.text(self._pixel(position), text, fill=color, font=font, anchor="lm")

    def caption(self, text: str) -> None:
        """Small text in the upper left corner."""
        from PIL import ImageFont

        margin = 8 * SUPERSAMPLING
        self._draw.text((margin, margin), text, fill=INK, font=ImageFont.load_default(13 * SUPERSAMPLING), anchor="la")

    def image(self) -> UInt8[np.ndarray, "height width 3"]:
        """The finished picture, uint8 RGB."""
        from PIL import Image

        return np.asarray(self._image.resize((self.width, self.height), Image.Resampling.BOX))


def contact_sheet(
    frames: Iterable[np.ndarray], columns: int = 4, max_frames: int = 16
) -> UInt8[np.ndarray, "height width 3"]:
    """At most `max_frames` frames, evenly spaced from first to last, in rows of `columns`.

    Raises ValueError as `checked_frames` does, and for no columns or frames at all.
    """
    frames = checked_frames(frames)
    if columns < 1 or max_frames < 1:
        raise ValueError(f"columns={columns} and max_frames={max_frames} must be at least 1.")
    count = min(len(frames), max_frames)
    chosen = [frames[i] for i in np.linspace(0, len(frames) - 1, count).round().astype(int)]
    columns = min(columns, count)
    chosen += [np.full_like(chosen[0], 255)] * (-count % columns)
    return np.concatenate([np.concatenate(chosen[i : i + columns], 1) for i in range(0, len(chosen), columns)], 0)


def checked_frames(frames: Iterable[np.ndarray]) -> list[np.ndarray]:
    """The frames as arrays. Raises ValueError for none, or for ones that are no pictures of one shape."""
    frames = [np.asarray(frame) for frame in frames]
    if not frames:
        raise ValueError("There are no frames to draw.")
    for i, frame in enumerate(frames):
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[-1] != 3 or frame.shape != frames[0].shape:
            raise ValueError(
                f"Frame {i} is {frame.dtype} {frame.shape}; "
                f"frames are uint8 (height, width, 3) and of one shape (the first is {frames[0].shape})."
            )
    return frames
