"""The ids of grid worlds: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

from .babyai import ids as babyai_ids
from .grid_world import ids as grid_world_ids
from .maze import ids as maze_ids
from .minatar import ids as minatar_ids
from .minigrid import ids as minigrid_ids
from .rule_world import ids as rule_world_ids
from .sokoban import ids as sokoban_ids

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "Game2048-v0": ("game_2048:Game2048", {}),
        "Minesweeper-v0": ("minesweeper:Minesweeper", {}),
        "MinesweeperLevel-v0": ("minesweeper:MinesweeperLevel", {}),
        "Snake-v0": ("snake:Snake", {}),
    },
)
for _ids in (babyai_ids, grid_world_ids, maze_ids, minatar_ids, minigrid_ids, rule_world_ids, sokoban_ids):
    ENVIRONMENTS.update(_ids.ENVIRONMENTS)
