"""What mkdocs is told beyond `mkdocs.yml`: pages from outside `docs/`, links to them, the API reference, comments.

Pages are written to be read in the repository. On the site each file of the repository has one place (`site_path`), and
every link of a page is rewritten to it: READMEs of experiments are studies, other files that a page speaks of are shown
with numbered lines, folders by what is in them. A link to a name of the code (`ppo.py#loss`) becomes one to its line.
So the site holds all that it links to, and needs no network. Nothing here imports jaxrl: the reference is read from the
sources.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import posixpath
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # `tools` is not installed, and mkdocs may be called from anywhere

from tools.names import line_in  # noqa: E402

MOVED = {
    "README.md": "index.md",
    "docs/index.md": "map.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "CITATION.cff": "cite.md",
    "notebooks/README.md": "notebooks.md",
}
"""Pages that have a place of their own on the site."""

SHOWN = (".md", ".png", ".gif")
"""Endings of what the site shows as it is; of other files it has a listing."""

LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".c": "c"}


def site_path(path: str) -> str:
    """Where the file or folder at this path of the repository is on the site, as mkdocs names sources.

    Raises ValueError for what is not in the repository.
    """
    here = ROOT / path
    if not here.exists():
        raise ValueError(f"{path} is not in the repository.")
    if path in MOVED:
        return MOVED[path]
    if here.is_dir() and (here / "README.md").exists():
        return site_path(f"{path}/README.md")
    if here.suffix == ".ipynb":
        return site_path(path.replace(".ipynb", ".py"))  # its source reads better
    if here.suffix not in SHOWN:
        return f"source/{path}.md"
    folder, _, rest = path.partition("/")
    if folder == "docs":
        return rest
    return re.sub(r"README\.md$", "index.md", f"studies/{rest}") if folder == "experiments" else f"source/{path}"


def repository_path(site: str) -> str:
    """The inverse, of pages: where the source of a page lies."""
    for path, moved in MOVED.items():
        if site == moved:
            return path
    if site.startswith("studies/"):
        return re.sub(r"(^|/)index\.md$", r"\1README.md", f"experiments/{site.removeprefix('studies/')}")
    return f"docs/{site}"


LINK = re.compile(
    r"(?P<fence>^(?P<ticks>```+|~~~+).*?^(?P=ticks))|(?P<code>(`+)[^`].*?\4)|\]\((?P<target>[^)\s]+)\)", re.M | re.S
)
"""A link, or a block or span of code, in which nothing is one."""


def targets(text: str, path: str) -> Iterator[str]:
    """The paths, from the root of the repository, to which a page's links and names lead."""
    for match in LINK.finditer(text):
        if match["code"] and (to := definition(match["code"].strip("`"), path)):
            yield to.partition(".md#")[0].removeprefix("source/")
        target = (match["target"] or "").partition("#")[0]
        if target and "://" not in target and not target.startswith("mailto:"):
            yield posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def rewritten(text: str, path: str) -> str:
    """A page of the repository with its links as they are on the site."""
    here = posixpath.dirname(site_path(path))

    def place(match: re.Match[str]) -> str:
        if match["code"]:
            line, before = text[text.rfind("\n", 0, match.start()) + 1 :], text[match.start() - 1 : match.start()]
            to = None if before == "[" or line.startswith("#") else definition(match["code"].strip("`"), path)
            return f"[{match[0]}]({posixpath.relpath(to, here or '.')})" if to else match[0]
        target, hash, fragment = (match["target"] or "").partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        to = site_path(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)))
        if fragment and target.endswith(".py"):
            fragment = f"__codelineno-0-{line_of(target, fragment, path)}"
        return f"]({posixpath.relpath(to, here or '.')}{hash}{fragment})"

    return LINK.sub(place, text)


def line_of(target: str, name: str, path: str) -> int:
    """The line to which a page's link to a name of the code leads, such as `../../algos/on_policy/ppo.py#loss`.

    Raises ValueError, which ends the build, for a name that the file does not define.
    """
    try:
        return line_in(ROOT / posixpath.normpath(posixpath.join(posixpath.dirname(path), target)), name)
    except ValueError as error:
        raise ValueError(f"{path} links to {target}#{name}: {error}") from None


@functools.cache
def definitions(file: str) -> dict[str, int]:
    """The line of each function and class of a file's top level."""
    kinds = ast.FunctionDef | ast.ClassDef
    return {node.name: node.lineno for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, kinds)}


@functools.cache
def algorithms() -> dict[str, str]:
    """Files of algorithms by the names of their modules."""
    return {file.stem: str(file.relative_to(ROOT)) for file in ROOT.glob("algos/**/*.py") if file.stem[0] != "_"}


def definition(code: str, path: str) -> str | None:
    """The line in a listing where something is defined that a page calls by its name: `jaxrl.rollout.Ends`, and on the
    page of an algorithm `td3.td_target`; None for other code.
    """
    named = re.fullmatch(r"([\w.]+)(\(.*\))?", code)
    parts = named[1].split(".") if named else []
    if parts[:1] == ["jaxrl"]:
        at = next(
            (n for n in range(len(parts) - 1, 1, -1) if (ROOT / "/".join(parts[:n])).with_suffix(".py").exists()), 0
        )
        file = f"{'/'.join(parts[:at])}.py".replace("jaxrl/algos/", "algos/").replace("jaxrl/envs/", "envs/")
    elif path.startswith("docs/algos/") and parts[:1] and parts[0] in algorithms():
        at, file = 1, algorithms()[parts[0]]
    else:
        return None
    line = definitions(file).get(parts[at]) if 0 < at < len(parts) else None
    return f"source/{file}.md#__codelineno-0-{line}" if line else None


def in_table_cells(text: str) -> str:
    r"""`\|` in the code of a table's cell as Python-Markdown takes it, which splits no cell inside of code."""
    return re.sub(
        r"^\|.*\|$", lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace(r"\|", "|"), row[0]), text, flags=re.M
    )


def listing(path: str) -> str:
    """A page that shows a file with its lines numbered, or what is in a folder."""
    here, head = ROOT / path, f"---\nsearch:\n  exclude: true\nhide: [toc]\n---\n\n# {path}\n\n"
    if here.is_dir():
        return head + "\n".join(f"- {child.name}" for child in sorted(here.iterdir()) if child.name[0] not in "._")
    code = here.read_text()
    return f'{head}~~~~~~ {{ .{LANGUAGES.get(here.suffix, "text")} linenums="1" }}\n{code.rstrip()}\n~~~~~~\n'


# ---- studies, citation, reference


def studies() -> dict[str, dict[str, str]]:
    """The titles of the studies by their folders, by topic, as `experiments/README.md` lists them."""
    topics = re.split(r"^## ", (ROOT / "experiments/README.md").read_text(), flags=re.M)[1:]
    listed = (
        (topic.partition("\n")[0], re.findall(r"^- \[(.+?)\]\((\w+)/README\.md\)", topic, re.M)) for topic in topics
    )
    return {topic: {folder: title for title, folder in links} for topic, links in listed}


def citation_page() -> str:
    """`cite.md`, from `CITATION.cff`."""
    said = dict(re.findall(r"^([\w-]+): (.+)$", (ROOT / "CITATION.cff").read_text(), re.M))
    author = re.search(r"- name: (.+)", (ROOT / "CITATION.cff").read_text())
    assert author is not None
    return f"""# How to cite

{author[1]} (version {said["version"]}), *{said["title"]}: {said["abstract"].rstrip(".").lower()}*.

```bibtex
@software{{{said["title"]},
  author  = {{{{{author[1]}}}}},
  title   = {{{said["title"]}: {said["abstract"].rstrip(".").lower()}}},
  version = {{{said["version"]}}},
  license = {{{said["license"]}}},
}}
```

Cite the paper of the algorithm, too: it is at the end of its page, and all are in [one list](algos/settings.md). An
environment's source is on its family's page, and in the docstring of its file.
"""


PARTS = {
    "jaxrl": "Core",
    "jaxrl.wrappers": "Wrappers",
    "jaxrl.curriculum": "Curriculum",
    "jaxrl.nn": "Networks",
    "jaxrl.replay": "Replay",
    "jaxrl.data": "Data",
    "jaxrl.off_policy": "Off-policy learners",
    "jaxrl.exact": "Exact",
    "jaxrl.meta": "Meta-learning",
    "jaxrl.host": "Host",
    "jaxrl.interop": "Interop",
    "jaxrl.testing": "Testing",
    "jaxrl.algos": "Algorithms",
}
"""Packages of the reference; each module below one of them is a page."""


def modules() -> dict[str, list[str]]:
    """Every public module by the package in `PARTS` that it belongs to."""
    found: dict[str, list[str]] = {part: [] for part in PARTS}
    for folder, inside, files in os.walk(ROOT / "jaxrl", followlinks=True):
        at = ".".join(Path(folder).relative_to(ROOT).parts)
        inside[:] = (
            [] if at == "jaxrl.envs" else sorted(name for name in inside if name.isidentifier() and name[0] != "_")
        )
        for file in sorted(files):
            name = file.removesuffix(".py")
            if not file.endswith(".py") or name == "__main__":
                continue
            module = at if name == "__init__" else f"{at}.{name}"
            if ast.get_docstring(ast.parse((Path(folder) / file).read_text())) and at != "jaxrl.envs":
                part = max((p for p in PARTS if f"{module}.".startswith(f"{p}.")), key=len)
                found[part].append(module)
    return {part: sorted(found[part]) for part in PARTS}


def source_of(module: str) -> str:
    """A module's file."""
    source = module.replace(".", "/").replace("jaxrl/algos", "algos")
    return f"{source}/__init__.py" if (ROOT / source).is_dir() else f"{source}.py"


def reference_page(module: str) -> str:
    file = source_of(module)
    link = posixpath.relpath(site_path(file), "api")
    return f"# {module}\n\n[{file}]({link})\n\n::: {module}\n"


def reference_index() -> str:
    lines = ["# API reference", "", "From the docstrings: what a module is for, then its public names.", ""]
    for part, names in modules().items():
        lines += [f"## {PARTS[part]}", "", "| module | |", "|---|---|"]
        lines += [f"| [`{name}`]({name}.md) | {about(name)} |" for name in names] + [""]
    return "\n".join(lines)


def about(module: str) -> str:
    """The first sentence of a module's docstring."""
    doc = ast.get_docstring(ast.parse((ROOT / source_of(module)).read_text())) or ""
    first = re.split(r"(?<=\.) (?=[A-Z`])", " ".join(doc.partition("\n\n")[0].split()))[0]
    return first.replace("|", r"\|")


# ---- search

WEIGHTS = {
    "api/": 0.002,  # nine of ten entries, most of them named by one word
    "studies/": 0.05,
    "changelog.html": 0.02,
    "decisions.html": 0.05,
    "errata.html": 0.05,
    "contributing": 0.1,
    "source/": 0.0,
}
"""How much what is found in a part of the site counts beside what is found in a guide, which is 1."""


def words() -> dict[str, str]:
    """Words that strangers type, by the addresses of what they mean, from `words.toml`.

    Raises ValueError for a file that is not in the repository.
    """
    said = tomllib.loads((Path(__file__).parent / "words.toml").read_text())["words"]
    return {address(target): " ".join(text.split()) for target, text in said.items()}


def address(target: str) -> str:
    """Where a file of the repository, or a section of it, is read on the site."""
    path, hash, fragment = target.partition("#")
    return f"{site_path(path).removesuffix('.md')}.html{hash}{fragment}"


def weighed(entries: list[dict[str, Any]], said: dict[str, str]) -> None:
    """Weights and words for the entries of the search's index.

    Raises ValueError for words of a page or section that is not there.
    """
    missing = said.keys() - {entry["location"] for entry in entries}
    if missing:
        raise ValueError(f"docs/site/words.toml has words of {', '.join(sorted(missing))}, which the index has not.")
    for entry in entries:
        weight = next((w for part, w in WEIGHTS.items() if entry["location"].startswith(part)), 1.0)
        if weight != 1.0:
            entry["boost"] = weight
        if entry["location"] in said:
            entry["words"] = said[entry["location"]]


# ---- what mkdocs calls


def on_config(config: Any) -> Any:
    """Fragments as in the repository, and the generated parts of the navigation."""
    config["mdx_configs"].setdefault("toc", {})["slugify"] = slug
    parts = [{PARTS[part]: [{m: f"api/{m}.md"} for m in names]} for part, names in modules().items()]
    known = [
        {topic: [{title: f"studies/{name}/index.md"} for name, title in titles.items()]}
        for topic, titles in studies().items()
    ]
    expanded = {"studies/index.md": ["studies/index.md", *known], "api/index.md": ["api/index.md", *parts]}
    config["nav"] = [
        {title: expanded.get(entry, entry) if isinstance(entry, str) else entry}
        for section in config["nav"]
        for title, entry in section.items()
    ]
    return config


def slug(text: str, separator: str) -> str:
    """A heading's fragment as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", separator)


def on_files(files: Any, config: Any) -> Any:
    """Add what is outside `docs/`: moved pages, studies, the reference, and all that a page links to."""
    from mkdocs.structure.files import File

    names = [module for part in modules().values() for module in part]
    made = {
        "cite.md": citation_page(),
        "api/index.md": reference_index(),
        **{f"api/{module}.md": reference_page(module) for module in names},
    }
    files.remove(files.get_file_from_path("index.md"))
    todo = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    todo += [*MOVED, "experiments/README.md", *map(source_of, names)]  # the list of studies links to each
    seen = set(todo)
    while todo:
        path = todo.pop()
        site = site_path(path)
        if site.startswith("source/"):
            made[site] = listing(path)
        elif site not in made and files.get_file_from_path(site) is None:
            files.append(File.generated(config, site, abs_src_path=str(ROOT / path)))
        links = set(targets((ROOT / path).read_text(), path)) - seen if path.endswith(".md") else set()
        seen |= links
        todo += links
    for site, text in made.items():
        files.append(File.generated(config, site, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    site = page.file.src_uri
    path = repository_path(site)
    if site == "index.md":
        page.meta["hide"] = ["navigation"]  # of which it would be all
    generated = page.file.generated_by is not None and page.file.abs_src_path is None
    if generated or not (ROOT / path).exists():
        return markdown
    return in_table_cells(rewritten(markdown, path))


def on_post_build(config: Any) -> None:
    """The search's weights and words, before its plug-in writes the index; `versions.json` and a first page beside the
    folder of this version, from the folders that are there.
    """
    weighed(config["plugins"]["material/search"].search_index.entries, words())
    built = Path(config["site_dir"])
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if built.name != version:  # `mkdocs serve`, or a folder that someone chose
        return
    there = sorted(
        (folder.name for folder in built.parent.iterdir() if (folder / "index.html").exists()),
        key=lambda name: [int(part) if part.isdigit() else -1 for part in re.split(r"[.\-]", name)],
        reverse=True,
    )
    known = [{"version": name, "title": name, "aliases": ["latest"] if name == there[0] else []} for name in there]
    (built.parent / "versions.json").write_text(json.dumps(known, indent=1) + "\n")
    (built.parent / "index.html").write_text(
        f'<!doctype html>\n<meta charset="utf-8">\n<meta http-equiv="refresh" content="0; url={there[0]}/index.html">\n'
        f'<title>jaxrl</title>\n<a href="{there[0]}/index.html">jaxrl {there[0]}</a>\n'
    )
    (built.parent / ".nojekyll").touch()


on_post_build.mkdocs_priority = 50  # type: ignore[attr-defined]  # as `mkdocs.plugins.event_priority` does
