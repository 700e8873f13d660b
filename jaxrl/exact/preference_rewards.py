"""Rewards of tables from preferences, by two models of what a preference tells: partial return, and regret.

A reward is linear in features, r(s, a) = w . phi(s, a), and a label says which of two segments of L steps is the better
one, with probability sigmoid(score of the second - score of the first). The scores are

    partial return    w . (phi_0 + gamma phi_1 + ...)
    minus the regret  partial return + gamma^L V(s_L; w) - V(s_0; w)

Knox et al. (2022), "Models of human preference for learning reward functions". The optimal value V of the reward that
is being learned is approximated so that it can be differentiated: by a soft maximum over a set of policies, whose
values are linear in w by their successor features psi_i (Barreto et al. 2017),

    V(s; w) = sum_i p_i(s) w . psi_i(s),    p(s) = softmax_i(w . psi_i(s) / temperature).

Pure functions of arrays, of one table each: `vmap` or `lax.map` them over thousands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Integer

from jaxrl.data.reward_models import bradley_terry_loss
from jaxrl.exact.mdp import MDP, DenseMDP
from jaxrl.exact.solvers import evaluate_policy, value_iteration


class Segments(NamedTuple):
    """n pairs of segments of one table."""

    features: Array  # (n, 2, F), discounted sums over the steps of each segment
    first: Array  # (n, 2) int32, the state in which a segment begins
    last: Array  # (n, 2) int32, the state after it
    ended: Array  # (n, 2) bool, the episode was over by then: nothing is to be had any more
    discount: Array  # (), gamma^L


def partial_returns(weights: Float[Array, " F"], segments: Segments) -> Float[Array, "n 2"]:
    """The discounted rewards of each segment."""
    return segments.features @ weights


def soft_values(
    weights: Float[Array, " F"], successor: Float[Array, "P S F"], temperature: float | Float[Array, ""]
) -> Float[Array, " S"]:
    """V(s; w), a soft maximum over the P policies of these successor features; below the optimal value, if anything."""
    value = successor @ weights
    return jnp.sum(jax.nn.softmax(value / temperature, 0) * value, 0)


def negative_regrets(weights: Float[Array, " F"], segments: Segments, value: Float[Array, " S"]) -> Float[Array, "n 2"]:
    """Minus the regret of each segment, by values of the states."""
    ahead = jnp.where(segments.ended, 0.0, value[segments.last])
    return partial_returns(weights, segments) + segments.discount * ahead - value[segments.first]


class Fitted(NamedTuple):
    """The weights of the least loss that was seen, that loss, and the loss before each step."""

    weights: Array  # (F,)
    loss: Array  # ()
    losses: Array  # (steps + 1,), the last one after the last step


def fit(
    scores: Callable[[Array], Float[Array, "n 2"]],
    label: Float[Array, " n"],
    start: Float[Array, " F"],
    learning_rate: float | Float[Array, ""],
    steps: int,
) -> Fitted:
    """Adam on the cross-entropy of the labels with all pairs at once, for any model `scores(weights)`.

    Of every model the weights of the least loss are returned: with a large step the last ones need not be near them.
    """
    optimizer = optax.adam(learning_rate)

    def loss(weights: Array) -> Array:
        found = scores(weights)
        return bradley_terry_loss(found[:, 1] - found[:, 0], label)

    def step(carry: tuple, _: None) -> tuple[tuple, Array]:
        weights, state, best, least = carry
        value, gradient = jax.value_and_grad(loss)(weights)
        best, least = jnp.where(value < least, weights, best), jnp.minimum(value, least)
        change, state = optimizer.update(gradient, state)
        return (optax.apply_updates(weights, change), state, best, least), value

    first = start, optimizer.init(start), start, jnp.full((), jnp.inf, start.dtype)
    (weights, _, best, least), losses = jax.lax.scan(step, first, length=steps)
    value = loss(weights)
    best = jnp.where(value < least, weights, best)
    return Fitted(best, jnp.minimum(value, least), jnp.append(losses, value))


def scaled_return(
    mdp: MDP | DenseMDP, policy: Integer[Array, " S"], gamma: float | Float[Array, ""]
) -> Float[Array, ""]:
    """The value of a policy from the first states, 0 for uniform actions and 1 for the best; NaN where these are equal.

    The measure of Knox et al. (2022), who call a policy near-optimal above 0.9.
    """
    uniform = jnp.full(mdp.expected_reward().shape, 1 / mdp.expected_reward().shape[1])
    chance, found = (evaluate_policy(mdp, pi, gamma) @ mdp.initial for pi in (uniform, policy))
    best = value_iteration(mdp, gamma, 1e-9).value @ mdp.initial
    return (found - chance) / (best - chance)
