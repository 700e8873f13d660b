"""Wrappers that are put around a task by a word, as commands and recipes have it: `PreviousActionReward`,
`FrameStack:length=8`. They change what the agent is shown or how its actions are read, not the task and its returns.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any

from jaxrl.environment import Environment
from jaxrl.wrappers.actions import ActionRepeat, ClipAction
from jaxrl.wrappers.memory import ActionHistory, FrameStack, PreviousActionReward
from jaxrl.wrappers.vectors import FlattenObservation

WRAPPERS = ActionHistory, ActionRepeat, ClipAction, FlattenObservation, FrameStack, PreviousActionReward
BY_NAME = {x.__name__: x for x in WRAPPERS}


def wrapped(env: Environment, words: Sequence[str]) -> Environment:
    """The environment with these wrappers around it, the first word's innermost.

    Raises ValueError for an unknown wrapper or setting, a setting that is no whole number, and what a wrapper refuses.
    """
    for word in words:
        name, _, settings = word.partition(":")
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, BY_NAME, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(BY_NAME)}."
            raise ValueError(f"{word!r} is no wrapper{hint}")
        known = [field.name for field in dataclasses.fields(BY_NAME[name]) if field.name not in ("env", "id")]
        env = BY_NAME[name](env, **dict(_setting(word, each, known) for each in settings.split(",") if each))
    return env


def _setting(word: str, each: str, known: Sequence[str]) -> tuple[str, Any]:
    name, _, value = each.partition("=")
    if name not in known:
        has = f"its settings are {', '.join(known)}" if known else "it has no settings"
        raise ValueError(f"{word!r}: {name!r} is no setting of the wrapper; {has}.")
    if not value.isdecimal():
        raise ValueError(f"{word!r}: {name} must be a whole number, as {name}=4.")
    return name, int(value)


def repeats(env: Any) -> int:
    """Steps of the task in a decision: the product of `ActionRepeat`s around it."""
    inner = getattr(env, "env", None)
    return (env.repeat if isinstance(env, ActionRepeat) else 1) * (1 if inner is None else repeats(inner))


def repeated(env: Any, repeat: int) -> Environment:
    """The environment whose `ActionRepeat` takes each action `repeat` times, other wrappers as they were."""
    if isinstance(env, ActionRepeat):
        return dataclasses.replace(env, repeat=repeat)
    inner = getattr(env, "env", None)
    return env if inner is None else dataclasses.replace(env, env=repeated(inner, repeat))


def unwrapped(env: Environment) -> Environment:
    """The task inside of such wrappers."""
    while isinstance(env, tuple(BY_NAME.values())):
        env = env.env
    return env
