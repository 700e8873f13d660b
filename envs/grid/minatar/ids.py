"""The ids of MinAtar: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "Asterix-MinAtar": ("asterix:Asterix", {}),
        "Breakout-MinAtar": ("breakout:Breakout", {}),
        "Freeway-MinAtar": ("freeway:Freeway", {}),
        "Seaquest-MinAtar": ("seaquest:Seaquest", {}),
        "SpaceInvaders-MinAtar": ("space_invaders:SpaceInvaders", {}),
    },
)
