"""Learned rewards: by hand, of what the agent saw, their weights a leaf, and a policy that learns from one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Environment, Transition, evaluate, pytree
from jaxrl.algos import ppo
from jaxrl.data import preferences, reward_models
from jaxrl.data.datasets import Dataset
from jaxrl.spaces import Box
from jaxrl.testing import check_environment
from jaxrl.wrappers import LearnedReward

KEY = jax.random.key(0)


@pytree
class Params:
    max_steps: jax.Array = 3


@pytree
class State:
    time: jax.Array
    place: jax.Array


@dataclasses.dataclass(frozen=True)
class Noisy(Environment):
    """Goes where the action says, pays the place, and sees it with noise."""

    id: str = dataclasses.field(default="Noisy", kw_only=True)
    Params = Params

    def initial(self, key, params):
        return State(jnp.int32(0), jax.random.normal(key, (1,)))

    def transition(self, key, state, action, params):
        place = state.place + action
        return Transition(state.replace(place=place), place.sum(), jnp.bool_(False), jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jnp.clip(state.place + jax.random.normal(key, (1,)), -50, 50)

    def observation_space(self, params):
        return Box(-50.0, 50.0, (1,))

    def action_space(self, params):
        return Box(-2.0, 2.0, (1,))


def linear(weights, obs, action):
    return jnp.sum(weights * obs) + 10 * jnp.sum(action)


TASK = LearnedReward(Noisy(), linear)
PARAMS = TASK.on(Noisy().default_params, jnp.float32(3))


def test_the_reward_by_hand():
    """Of the observation that the agent saw before its action, not of another draw of the noise."""
    obs, state = TASK.reset(KEY, PARAMS)
    for i in range(3):
        action = jnp.array([0.5 - i])
        ts = TASK.step(jax.random.key(i), state, action, PARAMS)
        np.testing.assert_allclose(ts.reward, 3 * obs[0] + 10 * action[0], rtol=1e-5)
        np.testing.assert_allclose(ts.info["task_reward"], state.env.place[0] + action[0], rtol=1e-5)
        obs, state = ts.obs, ts.state
    assert ts.truncated


def test_the_weights_are_a_leaf():
    """Two models in one program, and the reward's derivative by its weights is what the agent saw."""
    _, state = TASK.reset(KEY, PARAMS)

    def reward(model):
        return TASK.step(KEY, state, jnp.ones(1), PARAMS.replace(model=model)).reward

    two = jax.vmap(reward)(jnp.array([3.0, -1.0]))
    np.testing.assert_allclose(two, [reward(jnp.float32(3)), reward(jnp.float32(-1))], rtol=1e-6)
    np.testing.assert_allclose(jax.grad(reward)(3.0), state.memory[0], rtol=1e-6)


def compared():
    """300 pairs of steps of random actions on Pendulum, labelled without error by their true reward."""
    env, params = jaxrl.make("Pendulum-v1")
    rng, n = np.random.default_rng(0), 2_000
    angle, speed = rng.uniform(-np.pi, np.pi, n), rng.uniform(-8, 8, n)
    action = rng.uniform(-2, 2, (n, 1)).astype(np.float32)
    obs = np.stack([np.cos(angle), np.sin(angle), speed], -1).astype(np.float32)
    reward, end = -(angle**2) - 0.1 * speed**2 - 0.001 * action[:, 0] ** 2, np.ones(n, bool)
    steps = Dataset(obs, action, reward, end, end, obs)
    asked = preferences.uniform_queries(rng, steps, 300, 1)
    label = np.asarray(preferences.labels(KEY, jnp.asarray(preferences.scores(steps, asked, 1)), preferences.Teacher()))
    return env, params, preferences.Preferences(steps, asked, label, 1)


@pytest.mark.slow
def test_a_policy_learns_from_a_learned_reward():
    """PPO swings Pendulum up though it never sees the task's reward: -1,200 by random actions."""
    env, params, found = compared()
    config = reward_models.Config(num_members=1, hidden=(64, 64))
    spaces = env.observation_space(params), env.action_space(params)
    model, losses = reward_models.fit(KEY, found, *spaces, config, reward_models.Hyper(learning_rate=1e-3))
    assert losses.min() < 0.25
    task = LearnedReward(env, reward_models.reward_of)
    tuned = jaxrl.registry.settings("ppo", "Pendulum-v1")
    algo = ppo.make(task, ppo.Config(**tuned.config))
    on = task.on(params, model)
    train = jax.jit(lambda key: jaxrl.train(algo, key, 200_000, ppo.Hyper(**tuned.hyper), on)[0])
    found = evaluate(algo, algo.policy(train(KEY)), KEY, env, params, num_episodes=64).returns.mean()
    assert found > -350


def test_both_forms_of_a_model_in_the_units_of_the_environment():
    """The mean and the least over members, as `relabelled` writes them."""
    env, params, found = compared()
    config = reward_models.Config(num_members=2, hidden=(8,), num_checks=1, num_updates=1)
    model, _ = reward_models.fit(KEY, found, env.observation_space(params), env.action_space(params), config)
    obs, action = jnp.asarray(found.steps.obs[:5]), jnp.asarray(found.steps.action[:5])
    members = model.members(obs, action / 2)
    np.testing.assert_allclose(reward_models.reward_of(model, obs, action), members.mean(0), rtol=1e-5)
    np.testing.assert_allclose(reward_models.worst_of(model, obs, action), members.min(0), rtol=1e-5)
    for worst, values in ((False, members.mean(0)), (True, members.min(0))):
        np.testing.assert_allclose(reward_models.relabelled(model, found.steps, worst).reward[:5], values, rtol=1e-4)


@pytest.mark.slow
def test_the_contract():
    task = LearnedReward(Noisy(), lambda weights, obs, action: jnp.sum(obs))
    check_environment(task, task.on(Noisy().default_params, ()))


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"params have no model; take those of `task.on\(env_params, model\)`"):
        TASK.step(KEY, TASK.reset(KEY, TASK.default_params)[1], jnp.ones(1), TASK.default_params)
    whole = LearnedReward(Noisy(), lambda weights, obs, action: obs)
    without = whole.on(Noisy().default_params, ())
    with pytest.raises(TypeError, match=r"LearnedReward: reward \(1,\) of one step; it must be a scalar"):
        whole.step(KEY, whole.reset(KEY, without)[1], jnp.ones(1), without)
    with pytest.raises(ValueError, match=r"LearnedReward: Quadcopter-Flock-v0 has \d+ agents; it is for one"):
        LearnedReward(jaxrl.make("Quadcopter-Flock-v0")[0], linear)
