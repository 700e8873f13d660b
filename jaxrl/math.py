"""Small functions that XLA's CPU backend is slow at, written so that they fuse: for environments and their batches.

What serves CPUs only is chosen here, by `on_cpu`: other platforms never see it.

Keys made here stay inside one step; what users see and what enters a state are jax's own typed keys.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer, Key, PyTree, Shaped, UInt32

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def wrap(x: Float[Array, "..."], low: float | Array, high: float | Array) -> Float[Array, "..."]:
    """`x` shifted by whole periods into [low, high). A floor, because `%` on floats costs 50 times as much on a CPU."""
    period = high - low
    return x - period * jnp.floor((x - low) / period)


def sincos(x: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Sine and cosine of `x` [rad] together.

    float32: Cody-Waite reduction to [-pi/4, pi/4] and minimax polynomials (Moshier, Cephes `sinf`), absolute error
    below 1e-7 for |x| < 8192; plain arithmetic, which a CPU fuses and vectorises. Other dtypes: `jnp.sin`, `jnp.cos`.
    """
    x = jnp.asarray(x)
    return _sincos32(x) if x.dtype == jnp.float32 else (jnp.sin(x), jnp.cos(x))


@jax.custom_jvp
def _sincos32(x: Array) -> tuple[Array, Array]:
    quadrant = jnp.floor(x * (2 / math.pi) + 0.5)
    # pi/2 in three parts, so that the reduction keeps its digits.
    r = ((x - quadrant * 1.5703125) - quadrant * 4.837512969970703125e-4) - quadrant * 7.549789948768648e-8
    z = r * r
    sine = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 + z * -1.9515295891e-4))
    cosine = 1 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5))
    q = quadrant - 4 * jnp.floor(quadrant * 0.25)
    swap = (q == 1) | (q == 3)
    s, c = jnp.where(swap, cosine, sine), jnp.where(swap, sine, cosine)
    return jnp.where(q >= 2, -s, s), jnp.where((q == 1) | (q == 2), -c, c)


@_sincos32.defjvp
def _sincos32_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    s, c = _sincos32(x)
    return (s, c), (c * dx, -s * dx)


def on_cpu(cpu: Callable[..., T], elsewhere: Callable[..., T], *args: Any) -> T:
    """`cpu(*args)` in programs compiled for CPUs, `elsewhere(*args)` in others. Decided as a program is lowered."""
    return jax.lax.platform_dependent(*args, cpu=cpu, default=elsewhere)


def precise(function: F) -> F:
    """`function`, whose matrix products are of full precision on every platform.

    A TPU multiplies float32 matrices in bfloat16 unless told otherwise: three digits, enough for a network's layers but
    not for a simulator or a solver. Products in what the function calls count, too.
    """

    @functools.wraps(function)
    def with_full_precision(*args, **kwargs):
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return cast(F, with_full_precision)


def fence(tree: PyTree) -> PyTree:
    """`tree`, computed once before anything that reads it.

    XLA's CPU backend fuses producers into a `stack` or broadcast and computes them anew for each output element:
    Acrobot's observation cost 2,000 us so, 17 us behind a fence. Only a conditional stops it (an optimization barrier
    is gone by then); its predicate is unbatched under any vmap. Derivatives pass. Nothing on other platforms, whose
    compilers fuse into several outputs and where a conditional makes the host wait.
    """
    return on_cpu(_fenced, lambda tree: tree, tree)


def _fenced(tree: PyTree) -> PyTree:
    always = jax.lax.optimization_barrier(jnp.bool_(True))  # hides that it is constant

    def nothing(x):
        if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jnp.zeros_like(x)
        words = jax.eval_shape(jax.random.key_data, x)
        return jax.random.wrap_key_data(jnp.zeros(words.shape, words.dtype), impl=jax.random.key_impl(x))

    return jax.lax.cond(always, lambda tree: tree, lambda tree: jax.tree.map(nothing, tree), tree)


@jax.custom_batching.custom_vmap
def _anywhere(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether the flag is set anywhere in the batch: under any vmap an unbatched scalar."""
    return flag


@_anywhere.def_vmap
def _(axis_size: int, in_batched: Any, flag: Array) -> tuple[Array, bool]:
    return _anywhere(jnp.any(flag, axis=0)), False


def rarely(needed: Bool[Array, ""], compute: Callable[[], Any], otherwise: Any) -> Any:
    """`compute()` where needed, else `otherwise`. Under vmap it computes only when any of the batch needs it.

    A `cond` with a batched predicate always computes both sides.
    """
    result = jax.lax.cond(_anywhere(needed), compute, lambda: otherwise)
    return jax.tree.map(lambda new, old: jnp.where(needed, new, old), result, otherwise)


def random_words(key: Key[Array, ""], shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    """32 random bits each, drawn once, behind a `fence`.

    Fused into what is drawn with them, a grid's cells say, the generator would run anew for each, and LLVM's vectoriser
    can take minutes over such a loop: its test for values that do not change in it doubles with each round of threefry.
    """
    return fence(jax.random.bits(key, shape, jnp.uint32))


def rough_normals(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Normal numbers of 16 random bits each, for sensor noise: at most 4.9 from zero, mean and variance exact to 1e-4.

    Box and Muller's two numbers from one random word, so a draw costs half the words of `jax.random.normal`. Sine and
    cosine are least-squares polynomials of half the angle, exact to 2e-5.
    """
    n = math.prod(shape)
    words = random_words(key, ((n + 1) // 2,))
    radius = jnp.sqrt(-2 * jnp.log(((words >> 16).astype(jnp.float32) + 0.5) * 2.0**-16))
    turn = (jax.lax.bitcast_convert_type(words << 16, jnp.int32) >> 16).astype(jnp.float32) * 2.0**-15  # -1 to 1
    z = turn * turn
    sine = turn * (1.570791 + z * (-0.6458926 + z * (0.079433963 + z * -0.004332882)))
    cosine = 0.99999325 + z * (-1.2334837 + z * (0.252578 + z * -0.019094245))
    # A concatenation would not vectorise what it is made of.
    return jnp.concatenate(fence((radius * (1 - 2 * sine * sine), radius * (2 * sine * cosine))))[:n].reshape(shape)


def below(bits: UInt32[Array, "..."], n: Integer[Array, "..."] | int) -> Integer[Array, "..."]:
    """Uniform integers below `n` of 32 random bits each. n / 2^24 is the largest relative error of a probability."""
    n = jnp.asarray(n).astype(jnp.float32)
    return jnp.floor((bits >> 8).astype(jnp.float32) * 2.0**-24 * n).astype(jnp.int32)


WORD = 24
"""Bits of a mask in one word: so many are exact in a float32."""


def nth(allowed: Bool[Array, " n"], ranks: Integer[Array, " k"]) -> Integer[Array, " k"]:
    """The index of the True of `allowed` that has `ranks` others before it; n where there are not so many."""
    words = as_words(allowed)
    return jnp.minimum(jax.vmap(lambda rank: nth_bit(words, WORD, rank))(ranks), allowed.shape[0])


def count(allowed: Bool[Array, " n"]) -> Integer[Array, ""]:
    """How many are True: from the words that `nth` counts in."""
    return _set_bits(as_words(allowed))


def choose(bits: UInt32[Array, ""], allowed: Bool[Array, " n"]) -> Integer[Array, ""]:
    """The index of a True of `allowed`, each equally likely; n where there is none."""
    return jnp.minimum(choose_bit(bits, as_words(allowed)), allowed.shape[0])


def choose_bit(bits: UInt32[Array, ""], words: UInt32[Array, " words"]) -> Integer[Array, ""]:
    """`choose` of a mask that was packed by `as_words`; the words' number of bits where none is set."""
    return nth_bit(words, WORD, below(bits, _set_bits(words)))


def flip_bit(words: UInt32[Array, " words"], index: Integer[Array, ""]) -> UInt32[Array, " words"]:
    """A packed mask with the other truth at `index`."""
    bit = jnp.uint32(1) << jax.lax.rem(index, jnp.int32(WORD)).astype(jnp.uint32)
    return words ^ jnp.where(np.arange(words.size) == jax.lax.div(index, jnp.int32(WORD)), bit, jnp.uint32(0))


def as_words(mask: Bool[Array, " n"]) -> UInt32[Array, " words"]:
    """A mask as words of `WORD` bits, the first lowest."""
    n = mask.shape[0]
    word, bit = np.divmod(np.arange(n), WORD)
    number = -(-n // WORD)

    def by_sums(mask):
        # Fenced: fused into the sums, what the mask is made of is no loop along the cells that vectorises.
        rows = jnp.pad(fence(mask), (0, number * WORD - n)).reshape(number, WORD).astype(jnp.uint32)
        return jnp.sum(rows << np.arange(WORD, dtype=np.uint32), 1, dtype=jnp.uint32)

    def by_product(mask):
        # The matrix unit packs a batch at once. Exact: powers of two are bfloat16, their sums float32.
        weights = np.zeros((n, number), np.float32)
        weights[np.arange(n), word] = 2.0**bit
        weights = jnp.asarray(weights, jnp.bfloat16)
        words = jnp.dot(mask.astype(jnp.bfloat16), weights, precision="highest", preferred_element_type=jnp.float32)
        return words.astype(jnp.int32).astype(jnp.uint32)

    return on_cpu(by_sums, by_product, mask)


def _set_bits(words: UInt32[Array, "..."]) -> Integer[Array, ""]:
    return jnp.sum(jax.lax.population_count(words).astype(jnp.int32), dtype=jnp.int32)


def nth_bit(words: UInt32[Array, " n"], width: int, rank: Integer[Array, ""]) -> Integer[Array, ""]:
    """The index of the set bit that has `rank` others before it, in words of `width` bits, the first lowest; their
    number of bits where there are not so many.

    Scalars, word by word, which fuse into one loop over a batch; many words by rows of them.
    """
    n, before, rank = words.shape[0], 0, rank.astype(jnp.int32)
    if n > 32:
        side = math.isqrt(n)
        rows = jnp.pad(words, (0, -n % side)).reshape(-1, side)
        row, rank, words = _holder(rows, rank)
        before = row * side
    which, rank, word = _holder(words, rank)
    bit = jnp.zeros_like(rank)
    span = 1 << (width - 1).bit_length()
    while span := span // 2:
        low = jax.lax.population_count(word & ((1 << span) - 1)).astype(jnp.int32)
        upper = rank >= low
        rank = jnp.where(upper, rank - low, rank)
        word = jnp.where(upper, word >> span, word)
        bit = bit + jnp.where(upper, span, 0)
    return jnp.minimum((before + which) * width + bit, n * width)


def _holder(items: UInt32[Array, "n ..."], rank: Integer[Array, ""]) -> tuple[Array, Array, UInt32[Array, "..."]]:
    """Which of the items, of one word or more, has the set bit of that rank, its rank in there, and the item; n and
    the last where there are not so many."""
    which = until = jnp.zeros_like(rank)
    left, item = rank, items[0]
    for k in range(items.shape[0]):
        until = until + _set_bits(items[k])
        past = until <= rank
        which = which + past
        left = jnp.where(past, rank - until, left)
        item = jnp.where(past, items[min(k + 1, items.shape[0] - 1)], item)
    return which, left, item


def _threefry2x32(key: tuple[Array, Array], counts: tuple[Array, Array]) -> tuple[Array, Array]:
    """Threefry-2x32, 20 rounds (Salmon et al. 2011), unrolled: on a CPU jax lowers it to a loop that nothing joins."""
    k0, k1 = key
    schedule = (k0, k1, k0 ^ k1 ^ jnp.uint32(0x1BD11BDA))
    x0, x1 = counts[0] + k0, counts[1] + k1
    for i in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x0 = x0 + x1
            x1 = ((x1 << r) | (x1 >> (32 - r))) ^ x0
        x0, x1 = x0 + schedule[(i + 1) % 3], x1 + schedule[(i + 2) % 3] + jnp.uint32(i + 1)
    # Without the barrier each consumer would compute its own copy of the rounds; other platforms fuse better.
    return on_cpu(jax.lax.optimization_barrier, lambda words: words, (x0, x1))


def _counts(shape: tuple[int, ...]) -> tuple[Array, Array]:
    n = math.prod(shape)
    return jnp.zeros(shape, jnp.uint32), jax.lax.iota(jnp.uint32, n).reshape(shape)


def _bits(key: UInt32[Array, "2"], bit_width: int, shape: tuple[int, ...]) -> Shaped[Array, "..."]:
    high, low = _threefry2x32((key[0], key[1]), _counts(shape))
    if bit_width == 64:
        return (high.astype(jnp.uint64) << 32) | low.astype(jnp.uint64)
    return (high ^ low).astype({32: jnp.uint32, 16: jnp.uint16, 8: jnp.uint8}[bit_width])


def _split(key: UInt32[Array, "2"], shape: tuple[int, ...]) -> UInt32[Array, "... 2"]:
    return jnp.stack(_threefry2x32((key[0], key[1]), _counts(shape)), -1)


def _seed(seed: Array) -> UInt32[Array, "2"]:
    seed = jnp.asarray(seed)
    wide = seed.dtype.itemsize == 8
    high = jax.lax.shift_right_logical(seed, jnp.asarray(32, seed.dtype)).astype(jnp.uint32) if wide else jnp.uint32(0)
    return jnp.stack([high, seed.astype(jnp.uint32)])


def _fold_in(key: UInt32[Array, "2"], data: Any) -> UInt32[Array, "2"]:
    seed = _seed(data)
    return jnp.stack(_threefry2x32((key[0], key[1]), (seed[0], seed[1])))


def _unrolled_threefry():
    from jax.extend.random import define_prng_impl

    return define_prng_impl(
        key_shape=(2,), seed=_seed, split=_split, random_bits=_bits, fold_in=_fold_in, name="jaxrl_threefry", tag="jxr"
    )


_IMPLEMENTATION = _unrolled_threefry()


def fast_key(key: Array) -> Array:
    """The same key with an implementation that gives the same bits, faster in small draws on a CPU.

    Keys of other generators (`rbg`) and raw uint32 keys are returned as they are.
    """
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or str(jax.random.key_impl(key)) != "threefry2x32":
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=_IMPLEMENTATION)


def fast_split(key: Array, num: int = 2) -> Array:
    """`jax.random.split(key, num)`, the same keys of the same kind, made by `fast_key`'s implementation."""
    keys = jax.random.split(fast_key(key), num)
    if keys.dtype == key.dtype:
        return keys
    return jax.random.wrap_key_data(jax.random.key_data(keys), impl=jax.random.key_impl(key))


def _mixed(x: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """A bijection of 32-bit words in which a change of any bit changes each other one half of the time: `lowbias32`,
    exact bias 0.17 (C. Wellons 2018, "Prospecting for hash functions")."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


_SPLIT, _FOLD = 0x68E31DA4, 0xB5297A4D  # so that a key's children, and what is folded into it, differ


def _hash_words(key: UInt32[Array, "2"], counts: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """The words of these counts. The count enters both rounds: with the count in the first alone, two keys whose second
    words agree would have windows of one sequence, the one's a shifted part of the other's."""
    return _mixed(_mixed(counts * jnp.uint32(0x9E3779B9) + key[0]) ^ (counts * jnp.uint32(0x85EBCA6B) + key[1]))


def _hash_keys(key: UInt32[Array, "2"], counts: UInt32[Array, "..."], purpose: int) -> UInt32[Array, "... 2"]:
    """The keys of these counts: a round of a Feistel network, `(a, b) -> (b ^ F(a, count), a)`, with the count in `a`.

    No two are equal, of one purpose or of both; and for one count it is a bijection of 64 bits, so a chain of keys,
    however long, loses none.
    """
    kept = key[0] ^ jnp.uint32(purpose)
    first = key[1] ^ _mixed(counts * jnp.uint32(0x9E3779B9) + kept)
    keys = jnp.stack([first, counts * jnp.uint32(0xC2B2AE35) + kept], -1)
    # As in `_threefry2x32`: each draw of a slot would compute the slot's key again, Breakout 1.15 times as long.
    return on_cpu(jax.lax.optimization_barrier, lambda keys: keys, keys)


def _hash_bits(key: UInt32[Array, "2"], bit_width: int, shape: tuple[int, ...]) -> Shaped[Array, "..."]:
    counts = _counts(shape)[1]
    if bit_width == 64:
        high, low = (_hash_words(key, 2 * counts + half).astype(jnp.uint64) for half in (0, 1))
        return (high << 32) | low
    return _hash_words(key, counts).astype({32: jnp.uint32, 16: jnp.uint16, 8: jnp.uint8}[bit_width])


def _hash_split(key: UInt32[Array, "2"], shape: tuple[int, ...]) -> UInt32[Array, "... 2"]:
    return _hash_keys(key, _counts(shape)[1], _SPLIT)


def _hash_fold_in(key: UInt32[Array, "2"], data: Any) -> UInt32[Array, "2"]:
    return _hash_keys(key, jnp.asarray(data, jnp.uint32), _FOLD)


def _counter_hash():
    from jax.extend.random import define_prng_impl

    return define_prng_impl(
        key_shape=(2,),
        seed=_seed,
        split=_hash_split,
        random_bits=_hash_bits,
        fold_in=_hash_fold_in,
        name="jaxrl_hash",
        tag="jxh",
    )


_HASH = _counter_hash()


def light_key(key: Array) -> Array:
    """A key for what is drawn within one step of a batch: two words of `key`'s own generator, as a key of a hash.

    The hash is counter-based: word `i` of a key is two rounds of a 32-bit finaliser over `i` and the key's 64 bits, a
    child is one. That is a fifth of threefry's arithmetic, and the same numbers on every platform. What was tested of
    it: docs/random_numbers.md. What outlives the step keeps jax's own keys (`stock_keys`).
    """
    return jax.random.wrap_key_data(jax.random.bits(fast_key(key), (2,), jnp.uint32), impl=_HASH)


def stock_keys(tree: PyTree) -> PyTree:
    """`tree` with the keys of this module's generators as jax's own, of the same 64 bits: for what outlives a step."""

    def stock(x):
        is_key = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        own = is_key and str(jax.random.key_impl(x)) in ("jxr", "jxh")
        return jax.random.wrap_key_data(jax.random.key_data(x), impl="threefry2x32") if own else x

    return jax.tree.map(stock, tree)


def shuffled(key: Array, shape: tuple[int, ...]) -> Int[Array, "..."]:
    """Permutations of 0 .. n-1 along the last axis of length n, one a row: for splitting batches.

    Random words with the index in their low bits are sorted as plain integers, on a CPU 2.6 times (n = 512) to 11 times
    (n = 65,536) as fast as `jax.random.permutation`. Entries with equal high bits keep their order, about n**2 / 2**32
    of them at the border between two minibatches, which is the only bias. Above 2**20 entries, where that would show,
    it is jax's own.
    """
    n = shape[-1]
    low = max((n - 1).bit_length(), 1)
    if low > 20:
        rows = jax.random.split(key, math.prod(shape[:-1]))
        return jnp.stack([jax.random.permutation(k, n) for k in rows]).reshape(shape)
    mask = jnp.uint32((1 << low) - 1)
    words = (jax.random.bits(fast_key(key), shape) & ~mask) | jnp.arange(n, dtype=jnp.uint32)
    # No two words are equal; a TPU's compiler carries the index along for a stable sort, and takes four times as long.
    words = on_cpu(jax.lax.sort, functools.partial(jax.lax.sort, is_stable=False), words)
    return (words & mask).astype(jnp.int32)
