"""A run folder as it grows: what a page shows of it while it trains, and afterwards."""

from __future__ import annotations

import contextvars
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.host.browser.server import Blob, Missing
from jaxrl.host.cli.flags import key_of, refuse_zoo, require_episode_fits
from jaxrl.host.run import checkpoint
from jaxrl.host.run.files import MOST_BYTES, read_json
from jaxrl.host.run.run_folder import RunFolder, RunFolderError, Tail, unit_of_steps

POINTS = 300
"""Of a curve; of more rows, means of neighbours."""

MOST_LINES = 12
"""Of more seeds the least and the greatest are shown in place of each one's."""

SILENT = 60.0
"""Seconds without a row after which a run without a summary is said to be silent."""

RECENT = 30.0
"""Seconds over which the speed is measured."""

LONGEST_FILM = 500
"""Steps, as `jaxrl render` has them."""


class Watched:
    """A run, which may not have begun. Nothing is written to its folder.

    Raises RunFolderError for a folder that holds something else, ValueError for a policy of the zoo.
    """

    name = "watch"

    def __init__(self, folder: str | Path, dataset: Path | None = None) -> None:
        refuse_zoo([folder], "it has no learning curve; `jaxrl play` shows its policy.")
        self.path, self.dataset = Path(folder), dataset
        self.folder = RunFolder(self.path)
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is no folder.")
        if self.path.exists() and self._config() is None and any(p.name[0] != "." for p in self.path.iterdir()):
            self.folder.read_config()  # which says what is wrong
        self.rows, self.evaluations = Tail(self.folder.metrics), Tail(self.folder.evaluations)
        self._seen: list[tuple[float, int]] = []
        self._film: dict[str, Any] = {"state": "none"}
        self._made: bytes | None = None
        self._count = 0
        self._lock = threading.RLock()
        self._context = contextvars.copy_context()  # in which --trust was said
        self.get = {"state": self._state, "curve": self._curve, "film": self._kept_film, "made.gif": self._made_film}
        self.post = {"film": self._make_film}

    def _config(self) -> dict[str, Any] | None:
        """The config; None where it is not there yet. Raises RunFolderError for one that cannot be read."""
        if not self.folder.config.exists():
            self.folder.refuse_sweep()
            return None
        config = self.folder.read_config()
        if missing := [name for name in ("algorithm", "env", "total_steps") if name not in config]:
            raise RunFolderError(f"{self.folder.config} has no {', '.join(missing)}: it is of no run of jaxrl.")
        return config

    # ---- what the page asks

    def _state(self, asked: dict[str, str]) -> dict[str, Any]:
        with self._lock:
            try:
                config = self._config()
                if config is None:
                    words = f"{self.path} is not there yet, or nothing is in it: the page waits for the run to begin."
                    return {"phase": "waiting", "words": words, "folder": str(self.path)}
                self.rows.update()
                self.evaluations.update()
                return self._told(config)
            except RunFolderError as error:
                return {"phase": "wrong", "words": str(error), "folder": str(self.path)}

    def _told(self, config: dict[str, Any]) -> dict[str, Any]:
        last = [tail.rows[-1] for tail in (self.rows, self.evaluations) if tail.rows]
        step, total = max((row["step"] for row in last), default=0), int(config["total_steps"])
        phase, words = self._phase(step, total)
        rate = self._rate(step) if phase == "training" else None
        names = list(self.rows.rows[-1]) if self.rows.rows else []
        judged = list(self.evaluations.rows[-1]) if self.evaluations.rows else []
        return {
            "phase": phase,
            "words": words,
            "folder": str(self.path),
            "algorithm": config["algorithm"],
            "env": config["env"],
            "seeds": config.get("num_seeds") or 1,
            "unit": unit_of_steps(config),
            "step": step,
            "total": total,
            "rate": rate,
            "left": (total - step) / rate if rate else None,
            "metrics": [name for name in names if name not in ("update", "step")],
            "judged": [name for name in ("return", "level_return") if name in judged],
            "rows": len(self.rows.rows),
            "evaluations": len(self.evaluations.rows),
            "latest": self._latest(),
            "films": self._films(),
            "made": self._film,
            "checkpoints": checkpoint.steps(self.folder.checkpoints)[-1:],
        }

    def _phase(self, step: int, total: int) -> tuple[str, str]:
        summary, rows = (_changed(file) for file in (self.folder.summary, self.folder.metrics))
        if summary is not None and (rows is None or summary >= rows):
            try:
                told = read_json(self.folder.summary)
            except (OSError, ValueError):
                told = {}
            if isinstance(told, dict) and told.get("interrupted"):
                return "interrupted", f"Interrupted: `jaxrl resume {self.path}` goes on."
            return "finished", "Finished."
        quiet = time.time() - (rows or _changed(self.folder.config) or time.time())
        if quiet > SILENT:
            return "silent", f"No row for {_spoken(quiet)}: it was killed, or it compiles or evaluates for long."
        return "training", "Training." if self.rows.rows else "It compiles: the first rows come after that."

    def _rate(self, step: int) -> float | None:
        """Steps a second, of a seed, as long as the page looks."""
        now = time.monotonic()
        if not self._seen or step != self._seen[-1][1]:
            self._seen.append((now, step))
        self._seen = [(t, s) for t, s in self._seen if now - t <= RECENT] or self._seen[-1:]
        (first, from_), (last, to) = self._seen[0], self._seen[-1]
        return (to - from_) / (last - first) if last > first and to > from_ else None

    def _latest(self) -> dict[str, float | None]:
        """Means over seeds: of the last evaluation, and of the last row in which an episode ended."""
        found = {}
        for name, rows in (("return", self.evaluations.rows), ("episode_return", self.rows.rows)):
            values = (np.ravel(np.asarray(row[name], float)) for row in reversed(rows) if name in row)
            known = next((x[np.isfinite(x)] for x in values if np.isfinite(x).any()), None)
            found[name] = None if known is None else float(known.mean())
        return found

    def _curve(self, asked: dict[str, str]) -> dict[str, Any]:
        """A metric of the rows, or of the evaluations, against steps."""
        with self._lock:
            name = asked.get("metric", "episode_return")
            rows = self.evaluations.rows if asked.get("of") == "evaluations" else self.rows.rows
            return curve([row for row in rows if name in row], name)

    def _films(self) -> list[dict[str, Any]]:
        """Films and pictures of the folder, the newest first."""
        if not self.folder.media.is_dir() or self.folder.media.is_symlink():
            return []
        files = [p for p in self.folder.media.iterdir() if p.suffix in (".gif", ".mp4") and not p.is_symlink()]
        found = [(_changed(file) or 0.0, file.name) for file in files if file.is_file()]
        return [{"name": name, "changed": changed} for changed, name in sorted(found, reverse=True)]

    def _kept_film(self, asked: dict[str, str]) -> Blob:
        name = asked.get("name", "")
        if name not in [film["name"] for film in self._films()]:
            raise Missing(f"{name[:80]!r} is no film of this run.")
        file = self.folder.media / name
        if (size := file.stat().st_size) > MOST_BYTES:  # it is sent from memory
            raise ValueError(f"{name[:80]!r} has {size} bytes, more than a page shows: open {file} itself.")
        return Blob(file.read_bytes(), file.suffix)

    def _made_film(self, asked: dict[str, str]) -> Blob:
        if self._made is None:
            raise Missing("No film was made.")
        return Blob(self._made, ".gif")

    # ---- what the page does

    def _make_film(self, said: dict[str, Any]) -> dict[str, Any]:
        """Play an episode of the newest checkpoint and draw it, meanwhile; `state` says when it is there."""
        with self._lock:
            seed = said.get("seed", 0)
            if type(seed) is not int:
                raise ValueError(f"seed {seed!r:.60}: it must be a whole number.")
            if self._film["state"] != "making":
                self._film = {"state": "making", "seed": seed}
                work = self._context.copy()
                threading.Thread(target=work.run, args=(self._render, seed), daemon=True).start()
            return self._film

    def _render(self, seed: int) -> None:
        from jaxrl.host.render import film
        from jaxrl.zoo import of_seed, policies_of

        try:
            found = policies_of(self.path, dataset=self.dataset)
            algo, policy, env, params = of_seed(found, seed)
            require_episode_fits(env, params, LONGEST_FILM)
            shown = film(algo, policy, key_of(seed), env, params, max_steps=LONGEST_FILM)
            made = shown.gif()
            self._count += 1
            ready = {"state": "ready", "seed": seed, "update": found.update, "count": self._count}
            with self._lock:
                self._made, self._film = made, ready
        except Exception as error:  # of whatever a run names: the page says it
            words = " ".join(str(error).split())[:500] or type(error).__name__
            with self._lock:
                self._film = {"state": "failed", "seed": seed, "words": words}


def curve(rows: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """Steps, the mean over seeds, and each seed's values or, of many, the least and the greatest; NaN where no seed
    has a value. Neighbours are averaged where there are more rows than points.
    """
    if not rows:
        return {"steps": [], "mean": [], "seeds": []}
    steps = np.array([row["step"] for row in rows], float)
    table = np.stack([np.atleast_1d(np.asarray(row[name], float)) for row in rows])  # (rows, seeds)
    table = np.where(np.isfinite(table), table, np.nan)
    groups = np.array_split(np.arange(len(rows)), min(POINTS, len(rows)))
    with warnings.catch_warnings():  # where no seed has a value there is no mean
        warnings.simplefilter("ignore", RuntimeWarning)
        steps = np.array([steps[g[-1]] for g in groups])
        table = np.stack([np.nanmean(table[g], 0) for g in groups])
        found: dict[str, Any] = {"steps": steps, "mean": np.nanmean(table, 1)}
        if 1 < table.shape[1] <= MOST_LINES:
            return {**found, "seeds": table.T}
        band = {} if table.shape[1] == 1 else {"least": np.nanmin(table, 1), "greatest": np.nanmax(table, 1)}
        return {**found, "seeds": [], **band}


def _changed(file: Path) -> float | None:
    """When a file was last written; None where it is not there."""
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def _spoken(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
