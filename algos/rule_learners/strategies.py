"""Learning an update rule by evolution strategies: what `jaxrl meta-train RULE --by strategies --tasks ENV` runs.

It has `Config`, `Hyper` and `make` as an algorithm has, but it is not in `jaxrl.list_algos()`. The settings of rule,
levels and agents are those of `gradients.py`, and the learned rule is written to the same files. The method is
`jaxrl/meta/strategies.py`.
"""

from __future__ import annotations

import dataclasses

from jaxrl.algorithm import Algorithm, shared
from jaxrl.algos.rule_learners import gradients
from jaxrl.environment import Environment
from jaxrl.meta.strategies import StrategyConfig, StrategyHyper, strategy

Hyper = StrategyHyper
"""Dynamic settings; `CURRICULA` has the defaults of their field `curriculum`."""

CURRICULA = gradients.CURRICULA

leave = gradients.leave


@dataclasses.dataclass(frozen=True)
class Config(gradients.Common):
    """Static settings: each value compiles its own program."""

    num_pairs: int = 64  # pairs of antithetic rules, each pair on another level
    at_once: int = 0  # pairs that live at once; 0: all, but an eighth of them on CPUs. Short lives go together

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.meta

    @property
    def meta(self) -> StrategyConfig:
        return StrategyConfig(self.num_pairs, self.at_once)


@shared
def make(env: Environment, config: Config = Config()) -> Algorithm:
    """An Algorithm that learns `config.rule` on the levels that `env.generate` draws; without one on its params.

    Raises ValueError where neither the levels nor `config.lifetimes` say how long a life is.
    """
    made = strategy(config=config.meta, **gradients.arguments(env, config))
    return made._replace(config=config, around=())  # `config` has all that `around` would say
