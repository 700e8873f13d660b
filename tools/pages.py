"""What is made in pages that are written: tables of settings, rows of results, papers, and links to lines of the code.

A page below `docs/` has what is made between two comments, which `filled` writes anew:

    <!-- settings ppo -->      Config and Hyper of an algorithm; of several, a column each
    <!-- results ppo pqn -->   their rows of `docs/results.md`, and the page's picture in `docs/media/curves/`
    <!-- papers ppo -->        what to cite
    <!-- end -->               closes each

The target of a link is made, too, where its text is a name in code with a module before it: [`ppo.loss`]() leads to the
line of `algos/on_policy/ppo.py` where `loss` is defined. A module is called by its file's name if no other file has it,
else by as many folders as it takes; what is nested needs no more of the names around it than make it the only one.
`python -m tools.pages [DOCS]` fills the pages below DOCS (default `docs`),
and a test finds the ones that are old.
"""

from __future__ import annotations

import ast
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from tools import tables

BLOCK = re.compile(r"(<!-- (settings|results|papers) ([\w ]+?) -->)\n.*?(<!-- end -->)", re.S)
LINK = re.compile(r"\[`(\w+(?:\.\w+)+)(?<!\.py)`\]\((?:[^)\s]*\.py(?:#L\d*)?)?\)")
FENCES = re.compile(r"(^```.*?^```$)", re.M | re.S)


def filled(text: str, page: Path, root: Path) -> str:
    """The text of `page`, a path below `root`, with what is made in it as it would be made now.

    Raises ValueError for a name that is nothing or several things.
    """
    parts = FENCES.split(text)
    for i in range(0, len(parts), 2):  # odd ones are blocks of code
        parts[i] = LINK.sub(lambda link: f"[`{link[1]}`]({_target(link[1], page, root)})", parts[i])

    def made(block: re.Match[str]) -> str:
        lines = MADE[block[2]](block[3].split(), page, root)
        return "\n".join([block[1], *lines, "", block[4]])

    return BLOCK.sub(made, "".join(parts))


# ---- lines of the code


def line_of(name: str, root: Path) -> tuple[str, int]:
    """The file, from the root of the repository, and the line where `module.name` is defined."""
    files = _files(root)
    parts = name.split(".")
    for n in range(len(parts) - 1, 0, -1):
        found = files.get("/".join(parts[:n]), [])
        if len(found) > 1:
            raise ValueError(f"`{name}` may be in {' or '.join(found)}: name a folder before it.")
        if found:
            wanted = parts[n:]
            at = [(path, line) for path, line in _defined(root / found[0]) if path[-len(wanted) :] == wanted]
            shallow = [line for path, line in at if len(path) == min(len(path) for path, _ in at)]
            if len(shallow) != 1:
                raise ValueError(f"`{'.'.join(wanted)}` is defined {len(shallow)} times in {found[0]}.")
            return found[0], shallow[0]
    raise ValueError(f"`{name}`: there is no such module.")


@functools.cache
def _files(root: Path) -> dict[str, list[str]]:
    """The files that each end of a path without `.py` may mean: "ppo", "algos/ppo"."""
    found: dict[str, list[str]] = {}
    for top in ("jaxrl", "algos", "envs"):
        for folder, inside, names in os.walk(root / top):
            inside[:] = sorted(name for name in inside if name.isidentifier())  # links of jaxrl are not followed
            for name in sorted(names):
                if name.endswith(".py"):
                    file = (Path(folder) / name).relative_to(root)
                    parts = file.with_suffix("").parts
                    for n in range(len(parts)):
                        found.setdefault("/".join(parts[n:]), []).append(str(file))
    return found


@functools.cache
def _defined(file: Path) -> list[tuple[list[str], int]]:
    """Names of functions, classes, fields and constants by what they are in, with their lines."""
    found = []

    def walk(node: ast.AST, inside: list[str]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                found.append(([*inside, child.name], child.lineno))
                walk(child, [*inside, child.name])
            elif isinstance(child, ast.Assign | ast.AnnAssign) and isinstance(node, ast.Module | ast.ClassDef):
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                found.extend(([*inside, t.id], child.lineno) for t in targets if isinstance(t, ast.Name))
            elif isinstance(child, ast.stmt):
                walk(child, inside)

    walk(ast.parse(file.read_text()), [])
    return found


def _target(name: str, page: Path, root: Path) -> str:
    file, line = line_of(name, root)
    return f"{_way(root / file, page)}#L{line}"


def _way(to: Path, page: Path) -> str:
    return os.path.relpath(to, page.parent).replace(os.sep, "/")


# ---- blocks


def _module(name: str, root: Path) -> ModuleType:
    found = [file for file in _files(root).get(name, []) if file.startswith("algos/")]
    if len(found) != 1:
        raise ValueError(f"{name!r} is no algorithm.")
    return importlib.import_module("jaxrl." + found[0].removesuffix(".py").replace("/", "."))


def _settings(names: list[str], page: Path, root: Path) -> list[str]:
    lines = []
    modules = [_module(name, root) for name in names]
    for kind in ("Config", "Hyper"):
        fields = [tables.settings(getattr(module, kind)) if hasattr(module, kind) else {} for module in modules]
        order = _merged([list(of) for of in fields])
        if not order:
            continue
        heads = names if len(names) > 1 else ["default"]
        lines += ["", f"| {kind} | {' | '.join(heads)} | |", "|---" * (len(names) + 2) + "|"]
        for name in order:
            shown = [of[name].default if name in of else "-" for of in fields]
            said: dict[str, list[str]] = {}
            for module, of in zip(names, fields, strict=True):
                if name in of:
                    said.setdefault(of[name].about, []).append(module)
            texts = [f"{', '.join(who)}: {text}" for text, who in said.items()] if len(said) > 1 else list(said)
            lines.append(f"| `{name}` | {' | '.join(shown)} | {'; '.join(texts)} |")
    return lines


def _merged(orders: list[list[str]]) -> list[str]:
    """All names, each behind those that stand before it in the first list that has it."""
    merged: list[str] = []
    for order in orders:
        at = 0
        for name in order:
            if name in merged:
                at = merged.index(name) + 1
            else:
                merged.insert(at, name)
                at += 1
    return merged


def _results(names: list[str], page: Path, root: Path) -> list[str]:
    rows = [line for line in (root / "docs/results.md").read_text().splitlines() if line.startswith("| ")]
    kept = [rows[0], *(row for row in rows[1:] if row[2:].split(" ")[0] in names)]
    if len(kept) == 1:
        raise ValueError(f"docs/results.md has no row of {' or '.join(names)}.")
    seconds = rows[0].split(" | ").index("s/seed")  # and what follows are left out: of a shared machine
    shown = [row.split(" | ")[:seconds] for row in kept]
    table = [f"{' | '.join(cells)} |" for cells in shown]
    table.insert(1, "|" + "---|" * len(shown[0]))
    without = [f"`{name}`" for name in names if not any(row[2:].split(" ")[0] == name for row in kept[1:])]
    if without:
        table += [
            "",
            f"No row yet: {', '.join(without)} ([tries]({_way(root / 'experiments/results/README.md', page)})).",
        ]
    picture = root / f"docs/media/curves/{page.stem}.png"
    what = "Returns while training, with exploration: IQM over seeds and its 95 % interval"
    return ["", *table, *(["", f"![{what}]({_way(picture, page)})", "", f"{what}."] if picture.exists() else [])]


def _papers(names: list[str], page: Path, root: Path) -> list[str]:
    lines, cited = [""], {name: tables.papers(_module(name, root).__doc__) for name in names}
    for paper in dict.fromkeys(paper for papers in cited.values() for paper in papers):
        of = [f"`{name}`" for name in names if paper in cited[name]]
        lines.append(f"- {', '.join(of)}: {paper}" if len(names) > 1 else f"- {paper}")
    way = _way(root / "CITATION.cff", page)
    return [*lines, "", f"And [jaxrl itself]({way})."]


MADE: dict[str, Callable[[list[str], Path, Path], list[str]]] = {
    "settings": _settings,
    "results": _results,
    "papers": _papers,
}


def all_filled(docs: Path) -> dict[Path, str]:
    """Every page below `docs` in which something is made, with its text as it would be made now."""
    found = {}
    for page in sorted(docs.rglob("*.md")):
        text = page.read_text()
        if BLOCK.search(text) or LINK.search(text):
            found[page] = filled(text, page, docs.parent)
    return found


def main(argv: list[str] | None = None) -> int:
    """Write the pages below the folder named first, or `docs`, that are old; print which."""
    docs = Path(*(sys.argv[1:] if argv is None else argv)[:1] or ["docs"]).resolve()
    if not docs.is_dir():
        print(f"tools.pages: {docs} is no folder; run it in the checkout, or name its docs.", file=sys.stderr)
        return 2
    for page, text in all_filled(docs).items():
        if page.read_text() != text:
            page.write_text(text)
            print(page.relative_to(docs.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
