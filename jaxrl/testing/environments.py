"""The contract of an environment: `check_environment` says what and where it is broken."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.curriculum.protocol import check_levels
from jaxrl.environment import Environment, check_params
from jaxrl.spaces import Box
from jaxrl.testing.assertions import (
    Counted,
    all_in,
    assert_close,
    assert_no_key_reuse,
    assert_same_type,
    assert_stock_keys,
    assert_strong,
    is_float,
    members,
    plain,
)
from jaxrl.vector_env import VectorState, vectorize


def check_environment(
    env: Environment,
    params: Any = None,
    key: Array | None = None,
    num_steps: int = 32,
    whole: bool = True,
    rtol: float = 1e-5,
) -> None:
    """Raise AssertionError, saying what and where, unless `env` keeps the contract of `jaxrl.environment`.

    Structures, types and strong typing, also of levels; members of spaces; clock and time limit; ends as `terminal` has
    them, where it does; batched params; determinism: from traces and one compiled program. The `whole` contract has a
    dozen more: each key is consumed once, finite derivatives with respect to float actions and params, jit against
    none, one slot alone against a batch of them, the vectorised environment, one compilation, dynamics in float64.

    `rtol`: how far, relatively, floats of a slot alone may be from those in a batch.
    """
    params = env.default_params if params is None else params
    key = jax.random.key(0) if key is None else key
    assert env.id, "the environment has no id"
    assert dataclasses.replace(env) == env and hash(dataclasses.replace(env)) == hash(env), "equal settings, equal hash"
    assert_strong(params, "params")
    check_params(env, params)
    step = jax.jit(env.step)  # traced once for all that follows
    _check_types(env, step, params, key)
    _check_levels(env, params, key, whole)
    if whole:
        _check_keys(env, params, key)
    state = _check_episodes(env, step, params, key, num_steps, whole)
    _check_render(env, params, state)
    if whole:
        _check_types_of_float64(env, params, key)
        counted = Counted(env.step)
        reset, step = jax.jit(env.reset), jax.jit(counted)
        _check_integers(env, params, key)
        _check_step(env, params, key, reset, step)
        assert counted.traces == 1, f"step was traced {counted.traces} times for arguments of one type"
        states = _check_batch(env, params, key, reset, step, rtol)
        _check_rollout(env, params, key, states, num_steps)
        _check_float64(env, params, key)


def _check_levels(env: Environment, params: Any, key: Array, whole: bool) -> None:
    """What the level kit draws and changes are params of its environment, as curricula take them."""
    kit = env.levels
    if kit is None or kit.generate is None:
        return
    expected = params if kit.env == env else kit.env.default_params

    def checked(maker: str, levels: Any) -> None:
        try:
            check_levels(f"{env.id}: {maker}", levels, expected, f"params of {kit.env.id}")
        except ValueError as error:
            raise AssertionError(str(error)) from error

    level = jax.eval_shape(kit.generate, key, params)
    checked("levels.generate", level)
    assert_strong(level, "levels.generate")
    if kit.mutate is not None:
        changed = jax.eval_shape(kit.mutate, key, level)
        checked("levels.mutate", changed)
        assert_strong(changed, "levels.mutate")
    if whole:
        level = jax.jit(kit.generate)(key, params)
        changed = level if kit.mutate is None else jax.jit(kit.mutate)(jax.random.fold_in(key, 1), level)
        with warnings.catch_warnings():
            # Of a level that can be but is of little use, as a motor whose load is too heavy, `validate` warns.
            warnings.simplefilter("ignore", UserWarning)
            kit.validate(level)
            kit.validate(changed)


class Row(NamedTuple):
    """One of the episodes that run side by side; what differs from the first is what it shows."""

    reset_key: Array
    step_key: Array
    act_key: Array
    late: Array  # start one step before the time limit


def _check_episodes(env: Environment, one_step: Any, params: Any, key: Array, num_steps: int, derivatives: bool) -> Any:
    """Random episodes, batched over keys and float params in one program. Returns the first row's first state."""
    agents = int(env.num_agents > 1)
    keys = jax.random.split(key, 6).reshape(2, 3)
    reset_key, step_key, act_key = keys[jnp.asarray([0, 0, 0, 1])].T
    step_key = jnp.stack([step_key[0], step_key[0], step_key[3], step_key[3]])
    # Rows 0 and 1 have the same keys; row 2 has another key for its steps; row 3 starts one step before the limit.
    rows = Row(reset_key, step_key, act_key, jnp.asarray([False, False, False, True]))
    floats = jax.tree.map(is_float, params)
    axes = jax.tree.map(lambda x: 0 if x else None, floats)
    batched = jax.tree.map(lambda x, f: jnp.stack([x] * 4) if f else x, params, floats)
    space = env.action_space(params)
    smooth = derivatives and isinstance(space, Box) and jnp.issubdtype(space.dtype, jnp.floating)

    def begin(row, params):
        obs, state = env.reset(row.reset_key, params)
        return obs, state.replace(time=jnp.where(row.late, params.max_steps - 1, state.time))

    def episode(row, params):
        obs, first = begin(row, params)

        def body(carry, keys):
            state, running = carry
            action = _action(env, keys[1], params)
            ts = one_step(keys[0], state, action, params)
            seen = env.observe(jax.random.fold_in(keys[0], 1), ts.state, params) if env.hints.noiseless else ts.obs
            ended = ts.terminated | ts.truncated
            # Whoever goes on after the end is on her own: what follows is not looked at.
            return (ts.state, running & ~ended), (running, action, ts._replace(state=ts.state.time), seen)

        steps = jax.random.split(row.step_key, num_steps), jax.random.split(row.act_key, num_steps)
        _, (running, action, ts, seen) = jax.lax.scan(body, (first, jnp.bool_(True)), jnp.stack(steps, 1))
        return first, obs, running, action, ts, seen

    def derivative(row, params):
        def total(actions, floats):
            leaves = iter(floats)
            own = jax.tree.map(lambda x, f: next(leaves) if f else x, params, jax.tree.map(is_float, params))
            _, state = begin(row, own)

            def body(state, inputs):
                ts = one_step(inputs[0], state, inputs[1], own)
                return ts.state, jnp.sum(ts.reward)

            return jnp.sum(jax.lax.scan(body, state, (jax.random.split(row.step_key, 10), actions))[1])

        actions = jax.vmap(lambda key: _action(env, key, params))(jax.random.split(row.act_key, 10))
        named = {
            jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(params) if is_float(x)
        }
        by_action, by_float = jax.grad(total, (0, 1))(actions, list(named.values()))
        return {"the action": by_action} | {f"params{name}": x for name, x in zip(named, by_float, strict=True)}

    @jax.jit
    def program(rows, batched):
        out = jax.vmap(episode, (0, axes))(rows, batched)
        first, obs, running, action, ts, seen = out
        observes, acts = env.observation_space(params), env.action_space(params)
        # A clock that was put forward may lead where no episode does: the late row shows the limit only.
        live = (running & ~rows.late[:, None]).reshape(*running.shape, *(1,) * agents)
        inside = {
            "first obs": all_in(observes, obs, 1 + agents),
            "obs": jnp.all(members(observes, ts.obs, 2 + agents) | ~live),
            "sampled action": all_in(acts, action, 2 + agents),
        }
        row = jax.tree.map(lambda x: x[0], rows)
        slopes = derivative(row, params) if smooth else None
        return out, inside, slopes

    out, inside, slopes = program(rows, batched)
    first, _, running, _, ts, seen = out
    for what, ok in inside.items():
        assert ok, f"{what} is not in {'action' if 'action' in what else 'observation'}_space(params)"
    start, running, time = np.asarray(first.time), np.asarray(running), np.asarray(ts.state)
    assert np.all(start[:3] == 0) and np.all(
        np.where(running, time, 0) == np.where(running, start[:, None] + np.arange(1, num_steps + 1), 0)
    ), "the clock starts at 0 and counts steps"
    assert bool(ts.truncated[3, 0]), "not truncated after max_steps steps"
    limit = np.asarray(params.max_steps)
    assert np.all(np.asarray(ts.truncated) | (time < limit) | ~running), "truncated at max_steps, also when terminated"
    assert np.all(np.isfinite(ts.reward) | ~running.reshape(*running.shape, *(1,) * agents)), "rewards are not finite"
    # Each row is compared with itself: compilers may round two rows differently. Row 0 has another key for its steps.
    again, _, _ = program(rows._replace(step_key=step_key[jnp.asarray([2, 1, 2, 3])]), batched)
    (key, same), (other, twice) = (
        [jax.tree.map(lambda x, i=i: plain(x)[i], (run[0], run[3], run[4])) for i in range(2)] for run in (out, again)
    )
    chex.assert_trees_all_equal(twice, same, custom_message="an episode twice with the same keys")
    if env.hints.deterministic:
        chex.assert_trees_all_equal(other, key, custom_message="deterministic=True, but the key matters")
    with contextlib.suppress(NotImplementedError):
        said = jax.vmap(jax.vmap(env.terminal, (0, None)), (0, None))(ts.obs, params)
        np.testing.assert_array_equal(said | ~running, ts.terminated | ~running, "terminal(obs) and terminated")
    if env.hints.noiseless:
        assert_close(seen, ts.obs, "noiseless=True, but the key of observe matters")
    if slopes is not None:
        for name, x in slopes.items():
            assert np.all(np.isfinite(x)), f"the derivative of ten rewards with respect to {name} is not finite: {x}"
    return jax.tree.map(lambda x: x[0], first)


def _action(env: Environment, key: Array, params: Any) -> Any:
    """A random action, of all agents."""
    space = env.action_space(params)
    return space.sample(key) if env.num_agents == 1 else jax.vmap(space.sample)(jax.random.split(key, env.num_agents))


def _check_types(env: Environment, step: Any, params: Any, key: Array) -> None:
    """Without running anything: what goes in and out of reset and step."""
    agents = (env.num_agents,) if env.num_agents > 1 else ()
    obs, state = jax.eval_shape(lambda key: env.reset(key, params), key)  # validated while tracing
    action = jax.eval_shape(lambda key: _action(env, key, params), key)
    ts = jax.eval_shape(step, key, state, action, params)
    assert_strong((obs, state, tuple(ts)), "reset and step")
    assert_stock_keys(state, key, "state")
    assert_same_type(state, ts.state, "state after reset and after step")
    assert_same_type(obs, ts.obs, "obs of reset and of step")
    assert state.time.shape == () and state.time.dtype == jnp.int32, f"state.time is {state.time}, not an int32 scalar"
    assert ts.reward.shape == agents and is_float(ts.reward), f"reward is {ts.reward}; one float an agent"
    for name in ("terminated", "truncated"):
        flag = getattr(ts, name)
        assert flag.shape == () and flag.dtype == jnp.bool_, f"{name} is {flag}, not a boolean scalar"
    assert isinstance(ts.info, dict), f"info is a {type(ts.info).__name__}, not a dict"
    for name, x in ts.info.items():
        if name.startswith("reward/"):
            assert x.shape == (), f"info[{name!r}] has shape {x.shape}; reward terms are scalars"


def _check_keys(env: Environment, params: Any, key: Array) -> None:
    """Each key is consumed once; those in the state, too, so there are two steps. From traces."""

    def two_steps(key):
        reset_key, *keys = jax.random.split(key, 5)
        _, state = env.reset(reset_key, params)
        for act_key, step_key in zip(keys[:2], keys[2:], strict=True):
            state = env.step(step_key, state, _action(env, act_key, params), params).state
        return state.time

    for what, fn in (("reset", lambda key: env.reset(key, params)[1].time), ("step, after reset,", two_steps)):
        try:
            jax.eval_shape(lambda key, fn=fn: assert_no_key_reuse(fn, key), key)
        except jax.errors.KeyReuseError as error:
            raise AssertionError(f"{what} consumes a key twice: split it (jax.random.split). {error}") from error


def _is_integer(space: Any) -> bool:
    return hasattr(space, "dtype") and jnp.issubdtype(space.dtype, jnp.integer)


def _check_integers(env: Environment, params: Any, key: Array) -> None:
    """Any integer dtype is accepted, also one that cannot be negative. What it does then, `_check_batch` looks at."""
    if not _is_integer(env.action_space(params)):
        return
    _, state = jax.eval_shape(env.reset, key, params)
    action = jax.eval_shape(lambda key: _action(env, key, params), key)
    wanted = jax.eval_shape(env.step, key, state, action, params)
    if action.shape == ():
        with_int = jax.eval_shape(lambda state: env.step(key, state, 0, params), state)
        assert_same_type(with_int, wanted, "step with an int")
    for dtype in ("int8", "uint8", "int16", "uint32"):
        other = jax.eval_shape(env.step, key, state, jax.ShapeDtypeStruct(action.shape, dtype), params)
        assert_same_type(other, wanted, f"step with a {dtype} action")


def _check_step(env: Environment, params: Any, key: Array, reset: Callable, step: Callable) -> None:
    """One environment, two steps: jit against none, clock, time limit, determinism."""
    reset_key, step_key, other_key, action_key = jax.random.split(key, 4)
    obs, state = reset(reset_key, params)
    assert_close(env.reset(reset_key, params), (obs, state), "reset without jit and with it")
    action = _action(env, action_key, params)
    ts = step(step_key, state, action, params)
    assert_close(env.step(step_key, state, action, params), ts, "step without jit and with it")
    chex.assert_trees_all_equal(
        step(step_key, state, action, params), ts, custom_message="step twice with the same arguments"
    )
    if env.hints.deterministic:
        chex.assert_trees_all_equal(
            step(other_key, state, action, params), ts, custom_message="deterministic=True, but the key matters"
        )
    if env.hints.noiseless:
        seen = jax.jit(env.observe)(other_key, ts.state, params)
        assert_close(seen, ts.obs, "noiseless=True, but the key of observe matters")
    assert int(state.time) == 0 and int(ts.state.time) == 1, "the clock starts at 0 and counts steps"
    last = state.replace(time=jnp.asarray(params.max_steps - 1, jnp.int32))
    assert bool(step(step_key, last, action, params).truncated), "not truncated after max_steps steps"
    step(step_key, ts.state, action, params)


def _check_batch(env: Environment, params: Any, key: Array, reset: Callable, step: Callable, rtol: float) -> Any:
    """Three slots with equal params, batched in each float leaf, against each slot alone. Returns their first states.

    Integer actions are unsigned bytes in the batch, so the comparison is one of integer dtypes, too.
    """
    axes = jax.tree.map(lambda x: 0 if is_float(x) else None, params)
    batched = jax.tree.map(lambda x: jnp.stack([x] * 3) if is_float(x) else x, params)
    keys = jax.random.split(key, 3)
    obs, states = jax.jit(jax.vmap(env.reset, (0, axes)))(keys, batched)
    action = jax.vmap(lambda key: _action(env, key, params))(keys)
    narrow = action
    if _is_integer(env.action_space(params)):
        narrow = action.astype(jnp.uint8 if int(jnp.max(action)) < 256 else jnp.uint16)
    ts = jax.jit(jax.vmap(env.step, (0, 0, 0, axes)))(keys, states, narrow, batched)
    for i in range(3):
        alone_obs, state = reset(keys[i], params)
        alone = step(keys[i], state, jax.tree.map(lambda x, i=i: x[i], action), params)
        row = jax.tree.map(lambda x, i=i: x[i], ((obs, states), tuple(ts)))
        what = f"vmap over params, keys and {narrow.dtype} actions against a loop"
        assert_close(row, ((alone_obs, state), tuple(alone)), what, rtol)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if is_float(leaf):  # alone: a function that takes one leaf for a number may still take all of them as arrays

            def batched_at(p, x, path=path):
                return jnp.stack([x] * 3) if p == path else x

            one = jax.tree_util.tree_map_with_path(batched_at, params)
            axis = jax.tree_util.tree_map_with_path(lambda p, _, path=path: 0 if p == path else None, params)
            jax.eval_shape(jax.vmap(reset, (0, axis)), keys, one)
            jax.eval_shape(jax.vmap(step, (0, 0, 0, axis)), keys, states, action, one)
    return states


def _check_rollout(env: Environment, params: Any, key: Array, states: Any, num_steps: int) -> None:
    """A vectorised scan with random actions from three `states` stays in the spaces and keeps the clock."""
    agents = (env.num_agents,) if env.num_agents > 1 else ()
    venv = vectorize(env, 3, "dense")

    @jax.jit
    def run(key, params):
        def body(vstate, key):
            act_key, step_key = jax.random.split(key)
            action = jax.vmap(lambda key: _action(env, key, params))(jax.random.split(act_key, 3))
            ts = venv.step(step_key, vstate, action, params)
            return ts.state, (action, vstate.env.time, ts._replace(state=ts.state.env.time))

        first = VectorState(states, None, jnp.zeros((3, *agents)))
        _, (action, time, ts) = jax.lax.scan(body, first, jax.random.split(key, num_steps))
        observes, acts = env.observation_space(params), env.action_space(params)
        inside = {
            "obs": all_in(observes, ts.obs, 2 + len(agents)),
            "final_obs": all_in(observes, ts.info["final_obs"], 2 + len(agents)),
            "sampled action": all_in(acts, action, 2 + len(agents)),
        }
        return inside, time, ts

    inside, time, ts = run(key, params)
    for what, ok in inside.items():
        assert ok, f"{what} is not in {'action' if 'action' in what else 'observation'}_space(params)"
    done = np.asarray(ts.terminated | ts.truncated)
    np.testing.assert_array_equal(ts.state, np.where(done, 0, np.asarray(time) + 1), "the clock of each slot")
    np.testing.assert_array_equal(
        ts.truncated | (np.asarray(time) + 1 < params.max_steps), True, "truncated at max_steps, also when terminated"
    )
    assert np.all(np.isfinite(ts.reward)), "rewards are not finite"


def _made_wide(env: Environment, params: Any) -> Any:
    """The default params, made where floats are float64; where they lack something that `params` have, as a learned
    reward's model, `params` as they are.
    """
    usual = env.default_params
    return usual if jax.tree.structure(usual) == jax.tree.structure(params) else params


def _check_float64(env: Environment, params: Any, key: Array) -> None:
    """Dynamics follow the dtype they are given; types are stable there too."""
    with jax.enable_x64(True):
        params = _made_wide(env, params)

        def wide(tree):
            return jax.tree.map(lambda x: x.astype(jnp.float64) if is_float(x) else x, tree)

        narrow_obs, state = jax.jit(env.reset)(key, params)
        state, action = wide(state), wide(_action(env, key, params))
        ts = jax.jit(env.step)(key, state, action, params)
        assert_same_type(state, ts.state, "float64 state after step")
        assert_strong((narrow_obs, tuple(ts)), "reset and step in float64")
        for path, x in jax.tree_util.tree_leaves_with_path((ts.obs, ts.state, ts.reward)):
            assert not is_float(x) or np.all(~np.isnan(x)), f"{jax.tree_util.keystr(path)} is NaN in float64"
        assert_same_type(ts, jax.eval_shape(env.step, key, ts.state, action, params), "two steps in float64")


def _check_types_of_float64(env: Environment, params: Any, key: Array) -> None:
    """Dynamics keep the dtype they are given: what a step makes of a state and an action in float64."""
    with jax.enable_x64(True):
        params = _made_wide(env, params)

        def wide(tree):
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.float64) if is_float(x) else x, tree)

        obs, state = jax.eval_shape(lambda key: env.reset(key, params), key)
        state, action = wide(state), wide(jax.eval_shape(lambda key: _action(env, key, params), key))
        ts = jax.eval_shape(lambda key, state, action: env.step(key, state, action, params), key, state, action)
        assert_same_type(state, ts.state, "float64 state after step")
        assert_strong((obs, tuple(ts)), "reset and step in float64")


def _check_render(env: Environment, params: Any, state: Any) -> None:
    try:
        frame = env.render(state, params)
    except NotImplementedError:
        return
    ok = isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3
    assert ok, f"render gives {type(frame)}, not a uint8 array (height, width, 3)"
