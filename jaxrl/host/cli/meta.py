"""`jaxrl meta-train` and `jaxrl meta-test`: learning an update rule, and judging one that has been learned."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import sys
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jaxrl.host.cli.experiment import ENDLESS, bare_words, experiment
from jaxrl.host.cli.flags import UsageError, at_least_one, flat, key_of, named, parse, settings_of
from jaxrl.host.cli.train import OF_DEVICES, Devices, run_fit

TRAINING = "jaxrl.algos.rule_learners.gradients"
"""The module of the rule learner by gradients, whose settings are names and numbers."""

BY = {"gradients": TRAINING, "strategies": "jaxrl.algos.rule_learners.strategies"}
"""Files that a rule is learned by."""


@dataclasses.dataclass
class MetaTrainFlags:
    """What `meta-train` takes beside the settings of the rule, of its learning and of the environment."""

    by: Literal["gradients", "strategies"] = "gradients"
    """Gradients through a few updates of agents that live on, or evolution strategies over whole lives."""
    init: str | None = None
    """Begin with the weights of this rule: its name, file or run folder. It must be of the same kind and settings."""
    out: Path | None = None
    """Run folder. Default: runs/<rule>-<env>-<time>. The rule is `rule.npz` in it."""
    seeds: int = 1
    """Rules learned at once, as one program."""
    mesh: str | None = None
    """Devices over which these are spread, as seeds=4; what comes out does not depend on it. Default: one device."""
    seed: int = 0
    total_steps: int = 5000
    """Meta-updates."""
    checkpoint_every: int | None = None
    """Meta-updates between checkpoints. Default: a tenth of the run."""
    keep: int = 3
    """Checkpoints kept."""
    overwrite: bool = False
    """Replace a run that is already in the folder."""
    progress: bool = True


def meta_train(args: list[str]) -> int:
    from jaxrl import registry

    rules = registry.get_algo(TRAINING).RULES
    words, tasks = named(args, "--tasks")
    words, by = named(words, "--by")
    if {"-h", "--help"} & set(args) and (tasks is None or not words or words[0].startswith("-")):
        title = (
            f"Learn an update rule: one of {', '.join(rules)}. The rule, how it is learned and the environment add "
            "flags; `jaxrl meta-train lpg --tasks GridWorld-small-v0 --help` shows them."
        )
        parse(MetaTrainFlags, ["--help"], "jaxrl meta-train RULE --tasks ENV", title)
    if tasks is None or not words or words[0].startswith("-"):
        raise UsageError("meta-train needs a rule and tasks, as in meta-train lpg --tasks GridWorld-small-v0.")
    if by is not None and by not in BY:
        raise UsageError(f"--by {by}: choose one of {', '.join(BY)}.")
    rule = registry.lasting(words[0])
    if rule not in rules and ":" not in rule:
        raise ValueError(
            f"{rule!r} is no rule that can be learned: choose one of {', '.join(rules)}, or yours, FILE.py:FUNCTION."
        )
    args = [BY[by or "gradients"], tasks, *words[1:], *(() if by is None else ("--by", by))]
    parsed, recipe = experiment("meta-train", args, MetaTrainFlags, config={"rule": rule}, shown=f"{rule} --tasks")
    run: MetaTrainFlags = parsed.run
    if recipe["config"]["rule"] != rule:
        raise UsageError(f"meta-train {rule} --config.rule {recipe['config']['rule']}: the rule is said twice.")
    out = run.out or Path("runs") / f"{re.split('[:/]', rule)[-1]}-{recipe['env_id']}-{time.strftime('%Y%m%d-%H%M%S')}"
    at_least_one("--total-steps", run.total_steps)
    if run.mesh is not None and "envs" in run.mesh:
        raise UsageError(f"--mesh {run.mesh}: it is the rules that are spread, as in --seeds 4 --mesh seeds=4.")
    # A rule does not act, so no episodes are played with it; what its agents got is in the rows.
    none = {"eval_every": 0, "eval_episodes": 1, "eval_max_steps": 1, "act": None, "memory": None, "log": []}
    not_kept = ("by", *OF_DEVICES)  # the recipe's file says by what
    recipe["run"] = {
        **{name: value for name, value in dataclasses.asdict(run).items() if name not in not_kept},
        **none,
        "out": str(out),
        "num_seeds": run.seeds if run.seeds > 1 else None,
    }
    recipe.pop("total_steps")
    begin = {} if run.init is None else {"begin": BeginRule(run.init, rule if rule not in rules else None)}
    return run_fit(recipe, out, Devices(mesh=run.mesh), resume=False, **begin)


class BeginRule(NamedTuple):
    """A rule whose weights the first ones are; `own` is the function of one of the user's."""

    name: str
    own: str | None

    def arguments(self, num_seeds: int | None, algo: Any) -> dict[str, Any]:
        """`start` and `weights_only` of `fit`. Raises ValueError for a rule of another kind or of other settings."""
        import jax

        from jaxrl import registry

        training = registry.get_algo(TRAINING)
        stored, wanted = training.load(self.name, self.own), training.entry_of(algo.config.rule)[2](algo.config)
        if stored.config != wanted:
            raise ValueError(f"--init {self.name}: it is a rule of {stored.config}, and the one to learn of {wanted}.")
        state = jax.jit(algo.init)(jax.random.key(0))
        return {"start": state.replace(weights=stored.weights), "weights_only": True}


@dataclasses.dataclass
class MetaTestFlags:
    """What `meta-test` takes beside the settings of the agents and of the environment."""

    against: tuple[str, ...] = ("a2c", "ppo")
    """What the rule is compared with: a2c, ppo, dpo, or another rule by its name, file or run folder."""
    levels: int = 32
    """Levels that the rules are judged on, an agent each."""
    tuning_levels: int | None = None
    """Other levels, on which the settings of each rule are chosen. Default: as many."""
    updates: int | None = None
    """Of an agent's life. Default: what the level says, else 250."""
    tune: bool = True
    """Choose the settings of each rule among all values of --hyper (by default 42 pairs of learning rates) and, of a2c,
    ppo and dpo, of --numbers. Without it the middle value of each is taken."""
    rule_function: str | None = None
    """FILE.py:FUNCTION or MODULE:FUNCTION that makes the rule where it is yours, and those in --against that are."""
    seed: int = 1_000_000
    """Of the levels: none that `meta-train` drew with another seed."""
    json: Path | None = None
    """Write all figures there, too."""


@dataclasses.dataclass
class NumbersFlags:
    """Settings of a2c, ppo and dpo that they are tuned over, any number of values of each."""

    gamma: tuple[float, ...] = (0.99,)
    gae_lambda: tuple[float, ...] = (0.95,)
    ent_coef: tuple[float, ...] = (0.01,)


FACTORS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0), (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Of the usual learning rates of actor and critic: the default of what is tuned."""
OF_TABLES, OF_OTHERS = (40.0, 4.0), (3e-3, 3e-3)
"""Usual learning rates of actor and critic: of tables with SGD, LPG's, and of all other agents."""


def usual_grid(config: Any) -> dict[str, tuple[float, ...]]:
    """The learning rates that a rule is tuned over by default, about those that are usual for these agents."""
    rates = OF_TABLES if config.optimizer == "sgd" and not config.hidden else OF_OTHERS
    names = "learning_rate", "critic_learning_rate"
    return {
        name: tuple(float(f"{rate * factor:.4g}") for factor in factors)
        for name, rate, factors in zip(names, rates, FACTORS, strict=True)
    }


def meta_test(args: list[str]) -> int:
    words = bare_words(args)
    if len(words) < 2:
        if {"-h", "--help"} & set(args):
            title = (
                "Judge a rule that was learned. The environment adds flags; `jaxrl meta-test lpg-cpu-1 "
                "GridWorld-small-v0 --help` shows them."
            )
            parse(MetaTestFlags, ["--help"], "jaxrl meta-test RULE ENV", title)
        raise UsageError("meta-test needs a rule (its name, file or run folder) and an environment.")
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxrl import registry
    from jaxrl.environment import NO_LIMIT
    from jaxrl.host.statistics import bootstrap_interval
    from jaxrl.meta.agent import AgentConfig, AgentHyper, agent
    from jaxrl.meta.judging import judged

    training = registry.get_algo(TRAINING)
    args, own = named(args, "--rule-function")
    own = None if own is None else registry.lasting(own)
    stored = training.load(words[0], own)
    env_id = registry.lasting(words[1])
    env, _ = registry.make(env_id)
    config = agents_of(words[0], stored.provenance)
    hyper = dataclasses.make_dataclass(
        "Hyper",
        [(name, tuple[float, ...], ()) for name in ("learning_rate", "critic_learning_rate")]
        + [("max_grad_norm", tuple[float, ...], (float(AgentHyper().max_grad_norm),))],
    )
    cls = dataclasses.make_dataclass(
        "MetaTest",
        [
            ("run", flat(MetaTestFlags), dataclasses.field(default_factory=MetaTestFlags)),
            ("agent", AgentConfig, dataclasses.field(default=config)),
            ("hyper", hyper, dataclasses.field(default_factory=hyper)),
            ("numbers", NumbersFlags, dataclasses.field(default_factory=NumbersFlags)),
            settings_of("env", env),
        ],
        kw_only=True,
    )
    title = f"Agents that learn by {words[0]} on {env_id}, and by others, each with settings of its own."
    parsed = parse(cls, args[2:], f"jaxrl meta-test {words[0]} {env_id}", title)
    flags: MetaTestFlags = parsed.run
    at_least_one("--levels", flags.levels)
    at_least_one("--tuning-levels", flags.tuning_levels)
    at_least_one("--updates", flags.updates)
    if len({words[0], *flags.against}) <= len(flags.against):
        raise UsageError(f"--against {' '.join(flags.against)}: a rule is compared with others, each named once.")
    refuse_unread(args, flags)
    if flags.json is not None and not flags.json.absolute().parent.is_dir():
        raise UsageError(f"--json {flags.json}: there is no such folder.")
    rules = {words[0]: stored.rule, **{name: competitor(name, own) for name in flags.against}}
    env, params = registry.make(env_id, **dataclasses.asdict(parsed.env))
    if np.max(np.asarray(params.max_steps)) == NO_LIMIT:
        print(f"the task has no time limit: episodes are cut after {ENDLESS} steps", file=sys.stderr)
        params = params.replace(max_steps=jnp.int32(ENDLESS))

    asked = {"hyper": dataclasses.asdict(parsed.hyper), "numbers": dataclasses.asdict(parsed.numbers)}
    grid = {**asked["hyper"], **{name: x for name, x in usual_grid(parsed.agent).items() if not asked["hyper"][name]}}
    require_values({"hyper": grid, "numbers": asked["numbers"]})
    judge_key, tune_key = jax.random.split(key_of(flags.seed))
    tune_keys = jax.random.split(tune_key, flags.tuning_levels or flags.levels)
    judge_keys = jax.random.split(judge_key, flags.levels)
    recipe = stored.provenance.get("recipe") if isinstance(stored.provenance, dict) else None
    of_agents = recipe.get("config") if isinstance(recipe, dict) else None
    learned_in_passes = isinstance(of_agents, dict) and bool(of_agents.get("num_epochs"))
    found, chosen, width = {}, {}, max(map(len, (words[0], *(f"minus {name}" for name in flags.against))))
    for name, rule in rules.items():
        tried = {**grid, **(asked["numbers"] if name in HAND_WRITTEN else {})}
        if not flags.tune:
            tried = {setting: (values[len(values) // 2],) for setting, values in tried.items()}
        rows = points_of(tried, rule)
        # In the passes that it was learned with or asked for, every other rule in those that its loss is made for.
        kept = has_word(args, PASSES) or (name == words[0] and learned_in_passes)
        agents = parsed.agent if kept else parsed.agent.in_passes(rule.passes)
        algo, level_fn = agent(rule, env, agents), training.levels_of(env)
        result = judged(algo, level_fn, params, rows, tune_keys, judge_keys, flags.updates)
        found[name], chosen[name] = result.returns, points(tried)[result.best]
        low, high = bootstrap_interval(result.returns, np.mean)
        print(
            f"{name:{width}}  {result.returns.mean():.3f} (95 % interval {low:.3f} to {high:.3f}), "
            f"{said(chosen[name], tried)}, passes {agents.num_epochs}"
        )
        if len(result.tried) > 1 and np.isnan(result.tried).all():
            print(f"{name}: no setting that was tried gave a number", file=sys.stderr)
    figures: dict[str, Any] = {"rule": words[0], "env": env_id, "levels": flags.levels, "updates": flags.updates}
    figures["agents"] = {name: {"returns": found[name].tolist(), "settings": chosen[name]} for name in found}
    figures["minus"] = {}
    for name in flags.against:
        apart = found[words[0]] - found[name]
        low, high = bootstrap_interval(apart, np.mean)
        figures["minus"][name] = {"mean": float(apart.mean()), "interval": [low, high]}
        print(
            f"{f'minus {name}':{width}}  {apart.mean():+.3f} ({low:+.3f} to {high:+.3f}), better on "
            f"{(apart > 0).sum()} and worse on {(apart < 0).sum()} of {flags.levels} levels"
        )
    if flags.json is not None:
        flags.json.write_text(json.dumps({**figures, "jax": jax.__version__}, indent=1) + "\n")
    return 0


PASSES = ("--agent.num-epochs", "--agent.num-minibatches")


def has_word(args: list[str], flags: tuple[str, ...]) -> bool:
    """Whether one of the flags is among the words, alone or with its value."""
    return any(word.split("=")[0].replace("_", "-") in flags for word in args)


def refuse_unread(args: list[str], flags: MetaTestFlags) -> None:
    """Raise UsageError for settings that nothing would read."""
    of_numbers = tuple(f"--numbers.{field.name.replace('_', '-')}" for field in dataclasses.fields(NumbersFlags))
    if has_word(args, of_numbers) and not set(HAND_WRITTEN) & set(flags.against):
        raise UsageError(f"--numbers are settings of {', '.join(HAND_WRITTEN)}: none of them is in --against.")
    if flags.tuning_levels is not None and not flags.tune:
        raise UsageError("--tuning-levels: nothing is tuned with --no-tune.")
    for flag in ("--hyper.learning-rate", "--hyper.critic-learning-rate"):
        following = dict(zip(args, [*args[1:], "--"], strict=True)).get(flag)
        if following is not None and following.startswith("--"):
            raise UsageError(f"{flag} needs one or more values.")


def require_values(grids: dict[str, dict[str, tuple[float, ...]]]) -> None:
    """Raise UsageError for a setting without values, and for a value that is none of it."""
    for group, grid in grids.items():
        for name, values in grid.items():
            flag = f"--{group}.{name.replace('_', '-')}"
            if not values:
                raise UsageError(f"{flag} needs one or more values.")
            most = 1.0 if name in ("gamma", "gae_lambda") else math.inf
            least = 0.0 if group == "numbers" else 5e-324
            if wrong := [x for x in values if not (least <= x <= most and math.isfinite(x))]:
                among = "between 0 and 1" if most == 1 else "at least 0" if least == 0 else "above 0"
                raise UsageError(f"{flag} {wrong[0]:g}: it is a number {among}.")


HAND_WRITTEN = ("a2c", "ppo", "dpo")
"""Rules with settings of their own, as in the module of the rule learner."""


def competitor(name: str, own: str | None) -> Any:
    """The rule that a name in `--against` means."""
    from jaxrl import registry

    training = registry.get_algo(TRAINING)
    return training.HAND_WRITTEN[name]() if name in HAND_WRITTEN else training.load(name, own).rule


def points(grid: dict[str, tuple[float, ...]]) -> list[dict[str, float]]:
    """Every combination of the values."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def points_of(grid: dict[str, tuple[float, ...]], rule: Any) -> Any:
    """The same as `AgentHyper` with a leading axis, the weights of the rule included."""
    import jax
    import jax.numpy as jnp

    from jaxrl import registry
    from jaxrl.meta.agent import AgentHyper
    from jaxrl.meta.rule import fresh_weights

    rows, training = [], registry.get_algo(TRAINING)
    of_rule = [field.name for field in dataclasses.fields(NumbersFlags)]
    weights = fresh_weights(rule, jax.random.key(0))
    for point in points(grid):
        numbers = {name: point.pop(name) for name in of_rule if name in point}
        if numbers:
            weights = training.with_settings(weights, **numbers)
        rows.append(AgentHyper(rule=weights).replace(**point))
    rows = [jax.tree.map(lambda x: jnp.asarray(x, float) if isinstance(x, float | int) else x, row) for row in rows]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)


def said(point: dict[str, float], grid: dict[str, tuple[float, ...]]) -> str:
    """The settings that were chosen of several, with a word on those at an end of what was tried."""
    parts = []
    for name, value in point.items():
        if len(grid[name]) == 1 and name not in ("learning_rate", "critic_learning_rate"):
            continue
        end = len(grid[name]) > 1 and value in (min(grid[name]), max(grid[name]))
        parts.append(f"{name.replace('_', '-')} {value:g}{' (at an end of what was tried)' if end else ''}")
    return ", ".join(parts)


def agents_of(name: str, provenance: Any) -> Any:
    """The settings of the agents that a rule was learned with, and the default ones where its file does not say them.

    A file is data: of what it says of itself only names in `BY` are imported. Raises RuleFileError for settings that
    there are not.
    """
    from jaxrl import registry
    from jaxrl.meta.agent import AgentConfig
    from jaxrl.meta.stored import RuleFileError, settings_of

    recipe: Any = provenance.get("recipe") if isinstance(provenance, dict) else None
    by: Any = recipe.get("algo") if isinstance(recipe, dict) else None
    by = registry.MOVED.get(by, by) if isinstance(by, str) else None
    if by not in BY.values():
        return AgentConfig()
    try:
        kept = recipe["config"]
        if ":" in str(kept.get("rule")):  # code of somebody's own, of which the agents' settings need nothing
            kept = {**kept, "rule": "lpg"}
        return settings_of(registry.get_algo(by).Config, kept).agent
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RuleFileError(f"{name}: its recipe has no settings that this version knows ({error}).") from None
