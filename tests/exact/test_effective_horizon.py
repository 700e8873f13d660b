"""Effective horizon, GORP and SQIRL against brute force on small MDPs."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import train
from jaxrl.algos import sqirl
from jaxrl.algos.tabular import gorp
from jaxrl.envs.tabular.chains.chain import Chain
from jaxrl.envs.tabular.chains.river_swim import RiverSwim
from jaxrl.exact import effective_horizon as eh
from jaxrl.exact.mdp import MDP, as_environment, sticky, tabulate
from jaxrl.exact.solvers import backward_induction
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse

T, S, A = 4, 5, 2


def deterministic(seed, sparse=False):
    """A random deterministic MDP, (S, A, 1)."""
    rng = np.random.default_rng(seed)
    reward = rng.random((S, A, 1)) * (rng.random((S, A, 1)) < (0.3 if sparse else 1))
    return MDP(
        jnp.ones((S, A, 1)),
        jnp.asarray(rng.integers(0, S, (S, A, 1)), jnp.int32),
        jnp.asarray(reward, jnp.float32),
        jnp.asarray(rng.random((S, A, 1)) < 0.1),
        jnp.zeros(S).at[0].set(1),
    )


def lock(length, A=2):
    """Action 0 goes on, any other ends without reward; 1 at the end."""
    s, a = jnp.meshgrid(jnp.arange(length), jnp.arange(A), indexing="ij")
    right, last = a == 0, s == length - 1
    columns = jnp.where(right, jnp.minimum(s + 1, length - 1), s), 1.0 * (right & last), ~right | last
    next_state, reward, terminated = (x[..., None] for x in columns)
    return MDP(jnp.ones((length, A, 1)), next_state.astype(jnp.int32), reward, terminated, jnp.eye(length)[0])


def returns(mdp, state, actions):
    """The return of a sequence of actions, by following it."""
    total = 0.0
    for a in actions:
        total += float(mdp.reward[state, a, 0])
        if mdp.terminated[state, a, 0]:
            break
        state = int(mdp.next_state[state, a, 0])
    return total


def all_returns(mdp, state, first, rest):
    """Of every sequence that begins with `first` and goes on for `rest` steps."""
    return [returns(mdp, state, (*first, *tail)) for tail in itertools.product(range(A), repeat=rest)]


@pytest.mark.parametrize("seed", range(2))
def test_values_and_spread_of_the_random_policy_by_enumeration(seed):
    mdp = jax.tree.map(np.asarray, deterministic(seed))
    q = eh.random_values(deterministic(seed), T)
    variance, spread = eh.random_spread(deterministic(seed), T)
    for t, s, a in itertools.product(range(T), range(S), range(A)):
        g = all_returns(mdp, s, (a,), T - 1 - t)
        np.testing.assert_allclose(
            [q[t, s, a], variance[t, s, a], spread[t, s, a]], [np.mean(g), np.var(g), np.ptp(g)], rtol=1e-4, atol=1e-5
        )


def test_q_iteration_by_enumeration():
    """Q^3 is the best mean over two chosen actions and chance after them."""
    mdp = deterministic(3)
    q = eh.qvi(mdp, eh.qvi(mdp, eh.random_values(mdp, T)))
    host = jax.tree.map(np.asarray, mdp)
    for s, a in itertools.product(range(S), range(A)):
        want = max(np.mean(all_returns(host, s, (a, *more), 1)) for more in itertools.product(range(A), repeat=2))
        np.testing.assert_allclose(q[0, s, a], want, rtol=1e-5)


def greedy_optimal(mdp, q, horizon):
    """Whether every greedy policy is optimal from the start: the worst return of them all, by recursion."""

    def worst(t, s):
        if t == horizon:
            return 0.0
        best = q[t, s].max()
        out = []
        for a in range(A):
            if q[t, s, a] >= best - 1e-6:
                after = 0.0 if mdp.terminated[s, a, 0] else worst(t + 1, int(mdp.next_state[s, a, 0]))
                out.append(float(mdp.reward[s, a, 0]) + after)
        return min(out)

    return worst(0, 0)


def test_min_k_by_brute_force():
    """The first k whose worst greedy policy reaches the best return."""
    seen = set()
    for seed in range(12):
        mdp = deterministic(seed, sparse=True)
        host = jax.tree.map(np.asarray, mdp)
        best = max(all_returns(host, 0, (), T))
        q, flags = eh.random_values(mdp, T), []
        for _ in range(T):
            flags.append(greedy_optimal(host, np.asarray(q), T) > best - 1e-5)
            q = eh.qvi(mdp, q)
        k = int(eh.min_k(mdp, T))
        assert k == flags.index(True) + 1
        assert bool(eh.is_solvable(mdp, T, 1)) == flags[0]
        np.testing.assert_array_equal(eh.effective_horizon(mdp, T).solvable, flags)
        seen.add(k)
    assert len(seen) > 1


@pytest.mark.slow
@pytest.mark.light
def test_combination_lock_by_hand():
    """Q^1 of the right action is A^-(n-1): k is 1, and m_1 is what rare success costs."""
    n = 5
    out = eh.effective_horizon(lock(n), n)
    assert int(out.min_k) == 1 and int(eh.planning_window(lock(n), n)) == n
    p = 0.5 ** (n - 1)  # success after the right first action; the gap is p, the variance p (1 - p), the range 1
    m = (8 * p * (1 - p) / p**2 + 4 / (3 * p)) * np.log(2 * n * 2)
    np.testing.assert_allclose(out.bounds[0], 1 + np.log2(m), rtol=1e-5)
    assert float(out.bounds[n - 1]) == n  # all sequences: one episode of each
    assert float(out.horizon) == min(out.bounds) and int(out.k) == n
    # all of the lock must be walked by chance: the last state's least likely pair has probability 2^-n
    np.testing.assert_allclose(eh.covering_length(lock(n), n), np.log(2 * 2 * n) * 2**n, rtol=1e-5)


def test_padding_and_vmap_change_nothing():
    mdp = deterministic(4)

    def pad(x):
        return jnp.concatenate([x, jnp.zeros((3, *x.shape[1:]), x.dtype)])

    padded = jax.tree.map(pad, mdp).replace(probability=jnp.concatenate([mdp.probability, jnp.ones((3, A, 1))]))
    both = jax.tree.map(lambda x, y: jnp.stack([x, y]), padded, padded)
    out = jax.vmap(lambda m: eh.effective_horizon(m, T))(both)
    want = eh.effective_horizon(mdp, T)
    for x, y in zip(out, want, strict=True):
        np.testing.assert_allclose(x[1], y, rtol=1e-5)


@pytest.mark.slow
def test_many_states_out_of_reach_change_nothing():
    """At this size XLA once mixed the old and the new Q of a scan's carry when both were computed apart."""
    side = 5
    s, a = jnp.meshgrid(jnp.arange(side * side), jnp.arange(4), indexing="ij")
    row = jnp.clip(s // side + jnp.array([-1, 0, 1, 0])[a], 0, side - 1)
    column = jnp.clip(s % side + jnp.array([0, 1, 0, -1])[a], 0, side - 1)
    to = (row * side + column)[..., None].astype(jnp.int32)
    end = to == side * side - 1
    mdp = MDP(jnp.ones(to.shape), to, 1.0 * end, end, jnp.zeros(side * side).at[0].set(1))

    def pad(x):
        return jnp.concatenate([x, jnp.zeros((39, *x.shape[1:]), x.dtype)])

    large = sticky(jax.tree.map(pad, mdp).replace(probability=pad(mdp.probability).at[25:].set(1)), 0.0)
    for x, y in zip(eh.effective_horizon(large, 20), eh.effective_horizon(mdp, 20), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.light
def test_sticky_actions_keep_the_optimum_solvable():
    """Q^T is optimal also where outcomes are random, and the variance includes theirs."""
    mdp = sticky(deterministic(5), 0.25)
    out = eh.effective_horizon(mdp, T)
    assert bool(out.solvable[-1]) and 1 <= int(out.min_k) <= T
    variance, _ = eh.random_spread(mdp, 1)
    assert float(variance.max()) > 0  # of a single step: chance decides which action it is


@pytest.mark.slow
@pytest.mark.light
def test_the_bound_on_m_suffices():
    """GORP with m_k episodes succeeds at least half of the time (here: in most of 16 runs)."""
    mdp = lock(4)
    k = 1
    m = int(np.ceil(2.0 ** (float(eh.effective_horizon(mdp, 4).bounds[k - 1]) - k)))
    env, params = as_environment(mdp, 4)
    algo = gorp.make(env, gorp.Config(horizon=4, depth=k, episodes=m))
    run = jax.jit(jax.vmap(lambda key, p: train(algo, key, 4 * algo.steps_per_update, None, p)[0].weights, (0, None)))
    plans = run(jax.random.split(jax.random.key(0), 16), params)
    assert np.mean(np.all(plans.actions == 0, -1)) >= 0.5
    np.testing.assert_array_equal(plans.fixed, 4)


def test_gorp_compares_mean_returns():
    reward = jnp.array([[1.0, 0, 0, 2], [1, 4, 0, 2], [8, 8, 0, 2]])
    done = jnp.array([[False, False, True, False], [True, False, False, False], [False, True, True, True]])
    got = gorp.mean_returns(reward, done, 0.5, 2)
    np.testing.assert_allclose(got, [(1 + 0.5 + 0 + 2 + 2) / 2, (0 + 2 + 1 + 0.5) / 2])
    np.testing.assert_array_equal(gorp.sequences(2, 2), [[0, 0], [0, 1], [1, 0], [1, 1]])


@pytest.mark.slow
@pytest.mark.light
def test_gorp_of_full_depth_is_exhaustive_search():
    mdp = deterministic(6)
    env, params = as_environment(mdp, T)
    algo = gorp.make(env, gorp.Config(horizon=T, depth=T, episodes=1))
    run = jax.jit(lambda p: train(algo, jax.random.key(0), T * algo.steps_per_update, None, p)[0])
    plan = run(params).weights.actions
    host = jax.tree.map(np.asarray, mdp)
    np.testing.assert_allclose(returns(host, 0, map(int, plan)), max(all_returns(host, 0, (), T)), rtol=1e-5)


def test_sqirl_targets_by_hand():
    reward, done = jnp.array([[1.0], [2.0], [4.0]]), jnp.array([[False], [True], [True]])
    np.testing.assert_allclose(sqirl.returns_to_go(reward, done, 0.5), [[2.0], [2.0], [4.0]])
    next_q = jnp.array([[[1.0, 3.0], [9.0, 9.0]], [[1.0, 3.0], [9.0, 9.0]]])
    got = sqirl.targets(jnp.array([5.0, 6.0]), jnp.array([1.0, 2.0]), jnp.array([False, True]), next_q, 0.5)
    np.testing.assert_allclose(got, [[5.0, 1 + 0.5 * 3], [6.0, 2.0]])


@pytest.mark.slow
@pytest.mark.light
def test_sqirl_finds_the_optimal_policy():
    """A random stochastic MDP, tables as the oracle: close to the optimum of backward induction."""
    mdp = tabulate(RiverSwim(num_states=3), RiverSwim().default_params.replace(advance=0.6))
    env, params = as_environment(mdp, 8)
    config = sqirl.Config(num_envs=128, horizon=8, depth=2, hidden=(), num_gradient_steps=150)
    algo = sqirl.make(env, config)
    run = jax.jit(lambda key, p: train(algo, key, 8 * algo.steps_per_update, sqirl.Hyper(learning_rate=0.03), p)[0])
    state = run(jax.random.key(0), params)
    obs, times = jnp.meshgrid(jnp.arange(3), jnp.arange(8))
    action, carry = algo.act(algo.policy(state), jax.random.key(1), obs, times, greedy=True)
    np.testing.assert_array_equal(carry, times + 1)
    value = jnp.zeros(3)
    for t in reversed(range(8)):
        q = mdp.expected_reward() + mdp.expect(value)
        value = jnp.take_along_axis(q, action[t][:, None], 1)[:, 0]
    assert float(value[0]) > 0.95 * float(backward_induction(mdp, 8)[0][0, 0])
    assert int(state.phase) == 8


@pytest.mark.slow  # the quick suite checks the contract of each module in tests/test_contract_algos.py
@pytest.mark.parametrize("name", ["gorp", "sqirl"])
def test_keeps_the_contract(name):
    env = Chain()
    params = env.default_params.replace(max_steps=jnp.int32(T))
    if name == "gorp":
        algo = gorp.make(env, gorp.Config(horizon=T, depth=2, episodes=2))
    else:
        algo = sqirl.make(env, sqirl.Config(num_envs=4, horizon=T, depth=2, num_gradient_steps=3, hidden=(8,)))
    check_algorithm(algo, env_params=params, num_updates=4)
    key = jax.random.key(1)
    run = lambda key, params: train(algo, key, 2 * algo.steps_per_update, None, params)[1]["loss"]  # noqa: E731
    assert_no_key_reuse(run, key, params)


def test_refusals():
    with pytest.raises(ValueError, match="k=0"):
        eh.is_solvable(lock(2), 2, 0)
    with pytest.raises(ValueError, match="depth=0"):
        gorp.Config(depth=0)
    with pytest.raises(ValueError, match="batch_size=0"):
        sqirl.Config(batch_size=0)
