"""Preferences as a game and as a likelihood: who wins when preferences cycle, and the minima of DPO-like losses.

`preference[a, b]` is the probability that a is preferred to b, so preference + its transpose is 1 everywhere.

- **SPO**: Swamy et al. (2024), "A minimaximalist approach to reinforcement learning from human feedback". Self-play:
  the reward of an action is the share of the comparisons that it wins against the policy itself, and the policy follows
  it by multiplicative weights,  p' ~ p exp(eta preference p). The last iterate goes round in a cycle; the average one
  nears the minimax winner (von Neumann winner), whom nothing beats more often than not, at the rate 1 / sqrt(rounds).
- **A reward by Bradley and Terry's model** puts all actions in one order and so picks one of a cycle.
- **DPO** (Rafailov et al. 2023, "Direct preference optimization: your language model is secretly a reward model") and
  **IPO** (Azar et al. 2024, "A general theoretical paradigm to understand learning from human preferences"): losses of
  the policy alone, of log-ratios to a reference policy. Of labels by a reward r DPO's minimum is
  reference exp(r / beta); IPO's is reference exp(win rate / beta) whatever the labels come from, so it stays near the
  reference where DPO, sure of a label, goes to the corner.

Pure functions of arrays; `vmap` them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import is_concrete


class Play(NamedTuple):
    """What self-play leaves."""

    average: Array  # (A,), of the policies of all rounds
    last: Array  # (A,), the policy after them
    exploitability: Array  # (), of the average


def check(preference: Float[Array, "..."]) -> None:
    """Raise ValueError unless it is a matrix of probabilities that agrees with itself; values only where concrete."""
    if preference.ndim != 2 or preference.shape[0] != preference.shape[1] or not preference.size:
        raise ValueError(f"preferences of shape {preference.shape}: a square matrix of probabilities is needed.")
    if not is_concrete(preference):
        return
    found = np.asarray(preference, np.float64)
    if not ((found >= 0) & (found <= 1)).all():
        raise ValueError(f"preferences from {found.min():g} to {found.max():g}: they must be probabilities, 0 to 1.")
    gap = np.abs(found + found.T - 1)
    if gap.max() > 1e-5:
        a, b = np.unravel_index(np.argmax(gap), gap.shape)
        raise ValueError(
            f"{a} is preferred to {b} with probability {found[a, b]:g} and {b} to {a} with {found[b, a]:g}: they must "
            "add up to 1."
        )


def win_rate(preference: Float[Array, "A A"], policy: Float[Array, " A"]) -> Float[Array, " A"]:
    """How often each action is preferred to what the policy does."""
    return preference @ policy


def exploitability(preference: Float[Array, "A A"], policy: Float[Array, " A"]) -> Float[Array, ""]:
    """How much above a half the best answer to the policy wins; 0 of a minimax winner alone."""
    return jnp.max(win_rate(preference, policy)) - 0.5


def self_play(
    preference: Float[Array, "A A"],
    start: Float[Array, " A"],
    rounds: int,
    learning_rate: float | Float[Array, ""] = 0.3,
) -> Play:
    """SPO for single decisions (Swamy et al. 2024) by multiplicative weights.

    Args:
        start: the first policy, all of whose probabilities are above 0.
        learning_rate: eta. After 10,000 rounds of four cycles of three actions the average is within 0.007 of the
            winner by 0.3, and within 0.02 by 0.03, the rate sqrt(8 log(A) / rounds) of the regret bound.

    Raises ValueError as `check` does, and for fewer than 1 round.
    """
    check(preference)
    if rounds < 1:
        raise ValueError(f"rounds={rounds}: there must be at least 1.")

    def play(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        logits, total = carry
        policy = jax.nn.softmax(logits)
        return (jax.nn.log_softmax(logits + learning_rate * win_rate(preference, policy)), total + policy), None

    first = jnp.log(start), jnp.zeros_like(start)
    (logits, total), _ = jax.lax.scan(play, first, length=rounds)
    average = total / rounds
    return Play(average, jax.nn.softmax(logits), exploitability(preference, average))


def bradley_terry_rewards(
    preference: Float[Array, "A A"], steps: int = 2_000, learning_rate: float | Float[Array, ""] = 4.0
) -> Float[Array, " A"]:
    """The rewards, of mean 0, whose logistic differences are nearest to the preferences, all pairs counting alike.

    Gradient descent on the cross-entropy, which is convex; the gradient of a reward is its expected share of wins less
    its true one, so rewards are in the order of the mean win rates (Borda's). Any `learning_rate` below 8 is stable.
    """
    check(preference)
    wins, size = jnp.mean(preference, 1), preference.shape[0]

    def step(reward: Array, _: None) -> tuple[Array, None]:
        expected = jnp.mean(jax.nn.sigmoid(reward[:, None] - reward), 1)
        return reward + learning_rate * (wins - expected), None

    reward, _ = jax.lax.scan(step, jnp.zeros(size, preference.dtype), length=steps)
    return reward - jnp.mean(reward)


# ---- losses of a policy alone


def log_ratio_margin(logits: Float[Array, "*S A"], reference: Float[Array, "*S A"]) -> Float[Array, "*S A A"]:
    """h[a, b] = log pi(a) / ref(a) - log pi(b) / ref(b), of tables of logits; normalisers cancel."""
    ratio = logits - reference
    return ratio[..., :, None] - ratio[..., None, :]


def dpo_loss(
    margin: Float[Array, "*batch"], label: Float[Array, "*batch"], beta: float | Float[Array, ""]
) -> Float[Array, "*batch"]:
    """DPO (Rafailov et al. 2023) of the margin of the first over the second; `label`: the first is the better one.

    A label between 0 and 1 is a probability: with 0.9 in the place of 1 it is the conservative variant.
    """
    return label * jax.nn.softplus(-beta * margin) + (1 - label) * jax.nn.softplus(beta * margin)


def ipo_loss(
    margin: Float[Array, "*batch"], label: Float[Array, "*batch"], beta: float | Float[Array, ""]
) -> Float[Array, "*batch"]:
    """IPO (Azar et al. 2024): the squared distance of the margin from +- 1 / (2 beta), weighed by the label."""
    half = 1 / (2 * beta)
    return label * (margin - half) ** 2 + (1 - label) * (margin + half) ** 2
