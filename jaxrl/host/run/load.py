"""A run folder read back: its algorithm, its state and its policy."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxrl.algorithm import Algorithm
from jaxrl.environment import Environment
from jaxrl.host.run.config_file import said_of
from jaxrl.host.run.recipe import build, read_recipe, task_params
from jaxrl.host.run.run_folder import RunFolder, RunFolderError
from jaxrl.host.run.training_program import Program
from jaxrl.host.run.trust import trusting


class Run(NamedTuple):
    """A run at one of its checkpoints."""

    algo: Algorithm
    state: Any  # as `algo.update` takes it
    policy: Any  # as `algo.act` and `evaluate` take it
    env: Environment  # of the run's evaluations: the task also where a curriculum trained on levels of it
    env_params: Any  # of `env`
    updates: int  # done
    num_seeds: int | None  # None: a single run
    folder: Path


def load(
    folder: str | Path,
    algo: Algorithm | None = None,
    *,
    hyper: Any = None,
    env_params: Any = None,
    seed: int | None = 0,
    update: int | str | None = None,
    dataset: str | Path | None = None,
    model: str | Path | None = None,
    trust: bool = False,
) -> Run:
    """What `fit` or `jaxrl train` wrote to `folder`, ready to act, to evaluate or to train on.

        run = jaxrl.load("runs/x")
        stats = jaxrl.evaluate(run.algo, run.policy, key, run.env, run.env_params)
        state, metrics = run.algo.update(run.state)

    Args:
        algo, hyper, env_params: what `fit` was given. Needed only for a run that names and numbers do not describe, as
            one of an environment that was wrapped: `no_recipe` in its config.json says so.
        seed: which of the run's seeds; None for all, along the leading axis that `fit` gave them.
        update: of which checkpoint: "best" for that of the best evaluation (`fit(keep_best=True)`), None for the newest
            whole one.
        dataset, model: the files that it learned from, wherever they are now. Without `dataset`, an algorithm that
            learned from one can act and cannot train on.
        trust: run also Python that the folder names and that neither is jaxrl's nor was imported by your program.

    Raises:
        RunFolderError: no run is there, or one that needs `algo`; the message says which runs are near.
        CheckpointError: there is no whole checkpoint, or none at `update`, or it is not of `algo`.
        ValueError: the run has no such seed, or learned from no such file.
    """
    path = Path(folder)
    num_seeds = _config_of(path)["num_seeds"]
    if seed is not None and not 0 <= seed < (num_seeds or 1):
        raise ValueError(f"seed={seed}: {path} has seeds 0 to {(num_seeds or 1) - 1}.")
    if algo is not None:
        found, env, judged_on = algo, algo.venv.env, env_params
    else:
        moved = {name: None if file is None else Path(file) for name, file in (("dataset", dataset), ("model", model))}
        with trusting(trust):
            recipe = _recipe(path, moved)
        with said_of(RunFolder(path).config):
            built = build(recipe, trained=dataset is None)
            found, hyper, env, env_params = built
            judged_on = task_params(recipe, built)
    program = Program(found, jax.random.key(0), num_seeds, hyper, env_params)
    updates, (state, _) = RunFolder(path).restore(program, update)
    if num_seeds is not None and seed is not None:
        state = jax.tree.map(lambda x: x[seed], state)
    policy = jax.vmap(found.policy)(state) if num_seeds is not None and seed is None else found.policy(state)
    judged_on = env.default_params if judged_on is None else judged_on
    return Run(found, state, policy, env, judged_on, updates, num_seeds, path)


def _recipe(path: Path, moved: dict[str, Path | None]) -> dict[str, Any]:
    try:
        return read_recipe(path, **moved)
    except RunFolderError as error:
        raise RunFolderError(f"{error} Give load its algorithm: jaxrl.load({str(path)!r}, algo).") from error


def _config_of(path: Path) -> dict[str, Any]:
    """The config of a run. Raises RunFolderError for what is no run's folder, naming runs beside or below it."""
    if str(path).startswith("zoo:"):
        name = str(path).removeprefix("zoo:")
        raise RunFolderError(f"{path} is a policy of the zoo: jaxrl.zoo.load({name!r}) reads it.")
    if (path / "config.json").exists():
        config = RunFolder(path).read_config()
        if "num_seeds" not in config:
            raise RunFolderError(f"{path / 'config.json'} is not of a run of jaxrl.")
        return config
    RunFolder(path).refuse_sweep()
    found = [str(file.parent) for base in (path, path.parent) for file in sorted(base.glob("*/config.json"))]
    near = difflib.get_close_matches(str(path), found, n=3, cutoff=0.0)
    hint = f" Runs near it: {', '.join(near)}." if near else " `fit(..., out=FOLDER)` or `jaxrl train` makes one."
    what = "holds no run (it has no config.json)" if path.exists() else "is not there"
    raise RunFolderError(f"{path} {what}.{hint}")
