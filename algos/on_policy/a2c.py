"""Advantage actor-critic.

The synchronous form of Mnih et al. (2016), "Asynchronous methods for deep reinforcement learning" (arXiv:1602.01783):
every few steps of all environments one gradient step on the rollout,

    E[-log pi(a|s) A - ent_coef H(pi(.|s)) + vf_coef (G - V(s))^2 / 2],    A = G - V(s) held fixed

with G the rewards up to the end of the rollout and the value of the state after it, which is gae_lambda = 1, as in the
paper; smaller values are generalised advantage estimates (Schulman et al. 2016).

Deviations: one synchronous learner; Adam (eps 1e-5) instead of RMSprop, as in `ppo.py`, from which this differs by the
loss and by the single step on the whole batch; separate actor and critic; episodes cut by a time limit bootstrap from
their final observation; continuous policies act in units of the action box. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxrl.algorithm import (
    Algorithm,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    shared,
    spaces_of,
    starting_values,
)
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.distributions import Distribution, num_outputs, of_space
from jaxrl.nn.losses import normalized
from jaxrl.nn.networks import ActorCritic
from jaxrl.nn.optim import Optimizer, OptimizerLike, OptimizerState, annealed, optimizer_of
from jaxrl.returns import gae
from jaxrl.rollout import Ends, rollout, successor_values
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space, environment_action
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 16  # environments stepped together
    num_steps: int = 8  # steps of each in a rollout
    hidden: tuple[int, ...] = (64, 64)  # widths of actor and critic
    activation: str = "tanh"
    normalize_advantage: bool = False
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-5  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-3
    anneal_steps: jax.Array = 0  # environment steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    gae_lambda: jax.Array = 1.0  # 1: returns up to the end of the rollout
    ent_coef: jax.Array = 0.01
    vf_coef: jax.Array = 0.5
    max_grad_norm: jax.Array = 0.5


@pytree
class A2CState:
    key: jax.Array
    hyper: Hyper
    env_params: Any
    env_state: Any
    obs: Any  # (N, ...)
    step: jax.Array  # environment steps done
    weights: Any
    optimizer: OptimizerState


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    action: Array  # as sampled, before clipping to the box
    value: Array
    reward: Array
    terminated: Array
    truncated: Array
    next_value: Array  # of the true successor, final_obs where truncated
    ends: Ends


class Batch(NamedTuple):
    """What the gradient step sees."""

    obs: Any
    action: Array
    advantage: Array
    target: Array


def policy_loss(log_prob: Float[Array, " B"], advantage: Float[Array, " B"]) -> Float[Array, ""]:
    """The policy gradient as the gradient of a loss (Mnih et al. 2016, section 4): the advantage is a constant."""
    return -jnp.mean(log_prob * advantage)


def loss(
    weights: Any,
    batch: Batch,
    hyper: Hyper,
    config: Config,
    network: nn.Module,
    observation_space: Space,
    space: Space,
    policy_loss: Callable[..., Array] = policy_loss,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The whole objective of one rollout and what to report of it."""
    outputs: Any = network.apply(weights, batch.obs, method="actor")
    value: Any = network.apply(weights, batch.obs, method="critic")
    pi = of_space(space, outputs, split_observation(batch.obs, observation_space)[2])
    advantage = normalized(batch.advantage) if config.normalize_advantage else batch.advantage
    actor = policy_loss(pi.log_prob(batch.action), advantage)
    critic = 0.5 * jnp.mean((value - batch.target) ** 2)
    entropy = jnp.mean(pi.entropy())
    total = actor + hyper.vf_coef * critic - hyper.ent_coef * entropy
    return total, {"loss": total, "policy_loss": actor, "value_loss": critic, "entropy": entropy}


@dataclasses.dataclass(frozen=True)
class _A2C:
    """The static half; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    network: nn.Module
    observation_space: Space
    action_space: Space
    optimizer: Optimizer
    loss: Callable[..., Any] | None = None  # in place of `loss`

    def distribution(self, weights: Any, obs: Any) -> Distribution:
        outputs: Any = self.network.apply(weights, obs, method="actor")
        return of_space(self.action_space, outputs, split_observation(obs, self.observation_space)[2])

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> A2CState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        key, weights_key, reset_key = jax.random.split(key, 3)
        obs, env_state = self.venv.reset(reset_key, env_params)
        first = jax.tree.map(lambda x: x[0], obs)
        weights = self.network.init(weights_key, first)
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        return A2CState(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            optimizer=self.optimizer.init(weights, hyper.learning_rate),
        )

    def collect(self, state: A2CState) -> tuple[A2CState, Rollout]:
        def act(key, obs, carry):
            action = self.distribution(state.weights, obs).sample(key)
            return environment_action(self.action_space, action), action, carry

        def critic(obs):
            return self.network.apply(state.weights, obs, method="critic")

        new_state, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        # What was not needed to act is computed here, in one batch.
        value: Any = critic(steps.obs)
        return new_state, Rollout(
            obs=steps.obs,
            action=steps.output,
            value=value,
            reward=steps.reward,
            terminated=steps.terminated,
            truncated=steps.truncated,
            next_value=successor_values(critic, value, new_state.obs, steps.next_obs, steps.truncated),
            ends=steps.ends,
        )

    def learn(self, state: A2CState, rollout: Rollout) -> tuple[A2CState, dict[str, Array]]:
        config, hyper = self.config, state.hyper
        advantage = gae(
            rollout.reward,
            rollout.value,
            rollout.next_value,
            rollout.terminated,
            rollout.truncated,
            hyper.gamma,
            hyper.gae_lambda,
        )
        target = advantage + rollout.value
        steps = config.num_steps * config.num_envs
        batch = Batch(rollout.obs, rollout.action, advantage, target)
        batch = jax.tree.map(lambda x: x.reshape(steps, *x.shape[2:]), batch)
        flat, unravel = ravel_pytree(state.weights)
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)
        grads, report = jax.grad(self.loss or loss, has_aux=True)(
            state.weights, batch, hyper, config, self.network, self.observation_space, self.action_space
        )
        flat, optimizer, report["grad_norm"] = self.optimizer.descend(
            flat, state.optimizer, grads, learning_rate, hyper.max_grad_norm
        )
        metrics = {
            **rollout.ends.metrics(),
            **report,
            "explained_variance": 1 - jnp.var(target - rollout.value) / jnp.maximum(jnp.var(target), 1e-8),
            "learning_rate": learning_rate,
        }
        return state.replace(weights=unravel(flat), optimizer=optimizer), metrics

    def policy(self, state: A2CState) -> Any:
        return state.weights

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        pi = self.distribution(policy, obs)
        return environment_action(self.action_space, pi.mode() if greedy else pi.sample(key)), carry


def a2c_parts(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
    loss: Callable[..., Any] | None = None,
) -> _A2C:
    """The learner of `make`, with the same arguments, for algorithms that differentiate through its parts."""
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("a2c", venv, Discrete, MultiDiscrete, Box)
    outputs = num_outputs(action_space)
    continuous = isinstance(action_space, Box)
    if network is None:
        network = ActorCritic(observation_space, outputs, continuous, config.hidden, config.activation)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    a2c = _A2C(config, venv, network, observation_space, action_space, chosen, loss)
    state = jax.eval_shape(a2c.init, jax.random.key(0))
    head, value = jax.eval_shape(lambda s: network.apply(s.weights, s.obs), state)
    head_shape = (head[0] if continuous else head).shape
    if head_shape[-1] != outputs or value.shape != (config.num_envs,):
        raise ValueError(
            f"network gives outputs {head_shape} and values {value.shape} for {config.num_envs} observations; "
            f"{action_space} needs {(config.num_envs, outputs)} and {(config.num_envs,)}."
        )
    return a2c


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
    loss: Callable[..., Any] | None = None,
) -> Algorithm:
    """A2C on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module with the methods `actor`, `critic` and `__call__` (both) of `ActorCritic`.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.
        loss: a function with the arguments and results of `loss` in this file, in its place; as `partial(loss,
            policy_loss=...)`.

    Raises ValueError for an action space it cannot handle, several agents, or a network whose outputs do not fit.
    """
    a2c = a2c_parts(env, config, network=network, optimizer=optimizer, loss=loss)
    return algorithm_of("a2c", a2c, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
