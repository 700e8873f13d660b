"""bsuite's experiments as data: which task, in which settings, for how many episodes, and what they are about.

Osband et al. (2020), "Behaviour suite for reinforcement learning", appendix; settings as of the package's 0.3.6.
`digits*` stand in for its `mnist*`. The settings are lists of values, one entry a run; `sweep` makes environments of
them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrl.environment import Environment

from . import (
    bandit,
    cartpole,
    cartpole_swingup,
    catch,
    deep_sea,
    digits_bandit,
    discounting_chain,
    memory_chain,
    mountain_car,
    umbrella_chain,
)
from .perturbed import PerturbedReward


class Task(NamedTuple):
    """One run of an experiment."""

    env: Environment
    params: Any
    num_episodes: int


class Experiment(NamedTuple):
    """A row of the table below."""

    env: Environment
    num_episodes: int
    tags: tuple[str, ...]
    settings: dict[str, Any]  # name: a value for each run


LOG_SPACED = [*range(1, 11), 12, 14, 17, 20, 25, *range(30, 101, 10)]
SIZES = [*range(10, 51, 2)]
NOISE = {"noise_scale": list(np.repeat([0.1, 0.3, 1.0, 3.0, 10.0], 4))}
SCALE = {"reward_scale": list(np.repeat([0.001, 0.03, 1.0, 30.0, 1000.0], 4))}
SEED = {"seed": [*range(20)]}  # no setting but the run's own random numbers
FOUR = {"mapping_seed": [*range(4)] * 5}
TWENTY = {"mapping_seed": [*range(20)]}
SWINGUP = {"height_threshold": [n / 20 for n in range(20)], "x_reward_threshold": [1 - n / 20 for n in range(20)]}

BANDIT, CATCH, DIGITS = bandit.Bandit(), catch.Catch(), digits_bandit.DigitsBandit()
CARTPOLE, SWING_UP, CAR = cartpole.CartPole(), cartpole_swingup.CartPoleSwingup(), mountain_car.MountainCar()
SEA, WINDY_SEA = deep_sea.DeepSea(), deep_sea.DeepSeaStochastic()
UMBRELLA = umbrella_chain.Umbrella()

EXPERIMENTS: dict[str, Experiment] = {
    "bandit": Experiment(BANDIT, 10_000, ("basic",), TWENTY),
    "bandit_noise": Experiment(PerturbedReward(BANDIT), 10_000, ("noise",), NOISE | FOUR),
    "bandit_scale": Experiment(PerturbedReward(BANDIT), 10_000, ("scale",), SCALE | FOUR),
    "digits": Experiment(DIGITS, 10_000, ("basic", "generalization"), SEED),
    "digits_noise": Experiment(PerturbedReward(DIGITS), 10_000, ("noise", "generalization"), NOISE),
    "digits_scale": Experiment(PerturbedReward(DIGITS), 10_000, ("scale", "generalization"), SCALE),
    "catch": Experiment(CATCH, 10_000, ("basic", "credit_assignment"), SEED),
    "catch_noise": Experiment(PerturbedReward(CATCH), 10_000, ("noise", "credit_assignment"), NOISE),
    "catch_scale": Experiment(PerturbedReward(CATCH), 10_000, ("scale", "credit_assignment"), SCALE),
    "mountain_car": Experiment(CAR, 1_000, ("basic", "generalization"), SEED),
    "mountain_car_noise": Experiment(PerturbedReward(CAR), 1_000, ("noise", "generalization"), NOISE),
    "mountain_car_scale": Experiment(PerturbedReward(CAR), 1_000, ("scale", "generalization"), SCALE),
    "cartpole": Experiment(CARTPOLE, 1_000, ("basic", "credit_assignment", "generalization"), SEED),
    "cartpole_noise": Experiment(PerturbedReward(CARTPOLE), 1_000, ("noise", "generalization"), NOISE),
    "cartpole_scale": Experiment(PerturbedReward(CARTPOLE), 1_000, ("scale", "generalization"), SCALE),
    "cartpole_swingup": Experiment(SWING_UP, 1_000, ("exploration", "generalization"), SWINGUP),
    "deep_sea": Experiment(SEA, 10_000, ("exploration",), {"size": SIZES}),
    "deep_sea_stochastic": Experiment(WINDY_SEA, 10_000, ("exploration", "noise"), {"size": SIZES}),
    "discounting_chain": Experiment(discounting_chain.DiscountingChain(), 1_000, ("credit_assignment",), TWENTY),
    "umbrella_length": Experiment(UMBRELLA, 10_000, ("credit_assignment", "noise"), {"chain_length": LOG_SPACED}),
    "umbrella_distract": Experiment(
        dataclasses.replace(UMBRELLA, id="UmbrellaDistract-bsuite"),
        10_000,
        ("credit_assignment", "noise"),
        {"n_distractor": LOG_SPACED},
    ),
    "memory_len": Experiment(memory_chain.MemoryLength(), 10_000, ("memory",), {"memory_length": LOG_SPACED}),
    "memory_size": Experiment(memory_chain.MemorySize(), 10_000, ("memory",), {"num_bits": LOG_SPACED[:17]}),
}

LEAVES = {"height_threshold": "height", "x_reward_threshold": "x_good"}
"""bsuite's names of settings that are leaves of params under another name."""


def sweep(experiment: str) -> list[Task]:
    """The runs of one experiment, in bsuite's order. Raises ValueError for an unknown one."""
    if experiment not in EXPERIMENTS:
        raise ValueError(f"experiment={experiment!r}: there are {', '.join(EXPERIMENTS)}.")
    row = EXPERIMENTS[experiment]
    columns = zip(*row.settings.values(), strict=True)
    return [_task(row, dict(zip(row.settings, values, strict=True))) for values in columns]


def _task(row: Experiment, setting: dict[str, Any]) -> Task:
    static = {f.name for f in dataclasses.fields(row.env)}
    env = dataclasses.replace(row.env, **{name: value for name, value in setting.items() if name in static})
    params = env.default_params
    for name, value in setting.items():
        if name == "mapping_seed":
            params = _with_rewards(env, params, value)
        elif name not in static and name != "seed":
            leaf = LEAVES.get(name, name)
            params = params.replace(**{leaf: jnp.asarray(value, getattr(params, leaf).dtype)})
    return Task(env, params, row.num_episodes)


def _with_rewards(env: Environment, params: Any, mapping_seed: int) -> Any:
    """`params` with bsuite's rewards of this seed, of a bandit, a wrapped one or a discounting chain."""
    if isinstance(env, PerturbedReward):
        return params.replace(env=_with_rewards(env.env, params.env, mapping_seed))
    family = bandit if isinstance(env, bandit.Bandit) else discounting_chain
    return params.replace(rewards=jnp.asarray(family.bsuite_rewards(mapping_seed), params.rewards.dtype))
