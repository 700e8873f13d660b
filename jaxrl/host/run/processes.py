"""Several processes that train as one, on `jax.distributed`: how they meet, agree, and end when one of them is gone."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.host.run import watch

SECONDS_TO_MEET = 120
SECONDS_TO_MISS = 30
"""After which a process that is silent, frozen or cut off, is given up, and the job with it; JAXRL_SECONDS_TO_MISS says
another number."""

JAXLIB = 4
"""How many times longer jaxlib waits for one, which then ends with a stack trace of C++: where `watch` sees nothing."""

OF_LOST_PEERS = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "CANCELLED", "UNKNOWN", "Gloo", "gloo", "oordination")
"""In what JAX says where an exchange failed because another process is gone."""

VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
"""Read where nothing else is said, and in their absence those of torchrun. Without both jax asks
the cluster: Slurm, Open MPI, Kubernetes, Cloud TPU."""


TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


def join(
    coordinator: str | None = None, processes: int | None = None, rank: int | None = None, timeout: int | None = None
) -> None:
    """Meet the other processes of the job, before jax is used for anything else.

    Args:
        coordinator: HOST:PORT of the first process; with `processes`, how many there are, and `rank`, from 0. What is
            None is taken from the environment, see `VARIABLES`.
        timeout: seconds, default `SECONDS_TO_MEET` or JAXRL_SECONDS_TO_MEET. The program ends when not all have come.

    Where whoever started the process has had it meet the others already, as Ray's JaxTrainer, that stands.

    Raises ValueError for values that cannot be, or where neither they nor a cluster say them.
    """
    from_environment = [os.environ.get(name) for name in VARIABLES]
    if (coordinator, processes, rank) == (None, None, None) and not any(from_environment):
        from_environment = of_torchrun()
    coordinator = coordinator or from_environment[0]
    processes = _number(VARIABLES[1], from_environment[1]) if processes is None else processes
    rank = _number(VARIABLES[2], from_environment[2]) if rank is None else rank
    timeout = _seconds("JAXRL_SECONDS_TO_MEET", SECONDS_TO_MEET) if timeout is None else timeout
    if timeout < 1:
        raise ValueError(f"timeout={timeout}: it must be at least 1.")
    miss = _seconds("JAXRL_SECONDS_TO_MISS", SECONDS_TO_MISS)
    if jax.distributed.is_initialized():
        _watch(None, miss)
        return
    if coordinator is not None:
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise ValueError(f"coordinator={coordinator!r}: it is written HOST:PORT, a port from 1 to 65535.")
    if processes is not None and processes < 1:
        raise ValueError(f"processes={processes}: there must be at least 1.")
    if processes is not None and rank is not None and not 0 <= rank < processes:
        raise ValueError(f"rank={rank}: of {processes} processes, ranks are from 0 to {processes - 1}.")
    where = f"rank {rank} of {processes}, coordinator {coordinator}" if coordinator else "as the cluster says"
    if rank == 0 and coordinator is not None:
        _require_free(int(coordinator.rpartition(":")[2]))
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
                heartbeat_timeout_seconds=JAXLIB * miss,
                shutdown_timeout_seconds=miss,
            )
            jax.devices()  # exchanged, too
            _watch(coordinator, miss)
    except ValueError as error:
        raise ValueError(
            f"No cluster was found that says who takes part ({error}) Say all of --coordinator, --processes and "
            f"--rank, or set {', '.join(VARIABLES)}."
        ) from error


def _watch(coordinator: str | None, seconds: int) -> None:
    """Have the processes of a job watch one another, from now on."""
    if jax.process_count() == 1:
        return
    if primary():
        server, token = watch.listen(), os.urandom(watch.TOKEN)
        host = coordinator.rpartition(":")[0] if coordinator else socket.gethostname()
        told = json.dumps([host.strip("[]"), server.getsockname()[1], token.hex()]).encode()
    else:
        server, told = None, b""
    sent = of_all(np.frombuffer(told.ljust(TOLD), np.uint8))[0]
    host, port, token = json.loads(sent.tobytes())
    if server is not None:
        watch.guard(server, bytes.fromhex(token), seconds, end)
    else:
        watch.report((host, port), bytes.fromhex(token), jax.process_index(), seconds, end)


TOLD = 512
"""Bytes in which the first process says where it listens: names of machines are at most half as long."""


def _require_free(port: int) -> None:
    """Raise OSError for a port of this machine on which another program listens: jaxlib ends by a fault there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return  # what is allowed is jaxlib's to find out
            raise OSError(
                f"port {port} of this machine is in use: name another one as --coordinator HOST:PORT."
            ) from None


def of_torchrun() -> tuple[str | None, str | None, str | None]:
    """`(coordinator, processes, rank)` as torchrun tells them; None where it does not. Its own store listens on
    MASTER_PORT, and jax's coordinator on the next one.
    """
    address, port, processes, rank = map(os.environ.get, TORCHRUN)
    if address is None or port is None or processes is None or rank is None:
        return None, None, None
    return f"{address}:{(_number(TORCHRUN[1], port) or 0) + 1}", processes, rank


def _seconds(name: str, default: int) -> int:
    """What a variable of the environment says. Raises ValueError for less than 1."""
    value = _number(name, os.environ.get(name))
    if value == 0:
        raise ValueError(f"{name}=0: it must be at least 1.")
    return default if value is None else value


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


def end(message: str, before: Callable[[], None] = lambda: None) -> None:
    """End this process now, without the farewell for which jax would wait on processes that are gone; `before` that do
    what is to be done last. One sentence is said, the first, whatever other threads find.
    """
    with _ENDING:
        sys.stdout.flush()
        print(f"jaxrl: {message}", file=sys.stderr, flush=True)
        before()
        os._exit(1)


_ENDING = threading.Lock()


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


def agree(settings: Callable[[], Mapping[str, Any]]) -> None:
    """Compare what the processes are to do. Raises ValueError, on all of them, where two differ: what they computed
    together would be the result of neither.
    """
    if jax.process_count() == 1:
        return
    mine = np.frombuffer(json.dumps(settings(), default=str).encode(), np.uint8)
    sizes = of_all(len(mine))
    texts = of_all(np.pad(mine, (0, int(sizes.max()) - len(mine))))
    first, *others = (json.loads(text[:size].tobytes()) for text, size in zip(texts, sizes, strict=True))
    for rank, other in enumerate(others, 1):
        if differs := _difference(first, other):
            name, here, there = differs
            raise ValueError(
                f"the processes were started differently: {name} is {here} of rank 0, {there} of rank {rank}."
            )


def _difference(one: Any, other: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """`(name, value, other value)` where two trees of JSON differ first."""
    if isinstance(one, dict) and isinstance(other, dict):
        found = (_difference(one.get(k), other.get(k), f"{name}.{k}" if name else k) for k in {**one, **other})
        return next((differs for differs in found if differs), None)
    if json.dumps(one) == json.dumps(other):  # as text, where NaN equals NaN
        return None
    return name, _short(one), _short(other)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def require_seen(file: Path, seconds: float = 20.0) -> None:
    """Raise OSError, on all processes, unless each of them sees a file as the first one wrote it. A network's file
    system may show it late.
    """
    if jax.process_count() == 1:
        return

    def seen() -> int:
        # Of 31 bits, in which numbers are exchanged.
        return zlib.crc32(file.read_bytes()) & 0x7FFFFFFF if file.is_file() else -1

    wanted, until = int(of_all(seen())[0]), time.monotonic() + seconds
    while seen() != wanted and time.monotonic() < until:
        time.sleep(0.2)
    found = of_all(seen() == wanted)
    if not found.all():
        missing = ", ".join(str(rank) for rank in np.flatnonzero(~found))
        raise OSError(f"rank {missing} does not see {file} as rank 0 wrote it: name a folder that all processes share.")


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
