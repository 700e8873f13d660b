"""Batch-constrained deep Q-learning (BCQ) for discrete actions.

Fujimoto, Conti, Ghavamzadeh and Pineau (2019), "Benchmarking batch deep reinforcement learning algorithms". Double DQN
restricted to actions that occur in the dataset: a second network G clones the behaviour policy, and an action counts if

    G(b | s) / max_c G(c | s) > threshold

The online network picks the best of these actions at s' and the target network evaluates it; the policy acts in the
same way. A threshold of 0 is double DQN, one near 1 behaviour cloning. The loss is

    Huber(Q(s, a) - y) - log G(a | s) + 0.01 mean_b (logit_b of G)^2

Deviations: those of `dqn.py`; Q and G share no layers, where the authors' networks share convolutions; the gradients of
both networks are clipped together.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.action_values import best_action, value_of
from jaxrl.nn.distributions import Categorical, mask_logits
from jaxrl.nn.losses import half_square
from jaxrl.nn.nets import Net
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import q_learner
from jaxrl.off_policy.q_learner import Batch, apply, weighted_mean
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv

LOGIT_WEIGHT = 0.01  # as in the authors' code
LEAST = -1e9  # the value of an excluded action: below all others, and finite


@dataclasses.dataclass(frozen=True)
class Config(q_learner.Config):
    """Static settings: each value compiles its own program."""

    dueling: bool = False  # dueling head of the default network: a state value plus centred advantages
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers


@pytree
class Hyper(q_learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps; on a dataset, gradient steps."""

    threshold: jax.Array = 0.3  # least probability of an action in the dataset, relative to the likeliest action


def likely(logits: Float[Array, "*batch n"], threshold: Float[Array, ""] | float) -> Bool[Array, "*batch n"]:
    """Which actions count; the likeliest always does."""
    relative = jnp.exp(logits - jnp.max(logits, -1, keepdims=True))
    return (relative > threshold) | (relative == 1)


def masked(logits: Float[Array, "*batch n"], allowed: Bool[Array, "*batch n"] | None) -> Float[Array, "*batch n"]:
    """Logits, where the action mask `allowed`, if there is one, forbids actions."""
    return logits if allowed is None else mask_logits(logits, allowed)


def behaviour_loss(
    logits: Float[Array, "B n"], action: Int[Array, " B"], allowed: Bool[Array, "B n"] | None = None
) -> Float[Array, " B"]:
    """-log G(a | s) + 0.01 mean_b (logit_b)^2."""
    # The squares are of unmasked logits, as the fill of a mask is too large to be squared.
    return -Categorical(masked(logits, allowed)).log_prob(action) + LOGIT_WEIGHT * jnp.mean(logits**2, -1)


@dataclasses.dataclass(frozen=True)
class _BCQ:
    """The learning rule, a `q_learner.Rule`: networks `values`, and `behaviour`, the behaviour policy.

    After an update, every `target_period` steps, the learner moves the target network to the online one by `tau`.
    """

    config: Config
    network: Network  # (..., n), of both
    observation_space: Space
    draws = False

    def init(self, key: Array, obs: Any) -> dict[str, Any]:
        values_key, behaviour_key = jax.random.split(key)
        return {"values": self.network.init(values_key, obs), "behaviour": self.network.init(behaviour_key, obs)}

    def support(self, hyper: Hyper) -> tuple[Array]:
        return (hyper.threshold,)

    def allowed(self, obs: Any) -> Any:
        """The action mask or None."""
        return split_observation(obs, self.observation_space)[2]

    def values(self, weights: Any, obs: Any, support: Any, key: Array | None) -> Float[Array, "..."]:
        """Q of the actions that count, `LEAST` for the others."""
        q = apply(self.network, weights["values"], obs, None)[0]
        logits = apply(self.network, weights["behaviour"], obs, None)[0]
        return jnp.where(likely(masked(logits, self.allowed(obs)), support[0]), q, LEAST)

    def ahead(self, target_weights: Any, batch: Batch, hyper: Hyper, key: Array | None) -> Float[Array, "B n"]:
        """The target network's values of all actions at next_obs."""
        return apply(self.network, target_weights["values"], batch.next_obs, None)[0]

    def gradient_step(
        self, net: Net, batch: Batch, ahead: Array, key: Array | None, hyper: Hyper, learning_rate: Array
    ) -> tuple[Net, dict[str, Array]]:
        """The best next action that counts, Huber's loss of its target, cloning of dataset actions (algorithm 1)."""
        allowed = self.allowed(batch.obs)

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            choosing = self.values(jax.lax.stop_gradient(weights), batch.next_obs, self.support(hyper), None)
            next_action = best_action(choosing, self.allowed(batch.next_obs))
            outputs, report = apply(self.network, weights["values"], batch.obs, None)
            q = value_of(outputs, batch.action)
            following = jax.lax.stop_gradient(value_of(ahead, next_action))
            error = q - (batch.reward + batch.discount * following)
            logits = apply(self.network, weights["behaviour"], batch.obs, None)[0]
            cloned = behaviour_loss(logits, batch.action, allowed)
            share = jnp.mean(likely(masked(logits, allowed), hyper.threshold), dtype=q.dtype)
            report = {"q_value": jnp.mean(q), "behaviour_loss": jnp.mean(cloned), "likely": share, **report}
            each = half_square(error, huber=True) + cloned
            return weighted_mean(each, batch.weight), {"priority": jnp.abs(error), **report}

        return net.descend(objective, learning_rate, hyper.max_grad_norm)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """Discrete BCQ on `env`. Equal arguments give the same functions, so they share one jit cache.

    `q_learner.algorithm` explains `replay`, `optimizer` and the errors. `network` is a flax module as `dqn.make`
    takes it, to (..., n); there will be two of them.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, space = spaces_of("bcq_discrete", venv, Discrete)
    network = own("network", network) or q_learner.q_network(config, observation_space, space.n)
    rule = _BCQ(config, network, observation_space)
    algo = q_learner.algorithm("bcq_discrete", venv, config, Hyper, rule, replay=replay, optimizer=optimizer)
    for part in ("values", "behaviour"):
        q_learner.check_network(algo, network, space.n, 1, part)
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
