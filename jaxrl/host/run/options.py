"""What `fit` and `sweep` take beside what is trained, as two records: what is kept of a run, and how it is evaluated.

Users type their fields as keywords: `fit(algo, key, steps, out="runs/x", eval_every=1000)`. `collected` makes the
records of them, for both functions, and says which keyword was meant where one is unknown.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import jax

from jaxrl.environment import NO_LIMIT, Environment
from jaxrl.host.run.loggers import Log, check_loggers


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """What is kept of a run, and where. Each field is a keyword of `fit` and `sweep`, of the same name."""

    out: str | Path | None = None
    """The run folder (docs/run_folder.md), of a sweep a folder of them; None writes nothing."""
    resume: bool = False
    """Go on from the newest whole checkpoint in `out`, or start if there is none. A larger `total_steps` makes the run
    longer: its state is that of a run asked for so many from the start. Of a sweep, programs that are finished are
    read, not run again."""
    overwrite: bool = False
    """Replace a run in `out`: the files that jaxrl wrote there, no others."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; None for a tenth of the run."""
    keep: int = 3
    """How many checkpoints stay."""
    keep_best: bool = False
    """Keep the checkpoint of the best evaluation, too: of the highest return, of several seeds of their mean."""
    video_every: int | None = None
    """Updates between films of an episode, `media/policy-<update>.gif`, and pictures of what archive there is over two
    descriptors, `media/archive-<update>.png`; of several seeds of the first."""
    log_every: int | None = None
    """Updates averaged into one logged row; None makes about a thousand rows, of more than a thousand seeds fewer."""
    loggers: tuple[str | Log, ...] = ()
    """"tensorboard", "wandb" or functions (`loggers.Log`), beside the JSONL and CSV that are always written."""
    extra: dict[str, Any] | None = None
    """JSON values to keep in config.json, of a sweep in plan.json, too."""


@dataclasses.dataclass(frozen=True)
class EvalOptions:
    """How policies are evaluated. Each field is a keyword of `fit` and `sweep`, with `eval_` before its name."""

    every: int | None = None
    """Steps between evaluations (and one at the end); None for none, of a sweep for one at the end."""
    episodes: int = 128
    """Full episodes of an evaluation."""
    env: Environment | None = None
    """The task of the episodes; None for the one that is trained on."""
    env_params: Any = None
    """None for those of the training if they are the task's, not a distribution's, else for the task's own."""
    max_steps: int | None = None
    """Cap on the length of the episodes, beside the task's own time limit."""
    greedy: bool | None = None
    """Greedy or sampled actions; None as the algorithm is deployed."""
    levels: Any = None
    """Held-out levels, params with a leading axis: beside the task each evaluation plays `episodes` on every one of
    them, also under a curriculum, and logs the return on each."""


class Keywords(TypedDict, total=False):
    """The fields of both records, as they are typed in a call."""

    out: str | Path | None
    resume: bool
    overwrite: bool
    checkpoint_every: int | None
    keep: int
    keep_best: bool
    video_every: int | None
    log_every: int | None
    loggers: tuple[str | Log, ...]
    extra: dict[str, Any] | None
    eval_every: int | None
    eval_episodes: int
    eval_env: Environment | None
    eval_env_params: Any
    eval_max_steps: int | None
    eval_greedy: bool | None
    eval_levels: Any


def collected(
    of: Callable[..., Any], run: RunOptions | None, evaluation: EvalOptions | None, keywords: Mapping[str, Any]
) -> tuple[RunOptions, EvalOptions]:
    """The two records of a call of the function `of`: those that it was given (None: the defaults), with the fields
    that its keywords name.

    Raises TypeError for a keyword that is none, and says which is nearest.
    """
    known = list(Keywords.__annotations__)
    for name in keywords:
        if name not in known:
            own = [p.name for p in inspect.signature(of).parameters.values() if p.kind is p.KEYWORD_ONLY]
            near = difflib.get_close_matches(name, [*own, *known], n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{of.__name__} has no keyword {name!r}.{hint} It takes {', '.join([*own, *known])}.")
    of_evaluation = {name: value for name, value in keywords.items() if name.startswith("eval_")}
    of_run = {name: value for name, value in keywords.items() if name not in of_evaluation}
    fields = {name.removeprefix("eval_"): value for name, value in of_evaluation.items()}
    return (
        dataclasses.replace(run or RunOptions(), **of_run),
        dataclasses.replace(evaluation or EvalOptions(), **fields),
    )


def default_log_every(updates: int, num_seeds: int | None) -> int:
    """Updates averaged into one row where nobody says: about a thousand rows; of more than a thousand seeds fewer, a
    hundred at least, so that what is logged stays below some hundred megabytes.
    """
    rows = min(1000, max(100, 10**6 // (num_seeds or 1)))
    return max(1, updates // rows)


def counts(num_seeds: int | None, run: RunOptions, evaluation: EvalOptions) -> dict[str, int | None]:
    """What must be at least 1 or None, by its keyword."""
    return {
        "num_seeds": num_seeds,
        "eval_every": evaluation.every,
        "eval_episodes": evaluation.episodes,
        "eval_max_steps": evaluation.max_steps,
        "checkpoint_every": run.checkpoint_every,
        "keep": run.keep,
        "video_every": run.video_every,
        "log_every": run.log_every,
    }


def check(num_seeds: int | None, run: RunOptions, evaluation: EvalOptions) -> None:
    """Raise ValueError for a count below 1, an unknown logger, and what is kept or filmed of a run without a folder."""
    for name, value in counts(num_seeds, run, evaluation).items():
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}: it must be at least 1.")
    if evaluation.max_steps is not None and evaluation.max_steps > NO_LIMIT:
        raise ValueError(f"eval_max_steps={evaluation.max_steps}: it must be at most {NO_LIMIT}.")
    check_loggers(run.loggers)
    if run.keep_best and (run.out is None or evaluation.every is None):
        raise ValueError(
            "keep_best: the best checkpoint is that of an evaluation, in a folder: say eval_every and out."
        )
    if run.loggers and run.out is None:
        raise ValueError("loggers: they tell of a run that is kept, in a folder: say out. on_progress needs none.")
    if run.video_every is not None and (run.out is None or jax.process_count() > 1):
        raise ValueError(f"video_every={run.video_every}: films need a folder, `out`, and a run of one process.")
