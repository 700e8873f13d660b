"""Pages that lead to others: the list of studies."""

import re
from pathlib import Path

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
