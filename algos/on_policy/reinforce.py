"""REINFORCE with a learnt baseline.

Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement learning" (Machine
Learning 8): after every rollout one gradient step on

    E[-log pi(a|s) (G - b(s)) - ent_coef H(pi(.|s)) + vf_coef (G - b(s))^2 / 2]

with G the discounted sum of the rewards up to the end of the episode and b a network regressed on it. Only steps whose
episode ends inside the rollout have a G. The others are masked, as a bootstrap there would make this `a2c.py` with
gae_lambda = 1. Steps of long episodes are therefore masked more often: choose rollouts longer than an episode (the
metric `learnt` is the share of steps that are not masked). An episode that began in the previous rollout has a complete
G, too.

Deviations: where a time limit cuts an episode, G bootstraps from the baseline at the final observation; steps are
averaged, not summed over an episode, and not weighted by gamma^t; Adam; an entropy bonus; advantages normalised over
the rollout. It differs from `a2c.py` by the return and the mask. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl import on_policy
from jaxrl.algorithm import Algorithm, algorithm_of, as_vector_env, check_at_least_one, shared
from jaxrl.environment import Environment, pytree
from jaxrl.nn import nets
from jaxrl.nn.distributions import Distribution
from jaxrl.nn.losses import mean, normalized
from jaxrl.nn.networks import Network
from jaxrl.nn.optim import Optimizer, OptimizerLike, annealed, optimizer_of
from jaxrl.on_policy import policy_of
from jaxrl.returns import discounted_returns
from jaxrl.rollout import Ends, rollout, successor_values
from jaxrl.spaces import Space, environment_action
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 8  # environments stepped together
    num_steps: int = 512  # steps of each in a rollout; several episodes
    hidden: tuple[int, ...] = (64, 64)  # widths of actor and critic
    activation: str = "tanh"
    normalize_advantage: bool = True
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-5  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-2
    anneal_steps: jax.Array = 0  # environment steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    ent_coef: jax.Array = 0.01
    vf_coef: jax.Array = 0.5
    max_grad_norm: jax.Array = 0.5


@pytree
class ReinforceState(on_policy.State):
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
    mask: Array  # steps whose return is known


def policy_loss(
    log_prob: Float[Array, " B"], advantage: Float[Array, " B"], mask: Bool[Array, " B"]
) -> Float[Array, ""]:
    """The policy gradient as the gradient of a loss (Williams 1992, eq. 6): the advantage is a constant."""
    return -mean(log_prob * advantage, mask)


def loss(
    weights: Any, batch: Batch, hyper: Hyper, config: Config, network: Network, observation_space: Space, space: Space
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """`(loss, metrics)` of one rollout."""
    pi = policy_of(network, weights, batch.obs, observation_space, space)
    value: Any = network.apply(weights, batch.obs, method="critic")
    advantage = normalized(batch.advantage, batch.mask) if config.normalize_advantage else batch.advantage
    actor = policy_loss(pi.log_prob(batch.action), advantage, batch.mask)
    critic = 0.5 * mean((value - batch.target) ** 2, batch.mask)
    entropy = mean(pi.entropy(), batch.mask)
    total = actor + hyper.vf_coef * critic - hyper.ent_coef * entropy
    learnt = jnp.mean(batch.mask)
    return total, {"loss": total, "policy_loss": actor, "value_loss": critic, "entropy": entropy, "learnt": learnt}


@dataclasses.dataclass(frozen=True)
class _Reinforce:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    network: Network
    observation_space: Space
    action_space: Space
    optimizer: Optimizer

    def distribution(self, weights: Any, obs: Any) -> Distribution:
        return policy_of(self.network, weights, obs, self.observation_space, self.action_space)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> ReinforceState:
        def weights(key, obs):
            return self.network.init(key, on_policy.first_of(obs))

        return ReinforceState(**on_policy.begin(Hyper, self.venv, self.optimizer, weights, key, hyper, env_params))

    def collect(self, state: ReinforceState) -> tuple[ReinforceState, Rollout]:
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

    def learn(self, state: ReinforceState, rollout: Rollout) -> tuple[ReinforceState, dict[str, Array]]:
        """Returns of whole episodes, then one gradient step on the rollout."""
        config, hyper = self.config, state.hyper
        done = rollout.terminated | rollout.truncated
        # The baseline stands for the rest of a truncated episode.
        rest = hyper.gamma * jnp.where(rollout.truncated & ~rollout.terminated, rollout.next_value, 0)
        target = discounted_returns(rollout.reward + rest, done, hyper.gamma)
        # Where this step or a later one of the rollout ends the episode.
        whole = jnp.flip(jnp.cumsum(jnp.flip(done, 0), 0), 0) > 0
        batch = on_policy.flattened(Batch(rollout.obs, rollout.action, target - rollout.value, target, whole))
        learning_rate = annealed(
            hyper.learning_rate, state.step - config.num_steps * config.num_envs, hyper.anneal_steps
        )
        parts = hyper, config, self.network, self.observation_space, self.action_space
        old = nets.net(state.weights, state.optimizer, self.optimizer)
        new, report = old.descend(lambda weights: loss(weights, batch, *parts), learning_rate, hyper.max_grad_norm)
        # Without a finished episode there is no gradient, and the optimiser must not step on its momentum alone.
        net = jax.tree.map(functools.partial(jnp.where, whole.any()), new, old)
        state = state.replace(weights=net.weights, optimizer=net.state)
        return state, {**rollout.ends.metrics(), **report, "learning_rate": learning_rate}

    def policy(self, state: ReinforceState) -> Any:
        return state.weights

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        pi = self.distribution(policy, obs)
        return environment_action(self.action_space, pi.mode() if greedy else pi.sample(key)), carry


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """REINFORCE on `env`. Equal arguments give the same functions, so they share one jit cache.

    `on_policy.actor_critic` explains `network` and the errors; `optimizer` replaces `config.optimizer`.
    """
    venv = as_vector_env(env, config.num_envs)
    parts = on_policy.actor_critic("reinforce", venv, config, network)
    reinforce = _Reinforce(config, venv, *parts, optimizer_of(optimizer or config.optimizer, eps=config.adam_eps))
    return algorithm_of("reinforce", reinforce, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
