"""Decks of cards as POPGym has them: what card number i is, and a shuffled deck."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Integer, Key

DECK = 52
KINDS = {"colors": 2, "suits": 4, "ranks": 13}
"""How many values a card has, of each kind."""


def face(card: Integer[Array, "*shape"], kind: str) -> Integer[Array, "*shape"]:
    """The color, suit or rank of card number `card`: four cards of a rank follow each other, of the four suits."""
    return card // 4 % 13 if kind == "ranks" else card % KINDS[kind]


def shuffled(key: Key[Array, "..."], num_decks: int, kind: str) -> Integer[Array, " cards"]:
    """The color, suit or rank of each card of `num_decks` shuffled decks, in the order of dealing, int8."""
    faces = face(jnp.arange(DECK * num_decks), kind).astype(jnp.int8)
    return jax.random.permutation(key, faces)
