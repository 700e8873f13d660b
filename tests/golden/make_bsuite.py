"""Write `bsuite_*.npz`: what the package bsuite 0.3.6 does, for tests that run without it.

    python tests/golden/make_bsuite.py

Its analysis needs pandas < 2 (made with 1.5.3; plotnine 0.10.1, mizani 0.8.1, numpy 1.26), so a virtual environment of
its own.

- `bsuite_envs.npz`, `bsuite_cartpole.npz`: for each case (an environment with its settings) the columns
  `<case>/<name>`, a row a step: `first` (of an episode), `action`, `obs`, `reward`, `last`, the environment's
  attributes before (`<attribute>`) and after (`next_<attribute>`) the step, what was drawn in the step (`rand`,
  `randn`; NaN: not drawn), and the totals of `bsuite_info` after it; `<case>/first_obs` are the first observations;
- `bsuite_sweep.npz`: the settings, tags and numbers of episodes of every experiment, as JSON;
- `bsuite_scores.npz`: for each experiment three made-up logs of all its runs and their score,
  `<experiment>/<i>/<name>`. In the third, half the runs stop early (NaN).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from bsuite import sweep
from bsuite.environments import (
    bandit,
    cartpole,
    catch,
    deep_sea,
    discounting_chain,
    memory_chain,
    mountain_car,
    umbrella_chain,
)
from bsuite.experiments.cartpole_swingup.cartpole_swingup import CartpoleSwingup

HERE = Path(__file__).parent
SEED = 20240229
POINTS = np.array([1, 10, 100, 200, 300, 1000])  # and, for experiments of 10,000 episodes, ten times the last four


class Recorder:
    """A RandomState that remembers the last number of each kind."""

    def __init__(self, rng: np.random.RandomState) -> None:
        self.rng = rng
        self.drawn: dict[str, float] = {}

    def __getattr__(self, name: str) -> Callable:
        def draw(*args, **kwargs):
            value = getattr(self.rng, name)(*args, **kwargs)
            if name in ("rand", "randn"):
                self.drawn[name] = value
            return value

        return draw


def balance(env: cartpole.Cartpole, rng: np.random.RandomState) -> int:
    """Pushes that hold the pole up for the whole episode, with some random ones."""
    s = env._state
    angle = (s.theta + np.pi) % (2 * np.pi) - np.pi
    push = 8 * angle + 2 * s.theta_dot + 0.3 * s.x + 0.6 * s.x_dot
    return int(rng.randint(3)) if rng.rand() < 0.05 else 1 + int(np.sign(push))


def rock(env: mountain_car.MountainCar, rng: np.random.RandomState) -> int:
    """Pushes along with the motion, which reaches the flag; in the first episode none at all."""
    return 1 if env._raw_return > -1000 else 2 if env._velocity >= 0 else 0


def anything(env, rng: np.random.RandomState) -> int:
    return int(rng.randint(env.action_spec().num_values))


CASES = {  # name: (environment, attributes, policy, steps)
    "bandit": (lambda: bandit.SimpleBandit(0), (), anything, 40),
    "catch": (lambda: catch.Catch(seed=1), ("_ball_x", "_ball_y", "_paddle_x"), anything, 450),
    "cartpole": (lambda: cartpole.Cartpole(seed=1), ("_state",), balance, 1100),
    "cartpole_random": (lambda: cartpole.Cartpole(seed=2), ("_state",), anything, 150),
    "swingup": (lambda: CartpoleSwingup(seed=1), ("_state",), anything, 1050),
    "swingup_balance": (
        lambda: CartpoleSwingup(seed=2, max_time=0.505, x_reward_threshold=0.05),
        ("_state",),
        balance,
        200,
    ),
    "mountain_car": (lambda: mountain_car.MountainCar(seed=1), ("_position", "_velocity", "_timestep"), rock, 1500),
    "mountain_car_random": (
        lambda: mountain_car.MountainCar(max_steps=300, seed=2),
        ("_position", "_velocity", "_timestep"),
        anything,
        700,
    ),
    "discounting_chain_0": (lambda: discounting_chain.DiscountingChain(0), ("_context", "_timestep"), anything, 1000),
    "discounting_chain_3": (lambda: discounting_chain.DiscountingChain(3), ("_context", "_timestep"), anything, 1000),
}
for length, bits in ((1, 1), (2, 10), (7, 3)):
    CASES[f"memory_{length}_{bits}"] = (
        lambda length=length, bits=bits: memory_chain.MemoryChain(length, bits, seed=3),
        ("_context", "_query", "_timestep"),
        anything,
        200,
    )
for length, bits in ((1, 0), (5, 3), (20, 20)):
    CASES[f"umbrella_{length}_{bits}"] = (
        lambda length=length, bits=bits: umbrella_chain.UmbrellaChain(length, bits, seed=4),
        ("_need_umbrella", "_has_umbrella", "_timestep"),
        anything,
        400,
    )
for size, deterministic in ((1, True), (6, True), (10, True), (6, False)):
    CASES[f"deep_sea_{size}{'' if deterministic else '_stochastic'}"] = (
        lambda size=size, deterministic=deterministic: deep_sea.DeepSea(size, deterministic, seed=5, mapping_seed=42),
        ("_row", "_column"),
        lambda env, rng: int(env._action_mapping[env._row, env._column] if rng.rand() < 0.8 else rng.randint(2)),
        600,
    )


def attributes(env, names: tuple[str, ...], prefix: str) -> dict[str, object]:
    return {prefix + name.strip("_"): np.array(getattr(env, name), float) for name in names}


def record(make: Callable, names: tuple[str, ...], policy: Callable, steps: int) -> dict[str, np.ndarray]:
    env, rng = make(), np.random.RandomState(SEED)
    if hasattr(env, "_rng"):
        env._rng = Recorder(env._rng)
    rows: dict[str, list] = {}
    timestep = env.reset()
    for _ in range(steps):
        if timestep.last():
            timestep = env.step(0)  # the automatic reset
        first = timestep.first()
        if first:
            rows.setdefault("first_obs", []).append(timestep.observation)
        before, action = attributes(env, names, ""), policy(env, rng)
        getattr(getattr(env, "_rng", None), "drawn", {}).clear()
        timestep = env.step(action)
        drawn = getattr(getattr(env, "_rng", None), "drawn", {})
        row = dict(first=first, action=action, obs=timestep.observation, reward=timestep.reward, last=timestep.last())
        row |= before | attributes(env, names, "next_") | env.bsuite_info()
        row |= {kind: drawn.get(kind, np.nan) for kind in ("rand", "randn")}
        for name, value in row.items():
            rows.setdefault(name, []).append(value)
    data = {name: np.array(values) for name, values in rows.items()}
    return {name: x for name, x in data.items() if not (name.startswith("rand") and np.isnan(x).all())}


def environments() -> dict[str, np.ndarray]:
    data = {f"{case}/{name}": x for case, spec in CASES.items() for name, x in record(*spec).items()}
    data["bandit_rewards"] = np.stack([bandit.SimpleBandit(seed)._rewards for seed in range(20)])
    data["deep_sea_mapping_6"] = deep_sea.DeepSea(6, mapping_seed=42)._action_mapping
    data["deep_sea_mapping_50"] = deep_sea.DeepSea(50, mapping_seed=42)._action_mapping.astype(np.int8)
    return data


def experiments() -> list[str]:
    return sorted({bsuite_id.split("/")[0] for bsuite_id in sweep.SWEEP})


def settings(experiment: str) -> list[dict]:
    return [dict(sweep.SETTINGS[i]) for i in sweep.SWEEP if i.split("/")[0] == experiment]


def sweeps() -> dict[str, np.ndarray]:
    tables = {}
    for experiment in experiments():
        tags = [tag for tag, ids in sweep.TAGS.items() if f"{experiment}/0" in ids]
        row = dict(settings=settings(experiment), tags=tags, num_episodes=sweep.EPISODES[f"{experiment}/0"])
        tables[experiment] = np.array(json.dumps(row))
    return tables


def made_up(experiment: str, rng: np.random.RandomState, quality: float, ragged: bool) -> dict[str, np.ndarray]:
    """A log of every run: averages that improve with the logarithm of the episode, about around the thresholds."""
    runs, num_episodes = len(settings(experiment)), sweep.EPISODES[f"{experiment}/0"]
    episode = np.unique(np.concatenate([POINTS, 10 * POINTS[2:]])) if num_episodes == 10_000 else POINTS
    progress = np.log(episode)[None] / np.log(num_episodes) * rng.uniform(0.5, 1.5, (runs, 1)) * quality
    progress = np.clip(progress, 0, 1)
    scale = {"cartpole": 1000, "cartpole_swingup": 700, "mountain_car": 1000}
    top = scale.get(experiment.replace("_noise", "").replace("_scale", ""), 1)
    if top == 1:
        regret = (1 - progress) * rng.uniform(0.5, 1.8, (runs, 1)) * episode
        returns = (1.0 + 0.1 * progress) * episode
    else:
        regret = np.zeros((runs, 1)) * episode
        returns = (progress * top if experiment.startswith("cartpole") else 900 * progress - 1000) * episode
    noise = rng.normal(size=(runs, 1)) * (1 if "noise" in experiment else 0)
    columns = dict(
        total_return=returns + noise * episode,
        raw_return=returns,
        regret=np.round(regret),
        best_episode=np.round(1.2 * top * np.maximum.accumulate(progress, 1)),
    )
    columns = {name: x.astype(np.float32).astype(float) for name, x in columns.items()}
    if ragged:
        reached = np.where(rng.rand(runs) < 0.5, len(episode), 2 + rng.randint(len(episode) - 2, size=runs))
        for x in columns.values():
            x[np.arange(len(episode))[None] >= reached[:, None]] = np.nan
    return dict(episode=episode, **columns)


def score(experiment: str, log: dict[str, np.ndarray]) -> float:
    """The package's score of a log."""
    rows = []
    for run, setting in enumerate(settings(experiment)):
        for column, episode in enumerate(log["episode"]):
            values = {name: x[run, column] for name, x in log.items() if name != "episode"}
            if np.isnan(values["total_return"]):
                continue
            values |= dict(
                bsuite_id=f"{experiment}/{run}",
                episode=episode,
                total_regret=values["regret"],
                total_bad_episodes=values["regret"],
                total_perfect=episode - values["regret"] / 2,
            )
            rows.append(setting | values)
    analysis = importlib.import_module(f"bsuite.experiments.{experiment}.analysis")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(analysis.score(pd.DataFrame(rows)))


def scores() -> dict[str, np.ndarray]:
    rng, data = np.random.RandomState(SEED), {}
    for experiment in experiments():
        for i, (quality, ragged) in enumerate(((0.5, False), (1.1, False), (1.1, True))):
            log = made_up(experiment, rng, quality, ragged)
            data |= {f"{experiment}/{i}/{name}": x.astype(np.float32) for name, x in log.items()}
            data[f"{experiment}/{i}/score"] = np.array(score(experiment, log))
    return data


def main() -> None:
    version = np.array(importlib.metadata.version("bsuite"))
    envs = environments()
    poles = {name: x for name, x in envs.items() if name.startswith(("cartpole", "swingup"))}
    others = {name: x for name, x in envs.items() if name not in poles}
    for name, data in (("cartpole", poles), ("envs", others), ("sweep", sweeps()), ("scores", scores())):
        np.savez_compressed(HERE / f"bsuite_{name}.npz", bsuite=version, **data)


if __name__ == "__main__":
    main()
