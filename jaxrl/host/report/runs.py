"""What a report reads of run folders: one `Run` for each, or for each setting of a folder of a sweep."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.host.run.config_file import checked, checked_recipe
from jaxrl.host.run.files import read_json
from jaxrl.host.run.recipe_inputs import settings_of
from jaxrl.host.run.run_folder import RunFolder, RunFolderError, read_rows, tree_values
from jaxrl.host.run.trust import may_run

REQUIRED = ("algorithm", "env", "config", "hyper", "total_steps", "versions")
"""Fields of config.json without which it is of another schema than docs/run_folder.md's."""


MOST_SEEDS = 10**7
"""Of a run that is read: beyond, a number in a file is no count of what was trained."""


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """Some seeds of a run folder, all of the same settings."""

    folder: Path
    name: str
    config: Mapping[str, Any]
    summary: Mapping[str, Any] | None
    rows: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Mapping[str, Any]]
    seeds: Sequence[int]
    """Which of the folder's."""
    setting: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What sets it apart from the others of its folder."""

    @property
    def env(self) -> str:
        return str(self.config["env"])

    @property
    def recipe(self) -> Mapping[str, Any] | None:
        """What the run was made of by name, which of a sweep's runs the sweep keeps."""
        return self.config.get("recipe") or (swept(self.folder) or {}).get("recipe")

    def params(self) -> dict[str, Any] | None:
        """Parameters of the task by their dotted names, or None where they are not known."""
        from jaxrl import registry

        if self.recipe is None:
            return None
        try:
            if not may_run(self.recipe):
                raise ImportError("it names Python of somebody else")
            usual = tree_values(registry.make(self.recipe["env_id"], **settings_of(self.recipe))[1])
        except (ImportError, OSError, ValueError, TypeError, AttributeError):  # a module that is not here
            usual = {}
        return {name: _rounded(value) for name, value in {**usual, **self.recipe["params"]}.items()}

    @property
    def files(self) -> RunFolder:
        return RunFolder(self.folder)

    def values(self, rows: Sequence[Mapping[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
        """`(steps (R,), values (R, seeds))` of the rows that have it, NaN where nothing was logged."""
        having = [row for row in rows if name in row]
        try:
            table = [np.atleast_1d(np.array(row[name], float))[list(self.seeds)] for row in having]
            steps = np.array([row["step"] for row in having], float)
        except (TypeError, ValueError, IndexError) as error:
            raise RunFolderError(f"{self.folder}: values of {name} in its rows are no numbers ({error}).") from error
        return steps, np.stack(table) if table else np.zeros((0, len(self.seeds)))

    @property
    def diverged(self) -> dict[int, str]:
        """What happened to the seeds that diverged, by seed."""
        found = {int(seed): str(what) for seed, what in ((self.summary or {}).get("diverged") or {}).items()}
        return {seed: what for seed, what in found.items() if seed in self.seeds}

    @property
    def source(self) -> str:
        """What the final figures are of: `levels` that were held out, `evaluation`, `training`, or nothing."""
        if self.evaluations:
            return "levels" if "level_return" in self.evaluations[-1] else "evaluation"
        if self.chooses_levels:
            return ""
        return "training" if np.isfinite(self.values(self.rows, "episode_return")[1]).any() else ""

    @property
    def chooses_levels(self) -> bool:
        """Whether a curriculum chose what it trained on. Returns on its own levels then say how hard these were, and
        nothing that could be compared with another run's.
        """
        recipe = self.recipe if isinstance(self.recipe, Mapping) else {}
        return "+" in str(self.config["algorithm"]) or bool(recipe.get("curriculum"))

    def final(self) -> np.ndarray:
        """A return a seed: on held-out levels, else of the last evaluation, else of the last row in which an episode
        ended. NaN for a seed that diverged."""
        if not self.source:
            return np.full(len(self.seeds), np.nan)
        name = {"levels": "level_return", "evaluation": "return", "training": "episode_return"}[self.source]
        return self._last(name)

    def final_length(self) -> np.ndarray | None:
        """The mean length of the episodes whose return `final` is; None of a run whose evaluations did not log it."""
        name = "length" if self.evaluations else "episode_length"
        return self._last(name) if any(name in row for row in self.evaluations or self.rows) else None

    def _last(self, name: str) -> np.ndarray:
        values = self.values(self.evaluations or self.rows, name)[1]
        last = values[-1] if self.evaluations else values[np.isfinite(values).any(1)][-1]
        return np.where([seed in self.diverged for seed in self.seeds], np.nan, last)

    def normalized(self) -> np.ndarray | None:
        """`final` as shares of the way from random's return to the top of record; None where none is of this task."""
        name = {"evaluation": "return", "training": "episode_return"}.get(self.source)
        try:
            return None if name is None else normalized_returns(self.folder, name, self.final(), self.final_length())
        except RunFolderError:
            return None

    @property
    def steps(self) -> int:
        """A seed's, as far as it was logged."""
        return int(max((row["step"] for row in (*self.rows[-1:], *self.evaluations[-1:])), default=0))

    def notes(self) -> list[str]:
        """What a reader has to know of it."""
        found, count = [], len(self.seeds)
        total = int(self.config["total_steps"])
        if not self.rows and not self.evaluations:
            found.append("Nothing was logged yet.")
        elif not self.source and self.chooses_levels:
            found.append(
                "No evaluations: a curriculum chose its levels, and returns on these are not compared. Train with "
                "--eval-every, or --eval-levels for levels that are held out."
            )
        elif not self.source:
            found.append("No evaluation, and no episode ended: there is no return.")
        elif self.source == "training":
            found.append("No evaluations: its figures are of the last training episodes, in which a policy explores.")
        for seed, what in self.diverged.items():
            found.append(f"Seed {seed} of {count} diverged and is left out of the statistics: {what}.")
        if self.source and not np.isfinite(self.final()).any():
            found.append("No seed is left of which to say anything.")
        elif count == 1:
            found.append("One seed: no interval can be given.")
        if self.summary is None:
            found.append(f"It has no summary: killed, or still running, after {self.steps:,} of {total:,} steps.")
        elif self.summary.get("interrupted"):
            found.append(f"Interrupted after {self.steps:,} of {total:,} steps.")
        here, then = version("jaxrl"), self.config["versions"].get("jaxrl")
        if then != here:
            found.append(f"Written by jaxrl {then}; this report is by {here}.")
        if self.config.get("no_recipe"):
            found.append(f"Made by a program in Python: {self.config['no_recipe']}")
        return found


def read_runs(folders: Sequence[str | Path]) -> list[Run]:
    """The runs of folders, named apart.

    The folder of a sweep stands for the run folders in it. Raises RunFolderError, in one sentence, for what is no run
    folder, a sweep in which nothing was run, one of another version of the schema, and rows that are none; ValueError
    for no folder, or one that is given twice.
    """
    if not folders:
        raise ValueError("a report needs at least one run folder.")
    paths = [path for folder in folders for path in _of_sweep(Path(folder))]
    real = [path.resolve() for path in paths]
    for path, where in zip(paths, real, strict=True):
        if real.count(where) > 1:
            raise ValueError(f"{path} is given twice.")
    return [run for path, name in zip(paths, _names(real), strict=True) for run in _read(path, name)]


def _of_sweep(folder: Path) -> list[Path]:
    """The run folders in the folder of a sweep; of another one itself."""
    if (folder / "config.json").exists() or not (folder / "plan.json").exists():
        return [folder]
    return sorted(path for path in folder.glob("runs-*") if (path / "config.json").exists()) or [folder]


def _rounded(value: Any) -> Any:
    """A float32 as it was said."""
    if isinstance(value, list | tuple):
        return [_rounded(x) for x in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def swept(folder: Path) -> dict[str, Any] | None:
    """What `jaxrl sweep` says of the runs of which those in `folder` are some."""
    try:
        file = folder.resolve().parent / "sweep.json"
        kept = None if file.is_symlink() else read_json(file)
    except (OSError, ValueError):
        return None
    if not isinstance(kept, dict) or not isinstance(kept.get("recipe"), dict) or not kept.get("points"):
        return None
    needed = ("algo", "env_id", "env_settings", "config", "hyper", "params", "total_steps")
    return {**kept, "recipe": checked_recipe(kept["recipe"], file, needed)}


def normalized_returns(
    folder: str | Path, name: str, values: np.ndarray, lengths: np.ndarray | None = None
) -> np.ndarray:
    """A run's returns as shares of the way from random's to the top of record (`jaxrl.scores`).

    Args:
        name: of the metric that the values are of.
        lengths: of the same episodes.

    Raises RunFolderError for returns of another task than that of an id's record, and for an id without a top.
    """
    from jaxrl import registry, scores
    from jaxrl.host.run.recipe import placed

    if name not in ("episode_return", "return", "return_of_evaluations"):
        raise RunFolderError(f"{folder}: of {name} there is no score of record, only of episode_return and return.")
    config = checked(RunFolder(folder).read_config(), RunFolder(folder).config, whole=False)
    recipe = config.get("recipe") or (swept(Path(folder)) or {}).get("recipe")
    if recipe is None or "made" in recipe:
        raise RunFolderError(f"{folder}: its task was made in Python, and scores of record are of ids.")
    if recipe.get("curriculum"):
        raise RunFolderError(f"{folder}: its returns are on levels that a curriculum chose, not those of record.")
    id = recipe["env_id"]
    try:
        # Before anything of the recipe's is imported: it is an id of jaxrl's.
        shares = scores.normalized(id, values, lengths)
    except ValueError as error:
        raise RunFolderError(f"{folder}: {error}") from None
    try:
        env, params = registry.make(id, **settings_of(recipe))
        record = scores.record_of(env, placed(params, recipe["params"]))
    except (ImportError, TypeError, ValueError) as error:  # settings and params of another version
        raise RunFolderError(f"{folder}: {error}") from None
    if record is None:
        raise RunFolderError(f"{folder}: settings or params are not those of {id}, of which the scores are.")
    cap, longest = recipe.get("run", {}).get("eval_max_steps"), int(np.max(np.asarray(params.max_steps)))
    if name != "episode_return" and min(longest, cap or longest) != record.cap:
        raise RunFolderError(
            f"{folder}: its evaluations were cut after {cap} steps, those of record after {record.cap}."
        )
    return shares


def _read(path: Path, name: str) -> list[Run]:
    folder = RunFolder(path)
    config = checked(folder.read_config(), folder.config)
    if missing := [field for field in REQUIRED if field not in config]:
        by = f", written by jaxrl {config['versions'].get('jaxrl')}" if isinstance(config.get("versions"), dict) else ""
        raise RunFolderError(
            f"{folder.config} has no {', '.join(missing)}: it is of another version of the run folder{by}, which this "
            "one does not read (docs/run_folder.md)."
        )
    rows, evaluations = read_rows(folder.metrics, arrays=True), read_rows(folder.evaluations)
    for file, needed, found in ((folder.metrics, "episode_return", rows), (folder.evaluations, "return", evaluations)):
        if any(needed not in row for row in found):
            raise RunFolderError(
                f"{file} has rows without {needed!r}: it is of another version of the run folder, which this one does "
                "not read (docs/run_folder.md)."
            )
    summary = None
    if folder.summary.exists():
        try:
            summary = read_json(folder.summary)
            if not isinstance(summary, dict) or not isinstance(summary.get("diverged") or {}, dict):
                raise ValueError("no object")
            for figure in ("compile_seconds", "run_seconds", "steps_per_second"):
                if not isinstance(summary.get(figure) or 0, int | float):
                    raise ValueError(f"{figure} is no number")
            [int(seed) for seed in summary.get("diverged") or {}]
        except (OSError, ValueError) as error:
            raise RunFolderError(
                f"{folder.summary} is damaged ({error}): remove it, and the run counts as one that was killed."
            ) from error
    count = config.get("num_seeds") or 1
    if not 0 < count <= MOST_SEEDS:
        raise RunFolderError(f"{folder.config}: num_seeds is {count}, and must be from 1 to {MOST_SEEDS}.")
    for row in (*rows, *evaluations):
        for key, value in row.items():
            if (
                key not in ("update", "step", "episodes", "levels")
                and isinstance(value, list | np.ndarray)
                and len(value) != count
            ):
                raise RunFolderError(f"{path}: a row has {len(value)} values of {key}, and the run {count} seeds.")
    shared = (path, name, config, summary, rows, evaluations)
    parts = _settings(config, count)
    if len(parts) == 1:
        return [Run(*shared, range(count))]
    return [
        Run(path, f"{name}: {', '.join(f'{k}={v:.4g}' for k, v in setting.items())}", *shared[2:], seeds, setting)
        for seeds, setting in parts
    ]


def _settings(config: Mapping[str, Any], count: int) -> list[tuple[list[int], dict[str, float]]]:
    """Seeds with the same dynamic settings, and these where they differ between seeds."""
    lists = {k: v for k, v in config["hyper"].items() if isinstance(v, list) and len(v) == count and np.ndim(v) == 1}
    varied = {name: values for name, values in lists.items() if len(set(values)) > 1}
    found: dict[tuple, list[int]] = {}
    for seed in range(count):
        found.setdefault(tuple(values[seed] for values in varied.values()), []).append(seed)
    return [(seeds, dict(zip(varied, point, strict=True))) for point, seeds in found.items()]


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    for depth in range(1, max(len(path.parts) for path in paths)):
        names = [os.sep.join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
