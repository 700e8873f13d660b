"""Which call made an object: so a run folder can keep how an algorithm was put together in Python.

What a function marked `@recorded` returns is remembered with the arguments of the call. `algorithm.shared` marks the
`make` of algorithms. `host.run.made` writes such calls as JSON and makes the object again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

from jaxrl.environment import is_concrete

P = ParamSpec("P")
R = TypeVar("R")


class Call(NamedTuple):
    """A function and the arguments, by their names, that were not left at their defaults."""

    of: Callable[..., Any]
    arguments: dict[str, Any]


MOST = 4096
"""Calls that are remembered: the last ones."""

_CALLS: dict[int, tuple[Any, Call]] = {}  # by the identity of what was made, which is held and so stays the only one


def recorded(make: Callable[P, R]) -> Callable[P, R]:
    """`make`, whose calls are remembered. A function of yours that makes a curriculum needs it, or its runs in Python
    keep no recipe.
    """
    signature = inspect.signature(make)

    @functools.wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> R:
        result = make(*args, **kwargs)
        remember(result, made, signature, signature.bind(*args, **kwargs).arguments)
        return result

    return marked(made)


def marked(made: Callable[P, R]) -> Callable[P, R]:
    """`made` with the mark by which `host.run.made` knows a function that may be called again."""
    made.is_recorded = True  # pyright: ignore[reportFunctionMemberAccess]
    return made


def remember(made: Any, of: Callable[..., Any], signature: inspect.Signature, arguments: dict[str, Any]) -> None:
    """Remember that the function `of`, called with these arguments, returned `made`. Calls with traced values are not
    remembered.
    """
    defaults = {name: parameter.default for name, parameter in signature.parameters.items()}
    if not is_concrete(arguments):
        return
    _CALLS.pop(id(made), None)
    _CALLS[id(made)] = made, Call(of, {name: x for name, x in arguments.items() if x is not defaults[name]})
    while len(_CALLS) > MOST:
        del _CALLS[next(iter(_CALLS))]


def call_of(made: Any) -> Call | None:
    """The call that returned this very object; None where none is remembered."""
    found, call = _CALLS.get(id(made), (None, None))
    return call if found is made and found is not None else None
