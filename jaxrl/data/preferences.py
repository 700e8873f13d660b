"""Preferences between segments: pairs of parts of episodes, each with a label that says which of the two is better.

A `Preferences` holds the steps of a dataset, the rows at which the two segments of each pair begin, one length for all
segments, and labels. A label is the probability that the **second** segment of a pair is the better one: 1, 0, or 0.5
for a tie. Segments lie within episodes, so the task may end in the last step of one and nowhere else.

Labels are made from a score of each segment (`labelled`), of which there are two kinds:

| score | | what it needs |
|---|---|---|
| return | r[0] + gamma r[1] + ... | rewards |
| minus the regret | return + gamma^L V(s[L]) - V(s[0]) | rewards, and values V of states |

Knox et al. (2022), "Models of human preference for learning reward functions": regret compares a segment with the best
that could have been done from its first state, so a segment that leads to a good state is preferred to one that does
not, whatever was paid on the way. V is to be the optimal value: exact for tables, of a learned critic elsewhere, and
labels by a critic are as right as the critic is. The steps keep the true rewards, so that what was learned can be
judged by them; what learners draw (`stored`) has none.

Who labels may err (`Teacher`), in ways that Lee et al. (2021), "B-Pref: benchmarking preference-based reinforcement
learning", simulate: by chance where scores are near (Bradley and Terry 1952), by mistakes, and by calling small
differences a tie. `tree_labels` compares without a score, by the order of a designer's factors (HERON).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from jaxrl.data import datasets
from jaxrl.data.datasets import Dataset, Episodes, to_unit
from jaxrl.environment import pytree
from jaxrl.replay.ring import Replay, take
from jaxrl.spaces import Space


@pytree(static=("length",))
class Preferences:
    """n pairs of segments of one dataset."""

    steps: Dataset
    first: Any  # (n, 2) int32, rows of `steps` at which the two segments of a pair begin
    label: Any  # (n,) float, the probability that the second is the better one
    length: int  # steps of each segment

    @property
    def size(self) -> int:
        """The number of pairs."""
        return self.label.shape[0]


@dataclasses.dataclass(frozen=True)
class Teacher:
    """How labels are made from scores; without an argument the better segment is always preferred."""

    temperature: float = 0.0
    """Labels are drawn with probability sigmoid(difference / temperature); 0: the sign of the difference."""
    mistakes: float = 0.0
    """Probability with which a label is then turned round."""
    ties: float = 0.0
    """Differences up to this are labelled 0.5."""

    def __post_init__(self) -> None:
        for name in ("temperature", "ties"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name}={getattr(self, name)}: it must be finite and at least 0.")
        if not 0 <= self.mistakes < 0.5:
            raise ValueError(f"mistakes={self.mistakes}: it must be a probability below 0.5.")


NOISES = {
    "none": Teacher(),
    "logistic": Teacher(temperature=1.0),
    "mistakes": Teacher(mistakes=0.1),
    "human": Teacher(temperature=1.0, mistakes=0.1, ties=0.1),
}
"""Teachers by name. The numbers of "human" are ours, in units of the score."""


# ---- what a set of preferences must be


def check(preferences: Preferences) -> None:
    """Raise ValueError for no pair at all, labels outside [0, 1], and segments that are not within one episode."""
    first, label, length = np.asarray(preferences.first), np.asarray(preferences.label), preferences.length
    if first.ndim != 2 or first.shape[1] != 2 or not np.issubdtype(first.dtype, np.integer):
        raise ValueError(f"first is {first.dtype}{list(first.shape)}: it must be two integers a pair, the first rows.")
    if label.shape != first.shape[:1]:
        raise ValueError(f"{label.shape[0] if label.ndim else 'a single'} labels of {len(first)} pairs: one a pair.")
    if not len(first):
        raise ValueError("there is no pair of segments to learn from.")
    wrong = ~((label >= 0) & (label <= 1))  # also of NaN
    if wrong.any():
        raise ValueError(
            f"{int(wrong.sum())} of {len(label)} labels are outside 0 to 1, as {label[wrong][0]:g}: a label is the "
            "probability that the second segment is the better one."
        )
    if length < 1:
        raise ValueError(f"segments of length {length}: it must be at least 1.")
    inside = np.isin(first, starts(preferences.steps, length))
    if not inside.all():
        raise ValueError(
            f"{int((~inside).sum())} of {inside.size} segments of {length} steps are not within one episode, as the "
            f"one that begins at row {first[~inside][0]} of {preferences.steps.size}."
        )


def of_segments(one: Sequence[Dataset], two: Sequence[Dataset], label: Sequence[float]) -> Preferences:
    """The preferences of pairs that are at hand as separate segments, such as those that people have compared.

    Raises ValueError as `check` does, for unequal numbers of them, and for segments of different lengths.
    """
    if not len(one) == len(two) == len(label):
        raise ValueError(f"{len(one)} first segments, {len(two)} second ones, {len(label)} labels: one each a pair.")
    if not len(one):
        raise ValueError("there is no pair of segments to learn from.")
    segments = [segment for pair in zip(one, two, strict=True) for segment in pair]
    length = same_length(np.array([segment.size for segment in segments]))
    first = (np.arange(len(segments)) * length).reshape(-1, 2).astype(np.int32)
    found = Preferences(datasets.joined(*segments), first, np.asarray(label, np.float32), length)
    check(found)
    return found


def same_length(length: Int[np.ndarray, "*any"]) -> int:
    """The length that all segments have. Raises ValueError where they differ."""
    if np.min(length) != np.max(length):
        raise ValueError(
            f"segments of different lengths, {np.min(length)} to {np.max(length)}: cut them to one length."
        )
    return int(np.min(length))


# ---- queries: which segments are compared


def starts(dataset: Dataset, length: int) -> Int[np.ndarray, " rows"]:
    """The rows from which `length` steps of one episode go on."""
    episodes = Episodes(dataset)
    end = (episodes.first + episodes.length)[episodes.of_step()]
    return np.flatnonzero(np.arange(dataset.size) + length <= end).astype(np.int32)


def uniform_queries(rng: np.random.Generator, dataset: Dataset, n: int, length: int) -> Int[np.ndarray, "n 2"]:
    """First rows of n pairs of different segments, all alike likely; segments of a pair may overlap.

    Raises ValueError where there are no two segments of this length.
    """
    if n < 1:
        raise ValueError(f"{n} pairs: there must be at least 1.")
    possible = starts(dataset, length)
    if len(possible) < 2:
        longest = Episodes(dataset).length.max()
        raise ValueError(
            f"there is no pair of segments of {length} steps in a dataset of {dataset.size}, whose longest episode has "
            f"{longest}."
        )
    one = rng.integers(0, len(possible), n)
    other = (one + rng.integers(1, len(possible), n)) % len(possible)
    return possible[np.stack([one, other], 1)]


def disagreement(margin: Float[Array, "K n"]) -> Float[Array, " n"]:
    """The standard deviation, over the members of an ensemble, of the predicted probability that the second is better.

    `margin` is the second segment's predicted return minus the first's (Christiano et al. 2017 ask about the
    pairs where it is largest).
    """
    return jnp.std(jax.nn.sigmoid(margin), 0)


# ---- labels


def rows_of(first: Int[Array, "*pairs"], length: int) -> Int[Array, "*pairs L"]:
    """The rows of all steps of segments."""
    return first[..., None] + np.arange(length, dtype=np.int32)


def returns_of(reward: Float[Array, "*pairs L"], gamma: float | Float[Array, ""] = 1.0) -> Float[Array, "*pairs"]:
    """r[0] + gamma r[1] + ... of each segment."""
    return jnp.sum(reward * gamma ** jnp.arange(reward.shape[-1]), -1)


def regrets_of(
    reward: Float[Array, "*pairs L"],
    terminated: Array,
    first_value: Float[Array, "*pairs"],
    last_value: Float[Array, "*pairs"],
    gamma: float | Float[Array, ""],
) -> Float[Array, "*pairs"]:
    """V(s[0]) - (return + gamma^L V(s[L])), the deterministic regret of Knox et al. (2022).

    `terminated` (*pairs) says that the task ended in the last step, after which nothing more is to be had.
    """
    ahead = jnp.where(terminated, 0.0, last_value)
    return first_value - (returns_of(reward, gamma) + gamma ** reward.shape[-1] * ahead)


def scores(
    dataset: Dataset,
    first: Int[np.ndarray, "*pairs"],
    length: int,
    gamma: float = 1.0,
    values: tuple[Any, Any] | None = None,
) -> Float[np.ndarray, "*pairs"]:
    """By what segments are compared: their returns or, with `values` (N,) of `obs` and of `next_obs`, minus regrets.

    Computed in float64. What differs by less than `rounding` is not to be told apart.
    """
    with jax.enable_x64(True):
        reward, terminated, ends = _parts(dataset, first, length, values)
        if ends is None:
            return np.asarray(returns_of(reward, gamma))
        before, after = ends
        return -np.asarray(regrets_of(reward, terminated, before, after, gamma))


def rounding(
    dataset: Dataset,
    first: Int[np.ndarray, "*pairs"],
    length: int,
    gamma: float = 1.0,
    values: tuple[Any, Any] | None = None,
) -> float:
    """The difference of `scores` up to which they are equal: 1e-6 of the magnitudes that the largest one adds up.

    Rewards have the digits of float32. Without it, which of two segments is "better" that have the same regret would be
    decided by how their numbers were rounded.
    """
    with jax.enable_x64(True):
        reward, terminated, ends = _parts(dataset, first, length, values)
        total = returns_of(jnp.abs(reward), gamma)
        if ends is not None:
            total += jnp.abs(ends[0]) + jnp.where(terminated, 0.0, gamma**length * jnp.abs(ends[1]))
        return 1e-6 * float(jnp.max(total))


def _parts(dataset: Dataset, first: np.ndarray, length: int, values: tuple[Any, Any] | None) -> tuple[Any, Any, Any]:
    """Of segments the rewards (*pairs, L), whether the task ended, and the values before and after; in float64."""
    rows = np.asarray(rows_of(jnp.asarray(first), length))
    reward = jnp.asarray(np.asarray(dataset.reward, np.float64)[rows])
    terminated = jnp.asarray(np.asarray(dataset.terminated)[rows[..., -1]])
    if values is None:
        return reward, terminated, None
    at = rows[..., 0], rows[..., -1]
    return reward, terminated, tuple(jnp.asarray(np.asarray(x, np.float64)[i]) for x, i in zip(values, at, strict=True))


def labels(
    key: Key[Array, ""],
    score: Float[Array, "n 2"],
    teacher: Teacher = Teacher(),
    rounding: float | Float[Array, ""] = 0.0,
) -> Float[Array, " n"]:
    """The labels that a teacher gives to pairs of these scores; differences up to `rounding` are none."""
    draw_key, mistake_key = jax.random.split(key)
    margin = score[:, 1] - score[:, 0]
    margin = jnp.where(jnp.abs(margin) <= rounding, 0.0, margin)
    if teacher.temperature:
        label = jax.random.bernoulli(draw_key, jax.nn.sigmoid(margin / teacher.temperature)).astype(margin.dtype)
    else:
        label = (jnp.sign(margin) + 1) / 2
    wrong = jax.random.bernoulli(mistake_key, teacher.mistakes, margin.shape)
    label = jnp.where(wrong, 1 - label, label)
    return jnp.where(jnp.abs(margin) <= teacher.ties, 0.5, label) if teacher.ties else label


def tree_labels(
    factors: Float[Array, "n 2 levels"], sigmas: float | Float[Array, "levels"] = 1.0
) -> Float[Array, " n"]:
    """The labels of a decision tree of factors, in the order of their importance; 0.5 where none of them decides.

    Bukharin et al. (2023), "Deep reinforcement learning from hierarchical preference design" (HERON): the first factor
    in which the segments of a pair differ by more than `sigmas` of its standard deviations decides, the larger the
    better. So a factor's unit is of no account, which in a weighted sum of them it is. The deviations are over all
    segments of these pairs, where the authors' code takes them over all that was ever seen.
    """
    margin = sigmas * jnp.std(factors, (0, 1))
    difference = factors[:, 1] - factors[:, 0]
    decides = jnp.abs(difference) > margin
    first = jnp.argmax(decides, -1)
    second_better = jnp.take_along_axis(difference, first[:, None], 1)[:, 0] > 0
    return jnp.where(jnp.any(decides, -1), second_better.astype(factors.dtype), 0.5)


# ---- what learners draw


class Compared(NamedTuple):
    """A batch: B pairs of segments, and B single steps of the whole dataset. Rewards are not in it.

    XLA gathers only the fields that the learner reads.
    """

    obs: Any  # of the single steps, as in `Stored`
    action: Array  # in units of the box; discrete ones as they are
    terminated: Array
    next_obs: Any
    pair_obs: Any  # (B, 2, L, ...)
    pair_action: Array  # (B, 2, L, ...)
    label: Array  # (B,)


def stored(preferences: Preferences, space: Space) -> Replay:
    """A Replay of the preferences, to which nothing is added: `sample(key, (), B)` draws a `Compared`.

    Pairs and steps are drawn uniformly with replacement. Raises ValueError as `check` and `datasets.check` do.
    """
    check(preferences)
    datasets.check(preferences.steps, space)
    steps = preferences.steps
    obs, next_obs = (jax.tree.map(jnp.asarray, x) for x in (steps.obs, steps.next_obs))
    action, terminated = to_unit(space, jnp.asarray(steps.action)), jnp.asarray(steps.terminated)
    first = jnp.asarray(preferences.first, jnp.int32)
    label = jnp.asarray(preferences.label, jnp.result_type(float))

    def init(item: Any = None) -> tuple:
        return ()

    def sample(key: Key[Array, ""], state: Any, n: int) -> Compared:
        pair_key, step_key = jax.random.split(key)
        pairs = jax.random.randint(pair_key, (n,), 0, len(label))
        rows = rows_of(first[pairs], preferences.length)
        single = jax.random.randint(step_key, (n,), 0, len(terminated))
        of_step = take((obs, action, terminated, next_obs), single)
        pair_obs, pair_action = take((obs, action), rows)
        return Compared(*of_step, pair_obs=pair_obs, pair_action=pair_action, label=label[pairs])

    return Replay(init, None, sample)


def as_replay(name: str, replay: Any, space: Space) -> Replay:
    """The Replay of algorithm `name`: a `Replay` as it is, or `stored` of `Preferences`.

    Raises ValueError for none, or one that takes steps in, and TypeError for anything else.
    """
    if replay is None:
        raise ValueError(
            f"{name} learns from preferences alone: its replay is preferences.stored(preferences, space), on the "
            "command line --dataset FILE of `jaxrl dataset preferences`."
        )
    if isinstance(replay, Preferences):
        return stored(replay, space)
    if not isinstance(replay, Replay):
        raise TypeError(f"{name}: replay is a {type(replay).__name__}; it must be Preferences, or a Replay of them.")
    if replay.add is not None:
        raise ValueError(f"{name}: this replay takes steps in; it must be of preferences, `preferences.stored`.")
    return replay
