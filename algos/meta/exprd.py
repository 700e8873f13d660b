"""ExpRD: designs a reward in few states that speeds up learning and keeps the optimal policy.

Devidze, Radanovic, Kamalaruban and Singla (2021), "Explicable Reward Design for Reinforcement Learning Agents",
NeurIPS. Given a finite MDP with a sparse reward R0 and an optimal policy pi, it designs a reward R that is zero except
in the states G where R0 pays and in B more states. With the h-step optimality gaps

    delta_h(s, a) = Q_h(s, pi(s)) - Q_h(s, a),      Q_h = R + gamma T Q_h-1(., pi), Q_0 = R, h infinite: the usual Q

R is as informative as possible: bad actions should already have over few steps the gap that they have in the end,

    maximise  I(R) = - sum over h in H, s, a not optimal of max(0, delta0(s, a) - delta_h(s, a)),

where delta0 are the infinite gaps under R0, and pi stays optimal with the same margin in every state (equations C.1,
C.2):

    delta_infinite(s, a) >= min over a' not optimal of delta0(s, a'),      |R| <= max_reward

Gaps are linear in R, so for given states this is a linear program (`scipy.optimize.linprog`); states are added
greedily, each time the one with the largest gain (algorithm 1, without the term D). Potential-based shaping by the
optimal value (`shaped`), a reward in all states, has the largest possible I = 0. Deviations: one policy pi; actions as
good as pi's under R0 may not be better under R, so that pi is certainly optimal. Results: `experiments/reward_design/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linprog

from jaxrl.exact.mdp import MDP, DenseMDP
from jaxrl.exact.solvers import value_iteration

TOLERANCE = 1e-6
"""Relative tolerance: gaps below this share of the largest one count as zero, and constraints hold up to it."""


class Design(NamedTuple):
    """A designed reward and its informativeness."""

    reward: Float[np.ndarray, "S A"]
    states: Int[np.ndarray, " B"]  # the added states, in order
    informativeness: Float[np.ndarray, " steps"]  # I with none, one, ... of the added states; at most 0


class Task(NamedTuple):
    """The data that all linear programs of a design share."""

    transition: np.ndarray  # (S, A, S)
    reward: np.ndarray  # (S, A)
    policy: np.ndarray  # (S,) an optimal one
    gaps: np.ndarray  # (S, A) under the given reward
    worse: np.ndarray  # (S, A) bool, not optimal
    by_horizon: tuple[np.ndarray, ...]  # for each h, (S A, S A): delta_h = matrix @ R
    last: np.ndarray  # the same for delta_infinite


def gap_matrix(transition: np.ndarray, policy: np.ndarray, gamma: float, horizon: int | None) -> np.ndarray:
    """The matrix (S A, S A) from flattened rewards to flattened `delta_h`; `horizon` None: infinitely many steps."""
    S, A, _ = transition.shape
    on_policy = np.zeros((S, S * A))
    on_policy[np.arange(S), np.arange(S) * A + policy] = 1
    step = gamma * transition[np.arange(S), policy]
    if horizon is None:
        value = np.linalg.solve(np.eye(S) - step, on_policy)
    else:
        value = np.zeros_like(on_policy)
        for _ in range(horizon):
            value = on_policy + step @ value
    q = np.eye(S * A) + gamma * transition.reshape(S * A, S) @ value
    return np.repeat(on_policy @ q, A, 0) - q


def task_of(mdp: MDP | DenseMDP, gamma: float, horizons: Sequence[int]) -> Task:
    """The `Task` of an MDP. Raises ValueError for no or negative horizons, or if every action is optimal."""
    if not horizons or min(horizons) < 0:
        raise ValueError(f"horizons={tuple(horizons)}: at least one, of 0 or more steps.")
    dense = mdp.dense()
    transition, reward = np.asarray(dense.transition, float), np.asarray(dense.reward, float)
    policy = np.asarray(value_iteration(dense, gamma).policy)
    last = gap_matrix(transition, policy, gamma, None)
    gaps = (last @ reward.ravel()).reshape(reward.shape)
    worse = gaps > TOLERANCE * np.abs(gaps).max()
    if not worse.any():
        raise ValueError("Every action is optimal: there is nothing to be informed of.")
    matrices = tuple(gap_matrix(transition, policy, gamma, h) for h in horizons)
    return Task(transition, reward, policy, np.maximum(gaps, 0), worse, matrices, last)


def informativeness(task: Task, reward: Float[np.ndarray, "S A"]) -> float:
    """I(R), at most 0."""
    worse, gaps = task.worse.ravel(), task.gaps.ravel()
    return -float(sum(np.maximum(0, gaps - m @ reward.ravel())[worse].sum() for m in task.by_horizon))


def best_reward(task: Task, states: Sequence[int], max_reward: float) -> tuple[Float[np.ndarray, "S A"], float]:
    """`(R, I(R))` of the most informative reward that is zero outside of `states`.

    Raises ValueError if no such reward keeps the policy optimal, as where `states` lacks those where R0 pays.
    """
    S, A = task.reward.shape
    free = (np.sort(np.asarray(states, int))[:, None] * A + np.arange(A)).ravel()
    worse, gaps = task.worse.ravel(), task.gaps.ravel()
    rows = np.concatenate([m[worse][:, free] for m in task.by_horizon])
    slack = len(rows)
    # Variables: R in these states, then one slack a horizon, state and action: slack >= gap - delta_h.
    soft = np.hstack([-rows, -np.eye(slack)])
    least = np.where(task.worse, np.min(np.where(task.worse, task.gaps, np.inf), 1, keepdims=True), 0).ravel()
    # R0 lies on the boundary of the feasible set: a solver needs some tolerance.
    least = least - TOLERANCE * task.gaps.max()
    others = np.ones(S * A, bool)
    others[np.arange(S) * A + task.policy] = False
    hard = np.hstack([-task.last[others][:, free], np.zeros((others.sum(), slack))])
    found = linprog(
        np.concatenate([np.zeros(len(free)), np.ones(slack)]),
        np.vstack([soft, hard]),
        np.concatenate([np.tile(-gaps[worse], len(task.by_horizon)), -least[others]]),
        bounds=[(-max_reward, max_reward)] * len(free) + [(0, None)] * slack,
        method="highs",
    )
    if found.x is None:
        raise ValueError(f"No reward of at most {max_reward} in states {sorted(states)} keeps the policy optimal.")
    reward = np.zeros(S * A)
    reward[free] = found.x[: len(free)]
    return reward.reshape(S, A), -float(found.fun)


def design(
    mdp: MDP | DenseMDP,
    num_states: int,
    gamma: float = 0.95,
    horizons: Sequence[int] = (1, 4, 8, 16, 32),
    max_reward: float = 10.0,
    candidates: Sequence[int] | None = None,
) -> Design:
    """A reward in the states where `mdp` pays and in `num_states` more, chosen from `candidates` (default: all).

    Host only, numpy in float64: for each added state it solves one linear program for each candidate.
    Raises ValueError for a negative `num_states`, an MDP without reward, and as `task_of` and `best_reward` do.
    """
    if num_states < 0:
        raise ValueError(f"num_states={num_states}: it must not be negative.")
    task = task_of(mdp, gamma, horizons)
    given = np.flatnonzero(np.any(task.reward != 0, 1)).tolist()
    left = sorted(set(range(len(task.reward)) if candidates is None else candidates) - set(given))
    reward, value = best_reward(task, given, max_reward)
    added, values = [], [value]
    for _ in range(min(num_states, len(left))):
        tried = {s: best_reward(task, [*given, *added, s], max_reward) for s in left}
        chosen = max(tried, key=lambda s: tried[s][1])
        reward, value = tried[chosen]
        added.append(chosen)
        values.append(value)
        left.remove(chosen)
    return Design(reward, np.asarray(added, int), np.asarray(values))


def shaped(mdp: MDP | DenseMDP, gamma: float) -> Float[np.ndarray, "S A"]:
    """R0 + gamma T V - V: potential-based shaping by the optimal value (Ng, Harada and Russell 1999)."""
    dense = mdp.dense()
    value = np.asarray(value_iteration(dense, gamma).value, float)
    return np.asarray(dense.reward, float) + gamma * np.asarray(dense.transition, float) @ value - value[:, None]
