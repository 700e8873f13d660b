"""The effective horizon: how far ahead of the random policy one must look to act optimally.

Laidlaw, Russell and Dragan (2023), "Bridging RL theory and practice with the effective horizon"; Laidlaw, Zhu, Russell
and Dragan (2024), "The effective horizon explains deep RL performance in stochastic environments". Exact functions of
an `MDP` with a static horizon T; jit them, vmap them over MDPs of one shape (padding with states that cannot be reached
changes nothing).

Q^1 are the action values of the uniformly random policy, Q^{k+1}_t = r + E[max_a Q^k_{t+1}]: k - 1 steps of value
iteration. The MDP is k-QVI-solvable if every policy that is greedy in Q^k is optimal, in the states that it visits.
GORP (`algos/tabular/gorp.py`), which estimates Q^k by m random episodes for each of the A^k sequences of actions, finds
an optimal policy in about T^2 A^k m steps, and the effective horizon is

    H = min_k (k + log_A m_k),    m_k: the least m with which GORP succeeds with probability 1/2.

`effective_horizon` bounds it from above. In a state met at t let D_a be the gap of action a, the best Q^k less its
Q^k (for the best actions the least gap of the others), w_a and b_a the variance and the range of the return after the
sequences that begin with a. By Bernstein's inequality, if no mean of m returns misses its expectation by D_a / 2 in the
wrong direction the step is right; each does with probability at most exp(-m D_a^2 / (8 w_a + 4 b_a D_a / 3)). There are
at most T A^k of them on the way, so that

    m_k <= max over t, states met and a of (8 w_a / D_a^2 + 4 b_a / (3 D_a)) log(2 T A^k).

The papers bound m_k by inequalities of the same kind. In a stochastic MDP the outcomes of the k planned steps add
their variance and range; the number is then a measure and no theorem about SQIRL. Ties are decided within a relative
`tol`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.exact.mdp import MDP
from jaxrl.exact.solvers import backward_induction, bellman

TOL = 1e-5


class EffectiveHorizon(NamedTuple):
    """What `effective_horizon` finds; the arrays have an entry for each k from 1 to T."""

    horizon: Array  # the least of the bounds k + log_A m_k
    k: Array  # int32, where it is
    min_k: Array  # int32, the least k for which the MDP is k-QVI-solvable
    bounds: Array  # (T,) k + log_A m_k, infinite where not solvable
    solvable: Array  # (T,) bool


@partial(jax.jit, static_argnames="horizon")
def random_values(mdp: MDP, horizon: int) -> Float[Array, "T S A"]:
    """Q^1: the values by time of each action when all later ones are uniformly random."""

    def step(value, _):
        q = bellman(mdp, value, 1.0)
        return jnp.mean(q, -1), q

    return jax.lax.scan(step, jnp.zeros_like(mdp.initial), length=horizon, reverse=True)[1]


def _later(x: Float[Array, "T S A"]) -> Float[Array, "T S"]:
    """The largest entry over actions, one step later; 0 at the end."""
    return jnp.concatenate([jnp.max(x[1:], -1), jnp.zeros_like(x[:1, :, 0])])


def qvi(mdp: MDP, q: Float[Array, "T S A"]) -> Float[Array, "T S A"]:
    """One step of value iteration on Q: r + E[max_a Q_{t+1}], and r at the last time."""
    return jax.vmap(lambda value: bellman(mdp, value, 1.0))(_later(q))


def best_actions(q: Float[Array, "*batch A"], tol: float = TOL) -> Bool[Array, "*batch A"]:
    """Those as good as the best, within `tol` of the largest value in size."""
    best = jnp.max(q, -1, keepdims=True)
    return q >= best - tol * jnp.max(jnp.abs(q), -1, keepdims=True)


def reachable(mdp: MDP, allowed: Bool[Array, "T S A"]) -> Bool[Array, "T S"]:
    """The states that can be met at each time by taking `allowed` actions."""

    def step(here, may):
        moves = (here[:, None] & may)[..., None] & (mdp.continues > 0)
        return jnp.zeros_like(here).at[mdp.next_state].max(moves), here

    return jax.lax.scan(step, mdp.initial > 0, allowed)[1]


def _solves(mdp: MDP, q: Array, optimal: Array, tol: float) -> tuple[Array, Array]:
    """Whether every greedy policy of `q` is optimal, and the states (T, S) that they meet."""
    greedy = best_actions(q, tol)
    met = reachable(mdp, greedy)
    return ~jnp.any(met[..., None] & greedy & ~optimal), met


@partial(jax.jit, static_argnames=("horizon", "k"))
def is_solvable(mdp: MDP, horizon: int, k: int, tol: float = TOL) -> Bool[Array, ""]:
    """Whether `mdp` is k-QVI-solvable. Raises ValueError for k below 1."""
    if k < 1:
        raise ValueError(f"k={k}: it must be at least 1, the random policy's own values.")
    q = random_values(mdp, horizon)
    for _ in range(k - 1):
        q = qvi(mdp, q)
    return _solves(mdp, q, best_actions(backward_induction(mdp, horizon)[1], tol), tol)[0]


def _least(flags: Bool[Array, " T"]) -> Integer[Array, ""]:
    return (jnp.argmax(flags) + 1).astype(jnp.int32)


@partial(jax.jit, static_argnames="horizon")
def min_k(mdp: MDP, horizon: int, tol: float = TOL) -> Integer[Array, ""]:
    """The least k for which `mdp` is k-QVI-solvable; at most T, since Q^T is optimal."""
    return _first_solving(mdp, random_values(mdp, horizon), horizon, tol)


@partial(jax.jit, static_argnames="horizon")
def planning_window(mdp: MDP, horizon: int, tol: float = TOL) -> Integer[Array, ""]:
    """The effective planning window: the least k when Q^1 is the reward alone, with nothing after it."""
    reward = jnp.broadcast_to(mdp.expected_reward(), (horizon, *mdp.reward.shape[:2]))
    return _first_solving(mdp, reward, horizon, tol)


def _first_solving(mdp: MDP, q: Array, horizon: int, tol: float) -> Array:
    optimal = best_actions(backward_induction(mdp, horizon)[1], tol)
    step = lambda q, _: (qvi(mdp, q), _solves(mdp, q, optimal, tol)[0])  # noqa: E731
    return _least(jax.lax.scan(step, q, length=horizon)[1])


@partial(jax.jit, static_argnames="horizon")
def random_spread(mdp: MDP, horizon: int) -> tuple[Float[Array, "T S A"], Float[Array, "T S A"]]:
    """The variance of the random policy's return after each action, and the range of all possible returns after it."""
    possible = mdp.probability > 0

    def step(carry, _):
        value, variance, low, high = carry
        after = lambda x: jnp.where(mdp.terminated, 0, x[mdp.next_state])  # noqa: E731
        q = bellman(mdp, value, 1.0)
        # The law of total variance, twice: over outcomes, then over actions. Nothing is subtracted that could cancel.
        outcome = mdp.reward + after(value) - q[..., None]
        spread = jnp.sum(mdp.probability * (outcome**2 + after(variance)), -1)
        mean = jnp.mean(q, -1)
        highest = jnp.max(jnp.where(possible, mdp.reward + after(high), -jnp.inf), -1)
        lowest = jnp.min(jnp.where(possible, mdp.reward + after(low), jnp.inf), -1)
        new = mean, jnp.mean(spread + (q - mean[:, None]) ** 2, -1), jnp.min(lowest, -1), jnp.max(highest, -1)
        return new, (spread, highest - lowest)

    zero = jnp.zeros_like(mdp.initial)
    return jax.lax.scan(step, (zero,) * 4, length=horizon, reverse=True)[1]


def plan_step(
    mdp: MDP, q: Float[Array, "T S A"], variance: Float[Array, "T S A"], spread: Float[Array, "T S A"]
) -> tuple[Float[Array, "T S A"], Float[Array, "T S A"], Float[Array, "T S A"]]:
    """Q, variance and range with one more step planned.

    Variance and range are the largest ahead and, of r + max_a Q over the outcomes, their own (0 if there is but one).
    """

    def ahead(x):
        return jnp.where(mdp.terminated, 0, _later(x)[:, mdp.next_state])

    possible, after = mdp.probability > 0, mdp.reward + ahead(q)
    mean = jnp.sum(mdp.probability * after, -1)
    noise = jnp.sum(mdp.probability * (after - mean[..., None]) ** 2, -1)
    width = jnp.max(jnp.where(possible, after, -jnp.inf), -1) - jnp.min(jnp.where(possible, after, jnp.inf), -1)
    worst = [jnp.max(jnp.where(possible, ahead(x), 0), -1) for x in (variance, spread)]
    return mean, noise + worst[0], width + worst[1]


def samples_needed(
    q: Float[Array, "T S A"],
    variance: Float[Array, "T S A"],
    spread: Float[Array, "T S A"],
    met: Bool[Array, "T S"],
    tol: float = TOL,
) -> Float[Array, ""]:
    """max over t, states met and a of 8 w_a / D_a^2 + 4 b_a / (3 D_a)."""
    greedy = best_actions(q, tol)
    gap = jnp.max(q, -1, keepdims=True) - q
    least = jnp.min(jnp.where(greedy, jnp.inf, gap), -1, keepdims=True)  # infinite where all are best
    gap = jnp.where(greedy, least, gap)
    need = 8 * variance / gap / gap + 4 * spread / (3 * gap)
    return jnp.max(jnp.where(met[..., None], need, 0))


@partial(jax.jit, static_argnames="horizon")
def effective_horizon(mdp: MDP, horizon: int, tol: float = TOL) -> EffectiveHorizon:
    """The bound k + log_A m_k for every k, and its least value."""
    actions = mdp.num_actions
    optimal = best_actions(backward_induction(mdp, horizon)[1], tol)

    def step(carry, k):
        q, variance, spread = carry
        solved, met = _solves(mdp, q, optimal, tol)
        m = samples_needed(q, variance, spread, met, tol) * (jnp.log(2.0 * horizon) + k * jnp.log(actions))
        bound = jnp.where(solved, k + jnp.log(jnp.maximum(m, 1)) / jnp.log(actions), jnp.inf)
        return plan_step(mdp, q, variance, spread), (bound, solved)

    start = (random_values(mdp, horizon), *random_spread(mdp, horizon))
    _, (bounds, solvable) = jax.lax.scan(step, start, jnp.arange(1, horizon + 1, dtype=mdp.reward.dtype))
    return EffectiveHorizon(jnp.min(bounds), _least(bounds <= jnp.min(bounds)), _least(solvable), bounds, solvable)


@partial(jax.jit, static_argnames="horizon")
def covering_length(mdp: MDP, horizon: int) -> Float[Array, ""]:
    """Random episodes after which every reachable state and action was tried with probability 1/2, from above.

    log(2 S A) / p with the least probability p of a pair in an episode, itself bounded by that at its likeliest time.
    """
    actions = mdp.num_actions

    def step(here, _):
        flow = here[:, None, None] / actions * mdp.continues
        return jnp.zeros_like(here).at[mdp.next_state].add(flow), here

    likeliest = jnp.max(jax.lax.scan(step, mdp.initial, length=horizon)[1], 0)
    pairs = jnp.sum(likeliest > 0) * actions
    return jnp.log(2.0 * pairs) * actions / jnp.min(jnp.where(likeliest > 0, likeliest, jnp.inf))
