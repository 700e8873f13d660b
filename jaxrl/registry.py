"""Ids and where they live. Nothing is imported before it is asked for."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """An environment class as "module:Class" (or the class itself) and the static settings an id stands for."""

    target: str | Callable[..., Any]
    settings: dict[str, Any]


_ENVIRONMENTS: dict[str, Entry] = {
    "Acrobot-v1": Entry("jaxrl.envs.classic.acrobot:Acrobot", {}),
    "AdversarialBandit-v0": Entry("jaxrl.envs.bandits.adversarial:AdversarialBandit", {}),
    "Bandit-bsuite": Entry("jaxrl.envs.bsuite.bandit:Bandit", {}),
    "BernoulliBandit-v0": Entry("jaxrl.envs.bandits.stochastic:BernoulliBandit", {}),
    "BestArmIdentification-v0": Entry("jaxrl.envs.bandits.best_arm:BestArmIdentification", {}),
    "BetaBandit-v0": Entry("jaxrl.envs.bandits.stochastic:BetaBandit", {}),
    "ButtonGrid-v0": Entry("jaxrl.envs.tabular.button_grid:ButtonGrid", {}),
    "CartPole-bsuite": Entry("jaxrl.envs.bsuite.cartpole:CartPole", {}),
    "CartPole-v1": Entry("jaxrl.envs.classic.cartpole:CartPole", {}),
    "CartPoleContinuous-v0": Entry("jaxrl.envs.classic.cartpole_continuous:CartPoleContinuous", {}),
    "CartPoleSwingup-bsuite": Entry("jaxrl.envs.bsuite.cartpole_swingup:CartPoleSwingup", {}),
    "CartPoleSwingUp-v0": Entry("jaxrl.envs.classic.cartpole_swing_up:CartPoleSwingUp", {}),
    "Catch-bsuite": Entry("jaxrl.envs.bsuite.catch:Catch", {}),
    "Chain-v0": Entry("jaxrl.envs.tabular.chain:Chain", {}),
    "CliffWalking-v1": Entry("jaxrl.envs.tabular.cliff_walking:CliffWalking", {}),
    "CliffWalkingSlippery-v1": Entry("jaxrl.envs.tabular.cliff_walking:CliffWalking", {"slippery": True}),
    "CombinationLock-v0": Entry("jaxrl.envs.tabular.combination_lock:CombinationLock", {}),
    "ContextualLinearBandit-v0": Entry("jaxrl.envs.bandits.linear:ContextualLinearBandit", {}),
    "CoupledRestlessCapacity-v0": Entry("jaxrl.envs.bandits.coupled:Capacity", {}),
    "CoupledRestlessInterventions-v0": Entry("jaxrl.envs.bandits.coupled:Interventions", {}),
    "CoupledRestlessMatching-v0": Entry("jaxrl.envs.bandits.coupled:Matching", {}),
    "CoupledRestlessPath-v0": Entry("jaxrl.envs.bandits.coupled:Path", {}),
    "Darkroom-v0": Entry("jaxrl.envs.tabular.darkroom:Darkroom", {}),
    "DeepSea-bsuite": Entry("jaxrl.envs.bsuite.deep_sea:DeepSea", {}),
    "DeepSea-v0": Entry("jaxrl.envs.bsuite.deep_sea:DeepSea", {"observation": "index"}),
    "DeepSeaStochastic-bsuite": Entry("jaxrl.envs.bsuite.deep_sea:DeepSeaStochastic", {}),
    "DelayedChain-v0": Entry("jaxrl.envs.tabular.delayed_chain:DelayedChain", {}),
    "DigitsBandit-bsuite": Entry("jaxrl.envs.bsuite.digits_bandit:DigitsBandit", {}),
    "DiscountingChain-bsuite": Entry("jaxrl.envs.bsuite.discounting_chain:DiscountingChain", {}),
    "Discrete2D-v0": Entry("jaxrl.envs.tabular.discrete_2d:Discrete2D", {}),
    "DoublePendulum-v0": Entry("jaxrl.envs.classic.double_pendulum:DoublePendulum", {}),
    "DriftingBandit-v0": Entry("jaxrl.envs.bandits.nonstationary:DriftingBandit", {}),
    "DuelingBandit-v0": Entry("jaxrl.envs.bandits.dueling:DuelingBandit", {}),
    "Fishery-v0": Entry("jaxrl.envs.classic.fishery:Fishery", {}),
    "FrozenLake-v1": Entry("jaxrl.envs.tabular.frozen_lake:FrozenLake", {}),
    "FrozenLake8x8-v1": Entry("jaxrl.envs.tabular.frozen_lake:FrozenLake", {"rows": 8, "columns": 8}),
    "Garnet-v0": Entry("jaxrl.envs.tabular.garnet:Garnet", {}),
    "GaussianBandit-v0": Entry("jaxrl.envs.bandits.stochastic:GaussianBandit", {}),
    "HeavyTailedBandit-v0": Entry("jaxrl.envs.bandits.stochastic:HeavyTailedBandit", {}),
    "LinearBandit-v0": Entry("jaxrl.envs.bandits.linear:LinearBandit", {}),
    "MemoryLength-bsuite": Entry("jaxrl.envs.bsuite.memory_chain:MemoryLength", {}),
    "MemorySize-bsuite": Entry("jaxrl.envs.bsuite.memory_chain:MemorySize", {}),
    "MountainCar-bsuite": Entry("jaxrl.envs.bsuite.mountain_car:MountainCar", {}),
    "MountainCar-v0": Entry("jaxrl.envs.classic.mountain_car:MountainCar", {}),
    "MountainCarContinuous-v0": Entry("jaxrl.envs.classic.mountain_car_continuous:MountainCarContinuous", {}),
    "OpenGrid-v0": Entry("jaxrl.envs.tabular.proc_maze:OpenGrid", {}),
    "PanFlute-v0": Entry("jaxrl.envs.tabular.pan_flute:PanFlute", {}),
    "Pendulum-v1": Entry("jaxrl.envs.classic.pendulum:Pendulum", {}),
    "PiecewiseBandit-v0": Entry("jaxrl.envs.bandits.nonstationary:PiecewiseBandit", {}),
    "PointMass-v0": Entry("jaxrl.envs.classic.point_mass:PointMass", {}),
    "ProcMaze-v0": Entry("jaxrl.envs.tabular.proc_maze:ProcMaze", {}),
    "Reacher-v0": Entry("jaxrl.envs.classic.reacher:Reacher", {}),
    "RestlessBandit-v0": Entry("jaxrl.envs.bandits.restless:RestlessBandit", {}),
    "RiverSwim-v0": Entry("jaxrl.envs.tabular.river_swim:RiverSwim", {}),
    "SixArms-v0": Entry("jaxrl.envs.tabular.six_arms:SixArms", {}),
    "SparseLinearBandit-v0": Entry("jaxrl.envs.bandits.linear:SparseLinearBandit", {}),
    "SwitchingBandit-v0": Entry("jaxrl.envs.bandits.nonstationary:SwitchingBandit", {}),
    "Taxi-v4": Entry("jaxrl.envs.tabular.taxi:Taxi", {}),
    "TwoGoalGrid-v0": Entry("jaxrl.envs.tabular.two_goal_grid:TwoGoalGrid", {}),
    "TwoSidedChain-v0": Entry("jaxrl.envs.tabular.two_sided_chain:TwoSidedChain", {}),
    "TwoStepTree-v0": Entry("jaxrl.envs.tabular.two_step_tree:TwoStepTree", {}),
    "UmbrellaDistract-bsuite": Entry("jaxrl.envs.bsuite.umbrella_chain:Umbrella", {"n_distractor": 100}),
    "UmbrellaLength-bsuite": Entry("jaxrl.envs.bsuite.umbrella_chain:Umbrella", {}),
    "WindyGridworld-v0": Entry("jaxrl.envs.tabular.windy_gridworld:WindyGridworld", {}),
    "WindyWalk-v0": Entry("jaxrl.envs.tabular.windy_walk:WindyWalk", {}),
}

# The modules of jaxrl.algos, and the action spaces of those that learn on any environment with such a space.
_ALGORITHMS: dict[str, tuple[str, ...]] = {
    "a2c": ("Discrete", "MultiDiscrete", "Box"),
    "alphazero": ("Discrete",),
    "apg": ("Box",),
    "c51": ("Discrete",),
    "crossq": ("Box",),
    "ddpg": ("Box",),
    "dpt": (),
    "dqn": ("Discrete",),
    "dyna_q": (),
    "epsilon_greedy": (),
    "evolution": ("Discrete", "MultiDiscrete", "Box"),
    "exp3": (),
    "gorp": (),
    "iqn": ("Discrete",),
    "lin_ts": (),
    "lin_ucb": (),
    "nonstationary_ucb": (),
    "ppo": ("Discrete", "MultiDiscrete", "Box"),
    "ppo_rnn": ("Discrete", "MultiDiscrete", "Box"),
    "pqn": ("Discrete",),
    "props": ("Discrete", "MultiDiscrete", "Box"),
    "psrl": (),
    "q_learning": (),
    "qr_dqn": ("Discrete",),
    "r_max": (),
    "rainbow": ("Discrete",),
    "reinforce": ("Discrete", "MultiDiscrete", "Box"),
    "rnd": ("Discrete", "MultiDiscrete", "Box"),
    "sac": ("Discrete", "Box"),
    "sarsa": (),
    "sqirl": (),
    "stream_ac": ("Discrete", "MultiDiscrete", "Box"),
    "stream_q": ("Discrete", "Box"),
    "stream_td": (),
    "successive_elimination": (),
    "td3": ("Box",),
    "thompson": (),
    "ucb": (),
    "ucb_vi": (),
    "whittle": (),
}


def make(id: str, **settings: Any) -> tuple[Any, Any]:
    """`(env, params)` of a registered id: the static environment and its default, strongly typed parameters.

    `settings` are the environment's static settings. Raises ValueError for an unknown id (naming the nearest) or
    setting.
    """
    entry = _lookup(id, _ENVIRONMENTS, "environment")
    cls: Any = _load(entry.target) if isinstance(entry.target, str) else entry.target
    is_class = dataclasses.is_dataclass(cls)  # a factory function takes what it takes
    allowed = [f.name for f in dataclasses.fields(cls) if f.init and f.name != "id"] if is_class else list(settings)
    for name in settings:
        if name not in allowed:
            raise ValueError(f"{id} has no static setting {name!r}; it has {', '.join(allowed) or 'none'}.")
    env = cls(**{**entry.settings, **settings, "id": id})
    return env, env.default_params


def register(id: str, target: str | Callable[..., Any], **settings: Any) -> None:
    """Add an environment: `target` is a class or "module:Class". Raises ValueError for an id in other use."""
    entry = Entry(target, settings)
    if _ENVIRONMENTS.get(id, entry) != entry:
        raise ValueError(f"{id!r} is registered already, as {_ENVIRONMENTS[id].target}; choose another id.")
    _ENVIRONMENTS[id] = entry


def list_envs(pattern: str = "*") -> list[str]:
    """Registered ids, sorted; `pattern` is a shell pattern or a part of the name, case-insensitive."""
    wanted = pattern.lower() if any(c in pattern for c in "*?[") else f"*{pattern.lower()}*"
    return sorted(id for id in _ENVIRONMENTS if fnmatch.fnmatch(id.lower(), wanted))


def list_algos() -> list[str]:
    """Names of the algorithms, sorted."""
    return sorted(_ALGORITHMS)


def get_algo(name: str) -> ModuleType:
    """The module of an algorithm. Raises ValueError for an unknown name (naming the nearest)."""
    _lookup(name, _ALGORITHMS, "algorithm")
    return importlib.import_module(f"jaxrl.algos.{name}")


def algo_actions(name: str) -> tuple[str, ...]:
    """The kinds of action space in which a general algorithm acts; none for one that is for tables or arms."""
    _lookup(name, _ALGORITHMS, "algorithm")
    return _ALGORITHMS[name]


def algos_for(action_space: Any) -> list[str]:
    """Names of the general algorithms that act in spaces of this kind, sorted."""
    kinds = {cls.__name__ for cls in type(action_space).__mro__}
    return sorted(name for name, spaces in _ALGORITHMS.items() if kinds & set(spaces))


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _lookup(name: str, table: dict[str, Any], kind: str) -> Any:
    if name in table:
        return table[name]
    folded = {known.lower(): known for known in table}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    hint = f" Did you mean {folded[near[0]]!r}?" if near else ""
    listing = "jaxrl envs" if kind == "environment" else "jaxrl algos"
    raise ValueError(f"Unknown {kind} {name!r}.{hint} `{listing}` lists all {len(table)}.")


class Tuned(NamedTuple):
    """Settings known to work, as far as they differ from an algorithm's defaults."""

    total_steps: int
    config: dict[str, Any]
    hyper: dict[str, Any]


def tuned(algo: str, env_id: str) -> Tuned | None:
    """What `jaxrl/tuned.toml` says of a pair, or None."""
    import tomllib
    from pathlib import Path

    table = tomllib.loads((Path(__file__).parent / "tuned.toml").read_text())
    row = table.get(algo, {}).get(env_id)
    if row is None:
        return None
    # TOML has arrays where our configs, being hashable, have tuples.
    config = {k: tuple(v) if isinstance(v, list) else v for k, v in row.get("config", {}).items()}
    return Tuned(row["total_steps"], config, row.get("hyper", {}))
