"""Learned policy optimisation (LPO): PPO with a meta-learned function, the drift, in the place of clipping.

Lu et al. (2022), "Discovered Policy Optimisation", NeurIPS, arXiv:2210.05639. The agent maximises

    E[ r A - f(r, A) ],    r = pi(a|s) / pi_old(a|s)

For all weights the drift f >= 0 is zero with zero gradient at r = 1, which guarantees improvement as for PPO (mirror
learning, Kuba et al. 2022). It is a network without biases on features that vanish at r = 1:

    x = [1-r, (1-r)^2, (1-r) A, (1-r)^2 A, log r, (log r)^2, A log r, A (log r)^2],    f = relu(w . tanh(W x) - xi)

Temporally aware (TA-LPO; Jackson et al. 2024, arXiv:2402.05828): the features are [x, x n/N], which vanish there, too.
`dpo_drift` is the closed form that Lu et al. read off theirs, `dpo_rule` the rule with it. xi = 1e-4 and the features
are those of their code. PPO's four numbers are constants: the drift alone is learned.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm
from jaxrl.algos.meta.policy_gradients import Numbers, advantages, numbers
from jaxrl.environment import Environment
from jaxrl.meta.agent import TABULAR, AgentConfig, agent
from jaxrl.meta.rule import Lifetime, Seen, UpdateRule
from jaxrl.nn.distributions import Categorical
from jaxrl.nn.networks import Dense
from jaxrl.spaces import Discrete
from jaxrl.vector_env import VectorEnv

XI = 1e-4
"""The threshold of the network's output above which the drift is positive, so that its gradient is zero at r = 1."""


@dataclasses.dataclass(frozen=True)
class RuleConfig:
    """Static settings of the drift."""

    hidden: int = 128
    temporal: bool = False  # TA-LPO: the position in the agent's life is an input
    clip_eps: float | None = None  # the drift begins as PPO's with this clip, less XI; None: as a network's alone


def features(log_ratio: Float[Array, "*batch"], advantage: Float[Array, "*batch"]) -> Float[Array, "*batch 8"]:
    """x above."""
    away = -jnp.expm1(log_ratio)
    plain = [away, away**2, log_ratio, log_ratio**2]
    return jnp.stack([*plain, *(x * advantage for x in plain)], -1)


def dpo_drift(
    log_ratio: Float[Array, "*batch"], advantage: Float[Array, "*batch"], alpha: float = 2.0, beta: float = 0.6
) -> Float[Array, "*batch"]:
    """Discovered policy optimisation's drift (Lu et al. 2022, eq. 6)."""
    up, down = jnp.expm1(log_ratio) * advantage, log_ratio * advantage
    positive = nn.relu(up - alpha * jnp.tanh(up / alpha))
    return jnp.where(advantage >= 0, positive, nn.relu(down - beta * jnp.tanh(down / beta)))


def ppo_drift(
    log_ratio: Float[Array, "*batch"], advantage: Float[Array, "*batch"], clip_eps: float
) -> Float[Array, "*batch"]:
    """PPO's clipped objective as a drift (Lu et al. 2022, section 3)."""
    ratio = jnp.exp(log_ratio)
    return nn.relu((ratio - jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps)) * advantage)


def drift_loss(
    numbers: Numbers, outputs: dict[str, Array], seen: Seen, targets: Any, drift: Callable[[Array, Array], Array]
) -> tuple[Array, dict[str, Array]]:
    """The loss of every step with the drift f(log r, A) in the place of PPO's clipping, and its parts as metrics."""
    pi = Categorical(outputs["logits"])
    log_ratio, entropy = pi.log_prob(seen.action) - seen.log_prob, pi.entropy()
    away = drift(log_ratio, targets["advantage"])
    policy = away - jnp.exp(log_ratio) * targets["advantage"]
    value = 0.5 * (outputs["value"][:, 0] - targets["target"]) ** 2
    each = policy + jnp.exp(numbers.vf_coef) * value - jnp.exp(numbers.ent_coef) * entropy
    report = {"policy_loss": policy.mean(), "value_loss": value.mean(), "entropy": entropy.mean()}
    return each, {**report, "drift": away.mean()}


@functools.cache
def dpo_rule() -> UpdateRule:
    """Discovered policy optimisation (Lu et al. 2022): nothing of it is learned any more but PPO's four numbers."""

    def loss(weights: Numbers, outputs: dict[str, Array], seen: Seen, targets: Any) -> tuple[Array, dict[str, Array]]:
        return drift_loss(weights, outputs, seen, targets, dpo_drift)

    return UpdateRule("dpo_rule", (("value", 1),), lambda key: numbers(), advantages, loss, (Discrete,), passes=4)


@functools.cache
def rule(config: RuleConfig = RuleConfig()) -> UpdateRule:
    """LPO's update rule, or TA-LPO's."""
    layers = Dense(config.hidden, use_bias=False), Dense(1, use_bias=False)

    def init(key: Array) -> Any:
        first, second = jax.random.split(key)
        x = jnp.zeros(8 * (1 + config.temporal))
        last: Any = layers[1].init(second, jnp.zeros(config.hidden))
        last = last if config.clip_eps is None else jax.tree.map(jnp.zeros_like, last)
        return layers[0].init(first, x), last

    def targets(weights: Any, seen: Seen, lifetime: Lifetime) -> tuple[Any, dict[str, Array]]:
        found, _ = advantages(numbers(), seen, lifetime)
        share = lifetime.update / jnp.maximum(lifetime.of, 1)
        return {**found, "share": jnp.full(seen.reward.shape, share, seen.reward.dtype)}, {}

    def drift(weights: Any, log_ratio: Array, advantage: Array, share: Array) -> Array:
        x = features(log_ratio, advantage)
        x = jnp.concatenate([x, x * share[..., None]], -1) if config.temporal else x
        h: Any = layers[0].apply(weights[0], x)
        out: Any = layers[1].apply(weights[1], nn.tanh(h))
        start = 0 if config.clip_eps is None else ppo_drift(log_ratio, advantage, config.clip_eps)
        return nn.relu(start + out[..., 0] - XI)

    def loss(weights: Any, outputs: dict[str, Array], seen: Seen, targets: Any) -> tuple[Array, dict[str, Array]]:
        def away(log_ratio: Array, advantage: Array) -> Array:
            return drift(weights, log_ratio, advantage, targets["share"])

        return drift_loss(numbers(), outputs, seen, targets, away)

    name = ("ta_lpo" if config.temporal else "lpo") + ("" if config.clip_eps is None else "_from_ppo")
    return UpdateRule(name, (("value", 1),), init, targets, loss, (Discrete,), passes=4)


def make(
    env: Environment | VectorEnv, config: AgentConfig = TABULAR, *, rule_config: RuleConfig = RuleConfig()
) -> Algorithm:
    """An agent that learns by LPO's rule with this drift; the rule's weights are `Hyper(rule=...)`."""
    return agent(rule(rule_config), env, config)
