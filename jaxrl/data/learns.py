"""What an algorithm learns from, as its file or the table of algorithms declares it."""

from __future__ import annotations

from typing import NamedTuple


class Learns(NamedTuple):
    """What an algorithm learns from. The command line goes by it, and so does the table of algorithms.

    Beside the name of each of our algorithms in `jaxrl/algos/ids.py`; a file of yours says `LEARNS = Learns(...)`.
    """

    acts: bool = True
    """From steps that it takes itself; without it from a dataset alone."""
    data: str = ""
    """From a dataset, which is the argument `replay` of its `make`: from single "transitions", or from "windows" of
    consecutive ones, as many as its function `window(config)` says. "demonstrations" are needed beside other steps, for
    which there is no flag: they are given in Python alone. "": from none."""
    model: str = ""
    """With a dataset: also from a model of its steps, which is the argument `model` of its `make`. The word is the
    function that makes it of a fitted ensemble: "predictor" of `jaxrl.data.dynamics`, or "model_of" of the algorithm's
    file, called with the ensemble, the dataset and the task's ends. "": from none."""
    priorities: bool = False
    """With `Config.prioritised` a dataset's steps are drawn by priorities."""
    goals: bool = False
    """With `Config.outcome` "goal" a dataset's goals are told in hindsight."""
    rewards: bool = False
    """What is deployed is for the rewards of the dataset, so that it is needed to judge the policy, too."""


DATA = ("", "transitions", "windows", "demonstrations")
"""Values of `Learns.data`."""

MODELS = ("", "predictor", "model_of")
"""Values of `Learns.model`."""


class AlgorithmEntry(NamedTuple):
    """The module of an algorithm below `jaxrl.algos`, the action spaces that it takes, and what it learns from."""

    module: str
    actions: tuple[str, ...]
    learns: Learns = Learns()
