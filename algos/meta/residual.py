"""A rule that begins as A2C or PPO: a learned schedule of its settings, and a learned residual on its advantages.

With zero weights in the last layers of both networks, the rule is exactly `policy_gradients.a2c_rule` or `ppo_rule`, so
that a search starts from a rule that works, not from noise as LPG's does (Oh et al. 2020, arXiv:2007.08794). A strategy
over whole lives can then learn what depends on an agent's position in its life, which a gradient through a few updates
cannot see (Jackson et al. 2024, arXiv:2402.05828). With t = [n/N, log N / 10] of update n of a life of N,

    settings  gamma, lambda, entropy and value coefficients of A2C, moved in their unbounded units by schedule(t)[0:4]
    advantage A' = exp(schedule(t)[4]) (A + residual(A, log pi(a|s), H(pi(s)), done, t))

where A are normalised generalised advantages and H is the entropy over its largest value. The factor of A' is a
schedule of the actor's learning rate under SGD, and under Adam, or where the gradient is clipped, of the policy
gradient's share beside the entropy's. Both networks have one hidden layer of tanh.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, check_at_least_one
from jaxrl.algos.meta import policy_gradients
from jaxrl.algos.meta.lpg import when
from jaxrl.algos.meta.policy_gradients import Numbers, normalized
from jaxrl.environment import Environment, pytree
from jaxrl.meta.agent import TABULAR, AgentConfig, agent
from jaxrl.meta.rule import Lifetime, Seen, UpdateRule
from jaxrl.nn.distributions import Categorical
from jaxrl.nn.networks import Dense
from jaxrl.returns import gae
from jaxrl.spaces import Discrete
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class RuleConfig:
    """Static settings of the rule."""

    features: int = 16  # width of the hidden layer of each of the two networks
    clip_eps: float | None = None  # None: it begins as A2C, else as PPO with this clip

    def __post_init__(self) -> None:
        check_at_least_one(self, "features")


@pytree
class Weights:
    """Weights of the rule."""

    numbers: Numbers  # at the start those of A2C or PPO
    schedule: Any  # hidden and last layer of each network
    residual: Any


def rule(config: RuleConfig = RuleConfig()) -> UpdateRule:
    """The update rule; its initial weights are those of A2C or PPO. Equal settings give the same functions."""
    return _rule(config)


@functools.cache
def _rule(config: RuleConfig) -> UpdateRule:
    known = policy_gradients.rule(policy_gradients.RuleConfig(config.clip_eps))
    hidden, moves, more = Dense(config.features), Dense(5), Dense(1)

    def init(key: Array) -> Weights:
        numbers_key, first, second = jax.random.split(key, 3)

        def network(key: Array, last: Any, inputs: int) -> Any:
            zeros = jax.tree.map(jnp.zeros_like, last.init(key, jnp.zeros(config.features)))
            return hidden.init(key, jnp.zeros(inputs)), zeros

        return Weights(known.init(numbers_key), network(first, moves, 2), network(second, more, 6))

    def apply(weights: Any, last: Any, x: Array) -> Array:
        h: Any = hidden.apply(weights[0], x)
        out: Any = last.apply(weights[1], jnp.tanh(h))
        return out

    def settings(weights: Weights, at: Array) -> tuple[Numbers, Array]:
        """The known rule's numbers at a position of a life, and the logarithm of the advantages' factor."""
        moved = apply(weights.schedule, moves, at)
        old = weights.numbers
        names = ("gamma", "gae_lambda", "ent_coef", "vf_coef")
        return Numbers(**{name: getattr(old, name) + moved[i] for i, name in enumerate(names)}), moved[4]

    def targets(weights: Weights, seen: Seen, lifetime: Lifetime) -> tuple[Any, dict[str, Array]]:
        at = jnp.minimum(when(lifetime), 1.0).astype(seen.reward.dtype)  # no further than where it was learned
        now, log_factor = settings(weights, at)
        value, following = seen.outputs["value"][..., 0], seen.successor("value")[..., 0]
        gamma, gae_lambda = jax.nn.sigmoid(now.gamma), jax.nn.sigmoid(now.gae_lambda)
        advantage = gae(seen.reward, value, following, seen.terminated, seen.truncated, gamma, gae_lambda)
        target, advantage = advantage + value, normalized(advantage)
        logits = seen.outputs["logits"]
        entropy = Categorical(logits).entropy() / jnp.log(max(logits.shape[-1], 2))
        told = advantage, seen.log_prob, entropy, seen.done.astype(advantage.dtype), *at
        x = jnp.stack([jnp.broadcast_to(number, advantage.shape) for number in told], -1)
        advantage = jnp.exp(log_factor) * (advantage + apply(weights.residual, more, x)[..., 0])
        coefficients = {name: jnp.broadcast_to(getattr(now, name), target.shape) for name in ("ent_coef", "vf_coef")}
        return {"advantage": advantage, "target": target, **coefficients}, {}

    def loss(weights: Weights, outputs: dict[str, Array], seen: Seen, targets: Any) -> tuple[Array, dict[str, Array]]:
        now = weights.numbers.replace(ent_coef=targets["ent_coef"], vf_coef=targets["vf_coef"])
        return known.loss(now, outputs, seen, targets)

    return UpdateRule(f"residual_{known.name}", (("value", 1),), init, targets, loss, (Discrete,))


def make(
    env: Environment | VectorEnv, config: AgentConfig = TABULAR, *, rule_config: RuleConfig = RuleConfig()
) -> Algorithm:
    """An agent that learns by the rule with these networks; the rule's weights are `Hyper(rule=...)`."""
    return agent(rule(rule_config), env, config)
