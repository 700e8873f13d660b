"""The ids of tasks that need memory: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

LENGTHS = (50, 200, 1000, 10_000)
"""Lengths of the corridors of `TMaze50-v0` to `TMaze10000-v0`."""

ROCKS = ((5, 5), (7, 8), (11, 11), (15, 15))
"""Rows (and columns) and rocks of RockSample."""

PARTS = {"P": "positions", "V": "velocities"}
"""What `<task>-P-v0` and `<task>-V-v0` show."""

MASKED = {
    "Acrobot": "Acrobot-v1",
    "CartPole": "CartPole-v1",
    "HalfCheetah": "HalfCheetah-v5",
    "Hopper": "Hopper-v5",
    "MountainCar": "MountainCar-v0",
    "Pendulum": "Pendulum-v1",
    "Walker2d": "Walker2d-v5",
}
"""Tasks of which a part of the observation is shown, by their names here."""

LEVELS = ("Easy", "Medium", "Hard")
CARDS = {
    "Autoencode": ("autoencode:Autoencode", ({}, {"num_decks": 2}, {"num_decks": 3})),
    "CountRecall": (
        "count_recall:CountRecall",
        ({}, {"num_decks": 2, "kind": "suits"}, {"num_decks": 4, "kind": "ranks"}),
    ),
    "RepeatFirst": ("repeat_first:RepeatFirst", ({}, {"num_decks": 8}, {"num_decks": 16})),
    "RepeatPrevious": ("repeat_previous:RepeatPrevious", ({}, {"num_decks": 2, "k": 32}, {"num_decks": 3, "k": 64})),
}
"""POPGym's games of cards, with the settings of its three levels."""

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "Battleship-v0": ("battleship:Battleship", {}),
        "Battleship-3x3-v0": ("battleship:Battleship", {"rows": 3, "columns": 3, "ship_lengths": (2,)}),
        "Battleship-5x5-v0": ("battleship:Battleship", {"rows": 5, "columns": 5, "ship_lengths": (3, 2)}),
        "CompassWorld-v0": ("compass_world:CompassWorld", {}),
        "TMaze-v0": ("tmaze:TMaze", {}),
        **{f"TMaze{n}-v0": ("tmaze:TMaze", {"length": n}) for n in LENGTHS},
        "TMazeActive-v0": ("passive_tmaze:PassiveTMaze", {"oracle": 1}),
        "TMazePassive-v0": ("passive_tmaze:PassiveTMaze", {}),
        **{f"TMazePassive{n}-v0": ("passive_tmaze:PassiveTMaze", {"length": n}) for n in LENGTHS[:3]},
        **{
            f"RockSample-{n}-{k}-v0": ("rock_sample:RockSample", {"rows": n, "columns": n, "num_rocks": k})
            for n, k in ROCKS
        },
        **{
            f"{game}{level}-v0": (target, settings)
            for game, (target, levels) in CARDS.items()
            for level, settings in zip(LEVELS, levels, strict=True)
        },
        **{
            f"{name}-{part}-v0": ("masked:Masked", {"name": id, "part": shown})
            for name, id in MASKED.items()
            for part, shown in PARTS.items()
        },
    },
)
