"""Curves by hand, and pictures that show something."""

import json
import re

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxrl.data.datasets import Dataset
from jaxrl.host.plotting import archive_picture, bars, curve, curves_by_task, dataset_picture, plot, smoothed
from jaxrl.host.run.run_folder import RunFolderError
from jaxrl.quality_diversity import elites

nan = np.nan


@pytest.fixture
def runs(tmp_path):
    """One run of two seeds, one single run; nulls where no episode ended."""
    rows = {
        "pair": [[None, None], [1.0, None], [3.0, 5.0], [4.0, 7.0]],
        "single": [None, 2.0, 2.0, 6.0],
    }
    for name, values in rows.items():
        (tmp_path / name).mkdir()
        config = {"algorithm": "ppo", "env": "CartPole-v1"}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        lines = [{"update": i, "step": 10 * i, "episode_return": v, "loss": 0.5} for i, v in enumerate(values, 1)]
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_curve_is_what_was_logged(runs):
    steps, values = curve(runs / "pair")
    np.testing.assert_array_equal(steps, [10, 20, 30, 40])
    np.testing.assert_array_equal(values, [[nan, nan], [1, nan], [3, 5], [4, 7]])
    np.testing.assert_array_equal(curve(runs / "single")[1], [[nan], [2], [2], [6]])
    np.testing.assert_array_equal(curve(str(runs / "single"), "loss")[1], [[0.5]] * 4)


def test_smoothed_by_hand():
    values = np.array([[nan, nan], [1, nan], [3, 5], [4, 7]])
    np.testing.assert_array_equal(smoothed(values, 2), [[nan, nan], [1, nan], [2, 5], [3.5, 6]])
    np.testing.assert_array_equal(smoothed(values, 1), values)
    np.testing.assert_allclose(smoothed(values, 99), [[nan, nan], [1, nan], [2, 5], [8 / 3, 6]])


def test_smoothed_is_the_plain_trailing_mean():
    values = np.random.default_rng(0).normal(size=(30, 3))
    values[values > 1] = nan
    expected = [[np.nanmean(values[max(0, i - 4) : i + 1, j]) for j in range(3)] for i in range(30)]
    np.testing.assert_allclose(smoothed(values, 5), expected, rtol=1e-12)


def colors(path):
    """How many pixels are coloured, neither white, grey nor black."""
    pixels = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return int((np.ptp(pixels, axis=-1) > 60).sum())


def test_plot_draws_every_run(runs):
    out = plot([runs / "pair", runs / "single"], runs / "new" / "curves.png")
    assert out.is_file() and out.read_bytes().startswith(b"\x89PNG")
    one = plot([runs / "single"], runs / "one.png", window=1)
    assert colors(out) > colors(one) > 500
    plot([runs / "pair"], runs / "curves.svg", "loss")
    assert "loss" in (runs / "curves.svg").read_text() or (runs / "curves.svg").stat().st_size > 5000


def test_a_run_without_one_finished_episode_plots_its_evaluations(runs):
    row = {"update": 1, "step": 10, "episode_return": None, "loss": 1.0}
    (runs / "single" / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(RunFolderError, match=r"single: no return to plot, no episode ended and no evaluation"):
        plot([runs / "single"], runs / "empty.png")
    assert not (runs / "empty.png").exists()
    evaluations = [{"update": i, "step": 10 * i, "return": 2.0 * i, "episodes": 8} for i in (1, 2, 3)]
    (runs / "single" / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in evaluations))
    assert colors(plot([runs / "single"], runs / "evaluated.png")) > 500
    (runs / "single" / "evaluations.jsonl").write_text(json.dumps(evaluations[0]) + "\n")
    assert colors(plot([runs / "single"], runs / "once.png")) > 300  # more than the legend's


def words(picture):
    """What is written in an SVG; tick labels have more around them."""
    return set(re.findall("<!-- (.*?) -->", picture.read_text()))


def test_a_run_on_a_dataset_shows_its_evaluations_over_gradient_steps(runs):
    """What acts beside it is drawn over its own steps, and which returns they are is said."""
    folder = runs / "single"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "recipe": {"dataset": {"path": "x.npz"}}}))
    row = {"update": 1, "step": 10, "episode_return": None, "loss": 1.0}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    evaluations = [{"update": i, "step": 10 * i, "return": 2.0 * i, "episodes": 8} for i in (1, 2, 3)]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in evaluations))
    steps, values = curve(folder, "return")
    np.testing.assert_array_equal([steps, values[:, 0]], [[10, 20, 30], [2, 4, 6]])
    with pytest.raises(RunFolderError, match="no metric 'x'; it has episode_return, loss, return, episodes"):
        curve(folder, "x")
    one = words(plot([folder], runs / "one.svg"))
    assert {"gradient steps a seed", "return of evaluations", "single: ppo CartPole-v1"} <= one
    both = words(plot([folder, runs / "pair"], runs / "both.svg"))
    assert {"gradient steps or environment steps a seed", "return of evaluations or episode return"} <= both
    assert "single: ppo CartPole-v1, return of evaluations" in both
    assert {"gradient steps a seed", "loss"} <= words(plot([folder], runs / "loss.svg", "loss"))
    assert "environment steps a seed" in words(plot([runs / "pair"], runs / "pair.svg"))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("spread", [1, 30])
def test_a_dataset_with_goals_shows_where_it_went(tmp_path, spread):
    """And not its goals; numbers of the colour bar are written out."""
    rng = np.random.default_rng(0)
    places = np.repeat(rng.normal(size=(10, 2)), 200 + spread * np.arange(10) ** 2, 0)
    last = np.arange(len(places)) % 100 == 99
    obs = {"goal": np.zeros_like(places), "position": places}
    dataset = Dataset(obs, places, places[:, 0], last & False, last, obs)
    names = ("goal x", "goal y", "x", "y")
    told = words(dataset_picture(dataset, {}, tmp_path / "maze.svg", names))
    assert {"x", "y", "steps"} <= told and not {"goal x", "goal y"} & told
    assert not any("times" in word or "10^" in word for word in told)
    assert ("200" if spread == 1 else "500") in told and ("1k" in told) == (spread > 1)
    assert "first number of position" in words(dataset_picture(dataset, {}, tmp_path / "nameless.svg"))
    dataset = dataset.replace(obs={"goal": places}, next_obs={"goal": places})
    assert "goal x" in words(dataset_picture(dataset, {}, tmp_path / "goals.svg", names))


def test_errors_name_the_folder_and_the_remedy(runs):
    with pytest.raises(RunFolderError, match=r"nowhere has no metrics yet"):
        plot([runs / "nowhere"], runs / "x.png")
    with pytest.raises(RunFolderError, match=r"has no metric 'return'; it has episode_return, loss"):
        plot([runs / "pair"], runs / "x.png", "return")
    (runs / "pair" / "config.json").unlink()
    with pytest.raises(RunFolderError, match=r"pair holds no run"):
        plot([runs / "pair"], runs / "x.png")
    with pytest.raises(ValueError, match="window=0: it must be at least 1"):
        plot([runs / "single"], runs / "x.png", window=0)
    with pytest.raises(ValueError, match="at least one run"):
        plot([], runs / "x.png")
    with pytest.raises(ValueError, match=r"x\.jpgg: the suffix must be one of .*png"):
        plot([runs / "single"], runs / "x.jpgg")
    assert not list(runs.glob("x.*"))


def test_curves_by_task(tmp_path):
    rng = np.random.default_rng(0)
    returns = rng.normal(size=(5, 20)).cumsum(1)
    returns[:, 0] = np.nan  # no episode had ended
    returns[0, 1] = np.nan
    steps = np.arange(20) * 5000.0
    one = curves_by_task({"CartPole-v1": {"ppo": (steps, returns)}}, tmp_path / "one.png")
    both = {"ppo": (steps, returns), "dqn": (steps, returns + 3)}
    tasks = {"CartPole-v1": both, "Acrobot-v1": both, "Pendulum-v1": both, "MountainCar-v0": both}
    assert colors(curves_by_task(tasks, tmp_path / "many.png")) > colors(one) > 200


def test_bars(tmp_path):
    table = {"ppo CartPole-v1": [480.0, 500.0], "ppo Pendulum-v1": [-150.0]}
    plain = bars(table, tmp_path / "bars.png", "return")
    marked = bars(table, tmp_path / "marked.png", "return", {"ppo CartPole-v1": 300.0})
    assert colors(marked) > colors(plain) > 200


@pytest.mark.parametrize("kind", ["grid", "voronoi"])
def test_an_archive_is_drawn_where_it_is_filled(tmp_path, kind):
    middles = np.random.default_rng(0).random((400, 2)).astype(np.float32)
    empty = elites.grid((0, 0), (1, 1), (20, 20), 1)
    if kind == "voronoi":
        empty = elites.voronoi((0, 0), (1, 1), jnp.asarray(middles), 1)
    fitness = jnp.where(empty.centroids[:, 0] < 0.5, empty.centroids[:, 1], -jnp.inf)
    picture = archive_picture(empty.replace(fitness=fitness), tmp_path / "archive.png", ("x", "y"))
    pixels = np.asarray(Image.open(picture).convert("RGB"), float)
    height, width, _ = pixels.shape
    colours = np.ptp(pixels, axis=2) > 40  # neither white nor grey
    inside = colours[height // 5 : -height // 5]
    assert inside[:, width // 7 : width * 2 // 5].mean() > 5 * inside[:, width * 9 // 20 : width * 3 // 4].mean() + 0.02
    with pytest.raises(ValueError, match="over two descriptors"):
        archive_picture(elites.grid((0,), (1,), (5,), 1), tmp_path / "line.png")
