"""What a hand can do in an environment: names of actions, keys for them, and what a page sends as an action."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl.spaces import Box, Discrete, MultiDiscrete

ARROWS = {"left": "ArrowLeft", "right": "ArrowRight", "up": "ArrowUp", "down": "ArrowDown"}
ARROWS |= {"west": "ArrowLeft", "east": "ArrowRight", "north": "ArrowUp", "south": "ArrowDown", "forward": "ArrowUp"}

MOVES = ("turn", "move", "go")
"""Words before a direction; after another one it is none, as in `put down`."""

FORWARD = {"v", "speed", "velocity", "thrust", "throttle", "forward"}
TURN = {"w", "omega", "turn", "angular", "yaw", "steer", "steering"}
"""Words in the name of a number that drives ahead, and of one that turns."""

IDLE = ("stay", "none", "noop", "nothing", "wait")
"""Actions that are taken while no key is held, the first that there is."""

SIGNS = ["-1", "0", "1"]
"""Actions of a torque."""

MOST_BUTTONS = 40
"""Of more actions a page asks for the number."""

COLUMNS = ("aq", "sw", "de", "fr", "gt", "hy")
"""Keys less and more of the numbers of an action, where the four arrows are not enough."""


def labels(names: Sequence[str], count: int) -> list[str]:
    """What each of `count` actions is called: of `push, 0 left, 1 right`, which is how `action_names` has it, left and
    right; where nobody said, its number."""
    found = dict(re.findall(r"(?:^|, )(\d+) (?:is )?([^,]+)", names[0])) if len(names) == 1 else {}
    return [found.get(str(i), str(i)) for i in range(count)]


def keys(called: Sequence[str]) -> list[list[str]]:
    """The keys of actions by their names, as browsers name them: arrows for what is a direction, else a letter of the
    name; and its number for each of the first ten."""
    taken: set[str] = set()
    found: list[list[str]] = []
    for name in called:
        first, *rest = name.split() or [""]
        where = rest if first in MOVES else [name]
        own = [ARROWS[word] for word in where if word in ARROWS and ARROWS[word] not in taken][:1]
        taken |= {*own}
        found.append(own)
    if list(called) == SIGNS:
        found = [["ArrowLeft"], ["ArrowDown"], ["ArrowRight"]]
    for own, name in zip(found, called, strict=True):
        letter = next((c for c in name.lower() if c.isascii() and c.isalpha() and c not in taken), None)
        if not own and letter is not None and name != "nothing":
            taken.add(letter)
            own.append(letter)
    return [[*own, str(i)] if i < 10 else own for i, own in enumerate(found)]


def described(space: Any, names: Sequence[str]) -> dict[str, Any]:
    """The controls of one agent's actions. Raises ValueError for a space that has none here."""
    if isinstance(space, Discrete):
        called = labels(names, space.n) if space.n <= MOST_BUTTONS else []
        idle = 1 if called == SIGNS else next((called.index(name) for name in IDLE if name in called), None)
        actions = [{"label": a, "keys": k} for a, k in zip(called, keys(called), strict=True)]
        return {"kind": "discrete", "n": space.n, "actions": actions, "idle": idle}
    if isinstance(space, MultiDiscrete):
        called = list(names) if len(names) == len(space.nvec) else [f"action[{i}]" for i in range(len(space.nvec))]
        return {"kind": "multi", "entries": [{"name": a, "n": n} for a, n in zip(called, space.nvec, strict=True)]}
    if isinstance(space, Box):
        low, high = _ends(space)
        called = list(names) if len(names) == low.size else [f"action[{i}]" for i in range(low.size)]
        pairs = [("ArrowLeft", "ArrowRight"), ("ArrowDown", "ArrowUp")] if low.size <= 2 else map(tuple, COLUMNS)
        if [_role(name) for name in called] == ["forward", "turn"]:
            pairs = [("ArrowDown", "ArrowUp"), ("ArrowRight", "ArrowLeft")]  # more turns counter-clockwise
        entries = [
            {"name": name, "low": float(a), "high": float(b), "neutral": float(z), "keys": []}
            for name, a, b, z in zip(called, low, high, neutral(space).reshape(-1), strict=True)
        ]
        for entry, pair in zip(entries, pairs, strict=False):
            entry["keys"] = list(pair)
        return {"kind": "box", "entries": entries}
    raise ValueError(f"actions in {space} have no controls on the page: they are no numbers in one array.")


def _role(name: str) -> str | None:
    """Whether a number drives ahead or turns, by its name without the unit."""
    words = {*re.findall("[a-z]+", name.lower().partition("[")[0])}
    return "turn" if words & TURN else "forward" if words & FORWARD else None


def _ends(space: Box) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest of each number, flat; an open side is as far as a slider goes."""
    low, high = (np.broadcast_to(np.asarray(x, float), space.shape).reshape(-1) for x in (space.low, space.high))
    return np.where(np.isfinite(low), low, -10.0), np.where(np.isfinite(high), high, 10.0)


def neutral(space: Any) -> np.ndarray:
    """The action of nobody: zeros where they are allowed, else the middle; the first of those that are counted."""
    if not isinstance(space, Box):
        return np.zeros(space.shape, np.int32)
    low, high = _ends(space)
    middle = np.where((low <= 0) & (high >= 0), 0.0, (low + high) / 2)
    return middle.reshape(space.shape).astype(space.dtype)


def read(space: Any, said: Any, mask: Any = None) -> np.ndarray:
    """The action that a page sent. Raises ValueError, with what is allowed, for one that is none of the space, or that
    the action mask forbids."""
    if isinstance(space, Discrete):
        if type(said) is not int or not 0 <= said < space.n:
            raise ValueError(f"action {said!r:.60}: it must be a number from 0 to {space.n - 1}.")
        if mask is not None and np.ndim(mask) == 1 and not np.asarray(mask)[said]:
            raise ValueError(f"action {said} is forbidden here by the action mask.")
        return np.asarray(said, space.dtype)
    size = int(np.prod(space.shape))
    if not isinstance(said, list) or len(said) != size or not all(type(x) in (int, float) for x in said):
        raise ValueError(f"action {said!r:.60}: it must be a list of {size} numbers.")
    if isinstance(space, MultiDiscrete):
        for x, n in zip(said, space.nvec, strict=True):
            if type(x) is not int or not 0 <= x < n:
                raise ValueError(f"action {said!r:.60}: {x!r:.60} must be a number from 0 to {n - 1}.")
        return np.asarray(said, np.int32).reshape(space.shape)
    values = np.asarray(said, float).astype(space.dtype)
    low, high = (np.broadcast_to(np.asarray(x), space.shape).reshape(-1) for x in (space.low, space.high))
    for x, a, b in zip(values, low, high, strict=True):
        if not np.isfinite(x) or not a <= x <= b:
            raise ValueError(f"action {said!r:.60}: {x} must be from {a} to {b}.")
    return values.reshape(space.shape)
