"""What an algorithm learns from, as its file or the table of algorithms declares it."""

from __future__ import annotations

from typing import NamedTuple


class Learns(NamedTuple):
    """What an algorithm learns from, as the command line and the table of algorithms need to know it.

    `jaxrl/algos/ids.py` has it beside the name of each algorithm; a file outside jaxrl defines `LEARNS = Learns(...)`.
    """

    acts: bool = True
    """It learns from steps that it takes in an environment; False: from a dataset alone."""
    data: str = ""
    """What it learns from a dataset, the argument `replay` of its `make`: single "transitions", or "windows" of as many
    consecutive ones as its function `window(config)` returns, or "pairs" of segments with labels, of a file of
    preferences (`preferences.stored`). "demonstrations" are needed in addition to other steps;
    the command line has no option for them, they are given in Python only. "": it takes no dataset."""
    model: str = ""
    """The function that turns a fitted ensemble into the argument `model` of its `make`, which it needs with a dataset:
    "predictor" of `jaxrl.data.dynamics`, or "model_of" of the algorithm's file, called with the ensemble, the dataset
    and the task's termination function. "": it takes no model."""
    priorities: bool = False
    """With `Config.prioritised` it draws a dataset's steps by priorities."""
    goals: bool = False
    """With `Config.outcome` "goal" it learns from a dataset with hindsight goals."""
    rewards: bool = False
    """Its policy is inferred from the rewards of the dataset, so evaluation needs the dataset, too."""
    expert: bool = False
    """It needs somebody who acts beside it, the argument `expert` of its `make` (`jaxrl.actors`)."""


DATA = ("", "transitions", "windows", "pairs", "demonstrations")
"""Values of `Learns.data`."""

MODELS = ("", "predictor", "model_of")
"""Values of `Learns.model`."""


class AlgorithmEntry(NamedTuple):
    """The module of an algorithm below `jaxrl.algos`, the action spaces that it takes, and what it learns from."""

    module: str
    actions: tuple[str, ...]
    learns: Learns = Learns()
