"""`jaxrl meta-train` and `jaxrl meta-test`: a rule is learned, goes on exactly, is judged; what is wrong is told."""

import dataclasses
import json

import chex
import jax
import numpy as np
import pytest

import jaxrl
from jaxrl.algos.meta import lpg, policy_gradients, scheduled, taught
from jaxrl.algos.rule_learners import gradients, strategies
from jaxrl.host.cli.experiment import experiment
from jaxrl.host.cli.flags import UsageError
from jaxrl.host.cli.meta import MetaTrainFlags, agents_of
from jaxrl.host.report.command import command_of
from jaxrl.host.run.load import load
from jaxrl.host.run.recipe import build, read_recipe
from jaxrl.meta import AgentConfig, AgentHyper, agent, stored
from jaxrl.meta.rule import fresh_weights
from jaxrl.meta.stored import RuleFileError, names, settings_of
from tests.host.test_cli import bad, good, run_command

TASKS = "--tasks GridWorld-debug-v0 --env.observation index"
SMALL = "--config.num-agents 2 --config.num-updates 2 --config.features 4 --config.num-envs 2 --config.num-steps 3"
LIVED = "--by strategies --config.num-pairs 2 --config.at-once 1 --config.num-envs 2 --config.num-steps 3"
TINY = f"{TASKS} {SMALL} --config.lifetimes 2 3 --no-progress"


@pytest.mark.slow
@pytest.mark.light
def test_a_rule_is_learned_goes_on_and_is_judged(tmp_path):
    long, short = tmp_path / "long", tmp_path / "short"
    assert "rule.npz" in good(f"meta-train ta_lpg {TINY} --total-steps 4 --out {long}")
    good(f"meta-train ta_lpg {TINY} --total-steps 2 --out {short}")
    good(f"resume {short} --total-steps 4 --no-progress")
    found, again = gradients.load(long), gradients.load(short / "rule.npz")
    same = jax.tree.map(np.array_equal, found.weights, again.weights)
    assert all(jax.tree.leaves(same)) and found.rule.name == "ta_lpg"
    fresh = found.rule._replace(init=gradients.RULES["ta_lpg"][1](found.config).init).init(jax.random.key(0))
    assert not all(jax.tree.leaves(jax.tree.map(np.array_equal, found.weights, fresh)))
    # What it says of itself is enough to learn it again, and holds no folder of this machine.
    assert str(tmp_path) not in json.dumps(found.provenance)
    assert settings_of(gradients.Config, found.provenance["recipe"]["config"]) == build(read_recipe(long))[0].config
    assert found.provenance["recipe"]["run"] == {"seed": 0, "seeds": 1, "total_steps": 4}

    words = "GridWorld-debug-v0 --env.observation index --levels 3 --updates 2 --hyper.learning-rate 4 40 400"
    words += " --hyper.critic-learning-rate 4 --numbers.ent-coef 0.01 0.1 --agent.num-envs 4"
    said = good(f"meta-test {long} {words} --against a2c {short} --json {tmp_path / 'judged.json'}").splitlines()
    first = [str(long), "a2c", str(short), "minus a2c", f"minus {short}"]
    assert [line.split("  ")[0] for line in said] == first
    assert "critic-learning-rate 4" in said[0] and "ent-coef" not in said[0] and "ent-coef" in said[1]
    judged = json.loads((tmp_path / "judged.json").read_text())
    figures, agents = judged, judged["agents"]
    apart = np.subtract(agents[str(long)]["returns"], agents["a2c"]["returns"])
    assert apart.shape == (3,) and np.isclose(apart.mean(), figures["minus"]["a2c"]["mean"])
    # The same weights from another file: equal on every level, the settings that were chosen among them.
    assert agents[str(long)] == agents[str(short)] and figures["minus"][str(short)]["mean"] == 0
    for line, (name, rate) in zip(said, ((x, agents[x]["settings"]["learning_rate"]) for x in first[:3]), strict=False):
        at_an_end = f"learning-rate {rate:g} (at an end of what was tried)" in line
        assert at_an_end == (rate in (4, 400)), name


@pytest.mark.slow
@pytest.mark.light
def test_strategies_learn_a_rule_that_goes_on(tmp_path):
    long, short = tmp_path / "long", tmp_path / "short"
    chosen = "--config.curriculum groove --config.buffer-size 8 --hyper.curriculum.replay-prob 0.9 --hyper.sigma 0.2"
    words = f"meta-train ta_lpg {TASKS} {LIVED} --config.features 4 --config.lifetimes 1 2 {chosen} --no-progress"
    assert "rule.npz" in good(f"{words} --total-steps 3 --out {long}")
    good(f"{words} --total-steps 2 --out {short}")
    good(f"resume {short} --total-steps 3 --no-progress")
    found, again = gradients.load(long), gradients.load(short / "rule.npz")
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, found.weights, again.weights)))
    recipe = found.provenance["recipe"]
    assert (recipe["hyper"]["sigma"], recipe["hyper"]["curriculum.replay_prob"]) == (0.2, 0.9)
    assert settings_of(strategies.Config, recipe["config"]) == build(read_recipe(long))[0].config
    rows = [json.loads(line) for line in (long / "metrics.jsonl").read_text().splitlines()]
    assert {"final_return", "regret", "pairs_apart"} <= set(rows[-1])
    # `meta-test` has agents as the rule was learned with.
    tiny = "--env.observation index --levels 2 --updates 1"
    lines = good(f"meta-test {long} GridWorld-debug-v0 {tiny} --no-tune --against dpo").splitlines()
    # A rule for one pass over a rollout, and one for four.
    assert lines[0].endswith("passes 1") and lines[1].startswith("dpo") and lines[1].endswith("passes 4")
    tuned = f"{tiny} --tuning-levels 1 --agent.num-epochs 2 --hyper.learning-rate 4 40 --hyper.critic-learning-rate 4"
    lines = good(f"meta-test {long} GridWorld-debug-v0 {tuned} --against dpo").splitlines()
    assert [line.endswith("passes 2") for line in lines[:2]] == [True, True]


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("curriculum", ["groove", "groove_exact"])
def test_several_rules_at_once_on_levels_that_groove_chooses(curriculum, tmp_path):
    more = f"--seeds 2 --config.curriculum {curriculum} --config.buffer-size 4 --total-steps 3 --mesh seeds=1"
    good(f"meta-train lpg {TINY} {more} --out {tmp_path / 'two'}")
    rules = [gradients.load(tmp_path / "two" / f"rule-{i}.npz").weights for i in (0, 1)]
    assert not all(jax.tree.leaves(jax.tree.map(np.array_equal, *rules)))
    rows = [json.loads(line) for line in (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()]
    assert "regret" in rows[-1]


@pytest.mark.slow
@pytest.mark.light
def test_agents_are_taught_by_a_rule_from_the_command_line(tmp_path):
    config = scheduled.RuleConfig(clip_eps=0.2)
    weights = fresh_weights(scheduled.rule(config), jax.random.key(0))
    stored.save(tmp_path / "known.npz", "scheduled", config, weights, {})
    small = "--config.num-envs 2 --config.num-steps 8 --config.hidden 4 --eval-every 0 --eval-episodes 2 --no-progress"
    words = f"train ppo CartPole-v1 --rule {tmp_path / 'known.npz'} {small}"
    good(f"{words} --total-steps 80 --out {tmp_path / 'long'}")
    good(f"{words} --total-steps 48 --hyper.lifetime 5 --out {tmp_path / 'short'}")
    recipe = read_recipe(tmp_path / "long")
    assert (recipe["hyper"]["lifetime"], recipe["config"]["num_epochs"]) == (5, 4)  # 80 steps are 5 updates of 16
    good(f"resume {tmp_path / 'short'} --total-steps 80 --no-progress")
    states = [load(tmp_path / name, seed=None).state for name in ("long", "short")]
    assert states[0].updates == 5
    chex.assert_trees_all_equal(*(jax.tree.map(np.asarray, state.weights) for state in states))
    good(f"eval {tmp_path / 'long'} --episodes 2")
    begins = f"jaxrl train ppo CartPole-v1 --rule {tmp_path / 'known.npz'} --out"
    made = command_of(tmp_path / "long", json.loads((tmp_path / "long" / "config.json").read_text()))
    assert made.startswith(begins) and "--config.rule" not in made and "num-epochs" not in made
    # A life that is over stays over, which is said; one that begins from another run's networks is a new one.
    longer = run_command(f"resume {tmp_path / 'short'} --total-steps 96 --no-progress")
    assert longer[0] == 0 and "ends at step 80 of 96 (--hyper.lifetime)" in longer[2]
    good(f"{words} --total-steps 32 --from {tmp_path / 'long'} --out {tmp_path / 'next'}")
    assert load(tmp_path / "next", seed=None).state.updates == 2
    # The rule that has not moved is PPO's own, as an agent of the same settings has it.
    known = agent(
        policy_gradients.ppo_rule(),
        jaxrl.make("CartPole-v1")[0],
        AgentConfig(2, 8, 4, 4, (4,), optimizer="adam"),
    )
    rates = {"learning_rate": 3e-3, "critic_learning_rate": 3e-3}
    algo = build(recipe)[0]
    start = jax.eval_shape(algo.init, jax.random.key(0)).hyper
    assert isinstance(start, taught.Hyper) and isinstance(algo.hyper(), taught.Hyper)
    assert np.isclose(jax.jit(lambda key: algo.init(key).hyper.learning_rate)(jax.random.key(0)), 3e-3)
    learned = [
        jax.jit(lambda key, algo=algo, hyper=hyper: jaxrl.train(algo, key, 32, hyper))(jax.random.key(0))[0].weights
        for algo, hyper in ((algo, None), (known, AgentHyper(**rates)))
    ]
    chex.assert_trees_all_close(*learned, rtol=1e-4, atol=1e-5)


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
        ("meta-train --by strategies dqn --tasks CartPole-v1", 1, "choose one of lpg, ta_lpg, lpo, ta_lpo, a2c, ppo"),
        ("meta-train --by strategies --tasks CartPole-v1", 2, "needs a rule and tasks"),
        (f"meta-train lpg {TASKS} --hyper.curriculum.replay-prob 0.9", 2, "--config.curriculum: groove"),
        (f"meta-train lpg {TASKS} --config.curriculum plr", 1, "choose one of dr, groove"),
        (
            "meta-train lpg --tasks GridWorld-small-v0 --env.observation maps --config.curriculum groove_exact",
            1,
            "knows no `optimal_value`",
        ),
        ("meta-train lpg --tasks CartPole-v1 --config.curriculum groove_exact", 1, "knows no `optimal_value`"),
        (f"meta-train lpg {TASKS} --by chance", 2, "--by chance: choose one of gradients, strategies"),
        (f"meta-train lpg {TASKS} --mesh envs=2", 2, "it is the rules that are spread"),
        (f"meta-train lpg {TASKS} --mesh seeds=4 --seeds 4 --no-progress", 1, "4 devices, and there are 1"),
        ("meta-test", 2, "needs a rule"),
        ("meta-test grove CartPole-v1", 1, "no rule of this name comes with jaxrl"),
        ("meta-test lpg-cpu-1 CartPole-v1 --against a2c a2c", 2, "each named once"),
        ("meta-test lpg-cpu-1 CartPole-v1 --against a2c lpg-cpu-1", 2, "each named once"),
        ("meta-test lpg-cpu-1 CartPole-v1 --tuning-levels 0", 1, "--tuning-levels 0: it must be at least 1"),
        (
            "meta-test lpg-cpu-1 CartPole-v1 --hyper.learning-rate 3 nan",
            2,
            "--hyper.learning-rate nan: it is a number above 0",
        ),
        ("meta-test lpg-cpu-1 CartPole-v1 --hyper.max-grad-norm", 2, "--hyper.max-grad-norm needs one or more values"),
        (
            "meta-test lpg-cpu-1 CartPole-v1 --numbers.gamma 1.1",
            2,
            "--numbers.gamma 1.1: it is a number between 0 and 1",
        ),
        ("train --rule lpg-cpu-1", 2, "needs an environment"),
        ("train ppo --rule lpg-cpu-1", 2, "train ppo --rule needs an environment"),
        ("train CartPol-v1 --rule lpg-cpu-1", 1, "Did you mean 'CartPole-v1'?"),
        ("train ppo CartPole-v1 --rule lpg-cpu-1", 2, "one pass over a rollout: jaxrl train a2c CartPole-v1"),
        ("train a2c CartPole-v1 --rule grove", 1, "no rule of this name comes with jaxrl"),
        ("train a2c Pendulum-v1 --rule lpg-cpu-1", 1, "acts in Discrete spaces, not in Pendulum-v1's Box"),
        ("train Pendulum-v1 --rule lpg-cpu-1", 1, "acts in Discrete spaces, not in Pendulum-v1's Box"),
        ("train CartPole-v1 a2c --rule lpg-cpu-1", 2, "jaxrl train a2c CartPole-v1"),
        ("train a2c CartPole-v1 --rule", 2, "`jaxrl zoo` lists"),
        ("train a2c CartPole-v1 --rule-function my.py:rule", 2, "of which --rule?"),
        ("train a2c Maze-v0 --rule lpg-cpu-1 --curriculum plr", 2, "--curriculum with --rule"),
        ("meta-test lpg-cpu-1 CartPole-v1 --against lpo", 1, "no rule of this name comes with jaxrl"),
        ("meta-test lpg-cpu-1 CartPole-v1 --json no/such.json", 2, "there is no such folder"),
        (
            "meta-test lpg-cpu-1 CartPole-v1 --against groove-cpu-1 --numbers.gamma 0.9",
            2,
            "none of them is in --against",
        ),
        ("meta-test lpg-cpu-1 CartPole-v1 --no-tune --tuning-levels 3", 2, "nothing is tuned"),
        ("meta-test lpg-cpu-1 CartPole-v1 --hyper.learning-rate", 2, "needs one or more values"),
    ],
)
def test_what_is_wrong_is_said(words, status, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says in bad(words, status)


@pytest.mark.parametrize("lifetimes", [(0, 3), (3, 2), (5,)])
def test_lives_of_less_than_an_update_are_refused(lifetimes):
    with pytest.raises(ValueError, match="1 or more"):
        gradients.Config(lifetimes=lifetimes)


def test_an_agent_without_an_update_is_refused():
    algo = gradients.load("lpg-cpu-1").agent(jaxrl.make("CartPole-v1")[0])
    with pytest.raises(ValueError, match="a life has at least one update"):
        jax.eval_shape(lambda key: algo.init(key, AgentHyper(lifetime=0)), jax.random.key(0))


@pytest.mark.parametrize(("rule", "passes"), [("lpg", (1, 1)), ("lpo", (4, 3)), ("scheduled_ppo", (4, 3))])
def test_agents_make_the_passes_that_a_rule_is_for(rule, passes):
    small = {"num_envs": 2, "num_steps": 3, "features": 4}  # six steps: 4 parts do not divide them
    agents = gradients.Config(rule=rule, **small).agent
    assert (agents.num_epochs, agents.num_minibatches) == passes
    said = gradients.Config(rule=rule, num_epochs=2, num_minibatches=1, **small).agent
    assert (said.num_epochs, said.num_minibatches) == (2, 1)
    with pytest.raises(ValueError, match="num_epochs=-1"):
        gradients.Config(num_epochs=-1)


def test_weights_of_a_rule_are_no_settings():
    rule = policy_gradients.ppo_rule()
    hyper = AgentHyper(rule=rule.init(jax.random.key(0)))  # gamma is the logit of 0.99
    algo = agent(rule, jaxrl.make("CartPole-v1")[0], AgentConfig(2, 4, hidden=(4,)))
    assert hyper.rule.gamma > 1  # of a setting it would be refused
    state = jax.eval_shape(lambda key: algo.init(key, hyper), jax.random.key(0))
    assert jax.tree.structure(state.hyper.rule) == jax.tree.structure(hyper.rule)


def test_settings_that_there_are_not():
    with pytest.raises(ValueError, match="choose one of lpg, ta_lpg, lpo, ta_lpo"):
        gradients.Config(rule="lgp")
    with pytest.raises(ValueError, match="choose one of dr, groove"):
        gradients.Config(curriculum="plr")
    with pytest.raises(ValueError, match="does not divide"):
        gradients.Config(num_agents=4, at_once=3)
    with pytest.raises(ValueError, match="at_once=3 does not divide num_pairs=4"):
        strategies.Config(num_pairs=4, at_once=3)
    with pytest.raises(ValueError, match="choose one of lpg, ta_lpg, lpo, ta_lpo"):
        strategies.Config(rule="lgp")


@pytest.mark.parametrize("rule", gradients.RULES)
def test_what_is_left_is_loaded_whatever_its_kind(rule, tmp_path):
    config = gradients.Config(rule=rule, features=4, lifetimes=(2, 2), num_agents=2, num_envs=2, num_steps=2)
    algo = gradients.make(jaxrl.make("CartPole-v1")[0], dataclasses.replace(config, hidden=(4,)))
    state = jax.eval_shape(algo.init, jax.random.key(0))
    state = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), state.replace(key=(), agents=(), batch=()))
    gradients.leave(config, state, tmp_path, {"recipe": {"config": dataclasses.asdict(config)}})
    found = gradients.load(tmp_path)
    assert found.rule.name.removesuffix("_rule") == rule
    assert jax.tree.structure(found.weights) == jax.tree.structure(state.weights)
    assert settings_of(gradients.Config, found.provenance["recipe"]["config"]) == config


@pytest.mark.parametrize("name", names())
def test_rules_that_come_with_the_library(name):
    found = gradients.load(name)
    config = settings_of(gradients.Config, found.provenance["recipe"]["config"])
    assert found.config == gradients.RULES[config.rule][2](config)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found.weights))
    assert found.provenance["run_seconds"] > 0 and found.provenance["commit"]
    found.agent(jaxrl.make("CartPole-v1")[0])


def test_a_rule_of_no_known_kind(tmp_path):
    np.savez(tmp_path / "rule.npz", about=np.array(json.dumps({"kind": "disco", "config": {}})))
    with pytest.raises(RuleFileError, match="kind 'disco', not 'lpg' or 'lpo'"):
        gradients.load(tmp_path)


@pytest.mark.parametrize("module", [gradients, strategies])
def test_settings_of_a_curriculum_are_there_where_it_has_some(module):
    def made(words):
        return experiment("train", f"{module.__name__} GridWorld-debug-v0 {words}".split(), MetaTrainFlags)[1]

    plain, regret = made(""), made("--config.curriculum groove")
    assert not [name for name in plain["hyper"] if name.startswith("curriculum")]
    assert build(plain)[1].curriculum is None and plain["config"]["curriculum"] == "dr"
    assert regret["hyper"]["curriculum.replay_prob"] == 0.5
    asked = made("--config.curriculum=groove --hyper.curriculum.replay-prob 0.9")
    assert np.isclose(build(asked)[1].curriculum.replay_prob, 0.9)
    with pytest.raises(UsageError, match="choose a curriculum that has settings"):
        made("--config.curriculum dr --hyper.curriculum.replay-prob 0.9")


def stored_with(recipe, folder):
    """A rule's file whose provenance says this."""
    found = gradients.load("lpg-cpu-1")
    lpg.save(folder / "rule.npz", found.config, found.weights, {"recipe": recipe})
    return gradients.load(folder).provenance


def test_what_a_file_names_is_not_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("open('imported', 'w').close()\n")
    config = {"num_envs": 3}
    for algo in ("mine.py", "mine", str(tmp_path / "mine.py"), "ppo", None, ["mine"]):
        provenance = stored_with({"algo": algo, "config": config}, tmp_path)
        assert agents_of("x", provenance) == AgentConfig()
        assert not (tmp_path / "imported").exists()
    for recipe in (None, "mine.py", {"config": config}):
        assert agents_of("x", stored_with(recipe, tmp_path)) == AgentConfig()
    assert agents_of("x", {}) == AgentConfig()


@pytest.mark.parametrize("module", [gradients, strategies])
def test_agents_are_as_a_rule_was_learned_with(module, tmp_path):
    recipe = {"algo": module.__name__, "config": {"num_envs": 3, "hidden": [4]}}
    assert agents_of("x", stored_with(recipe, tmp_path)) == module.Config(num_envs=3, hidden=(4,)).agent
    for wrong in ({"algo": module.__name__}, {**recipe, "config": {"depth": 2}}, {**recipe, "config": [3]}):
        with pytest.raises(RuleFileError, match="x: its recipe has no settings that this version knows"):
            agents_of("x", stored_with(wrong, tmp_path))


@pytest.mark.parametrize(
    ("words", "remat"),
    [
        ("", None),
        ("--config.remat", True),
        ("--config.no-remat", False),
        ("--config.no_remat", False),
        ("--config.remat False", False),
        ("--config.remat None", None),
    ],
)
def test_a_switch_that_may_be_left_to_the_program(words, remat):
    args = f"{gradients.__name__} GridWorld-debug-v0 {words}".split()
    assert experiment("train", args, MetaTrainFlags)[1]["config"]["remat"] is remat
