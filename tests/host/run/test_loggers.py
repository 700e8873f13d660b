"""What loggers are told of rows, evaluations, films and the end, and that a resumed run is the same run to them."""

import importlib.util
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image

import jaxrl
from jaxrl import fit, registry
from jaxrl.algos import ppo
from jaxrl.host.cli import main
from jaxrl.host.run.loggers import Logger, check_loggers, over_seeds, words_of
from jaxrl.host.run.recipe import read_recipe, refuse_foreign
from jaxrl.host.run.run_folder import RunFolder, RunFolderError

ROW = {"update": 1, "step": 8, "loss": [1.0, 3.0], "episode_return": [None, 2.0]}
JUDGED = {"update": 1, "step": 8, "return": [1.0, 2.0], "episodes": 4, "level_return": [0.5, 0.5], "levels": []}


class Recorded:
    """In the place of wandb: what was logged, by run."""

    def __init__(self):
        self.runs, self.calls, self.summaries, self.codes = {}, [], {}, []

    def init(self, id=None, **settings):
        id = id or f"run{len(self.runs)}"
        self.calls.append(settings)
        rows, summary = self.runs.setdefault(id, []), self.summaries.setdefault(id, {})
        return SimpleNamespace(
            id=id,
            summary=summary,
            log=lambda row, step: rows.append(row),
            finish=lambda exit_code: self.codes.append(exit_code),
        )

    def Video(self, path, format):  # noqa: N802 (its name there)
        return path, format


@pytest.fixture
def wandb(monkeypatch):
    fake = Recorded()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    return fake


@pytest.fixture
def film(tmp_path):
    path = tmp_path / "policy-1.gif"
    frames = [Image.new("RGB", (4, 3), color) for color in ("red", "blue")]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    return path


def tell_all(folder, loggers, film, seeds):
    logger = Logger(folder, loggers, {"a": 1}, seeds)
    logger.write(ROW)
    logger.evaluated(JUDGED)
    logger.filmed(8, film)
    logger.ended(8, {"evaluation": [1.0, 2.0], "steps": 8})
    logger.close()


def test_each_seed_is_a_run_of_a_group_and_goes_on_after_a_resume(tmp_path, wandb, film):
    folder = RunFolder(tmp_path)
    for _ in range(2):
        tell_all(folder, ("wandb",), film, 2)
    assert list(wandb.runs) == ["run0", "run1"]
    assert {(call["project"], call["group"]) for call in wandb.calls} == {("mine", tmp_path.name)}
    assert [call["name"] for call in wandb.calls[:2]] == [f"{tmp_path.name}-0", f"{tmp_path.name}-1"]
    row, judged, shown = wandb.runs["run0"][:3]
    assert row == {"update": 1, "step": 8, "loss": 1.0}
    assert judged == {"step": 8, "evaluation/return": 1.0, "evaluation/level_return": 0.5}
    assert shown == {"policy": (str(film), "gif")}
    assert wandb.runs["run1"][0] == {"update": 1, "step": 8, "loss": 3.0, "episode_return": 2.0}
    assert wandb.summaries == {"run0": {"evaluation": 1.0, "steps": 8}, "run1": {"evaluation": 2.0, "steps": 8}}
    assert folder.table.read_text() == "update,step,loss,episode_return\n1,8,2.0,2.0\n1,8,2.0,2.0\n"


def test_more_seeds_than_panels_show_are_one_run_of_means_and_intervals(tmp_path, wandb):
    returns = [float(i) for i in range(40)]
    logger = Logger(RunFolder(tmp_path), ("wandb",), {}, 40)
    logger.write({"update": 1, "step": 8, "episode_return": returns})
    (row,) = wandb.runs["run0"]
    assert row["episode_return"] == 19.5 and row["episode_return/low"] < 19.5 < row["episode_return/high"]
    assert "group" not in wandb.calls[0]
    logger.close()


def test_a_run_that_was_one_run_at_wandb_goes_on_as_one(tmp_path, wandb):
    folder = RunFolder(tmp_path)
    folder.wandb.write_text('{"id": "old"}')
    logger = Logger(folder, ("wandb",), {}, 2)
    logger.write(ROW)
    logger.close()
    assert wandb.runs["old"] == [{"update": 1, "step": 8, "loss": 2.0, "episode_return": 2.0}]
    folder.wandb.write_text('{"ids": ["a b"]}')
    with pytest.raises(RunFolderError, match="has no ids of runs of W&B"):
        Logger(folder, ("wandb",), {}, 2)


def test_intervals_are_of_seeds_that_have_a_return():
    told = over_seeds({"step": 8, "episode_return": [1.0, None, 3.0], "loss": [1.0, 2.0, None], "entropy": None})
    low, high = told.pop("episode_return/low"), told.pop("episode_return/high")
    assert told == {"step": 8, "episode_return": 2.0, "loss": 1.5} and (low, high) == (1.0, 3.0)


def events(folder):
    """The values of a folder of TensorBoard by tag."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter  # noqa: F401 (what wrote them)

    found = {}
    for file in sorted(folder.glob("events*")):
        data = file.read_bytes()
        while data:  # length (8), its checksum (4), an event, its checksum (4)
            size = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + size])
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value))
            data = data[16 + size :]
    return found


def test_tensorboard_shows_means_intervals_seeds_films_and_the_summary(tmp_path, film):
    folder = RunFolder(tmp_path)
    tell_all(folder, ("tensorboard",), film, 2)
    mean, one = events(folder.tensorboard), events(folder.tensorboard / "seed-1")
    ((step, value),) = mean["evaluation/return"]
    assert (step, value.simple_value) == (8, 1.5)
    assert mean["evaluation/return/low"][0][1].simple_value <= 1.5 <= mean["evaluation/return/high"][0][1].simple_value
    assert mean["policy"][0][1].image.encoded_image_string == film.read_bytes()
    assert mean["policy"][0][1].image.width == 4
    assert b'"evaluation"' in mean["summary/text_summary"][0][1].tensor.string_val[0]
    assert {"loss", "episode_return", "evaluation/return", "evaluation/level_return"} <= set(one)
    assert one["evaluation/return"][0][1].simple_value == 2.0
    assert sorted(path.name for path in folder.tensorboard.iterdir() if path.is_dir()) == ["seed-0", "seed-1"]


def test_a_single_seed_has_no_runs_below(tmp_path):
    folder = RunFolder(tmp_path)
    logger = Logger(folder, ("tensorboard",), {}, None)
    logger.write({"update": 1, "step": 8, "loss": 1.0, "episode_return": None})
    logger.close()
    assert events(folder.tensorboard)["loss"][0][1].simple_value == 1.0
    assert not [path for path in folder.tensorboard.iterdir() if path.is_dir()]


OWN = """
told = []
def log(what, row):
    told.append((what, row))
"""


def test_a_function_of_yours_is_told_all_and_its_word_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_logs.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    import own_logs

    here = []
    config = ppo.Config(num_envs=2, num_steps=8, hidden=(8,), num_epochs=1, num_minibatches=1)
    algo = ppo.make(jaxrl.make("CartPole-v1")[0], config)
    judged = {"eval_every": 16, "eval_episodes": 2, "eval_max_steps": 3, "video_every": 2, "progress": False}
    loggers = ("own_logs:log", own_logs.log, lambda what, row: here.append(what))
    fit(algo, jax.random.key(0), 32, out=tmp_path / "run", num_seeds=2, loggers=loggers, **judged)
    assert here == ["metrics", "evaluation", "metrics", "evaluation", "video", "summary"]
    told = own_logs.told[::2]  # it was named twice
    assert [what for what, _ in told] == here and own_logs.told[1::2] == told
    assert np.shape(told[0][1]["loss"]) == (2,) and told[0][1]["step"] == 16
    assert told[4][1]["path"].exists() and told[5][1]["interrupted"] is False
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert kept["recipe"]["run"]["log"] == ["own_logs:log", "own_logs:log"]
    monkeypatch.delitem(registry.own_modules(), "own_logs")  # as in another program
    assert jaxrl.load(tmp_path / "run").algo.name == "ppo"  # reading calls no logger
    with pytest.raises(RunFolderError, match="names Python that is not jaxrl's and would be run: own_logs:log"):
        refuse_foreign(read_recipe(tmp_path / "run"), tmp_path / "run" / "config.json", loggers=True)
    assert main(["resume", str(tmp_path / "run")]) == 1  # which calls them
    assert "would be run: own_logs:log" in capsys.readouterr().err
    with pytest.raises(ValueError, match="loggers: they tell of a run that is kept"):
        fit(algo, jax.random.key(0), 32, loggers=(own_logs.log,), progress=False)


def test_a_run_of_one_seed_and_one_that_an_error_ended(tmp_path, wandb):
    class BadError(Exception):
        pass

    def bad(what, row):
        raise BadError

    config = ppo.Config(num_envs=2, num_steps=8, hidden=(8,), num_epochs=1, num_minibatches=1)
    algo = ppo.make(jaxrl.make("CartPole-v1")[0], config)
    settings = {"progress": False, "eval_every": 16, "eval_episodes": 2, "eval_max_steps": 3, "overwrite": True}
    result = fit(algo, jax.random.key(0), 32, out=tmp_path, loggers=("wandb", "tensorboard"), **settings)
    summary = wandb.summaries["run0"]
    assert summary["evaluation"] == result.evaluations[-1]["return"] and summary["interrupted"] is False
    assert summary["diverged"] == {} and wandb.codes == [0]
    with pytest.raises(BadError):
        fit(algo, jax.random.key(0), 32, out=tmp_path, loggers=("wandb", bad), **settings)
    assert wandb.codes == [0, 1] and len(wandb.runs) == 2


def test_words_of_functions_are_those_by_which_they_are_found():
    assert words_of(("wandb", json.dumps, lambda what, row: None, "my.py:log")) == ["wandb", "json:dumps", "my.py:log"]
    with pytest.raises(ValueError, match="choose from tensorboard, wandb, or name a function of yours"):
        check_loggers(("tensorbord",))
    with pytest.raises(ValueError, match="is no function"):
        check_loggers(("json:nothing",))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")
def test_wandb_itself_takes_it_without_a_network(tmp_path, film):
    """In a process of its own, as W&B starts a service."""
    program = (
        "from tests.host.run.test_loggers import *\nfrom pathlib import Path\n"
        f"tell_all(RunFolder(Path({str(tmp_path)!r})), ('wandb',), Path({str(film)!r}), 2)\n"
    )
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=300)
    runs = sorted((tmp_path / "wandb").glob("offline-run-*"))
    ids = json.loads((tmp_path / "wandb.json").read_text())["ids"]
    assert len(runs) == 2 and {run.name.rpartition("-")[2] for run in runs} == set(ids)
    assert all(list(run.glob("run-*.wandb")) for run in runs)
    assert list(runs[0].rglob("*.gif")) or list(runs[1].rglob("*.gif"))
