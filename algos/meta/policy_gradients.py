"""A2C and PPO as hand-written update rules, with the interface of learned ones.

A2C is Mnih et al. (2016), arXiv:1602.01783, PPO is Schulman et al. (2017), arXiv:1707.06347, with generalised
advantages (Schulman et al. 2016). The value is the rule's head, the targets are advantages and returns. The weights of
the rule are four numbers, which a meta-learner tunes as it does the weights of a network (self-tuning actor-critic,
Zahavy et al. 2020, arXiv:2002.12928: `a2c_rule` and gradients through its updates). They are stored unconstrained:
gamma and gae_lambda as logits, ent_coef and vf_coef as logarithms.

The value loss is vf_coef (v - target)^2 / 2. A2C's initial vf_coef is 2, which gives the mean squared error of GROOVE's
A2C, the antagonist in its meta-training, whose critic has a separate learning rate, as heads of rules have. PPO's is
0.5, as in `algos/on_policy/a2c.py`, where one optimiser trains all weights.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.environment import pytree
from jaxrl.meta.rule import Lifetime, Seen, UpdateRule
from jaxrl.nn.distributions import Categorical
from jaxrl.returns import gae
from jaxrl.spaces import Discrete


@pytree
class Numbers:
    """The weights of a hand-written rule, unbounded."""

    unconstrained: ClassVar[bool] = True  # no settings: gamma is a logit
    gamma: jax.Array  # logit
    gae_lambda: jax.Array  # logit
    ent_coef: jax.Array  # logarithm
    vf_coef: jax.Array  # logarithm


def numbers(gamma: float = 0.99, gae_lambda: float = 0.95, ent_coef: float = 0.01, vf_coef: float = 0.5) -> Numbers:
    """The rule's numbers from settings in their usual units. A coefficient of 0 is stored as 1e-8."""

    def logit(p: float) -> Array:
        p = min(max(p, 1e-6), 1 - 1e-6)
        return jnp.log(p) - jnp.log1p(-p)

    logs = (jnp.log(jnp.maximum(x, 1e-8)) for x in (ent_coef, vf_coef))
    return Numbers(logit(gamma), logit(gae_lambda), *logs)


def advantages(weights: Numbers, seen: Seen, lifetime: Lifetime) -> tuple[Any, dict[str, Array]]:
    """Advantages and returns of every step, (T, N) each."""
    value, following = seen.outputs["value"][..., 0], seen.successor("value")[..., 0]
    gamma, gae_lambda = jax.nn.sigmoid(weights.gamma), jax.nn.sigmoid(weights.gae_lambda)
    advantage = gae(seen.reward, value, following, seen.terminated, seen.truncated, gamma, gae_lambda)
    return {"advantage": normalized(advantage), "target": advantage + value}, {}


def normalized(advantage: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Advantages with mean 0 and standard deviation 1."""
    centred = advantage - jnp.mean(advantage)
    return centred / (jnp.sqrt(jnp.mean(centred**2) + 1e-16) + 1e-8)


def loss(
    weights: Numbers, outputs: dict[str, Array], seen: Seen, targets: Any, clip_eps: float | Array | None
) -> tuple[Array, dict[str, Array]]:
    """The loss of B steps, A2C's or with `clip_eps`, a number or one for each step, PPO's, and its parts as metrics."""
    pi = Categorical(outputs["logits"])
    log_prob, entropy = pi.log_prob(seen.action), pi.entropy()
    if clip_eps is None:
        policy = -log_prob * targets["advantage"]
    else:
        ratio = jnp.exp(log_prob - seen.log_prob)
        clipped = jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps)
        policy = -jnp.minimum(ratio * targets["advantage"], clipped * targets["advantage"])
    value = 0.5 * (outputs["value"][:, 0] - targets["target"]) ** 2
    each = policy + jnp.exp(weights.vf_coef) * value - jnp.exp(weights.ent_coef) * entropy
    return each, {"policy_loss": policy.mean(), "value_loss": value.mean(), "entropy": entropy.mean()}


@dataclasses.dataclass(frozen=True)
class RuleConfig:
    """Static settings of a hand-written rule, whose numbers may be learned: "a2c" and "ppo" of `jaxrl meta-train`."""

    clip_eps: float | None = None  # None: A2C, else PPO


def rule(config: RuleConfig = RuleConfig()) -> UpdateRule:
    """A2C's rule, or PPO's."""
    return a2c_rule() if config.clip_eps is None else ppo_rule(config.clip_eps)


@functools.cache
def a2c_rule() -> UpdateRule:
    """A2C: one step along the policy gradient; the value loss is the mean squared error, as in GROOVE's A2C."""
    return UpdateRule(
        "a2c_rule",
        (("value", 1),),
        lambda key: numbers(vf_coef=2.0),
        advantages,
        functools.partial(loss, clip_eps=None),
        (Discrete,),
    )


@functools.cache
def ppo_rule(clip_eps: float = 0.2) -> UpdateRule:
    """PPO: the clipped objective, for several passes over a rollout."""
    return UpdateRule(
        "ppo_rule",
        (("value", 1),),
        lambda key: numbers(),
        advantages,
        functools.partial(loss, clip_eps=clip_eps),
        (Discrete,),
        passes=4,
    )
