"""The ids of knapsacks and tours: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "CVRP-v0": ("cvrp:CVRP", {}),
        "Knapsack-v0": ("knapsack:Knapsack", {}),
        "TSP-v0": ("tsp:TSP", {}),
    },
)
