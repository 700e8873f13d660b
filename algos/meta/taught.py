"""An agent that a learned rule teaches, as an algorithm of the command line: `jaxrl train ppo ENV --rule NAME`.

The agent is `jaxrl/meta/agent.py`: an actor and a critic with learning rates of their own, whose targets and loss are
the rule's, and whose learning rates are those of `Hyper` times the rule's factors. `Config` names the rule and has the
agent's settings, by default networks of two layers and PPO's four passes over a rollout. Rules depend on the position
in a life, so `Hyper.lifetime` says how many updates there will be; the command takes it from `--total-steps`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxtyping import Array

from jaxrl.algorithm import Algorithm, shared
from jaxrl.algos.rule_learners.gradients import load
from jaxrl.environment import Environment, pytree
from jaxrl.meta.agent import AgentConfig, AgentHyper, AgentState
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(AgentConfig):
    """Static settings: each value compiles its own program."""

    num_envs: int = 16  # environments stepped together
    num_steps: int = 20  # steps of each in a rollout
    num_epochs: int = 4  # passes over a rollout
    num_minibatches: int = 4
    hidden: tuple[int, ...] = (64, 64)  # widths of actor and critic; (): a table, or one matrix
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS; sgd at 40 and 4 for tables
    rule: str = ""  # a rule by its name, file or run folder
    rule_function: str = ""  # FILE.py:FUNCTION that makes the rule, where it is yours

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rule:
            raise ValueError("rule='': an agent learns by a rule; `jaxrl zoo` lists those that come with jaxrl.")


@pytree
class Hyper(AgentHyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: float = 3e-3  # of the actor, times the rule's factor
    critic_learning_rate: float = 3e-3  # of the rule's heads, times the rule's factor


@shared
def make(env: Environment | VectorEnv, config: Config) -> Algorithm:
    """An agent on `env` that learns by `config.rule`. `Hyper.rule` may hold other weights of the same rule.

    Raises RuleFileError for a rule that there is not, and ValueError for an action space that it does not support.
    """
    made = load(config.rule, config.rule_function or None).agent(env, config)

    def init(key: Array, hyper: AgentHyper | None = None, env_params: Any = None) -> AgentState:
        return made.init(key, Hyper() if hyper is None else hyper, env_params)

    return made._replace(hyper=Hyper, init=init)
