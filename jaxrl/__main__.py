"""`python -m jaxrl` is the command `jaxrl`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from jaxrl.host.cli.command import main

    sys.exit(main())
