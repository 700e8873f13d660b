"""The Python of the guide runs as it stands, from the top of a page to its end."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


PAGES = sorted(
    str(path.relative_to(DOCS))
    for path in DOCS.rglob("*.md")
    if "```python" in path.read_text() and path.name != "mdp.md"
)


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


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda p: str(p.relative_to(DOCS)))
def test_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
