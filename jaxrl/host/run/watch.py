"""Whether all processes of a job still run: one that is frozen says nothing, and the others would wait for it.

The processes keep a connection each to the first one, over which both sides say twice a second that they run. A
connection that is closed is no sign of a frozen process: who ended is told by the exchange that fails.
"""

from __future__ import annotations

import contextlib
import functools
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

ALIVE = 2**32 - 1
"""What is said by who runs; any other number is the rank of a process that does not."""

SIZE = 4
"""Bytes of a number."""

TOKEN = 8
"""Bytes by which the first process knows those of its job."""

BETWEEN = 0.5
"""Seconds between two signs of life."""

REMEDY = "Start all of them again, with `jaxrl resume` in place of `jaxrl train`."

Ending = Callable[[str, Callable[[], None]], Any]
"""Ends this process with a sentence; the function is called between the two."""


def listen() -> socket.socket:
    """The socket at which the first process awaits the others, at a free port."""
    server = socket.socket()
    server.bind(("", 0))
    server.listen()
    return server


def guard(server: socket.socket, token: bytes, seconds: float, end: Ending) -> None:
    """Watch, from the first process, all that connect to `server` with the token; who is silent so long is lost."""
    threading.Thread(target=_guard, args=(server, token, seconds, end), daemon=True).start()


def report(address: tuple[str, int], token: bytes, rank: int, seconds: float, end: Ending) -> None:
    """Tell the first process that this one runs, and watch it. Where there is no connection, nothing is watched."""
    try:
        connection = socket.create_connection(address, timeout=5)
    except OSError:
        return
    with contextlib.suppress(OSError):  # where it is closed again, that is heard
        connection.sendall(token + _number(rank))
    threading.Thread(target=_report, args=(_Peer(connection, 0), seconds, end), daemon=True).start()


def _number(value: int) -> bytes:
    return value.to_bytes(SIZE, "big")


class _Peer:
    """Another process at the end of a connection."""

    def __init__(self, connection: socket.socket, rank: int) -> None:
        connection.setblocking(False)
        self.connection, self.rank, self.heard, self.open = connection, rank, time.monotonic(), True
        self.rest = b""

    def hear(self) -> int | None:
        """Take in what it said: the rank of a process that is lost, None where it speaks of none."""
        try:
            while new := self.connection.recv(4096):
                self.heard, self.rest = time.monotonic(), self.rest + new
            self.open = False
        except BlockingIOError:
            pass
        except OSError:
            self.open = False
        whole = len(self.rest) // SIZE * SIZE
        said = [int.from_bytes(self.rest[i : i + SIZE], "big") for i in range(0, whole, SIZE)]
        self.rest = self.rest[whole:]
        return next((rank for rank in said if rank != ALIVE), None)

    def tell(self, number: int) -> None:
        with contextlib.suppress(OSError):  # it is full where the other is frozen, or closed
            self.connection.send(_number(number))

    def silent(self) -> float:
        return time.monotonic() - self.heard


def _guard(server: socket.socket, token: bytes, seconds: float, end: Ending) -> None:
    with server:
        _watch_all(server, token, seconds, end)


def _watch_all(server: socket.socket, token: bytes, seconds: float, end: Ending) -> None:
    peers: list[_Peer] = []
    last = time.monotonic()
    while True:
        if select.select([server], [], [], BETWEEN)[0]:
            peers += _known(server, token)
        last, gone = time.monotonic(), time.monotonic() - last
        if gone > seconds:
            return end(_frozen(gone), lambda: None)
        for peer in peers:
            peer.tell(ALIVE)
            peer.hear()
        for peer in peers:
            if not peer.open:
                peer.connection.close()
        peers = [peer for peer in peers if peer.open]
        lost = next((peer.rank for peer in peers if peer.silent() > seconds), None)
        if lost is not None:
            end(_silent(lost, seconds), functools.partial(_tell_all, peers, lost))
            break
    for peer in peers:
        peer.connection.close()


def _known(server: socket.socket, token: bytes) -> list[_Peer]:
    """The process that connects, if it is one of the job."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
        connection = opened.enter_context(server.accept()[0])
        connection.settimeout(1)
        said = connection.recv(TOKEN + SIZE, socket.MSG_WAITALL)
        if said[:TOKEN] == token:
            opened.pop_all()
            return [_Peer(connection, int.from_bytes(said[TOKEN:], "big"))]
    return []


def _tell_all(peers: list[_Peer], lost: int) -> None:
    for peer in peers:
        peer.tell(lost)
    time.sleep(BETWEEN)  # so that it is read before this process, and its connections, end


def _report(first: _Peer, seconds: float, end: Ending) -> None:
    with first.connection:
        _tell_and_hear(first, seconds, end)


def _tell_and_hear(first: _Peer, seconds: float, end: Ending) -> None:
    last = time.monotonic()
    while first.open:
        first.tell(ALIVE)
        time.sleep(BETWEEN)
        last, gone = time.monotonic(), time.monotonic() - last
        if gone > seconds:
            return end(_frozen(gone), lambda: None)
        lost = first.hear()
        lost = 0 if lost is None and first.silent() > seconds else lost
        if lost is not None:
            return end(_silent(lost, seconds), lambda: None)


def _frozen(seconds: float) -> str:
    return f"this process was frozen for {seconds:.0f} s, and the others have given it up. {REMEDY}"


def _silent(rank: int, seconds: float) -> str:
    return f"rank {rank} of the job has been silent for {seconds:g} s: it is frozen, or cut off. {REMEDY}"
