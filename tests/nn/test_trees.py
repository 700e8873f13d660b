"""Oblivious trees: gbrl's splits, leaves and predictions, candidates and best splits by brute force, the budget."""

import itertools
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.nn import trees
from jaxrl.testing import golden

VALUES = 4
GROUPS = {  # numeric features, the rest is categorical; score, candidates, how many, depth
    "cosine_quantile": (4, "cosine", "quantile", 250, 4),
    "l2_quantile": (4, "l2", "quantile", 250, 4),
    "cosine_uniform": (4, "cosine", "uniform", 250, 4),
    "l2_uniform": (3, "l2", "uniform", 16, 4),
    "few_quantiles": (4, "cosine", "quantile", 12, 4),
    "cosine_categorical": (0, "cosine", "quantile", 250, 4),
    "l2_categorical": (0, "l2", "quantile", 250, 4),
    "mixed": (3, "cosine", "quantile", 20, 4),
    "stops_early": (2, "cosine", "quantile", 8, 6),
}


@cache
def stored():
    return golden("trees")


def one_hot_rows(x, numeric):
    """Rows with a column for each value of the categorical features, which come after the numeric ones."""
    columns = x[..., numeric:, None] == np.arange(VALUES)
    rows = np.concatenate([x[..., :numeric], columns.reshape(*x.shape[:-1], -1)], -1).astype(np.float32)
    return rows, np.arange(rows.shape[-1]) >= numeric


def test_a_hundred_batches():
    assert sum(len(stored()[f"{name}_depth"]) for name in GROUPS) == 100


@pytest.mark.parametrize("name", GROUPS)
def test_splits_and_leaves_are_those_of_gbrl(name):
    numeric, score, kind, num, depth = GROUPS[name]
    x, grads = stored()[f"{name}_x"], stored()[f"{name}_grads"]
    rows, binary = one_hot_rows(x, numeric)
    assert x.shape[-1] == numeric or kind == "quantile"

    def fitted(x, grads):
        return trees.fit(x, grads, trees.candidates(x, num, kind, binary), depth, score)

    found = jax.jit(jax.vmap(fitted))(rows, grads)
    # gbrl numbers numeric and categorical features apart, and names the value; here the column says both.
    feature, value = stored()[f"{name}_feature"], stored()[f"{name}_threshold"]
    is_numeric, stopped = stored()[f"{name}_is_numeric"], stored()[f"{name}_depth"]
    column = np.where(is_numeric, feature, numeric + VALUES * feature + np.nan_to_num(value, posinf=0).astype(int))
    asks = np.arange(depth) < stopped[:, None]
    np.testing.assert_array_equal(np.asarray(found.feature)[asks], column[asks])
    # Uniform thresholds are sums of numbers up to ten in float32.
    np.testing.assert_allclose(
        np.asarray(found.threshold)[asks], np.where(is_numeric, value, 0.5)[asks], rtol=1e-6, atol=4e-6
    )
    assert np.all(np.asarray(found.threshold)[~asks] == np.float32(trees.NEVER))
    for leaves, want, n in zip(np.asarray(found.leaves), stored()[f"{name}_leaves"], stopped, strict=True):
        # Where no question is asked all rows go left.
        np.testing.assert_allclose(leaves[:: 2 ** (depth - n)], want[: 2**n], rtol=2e-5, atol=2e-6)


def test_an_ensemble_with_two_learning_rates_predicts_as_gbrl():
    x, grads = stored()["sequence_x"], stored()["sequence_grads"]
    policy, value = stored()["learning_rates"]
    new = jax.jit(jax.vmap(lambda x, g: trees.fit(x, g, trees.candidates(x), 4)))(x, grads)
    ensemble = trees.add(trees.empty(32, 4, 3), new.scaled(-jnp.array([policy, policy, value])))
    assert ensemble.count == 20
    outputs = trees.predict(ensemble, jnp.asarray(stored()["sequence_rows"]))  # 200 rows: in parts, with a rest
    np.testing.assert_allclose(outputs, stored()["sequence_outputs"], rtol=1e-4, atol=1e-5)


def gain_of(score, grads, groups):
    """The score of a level by its definition: a cosine is a scalar product over a product of norms."""
    total = 0.0
    for node in groups:
        stand_in = np.zeros_like(grads)
        for side in node:
            if side.any():
                stand_in[side] = grads[side].mean(0)
        rows = np.any(node, 0)
        if score == "l2":
            total += (stand_in[rows] ** 2).sum()
        elif np.linalg.norm(stand_in[rows]) > 0:
            cosine = (grads[rows] * stand_in[rows]).sum() / np.linalg.norm(grads[rows]) / np.linalg.norm(stand_in[rows])
            total += cosine * np.linalg.norm(grads[rows])
    return total


@pytest.mark.parametrize("score", trees.SCORES)
def test_levels_are_the_best_by_brute_force(score):
    rng = np.random.default_rng(3)
    x, grads = rng.normal(size=(24, 3)).astype(np.float32), rng.normal(size=(24, 2)).astype(np.float32)
    splits = trees.candidates(jnp.asarray(x), 5)
    found = trees.fit(jnp.asarray(x), jnp.asarray(grads), splits, 3, score)
    build = (grads - grads.mean(0)) / grads.std(0, ddof=1) if score == "l2" else grads
    node = np.zeros(24, int)
    pairs = list(zip(splits.feature, np.asarray(splits.threshold), strict=True))
    for level in range(3):
        gains = []
        for f, t in pairs:
            right = x[:, f] > t
            gains.append(gain_of(score, build, [((node == k) & right, (node == k) & ~right) for k in range(2**level)]))
        assert pairs[int(np.argmax(gains))] == (found.feature[level], found.threshold[level])
        node = 2 * node + (x[:, found.feature[level]] > found.threshold[level])
    for leaf in range(8):
        want = grads[node == leaf].mean(0) if np.any(node == leaf) else np.zeros(2)
        np.testing.assert_allclose(found.leaves[leaf], want, rtol=1e-5, atol=1e-6)


def test_candidates_by_hand():
    x = jnp.array([[3.0, 1.0], [1.0, 0.0], [2.0, 1.0], [5.0, 1.0], [4.0, 0.0]])
    feature, threshold = trees.candidates(x, 2, binary=np.array([False, True]))
    # Five rows in three parts of 2, 2 and 1: the last ones of the first two are 2 and 4.
    np.testing.assert_array_equal(feature, [0, 0, 1])
    np.testing.assert_array_equal(threshold, [2.0, 4.0, 0.5])
    np.testing.assert_allclose(trees.candidates(x, 4, "uniform").threshold, [1, 2, 3, 4, 0, 0.25, 0.5, 0.75])
    np.testing.assert_array_equal(trees.candidates(x[:, :1], 250).threshold, [1, 2, 3, 4, 5])


def test_rows_out_of_the_mask_do_not_count():
    rng = np.random.default_rng(4)
    x, grads = rng.normal(size=(40, 3)).astype(np.float32), rng.normal(size=(40, 2)).astype(np.float32)
    mask = rng.random(40) < 0.5
    x, splits = jnp.asarray(x), trees.candidates(jnp.asarray(x))
    for score in trees.SCORES:
        part, whole = (
            trees.fit(a, jnp.asarray(g), splits, 3, score, m)
            for a, g, m in ((x[mask], grads[mask], None), (x, np.where(mask[:, None], grads, 1e3), jnp.asarray(mask)))
        )
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), part, whole)
    none = trees.fit(x, jnp.asarray(grads), splits, 3, mask=jnp.zeros(40, bool))
    np.testing.assert_array_equal(none.leaves, 0)


def random_trees(num, depth, features, outputs, seed=0):
    rng = np.random.default_rng(seed)
    return trees.Tree(
        jnp.asarray(rng.integers(0, features, (num, depth)), jnp.int32),
        jnp.asarray(rng.normal(size=(num, depth)), jnp.float32),
        jnp.asarray(rng.normal(size=(num, 2**depth, outputs)), jnp.float32),
    )


def test_prediction_is_the_sum_of_leaves_walked_to():
    new, x = random_trees(7, 3, 4, 2), jax.random.normal(jax.random.key(1), (2, 3, 4))
    ensemble = trees.add(trees.empty(10, 3, 2), new)
    want = np.zeros((2, 3, 2))
    for i, j, k in itertools.product(range(2), range(3), range(7)):
        leaf = 0
        for f, t in zip(new.feature[k], new.threshold[k], strict=True):
            leaf = 2 * leaf + int(x[i, j, f] > t)
        want[i, j] += new.leaves[k, leaf]
    np.testing.assert_allclose(trees.predict(ensemble, x), want, rtol=1e-5, atol=1e-5)
    one = jax.tree.map(lambda a: a[0], new)
    np.testing.assert_allclose(
        trees.predict(one, x), trees.predict(trees.add(trees.empty(1, 3, 2), jax.tree.map(lambda a: a[:1], new)), x)
    )
    many = jax.random.normal(jax.random.key(2), (150, 4))
    by_row = jnp.concatenate([trees.predict(ensemble, row[None]) for row in many])
    np.testing.assert_allclose(trees.predict(ensemble, many), by_row, rtol=1e-5, atol=1e-5)


def test_a_full_budget_takes_no_more():
    ensemble = trees.add(trees.empty(5, 2, 2), random_trees(3, 2, 4, 2))
    assert bool(trees.has_room(ensemble, 2)) and not trees.has_room(ensemble, 3)
    unchanged = trees.add(ensemble, random_trees(3, 2, 4, 2, seed=1))
    jax.tree.map(np.testing.assert_array_equal, unchanged, ensemble)
    full = trees.add(ensemble, random_trees(2, 2, 4, 2, seed=1))
    assert full.count == 5
    np.testing.assert_array_equal(full.leaves[3:], random_trees(2, 2, 4, 2, seed=1).leaves)


def test_boosting_under_jit_and_vmap_fits_a_function():
    def error(key):
        x = jax.random.uniform(key, (256, 2), minval=-1)
        target = jnp.stack([jnp.sin(3 * x[:, 0]) * (x[:, 1] > 0.2), x[:, 0] * x[:, 1]], -1)

        def step(carry, _):
            ensemble, outputs = carry
            tree = trees.fit(x, outputs - target, trees.candidates(x, 32), 4).scaled(-0.3)
            return (trees.add(ensemble, jax.tree.map(lambda a: a[None], tree)), outputs + trees.predict(tree, x)), None

        (ensemble, outputs), _ = jax.lax.scan(step, (trees.empty(60, 4, 2), jnp.zeros_like(target)), length=60)
        return jnp.mean((outputs - target) ** 2), jnp.max(jnp.abs(trees.predict(ensemble, x) - outputs)), target.var()

    errors, apart, variance = jax.jit(jax.vmap(error))(jax.random.split(jax.random.key(0), 3))
    assert np.all(errors < 0.02 * variance)
    assert np.all(apart < 1e-5)


def test_wrong_settings_are_one_clear_line():
    x = jnp.zeros((4, 2))
    with pytest.raises(ValueError, match=r"candidates='quantiles' is unknown; did you mean 'quantile'\?"):
        trees.candidates(x, 4, "quantiles")
    with pytest.raises(ValueError, match="num_candidates=0: it must be at least 1"):
        trees.candidates(x, 0)
    with pytest.raises(ValueError, match=r"binary has shape \(3,\); rows of 2 features need \(2,\)"):
        trees.candidates(x, 4, binary=np.zeros(3, bool))
    with pytest.raises(ValueError, match=r"score='L1' is unknown; did you mean 'l2'\?"):
        trees.fit(x, x, trees.candidates(x), 2, "L1")
    with pytest.raises(ValueError, match="depth=0: it must be at least 1"):
        trees.empty(3, 0, 2)
