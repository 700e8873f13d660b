"""ReinFlow: PPO on a flow policy whose steps are made noisy, so that they have a density.

Zhang, Yu, Su and Wang (2025), "ReinFlow: fine-tuning flow matching policy with online reinforcement learning"
(arXiv:2505.22094). The policy of `flow_bc.py`, from which training usually begins (`start`), follows a velocity by K
steps of Euler. A second network adds noise of a bounded deviation sigma to each of them,

    a_0 ~ N(0, I),    a_(k+1) ~ N(a_k + v(s, a_k, k / K) / K, sigma(s, a_k, k / K)^2),

so that the chain has a density, the product of these Gaussians, whatever K is:

    log pi(a_0, ..., a_K | s) = log N(a_0; 0, I) + sum_k log N(a_(k+1); a_k + v / K, sigma^2).

PPO's ratio is that of chains; the last action acts. When deployed there is no noise but a_0's: the noise network is
for training alone, and small steps (`clip_eps`) are needed, since a ratio is of K + 1 Gaussians.

Deviations from the authors' code: times are k / K, as in Euler's rule, where its `get_logprobs` has K times from 0 to 1
with both ends; log-probabilities and means of steps are not clipped, and sigma does not decay; single actions, not
chunks of four; adaptive stopping by KL is left out. `start` copies the velocity alone (`jaxrl train reinflow ENV
--from CLONE`): the critic begins anew and may learn first (`warmup_steps`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl import on_policy
from jaxrl.algorithm import (
    Algorithm,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    check_minibatches,
    shared,
    spaces_of,
)
from jaxrl.algos.generative.flow_bc import Flow, Velocity, time_features
from jaxrl.algos.on_policy.ppo import policy_loss
from jaxrl.environment import Environment, is_concrete, pytree, visible
from jaxrl.math import shuffled
from jaxrl.nn import nets
from jaxrl.nn.actor_critic import Value
from jaxrl.nn.losses import normalized
from jaxrl.nn.networks import MLP, Network, encode, own
from jaxrl.nn.optim import Optimizer, OptimizerLike, OptimizerState, optimizer_of
from jaxrl.on_policy import epochs, explained_variance
from jaxrl.returns import gae
from jaxrl.rollout import Ends, rollout, successor_values
from jaxrl.spaces import Box, Space, environment_action
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 16  # environments stepped together
    num_steps: int = 128  # steps of each in a rollout
    num_epochs: int = 5  # passes over a rollout
    num_minibatches: int = 4  # gradient steps a pass; divides num_envs * num_steps
    num_flow_steps: int = 4  # K, steps of Euler
    hidden: tuple[int, ...] = (256, 256)  # widths of velocity and critic
    noise_hidden: tuple[int, ...] = (64, 64)  # widths of the network of sigma
    activation: str = "silu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-5  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "num_epochs", "num_minibatches", "num_flow_steps")
        check_minibatches(self.num_minibatches, self.num_envs * self.num_steps, "num_envs * num_steps")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 4.5e-5  # of velocity and noise
    critic_learning_rate: jax.Array = 6.5e-4  # of the critic
    gamma: jax.Array = 0.99  # discount
    gae_lambda: jax.Array = 0.95
    clip_eps: jax.Array = 0.01
    ent_coef: jax.Array = 0.03  # of the steps' mean entropy, a dimension
    std_min: jax.Array = 0.1  # least deviation of a step's noise, in units of the box
    std_max: jax.Array = 0.24  # and the largest
    warmup_steps: jax.Array = 0  # environment steps before velocity and noise learn; the critic learns from the first
    max_grad_norm: jax.Array = 10.0  # of either gradient


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any  # of the velocity


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    chain: Array  # (T, N, K + 1, A), from noise to the action, before clipping to the box
    log_prob: Array  # of the chain
    value: Array
    reward: Array
    terminated: Array
    truncated: Array
    next_value: Array  # of the true successor, final_obs where truncated
    ends: Ends


class Batch(NamedTuple):
    """A minibatch, leaves (B, ...)."""

    obs: Any
    chain: Array
    log_prob: Array
    advantage: Array
    target: Array


def chain_log_prob(
    chain: Float[Array, "*batch points A"], mean: Float[Array, "*batch K A"], std: Float[Array, "*batch K A"]
) -> Float[Array, "*batch"]:
    """The joint log-density of the K + 1 points of a chain, given the means and deviations of its steps."""
    z = jnp.concatenate([chain[..., :1, :], (chain[..., 1:, :] - mean) / std], -2)
    return -jnp.sum(0.5 * z**2 + 0.5 * math.log(2 * math.pi), (-2, -1)) - jnp.sum(jnp.log(std), (-2, -1))


def step_entropy(std: Float[Array, "*batch K A"]) -> Float[Array, "*batch"]:
    """The entropy of a step's noise, a dimension, mean over steps [nats]."""
    return jnp.mean(jnp.log(std) + 0.5 * (math.log(2 * math.pi) + 1), (-2, -1))


class Noise(nn.Module):
    """A number (..., A) between 0 and 1 that says where between its limits the deviation of a step is."""

    hidden: tuple[int, ...]

    @nn.compact
    def __call__(
        self, x: Float[Array, "*batch features"], action: Float[Array, "*batch A"], t: Float[Array, "*batch"]
    ) -> Float[Array, "*batch A"]:
        inputs = jnp.concatenate([x, action.astype(x.dtype), time_features(t).astype(x.dtype)], -1)
        return nn.sigmoid(MLP(self.hidden, action.shape[-1], "tanh", out_scale=0.01)(inputs))


@dataclasses.dataclass(frozen=True)
class ReinFlow:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    flow: Flow
    noise: Any  # a flax module as Noise
    critic: Any  # a flax module of observations
    observation_space: Space
    action_space: Space
    optimizer: Optimizer

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> on_policy.State:
        A = self.action_space.shape[0]

        def weights(key: Array, obs: Any) -> dict[str, Any]:
            first, keys = on_policy.first_of(obs), jax.random.split(key, 3)
            x = encode(self.observation_space, visible(first))
            return {
                "velocity": self.flow.init(keys[0], first, jnp.zeros(A)),
                "noise": self.noise.init(keys[1], x, jnp.zeros(A), jnp.zeros(())),
                "critic": self.critic.init(keys[2], first),
            }

        if hyper is not None and is_concrete((hyper.std_min, hyper.std_max)):
            low, high = np.asarray(hyper.std_min), np.asarray(hyper.std_max)
            if np.any((low <= 0) | (high < low)):
                ends = f"std_min={hyper.std_min}, std_max={hyper.std_max}"
                raise ValueError(f"{ends}: it must be 0 < std_min <= std_max; the defaults are 0.1 and 0.24.")
        begun: Any = on_policy.begin(Hyper, self.venv, self.optimizer, weights, key, hyper, env_params)
        actor, critic = split(begun["weights"])
        rates = begun["hyper"].learning_rate, begun["hyper"].critic_learning_rate
        pairs = zip(("actor", "critic"), (actor, critic), rates, strict=True)
        begun["optimizer"] = {name: self.optimizer.init(w, rate) for name, w, rate in pairs}
        return on_policy.State(**begun)

    def steps(self, weights: Any, obs: Any, points: Array, t: Array, hyper: Hyper) -> tuple[Array, Array]:
        """`(means, deviations)` of the steps from `points` (..., A) at times `t` (...)."""
        x = encode(self.observation_space, visible(obs))
        velocity: Any = self.flow.network.apply(weights["velocity"], x, points, t)
        share: Any = self.noise.apply(weights["noise"], x, points, t)
        std = hyper.std_min + (hyper.std_max - hyper.std_min) * share
        return points + velocity / self.config.num_flow_steps, std

    def chain(self, weights: Any, key: Key[Array, ""], obs: Any, hyper: Hyper) -> tuple[Array, Array]:
        """`(chain (..., K + 1, A), log_prob (...))` of a sample."""
        K, batch = self.config.num_flow_steps, encode(self.observation_space, visible(obs)).shape[:-1]
        noise = jax.random.normal(key, (K + 1, *batch, self.action_space.shape[0]))
        points, means, stds = [noise[0]], [], []
        for k in range(K):
            mean, std = self.steps(weights, obs, points[-1], jnp.full(batch, k / K), hyper)
            points, means, stds = [*points, mean + std * noise[k + 1]], [*means, mean], [*stds, std]
        chain, mean, std = (jnp.stack(x, -2) for x in (points, means, stds))
        return chain, chain_log_prob(chain, mean, std)

    def collect(self, state: on_policy.State) -> tuple[on_policy.State, Rollout]:
        def act(key: Array, obs: Any, carry: Any) -> tuple[Array, Any, Any]:
            chain, log_prob = self.chain(state.weights, key, obs, state.hyper)
            return environment_action(self.action_space, jnp.clip(chain[..., -1, :], -1, 1)), (chain, log_prob), carry

        def critic(obs: Any) -> Any:
            return self.critic.apply(state.weights["critic"], obs)

        new_state, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        chain, log_prob = steps.output
        value = critic(steps.obs)
        next_value = successor_values(critic, value, new_state.obs, steps.next_obs, steps.truncated)
        ends = steps.reward, steps.terminated, steps.truncated, next_value, steps.ends
        return new_state, Rollout(steps.obs, chain, log_prob, value, *ends)

    def learn(self, state: on_policy.State, rollout: Rollout) -> tuple[on_policy.State, dict[str, Array]]:
        """Advantages, then epochs of gradient steps on minibatches of chains."""
        config, hyper = self.config, state.hyper
        key, shuffle_key = jax.random.split(state.key)
        ends = rollout.terminated, rollout.truncated
        advantage = gae(rollout.reward, rollout.value, rollout.next_value, *ends, hyper.gamma, hyper.gae_lambda)
        target = advantage + rollout.value
        batch = Batch(rollout.obs, rollout.chain, rollout.log_prob, advantage, target)
        (actor, critic), optimizer = split(state.weights), cast(dict[str, OptimizerState], state.optimizer)
        learning = {
            "actor": nets.net(actor, optimizer["actor"], self.optimizer, name="actor"),
            "critic": nets.net(critic, optimizer["critic"], self.optimizer, name="critic"),
        }
        rows = config.num_steps * config.num_envs
        step = functools.partial(self.gradient_step, hyper=hyper, warm=state.step > hyper.warmup_steps)
        orders = shuffled(shuffle_key, (config.num_epochs, rows))
        learning, report = epochs(step, learning, on_policy.flattened(batch), orders, config.num_minibatches)
        state = state.replace(
            key=key,
            weights={**learning["actor"].weights, "critic": learning["critic"].weights},
            optimizer={name: x.state for name, x in learning.items()},
        )
        shown = {"loss": report["actor_loss"], "explained_variance": explained_variance(target, rollout.value)}
        return state, {**rollout.ends.metrics(), **report, **shown}

    def gradient_step(self, learning: Any, batch: Batch, hyper: Hyper, warm: Array) -> tuple[Any, dict[str, Array]]:
        """PPO's clipped surrogate of chains and an entropy bonus for velocity and noise; squared errors of values."""
        K = self.config.num_flow_steps
        t = jnp.broadcast_to(jnp.arange(K) / K, batch.chain.shape[:1] + (K,)).astype(batch.chain.dtype)
        advantage = normalized(batch.advantage)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            spread = jax.vmap(lambda points, t: self.steps(weights, batch.obs, points, t, hyper), (1, 1), 1)
            mean, std = spread(batch.chain[:, :-1], t)
            log_prob, entropy = chain_log_prob(batch.chain, mean, std), jnp.mean(step_entropy(std))
            surrogate = policy_loss(log_prob, batch.log_prob, advantage, hyper.clip_eps)
            log_ratio = log_prob - batch.log_prob
            report = {
                "policy_loss": surrogate,
                "entropy": entropy,
                "approx_kl": jnp.mean(jnp.expm1(log_ratio) - log_ratio),
                "clipped": jnp.mean(jnp.abs(jnp.expm1(log_ratio)) > hyper.clip_eps, dtype=log_ratio.dtype),
            }
            return surrogate - hyper.ent_coef * entropy, report

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            value: Any = self.critic.apply(weights, batch.obs)
            return 0.5 * jnp.mean((value - batch.target) ** 2), {}

        rate = jnp.where(warm, hyper.learning_rate, 0)
        actor, report = learning["actor"].descend(actor_objective, rate, hyper.max_grad_norm)
        critic, more = learning["critic"].descend(critic_objective, hyper.critic_learning_rate, hyper.max_grad_norm)
        return {"actor": actor, "critic": critic}, {**report, **more}

    def policy(self, state: on_policy.State) -> Policy:
        return Policy(state.weights["velocity"])

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        action = self.flow.mode(policy.weights, obs) if greedy else self.flow.explore(policy.weights, key, obs)
        return environment_action(self.action_space, action), carry


def split(weights: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """`(weights of velocity and noise, weights of the critic)`, which have an optimiser each."""
    return {name: weights[name] for name in ("velocity", "noise")}, weights["critic"]


BEGINS_FROM = {"flow_bc": ("hidden", "activation")}
"""Algorithms from whose runs a run begins, by `start` (`jaxrl train reinflow ENV --from RUN`), and what both share."""


def start(algo: Algorithm, cloned: Any, key: Key[Array, ""], hyper: Any = None, env_params: Any = None) -> Any:
    """A state of `algo`, a ReinFlow, whose velocity is that of `cloned`, a state of `flow_bc`.

    Raises ValueError for a velocity of other sizes, or of normalised observations, which ReinFlow has not.
    """
    state = algo.init(key, hyper, env_params)
    if cloned.normalizer is not None:
        raise ValueError("reinflow.start: the clone saw normalised observations; clone with normalize_obs=False.")
    given, wanted = cloned.weights["actor"], state.weights["velocity"]
    shapes = [[jnp.shape(x) for x in jax.tree.leaves(tree)] for tree in (given, wanted)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"the cloned velocity has weights {shapes[0]}, this reinflow's has {shapes[1]}: set `hidden`, or it is of "
            "another environment."
        )
    return state.replace(weights={**state.weights, "velocity": given})


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """ReinFlow on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module with the inputs and outputs of `flow_bc.Velocity`.
        critic: a flax module from a whole observation to values (...).
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, or several agents.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("reinflow", venv, Box, between_ends=True)
    network = own("network", network) or Velocity(config.hidden, config.activation)
    critic = own("critic", critic) or Value(obs_space, config.hidden, config.activation)
    flow = Flow(network, obs_space, config.num_flow_steps, space.shape[0])
    optimiser = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    parts = flow, Noise(config.noise_hidden), critic, obs_space, space, optimiser
    return algorithm_of("reinflow", ReinFlow(config, venv, *parts), Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
