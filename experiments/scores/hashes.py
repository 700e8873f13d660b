"""Hashes of the code that environments and learners are made of, by which rows of a table know that they are of other
code.
"""

import ast
import functools
import hashlib
import importlib.util
from pathlib import Path
from typing import Any

from jaxrl import registry

ENVIRONMENTS, LEARNERS = "jaxrl.envs", "jaxrl.algos"


@functools.cache
def of(id: str) -> str:
    """Eight digits, of an id's settings, of the syntax of all files of `jaxrl.envs` that its module imports, to any
    depth, and of the data beside these files. Comments, docstrings, where names are imported from and the version of
    Python do not count, nor does the core that environments run on.
    """
    entry = registry.environments()[id]
    modules = sorted(imports(str(entry.target).split(":")[0], ENVIRONMENTS))
    parts = [repr(sorted(entry.settings.items())), *(syntax(module) for module in modules)]
    found = hashlib.sha256("\n".join(parts).encode())
    for folder in sorted({file_of(module).parent for module in modules}):
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".xml", ".npz", ".txt", ".json"):
                found.update(file.read_bytes())
    return found.hexdigest()[:8]


def of_learner(algo: str, settings: registry.Tuned) -> str:
    """Two hashes, `CODE-SETTINGS`: of the algorithm's files of `jaxrl.algos`, and of what it starts from."""
    words = [repr(sorted(part.items())) for part in (settings.config, settings.hyper)] + list(settings.wrap)
    words += [repr(sorted(settings.env.items()))] if settings.env else []
    of_settings = hashlib.sha256("\n".join([str(settings.total_steps), *words]).encode()).hexdigest()[:8]
    return f"{of_code(algo)}-{of_settings}"


def of_code(algo: str) -> str:
    modules = sorted(imports(registry.get_algo(algo).__name__, LEARNERS))
    return hashlib.sha256("\n".join(syntax(module) for module in modules).encode()).hexdigest()[:8]


def learner(id: str) -> tuple[str, registry.Tuned]:
    """The algorithm of the id's family and its settings."""
    name = registry.family_algo(id)
    settings = registry.settings(name, id)
    assert settings is not None  # of the same table
    return name, settings


def stale(id: str, kind: str, rows: dict[str, Any]) -> bool:
    """Whether a row is missing or of other code. Of experiments/results each row is of the code of its day."""
    row = rows.get(kind, {})
    if kind == "reference":
        return of(id) not in (row.get("code"), rows.get("no_reference"))
    if kind == "random":
        return row.get("code") != of(id)
    if "source" in row or "random" not in rows:
        return False
    return (row.get("code"), row.get("learner")) != (of(id), of_learner(*learner(id)))


def other_code(id: str, rows: dict[str, Any]) -> bool:
    """Whether the algorithm's code alone has changed since ours was measured."""
    row = rows.get("ours", {})
    if "learner" not in row or row["code"] != of(id):
        return False
    was, now = row["learner"].split("-"), of_learner(*learner(id)).split("-")
    return row["what"] == learner(id)[0] and was[0] != now[0] and was[1:] == now[1:]


@functools.cache
def imports(module: str, within: str) -> frozenset[str]:
    """The modules of the package `within` that a module imports, itself included, to any depth."""
    found: set[str] = set()
    left = [module]
    while left:
        name = left.pop()
        if name in found or not name.startswith(within) or file_of(name) is None:
            continue
        found.add(name)
        package = name if file_of(name).name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Import):
                left += [x.name for x in node.names]
            elif isinstance(node, ast.ImportFrom):
                source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                left += [source, *(f"{source}.{x.name}" for x in node.names)]
    return frozenset(found)


@functools.cache
def file_of(module: str) -> Path | None:
    """None for what is no module: a name within one."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin else None


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse(file_of(module).read_text())


@functools.cache
def syntax(module: str) -> str:
    return f"{module} {dumped(tree(module))}"


def dumped(x: Any) -> str:
    """A syntax tree in words, of `from x import y` without where that is, whose files `imports` finds; `ast.dump` has
    others in each version of Python.
    """
    if isinstance(x, ast.ImportFrom):
        return dumped(x.names)
    if isinstance(x, list):
        return f"[{' '.join(dumped(y) for y in x if not docstring(y))}]"
    if not isinstance(x, ast.AST):
        return repr(x)
    fields = [(name, value) for name, value in ast.iter_fields(x) if value not in (None, [])]
    return f"({type(x).__name__} {' '.join(f'{name}={dumped(value)}' for name, value in fields)})"


def docstring(x: Any) -> bool:
    return isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant) and isinstance(x.value.value, str)
