"""Replay memories as pure functions over a pytree state: `init`, `add`, `sample` and, with priorities, `update`.

`ring` is the plain one, `prioritised` and `sequence` stand on it; `off_policy` is the loop of gradient steps on what a
memory holds, `replay_ratio` an algorithm with another number of them.
"""

from jaxrl.replay.prioritised import PrioritisedRing, prioritised
from jaxrl.replay.ring import Replay, Ring, uniform
from jaxrl.replay.sequence import prioritised_sequence, sequence

__all__ = ["PrioritisedRing", "Replay", "Ring", "prioritised", "prioritised_sequence", "sequence", "uniform"]
