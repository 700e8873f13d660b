"""iLQR: the iterative linear-quadratic regulator, with limits on the actions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from jaxrl.environment import Environment, pytree
from jaxrl.exact.planning.noise import colored_noise
from jaxrl.exact.planning.planner import (
    Carry,
    Model,
    Planner,
    TerminalValue,
    advance,
    check_at_least_one,
    model_of,
    select,
    shifted,
)
from jaxrl.math import fast_key, precise
from jaxrl.spaces import Box


@dataclasses.dataclass(frozen=True)
class ILQRConfig:
    """Static settings: each value compiles its own program."""

    horizon: int = 50  # steps ahead
    num_iterations: int = 10  # a decision, at most
    num_step_sizes: int = 8  # 1, 1/2, 1/4, ... tried together in the line search
    num_starts: int = 64  # plans of which the best is improved: the rest of the last one, without noise and with

    def __post_init__(self) -> None:
        check_at_least_one(self)


@pytree
class ILQRHyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    damping: jax.Array = 1e-3  # first mu of a decision, added to the curvature in the actions
    damping_factor: jax.Array = 4.0  # mu grows by it when a step fails, and falls by it when one succeeds
    std: jax.Array = 0.5  # of the noise in the other starts, in units of the box
    beta: jax.Array = 1.0  # its color: 0 white
    tolerance: jax.Array = 1e-5  # relative gain below which a decision is done
    gamma: jax.Array = 1.0  # discount


_SWEEPS = 20  # of projected Gauss-Seidel: enough to find which limits are active
_MIN_DAMPING, _MAX_DAMPING = 1e-8, 1e8


def solve_positive(a: Float[Array, "m m"], b: Float[Array, "m n"]) -> tuple[Float[Array, "m n"], Bool[Array, ""]]:
    """`(x, a is positive definite)` with a x = b for symmetric `a`: elimination without pivoting, unrolled for small m.

    A symmetric matrix is positive definite when all its pivots are positive.
    """
    m = len(a)
    rows, positive = jnp.concatenate([a, b], 1), jnp.bool_(True)
    for i in range(m):
        pivot = rows[i, i]
        positive = positive & (pivot > 0)
        row = rows[i] / jnp.where(pivot > 0, pivot, 1)
        rows = (rows - rows[:, i : i + 1] * row).at[i].set(row)
    return rows[:, m:], positive


@precise
def box_step(
    hessian: Float[Array, "m m"],
    gradient: Float[Array, " m"],
    feedback: Float[Array, "m n"],
    low: Float[Array, " m"],
    high: Float[Array, " m"],
) -> tuple[Float[Array, " m"], Float[Array, "m n"], Bool[Array, ""]]:
    """`(k, K, ok)`: the k between `low` and `high` that minimises k' hessian k / 2 + gradient' k, and its gains.

    K = -hessian^-1 feedback on the coordinates that are free, zero on those at a limit (Tassa, Mansard and Todorov
    2014, "Control-limited DDP", section III). `ok`: the hessian is positive definite.
    """
    m = len(gradient)

    def sweep(_, k):
        for i in range(m):
            slope = hessian[i] @ k + gradient[i]
            k = k.at[i].set(jnp.clip(k[i] - slope / jnp.maximum(hessian[i, i], 1e-12), low[i], high[i]))
        return k

    start = jnp.clip(jnp.zeros_like(gradient), low, high)
    k = sweep(0, start) if m == 1 else jax.lax.fori_loop(0, _SWEEPS, sweep, start)
    slope = hessian @ k + gradient
    free = ~(((k <= low) & (slope > 0)) | ((k >= high) & (slope < 0)))
    # With the active limits known the rest is a linear system.
    system = jnp.where(free[:, None] & free, hessian, jnp.eye(m, dtype=hessian.dtype))
    fixed = jnp.where(free, 0, k)
    right = jnp.concatenate(
        [jnp.where(free, -(gradient + hessian @ fixed), fixed)[:, None], jnp.where(free[:, None], -feedback, 0)], 1
    )
    solution, ok = solve_positive(system, right)
    return jnp.clip(solution[:, 0], low, high), solution[:, 1:], ok


class Quadratic(NamedTuple):
    """Dynamics x' = A x + B u and the second-order cost, about each step of a plan; leading axis H."""

    jacobian: Array  # (H, n, n + m): of the next state
    gradient: Array  # (H, n + m): of the cost
    hessian: Array  # (H, n + m, n + m)


@precise
def backward_pass(
    model: Quadratic,
    end_gradient: Float[Array, " n"],
    end_hessian: Float[Array, "n n"],
    plan: Float[Array, "H m"],
    low: Float[Array, " m"],
    high: Float[Array, " m"],
    damping: Float[Array, ""],
) -> tuple[Float[Array, "H m"], Float[Array, "H m n"], Bool[Array, ""]]:
    """`(k, K, ok)`: changes of the plan and feedback gains (Tassa, Erez and Todorov 2012, eq. 6 to 11).

    The damping is added to the curvature in the actions (their section II-F; not eq. 10, which adds it to that in the
    states). `ok`: all curvatures were positive definite.
    """
    n = len(end_gradient)

    def step(carry, inputs):
        value_x, value_xx, ok = carry
        (jacobian, gradient, hessian), u = inputs
        q = gradient + value_x @ jacobian
        Q = hessian + jacobian.T @ value_xx @ jacobian
        q_u, Q_uu, Q_ux = q[n:], Q[n:, n:], Q[n:, :n]
        damped = Q_uu + damping * jnp.eye(len(u), dtype=u.dtype)
        k, K, positive = box_step(damped, q_u, Q_ux, low - u, high - u)
        value_x = q[:n] + K.T @ (Q_uu @ k + q_u) + Q_ux.T @ k
        value_xx = Q[:n, :n] + K.T @ Q_uu @ K + K.T @ Q_ux + Q_ux.T @ K
        return (value_x, (value_xx + value_xx.T) / 2, ok & positive), (k, K)

    start = (end_gradient, end_hessian, jnp.bool_(True))
    (_, _, ok), (k, K) = jax.lax.scan(step, start, (model, plan), reverse=True)
    return k, K, ok & jnp.all(jnp.isfinite(k))


def _floats(state: Any) -> tuple[Array, Callable[[Array, Any], Any]]:
    """The float leaves of a state as one vector, and what puts a vector back into a state."""
    is_float = [jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(state)]
    vector, unravel = ravel_pytree([x for x, f in zip(jax.tree.leaves(state), is_float, strict=True) if f])

    def put(vector: Array, state: Any) -> Any:
        new = iter(unravel(vector))
        leaves, treedef = jax.tree.flatten(state)
        return treedef.unflatten([next(new) if f else x for x, f in zip(leaves, is_float, strict=True)])

    return vector, put


@dataclasses.dataclass(frozen=True)
class _ILQR:
    """The static half."""

    config: ILQRConfig
    model: Model

    def step(self, z: Array, n: int, put: Callable, inputs: Any, params: Any) -> tuple[Array, Array, Any, Array]:
        """`(next x, discounted cost, next state, on)` from z = (x, u); `inputs`: the rest of the state and time."""
        state, on, key, discount = inputs
        action = self.model.action(z[n:], params)
        state, on, reward = advance(self.model.env, key, put(z[:n], state), on, action, params)
        return _floats(state)[0], -discount * reward, state, on

    def end_cost(self, x: Array, put: Callable, state: Any, on: Array, discount: Array, params: Any) -> Array:
        return -discount * self.model.end_value(put(x, state), on, params)

    def rollout(self, state, keys, discounts, put, params, control):
        """States, flags, x and actions (H + 1 of the first three) and the cost, of `u = control(t, x)`."""
        n = len(_floats(state)[0])

        def step(carry, inputs):
            (state, on), (t, key, discount) = carry, inputs
            x = _floats(state)[0]
            u = control(t, x)
            _, cost, new, new_on = self.step(jnp.concatenate([x, u]), n, put, (state, on, key, discount), params)
            return (new, new_on), (state, on, x, u, cost)

        # The same randomness again, on purpose.
        inputs = (jnp.arange(self.config.horizon), jax.random.clone(keys), discounts[:-1])
        (last, last_on), (states, on, xs, us, costs) = jax.lax.scan(step, (state, jnp.bool_(True)), inputs)
        end = self.end_cost(_floats(last)[0], put, last, last_on, discounts[-1], params)
        return (states, on, xs, last, last_on), us, jnp.sum(costs) + end

    def quadratic(self, path, us, keys, discounts, put, params, low, high):
        """The model about a path, and the gradient and Hessian of the cost at its end."""
        states, on, xs, last, last_on = path
        n = xs.shape[1]
        # An environment that clips its action has half a derivative at the limit itself.
        inside = jnp.clip(us, low + 1e-4, high - 1e-4)

        def local(z, inputs):
            x, cost, _, _ = self.step(z, n, put, inputs, params)
            return x, cost

        z = jnp.concatenate([xs, inside], 1)
        inputs = (states, on, jax.random.clone(keys), discounts[:-1])
        jacobian, gradient = jax.vmap(jax.jacfwd(local))(z, inputs)
        inputs = (states, on, jax.random.clone(keys), discounts[:-1])
        hessian = jax.vmap(jax.hessian(lambda z, inputs: local(z, inputs)[1]))(z, inputs)
        end = functools.partial(self.end_cost, put=put, state=last, on=last_on, discount=discounts[-1], params=params)
        last_x = _floats(last)[0]
        return Quadratic(jacobian, gradient, hessian), jax.grad(end)(last_x), jax.hessian(end)(last_x)

    @precise
    def plan(self, key: Array, carry: Carry, state: Any, params: Any) -> tuple[Any, Carry]:
        hyper = carry.hyper
        low, high = self.model.scale(params)[2:]
        put = _floats(state)[1]
        noise_key, model_key = jax.random.split(key)
        keys = jax.random.split(fast_key(model_key), self.config.horizon)
        discounts = hyper.gamma ** jnp.arange(self.config.horizon + 1, dtype=hyper.gamma.dtype)
        rates = 0.5 ** jnp.arange(self.config.num_step_sizes, dtype=hyper.gamma.dtype)
        rollout = functools.partial(self.rollout, state, keys, discounts, put, params)

        def follow(us):
            return rollout(lambda t, _: us[t])

        def improve(loop):
            i, us, path, cost, damping, _ = loop
            model, end_x, end_xx = self.quadratic(path, us, keys, discounts, put, params, low, high)
            k, K, ok = backward_pass(model, end_x, end_xx, us, low, high, damping)

            def at(rate):
                return rollout(lambda t, x: jnp.clip(us[t] + rate * k[t] + K[t] @ (x - path[2][t]), low, high))

            paths, plans, costs = jax.vmap(at)(rates)
            costs = jnp.where(jnp.isnan(costs), jnp.inf, costs)
            best = jnp.argmin(costs)
            gain = cost - costs[best]
            better = ok & (gain > 0)
            new = jax.tree.map(lambda x: x[best], (plans, paths, costs))
            us, path, new_cost = select(better, new, (us, path, cost))
            damping = jnp.where(better, damping / hyper.damping_factor, damping * hyper.damping_factor)
            done = (better & (gain < hyper.tolerance * (1 + jnp.abs(cost)))) | (damping > _MAX_DAMPING)
            return i + 1, us, path, new_cost, jnp.maximum(damping, _MIN_DAMPING), done

        noise = colored_noise(noise_key, (self.config.num_starts, *carry.plan.shape), hyper.beta).at[0].set(0)
        starts = jnp.clip(carry.plan + hyper.std * noise, low, high)
        costs = jax.vmap(lambda us: follow(us)[2])(starts)
        path, us, cost = follow(starts[jnp.argmin(jnp.where(jnp.isnan(costs), jnp.inf, costs))])
        start = (jnp.int32(0), us, path, cost, hyper.damping, jnp.bool_(False))
        _, us, _, cost, _, _ = jax.lax.while_loop(
            lambda loop: (loop[0] < self.config.num_iterations) & ~loop[-1], improve, start
        )
        return self.model.action(us[0], params), carry.replace(plan=shifted(us), value=-cost)


@functools.cache
def ilqr(env: Environment, config: ILQRConfig = ILQRConfig(), terminal_value: TerminalValue | None = None) -> Planner:
    """The iterative linear-quadratic regulator (Tassa, Erez and Todorov 2012) with box limits (Tassa et al. 2014).

    Linear dynamics and a quadratic reward about the present plan, a damped backward pass, a line search over step
    sizes at once, until nothing is gained. It differentiates `step` with respect to the float leaves of the state,
    other leaves follow; randomness is held fixed within a decision. It finds an optimum near its plan, and no
    derivative tells it of an end of the episode; so it starts from the best of `num_starts` plans: the rest of the
    last one, as it is and with noise.

    Raises ValueError for action spaces other than Box, and for several agents.
    """
    planner = _ILQR(config, model_of("ilqr", env, terminal_value, Box))
    ranges = {"damping": "positive", "damping_factor": "more than 1"}
    init = functools.partial(planner.model.init, config.horizon, ILQRHyper, ranges)
    return Planner("ilqr", env, config, ILQRHyper, init, planner.plan)
