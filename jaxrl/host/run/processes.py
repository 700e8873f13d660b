"""Several processes that train as one, on `jax.distributed`: how they meet, agree, and end when one of them is gone."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

SECONDS_TO_MEET = 120
SECONDS_TO_MISS = 30
"""After which a process that is silent, frozen or cut off, is given up, and the job with it."""

OF_LOST_PEERS = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "CANCELLED", "UNKNOWN", "Gloo", "gloo", "oordination")
"""In what JAX says where an exchange failed because another process is gone."""

VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
"""Read where nothing else is said. Without them jax asks the cluster: Slurm, Open MPI, Kubernetes, Cloud TPU."""


def join(
    coordinator: str | None = None, processes: int | None = None, rank: int | None = None, timeout: int | None = None
) -> None:
    """Meet the other processes of the job, before jax is used for anything else.

    Args:
        coordinator: HOST:PORT of the first process; with `processes`, how many there are, and `rank`, from 0. What is
            None is taken from the environment, see `VARIABLES`.
        timeout: seconds, default `SECONDS_TO_MEET` or JAXRL_SECONDS_TO_MEET. The program ends when not all have come.

    Raises ValueError for values that cannot be, or where neither they nor a cluster say them.
    """
    from_environment = [os.environ.get(name) for name in VARIABLES]
    coordinator = coordinator or from_environment[0]
    processes = _number(VARIABLES[1], from_environment[1]) if processes is None else processes
    rank = _number(VARIABLES[2], from_environment[2]) if rank is None else rank
    timeout = _number("JAXRL_SECONDS_TO_MEET", os.environ.get("JAXRL_SECONDS_TO_MEET")) if timeout is None else timeout
    timeout = SECONDS_TO_MEET if timeout is None else timeout
    if timeout < 1:
        raise ValueError(f"JAXRL_SECONDS_TO_MEET={timeout}: it must be at least 1.")
    if coordinator is not None:
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise ValueError(f"coordinator={coordinator!r}: it is written HOST:PORT, a port from 1 to 65535.")
    if processes is not None and processes < 1:
        raise ValueError(f"processes={processes}: there must be at least 1.")
    if processes is not None and rank is not None and not 0 <= rank < processes:
        raise ValueError(f"rank={rank}: of {processes} processes, ranks are from 0 to {processes - 1}.")
    where = f"rank {rank} of {processes}, coordinator {coordinator}" if coordinator else "as the cluster says"
    late = (
        f"the processes did not meet within {timeout} s ({where}): is the first one running at that address, its port "
        "open, and is every rank started once?"
    )
    try:
        # jaxlib's own time limit ends the process with a stack trace of C++.
        with _ends_after(timeout, late):
            jax.distributed.initialize(
                coordinator,
                processes,
                rank,
                initialization_timeout=timeout + 10,
                heartbeat_timeout_seconds=SECONDS_TO_MISS,
                shutdown_timeout_seconds=SECONDS_TO_MISS,
            )
            jax.devices()  # exchanged, too
    except ValueError as error:
        raise ValueError(
            f"No cluster was found that says who takes part ({error}) Say all of --coordinator, --processes and "
            f"--rank, or set {', '.join(VARIABLES)}."
        ) from error


def _number(name: str, value: str | None) -> int | None:
    if value is not None and not value.isdecimal():
        raise ValueError(f"{name}={value!r}: it must be a number.")
    return None if value is None else int(value)


@contextlib.contextmanager
def _ends_after(seconds: int, message: str) -> Iterator[None]:
    timer = threading.Timer(seconds, end, (message,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end(message: str) -> None:
    """End this process now, without the farewell for which jax would wait on processes that are gone."""
    sys.stdout.flush()
    print(f"jaxrl: {message}", file=sys.stderr, flush=True)
    os._exit(1)


@contextlib.contextmanager
def lost(remedy: str) -> Iterator[None]:
    """Where an exchange fails, for which there are several processes, say so and end."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1 or not any(word in str(error) for word in OF_LOST_PEERS):
            raise
        why = " ".join(str(error).split())[:200]
        end(f"rank {jax.process_index()}: another process of the job ended or cannot be reached ({why}). {remedy}")


def primary() -> bool:
    """Whether this process writes what is written once."""
    return jax.process_index() == 0


def of_all(value: Any) -> np.ndarray:
    """What each process has, in the order of their ranks: (processes, ...). All must call it."""
    if jax.process_count() == 1:
        return np.asarray(value)[None]
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(np.asarray(value)))


def on_primary(do: Callable[[], Any]) -> None:
    """What the first process does while the others wait; where it fails, all fail."""
    error = None
    if primary():
        try:
            do()
        except Exception as raised:
            error = raised
    if of_all(error is not None)[0]:
        raise error or OSError("The first process failed; its message says why.")
