"""A buffer of levels for level replay, and pure functions of it: `from jaxrl.curriculum import level_buffer`.

    buffer = level_buffer.init(level, 4000)                             # empty
    slots, buffer = level_buffer.draw(key, buffer, wanted, 0.3, 0.3)    # replay: by score and by age
    levels = jax.tree.map(lambda x: x[slots], buffer.levels)
    buffer = level_buffer.update(buffer, slots, score, max_return)      # new scores of levels in the buffer
    usefulness = level_buffer.weights(buffer, 0.3, 0.3)                 # probability of a draw, of each slot
    buffer = level_buffer.insert(buffer, new, score, max_return, usefulness)

The probabilities are those of prioritised level replay (Jiang et al. 2021a, arXiv:2010.03934). minimax (Jiang et al.
2023, arXiv:2311.12716) and JaxUED (Coward et al. 2024, arXiv:2403.13091) insert one level after another with a sort of
the whole buffer for each; here a batch enters at once. Shapes: C slots of the buffer, n levels of a batch.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, UInt32

from jaxrl.environment import pytree


@pytree
class LevelBuffer:
    """C slots, each with a level and its replay statistics. An empty slot has score -inf.

    Rank and hash are functions of score and level. They are stored because computing them again, by a sort of 100,000
    scores and a pass over as many levels, would cost more than the rest of an update.
    """

    levels: Any  # leading axis C
    score: jax.Array  # (C,) of the level for training, higher is more useful; -inf where the slot is empty
    max_return: jax.Array  # (C,) best return ever seen on the level
    sampled_at: jax.Array  # (C,) int32, the clock when the level was last drawn or generated
    rank: jax.Array  # (C,) int32, 1 is the highest score; of equal scores the first slot ranks higher
    hash: jax.Array  # (C,) uint32, of the level's bits
    extras: Any  # leading axis C: further data that a curriculum stores with each level
    clock: jax.Array  # int32, the number of levels drawn so far


def init(example: PyTree, capacity: int, extras: PyTree = ()) -> LevelBuffer:
    """An empty buffer of `capacity` slots. `example` is one level and `extras` its extras, as arrays or shapes.

    Raises ValueError for a capacity below 1, and for a buffer that does not fit into memory.
    """
    if capacity < 1:
        raise ValueError(f"capacity={capacity}: a level buffer holds at least 1 level.")
    size = sum(x.dtype.itemsize * int(np.prod(x.shape)) for x in jax.tree.leaves((example, extras)))
    memory = _memory()
    if memory is not None and capacity * size > memory:
        raise ValueError(
            f"capacity={capacity}: levels of {size} bytes are {capacity * size / 2**30:.1f} GiB, the memory is "
            f"{memory / 2**30:.1f} GiB; at most {memory // size} fit."
        )
    levels, extras = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), (example, extras))
    empty, zero = jnp.full(capacity, -jnp.inf, float), jnp.zeros(capacity, jnp.int32)
    rank = jnp.arange(1, capacity + 1, dtype=jnp.int32)
    return LevelBuffer(levels, empty, empty, zero, rank, zero.astype(jnp.uint32), extras, jnp.int32(0))


def _memory() -> int | None:
    """Bytes of memory of the device, or of the host where the device shares its memory; None where it is unknown."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"]
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ()):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def weights(
    buffer: LevelBuffer,
    temperature: Float[Array, ""] | float,
    staleness: Float[Array, ""] | float,
    prioritization: str = "rank",
    top_k: int = 1,
) -> Float[Array, " C"]:
    """The probability with which each slot is drawn: (1 - staleness) h^(1/temperature) + staleness age.

    This is P_replay of Jiang et al. (2021a). Both terms are normalised to sum 1 over the filled slots. With
    `prioritization` "rank", h = 1 / rank; with "proportional", h = max(score, 0), as a score may be negative. With
    "topk" the first term is exp(score) for the `top_k` highest scores and 0 for the others, and the temperature is not
    read, as in JaxUED. A term that is zero in all filled slots is replaced by equal shares. Empty slots get 0.
    """
    by_score = _normalized(_worth(buffer, temperature, prioritization, top_k), buffer)
    return (1 - staleness) * by_score + staleness * _normalized(_age(buffer, buffer.clock), buffer)


def _worth(buffer: LevelBuffer, temperature: Array | float, prioritization: str, top_k: int) -> Float[Array, " C"]:
    """The first term of `weights`, by score, not yet normalised."""
    if prioritization == "topk":
        best = (buffer.rank <= top_k) & jnp.isfinite(buffer.score)
        score = jnp.where(best, buffer.score, -jnp.inf)
        return jnp.where(best, jnp.exp(score - jnp.where(best.any(), score.max(), 0)), 0)
    if prioritization == "rank":
        h = 1 / buffer.rank.astype(buffer.score.dtype)
    elif prioritization == "proportional":
        h = jnp.where(jnp.isfinite(buffer.score), jnp.maximum(buffer.score, 0), 0)
        h = h / jnp.maximum(h.max(), 1e-30)  # the power of a large score would overflow
    else:
        raise ValueError(f"prioritization={prioritization!r}: it is 'rank', 'proportional' or 'topk'.")
    return jnp.where(h > 0, jnp.exp(jnp.log(jnp.where(h > 0, h, 1)) / temperature), 0)


def _age(buffer: LevelBuffer, clock: Int[Array, ""]) -> Float[Array, " C"]:
    return (clock - buffer.sampled_at).astype(buffer.score.dtype)


def _normalized(weights: Float[Array, " C"], buffer: LevelBuffer) -> Float[Array, " C"]:
    """Weights scaled to sum 1 over the filled slots; equal shares where no filled slot has weight."""
    filled = jnp.isfinite(buffer.score)
    weights = jnp.where(filled, weights, 0)
    weights = jnp.where(weights.sum() > 0, weights, filled)
    return weights / jnp.maximum(weights.sum(), 1e-30)


def draw(
    key: Array,
    buffer: LevelBuffer,
    drawn: Bool[Array, " n"],
    temperature: Float[Array, ""] | float,
    staleness: Float[Array, ""] | float,
    prioritization: str = "rank",
    top_k: int = 1,
) -> tuple[Int[Array, " n"], LevelBuffer]:
    """`(slots, buffer)`: n slots drawn one after another with replacement, each with the probabilities `weights`.

    Each draw advances the clock by 1 and sets the age of its level to 0, so the probabilities change from draw to draw.
    A level of high score may therefore fill much of a batch, while an old one is drawn for its age only once. A row
    where `drawn` is False leaves the buffer unchanged, and its slot is undefined.
    """
    n, C = drawn.shape[0], buffer.score.shape[0]
    which_key, place_key = jax.random.split(key)
    # P_replay is a mixture of two distributions: each row draws from the one by age or from the one by score.
    aged = jax.random.bernoulli(which_key, staleness, (n,))
    place = jax.random.uniform(place_key, (n,), buffer.score.dtype)
    by_score = _quantiles(_normalized(_worth(buffer, temperature, prioritization, top_k), buffer), place)
    # A cumulative sum for each draw would cost n C. One is enough: after k draws the ages up to slot i sum to
    # ages[i] + k ones[i], less the ages that the levels drawn so far have lost.
    filled = jnp.isfinite(buffer.score)
    ages, ones = (jnp.cumsum(jnp.where(filled, x, 0)) for x in (_age(buffer, buffer.clock), jnp.ones(C)))

    def draw(carry, inputs):
        k, slots, lost = carry
        i, drawn, aged, place, best = inputs

        def below(slot):
            return ages[slot] + k * ones[slot] - jnp.sum(jnp.where(slots <= slot, lost, 0))

        total = below(C - 1)
        level = jnp.minimum(place, 1 - 1e-6) * jnp.where(total > 0, total, ones[-1])

        def halve(_, bounds):
            low, high = bounds  # the first slot above the level is in [low, high]
            middle = (low + high) // 2
            above = jnp.where(total > 0, below(middle), ones[middle]) > level
            return jnp.where(above, low, middle + 1), jnp.where(above, middle, high)

        oldest, _ = jax.lax.fori_loop(0, C.bit_length(), halve, (jnp.int32(0), jnp.int32(C - 1)))
        slot = jnp.where(aged, oldest, best)
        k = k + drawn
        # The level's age becomes 0, so its sum loses the whole age, counted from here on.
        age = buffer.clock - buffer.sampled_at[slot] + k
        again = slots == slot
        lost = jnp.where(drawn & again, 0, lost).at[i].set(jnp.where(drawn, age, 0).astype(lost.dtype))
        slots = slots.at[i].set(jnp.where(drawn, slot, C))
        return (k, slots, lost), (slot, buffer.clock + k)

    start = jnp.int32(0), jnp.full(n, C), jnp.zeros(n, ages.dtype)
    (k, _, _), (slots, at) = jax.lax.scan(draw, start, (jnp.arange(n), drawn, aged, place, by_score))
    sampled_at = buffer.sampled_at.at[jnp.where(drawn, slots, C)].max(at, mode="drop")  # past the end: dropped
    return slots, buffer.replace(clock=buffer.clock + k, sampled_at=sampled_at)


def _quantiles(weights: Float[Array, " C"], place: Float[Array, " n"]) -> Int[Array, " n"]:
    """The slots at n quantiles in [0, 1) of the distribution `weights`; never a slot of weight 0."""
    below = jnp.cumsum(weights)
    last = jnp.max(jnp.where(weights > 0, jnp.arange(weights.shape[0]), 0))
    return jnp.minimum(jnp.searchsorted(below, place * below[-1], side="right"), last).astype(jnp.int32)


def find(buffer: LevelBuffer, levels: PyTree) -> Int[Array, " n"]:
    """The slot of each level that the buffer holds, bit for bit; -1 for a level that it does not hold.

    Only the last slot with the level's hash is compared with it. So a level is missed if a later slot holds another
    one with the same hash, which is rare.
    """
    words = _words(levels)
    slots = jnp.arange(buffer.hash.shape[0])
    slot = jnp.max(jnp.where(buffer.hash == _hash(words)[:, None], slots, -1), 1)
    return jnp.where(holds(buffer, slot, levels), slot, -1)


def holds(buffer: LevelBuffer, slot: Int[Array, " n"], levels: PyTree) -> Bool[Array, " n"]:
    """Whether each slot holds the level of its row, bit for bit; slot -1 holds none."""
    held = jax.tree.map(lambda x: x[slot], buffer.levels)
    equal = jnp.all(_words(held) == _words(levels), 1)
    return (slot >= 0) & equal & jnp.isfinite(buffer.score[slot])


def _words(levels: PyTree) -> UInt32[Array, "n words"]:
    """The bits of each level, in 32-bit words."""

    def leaf(x):
        x = x.astype(jnp.uint8) if x.dtype == bool else x
        words = jax.lax.bitcast_convert_type(x, f"uint{8 * min(x.dtype.itemsize, 4)}")
        return words.astype(jnp.uint32).reshape(x.shape[0], -1)

    return jnp.concatenate([leaf(x) for x in jax.tree.leaves(levels)], 1)


def _hash(words: UInt32[Array, "n words"]) -> UInt32[Array, " n"]:
    """A hash of each row: each word is mixed with a constant of its column (lowbias32 of Wellons), then summed."""
    x = words ^ np.random.default_rng(0).integers(2**32, size=words.shape[1], dtype=np.uint32)
    x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
    x = (x ^ x >> 15) * np.uint32(0x846CA68B)
    return jnp.sum(x ^ x >> 16, 1, dtype=jnp.uint32)


def _first_equal(words: UInt32[Array, "n words"]) -> Int[Array, " n"]:
    """For each row the index of the first row that equals it."""
    hashes = _hash(words)
    first = jnp.argmax(hashes[:, None] == hashes, 1)
    return jnp.where(jnp.all(words[first] == words, 1), first, jnp.arange(first.shape[0]))


def _above(score: Array, slot: Array, other: Array, other_slot: Array) -> Array:
    """Whether one slot, with its score, ranks above another."""
    return (score > other) | ((score == other) & (slot < other_slot))


def _scored(buffer: LevelBuffer, rows: Int[Array, " n"], score: Float[Array, " n"]) -> LevelBuffer:
    """The buffer with new scores in the slots `rows`, which are distinct; a row C or above is dropped.

    The rank of every other slot changes by the number of these slots that move above it, minus those that move below.
    """
    C = buffer.score.shape[0]
    slots = jnp.arange(C)
    score = jnp.where(rows < C, score, -jnp.inf)
    old = buffer.score.at[rows].get(mode="fill", fill_value=-jnp.inf)
    after, before = (_above(s[:, None], rows[:, None], buffer.score, slots) for s in (score, old))
    scores = buffer.score.at[rows].set(score, mode="drop")
    own = 1 + jnp.sum(_above(scores, slots, score[:, None], rows[:, None]), 1, dtype=jnp.int32)
    moved = jnp.sum(after.astype(jnp.int32) - before, 0, dtype=jnp.int32)
    return buffer.replace(score=scores, rank=(buffer.rank + moved).at[rows].set(own, mode="drop"))


def update(
    buffer: LevelBuffer, slot: Int[Array, " n"], score: Float[Array, " n"], max_return: Float[Array, " n"]
) -> LevelBuffer:
    """New scores and best returns of levels that the buffer holds. A row with slot -1 is ignored.

    A row whose score is not finite is ignored, too, as no episode ended on its level. A slot in several rows gets the
    mean of the scores and the highest of the returns. Ages do not change: they count from the draw.
    """
    n, C = slot.shape[0], buffer.score.shape[0]
    kept = (slot >= 0) & jnp.isfinite(score)
    every = jnp.where(kept, slot, C + jnp.arange(n))  # past the end: dropped; no two are equal
    same = every[:, None] == every
    score = jnp.where(kept, jnp.sum(same * jnp.where(kept, score, 0), 1) / same.sum(1), -jnp.inf)
    max_return = jnp.max(jnp.where(same, max_return, -jnp.inf), 1)
    rows = jnp.where(jnp.argmax(same, 1) < jnp.arange(n), C, every)
    return _scored(buffer, rows, score).replace(max_return=buffer.max_return.at[rows].max(max_return, mode="drop"))


def insert(
    buffer: LevelBuffer,
    levels: PyTree,
    score: Float[Array, " n"],
    max_return: Float[Array, " n"],
    usefulness: Float[Array, " C"],
    extras: PyTree = (),
) -> LevelBuffer:
    """Put n new levels into empty slots first, then in place of the least useful levels of a lower score.

    The new level of highest score competes with the slot of lowest `usefulness`, the second highest with the second
    lowest, and so on. A level with score -inf, on which no episode ended, is not inserted. A level that the buffer
    holds already updates its slot and sets its age to 0, as it was generated again. Equal levels of a batch are
    inserted once, with the highest of their scores and returns.
    """
    C = buffer.score.shape[0]
    score = jnp.where(jnp.isfinite(score), score, -jnp.inf)
    order = jnp.argsort(-score)
    levels, extras, score, max_return = jax.tree.map(lambda x: x[order], (levels, extras, score, max_return))
    first = _first_equal(_words(levels))
    max_return = jnp.full_like(max_return, -jnp.inf).at[first].max(max_return)
    score = jnp.where(first == jnp.arange(first.shape[0]), score, -jnp.inf)
    held = find(buffer, levels)
    buffer = update(buffer, held, score, max_return)
    made_again = jnp.where((held >= 0) & jnp.isfinite(score), held, C)
    score = jnp.where(held < 0, score, -jnp.inf)
    n = min(score.shape[0], C)
    best = jnp.argsort(-score)[:n]
    empty = ~jnp.isfinite(buffer.score)
    worst = jax.lax.top_k(jnp.where(empty, jnp.inf, -usefulness), n)[1]
    enters = jnp.isfinite(score[best]) & (empty[worst] | (score[best] > buffer.score[worst]))
    rows = jnp.where(enters, worst, C)  # past the end: dropped

    def put(old, new):
        return old.at[rows].set(new[best], mode="drop")

    return _scored(buffer, rows, score[best]).replace(
        levels=jax.tree.map(put, buffer.levels, levels),
        max_return=put(buffer.max_return, max_return),
        sampled_at=buffer.sampled_at.at[jnp.concatenate([rows, made_again])].set(buffer.clock, mode="drop"),
        hash=put(buffer.hash, _hash(_words(levels))),
        extras=jax.tree.map(put, buffer.extras, extras),
    )
