"""Every program lowers for TPUs and GPUs, as plain operations: no callback, no float64, nothing only a CPU has."""

import functools
import re

import jax
import jax.numpy as jnp
import pytest

from jaxrl import get_algo, list_algos, make, registry, vectorize
from jaxrl.wrappers import agents_as_slots
from tools.tables import FAMILIES, family_of

PLATFORMS = ("tpu", "cuda")
ALLOWED = {"cu_threefry2x32_ffi", "mhlo.erf", "mhlo.topk", "chlo.erf_inv"}
"""Custom calls that the compilers of both platforms know, or that jax makes for the one it lowers for."""
CHOLESKY = {"cusolver_potrf_ffi"}
"""And what the engines of others factorise with; ours may have none."""
OTHERS = ("Ant-", "Brax-", "Playground-")

TRAINED = {name: registry.algo_actions(name) for name in list_algos() if registry.algo_actions(name)}
QUICK_ALGOS = ("ppo", "ppo_rnn", "dqn", "sac", "stream_q")


def first_of_each_family():
    found = {}
    for id, entry in reversed(registry.environments().items()):
        if isinstance(entry.target, str) and entry.target.startswith("jaxrl.envs."):
            found[family_of(entry.target)] = id
    assert found.keys() == FAMILIES.keys()
    return sorted(found.values())


def check_lowers(function, *arguments, allowed=ALLOWED):
    text = jax.jit(function).trace(*arguments).lower(lowering_platforms=PLATFORMS).as_text()
    assert (calls := set(re.findall(r"custom_call @([\w.$]+)", text))) <= allowed, calls - allowed
    assert not re.search(r"\bf64\b|xf64>", text), "float64"


def check_environment_lowers(id):
    env, params = make(id)
    venv = vectorize(env, 4)
    venv = agents_as_slots(venv) if env.num_agents > 1 else venv

    def episode(key, params):
        """A reset, and steps with the resets of what ends."""
        space = env.action_space(params)
        obs, state = venv.reset(key, params)

        def step(state, key):
            ts = venv.step(key, state, jax.vmap(space.sample)(jax.random.split(key, venv.num_envs)), params)
            return ts.state, (ts.obs, ts.reward, ts.info)

        return obs, jax.lax.scan(step, state, jax.random.split(key, 2))

    allowed = ALLOWED | CHOLESKY if id.startswith(OTHERS) else ALLOWED
    check_lowers(episode, jax.random.key(0), params, allowed=allowed)


def check_algorithm_lowers(name):
    env, _ = make("CartPole-v1" if "Discrete" in TRAINED[name] else "Pendulum-v1")
    algo = get_algo(name).make(env)
    state = jax.eval_shape(lambda: algo.init(jax.random.key(0)))
    check_lowers(algo.update, state)
    key = jax.eval_shape(functools.partial(jax.random.key, 0))
    check_lowers(lambda state, key: algo.act(algo.policy(state), key, state.obs, _carry(algo, state)), state, key)


def _carry(algo, state):
    return algo.initial_carry(jax.tree.leaves(state.obs)[0].shape[:1])


@pytest.mark.parametrize("id", first_of_each_family())
def test_a_family_lowers(id):
    check_environment_lowers(id)


@pytest.mark.parametrize("name", QUICK_ALGOS)
def test_an_algorithm_lowers(name):
    check_algorithm_lowers(name)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", sorted(set(registry.first_of_each_class().values()) - set(first_of_each_family())))
def test_a_class_lowers(id):
    check_environment_lowers(id)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", sorted(set(TRAINED) - set(QUICK_ALGOS)))
def test_every_algorithm_lowers(name):
    check_algorithm_lowers(name)


def test_what_would_not_run_there_is_found():
    def calls_back(x):
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((), jnp.float32), x)

    with pytest.raises((AssertionError, NotImplementedError, ValueError)):
        check_lowers(calls_back, jnp.float32(0))
    with pytest.raises((AssertionError, NotImplementedError)):
        check_lowers(jnp.linalg.qr, jnp.eye(3))
    with jax.enable_x64(True), pytest.raises(AssertionError, match="float64"):
        check_lowers(lambda x: x + 1, jnp.zeros(3, jnp.float64))
