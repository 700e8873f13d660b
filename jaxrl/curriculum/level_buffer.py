"""The level buffer of replay methods: levels with scores, ages and hashes, drawn by rank or in proportion."""

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
    """A fixed number of levels with what replay needs to know of each. Empty slots have score -inf.

    Rank and hash follow from score and level. They are kept since sorting 100,000 scores and looking through as many
    levels would cost more than all the rest.
    """

    levels: Any  # leading axis C
    score: jax.Array  # (C,)
    max_return: jax.Array  # (C,)
    sampled_at: jax.Array  # (C,) int32, the clock when last drawn or made
    rank: jax.Array  # (C,) int32, 1 is the highest score; of equal ones the first slot's is better
    hash: jax.Array  # (C,) uint32
    extras: Any  # leading axis C: whatever else is to be known of each
    clock: jax.Array  # int32, levels handed out


def buffer_init(example: PyTree, capacity: int, extras: PyTree = ()) -> LevelBuffer:
    """An empty buffer for levels, and extras, like these examples (arrays or their shapes).

    Raises ValueError for a capacity below 1 and for a buffer that the memory cannot hold.
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
    """Bytes of the device, of the host where it has none of its own; None where nobody tells."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"]
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ()):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def buffer_weights(
    buffer: LevelBuffer,
    temperature: Float[Array, ""] | float,
    staleness: Float[Array, ""] | float,
    prioritization: str = "rank",
) -> Float[Array, " C"]:
    """Replay probabilities: (1 - staleness) h^(1/temperature) + staleness age, each normalised.

    Jiang et al. (2021a), P_replay. `rank`: h = 1 / rank; `proportional`: h = score, a negative one (as `max_mc` may
    give) counting as zero. What is zero everywhere counts as equal. Zero for empty slots; the weights sum to one unless
    all are empty.
    """
    by_score = _normalized(_worth(buffer, temperature, prioritization), buffer)
    return (1 - staleness) * by_score + staleness * _normalized(_age(buffer, buffer.clock), buffer)


def _worth(buffer: LevelBuffer, temperature: Array | float, prioritization: str) -> Float[Array, " C"]:
    """h^(1/temperature)."""
    if prioritization == "rank":
        h = 1 / buffer.rank.astype(buffer.score.dtype)
    elif prioritization == "proportional":
        h = jnp.where(jnp.isfinite(buffer.score), jnp.maximum(buffer.score, 0), 0)
        h = h / jnp.maximum(h.max(), 1e-30)  # the power of a large score would overflow
    else:
        raise ValueError(f"prioritization={prioritization!r}: it is 'rank' or 'proportional'.")
    return jnp.where(h > 0, jnp.exp(jnp.log(jnp.where(h > 0, h, 1)) / temperature), 0)


def _age(buffer: LevelBuffer, clock: Int[Array, ""]) -> Float[Array, " C"]:
    return (clock - buffer.sampled_at).astype(buffer.score.dtype)


def _normalized(weights: Float[Array, " C"], buffer: LevelBuffer) -> Float[Array, " C"]:
    """To sum 1 over what is filled; all equal where none has weight."""
    filled = jnp.isfinite(buffer.score)
    weights = jnp.where(filled, weights, 0)
    weights = jnp.where(weights.sum() > 0, weights, filled)
    return weights / jnp.maximum(weights.sum(), 1e-30)


def buffer_draw(
    key: Array,
    buffer: LevelBuffer,
    drawn: Bool[Array, " n"],
    temperature: Float[Array, ""] | float,
    staleness: Float[Array, ""] | float,
    prioritization: str = "rank",
) -> tuple[Int[Array, " n"], LevelBuffer]:
    """`(slots, buffer)`: one after another, each by `buffer_weights` as they are then, the same one perhaps again.

    With each the clock ticks, and the age of the level that was drawn is 0. So the best level of a buffer makes up the
    share of a batch that its weight says, while the oldest is drawn for its age but once. Rows that are not `drawn`
    leave the buffer as it was.
    """
    n, C = drawn.shape[0], buffer.score.shape[0]
    which_key, place_key = jax.random.split(key)
    aged = jax.random.bernoulli(which_key, staleness, (n,))  # P_replay is a mixture of two distributions
    place = jax.random.uniform(place_key, (n,), buffer.score.dtype)
    by_score = _quantiles(_normalized(_worth(buffer, temperature, prioritization), buffer), place)
    # Summed once: after k draws the ages below slot i sum to ages[i] + k filled[i], less what the drawn ones lost.
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
        # Its age is 0 now: it has lost what it had, and every later draw counts from here.
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
    """The slots at these places in [0, 1) of the distribution; those without weight are never found."""
    below = jnp.cumsum(weights)
    last = jnp.max(jnp.where(weights > 0, jnp.arange(weights.shape[0]), 0))
    return jnp.minimum(jnp.searchsorted(below, place * below[-1], side="right"), last).astype(jnp.int32)


def buffer_find(buffer: LevelBuffer, levels: PyTree) -> Int[Array, " n"]:
    """The slots of levels that the buffer holds, bit for bit; -1 for others.

    The hash names a slot, its level decides. So an equal level in a second slot of the same hash is not seen.
    """
    words = _words(levels)
    slots = jnp.arange(buffer.hash.shape[0])
    slot = jnp.max(jnp.where(buffer.hash == _hash(words)[:, None], slots, -1), 1)
    return jnp.where(buffer_holds(buffer, slot, levels), slot, -1)


def buffer_holds(buffer: LevelBuffer, slot: Int[Array, " n"], levels: PyTree) -> Bool[Array, " n"]:
    """Whether these slots hold these levels, bit for bit; slot -1 holds none."""
    held = jax.tree.map(lambda x: x[slot], buffer.levels)
    equal = jnp.all(_words(held) == _words(levels), 1)
    return (slot >= 0) & equal & jnp.isfinite(buffer.score[slot])


def _words(levels: PyTree) -> UInt32[Array, "n words"]:
    """Levels as bits."""

    def leaf(x):
        x = x.astype(jnp.uint8) if x.dtype == bool else x
        words = jax.lax.bitcast_convert_type(x, f"uint{8 * min(x.dtype.itemsize, 4)}")
        return words.astype(jnp.uint32).reshape(x.shape[0], -1)

    return jnp.concatenate([leaf(x) for x in jax.tree.leaves(levels)], 1)


def _hash(words: UInt32[Array, "n words"]) -> UInt32[Array, " n"]:
    """The sum of each word mixed with its place; the mixing is Wellons' lowbias32."""
    x = words ^ np.random.default_rng(0).integers(2**32, size=words.shape[1], dtype=np.uint32)
    x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
    x = (x ^ x >> 15) * np.uint32(0x846CA68B)
    return jnp.sum(x ^ x >> 16, 1, dtype=jnp.uint32)


def _first_equal(words: UInt32[Array, "n words"]) -> Int[Array, " n"]:
    """The first row that equals each."""
    hashes = _hash(words)
    first = jnp.argmax(hashes[:, None] == hashes, 1)
    return jnp.where(jnp.all(words[first] == words, 1), first, jnp.arange(first.shape[0]))


def _above(score: Array, slot: Array, other: Array, other_slot: Array) -> Array:
    """Whether a slot is ranked above another."""
    return (score > other) | ((score == other) & (slot < other_slot))


def _scored(buffer: LevelBuffer, rows: Int[Array, " n"], score: Float[Array, " n"]) -> LevelBuffer:
    """The buffer with new scores in distinct slots; rows past the end are dropped. The ranks of all others move by how
    many of these overtook them."""
    C = buffer.score.shape[0]
    slots = jnp.arange(C)
    score = jnp.where(rows < C, score, -jnp.inf)
    old = buffer.score.at[rows].get(mode="fill", fill_value=-jnp.inf)
    after, before = (_above(s[:, None], rows[:, None], buffer.score, slots) for s in (score, old))
    scores = buffer.score.at[rows].set(score, mode="drop")
    own = 1 + jnp.sum(_above(scores, slots, score[:, None], rows[:, None]), 1, dtype=jnp.int32)
    moved = jnp.sum(after.astype(jnp.int32) - before, 0, dtype=jnp.int32)
    return buffer.replace(score=scores, rank=(buffer.rank + moved).at[rows].set(own, mode="drop"))


def buffer_update(
    buffer: LevelBuffer, slot: Int[Array, " n"], score: Float[Array, " n"], max_return: Float[Array, " n"]
) -> LevelBuffer:
    """What a rollout showed of levels that the buffer holds; slot -1 is none of them.

    Where the score is not finite (nothing was learned of it), all stays as it was. A slot that is named several times
    gets the mean of its scores and the best of its returns. Ages count from the draw and so stay, too.
    """
    n, C = slot.shape[0], buffer.score.shape[0]
    kept = (slot >= 0) & jnp.isfinite(score)
    every = jnp.where(kept, slot, C + jnp.arange(n))  # past the end: dropped; no two are equal
    same = every[:, None] == every
    score = jnp.where(kept, jnp.sum(same * jnp.where(kept, score, 0), 1) / same.sum(1), -jnp.inf)
    max_return = jnp.max(jnp.where(same, max_return, -jnp.inf), 1)
    rows = jnp.where(jnp.argmax(same, 1) < jnp.arange(n), C, every)
    return _scored(buffer, rows, score).replace(max_return=buffer.max_return.at[rows].max(max_return, mode="drop"))


def buffer_insert(
    buffer: LevelBuffer,
    levels: PyTree,
    score: Float[Array, " n"],
    max_return: Float[Array, " n"],
    usefulness: Float[Array, " C"],
    extras: PyTree = (),
) -> LevelBuffer:
    """Put new levels in place of the least useful ones: first into empty slots, then where the new score is higher.

    The best new level meets the least useful slot, the second best the second least, and so on. Levels with score -inf
    (nothing was learned of them) stay out. A level that the buffer holds already only updates its slot, whose age is 0
    as it has just been made again, and equal levels of a batch enter once, with the best of their scores and returns.
    """
    C = buffer.score.shape[0]
    score = jnp.where(jnp.isfinite(score), score, -jnp.inf)
    order = jnp.argsort(-score)
    levels, extras, score, max_return = jax.tree.map(lambda x: x[order], (levels, extras, score, max_return))
    first = _first_equal(_words(levels))
    max_return = jnp.full_like(max_return, -jnp.inf).at[first].max(max_return)
    score = jnp.where(first == jnp.arange(first.shape[0]), score, -jnp.inf)
    held = buffer_find(buffer, levels)
    buffer = buffer_update(buffer, held, score, max_return)
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
