"""Cloning of a dataset's actions given what came of them, a return or a goal: what its learners share.

The return that is asked for is `Hyper.target_return`, a leaf of the policy, so evaluation at several is a `vmap`; as
long as it is infinite it is the best episode's of the data. A goal is the entry "goal" of the observation. They need a
dataset, `datasets.windows`: made without one, a learner acts by weights that it is given, and refuses to learn.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrl.algorithm import Algorithm, algorithm_of, check_at_least_one, starting_values
from jaxrl.environment import NO_LIMIT, is_concrete, pytree, split_observation
from jaxrl.nn.distributions import Categorical, mask_logits
from jaxrl.off_policy import steps
from jaxrl.off_policy.learner import Learner, State
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Dict, Discrete, Space
from jaxrl.vectorize import VectorEnv

OUTCOMES = ("return", "goal")
C = TypeVar("C")


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any
    target: Array  # what is asked for, in units of `scale`: a return, of RvS the mean reward of a full episode
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
    check_at_least_one(config, "num_envs", "num_updates", "batch_size")
    if config.max_steps is not None:
        check_at_least_one(config, "max_steps")
    if config.outcome not in OUTCOMES:
        raise ValueError(f"outcome={config.outcome!r}: choose {' or '.join(OUTCOMES)}.")
    if config.outcome == "goal" and not (isinstance(observation_space, Dict) and "goal" in observation_space.spaces):
        raise ValueError(f"{name}: outcome='goal' needs observations with an entry 'goal', not {observation_space}.")


def _nothing(item: Any = None) -> tuple:
    return ()


NO_DATASET = Replay(_nothing, None, None)  # pyright: ignore[reportArgumentType]
"""What is in the place of a dataset where there is none."""


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-3
    target_return: jax.Array = jnp.inf  # of a whole episode, when it acts; infinite: the best of the data
    return_scale: jax.Array = jnp.inf  # what returns are divided by; infinite: the largest of the data, either sign
    max_grad_norm: jax.Array = 1e6


def masked(output: Array, obs: Any, observation_space: Space) -> Array:
    """Logits of the allowed actions alone, if there is a mask."""
    mask = split_observation(obs, observation_space)[2]
    return output if mask is None else mask_logits(output, mask)


def chosen(output: Array, space: Space, key: Array, greedy: bool) -> Array:
    """The action of an output: itself in a Box, else the likeliest or a drawn one."""
    if not isinstance(space, Discrete):
        return output
    return Categorical(output).mode() if greedy else Categorical(output).sample(key)


@dataclasses.dataclass(frozen=True)
class OutcomeLearner(Learner):
    """A `Learner` on windows of a dataset, whose rule is also what acts: `act(policy, key, obs, carry, greedy)`,
    `initial_carry(batch_shape)` and `asked(hyper, max_steps)`, the target of a policy in an episode of so many steps.

    How long a full episode is, the rule's gradient step finds as `max_steps` beside its networks.
    """

    counts: bool = False  # the network tells the times of config.max_steps apart, which are the default params'

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        """An infinite `target_return` becomes the best return of the data, an infinite `return_scale` the largest.

        Without `Config.max_steps` a full episode is as long as `env_params` say. Raises ValueError where they say
        nothing, or more than the network tells apart.
        """
        max_steps = self.max_steps(env_params)
        hyper, env_params = starting_values(self.hyper_class, self.venv, hyper, env_params)
        low, high = self.replay.returns or (0.0, 1.0)
        target, scale = hyper.target_return, hyper.return_scale
        target = jnp.where(jnp.isinf(target), jnp.asarray(high, target.dtype), target)
        scale = jnp.where(jnp.isinf(scale), jnp.asarray(max(abs(low), abs(high)) or 1.0, scale.dtype), scale)
        state = super().init(key, hyper.replace(target_return=target, return_scale=scale), env_params)
        return state.replace(extra={"max_steps": max_steps})

    def max_steps(self, env_params: Any) -> Int[Array, ""]:
        """The length of a full episode: `Config.max_steps`, or the longest limit among these params.

        Under a trace of which the params are an argument, their values are not known and not checked.
        """
        env_id, most = self.venv.env.id, self.config.max_steps
        if most is not None and not self.counts:
            return jnp.int32(most)
        with jax.ensure_compile_time_eval():
            limit = (self.venv.default_params if env_params is None else env_params).max_steps
        known = int(np.max(np.asarray(limit))) if is_concrete(limit) else None
        if known == NO_LIMIT:
            raise ValueError(f"{self.name}: {env_id} has no time limit: give Config.max_steps, or params with a limit.")
        if most is not None and known is not None and known > most:
            raise ValueError(
                f"{self.name}: the params of this run have max_steps={known}, above the {most} of {env_id}'s default "
                f"params, so many times the network tells apart; give Config.max_steps={known}."
            )
        return jnp.max(jnp.asarray(limit))

    def collect(self, state: State) -> tuple[State, None]:
        if self.replay is NO_DATASET:
            raise ValueError(
                f"{self.name} learns from a dataset alone: make(env, config, replay=datasets.windows(dataset, "
                "action_space, length)). Without one it only acts."
            )
        return state, None

    def policy(self, state: State) -> Any:
        target = self.rule.asked(state.hyper, state.extra["max_steps"])
        return Policy(state.weights["actor"], target, state.hyper.return_scale)

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Any:
        return self.rule.initial_carry(batch_shape)

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        return self.rule.act(policy, key, obs, carry, greedy)

    def algorithm(self) -> Algorithm:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The Algorithm. Raises ValueError for a network whose outputs do not fit."""
        n, space = self.config.num_envs, self.action_space

        def outputs(key: Array) -> tuple[Any, Any]:
            params = self.venv.default_params  # of which a run's may have a limit where these have none
            state = self.init(key, None, params.replace(max_steps=jnp.ones_like(params.max_steps)))
            action, _ = self.act(self.policy(state), key, state.obs, self.initial_carry((n,)), greedy=True)
            return action, jnp.zeros(0)

        steps.check_outputs(space, outputs, (n, *space.shape), (0,))
        return algorithm_of(self.name, self, self.hyper_class, self.config.num_updates)
