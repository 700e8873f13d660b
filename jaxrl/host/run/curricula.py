"""The algorithm that `--curriculum NAME` describes: the student of a recipe under a curriculum.

`jaxrl/algos/ids.py` says what a curriculum chooses, "levels", "points" of a box or "starts". The student under it is
`attach(student, make(levels, config, hyper, score))`, of these what `make` of the curriculum's file takes; `levels` are
the environment's own `generate` or, with `--curriculum.ranges`, a box of its parameters. Curricula that are built from
anything else are in the table `BUILT_OTHERWISE`.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl import curriculum, registry
from jaxrl.algorithm import Algorithm
from jaxrl.curriculum import Curriculum, attach
from jaxrl.curriculum.teaching import Ranges, ranges
from jaxrl.environment import Environment, check_params
from jaxrl.host.run import ram
from jaxrl.vector_env import vectorize
from jaxrl.wrappers import FromStates


@dataclasses.dataclass(frozen=True)
class Request:
    """The student of `--curriculum NAME`, its task, and what the flags say of the levels."""

    env: Environment
    params: Any
    config: Any  # of the student
    make_student: Callable[[Any, Any], Algorithm]  # (environment, config) -> student
    name: str  # of the curriculum
    flags: dict[str, Any]  # what was given for each of `jaxrl.host.cli.curricula.CurriculumFlags`
    policy_of: Callable[[Path], tuple[Algorithm, Any]]  # run folder -> (algorithm, policy)

    @property
    def box(self) -> Ranges | None:
        """`--curriculum.ranges`; None where nothing was said. Raises ValueError for ranges of no parameter."""
        words = self.flags["ranges"]
        return ranges(self.params, dict(map(_range, words))) if words else None

    @property
    def points(self) -> Ranges:
        """`--curriculum.ranges`. Raises ValueError where nothing was said."""
        box = self.box
        return ranges(self.params, {}) if box is None else box

    @property
    def level_fn(self) -> Callable[[Array, Any], Any]:
        """`(key, params) -> level`: the function `--curriculum.levels`, else uniform in the ranges or, without ranges,
        as the environment draws levels.

        Raises ValueError for an environment that draws none, and for levels of another environment.
        """
        box, kit = self.box, self.env.levels
        if self.own_levels is not None:
            if box is not None:
                raise ValueError("--curriculum.levels and --curriculum.ranges: say one of them.")
            return self.own_levels
        if box is not None:
            return box.draw
        if kit is None or kit.generate is None:
            raise ValueError(f"{self.env.id} has no `generate`: say what may vary, --curriculum.ranges NAME=LOW:HIGH")
        return kit.generate

    @property
    def mutate_fn(self) -> Callable[[Array, Any], Any] | None:
        """The environment's edits of its levels; None for ranges, which they would leave."""
        return None if self.box is not None or self.env.levels is None else self.env.levels.mutate

    @property
    def own_levels(self) -> Callable[[Array, Any], Any] | None:
        """The function `--curriculum.levels`; None where nothing was said."""
        return None if self.flags.get("levels") is None else registry.own_function(self.flags["levels"])

    @property
    def level_env(self) -> Environment:
        """The environment whose params are the levels of `level_fn` and of `points`.

        Raises ValueError where `--curriculum.levels` makes params of neither the environment nor its levels.
        """
        kit = self.env.levels
        if self.own_levels is not None:
            level = jax.eval_shape(self.own_levels, jax.random.key(0), self.params)
            envs = [self.env, *([] if kit is None else [kit.env])]
            for env in envs:
                if type(env.default_params) is type(level):
                    return env
            raise ValueError(
                f"--curriculum.levels {self.flags['levels']}: it makes a {type(level).__name__}; levels of "
                f"{self.env.id} are {' or '.join(dict.fromkeys(type(env.default_params).__name__ for env in envs))}."
            )
        return self.env if self.box is not None or kit is None else kit.env

    def attach(self, chosen: Curriculum, env: Environment | None = None) -> Algorithm:
        """The student on `env`, by default `level_env`, under a curriculum."""
        return attach(self.student(env, batched_params=True), chosen, self.flags["success_above"])

    def student(self, env: Environment | None = None, **vectorized: Any) -> Algorithm:
        """The student on copies of `env`, by default `level_env`."""
        venv = vectorize(self.level_env if env is None else env, self.config.num_envs, **vectorized)
        return self.make_student(venv, self.config)

    def given(self, flag: str) -> str:
        """The word of `--curriculum.FLAG`. Raises ValueError where it was not said."""
        if self.flags.get(flag) is None:
            raise ValueError(f"{self.name} needs --curriculum.{flag}.")
        return self.flags[flag]


def under_curriculum(
    recipe: dict[str, Any],
    make_student: Callable[[Any, Any], Algorithm],
    config: Any,
    env: Environment,
    params: Any,
    policy_of: Callable[[Path], tuple[Algorithm, Any]],
) -> Algorithm:
    """The algorithm that the part `curriculum` of a recipe describes.

    Args:
        recipe: that part, with tuples for the lists of JSON.
        make_student: `make` of the student's file, `config` its settings.
        policy_of: reads the policy of a run folder.

    Raises ValueError for a student or an environment that does not go with the curriculum, and for wrong words.
    """
    name, flags = recipe["name"], recipe["choice"]
    module, chooses = registry.get_curriculum(name)
    if env.num_agents > 1 or not hasattr(config, "num_envs"):
        raise ValueError("--curriculum: a student plays one agent in each of config.num_envs environments.")
    request = Request(env, params, config, make_student, name, flags, policy_of)
    if (box := request.box) is not None:
        for corner in (0.0, 1.0):
            check_params(env, box(params, jnp.full(box.dimensions, corner)))
    settings = [module.Config(**recipe["config"])] if "config" in recipe else []
    settings += [module.Hyper(**recipe["hyper"])] if "hyper" in recipe else []
    score = {"score": _score(flags["score"])} if flags["score"] else {}
    if score and "score" not in inspect.signature(module.make).parameters:
        raise ValueError(f"--curriculum.score {flags['score']}: {name} reads no score.")
    if flags.get("levels") is not None and (chooses != "levels" or name in ("paired", "adversarial_params")):
        raise ValueError(f"--curriculum.levels: {name} takes no levels of yours; dr, plr, accel, sfl and groove do.")
    if name in BUILT_OTHERWISE:
        return BUILT_OTHERWISE[name](request, module, *settings, **score)
    levels = request.points if chooses == "points" else request.level_fn
    return request.attach(module.make(levels, *settings, **score))


def _score(word: str) -> Callable[..., Array]:
    """`--curriculum.score`: of the library, or a function of the user's. Raises ValueError for neither."""
    if ":" in word:
        return registry.own_function(word)
    if word not in SCORES:
        near = difflib.get_close_matches(word, SCORES, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(f"--curriculum.score {word}: it is {', '.join(SCORES)} or MODULE:FUNCTION.{hint}")
    return getattr(curriculum, word)


SCORES = ("max_mc", "positive_value_loss", "l1_value_loss", "learnability")
"""Scores of the library that `--curriculum.score` names."""


def held_out(recipe: dict[str, Any], env: Environment, params: Any) -> Any:
    """The levels that `--eval-levels` says, with a leading axis: what a function makes of `(env, params)`, or so many
    that the environment or `--curriculum.ranges` draw, the same ones in every run.

    Raises ValueError for a word that is neither, and for an environment that draws no levels.
    """
    word, choice = recipe["run"]["eval_levels"], recipe.get("curriculum", {}).get("choice", {})
    if ":" in word:
        return registry.own_function(word)(env, params)
    if not word.isdecimal() or int(word) < 1:
        raise ValueError(f"--eval-levels {word}: it is how many, as 32, or MODULE:FUNCTION.")
    if choice.get("ranges"):
        draw: Any = ranges(params, dict(map(_range, choice["ranges"]))).draw
    elif env.levels is None or env.levels.generate is None:
        raise ValueError(f"--eval-levels {word}: {env.id} draws no levels; name a function, MODULE:FUNCTION.")
    else:
        draw = env.levels.generate
    level = ram.size_of(jax.eval_shape(draw, jax.random.key(0), params))
    parts = {"the levels": int(word) * level, "their keys": 8 * int(word)}
    ram.require_room(parts, f"--eval-levels {word}", "make it smaller")
    keys = jax.random.split(jax.random.key(HELD_OUT_SEED), int(word))
    return jax.jit(jax.vmap(draw, (0, None)))(keys, params)


HELD_OUT_SEED = 77_310_442
"""Of held-out levels: far from the seeds that runs are numbered by."""


def _accel(request: Request, accel: ModuleType, config: Any, hyper: Any, **score: Any) -> Algorithm:
    return request.attach(accel.make(request.level_fn, request.mutate_fn, config, hyper, **score))


def _adversarial_params(request: Request, adversarial: ModuleType, config: Any, hyper: Any) -> Algorithm:
    """The adversary's box is that of the ranges."""
    student = request.student(request.env, level_fn=adversarial.Drawn(request.points))
    return adversarial.make(student, config, hyper)


def _paired(request: Request, paired: ModuleType, config: Any) -> Algorithm:
    """The designer is of the student's kind and builds levels in the environment's own editor.

    Raises ValueError for an environment without an editor, and for ranges, which no designer reads.
    """
    kit = request.env.levels
    if request.box is not None or kit is None or kit.editor is None:
        raise ValueError(f"paired: {request.env.id} has no `editor` in which a designer builds levels; mazes have.")
    editor, level_of_state = kit.editor()
    student = request.student(batched_params=True)
    designer = request.make_student(editor, dataclasses.replace(request.config, num_steps=editor.num_steps))
    algo = paired.make(student, designer, level_of_state, config)
    return _with_params_of(algo, lambda params: editor.default_params)


def _reverse_curriculum(request: Request, reverse: ModuleType, config: Any, hyper: Any) -> Algorithm:
    """The states at the goal are those of the function `--curriculum.goals`."""
    starts = FromStates(request.env)
    goal_states = registry.own_function(request.given("goals"))(request.env, request.params)
    algo = request.attach(reverse.make(starts, goal_states, config, hyper), starts)
    return _with_params_of(algo, lambda params: starts.starting(params, goal_states))


def _snapshot(request: Request, snapshot: ModuleType, config: Any, hyper: Any) -> Algorithm:
    """The teacher is the policy of the first seed in the run folder `--curriculum.teacher`."""
    starts = FromStates(request.env)
    teacher, policy = request.policy_of(Path(request.given("teacher")))
    table = snapshot.take(jax.random.key(0), teacher, policy, request.env, request.params, config)
    algo = request.attach(snapshot.make(table, hyper), starts)
    return _with_params_of(algo, lambda params: snapshot.params_of(starts, params, table))


def _traced(request: Request, traced: ModuleType, config: Any, hyper: Any) -> Algorithm:
    """Its model is of the student's environment."""
    return request.attach(traced.make(request.level_env, request.level_fn, request.mutate_fn, config, hyper))


BUILT_OTHERWISE: dict[str, Callable[..., Algorithm]] = {
    "accel": _accel,
    "adversarial_params": _adversarial_params,
    "paired": _paired,
    "reverse_curriculum": _reverse_curriculum,
    "snapshot": _snapshot,
    "traced": _traced,
}
"""`(request, module, *settings, score=) -> algorithm` of curricula that are built from other things than the rest."""


def _with_params_of(algo: Algorithm, params_of: Callable[[Any], Any]) -> Algorithm:
    """`algo`, whose `init` is given params of the task and makes its own of them by `params_of`."""

    def init(key: Array, hyper: Any = None, env_params: Any = None) -> Any:
        return algo.init(key, hyper, None if env_params is None else params_of(env_params))

    return algo._replace(init=init)


def _range(word: str) -> tuple[str, tuple[float, float]]:
    """`name=low:high`."""
    name, _, bounds = word.partition("=")
    try:
        low, high = map(float, bounds.split(":"))
    except ValueError:
        raise ValueError(f"--curriculum.ranges {word}: it is written NAME=LOW:HIGH, as in length=0.2:3.0") from None
    return name, (low, high)
