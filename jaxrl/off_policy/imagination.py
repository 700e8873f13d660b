"""The shell of offline model-based learners (MOPO, MOReL, COMBO, RAVL): they learn from a dataset and model rollouts.

A model is a function of a batch, `(key, obs (B, ...), action (B, A)) -> Prediction`, with actions in the environment's
units: a learned one (`dynamics.predictor`) or the environment itself (`of_environment`). An update

1. rolls the policy out in the model for `horizon` steps from `num_rollouts` states of the dataset,
2. stores these steps in a ring buffer, which forgets the oldest,
3. takes `num_updates` gradient steps on batches of which a share `real_ratio` comes from the dataset.

A rollout does not go on beyond a predicted end of the task: its next step starts from another state of the dataset.
The gradient step itself is an algorithm's `learner.Rule`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from jaxrl.algorithm import Algorithm, check_at_least_one
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Transition
from jaxrl.environment import Environment, pytree
from jaxrl.math import fast_key
from jaxrl.nn.networks import Network
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.off_policy import learner, steps
from jaxrl.off_policy.learner import Acting, Learner, Rule, State, normalized
from jaxrl.off_policy.steps import Rollout
from jaxrl.replay.ring import Replay, uniform
from jaxrl.spaces import environment_action
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    num_updates: int = 1000  # gradient steps between rollouts; where it acts, at most: see Hyper.replay_ratio
    buffer_size: int = 1_250_000  # transitions kept: of model rollouts or, without a dataset, of the environment
    hidden: tuple[int, ...] = (256, 256, 256)  # widths of all networks
    num_rollouts: int = 50_000  # model rollouts of an update, each from a state of the dataset
    horizon: int = 5  # steps of a rollout
    real_ratio: float = 0.05  # share of a batch that comes from the dataset
    num_critics: int = 2  # critics; the smallest of their values is used

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "num_critics", "num_rollouts", "horizon")
        if not 0 <= self.real_ratio <= 1:
            raise ValueError(f"real_ratio={self.real_ratio}: it must be a share, from 0 to 1.")
        imagined = self.num_rollouts * self.horizon
        if self.buffer_size < imagined:
            raise ValueError(
                f"buffer_size={self.buffer_size}: it must hold what an update imagines, num_rollouts * horizon = "
                f"{imagined}."
            )


@pytree
class Hyper(learner.SoftHyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    replay_ratio: jax.Array = 1.0  # where it acts: gradient steps an environment step; infinite: num_updates


class Prediction(NamedTuple):
    """What a model predicts for a batch of observations and actions, (B, ...)."""

    next_obs: Any
    reward: Float[Array, " B"]
    terminated: Bool[Array, " B"]
    uncertainty: Float[Array, " B"]  # of the prediction; 0: the model is exact


Model = Callable[[Array, Any, Array], Prediction]


def of_environment(env: Environment, params: Any, state_of: Callable[[Any], Any]) -> Model:
    """The environment as a model without error; `state_of(obs)` must give the state behind an observation."""

    def model(key: Key[Array, ""], obs: Any, action: Array) -> Prediction:
        def step(key: Array, obs: Any, action: Array) -> tuple[Any, Array, Array]:
            after = env.step(key, state_of(obs), action, params)
            return after.obs, after.reward, after.terminated

        obs, reward, terminated = jax.vmap(step)(jax.random.split(key, len(action)), obs, action)
        return Prediction(obs, reward, terminated, jnp.zeros_like(reward))

    return model


Pessimism = Callable[[Prediction, Any], Prediction]
"""`(prediction, hyper) -> prediction` as it is stored, with a penalty for its uncertainty."""


def num_real(config: Any) -> int:
    """How many rows of a batch come from the dataset; they are the first."""
    return round(config.real_ratio * config.batch_size)


def mixed(data: Replay, imagined: Replay, config: Any) -> Replay:
    """A replay whose state is the ring buffer of model rollouts, and whose batches draw from that and the dataset."""

    def sample(key: Key[Array, ""], state: Any, n: int) -> Transition:
        real_key, imagined_key = jax.random.split(key)
        real, parts = num_real(config), []
        if real:
            parts.append(Transition(*data.sample(real_key, (), real)[: len(Transition._fields)]))
        if real < n:
            parts.append(imagined.sample(imagined_key, state, n - real))
        return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)

    return Replay(imagined.init, None, sample, normalizer=data.normalizer)


@dataclasses.dataclass(frozen=True)
class ModelLearner(Learner):
    """A `Learner` that collects from a model, not the environment; `state.replay` holds the rollouts."""

    data: Any = None  # the dataset's Replay
    model: Any = None
    ring: Any = None  # the Replay of model rollouts
    pessimistic: Any = None  # Pessimism or None

    def collect(self, state: State) -> tuple[State, Rollout | None]:
        key, own_key = jax.random.split(state.key)
        imagined = self.imagine(fast_key(own_key), state)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), imagined)
        return state.replace(key=key, replay=self.ring.add(state.replay, flat)), None

    def imagine(self, key: Key[Array, ""], state: State) -> Transition:
        """Rollouts of the policy in the model from states of the dataset: (horizon, num_rollouts, ...)."""
        policy, n = self.policy(state), self.config.num_rollouts
        start_key, key = jax.random.split(key)

        def step(obs: Any, key: Array) -> tuple[Any, Transition]:
            act_key, model_key, new_key = jax.random.split(key, 3)
            action = self.explore(policy, act_key, normalized(policy.normalizer, obs))
            predicted = Prediction(*self.model(model_key, obs, environment_action(self.action_space, action)))
            if self.pessimistic is not None:
                predicted = self.pessimistic(predicted, state.hyper)
            next_obs, reward, terminated, _ = predicted

            def begun(new: Array, old: Array) -> Array:
                return jnp.where(terminated.reshape(-1, *[1] * (new.ndim - 1)), new, old)

            onward = jax.tree.map(begun, self.data.sample(new_key, (), n).obs, next_obs)
            return onward, Transition(obs, action, reward, terminated, next_obs)

        start = self.data.sample(start_key, (), n).obs
        return jax.lax.scan(step, start, jax.random.split(key, self.config.horizon))[1]


def algorithm(
    name: str,
    venv: VectorEnv,
    config: Any,
    hyper: type,
    rule: Rule,
    actor: Acting,
    *,
    replay: Replay | Dataset | None = None,
    model: Model | None = None,
    pessimistic: Pessimism | None = None,
    optimizer: OptimizerLike | None = None,
    critic: Network | None = None,
) -> Algorithm:
    """The Algorithm of a rule that learns from a dataset and a model.

    Without dataset and model it acts and fills a replay buffer, as `learner.algorithm` says, which explains the other
    arguments, too.

    Args:
        replay: a dataset, or what `datasets.stored` makes of one. Give it and `model`, or neither.
        model: predicts the steps of rollouts; see `Model`.

    `make` raises ValueError for an action space that is not a vector, several agents, networks whose outputs do not
    fit, a dataset without a model, a model without a dataset, and a replay that takes steps in.
    """
    if (replay is None) != (model is None):
        have, lack = ("a replay", "a model") if model is None else ("a model", "a replay")
        raise ValueError(f"{name}: {have} without {lack}; give both, or neither, and it acts and fills its own.")
    num_critics = config.num_critics
    if replay is None:
        given = {"optimizer": optimizer, "critic": critic, "num_critics": num_critics}
        return learner.algorithm(name, venv, config, hyper, rule, actor, **given)
    params, ring = venv.env.default_params, uniform(config.buffer_size)
    observation_space, space = venv.env.observation_space(params), venv.env.action_space(params)
    data = steps.as_replay(name, replay, space, lambda: ring)
    if data.add is not None:
        raise ValueError(f"{name}: this replay takes steps in; rollouts begin from a dataset, `datasets.stored`.")
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    shell = venv, observation_space, space, rule, actor, mixed(data, ring, config), chosen
    static = ModelLearner(name, config, hyper, *shell, data=data, model=model, ring=ring, pessimistic=pessimistic)
    return static.algorithm(critic, num_critics)
