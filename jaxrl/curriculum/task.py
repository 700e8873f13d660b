"""What a curriculum can be built from, where words and not a program say how: the command line's `--curriculum`.

A curriculum's file is built by its `make(levels, config, hyper, score)`, what it has of these, and attached to the
student; `jaxrl/algos/ids.py` says whether `levels` are points of a box or drawn. A file that needs more than that says
so in a function `for_task(task, config, hyper, score)` of its own, which returns the Algorithm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxtyping import Array

from jaxrl.algorithm import Algorithm
from jaxrl.curriculum.attachment import attach
from jaxrl.curriculum.protocol import Curriculum
from jaxrl.curriculum.teaching import Ranges, ranges
from jaxrl.environment import Environment
from jaxrl.vectorize import vectorize


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment, its params, and what was said of the levels."""

    env: Environment
    params: Any
    config: Any  # of the student
    learner: Callable[[Any, Any], Algorithm]  # (environment, config) -> what learns there; the student's `make`
    box: Ranges | None  # of parameters that may vary
    success_above: float  # an episode of higher return succeeds
    given: Callable[[str], Any]  # what was given by the name of a flag, as `teacher`

    @property
    def points(self) -> Ranges:
        """The box. Raises ValueError without one."""
        return ranges(self.params, {}) if self.box is None else self.box

    @property
    def level_fn(self) -> Callable[[Array, Any], Any]:
        """Draws a level: in the box, or as the environment does. Raises ValueError for one that does not."""
        if self.box is not None:
            return self.box.draw
        kit = self.env.levels
        if kit is None or kit.generate is None:
            raise ValueError(f"{self.env.id} has no `generate`: say what may vary, --curriculum.ranges NAME=LOW:HIGH")
        return kit.generate

    @property
    def levels(self) -> Environment:
        """The environment whose params are such levels."""
        kit = self.env.levels
        return self.env if self.box is not None or kit is None else kit.env

    def attach(
        self,
        curriculum: Curriculum,
        env: Environment | None = None,
        params_of: Callable[[Any], Any] | None = None,
    ) -> Algorithm:
        """The student under this curriculum, on `env` (default: `levels`), whose params are made of the task's."""
        venv = vectorize(self.levels if env is None else env, self.config.num_envs, batched_params=True)
        algo = attach(self.learner(venv, self.config), curriculum, self.success_above)
        return algo if params_of is None else with_params_of(algo, params_of)


def with_params_of(algo: Algorithm, params_of: Callable[[Any], Any]) -> Algorithm:
    """`algo`, whose `init` is given the params of the task and makes its own of them."""

    def init(key: Array, hyper: Any = None, env_params: Any = None) -> Any:
        return algo.init(key, hyper, None if env_params is None else params_of(env_params))

    return algo._replace(init=init)
