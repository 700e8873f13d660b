"""The update-rule protocol: a rule computes an agent's targets from a rollout, and the loss that fits them.

A hand-written rule (A2C, PPO) and a learned one (LPG, a drift, DiscoRL's) are the same NamedTuple of pure functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array


class Seen(NamedTuple):
    """A rollout as a rule sees it, time-major (T, N)."""

    action: Array
    log_prob: Array  # of the action under the policy that drew it
    reward: Array
    terminated: Array
    truncated: Array
    outputs: dict[str, Array]  # of the acting weights: "logits" (T, N, A) and the rule's heads (T, N, size)
    following: dict[str, Array]  # outputs for the next observation; at an episode's end the first of the next one
    successor: Callable[[str], Array]  # name -> a head for the true successor: at a truncation the final observation

    @property
    def done(self) -> Array:
        """Where an episode ended, of either kind."""
        return self.terminated | self.truncated


class Lifetime(NamedTuple):
    """The position of an agent in its life, scalars, on which rules may depend."""

    update: Array  # int32, updates done
    of: Array  # int32, updates of the whole life


class UpdateRule(NamedTuple):
    """An update rule: pure functions of its weights."""

    name: str
    heads: tuple[tuple[str, int], ...]  # (name, size) of an agent's outputs besides its logits
    init: Callable[[Array], Any]  # key -> the rule's weights, which meta-learning trains
    targets: Callable[[Any, Seen, Lifetime], tuple[Any, dict[str, Array]]]
    """(weights, seen, lifetime) -> (targets with leaves (T, N, ...), scalars for regularisers of a meta-objective)."""
    loss: Callable[[Any, dict[str, Array], Seen, Any], tuple[Array, dict[str, Array]]]
    """(weights, outputs, seen, targets) of B steps -> (loss (B,), metrics). `outputs` are computed with the agent's
    current weights; `seen` and `targets` are those of the rollout."""
    spaces: tuple[type, ...] = ()  # action spaces that it supports; (): all
    rates: Callable[[Any, Seen, Any, Lifetime], tuple[Array, Array]] | None = None
    """(weights, seen, targets, lifetime) -> factors of the learning rates of actor and critic in an update; None: 1."""
    passes: int = 1
    """Passes over a rollout that its loss is made for, each in as many minibatches: of PPO's ratio 4, of A2C 1."""


def fresh_weights(rule: UpdateRule, key: Array) -> Any:
    """The initial weights of a rule, in JAX's current default precision."""
    return jax.tree.map(lambda x: x.astype(jnp.result_type(float)), rule.init(key))
