"""Bounds on the best expected discounted return of a finite POMDP, by heuristic search value iteration.

Smith and Simmons (2004), "Heuristic search value iteration for POMDPs"; a part x of the state that is always observed
is kept apart from the hidden part y (Ong et al. 2010, mixed observability), so that beliefs are over y alone. From
below: the best of alpha vectors, which a policy earns, improved by point-based backups. From above: the sawtooth
interpolation of values at beliefs, started from the fast informed bound (Hauskrecht 2000). A trial follows the actions
that are best by the upper bound and the observations where both differ most, and backs both up on the way back.

On the host, in numpy: the sets grow as they are needed. An episode that may end has kernels that sum to less than 1.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer


class Pomdp(NamedTuple):
    """X observed states, Y hidden ones, A actions, O observations beside the observed state."""

    reward: Float[np.ndarray, "X A Y"]
    successor: Integer[np.ndarray, "X A O"]  # the observed state after o
    kernel: Float[np.ndarray, "X A O Y Y"]  # P(o, next y | x, y, a)


class Bounds(NamedTuple):
    """What `bounds` found. The policy of the lower bound takes the action of the vector that is best at its belief."""

    lower: float
    upper: float
    vectors: list[np.ndarray]  # for each x (n, Y): values of policies, of which the best counts
    actions: list[np.ndarray]  # for each x (n,): the first action of each
    trials: int


def bounds(
    pomdp: Pomdp,
    roots: Integer[np.ndarray, " R"],
    beliefs: Float[np.ndarray, "R Y"],
    gamma: float,
    tolerance: float = 1e-2,
    seconds: float | int = 60.0,
) -> Bounds:
    """Lower and upper bound of the best return from the observed states `roots` with these `beliefs`, whose rows sum to
    the chance of each root. Ends when they differ by `tolerance`, or after `seconds`.

    Raises ValueError for a discount that is not below 1.
    """
    if not 0 < gamma < 1:
        raise ValueError(f"gamma={gamma} must be above 0 and below 1.")
    search = _Search(pomdp, gamma)
    starts = [(int(x), b) for x, b in zip(roots, beliefs, strict=True)]
    end = time.monotonic() + seconds
    trials = 0
    while True:
        gaps = [search.gap(x, b) for x, b in starts]
        if sum(gaps) <= tolerance or time.monotonic() > end:
            break
        search.trial(*starts[int(np.argmax(gaps))], 0.5 * tolerance / len(starts))
        trials += 1
    lower = sum(search.lower(x, b) for x, b in starts)
    upper = sum(search.upper(x, b) for x, b in starts)
    vectors = [x.used() for x in search.vectors]
    return Bounds(float(lower), float(upper), vectors, [np.array(a) for a in search.actions], trials)


def mdp_values(pomdp: Pomdp, gamma: float, sweeps: int = 2000) -> Float[np.ndarray, "X Y"]:
    """The best return of each state if all were seen from now on: an upper bound, valid after any number of sweeps."""
    value = np.full((pomdp.reward.shape[0], pomdp.reward.shape[2]), max(pomdp.reward.max(), 0.0) / (1 - gamma))
    for _ in range(sweeps):
        after = np.einsum("xaoij,xaoj->xai", pomdp.kernel, value[pomdp.successor], optimize=True)
        new = (pomdp.reward + gamma * after).max(1)
        if np.max(np.abs(new - value)) < 1e-6:
            break
        value = new
    return value


def _informed(pomdp: Pomdp, gamma: float, sweeps: int = 50) -> Float[np.ndarray, "X A Y"]:
    """The fast informed bound: the value of each action if the state was seen before, but not after, the step."""
    q = np.repeat(mdp_values(pomdp, gamma)[:, None], pomdp.reward.shape[1], 1)
    for _ in range(sweeps):
        new = np.empty_like(q)
        for x in range(len(q)):  # one at a time, for the memory
            after = np.einsum("aoij,aobj->aobi", pomdp.kernel[x], q[pomdp.successor[x]], optimize=True)
            new[x] = pomdp.reward[x] + gamma * after.max(2).sum(1)
        if np.max(np.abs(new - q)) < 1e-4:
            return new
        q = new
    return q


def _blind(pomdp: Pomdp, gamma: float, sweeps: int = 1000) -> Float[np.ndarray, "X A Y"]:
    """The value of taking the same action for ever, from below: a lower bound after any number of sweeps."""
    value = np.full_like(pomdp.reward, min(pomdp.reward.min(), 0.0) / (1 - gamma))
    same = np.arange(pomdp.reward.shape[1])[None, :, None]
    for _ in range(sweeps):
        after = np.einsum("xaoij,xaoj->xai", pomdp.kernel, value[pomdp.successor, same], optimize=True)
        new = pomdp.reward + gamma * after
        if np.max(np.abs(new - value)) < 1e-6:
            break
        value = new
    return value


class _Rows:
    """Rows that are appended one at a time, in an array that doubles."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.size = rows.copy(), len(rows)

    def append(self, row: np.ndarray) -> None:
        if self.size == len(self.rows):
            self.rows = np.concatenate([self.rows, np.zeros((max(8, self.size), *self.rows.shape[1:]))])
        self.rows[self.size] = row
        self.size += 1

    def used(self) -> np.ndarray:
        return self.rows[: self.size]

    def keep(self, which: np.ndarray) -> None:
        kept = self.used()[which]
        self.rows, self.size = kept.copy(), len(kept)


class _Search:
    def __init__(self, pomdp: Pomdp, gamma: float) -> None:
        self.pomdp, self.gamma = pomdp, gamma
        self.size, self.num_actions, hidden = pomdp.reward.shape
        blind = _blind(pomdp, gamma)
        self.vectors = [_Rows(blind[x]) for x in range(self.size)]
        self.actions = [list(range(self.num_actions)) for _ in range(self.size)]
        # The corners are each an upper bound by a vector, and so is the best action's at any belief.
        self.corners = _informed(pomdp, gamma)
        self.best = self.corners.max(1)
        self.points = [_Rows(np.zeros((0, hidden))) for _ in range(self.size)]
        self.drops = [_Rows(np.zeros((0, 1))) for _ in range(self.size)]  # value there less that of the corners
        self.due = [64] * self.size

    def lower(self, x: int, belief: np.ndarray) -> float:
        return float((self.vectors[x].used() @ belief).max())

    def upper(self, x: int, belief: np.ndarray) -> float:
        """Of a belief that need not sum to 1."""
        base = float(self.best[x] @ belief)
        informed = float((self.corners[x] @ belief).max())
        points = self.points[x].used()
        if not len(points):
            return min(base, informed)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(points > 0, belief / points, np.inf).min(1)
        return min(base, informed, base + float((share * self.drops[x].used()[:, 0]).min()))

    def gap(self, x: int, belief: np.ndarray) -> float:
        return self.upper(x, belief) - self.lower(x, belief)

    def after(self, x: int, belief: np.ndarray) -> np.ndarray:
        """Beliefs after each action and observation, (A, O, Y), which sum to the chance of the observation."""
        return np.einsum("i,aoij->aoj", belief, self.pomdp.kernel[x], optimize=False)

    def trial(self, x: int, belief: np.ndarray, tolerance: float) -> None:
        path = []
        weight = 1.0
        # The belief's own sum is the chance of getting here: gaps are already what they mean at the root.
        while len(path) < 400:
            path.append((x, belief))
            after = self.after(x, belief)
            action, gaps = self.choose(x, belief, after, weight)
            observation = int(np.argmax(gaps))
            weight *= self.gamma
            if gaps[observation] * weight <= tolerance / 2:
                break
            x, belief = int(self.pomdp.successor[x, action, observation]), after[action, observation]
        for x, belief in reversed(path):
            self.back_up(x, belief)

    def choose(self, x: int, belief: np.ndarray, after: np.ndarray, weight: float) -> tuple[int, np.ndarray]:
        """The best action by the upper bound, and the gaps after its observations."""
        values = self.upper_values(x, belief, after)
        action = int(np.argmax(values))
        following = self.pomdp.successor[x, action]
        gaps = [self.gap(int(n), b) if b.any() else 0.0 for n, b in zip(following, after[action], strict=True)]
        return action, np.array(gaps)

    def upper_values(self, x: int, belief: np.ndarray, after: np.ndarray) -> np.ndarray:
        values = self.pomdp.reward[x] @ belief
        for a in range(self.num_actions):
            for n, b in zip(self.pomdp.successor[x, a], after[a], strict=True):
                if b.any():
                    values[a] += self.gamma * self.upper(int(n), b)
        return values

    def back_up(self, x: int, belief: np.ndarray) -> None:
        belief = belief / belief.sum()
        after = self.after(x, belief)
        values = self.upper_values(x, belief, after)
        if values.max() < self.upper(x, belief) - 1e-9:
            self.points[x].append(belief)
            self.drops[x].append(np.array([values.max() - self.best[x] @ belief]))
        found = self.pomdp.reward[x].copy()
        for a in range(self.num_actions):
            for o, n in enumerate(self.pomdp.successor[x, a]):
                if self.pomdp.kernel[x, a, o].any():
                    vectors = self.vectors[n].used()
                    chosen = vectors[int(np.argmax(vectors @ after[a, o]))]
                    found[a] += self.gamma * self.pomdp.kernel[x, a, o] @ chosen
        action = int(np.argmax(found @ belief))
        if found[action] @ belief > self.lower(x, belief) + 1e-9:
            self.vectors[x].append(found[action])
            self.actions[x].append(action)
        if max(self.vectors[x].size, self.points[x].size) > self.due[x]:
            self.prune(x)

    def prune(self, x: int) -> None:
        """Drop vectors below another one everywhere, and points where the others say as much."""
        vectors = self.vectors[x].used()
        keep = np.ones(len(vectors), bool)
        for i in range(len(vectors)):
            others = keep.copy()
            others[i] = False
            keep[i] = not np.any(np.all(vectors[others] >= vectors[i] - 1e-12, 1))
        self.vectors[x].keep(keep)
        self.actions[x] = [a for a, k in zip(self.actions[x], keep, strict=True) if k]
        points, drops = self.points[x].used(), self.drops[x].used()
        keep = np.ones(len(points), bool)
        for i in range(len(points)):
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(points > 0, points[i] / points, np.inf).min(1)
            said = share * drops[:, 0]
            said[i] = np.inf
            said[~keep] = np.inf
            keep[i] = said.min() > drops[i, 0] + 1e-12
        self.points[x].keep(keep)
        self.drops[x].keep(keep)
        self.due[x] = 2 * max(64, self.vectors[x].size, self.points[x].size)
