"""The Python of the guide runs as it stands, from the top of a page to its end; generated pages are up to date."""

import ast
import fnmatch
import os
import re
import tomllib
from pathlib import Path

import pytest

from jaxrl import registry
from tools import tables

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

PAGES = sorted(
    os.path.relpath(path, DOCS)
    for pattern in ("*.md", "docs/**/*.md", "experiments/*/*.md", "notebooks/*.md")
    for path in ROOT.glob(pattern)
    if "```python" in path.read_text() and path.name != "mdp.md"
)
"""All that have Python, wherever they are, but the one that runs in the quick suite."""
PAGES_WITH_LINKS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), ROOT / "experiments/README.md"]


def page(name):
    return "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL))


@pytest.mark.parametrize(
    "name",
    ["mdp.md", *(pytest.param(name, marks=pytest.mark.slow) for name in PAGES)],
)
def test_a_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what a page writes stays out of the checkout
    code = page(name)
    assert code
    exec(compile(code, name, "exec"), {"__name__": "page"})


@pytest.mark.parametrize("name", ["mdp.md", *PAGES])
def test_what_a_page_imports_is_there(name):
    """Of all pages, most of which run in the slow suite only."""
    imports = [node for node in ast.walk(ast.parse(page(name))) if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), name, "exec"), {})


@pytest.mark.parametrize("path", PAGES_WITH_LINKS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def anchors(path):
    """Fragments of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    headings = [re.sub(r"\]\([^)]*\)", "", line) for line in re.findall(r"^#+ (.*)$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES_WITH_LINKS, ids=lambda p: str(p.relative_to(ROOT)))
def test_fragments_lead_to_headings(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target, fragment in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text):
        page = path.parent / target if target else path
        if "://" not in target and page.suffix == ".md":
            assert fragment in anchors(page), f"{path.name} links to {target}#{fragment}"


TOLD = [
    path for path in [*PAGES_WITH_LINKS, *sorted(ROOT.glob("experiments/*/README.md"))] if path.name != "CHANGELOG.md"
]
"""Pages that tell how things are, and not how they were."""


@pytest.mark.parametrize("path", TOLD, ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_and_files_are_where_a_page_says(path):
    text = path.read_text()
    for dotted in set(re.findall(r"\bjaxrl(?:\.\w+)+", text)):
        parts = dotted.split(".")
        while not (source := ROOT.joinpath(*parts).with_suffix(".py")).exists():
            source = ROOT.joinpath(*parts, "__init__.py")
            if source.exists():
                break
            parts.pop()
        for name in dotted.split(".")[len(parts) :]:
            assert re.search(rf"\b{name}\b", source.read_text()), f"{path.name} speaks of {dotted}"
    for file in set(
        re.findall(r"(?<![\w/.])(?:jaxrl|envs|algos|tests|experiments)/[\w/]+\.(?:py|md|toml|npz|json)\b", text)
    ):
        assert (ROOT / file).exists() or (ROOT / "docs" / file).exists(), f"{path.name} speaks of {file}"


def test_the_citation_says_what_the_package_is():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = dict(re.findall(r"^([\w-]+): (.+)$", (ROOT / "CITATION.cff").read_text(), re.M))
    assert citation["version"] == project["version"] and citation["license"] == project["license"]
    assert citation["title"] == project["name"] and citation["abstract"] == project["description"]


# ---- generated pages and counts

COMPUTED = ("Brax-*", "CoupledRestless*", "GridWorld-*", "RestlessBandit-*", "SokobanLevel-*")
"""Ids whose spaces are read from traces of Brax's reset, or whose params are made by programs: a minute together."""


def committed_rows(pattern="*"):
    rows = [line for line in (DOCS / "envs/ids.md").read_text().splitlines() if line.startswith("| ")]
    return {row.split(" | ")[0][2:]: row for row in rows if fnmatch.fnmatch(row.split(" | ")[0][2:], pattern)}


def test_generated_pages_are_up_to_date():
    known = {id: row for pattern in COMPUTED for id, row in committed_rows(pattern).items()}
    assert len(known) == 35
    for name, text in tables.pages(known).items():
        assert (DOCS / name).read_text() == text, f"docs/{name} is old: python -m tools.tables"


@pytest.mark.slow
@pytest.mark.parametrize("pattern", COMPUTED)
def test_generated_rows_of_computed_params_are_up_to_date(pattern):
    for id, row in committed_rows(pattern).items():
        assert tables.environment_row(id) == row, "docs/envs/ids.md is old: python -m tools.tables"


def test_the_generator_writes_its_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "pages", lambda: {"a.md": "text"})
    assert tables.main([str(tmp_path)]) == 0 and (tmp_path / "a.md").read_text() == "text"
    assert tables.main([str(tmp_path / "nowhere")]) == 2


def test_every_family_and_algorithm_has_its_page():
    for family in tables.FAMILIES.values():
        assert (DOCS / "envs" / family.page).exists(), family
    for name in registry.list_algos():
        page = tables.algorithm_page(registry.get_algo(name).__name__.removeprefix("jaxrl.algos."))
        assert (DOCS / "algos" / page).exists(), f"{name}: {page}"


def test_the_readme_counts_as_the_registry_does():
    text = (ROOT / "README.md").read_text()
    counted = {page: int(n) for page, n in re.findall(r"^\| \[[^]]+\]\(docs/envs/(\w+\.md)\) \| (\d+) \|", text, re.M)}
    families = tables.by_family()
    assert counted == {tables.FAMILIES[name].page: len(ids) for name, ids in families.items()}
    totals = re.search(r"(\d+) environments, (\d+) algorithms and (\d+) curricula", text)
    assert totals, "README.md says how many environments, algorithms and curricula there are"
    ids, algos, curricula = map(int, totals.groups())
    assert ids == sum(map(len, families.values()))
    assert algos == len(registry.list_algos())
    assert curricula == sum("](../../algos/curricula/" in line for line in tables.curricula_page().splitlines())


def test_the_readme_can_be_read_at_once():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
