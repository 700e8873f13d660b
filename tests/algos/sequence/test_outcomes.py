"""Cloning by outcome: hindsight goals and windows of a dataset, RvS and the decision transformer."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrl
from jaxrl import Transition, pytree
from jaxrl.algos import decision_transformer as dt
from jaxrl.algos import rvs
from jaxrl.data import datasets
from jaxrl.data.datasets import Dataset
from jaxrl.data.hindsight import Hindsight
from jaxrl.environment import NO_LIMIT, Environment
from jaxrl.evaluation import evaluate
from jaxrl.nn.nets import net
from jaxrl.nn.optim import optimizer_of
from jaxrl.off_policy.outcomes import action_loss
from jaxrl.spaces import Box, Dict, Discrete
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.wrappers import LearnedReward, PreviousActionReward

KEY = jax.random.key(0)
SGD = optimizer_of(optax.sgd)


def close(actual, desired):
    np.testing.assert_allclose(actual, desired, rtol=1e-6, atol=1e-7)


# ---- a line of places, with a goal


@pytree
class Params:
    max_steps: jax.Array = 8


@pytree
class State:
    time: jax.Array
    place: jax.Array
    goal: jax.Array


@dataclasses.dataclass(frozen=True)
class Line(Environment):
    """Go left or right to a goal that is not where one is; each step to the right is worth 1."""

    id: str = "Line"
    box: bool = False
    goals: bool = True

    @property
    def default_params(self):
        return Params(jnp.int32(8))

    def observation_space(self, params):
        one = Box(-8.0, 8.0, (1,))
        return Dict({"goal": one, "obs": one}) if self.goals else one

    def action_space(self, params):
        return Box(-2.0, 2.0, (1,)) if self.box else Discrete(2)

    def initial(self, key, params):
        goal = 2.0 * jax.random.randint(key, (), 0, 2) - 1
        return State(jnp.int32(0), jnp.zeros(()), 3 * goal)

    def transition(self, key, state, action, params):
        move = jnp.sign(action[0]) if self.box else 2.0 * action - 1
        return Transition(state.replace(place=state.place + move), move, jnp.bool_(False), jnp.bool_(False), {})

    def observe(self, key, state, params) -> Any:
        return {"goal": state.goal[None], "obs": state.place[None]} if self.goals else state.place[None]

    def validate(self, params):
        pass


def walks(episodes=64, steps=8, box=False, goals=True):
    """Each episode goes one way all the time."""
    way = np.random.default_rng(0).integers(0, 2, episodes)
    move = np.repeat(2.0 * way - 1, steps).astype(np.float32)
    time = np.tile(np.arange(steps), episodes)
    obs, after = ((move * t)[:, None].astype(np.float32) for t in (time, time + 1))
    if goals:
        obs, after = ({"goal": np.zeros_like(x), "obs": x} for x in (obs, after))
    last = time == steps - 1
    action = 2 * move[:, None] if box else (move > 0).astype(np.int32)
    return Dataset(obs, action, move, last & False, last, after)


def achieved(obs):
    return obs["obs"]


# ---- goals and windows


def small(clusters=None, gamma=1.0, share=1.0):
    """Episodes of 3 and 2 steps; what step i achieved is i."""
    at = np.arange(5.0)[:, None].astype(np.float32)
    last = np.array([False, False, True, False, True])
    obs, after = {"goal": 0 * at, "obs": at - 1}, {"goal": 0 * at, "obs": at}
    data = Dataset(obs, np.zeros(5, np.int32), np.array([1.0, 2, 4, 8, 16], np.float32), last & False, last, after)
    return data, Hindsight(achieved, gamma, clusters, share)


def drawn(memory, n=4000):
    return jax.jit(lambda key: memory.sample(key, (), n))(KEY)


def test_goals_are_what_the_rest_of_the_episode_achieved():
    """By gamma = 1/2 the first of three goals has probability 4/7; reaching the own step's is worth 1."""
    data, hindsight = small(gamma=0.5)
    batch = drawn(datasets.stored(data, Discrete(2), hindsight=hindsight))
    at, goal = np.asarray(batch.next_obs["obs"])[:, 0], np.asarray(batch.obs["goal"])[:, 0]
    assert np.all(goal >= at) and np.all((goal <= 2) == (at <= 2))
    shares = [np.mean(goal[at == 0] == g) for g in range(3)]
    np.testing.assert_allclose(shares, [4 / 7, 2 / 7, 1 / 7], atol=0.05)
    np.testing.assert_array_equal(batch.reward, goal == at)
    np.testing.assert_array_equal(batch.terminated, goal == at)
    np.testing.assert_array_equal(batch.next_obs["goal"], batch.obs["goal"])
    assert np.isnan(batch.return_to_go).all() and np.isnan(batch.return_bound).all()


def test_goals_go_on_along_another_episode_of_the_same_cluster():
    """Steps 2 and 3 share a cluster: by way of it the first episode's goals reach into the second."""
    data, hindsight = small(np.array([0, 1, 2, 2, 3]))
    batch = drawn(datasets.windows(data, Discrete(2), 1, hindsight=hindsight))
    at, goal = np.asarray(batch.obs["obs"])[:, 0, 0] + 1, np.asarray(batch.obs["goal"])[:, 0, 0]
    # From step 0, through 0 or 1 of the own episode to its end; through 2 by halves on 2, and on 3 or 4.
    shares = [np.mean(goal[at == 0] == g) for g in range(5)]
    through = [1 / 9, 1 / 9 + 1 / 6, 1 / 9 + 1 / 6 + 1 / 6, 1 / 12, 1 / 12]
    np.testing.assert_allclose(shares, through, atol=0.06)
    assert set(goal[at == 4]) == {4}
    none = drawn(datasets.windows(data, Discrete(2), 1, hindsight=hindsight._replace(share=0.0)))
    at, goal = np.asarray(none.obs["obs"])[:, 0, 0] + 1, np.asarray(none.obs["goal"])[:, 0, 0]
    assert np.all((goal <= 2) == (at <= 2)), "a share of none"


@pytest.mark.slow
@pytest.mark.light
def test_windows_are_steps_of_one_episode():
    data, hindsight = small()
    batch = drawn(datasets.windows(data, Discrete(2), 3, hindsight=hindsight), 200)
    rows = {tuple(np.where(v, x, -9)) for x, v in zip(np.asarray(batch.obs["obs"])[..., 0], batch.valid, strict=True)}
    assert rows == {(-9, -9, -1), (-9, -1, 0), (-1, 0, 1), (-9, -9, 2), (-9, 2, 3)}
    for time, valid, return_to_go in zip(batch.time, batch.valid, batch.return_to_go, strict=True):
        assert list(time[valid]) == list(range(int(valid.sum())))
        wanted = {4: [7, 6, 4], 16: [24, 16]}.get(int(return_to_go[-1]))
        assert wanted is None or list(return_to_go[valid]) == wanted
    assert all(len(set(x)) == 1 for x in np.asarray(batch.obs["goal"])[..., 0].tolist()), "one goal a window"


def test_what_does_not_fit_is_said():
    data, hindsight = small()
    with pytest.raises(ValueError, match="length=0"):
        datasets.windows(data, Discrete(2), 0)
    alone = data.replace(obs=data.obs["obs"], next_obs=data.next_obs["obs"])
    with pytest.raises(ValueError, match="no entry 'goal'"):
        datasets.stored(alone, Discrete(2), hindsight=hindsight)
    for wrong, match in ((dict(gamma=0.0), "gamma=0.0"), (dict(share=1.5), "share=1.5")):
        with pytest.raises(ValueError, match=match):
            datasets.stored(data, Discrete(2), hindsight=hindsight._replace(**wrong))
    with pytest.raises(ValueError, match="clusters are float64"):
        datasets.windows(data, Discrete(2), 1, hindsight=hindsight._replace(clusters=np.zeros(5)))
    with pytest.raises(ValueError, match="what is achieved has shape"):
        datasets.windows(data, Discrete(2), 1, hindsight=hindsight._replace(achieved=lambda obs: obs["obs"][:, 0]))


# ---- losses and masks by hand


def test_losses_by_hand():
    valid = jnp.array([True, True, False])
    box = action_loss(Box(-1.0, 1.0, (2,)), jnp.zeros((3, 2)), jnp.array([[1.0, 0.0], [0.0, 0.0], [9.0, 9.0]]), valid)
    close(box, 0.25)
    logits = jnp.log(jnp.array([[0.25, 0.75], [0.5, 0.5], [0.1, 0.9]]))
    close(action_loss(Discrete(2), logits, jnp.array([1, 0, 0]), valid), -(np.log(0.75) + np.log(0.5)) / 2)
    close(rvs.mean_reward_to_go(jnp.array([6.0, 6.0]), jnp.array([0, 9]), 10), [0.6, 6.0])


def test_tokens_see_themselves_and_what_was_before():
    seen = dt.sees(jnp.array([False, True, True]), 1)
    np.testing.assert_array_equal(seen, [[True, False, False], [False, True, False], [False, True, True]])


# ---- the learners

RVS = dict(num_updates=20, batch_size=32, hidden=(16,), max_steps=8)
DT = dict(num_updates=20, batch_size=32, context=3, width=16, layers=1, max_steps=8)


def learner(module, outcome, box):
    env = Line(box=box, goals=outcome == "goal")
    space = env.action_space(env.default_params)
    length = 1 if module is rvs else 3
    hindsight = Hindsight(achieved) if outcome == "goal" else None
    memory = datasets.windows(walks(box=box, goals=outcome == "goal"), space, length, hindsight=hindsight)
    settings = RVS if module is rvs else DT
    return env, module.make(env, module.Config(outcome=outcome, **settings), replay=memory)


@pytest.mark.parametrize(
    "module, outcome, box",
    [
        pytest.param(m, o, b, marks=() if (m, o) == (rvs, "return") and b else pytest.mark.slow)
        for m in (rvs, dt)
        for o in ("return", "goal")
        for b in (False, True)
    ],
)
def test_does_what_it_is_asked_for(module, outcome, box):
    """The way of the goal, or of the return, which several values of are asked for at once."""
    env, algo = learner(module, outcome, box)
    hyper = module.Hyper(learning_rate=1e-2, return_scale=8.0)
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 400, hyper))(KEY)
    assert metrics["loss"][-1] < 0.2 and int(state.step) == 400

    def returns(target):
        policy = algo.policy(state.replace(hyper=hyper.replace(target_return=target)))
        played = algo.venv.env
        return evaluate(algo, policy, KEY, played, played.default_params, num_episodes=16).returns

    if outcome == "return":
        np.testing.assert_array_equal(jax.jit(jax.vmap(returns))(jnp.array([8.0, -8.0])).mean(1), [8, -8])
        return
    obs = {"goal": jnp.array([[3.0], [-3.0]]), "obs": jnp.zeros((2, 1))}
    action, _ = algo.act(algo.policy(state), KEY, obs, algo.initial_carry((2,)), greedy=True)
    action = action[:, 0] > 0 if box else action
    np.testing.assert_array_equal(action, [1, 0])


@pytest.mark.slow
@pytest.mark.light
def test_what_is_asked_for_unless_said():
    """The best of the data, scaled by the largest; of no data, 1. Length: the task's limit."""
    env, algo = learner(rvs, "return", False)
    totals = datasets.Episodes(walks(box=False, goals=False)).total
    policy = algo.policy(algo.init(KEY))
    assert 8 * policy.target * policy.scale == totals.max() and policy.scale == np.abs(totals).max()
    without = rvs.make(env, rvs.Config(hidden=(8,)))
    assert algo.policy(without.init(KEY))[1:] == (1 / 8, 1)
    endless = env.default_params.replace(max_steps=jnp.int32(NO_LIMIT))

    class Endless(type(env)):
        @property
        def default_params(self):
            return endless

    made = jax.jit(lambda key: rvs.make(env, rvs.Config(hidden=(8,), adam_eps=1e-7)).init(key).step)(KEY)
    assert made == 0  # the limit is read while something else is traced
    unlimited = rvs.make(Endless(), rvs.Config(hidden=(8,)))
    with pytest.raises(ValueError, match="no time limit: give Config.max_steps"):
        unlimited.init(KEY)
    assert unlimited.policy(unlimited.init(KEY, None, Params(jnp.int32(16)))).target == 1 / 16
    with pytest.raises(ValueError, match="no time limit: give Config.max_steps"):
        dt.make(Endless())


@pytest.mark.slow
@pytest.mark.light
def test_a_full_episode_is_as_long_as_the_params_of_the_run_say():
    """RvS asks for, and learns from, the return over twice the steps; a leaf, so that several limits are a vmap."""
    env, data = Line(goals=False), walks(goals=False)
    config = rvs.Config(hidden=(8,), num_updates=1, batch_size=4)
    algo = rvs.make(env, config, replay=datasets.windows(data, Discrete(2), 1))
    hyper = rvs.Hyper(target_return=6.0, return_scale=2.0)
    limits = Params(jnp.array([8, 16], jnp.int32))
    state = jax.jit(jax.vmap(lambda params: algo.init(KEY, hyper, params)))(limits)
    close(jax.vmap(lambda s: algo.policy(s).target)(state), [3 / 8, 3 / 16])
    rule, network = algo.init.__self__.rule, Recorded()
    rule = dataclasses.replace(rule, network=network)
    batch = datasets.Windows(
        jnp.zeros((2, 1)), jnp.zeros(2, int), jnp.array([6.0, 4.0]), jnp.array([0, 2]), jnp.ones(2, bool)
    )
    for limit, wanted in ((8, [3 / 8, 2 / 6]), (16, [3 / 16, 2 / 14])):
        first = algo.init(KEY, hyper, Params(jnp.int32(limit)))
        assert first.extra["max_steps"] == limit
        weights = jnp.zeros(2)
        nets = {"actor": net(weights, SGD.init(weights, 1.0), SGD, None, "actor"), **first.extra}
        after, _ = rule.gradient_step(nets, KEY, batch, first.hyper)
        assert after["max_steps"] == limit
        close(network.seen[-1], wanted)
    fixed = rvs.make(env, dataclasses.replace(config, max_steps=4))
    assert fixed.policy(fixed.init(KEY, hyper, Params(jnp.int32(16)))).target == 3 / 4


class Recorded:
    """Logits that are its weights; it keeps the outcomes that it was given."""

    seen = []

    def apply(self, weights, obs, outcome):
        self.seen.append(outcome)
        return jnp.broadcast_to(weights, (*outcome.shape, 2))


@pytest.mark.parametrize("module", [rvs, dt])
def test_learns_where_a_wrapper_takes_the_limit_from_the_task_inside(module):
    """`LearnedReward`'s params have no limit of their own, and what is paid is the learned reward."""
    task = LearnedReward(Line(goals=False), lambda weights, obs, action: weights * (2.0 * action - 1))
    data = walks(4, goals=False)
    sizes = {"width": 8, "layers": 1, "context": 4} if module is dt else {"hidden": (8,)}
    replay = datasets.windows(data, Discrete(2), 4 if module is dt else 1)
    algo = module.make(task, module.Config(outcome="return", **sizes), replay=replay)
    on = task.on(Line(goals=False).default_params, 5.0)
    state, _ = algo.update(algo.init(KEY, None, on))
    found = evaluate(algo, algo.policy(state), KEY, algo.venv.env, on, num_episodes=4)
    assert found.lengths.tolist() == [8.0] * 4
    assert np.all(np.abs(found.returns) <= 40) and np.all(found.returns % 5 == 0)


def test_a_transformer_refuses_more_steps_than_it_tells_apart():
    env = Line(goals=False)
    small = dict(width=4, layers=1, context=2)
    algo, long = dt.make(env, dt.Config(**small)), Params(jnp.int32(9))
    with pytest.raises(ValueError, match="max_steps=9, above the 8 .* give Config.max_steps=9"):
        algo.init(KEY, None, long)
    jax.eval_shape(algo.init, KEY, None, Params(jnp.int32(7)))
    told = dt.make(env, dt.Config(**small, max_steps=9))
    jax.eval_shape(lambda key: told.init(key, None, long), KEY)


@pytest.mark.slow
@pytest.mark.light
def test_the_return_that_is_left_falls_by_what_was_got():
    """And the context holds the last steps, the oldest first, whatever is asked for."""
    env, algo = learner(dt, "return", False)
    state = algo.init(KEY, dt.Hyper(target_return=6.0, return_scale=2.0))
    carry, policy = algo.initial_carry(()), algo.policy(state)
    assert isinstance(algo.venv.env, PreviousActionReward)
    done = []
    for t in range(4):
        seen = {"obs": jnp.full(1, t + 1.0), "previous_action": jnp.zeros(2), "previous_reward": jnp.float32(t)}
        action, carry = algo.act(policy, KEY, seen, carry, greedy=True)
        done.append(int(action))
    close(carry.return_to_go, [3 - 0.5, 3 - 1.5, 3 - 3.0])
    close(carry.obs[:, 0], [2, 3, 4])
    np.testing.assert_array_equal(carry.action, done[1:])
    assert int(carry.time) == 4


@pytest.mark.slow
@pytest.mark.light
def test_windows_of_training_are_contexts_of_acting():
    """Along a recorded episode the actions are those that training predicts, at every length of the context."""
    env, algo = learner(dt, "goal", True)
    state = algo.init(KEY)
    rng = np.random.default_rng(1)
    obs = {name: jnp.asarray(rng.normal(size=(5, 1)), jnp.float32) for name in ("goal", "obs")}
    carry, acted = algo.initial_carry(()), []
    for t in range(5):
        action, carry = algo.act(algo.policy(state), KEY, jax.tree.map(lambda x, t=t: x[t], obs), carry, greedy=True)
        acted.append(action / 2)
    acted = jnp.stack(acted)
    for t in range(5):
        rows = np.arange(t - 2, t + 1)
        at = np.maximum(rows, 0)
        seen = jax.tree.map(lambda x, at=at: x[at], obs)
        window = datasets.Windows(seen, acted[at], jnp.zeros(3), jnp.asarray(at), jnp.asarray(rows >= 0))
        rule = algo.init.__self__.rule
        output = rule.network.apply(state.weights["actor"], *rule.inputs(window, jnp.float32(1)))
        np.testing.assert_allclose(output[-1], acted[t], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("module", [rvs, dt])
def test_without_a_dataset_it_refuses_to_learn(module):
    env = Line(goals=False)
    algo = module.make(env, module.Config())
    with pytest.raises(ValueError, match=f"{algo.name} learns from a dataset alone"):
        jax.eval_shape(lambda key: algo.update(algo.init(key)), KEY)
    with pytest.raises(ValueError, match="needs observations with an entry 'goal'"):
        module.make(env, module.Config(outcome="goal"))
    with pytest.raises(ValueError, match="outcome='score': choose return or goal"):
        module.make(env, module.Config(outcome="score"))


@pytest.mark.slow
@pytest.mark.parametrize("module", [rvs, dt])
def test_no_key_is_used_twice(module):
    env, algo = learner(module, "goal", False)
    assert_no_key_reuse(lambda key: algo.update(algo.init(key)), jax.random.key(0))
