"""The reward of preferences about what its own best policy does: a bi-level gradient of tables.

Chakraborty et al. (2024), "PARL: a unified framework for policy alignment in reinforcement learning from human
feedback". Two levels. The lower one is a policy that is optimal for the reward w, here with an entropy bonus, of which
there is exactly one,

    V(s) = tau log sum_a exp(Q(s, a) / tau),   Q = r_w + gamma P V,   pi(a | s) = exp((Q(s, a) - V(s)) / tau).

The upper one is the loss of w on comparisons of what that policy does, here of pairs of its steps, drawn by its
discounted occupancy rho (S, A):

    G(w) = sum_{x, y} rho(x) rho(y) loss(r_w(y) - r_w(x), label(x, y))

The derivative of G has two terms: of the loss, and the **cross term**, of the data, by how the optimal policy changes
with w. Reward learning in turns leaves the second one out. PARL takes it from the implicit function theorem; so does
`soft_optimal`, whose derivative solves the linearised Bellman equation at the fixed point and does not go back through
the iteration. `upper_loss(..., cross=False)` leaves the term out.

Deviations: the paper's lower level has a parameterised policy and the Hessian of its objective; a table's is the
Bellman equation. Segments are single steps, which makes the sum over all pairs exact.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.exact.mdp import MDP, DenseMDP
from jaxrl.exact.solvers import evaluate_policy, occupancy, solve


def _soft_bellman(dense: DenseMDP, reward: Array, value: Array, gamma: Array | float) -> Array:
    """Q(s, a) of one step of this reward and then `value`."""
    return reward + gamma * dense.transition @ value


def soft_optimal(
    mdp: MDP | DenseMDP,
    reward: Float[Array, "S A"],
    gamma: float | Float[Array, ""],
    tau: float | Float[Array, ""],
    sweeps: int = 1_000,
) -> tuple[Float[Array, "S A"], Float[Array, " S"]]:
    """`(policy, value)`: the policy of the most reward plus tau times entropy, with the exact derivative by `reward`.

    The value is found by `sweeps` of soft value iteration without derivative; a step of Newton's method from there is
    the same value, and its derivative that of the fixed point: (I - gamma P_pi)^-1 dT.
    """
    dense = mdp.dense()

    def backed_up(value: Array, reward: Array) -> Array:
        return tau * jax.nn.logsumexp(_soft_bellman(dense, reward, value, gamma) / tau, -1)

    fixed, size = jax.lax.stop_gradient(reward), reward.shape[0]
    value = jax.lax.fori_loop(0, sweeps, lambda _, v: backed_up(v, fixed), jnp.zeros(size, reward.dtype))
    value = jax.lax.stop_gradient(value)
    policy = jax.nn.softmax(_soft_bellman(dense, fixed, value, gamma) / tau, -1)
    along = jnp.eye(size, dtype=reward.dtype) - gamma * jnp.einsum("sa,sat->st", policy, dense.transition)
    value = value + solve(along, backed_up(value, reward) - value)
    return jax.nn.softmax(_soft_bellman(dense, reward, value, gamma) / tau, -1), value


def visits(mdp: MDP | DenseMDP, policy: Float[Array, "S A"], gamma: float | Float[Array, ""]) -> Float[Array, "S A"]:
    """The discounted occupancy of a policy, adding up to 1."""
    found = occupancy(mdp, policy, gamma)
    return found / jnp.sum(found)


def upper_loss(
    weights: Float[Array, " F"],
    features: Float[Array, "S A F"],
    mdp: MDP | DenseMDP,
    label: Float[Array, "n n"],
    gamma: float | Float[Array, ""],
    tau: float | Float[Array, ""],
    cross: bool = True,
) -> Float[Array, ""]:
    """G(w), of a reward linear in features. `label[x, y]`: y is better than x, both of S A pairs in order.

    `cross` False: the derivative does not see that the policy changes, as in reward learning in turns.
    """
    reward = features @ weights
    data = visits(mdp, soft_optimal(mdp, reward, gamma, tau)[0], gamma).reshape(-1)
    data = data if cross else jax.lax.stop_gradient(data)
    flat = reward.reshape(-1)
    margin = flat[None, :] - flat[:, None]
    loss = label * jax.nn.softplus(-margin) + (1 - label) * jax.nn.softplus(margin)
    return data @ loss @ data


def true_return(
    weights: Float[Array, " F"],
    features: Float[Array, "S A F"],
    mdp: MDP | DenseMDP,
    gamma: float | Float[Array, ""],
    tau: float | Float[Array, ""],
) -> Float[Array, ""]:
    """What the optimal policy for `weights` is worth by the task's own reward, from its first states."""
    policy = soft_optimal(mdp, features @ weights, gamma, tau)[0]
    return evaluate_policy(mdp, policy, gamma) @ mdp.initial
