"""Replay memories against models made of python lists."""

import functools
import time
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl import replay

KEY = jax.random.key(0)
ITEM = {"obs": jnp.zeros(2), "action": jnp.int32(0), "done": jnp.zeros((), bool)}


def items(numbers):
    """A batch whose every leaf tells which item it is of."""
    n = jnp.asarray(numbers)
    return {"obs": jnp.stack([n, -n], -1).astype(jnp.float32), "action": n.astype(jnp.int32), "done": n % 2 == 0}


@functools.cache
def jitted(memory):
    return memory._replace(
        add=jax.jit(memory.add),
        sample=jax.jit(memory.sample, static_argnums=2),
        update=memory.update and jax.jit(memory.update),
    )


@pytest.mark.slow
@pytest.mark.light
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([1, 3, 5, 7]), min_size=1, max_size=10), st.booleans())
def test_the_ring_is_a_deque(sizes, with_priorities):
    """Batches that wrap, that do not divide the capacity, and that fill it at once."""
    memory = jitted((replay.prioritised if with_priorities else replay.uniform)(7))
    state, model, count = memory.init(ITEM), deque(maxlen=7), 0
    for size in sizes:
        state = memory.add(state, items(np.arange(count, count + size)))
        model.extend(range(count, count + size))
        count += size
    ring = state.ring if with_priorities else state
    assert ring.size == len(model) and ring.position == count % 7
    rows = (np.arange(len(model)) - len(model) + int(ring.position)) % 7
    held = jax.tree.map(lambda x: x[rows], ring.items)
    jax.tree.map(np.testing.assert_array_equal, held, items(np.array(model)))

    sample = memory.sample(KEY, state, 64, 0.5)[0] if with_priorities else memory.sample(KEY, state, 64)
    assert set(np.asarray(sample["action"])) <= set(model)
    jax.tree.map(np.testing.assert_array_equal, sample, items(sample["action"]))


@pytest.mark.parametrize("held", [3, 8])
def test_uniform_samples_uniformly(held):
    memory = jitted(replay.uniform(8))
    state = memory.add(memory.init(ITEM), items(np.arange(held)))
    counts = np.bincount(memory.sample(KEY, state, 8000)["action"], minlength=8)
    assert (counts[held:] == 0).all() and scipy.stats.chisquare(counts[:held]).pvalue > 1e-4


def test_bad_input():
    with pytest.raises(ValueError, match="capacity=0"):
        replay.uniform(0).init(ITEM)
    memory = replay.uniform(4)
    state = memory.init(ITEM)
    with pytest.raises(ValueError, match="a batch of 5 items does not fit a capacity of 4"):
        jax.eval_shape(memory.add, state, items(np.arange(5)))
    with pytest.raises(ValueError, match=r"float32\(2, 3\); it must be float32\(2, 2\)"):
        memory.add(state, items(np.arange(2)) | {"obs": jnp.zeros((2, 3))})
    with pytest.raises(ValueError, match=r"float32\(2,\); it must be int32\(2,\)"):
        memory.add(state, items(np.arange(2)) | {"action": jnp.zeros(2)})
    with pytest.raises(ValueError, match="capacity=7 is no multiple of num_envs=2"):
        replay.sequence(7, 2, 1)
    with pytest.raises(ValueError, match="length=5; with 4 steps"):
        replay.sequence(8, 2, 5)
    with pytest.raises(ValueError, match=r"must be \(T, 2, ...\)"):
        memory = replay.sequence(8, 2, 2)
        memory.add(memory.init(ITEM), items(np.zeros((4, 3))))


def test_equal_arguments_give_the_same_functions():
    assert replay.uniform(8).add is replay.uniform(8).add
    assert replay.sequence(8, 2, 2).sample is not replay.sequence(8, 2, 3).sample


# ---- priorities


@pytest.mark.slow
@pytest.mark.light
def test_priorities_set_probabilities_and_weights():
    memory, alpha, beta = jitted(replay.prioritised(100)), 0.7, 0.4
    state = memory.add(memory.init(ITEM), items(np.arange(90)))
    priorities = np.random.default_rng(0).uniform(0.1, 3, 90)
    state = memory.update(state, jnp.arange(90), jnp.asarray(priorities, jnp.float32), alpha)
    p = priorities**alpha / (priorities**alpha).sum()
    batch, indices, weights = memory.sample(KEY, state, 32, beta)
    np.testing.assert_array_equal(batch["action"], indices)
    expected = (90 * p[indices]) ** -beta
    np.testing.assert_allclose(weights, expected / expected.max(), rtol=1e-4)
    counts = np.zeros(90)
    for key in jax.random.split(KEY, 20):
        counts += np.bincount(memory.sample(key, state, 2000, beta)[1], minlength=90)
    # Strata make the fit better than chance, never worse.
    assert scipy.stats.chisquare(counts, p * counts.sum()).pvalue > 1e-3


def test_the_descent_is_compiled_once_whatever_an_item_has():
    def comparisons(leaves):
        memory = replay.prioritised(600)
        state = jax.eval_shape(memory.init, {str(i): jnp.zeros(3) for i in range(leaves)})
        sample = jax.jit(jax.vmap(lambda key, state: memory.sample(key, state, 32, 0.4), (0, None)))
        text = sample.lower(jax.random.split(KEY, 5), state).compile().as_text() or ""
        return text.count("direction=LE")

    assert comparisons(1) == comparisons(6) > 0


@pytest.mark.slow
@pytest.mark.light
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_the_sum_tree_holds_sums(seed):
    rng = np.random.default_rng(seed)
    memory = jitted(replay.prioritised(70))
    state = memory.init(ITEM)
    model = np.zeros(70)
    largest, position = 1.0, 0
    for _ in range(6):
        state = memory.add(state, items(np.zeros(20)))
        model[(position + np.arange(20)) % 70] = largest
        position = (position + 20) % 70
        indices = rng.integers(0, position or 70, 5)  # duplicates too, with equal priorities
        priorities = (indices + 1) ** 0.5 * rng.choice([1e-6, 1.0, 1e3])
        state = memory.update(state, jnp.asarray(indices), jnp.asarray(priorities, jnp.float32), 1.0)
        model[indices] = priorities
        largest = max(largest, priorities.max())
    np.testing.assert_allclose(state.tree[0][:70], model, rtol=1e-6)
    assert [len(level) for level in state.tree] == [72, 16, 8]
    for below, above in zip(state.tree, state.tree[1:], strict=False):
        sums = np.asarray(below).reshape(-1, 8).sum(-1)
        np.testing.assert_allclose(above[: len(sums)], sums, rtol=1e-6)
    _, indices, weights = memory.sample(KEY, state, 64, 1.0)
    assert (model[indices] > 0).all() and abs(weights.max() - 1) < 1e-6 and weights.min() >= 0


def test_an_item_without_priority_is_not_drawn():
    memory = jitted(replay.prioritised(64))
    state = memory.add(memory.init(ITEM), items(np.arange(20)))
    state = memory.update(state, jnp.arange(20), jnp.zeros(20).at[13].set(1e-3), 1.0)
    assert (memory.sample(KEY, state, 256, 0.4)[1] == 13).all()


@pytest.mark.slow
@pytest.mark.light
def test_every_item_of_a_large_memory_can_be_drawn_alike():
    """Quantiles have too few bits to address 2**20 leaves at once: neighbours must still be equally likely."""
    memory = replay.prioritised(2**20)
    state = memory.init(jnp.zeros((), jnp.bool_))
    state = jax.jit(memory.add)(state, jnp.zeros(2**20, bool))
    draw = jax.jit(lambda key: memory.sample(key, state, 2**16, 1.0)[1])
    indices = np.concatenate([draw(key) for key in jax.random.split(KEY, 8)])
    assert scipy.stats.chisquare(np.bincount(indices % 64)).pvalue > 1e-4
    assert scipy.stats.chisquare(np.bincount(indices >> 14)).pvalue > 1e-4


# ---- sequences


@pytest.mark.slow
@pytest.mark.light
@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3]), min_size=2, max_size=8), st.integers(0, 1000))
def test_sequences_are_consecutive_and_never_cross_the_write_head(chunks, seed):
    envs, steps, length = 2, 5, 2
    memory = jitted(replay.sequence(envs * steps, envs, length))
    state, count = memory.init(ITEM), 0
    for chunk in chunks:
        time_, env = np.meshgrid(np.arange(count, count + chunk), np.arange(envs), indexing="ij")
        state = memory.add(state, items(time_ * 10 + env))
        count += chunk
    batch = memory.sample(jax.random.key(seed), state, 64)
    number = np.asarray(batch["action"])
    assert number.shape == (length, 64) and batch["obs"].shape == (length, 64, 2)
    jax.tree.map(np.testing.assert_array_equal, batch, items(number))
    times, env = number // 10, number % 10
    assert (np.diff(times, axis=0) == 1).all() and (env == env[0]).all()
    starts = range(max(0, count - steps), count - length + 1)
    assert set(times[0]) == set(starts) and set(env[0]) == set(range(envs))


@pytest.mark.slow
@pytest.mark.light
@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3]), min_size=2, max_size=8), st.integers(0, 1000))
def test_prioritised_sequences_are_those_of_sequence(chunks, seed):
    """At any time the same sequences can be drawn, with equal priorities at first."""
    envs, steps, length = 2, 5, 3
    memory = jitted(replay.prioritised_sequence(envs * steps, envs, length))
    state, count = memory.init(ITEM), 0
    for chunk in chunks:
        time_, env = np.meshgrid(np.arange(count, count + chunk), np.arange(envs), indexing="ij")
        state = memory.add(state, items(time_ * 10 + env))
        count += chunk
    if count < length:
        assert not any(level.any() for level in state.tree)
        return
    batch, indices, weights = memory.sample(jax.random.key(seed), state, 64, 0.5)
    number = np.asarray(batch["action"])
    jax.tree.map(np.testing.assert_array_equal, batch, items(number))
    times, env = number // 10, number % 10
    assert (np.diff(times, axis=0) == 1).all() and (env == env[0]).all()
    starts = range(max(0, count - steps), count - length + 1)
    assert set(times[0]) == set(starts) and set(env[0]) == set(range(envs))
    np.testing.assert_array_equal(state.ring.items["action"][indices], number[0])
    np.testing.assert_allclose(weights, 1)
    assert (np.asarray(state.tree[0]) > 0).sum() == len(starts) * envs
    np.testing.assert_allclose(state.tree[-1].sum(), len(starts) * envs)


@pytest.mark.slow
@pytest.mark.light
def test_prioritised_sequences_follow_their_priorities():
    memory = jitted(replay.prioritised_sequence(16, 2, 2))
    state = memory.init(ITEM)
    for start in (0, 8):
        state = memory.add(state, items(np.arange(start, start + 8).reshape(4, 2)))
    rows = jnp.arange(14)
    state = memory.update(state, rows, jnp.where(rows == 5, 16.0, 1.0), 0.5)
    batch, indices, weights = memory.sample(KEY, state, 1700, 1.0)
    share = np.bincount(indices, minlength=16) / 1700
    np.testing.assert_allclose(share[:14], np.where(rows == 5, 4 / 17, 1 / 17), atol=0.02)
    np.testing.assert_array_equal(share[14:], 0)
    np.testing.assert_allclose(weights, np.where(indices == 5, 0.25, 1))
    np.testing.assert_array_equal(batch["action"], np.stack([indices, indices + 2]))
    # Where nothing is given nothing changes; new sequences get the largest priority, and the old newest become whole.
    same = memory.update(state, rows, jnp.full(14, 9.0), 0.5, jnp.zeros(14, bool))
    jax.tree.map(np.testing.assert_array_equal, same, state)
    state = memory.add(state, items(np.arange(16, 18).reshape(1, 2)))
    np.testing.assert_array_equal(state.tree[0], [0, 0, *np.where(rows[2:] == 5, 4, 1), 4, 4])


def test_a_priority_that_is_not_given_does_not_undo_one_that_is():
    memory = jitted(replay.prioritised_sequence(100, 2, 2))
    state = memory.add(memory.init(jnp.float32(0)), jnp.zeros((49, 2)))
    given = jnp.array([True, False, False])
    after = memory.update(state, jnp.array([3, 3, 90]), jnp.array([5.0, 9.0, 7.0]), 1.0, given)
    assert after.tree[0][3] == 5 and after.tree[0][90] == state.tree[0][90] and after.max_priority == 5
    np.testing.assert_allclose(after.tree[-1].sum(), state.tree[-1].sum() + 4)


def test_a_memory_without_items_weighs_nothing():
    memory = jitted(replay.prioritised(8))
    _, _, weights = memory.sample(jax.random.key(0), memory.init(jnp.float32(0)), 2, 0.5)
    np.testing.assert_array_equal(weights, 0)


def test_prioritised_sequences_refuse_what_does_not_fit():
    memory = replay.prioritised_sequence(10, 2, 3)
    with pytest.raises(ValueError, match="rollout of 8 items and the 4 before it"):
        memory.add(memory.init(ITEM), items(np.arange(8).reshape(4, 2)))
    with pytest.raises(ValueError, match="no multiple"):
        replay.prioritised_sequence(9, 2, 3)


# ---- speed


@pytest.mark.slow
@pytest.mark.light
def test_adding_does_not_copy_the_memory():
    """In a scan, one add costs the same at 2,000 and at 200,000 items of 1 kB: a copy would be 200 MB a step."""

    def seconds(capacity):
        memory = replay.uniform(capacity)

        @jax.jit
        def run(key):
            def body(state, key):
                state = memory.add(state, jax.random.normal(key, (8, 256)))
                return state, memory.sample(key, state, 4).sum()

            return jax.lax.scan(body, memory.init(jnp.zeros(256)), jax.random.split(key, 200))[1]

        run(KEY).block_until_ready()
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            run(KEY).block_until_ready()
            times.append(time.perf_counter() - begin)
        return min(times)

    # The large one is zeroed once in each run, which costs about two copies; 200 adds that copied would cost 200.
    assert seconds(200_000) < seconds(2_000) + 2.0


def test_vmapped_memories_are_apart():
    memory = replay.prioritised(4)

    def run(key, offset):
        state = memory.add(memory.init(ITEM), items(jnp.arange(3) + offset))
        state = memory.add(state, items(jnp.arange(3) + offset + 3))
        return memory.sample(key, state, 16, 0.5)[0]["action"]

    both = jax.jit(jax.vmap(run))(jax.random.split(KEY), jnp.array([0, 100]))
    assert set(np.asarray(both[0])) == {2, 3, 4, 5} and set(np.asarray(both[1])) == {102, 103, 104, 105}
