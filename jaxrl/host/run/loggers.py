"""Where rows go as they are logged: JSONL and CSV always, TensorBoard, Weights & Biases and functions when asked."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl import registry
from jaxrl.host.run.files import read_json
from jaxrl.host.run.run_folder import (
    RunFolder,
    RunFolderError,
    mean_of,
    number_of,
    read_rows,
    table_lines,
    write_json,
)
from jaxrl.host.statistics import bootstrap_interval

Log = Callable[[str, dict[str, Any]], None]
"""A logger: told of what the row is, "metrics", "evaluation", "video" or "summary", and the row. `step` are environment
steps a seed; of several seeds a value is a list, with None for what is not finite. A video's row has its `path`.
"""

MOST_SEEDS = 32
"""Runs of more seeds are told to TensorBoard and W&B as means and intervals alone."""

OF_RETURNS = ("episode_return", "evaluation/return", "evaluation/level_return")
"""What is told with the 95 % bootstrap interval of its mean over seeds."""


class Logger:
    """Writes rows to metrics.jsonl and metrics.csv, evaluations to evaluations.jsonl, and tells both, films and the
    summary to the `loggers`: "tensorboard", "wandb", or a function (`Log`), itself or as `module:name`.
    """

    def __init__(
        self,
        folder: RunFolder,
        loggers: tuple[str | Log, ...] = (),
        config: dict[str, Any] | None = None,
        num_seeds: int | None = None,
    ) -> None:
        check_loggers(loggers)
        self.folder = folder
        seeds = range(num_seeds or 1) if (num_seeds or 1) <= MOST_SEEDS else range(0)
        known = {"tensorboard": _TensorBoard, "wandb": _WandB}
        self.told: list[Any] = []
        try:
            for logger in loggers:
                if isinstance(logger, str) and logger in known:
                    self.told.append(known[logger](folder, config, seeds))
                else:
                    self.told.append(registry.own_function(logger) if isinstance(logger, str) else logger)
        except BaseException:
            self._close_others(failed=True)
            raise
        self.jsonl = folder.metrics.open("a")
        self.table = folder.table.open("a", newline="")
        self.columns: list[str] | None = None

    def write(self, row: dict[str, Any]) -> None:
        """One row: JSONL keeps a value a seed, CSV has the mean over seeds."""
        self.jsonl.write(json.dumps(row, default=number_of) + "\n")
        self.jsonl.flush()
        if self.columns is None and self.table.tell() == 0:
            self.table.writelines(table_lines([row]))
        else:
            self.table.writelines(table_lines([row], self.columns or list(row)))
        self.columns = self.columns or list(row)
        self.table.flush()
        self._tell("metrics", row)

    def evaluated(self, row: dict[str, Any]) -> None:
        """One evaluation, which the loggers know as `evaluation/return`, and on held-out levels as
        `evaluation/level_return`.
        """
        with self.folder.evaluations.open("a") as file:
            file.write(json.dumps(row) + "\n")
        returns = {f"evaluation/{name}": row[name] for name in ("return", "level_return") if name in row}
        self._tell("evaluation", {"step": row["step"], **returns})

    def filmed(self, step: int, path: Path) -> None:
        """A film of the first seed."""
        self._tell("video", {"step": step, "path": path})

    def ended(self, step: int, summary: dict[str, Any]) -> None:
        """How the run ended, as summary.json has it."""
        self._tell("summary", {"step": step, **summary})

    def _tell(self, what: str, row: dict[str, Any]) -> None:
        for log in self.told:
            log(what, row)

    def close(self, failed: bool = False) -> None:
        """`failed`: an error ended the run, which W&B marks."""
        self.jsonl.close()
        self.table.close()
        self._close_others(failed)

    def _close_others(self, failed: bool) -> None:
        for log in self.told:
            if isinstance(log, _TensorBoard | _WandB):
                log.close(failed)


def of_seed(row: dict[str, Any], i: int) -> dict[str, Any]:
    """What a row says of seed `i`."""
    values = {name: (x[i] if isinstance(x, list) else x) for name, x in row.items()}
    return {name: x for name, x in values.items() if x is not None}


def over_seeds(row: dict[str, Any]) -> dict[str, Any]:
    """Means over seeds, and of returns the interval, as `episode_return/low` and `episode_return/high`."""
    told = {name: x if isinstance(x, dict) else mean_of(x) for name, x in row.items()}
    for name in OF_RETURNS:
        known = [x for x in row[name] if x is not None] if isinstance(row.get(name), list) else []
        if len(known) > 1:
            told[f"{name}/low"], told[f"{name}/high"] = bootstrap_interval(known, np.mean, resamples=200)
    return {name: x for name, x in told.items() if x is not None}


class _TensorBoard:
    """Of one seed its values; of several their means and intervals, and each seed as a run of its own beside them."""

    def __init__(self, folder: RunFolder, config: dict[str, Any] | None, seeds: range) -> None:
        from tensorboardX import SummaryWriter

        # after a resume, what TensorBoard has beyond the rows is shown no more
        rows = read_rows(folder.metrics, arrays=True, only=())
        purge = rows[-1]["step"] + 1 if rows else None
        self.main = SummaryWriter(str(folder.tensorboard), purge_step=purge)
        several = len(seeds) != 1
        self.seeds = [
            SummaryWriter(str(folder.tensorboard / f"seed-{i}"), purge_step=purge) for i in (seeds if several else ())
        ]
        if several:
            band = {name: ["Margin", [name, f"{name}/low", f"{name}/high"]] for name in OF_RETURNS}
            self.main.add_custom_scalars({"mean over seeds, 95 % interval": band})
        if config is not None and not rows:
            self.main.add_text("config", _code(config), 0)

    def __call__(self, what: str, row: dict[str, Any]) -> None:
        if what == "video":
            self._film(row["step"], row["path"])
        elif what == "summary":
            self.main.add_text("summary", _code(row), row["step"])
        else:
            for name, x in over_seeds(row).items():
                self.main.add_scalar(name, x, row["step"])
            for i, writer in enumerate(self.seeds):
                for name, x in of_seed(row, i).items():
                    writer.add_scalar(name, x, row["step"])

    def _film(self, step: int, path: Path) -> None:
        """The GIF as it is; `add_video` would want moviepy to make one."""
        from PIL import Image
        from tensorboardX.proto.summary_pb2 import Summary

        with Image.open(path) as film:
            width, height = film.size
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=path.read_bytes())
        assert self.main.file_writer is not None  # for type checkers: it writes to disk
        self.main.file_writer.add_summary(Summary(value=[Summary.Value(tag="policy", image=image)]), step)

    def close(self, failed: bool) -> None:
        for writer in (self.main, *self.seeds):
            writer.close()


def _code(values: dict[str, Any]) -> str:
    """Markdown of values as JSON: TensorBoard takes a text for Markdown."""
    return "".join(f"    {line}\n" for line in json.dumps(values, indent=2, default=str).splitlines())


class _WandB:
    """Each seed is a run of W&B, all in one group, for which its panels draw mean and spread; of one seed, and of more
    than `MOST_SEEDS`, there is one run.

    The project is `WANDB_PROJECT`, by default jaxrl, the group `WANDB_RUN_GROUP`, by default the folder's name.
    Without a network: `WANDB_MODE=offline`, and `wandb sync` later. After a resume the runs go on, as their ids are
    kept in wandb.json.
    """

    def __init__(self, folder: RunFolder, config: dict[str, Any] | None, seeds: range) -> None:
        import wandb

        known = _known(folder) if folder.wandb.exists() else [None] * max(1, len(seeds))
        name, several = folder.path.name, len(known) > 1
        settings: dict[str, Any] = {"project": os.environ.get("WANDB_PROJECT", "jaxrl"), "dir": str(folder.path)}
        if several:
            settings |= {"group": os.environ.get("WANDB_RUN_GROUP", name), "reinit": "create_new"}
        self.wandb, self.several = wandb, several
        self.runs = [
            wandb.init(**settings, config=config, name=f"{name}-{i}" if several else name, id=id, resume="allow")
            for i, id in enumerate(known)
        ]
        if not folder.wandb.exists():
            write_json(folder.wandb, {"ids": [run.id for run in self.runs]})

    def __call__(self, what: str, row: dict[str, Any]) -> None:
        if what == "video":
            self.runs[0].log({"policy": self.wandb.Video(str(row["path"]), format="gif")}, step=row["step"])
            return
        for i, run in enumerate(self.runs):
            told = of_seed(row, i) if self.several else over_seeds(row)
            if what == "summary":
                run.summary.update({name: x for name, x in told.items() if name != "step"})
            else:
                run.log(told, step=row["step"])

    def close(self, failed: bool) -> None:
        for run in self.runs:
            run.finish(exit_code=int(failed))


def _known(folder: RunFolder) -> list[str]:
    """The ids of the runs of W&B so far. Raises RunFolderError, which names the file, where none is in it."""
    known: Any = None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        read = read_json(folder.wandb)
        known = read["ids"] if "ids" in read else [read["id"]]  # of one run, as it was written once
    named = isinstance(known, list) and len(known) > 0
    if not named or not all(isinstance(x, str) and re.fullmatch(r"[\w-]{1,128}", x) for x in known):
        raise RunFolderError(
            f'{folder.wandb} has no ids of runs of W&B: write them there as {{"ids": [...]}}, or remove the file to '
            "begin new ones."
        )
    return known


MODULES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


def check_loggers(loggers: tuple[str | Log, ...]) -> None:
    """Raise ValueError for an unknown logger, ImportError for one that is not installed."""
    for name in loggers:
        if callable(name):
            continue
        if isinstance(name, str) and registry.is_own(name):
            registry.own_function(name)
        elif name not in MODULES:
            raise ValueError(
                f"loggers={name!r}: choose from {', '.join(MODULES)}, or name a function of yours, as my/logs.py:log "
                "(JSONL and CSV always are written)."
            )
        elif importlib.util.find_spec(MODULES[name]) is None:
            raise ImportError(f"The {name} logger needs a package that is not installed: pip install {MODULES[name]}.")


def words_of(loggers: tuple[str | Log, ...]) -> list[str]:
    """Loggers by words, for a run that goes on by its folder. A function that no word names, as one that is made within
    another, or in the script that runs, is left out.
    """
    words = []
    for logger in loggers:
        if isinstance(logger, str):
            words.append(logger)
            continue
        module, name = getattr(logger, "__module__", "__main__"), getattr(logger, "__name__", "")
        if module != "__main__" and getattr(sys.modules.get(module), name, None) is logger:
            words.append(f"{module}:{name}")
    return words
