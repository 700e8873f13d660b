"""The ids of tabular MDPs: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "Blackjack-v1": ("blackjack:Blackjack", {}),
        "ButtonGrid-v0": ("generalization.button_grid:ButtonGrid", {}),
        "Chain-v0": ("chains.chain:Chain", {}),
        "CliffWalking-v1": ("grids.cliff_walking:CliffWalking", {}),
        "CliffWalkingSlippery-v1": ("grids.cliff_walking:CliffWalking", {"slippery": True}),
        "CombinationLock-v0": ("chains.combination_lock:CombinationLock", {}),
        "Darkroom-v0": ("grids.darkroom:Darkroom", {}),
        "DelayedChain-v0": ("chains.delayed_chain:DelayedChain", {}),
        "Discrete2D-v0": ("generalization.discrete_2d:Discrete2D", {}),
        "FrozenLake-v1": ("grids.frozen_lake:FrozenLake", {}),
        "FrozenLake8x8-v1": ("grids.frozen_lake:FrozenLake", {"rows": 8, "columns": 8}),
        "Garnet-v0": ("garnet:Garnet", {}),
        "OpenGrid-v0": ("generalization.proc_maze:OpenGrid", {}),
        "PanFlute-v0": ("generalization.pan_flute:PanFlute", {}),
        "ProcMaze-v0": ("generalization.proc_maze:ProcMaze", {}),
        "RiverSwim-v0": ("chains.river_swim:RiverSwim", {}),
        "SixArms-v0": ("chains.six_arms:SixArms", {}),
        "Taxi-v4": ("grids.taxi:Taxi", {}),
        "TwoGoalGrid-v0": ("grids.two_goal_grid:TwoGoalGrid", {}),
        "TwoSidedChain-v0": ("chains.two_sided_chain:TwoSidedChain", {}),
        "TwoStepTree-v0": ("chains.two_step_tree:TwoStepTree", {}),
        "WindyGridworld-v0": ("grids.windy_gridworld:WindyGridworld", {}),
        "WindyWalk-v0": ("grids.windy_walk:WindyWalk", {}),
    },
)
