"""RepeatPrevious: say the suit of the card that was dealt k - 1 cards ago.

POPGym (Morad et al. 2023, "POPGym: Benchmarking partially observable reinforcement learning", popgym 1.0.7). N = 52
`num_decks` shuffled cards are dealt one a step, the first at the reset. With the card in sight as the first, the answer
is the k-th last: k is 4, 32 and 64 and the decks 1, 2 and 3 for Easy, Medium and Hard.

| | |
|---|---|
| observation | the suit of the card just dealt: 0 to 3 |
| action | the suit of the k-th last card: 0 to 3 |
| reward | 1 / (N - k) for the right suit, -1 / (N - k) for a wrong one, 0 while fewer than k cards are dealt |
| end | after N - 1 steps, when all cards are dealt |

The best return is 1. `info["success"]` says that the step's answer was right and counted.
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


def reward(right: Bool[Array, ""], counts: Bool[Array, ""], answers: int) -> Float[Array, ""]:
    """1 or -1 over the number of `answers` of an episode, 0 for a step that does not count."""
    return jnp.where(counts, jnp.where(right, 1, -1), 0).astype(float) / answers


@dataclasses.dataclass(frozen=True)
class RepeatPrevious(Environment):
    num_decks: int = 1
    k: int = 4
    id: str = dataclasses.field(default="RepeatPreviousEasy-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"num_decks": (1, 1000), "k": (1, 51_999)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k >= self.num_cards:
            raise ValueError(f"{self.id}: k={self.k}, num_decks={self.num_decks}: k must be below {self.num_cards}.")

    @property
    def num_cards(self) -> int:
        """N."""
        return DECK * self.num_decks

    def initial(self, key: Array, params: Params) -> State:
        return State(jnp.int32(0), shuffled(key, self.num_decks, "suits"))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        asked = state.time + 1 - self.k
        right = action.astype(jnp.int32) == state.cards[jnp.clip(asked, 0, self.num_cards - 1)]
        counts = asked >= 0
        end = state.time >= self.num_cards - 2
        info = {"success": right & counts}
        return Transition(state, reward(right, counts, self.num_cards - self.k), end, jnp.bool_(False), info)

    def observe(self, key: Array, state: State, params: Params) -> Integer[Array, ""]:
        return state.cards[jnp.minimum(state.time, self.num_cards - 1)].astype(jnp.int32)

    def observation_space(self, params: Params) -> Discrete:
        return Discrete(4)

    def action_space(self, params: Params) -> Discrete:
        return Discrete(4)
