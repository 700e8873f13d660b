"""What an environment or an algorithm must do to fit here, as functions that raise AssertionError.

`check_environment` and `check_algorithm` are the contracts; `PROBES` are environments so small that every value is
known (after Jones 2021, "Debugging RL, without the agonizing pain"); `golden` loads stored reference data;
`assert_no_key_reuse` finds a random key that is used twice.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from jaxrl.algorithm import Algorithm, train
from jaxrl.environment import NO_LIMIT, Environment, Transition, pytree
from jaxrl.math import fast_key, fence
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from jaxrl.vectorize import vectorize

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"


def golden(name: str) -> dict[str, np.ndarray]:
    """The arrays of `tests/golden/<name>.npz`. Raises FileNotFoundError, naming what there is."""
    path = GOLDEN / f"{name}.npz"
    if not path.exists():
        found = ", ".join(sorted(p.stem for p in GOLDEN.glob("*.npz"))) or "none (they are in the repository only)"
        raise FileNotFoundError(f"No golden data {name!r}; there are: {found}.")
    with np.load(path, allow_pickle=False) as data:
        return dict(data)


def assert_no_key_reuse(fn: Callable[..., Any], *args: Any) -> Any:
    """`jit(fn)(*args)` under jax's key-reuse checker. Raises `jax.errors.KeyReuseError` where a key is consumed twice.

    `fast_key` makes a new key object of the same bits, which the checker cannot follow, and a derivative through the
    conditional of `fence` looks to it like a second use, so meanwhile both do nothing.
    """
    originals = (fast_key, fence)  # this module's own names are replaced on the way, too
    with ExitStack() as stack:
        for module in list(sys.modules.values()):
            for original in originals:
                name = original.__name__
                if getattr(module, "__dict__", {}).get(name) is original:
                    stack.enter_context(mock.patch.object(module, name, lambda tree: tree))
        stack.enter_context(jax.debug_key_reuse(True))
        # A new function object, so that nothing traced without the checker is taken from the cache.
        return jax.jit(lambda *args: fn(*args))(*args)


# ---- comparing trees


def _describe(tree: PyTree) -> dict[str, tuple[Any, ...]]:
    """Path -> (shape, dtype, weakly typed) of each leaf: what must not change for a program to be used again."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path): (jnp.shape(x), getattr(x, "dtype", type(x)), bool(getattr(x, "weak_type", False)))
        for path, x in leaves
    }


def _same_type(a: PyTree, b: PyTree, what: str) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b), f"{what}: {jax.tree.structure(a)} != {jax.tree.structure(b)}"
    first, second = _describe(a), _describe(b)
    wrong = {path: (first[path], second[path]) for path in first if first[path] != second[path]}
    assert not wrong, f"{what}: (shape, dtype, weak) differ: {wrong}"


def _strong(tree: PyTree, what: str) -> None:
    loose = [path for path, (_, dtype, weak) in _describe(tree).items() if weak or isinstance(dtype, type)]
    assert not loose, f"{what}: python scalars or weakly typed leaves {loose}; strongly_typed() makes arrays of them."


def _plain(x: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)


def _close(a: PyTree, b: PyTree, what: str, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Equal integers, booleans and keys; floats within tolerance."""
    assert jax.tree.structure(a) == jax.tree.structure(b), f"{what}: structures differ"
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        where = f"{what}: {jax.tree_util.keystr(path)}"
        x, y = _plain(x), _plain(y)
        if np.issubdtype(x.dtype, np.inexact):
            np.testing.assert_allclose(x, y, rtol, atol, err_msg=where)
        else:
            np.testing.assert_array_equal(x, y, err_msg=where)


def _equal(a: PyTree, b: PyTree, what: str) -> None:
    _close(a, b, what, 0.0, 0.0)


def _float(x: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(x), jnp.floating))


def _stock_keys(tree: PyTree, key: Array, what: str) -> None:
    for path, (_, dtype, _) in _describe(tree).items():
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            assert dtype == key.dtype, f"{what}{path} is a {dtype}; store the user's kind of key, {key.dtype}."


def _all_in(space: Space, x: Any, batch: int) -> Array:
    """Whether all members of `x`, with `batch` leading axes, are in `space`."""
    contains = space.contains
    for _ in range(batch):
        contains = jax.vmap(contains)
    return jnp.all(contains(x))


class _Counted:
    """A function that counts how often jax traces it."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn, self.traces = fn, 0

    def __call__(self, *args: Any) -> Any:
        self.traces += 1
        return self.fn(*args)


# ---- environments


def check_environment(env: Environment, params: Any = None, key: Array | None = None, num_steps: int = 32) -> None:
    """Raise AssertionError, saying what and where, unless `env` keeps the contract of `jaxrl.environment`.

    Structures, types and strong typing; members of spaces; clock and time limit; batched params; vmap, jit and scan;
    float64; determinism; finite derivatives of float actions and params; one compilation. Some seconds of compiling.
    """
    params = env.default_params if params is None else params
    key = jax.random.key(0) if key is None else key
    assert env.id, "the environment has no id"
    assert dataclasses.replace(env) == env and hash(dataclasses.replace(env)) == hash(env), "equal settings, equal hash"
    _strong(params, "params")
    env.validate(params)
    _check_types(env, params, key)
    counted = _Counted(env.step)
    reset, step = jax.jit(env.reset), jax.jit(counted)
    _check_step(env, params, key, reset, step)
    assert counted.traces == 1, f"step was traced {counted.traces} times for arguments of one type"
    _check_discrete(env, params, key, reset, step)
    _check_batch(env, params, key, reset, step)
    _check_rollout(env, params, key, num_steps)
    _check_float64(env, key)
    action_space = env.action_space(params)
    if isinstance(action_space, Box) and jnp.issubdtype(action_space.dtype, jnp.floating):
        _check_gradients(env, params, key)
    _check_render(env, params, key)


def _action(env: Environment, key: Array, params: Any) -> Any:
    """A random action, of all agents."""
    space = env.action_space(params)
    return space.sample(key) if env.num_agents == 1 else jax.vmap(space.sample)(jax.random.split(key, env.num_agents))


def _check_types(env: Environment, params: Any, key: Array) -> None:
    """Without running anything: what goes in and out of reset and step."""
    agents = (env.num_agents,) if env.num_agents > 1 else ()
    obs, state = jax.eval_shape(env.reset, key, params)
    jax.eval_shape(lambda key: env.reset(key, params), key)  # validated while tracing
    action = jax.eval_shape(lambda key: _action(env, key, params), key)
    ts = jax.eval_shape(env.step, key, state, action, params)
    _strong((obs, state, tuple(ts)), "reset and step")
    _stock_keys(state, key, "state")
    _same_type(state, ts.state, "state after reset and after step")
    _same_type(obs, ts.obs, "obs of reset and of step")
    assert state.time.shape == () and state.time.dtype == jnp.int32, f"state.time is {state.time}, not an int32 scalar"
    assert ts.reward.shape == agents and _float(ts.reward), f"reward is {ts.reward}; one float an agent"
    for name in ("terminated", "truncated"):
        flag = getattr(ts, name)
        assert flag.shape == () and flag.dtype == jnp.bool_, f"{name} is {flag}, not a boolean scalar"
    assert isinstance(ts.info, dict), f"info is a {type(ts.info).__name__}, not a dict"
    for name, x in ts.info.items():
        if name.startswith("reward/"):
            assert x.shape == (), f"info[{name!r}] has shape {x.shape}; reward terms are scalars"
    space = env.action_space(params)
    if hasattr(space, "dtype") and jnp.issubdtype(space.dtype, jnp.integer):
        if action.shape == ():
            _same_type(jax.eval_shape(lambda k, s, p: env.step(k, s, 0, p), key, state, params), ts, "step with an int")
        for dtype in ("int8", "uint8", "int16", "uint32"):
            other = jax.eval_shape(env.step, key, state, jax.ShapeDtypeStruct(action.shape, dtype), params)
            _same_type(other, ts, f"step with a {dtype} action")


def _check_step(env: Environment, params: Any, key: Array, reset: Callable, step: Callable) -> None:
    """One environment, two steps: jit against none, clock, time limit, determinism."""
    reset_key, step_key, other_key, action_key = jax.random.split(key, 4)
    obs, state = reset(reset_key, params)
    _close(env.reset(reset_key, params), (obs, state), "reset without jit and with it")
    action = _action(env, action_key, params)
    ts = step(step_key, state, action, params)
    _close(env.step(step_key, state, action, params), ts, "step without jit and with it")
    _equal(step(step_key, state, action, params), ts, "step twice with the same arguments")
    if env.deterministic:
        _equal(step(other_key, state, action, params), ts, "deterministic=True, but the key matters")
    if env.noiseless:
        seen = jax.jit(env.observe)(other_key, ts.state, params)
        _close(seen, ts.obs, "noiseless=True, but the key of observe matters")
    assert int(state.time) == 0 and int(ts.state.time) == 1, "the clock starts at 0 and counts steps"
    last = state.replace(time=jnp.asarray(params.max_steps - 1, jnp.int32))
    assert bool(step(step_key, last, action, params).truncated), "not truncated after max_steps steps"
    step(step_key, ts.state, action, params)


def _check_discrete(env: Environment, params: Any, key: Array, reset: Callable, step: Callable) -> None:
    """Any integer dtype is accepted, also one that cannot be negative."""
    action = _action(env, key, params)
    if jnp.issubdtype(getattr(action, "dtype", jnp.float32), jnp.integer):
        _, state = reset(key, params)
        ts = step(key, state, action, params)
        _equal(step(key, state, action.astype(jnp.uint8), params), ts, "step with a uint8 action")


def _check_rollout(env: Environment, params: Any, key: Array, num_steps: int) -> None:
    """A vectorised scan with random actions stays in the spaces and keeps the clock."""
    agents = int(env.num_agents > 1)
    venv = vectorize(env, 3, "dense")

    @jax.jit
    def run(key, params):
        reset_key, run_key = jax.random.split(key)
        first_obs, first = venv.reset(reset_key, params)

        def body(vstate, key):
            act_key, step_key = jax.random.split(key)
            action = jax.vmap(lambda key: _action(env, key, params))(jax.random.split(act_key, 3))
            ts = venv.step(step_key, vstate, action, params)
            return ts.state, (action, vstate.env.time, ts._replace(state=ts.state.env.time))

        _, (action, time, ts) = jax.lax.scan(body, first, jax.random.split(run_key, num_steps))
        observes, acts = env.observation_space(params), env.action_space(params)
        inside = {
            "first obs": _all_in(observes, first_obs, 1 + agents),
            "obs": _all_in(observes, ts.obs, 2 + agents),
            "final_obs": _all_in(observes, ts.info["final_obs"], 2 + agents),
            "sampled action": _all_in(acts, action, 2 + agents),
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


def _check_batch(env: Environment, params: Any, key: Array, reset: Callable, step: Callable) -> None:
    """Three slots with equal params, batched in each float leaf, against each slot alone."""
    axes = jax.tree.map(lambda x: 0 if _float(x) else None, params)
    batched = jax.tree.map(lambda x: jnp.stack([x] * 3) if _float(x) else x, params)
    keys = jax.random.split(key, 3)
    obs, states = jax.jit(jax.vmap(env.reset, (0, axes)))(keys, batched)
    action = jax.vmap(lambda key: _action(env, key, params))(keys)
    ts = jax.jit(jax.vmap(env.step, (0, 0, 0, axes)))(keys, states, action, batched)
    for i in range(3):
        alone_obs, state = reset(keys[i], params)
        alone = step(keys[i], state, jax.tree.map(lambda x, i=i: x[i], action), params)
        row = jax.tree.map(lambda x, i=i: x[i], ((obs, states), tuple(ts)))
        _close(row, ((alone_obs, state), tuple(alone)), "vmap over params and keys against a loop")
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if _float(leaf):  # alone: a function that takes one leaf for a number may still take all of them as arrays

            def batched_at(p, x, path=path):
                return jnp.stack([x] * 3) if p == path else x

            one = jax.tree_util.tree_map_with_path(batched_at, params)
            axis = jax.tree_util.tree_map_with_path(lambda p, _, path=path: 0 if p == path else None, params)
            jax.eval_shape(jax.vmap(env.reset, (0, axis)), keys, one)
            jax.eval_shape(jax.vmap(env.step, (0, 0, 0, axis)), keys, states, action, one)


def _check_float64(env: Environment, key: Array) -> None:
    """Dynamics follow the dtype they are given; types are stable there too."""
    with jax.enable_x64(True):
        params = env.default_params

        def wide(tree):
            return jax.tree.map(lambda x: x.astype(jnp.float64) if _float(x) else x, tree)

        narrow_obs, state = env.reset(key, params)
        state, action = wide(state), wide(_action(env, key, params))
        ts = jax.jit(env.step)(key, state, action, params)
        _same_type(state, ts.state, "float64 state after step")
        _strong((narrow_obs, tuple(ts)), "reset and step in float64")
        for path, x in jax.tree_util.tree_leaves_with_path((ts.obs, ts.state, ts.reward)):
            assert not _float(x) or np.all(~np.isnan(x)), f"{jax.tree_util.keystr(path)} is NaN in float64"
        _same_type(ts, jax.eval_shape(env.step, key, ts.state, action, params), "two steps in float64")


def _check_gradients(env: Environment, params: Any, key: Array) -> None:
    """The derivative of ten rewards with respect to actions and float params is finite."""
    leaves, treedef = jax.tree.flatten(params)
    which = [i for i, x in enumerate(leaves) if _float(x)]
    keys = jax.random.split(key, 10)
    actions = jax.vmap(lambda key: _action(env, key, params))(keys)

    @jax.jit
    @jax.grad
    def gradient(inputs):
        actions, floats = inputs
        values = list(leaves)
        for i, x in zip(which, floats, strict=True):
            values[i] = x
        params = jax.tree.unflatten(treedef, values)
        _, state = env.reset(key, params)

        def body(state, inputs):
            ts = env.step(*(inputs[0], state, inputs[1], params))
            return ts.state, jnp.sum(ts.reward)

        return jnp.sum(jax.lax.scan(body, state, (keys, actions))[1])

    for path, x in jax.tree_util.tree_leaves_with_path(gradient((actions, [leaves[i] for i in which]))):
        assert np.all(np.isfinite(x)), f"the derivative {jax.tree_util.keystr(path)} (actions, float params) is {x}"


def _check_render(env: Environment, params: Any, key: Array) -> None:
    try:
        frame = env.render(env.reset(key, params)[1], params)
    except NotImplementedError:
        return
    ok = isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3
    assert ok, f"render gives {type(frame)}, not a uint8 array (height, width, 3)"


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
    _strong(state, "state")
    _stock_keys(state, key, "state")

    counted = _Counted(algo.update)
    update = jax.jit(counted)
    new, metrics = update(state)
    _same_type(state, new, "state before and after update")
    assert int(new.step) == algo.steps_per_update, f"{int(new.step)} steps in an update, not {algo.steps_per_update}"
    for name in METRICS:
        assert name in metrics, f"metrics have no {name!r}: {sorted(metrics)}"
    for name, x in metrics.items():
        assert jnp.shape(x) == (), f"metrics[{name!r}] has shape {jnp.shape(x)}; metrics are scalars"
    _strong(metrics, "metrics")
    again, _ = update(new)
    assert counted.traces == 1, f"update was traced {counted.traces} times"
    assert not np.array_equal(_plain(state.key), _plain(new.key)), "update returns the key it was given"

    collected, rollout = jax.jit(algo.collect)(state)
    _same_type(state, collected, "state before and after collect")
    assert int(collected.step) == algo.steps_per_update, "collect counts the steps"
    _equal(collected.weights, state.weights, "weights before and after collect")
    parts, parts_metrics = jax.jit(algo.learn)(collected, rollout)
    _close((parts, parts_metrics), (new, metrics), "collect, then learn, against update", 1e-4)

    _check_act(algo, new)
    _check_seeds(algo, key, hyper, env_params, num_updates, state, again, learns)
    floats = jax.tree.map(_float, state.hyper)
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
        _same_type(carry, new_carry, "carry before and after act")
        assert _all_in(space, action, len(shape)), f"act on a batch {shape} leaves {space}"
    first, _ = algo.act(policy, key, obs, algo.initial_carry(()), greedy=True)
    second, _ = algo.act(policy, jax.random.key(2), obs, algo.initial_carry(()), greedy=True)
    _equal(first, second, "greedy actions with two keys")


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
        _close(row, run(keys[i]), f"vmap over seeds, seed {i}, against it alone", 1e-4)
    weights = run(key)[0].weights
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(weights), jax.tree.leaves(first.weights), strict=True):
        name = jax.tree_util.keystr(path)
        assert np.all(np.isfinite(x)), f"weights{name} are not finite after {num_updates} updates"
        assert not learns or np.any(x != y), (
            f"weights{name} do not change in {num_updates} updates: no gradient reaches them"
        )


# ---- probe environments


@pytree
class ProbeParams:
    max_steps: jax.Array = NO_LIMIT


@pytree
class ProbeState:
    time: jax.Array  # steps since reset
    cue: jax.Array  # -1 or 1, drawn at the start


class Known(NamedTuple):
    """What is known of a probe under the best policy, for a batch of B observations."""

    obs: Any  # (B, ...)
    value: Float[Array, " B"]
    action: Any  # (B, ...): the best one; None where actions do not matter
    tolerance: float = 0.0  # by which an action may miss it


@dataclasses.dataclass(frozen=True)
class Probe(Environment):
    """One step, observation 0, reward 1, actions without effect; subclasses change one thing each.

    `kind` is the action space: "discrete" (2 actions), "box" (one number in [-2, 1], so that units and middle matter)
    or "multi_discrete" (2 and 3 actions).
    """

    kind: str = "discrete"
    id: str = dataclasses.field(default="", kw_only=True)

    Params = ProbeParams
    reset_strategy = "dense"

    def __post_init__(self) -> None:
        if self.kind not in ("discrete", "box", "multi_discrete"):
            raise ValueError(f"kind={self.kind!r}: it is 'discrete', 'box' or 'multi_discrete'.")
        if not self.id:
            object.__setattr__(self, "id", f"{type(self).__name__}-{self.kind}")

    def initial(self, key: Array, params: Any) -> ProbeState:
        return ProbeState(jnp.int32(0), jax.random.rademacher(key, (), jnp.result_type(float)))

    def transition(self, key: Array, state: ProbeState, action: Any, params: Any) -> Transition:
        return Transition(state, self.reward(state, action), jnp.bool_(True), jnp.bool_(False), {})

    def reward(self, state: ProbeState, action: Any) -> Float[Array, ""]:
        return jnp.ones_like(state.cue)

    def observe(self, key: Array, state: ProbeState, params: Any) -> Any:
        return jnp.zeros_like(state.cue)[None]

    def observation_space(self, params: Any) -> Space:
        return Box(-1.0, 1.0, (1,))

    def action_space(self, params: Any) -> Space:
        if self.kind == "box":
            return Box(-2.0, 1.0, (1,))
        return Discrete(2) if self.kind == "discrete" else MultiDiscrete((2, 3))

    def best(self, cue: Float[Array, "*batch"]) -> Shaped[Array, "*batch_and_action"]:
        """The action that earns 1: the sign of the cue as an action of this kind."""
        up = (cue > 0).astype(jnp.int32)
        if self.kind == "box":
            return jnp.where(cue > 0, 0.5, -1.25)[..., None]
        return up if self.kind == "discrete" else jnp.stack([1 - up, 2 * up], -1)

    def match(self, action: Any, cue: Float[Array, ""]) -> Float[Array, ""]:
        """1 for the best action, less the further from it."""
        best = self.best(cue)
        if self.kind == "box":
            return 1 - jnp.sum((action - best) ** 2).astype(cue.dtype)
        return jnp.mean(action == best, dtype=cue.dtype)

    def known(self, gamma: float) -> Known:
        """Observations with the value and the action of the best policy there."""
        return Known(jnp.zeros((1, 1)), jnp.ones(1), None)


CUES = np.array([-1.0, 1.0], np.float32)


class ConstantReward(Probe):
    """Value 1: the value loss works at all."""


class ObservationReward(Probe):
    """The reward is the observation, -1 or 1: the value sees the observation."""

    def reward(self, state: ProbeState, action: Any) -> Float[Array, ""]:
        return state.cue

    def observe(self, key: Array, state: ProbeState, params: Any) -> Any:
        return state.cue[None]

    def known(self, gamma: float) -> Known:
        return Known(jnp.asarray(CUES)[:, None], jnp.asarray(CUES), None)


class DelayedReward(Probe):
    """Two steps, observed 0 and 1, with the reward 1 at the end: the discount works."""

    def transition(self, key: Array, state: ProbeState, action: Any, params: Any) -> Transition:
        last = state.time == 1
        return Transition(state, last.astype(state.cue.dtype), last, jnp.bool_(False), {})

    def observe(self, key: Array, state: ProbeState, params: Any) -> Any:
        return (state.time == 1).astype(state.cue.dtype)[None]

    def known(self, gamma: float) -> Known:
        return Known(jnp.array([[0.0], [1.0]]), jnp.array([gamma, 1.0]), None)


class ActionReward(Probe):
    """The reward is for one action, always the same: the policy loss works."""

    def reward(self, state: ProbeState, action: Any) -> Float[Array, ""]:
        return self.match(action, jnp.ones_like(state.cue))

    def known(self, gamma: float) -> Known:
        return Known(jnp.zeros((1, 1)), jnp.ones(1), self.best(jnp.ones(1)), 0.3)


class ObservationActionReward(Probe):
    """The best action is told by the observation: the policy sees it, and actions belong to their observations."""

    def reward(self, state: ProbeState, action: Any) -> Float[Array, ""]:
        return self.match(action, state.cue)

    def observe(self, key: Array, state: ProbeState, params: Any) -> Any:
        return state.cue[None]

    def known(self, gamma: float) -> Known:
        return Known(jnp.asarray(CUES)[:, None], jnp.ones(2), self.best(jnp.asarray(CUES)), 0.3)


@pytree
class TimeLimitParams:
    max_steps: jax.Array = 5


class TimeLimit(Probe):
    """Reward 1 for ever, cut every 5 steps: value 1 / (1 - gamma) for who bootstraps at a time limit, else about 3."""

    Params = TimeLimitParams

    def transition(self, key: Array, state: ProbeState, action: Any, params: Any) -> Transition:
        return Transition(state, self.reward(state, action), jnp.bool_(False), jnp.bool_(False), {})

    def known(self, gamma: float) -> Known:
        return Known(jnp.zeros((1, 1)), jnp.ones(1) / (1 - gamma), None)


@pytree
class TerminationParams:
    max_steps: jax.Array = NO_LIMIT
    probability: jax.Array = 0.2  # of ending, each step


class Termination(Probe):
    """`TimeLimit`'s twin, ending by itself after 5 steps on average: value 1 / (1 - 0.8 gamma)."""

    Params = TerminationParams

    def transition(self, key: Array, state: ProbeState, action: Any, params: Any) -> Transition:
        end = jax.random.bernoulli(key, params.probability)
        return Transition(state, self.reward(state, action), end, jnp.bool_(False), {})

    def known(self, gamma: float) -> Known:
        return Known(jnp.zeros((1, 1)), jnp.ones(1) / (1 - 0.8 * gamma), None)


class Masked(Probe):
    """Four actions; the mask allows the first two (cue -1) or the others. Odd ones earn 1, forbidden ones -10."""

    def reward(self, state: ProbeState, action: Any) -> Float[Array, ""]:
        return jnp.where((action >= 2) == (state.cue > 0), action % 2, -10).astype(state.cue.dtype)

    def observe(self, key: Array, state: ProbeState, params: Any) -> Any:
        return {"obs": jnp.zeros_like(state.cue)[None], "action_mask": (jnp.arange(4) >= 2) == (state.cue > 0)}

    def observation_space(self, params: Any) -> Space:
        return Dict({"obs": Box(-1.0, 1.0, (1,)), "action_mask": Box(0, 1, (4,), jnp.bool_)})

    def action_space(self, params: Any) -> Space:
        return Discrete(4)

    def known(self, gamma: float) -> Known:
        mask = (jnp.arange(4) >= 2) == (CUES[:, None] > 0)
        return Known({"obs": jnp.zeros((2, 1)), "action_mask": mask}, jnp.ones(2), jnp.array([1, 3]))


class Privileged(Probe):
    """`ObservationReward` with the cue in `privileged`: the critic sees it, the policy acts without it."""

    def reward(self, state: ProbeState, action: Any) -> Float[Array, ""]:
        return state.cue

    def observe(self, key: Array, state: ProbeState, params: Any) -> Any:
        return {"obs": jnp.zeros_like(state.cue)[None], "privileged": state.cue[None]}

    def observation_space(self, params: Any) -> Space:
        return Dict({"obs": Box(-1.0, 1.0, (1,)), "privileged": Box(-1.0, 1.0, (1,))})

    def known(self, gamma: float) -> Known:
        return Known({"obs": jnp.zeros((2, 1)), "privileged": jnp.asarray(CUES)[:, None]}, jnp.asarray(CUES), None)


PROBES: tuple[Probe, ...] = (
    ConstantReward(),
    ObservationReward(),
    DelayedReward(),
    ActionReward(),
    ObservationActionReward(),
    TimeLimit(),
    Termination(),
    Masked(),
    Privileged(),
    ObservationActionReward("multi_discrete"),
    ConstantReward("box"),
    ObservationReward("box"),
    DelayedReward("box"),
    ActionReward("box"),
    ObservationActionReward("box"),
    TimeLimit("box"),
    Termination("box"),
)
"""Every probe, in the order in which an algorithm should be made to pass them."""
