"""Corrections of a base policy: none at scale 0, by hand, clipped, of the observation that was seen, and learned."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Environment, Transition, evaluate, pytree
from jaxrl.algos import ppo
from jaxrl.spaces import Box
from jaxrl.testing import check_environment
from jaxrl.wrappers import Residual

KEY = jax.random.key(0)


@pytree
class Params:
    max_steps: jax.Array = 4


@pytree
class State:
    time: jax.Array
    done: jax.Array  # the last action that was done


@dataclasses.dataclass(frozen=True)
class Aim(Environment):
    """Sees noise; the reward is minus the squared distance of the action from 1. Actions in [-2, 2]."""

    id: str = dataclasses.field(default="Aim", kw_only=True)
    Params = Params

    def initial(self, key, params):
        return State(jnp.int32(0), jnp.zeros(1))

    def transition(self, key, state, action, params):
        reward = -jnp.sum((action - 1) ** 2)
        return Transition(state.replace(done=action), reward, jnp.bool_(False), jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jax.random.uniform(key, (1,))

    def observation_space(self, params):
        return Box(0.0, 1.0, (1,))

    def action_space(self, params):
        return Box(-2.0, 2.0, (1,))


def base(weights, obs):
    return weights * obs


TASK = Residual(Aim(), base)


def on(weights, scale):
    return TASK.on(Aim().default_params, jnp.float32(weights), scale)


@pytest.mark.parametrize(
    "weights, scale, action, by_hand",
    [
        (0.5, 0.0, 1.0, lambda obs: 0.5 * obs),
        (0.5, 0.25, 0.0, lambda obs: 0.5 * obs),
        (0.5, 0.25, -1.0, lambda obs: 0.5 * obs - 0.25 * 2),
        (0.5, 0.25, 9.0, lambda obs: 0.5 * obs + 0.25 * 2),  # no correction is above 1
        (0.5, 2.0, 1.0, lambda obs: 2.0),  # nor an action outside of its box
    ],
)
def test_what_is_done_by_hand(weights, scale, action, by_hand):
    """Of the observation that the agent saw, not of another draw of its noise."""
    params = on(weights, scale)
    obs, state = TASK.reset(KEY, params)
    for i in range(2):
        ts = TASK.step(jax.random.key(i), state, jnp.array([action]), params)
        np.testing.assert_allclose(ts.state.env.done[0], by_hand(obs[0]), rtol=1e-6)
        obs, state = ts.obs, ts.state


def test_without_correction_episodes_are_the_base_policys():
    """A policy of PPO as the base of Pendulum, whose returns are the same to rounding."""
    env, params = jaxrl.make("Pendulum-v1")
    size = ppo.Config(num_envs=2, num_steps=4, num_minibatches=1, num_epochs=1)
    algo = ppo.make(env, size)
    policy = algo.policy(algo.init(KEY, None, params))
    residual = Residual(env, lambda policy, obs: algo.act(policy, KEY, obs, (), greedy=True)[0])
    learner = ppo.make(residual, size)
    under = residual.on(params, policy, 0.0)
    corrections = learner.policy(learner.init(jax.random.key(1), None, under))
    how = dict(num_episodes=4, max_steps=20, greedy=True)
    alone = evaluate(algo, policy, KEY, env, params, **how).returns
    both = [evaluate(learner, corrections, KEY, residual, x, **how).returns for x in (under, under.replace(scale=0.5))]
    np.testing.assert_allclose(both[0], alone, rtol=1e-4)
    assert np.abs(both[1] - alone).max() > 1e-3


@pytest.mark.slow
def test_a_correction_is_learned():
    """The base misses the best action, 1, by 0.6 on average; the correction may be 0.8."""
    algo = ppo.make(Residual(Aim(), base), ppo.Config(num_envs=16, num_steps=16, num_minibatches=4))
    params = on(0.8, 0.4)
    state, _ = jax.jit(lambda key: jaxrl.train(algo, key, 40_000, ppo.Hyper(learning_rate=3e-3), params))(KEY)
    learned = evaluate(algo, algo.policy(state), KEY, None, params).returns.mean()
    alone = evaluate(algo, algo.policy(state), KEY, None, params.replace(scale=jnp.float32(0))).returns.mean()
    assert alone < -1.4 and learned > -0.2


@pytest.mark.slow
def test_the_contract():
    check_environment(Residual(Aim(), lambda weights, obs: 0.5 * obs))


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"scale=-0.1\d* must be at least 0, where the base acts alone"):
        TASK.reset(KEY, on(0.5, -0.1))
    with pytest.raises(ValueError, match=r"CartPole-v1 acts in Discrete\(2\); only actions in a Box with two ends"):
        Residual(jaxrl.make("CartPole-v1")[0], base)
