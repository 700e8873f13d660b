"""The ids of grid worlds: those of the folders here."""

from __future__ import annotations

from jaxrl.registry import Entry

from .babyai import ids as babyai_ids
from .combinatorial import ids as combinatorial_ids
from .grid_world import ids as grid_world_ids
from .maze import ids as maze_ids
from .minatar import ids as minatar_ids
from .minigrid import ids as minigrid_ids
from .rule_world import ids as rule_world_ids
from .sokoban import ids as sokoban_ids

FOLDERS = (
    babyai_ids,
    combinatorial_ids,
    grid_world_ids,
    maze_ids,
    minatar_ids,
    minigrid_ids,
    rule_world_ids,
    sokoban_ids,
)
ENVIRONMENTS: dict[str, Entry] = {id: entry for folder in FOLDERS for id, entry in folder.ENVIRONMENTS.items()}
