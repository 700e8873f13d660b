"""Wrappers: environments that change the actions, the observations, the starts or the memory of another one.

A wrapper is an `Environment`: frozen, hashable, stepped and vectorised as any other, with the id and params of the
wrapped environment (`StickyActions`, `FromStates`, `Trials`, `RewardMachine`, `Residual`, `LearnedReward` and attacks
add leaves to params). Data that must outlive an episode, such as running statistics, belongs into the learner's state
instead. A wrapper with a memory has a `WrapperState` (`Trials` a `TrialState`); the others use the state of the wrapped
environment. Wrappers that add to the observation return a Dict; `FlattenObservation` around them makes it one vector.

`base` has the base class; `actions` has `ClipAction`, `RescaleAction`, `StickyActions` and `ActionRepeat`; `memory` has
`FrameStack`, `ActionHistory`, `PreviousActionReward` and `VisitBonus`; `vectors` has `flatten`, `FlattenObservation`,
`FilterObservation` and `Observed`; `agents` has `agents_as_slots`; `by_name` has
`wrapped`, which puts some of them around a task by words; `starts` has `FromStates`; `trials` has `Trials`;
`attacks` has `ObservationAttack`, `ActionAttack` and `DynamicsAttack`, `directed_attack` the attacker's task,
`DirectedAttack`; `reward_machine` has `RewardMachine`; `residual` has `Residual`; `learned_reward` has `LearnedReward`.
"""

from jaxrl.wrappers.actions import ActionRepeat, ClipAction, RescaleAction, StickyActions, StickyParams
from jaxrl.wrappers.agents import AgentVectorEnv, Team, agents_as_slots
from jaxrl.wrappers.attacks import (
    ActionAttack,
    ActionDifference,
    AttackParams,
    DynamicsAttack,
    LeastValue,
    ObservationAttack,
)
from jaxrl.wrappers.base import Wrapper, WrapperState
from jaxrl.wrappers.by_name import unwrapped, wrapped
from jaxrl.wrappers.directed_attack import DirectedAttack
from jaxrl.wrappers.learned_reward import LearnedReward, LearnedRewardParams
from jaxrl.wrappers.memory import ActionHistory, FrameStack, PreviousActionReward, VisitBonus
from jaxrl.wrappers.residual import Residual, ResidualParams
from jaxrl.wrappers.reward_machine import Machine, RewardMachine, machine_of
from jaxrl.wrappers.starts import FromStates, StartParams
from jaxrl.wrappers.trials import TrialParams, Trials, TrialState
from jaxrl.wrappers.vectors import RESERVED, FilterObservation, FlattenObservation, Observed, flatten, flatten_space

__all__ = [
    "RESERVED",
    "ActionAttack",
    "ActionDifference",
    "ActionHistory",
    "ActionRepeat",
    "AgentVectorEnv",
    "AttackParams",
    "ClipAction",
    "DirectedAttack",
    "DynamicsAttack",
    "FilterObservation",
    "FlattenObservation",
    "FrameStack",
    "FromStates",
    "LearnedReward",
    "LearnedRewardParams",
    "LeastValue",
    "Machine",
    "ObservationAttack",
    "Observed",
    "PreviousActionReward",
    "RescaleAction",
    "Residual",
    "ResidualParams",
    "RewardMachine",
    "StartParams",
    "StickyActions",
    "StickyParams",
    "Team",
    "TrialParams",
    "TrialState",
    "Trials",
    "VisitBonus",
    "Wrapper",
    "WrapperState",
    "agents_as_slots",
    "flatten",
    "flatten_space",
    "machine_of",
    "unwrapped",
    "wrapped",
]
