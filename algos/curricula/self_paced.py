"""Self-paced learning: a Gaussian over tasks that moves to the target tasks as fast as the student's return allows.

Klink, D'Eramo, Peters and Pajarinen (2020), "Self-paced deep reinforcement learning" (arXiv:2004.11812), and Klink et
al. (2021), "A probabilistic interpretation of self-paced learning with applications to reinforcement learning"
(arXiv:2102.13176). A task is a point x of the unit box.

    sample   x is drawn from p = N(mean, std^2), with one std for each coordinate
    update   x and its return are stored; once there are `num_contexts` tasks x_i with returns R_i, p becomes the q that
             solves

                 minimise KL(q || target)   subject to   KL(q || p) <= max_kl,   J(q) >= threshold
                 J(q) = sum_i w_i R_i / sum_i w_i,       w_i = q(x_i) / p(x_i)

             and the tasks are forgotten

This is the form of the problem in which the return is a constraint and not a term of the objective. Where no q within
max_kl reaches the threshold, the q of highest J is taken. While KL(p || target) is above `settle_kl`, no std falls
below `min_std`, so that p moves to a narrow target before it narrows.

The solver is an augmented Lagrangian of (mean - mean_p) / std_p and log(std / std_p), in which both KLs are convex. It
is descended by Adam in a fixed number of steps: first for the highest J within max_kl, then for the problem itself.

Deviations: the return is the student's and not its value estimate. Weights are normalised, so that a constant added to
all returns changes nothing. Covariances are diagonal. A task outside of the box is trained on at its nearest point in
it, but counts where it was drawn, so that J remains an expectation under q. Usage:

    level_at = jaxrl.curriculum.teaching.ranges(env_params, {"length": (0.2, 3.0)})
    aim = self_paced.Hyper(threshold=150.0, target_mean=0.9, target_std=0.05)
    teacher = self_paced.make(level_at, self_paced.Config(), aim)
    student = ppo.make(vectorize(env, 32, batched_params=True), ppo.Config(num_envs=32))
    algo = jaxrl.curriculum.attach(student, teacher)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.calls import recorded
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes
from jaxrl.curriculum.teaching import History, dimensions_of, new_levels_at, no_history, remember
from jaxrl.environment import is_concrete, pytree, strongly_typed
from jaxrl.math import rarely
from jaxrl.nn.optim import optimizer_of, safe_norm


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    dimensions: int | None = None  # D of the box; None: `level_at.dimensions`, which `Ranges` have
    num_contexts: int = 128  # tasks from one change of p to the next
    rounds: int = 20  # updates of the Lagrangian's multipliers
    steps: int = 30  # of Adam in each round

    def __post_init__(self) -> None:
        for name in ("num_contexts", "rounds", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: it must be at least 1.")


@pytree
class Hyper:
    """Dynamic settings; means and stds are numbers or (D,)."""

    threshold: jax.Array  # mean return that the student must keep
    target_mean: jax.Array = 0.5  # of the target distribution, in the unit box
    target_std: jax.Array = 0.3  # of the target distribution
    start_mean: jax.Array = 0.5  # of the first p
    start_std: jax.Array = 0.1  # of the first p
    max_kl: jax.Array = 0.05  # largest KL(q || p) of a change
    min_std: jax.Array = 0.0  # smallest std of each coordinate while KL(p || target) is above settle_kl
    settle_kl: jax.Array = 10.0  # KL(p || target) below which min_std no longer holds


@pytree
class State:
    mean: jax.Array  # (D,) of p, from which tasks are drawn
    std: jax.Array  # (D,)
    history: History  # rows (x, return) of tasks drawn from p
    params: Any  # of the level distribution
    hyper: Hyper


def kl(mean: Float[Array, " D"], std: Float[Array, " D"], mean2: Array, std2: Array) -> Float[Array, ""]:
    """KL(N(mean, std^2) || N(mean2, std2^2)), in nats."""
    ratio = std / std2
    return 0.5 * jnp.sum(ratio**2 + ((mean - mean2) / std2) ** 2 - 1 - 2 * jnp.log(ratio))


def expected_return(
    u: Float[Array, " D"],
    v: Float[Array, " D"],
    z: Float[Array, "n D"],
    returns: Float[Array, " n"],
    valid: Bool[Array, " n"],
) -> Float[Array, ""]:
    """J(q) of the q with mean `mean + std u` and std `std exp(v)`, estimated from tasks `mean + std z` drawn from p."""
    log_weight = jnp.sum(0.5 * z**2 - 0.5 * ((z - u) * jnp.exp(-v)) ** 2 - v, 1)
    weight = jax.nn.softmax(jnp.where(valid, log_weight, -jnp.inf))
    return jnp.sum(jnp.where(valid, weight * returns, 0))


def moved(
    mean: Float[Array, " D"],
    std: Float[Array, " D"],
    x: Float[Array, "n D"],
    returns: Float[Array, " n"],
    valid: Bool[Array, " n"],
    hyper: Hyper,
    config: Config = Config(),
) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    """The mean and std of the next p, from tasks x drawn from p = N(mean, std^2) and their returns."""
    D = len(mean)
    returns = jnp.where(valid, returns, 0)
    target = jnp.broadcast_to(hyper.target_mean, (D,)), jnp.broadcast_to(hyper.target_std, (D,))
    z = jnp.where(valid[:, None], (x - mean) / std, 0)
    radius = jnp.sqrt(2 * hyper.max_kl)  # u and v are y radius: in y, KL(q || p) <= max_kl is about the unit ball
    far = kl(mean, std, *target) > hyper.settle_kl
    low = jnp.where(far, jnp.minimum(jnp.log(hyper.min_std / std), 0), -jnp.inf) / radius
    low = jnp.concatenate([jnp.full(D, -jnp.inf), low])

    def parts(y):
        return y[:D] * radius, y[D:] * radius

    def divergence(y):  # KL(q || p) / max_kl - 1
        u, v = parts(y)
        return 0.5 * jnp.sum(jnp.expm1(2 * v) + u**2 - 2 * v) / hyper.max_kl - 1

    def distance(y):  # KL(q || target)
        u, v = parts(y)
        return kl(mean + std * u, std * jnp.exp(v), *target)

    def performance(y):
        return expected_return(*parts(y), z, returns, valid)

    def scaled(f):
        """f divided by the length of its gradient at p, and that factor."""
        slope = safe_norm(jax.grad(f)(jnp.zeros(2 * D)))
        scale = 1 / jnp.maximum(slope, 1e-6)
        return lambda y: f(y) * scale, scale

    worth, unit = scaled(performance)
    highest = _minimise(lambda y: -worth(y), lambda y: divergence(y)[None], jnp.zeros(2 * D), low, config)
    wanted = hyper.threshold * unit

    def constraints(y):
        return jnp.stack([divergence(y), wanted - worth(y)])

    nearest = _minimise(scaled(distance)[0], constraints, highest, low, config)
    u, v = parts(jnp.where(worth(highest) > wanted, nearest, highest))
    return mean + std * u, std * jnp.exp(v)


def _minimise(
    f: Callable[[Array], Array], g: Callable[[Array], Array], y: Float[Array, " P"], low: Array, config: Config
) -> Float[Array, " P"]:
    """The y of least f(y) with all g(y) <= 0 and y >= low, by an augmented Lagrangian and Adam with a falling rate."""
    penalty, adam = 10.0, optimizer_of("adam", b2=0.99)

    def lagrangian(y, multiplier):
        return f(y) + 0.5 / penalty * jnp.sum(jnp.maximum(multiplier + penalty * g(y), 0) ** 2)

    def step(carry, rate):
        y, optimizer, multiplier = carry
        change, optimizer = adam.change(y, optimizer, jax.grad(lagrangian)(y, multiplier), rate)
        return (jnp.maximum(y + change, low), optimizer, multiplier), None

    def round(carry, rates):
        y, optimizer, multiplier = jax.lax.scan(step, carry, rates)[0]
        return (y, optimizer, jnp.maximum(multiplier + penalty * g(y), 0)), None

    rates = jnp.geomspace(0.1, 0.001, config.rounds * config.steps).reshape(config.rounds, config.steps)
    start = y, adam.init(y, rates[0, 0]), jnp.zeros(len(g(y)))
    return jax.lax.scan(round, start, rates)[0][0]


@recorded
def make(level_at: Callable[[Any, Array], Any], config: Config, hyper: Hyper) -> Curriculum:
    """Self-paced learning over the levels `level_at(params, x)`, x (D,) in the unit box.

    Raises ValueError for settings out of range.
    """
    defaults = strongly_typed(hyper)
    D = dimensions_of(level_at, config.dimensions)
    _check(defaults, D)

    def init(key: Array, hyper: Hyper, params: Any) -> State:
        _check(hyper, D)
        mean, std = jnp.broadcast_to(hyper.start_mean, (D,)), jnp.broadcast_to(hyper.start_std, (D,))
        return State(mean, std, no_history(config.num_contexts, D + 1), strongly_typed(params), hyper)

    def sample(key: Array, state: State, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, State]:
        n = len(wanted)
        x = state.mean + state.std * jax.random.normal(key, (n, D))
        return new_levels_at(level_at, state.params, jnp.clip(x, 0, 1))._replace(note=x), state

    def update(key: Array, state: State, batch: LevelBatch, outcomes: Outcomes) -> State:
        rows = jnp.concatenate([batch.note, outcomes.episode_return[:, None]], 1)
        history = remember(state.history, rows, outcomes.episodes > 0)
        due = history.count >= config.num_contexts

        def move():
            x, returns = history.rows[:, :D], history.rows[:, D]
            return moved(state.mean, state.std, x, returns, history.filled, state.hyper, config)

        mean, std = rarely(due, move, (state.mean, state.std))
        # The weights w_i are right for tasks drawn from the current p only, so the others are forgotten.
        return state.replace(mean=mean, std=std, history=history.replace(count=jnp.where(due, 0, history.count)))

    def metrics(state: State) -> dict[str, Array]:
        return {"kl_to_target": kl(state.mean, state.std, state.hyper.target_mean, state.hyper.target_std)}

    return Curriculum(init, sample, update, "self_paced", (level_at, config), defaults, metrics=metrics)


def _check(hyper: Hyper, D: int) -> None:
    if not is_concrete(hyper):
        return
    for name in ("target_mean", "target_std", "start_mean", "start_std"):
        value = np.asarray(getattr(hyper, name))
        if value.shape not in ((), (D,)):
            raise ValueError(f"{name} has shape {value.shape}: a number or ({D},).")
        if name.endswith("mean") and not np.all((value >= 0) & (value <= 1)):
            raise ValueError(f"{name}={value}: it must be in [0, 1].")
        if name.endswith("std") and not np.all(value > 0):
            raise ValueError(f"{name}={value}: it must be above 0.")
    if not np.all(np.asarray(hyper.max_kl) > 0):
        raise ValueError(f"max_kl={hyper.max_kl}: it must be above 0.")
    for name in ("min_std", "settle_kl"):
        if not np.all(np.asarray(getattr(hyper, name)) >= 0):
            raise ValueError(f"{name}={getattr(hyper, name)}: it must not be below 0.")
