"""`to_sb3` over the smallest of what it uses of Stable-Baselines3; `test_clients.py` trains the real one."""

import sys
import types

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.testing.probes import TimeLimit


class FakeVecEnv:
    def __init__(self, num_envs, observation_space, action_space):
        self.num_envs, self.observation_space, self.action_space = num_envs, observation_space, action_space
        self.render_mode = self.get_attr("render_mode")[0]  # pyright: ignore[reportAttributeAccessIssue]
        self._reset_seeds()

    def _reset_seeds(self):
        self._seeds = [None] * self.num_envs

    def _reset_options(self):
        pass

    def _get_indices(self, indices):
        return range(self.num_envs) if indices is None else indices

    def step(self, actions):
        self.step_async(actions)  # pyright: ignore[reportAttributeAccessIssue]
        return self.step_wait()  # pyright: ignore[reportAttributeAccessIssue]


class FakeMonitor:
    pass


@pytest.fixture
def to_sb3(monkeypatch):
    for name, fields in (("monitor", {"Monitor": FakeMonitor}), ("vec_env", {"VecEnv": FakeVecEnv})):
        module = types.ModuleType(name)
        module.__dict__.update(fields)
        monkeypatch.setitem(sys.modules, f"stable_baselines3.common.{name}", module)
    monkeypatch.setitem(sys.modules, "stable_baselines3", types.ModuleType("stable_baselines3"))
    monkeypatch.setitem(sys.modules, "stable_baselines3.common", types.ModuleType("common"))
    monkeypatch.delitem(sys.modules, "jaxrl.interop.stable_baselines", raising=False)
    from jaxrl.interop.stable_baselines import to_sb3

    yield to_sb3
    sys.modules.pop("jaxrl.interop.stable_baselines")


def test_out_to_stable_baselines(to_sb3):
    probe = TimeLimit()
    params = probe.default_params.replace(max_steps=jnp.int32(2))
    env = to_sb3(probe, 3, params, seed=0)
    assert env.num_envs == 3 and isinstance(env.action_space, gymnasium.spaces.Discrete) and env.render_mode is None
    assert env.env_is_wrapped(FakeMonitor, [0]) == [True] and env.env_is_wrapped(gymnasium.Wrapper) == [False] * 3
    first = env.reset()
    assert first.shape == (3, *env.observation_space.shape)
    obs, reward, done, infos = env.step(np.zeros(3, int))
    assert not done.any() and infos == [{}, {}, {}] and reward.dtype == np.float32
    obs, second, done, infos = env.step(np.zeros(3, int))
    assert done.all() and [info["TimeLimit.truncated"] for info in infos] == [True] * 3
    np.testing.assert_array_equal(obs, first)
    for i, info in enumerate(infos):
        assert env.observation_space.contains(info["terminal_observation"])
        assert info["episode"]["r"] == reward[i] + second[i] and info["episode"]["l"] == 2 and info["episode"]["t"] >= 0


def test_the_seed_decides_the_batch(to_sb3):
    from jaxrl import make

    env = to_sb3(make("CartPole-v1")[0], 2)
    starts = []
    for seed in (5, 5, None):
        env._seeds = [seed, None if seed is None else seed + 1]
        starts.append(env.reset())
    np.testing.assert_array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[1], starts[2]) and not np.array_equal(starts[0][0], starts[0][1])
