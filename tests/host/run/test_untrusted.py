"""Run folders of somebody else: no Python of theirs is run, no link is followed, no edit of a file is a traceback."""

import contextlib
import copy
import importlib.util
import io
import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl import registry
from jaxrl.algos import ppo
from jaxrl.host import cli
from jaxrl.host.run.recipe import load_run
from jaxrl.host.run.run_folder import RunFolderError
from jaxrl.host.run.trust import foreign
from jaxrl.meta.stored import RuleFileError, arrays_of

READING = ("eval --episodes 1 --max-steps 2", "export", "report --out {tmp}/r.html", "resume --no-progress")
PLAYING = ("render --max-steps 2", "plot --episode --max-steps 2")


def run_command(words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(words.split())
    return status, err.getvalue()


def command(words, folder, tmp):
    name, *rest = words.split()
    return f"{name} {folder} {' '.join(rest)}".format(tmp=tmp)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untrusted") / "run"
    env, params = jaxrl.make("CartPole-v1")
    algo = ppo.make(env, ppo.Config(num_envs=2, num_steps=4, num_epochs=1, num_minibatches=1, hidden=(4,)))
    given = {"hyper": ppo.Hyper(gamma=0.9), "env_params": params.replace(length=0.4), "num_seeds": 2, "keep": 1}
    jaxrl.fit(algo, jax.random.key(0), 16, out=folder, progress=False, eval_every=8, eval_episodes=2, **given)
    return folder


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield shutil.copytree(trained, tmp_path / "run")
    for name in [name for name in sys.modules if name.startswith("evil")]:
        del sys.modules[name]
    registry.own_modules().clear()


def edit(folder, change, name="config.json"):
    config = json.loads((folder / name).read_text())
    change(config)
    (folder / name).write_text(json.dumps(config))


# ---- Python

EVIL = "import pathlib\npathlib.Path('ran').touch()\n"
LEVELS = {"name": "reverse_curriculum", "choice": {"ranges": [], "score": None, "success_above": 0.0, "teacher": None}}


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("where", ["run/evil_one.py", "evil_two.py", "run/evil_three/__init__.py"])
@pytest.mark.parametrize("part", ["algo", "env_id", "module", "goals"])
def test_python_that_a_run_folder_names_is_not_run(run, tmp_path, where, part, monkeypatch):
    """Neither that in the folder nor that beside it, which came in the same archive."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(run)])
    file = tmp_path / where
    file.parent.mkdir(exist_ok=True)
    file.write_text(EVIL)
    module = file.parent.name if file.name == "__init__.py" else file.stem

    def change(config):
        recipe = config["recipe"]
        if part == "goals":
            recipe["curriculum"] = {**LEVELS, "choice": {**LEVELS["choice"], "goals": f"{where}:goals"}}
        else:
            word = {"algo": where, "env_id": f"{where}:Tank", "module": f"{module}:Tank"}[part]
            recipe["algo" if part == "algo" else "env_id"] = word

    edit(run, change)
    for words in (*READING, *PLAYING):
        status, err = run_command(command(words, run, tmp_path))
        if words.startswith("report"):
            assert status == 0, err
        else:
            assert status == 1 and "names Python that is not jaxrl's" in err and "--trust" in err, (words, err)
        assert not list(tmp_path.rglob("ran")), words
    with pytest.raises(RunFolderError, match="trust=True"):
        jaxrl.load(run)
    if part in ("algo", "env_id") and file.name != "__init__.py":
        run_command(f"eval {run} --trust")
        assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("word", ["subprocess:call", "os:system", "builtins:exec", "jaxrl.registry:register"])
def test_a_function_is_no_environment(run, word):
    edit(run, lambda config: config["recipe"].update(env_id=word, env_settings={"args": "touch ran"}))
    status, err = run_command(f"eval {run}")
    assert status == 1 and "names Python that is not jaxrl's" in err and not Path("ran").exists()


def test_what_is_jaxrls_or_was_imported_here_is_run():
    ours = {"algo": "ppo", "env_id": "CartPole-v1", "config": {"hidden": [4], "activation": "tanh"}}
    assert not foreign(ours)
    assert not foreign({**ours, "env_id": "jaxrl.envs.classic.cartpole:CartPole"})
    assert not foreign({**ours, "algo": "jaxrl.algos.meta.training"})
    assert not foreign({**ours, "curriculum": {"choice": {"ranges": ["length=0.2:3.0"], "teacher": "/runs/a.py/x"}}})
    assert foreign({**ours, "curriculum": {"choice": {"goals": "there:upright"}}}) == ["there:upright"]
    assert foreign({**ours, "algo": "there.py"}) == ["there.py"]
    spaced = {"rule": "known", "rule_function": "/in a folder/there.py:rule"}
    assert foreign({**ours, "config": spaced}) == ["/in a folder/there.py:rule"]
    assert foreign({**ours, "env_id": "jaxrl.evil.py:Tank"}) == ["jaxrl.evil.py:Tank"]


def test_trust_belongs_to_what_reads_run_folders(capsys):
    assert cli.main(["envs", "--trust"]) == 2
    assert "--trust belongs to commands that read run folders" in capsys.readouterr().err


# ---- links


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    "name",
    [
        ".summary.json.partial",
        ".metrics.jsonl.partial",
        ".metrics.csv.partial",
        "config.json",
        "metrics.jsonl",
        "evaluations.jsonl",
        "summary.json",
        "policy.h",
        "media/curve.png",
        "media/policy.gif",
        "media/policy.png",
        "media/episode.png",
        "media/episode.json",
        "media",
        "checkpoints",
        "checkpoints/.000000000001.partial",
    ],
)
def test_a_link_in_a_run_folder_is_neither_followed_nor_written_through(run, tmp_path, name):
    target, link = tmp_path / "target", run / name
    link.parent.mkdir(exist_ok=True)
    if link.exists():
        link.rename(target)
    else:
        target.write_text("mine")
    os.symlink(target, link)
    files = target.rglob("*") if target.is_dir() else [target]
    before = {path: path.read_bytes() for path in files if path.is_file()}
    for words in (*READING, *PLAYING, "plot --out curves.png"):
        status, err = run_command(command(words, run, tmp_path))
        refused = status == 1 and "is a link, and jaxrl follows none" in err and err.count("\n") == 1
        assert refused, (words, status, err)
    assert before == {path: path.read_bytes() for path in before} and not (tmp_path / "r.html").exists()
    algo = ppo.make(jaxrl.make("CartPole-v1")[0], ppo.Config(num_envs=2, num_steps=4, hidden=(4,)))
    with pytest.raises(RunFolderError, match="is a link"):
        jaxrl.fit(algo, jax.random.key(0), 16, out=run, overwrite=True, progress=False)
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "summary.json", "media/policy.png", "policy.h"])
def test_a_pipe_in_a_run_folder_is_not_waited_for(run, tmp_path, name):
    (run / "media").mkdir(exist_ok=True)
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    for words in (*READING, "plot --out curves.png"):
        status, err = run_command(command(words, run, tmp_path))
        assert status == 1 and "is no file but a pipe" in err and err.count("\n") == 1, (words, status, err)


def test_a_row_without_end_is_not_read_to_it(run):
    with (run / "metrics.jsonl").open("ab") as file:
        file.truncate(2**40)  # of which the disk holds nothing
    status, err = run_command(f"plot {run} --metric loss")
    assert status == 1 and "is longer than any row" in err and err.count("\n") == 1, err


def test_links_of_others_are_left_alone_and_a_folder_may_be_one(run, tmp_path):
    (tmp_path / "notes").write_text("mine")
    os.symlink(tmp_path / "notes", run / "notes")
    os.symlink(run, tmp_path / "link")
    assert run_command(f"plot {tmp_path / 'link'} --metric loss --out {tmp_path / 'c.png'}")[0] == 0


# ---- edits


def paths(tree, at=()):
    """Of every value in nested dicts."""
    for name, value in tree.items():
        yield (*at, name)
        if isinstance(value, dict):
            yield from paths(value, (*at, name))


GARBAGE = (None, "x", -1, 3.5, True, [], {}, [[["x"]]], {"a": {"b": [{}]}}, 10**30)


def edits(kept, most):
    """Configs with one field left out, or with garbage of so many kinds in its place."""
    for i, path in enumerate(paths(kept)):
        if path[0] in ("versions", "device", "processors", "commit", "started"):
            continue
        for j in range(-1, most):
            config = copy.deepcopy(kept)
            part = config
            for name in path[:-1]:
                part = part[name]
            if j < 0:
                del part[path[-1]]
            else:
                part[path[-1]] = GARBAGE[(i + j) % len(GARBAGE)]
            yield ".".join(path), config


def no_traceback(run, monkeypatch, most, every):
    """What ends badly says so in a line with the file's name, whatever reads the folder; one of `every` so many edits
    is tried.
    """
    monkeypatch.setattr("jaxrl.host.run.fit._Session.open", lambda *_: 1 / 0)
    kept, bad = json.loads((run / "config.json").read_text()), []
    for path, config in list(edits(kept, most))[::every]:
        (run / "config.json").write_text(json.dumps(config))
        for words in ("report --no-episodes", "eval --episodes 1 --max-steps 1", "resume --no-progress", "plot"):
            if words.startswith("eval"):
                monkeypatch.setattr("jaxrl.zoo.load_run", lambda *given: load_run(*given) and 1 / 0)
            try:
                status, err = run_command(command(words, run, "."))
            except ZeroDivisionError:  # it went on to what would take long
                continue
            except Exception as error:
                status, err = 1, f"a traceback: {error!r}"
            err = "".join(line for line in err.splitlines(True) if "the learning rate ends" not in line)
            if status and (str(run) not in err or err.count("\n") > 1):
                bad.append((path, words, err))
    assert not bad, "\n".join(map(str, bad[:40]))


@pytest.mark.slow
@pytest.mark.light
def test_no_edit_of_a_config_is_a_traceback(run, monkeypatch):
    no_traceback(run, monkeypatch, 1, 23)


@pytest.mark.slow
def test_no_edit_of_a_config_of_any_kind_is_a_traceback(run, monkeypatch):
    no_traceback(run, monkeypatch, len(GARBAGE), 1)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda recipe: recipe["params"].update(gravity=3.0), "began.params.gravity is 9.8"),
        (lambda recipe: recipe["params"].pop("length"), "began.params.length is 0.4"),
        (lambda recipe: recipe["run"]["key"].update(data=[0, 7]), "began.key.data is [0, 0] there, [0, 7] here"),
        (lambda recipe: recipe["run"].update(seed=7), "began.key.data is [0, 0] there, [0, 7] here"),
        (lambda recipe: recipe["hyper"].update(gamma=0.8), "hyper.gamma is"),
        (lambda recipe: recipe["config"].update(num_steps=8), "config.num_steps is 4 there, 8 here"),
    ],
)
def test_what_was_edited_by_hand_is_said_where_a_run_goes_on(run, change, says):
    config = json.loads((run / "config.json").read_text())
    change(config["recipe"])
    (run / "config.json").write_text(json.dumps(config))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    status, err = run_command(f"resume {run} --total-steps 32 --no-progress")
    assert status == 1 and says in err and "is of another run" in err and err.count("\n") == 1, err
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.light
def test_an_edit_of_what_is_evaluated_logged_or_kept_is_said_where_a_run_goes_on(run):
    """In one line, once; it changes nothing of what is trained, so the run goes on."""

    def change(config):
        config["recipe"]["run"].update(eval_every=16, eval_episodes=1, keep=2, log=["tensorboard"])

    edit(run, change)
    with pytest.warns(UserWarning, match="was edited") as said:
        status, err = run_command(f"resume {run} --total-steps 32 --no-progress")
    assert status == 0, err
    (line,) = [str(warning.message) for warning in said if "was edited" in str(warning.message)]
    differs = (
        "eval_episodes is 2 there, 1 here; eval_every is 8 there, 16 here; keep is 1 there, 2 here; log is [] there"
    )
    told = f"{run / 'config.json'} was edited: {differs}, ['tensorboard'] here. The run goes on as it says now."
    assert line == told
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run_command(f"resume {run} --total-steps 40 --no-progress")[0] == 0


@pytest.mark.slow
@pytest.mark.light
def test_an_edit_of_the_dataset_is_said_where_a_run_goes_on(tmp_path):
    file, folder = tmp_path / "data.npz", tmp_path / "run"
    assert run_command(f"dataset make CartPole-v1 --recipe random --steps 60 --out {file}")[0] == 0
    small = "--config.hidden 4 --config.batch-size 4 --total-steps 4 --eval-every 0 --no-progress"
    assert run_command(f"train bc CartPole-v1 --dataset {file} {small} --out {folder}")[0] == 0
    for name, value in (("episodes", "best:0.5"), ("seed", 3)):
        config = json.loads((folder / "config.json").read_text())
        config["recipe"]["dataset" if name == "episodes" else "run"][name] = value
        kept = (folder / "config.json").read_text()
        (folder / "config.json").write_text(json.dumps(config))
        status, err = run_command(f"resume {folder} --total-steps 8 --no-progress")
        assert status == 1 and "is of another run: began." in err and str(value) in err, err
        (folder / "config.json").write_text(kept)
    assert run_command(f"resume {folder} --total-steps 8 --no-progress")[0] == 0


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "summary.json", "media/episode.json"])
def test_json_that_is_nested_deeply_is_said_in_a_line(run, name):
    (run / "media").mkdir(exist_ok=True)
    (run / name).write_text(f"{DEEP}\n")
    for words in ("report", "plot --metric loss", "eval --episodes 1 --max-steps 1"):
        status, err = run_command(command(words, run, "."))
        assert status == 0 or (str(run) in err and err.count("\n") == 1), (words, err)


# ---- damage

HUGE, FOLDER, CUT = "a file of 64 GB, of which the disk holds nothing", "a folder", "its first half"
TEXTS = (
    b"",
    bytes(range(256)),
    b"null\n",
    b"[]\n",
    b"{}\n",
    b'{"update": "x"}\n',
    b'{"update": 1e400}\n',
    b"3\n",
    HUGE,
    FOLDER,
)
FILES = {
    "metrics.csv": (*TEXTS, CUT, b"a,b\n1,2\n"),
    "evaluations.jsonl": (*TEXTS, CUT),
    "summary.json": TEXTS,
    "wandb.json": (*TEXTS, b'{"id": 3}', b'{"id": "../x"}'),
    "recipe.npz": TEXTS,
    "media/curve.png": TEXTS,
    "policy.h": (HUGE, FOLDER),
    "media": (b"x",),
    "checkpoints": (b"x",),
    "best": (b"x",),
    "checkpoints/000000000002/manifest.json": (*TEXTS, CUT),
    "checkpoints/000000000002/arrays/_METADATA": (b"", FOLDER),
}


def damaged(file, damage):
    before = file.read_bytes() if file.is_file() else b""
    if file.is_dir():
        shutil.rmtree(file)
    file.unlink(missing_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    if damage == FOLDER:
        file.mkdir()
    else:
        file.write_bytes(before[: len(before) // 2] if damage == CUT else b"" if damage == HUGE else damage)
    if damage == HUGE:
        os.truncate(file, 2**36)


def no_damage_is_a_traceback(run, tmp_path, monkeypatch, every):
    """Whatever a file of a run holds, a command works or says in a line what it cannot read."""
    monkeypatch.setattr("jaxrl.host.run.training_program.Program.compile", lambda *_: 1 / 0)
    monkeypatch.setattr("jaxrl.zoo.load_run", lambda *given: load_run(*given) and 1 / 0)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **_: 1 / 0))
    known, bad = importlib.util.find_spec, []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "wandb" or known(name))
    edit(run, lambda config: config["recipe"]["run"].update(log=["wandb"]))
    kept = run.rename(tmp_path / "kept")
    commands = ("report --no-episodes", "eval --episodes 1", "render", "export", "plot --metric loss", "resume")
    cases = [(name, damage, words) for name, damages in FILES.items() for damage in damages for words in commands]
    for name, damage, words in cases[::every]:
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(kept, run)
        damaged(run / name, damage)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as of a checkpoint that is passed over
            try:
                status, err = run_command(command(words, run, tmp_path))
            except ZeroDivisionError:  # it went on to what would take long
                continue
            except Exception as error:
                status, err = 1, f"a traceback: {error!r}"
        if status and (str(run) not in err or err.count("\n") > 1):
            bad.append((name, damage, words, err))
    assert not bad, "\n".join(map(str, bad[:40]))


@pytest.mark.slow
@pytest.mark.light
def test_no_damage_of_a_file_is_a_traceback(run, tmp_path, monkeypatch):
    no_damage_is_a_traceback(run, tmp_path, monkeypatch, 17)


@pytest.mark.slow
def test_no_damage_of_any_file_is_a_traceback(run, tmp_path, monkeypatch):
    no_damage_is_a_traceback(run, tmp_path, monkeypatch, 1)


def test_a_bomb_of_arrays_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    file = tmp_path / "recipe.npz"
    np.savez_compressed(file, x=np.zeros(10**6))
    assert arrays_of(file)["x"].size == 10**6
    monkeypatch.setattr("jaxrl.meta.stored.MOST_BYTES", 2**20)
    assert file.stat().st_size < 2**20
    with pytest.raises(RuleFileError, match=r"recipe\.npz: it is no stored recipe .*: it unpacks to 8000128 bytes"):
        arrays_of(file, "recipe")
    monkeypatch.setattr("jaxrl.meta.stored.MOST_BYTES", 100)
    with pytest.raises(RuleFileError, match=f"it has {file.stat().st_size} bytes"):
        arrays_of(file, "recipe")
