"""What every test runs under: run-time checked shapes and types, the CPU, a compilation cache that survives the run."""

import gc
import os
from pathlib import Path

from hypothesis import settings
from jaxtyping import install_import_hook

# In the environment, not in jax.config: tests that start processes hand it on. Compiling dominates the suite's time.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

# Before the first import of jaxrl: every annotated function of the package, links included, is checked when called.
# beartype knows `Self` only in classes that it decorates as a whole, which the hook does not.
NO_SELF = "beartype.BeartypeConf(hint_overrides=beartype.FrozenDict({__import__('typing').Self: object}))"
install_import_hook("jaxrl", f"beartype.beartype(conf={NO_SELF})")

# The first example of a property compiles, so no deadline; the same examples every time, so a failure is a change.
settings.register_profile("jaxrl", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("jaxrl")

MOST_MAPPINGS = 20_000
"""Of memory a process; Linux allows 65,530, each program takes a few, and XLA dies of the last one."""


def pytest_runtest_teardown():
    """Let go of compiled programs before there are too many: a worker makes thousands in the course of the suite."""
    import jax  # not before the environment above is set

    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()
