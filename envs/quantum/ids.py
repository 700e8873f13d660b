"""The ids of quantum circuits: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

MOLECULES = ("H2-2", "H2-4", "LiH-4")

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {f"CircuitDesign-{name}-v0": ("circuit_design:CircuitDesign", {"molecule": name}) for name in MOLECULES},
)
