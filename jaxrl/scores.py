"""The scores of record: for every environment id what random actions get, a reference, and what our learners got.

`scores.toml` beside this file holds them; `make baselines` writes it (experiments/scores). Usage:

    scores.of("CartPole-v1").random.value            # 22.0
    scores.normalized("CartPole-v1", [500.0, 260.0]) # 0 is random's return, 1 the reference's

A score is the return of an episode; of electric motors it is the average reward of a step. There a violated limit costs
about 10 once and ends the episode, so that a controller that follows its references for 1,000 steps may have a lower
return than one that fails in its tenth step.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import tomllib
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from jaxrl import registry
from jaxrl.environment import Environment
from jaxrl.wrappers import unwrapped

FILE = Path(__file__).with_name("scores.toml")


@dataclasses.dataclass(frozen=True)
class Score:
    """A score: the undiscounted return of full episodes, or the average reward (`Record.average`); of several agents
    the mean of theirs.
    """

    value: float  # mean over episodes; of our learners the IQM over seeds
    interval: tuple[float, float] | None  # 95 %, over episodes or seeds; None: exact or published
    what: str  # who got it: "random", "ppo", or what the reference is
    about: dict[str, Any]  # all else that the row says: episodes, steps, seeds, seconds, source, date


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known of an id; None: nothing of that kind."""

    id: str
    cap: int  # steps after which an episode was cut, if the task did not end it before
    random: Score
    reference: Score | None  # the best there is, or who is accepted as good
    ours: Score | None  # the best of our learners
    average: bool = False  # scores are average rewards: returns of episodes by their lengths, each summed

    @property
    def top(self) -> Score | None:
        """What `normalized` counts as 1: the reference, or where there is none the best of ours, if it has learned."""
        return self.reference or (self.ours if self.learned else None)

    @property
    def learned(self) -> bool:
        """Whether ours is above random's, with intervals apart."""
        if self.ours is None or self.ours.interval is None or self.random.interval is None:
            return False
        return self.ours.interval[0] > self.random.interval[1]


def ids() -> tuple[str, ...]:
    """All ids that have a record."""
    return tuple(_table())


def of(id: str) -> Record:
    """The record of an id. Raises ValueError for an id without one, naming a near one."""
    table = _table()
    if id not in table:
        near = difflib.get_close_matches(str(id), table, 1)
        raise ValueError(f"No score of record for {id!r}{f'; there is one for {near[0]!r}' if near else ''}.")
    row = table[id]
    kinds = [_score(row.get(kind), kind) for kind in ("random", "reference", "ours")]
    return Record(id, row["cap"], *kinds, average=row.get("average", False))  # type: ignore


def record_of(env: Environment, env_params: Any) -> Record | None:
    """The record of a task as `make(env.id)` has it; None for other settings or params, and for an id without one."""
    if env.id not in _table() or not registry.is_available(env.id):
        return None
    env = unwrapped(env)
    usual, usual_params = registry.make(env.id)
    same = jax.tree.structure(env_params) == jax.tree.structure(usual_params) and all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(env_params), jax.tree.leaves(usual_params), strict=True)
    )
    return of(env.id) if env == usual and same else None


def normalized(id: str, returns: Any, lengths: Any = None) -> Float[np.ndarray, "..."]:
    """Returns of any shape, 0 being the mean return of random actions and 1 that of `of(id).top`.

    Args:
        lengths: steps of these episodes, or their mean where `returns` are means; for ids whose scores are average
            rewards, and not looked at for others.

    Raises ValueError for an id without a record, for one of which nothing above random's return is known, and without
    lengths where they are needed.
    """
    record = of(id)
    if record.average:
        if lengths is None:
            raise ValueError(f"{id}: its scores are average rewards, which need the lengths of the episodes, too.")
        if np.shape(lengths) not in ((), np.shape(returns)) or np.any(np.asarray(lengths) <= 0):
            raise ValueError(
                f"{id}: lengths of shape {np.shape(lengths)}, at least {np.min(lengths)}, for returns of shape "
                f"{np.shape(returns)}; they must be as many, and above 0."
            )
    if record.top is None:
        tried = "" if record.ours is None else f", and {record.ours.what}'s, which is not above it"
        raise ValueError(f"{id}: only random's score is on record{tried}, so there is nothing that is 1.")
    span = record.top.value - record.random.value
    if span <= 0:
        raise ValueError(f"{id}: random actions get as much as {record.top.what}, {record.top.value:g}.")
    values = np.asarray(returns, float) / (np.asarray(lengths, float) if record.average else 1)
    return np.asarray((values - record.random.value) / span)


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(FILE.read_text())


def _score(row: dict[str, Any] | None, kind: str) -> Score | None:
    if row is None:
        return None
    about = {name: value for name, value in row.items() if name not in ("value", "interval", "what")}
    interval = tuple(row["interval"]) if "interval" in row else None
    return Score(float(row["value"]), interval, row.get("what", kind), about)  # type: ignore[arg-type]
