"""Blackjack: draw cards, and stop before the sum is above 21.

Gymnasium's `Blackjack-v1`; Sutton and Barto, "Reinforcement Learning: An Introduction" (2nd edition 2018), example 5.1.
Cards come from an endless deck: 1 (the ace) to 9 with probability 1/13 each, 10 with 4/13. An ace counts 11 where the
sum is then at most 21 (it is "usable"), else 1.

| observation, a tuple | | |
|---|---|---|
| 0 | 0 to 31 | sum of the player's cards |
| 1 | 0 to 10 | the dealer's face-up card, 1 for an ace |
| 2 | 0, 1 | whether the player has a usable ace |

Actions: 0 stick, 1 hit (draw a card). A sum above 21 loses. After "stick" the dealer draws until the sum is 17 or more,
and the higher sum wins; above 21 the dealer loses. Reward: 1 won, -1 lost, 0 drawn or going on. There is no time limit.

With `natural` an ace and a ten at once that win pay `params.natural_reward`, 1.5. With `sab` (the book's rule, which
overrides `natural`) they win against all but the dealer's own ace and ten, also against another 21.

A state is the player's sum and ace, whether these are the first two cards and 21 ("a natural"), and the face-up card.
The dealer's play is one draw from the distribution of outcomes, which is exact: `dealer_distribution`. Gymnasium deals
the hidden card at the start and draws card by card, with the same law.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32, Integer

from jaxrl.environment import NO_LIMIT, pytree
from jaxrl.exact.mdp import Outcomes, TabularEnvironment, TabularState, tabulate
from jaxrl.exact.solvers import value_iteration
from jaxrl.math import precise
from jaxrl.spaces import Discrete, Tuple

CARD = np.array([1] * 9 + [4]) / 13  # probability of the values 1 to 10
HANDS = 22 * 2  # sums to 21, with and without a usable ace
NATURAL = HANDS  # an ace and a ten at once, with a usable ace
BUST = NATURAL + 1  # after the end; sums of 22 and more are told apart in the next ten
PLAYERS = BUST + 10
DEALER = (17, 18, 19, 20, 21, 22)  # what the dealer ends with: a sum, or 22 for more


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    natural_reward: jax.Array = 1.5  # with `natural`


def added(total: int, ace: bool, card: int) -> tuple[int, bool]:
    """Sum and usable ace after one more card."""
    total = total + card
    if card == 1 and not ace and total + 10 <= 21:
        return total + 10, True
    if ace and total > 21:
        return total - 10, False
    return total, ace


@functools.cache
def dealer_from(total: int, ace: bool, cards: int) -> tuple[float, ...]:
    """Probabilities of each end of `DEALER`, and of a natural, of a hand of so many cards."""
    if total >= 17 and cards >= 2:
        natural = cards == 2 and total == 21
        return (*(float(min(total, 22) == end and not natural) for end in DEALER), float(natural))
    parts = [p * np.array(dealer_from(*added(total, ace, card + 1), min(cards + 1, 3))) for card, p in enumerate(CARD)]
    return tuple(np.sum(parts, 0).tolist())


def dealer_distribution() -> Float[np.ndarray, "10 7"]:
    """Of each face-up card 1 to 10, the probabilities of the dealer's ends: 17 to 21, above 21, and a natural."""
    return np.array([dealer_from(*added(0, False, card), 1) for card in range(1, 11)])


def _hits() -> Int32[np.ndarray, "players 10"]:
    """The player's hand after each card, of each hand."""
    out = np.full((PLAYERS, 10), BUST, np.int32)
    for hand in range(PLAYERS):
        total, ace = (21, True) if hand == NATURAL else (hand // 2, bool(hand % 2))
        for card in range(1, 11):
            if hand <= NATURAL:
                after, usable = added(total, ace, card)
                out[hand, card - 1] = 2 * after + usable if after <= 21 else BUST + after - 22
    return out


def _starts() -> Float[np.ndarray, " players"]:
    out = np.zeros(PLAYERS)
    for one in range(1, 11):
        for two in range(1, 11):
            total, ace = added(*added(0, False, one), two)
            out[NATURAL if total == 21 else 2 * total + ace] += CARD[one - 1] * CARD[two - 1]
    return out


_HITS, _STARTS, _DEALER = _hits(), _starts(), dealer_distribution()


@dataclasses.dataclass(frozen=True)
class Blackjack(TabularEnvironment):
    """State 10 h + d - 1: the player's hand h, the dealer's card d."""

    id: str = dataclasses.field(default="Blackjack-v1", kw_only=True)
    natural: bool = False
    sab: bool = False
    observation: str = "cards"  # or "index", the state's number, for learners of tables
    num_states: int = dataclasses.field(default=10 * PLAYERS, init=False)
    num_actions: int = dataclasses.field(default=2, init=False)
    Params = Params

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.observation not in ("cards", "index"):
            raise ValueError(f"{self.id}: observation={self.observation!r}; it is 'cards' or 'index'.")

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        hand, up = state // 10, state % 10
        cards = jnp.asarray(CARD, params.natural_reward.dtype)
        after = jnp.asarray(_HITS)[hand]
        bust = after >= BUST
        # Sticking, of as many outcomes as hitting: seven ends of the dealer and three that never are.
        total, natural = jnp.where(hand == NATURAL, 21, hand // 2), hand == NATURAL
        ends = jnp.array([*DEALER[:-1], 0, 21, 0, 0, 0])  # above 21 counts nothing
        won = jnp.sign(total - ends).astype(cards.dtype)
        if self.sab:
            won = jnp.where(natural & (jnp.arange(10) != 6), 1, won)
        elif self.natural:
            won = jnp.where(natural & (won == 1), params.natural_reward, won)
        dealt = jnp.pad(jnp.asarray(_DEALER, cards.dtype)[up], (0, 3))
        hit, over = action == 1, hand >= BUST
        reward = jnp.where(hit, jnp.where(bust, -1, 0), won)
        return Outcomes(
            jnp.where(hit, cards, dealt),
            jnp.where(hit & ~over, 10 * after + up, state).astype(jnp.int32),
            jnp.where(over, 0, reward).astype(cards.dtype),
            over | jnp.where(hit, bust, True),
        )

    def initial_distribution(self, params: Params) -> Float[Array, " S"]:
        dtype = params.natural_reward.dtype
        return jnp.outer(jnp.asarray(_STARTS, dtype), jnp.asarray(CARD, dtype)).reshape(-1)

    def observe(self, key: Array, state: TabularState, params: Params) -> Any:
        if self.observation == "index":
            return state.index
        hand, up = state.index // 10, state.index % 10
        total = jnp.where(hand == NATURAL, 21, jnp.where(hand >= BUST, 22 + hand - BUST, hand // 2))
        ace = jnp.where(hand == NATURAL, 1, jnp.where(hand >= BUST, 0, hand % 2))
        return tuple(x.astype(jnp.int32) for x in (total, up + 1, ace))

    def observation_space(self, params: Params) -> Any:
        if self.observation == "index":
            return Discrete(self.num_states)
        return Tuple((Discrete(32), Discrete(11), Discrete(2)))

    @precise
    def optimal_value(self, params: Params, gamma: float | Float[Array, ""] = 1.0) -> Float[Array, ""]:
        """The expected return of the best policy."""
        mdp = tabulate(self, params)
        return mdp.initial @ value_iteration(mdp, gamma).value

    def validate(self, params: Params) -> None:
        if not np.all(np.isfinite(np.asarray(params.natural_reward))):
            raise ValueError(f"{self.id}: natural_reward={params.natural_reward} must be finite.")
