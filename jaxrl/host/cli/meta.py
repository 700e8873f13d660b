"""`jaxrl meta-train` and `jaxrl meta-test`: learning an update rule, and judging one that has been learned."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jaxrl.host.cli.experiment import bare_words, experiment
from jaxrl.host.cli.flags import UsageError, at_least_one, flat, key_of, named, parse, settings_of
from jaxrl.host.cli.train import OF_DEVICES, Devices, run_fit

TRAINING = "jaxrl.algos.rule_learners.gradients"
"""The module of the rule learner by gradients, whose settings are names and numbers."""

BY = {"gradients": TRAINING, "strategies": "jaxrl.algos.rule_learners.strategies"}
"""Files that a rule is learned by."""

FACTORS = (0.1, 0.3, 1.0, 3.0), (0.1, 0.3, 1.0)
"""Of the learning rates of actor and critic: the settings that each rule may be tuned over."""


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

    levels: int = 32
    """Levels that the rule is judged on, an agent each."""
    updates: int | None = None
    """Of an agent's life. Default: what the level says, else 250."""
    tune: bool = True
    """Choose the agents' two learning rates on as many other levels, of twelve pairs, for each rule."""
    rule: str | None = None
    """FILE.py:FUNCTION or MODULE:FUNCTION that makes the rule, where it is yours."""
    seed: int = 1_000_000
    """Of the levels: none that `meta-train` drew with another seed."""
    json: Path | None = None
    """Write all figures there, too."""


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
    import numpy as np

    from jaxrl import registry
    from jaxrl.host.statistics import bootstrap_interval
    from jaxrl.meta.agent import AgentConfig, agent

    training = registry.get_algo(TRAINING)
    args, own = named(args, "--rule")
    stored = training.load(words[0], own)
    env_id = registry.lasting(words[1])
    env, _ = registry.make(env_id)
    config = agents_of(words[0], stored.provenance)
    cls = dataclasses.make_dataclass(
        "MetaTest",
        [
            ("run", flat(MetaTestFlags), dataclasses.field(default_factory=MetaTestFlags)),
            ("agent", AgentConfig, dataclasses.field(default=config)),
            settings_of("env", env),
        ],
        kw_only=True,
    )
    title = f"Agents that learn by {words[0]} on {env_id}, and by A2C, each with learning rates of its own."
    parsed = parse(cls, args[2:], f"jaxrl meta-test {words[0]} {env_id}", title)
    flags: MetaTestFlags = parsed.run
    at_least_one("--levels", flags.levels)
    at_least_one("--updates", flags.updates)
    env, params = registry.make(env_id, **dataclasses.asdict(parsed.env))

    rules = {words[0]: stored.rule, "a2c": training.baseline()}
    found, chosen = {}, {}
    for name, rule in rules.items():
        algo = agent(rule, env, parsed.agent)
        found[name], chosen[name] = judged(algo, env, params, flags)
    figures: dict[str, Any] = {"rule": words[0], "env": env_id, "levels": flags.levels, "updates": flags.updates}
    width = max(map(len, (*found, "difference")))
    for name, returns in found.items():
        low, high = bootstrap_interval(returns, np.mean)
        rates = ", ".join(f"{which} {rate:g}" for which, rate in zip(("actor", "critic"), chosen[name], strict=True))
        print(f"{name:{width}}  {returns.mean():.3f} (95 % interval {low:.3f} to {high:.3f}), learning rates: {rates}")
        figures[name] = {"returns": returns.tolist(), "learning_rates": list(chosen[name])}
    apart = found[words[0]] - found["a2c"]
    low, high = bootstrap_interval(apart, np.mean)
    figures["difference"] = {"mean": float(apart.mean()), "interval": [low, high]}
    print(
        f"{'difference':{width}}  {apart.mean():+.3f} ({low:+.3f} to {high:+.3f}), better on {(apart > 0).sum()} of "
        f"{flags.levels} levels"
    )
    if flags.json is not None:
        flags.json.write_text(json.dumps({**figures, "jax": jax.__version__}, indent=1) + "\n")
    return 0


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


def judged(algo: Any, env: Any, params: Any, flags: MetaTestFlags) -> tuple[Any, tuple[float, float]]:
    """`(final return on each level, the two learning rates)`, the rates chosen on other levels of the same kind."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxrl import registry
    from jaxrl.meta.agent import AgentHyper
    from jaxrl.meta.lives import lived

    level_fn = registry.get_algo(TRAINING).levels_of(env)
    usual = AgentHyper()

    def one(rates: Any, key: Any) -> Any:
        level_key, *keys = jax.random.split(key, 3)
        level = level_fn(level_key, params)
        lifetime = jnp.int32(getattr(level, "lifetime", 250) if flags.updates is None else flags.updates)
        hyper = usual.replace(learning_rate=rates[0], critic_learning_rate=rates[1], lifetime=lifetime)
        return lived(algo, keys, hyper, level)

    @jax.jit
    def returns(rates: Any, keys: Any) -> Any:  # one setting after the other, the levels of each at once
        return jax.lax.map(lambda pair: jax.vmap(one, (None, 0))(pair, keys), rates)

    judge_key, tune_key = jax.random.split(key_of(flags.seed))
    rates = np.array([[usual.learning_rate, usual.critic_learning_rate]], np.float32)
    if flags.tune:
        rates = (rates * np.array([[a, b] for a in FACTORS[0] for b in FACTORS[1]])).astype(np.float32)
        tried = returns(rates, jax.random.split(tune_key, flags.levels))
        rates = rates[[int(np.argmax(np.asarray(tried).mean(1)))]]
    scores = np.asarray(returns(rates, jax.random.split(judge_key, flags.levels)))[0]
    return scores, (float(rates[0, 0]), float(rates[0, 1]))
