"""`python -m jaxrl.host.ahead`: see `run`."""

import sys

from jaxrl.host.ahead.run import main

sys.exit(main())
