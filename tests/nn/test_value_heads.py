"""Values as bins: arrays worked out by hand, rlax and scipy as oracles, and what holds for any input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from jaxrl.nn import value_heads as vh


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


CENTRES = jnp.array([-1.0, 0.0, 1.0, 2.0])


def test_two_hot_by_hand():
    y = jnp.array([[-1.0, -0.25, 1.0], [1.75, -9.0, 9.0]])
    want = [[[1, 0, 0, 0], [0.25, 0.75, 0, 0], [0, 0, 1, 0]], [[0, 0, 0.25, 0.75], [1, 0, 0, 0], [0, 0, 0, 1]]]
    close(vh.two_hot(y, CENTRES), want)


def test_hl_gauss_by_hand():
    """Three bins of width 2 and sigma 1 bin = 2: standard normal edges at -1.5, -0.5, 0.5, 1.5 around the middle."""
    edges = jnp.array([-3.0, -1.0, 1.0, 3.0])
    inside = 2 * scipy.stats.norm.cdf(1.5) - 1
    middle = 2 * scipy.stats.norm.cdf(0.5) - 1
    p = vh.hl_gauss(jnp.array([0.0, 3.0, 50.0]), edges, 1.0)
    close(p[0], [(inside - middle) / 2 / inside, middle / inside, (inside - middle) / 2 / inside])
    close(p[1], np.diff(scipy.stats.norm.cdf([-3, -2, -1, 0])) / (0.5 - scipy.stats.norm.cdf(-3)))
    close(p[2], p[1])


def test_hl_gauss_against_scipy():
    edges, y = np.linspace(-10, 10, 52), np.linspace(-9, 9, 37)
    width = edges[1] - edges[0]
    cdf = scipy.stats.norm.cdf((edges - y[:, None]) / (0.75 * width))
    want = np.diff(cdf, axis=-1) / (cdf[:, -1:] - cdf[:, :1])
    got = vh.hl_gauss(jnp.asarray(y, jnp.float32), jnp.asarray(edges, jnp.float32))
    close(got, want, rtol=1e-4, atol=2e-6)
    # "about six bins": those within three sigma of the target's own hold nearly everything.
    assert np.sort(got, -1)[:, -6:].sum(-1).min() > 0.99


def test_padding_keeps_the_mean_and_without_it_the_mean_is_drawn_inwards():
    padded = vh.padded_edges(-2.0, 6.0, 21)
    assert padded.shape == (22,)
    width = float(padded[1] - padded[0])
    close(-2.0 - padded[0], 3 * 0.75 * width)
    close(padded[-1] - 6.0, 3 * 0.75 * width)
    tight = jnp.linspace(-2.0, 6.0, 22)
    for y in (-2.0, 6.0):
        means = [float((vh.hl_gauss(jnp.asarray(y), e) * vh.midpoints(e)).sum()) for e in (padded, tight)]
        assert abs(means[0] - y) < 0.01 * width < 0.5 * width < abs(means[1] - y)
    with pytest.raises(ValueError, match="num_bins=4"):
        vh.padded_edges(0.0, 1.0, 4)


@pytest.mark.slow
@pytest.mark.light
def test_expected_value_and_cross_entropy():
    logits = jnp.log(jnp.array([[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]])) + 3
    close(vh.expected_value(logits, CENTRES), [-0.1 + 0.3 + 0.8, 0.5])
    target = jnp.array([[0.0, 1.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    close(vh.cross_entropy(logits, target), [-np.log(0.2), np.log(4)])
    close(vh.entropy(target), [0, np.log(2)])
    close(jax.grad(lambda x: vh.cross_entropy(x, target[0]))(logits[0]), [0.1, -0.8, 0.3, 0.4])
    assert np.all(np.isfinite(jax.grad(lambda p: vh.entropy(p).sum())(jnp.array([0.2, 0.8]))))


# ---- for any input

limits = st.tuples(st.floats(-50, 50), st.floats(0.5, 100)).map(lambda x: (x[0], x[0] + x[1]))


@pytest.mark.slow
@pytest.mark.light
@given(limits, st.sampled_from([5, 21, 51]), st.floats(0, 1))
def test_mass_one_and_the_mean_kept(limits, num, where):
    low, high = limits
    y = jnp.asarray(low + where * (high - low))
    tolerance = 1e-4 * max(abs(low), abs(high), 1)
    centres = jnp.linspace(low, high, num)
    p = vh.two_hot(y, centres)
    assert p.min() >= 0 and (p > 0).sum() <= 3
    close(p.sum(), 1, rtol=1e-3)
    close(p @ centres, y, atol=tolerance, rtol=1e-3)
    edges = vh.padded_edges(low, high, num)
    p = vh.hl_gauss(y, edges)
    assert p.min() >= 0
    close(p.sum(), 1, rtol=1e-4)
    close(p @ vh.midpoints(edges), y, atol=tolerance + 0.02 * float(edges[1] - edges[0]))


# ---- rlax


def test_against_rlax():
    rlax = pytest.importorskip("rlax")
    rng = np.random.default_rng(1)
    y = jnp.asarray(rng.uniform(-12, 12, 64), jnp.float32)
    centres = jnp.linspace(-10.0, 10.0, 21)
    close(vh.two_hot(y, centres), rlax.transform_to_2hot(y, -10.0, 10.0, 21), atol=1e-5)
    p, logits = (jnp.asarray(rng.normal(size=(64, 21)), jnp.float32) for _ in range(2))
    p = jax.nn.softmax(p)
    close(vh.cross_entropy(logits, p), jax.vmap(rlax.categorical_cross_entropy)(p, logits))
