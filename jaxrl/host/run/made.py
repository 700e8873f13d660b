"""Objects as JSON and arrays, and back: calls, dataclasses and functions by module and name, numbers as arrays.

What is written is made of None, booleans, numbers, strings, lists (of tuples), and dicts with one tag of `TAGS`. Arrays
stand in a dict beside it. What is read is data, which somebody else may have written: only functions that are marked
`calls.recorded` are called, only dataclasses and named tuples are made, and a module that lies in the run folder is not
imported.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import registry
from jaxrl.calls import call_of

TAGS = ("call", "object", "name", "method", "partial", "dict", "list", "float", "array", "dtype")


class NotMadeError(Exception):
    """An object that JSON and arrays do not say, or JSON of which no object is made; the message says why."""


# ---- from objects to JSON


def written(x: Any, arrays: dict[str, np.ndarray], what: str) -> Any:
    """`x` as JSON; its arrays are added to `arrays`. `what` is it called in messages.

    Raises NotMadeError for what has no name, as a function inside another one.
    """
    if x is None or isinstance(x, bool | int | str):
        return x
    if isinstance(x, float):
        return x if math.isfinite(x) else {"float": repr(x)}
    if (call := call_of(x)) is not None:
        of = f"{call.of.__module__}.{call.of.__name__}"
        inside = {name: written(y, arrays, f"{name} of {of}") for name, y in call.arguments.items()}
        return {"call": _name(call.of, what), "arguments": inside}
    if isinstance(x, jax.Array | np.ndarray | np.generic):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            raise NotMadeError(f"{what} is a random key, which is kept in no file.")
        name = f"a{len(arrays)}"
        arrays[name] = np.asarray(x)
        return {"array": name}
    if isinstance(x, np.dtype):
        return {"dtype": x.name}
    if isinstance(x, tuple) and not hasattr(x, "_fields"):
        return [written(y, arrays, f"{what}[{i}]") for i, y in enumerate(x)]
    if isinstance(x, list):
        return {"list": [written(y, arrays, f"{what}[{i}]") for i, y in enumerate(x)]}
    if isinstance(x, dict) and all(isinstance(name, str) for name in x):
        return {"dict": {name: written(y, arrays, f"{what}.{name}") for name, y in x.items()}}
    if isinstance(x, functools.partial):
        parts = [written(y, arrays, f"{what} (a partial)") for y in (x.func, x.args, x.keywords)]
        return {"partial": parts[0], "args": parts[1], "keywords": parts[2]}
    if inspect.ismethod(x):
        return {"method": x.__name__, "of": written(x.__self__, arrays, f"the object of {what}, {x.__qualname__},")}
    if (named := list(_fields(x))) or _is_record(type(x)):
        inside = {name: written(y, arrays, f"{what}.{name}") for name, y in named}
        return {"object": _name(type(x), what), "fields": inside}
    if callable(x) and hasattr(x, "__qualname__"):
        return {"name": _name(x, what)}
    raise NotMadeError(f"{what} is a {type(x).__qualname__} of {type(x).__module__}, which no name and number says.")


def _is_record(cls: Any) -> bool:
    return isinstance(cls, type) and (dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and _named_tuple(cls)))


def _named_tuple(cls: type) -> bool:
    return hasattr(cls, "_fields")


def _fields(x: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a dataclass or a named tuple that make it again."""
    if not _is_record(type(x)):
        return
    if isinstance(x, tuple):
        yield from zip(x._fields, x, strict=True)  # pyright: ignore[reportAttributeAccessIssue]
        return
    of_linen = ("parent", "name") if isinstance(x, nn.Module) else ()  # where a network is inside another one
    for field in dataclasses.fields(x):
        if field.init and field.name not in of_linen:
            yield field.name, getattr(x, field.name)


def _name(x: Any, what: str) -> str:
    """`module:qualified.name`. Raises NotMadeError for what cannot be imported by it."""
    module, name = x.__module__, x.__qualname__
    if module == "__main__":
        raise NotMadeError(f"{what}, {name}, is defined in the script that was run: move it into a module.")
    if "<" in name:
        raise NotMadeError(
            f"{what}, {name} of {module}, is defined inside a function: move it to the top of its module, or mark what "
            "makes it with @jaxrl.calls.recorded."
        )
    if _found(sys.modules[module], name) is not x:
        raise NotMadeError(f"{what}, {name}, is not what its module {module} has under this name.")
    file = getattr(sys.modules[module], "__file__", None)
    if module in sys.modules and _own(module) and file and not _on_path(module):
        return f"{Path(file).resolve()}:{name}"
    return f"{module}:{name}"


def _on_path(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _own(module: str) -> bool:
    return module.partition(".")[0] != "jaxrl"


def _found(module: Any, name: str) -> Any:
    return functools.reduce(lambda part, field: getattr(part, field, None), name.split("."), module)


# ---- from JSON to objects


def read(x: Any, arrays: dict[str, np.ndarray], folder: Path) -> Any:
    """The object that `written` wrote into `folder`. Raises NotMadeError for JSON that is none of it, for names that
    there are not, and for a module that lies in the folder.
    """
    if not isinstance(x, dict):
        return tuple(read(y, arrays, folder) for y in x) if isinstance(x, list) else x
    try:
        tag = next(tag for tag in TAGS if tag in x)
        return _READERS[tag](x, lambda y: read(y, arrays, folder), arrays, folder)
    except (StopIteration, KeyError, AttributeError) as error:
        raise NotMadeError(f"{str(x)[:60]!r} is nothing that a recipe is made of ({error}).") from error


def names_in(x: Any) -> Iterator[str]:
    """The modules, or files, of all names in JSON that `written` wrote."""
    if isinstance(x, list):
        for y in x:
            yield from names_in(y)
    elif isinstance(x, dict):
        for tag, y in x.items():
            if tag in ("call", "object", "name") and isinstance(y, str):
                yield y.rpartition(":")[0]
            else:
                yield from names_in(y)


def _imported(word: str, folder: Path, taken: Callable[[Any], bool] = lambda found: True, refusal: str = "") -> Any:
    """What stands under `module:name` or `file.py:name`, outside of the run folder.

    Raises NotMadeError with this `refusal` for what is not `taken`, whose module does not become one of this program.
    """
    source, _, name = word.rpartition(":")
    own = _own(source)
    if not own:
        module = importlib.import_module(source)
    else:
        for place in _places(source):
            if place.resolve().is_relative_to(folder.resolve()):
                raise NotMadeError(f"{source} lies in the run folder {folder}, from which no Python is run.")
        module = registry.module_of(source)
    found = _found(module, name)
    if found is None:
        raise NotMadeError(f"{source} has no {name}.")
    if not taken(found):
        raise NotMadeError(f"{word} is {refusal}.")
    if own:
        registry.own_module(source)
    return found


def _places(source: str) -> list[Path]:
    """Where a module or file would be read from: of a module in the current folder, too, as `own_module` looks."""
    if source.endswith(".py"):
        return [Path(source)]
    if source in sys.modules:
        return []
    top = source.partition(".")[0]
    here = [path for path in (Path(f"{top}.py"), Path(top)) if path.exists()]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    return [*here, *([Path(spec.origin)] if spec and spec.origin and spec.has_location else ())]


def _call(x: Any, inside: Callable, arrays: Any, folder: Path) -> Any:
    refusal = "not marked @jaxrl.calls.recorded, and is not called"
    make = _imported(x["call"], folder, lambda make: getattr(make, "is_recorded", False), refusal)
    return make(**{name: inside(y) for name, y in x["arguments"].items()})


def _object(x: Any, inside: Callable, arrays: Any, folder: Path) -> Any:
    cls = _imported(x["object"], folder, _is_record, "no dataclass, and is not made")
    return cls(**{name: inside(y) for name, y in x["fields"].items()})


def _named(x: Any, inside: Callable, arrays: Any, folder: Path) -> Any:
    return _imported(x["name"], folder)


def _method(x: Any, inside: Callable, arrays: Any, folder: Path) -> Any:
    owner, name = inside(x["of"]), x["method"]
    if not (_is_record(type(owner)) or _is_record(owner)) or name.startswith("__"):
        raise NotMadeError(f"{name} of a {type(owner).__name__} is no method of a dataclass.")
    return getattr(owner, name)


def _partial(x: Any, inside: Callable, arrays: Any, folder: Path) -> Any:
    if not str(x["partial"].get("name", "")).startswith("jaxrl."):
        raise NotMadeError(f"a partial of {str(x['partial'])[:60]}: only functions of jaxrl are given arguments.")
    return functools.partial(inside(x["partial"]), *inside(x["args"]), **inside(x["keywords"]))


_READERS: dict[str, Callable[..., Any]] = {
    "call": _call,
    "object": _object,
    "name": _named,
    "method": _method,
    "partial": _partial,
    "dict": lambda x, inside, arrays, folder: {name: inside(y) for name, y in x["dict"].items()},
    "list": lambda x, inside, arrays, folder: [inside(y) for y in x["list"]],
    "float": lambda x, inside, arrays, folder: float(x["float"]),
    "array": lambda x, inside, arrays, folder: jnp.asarray(arrays[x["array"]]),
    "dtype": lambda x, inside, arrays, folder: np.dtype(x["dtype"]),
}
