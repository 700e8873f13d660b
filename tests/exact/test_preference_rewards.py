"""Rewards of tables from preferences: scores by hand, the values of policies, and what each model recovers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.exact import preference_rewards as rewards
from jaxrl.exact.mdp import tabulate
from jaxrl.exact.solvers import evaluate_policy, value_iteration

SEGMENTS = rewards.Segments(
    jnp.array([[[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [0.0, 0.0]]]),
    jnp.array([[0, 1], [2, 2]]),
    jnp.array([[1, 2], [0, 1]]),
    jnp.array([[False, True], [False, False]]),
    jnp.float32(0.5),
)


def test_scores_by_hand():
    weights, value = jnp.array([2.0, -1.0]), jnp.array([10.0, 20.0, 40.0])
    np.testing.assert_allclose(rewards.partial_returns(weights, SEGMENTS), [[2, -2], [1, 0]])
    expected = [[2 + 10 - 10, -2 + 0 - 20], [1 + 5 - 40, 0 + 10 - 40]]
    np.testing.assert_allclose(rewards.negative_regrets(weights, SEGMENTS, value), expected)


def test_soft_values():
    """Of two policies; at a low temperature the larger value, and its gradient that policy's features."""
    successor = jnp.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [3.0, 0.0]]])
    weights = jnp.array([1.0, 2.0])
    np.testing.assert_allclose(rewards.soft_values(weights, successor, 1e-3), [2.0, 3.0])
    gradient = jax.jacobian(rewards.soft_values)(weights, successor, 1e-3)
    np.testing.assert_allclose(gradient, [[0.0, 1.0], [3.0, 0.0]], atol=1e-6)
    share = 1 / (1 + np.exp(-1.0))
    np.testing.assert_allclose(
        rewards.soft_values(weights, successor, 1.0), [share * 2 + (1 - share), share * 3 + (1 - share) * 2], rtol=1e-6
    )


def test_the_weights_of_the_least_loss_are_kept():
    """Of one feature and noisy labels: sigmoid(w) is the share of pairs in which the feature won."""
    segments = SEGMENTS._replace(features=jnp.broadcast_to(jnp.array([[0.0], [1.0]]), (4, 2, 1)))
    label, start = jnp.array([1.0, 1.0, 1.0, 0.0]), jnp.zeros(1)
    fit = jax.jit(lambda rate: rewards.fit(lambda w: rewards.partial_returns(w, segments), label, start, rate, 300))
    found = fit(0.05)
    np.testing.assert_allclose(found.weights, np.log(3), atol=1e-2)
    np.testing.assert_allclose(found.losses[0], np.log(2), rtol=1e-6)
    rough = fit(30.0)
    assert rough.loss == rough.losses.min() <= rough.losses[-1] and rough.losses.shape == (301,)
    value = rewards.bradley_terry_loss(jnp.full(4, rough.weights[0]), label)
    np.testing.assert_allclose(value, rough.loss, rtol=1e-6)


@pytest.mark.parametrize("gamma", [0.9])
def test_scaled_returns(gamma):
    env, params = jaxrl.make("CliffWalking-v1")
    mdp = tabulate(env, params)
    best = value_iteration(mdp, gamma)
    np.testing.assert_allclose(rewards.scaled_return(mdp, best.policy, gamma), 1.0, atol=1e-3)
    up = jnp.zeros_like(best.policy)
    uniform = evaluate_policy(mdp, jnp.full((mdp.num_states, 4), 0.25), gamma) @ mdp.initial
    expected = (evaluate_policy(mdp, up, gamma) @ mdp.initial - uniform) / (best.value @ mdp.initial - uniform)
    np.testing.assert_allclose(rewards.scaled_return(mdp, up, gamma), expected, rtol=1e-3)
