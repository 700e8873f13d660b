"""The contract of an algorithm: `check_algorithm` says what and where it is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, train
from jaxrl.nesting import complete_hyper
from jaxrl.rollout import Ends
from jaxrl.testing.assertions import (
    all_in,
    assert_close,
    assert_same_type,
    assert_stock_keys,
    assert_strong,
    is_float,
    plain,
)

STATE_FIELDS = ("key", "hyper", "env_params", "env_state", "obs", "step", "weights")
METRICS = ("episode_return", "episode_length", "episodes", "loss")
BATCHES = ((), (3,), (2, 3))


def check_algorithm(
    algo: Algorithm,
    key: Array | None = None,
    hyper: Any = None,
    env_params: Any = None,
    num_updates: int = 3,
    learns: bool = True,
    whole: bool = True,
) -> None:
    """Raise AssertionError, saying what and where, unless `algo` keeps the contract of `jaxrl.algorithm`.

    Within `num_updates` (choose settings so that it learns in them) every leaf of the weights must change at least
    once, unless it is a planner that `learns` nothing. What types and traces tell is read from them; the rest is one
    compiled program. In the `whole` contract training stands in it twice, since a batch of seeds must do what each does
    alone.
    """
    key = jax.random.key(0) if key is None else key
    # Of the key alone: settings stay concrete, so that what `init` says about their values is heard.
    init = jax.jit(lambda key: algo.init(key, hyper, env_params))
    state = jax.eval_shape(init, key)
    # Traced once; all that follows takes these traces.
    algo = algo._replace(collect=jax.jit(algo.collect), learn=jax.jit(algo.learn))
    _check_types(algo, state, key)
    _check_slots(algo, state, key)
    _check_parts(algo, state, lambda: init(key))
    floats = jax.tree.map(is_float, _fields(state)["hyper"])
    assert any(jax.tree.leaves(floats)), "no setting is a float leaf"
    concrete = complete_hyper(algo, hyper)
    axes = jax.tree.map(lambda is_float: 0 if is_float else None, floats)
    grid = jax.tree.map(lambda x, is_float: jnp.stack([x, x]) if is_float else x, concrete, floats)
    one_update = algo.steps_per_update
    jax.eval_shape(jax.vmap(lambda h: train(algo, key, one_update, h, env_params), (axes,)), grid)
    _check_runs(algo, key, init, num_updates, learns, whole)


def _fields(state: Any) -> dict[str, Any]:
    """The public fields that the state has; they may be properties that compute."""
    return jax.eval_shape(lambda s: {name: getattr(s, name) for name in STATE_FIELDS if hasattr(s, name)}, state)


def _check_types(algo: Algorithm, state: Any, key: Array) -> None:
    """Public fields, strong types, stock keys, metrics; one type of state, so that nothing is compiled twice."""
    fields = _fields(state)
    missing = [name for name in STATE_FIELDS if name not in fields]
    assert not missing, f"the state has no field {missing}"
    assert type(fields["hyper"]) is type(algo.hyper()), f"state.hyper is a {type(fields['hyper'])}, not algo.hyper"
    assert fields["step"].dtype == jnp.int32, f"step starts at {fields['step']}, not at an int32 zero"
    deployed = algo.deployed in ("sampled", "greedy") or (algo.deployed == "search" and algo.search is not None)
    assert deployed, f"deployed={algo.deployed!r} is neither 'sampled', 'greedy' nor, with a search, 'search'"
    assert_strong(state, "state")
    assert_stock_keys(state, key, "state")
    collected, rollout = jax.eval_shape(algo.collect, state)
    assert_same_type(state, collected, "state before and after collect")
    if rollout is not None:  # None: it learns from a dataset, and nothing acts
        ends = jax.eval_shape(lambda rollout: getattr(rollout, "ends", None), rollout)  # it may compute
        assert isinstance(ends, Ends), f"the rollout has no 'ends', which say where episodes ended: {type(rollout)}"
        shapes = {x.shape for x in ends}
        assert len(shapes) == 1 and ends.done.dtype == jnp.bool_, f"rollout.ends are {ends}, not three of one shape"
    new, metrics = jax.eval_shape(algo.update, state)
    assert_same_type(state, new, "state before and after update")
    for name in METRICS:
        assert name in metrics, f"metrics have no {name!r}: {sorted(metrics)}"
    for name, x in metrics.items():
        assert jnp.shape(x) == (), f"metrics[{name!r}] has shape {jnp.shape(x)}; metrics are scalars"
    assert_strong(metrics, "metrics")


def _check_slots(algo: Algorithm, state: Any, key: Array) -> None:
    """What belongs to slots is in the state, and `restart` keeps its type."""
    for path in algo.slots:
        part = state
        for name in path.split("."):
            assert hasattr(part, name), f"slots name {path!r}, but {type(part).__name__} has no field {name!r}"
            part = getattr(part, name)
            if part is None:  # of a config that does without
                break
    n = jax.tree.leaves(_fields(state)["obs"])[0].shape[0]
    mask = jax.ShapeDtypeStruct((n,), bool)
    begun = jax.eval_shape(algo.restart, state, key, _fields(state)["env_params"], mask)
    assert_same_type(state, begun, "state before and after restart")


def _check_parts(algo: Algorithm, state: Any, init: Callable[[], Any]) -> None:
    """`collect` counts the steps and leaves the weights alone; on a dataset it does nothing.

    Mostly the traces prove it: outputs that are inputs handed through. Where they do not, it runs.
    """
    collected = jax.eval_shape(algo.collect, state)
    if collected[1] is None:
        assert _hands_through(algo.collect, "step", state), "collect counts steps, but returns no rollout"
        assert _hands_through(algo.collect, "weights", state), "weights before and after collect"
        return
    if _hands_through(algo.collect, "weights", state) and _hands_through(algo.learn, "step", *collected):
        return
    start = init()
    collected, _ = algo.collect(start)
    assert int(collected.step) == algo.steps_per_update, "collect counts the steps"
    chex.assert_trees_all_equal(collected.weights, start.weights, custom_message="weights before and after collect")


def _hands_through(fn: Any, field: str, state: Any, *args: Any) -> bool:
    """Whether the trace of a jitted `fn(state, ...) -> (state, ...)` returns each leaf of the field as it came."""
    jaxpr = fn.trace(state, *args).jaxpr.jaxpr
    paths = [path[0].name for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    pairs = [(x, y) for name, x, y in zip(paths, jaxpr.invars, jaxpr.outvars, strict=False) if name == field]
    return bool(pairs) and all(before is after for before, after in pairs)


def _check_runs(
    algo: Algorithm, key: Array, init: Callable[[Array], Any], num_updates: int, learns: bool, whole: bool
) -> None:
    """The clock, keys, every leaf of the weights learns, what it does; and `vmap(train)(keys)[i] == train(keys[i])`."""

    def run(key):
        first = init(key)

        def body(state, _):
            new, metrics = algo.update(state)
            moved = jax.tree.map(lambda x, y: jnp.any(x != y), new.weights, first.weights)
            return new, (metrics, new.step, jax.random.key_data(new.key), moved)

        last, (metrics, steps, keys, moved) = jax.lax.scan(body, first, length=num_updates)
        return (first.step, jax.random.key_data(first.key), moved), last, metrics, steps, keys

    @jax.jit
    def program(keys):
        many = jax.vmap(run)(keys)
        alone = jax.lax.map(run, keys) if whole else None
        last = jax.tree.map(lambda x: x[0], many[1])
        return many, alone, _actions(algo, last), _restarts(algo, last)

    many, alone, acted, (last, same, begun) = program(jnp.stack([key, jax.random.key(7)]))
    chex.assert_trees_all_equal(
        jax.tree.map(plain, same), jax.tree.map(plain, last), custom_message="restart where no slot is to begin"
    )
    time = getattr(getattr(begun.env_state, "env", None), "time", None)
    assert time is None or not np.any(time), f"after a restart of all slots their clocks show {time}"
    if whole:
        for i in range(2):
            row, own = (jax.tree.map(lambda x, i=i: plain(x)[i], tree) for tree in (many, alone))
            assert_close(row, own, f"vmap over seeds, seed {i}, against it alone", 1e-4)
    (step, first_key, moved), last, _, steps, keys = jax.tree.map(lambda x: plain(x)[0], many)
    assert step == 0, f"step starts at {step}, not at an int32 zero"
    assert steps[0] == algo.steps_per_update, f"{steps[0]} steps in an update, not {algo.steps_per_update}"
    np.testing.assert_array_equal(steps, algo.steps_per_update * np.arange(1, num_updates + 1), "steps counted")
    every = np.concatenate([first_key[None], keys])
    assert np.all((every[1:] != every[:-1]).any(-1)), "update returns the key it was given"
    for (path, x), changes in zip(
        jax.tree_util.tree_leaves_with_path(last.weights), jax.tree.leaves(moved), strict=True
    ):
        name = jax.tree_util.keystr(path)
        assert np.all(np.isfinite(x)), f"weights{name} are not finite after {num_updates} updates"
        assert not learns or np.any(changes), (
            f"weights{name} do not change in {num_updates} updates: no gradient reaches them"
        )
    inside, first, second = acted
    for shape, ok in zip(BATCHES, inside, strict=True):
        assert ok, f"act on a batch {shape} leaves its space"
    chex.assert_trees_all_equal(first, second, custom_message="greedy actions with two keys")


def _restarts(algo: Algorithm, state: Any) -> tuple[Any, Any, Any]:
    """The state, after a restart of no slot, and of all."""
    n = jax.tree.leaves(state.obs)[0].shape[0]
    key = jax.random.key(3)
    none, every = (algo.restart(state, key, state.env_params, jnp.full(n, which)) for which in (False, True))
    return state, none, every


def _actions(algo: Algorithm, state: Any) -> tuple[list[Array], Any, Any]:
    """Whether actions are in their space for each of `BATCHES`, and the greedy action under two keys.

    Raises AssertionError for a carry that changes its type, or an action of a shape that is in no space.
    """
    env = algo.venv.env
    obs = jax.tree.map(lambda x: x[0], state.obs)
    if isinstance(obs, dict):
        obs = {name: x for name, x in obs.items() if name != "privileged"}  # absent at deployment
    policy = algo.policy(state)
    params = jax.tree.map(lambda x: x[0], state.env_params) if algo.venv.batched_params else state.env_params
    space = env.action_space(params)
    inside = []
    for i, shape in enumerate(BATCHES):
        batch = jax.tree.map(lambda x, shape=shape: jnp.broadcast_to(x, shape + x.shape), obs)
        carry = algo.initial_carry(shape)
        action, new_carry = algo.act(policy, jax.random.key(10 + i), batch, carry)
        assert_same_type(carry, new_carry, "carry before and after act")
        shapes = [jnp.shape(x) for x in jax.tree.leaves(action)]
        assert all(s[: len(shape)] == shape for s in shapes), f"act on a batch {shape} leaves {space}: shapes {shapes}"
        inside.append(all_in(space, action, len(shape)))
    first, _ = algo.act(policy, jax.random.key(1), obs, algo.initial_carry(()), greedy=True)
    second, _ = algo.act(policy, jax.random.key(2), obs, algo.initial_carry(()), greedy=True)
    return inside, first, second
