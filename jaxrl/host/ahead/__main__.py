"""`python -m jaxrl.host.ahead`: see `run`."""

import sys

from jaxrl.host.ahead.run import main

if __name__ == "__main__":
    sys.exit(main())
