"""The `jaxrl` command: which command its first word names, how it ends, and where compiled programs are kept."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import math
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from jaxrl.host.cli.flags import USAGE, UsageError
from jaxrl.host.run.interrupts import Terminated


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    debug, trust = "--debug" in args, "--trust" in args
    args = [a for a in args if a not in ("--debug", "--trust")]
    if args[:1] == ["help"]:
        args = [*args[1:], "--help"]
    try:
        if not args or args[0] in ("-h", "--help"):
            print(USAGE, flush=True)
            return 0 if args else 2
        if args[0] == "--version":
            if args[1:]:
                raise UsageError(f"--version stands alone, without {args[1]!r}.")
            from importlib.metadata import version

            print(f"jaxrl {version('jaxrl')}")
            return 0
        if any(not a or (a.startswith("--") and a.endswith("=")) for a in args):
            raise UsageError("a word is empty: is a variable of the shell not set?")
        if args[0] not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            raise UsageError(f"unknown command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        if trust and args[0] not in READING:
            raise UsageError(f"--trust belongs to commands that read run folders: {', '.join(READING)}.")
        from jaxrl.host.run.trust import trusting

        cache_compilations()
        make_devices(args)
        module, _, name = COMMANDS[args[0]].partition(":")
        command = getattr(importlib.import_module(f"jaxrl.host.cli.{module}"), name)
        with trusting(trust), terminable():
            status = command(args[1:]) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # who reads has seen enough, as `head`; nothing more is to be written, also at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as asked:
        if isinstance(asked, Terminated):
            print("jaxrl: terminated.", file=sys.stderr)
            return 128 + signal.SIGTERM
        return 128 + signal.SIGINT
    except SystemExit as stop:  # tyro has explained itself
        return stop.code if isinstance(stop.code, int) else 1
    except UsageError as error:
        of = f"jaxrl {args[0]}" if error.help_of == "jaxrl" and args[0] in COMMANDS else error.help_of
        what = "all commands" if of == "jaxrl" else "its flags"
        print(f"jaxrl: {error}\n`{of} --help` shows {what}.", file=sys.stderr)
        return 2
    except Exception as error:
        said = explained(error)
        if debug or said is None:
            raise
        print(f"jaxrl: {said}", file=sys.stderr)
        return 1


def explained(error: BaseException) -> str | None:
    """One sentence for an error that users can mend; None for others, whose traceback helps more."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    texts = [str(link) for link in chain]
    if any(getattr(link, "errno", None) == errno.ENOSPC for link in chain) or any(NO_SPACE in text for text in texts):
        return "the disk is full: make room, then `jaxrl resume` goes on from the newest whole checkpoint."
    if any(
        isinstance(link, MemoryError) or "RESOURCE_EXHAUSTED" in text for link, text in zip(chain, texts, strict=True)
    ):
        return "out of memory: fewer --seeds or --config.num-envs, or a smaller --config.buffer-size or num-steps."
    if isinstance(error, RecursionError):
        return "what was read is nested too deeply to be anything that jaxrl writes."
    if type(error).__name__ == "DecompressionBombError":  # of PIL, which is not imported for its name
        return f"a picture declares more points than any of jaxrl has: {' '.join(texts[0].split())}"
    if isinstance(error, OverflowError):
        return (
            f"a number or a size is larger than can be kept, about {2**31 - 1} at most: {' '.join(texts[0].split())}."
        )
    return " ".join(str(error).split()) if isinstance(error, _expected_errors()) else None


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does, with a word; what can save something first does (`run.interrupts`)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def leave(status: int) -> NoReturn:
    """End the program. One that was interrupted may still compute in threads of jax, which would be torn down under
    them (a fault of memory in place of its exit status); it ends without that.
    """
    if status in (128 + signal.SIGINT, 128 + signal.SIGTERM) and _alone():
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _alone() -> bool:
    """Whether no other process waits for the farewell of this one."""
    import jax

    return not jax.distributed.is_initialized()


def program() -> NoReturn:
    """The command `jaxrl`."""
    leave(main())


def train_file(file: str) -> None:
    """What an algorithm's file does when it is run: `python algos/on_policy/ppo.py ...` is `jaxrl train ppo ...`."""
    leave(main(["train", Path(file).stem, *sys.argv[1:]]))


READING = ("resume", "eval", "render", "play", "watch", "export", "plot", "report", "train", "sweep", "compile")
"""Commands that read run folders, which may name Python of somebody else: it is run with `--trust` alone."""

NO_SPACE = os.strerror(errno.ENOSPC)


def _expected_errors() -> tuple[type[Exception], ...]:
    from jaxrl.host.run.checkpoint import CheckpointError
    from jaxrl.host.run.fit import DivergenceError
    from jaxrl.host.run.run_folder import RunFolderError

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


def make_devices(args: list[str]) -> None:
    """Let jax have as many CPU devices as the mesh of `--mesh` needs, which has to be said before jax is used.

    Nothing changes where XLA_FLAGS or JAX_NUM_CPU_DEVICES says how many there are, or with `--distributed`, where each
    process says its own.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--mesh")
    parser.add_argument("--distributed", action="store_true")
    # Words that cannot be read, or jax in use already: who reads them next says what is wrong.
    with contextlib.suppress(argparse.ArgumentError, ValueError, RuntimeError):
        said = parser.parse_known_args(args)[0]
        if said.mesh is None or said.distributed or args[0] not in TRAINING:
            return
        import jax

        from jaxrl.host.run.sharding import sizes_of

        flags = os.environ.get("XLA_FLAGS", "")
        if jax.config.jax_num_cpu_devices < 0 and "xla_force_host_platform_device_count" not in flags:
            jax.config.update("jax_num_cpu_devices", min(math.prod(sizes_of(said.mesh).values()), MOST_DEVICES))


TRAINING = ("train", "resume", "sweep", "meta-train")
"""Commands whose `--mesh` is of this machine's devices."""

MOST_DEVICES = 256
"""The most CPU devices that are made: each has threads of its own."""


COMMANDS = {
    "train": "train:train",
    "sweep": "sweep:sweep_command",
    "compile": "compile:compile_command",
    "meta-train": "meta:meta_train",
    "meta-test": "meta:meta_test",
    "resume": "train:resume",
    "eval": "evaluate:evaluate_command",
    "render": "render:render",
    "play": "browse:play",
    "watch": "browse:watch",
    "export": "export:export_command",
    "plot": "plot:plot_command",
    "report": "report:report_command",
    "dataset": "dataset:dataset_command",
    "envs": "lists:envs",
    "algos": "lists:algos",
    "zoo": "lists:zoo",
    "bench": "bench:bench",
}
"""Where each command is: the one that is asked for is imported, and no other."""
