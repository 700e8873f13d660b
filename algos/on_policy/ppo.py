"""Proximal policy optimisation.

Schulman et al. (2017), "Proximal policy optimization algorithms" (arXiv:1707.06347), with the details that CleanRL's
`ppo.py` established: orthogonal initialisation, advantage normalisation per minibatch, clipped value loss, one Adam
with eps 1e-5, gradient clipped by its global norm, linearly annealed learning rate.

Deviations: episodes cut by a time limit bootstrap from their final observation (CleanRL treats them as deaths); values
of a rollout are computed in one batch after it; continuous policies act in units of the action box, [-1, 1] a side;
observations are normalised with the statistics of earlier rollouts, so one rollout sees one normaliser. Results:
`docs/results.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl import on_policy
from jaxrl.algorithm import (
    Algorithm,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    check_minibatches,
    restarted,
    shared,
)
from jaxrl.environment import Environment, pytree, visible
from jaxrl.math import shuffled
from jaxrl.nn import nets, normalize
from jaxrl.nn.distributions import Distribution
from jaxrl.nn.losses import mean, normalized
from jaxrl.nn.networks import Network
from jaxrl.nn.optim import Optimizer, OptimizerLike, annealed, optimizer_of
from jaxrl.on_policy import epochs, explained_variance, policy_of
from jaxrl.returns import gae
from jaxrl.rollout import Ends, rollout, successor_values
from jaxrl.spaces import Space, environment_action
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 4  # environments stepped together
    num_steps: int = 128  # steps of each in a rollout
    num_epochs: int = 4  # passes over a rollout
    num_minibatches: int = 4  # gradient steps a pass; divides num_envs * num_steps
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers
    hidden: tuple[int, ...] = (64, 64)  # widths of actor and critic
    activation: str = "tanh"
    normalize_obs: bool = False
    normalize_reward: bool = False  # by the standard deviation of the discounted return
    normalize_advantage: bool = True  # per minibatch
    clip_value: bool = True
    stop_on_kl: bool = False  # no more gradient steps on a rollout once approx_kl exceeds hyper.target_kl
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-5  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "num_epochs", "num_minibatches")
        check_minibatches(self.num_minibatches, self.num_envs * self.num_steps, "num_envs * num_steps")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 2.5e-4
    anneal_steps: jax.Array = 0  # environment steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    gae_lambda: jax.Array = 0.95
    clip_eps: jax.Array = 0.2
    ent_coef: jax.Array = 0.01
    vf_coef: jax.Array = 0.5
    max_grad_norm: jax.Array = 0.5
    target_kl: jax.Array = 0.01  # read with Config.stop_on_kl


class Policy(NamedTuple):
    """The policy, as it is evaluated and exported."""

    weights: Any
    normalizer: Any  # running statistics of observations; None without Config.normalize_obs


@pytree
class PPOState(on_policy.State):
    normalizer: Any  # running statistics of observations
    reward_scaler: Any


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    action: Array  # as sampled, before clipping to the box
    log_prob: Array
    value: Array
    reward: Array
    terminated: Array
    truncated: Array
    next_value: Array  # of the true successor, final_obs where truncated
    ends: Ends
    learn_mask: Array | None = None  # (N,): slots to learn from; None: all


class Batch(NamedTuple):
    """A minibatch, leaves (B, ...)."""

    obs: Any
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array
    mask: Array | None


def policy_loss(
    log_prob: Float[Array, " B"],
    old_log_prob: Float[Array, " B"],
    advantage: Float[Array, " B"],
    clip_eps: Float[Array, ""] | float,
    mask: Bool[Array, " B"] | None = None,
) -> Float[Array, ""]:
    """The clipped surrogate, to be minimised (Schulman et al. 2017, eq. 7)."""
    ratio = jnp.exp(log_prob - old_log_prob)
    clipped = jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps)
    return -mean(jnp.minimum(ratio * advantage, clipped * advantage), mask)


def value_loss(
    value: Float[Array, " B"],
    old_value: Float[Array, " B"],
    target: Float[Array, " B"],
    clip_eps: Float[Array, ""] | float | None,
    mask: Bool[Array, " B"] | None = None,
) -> Float[Array, ""]:
    """Half the squared error; with `clip_eps` at least that of the value clipped to its old one +-clip_eps."""
    error = (value - target) ** 2
    if clip_eps is not None:
        clipped = old_value + jnp.clip(value - old_value, -clip_eps, clip_eps)
        error = jnp.maximum(error, (clipped - target) ** 2)
    return 0.5 * mean(error, mask)


def objective(
    log_prob: Float[Array, " B"],
    value: Float[Array, " B"],
    entropy: Float[Array, " B"],
    batch: Any,
    hyper: Any,
    config: Any,
    policy_loss: Callable[..., Array] = policy_loss,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """`(loss, metrics)` of a minibatch (Schulman et al. 2017, eq. 9, negated).

    `log_prob`, `value` and `entropy` are those of the current weights. `batch`, `hyper` and `config` may be another
    algorithm's with the fields that are read here.
    """
    advantage = normalized(batch.advantage, batch.mask) if config.normalize_advantage else batch.advantage
    actor = policy_loss(log_prob, batch.log_prob, advantage, hyper.clip_eps, batch.mask)
    critic = value_loss(value, batch.value, batch.target, hyper.clip_eps if config.clip_value else None, batch.mask)
    bonus = mean(entropy, batch.mask)
    total = actor + hyper.vf_coef * critic - hyper.ent_coef * bonus
    log_ratio = log_prob - batch.log_prob
    # E[(r - 1) - log r] >= 0 estimates KL(old || new) with less variance than E[-log r] (Schulman 2020).
    approx_kl = mean(jnp.expm1(log_ratio) - log_ratio, batch.mask)
    report = {"loss": total, "policy_loss": actor, "value_loss": critic, "entropy": bonus, "approx_kl": approx_kl}
    return total, report


def loss(
    weights: Any,
    batch: Batch,
    hyper: Any,
    config: Any,
    network: Network,
    observation_space: Space,
    space: Space,
    policy_loss: Callable[..., Array] = policy_loss,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """`(loss, metrics)` of a minibatch at `weights`. Another `policy_loss` takes the arguments of the one above."""
    pi = policy_of(network, weights, batch.obs, observation_space, space)
    value: Any = network.apply(weights, batch.obs, method="critic")
    return objective(pi.log_prob(batch.action), value, pi.entropy(), batch, hyper, config, policy_loss)


@dataclasses.dataclass(frozen=True)
class PPO:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    slots: ClassVar = ("reward_scaler.returns",)
    config: Config
    venv: VectorEnv
    network: Network
    observation_space: Space
    action_space: Space
    optimizer: Optimizer
    loss: Callable[..., Any] | None = None  # replaces the function `loss` of this file

    def distribution(self, weights: Any, obs: Any, normalizer: Any) -> Distribution:
        obs = normalize.normalize(normalizer, obs)
        return policy_of(self.network, weights, obs, self.observation_space, self.action_space)

    def begin(self, hyper_class: type, key: Array, hyper: Any, env_params: Any) -> dict[str, Any]:
        """The fields of a `PPOState` before the first step."""

        def weights(key, obs):
            return self.network.init(key, on_policy.first_of(obs))

        begun = on_policy.begin(hyper_class, self.venv, self.optimizer, weights, key, hyper, env_params)
        first, config = on_policy.first_of(begun["obs"]), self.config
        return {
            **begun,
            "normalizer": normalize.init(first) if config.normalize_obs else None,
            "reward_scaler": normalize.RewardScaler.init(config.num_envs) if config.normalize_reward else None,
        }

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> PPOState:
        return PPOState(**self.begin(Hyper, key, hyper, env_params))

    def restart(self, state: PPOState, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> PPOState:
        """Starts a new episode in the slots of `mask`; the running discounted return of rewards starts at 0 there."""
        state = restarted(self.venv, state, key, env_params, mask)
        if state.reward_scaler is None:
            return state
        return state.replace(reward_scaler=state.reward_scaler.restarted(mask))

    def collect(self, state: PPOState) -> tuple[PPOState, Rollout]:
        def act(key, obs, carry):
            pi = self.distribution(state.weights, obs, state.normalizer)
            action = pi.sample(key)
            return environment_action(self.action_space, action), (action, pi), carry

        def critic(obs):
            return self.network.apply(state.weights, normalize.normalize(state.normalizer, obs), method="critic")

        new_state, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        action, pi = steps.output
        # Acting does not need these values: they are computed after it, in one batch.
        value: Any = critic(steps.obs)
        return new_state, Rollout(
            obs=steps.obs,
            action=action,
            log_prob=pi.log_prob(action),
            value=value,
            reward=steps.reward,
            terminated=steps.terminated,
            truncated=steps.truncated,
            next_value=successor_values(critic, value, new_state.obs, steps.next_obs, steps.truncated),
            ends=steps.ends,
        )

    def learn(self, state: PPOState, rollout: Rollout) -> tuple[PPOState, dict[str, Array]]:
        """Advantages, then epochs of gradient steps on minibatches (Schulman et al. 2017, algorithm 1)."""
        config, hyper = self.config, state.hyper
        key, shuffle_key = jax.random.split(state.key)
        ends = rollout.terminated, rollout.truncated
        reward, scaler = rollout.reward, state.reward_scaler
        if scaler is not None:
            scaler = scaler.update(reward, rollout.terminated | rollout.truncated, hyper.gamma)
            reward = scaler.scale(reward)
        advantage = gae(reward, rollout.value, rollout.next_value, *ends, hyper.gamma, hyper.gae_lambda)
        target = advantage + rollout.value
        mask = rollout.learn_mask
        mask = None if mask is None else jnp.broadcast_to(mask, reward.shape)
        obs = normalize.normalize(state.normalizer, rollout.obs)
        batch = Batch(obs, rollout.action, rollout.log_prob, rollout.value, advantage, target, mask)
        steps = config.num_steps * config.num_envs
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)
        gradient_step = functools.partial(self.gradient_step, hyper=hyper, learning_rate=learning_rate)
        orders = shuffled(shuffle_key, (config.num_epochs, steps))
        start = nets.net(state.weights, state.optimizer, self.optimizer), jnp.bool_(False)
        (net, _), report = epochs(gradient_step, start, on_policy.flattened(batch), orders, config.num_minibatches)
        normalizer = state.normalizer
        if normalizer is not None:
            normalizer = normalize.update(normalizer, rollout.obs, axes=(0, 1))
        state = state.replace(
            key=key, weights=net.weights, optimizer=net.state, normalizer=normalizer, reward_scaler=scaler
        )
        shown = {"explained_variance": explained_variance(target, rollout.value), "learning_rate": learning_rate}
        return state, {**rollout.ends.metrics(), **report, **shown}

    def gradient_step(self, carry: Any, batch: Batch, hyper: Hyper, learning_rate: Array) -> tuple[Any, dict]:
        """One step on a minibatch; no step after `stop_on_kl` has stopped them, or where the mask is all False."""
        net, stopped = carry
        parts = hyper, self.config, self.network, self.observation_space, self.action_space
        objective = self.loss or loss
        new, report = net.descend(lambda w: objective(w, batch, *parts), learning_rate, hyper.max_grad_norm)
        skip = jnp.bool_(False)
        if self.config.stop_on_kl:
            stopped = stopped | (report["approx_kl"] > hyper.target_kl)
            skip = stopped
        if batch.mask is not None:
            skip = skip | ~batch.mask.any()
        if self.config.stop_on_kl or batch.mask is not None:
            new = jax.tree.map(functools.partial(jnp.where, skip), net, new)
        return (new, stopped), report

    def policy(self, state: PPOState) -> Policy:
        return Policy(state.weights, normalize.visible(state.normalizer))

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        pi = self.distribution(policy.weights, visible(obs), policy.normalizer)
        return environment_action(self.action_space, pi.mode() if greedy else pi.sample(key)), carry


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
    loss: Callable[..., Any] | None = None,
) -> Algorithm:
    """PPO on `env`. Equal arguments give the same functions, so they share one jit cache.

    `on_policy.actor_critic` explains `network` and the errors; `optimizer` replaces `config.optimizer`. A function
    `loss` has the arguments and results of `loss` in this file, as `partial(loss, policy_loss=...)`.
    """
    venv = as_vector_env(env, config.num_envs)
    parts = on_policy.actor_critic("ppo", venv, config, network)
    ppo = PPO(config, venv, *parts, optimizer_of(optimizer or config.optimizer, eps=config.adam_eps), loss)
    return algorithm_of("ppo", ppo, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
