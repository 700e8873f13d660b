"""The zoo: policies come back as they were stored, and still get what they got; bad names and files are named."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import zoo
from jaxrl.algos import ppo
from jaxrl.evaluation import evaluate
from jaxrl.host.cli import main
from jaxrl.host.data.dataset_recipes import best_of_zoo
from jaxrl.meta.stored import RuleFileError

RECIPE = {
    "algo": "ppo",
    "env_id": "CartPole-v1",
    "env_settings": {},
    "config": {"num_envs": 2, "num_steps": 8, "num_epochs": 1, "num_minibatches": 1, "hidden": [8]},
    "hyper": {},
    "params": {"max_steps": 20},
}
TOLD = {"recipe": RECIPE, "command": "jaxrl train ...", "seed": 0, "of_seeds": 1, "steps": 16, "max_steps": None}
TOLD |= {"return": 12.5, "standard_error": 0.5}


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A zoo with one policy in it, and that policy."""
    monkeypatch.setattr(zoo, "FOLDER", tmp_path / "zoo")
    monkeypatch.chdir(tmp_path)
    algo = ppo.make(jaxrl.make("CartPole-v1")[0], ppo.Config(2, 8, num_epochs=1, num_minibatches=1, hidden=(8,)))
    policy = algo.policy(algo.init(jax.random.key(3)))
    zoo.save(policy, zoo.FOLDER / "ppo" / "CartPole-v1.npz", TOLD)
    return policy


@pytest.mark.slow
@pytest.mark.light
def test_a_policy_comes_back_as_it_was_stored(stored):
    assert zoo.names() == ["ppo/CartPole-v1"]
    found = zoo.load("ppo/CartPole-v1")
    jax.tree.map(np.testing.assert_array_equal, found.policy, stored)
    assert found.env.id == "CartPole-v1" and int(found.params.max_steps) == 20 and found.about == TOLD
    action, _ = found.algo.act(found.policy, jax.random.key(0), jnp.zeros((3, 4)), (), greedy=True)
    assert action.shape == (3,)


@pytest.mark.slow
@pytest.mark.light
def test_the_commands_take_it_in_place_of_a_run(stored, capsys):
    assert main(["zoo"]) == 0
    said = capsys.readouterr().out
    assert (
        "ppo/CartPole-v1" in said and "jaxrl train a2c ENV --rule lpg-cpu-1: lpg, learned on GridWorld-small-v0" in said
    )
    assert main(["eval", "zoo:ppo/CartPole-v1", "--episodes", "4"]) == 0
    assert "over 4 full episodes" in capsys.readouterr().out
    assert main(["export", "zoo:ppo/CartPole-v1"]) == 0
    assert capsys.readouterr().out.strip() == "ppo-CartPole-v1.h"
    assert main(["plot", "--episode", "zoo:ppo/CartPole-v1", "--max-steps", "8"]) == 0
    assert capsys.readouterr().out.strip() == "ppo-CartPole-v1.png"
    for command in ("plot", "report", "resume"):  # of runs
        assert main([command, "zoo:ppo/CartPole-v1"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("jaxrl: zoo:ppo/CartPole-v1: ")
    assert main(["eval", "zoo:ppo/CartPole-v2"]) == 1
    assert "Did you mean 'ppo/CartPole-v1'?" in capsys.readouterr().err
    assert main(["zoo", "dqn/*"]) == 1 and "no policy or rule matches 'dqn/*'" in capsys.readouterr().err


def test_bad_files_are_named(stored):
    path = zoo.FOLDER / "ppo" / "CartPole-v1.npz"
    wide = {**TOLD, "recipe": {**RECIPE, "config": {**RECIPE["config"], "hidden": [16]}}}
    zoo.save(stored, path, wide)
    with pytest.raises(zoo.ZooError, match=r"CartPole-v1: .* is \(8,\), and ppo has \(16,\) there|is \(4, 8\)"):
        zoo.load("ppo/CartPole-v1")
    np.savez(path, x=np.zeros(3))
    with pytest.raises(zoo.ZooError, match="does not say what it is of"):
        zoo.load("ppo/CartPole-v1")
    path.write_bytes(b"PK nonsense")
    with pytest.raises(RuleFileError, match="no stored policy"):
        zoo.load("ppo/CartPole-v1")
    with pytest.raises(RuleFileError, match="no stored policy"):
        np.savez(path, x=np.array([{}], dtype=object))
        zoo.load("ppo/CartPole-v1")


def test_what_ships_says_what_it_is():
    for name in zoo.names():
        told = zoo.about(name)
        assert name == f"{told['recipe']['algo']}/{told['recipe']['env_id']}"
        assert told["command"].startswith("jaxrl train ") and told["versions"]["jax"] and np.isfinite(told["return"])
        assert json.loads(json.dumps(told)) == told


OTHERWISE = {
    **dict.fromkeys(("ppo/Catch-bsuite", "ppo/CliffWalking-v1", "ppo/OpenGrid-v0"), "episodes are cut"),
    **dict.fromkeys(("ppo/Cont-CC-PMSM-v0", "ppo/Cont-CC-SeriesDc-v0"), "episodes are cut; actions are in dq"),
    "ppo/Quadcopter-GateRacing-v0": "its reward is the way along the course",
    "map_elites/HardMaze-v0": "episodes are cut, and the robot is faster",
    "pqn/Breakout-MinAtar": "episodes are cut; actions are not sticky",
    **dict.fromkeys(("ppo/Knapsack-v0", "ppo/CircuitDesign-H2-2-v0", "ppo_rnn/TMazePassive-v0"), "episodes are cut"),
    "ppo/MemoryAllocation-A-v0": "episodes are cut",
}
"""Policies whose return is of another task than their id's, which so are nobody's "best known"."""


def test_every_policy_is_of_the_task_of_its_id_or_it_is_said_why_not():
    """A solver's settings are no other task: a policy that names those of before is measured again."""
    found = {name.partition("/")[2]: best_of_zoo(*jaxrl.make(name.partition("/")[2])) for name in zoo.names()}
    assert {id for id, best in found.items() if best is None} == {name.partition("/")[2] for name in OTHERWISE}


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", zoo.names())
def test_a_policy_still_gets_what_it_got(name):
    """Within four standard errors of both means, as other episodes are played."""
    found = zoo.load(name)
    episodes = 64
    stats = jax.jit(
        lambda policy, key: evaluate(
            found.algo, policy, key, found.env, found.params, num_episodes=episodes, max_steps=found.about["max_steps"]
        )
    )(found.policy, jax.random.key(7))
    error = found.about["standard_error"] * (1 + (found.about["episodes"] / episodes) ** 0.5)
    assert abs(float(stats.returns.mean()) - found.about["return"]) <= 4 * error + 1e-3 * abs(found.about["return"])
