"""Pages of a browser, served on this machine alone: `play` an environment by hand, `watch` a run while it trains.

`play(env, params)` and `watch(folder)` return a `Served`, which a notebook shows as a frame; `jaxrl play` and
`jaxrl watch` open the same pages in a browser of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxrl.host.browser.game import Game, Player
from jaxrl.host.browser.server import Served, serve
from jaxrl.host.browser.watched import Watched

__all__ = ["Game", "Player", "Served", "Watched", "play", "serve", "watch"]


def play(env: Any, params: Any = None, *, key: int = 0, player: Player | None = None, port: int = 0) -> Served:
    """Serve a page on which `env` is played by keyboard, buttons and sliders, until `stop()` is called.

    Args:
        params: default: those of `env`.
        key: of the first episode's random numbers.
        player: whose policy can act in the place of the hand.
        port: of this machine; 0 for any that is free.

    Raises ValueError for params that no episode can have or a task whose actions have no controls, OSError for a port
    that is taken.
    """
    return serve(Game(env, params, key, player), port)


def watch(folder: str | Path, *, port: int = 0) -> Served:
    """Serve a page with the curves and the newest film of a run, which may train now or start later, until `stop()`.

    Raises RunFolderError for a folder that holds something else than a run, OSError for a port that is taken.
    """
    return serve(Watched(folder), port)
