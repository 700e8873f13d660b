"""The ids of bandits: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "AdversarialBandit-v0": ("adversarial:AdversarialBandit", {}),
        "BernoulliBandit-v0": ("stochastic:BernoulliBandit", {}),
        "BestArmIdentification-v0": ("best_arm:BestArmIdentification", {}),
        "BetaBandit-v0": ("stochastic:BetaBandit", {}),
        "ContextualLinearBandit-v0": ("linear:ContextualLinearBandit", {}),
        "CoupledRestlessCapacity-v0": ("coupled:Capacity", {}),
        "CoupledRestlessInterventions-v0": ("coupled:Interventions", {}),
        "CoupledRestlessMatching-v0": ("coupled:Matching", {}),
        "CoupledRestlessPath-v0": ("coupled:Path", {}),
        "DriftingBandit-v0": ("nonstationary:DriftingBandit", {}),
        "DuelingBandit-v0": ("dueling:DuelingBandit", {}),
        "GaussianBandit-v0": ("stochastic:GaussianBandit", {}),
        "HeavyTailedBandit-v0": ("stochastic:HeavyTailedBandit", {}),
        "LinearBandit-v0": ("linear:LinearBandit", {}),
        "PiecewiseBandit-v0": ("nonstationary:PiecewiseBandit", {}),
        "RestlessBandit-v0": ("restless:RestlessBandit", {}),
        "SparseLinearBandit-v0": ("linear:SparseLinearBandit", {}),
        "SwitchingBandit-v0": ("nonstationary:SwitchingBandit", {}),
    },
)
