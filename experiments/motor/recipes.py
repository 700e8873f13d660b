"""Settings with which learners control drives, where they differ from an algorithm's defaults."""

from typing import Any

SETTINGS: dict[str, dict[str, Any]] = {
    "Cont-CC-PMSM-v0": {"dq_actions": True},
    "Cont-TC-PMSM-v0": {"dq_actions": True},
    "Cont-SC-PMSM-v0": {"dq_actions": True},
    "Cont-CC-SeriesDc-v0": {},
    "Cont-SC-PermExDc-v0": {},
    "Cont-CC-SCIM-v0": {"dq_actions": True, "flux_observer": True},
    "Finite-CC-PMSM-v0": {"cos_sin": True, "remove_angle": True},
}
"""Static settings of the tasks, for learners and controllers alike: actions on the rotor's axes where it turns."""

GAMMA = {"Cont-CC-PMSM-v0": 0.5, "Cont-SC-PMSM-v0": 0.98, "Cont-SC-PermExDc-v0": 0.98, "Finite-CC-PMSM-v0": 0.8}
"""Discounts, 0.9 elsewhere. A current takes a few steps to its reference, a speed hundreds."""

OFF_POLICY = {"num_envs": 64, "num_steps": 1, "num_updates": 8, "hidden": (64, 64), "buffer_size": 200_000}

ALGORITHMS: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "ppo": (
        2_000_000,
        {
            "num_envs": 64,
            "num_steps": 64,
            "num_epochs": 5,
            "num_minibatches": 8,
            "normalize_obs": True,
            "normalize_reward": True,
            "clip_value": False,
        },
        {"learning_rate": 1e-3, "gae_lambda": 0.95, "ent_coef": 0.0},
    ),
    "sac": (
        200_000,
        OFF_POLICY,
        {
            "learning_rate": 1e-3,
            "alpha_learning_rate": 1e-3,
            "alpha": 0.01,
            "target_entropy": -6.0,
            "tau": 0.01,
            "learning_starts": 10_000,
        },
    ),
    "td3": (
        200_000,
        OFF_POLICY,
        {"learning_rate": 1e-3, "tau": 0.01, "policy_noise": 0.02, "learning_starts": 10_000},
    ),
    "dqn": (
        500_000,
        {"num_envs": 50, "num_steps": 2, "num_updates": 10, "hidden": (64, 64), "batch_size": 256}
        | {"buffer_size": 500_000},
        {"learning_rate": 1e-3, "exploration_steps": 200_000, "epsilon_end": 0.02, "target_period": 1000},
    ),
    "pqn": (
        3_000_000,
        {"num_envs": 128, "num_steps": 32, "num_epochs": 2},
        {"q_lambda": 0.5, "exploration_steps": 1_000_000, "epsilon_end": 0.02},
    ),
}
"""Steps of a seed (of speed control twice as many), Config, Hyper."""

SHORT_SIGHTED = {"sac": 0.3, "td3": 0.3}
"""Discounts of current and torque control where a critic has to tell actions apart by what they change at once."""
