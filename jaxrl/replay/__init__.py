"""Replay buffers as pure functions over a pytree state: `init`, `add`, `sample` and, with priorities, `update`.

`ring` is the plain one; `prioritised` and `sequence` stand on it.
"""

from jaxrl.replay.prioritised import PrioritisedRing, prioritised
from jaxrl.replay.ring import Replay, Ring, uniform
from jaxrl.replay.sequence import prioritised_sequence, sequence

__all__ = ["PrioritisedRing", "Replay", "Ring", "prioritised", "prioritised_sequence", "sequence", "uniform"]
