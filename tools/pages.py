"""What is made in pages that are written: tables of settings, rows of results, papers, targets of links by name.

A page below `docs/` has what is made between two comments, which `filled` writes anew:

    <!-- settings ppo -->      Config and Hyper of an algorithm; of several, a column each
    <!-- results ppo pqn -->   their rows of `docs/results.md`, and the page's picture in `docs/media/curves/`
    <!-- papers ppo -->        what to cite
    <!-- end -->               closes each

The target of a link is made, too, where its text is a name in code with a module before it: [`ppo.loss`]() becomes
[`ppo.loss`](../../algos/on_policy/ppo.py#loss), a link by name (`tools.names`), which stays right when lines move.

    python -m tools.pages [DOCS]          fill the pages below DOCS (default `docs`)
    python -m tools.pages --check [DOCS]  write nothing; list the links whose name is defined nowhere, with their pages

Both end with status 1 when a name is defined nowhere; such a link is left as it is.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from tools import tables
from tools.names import line_in, modules, resolve

BLOCK = re.compile(r"(<!-- (settings|results|papers) ([\w ]+?) -->)\n.*?(<!-- end -->)", re.S)
LINK = re.compile(r"\[`(\w+(?:\.\w+)+)(?<!\.py)`\]\((?:[^)\s]*\.py(?:#[\w.]*)?)?\)")
"""A link whose target is made from its text."""
NAMED = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<file>[^)#\s:]+\.py)#(?P<name>[^)\s]+)\)")
"""Any link to a name of the code, whatever its text."""
FENCES = re.compile(r"(^```.*?^```$|(?<!`)``(?!`)[^\n]+?(?<!`)``(?!`))", re.M | re.S)
"""Blocks of code, and spans that show a link's source."""


def filled(text: str, page: Path, root: Path) -> str:
    """The text of `page`, a path below `root`, with what is made in it as it would be made now.

    A link whose name is nothing or several things stays as it is: `unresolved` lists those.
    """
    parts = FENCES.split(text)
    for i in range(0, len(parts), 2):  # odd ones are blocks of code
        parts[i] = LINK.sub(lambda link: _link(link, page, root), parts[i])

    def made(block: re.Match[str]) -> str:
        lines = MADE[block[2]](block[3].split(), page, root)
        return "\n".join([block[1], *lines, "", block[4]])

    return BLOCK.sub(made, "".join(parts))


# ---- links by name


def unresolved(docs: Path) -> list[tuple[str, str, str]]:
    """Of every link to a name that is not defined, or not once: its page (from the root), its text, what is wrong."""
    found = []
    for page in sorted(docs.rglob("*.md")):
        for part in FENCES.split(page.read_text())[::2]:
            found += [(page.relative_to(docs.parent).as_posix(), *wrong) for wrong in _wrong(part, page, docs.parent)]
    return found


def _wrong(text: str, page: Path, root: Path) -> Iterator[tuple[str, str]]:
    for link in LINK.finditer(text):
        try:
            resolve(link[1], root)
        except ValueError as error:
            yield link[1], str(error)
    for link in NAMED.finditer(text):
        if not LINK.fullmatch(link[0]):  # a text of other words: only the target says the name
            file = (page.parent / link["file"]).resolve()
            try:
                line_in(file, link["name"])
            except (ValueError, FileNotFoundError) as error:
                yield link["text"], str(error)


def _link(link: re.Match[str], page: Path, root: Path) -> str:
    try:
        file, inside, _ = resolve(link[1], root)
    except ValueError:
        return link[0]
    return f"[`{link[1]}`]({_way(root / file, page)}#{inside})"


def _way(to: Path, page: Path) -> str:
    return os.path.relpath(to, page.parent).replace(os.sep, "/")


# ---- blocks


def _module(name: str, root: Path) -> ModuleType:
    found = [file for file in modules(root).get(name, []) if file.startswith("algos/")]
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
        tries = f"[the study of returns]({_way(root / 'experiments/results/README.md', page)})"
        table += ["", f"No row yet: {', '.join(without)} ({tries} has tries)."]
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
    """Write the pages below the folder named last, or `docs`, that are old; print which, and names that are nowhere."""
    args = list(sys.argv[1:] if argv is None else argv)
    check = "--check" in args
    docs = Path(*[arg for arg in args if arg != "--check"][:1] or ["docs"]).resolve()
    if not docs.is_dir():
        print(f"tools.pages: {docs} is no folder; run it in the checkout, or name its docs.", file=sys.stderr)
        return 2
    if not check:
        for page, text in all_filled(docs).items():
            if page.read_text() != text:
                page.write_text(text)
                print(page.relative_to(docs.parent))
    wrong = unresolved(docs)
    for page, name, why in wrong:
        print(f"{page}: {name}: {why}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
