"""Trials: several episodes of one task as one long episode, for agents that learn within it (RL^2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.environment import NO_LIMIT, Hints, Transition, pytree, strongly_typed
from jaxrl.spaces import Box, Dict
from jaxrl.telemetry import Plane, Quantity
from jaxrl.wrappers.base import Wrapper
from jaxrl.wrappers.memory import added, with_zero
from jaxrl.wrappers.vectors import flatten, flatten_space


@pytree
class TrialParams:
    """Params of the task distribution, and the length of a trial."""

    env: Any  # the wrapped environment's params
    episodes: jax.Array  # int32, episodes of a trial

    @property
    def max_steps(self) -> Any:
        """The largest length of a trial: `episodes` full episodes; `NO_LIMIT` without a limit or beyond int32."""
        longest = jnp.asarray(self.env.max_steps)
        return jnp.where(longest < NO_LIMIT // self.episodes, longest * self.episodes, NO_LIMIT)


@pytree
class TrialState:
    env: Any  # the wrapped environment's state, of the present episode
    task: Any  # the params of the task, constant during the trial
    time: jax.Array  # int32, steps since the trial began
    episode: jax.Array  # int32, episodes that are over
    begins: jax.Array  # bool, no step of the present episode is done
    action: jax.Array  # (A,) flattened, a discrete one one-hot; zeros before the first
    reward: jax.Array  # () of the last step


@dataclasses.dataclass(frozen=True)
class Trials(Wrapper):
    """A trial: `params.episodes` episodes of one task are one episode of this wrapper; the next trial has another task.

    The observation gets what learning in a trial needs: `previous_action`, `previous_reward`, and `begins`, which is
    1 at the first step of an inner episode (Duan et al. 2016, arXiv:1611.02779, flag the step before). A policy whose
    memory is reset at the end of an episode thus keeps it for the whole trial. A trial ends by termination, as the next
    one has another task. `info` has the inner `episode` of each step, and whether it is over (`episode_over`).

    Tasks are drawn by `task_fn(key, params.env)`, by default the environment's `generate`; without either every trial
    has the params as they are. `reveal(task)` is a vector that critics see (`privileged`), together with the elapsed
    share of the trial: values are then easier to learn, and policies learn faster. Raises ValueError for fewer than one
    episode, or several agents.
    """

    episodes: int = 2  # default of params.episodes
    task_fn: Callable[[Array, Any], Any] | None = None
    reveal: Callable[[Any], Array] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.episodes < 1:
            raise ValueError(f"Trials: episodes={self.episodes} must be at least 1.")
        if self.env.num_agents > 1:
            raise ValueError(f"Trials: {self.id} has {self.env.num_agents} agents; make them slots first.")

    Params = TrialParams

    @property
    def inner(self) -> Any:
        """The environment whose params are the task."""
        kit = self.env.levels
        return kit.env if self.draws and kit is not None else self.env

    @property
    def draws(self) -> bool:
        kit = self.env.levels
        return self.task_fn is None and kit is not None and kit.generate is not None

    @property
    def hints(self) -> Hints:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the wrapped environment, but neither deterministic nor noiseless, as tasks are drawn."""
        return self.env.hints._replace(deterministic=False, noiseless=False, reset="auto")

    @property
    def default_params(self) -> TrialParams:
        return strongly_typed(TrialParams(self.env.default_params, jnp.int32(self.episodes)))

    def task(self, key: Array, params: TrialParams) -> Any:
        """Draws a task."""
        if self.task_fn is not None:
            return self.task_fn(key, params.env)
        kit = self.env.levels
        return params.env if kit is None or kit.generate is None else kit.generate(key, params.env)

    def initial(self, key: Array, params: TrialParams) -> TrialState:
        task_key, key = jax.random.split(key)
        task, zero = self.task(task_key, params), jnp.int32(0)
        action = jnp.zeros(flatten_space(self.action_space(params)).shape[0])
        return TrialState(self.inner.initial(key, task), task, zero, zero, jnp.bool_(True), action, jnp.zeros(()))

    def transition(self, key: Array, state: TrialState, action: Any, params: TrialParams) -> Transition:
        step_key, begin_key = jax.random.split(key)
        ts = self.inner.step(step_key, state.env, action, state.task)
        over = ts.terminated | ts.truncated
        fresh = self.inner.initial(begin_key, state.task)
        inner = jax.tree.map(lambda x, y: jnp.where(over, x, y), fresh, ts.state)
        info = {**ts.info, "episode": state.episode, "episode_over": over}
        episode = state.episode + over
        taken = flatten(self.action_space(params), action).astype(state.action.dtype)
        reward = jnp.asarray(ts.reward).astype(state.reward.dtype)
        after = TrialState(inner, state.task, state.time, episode, over, taken, reward)
        return Transition(after, ts.reward, episode >= params.episodes, jnp.bool_(False), info)

    def observe(self, key: Array, state: TrialState, params: TrialParams) -> dict[str, Any]:
        seen = self.inner.observe(key, state.env, state.task)
        begins = state.begins.astype(state.reward.dtype)
        said = {"previous_action": state.action, "previous_reward": state.reward, "begins": begins}
        if self.reveal is not None:
            share = (state.time / params.max_steps).astype(begins.dtype)
            said["privileged"] = jnp.append(self.reveal(state.task).astype(begins.dtype), share)
        return added(seen, **said)

    def observation_space(self, params: TrialParams) -> Dict:
        of_task = self.inner.default_params if self.inner is not self.env else params.env
        entries = {
            "previous_action": with_zero(flatten_space(self.action_space(params))),
            "previous_reward": Box(-jnp.inf, jnp.inf),
            "begins": Box(0.0, 1.0),
        }
        reveal = self.reveal
        if reveal is not None:
            told = jax.eval_shape(lambda key: reveal(self.task(key, params)), jax.random.key(0))
            entries["privileged"] = Box(-jnp.inf, jnp.inf, (told.shape[0] + 1,))
        return Dict(added(self.inner.observation_space(of_task), **entries))

    def action_space(self, params: TrialParams) -> Any:
        return self.env.action_space(params.env)

    def validate(self, params: TrialParams) -> None:
        self.env.validate(params.env)
        if np.any(np.asarray(params.episodes) < 1):
            raise ValueError(f"{self.id}: episodes={params.episodes}: a trial has at least one.")

    def describe(self, params: TrialParams) -> dict[str, Array]:
        return self.env.describe(params.env)

    def measures(self, params: TrialParams) -> dict[str, dict[str, str]]:
        return self.env.measures(params.env)

    def telemetry(self, state: TrialState, params: TrialParams) -> dict[str, Quantity]:
        return self.inner.telemetry(state.env, state.task)

    def planes(self, telemetry: dict[str, Quantity], params: TrialParams) -> list[Plane]:
        return []  # a trial has several episodes

    def render(self, state: TrialState, params: TrialParams) -> np.ndarray:
        return self.inner.render(state.env, state.task)
