"""`jaxrl dataset preferences`: pairs of segments with labels, of a dataset's steps or of those of a run's policy."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

from jaxrl.host.cli.experiment import ReadFlags
from jaxrl.host.cli.flags import UsageError, at_least_one, key_of, parse, positional


def make_preferences(args: list[str]) -> int:
    @dataclasses.dataclass
    class MakePreferences(ReadFlags):
        source: Annotated[Path, positional()] = dataclasses.field(kw_only=True)
        """A dataset, or a run folder whose policy then acts."""
        labels: str = "return"
        """By what segments are compared: return, or regret, which needs the values of states: exact ones of a task that
        lists its outcomes, else those of --critic."""
        critic: Path | None = None
        """Of labels by regret, the run (of sac, td3, dqn or another with a critic) whose values are taken. Regret is
        then against its policy, and as right as its critic."""
        noise: str = "none"
        """Who labels: none (never errs), logistic (by the chance of Bradley and Terry), mistakes (10 % are wrong) or
        human (both, and small differences are ties)."""
        temperature: float | None = None
        """Of the chance, in units of return; 0: none. Default: 1 with logistic and human."""
        mistakes: float | None = None
        """Share of labels that are turned round. Default: 0.1 with mistakes and human."""
        ties: float | None = None
        """Differences up to this are ties, in units of return. Default: 0.1 with human, else 1e-6 of the magnitudes
        that a score adds up, as digits beyond that are rounding."""
        query: str = "uniform"
        """Which segments are compared: uniform, or disagreement, those about which an ensemble fitted to the labels so
        far disagrees most."""
        pairs: int = 1000
        length: int = 32
        """Steps of each segment."""
        gamma: float | None = None
        """Discount. Default: 1 for returns; for regrets that of --critic, else 0.99."""
        steps: int = 20_000
        """Of a run, how many steps are recorded."""
        seed: int = 0
        out: Path | None = None
        """An npz file. Default: in this folder, <the source's name>-preferences.npz."""
        overwrite: bool = False
        """Replace a file that is already there."""

    title = (
        "Make a preference dataset, for cpl, oppo, p_iql and `jaxrl dataset relabel`: which of two segments is better?"
    )
    flags = parse(MakePreferences, args, "jaxrl dataset preferences", title)
    import numpy as np

    from jaxrl.data import preferences
    from jaxrl.host.data import npz_files, preference_files, preference_recipes

    for flag, value, known in (
        ("labels", flags.labels, preference_recipes.LABELS),
        ("query", flags.query, preference_recipes.QUERIES),
        ("noise", flags.noise, tuple(preferences.NOISES)),
    ):
        if value not in known:
            raise UsageError(f"--{flag} {value}: it is one of {', '.join(known)}.")
    for flag in ("pairs", "length", "steps"):
        at_least_one(f"--{flag}", getattr(flags, flag))
    if flags.critic is not None and flags.labels == "return":
        raise UsageError(f"--critic {flags.critic}: labels by return need no values; say --labels regret.")
    if flags.gamma is not None and not 0 <= flags.gamma <= 1:
        raise UsageError(f"--gamma {flags.gamma}: it must be from 0 to 1.")
    numbers = {name: getattr(flags, name) for name in ("temperature", "mistakes", "ties")}
    teacher = preference_recipes.teacher_of(flags.noise, **numbers)
    key_of(flags.seed)
    out = Path(f"{flags.source.absolute().stem}-preferences.npz") if flags.out is None else flags.out
    npz_files.refuse(out, flags.overwrite, "--overwrite")
    source = _source(flags)
    gamma, values = 1.0 if flags.gamma is None else flags.gamma, None
    if flags.labels == "regret":
        gamma, values = _values(source, flags.critic, flags.gamma)

    def score(first: np.ndarray) -> np.ndarray:
        return preferences.scores(source.steps, first, flags.length, gamma, values)

    def rounding(first: np.ndarray) -> float:
        return preferences.rounding(source.steps, first, flags.length, gamma, values)

    found, scores = preference_recipes.make(
        source, flags.pairs, flags.length, score, teacher, flags.query, flags.seed, rounding, _say
    )
    known = {
        "labels": flags.labels,
        "noise": {"name": flags.noise, **dataclasses.asdict(teacher)},
        "query": flags.query,
        "gamma": gamma,
        "seed": flags.seed,
        "source": str(flags.source),
        **({"critic": str(flags.critic)} if flags.critic else {}),
    }
    about = {name: x for name, x in source.about.items() if name != "digest"} | {"preferences": known}
    preference_files.write(out, found, about, flags.overwrite)
    right = (scores[:, 1] > scores[:, 0]) == (found.label > 0.5)
    decided = (found.label != 0.5) & (scores[:, 1] != scores[:, 0])
    for name, value in preference_files.summary(found).items():
        print(name, f"{value:.6g}")
    print(f"labels_right {right[decided].mean() if decided.any() else float('nan'):.6g}")
    print(f"preferences {out}")
    return 0


def relabel(args: list[str]) -> int:
    from jaxrl.data import reward_models
    from jaxrl.host.cli.flags import flat, numbers

    @dataclasses.dataclass
    class RelabelFlags:
        file: Annotated[Path, positional()]
        """Preferences, of `jaxrl dataset preferences`."""
        worst: bool = False
        """The least reward over the members of the ensemble, not their mean."""
        seed: int = 0
        out: Path | None = None
        """An npz file. Default: in this folder, <the file's name>-relabelled.npz."""
        overwrite: bool = False
        """Replace a file that is already there."""

    fields = [
        ("run", flat(RelabelFlags)),
        ("config", reward_models.Config, dataclasses.field(default=reward_models.Config())),
        numbers("hyper", reward_models.Hyper()),
    ]
    title = (
        "Fit an ensemble of reward models to preferences by Bradley and Terry's model, and write the dataset of their "
        "steps with the learned rewards, for any learner from data."
    )
    parsed = parse(dataclasses.make_dataclass("Relabel", fields), args, "jaxrl dataset relabel", title)
    flags: RelabelFlags = parsed.run
    import jax.numpy as jnp
    import numpy as np

    from jaxrl.algorithm import check_hyper, check_sizes
    from jaxrl.host.data import dataset_files, npz_files, preference_files
    from jaxrl.host.data.recorded_task import task_of
    from jaxrl.host.run.recipe import placed

    out = Path(f"{flags.file.absolute().stem}-relabelled.npz") if flags.out is None else flags.out
    npz_files.refuse(out, flags.overwrite, "--overwrite")
    key, values = key_of(flags.seed), dataclasses.asdict(parsed.hyper)
    hyper = placed(reward_models.Hyper(), values, "hyper.")
    check_hyper(hyper)
    check_sizes(parsed.config)
    found, about = preference_files.read(flags.file)
    env, params = task_of(about, str(flags.file))
    preference_files.check_fits(found, about, env, params)
    spaces = env.observation_space(params), env.action_space(params)
    _say(f"fitting {parsed.config.num_members} reward models to {found.size} pairs")
    model, losses = reward_models.fit(key, found, *spaces, parsed.config, hyper)
    margins = reward_models.margins(model, found.steps, found.first, found.length)
    least = np.min(np.where(np.isnan(losses), np.inf, losses), 0)
    if not np.isfinite(least).all():
        raise ValueError(
            f"a reward model diverged, the held-out losses are {least}: try a smaller --hyper.learning-rate."
        )
    dataset = reward_models.relabelled(model, found.steps, worst=flags.worst)
    learned = {
        "config": dataclasses.asdict(parsed.config),
        "hyper": values,
        "seed": flags.seed,
        "worst": flags.worst,
        "held_out": least.tolist(),
        "preferences": {"path": str(flags.file), "digest": about["digest"]},
    }
    # Reference returns are of the true rewards, which are gone.
    kept = {name: x for name, x in about.items() if name not in ("digest", "preferences", "reference")}
    dataset_files.write(out, dataset, {**kept, "learned_reward": learned}, flags.overwrite)
    print(f"held-out loss {' '.join(f'{x:.3g}' for x in least)} (0.693: nothing is known)")
    held = np.isin(np.arange(found.size), reward_models.held_out(key, found.size, parsed.config))
    told, unseen = (float(reward_models.accuracy(margins[:, x], jnp.asarray(found.label[x]))) for x in (~held, held))
    true = np.asarray(found.steps.reward, np.float64)
    print(f"accuracy {told:.3g} of the {(~held).sum()} pairs that were learned, {unseen:.3g} of {held.sum()} held out")
    print(f"correlation with the true reward {_correlation(true, dataset.reward):.3g}")
    print(f"dataset {out}")
    return 0


def _correlation(a: Any, b: Any) -> float:
    import numpy as np

    return float(np.corrcoef(a, b)[0, 1]) if np.std(a) > 0 and np.std(b) > 0 else float("nan")


def _source(flags: Any) -> Any:
    """Whose steps are compared. Raises UsageError for flags of a dataset with a run."""
    from jaxrl.host.data import dataset_parts, preference_recipes
    from jaxrl.host.data.recorded_task import task_of

    if (flags.source / "config.json").exists():
        if flags.drop or flags.max_episode_steps is not None:
            raise UsageError("--drop and --max-episode-steps are of a dataset's file; this is a run.")
        _say(f"recording {flags.steps} steps of {flags.source}")
        return preference_recipes.recorded(flags.source, flags.steps, flags.seed)
    dataset, about = flags.read(flags.source)
    if flags.drop:
        about = {**about, "dropped": [*about.get("dropped", ()), *flags.drop]}
    env, params = task_of(about, str(flags.source))
    dataset_parts.check_fits(dataset, about, env, params)
    return preference_recipes.Source(dataset, about, env, params)


def _values(source: Any, critic: Path | None, gamma: float | None) -> tuple[float, Any]:
    """`(gamma, values of obs and of next_obs)`: exact ones, or those of a run's critic."""
    from jaxrl.host.data import preference_recipes

    if critic is None:
        gamma = 0.99 if gamma is None else gamma
        return gamma, preference_recipes.table_values(source, gamma)
    own, values = preference_recipes.critic_values_of(source, critic)
    if gamma is not None and gamma != own:
        raise UsageError(f"--gamma {gamma}: the values of --critic {critic} are of gamma {own:g}.")
    return own, values


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
