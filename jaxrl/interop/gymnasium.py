"""jaxrl environments for code that expects Gymnasium: `to_gymnasium` (one) and `to_gymnasium_vector` (a batch).

Everything is jitted, numpy goes in and out, and actions are checked here, on the host: an action outside its space is
an error that names it. Needs the `gymnasium` package (the extra `gymnasium`).

To import this module registers all ids of jaxrl with Gymnasium, which has no entry points for packages since its 1.0:

    import gymnasium, jaxrl.interop.gymnasium
    env = gymnasium.make("jaxrl/CartPole-v1", render_mode="rgb_array")
    envs = gymnasium.make_vec("jaxrl/CartPole-v1", num_envs=1024)
    env = gymnasium.make("jaxrl.interop.gymnasium:jaxrl/CartPole-v1")        # imports the module by itself
"""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from jaxrl import registry
from jaxrl.environment import NO_LIMIT, Environment, check_params, strongly_typed
from jaxrl.vector_env import VectorEnv, vectorize

METADATA = {"render_modes": ["rgb_array"], "render_fps": 50}


@functools.partial(jax.jit, static_argnums=0)
def _reset(env: Any, key: Any, params: Any) -> Any:
    key, reset_key = jax.random.split(key)
    return key, *env.reset(reset_key, params)


@functools.partial(jax.jit, static_argnums=0)
def _step(env: Any, key: Any, state: Any, action: Any, params: Any) -> Any:
    key, step_key = jax.random.split(key)
    return key, env.step(step_key, state, action, params)


@functools.partial(jax.jit, static_argnums=0)
def _advance(venv: VectorEnv, key: Any, state: Any, action: Any, params: Any) -> Any:
    key, step_key = jax.random.split(key)
    return key, venv.advance(step_key, state, action, params)


@functools.partial(jax.jit, static_argnums=0)
def _restart(env: VectorEnv, key: Any, state: Any, params: Any, mask: Any) -> Any:
    key, restart_key = jax.random.split(key)
    return key, *env.restart(restart_key, state, params, mask)


def _checked(space: spaces.Space, action: Any, name: str) -> Any:
    """`action` as arrays of the space's dtype. Raises ValueError, naming it, if it is no member."""
    if isinstance(space, spaces.Dict):
        if not isinstance(action, dict) or action.keys() != space.keys():
            raise ValueError(f"{name}: the action {action} is not a dict of {sorted(space.keys())}.")
        return {key: _checked(s, action[key], name) for key, s in space.items()}
    if isinstance(space, spaces.Tuple):
        if not isinstance(action, tuple) or len(action) != len(space):
            raise ValueError(f"{name}: the action {action} is not a tuple of {len(space)}.")
        return tuple(_checked(s, a, name) for s, a in zip(space, action, strict=True))
    array, kinds, hint = np.asarray(action), "iu", ""
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
        kinds = "fiu" if np.issubdtype(space.dtype, np.floating) else "iu"
        hint = "; clip it, or wrap the environment in jaxrl.wrappers.ClipAction" if "f" in kinds else ""
    elif isinstance(space, spaces.Discrete):
        low, high = space.start, space.start + space.n - 1
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    else:
        raise ValueError(f"{name}: actions of {space} are not supported.")
    if array.dtype.kind not in kinds or array.shape != space.shape:
        raise ValueError(f"{name}: the action {action!r}, {array.dtype} of shape {array.shape}, is not in {space}.")
    # In the space's precision, or a bound given in float64 would be outside. NaN fails the comparison.
    if "f" in kinds:
        array = array.astype(space.dtype)
    if not np.all((array >= low) & (array <= high)):
        raise ValueError(f"{name}: the action {action!r} is outside {space}{hint}.")
    return array.astype(space.dtype)


def _observed(space: spaces.Space, obs: Any) -> Any:
    """A jax observation as numpy arrays of the space's dtypes, owned by the caller."""
    if isinstance(space, spaces.Dict):
        return {key: _observed(s, obs[key]) for key, s in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_observed(s, o) for s, o in zip(space, obs, strict=True))
    return np.asarray(obs).item() if isinstance(space, spaces.Discrete) else np.array(obs, space.dtype)


def _single_agent(env: Environment) -> None:
    if not isinstance(env, Environment):
        raise TypeError(f"{env!r:.60} is no environment: `env, params = jaxrl.make(id)` makes one.")
    if env.num_agents > 1:
        raise ValueError(f"{env.id} has {env.num_agents} agents; Gymnasium environments have one.")


def _spec(env: Environment, params: Any, **entry_point: Any) -> EnvSpec:
    """`max_episode_steps` is the limit that the environment keeps; None without one, or where levels differ in it."""
    limits = np.unique(params.max_steps)
    limit = int(limits[0]) if len(limits) == 1 and limits[0] < NO_LIMIT else None
    return EnvSpec(f"jaxrl/{(env.id or type(env).__name__).replace('/', '-')}", max_episode_steps=limit, **entry_point)


class GymnasiumEnv(gymnasium.Env):
    """Made by `to_gymnasium`.

    `params` and `state` may be read and set between steps; params keep their shapes and dtypes.
    """

    metadata = METADATA

    def __init__(self, env: Environment, params: Any, seed: int | None, render_mode: str | None) -> None:
        _single_agent(env)
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode={render_mode!r}: it is None or 'rgb_array'.")
        self.env = env
        self.params = strongly_typed(env.default_params if params is None else params)
        check_params(env, self.params)
        self._checked = self.params
        self.state: Any = None
        self.render_mode = render_mode
        self.observation_space = env.observation_space(self.params).to_gymnasium()
        self.action_space = env.action_space(self.params).to_gymnasium()
        make: Any = functools.partial(to_gymnasium, env, params, seed=seed)
        self.spec = _spec(env, self.params, entry_point=make)
        self._seed = seed
        self._key: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode. The seed makes everything that follows repeatable, as the one given when made does."""
        seed, self._seed = (self._seed if seed is None else seed), None
        super().reset(seed=seed, options=options)
        if seed is not None or self._key is None:
            self._key = jax.random.key(int(self.np_random.integers(2**31)))
        if self.params is not self._checked:  # which may be set between episodes
            check_params(self.env, self.params)
            self._checked = self.params
        self._key, obs, self.state = _reset(self.env, self._key, self.params)
        return _observed(self.observation_space, obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One transition. Raises ValueError for an action outside the space, ResetNeeded before the first reset."""
        if self.state is None:
            raise gymnasium.error.ResetNeeded(f"{self.env.id}: call reset() before step().")
        action = _checked(self.action_space, action, self.env.id)
        self._key, ts = _step(self.env, self._key, self.state, action, self.params)
        self.state = ts.state
        obs, reward, terminated, truncated, info = jax.device_get((ts.obs, *ts[2:]))
        info = jax.tree.map(lambda x: x.item() if np.ndim(x) == 0 else np.array(x), info)
        return _observed(self.observation_space, obs), float(reward), bool(terminated), bool(truncated), info

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """An RGB picture, uint8 (height, width, 3), of the current state; None without render_mode."""
        if self.render_mode is None:
            return None
        if self.state is None:
            raise gymnasium.error.ResetNeeded(f"{self.env.id}: call reset() before render().")
        return self.env.render(self.state, self.params)


class GymnasiumVectorEnv(gymnasium.vector.VectorEnv):
    """Made by `to_gymnasium_vector`."""

    def __init__(
        self, venv: VectorEnv, params: Any, seed: int | None, render_mode: str | None, autoreset_mode: AutoresetMode
    ) -> None:
        _single_agent(venv.env)
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode={render_mode!r}: it is None or 'rgb_array'.")
        self.venv = venv
        self.params = strongly_typed(venv.default_params if params is None else params)
        check_params(venv.env, self.params)
        self._checked = self.params
        if params is not None and not venv.batched_params:
            own, usual = ([np.shape(x) for x in jax.tree.leaves(p)] for p in (self.params, venv.env.default_params))
            if any(x == (venv.num_envs, *y) for x, y in zip(own, usual, strict=False)):
                raise ValueError(
                    f"{venv.env.id}: params for each of the {venv.num_envs} slots need "
                    "vectorize(env, num_envs, batched_params=True)."
                )
        self.state: Any = None
        self.num_envs = venv.num_envs
        self.render_mode = render_mode
        self.metadata = {**METADATA, "autoreset_mode": autoreset_mode}
        make: Any = functools.partial(
            to_gymnasium_vector, venv, params=params, seed=seed, autoreset_mode=autoreset_mode
        )
        self.spec = _spec(venv.env, self.params, vector_entry_point=make)
        self._finished = np.zeros(self.num_envs, bool)  # ended, and not started again since
        first = jax.tree.map(lambda x: x[0], self.params) if venv.batched_params else self.params
        self.single_observation_space = venv.env.observation_space(first).to_gymnasium()
        self.single_action_space = venv.env.action_space(first).to_gymnasium()
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._seed = seed
        self._key: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start every slot, or with `options={"reset_mask": bools (num_envs,)}` those alone."""
        seed, self._seed = (self._seed if seed is None else seed), None
        super().reset(seed=seed, options=options)
        if seed is not None or self._key is None:
            self._key = jax.random.key(int(self.np_random.integers(2**31)))
        if self.params is not self._checked:  # which may be set between episodes
            check_params(self.venv.env, self.params)
            self._checked = self.params
        if not (options is None or isinstance(options, dict)):
            raise TypeError(f"options={options!r:.60}: it must be a dict, as {{'reset_mask': ...}}.")
        mask = (options or {}).get("reset_mask")
        if mask is None:
            self._key, obs, self.state = _reset(self.venv, self._key, self.params)
            self._finished[:] = False
        else:
            if np.shape(mask) != (self.num_envs,) or np.asarray(mask).dtype != np.bool_:
                raise ValueError(f"reset_mask={mask!r}: it must be {self.num_envs} booleans.")
            mask = np.asarray(mask)
            self._started("reset(options={'reset_mask': ...})")
            self._key, obs, self.state = _restart(self.venv, self._key, self.state, self.params, mask)
            self._finished &= ~mask
        return _observed(self.observation_space, obs), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step every slot. What is done with a finished one is said by `metadata["autoreset_mode"]`:

        - SAME_STEP: it restarts in this step. `infos` holds the transition's info of the slots that go on (`_name`
          says which) and, if any finished, `final_obs` and `final_info` of those.
        - NEXT_STEP: it restarts in the next step, which takes no notice of its action and pays 0.
        - DISABLED: it restarts by `reset(options={"reset_mask": ...})`. Raises ResetNeeded for one that has not.

        `episode_return` and `episode_length` of the slots that finished are in `final_info`, else in `infos`.
        """
        self._started("step()")
        actions = _checked(self.action_space, actions, self.venv.env.id)
        if self.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP:
            return self._same_step(actions)
        begins = self._finished
        if self.metadata["autoreset_mode"] == AutoresetMode.DISABLED and begins.any():
            raise gymnasium.error.ResetNeeded(
                f"{self.venv.env.id}: slots {np.flatnonzero(begins).tolist()} have ended; reset them before step(), by "
                "reset(options={'reset_mask': ...})."
            )
        self._key, ts = _advance(self.venv, self._key, self.state, actions, self.params)
        self.state = ts.state
        obs, reward, terminated, truncated, info = jax.device_get((ts.obs, *ts[2:]))
        if begins.any():
            self._key, first, self.state = _restart(self.venv, self._key, self.state, self.params, begins)
            obs = jax.tree.map(lambda new, old: _rows_where(begins, new, old), jax.device_get(first), obs)
        terminated, truncated = terminated & ~begins, truncated & ~begins
        self._finished = terminated | truncated
        episode = {k: info.pop(k) for k in ("episode_return", "episode_length")}
        infos = _masked(info, ~begins) | _masked(episode, self._finished)
        reward = np.where(begins, 0.0, reward.astype(np.float64))
        return _observed(self.observation_space, obs), reward, terminated, truncated, infos

    def _same_step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        self._key, ts = _step(self.venv, self._key, self.state, actions, self.params)
        self.state = ts.state
        obs, reward, terminated, truncated, info = jax.device_get((ts.obs, *ts[2:]))
        finished = terminated | truncated
        final_obs, episode = info.pop("final_obs"), {k: info.pop(k) for k in ("episode_return", "episode_length")}
        infos = _masked(info, ~finished)
        if finished.any():
            final = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(finished):
                final[i] = _observed(self.single_observation_space, jax.tree.map(lambda x, i=i: x[i], final_obs))
            final_info = _masked({**info, **episode}, finished)
            infos |= {"final_obs": final, "final_info": final_info}
            infos |= {"_final_obs": finished, "_final_info": finished.copy()}
        obs = _observed(self.observation_space, obs)
        return obs, reward.astype(np.float64), np.array(terminated), np.array(truncated), infos

    def render(self) -> tuple[np.ndarray, ...] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A picture of each slot; None without render_mode."""
        if self.render_mode is None:
            return None
        self._started("render()")
        params, batched = self.params, self.venv.batched_params
        if self.venv.level_fn is not None:
            params, batched = self.state.params, True
        state, params = jax.device_get((self.state.env, params))

        def row(tree, i):
            return jax.tree.map(lambda x: x[i], tree)

        return tuple(
            self.venv.env.render(row(state, i), row(params, i) if batched else params) for i in range(self.num_envs)
        )

    def _started(self, call: str) -> None:
        if self.state is None:
            raise gymnasium.error.ResetNeeded(f"{self.venv.env.id}: call reset() before {call}.")


def _rows_where(mask: np.ndarray, new: Any, old: Any) -> np.ndarray:
    """`new` in the rows where `mask`, else `old`."""
    return np.where(mask.reshape(mask.shape + (1,) * (np.ndim(new) - 1)), new, old)


def _mode(mode: AutoresetMode | str) -> AutoresetMode:
    known = {name: found for found in AutoresetMode for name in (found, found.name, found.value)}
    if mode not in known:
        allowed = ", ".join(found.name for found in AutoresetMode)
        raise ValueError(f"autoreset_mode={mode!r}: it is one of Gymnasium's AutoresetMode, {allowed}.")
    return known[mode]


def _masked(info: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """Gymnasium's batch of infos: each entry beside `_entry`, which says where it is valid; zero elsewhere."""
    if not mask.any():
        return {}
    out: dict[str, Any] = {}
    for name, x in info.items():
        if isinstance(x, dict):
            out[name] = _masked(x, mask)
        else:
            out[name] = _rows_where(mask, x, np.zeros_like(x))
        out[f"_{name}"] = mask.copy()
    return out


def to_gymnasium(
    env: Environment, params: Any = None, *, seed: int | None = None, render_mode: str | None = None
) -> gymnasium.Env:
    """`env` as a `gymnasium.Env`, truncating by itself. `seed` is that of the first reset without one.

    Raises ValueError for several agents or an unknown render_mode (None or "rgb_array").
    """
    return GymnasiumEnv(env, params, seed, render_mode)


def to_gymnasium_vector(
    env: Environment | VectorEnv,
    num_envs: int | None = None,
    params: Any = None,
    *,
    seed: int | None = None,
    render_mode: str | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
) -> gymnasium.vector.VectorEnv:
    """`num_envs` copies of `env` as one `gymnasium.vector.VectorEnv`.

    A `VectorEnv` made by `vectorize` (with a `level_fn`, say) is taken as it is.

    Args:
        autoreset_mode: Gymnasium's `AutoresetMode`, or its name. In SAME_STEP, the quickest, no step is lost;
            Gymnasium's vector observation wrappers take the others: all of them NEXT_STEP, most of them DISABLED.

    Raises ValueError for several agents, an unknown render_mode or autoreset_mode, or a num_envs that is missing or
    contradicts the VectorEnv.
    """
    mode = _mode(autoreset_mode)
    if isinstance(env, VectorEnv):
        if num_envs not in (None, env.num_envs):
            raise ValueError(f"num_envs={num_envs}, but the VectorEnv has {env.num_envs}.")
        return GymnasiumVectorEnv(env, params, seed, render_mode, mode)
    if num_envs is None:
        raise ValueError("to_gymnasium_vector needs num_envs, or a VectorEnv that knows it.")
    _single_agent(env)
    return GymnasiumVectorEnv(vectorize(env, num_envs), params, seed, render_mode, mode)


# ---- by Gymnasium's names


def by_id(jaxrl_id: str, render_mode: str | None = None, seed: int | None = None, **settings: Any) -> gymnasium.Env:
    """What `gymnasium.make("jaxrl/<id>", ...)` calls; `settings` are those of `jaxrl.make`."""
    return to_gymnasium(*registry.make(jaxrl_id, **settings), seed=seed, render_mode=render_mode)


def by_id_vector(
    jaxrl_id: str,
    num_envs: int,
    render_mode: str | None = None,
    seed: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
    **settings: Any,
) -> gymnasium.vector.VectorEnv:
    """What `gymnasium.make_vec("jaxrl/<id>", num_envs, ...)` calls; `settings` are those of `jaxrl.make`."""
    env, params = registry.make(jaxrl_id, **settings)
    return to_gymnasium_vector(env, num_envs, params, seed=seed, render_mode=render_mode, autoreset_mode=autoreset_mode)


def _register() -> None:
    """All ids as `jaxrl/<id>`. Environments end their episodes themselves, so that no limit is registered."""
    for id in registry.environments():
        gymnasium.register(
            f"jaxrl/{id}",
            entry_point=f"{__name__}:by_id",
            vector_entry_point=f"{__name__}:by_id_vector",
            kwargs={"jaxrl_id": id},
        )


_register()
