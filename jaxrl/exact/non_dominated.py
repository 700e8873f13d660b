"""Non-dominated policies of a matrix game: few victims of which some one is best, whatever the attacker does.

Liu et al. (2024), "Beyond worst-case attacks: robust RL with adaptive defense via non-dominated policies" (PROTECTED,
arXiv:2402.12673), here exact. J[i, b] is what policy i returns under attacker b. The one robust policy, best in its
worst case, gives away return where the attacker is weak or absent. PROTECTED keeps a set of policies and lets an
adversarial bandit choose among them while it is attacked; what the set can lose beside all policies, before a bandit's
regret, is its gap

    gap(set) = max over nu of ( max over i of J_i nu  -  max over j in set of J_j nu )

over attackers nu, mixed ones included. The set grows by the policy, and its attacker, at which the gap is: what the
released code does by PPO, whose attacker is paid what the new victim returns less what the best earlier one does. For a
policy i the maximum over nu is the value of the zero-sum game J_i - J_j, j in set: above 0 exactly where no mixture of
the set is at least as good as i against all attackers, so i is not dominated. At gap 0 the set is that of all
non-dominated policies and nothing more, as each was the one best against the attacker that let it in (but for exact
ties).

At test time the set's policies are the arms of `exp3` with the estimator `ix`, an episode a round:

    table, params = jaxrl.make("AdversarialBandit-v0", arms=3, rounds=2_000)
    params = params.replace(rewards=J[found.members][:, attackers].T)    # attackers: (rounds,), one an episode
    algo = exp3.make(table, exp3.Config(estimator="ix"))

Pure functions of arrays; `vmap` them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxrl.environment import is_concrete

_MARGIN = 10  # times the machine's precision: below it a reduced cost is rounding


class Game(NamedTuple):
    """A zero-sum game's solution: what the row player is paid, and what both play."""

    value: Array  # ()
    row: Array  # (A,)
    column: Array  # (B,)


class Discovery(NamedTuple):
    """The policies found, in order; entries of (K,) that were not needed are -1 or 0."""

    members: Int[Array, " K"]  # rows of the game, then -1
    gaps: Float[Array, " K"]  # gap of the set after each
    attackers: Float[Array, "K B"]  # the attacker against whom each was found; of the first: zeros


def solve(payoff: Float[Array, "A B"], max_pivots: int = 1_000) -> Game:
    """A zero-sum game by the simplex method (Dantzig 1951), whose pivots follow Bland's rule and so never cycle.

    With payoffs made positive, sum(u) is maximised over u >= 0 with payoff u <= 1: the value is 1 / sum(u), the column
    player's strategy u over its sum, the row player's the dual solution over its own.
    """
    A, B = payoff.shape
    lowest, highest = jnp.min(payoff), jnp.max(payoff)
    scale = jnp.where(highest > lowest, highest - lowest, 1)
    body = (payoff - lowest) / scale + 1
    rows = jnp.concatenate([body, jnp.eye(A, dtype=body.dtype), jnp.ones((A, 1), body.dtype)], 1)
    costs = jnp.concatenate([-jnp.ones(B, body.dtype), jnp.zeros(A + 1, body.dtype)])
    small = _MARGIN * jnp.finfo(body.dtype).eps

    def going(carry: Any) -> Array:
        i, _, costs, _ = carry
        return (i < max_pivots) & jnp.any(costs[:-1] < -small)

    def pivot(carry: Any) -> Any:
        i, rows, costs, basis = carry
        enters = jnp.argmax(costs[:-1] < -small)
        column = rows[:, enters]
        ratio = jnp.where(column > small, rows[:, -1] / jnp.where(column > small, column, 1), jnp.inf)
        tied = ratio <= jnp.min(ratio) * (1 + small)
        leaves = jnp.argmin(jnp.where(tied, basis, A + B))
        row = rows[leaves] / rows[leaves, enters]
        rows = jnp.where(jnp.arange(A)[:, None] == leaves, row, rows - column[:, None] * row)
        return i + 1, rows, costs - costs[enters] * row, basis.at[leaves].set(enters)

    basis = jnp.arange(B, B + A)
    _, rows, costs, basis = jax.lax.while_loop(going, pivot, (jnp.int32(0), rows, costs, basis))
    u = jnp.zeros(A + B, body.dtype).at[basis].set(rows[:, -1])[:B]
    return Game(
        (1 / jnp.sum(u) - 1) * scale + lowest, jnp.maximum(costs[B:-1], 0) / jnp.sum(costs[B:-1]), u / jnp.sum(u)
    )


def gap(payoff: Float[Array, "A B"], members: Int[Array, " K"]) -> tuple[Array, Array, Array]:
    """What the set can lose beside all policies: (), the policy that it lacks: (), and the attacker: (B,).

    `members` are rows; negative ones are skipped, the first is not.
    """
    kept = payoff[jnp.where(members >= 0, members, members[0])]
    # For each policy the attacker, who plays columns, maximises what it is better than the set's mixture.
    games = jax.vmap(lambda policy: solve(-(policy - kept)))(payoff)
    lost = jnp.max(payoff @ games.column.T, 0) - jnp.max(kept @ games.column.T, 0)
    which = jnp.argmax(lost)
    attacker = games.column[which]
    return jnp.maximum(lost[which], 0), jnp.argmax(payoff @ attacker).astype(jnp.int32), attacker


def discover(
    payoff: Float[Array, "A B"],
    size: int,
    first: int | Int[Array, ""] | None = None,
    tol: float | Float[Array, ""] = 1e-5,
) -> Discovery:
    """The non-dominated policies, the one most missed first, until the gap is at most `tol` or the set has `size`.

    Args:
        first: the policy to begin with; None: the best against all attackers mixed equally, which nothing dominates. A
            policy that is dominated stays in the set.

    Raises ValueError for a size that is none and a `first` that is no policy.
    """
    if not 1 <= size <= payoff.shape[0]:
        raise ValueError(f"size={size}: it must be from 1 to the number of policies, {payoff.shape[0]}.")
    if first is None:
        first = jnp.argmax(jnp.mean(payoff, 1)).astype(jnp.int32)
    if is_concrete(first) and not 0 <= int(first) < payoff.shape[0]:
        raise ValueError(f"first={int(first)}: the policies are 0 to {payoff.shape[0] - 1}.")
    return _discover(payoff, jnp.asarray(first, jnp.int32), tol, size)


@partial(jax.jit, static_argnames="size")
def _discover(payoff: Any, first: Array, tol: Any, size: int) -> Discovery:
    def grow(members: Array, k: Array) -> tuple[Array, Any]:
        lost, policy, attacker = gap(payoff, members)
        added = (lost > tol) & (k < size)
        members = members.at[k].set(jnp.where(added, policy, -1), mode="drop")
        return members, (lost, jnp.where(added, attacker, 0))

    begin = jnp.full(size, -1, jnp.int32).at[0].set(first)
    members, (gaps, attackers) = jax.lax.scan(grow, begin, jnp.arange(1, size + 1))
    nobody = jnp.zeros((1, payoff.shape[1]), payoff.dtype)
    return Discovery(members, gaps, jnp.concatenate([nobody, attackers[:-1]]))
