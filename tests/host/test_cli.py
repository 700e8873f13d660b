"""The command: one tiny run through all its life, and what it says to every bad input."""

import contextlib
import dataclasses
import errno
import functools
import io
import json
import os
import re
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

import jaxrl
from jaxrl import registry, scores, spaces
from jaxrl.algos import cql_discrete, ppo
from jaxrl.algos.population import pbt
from jaxrl.data import datasets
from jaxrl.environment import NO_LIMIT
from jaxrl.host import cli
from jaxrl.host.cli import bench, evaluate, flags, train
from jaxrl.host.cli.experiment import settings_from
from jaxrl.host.data import dataset_files, dataset_parts, model_files
from jaxrl.host.render import playback
from jaxrl.host.report.command import command_of
from jaxrl.host.run import sweep as sweeping
from jaxrl.host.run.fit import fit
from jaxrl.host.run.recipe import build, load_run, read_recipe
from jaxrl.host.run.recipe_of import NoRecipeError, recipe_of
from jaxrl.nn.networks import ActorCritic
from jaxrl.wrappers import ActionRepeat, FlattenObservation, PreviousActionReward

TINY = "--config.num-envs 2 --config.num-steps 8 --config.num-epochs 1 --config.num-minibatches 1 --config.hidden 8"
SHORT = f"ppo CartPole-v1 {TINY} --params.max-steps 8"
EVALUATION = "--eval-episodes 2 --eval-max-steps 10 --eval-every 96 --no-progress"
TRAIN = f"train ppo CartPole-v1 --seeds 2 --total-steps 96 {EVALUATION} {TINY}"
COMMANDS = (
    "train",
    "sweep",
    "compile",
    "meta-train",
    "meta-test",
    "resume",
    "eval",
    "render",
    "export",
    "plot",
    "report",
    "dataset",
    "envs",
    "algos",
    "bench",
)

NAMING = ("train", "sweep", "compile", "meta-train", "meta-test", "envs", "algos")
"""Those whose flags are of what they name."""


def run_command(command):
    """`(exit status, stdout, stderr)`; whatever is raised is raised here too."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(command.split())
    return status, out.getvalue(), err.getvalue()


def good(command):
    status, out, err = run_command(command)
    assert status == 0, err
    return out


def bad(command, status=1):
    """What a command that fails says: on stderr, without a traceback, in one line unless it is about usage."""
    actual, out, err = run_command(command)
    assert actual == status, (out, err)
    assert "Traceback" not in err and err.strip()
    if status == 1:
        err = "".join(line for line in err.splitlines(True) if "was recorded in another task" not in line)  # a note
        assert err.startswith("jaxrl: ") and err.count("\n") == 1, err
    return " ".join(err.split())


def picture(path):
    """`(frames, pixels of the first)`."""
    with Image.open(path) as image:
        return getattr(image, "n_frames", 1), np.asarray(image.convert("RGB"))


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


@pytest.fixture(scope="module", autouse=True)
def elsewhere(tmp_path_factory):
    """Nothing is written into the checkout."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("cwd"))
    yield
    os.chdir(before)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained run folder, and what training printed."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    return folder, good(f"{TRAIN} --hyper.learning-rate 0.002 --seed 3 --video --out {folder}")


# ---- the life of a run


def test_train_writes_a_run_and_says_where(run):
    folder, out = run
    assert re.search(r"return [\d.]+ \(IQM [\d.]+, 95 % interval [\d.]+ to [\d.]+, 2 seeds\) over 2 full episodes", out)
    assert f"run folder {folder}" in out and str(folder / "media" / "curve.png") in out
    assert np.ptp(picture(folder / "media" / "curve.png")[1]) > 200
    assert f"video      {folder / 'media' / 'policy.gif'}" in out and picture(folder / "media" / "policy.gif")[0] > 2
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 6


def test_eval_and_plot_say_how_far_a_run_came_from_random_to_the_score_of_record(run, tmp_path):
    folder, _ = run
    said = good(f"eval {folder} --episodes 4 --max-steps 500")
    returns, share = (float(re.search(rf"{word} (-?[0-9.]+)", said)[1]) for word in ("\nreturn", "normalized"))
    assert share == pytest.approx(scores.normalized("CartPole-v1", returns), abs=0.011)
    assert "normalized" not in good(f"eval {folder} --episodes 4 --max-steps 10")  # not the cap of record
    good(f"plot {folder} --normalized --out {tmp_path / 'shares.png'}")
    with Image.open(tmp_path / "shares.png") as picture:
        assert picture.size[0] > 100
    other = tmp_path / "other"
    good(f"train {SHORT} --total-steps 32 --no-progress --out {other}")
    for refused, words in (
        (f"plot {other} --normalized", "not those of CartPole-v1"),
        (f"plot {folder} --normalized --metric entropy", "of entropy there is no score"),
    ):
        status, _, err = run_command(f"{refused} --out {tmp_path / 'none.png'}")
        assert status == 1 and words in err and err.count("\n") == 1


def test_config_says_what_was_run(run):
    config = json.loads((run[0] / "config.json").read_text())
    assert config["algorithm"] == "ppo" and config["env"] == "CartPole-v1" and config["num_seeds"] == 2
    assert config["config"]["num_envs"] == 2 and config["config"]["hidden"] == [8]
    assert config["hyper"]["learning_rate"] == pytest.approx(0.002)
    assert config["hyper"]["anneal_steps"] == 500_000  # from the tuned table
    assert config["versions"]["jax"] == jax.__version__ and config["versions"]["python"].startswith("3.")
    assert {"device", "commit", "started", "processors"} <= config.keys()
    assert config["recipe"]["params"]["length"] == 0.5 and config["recipe"]["run"]["seed"] == 3


@pytest.mark.slow
@pytest.mark.light
def test_learning_from_a_dataset(tmp_path):
    """Its file is needed to train, not to judge; the words that are wrong are named."""
    file, folder, moved = tmp_path / "data.npz", tmp_path / "run", tmp_path / "moved.npz"
    good(f"dataset make Pendulum-v1 --recipe random --steps 400 --out {file}")
    small = "--config.hidden 8 --config.batch-size 8 --config.num-updates 4 --eval-episodes 2 --no-progress"
    words = f"train bc Pendulum-v1 --dataset {file} {small} --config.normalize-obs"
    assert "return -" in good(f"{words} --episodes best:0.5 --total-steps 40 --out {folder}")
    recipe = read_recipe(folder)
    dataset, about = dataset_files.read(file)
    assert recipe["dataset"] == {
        "path": str(file),
        "episodes": "best:0.5",
        "digest": dataset_parts.digest(dataset),
        "reference": {**about["reference"], "max_steps": 200},
    }
    file.rename(moved)
    assert re.search(r"return -.*\nscore -?[\d.]+: 0 is random's", good(f"eval {folder} --episodes 2"))
    good(f"export {folder}")
    best = datasets.chosen(dataset, datasets.best_weights(dataset, 0.5) > 0).obs
    np.testing.assert_allclose(load_run(recipe, folder)[1].normalizer.moments.mean[0], best.mean(0), rtol=1e-4)
    assert f"{file}, which the run learned from, is not there" in bad(f"resume {folder} --total-steps 80 --no-progress")
    shutil.copytree(folder, tmp_path / "other")
    good(f"resume {tmp_path / 'other'} --total-steps 80 --no-progress --dataset {moved}")
    good(f"dataset make Pendulum-v1 --recipe random --steps 401 --out {file}")
    assert "has changed since the run began" in bad(f"resume {folder} --total-steps 80 --no-progress")
    moved.replace(file)
    good(f"resume {folder} --total-steps 80 --no-progress")
    assert "ppo does not learn from a dataset alone; arsq, awac, bc," in bad(f"train ppo Pendulum-v1 --dataset {file}")
    assert "--episodes best:7: the share must be above 0" in bad(f"{words} --episodes best:7")
    assert "--episodes top: it is all, return," in bad(f"{words} --episodes top")
    wrong = bad(f"train bc MountainCarContinuous-v0 --dataset {file} {small}")
    assert "the dataset, of Pendulum-v1, has obs of float32[3]" in wrong
    status, _, noted = run_command(f"train bc Pendulum-v1 --dataset {file} {small} --params.gravity 3 --episodes top")
    assert status == 1 and noted.startswith(f"{file} was recorded in another task: gravity 10.0, not 3.0\n")
    assert "of which --dataset?" in bad("train bc Pendulum-v1 --episodes return", 2)
    assert "not with --dataset" in bad(f"{words} --curriculum plr", 2)
    good(f"dataset make CartPole-v1 --recipe random --steps 400 --out {moved}")
    words = f"train dqn CartPole-v1 --dataset {moved} {small} --total-steps 40 --eval-every 0 --out {folder}"
    assert f"curve      none: {folder}: no return to plot" in good(f"{words} --overwrite")
    assert read_recipe(folder)["config"]["n_step"] == 1  # not the tuned 3, which is for acting


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["fb", "rvs", "decision_transformer"])
def test_what_learned_from_a_dataset_is_judged(algo, tmp_path):
    """Also what is deployed for the data's rewards, and what draws windows of it."""
    file, folder = tmp_path / "data.npz", tmp_path / "run"
    good(f"dataset make CartPole-v1 --recipe random --steps 200 --out {file}")
    small = "--config.batch-size 8 --config.num-updates 2 --eval-episodes 2 --eval-max-steps 9 --no-progress"
    assert "return" in good(f"train {algo} CartPole-v1 --dataset {file} {small} --total-steps 4 --out {folder}")
    file = file.rename(tmp_path / "moved.npz")
    assert "return" in good(f"eval {folder} --episodes 2 --max-steps 9 --dataset {file}")
    if algo == "fb":
        assert "learned from, is not there: `--dataset FILE` of resume" in bad(f"eval {folder}")
        good(f"render {folder} --dataset {file} --max-steps 2 --out {tmp_path / 'policy.png'}")


def test_where_a_dataset_is_now(tmp_path):
    """Stands in for the path of the recipe, of a run that has one; a missing file says how."""
    small = {"config": {"batch_size": 8}, "hyper": {}, "params": {}, "env_settings": {}, "run": {"seeds": 1}}
    recipe = {"algo": "bc", "env_id": "Pendulum-v1", **small}
    (tmp_path / "config.json").write_text(json.dumps({"recipe": recipe}))
    for name in ("resume", "eval", "render", "export"):
        said = bad(f"{name} {tmp_path} --dataset new.npz")
        assert f"--dataset new.npz: {tmp_path} did not learn from a dataset." in said
    assert "zoo need none" in bad("eval zoo:ppo/CartPole-v1 --dataset new.npz")
    recipe["dataset"] = {"path": "/old.npz", "episodes": "all", "digest": "0"}
    (tmp_path / "config.json").write_text(json.dumps({"recipe": recipe}))
    assert "/old.npz, which the run learned from, is not there: `--dataset FILE`" in bad(f"resume {tmp_path}")
    for name in ("resume", "eval"):  # which needs none, but was told a file
        assert "--dataset new.npz: nothing is there" in bad(f"{name} {tmp_path} --dataset new.npz")
    assert f"--model new.npz: {tmp_path} did not learn from a model." in bad(f"resume {tmp_path} --model new.npz")


def test_scores_of_returns(capsys):
    """Where episodes are as long as the reference's, not of others."""
    params = jaxrl.make("Pendulum-v1")[1]
    reference = {"random": -100.0, "best": 100.0, "max_steps": 200}
    for cap in (None, 200, 199):
        evaluate.print_score(np.array([-50.0, 0.0]), reference, params, cap)
    evaluate.print_score(np.array([0.0]), {**reference, "max_steps": 1000}, params, None)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 and said[0] == said[1]
    assert said[0].startswith("score 37.50 (IQM 37.50,") and "0 is random's return, -100, 100 the best" in said[0]


MODEL = "--config.num-members 2 --config.num-elites 2 --config.hidden 8 --config.num-checks 2 --config.num-updates 2"
IMAGINE = (
    "--config.num-updates 2 --config.batch-size 8 --config.hidden 8 --config.num-rollouts 4 --config.horizon 2 "
    "--config.buffer-size 16 --eval-episodes 2 --eval-max-steps 9 --no-progress"
)


@pytest.mark.slow
@pytest.mark.light
def test_learning_in_a_model(tmp_path):
    """Dataset and model are needed to go on, not to judge or draw; the words that are wrong are named."""
    file, model, folder = tmp_path / "data.npz", tmp_path / "model.npz", tmp_path / "run"
    good(f"dataset make Pendulum-v1 --recipe random --steps 400 --out {file}")
    out = good(f"dataset model {file} --out {model} --seed 3 {MODEL} --hyper.learning-rate 0.01")
    assert re.search(r"^2 members, elites' held-out error [\d.]+ [\d.]+ \(1: always the mean\); [\d.]+ s$", out, re.M)
    assert f"model {model}" in out
    ensemble, about = model_files.read(model)
    assert about["dataset"]["digest"] == dataset_parts.digest(dataset_files.read(file)[0])
    assert (about["env"], about["seed"], len(about["held_out"])) == ("Pendulum-v1", 3, 2)
    assert about["config"]["hidden"] == [8] and about["hyper"]["learning_rate"] == 0.01
    assert "exists: name another file, or say --overwrite" in bad(f"dataset model {file} --out {model} {MODEL}")

    words = f"train mopo Pendulum-v1 --dataset {file} {IMAGINE} --total-steps 4 --out {folder}"
    assert "return -" in good(f"{words} --model {model}")
    recipe = read_recipe(folder)
    assert recipe["model"] == {"path": str(model), "digest": model_files.digest(ensemble)}
    kept = tmp_path / "kept.npz"
    model.rename(kept)
    assert "return -" in good(f"eval {folder} --episodes 2 --max-steps 9")
    good(f"render {folder} --max-steps 3")
    again = f"resume {folder} --total-steps 8 --no-progress"
    assert f"{model}, which the run learned from, is not there: `--model FILE`" in bad(again)
    shutil.copytree(folder, tmp_path / "other")
    good(f"resume {tmp_path / 'other'} --total-steps 8 --no-progress --model {kept}")
    good(f"dataset model {file} --out {model} --seed 4 {MODEL}")
    assert f"{model} has changed since the run began" in bad(again)
    kept.replace(model)
    good(again)

    assert f"`jaxrl dataset model {file.name} --out model.npz`" in bad(words)
    assert f"--model {model}: of which --dataset?" in bad(f"train mopo Pendulum-v1 --model {model}", 2)
    assert "bc learns from a dataset without one; combo, mopo, morel," in bad(
        f"train bc Pendulum-v1 --dataset {file} --model {model}"
    )
    assert "is no model, it has about, action" in bad(f"{words} --model {file}")
    good(f"dataset make MountainCarContinuous-v0 --recipe random --steps 400 --out {kept}")
    other = f"train mopo MountainCarContinuous-v0 --dataset {kept} --model {model} {IMAGINE}"
    status, _, (noted, wrong) = (x if isinstance(x, int) else x.splitlines() for x in run_command(other))
    assert status == 1 and noted == f"{model} was fitted to another dataset than {kept}"
    assert "the model, of Pendulum-v1, has observations of 3 numbers and actions of 1" in wrong
    good(f"dataset make CartPole-v1 --recipe random --steps 40 --out {kept} --overwrite")
    assert "a model of dynamics takes vectors" in bad(f"dataset model {kept}")


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("algo", ["morel", "combo", "ravl", "uni_o4"])
def test_who_imagines_learns_from_files(algo, tmp_path):
    """On a task that ends, as the environment says by observations."""
    file, model, folder = tmp_path / "data.npz", tmp_path / "model.npz", tmp_path / "run"
    good(f"dataset make CartPoleContinuous-v0 --recipe random --steps 200 --out {file}")
    good(f"dataset model {file} --out {model} {MODEL}")
    small = IMAGINE.replace("--config.buffer-size 16 ", "") if algo == "uni_o4" else IMAGINE
    words = f"train {algo} CartPoleContinuous-v0 --dataset {file} --model {model} {small} --total-steps 4"
    assert "return" in good(f"{words} --out {folder}")
    file.unlink(), model.unlink()
    assert "return" in good(f"eval {folder} --episodes 2 --max-steps 9")


@pytest.mark.slow
def test_a_sweep_in_a_model_goes_on_with_the_same_one_alone(tmp_path):
    file, model, folder = tmp_path / "data.npz", tmp_path / "model.npz", tmp_path / "sweep"
    good(f"dataset make Pendulum-v1 --recipe random --steps 200 --out {file}")
    good(f"dataset model {file} --out {model} {MODEL}")
    words = f"sweep mopo Pendulum-v1 --dataset {file} --model {model} --hyper.penalty 0 1 --seeds 1 --out {folder}"
    words += f" {IMAGINE} --total-steps 4"
    assert "penalty" in good(words)
    good(f"dataset model {file} --out {model} {MODEL} --seed 1 --overwrite")
    assert "holds another sweep" in bad(f"{words} --resume")


@pytest.mark.slow
def test_goals_of_a_dataset_are_told_in_hindsight(tmp_path):
    file, folder = tmp_path / "data.npz", tmp_path / "run"
    good(f"dataset make PointMazeMedium-v0 --recipe stitch --steps 400 --out {file}")
    small = "--config.batch-size 8 --config.num-updates 2 --config.hidden 8 --eval-episodes 2 --eval-max-steps 9"
    words = f"train rvs PointMazeMedium-v0 --dataset {file} {small} --no-progress --total-steps 4 --out {folder}"
    assert "--goals ENTRY, where goals are reached, go together" in bad(f"{words} --config.outcome goal")
    assert "go together" in bad(f"{words} --goals position")
    assert "observations have goal, position" in bad(f"{words} --config.outcome goal --goals place")
    assert "return" in good(f"{words} --config.outcome goal --goals position")
    assert read_recipe(folder)["dataset"]["goals"] == "position"
    found = dataset_files.read(file)[0]
    arrays = dict(observations=found.obs["position"], actions=found.action, terminals=found.last.astype(np.float32))
    np.savez(file, **arrays)  # as OGBench's are: places alone, the last of which has no action that counts
    assert "return" in good(f"{words} --config.outcome goal --goals position --overwrite")
    assert "the dataset has obs where" in bad(f"{words} --overwrite")
    assert "--goals position: of which --dataset?" in bad("train rvs PointMazeMedium-v0 --goals position", 2)


@pytest.mark.slow
def test_tuned_settings_are_the_default_and_can_be_left_out(monkeypatch, tmp_path):
    recipes = []
    monkeypatch.setattr(train, "run_fit", lambda recipe, out, devices, resume: recipes.append(recipe) or 0)
    good("train ppo Acrobot-v1")
    good("train ppo Acrobot-v1 --no-tuned")
    good("train ppo Acrobot-v1 --config.num-envs 2 --hyper.gamma 0.9 --params.max-steps 9 --total-steps 7")
    tuned, plain, flags = recipes
    assert tuned["config"]["num_envs"] == 8 and tuned["hyper"]["learning_rate"] == 1e-3
    assert tuned["run"]["total_steps"] == 500_000 and tuned["run"]["out"].startswith("runs/ppo-Acrobot-v1-")
    assert plain["config"]["num_envs"] == 4 and plain["hyper"]["learning_rate"] == 2.5e-4
    assert flags["config"]["num_envs"] == 2 and flags["hyper"]["gamma"] == 0.9 and flags["run"]["total_steps"] == 7
    assert flags["params"]["max_steps"] == 9 and flags["hyper"]["learning_rate"] == 1e-3


@pytest.mark.slow
def test_without_an_algorithm_it_is_the_one_of_record_and_else_the_familys(run, monkeypatch):
    recipes = []
    monkeypatch.setattr(train, "run_fit", lambda recipe, *_, **__: recipes.append(recipe) or 0)
    record = scores.of("Acrobot-v1").ours
    assert "Acrobot-v1: by c51, of record, -76.28 after 500,000 steps" in run_command("train Acrobot-v1")[2]
    of = scores.of
    monkeypatch.setattr(scores, "of", lambda id: dataclasses.replace(of(id), ours=None))
    assert "Reacher-v0: by ppo, of its family" in run_command("train Reacher-v0 --hyper.gamma 0.9")[2]
    good("train ppo Reacher-v0 --no-tuned")
    good("train ppo Reacher-v0 --total-steps 7e5")
    good("train ppo Reacher-v0 --total-steps 7e5 --hyper.anneal-steps 9")
    monkeypatch.setattr(scores, "of", of)
    said = run_command("train CartPole-v1 --no-tuned")[2]
    assert "CartPole-v1: by ppo, of record\n" in said  # 500 is not what this training gets
    assert "Acrobot-v1: by ppo, of its family" in run_command("train Acrobot-v1 --curriculum dr")[2]
    good(f"train Acrobot-v1 --from {run[0]}")
    assert recipes[-1]["algo"] == "ppo"  # what that run was
    best, family, plain, long, fixed = recipes[:5]
    assert (long["hyper"]["anneal_steps"], fixed["hyper"]["anneal_steps"]) == (700_000, 9)
    good("train ppo_rnn RockSample-7-8-v0 --total-steps 8e5 --hyper.anneal-steps 9")
    assert (recipes[-1]["hyper"]["anneal_steps"], recipes[-1]["hyper"]["ent_anneal_steps"]) == (9, 800_000)
    assert (best["algo"], best["run"]["total_steps"]) == (record.what, record.about["steps"])
    assert best["config"]["num_outputs"] == registry.tuned("c51", "Acrobot-v1").config["num_outputs"] == 51
    settings = registry.settings("ppo", "Reacher-v0")
    assert family["config"]["normalize_obs"] and family["run"]["total_steps"] == settings.total_steps
    assert family["hyper"]["gamma"] == 0.9 and family["hyper"]["anneal_steps"] == settings.hyper["anneal_steps"]
    assert plain["config"]["num_envs"] == 4 and plain["run"]["total_steps"] == 500_000


def test_parameters_that_are_truth_values_or_switched_off(monkeypatch):
    recipes = []
    monkeypatch.setattr(train, "run_fit", lambda recipe, out, devices, resume: recipes.append(recipe) or 0)
    good("train ppo Asterix-MinAtar --params.no-ramping")
    good("train ppo Quadcopter-Hover-v0 --params.dt 0.02")
    game, flight = (recipe["params"] for recipe in recipes)
    assert game["ramping"] is False and flight["dt"] == 0.02 and "battery" not in flight
    _, params = jaxrl.make("Quadcopter-Hover-v0")
    assert params.battery is None and build(recipes[1])[3].battery is None


def test_tuned_settings_of_an_environment_are_where_flags_begin(monkeypatch):
    recipes = []
    monkeypatch.setattr(train, "run_fit", lambda recipe, out, devices, resume: recipes.append(recipe) or 0)
    for words in ("", " --env.encoding symbolic", " --no-tuned"):
        good(f"train ppo_rnn MiniGrid-MemoryS7-v0{words}")
    assert [recipe["env_settings"]["encoding"] for recipe in recipes] == ["one_hot", "symbolic", "symbolic"]
    assert build(recipes[0])[2].encoding == "one_hot"
    # A training that goes on from that run sees alike, where its task is of the same class.
    monkeypatch.setattr("jaxrl.host.run.recipe.read_recipe", lambda folder: recipes[0])
    goes_on = functools.partial(settings_from, Path("run"), "ppo_rnn")
    longer, other = goes_on("MiniGrid-MemoryS13Random-v0")[0], goes_on("MiniGrid-Empty-8x8-v0")[0]
    assert (longer.encoding, longer.size, longer.random_length) == ("one_hot", 13, True)
    assert other == jaxrl.make("MiniGrid-Empty-8x8-v0")[0]


def test_numbers_of_a_model_are_factors(monkeypatch):
    recipes = []
    monkeypatch.setattr(train, "run_fit", lambda recipe, out, devices, resume: recipes.append(recipe) or 0)
    good("train ppo InvertedPendulum-v5 --params.model.gravity 0.5 --params.model.body-mass 2")
    assert recipes[0]["params"].keys() == {"max_steps", "most_angle", "reset_noise", "model.gravity", "model.body_mass"}
    usual, changed = jaxrl.make("InvertedPendulum-v5")[1].model, build(recipes[0])[3].model
    factors = {"gravity": 0.5, "body_mass": 2.0}
    for name, x in usual.items():
        assert np.allclose(changed[name], factors.get(name, 1.0) * x), name


def test_every_tuned_setting_exists():
    import tomllib

    table = tomllib.loads((Path(jaxrl.__file__).parent / "tuned.toml").read_text())
    for algo, rows in table.items():
        module = jaxrl.get_algo(algo)
        for env_id in rows:
            assert env_id in jaxrl.list_envs()
            tuned = registry.tuned(algo, env_id)
            module.Config(**tuned.config), module.Hyper(**tuned.hyper), jaxrl.make(env_id, **tuned.env)
            assert tuned.total_steps > 0
    assert registry.tuned("ppo", "Reacher-v0") is None


def test_resume_goes_on_bit_for_bit(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run[0], copy)
    before = contents(copy)
    for newest in sorted((copy / "checkpoints").iterdir())[-2:]:
        shutil.rmtree(newest)
    out = good(f"resume {copy} --no-progress")
    assert f"run folder {copy}" in out
    after = contents(copy)
    for name in ("metrics.jsonl", "metrics.csv", "evaluations.jsonl", "config.json"):
        assert after[Path(name)] == before[Path(name)], name
    one, other = (jax.tree.leaves(load_run(read_recipe(folder), folder)[1]) for folder in (run[0], copy))
    for a, b in zip(one, other, strict=True):
        assert a.dtype == b.dtype and bool((a == b).all())


@pytest.mark.slow
@pytest.mark.light
def test_runs_that_repeat_actions_are_judged_at_other_numbers_of_steps(tmp_path):
    """What remembers observations is outside of ActionRepeat and sees decisions, as in training."""
    words = f"--wrap ActionRepeat:repeat=4 FrameStack:length=2 --total-steps 32 {EVALUATION} {TINY}"
    folder = tmp_path / "run"
    good(f"train ppo CartPole-v1 {words} --out {folder}")
    plain = good(f"eval {folder} --episodes 3 --act greedy --key 1").splitlines()[-2:]
    held = good(f"eval {folder} --episodes 3 --act greedy --key 1 --hold 4 1").splitlines()
    same = next(line for line in held if line.startswith("held for 4"))
    assert same.split("return ")[1] in plain[0] + plain[1] and held[0].startswith("held for 1")


def test_average_rewards_are_normalized_where_the_steps_are_known(capsys):
    id = "Cont-CC-PMSM-v0"
    env, params = jaxrl.make(id)
    share = scores.normalized(id, -40.0, 1000.0)
    evaluate.print_normalized([-40.0], [1000.0], env, params, 1000)
    assert f"normalized {share:.2f}: 0 is an average reward of" in capsys.readouterr().out
    for task, lengths in ((env, None), (ActionRepeat(env, 2), [500.0])):
        evaluate.print_normalized([-40.0], lengths, task, params, 1000)
        assert f"not normalized: scores of {id} are average rewards" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.light
def test_wrappers_are_around_the_task_in_every_command(tmp_path, monkeypatch):
    recurrent = f"{TINY} --config.rnn-size 8 --config.num-minibatches 1"
    words = f"--wrap PreviousActionReward --total-steps 32 {EVALUATION} {recurrent}"
    folder = tmp_path / "run"
    good(f"train ppo_rnn RepeatFirstEasy-v0 {words} --out {folder}")
    recipe = json.loads((folder / "config.json").read_text())["recipe"]
    assert recipe["wrap"] == ["PreviousActionReward"] and "wrap" not in recipe["run"]
    built = build(recipe)
    assert built.task == built.algo.venv.env == PreviousActionReward(jaxrl.make("RepeatFirstEasy-v0")[0])
    assert "return" in good(f"eval {folder} --episodes 2") and "run folder" in good(f"resume {folder} --no-progress")
    assert "--wrap PreviousActionReward" in command_of(folder, json.loads((folder / "config.json").read_text()))
    recipes = []
    monkeypatch.setattr(train, "run_fit", lambda recipe, *_, **__: recipes.append(recipe) or 0)
    good("train ppo_rnn RepeatFirstEasy-v0")  # the family's recipe
    good("train ppo_rnn RepeatFirstEasy-v0 --wrap FrameStack:length=2 FlattenObservation")
    good("train ppo_rnn RepeatFirstEasy-v0 --no-tuned")
    good(f"train ppo_rnn RepeatFirstEasy-v0 --from {folder}")
    stacked = ["FrameStack:length=2", "FlattenObservation"]
    assert [x.get("wrap") for x in recipes] == [["PreviousActionReward"], stacked, None, ["PreviousActionReward"]]
    assert bad("train ppo CartPole-v1 --wrap FrameStak") == "jaxrl: 'FrameStak' is no wrapper; did you mean FrameStack?"


def test_eval(run):
    out = good(f"eval {run[0]} --episodes 2 --max-steps 6 --act greedy --key 1")
    assert "seed 0: return 6.00, length 6.0" in out and "seed 1: return 6.00" in out
    assert "return 6.00 (IQM 6.00" in out and "over 2 full episodes a seed" in out
    both = good(f"eval {run[0]} --episodes 2").splitlines()
    one = good(f"eval {run[0]} --episodes 2 --seed 1").splitlines()
    assert one[0] == both[1] and one[0].startswith("seed 1: ") and len(one) == 2
    assert "--seed 2: the run has seeds 0 to 1" in bad(f"eval {run[0]} --seed 2")
    assert "--hold 0: it must be at least 1" in bad(f"eval {run[0]} --hold 1 0")
    held = good(f"eval {run[0]} --episodes 2 --max-steps 6 --act greedy --key 1 --hold 4 1 2").splitlines()
    assert [line.split(":")[0] for line in held] == ["held for 1", "held for 2", "held for 4", "mean over 1 to 4"]
    assert held[0].startswith("held for 1: return 6.00 (IQM 6.00") and "return 6.00" in held[3]  # too short to fall
    words = f"eval {run[0]} --episodes 2 --max-steps 6 --act greedy --key 1 --attack"
    attacked = good(f"{words} random=0 random=0.2 action=0.5 dynamics.length=0.5").splitlines()
    assert [line.split(":")[0] for line in attacked] == [
        "random 0",
        "random 0.2",
        "action 0.5",
        "dynamics.length 0.5",
    ]
    assert attacked[0].startswith("random 0: return 6.00 (IQM 6.00")
    for attack, said in (
        ("random=-0.1", "--attack random=-0.1: the strength must be a finite number of at least 0"),
        ("action=1.5", "--attack action=1.5: the strength must be from 0 to 1"),
        ("randon=0.1", "--attack randon=0.1: no such attack; did you mean random=0.1?"),
        ("random", "--attack random: the strength must be a number, as in random=0.1"),
        ("dynamics=0.1", "--attack dynamics=0.1: say which parameters of the task, as in dynamics.mass,length=0.1"),
        ("dynamics.length=1", "--attack dynamics.length=1: the strength must be from 0 to below 1"),
        ("dynamics.length,length=0.1", "each of them once"),
        ("dynamics.lenth=0.1", "'lenth' is no parameter that it can change; did you mean 'length'?"),
        ("action.length=0.1", "--attack action.length=0.1: no such attack"),
        ("directed=0.1", r"--attack directed: CartPole-v1 acts in Discrete(2), without derivatives; random=0.1"),
        ("policy=0.1", r"--attack policy: CartPole-v1 acts in Discrete(2), without derivatives; random=0.1"),
        ("random=0.1 --hold 2", "--attack and --hold: give one of them"),
    ):
        assert said in bad(f"{words} {attack}")


@pytest.mark.slow
@pytest.mark.light
def test_a_policy_of_numbers_is_attacked_where_its_action_changes_most(tmp_path, monkeypatch):
    """By gradients, and by a director who has learned for one update."""
    monkeypatch.setattr(evaluate, "DIRECTOR_STEPS", 2048)
    good(f"train ppo Pendulum-v1 --total-steps 32 {TINY} --no-progress --out {tmp_path / 'p'}")
    attacks = "random=0 policy=0 directed=0 policy=0.5 directed=0.5"
    said = good(f"eval {tmp_path / 'p'} --episodes 2 --max-steps 20 --attack {attacks}").splitlines()
    found = dict(line.split(": ") for line in said if ": return" in line)
    assert found["random 0"] == found["policy 0"] == found["directed 0"]
    assert len({found["random 0"], found["policy 0.5"], found["directed 0.5"]}) == 3


@pytest.mark.slow
@pytest.mark.light
def test_a_task_without_a_time_limit_is_trained_and_judged_all_the_same(tmp_path):
    """A hundred ids have none; evaluations then have a cap, which `eval` reads from the run."""
    short = f"--total-steps 32 {TINY} --params.max-steps {NO_LIMIT} --eval-episodes 2 --no-progress"
    words = f"train ppo CartPole-v1 {short} --out {tmp_path / 'x'}"
    status, out, err = run_command(words)
    assert status == 0 and "cut after 1000 steps (--eval-max-steps" in err and "return" in out
    assert json.loads((tmp_path / "x" / "config.json").read_text())["recipe"]["run"]["eval_max_steps"] == 1000
    assert "full episodes a seed, by samples" in good(f"eval {tmp_path / 'x'} --episodes 2")
    status, _, err = run_command(f"{words[:-1]}y --eval-max-steps 5")
    assert status == 0 and "cut after" not in err
    assert "length 5.0" in good(f"eval {tmp_path / 'y'} --episodes 2")


def test_export(run):
    _, name, says = run_command(f"export {run[0]} --seed 1")
    name = name.strip()
    assert name.endswith("policy.h") and "policy_check" in Path(name).read_text()
    assert says.startswith("the mode of a policy that acts by samples; `jaxrl eval") and "--act greedy" in says
    assert "the run has seeds 0 to 1" in bad(f"export {run[0]} --seed 2")


def test_render(run):
    name = good(f"render {run[0]} --max-steps 5 --seed 1").strip()
    assert name == str(run[0] / "media" / "policy.gif") and picture(name)[0] == 6
    sheet = good(f"render {run[0]} --max-steps 5 --out sheet.png").strip()
    assert sheet == "sheet.png" and len(np.unique(picture(sheet)[1].reshape(-1, 3), axis=0)) > 3


@pytest.mark.parametrize(
    ("id", "steps", "speed"),
    [
        ("CartPole-v1", 1, 50),
        ("Acrobot-v1", 1, 5),
        ("MiniGrid-DoorKey-5x5-v0", 1, 30),  # no clock
        ("Quadcopter-Hover-v0", 2, 50),
        ("Quadcopter-TimedGates-v0", 1, 20),
        ("Quadcopter-GpdHover-v0", 1, 30),
    ],
)
def test_videos_run_at_the_speed_of_the_task(id, steps, speed):
    every, fps = playback(*jaxrl.make(id))
    assert every == steps and fps == pytest.approx(speed)


@pytest.mark.slow
def test_several_agents_are_slots_of_one_policy(tmp_path):
    folder = tmp_path / "flock"
    short = "--total-steps 64 --env.num-agents 2 --params.max-steps 6 --checkpoint-every 32 --config.num-envs 4"
    tiny = "--config.num-steps 8 --config.num-minibatches 1 --config.num-epochs 1 --config.hidden 8"
    train = f"train ppo Quadcopter-Flock-v0 {short} {tiny} --eval-episodes 2 --no-progress --video --out {folder}"
    status, out, err = run_command(train)
    assert status == 0 and "over 2 full episodes" in out, err
    assert err == (
        "Quadcopter-Flock-v0: one policy for its 2 agents, each of them a slot (num_envs=4: 2 x 2); a return is their "
        "mean\n"
    ) * err.count("\n")
    with Image.open(folder / "media" / "policy.gif") as video:
        assert video.n_frames == 7 and video.info["duration"] == 20  # 48 control steps a second
    before = contents(folder)
    shutil.rmtree(max((folder / "checkpoints").iterdir(), key=lambda path: path.stat().st_mtime))
    good(f"resume {folder} --no-progress")
    assert contents(folder)[Path("metrics.jsonl")] == before[Path("metrics.jsonl")]
    assert "length 6.0" in good(f"eval {folder} --episodes 2 --act greedy")
    header = Path(good(f"export {folder}").strip()).read_text()
    env, params = jaxrl.make("Quadcopter-Flock-v0", num_agents=2)
    assert f"#define POLICY_OBS_SIZE {env.observation_space(params).shape[0]}" in header
    assert "M steps/s" in good("bench Quadcopter-Flock-v0 --num-envs 2 --steps 3 --repeats 1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("ppo Quadcopter-Flock-v0 --config.num-envs 6", "num_envs=6: each of the 4 agents .* is a slot; 8 would do"),
        ("td3 Quadcopter-Flock-v0", "num_envs=1: each of the 4 agents .* is a slot; 4 would do"),
        ("ppo_rnn Quadcopter-Flock-v0", "several agents; ppo_rnn remembers, and learns from one agent only"),
        ("stream_ac Quadcopter-Flock-v0", "4 agents; stream_ac trains one"),
    ],
)
def test_several_agents_that_do_not_fit(words, message, tmp_path):
    status, _, err = run_command(f"train {words} --out {tmp_path / 'run'}")
    assert status == 1 and re.search(message, err) and not (tmp_path / "run").exists(), err


def test_plot(run):
    assert good(f"plot {run[0]} {run[0]} --out two.png --metric loss --window 2").strip() == "two.png"
    assert np.ptp(picture("two.png")[1]) > 200


def test_report_of_a_run_and_its_episode(run):
    assert good(f"plot {run[0]} --episode --max-steps 5").strip() == f"{run[0]}/media/episode.png"
    assert good(f"report {run[0]} --out page.html --title Mine").strip() == "page.html"
    page = Path("page.html").read_text()
    assert "<h1>Mine</h1>" in page and "jaxrl train ppo CartPole-v1" in page and 'data-name="theta_dot"' in page
    for file in ("episode.png", "episode.json"):
        (Path(run[0]) / "media" / file).unlink()


# ---- what is the user's own

TANK = """
import dataclasses
import jaxrl
from jaxrl.envs.classic import cartpole

@dataclasses.dataclass(frozen=True)
class Tank(cartpole.CartPole):
    pass

jaxrl.register("Tank-v0", Tank)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with an environment and an algorithm of the user's, as `python -m` would find them."""
    package = tmp_path / "own_things"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tanks.py").write_text(TANK)
    shutil.copy(Path(jaxrl.__file__).parent / "algos" / "on_policy" / "ppo.py", package / "learner.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] in ("own_things", "tanks", "learner")]:
        del sys.modules[name]
    registry.environments().pop("Tank-v0", None)


@pytest.mark.slow
@pytest.mark.light
def test_own_things_are_trained_judged_and_gone_on_with(own, tmp_path):
    short = f"--total-steps 32 --checkpoint-every 16 {TINY} --params.max-steps 8 {EVALUATION}"
    assert "return" in good(f"train own_things.learner own_things.tanks:Tank-v0 {short} --out {tmp_path}/run")
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert kept["recipe"]["env_id"] == "own_things.tanks:Tank-v0" and kept["env"] == "Tank-v0"
    assert build(kept["recipe"])[0].init.__module__ == "own_things.learner"
    before = contents(tmp_path / "run")
    shutil.rmtree(max((tmp_path / "run" / "checkpoints").iterdir()))
    good(f"resume {tmp_path}/run --no-progress")
    assert contents(tmp_path / "run")[Path("metrics.jsonl")] == before[Path("metrics.jsonl")]
    assert "length" in good(f"eval {tmp_path}/run --episodes 2 --max-steps 5")
    assert Path(good(f"export {tmp_path}/run").strip()).exists()
    assert Path(good(f"render {tmp_path}/run --max-steps 3").strip()).exists()


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("num_seeds", [None, 2])
def test_what_fit_made_is_read_by_the_commands(own, tmp_path, num_seeds):
    """Names and numbers of what was trained are kept, so that nobody needs the program that did it."""
    sys.path.insert(0, str(tmp_path))  # as of a script there
    import own_things.learner as learner  # pyright: ignore[reportMissingImports]
    import own_things.tanks as tanks  # pyright: ignore[reportMissingImports]

    env = tanks.Tank(id="Tank-v7")
    config = learner.Config(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,))
    params = env.default_params.replace(length=0.7, max_steps=jax.numpy.int32(9))
    given: dict[str, Any] = dict(num_seeds=num_seeds, checkpoint_every=16, env_params=params)
    given["hyper"] = learner.Hyper(learning_rate=3e-3)
    algo = learner.make(env, config)
    result = fit(algo, jax.random.key(4), 48, out="run", eval_every=32, eval_episodes=2, progress=False, **given)
    kept = json.loads(Path("run/config.json").read_text())
    assert kept.get("no_recipe") is None
    again, hyper, task, restored = build(kept["recipe"])
    assert again == algo and task == env and hyper.learning_rate == np.float32(3e-3)
    assert restored.length == np.float32(0.7) and restored.max_steps == 9
    before = contents("run")
    shutil.rmtree(max(Path("run/checkpoints").iterdir()))
    good("resume run --no-progress")
    assert contents("run")[Path("metrics.jsonl")] == before[Path("metrics.jsonl")]
    weights = load_run(read_recipe(Path("run")), Path("run"))[1].weights
    for x, y in zip(jax.tree.leaves(result.state.weights), jax.tree.leaves(weights), strict=True):
        assert (x == y).all()
    assert "length 5.0" in good("eval run --episodes 2 --max-steps 5")
    assert Path(good("export run").strip()).exists() and Path(good("render run --max-steps 3").strip()).exists()


def test_what_names_and_numbers_do_not_say_has_no_recipe():
    """Each is refused with what it leaves out; nothing is guessed."""
    env, params = jaxrl.make("CartPole-v1")
    config = ppo.Config(num_envs=2, num_steps=8, num_minibatches=1, hidden=(8,))
    algo = ppo.make(env, config)
    assert recipe_of(algo, ppo.Hyper(), None, {})["algo"] == "ppo"
    assert recipe_of(ppo.make(jaxrl.vectorize(env, 2), config), ppo.Hyper(), params, {})["params"] == {}

    @dataclasses.dataclass(frozen=True)
    class Local(type(env)):
        pass

    network = ActorCritic(env.observation_space(params), 2, False, (16,), "tanh")
    for other, says in (
        (ppo.make(jaxrl.vectorize(env, 2, reset="sparse"), config), "vectorised in a way of its own"),
        (ppo.make(jaxrl.vectorize(env, 2, generator="threefry"), config), "vectorised in a way of its own"),
        (ppo.make(env, config, network=network), "a network of its own"),
        (
            cql_discrete.make(env, cql_discrete.Config(target="data", hidden=(8,)), replay=datasets.carried),
            "another argument",
        ),
        (ppo.make(Local(id="Mine-v3"), config), "defined inside something else"),
        (ppo.make(FlattenObservation(env), config), "wrapped"),
        (pbt.make(algo, pbt.Config((("gamma", 0.9, 0.99),), population=4)), "something stands around"),
    ):
        with pytest.raises(NoRecipeError, match=says):
            recipe_of(other, ppo.Hyper(), None, {})
    with pytest.raises(NoRecipeError, match="env_params are built otherwise"):
        recipe_of(algo, ppo.Hyper(), jaxrl.make("Pendulum-v1")[1], {})


def test_own_things_by_class_and_by_file(own, monkeypatch):
    recipes = []
    monkeypatch.setattr(train, "run_fit", lambda recipe, out, devices, resume: recipes.append((recipe, out)) or 0)
    good(f"train own_things/learner.py own_things/tanks.py:Tank {TINY}")
    recipe, out = recipes[0]
    assert str(out).startswith("runs/learner-Tank-") and Path(recipe["algo"]).is_absolute()
    monkeypatch.chdir("/")  # files are found from anywhere
    algo, _, task, _ = build(json.loads(json.dumps(recipe)))
    assert algo.init.__module__ == "learner" and type(task).__module__ == "tanks" and task.id == "CartPole-v1"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("own_things.nothing CartPole-v1", "there is no module 'own_things.nothing', installed or in"),
        ("nothing.at.all CartPole-v1", "there is no module 'nothing', installed or in"),
        ("own_things.tanks CartPole-v1", "own_things.tanks has no Config and no Hyper and no make: an algorithm is"),
        ("own_things/no.py CartPole-v1", "no.py': there is no such file"),
        ("ppo own_things.tanks:Tnk-v0", "own_things.tanks has no class or function 'Tnk-v0' and registers no such id"),
    ],
)
def test_own_things_that_are_not_there(own, words, says):
    assert says in bad(f"train {words} --total-steps 32")


# ---- the lists, the help, the entries


def test_sweep(tmp_path):
    words = "--hyper.learning-rate 1e-3 1e-2 --hyper.gamma 0.9 0.99 --seeds 2 --total-steps 32 --eval-episodes 2"
    said = good(f"sweep ppo CartPole-v1 {words} --eval-max-steps 10 --no-progress {TINY} --out {tmp_path}/s")
    assert said.startswith("| learning_rate | gamma | mean |") and said.count("\n") == 8
    assert picture(tmp_path / "s" / "heat_map.png")[1].shape[0] > 300
    kept = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert [p["gamma"] for p in kept["points"]] == [0.9, 0.99] * 2 and len(kept["points"][0]["returns"]) == 2
    assert "several values" in bad(f"sweep ppo CartPole-v1 {TINY}", 2)
    assert "holds a run already" in bad(f"sweep ppo CartPole-v1 {words} --at-once 8 {TINY} --out {tmp_path}/s")


def test_envs():
    assert good("envs cartpole-v?").split()[0] == "CartPole-v1" and len(good("envs cartpole-v?").splitlines()) == 1
    everything = good("envs").splitlines()
    assert [line.split()[0] for line in everything] == jaxrl.list_envs()
    assert "no environment matches 'nothing'" in bad("envs nothing")
    assert "Discrete(2)" in good("envs CARTPOLE-v1")


@pytest.mark.parametrize("command", ["envs", "algos", "zoo"])
def test_patterns_are_alike(command):
    """A part of the name or a shell pattern, upper and lower case alike."""
    words = {"envs": ("TPOLE-v", "cart*-v1"), "algos": ("Ppo_", "P?o_rnn"), "zoo": ("cartpole", "ppo/*-V1")}
    everything = good(command).splitlines()
    for pattern in words[command]:
        found = good(f"{command} {pattern}").splitlines()
        assert 0 < len(found) < len(everything), pattern
    assert "matches 'nothing'" in bad(f"{command} nothing")
    assert f"usage: jaxrl {command}" in good(f"{command} --help")


def test_the_list_of_all_environments_builds_none(monkeypatch):
    monkeypatch.setattr(registry, "make", lambda id, **_: pytest.fail(f"{id} was built"))
    assert len(good("envs").splitlines()) == len(jaxrl.list_envs())


def test_algos():
    algos, curricula, python = (part.splitlines() for part in good("algos").split("\n\n"))
    assert [line.split()[0] for line in algos] == jaxrl.list_algos()
    assert [line.split()[0] for line in curricula[1:]] == registry.list_curricula()
    assert {line.split()[0] for line in python[1:]} == {"pbt", "groove", "mbtl"}
    assert all(len(line.split()) > 2 for line in (*algos, *curricula, *python))


# ---- curricula


@pytest.mark.slow
def test_a_run_under_level_replay_goes_on_and_is_evaluated_on_the_task(tmp_path):
    levels = "--curriculum plr --curriculum.config.buffer-size 8 --curriculum.hyper.staleness 0.5"
    small = f"Maze-v0 --env.height 5 --env.width 5 --params.walls 5 --params.max-steps 8 {TINY} {EVALUATION}"
    folder = tmp_path / "run"
    good(f"train ppo {small} {levels} --total-steps 64 --out {folder}")
    recipe = json.loads((folder / "config.json").read_text())["recipe"]
    assert recipe["curriculum"]["name"] == "plr" and recipe["curriculum"]["hyper"]["staleness"] == 0.5
    algo, _, task, params = build(recipe)
    assert algo.name == "ppo+plr" and params.walls == 5
    keys = jax.random.split(jax.random.key(3), 8)  # mazes of the task are drawn by the key, not replayed
    plain = jaxrl.make("Maze-v0", height=5, width=5)[0]
    drawn, expected = (jax.vmap(env.reset, (0, None))(keys, params)[0] for env in (task, plain))
    jax.tree.map(np.testing.assert_array_equal, drawn, expected)
    assert any(np.ptp(x, axis=0).any() for x in map(np.asarray, jax.tree.leaves(drawn)))
    assert "return" in good(f"eval {folder} --episodes 2 --max-steps 8")
    assert "run folder" in good(f"resume {folder} --no-progress")


GOALS = """
import jax
import jax.numpy as jnp

def upright(env, params):
    return jax.tree.map(lambda x: jnp.zeros_like(x)[None], env.initial(jax.random.key(0), params))
"""


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    ("name", "env", "words"),
    [
        ("adversarial_params", "Pendulum-v1", "--curriculum.ranges mass=0.5:2 --curriculum.config.num-steps 4"),
        ("paired", "Maze-v0", "--env.height 3 --env.width 3 --params.walls 2"),
        ("reverse_curriculum", "CartPole-v1", "--curriculum.goals balanced.py:upright --curriculum.config.repeats 1"),
        ("snapshot", "CartPole-v1", "--curriculum.teacher {run} --curriculum.config.max-steps 20"),
    ],
)
def test_curricula_that_are_built_otherwise(run, name, env, words, tmp_path, monkeypatch):
    """Their files say what they are built from; a run of each is judged on the task and goes on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("balanced.py").write_text(GOALS)
    short = f"--total-steps 48 --checkpoint-every 16 {TINY} --params.max-steps 6 {EVALUATION}"
    good(f"train ppo {env} --curriculum {name} {words.format(run=run[0])} {short} --out run")
    before = contents("run")
    assert json.loads(before[Path("config.json")])["algorithm"] == "ppo+" + name.replace(
        "adversarial_params", "adversary"
    )
    shutil.rmtree(max(Path("run/checkpoints").iterdir()))
    good("resume run --no-progress")
    assert contents("run")[Path("metrics.jsonl")] == before[Path("metrics.jsonl")]
    assert "length" in good("eval run --episodes 2 --max-steps 5")


@pytest.mark.slow
@pytest.mark.light
def test_settings_of_a_curriculum_are_swept(tmp_path):
    small = f"Maze-v0 --env.height 5 --env.width 5 --params.walls 5 --params.max-steps 8 {TINY}"
    words = "--curriculum plr --curriculum.config.buffer-size 8 --curriculum.hyper.replay-prob 0.2 0.5"
    short = "--seeds 1 --total-steps 32 --eval-episodes 2 --no-progress"
    said = good(f"sweep ppo {small} {words} --hyper.gamma 0.9 0.99 {short} --out {tmp_path}/s")
    assert said.startswith("| gamma | curriculum.replay_prob | mean |") and said.count("\n") == 8
    kept = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert [p["curriculum.replay_prob"] for p in kept["points"]] == [0.2, 0.5] * 2


@pytest.mark.slow
def test_a_student_off_policy_under_a_teacher(tmp_path):
    teacher = "--curriculum alp_gmm --curriculum.ranges length=0.5:1.5 mass=0.5:2"
    teacher += " --curriculum.hyper.return-low -1600 --curriculum.hyper.return-high 0"
    small = "--config.num-envs 2 --config.num-steps 6 --config.num-updates 3 --config.batch-size 4 --config.hidden 8"
    learner = f"{small} --config.buffer-size 64 --hyper.learning-starts 0 --params.max-steps 6 {EVALUATION}"
    good(f"train sac Pendulum-v1 {teacher} {learner} --total-steps 48 --out {tmp_path / 'run'}")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["levels_finished"] == [1.0] and rows[-1]["gradient_steps"][0] > 0


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.parametrize(
    "words",
    [
        "adr --curriculum.hyper.widen-at 9 --curriculum.ranges length=0.2:3.0 mass_pole=0.05:1.0",
        "dr --curriculum.ranges length=0.2:3.0",
        "accel --curriculum.score learnability",
        "traced --curriculum.config.model-size 4 --curriculum.hyper.transition-coef 1.5",
        "sfl --curriculum.success-above 0.5 --curriculum.config.num-levels 8 --curriculum.config.chunk 8 "
        "--curriculum.config.buffer-size 4 --curriculum.config.num-steps 4",
    ],
)
def test_curricula_are_built_from_words(monkeypatch, words):
    recipes = []
    monkeypatch.setattr(train, "run_fit", lambda recipe, out, devices, resume: recipes.append(recipe) or 0)
    env = "CartPole-v1" if "ranges" in words else "Maze-v0"
    good(f"train ppo {env} --curriculum={words} {TINY}")
    algo, hyper, _, params = build(json.loads(json.dumps(recipes[0])))
    state = jax.eval_shape(algo.init, jax.random.key(0), hyper, params)
    assert {"level_success", "levels_finished"} <= jax.eval_shape(algo.update, state)[1].keys()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("plr CartPole-v1", "plr chooses a student's levels: jaxrl train ppo CartPole-v1 --curriculum plr"),
        ("ppo CartPole-v1 --curriculum plrr", "Unknown curriculum 'plrr'. Did you mean 'plr'?"),
        ("ppo CartPole-v1 --curriculum plr", "CartPole-v1 has no `generate`"),
        ("ppo CartPole-v1 --curriculum random_teacher", "ranges of no parameter"),
        ("ppo CartPole-v1 --curriculum dr --curriculum.ranges length=1", "length=1: it is written NAME=LOW:HIGH"),
        ("ppo CartPole-v1 --curriculum dr --curriculum.ranges lenth=1:2", "did you mean 'length'"),
        (f"{SHORT} --curriculum accel --curriculum.ranges length=1:2", "mutate_fn=None"),
        (f"{SHORT} --curriculum paired", "paired: CartPole-v1 has no `editor`"),
        (f"{SHORT} --curriculum snapshot", "snapshot needs --curriculum.teacher"),
        (f"{SHORT} --curriculum reverse_curriculum --curriculum.goals nothing", "'nothing' is no function"),
        (
            f"{SHORT} --curriculum adr --curriculum.hyper.widen-at 9 --curriculum.ranges length=1:2 "
            "--curriculum.score max_mc",
            "adr reads no score.",
        ),
        ("ppo CartPole-v1 --curriculum dr --curriculum.ranges length=-1:2", "length=-1.0 must be positive"),
        ("stream_ac CartPole-v1 --curriculum dr --curriculum.ranges length=1:2", "config.num_envs"),
    ],
)
def test_curricula_that_cannot_be(words, says, tmp_path):
    assert says in bad(f"train {words} --total-steps 640 --out {tmp_path / 'x'}")


def test_a_curriculum_needs_its_name():
    assert "--curriculum needs a name" in bad("train ppo Maze-v0 --curriculum", 2)
    assert "return-low" in good("train ppo CartPole-v1 --curriculum riac --help")


def test_bench():
    out = good("bench CartPole-v1 --num-envs 2 --steps 3 --repeats 1")
    assert re.fullmatch(r"CartPole-v1 +\d+\.\d\d M steps/s +compile \d+\.\d s\n", out)


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(3), spaces.Discrete(300), spaces.Box(-2.0, 1.0, (2,)), spaces.Box(0, 3, (2,), np.int32)],
)
def test_random_actions_are_of_the_space_and_cover_it(space):
    actions = np.asarray(bench.random_actions(jax.random.key(0), space, 4000))
    sample = space.sample(jax.random.key(0))
    assert actions.shape == (4000, *space.shape) and actions.dtype == sample.dtype
    low, high = (0, space.n - 1) if isinstance(space, spaces.Discrete) else (space.low, space.high)
    assert actions.min() >= low and actions.max() <= high
    middle, spread = (low + high) / 2, high - low
    np.testing.assert_allclose(actions.mean(0), middle, atol=0.03 * spread)
    np.testing.assert_allclose([actions.min(), actions.max()], [low, high], atol=0.01 * spread)


def test_version_and_help():
    assert re.fullmatch(r"jaxrl \d+\.\d+\S*\n", good("--version"))
    assert good("help") == good("--help") and good("help plot") == good("plot --help")


@pytest.mark.parametrize("command", ["train --help", "help train", "train ppo --help", "sweep --help", "help sweep"])
def test_help_of_what_names_an_algorithm_has_the_flags_of_every_run(command):
    name = "sweep" if "sweep" in command else "train"
    out = " ".join(good(command).split())
    assert f"usage: jaxrl {name} ALGO ENV" in out and "--hyper.*" in out
    for flag in ("--seeds", "--seed", "--out", "--total-steps", "--memory", "--eval-episodes", "--dataset"):
        assert f" {flag} " in out


@pytest.mark.parametrize("command", ["--help", "-h"])
def test_help_names_every_command(command):
    out = good(command)
    assert all(f"jaxrl {name}" in out for name in COMMANDS) and max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in NAMING])
def test_help_of_a_command(command):
    assert f"usage: jaxrl {command}" in good(f"{command} --help")


@pytest.mark.slow
@pytest.mark.light
def test_help_of_train_has_every_setting():
    out = good("train ppo Acrobot-v1 --help")
    module = jaxrl.get_algo("ppo")
    flags = [f"--config.{f.name}" for f in dataclasses.fields(module.Config)]
    flags += [f"--hyper.{f.name}" for f in dataclasses.fields(module.Hyper)]
    names = [f.name.rstrip("_") for f in dataclasses.fields(train.TrainFlags)]  # `from` is a word of Python
    flags += [f"--{name}" for name in names] + ["--params.max-steps"]
    for flag in flags:
        assert flag.replace("_", "-") in out, flag
    assert "default: 8" in out  # the tuned num_envs


def test_parameters_inside_others_have_flags_and_units(monkeypatch):
    recipes = []
    monkeypatch.setattr(train, "run_fit", lambda recipe, out, devices, resume: recipes.append(recipe) or 0)
    words = "ppo Cont-CC-PMSM-v0 --params.max-steps 9"
    good(f"train {words} --params.machine.l-d 0.0004 --params.gamma 0.5")
    recipe = json.loads(json.dumps(recipes[0]))
    assert recipe["params"]["machine.l_d"] == 0.0004
    _, _, _, params = build(recipe)
    assert params.machine.l_d == np.float32(0.0004) and params.gamma == 0.5
    out = good(f"train {words} --help")
    assert re.search(r"--params.machine.l-d FLOAT\s+│?\s*H", out.replace("│", " ")), out[:9000]
    assert "s, the control step" in out and "--hyper.gamma" in out


def test_what_an_environment_fixes_is_no_setting():
    """RiverSwim's number of actions is a field, but not of its constructor."""
    _, settings, _ = flags.settings_of("env", jaxrl.make("RiverSwim-v0")[0])
    assert [f.name for f in dataclasses.fields(settings)] == ["num_states"]


def test_without_words():
    assert run_command("")[0] == 2


def test_the_algorithm_file_is_a_command(monkeypatch, capsys):
    file = str(Path(jaxrl.__file__).parent / "algos" / "on_policy" / "ppo.py")
    monkeypatch.setattr(sys, "argv", ["ppo.py", "CartPole-v1", "--help"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(file, run_name="__main__")
    assert stop.value.code == 0 and "usage: jaxrl train ppo CartPole-v1" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["ppo.py", "Nope-v1"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(file, run_name="__main__")
    assert stop.value.code == 1 and "Unknown environment 'Nope-v1'" in capsys.readouterr().err


# ---- bad input: one clear line, and nothing lost


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train ppo CartPol-v1", r"Unknown environment 'CartPol-v1'. Did you mean 'CartPole-v1'\?"),
        ("train pppo CartPole-v1", r"Unknown algorithm 'pppo'. Did you mean 'ppo'\?"),
        ("train dqn Pendulum-v1", r"dqn .*Discrete.*Pendulum-v1"),
        ("train ppo CartPole-v1 --params.length -1", r"length=-1.0"),
        ("train ppo CartPole-v1 --seeds 0", r"num_seeds=0: it must be at least 1"),
        ("train ppo CartPole-v1 --total-steps 0", r"total_steps=0: it must be at least 1"),
        ("train ppo CartPole-v1 --total-steps -5", r"total_steps=-5"),
        ("train ppo CartPole-v1 --keep 0", r"keep=0"),
        ("train ppo CartPole-v1 --eval-episodes -1", r"eval_episodes=-1"),
        ("train ppo CartPole-v1 --checkpoint-every -1", r"checkpoint_every=-1"),
        ("train ppo CartPole-v1 --log wandb", r"pip install wandb"),
        ("train ppo CartPole-v1 --hyper.gamma 1.5", r"hyper\.gamma=1\.5: it must be between 0 and 1"),
        ("train ppo CartPole-v1 --hyper.anneal-steps 5e9", r"hyper\.anneal_steps=5000000000: .* at most 2147483647"),
        ("train ppo CartPole-v1 --params.max-steps 0", r"CartPole-v1: max_steps=0: an episode has at least one step"),
        ("train ppo CartPole-v1 --params.max-steps 5e9", r"max_steps=5000000000: .* at most 2147483647"),
        ("train ucb CartPole-v1", r"ucb plays bandits .* CartPole-v1 has states.*dqn"),
        ("train exp3 Catch-bsuite", r"exp3 plays bandits .* Catch-bsuite has states"),
        ("render x --max-steps -5", r"--max-steps -5: it must be at least 1"),
        ("eval x --max-steps 0", r"--max-steps 0: it must be at least 1"),
        ("bench CartPol-v1", r"Unknown environment 'CartPol-v1'"),
        ("eval nowhere", r"nowhere holds no run"),
        ("resume nowhere", r"nowhere holds no run"),
        ("render nowhere", r"nowhere holds no run"),
        ("plot nowhere", r"nowhere has no metrics"),
        ("plot nowhere --episode", r"nowhere holds no run"),
        ("plot x --episode --max-steps 0", r"--max-steps 0: it must be at least 1"),
        ("report nowhere", r"nowhere holds no run"),
    ],
)
def test_bad_input(command, message, monkeypatch, tmp_path):
    if "wandb" in command:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    out = tmp_path / "run"
    said = bad(command + (f" --out {out}" if command.startswith("train") else ""))
    assert re.search(message, said), said
    assert not out.exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train", "train needs an algorithm and an environment"),
        ("train ppo", "train needs an algorithm and an environment"),
        ("train cartpole-v1", r"train needs an algorithm and an environment.* Did you mean CartPole-v1\?"),
        ("train CartPole-v1 --dataset x.npz", "train CartPole-v1 --dataset: name the algorithm, as in jaxrl train bc"),
        ("train CartPole-v1 --sede 3", r"--sede\b.*--seed"),
        ("plot", "plot needs at least one run folder|Missing"),
        ("plot x y --episode --out z.png", "--episode --out takes one run folder"),
        ("report", "report needs at least one run folder|Missing"),
        ("eval", "(?i)required|missing"),
        ("trian ppo CartPole-v1", r"unknown command 'trian'. Did you mean 'train'\?"),
        ("train ppo CartPole-v1 --config.num-minibatches 3", r"num_minibatches=3 does not divide .*= 512; 1 does"),
        ("train ppo CartPole-v1 --config.num-envs -2", "num_envs=-2: it must be at least 1"),
        ("train ppo CartPole-v1 --sede 3", r"--sede\b.*--seed"),
        ("train ppo CartPole-v1 --seeds many", "--seeds.*'many'"),
        ("train ppo CartPole-v1 --out=", "a word is empty"),
        ("train ppo CartPole-v1 --total-steps 1e-3", "--total-steps.*'?1e-3'?"),
        ("train ppo CartPole-v1 --hyper.gama 3", "--hyper.gama.*--hyper.gamma"),
    ],
)
def test_wrong_usage(command, message):
    said = bad(command, status=2)
    assert re.search(message, said), said


def test_an_existing_run_is_not_touched(run):
    before = contents(run[0])
    assert "holds a run already: resume it, overwrite it, or name another" in bad(f"{TRAIN} --out {run[0]}")
    bad(f"{TRAIN} --out {run[0]} --overwrite --keep 0")
    assert "--seed 2: the run has seeds 0 to 1" in bad(f"render {run[0]} --seed 2")
    assert "num_episodes=0" in bad(f"eval {run[0]} --episodes 0")
    assert "no metric 'reward'; it has approx_kl" in bad(f"plot {run[0]} --metric reward --out x.png")
    assert "x.jpgg: the suffix must be one of" in bad(f"plot {run[0]} --out x.jpgg")
    assert "'.bmp'; use .gif, .mp4 or .png" in bad(f"render {run[0]} --out x.bmp --max-steps 2")
    assert contents(run[0]) == before


def test_an_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "run", "/proc/nowhere"):
        assert "choose another folder" in bad(f"{TRAIN} --out {out}")


def test_missing_foreign_and_damaged_checkpoints(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run[0], copy)
    config = json.loads((copy / "config.json").read_text())
    config["recipe"]["config"]["hidden"] = [16]
    (copy / "config.json").write_text(json.dumps(config))
    for word in ("eval", "resume"):
        assert "config.hidden is [8] there, [16] here" in bad(f"{word} {copy}")
    del config["recipe"]
    (copy / "config.json").write_text(json.dumps(config))
    assert "is read by the Python program that made it alone: it keeps no recipe" in bad(f"resume {copy}")
    shutil.copy(run[0] / "config.json", copy / "config.json")
    shutil.rmtree(copy / "checkpoints")
    assert "No usable checkpoint" in bad(f"eval {copy}")
    (copy / "config.json").write_text("{")
    assert "no readable config.json" in bad(f"resume {copy}")
    assert (copy / "metrics.jsonl").read_bytes() == (run[0] / "metrics.jsonl").read_bytes()


def test_an_empty_word_is_an_unset_variable(capsys):
    assert cli.main(["train", "ppo", "CartPole-v1", "--out", ""]) == 2
    assert "is a variable of the shell not set?" in capsys.readouterr().err and not Path("config.json").exists()


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "out of memory: fewer --seeds"),
        (MemoryError("Unable to allocate 4 GiB for an array"), "out of memory"),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nallocating 9 bytes"), "out of memory"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "the disk is full: make room, then `jaxrl resume`"),
        (caused(KeyError("orbax"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))), "the disk is full"),
        (RuntimeError("RESOURCE_EXHAUSTED: write failed: [OS error 28: No space left on device]"), "the disk is full"),
        (ValueError("two\nlines"), "two lines"),
    ],
)
def test_an_error_is_one_sentence(error, says, monkeypatch):
    monkeypatch.setattr("jaxrl.host.cli.plot.plot_command", lambda args: (_ for _ in ()).throw(error))
    assert bad("plot x").startswith(f"jaxrl: {says}")


def test_an_error_of_our_own_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("jaxrl.host.cli.plot.plot_command", lambda args: {}["missing"])
    with pytest.raises(KeyError):
        run_command("plot x")


def test_a_reader_that_has_seen_enough_is_no_error(monkeypatch):
    """`jaxrl algos | head`."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert cli.main(["algos"]) == 0


def test_a_sweep_that_is_stopped_says_how_to_go_on(monkeypatch, capsys, tmp_path):
    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeping, "sweep", stopped)
    words = f"sweep ppo CartPole-v1 {TINY} --hyper.gamma 0.9 0.99 --out {tmp_path}"
    assert cli.main(words.split()) == 130
    assert f"Go on with the same words, --out {tmp_path} and --resume." in capsys.readouterr().out


def test_a_sweeps_folder_is_no_run_and_says_so(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "runs-0000-0003").mkdir()
    for word in ("resume", "plot", "eval", "render", "report"):  # nothing was run in it
        assert "is a sweep's folder, of the runs in runs-0000-0003" in bad(f"{word} {tmp_path}")


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("1e6", "1000000"),
        ("1.5E+3", "1500"),
        ("--total-steps=2e5", "--total-steps=200000"),
        *((word, word) for word in ("1e-4", "2.55e1", "3", "0.5", "e6", "--hyper.learning-rate=1e-3", "runs/1e6")),
    ],
)
def test_whole_numbers_are_written_out(word, written):
    assert flags._written_out(word) == written


def test_steps_with_an_exponent(monkeypatch):
    recipes = []
    monkeypatch.setattr(train, "run_fit", lambda recipe, out, devices, resume: recipes.append(recipe) or 0)
    good("train ppo CartPole-v1 --total-steps 1e5 --hyper.anneal-steps 1e6 --hyper.learning-rate 1e1")
    assert recipes[0]["run"]["total_steps"] == 100_000 and recipes[0]["hyper"]["anneal_steps"] == 1_000_000
    assert recipes[0]["hyper"]["learning_rate"] == 10.0


@pytest.mark.slow
@pytest.mark.light
def test_a_run_is_made_longer(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run[0], copy)
    assert "--total-steps 95: the run is to have 96 already" in bad(f"resume {copy} --total-steps 95")
    good(f"resume {copy} --total-steps 192 --no-progress")
    long = tmp_path / "long"
    good(f"{TRAIN.replace('96', '192', 1)} --hyper.learning-rate 0.002 --seed 3 --out {long}")
    one, other = (jax.tree.leaves(load_run(read_recipe(f), f)[1]) for f in (copy, long))
    assert all(bool((a == b).all()) for a, b in zip(one, other, strict=True))
    assert contents(copy)[Path("metrics.jsonl")] == contents(long)[Path("metrics.jsonl")]
    good(f"resume {copy} --no-progress")  # to the new total
    assert json.loads((copy / "summary.json").read_text())["steps"] == 192


def test_a_learning_rate_that_ends_before_the_run_is_told(run, monkeypatch):
    recipe = read_recipe(run[0])
    recipe["run"]["total_steps"], recipe["hyper"]["anneal_steps"] = 96, 64
    monkeypatch.setattr("jaxrl.host.run.fit.fit", lambda *a, **k: (_ for _ in ()).throw(RuntimeError("far enough")))
    said = io.StringIO()
    with contextlib.redirect_stderr(said), pytest.raises(RuntimeError, match="far enough"):
        train.run_fit(recipe, run[0], train.Devices(), resume=True)
    assert "the learning rate ends at step 64 of 96" in said.getvalue()


def test_debug_shows_where():
    with pytest.raises(ValueError, match="Unknown environment"):
        cli.main(["train", "ppo", "Nope-v1", "--debug"])


# ---- the compilation cache


def test_compilations_are_kept(monkeypatch, tmp_path):
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        monkeypatch.delenv("JAXRL_CACHE_DIR", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        cli.cache_compilations()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "xdg" / "jaxrl" / "xla")
        jax.config.update("jax_compilation_cache_dir", None)
        monkeypatch.setenv("JAXRL_CACHE_DIR", str(tmp_path / "own"))
        cli.cache_compilations()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")
        monkeypatch.setenv("JAXRL_CACHE_DIR", str(tmp_path / "other"))
        cli.cache_compilations()  # what the user or the process has set stays
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
