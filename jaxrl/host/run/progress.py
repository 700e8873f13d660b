"""What passes while `fit` runs: how many updates a call makes, the progress bar or lines."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxrl.algorithm import Algorithm
from jaxrl.host.run import training_program
from jaxrl.host.run.history import History

SECONDS_PER_CALL = 0.5  # how often the display moves
LINES, SECONDS_PER_LINE = 10, 60.0  # where there is no terminal: a line every tenth of the run, or minute
WATCHDOG_SECONDS = 5.0  # shorter calls are not worth a complaint


class Pace:
    """How many updates a call makes, from how long the last ones took; and a watchdog for one that does not return."""

    def __init__(self) -> None:
        self.times: list[float] = []  # seconds an update
        self.seconds = 0.0  # in all calls

    def updates(self) -> int:
        if not self.times:
            return 1  # the first result, as soon as it can be had
        wanted = SECONDS_PER_CALL / max(np.median(self.times), 1e-9)
        return int(np.clip(wanted, 1, training_program.MAX_UPDATES_PER_CALL))

    @contextlib.contextmanager
    def watch(self, count: int, done: int) -> Iterator[None]:
        limit = max(20 * float(np.median(self.times)) * count, WATCHDOG_SECONDS) if len(self.times) >= 3 else None
        timer = None if limit is None else threading.Timer(limit, self._late, (limit, count, done))
        begin = time.perf_counter()
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
        seconds = time.perf_counter() - begin
        self.seconds += seconds
        self.times = [*self.times[-50:], seconds / count]

    @staticmethod
    def _late(limit: float, count: int, done: int) -> None:
        import sys

        sys.stderr.write(
            f"jaxrl: updates {done} to {done + count} have taken {limit:.0f} s, 20 times the usual: the machine is "
            "overloaded, or the program hangs.\n"
        )


@dataclasses.dataclass
class Display:
    """The progress bar, or lines where the output is no terminal, and the clock behind it."""

    shown: bool
    updates: int
    start: int
    algo: Algorithm

    def __enter__(self) -> Display:
        self.compile_seconds, self.run_seconds, self.at = 0.0, 0.0, self.start
        self.bar: Any = None
        self.lines, self.said, self.said_at = False, self.start, time.perf_counter()
        if self.shown:
            from rich import get_console

            self.lines = not (get_console().is_terminal or get_console().is_jupyter)
        if self.shown and not self.lines:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
            from rich.table import Column

            def whole():  # in a narrow terminal the note is cut, not these
                return Column(no_wrap=True)

            self.bar = Progress(
                TextColumn("[bold]{task.description}", table_column=whole()),
                BarColumn(24),
                MofNCompleteColumn(table_column=whole()),
                TimeRemainingColumn(table_column=whole()),
                TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
            )
            self.bar.start()
            self.task = self.bar.add_task(self._name(), total=self.updates, completed=self.start, note="")
        return self

    def __exit__(self, *exc: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def compiling(self) -> None:
        self._note("compiling")

    def compiled(self, seconds: float) -> None:
        self.compile_seconds = seconds
        self._note(f"compiled in {seconds:.1f} s")

    def advanced(self, done: int, history: History, problems: dict[int, str], seconds: float) -> None:
        self.run_seconds, self.at = seconds, done
        note = f"{self.steps_per_second() / 1e3:,.0f}k steps/s, compiled in {self.compile_seconds:.1f} s"
        if history.recent_return is not None:
            returns = np.atleast_1d(history.recent_return)
            spread = f" ± {np.nanstd(returns):.1f} ({returns.size} seeds)" if returns.size > 1 else ""
            note = f"return {np.nanmean(returns):.1f}{spread}, {note}"
        if problems:
            note += f", {len(problems)} diverged"
        self._note(note, done)

    def message(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text)
        elif self.lines:
            print(text, flush=True)

    def _name(self) -> str:
        return f"{self.algo.name} {self.algo.venv.env.id}"

    def _note(self, note: str, done: int | None = None) -> None:
        now = time.perf_counter()
        due = done is None or done == self.updates or LINES * done // self.updates > LINES * self.said // self.updates
        if self.lines and (due or now - self.said_at > SECONDS_PER_LINE):
            if done is not None:
                self.said = done
                note = f"{done * self.algo.steps_per_update:,} steps, update {done} of {self.updates}: {note}"
            self.said_at = now
            print(f"{self._name()}: {note}", flush=True)
        if self.bar is not None:
            self.bar.update(self.task, note=note, **({} if done is None else {"completed": done}))

    def steps_per_second(self) -> float:
        """The speed of one seed, without compilation."""
        return (self.at - self.start) * self.algo.steps_per_update / max(self.run_seconds, 1e-9)

    def times(self) -> dict[str, float]:
        return {
            "compile_seconds": self.compile_seconds,
            "run_seconds": self.run_seconds,
            "steps_per_second": self.steps_per_second(),
        }
