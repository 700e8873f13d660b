"""What learners share that clone a dataset's actions given what came of them: a return or a goal.

    loss = mean (mu(s, outcome) - a)^2  of a Box, mean -log pi(a | s, outcome)  of a Discrete space

The outcome of a return is asked for by `Hyper.target_return`, a leaf of the policy, so evaluation at several is a
`vmap`; as long as it is infinite it is the best episode's of the data. A goal is the entry "goal" of the observation.
They need a dataset, `datasets.windows`: made without one, a learner acts by weights that it is given, and refuses to
learn.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import check_at_least_one, starting_values
from jaxrl.data.datasets import Windows
from jaxrl.environment import NO_LIMIT, split_observation
from jaxrl.nn.distributions import Categorical, mask_logits
from jaxrl.replay.actor_critic import ActorCritic, State
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Dict, Discrete, Space
from jaxrl.vectorize import VectorEnv

OUTCOMES = ("return", "goal")
C = TypeVar("C")


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any
    target: Array  # the return that is asked for, in units of `scale`
    scale: Array


def action_loss(space: Space, output: Array, action: Array, valid: Bool[Array, "*batch"]) -> Float[Array, ""]:
    """The mean over steps that are `valid`: squared error, or the negative log-likelihood [nats] of logits (..., n)."""
    if isinstance(space, Discrete):
        each = -Categorical(output).log_prob(action)
    else:
        each = jnp.mean((output - action) ** 2, -1)
    return jnp.sum(jnp.where(valid, each, 0)) / jnp.sum(valid)


def with_limit(name: str, config: C, venv: VectorEnv) -> C:
    """`config` with the limit of the task's default params in the place of `max_steps=None`.

    Raises ValueError where there is none.
    """
    settings: Any = config
    if settings.max_steps is not None:
        return config
    with jax.ensure_compile_time_eval():
        limit = int(np.max(np.asarray(venv.default_params.max_steps)))
    if limit == NO_LIMIT:
        raise ValueError(f"{name}: {venv.env.id} has no time limit: give Config.max_steps.")
    return dataclasses.replace(settings, max_steps=limit)


def check_outcome(name: str, config: Any, observation_space: Space) -> None:
    """Raise ValueError for an unknown outcome, a goal that is not observed, or sizes below 1."""
    check_at_least_one(config, "num_envs", "num_updates", "batch_size", "max_steps")
    if config.outcome not in OUTCOMES:
        raise ValueError(f"outcome={config.outcome!r}: choose {' or '.join(OUTCOMES)}.")
    if config.outcome == "goal" and not (isinstance(observation_space, Dict) and "goal" in observation_space.spaces):
        raise ValueError(f"{name}: outcome='goal' needs observations with an entry 'goal', not {observation_space}.")


def _nothing(item: Any = None) -> tuple:
    return ()


NO_DATASET = Replay(_nothing, None, None)  # pyright: ignore[reportArgumentType]
"""What is in the place of a dataset where there is none."""


class OutcomeConditioned(ActorCritic):
    """One network that predicts actions, `output(weights, windows, scale)`, and no more."""

    deployed: ClassVar = "greedy"
    order: ClassVar[tuple[str, ...]] = ("actor",)
    tracked: ClassVar[tuple[str, ...]] = ()

    def output(self, weights: Any, windows: Windows, scale: Array | float) -> Array:
        """Actions in units of the box or logits of each step of windows (..., K)."""
        raise NotImplementedError

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        """What is infinite of `target_return` and `return_scale` is the best of the data, and the largest there."""
        hyper, env_params = starting_values(self.hyper_class, self.venv, hyper, env_params)
        low, high = self.replay.returns or (0.0, 1.0)
        target, scale = hyper.target_return, hyper.return_scale
        target = jnp.where(jnp.isinf(target), jnp.asarray(high, target.dtype), target)
        scale = jnp.where(jnp.isinf(scale), jnp.asarray(max(abs(low), abs(high)) or 1.0, scale.dtype), scale)
        return super().init(key, hyper.replace(target_return=target, return_scale=scale), env_params)

    def actor_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Windows, hyper: Any
    ) -> tuple[Array, dict[str, Array]]:
        output = self.output(own, batch, hyper.return_scale)
        return action_loss(self.action_space, output, batch.action, batch.valid), {}

    def initial(self, name: str, key: Array, item: Any, hyper: Any) -> Any:
        one = jnp.zeros(1)
        obs, action = jax.tree.map(lambda x: x[None], (self.seen(item.obs), item.action))
        windows = Windows(obs, action, one, jnp.zeros(1, jnp.int32), one == 0)
        return self.init_network(key, windows, hyper.return_scale)

    def init_network(self, key: Array, windows: Windows, scale: Array | float) -> Any:
        raise NotImplementedError

    def seen(self, obs: Any) -> Any:
        """What of an observation is in the dataset's."""
        return obs

    def masked(self, output: Array, obs: Any) -> Array:
        mask = split_observation(obs, self.observation_space)[2]
        return output if mask is None else mask_logits(output, mask)

    def chosen(self, output: Array, key: Array, greedy: bool) -> Array:
        if not isinstance(self.action_space, Discrete):
            return output
        return Categorical(output).mode() if greedy else Categorical(output).sample(key)

    def collect(self, state: State) -> tuple[State, None]:
        if self.replay is NO_DATASET:
            raise ValueError(
                f"{self.name} learns from a dataset alone: make(env, config, datasets.windows(dataset, action_space, "
                "length)). Without one it only acts."
            )
        return state, None

    def policy(self, state: State) -> Any:
        hyper = state.hyper
        return Policy(state.weights["actor"], hyper.target_return / hyper.return_scale, hyper.return_scale)

    def outputs(self, key: Array) -> tuple[Any, Any]:
        state, n = self.init(key), self.config.num_envs
        action, _ = self.act(self.policy(state), key, state.obs, self.initial_carry((n,)), greedy=True)
        return action, jnp.zeros((self.num_critics, n))
