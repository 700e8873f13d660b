"""Acting: the loop's bookkeeping, the true successor, recurrent carries, and values of successors by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make, pytree, vectorize
from jaxrl.rollout import Ends, _in_order, minibatches, rollout, successor_values
from jaxrl.testing.assertions import assert_no_key_reuse


def test_metrics_are_means_over_the_episodes_that_ended():
    done = jnp.array([[True, False], [False, True]])
    metrics = Ends(done, jnp.array([[3.0, 99.0], [99.0, 5.0]]), jnp.array([[1, 7], [7, 2]])).metrics()
    assert metrics["episode_return"] == 4 and metrics["episode_length"] == 1.5 and metrics["episodes"] == 2
    none = Ends(jnp.zeros((2, 2), bool), jnp.ones((2, 2)), jnp.ones((2, 2), int)).metrics()
    assert np.isnan(none["episode_return"]) and np.isnan(none["episode_length"]) and none["episodes"] == 0
    infinite = Ends(jnp.array([[False, True]]), jnp.array([[jnp.inf, 1.0]]), jnp.ones((1, 2), int)).metrics()
    assert infinite["episode_return"] == 1, "what has not ended does not count"


@pytree
class State:
    key: jax.Array
    env_params: Any
    env_state: Any
    obs: Any
    step: jax.Array


def setup(max_steps=3):
    env, params = make("CartPole-v1")
    venv, params = vectorize(env, 2), params.replace(max_steps=jnp.int32(max_steps))
    obs, env_state = venv.reset(jax.random.key(0), params)
    return venv, State(jax.random.key(1), params, env_state, obs, jnp.int32(10))


def act(key, obs, carry):
    return jax.random.bernoulli(key, shape=obs.shape[:1]).astype(jnp.int32), carry, carry + 1


def test_steps_follow_each_other():
    venv, state = setup()
    new, carry, steps = jax.jit(lambda s: rollout(venv, s, 7, act, jnp.int32(0)))(state)
    assert new.step == 10 + 7 * 2 and carry == 7
    assert not np.array_equal(jax.random.key_data(new.key), jax.random.key_data(state.key))
    np.testing.assert_array_equal(steps.output, np.arange(7))
    np.testing.assert_array_equal(steps.truncated[:, 0], [0, 0, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(steps.obs[0], state.obs)
    following = np.concatenate([steps.obs[1:], new.obs[None]])
    same = np.all(following == steps.next_obs, -1)
    np.testing.assert_array_equal(same, ~steps.done)  # elsewhere the next observation is of another episode
    np.testing.assert_array_equal(steps.info["episode_length"][2], [3, 3])


def test_a_recurrent_carry_hears_of_ends():
    venv, state = setup()

    def recurrent(key, obs, carry):
        return jnp.zeros(2, jnp.int32), carry, carry + 1

    def ended(carry, done):
        return jnp.where(done, 0, carry)

    _, carry, steps = rollout(venv, state, 7, recurrent, jnp.zeros(2, jnp.int32), ended)
    np.testing.assert_array_equal(steps.output[:, 0], [0, 1, 2, 0, 1, 2, 0])
    np.testing.assert_array_equal(carry, [1, 1])


def test_no_key_is_used_twice():
    venv, state = setup()
    steps = assert_no_key_reuse(lambda key: rollout(venv, state.replace(key=key), 3, act, 0)[2].reward, state.key)
    assert steps.shape == (3, 2)


def test_successor_values_by_hand():
    value = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    next_obs = jnp.array([[10.0, 20.0], [30.0, 40.0]])
    none = jnp.zeros((2, 2), bool)
    got = successor_values(lambda obs: 2 * obs, value, jnp.array([5.0, 6.0]), next_obs, none)
    np.testing.assert_array_equal(got, [[3, 4], [10, 12]])
    truncated = none.at[0, 1].set(True).at[1, 0].set(True)
    got = successor_values(lambda obs: 2 * obs, value, jnp.array([5.0, 6.0]), next_obs, truncated)
    np.testing.assert_array_equal(got, [[3, 40], [60, 12]])


@pytest.mark.slow
@pytest.mark.light
def test_minibatches_are_the_same_rows_on_every_platform():
    rng = np.random.default_rng(0)
    batch = {
        "obs": jnp.asarray(rng.normal(size=(12, 3)), jnp.float32),
        "image": jnp.asarray(rng.integers(0, 255, (12, 5, 4, 3)), jnp.uint8),
        "action": jnp.asarray(rng.integers(0, 9, 12), jnp.int32),
        "value": (jnp.asarray(rng.normal(size=12), jnp.float32), None),
        "mask": jnp.asarray(rng.random(12) < 0.5),
    }
    order = jnp.asarray(rng.permutation(12), jnp.int32)

    @jax.jit
    def both(batch, order):
        return minibatches(batch, order, 3), _in_order(batch, order)

    got, elsewhere = both(batch, order)
    for x, y, z in zip(*map(jax.tree.leaves, (batch, got, elsewhere)), strict=True):
        assert y.dtype == z.dtype == x.dtype
        np.testing.assert_array_equal(y, x[order].reshape(3, 4, *x.shape[1:]))
        np.testing.assert_array_equal(z, x[order])
    slope = jax.grad(lambda x: (_in_order({"x": x, "y": x * x}, order)["y"] * jnp.arange(12)).sum())(batch["value"][0])
    want = 2 * batch["value"][0] * jnp.argsort(order)
    np.testing.assert_allclose(slope, want, rtol=1e-6)
