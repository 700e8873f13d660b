"""What a recipe's algorithm learns from, read from its files: a dataset, and a model of the dataset's steps.

`recipe["dataset"]` has the path, the digest and the flags' words; `recipe["model"]` path and digest. A file that has
changed since the run began is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from jaxrl import registry
from jaxrl.data import datasets, dynamics, preferences
from jaxrl.data.datasets import Dataset
from jaxrl.data.dynamics import Ends
from jaxrl.data.hindsight import Hindsight
from jaxrl.data.learns import Learns
from jaxrl.environment import Environment
from jaxrl.host.data import dataset_files, dataset_parts, missions, model_files, preference_files
from jaxrl.nn import normalize
from jaxrl.off_policy.imagination import Model
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Dict, Space
from jaxrl.wrappers import FilterObservation


def arguments(
    recipe: dict[str, Any], module: Any, config: Any, env: Environment, params: Any, trained: bool
) -> dict[str, Any]:
    """The arguments of `make` that are read from files: `replay`, and `model` where the algorithm learns with one.

    An algorithm that is `trained` already needs neither of them, unless its policy is for the dataset's rewards or its
    priorities are part of the state. Raises ValueError for an algorithm that does not learn from what the recipe has,
    as it declares (`data.learns.Learns`), and for files that do not fit.
    """
    name = recipe["algo"]
    learns = registry.algo_learns(name)
    if "dataset" not in recipe:
        return {}
    if not _from_data(learns):
        raise ValueError(f"--dataset: {name} does not learn from a dataset alone; {_those(_from_data)} do.")
    if env.num_agents > 1:
        raise ValueError(f"--dataset: {env.id} has several agents; a dataset is of one.")
    if learns.model and "model" not in recipe:
        raise ValueError(
            f"{name} learns from a dataset and a model of it: fit one by `jaxrl dataset model "
            f"{Path(recipe['dataset']['path']).name} --out model.npz`, then say --model model.npz."
        )
    if "model" in recipe and not learns.model:
        able = _those(lambda learns: _from_data(learns) and bool(learns.model))
        raise ValueError(f"--model: {name} learns from a dataset without one; {able} take one.")
    by_goal, told = learns.goals and config.outcome == "goal", "goals" in recipe["dataset"]
    if told and not learns.goals:
        raise ValueError(f"--goals: {name} takes no goals from a dataset here; rvs and others do.")
    if by_goal != told:
        raise ValueError("--config.outcome goal and --goals ENTRY, where goals are reached, go together.")
    prioritised = learns.priorities and config.prioritised
    if trained and not learns.rewards and not prioritised:
        unread = Replay(lambda item: (), None, _gone, normalizer=normalize.init)  # what it was is in the state
        return {"replay": unread, **({"model": _gone} if learns.model else {})}
    if learns.data == "pairs":
        return {"replay": preferences.stored(preferences_of(env, params, recipe["dataset"]), env.action_space(params))}
    gamma = recipe["hyper"].get("gamma", getattr(module.Hyper(), "gamma", 0.99))
    length = module.window(config) if learns.data == "windows" else None
    said = recipe["dataset"]
    dataset = dataset_of(env, params, said)
    replay = replay_of(
        dataset, env.action_space(params), gamma, length, prioritised, said["episodes"], said.get("goals")
    )
    if not learns.model:
        return {"replay": replay}
    own = module.model_of if learns.model == "model_of" else None
    return {"replay": replay, "model": model_of(own, dataset, env, params, **recipe["model"])}


def _from_data(learns: Learns) -> bool:
    """Whether flags say all that it learns from: no demonstrations beside other steps."""
    return learns.data in ("transitions", "windows", "pairs")


def _those(able: Callable[[Learns], bool]) -> str:
    return ", ".join(name for name in registry.list_algos() if able(registry.algo_learns(name)))


def _gone(*args: Any) -> Any:
    raise AssertionError("a trained algorithm reads no dataset and asks no model")


def _require_there(part: str, path: str) -> None:
    if not Path(path).exists():
        flag = f"`--{part} FILE` of resume, eval and others says where it is."
        raise FileNotFoundError(f"{path}, which the run learned from, is not there: {flag}")


def without_entries(env: Environment, params: Any, drop: Sequence[str]) -> Environment:
    """`env` without the entries of its observations that are left out of its dataset, as `obs.mission`."""
    space = env.observation_space(params)
    has = tuple(space.spaces) if isinstance(space, Dict) else ()
    kept = tuple(name for name in has if f"obs.{name}" not in drop)
    if kept == has:
        return env
    if not kept:
        raise ValueError(f"--drop {' '.join(drop)}: nothing would be left of the observations of {env.id}.")
    return FilterObservation(env, kept)


def dataset_of(env: Environment, params: Any, said: Mapping[str, Any]) -> Dataset:
    """The dataset of `env` that a recipe's `said` is of. Raises ValueError for a file that is not what it was, and for
    one of another environment.
    """
    path, digest, goals = said["path"], said["digest"], said.get("goals")
    _require_there("dataset", path)
    dataset, about = dataset_files.read_any(path, said.get("drop", ()), said.get("max_episode_steps"))
    if dataset_parts.digest(dataset) != digest:
        raise ValueError(f"{path} has changed since the run began: its hash was {digest}.")
    if goals is not None and not isinstance(dataset.obs, dict):
        dataset = datasets.with_goal(dataset, goals)
    dataset_parts.check_fits(dataset, about, env, params)
    return missions.completed(dataset, env, params)


def preferences_of(env: Environment, params: Any, said: Mapping[str, Any]) -> preferences.Preferences:
    """The preferences in `env` that a recipe's `said` is of. Raises ValueError as `dataset_of` does."""
    _require_there("dataset", said["path"])
    found, about = preference_files.read(said["path"])
    if preference_files.digest(found) != said["digest"]:
        raise ValueError(f"{said['path']} has changed since the run began: its hash was {said['digest']}.")
    preference_files.check_fits(found, about, env, params)
    return found


def replay_of(
    dataset: Dataset, space: Space, gamma: float, length: int | None, priorities: bool, episodes: str, goals: str | None
) -> Replay:
    """A dataset as the argument `replay` of `make`: `datasets.stored` or `prioritised`, with a length `windows`.
    `episodes` and `goals` are the flags' words; goals are any later ones of the episode, alike.

    Raises ValueError for a word of another kind.
    """
    weights = weights_of(dataset, episodes)
    if priorities:
        if weights is not None:
            raise ValueError(f"--episodes {episodes}: with config.prioritised steps are drawn by their priorities.")
        return datasets.prioritised(dataset, space, gamma)
    if length is None:
        return datasets.stored(dataset, space, weights, gamma)
    if goals is None:
        return datasets.windows(dataset, space, length, weights)
    names = sorted(dataset.obs) if isinstance(dataset.obs, dict) else []
    if goals not in names or "goal" not in names or goals == "goal":
        raise ValueError(
            f"--goals {goals}: observations have {', '.join(names) or 'no entries'}; it is one beside goal."
        )
    return datasets.windows(dataset, space, length, weights, Hindsight(lambda obs: obs[goals]))


def model_of(
    own: Callable[..., Model] | None, dataset: Dataset, env: Environment, params: Any, path: str, digest: str
) -> Model:
    """The model of a file, with the task's own ends, made by the algorithm's `own` function or `dynamics.predictor`.

    Raises ValueError for a file that is not what it was, a model of another size, and ends that are not known.
    """
    _require_there("model", path)
    ensemble, about = model_files.read(path)
    if model_files.digest(ensemble) != digest:
        raise ValueError(f"{path} has changed since the run began: its hash was {digest}.")
    model_files.check_fits(ensemble, about, env, params)
    terminated = ends_of(env, params, dataset)
    if own is not None:
        return own(ensemble, dataset, terminated)
    return dynamics.predictor(ensemble, terminated=terminated)


def ends_of(env: Environment, params: Any, dataset: Dataset) -> Ends | None:
    """The task's own ends for a model; None where neither the task nor the data knows any.

    Raises ValueError for a dataset with ends that the environment does not tell by observations, or not with `params`.
    """

    def terminated(obs: Array, action: Array, next_obs: Array) -> Array:
        return jax.vmap(lambda obs: env.terminal(obs, params))(next_obs)

    known = datasets.with_successors(dataset)
    there = np.asarray(known.terminated)
    try:
        here = np.asarray(jax.jit(terminated)(known.obs, known.action, known.next_obs))
    except NotImplementedError as error:
        if ends := int(np.sum(dataset.terminated)):
            raise ValueError(
                f"--model: the task ends in {ends} of the dataset's {dataset.size} steps, which no model learns, "
                f"and {env.id} does not say which observations end it (it has no `terminal`)."
            ) from error
        return None
    if (wrong := int((here != there).sum())) > 0.01 * max(here.sum(), there.sum()):
        raise ValueError(
            f"--model: the dataset and {env.id} disagree about {wrong} ends, of {there.sum()} in the dataset and "
            f"{here.sum()} by its observations: was it made with other --params?"
        )
    return terminated


def weights_of(dataset: Any, episodes: str) -> Any:
    """Weights of its episodes by the word of `--episodes`. Raises ValueError for another word."""
    kind, _, share = episodes.partition(":")
    if episodes == "all":
        return None
    if episodes == "return":
        return datasets.return_weights(dataset)
    if episodes == "advantage":
        return datasets.advantage_weights(dataset)
    try:
        if kind == "best":
            return datasets.best_weights(dataset, float(share))
    except ValueError as error:
        raise ValueError(f"--episodes {episodes}: the share must be above 0 and at most 1.") from error
    raise ValueError(f"--episodes {episodes}: it is all, return, advantage or best:SHARE, as in best:0.1.")


def hashable(values: dict[str, Any]) -> dict[str, Any]:
    """Static settings as they were before JSON made lists of their tuples."""

    def whole(value: Any) -> Any:
        return tuple(map(whole, value)) if isinstance(value, list) else value

    return {name: whole(value) for name, value in values.items()}


def without_dropped(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe without settings that its algorithm has no more, where they did nothing."""
    dropped = registry.DROPPED_SETTINGS.get(recipe["algo"], {})

    def kept(part: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: x for name, x in values.items() if name not in (gone := dropped[part]) or x != gone[name]}

    return {**recipe, **{part: kept(part, recipe[part]) for part in dropped}}


def settings_of(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The static settings of a recipe's environment, by their names of today."""
    return {registry.MOVED_SETTINGS.get(name, name): x for name, x in hashable(recipe["env_settings"]).items()}
