"""Exact solutions of finite MDPs: jitted, of one MDP each; `vmap` them over thousands.

`mdp` is an `MDP` (lists of outcomes) or a `DenseMDP` everywhere; `gamma` may be 1 where every policy ends. Linear
systems are solved in plain operations, since batched LAPACK calls can deadlock XLA on a CPU (docs/decisions.md).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, Shaped

from jaxrl.exact.mdp import MDP, DenseMDP
from jaxrl.math import precise

_MARGIN = 16  # units of rounding by which an action must be better to be taken


class Solution(NamedTuple):
    """What a solver found. `policy` is greedy with respect to `q`; the first of equal actions."""

    value: Array  # (S,)
    q: Array  # (S, A)
    policy: Array  # (S,) int32
    iterations: Array  # sweeps, or policies, or pivots
    error: Array  # a bound on |value - optimal value| where gamma < 1, else the last change


def bellman(mdp: MDP | DenseMDP, value: Float[Array, " S"], gamma: float | Array) -> Float[Array, "S A"]:
    """Action values of one step and then `value`: r + gamma E[v(s')]."""
    return mdp.expected_reward() + gamma * mdp.expect(value)


def _greedy(q: Array) -> Array:
    return jnp.argmax(q, -1).astype(jnp.int32)


@precise
def _choose(x: Array, policy: Array) -> Array:
    """Rows of `x` (S, A, ...) of a deterministic policy (S,) or mixed by a stochastic one (S, A)."""
    if policy.ndim == 1:
        return x[jnp.arange(len(policy)), policy]
    return jnp.einsum("sa,sa...->s...", policy, x)


# ---- dynamic programming


@partial(jax.jit, static_argnames="max_iterations")
def value_iteration(
    mdp: MDP | DenseMDP,
    gamma: float | Float[Array, ""],
    tol: float | Float[Array, ""] = 1e-6,
    max_iterations: int = 100_000,
) -> Solution:
    """Value iteration until every value is within `tol` of the optimum (or floats cannot tell).

    It stops by the bounds of MacQueen (1966; Puterman 1994, theorem 6.6.3): one sweep changes values by between `low`
    and `high`, hence the optimum lies within gamma / (1 - gamma) of these above the last sweep. The middle is returned.
    Where episodes can end, the absorbing state changes by 0, so low <= 0 <= high.
    """
    reward = mdp.expected_reward()
    gamma = jnp.asarray(gamma, reward.dtype)
    ends = mdp.ends()
    eps = jnp.finfo(reward.dtype).eps
    ahead = jnp.where(gamma < 1, gamma / jnp.where(gamma < 1, 1 - gamma, 1), 1)

    def sweep(carry):
        i, value, *_ = carry
        new = jnp.max(reward + gamma * mdp.expect(value), -1)
        change = new - value
        low, high = jnp.min(change), jnp.max(change)
        low, high = jnp.where(ends, jnp.minimum(low, 0), low), jnp.where(ends, jnp.maximum(high, 0), high)
        # With an ending the middle would move the absorbing state, too: the last sweep stands, with twice the error.
        spread = jnp.where(gamma < 1, ahead * (high - low) / jnp.where(ends, 1, 2), jnp.max(jnp.abs(change)))
        settled = high - low <= 4 * eps * jnp.max(jnp.abs(new))
        return i + 1, new, jnp.where((gamma < 1) & ~ends, ahead * (high + low) / 2, 0), spread, settled

    def going(carry):
        i, _, _, error, settled = carry
        return (i < max_iterations) & (error > tol) & ~settled

    zero = jnp.zeros_like(reward[:, 0])
    start = jnp.int32(0), zero, jnp.zeros_like(gamma), jnp.asarray(jnp.inf, reward.dtype), jnp.bool_(False)
    iterations, value, shift, error, _ = jax.lax.while_loop(going, sweep, start)
    value = value + shift
    q = reward + gamma * mdp.expect(value)
    return Solution(value, q, _greedy(q), iterations, error)


@jax.jit
def policy_iteration(
    mdp: MDP | DenseMDP, gamma: float | Float[Array, ""], max_iterations: int | Integer[Array, ""] = 1_000
) -> Solution:
    """Policy iteration (Howard 1960): exact evaluation, greedy improvement, until nothing improves.

    An action is changed only for a better value than rounding could make, and it stops when the values rise no more, so
    equal actions cannot alternate. The first policy is that of S sweeps, which where gamma is 1 has to reach an end.
    """
    dense = mdp.dense()
    S = dense.reward.shape[0]
    margin = _MARGIN * jnp.finfo(dense.reward.dtype).eps

    def improve(carry):
        i, policy, old, _ = carry
        value = evaluate_policy(dense, policy, gamma)
        q = bellman(dense, value, gamma)
        gain = jnp.max(q, -1) - _choose(q, policy)
        better = gain > margin * (1 + jnp.abs(value))
        rises = jnp.sum(value) > jnp.sum(old)
        going = jnp.any(better) & (rises | (i == 0))
        return i + 1, jnp.where(better, _greedy(q), policy), jnp.where(rises | (i == 0), value, old), going

    first = value_iteration(dense, gamma, 0.0, S).policy
    start = jnp.int32(0), first, jnp.zeros(S, dense.reward.dtype), jnp.bool_(True)
    iterations, _, value, _ = jax.lax.while_loop(lambda c: c[3] & (c[0] < max_iterations), improve, start)
    q = bellman(dense, value, gamma)
    return Solution(value, q, _greedy(q), iterations, _residual_bound(q, value, gamma))


@partial(jax.jit, static_argnames="horizon")
def backward_induction(
    mdp: MDP | DenseMDP, horizon: int, gamma: float | Float[Array, ""] = 1.0
) -> tuple[Float[Array, "T1 S"], Float[Array, "T S A"], Integer[Array, "T S"]]:
    """`(value, q, policy)` of the finite-horizon problem, by time; `value[horizon]` is 0 (Puterman 1994, sec. 4.5)."""

    def step(value, _):
        q = bellman(mdp, value, gamma)
        new = jnp.max(q, -1)
        return new, (new, q)

    last = jnp.zeros(mdp.initial.shape[0], mdp.expected_reward().dtype)
    _, (value, q) = jax.lax.scan(step, last, length=horizon, reverse=True)
    return jnp.concatenate([value, last[None]]), q, _greedy(q)


# ---- linear algebra


def solve(a: Float[Array, "n n"], b: Shaped[Array, "n ..."]) -> Shaped[Array, "n ..."]:
    """x with a x = b, by Gauss-Jordan elimination with partial pivoting, in plain operations."""
    n = len(a)
    columns = b.reshape(n, -1).astype(a.dtype)

    def eliminate(i, rows):
        pivot = jnp.argmax(jnp.where(jnp.arange(n) >= i, jnp.abs(rows[:, i]), -1))
        top, other = rows[i], rows[pivot]
        rows = rows.at[pivot].set(top).at[i].set(other / other[i])
        return rows - rows[:, i].at[i].set(0)[:, None] * rows[i]

    return jax.lax.fori_loop(0, n, eliminate, jnp.concatenate([a, columns], 1))[:, n:].reshape(b.shape)


def _system(dense: DenseMDP, policy: Array, gamma: float | Array) -> Array:
    """I - gamma P of a policy."""
    transition = _choose(dense.transition, policy)
    return jnp.eye(len(transition), dtype=transition.dtype) - gamma * transition


@jax.jit
def evaluate_policy(
    mdp: MDP | DenseMDP, policy: Shaped[Array, "S *A"], gamma: float | Float[Array, ""]
) -> Float[Array, " S"]:
    """The value of a policy, deterministic (S,) or stochastic (S, A): (I - gamma P)^-1 r."""
    dense = mdp.dense()
    return solve(_system(dense, policy, gamma), _choose(dense.reward, policy))


@jax.jit
def successor_representation(
    mdp: MDP | DenseMDP, policy: Shaped[Array, "S *A"], gamma: float | Float[Array, ""]
) -> Float[Array, "S S"]:
    """Expected discounted visits of each state (columns) from each (rows), the first one included (Dayan 1993).

    Times any reward of states it gives the policy's value.
    """
    system = _system(mdp.dense(), policy, gamma)
    return solve(system, jnp.eye(len(system), dtype=system.dtype))


@jax.jit
def occupancy(
    mdp: MDP | DenseMDP, policy: Shaped[Array, "S *A"], gamma: float | Float[Array, ""]
) -> Float[Array, "S A"]:
    """Expected discounted number of times that a policy takes each action in each state, from `mdp.initial`."""
    dense = mdp.dense()
    visits = solve(_system(dense, policy, gamma).T, dense.initial)
    if policy.ndim == 1:
        policy = jax.nn.one_hot(policy, dense.reward.shape[1], dtype=visits.dtype)
    return visits[:, None] * policy


class LinearProgram(NamedTuple):
    """The primal solution `value`, the dual one `occupancy`, and `gap`, the difference of their objectives."""

    value: Array  # (S,)
    occupancy: Array  # (S, A)
    policy: Array  # (S,) int32
    pivots: Array
    gap: Array


@jax.jit
@precise
def linear_program(
    mdp: MDP | DenseMDP, gamma: float | Float[Array, ""], max_pivots: int | Integer[Array, ""] = 100_000
) -> LinearProgram:
    """The dual linear program of an MDP, by the simplex method (Puterman 1994, sec. 6.9; d'Epenoux 1963).

    Maximise sum x(s,a) r(s,a) over x >= 0 with sum_a x(s,a) - gamma sum_{s',a} x(s',a) p(s|s',a) = initial(s). A basis
    is a deterministic policy. The variable of the largest reduced cost, r + gamma P v - v, enters (Dantzig's rule, for
    which Ye 2011 proved strongly polynomial time) and the same state's old one leaves; the inverse of the basis follows
    by Sherman and Morrison. The primal solution v is optimal in every state, also where `initial` is zero.
    """
    dense = mdp.dense()
    S, _ = dense.reward.shape
    states = jnp.arange(S)
    margin = _MARGIN * jnp.finfo(dense.reward.dtype).eps

    def reduced_costs(policy, inverse):
        value = inverse @ _choose(dense.reward, policy)
        return bellman(dense, value, gamma) - value[:, None], value

    def pivot(carry):
        i, policy, inverse, _ = carry
        cost, value = reduced_costs(policy, inverse)
        s, a = jnp.unravel_index(jnp.argmax(cost), cost.shape)
        going = cost[s, a] > margin * (1 + jnp.max(jnp.abs(value)))
        # Row s of I - gamma P grows by c': (B + e_s c')^-1 = B^-1 - B^-1 e_s c' B^-1 / (1 + c' B^-1 e_s).
        change = gamma * (dense.transition[s, policy[s]] - dense.transition[s, a])
        row, column = change @ inverse, inverse[:, s]
        updated = inverse - jnp.outer(column, row) / (1 + row[s])
        policy = jnp.where(going & (states == s), a.astype(jnp.int32), policy)
        return i + 1, policy, jnp.where(going, updated, inverse), going

    first = _greedy(dense.reward)
    inverse = solve(_system(dense, first, gamma), jnp.eye(S, dtype=dense.reward.dtype))
    start = jnp.int32(0), first, inverse, jnp.bool_(True)
    pivots, policy, _, _ = jax.lax.while_loop(lambda c: c[3] & (c[0] < max_pivots), pivot, start)
    # Afresh, because the rounding of many rank-one updates adds up.
    value, visits = evaluate_policy(dense, policy, gamma), occupancy(dense, policy, gamma)
    gap = jnp.abs(dense.initial @ value - jnp.sum(visits * dense.reward))
    return LinearProgram(value, visits, policy, pivots - 1, gap)


def _residual_bound(q: Array, value: Array, gamma: float | Array) -> Array:
    residual = jnp.max(jnp.abs(jnp.max(q, -1) - value))
    return jnp.where(gamma < 1, residual / jnp.where(gamma < 1, 1 - gamma, 1), residual)


# ---- robustness


def worst_case(
    probability: Float[Array, "*batch K"], value: Float[Array, "*batch K"], radius: float | Float[Array, "*#batch"]
) -> Float[Array, "*batch"]:
    """The least expectation of `value` over distributions within L1 distance `radius` of `probability`.

    On the same K points: up to radius / 2 of probability moves from the best ones to the worst (Strehl and Littman
    2008; Iyengar 2005).
    """
    order = jnp.argsort(value, -1)
    value = jnp.take_along_axis(value, order, -1)
    probability = jnp.take_along_axis(probability, order, -1)
    moved = jnp.minimum(radius / 2, 1 - probability[..., 0])
    # Taken from the best: what lies beyond 1 - moved of the distribution function.
    before = jnp.cumsum(probability, -1) - probability
    kept = jnp.clip(jnp.sum(probability, -1, keepdims=True) - moved[..., None] - before, 0, probability)
    return jnp.sum(kept * value, -1) + moved * value[..., 0]


@partial(jax.jit, static_argnames="max_iterations")
def robust_value_iteration(
    mdp: MDP,
    gamma: float | Float[Array, ""],
    radius: float | Float[Array, "..."],
    tol: float | Float[Array, ""] = 1e-6,
    max_iterations: int = 100_000,
) -> Solution:
    """Value iteration against an adversary who picks each next-state distribution within L1 distance `radius`.

    The uncertainty is (s, a)-rectangular over the listed outcomes (Iyengar 2005; Nilim and El Ghaoui 2005): give
    `MDP.probability` zeros for outcomes that only the adversary may choose. `radius` is a number or (S, A). Stops where
    the contraction bounds the error by `tol`.
    """
    gamma = jnp.asarray(gamma, mdp.reward.dtype)
    radius = jnp.broadcast_to(jnp.asarray(radius, mdp.reward.dtype), mdp.probability.shape[:2])

    def backup(value):
        after = mdp.reward + gamma * jnp.where(mdp.terminated, 0, value[mdp.next_state])
        return worst_case(mdp.probability, after, radius)

    def sweep(carry):
        i, value, _ = carry
        new = jnp.max(backup(value), -1)
        change = jnp.max(jnp.abs(new - value))
        return i + 1, new, jnp.where(gamma < 1, change * gamma / jnp.where(gamma < 1, 1 - gamma, 1), change)

    start = jnp.int32(0), jnp.zeros(mdp.num_states, mdp.reward.dtype), jnp.asarray(jnp.inf, mdp.reward.dtype)
    going = lambda c: (c[0] < max_iterations) & (c[2] > tol)  # noqa: E731
    iterations, value, error = jax.lax.while_loop(going, sweep, start)
    q = backup(value)
    return Solution(value, q, _greedy(q), iterations, error)
