"""Where rows go as they are logged: JSONL and CSV always, TensorBoard and Weights & Biases when asked."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import numpy as np

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

MOST_SEEDS = 32
"""Of runs of more seeds, TensorBoard and W&B are given evaluations as means alone."""


class Logger:
    """Writes rows to metrics.jsonl and metrics.csv, evaluations to evaluations.jsonl, and both to other loggers."""

    def __init__(self, folder: RunFolder, loggers: tuple[str, ...] = (), config: dict[str, Any] | None = None) -> None:
        check_loggers(loggers)
        self.folder = folder
        self.jsonl = folder.metrics.open("a")
        self.table = folder.table.open("a", newline="")
        self.columns: list[str] | None = None
        self.sinks: list[Any] = []
        self.closers: list[Any] = []
        if "tensorboard" in loggers:
            from tensorboardX import SummaryWriter

            # after a resume, what TensorBoard has beyond the rows is shown no more
            rows = read_rows(folder.metrics, arrays=True, only=())
            writer = SummaryWriter(str(folder.tensorboard), purge_step=rows[-1]["step"] + 1 if rows else None)
            self.sinks.append(lambda row: [writer.add_scalar(k, v, row["step"]) for k, v in row.items()])
            self.closers.append(writer.close)
        if "wandb" in loggers:
            run = _wandb(folder, config)
            self.sinks.append(lambda row: run.log(row, step=row["step"]))
            self.closers.append(run.finish)

    def write(self, row: dict[str, Any]) -> None:
        """One row: JSONL keeps a value a seed, CSV and the others get the mean over seeds."""
        self.jsonl.write(json.dumps(row, default=number_of) + "\n")
        self.jsonl.flush()
        if self.columns is None and self.table.tell() == 0:
            self.table.writelines(table_lines([row]))
        else:
            self.table.writelines(table_lines([row], self.columns or list(row)))
        self.columns = self.columns or list(row)
        self.table.flush()
        self._tell({k: mean_of(v) for k, v in row.items()})

    def evaluated(self, row: dict[str, Any]) -> None:
        """One evaluation: the other loggers get `evaluation/return`, the mean over seeds, and `evaluation/return/3`,
        that of seed 3; alike `evaluation/level_return` on held-out levels.
        """
        with self.folder.evaluations.open("a") as file:
            file.write(json.dumps(row) + "\n")
        told: dict[str, Any] = {"step": row["step"]}
        for name in ("return", "level_return"):
            if name in row:
                seeds = np.ravel(np.array(row[name], object))
                told[f"evaluation/{name}"] = mean_of([x for x in seeds if x is not None])
                if 1 < len(seeds) <= MOST_SEEDS:
                    told |= {f"evaluation/{name}/{i}": x for i, x in enumerate(seeds)}
        self._tell(told)

    def _tell(self, row: dict[str, Any]) -> None:
        for sink in self.sinks:
            sink({k: v for k, v in row.items() if v is not None})

    def close(self) -> None:
        for close in (self.jsonl.close, self.table.close, *self.closers):
            close()


def _wandb(folder: RunFolder, config: dict[str, Any] | None) -> Any:
    """The run of W&B that the folder's rows go to: the same one after a resume, as its id is kept in wandb.json.

    The project is `WANDB_PROJECT`, by default jaxrl; group and tags are W&B's own `WANDB_RUN_GROUP`, `WANDB_TAGS`.
    """
    import wandb

    known = _known(folder) if folder.wandb.exists() else None
    project = os.environ.get("WANDB_PROJECT", "jaxrl")
    run = wandb.init(
        project=project, dir=str(folder.path), config=config, name=folder.path.name, id=known, resume="allow"
    )
    if known is None:
        write_json(folder.wandb, {"id": run.id})
    return run


def _known(folder: RunFolder) -> str:
    """The id of the run of W&B so far. Raises RunFolderError, which names the file, where none is in it."""
    try:
        known = read_json(folder.wandb)["id"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        known = error
    if not isinstance(known, str) or not re.fullmatch(r"[\w-]{1,128}", known):
        raise RunFolderError(
            f'{folder.wandb} has no id of a run of W&B: write it there as {{"id": ...}}, or remove the file to begin a '
            "new one."
        )
    return known


def check_loggers(loggers: tuple[str, ...]) -> None:
    """Raise ValueError for an unknown logger, ImportError for one that is not installed."""
    import importlib.util

    modules = {"tensorboard": "tensorboardX", "wandb": "wandb"}
    for name in loggers:
        if name not in modules:
            raise ValueError(f"loggers={name!r}: choose from {', '.join(modules)} (JSONL and CSV always are written).")
        if importlib.util.find_spec(modules[name]) is None:
            raise ImportError(f"The {name} logger needs a package that is not installed: pip install {modules[name]}.")
