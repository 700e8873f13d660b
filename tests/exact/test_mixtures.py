"""Mixtures against closed forms, scipy's densities and brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from jaxrl.exact import mixtures
from jaxrl.exact.mixtures import RIDGE, Mixture
from jaxrl.testing.assertions import assert_no_key_reuse

KEY = jax.random.key(0)
CENTRES = np.array([[0.2, 0.2], [0.8, 0.3], [0.4, 0.9]])


def blobs(which, n, seed=0, spread=0.03):
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, len(which), n)
    return jnp.asarray(CENTRES[which][cluster] + spread * rng.normal(size=(n, 2)), jnp.float32), cluster


FIT = jax.jit(mixtures.fit, static_argnums=3)
BEST = jax.jit(mixtures.fit_best, static_argnums=(2, 3))


def used(mixture):
    keep = np.asarray(mixture.weight) > 0
    order = np.argsort(np.asarray(mixture.mean)[keep, 0])
    return [np.asarray(leaf)[keep][order] for leaf in (mixture.weight, mixture.mean, mixture.covariance)]


@pytest.mark.slow
def test_factors():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(4, 5, 5))
    a = np.asarray(a @ a.transpose(0, 2, 1) + np.eye(5), np.float32)
    lower = jax.jit(jax.vmap(mixtures.cholesky))(a)
    np.testing.assert_allclose(lower, np.linalg.cholesky(a), rtol=1e-4, atol=1e-5)
    inverse = jax.jit(jax.vmap(mixtures.lower_inverse))(lower)
    np.testing.assert_allclose(inverse @ np.asarray(lower), np.broadcast_to(np.eye(5), a.shape), atol=1e-5)
    for rounding in (-1.2e-7, 0.0):  # what two close points leave of a second pivot
        lower = np.asarray(mixtures.cholesky(jnp.array([[1, 1], [1, 1 + rounding]], jnp.float32)))
        assert lower[1, 1] > 0 and np.isfinite(np.asarray(mixtures.lower_inverse(jnp.asarray(lower)))).all()


@pytest.mark.slow
@pytest.mark.light
def test_densities_are_scipys():
    x, _ = blobs([0, 1, 2], 40)
    covariance = np.array([[[0.02, 0.01], [0.01, 0.03]], [[0.05, -0.02], [-0.02, 0.04]], np.eye(2)])
    mixture = Mixture(jnp.array([0.3, 0.7, 0.0]), jnp.asarray(CENTRES, jnp.float32), jnp.asarray(covariance))
    parts = [w * multivariate_normal(CENTRES[k], covariance[k]).pdf(x) for k, w in enumerate([0.3, 0.7])]
    densities = mixtures.log_densities(mixture, x)
    np.testing.assert_allclose(densities[:, :2], np.log(parts).T, rtol=1e-4)
    assert (np.asarray(densities[:, 2]) == -np.inf).all()  # not in use
    log_likelihood = np.log(np.sum(parts, 0)).mean()
    np.testing.assert_allclose(mixtures.log_likelihood(mixture, x), log_likelihood, rtol=1e-5)
    # Two components of two dimensions: 2 means of 2, 2 covariances of 3, 1 free weight.
    np.testing.assert_allclose(mixtures.aic(mixture, x), 2 * (11 - 40 * log_likelihood), rtol=1e-5)


def test_one_component_is_the_samples_mean_and_covariance():
    x, _ = blobs([0, 1], 60)
    weight, mean, covariance = used(FIT(KEY, x, 1, 3))
    np.testing.assert_allclose(weight, [1])
    np.testing.assert_allclose(mean, [np.mean(x, 0)], rtol=1e-5)
    np.testing.assert_allclose(covariance, [np.cov(x.T, bias=True) + RIDGE * np.eye(2)], rtol=1e-4, atol=1e-7)


def test_two_separate_blobs_are_two_components():
    x, cluster = blobs([0, 1], 200)
    weight, mean, covariance = used(FIT(KEY, x, 2, 3))
    for k in range(2):
        mine = np.asarray(x)[cluster == k]
        np.testing.assert_allclose(weight[k], len(mine) / 200, rtol=1e-4)
        np.testing.assert_allclose(mean[k], mine.mean(0), rtol=1e-4)
        np.testing.assert_allclose(covariance[k], np.cov(mine.T, bias=True) + RIDGE * np.eye(2), rtol=1e-3, atol=1e-7)


def test_the_likelihood_never_falls():
    x = jax.random.uniform(KEY, (80, 2))
    start = Mixture(jnp.full(4, 0.25), x[:4], jnp.broadcast_to(0.1 * jnp.eye(2), (4, 2, 2)))
    _, values = jax.jit(lambda m: jax.lax.scan(lambda m, _: mixtures.em_step(m, x), m, length=60))(start)
    assert np.all(np.diff(values) > -1e-5) and values[-1] > values[0] + 0.1


def test_the_first_clusters_are_lloyds():
    x, _ = blobs([0, 1, 2], 50, spread=0.2)
    centres = mixtures.spread_centres(KEY, x, 3, 5)
    assert all((np.asarray(x) == c).all(1).any() for c in np.asarray(centres[:3]))
    assert len(np.unique(np.asarray(centres[:3]), axis=0)) == 3
    cluster = np.asarray(mixtures.k_means(x, centres, jnp.arange(5) < 3))
    means = np.stack([np.asarray(x)[cluster == k].mean(0) for k in range(3)])
    distance = ((np.asarray(x)[:, None] - means) ** 2).sum(-1)
    np.testing.assert_array_equal(cluster, distance.argmin(1))


@pytest.mark.slow
@pytest.mark.light
def test_greedy_centres_find_separate_blobs():
    x, cluster = blobs([0, 1, 2], 60, spread=0.01)
    centres = jax.vmap(lambda key: mixtures.spread_centres(key, x, 3, 3))(jax.random.split(KEY, 20))
    nearest = ((np.asarray(centres)[:, :, None] - CENTRES) ** 2).sum(-1).argmin(-1)
    assert (np.sort(nearest, 1) == np.arange(3)).all()


@pytest.mark.slow
@pytest.mark.parametrize("which", [[0, 1], [0, 1, 2]])
def test_akaike_finds_the_number_of_blobs(which):
    x, _ = blobs(which, 200)
    weight, mean, _ = used(BEST(KEY, x, 1, 4))
    assert len(weight) == len(which)
    np.testing.assert_allclose(mean, CENTRES[which][np.argsort(CENTRES[which][:, 0])], atol=0.02)


@pytest.mark.slow
@pytest.mark.light
def test_a_point_repeated_and_a_constant_coordinate_are_no_trouble():
    x = jnp.concatenate([jnp.zeros((20, 2)), jnp.stack([jnp.linspace(0, 1, 20), jnp.zeros(20)], 1)])
    mixture = BEST(KEY, x, 2, 4)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(mixture))
    same = BEST(KEY, jnp.ones((40, 2)), 2, 4)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(same))


def test_samples_are_of_the_components_that_are_preferred():
    covariance = np.array([[[0.02, 0.01], [0.01, 0.03]]] * 3, np.float32)
    mixture = Mixture(jnp.array([0.25, 0.75, 0.0]), 10 * jnp.asarray(CENTRES, jnp.float32), jnp.asarray(covariance))
    draw = jax.jit(mixtures.sample, static_argnums=2)

    def shares(x):
        return np.bincount(((x[:, None] - 10 * CENTRES) ** 2).sum(-1).argmin(1), minlength=3) / len(x)

    x = np.asarray(draw(KEY, mixture, 8000))
    np.testing.assert_allclose(shares(x), [0.25, 0.75, 0], atol=0.02)
    second = x[((x - 10 * CENTRES[1]) ** 2).sum(1) < 4]
    np.testing.assert_allclose(np.cov(second.T), covariance[1], atol=2e-3)
    for preference, expected in ([3.0, 1.0, 9.0], [0.75, 0.25, 0]), ([0.0, 0.0, 0.0], [0.5, 0.5, 0]):
        x = np.asarray(draw(KEY, mixture, 8000, jnp.array(preference)))
        np.testing.assert_allclose(shares(x), expected, atol=0.02)


@pytest.mark.slow
@pytest.mark.light
def test_a_batch_of_fits_is_the_single_fits():
    x = jnp.stack([blobs([0, 1, 2], 60, seed)[0] for seed in range(3)])
    keys = jax.random.split(KEY, 3)
    together = jax.jit(jax.vmap(lambda key, x: mixtures.fit_best(key, x, 2, 4)))(keys, x)
    for i in range(3):
        alone = BEST(keys[i], x[i], 2, 4)
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.light
def test_no_key_is_used_twice():
    x, _ = blobs([0, 1], 20)

    def both(key):
        fit_key, sample_key = jax.random.split(key)
        return mixtures.sample(sample_key, mixtures.fit_best(fit_key, x, 1, 2), 3)

    assert_no_key_reuse(both, jax.random.key(1))  # the checker remembers that KEY was used


@pytest.mark.parametrize("numbers", [(0, 2), (3, 2), (2, 30)])
def test_refuses_impossible_numbers(numbers):
    with pytest.raises(ValueError, match=f"from {numbers[0]} to {numbers[1]}"):
        mixtures.fit_best(KEY, jnp.zeros((20, 2)), *numbers)
