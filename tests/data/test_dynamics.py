"""The learned model: what it recovers of a linear system, its elites, and measures of uncertainty by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.data import dynamics
from jaxrl.data.datasets import Dataset

KEY = jax.random.key(0)
NOISE = np.array([0.1, 0.3], np.float32)
CONFIG = dynamics.Config(
    num_members=3, num_elites=2, hidden=(16,), num_checks=6, num_updates=150, batch_size=64, activation="tanh"
)


def linear_data(n=2000):
    """next_obs = obs + 0.5 action (1, -1) + noise, reward 10 (obs_0 + action)."""
    rng = np.random.default_rng(0)
    obs, action = rng.uniform(-1, 1, (n, 2)).astype(np.float32), rng.uniform(-1, 1, (n, 1)).astype(np.float32)
    next_obs = obs + 0.5 * action * np.array([1, -1], np.float32) + NOISE * rng.normal(size=(n, 2)).astype(np.float32)
    last = np.ones(n, bool)
    return Dataset(obs, action, 10 * (obs[:, 0] + action[:, 0]), ~last, last, next_obs)


@pytest.fixture(scope="module")
def fitted():
    return dynamics.fit(KEY, linear_data(), CONFIG, dynamics.Hyper(learning_rate=jnp.float32(5e-3)))


@pytest.mark.slow
@pytest.mark.light
def test_recovers_a_linear_system_and_its_noise(fitted):
    ensemble, errors = fitted
    obs, action = jnp.array([[0.0, 0.0], [0.5, -0.5]]), jnp.array([[0.5], [-0.5]])
    mean, std = dynamics.predict(ensemble, obs, action)
    assert mean.shape == std.shape == (2, 2, 3) and errors.shape == (6, 3)
    for member in range(2):
        np.testing.assert_allclose(mean[member], [[0.25, -0.25, 5.0], [-0.25, 0.25, 0.0]], atol=0.15)
        np.testing.assert_allclose(std[member, :, :2], np.broadcast_to(NOISE, (2, 2)), rtol=0.25)
    assert std[..., 2].max() < 0.5  # the reward has no noise
    assert np.all(errors[-1] < errors[0])


def test_keeps_the_elites(fitted):
    """The held-out error of what was kept is the least that was seen of the best members."""
    ensemble, errors = fitted
    least = np.sort(np.asarray(errors).min(0))
    assert len(ensemble.low) == 2
    data = linear_data()
    order = jax.random.permutation(jax.random.split(KEY, 3)[0], data.size)[:400]
    mean, _ = dynamics.predict(ensemble, jnp.asarray(data.obs)[order], jnp.asarray(data.action)[order])
    target = jnp.concatenate([data.next_obs - data.obs, data.reward[:, None]], -1)[order]
    found = jnp.mean(((mean - target) / ensemble.targets.std) ** 2, (1, 2))
    np.testing.assert_allclose(found, least[:2], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.light
def test_predictor_draws_elites_and_noise_and_asks_the_task_for_its_ends(fitted):
    ensemble, _ = fitted
    model = dynamics.predictor(ensemble, dynamics.disagreement, lambda obs, action, next_obs: next_obs[:, 0] > 0)
    obs, action = jnp.zeros((3000, 2)), jnp.zeros((3000, 1))
    next_obs, reward, terminated, uncertainty = jax.jit(model)(KEY, obs, action)
    np.testing.assert_allclose(jnp.std(next_obs, 0), NOISE, rtol=0.3)
    np.testing.assert_array_equal(terminated, next_obs[:, 0] > 0)
    mean, std = dynamics.predict(ensemble, obs[:1], action[:1])
    np.testing.assert_allclose(uncertainty, jnp.linalg.norm(mean[0, 0] - mean[1, 0]), rtol=1e-4)
    np.testing.assert_allclose(dynamics.uncertainties(ensemble, linear_data(8)).shape, (8,))
    assert reward.shape == (3000,)


def test_measures_by_hand():
    mean = jnp.array([[[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 1.0]]])
    std = jnp.array([[[1.0, 0.0]], [[0.6, 0.8]], [[2.0, 0.0]]])
    np.testing.assert_allclose(dynamics.largest_std(mean, std), [2.0])
    np.testing.assert_allclose(dynamics.disagreement(mean, std), [5.0])


def test_losses_by_hand():
    zero = jnp.zeros((1, 2, 1))
    np.testing.assert_allclose(dynamics.likelihood_loss(zero, zero + np.log(4.0), zero + 2.0), 1 + np.log(4), rtol=1e-6)
    x = jnp.array([-100.0, 0.0, 100.0])
    np.testing.assert_allclose(dynamics.bounded(x, jnp.full(3, -10.0), jnp.full(3, 0.5)), [-10, -0.474, 0.5], atol=1e-3)


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match="num_elites=5"):
        dynamics.Config(num_members=3)
    with pytest.raises(ValueError, match="validation_share=1"):
        dynamics.Config(validation_share=1.0)
    data = linear_data(4)
    with pytest.raises(ValueError, match="flat ones"):
        dynamics.fit(KEY, data.replace(obs={"a": data.obs}))
    with pytest.raises(ValueError, match="1 steps"):
        dynamics.fit(KEY, linear_data(1))
