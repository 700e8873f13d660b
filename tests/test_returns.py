"""Return estimators against hand-computed arrays and against literal numpy sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl.returns import discounted_returns, gae, lambda_returns, n_step_returns, vtrace

T, N = 7, 3

# One column: step 1 truncates, step 3 terminates, the sequence ends inside an episode.
REWARD = jnp.array([1.0, 2.0, 3.0, 4.0, 5.0])
VALUE = jnp.array([10.0, 20.0, 30.0, 40.0, 50.0])
NEXT_VALUE = jnp.array([20.0, 100.0, 40.0, 200.0, 60.0])
TERMINATED = jnp.array([False, False, False, True, False])
TRUNCATED = jnp.array([False, True, False, False, False])


def test_gae_by_hand():
    # delta = [1 + 10 - 10, 2 + 50 - 20, 3 + 20 - 30, 4 - 40, 5 + 30 - 50] with gamma = 1/2; trace gamma lambda = 1/4.
    advantage = gae(REWARD, VALUE, NEXT_VALUE, TERMINATED, TRUNCATED, 0.5, 0.5)
    np.testing.assert_allclose(advantage, [1 + 32 / 4, 32, -7 - 36 / 4, -36, -15])


def test_lambda_returns_by_hand():
    target = lambda_returns(REWARD, NEXT_VALUE, TERMINATED, TRUNCATED, 0.5, 0.5)
    np.testing.assert_allclose(target, [1 + (20 + 52) / 4, 52, 3 + (40 + 4) / 4, 4, 35])


def test_n_step_returns_by_hand():
    arguments = REWARD, NEXT_VALUE, TERMINATED, TRUNCATED, 0.5
    np.testing.assert_allclose(n_step_returns(*arguments, n=1), [11, 52, 23, 4, 35])
    np.testing.assert_allclose(n_step_returns(*arguments, n=2), [1 + 52 / 2, 52, 3 + 4 / 2, 4, 35])
    np.testing.assert_allclose(n_step_returns(*arguments, n=9), n_step_returns(*arguments, n=2))
    with pytest.raises(ValueError, match="n=0"):
        n_step_returns(*arguments, n=0)


def test_discounted_returns_by_hand():
    np.testing.assert_allclose(discounted_returns(REWARD, TERMINATED | TRUNCATED, 0.5), [2, 2, 5, 4, 5])


def test_vtrace_by_hand():
    # Two steps, ratios 4 (clipped to 1) and 1/2; gamma = 1/2. delta = [1 + 10 - 10, 2 + 50 - 20].
    log_ratio = jnp.log(jnp.array([4.0, 0.5]))
    no = jnp.zeros(2, bool)
    target, advantage = vtrace(log_ratio, REWARD[:2], VALUE[:2], NEXT_VALUE[:2], no, no, 0.5)
    np.testing.assert_allclose(target, [10 + 1 + 0.5 * 16, 20 + 16])
    np.testing.assert_allclose(advantage, [1 + 0.5 * 36 - 10, 0.5 * (2 + 50 - 20)])
    # The first step may weigh up to 2 with clip_rho, and its trace up to 3 with clip_c.
    target, _ = vtrace(log_ratio, REWARD[:2], VALUE[:2], NEXT_VALUE[:2], no, no, 0.5, clip_rho=2.0, clip_c=3.0)
    np.testing.assert_allclose(target, [10 + 2 + 0.5 * 3 * 16, 36], rtol=1e-6)


# ---- literal sums


def brute_lambda(reward, next_value, terminated, truncated, gamma, lam):
    """The definition: a geometric mixture of n-step returns (Sutton & Barto 2018, eq. 12.3)."""
    total = np.zeros_like(reward)
    for t in range(len(reward)):
        last = next(k for k in range(t, len(reward)) if terminated[k] or truncated[k] or k == len(reward) - 1)
        partial, longest = 0.0, last - t
        for k in range(longest + 1):
            partial += gamma**k * reward[t + k]
            n_step = partial + gamma ** (k + 1) * (0 if terminated[t + k] else next_value[t + k])
            total[t] += n_step * (lam**k if k == longest else (1 - lam) * lam**k)
    return total


def brute_n_step(reward, next_value, terminated, truncated, gamma, n):
    total = np.zeros_like(reward)
    for t in range(len(reward)):
        for k in range(n):
            total[t] += gamma**k * reward[t + k]
            if k == n - 1 or terminated[t + k] or truncated[t + k] or t + k == len(reward) - 1:
                total[t] += gamma ** (k + 1) * (0 if terminated[t + k] else next_value[t + k])
                break
    return total


def brute_vtrace(log_ratio, reward, value, next_value, terminated, truncated, gamma, lam, clip_rho, clip_c):
    """Equation 1 of the paper, its product written out."""
    rho, c = (np.minimum(np.exp(log_ratio), bound) for bound in (clip_rho, clip_c))
    delta = rho * (reward + gamma * np.where(terminated, 0, next_value) - value)
    target, q = value.copy(), np.where(terminated, 0, next_value)
    for t in range(len(reward)):
        for s in range(t, len(reward)):
            target[t] += gamma ** (s - t) * np.prod(lam * c[t:s]) * delta[s]
            if terminated[s] or truncated[s]:
                break
    for t in range(len(reward) - 1):
        if not (terminated[t] or truncated[t]):
            q[t] = (1 - lam) * value[t + 1] + lam * target[t + 1]
    return target, rho * (reward + gamma * q - value)


@st.composite
def rollouts(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    reward, value, next_value, log_ratio = rng.normal(size=(4, T, N)).astype(np.float32)
    terminated, truncated = rng.random((2, T, N)) < draw(st.sampled_from([0.0, 0.2, 0.6]))
    # Inside an episode the successor is the next row.
    next_value[:-1] = np.where((terminated | truncated)[:-1], next_value[:-1], value[1:])
    gamma, lam = (draw(st.sampled_from([0.0, 0.5, 0.99, 1.0])) for _ in range(2))
    return reward, value, next_value, log_ratio, terminated, truncated, gamma, lam


jitted = {f.__name__: jax.jit(f) for f in (discounted_returns, gae, lambda_returns, vtrace)}
jitted["n_step_returns"] = jax.jit(n_step_returns, static_argnames="n")


def columns(f, *arrays):
    """`f` of each column, by numpy in float64."""
    results = [f(*(a[:, i].astype(np.float64) if a.dtype != bool else a[:, i] for a in arrays)) for i in range(N)]
    return np.stack(results, -1)


@settings(max_examples=30, deadline=None)
@given(rollouts())
def test_all_agree_with_their_definitions(case):
    reward, value, next_value, log_ratio, terminated, truncated, gamma, lam = case
    ends = terminated, truncated

    expected = columns(lambda *a: brute_lambda(*a, gamma, lam), reward, next_value, *ends)
    np.testing.assert_allclose(jitted["lambda_returns"](reward, next_value, *ends, gamma, lam), expected, atol=2e-5)
    np.testing.assert_allclose(jitted["gae"](reward, value, next_value, *ends, gamma, lam), expected - value, atol=2e-5)

    monte_carlo = columns(lambda *a: brute_lambda(*a, gamma, 1.0), reward, 0 * next_value, *ends)
    done = terminated | truncated
    np.testing.assert_allclose(jitted["discounted_returns"](reward, done, gamma), monte_carlo, atol=2e-5)

    expected = columns(lambda *a: brute_n_step(*a, gamma, 3), reward, next_value, *ends)
    np.testing.assert_allclose(jitted["n_step_returns"](reward, next_value, *ends, gamma, n=3), expected, atol=2e-5)

    expected = columns(
        lambda *a: np.stack(brute_vtrace(*a, gamma, lam, 1.2, 0.9), -1), log_ratio, reward, value, next_value, *ends
    )
    result = jitted["vtrace"](log_ratio, reward, value, next_value, *ends, gamma, lam, 1.2, 0.9)
    np.testing.assert_allclose(np.stack(result, 1), expected, atol=5e-5)

    on_policy = jitted["vtrace"](0 * log_ratio, reward, value, next_value, *ends, gamma, lam, 1.2, 1.0)
    np.testing.assert_allclose(on_policy[1], jitted["gae"](reward, value, next_value, *ends, gamma, lam), atol=5e-5)


def test_settings_are_leaves_and_trailing_shapes_are_free():
    rng = np.random.default_rng(0)
    reward, value, next_value = (jnp.asarray(x, jnp.float32) for x in rng.normal(size=(3, 5, 2, 3)))
    terminated, truncated = jnp.asarray(rng.random((2, 5, 2, 3)) < 0.3)
    gammas = jnp.array([0.9, 0.99])
    both = jax.jit(jax.vmap(lambda g: gae(reward, value, next_value, terminated, truncated, g, 0.95)))(gammas)
    for gamma, result in zip(gammas, both, strict=True):
        for i in range(2):
            column = (x[:, i, 1] for x in (reward, value, next_value, terminated, truncated))
            np.testing.assert_allclose(jitted["gae"](*column, gamma, 0.95), result[:, i, 1], rtol=1e-5)
    # A discount of its own for each environment.
    own = gae(reward[..., 0], value[..., 0], next_value[..., 0], terminated[..., 0], truncated[..., 0], gammas, 0.95)
    np.testing.assert_allclose(own, np.stack([both[0, :, 0, 0], both[1, :, 1, 0]], -1), rtol=1e-5)


def test_gradients_reach_gamma_twice_and_survive_huge_ratios():
    no = jnp.zeros(5, bool)

    def total(gamma, log_ratio):
        target, advantage = vtrace(log_ratio, REWARD, VALUE, NEXT_VALUE, no, TRUNCATED, gamma)
        return jnp.sum(target + advantage) + jnp.sum(n_step_returns(REWARD, NEXT_VALUE, no, TRUNCATED, gamma, 3))

    log_ratio = jnp.array([1e3, -1e3, 0.1, 100.0, -0.5])
    for order in (jax.grad(total, (0, 1)), jax.grad(jax.grad(total))):
        assert all(np.isfinite(g).all() for g in jax.tree.leaves(jax.jit(order)(0.9, log_ratio)))
    slope = jax.jit(jax.grad(lambda g: discounted_returns(REWARD, no, g)[0]))(0.5)
    np.testing.assert_allclose(slope, 2 + 2 * 3 * 0.5 + 3 * 4 * 0.25 + 4 * 5 * 0.125, rtol=1e-6)
