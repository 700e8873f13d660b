"""RepeatFirst: say the suit of the first card, at every card that is dealt.

POPGym (Morad et al. 2023, "POPGym: Benchmarking partially observable reinforcement learning", popgym 1.0.7). N = 52
`num_decks` shuffled cards are dealt one a step: 1, 8 and 16 decks for Easy, Medium and Hard. The first is seen at the
reset. POPGym's docstring speaks of a sign that it is the first; there is none.

| | |
|---|---|
| observation | the suit of the card just dealt: 0 to 3 |
| action | the suit of the first card: 0 to 3 |
| reward | 1 / (N - 1) for the right suit, -1 / (N - 1) for a wrong one |
| end | after N - 1 steps, when all cards are dealt |

The best return is 1 with memory; without, the best expected return is -1/2 + O(1/N): any guess is right once in four.
`info["success"]` says that the step's answer was right.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree
from jaxrl.spaces import Discrete

from .cards import DECK, shuffled


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT  # the cards end first


@pytree
class State:
    time: jax.Array  # steps since reset
    cards: jax.Array  # (N,) int8, suits in the order of dealing


def reward(right: Bool[Array, ""], answers: int) -> Float[Array, ""]:
    """1 or -1 over the number of `answers` of an episode."""
    return jnp.where(right, 1, -1).astype(float) / answers


@dataclasses.dataclass(frozen=True)
class RepeatFirst(Environment):
    num_decks: int = 1
    id: str = dataclasses.field(default="RepeatFirstEasy-v0", kw_only=True)
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
        right = action.astype(jnp.int32) == state.cards[0]
        end = state.time >= self.num_cards - 2
        return Transition(state, reward(right, self.num_cards - 1), end, jnp.bool_(False), {"success": right})

    def observe(self, key: Array, state: State, params: Params) -> Integer[Array, ""]:
        return state.cards[jnp.minimum(state.time, self.num_cards - 1)].astype(jnp.int32)

    def observation_space(self, params: Params) -> Discrete:
        return Discrete(4)

    def action_space(self, params: Params) -> Discrete:
        return Discrete(4)
