"""Who may write into a run folder, what is deleted there, and what is said about damage."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from jaxrl.host.run.options import default_log_every
from jaxrl.host.run.run_folder import RunFolder, RunFolderError, read_rows

CONFIG = {"algorithm": "ppo", "env": "CartPole-v1", "hyper": {}}
ROWS = ("metrics.jsonl", "evaluations.jsonl")


def written(path, rows=3):
    """A folder as `fit` leaves it, with a file for every name that jaxrl gives."""
    folder = RunFolder(path)
    folder.create(CONFIG)
    for name in ROWS:
        (path / name).write_text(
            "".join(json.dumps({"update": i + 1, "step": 8 * (i + 1)}) + "\n" for i in range(rows))
        )
    (path / "metrics.csv").write_text("update,step\n" + "".join(f"{i + 1},{8 * (i + 1)}\n" for i in range(rows)))
    for name in ("checkpoints/000000000003", "checkpoints/.000000000004.partial", "media", "tensorboard"):
        (path / name).mkdir(parents=True)
    (path / "checkpoints/000000000003/manifest.json").write_text("{}")
    for name in (
        "summary.json",
        "policy.h",
        "media/curve.png",
        "media/policy.gif",
        "media/episode.json",
        "media/episode.png",
        "tensorboard/events.out.tfevents.1",
    ):
        (path / name).write_text("{}")
    return folder


def names(path):
    return sorted(str(p.relative_to(path)) for p in path.rglob("*"))


# ---- one process at a time

HOLDER = """
    import sys, time
    from jaxrl.host.run.run_folder import RunFolder
    with RunFolder(sys.argv[1]).locked():
        print("held", flush=True)
        time.sleep(600)
"""


def test_two_processes_do_not_write_one_folder_and_a_killed_one_lets_go(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=os.getcwd(),
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunFolderError, match=f"{tmp_path} is being written by another process"):
            RunFolder(tmp_path).locked().__enter__()
    finally:
        holder.kill()  # as a crash: nothing of the holder's own runs any more
        holder.communicate()
    with RunFolder(tmp_path).locked():
        assert names(tmp_path) == []  # the lock is no file


def test_a_folder_is_let_go_of_when_its_run_ends_or_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), RunFolder(tmp_path).locked():
        raise ZeroDivisionError
    with RunFolder(tmp_path).locked():
        pass


# ---- what is deleted, and what is not


def test_overwriting_deletes_what_jaxrl_wrote_and_nothing_else(tmp_path):
    folder = written(tmp_path)
    foreign = ("media/holiday.jpg", "checkpoints/model.pt", "checkpoints/2024/x", "tensorboard/notes", "readme")
    (tmp_path / "checkpoints/2024").mkdir()
    for name in foreign:
        (tmp_path / name).write_text("mine")
    with pytest.raises(RunFolderError, match="holds a run already"):
        folder.create(CONFIG)
    folder.create({**CONFIG, "env": "other"}, overwrite=True)
    files = {name for name in names(tmp_path) if (tmp_path / name).is_file()}
    assert files == {"config.json", *foreign} and folder.read_config()["env"] == "other"


def test_an_overwritten_folder_of_ours_alone_is_empty(tmp_path):
    written(tmp_path).clear()
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", ['{"lr": 1}', "[1]", "{"])
@pytest.mark.parametrize("how", [{}, {"overwrite": True}, {"resume": True}])
def test_a_config_of_another_program_is_left_alone(tmp_path, content, how):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunFolderError, match="config.json is damaged, or not jaxrl's"):
        RunFolder(tmp_path).create(CONFIG, **how)
    assert (tmp_path / "config.json").read_text() == content and names(tmp_path) == ["config.json"]


@pytest.mark.parametrize("name", ["metrics.csv", "metrics.jsonl", "summary.json"])
def test_logs_of_another_program_are_left_alone(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(RunFolderError, match=f"{name} is of no run of jaxrl"):
        RunFolder(tmp_path).create(CONFIG, overwrite=True)
    assert (tmp_path / name).read_text() == "mine"


def test_a_folder_in_which_nothing_was_trained_is_as_new(tmp_path):
    RunFolder(tmp_path).create(CONFIG)
    (tmp_path / "metrics.jsonl").touch()
    RunFolder(tmp_path).create({**CONFIG, "env": "other"})
    assert RunFolder(tmp_path).read_config()["env"] == "other"


def test_the_empty_name_is_no_folder():
    with pytest.raises(ValueError, match='out="": name a folder'):
        RunFolder("")


# ---- damage


def test_metrics_behind_the_checkpoint_are_told(tmp_path, recwarn):
    folder = written(tmp_path)
    folder.truncate(3)
    folder.truncate(2)
    assert not recwarn.list and read_rows(folder.metrics)[-1]["update"] == 2
    with pytest.warns(UserWarning, match=r"metrics.jsonl ends at update 2 and the checkpoint is at 5.*gap"):
        folder.truncate(5)


def test_lost_evaluations_are_told(tmp_path, recwarn):
    folder = written(tmp_path)
    rows = [json.dumps({"update": u, "step": 8 * u, "return": 1.0}) + "\n" for u in (2, 4)]
    folder.evaluations.write_text("".join(rows))
    folder.truncate(3, 2)
    assert not recwarn.list and len(read_rows(folder.evaluations)) == 1
    folder.evaluations.unlink()
    with pytest.warns(UserWarning, match=r"evaluations.jsonl has 0 of the 1 evaluations up to update 3.*lost"):
        folder.truncate(3, 2)


@pytest.mark.parametrize("change", ["lost", "cut", "changed"])
def test_a_table_that_is_not_that_of_the_rows_is_told_and_written_anew(tmp_path, change):
    folder = written(tmp_path)
    folder.truncate(3)
    whole = folder.table.read_text()
    damaged = {"cut": whole[: whole.index("\n") + 1], "changed": whole.replace("3,", "3,1", 1)}
    folder.table.unlink() if change == "lost" else folder.table.write_text(damaged[change])
    with pytest.warns(UserWarning, match=r"metrics.csv was lost, cut or changed.*metrics.jsonl"):
        folder.truncate(3)
    assert folder.table.read_text() == whole


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("line", ["{'update': 2}", "", "[2]", '{"loss": 2}', "\udcff"])
def test_a_bad_line_is_named(tmp_path, name, line):
    folder = written(tmp_path)
    lines = (tmp_path / name).read_text().splitlines()
    lines[1] = line
    (tmp_path / name).write_bytes(("\n".join(lines) + "\n").encode(errors="surrogateescape"))
    with pytest.raises(RunFolderError, match=f"{name}, line 2 is no row"):
        folder.truncate(3)


def test_a_bad_line_of_the_table_is_named(tmp_path):
    folder = written(tmp_path)
    (tmp_path / "metrics.csv").write_text("update,step\nx,8\n")
    with pytest.raises(RunFolderError, match=r"metrics.csv: 'x,8' is no row"):
        folder.truncate(3)


def test_a_sweeps_folder_says_what_it_is(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "runs-0000-0003").mkdir()
    with pytest.raises(RunFolderError, match=r"a sweep's folder, of the runs in runs-0000-0003.*--resume"):
        RunFolder(tmp_path).read_config()


def test_rows_of_many_seeds_are_read_in_the_memory_of_what_is_wanted(tmp_path):
    file = tmp_path / "metrics.jsonl"
    row = {"update": 1, "step": 8, "loss": [1.0, None], "episode_return": [2.0, 3.0], "episodes": 4}
    file.write_text(json.dumps(row) + "\n" + json.dumps({**row, "update": 2})[:-5])
    assert read_rows(file) == [row]
    (whole,) = read_rows(file, arrays=True)
    np.testing.assert_array_equal(whole["loss"], [1.0, np.nan])
    (part,) = read_rows(file, arrays=True, only=("loss",))
    assert part["episode_return"] is None and part["loss"].dtype == np.float64 and list(part) == list(row)
    file.write_text(json.dumps({**row, "loss": ["x", 1.0]}) + "\n")
    with pytest.raises(RunFolderError, match="values of loss are no numbers"):
        read_rows(file, arrays=True)


def test_fewer_rows_of_many_seeds():
    every = [default_log_every(10**6, seeds) for seeds in (None, 1, 1000, 2000, 10_000, 10**6)]
    assert every == [1000, 1000, 1000, 2000, 10_000, 10_000] and default_log_every(7, 10**6) == 1
