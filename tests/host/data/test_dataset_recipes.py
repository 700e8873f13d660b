"""Datasets by recipe: what is recorded, of whom and how much, and the command that does it."""

import contextlib
import dataclasses
import functools
import io
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jaxrl
from jaxrl import actors, scores
from jaxrl.actors import Actor
from jaxrl.algos import ppo
from jaxrl.data.datasets import Dataset, Episodes
from jaxrl.exact.mdp import Table
from jaxrl.host import cli
from jaxrl.host.data import dataset_recipes, recording
from jaxrl.host.data.dataset_files import read
from jaxrl.host.data.dataset_parts import digest, summary
from jaxrl.host.data.recording import recorded
from jaxrl.testing import Masked

KEY = jax.random.key(0)


def cart_pole(max_steps):
    env, params = jaxrl.make("CartPole-v1")
    return env, params.replace(max_steps=jnp.int32(max_steps))


def ring(num_actions, max_steps):
    env = Table(2, num_actions)
    return env, env.default_params.replace(max_steps=jnp.int32(max_steps))


def balance(key, env_state, obs, env_params, carry):
    return (obs[:, 2] + obs[:, 3] > 0).astype(jnp.int32), carry


# ---- what is recorded


def test_recorded_is_a_loop_of_steps():
    env, params = cart_pole(12)
    run = jax.jit(lambda key: recorded(env, params, Actor(balance), key, 1, 30))
    found = jax.tree.map(np.asarray, run(KEY))
    step = jax.jit(env.step)
    _, state = env.reset(KEY, params)
    anew = True
    for t in range(30):
        if anew:  # the observation is all of a new state
            parts = dict(zip(("x", "x_dot", "theta", "theta_dot"), found.obs[t], strict=True))
            state = state.replace(time=jnp.int32(0), **parts)
        assert found.action[t] == (found.obs[t, 2] + found.obs[t, 3] > 0)
        obs, state, reward, terminated, truncated, _ = step(KEY, state, found.action[t], params)
        np.testing.assert_allclose(found.next_obs[t], obs, rtol=1e-5, atol=1e-6)
        anew = bool(terminated | truncated)
        assert found.reward[t] == reward and found.terminated[t] == terminated
        assert found.last[t] == (anew or t == 29)
        if not anew and t < 29:
            np.testing.assert_array_equal(found.obs[t + 1], found.next_obs[t])
    assert Episodes(found).length.tolist() == [12, 12, 6] and not found.terminated.any()


def test_a_memory_begins_anew_and_states_are_seen():
    """Actions are the number of steps that the actor remembers; it sees the same clock in the state."""
    env, params = ring(9, 4)

    def act(key, env_state, obs, env_params, carry):
        return jnp.where(carry == env_state.time, carry, 8), carry + 1

    found = jax.jit(lambda key: recorded(env, params, Actor(act, jnp.int32(0)), key, 3, 6))(KEY)
    assert np.asarray(found.action).tolist() == [0, 1, 2, 3, 0, 1] * 3
    assert np.asarray(found.last).tolist() == [False, False, False, True, False, True] * 3


def test_returns_are_those_of_first_episodes():
    env, params = ring(2, 4)
    stay = Actor(lambda key, env_state, obs, env_params, carry: (jnp.zeros(obs.shape, jnp.int32), carry))
    found = jax.jit(lambda key: recording.returns_of(env, params, stay, key, 3, 6))(KEY)
    assert found.tolist() == [4, 4, 4]


def test_uniform_actions_keep_to_a_mask():
    env = Masked()
    who = recording.at_random(env, env.default_params)
    found = jax.jit(lambda key: recorded(env, env.default_params, who, key, 16, 8))(KEY)
    assert set(np.unique(found.reward)) == {0, 1} and set(np.unique(found.action)) == {0, 1, 2, 3}


def of_lengths(*lengths):
    """Episodes whose observations number the steps."""
    n = sum(lengths)
    last: Any = np.isin(np.arange(n), np.cumsum(lengths) - 1)
    x: Any = np.arange(n)
    never: Any = np.zeros(n, bool)
    return Dataset(x, x, x + 0.5, never, last, x + 1)


def test_streams_end_with_an_episode():
    """Two streams of nine steps, of which five are enough."""
    found = recording.unbroken(of_lengths(2, 4, 3, 5, 3, 1), 2, 5)
    assert found.obs.tolist() == [0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13] and found.last.sum() == 3
    assert recording.first_steps(found, 4).obs.tolist() == [0, 1, 2, 3]
    assert recording.first_steps(found, 4).last.tolist() == [False, True, False, True]
    for wanted, size in ((1, 2), (4, 2), (5, 6), (8, 6), (9, 11), (99, 11)):
        assert recording.nearest_episode(found, wanted).size == size


# ---- who acts


def test_a_recipe_is_read_in_a_word():
    assert dataset_recipes.parsed("mixed:0.05") == ("mixed", 0.05)
    assert dataset_recipes.parsed("medium-replay") == ("medium-replay", 1.0)
    for word in ("mixed", "experts", "random:0.5", ""):
        with pytest.raises(ValueError, match="random, medium, medium-replay, expert, mixed:P, scripted"):
            dataset_recipes.parsed(word)
    for share in ("1.5", "0", "1", "nan", "x"):
        with pytest.raises(ValueError, match=f"mixed:{share}.*between 0 and 1"):
            dataset_recipes.parsed(f"mixed:{share}")


@pytest.mark.parametrize(
    ("id", "algo"), [("CartPole-v1", "ppo"), ("Reacher-v0", "sac"), ("MountainCar-v0", "c51"), ("PointMass-v0", "ppo")]
)
def test_auto_is_what_is_tuned(id, algo):
    env, _ = jaxrl.make(id)
    name, algorithm, hyper, total, *_ = dataset_recipes.learner(env)
    known = jaxrl.registry.settings(name, id)
    assert name == algo == algorithm.name and total == (known.total_steps if known else dataset_recipes.STEPS)
    assert all(getattr(hyper, field) == value for field, value in (known.hyper if known else {}).items())


def test_a_recipe_brings_its_wrappers():
    env, params = jaxrl.make("RepeatFirstEasy-v0")
    found = dataset_recipes.learner(env, "ppo_rnn")
    assert found.wrap == ("PreviousActionReward",)
    assert set(found.algo.venv.env.observation_space(params).spaces) == {"obs", "previous_action", "previous_reward"}


def test_a_recipe_brings_the_static_settings_of_its_task():
    env, params = jaxrl.make("MiniGrid-MemoryS7-v0")
    found = dataset_recipes.learner(env, "ppo_rnn")
    assert found.env_settings == {"encoding": "one_hot"}
    assert found.algo.venv.env == dataclasses.replace(env, encoding="one_hot")
    chosen = dataclasses.replace(env, see_through_walls=True)
    assert dataset_recipes.learner(chosen, "ppo_rnn").algo.venv.env == chosen


def test_training_is_that_of_train():
    env, params = cart_pole(8)
    config = ppo.Config(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,))
    algo = ppo.make(env, config)
    assert recording.updates_at(algo, 80, 3).tolist() == [0, 2, 5]
    assert recording.updates_at(algo, 17, 16).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="points=1: there must be at least 2"):
        recording.updates_at(algo, 80, 1)

    @jax.jit
    def both(key):
        init_key = jax.random.split(key)[0]
        state, _ = jaxrl.train(algo, init_key, 80, ppo.Hyper(), params)
        first = algo.policy(algo.init(init_key, ppo.Hyper(), params))
        found = recording.trained(algo, key, 80, ppo.Hyper(), params, 3, 4)
        return found, first, algo.policy(state)

    (policies, returns), first, end = both(KEY)
    assert returns.shape == (3,) and np.all((np.asarray(returns) >= 1) & (np.asarray(returns) <= 8))
    for all, a, b in zip(*map(jax.tree.leaves, (policies, first, end)), strict=True):
        np.testing.assert_array_equal(all[0], a)
        np.testing.assert_allclose(all[2], b, rtol=1e-5, atol=1e-6)
    assert any(np.any(np.asarray(x[1] != x[2])) for x in jax.tree.leaves(policies))


def pretend(monkeypatch, act, points, best, medium):
    """A training whose policies are numbers, which `act(policy, obs, greedy)` reads."""

    def learnt(task, *_):
        made = ppo.make(task.env, ppo.Config(num_envs=1, num_steps=8, num_minibatches=1, hidden=(8,)))
        algo = made._replace(
            act=lambda policy, key, obs, carry=(), greedy=False: (act(policy, obs, greedy), carry), deployed="greedy"
        )
        policies = jnp.arange(points)
        return dataset_recipes._Learnt("pretender", algo, policies, best, medium, 99.0, {"best": best})

    monkeypatch.setattr(dataset_recipes, "_learnt", learnt)


def number(policy, obs, greedy):
    return jnp.full(obs.shape, policy + (0 if greedy else 10), jnp.int32)


def test_medium_replay_has_every_policy_in_order(monkeypatch):
    """Of points 0 to 3, by samples: 10 to 13."""
    pretend(monkeypatch, number, points=6, best=5, medium=3)
    dataset, about = dataset_recipes.make(*ring(20, 4), "medium-replay", 42)
    assert np.asarray(dataset.action).tolist() == [10] * 10 + [11] * 11 + [12] * 10 + [13] * 11
    assert about["parts"] == {"point_0": 10, "point_1": 11, "point_2": 10, "point_3": 11}
    assert np.flatnonzero(dataset.last).tolist() == [3, 7, 9, 13, 17, 20, 24, 28, 30, 34, 38, 41]
    with pytest.raises(ValueError, match="num_steps=3: medium-replay has 4 policies"):
        dataset_recipes.make(*ring(20, 4), "medium-replay", 3)


def test_expert_is_deployed_and_medium_sampled(monkeypatch):
    pretend(monkeypatch, number, points=6, best=5, medium=3)
    expert, about = dataset_recipes.make(*ring(20, 4), "expert", 9)
    assert np.asarray(expert.action).tolist() == [5] * 9 and about["training"] == {"best": 5}
    assert np.asarray(dataset_recipes.make(*ring(20, 4), "medium", 9)[0].action).tolist() == [13] * 9


def test_mixed_has_its_share_to_within_an_episode(monkeypatch):
    def act(policy, obs, greedy):
        return balance(None, None, obs, None, ())[0]

    pretend(monkeypatch, act, points=2, best=1, medium=1)
    dataset, about = dataset_recipes.make(*cart_pole(60), "mixed:0.3", 1000)
    episodes, parts = Episodes(dataset), about["parts"]
    assert set(parts) == {"expert", "random"} and sum(parts.values()) == dataset.size
    assert abs(parts["expert"] - 300) <= 30 and abs(dataset.size - 1000) <= 30
    whole = np.asarray(dataset.terminated)[np.flatnonzero(dataset.last)] | (episodes.length == 60)
    assert whole.all(), "no episode is cut"
    of_expert = episodes.first < parts["expert"]
    assert parts["expert"] in episodes.first and np.all(episodes.length[of_expert] == 60)
    assert episodes.length[~of_expert].mean() < 40


# ---- what it is compared with


def test_a_finite_task_has_exact_scores():
    """To stay in state 0 pays 1 a step; a coin lands there every other time."""
    dataset, about = dataset_recipes.make(*ring(2, 5), "random", 50)
    found = {name: about["reference"][name] for name in ("random", "best", "exact", "by")}
    assert found == {"random": 2.5, "best": 5.0, "exact": True, "by": "solver"}
    assert summary(dataset, about)["tq"] == pytest.approx((Episodes(dataset).total.mean() - 2.5) / 2.5)


def test_zoo_scores_are_of_the_very_task():
    env, params = jaxrl.make("Cont-CC-SeriesDc-v0")
    assert dataset_recipes.best_of_zoo(env, params) is None, "it was measured over 1000 steps"
    name, score = dataset_recipes.best_of_zoo(env, params.replace(max_steps=jnp.int32(1000))) or ("", 0)
    assert name == "zoo:ppo/Cont-CC-SeriesDc-v0" and score == jaxrl.zoo.about(name[4:])["return"]
    assert dataset_recipes.best_of_zoo(*cart_pole(20)) is None


def test_a_seed_gives_the_same_dataset_again():
    one, other, third = (dataset_recipes.make(*cart_pole(20), "random", 100, seed)[0] for seed in (0, 0, 1))
    assert digest(one) == digest(other) != digest(third)
    assert one.size == 100 and 0.2 < np.asarray(one.action).mean() < 0.8


@pytest.mark.slow
def test_experts_do_better():
    env, params = jaxrl.make("CartPole-v1")
    make = functools.partial(dataset_recipes.make, env, params, num_steps=4000, train_steps=20_000)
    found = {name: make(recipe=name) for name in ("random", "medium-replay", "medium", "expert")}
    means = [Episodes(dataset).total.mean() for dataset, _ in found.values()]
    assert means == sorted(means) and means[-1] > 4 * means[0], means
    told = found["medium"][1]["training"]
    third = found["medium"][1]["reference"]["random"] * 2 / 3 + told["returns_at"][told["best"]] / 3
    assert told["returns_at"][told["medium"]] > third >= max(told["returns_at"][: told["medium"]])


@pytest.mark.slow
def test_a_learner_that_learnt_nothing_is_no_expert():
    env, params = jaxrl.make("MountainCar-v0")
    with pytest.raises(ValueError, match=r"ppo has learnt nothing in 512 steps of MountainCar-v0: .* -200"):
        dataset_recipes.make(env, params, "expert", 100, algo="ppo", train_steps=512)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("id", "settings", "least"),
    [
        ("Cont-CC-SeriesDc-v0", {}, 0.5),
        ("Finite-CC-PermExDc-v0", {}, 0.5),
        ("Quadcopter-GpdHover-v0", {}, 400),
        ("Quadcopter-Hover-v0", {}, 850),
        ("Quadcopter-Hover-v0", {"action": "thrust"}, 850),
        ("Quadcopter-Reach-v0", {}, 800),
        ("Quadcopter-Reach-v0", {"action": "velocity"}, 800),
        ("Quadcopter-TrajectoryTracking-v0", {}, 450),
        ("Quadcopter-VelocityTracking-v0", {}, 250),
    ],
)
def test_controllers_control(id, settings, least):
    """Motors pay at most 0 a step: there `least` is the share of the random one's loss that is left, at most."""
    env, params = jaxrl.make(id, **settings)
    if params.max_steps > 10_000:
        params = params.replace(max_steps=jnp.int32(300))
    dataset, about = dataset_recipes.make(env, params, "scripted", 6 * int(params.max_steps))
    mean, random = Episodes(dataset).total.mean(), about["reference"]["random"]
    assert mean > (least if random > 0 else least * random), (mean, random)


def test_who_has_no_controller_is_told_who_has():
    with pytest.raises(ValueError, match=r"CartPole-v1 has no scripted controller; .* Cont-\*, .*Quadcopter-Hover-v0"):
        actors.scripted(jaxrl.make("CartPole-v1")[0])
    with pytest.raises(ValueError, match=r"Quadcopter-GateRacing-v0: no controller flies it; those of Quadcopter-Gpd"):
        actors.scripted(jaxrl.make("Quadcopter-GateRacing-v0")[0])
    with pytest.raises(ValueError, match=r"no controller for action='pid'; it is one of rpm, "):
        actors.scripted(jaxrl.make("Quadcopter-Hover-v0", action="pid")[0])
    flock = jaxrl.make("Quadcopter-Flock-v0")
    with pytest.raises(ValueError, match="Quadcopter-Flock-v0 has 4 agents; datasets are of one"):
        dataset_recipes.make(*flock, "random", 10)
    env, params = jaxrl.make("Cont-CC-PMSM-v0")
    with pytest.raises(ValueError, match="Cont-CC-PMSM-v0 has no time limit"):
        dataset_recipes.make(env, params, "random", 10)


# ---- the command


def run(command):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(command.split())
    return status, out.getvalue(), err.getvalue()


def test_make_info_and_plot(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, _ = run("dataset make CartPole-v1 --steps 300 --seed 3")
    assert status == 0 and "steps 300\n" in out and out.endswith("dataset CartPole-v1-random.npz\n")
    dataset, about = read("CartPole-v1-random.npz")
    assert dataset.size == 300 and about["env"] == "CartPole-v1" and about["seed"] == 3
    assert about["reference"]["best"] == 500 and about["reference"]["by"].startswith("zoo:")
    status, out, _ = run("dataset info CartPole-v1-random.npz")
    said = dict(line.split(" ", 1) for line in out.splitlines())
    assert status == 0 and said["digest"] == digest(dataset) and said["recipe"] == "random"
    assert said["steps"] == "300" and said["reference.exact"] == "false" and said["params.length"] == "0.5"
    assert float(said["return_mean"]) == pytest.approx(Episodes(dataset).total.mean(), rel=1e-4)
    assert json.loads(said["parts.random"]) == 300
    assert float(said["normalized_mean"]) == pytest.approx(
        scores.normalized("CartPole-v1", float(said["return_mean"])), abs=1e-3
    )
    assert run("dataset plot CartPole-v1-random.npz")[:2] == (0, "CartPole-v1-random.png\n")
    with Image.open("CartPole-v1-random.png") as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    left, right = np.array_split((np.ptp(pixels, axis=-1) > 60).sum(0), 2)
    assert left.sum() > 500 and right.sum() > 500
    status, _, err = run("dataset make CartPole-v1 --steps 300")
    assert status == 1 and "CartPole-v1-random.npz exists: name another file, or say --overwrite" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("make CartPole-v1 --recipe good", "recipe 'good': it is one of random, medium, medium-replay, expert"),
        ("make CartPole-v1 --recipe mixed:1.5", "recipe 'mixed:1.5': the expert's share"),
        ("make CartPole-v1 --recipe scripted --out x.npz", "CartPole-v1 has no scripted controller"),
        ("make CartPole-v1 --steps 0", "--steps 0: it must be at least 1"),
        ("make CartPol-v1 --out x.npz", "Did you mean 'CartPole-v1'?"),
        ("make CartPole-v1 --recipe expert --algo pppo --out x.npz", "Did you mean 'ppo'?"),
        ("info nothing.npz", "nothing.npz"),
        ("plot nothing.npz", "nothing.npz"),
    ],
)
def test_bad_words_are_answered_in_a_line(words, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(f"dataset {words}")
    assert status == 1 and err.startswith("jaxrl: ") and err.count("\n") == 1 and says in err, err


def test_an_unknown_action_is_wrong_usage():
    status, _, err = run("dataset mend x")
    assert status == 2 and "'mend': it is one of make, info, plot" in err


def test_a_walker_of_the_task_records(tmp_path):
    """Of a point maze: whole episodes of the recipe's length, to cells four steps away, and no scores."""
    env, params = jaxrl.make("PointMazeMedium-v0")
    dataset, about = dataset_recipes.make(env, params, "stitch", 1000, seed=1)
    episodes = Episodes(dataset)
    assert episodes.length.tolist() == [200] * 5 and about["max_steps"] == 200 and "reference" not in about
    start, goal = (np.floor(np.asarray(dataset.obs[name])[episodes.first] / 4 + 0.5) for name in ("position", "goal"))
    assert np.abs(start - goal).sum(1).max() <= 4 and np.abs(start - goal).sum() > 0
    assert not np.asarray(dataset.terminated).any()
    with pytest.raises(ValueError, match=r"CartPole-v1: recipe 'navigate' is of OGBench's point mazes"):
        dataset_recipes.make(*cart_pole(10), "navigate", 100)
