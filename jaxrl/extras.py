"""How an extra is added to the jaxrl that is installed: from a checkout, a git address, a file, or the index."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse


def install(extra: str) -> str:
    """The shell line that installs `jaxrl[extra]` from where this jaxrl came from."""
    try:
        recorded = importlib.metadata.distribution("jaxrl").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:  # a checkout on the path
        return _line(extra, {"url": Path(__file__).resolve().parents[1].as_uri(), "dir_info": {"editable": True}})
    return _line(extra, json.loads(recorded) if recorded else None)


def _line(extra: str, origin: dict[str, Any] | None) -> str:
    """`origin` is what PEP 610 records of a package that is not of an index; None for one that is."""
    if origin is None:
        return f'pip install "jaxrl[{extra}]"'
    if "dir_info" in origin:
        flag = "-e " if origin["dir_info"].get("editable") else ""
        return f'pip install {flag}"{unquote(urlparse(origin["url"]).path)}[{extra}]"'
    vcs = origin.get("vcs_info")
    if vcs is None:
        return f'pip install "jaxrl[{extra}] @ {origin["url"]}"'
    at = f"@{vcs['requested_revision']}" if "requested_revision" in vcs else ""
    return f'pip install "jaxrl[{extra}] @ {vcs["vcs"]}+{origin["url"]}{at}"'
