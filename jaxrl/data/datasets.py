"""Datasets of stored steps, their statistics, and the Replays by which learners draw from them.

A `Dataset` holds the steps of rollouts in time order, one episode after another. Two flags are kept apart: whether the
task ended (`terminated`: do not bootstrap) and whether the episode ended for any reason (`last`). Other formats use
other names:

| here | D4RL | Minari | OGBench |
|---|---|---|---|
| `terminated` | `terminals` | `terminations` | 1 - `masks` |
| `last` | `terminals` or `timeouts` | the end of an episode's group | `terminals` |

A learner draws from a dataset through a `Replay` that nothing is added to (`stored`), so offline training is `learn`
without `collect`. The arrays are constants of the compiled program, and all seeds of a `vmap` share one copy. Where
each seed has another dataset, or a dataset is too large for a constant, the arrays are put into the state (`carried`).

Weights are given to episodes, not steps: an episode of weight w and n steps is drawn with probability proportional to
w n, then one of its steps uniformly. With all `weights` equal that is uniform over steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxrl.data.hindsight import Hindsight, goals_of
from jaxrl.data.transitions import Stored
from jaxrl.environment import pytree
from jaxrl.nn import normalize
from jaxrl.replay.prioritised import draw, set_leaves, tree_of
from jaxrl.replay.ring import Replay, take
from jaxrl.spaces import Box, Discrete, Space


@pytree
class Dataset:
    """Leaves (n, ...), steps in time order; actions in the environment's units."""

    obs: Any
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array  # bool: the task ended
    last: jax.Array  # bool: the episode ended, by the task, the time limit or the end of recording
    next_obs: Any  # of the true successor: the final observation where the episode ended

    @property
    def size(self) -> int:
        """The number of steps."""
        return self.reward.shape[0]


class Episodes:
    """The first step, length and return of each episode: numpy arrays `first`, `length` and `total`, (E,) each."""

    def __init__(self, dataset: Dataset) -> None:
        last = np.asarray(dataset.last)
        if not last.size:
            raise ValueError("a dataset without steps has no episodes.")
        end = np.flatnonzero(last) + 1
        if not last[-1]:
            end = np.append(end, last.size)  # recording stopped within an episode
        self.first = np.concatenate([[0], end[:-1]]).astype(np.int32)
        self.length = (end - self.first).astype(np.int32)
        self.total = np.add.reduceat(np.asarray(dataset.reward, np.float64), self.first)

    def __len__(self) -> int:
        return len(self.first)

    def of_step(self) -> Int[np.ndarray, " n"]:
        """The index of the episode of each step."""
        return np.repeat(np.arange(len(self)), self.length)


def from_rollout(steps: Any, action: Array) -> Dataset:
    """A dataset of `rollout.Steps` (T, N, ...), one environment after another; step T of each ends an episode.

    `action` (T, N, ...) are the actions in the environment's units.
    """

    def flat(x: Any) -> Any:
        return jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])

    last = steps.done.at[-1].set(True)
    of = (steps.obs, action, steps.reward, steps.terminated, last, steps.next_obs)
    return Dataset(*(jax.tree.map(flat, x) for x in of))


def joined(*datasets: Dataset) -> Dataset:
    """The datasets concatenated. Raises ValueError for none, or where shapes or dtypes of steps differ."""
    if not datasets:
        raise ValueError("no dataset to join.")
    kinds = {str(jax.tree.map(lambda x: (x.shape[1:], np.dtype(x.dtype).name), d)) for d in datasets}
    if len(kinds) != 1:
        raise ValueError(f"datasets of different kinds: {' and '.join(sorted(kinds))}.")
    datasets = tuple(d.replace(last=np.append(np.asarray(d.last)[:-1], True)) for d in datasets)
    return jax.tree.map(lambda *x: np.concatenate([np.asarray(a) for a in x]), *datasets)


def chosen(dataset: Dataset, episodes: Bool[np.ndarray, " E"]) -> Dataset:
    """The dataset of the episodes where `episodes` is True. Raises ValueError unless it has one entry for each."""
    known = Episodes(dataset)
    if np.shape(episodes) != (len(known),):
        raise ValueError(f"a choice of shape {np.shape(episodes)} among {len(known)} episodes.")
    rows = np.asarray(episodes)[known.of_step()]
    return jax.tree.map(lambda x: np.asarray(x)[rows], dataset)


def with_successors(dataset: Dataset) -> Dataset:
    """The dataset without the steps that ended the task and whose `next_obs` equals `obs`.

    Their successor is unknown: D4RL files without `next_observations` are read so.
    """
    size = dataset.size
    changes = [
        np.any(np.asarray(new).reshape(size, -1) != np.asarray(old).reshape(size, -1), 1)
        for new, old in zip(jax.tree.leaves(dataset.next_obs), jax.tree.leaves(dataset.obs), strict=True)
    ]
    known = ~np.asarray(dataset.terminated) | np.any(changes, 0)
    return dataset if known.all() else jax.tree.map(lambda x: np.asarray(x)[known], dataset)


def with_goal(dataset: Dataset, entry: str) -> Dataset:
    """A dataset without goals (such as OGBench's), prepared for hindsight: observations become a dict.

    Its entries are `entry`, the observations, and "goal", a placeholder of the same shape.
    """
    obs, next_obs = ({entry: x, "goal": x} for x in (dataset.obs, dataset.next_obs))
    return dataset.replace(obs=obs, next_obs=next_obs)


def returns_to_go(dataset: Dataset, gamma: float = 1.0) -> Float[np.ndarray, " n"]:
    """The discounted rewards from each step to the end of its episode, or of the task if that comes first.

    For an episode that was truncated they are only a part of the return; see `return_bounds`.
    """
    return _summed(dataset, gamma, 0.0)


def return_bounds(dataset: Dataset, gamma: float = 1.0) -> Float[np.ndarray, " n"]:
    """Lower bounds of the discounted return from each step, if no reward is below the lowest of the dataset.

    They are `returns_to_go` where the task ended. A truncated episode would have gone on: every reward after the cut is
    counted as the lowest reward of the dataset, or as 0 if that is positive, as the task may have ended at once. With
    rewards of -1 the rest is worth -1 / (1 - gamma), as Cal-QL's authors have it for episodes that did not reach the
    goal. With gamma 1 and a negative reward the bound is -inf.
    """
    least = min(float(np.min(dataset.reward)), 0.0)
    return _summed(dataset, gamma, least / (1 - gamma) if gamma < 1 else (-np.inf if least < 0 else 0.0))


def _summed(dataset: Dataset, gamma: float, beyond: float) -> Float[np.ndarray, " n"]:
    """The discounted rewards from each step on, where the rest of a truncated episode is worth `beyond`."""
    rewards, last = np.asarray(dataset.reward, np.float64), np.asarray(dataset.last)
    terminated = np.asarray(dataset.terminated)
    out, ahead = np.empty_like(rewards), beyond
    for t in range(len(rewards) - 1, -1, -1):
        ahead = rewards[t] + gamma * (0.0 if terminated[t] else beyond if last[t] else ahead)
        out[t] = ahead
    return out


# ---- weights of episodes


def _softmax_of_scaled(x: Float[np.ndarray, " E"], temperature: float) -> Float[np.ndarray, " E"]:
    span = np.ptp(x)
    scaled = (x - x.min()) / span if span > 0 else np.ones_like(x)
    return np.exp((scaled - 1) / temperature)


def return_weights(dataset: Dataset, temperature: float = 0.1) -> Float[np.ndarray, " E"]:
    """Return weighting (RW): exp(return / temperature) of each episode, with returns scaled to [0, 1].

    Hong et al. (2023), "Harnessing mixed offline reinforcement learning datasets via trajectory weighting".
    """
    return _softmax_of_scaled(Episodes(dataset).total, temperature)


def advantage_weights(dataset: Dataset, temperature: float = 0.1) -> Float[np.ndarray, " E"]:
    """Advantage weighting (AW, Hong et al. 2023): `return_weights` of the return minus its baseline.

    The baseline is a linear regression of returns on the first observation of an episode.
    """
    episodes = Episodes(dataset)
    leaves = [np.asarray(x)[episodes.first].reshape(len(episodes), -1) for x in jax.tree.leaves(dataset.obs)]
    features = np.concatenate([*leaves, np.ones((len(episodes), 1))], 1).astype(np.float64)
    expected = features @ np.linalg.lstsq(features, episodes.total, rcond=None)[0]
    return _softmax_of_scaled(episodes.total - expected, temperature)


def best_weights(dataset: Dataset, share: float = 0.1) -> Float[np.ndarray, " E"]:
    """Weights 1 for the `share` of episodes with the highest returns (at least one episode), 0 for the others."""
    if not 0 < share <= 1:
        raise ValueError(f"share={share}: it must be above 0 and at most 1.")
    total = Episodes(dataset).total
    best = np.argsort(-total, kind="stable")[: max(1, round(share * len(total)))]
    weights = np.zeros(len(total))
    weights[best] = 1.0
    return weights


def reward_scale(dataset: Dataset, max_steps: int = 1000) -> float:
    """`max_steps` / (best - worst return of whole episodes), by which IQL's authors multiply locomotion rewards.

    Raises ValueError where all returns are equal.
    """
    total = Episodes(dataset).total
    total = total if np.asarray(dataset.last)[-1] else total[:-1]
    if not total.size or not np.ptp(total):
        raise ValueError(f"reward_scale: the returns of {total.size} whole episodes are alike; two must differ.")
    return float(max_steps / np.ptp(total))


# ---- Replays of a dataset


def to_unit(space: Space, action: Array) -> Array:
    """Actions in units of the box, [-1, 1] a side: the inverse of `Box.from_unit`. Discrete actions are unchanged."""
    if not isinstance(space, Box):
        return action
    bounded = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = (np.asarray(x, np.float64) for x in space.ends())
    half = np.where(high > low, (high - low) / 2, 1)  # a side without width has one action, which is 0 in its units
    action = action if jnp.issubdtype(action.dtype, jnp.floating) else action.astype(float)
    unit = (action - (high + low) / 2) / half
    return jnp.where(bounded, jnp.clip(unit, -1, 1), unit).astype(action.dtype)


def _goals(dataset: Dataset, hindsight: Hindsight) -> Callable[[Key[Array, ""], Int[Array, " rows"]], Array]:
    """Draws goals of a dataset's rows."""
    episodes = Episodes(dataset)
    end = jnp.asarray((episodes.first + episodes.length - 1)[episodes.of_step()])
    return goals_of(dataset.obs, dataset.next_obs, end, hindsight)


def _rows(
    dataset: Dataset, weights: Float[np.ndarray, " E"] | None
) -> Callable[[Key[Array, ""], int], Int[Array, " n"]]:
    """A function `(key, n) -> rows`: drawn are an episode by weight times length, then one of its steps."""
    if weights is None:

        def rows(key: Key[Array, ""], n: int) -> Int[Array, " n"]:
            return jax.random.randint(key, (n,), 0, dataset.size)
    else:
        episodes = Episodes(dataset)
        weights = np.asarray(weights, np.float64)
        sound = np.all(np.isfinite(weights) & (weights >= 0)) and weights.sum() > 0
        if weights.shape != (len(episodes),) or not sound:
            raise ValueError(
                f"weights of shape {weights.shape}: a dataset of {len(episodes)} episodes needs a finite one of at "
                "least 0 for each, not all 0."
            )
        mass = weights * episodes.length
        # A float32 sum resolves 2^24 steps: enough for some 100,000 episodes of similar weight.
        upto = jnp.asarray(np.cumsum(mass / mass.sum()), jnp.float32)
        first, length = jnp.asarray(episodes.first), jnp.asarray(episodes.length)
        # Rounding may leave the last sum below 1; a number above it must not draw an episode of weight 0.
        most = int(np.flatnonzero(mass)[-1])

        def rows(key: Key[Array, ""], n: int) -> Int[Array, " n"]:
            episode_key, step_key = jax.random.split(key)
            drawn = jnp.searchsorted(upto, jax.random.uniform(episode_key, (n,)), side="right")
            episode = jnp.minimum(drawn, most)
            step = jax.random.uniform(step_key, (n,)) * length[episode]
            return first[episode] + jnp.minimum(step.astype(jnp.int32), length[episode] - 1)

    return rows


def check(dataset: Dataset, space: Space) -> None:
    """Raise ValueError for leaves of unequal length, numbers that are not finite, and actions of another space.

    It checks values on the host: in a program a gather clamps invalid rows, and NaN is noticed only in the weights.
    """
    if np.ndim(dataset.reward) != 1:
        raise ValueError(f"a dataset's reward has shape {np.shape(dataset.reward)}: it must be one number a step.")
    for name in ("obs", "action", "reward", "terminated", "last", "next_obs"):
        for x in map(np.asarray, jax.tree.leaves(getattr(dataset, name))):
            if x.shape[:1] != (dataset.size,):
                raise ValueError(f"a dataset of {dataset.size} rewards has {name} of shape {x.shape}: one a step.")
            if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
                wrong = int(x.size - np.isfinite(x).sum())
                raise ValueError(f"{wrong} of the {x.size} numbers of a dataset's {name} are not finite.")
    before, after = (jax.tree.map(lambda x: np.shape(x), x) for x in (dataset.obs, dataset.next_obs))
    if before != after:
        raise ValueError(f"a dataset's obs {before} and next_obs {after} must be alike.")
    action = np.asarray(dataset.action)
    if action.shape[1:] != space.shape:
        raise ValueError(f"a dataset's actions have shape {action.shape[1:]}; those of {space} have {space.shape}.")
    whole = np.issubdtype(action.dtype, np.integer)
    if isinstance(space, Discrete) and not (whole and action.min() >= 0 and action.max() < space.n):
        held = f"{action.dtype} from {action.min()} to {action.max()}"
        raise ValueError(f"a dataset's actions are {held}; they must be integers of {space}.")


def transitions(dataset: Dataset, space: Space, gamma: float = 0.99) -> Stored:
    """The dataset's steps as learners draw them, leaves (n, ...). Raises ValueError as `check` does."""
    check(dataset, space)
    size, action = dataset.size, to_unit(space, jnp.asarray(dataset.action))
    after = np.where(np.asarray(dataset.last) | (np.arange(size) == size - 1), 0, 1) + np.arange(size)
    return Stored(
        jax.tree.map(jnp.asarray, dataset.obs),
        action,
        jnp.asarray(dataset.reward),
        jnp.asarray(dataset.terminated),
        jax.tree.map(jnp.asarray, dataset.next_obs),
        action[after],
        jnp.asarray(returns_to_go(dataset, gamma), jnp.result_type(float)),
        jnp.asarray(return_bounds(dataset, gamma), jnp.result_type(float)),
    )


def stored(
    dataset: Dataset,
    space: Space,
    weights: Float[np.ndarray, " E"] | None = None,
    gamma: float = 0.99,
    hindsight: Hindsight | None = None,
) -> Replay:
    """A Replay of the dataset's transitions, to which nothing is added.

    `sample(key, (), n)` draws `Stored` steps with replacement: an episode in proportion to weight times length, then
    one of its steps. With `hindsight` their observations have its goals; a reached goal gives reward 1 and ends the
    task, and `return_to_go` and `return_bound` are NaN, as they are unknown. `normalizer` has the statistics of
    observations as they are drawn, for learners with `Config.normalize_obs`.

    Raises ValueError as `check` does, for weights that are not one non-negative number for each episode, and for goals
    that do not fit.
    """
    items, rows = transitions(dataset, space, gamma), _rows(dataset, weights)
    goals = None if hindsight is None else _goals(dataset, hindsight)

    @functools.cache
    def statistics() -> normalize.Statistics:
        seen = items.obs if hindsight is None else {**items.obs, "goal": hindsight.achieved(items.next_obs)}
        mass = None if weights is None else np.asarray(weights, np.float64)[Episodes(dataset).of_step()]
        return normalize.of_data(seen, mass)

    def init(item: Any = None) -> tuple:
        return ()

    def sample(key: Key[Array, ""], state: Any, n: int) -> Stored:
        if hindsight is None or goals is None:
            return take(items, rows(key, n))
        row_key, goal_key = jax.random.split(key)
        chosen = rows(row_key, n)
        goal, batch = goals(goal_key, chosen), take(items, chosen)
        reached = hindsight.reached(hindsight.achieved(batch.next_obs), goal)
        return batch._replace(
            obs={**batch.obs, "goal": goal},
            reward=reached.astype(batch.reward.dtype),
            terminated=reached | batch.terminated,
            next_obs={**batch.next_obs, "goal": goal},
            return_to_go=jnp.full_like(batch.return_to_go, jnp.nan),
            return_bound=jnp.full_like(batch.return_bound, jnp.nan),
        )

    return Replay(init, None, sample, normalizer=lambda obs: statistics())


def _any_of(key: Key[Array, ""], state: Any, n: int) -> Any:
    if not hasattr(state, "reward"):
        raise ValueError("datasets.carried: put the steps into the state first, as replay=datasets.transitions(...).")
    return take(state, jax.random.randint(key, (n,), 0, len(state.reward)))


carried = Replay(lambda item=None: (), None, _any_of)
"""A Replay whose state holds the dataset's steps, from which it draws uniformly.

    state = algo.init(key, hyper, params).replace(replay=datasets.transitions(dataset, space))

Each seed of a `vmap` may then have another dataset of the same size, and the arrays are arguments of the program, not
constants. The state may be any pytree that has `reward` and the fields that the learner reads. Statistics of its
observations are unknown, so `Config.normalize_obs` must be False.
"""


def prioritised(dataset: Dataset, space: Space, gamma: float = 0.99) -> Replay:
    """A prioritised Replay of a dataset's `Stored` steps (Schaul et al. 2016), for learners with `Config.prioritised`.

    `sample(key, state, n, beta) -> (batch, indices, weights)` and `update(state, indices, priorities, alpha, given)`
    are those of `prioritised_sequence`. The state is the sum tree of priorities, which each seed has separately; the
    steps are constants of the program. A step that was never drawn keeps the initial priority 1, where Schaul et al.
    use the largest so far: with errors far above 1 some steps are hardly ever drawn.
    """
    items, size = transitions(dataset, space, gamma), dataset.size

    def init(item: Any = None) -> tuple[Array, ...]:
        return tree_of(jnp.ones(size))

    def sample(
        key: Key[Array, ""], state: tuple[Array, ...], n: int, beta: float | Float[Array, ""]
    ) -> tuple[Stored, Int[Array, " n"], Float[Array, " n"]]:
        indices, weights = draw(key, state, size, n, beta)
        return take(items, indices), indices, weights

    def update(
        state: tuple[Array, ...],
        indices: Int[Array, " n"],
        priorities: Float[Array, " n"],
        alpha: float | Float[Array, ""],
        given: Bool[Array, " n"] | bool = True,
    ) -> tuple[Array, ...]:
        given = jnp.broadcast_to(given, indices.shape)
        return set_leaves(state, indices, (priorities**alpha).astype(jnp.float32), given)

    return Replay(init, None, sample, update)


class Windows(NamedTuple):
    """Windows of consecutive steps of one episode that end with the drawn step; leaves (B, length, ...)."""

    obs: Any
    action: Array  # in units of the box; discrete ones as they are
    return_to_go: Array  # rewards from here to the end of the episode, not discounted
    time: Array  # int32, steps since the episode began
    valid: Array  # bool; False: padding before the episode's first step, with copies of that step


def windows(
    dataset: Dataset,
    space: Space,
    length: int,
    weights: Float[np.ndarray, " E"] | None = None,
    hindsight: Hindsight | None = None,
) -> Replay:
    """As `stored`, but `sample(key, (), n)` draws `Windows`: a step and the `length - 1` steps before it.

    With `hindsight` all steps of a window have the goal of its last step. Raises ValueError as `stored` does, and for a
    length below 1.
    """
    if length < 1:
        raise ValueError(f"windows: length={length}; it must be at least 1.")
    check(dataset, space)
    rows = _rows(dataset, weights)
    goals = None if hindsight is None else _goals(dataset, hindsight)
    episodes = Episodes(dataset)
    first = jnp.asarray(episodes.first[episodes.of_step()])
    obs, action = jax.tree.map(jnp.asarray, dataset.obs), to_unit(space, jnp.asarray(dataset.action))
    return_to_go = jnp.asarray(returns_to_go(dataset), jnp.result_type(float))

    def init(item: Any = None) -> tuple:
        return ()

    def sample(key: Key[Array, ""], state: Any, n: int) -> Windows:
        row_key, goal_key = jax.random.split(key)
        drawn = rows(row_key, n)
        row = drawn[:, None] + jnp.arange(1 - length, 1)
        begin = first[drawn][:, None]
        valid, row = row >= begin, jnp.maximum(row, begin)
        seen, done, left = take((obs, action, return_to_go), row)
        if goals is not None:
            goal = goals(goal_key, drawn)[:, None]
            seen = {**seen, "goal": jnp.broadcast_to(goal, (n, length, *goal.shape[2:]))}
        return Windows(seen, done, left, row - begin, valid)

    return Replay(init, None, sample, returns=(float(episodes.total.min()), float(episodes.total.max())))


@functools.cache
def mixed(stored: Replay, own: Replay, share: float = 0.5) -> Replay:
    """A Replay whose batches take a `share` from a dataset (`stored`) and the rest from the learner's buffer (`own`).

    Steps that are added go into `own` (`ring.uniform`). Of n steps floor(n share) come from the dataset, and the two
    sources are interleaved, so that any part of a batch is mixed alike. All are `Stored`: for steps of the buffer
    `next_action` is the step's action, and the unknown `return_to_go` and `return_bound` are -inf. Equal arguments give
    the same functions.

    Raises ValueError where `stored` is not a dataset's, `own` accepts no steps, or `share` is outside (0, 1).
    """
    if stored.add is not None or own.add is None:
        raise ValueError("mixed: the first replay must be a dataset's, which takes nothing in, and the second not.")
    if stored.update is not None or own.update is not None:
        raise ValueError("mixed: a replay with priorities is not mixed with another.")
    if not 0 < share < 1:
        raise ValueError(f"share={share}: it must be between 0 and 1.")

    def sample(key: Key[Array, ""], state: Any, n: int) -> Stored:
        stored_key, own_key = jax.random.split(key)
        upto = np.floor(np.arange(n + 1) * share + 1e-9).astype(np.int32)  # steps of the dataset before each row
        of_dataset = np.diff(upto) > 0
        number = np.where(of_dataset, upto[:-1], upto[-1] + np.arange(n) - upto[:-1])
        old, new = stored.sample(stored_key, (), int(upto[-1])), own.sample(own_key, state, n - int(upto[-1]))
        unknown = jnp.full_like(new.reward, -jnp.inf)
        new = Stored(**new._asdict(), next_action=new.action, return_to_go=unknown, return_bound=unknown)
        return jax.tree.map(lambda x, y: jnp.concatenate([x, y.astype(x.dtype)])[number], old, new)

    return Replay(own.init, own.add, sample, normalizer=stored.normalizer)
