"""Critic-regularised regression (CRR) for discrete actions.

Wang et al. (2020), "Critic regularized regression". The critic evaluates the policy, and the policy clones those of the
dataset's actions that have a higher value than the policy's,

    critic    Huber(Q(s, a) - r - gamma sum_b pi'(b | s') Q'(s', b))
    policy    -f(A) log pi(a | s),    A = Q(s, a) - sum_b pi(b | s) Q(s, b)
              f(A) = 1(A > 0)  or  min(exp(A / temperature), 20)    (`Config.weight`)

(equations 3 to 5, with the mean over the policy's actions). As actions are discrete both sums are exact, where the
paper samples. Without a dataset it acts and learns with the same losses, as advantage-weighted regression does.

Deviations: those of `dqn.py`; Huber's loss of single values, not a distribution of returns; actions are epsilon-greedy
on the policy's likeliest action, where the paper samples policy or values; the gradients of both networks are clipped
together.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.action_values import value_of
from jaxrl.nn.distributions import mask_logits
from jaxrl.nn.losses import half_square
from jaxrl.nn.nets import Net
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import q_learner
from jaxrl.off_policy.q_learner import Batch, apply, weighted_mean
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv

WEIGHTS = ("binary", "exp")
LARGEST_WEIGHT = 20.0  # as in the paper


@dataclasses.dataclass(frozen=True)
class Config(q_learner.Config):
    """Static settings: each value compiles its own program."""

    weight: str = "binary"  # one of WEIGHTS: weight f of the dataset's actions
    dueling: bool = False  # dueling head of the default network: a state value plus centred advantages
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight not in WEIGHTS:
            raise ValueError(f"weight={self.weight!r} is unknown; use one of {', '.join(WEIGHTS)}.")


@pytree
class Hyper(q_learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps; on a dataset, gradient steps."""

    temperature: jax.Array = 1.0  # of exp weights


def expected(logits: Float[Array, "*batch n"], q: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    """sum_b pi(b | s) Q(s, b)."""
    return jnp.sum(jax.nn.softmax(logits) * q, -1)


def policy_loss(
    log_prob: Float[Array, " B"], advantage: Float[Array, " B"], temperature: Float[Array, ""] | float, weight: str
) -> Float[Array, " B"]:
    """-f(A) log pi(a | s)."""
    if weight == "binary":
        f = (advantage > 0).astype(log_prob.dtype)
    else:
        f = jnp.minimum(jnp.exp(advantage / temperature), LARGEST_WEIGHT)
    return -jax.lax.stop_gradient(f) * log_prob


@dataclasses.dataclass(frozen=True)
class _CRR:
    """The learning rule, a `q_learner.Rule`: networks `values`, and `policy`, which acts.

    After an update, every `target_period` steps, the learner moves the target network to the online one by `tau`.
    """

    config: Config
    network: Network  # (..., n), of both
    observation_space: Space
    draws = False

    def init(self, key: Array, obs: Any) -> dict[str, Any]:
        values_key, policy_key = jax.random.split(key)
        return {"values": self.network.init(values_key, obs), "policy": self.network.init(policy_key, obs)}

    def support(self, hyper: Hyper) -> tuple:
        return ()

    def values(self, weights: Any, obs: Any, support: Any, key: Array | None) -> Float[Array, "..."]:
        """Logits of the policy, by which the learner acts."""
        allowed = split_observation(obs, self.observation_space)[2]
        logits = apply(self.network, weights["policy"], obs, None)[0]
        return logits if allowed is None else mask_logits(logits, allowed)

    def ahead(self, target_weights: Any, batch: Batch, hyper: Hyper, key: Array | None) -> Float[Array, " B"]:
        """The value of the next state by the target networks: the mean of Q' over pi'."""
        next_q = apply(self.network, target_weights["values"], batch.next_obs, None)[0]
        return expected(self.values(target_weights, batch.next_obs, (), None), next_q)

    def gradient_step(
        self, net: Net, batch: Batch, ahead: Array, key: Array | None, hyper: Hyper, learning_rate: Array
    ) -> tuple[Net, dict[str, Array]]:
        """Huber's loss of the values, then cloning of the dataset's actions by their advantage (algorithm 1)."""

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            outputs, report = apply(self.network, weights["values"], batch.obs, None)
            q = value_of(outputs, batch.action)
            error = q - (batch.reward + batch.discount * ahead)
            logits = self.values(weights, batch.obs, (), None)
            advantage = q - expected(logits, outputs)
            log_prob = value_of(jax.nn.log_softmax(logits), batch.action)
            cloned = policy_loss(log_prob, advantage, hyper.temperature, self.config.weight)
            report = {"q_value": jnp.mean(q), "advantage": jnp.mean(advantage), **report}
            report |= {"policy_loss": jnp.mean(cloned), "priority": jnp.abs(error)}
            return weighted_mean(half_square(error, huber=True) + cloned, batch.weight), report

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
    """Discrete CRR on `env`. Equal arguments give the same functions, so they share one jit cache.

    `q_learner.algorithm` explains `replay`, `optimizer` and the errors. `network` is a flax module as `dqn.make`
    takes it, to (..., n); there will be two of them.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, space = spaces_of("crr_discrete", venv, Discrete)
    network = own("network", network) or q_learner.q_network(config, observation_space, space.n)
    rule = _CRR(config, network, observation_space)
    algo = q_learner.algorithm("crr_discrete", venv, config, Hyper, rule, replay=replay, optimizer=optimizer)
    for part in ("values", "policy"):
        q_learner.check_network(algo, network, space.n, 1, part)
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
