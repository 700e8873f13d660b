"""Sokoban's levels as text: which lines of a file are rows of which level.

The convention of Sokoban's level sets (XSB), and of Boxoban's files, which are a part of it. A row begins with a wall,
after floor that is outside, or is made of the symbols alone; every other line is text (`Title: ...`, `Author: ...`, a
solution), as are lines that begin with `;` or `::`, and all from `Comment:` to `Comment-End:`. Text and blank lines
part levels.

Run-length encoded, a row or a whole level is one line: a number repeats the symbol or the group in parentheses after
it, `|` ends a row, and floor is `-` or `_`: `5#|#@$.#|5#`.
"""

from __future__ import annotations

import re

SYMBOLS = {
    "#": "wall",
    **dict.fromkeys(" -_", ""),
    **dict.fromkeys("@p", "player"),
    **dict.fromkeys("$b", "box"),
    **dict.fromkeys(".o", "target"),
    **dict.fromkeys("*B", "box target"),
    **dict.fromkeys("+P", "player target"),
}
PLAIN = set("#@$.*+ -_")
WIDEST = 1000
"""Symbols of a row, and rows of a level, that a number may stand for."""

Rows = list[tuple[int, str]]


def rooms(text: str) -> list[Rows]:
    """The rows of each level with the numbers of their lines.

    Raises ValueError, naming the line, for an unknown symbol in a row, and for numbers that stand for too much.
    """
    found: list[Rows] = [[]]
    comment = False
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        line = line.expandtabs().rstrip()
        word = line.strip().lower()
        begins = word.startswith("comment:")
        comment = (comment or (begins and word == "comment:")) and not word.startswith(("comment-end", "comment_end"))
        if comment or begins or not is_row(line):
            found.append([])
            continue
        rows = [(number, row) for row in unpacked(line, number)]
        if "|" in line:  # a whole level
            found += [rows, []]
        else:
            found[-1] += rows
    return [room for room in found if room]


def is_row(line: str) -> bool:
    """Whether a line is of a level, and no text."""
    if line.startswith((";", "::")):
        return False
    begins = re.match(r"[ \-_\d(]*#", line) is not None
    return begins or (set(line) <= PLAIN and bool(set(line) & set("@$.*+")))


def unpacked(line: str, number: int) -> list[str]:
    """The rows of a run-length encoded line."""
    if not re.search(r"[\d|()]", line):
        return [line]
    row = re.compile(r"(\d*)\(([^()]*)\)|(\d+)([^\d()|])")

    def repeated(found: re.Match[str]) -> str:
        times, part = (found[1] or "1", found[2]) if found[4] is None else (found[3], found[4])
        if len(times) > 4 or int(times) * max(1, len(part)) > WIDEST:
            raise ValueError(
                f"sokoban levels, line {number}: {times:.20} times {part!r:.20} is more than {WIDEST} symbols."
            )
        return part * int(times)

    # `3|` are three ends of rows: two empty rows.
    line = re.sub(r"(\d+)\|", lambda found: "|" * min(int(found[1][:5]), WIDEST), line)
    while (wider := row.sub(repeated, line)) != line:
        line = wider
        if len(line) > WIDEST**2:
            raise ValueError(f"sokoban levels, line {number}: its numbers stand for more than {WIDEST**2} symbols.")
    rows = line.rstrip("|").split("|")
    if len(rows) > WIDEST or max(map(len, rows)) > WIDEST:
        raise ValueError(f"sokoban levels, line {number}: a level has at most {WIDEST} rows of {WIDEST} symbols.")
    return rows
