"""The ids of physics tasks: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

BRAX = (
    *("inverted_pendulum", "ant", "fast", "halfcheetah", "hopper", "humanoid", "humanoidstandup"),
    *("inverted_double_pendulum", "pusher", "reacher", "swimmer", "walker2d"),
)
"""Names of Brax's environments; the first is the quickest to compile."""

PLAYGROUND = (
    *("PendulumSwingup", "AcrobotSwingup", "AcrobotSwingupSparse", "BallInCup", "CartpoleBalance"),
    *(
        "CartpoleBalanceSparse",
        "CartpoleSwingup",
        "CartpoleSwingupSparse",
        "CheetahRun",
        "FingerSpin",
        "FingerTurnEasy",
    ),
    *("FingerTurnHard", "FishSwim", "HopperHop", "HopperStand", "HumanoidStand", "HumanoidWalk", "HumanoidRun"),
    *("PointMass", "ReacherEasy", "ReacherHard", "SwimmerSwimmer6", "WalkerRun", "WalkerStand", "WalkerWalk"),
)
"""Names of MuJoCo Playground's DM Control suite, of its version 0.2.0."""

MAZES = ("medium", "large", "giant", "teleport")
"""Names of OGBench's point mazes."""

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        **{f"Brax-{name}": ("brax_task:BraxTask", {"name": name}) for name in BRAX},
        "Ant-v5": ("ant:Ant", {}),
        "DMCartpoleSwingup-v0": ("cartpole_swingup:CartpoleSwingup", {}),
        "HalfCheetah-v5": ("half_cheetah:HalfCheetah", {}),
        "Hopper-v5": ("hopper:Hopper", {}),
        "InvertedDoublePendulum-v5": ("inverted_double_pendulum:InvertedDoublePendulum", {}),
        "InvertedPendulum-v5": ("inverted_pendulum:InvertedPendulum", {}),
        **{f"PointMaze{maze.title()}-v0": ("point_maze:PointMaze", {"maze": maze}) for maze in MAZES},
        "Reacher-v5": ("reacher:Reacher", {}),
        "SparseHalfCheetah-v0": ("sparse_half_cheetah:SparseHalfCheetah", {}),
        "StumpWalker-v0": ("stump_walker:StumpWalker", {}),
        "Walker2d-v5": ("walker2d:Walker2d", {}),
    },
)
ENVIRONMENTS |= entries(
    __package__,
    {f"Playground-{name}": ("playground_task:PlaygroundTask", {"name": name}) for name in PLAYGROUND},
    extra="playground",
)
