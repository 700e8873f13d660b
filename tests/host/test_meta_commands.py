"""`jaxrl meta-train` and `jaxrl meta-test`: a rule is learned, goes on exactly, is judged; what is wrong is told."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl.algos.meta import training
from jaxrl.host.recipe import build, read_recipe
from jaxrl.meta import AgentHyper
from jaxrl.meta.stored import RuleFileError, names
from tests.host.test_cli import bad, good

TASKS = "--tasks GridWorld-debug-v0 --env.observation index"
SMALL = "--config.num-agents 2 --config.num-updates 2 --config.features 4 --config.num-envs 2 --config.num-steps 3"
TINY = f"{TASKS} {SMALL} --config.lifetimes 2 3 --no-progress"


@pytest.mark.slow
@pytest.mark.light
def test_a_rule_is_learned_goes_on_and_is_judged(tmp_path):
    long, short = tmp_path / "long", tmp_path / "short"
    assert "rule.npz" in good(f"meta-train ta_lpg {TINY} --total-steps 4 --out {long}")
    good(f"meta-train ta_lpg {TINY} --total-steps 2 --out {short}")
    good(f"resume {short} --total-steps 4 --no-progress")
    found, again = training.load(long), training.load(short / "rule.npz")
    same = jax.tree.map(np.array_equal, found.weights, again.weights)
    assert all(jax.tree.leaves(same)) and found.rule.name == "ta_lpg"
    fresh = found.rule._replace(init=training.RULES["ta_lpg"][1](found.config).init).init(jax.random.key(0))
    assert not all(jax.tree.leaves(jax.tree.map(np.array_equal, found.weights, fresh)))
    # What it says of itself is enough to learn it again, and holds no folder of this machine.
    assert str(tmp_path) not in json.dumps(found.provenance)
    assert training.config_of(found.provenance["recipe"]) == build(read_recipe(long))[0].config
    assert found.provenance["recipe"]["run"] == {"seed": 0, "seeds": 1, "total_steps": 4}

    words = "GridWorld-debug-v0 --env.observation index --levels 3 --updates 2"
    said = good(f"meta-test {long} {words} --json {tmp_path / 'judged.json'}").splitlines()
    assert [line.split()[0] for line in said] == [str(long), "a2c", "difference"]
    judged = json.loads((tmp_path / "judged.json").read_text())
    apart = np.subtract(judged[str(long)]["returns"], judged["a2c"]["returns"])
    assert apart.shape == (3,) and np.isclose(apart.mean(), judged["difference"]["mean"])


@pytest.mark.slow
@pytest.mark.light
def test_several_rules_at_once_on_levels_that_groove_chooses(tmp_path):
    more = "--seeds 2 --config.curriculum groove --config.buffer-size 4 --total-steps 3"
    good(f"meta-train lpg {TINY} {more} --out {tmp_path / 'two'}")
    rules = [training.load(tmp_path / "two" / f"rule-{i}.npz").weights for i in (0, 1)]
    assert not all(jax.tree.leaves(jax.tree.map(np.array_equal, *rules)))
    rows = [json.loads(line) for line in (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()]
    assert "regret" in rows[-1]


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ("meta-train", 2, "needs a rule and tasks"),
        ("meta-train lpg", 2, "needs a rule and tasks"),
        ("meta-train --tasks CartPole-v1", 2, "needs a rule and tasks"),
        ("meta-train dqn --tasks CartPole-v1", 1, "choose one of lpg, ta_lpg, lpo, ta_lpo, a2c, ppo"),
        (f"meta-train lpg {TASKS} --total-steps 0", 1, "--total-steps 0: it must be at least 1"),
        ("meta-train lpg --tasks CartPole-v1 --total-steps 1 --no-progress", 1, "have no lifetime of their own"),
        (f"meta-train lpg --tasks Pendulum-v1 {SMALL} --config.lifetimes 2 3 --no-progress", 1, "lpg"),
        (f"meta-train lpg {TASKS} --config.rule lpo", 2, "the rule is said twice"),
        ("meta-test", 2, "needs a rule"),
        ("meta-test grove CartPole-v1", 1, "no rule of this name comes with jaxrl"),
    ],
)
def test_what_is_wrong_is_said(words, status, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says in bad(words, status)


@pytest.mark.parametrize("lifetimes", [(0, 3), (3, 2), (5,)])
def test_lives_of_less_than_an_update_are_refused(lifetimes):
    with pytest.raises(ValueError, match="1 or more"):
        training.Config(lifetimes=lifetimes)


def test_an_agent_without_an_update_is_refused():
    algo = training.load("lpg-cpu-1").agent(jaxrl.make("CartPole-v1")[0])
    with pytest.raises(ValueError, match="a life has at least one update"):
        jax.eval_shape(lambda key: algo.init(key, AgentHyper(lifetime=0)), jax.random.key(0))


def test_settings_that_there_are_not():
    with pytest.raises(ValueError, match="choose one of lpg, ta_lpg, lpo, ta_lpo"):
        training.Config(rule="lgp")
    with pytest.raises(ValueError, match="choose one of dr, groove"):
        training.Config(curriculum="plr")
    with pytest.raises(ValueError, match="does not divide"):
        training.Config(num_agents=4, at_once=3)


@pytest.mark.parametrize("rule", training.RULES)
def test_what_is_left_is_loaded_whatever_its_kind(rule, tmp_path):
    config = training.Config(rule=rule, features=4, lifetimes=(2, 2), num_agents=2, num_envs=2, num_steps=2)
    algo = training.make(jaxrl.make("CartPole-v1")[0], dataclasses.replace(config, hidden=(4,)))
    state = jax.eval_shape(algo.init, jax.random.key(0))
    state = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), state.replace(key=(), agents=(), batch=()))
    training.leave(config, state, tmp_path, {"recipe": {"config": dataclasses.asdict(config)}})
    found = training.load(tmp_path)
    assert found.rule.name.removesuffix("_rule") == rule
    assert jax.tree.structure(found.weights) == jax.tree.structure(state.weights)
    assert training.config_of(found.provenance["recipe"]) == config


@pytest.mark.parametrize("name", names())
def test_rules_that_come_with_the_library(name):
    found = training.load(name)
    config = training.config_of(found.provenance["recipe"])
    assert found.config == training.RULES[config.rule][2](config)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found.weights))
    assert found.provenance["run_seconds"] > 0 and found.provenance["commit"]
    found.agent(jaxrl.make("CartPole-v1")[0])


def test_a_rule_of_no_known_kind(tmp_path):
    np.savez(tmp_path / "rule.npz", about=np.array(json.dumps({"kind": "disco", "config": {}})))
    with pytest.raises(RuleFileError, match="kind 'disco', not 'lpg' or 'lpo'"):
        training.load(tmp_path)
