"""Trees of decisions with rewards at the leaves: what the values of a random policy know of the best one.

He et al. (2025), "Random policy valuation is enough for LLM reasoning with verifiable rewards" (ROVER,
arXiv:2509.24981), theorem 3.1: in a tree with deterministic steps whose leaves are right or wrong, acting greedily by
the action values of the uniformly random policy is optimal, as these are above 0 exactly where a right leaf lies below.
So one evaluation takes the place of policy iteration. Their softmax, at a temperature, still visits many right leaves,
where a greedy policy visits one.

The theorem needs leaves of two values: with rewards 1, 0 below one action and 0.6, 0.6 below the other the random
policy prefers the second (a test).

A tree is complete: `actions` at each of `depth` decisions, `leaves` (actions ** depth,) in the order of the decisions.
What belongs to nodes is a list over depths d = 0 .. depth - 1 of arrays (actions ** d, actions). Pure functions; `vmap`
them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def depth_of(leaves: Float[Array, " L"], actions: int) -> int:
    """The number of decisions. Raises ValueError unless the leaves are those of a complete tree."""
    depth, size = 0, 1
    while actions > 1 and size < len(leaves):
        depth, size = depth + 1, size * actions
    if actions < 2 or size != len(leaves) or not depth:
        raise ValueError(
            f"{len(leaves)} leaves with actions={actions}: a complete tree has actions ** depth of them, with at least "
            "2 actions and 1 decision."
        )
    return depth


def random_values(leaves: Float[Array, " L"], actions: int) -> list[Array]:
    """Action values of the uniformly random policy: the mean of the leaves below."""
    return [jnp.mean(leaves.reshape(actions**d, actions, -1), -1) for d in range(depth_of(leaves, actions))]


def optimal_values(leaves: Float[Array, " L"], actions: int) -> list[Array]:
    """Action values of the best policy: the maximum of the leaves below."""
    return [jnp.max(leaves.reshape(actions**d, actions, -1), -1) for d in range(depth_of(leaves, actions))]


def greedy(values: list[Array]) -> list[Array]:
    """The policy that takes the first of the best actions."""
    return [jax.nn.one_hot(jnp.argmax(q, -1), q.shape[-1], dtype=q.dtype) for q in values]


def softmax(values: list[Array], temperature: float | Float[Array, ""]) -> list[Array]:
    """ROVER's policy, exp(q / temperature) normalised."""
    return [jax.nn.softmax(q / temperature, -1) for q in values]


def reached(policy: list[Array]) -> Float[Array, " L"]:
    """The probability of each leaf."""
    share = jnp.ones(1, policy[0].dtype)
    for choice in policy:
        share = (share[:, None] * choice).reshape(-1)
    return share


def expected(policy: list[Array], leaves: Float[Array, " L"]) -> Float[Array, ""]:
    """The return of the policy; of right (1) and wrong (0) leaves the probability of success."""
    return reached(policy) @ leaves


def found_within(policy: list[Array], leaves: Float[Array, " L"], tries: int) -> Float[Array, ""]:
    """How many different leaves with a reward above 0 are expected in so many independent tries."""
    return jnp.sum(jnp.where(leaves > 0, 1 - (1 - reached(policy)) ** tries, 0))
