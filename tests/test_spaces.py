"""Spaces: what is sampled is a member, what is not one is refused, and Gymnasium agrees."""

from functools import partial

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limit

from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple, flat_size

SHAPES = st.sampled_from([(), (3,), (2, 2)])
FLOATS = st.floats(-(2.0**127), 2.0**127, width=32, allow_subnormal=False)


@st.composite
def boxes(draw):
    shape = draw(SHAPES)
    if draw(st.booleans()):
        dtype = draw(st.sampled_from([jnp.uint8, jnp.int8, jnp.int32]))
        info = np.iinfo(dtype)
        bounds = st.integers(max(info.min, -1000), min(info.max, 1000))
    else:
        dtype, bounds = jnp.float32, FLOATS
    ends = np.asarray(draw(hnp.arrays(np.float32, (2, *shape), elements=bounds.map(np.float32))))
    low, high = np.sort(ends, axis=0)
    if dtype == jnp.float32 and draw(st.booleans()):
        low = np.where(draw(hnp.arrays(bool, shape)), -np.inf, low)
        high = np.where(draw(hnp.arrays(bool, shape)), np.inf, high)
    return partial(Box, low.astype(dtype), high.astype(dtype), shape, dtype)


# What is drawn builds a space when called: run-time type checks use `random`, which strategies must not.
leaves = st.one_of(
    boxes(),
    st.integers(1, 9).map(lambda n: partial(Discrete, n)),
    st.lists(st.integers(1, 5), min_size=1, max_size=3).map(lambda n: partial(MultiDiscrete, tuple(n))),
)
spaces = st.one_of(
    leaves,
    st.lists(leaves, min_size=1, max_size=2).map(lambda parts: lambda: Tuple(tuple(p() for p in parts))),
    st.dictionaries(st.sampled_from("abc"), leaves, min_size=1, max_size=2).map(
        lambda parts: lambda: Dict({name: p() for name, p in parts.items()})
    ),
)


@pytest.mark.slow
@pytest.mark.light
@limit(max_examples=60)
@given(spaces, st.integers(0, 2**31 - 1))
def test_samples_are_members_here_and_in_gymnasium(build, seed):
    space = build()
    x = space.sample(jax.random.key(seed))
    assert space.contains(x)
    theirs = space.to_gymnasium()
    assert theirs.contains(jax.tree.map(np.asarray, x))
    assert space.contains(theirs.sample())
    assert flat_size(space) == sum(np.size(leaf) for leaf in jax.tree.leaves(x))


@pytest.mark.slow
@pytest.mark.light
@limit(max_examples=30)
@given(leaves, st.integers(0, 2**31 - 1))
def test_shape_dtype_and_values_decide(build, seed):
    space = build()
    x = space.sample(jax.random.key(seed))
    assert x.shape == space.shape and x.dtype == space.dtype
    assert not space.contains(jnp.zeros((*space.shape, 1), space.dtype))
    assert not space.contains(x[None])
    for other in (None, "a", {"x": 1}, (), [0.5], object()):
        assert not space.contains(other)
    if jnp.issubdtype(space.dtype, jnp.integer):
        assert not space.contains(x.astype(jnp.float32))
        top = space.high if isinstance(space, Box) else np.asarray(getattr(space, "nvec", getattr(space, "n", 0))) - 1
        assert not space.contains(jnp.asarray(top, jnp.int32) + 1 + jnp.zeros(space.shape, jnp.int32))
        assert not space.contains(jnp.full(space.shape, -1001, jnp.int32))
    else:
        assert not space.contains(jnp.full(space.shape, jnp.nan))
        if np.isfinite(space.high).any():
            assert not space.contains(jnp.full(space.shape, jnp.inf))


def test_any_integer_dtype_is_an_integer():
    for dtype in (jnp.int8, jnp.uint16, jnp.int32):
        assert Discrete(3).contains(jnp.asarray(2, dtype)) and MultiDiscrete((2, 3)).contains(jnp.ones(2, dtype))
    assert Discrete(3).contains(2) and not Discrete(3).contains(3) and not Discrete(3).contains(-1)
    assert not Discrete(3).contains(1.0) and Box(0.0, 1.0).contains(1) and not Box(0.0, 1.0).contains(2)
    assert not MultiDiscrete((2, 3)).contains(jnp.array([2, 0])) and MultiDiscrete((2, 3)).contains(jnp.array([1, 2]))


def test_bounds_are_inclusive_and_may_be_one_sided_or_wide():
    largest = float(np.finfo(np.float32).max)
    cases = [(0.0, 1.0), (-np.inf, np.inf), (-np.inf, 5.0), (5.0, np.inf), (-largest, largest), (2.0, 2.0), (-0.1, 0.3)]
    for low, high in cases:
        space = Box(low, high, (1000,))
        x = space.sample(jax.random.key(0))
        assert space.contains(x) and np.all(np.isfinite(x))
        assert low == high or len(np.unique(x)) > 900
        for end in (low, high):
            if np.isfinite(end):
                assert space.contains(jnp.full(1000, end))
    wide = np.asarray(Box(-largest, largest, (1000,)).sample(jax.random.key(1)), np.float64)
    assert np.std(wide / largest) > 0.5


def test_integer_boxes_reach_both_ends():
    for dtype, low, high in ((jnp.uint8, 0, 255), (jnp.int8, -128, 127), (jnp.int32, -2, 2)):
        x = Box(low, high, (5000,), dtype).sample(jax.random.key(0))
        assert x.dtype == dtype and x.min() == low and x.max() == high


def test_boolean_masks():
    space = Box(0, 1, (64,), jnp.bool_)
    x = space.sample(jax.random.key(0))
    assert x.dtype == jnp.bool_ and space.contains(x) and 0 < x.sum() < 64


@pytest.mark.slow
@pytest.mark.light
def test_samples_are_uniform():
    keys = jax.random.split(jax.random.key(0), 6000)
    counts = np.bincount(jax.jit(jax.vmap(Discrete(6).sample))(keys), minlength=6)
    assert np.all(np.abs(counts - 1000) < 5 * np.sqrt(1000))
    x = jax.jit(jax.vmap(MultiDiscrete((2, 3)).sample))(keys)
    assert np.all(np.abs(np.bincount(x[:, 0] * 3 + x[:, 1]) - 1000) < 5 * np.sqrt(1000))
    u = np.asarray(Box(-2.0, 6.0, (6000,)).sample(jax.random.key(1)))
    assert abs(u.mean() - 2) < 0.15 and abs(u.std() - 8 / np.sqrt(12)) < 0.1


def test_bounds_may_be_traced():
    @jax.jit
    def sample(key, high):
        space = Box(-high, high, (2,))
        x = space.sample(key)
        repr(space)
        return x, space.contains(x), space.contains(jnp.stack([high, 2 * high]))

    x, inside, outside = jax.vmap(sample)(jax.random.split(jax.random.key(0), 3), jnp.array([1.0, 10.0, 100.0]))
    assert np.all(inside) and not np.any(outside) and np.all(np.abs(x) <= np.array([[1.0], [10.0], [100.0]]))


def test_structures_must_match():
    pair = Tuple((Discrete(2), Box(0.0, 1.0, (2,))))
    assert pair.contains((1, jnp.zeros(2)))
    assert not pair.contains((1,)) and not pair.contains((jnp.zeros(2), 1)) and not pair.contains([1, jnp.zeros(2)])
    named = Dict({"a": Discrete(2), "b": pair})
    assert named.contains({"b": (0, jnp.ones(2)), "a": 1})
    assert not named.contains({"a": 1}) and not named.contains({"a": 1, "b": (0, jnp.ones(2)), "c": 0})
    assert flat_size(named) == 4
    assert jax.jit(named.contains)({"a": jnp.int32(1), "b": (jnp.int32(0), jnp.ones(2))})


def test_discrete_spaces_are_hashable_and_say_what_they_are():
    assert Discrete(3) == Discrete(3) and hash(MultiDiscrete((2, 3))) == hash(MultiDiscrete((2, 3)))
    assert MultiDiscrete((2, 3)).shape == (2,)
    assert repr(Discrete(3)) == "Discrete(3)" and repr(Box(0.0, 1.0, (2,))) == "Box(0.0, 1.0, (2,), float32)"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Discrete(0), r"n=0.*at least 1"),
        (lambda: MultiDiscrete(()), r"nvec=\(\)"),
        (lambda: MultiDiscrete((2, 0)), r"nvec=\(2, 0\).*at least 1"),
    ],
)
def test_empty_spaces_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_from_unit_is_the_box_clipped_and_an_open_side_as_it_is():
    box = Box(np.array([-2.0, 0.0, -np.inf]), np.array([2.0, 10.0, np.inf]), (3,))
    np.testing.assert_allclose(box.from_unit(jnp.array([[-1.0, -1, -1], [0.5, 0, 7], [3, 3, 3]])),
                               [[-2, 0, -1], [1, 5, 7], [2, 10, 3]])  # fmt: skip
