"""The `jaxrl` command: which command its first word names, how it ends, and where compiled programs are kept."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxrl.host.cli.bench import bench
from jaxrl.host.cli.evaluate import evaluate_command
from jaxrl.host.cli.export import export_command
from jaxrl.host.cli.flags import USAGE, UsageError
from jaxrl.host.cli.lists import algos, envs
from jaxrl.host.cli.plot import plot_command
from jaxrl.host.cli.render import render
from jaxrl.host.cli.sweep import sweep_command
from jaxrl.host.cli.train import resume, train


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [a for a in args if a != "--debug"]
    if not args or args[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if args else 2
    try:
        if args[0] not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            raise UsageError(f"unknown command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        cache_compilations()
        return COMMANDS[args[0]](args[1:]) or 0
    except KeyboardInterrupt:
        return 130
    except SystemExit as stop:  # tyro has explained itself
        return stop.code if isinstance(stop.code, int) else 1
    except UsageError as error:
        print(f"jaxrl: {error}\n\n{USAGE}", file=sys.stderr)
        return 2
    except Exception as error:
        if debug or not isinstance(error, _expected_errors()):
            raise
        print(f"jaxrl: {error}", file=sys.stderr)
        return 1


def train_file(file: str) -> None:
    """What an algorithm's file does when it is run: `python algos/ppo.py ...` is `jaxrl train ppo ...`."""
    sys.exit(main(["train", Path(file).stem, *sys.argv[1:]]))


def _expected_errors() -> tuple[type[Exception], ...]:
    from jaxrl.host.checkpoint import CheckpointError
    from jaxrl.host.fit import DivergenceError
    from jaxrl.host.run_folder import RunFolderError

    return (
        ValueError,
        TypeError,
        NotImplementedError,
        ImportError,
        OSError,
        CheckpointError,
        RunFolderError,
        DivergenceError,
    )


def cache_compilations() -> None:
    """Keep compiled programs between runs, in JAXRL_CACHE_DIR or the user's cache folder."""
    import jax

    if jax.config.jax_compilation_cache_dir:
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", os.environ.get("JAXRL_CACHE_DIR") or str(home / "jaxrl" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "sweep": sweep_command,
    "resume": resume,
    "eval": evaluate_command,
    "render": render,
    "export": export_command,
    "plot": plot_command,
    "envs": envs,
    "algos": algos,
    "bench": bench,
}
