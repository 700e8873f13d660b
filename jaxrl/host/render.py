"""Frames of states to GIF, MP4 and contact sheets."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import UInt8

from jaxrl.canvas import checked_frames, contact_sheet


def render_states(env: Any, states: Any, params: Any) -> list[UInt8[np.ndarray, "height width 3"]]:
    """One picture per entry of the leading axis of `states` (a trajectory of one environment)."""
    states, params = jax.device_get((states, params))
    length = len(jax.tree.leaves(states)[0])
    return [env.render(jax.tree.map(lambda x, t=t: x[t], states), params) for t in range(length)]


def save(path: str | Path, frames: Iterable[np.ndarray], fps: int | float = 30, hold: float = 0.0) -> Path:
    """Write frames as the file's suffix says: `.gif`, `.mp4`, or `.png` (a contact sheet). Returns the path.

    The last frame of a film stays `hold` seconds longer.

    Raises ValueError for another suffix, no frames, or frames that are not uint8 RGB of one shape; ImportError, with
    the command that helps, for an MP4 without an encoder; OSError where the file cannot be written.
    """
    path, frames = Path(path), checked_frames(frames)
    if path.suffix == ".gif":
        _save_gif(path, frames, fps, hold)
    elif path.suffix == ".mp4":
        _save_mp4(path, [*frames, *[frames[-1]] * round(hold * fps)], fps)
    elif path.suffix == ".png":
        from PIL import Image

        Image.fromarray(contact_sheet(frames)).save(path)
    else:
        raise ValueError(f"{path}: unknown picture format {path.suffix!r}; use .gif, .mp4 or .png.")
    return path


def _save_gif(path: Path, frames: list[np.ndarray], fps: int | float, hold: float) -> None:
    from PIL import Image

    # One palette for all frames, from a sample of them: a palette a frame flickers, and costs most of the file.
    palette = Image.fromarray(contact_sheet(frames)).quantize(64)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    # GIF counts time in hundredths of a second, and players slow anything below two of them down.
    frame = max(20, round(100 / fps) * 10)
    durations = [frame] * (len(images) - 1) + [frame + round(100 * hold) * 10]
    images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False)


def _save_mp4(path: Path, frames: list[np.ndarray], fps: int | float) -> None:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise ImportError(
            f"{path}: writing MP4 needs an encoder: `pip install 'jaxrl[video]'`, or write a .gif instead."
        ) from error

    height, width = (n - n % 2 for n in frames[0].shape[:2])  # H.264 stores colour at half the resolution
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    h264 = ["-c:v", "libx264", "-pix_fmt", "yuv420p", str(path.absolute())]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *raw, *h264]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as encoder:
        assert encoder.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it gave up early: its message says why
            for frame in frames:
                encoder.stdin.write(np.ascontiguousarray(frame[:height, :width]))
        _, message = encoder.communicate()
    if encoder.returncode:
        raise OSError(f"{path}: the MP4 encoder failed: {message.decode(errors='replace').strip()}")
