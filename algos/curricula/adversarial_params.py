"""Adversarial parameters: the worst dynamics in a box, by the gradient through the dynamics; a policy trained on them.

Where the dynamics are differentiable, so is a policy's return in their parameters, as in its weights (`../apg.py`).
With x in the unit box, `level_fn(params, x)` the dynamics there and J(x) the mean return of the policy's episodes,

    worst_params    x <- clip(x - rate sign(grad J)), with a falling rate, from corners of the box, where the worst
                    often is and no slope may lead, and from uniform x; the least J, judged on other episodes
    make            the same one step an update for a population of x, between the updates of any student, whose
                    episodes are played on one of them or, with probability `uniform_share`, on a uniform x

The latter is the alternation of robust adversarial RL (Pinto et al. 2017, arXiv:1703.02702), whose adversary there is a
policy that pushes at every step, trained without gradients of the dynamics; here it is parameters that hold for an
episode. With `uniform_share` 1 it is domain randomisation. J has several minima as a rule, so each x is compared with a
uniform one, on the same starts, and gives way to it where that is worse.

A jump of the dynamics or the reward (a termination, a contact) has no derivative; what depends on it alone is not
found. Paper: Pinto et al. (2017), "Robust adversarial reinforcement learning" (arXiv:1703.02702). Use:

    boxes = jaxrl.curriculum.teaching.ranges(env_params, {"mass": (0.5, 2.0), "length": (0.5, 1.5)})
    student = ppo.make(vectorize(env, 32, level_fn=adversarial_params.Drawn(boxes)), ppo.Config(num_envs=32))
    algo = adversarial_params.make(student, adversarial_params.Config(num_steps=200))
    state, metrics = jaxrl.train(algo, key, 500_000, env_params=env_params)
    worst = adversarial_params.worst_params(key, algo, algo.policy(state), env, env_params, boxes)
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, check_at_least_one
from jaxrl.curriculum.task import Task
from jaxrl.curriculum.teaching import dimensions_of
from jaxrl.environment import Environment, is_concrete, pytree, strongly_typed
from jaxrl.nesting import OuterState, around, split_hyper, with_settings
from jaxrl.rollout import Ends
from jaxrl.vectorize import vectorize


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    dimensions: int | None = None  # D, of the box; None: what the level function says
    num_adversaries: int = 8  # points x; of `worst_params`, from which it searches
    num_episodes: int = 4  # that estimate J(x)
    num_steps: int = 200  # of each
    num_moves: int = 30  # of `worst_params`
    greedy: bool = True  # the policy acts by its mode there

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_adversaries", "num_episodes", "num_steps", "num_moves")


@pytree
class Hyper:
    """Dynamic settings of the adversary."""

    rate: jax.Array = 0.05  # how far each coordinate moves, of its range
    uniform_share: jax.Array = 0.5  # of the episodes, on a uniform x


@pytree
class Adversary:
    """What episodes are played on: the `env_params` of the student, from which `Drawn` draws."""

    params: Any  # of the environment, of which x changes some
    x: jax.Array  # (P, D)
    hyper: Hyper


@pytree
class AdversarialState(OuterState):
    """A student's state and its adversary."""

    key: jax.Array
    inner: Any
    SETTINGS = ("adversary", "inner.env_params.hyper")

    @property
    def adversary(self) -> Adversary:
        """What episodes are played on."""
        return self.inner.env_params


class Rollout(NamedTuple):
    student: Any
    adversary_return: Array  # mean, at the adversary's points before it moved

    @property
    def ends(self) -> Ends:
        return self.student.ends


class Worst(NamedTuple):
    """What `worst_params` found."""

    x: Float[Array, " D"]
    params: Any
    episode_return: Float[Array, ""]  # there, on episodes of which the search knew nothing


@dataclasses.dataclass(frozen=True)
class Drawn:
    """The `level_fn` of a student's environments: one of the adversary's points, or a uniform one. Hashable."""

    level_fn: Callable[[Any, Array], Any]

    def __call__(self, key: Array, params: Any) -> Any:
        if not isinstance(params, Adversary):
            return params
        share_key, which_key, uniform_key = jax.random.split(key, 3)
        P, D = params.x.shape
        x = params.x[jax.random.randint(which_key, (), 0, P)]
        uniform = jax.random.bernoulli(share_key, params.hyper.uniform_share)
        return self.level_fn(params.params, jnp.where(uniform, jax.random.uniform(uniform_key, (D,)), x))


def mean_return(
    key: Array, algo: Algorithm, policy: Any, env: Environment, params: Any, config: Config = Config()
) -> Float[Array, ""]:
    """The mean return of `config.num_episodes` episodes, cut after `config.num_steps` steps; differentiable in
    `params`."""
    E = config.num_episodes
    reset_key, run_key = jax.random.split(key)
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(reset_key, E), params)

    def step(carried, key):
        obs, state, carry, on = carried
        act_key, env_key = jax.random.split(key)
        action, carry = algo.act(policy, act_key, obs, carry, greedy=config.greedy)
        ts = jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(env_key, E), state, action, params)
        return (ts.obs, ts.state, carry, on & ~(ts.terminated | ts.truncated)), jnp.where(on, ts.reward, 0)

    start = obs, state, algo.initial_carry((E,)), jnp.ones(E, bool)
    return jnp.mean(jnp.sum(jax.lax.scan(step, start, jax.random.split(run_key, config.num_steps))[1], 0))


def descended(x: Float[Array, " D"], gradient: Float[Array, " D"], rate: Array | float) -> Float[Array, " D"]:
    """x after a step of `rate` down the gradient's signs, inside the box: slopes may differ by magnitudes."""
    return jnp.clip(x - rate * jnp.sign(jnp.where(jnp.isfinite(gradient), gradient, 0)), 0, 1)


def starts(key: Array, n: int, D: int) -> Float[Array, "n D"]:
    """Up to half of them are corners of the unit box, none twice; the others are uniform."""
    corner_key, uniform_key = jax.random.split(key)
    few = min(n // 2, 2 ** min(D, 16))
    which = jax.random.permutation(corner_key, 2 ** min(D, 16))[:few]
    bits = (which[:, None] >> (jnp.arange(D) % 16)) & 1  # beyond 16 dimensions coordinates are alike
    return jnp.concatenate([bits.astype(float), jax.random.uniform(uniform_key, (n - few, D))])


@functools.partial(jax.jit, static_argnames=("algo", "env", "level_fn", "config"))
def worst_params(
    key: Array,
    algo: Algorithm,
    policy: Any,
    env: Environment,
    params: Any,
    level_fn: Callable[[Any, Array], Any],
    config: Config = Config(),
    rate: float | Float[Array, ""] = 0.1,
) -> Worst:
    """The params in `level_fn`'s box on which the policy returns least, and what. The search has the same episodes for
    every x."""
    D = dimensions_of(level_fn, config.dimensions)
    start_key, key, judge_key = jax.random.split(key, 3)

    def value_of(x, key):
        return mean_return(key, algo, policy, env, level_fn(params, x), config)

    value_and_slope = jax.value_and_grad(lambda x: value_of(x, key))

    def search(x):
        def move(carry, rate):
            x, best, least = carry
            value, slope = value_and_slope(x)
            better = value < least
            best, least = jnp.where(better, x, best), jnp.where(better, value, least)
            return (descended(x, slope, rate), best, least), None

        rates = rate * jnp.linspace(1, 0, config.num_moves, endpoint=False)
        (x, best, least), _ = jax.lax.scan(move, (x, x, jnp.asarray(jnp.inf)), rates)
        value, _ = value_and_slope(x)
        return jnp.where(value < least, x, best), jnp.minimum(value, least)

    x, least = jax.vmap(search)(starts(start_key, config.num_adversaries, D))
    x = x[jnp.argmin(least)]
    return Worst(x, level_fn(params, x), value_of(x, judge_key))


def make(student: Algorithm, config: Config = Config(), hyper: Hyper | None = None) -> Algorithm:
    """`student` against an adversary who moves its parameters. An Algorithm again, with a `Hyper` as `hyper.adversary`.

    Raises ValueError unless the student's environments draw their levels by `Drawn`, and for settings that cannot be.
    """
    venv = student.venv
    if not isinstance(venv.level_fn, Drawn):
        raise ValueError(
            f"adversarial_params: the student needs vectorize(env, {venv.num_envs}, level_fn=Drawn(level_fn)), so that "
            "episodes are played on the adversary's params."
        )
    level_fn = venv.level_fn.level_fn
    D = dimensions_of(level_fn, config.dimensions)
    defaults = strongly_typed(Hyper() if hyper is None else hyper)
    _check(defaults)

    def init(key, hyper=None, env_params=None):
        hyper, own = split_hyper(hyper, "adversary", defaults)
        _check(own)
        key, student_key, x_key, restart_key = jax.random.split(key, 4)
        params = strongly_typed(venv.default_params if env_params is None else env_params)
        adversary = Adversary(params, jax.random.uniform(x_key, (config.num_adversaries, D)), own)
        inner = student.init(student_key, hyper, params)
        inner = student.restart(inner, restart_key, adversary, jnp.ones(venv.num_envs, bool))
        return AdversarialState(key, inner)

    def moved(key, policy, adversary):
        """The adversary after a step, and the mean return at its points before."""
        return_key, x_key = jax.random.split(key)

        def pair(x, key):
            """Returns at x and another point on the same episodes, and the slopes there."""

            def value(x):
                return mean_return(key, student, policy, venv.env, level_fn(adversary.params, x), config)

            return jax.vmap(jax.value_and_grad(value))(x)

        other = jax.random.uniform(x_key, adversary.x.shape)
        keys = jax.random.split(return_key, config.num_adversaries)
        returns, slopes = jax.vmap(pair)(jnp.stack([adversary.x, other], 1), keys)
        x = jax.vmap(descended, (0, 0, None))(adversary.x, slopes[:, 0], adversary.hyper.rate)
        x = jnp.where(returns[:, 1:] < returns[:, :1], other, x)
        return adversary.replace(x=x), returns[:, 0].mean()

    def collect(state):
        key, move_key = jax.random.split(state.key)
        adversary, returns = moved(move_key, student.policy(state.inner), state.adversary)
        inner, rollout = student.collect(state.inner.replace(env_params=adversary))
        return state.replace(key=key, inner=inner), Rollout(rollout, returns)

    def learn(state, rollout):
        inner, metrics = student.learn(state.inner, rollout.student)
        return state.replace(inner=inner), {**metrics, "adversary_return": rollout.adversary_return}

    hyper_of_both = with_settings(student.hyper, "adversary", defaults)
    return around(
        student, "adversary", (config, level_fn), hyper=hyper_of_both, init=init, collect=collect, learn=learn
    )


def _check(hyper: Hyper) -> None:
    if not is_concrete(hyper):
        return
    if not np.all(np.asarray(hyper.rate) >= 0):
        raise ValueError(f"rate={hyper.rate}: it must not be below 0.")
    share = np.asarray(hyper.uniform_share)
    if not np.all((share >= 0) & (share <= 1)):
        raise ValueError(f"uniform_share={share}: it must be in [0, 1].")


def for_task(task: Task, config: Config, hyper: Hyper) -> Algorithm:
    """`--curriculum adversarial_params`: its box is the one of the ranges."""
    venv = vectorize(task.env, task.config.num_envs, level_fn=Drawn(task.points))
    return make(task.learner(venv, task.config), config, hyper)
