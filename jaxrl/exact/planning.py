"""Planning through an environment's own `step`: MPPI, CEM and iLQR, without learning.

A planner sees the environment's state, simulates `horizon` steps ahead, acts, and starts the next decision from the
rest of its plan (model-predictive control). It maximises the discounted sum of rewards until the episode ends, of
either kind, plus `terminal_value(state, params)` where it has not ended by then.

Plans are in units of the action box, [-1, 1] a side (a box with an open side keeps its own units); every action stays
in the box. All is pure: jit it, vmap it over states, keys, params and `Hyper` leaves. Results: `experiments/planning`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Key, PyTree

from jaxrl.environment import Environment, is_concrete, pytree, strongly_typed
from jaxrl.math import fast_key
from jaxrl.spaces import Box, Discrete, Space

TerminalValue = Callable[[Any, Any], Array]


class Planner(NamedTuple):
    """What `mppi`, `cem` and `ilqr` return.

    `carry = planner.init(hyper=None)`, then `action, carry = planner.plan(key, carry, state, params)` in every step.
    `carry.plan` (horizon, ...) is what it means to do next, `carry.value` the return it expected of the last plan.
    """

    name: str
    env: Environment  # the model
    config: Any  # static settings
    hyper: Any  # the class of the dynamic settings
    init: Callable[..., Carry]
    plan: Callable[..., tuple[Any, Carry]]


@pytree
class Carry:
    """What a planner remembers between decisions."""

    hyper: Any
    plan: jax.Array  # (H, A): actions in units of the box; probabilities of Discrete ones
    value: jax.Array  # the return that was expected of the plan when it was made


class Trajectory(NamedTuple):
    """One episode, leading axis T. After its end the state stays and rewards are zero: the return is their sum."""

    obs: Any  # acted on
    state: Any  # acted on
    action: Any
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array  # False after the end


def control(
    env: Environment,
    planner: Planner,
    key: Key[Array, ""],
    params: PyTree,
    num_steps: int,
    hyper: Any = None,
    state: Any = None,
    model_params: PyTree = None,
) -> Trajectory:
    """An episode of at most `num_steps` steps of `env` with `params` under a planner: a scan of plan and step.

    Args:
        state: where it starts; by default where `env.reset` does.
        model_params: what the planner believes the params to be, if that is not the truth.
    """
    reset_key, observe_key, run_key = jax.random.split(key, 3)
    if state is None:
        obs, state = env.reset(reset_key, params)
    else:
        obs = env.observe(observe_key, state, params)
    model_params = params if model_params is None else model_params

    def step(carried, key):
        obs, state, on, carry = carried
        plan_key, env_key = jax.random.split(key)
        action, carry = planner.plan(plan_key, carry, state, model_params)
        ts = env.step(env_key, state, action, params)
        reward = jnp.where(on, ts.reward, 0)
        out = Trajectory(obs, state, action, reward, on & ts.terminated, on & ts.truncated, on)
        obs, state = _select(on, (ts.obs, ts.state), (obs, state))
        return (obs, state, on & ~(ts.terminated | ts.truncated), carry), out

    start = (obs, state, jnp.bool_(True), planner.init(hyper))
    return jax.lax.scan(step, start, jax.random.split(run_key, num_steps))[1]


# ---- what planners share


def _select(on: Array, new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(functools.partial(jnp.where, on), new, old)


def _advance(env: Environment, key: Array, state: Any, on: Array, action: Any, params: Any) -> tuple[Any, Array, Array]:
    """`(state, on, reward)` of one step; once an episode has ended the state stays and nothing is earned."""
    ts = env.step(key, state, action, params)
    reward = jnp.where(on, ts.reward, 0)
    return _select(on, ts.state, state), on & ~(ts.terminated | ts.truncated), reward


@dataclasses.dataclass(frozen=True)
class _Model:
    """An environment as planners use it."""

    env: Environment
    space: Space  # its kind and shape are static; bounds are read from params
    terminal_value: TerminalValue | None

    @property
    def size(self) -> int:
        """Numbers in one action of a plan."""
        return self.space.n if isinstance(self.space, Discrete) else math.prod(self.space.shape)

    def scale(self, params: Any) -> tuple[Array, Array, Array, Array]:
        """`(middle, half, low, high)`, (A,) each: actions are `middle + half * u` with u from low to high."""
        space = self.env.action_space(params)
        dtype = jnp.result_type(float)
        low, high = (
            jnp.broadcast_to(jnp.asarray(x, dtype), space.shape).ravel()
            for x in (space.low, space.high)  # pyright: ignore[reportAttributeAccessIssue]
        )
        bounded = jnp.isfinite(low) & jnp.isfinite(high)
        middle = jnp.where(bounded, (low + high) / 2, 0)
        half = jnp.where(bounded, (high - low) / 2, 1)
        return middle, half, (low - middle) / half, (high - middle) / half

    def action(self, u: Array, params: Any) -> Array:
        """The environment's action of plan entries `u` (..., A)."""
        if isinstance(self.space, Discrete):
            return jnp.argmax(u, -1).astype(self.space.dtype)
        middle, half, _, _ = self.scale(params)
        return (middle + half * u).reshape(*u.shape[:-1], *self.space.shape)

    def values(self, key: Array, state: Any, plans: Array, params: Any, gamma: Array) -> Array:
        """The discounted returns (K,) of plans (K, H, A) from one state, each with randomness of its own."""
        K, H, _ = plans.shape
        advance = jax.vmap(functools.partial(_advance, self.env), (0, 0, 0, 0, None))

        def step(carry, inputs):
            states, on, discount = carry
            key, action = inputs
            states, on, reward = advance(jax.random.split(key, K), states, on, action, params)
            return (states, on, discount * gamma), discount * reward

        states = jax.tree.map(lambda x: jnp.broadcast_to(x, (K, *x.shape)), state)
        start = (states, jnp.ones(K, bool), jnp.ones_like(gamma))
        inputs = (jax.random.split(fast_key(key), H), self.action(plans.swapaxes(0, 1), params))
        (states, on, discount), rewards = jax.lax.scan(step, start, inputs)
        total = jnp.sum(rewards, 0) + discount * jax.vmap(self.end_value, (0, 0, None))(states, on, params)
        # A plan whose simulation blew up is as bad as the worst of the others; a NaN would spoil every average.
        finite = jnp.isfinite(total)
        worst = jnp.min(jnp.where(finite, total, jnp.inf))
        return jnp.where(finite, total, jnp.where(jnp.isfinite(worst), worst, 0))

    def end_value(self, state: Any, on: Array, params: Any) -> Array:
        """What the state after the horizon is worth: nothing if the episode has ended."""
        return jnp.where(on, self.terminal_value(state, params), 0) if self.terminal_value else jnp.zeros(())

    def init(self, horizon: int, hyper_class: Any, ranges: dict[str, str], hyper: Any = None) -> Carry:
        """The carry before the first decision: the middle of the box throughout. Raises ValueError for bad `hyper`."""
        defaults = strongly_typed(hyper_class())
        hyper = defaults if hyper is None else hyper
        if not isinstance(hyper, hyper_class):
            raise TypeError(f"hyper is a {type(hyper).__qualname__}, not a {hyper_class.__qualname__}.")
        hyper = jax.tree.map(lambda default, x: jnp.asarray(x, default.dtype), defaults, hyper)
        if is_concrete(hyper):
            for name, x in vars(hyper).items():
                allowed = ranges.get(name, "at least 0")
                if not np.all(_RANGES[allowed](np.asarray(x))):
                    raise ValueError(f"{name}={x}: it must be {allowed}.")
        fill = 1 / self.size if isinstance(self.space, Discrete) else 0.0
        return Carry(hyper, jnp.full((horizon, self.size), fill, jnp.result_type(float)), jnp.zeros(()))


_RANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "positive": lambda x: x > 0,
    "at least 0": lambda x: x >= 0,
    "at least 0 and at most 1": lambda x: (x >= 0) & (x <= 1),
    "more than 1": lambda x: x > 1,
}


def _model(name: str, env: Environment, terminal_value: TerminalValue | None, *kinds: type[Space]) -> _Model:
    """Raises ValueError where a planner cannot act."""
    if env.num_agents > 1:
        raise ValueError(f"{env.id} has {env.num_agents} agents; {name} plans for one.")
    space = env.action_space(env.default_params)
    real = not isinstance(space, Box) or jnp.issubdtype(space.dtype, jnp.floating)
    if not isinstance(space, kinds) or not real:
        others = " cem does." if isinstance(space, Discrete) else ""
        raise ValueError(
            f"{name} plans in {' and '.join(kind.__name__ for kind in kinds)} action spaces (of real numbers); "
            f"{env.id} has {space}.{others}"
        )
    return _Model(env, space, terminal_value)


def _at_least_one(config: Any) -> None:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if not isinstance(value, bool) and value < 1:
            raise ValueError(f"{field.name}={value}: it must be at least 1.")


def shifted(plan: Float[Array, "H A"]) -> Float[Array, "H A"]:
    """The rest of a plan after its first action, the last one held."""
    return jnp.concatenate([plan[1:], plan[-1:]])


def colored_noise(key: Key[Array, ""], shape: tuple[int, ...], beta: Float[Array, ""] | float) -> Float[Array, "..."]:
    """Normal noise (..., H, A) of unit variance whose power falls as frequency^-beta along H; 0: white.

    Successive actions that agree reach further states (Pinneri et al. 2020, iCEM, section 3.1, after Timmer and König
    1995; the constant has the power of the lowest frequency). By a real Fourier basis, as a matrix product.
    """
    basis, amplitude = _spectrum(shape[-2], beta)
    noise = jax.random.normal(key, shape, amplitude.dtype) * amplitude[:, None]
    return jnp.einsum("...fa,ft->...ta", noise, basis)


def whitened(x: Float[Array, "*K H A"], beta: Float[Array, ""] | float) -> Float[Array, "*K H A"]:
    """What `colored_noise` colored, white again: the inner product of two is one by the inverse covariance."""
    basis, amplitude = _spectrum(x.shape[-2], beta)
    return jnp.einsum("ft,...ta->...fa", basis, x) / amplitude[:, None]


def _spectrum(H: int, beta: Float[Array, ""] | float) -> tuple[Float[Array, "H H"], Float[Array, " H"]]:
    """An orthonormal real Fourier basis, frequencies by row, and the amplitude of each."""
    time, order = np.arange(H), np.arange(H)
    frequency = (order + 1) // 2  # 0, 1, 1, 2, 2, ...: a cosine and a sine each
    angle = 2 * np.pi * np.outer(frequency, time) / H
    basis = np.where(order[:, None] % 2, np.cos(angle), np.where(order[:, None] == 0, 1.0, np.sin(angle)))
    basis = basis / np.sqrt((basis**2).sum(1, keepdims=True))
    amplitude = jnp.asarray(np.maximum(frequency, 1), jnp.result_type(float)) ** (-beta / 2)
    return jnp.asarray(basis, amplitude.dtype), amplitude / jnp.sqrt(jnp.mean(amplitude**2))


# ---- model-predictive path integral control


@dataclasses.dataclass(frozen=True)
class MPPIConfig:
    """Static settings: each value compiles its own program."""

    horizon: int = 40  # steps ahead
    num_samples: int = 256  # plans tried an iteration
    num_iterations: int = 1  # a decision
    standardize: bool = True  # the temperature is in standard deviations of the samples' returns; else in their units

    def __post_init__(self) -> None:
        _at_least_one(self)


@pytree
class MPPIHyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    temperature: jax.Array = 0.1  # lambda: low follows the best sample, high averages all
    std: jax.Array = 0.5  # of the noise, in units of the box
    beta: jax.Array = 0.5  # its color: 0 white
    alpha: jax.Array = 1.0  # the paper's: 1 - alpha weighs the cost of leaving the uncontrolled distribution
    gamma: jax.Array = 1.0  # discount


def mppi_weights(values: Float[Array, " K"], temperature: Float[Array, ""] | float) -> Float[Array, " K"]:
    """exp(value / temperature), normalised (Williams et al. 2017, eq. 22 and algorithm 2; a value is minus a cost)."""
    return jax.nn.softmax(values / temperature)


def standardized(values: Float[Array, " K"]) -> Float[Array, " K"]:
    """Zero mean and unit standard deviation; differences that are mere rounding stay small."""
    centred = values - jnp.mean(values)
    rounding = 16 * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values))
    return centred / jnp.maximum(jnp.sqrt(jnp.mean(centred**2)), jnp.maximum(rounding, jnp.finfo(values.dtype).tiny))


@functools.cache
def mppi(env: Environment, config: MPPIConfig = MPPIConfig(), terminal_value: TerminalValue | None = None) -> Planner:
    """Model-predictive path integral control (Williams et al. 2017, "Information theoretic MPC", algorithm 2).

    Samples are the plan plus normal noise; the plan moves to their average with the weights of `mppi_weights`.
    Deviations: noise may be colored (beta > 0); a sample is clipped to the box before its noise is weighted, so plans
    stay inside; the temperature is relative to the spread of returns unless `standardize=False`; no smoothing filter.

    Raises ValueError for action spaces other than Box, and for several agents.
    """
    model = _model("mppi", env, terminal_value, Box)

    def plan(key: Array, carry: Carry, state: Any, params: Any) -> tuple[Any, Carry]:
        hyper = carry.hyper
        low, high = model.scale(params)[2:]

        def improve(plan, key):
            noise_key, model_key = jax.random.split(key)
            noise = colored_noise(noise_key, (config.num_samples, *plan.shape), hyper.beta)
            samples = jnp.clip(plan + hyper.std * noise, low, high)
            values = model.values(model_key, state, samples, params, hyper.gamma)
            scores = standardized(values) if config.standardize else values
            # lambda (1 - alpha) u' Sigma^-1 epsilon of each sample.
            there, plan_white = whitened(samples - plan, hyper.beta), whitened(plan, hyper.beta)
            away = jnp.sum(plan_white * there, (1, 2)) / hyper.std**2
            scores = scores - hyper.temperature * (1 - hyper.alpha) * away
            weights = mppi_weights(scores, hyper.temperature)
            return jnp.tensordot(weights, samples, 1), weights @ values

        best, values = jax.lax.scan(improve, carry.plan, jax.random.split(key, config.num_iterations))
        return model.action(best[0], params), carry.replace(plan=shifted(best), value=values[-1])

    init = functools.partial(model.init, config.horizon, MPPIHyper, {"temperature": "positive", "std": "positive"})
    return Planner("mppi", env, config, MPPIHyper, init, plan)


# ---- cross-entropy method


@dataclasses.dataclass(frozen=True)
class CEMConfig:
    """Static settings: each value compiles its own program."""

    horizon: int = 50  # steps ahead
    num_samples: int = 128  # plans tried an iteration
    num_elites: int = 16  # of them that the next distribution is fitted to
    num_iterations: int = 3  # a decision

    def __post_init__(self) -> None:
        _at_least_one(self)
        if self.num_elites > self.num_samples:
            raise ValueError(
                f"num_elites={self.num_elites} of num_samples={self.num_samples}: at most all of them, usually a tenth."
            )


@pytree
class CEMHyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    std: jax.Array = 0.5  # at the start of a decision, in units of the box
    min_std: jax.Array = 0.05  # it never falls below
    smoothing: jax.Array = 0.1  # share of the old distribution that is kept in an iteration
    beta: jax.Array = 1.0  # the noise's color: 0 white
    exploration: jax.Array = 0.5  # Discrete: share of uniform probability mixed in at the start of a decision
    gamma: jax.Array = 1.0  # discount


def elites(
    values: Float[Array, " K"], plans: Float[Array, "K H A"], k: int
) -> tuple[Float[Array, " k"], Float[Array, "k H A"]]:
    """The `k` best plans and their values, the best first."""
    values, best = jax.lax.top_k(values, k)
    return values, plans[best]


@functools.cache
def cem(env: Environment, config: CEMConfig = CEMConfig(), terminal_value: TerminalValue | None = None) -> Planner:
    """The cross-entropy method (Rubinstein 1999; de Boer et al. 2005) with the colored noise of iCEM.

    Independent normals, in a Discrete space categoricals, are fitted to the best samples and smoothed; the action is
    the mean of the first, or its most probable one. Action masks are not read: the environment treats what is
    forbidden as it does.

    Raises ValueError for action spaces other than Box and Discrete, and for several agents.
    """
    model = _model("cem", env, terminal_value, Box, Discrete)
    discrete = isinstance(model.space, Discrete)

    def sample(key, mean, std, hyper, params):
        if discrete:
            logits = jnp.log(jnp.maximum(mean, 1e-12))
            shape = (config.num_samples, config.horizon)
            return jax.nn.one_hot(jax.random.categorical(key, logits, shape=shape), model.size, dtype=mean.dtype)
        low, high = model.scale(params)[2:]
        noise = colored_noise(key, (config.num_samples, *mean.shape), hyper.beta)
        return jnp.clip(mean + std * noise, low, high)

    def plan(key: Array, carry: Carry, state: Any, params: Any) -> tuple[Any, Carry]:
        hyper = carry.hyper

        def improve(fit, key):
            mean, std = fit
            sample_key, model_key = jax.random.split(key)
            samples = sample(sample_key, mean, std, hyper, params)
            values = model.values(model_key, state, samples, params, hyper.gamma)
            values, best = elites(values, samples, config.num_elites)
            keep = hyper.smoothing
            mean = keep * mean + (1 - keep) * jnp.mean(best, 0)
            std = jnp.maximum(keep * std + (1 - keep) * jnp.std(best, 0), hyper.min_std)
            return (mean, std), jnp.mean(values)

        mean = carry.plan
        if discrete:
            mean = (1 - hyper.exploration) * mean + hyper.exploration / model.size
        start = (mean, jnp.broadcast_to(hyper.std, mean.shape))
        (mean, _), values = jax.lax.scan(improve, start, jax.random.split(key, config.num_iterations))
        return model.action(mean[0], params), carry.replace(plan=shifted(mean), value=values[-1])

    share = "at least 0 and at most 1"
    ranges = {"std": "positive", "smoothing": share, "exploration": share}
    init = functools.partial(model.init, config.horizon, CEMHyper, ranges)
    return Planner("cem", env, config, CEMHyper, init, plan)


# ---- iterative linear-quadratic regulator


@dataclasses.dataclass(frozen=True)
class ILQRConfig:
    """Static settings: each value compiles its own program."""

    horizon: int = 50  # steps ahead
    num_iterations: int = 10  # a decision, at most
    num_step_sizes: int = 8  # 1, 1/2, 1/4, ... tried together in the line search
    num_starts: int = 64  # plans of which the best is improved: the rest of the last one, without noise and with

    def __post_init__(self) -> None:
        _at_least_one(self)


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
    model: _Model

    def step(self, z: Array, n: int, put: Callable, inputs: Any, params: Any) -> tuple[Array, Array, Any, Array]:
        """`(next x, discounted cost, next state, on)` from z = (x, u); `inputs`: the rest of the state and time."""
        state, on, key, discount = inputs
        action = self.model.action(z[n:], params)
        state, on, reward = _advance(self.model.env, key, put(z[:n], state), on, action, params)
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
            us, path, new_cost = _select(better, new, (us, path, cost))
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
    planner = _ILQR(config, _model("ilqr", env, terminal_value, Box))
    ranges = {"damping": "positive", "damping_factor": "more than 1"}
    init = functools.partial(planner.model.init, config.horizon, ILQRHyper, ranges)
    return Planner("ilqr", env, config, ILQRHyper, init, planner.plan)
