"""The ids of classic control and fishery: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "Acrobot-v1": ("acrobot:Acrobot", {}),
        "CartPole-v1": ("cartpole:CartPole", {}),
        "CartPoleContinuous-v0": ("cartpole_continuous:CartPoleContinuous", {}),
        "CartPoleSwingUp-v0": ("cartpole_swing_up:CartPoleSwingUp", {}),
        "Curling-v0": ("curling:Curling", {}),
        "DoublePendulum-v0": ("double_pendulum:DoublePendulum", {}),
        "Fishery-v0": ("fishery:Fishery", {}),
        "LettuceGreenhouse-v0": ("lettuce_greenhouse:LettuceGreenhouse", {}),
        "MountainCar-v0": ("mountain_car:MountainCar", {}),
        "MountainCarContinuous-v0": ("mountain_car_continuous:MountainCarContinuous", {}),
        "Pendulum-v1": ("pendulum:Pendulum", {}),
        "PointMass-v0": ("point_mass:PointMass", {}),
        "Reacher-v0": ("reacher:Reacher", {}),
        "RedundantArm-v0": ("redundant_arm:RedundantArm", {}),
    },
)
