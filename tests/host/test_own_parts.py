"""Curricula, levels, scores and update rules of a user's own, named by file on the command line."""

import json
import os
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl import registry
from jaxrl.algos.rule_learners import gradients
from jaxrl.host.cli.meta import agents_of
from jaxrl.host.run.recipe import read_recipe
from tests.host.test_cli_runs import FEW, TINY, bad, good

PARTS = """
import dataclasses
from typing import NamedTuple
import jax
import jax.numpy as jnp
from jaxrl.algos.curricula import dr, plr
from jaxrl.environment import pytree


@dataclasses.dataclass(frozen=True)
class Config:
    halves: int = 1


@pytree
class Hyper:
    share: jax.Array = 0.5


def progress(level_fn, config, hyper=None, score=None):
    assert config.halves == 2
    return dr.make(level_fn, score)


def plain(level_fn):
    return dr.make(level_fn)


def short(key, params):
    return params.replace(length=params.length * jax.random.uniform(key))


def wrong(key, params):
    return {"length": 1.0}


def last(rollout, batch, outcomes, hyper):
    return outcomes.episode_return


def held_out(env, params):
    return jax.vmap(lambda length: params.replace(length=length))(jnp.array([0.3, 0.6]))


nothing = 3
"""
RULE = """
import dataclasses
import jax.numpy as jnp
from jaxrl.algos.meta import policy_gradients


@dataclasses.dataclass(frozen=True)
class RuleConfig:
    clip_eps: float = 0.3


def mine(config):
    return policy_gradients.rule(policy_gradients.RuleConfig(clip_eps=config.clip_eps))


def bare():
    return policy_gradients.rule(policy_gradients.RuleConfig())
"""
SMALL = f"{TINY} {FEW} --eval-every 0 --total-steps 16"


@pytest.fixture(scope="module", autouse=True)
def own(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("own"), Path.cwd()
    os.chdir(folder)
    Path("own_curricula.py").write_text(PARTS)
    Path("own_rules.py").write_text(RULE)
    yield folder
    os.chdir(before)


@pytest.mark.slow
@pytest.mark.light
def test_a_curriculum_with_settings_and_levels_of_ones_own(own, tmp_path):
    words = "--curriculum own_curricula.py:progress --curriculum.levels own_curricula.py:short"
    more = "--curriculum.config.halves 2 --curriculum.hyper.share 0.25"
    good(f"train ppo CartPole-v1 {SMALL} {words} {more} --out {tmp_path / 'run'}")
    recipe = read_recipe(tmp_path / "run")
    assert recipe["curriculum"]["name"] == f"{own}/own_curricula.py:progress"
    assert recipe["curriculum"]["config"] == {"halves": 2}
    before = Path.cwd()
    try:
        os.chdir(tmp_path)  # files are found from anywhere
        good("resume run --total-steps 32 --no-progress")
        assert jaxrl.load("run").algo.name == "ppo+dr"
    finally:
        os.chdir(before)


@pytest.mark.slow
@pytest.mark.light
def test_a_score_and_held_out_levels_of_ones_own(tmp_path):
    words = "--curriculum plr --curriculum.levels own_curricula:short --curriculum.score own_curricula:last"
    held_out = "--eval-every 16 --eval-levels own_curricula:held_out"
    good(f"train ppo CartPole-v1 {TINY} {FEW} --total-steps 16 {words} {held_out} --out {tmp_path / 'run'}")
    row = json.loads((tmp_path / "run" / "evaluations.jsonl").read_text())
    assert np.shape(row["levels"]) == (1, 2)
    assert jaxrl.load(tmp_path / "run").algo.around[2].__name__ == "last"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("own_curricula.py:nothing", "has no function 'nothing' that makes a curriculum"),
        ("own_curricula.py", "has no function 'make' that makes a curriculum"),
        ("no_such.py:f", "there is no such file"),
        ("plain --x", "Unknown curriculum 'plain'"),
        ("dr --curriculum.levels own_curricula.py:wrong", "it makes a dict; levels of CartPole-v1 are Params"),
        ("dr --curriculum.levels own_curricula.py:none", "is no function"),
        ("dr --curriculum.levels own_curricula.py:short --curriculum.ranges length=0.1:1", "say one of them"),
        (
            "alp_gmm --curriculum.levels own_curricula.py:short --curriculum.hyper.lp_power 1",
            "takes no levels of yours",
        ),
        ("plr --curriculum.score max_mcc", "--curriculum.score max_mcc: it is max_mc"),
    ],
)
def test_words_of_ones_own_that_are_wrong(words, says, tmp_path):
    if "alp_gmm" in words:
        words = "random_teacher --curriculum.levels own_curricula.py:short"
    if words.startswith("plain"):
        words = "plain"
    assert says in bad(f"train ppo CartPole-v1 {SMALL} --out {tmp_path / 'x'} --curriculum {words}")


def test_an_own_curriculum_without_settings_has_none():
    module, chooses = registry.get_curriculum("own_curricula:plain")
    assert chooses == "levels" and not hasattr(module, "Config") and not hasattr(module, "Hyper")


TASKS = "--tasks GridWorld-debug-v0 --env.observation index"
META = (
    f"{TASKS} --config.num-agents 2 --config.num-updates 2 --config.num-envs 2 --config.num-steps 3 "
    "--config.lifetimes 2 3 --no-progress --total-steps 1"
)


@pytest.mark.slow
@pytest.mark.light
def test_a_rule_of_ones_own_is_learned_judged_and_goes_on_as_the_first_of_another_run(own, tmp_path):
    word, first, second = "own_rules.py:mine", tmp_path / "first", tmp_path / "second"
    good(f"meta-train {word} {META} --out {first}")
    found = gradients.load(first, f"{own}/own_rules.py:mine")
    assert found.config.clip_eps == 0.3
    judge = "GridWorld-debug-v0 --env.observation index --levels 2 --updates 1 --no-tune"
    assert "minus ppo" in good(f"meta-test {first} {judge} --rule-function own_rules.py:mine")
    assert "--rule-function FILE.py:FUNCTION" in bad(f"meta-test {first} {judge}")  # a file says no code
    good(f"meta-train {word} {META} --init {first} --hyper.learning-rate 0 --out {second}")
    again = gradients.load(second, f"{own}/own_rules.py:mine")
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, found.weights, again.weights)))
    assert "it is a rule of" in bad(
        f"meta-train lpg {META} --config.features 4 --init lpg-cpu-1 --out {tmp_path / 'x'}"
    )
    good(f"meta-train own_rules.py:bare {META} --out {tmp_path / 'bare'}")


def test_a_rule_that_is_none():
    assert "is no rule that can be learned: choose one of lpg" in bad(f"meta-train nothing {META}")
    assert "is no function" in bad(f"meta-train own_rules.py:nothing {META}")


def test_a_rule_file_names_no_code_that_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("stranger.py").write_text("import pathlib\npathlib.Path('ran').touch()\ndef rule(): pass\n")
    recipe = {"algo": "jaxrl.algos.rule_learners.gradients", "config": {"rule": "stranger.py:rule", "num_envs": 3}}
    assert agents_of("x", {"recipe": recipe}).num_envs == 3 and not Path("ran").exists()
