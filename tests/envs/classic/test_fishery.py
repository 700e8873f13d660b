"""The fishery: against NumPy written apart from it, its equilibrium and persistence, its rules, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.classic import fishery
from jaxrl.envs.classic.fishery import Fishery, State

KEY = jax.random.key(0)


def year(pop, effort, noise, p, t):
    """One year in NumPy, populations (..., 3): next populations, reward, lost."""
    left = pop * (1 - np.stack([effort[..., 0], effort[..., 1], 0 * effort[..., 0]], -1))
    x, y, z = np.moveaxis(left, -1, 0)
    r_x = p["r_x"] * np.where(1 - p["r_x_drift"] * t > p["r_x_floor"], 1 - p["r_x_drift"] * t, p["r_x_floor"])
    hill_x, hill_y = 1 / (1 + (p["c"] / x) ** 2), 1 / (1 + (p["c"] / y) ** 2)
    growth = np.stack(
        [
            r_x * x - r_x * x**2 / p["k_x"] - p["beta"] * z * hill_x - p["c_xy"] * x * y,
            p["r_y"] * y - p["r_y"] * y**2 / p["k_y"] - p["preference"] * p["beta"] * z * hill_y - p["c_xy"] * x * y,
            p["b"] * z * x + p["b"] * p["preference"] * z * y - p["d_z"] * z,
        ],
        -1,
    )
    new = left + growth + left * noise * np.stack([p["sigma_x"], p["sigma_y"], p["sigma_z"]], -1)
    new = np.clip(new, 0, None)
    lost = (new <= np.expand_dims(p["threshold"], -1)).any(-1)
    reward = (pop[..., :2] * effort).sum(-1) - p["cost"] * effort.sum(-1) - lost * p["penalty"] / (t + 1)
    return new, reward, lost


@pytest.mark.parametrize("num_fisheries", [1, 2])
def test_a_year_is_that_of_numpy(num_fisheries):
    rng = np.random.default_rng(0)
    n = 500
    with jax.enable_x64():
        env = Fishery(num_fisheries)
        params = env.default_params
        floats = {k: v for k, v in vars(params).items() if k != "max_steps"}
        values = {k: np.asarray(v, float) * rng.uniform(0.7, 1.3, n) for k, v in floats.items()}
        values |= {"r_x_drift": rng.uniform(0, 0.01, n), "cost": rng.uniform(0, 0.1, n)}
        # Some populations are at the edge of being lost.
        pop, effort = rng.uniform(0.04, 1.5, (n, 3)), rng.uniform(0, 1, (n, num_fisheries))
        time = rng.integers(0, 200, n)
        batch = params.replace(max_steps=jnp.full(n, 200), **{k: jnp.asarray(v) for k, v in values.items()})
        states = State(jnp.asarray(time, jnp.int32), *jnp.asarray(pop).T)
        keys = jax.random.split(KEY, n)
        ts = jax.jit(jax.vmap(lambda *a: env.transition(*a)))(keys, states, jnp.asarray(effort), batch)
        noise = np.asarray(jax.vmap(lambda key: jax.random.normal(key, (3,), float))(keys))
        both = np.concatenate([effort, np.zeros((n, 2 - num_fisheries))], -1)
        new, reward, lost = year(pop, both, noise, values, time)
        np.testing.assert_allclose(np.stack([ts.state.x, ts.state.y, ts.state.z], -1), new, rtol=0, atol=1e-12)
        np.testing.assert_allclose(ts.reward, reward, rtol=0, atol=1e-12)
        np.testing.assert_allclose(sum(ts.info.values()), reward, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(ts.terminated, lost)
        assert 20 < lost.sum() < n - 20


def unfished(params, years=2000):
    env = Fishery()

    def step(state, key):
        ts = env.step(key, state, jnp.zeros(1), params)
        return ts.state, (jnp.stack([state.x, state.y, state.z]), ts.terminated, ts.reward)

    def run(key):
        first, rest = jax.random.split(key)
        _, (path, lost, reward) = jax.lax.scan(step, env.reset(first, params)[1], jax.random.split(rest, years))
        return path, lost, reward

    return jax.jit(run)


@pytest.mark.slow
def test_unfished_equilibrium_and_persistence():
    """Without noise the three settle where birth and death of Z balance: X + D Y = d_Z / b. With noise they persist."""
    params = Fishery().default_params
    zero = jnp.float32(0)
    still = params.replace(sigma_x=zero, sigma_y=zero, sigma_z=zero, initial_sigma=zero)
    path, lost, _ = unfished(still)(KEY)
    x, y, z = np.asarray(path[-1], float)
    assert not lost.any() and np.abs(path[-1] - path[-50]).max() < 1e-5
    assert x + 1.1 * y == pytest.approx(1, abs=1e-5)
    hill_x, hill_y = x / (0.09 + x**2), y / (0.09 + y**2)
    assert 1 - x - 0.3 * z * hill_x - 0.1 * y == pytest.approx(0, abs=1e-5)
    assert 1 - y - 0.33 * z * hill_y - 0.1 * x == pytest.approx(0, abs=1e-5)
    assert min(x, y, z) > 0.3
    _, lost, reward = jax.vmap(unfished(params, 200))(jax.random.split(KEY, 500))
    assert np.mean(np.asarray(lost).any(1)) < 0.01 and np.abs(np.asarray(reward)[~np.asarray(lost)]).max() == 0


def test_drift_halves_the_growth_rate_in_a_century():
    params = Fishery().default_params.replace(r_x_drift=jnp.float32(0.005))
    rates = [float(fishery.growth_rate(jnp.int32(t), params)) for t in (0, 50, 100, 199)]
    np.testing.assert_allclose(rates, [1, 0.75, 0.5, 0.5], rtol=1e-6)


def test_rules():
    stock = jnp.asarray([0.0, 0.2, 0.4, 0.8])
    escapement = jax.vmap(fishery.constant_escapement, (0, None))(stock, jnp.float32(0.4))
    np.testing.assert_allclose(escapement, [0, 0, 0, 0.5])
    np.testing.assert_allclose(jax.vmap(fishery.constant_mortality, (0, None))(stock, jnp.float32(0.3)), 0.3)
    slope = jax.grad(lambda s, e: fishery.constant_escapement(s, e))
    assert float(slope(jnp.float32(0), jnp.float32(0))) == 0 and float(slope(jnp.float32(0.8), jnp.float32(0.4))) > 0


def test_overfishing_ends_with_the_penalty_of_its_year():
    """Everything caught in year 3: 0.5 earned and 100 / 3 lost."""
    env = Fishery()
    params = env.default_params
    state = State(jnp.int32(2), jnp.float32(0.5), jnp.float32(0.5), jnp.float32(0.7))
    ts = env.step(KEY, state, jnp.ones(1), params)
    assert bool(ts.terminated) and not bool(ts.truncated) and float(ts.state.x) == 0
    assert float(ts.reward) == pytest.approx(0.5 - 100 / 3, rel=1e-6)
    clipped = env.step(KEY, state, jnp.full(1, 7.0), params)
    assert float(clipped.reward) == float(ts.reward)


def test_observation_is_an_affine_map():
    env = Fishery()
    state = State(jnp.int32(0), jnp.float32(0), jnp.float32(1), jnp.float32(9))
    np.testing.assert_allclose(env.observe(KEY, state, env.default_params), [-1, -0.5, 1])


def test_bad_settings():
    with pytest.raises(ValueError, match="num_fisheries=3 must be from 1 to 2"):
        Fishery(3)
    params = Fishery().default_params
    with pytest.raises(ValueError, match="sigma_z=-0.1.* not negative"):
        Fishery().validate(params.replace(sigma_z=jnp.float32(-0.1)))
    with pytest.raises(ValueError, match="initial_y=0.0.* must be above threshold=0.05"):
        Fishery().validate(params.replace(initial_y=jnp.float32(0.03)))


@pytest.mark.slow
def test_gradient_of_a_yield():
    """Twenty years of catch by the mortality, against central differences in float64."""
    with jax.enable_x64():
        env = Fishery()
        params = env.default_params
        _, state = env.reset(KEY, params)

        def catch(mortality):
            def step(state, key):
                ts = env.step(key, state, fishery.constant_mortality(state.x, mortality)[None], params)
                return ts.state, ts.reward

            state64 = jax.tree.map(lambda x: x.astype(float) if x.dtype == jnp.float32 else x, state)
            return jax.lax.scan(step, state64, jax.random.split(KEY, 20))[1].sum()

        at, eps = jnp.asarray(0.2), 1e-5
        slope = jax.jit(jax.grad(catch))(at)
        catch = jax.jit(catch)
        assert float(slope) == pytest.approx(float(catch(at + eps) - catch(at - eps)) / (2 * eps), rel=1e-6)
