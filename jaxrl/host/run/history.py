"""What `fit` logs: rows of metrics and of evaluations."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.evaluation import EpisodeStats
from jaxrl.host.run.loggers import Log, Logger
from jaxrl.host.run.run_folder import RunFolder, read_rows

OF_EPISODES = ("episode_return", "episode_length")


def _mean(x: np.ndarray, count: np.ndarray | None) -> np.ndarray:
    """The mean over the updates (K, ...) that know it, each weighing as much as what was counted in it."""
    if count is None:
        return np.asarray(np.nanmean(x, axis=0))
    weights = np.where(np.isnan(x), 0, count)
    return np.asarray(np.where(np.isnan(x), 0, x * weights).sum(0) / weights.sum(0))


class History:
    """Rows as they are logged: the mean over `log_every` updates, per seed. Starts with what the folder holds."""

    def __init__(
        self,
        folder: RunFolder | None,
        loggers: tuple[str | Log, ...],
        settings: dict,
        num_seeds: int | None,
        every: int,
        steps: int,
    ):
        self.every, self.steps, self.num_seeds = every, steps, num_seeds
        self.logger = None if folder is None else Logger(folder, loggers, settings, num_seeds)
        self.rows = [] if folder is None else [_arrays(row) for row in read_rows(folder.metrics, arrays=True)]
        self.pending: list[dict[str, np.ndarray]] = []
        self.evaluations = [] if folder is None else read_rows(folder.evaluations)
        self.last: dict[str, Any] = self.rows[-1] if self.rows else {}
        self.told = len(self.rows)  # rows of which `recent` has told
        known = (row["episode_return"] for row in reversed(self.rows) if not np.isnan(row["episode_return"]).all())
        self.recent_return: np.ndarray | None = next(known, None)

    def __enter__(self) -> History:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.logger is not None:
            self.logger.close(failed=exc[0] is not None)

    def add(self, first: int, rows: dict[str, np.ndarray], last: bool) -> None:
        count = len(rows["loss"])
        for i in range(count):
            self.pending.append({k: v[i] for k, v in rows.items()})
            if (first + i + 1) % self.every == 0 or (last and i + 1 == count):
                self._write(first + i + 1)

    def _write(self, update: int) -> None:
        with warnings.catch_warnings():  # no episode ended: the mean of nothing is NaN, as it should be
            warnings.simplefilter("ignore", RuntimeWarning)
            rows = {k: np.array([p[k] for p in self.pending], float) for k in self.pending[0]}
            means = {k: _mean(x, rows["episodes"] if k in OF_EPISODES else None) for k, x in rows.items()}
        means["episodes"] = rows["episodes"].sum(0)
        self.pending.clear()
        if not np.isnan(means["episode_return"]).all():
            self.recent_return = means["episode_return"]
        self.last = {"update": update, "step": update * self.steps, **means}
        self.rows.append(self.last)
        if self.logger is not None:
            self.logger.write({k: _plain(v) for k, v in self.last.items()})

    def recent(self) -> dict[str, Any]:
        """The mean of the rows since the last call, each return weighing as many episodes as ended in its row; the
        last row where there is none since.
        """
        rows, self.told = self.rows[self.told :], len(self.rows)
        if len(rows) < 2:
            return self.last
        with warnings.catch_warnings():  # as in `_write`
            warnings.simplefilter("ignore", RuntimeWarning)
            columns = {k: np.array([row[k] for row in rows], float) for k in rows[0] if k not in ("update", "step")}
            means = {k: _mean(x, columns["episodes"] if k in OF_EPISODES else None) for k, x in columns.items()}
        means["episodes"] = columns["episodes"].sum(0)
        return {"update": self.last["update"], "step": self.last["step"], **means}

    def evaluated(self, update: int, stats: EpisodeStats, levels: np.ndarray | None = None) -> float:
        """Log an evaluation, and its returns on held-out `levels`, each with a last axis of episodes. Returns by how
        much it is better than the best one before, infinity where there was none.
        """
        row: dict[str, Any] = {
            "update": update,
            "step": update * self.steps,
            "return": _plain(stats.returns.mean(-1)),
            "length": _plain(stats.lengths.mean(-1)),
            "episodes": stats.returns.shape[-1],
        }
        if levels is not None:
            row |= {"level_return": _plain(levels.mean((-2, -1))), "levels": _plain(levels.mean(-1))}
        before = max((_score(row) for row in self.evaluations), default=-np.inf)
        self.evaluations.append(row)
        if self.logger is not None:
            self.logger.evaluated(row)
        return _score(row) - before if before > -np.inf else np.inf

    def filmed(self, update: int, path: Path) -> None:
        """Tell the loggers of a film."""
        if self.logger is not None:
            self.logger.filmed(update * self.steps, path)

    def ended(self, update: int, summary: dict[str, Any]) -> None:
        """Tell the loggers how the run ended."""
        if self.logger is not None:
            self.logger.ended(update * self.steps, summary)

    def metrics(self) -> dict[str, np.ndarray]:
        return {k: np.stack([row[k] for row in self.rows]) for k in self.last}

    def summary(self) -> dict[str, Any]:
        final = self.evaluations[-1]["return"] if self.evaluations else None
        return {
            "evaluation": final,
            "episode_return": None if self.recent_return is None else _plain(self.recent_return),
        }


def _score(row: dict[str, Any]) -> float:
    """By which evaluations are compared: the mean return of the seeds."""
    returns = [x for x in np.ravel(row["return"]) if x is not None and np.isfinite(x)]
    return float(np.mean(returns)) if returns else -np.inf


def _plain(x: Any) -> Any:
    """Lists and numbers for JSON, which has no NaN and no infinity: None."""
    if isinstance(x, int):
        return x
    x = np.asarray(x)
    return [_plain(v) for v in x] if x.ndim else (x.item() if np.isfinite(x) else None)


def _arrays(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it was before it was logged: None as NaN."""
    return {k: v if isinstance(v, int) else np.asarray(np.nan if v is None else v, float) for k, v in row.items()}
