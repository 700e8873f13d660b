"""A run is no closed thing: one begins from another, each of its checkpoints can be asked for, and what it is shown of
itself while it learns."""

import contextlib
import io
import json
import os
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import reinflow
from jaxrl.host import cli
from jaxrl.host.run import checkpoint
from jaxrl.host.run.run_folder import RunFolder, read_rows

TINY = "--config.num-envs 2 --config.num-steps 8 --config.num-epochs 1 --config.num-minibatches 1 --config.hidden 8"
FEW = "--eval-episodes 2 --eval-max-steps 10 --no-progress"
STEPS = 96  # 6 updates


def run_command(command):
    """`(exit status, stdout, stderr)`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(command.split())
    return status, out.getvalue(), err.getvalue()


def good(command):
    status, out, err = run_command(command)
    assert status == 0, err
    return out


def bad(command, status=1):
    """What a command that fails says, in one line."""
    actual, out, err = run_command(command)
    assert actual == status and "Traceback" not in err, (out, err)
    if status == 1:
        assert err.startswith("jaxrl: ") and err.count("\n") == 1, err
    return " ".join(err.split())


@pytest.fixture(scope="module", autouse=True)
def elsewhere(tmp_path_factory):
    """Nothing is written into the checkout."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("cwd"))
    yield
    os.chdir(before)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 6 updates with checkpoints at 2, 4 and 6, evaluations at 3 and 6 and films at 3 and 6."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    words = f"--total-steps {STEPS} --checkpoint-every 32 --eval-every 48 --keep-best --video-every 3 --seeds 2"
    out = good(f"train ppo CartPole-v1 {TINY} {FEW} {words} --hyper.learning-rate 0.01 --out {folder}")
    return folder, out


def weights(folder, update=None, seed=None):
    return jax.tree.leaves(jaxrl.load(folder, update=update, seed=seed).state.weights)


def same(one, other):
    return all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))


@pytest.mark.slow
@pytest.mark.light
def test_each_checkpoint_and_the_best_one_are_asked_for_by_every_command(run):
    folder, _ = run
    assert checkpoint.steps(RunFolder(folder).checkpoints) == [2, 4, 6]
    rows = read_rows(folder / "evaluations.jsonl")
    best = max(rows, key=lambda row: (np.mean(row["return"]), -row["update"]))["update"]
    assert jaxrl.load(folder, update="best").updates == best and jaxrl.load(folder, update=2).updates == 2
    assert not same(weights(folder, 2), weights(folder, 6)) and same(weights(folder), weights(folder, 6))
    early, late = (
        good(f"eval {folder} --episodes 30 --max-steps 200 --at 2"),
        good(f"eval {folder} --episodes 30 --max-steps 200"),
    )
    assert early != late and good(f"eval {folder} --episodes 30 --max-steps 200 --at 6") == late
    assert good(f"eval {folder} --episodes 3 --at best") == good(f"eval {folder} --episodes 3 --at {best}")
    good(f"export {folder} --at 2 --out early.h")
    good(f"export {folder} --out late.h")
    assert Path("early.h").read_text() != Path("late.h").read_text()
    good(f"render {folder} --at best --max-steps 3 --out best.gif")
    good(f"plot {folder} --episode --at 4 --max-steps 5")
    assert json.loads((folder / "media" / "episode.json").read_text())["told"]["update"] == 4


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ("--at 3", 1, "has no checkpoint at update 3: it has 2, 4, 6 and the best at"),
        ("--at last", 1, "--at last: it is an update, as 1000, or best."),
    ],
)
def test_a_checkpoint_that_is_not_there(run, words, status, says):
    if "3" in words and 3 in checkpoint.steps(RunFolder(run[0]).best):
        words, says = "--at 5", says.replace("update 3", "update 5")
    assert says in bad(f"eval {run[0]} {words}", status)


def test_words_for_checkpoints_of_what_has_none(run):
    assert "there is one alone" in bad("eval zoo:ppo/CartPole-v1 --at 3")
    assert "--at 3: of --episode" in bad(f"plot {run[0]} --at 3", 2)


def test_films_while_it_learns(run):
    films = sorted(file.name for file in (run[0] / "media").glob("policy-*.gif"))
    assert films == ["policy-3.gif", "policy-6.gif"]


@pytest.mark.slow
@pytest.mark.light
def test_another_rate_in_more_environments_from_a_run(run, tmp_path):
    folder, out = run[0], tmp_path / "second"
    more = "--config.num-envs 4 --hyper.learning-rate 0 --seeds 2"
    good(f"train ppo CartPole-v1 --from {folder} --at 4 {more} {FEW} --total-steps 32 --eval-every 0 --out {out}")
    config = json.loads((out / "config.json").read_text())
    assert config["start"]["folder"] == str(folder) and config["start"]["update"] == 4
    assert config["config"]["num_envs"] == 4 and config["config"]["hidden"] == [8]  # as in that run
    assert config["hyper"]["learning_rate"] == 0
    assert same(weights(out), weights(folder, 4))
    good(f"resume {out} --total-steps 64 --no-progress")  # it needs nothing of the first run any more
    assert same(weights(out), weights(folder, 4))


@pytest.mark.slow
@pytest.mark.light
def test_a_run_is_not_overwritten_by_one_that_begins_from_it(run):
    folder = run[0]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    status, _, err = run_command(
        f"train ppo CartPole-v1 --from {folder} --out {folder} --overwrite --no-progress {FEW}"
    )
    assert status == 1 and "the run begins from what is in it" in err
    assert all(path.read_bytes() == was for path, was in before.items()) and len(before) > 5


@pytest.mark.slow
@pytest.mark.light
def test_one_seed_from_a_run_of_several_and_weights_alone(run, tmp_path):
    folder, out = run[0], tmp_path / "second"
    words = f"--from {folder} --weights-only --hyper.learning-rate 0 --total-steps 16 --eval-every 0 --no-progress"
    status, _, err = run_command(f"train ppo CartPole-v1 {words} --out {out}")
    assert status == 0 and "all seeds begin from seed 0" in err
    assert same([x[0] for x in weights(out)], [x[0] for x in weights(folder)])
    assert json.loads((out / "config.json").read_text())["start"]["weights_only"] is True


@pytest.mark.slow
@pytest.mark.light
def test_what_cannot_begin_from_a_run(run, tmp_path):
    folder, out = run[0], tmp_path / "x"
    words = f"--total-steps 16 --no-progress --out {out}"
    assert "it is a run of ppo" in bad(f"train a2c CartPole-v1 --from {folder} {words}")
    assert "or of flow_bc, from which reinflow begins" in bad(f"train reinflow Pendulum-v1 --from {folder} {words}")
    assert "its leaf weights" in bad(f"train ppo CartPole-v1 --from {folder} --config.hidden 4 --seeds 2 {words}")
    assert "its leaf weights" in bad(f"train ppo Acrobot-v1 --from {folder} --seeds 2 {words}")
    assert "no checkpoint at update 5" in bad(f"train ppo CartPole-v1 --from {folder} --at 5 --seeds 2 {words}")
    assert "a policy of the zoo has no state" in bad(f"train ppo CartPole-v1 --from zoo:ppo/CartPole-v1 {words}")
    assert "of which run? --from RUN" in bad(f"train ppo CartPole-v1 --weights-only {words}", 2)
    assert "holds no run" in bad(f"train ppo CartPole-v1 --from {tmp_path} {words}")
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.light
def test_an_algorithm_that_begins_from_runs_of_another(tmp_path):
    """ReinFlow from a flow's clones: their velocities, widths and task, the rest its own; a seed from a seed."""
    file, clone, out = tmp_path / "steps.npz", tmp_path / "clone", tmp_path / "tuned"
    good(f"dataset make Pendulum-v1 --recipe random --steps 400 --out {file}")
    small = "--config.hidden 8 --eval-every 0 --no-progress --seeds 2"
    good(f"train flow_bc Pendulum-v1 --dataset {file} --total-steps 4 --params.gravity 9 {small} --out {clone}")
    few = "--config.num-envs 2 --config.num-steps 8 --config.noise-hidden 4 --hyper.learning-rate 0 --total-steps 16"
    few += " --eval-every 0 --no-progress"
    good(f"train reinflow Pendulum-v1 --from {clone} --seeds 2 {few} --out {out}")
    config = json.loads((out / "config.json").read_text())
    assert config["start"]["folder"] == str(clone) and config["start"]["algorithm"] == "flow_bc"
    assert config["recipe"]["params"]["gravity"] == 9 and config["config"]["hidden"] == [8]
    assert config["config"]["num_flow_steps"] == reinflow.Config().num_flow_steps
    cloned, found = (jaxrl.load(folder, seed=None).state.weights for folder in (clone, out))
    assert same(*map(jax.tree.leaves, (cloned["actor"], found["velocity"])))
    assert not np.array_equal(*jax.tree.leaves(found["noise"])[1])  # of each seed a noise network of its own
    one = tmp_path / "one"
    status, _, err = run_command(f"train reinflow Pendulum-v1 --from {clone} --seed 7 {few} --out {one}")
    assert status == 0 and "all seeds begin from seed 0" in err
    again, first = jaxrl.load(one).state.weights, jaxrl.load(out).state.weights
    assert same(*(jax.tree.leaves(x["velocity"]) for x in (again, first)))
    assert not same(*(jax.tree.leaves(x["noise"]) for x in (again, first)))
    words = f"train reinflow Pendulum-v1 --from {clone} --seeds 2 {few} --out {tmp_path / 'x'}"
    assert "leave it out" in bad(f"{words} --config.hidden 9")
    assert "leave it out" in bad(f"{words} --config.activation tanh")
    wrong = bad(f"train reinflow MountainCarContinuous-v0 --from {clone} --seeds 2 {few} --out {tmp_path / 'x'}")
    assert "another environment" in wrong and not (tmp_path / "x").exists()
    with pytest.raises(ValueError, match="take one of them"):
        jaxrl.fit(jaxrl.load(one).algo, jax.random.key(0), 16, start=jaxrl.load(clone, seed=None), progress=False)
    still = reinflow.Hyper(learning_rate=0.0)
    fitted = jaxrl.fit(
        jaxrl.load(one).algo, jax.random.key(0), 16, hyper=still, start=jaxrl.load(clone), progress=False
    )
    assert same(*(jax.tree.leaves(x["velocity"]) for x in (fitted.state.weights, first)))


def test_keeping_the_best_needs_evaluations(tmp_path):
    words = f"train ppo CartPole-v1 {TINY} --keep-best --eval-every 0 --total-steps 16 --no-progress --out"
    assert "keep_best" in bad(f"{words} {tmp_path / 'x'}")


@pytest.mark.slow
@pytest.mark.light
def test_held_out_levels_are_evaluated_one_by_one_under_a_curriculum(tmp_path):
    out = tmp_path / "run"
    ranges = "--curriculum dr --curriculum.ranges length=0.2:2.0 --eval-levels 3"
    said = good(f"train ppo CartPole-v1 {TINY} {FEW} {ranges} --seeds 2 --total-steps 32 --eval-every 16 --out {out}")
    assert "on held-out levels" in said
    rows = read_rows(out / "evaluations.jsonl")
    assert len(rows) == 2 and all(np.shape(row["levels"]) == (2, 3) for row in rows)
    np.testing.assert_allclose(rows[0]["level_return"], np.mean(rows[0]["levels"], 1))
    before = rows[-1]
    good(f"resume {out} --total-steps 48 --no-progress")
    again = read_rows(out / "evaluations.jsonl")
    assert again[1] == before and np.shape(again[-1]["levels"]) == (2, 3)


def test_held_out_levels_that_cannot_be_drawn():
    words = f"train ppo CartPole-v1 {TINY} {FEW} --total-steps 16"
    assert "draws no levels; name a function" in bad(f"{words} --eval-levels 3 --out x")
    assert "--eval-levels many: it is how many, as 32" in bad(f"{words} --eval-levels many --out x")
