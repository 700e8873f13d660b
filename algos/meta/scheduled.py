"""A rule that begins as A2C or PPO and schedules its learning rates, entropy and clip by what it is told of the agent.

With zero weights in the last layer the rule is `policy_gradients.a2c_rule` or `ppo_rule`, to rounding, so that a search
starts from a rule that works, not from noise as LPG's does (Oh et al. 2020, arXiv:2007.08794). A strategy over whole
lives can then learn what depends on an agent's position in its life, which a gradient through a few updates cannot see
(Jackson et al. 2024, arXiv:2402.05828). In update n of a life of N it is told

    x = [n/N, log N / 10, H, E]    H: entropy over its largest value, mean of the rollout, as of the acting policy
                                   E: explained variance of the values, 1 - Var(target - value) / Var(target), >= -1,
                                      of lambda-returns; 0 where these do not vary

and its outputs s(x), of a network with a hidden layer of tanh, are logarithms of factors:

    rates      the learning rates of actor and critic times exp(s_0) and exp(s_1)
    entropy    the coefficient of the entropy times exp(s_2)
    clip       PPO's clip_eps times exp(s_3)

The discount and the advantages are left alone. (Rules that moved them were better on their own tasks and worse on
others, see experiments/learned_rules.)
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
from jaxrl.environment import Environment
from jaxrl.meta.agent import TABULAR, AgentConfig, agent
from jaxrl.meta.rule import Lifetime, Seen, UpdateRule
from jaxrl.nn.distributions import Categorical, allowed
from jaxrl.nn.networks import Dense
from jaxrl.spaces import Discrete
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class RuleConfig:
    """Static settings of the rule."""

    features: int = 8  # width of the hidden layer
    clip_eps: float | None = None  # None: it begins as A2C, else as PPO with this clip

    def __post_init__(self) -> None:
        check_at_least_one(self, "features")
        if self.clip_eps is not None and not self.clip_eps > 0:
            raise ValueError(f"clip_eps={self.clip_eps}: it must be above 0, or None for A2C.")


def rule(config: RuleConfig = RuleConfig()) -> UpdateRule:
    """The update rule; its initial weights are those of A2C or PPO. Equal settings give the same functions."""
    return _rule(config)


@functools.cache
def _rule(config: RuleConfig) -> UpdateRule:
    known = policy_gradients.rule(policy_gradients.RuleConfig(config.clip_eps))
    hidden, last = Dense(config.features), Dense(3 + (config.clip_eps is not None))

    def init(key: Array) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, last.init(key, jnp.zeros(config.features)))
        return hidden.init(key, jnp.zeros(4)), zeros

    def numbers() -> policy_gradients.Numbers:
        return known.init(jax.random.key(0))

    def schedule(weights: Any, seen: Seen, found: dict[str, Array], lifetime: Lifetime) -> Array:
        logits, value = seen.outputs["logits"], seen.outputs["value"][..., 0]
        count = jnp.sum(allowed(logits), -1)
        largest = jnp.log(jnp.where(count > 0, count, logits.shape[-1]))  # of a policy that is uniform
        entropy = jnp.sum(Categorical(logits).entropy()) / jnp.maximum(jnp.sum(largest), 1e-6)
        spread, left = jnp.var(found["target"]), jnp.var(found["target"] - value)
        explained = jnp.where(spread > 0, 1 - left / jnp.where(spread > 0, spread, 1), 0)
        position = jnp.minimum(when(lifetime), 1.0)  # past its end as at its end
        x = jnp.concatenate([position, jnp.stack([entropy, jnp.maximum(explained, -1.0)])]).astype(value.dtype)
        h: Any = hidden.apply(weights[0], x)
        out: Any = last.apply(weights[1], jnp.tanh(h))
        return out

    def targets(weights: Any, seen: Seen, lifetime: Lifetime) -> tuple[Any, dict[str, Array]]:
        found, _ = policy_gradients.advantages(numbers(), seen, lifetime)
        moved = schedule(weights, seen, found, lifetime)
        shape = seen.reward.shape
        found = {**found, "ent_coef": jnp.broadcast_to(numbers().ent_coef + moved[2], shape)}
        if config.clip_eps is not None:
            found["clip_eps"] = jnp.broadcast_to(config.clip_eps * jnp.exp(moved[3]), shape)
        return found, {}

    def loss(weights: Any, outputs: dict[str, Array], seen: Seen, targets: Any) -> tuple[Array, dict[str, Array]]:
        with_entropy = numbers().replace(ent_coef=targets["ent_coef"])
        return policy_gradients.loss(with_entropy, outputs, seen, targets, targets.get("clip_eps"))

    def rates(weights: Any, seen: Seen, targets: Any, lifetime: Lifetime) -> tuple[Array, Array]:
        moved = schedule(weights, seen, targets, lifetime)
        return jnp.exp(moved[0]), jnp.exp(moved[1])

    return UpdateRule(
        f"scheduled_{known.name}", (("value", 1),), init, targets, loss, (Discrete,), rates, passes=known.passes
    )


def make(
    env: Environment | VectorEnv, config: AgentConfig = TABULAR, *, rule_config: RuleConfig = RuleConfig()
) -> Algorithm:
    """An agent that learns by the rule with these networks; the rule's weights are `Hyper(rule=...)`."""
    return agent(rule(rule_config), env, config)
