"""The contract of an algorithm: `check_algorithm` says what and where it is broken."""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, train
from jaxrl.testing.assertions import (
    Counted,
    all_in,
    assert_close,
    assert_same_type,
    assert_stock_keys,
    assert_strong,
    is_float,
    plain,
)

# ---- algorithms

STATE_FIELDS = ("key", "hyper", "env_params", "env_state", "obs", "step", "weights")
METRICS = ("episode_return", "episode_length", "episodes", "loss")


def check_algorithm(
    algo: Algorithm,
    key: Array | None = None,
    hyper: Any = None,
    env_params: Any = None,
    num_updates: int = 3,
    learns: bool = True,
) -> None:
    """Raise AssertionError, saying what and where, unless `algo` keeps the contract of `jaxrl.algorithm`.

    Within `num_updates` (choose settings so that it learns in them) every leaf of the weights must change, unless it is
    a planner that `learns` nothing; and the return of a whole batch of seeds must be that of each alone. Some
    compilations of the update.
    """
    key = jax.random.key(0) if key is None else key
    venv = algo.venv
    state = jax.jit(algo.init)(key, hyper, env_params)
    missing = [name for name in STATE_FIELDS if not hasattr(state, name)]
    assert not missing, f"the state has no field {missing}"
    assert isinstance(state.hyper, algo.hyper), f"state.hyper is a {type(state.hyper)}, not algo.hyper"
    assert state.step.dtype == jnp.int32 and int(state.step) == 0, f"step starts at {state.step}, not at an int32 zero"
    assert_strong(state, "state")
    assert_stock_keys(state, key, "state")

    counted = Counted(algo.update)
    update = jax.jit(counted)
    new, metrics = update(state)
    assert_same_type(state, new, "state before and after update")
    assert int(new.step) == algo.steps_per_update, f"{int(new.step)} steps in an update, not {algo.steps_per_update}"
    for name in METRICS:
        assert name in metrics, f"metrics have no {name!r}: {sorted(metrics)}"
    for name, x in metrics.items():
        assert jnp.shape(x) == (), f"metrics[{name!r}] has shape {jnp.shape(x)}; metrics are scalars"
    assert_strong(metrics, "metrics")
    again, _ = update(new)
    assert counted.traces == 1, f"update was traced {counted.traces} times"
    assert not np.array_equal(plain(state.key), plain(new.key)), "update returns the key it was given"

    collected, rollout = jax.jit(algo.collect)(state)
    assert_same_type(state, collected, "state before and after collect")
    assert int(collected.step) == algo.steps_per_update, "collect counts the steps"
    chex.assert_trees_all_equal(collected.weights, state.weights, custom_message="weights before and after collect")
    parts, parts_metrics = jax.jit(algo.learn)(collected, rollout)
    assert_close((parts, parts_metrics), (new, metrics), "collect, then learn, against update", 1e-4)

    _check_act(algo, new)
    _check_seeds(algo, key, hyper, env_params, num_updates, state, again, learns)
    floats = jax.tree.map(is_float, state.hyper)
    assert any(jax.tree.leaves(floats)), "no setting is a float leaf"
    axes = jax.tree.map(lambda is_float: 0 if is_float else None, floats)
    grid = jax.tree.map(lambda x, is_float: jnp.stack([x, x]) if is_float else x, state.hyper, floats)
    total = algo.steps_per_update
    jax.eval_shape(jax.vmap(lambda h: train(algo, key, total, h, env_params), (axes,)), grid)
    assert venv.num_envs >= 1


def _check_act(algo: Algorithm, state: Any) -> None:
    """Any leading batch shape; greedy takes no notice of the key; the carry keeps its type."""
    env, key = algo.venv.env, jax.random.key(1)
    obs = jax.tree.map(lambda x: x[0], state.obs)
    if isinstance(obs, dict):
        obs = {name: x for name, x in obs.items() if name != "privileged"}  # absent at deployment
    policy = algo.policy(state)
    params = jax.tree.map(lambda x: x[0], state.env_params) if algo.venv.batched_params else state.env_params
    space = env.action_space(params)
    for shape in ((), (3,), (2, 3)):
        batch = jax.tree.map(lambda x, shape=shape: jnp.broadcast_to(x, shape + x.shape), obs)
        carry = algo.initial_carry(shape)
        action, new_carry = algo.act(policy, key, batch, carry)
        assert_same_type(carry, new_carry, "carry before and after act")
        assert all_in(space, action, len(shape)), f"act on a batch {shape} leaves {space}"
    first, _ = algo.act(policy, key, obs, algo.initial_carry(()), greedy=True)
    second, _ = algo.act(policy, jax.random.key(2), obs, algo.initial_carry(()), greedy=True)
    chex.assert_trees_all_equal(first, second, custom_message="greedy actions with two keys")


def _check_seeds(
    algo: Algorithm,
    key: Array,
    hyper: Any,
    env_params: Any,
    num_updates: int,
    first: Any,
    second: Any,
    learns: bool,
) -> None:
    """`vmap(train)(keys)[i] == train(keys[i])`, and every leaf of the weights learns."""
    total = algo.steps_per_update * num_updates
    run = jax.jit(lambda key: train(algo, key, total, hyper, env_params))
    keys = jnp.stack([key, jax.random.key(7)])
    many = jax.jit(jax.vmap(lambda key: train(algo, key, total, hyper, env_params)))(keys)
    for i in range(2):
        row = jax.tree.map(lambda x, i=i: x[i], many)
        assert_close(row, run(keys[i]), f"vmap over seeds, seed {i}, against it alone", 1e-4)
    weights = run(key)[0].weights
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(weights), jax.tree.leaves(first.weights), strict=True):
        name = jax.tree_util.keystr(path)
        assert np.all(np.isfinite(x)), f"weights{name} are not finite after {num_updates} updates"
        assert not learns or np.any(x != y), (
            f"weights{name} do not change in {num_updates} updates: no gradient reaches them"
        )
