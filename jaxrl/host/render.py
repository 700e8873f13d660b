"""An episode as a film: what a policy did, drawn, as GIF, MP4, a contact sheet, or inline in a notebook."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import importlib.util
import io
import math
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import UInt8

from jaxrl import extras
from jaxrl.canvas import checked_frames, contact_sheet
from jaxrl.host.run.episodes import play


@dataclasses.dataclass(frozen=True)
class Film:
    """Frames and how fast they follow one another; a notebook shows it where it is a cell's last line."""

    frames: list[UInt8[np.ndarray, "height width 3"]]
    fps: float = 30.0
    hold: float = 0.5  # seconds that the last frame stays longer

    def save(self, path: str | Path) -> Path:
        """Write it, as `save` does."""
        return save(path, self.frames, self.fps, self.hold)

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.frames[0].shape[1::-1])) if self.frames else "no"
        return f"Film({len(self.frames)} frames of {size} pixels, {self.fps:g} a second)"

    def gif(self) -> bytes:
        """What a GIF file of it holds."""
        held = io.BytesIO()
        _save_gif(held, checked_frames(self.frames), self.fps, self.hold)
        return held.getvalue()

    def _repr_html_(self) -> str:
        return f'<img alt="an episode" src="data:image/gif;base64,{base64.b64encode(self.gif()).decode()}">'


def film(
    algo: Any,
    policy: Any,
    key: Any,
    env: Any = None,
    env_params: Any = None,
    *,
    max_steps: int = 500,
    greedy: bool | None = None,
) -> Film:
    """One episode of `policy`, of at most `max_steps`, at the speed of the task's own clock.

    Args:
        env: default: the environment that `algo` was made for.
        env_params: default: those of `env`.
        greedy: whether it acts by its mode or by its samples; None: as the algorithm is deployed.
    """
    env = algo.venv.env if env is None else env
    params = env.default_params if env_params is None else env_params
    steps = int(np.minimum(params.max_steps, max_steps))
    return film_of(env, play(algo, policy, key, env, params, steps, greedy).states, params)


def film_of(env: Any, states: Any, params: Any) -> Film:
    """A trajectory of one environment, states with a leading axis of time, at the speed of the task's own clock."""
    length = len(jax.tree.leaves(states)[0]) - 1
    every, fps = playback(env, params)
    shown = np.asarray([*range(0, length, every), length])  # how it ended is always seen
    return Film(render_states(env, jax.tree.map(lambda x: x[shown], states), params), fps)


def playback(env: Any, params: Any) -> tuple[int, float]:
    """`(n, frames per second)`: each n-th step is shown, at the speed of the task's own clock."""
    from jaxrl.wrappers import Wrapper

    while isinstance(env, Wrapper):
        env = env.env
    step = float(getattr(params, "dt", 1 / 30)) * getattr(env, "substeps", 1)
    every = max(1, math.ceil(1 / (50 * step) - 0.01))  # a GIF has no more than 50 a second; dt is rounded
    return every, 1 / (every * step)


def render_states(env: Any, states: Any, params: Any) -> list[UInt8[np.ndarray, "height width 3"]]:
    """One picture per entry of the leading axis of `states` (a trajectory of one environment)."""
    return env.render_episode(*jax.device_get((states, params)))


FORMATS = (".gif", ".mp4", ".png")


def check_format(path: Path) -> None:
    """Raise what `save` would raise for this path whatever is drawn: before it is drawn."""
    if path.suffix not in FORMATS:
        raise ValueError(f"{path}: unknown picture format {path.suffix!r}; use .gif, .mp4 or .png.")
    if path.suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise ImportError(f"{path}: {no_encoder()}")


def no_encoder() -> str:
    return f"writing MP4 needs an encoder: {extras.install('video')}, or write a .gif instead."


def save(path: str | Path, frames: Iterable[np.ndarray], fps: int | float = 30, hold: float = 0.0) -> Path:
    """Write frames as the file's suffix says: `.gif`, `.mp4`, or `.png` (a contact sheet). Returns the path.

    The last frame of a film stays `hold` seconds longer.

    Raises ValueError for another suffix, no frames, or frames that are not uint8 RGB of one shape; ImportError, with
    the command that helps, for an MP4 without an encoder; OSError where the file cannot be written.
    """
    path = Path(path)
    check_format(path)
    frames = checked_frames(frames)
    if path.suffix == ".gif":
        _save_gif(path, frames, fps, hold)
    elif path.suffix == ".mp4":
        _save_mp4(path, [*frames, *[frames[-1]] * round(hold * fps)], fps)
    else:
        from PIL import Image

        Image.fromarray(contact_sheet(frames)).save(path)
    return path


def _save_gif(path: Path | io.BytesIO, frames: list[np.ndarray], fps: int | float, hold: float) -> None:
    from PIL import Image

    # One palette for all frames, from a sample of them: a palette a frame flickers, and costs most of the file.
    palette = Image.fromarray(contact_sheet(frames)).quantize(64)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    # GIF counts time in hundredths of a second, and players slow anything below two of them down.
    frame = max(20, round(100 / fps) * 10)
    durations = [frame] * (len(images) - 1) + [frame + round(100 * hold) * 10]
    settings: dict[str, Any] = {"save_all": True, "append_images": images[1:], "duration": durations, "loop": 0}
    images[0].save(path, "GIF", optimize=False, **settings)


def _save_mp4(path: Path, frames: list[np.ndarray], fps: int | float) -> None:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise ImportError(f"{path}: {no_encoder()}") from error

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
