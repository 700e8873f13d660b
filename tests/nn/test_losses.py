"""Losses and means that several algorithms share."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.nn.losses import mean, normalized


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-6, "atol": 1e-7, **tolerance})


def test_a_mean_of_nothing_is_zero():
    x = jnp.array([1.0, 2.0, 6.0])
    close(mean(x), 3)
    close(mean(x, jnp.array([True, False, True])), 3.5)
    close(mean(x, jnp.zeros(3, bool)), 0)


def test_normalized_advantage():
    advantage = jnp.array([1.0, 2.0, 3.0, 4.0])
    close(normalized(advantage), [-1.3416408, -0.4472136, 0.4472136, 1.3416408])
    close(normalized(advantage, jnp.array([True, True, False, False]))[:2], [-1, 1])
    close(normalized(jnp.full(4, 3.0)), 0)
    assert np.all(np.isfinite(jax.jacobian(normalized)(jnp.full(4, 3.0))))
