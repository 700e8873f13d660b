"""The shell of outcome-conditioned behaviour cloning (RvS, Decision Transformer): actions given a return or a goal.

The target return is `Hyper.target_return`, a leaf of the policy, so evaluation at several returns is a `vmap`; an
infinite one stands for the best return of the dataset. A goal is the entry "goal" of the observation. Training needs a
dataset, `datasets.windows`; a learner that is made without one can only act, with weights that were trained before.
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
from jaxrl.vector_env import VectorEnv

OUTCOMES = ("return", "goal")
C = TypeVar("C")


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any
    target: Array  # the target in units of `scale`: a return or, for RvS, the mean reward of a full episode
    scale: Array


def action_loss(space: Space, output: Array, action: Array, valid: Bool[Array, "*batch"]) -> Float[Array, ""]:
    """The mean over `valid` steps of the squared error or, for Discrete actions, of -log softmax(output) [nats]."""
    if isinstance(space, Discrete):
        each = -Categorical(output).log_prob(action)
    else:
        each = jnp.mean((output - action) ** 2, -1)
    return jnp.sum(jnp.where(valid, each, 0)) / jnp.sum(valid)


def with_limit(name: str, config: C, venv: VectorEnv) -> C:
    """`config`, where `max_steps=None` is replaced by the time limit of the environment's default params.

    Raises ValueError where these have no time limit.
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
    """Raise ValueError for an unknown outcome, observations without the goal it needs, or sizes below 1."""
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
"""The Replay of a learner that is made without a dataset."""


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-3
    target_return: jax.Array = jnp.inf  # of a whole episode, when acting; infinite: the best of the dataset
    return_scale: jax.Array = jnp.inf  # divides returns; infinite: the largest absolute return of the dataset
    max_grad_norm: jax.Array = 1e6


def of_one_step(params: Any) -> Any:
    """Params with a time limit of one step; where a wrapper's take theirs from the task inside, inside."""
    if "max_steps" not in {field.name for field in dataclasses.fields(params)}:
        return params.replace(env=of_one_step(params.env))
    return params.replace(max_steps=jnp.ones_like(params.max_steps))


def masked(output: Array, obs: Any, observation_space: Space) -> Array:
    """Logits, where the observation's action mask, if it has one, forbids actions."""
    mask = split_observation(obs, observation_space)[2]
    return output if mask is None else mask_logits(output, mask)


def chosen(output: Array, space: Space, key: Array, greedy: bool) -> Array:
    """The action of a network's output: the output itself in a Box, else the likeliest action or a drawn one."""
    if not isinstance(space, Discrete):
        return output
    return Categorical(output).mode() if greedy else Categorical(output).sample(key)


@dataclasses.dataclass(frozen=True)
class OutcomeLearner(Learner):
    """A `Learner` from windows of a dataset, whose rule also acts.

    Besides `gradient_step` the rule has `act(policy, key, obs, carry, greedy)`, `initial_carry(batch_shape)` and
    `asked(hyper, max_steps)`, a policy's target in an episode of `max_steps` steps. Its gradient step finds the length
    of a full episode as `nets["max_steps"]`.
    """

    counts: bool = False  # the network embeds the time step, for config.max_steps times: those of the default params

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        """The first state; infinite `target_return` and `return_scale` are replaced by those of the dataset.

        Without `Config.max_steps` a full episode is as long as the time limit of `env_params`. Raises ValueError where
        they have none, or one above the number of time steps that the network embeds.
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
        """The length of a full episode: `Config.max_steps`, or the longest time limit of a batch of params.

        Where params are traced their values are unknown and not checked.
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
            params = self.venv.default_params  # without a time limit here, though the params of a run may have one
            state = self.init(key, None, of_one_step(params))
            action, _ = self.act(self.policy(state), key, state.obs, self.initial_carry((n,)), greedy=True)
            return action, jnp.zeros(0)

        steps.check_outputs(space, outputs, (n, *space.shape), (0,))
        return algorithm_of(self.name, self, self.hyper_class, self.config.num_updates)
