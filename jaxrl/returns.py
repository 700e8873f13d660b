"""Return and advantage estimators: pure functions of time-major arrays (T, ...), with any trailing shape.

Conventions. `next_value[t]` is the value of the true successor of step t: at the end of an episode that of the final
observation, not of the reset one. Every estimator bootstraps from it unless the step `terminated`, and no return or
trace passes an end of either kind. The last step bootstraps from `next_value[-1]`. `gamma` and the like may be traced,
and may be arrays that broadcast to the trailing shape. No gradient is stopped here: a loss wraps its targets in
`stop_gradient`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Scalar = Float[Array, "..."] | float
"""A number, or an array that broadcasts to the trailing shape."""


def _recur(x: Array, decay: Array, last: Array) -> Array:
    """y[t] = x[t] + decay[t] y[t+1], with y[T] = last."""

    def step(y, inputs):
        x, decay = inputs
        y = x + decay * y
        return y, y

    return jax.lax.scan(step, last, (x, jnp.broadcast_to(decay, x.shape)), reverse=True)[1]


def discounted_returns(
    reward: Float[Array, "T *batch"], done: Bool[Array, "T *batch"], gamma: Scalar
) -> Float[Array, "T *batch"]:
    """Monte-Carlo returns G[t] = reward[t] + gamma (1 - done[t]) G[t+1], no bootstrap (Sutton & Barto, eq. 3.9)."""
    return _recur(reward, gamma * ~done, jnp.zeros_like(reward[0]))


def lambda_returns(
    reward: Float[Array, "T *batch"],
    next_value: Float[Array, "T *batch"],
    terminated: Bool[Array, "T *batch"],
    truncated: Bool[Array, "T *batch"],
    gamma: Scalar,
    lam: Scalar,
) -> Float[Array, "T *batch"]:
    """G[t] = reward[t] + gamma (1 - terminated[t]) ((1 - lam) next_value[t] + lam G[t+1]).

    G[t+1] is `next_value[t]` itself at a truncation and at the last step (Sutton & Barto 2018, eq. 12.20).
    """
    mix = lam * ~(terminated | truncated)
    x = reward + gamma * ~terminated * (1 - mix) * next_value
    return _recur(x, gamma * mix, next_value[-1])


def n_step_returns(
    reward: Float[Array, "T *batch"],
    next_value: Float[Array, "T *batch"],
    terminated: Bool[Array, "T *batch"],
    truncated: Bool[Array, "T *batch"],
    gamma: Scalar,
    n: int,
) -> Float[Array, "T *batch"]:
    """n rewards and then the value (Sutton & Barto 2018, eq. 7.1), fewer where an episode or the sequence ends before.

    Raises ValueError when n < 1.
    """
    if n < 1:
        raise ValueError(f"n_step_returns: n={n}; it must be at least 1.")
    end = (terminated | truncated).at[-1].set(True)

    def longer(_, target):
        """k-step returns from (k-1)-step ones, one step later."""
        return reward + gamma * ~terminated * jnp.where(end, next_value, jnp.roll(target, -1, 0))

    return jax.lax.fori_loop(1, n, longer, reward + gamma * ~terminated * next_value)


def gae(
    reward: Float[Array, "T *batch"],
    value: Float[Array, "T *batch"],
    next_value: Float[Array, "T *batch"],
    terminated: Bool[Array, "T *batch"],
    truncated: Bool[Array, "T *batch"],
    gamma: Scalar,
    gae_lambda: Scalar,
) -> Float[Array, "T *batch"]:
    """Generalised advantage estimates (Schulman et al. 2016, eq. 16): A[t] = delta[t] + gamma gae_lambda A[t+1].

    delta[t] = reward[t] + gamma (1 - terminated[t]) next_value[t] - value[t]; the sum stops at every end of an episode.
    The value target that belongs to it is `advantage + value`.
    """
    delta = reward + gamma * ~terminated * next_value - value
    return _recur(delta, gamma * gae_lambda * ~(terminated | truncated), jnp.zeros_like(delta[0]))


def vtrace(
    log_ratio: Float[Array, "T *batch"],
    reward: Float[Array, "T *batch"],
    value: Float[Array, "T *batch"],
    next_value: Float[Array, "T *batch"],
    terminated: Bool[Array, "T *batch"],
    truncated: Bool[Array, "T *batch"],
    gamma: Scalar,
    lam: Scalar = 1.0,
    clip_rho: Scalar = 1.0,
    clip_c: Scalar = 1.0,
) -> tuple[Float[Array, "T *batch"], Float[Array, "T *batch"]]:
    """V-trace value targets and policy-gradient advantages (Espeholt et al. 2018, eq. 1 and section 4.2).

    `log_ratio` is log pi(a|s) - log mu(a|s), mu being the behaviour. With rho = min(clip_rho, ratio), c = lam
    min(clip_c, ratio): target[t] - value[t] = rho[t] delta[t] + gamma c[t] (target[t+1] - value[t+1]), delta as in
    `gae`, and advantage[t] = rho[t] (reward[t] + gamma q[t] - value[t]), where q[t] = (1 - lam) value[t+1] + lam
    target[t+1], or `next_value[t]` at an end of the episode or sequence (0 if terminated). lam = 1 is the paper; on
    policy and with any lam the advantages are those of `gae` where next_value[t] = value[t+1].
    """
    # Clip before exponentiating: min(clip, exp(x)) overflows to a NaN gradient.
    rho = jnp.exp(jnp.minimum(log_ratio, jnp.log(clip_rho)))
    c = lam * jnp.exp(jnp.minimum(log_ratio, jnp.log(clip_c)))
    end = terminated | truncated
    delta = reward + gamma * ~terminated * next_value - value
    correction = _recur(rho * delta, gamma * c * ~end, jnp.zeros_like(delta[0]))
    # target[t+1] - value[t+1] added to next_value[t], which stands for value[t+1].
    later = jnp.concatenate([correction[1:], jnp.zeros_like(correction[:1])])
    q = ~terminated * (next_value + lam * ~end * later)
    return value + correction, rho * (reward + gamma * q - value)
