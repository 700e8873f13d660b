"""The `jaxrl` command: train, resume, eval, render, export, plot, envs, algos, bench.

Exit status: 0 done, 1 an error (one line that says what to do; `--debug` shows where), 2 wrong usage.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

USAGE = """usage: jaxrl COMMAND ...

  jaxrl train ALGO ENV     train and write a run folder     jaxrl train ppo CartPole-v1 --seeds 8 --out runs/x
  jaxrl sweep ALGO ENV     a grid of settings x seeds       jaxrl sweep ppo CartPole-v1 --hyper.gamma 0.9 0.99
  jaxrl resume RUN         go on where a run stopped, bit for bit
  jaxrl eval RUN           full episodes of the trained policies
  jaxrl render RUN         a GIF or MP4 of the trained policy
  jaxrl export RUN         the trained policy as a C header, ONNX or StableHLO
  jaxrl plot RUN [RUN...]  learning curves
  jaxrl envs [PATTERN]     registered environments
  jaxrl algos              algorithms
  jaxrl bench [ENV...]     random-action steps per second on this machine

`jaxrl COMMAND --help` lists a command's flags; for train and sweep, name the algorithm and environment first.
`--curriculum NAME` lets a curriculum choose the levels: jaxrl train ppo_rnn Maze-v0 --curriculum plr"""


class UsageError(Exception):
    """Wrong words on the command line: exit status 2."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [a for a in args if a != "--debug"]
    if not args or args[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if args else 2
    try:
        if args[0] not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            raise UsageError(f"unknown command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        cache_compilations()
        return COMMANDS[args[0]](args[1:]) or 0
    except KeyboardInterrupt:
        return 130
    except SystemExit as stop:  # tyro has explained itself
        return stop.code if isinstance(stop.code, int) else 1
    except UsageError as error:
        print(f"jaxrl: {error}\n\n{USAGE}", file=sys.stderr)
        return 2
    except Exception as error:
        if debug or not isinstance(error, _expected_errors()):
            raise
        print(f"jaxrl: {error}", file=sys.stderr)
        return 1


def train_file(file: str) -> None:
    """What an algorithm's file does when it is run: `python algos/ppo.py ...` is `jaxrl train ppo ...`."""
    sys.exit(main(["train", Path(file).stem, *sys.argv[1:]]))


def _expected_errors() -> tuple[type[Exception], ...]:
    from jaxrl.host.checkpoint import CheckpointError
    from jaxrl.host.fit import DivergenceError
    from jaxrl.host.run_folder import RunFolderError

    return (
        ValueError,
        TypeError,
        NotImplementedError,
        ImportError,
        OSError,
        CheckpointError,
        RunFolderError,
        DivergenceError,
    )


def cache_compilations() -> None:
    """Keep compiled programs between runs, in JAXRL_CACHE_DIR or the user's cache folder."""
    import jax

    if jax.config.jax_compilation_cache_dir:
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", os.environ.get("JAXRL_CACHE_DIR") or str(home / "jaxrl" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


# ---- train, resume


@dataclasses.dataclass
class TrainFlags:
    """What `train` takes beside the algorithm's and the environment's own settings."""

    out: Path | None = None
    """Run folder. Default: runs/<algo>-<env>-<time>."""
    seeds: int = 1
    """Runs trained at once, as one program."""
    seed: int = 0
    """Of the first; each seed gives other runs."""
    total_steps: int | None = None
    """Environment steps a seed. Default: the tuned table's, else 500000."""
    eval_every: int | None = None
    """Steps between evaluations. Default: a tenth of the run; 0: none."""
    eval_episodes: int = 128
    eval_max_steps: int | None = None
    """Cap on an evaluation's episodes; needed where the task has no time limit."""
    greedy: bool = False
    """Evaluate the policy's mode instead of sampling from it."""
    checkpoint_every: int | None = None
    """Steps between checkpoints. Default: a tenth of the run."""
    keep: int = 3
    """Checkpoints kept."""
    log: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """More loggers; JSONL and CSV always are."""
    overwrite: bool = False
    """Replace a run that is already in the folder."""
    tuned: bool = True
    """Start from the settings of jaxrl/tuned.toml."""
    video: bool = False
    """Render a GIF of the trained policy."""
    progress: bool = True


def train(args: list[str]) -> int:
    parsed, recipe = _experiment("train", args, TrainFlags)
    run: TrainFlags = parsed.run
    out = run.out or Path("runs") / f"{recipe['algo']}-{recipe['env_id']}-{time.strftime('%Y%m%d-%H%M%S')}"
    recipe["run"] = {**dataclasses.asdict(run), "out": str(out), "total_steps": recipe.pop("total_steps")}
    return _fit(recipe, out, resume=False)


def resume(args: list[str]) -> int:
    @dataclasses.dataclass
    class Resume:
        run: Annotated[Path, _positional()]
        """Run folder."""
        progress: bool = True

    flags = _parse(Resume, args, "jaxrl resume", "Go on with a run from its newest whole checkpoint.")
    recipe = _recipe(flags.run)
    recipe["run"]["progress"] = flags.progress
    return _fit(recipe, flags.run, resume=True)


def _fit(recipe: dict[str, Any], out: Path, *, resume: bool) -> int:
    import jax
    import numpy as np

    from jaxrl.host.fit import fit

    algo, hyper, task, params = _build(recipe)
    run = recipe["run"]
    total = run["total_steps"]
    eval_every = max(1, total // 10) if run["eval_every"] is None else (run["eval_every"] or None)
    result = fit(
        algo,
        jax.random.key(run["seed"]),
        total,
        hyper=hyper,
        env_params=params,
        num_seeds=run["seeds"],
        eval_every=eval_every,
        eval_episodes=run["eval_episodes"],
        eval_env=task,
        eval_env_params=params,
        eval_max_steps=run["eval_max_steps"],
        eval_greedy=run["greedy"],
        out=out,
        checkpoint_every=run["checkpoint_every"],
        keep=run["keep"],
        loggers=tuple(run["log"]),
        resume=resume,
        overwrite=run["overwrite"] and not resume,
        progress=run["progress"],
        extra={"recipe": recipe},
    )
    if result.interrupted:
        print(f"Interrupted; what was done is saved. Go on with: jaxrl resume {out}")
        return 130
    for seed, what in result.diverged.items():
        print(f"seed {seed}: {what}; its last good state was kept")
    if result.evaluations:
        returns = np.atleast_1d(result.evaluations[-1]["return"])
        print(f"return {_summary(returns)} over {run['eval_episodes']} full episodes a seed")
    print(f"run folder {out}")
    from jaxrl.host.plotting import plot

    print(f"curve      {plot([out], out / 'media' / 'curve.png')}")
    if run["video"]:
        print(f"video      {_render(recipe, out, out / 'media' / 'policy.gif', 0, None, False)}")
    return 0


@dataclasses.dataclass
class SweepFlags:
    """What `sweep` takes beside the settings."""

    out: Path | None = None
    """Folder of the sweep. Default: runs/sweep-<algo>-<env>-<time>."""
    seeds: int = 4
    """Runs of each point, the same keys for all points."""
    seed: int = 0
    random: int = 0
    """Draw so many points between the least and the largest value of each setting, instead of the grid."""
    total_steps: int | None = None
    """Environment steps a run. Default: the tuned table's, else 500000."""
    eval_episodes: int = 128
    eval_max_steps: int | None = None
    """Cap on an evaluation's episodes; needed where the task has no time limit."""
    greedy: bool = False
    """Evaluate the policy's mode instead of sampling from it."""
    at_once: int | None = None
    """Runs in one program. Default: as many as fit the free memory."""
    overwrite: bool = False
    """Replace a sweep that is already in the folder."""
    resume: bool = False
    """Go on with the sweep in the folder."""
    tuned: bool = True
    """Start from the settings of jaxrl/tuned.toml."""
    progress: bool = True


def sweep_command(args: list[str]) -> int:
    import jax

    from jaxrl.host.plotting import heat_map
    from jaxrl.host.run_folder import write_json
    from jaxrl.host.sweep import grid, random_points, sweep, table

    parsed, recipe = _experiment("sweep", args, SweepFlags, several=True)
    run: SweepFlags = parsed.run
    values = {name: list(dict.fromkeys(options)) for name, options in recipe["hyper"].items()}
    varied = {name: options for name, options in values.items() if len(options) > 1}
    if not varied:
        raise UsageError("sweep needs a setting with several values, as in --hyper.learning-rate 1e-4 3e-4 1e-3.")
    recipe["hyper"] = {name: options[0] for name, options in values.items()}
    name, total = f"{recipe['algo']}-{recipe['env_id']}", recipe["total_steps"]
    out = run.out or Path("runs") / f"sweep-{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    algo, hyper, task, params = _build(recipe)
    points = random_points(varied, run.random, run.seed) if run.random else grid(varied)
    returns = sweep(
        algo,
        jax.random.key(run.seed),
        total,
        points,
        hyper=hyper,
        env_params=params,
        num_seeds=run.seeds,
        eval_episodes=run.eval_episodes,
        eval_env=task,
        eval_max_steps=run.eval_max_steps,
        eval_greedy=run.greedy,
        out=out,
        at_once=run.at_once,
        resume=run.resume,
        overwrite=run.overwrite,
        progress=run.progress,
    )
    rows = [{**point, "returns": scores.tolist()} for point, scores in zip(points, returns, strict=True)]
    write_json(out / "sweep.json", {"recipe": recipe, "points": rows})
    text = table(points, returns)
    (out / "table.md").write_text(f"# {name}, {total:,} steps, {run.seeds} seeds\n\n{text}\n")
    print(text)
    print(f"folder   {out}")
    print(f"heat map {heat_map(points, returns, out / 'heat_map.png')}")
    return 0


# ---- eval, render, plot


def evaluate_command(args: list[str]) -> int:
    @dataclasses.dataclass
    class Eval:
        run: Annotated[Path, _positional()]
        """Run folder."""
        episodes: int = 128
        seed: int = 0
        max_steps: int | None = None
        """Cap on the length of an episode."""
        greedy: bool = False
        """The policy's mode instead of a sample."""

    flags = _parse(Eval, args, "jaxrl eval", "Full episodes of each seed's policy.")
    import jax
    import numpy as np

    from jaxrl.evaluation import evaluate

    recipe = _recipe(flags.run)
    algo, state, task, params = _load(recipe, flags.run)

    def returns(state, key):
        policy = algo.policy(state)
        return evaluate(algo, policy, task, params, key, flags.episodes, flags.max_steps, flags.greedy)

    keys = jax.random.split(jax.random.key(flags.seed), recipe["run"]["seeds"])
    stats = jax.jit(jax.vmap(returns))(state, keys)
    mean = np.asarray(stats.returns.mean(1))
    for seed, (value, length) in enumerate(zip(mean, np.asarray(stats.lengths.mean(1)), strict=True)):
        print(f"seed {seed}: return {value:.2f}, length {length:.1f}")
    print(f"return {_summary(mean)} over {flags.episodes} full episodes a seed")
    return 0


def render(args: list[str]) -> int:
    @dataclasses.dataclass
    class Render:
        run: Annotated[Path, _positional()]
        """Run folder."""
        out: Path | None = None
        """A .gif, .mp4 or .png (contact sheet). Default: media/policy.gif in the run folder."""
        seed: int = 0
        """Which of the run's seeds."""
        max_steps: int | None = None
        """Steps at most. Default: one episode, 500 at most."""
        greedy: bool = False

    flags = _parse(Render, args, "jaxrl render", "One episode of the trained policy.")
    out = flags.out or flags.run / "media" / "policy.gif"
    print(_render(_recipe(flags.run), flags.run, out, flags.seed, flags.max_steps, flags.greedy))
    return 0


def _render(recipe: dict[str, Any], folder: Path, out: Path, seed: int, max_steps: int | None, greedy: bool) -> Path:
    import jax
    import numpy as np

    from jaxrl.host.render import render_states, save

    algo, state, env, params = _load(recipe, folder)
    if not 0 <= seed < recipe["run"]["seeds"]:
        raise ValueError(f"--seed {seed}: the run has seeds 0 to {recipe['run']['seeds'] - 1}.")
    policy = jax.tree.map(lambda x: x[seed], algo.policy(state))
    steps = int(np.minimum(params.max_steps, max_steps or 500))

    def step(loop, key):
        obs, state, carry = loop
        act_key, env_key = jax.random.split(key)
        action, carry = algo.act(policy, act_key, obs, carry, greedy=greedy)
        ts = env.step(env_key, state, action, params)
        return (ts.obs, ts.state, carry), (state, ts.terminated | ts.truncated)

    @jax.jit
    def episode(key):
        reset_key, run_key = jax.random.split(key)
        obs, first = env.reset(reset_key, params)
        return jax.lax.scan(step, (obs, first, algo.initial_carry()), jax.random.split(run_key, steps))[1]

    states, done = episode(jax.random.key(seed))
    length = int(np.argmax(done)) + 1 if np.any(done) else steps
    states = jax.tree.map(lambda x: np.asarray(x)[:length], states)
    out.parent.mkdir(parents=True, exist_ok=True)
    every, fps = _playback(env, params)
    return save(out, render_states(env, jax.tree.map(lambda x: x[::every], states), params), fps=fps)


def _playback(env: Any, params: Any) -> tuple[int, float]:
    """`(n, frames per second)`: each n-th step is shown, at the speed of the task's own clock."""
    from jaxrl.wrappers import Wrapper

    while isinstance(env, Wrapper):
        env = env.env
    step = float(getattr(params, "dt", 1 / 30)) * getattr(env, "substeps", 1)
    every = max(1, math.ceil(1 / (50 * step) - 0.01))  # a GIF has no more than 50 a second; dt is rounded
    return every, 1 / (every * step)


def plot_command(args: list[str]) -> int:
    @dataclasses.dataclass
    class Plot:
        runs: Annotated[tuple[Path, ...], _positional()]
        """Run folders."""
        out: Path = Path("curves.png")
        metric: str = "episode_return"
        window: int | None = None
        """Rows of the trailing mean. Default: a fortieth of the run."""

    flags = _parse(Plot, args, "jaxrl plot", "Learning curves: the mean over seeds, single seeds behind it.")
    if not flags.runs:
        raise UsageError("plot needs at least one run folder.")
    from jaxrl.host.plotting import plot

    print(plot(flags.runs, flags.out, flags.metric, flags.window))
    return 0


# ---- envs, algos, bench


def envs(args: list[str]) -> int:
    from jaxrl import registry

    found = registry.list_envs(args[0] if args else "*")
    for id in found:
        env, params = registry.make(id)
        print(f"{id:28} {env.observation_space(params)!r:.60}  ->  {env.action_space(params)!r:.40}")
    if not found:
        print(f"jaxrl: no environment matches {args[0]!r}.", file=sys.stderr)
    return 0 if found else 1


def algos(args: list[str]) -> int:
    from jaxrl import registry

    for name in registry.list_algos():
        print(f"{name:14} {(registry.get_algo(name).__doc__ or '').splitlines()[0]}")
    print("\n--curriculum, around one that learns on batched params:")
    for name in registry.list_curricula():
        print(f"{name:14} {(registry.get_curriculum(name)[0].__doc__ or '').splitlines()[0]}")
    return 0


def bench(args: list[str]) -> int:
    @dataclasses.dataclass
    class Bench:
        envs: Annotated[tuple[str, ...], _positional()] = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0")
        """Ids."""
        num_envs: int = 2048
        steps: int = 500
        repeats: int = 5

    flags = _parse(Bench, args, "jaxrl bench", "Random actions with auto-reset; the median of several repeats.")
    import jax
    import numpy as np

    from jaxrl import registry
    from jaxrl.math import fast_key
    from jaxrl.vectorize import vectorize
    from jaxrl.wrappers import agents_as_slots

    for id in flags.envs:
        env, params = registry.make(id)
        venv, space = vectorize(env, flags.num_envs), env.action_space(params)
        venv = agents_as_slots(venv) if env.num_agents > 1 else venv

        def step(loop, key, venv=venv, space=space, params=params):
            vstate, total = loop
            action_key, env_key = jax.random.split(key)
            action = jax.vmap(space.sample)(jax.random.split(action_key, venv.num_envs))
            ts = venv.step(env_key, vstate, action, params)
            # Everything is summed, so that nothing is computed for nobody.
            total += sum(x.sum() for x in jax.tree.leaves(ts.obs)) + ts.reward.sum()
            return (ts.state, total), None

        def run(vstate, key, step=step):
            return jax.lax.scan(step, (vstate, 0.0), jax.random.split(fast_key(key), flags.steps))[0]

        vstate = jax.jit(venv.reset)(jax.random.key(0), params)[1]
        begin = time.perf_counter()
        compiled = jax.jit(run).lower(vstate, jax.random.key(1)).compile()
        compile_seconds, seconds = time.perf_counter() - begin, []
        for i in range(flags.repeats + 1):
            begin = time.perf_counter()
            jax.block_until_ready(compiled(vstate, jax.random.key(i)))
            seconds.append(time.perf_counter() - begin)
        rate = flags.num_envs * flags.steps / np.median(seconds[1:])
        print(f"{id:28} {rate / 1e6:8.2f} M steps/s   compile {compile_seconds:.1f} s")
    return 0


# ---- from words to a recipe, from a recipe to functions and back


def _experiment(command: str, args: list[str], flags: type, several: bool = False) -> tuple[Any, dict[str, Any]]:
    """`(parsed flags, recipe)` of `jaxrl <command> ALGO ENV ...`: tuned settings, changed by what the words say.

    With `several`, each number of `Hyper` takes any number of values, and the recipe has tuples of them.
    """
    from jaxrl import registry

    args, curriculum = _named(args, "--curriculum")
    words = [a for a in args[:2] if not a.startswith("-")]
    if len(words) < 2:
        if {"-h", "--help"} & set(args):
            print(USAGE)
            raise SystemExit(0)
        raise UsageError(f"{command} needs an algorithm and an environment.")
    algo_name, env_id = words
    if algo_name in registry.list_curricula():
        raise ValueError(
            f"{algo_name} chooses a student's levels: jaxrl {command} ppo {env_id} --curriculum {algo_name}"
        )
    module = registry.get_algo(algo_name)
    env, params = registry.make(env_id)
    known = None if "--no-tuned" in args else registry.tuned(algo_name, env_id)
    config = module.Config(**(known.config if known else {}))
    hyper = module.Hyper(**(known.hyper if known else {}))
    cls = dataclasses.make_dataclass(
        command.capitalize(),
        [
            ("run", _flat(flags), dataclasses.field(default_factory=flags)),
            ("config", module.Config, dataclasses.field(default=config)),
            _numbers("hyper", hyper, several),
            _numbers("params", params),
            _settings("env", env),
            *([] if curriculum is None else [_curriculum_flags(curriculum)]),
        ],
        kw_only=True,
    )
    title = f"{command.capitalize()} {algo_name} on {env_id}."
    parsed = _parse(cls, args[2:], f"jaxrl {command} {algo_name} {env_id}", title)
    total = (known.total_steps if known else 500_000) if parsed.run.total_steps is None else parsed.run.total_steps
    recipe = {
        "algo": algo_name,
        "env_id": env_id,
        "env_settings": dataclasses.asdict(parsed.env),
        "config": dataclasses.asdict(parsed.config),
        "hyper": dataclasses.asdict(parsed.hyper),
        "params": dataclasses.asdict(parsed.params),
        "total_steps": total,
    }
    if curriculum is not None:
        recipe["curriculum"] = {"name": curriculum, **dataclasses.asdict(parsed.curriculum)}
    return parsed, recipe


def _build(recipe: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """`(algo, hyper, task, params)`; fields that are arrays come back as what they were, several agents as slots of
    one. The task is the environment of the evaluations: under a curriculum that of the id, not the one of its levels.
    """
    import jax

    from jaxrl import registry
    from jaxrl.environment import strongly_typed

    module = registry.get_algo(recipe["algo"])
    env, default = registry.make(recipe["env_id"], **recipe["env_settings"])
    params = strongly_typed(default.replace(**recipe["params"]))
    env.validate(params)
    config = _config(module, recipe["config"])
    hyper = module.Hyper(**recipe["hyper"])
    if "curriculum" in recipe:
        return _under_curriculum(recipe["curriculum"], module, config, env, params), hyper, env, params
    fold = env.num_agents > 1 and hasattr(config, "num_envs")  # without it, `make` says that it trains one agent
    algo = module.make(_slots(env, config.num_envs) if fold else env, config)
    if fold and jax.tree.leaves(algo.initial_carry()):
        raise ValueError(f"{env.id} has several agents; {algo.name} remembers, and learns from one agent only.")
    return algo, hyper, algo.venv.env, params


def _config(module: Any, values: dict[str, Any]) -> Any:
    return module.Config(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _slots(env: Any, num_envs: int) -> Any:
    """`agents_as_slots` of as many environments as make `num_envs` slots."""
    from jaxrl.vectorize import vectorize
    from jaxrl.wrappers import agents_as_slots

    agents = env.num_agents
    count, rest = divmod(num_envs, agents)
    if rest:
        near = agents * max(1, round(num_envs / agents))
        raise ValueError(f"num_envs={num_envs}: each of the {agents} agents of {env.id} is a slot; {near} would do.")
    print(
        f"{env.id}: one policy for its {agents} agents, each of them a slot (num_envs={num_envs}: {count} x {agents}); "
        "a return is their mean",
        file=sys.stderr,
    )
    return agents_as_slots(vectorize(env, count))


def _load(recipe: dict[str, Any], folder: Path) -> tuple[Any, Any, Any, Any]:
    from jaxrl.host.fit import load

    algo, hyper, task, params = _build(recipe)
    _, state = load(algo, folder, hyper=hyper, env_params=params, num_seeds=recipe["run"]["seeds"])
    return algo, state, task, params


# ---- curricula


@dataclasses.dataclass
class CurriculumFlags:
    """What `--curriculum NAME` takes beside the curriculum's own settings."""

    ranges: tuple[str, ...] = ()
    """Parameters and their ranges, as in length=0.2:3.0 mass_pole=0.05:1.0. Teachers need them; without them levels are
    the environment's own."""
    score: Literal["max_mc", "positive_value_loss", "l1_value_loss", "learnability"] | None = None
    """Of levels, for plr (default: max_mc) and accel."""
    success_above: float = 0.0
    """An episode of higher return succeeds."""


def _named(args: list[str], flag: str) -> tuple[list[str], str | None]:
    """The words without `flag NAME`, and the name."""
    args = [part for word in args for part in (word.split("=", 1) if word.startswith(flag + "=") else [word])]
    if flag not in args:
        return args, None
    at = args.index(flag)
    if at + 1 == len(args) or args[at + 1].startswith("-"):
        raise UsageError(f"{flag} needs a name: `jaxrl algos` lists them.")
    return args[:at] + args[at + 2 :], args[at + 1]


def _curriculum_flags(name: str) -> tuple[str, type, Any]:
    """A dataclass field with `CurriculumFlags` and the curriculum's Config and Hyper."""
    from jaxrl import registry

    module, _ = registry.get_curriculum(name)
    fields = [("choice", _flat(CurriculumFlags), dataclasses.field(default_factory=CurriculumFlags))]
    if hasattr(module, "Config"):
        fields.append(("config", module.Config, dataclasses.field(default_factory=module.Config)))
    if hasattr(module, "Hyper"):
        needed = [f.name for f in dataclasses.fields(module.Hyper) if f.default is dataclasses.MISSING]
        fields.append(_numbers("hyper", module.Hyper(**dict.fromkeys(needed, 0.0)), needed=needed))
    return "curriculum", dataclasses.make_dataclass("Curriculum", fields, kw_only=True), dataclasses.field()


def _under_curriculum(recipe: dict[str, Any], module: Any, config: Any, env: Any, params: Any) -> Any:
    """The algorithm of `module` as a curriculum's student."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxrl import curriculum, registry
    from jaxrl.curriculum.teaching import ranges
    from jaxrl.vectorize import vectorize

    name, choice = recipe["name"], recipe["choice"]
    method, chooses = registry.get_curriculum(name)
    if env.num_agents > 1 or not hasattr(config, "num_envs"):
        raise ValueError("--curriculum: a student plays one agent in each of config.num_envs environments.")
    box = ranges(params, dict(map(_range, choice["ranges"]))) if choice["ranges"] or chooses == "points" else None
    if box is None and not hasattr(env, "generate"):
        raise ValueError(f"{env.id} has no `generate`: say what {name} may vary, --curriculum.ranges NAME=LOW:HIGH")
    if box is not None:
        for corner in (0.0, 1.0):
            env.validate(box(params, jnp.full(box.dimensions, corner)))
    task = env.as_levels() if box is None and hasattr(env, "as_levels") else env
    student = module.make(vectorize(task, config.num_envs, batched_params=True), config)
    steps, longest = student.steps_per_update // config.num_envs, int(np.max(params.max_steps))
    if longest > steps:
        print(
            f"{env.id}: episodes may last {longest} steps and a rollout has {steps}; {name} sees only those that end "
            "within one (config.num_steps)",
            file=sys.stderr,
        )

    def drawn(key, params):
        assert box is not None
        return box(params, jax.random.uniform(key, (box.dimensions,)))

    level_fn = env.generate if box is None else drawn
    settings = [_config(method, recipe["config"])] if "config" in recipe else []
    settings += [method.Hyper(**recipe["hyper"])] if "hyper" in recipe else []
    if name == "sfl":
        return method.make(student, level_fn, *settings, success_above=choice["success_above"])
    if name == "accel":
        settings.insert(0, getattr(task, "mutate", None))
    chosen = method.make(box if chooses == "points" else level_fn, *settings)
    if choice["score"] and not chosen.scored:
        raise ValueError(f"--curriculum.score {choice['score']}: {name} reads no score; plr and accel do.")
    score = getattr(curriculum, choice["score"] or "max_mc") if chosen.scored else None
    return curriculum.attach(student, chosen, score, choice["success_above"])


def _range(word: str) -> tuple[str, tuple[float, float]]:
    """`name=low:high`."""
    name, _, bounds = word.partition("=")
    try:
        low, high = map(float, bounds.split(":"))
    except ValueError:
        raise ValueError(f"--curriculum.ranges {word}: it is written NAME=LOW:HIGH, as in length=0.2:3.0") from None
    return name, (low, high)


def _recipe(folder: Path) -> dict[str, Any]:
    from jaxrl.host.run_folder import RunFolder, RunFolderError

    recipe = RunFolder(folder).read_config().get("recipe")
    if recipe is None:
        raise RunFolderError(f"{folder} was not made by `jaxrl train`: use the Python program that made it.")
    return recipe


def _summary(returns: Any) -> str:
    from jaxrl.host.statistics import bootstrap_interval, iqm

    if len(returns) == 1:
        return f"{returns[0]:.2f}"
    low, high = bootstrap_interval(returns)
    return f"{returns.mean():.2f} (IQM {iqm(returns):.2f}, 95 % interval {low:.2f} to {high:.2f}, {len(returns)} seeds)"


# ---- flags


def _parse(cls: Any, args: list[str], prog: str, description: str) -> Any:
    import tyro

    return tyro.cli(cls, args=args, prog=prog, description=description)


def _positional() -> Any:
    import tyro

    return tyro.conf.Positional


def _flat(cls: type) -> Any:
    """`--seeds`, not `--run.seeds`."""
    import tyro

    return Annotated[cls, tyro.conf.arg(name="")]


def _numbers(name: str, tree: Any, several: bool = False, needed: Sequence[str] = ()) -> tuple[str, type, Any]:
    """A dataclass field of the scalar leaves of a pytree dataclass, for typed flags `--<name>.<leaf>`.

    With `several`, each takes any number of values. Those `needed` have no default.
    """
    import numpy as np

    fields = []
    for field in dataclasses.fields(tree):
        value = np.asarray(getattr(tree, field.name))
        kind = {"b": bool, "i": int, "u": int, "f": float}.get(value.dtype.kind)
        if kind is not None and value.ndim == 0:  # None, where something is switched off, is no number
            # float32 0.1 is shown, and stored, as 0.1
            shown = float(str(value)) if kind is float else kind(value)
            wanted = (tuple[kind, ...], (shown,)) if several else (kind, shown)
            default = dataclasses.MISSING if field.name in needed else wanted[1]
            fields.append((field.name, wanted[0], dataclasses.field(default=default)))
    cls = dataclasses.make_dataclass(name.capitalize(), fields, kw_only=True)
    return name, cls, dataclasses.field() if needed else dataclasses.field(default_factory=cls)


def _settings(name: str, env: Any) -> tuple[str, type, Any]:
    """The same for the static settings of an environment."""
    kinds = (bool, int, float, str)
    fields = [
        (f.name, type(getattr(env, f.name)), dataclasses.field(default=getattr(env, f.name)))
        for f in dataclasses.fields(env)
        if f.init and f.name != "id" and isinstance(getattr(env, f.name), kinds)
    ]
    cls = dataclasses.make_dataclass(name.capitalize(), fields)
    return name, cls, dataclasses.field(default_factory=cls)


def export_command(args: list[str]) -> int:
    @dataclasses.dataclass
    class Export:
        run: Annotated[Path, _positional()]
        """Run folder."""
        format: Literal["c", "onnx", "stablehlo"] = "c"
        output: Path | None = None
        """Default: policy.h, policy.onnx or policy.stablehlo in the run folder."""
        name: str = "policy"
        """Of the C function."""
        seed: int = 0
        """Which of the run's seeds."""

    flags = _parse(Export, args, "jaxrl export", "The greedy policy as a C header, ONNX or StableHLO.")
    import jax

    from jaxrl.host.export import FORMATS, export

    recipe = _recipe(flags.run)
    algo, state, _, _ = _load(recipe, flags.run)
    if not 0 <= flags.seed < recipe["run"]["seeds"]:
        raise ValueError(f"--seed {flags.seed}: the run has seeds 0 to {recipe['run']['seeds'] - 1}.")
    policy = jax.tree.map(lambda x: x[flags.seed], algo.policy(state))
    output = flags.output or flags.run / f"{flags.name}{FORMATS[flags.format]}"
    print(export(algo, policy, output, flags.format, flags.name))
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "sweep": sweep_command,
    "resume": resume,
    "eval": evaluate_command,
    "render": render,
    "export": export_command,
    "plot": plot_command,
    "envs": envs,
    "algos": algos,
    "bench": bench,
}


if __name__ == "__main__":
    sys.exit(main())
