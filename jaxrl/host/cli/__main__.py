"""`python -m jaxrl.host.cli` is the command `jaxrl`."""

from __future__ import annotations

import sys

from jaxrl.host.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
