"""Values by recursion, the theorem on random trees, where it does not hold, and how many right leaves are found."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.exact import tree_values as trees


def by_recursion(leaves, actions, combine):
    """Action values of all nodes, depth by depth, of a nested list."""
    if len(leaves) == actions:
        return [[list(leaves)]]
    size = len(leaves) // actions
    below = [by_recursion(leaves[a * size : (a + 1) * size], actions, combine) for a in range(actions)]
    own = [combine(b[0][0]) for b in below]
    return [[own]] + [sum((b[d] for b in below), []) for d in range(len(below[0]))]


@pytest.mark.parametrize("actions, depth", [(2, 1), (2, 4), (3, 3)])
def test_values_by_recursion(actions, depth):
    leaves = np.random.default_rng(0).normal(size=actions**depth)
    for found, combine in ((trees.random_values, np.mean), (trees.optimal_values, np.max)):
        for q, want in zip(found(jnp.asarray(leaves), actions), by_recursion(leaves, actions, combine), strict=True):
            np.testing.assert_allclose(q, want, atol=1e-6)


def test_greedy_of_random_values_is_optimal_where_leaves_are_right_or_wrong():
    """A hundred trees of 81 leaves, some with one right leaf, one with none."""
    rng = np.random.default_rng(1)
    leaves = (rng.random((100, 81)) < rng.choice([0.01, 0.05, 0.5], (100, 1))).astype(np.float32)
    leaves[0] = 0
    leaves[1], leaves[1, 40] = 0, 1

    def both(leaves):
        by_random = trees.expected(trees.greedy(trees.random_values(leaves, 3)), leaves)
        return by_random, trees.expected(trees.greedy(trees.optimal_values(leaves, 3)), leaves)

    by_random, best = jax.jit(jax.vmap(both))(leaves)
    np.testing.assert_array_equal(by_random, best)
    np.testing.assert_array_equal(best, leaves.max(1))
    assert best.min() == 0 and best.max() == 1


def test_of_other_leaves_it_is_not():
    leaves = jnp.array([1.0, 0.0, 0.6, 0.6])
    values = trees.random_values(leaves, 2)
    np.testing.assert_allclose(values[0], [[0.5, 0.6]])
    np.testing.assert_allclose(trees.expected(trees.greedy(values), leaves), 0.6)
    np.testing.assert_allclose(trees.expected(trees.greedy(trees.optimal_values(leaves, 2)), leaves), 1.0)


def test_the_softmax_finds_many_right_leaves_and_a_greedy_policy_one():
    leaves = jnp.zeros(64).at[jnp.array([3, 17, 40, 41, 60])].set(1.0)
    values = trees.random_values(leaves, 2)
    success, found = jax.vmap(
        lambda t: (
            trees.expected(trees.softmax(values, t), leaves),
            trees.found_within(trees.softmax(values, t), leaves, 64),
        )
    )(jnp.array([1e-4, 0.05, 100.0]))
    np.testing.assert_allclose(success[0], 1.0, atol=1e-5)
    np.testing.assert_allclose(success[2], 5 / 64, rtol=0.01)  # hot: uniform
    assert success[0] > success[1] > success[2]
    one = trees.found_within(trees.greedy(values), leaves, 64)
    np.testing.assert_allclose(one, 1.0)
    assert found[1] > 3 * one
    # By hand: each of five leaves in 64 uniform tries.
    np.testing.assert_allclose(found[2], 5 * (1 - (63 / 64) ** 64), rtol=0.02)


def test_probabilities_of_leaves_by_hand():
    policy = [jnp.array([[0.25, 0.75]]), jnp.array([[0.5, 0.5], [0.2, 0.8]])]
    np.testing.assert_allclose(trees.reached(policy), [0.125, 0.125, 0.15, 0.6], rtol=1e-6)
    by_hand = np.array([[1, np.e**2]]) / (1 + np.e**2)
    np.testing.assert_allclose(trees.softmax([jnp.array([[0.0, 1.0]])], 0.5)[0], by_hand, rtol=1e-6)


@pytest.mark.parametrize("size, actions", [(6, 2), (1, 2), (4, 1), (0, 3)])
def test_what_is_no_complete_tree(size, actions):
    with pytest.raises(ValueError, match=f"{size} leaves with actions={actions}: a complete tree has"):
        trees.random_values(jnp.zeros(size), actions)
