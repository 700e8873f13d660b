"""From words to a recipe (JSON, kept in the run folder), and what tasks without an end need."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from jaxrl.host.cli.curricula import curriculum_flags
from jaxrl.host.cli.flags import UsageError, flat, flattened, multiplied, named, numbers, parse, settings_of


@dataclasses.dataclass
class ReadFlags:
    """How a dataset's file is read."""

    drop: tuple[str, ...] = ()
    """Entries of its observations to leave out, as obs.mission; in a training the task shows none of them, either."""
    max_episode_steps: int | None = None
    """Of D4RL's first files, which have no `timeouts`: the task's time limit, after which an episode was cut."""

    def read(self, file: Path) -> tuple[Any, dict[str, Any]]:
        """`(dataset, about)` of a file."""
        from jaxrl.host.data import dataset_files

        return dataset_files.read_any(file, self.drop, self.max_episode_steps)


@dataclasses.dataclass(kw_only=True)
class WrapFlags:
    """What commands take that train."""

    wrap: tuple[str, ...] = ()
    """Wrappers around the task, the first one innermost: PreviousActionReward, FrameStack:length=4,
    ActionHistory:length=2, FlattenObservation, ClipAction. A family's recipe may have some, and so may a dataset."""


@dataclasses.dataclass
class DataFlags(ReadFlags):
    """What commands take that train on a dataset."""

    dataset: Path | None = None
    """Learn from this file or folder, not by acting: jaxrl's npz, OGBench's, D4RL's or Minari's; steps are gradient
    steps. Of cpl, oppo and p_iql a file of `jaxrl dataset preferences`."""
    episodes: str = "all"
    """Which of it: all alike, the best:SHARE (as best:0.1) by their returns, or the better ones more often: return or
    advantage (RW and AW of Hong et al. 2023)."""
    goals: str | None = None
    """With --config.outcome goal: goals are what this entry of later observations was, as position of PointMaze's;
    a file whose observations are one array, as OGBench's, is read as this entry."""
    model: Path | None = None
    """Of those who imagine, as mopo: a model of the dataset's steps, by `jaxrl dataset model`. Where the task ends is
    not learned but the environment's to say; where the data has ends and it does not say, that is an error."""

    def parts(self, recipe: dict[str, Any], env: Any, params: Any) -> dict[str, Any]:
        """What they add to the recipe; nothing without a dataset. One recorded in another task is said on stderr."""
        if self.dataset is None:
            if self.episodes != "all":
                raise UsageError(f"--episodes {self.episodes}: of which --dataset?")
            for flag in ("goals", "model", "drop", "max_episode_steps"):
                if word := getattr(self, flag):
                    word = " ".join(word) if isinstance(word, tuple) else word
                    raise UsageError(f"--{flag.replace('_', '-')} {word}: of which --dataset?")
            return {}
        from jaxrl import registry
        from jaxrl.host.data import dataset_parts, model_files
        from jaxrl.host.run.recipe_inputs import without_entries

        if registry.algo_learns(recipe["algo"]).data == "pairs":
            return self.pairs(recipe, env, params)
        dataset, about = self.read(self.dataset)
        env = without_entries(env, params, self.drop)
        digest = dataset_parts.digest(dataset)
        differences = elsewhere(about, env.id, recipe["params"])
        if differences and dataset_parts.fits(dataset, about, env, params):  # else it is an error, where it is read
            print(f"{self.dataset} was recorded in another task: {', '.join(differences)}", file=sys.stderr)
        # What random's return and the best one are, of the task that it was recorded in and its time limit.
        reference = about.get("reference") if not differences and "max_steps" in about else None
        reference = reference and {**reference, "max_steps": about["max_steps"]}
        more = {"goals": self.goals, "reference": reference, "drop": list(self.drop)}
        more |= {"max_episode_steps": self.max_episode_steps}
        more = {name: value for name, value in more.items() if value}
        of_data = {"path": str(self.dataset.absolute()), "episodes": self.episodes, "digest": digest, **more}
        if self.model is None:
            return {"dataset": of_data}
        ensemble, about = model_files.read(self.model)
        if about.get("dataset", {}).get("digest") != digest:
            print(f"{self.model} was fitted to another dataset than {self.dataset}", file=sys.stderr)
        return {
            "dataset": of_data,
            "model": {"path": str(self.model.absolute()), "digest": model_files.digest(ensemble)},
        }

    def pairs(self, recipe: dict[str, Any], env: Any, params: Any) -> dict[str, Any]:
        """What a file of preferences adds to the recipe. Raises UsageError for flags of other datasets."""
        from jaxrl.host.data import dataset_parts, preference_files
        from jaxrl.host.run.recipe_inputs import without_entries

        unread = {name: getattr(self, name) for name in ("goals", "model", "drop", "max_episode_steps")}
        unread |= {"episodes": None if self.episodes == "all" else self.episodes}
        for name, value in unread.items():
            if value:
                raise UsageError(
                    f"--{name.replace('_', '-')}: {recipe['algo']} learns from preferences, not with this."
                )
        assert self.dataset is not None
        found, about = preference_files.read(self.dataset)
        dropped = about.get("dropped", [])
        env = without_entries(env, params, dropped)
        differences = elsewhere(about, env.id, recipe["params"])
        if differences and dataset_parts.fits(found.steps, about, env, params):
            print(f"{self.dataset} was recorded in another task: {', '.join(differences)}", file=sys.stderr)
        said = {"path": str(self.dataset.absolute()), "episodes": "all", "digest": preference_files.digest(found)}
        return {"dataset": {**said, **({"drop": dropped} if dropped else {})}}


@dataclasses.dataclass(kw_only=True)
class MovedFlags:
    """What commands take that need, of some runs, what they learned from."""

    dataset: Path | None = None
    """Of a run on a dataset, where its file or folder is now; what is in it must be the same."""


@dataclasses.dataclass(kw_only=True)
class AtFlags:
    """What commands take that read a run's checkpoint."""

    at: str | None = None
    """Which checkpoint: its update, or best, that of the best evaluation (`train --keep-best`). Default: the newest."""


def at_of(word: str | None) -> int | str | None:
    """`--at` as `load_run` takes it. Raises ValueError for what is neither an update nor best."""
    if word is None or word == "best":
        return word
    if not word.isdecimal():
        raise ValueError(f"--at {word}: it is an update, as 1000, or best.")
    return int(word)


def elsewhere(about: dict[str, Any], env_id: str, params: dict[str, Any]) -> list[str]:
    """In what the task differs where a dataset was recorded, as far as its file says; the time limit does not count."""
    if (recorded := about.get("env")) and recorded != env_id:
        return [f"{recorded}, not {env_id}"]
    numbers = about.get("params") or {}
    return [
        f"{name} {numbers[name]}, not {value}"
        for name, value in params.items()
        if name in numbers and name != "max_steps" and not _alike(numbers[name], value)
    ]


def _alike(a: Any, b: Any) -> bool:
    try:
        return np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-5)  # what was written may be rounded
    except TypeError:
        return a == b


def experiment(
    command: str,
    args: list[str],
    flags: type,
    several: bool = False,
    config: dict[str, Any] | None = None,
    shown: str | None = None,
) -> tuple[Any, dict[str, Any]]:
    """`(parsed flags, recipe)` of `jaxrl <command> [ALGO] ENV ...`: tuned settings, changed by what the words say.

    With `several`, each number of `Hyper` takes any number of values, and the recipe has tuples of them. `config` are
    static settings that stand in place of tuned ones, `shown` what the algorithm is called in the help.
    """
    from jaxrl import registry
    from jaxrl.wrappers import wrapped

    args, curriculum = named(args, "--curriculum")
    curriculum = None if curriculum is None else registry.lasting(curriculum)
    args = with_algorithm(command, args, curriculum)
    words = bare_words(args)
    if len(words) < 2:
        if {"-h", "--help"} & set(args):
            help_without_words(command, f"jaxrl {command} ALGO ENV", flags, words)
        near = difflib.get_close_matches(words[0], registry.environments(), 1, 0.8) if words else []
        near = near or [id for id in registry.environments() if words and id.lower() == words[0].lower()]
        hint = f" Did you mean {near[0]}?" if near else " Of an environment of jaxrl's the id is enough."
        raise UsageError(f"{command} needs an algorithm and an environment, in this order.{hint}", f"jaxrl {command}")
    refuse_swapped(command, *words)
    algo_name, env_id = map(registry.lasting, words)
    if algo_name in registry.list_curricula():
        raise ValueError(
            f"{algo_name} chooses a student's levels: jaxrl {command} ppo {env_id} --curriculum {algo_name}"
        )
    module = registry.get_algo(algo_name)
    # What is tuned is tuned for acting.
    untuned = any(word == "--no-tuned" or word.split("=")[0] == "--dataset" for word in args)
    tuned = known = None if untuned else registry.settings(algo_name, env_id)
    env, params = registry.make(env_id, **(tuned.env if tuned else {}))
    begin = named(args, "--from")[1] if hasattr(flags, "from_") else None
    recorded: tuple[str, ...] = ()
    if begin is not None and not begin.startswith("zoo:"):
        env, params, known = settings_from(Path(begin), algo_name, env_id)
    elif (file := dict(itertools.pairwise(words_apart(args))).get("--dataset")) is not None:
        env, params, recorded = as_recorded(Path(file), env_id)
    args, fixed, own = with_own_curriculum(module, args, config or {})
    start = module.Config(**{**(known.config if known else {}), **fixed})
    hyper = module.Hyper(**{**(known.hyper if known else {}), **own})
    wrap = known.wrap if known else recorded
    begun = flags(wrap=wrap) if wrap and issubclass(flags, WrapFlags) else flags()
    cls = dataclasses.make_dataclass(
        command.capitalize(),
        [
            ("run", flat(flags), dataclasses.field(default_factory=lambda: begun)),
            ("config", module.Config, dataclasses.field(default=start)),
            numbers("hyper", hyper, several),
            numbers("params", params),
            settings_of("env", env),
            *([] if curriculum is None else [curriculum_flags(curriculum, several)]),
        ],
        kw_only=True,
    )
    shown = algo_name if shown is None else shown
    title = f"{command.capitalize()} {shown} on {env_id}."
    parsed = parse(cls, args[2:], f"jaxrl {command} {shown} {env_id}", title)
    asked = getattr(parsed.run, "total_steps", None)
    total = (tuned.total_steps if tuned else 500_000) if asked is None else asked
    recipe = {
        "algo": algo_name,
        "env_id": env_id,
        "env_settings": dataclasses.asdict(parsed.env),
        "config": dataclasses.asdict(parsed.config),
        "hyper": flattened(dataclasses.asdict(parsed.hyper)),
        "params": flattened(multiplied(dataclasses.asdict(parsed.params), params)),
        "total_steps": total,
    }
    said = {word.split("=")[0].replace("_", "-") for word in args}
    as_long = tuned.hyper if tuned and tuned is known and tuned.of_family else {}
    for name in ("anneal_steps", "ent_anneal_steps"):
        if name in as_long and f"--hyper.{name.replace('_', '-')}" not in said:
            recipe["hyper"][name] = (total,) if several else total  # a family's schedule is as long as the run
    if wrap := getattr(parsed.run, "wrap", ()):
        recipe["wrap"] = list(wrap)
        env = wrapped(env, wrap)
    if isinstance(parsed.run, DataFlags):
        recipe |= parsed.run.parts(recipe, env, params)
    if curriculum is not None and "dataset" in recipe:
        raise UsageError("--curriculum chooses the levels that are acted in: not with --dataset.")
    if curriculum is not None:
        recipe["curriculum"] = {"name": curriculum, **dataclasses.asdict(parsed.curriculum)}
    return parsed, recipe


def with_algorithm(command: str, args: list[str], curriculum: str | None) -> list[str]:
    """The words, with the algorithm in front where the first is an id and no second one follows: that of the run of
    `--from`, else of record for the id, else, and for a curriculum, its family's, which is said.

    Raises UsageError for a dataset, which no algorithm of record learns from.
    """
    from jaxrl import registry, scores
    from jaxrl.host.run.recipe import read_recipe

    words = bare_words(args)
    if len(words) != 1 or words[0] not in registry.environments():
        return args
    id, flags = words[0], {word.split("=")[0] for word in args if word.startswith("--")}
    if "--dataset" in flags:
        raise UsageError(f"{command} {id} --dataset: name the algorithm, as in jaxrl {command} bc {id}.")
    if (begin := named(args, "--from")[1]) is not None:
        return [read_recipe(Path(begin))["algo"], *args]
    ours = scores.of(id).ours if id in scores.ids() and curriculum is None else None
    algo = registry.family_algo(id) if ours is None else ours.what
    said = "of its family" if ours is None else "of record"
    own = ("--config", "--hyper", "--params", "--env", "--no-tuned", "--total-steps")  # it is another training then
    if ours is not None and not any(flag.startswith(own) for flag in flags):
        said += f", {ours.value:g} after {ours.about['steps']:,} steps"
    print(f"{id}: by {algo}, {said}", file=sys.stderr)
    return [algo, *args]


def bare_words(args: list[str]) -> list[str]:
    """The words, two at most, that stand before the flags."""
    return list(itertools.takewhile(lambda word: not word.startswith("-"), args[:2]))


def help_without_words(command: str, usage: str, flags: type, words: list[str]) -> NoReturn:
    """Print the flags that a command has whatever it trains and wherever, and raise SystemExit: those of the algorithm
    and of the environment are known once both are named.
    """
    first = words[0] if words else "ppo"
    title = (
        "What follows are the flags of every run. An algorithm, an environment and a curriculum add settings of their "
        f"own, --config.*, --hyper.*, --params.*, --env.* and --curriculum.*; `jaxrl {command} {first} CartPole-v1 "
        "--help` shows them."
    )
    parse(flags, ["--help"], usage, title)
    raise SystemExit(0)


def refuse_swapped(command: str, algo: str, env_id: str) -> None:
    """Raise UsageError for an environment in the place of the algorithm: with both words in order, where they are."""
    from jaxrl import registry

    ids = {id.lower(): id for id in registry.environments()}
    algos = registry.list_algos()
    if algo in algos or algo.lower() not in ids:
        return
    learner = env_id if env_id in algos else "ALGO"
    raise UsageError(
        f"{algo} is an environment; the algorithm comes first: jaxrl {command} {learner} {ids[algo.lower()]}",
        f"jaxrl {command}",
    )


def with_own_curriculum(
    module: Any, args: list[str], config: dict[str, Any]
) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """Of an algorithm's file with `CURRICULA`: the words without the choice of one, the static settings with it, and
    the dynamic ones that come with it. Their flags are there only then. Raises UsageError for those of another choice.
    """
    known = getattr(module, "CURRICULA", None)
    if known is None:
        return args, config, {}
    args, choice = named(args, "--config.curriculum")
    config = config if choice is None else {**config, "curriculum": choice}
    own = known.get(module.Config(**config).curriculum)
    flag = "--hyper.curriculum."
    if own is None and (unread := [word for word in args if word.startswith(flag)]):
        having = ", ".join(name for name, settings in known.items() if settings is not None)
        raise UsageError(f"{unread[0]}: choose a curriculum that has settings, by --config.curriculum: {having}.")
    return args, config, {} if own is None else {"curriculum": own}


def settings_from(folder: Path, algo_name: str, env_id: str) -> tuple[Any, Any, Any]:
    """`(env, params, settings)` that a run which begins from the one of `folder` has unless its words say otherwise.

    Of a run of another algorithm, from which this one begins (`start.begins_from`), the settings that both share.
    Raises ValueError for a run of any other algorithm; RunFolderError for none.
    """
    from jaxrl import registry
    from jaxrl.host.run.recipe import placed, read_recipe
    from jaxrl.host.run.recipe_inputs import hashable, settings_of
    from jaxrl.host.run.start import begins_from

    recipe, known = read_recipe(folder), begins_from(algo_name)
    config, hyper = recipe["config"], {name: x for name, x in recipe["hyper"].items() if "." not in name}
    if recipe["algo"] in known:
        config, hyper = {name: config[name] for name in known[recipe["algo"]]}, {}
    elif recipe["algo"] != algo_name:
        hint = "".join(f", or of {name}, from which {algo_name} begins" for name in known)
        raise ValueError(
            f"--from {folder}: it is a run of {recipe['algo']}, and a state goes on with its algorithm{hint}."
        )
    alike, static = recipe["env_id"] == env_id, settings_of(recipe)
    if not alike:  # another id of the same class has what the run changed, such as an encoding
        before, (env, _) = registry.make(recipe["env_id"])[0], registry.make(env_id)
        static = {n: x for n, x in static.items() if type(env) is type(before) and getattr(before, n) != x}
    env, params = registry.make(env_id, **static)
    settings = registry.Tuned(0, hashable(config), hyper, wrap=tuple(recipe.get("wrap", ())))
    return env, placed(params, recipe["params"]) if alike else params, settings


def words_apart(args: list[str]) -> list[str]:
    """The words, `--flag=value` as two."""
    return [part for word in args for part in (word.split("=", 1) if word.startswith("--") else [word])]


def as_recorded(file: Path, env_id: str) -> tuple[Any, Any, tuple[str, ...]]:
    """`(env, params, wrappers)` to train on a dataset's file, unless the words say otherwise: the static settings and
    wrappers that it was recorded with, where it is one of jaxrl's and of this environment.
    """
    from jaxrl import registry
    from jaxrl.host.data import recorded_task

    about = recorded_task.about_of_file(file)
    settings, wrap = recorded_task.words_of(about) if about.get("env") == env_id else ({}, ())
    return *registry.make(env_id, **settings), wrap


ENDLESS = 1000
"""Steps of an evaluation's episode where neither the task nor the user limits it."""


def episode_cap(params: Any, given: int | None) -> int | None:
    """`--eval-max-steps`, or for a task without a time limit `ENDLESS`, which is said."""
    from jaxrl.environment import NO_LIMIT

    if given is None and np.max(np.asarray(params.max_steps)) == NO_LIMIT:
        print(
            f"the task has no time limit: episodes of evaluations are cut after {ENDLESS} steps (--eval-max-steps, or "
            "--params.max-steps for training, too)",
            file=sys.stderr,
        )
        return ENDLESS
    return given


def folder_name(recipe: dict[str, Any]) -> str:
    """`<algo>-<env>`, with --rule `<rule>-<env>`; of what is yours the last part of its name."""
    import re

    rule = recipe["config"].get("rule") if recipe["algo"] == "jaxrl.algos.meta.taught" else None
    names = [re.sub(r"\.py$", "", str(name)) for name in (rule and Path(rule).stem or recipe["algo"], recipe["env_id"])]
    return "-".join(re.split(r"[:/]", name)[-1] for name in names)
