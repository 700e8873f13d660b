"""Advantage actor-critic.

The synchronous form of Mnih et al. (2016), "Asynchronous methods for deep reinforcement learning" (arXiv:1602.01783):
after every few steps of all environments it takes one gradient step on the rollout, on the loss

    E[-log pi(a|s) A - ent_coef H(pi(.|s)) + vf_coef (G - V(s))^2 / 2],    A = G - V(s) without a gradient

where G is the discounted sum of the rewards to the end of the rollout and of the value of the state after it. That is
gae_lambda = 1, as in the paper; smaller values give generalised advantage estimates (Schulman et al. 2016).

Deviations: one synchronous learner; Adam (eps 1e-5) instead of RMSprop, as in `ppo.py`, from which this file differs by
the loss and by a single step on the whole batch; separate actor and critic; episodes cut by a time limit bootstrap from
their final observation; continuous policies act in units of the action box. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl import on_policy
from jaxrl.algorithm import Algorithm, algorithm_of, as_vector_env, check_at_least_one, shared
from jaxrl.environment import Environment, pytree
from jaxrl.nn import nets
from jaxrl.nn.distributions import Distribution
from jaxrl.nn.losses import normalized
from jaxrl.nn.networks import Network
from jaxrl.nn.optim import Optimizer, OptimizerLike, annealed, optimizer_of
from jaxrl.on_policy import explained_variance, policy_of
from jaxrl.returns import gae
from jaxrl.rollout import Ends, rollout, successor_values
from jaxrl.spaces import Space, environment_action
from jaxrl.vector_env import VectorEnv


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
class A2CState(on_policy.State):
    """The state of every learner of rollouts, without further fields."""


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
    """The inputs of the gradient step, leaves (B, ...)."""

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
    network: Network,
    observation_space: Space,
    space: Space,
    policy_loss: Callable[..., Array] = policy_loss,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """`(loss, metrics)` of one rollout."""
    pi = policy_of(network, weights, batch.obs, observation_space, space)
    value: Any = network.apply(weights, batch.obs, method="critic")
    advantage = normalized(batch.advantage) if config.normalize_advantage else batch.advantage
    actor = policy_loss(pi.log_prob(batch.action), advantage)
    critic = 0.5 * jnp.mean((value - batch.target) ** 2)
    entropy = jnp.mean(pi.entropy())
    total = actor + hyper.vf_coef * critic - hyper.ent_coef * entropy
    return total, {"loss": total, "policy_loss": actor, "value_loss": critic, "entropy": entropy}


@dataclasses.dataclass(frozen=True)
class _A2C:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    network: Network
    observation_space: Space
    action_space: Space
    optimizer: Optimizer
    loss: Callable[..., Any] | None = None  # replaces the function `loss` of this file

    def distribution(self, weights: Any, obs: Any) -> Distribution:
        return policy_of(self.network, weights, obs, self.observation_space, self.action_space)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> A2CState:
        def weights(key, obs):
            return self.network.init(key, on_policy.first_of(obs))

        return A2CState(**on_policy.begin(Hyper, self.venv, self.optimizer, weights, key, hyper, env_params))

    def collect(self, state: A2CState) -> tuple[A2CState, Rollout]:
        def act(key, obs, carry):
            action = self.distribution(state.weights, obs).sample(key)
            return environment_action(self.action_space, action), action, carry

        def critic(obs):
            return self.network.apply(state.weights, obs, method="critic")

        new_state, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        # Acting does not need these values: they are computed after it, in one batch.
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
        """Advantages, then one gradient step on the whole rollout (Mnih et al. 2016, algorithm S3)."""
        config, hyper = self.config, state.hyper
        ends = rollout.terminated, rollout.truncated
        advantage = gae(rollout.reward, rollout.value, rollout.next_value, *ends, hyper.gamma, hyper.gae_lambda)
        target = advantage + rollout.value
        batch = on_policy.flattened(Batch(rollout.obs, rollout.action, advantage, target))
        learning_rate = annealed(
            hyper.learning_rate, state.step - config.num_steps * config.num_envs, hyper.anneal_steps
        )
        parts = hyper, config, self.network, self.observation_space, self.action_space
        net = nets.net(state.weights, state.optimizer, self.optimizer)
        net, report = net.descend(
            lambda weights: (self.loss or loss)(weights, batch, *parts), learning_rate, hyper.max_grad_norm
        )
        shown = {"explained_variance": explained_variance(target, rollout.value), "learning_rate": learning_rate}
        state = state.replace(weights=net.weights, optimizer=net.state)
        return state, {**rollout.ends.metrics(), **report, **shown}

    def policy(self, state: A2CState) -> Any:
        return state.weights

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        pi = self.distribution(policy, obs)
        return environment_action(self.action_space, pi.mode() if greedy else pi.sample(key)), carry


def a2c_parts(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
    loss: Callable[..., Any] | None = None,
) -> _A2C:
    """The object behind `make`, with the same arguments, for algorithms that differentiate through its methods."""
    venv = as_vector_env(env, config.num_envs)
    parts = on_policy.actor_critic("a2c", venv, config, network)
    return _A2C(config, venv, *parts, optimizer_of(optimizer or config.optimizer, eps=config.adam_eps), loss)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
    loss: Callable[..., Any] | None = None,
) -> Algorithm:
    """A2C on `env`. Equal arguments give the same functions, so they share one jit cache.

    `on_policy.actor_critic` explains `network` and the errors; `optimizer` replaces `config.optimizer`. A function
    `loss` has the arguments and results of `loss` in this file, as `partial(loss, policy_loss=...)`.
    """
    a2c = a2c_parts(env, config, network=network, optimizer=optimizer, loss=loss)
    return algorithm_of("a2c", a2c, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
