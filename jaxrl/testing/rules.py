"""One gradient step of a rule, by plain descent: to compare losses and gradients with those by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from jaxrl.nn.nets import net
from jaxrl.nn.optim import optimizer_of


def step(
    rule: Any,
    weights: dict[str, Any],
    target_weights: dict[str, Any],
    batch: Any,
    hyper: Any,
    key: Array,
    extra: Any = (),
) -> tuple[dict[str, Array], dict[str, Any]]:
    """`(report, change)` of an `off_policy.learner.Rule` on a batch: what was taken off each network's weights.

    That is the gradient times its learning rate. `extra`: what gradient steps are given beside the networks, by name.
    """
    plain, hyper = optimizer_of(optax.sgd), jax.tree.map(jnp.asarray, hyper)
    before = {
        name: net(weights[name], plain.init(weights[name], 1.0), plain, target_weights.get(name), name)
        for name in rule.networks
    }
    after, report = rule.gradient_step({**before, **dict(extra)}, key, batch, hyper)
    change = {
        name: jax.tree.map(lambda x, y: x - y, before[name].weights, after[name].weights) for name in rule.networks
    }
    return report, change


def q_step(
    rule: Any, weights: Any, target_weights: Any, batch: Any, hyper: Any, key: Array | None = None
) -> tuple[dict[str, Array], Any]:
    """`(report, gradient)` of a `q_learner.Rule` on a batch, at rate 1; both networks are given the same key."""
    plain, hyper = optimizer_of(optax.sgd), jax.tree.map(jnp.asarray, hyper)
    before = net(weights, plain.init(weights, 1.0), plain)
    ahead = rule.ahead(target_weights, batch, hyper, key)
    after, report = rule.gradient_step(before, batch, ahead, key, hyper, jnp.asarray(1.0))
    return report, jax.tree.map(lambda x, y: x - y, before.weights, after.weights)
