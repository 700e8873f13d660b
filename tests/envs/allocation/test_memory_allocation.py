"""Memory allocation: against a loop in NumPy and brute force, MiniMalloc's problems, and what is refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make
from jaxrl.envs.allocation import memory_allocation as allocation
from jaxrl.evaluation import episodes

KEY = jax.random.key(0)
EXAMPLE = np.array([[0, 3, 4], [3, 9, 4], [0, 9, 4], [9, 21, 4], [0, 21, 4]])
"""The example of MiniMalloc's README, and its solution in a memory of 12."""
SOLUTION = np.array([8, 8, 4, 4, 0])


def meet(a, b):
    return a[0] < b[1] and b[0] < a[1]


def stacked(problem, order):
    """Offsets of buffers that are put on top of each other in an order."""
    offsets = {}
    for i in order:
        offsets[i] = max([offsets[j] + problem[j][2] for j in offsets if meet(problem[i], problem[j])], default=0)
    return np.array([offsets[i] for i in range(len(problem))])


def height(problem, offsets):
    return max(offset + size for offset, (_, _, size) in zip(offsets, problem, strict=True))


def checked(problem, offsets, capacity):
    """The checker by hand, over all units of time and memory."""
    held = set()
    for (lower, upper, size), offset in zip(problem, offsets, strict=True):
        if offset < 0 or offset + size > capacity:
            return False
        units = set(itertools.product(range(lower, upper), range(offset, offset + size)))
        if held & units:
            return False
        held |= units
    return True


def tiny(rng, n):
    lower = rng.integers(0, 4, n)
    return np.stack([lower, lower + rng.integers(1, 4, n), rng.integers(1, 4, n)], 1)


def rows_of(tree):
    """One tree for each row of the leaves."""
    leaves, structure = jax.tree.flatten(jax.device_get(tree))
    return [jax.tree.unflatten(structure, row) for row in zip(*leaves, strict=True)]


def test_the_checker_is_that_of_a_loop_over_units():
    rng, found = np.random.default_rng(0), []
    check = jax.jit(lambda problem, offset, capacity: allocation.solves(*problem.T, offset, capacity))
    for _ in range(300):
        problem, offsets = tiny(rng, 4), rng.integers(-1, 8, 4)
        found.append(checked(problem, offsets, 9))
        assert bool(check(problem, offsets, 9)) == found[-1]
    assert 20 < sum(found) < 280
    assert bool(check(EXAMPLE, SOLUTION, 12)) and not bool(check(EXAMPLE, SOLUTION, 11))


def test_putting_buffers_on_top_of_each_other_loses_nothing():
    """The lowest memory of all offsets is that of the best order."""
    rng = np.random.default_rng(1)
    for _ in range(25):
        problem = tiny(rng, 4)
        best = min(height(problem, stacked(problem, order)) for order in itertools.permutations(range(4)))
        capacity = max(problem[:, 2])
        while not any(checked(problem, x, capacity) for x in itertools.product(range(capacity), repeat=4)):
            capacity += 1
        assert best == capacity
    np.testing.assert_array_equal(stacked(EXAMPLE, np.argsort(SOLUTION, kind="stable")), SOLUTION)


def test_episodes_are_those_of_the_loop():
    """Offsets, rewards and the end, for random orders of problems that are drawn."""
    env, params = make("MemoryAllocation-v0", num_buffers=8)

    @jax.jit
    @jax.vmap
    def play(key):
        order_key, key = jax.random.split(key)
        order = jax.random.permutation(order_key, 8)
        state = env.reset(key, params)[1]

        def step(state, action):
            ts = env.step(KEY, state, action, params)
            return ts.state, (ts.reward, ts.terminated)

        last, (reward, terminated) = jax.lax.scan(step, state, order)
        return order, state, last, reward, terminated

    whole = 0
    for order, first, last, reward, terminated in rows_of(play(jax.random.split(KEY, 200))):
        problem = np.stack([first.lower, first.upper, first.size], 1)
        area = problem[:, 2].astype(float) * (problem[:, 1] - problem[:, 0])
        np.testing.assert_allclose(reward, area[order] / area.sum(), rtol=1e-5)
        offsets = stacked(problem, order)
        np.testing.assert_array_equal(last.offset, offsets)
        capacity, over = int(first.capacity), []
        for k in range(1, 9):
            # A buffer that is left, put on top of those that are there.
            tops = [
                stacked(np.concatenate([problem[order[:k]], problem[i : i + 1]]), range(k + 1))[-1] for i in order[k:]
            ]
            over.append(k == 8 or any(top + problem[i][2] > capacity for top, i in zip(tops, order[k:], strict=True)))
        np.testing.assert_array_equal(terminated, over)
        whole += not any(over[:-1])
        assert bool(allocation.solves(*jnp.asarray(problem).T, jnp.asarray(offsets), capacity)) == (not any(over[:-1]))
    assert 2 < whole < 198


def test_what_is_drawn_has_a_solution():
    """The pieces tile time and memory, so their own places are one; the level's memory is larger by the slack."""
    rows = np.asarray(jax.jit(jax.vmap(lambda key: allocation.pieces(key, 40)))(jax.random.split(KEY, 50)))
    lower, offset, duration, size = np.moveaxis(rows, -1, 0)
    assert rows.min() >= 0 and duration.min() >= 1 and size.min() >= 1
    np.testing.assert_array_equal((duration.astype(int) * size).sum(1), allocation.LENGTH**2)
    solves = jax.jit(jax.vmap(lambda *x: allocation.solves(*x, allocation.LENGTH)))
    assert solves(lower, lower + duration, size, offset).all()
    env, params = make("MemoryAllocation-v0")
    levels = jax.vmap(env.generate, (0, None))(jax.random.split(KEY, 20), params.replace(slack=jnp.float32(0.1)))
    assert (levels.capacity == 1127).all() and not levels.fresh.any() and len(np.unique(levels.size[:, 0])) > 10
    changed = jax.vmap(env.mutate)(jax.random.split(KEY, 20), levels)
    less = np.asarray(levels.size - changed.size)
    assert (less >= 0).all() and ((less > 0).sum(1) <= 1).all() and (less > 0).any() and (changed.size >= 1).all()


def test_pieces_are_cut_until_none_can_be(monkeypatch):
    """More pieces than halves that could be cut: sides of one are left whole, and nothing is empty."""
    monkeypatch.setattr(allocation, "LENGTH", 4)
    rows = np.asarray(allocation.pieces(KEY, 16))
    np.testing.assert_array_equal(rows[:, 2:], 1)
    assert len({tuple(row[:2]) for row in rows}) == 16


def test_minimallocs_problems():
    """Their sizes, and that eight of eleven fill the memory at some time, which leaves no slack."""
    found = allocation.problems()
    assert {name: len(rows) for name, rows in found.items()} == dict(
        A=154, B=170, C=203, D=213, E=215, F=296, G=308, H=316, I=374, J=409, K=454
    )
    full = []
    for name, rows in found.items():
        load = max(rows[(rows[:, 0] <= t) & (t < rows[:, 1]), 2].sum() for t in rows[:, 0])
        assert load <= allocation.CAPACITY
        full += [name] if load == allocation.CAPACITY else []
    assert "".join(full) == "ABEFGHIK"
    env, params = make("MemoryAllocation-A-v0")
    assert env.num_buffers == 154 and not params.fresh and params.capacity == 2**20


def test_which_rule_places_more():
    env, params = make("MemoryAllocation-v0")

    def returns(rule):
        def act(key, state, obs, params, carry):
            return jax.vmap(rule)(obs), carry

        return np.asarray(episodes(act, (), KEY, env, params, num_episodes=64, max_steps=24).returns)

    largest, lowest = returns(allocation.largest_first), returns(allocation.lowest_first)
    assert lowest.mean() > largest.mean() + 0.1 and 0 < (lowest > 1 - 1e-4).mean() < 1


def test_a_buffer_that_is_placed_ends_the_episode():
    env, params = make("MemoryAllocation-v0")
    obs, state = env.reset(KEY, params)
    assert obs["action_mask"].all()
    first = env.step(KEY, state, jnp.int32(3), params)
    assert first.reward > 0 and not first.obs["action_mask"][3] and first.obs["buffers"][3, 4] == 1
    again = env.step(KEY, first.state, jnp.int32(3), params)
    assert again.terminated and again.reward == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": jnp.full(24, 2000)}, "size must be from 1 to capacity=1024"),
        ({"upper": jnp.zeros(24, int)}, "lower must be from 0 to below upper"),
        ({"lower": jnp.zeros(23, int)}, r"lower has shape \(23,\); it must be \(24,\)"),
        ({"capacity": jnp.int32(2**30 + 1)}, "capacity=1073741825 must be at most"),
        ({"slack": jnp.float32(-0.1)}, "slack=-0.1.* must be from 0 to 1"),
    ],
)
def test_problems_that_cannot_be(change, message):
    env, params = make("MemoryAllocation-v0")
    with pytest.raises(ValueError, match=message):
        env.reset(KEY, params.replace(**change))


def test_a_problem_that_there_is_not():
    with pytest.raises(ValueError, match="problem='L'; there are A, B"):
        make("MemoryAllocation-v0", problem="L")
