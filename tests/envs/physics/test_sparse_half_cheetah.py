"""The sparse half-cheetah: the dense one's motion, paid at the end by where it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import map_elites
from jaxrl.envs.physics.sparse_half_cheetah import band_and_worth

KEY = jax.random.key(0)


def test_bands_pay_in_their_middle():
    areas = jnp.array([[15.0, 3.0], [-15.0, 1.5], [16.0, 4.0]])
    x = jnp.array([15.0, 16.5, 18.0, 18.5, 0.0, -14.25, -17.0])
    number, worth = jax.vmap(band_and_worth, (0, None))(x, areas)
    np.testing.assert_array_equal(number, [1, 1, 1, 3, 0, 2, 0])
    np.testing.assert_allclose(worth, [1, 0.5, 0, 0.375, 0, 0.5, 0], atol=1e-6)


@pytest.mark.slow
@pytest.mark.light
def test_it_moves_as_the_dense_one_and_is_paid_in_the_last_step():
    (env, params), (dense, dense_params) = jaxrl.make("SparseHalfCheetah-v0"), jaxrl.make("HalfCheetah-v5")
    _, state = env.reset(KEY, params)
    params = params.replace(max_steps=jnp.int32(6), areas=jnp.array([[-1.0, 0.5], [0.0, 2.0]]))
    actions = jax.random.uniform(KEY, (6, 6), minval=-1.0)

    def run(env, params):
        def step(state, action):
            ts = env.step(KEY, state, action, params)
            return ts.state, (ts.obs, ts.reward, ts.truncated, ts.info)

        return jax.jit(lambda s: jax.lax.scan(step, s, actions)[1])(state)

    obs, reward, truncated, info = run(env, params)
    wanted, _, _, dense_info = run(dense, dense_params)
    np.testing.assert_allclose(obs, wanted, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(info["x [m]"], dense_info["x [m]"], rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(truncated, [False] * 5 + [True])
    np.testing.assert_array_equal(reward[:5], 0)
    np.testing.assert_allclose(reward[5], 1 - np.abs(info["x [m]"][5]) / 2, rtol=1e-5)
    np.testing.assert_array_equal(info["area"], 2)
    assert 0 < reward[5] < 1


@pytest.mark.slow
@pytest.mark.light
def test_diversity_is_sought_by_where_it_ends():
    env, params = jaxrl.make("SparseHalfCheetah-v0")
    params = params.replace(max_steps=jnp.int32(20))
    config = map_elites.Config(population_size=16, num_steps=20, hidden=(4,), descriptor=("x",), cells=(50,))
    algo = map_elites.make(env, config)
    state = jax.jit(lambda key: algo.update(algo.init(key, map_elites.Hyper(), params))[0])(KEY)
    archive = state.archive
    np.testing.assert_allclose([archive.low, archive.high], [[-20], [20]])
    assert archive.filled.sum() > 1 and np.all(np.abs(archive.descriptor[archive.filled]) < 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(areas=jnp.zeros((2, 3))), r"areas has shape \(2, 3\)"),
        (dict(areas=jnp.zeros((2, 2))), "areas: a radius of"),
        (dict(far=-1.0), "far=-1.0 must be"),
        (dict(reset_noise=-1.0), "reset_noise"),
    ],
)
def test_impossible_bands_are_refused(changes, message):
    env, params = jaxrl.make("SparseHalfCheetah-v0")
    with pytest.raises(ValueError, match=message):
        env.validate(params.replace(**changes))
