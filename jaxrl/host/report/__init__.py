"""Run folders as one HTML page to mail: nothing is loaded from anywhere, and charts are SVG that is written here.

`report(folders, out)` is `jaxrl report`; `write_episode` makes a page of one episode, of a classical controller's say.
`runs` reads folders, `command` says what made a run, `svg` and `page` are what charts and pages are made of, `episodes`
is the part on an episode over time.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.host.plotting import smoothed
from jaxrl.host.report import episodes
from jaxrl.host.report.command import command_of
from jaxrl.host.report.episodes import write_episode
from jaxrl.host.report.page import MEDIA, folded, media, page, table, text, warning
from jaxrl.host.report.runs import Run, read_runs
from jaxrl.host.report.svg import Line, chart, number, strip
from jaxrl.host.run import episodes as recorded
from jaxrl.host.run.checkpoint import CheckpointError
from jaxrl.host.run.config_file import said_of
from jaxrl.host.run.run_folder import RunFolderError, tree_values, unit_of_steps
from jaxrl.host.run.trust import may_run
from jaxrl.host.statistics import bootstrap_interval, iqm, probability_of_improvement

__all__ = ["read_runs", "report", "write_episode"]

ROWS = 150
"""Points of a curve, each with an interval."""

EXPLAINED = """The interquartile mean (IQM) is the mean of the middle half of the seeds; with fewer than four it is the
mean. Intervals are 95 % percentile bootstraps over seeds: how far the figure would move with other seeds, not how far
single seeds lie apart, which the dots show. The probability of improvement is that of a seed of the row's first run
scoring higher than one of its second, ties counting half (Agarwal et al. 2021)."""


NORMALIZED = "Normalized: the IQM, where 0 is the return of random actions and 1 the reference of record."


def report(
    folders: Sequence[str | Path],
    out: str | Path = "report.html",
    title: str | None = None,
    metrics: Sequence[str] = (),
    record_episodes: bool = True,
) -> Path:
    """Write the page. Runs of one environment are compared, each environment has a part of its own.

    Args:
        metrics: further columns of metrics.jsonl as curves.
        record_episodes: of runs of continuous tasks that keep no episode (`jaxrl plot --episode`), play one.

    Raises RunFolderError for a folder that cannot be read, ValueError for no folders or a metric that no run has.
    """
    runs = read_runs(folders)
    known = sorted({name for run in runs if run.rows for name in run.rows[-1]} - {"update", "step"})
    for name in metrics:
        if name not in known:
            raise ValueError(f"no run has a metric {name!r}; there are {', '.join(known) or 'none'}.")
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.env, []).append(run)
    count = f"{len(runs)} run{'s' * (len(runs) > 1)}"
    title = title or (f"{runs[0].config['algorithm']} on {runs[0].env}" if len(runs) == 1 else f"{count} compared")
    made = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    pieces = []
    if len(groups) > 1:
        links = "".join(f'<li><a href="#env{i}">{text(env)}</a></li>' for i, env in enumerate(groups))
        pieces.append(f'<nav aria-label="Environments"><ul>{links}</ul></nav>')
    for i, (env, group) in enumerate(groups.items()):
        pieces.append(f'<section id="env{i}"><h2>{text(env)}</h2>{_group(group, metrics, record_episodes)}</section>')
    pieces.append(f"<section><h2>Versions and machines</h2>{_machines(runs)}</section>")
    pieces.append(folded("How the figures are made", f"<p>{text(EXPLAINED)}</p>"))
    out = Path(out)
    if out.is_dir():
        raise ValueError(f"{out} is a folder: --out names the page, as report.html.")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page(title, f"jaxrl {version('jaxrl')}, {made}", "\n".join(pieces)), encoding="utf-8")
    return out


# ---- the runs of one environment


def _group(runs: Sequence[Run], metrics: Sequence[str], record_episodes: bool) -> str:
    parts = [_summary(runs), _warnings(runs), _curves(runs, metrics)]
    scored = [run for run in runs if np.isfinite(run.final()).any()]
    if any(len(run.seeds) > 1 for run in scored):
        parts.append(_spread(scored))
    if len(scored) > 1:
        parts.append(_improvement(scored))
    if len(runs) > 1:
        parts.append(_differences(runs))
    shown: dict[Path, None] = {}
    for run in runs:
        if run.folder not in shown:
            shown[run.folder] = None
            parts.append(_run(run, record_episodes))
    return "\n".join(part for part in parts if part)


def _scores(run: Run) -> np.ndarray:
    scores = run.final()
    return scores[np.isfinite(scores)]


def _summary(runs: Sequence[Run]) -> str:
    shares = [run.normalized() for run in runs]
    known = any(share is not None for share in shares)

    def row(run: Run, share: np.ndarray | None) -> tuple[str, ...]:
        scores = _scores(run)
        figures = ["–"] * 4
        if scores.size:
            low, high = bootstrap_interval(scores) if scores.size > 1 else (np.nan, np.nan)
            interval = f"{number(low)} to {number(high)}" if scores.size > 1 else "–"
            spread = f"{number(scores.min())} to {number(scores.max())}" if scores.size > 1 else "–"
            figures = [number(iqm(scores)), interval, number(scores.mean()), spread]
        of = {"training": "training episodes", "": "–"}.get(run.source, run.source)
        if run.source == "levels":
            of = f"{len(np.atleast_2d(run.evaluations[-1]['levels'])[0])} held-out levels"
        elif run.evaluations:
            of = f"{run.evaluations[-1]['episodes']} episodes a seed"
            of += f", {run.config['eval_policy']}" if "eval_policy" in run.config else ""
        took = (run.summary or {}).get("run_seconds")
        seeds = f"{scores.size} of {len(run.seeds)}" if scores.size < len(run.seeds) else str(len(run.seeds))
        seconds = "–" if took is None else number(took)
        if known:
            share = np.zeros(0) if share is None else share[np.isfinite(share)]
            figures.append(f"{iqm(share):.2f}" if share.size else "–")
        return run.name, str(run.config["algorithm"]), seeds, f"{run.steps:,}", *figures, of, seconds

    header = ["run", "algorithm", "seeds", "steps a seed", "IQM", "95 % interval", "mean", "seeds from to", "of", "s"]
    words = ""
    if known:
        header.insert(8, "normalized")
        words = f"<p>{NORMALIZED}</p>"
    return "<h3>Return at the end</h3>" + table(header, map(row, runs, shares)) + words


def _warnings(runs: Sequence[Run]) -> str:
    prefix = len(runs) > 1
    notes = [f"{run.name}: {note}" if prefix else note for run in runs for note in run.notes()]
    tasks = [(run.config.get("environment"), run.params()) for run in runs]
    known = [params for _, params in tasks if params is not None]
    if len({environment for environment, _ in tasks}) > 1 or any(params != known[0] for params in known):
        notes.append("The runs are of the same id with different settings or parameters: their returns differ in kind.")
    if len({run.config.get("eval_policy") for run in runs if run.evaluations}) > 1:
        notes.append("The policies act in different ways in the evaluations (greedy, sampled, search).")
    if len({run.source for run in runs} - {""}) > 1:
        notes.append("Evaluations and training episodes stand side by side: they are not the same.")
    return warning(list(dict.fromkeys(notes)))


def _curves(runs: Sequence[Run], metrics: Sequence[str]) -> str:
    figures = []
    over = " or ".join(dict.fromkeys(unit_of_steps(run.config) for run in runs))
    of_training = "Training episodes" + (
        ", on the levels of its curriculum" if any(r.chooses_levels for r in runs) else ""
    )
    wanted = [
        ("level_return", "Held-out levels", 1),
        ("return", "Evaluations", 1),
        ("episode_return", of_training, None),
    ]
    for name, heading, window in (*wanted, *((m, m.replace("_", " "), None) for m in metrics)):
        lines = []
        for color, run in enumerate(runs):
            steps, values = run.values(run.evaluations if window == 1 else run.rows, name)
            if np.isfinite(values).any():
                values = np.where([[seed in run.diverged for seed in run.seeds]], np.nan, values)
                lines += _curve(run, steps, smoothed(values, window or max(1, len(values) // 40)), color)
        if lines:
            drawn = chart(lines, heading, f"{over} a seed", "", height=270)
            figures.append(drawn.replace("<figure>", f"<figure><figcaption>{text(heading)}</figcaption>", 1))
    if not figures:
        return ""
    words = "Lines: the IQM over seeds; bands: its 95 % interval; faint: single seeds. Training: trailing means."
    return f'<h3>Learning curves</h3><p class="soft">{words}</p><div class="grid2">{"".join(figures)}</div>'


def _curve(run: Run, steps: np.ndarray, values: np.ndarray, color: int) -> list[Line]:
    """The IQM over seeds with its interval, and the single seeds behind it; rows in which none has a value left out."""
    some = np.flatnonzero(np.isfinite(values).any(1))
    steps, values = steps[some], values[some]
    some = np.unique(np.linspace(0, len(steps) - 1, min(ROWS, len(steps))).astype(int))
    steps, values = steps[some], values[some]
    known = [row[np.isfinite(row)] for row in values]
    middle = np.array([iqm(row) if row.size else np.nan for row in known])
    if values.shape[1] == 1:
        return [Line(run.name, steps, middle, color)]
    bands = np.array([bootstrap_interval(row) if row.size > 1 else (np.nan, np.nan) for row in known])
    seeds = [Line(f"seed {s}", steps, values[:, i], color, "thin", shown=False) for i, s in enumerate(run.seeds)]
    few = seeds if len(seeds) <= 12 else []
    return [*few, Line(run.name, steps, middle, color, "bold", bands[:, 0], bands[:, 1])]


def _spread(runs: Sequence[Run]) -> str:
    rows = []
    for color, run in enumerate(runs):
        scores = _scores(run)
        dots = [(f"{run.name}, seed {seed}", float(x)) for seed, x in zip(run.seeds, run.final(), strict=True)]
        middle = (iqm(scores), *bootstrap_interval(scores)) if scores.size > 1 else None
        rows.append((run.name, color, dots, middle))
    words = "A dot a seed; the mark is the IQM, the bar its 95 % interval."
    return f'<h3>Seed by seed</h3><p class="soft">{words}</p>' + strip(rows, "Returns of seeds", "return")


def _improvement(runs: Sequence[Run]) -> str:
    rows = []
    for one, other in itertools.combinations(runs, 2):
        ahead, behind = (one, other) if iqm(_scores(one)) >= iqm(_scores(other)) else (other, one)
        x, y = _scores(ahead), _scores(behind)
        probability, (low, high) = probability_of_improvement(x, y)
        interval = f"{low:.2f} to {high:.2f}" if min(len(x), len(y)) > 1 else "–"
        rows.append((f"{ahead.name} over {behind.name}", f"{probability:.2f}", interval, f"{len(x)}, {len(y)}"))
    return "<h3>Probability of improvement</h3>" + table(("", "probability", "95 % interval", "seeds"), rows)


# ---- settings


def _settings(run: Run) -> dict[str, str]:
    """All that was said of a run, by name, as words. Raises RunFolderError for a config that does not say it."""
    with said_of(run.files.config):
        return _said(run)


def _said(run: Run) -> dict[str, str]:
    config, recipe = run.config, run.recipe or {}
    found: dict[str, Any] = {"algorithm": config["algorithm"]}
    found |= {f"config.{name}": value for name, value in config["config"].items()}
    for name, value in config["hyper"].items():
        of_seeds = isinstance(value, list) and len(value) == (config.get("num_seeds") or 1) and np.ndim(value) == 1
        own = [value[seed] for seed in run.seeds] if of_seeds else value
        found[f"hyper.{name}"] = own[0] if isinstance(own, list) and len(set(own)) == 1 else own
    found |= {f"params.{name}": value for name, value in (run.params() or {}).items()}
    if "curriculum" in recipe:
        found["curriculum"] = recipe["curriculum"]["name"]
    found |= tree_values({part: dict(recipe[part]) for part in ("dataset", "model") if part in recipe})
    found["seeds"] = len(run.seeds)
    for name in ("total_steps", "eval_every", "eval_episodes", "eval_policy", "reset", "environment"):
        found[name] = config.get(name)
    return {name: _word(value) for name, value in found.items()}


def _word(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "–" if value is None else str(value)


def _differences(runs: Sequence[Run]) -> str:
    settings = [_settings(run) for run in runs]
    names = list(dict.fromkeys(name for own in settings for name in own))
    rows = [(name, *(own.get(name, "–") for own in settings)) for name in names]

    def differs(row: tuple[str, ...]) -> bool:
        unknown = {"–"} if row[0].startswith("params.") else set()
        return len({*row[1:]} - unknown) > 1

    differing = [row for row in rows if differs(row)]
    same = len(rows) - len(differing)
    if not differing:
        return "<h3>Settings</h3><p>All settings of the runs are the same.</p>"
    header = ("setting", *(run.name for run in runs))
    rest = f'<p class="soft">{same} other settings are the same in all.</p>'
    return "<h3>Settings that differ</h3>" + table(header, differing) + rest


def _machines(runs: Sequence[Run]) -> str:
    folders = list({run.folder: run for run in runs}.values())
    names = list(dict.fromkeys(name for run in folders for name in run.config["versions"]))
    rows = [(name, *(str(run.config["versions"].get(name, "–")) for run in folders)) for name in names]
    for name in ("device", "processors", "commit", "started"):
        rows.append((name, *(_word(run.config.get(name)) for run in folders)))
    for name, unit in (("compile_seconds", "s"), ("run_seconds", "s"), ("steps_per_second", "1/s, of one seed")):
        of = [(run.summary or {}).get(name) for run in folders]
        what = name.replace("_", " ").removesuffix(" seconds")
        rows.append((f"{what} [{unit}]", *("–" if x is None else number(x) for x in of)))
    differing = [row[0] for row in rows if row[0] in names and len(set(row[1:])) > 1]
    notes = [f"The runs are of different versions of {', '.join(differing)}."] if differing else []
    shown = [(run.name.split(": ")[0] if run.setting else run.name) for run in folders]
    return warning(notes) + table(("", *shown), rows)


# ---- one run


def _run(run: Run, record_episodes: bool) -> str:
    with said_of(run.files.config):
        return _part_of(run, record_episodes)


def _part_of(run: Run, record_episodes: bool) -> str:
    name = run.name.split(": ")[0] if run.setting else run.name
    parts = [f"<h3>{text(name)}</h3>"]
    command = command_of(run.folder, run.config)
    if command is None:
        why = run.config.get("no_recipe")
        parts.append(f"<p>Made by a program in Python{': ' + text(why) if why else ' (jaxrl.fit).'}</p>")
    else:
        parts.append(f"<p>Made by</p><pre>{text(command)}</pre>")
    parts.append(folded("All settings", table(("setting", ""), _settings(run).items())))
    files = sorted(run.files.media.glob("*")) if run.files.media.is_dir() else []
    own = ("curve.png", "episode.png")  # which the page draws itself
    shown = [media(file) for file in files if file.suffix.lower() in MEDIA and file.name not in own]
    if shown:
        parts.append(f'<div class="media">{"".join(shown)}</div>')
    parts.append(_episode(run, record_episodes))
    return "\n".join(part for part in parts if part)


def _episode(run: Run, record_episodes: bool) -> str:
    """The part on an episode; nothing for a task that has no time plot."""
    heading = "<h4>An episode</h4>"
    try:
        episode = recorded.read(run.folder)
        if episode is None and record_episodes and _continuous(run):
            print(f"{run.folder}: playing an episode (--no-episodes leaves it out)", file=sys.stderr)
            episode = recorded.record(run.folder, seed=run.seeds[0])
    except (RunFolderError, CheckpointError, ValueError, TypeError, ImportError, OSError) as error:
        return heading + warning([f"No episode can be shown: {' '.join(str(error).split())}"])
    return "" if episode is None else heading + episodes.section(episode, level=5)


@functools.cache
def _has_plot(env_id: str, settings: tuple) -> bool:
    from jaxrl import registry
    from jaxrl.spaces import Box

    env, params = registry.make(env_id, **dict(settings))
    return isinstance(env.action_space(params), Box) and recorded.shows(env, params)


def _continuous(run: Run) -> bool:
    """Whether it is of a task with continuous actions and something to plot, whose policy can be had again."""
    from jaxrl.host.run.recipe_inputs import settings_of

    recipe = run.config.get("recipe")
    if recipe is None or not may_run(recipe):
        return False
    if not (run.files.checkpoints.is_dir() and any(run.files.checkpoints.iterdir())):
        return False
    return _has_plot(recipe["env_id"], tuple(settings_of(recipe).items()))
