"""Canvas and files: what is drawn is where it should be, what is written can be read back."""

import base64
import dataclasses
import io
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxrl import Environment, Transition, make, pytree, zoo
from jaxrl.algos import ppo
from jaxrl.canvas import BLUE, GREEN, RED, WHITE, Canvas, contact_sheet
from jaxrl.environment import NO_LIMIT
from jaxrl.host import render as host_render
from jaxrl.host.cli import render as cli_render
from jaxrl.host.render import Film, render_states, save
from jaxrl.spaces import Box, Discrete


def test_canvas_coordinates():
    """y is up, the centre is in the middle, lengths scale with the span."""
    canvas = Canvas(80, 40, span=8.0, center=(1.0, 2.0))
    canvas.rectangle((1.0, 2.0), (5.0, 4.0), RED)
    canvas.circle((-1.0, 1.0), 0.5, BLUE)
    image = canvas.image()
    assert image.shape == (40, 80, 3) and image.dtype == np.uint8
    assert np.all(image[2:18, 42:78] == RED) and np.all(image[22:, 42:] == WHITE)
    assert tuple(image[30, 20]) == BLUE
    assert (image == BLUE).all(-1).sum() == pytest.approx(np.pi * 5**2, rel=0.3)


def test_lines_are_anti_aliased():
    canvas = Canvas(60, 60, span=2.0)
    canvas.line([(-0.8, -0.7), (0.8, 0.5)], 0.05, GREEN)
    colors = np.unique(canvas.image().reshape(-1, 3), axis=0)
    assert len(colors) > 4  # shades between ink and paper


def test_shapes_leave_ink_where_expected():
    canvas = Canvas(100, 100, span=2.0)
    canvas.arrow((-0.8, 0.0), (0.8, 0.0), 0.05, RED)
    image = canvas.image()
    inked = (image == RED).all(-1)
    assert inked[50, 12:88].all()
    assert inked[:, 82].sum() > inked[:, 50].sum()  # the head is wider than the shaft
    canvas.arc((0.0, 0.0), 0.6, 0.0, np.pi / 2, 0.04, BLUE)
    arc = (canvas.image() == BLUE).all(-1)
    assert arc[:50, 50:].any() and not arc[55:].any()
    canvas.arrow((0.0, 0.0), (0.0, 0.0), 0.05, RED)
    canvas.dashed((-0.9, -0.9), (0.9, -0.9), 0.03, GREEN, 0.1)
    row = (canvas.image()[95] == GREEN).all(-1)
    assert 10 < np.abs(np.diff(row.astype(int))).sum() < 30  # dashes and gaps
    canvas.text((-0.9, 0.8), "text")
    canvas.caption("caption")
    canvas.circle((1e9, 0.0), 1.0, RED)  # far outside is no error


def frames(count=6, shape=(21, 33, 3)):
    pictures = np.full((count, *shape), 255, np.uint8)
    for i in range(count):
        pictures[i, :, 5 * i : 5 * i + 4] = RED
    return list(pictures)


def test_gif_round_trip(tmp_path):
    path = save(tmp_path / "run.gif", frames(), fps=25)
    with Image.open(path) as gif:
        assert gif.n_frames == 6 and gif.size == (33, 21) and gif.info["duration"] == 40 and gif.info["loop"] == 0
        for i, frame in enumerate(frames()):
            gif.seek(i)
            np.testing.assert_allclose(np.asarray(gif.convert("RGB"), float), frame, atol=8)


@pytest.mark.parametrize("hold", [0.0, 0.5])
def test_the_last_frame_of_a_gif_is_held(tmp_path, hold):
    with Image.open(save(tmp_path / "run.gif", frames(), 25, hold)) as gif:
        durations = []
        for i in range(gif.n_frames):
            gif.seek(i)
            durations.append(gif.info["duration"])
    assert durations == [40] * 5 + [40 + 1000 * hold]


@pytree
class CounterParams:
    max_steps: jax.Array = NO_LIMIT
    length: jax.Array = 3


@pytree
class CounterState:
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class Counter(Environment):
    """Ends after `length` steps; its picture is as bright as it has steps behind it."""

    Params = CounterParams

    def initial(self, key, params):
        return CounterState(jnp.int32(0))

    def transition(self, key, state, action, params):
        return Transition(state, jnp.zeros(()), state.time + 1 >= params.length, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jnp.zeros(1)

    def observation_space(self, params):
        return Box(0.0, 1.0, (1,))

    def action_space(self, params):
        return Discrete(2)

    def render(self, state, params):
        return np.full((4, 4, 3), 20 * state.time, np.uint8)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("cap", [None, 5])
def test_a_film_ends_with_the_state_in_which_the_episode_ended(tmp_path, monkeypatch, cap):
    """Every second state is shown, and the last one whether or not it is one of these; a cap is an end, too."""
    env = Counter(id="Counter")
    algo = ppo.make(env, ppo.Config(num_envs=1, num_steps=1, num_minibatches=1, hidden=()))
    state = jax.vmap(algo.init)(jax.random.split(jax.random.key(0), 1))
    params = env.default_params.replace(length=jnp.int32(7 if cap is None else 100))
    monkeypatch.setattr(zoo, "read_recipe", lambda *_, **__: {"run": {"seeds": 1, "eval_max_steps": None}})
    monkeypatch.setattr(zoo, "load_run", lambda *_: (algo, state, env, params, 1))
    monkeypatch.setattr(host_render, "playback", lambda env, params: (2, 10.0))
    path = cli_render.render_run(tmp_path, tmp_path / "film.gif", 0, cap, None)
    shades = []
    with Image.open(path) as film:
        for i in range(film.n_frames):
            film.seek(i)
            shades.append(int(np.asarray(film.convert("RGB")).mean()) / 20)
    wanted = [0, 2, 4, 6, 7] if cap is None else [0, 2, 4, 5]
    np.testing.assert_allclose(shades, wanted, atol=0.2)


def test_a_notebook_shows_a_film():
    html = Film(frames(), 20.0)._repr_html_()
    head, data = html.split("base64,")
    assert head.startswith("<img") and "image/gif" in head
    with Image.open(io.BytesIO(base64.b64decode(data.partition('"')[0]))) as film:
        assert film.n_frames == len(frames()) and film.info["duration"] == 50


def test_contact_sheet(tmp_path):
    sheet = contact_sheet(frames(), columns=4)
    assert sheet.shape == (2 * 21, 4 * 33, 3)
    np.testing.assert_array_equal(sheet[:21, 33:66], frames()[1])
    assert (sheet[21:, 66:] == 255).all()
    some = contact_sheet(frames(50, (5, 5, 3)), columns=3, max_frames=3)
    assert some.shape == (5, 15, 3)
    with Image.open(save(tmp_path / "sheet.png", frames())) as image:
        np.testing.assert_array_equal(np.asarray(image), sheet)


@pytest.mark.parametrize(
    ("pictures", "message"),
    [
        ([], "no frames"),
        ([np.zeros((4, 4, 3))], "Frame 0 is float64"),
        ([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 5, 3), np.uint8)], r"Frame 1 is uint8 \(4, 5, 3\)"),
        ([np.zeros((4, 4), np.uint8)], "Frame 0"),
    ],
)
def test_bad_frames(tmp_path, pictures, message):
    with pytest.raises(ValueError, match=message):
        save(tmp_path / "x.gif", pictures)


def test_bad_requests(tmp_path):
    with pytest.raises(ValueError, match=r"unknown picture format '.avi'; use .gif, .mp4 or .png"):
        save(tmp_path / "x.avi", frames())
    with pytest.raises(ValueError, match="columns=0"):
        contact_sheet(frames(), columns=0)
    with pytest.raises(TypeError):
        Canvas(10, 10)  # no span


def test_mp4_without_encoder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ImportError, match=r"pip install .*\[video\]"):
        save(tmp_path / "x.mp4", frames())


def test_mp4(tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = save(tmp_path / "x.mp4", frames(), fps=10)
    count, seconds = ffmpeg.count_frames_and_secs(path)
    assert count == 6 and seconds == pytest.approx(0.6)
    assert ffmpeg.count_frames_and_secs(save(path, frames(), fps=10, hold=0.5))[0] == 11
    with pytest.raises(OSError, match="the MP4 encoder failed"):
        save(tmp_path / "no" / "folder.mp4", frames(), fps=10)


def test_render_states():
    env, params = make("Pendulum-v1")
    _, states = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), 3), params)
    pictures = render_states(env, states, params)
    assert len(pictures) == 3 and (pictures[0] != pictures[1]).any()
