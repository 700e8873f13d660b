"""The ids of bsuite: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "Bandit-bsuite": ("bandit:Bandit", {}),
        "CartPole-bsuite": ("cartpole:CartPole", {}),
        "CartPoleSwingup-bsuite": ("cartpole_swingup:CartPoleSwingup", {}),
        "Catch-bsuite": ("catch:Catch", {}),
        "DeepSea-bsuite": ("deep_sea:DeepSea", {}),
        "DeepSea-v0": ("deep_sea:DeepSea", {"observation": "index"}),
        "DeepSeaStochastic-bsuite": ("deep_sea:DeepSeaStochastic", {}),
        "DigitsBandit-bsuite": ("digits_bandit:DigitsBandit", {}),
        "DiscountingChain-bsuite": ("discounting_chain:DiscountingChain", {}),
        "MemoryLength-bsuite": ("memory_chain:MemoryLength", {}),
        "MemorySize-bsuite": ("memory_chain:MemorySize", {}),
        "MountainCar-bsuite": ("mountain_car:MountainCar", {}),
        "UmbrellaDistract-bsuite": ("umbrella_chain:Umbrella", {"n_distractor": 100}),
        "UmbrellaLength-bsuite": ("umbrella_chain:Umbrella", {}),
    },
)
