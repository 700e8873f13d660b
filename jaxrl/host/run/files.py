"""Small text files of a run folder, which may be somebody else's: of any size, and of any bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MOST_BYTES = 2**28
"""Of a file that is read whole; a run's own have far fewer."""


def read_text(file: Path) -> str:
    """The text of a file; bytes that are no text are replaced. Raises ValueError, before it is read, for one of more
    than `MOST_BYTES`, OSError where it cannot be read.
    """
    if (size := file.stat().st_size) > MOST_BYTES:
        raise ValueError(f"it has {size} bytes, more than any run writes")
    return file.read_text(errors="replace")


def read_json(file: Path) -> Any:
    """What a JSON file holds. Raises ValueError for what is none, is nested too deeply or too large, OSError without a
    file.
    """
    try:
        return json.loads(read_text(file))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
