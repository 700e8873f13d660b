"""`to_brax` under Brax's own wrappers, `from_brax` on its small test environment and on a fake like Playground's."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("brax", exc_type=ImportError)

from brax.envs import base, fast
from brax.envs.wrappers import training

from jaxrl import make, vectorize
from jaxrl.environment import NO_LIMIT
from jaxrl.interop.brax import from_brax, to_brax
from jaxrl.spaces import Dict
from jaxrl.testing.environments import check_environment
from jaxrl.testing.probes import Privileged, TimeLimit
from jaxrl.wrappers import RescaleAction

KEY = jax.random.key(0)


def test_out_steps_as_the_function_does():
    env, params = make("Pendulum-v1")
    brax_env = to_brax(env, params)
    assert (brax_env.observation_size, brax_env.action_size, brax_env.backend) == (3, 1, "jaxrl")
    state = jax.jit(brax_env.reset)(KEY)
    action = jnp.array([0.5])
    step = jax.jit(brax_env.step)
    new = step(state, action)
    expected = env.step(KEY, state.pipeline_state, action, params)
    np.testing.assert_allclose(new.obs, expected.obs, rtol=1e-5)
    np.testing.assert_allclose(new.reward, expected.reward, rtol=1e-5)
    assert jax.tree.structure(new) == jax.tree.structure(state)
    jax.tree.map(lambda a, b: np.testing.assert_equal((a.shape, a.dtype), (b.shape, b.dtype)), new, state)
    assert not np.array_equal(jax.random.key_data(new.info["rng"]), jax.random.key_data(state.info["rng"]))


def test_out_is_validated_in_a_jitted_reset():
    """Brax's agents jit resets that close over params; what `validate` computes from them must not be traced."""
    env, params = make("Pendulum-v1")
    state = jax.eval_shape(to_brax(RescaleAction(env), params).reset, KEY)
    assert state.obs.shape == (3,)
    with pytest.raises(ValueError, match="max_torque=-1.0"):
        env.reset(KEY, params.replace(max_torque=jnp.float32(-1)))
    wrong = params.replace(max_torque=jnp.float32(jnp.inf))
    with pytest.raises(ValueError, match="must be finite"):
        jax.eval_shape(lambda key: RescaleAction(env).reset(key, wrong), KEY)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_braxs_ppo_learns(monkeypatch):
    """Brax 0.14.2's PPO calls `jax.device_put_replicated`, which jax 0.10 has no more: here it is, for one device."""
    from brax.training.agents.ppo import train

    def device_put_replicated(tree, devices):
        return jax.tree.map(lambda x: jnp.stack([x] * len(devices)), tree)

    monkeypatch.setattr(jax, "device_put_replicated", device_put_replicated, raising=False)
    env, params = make("Pendulum-v1")
    env = to_brax(RescaleAction(env), params.replace(max_steps=jnp.int32(NO_LIMIT)))
    returns = []
    train.train(
        environment=env,
        num_timesteps=80_000,
        episode_length=200,
        num_envs=64,
        num_eval_envs=32,
        unroll_length=16,
        batch_size=64,
        num_minibatches=8,
        num_updates_per_batch=4,
        learning_rate=1e-3,
        discounting=0.95,
        entropy_cost=1e-3,
        reward_scaling=0.1,
        normalize_observations=True,
        num_evals=2,
        progress_fn=lambda _, metrics: returns.append(float(metrics["eval/episode_reward"])),
    )
    assert len(returns) == 2 and returns[1] > returns[0] + 300


def test_out_done_and_truncation():
    brax_env = to_brax(TimeLimit("box"))
    state = brax_env.reset(KEY)
    seen = []
    for _ in range(5):
        state = brax_env.step(state, jnp.zeros(1))
        seen.append((float(state.done), float(state.info["truncation"])))
    assert seen == [(0, 0)] * 4 + [(1, 1)]


def test_out_under_braxs_wrappers():
    probe = TimeLimit("box")
    env = to_brax(probe, probe.default_params.replace(max_steps=jnp.int32(NO_LIMIT)))
    wrapped = training.wrap(env, episode_length=3, action_repeat=1)
    state = wrapped.reset(jax.random.split(jax.random.PRNGKey(0), 2))
    step = jax.jit(wrapped.step)
    seen = []
    for _ in range(4):
        state = step(state, jnp.zeros((2, 1)))
        seen.append((state.done[1], state.info["truncation"][1], state.pipeline_state.time[1]))
    np.testing.assert_array_equal(seen, [(0, 0, 1), (0, 0, 2), (1, 1, 0), (0, 0, 1)])
    assert state.info["episode_metrics"]["length"].shape == (2,)


def test_out_with_a_dict_and_metrics():
    @dataclasses.dataclass(frozen=True)
    class Terms(Privileged):
        kind: str = "box"

        def transition(self, key, state, action, params):
            out = super().transition(key, state, action, params)
            return out._replace(info={"reward/cue": state.cue, "vector": jnp.zeros(3)})

    env = to_brax(Terms())
    assert env.observation_size == {"obs": 1, "privileged": 1}
    state = env.reset(KEY)
    assert state.metrics == {"reward/cue": 0}
    assert env.step(state, jnp.zeros(1)).metrics["reward/cue"] in (-1, 1)
    with pytest.raises(ValueError, match=r"CartPole-v1 has 1 agent\(s\) in Discrete\(2\)"):
        to_brax(make("CartPole-v1")[0])


@pytest.mark.slow
def test_in_keeps_our_contract():
    env, params = from_brax(fast.Fast(), max_steps=7)
    assert env.id == "Fast" and int(params.max_steps) == 7
    check_environment(env, params, num_steps=10)


@pytest.mark.slow
def test_in_gives_braxs_transitions_batched_and_cut():
    brax_env = fast.Fast()
    env, params = from_brax(brax_env, max_steps=4)
    state = brax_env.reset(KEY)
    expected = []
    for _ in range(4):
        state = brax_env.step(state, jnp.ones(1))
        expected.append(float(state.reward))
    venv = vectorize(env, 2)
    _, vstate = venv.reset(KEY, params)
    step = jax.jit(venv.step)
    rewards = []
    for _ in range(5):
        _, vstate, reward, terminated, truncated, info = step(KEY, vstate, jnp.ones((2, 1)), params)
        rewards.append(reward[0])
        assert not terminated.any() and bool(truncated.all()) == (len(rewards) == 4)
    np.testing.assert_allclose(rewards, expected + expected[:1], rtol=1e-6)


class Asymmetric:
    """What a MuJoCo Playground environment shows: a Dict with `privileged_state`, metrics, an end by itself."""

    action_size = 2

    @property
    def unwrapped(self):
        return self

    def reset(self, rng: Any) -> base.State:
        obs = {"state": jnp.zeros(3), "privileged_state": jnp.zeros(5)}
        info = {"rng": rng, "last_action": jnp.zeros(2)}
        return base.State(None, obs, jnp.zeros(()), jnp.zeros(()), {"reward/up": 0.0}, info)

    def step(self, state: base.State, action: Any) -> base.State:
        state.info["last_action"] = action
        obs = {name: x + action[0] for name, x in state.obs.items()}
        done = jnp.where(obs["state"][0] > 1.5, 1.0, 0.0)
        return state.replace(obs=obs, reward=action[0], done=done, metrics={"reward/up": action[0]})


@pytest.mark.slow
@pytest.mark.light
def test_in_from_playground():
    env, params = from_brax(Asymmetric(), id="Joystick")
    space = env.observation_space(params)
    assert isinstance(space, Dict) and space.spaces["privileged"].shape == (5,) and space.spaces["state"].shape == (3,)
    check_environment(env, params, num_steps=4)
    obs, state = env.reset(KEY, params)
    ts = env.step(KEY, state, jnp.ones(2), params)
    np.testing.assert_array_equal(state.env.info["last_action"], [0, 0])  # what was given is not written to
    ts = env.step(KEY, ts.state, jnp.ones(2), params)
    assert ts.terminated and not ts.truncated and ts.info["reward/up"] == 1


def test_in_a_limit_that_is_braxs_own():
    class Cut(base.Wrapper):
        """Says by itself where it is cut, as Brax's training has it said."""

        def reset(self, rng):
            state = self.env.reset(rng)
            return state.replace(info={**state.info, "truncation": jnp.zeros(()), "count": jnp.zeros(())})

        def step(self, state, action):
            count = state.info["count"] + 1
            state = self.env.step(state, action)
            cut = jnp.where(count >= 2, 1.0, 0.0)
            return state.replace(done=cut, info={**state.info, "truncation": cut, "count": count})

    env, params = from_brax(Cut(fast.Fast()))
    _, state = env.reset(KEY, params)
    ends = []
    for _ in range(2):
        ts = env.step(KEY, state, jnp.ones(1), params)
        state = ts.state
        ends.append((bool(ts.terminated), bool(ts.truncated)))
    assert ends == [(False, False), (False, True)]


def test_in_refuses_what_resets_or_batches_itself():
    bare = fast.Fast()
    episode = training.EpisodeWrapper(bare, 10, 1)
    batched = training.VmapWrapper(bare)
    for wrapped in (episode, batched, training.AutoResetWrapper(episode), training.EvalWrapper(batched)):
        with pytest.raises(ValueError, match=rf"{type(wrapped).__name__} is of Brax's training.*env\.unwrapped"):
            from_brax(wrapped)

    class Mine(base.Wrapper):
        """A task of one's own: taken, unless it stands around what is refused."""

    assert from_brax(Mine(bare))[0].id == "Fast"
    with pytest.raises(ValueError, match="EpisodeWrapper is of Brax's training"):
        from_brax(Mine(episode))
    for thing in ("ant", object(), make("Pendulum-v1")[0]):
        with pytest.raises(TypeError, match="is no Brax environment: it has no"):
            from_brax(thing)
    with pytest.raises(ValueError, match="max_steps=0"):
        from_brax(fast.Fast(), max_steps=0)
