"""IWOCS: robust policies of finite MDPs by a sequence of ordinary MDPs, each the worst one for the policy before.

Zouitine, Geist and Rachelson (2024), "Solving robust MDPs as a sequence of static RL problems" (arXiv:2410.06212),
incremental worst-case search, here exact. The model T is one of a given set and does not change within an episode
(static). From some T_0:

    Q_i = optimal action values of T_i;  Q = min over j <= i of Q_j;  pi_i greedy on Q
    T_(i+1) = the model in which pi_i has the least value from the start
    stop if | V of pi_i in T_(i+1) - max_a Q(start, a) | <= tol

max_a Q(start, a) only falls, and no policy has a higher value than it in all models. Where the search stops, pi_i has
this value in every model, so no policy is more robust. The search also stops, with `converged` False, at a model that
was solved before, as nothing would change from there on. This can happen because each Q_j belongs to another policy:
the minimum over them may be a value that no policy has.

`rectangular_values` is value iteration against an adversary who chooses a model anew at each step (Iyengar 2005). It is
a lower bound on the value of its policy in all models.

Deviations: starts are a distribution, `mdp.initial`. Of all policies on the way the most robust is returned. Usage:

    alpha = jnp.linspace(0, 0.5, 25)
    mdps = jax.vmap(lambda a: tabulate(env, params.replace(alpha=a)))(alpha)
    found = iwocs.solve(mdps, gamma=0.99)
    alpha[found.worst], found.kept.max()

Results: `experiments/robust/`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxrl.environment import is_concrete
from jaxrl.exact.mdp import MDP, DenseMDP
from jaxrl.exact.solvers import Solution, bellman, evaluate_policy, value_iteration


class Result(NamedTuple):
    """What the search found; entries of (M,) from `iterations` on are fillers."""

    policy: Int[Array, " S"]  # the most robust one on the way
    q: Float[Array, "S A"]  # minimum over the action values of the models solved
    worst: Int[Array, ""]  # the model in which `policy` has the least value
    iterations: Int[Array, ""]  # number of models solved
    models: Int[Array, " M"]  # which ones, in order; then -1
    promised: Float[Array, " M"]  # value of the start by Q, after each model
    kept: Float[Array, " M"]  # value of the start by each policy in its worst model
    converged: Array  # bool: the last policy keeps what Q promises


def values_of(mdps: MDP | DenseMDP, policy: Int[Array, " S"], gamma: float | Array) -> Float[Array, " T"]:
    """The value of a policy from the start in each of the models; -inf where its episodes never end."""

    def values_of_one(mdp):
        dense = mdp.dense()
        states = jnp.arange(len(policy))
        leads_to = dense.transition[states, policy] > 0
        reached = jax.lax.fori_loop(
            0, len(policy), lambda _, reached: reached | jnp.any(reached[:, None] & leads_to, 0), dense.initial > 0
        )
        # In states that it never reaches its episodes might go on for ever, so they are left out.
        transition = jnp.where(reached[:, None, None], dense.transition, 0)
        return evaluate_policy(dense.replace(transition=transition), policy, gamma)

    values = jax.vmap(values_of_one)(mdps)
    values = jnp.sum(values * mdps.initial, -1)
    return jnp.where(jnp.isfinite(values), values, -jnp.inf)


def solve(
    mdps: MDP | DenseMDP,
    gamma: float | Float[Array, ""],
    first: int | Int[Array, ""] = 0,
    tol: float | Float[Array, ""] = 1e-3,
    max_iterations: int = 10,
) -> Result:
    """IWOCS over the models `mdps` (leading axis T), beginning with model `first`. `gamma` 1: where policies end.

    Raises ValueError for a single model, a `first` that is none of them, a `gamma` out of [0, 1] and no iterations.
    """
    if mdps.initial.ndim < 2:
        raise ValueError(f"mdps have initial {mdps.initial.shape}: a leading axis of models is missing.")
    if max_iterations < 1:
        raise ValueError(f"max_iterations={max_iterations}: it must be at least 1.")
    T = mdps.initial.shape[0]
    if is_concrete(first) and not 0 <= int(first) < T:
        raise ValueError(f"first={first}: there are {T} models.")
    if is_concrete(gamma) and not 0 <= float(gamma) <= 1:
        raise ValueError(f"gamma={gamma}: it must be in [0, 1].")
    return _solve(mdps, gamma, first, tol, max_iterations)


@partial(jax.jit, static_argnames="max_iterations")
def _solve(mdps: MDP | DenseMDP, gamma: Any, first: Any, tol: Any, max_iterations: int) -> Result:
    M = max_iterations

    def model(i):
        return jax.tree.map(lambda x: x[i], mdps)

    def going(carry):
        i, _, stop, *_ = carry
        return (i < M) & ~stop

    def iterate(carry):
        i, current, _, _, q, best, models, promised, kept = carry
        models = models.at[i].set(current)
        q = jnp.minimum(q, value_iteration(model(current), gamma, 1e-6).q)
        policy = jnp.argmax(q, -1).astype(jnp.int32)
        values = values_of(mdps, policy, gamma)
        worst = jnp.argmin(values).astype(jnp.int32)
        promise = jnp.sum(model(0).initial * jnp.max(q, -1))
        converged = jnp.abs(promise - values[worst]) <= tol
        stop = converged | jnp.any(models == worst)
        better = values[worst] > jnp.max(kept)
        best = jax.tree.map(lambda x, y: jnp.where(better, x, y), (policy, worst), best)
        promised, kept = promised.at[i].set(promise), kept.at[i].set(values[worst])
        return i + 1, worst, stop, converged, q, best, models, promised, kept

    S, A = jax.eval_shape(lambda: model(0).expected_reward()).shape
    none = jnp.full(M, -jnp.inf)
    start = (
        jnp.int32(0),
        jnp.asarray(first, jnp.int32),
        jnp.bool_(False),
        jnp.bool_(False),
        jnp.full((S, A), jnp.inf),
        (jnp.zeros(S, jnp.int32), jnp.int32(0)),
        jnp.full(M, -1, jnp.int32),
        none,
        none,
    )
    i, _, _, converged, q, (policy, worst), models, promised, kept = jax.lax.while_loop(going, iterate, start)
    return Result(policy, q, worst, i, models, promised, kept, converged)


@partial(jax.jit, static_argnames="max_iterations")
def rectangular_values(
    mdps: MDP | DenseMDP,
    gamma: float | Float[Array, ""],
    tol: float | Float[Array, ""] = 1e-6,
    max_iterations: int = 100_000,
) -> Solution:
    """Value iteration against an adversary who picks one of the models (leading axis T) for every state and action."""

    def backup(value):
        return jnp.min(jax.vmap(bellman, (0, None, None))(mdps, value, gamma), 0)

    def sweep(carry):
        i, value, _ = carry
        new = jnp.max(backup(value), -1)
        return i + 1, new, jnp.max(jnp.abs(new - value))

    def going(carry):
        i, _, change = carry
        return (i < max_iterations) & (change > tol)

    start = jnp.int32(0), jnp.zeros(mdps.initial.shape[-1]), jnp.asarray(jnp.inf)
    iterations, value, change = jax.lax.while_loop(going, sweep, start)
    q = backup(value)
    return Solution(value, q, jnp.argmax(q, -1).astype(jnp.int32), iterations, change)
