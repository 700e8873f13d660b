"""Distributions against scipy, at ordinary and extreme inputs, and their gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

from jaxrl.nn.distributions import (
    Beta,
    Categorical,
    MultiCategorical,
    Normal,
    TanhNormal,
    invert_cdf,
    mask_logits,
    num_outputs,
    of_space,
)
from jaxrl.spaces import Box, Discrete, MultiDiscrete

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def f32(x):
    return jnp.asarray(x, jnp.float32)


LOGITS = f32(RNG.normal(size=(3, 4)) * 2)
MEAN, LOG_STD = f32(RNG.normal(size=(5, 2))), f32([-0.7, 0.4])
ALPHA, BETA = f32(RNG.uniform(0.5, 6, (5, 2))), f32(RNG.uniform(0.5, 6, (5, 2)))

EXAMPLES = {
    "categorical": Categorical(LOGITS),
    "many": Categorical(f32(RNG.normal(size=(3, 40)))),
    "multi": MultiCategorical(f32(RNG.normal(size=(3, 5))), (2, 3)),
    "normal": Normal(MEAN, LOG_STD),
    "tanh_normal": TanhNormal(MEAN, LOG_STD),
    "beta": Beta(ALPHA, BETA),
}


@functools.cache
def draws(name, count=20_000):
    """Samples (count, ...) of an example and their log-probabilities, in one call."""
    keys = jax.random.split(KEY, count)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(EXAMPLES[name].sample_and_log_prob))(keys))


def test_categorical_matches_scipy():
    p = scipy.special.softmax(np.asarray(LOGITS, np.float64), -1)
    d, q = Categorical(LOGITS), Categorical(LOGITS[::-1])
    for a in range(4):
        np.testing.assert_allclose(d.log_prob(jnp.full(3, a)), np.log(p[:, a]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(d.entropy(), [scipy.stats.entropy(row) for row in p], rtol=1e-5)
    np.testing.assert_allclose(d.kl(q), [scipy.stats.entropy(a, b) for a, b in zip(p, p[::-1], strict=True)], rtol=1e-4)
    np.testing.assert_array_equal(d.mode(), p.argmax(-1))


@pytest.mark.parametrize("name", ["categorical", "many"])
def test_categorical_samples_follow_the_probabilities(name):
    p = scipy.special.softmax(np.asarray(EXAMPLES[name].logits, np.float64), -1)
    samples, _ = draws(name)
    for row in range(3):
        counts = np.bincount(samples[:, row], minlength=p.shape[1])
        assert scipy.stats.chisquare(counts, p[row] * counts.sum()).pvalue > 1e-4


def test_multi_categorical_is_a_product_of_its_entries():
    d = EXAMPLES["multi"]
    first, second = Categorical(d.logits[:, :2]), Categorical(d.logits[:, 2:])
    x = jnp.array([[0, 2], [1, 0], [1, 1]])
    np.testing.assert_allclose(d.log_prob(x), first.log_prob(x[:, 0]) + second.log_prob(x[:, 1]), rtol=1e-6)
    np.testing.assert_allclose(d.entropy(), first.entropy() + second.entropy(), rtol=1e-6)
    other = MultiCategorical(-d.logits, d.nvec)
    expected = first.kl(Categorical(-first.logits)) + second.kl(Categorical(-second.logits))
    np.testing.assert_allclose(d.kl(other), expected, rtol=1e-5)
    np.testing.assert_array_equal(d.mode(), np.stack([first.mode(), second.mode()], -1))
    samples, _ = draws("multi")
    joint = np.exp(first.log_prob(jnp.zeros(3, int)))[:, None] * np.exp(jax.nn.log_softmax(second.logits))
    for row in range(3):
        counts = np.bincount(samples[samples[:, row, 0] == 0, row, 1], minlength=3)
        np.testing.assert_allclose(counts / len(samples), joint[row], atol=0.015)


def test_multi_categorical_refuses_logits_of_another_width():
    with pytest.raises(ValueError, match=r"5 logits; nvec=\(2, 2\) needs 4"):
        MultiCategorical(jnp.zeros(5), (2, 2)).mode()


@pytest.mark.slow(but_first=2)
@pytest.mark.light
@pytest.mark.parametrize("name", EXAMPLES)
def test_sample_and_log_prob_agree_with_both(name):
    @jax.jit
    def everything(d, key):
        x, log_prob = d.sample_and_log_prob(key)
        return x, d.sample(key), log_prob, d.log_prob(x), d.kl(d), d.entropy()

    x, sample, log_prob, expected, kl, entropy = everything(EXAMPLES[name], KEY)
    np.testing.assert_array_equal(x, sample)
    np.testing.assert_allclose(log_prob, expected, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(kl, 0, atol=2e-5)
    assert log_prob.shape == entropy.shape == kl.shape == EXAMPLES[name].mode().shape[: log_prob.ndim]


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.parametrize("name", EXAMPLES)
def test_entropy_is_the_expected_surprise(name):
    _, log_prob = draws(name)
    error = 5 * log_prob.std(0) / np.sqrt(len(log_prob)) + 1e-5
    assert (np.abs(-log_prob.mean(0) - EXAMPLES[name].entropy()) < error).all()


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.parametrize("name", ["many", "multi", "normal", "tanh_normal", "beta"])
def test_vmap_and_pytree(name):
    d, x = EXAMPLES[name], jnp.asarray(draws(name)[0][0])
    vmapped = jax.jit(jax.vmap(lambda d, x: d.log_prob(x), (_batched(d), 0)))
    np.testing.assert_allclose(vmapped(d, x), draws(name)[1][0], rtol=2e-4, atol=2e-5)


def _batched(d):
    return jax.tree.map(lambda leaf: 0 if leaf.ndim > 1 else None, d)


@pytest.mark.slow
def test_masked_actions_never_happen_and_leave_everything_finite():
    mask = jnp.array([[True, False, True, False], [False, False, False, True], [True, True, True, True]])
    logits = LOGITS * 10

    def everything(logits):
        d = Categorical(mask_logits(logits, mask))
        return d.log_prob(jnp.array([0, 3, 1])) + d.entropy() + d.kl(Categorical(mask_logits(-logits, mask)))

    d = Categorical(mask_logits(logits, mask))
    samples = jax.vmap(d.sample)(jax.random.split(KEY, 5000))
    assert mask[jnp.arange(3), samples].all() and mask[jnp.arange(3), d.mode()].all()
    slope = jax.grad(lambda x: everything(x).sum())
    value, gradient, second = jax.jit(lambda x: (everything(x), slope(x), jax.jacobian(slope)(x)))(logits)
    assert np.isfinite(value).all() and np.isfinite(gradient).all() and np.isfinite(second).all()
    assert (np.asarray(gradient)[~mask] == 0).all()
    np.testing.assert_allclose(d.entropy()[1], 0, atol=1e-6)
    assert (np.exp(d.log_prob(jnp.array([1, 0, 0])))[:2] == 0).all()
    assert np.isfinite(d.log_prob(jnp.array([1, 0, 0]))).all()
    half = Categorical(mask_logits(logits.astype(jnp.float16), mask))
    assert np.isfinite(half.log_prob(jnp.array([1, 0, 0]))).all()


def test_invert_cdf_gives_nothing_to_a_category_without_mass():
    mass = f32([0, 1 / 3, 0, 1 / 7, 0])
    below_one = np.nextafter(np.float32(1), np.float32(0))
    u = f32([0, 0.69, 0.71, below_one])
    np.testing.assert_array_equal(invert_cdf(u, jnp.broadcast_to(mass, (4, 5))), [1, 1, 3, 3])


def test_normal_matches_scipy():
    d, q = Normal(MEAN, LOG_STD), Normal(-MEAN, LOG_STD - 0.3)
    x = MEAN + 1.3
    mean, std = np.asarray(MEAN, np.float64), np.exp(np.asarray(LOG_STD, np.float64))
    np.testing.assert_allclose(d.log_prob(x), scipy.stats.norm.logpdf(x, mean, std).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(d.entropy(), np.full(5, scipy.stats.norm.entropy(mean, std)[0].sum()), rtol=1e-5)
    std_q = std * np.exp(-0.3)
    kl = (np.log(std_q / std) + (std**2 + (2 * mean) ** 2) / (2 * std_q**2) - 0.5).sum(-1)
    np.testing.assert_allclose(d.kl(q), kl, rtol=1e-5)
    samples, _ = draws("normal")
    assert scipy.stats.kstest((samples[:, 0, 1] - mean[0, 1]) / std[1], "norm").pvalue > 1e-4


@pytest.mark.parametrize("log_std", [-40.0, 40.0])
def test_normal_at_extreme_scales(log_std):
    d = Normal(jnp.ones(1), f32([log_std]))
    x, log_prob = d.sample_and_log_prob(KEY)
    assert np.isfinite(log_prob) and np.isfinite(d.log_prob(x)) and np.isfinite(d.entropy())
    assert np.isfinite(jax.grad(lambda m: Normal(m, d.log_std).log_prob(x).sum())(d.mean)).all()


def test_tanh_normal_density_and_entropy():
    mean, std = 0.4, 0.8
    d = TanhNormal(f32([mean]), jnp.log(f32([std])))

    def density(x):
        return scipy.stats.norm.pdf(np.arctanh(x), mean, std) / (1 - x**2)

    x = np.linspace(-0.99, 0.99, 9)
    np.testing.assert_allclose(jax.vmap(d.log_prob)(f32(x)[:, None]), np.log(density(x)), rtol=2e-5)
    expected = scipy.integrate.quad(lambda x: -density(x) * np.log(density(x)), -1 + 1e-9, 1 - 1e-9)[0]
    np.testing.assert_allclose(d.entropy(), expected, atol=1e-5)
    np.testing.assert_allclose(d.mode(), np.tanh([mean])[0], rtol=1e-6)
    np.testing.assert_array_equal(d.kl(TanhNormal(d.mean + 1, d.log_std)), d.base.kl(Normal(d.mean + 1, d.log_std)))


@pytest.mark.parametrize(("std", "error"), [(0.1, 1e-6), (1.0, 1e-6), (2.0, 2e-4), (7.0, 0.07)])
def test_tanh_normal_entropy_is_as_accurate_as_it_says(std, error):
    def log_det(u):
        return scipy.stats.norm.pdf(u, 0, std) * 2 * (np.log(2) - u - np.logaddexp(0, -2 * u))

    expected = scipy.stats.norm.entropy(0, std) + scipy.integrate.quad(log_det, -12 * std, 12 * std, points=[0])[0]
    assert abs(float(TanhNormal(jnp.zeros(1), jnp.log(f32([std]))).entropy()) - expected) <= error


def test_tanh_normal_where_actions_round_to_one():
    d = TanhNormal(f32([50.0, -50.0]), f32([0.0, 0.0]))
    x, log_prob = d.sample_and_log_prob(KEY)
    np.testing.assert_array_equal(x, [1, -1])
    # The density of such an action, in logarithms: -u^2/2 terms plus 2 (|u| - log 2) an entry.
    assert 150 < float(log_prob) < 250
    value, gradient = jax.jit(jax.value_and_grad(lambda m: TanhNormal(m, d.log_std).log_prob(x)))(d.mean)
    assert np.isfinite(value) and np.isfinite(gradient).all()
    gradient = jax.jit(jax.grad(lambda m: TanhNormal(m, d.log_std).sample_and_log_prob(KEY)[1]))(d.mean)
    np.testing.assert_allclose(gradient, [2, -2], rtol=1e-4)


@pytest.mark.slow
@pytest.mark.light
def test_beta_matches_scipy():
    a, b = np.asarray(ALPHA, np.float64), np.asarray(BETA, np.float64)
    d = Beta(ALPHA, BETA)
    x = f32(RNG.uniform(0.01, 0.99, (5, 2)))
    expected = scipy.stats.beta.logpdf(np.asarray(x, np.float64), a, b).sum(-1)
    np.testing.assert_allclose(d.log_prob(x), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(d.entropy(), scipy.stats.beta.entropy(a, b).sum(-1), rtol=1e-4, atol=2e-5)

    def kl(a, b, c, d):
        def f(x):
            return scipy.stats.beta.pdf(x, a, b) * (scipy.stats.beta.logpdf(x, a, b) - scipy.stats.beta.logpdf(x, c, d))

        return scipy.integrate.quad(f, 0, 1)[0]

    expected = kl(2.0, 3.0, 4.0, 1.5)
    np.testing.assert_allclose(Beta(f32([2]), f32([3])).kl(Beta(f32([4]), f32([1.5]))), expected, rtol=1e-4)
    samples, _ = draws("beta")
    assert scipy.stats.kstest(samples[:, 0, 0], scipy.stats.beta(a[0, 0], b[0, 0]).cdf).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.light
def test_beta_mode_and_ends():
    d = Beta(f32([3.0, 1.0, 0.5]), f32([2.0, 1.0, 0.5]))
    np.testing.assert_allclose(d.mode(), [2 / 3, 0.5, 0.5], rtol=1e-6)
    assert np.isfinite(jax.grad(lambda a: Beta(a, d.beta).mode().sum())(d.alpha)).all()
    log_prob = jax.jit(jax.value_and_grad(lambda alpha, x: Beta(alpha, d.beta).log_prob(x)))
    for end in (0.0, 1.0):
        value, slope = log_prob(d.alpha, jnp.full(3, end))
        assert np.isfinite(value) and np.isfinite(slope).all()
    tiny = Beta(jnp.full((100, 1), 1e-2), jnp.full((100, 1), 1e-2))
    x, log_prob = jax.jit(tiny.sample_and_log_prob)(KEY)
    assert ((x > 0) & (x < 1)).all() and np.isfinite(log_prob).all()


@pytest.mark.parametrize(("a", "b"), [(1000.0, 1000.0), (1000.0, 10.0), (30.0, 1000.0)])
def test_beta_is_as_accurate_as_it_says(a, b):
    d, x = Beta(f32([a]), f32([b])), np.float32(a / (a + b))
    assert abs(float(d.log_prob(f32([x]))) - scipy.stats.beta.logpdf(float(x), a, b)) < 2e-4 * 5
    assert abs(float(d.entropy()) - scipy.stats.beta.entropy(a, b)) < 2e-3


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", ["normal", "tanh_normal", "beta"])
def test_reparameterised_gradient_is_that_of_the_expectation(name):
    """d E[x] / d (first parameter): finite differences of the exact mean against the mean of the samples' gradients."""
    make, first, second = {
        "normal": (Normal, 0.3, -0.5),
        "tanh_normal": (TanhNormal, 0.3, -0.5),
        "beta": (Beta, 2.0, 3.0),
    }[name]

    def mean(p):
        if name == "beta":
            return p / (p + second)
        f = np.tanh if name == "tanh_normal" else (lambda u: u)
        std = np.exp(second)
        return scipy.integrate.quad(lambda u: f(u) * scipy.stats.norm.pdf(u, p, std), p - 12 * std, p + 12 * std)[0]

    expected = (mean(first + 1e-4) - mean(first - 1e-4)) / 2e-4
    keys = jax.random.split(KEY, 4000)
    slope = jax.grad(lambda p, key: make(p[None], f32([second])).sample(key)[0])
    gradient = jax.jit(jax.vmap(slope, (None, 0)))(f32(first), keys)
    np.testing.assert_allclose(np.mean(gradient), expected, atol=5 * np.std(gradient) / np.sqrt(4000) + 1e-4)


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.parametrize("name", EXAMPLES)
def test_second_derivatives_are_finite(name):
    d, x = EXAMPLES[name], jnp.asarray(draws(name)[0][0])
    leaf = jax.tree.leaves(d)[0]
    structure, others = jax.tree.structure(d), jax.tree.leaves(d)[1:]

    def f(leaf):
        d = jax.tree.unflatten(structure, [leaf, *others])
        return jnp.sum(d.log_prob(x) + d.entropy() + d.kl(EXAMPLES[name]))

    direction = jnp.ones_like(leaf)
    second = jax.jit(lambda leaf: jax.jvp(jax.grad(f), (leaf,), (direction,))[1])(leaf)
    assert np.isfinite(second).all()


@pytest.mark.slow
@pytest.mark.light
def test_extreme_logits():
    d = Categorical(f32([[1e6, 0.0, -1e6], [300.0, 300.0, -300.0]]))
    np.testing.assert_allclose(d.log_prob(jnp.array([0, 1])), [0, -np.log(2)], atol=1e-6)
    np.testing.assert_allclose(d.entropy(), [0, np.log(2)], atol=1e-6)
    assert np.isfinite(jax.grad(lambda x: Categorical(x).entropy().sum())(d.logits)).all()


@pytest.mark.slow
@pytest.mark.light
def test_of_space_by_the_kind_of_space():
    logits = jnp.zeros((4, 5))
    assert isinstance(of_space(Discrete(5), logits), Categorical) and num_outputs(Discrete(5)) == 5
    multi = of_space(MultiDiscrete((2, 3)), logits, jnp.ones((4, 5), bool).at[:, 0].set(False))
    assert num_outputs(MultiDiscrete((2, 3))) == 5
    assert np.all(multi.sample(jax.random.key(0))[:, 0] == 1)
    normal = of_space(Box(-1.0, 1.0, (5,)), (logits, jnp.ones(5)))
    assert normal.log_std.shape == (4, 5) and num_outputs(Box(-1.0, 1.0, (5,))) == 5
    with pytest.raises(ValueError, match="no Discrete, MultiDiscrete or one-dimensional Box"):
        num_outputs(Box(-1.0, 1.0, (2, 2)))
