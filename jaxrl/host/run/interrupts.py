"""How a run is asked to end: Ctrl-C, and the SIGTERM of clusters."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Iterator


class Terminated(KeyboardInterrupt):
    """What SIGTERM raises, as Ctrl-C raises KeyboardInterrupt."""


@dataclasses.dataclass
class Interrupt:
    """Whether somebody asked for the end of the run, and by which signal; 0: nobody did."""

    signal: int = 0

    def is_set(self) -> bool:
        return bool(self.signal)


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Ctrl-C, or the SIGTERM with which clusters announce the end of a job, is noted; a second one acts at once.
    Outside the main thread Python delivers no signals.
    """
    asked = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {which: signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for which, handler in before.items():
            # None: of C, as jax.distributed sets one for SIGTERM, which would swallow it.
            signal.signal(which, signal.SIG_DFL if handler is None else handler)

    def handle(which: int, _: object) -> None:
        asked.signal = which
        restore()

    for which in before:
        signal.signal(which, handle)
    try:
        yield asked
    finally:
        restore()
