"""Running statistics against numpy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl.algos import ppo, props, rnd
from jaxrl.nn import normalize
from jaxrl.nn.normalize import RewardScaler
from jaxrl.testing.probes import Privileged

KEY = jax.random.key(0)
update = jax.jit(normalize.update, static_argnums=2)


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 4]), min_size=1, max_size=6),
    offset=st.sampled_from([0.0, 1e3, -3e4]),
    seed=st.integers(0, 1000),
)
def test_moments_of_batches_of_any_size(sizes, offset, seed):
    data = (np.random.default_rng(seed).normal(size=(sum(sizes), 2, 3)) + offset).astype(np.float32)
    stats = normalize.init(jnp.zeros(3))
    for batch in np.split(data, np.cumsum(sizes)[:-1]):
        stats = update(stats, jnp.asarray(batch), (0, 1))
    flat = data.reshape(-1, 3).astype(np.float64)
    assert stats.count == len(flat)
    np.testing.assert_allclose(stats.moments.mean, flat.mean(0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(stats.moments.var, flat.var(0), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.light
def test_a_hundred_million_samples():
    """1e6 batches of 100 in float32: far past where a plain float32 average of 1001 +- 0.6 stops following its data."""
    rng, repeats = np.random.default_rng(0), 1_000_000
    base = np.array([1001.0, -5.0])
    table = (base + rng.uniform(-1, 1, (10, 100, 2)) * [1, 0.01]).astype(np.float32)
    later = np.float32([0.25, 0.001])

    @jax.jit
    def run(table):
        def body(stats, i):
            # Half way the data moves, by less than its spread.
            return normalize.update(stats, table[i % 10] + jnp.where(i < repeats // 2, 0, later)), None

        return jax.lax.scan(body, normalize.init(jnp.zeros(2)), jnp.arange(repeats))[0]

    stats = run(table)
    data = np.concatenate([table, table + later]).astype(np.float64).reshape(-1, 2)
    assert stats.count == 100 * repeats
    mean = np.asarray(stats.moments.mean, np.float64) + np.asarray(stats.moments.mean_rest, np.float64)
    np.testing.assert_allclose((mean - data.mean(0)) / data.std(0), 0, atol=1e-6)
    np.testing.assert_allclose(stats.moments.var, data.var(0), rtol=1e-6)


def test_the_count_saturates_and_statistics_go_on():
    stats = normalize.init(jnp.zeros(())).replace(count=jnp.int32(2**30 - 1))
    for _ in range(2):
        stats = update(stats, jnp.full(8, 5.0), (0,))
        assert stats.count == 2**30
    assert 0 < float(stats.moments.mean) < 1e-6


@pytest.mark.slow
@pytest.mark.light
def test_normalize_a_tree_and_leave_integers_alone():
    example = {"x": jnp.zeros(2), "mask": jnp.zeros(3, bool), "kind": jnp.int32(0), "half": jnp.zeros((), jnp.bfloat16)}
    stats = normalize.init(example)
    obs = {
        "x": jnp.array([[1.0, 10.0], [3.0, 10.0]]),
        "mask": jnp.ones((2, 3), bool),
        "kind": jnp.array([4, 5]),
        "half": jnp.array([1, 3], jnp.bfloat16),
    }
    # Nothing seen: mean 0 and variance 1.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), normalize.normalize(stats, obs), obs)
    stats = update(stats, obs, (0,))
    out = normalize.normalize(stats, obs, clip=0.9)
    np.testing.assert_allclose(out["x"], [[-0.9, 0], [0.9, 0]])
    np.testing.assert_allclose(normalize.normalize(stats, obs)["x"], [[-1, 0], [1, 0]], atol=1e-6)
    for name in ("mask", "kind"):
        np.testing.assert_array_equal(out[name], obs[name])
    assert {k: v.dtype for k, v in out.items()} == {k: v.dtype for k, v in obs.items()}
    single = normalize.normalize(stats, jax.tree.map(lambda x: x[0], obs))
    np.testing.assert_allclose(single["x"], [-1, 0], atol=1e-6)


def test_axes_must_lead():
    with pytest.raises(ValueError, match=r"axes=\(1,\)"):
        normalize.update(normalize.init(jnp.zeros(3)), jnp.zeros((3, 4)), (1,))


@pytest.mark.slow
@pytest.mark.light
def test_vmapped_statistics_are_apart():
    batches = jax.random.normal(KEY, (2, 50, 3)) + jnp.array([0.0, 5.0])[:, None, None]
    both = jax.vmap(lambda b: normalize.update(normalize.init(jnp.zeros(3)), b))(batches)
    np.testing.assert_allclose(both.moments.mean, batches.mean(1), atol=1e-5)


def test_reward_scaler_by_hand():
    reward = jnp.array([[1.0, 2.0], [2.0, 2.0], [4.0, 2.0]])
    done = jnp.array([[False, False], [True, False], [False, False]])
    scaler = jax.jit(RewardScaler.update)(RewardScaler.init(2), reward, done, 0.5)
    returns = np.array([[1.0, 2.0], [2.5, 3.0], [4.0, 3.5]])
    np.testing.assert_allclose(scaler.stats.moments.var, returns.var(), rtol=1e-5)
    np.testing.assert_allclose(scaler.returns, [4.0, 3.5])
    np.testing.assert_allclose(scaler.scale(jnp.array([1.0, -100.0])), [1 / returns.std(), -10], rtol=1e-5)
    # An episode goes on in the next rollout.
    scaler = scaler.update(reward[:1], done[:1], 0.5)
    np.testing.assert_allclose(scaler.returns, [3.0, 3.75])
    np.testing.assert_allclose(RewardScaler.init(2).scale(reward), reward, rtol=1e-6)


def test_gradient_through_the_scaler_is_finite_twice():
    reward, done = jnp.zeros((3, 2)), jnp.zeros((3, 2), bool)

    def total(gamma, reward):
        scaler = RewardScaler.init(2).update(reward, done, gamma)
        return scaler.scale(reward + 1e-3).sum()

    for order in (jax.grad(total, (0, 1)), jax.grad(jax.grad(total))):
        assert all(np.isfinite(g).all() for g in jax.tree.leaves(jax.jit(order)(0.9, reward)))


def test_nothing_seen_changes_nothing():
    """Of the first rollout nothing is known: clipping it to 10 would show a network of positions in metres a wall."""
    x = jnp.array([250.0, -40.0, 3.0])
    stats = normalize.init(x)
    np.testing.assert_array_equal(normalize.normalize(stats, x), x)
    np.testing.assert_array_equal(normalize.normalize(None, x), x)
    seen = update(stats, jnp.stack([x - 1, x + 1]), (0,))
    np.testing.assert_allclose(normalize.normalize(seen, x + 100), 10)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("module", [ppo, rnd, props])
def test_what_is_deployed_needs_no_privileged_part(module):
    config = dict(num_envs=4, num_steps=4, num_epochs=1, num_minibatches=1, hidden=(8,), normalize_obs=True)
    algo = module.make(Privileged(), module.Config(**config))
    state, _ = algo.update(algo.init(KEY))
    policy, obs = algo.policy(state), {**state.obs}
    whole, _ = algo.act(policy, KEY, obs)
    obs.pop("privileged")
    np.testing.assert_array_equal(algo.act(policy, KEY, obs)[0], whole)
