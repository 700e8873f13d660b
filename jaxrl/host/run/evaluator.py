"""The evaluations of `fit`: full episodes of the current policies, of the task and of held-out levels."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from jaxrl.algorithm import Algorithm
from jaxrl.environment import NO_LIMIT, Environment, strongly_typed
from jaxrl.evaluation import EpisodeStats, evaluate
from jaxrl.host.run.compiled import Contents, contents, kept
from jaxrl.host.run.options import EvalOptions
from jaxrl.host.run.sharding import everywhere, independent, replicated

EVALUATION_SEED = 20_240_229  # evaluations draw from their own stream: the same episodes' luck for every run compared


class Evaluator:
    """Full episodes of the current policies."""

    def __init__(
        self, algo: Algorithm, num_seeds: int | None, how: EvalOptions | None = None, mesh: Mesh | None = None
    ) -> None:
        how = EvalOptions() if how is None else how
        env = algo.venv.env if how.env is None else how.env
        env_params = env.default_params if how.env_params is None else how.env_params

        self.env, self.env_params = env, env_params
        self.num_seeds, self.mesh, several = num_seeds, mesh, num_seeds is not None
        caps = how.episodes, how.max_steps, how.greedy, mesh
        self.of_task = _episodes(algo, several, env, contents(env_params), False, *caps)
        self.of_levels = None
        if how.levels is not None:
            level_env, levels = levels_of(algo, env, how.levels, how.max_steps)
            self.of_levels = _episodes(algo, several, level_env, contents(levels), True, *caps)

    def keys(self, update: int) -> Array:
        key = jax.random.fold_in(jax.random.key(EVALUATION_SEED), update)
        keys = key if self.num_seeds is None else jax.random.split(key, self.num_seeds)
        return everywhere(keys, self.mesh)

    def check(self, state: Any) -> None:
        """Trace it on the shapes of a state, so that what cannot be evaluated fails before the training."""
        for episodes in filter(None, (self.of_task, self.of_levels)):
            jax.eval_shape(episodes, state, self.keys(0))

    def __call__(self, state: Any, update: int) -> EpisodeStats:
        """Of the task's episodes, (E,) or (seeds, E)."""
        return jax.tree.map(np.asarray, self.of_task(state, self.keys(update)))

    def on_levels(self, state: Any, update: int) -> np.ndarray | None:
        """Returns on the held-out levels, (L, E) or (seeds, L, E); None where there are none."""
        return None if self.of_levels is None else np.asarray(self.of_levels(state, self.keys(update)).returns)


def levels_of(algo: Algorithm, env: Environment, levels: Any, max_steps: int | None) -> tuple[Environment, Any]:
    """The environment whose params a batch of levels is, of those that belong to a run, and the batch strongly typed.

    Raises ValueError for levels of none of them, and for levels without a time limit where there is no cap.
    """
    kits = [x.levels for x in (env, algo.venv.env)]
    envs = [env, algo.venv.env, *(kit.env for kit in kits if kit is not None)]
    levels = strongly_typed(levels)
    for each in envs:
        usual = each.default_params
        if type(levels) is type(usual) and np.ndim(levels.max_steps) == np.ndim(usual.max_steps) + 1:
            if max_steps is None and np.max(np.asarray(levels.max_steps)) == NO_LIMIT:
                raise ValueError("eval_levels: they have no time limit: give eval_max_steps.")
            return each, levels
    raise ValueError(
        f"eval_levels: they are a {type(levels).__name__}, no params of {env.id} or of its levels with a leading axis."
    )


def of_task(env: Environment, params: Any) -> bool:
    """Whether these are params of the environment itself, one for all episodes: not those of a distribution of another
    class, and no batch of levels. A field may be built otherwise than the default's, as an array in place of a tuple.
    """
    usual = env.default_params
    return type(params) is type(usual) and np.shape(params.max_steps) == np.shape(usual.max_steps)


@kept
def _episodes(
    algo: Algorithm,
    several: bool,
    env: Environment,
    env_params: Contents,
    levels: bool,
    episodes: int,
    max_steps: int | None,
    greedy: bool | None,
    mesh: Mesh | None,
) -> Any:
    """Jitted `(state, key) -> EpisodeStats` of full episodes, with a leading axis of `several` seeds and one of
    `levels`, which `env_params` have.
    """

    def one(state: Any, key: Array) -> EpisodeStats:
        policy = algo.policy(state)

        def on(key: Array, params: Any) -> EpisodeStats:
            return evaluate(algo, policy, key, env, params, num_episodes=episodes, max_steps=max_steps, greedy=greedy)

        if not levels:
            return on(key, env_params.tree)
        count = jax.tree.leaves(env_params.tree)[0].shape[0]
        return jax.vmap(on)(jax.random.split(key, count), env_params.tree)

    of_seeds = independent(one, mesh, (0, 0), 0) if several else one
    return jax.jit(of_seeds, out_shardings=None if mesh is None else replicated(mesh))
