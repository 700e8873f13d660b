"""A page and its data over HTTP, for who sits at this machine: on loopback, behind a secret in the address.

The secret is the first part of every path. Another site that a reader has open cannot guess it, and neither can another
user of the machine; beside it the Host header must name this machine (a name that was rebound to it does not) and the
Origin of what changes something must be the page itself.
"""

from __future__ import annotations

import errno
import hmac
import json
import math
import re
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable
from urllib.parse import parse_qsl, urlsplit

import numpy as np

FILES = Path(__file__).parent
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".gif": "image/gif", ".png": "image/png"}
KINDS |= {".mp4": "video/mp4"}

NAMES = ("127.0.0.1", "localhost")
"""Of this machine, with any port, as one that was forwarded may have another number elsewhere."""

MOST_BYTES = 2**20
"""Of what a page sends."""

IDLE = 120.0
"""Seconds after which a connection that says nothing is closed."""


class Blob(NamedTuple):
    """An answer that is no JSON."""

    content: bytes
    suffix: str  # of a file of its kind


class Missing(Exception):
    """What was asked for is not there."""


@runtime_checkable
class Page(Protocol):
    """What is served: a page of this folder, by name, and its data.

    `get` takes what the address asks, `post` the JSON that was sent; both return JSON or a `Blob`. They raise
    ValueError for what is wrong with it, which the page shows.
    """

    name: str

    @property
    def get(self) -> Mapping[str, Callable[[dict[str, str]], Any]]: ...

    @property
    def post(self) -> Mapping[str, Callable[[dict[str, Any]], Any]]: ...


def plain(x: Any) -> Any:
    """Arrays and numbers as JSON has them, what is not finite as None."""
    if isinstance(x, Mapping):
        return {str(name): plain(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [plain(value) for value in x]
    if hasattr(x, "dtype"):
        return plain(np.asarray(x).tolist())
    return None if isinstance(x, float) and not math.isfinite(x) else x


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, page: Page, port: int, framed: bool) -> None:
        self.page, self.framed, self.secret = page, framed, secrets.token_urlsafe(16)
        self.stopped = False  # connections that are kept open outlive the port
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):  # a reader who left is no error
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A line a request is no help to anybody."""

    def do_GET(self) -> None:
        found = self._path()
        if found is None:
            return
        path, asked = found
        page = self.server.page
        if path in page.get:
            self._run(lambda: page.get[path](asked))
        elif path in FILES_OF[page.name]:
            name = path or f"{page.name}.html"
            self._send(200, Blob((FILES / name).read_bytes(), Path(name).suffix))
        else:
            self._send(404, {"error": "There is no such page."})

    def do_POST(self) -> None:
        found = self._path()
        if found is None:
            return
        origin = self.headers.get("Origin")
        own = (None, f"http://{self.headers.get('Host')}")  # None: it comes from no page
        if origin not in own and not self._proxied():
            self.close_connection = True  # of what was sent nothing is read
            self._send(403, {"error": f"Refused: a page of {origin} may change nothing here."})
            return
        act = self.server.page.post.get(found[0])
        if act is None:
            self.close_connection = True
            self._send(404, {"error": "There is no such page."})
            return
        try:
            length = int(self.headers.get("Content-Length", ""))
            if not 0 <= length <= MOST_BYTES:
                raise ValueError
        except ValueError:
            self.close_connection = True
            self._send(400, {"error": f"Content-Length must be from 0 to {MOST_BYTES}."})
            return
        try:
            said = json.loads(self.rfile.read(length))
            if not isinstance(said, dict):
                raise ValueError("no object")
        except (ValueError, RecursionError) as error:
            self._send(400, {"error": f"What was sent is no JSON object ({error})."})
            return
        self._run(lambda: act(said))

    def _path(self) -> tuple[str, dict[str, str]] | None:
        """The path behind the secret and what is asked of it; None where the request was refused."""
        if self.server.stopped:
            self.close_connection = True
            self._send(503, {"error": "This page was stopped."})
            return None
        host = self.headers.get("Host", "")
        if host.rpartition(":")[0] not in NAMES and not self._proxied():
            self.close_connection = True
            self._send(403, {"error": f"Refused: {host[:80]!r} is not this machine."})
            return None
        try:
            asked = urlsplit(self.path)
        except ValueError as error:
            self.close_connection = True
            self._send(400, {"error": f"What was asked for is no address ({error})."})
            return None
        secret, _, path = asked.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(secret.encode(), self.server.secret.encode()):
            self.close_connection = True
            self._send(403, {"error": "Refused: open the whole address that was printed, with the secret in it."})
            return None
        return path, dict(parse_qsl(asked.query))

    def _proxied(self) -> bool:
        """In a notebook of Colab a proxy of Google's stands between, with a name of its own; the secret is left."""
        return self.server.framed and in_colab()

    def _run(self, act: Callable[[], Any]) -> None:
        try:
            answer = act()
        except Missing as error:
            self._send(404, {"error": str(error)})
        except (ValueError, TypeError) as error:
            self._send(400, {"error": " ".join(str(error).split())})
        except Exception as error:  # the page says it, and the next request may do better
            self._send(500, {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"})
        else:
            self._send(200, answer)

    def _send(self, status: int, answer: Any) -> None:
        if isinstance(answer, Blob):
            content, kind = answer.content, KINDS[answer.suffix]
        else:
            content, kind = json.dumps(plain(answer), allow_nan=False).encode(), "application/json"
        part = self._part(len(content)) if status == 200 and isinstance(answer, Blob) else None
        self.send_response(status if part is None else 206)
        if part is not None:
            self.send_header("Content-Range", f"bytes {part.start}-{part.stop - 1}/{len(content)}")
            content = content[part.start : part.stop]
        # No charset for pictures; pages are UTF-8.
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if kind.startswith("text/") else kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        around = "" if self.server.framed else "; frame-ancestors 'none'"
        self.send_header("Content-Security-Policy", f"default-src 'self'; img-src 'self' data:{around}")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _part(self, size: int) -> range | None:
        """The bytes that were asked for, as players of films do; None for all of them. What is no single part of the
        content is not looked at, as HTTP allows."""
        said = re.fullmatch(r"bytes=(\d{1,18})-(\d{0,18})", self.headers.get("Range", ""), re.ASCII)
        if said is None:
            return None
        part = range(int(said[1]), min(int(said[2] or size) + 1, size))
        return part if part else None


FILES_OF = {name: ("", "page.css", "page.js", f"{name}.js") for name in ("play", "watch")}
"""What may be read of this folder, by the page it is of."""


def in_colab() -> bool:
    return "google.colab" in sys.modules


class Served:
    """A page that is served until `stop()`. A notebook shows it in a frame, where it is a cell's last line.

    The frame shows an address of the machine that the notebook's kernel runs on. Where the browser is on another one
    (JupyterHub, a kernel over SSH), forward the port to it, as by `ssh -L PORT:127.0.0.1:PORT`; Colab does it itself.
    """

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self._server.secret}/"

    @property
    def page(self) -> Any:
        """What is served: the `Game` or the `Watched` run."""
        return self._server.page

    def stop(self) -> None:
        """Serve no longer; the port is free again. Twice is once."""
        self._server.stopped = True
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Served({self.url})" if self._thread.is_alive() else "Served(stopped)"

    def _repr_html_(self) -> str:
        if not self._thread.is_alive():
            return "<p>Stopped.</p>"
        return f'<iframe title="jaxrl" src="{self.url}" width="100%" height="{HEIGHT}" style="border:0"></iframe>'

    def _ipython_display_(self) -> None:
        """In Colab, whose browser reaches the kernel only through its own proxy. Elsewhere `_repr_html_` is shown."""
        if not in_colab() or not self._thread.is_alive():
            raise NotImplementedError
        output = sys.modules["google.colab"].output
        output.serve_kernel_port_as_iframe(self.port, path=f"/{self._server.secret}/", height=str(HEIGHT))


HEIGHT = 760
"""Of the frame in a notebook, in pixels."""


def serve(page: Page, port: int = 0, framed: bool = True) -> Served:
    """Serve a page from a thread; `framed`: a notebook may show it in a frame.

    Raises ValueError for a port that there is not, OSError, which says what helps, for one that is taken.
    """
    if not 0 <= port < 2**16:
        raise ValueError(f"port {port}: it must be from 0, which is any that is free, to {2**16 - 1}.")
    try:
        return Served(_Server(page, port, framed))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OSError(f"port {port} is in use: name another one, or none for any that is free.") from error
        if error.errno == errno.EACCES:
            raise OSError(f"port {port} is not for everybody: name one above 1023.") from error
        raise
