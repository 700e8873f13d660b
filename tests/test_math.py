"""Fast sine and cosine, wrapping, the two generators, the shuffle and choices, against numpy and jax's own."""

import math
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrl.math import (
    as_words,
    below,
    choose,
    choose_bit,
    count,
    fast_key,
    flip_bit,
    light_key,
    nth,
    nth_bit,
    random_words,
    shuffled,
    sincos,
    stock_keys,
    wrap,
)

ULP = 2.0**-23  # of 1, float32


@pytest.mark.optimised
def test_sincos_is_within_two_ulp_of_one():
    rng = np.random.default_rng(0)
    multiples = np.arange(-5215, 5216) * (math.pi / 2)
    x = np.concatenate([rng.uniform(-8192, 8192, 200_000), rng.uniform(-10, 10, 200_000), multiples, multiples / 2])
    x = x[np.abs(x) < 8192].astype(np.float32)
    sin, cos = jax.jit(sincos)(x)
    assert sin.dtype == cos.dtype == jnp.float32
    for got, want in ((sin, np.sin(x.astype(np.float64))), (cos, np.cos(x.astype(np.float64)))):
        assert np.max(np.abs(got - want)) <= 2 * ULP
    assert np.max(np.abs(np.asarray(sin, np.float64) ** 2 + np.asarray(cos, np.float64) ** 2 - 1)) <= 4 * ULP


def test_sine_of_a_small_angle_is_relatively_accurate():
    x = np.concatenate([np.logspace(-30, -0.2, 10_000), -np.logspace(-30, -0.2, 10_000), [0.0]]).astype(np.float32)
    sin = np.asarray(sincos(jnp.asarray(x))[0], np.float64)
    want = np.sin(x.astype(np.float64))
    assert np.all(np.abs(sin - want) <= 2 * ULP * np.abs(want))


def test_sincos_has_exact_derivatives_of_all_orders():
    x = jnp.linspace(-7, 7, 101)
    sin, cos = sincos(x)
    d_sin, d_cos = (jax.vmap(jax.grad(lambda x, i=i: sincos(x)[i]))(x) for i in (0, 1))
    np.testing.assert_array_equal(d_sin, cos)
    np.testing.assert_array_equal(d_cos, -sin)
    second = jax.vmap(jax.grad(jax.grad(lambda x: sincos(x)[0])))(x)
    np.testing.assert_array_equal(second, -sin)


def test_sincos_of_other_dtypes_is_jax_own():
    with jax.enable_x64(True):
        x = jnp.linspace(-100, 100, 1001)
        assert x.dtype == jnp.float64
        np.testing.assert_array_equal(sincos(x)[0], jnp.sin(x))
        np.testing.assert_array_equal(sincos(x)[1], jnp.cos(x))
        assert sincos(x.astype(jnp.float32))[0].dtype == jnp.float32
    assert sincos(jnp.ones((), jnp.bfloat16))[0].dtype == jnp.bfloat16


@pytest.mark.parametrize(("low", "high"), [(-math.pi, math.pi), (0.0, 1.0), (-3.0, -1.0)])
def test_wrap_shifts_by_whole_periods(low, high):
    x = np.random.default_rng(1).uniform(-50, 50, 10_000).astype(np.float32)
    y = np.asarray(wrap(jnp.asarray(x), low, high), np.float64)
    assert np.all((y >= low - 1e-5) & (y <= high + 1e-5))
    periods = (x - y) / (high - low)
    np.testing.assert_allclose(periods, np.round(periods), atol=1e-5)
    inside = (x > low + 1e-4) & (x < high - 1e-4)
    np.testing.assert_array_equal(y[inside], x[inside])


def test_wrap_at_the_ends_and_its_derivative():
    np.testing.assert_array_equal(wrap(jnp.array([0.0, 1.0, 2.0, -1.0, 0.5, -0.25]), 0.0, 1.0), [0, 0, 0, 0, 0.5, 0.75])
    assert jax.grad(partial(wrap, low=0.0, high=1.0))(jnp.float32(3.3)) == 1
    assert wrap(jnp.float32(2.5), jnp.float32(0), jnp.float32(2)) == 0.5


DRAWS = {
    "uniform": partial(jax.random.uniform, shape=(3, 5)),
    "scalar": jax.random.uniform,
    "normal": partial(jax.random.normal, shape=(7,)),
    "randint": partial(jax.random.randint, shape=(9,), minval=-3, maxval=11),
    "bernoulli": partial(jax.random.bernoulli, shape=(4,)),
    "bits 8": partial(jax.random.bits, shape=(6,), dtype=jnp.uint8),
    "bits 16": partial(jax.random.bits, shape=(6,), dtype=jnp.uint16),
    "bits 32": partial(jax.random.bits, shape=(2, 3), dtype=jnp.uint32),
    "split": lambda key: jax.random.key_data(jax.random.split(key, (2, 3))),
    "split once": lambda key: jax.random.key_data(jax.random.split(key)),
    "fold_in": lambda key: jax.random.key_data(jax.random.fold_in(key, 123_456_789)),
    "fold_in of the largest": lambda key: jax.random.key_data(jax.random.fold_in(key, jnp.uint32(2**32 - 1))),
    "nested": lambda key: jax.random.normal(jax.random.split(jax.random.fold_in(key, 3), 5)[4], (3,)),
}


def all_draws(key):
    return {name: draw(key) for name, draw in DRAWS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("x64", [False, True])
def test_fast_key_gives_the_bits_of_the_stock_generator(x64):
    with jax.enable_x64(x64):
        draws = dict(DRAWS)
        if x64:
            draws["bits 64"] = partial(jax.random.bits, shape=(5,), dtype=jnp.uint64)
            draws["int64"] = partial(jax.random.randint, shape=(5,), minval=0, maxval=2**40)

        @jax.jit
        @jax.vmap
        def both(key):
            return [{name: draw(k) for name, draw in draws.items()} for k in (fast_key(key), key)]

        fast, stock = both(jax.random.split(jax.random.key(0), 3))
        for name in draws:
            assert fast[name].dtype == stock[name].dtype, name
            np.testing.assert_array_equal(fast[name], stock[name], err_msg=name)
        if x64:
            assert fast["normal"].dtype == jnp.float64
        eager = jax.random.bits(fast_key(jax.random.key(1)), (4,))
        np.testing.assert_array_equal(eager, jax.random.bits(jax.random.key(1), (4,)))


def test_fast_key_leaves_other_keys_alone():
    for key in (jax.random.key(0, impl="rbg"), jax.random.PRNGKey(0), fast_key(jax.random.key(0))):
        assert fast_key(key) is key


def mixed(x):
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ x >> shift) * factor % 2**32
    return x ^ x >> 16


def hash_word(key, count):
    """Word `count` of a key of two words, in Python's integers."""
    return mixed(mixed((count * 0x9E3779B9 + key[0]) % 2**32) ^ (count * 0x85EBCA6B + key[1]) % 2**32)


def hash_key(key, count, purpose):
    kept = key[0] ^ purpose
    return key[1] ^ mixed((count * 0x9E3779B9 + kept) % 2**32), (count * 0xC2B2AE35 + kept) % 2**32


def test_light_key_draws_the_words_of_its_definition():
    split, fold = 0x68E31DA4, 0xB5297A4D
    key = light_key(jax.random.key(3))
    words = jax.random.bits(jax.random.key(3), (2,))  # of jax's own generator
    np.testing.assert_array_equal(jax.random.key_data(key), words)
    words = [int(x) for x in words]
    np.testing.assert_array_equal(
        jax.random.bits(key, (2, 3)), np.reshape([hash_word(words, i) for i in range(6)], (2, 3))
    )
    np.testing.assert_array_equal(jax.random.bits(key, (3,), jnp.uint8), [hash_word(words, i) % 256 for i in range(3)])
    np.testing.assert_array_equal(
        jax.random.key_data(jax.random.split(key, 4)), [hash_key(words, i, split) for i in range(4)]
    )
    np.testing.assert_array_equal(jax.random.key_data(jax.random.fold_in(key, 5)), hash_key(words, 5, fold))
    with jax.enable_x64(True):
        high, low = (hash_word(words, i) for i in (4, 5))
        assert int(jax.random.bits(key, (3,), jnp.uint64)[2]) == (high << 32) + low


def test_light_key_takes_keys_of_every_kind():
    data = [
        jax.random.key_data(light_key(key)).tolist()
        for key in (jax.random.key(1), jax.random.PRNGKey(1), fast_key(jax.random.key(1)), light_key(jax.random.key(1)))
    ]
    assert data[0] == data[1] == data[2] != data[3]
    assert jax.random.key_data(light_key(jax.random.key(1, impl="rbg"))).shape == (2,)


def test_stock_keys_keeps_the_bits_and_leaves_the_rest():
    key = jax.random.key(1)
    tree = {"light": light_key(key), "fast": fast_key(key), "rbg": jax.random.key(1, impl="rbg"), "x": jnp.ones(2)}
    found = stock_keys(tree)
    assert found["light"].dtype == found["fast"].dtype == key.dtype
    np.testing.assert_array_equal(jax.random.key_data(found["light"]), jax.random.key_data(tree["light"]))
    assert found["rbg"] is tree["rbg"] and found["x"] is tree["x"]


def test_a_changed_bit_of_a_light_key_changes_half_of_what_it_draws():
    """Avalanche at a price of seconds; benchmarks/random_numbers.py measures it finely."""
    impl = jax.random.key_impl(light_key(jax.random.key(0)))

    @jax.jit
    def drawn(rows):
        def one(row):
            key = jax.random.wrap_key_data(row, impl=impl)
            child = jax.random.split(key)[1]
            return jnp.concatenate([jax.random.bits(k, (2,)) for k in (key, child, jax.random.fold_in(child, 1))])

        return jax.vmap(one)(rows)

    rows = np.random.default_rng(0).integers(0, 2**32, (4096, 2), np.uint32)
    base = drawn(rows)
    for bit in range(64):
        changed = rows.copy()
        changed[:, bit // 32] ^= np.uint32(1 << bit % 32)
        flips = np.unpackbits(np.asarray(base ^ drawn(changed)).view(np.uint8), axis=1).mean(0)
        assert np.all(np.abs(flips - 0.5) < 5.5 * 0.5 / 64), (bit, flips)  # standard deviations of 4,096 coins


def test_no_two_light_keys_of_a_tree_are_equal():
    @jax.jit
    def tree(key):
        first = jax.random.split(light_key(key), 1 << 12)
        second = jax.vmap(lambda key: jax.random.split(key, 4))(first).reshape(-1)
        folded = jax.vmap(lambda key: jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(4)))(first).reshape(-1)
        return jax.random.key_data(jnp.concatenate([first, second, folded]))

    data = np.asarray(tree(jax.random.key(0))).astype(np.uint64)
    assert len(np.unique(data[:, 0] << np.uint64(32) | data[:, 1])) == len(data) == 9 << 12


def test_no_slot_draws_a_part_of_what_another_draws():
    """Of 4,096 slots that draw 256 words each, by a hash whose siblings are windows of one sequence, a pair a step."""

    @jax.jit
    def drawn(key):
        return jax.vmap(lambda key: jax.random.bits(key, (256,)))(jax.random.split(light_key(key), 1 << 12))

    for seed in range(8):
        words = np.asarray(drawn(jax.random.key(seed))).astype(np.uint64)
        pairs = (words[:, :-1] << np.uint64(32) | words[:, 1:]).ravel()
        assert len(np.unique(pairs)) == len(pairs)


def test_words_of_siblings_agree_as_often_as_chance_has_it():
    """Half a pair of 65,536 slots has the same word in a place: 128 in 256 places, none if siblings never agree."""

    @jax.jit
    def drawn(key):
        return jax.vmap(lambda key: jax.random.bits(key, (256,)))(jax.random.split(light_key(key), 1 << 16))

    ordered = np.sort(np.asarray(drawn(jax.random.key(0))), axis=0)
    assert 128 - 5 * 11.3 < np.sum(ordered[1:] == ordered[:-1]) < 128 + 5 * 11.3


def test_what_is_folded_in_is_none_of_the_children():
    """For every key there is one number whose fold has the first word of the first child: the second word differs."""
    split, fold = 0x68E31DA4, 0xB5297A4D
    for seed in range(8):
        key = light_key(jax.random.key(seed))
        a = int(jax.random.key_data(key)[0])
        number = ((a ^ split) - (a ^ fold)) * pow(0x9E3779B9, -1, 2**32) % 2**32
        folded = jax.random.key_data(jax.random.fold_in(key, np.uint32(number)))
        child = jax.random.key_data(jax.random.split(key)[0])
        assert folded[0] == child[0] and folded[1] != child[1]
    # In general, as docs/random_numbers.md shows: equal children would need an even difference of the two purposes.
    assert ((0xC2B2AE35 - 0x9E3779B9) % 2**32 // 4) % 2 == 1 and (split ^ fold) % 2 == 1


@pytest.mark.slow(but_first=2)
@pytest.mark.light
@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (64,), (1000,), (3, 5), (2, 2, 4)])
def test_shuffled_rows_are_permutations(shape):
    order = shuffled(jax.random.key(0), shape)
    assert order.shape == shape and order.dtype == jnp.int32
    np.testing.assert_array_equal(np.sort(order, -1), np.broadcast_to(np.arange(shape[-1]), shape))


@pytest.mark.slow
@pytest.mark.light
def test_shuffled_beyond_the_words_with_room_for_the_index():
    order = shuffled(jax.random.key(0), (1, 2**20 + 1))
    np.testing.assert_array_equal(np.sort(order[0]), np.arange(2**20 + 1))
    assert abs(np.corrcoef(order[0], np.arange(2**20 + 1))[0, 1]) < 0.01


@pytest.mark.slow
@pytest.mark.light
def test_all_permutations_are_equally_likely():
    rows = np.asarray(jax.jit(shuffled, static_argnums=1)(jax.random.key(1), (24_000, 4)))
    counts = np.unique(rows @ np.array([64, 16, 4, 1]), return_counts=True)[1]
    assert len(counts) == 24 and stats.chisquare(counts).pvalue > 1e-3
    # Who shares the first half with whom, for longer rows.
    rows = np.asarray(shuffled(jax.random.key(2), (4_000, 10)))
    together = np.zeros((10, 10))
    for half in (rows[:, :5], rows[:, 5:]):
        member = np.zeros((4_000, 10))
        np.put_along_axis(member, half, 1, 1)
        together += member.T @ member
    pairs = together[np.triu_indices(10, 1)]
    assert np.all(np.abs(pairs / 4_000 - 4 / 9) < 5 * np.sqrt(4 / 9 * 5 / 9 / 4_000))


@pytest.fixture(params=["cpu", "elsewhere"])
def platform(request, monkeypatch):
    """What programs for other platforms compute, computed here."""
    if request.param == "elsewhere":
        monkeypatch.setattr(sys.modules["jaxrl.math"], "on_cpu", lambda cpu, elsewhere, *args: elsewhere(*args))


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize("n", [1, 2, 7, 64, 361, 2000])
def test_nth_and_choose_count_the_allowed(n):
    rng = np.random.default_rng(n)

    @jax.jit
    def all_three(allowed, ranks, bits):
        return nth(allowed, ranks), count(allowed), jax.vmap(choose, (0, None))(bits, allowed)

    for share in (0.0, 0.1, 0.6, 1.0):
        allowed = rng.random(n) < share
        where = np.append(np.nonzero(allowed)[0], n)  # n where there are not so many
        ranks, bits = np.arange(n + 2, dtype=np.int32), rng.integers(0, 2**32, 200, dtype=np.uint32)
        found, number, chosen = all_three(allowed, ranks, bits)
        np.testing.assert_array_equal(found, where[np.minimum(ranks, len(where) - 1)])
        assert int(number) == allowed.sum()
        rank = np.asarray(below(jnp.asarray(bits), int(allowed.sum())))
        np.testing.assert_array_equal(chosen, where[np.minimum(rank, len(where) - 1)])
        if share == 1 and n <= 7:
            assert set(np.asarray(chosen)) == set(range(n))


def test_a_packed_mask_is_chosen_from_and_changed_as_the_mask_is():
    rng = np.random.default_rng(0)
    masks, places = rng.random((40, 61)) < 0.4, rng.integers(0, 61, 40, dtype=np.int32)
    bits = rng.integers(0, 2**32, 40, dtype=np.uint32)

    @jax.jit
    @jax.vmap
    def both(mask, place, bits):
        flipped = mask ^ (jnp.arange(61) == place)
        return choose_bit(bits, flip_bit(as_words(mask), place)), choose(bits, flipped)

    np.testing.assert_array_equal(*both(masks, places, bits))


def test_counts_and_places_are_int32_in_every_precision():
    """As what they stand for in states; float64 must not widen them."""
    with jax.enable_x64(True):
        allowed, word = jnp.ones(5, bool), jnp.ones(2, jnp.uint32)
        for rank in (jnp.int32(1), jnp.int64(1)):
            places = nth(allowed, rank[None]), count(allowed), choose(word[0], allowed), nth_bit(word, 24, rank)
            assert all(x.dtype == jnp.int32 for x in places)


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.parametrize("width", [13, 32, 1, 5, 31])
def test_nth_bit_is_the_place_of_a_set_bit(width):
    rng = np.random.default_rng(width)
    for number in (1, 13, 70):
        bits = rng.random((number, width)) < 0.3
        words = np.sum(bits.astype(np.uint64) << np.arange(width, dtype=np.uint64), 1).astype(np.uint32)
        ranks = np.arange(bits.sum() + 2, dtype=np.int32)
        found = jax.jit(jax.vmap(lambda words, rank: nth_bit(words, width, rank), (None, 0)))(words, ranks)
        where = np.append(np.nonzero(bits.reshape(-1))[0], bits.size)
        np.testing.assert_array_equal(found, where[np.minimum(ranks, len(where) - 1)])


def test_random_words_are_those_of_jax():
    key = jax.random.key(3)
    np.testing.assert_array_equal(jax.jit(lambda key: random_words(key, (4, 2)))(key), jax.random.bits(key, (4, 2)))


def test_below_is_uniform():
    bits = jax.random.bits(jax.random.key(3), (60_000,), jnp.uint32)
    drawn = np.asarray(below(bits, 6))
    assert drawn.min() == 0 and drawn.max() == 5
    np.testing.assert_allclose(np.bincount(drawn) / 60_000, 1 / 6, atol=0.006)
    assert int(below(jnp.uint32(2**32 - 1), 2**20)) == 2**20 - 1 and int(below(jnp.uint32(0), 5)) == 0
