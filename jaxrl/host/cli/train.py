"""`jaxrl train` and `jaxrl resume`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from jaxrl.host.cli.evaluate import print_normalized, print_score, summary
from jaxrl.host.cli.experiment import (
    DataFlags,
    MovedFlags,
    WrapFlags,
    at_of,
    bare_words,
    episode_cap,
    experiment,
    folder_name,
    help_without_words,
    refuse_swapped,
)
from jaxrl.host.cli.experts import expert_of
from jaxrl.host.cli.flags import (
    WORDS,
    Act,
    UsageError,
    called,
    greedy_of,
    key_of,
    named,
    parse,
    positional,
    refuse_zoo,
    sizes_said,
)
from jaxrl.host.cli.render import render_run


@dataclasses.dataclass(kw_only=True)
class Devices:
    """Where a run is computed; what comes out does not depend on it."""

    mesh: str | None = None
    """Devices, as seeds=4,envs=2: over which seeds and environments are spread. On a CPU they are made, up to 256; with
    one for each core, several seeds of small networks train faster. Default: one device, or with --distributed seeds
    (of one seed, environments) over all."""
    distributed: bool = False
    """One of several processes that train together; who they are is said below, by JAX_COORDINATOR_ADDRESS,
    JAX_NUM_PROCESSES and JAX_PROCESS_ID, or by the cluster (Slurm, Open MPI, Kubernetes, Cloud TPU)."""
    coordinator: str | None = None
    """HOST:PORT of the first process."""
    processes: int | None = None
    """How many there are."""
    rank: int | None = None
    """Which of them this is, from 0."""


class Begin(NamedTuple):
    """The run that another one begins from."""

    folder: Path
    at: int | str | None
    weights_only: bool

    def arguments(self, num_seeds: int | None, algo: Any) -> dict[str, Any]:
        """`start` and `weights_only` of `fit`; of a run of another number of seeds its first one."""
        from jaxrl.host.run.load import load

        found = load(self.folder, seed=None, update=self.at)
        if found.num_seeds not in (None, num_seeds):
            print(f"all seeds begin from seed 0 of {self.folder}, which has {found.num_seeds}", file=sys.stderr)
            found = load(self.folder, seed=0, update=self.at)
        return {"start": found, "weights_only": self.weights_only}


@dataclasses.dataclass
class TrainFlags(DataFlags, Devices, WrapFlags):
    """What `train` takes beside the algorithm's and the environment's own settings."""

    out: Path | None = None
    """Run folder. Default: runs/<algo>-<env>-<time>."""
    seeds: int = 1
    """Runs trained at once, as one program."""
    memory: str | None = None
    """What may be used, as 8GB: more --seeds than fit are refused, and how many do is said."""
    seed: int = 0
    """Of the first; each seed gives other runs."""
    total_steps: int | None = None
    """Environment steps a seed, of a dataset gradient steps. Default: that of its settings, else 500000."""
    eval_every: int | None = None
    """Steps between evaluations. Default: a tenth of the run; 0: none."""
    eval_episodes: int = 128
    eval_max_steps: int | None = None
    """Cap on an evaluation's episodes. Default: the task's time limit, else 1000."""
    eval_levels: str | None = None
    """Held-out levels that evaluations are on, too, and that are logged one by one: how many the environment or
    --curriculum.ranges draw, as 32, or module:function, (env, params) -> levels with a leading axis."""
    act: Act | None = None
    """How the policy acts. Default: as the algorithm is deployed, which the result says."""
    from_: Annotated[Path | None, called("from")] = None
    """Begin from the state of this run: what it has learned goes on, with these settings and environments, from step 0.
    Settings that no word says are those of that run, not the tuned ones. reinflow also begins from a run of flow_bc."""
    at: str | None = None
    """Of --from, which checkpoint: its update, or best. Default: the newest."""
    weights_only: bool = False
    """Of --from take the networks alone, with the statistics that scale what goes in and out."""
    checkpoint_every: int | None = None
    """Steps between checkpoints. Default: a tenth of the run."""
    keep: int = 3
    """Checkpoints kept."""
    keep_best: bool = False
    """Keep the checkpoint of the best evaluation, too, which `--at best` reads."""
    log: tuple[str, ...] = ()
    """More loggers: tensorboard, wandb or a function of yours, as my/logs.py:log; JSONL and CSV always are."""
    overwrite: bool = False
    """Replace a run that is already in the folder."""
    tuned: bool = True
    """Start from the settings of jaxrl/tuned.toml, or of the family in jaxrl/recipes.toml, not from the defaults."""
    video: bool = False
    """Render a GIF of the trained policy."""
    video_every: int | None = None
    """Updates between GIFs of the policy while it learns, media/policy-<update>.gif; of quality diversity also pictures
    of the archive, media/archive-<update>.png."""
    expert: str | None = None
    """Of dagger, hg_dagger and rlif, who acts beside the learner: zoo:NAME, a run folder (its first seed), scripted (a
    controller that the environment's family has), or FILE.py:FUNCTION from an observation to an action. The run folder
    keeps what it needs of them."""
    progress: bool = True


def train(args: list[str]) -> int:
    from jaxrl import registry

    meet(args)
    args, rule = named(args, "--rule", "`jaxrl zoo` lists those that come with jaxrl")
    if rule is None:
        if any(word.split("=")[0] == "--rule-function" for word in args):
            raise UsageError("--rule-function: of which --rule?")
        parsed, recipe = experiment("train", args, TrainFlags)
    else:
        parsed, recipe = taught(args, rule)
    run: TrainFlags = parsed.run
    if run.distributed and run.out is None:
        raise UsageError("--distributed needs --out, a folder that all processes see.")
    out = run.out or Path("runs") / f"{folder_name(recipe)}-{time.strftime('%Y%m%d-%H%M%S')}"
    elsewhere = {*OF_DEVICES, *(field.name for flags in (DataFlags, WrapFlags) for field in dataclasses.fields(flags))}
    of_start = ("from_", "at", "weights_only")  # the folder's config says of them where the run came from
    of_run = {name: x for name, x in dataclasses.asdict(run).items() if name not in (*elsewhere, *of_start)}
    if of_run["eval_levels"] is not None:
        of_run["eval_levels"] = registry.lasting(of_run["eval_levels"])
    of_run["log"] = [registry.lasting(word) for word in run.log]
    recipe["run"] = {**of_run, "out": str(out), "total_steps": recipe.pop("total_steps")}
    if run.expert is not None:
        recipe["expert"] = expert_of(run.expert, recipe)
    return run_fit(recipe, out, run, resume=False, **_begin(run, recipe))


TAUGHT, RULES = "jaxrl.algos.meta.taught", "jaxrl.algos.rule_learners.gradients"
"""The modules of agents that learn by a rule, and of what reads rules."""


def taught(args: list[str], rule: str) -> tuple[Any, dict[str, Any]]:
    """`(parsed flags, recipe)` of `jaxrl train [ALGO] ENV --rule RULE`: an agent that learns by the rule, with one pass
    over a rollout as a2c or several as ppo. Its life is the run, unless --hyper.lifetime says another.
    """
    from jaxrl import registry

    args, own = named(args, "--rule-function")
    own = None if own is None else registry.lasting(own)
    words = bare_words(args)
    if {"-h", "--help"} & set(args) and len(words) < 2:
        help_without_words("train", "jaxrl train [ALGO] ENV --rule RULE", TrainFlags, words)
    if not words:
        raise UsageError("train --rule needs an environment, as in train CartPole-v1 --rule NAME.")
    if len(words) == 2:
        refuse_swapped("train", *words)
    if any(word.split("=")[0] == "--curriculum" for word in args):
        raise UsageError("--curriculum with --rule: an agent by a rule has no values by which levels are scored.")
    stored = registry.get_algo(RULES).load(rule, own)
    kind = kind_of(stored)
    if len(words) == 1:
        if words[0] in registry.list_algos():
            raise UsageError(f"train {words[0]} --rule needs an environment, as in train CartPole-v1 --rule NAME.")
        words, args = [kind, *words], [kind, *args]
    if words[0] != kind:
        many = "several passes" if kind == "ppo" else "one pass"
        raise UsageError(f"{rule} is a rule for {many} over a rollout: jaxrl train {kind} {words[1]} --rule {rule}")
    rule = str(Path(rule).resolve()) if Path(rule).exists() else rule
    start = registry.get_algo(TAUGHT).Config(rule=rule, rule_function=own or "").in_passes(stored.rule.passes)
    of_rule = ("rule", "rule_function")
    if named(args, "--from")[1] is None:  # else the passes are those of that run
        of_rule += ("num_epochs", "num_minibatches")
    config = {name: getattr(start, name) for name in of_rule}
    parsed, recipe = experiment(
        "train", [TAUGHT, *args[1:]], TrainFlags, config=config, shown=f"{kind} --rule {Path(rule).stem}"
    )
    if not any(word.split("=")[0] == "--hyper.lifetime" for word in args):
        of_update = recipe["config"]["num_envs"] * recipe["config"]["num_steps"]
        recipe["hyper"]["lifetime"] = max(1, -(-recipe["total_steps"] // of_update))
    return parsed, recipe


def kind_of(stored: Any) -> str:
    """The algorithm in whose place a rule stands: ppo for one with several passes over a rollout, else a2c."""
    return "ppo" if stored.rule.passes > 1 else "a2c"


def _begin(run: TrainFlags, recipe: dict[str, Any]) -> dict[str, Begin]:
    """What `--from` and its flags say, as the argument `begin`. Raises UsageError for flags of it without it, and
    ValueError for another value of a setting that an algorithm and the one from which it begins share.
    """
    from jaxrl.host.run.recipe import read_recipe
    from jaxrl.host.run.start import begins_from

    if run.from_ is None:
        for flag, said in (("--at", run.at), ("--weights-only", run.weights_only)):
            if said:
                raise UsageError(f"{flag}: of which run? --from RUN says it.")
        return {}
    refuse_zoo([run.from_], "a policy of the zoo has no state to go on from; a run folder has.")
    of = read_recipe(run.from_)
    for name in begins_from(recipe["algo"]).get(of["algo"], ()):
        one, other = (json.dumps(config[name]) for config in (of["config"], recipe["config"]))
        if one != other:
            raise ValueError(
                f"--config.{name} {other}: {run.from_} has {one}, with which it was learned; leave it out."
            )
    return {"begin": Begin(run.from_, at_of(run.at), run.weights_only)}


def resume(args: list[str]) -> int:
    meet(args)

    @dataclasses.dataclass
    class Resume(Devices, MovedFlags):
        run: Annotated[Path, positional()]
        """Run folder."""
        model: Path | None = None
        """Of a run on a dataset with a model, where the model's file is now; what is in it must be the same."""
        total_steps: int | None = None
        """Make the run longer, to so many steps a seed: as one asked for so many at once, with the same settings.
        --hyper.anneal-steps is one of these: where the learning rate was to end, it stays."""
        progress: bool = True

    flags = parse(Resume, args, "jaxrl resume", "Go on with a run from its newest whole checkpoint.")
    refuse_zoo([flags.run], "a policy of the zoo does not go on learning; `jaxrl zoo` says how each was trained.")
    from jaxrl.host.run.recipe import read_recipe, refuse_foreign
    from jaxrl.host.run.run_folder import RunFolder

    recipe = read_recipe(flags.run, dataset=flags.dataset, model=flags.model)
    refuse_foreign(recipe, RunFolder(flags.run).config, loggers=True)
    run = recipe["run"]
    run["progress"] = flags.progress
    if flags.total_steps is not None:
        if flags.total_steps < run["total_steps"]:
            raise ValueError(f"--total-steps {flags.total_steps}: the run is to have {run['total_steps']} already.")
        if run["eval_every"] is None:
            run["eval_every"] = max(1, run["total_steps"] // 10)  # as often as so far
        run["total_steps"] = flags.total_steps
    return run_fit(recipe, flags.run, flags, resume=True)


def key_data(kept: dict[str, Any]) -> dict[str, Any]:
    """A key that `fit` kept, as `wrap_key_data` takes it."""
    import numpy as np

    return {"key_bits_array": np.asarray(kept["data"], np.uint32), "impl": kept["impl"]}


OF_DEVICES = tuple(field.name for field in dataclasses.fields(Devices))


def meet(args: list[str]) -> None:
    """Join the other processes if the words say `--distributed`: before jax is used, and so before they are parsed."""
    import argparse

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--distributed", action="store_true")
    parser.add_argument("--coordinator")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--rank", type=int)
    try:
        said = parser.parse_known_args(args)[0]
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from error
    if said.distributed:
        from jaxrl.host.run import processes

        processes.join(said.coordinator, said.processes, said.rank)
    elif (said.coordinator, said.processes, said.rank) != (None, None, None):
        raise UsageError("--coordinator, --processes and --rank belong to --distributed.")


def mesh_of(devices: Devices, num_seeds: int | None) -> Any:
    """The mesh that the flags ask for, if any."""
    import jax

    from jaxrl.host.run.sharding import default_sizes, make_mesh

    if devices.mesh is not None:
        return make_mesh(devices.mesh)
    if not devices.distributed:
        return None
    return make_mesh(default_sizes(jax.device_count(), num_seeds))


def run_fit(recipe: dict[str, Any], out: Path, devices: Devices, *, resume: bool, begin: Any = None) -> int:
    """Train what a recipe says, into a run folder; returns the exit status. `begin` is what it begins from, a `Begin`
    or another whose `arguments` are those of `fit`.
    """
    from jaxrl.host.run import processes

    with processes.lost(f"Start all of them again, with `jaxrl resume {out}` in place of `jaxrl train`."):
        return _run_fit(recipe, out, devices, resume, begin)


def _run_fit(recipe: dict[str, Any], out: Path, devices: Devices, resume: bool, begin: Any) -> int:
    import jax
    import numpy as np

    from jaxrl import registry
    from jaxrl.algorithm import deployment
    from jaxrl.host.run import processes
    from jaxrl.host.run.config_file import said_of
    from jaxrl.host.run.fit import fit
    from jaxrl.host.run.recipe import build, levels_of, task_params

    with said_of(out / "config.json") if resume else sizes_said():
        built = build(recipe)
        (algo, hyper, task, params), judged_on = built, task_params(recipe, built)
    run = recipe["run"]
    words = {name: x for name, x in recipe.items() if name not in ("arrays", "folder", "expert")}
    words |= {"run": {name: x for name, x in run.items() if name != "progress"}, "mesh": devices.mesh}
    processes.agree(lambda: words)
    run["eval_max_steps"] = episode_cap(judged_on, run["eval_max_steps"])
    total = run["total_steps"]
    for name, what in (("anneal_steps", "the learning rate"), ("ent_anneal_steps", "the weight of the entropy")):
        ends = int(getattr(hyper, name, 0))  # as integers of Python: `total` may be beyond 32 bits
        if 0 < ends < total:
            print(f"{what} ends at step {ends} of {total} (--hyper.{name.replace('_', '-')})", file=sys.stderr)
    ends = int(hyper.lifetime) * algo.steps_per_update if hasattr(hyper, "lifetime") else total
    if ends < total:  # what a rule schedules stays as it is then
        print(f"the life that the rule is told of ends at step {ends} of {total} (--hyper.lifetime)", file=sys.stderr)
    eval_every = max(1, total // 10) if run["eval_every"] is None else (run["eval_every"] or None)
    with said_of(out / "config.json") if resume else contextlib.nullcontext():
        key = key_of(run["seed"]) if "seed" in run else jax.random.wrap_key_data(**key_data(run["key"]))
    num_seeds, mesh = run.get("num_seeds", run["seeds"]), mesh_of(devices, run.get("num_seeds", run["seeds"]))
    kept = None if "expert" in recipe else {"recipe": recipe}  # `fit` keeps who the expert is, as of calls in Python
    with said_of(out / "config.json") if resume else contextlib.nullcontext():
        require_run_fits(algo, hyper, params, num_seeds, total, run, mesh)
        if run.get("memory") is not None:
            _check_memory(run, num_seeds, algo, key, hyper, params, mesh)
        begun: dict[str, Any] = {} if begin is None else begin.arguments(num_seeds, algo)
        result = fit(
            algo,
            key,
            total,
            hyper=hyper,
            env_params=params,
            num_seeds=num_seeds,
            eval_every=eval_every,
            eval_episodes=run["eval_episodes"],
            eval_env=task,
            eval_env_params=judged_on,
            eval_max_steps=run["eval_max_steps"],
            eval_greedy=greedy_of(run["act"]),
            eval_levels=levels_of(recipe, task, params),
            **begun,
            out=out,
            checkpoint_every=run["checkpoint_every"],
            keep=run["keep"],
            keep_best=run.get("keep_best", False),
            video_every=run.get("video_every"),
            log_every=run.get("log_every"),
            loggers=tuple(run["log"]),
            resume=resume,
            overwrite=run.get("overwrite", False) and not resume,
            progress=run["progress"],
            extra=kept,
            mesh=mesh,
        )
    status = 128 + (result.signal or signal.SIGINT) if result.interrupted else 0  # as shells count
    if not processes.primary():
        return status
    if result.interrupted:
        what = "Terminated" if result.signal == signal.SIGTERM else "Interrupted"
        print(f"{what}; what was done is saved. Go on with: jaxrl resume {out}")
        return status
    for seed, what in result.diverged.items():
        print(f"seed {seed}: {what}; its last good state was kept")
    if result.evaluations:
        returns = np.atleast_1d(result.evaluations[-1]["return"])
        how = WORDS[deployment(algo, greedy_of(run["act"]))]
        print(f"return {summary(returns)} over {run['eval_episodes']} full episodes a seed, {how}")
        if (on_levels := result.evaluations[-1].get("level_return")) is not None:
            print(f"return {summary(np.atleast_1d(on_levels))} on held-out levels, as many episodes on each")
        if (reference := recipe.get("dataset", {}).get("reference")) is not None:
            print_score(returns, reference, judged_on, run["eval_max_steps"])
        if np.isfinite(returns).all():
            print_normalized(returns, result.evaluations[-1].get("length"), task, judged_on, run["eval_max_steps"])
    print(f"run folder {out}")
    if hasattr(module := registry.get_algo(recipe["algo"]), "leave"):
        for path in module.leave(algo.config, result.state, out, _provenance(out, recipe, resume)):
            print(f"learned    {path}")
    _draw(out, algo, result.state, num_seeds, recipe)
    return 0


def _draw(out: Path, algo: Any, state: Any, num_seeds: int | None, recipe: dict[str, Any]) -> None:
    """Pictures of a run that has ended, in `media/`: its curve, its archive if any, a film if one was asked for."""
    import jax

    from jaxrl.host.plotting import plot
    from jaxrl.host.run import archives
    from jaxrl.host.run.run_folder import RunFolderError

    try:
        print(f"curve      {plot([out], out / 'media' / 'curve.png')}")
    except RunFolderError as error:
        print(f"curve      none: {error}")
    if jax.process_count() == 1:  # of several, each holds a part of the state
        archive = archives.drawn(algo, state, num_seeds, out / "media" / "archive.png")
        if archive is not None:
            print(f"archive    {archive}")
    if recipe["run"].get("video"):
        dataset, act = Path(recipe["dataset"]["path"]) if "dataset" in recipe else None, recipe["run"]["act"]
        print(f"video      {render_run(out, out / 'media' / 'policy.gif', 0, None, greedy_of(act), dataset)}")


def require_run_fits(
    algo: Any, hyper: Any, params: Any, num_seeds: int | None, total: int, run: dict[str, Any], mesh: Any
) -> None:
    """Raise ValueError for a run that needs more memory than there is, before anything of it is made; it is estimated
    from shapes, which takes half a second, where jax would take what it gets for half an hour.
    """
    from jaxrl.algorithm import num_updates
    from jaxrl.host.run import ram

    counts = {"num_seeds": num_seeds, "eval_episodes": run["eval_episodes"]}
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}: it must be at least 1.")
    with sizes_said():
        parts = ram.least(algo, hyper, params, num_seeds, num_updates(algo, total), run["eval_episodes"])
    memory = None if run.get("memory") is None else ram.bytes_in(run["memory"])
    devices = 1 if mesh is None else mesh.size
    what = f"the run of {num_seeds} seeds" if (num_seeds or 1) > 1 else "the run"
    remedy = "make --seeds, --config.num-envs, --config.buffer-size, --config.hidden or --eval-episodes smaller"
    ram.require_room(parts, what, remedy, memory, devices)


def _provenance(out: Path, recipe: dict[str, Any], resumed: bool) -> dict[str, Any]:
    """Where something that a run left comes from: the words without its folder, versions, machine, and what it took;
    of a run that was resumed, its last part.
    """
    import json

    of_run = {name: recipe["run"][name] for name in ("seed", "seeds", "total_steps") if name in recipe["run"]}
    config, summary = (json.loads((out / name).read_text()) for name in ("config.json", "summary.json"))
    told = {name: config[name] for name in ("versions", "device", "processors", "commit", "started")}
    took = {name: summary[name] for name in ("compile_seconds", "run_seconds")}
    return {"recipe": {**recipe, "run": of_run}, **told, **took, "resumed": resumed}


def _check_memory(run: dict[str, Any], seeds: int | None, algo: Any, key: Any, hyper: Any, params: Any, mesh: Any):
    """Raise ValueError unless so many seeds fit into the memory that was stated."""
    import jax

    from jaxrl.host.run.ram import bytes_a_run, bytes_in, footprint, runs_at_once
    from jaxrl.host.run.training_program import Program

    def needs(count: int) -> int:
        return footprint(Program(algo, jax.random.split(key, count), count, hyper, params, mesh))

    total, parts = seeds or 1, 1 if mesh is None else mesh.shape["seeds"]
    fit_in = runs_at_once(total, bytes_a_run(algo, hyper, params), needs, bytes_in(run["memory"]), parts)
    if fit_in < total:
        raise ValueError(
            f"--seeds {total} do not fit into {run['memory']}, {fit_in} do: `jaxrl sweep` with the same words trains "
            "them one part after the other."
        )
