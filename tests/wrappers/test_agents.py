"""Several agents as slots of one algorithm: `jaxrl.wrappers.agents_as_slots`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import Environment, Transition, pytree, vectorize
from jaxrl.algos import ppo
from jaxrl.evaluation import evaluate
from jaxrl.spaces import Box
from jaxrl.wrappers import agents_as_slots


@pytree
class Params:
    max_steps: jax.Array = 4


@pytree
class State:
    time: jax.Array
    cue: jax.Array  # (2,) -1 or 1


@dataclasses.dataclass(frozen=True)
class Two(Environment):
    """Each of two agents sees a cue of its own and earns its action times the cue; it ends with probability 0.1."""

    id: str = dataclasses.field(default="Two", kw_only=True)
    num_agents: int = 2
    Params = Params

    def initial(self, key, params):
        return State(jnp.int32(0), jax.random.rademacher(key, (self.num_agents,), jnp.result_type(float)))

    def transition(self, key, state, action, params):
        info = {"cue": state.cue, "both": state.cue.sum()}
        end = jax.random.bernoulli(key, 0.1)
        return Transition(state, action[:, 0] * state.cue, end, jnp.bool_(False), info)

    def observe(self, key, state, params):
        return state.cue[:, None]

    def observation_space(self, params):
        return Box(-1.0, 1.0, (1,))

    def action_space(self, params):
        return Box(-1.0, 1.0, (1,))


@pytest.mark.slow
@pytest.mark.light
def test_it_is_the_same_environment():
    env = Two()
    params = env.default_params
    inner = vectorize(env, 3)
    venv = agents_as_slots(inner)
    assert (venv.num_envs, venv.env.num_agents, venv.env.id) == (6, 1, "Two")
    key = jax.random.key(0)
    (obs, vstate), (inner_obs, inner_state) = venv.reset(key, params), inner.reset(key, params)
    np.testing.assert_array_equal(obs, inner_obs.reshape(6, 1))
    step, inner_step = jax.jit(venv.step), jax.jit(inner.step)
    for key in jax.random.split(jax.random.key(1), 12):
        action = jax.random.uniform(key, (6, 1), minval=-1.0)
        ts, inner_ts = step(key, vstate, action, params), inner_step(key, inner_state, action.reshape(3, 2, 1), params)
        vstate, inner_state = ts.state, inner_ts.state
        np.testing.assert_array_equal(ts.obs, inner_ts.obs.reshape(6, 1))
        np.testing.assert_array_equal(ts.reward, inner_ts.reward.reshape(6))
        for name in ("terminated", "truncated"):
            np.testing.assert_array_equal(getattr(ts, name), np.repeat(getattr(inner_ts, name), 2))
        for name in ("cue", "final_obs", "episode_return"):
            np.testing.assert_array_equal(ts.info[name].reshape(6), inner_ts.info[name].reshape(6), name)
        for name in ("both", "episode_length"):
            np.testing.assert_array_equal(ts.info[name], np.repeat(inner_ts.info[name], 2), name)
    assert np.any(ts.info["cue"] == -1) and np.any(ts.info["cue"] == 1)
    mask = jnp.arange(6) == 3  # the second environment's second agent
    _, restarted = venv.restart(key, vstate, params, mask)
    assert restarted.env.time[1] == 0 and restarted.env.time[0] == vstate.env.time[0]


@pytest.mark.slow
@pytest.mark.light
def test_ppo_with_shared_weights():
    """One policy for both agents; evaluated on the environment itself, and as a team by the mean reward."""
    env = Two()
    venv = agents_as_slots(vectorize(env, 16))
    algo = ppo.make(venv, ppo.Config(num_envs=32, num_steps=16, hidden=(8,)))
    state = jax.jit(algo.init)(jax.random.key(0), ppo.Hyper(learning_rate=0.02, ent_coef=0.0))
    state, metrics = jax.lax.scan(lambda state, _: algo.update(state), state, None, 30)
    assert int(state.step) == 30 * 32 * 16 and metrics["episodes"][0] % 2 == 0
    policy, key, params = algo.policy(state), jax.random.key(1), env.default_params
    each = evaluate(algo, policy, key, env, params, num_episodes=16, greedy=True)
    team = evaluate(algo, policy, key, venv.env, params, num_episodes=16, greedy=True)
    assert each.returns.shape == (16, 2) and np.mean(each.returns / each.lengths[:, None]) > 0.9
    np.testing.assert_allclose(team.returns, each.returns.mean(1), rtol=1e-5)


def test_refused():
    with pytest.raises(ValueError, match="has one agent"):
        agents_as_slots(vectorize(Two(num_agents=1), 2))
    with pytest.raises(ValueError, match="batched_params"):
        agents_as_slots(vectorize(Two(), 2, batched_params=True))
