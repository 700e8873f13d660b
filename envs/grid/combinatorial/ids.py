"""The ids of puzzles: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "Game2048-v0": ("game_2048:Game2048", {}),
        "Minesweeper-v0": ("minesweeper:Minesweeper", {}),
        "MinesweeperLevel-v0": ("minesweeper:MinesweeperLevel", {}),
        "Snake-v0": ("snake:Snake", {}),
    },
)
