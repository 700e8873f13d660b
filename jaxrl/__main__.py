"""`python -m jaxrl` is the command `jaxrl`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from jaxrl.host.cli.command import program
    except KeyboardInterrupt:
        sys.exit(130)
    program()
