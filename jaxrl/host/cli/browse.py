"""`jaxrl play` and `jaxrl watch`: pages in a browser, served on this machine until Ctrl-C."""

from __future__ import annotations

import dataclasses
import html
import os
import sys
import tempfile
import threading
import time
import webbrowser
from pathlib import Path
from typing import Annotated, Any

from jaxrl.host.cli.experiment import AtFlags, MovedFlags, at_of, bare_words
from jaxrl.host.cli.flags import (
    Act,
    UsageError,
    flat,
    flattened,
    greedy_of,
    key_of,
    multiplied,
    numbers,
    parse,
    positional,
    settings_of,
)


@dataclasses.dataclass(kw_only=True)
class PageFlags:
    """What both take."""

    port: int = 0
    """Of 127.0.0.1. Default: any that is free."""
    browser: bool = True
    """Open the page in a browser; it is not tried where there is no display."""


@dataclasses.dataclass(kw_only=True)
class PlayFlags(PageFlags):
    seed: int = 0
    """Of the first episode's random numbers; of a run also which of its seeds."""
    key: int | None = None
    """Of the first episode's random numbers. Default: the number of the seed."""


def play(args: list[str]) -> int:
    words = bare_words(args)
    if not words:
        if {"-h", "--help"} & {*args}:
            print(HELP)
            return 0
        if args:
            raise UsageError(
                "play takes an environment, a run folder or zoo:NAME before its flags: jaxrl play Maze-v0 --seed 3.",
                "jaxrl play",
            )
        raise UsageError("play needs an environment, a run folder or zoo:NAME, as in jaxrl play Maze-v0.", "jaxrl play")
    return _of_policy(args) if _is_trained(words[0]) else _of_environment(args)


def _is_trained(word: str) -> bool:
    """Whether a word names a run folder, also one that is not there, or a policy of the zoo; no id has a slash."""
    return word.startswith("zoo:") or Path(word).is_dir() or ("/" in word and ":" not in word)


HELP = """usage: jaxrl play ENV       an environment in the browser, by keyboard, buttons and sliders
       jaxrl play RUN       the same of a trained policy's task; the policy can act, too
       jaxrl play zoo:NAME

`jaxrl play Maze-v0 --help` lists the flags, with the environment's own --params.* and --env.*"""


def _of_environment(args: list[str]) -> int:
    from jaxrl import registry
    from jaxrl.host.run.recipe import placed

    id = registry.lasting(args[0])
    env, params = registry.make(id)
    cls = dataclasses.make_dataclass(
        "Play",
        [
            ("page", flat(PlayFlags), dataclasses.field(default_factory=PlayFlags)),
            numbers("params", params),
            settings_of("env", env),
        ],
        kw_only=True,
    )
    flags = parse(cls, args[1:], f"jaxrl play {id}", f"Play {id} in the browser.")
    usual, told = cls(), flattened(multiplied(dataclasses.asdict(flags.params), params))
    settings = _other(dataclasses.asdict(flags.env), dataclasses.asdict(usual.env))
    if settings:
        env, params = registry.make(id, **settings)
    # What was not said is as the settings have it: the time limit of a larger map, say.
    values = _other(told, flattened(multiplied(dataclasses.asdict(usual.params), params)))
    from jaxrl.host.browser import Game

    key = flags.page.seed if flags.page.key is None else flags.page.key
    key_of(key, "--seed" if flags.page.key is None else "--key")
    return _serve(Game(env, placed(params, values), key), flags.page)


def _other(values: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in usual or value != usual[name]}


def _of_policy(args: list[str]) -> int:
    @dataclasses.dataclass
    class Play(MovedFlags, AtFlags, PlayFlags):
        run: Annotated[Path, positional()] = dataclasses.field(kw_only=True)
        """Run folder, or zoo:NAME."""
        act: Act | None = None
        """How the policy acts. Default: as the algorithm is deployed."""

    flags = parse(
        Play, args, "jaxrl play", "Play the task of a trained policy in the browser; the policy can act, too."
    )
    from jaxrl.host.browser import Game, Player
    from jaxrl.zoo import policy_of

    key = flags.seed if flags.key is None else flags.key
    key_of(key, "--seed" if flags.key is None else "--key")
    algo, policy, env, params = policy_of(flags.run, flags.seed, flags.dataset, at_of(flags.at))
    return _serve(Game(env, params, key, Player(algo, policy, str(flags.run), greedy_of(flags.act))), flags)


def watch(args: list[str]) -> int:
    @dataclasses.dataclass
    class Watch(MovedFlags, PageFlags):
        run: Annotated[Path, positional()] = dataclasses.field(kw_only=True)
        """Run folder, which may train now, have ended, or not be there yet."""

    flags = parse(Watch, args, "jaxrl watch", "Curves, evaluations and films of a run in the browser, while it trains.")
    if not os.environ.get("JAX_PLATFORMS"):
        import jax

        # For films; the accelerator, and most of its memory, is the training's.
        jax.config.update("jax_platforms", "cpu")
    from jaxrl.host.browser import Watched

    return _serve(Watched(flags.run, flags.dataset), flags)


def _serve(page: Any, flags: PageFlags) -> int:
    """Serve until Ctrl-C or SIGTERM, which end the command as they end any other."""
    from jaxrl.host.browser import serve

    with tempfile.TemporaryDirectory(prefix="jaxrl-") as folder, serve(page, flags.port, framed=False) as served:
        print(f"{served.url}  (Ctrl-C ends it)", flush=True)
        if flags.browser and _has_display():
            file = _redirect(Path(folder), served.url)
            threading.Thread(target=webbrowser.open, args=(file.as_uri(),), daemon=True).start()
        while True:
            time.sleep(3600)
    return 0


def _redirect(folder: Path, url: str) -> Path:
    """A page that leads to an address, for this user alone: a browser is started with what it is to open among its
    words, which every user of the machine can read."""
    file = folder / "open.html"
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        to = html.escape(url)
        out.write(f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={to}">\n')
        out.write(f'<title>jaxrl</title><a href="{to}">The page</a>\n')
    return file


def _has_display() -> bool:
    """Whether a browser has a window to open in; elsewhere one that draws text would take the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
