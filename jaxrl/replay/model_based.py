"""Learning from a dataset and from what a model of the environment imagines: what MOPO, MOReL, COMBO and RAVL share.

A model is a function of a batch, `(key, obs (B, ...), action (B, A)) -> Prediction`, actions in the environment's
units: a learned one (`dynamics.predictor`) or the environment itself (`of_environment`). An update rolls the policy out
in it for `horizon` steps from `num_rollouts` states of the dataset, puts the steps into a ring of what was imagined,
which forgets the oldest, and takes `num_updates` gradient steps on batches of which a share `real_ratio` is the
dataset's. What is imagined goes on beyond no end: where the task ends, the next step is from another state of the data.

The learner is soft actor-critic with K critics, whose smallest value counts. What tells the algorithms apart is in
their files: what is made of a prediction that is uncertain (`pessimistic`), and what is added to the critics' loss
(`regulariser`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from jaxrl.environment import Environment
from jaxrl.math import fast_key
from jaxrl.replay import off_policy
from jaxrl.replay.actor_critic import SoftActorCritic, State
from jaxrl.replay.off_policy import Batch, Rollout, Transition
from jaxrl.replay.ring import Replay
from jaxrl.spaces import environment_action


class Prediction(NamedTuple):
    """Of a batch (B, ...)."""

    next_obs: Any
    reward: Float[Array, " B"]
    terminated: Bool[Array, " B"]
    uncertainty: Float[Array, " B"]  # of the model, 0 where it knows


Model = Callable[[Array, Any, Array], Prediction]


def of_environment(env: Environment, params: Any, state_of: Callable[[Any], Any]) -> Model:
    """The environment as its own model, without error; `state_of(obs)` is the state that is observed so."""

    def model(key: Key[Array, ""], obs: Any, action: Array) -> Prediction:
        def step(key: Array, obs: Any, action: Array) -> tuple[Any, Array, Array]:
            after = env.step(key, state_of(obs), action, params)
            return after.obs, after.reward, after.terminated

        obs, reward, terminated = jax.vmap(step)(jax.random.split(key, len(action)), obs, action)
        return Prediction(obs, reward, terminated, jnp.zeros_like(reward))

    return model


def check_config(config: Any) -> None:
    """Raise ValueError for sizes that cannot be."""
    off_policy.check_config(config)
    for name in ("num_critics", "num_rollouts", "horizon"):
        if getattr(config, name) < 1:
            raise ValueError(f"{name}={getattr(config, name)}: it must be at least 1.")
    if not 0 <= config.real_ratio <= 1:
        raise ValueError(f"real_ratio={config.real_ratio}: it must be a share, from 0 to 1.")
    steps = config.num_rollouts * config.horizon
    if config.buffer_size < steps:
        raise ValueError(
            f"buffer_size={config.buffer_size}: it must hold what an update imagines, num_rollouts * horizon = {steps}."
        )


def num_real(config: Any) -> int:
    """Rows of a batch that are the dataset's; they come first."""
    return round(config.real_ratio * config.batch_size)


def mixed(memory: Replay, imagined: Replay, config: Any) -> Replay:
    """A memory whose state is the ring of what was imagined, and whose batches are of both."""

    def sample(key: Key[Array, ""], state: Any, n: int) -> Transition:
        real_key, imagined_key = jax.random.split(key)
        real, parts = num_real(config), []
        if real:
            parts.append(Transition(*memory.sample(real_key, (), real)[: len(Transition._fields)]))
        if real < n:
            parts.append(imagined.sample(imagined_key, state, n - real))
        return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)

    return Replay(imagined.init, None, sample)


def memory_of(memory: Replay | None, model: Model | None, ring: Replay, config: Any, name: str) -> Replay:
    """What a learner draws from. Raises ValueError for a dataset without a model or a model without a dataset."""
    if (memory is None) != (model is None):
        have, lack = ("a memory", "a model") if model is None else ("a model", "a memory")
        raise ValueError(f"{name}: {have} without {lack}; give both, or neither, and it acts and fills its own.")
    if memory is None:
        return ring
    if memory.add is not None:
        raise ValueError(f"{name}: the memory takes steps in; rollouts begin from a dataset, `datasets.stored`.")
    return mixed(memory, ring, config)


def td_target(
    reward: Float[Array, " B"],
    terminated: Bool[Array, " B"],
    next_q: Float[Array, "K B"],
    next_log_prob: Float[Array, " B"],
    alpha: Float[Array, ""] | float,
    gamma: Float[Array, ""] | float,
) -> Float[Array, " B"]:
    """r + gamma (1 - terminated) (min_k next_q[k] - alpha log pi)."""
    return reward + gamma * jnp.where(terminated, 0, jnp.min(next_q, 0) - alpha * next_log_prob)


def critic_loss(q: Float[Array, "K B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """The mean squared error of each critic, added up."""
    return jnp.sum(jnp.mean((q - target) ** 2, -1))


@dataclasses.dataclass(frozen=True)
class ModelBased(SoftActorCritic):
    """`ActorCritic` on a dataset and a model; without them, it acts. Of `replay`, `ring` holds what was imagined."""

    memory: Replay | None
    model: Model | None
    ring: Replay

    # ---- what an algorithm changes

    def pessimistic(self, predicted: Prediction, hyper: Any) -> Prediction:
        """What is stored of a prediction."""
        return predicted

    def regulariser(
        self, own: Any, weights: Any, key: Array, batch: Batch, q: Float[Array, "K B"], hyper: Any
    ) -> tuple[Array | float, dict[str, Array]]:
        """`(loss, report)` that the critics' squared error is increased by."""
        return 0.0, {}

    # ---- imagining

    def collect(self, state: State) -> tuple[State, Rollout | None]:
        if self.memory is None:
            return super().collect(state)
        key, own_key = jax.random.split(state.key)
        imagined = self.imagine(fast_key(own_key), state)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), imagined)
        return state.replace(key=key, replay=self.ring.add(state.replay, flat)), None

    def imagine(self, key: Key[Array, ""], state: State) -> Transition:
        """The policy in the model from states of the data: (horizon, num_rollouts, ...)."""
        memory: Any = self.memory
        model: Any = self.model
        policy, n = self.policy(state), self.config.num_rollouts
        start_key, key = jax.random.split(key)

        def step(obs: Any, key: Array) -> tuple[Any, Transition]:
            act_key, model_key, new_key = jax.random.split(key, 3)
            action = self.explore(policy, act_key, obs)
            predicted = model(model_key, obs, environment_action(self.action_space, action))
            predicted = self.pessimistic(Prediction(*predicted), state.hyper)
            next_obs, reward, terminated, _ = predicted

            def begun(new: Array, old: Array) -> Array:
                return jnp.where(terminated.reshape(-1, *[1] * (new.ndim - 1)), new, old)

            onward = jax.tree.map(begun, memory.sample(new_key, (), n).obs, next_obs)
            return onward, Transition(obs, action, reward, terminated, next_obs)

        start = memory.sample(start_key, (), n).obs
        return jax.lax.scan(step, start, jax.random.split(key, self.config.horizon))[1]

    # ---- losses

    def critic_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Any
    ) -> tuple[Array, dict[str, Array]]:
        next_key, own_key = jax.random.split(key)
        action, log_prob = self.distribution(weights["actor"], batch.next_obs).sample_and_log_prob(next_key)
        next_q = self.act_values(target_weights["critic"], batch.next_obs, action)
        alpha = jnp.exp(weights["log_alpha"])
        target = td_target(batch.reward, batch.terminated, next_q, log_prob, alpha, hyper.gamma)
        q = self.act_values(own, batch.obs, batch.action)
        report = {"q_value": jnp.mean(q), "next_q_value": jnp.mean(next_q), "q_deviation": jnp.mean(jnp.std(q, 0))}
        more, own_report = self.regulariser(own, weights, own_key, batch, q, hyper)
        return critic_loss(q, target) + more, {**report, **own_report}

    def actor_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Any
    ) -> tuple[Array, dict[str, Array]]:
        action, log_prob = self.distribution(own, batch.obs).sample_and_log_prob(key)
        q = jnp.min(self.act_values(weights["critic"], batch.obs, action), 0)
        loss = jnp.mean(jnp.exp(weights["log_alpha"]) * log_prob - q)
        return loss, {"entropy": -jnp.mean(log_prob)}
