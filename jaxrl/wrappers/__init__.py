"""Environments made from environments: other actions, other observations, a little memory within the episode.

A wrapper is an `Environment`: frozen, hashable, stepped and vectorised as any other, with the wrapped one's id and
params (`StickyActions`, `FromStates`, `Trials` add leaves). What must outlive an episode, running statistics say,
belongs to the learner's state instead. Where the wrapper remembers something, its state is a `WrapperState` (`Trials`
has a `TrialState`); otherwise it is the wrapped environment's own. Wrappers that add to the observation give a Dict;
`FlattenObservation` around them makes it one vector.

`base` is what all wrappers are; `actions` has `ClipAction`, `RescaleAction` and `StickyActions`; `memory` has
`FrameStack`, `ActionHistory`, `PreviousActionReward` and `VisitBonus`; `vectors` has `flatten` and
`FlattenObservation` and `FilterObservation`; `agents` has `agents_as_slots`; `starts` has `FromStates`; `trials` has
`Trials`.
"""

from jaxrl.wrappers.actions import ClipAction, RescaleAction, StickyActions, StickyParams
from jaxrl.wrappers.agents import AgentVectorEnv, Team, agents_as_slots
from jaxrl.wrappers.base import Wrapper, WrapperState
from jaxrl.wrappers.memory import ActionHistory, FrameStack, PreviousActionReward, VisitBonus
from jaxrl.wrappers.starts import FromStates, StartParams
from jaxrl.wrappers.trials import TrialParams, Trials, TrialState
from jaxrl.wrappers.vectors import RESERVED, FilterObservation, FlattenObservation, flatten, flatten_space

__all__ = [
    "RESERVED",
    "ActionHistory",
    "AgentVectorEnv",
    "ClipAction",
    "FilterObservation",
    "FlattenObservation",
    "FrameStack",
    "FromStates",
    "PreviousActionReward",
    "RescaleAction",
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
]
