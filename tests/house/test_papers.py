"""The page of source papers: each row has a verdict, what shows it, and figures that stand on the pages it links to."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/papers.md"
VERDICTS = ("shown", "in part", "not shown", "not here")
NUMBER = re.compile(r"(?<![\w.])-?\d(?:[\d,]*\d)?(?:\.\d+)?(?!\w)")
HEAD = "| paper | what is here | the figure | command |"


def rows(text):
    """The cells of each paper's row, of all tables with `HEAD`."""
    for table in text.split(HEAD)[1:]:
        for line in table.strip("\n").splitlines()[1:]:
            if not line.startswith("|"):
                break
            yield [cell.strip() for cell in line.strip("|").split("|")]


def faults(cells, folder):
    """What is wrong with a row, whose links are relative to this folder."""
    if len(cells) != 4:
        yield "paper, what is here, the figure, the command"
        return
    paper, here, figure, command = cells
    said = re.match(r"\*\*([a-z ]+)\*\*(.*)", figure)
    if said is None or said[1] not in VERDICTS:
        yield f"the figure begins with one of {VERDICTS}"
        return
    verdict, clause = said[1], said[2]
    if not re.search(r"\((?:19|20)\d\d\)", paper):
        yield "the paper's year"
    pages = re.findall(r"\]\(([^)#\s]+\.md)", figure)
    if verdict in ("shown", "in part") and not (here and pages and NUMBER.search(clause)):
        yield "what is here, a figure, and a link to the page it stands on"
    if verdict in ("shown", "in part") and not re.fullmatch(r"`[^`]+`", command):
        yield "the command"
    if verdict == "not shown" and not (here and len(clause.split()) >= 5):
        yield "what is here, and a clause that says why it is not shown"
    if verdict == "not here" and command:
        yield "what is not here has no command"
    stands = {number for page in pages for number in NUMBER.findall((folder / page).read_text())}
    words = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", clause)
    if pages and (missing := [number for number in NUMBER.findall(words) if number not in stands]):
        yield f"{missing} on none of {pages}"


@pytest.mark.parametrize("cells", [pytest.param(cells, id=cells[0][:50]) for cells in rows(PAGE.read_text())])
def test_a_row_has_a_verdict_and_what_shows_it(cells):
    assert not [*faults(cells, PAGE.parent)]


def test_the_page_counts_its_rows():
    text = PAGE.read_text()
    verdicts = [cells[2].split("**")[1] for cells in rows(text)]
    shown, in_part, not_shown, not_here = (verdicts.count(verdict) for verdict in VERDICTS)
    told = f"Of {len(verdicts)} papers {shown} are shown, {in_part} in part, {not_shown} not shown, {not_here} not here"
    assert told in " ".join(text.split()), told


def test_faults_of_rows_are_found(tmp_path):
    (tmp_path / "study.md").write_text("# A study\n\nIt reaches 0.97 (0.95 to 1.00), `b` 12,000.\n")
    study = "([a study](study.md))"
    for row, right in [
        (f"| A (2020) | `b` | **shown**: 0.97 (0.95 to 1.00) {study} | `python b.py` |", True),
        (f"| A (2020) | `b` | **in part**: 12,000 {study} | `python b.py` |", True),
        ("| A (2020) | `b` | **not shown**: no return of it was measured | |", True),
        ("| A (2020) | | **not here** | |", True),
        (f"| A (2020) | `b` | **shown**: 0.98 {study} | `python b.py` |", False),
        (f"| A (2020) | `b` | **shown**: -0.97 {study} | `python b.py` |", False),
        ("| A (2020) | `b` | **shown**: 0.97 | `python b.py` |", False),
        (f"| A (2020) | `b` | **shown**: well {study} | `python b.py` |", False),
        (f"| A (2020) | `b` | **shown**: 0.97 {study} | |", False),
        (f"| A (2020) | | **shown**: 0.97 {study} | `python b.py` |", False),
        (f"| A (2020) | `b` | 0.97 {study} | `python b.py` |", False),
        (f"| A (2020) | `b` | **nearly**: 0.97 {study} | `python b.py` |", False),
        ("| A (2020) | `b` | **not shown** | |", False),
        (f"| A | `b` | **shown**: 0.97 {study} | `python b.py` |", False),
        ("| A (2020) | | **not here** | `python b.py` |", False),
        ("| A (2020) | `b` | **not here** |", False),
    ]:
        (cells,) = rows(f"{HEAD}\n|---|---|---|---|\n{row}\n\n| no | row |\n")
        assert (not [*faults(cells, tmp_path)]) is right, row
