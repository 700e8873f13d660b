"""H2O: its pure functions and losses against numbers by hand, and what is refused."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algos import h2o
from jaxrl.data.transitions import Transition
from jaxrl.nn.actor_critic import TanhGaussian
from jaxrl.nn.distributions import TanhNormal
from jaxrl.replay.ring import Replay, uniform
from jaxrl.testing.probes import ObservationActionReward, Privileged
from jaxrl.testing.rules import step

KEY = jax.random.key(0)


def steps(obs, reward, terminated, next_obs):
    column = lambda x: jnp.asarray(x, jnp.float32)[:, None]  # noqa: E731
    ends = jnp.asarray(terminated)
    return Transition(column(obs), jnp.zeros((len(obs), 1)), jnp.asarray(reward, jnp.float32), ends, column(next_obs))


SIMULATED = steps([1, 2], [1, 0], [False, True], [1, 2])
REAL = steps([3, 1], [0, 2], [False, False], [0, 1])


class Linear:
    """Q = w s of a critic; the outputs -w s' / 2 and w s' / 2 of a discriminator, 0 where its last input is an action.

    They make the logit -4 tanh(s' / 2).
    """

    def apply(self, weights, x, action=None, mutable=None):
        values = weights * x[..., -1:] * jnp.array([-0.5, 0.5]) if action is None else weights * x[:, 0]
        return values if mutable is None else (values, {})


class Known(TanhNormal):
    """Actions 0, whose log-density is the state."""

    def mode(self):
        return jnp.zeros_like(self.mean)

    def sample_and_log_prob(self, key):
        return self.mode(), self.mean[:, 0]


class Zero(TanhGaussian):
    """An actor whose actions are 0."""

    def __call__(self, weights, obs):
        return Known(obs, obs)

    def explore(self, weights, key, obs, noise=None):
        return jnp.zeros_like(obs)


def reported(monkeypatch, trusting=False):
    """Of a step in which nothing moves: Q is s, and Q' half of it, twice."""
    monkeypatch.setattr(h2o, "NOISE", 0.0)
    monkeypatch.setattr(h2o, "SPREAD", 0.0)
    real = Replay(lambda item: (), None, lambda key, state, n: REAL)
    rule = h2o._H2O(h2o.Config(batch_size=2, trusting=trusting), real, Linear(), Linear(), Zero(nn.Module()))
    one = jnp.ones(())
    weights = {"discriminator": (one, one), "critic": jnp.ones(2), "actor": one, "log_alpha": jnp.log(0.5)}
    hyper = h2o.Hyper(gamma=0.5, min_q_weight=0.1, learning_rate=0.0)
    return step(rule, weights, {"critic": jnp.full(2, 0.5)}, SIMULATED, hyper, KEY)[0]


def test_trust_is_the_ratio_of_the_dynamics_and_clipped():
    ratios = h2o.log_ratio(jnp.array([-19.0, 0.5, 2.0, 3.0]), jnp.array([1.0, 1.5, 2.0, 1.0]))
    np.testing.assert_allclose(h2o.trust(ratios), [1e-5, np.exp(-1), 1, 1], rtol=1e-6)


def test_the_gap_is_the_mean_over_near_states_and_clipped():
    ratios = jnp.array([[-1.0, 2.0, -30.0], [-3.0, 4.0, -10.0]])
    np.testing.assert_allclose(h2o.dynamics_gap(ratios), [2, 0, 10])


def test_the_penalty_weighs_simulated_values_by_their_gap():
    q_sim, q_real = jnp.array([[np.log(4), np.log(8)], [0, 0]]), jnp.array([[1.0, 3.0], [2.0, 2.0]])
    expected = np.log(0.75 * 4 + 0.25 * 8) - 2 + np.log(1) - 2
    np.testing.assert_allclose(h2o.penalty(q_sim, jnp.array([3.0, 1.0]), q_real), expected, rtol=1e-5)


def test_simulated_values_without_a_gap_do_not_count():
    q_sim = jnp.array([[1.0, 5.0]])
    np.testing.assert_allclose(h2o.penalty(q_sim, jnp.array([1.0, 0.0]), jnp.zeros((1, 2))), 1, atol=1e-4)


class Sum:
    """A discriminator whose outputs are w times the sum of its inputs, and 0."""

    def apply(self, weights, x):
        return jnp.stack([weights * x.sum(-1), 0 * x.sum(-1)], -1)


def of_sums():
    return h2o._H2O(h2o.Config(batch_size=2), Replay(len, None, len), Sum(), Sum(), Zero(nn.Module()))


def test_logits_are_bounded_and_the_first_is_a_residual_on_the_second():
    np.testing.assert_allclose(h2o.logit(jnp.array([[0.5, -1.0]])), [2 * np.tanh(0.5) + 2 * np.tanh(1)], rtol=1e-6)
    obs, action, next_obs = (jnp.array([[x]]) for x in (1.0, 2.0, -4.0))
    sas, sa = of_sums().logits((jnp.float32(0.3), jnp.float32(0.2)), obs, action, next_obs)
    np.testing.assert_allclose(sa, [2 * np.tanh(0.2 * 3)], rtol=1e-6)
    np.testing.assert_allclose(sas, [2 * np.tanh(0.3 * -1) + 2 * np.tanh(0.2 * 3)], rtol=1e-6)
    np.testing.assert_allclose(h2o.log_ratio(sas, sa), [2 * np.tanh(-0.3)], rtol=1e-5)
    certain = h2o.logit(jnp.array([[1e3, -1e3], [-1e3, 1e3]]))
    np.testing.assert_allclose(certain, [4, -4])


@pytest.mark.slow
@pytest.mark.light
def test_the_gap_is_at_ten_states_that_deviate_as_real_ones_do():
    weights, deviation = (jnp.float32(-0.3), jnp.float32(0.7)), jnp.array([0.5])
    found = of_sums().gap(weights, KEY, SIMULATED, deviation)
    near = SIMULATED.next_obs + 0.5 * jax.random.normal(KEY, (10, 2, 1))
    ratios = 2 * np.tanh(-0.3 * (SIMULATED.obs + near)[..., 0])
    np.testing.assert_allclose(found, np.clip(-ratios.mean(0), 0, 10), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("trusting", [False, True])
def test_critic_loss(monkeypatch, trusting):
    found = reported(monkeypatch, trusting)
    gap = 4 * np.tanh([0.5, 1.0])  # of next states 1 and 2; the log ratios are its negative
    w = np.ones(2) if trusting else np.exp(-gap)
    simulated = np.mean(w * np.square([1 - 1.25, 2 - 0]))  # targets 1 + 0.5 * 0.5 * 1; 0, the end
    real = np.mean(np.square([3 - 0, 1 - 2.25]))
    low = np.log(gap @ np.exp([1, 2]) / gap.sum()) - 2  # the mean of real values is 2
    np.testing.assert_allclose(found["critic_loss"], 2 * (simulated + real + 0.1 * low), rtol=1e-5)
    np.testing.assert_allclose(found["trust"], w.mean(), rtol=1e-6)


def test_discriminators_give_real_steps_large_logits(monkeypatch):
    loss = reported(monkeypatch)["discriminator_loss"]
    softplus = lambda x: np.log1p(np.exp(np.asarray(x, float)))  # noqa: E731
    simulated = np.mean(softplus(-4 * np.tanh([0.5, 1.0]))) + np.log(2)
    real = np.mean(softplus(4 * np.tanh([0.0, 0.5]))) + np.log(2)  # next states 0 and 1
    np.testing.assert_allclose(loss, simulated + real, rtol=1e-5)


def test_the_actor_learns_on_states_of_both(monkeypatch):
    """mean alpha log pi - Q of the states 1, 2, 3 and 1, with log pi = s; the entropy of the temperature on 1 and 2."""
    found = reported(monkeypatch)
    np.testing.assert_allclose(found["actor_loss"], np.mean([1, 2, 3, 1]) * (0.5 - 1), rtol=1e-6)
    np.testing.assert_allclose(found["entropy"], -np.mean([1, 2, 3, 1]), rtol=1e-6)
    np.testing.assert_allclose(found["log_alpha_loss"], np.log(0.5) * (-1.5 + 1), rtol=1e-6)


def test_refusals():
    env = ObservationActionReward("box")
    for real in (None, uniform(8)):
        with pytest.raises(
            ValueError, match="h2o: real=.*; a dataset of the real system, or what datasets.stored makes of it"
        ):
            h2o.make(env, real=real)
    with pytest.raises(ValueError, match="h2o: observations are .*; its discriminators read a one-dimensional Box"):
        h2o.make(Privileged("box"), real=Replay(lambda item: (), None, len))
    with pytest.raises(ValueError, match="num_critics=0.*at least 1"):
        h2o.Config(num_critics=0)
