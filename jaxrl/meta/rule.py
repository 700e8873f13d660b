"""The update-rule protocol: from a rollout and what the agent said on the way to targets, and the loss that fits them.

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
    log_prob: Array  # of the action, when it was drawn
    reward: Array
    terminated: Array
    truncated: Array
    outputs: dict[str, Array]  # of the acting weights: "logits" (T, N, A) and the rule's heads (T, N, size)
    following: dict[str, Array]  # of the next observation; where an episode ended that is the next one's first
    successor: Callable[[str], Array]  # a head of the true successor, after truncation the last observation's

    @property
    def done(self) -> Array:
        """Where an episode ended, of either kind."""
        return self.terminated | self.truncated


class Lifetime(NamedTuple):
    """Where an agent is in its life, scalars: what rules that plan ahead are told."""

    update: Array  # int32, updates done
    of: Array  # int32, updates that it will be given


class UpdateRule(NamedTuple):
    """How agents learn."""

    name: str
    heads: tuple[tuple[str, int], ...]  # what an agent says of an observation beside its logits, and how many numbers
    init: Callable[[Array], Any]  # key -> the rule's own weights, which are what is learned of it
    targets: Callable[[Any, Seen, Lifetime], tuple[Any, dict[str, Array]]]
    """(weights, seen, lifetime) -> (targets, leaves (T, N, ...); scalars that a meta-objective may weigh)."""
    loss: Callable[[Any, dict[str, Array], Seen, Any], tuple[Array, dict[str, Array]]]
    """(weights, outputs, seen, targets) of B steps -> (loss (B,), scalars to report). `outputs` are of the agent's
    present weights, the rest is as it was when the rollout was seen."""
    spaces: tuple[type, ...] = ()  # of the actions that it can learn; all if ()


def fresh_weights(rule: UpdateRule, key: Array) -> Any:
    """A rule's weights before it has learned anything, in JAX's present precision."""
    return jax.tree.map(lambda x: x.astype(jnp.result_type(float)), rule.init(key))
