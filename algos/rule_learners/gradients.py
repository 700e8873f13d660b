"""Learning an update rule by gradients: what `jaxrl meta-train RULE --tasks ENV` runs.

It has `Config`, `Hyper` and `make` as an algorithm has, so that runs, checkpoints, exact resume, sweeps and curves work
in the same way, but it is not in `jaxrl.list_algos()`. A step is a meta-update. The method is
`jaxrl/meta/lifetimes.py`, the rules are in `algos/meta/`; `strategies.py` learns the same rules by evolution
strategies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, shared
from jaxrl.algos.curricula import dr, groove
from jaxrl.algos.meta import lpg, lpo, policy_gradients, scheduled
from jaxrl.environment import Environment
from jaxrl.meta import stored
from jaxrl.meta.agent import AgentConfig
from jaxrl.meta.lifetimes import MetaConfig, MetaHyper, learner
from jaxrl.meta.rule import UpdateRule
from jaxrl.meta.stored import Stored

Hyper = MetaHyper
"""Dynamic settings; `CURRICULA` has the defaults of their field `curriculum`."""

NUMBERS = "policy_gradient", policy_gradients.rule, policy_gradients.RuleConfig
SCHEDULED = "scheduled", scheduled.rule, scheduled.RuleConfig
RULES: dict[str, tuple[str, Callable[[Any], UpdateRule], Callable[[Common], Any], type]] = {
    "lpg": ("lpg", lpg.rule, lambda c: lpg.RuleConfig(c.predictions, c.features or 256), lpg.RuleConfig),
    "ta_lpg": (
        "lpg",
        lpg.rule,
        lambda c: lpg.RuleConfig(c.predictions, c.features or 256, temporal=True),
        lpg.RuleConfig,
    ),
    "lpo": ("lpo", lpo.rule, lambda c: lpo.RuleConfig(c.features or 128), lpo.RuleConfig),
    "ta_lpo": ("lpo", lpo.rule, lambda c: lpo.RuleConfig(c.features or 128, temporal=True), lpo.RuleConfig),
    "a2c": (*NUMBERS[:2], lambda c: policy_gradients.RuleConfig(), NUMBERS[2]),
    "ppo": (*NUMBERS[:2], lambda c: policy_gradients.RuleConfig(clip_eps=0.2), NUMBERS[2]),
    "scheduled_a2c": (*SCHEDULED[:2], lambda c: scheduled.RuleConfig(c.features or 8), SCHEDULED[2]),
    "scheduled_ppo": (*SCHEDULED[:2], lambda c: scheduled.RuleConfig(c.features or 8, clip_eps=0.2), SCHEDULED[2]),
    "lpo_from_ppo": ("lpo", lpo.rule, lambda c: lpo.RuleConfig(c.features or 128, clip_eps=0.2), lpo.RuleConfig),
    "ta_lpo_from_ppo": (
        "lpo",
        lpo.rule,
        lambda c: lpo.RuleConfig(c.features or 128, temporal=True, clip_eps=0.2),
        lpo.RuleConfig,
    ),
}
"""For each rule: the kind of its file, the function from the settings of its network to the rule, these settings from a
`Common`, and their class. A2C and PPO have four numbers as weights (self-tuning actor-critic, Zahavy et al. 2020,
arXiv:2002.12928)."""


def entry_of(rule: str) -> tuple[str, Callable[[Any], UpdateRule], Callable[[Common], Any], type]:
    """The row of `RULES` for a name, or a new row for a rule of yours.

    The latter is a function, `module:name` or `file.py:name`, that returns an `UpdateRule`; it may take the settings of
    the rule's network, the dataclass `RuleConfig` of its module. Raises ValueError for any other word.
    """
    if rule in RULES:
        return RULES[rule]
    if ":" not in rule:
        raise ValueError(
            f"rule={rule!r}: choose one of {', '.join(RULES)}, or yours, MODULE:FUNCTION or FILE.py:FUNCTION."
        )
    rule_of, settings = stored.own_rule(rule)
    return rule, rule_of, lambda common: settings(), settings


CURRICULA: dict[str, Any] = {"dr": None, "groove": groove.Hyper(), "groove_exact": groove.Hyper()}
"""Curricula of the levels, each with its default settings, `hyper.curriculum`; dr has none."""


@dataclasses.dataclass(frozen=True)
class Common:
    """Static settings of a rule, its levels and its agents, for both methods of learning the rule."""

    rule: str = "lpg"  # lpg, ta_lpg, lpo, ta_lpo, those two _from_ppo, a2c, ppo, scheduled_a2c, scheduled_ppo or yours
    curriculum: str = "dr"  # levels are random (dr), or chosen by regret to A2C (groove) or to the best (groove_exact)
    buffer_size: int = 4000  # levels that are kept to choose among
    lifetimes: tuple[int, ...] = ()  # updates of an agent's life, uniform in (least, most); (): the level's `lifetime`
    features: int = 0  # width of the rule's network; 0: lpg 256 (its recurrent cell), lpo 128, scheduled rules 8
    predictions: int = 8  # of LPG, the size of y
    num_envs: int = 64  # environments of an agent
    num_steps: int = 20  # steps of each of them in a rollout
    num_epochs: int = 0  # an agent's passes over a rollout; 0: those that the rule's loss is made for, of PPO's ratio 4
    num_minibatches: int = 0  # 0: as many as passes, or fewer that divide the rollout
    hidden: tuple[int, ...] = ()  # widths of an agent's networks; (): a table
    activation: str = "relu"
    optimizer: str = "sgd"  # of the agents

    def __post_init__(self) -> None:
        entry_of(self.rule)
        if self.curriculum not in CURRICULA:
            raise ValueError(f"curriculum={self.curriculum!r}: choose one of {', '.join(CURRICULA)}.")
        if self.lifetimes and not (len(self.lifetimes) == 2 and 1 <= self.lifetimes[0] <= self.lifetimes[1]):
            raise ValueError(f"lifetimes={self.lifetimes}: the least and the most updates of a life, 1 or more.")
        counts = {name: getattr(self, name) for name in ("features", "num_epochs", "num_minibatches")}
        if min(counts.values()) < 0:
            raise ValueError(f"{', '.join(f'{name}={n}' for name, n in counts.items())}: 0 or more.")
        _ = self.agent  # raises for wrong settings of the agents

    @property
    def agent(self) -> AgentConfig:
        config = AgentConfig(self.num_envs, self.num_steps, 1, 1, self.hidden, self.activation, self.optimizer)
        _, rule_of, network_of, _ = entry_of(self.rule)
        config = config.in_passes(self.num_epochs or rule_of(network_of(self)).passes)
        return dataclasses.replace(config, num_minibatches=self.num_minibatches or config.num_minibatches)


@dataclasses.dataclass(frozen=True)
class Config(Common):
    """Static settings: each value compiles its own program."""

    num_agents: int = 64  # agents that learn at once, each on another level
    num_updates: int = 5  # updates of each agent that the meta-gradient goes through
    at_once: int = 0  # agents whose gradients are computed at once, for memory; 0: all
    remat: bool | None = None  # recompute updates in the backward pass, for memory; None: by size, docs/meta.md

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.meta

    @property
    def meta(self) -> MetaConfig:
        return MetaConfig(self.num_agents, self.num_updates, at_once=self.at_once, remat=self.remat)


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Lives of `least` to `most` updates, both included."""

    least: int
    most: int

    def __call__(self, key: Array, level: Any) -> Array:
        return jax.random.randint(key, (), self.least, self.most + 1)


def levels_of(env: Environment) -> Callable[[Array, Any], Any]:
    """The level function `(key, params) -> level`: `env.generate`, or without one the params themselves."""
    kit = env.levels
    return _unchanged if kit is None or kit.generate is None else kit.generate


def _unchanged(key: Array, params: Any) -> Any:
    return params


def baseline() -> UpdateRule:
    """The rule that learned rules are compared with, as the antagonist in meta-training: A2C."""
    return policy_gradients.a2c_rule()


HAND_WRITTEN: dict[str, Callable[[], UpdateRule]] = {
    "a2c": policy_gradients.a2c_rule,
    "ppo": policy_gradients.ppo_rule,
    "dpo": lpo.dpo_rule,
}
"""Rules that learned ones are judged beside. Their weights are `policy_gradients.Numbers`."""


def with_settings(weights: policy_gradients.Numbers, **settings: float) -> policy_gradients.Numbers:
    """A hand-written rule's weights with other settings, in their usual units, as gamma=0.99."""
    made = policy_gradients.numbers(**settings)
    return weights.replace(**{name: getattr(made, name) for name in settings})


def arguments(env: Environment, config: Common) -> dict[str, Any]:
    """The arguments of `lifetimes.learner` and `strategies.strategy` for these settings."""
    _, rule_of, network_of, _ = entry_of(config.rule)
    level_fn = levels_of(env)
    regret = config.curriculum != "dr"
    curriculum = groove.make(level_fn, groove.Config(config.buffer_size)) if regret else dr.make(level_fn)
    best = env.levels.optimal_value if env.levels else None
    if config.curriculum == "groove_exact" and best is None:
        raise ValueError(f"curriculum='groove_exact': {env.id} knows no `optimal_value` of its levels; take groove.")
    return {
        "rule": rule_of(network_of(config)),
        "env": env,
        "curriculum": curriculum,
        "agent_config": config.agent,
        "antagonist": {"groove": baseline(), "groove_exact": best}.get(config.curriculum),
        "lifetime_fn": Uniform(*config.lifetimes) if config.lifetimes else None,
    }


@shared
def make(env: Environment, config: Config = Config()) -> Algorithm:
    """An Algorithm that learns `config.rule` on the levels that `env.generate` draws; without one on its params.

    Raises ValueError where neither the levels nor `config.lifetimes` say how long a life is.
    """
    made = learner(config=config.meta, **arguments(env, config))
    return made._replace(config=config, around=())  # `config` has all that `around` would say


def leave(config: Common, state: Any, folder: Path, provenance: dict[str, Any]) -> list[Path]:
    """Writes the learned rule into a run folder (`rule.npz`, for seeds `rule-0.npz` ...); returns the paths."""
    kind, _, network_of, _ = entry_of(config.rule)
    rules = {"rule.npz": state.weights}
    if state.step.ndim:
        rules = {f"rule-{i}.npz": jax.tree.map(lambda x, i=i: x[i], state.weights) for i in range(len(state.step))}
    for name, weights in rules.items():
        stored.save(folder / name, kind, network_of(config), weights, provenance)
    return [folder / name for name in rules]


def load(name: str | Path, own: str | None = None) -> Stored:
    """A learned rule of any kind, by its name in the library, the path of its file, or the folder of its run.

    Args:
        own: the function that makes a rule of yours, as `entry_of` takes it. Code is never imported because of the
            contents of a file, only because it is named here.

    Raises RuleFileError for a file that holds no such rule; the message says why.
    """
    path = Path(name) / "rule.npz" if Path(name).is_dir() else name
    kinds = {kind: (config_class, rule_of) for kind, rule_of, _, config_class in RULES.values()}
    if own is not None:
        kind, rule_of, _, config_class = entry_of(own)
        kinds[kind] = config_class, rule_of
    return stored.load(path, kinds)
