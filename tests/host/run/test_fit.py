"""The host loop changes no number, however it is cut, killed and resumed; and it says clearly what went wrong."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.console

import jaxrl
from jaxrl import curriculum
from jaxrl.algos import ppo
from jaxrl.algos.curricula import plr
from jaxrl.host.run import checkpoint, progress, training_program
from jaxrl.host.run.checkpoint import CheckpointError
from jaxrl.host.run.fit import DivergenceError, fit
from jaxrl.host.run.history import History
from jaxrl.host.run.load import load
from jaxrl.host.run.run_folder import RunFolder, RunFolderError, read_rows

CONFIG = ppo.Config(num_envs=2, num_steps=8, hidden=(8,), num_epochs=1, num_minibatches=1)
KEY = jax.random.key(5)
UPDATES = 12
STEPS = UPDATES * 16
EVALUATION = {"eval_every": 4 * 16, "eval_episodes": 2, "eval_max_steps": 20}
RUN = {**EVALUATION, "checkpoint_every": 4 * 16, "progress": False}


@pytest.fixture(scope="module")
def algo():
    return ppo.make(jaxrl.make("CartPole-v1")[0], CONFIG)


def leaves(state):
    return {
        jax.tree_util.keystr(path): np.asarray(
            jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        )
        for path, x in jax.tree_util.tree_leaves_with_path(state)
    }


def assert_identical(one, other):
    one, other = leaves(one), leaves(other)
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype and one[name].tobytes() == other[name].tobytes(), name


def assert_same_run(result, reference):
    assert_identical(result.state, reference.state)
    assert result.metrics.keys() == reference.metrics.keys()
    for name, values in reference.metrics.items():
        np.testing.assert_array_equal(result.metrics[name], values, name)
    assert result.evaluations == reference.evaluations and result.diverged == reference.diverged


def logs(folder):
    return {name: (Path(folder) / name).read_bytes() for name in ("metrics.jsonl", "metrics.csv", "evaluations.jsonl")}


@pytest.fixture(scope="module")
def whole(algo, tmp_path_factory):
    """An uninterrupted run, and where it is."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return fit(algo, KEY, STEPS, out=out, **RUN), out


# ---- the same numbers


def test_equals_the_pure_program(algo, whole):
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, STEPS))(KEY)
    result, _ = whole
    for name, x in leaves(state).items():
        np.testing.assert_allclose(leaves(result.state)[name], x, rtol=1e-5, atol=1e-6, err_msg=name)
    for name in metrics:
        np.testing.assert_allclose(result.metrics[name], metrics[name], rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_array_equal(result.metrics["update"], np.arange(1, UPDATES + 1))
    np.testing.assert_array_equal(result.metrics["step"], 16 * np.arange(1, UPDATES + 1))
    assert result.state.step == STEPS and result.diverged == {} and not result.interrupted


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "most"), [(0.0, 512), (1e6, 5)])
def test_how_updates_are_grouped_changes_nothing(algo, whole, monkeypatch, seconds, most):
    monkeypatch.setattr(progress, "SECONDS_PER_CALL", seconds)
    monkeypatch.setattr(training_program, "MAX_UPDATES_PER_CALL", most)
    calls = []
    result = fit(
        algo, KEY, STEPS, **{**RUN, "checkpoint_every": STEPS}, on_progress=lambda done, row, state: calls.append(done)
    )
    assert calls == (list(range(1, 13)) if seconds == 0 else [1, 4, 8, 12])
    assert_same_run(result, whole[0])


def test_what_is_on_disk(whole):
    result, out = whole
    folder = RunFolder(out)
    rows = read_rows(folder.metrics)
    assert [row["update"] for row in rows] == list(range(1, UPDATES + 1))
    required = {"update", "step", "episode_return", "episode_length", "episodes", "loss"}
    assert required <= set(rows[0]) and set(rows[0]) == set(result.metrics)
    np.testing.assert_allclose([row["loss"] for row in rows], result.metrics["loss"], rtol=1e-7)
    for line in folder.metrics.read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert any(row["episode_return"] is None for row in rows)  # in no update of 16 steps must an episode end
    lines = folder.table.read_text().splitlines()
    assert lines[0].split(",") == list(rows[0]) and len(lines) == UPDATES + 1
    assert [row["update"] for row in read_rows(folder.evaluations)] == [4, 8, 12]
    assert read_rows(folder.evaluations) == result.evaluations and result.evaluations[0]["episodes"] == 2
    config = folder.read_config()
    assert config["algorithm"] == "ppo" and config["env"] == "CartPole-v1" and config["total_steps"] == STEPS
    assert config["config"]["hidden"] == [8] and config["hyper"]["gamma"] == pytest.approx(0.99)
    assert config["versions"]["jax"] == jax.__version__ and "cpu" in config["device"] and "commit" in config
    summary = json.loads(folder.summary.read_text())
    assert summary["updates"] == UPDATES and summary["steps"] == STEPS and summary["diverged"] == {}
    assert summary["steps_per_second"] > 0 and summary["compile_seconds"] > 0 and summary["interrupted"] is False
    assert summary["evaluation"] == result.evaluations[-1]["return"]
    assert checkpoint.steps(folder.checkpoints) == [4, 8, 12]


def test_load_gives_the_final_state(algo, whole):
    run = load(whole[1], algo)
    assert run.updates == UPDATES and run.num_seeds is None and run.env == algo.venv.env
    assert_identical(run.state, whole[0].state)
    assert_identical(run.policy, algo.policy(whole[0].state))


@pytest.mark.slow
def test_rows_are_means_of_log_every_updates(algo, whole):
    one = whole[0].metrics
    five = fit(algo, KEY, STEPS, log_every=5, progress=False).metrics
    np.testing.assert_array_equal(five["update"], [5, 10, 12])  # the last, shorter one is there too
    parts = [slice(0, 5), slice(5, 10), slice(10, 12)]
    np.testing.assert_allclose(five["loss"], [one["loss"][s].mean() for s in parts], rtol=1e-5)
    np.testing.assert_array_equal(five["episodes"], [one["episodes"][s].sum() for s in parts])


# ---- interrupted and resumed


class Stop(Exception):
    pass


def stop_at(update, how):
    def on_progress(done, row, state):
        if done >= update and not stopped:
            stopped.append(done)
            how()

    stopped = []
    return on_progress


def fail():
    raise Stop


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)


@pytest.fixture
def one_by_one(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_PER_CALL", 0.0)


@pytest.mark.optimised
@pytest.mark.parametrize("at", [1, 7])
def test_a_run_that_broke_off_is_resumed_bit_for_bit(algo, whole, tmp_path, one_by_one, at):
    with pytest.raises(Stop):
        fit(algo, KEY, STEPS, out=tmp_path, **RUN, on_progress=stop_at(at, fail))
    assert len(read_rows(RunFolder(tmp_path).metrics)) == at
    result = fit(algo, KEY, STEPS, out=tmp_path, **RUN, resume=True)
    assert_same_run(result, whole[0])
    assert logs(tmp_path) == logs(whole[1])


@pytest.mark.slow
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_save_and_exit_cleanly(algo, whole, tmp_path, one_by_one, which):
    def ask():
        os.kill(os.getpid(), which)
        time.sleep(0.05)

    before = signal.getsignal(which)
    result = fit(algo, KEY, STEPS, out=tmp_path, **RUN, on_progress=stop_at(5, ask))
    assert result.interrupted and result.signal == which and signal.getsignal(which) is before
    done = int(result.state.step) // 16
    assert 5 <= done <= 6 and checkpoint.steps(tmp_path / "checkpoints")[-1] == done
    assert json.loads((tmp_path / "summary.json").read_text())["interrupted"] is True
    assert_identical(load(tmp_path, algo).state, result.state)
    assert_same_run(fit(algo, KEY, STEPS, out=tmp_path, **RUN, resume=True), whole[0])
    assert logs(tmp_path) == logs(whole[1])


@pytest.mark.slow
def test_ctrl_c_cuts_no_row(algo, tmp_path, one_by_one):
    settings = {"log_every": 3, "progress": False}
    reference = fit(algo, KEY, STEPS, out=tmp_path / "a", **settings)
    result = fit(algo, KEY, STEPS, out=tmp_path / "b", **settings, on_progress=stop_at(4, interrupt))
    assert result.interrupted and int(result.state.step) == 6 * 16
    assert_same_run(fit(algo, KEY, STEPS, out=tmp_path / "b", **settings, resume=True), reference)
    assert logs(tmp_path / "b") == logs(tmp_path / "a")


@pytest.mark.slow
def test_two_ctrl_c_stop_at_once(algo, tmp_path, one_by_one):
    def twice():
        interrupt()
        interrupt()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell job starts with it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            fit(algo, KEY, STEPS, out=tmp_path, **RUN, on_progress=stop_at(5, twice))
    finally:
        signal.signal(signal.SIGINT, before)
    assert checkpoint.steps(tmp_path / "checkpoints") == [4]


def test_a_folder_that_is_being_written_is_refused(algo, tmp_path, never_compiles):
    with RunFolder(tmp_path).locked():
        for how in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(RunFolderError, match="is being written by another process"):
                fit(algo, KEY, STEPS, out=tmp_path, progress=False, **how)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_made_longer_is_the_one_asked_for_so_many_steps_from_the_start(algo, whole, tmp_path):
    fit(algo, KEY, 8 * 16, out=tmp_path, **RUN)
    assert json.loads((tmp_path / "config.json").read_text())["total_steps"] == 8 * 16
    assert_same_run(fit(algo, KEY, STEPS, out=tmp_path, **RUN, resume=True), whole[0])
    assert logs(tmp_path) == logs(whole[1])
    assert json.loads((tmp_path / "config.json").read_text())["total_steps"] == STEPS
    with pytest.raises(ValueError, match=f"total_steps=16: .* is at step {STEPS} already"):
        fit(algo, KEY, 16, out=tmp_path, **RUN, resume=True)


@pytest.mark.slow
@pytest.mark.light
def test_resuming_a_finished_run_changes_nothing(algo, whole, tmp_path):
    import shutil

    shutil.copytree(whole[1], tmp_path / "run")
    assert_same_run(fit(algo, KEY, STEPS, out=tmp_path / "run", **RUN, resume=True), whole[0])
    assert logs(tmp_path / "run") == logs(whole[1])
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["evaluation"] is not None


@pytest.mark.slow
def test_resume_in_an_empty_folder_starts(algo, whole, tmp_path):
    assert_same_run(fit(algo, KEY, STEPS, out=tmp_path / "new", **RUN, resume=True), whole[0])


@pytest.mark.slow
def test_a_damaged_checkpoint_only_costs_time(algo, whole, tmp_path, one_by_one):
    with pytest.raises(Stop):
        fit(algo, KEY, STEPS, out=tmp_path, **RUN, on_progress=stop_at(9, fail))
    (tmp_path / "checkpoints" / "000000000008" / "manifest.json").write_text("")
    with pytest.warns(UserWarning, match="Trying the one before"):
        result = fit(algo, KEY, STEPS, out=tmp_path, **RUN, resume=True)
    assert_same_run(result, whole[0])
    assert logs(tmp_path) == logs(whole[1])


def test_rows_that_a_kill_cut_short(algo, whole, tmp_path, one_by_one):
    with pytest.raises(Stop):
        fit(algo, KEY, STEPS, out=tmp_path, **RUN, on_progress=stop_at(9, fail))
    for name in logs(tmp_path):
        with (tmp_path / name).open("a") as file:
            file.write('{"update": 10, "st' if name.endswith("l") else "10,1")
    fit(algo, KEY, STEPS, out=tmp_path, **RUN, resume=True)
    assert logs(tmp_path) == logs(whole[1])


PROGRAM = """
import sys
import jax
import jaxrl
from jaxrl.algos import ppo
from jaxrl.host.run import progress

progress.SECONDS_PER_CALL = 0.0
algo = ppo.make(jaxrl.make("CartPole-v1")[0], ppo.Config(
    num_envs=2, num_steps=8, hidden=(8,), num_epochs=1, num_minibatches=1))
jaxrl.fit(algo, jax.random.key(5), 16 * 120, out=sys.argv[1], resume=True, eval_every=16 * 20, eval_episodes=2,
    eval_max_steps=20, checkpoint_every=16 * 5, progress=False, num_seeds=2,
    on_progress=lambda done, row, state: print(done, flush=True))
"""


def killed_and_resumed(tmp_path, kills, seed):
    """Kill the program with SIGKILL that often, each time some moments after it came further than before."""
    environment = {**os.environ, "PYTHONPATH": str(Path(jaxrl.__file__).resolve().parents[1])}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"  # the second process compiles nothing

    def start(out):
        command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path / out)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    algo = ppo.make(jaxrl.make("CartPole-v1")[0], CONFIG)
    settings = {"eval_every": 16 * 20, "eval_episodes": 2, "eval_max_steps": 20, "num_seeds": 2, "progress": False}
    whole = fit(algo, KEY, 16 * 120, out=tmp_path / "whole", checkpoint_every=16 * 60, **settings)
    rng, reached = np.random.default_rng(seed), []
    for kill in range(kills):
        target = int((kill + 1) * 110 / (kills + 1))
        with start("killed") as process:
            last = 0
            for line in process.stdout:
                last = int(line)
                if last >= target:
                    break
            time.sleep(float(rng.uniform(0, 0.05)))
            process.kill()
            process.communicate(timeout=60)
            assert process.returncode == -signal.SIGKILL
            reached.append(last)
    with start("killed") as process:
        done = [int(line) for line in process.stdout]
    assert process.returncode == 0 and done[-1] == 120 and len(done) < 120 and all(0 < n < 120 for n in reached)
    assert logs(tmp_path / "killed") == logs(tmp_path / "whole")
    assert_identical(load(tmp_path / "killed", algo, seed=None).state, whole.state)
    assert [row["update"] for row in read_rows(tmp_path / "killed" / "metrics.jsonl")] == list(range(1, 121))


@pytest.mark.slow
def test_killed_and_resumed_is_bit_identical(tmp_path):
    killed_and_resumed(tmp_path, kills=1, seed=time.time_ns() % 2**32)


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(2))
def test_killed_five_times(tmp_path, attempt):
    killed_and_resumed(tmp_path, kills=5, seed=time.time_ns() % 2**32)


# ---- many seeds, many settings


@pytest.mark.slow
def test_seeds_and_settings_at_once_are_the_single_runs(algo):
    rates = jnp.asarray([1e-3, 1e-2])
    together = fit(algo, KEY, STEPS, num_seeds=2, hyper=ppo.Hyper(learning_rate=rates), **RUN)
    assert together.metrics["loss"].shape == (UPDATES, 2) and together.metrics["update"].shape == (UPDATES,)
    assert np.shape(together.evaluations[0]["return"]) == (2,)
    for i, key in enumerate(jax.random.split(KEY, 2)):
        single = fit(algo, key, STEPS, hyper=ppo.Hyper(learning_rate=float(rates[i])), progress=False)
        for name, x in leaves(single.state).items():
            both = leaves(together.state)[name]
            np.testing.assert_allclose(both[i], x, rtol=1e-4, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(together.metrics["loss"][:, i], single.metrics["loss"], rtol=1e-3, atol=1e-5)
        np.testing.assert_array_equal(together.metrics["episodes"][:, i], single.metrics["episodes"])


@pytest.mark.slow
def test_env_params_reach_training_and_evaluation(algo):
    _, params = jaxrl.make("CartPole-v1")
    short = params.replace(max_steps=jnp.int32(3))
    result = fit(algo, KEY, STEPS, env_params=short, eval_every=STEPS, eval_episodes=2, progress=False)
    assert result.evaluations[0]["return"] == 3 == np.nanmax(result.metrics["episode_length"])
    assert result.evaluations[0]["length"] == 3
    other = fit(
        algo, KEY, STEPS, env_params=short, eval_env_params=params, eval_every=STEPS, eval_episodes=2, progress=False
    )
    assert other.evaluations[0]["return"] > 5 and np.nanmax(other.metrics["episode_length"]) == 3


@pytest.mark.slow
def test_robust_plr_runs_and_resumes_unchanged(tmp_path, one_by_one):
    def level(key, params):
        length, mass = jax.random.uniform(key, (2,), minval=0.2, maxval=3.0)
        return params.replace(length=length * params.length, mass_pole=mass * params.mass_pole)

    venv = jaxrl.vectorize(jaxrl.make("CartPole-v1")[0], 2, batched_params=True)
    student = ppo.make(venv, CONFIG)
    algo = curriculum.attach(
        student, plr.make(level, plr.Config(buffer_size=4), plr.Hyper(replay_prob=0.5, min_fill=0.5))
    )
    reference = fit(algo, KEY, STEPS, out=tmp_path / "a", **RUN)
    with pytest.raises(Stop):
        fit(algo, KEY, STEPS, out=tmp_path / "b", **RUN, on_progress=stop_at(7, fail))
    assert_same_run(fit(algo, KEY, STEPS, out=tmp_path / "b", **RUN, resume=True), reference)
    assert logs(tmp_path / "a") == logs(tmp_path / "b")
    assert "levels_replayed" in reference.metrics
    with pytest.raises(CheckpointError, match=r"algorithm is 'ppo\+plr' there, 'ppo' here"):
        load(tmp_path / "a", student)
    other = curriculum.attach(student, plr.make(level, plr.Config(buffer_size=4, robust=False)))
    with pytest.raises(CheckpointError, match="around is .*robust=True.* there, .*robust=False.* here"):
        load(tmp_path / "a", other)


# ---- divergence


@pytest.mark.slow
def test_a_seed_that_diverges_is_frozen_and_the_others_go_on(algo, tmp_path):
    hyper = ppo.Hyper(learning_rate=jnp.asarray([1e-3, 3e38, 1e-2, 3e38]))
    fine = ppo.Hyper(learning_rate=jnp.asarray([1e-3, 1e-3, 1e-2, 1e-3]))
    result = fit(algo, KEY, STEPS, num_seeds=4, hyper=hyper, out=tmp_path, **RUN)
    reference = fit(algo, KEY, STEPS, num_seeds=4, hyper=fine, progress=False)
    assert list(result.diverged) == [1, 3]
    # The first step is as large as floats go; the values that its weights give are not finite.
    assert set(result.diverged.values()) == {"NaN or infinity in update 1, first in loss"}
    for name, x in leaves(result.state).items():
        for seed in (0, 2):
            assert x[seed].tobytes() == leaves(reference.state)[name][seed].tobytes(), name
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(result.state.weights))
    assert result.state.step.tolist() == [STEPS, 16, STEPS, 16]
    losses = result.metrics["loss"]
    assert np.isfinite(losses[:, [0, 2]]).all() and np.isfinite(losses[0]).all()
    assert not np.isfinite(losses[1, [1, 3]]).any() and np.isnan(losses[2:, [1, 3]]).all()
    np.testing.assert_array_equal(losses[:, [0, 2]], reference.metrics["loss"][:, [0, 2]])
    assert not result.metrics["episodes"][2:, [1, 3]].any()
    assert json.loads((tmp_path / "summary.json").read_text())["diverged"] == {
        str(seed): what for seed, what in result.diverged.items()
    }
    resumed = fit(algo, KEY, STEPS, num_seeds=4, hyper=hyper, out=tmp_path, **RUN, resume=True)
    assert resumed.diverged == result.diverged
    assert_identical(resumed.state, result.state)


def broken_at(algo, update):
    """`algo` whose weights turn infinite in one update."""

    def broken(state, rollout):
        state, metrics = algo.learn(state, rollout)
        bad = jnp.where(state.step == (update + 1) * algo.steps_per_update, jnp.inf, 0)
        paths = jax.tree_util.tree_map_with_path
        return state.replace(weights=paths(lambda p, x: x + bad if "critic" in str(p) else x, state.weights)), metrics

    return algo._replace(learn=broken)


@pytest.mark.slow
@pytest.mark.light
def test_a_single_run_stops_and_says_where_and_what_is_kept(algo, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_PER_CALL", 1e6)
    expected = r"NaN or infinity in update 5, first in \['params'\]\['critic_mlp'\].*checkpoint is at update 4"
    with pytest.raises(DivergenceError, match=expected):
        fit(broken_at(algo, 5), KEY, STEPS, out=tmp_path, **RUN)
    run = load(tmp_path, algo)
    assert run.updates == 4 and all(np.isfinite(x).all() for x in jax.tree.leaves(run.state.weights))
    with pytest.raises(DivergenceError, match="update 0, .*No checkpoint had been made"):
        fit(broken_at(algo, 0), KEY, STEPS, progress=False)


@pytest.mark.slow
def test_no_seed_left(algo):
    with pytest.raises(DivergenceError, match="NaN or infinity in update 0"):
        fit(broken_at(algo, 0), KEY, STEPS, num_seeds=2, progress=False)


@pytest.mark.slow
def test_a_non_finite_loss_is_named(algo):
    def learn(state, rollout):
        state, metrics = algo.learn(state, rollout)
        return state, {**metrics, "loss": jnp.where(state.step == 48, jnp.nan, metrics["loss"])}

    with pytest.raises(DivergenceError, match=r"update 2, first in loss\."):
        fit(algo._replace(learn=learn), KEY, STEPS, progress=False)


# ---- the watchdog, the display


def test_the_watchdog_speaks_of_a_late_update_only(monkeypatch, capfd):
    monkeypatch.setattr(progress, "WATCHDOG_SECONDS", 0.05)
    pace = progress.Pace()
    with pace.watch(1, 0):
        time.sleep(0.1)  # nothing to compare with
    pace.times = [1e-3] * 3
    with pace.watch(2, 40):
        pass
    assert capfd.readouterr().err == ""
    with pace.watch(2, 40):
        time.sleep(1)  # the watchdog looks up after 0.05 s
    assert "updates 40 to 42 have taken 0 s, 20 times the usual" in capfd.readouterr().err
    pace.times = [0.1] * 3  # 20 times that is much longer than the sleep
    with pace.watch(1, 0):
        time.sleep(0.1)
    assert capfd.readouterr().err == ""


def test_without_a_terminal_progress_is_lines(algo, capsys):
    """`jaxrl train > log`: a line every tenth of the run and no other, unless a tenth takes long."""
    known = History(None, (), {}, None, 1, 16)
    known.recent_return = np.array(3.0)
    with progress.Display(True, 200, 0, algo) as display:
        display.compiling()
        display.compiled(1.5)
        for done in range(1, 201):
            display.advanced(done, known, {}, done * 0.1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["ppo CartPole-v1: compiling", "ppo CartPole-v1: compiled in 1.5 s"] and len(lines) == 12
    assert (
        lines[2] == ("ppo CartPole-v1: 320 steps, update 20 of 200: return 3.0, 0k steps/s, compiled in 1.5 s")
        and "update 200 of 200" in lines[-1]
    )


def test_a_tenth_that_takes_long_has_lines_too(algo, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.0)
    with progress.Display(True, 1000, 0, algo) as display:
        for done in (1, 2, 3):
            display.advanced(done, History(None, (), {}, None, 1, 16), {}, 1.0)
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.slow
def test_the_display_shows_progress_return_and_speed(algo, capsys, monkeypatch):
    console = rich.console.Console(force_terminal=True, width=120)  # where there is a terminal: a bar
    monkeypatch.setattr(rich, "get_console", lambda: console)
    monkeypatch.setattr("rich.progress.get_console", lambda: console)
    fit(algo, KEY, STEPS, num_seeds=2)
    out = " ".join(capsys.readouterr().out.split())
    assert "ppo CartPole-v1" in out and "12/12" in out
    assert "return" in out and "±" in out


@pytest.mark.slow
def test_away_from_the_main_thread(algo, whole):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        assert_same_run(pool.submit(fit, algo, KEY, STEPS, **RUN).result(), whole[0])


# ---- loggers


@pytest.mark.slow
def test_tensorboard_files_are_written(algo, tmp_path):
    judged = {"eval_every": 16, "eval_episodes": 2, "eval_max_steps": 3}
    fit(algo, KEY, 32, out=tmp_path, loggers=("tensorboard",), num_seeds=2, progress=False, **judged)
    for folder in (tmp_path / "tensorboard", tmp_path / "tensorboard" / "seed-1"):
        (events,) = folder.glob("events*")
        for tag in (b"episode_length", b"loss", b"evaluation/return"):
            assert tag in events.read_bytes()
    (tmp_path / "wandb.json").write_text('{"ids": ["a"]}')
    fit(algo, KEY, 32, out=tmp_path, progress=False, overwrite=True)
    assert not (tmp_path / "tensorboard").exists() and not (tmp_path / "wandb.json").exists()


# ---- bad input: before anything is compiled, and nothing is lost


@pytest.fixture
def never_compiles(monkeypatch):
    monkeypatch.setattr(training_program.Program, "compile", lambda *_: pytest.fail("it trained"))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"loggers": ("tensorbord",)}, r"loggers='tensorbord': choose from tensorboard, wandb"),
        ({"num_seeds": 0}, "num_seeds=0: it must be at least 1"),
        ({"eval_every": -1}, "eval_every=-1"),
        ({"eval_every": 1, "eval_episodes": 0}, "eval_episodes=0"),
        ({"keep": 0}, "keep=0"),
        ({"log_every": 0}, "log_every=0"),
        ({"checkpoint_every": 0}, "checkpoint_every=0"),
        ({"hyper": ppo.Hyper(gamma=jnp.ones(3))}, r"hyper\.gamma is batched, but this is a single run"),
        ({"num_seeds": 2, "hyper": ppo.Hyper(gamma=jnp.ones(3))}, r"hyper\.gamma has shape \(3,\); num_seeds=2 needs"),
        ({"key": jax.random.split(KEY, 3)}, r"key has shape \(3,\)"),
        ({"total_steps": 0}, "total_steps=0"),
        ({"total_steps": 2**31 * 16}, "that is 2147483648 updates; at most 2147483647 are counted"),
        ({"hyper": ppo.Hyper(gamma=1.5)}, r"hyper\.gamma=1\.5: it must be between 0 and 1"),
        ({"hyper": ppo.Hyper(learning_rate=-1e-3)}, r"hyper\.learning_rate=-0\.001: it must be finite, and 0 or more"),
        ({"hyper": ppo.Hyper(anneal_steps=5_000_000_000)}, r"hyper\.anneal_steps=5000000000: .* at most 2147483647"),
    ],
)
def test_impossible_arguments_lose_nothing(algo, whole, never_compiles, bad, message):
    before = {p: p.read_bytes() for p in whole[1].rglob("*") if p.is_file()}
    arguments = {"key": KEY, "total_steps": STEPS, "out": whole[1], "overwrite": True, "progress": False, **bad}
    with pytest.raises(ValueError, match=message):
        fit(algo, arguments.pop("key"), arguments.pop("total_steps"), **arguments)
    assert {p: p.read_bytes() for p in whole[1].rglob("*") if p.is_file()} == before


def test_steps_beyond_the_counter_are_told(algo):
    with pytest.warns(UserWarning, match="stands still from 2147483647 on"), pytest.raises(ValueError, match="keep=0"):
        fit(algo, KEY, 5_000_000_000, keep=0, progress=False)


def test_a_logger_that_is_not_installed(algo, whole, never_compiles, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install wandb"):
        fit(algo, KEY, STEPS, out=whole[1], overwrite=True, loggers=("wandb",), progress=False)
    assert (whole[1] / "config.json").exists()


def test_an_evaluation_without_end_is_refused_before_training(algo, never_compiles, whole):
    from jaxrl.environment import NO_LIMIT

    endless = jaxrl.make("CartPole-v1")[1].replace(max_steps=jnp.int32(NO_LIMIT))
    with pytest.raises(ValueError, match="has no time limit"):
        fit(algo, KEY, STEPS, out=whole[1], overwrite=True, eval_every=16, eval_env_params=endless, progress=False)
    assert (whole[1] / "config.json").exists()


@pytest.mark.slow
@pytest.mark.light
def test_an_existing_run_is_refused_unless_overwritten(algo, tmp_path, never_compiles, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")  # a folder that is no run may be used
    monkeypatch.undo()
    fit(algo, KEY, 64, out=tmp_path, progress=False)
    with pytest.raises(RunFolderError, match="holds a run already: resume it, overwrite it, or name another"):
        fit(algo, KEY, 32, out=tmp_path, progress=False)
    assert len(read_rows(tmp_path / "metrics.jsonl")) == 4
    fit(algo, KEY, 32, out=tmp_path, progress=False, overwrite=True)
    assert len(read_rows(tmp_path / "metrics.jsonl")) == 2 and checkpoint.steps(tmp_path / "checkpoints")[-1] == 2
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_unwritable_folder_fails_before_training(algo, tmp_path, never_compiles):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below", "/proc/nowhere"):
        with pytest.raises(RunFolderError, match="Cannot write to .*choose another folder"):
            fit(algo, KEY, STEPS, out=out, progress=False)


def test_a_foreign_checkpoint_is_refused_and_kept(algo, whole, never_compiles):
    before = logs(whole[1])
    with pytest.raises(CheckpointError, match="hyper.gamma is 0.99.* there, 0.5 here"):
        fit(algo, KEY, STEPS, out=whole[1], hyper=ppo.Hyper(gamma=0.5), resume=True, progress=False)
    with pytest.raises(CheckpointError, match="num_seeds is None there, 2 here"):
        fit(algo, KEY, STEPS, out=whole[1], num_seeds=2, resume=True, progress=False)
    assert logs(whole[1]) == before


def test_load_without_a_checkpoint(algo, tmp_path):
    with pytest.raises(RunFolderError, match=r"holds no run \(it has no config.json\)"):
        load(tmp_path, algo)
    (tmp_path / "config.json").write_text('{"num_seeds": null}')
    with pytest.raises(CheckpointError, match="No usable checkpoint in .*Train first"):
        load(tmp_path, algo)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("size", [4, 12])
def test_what_a_frozen_seed_keeps_does_not_depend_on_how_updates_were_grouped(monkeypatch, algo, size):
    def learn(state, rollout):
        state, metrics = algo.learn(state, rollout)
        broken = (state.hyper.vf_coef > 0.7) & (state.step >= 7 * 16)
        return state.replace(weights=jax.tree.map(lambda x: jnp.where(broken, jnp.nan, x), state.weights)), metrics

    def run(updates_per_call):
        monkeypatch.setattr(progress.Pace, "updates", lambda self: updates_per_call)
        hyper = ppo.Hyper(vf_coef=jnp.array([0.5, 0.8]))
        return fit(algo._replace(learn=learn), KEY, 12 * 16, hyper=hyper, num_seeds=2, progress=False)

    one, many = run(1), run(size)
    assert many.diverged.keys() == {1} and many.state.step.tolist() == [12 * 16, 6 * 16]
    for a, b in zip(jax.tree.leaves(one.state.weights), jax.tree.leaves(many.state.weights), strict=True):
        np.testing.assert_array_equal(a, b)
