"""Heads and layers of action values against arrays worked out by hand, and exploration by its probabilities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algos import dqn
from jaxrl.environment import strongly_typed
from jaxrl.nn.action_values import NoisyDense, QNetwork, dueling_values, epsilon_at, epsilon_greedy
from jaxrl.spaces import Box


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-6, "atol": 1e-7, **tolerance})


@pytest.mark.slow
@pytest.mark.light
def test_dueling_head():
    value, advantage = jnp.array([2.0, -1.0]), jnp.array([[1.0, 3.0, 5.0], [0.0, 0.0, 3.0]])
    q = dueling_values(value, advantage)
    close(q, [[0, 2, 4], [-2, -2, 1]])
    close(q.mean(-1), value)
    close(dueling_values(value, advantage + 7), q, rtol=1e-5)
    net = QNetwork(Box(-1.0, 1.0, (4,)), 3, (8,), "relu", True)
    weights = net.init(jax.random.key(0), jnp.zeros(4))
    head = weights["params"]["MLP_0"]["Dense_1"]["kernel"]
    assert head.shape == (8, 4)
    assert net.apply(weights, jnp.zeros((2, 5, 4))).shape == (2, 5, 3)
    shifted = jax.tree.map(lambda x: x, weights)
    shifted["params"]["MLP_0"]["Dense_1"]["bias"] = jnp.array([1.0, 0.0, 0.0, 0.0])
    close(net.apply(shifted, jnp.ones(4)) - net.apply(weights, jnp.ones(4)), 1, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.light
def test_dueling_is_a_sum_of_logits():
    net = QNetwork(Box(-1.0, 1.0, (2,)), 3, (4,), "relu", True, num_outputs=5)
    weights = net.init(jax.random.key(0), jnp.zeros(2))
    bias = jnp.arange(20.0).reshape(4, 5)
    weights["params"]["MLP_0"]["Dense_1"] = {"kernel": jnp.zeros((4, 20)), "bias": bias.reshape(-1)}
    close(net.apply(weights, jnp.zeros((7, 2)))[3], bias[0] + bias[1:] - bias[1:].mean(0))


def test_noisy_layer():
    layer, x = NoisyDense(3), jnp.array([[1.0, -2.0], [0.0, 0.0]])
    weights = layer.init(jax.random.key(0), x)
    p = weights["params"]
    assert max(abs(p["kernel"]).max(), abs(p["bias"]).max()) <= 2**-0.5
    close(p["kernel_sigma"], 0.5 / 2**0.5)
    mean = layer.apply(weights, x)
    close(mean, x @ p["kernel"] + p["bias"])
    draws = jax.vmap(lambda k: layer.apply(weights, x, rngs={"noise": k}))(jax.random.split(jax.random.key(1), 20_000))
    # f(e)^2 = |e| has the mean sqrt(2 / pi): once in the variance of the noise of a bias, squared in that of a weight.
    spread = 0.5**2 / 2
    close(draws.mean(0), mean, atol=0.02)
    size = np.sqrt(2 / np.pi)
    close(draws[:, 1].var(0), spread * size, rtol=0.05)
    close(draws[:, 0].var(0), spread * (5 * size**2 + size), rtol=0.05)
    assert len(np.unique(np.asarray(draws[:50, 0, 0]))) == 50


def test_epsilon_schedule():
    hyper = strongly_typed(dqn.Hyper(epsilon_start=0.9, epsilon_end=0.1, exploration_steps=100))
    for step, epsilon in ((0, 0.9), (25, 0.7), (100, 0.1), (10**6, 0.1)):
        close(epsilon_at(jnp.int32(step), hyper), epsilon)
    close(epsilon_at(jnp.int32(0), hyper.replace(exploration_steps=jnp.int32(0))), 0.1)


@pytest.mark.slow
@pytest.mark.light
def test_epsilon_greedy_probabilities():
    q, mask = jnp.array([[1.0, 3.0, 2.0], [1.0, 3.0, 2.0]]), jnp.array([[1, 1, 1], [1, 0, 1]], bool)
    pi = epsilon_greedy(q, 0.3, mask)
    close(jax.nn.softmax(pi.logits), [[0.1, 0.8, 0.1], [0.15, 0, 0.85]], atol=1e-6)
    np.testing.assert_array_equal(pi.mode(), [1, 2])
    close(jax.nn.softmax(epsilon_greedy(q[0], 0.3).logits), [0.1, 0.8, 0.1], atol=1e-6)
    close(jax.nn.softmax(epsilon_greedy(q, 0.0, mask).logits), [[0, 1, 0], [0, 0, 1]])
    # All random: the mode is then any allowed action, drawing as likely as said.
    pi = epsilon_greedy(jnp.broadcast_to(q[1], (9000, 3)), 1.0, jnp.broadcast_to(mask[1], (9000, 3)))
    close(np.bincount(pi.sample(jax.random.key(0)), minlength=3) / 9000, [0.5, 0, 0.5], atol=0.02)
