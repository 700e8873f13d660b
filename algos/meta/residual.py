"""A rule that begins as A2C or PPO: learned schedules of its learning rates and entropy, and learned weights of steps.

With zero weights in the last layers of both networks, the rule is `policy_gradients.a2c_rule` or `ppo_rule`, to
rounding, so that a search starts from a rule that works, not from noise as LPG's does (Oh et al. 2020,
arXiv:2007.08794). A strategy over whole lives can then learn what depends on an agent's position in its life, which a
gradient through a few updates cannot see (Jackson et al. 2024, arXiv:2402.05828). With t = [n/N, log N / 10] of update
n of a life of N,

    rates      the learning rates of actor and critic times exp(schedule(t)[0:2])
    entropy    the coefficient of the entropy times exp(schedule(t)[2])
    advantage  A' = A exp(residual(A, log pi(a|s), H(pi(s)), done, t))

where A are normalised generalised advantages and H is the entropy over its largest value. The discount is the task's,
so no schedule moves it. A' has the sign of A: what was better than expected becomes likelier. (A rule that moved the
discount and added its residual was better on its own tasks and far worse on others, see experiments/learned_rules.)
Both networks have one hidden layer of tanh.
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
from jaxrl.environment import Environment, pytree
from jaxrl.meta.agent import TABULAR, AgentConfig, agent
from jaxrl.meta.rule import Lifetime, Seen, UpdateRule
from jaxrl.nn.distributions import Categorical
from jaxrl.nn.networks import Dense
from jaxrl.spaces import Discrete
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class RuleConfig:
    """Static settings of the rule."""

    features: int = 8  # width of the hidden layer of each of the two networks
    clip_eps: float | None = None  # None: it begins as A2C, else as PPO with this clip

    def __post_init__(self) -> None:
        check_at_least_one(self, "features")


@pytree
class Weights:
    """Weights of the rule: hidden and last layer of each network."""

    schedule: Any
    residual: Any


def rule(config: RuleConfig = RuleConfig()) -> UpdateRule:
    """The update rule; its initial weights are those of A2C or PPO. Equal settings give the same functions."""
    return _rule(config)


@functools.cache
def _rule(config: RuleConfig) -> UpdateRule:
    known = policy_gradients.rule(policy_gradients.RuleConfig(config.clip_eps))
    hidden, moves, more = Dense(config.features), Dense(3), Dense(1)

    def init(key: Array) -> Weights:
        def network(key: Array, last: Any, inputs: int) -> Any:
            zeros = jax.tree.map(jnp.zeros_like, last.init(key, jnp.zeros(config.features)))
            return hidden.init(key, jnp.zeros(inputs)), zeros

        first, second = jax.random.split(key)
        return Weights(network(first, moves, 2), network(second, more, 6))

    def numbers() -> policy_gradients.Numbers:
        return known.init(jax.random.key(0))

    def apply(weights: Any, last: Any, x: Array) -> Array:
        h: Any = hidden.apply(weights[0], x)
        out: Any = last.apply(weights[1], jnp.tanh(h))
        return out

    def position(lifetime: Lifetime) -> Array:
        return jnp.minimum(when(lifetime), 1.0)  # no further than where it was learned

    def rates(weights: Weights, lifetime: Lifetime) -> tuple[Array, Array]:
        moved = apply(weights.schedule, moves, position(lifetime))
        return jnp.exp(moved[0]), jnp.exp(moved[1])

    def targets(weights: Weights, seen: Seen, lifetime: Lifetime) -> tuple[Any, dict[str, Array]]:
        found, _ = policy_gradients.advantages(numbers(), seen, lifetime)
        advantage, at = found["advantage"], position(lifetime).astype(seen.reward.dtype)
        logits = seen.outputs["logits"]
        entropy = Categorical(logits).entropy() / jnp.log(max(logits.shape[-1], 2))
        told = advantage, seen.log_prob, entropy, seen.done.astype(advantage.dtype), *at
        x = jnp.stack([jnp.broadcast_to(number, advantage.shape) for number in told], -1)
        advantage = advantage * jnp.exp(apply(weights.residual, more, x)[..., 0])
        ent_coef = numbers().ent_coef + apply(weights.schedule, moves, at)[2]
        return {**found, "advantage": advantage, "ent_coef": jnp.broadcast_to(ent_coef, advantage.shape)}, {}

    def loss(weights: Weights, outputs: dict[str, Array], seen: Seen, targets: Any) -> tuple[Array, dict[str, Array]]:
        return known.loss(numbers().replace(ent_coef=targets["ent_coef"]), outputs, seen, targets)

    return UpdateRule(f"residual_{known.name}", (("value", 1),), init, targets, loss, (Discrete,), rates, known.passes)


def make(
    env: Environment | VectorEnv, config: AgentConfig = TABULAR, *, rule_config: RuleConfig = RuleConfig()
) -> Algorithm:
    """An agent that learns by the rule with these networks; the rule's weights are `Hyper(rule=...)`."""
    return agent(rule(rule_config), env, config)
