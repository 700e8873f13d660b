"""The diffusion model of transitions, against a normal distribution, whose optimal denoiser is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.data import diffusion
from jaxrl.data.datasets import Dataset

KEY = jax.random.key(0)
MEAN, VAR = np.array([1.0, -2.0], np.float32), np.array([0.25, 1.0], np.float32)


def optimal(x, sigma):
    """E[y | y + sigma noise = x] of y ~ N(MEAN, VAR)."""
    sigma = sigma[:, None]
    return (VAR * x + sigma**2 * MEAN) / (VAR + sigma**2)


def test_preconditioning_by_hand():
    found = diffusion.preconditioning(jnp.array([1.0, 3.0]))
    wanted = [[0.5, 0.1], [2**-0.5, 3 / 10**0.5], [2**-0.5, 10**-0.5], [0.0, np.log(3.0) / 4]]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    weights = diffusion.loss_weight(jnp.array([1.0, 3.0]))
    np.testing.assert_allclose(weights, [2.0, 10 / 9], rtol=1e-6)
    np.testing.assert_allclose(weights * found[1] ** 2, 1.0, rtol=1e-6)


def test_denoising_loss_by_hand():
    x, noise = jnp.array([[1.0], [2.0]]), jnp.array([[1.0], [-1.0]])
    found = diffusion.denoising_loss(lambda x, sigma: x, x, noise, jnp.array([1.0, 3.0]))
    np.testing.assert_allclose(found, (2 * 1 + 10 / 9 * 9) / 2, rtol=1e-6)


def test_noise_levels():
    levels = diffusion.noise_levels(diffusion.Config(num_steps=3, sigma_min=1.0, sigma_max=9.0, rho=2.0))
    np.testing.assert_allclose(levels, [9, 4, 1, 0])


def test_heun_by_hand():
    """dx/dsigma = x / sigma for a denoiser of zero: the line through the origin, which both orders follow."""
    x = jnp.array([[2.0]])
    np.testing.assert_allclose(diffusion.heun(lambda x, sigma: 0 * x, x, 4.0, 1.0), [[0.5]], rtol=1e-6)
    # D = x - sigma^2: the slope is sigma, of which the trapezium is exact: 2 + (1 - 16) / 2.
    curve = lambda x, sigma: x - sigma[:, None] ** 2  # noqa: E731
    np.testing.assert_allclose(diffusion.heun(curve, x, 4.0, 1.0), [[-5.5]], rtol=1e-6)
    np.testing.assert_allclose(diffusion.heun(curve, x, 4.0, 0.0), [[-14.0]], rtol=1e-6)


@pytest.mark.parametrize("churn", [0.0, 80.0])
def test_samples_of_a_normal_distribution_by_its_optimal_denoiser(churn):
    config = diffusion.Config(churn=churn, churn_noise=1.0)  # with 64 steps and churn deviations are 1 to 3 % too large
    x = diffusion.draw(KEY, optimal, (20_000, 2), config)
    np.testing.assert_allclose(x.mean(0), MEAN, atol=0.03)
    np.testing.assert_allclose(x.std(0), VAR**0.5, rtol=0.02)
    np.testing.assert_allclose(np.corrcoef(np.asarray(x).T)[0, 1], 0, atol=0.03)


def made(n, ended=None):
    rng = np.random.default_rng(0)
    obs = rng.normal([0.0, 10.0], [1.0, 3.0], (n, 2)).astype(np.float32)
    action = rng.uniform(-1, 1, (n, 1)).astype(np.float32)
    reward = obs[:, 0] + action[:, 0]
    ended = np.zeros(n, bool) if ended is None else ended(obs)
    return Dataset(obs, action, reward, ended, np.arange(n) % 10 == 9, obs + action)


def test_rows_and_back():
    dataset = made(30, lambda obs: obs[:, 0] > 0)
    rows = diffusion.to_rows(dataset)
    assert rows.shape == (30, 7)
    again = diffusion.of_rows(rows, dataset)
    assert again.last.all()
    jax.tree.map(np.testing.assert_array_equal, again.replace(last=dataset.last), dataset)
    never = made(5)
    assert diffusion.to_rows(never).shape == (5, 6), "no column for what is always the same"
    assert not diffusion.of_rows(diffusion.to_rows(never), never).terminated.any()
    always = made(5, lambda obs: np.ones(5, bool))
    assert diffusion.of_rows(diffusion.to_rows(always), always).terminated.all()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"observations of kind int32\(3, 2\)"):
        diffusion.synthesise(KEY, made(3).replace(obs=np.zeros((3, 2), np.int32)), 1)
    with pytest.raises(ValueError, match="observations of kind dict"):
        diffusion.synthesise(KEY, made(3).replace(obs={"x": np.zeros((3, 2))}), 1)
    with pytest.raises(ValueError, match="num=0"):
        diffusion.synthesise(KEY, made(3), 0)
    with pytest.raises(ValueError, match="num_steps=1"):
        diffusion.Config(num_steps=1)
    with pytest.raises(ValueError, match="sigma_min=2"):
        diffusion.Config(sigma_min=2.0, sigma_max=1.0)


@pytest.mark.slow
def test_synthetic_transitions_are_like_the_real_ones():
    config = diffusion.Config(num_updates=3000, batch_size=128, learning_rate=1e-3, width=64, num_steps=32)
    dataset = made(2000, lambda obs: obs[:, 0] > 0)
    found = diffusion.synthesise(KEY, dataset, 5000, config)
    assert found.size == 5000
    real, new = diffusion.to_rows(dataset), diffusion.to_rows(found)
    np.testing.assert_allclose(new.mean(0), real.mean(0), atol=0.2)
    np.testing.assert_allclose(new.std(0), real.std(0), rtol=0.1)
    np.testing.assert_allclose(np.corrcoef(new.T), np.corrcoef(real.T), atol=0.06)
    assert np.abs(found.reward - found.obs[:, 0] - found.action[:, 0]).mean() < 0.1, "what holds of each one"
    assert np.mean(found.terminated == (found.obs[:, 0] > 0)) > 0.9, "by chance: a half"


@pytest.mark.slow
def test_rows_given_others_have_their_modes():
    """Given g in {-1, 1}, rows at g - 1 and g + 1, and nothing between."""
    key, config = jax.random.key(1), diffusion.Config(2000, 128, 1e-3, width=32, num_blocks=1, num_steps=16)
    given, mode = np.random.default_rng(0).choice([-1, 1], (2, 2000, 1)).astype(np.float32)
    weights, _ = diffusion.fit(key, jnp.asarray(given + mode), config, jnp.asarray(given))
    found = diffusion.draw(key, diffusion.denoiser(config, weights, jnp.asarray(given)), (2000, 1), config)
    share = [np.mean(np.abs(found - given - m) < 0.3) for m in (-1, 1)]
    np.testing.assert_allclose(share, 0.5, atol=0.1)
