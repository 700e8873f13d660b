"""What leads from page to page: the list of studies, and links by what they say of the page behind them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


# ---- studies


def test_every_study_stands_in_the_list_once_by_its_title_with_an_answer():
    text = (ROOT / "experiments/README.md").read_text()
    entries = re.findall(r"^- \[(.+?)\]\((\w+)/README\.md\) (.+(?:\n  .+)*)$", text, re.M)
    readmes = {path.parent.name: path.read_text() for path in ROOT.glob("experiments/*/README.md")}
    assert sorted(folder for _, folder, _ in entries) == sorted(readmes)
    assert text.count("\n- ") == len(entries)
    for title, folder, answer in entries:
        assert readmes[folder].partition("\n")[0] == f"# {title}", f"{folder}: the link's text is the study's title"
        assert "?" in title + answer and len(answer) > 20, f"{folder}: a question and its answer"
    topics = re.split(r"^## ", text, flags=re.M)[1:]
    assert len(topics) >= 5 and all("\n- [" in topic for topic in topics)


# ---- texts of links

READ = [
    path
    for folder in (".", "docs", "experiments", "notebooks", "benchmarks")
    for path in sorted(ROOT.joinpath(folder).glob("*.md" if folder == "." else "**/*.md"))
    if path.name != "CHANGELOG.md"
]
"""Pages whose links are read; what the changelog says of old ones stays as it was said."""

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s#]*)(?:#([^)\s]+))?\)")
NAMES_NOTHING = {
    *"a an and are as at by for from how in is it its of on one or s that the their them this to what with".split(),
    *"all another below both click details each every here link more other others page section see".split(),
}
"""Words that say of no page what is in it."""


def words(text):
    """The words of a text by how they begin, so that `curricula` is `curriculum`; those that name something."""
    found = re.findall(r"[^\W_]+", re.sub(r"\]\([^)]*\)", "", text.lower()).replace("'s", ""))
    return {word[:5].rstrip("s") for word in found if word not in NAMES_NOTHING}


def without_blocks(path):
    return re.sub(r"^(```+|~~~+).*?^\1|``.+?``", "", path.read_text(), flags=re.S | re.M)


def named(path, target, fragment):
    """What a link may be called by: the linked section's heading, else the page's title and headings; None for what is
    no page.
    """
    page = (path.parent / target) if target else path
    page = page / "README.md" if page.is_dir() else page
    if page.suffix != ".md" or not page.exists():
        return None
    headings = re.findall(r"^#+ (.+)$", without_blocks(page), re.M)
    if fragment and headings:
        slugs = {re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", h).lower()).replace(" ", "-"): h for h in headings}
        return [headings[0], slugs.get(fragment, "")]
    return headings or None


def nameless(path):
    """Links of a page to pages whose text is a file, or shares no word with what is behind it."""
    for text, target, fragment in LINK.findall(without_blocks(path)):
        text = " ".join(text.split())
        known = None if "://" in target else named(path, target, fragment)
        is_a_path = re.search(r"\.md\b|^[\w.]+/[\w./]+$|^[a-z]+_\w+$", text)
        if known is not None and (is_a_path or not words(text) & set().union(*map(words, known))):
            yield f"[{text}]({target}{'#' if fragment else ''}{fragment})"


@pytest.mark.parametrize("path", READ, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_link_to_a_page_says_what_is_there(path):
    assert not [*nameless(path)], "the text of a link is the title or heading it leads to, or a phrase with its words"


def test_links_that_name_nothing_are_found(tmp_path):
    (tmp_path / "there.md").write_text("# Levels of your own\n\n## Hold-outs\n")
    page = tmp_path / "page.md"
    for link, names in [
        ("[Levels of your own](there.md)", True),
        ("[how a level is\nmade](there.md)", True),
        ("[hold-outs](there.md#hold-outs)", True),
        ("[here](there.md)", False),
        ("[this page](there.md)", False),
        ("[there.md](there.md)", False),
        ("[there.md: levels](there.md)", False),
        ("[docs/levels](there.md)", False),
        ("[mutation](there.md#hold-outs)", False),
        ("``[here](there.md)``\n```\n[here](there.md)\n```\n", True),
        ("[here](https://a.b/c.md) ![here](a.png) [here](a.py#b)", True),
    ]:
        page.write_text(link)
        assert bool([*nameless(page)]) is not names, link
