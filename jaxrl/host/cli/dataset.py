"""`jaxrl dataset make`, `info`, `plot`, `convert`, `model`: datasets by recipe, what is known of one, its own npz.

`preferences` and `relabel` are in `preference_command.py`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

from jaxrl.host.cli import preference_command
from jaxrl.host.cli.experiment import ENDLESS, ReadFlags
from jaxrl.host.cli.flags import (
    UsageError,
    at_least_one,
    flat,
    flattened,
    key_of,
    numbers,
    parse,
    positional,
    sizes_said,
)

HELP = """usage: jaxrl dataset make ENV      record a dataset by a recipe
       jaxrl dataset info FILE     what is known of one
       jaxrl dataset plot FILE     its returns and observations as a picture
       jaxrl dataset convert FILE  write one as jaxrl's own npz, with or without entries of its observations
       jaxrl dataset model FILE    fit a model of its steps, which mopo, morel, combo and ravl imagine with
       jaxrl dataset preferences RUN_OR_FILE  which of two segments is better, for cpl, oppo and p_iql
       jaxrl dataset relabel FILE  of preferences: their steps with rewards learned from them

`jaxrl dataset make --help` lists recipes and flags. FILE is jaxrl's own npz, OGBench's, D4RL's or
robomimic's HDF5 or a folder of Minari's.

    jaxrl dataset make CartPole-v1 --recipe medium --steps 100000"""


def dataset_command(args: list[str]) -> int:
    if not args:
        raise UsageError(f"dataset needs one of {', '.join(ACTIONS)}, as in jaxrl dataset make CartPole-v1.")
    if args[0] in ("-h", "--help"):
        print(HELP)
        return 0
    if args[0] not in ACTIONS:
        raise UsageError(f"dataset {args[0]!r}: it is one of {', '.join(ACTIONS)}.")
    return ACTIONS[args[0]](args[1:])


def make(args: list[str]) -> int:
    @dataclasses.dataclass
    class Make:
        env: Annotated[str, positional()]
        """Id of an environment."""
        recipe: str = "random"
        """random, medium, medium-replay, expert, mixed:P (a share P of the steps by expert, as mixed:0.05), scripted
        (the controller of a quadcopter or a motor), navigate or stitch (of a point maze)."""
        steps: int = 100_000
        seed: int = 0
        algo: str = "auto"
        """Whose policies act, of the recipes from medium to mixed:P. Default: the first of ppo, sac, dqn and the others
        that is tuned for the task; ppo where none is."""
        train_steps: int | None = None
        """Environment steps of its training. Default: that of its settings, else 500000."""
        out: Path | None = None
        """An npz file. Default: <env>-<recipe>.npz."""
        overwrite: bool = False
        """Replace a file that is already there."""

    flags = parse(Make, args, "jaxrl dataset make", "Record a dataset: a recipe says who acts.")
    import jax

    from jaxrl import registry
    from jaxrl.host.data import dataset_recipes, npz_files
    from jaxrl.host.run import ram

    dataset_recipes.parsed(flags.recipe)
    if flags.algo != "auto" and flags.recipe in ("random", "scripted", "navigate", "stitch"):
        raise UsageError(f"--algo {flags.algo}: no learned policy acts in the recipe {flags.recipe}.")
    at_least_one("--steps", flags.steps)
    at_least_one("--train-steps", flags.train_steps)
    words = f"{flags.env}-{flags.recipe}".replace(":", "-").replace("/", "-")
    out = Path(f"{words}.npz") if flags.out is None else flags.out
    npz_files.refuse(out, flags.overwrite, "--overwrite")
    env, params = registry.make(registry.lasting(flags.env))
    params = _ending(params)
    key_of(flags.seed)
    parts = {"the steps": flags.steps * ram.size_of(jax.eval_shape(env.reset, jax.random.key(0), params)[0])}
    ram.require_room(parts, f"--steps {flags.steps}", "make it smaller")
    dataset, about = dataset_recipes.make(
        env, params, flags.recipe, flags.steps, flags.seed, flags.algo, flags.train_steps, say=_say
    )
    from jaxrl.host.data import dataset_files, dataset_parts

    out.parent.mkdir(parents=True, exist_ok=True)
    dataset_files.write(out, dataset, about, overwrite=flags.overwrite)
    for name, value in dataset_parts.summary(dataset, about).items():
        print(name, _text(value))
    print(f"dataset {out}")
    return 0


def info(args: list[str]) -> int:
    @dataclasses.dataclass
    class Info(ReadFlags):
        file: Annotated[Path, positional()] = dataclasses.field(kw_only=True)
        """A dataset."""

    flags = parse(Info, args, "jaxrl dataset info", "What is known of a dataset, a line each: name and value.")
    from jaxrl.host.data import dataset_parts, preference_files

    pairs: dict[str, Any] = {}
    if preference_files.is_one(flags.file):
        found, about = preference_files.read(flags.file)
        dataset, pairs = found.steps, preference_files.summary(found)
    else:
        dataset, about = flags.read(flags.file)
    known = {"digest": dataset_parts.digest(dataset), **pairs, **dataset_parts.summary(dataset, about), **about}
    known |= _normalized(about, known["return_mean"], known["length_mean"])
    known["params"] = known.pop("params", {})  # last, since there may be many
    for name, value in flattened(known).items():
        print(name, _text(value))
    return 0


def _normalized(about: dict[str, Any], mean: float, length: float) -> dict[str, float]:
    """The mean return as a share of the way from random's to the top of record, of a task that has a record."""
    from jaxrl import registry, scores
    from jaxrl.host.cli.experiment import elsewhere
    from jaxrl.host.data.dataset_parts import about_of

    id, params = about.get("env"), about.get("params") or {}
    if id not in scores.ids() or scores.of(id).top is None or not registry.is_available(id):
        return {}
    usual = about_of(*registry.make(id))
    same = not elsewhere(about, id, usual["params"]) and about.get("spaces") == usual["spaces"]
    same = same and params.get("max_steps") == usual["params"]["max_steps"] == scores.of(id).cap
    return {"normalized_mean": float(scores.normalized(id, mean, length))} if same else {}


def plot(args: list[str]) -> int:
    @dataclasses.dataclass
    class Plot(ReadFlags):
        file: Annotated[Path, positional()] = dataclasses.field(kw_only=True)
        """A dataset."""
        out: Path | None = None
        """A picture. Default: beside the file, with its name."""

    flags = parse(Plot, args, "jaxrl dataset plot", "Returns of the episodes, and how often observations were seen.")
    from jaxrl import registry
    from jaxrl.host.plotting import dataset_picture

    dataset, about = flags.read(flags.file)
    id = about.get("env")
    names = (
        registry.make(id)[0].observation_names if id in registry.environments() and registry.is_available(id) else ()
    )
    print(dataset_picture(dataset, about, flags.out or flags.file.with_suffix(".png"), names))
    return 0


def convert(args: list[str]) -> int:
    @dataclasses.dataclass
    class Convert(ReadFlags):
        file: Annotated[Path, positional()] = dataclasses.field(kw_only=True)
        """A dataset of any format."""
        out: Path | None = None
        """An npz file. Default: in this folder, <the dataset's name>.npz."""
        overwrite: bool = False
        """Replace a file that is already there."""

    flags = parse(Convert, args, "jaxrl dataset convert", "Write a dataset as jaxrl's own npz, to train on.")
    from jaxrl.host.data import dataset_files, npz_files

    out = Path(f"{flags.file.absolute().stem}.npz") if flags.out is None else flags.out
    npz_files.refuse(out, flags.overwrite, "--overwrite")
    dataset, about = flags.read(flags.file)
    if flags.drop:
        about = {**about, "dropped": list(flags.drop)}
    if flags.max_episode_steps is not None:
        about = {**about, "max_episode_steps": flags.max_episode_steps}
    print(f"dataset {dataset_files.write(out, dataset, about, overwrite=flags.overwrite)}")
    return 0


def model(args: list[str]) -> int:
    from jaxrl.data import dynamics

    @dataclasses.dataclass
    class ModelFlags(ReadFlags):
        file: Annotated[Path, positional()] = dataclasses.field(kw_only=True)
        """A dataset."""
        out: Path | None = None
        """An npz file. Default: beside the dataset, <its name>-model.npz."""
        seed: int = 0
        overwrite: bool = False
        """Replace a file that is already there."""

    fields = [
        ("run", flat(ModelFlags)),
        ("config", dynamics.Config, dataclasses.field(default=dynamics.Config())),
        numbers("hyper", dynamics.Hyper()),
    ]
    title = (
        "Fit an ensemble of networks that predict next_obs - obs and the reward, for --model of those who imagine. "
        "Where the task ends is not learned: the environment says it when they train."
    )
    parsed = parse(dataclasses.make_dataclass("Model", fields), args, "jaxrl dataset model", title)
    flags: ModelFlags = parsed.run
    import time

    import numpy as np

    from jaxrl.algorithm import check_hyper, check_sizes
    from jaxrl.host.data import dataset_parts, model_files, npz_files
    from jaxrl.host.run import ram
    from jaxrl.host.run.recipe import placed
    from jaxrl.host.run.run_folder import environment_of_run

    out = flags.file.with_name(f"{flags.file.stem}-model.npz") if flags.out is None else flags.out
    npz_files.refuse(out, flags.overwrite, "--overwrite")
    began, config, values = time.perf_counter(), parsed.config, dataclasses.asdict(parsed.hyper)
    key, hyper = key_of(flags.seed), placed(dynamics.Hyper(), values, "hyper.")
    check_hyper(hyper)
    check_sizes(config)
    dataset, about = flags.read(flags.file)
    dynamics.check_vectors(dataset)
    numbers_in, numbers_out = dataset.obs.shape[1] + dataset.action.shape[1], 2 * (dataset.obs.shape[1] + 1)
    layers = (numbers_in, *config.hidden, numbers_out)
    held = max(config.batch_size, round(config.validation_share * len(dataset.reward)))
    parts = {
        "networks, their gradients and Adam's": 20
        * config.num_members
        * sum(map(math.prod, itertools.pairwise(layers))),
        "the layers of a batch or of the held-out steps": 4 * config.num_members * held * max(layers),
    }
    sizes = f"--config.num-members {config.num_members} of --config.hidden {' '.join(map(str, config.hidden))}"
    ram.require_room(parts, sizes, "make them smaller")
    _say(f"fitting {config.num_members} networks in {config.num_checks * config.num_updates} updates")
    with sizes_said():
        ensemble, errors = dynamics.fit(key, dataset, config, hyper)
    seconds = time.perf_counter() - began
    # Of each elite the least error, which is that of the weights that were kept; NaN where it had diverged.
    error = np.sort(np.min(np.where(np.isnan(errors), np.inf, errors), 0))[: parsed.config.num_elites]
    if not np.isfinite(error).all():
        raise ValueError(f"the model diverged, its held-out errors are {error}: try a smaller --hyper.learning-rate.")
    known = {
        "env": about.get("env"),
        "dataset": {"path": str(flags.file), "digest": dataset_parts.digest(dataset)},
        "config": dataclasses.asdict(parsed.config),
        "hyper": values,
        "seed": flags.seed,
        "held_out": error.tolist(),
        "seconds": seconds,
        "made": environment_of_run(),
    }
    model_files.write(out, ensemble, known, flags.overwrite)
    said = " ".join(f"{x:.2g}" for x in error)
    print(f"{parsed.config.num_members} members, elites' held-out error {said} (1: always the mean); {seconds:.1f} s")
    print(f"model {out}")
    return 0


ACTIONS = {
    "make": make,
    "info": info,
    "plot": plot,
    "convert": convert,
    "model": model,
    "preferences": preference_command.make_preferences,
    "relabel": preference_command.relabel,
}


def _ending(params: Any) -> Any:
    """Of a task without a time limit, parameters with one, which is said: its episodes would not end."""
    import jax.numpy as jnp
    import numpy as np

    from jaxrl.environment import NO_LIMIT

    if np.max(np.asarray(params.max_steps)) < NO_LIMIT:
        return params
    _say(f"the task has no time limit: episodes are cut after {ENDLESS} steps")
    return params.replace(max_steps=jnp.int32(ENDLESS))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _text(value: Any, most: int = 100) -> str:
    """In at most so many characters."""
    text = f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."
