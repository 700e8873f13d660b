"""CountRecall: count the cards of each value, and say how many of the one that is asked for were dealt.

POPGym (Morad et al. 2023, "POPGym: Benchmarking partially observable reinforcement learning", popgym 1.0.7). Two
stacks of N = 52 `num_decks` shuffled cards; a card of each is turned at the reset and at every step. The first is
dealt, the second asks: how often was a card of its value dealt so far, this one included? Decks and values: 1 and
colors, 2 and suits, 4 and ranks for Easy, Medium and Hard, with v = 2, 4 and 13 values, each of which N / v cards have.

| | |
|---|---|
| observation | [value of the card dealt, value asked for], each 0 to v - 1 |
| action | the count, 0 to N / v: 26, 26 and 16 |
| reward | 1 / (N - 1) for the right count, -1 / (N - 1) for any other |
| end | after N - 1 steps, when all cards are turned |

The best return is 1. POPGym's argument `error_clamp` has no effect there and is left out. `info["success"]` says that
the step's answer was right.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree
from jaxrl.spaces import Discrete, MultiDiscrete

from .cards import DECK, KINDS, shuffled


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT  # the cards end first


@pytree
class State:
    time: jax.Array  # steps since reset
    cards: jax.Array  # (N,) int8, values in the order of dealing
    queries: jax.Array  # (N,) int8, values in the order of asking
    counts: jax.Array  # (v,) int32, cards of each value dealt so far


def start(cards: Integer[Array, " N"], queries: Integer[Array, " N"], values: int) -> State:
    """The first state of an episode with these cards."""
    return State(jnp.int32(0), cards, queries, (jnp.arange(values) == cards[0]).astype(jnp.int32))


def reward(right: Bool[Array, ""], answers: int) -> Float[Array, ""]:
    """1 or -1 over the number of `answers` of an episode."""
    return jnp.where(right, 1, -1).astype(float) / answers


@dataclasses.dataclass(frozen=True)
class CountRecall(Environment):
    num_decks: int = 1
    kind: str = "colors"
    id: str = dataclasses.field(default="CountRecallEasy-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"num_decks": (1, 1000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in KINDS:
            raise ValueError(f"{self.id}: kind={self.kind!r} must be one of {', '.join(map(repr, KINDS))}.")

    @property
    def num_cards(self) -> int:
        """N."""
        return DECK * self.num_decks

    @property
    def num_values(self) -> int:
        """v."""
        return KINDS[self.kind]

    def initial(self, key: Array, params: Params) -> State:
        cards, queries = (shuffled(k, self.num_decks, self.kind) for k in jax.random.split(key))
        return start(cards, queries, self.num_values)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        last = self.num_cards - 1
        values = jnp.arange(self.num_values)
        asked = state.queries[jnp.minimum(state.time, last)]
        right = action.astype(jnp.int32) == jnp.sum(jnp.where(values == asked, state.counts, 0))
        dealt = state.cards[jnp.minimum(state.time + 1, last)]
        end = state.time >= last - 1
        state = state.replace(counts=state.counts + (values == dealt))
        return Transition(state, reward(right, last), end, jnp.bool_(False), {"success": right})

    def observe(self, key: Array, state: State, params: Params) -> Integer[Array, "2"]:
        now = jnp.minimum(state.time, self.num_cards - 1)
        return jnp.stack([state.cards[now], state.queries[now]]).astype(jnp.int32)

    def observation_space(self, params: Params) -> MultiDiscrete:
        return MultiDiscrete((self.num_values, self.num_values))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(self.num_cards // self.num_values + 1)
