"""Adversarial parameters: gradient search for the worst dynamics in a box, and training a policy on them.

This is no `Curriculum` but an Algorithm around a student, as its points move along gradients of the student's return.

Where the dynamics are differentiable, a policy's return has a gradient with respect to their parameters, and not only
with respect to the policy's weights (`algos/model_based/apg.py`). Let x be a point of the unit box, `level_at(params,
x)` the dynamics there, and J(x) the mean return of the policy's episodes on them.

    worst_params    gradient descent x <- clip(x - rate sign(grad J)) with a decreasing rate, from several starts:
                    corners of the box, where the worst x often is although no gradient leads there, and uniform x;
                    returns the x of smallest J, whose return is estimated on other episodes
    make            trains a student against a population of points. Each update
                    1. each x moves one step, x <- clip(x - rate sign(grad J)) for the student's current policy
                    2. each x is replaced by a uniform one if that has a smaller return on the same episodes
                    3. the student plays episodes, each on one of the points or, with probability `uniform_share`, on a
                       uniform x, and learns

`make` alternates as robust adversarial RL does (Pinto et al. 2017, "Robust adversarial reinforcement learning",
arXiv:1703.02702). There the adversary is a policy that applies forces at every step and is trained without gradients of
the dynamics; here it chooses parameters for a whole episode. With `uniform_share` 1 this is domain randomisation. Step
2 is needed because J usually has several minima.

A jump of the dynamics or the reward (a termination, a contact) has no derivative, so a minimum that is due to a jump is
not found. Usage:

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
from jaxrl.calls import recorded
from jaxrl.curriculum.teaching import dimensions_of
from jaxrl.environment import Environment, is_concrete, pytree, strongly_typed
from jaxrl.nesting import OuterState, around, split_hyper, with_settings
from jaxrl.rollout import Ends


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    dimensions: int | None = None  # D of the box; None: `level_at.dimensions`, which `Ranges` have
    num_adversaries: int = 8  # points x of the adversary; in `worst_params`, starts of the search
    num_episodes: int = 4  # episodes that estimate J(x)
    num_steps: int = 200  # steps after which each of them is cut
    num_moves: int = 30  # gradient steps of `worst_params`
    greedy: bool = True  # the policy acts by its mode in these episodes

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_adversaries", "num_episodes", "num_steps", "num_moves")


@pytree
class Hyper:
    """Dynamic settings of the adversary."""

    rate: jax.Array = 0.05  # how far each coordinate of x moves in an update, in the unit box
    uniform_share: jax.Array = 0.5  # share of the student's episodes that are on a uniform x


@pytree
class Adversary:
    """The adversary's points: the student's `env_params`, from which `Drawn` draws a level for each episode."""

    params: Any  # of the environment, some of which x changes
    x: jax.Array  # (P, D)
    hyper: Hyper


@pytree
class AdversarialState(OuterState):
    """The student's state, whose `env_params` are the adversary."""

    key: jax.Array
    inner: Any  # the student's state

    # `hyper` has the student's settings and one more field, `adversary`, for the settings of the adversary.
    SETTINGS = ("adversary", "inner.env_params.hyper")

    @property
    def adversary(self) -> Adversary:
        """The adversary's points and settings."""
        return self.inner.env_params


class Rollout(NamedTuple):
    """A student's rollout, and the return of its policy at the adversary's points."""

    student: Any
    adversary_return: Array  # mean return at the adversary's points before they moved

    @property
    def ends(self) -> Ends:
        """Where episodes of the student's rollout ended."""
        return self.student.ends


class Worst(NamedTuple):
    """The result of `worst_params`."""

    x: Float[Array, " D"]
    params: Any  # at x
    episode_return: Float[Array, ""]  # mean return there, on episodes that the search did not use


@dataclasses.dataclass(frozen=True)
class Drawn:
    """The `level_fn(key, params)` of the student's environments: the level at one of the adversary's points or, with
    probability `uniform_share`, at a uniform point. Hashable.

    Of `params` that are no `Adversary`, as when environments are built, it makes the level itself.
    """

    level_at: Callable[[Any, Array], Any]

    def __call__(self, key: Array, params: Any) -> Any:
        if not isinstance(params, Adversary):
            return params
        share_key, which_key, uniform_key = jax.random.split(key, 3)
        P, D = params.x.shape
        x = params.x[jax.random.randint(which_key, (), 0, P)]
        uniform = jax.random.bernoulli(share_key, params.hyper.uniform_share)
        return self.level_at(params.params, jnp.where(uniform, jax.random.uniform(uniform_key, (D,)), x))


def mean_return(
    key: Array, algo: Algorithm, policy: Any, env: Environment, params: Any, config: Config = Config()
) -> Float[Array, ""]:
    """J: the mean return of `config.num_episodes` episodes, each cut after `config.num_steps` steps.

    Differentiable with respect to `params`.
    """
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
    """clip(x - rate sign(gradient)), inside the unit box. Only signs are used: gradients may differ by magnitudes."""
    return jnp.clip(x - rate * jnp.sign(jnp.where(jnp.isfinite(gradient), gradient, 0)), 0, 1)


def starts(key: Array, n: int, D: int) -> Float[Array, "n D"]:
    """n starts of a search: up to half are different corners of the unit box, the others are uniform."""
    corner_key, uniform_key = jax.random.split(key)
    few = min(n // 2, 2 ** min(D, 16))
    which = jax.random.permutation(corner_key, 2 ** min(D, 16))[:few]
    bits = (which[:, None] >> (jnp.arange(D) % 16)) & 1  # beyond 16 dimensions, coordinates repeat
    return jnp.concatenate([bits.astype(float), jax.random.uniform(uniform_key, (n - few, D))])


@functools.partial(jax.jit, static_argnames=("algo", "env", "level_at", "config"))
def worst_params(
    key: Array,
    algo: Algorithm,
    policy: Any,
    env: Environment,
    params: Any,
    level_at: Callable[[Any, Array], Any],
    config: Config = Config(),
    rate: float | Float[Array, ""] = 0.1,
) -> Worst:
    """The params in the box of `level_at` with the smallest return of the policy, all compared on the same episodes."""
    D = dimensions_of(level_at, config.dimensions)
    start_key, key, judge_key = jax.random.split(key, 3)

    def value_of(x, key):
        return mean_return(key, algo, policy, env, level_at(params, x), config)

    value_and_slope = jax.value_and_grad(lambda x: value_of(x, key))

    def move(carry, rate):
        x, best, least = carry
        value, slope = value_and_slope(x)
        worse = value < least
        best, least = jnp.where(worse, x, best), jnp.where(worse, value, least)
        return (descended(x, slope, rate), best, least), None

    def search(x):
        rates = rate * jnp.linspace(1, 0, config.num_moves, endpoint=False)
        (x, best, least), _ = jax.lax.scan(move, (x, x, jnp.asarray(jnp.inf)), rates)
        value, _ = value_and_slope(x)
        return jnp.where(value < least, x, best), jnp.minimum(value, least)

    x, least = jax.vmap(search)(starts(start_key, config.num_adversaries, D))
    x = x[jnp.argmin(least)]
    return Worst(x, level_at(params, x), value_of(x, judge_key))


@dataclasses.dataclass(frozen=True)
class _Adversarial:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    student: Algorithm
    level_at: Callable[[Any, Array], Any]
    dimensions: int
    config: Config
    hyper: Hyper  # default settings

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> AdversarialState:
        venv = self.student.venv
        hyper, own = split_hyper(hyper, "adversary", self.hyper)
        _check(own)
        key, student_key, x_key, restart_key = jax.random.split(key, 4)
        params = strongly_typed(venv.default_params if env_params is None else env_params)
        x = jax.random.uniform(x_key, (self.config.num_adversaries, self.dimensions))
        inner = self.student.init(student_key, hyper, params)
        inner = self.student.restart(inner, restart_key, Adversary(params, x, own), jnp.ones(venv.num_envs, bool))
        return AdversarialState(key, inner)

    def collect(self, state: AdversarialState) -> tuple[AdversarialState, Rollout]:
        """The adversary moves against the current policy; then the student collects a rollout."""
        key, move_key = jax.random.split(state.key)
        adversary, returns = self.moved(move_key, self.student.policy(state.inner), state.adversary)
        inner, rollout = self.student.collect(state.inner.replace(env_params=adversary))
        return state.replace(key=key, inner=inner), Rollout(rollout, returns)

    def moved(self, key: Array, policy: Any, adversary: Adversary) -> tuple[Adversary, Float[Array, ""]]:
        """The adversary after a step of each point, and the mean return at its points before."""
        return_key, x_key = jax.random.split(key)
        P = self.config.num_adversaries

        def value(x, key):
            level = self.level_at(adversary.params, x)
            return mean_return(key, self.student, policy, self.student.venv.env, level, self.config)

        other = jax.random.uniform(x_key, adversary.x.shape)
        # Each point is compared with another one on the same episodes, which one key draws.
        pairs, keys = jnp.stack([adversary.x, other], 1), jax.random.split(return_key, P)
        returns, slopes = jax.vmap(jax.vmap(jax.value_and_grad(value), (0, None)))(pairs, keys)
        x = jax.vmap(descended, (0, 0, None))(adversary.x, slopes[:, 0], adversary.hyper.rate)
        x = jnp.where(returns[:, 1:] < returns[:, :1], other, x)
        return adversary.replace(x=x), returns[:, 0].mean()

    def learn(self, state: AdversarialState, rollout: Rollout) -> tuple[AdversarialState, dict[str, Array]]:
        inner, metrics = self.student.learn(state.inner, rollout.student)
        return state.replace(inner=inner), {**metrics, "adversary_return": rollout.adversary_return}


@recorded
def make(student: Algorithm, config: Config = Config(), hyper: Hyper | None = None) -> Algorithm:
    """An Algorithm that trains `student` against an adversary, which moves the params of its episodes.

    Its Hyper has one more field, `adversary`, a `Hyper` of this file.

    Raises ValueError unless the student's environments draw their levels by `Drawn`, and for settings out of range.
    """
    venv = student.venv
    if not isinstance(venv.level_fn, Drawn):
        raise ValueError(
            f"adversarial_params: the student needs vectorize(env, {venv.num_envs}, level_fn=Drawn(level_at)), so that "
            "episodes are played on the adversary's params."
        )
    level_at = venv.level_fn.level_at
    D = dimensions_of(level_at, config.dimensions)
    defaults = strongly_typed(Hyper() if hyper is None else hyper)
    _check(defaults)
    made = _Adversarial(student, level_at, D, config, defaults)
    return around(
        student,
        "adversary",
        (config, level_at),
        hyper=with_settings(student.hyper, "adversary", defaults),
        init=made.init,
        collect=made.collect,
        learn=made.learn,
    )


def _check(hyper: Hyper) -> None:
    if not is_concrete(hyper):
        return
    if not np.all(np.asarray(hyper.rate) >= 0):
        raise ValueError(f"rate={hyper.rate}: it must not be below 0.")
    share = np.asarray(hyper.uniform_share)
    if not np.all((share >= 0) & (share <= 1)):
        raise ValueError(f"uniform_share={share}: it must be in [0, 1].")
