"""Sweeps: the points, one program against several, memory, resume, and what is said of them."""

import json
from dataclasses import fields

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import ppo
from jaxrl.host.plotting import heat_map
from jaxrl.host.run import ram
from jaxrl.host.run import sweep as sweeping
from jaxrl.host.run.evaluator import Evaluator
from jaxrl.host.run.fit import fit
from jaxrl.host.run.options import EvalOptions
from jaxrl.host.run.run_folder import RunFolder, RunFolderError
from jaxrl.host.run.sweep import grid, random_points, sweep, table
from jaxrl.host.run.training_program import Program

CONFIG = ppo.Config(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,))
RATES = {"learning_rate": [1e-3, 0.1]}
SETTINGS = dict(num_seeds=2, eval_episodes=4, eval_max_steps=20, progress=False)
KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def algo():
    return ppo.make(jaxrl.make("CartPole-v1")[0], CONFIG)


@pytest.fixture(scope="module")
def done(algo, tmp_path_factory):
    """A whole sweep in one program and its folder."""
    out = tmp_path_factory.mktemp("sweep")
    return sweep(algo, KEY, 64, grid(RATES), out=out, at_once=4, **SETTINGS), out


def test_a_grid_is_every_combination():
    points = grid({"a": [1, 2], "b": [3.0], "c": [4, 5]})
    assert points == [dict(a=a, b=3.0, c=c) for a in (1, 2) for c in (4, 5)]


def test_random_points_lie_between():
    values = {"rate": [1e-4, 1e-2], "steps": [2, 9], "shift": [-1.0, 1.0], "fixed": [0.5]}
    points = random_points(values, 400, seed=1)
    assert points == random_points(values, 400, seed=1) != random_points(values, 400, seed=2)
    columns = {name: np.array([p[name] for p in points]) for name in values}
    for name, options in values.items():
        assert columns[name].min() >= min(options) and columns[name].max() <= max(options)
    assert 0.4 < np.mean(columns["rate"] < 1e-3) < 0.6, "log-uniform: half below the geometric mean"
    assert abs(columns["shift"].mean()) < 0.1
    assert all(isinstance(p["steps"], int) for p in points) and set(columns["fixed"]) == {0.5}
    with pytest.raises(ValueError, match="random=0"):
        random_points(values, 0)


@pytest.mark.slow
@pytest.mark.light
def test_each_run_is_the_one_that_fit_makes_alone(algo, done):
    returns, _ = done
    assert returns.shape == (2, 2)
    keys = jax.random.split(KEY, 2)
    for i, point in enumerate(grid(RATES)):
        alone = fit(
            algo, keys, 64, hyper=ppo.Hyper(**point), num_seeds=2, eval_every=64, eval_episodes=4, eval_max_steps=20,
            progress=False,
        )  # fmt: skip
        # Episodes are capped and counted, and two seeds have other luck in the evaluation: the training is compared.
        assert np.all(np.isfinite(returns[i]))
        rows = [json.loads(line) for line in (done[1] / "runs-0000-0003" / "metrics.jsonl").read_text().splitlines()]
        trained = np.array([row["loss"] for row in rows])[:, 2 * i : 2 * i + 2]
        np.testing.assert_allclose(trained, alone.metrics["loss"], rtol=2e-4)


@pytest.mark.slow
@pytest.mark.light
def test_in_parts_where_memory_is_short(algo, done, monkeypatch, tmp_path):
    varied = ppo.Hyper(learning_rate=np.array([1e-3, 1e-3, 0.1, 0.1]))
    evaluator = Evaluator(algo, 4, EvalOptions(episodes=4, max_steps=20))
    each = ram.footprint(Program(algo, KEY, 4, varied, None), evaluator) / 4
    monkeypatch.setattr(ram, "free_memory", lambda: int(2.9 * each / ram.SHARE))
    monkeypatch.setattr(sweeping, "bytes_a_run", lambda *_: 2**40)  # so small a run is let pass without compiling
    sweep(algo, KEY, 64, grid(RATES), out=tmp_path, **SETTINGS)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plan.json", "runs-0000-0001", "runs-0002-0003"]
    rows = [(tmp_path / f"runs-{name}" / "metrics.jsonl").read_text() for name in ("0000-0001", "0002-0003")]
    losses = np.concatenate([[json.loads(line)["loss"] for line in text.splitlines()] for text in rows], 1)
    whole = [json.loads(x)["loss"] for x in (done[1] / "runs-0000-0003" / "metrics.jsonl").read_text().splitlines()]
    np.testing.assert_allclose(losses, whole, rtol=2e-4)
    monkeypatch.setattr(ram, "free_memory", lambda: int(each / 2))
    with pytest.raises(ValueError, match="One run needs about .* GiB .* can be planned with"):
        sweep(algo, KEY, 64, grid(RATES), **SETTINGS)


@pytest.mark.slow
@pytest.mark.light
def test_many_seeds_of_one_setting_in_programs(algo, tmp_path):
    returns = sweep(algo, KEY, 32, [{}], out=tmp_path, at_once=2, **{**SETTINGS, "num_seeds": 3})
    assert returns.shape == (1, 3) and np.isfinite(returns).all()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plan.json", "runs-0000-0001", "runs-0002-0002"]
    assert "| mean |" in table([{}], returns)


def test_halves_what_the_device_refuses(algo, monkeypatch, capsys):
    counts = []

    def refusing(algo, keys, total_steps, *, hyper, num_seeds, **_):
        counts.append(num_seeds)
        if num_seeds > 1:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        evaluation = {"return": [float(hyper.learning_rate[0])]}
        return type("Result", (), dict(interrupted=False, evaluations=[evaluation], diverged={}))

    monkeypatch.setattr(sweeping, "fit", refusing)
    returns = sweep(algo, KEY, 64, grid(RATES), at_once=4, **SETTINGS)
    assert counts == [4, 2, 1, 1, 1, 1]
    np.testing.assert_array_equal(returns, [[1e-3, 1e-3], [0.1, 0.1]])
    assert "going on with 2 at once" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.light
def test_resume_knows_programs_that_were_halved_and_those_that_diverged(algo, monkeypatch, tmp_path):
    monkeypatch.setattr(sweeping, "fit", out_of_memory_once(sweeping.fit))
    points = [{"learning_rate": 1e-3}, {"learning_rate": 3e38}]
    settings = {**SETTINGS, "num_seeds": 1, "out": tmp_path}
    first = sweep(algo, KEY, 64, points, at_once=2, **settings)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plan.json", "runs-0000-0000", "runs-0001-0001"]
    monkeypatch.setattr(sweeping, "fit", lambda *a, **k: pytest.fail("nothing is left to train"))
    np.testing.assert_array_equal(sweep(algo, KEY, 64, points, resume=True, **settings), first)
    assert np.isfinite(first[0]).all() and np.isnan(first[1]).all()


def out_of_memory_once(fit):
    def fails_first(*args, out, **kwargs):
        if kwargs["num_seeds"] > 1:
            out.mkdir(parents=True)
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return fit(*args, out=out, **kwargs)

    return fails_first


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"points": grid({"learning_rate": [1e-3, 7.0]})}, r"runs\.\d+\.learning_rate is .* there, 7.0 here"),
        ({"points": grid({**RATES, "gamma": [0.9]})}, r"runs\.0\.gamma is None there, 0\.9 here"),
        ({"total_steps": 128}, "total_steps is 64 there, 128 here"),
        ({"hyper": ppo.Hyper(ent_coef=0.5)}, r"description\.hyper\.ent_coef is .* there, 0\.5 here"),
    ],
)
def test_another_sweep_is_not_gone_on_with(algo, done, monkeypatch, change, says):
    monkeypatch.setattr(sweeping, "fit", lambda *a, **k: pytest.fail("it trained"))
    arguments = {"total_steps": 64, "points": grid(RATES), **SETTINGS, **change}
    with pytest.raises(ValueError, match=f"{done[1]} holds another sweep: {says}"):
        sweep(algo, KEY, arguments.pop("total_steps"), arguments.pop("points"), out=done[1], resume=True, **arguments)


def test_one_process_sweeps_in_a_folder(algo, tmp_path):
    with RunFolder(tmp_path).locked(), pytest.raises(RunFolderError, match="is being written by another process"):
        sweep(algo, KEY, 64, grid(RATES), out=tmp_path, **SETTINGS)
    assert not list(tmp_path.iterdir())


def test_resume_reads_what_is_finished(algo, done, monkeypatch):
    returns, out = done
    monkeypatch.setattr(sweeping, "fit", lambda *a, **k: pytest.fail("nothing is left to train"))
    again = sweep(algo, KEY, 64, grid(RATES), out=out, resume=True, **SETTINGS)
    np.testing.assert_allclose(again, returns)


@pytest.mark.slow
@pytest.mark.light
def test_a_run_that_diverges_is_empty(algo):
    points = [{"learning_rate": 1e-3}, {"learning_rate": 3e38}]
    returns = sweep(algo, KEY, 64, points, **{**SETTINGS, "num_seeds": 1})
    assert np.isfinite(returns[0]).all() and np.isnan(returns[1]).all()


def test_bad_input(algo):
    names = ", ".join(f.name for f in fields(ppo.Hyper))
    with pytest.raises(ValueError, match=f"ppo has no setting 'lr'; its Hyper has {names}"):
        sweep(algo, KEY, 64, [{"lr": 1.0}])
    with pytest.raises(ValueError, match="different settings: gamma and learning_rate"):
        sweep(algo, KEY, 64, [{"gamma": 0.9}, {"learning_rate": 1e-3}])
    with pytest.raises(ValueError, match="at least one point"):
        sweep(algo, KEY, 64, [])
    with pytest.raises(ValueError, match="num_seeds=0"):
        sweep(algo, KEY, 64, grid(RATES), num_seeds=0)


def test_table_has_the_best_first_and_the_diverged_last():
    points = grid({"a": [1.0, 2.0, 3.0]})
    lines = table(points, np.array([[1.0, 2.0], [5.0, 7.0], [9.0, np.nan]])).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["2", "1", "3"]
    assert lines[2].split("|")[2].strip() == "6.00" and lines[4].split("|")[6].strip() == "1"


@pytest.mark.parametrize(
    "points",
    [
        grid({"a": [1e-3, 1e-2, 1.0]}),
        grid({"a": [1e-3, 1e-2], "b": [1.0, 2.0, 3.0]}),
        grid({"a": [1.0, 2.0], "b": [1.0, 2.0], "c": [1.0, 2.0]}),
        random_points({"a": [1e-3, 1.0], "b": [0.0, 1.0]}, 7),
    ],
    ids=["one", "two", "three", "random"],
)
def test_heat_map_draws_every_kind(points, tmp_path):
    scores = np.arange(2.0 * len(points)).reshape(-1, 2)
    scores[0, 1] = np.nan
    assert heat_map(points, scores, tmp_path / "map.png").stat().st_size > 5000


def test_a_moved_file_is_the_same_sweep():
    """By its digest; what else a caller adds may be anything."""
    extra = {"dataset": {"path": "/a.npz", "digest": "1"}, "note": "mine"}
    moved = {**extra, "dataset": {"path": "/b.npz", "digest": "1"}}
    other = {**extra, "dataset": {"path": "/a.npz", "digest": "2"}}
    same, again, differs = (sweeping._unmoved({"extra": x}) for x in (extra, moved, other))
    assert same == again != differs and same["extra"]["note"] == "mine"
