"""Autoencode: watch cards, then say their suits from the last to the first.

POPGym (Morad et al. 2023, "POPGym: Benchmarking partially observable reinforcement learning", popgym 1.0.7). N = 52
`num_decks` shuffled cards are shown, the first at the reset and one a step; then N answers are asked for, the last card
first. Decks: 1, 2 and 3 for Easy, Medium and Hard. The paper's words are "in order"; POPGym's game asks backwards.

| | |
|---|---|
| observation [0] | 1 while cards are shown and others follow, 0 once they are to be repeated |
| observation [1] | the suit of the card shown, 0 to 3; 0 while they are repeated |
| action | the suit asked for, 0 to 3; without effect while cards are shown |
| reward | 1 / N for a right answer, -1 / N for a wrong one, 0 while cards are shown |
| end | after N - 1 steps of watching and N answers |

The first of the two numbers turns to 0 with the last card: the next action is the first answer, that card. The best
return is 1. `info["success"]` says that the step was a right answer.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree
from jaxrl.spaces import Discrete, MultiDiscrete

from .cards import DECK, shuffled


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT  # the cards end first


@pytree
class State:
    time: jax.Array  # steps since reset
    cards: jax.Array  # (N,) int8, suits in the order of dealing


def reward(right: Bool[Array, ""], counts: Bool[Array, ""], answers: int) -> Float[Array, ""]:
    """1 or -1 over the number of `answers` of an episode, 0 for a step that does not count."""
    return jnp.where(counts, jnp.where(right, 1, -1), 0).astype(float) / answers


@dataclasses.dataclass(frozen=True)
class Autoencode(Environment):
    num_decks: int = 1
    id: str = dataclasses.field(default="AutoencodeEasy-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"num_decks": (1, 1000)}

    @property
    def num_cards(self) -> int:
        """N."""
        return DECK * self.num_decks

    def initial(self, key: Array, params: Params) -> State:
        return State(jnp.int32(0), shuffled(key, self.num_decks, "suits"))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        n = self.num_cards
        asked = 2 * n - 2 - state.time  # the card that is asked for; above n - 1 while cards are shown
        counts = asked < n
        right = counts & (action.astype(jnp.int32) == state.cards[jnp.clip(asked, 0, n - 1)])
        return Transition(state, reward(right, counts, n), asked <= 0, jnp.bool_(False), {"success": right})

    def observe(self, key: Array, state: State, params: Params) -> Integer[Array, "2"]:
        n = self.num_cards
        card = state.cards[jnp.minimum(state.time, n - 1)].astype(jnp.int32)
        return jnp.stack([(state.time < n - 1).astype(jnp.int32), jnp.where(state.time < n, card, 0)])

    def observation_space(self, params: Params) -> MultiDiscrete:
        return MultiDiscrete((2, 4))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(4)
