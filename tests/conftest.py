"""What every test runs under: run-time checked shapes and types, the CPU, a compilation cache that survives the run."""

import collections
import gc
import importlib
import os
import sys
import zlib
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# In the environment, not in jax.config: tests that start processes hand it on. Compiling dominates the suite's time, so
# programs are kept in the user's cache folder, as the command line does.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxrl"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE / "tests"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # all are found again
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

LIGHT = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false"}
"""Halves the time of compiling twice (PPO's update: 10.3, 4.3, 1.8 CPU s); programs run slower, to rounding alike."""

# Before any other conftest imports jax, which reads its environment then; workers inherit it. XLA ends a process that
# sets a flag it does not know, so only jaxlibs get one that were seen to take it.
if "--light" in sys.argv:
    known = LIGHT["XLA_FLAGS"] if version("jaxlib").startswith("0.10.") else ""
    os.environ.update(LIGHT | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {known}".strip()})

# Before the first import of jaxrl: every annotated function of the package, links included, is checked when called.
# beartype knows `Self` only in classes that it decorates as a whole, which the hook does not.
NO_SELF = "beartype.BeartypeConf(hint_overrides=beartype.FrozenDict({__import__('typing').Self: object}))"
install_import_hook("jaxrl", f"beartype.beartype(conf={NO_SELF})")

# The first example of a property compiles, so no deadline; the same examples every time, so a failure is a change.
settings.register_profile("jaxrl", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("jaxrl")

SLICES = 12


def slice_of(nodeid: str) -> int:
    """Which of the slices, the shards of the nightly workflow, a slow test belongs to."""
    return zlib.crc32(nodeid.encode()) % SLICES


def pytest_addoption(parser):
    how = "only the tests that may be compiled {}; neither flag: all of them, optimised"
    parser.addoption("--light", action="store_true", help=how.format("with few optimisations, which is how they are"))
    parser.addoption("--optimised", action="store_true", help=how.format("as users' programs are"))
    parser.addoption("--slice", type=int, help=f"of the slow tests, only every {SLICES}th, from this number on")
    parser.addoption("--clients", action="store_true", help="train other libraries' agents too, from the package index")
    parser.addoption("--compile-budget", choices=("warn", "report", "write"), help="see tests/compile_budget.py")


def pytest_configure(config):
    if mode := config.getoption("--compile-budget"):
        from tests.compile_budget import CompileBudget

        config.pluginmanager.register(CompileBudget(mode), "compile-budget")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """What is light is compiled lightly, the rest is not: each in its own call (see the Makefile). Then the slice."""
    light, part = config.getoption("--light"), config.getoption("--slice")
    let_the_first_be_quick(items)

    def here(item):
        slow = item.get_closest_marker("slow")
        marked = item.get_closest_marker("light" if slow else "optimised")
        if part is not None and (slow is None or slice_of(item.nodeid) != part % SLICES):
            return False
        if not light and not config.getoption("--optimised"):
            return True
        # A quick test is light unless marked `optimised`, a slow one is optimised unless marked `light`.
        return light == (bool(marked) if slow else not marked)

    kept = [item for item in items if here(item)]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if not here(item)])
        items[:] = kept


def let_the_first_be_quick(items):
    """`@pytest.mark.slow(but_first=2)`: the first two cases of a parametrised test are in the quick suite."""
    seen = collections.Counter()
    for item in items:
        slow = item.get_closest_marker("slow")
        if slow is None or "but_first" not in slow.kwargs:
            continue
        seen[item.parent.nodeid, item.originalname] += 1
        if seen[item.parent.nodeid, item.originalname] <= slow.kwargs["but_first"]:
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name not in ("slow", "light")]


MOST_MAPPINGS = 20_000
"""Of memory a process; Linux allows 65,530, each program takes a few, and XLA dies of the last one."""


@pytest.fixture(scope="session")
def of_study():
    """`of_study(folder, *names)`: modules of experiments/folder. They are forgotten once they are imported, since other
    studies have modules of the same names."""

    def imported(folder, *names):
        path = str(Path(__file__).parents[1] / "experiments" / folder)
        sys.path.insert(0, path)
        try:
            return [importlib.import_module(name) for name in names]
        finally:
            sys.path.remove(path)
            for name, module in list(sys.modules.items()):
                if (getattr(module, "__file__", None) or "").startswith(path + os.sep):
                    del sys.modules[name]

    return imported


def pytest_runtest_teardown():
    """Let go of compiled programs before there are too many: a worker makes thousands in the course of the suite."""
    import jax  # not before the environment above is set

    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()
