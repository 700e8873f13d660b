"""Where a name of the code is defined: what pages link to by name, and the site shows by line.

A link from a page to the code names what it leads to, not where it stands:
[`ppo.loss`](../algos/on_policy/ppo.py#loss). On GitHub it opens the file; on the site, which is built by
`docs/site/hook.py`, it opens the line. What is nested is named with what it is in (`ActorCritic.act`), or with as much
of it as makes it the only one. Nothing here imports jaxrl: files are parsed.
"""

from __future__ import annotations

import ast
import difflib
import functools
import os
from pathlib import Path

TOPS = ("jaxrl", "algos", "envs")


def line_in(file: Path, name: str) -> int:
    """The line of `file` where `name` ("loss", "ActorCritic.act") is defined.

    A name that is defined at several depths is the outermost one. Raises ValueError when it is nothing, or several
    things of one depth.
    """
    wanted = name.split(".")
    defined = _defined(file, file.stat().st_mtime_ns)
    at = [(path, line) for path, line in defined if list(path[-len(wanted) :]) == wanted]
    shallow = [line for path, line in at if len(path) == min(len(path) for path, _ in at)]
    if len(shallow) == 1:
        return shallow[0]
    near = difflib.get_close_matches(name, [".".join(path) for path, _ in defined], n=1, cutoff=0.7)
    hint = f"; `{near[0]}` is" if near and not at else ""
    raise ValueError(f"`{name}` is defined {len(shallow)} times in {file.name}{hint}.")


def resolve(name: str, root: Path) -> tuple[str, str, int]:
    """The file (from the root of the repository), the name inside it and the line where `module.name` is defined.

    A module is called by its file's name if no other file has it, else by as many folders as it takes. Raises
    ValueError for a name that is nothing or several things.
    """
    files = modules(root)
    parts = name.split(".")
    for n in range(len(parts) - 1, 0, -1):
        found = files.get("/".join(parts[:n]), [])
        if len(found) > 1:
            raise ValueError(f"`{name}` may be in {' or '.join(found)}: name a folder before it.")
        if found:
            inside = ".".join(parts[n:])
            return found[0], inside, line_in(root / found[0], inside)
    raise ValueError(f"`{name}`: there is no such module.")


@functools.cache
def modules(root: Path) -> dict[str, list[str]]:
    """The files that each end of a path without `.py` may mean: "ppo", "algos/on_policy/ppo"."""
    found: dict[str, list[str]] = {}
    for top in TOPS:
        for folder, inside, names in os.walk(root / top):
            inside[:] = sorted(name for name in inside if name.isidentifier())  # links of jaxrl are not followed
            for name in sorted(names):
                if name.endswith(".py"):
                    file = (Path(folder) / name).relative_to(root)
                    parts = file.with_suffix("").parts
                    for n in range(len(parts)):
                        found.setdefault("/".join(parts[n:]), []).append(file.as_posix())
    return found


@functools.cache
def _defined(file: Path, changed: int) -> list[tuple[tuple[str, ...], int]]:
    """Functions, classes, fields and constants of a file, last `changed` then: names from the outermost, and line."""
    found: list[tuple[tuple[str, ...], int]] = []

    def walk(node: ast.AST, inside: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                found.append(((*inside, child.name), child.lineno))
                walk(child, (*inside, child.name))
            elif isinstance(child, ast.Assign | ast.AnnAssign) and isinstance(node, ast.Module | ast.ClassDef):
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                found.extend(((*inside, t.id), child.lineno) for t in targets if isinstance(t, ast.Name))
            elif isinstance(child, ast.stmt):
                walk(child, inside)

    walk(ast.parse(file.read_text()), ())
    return found
