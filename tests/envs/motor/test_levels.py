"""Drives of given factors: what `scaled` does with each number, and how many there are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.envs.motor import levels

PARAMS = jaxrl.make("Cont-CC-PMSM-v0")[1]


def test_dimensions_of_drives():
    # voltages, currents, r_s, l_d, psi_p, l_q / l_d; inertia; the load's speed (a given one has no inertia)
    assert levels.dimensions(PARAMS) == 8
    assert levels.dimensions(jaxrl.make("Cont-SC-SeriesDc-v0")[1]) > 8
    with pytest.raises(ValueError, match="7 logarithms; this drive has 8"):
        levels.scaled(PARAMS, jnp.zeros(7))


def test_zeros_are_the_drive_itself():
    same = levels.scaled(PARAMS, jnp.zeros(8))
    for a, b in zip(jax.tree.leaves(same), jax.tree.leaves(PARAMS), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_each_factor_reaches_its_number():
    def changed(i):
        level = levels.scaled(PARAMS, jnp.zeros(8).at[i].set(jnp.log(1.5)))
        m, p = level.machine, PARAMS.machine
        return [float(x / y) for x, y in ((m.r_s, p.r_s), (m.l_d, p.l_d), (m.psi_p, p.psi_p), (m.l_q, p.l_q))]

    np.testing.assert_allclose(changed(0), [1.5, 1.5, 1.5, 1.5], rtol=1e-5)  # more volts, as many ampere
    np.testing.assert_allclose(changed(1), [1 / 1.5, 1 / 1.5, 1, 1 / 1.5], rtol=1e-5)
    own = np.array([changed(i) for i in range(2, 8)])
    for number in range(3):  # r_s, l_d with l_q, psi_p: each by one factor alone, of 1.5
        assert np.isclose(own[:, number], 1.5, rtol=1e-5).sum() == 1
        assert np.isclose(own[:, number], 1.0, rtol=1e-5).sum() == 5
    saliency = own[:, 3] / own[:, 1]
    assert (~np.isclose(saliency, 1, rtol=1e-5)).sum() == 1


def test_generate_draws_the_factors():
    level = levels.generate(jax.random.key(0), PARAMS, 2.0)
    logs = jax.random.uniform(jax.random.key(0), (levels.DRAWS,), minval=-jnp.log(2.0), maxval=jnp.log(2.0))
    for a, b in zip(jax.tree.leaves(level), jax.tree.leaves(levels.scaled(PARAMS, logs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
