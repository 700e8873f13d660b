"""Several processes on one machine: what they refuse, that they are one run, and that it ends when one is killed."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl.algos import a2c
from jaxrl.host import cli
from jaxrl.host.run import fit as fitting
from jaxrl.host.run import processes, watch
from jaxrl.host.run.recipe import load_run, read_recipe
from jaxrl.host.run.run_folder import RunFolderError
from jaxrl.testing.probes import ActionReward

ROOT = Path(__file__).parents[3]
SMALL = "--config.num-envs 2 --config.num-steps 4 --config.hidden 4 --no-tuned --no-progress"
TRAIN = f"train a2c CartPole-v1 --seeds 4 --total-steps 4000 --checkpoint-every 400 --eval-every 0 {SMALL}"
SECONDS_TO_END = 60


def start(words, devices=1, variables=None):
    """The command in a process of its own; `variables` are added to its environment."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices} --xla_cpu_use_fusion_emitters=false"
    command = [sys.executable, "-m", "jaxrl", *words.split()]
    environment |= variables or {}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


def start_job(words, count, devices, own=None):
    """`count` processes of `devices` each; every second one is told by its environment who it is, and each has the
    words of its `own`.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    job = []
    own = [""] * count if own is None else own
    for rank in range(count):
        if rank % 2:
            variables = dict(zip(processes.VARIABLES, (address, str(count), str(rank)), strict=True))
            job.append(start(f"{words} {own[rank]} --distributed", devices, variables))
        else:
            who = f"--coordinator {address} --processes {count} --rank {rank}"
            job.append(start(f"{words} {own[rank]} --distributed {who}", devices))
    return job


def finish(*job):
    said = [process.communicate(timeout=900) for process in job]
    assert [process.returncode for process in job] == [0] * len(job), said
    return said


def numbers(folder):
    state = load_run(read_recipe(folder), folder)[1]
    leaves = jax.tree.leaves(state)
    return [
        np.asarray(jax.random.key_data(x) if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key) else x) for x in leaves
    ]


@pytest.mark.slow
@pytest.mark.light
def test_a_killed_process_ends_the_job_and_any_number_of_processes_goes_on(tmp_path):
    whole = tmp_path / "whole"
    finish(start(f"{TRAIN} --mesh seeds=4 --out {whole}", devices=4))
    killed = tmp_path / "killed"
    job = start_job(f"{TRAIN} --out {killed}", 2, 2)
    deadline = time.monotonic() + 600
    while not list(killed.glob("checkpoints/0*")):
        assert time.monotonic() < deadline and job[0].poll() is None, job[0].communicate()
        time.sleep(0.02)
    job[1].send_signal(signal.SIGKILL)
    began = time.monotonic()
    _, said = job[0].communicate(timeout=SECONDS_TO_END)
    job[1].communicate()
    assert job[0].returncode == 1 and time.monotonic() - began < SECONDS_TO_END
    assert "another process of the job ended or cannot be reached" in said and f"jaxrl resume {killed}" in said
    assert not (killed / "summary.json").exists()
    for count in (1, 2, 4):
        folder = tmp_path / f"on-{count}"
        shutil.copytree(killed, folder)
        words = f"resume {folder} --no-progress"
        finish(*(start_job(words, count, 4 // count) if count > 1 else [start(f"{words} --mesh seeds=4", devices=4)]))
        for one, other in zip(numbers(folder), numbers(whole), strict=True):
            np.testing.assert_array_equal(one, other)
        for name in ("metrics.jsonl", "metrics.csv"):  # written by one of them, once
            assert (folder / name).read_text() == (whole / name).read_text()


@pytest.mark.slow
@pytest.mark.light
def test_a_mistake_ends_every_process_and_says_why(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    jobs = {
        "mesh seeds=3 is of 3 devices, and there are 2": f"{TRAIN} --mesh seeds=3 --out {tmp_path / 'a'}",
        "mesh seeds=2 does not divide the number of seeds = 3; 1 does": f"{TRAIN} --seeds 3 --out {tmp_path / 'b'}",
        "config.json is damaged, or not jaxrl's": f"{TRAIN} --out {tmp_path}",
    }
    for message, words in jobs.items():
        job = start_job(words, 2, 1)
        said = [process.communicate(timeout=200)[1] for process in job]
        assert [process.returncode for process in job] == [1, 1], said
        assert message in said[0] and (message in said[1] or "The first process failed" in said[1])


@pytest.mark.slow
@pytest.mark.light
def test_processes_that_do_not_meet_say_so_in_time(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for rank in (0, 1):  # alone each
        who = f"--distributed --coordinator {address} --processes 2 --rank {rank}"
        process = start(f"{TRAIN} --out {tmp_path} {who}", variables={"JAXRL_SECONDS_TO_MEET": "3"})
        _, said = process.communicate(timeout=120)
        assert process.returncode == 1 and f"did not meet within 3 s (rank {rank} of 2, coordinator {address})" in said


def test_who_takes_part_is_checked_first(monkeypatch):
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **__: pytest.fail("it went on"))
    for arguments, message in {
        ("nowhere", 2, 0): "coordinator='nowhere': it is written HOST:PORT",
        (":1234", 2, 0): "it is written HOST:PORT, a port from 1 to 65535",
        ("host:99999", 2, 0): "it is written HOST:PORT, a port from 1 to 65535",
        ("host:1", 0, 0): "processes=0: there must be at least 1",
        ("host:1", 2, 2): "rank=2: of 2 processes, ranks are from 0 to 1",
    }.items():
        with pytest.raises(ValueError, match=message):
            processes.join(*arguments)
    monkeypatch.setenv("JAX_NUM_PROCESSES", "two")
    with pytest.raises(ValueError, match="JAX_NUM_PROCESSES='two': it must be a number"):
        processes.join("host:1", None, 0)
    for words, message in {
        "abc": "JAXRL_SECONDS_TO_MEET='abc': it must be a number",
        "0": "MEET=0: it must be",
    }.items():
        monkeypatch.setenv("JAXRL_SECONDS_TO_MEET", words)
        with pytest.raises(ValueError, match=message):
            processes.join("host:1", 2, 0)


def test_only_what_a_lost_process_causes_is_called_that(monkeypatch):
    ended = []
    monkeypatch.setattr(processes, "end", ended.append)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT"), processes.lost("again"):
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: shapes differ")
    with processes.lost("again"):
        raise jax.errors.JaxRuntimeError("UNAVAILABLE: connection closed by peer")
    assert len(ended) == 1 and "another process of the job ended" in ended[0] and ended[0].endswith("again")


def test_without_a_cluster_the_words_are_named(monkeypatch):
    def initialize(*_, **__):
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    with pytest.raises(
        ValueError, match="No cluster was found .* Say all of --coordinator, --processes and --rank, or set"
    ):
        processes.join()


def test_words_that_belong_to_distributed(capsys):
    assert cli.main("train ppo CartPole-v1 --rank 1".split()) == 2
    assert "--coordinator, --processes and --rank belong to --distributed" in capsys.readouterr().err
    assert cli.main("train ppo CartPole-v1 --rank one".split()) == 2
    assert "invalid int value" in capsys.readouterr().err


def test_what_fails_on_the_first_process_fails_on_all(monkeypatch):
    with pytest.raises(KeyError):
        processes.on_primary(lambda: {}["missing"])
    monkeypatch.setattr(processes, "primary", lambda: False)
    monkeypatch.setattr(processes, "of_all", lambda failed: np.array([True, failed]))
    with pytest.raises(OSError, match="The first process failed; its message says why"):
        processes.on_primary(lambda: pytest.fail("another process does it"))


def test_a_folder_that_is_not_the_same_for_all_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(fitting, "of_all", lambda step: np.array([step, step + 4]))
    algo = a2c.make(ActionReward(), a2c.Config(num_envs=2, num_steps=2, hidden=(2,)))
    with pytest.raises(RunFolderError, match="the processes see different checkpoints"):
        fitting.fit(algo, jax.random.key(0), 8, out=tmp_path, progress=False)


def test_an_exchange_that_fails_ends_a_process_of_several(monkeypatch, capsys):
    ended = []
    monkeypatch.setattr(processes.os, "_exit", ended.append)
    broken = jax.errors.JaxRuntimeError("Gloo failed: connection reset by peer")
    with pytest.raises(jax.errors.JaxRuntimeError), processes.lost("Start again."):
        raise broken  # alone, it is something else
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with processes.lost("Start again."):
        raise broken
    assert ended == [1]
    assert "another process of the job ended" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.light
def test_processes_that_were_started_differently_say_so_and_end(tmp_path):
    """Where they would train to the end, the results would be of neither; or they would wait for one another."""
    ways = {
        "seed": (f"--out {tmp_path / 'a'}", f"--out {tmp_path / 'a'} --seed 3", "run.seed is 0 of rank 0, 3 of rank 1"),
        "out": (f"--out {tmp_path / 'b'}", f"--out {tmp_path / 'c'}", "run.out is"),
        "steps": (f"--out {tmp_path / 'd'}", f"--out {tmp_path / 'd'} --total-steps 8000", "run.total_steps is 4000"),
    }
    for first, second, says in ways.values():
        job = start_job(TRAIN, 2, 1, (first, second))
        said = [process.communicate(timeout=120)[1] for process in job]
        assert [process.returncode for process in job] == [1, 1], said
        assert all("the processes were started differently" in text and says in text for text in said), said


@pytest.mark.slow
@pytest.mark.light
def test_a_terminated_process_saves_and_ends_the_job(tmp_path):
    """SIGTERM, as clusters send it: to the only process, and to one of two."""
    long = TRAIN.replace("--total-steps 4000 --checkpoint-every 400", "--total-steps 40000000")
    for count in (1, 2):
        folder = tmp_path / str(count)
        words = f"{long} --out {folder}"
        job = start_job(words, 2, 1) if count == 2 else [start(words)]
        deadline = time.monotonic() + 600
        while not (folder / "metrics.jsonl").exists() or not (folder / "metrics.jsonl").read_text():
            assert time.monotonic() < deadline and job[0].poll() is None, job[0].communicate()
            time.sleep(0.05)
        job[-1].send_signal(signal.SIGTERM)
        said = [process.communicate(timeout=SECONDS_TO_END) for process in job]
        assert [process.returncode for process in job] == [143] * count, said
        assert f"Terminated; what was done is saved. Go on with: jaxrl resume {folder}" in said[0][0]
        assert list(folder.glob("checkpoints/0*"))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_a_frozen_process_ends_the_job_with_a_sentence_of_each(frozen, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXRL_SECONDS_TO_MISS", "4")
    folder = tmp_path / "run"
    long = TRAIN.replace("--total-steps 4000 --checkpoint-every 400", "--total-steps 40000000")
    job = start_job(f"{long} --seeds 3 --out {folder}", 3, 1)
    deadline = time.monotonic() + 600
    while not (folder / "metrics.jsonl").exists() or not (folder / "metrics.jsonl").read_text():
        assert time.monotonic() < deadline and job[0].poll() is None, job[0].communicate()
        time.sleep(0.05)
    job[frozen].send_signal(signal.SIGSTOP)
    said = [None if rank == frozen else job[rank].communicate(timeout=SECONDS_TO_END)[1] for rank in range(3)]
    job[frozen].send_signal(signal.SIGCONT)
    said[frozen] = job[frozen].communicate(timeout=SECONDS_TO_END)[1]
    for rank in {0, 1, 2} - {frozen}:
        lines = [line for line in said[rank].splitlines() if "the machine is overloaded" not in line]
        assert job[rank].returncode == 1 and len(lines) == 1, (rank, said)
        assert lines[0].startswith("jaxrl: ") and "jaxrl resume" in lines[0], said
        assert f"rank {frozen} of the job has been silent" in lines[0] or "another process of the job" in lines[0]
    # Once it goes on it ends, too; whether jaxlib's own log has a line before its sentence is a race.
    assert job[frozen].returncode in (1, -signal.SIGABRT), said


@contextlib.contextmanager
def watched(count, seconds):
    """A first process and others that report to it; what each said when it ended, by its rank."""
    token, ended = bytes(watch.TOKEN), {}

    def ending(rank):
        def end(message, before):
            ended[rank] = message
            before()

        return end

    server = watch.listen()
    address = ("127.0.0.1", server.getsockname()[1])
    watch.guard(server, token, seconds, ending(0))
    for rank in range(1, count):
        watch.report(address, token, rank, seconds, ending(rank))
    yield address, ended
    with socket.create_connection(address) as frozen:  # which ends the threads
        frozen.sendall(token + (99).to_bytes(4, "big"))
        until(lambda: len(ended) == count)


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_process_that_says_nothing_is_told_to_all(monkeypatch):
    monkeypatch.setattr(watch, "BETWEEN", 0.05)
    with watched(3, 1.0) as (address, ended), socket.create_connection(address) as stranger:
        stranger.sendall(b"GET / HTTP/1.1")  # is no process of the job, and may be as silent as it likes
    assert len(ended) == 3
    assert all("rank 99 of the job has been silent for 1 s" in said for said in ended.values()), ended


def test_a_connection_that_is_closed_is_no_frozen_process(monkeypatch):
    monkeypatch.setattr(watch, "BETWEEN", 0.02)
    with watched(2, 0.4) as (address, ended):
        with socket.create_connection(address) as done:
            done.sendall(bytes(watch.TOKEN) + (5).to_bytes(4, "big"))
        time.sleep(0.8)
        assert not ended


def test_a_first_process_that_says_nothing_and_one_that_was_frozen_itself(monkeypatch):
    monkeypatch.setattr(watch, "BETWEEN", 0.02)
    said = []
    with watch.listen() as server:
        watch.report(server.getsockname(), bytes(watch.TOKEN), 1, 0.3, lambda *what: said.append(what[0]))
        until(lambda: said)
    assert "rank 0 of the job has been silent" in said.pop()
    with watch.listen() as server:
        monkeypatch.setattr(watch, "BETWEEN", 0.5)  # as if this process stood still meanwhile
        watch.report(server.getsockname(), bytes(watch.TOKEN), 1, 0.3, lambda *what: said.append(what[0]))
        until(lambda: said)
    assert "this process was frozen" in said.pop()
    watch.report(("127.0.0.1", 1), bytes(watch.TOKEN), 1, 0.3, pytest.fail)  # nobody listens: nothing is watched


def test_a_port_in_use_is_said_before_jax_takes_it():
    with socket.socket() as held:
        held.bind(("", 0))
        held.listen()
        port = held.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} of this machine is in use"):
            processes.join(f"127.0.0.1:{port}", 2, 0)


def test_the_variables_of_torchrun_are_read(monkeypatch):
    met = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *who, **_: met.append(who))
    told = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500", "WORLD_SIZE": "4", "RANK": "3"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    processes.join()
    processes.join("host:1", 2, 1)  # what is said counts
    assert met == [("node0:29501", 4, 3), ("host:1", 2, 1)]
    monkeypatch.setenv("WORLD_SIZE", "four")
    with pytest.raises(ValueError, match="'four': it must be a number"):
        processes.join()


def of_two(monkeypatch, other):
    """This process is rank 0 of two, which exchange what `other` makes of the value of this one."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes, "of_all", lambda value: np.stack([np.asarray(value), np.asarray(other(value))]))


def test_processes_that_have_met_already_watch_one_another_and_do_not_meet_again(monkeypatch):
    """As in a worker of Ray's JaxTrainer."""
    watched = []
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **__: pytest.fail("it may be called once"))
    monkeypatch.setattr(processes, "_watch", lambda *who: watched.append(who))
    processes.join()
    assert watched == [(None, processes.SECONDS_TO_MISS)]


def test_what_differs_between_processes_is_named(monkeypatch):
    texts = [b'{"a": {"b": 1}, "c": NaN}', b'{"a": {"b": 2}, "c": NaN}']
    of_two(monkeypatch, lambda x: x if np.ndim(x) == 0 else np.frombuffer(texts[1], np.uint8))
    with pytest.raises(ValueError, match=r"started differently: a\.b is 1 of rank 0, 2 of rank 1\."):
        processes.agree(lambda: {"a": {"b": 1}, "c": float("nan")})
    of_two(monkeypatch, lambda x: x)
    processes.agree(lambda: {"a": {"b": 1}, "c": float("nan")})


def test_a_file_that_another_process_does_not_see_is_said(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    of_two(monkeypatch, lambda x: x)
    processes.require_seen(tmp_path / "config.json", 0.1)
    of_two(monkeypatch, lambda x: False if isinstance(x, bool) else -1)
    with pytest.raises(OSError, match="rank 1 does not see .*config.json as rank 0 wrote it"):
        processes.require_seen(tmp_path / "config.json", 0.1)
