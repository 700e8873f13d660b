"""The pure functions and losses of `experiments/wrong_simulator`, by hand."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.data.transitions import Transition

KEY = jax.random.key(0)


@pytest.fixture
def h2o(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "experiments" / "wrong_simulator"))
    module = importlib.import_module("h2o")
    monkeypatch.setattr(module, "NOISE", 0.0)
    return module


def steps(obs, reward, terminated, next_obs):
    column = lambda x: jnp.asarray(x, jnp.float32)[:, None]  # noqa: E731
    ends = jnp.asarray(terminated)
    return Transition(column(obs), jnp.zeros((len(obs), 1)), jnp.asarray(reward, jnp.float32), ends, column(next_obs))


SIMULATED = steps([1, 2], [1, 0], [False, True], [1, 2])
REAL = steps([3, 1], [0, 2], [False, False], [0, 1])


def learner(trusting=False):
    """Q = w s, twice; logits of the discriminators -w s' and 0."""
    return SimpleNamespace(
        config=SimpleNamespace(batch_size=2),
        trusting=trusting,
        reals=lambda key: REAL,
        distribution=lambda weights, obs: SimpleNamespace(sample=lambda key: jnp.zeros_like(obs)),
        act_values=lambda w, obs, action: jnp.stack([w * obs[:, 0]] * 2),
        logits=lambda w, obs, action, next_obs: (-w * next_obs[..., 0], jnp.zeros(next_obs.shape[:-1])),
    )


def test_trust_is_the_ratio_of_the_dynamics_and_clipped(h2o):
    ratios = h2o.log_ratio(jnp.array([-19.0, 0.5, 2.0, 3.0]), jnp.array([1.0, 1.5, 2.0, 1.0]))
    np.testing.assert_allclose(h2o.trust(ratios), [1e-5, np.exp(-1), 1, 1], rtol=1e-6)


def test_the_gap_is_the_mean_over_near_states_and_clipped(h2o):
    ratios = jnp.array([[-1.0, 2.0, -30.0], [-3.0, 4.0, -10.0]])
    np.testing.assert_allclose(h2o.dynamics_gap(ratios), [2, 0, 10])


def test_the_penalty_weighs_simulated_values_by_their_gap(h2o):
    q_sim, q_real = jnp.array([[np.log(4), np.log(8)], [0, 0]]), jnp.array([[1.0, 3.0], [2.0, 2.0]])
    expected = np.log(0.75 * 4 + 0.25 * 8) - 2 + np.log(1) - 2
    np.testing.assert_allclose(h2o.penalty(q_sim, jnp.array([3.0, 1.0]), q_real), expected, rtol=1e-5)


def test_simulated_values_without_a_gap_do_not_count(h2o):
    q_sim = jnp.array([[1.0, 5.0]])
    np.testing.assert_allclose(h2o.penalty(q_sim, jnp.array([1.0, 0.0]), jnp.zeros((1, 2))), 1, atol=1e-4)


@pytest.mark.parametrize("trusting", [False, True])
def test_critic_loss(h2o, trusting):
    weights, hyper = {"actor": None, "discriminator": 1.0}, SimpleNamespace(gamma=0.5, min_q_weight=0.1)
    loss, found = h2o.H2O.critic_loss(learner(trusting), 1.0, weights, {"critic": 0.5}, KEY, SIMULATED, hyper)
    w = np.ones(2) if trusting else np.exp([-1.0, -2.0])  # log ratios -1, -2
    simulated = np.mean(w * np.square([1 - 1.25, 2 - 0]))  # targets 1 + 0.5 * 0.5 * 1; 0, the end
    real = np.mean(np.square([3 - 0, 1 - 2.25]))
    low = np.log(np.e / 3 + 2 * np.e**2 / 3) - 2  # gaps 1 and 2; the mean of real values is 2
    np.testing.assert_allclose(loss, 2 * (simulated + real + 0.1 * low), rtol=1e-5)
    np.testing.assert_allclose(found["trust"], w.mean(), rtol=1e-6)


def test_discriminators_give_real_steps_large_logits(h2o):
    loss, _ = h2o.H2O.discriminator_loss(learner(), 1.0, {}, {}, KEY, SIMULATED, None)
    softplus = lambda x: np.log1p(np.exp(np.asarray(x, float)))  # noqa: E731
    simulated = np.mean(softplus([-1, -2])) + np.log(2)
    real = np.mean(softplus([0, 1])) + np.log(2)  # logits 0 and -1
    np.testing.assert_allclose(loss, simulated + real, rtol=1e-5)
