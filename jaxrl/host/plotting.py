"""Learning curves and comparisons of run folders, and pictures of datasets and archives, as PNG, PDF or SVG by the
file's suffix. matplotlib loads when called.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.canvas import COLORS
from jaxrl.data.datasets import Dataset, Episodes
from jaxrl.host.run.config_file import checked
from jaxrl.host.run.run_folder import RunFolder, RunFolderError, read_rows, unit_of_steps
from jaxrl.quality_diversity.elites import Cells


def curve(folder: str | Path, metric: str = "episode_return") -> tuple[np.ndarray, np.ndarray]:
    """`(steps (rows,), values (rows, seeds))` of one run, of what was logged or else of its evaluations (`return`); NaN
    where there is no value.

    Raises RunFolderError when the folder has no metrics, or none of that name (the message lists those it has).
    """
    logged = read_rows(RunFolder(folder).metrics, arrays=True, only=(metric,))
    evaluated = read_rows(RunFolder(folder).evaluations)
    if not logged:
        RunFolder(folder).refuse_sweep()
        raise RunFolderError(f"{folder} has no metrics yet.")
    rows = next((rows for rows in (logged, evaluated) if rows and metric in rows[-1]), None)
    if rows is None:
        names = dict.fromkeys(name for rows in (logged, evaluated) for name in (rows[-1] if rows else ()))
        there = ", ".join(name for name in names if name not in ("update", "step"))
        raise RunFolderError(f"{folder} has no metric {metric!r}; it has {there}.")
    try:
        values = np.stack([np.atleast_1d(np.array(row[metric], float)) for row in rows])
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{folder}: its rows have no numbers of {metric} ({error}).") from error
    return np.array([row["step"] for row in rows]), values


def _drawn(folder: str | Path, metric: str) -> tuple[str, np.ndarray, np.ndarray]:
    """What is drawn as a metric, and its curve: for episodes' returns, where none ended, those of evaluations."""
    steps, values = curve(folder, metric)
    if metric != "episode_return" or not np.isnan(values).all():
        return metric, steps, values
    if read_rows(RunFolder(folder).evaluations):
        steps, values = curve(folder, "return")
    return "return_of_evaluations", steps, values


def _lengths(folder: str | Path, metric: str) -> np.ndarray | None:
    """Those of the episodes whose returns a metric's curve is; None where they were not logged."""
    name = {"episode_return": "episode_length", "return": "length", "return_of_evaluations": "length"}.get(metric)
    try:
        return None if name is None else curve(folder, name)[1]
    except RunFolderError:
        return None


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """Trailing mean over `window` rows that ignores NaN; the first rows average what there is."""
    filled = np.where(np.isnan(values), 0.0, values)
    total, count = np.cumsum(filled, 0), np.cumsum(~np.isnan(values), 0)
    total[window:], count[window:] = total[window:] - total[:-window], count[window:] - count[:-window]
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def plot(
    folders: Sequence[str | Path],
    out: str | Path,
    metric: str = "episode_return",
    window: int | None = None,
    normalized: bool = False,
) -> Path:
    """Curves of runs against their steps: the mean over seeds, the single seeds behind it.

    Args:
        metric: of a run in which no episode ended, as none does in learning from a dataset, `episode_return` is the
            `return` of its evaluations.
        window: rows of the trailing mean; default a fortieth of the run.
        normalized: returns of each run as `jaxrl.scores.normalized`, so that runs of several tasks may be on one axis.

    Raises RunFolderError for a folder without the metric or with no return, and if it is normalized for one whose task
    is not as its id has it, or has no score of record, ValueError for no folders, a window below
    1, or a suffix that matplotlib cannot write.
    """
    if not folders:
        raise ValueError("plot needs at least one run folder.")
    if window is not None and window < 1:
        raise ValueError(f"window={window}: it must be at least 1.")
    curves = [(*_drawn(folder, metric), folder) for folder in folders]
    if metric == "episode_return" and all(np.isnan(values).all() for _, _, values, _ in curves):
        which = ", ".join(map(str, folders))
        raise RunFolderError(f"{which}: no return to plot, no episode ended and no evaluation has one.")
    names = list(dict.fromkeys(_words(name) for name, *_ in curves))
    if normalized:
        from jaxrl.host.report.runs import normalized_returns

        shares = [normalized_returns(path, name, values, _lengths(path, name)) for name, _, values, path in curves]
        curves = [(name, steps, share, folder) for share, (name, steps, _, folder) in zip(shares, curves, strict=True)]
        names = [f"normalized {name}" for name in names]
    configs = [_config(folder) for folder in folders]
    over = dict.fromkeys(unit_of_steps(config) for config in configs)
    tasks = list(dict.fromkeys(str(config.get("env")) for config in configs))
    if len(tasks) > 1 and not normalized:
        print(f"{' and '.join(tasks)} are on one axis: their returns do not compare.", file=sys.stderr)
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for i, (name, steps, values, folder) in enumerate(curves):
        values = smoothed(values, window or max(1, len(steps) // 40))
        color = COLORS[i % len(COLORS)]
        if values.shape[1] > 1:
            axes.plot(steps, values, color=color, alpha=0.2, linewidth=0.8)
        label = _label(folder, values.shape[1]) + (f", {_words(name)}" if len(names) > 1 else "")
        marker = "o" if np.isfinite(values).any(1).sum() == 1 else None  # a line of one point is none
        axes.plot(steps, _mean(values), color=color, linewidth=2, label=label, marker=marker)
    axes.set(xlabel=f"{' or '.join(over)} a seed", ylabel=" or ".join(names))
    axes.xaxis.set_major_formatter(_thousands)
    axes.legend(frameon=False, loc="best")
    return _save(figure, out)


def bars(
    table: dict[str, Sequence[float]], out: str | Path, xlabel: str, reference: dict[str, float] | None = None
) -> Path:
    """One line an entry: each score as a dot, the mean as a bar, and a published or required value as a mark."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(7, 0.5 * len(table) + 1.2), layout="constrained")
    for row, (name, found) in enumerate(table.items()):
        axes.plot(found, np.full(len(found), row), "o", color=COLORS[0], alpha=0.35, markersize=5)
        axes.plot([np.mean(found)] * 2, [row - 0.3, row + 0.3], color=COLORS[0], linewidth=2.5)
        if reference and name in reference:
            axes.plot([reference[name]] * 2, [row - 0.3, row + 0.3], color=COLORS[1], linewidth=1.5, linestyle=":")
    axes.set_yticks(range(len(table)), list(table))
    axes.invert_yaxis()
    axes.set(xlabel=xlabel)
    return _save(figure, out)


def curves_by_task(
    tasks: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]],
    out: str | Path,
    label: str = "return",
    over: str = "environment steps",
) -> Path:
    """A panel a task with a curve an algorithm: `tasks[task][name] = (steps (P,), returns (seeds, P))`.

    The line is the IQM over seeds, the band its 95 % bootstrap interval; NaN (no episode ended) is left out.
    """
    from jaxrl.host.statistics import bootstrap_interval, iqm

    plt = _pyplot()
    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(4.4 * columns, 3.2 * rows), layout="constrained", squeeze=False)
    names = list(dict.fromkeys(name for curves in tasks.values() for name in curves))
    palette = plt.get_cmap("tab10" if len(names) <= 10 else "tab20").colors
    for axes, (task, curves) in zip(grid.flat, tasks.items(), strict=False):
        for name, (steps, returns) in curves.items():
            known = np.isfinite(returns).sum(0) >= max(1, len(returns) // 2)
            columns_of = [r[np.isfinite(r)] for r in returns[:, known].T]
            middle, band = [iqm(r) for r in columns_of], [bootstrap_interval(r) for r in columns_of]
            color = palette[names.index(name) % len(palette)]
            axes.plot(steps[known], middle, color=color, label=name, linewidth=1.6)
            axes.fill_between(steps[known], *np.array(band).reshape(-1, 2).T, color=color, alpha=0.2, linewidth=0)
        axes.set(title=task)
        axes.xaxis.set_major_formatter(_thousands)
        axes.legend(frameon=False, fontsize=7)
    for axes in grid.flat[len(tasks) :]:
        axes.axis("off")
    figure.supxlabel(over)
    figure.supylabel(label)
    return _save(figure, out)


def heat_map(points: Sequence[dict[str, float]], scores: Any, out: str | Path, label: str = "return") -> Path:
    """A sweep's scores, (points, seeds), against the settings that vary: mean over seeds, NaN (diverged) left empty.

    One setting: a curve with the seeds behind it. Two on a grid: a map with the numbers in it; of more, the first two,
    each cell the best over the others. Points that are no grid: dots, coloured.
    """
    plt = _pyplot()
    values = {name: sorted({point[name] for point in points}) for name in points[0]}
    names = [name for name in values if len(values[name]) > 1] or list(values)
    table = np.asarray(scores, float)
    diverged = np.isnan(table).any(1)
    mean = np.where(diverged, np.nan, np.nan_to_num(table).mean(1))
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    if len(names) == 1:
        x = np.array([point[names[0]] for point in points])
        order = np.argsort(x)
        axes.plot(x[order], table[order], "o", color=COLORS[0], alpha=0.3, markersize=4)
        axes.plot(x[order], mean[order], color=COLORS[0], linewidth=2)
        axes.set(xlabel=_words(names[0]), ylabel=label, xscale=_scale(x))
        return _save(figure, out)
    first, second = names[:2]
    is_grid = len(points) == np.prod([len(v) for v in values.values()])
    if is_grid:
        cells = np.full((len(values[first]), len(values[second])), np.nan)
        for point, score in zip(points, mean, strict=True):
            i, j = values[first].index(point[first]), values[second].index(point[second])
            cells[i, j] = np.fmax(cells[i, j], score)
        image = axes.imshow(cells, aspect="auto", origin="lower", cmap="viridis")
        middle = (np.nanmin(cells) + np.nanmax(cells)) / 2 if np.isfinite(cells).any() else 0
        for i, j in np.ndindex(*cells.shape):
            text, dark = ("diverged", False) if np.isnan(cells[i, j]) else (f"{cells[i, j]:.4g}", cells[i, j] < middle)
            axes.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
        axes.set_xticks(range(len(values[second])), [f"{v:g}" for v in values[second]])
        axes.set_yticks(range(len(values[first])), [f"{v:g}" for v in values[first]])
        axes.grid(False)
    else:
        x, y = (np.array([point[name] for point in points]) for name in (second, first))
        image = axes.scatter(x, y, c=mean, cmap="viridis", s=60)
        axes.plot(x[diverged], y[diverged], "x", color=COLORS[1], label="diverged")
        axes.set(xscale=_scale(x), yscale=_scale(y))
    others = f", best over {', '.join(_words(name) for name in names[2:])}" if len(names) > 2 and is_grid else ""
    axes.set(xlabel=_words(second), ylabel=_words(first))
    figure.colorbar(image, label=f"mean {label}{others}")
    return _save(figure, out)


def dataset_picture(dataset: Dataset, about: dict[str, Any], out: str | Path, names: Sequence[str] = ()) -> Path:
    """The returns of a dataset's episodes, with the reference scores of `about` as lines, and how often the first two
    numbers of its observations were seen, of what is no goal; `names` are those of all numbers.
    """
    import jax

    total = Episodes(dataset).total
    leaves = [(path, np.asarray(x)) for path, x in jax.tree_util.tree_leaves_with_path(dataset.obs)]
    shown = next((i for i, (path, _) in enumerate(leaves) if path != (jax.tree_util.DictKey("goal"),)), 0)
    path, obs = leaves[shown]
    columns = obs.reshape(len(obs), -1)[:, :2].T
    before = sum(x[0].size for _, x in leaves[:shown])
    names = names[before : before + 2]
    where = jax.tree_util.keystr(path, simple=True, separator=".") or "the observation"
    names = [*names, *(f"first number of {where}", "second number")[len(names) :]]
    known = about.get("reference") or {}
    references = {name: known[name] for name in ("random", "best") if name in known}
    plt = _pyplot()
    from matplotlib.ticker import LogLocator, MaxNLocator

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    everything = [*total, *references.values()]
    left.hist(total, bins=40, range=(min(everything), max(everything)), color=COLORS[0])
    for i, (name, score) in enumerate(references.items(), 1):
        left.axvline(score, color=COLORS[i], linewidth=1.8, linestyle="--", label=f"{name}: {score:.4g}")
    if references:
        left.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    left.set(xlabel="return", ylabel="episodes")
    left.locator_params("y", integer=True)
    if len(columns) == 2:
        *_, image = right.hist2d(*columns, bins=80, norm="log", cmap="viridis")
        right.grid(False)
        right.set(xlabel=names[0], ylabel=names[1])
        decades = image.norm.vmax >= 10 * image.norm.vmin
        ticks = LogLocator(subs=(1, 2, 5)) if decades else MaxNLocator(6, integer=True, steps=(1, 2, 5, 10))
        bar = figure.colorbar(image, label="steps", ticks=ticks, format=_thousands)
        bar.minorticks_off()
    else:
        whole = np.issubdtype(columns.dtype, np.integer)
        bins = np.arange(columns.min(), columns.max() + 2) - 0.5 if whole else 80
        right.hist(columns[0], bins=bins, color=COLORS[0])
        right.set(xlabel=names[0], ylabel="steps")
    made_of = (str(about[name]) for name in ("env", "recipe") if about.get(name))
    figure.suptitle(f"{' '.join(made_of)}: {dataset.size} steps, {len(total)} episodes".removeprefix(": "), fontsize=11)
    return _save(figure, out)


def archive_picture(
    archive: Cells, out: str | Path, names: Sequence[str] = ("first descriptor", "second descriptor"), label: str = ""
) -> Path:
    """The fitness of each cell of an archive over two descriptors: a map of a grid, or dots at centroids.

    Raises ValueError for an archive with another number of descriptors, or of several runs.
    """
    fitness = np.asarray(archive.fitness, float)
    if fitness.ndim != 1 or archive.centroids.shape[-1] != 2:
        raise ValueError(f"an archive of one run over two descriptors is drawn, not one of {archive.descriptor.shape}.")
    (left, low), (right, high) = np.asarray(archive.low, float), np.asarray(archive.high, float)
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(5.2, 4.4), layout="constrained")
    shown = np.ma.masked_array(fitness, ~np.isfinite(fitness))
    if archive.shape:
        cells = shown.reshape(archive.shape).T
        image = axes.imshow(cells, origin="lower", extent=(left, right, low, high), aspect="auto", cmap="viridis")
    else:
        middles = np.asarray(archive.centroids, float)[~shown.mask]
        image = axes.scatter(*middles.T, c=shown.compressed(), s=9, cmap="viridis")
    axes.grid(False)
    axes.set(xlim=(left, right), ylim=(low, high), xlabel=names[0], ylabel=names[1])
    figure.colorbar(image, label=label or "fitness")
    axes.set_title(f"{int((~shown.mask).sum())} of {len(fitness)} cells", fontsize=11)
    return _save(figure, out)


def _thousands(x: float, _: Any = None) -> str:
    return f"{x / 1e6:g}M" if x >= 1e6 else f"{x / 1e3:g}k" if x >= 1e3 else f"{x:g}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _scale(x: np.ndarray) -> str:
    """Logarithmic where all values are positive and span a decade."""
    return "log" if x.min() > 0 and x.max() >= 10 * x.min() else "linear"


def _mean(values: np.ndarray) -> np.ndarray:
    count = (~np.isnan(values)).sum(1)
    return np.where(count > 0, np.nansum(values, 1) / np.maximum(count, 1), np.nan)


def _config(folder: str | Path) -> dict[str, Any]:
    return checked(RunFolder(folder).read_config(), RunFolder(folder).config, whole=False)


def _label(folder: str | Path, seeds: int) -> str:
    config = _config(folder)
    what = f"{config.get('algorithm', '')} {config.get('env', '')}"
    return f"{Path(folder).name}: {what}" + (f" ({seeds} seeds)" if seeds > 1 else "")


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25})
    return plt


def check_format(out: Path) -> None:
    """Raise ValueError for a suffix that matplotlib cannot write."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if out.suffix[1:].lower() not in known:
        raise ValueError(f"{out}: the suffix must be one of {', '.join(sorted(known))}.")


def _save(figure: Any, out: str | Path) -> Path:
    import matplotlib.pyplot as plt

    out = Path(out)
    try:
        check_format(out)
    except ValueError:
        plt.close(figure)
        raise
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
    plt.close(figure)
    return out
