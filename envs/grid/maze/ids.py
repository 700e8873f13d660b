"""The ids of mazes: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "Maze-Crossing-v0": ("levels:Crossing", {}),
        "Maze-FourRooms-v0": ("levels:FourRooms", {}),
        "Maze-Labyrinth-v0": ("levels:Holdout", {"name": "Labyrinth"}),
        "Maze-Labyrinth2-v0": ("levels:Holdout", {"name": "Labyrinth2"}),
        "Maze-LabyrinthFlipped-v0": ("levels:Holdout", {"name": "LabyrinthFlipped"}),
        "Maze-LargeCorridor-v0": ("levels:Corridor", {"size": 19}),
        "Maze-SixteenRooms-v0": ("levels:Holdout", {"name": "SixteenRooms"}),
        "Maze-SixteenRooms2-v0": ("levels:Holdout", {"name": "SixteenRooms2"}),
        "Maze-SmallCorridor-v0": ("levels:Corridor", {}),
        "Maze-StandardMaze-v0": ("levels:Holdout", {"name": "StandardMaze"}),
        "Maze-StandardMaze2-v0": ("levels:Holdout", {"name": "StandardMaze2"}),
        "Maze-StandardMaze3-v0": ("levels:Holdout", {"name": "StandardMaze3"}),
        "Maze-v0": ("maze:Maze", {}),
        "MazeEditor-v0": ("editor:MazeEditor", {}),
        "PerfectMaze101-v0": ("levels:PerfectMaze", {"size": 101}),
        "PerfectMaze13-v0": ("levels:PerfectMaze", {}),
        "PerfectMaze19-v0": ("levels:PerfectMaze", {"size": 19}),
    },
)
