"""Both gymnax generations, in and out: fakes of their interfaces always, the real package where it is installed."""

import dataclasses
import functools
import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make, vectorize
from jaxrl.interop.gymnax import from_gymnax, to_gymnax
from jaxrl.spaces import Box, Dict, Discrete, Tuple
from jaxrl.testing.environments import check_environment
from jaxrl.testing.probes import Masked, TimeLimit

KEY = jax.random.key(0)


# ---- gymnax's interfaces, as small as they get


@functools.partial(jax.tree_util.register_dataclass, data_fields=["max_steps_in_episode", "goal"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class FakeParams:
    max_steps_in_episode: Any = 3
    goal: Any = 2.0


@functools.partial(jax.tree_util.register_dataclass, data_fields=["time", "x", "terminal"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class FakeState:
    time: Any
    x: Any
    terminal: Any


def space(kind, **fields):
    return type(kind, (), fields)()


class FakeOld:
    """gymnax 0.0.x: `done` merges goal and limit, is stored in the state, and weak types and python numbers abound."""

    name = "Fake-v0"
    default_params = FakeParams()

    def reset_env(self, key, params):
        return jnp.array([0.0, 0.0]), FakeState(0, 0.0, False)

    def _next(self, state, action, params):
        x = state.x + action
        time = state.time + 1
        return time, x, jnp.array([x, time / params.max_steps_in_episode])

    def step_env(self, key, state, action, params):
        time, x, obs = self._next(state, action, params)
        done = (x >= params.goal) | (time >= params.max_steps_in_episode) | state.terminal
        return obs, FakeState(time, x, done), 1, done, {"discount": jnp.where(done, 0, 1.0)}

    def observation_space(self, params):
        return space("Box", low=-10, high=10, shape=(2,), dtype=np.float32)

    def action_space(self, params=None):
        return space("Discrete", n=3)


class FakeNew(FakeOld):
    """gymnax 1.x: `step_env` reports the goal, `is_truncated` the limit."""

    def step_env(self, key, state, action, params):
        time, x, obs = self._next(state, action, params)
        end = x >= params.goal
        return obs, FakeState(time, x, end), 1, end, {}

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode


@pytest.mark.parametrize("fake", [FakeOld(), FakeNew()], ids=lambda f: type(f).__name__)
def test_terminated_and_truncated_are_apart(fake):
    env, params = from_gymnax(fake)
    assert env.id == "Fake-v0" and int(params.max_steps) == 3

    @jax.jit
    def ends(actions, params):
        _, state = env.reset(KEY, params)

        def body(state, action):
            ts = env.step(KEY, state, action, params)
            return ts.state, (ts.terminated, ts.truncated, ts.obs[1])

        return jax.lax.scan(body, state, actions)[1]

    for actions, terminated, truncated in (
        ([1, 1, 0], [0, 1, 1], [0, 0, 1]),  # goal at 2, then the limit
        ([0, 0, 0], [0, 0, 0], [0, 0, 1]),  # the limit alone
        ([1, 0, 1], [0, 0, 1], [0, 0, 1]),  # both at once
    ):
        got = ends(jnp.array(actions), params)
        np.testing.assert_array_equal(got[0], terminated)
        np.testing.assert_array_equal(got[1], truncated)
        np.testing.assert_allclose(got[2], [1 / 3, 2 / 3, 1], rtol=1e-6)  # what is observed knows the true limit


def test_params_of_gymnax_are_leaves():
    env, params = from_gymnax(FakeOld(), FakeParams(max_steps_in_episode=50))
    assert int(params.max_steps) == 50 and int(env.default_params.max_steps) == 3
    goals = dataclasses.replace(params, env=dataclasses.replace(params.env, goal=jnp.array([1.0, 9.0])))
    axes = jax.tree_util.tree_map_with_path(lambda path, _: 0 if path[-1].name == "goal" else None, goals)
    _, state = env.reset(KEY, params)
    ts = jax.vmap(env.step, (None, None, None, axes))(KEY, state, jnp.int32(1), goals)
    np.testing.assert_array_equal(ts.terminated, [True, False])


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("fake", [FakeOld(), FakeNew()], ids=lambda f: type(f).__name__)
def test_keeps_our_contract(fake):
    check_environment(*from_gymnax(fake), num_steps=8)


def test_spaces_in():
    class Odd(FakeNew):
        def observation_space(self, params):
            low = space("Box", low=jnp.zeros(2), high=1.0, shape=2, dtype=jnp.float32)
            return space("Dict", spaces={"a": low, "b": space("Tuple", spaces=[space("Discrete", n=4)])})

        def action_space(self, params=None):
            return space("Sphere")

    env, params = from_gymnax(Odd())
    observes: Any = env.observation_space(params)
    assert isinstance(observes, Dict) and isinstance(observes.spaces["a"], Box) and observes.spaces["a"].shape == (2,)
    assert isinstance(observes.spaces["b"], Tuple) and observes.spaces["b"].spaces == (Discrete(4),)
    with pytest.raises(ValueError, match="Sphere is not a space"):
        env.action_space(params)


def test_out_one_dot_zero():
    env, params = make("CartPole-v1")
    gx = to_gymnax(env)
    params = params.replace(max_steps=jnp.int32(2))
    assert gx.name == "CartPole-v1" and gx.num_actions == 2
    assert gx.observation_space(params).shape == (4,) and gx.action_space(params).n == gx.action_space().n == 2
    obs, state = gx.reset(KEY, params)
    obs, state, reward, terminated, truncated, info = gx.step(KEY, state, 1, params)
    assert not terminated and not truncated and reward == 1 and state.time == 1
    expected = env.step(KEY, state, jnp.int32(0), params)
    obs, state, reward, terminated, truncated, info = gx.step(KEY, state, 0, params)
    assert truncated and not terminated and state.time == 0 and info["discount"] == 1
    np.testing.assert_allclose(info["final_observation"], expected.obs, rtol=1e-5)
    np.testing.assert_allclose(obs, jnp.stack([state.x, state.x_dot, state.theta, state.theta_dot]))
    obs, state, reward, terminated, info = gx.step_env(KEY, expected.state, 1, params)
    assert not terminated and state.time == 3 and gx.is_truncated(state, params)
    assert len(gx.step(KEY, state, 1)) == 6  # default params


def test_out_zero_dot_zero():
    gx = to_gymnax(TimeLimit(), api="0.0")
    params = gx.default_params.replace(max_steps=jnp.int32(2))
    obs, state = gx.reset(KEY)
    dones = []
    for _ in range(4):
        obs, state, reward, done, info = gx.step(KEY, state, 0, params)
        dones.append(bool(done))
        assert info["discount"] == 1  # cut, not ended
    assert dones == [False, True, False, True]
    assert len(gx.step_env(KEY, state, 0, params)) == 5


def test_out_batches_and_scans_with_dicts():
    gx = to_gymnax(Masked(), api="0.0")
    params = gx.default_params
    keys = jax.random.split(KEY, 4)
    obs, state = jax.vmap(gx.reset, (0, None))(keys, params)
    best = jnp.where(obs["action_mask"][:, 2], 3, 1)
    obs, state, reward, done, _ = jax.vmap(gx.step, (0, 0, 0, None))(keys, state, best, params)
    np.testing.assert_array_equal(reward, np.ones(4))
    assert done.all() and obs["action_mask"].shape == (4, 4) and gx.num_actions == 4


def test_there_and_back():
    env, params = make("Pendulum-v1")
    back, back_params = from_gymnax(to_gymnax(env))
    back_params = dataclasses.replace(back_params, env=back_params.env.replace(max_steps=jnp.int32(1)))
    assert back.id == env.id and isinstance(back.action_space(back_params), Box)
    state = back.reset(KEY, back_params)[1]
    action = jnp.array([0.7])
    a, b = env.step(KEY, state.env, action, params), back.step(KEY, state, action, back_params)
    np.testing.assert_allclose(a.obs, b.obs, rtol=1e-6)
    np.testing.assert_allclose(a.reward, b.reward, rtol=1e-6)
    assert b.truncated and not b.terminated and not a.truncated


def test_bad_arguments():
    with pytest.raises(ValueError, match="api='2.0': choose one of 1.0, 0.0"):
        to_gymnax(make("CartPole-v1")[0], "2.0")


def test_out_gives_gymnaxs_spaces_where_it_is_installed(monkeypatch):
    """Its agents ask `isinstance(space, gymnax...Discrete)`."""

    class FakeDiscrete:
        def __init__(self, n):
            self.n = n

    class FakeBox:
        def __init__(self, low, high, shape, dtype):
            self.low, self.high, self.shape, self.dtype = low, high, shape, dtype

    class FakeDict:
        def __init__(self, spaces):
            self.spaces = spaces

    module = types.ModuleType("gymnax.environments")
    module.spaces = types.SimpleNamespace(Discrete=FakeDiscrete, Box=FakeBox, Dict=FakeDict, Tuple=FakeDict)  # pyright: ignore
    monkeypatch.setitem(sys.modules, "gymnax", types.ModuleType("gymnax"))
    monkeypatch.setitem(sys.modules, "gymnax.environments", module)
    gx = to_gymnax(Masked())
    space, action = gx.observation_space(gx.default_params), gx.action_space()
    assert type(space) is FakeDict and {type(s) for s in space.spaces.values()} == {FakeBox}
    assert type(action) is FakeDiscrete and action.n == gx.num_actions == 4
    monkeypatch.setitem(sys.modules, "gymnax.environments", None)  # an import of it then fails
    assert type(gx.action_space()) is Discrete


def test_out_params_answer_gymnaxs_name():
    gx = to_gymnax(make("CartPole-v1")[0], api="0.0")
    params = gx.default_params
    assert isinstance(params, gx.env.Params) and params.max_steps_in_episode == params.max_steps == 500
    params = params.replace(max_steps_in_episode=jnp.int32(1), length=jnp.float32(0.7))
    assert params.max_steps == 1 and params.length == jnp.float32(0.7)
    assert jax.tree.map(lambda x: x, params).max_steps_in_episode == 1
    key = jax.random.PRNGKey(0)  # raw keys, as scripts for gymnax hold them
    _, state = gx.reset(key, params)
    assert gx.step(key, state, 1, params)[3]


def test_out_takes_a_scalar_for_the_only_number_of_an_action():
    gx = to_gymnax(TimeLimit("box"), api="0.0")
    _, state = gx.reset(KEY)
    a, b = gx.step_env(KEY, state, 0.5, gx.default_params), gx.step_env(KEY, state, jnp.array([0.5]), gx.default_params)
    jax.tree.map(np.testing.assert_array_equal, a, b)


# ---- the real package


def real():
    gymnax = pytest.importorskip(
        "gymnax", exc_type=ImportError, reason="needs gymnax, and six, which it does not declare"
    )
    return gymnax, hasattr(gymnax.environments.environment.Environment, "is_truncated")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:scatter inputs:FutureWarning")  # their Breakout, 0.0.9
@pytest.mark.parametrize(
    "id",
    ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "Catch-bsuite", "Breakout-MinAtar", "Reacher-misc"],
)
def test_real_gymnax_in(id):
    gymnax, _ = real()
    env, params = from_gymnax(*gymnax.make(id))
    venv = vectorize(env, 8)

    @jax.jit
    def run(key, params):
        _, vstate = venv.reset(key, params)

        def body(vstate, key):
            act_key, step_key = jax.random.split(key)
            action = jax.vmap(env.action_space(params).sample)(jax.random.split(act_key, 8))
            ts = venv.step(step_key, vstate, action, params)
            return ts.state, (ts.reward, ts.terminated, ts.truncated, ts.info["episode_length"])

        return jax.lax.scan(body, vstate, jax.random.split(key, 1100))[1]

    reward, terminated, truncated, length = run(KEY, params)
    assert np.all(np.isfinite(reward))
    assert np.all(np.asarray(length)[np.asarray(truncated)] == int(params.max_steps))
    assert np.any(terminated | truncated)
    assert np.any(truncated) == (id in ("Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "Reacher-misc"))
    assert not (id == "Pendulum-v1" and np.any(terminated))


@pytest.mark.slow
def test_real_gymnax_dynamics_are_its_own():
    """Our step of their CartPole is their `step_env`, and close to ours from the same state."""
    gymnax, _ = real()
    their_env, their_params = gymnax.make("CartPole-v1")
    env, params = from_gymnax(their_env, their_params)
    ours, our_params = make("CartPole-v1")
    _, state = env.reset(KEY, params)
    s = state.env
    mine = ours.reset(KEY, our_params)[1].replace(x=s.x, x_dot=s.x_dot, theta=s.theta, theta_dot=s.theta_dot)
    for i in range(20):
        action = jnp.int32(i % 2)
        expected = their_env.step_env(KEY, state.env, action, their_params)
        ts, my = env.step(KEY, state, action, params), ours.step(KEY, mine, action, our_params)
        np.testing.assert_allclose(ts.obs, expected[0], rtol=1e-6)
        np.testing.assert_allclose(ts.obs, my.obs, rtol=1e-4, atol=1e-5)
        state, mine = ts.state, my.state


@pytest.mark.slow
def test_real_gymnax_wrappers_take_ours():
    _, new = real()
    from gymnax.wrappers.purerl import FlattenObservationWrapper, LogWrapper

    gx = to_gymnax(make("CartPole-v1")[0], "1.0" if new else "0.0")
    env = LogWrapper(FlattenObservationWrapper(gx))
    params = gx.default_params.replace(max_steps=jnp.int32(5))
    obs, state = env.reset(KEY, params)
    for i in range(5):
        out = env.step(jax.random.fold_in(KEY, i), state, i % 2, params)
        state, info = out[1], out[-1]
    assert info["returned_episode"] and info["returned_episode_returns"] == 5
