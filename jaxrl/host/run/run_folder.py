"""The files of one training run, and the one place that knows their names (`docs/run_folder.md` is the schema).

config.json, metrics.jsonl, metrics.csv, evaluations.jsonl, summary.json, checkpoints/, media/, tensorboard/
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import errno
import functools
import hashlib
import inspect
import io
import itertools
import json
import math
import os
import platform
import re
import shutil
import socket
import subprocess
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.host.run import checkpoint
from jaxrl.host.run.files import read_json, read_text

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


class RunFolderError(Exception):
    """A folder that cannot be used; the message names the remedy."""


class RunFolder:
    """Paths and append-only logs of a run."""

    def __init__(self, path: str | Path) -> None:
        if path == "":
            raise ValueError('out="": name a folder.')
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.arrays = self.path / "recipe.npz"
        self.metrics = self.path / "metrics.jsonl"
        self.table = self.path / "metrics.csv"
        self.evaluations = self.path / "evaluations.jsonl"
        self.summary = self.path / "summary.json"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.path / "best"
        self.media = self.path / "media"
        self.tensorboard = self.path / "tensorboard"
        self.wandb = self.path / "wandb.json"

    @contextlib.contextmanager
    def locked(self, shared: bool = False) -> Iterator[None]:
        """Hold the folder, which is made if need be, against other processes; `shared`: but those that share it, too.

        The lock is the operating system's, on the folder itself: it leaves no file and ends with the process, however
        that ends. Where there is none (Windows, some network file systems) nothing is held. Raises RunFolderError when
        another holds it, or the folder cannot be made.
        """
        with contextlib.ExitStack() as stack:
            with _as_folder_errors(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
                if fcntl is not None:
                    handle = os.open(self.path, os.O_RDONLY)
                    stack.callback(os.close, handle)  # which releases it
                    try:
                        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                    except BlockingIOError as error:
                        message = f"{self.path} is being written by another process: let it end, or name another."
                        raise RunFolderError(message) from error
                    except OSError as error:
                        if error.errno not in (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EBADF, errno.EINVAL):
                            raise
            yield

    def create(
        self,
        config: dict[str, Any],
        *,
        resume: bool = False,
        overwrite: bool = False,
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Make the folder and write its config, and the arrays of its recipe. A folder in which nothing was trained is
        taken as if it were new.

        Raises RunFolderError if it holds a run (say `resume` or `overwrite`), something of another program under a name
        of a run's files, or cannot be written.
        """
        with _as_folder_errors(self.path):
            self.refuse_links()
            self._check_own()
            if self.config.exists() and not resume:
                if not overwrite and self._trained():
                    raise RunFolderError(f"{self.path} holds a run already: resume it, overwrite it, or name another.")
                self.clear()
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / ".writable"
            probe.touch()
            probe.unlink()
            if not self.config.exists():
                self.describe(config, arrays or {})

    def describe(self, config: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Write the config and, where there are any, the arrays of its recipe."""
        if arrays:
            partial = self.arrays.with_name(f".{self.arrays.name}.partial")
            with partial.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **arrays)
            partial.replace(self.arrays)
        write_json(self.config, config)

    def _check_own(self) -> None:
        """Raise RunFolderError for files that no run of ours wrote: it writes its config first, and removes it last."""
        if self.config.exists():
            try:
                own = {"algorithm", "env", "hyper"} <= self.read_config().keys()
            except RunFolderError:
                own = False
            if not own:
                raise RunFolderError(f"{self.config} is damaged, or not jaxrl's: name another folder.")
            return
        there = [file for file in (self.metrics, self.table, self.evaluations, self.summary) if file.exists()]
        if checkpoint.steps(self.checkpoints):
            there.append(self.checkpoints)
        for file in there:
            raise RunFolderError(f"{file} is of no run of jaxrl (no config.json beside it): name another folder.")

    def _trained(self) -> bool:
        logged = (next(_streamed(file), None) for file in (self.metrics, self.evaluations))
        return bool(checkpoint.steps(self.checkpoints)) or any(row is not None for row in logged)

    def clear(self) -> None:
        """Remove what jaxrl wrote, by name, and no other file."""
        for folder in (self.checkpoints, self.best):
            checkpoint.drop_after(folder, -1)
            for partial in folder.glob(".*.partial"):
                shutil.rmtree(partial, ignore_errors=True)
        own = [
            self.arrays,
            self.metrics,
            self.table,
            self.evaluations,
            self.summary,
            self.wandb,
            *self.tensorboard.glob("events.out.tfevents.*"),
            *self.tensorboard.glob("seed-*/events.out.tfevents.*"),
        ]
        own += [self.path / f"policy.{kind}" for kind in ("h", "onnx", "stablehlo")]
        own += [self.media / name for name in ("curve.png", "policy.gif", "episode.png", "episode.json", "archive.png")]
        own += [file for file in self.media.glob("*") if re.fullmatch(r"(policy-\d+\.gif|archive-\d+\.png)", file.name)]
        for file in (*own, self.config):
            file.unlink(missing_ok=True)
        of_seeds = self.tensorboard.glob("seed-*")
        for folder in (self.checkpoints, self.best, self.media, *of_seeds, self.tensorboard):
            with contextlib.suppress(OSError):  # not there, or with files of others
                folder.rmdir()

    def read_config(self) -> dict[str, Any]:
        """The config of an existing run. Raises RunFolderError where there is none, and where files are links."""
        self.refuse_links()
        try:
            config = read_json(self.config)
            if not isinstance(config, dict):
                raise ValueError("no object")
            return config
        except (OSError, ValueError) as error:
            self.refuse_sweep()
            raise RunFolderError(f"{self.path} holds no run: it has no readable config.json.") from error

    def restore(
        self, program: Any, at: int | str | None = None, began: dict[str, Any] | None = None
    ) -> tuple[int, Any]:
        """`(updates done, carry)` of the newest whole checkpoint, of that `at` an update, or of the "best" one.

        Raises CheckpointError where there is none or it is not of `program`, or where the run `began` otherwise.
        """
        target, identity = program.shapes(), program.identity() | (began or {})
        if at is None:
            return checkpoint.restore(self.checkpoints, target, identity)
        there, best = checkpoint.steps(self.checkpoints), checkpoint.steps(self.best)
        if at == "best":
            if not best:
                raise checkpoint.CheckpointError(
                    f"{self.path} keeps no best checkpoint: `jaxrl train --keep-best`, or fit(keep_best=True), does."
                )
            return checkpoint.restore(self.best, target, identity)
        if not isinstance(at, int) or at not in {*there, *best}:
            kept = ", ".join(map(str, there)) or "none"
            more = f" and the best at {best[-1]}" if best else ""
            raise checkpoint.CheckpointError(
                f"{self.path} has no checkpoint at update {at}: it has {kept}{more}. --keep and --checkpoint-every say "
                "how many stay."
            )
        return checkpoint.restore(self.checkpoints if at in there else self.best, target, identity, at)

    def refuse_links(self) -> None:
        """Raise RunFolderError for a link among the files of a run, and for what is no file, as a pipe. jaxrl writes
        none: a link of somebody else would have it read, overwrite or delete what lies elsewhere, and a pipe wait.
        """
        own = (self.checkpoints, self.path / "best", self.media, self.tensorboard)
        inside = (Path(at) / name for top in own for at, *names in os.walk(top) for name in itertools.chain(*names))
        here = self.path.iterdir() if self.path.is_dir() else ()
        for path in itertools.chain((p for p in here if p in own or OWN.fullmatch(p.name)), inside):
            _refuse_link(path)

    def refuse_sweep(self) -> None:
        """Raise RunFolderError, which says what would do, for the folder of a sweep."""
        if (self.path / "plan.json").exists():
            runs = sorted(path.name for path in self.path.glob("runs-*"))
            raise RunFolderError(
                f"{self.path} is a sweep's folder, of the runs in {', '.join(runs)}: name one of these "
                f"to plot it; `jaxrl sweep` with the same words, `--out {self.path}` and `--resume` goes on with all; "
                "table.md compares them, and `jaxrl train` with a row's settings makes a run to evaluate."
            )

    def truncate(self, update: int, eval_gap: int | None = None) -> None:
        """Forget what was logged after `update`, so that a resumed run has no row twice. Warns where rows up to it are
        missing, of evaluations one every `eval_gap` updates, and where the table of means is not that of the rows.
        """
        counts = {}
        for file in (self.metrics, self.evaluations):
            updates, partial = [], _partial_of(file)
            with partial.open("x") as kept:
                for row, line in _streamed(file):
                    if row["update"] <= update:
                        kept.write(line)
                        updates.append(row["update"])
            partial.replace(file)
            counts[file] = updates
        logged, judged = counts[self.metrics], counts[self.evaluations]
        if (last := logged[-1] if logged else 0) < update:
            warnings.warn(
                f"{self.metrics} ends at update {last} and the checkpoint is at {update}: the rows between are "
                "missing, and curves will have a gap.",
                stacklevel=2,
            )
        if eval_gap and not any(u % eval_gap for u in judged) and len(judged) < (due := update // eval_gap):
            warnings.warn(
                f"{self.evaluations} has {len(judged)} of the {due} evaluations up to update {update}: the others are "
                "lost, and curves will have a gap.",
                stacklevel=2,
            )
        self._check_table(update)

    def _check_table(self, update: int) -> None:
        """Write metrics.csv anew where it is not what metrics.jsonl says, and warn."""
        try:
            found = read_text(self.table).splitlines(keepends=True) if self.table.exists() else []
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.table}: {error}. Remove it: it is written anew.") from error
        whole = [line for line in found[1:] if line.endswith("\n") and _update_of(line, self.table) <= update]
        there = "".join(found[:1] + whole if whole else [])
        wanted = "".join(table_lines(row for row, _ in _streamed(self.metrics)))
        if there != wanted:
            warnings.warn(
                f"{self.table} was lost, cut or changed: it is not what {self.metrics.name} says, and is written anew.",
                stacklevel=3,
            )
        if found or wanted:
            _write(self.table, wanted)


OWN = re.compile(
    r"\..*\.partial|\.writable|(config|summary|plan|sweep|wandb)\.json|(recipe|rule)\.npz|(metrics|evaluations|policy)\..*"
)
"""Names of files that jaxrl writes into a run folder."""


def _update_of(line: str, table: Path) -> int:
    try:
        return int(line.split(",", 1)[0])
    except ValueError as error:
        raise RunFolderError(f"{table}: {line.strip()[:60]!r} is no row. Remove the line, or the file.") from error


@contextlib.contextmanager
def _as_folder_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunFolderError(f"Cannot write to {path} ({error.strerror}): choose another folder.") from error


def description(algo: Any, num_seeds: int | None) -> dict[str, Any]:
    """What makes a run the same run: compared before a checkpoint is used."""
    venv = algo.venv
    return {
        "algorithm": algo.name,
        "env": venv.env.id,
        "environment": _text(venv.env),
        "config": json.loads(json.dumps(dataclasses.asdict(algo.config), default=_text)),
        "reset": venv.reset_strategy,
        "batched_params": venv.batched_params,
        "num_seeds": num_seeds,
        **({"around": _text(algo.around)} if algo.around else {}),
    }


def _text(x: Any, within: tuple[Any, ...] = ()) -> str:
    """Its repr, without addresses, which differ between processes; functions by what tells them apart."""
    if isinstance(x, tuple | list):
        return f"({', '.join(_text(item, within) for item in x)})"
    if isinstance(x, functools.partial):
        return f"partial{_text((x.func, *x.args, *sorted(x.keywords.items())), within)}"
    if inspect.ismethod(x):
        return f"{_text(x.__self__, within)}.{x.__name__}"
    if inspect.isfunction(x):
        name = f"{x.__module__}.{x.__qualname__}"
        # Lambdas and local functions share their names: their code and what they close over is in it, too.
        return f"{name}#{_digest(x, (*within, x))}" if "<" in name and x not in within else name
    return re.sub(r" at 0x[0-9a-f]+", "", repr(x))


def _digest(fn: Any, within: tuple[Any, ...]) -> str:
    def code(c: Any) -> Any:
        return c.co_code.hex(), c.co_names, [code(x) if inspect.iscode(x) else repr(x) for x in c.co_consts]

    def value(cell: Any) -> str:
        try:
            return _text(cell.cell_contents, within)
        except ValueError:  # not assigned yet
            return ""

    closed = [value(cell) for cell in fn.__closure__ or ()]
    return hashlib.sha256(repr((code(fn.__code__), _text(fn.__defaults__), closed)).encode()).hexdigest()[:8]


def unit_of_steps(config: Mapping[str, Any]) -> str:
    """What the steps of a run count, by its config."""
    recipe = config.get("recipe")
    from_data = "dataset" in config or (
        isinstance(recipe, dict) and "dataset" in recipe
    )  # a sweep's have it themselves
    return "gradient steps" if from_data else "environment steps"


def environment_of_run() -> dict[str, Any]:
    """Versions, device, git commit and time: what a reader of a result asks for."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version()}
    for name in ("jaxrl", "jax", "jaxlib", "flax", "optax", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    device = jax.devices()[0]
    try:
        commit = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        commit = ""
    return {
        "versions": versions,
        "device": f"{jax.device_count()} x {device.platform} {device.device_kind}",
        "processors": os.cpu_count(),
        "commit": commit or None,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def tree_values(tree: Any) -> dict[str, Any]:
    """A pytree of numbers as {path: value}, for config.json."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(x).tolist() for path, x in leaves}


def read_rows(file: Path, *, arrays: bool = False, only: Collection[str] | None = None) -> list[dict[str, Any]]:
    """The rows of a JSONL file; a last line that a kill cut short is left out.

    Args:
        arrays: values of seeds as float64 arrays, NaN for null, which take a quarter of the memory of lists.
        only: names of which values of seeds are kept; those of others are None.

    Raises RunFolderError, with file and line, for one that is no row.
    """
    return [_kept(row, file, arrays, only) for row, _ in _streamed(file)]


class Tail:
    """The rows of a JSONL file that grows while it is read: `rows` are those so far, values of seeds as arrays."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: list[dict[str, Any]] = []
        self._read, self._known = 0, None

    def update(self) -> bool:
        """Read what was written since; True where there are other rows now. A file that is another one, as a resumed
        run writes it, or shorter is read anew.

        Raises RunFolderError as `read_rows` does.
        """
        _refuse_link(self.file)
        try:
            found = self.file.stat()
        except FileNotFoundError:
            had, self.rows, self._read = bool(self.rows), [], 0
            return had
        anew = found.st_ino != self._known or found.st_size < self._read
        if anew:
            self.rows, self._read, self._known = [], 0, found.st_ino
        count = len(self.rows)
        with self.file.open("rb") as lines:
            lines.seek(self._read)
            for line in iter(lambda: lines.readline(LONGEST), b""):
                if not line.endswith(b"\n"):  # of a row that is being written
                    break
                row = _row(line.decode(errors="replace"), self.file, len(self.rows) + 1)
                self.rows.append(_kept(row, self.file, True, None))
                self._read += len(line)
        return anew or len(self.rows) > count


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise RunFolderError(
            f"{path} is a link, and jaxrl follows none inside a run folder: put what it points to in its place."
        )
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise RunFolderError(f"{path} is no file but a pipe, a socket or a device, which no run has: remove it.")


LONGEST = 2**28
"""Characters of a row, of which one of a million seeds has fewer."""


def _streamed(file: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Each row and its line, one at a time: of many seeds a file is larger than memory."""
    _refuse_link(file)
    if not file.exists():
        return
    with file.open(errors="replace", newline="\n") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST), ""), 1):
            if len(line) == LONGEST:
                raise RunFolderError(f"{file}, line {number} is longer than any row: remove it, or bring it back.")
            if line.endswith("\n"):
                yield _row(line, file, number), line


def _kept(row: dict[str, Any], file: Path, arrays: bool, only: Collection[str] | None) -> dict[str, Any]:
    if not arrays:
        return row
    for name, value in row.items():
        if isinstance(value, list):
            try:
                row[name] = np.array(value, float) if only is None or name in only else None
            except (TypeError, ValueError) as error:
                raise RunFolderError(f"{file}: values of {name} are no numbers ({error}).") from error
    return row


def _row(line: str, file: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
        if not isinstance(row, dict) or type(row.get("update")) is not int or type(row.get("step")) is not int:
            raise ValueError("it has no update and step")
        return row
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{file}, line {number} is no row ({error}): remove it, or bring it back.") from error


def write_json(file: Path, value: Any) -> None:
    """Write whole or not at all."""
    _write(file, json.dumps(value, indent=1, default=number_of) + "\n")


@contextlib.contextmanager
def in_place_of(file: Path) -> Iterator[Path]:
    """A path of this process alone; what is written to it takes the place of `file` at the end, whole or not at all,
    also where other processes do the same at the same time.
    """
    own = file.with_name(f".{socket.gethostname()}-{os.getpid()}-{file.name}")
    try:
        yield own
        own.replace(file)
    finally:
        own.unlink(missing_ok=True)


def _write(file: Path, text: str) -> None:
    partial = _partial_of(file)
    with partial.open("x") as out:  # which fails where there is a link by now, in place of following it
        out.write(text)
    partial.replace(file)


def _partial_of(file: Path) -> Path:
    """Where a file is written before it takes the place of the one that is there; nothing is there yet."""
    partial = file.with_name(f".{file.name}.partial")
    partial.unlink(missing_ok=True)
    return partial


def table_lines(rows: Iterable[dict[str, Any]], columns: list[str] | None = None) -> Iterator[str]:
    """Lines of metrics.csv: a header, unless the `columns` are told, and the mean over seeds of each row's values."""
    for row in rows:
        if columns is None:
            columns = list(row)
            yield _csv(columns)
        yield _csv([mean_of(row[name]) for name in columns])


def _csv(cells: list[Any]) -> str:
    held = io.StringIO()
    csv.writer(held, lineterminator="\n").writerow(cells)
    return held.getvalue()


def number_of(x: Any) -> Any:
    return np.asarray(x).tolist()


def mean_of(x: Any) -> float | int | None:
    """The mean over seeds; None where none has a value."""
    if isinstance(x, int):
        return x
    values = [v for v in np.ravel(np.asarray(x, float)) if not math.isnan(v)]
    return float(np.mean(values)) if values else None
