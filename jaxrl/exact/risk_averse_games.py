"""Risk-averse equilibria of matrix games: who fears the actions that the other seldom takes.

Slumbers et al. (2023), "A game-theoretic framework for managing risk in multi-agent systems" (ICML). Against an
opponent who plays y, a strategy x minimises the variance of what it is paid, less gamma times its mean:

    x' Sigma_y x - gamma x' M y,    Sigma_y = sum over b of y_b (M_b - M y)(M_b - M y)'

M_b is the column of payoffs against the opponent's action b, so the variance is over the opponent's draw alone: x'
Sigma_y x is that of the mean of one's own draws. Sigma_y is positive semidefinite, so the best response is a convex
quadratic programme, and where both strategies are best responses there is a risk-averse equilibrium (RAE). The larger
gamma, the less is feared; without a limit it is Nash's, of whose best responses it takes one of least variance.

An opponent who never errs has no variance, so each strict pure equilibrium of Nash stays one here, whatever gamma is.
With `tremble`, each action has at least this probability. Then the payoff-dominant equilibrium of a stag hunt (a for
both, b for who hunts alone, c and d for hares, a > c, d > b, a + d > b + c) ends below

    gamma = 2 t (1 - t) (a - b - c + d) D / ((1 - t) (a - c) - t (d - b)),    D = (1 - t) (a - b) + t (c - d)

with t the tremble, and play from there ends at hares for both (`stag_hunt_switch`), the risk-dominant equilibrium
where d - b > a - c: the slope of the objective in the probability of the stag, at 1 - t for both.

Deviations: fictitious play with exact best responses where the paper's are smoothed, so `gap` says how near an
equilibrium it came; `tremble` is ours; two players. The paper's code is not published. Pure functions of arrays; `vmap`
them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import is_concrete


class Equilibrium(NamedTuple):
    """What fictitious play found; axes of (2,) are the row player, then the column player."""

    row: Array  # (A,) strategy of the row player
    column: Array  # (B,) strategy of the column player
    mean: Array  # (2,) payoff of each
    variance: Array  # (2,) of it, over the other's draw
    gap: Array  # (): what the one with more to gain would gain by its best response, in the objective; 0 at an RAE


def covariance(payoff: Float[Array, "A B"], opponent: Float[Array, " B"]) -> Float[Array, "A A"]:
    """Sigma_y: of the payoffs of one's actions, over the opponent's draw."""
    centred = payoff - (payoff @ opponent)[:, None]
    return (centred * opponent) @ centred.T


def objective(
    payoff: Float[Array, "A B"], strategy: Float[Array, " A"], opponent: Float[Array, " B"], gamma: Any
) -> Float[Array, ""]:
    """Variance less gamma times mean, which a player minimises."""
    return strategy @ covariance(payoff, opponent) @ strategy - gamma * (strategy @ payoff @ opponent)


def onto_simplex(x: Float[Array, " A"], tremble: Any = 0.0) -> Float[Array, " A"]:
    """The nearest strategy, in the Euclidean norm, in which each action has at least the probability `tremble`.

    By sorting: Duchi et al. (2008), "Efficient projections onto the l1-ball for learning in high dimensions", figure 1.
    """
    mass = 1 - len(x) * tremble
    x = x - jnp.max(x)  # changes no projection, and keeps digits of large numbers
    falling = jnp.sort(x)[::-1]
    cut = (jnp.cumsum(falling) - mass) / jnp.arange(1, len(x) + 1)
    last = jnp.sum(falling > cut) - 1
    return jnp.maximum(x - cut[last], 0) + tremble


def best_response(
    payoff: Float[Array, "A B"],
    opponent: Float[Array, " B"],
    gamma: float | Float[Array, ""],
    tremble: float | Float[Array, ""] = 0.0,
    steps: int = 300,
) -> Float[Array, " A"]:
    """The strategy of least `objective`, by accelerated projected gradient steps (Beck and Teboulle 2009, FISTA).

    Equally good actions are played equally often.
    """
    sigma, mean = covariance(payoff, opponent), payoff @ opponent
    # Twice the trace bounds the curvature; the rest keeps steps finite where the opponent's draw has no variance.
    curvature = 2 * jnp.trace(sigma) + 0.1 * gamma * (jnp.max(payoff) - jnp.min(payoff))
    rate = jnp.where(curvature > 0, 1 / jnp.where(curvature > 0, curvature, 1), 0)

    def step(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], None]:
        x, ahead, t = carry
        new = onto_simplex(ahead - rate * (2 * sigma @ ahead - gamma * mean), tremble)
        t_new = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
        # Momentum that points uphill is dropped (O'Donoghue and Candes 2015), without which it swings for long.
        uphill = jnp.sum((ahead - new) * (new - x)) > 0
        t_new = jnp.where(uphill, 1, t_new)
        ahead = new + jnp.where(uphill, 0, (t - 1) / t_new) * (new - x)
        return (new, ahead, t_new), None

    first = jnp.full(len(payoff), 1 / len(payoff), payoff.dtype)
    (x, _, _), _ = jax.lax.scan(step, (first, first, jnp.ones((), payoff.dtype)), length=steps)
    return x


def equilibrium(
    row_payoff: Float[Array, "A B"],
    column_payoff: Float[Array, "A B"],
    gamma: float | Float[Array, ""],
    tremble: float | Float[Array, ""] = 0.0,
    start: tuple[Float[Array, " A"], Float[Array, " B"]] | None = None,
    rounds: int = 500,
) -> Equilibrium:
    """A risk-averse equilibrium by fictitious play: both answer, at once, the average of the other's answers.

    Args:
        row_payoff, column_payoff: what each is paid; row player's actions along rows of both. gamma: what a unit of
            mean is worth in units of variance, above 0. tremble: the least probability of each action. start: the
            strategies that are answered first; uniform. Where a game has several equilibria, it decides among them.

    Where fictitious play goes round for ever, as it may outside zero-sum and potential games, `gap` stays large.
    Raises ValueError for a gamma that is not above 0, a tremble that leaves nothing to choose.
    """
    if is_concrete(gamma) and not float(gamma) > 0:
        raise ValueError(f"gamma={float(gamma):g}: it must be above 0; the larger, the less is feared.")
    most = max(row_payoff.shape)
    if is_concrete(tremble) and not 0 <= float(tremble) < 1 / most:
        raise ValueError(f"tremble={float(tremble):g}: with {most} actions it must be from 0 to below {1 / most:g}.")
    if rounds < 1:
        raise ValueError(f"rounds={rounds}: there must be at least 1.")
    if start is None:
        start = (
            jnp.full(row_payoff.shape[0], 1 / row_payoff.shape[0]),
            jnp.full(row_payoff.shape[1], 1 / row_payoff.shape[1]),
        )
    return _play(row_payoff, column_payoff, gamma, tremble, start, rounds)


@partial(jax.jit, static_argnames="rounds")
def _play(row_payoff: Any, column_payoff: Any, gamma: Any, tremble: Any, start: Any, rounds: int) -> Equilibrium:
    own = row_payoff, column_payoff.T

    def answers(both: Any) -> Any:
        x, y = both
        return best_response(own[0], y, gamma, tremble), best_response(own[1], x, gamma, tremble)

    def play(both: Any, i: Array) -> tuple[Any, None]:
        return jax.tree.map(lambda old, new: old + (new - old) / (i + 1), both, answers(both)), None

    start = jax.tree.map(lambda x: onto_simplex(jnp.asarray(x, row_payoff.dtype), tremble), start)
    (x, y), _ = jax.lax.scan(play, start, jnp.arange(rounds))
    gains, means, variances = [], [], []
    for payoff, mine, other, answer in zip(own, (x, y), (y, x), answers((x, y)), strict=True):
        gains.append(objective(payoff, mine, other, gamma) - objective(payoff, answer, other, gamma))
        means.append(mine @ payoff @ other)
        variances.append(mine @ covariance(payoff, other) @ mine)
    return Equilibrium(x, y, jnp.stack(means), jnp.stack(variances), jnp.maximum(jnp.max(jnp.stack(gains)), 0))


def stag_hunt_switch(payoff: Float[Array, "2 2"], tremble: float | Float[Array, ""]) -> Float[Array, ""]:
    """The gamma below which both hunting the stag is no equilibrium of a symmetric stag hunt; action 0 is the stag.

    Infinite where so large a tremble leaves it not even Nash's. Raises ValueError where the payoffs, if concrete, are
    no stag hunt's.
    """
    if is_concrete(payoff):
        (a, b), (c, d) = np.asarray(payoff, np.float64)
        if not (a > c and d > b and a > d and a + d > b + c):
            raise ValueError(f"payoffs {a:g} {b:g} / {c:g} {d:g}: a stag hunt has a > c, a > d > b and a + d > b + c.")
    (a, b), (c, d) = payoff
    spread = (1 - tremble) * (a - b) + tremble * (c - d)
    gain = (1 - tremble) * (a - c) - tremble * (d - b)
    switch = 2 * tremble * (1 - tremble) * (a - b - c + d) * spread / jnp.where(gain > 0, gain, 1)
    return jnp.where(gain > 0, switch, jnp.inf)
