"""The ids of grid worlds' distributions: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "GridWorld-all-v0": ("grid_world:GridWorld", {"family": "all"}),
        "GridWorld-debug-v0": ("grid_world:GridWorld", {"family": "debug"}),
        "GridWorld-large-v0": ("grid_world:GridWorld", {"family": "large"}),
        "GridWorld-long-v0": ("grid_world:GridWorld", {"family": "long"}),
        "GridWorld-long_dense-v0": ("grid_world:GridWorld", {"family": "long_dense"}),
        "GridWorld-longer-v0": ("grid_world:GridWorld", {"family": "longer"}),
        "GridWorld-mazes-v0": ("grid_world:GridWorld", {"family": "mazes"}),
        "GridWorld-medium-v0": ("grid_world:GridWorld", {"family": "medium"}),
        "GridWorld-rand_all-v0": ("grid_world:GridWorld", {"family": "rand_all"}),
        "GridWorld-rand_dense-v0": ("grid_world:GridWorld", {"family": "rand_dense"}),
        "GridWorld-rand_long-v0": ("grid_world:GridWorld", {"family": "rand_long"}),
        "GridWorld-rand_small-v0": ("grid_world:GridWorld", {"family": "rand_small"}),
        "GridWorld-rand_sparse-v0": ("grid_world:GridWorld", {"family": "rand_sparse"}),
        "GridWorld-rand_very_dense-v0": ("grid_world:GridWorld", {"family": "rand_very_dense"}),
        "GridWorld-small-v0": ("grid_world:GridWorld", {"family": "small"}),
        "GridWorld-sparse-v0": ("grid_world:GridWorld", {"family": "sparse"}),
        "GridWorld-v0": ("grid_world:GridWorld", {}),
    },
)
