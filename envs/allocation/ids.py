"""The ids of memory allocation: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "MemoryAllocation-v0": ("memory_allocation:MemoryAllocation", {}),
        **{
            f"MemoryAllocation-{name}-v0": ("memory_allocation:MemoryAllocation", {"problem": name})
            for name in "ABCDEFGHIJK"
        },
    },
)
