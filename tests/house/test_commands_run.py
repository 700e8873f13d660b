"""What pages show to be typed is typed: every `jaxrl` command of README and docs, as it stands but for its budget.

The runs that later commands speak of are one PPO of two updates, under each of their names, an archive and a clone.
Left out is what one CPU cannot do: compilers of other machines, several devices and processes have tests of their own.
"""

import os
import shutil

import jax
import pytest

from jaxrl.host.cli import command
from tests.house.test_commands import STANDS_FOR, commands, is_pattern

BUDGET = {
    "train": {"--total-steps": "1", "--seeds": "2", "--eval-every": "0", "--no-progress": None},
    "sweep": {"--total-steps": "1", "--seeds": "2", "--eval-episodes": "1", "--eval-max-steps": "5"},
    "resume": {"--no-progress": None},
    "eval": {"--episodes": "2"},
    "render": {"--max-steps": "3"},
    "bench": {"--num-envs": "2", "--steps": "2", "--repeats": "1"},
    "meta-train": {
        "--total-steps": "1",
        "--config.num-envs": "2",
        "--config.num-steps": "3",
        "--config.features": "4",
        "--config.at-once": "1",
        "--no-progress": None,
    },
    "meta-test": {"--levels": "2", "--updates": "2"},
}
"""What is set, or set otherwise, by a command's first word."""
MORE = {
    "disco": {"--config.predictions": "8", "--config.features": "8", "--config.memory": "8", "--config.num-bins": "21"},
    "crossq": {"--config.critic-hidden": "32", "--config.buffer-size": "1000"},
    "alphazero": {"--config.num-simulations": "4"},
    "model": {
        "--config.num-members": "2",
        "--config.num-elites": "1",
        "--config.hidden": "8",
        "--config.num-checks": "1",
        "--config.num-updates": "2",
    },
    "relabel": {
        "--config.num-members": "2",
        "--config.hidden": "8",
        "--config.num-checks": "1",
        "--config.num-updates": "2",
    },
    "serene": {"--config.num-steps": "20"},
    "novelty_search": {"--config.num-steps": "20"},
    "stax": {"--config.num-steps": "20"},
    "cpl": {"--config.hidden": "8"},
    "p_iql": {"--config.hidden": "8"},
    "oppo": {"--config.hidden": "8", "--config.width": "8", "--config.layers": "1"},
    "heron": {"--config.hidden": "8"},
    "dagger": {"--config.hidden": "8"},
    "hg_dagger": {"--config.hidden": "8"},
    "rlif": {"--config.hidden": "8", "--config.num-critics": "2", "--config.horizon": "5"},
    "mbpo": {"--config.num-updates": "2", "--config.model-updates": "2", "--config.num-rollouts": "4"},
    "mopo": {"--config.num-updates": "2", "--config.hidden": "8", "--config.num-rollouts": "4"},
    "props": {"--config.num-steps": "32", "--config.num-epochs": "1", "--config.props-num-epochs": "1"},
    "gradients": {"--config.num-agents": "2"},
    "strategies": {"--config.num-pairs": "2"},
}
"""And by the name of an algorithm, whose own sizes would take a minute, of what learns a rule or fits a model."""
RUNS = ("x", "y", "a", "b", "hover")
GOALS = """
import jax, jax.numpy as jnp, jaxrl

def upright(env, params):
    state = env.reset(jax.random.key(0), params)[1]
    return jax.tree.map(lambda x: jnp.stack([x, x]), state)
"""
OWN = """
import dataclasses, jaxrl
from jaxrl.algos.curricula import dr

@dataclasses.dataclass(frozen=True)
class Config:
    stages: int = 2

def progress(level_fn, config):
    return dr.make(lambda key, params: params)

def corridors(key, params):
    return jaxrl.make("Maze-v0")[0].levels.generate(key, params)

def surprise(rollout, batch, outcomes, hyper):
    return outcomes.episode_length
"""
"""A reader's `my.py`."""
DATASETS = (
    "Pendulum-v1 --recipe random --out pendulum.npz",
    "CartPole-v1 --recipe random --out cartpole.npz",
    "PointMazeMedium-v0 --recipe stitch --out maze.npz",
)
"""Those that pages train on, of the first a model too: the commands that make them may be tested elsewhere or later."""
ELSEWHERE = {"compile", "play", "watch"}
"""Commands of compilers that are not here, and those that serve a page until they are stopped."""
HERE = {word: stands for word, stands in STANDS_FOR.items() if word != "RUN"}


def runs_here(said):
    """Whether a machine without accelerators, alone, can carry it out."""
    others = ("--mesh", "--distributed", "--memory")
    plain = not any(map(is_pattern, said)) and not any(word.startswith(others) for word in said)
    return plain and len(said) > 1 and said[1] in {*command.COMMANDS} - ELSEWHERE and complete(said)


def complete(said):
    """A command, and not one that is called by its name alone or with a flag that is spoken of."""
    needs = {"train": 4, "sweep": 4, "meta-train": 4, "meta-test": 4, "envs": 2, "algos": 2, "zoo": 2, "bench": 2}
    return len(said) >= needs.get(said[1], 3) and (said[1] not in ("plot", "export", "render") or said[2][0] != "-")


SHOWN = [shown for shown in commands("jaxrl") if runs_here(shown.values[0])]


def short(args):
    """The words with the flags of `BUDGET` in place of those that stand there."""
    flags = dict(BUDGET.get(args[0], {}))
    rule = "strategies" if "strategies" in args else "gradients"
    flags |= MORE.get(rule if args[0] == "meta-train" else args[1] if len(args) > 1 else "", {})
    if args[0] == "meta-train" and rule == "gradients":
        flags.pop("--config.at-once")
    if args[0] == "meta-train" and args[1] == "a2c":
        flags.pop("--config.features")
    kept, skipping = [], False
    for word in args:
        if word.startswith("--"):
            skipping = word in flags
        if not skipping:
            kept.append(word)
    return [*kept, *(word for flag, value in flags.items() for word in (flag, value) if word is not None)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the runs, the modules and the rule that pages speak of."""
    folder, before = tmp_path_factory.mktemp("typed"), os.getcwd()
    os.chdir(folder)
    words = "train ppo CartPole-v1 --seeds 4 --total-steps 1024 --eval-every 512 --eval-episodes 1 --eval-max-steps 5"
    assert command.main([*words.split(), "--keep-best", "--no-progress", "--out", "first"]) == 0
    words = "train map_elites KheperaxMaze-v0 --no-tuned --config.num-steps 5 --config.cells 5 --total-steps 1"
    assert command.main([*words.split(), "--eval-episodes", "1", "--no-progress", "--out", "maze"]) == 0
    for made in DATASETS:
        assert command.main(f"dataset make {made} --steps 400".split()) == 0
    words = "train flow_bc Pendulum-v1 --dataset pendulum.npz --config.hidden 8 --out flow"
    assert command.main(short(words.split())) == 0
    assert command.main(short("dataset model pendulum.npz --out model.npz".split())) == 0
    words = "dataset preferences pendulum.npz --pairs 20 --length 8 --out preferences.npz"
    assert command.main(words.split()) == 0
    assert command.main(short("dataset relabel preferences.npz --out relabelled.npz".split())) == 0
    (folder / "my").mkdir()
    (folder / "my/goals.py").write_text(GOALS)
    (folder / "my.py").write_text(OWN)
    from jaxrl.algos.meta import disco_rule

    disco_rule.save("disco_103.npz", disco_rule.fresh_rule(jax.random.key(0), disco_rule.RuleConfig(8, 8, 8)))
    yield folder
    os.chdir(before)


@pytest.fixture
def here(place, monkeypatch):
    shutil.rmtree(place / "runs", ignore_errors=True)
    for name in RUNS:
        shutil.copytree(place / "first", place / "runs" / name)
    for name in ("maze", "flow"):
        shutil.copytree(place / name, place / "runs" / name)
    monkeypatch.setattr(command, "cache_compilations", lambda: None)
    monkeypatch.chdir(place)
    return place


def test_commands_are_found():
    """Of every kind that runs here, and all trainings of the algorithms' pages and of the curricula's."""
    said = [shown.values[0] for shown in SHOWN]
    assert {words[1] for words in said} == {*command.COMMANDS} - ELSEWHERE
    trained = {words[2] for words in said if words[1] == "train"}
    assert {"ppo", "dqn", "sac", "evolution", "alphazero", "ucb", "psrl", "dpt", "gorp", "whittle", "stac"} <= trained
    assert sum("--curriculum" in words for words in said) >= 7
    args = short("train ppo X --total-steps 5 --env.a b c --seeds 8 --x y".split())
    assert args == "train ppo X --env.a b c --x y --total-steps 1 --seeds 2 --eval-every 0 --no-progress".split()


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("said", SHOWN)
def test_a_command_does_what_a_page_says(said, here, capsys):
    args = short([HERE.get(word, word) for word in said[1:]])
    if args[0] == "train" and "--out" in args:  # of a run that other commands speak of: it is there
        shutil.rmtree(here / args[args.index("--out") + 1], ignore_errors=True)
    if args[0] == "dataset" and args[1] in ("make", "model", "preferences", "relabel"):
        args.append("--overwrite")
    status = command.main(args)
    told = capsys.readouterr()
    assert status == 0, f"jaxrl {' '.join(args)}\n{told.err[-2000:]}"
    assert "Traceback" not in told.err
