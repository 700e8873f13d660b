"""Datasets by recipe: who acts, for how many steps, and what the returns are to be compared with.

| recipe | who acts |
|---|---|
| `random` | uniform actions, among the allowed ones where some are masked |
| `medium` | a learner's first policy whose return is over a third of the way from random to expert's, as in training |
| `medium-replay` | the learner's policies from the first, untrained one up to medium, in order: equal shares of steps |
| `expert` | the learner's best policy, as the algorithm is deployed |
| `mixed:P` | a share P of the steps by expert, the others at random |
| `scripted` | the controller that the environment's family has |
| `navigate`, `stitch` | of OGBench's point mazes: a walker with noise, to any place after place or to near ones alone |

After Fu et al. (2020), "D4RL: Datasets for deep data-driven reinforcement learning". There medium is a policy that was
stopped at about a third of the expert's performance, and medium-replay is all that such a learner's replay buffer held.
Here it is recorded anew, by the policies that the learner had at equally spaced points of its training, since not all
algorithms have a buffer: each acts for as long as the others. "As in training" is by samples: of a stochastic policy,
with a deterministic one's noise, or epsilon-greedily.

Streams of episodes are recorded at once, each up to the end of the episode in which it has enough steps; one follows
the other, and the last episode is cut where the dataset has the steps that were asked for. `mixed` has whole episodes.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl import actors, registry
from jaxrl.actors import Actor, of_policy
from jaxrl.algorithm import Algorithm, deployment
from jaxrl.data.datasets import Dataset, joined
from jaxrl.environment import NO_LIMIT, Environment
from jaxrl.exact.mdp import tabulate
from jaxrl.exact.solvers import backward_induction, bellman
from jaxrl.host.data.recording import (
    POINTS,
    at_random,
    first_steps,
    nearest_episode,
    recorded,
    returns_of,
    streams,
    trained,
    unbroken,
    updates_at,
)
from jaxrl.host.run.recipe import placed
from jaxrl.host.run.recipe_inputs import settings_of
from jaxrl.host.run.run_folder import tree_values
from jaxrl.wrappers import wrapped

RECIPES = ("random", "medium", "medium-replay", "expert", "mixed:P", "scripted", "navigate", "stitch")

FIRST_TRIED = ("ppo", "sac", "dqn")
"""Algorithms that `auto` takes before the others, where they are tuned for the task."""

STEPS = 500_000
"""Environment steps of a training that nobody tuned."""

EPISODES = 100
"""Of which reference scores are means."""

THIRD = 1 / 3
"""Of the way from random to expert, where medium is."""

# ---- from a recipe's words to who acts


def parsed(recipe: str) -> tuple[str, float]:
    """`(name, share)` of a recipe. Raises ValueError for one that is not known, or a share that is none."""
    name, colon, share = recipe.partition(":")
    known = [word.partition(":")[0] for word in RECIPES]
    if name not in known or bool(colon) != (name == "mixed"):
        raise ValueError(f"recipe {recipe!r}: it is one of {', '.join(RECIPES)}.")
    if not colon:
        return name, 1.0
    try:
        number = float(share)
    except ValueError:
        number = np.nan
    if not 0 < number < 1:
        raise ValueError(f"recipe {recipe!r}: the expert's share of the steps is between 0 and 1, as in mixed:0.05.")
    return name, number


class Learner(NamedTuple):
    """An algorithm with settings for a task."""

    name: str
    algo: Algorithm  # its `venv.env` is the task with `env_settings`, inside of `wrap`
    hyper: Any
    total_steps: int
    wrap: tuple[str, ...] = ()
    env_settings: dict[str, Any] = {}


def learner(env: Environment, algo: str = "auto") -> Learner:
    """With the settings of the task's id (`registry.settings`), wrappers and, where `env` is as `make` makes it, static
    settings of the task among them; else with defaults.

    `auto` is the first algorithm that is tuned for it, and PPO where none is.
    """
    if algo == "auto":
        order = [*FIRST_TRIED, *(name for name in registry.list_algos() if name not in FIRST_TRIED)]
        algo = next((name for name in order if registry.tuned(name, env.id)), "ppo")
    module, known = registry.get_algo(algo), registry.settings(algo, env.id)
    if known is None:
        return Learner(algo, module.make(env, module.Config()), module.Hyper(), STEPS)
    own = known.env if known.env and env == registry.make(env.id)[0] else {}  # not over settings that were chosen
    seen = registry.make(env.id, **own)[0] if own else env
    made = module.make(wrapped(seen, known.wrap), module.Config(**known.config))
    return Learner(algo, made, module.Hyper(**known.hyper), known.total_steps, known.wrap, own)


# ---- what returns are compared with


def exact_returns(env: Environment, env_params: Any, max_steps: int) -> tuple[float, float] | None:
    """`(uniform actions', the optimum)` of episodes of at most `max_steps`, where the task lists its outcomes."""
    if not hasattr(env, "outcomes"):
        return None
    mdp = tabulate(env, env_params)

    def back(value, _):
        return bellman(mdp, value, 1.0).mean(-1), None

    uniform, _ = jax.lax.scan(back, jnp.zeros(mdp.num_states, mdp.reward.dtype), length=max_steps)
    best = backward_induction(mdp, max_steps)[0][0]
    return float(uniform @ mdp.initial), float(best @ mdp.initial)


def best_of_zoo(env: Environment, env_params: Any) -> tuple[str, float] | None:
    """The policy with the highest return of those that come with the library for this very task, and that return."""
    from jaxrl import zoo

    found = {}
    for name in zoo.names():
        if name.partition("/")[2] == env.id and _is_of(zoo.about(name), env, env_params):
            found[zoo.PREFIX + name] = zoo.about(name)["return"]
    best = max(found, key=lambda name: found[name], default=None)
    return None if best is None else (best, found[best])


def _is_of(told: dict[str, Any], env: Environment, env_params: Any) -> bool:
    """Whether a policy's return was measured with these settings and numbers, the length of episodes included."""
    recipe = told["recipe"]
    params = placed(env.default_params, recipe["params"])
    if told["max_steps"] is not None:
        params = params.replace(max_steps=np.minimum(params.max_steps, told["max_steps"]))
    alike = jax.tree.map(np.array_equal, tree_values(params), tree_values(env_params))
    settings = settings_of(recipe).items()
    return all(jax.tree.leaves(alike)) and all(getattr(env, name, None) == value for name, value in settings)


# ---- datasets


class _Task:
    """A task and what is recorded and measured in it."""

    def __init__(self, env: Environment, env_params: Any) -> None:
        if env.num_agents > 1:
            raise ValueError(f"{env.id} has {env.num_agents} agents; datasets are of one.")
        self.env, self.params = env, env_params
        self.max_steps = int(np.max(np.asarray(env_params.max_steps)))
        if self.max_steps == NO_LIMIT:
            raise ValueError(f"{env.id} has no time limit: give its params a max_steps.")

    def random(self, _: Any = None) -> Actor:
        return at_random(self.env, self.params)

    def score(self, who_of: Callable[[Any], Actor], policy: Any, key: Array) -> float:
        """The mean return over `EPISODES`."""

        def mean(policy, key):
            return returns_of(self.env, self.params, who_of(policy), key, EPISODES, self.max_steps).mean()

        return float(jax.jit(mean)(policy, key))

    def record(
        self, who_of: Callable[[Any], Actor], policies: list[Any], key: Array, steps: list[int], whole: bool = False
    ) -> list[Dataset]:
        """So many steps by each of the policies, or whole episodes of about so many; one program makes all."""
        num_envs, enough = streams(max(steps), self.max_steps)
        length = enough + self.max_steps - 1
        run = jax.jit(lambda policy, key: recorded(self.env, self.params, who_of(policy), key, num_envs, length))
        found = map(run, policies, jax.random.split(key, len(policies)))
        cut = nearest_episode if whole else first_steps
        return [cut(unbroken(x, num_envs, enough), n) for x, n in zip(found, steps, strict=True)]


class _Learnt(NamedTuple):
    """A training and which of its points are what."""

    name: str
    algo: Algorithm
    policies: Any
    best: int
    medium: int
    score: float  # of the best
    about: dict[str, Any]

    def of(self, point: int) -> Any:
        return jax.tree.map(lambda x: x[point], self.policies)

    def deployed(self, policy: Any) -> Actor:
        return of_policy(self.algo, policy, None)

    def learning(self, policy: Any) -> Actor:
        return of_policy(self.algo, policy, False)


def _learnt(
    task: _Task, by: Learner, train_steps: int | None, random: float, key: Array, best_key: Array, say: Callable
) -> _Learnt:
    name, algorithm, hyper, total, *_ = by
    total = total if train_steps is None else train_steps
    say(f"training {name} on {task.env.id} for {total} steps")
    train = jax.jit(lambda key, hyper: trained(algorithm, key, total, hyper, task.params))
    policies, returns = train(key, hyper)
    returns = np.asarray(returns, np.float64)
    finite = np.where(np.isnan(returns), -np.inf, returns)
    best = int(np.flatnonzero(finite == finite.max())[-1])  # of equal ones the last, which is surest
    score = task.score(
        lambda policy: of_policy(algorithm, policy, None), jax.tree.map(lambda x: x[best], policies), best_key
    )
    if not min(score, returns[best]) > random:
        raise ValueError(
            f"{name} has learnt nothing in {total} steps of {task.env.id}: its best return is {score:.6g}, that of "
            f"uniform actions {random:.6g}. Another --algo or more --train-steps may do."
        )
    medium = int(np.argmax(returns > random + THIRD * (returns[best] - random)))
    about = {
        "algo": name,
        "total_steps": total,
        "config": dataclasses.asdict(algorithm.config),
        "hyper": tree_values(hyper),
        "deployed": deployment(algorithm, None),
        "steps_at": (updates_at(algorithm, total, POINTS) * algorithm.steps_per_update).tolist(),
        "returns_at": returns.tolist(),
        "best": best,
        "medium": medium,
    }
    return _Learnt(name, algorithm, policies, best, medium, score, about)


def make(
    env: Environment,
    env_params: Any,
    recipe: str,
    num_steps: int,
    seed: int = 0,
    algo: str = "auto",
    train_steps: int | None = None,
    say: Callable[[str], Any] = lambda line: None,
) -> tuple[Dataset, dict[str, Any]]:
    """`(dataset, about)` of `num_steps` steps, or with `mixed` of whole episodes of about so many. Host only.

    All recipes of the same seed, algorithm and `train_steps` are of the same training. `about` says how they were made;
    its `reference` has the mean returns of uniform actions and of the best that is known: the optimum of a finite MDP
    (`exact`), else the learner's best policy, and where none was trained the zoo's or the controller's. Where no better
    one than uniform actions' is known, there is none.

    Args:
        train_steps: environment steps of the training. Default: the tuned ones, else `STEPS`.
        say: called with what takes long, before it begins.

    Raises ValueError for a recipe, algorithm or task that does not fit, a task without a time limit, and a learner that
    has learnt nothing.
    """
    from jaxrl.host.data.dataset_parts import about_of

    name, share = parsed(recipe)
    for flag, value, least in (("num_steps", num_steps, 2), ("train_steps", train_steps, 1)):
        if value is not None and value < least:
            raise ValueError(f"{flag}={value}: it must be at least {least}.")
    if train_steps is not None and train_steps > NO_LIMIT:
        raise ValueError(f"train_steps={train_steps}: it must be at most {NO_LIMIT}.")
    task = _Task(env, env_params)
    if name in ("navigate", "stitch"):
        return _collected(env, env_params, name, num_steps, seed, about_of)
    train_key, key, other_key, random_key, best_key = jax.random.split(jax.random.key(seed), 5)
    if name == "scripted":
        own = actors.scripted(env)
        parts = {"controller": task.record(lambda _: own, [()], key, [num_steps])[0]}
    exact = exact_returns(env, env_params, task.max_steps)
    random = task.score(task.random, (), random_key) if exact is None else exact[0]
    about: dict[str, Any] = {"recipe": recipe, "seed": seed, "max_steps": task.max_steps}
    known = best_of_zoo(env, env_params)
    if name == "random":
        parts = {"random": task.record(task.random, [()], key, [num_steps])[0]}
    elif name == "scripted":
        scripted = "controller", task.score(lambda _: own, (), best_key)
        known = max(filter(None, (known, scripted)), key=lambda item: item[1])
    else:
        by = learner(env, algo)
        if by.wrap or by.env_settings:  # what the policies see is what is recorded
            task = _Task(by.algo.venv.env, env_params)
            about |= {"wrap": list(by.wrap), "env_settings": dict(by.env_settings)}
        learnt = _learnt(task, by, train_steps, random, train_key, best_key, say)
        about["training"], known = learnt.about, (learnt.name, learnt.score)
        parts = _by_learner(task, learnt, name, share, num_steps, key, other_key)
    who, best = ("solver", exact[1]) if exact is not None else known or ("", -np.inf)
    scores = {"random": random, "best": best, "exact": exact is not None, "by": who, "episodes": EPISODES}
    about["parts"] = {who: part.size for who, part in parts.items()}
    if not best > random:  # unknown, or a task where it makes no difference what one does
        scores, about["random_return"] = None, random
    return joined(*parts.values()), about_of(task.env, env_params, scores, **about)


def _collected(
    env: Environment,
    env_params: Any,
    recipe: str,
    num_steps: int,
    seed: int,
    about_of: Callable[..., dict[str, Any]],
) -> tuple[Dataset, dict[str, Any]]:
    """Datasets of a walker that the task itself has: goals are its own, so there are no returns to compare with."""
    walker = importlib.import_module("jaxrl.envs.physics.maze_walker")
    if not isinstance(env, walker.PointMaze):
        raise ValueError(f"{env.id}: recipe {recipe!r} is of OGBench's point mazes, PointMazeMedium-v0 and others.")
    params, act = walker.collector(env, recipe, env_params)

    def of_all(key, env_state, obs, env_params, carry):
        return jax.vmap(act)(jax.random.split(key, env_state.time.shape[0]), env_state), carry

    task = _Task(env, params)
    found = task.record(lambda _: Actor(of_all), [()], jax.random.key(seed), [num_steps])[0]
    return found, about_of(env, params, None, recipe=recipe, seed=seed, max_steps=task.max_steps)


def _by_learner(
    task: _Task, learnt: _Learnt, name: str, share: float, num_steps: int, key: Array, other_key: Array
) -> dict[str, Dataset]:
    """The datasets that a learner made, by the policy that acted."""
    if name == "medium-replay":
        points = range(learnt.medium + 1)
        if num_steps < len(points):
            raise ValueError(
                f"num_steps={num_steps}: medium-replay has {len(points)} policies, a step at least of each."
            )
        steps = np.diff(np.arange(len(points) + 1) * num_steps // len(points)).tolist()
        found = task.record(learnt.learning, [learnt.of(i) for i in points], key, steps)
        return {f"point_{i}": part for i, part in zip(points, found, strict=True)}
    if name == "medium":
        return {"medium": task.record(learnt.learning, [learnt.of(learnt.medium)], key, [num_steps])[0]}
    wanted = max(1, round(share * num_steps))
    best = learnt.of(learnt.best)
    found = {"expert": task.record(learnt.deployed, [best], key, [wanted], whole=name == "mixed")[0]}
    if name == "mixed":
        rest = max(1, num_steps - found["expert"].size)
        found["random"] = task.record(task.random, [()], other_key, [rest], whole=True)[0]
    return found
