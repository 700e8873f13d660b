"""Learned policy gradient (LPG): an agent that learns by an update rule whose network is meta-learned.

Oh et al. (2020), "Discovering Reinforcement Learning Algorithms", NeurIPS, arXiv:2007.08794; settings and the backward
GRU in place of their LSTM as in Jackson et al. (2023, GROOVE), arXiv:2310.02782. The agent has a policy pi(a|s) and a
prediction y(s), m categorical probabilities whose meaning meta-learning decides. The rule is a recurrent network that
reads a rollout backwards and outputs targets of both:

    x_t   = [reward, done, pi(a_t|s_t), phi(y(s_t)), phi(y(s_t+1)) (0 where done)]
    h_t   = GRU(x_t, h_t+1 (0 where done)),    pi_hat_t = w . relu(h_t),    y_hat_t = softmax(W relu(h_t))

and the agent makes a gradient step on

    E[ log pi(a|s) pi_hat + alpha_y KL(y(s) || y_hat) ],        alpha_y = 1/2

phi is a small network on y. The targets have no gradient in the agent's step. `make` is the agent; the rule is learned
by gradients through K of the agents' updates, or by evolution strategies: docs/meta.md.

Temporally aware (TA-LPG; Jackson et al. 2024, "Discovering Temporally-Aware Reinforcement Learning Algorithms",
arXiv:2402.05828): x_t has two more numbers, n / N and log N, the elapsed share of an agent's life and its length in
updates. log N is divided by 10, to the magnitude of the other inputs.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm
from jaxrl.environment import Environment
from jaxrl.meta import stored
from jaxrl.meta.agent import TABULAR, AgentConfig, agent
from jaxrl.meta.rule import Lifetime, Seen, UpdateRule
from jaxrl.meta.stored import Stored
from jaxrl.nn.networks import Dense
from jaxrl.nn.recurrent import Recurrent
from jaxrl.spaces import Discrete
from jaxrl.vector_env import VectorEnv

TINY = 1e-8
"""Added to probabilities before their logarithm."""


@dataclasses.dataclass(frozen=True)
class RuleConfig:
    """Static settings of the rule's network."""

    predictions: int = 8  # m, the size of y
    features: int = 256  # of the recurrent cell
    embedding: tuple[int, ...] = (16,)  # hidden layers of phi
    temporal: bool = False  # TA-LPG: the position in the agent's life is an input
    alpha_y: float = 0.5  # weight of the predictions in the agent's loss


class RuleNetwork(nn.Module):
    """The rule's network: from the inputs of a rollout to (pi_hat (T, N), logits of y_hat (T, N, m))."""

    config: RuleConfig

    @nn.compact
    def __call__(
        self,
        reward: Float[Array, "T N"],
        done: Float[Array, "T N"],
        probability: Float[Array, "T N"],
        y: Float[Array, "T N m"],
        next_y: Float[Array, "T N m"],
        more: Float[Array, " extra"],
    ) -> tuple[Float[Array, "T N"], Float[Array, "T N m"]]:
        layers = [Dense(width, name=f"phi_{i}") for i, width in enumerate(self.config.embedding)]
        last = Dense(1, name="phi")

        def phi(y: Array) -> Array:
            for layer in layers:
                y = nn.relu(layer(y))
            return last(y)[..., 0]

        told = [reward, done, probability, phi(y), phi(next_y) * (1 - done)]
        told += [jnp.broadcast_to(x, reward.shape) for x in more]
        x = jnp.flip(jnp.stack(told, -1), 0)
        cell = Recurrent(self.config.features)
        # The scan runs backwards, so the hidden state is reset where an episode ended.
        _, h = cell(cell.initial_carry(reward.shape[1:]), x, jnp.flip(done, 0) > 0)
        h = nn.relu(jnp.flip(h, 0))
        return Dense(1, name="pi_hat")(h)[..., 0], Dense(self.config.predictions, name="y_hat")(h)


def kl(p: Float[Array, "*batch m"], q: Float[Array, "*batch m"]) -> Float[Array, "*batch"]:
    """KL(p || q) of categorical probabilities."""
    return jnp.sum(p * (jnp.log(p + TINY) - jnp.log(q + TINY)), -1)


def when(lifetime: Lifetime) -> Float[Array, "2"]:
    """n / N and log N / 10 (Jackson et al. 2024, section 3)."""
    of = jnp.maximum(lifetime.of, 1).astype(jnp.result_type(float))
    return jnp.stack([lifetime.update / of, jnp.log(of) / 10])


def rule(config: RuleConfig = RuleConfig()) -> UpdateRule:
    """LPG's update rule, or TA-LPG's. Equal settings give the same functions."""
    return _RULES.setdefault(config, _rule(config))


_RULES: dict[RuleConfig, UpdateRule] = {}


def _rule(config: RuleConfig) -> UpdateRule:
    network = RuleNetwork(config)
    extra = 2 if config.temporal else 0

    def init(key: Array) -> Any:
        one, m = jnp.zeros((1, 1)), jnp.zeros((1, 1, config.predictions))
        return network.init(key, one, one, one, m, m, jnp.zeros(extra))

    def targets(weights: Any, seen: Seen, lifetime: Lifetime) -> tuple[Any, dict[str, Array]]:
        y, next_y = (nn.softmax(x["y"]) for x in (seen.outputs, seen.following))
        done = seen.done.astype(seen.reward.dtype)
        more = when(lifetime) if config.temporal else jnp.zeros(0)
        told = seen.reward, done, jnp.exp(seen.log_prob), y, next_y, more.astype(seen.reward.dtype)
        applied: Any = network.apply(weights, *told)
        pi_hat, y_logits = applied
        y_hat = nn.softmax(y_logits)
        weighed = {
            "pi_hat_l2": jnp.mean(pi_hat**2),
            "y_hat_l2": jnp.mean(jnp.sum(y_hat**2, -1)),
        }
        return {"pi_hat": pi_hat, "y_hat": y_hat}, weighed

    def loss(weights: Any, outputs: dict[str, Array], seen: Seen, targets: Any) -> tuple[Array, dict[str, Array]]:
        log_pi = jnp.take_along_axis(nn.log_softmax(outputs["logits"]), seen.action[:, None], -1)[:, 0]
        y = nn.softmax(outputs["y"])
        divergence = kl(y, targets["y_hat"])
        # The sign is that of the paper: the loss is minimised, so a negative pi_hat makes the action likelier.
        each = log_pi * targets["pi_hat"] + config.alpha_y * divergence
        report = {
            "policy_loss": jnp.mean(log_pi * targets["pi_hat"]),
            "prediction_loss": jnp.mean(divergence),
            "entropy": jnp.mean(entropy(nn.log_softmax(outputs["logits"]))),
            "prediction_entropy": jnp.mean(entropy(nn.log_softmax(outputs["y"]))),
        }
        return each, report

    name = "ta_lpg" if config.temporal else "lpg"
    return UpdateRule(name, (("y", config.predictions),), init, targets, loss, (Discrete,))


def entropy(log_p: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    """The entropy of categorical log-probabilities, in nats."""
    return -jnp.sum(jnp.exp(log_p) * log_p, -1)


def make(
    env: Environment | VectorEnv, config: AgentConfig = TABULAR, *, rule_config: RuleConfig = RuleConfig()
) -> Algorithm:
    """An agent that learns by LPG's rule with this network; the rule's weights are `Hyper(rule=...)`."""
    return agent(rule(rule_config), env, config)


def load(name: str | Path) -> Stored:
    """A learned rule, by its name in the library or the path of its file: `load("lpg-cpu-1").agent(env)`.

    Raises RuleFileError for a file that holds no such rule; the message says why.
    """
    return stored.load(name, {"lpg": (RuleConfig, rule)})


def save(path: str | Path, config: RuleConfig, weights: Any, provenance: dict[str, Any]) -> None:
    """Writes a learned rule for `load`."""
    stored.save(path, "lpg", config, weights, provenance)
