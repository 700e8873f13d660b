"""The ids of Sokoban: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "Sokoban-v0": ("sokoban:Sokoban", {}),
        "SokobanLevel-v0": ("sokoban:SokobanLevel", {}),
    },
)
