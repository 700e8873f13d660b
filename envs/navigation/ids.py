"""The ids of navigation: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "HardMaze-v0": ("hard_maze:HardMaze", {}),
        "JaxNav-v0": ("jaxnav:JaxNav", {}),
        "KheperaxMaze-v0": ("hard_maze:HardMaze", {"task": "energy", "walls": "sticks", "robot": "kheperax"}),
    },
)
