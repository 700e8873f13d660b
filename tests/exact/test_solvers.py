"""Exact solvers against each other, scipy's linear programming, closed forms and brute force, to 1e-8 in float64."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from jaxrl.exact.mdp import MDP, sticky
from jaxrl.exact.solvers import (
    backward_induction,
    bellman,
    evaluate_policy,
    linear_program,
    occupancy,
    policy_iteration,
    robust_value_iteration,
    solve,
    successor_representation,
    value_iteration,
    worst_case,
)

S, A, K = 12, 3, 4


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def garnet(seed, ends=0.0):
    rng = np.random.default_rng(seed)
    return MDP(
        jnp.asarray(rng.dirichlet(np.ones(K), (S, A))),
        jnp.asarray(rng.integers(0, S, (S, A, K)), jnp.int32),
        jnp.asarray(rng.normal(size=(S, A, K))),
        jnp.asarray(rng.random((S, A, K)) < ends),
        jnp.asarray(rng.dirichlet(np.ones(S))),
    )


def scipy_values(mdp, gamma):
    """The primal linear program: least v with v >= r + gamma P v."""
    dense = jax.device_get(mdp.dense())
    rows = np.concatenate([gamma * dense.transition[:, a] - np.eye(S) for a in range(A)])
    bound = -np.concatenate([dense.reward[:, a] for a in range(A)])
    return linprog(np.full(S, 1 / S), A_ub=rows, b_ub=bound, bounds=(None, None), method="highs").x


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("ends", [0.0, 0.2])
@pytest.mark.parametrize("gamma", [0.5, 0.97])
def test_four_ways_to_the_same_values(gamma, ends):
    for seed in range(3):
        mdp = garnet(seed, ends)
        found = {
            "values": value_iteration(mdp, gamma, 1e-10),
            "dense values": value_iteration(mdp.dense(), gamma, 1e-10),
            "policies": policy_iteration(mdp, gamma),
        }
        program = linear_program(mdp, gamma)
        reference = scipy_values(mdp, gamma)
        for name, solution in found.items():
            np.testing.assert_allclose(solution.value, reference, atol=1e-8, err_msg=name)
            np.testing.assert_allclose(solution.value, found["policies"].value, atol=1e-8, err_msg=name)
            np.testing.assert_array_equal(solution.policy, program.policy, err_msg=name)
            true_error = np.max(np.abs(solution.value - found["policies"].value))
            assert true_error <= solution.error + 1e-11 and solution.error <= 1e-9
        np.testing.assert_allclose(program.value, reference, atol=1e-8)
        assert float(program.gap) < 1e-10


def test_the_bounds_save_sweeps():
    """Without them about log(1e-8) / log(0.99) = 1,800 are needed."""
    assert value_iteration(garnet(0), 0.99, 1e-8).iterations < 150


def test_float32_stops_where_floats_cannot_tell():
    mdp = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, garnet(0))
    solution = value_iteration(mdp, 0.999, 0.0)
    assert solution.value.dtype == jnp.float32 and solution.iterations < 5_000
    np.testing.assert_allclose(solution.value, policy_iteration(garnet(0), 0.999).value, rtol=1e-4, atol=0.1)


@pytest.mark.parametrize("gamma", [0.99, 0.999])
def test_rare_ends_are_ends(gamma):
    """One state that ends with probability 5e-5 a step."""
    one = jnp.ones((1, 1, 2))
    mdp = MDP(
        one * jnp.asarray([1 - 5e-5, 5e-5]),
        jnp.zeros((1, 1, 2), jnp.int32),
        one,
        jnp.asarray([[[False, True]]]),
        jnp.ones(1),
    )
    for model in (mdp, mdp.dense()):
        solution = value_iteration(model, gamma, 1e-3)
        true_error = abs(float(solution.value[0]) - 1 / (1 - gamma * (1 - 5e-5)))
        assert true_error <= solution.error <= 1e-3


def test_float32_policies_are_optimal_to_rounding():
    """Rewards far above their differences: margins of improvement must not swallow these."""
    exact = garnet(0)
    exact = exact.replace(reward=0.1 * exact.reward + 10)
    mdp = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, exact)
    value = policy_iteration(exact, 0.99).value
    for solver in (policy_iteration, linear_program):
        np.testing.assert_allclose(solver(mdp, 0.99).value, value, rtol=1e-4)


def test_a_first_policy_that_never_ends_is_not_used():
    """On a walk of cost 1 a step, staying would be greedy, and worth minus infinity."""
    next_state = jnp.asarray([[[0], [1]], [[1], [1]]], jnp.int32)
    ends = jnp.asarray([[[False], [False]], [[False], [True]]])
    mdp = MDP(jnp.ones((2, 2, 1)), next_state, -jnp.ones((2, 2, 1)), ends, jnp.asarray([1.0, 0.0]))
    np.testing.assert_allclose(policy_iteration(mdp, 1.0).value, [-2, -1])


@pytest.mark.slow
@pytest.mark.light
def test_thousands_are_one_program():
    mdps = jax.tree.map(lambda *x: jnp.stack(x), *(garnet(seed) for seed in range(4)))
    for solver in (
        lambda m: value_iteration(m, 0.9, 1e-10).value,
        lambda m: policy_iteration(m, 0.9).value,
        lambda m: linear_program(m, 0.9).value,
    ):
        many = jax.jit(jax.vmap(solver))(mdps)
        for seed in range(4):
            np.testing.assert_allclose(many[seed], solver(garnet(seed)), atol=1e-9)


def test_best_policy_by_brute_force():
    rng = np.random.default_rng(5)
    mdp = jax.tree.map(lambda x: x[:4] if x.ndim else x, garnet(5))
    mdp = mdp.replace(next_state=jnp.asarray(rng.integers(0, 4, (4, A, K)), jnp.int32), initial=jnp.full(4, 0.25))
    evaluate = jax.jit(jax.vmap(lambda p: evaluate_policy(mdp, p, 0.9)))
    values = evaluate(jnp.asarray(list(itertools.product(range(A), repeat=4))))
    np.testing.assert_allclose(policy_iteration(mdp, 0.9).value, values.max(0), atol=1e-10)


@pytest.mark.slow
@pytest.mark.light
def test_episodes_that_end_need_no_discount():
    """A walk on 0 .. S-1 to the end, paid -1 a step, slipping back with probability 1 - p: closed form at gamma 1."""
    p, n = 0.8, 6
    state = np.arange(n)
    next_state = np.stack([np.minimum(state + 1, n - 1), state], -1)[:, None]
    mdp = MDP(
        jnp.full((n, 1, 2), jnp.asarray([p, 1 - p])),
        jnp.asarray(next_state, jnp.int32),
        jnp.full((n, 1, 2), -1.0),
        jnp.zeros((n, 1, 2), bool).at[n - 1, 0, 0].set(True),
        jnp.zeros(n).at[0].set(1),
    )
    expected = -(n - state) / p
    for solver in (value_iteration, policy_iteration, linear_program):
        np.testing.assert_allclose(solver(mdp, 1.0).value, expected, atol=1e-4 if solver is value_iteration else 1e-9)


@pytest.mark.slow
@pytest.mark.light
def test_backward_induction_by_hand_and_by_recursion():
    mdp = garnet(1, 0.1)
    value, q, policy = backward_induction(mdp, 6, 0.9)
    assert value.shape == (7, S) and q.shape == (6, S, A) and policy.shape == (6, S)
    dense = jax.device_get(mdp.dense())

    def recursive(s, left):
        if not left:
            return 0.0
        ahead = np.array([recursive(t, left - 1) for t in range(S)]) if left > 1 else np.zeros(S)
        return max(dense.reward[s, a] + 0.9 * dense.transition[s, a] @ ahead for a in range(A))

    np.testing.assert_allclose(value[4], [recursive(s, 2) for s in range(S)], atol=1e-12)
    np.testing.assert_allclose(value[3, 0], recursive(0, 3), atol=1e-12)
    long, _, _ = backward_induction(mdp, 400, 0.9)
    np.testing.assert_allclose(long[0], policy_iteration(mdp, 0.9).value, atol=1e-10)


@pytest.mark.slow
@pytest.mark.light
def test_policies_of_both_kinds_and_what_they_visit():
    mdp, gamma = garnet(2, 0.1), 0.9
    rng = np.random.default_rng(0)
    stochastic = jnp.asarray(rng.dirichlet(np.ones(A), S))
    deterministic = jnp.asarray(rng.integers(0, A, S))
    dense = jax.device_get(mdp.dense())
    for policy in (stochastic, deterministic):
        weights = np.asarray(policy) if policy.ndim == 2 else np.eye(A)[np.asarray(policy)]
        p = np.einsum("sa,sat->st", weights, dense.transition)
        r = np.einsum("sa,sa->s", weights, dense.reward)
        inverse = np.linalg.inv(np.eye(S) - gamma * p)
        np.testing.assert_allclose(evaluate_policy(mdp, policy, gamma), inverse @ r, atol=1e-10)
        np.testing.assert_allclose(successor_representation(mdp, policy, gamma), inverse, atol=1e-10)
        visits = occupancy(mdp, policy, gamma)
        np.testing.assert_allclose(visits, (np.asarray(mdp.initial) @ inverse)[:, None] * weights, atol=1e-10)
        np.testing.assert_allclose(jnp.sum(visits * dense.reward), mdp.initial @ (inverse @ r), atol=1e-10)


@pytest.mark.slow
@pytest.mark.light
def test_the_dual_solution_is_feasible_and_complementary():
    mdp, gamma = garnet(3), 0.95
    mdp = mdp.replace(
        reward=mdp.reward.at[:, 0].add(mdp.next_state[:, 0] == 0)
    )  # far-sighted: the first basis is wrong
    program, dense = linear_program(mdp, gamma), mdp.dense()
    assert program.pivots > 0
    x = program.occupancy
    inflow = dense.initial + gamma * jnp.einsum("sa,sat->t", x, dense.transition)
    np.testing.assert_allclose(x.sum(1), inflow, atol=1e-9)
    assert float(x.min()) >= 0
    slack = program.value[:, None] - bellman(mdp, program.value, gamma)
    assert float(slack.min()) > -1e-9 and float(jnp.abs(x * slack).max()) < 1e-9


@pytest.mark.slow
@pytest.mark.light
@given(st.integers(0, 10_000))
def test_elimination(seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(9, 0.3), 9) * rng.uniform(0.2, 0.999)
    a, b = np.eye(9) - p, rng.normal(size=(9, 2))
    with jax.enable_x64(True):
        np.testing.assert_allclose(solve(jnp.asarray(a), jnp.asarray(b)), np.linalg.solve(a, b), rtol=1e-8, atol=1e-8)


# ---- robustness


@given(st.integers(0, 10_000), st.floats(0, 2))
def test_the_worst_case_is_a_linear_program(seed, radius):
    """Least sum q v over distributions q with |q - p|_1 <= radius, by HiGHS with q - p = up - down."""
    rng = np.random.default_rng(seed)
    n = 5
    p, v = rng.dirichlet(np.ones(n)), rng.normal(size=n)
    eye, one = np.eye(n), np.ones(n)
    program = linprog(
        np.concatenate([v, 0 * one, 0 * one]),
        A_eq=np.vstack([np.hstack([eye, -eye, eye]), np.concatenate([one, 0 * one, 0 * one])]),
        b_eq=np.concatenate([p, [1]]),
        A_ub=np.concatenate([0 * one, one, one])[None],
        b_ub=[radius],
    )
    with jax.enable_x64(True):
        got = worst_case(jnp.asarray(p), jnp.asarray(v), radius)
    np.testing.assert_allclose(got, program.fun, atol=1e-7)


def test_robust_values():
    mdp = garnet(4)
    nominal = policy_iteration(mdp, 0.9).value
    np.testing.assert_allclose(robust_value_iteration(mdp, 0.9, 0.0, 1e-10).value, nominal, atol=1e-8)
    last = nominal
    for radius in (0.1, 0.5, 2.0):
        now = robust_value_iteration(mdp, 0.9, radius, 1e-10).value
        assert np.all(now < last)
        last = now
    # At radius 2 the adversary picks the outcome: a game whose values a plain recursion gives.
    value = np.zeros(S)
    for _ in range(400):
        value = np.max(np.min(np.asarray(mdp.reward) + 0.9 * value[np.asarray(mdp.next_state)], -1), -1)
    np.testing.assert_allclose(last, value, atol=1e-8)


def test_a_radius_for_each_pair():
    mdp = garnet(4)
    radius = jnp.zeros((S, A)).at[0, :].set(1.0)
    only_first = robust_value_iteration(mdp, 0.9, radius, 1e-10).value
    nominal, everywhere = policy_iteration(mdp, 0.9).value, robust_value_iteration(mdp, 0.9, 1.0, 1e-10).value
    assert only_first[0] < nominal[0] and np.all(only_first <= nominal + 1e-9) and np.all(only_first > everywhere)


@pytest.mark.slow
@pytest.mark.light
def test_sticky_actions_can_only_cost():
    """Without them the agent could imitate them."""
    mdp = garnet(6)
    value = value_iteration(sticky(mdp, 0.25), 0.9, 1e-10).value.reshape(S, A + 1)
    assert np.all(value[:, A] < value_iteration(mdp, 0.9, 1e-10).value)
    np.testing.assert_allclose(
        value_iteration(sticky(mdp, 0.0), 0.9, 1e-10).value.reshape(S, A + 1)[:, 0],
        value_iteration(mdp, 0.9, 1e-10).value,
        atol=1e-8,
    )
