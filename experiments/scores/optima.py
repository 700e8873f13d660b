"""The best returns there are on drawn starts of MiniGrid and BabyAI tasks: A* over the states of the environment.

Success is all they reward, the later the less, so that the fewest steps are best. They are steps of `env.step`, taken
with all actions in a batch of states of all starts. States are one if they differ in nothing but the time. First steps
are apart, on which missions do not know what is held. A state is known by a hash of 64 bits: among 10^7 states two meet
once in 400,000 searches.

The bound of the steps left is those of an errand without the obstacles: the agent walks through objects, doors cost
nothing but the keys of locked ones, it has hands for all of them, and comes to what each clause of the mission names in
any order. Things that were moved need no visit. So the bound never falls along a path, which the search checks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.envs.grid.babyai.instructions import Verb, tags_of
from jaxrl.envs.grid.minigrid.key_corridor import KeyCorridor
from jaxrl.envs.grid.minigrid.obstructed_maze import ObstructedMaze
from jaxrl.envs.grid.minigrid.unlock import UnlockPickup
from jaxrl.envs.grid.tiles import (
    BALL,
    BLUE,
    BOX,
    DOOR,
    GOAL,
    KEY,
    LAVA,
    LOCKED,
    WALL,
    color_of,
    kind_of,
    pack,
    state_of,
)

LEVELS = 64
"""Starts whose best returns are found."""
MOST = 50_000 * LEVELS
"""States of all starts together, reached but not all stepped, after which a search gives up."""
CHUNK = 256
"""States stepped at once."""
MOST_VISITS = 7
"""Visits of an errand; further ones are left out."""
FAR = 10_000
"""More steps than any episode has."""
PICKED_UP = {KeyCorridor: (BALL, None), ObstructedMaze: (BALL, BLUE), UnlockPickup: (BOX, None)}
"""The kind and colour of what is to be picked up, by class. Other tasks of MiniGrid have a goal, or no errand."""
ONCE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""How programs are compiled that run once."""


# ---- the errand


class Visit(NamedTuple):
    """Cells of which one has to be faced, (C,) bool, and what shows that this has happened."""

    faced: Any
    steps: int  # taken there
    marks: Any  # (C,) bool: cells of which one has changed since
    clause: int = -1  # of the mission, which is fulfilled since
    opens: Any = False  # (C,) bool: locked doors that cannot be passed before. Only then the visit is no must


class Errand(NamedTuple):
    """The errands on B levels of C cells: n visits, of which any set, one of K = 2^n, may be behind the agent."""

    steps: Any  # (B, K, C, 4) int32: the steps left by set, position and direction
    marks: Any  # (B, n, C) bool
    clauses: Any  # (B, n, number of clauses) bool
    behind: Any  # (B,) int32: visits that are not needed
    grid: Any  # (B, C) int32: cells at the start


def visits(env: Any, start: Any) -> list[Visit]:
    """The errand of one start: what the mission names, and the keys of locked doors."""
    grid, found = start.grid, []
    kind, door = kind_of(grid), kind_of(grid) == DOOR
    if hasattr(start, "done"):
        for clause, verb in enumerate(start.mission[1::9]):
            named, other = (tags_of(grid) >> 2 * clause + i & 1 > 0 for i in range(2))
            if verb != Verb.NONE:
                found.append(Visit(named, int(verb != Verb.GO_TO), named & ~door, clause))
            if verb == Verb.PUT_NEXT:
                beside = [np.roll(other, shift) for shift in (1, -1, env.shape[1], -env.shape[1])]
                found.append(Visit(np.any([other, *beside], 0), 1, other & ~door, clause))
    else:
        wanted, color = next((x for task, x in PICKED_UP.items() if isinstance(env, task)), (GOAL, None))
        faced = (kind == wanted) & ((color is None) | (color_of(grid) == color))
        found.append(Visit(faced, 1, faced))
    locked = door & (state_of(grid) == LOCKED)
    for color in np.unique(color_of(grid[locked])):
        keys = (grid & 0xFFFF == pack(KEY, color)) | (kind == BOX) & (grid >> 20 & 15 == color + 1)
        doors = locked & (color_of(grid) == color)
        found.append(Visit(keys, 1, keys | doors, opens=doors))
    return found


def errands(env: Any, starts: Any) -> Errand:
    """The errands of all starts."""
    found = [visits(env, jax.tree.map(lambda x, b=b: x[b], starts)) for b in range(LEVELS)]
    n, cells = min(MOST_VISITS, max(map(len, found))), starts.grid.shape[1]
    steps, behind = np.zeros((LEVELS, 2**n, cells, 4), np.int32), np.full(LEVELS, 2**n - 1, np.int32)
    marks = np.zeros((LEVELS, n, cells), bool)
    clauses = np.zeros((LEVELS, n, starts.done.shape[1] if hasattr(starts, "done") else 1), bool)
    for b, grid in enumerate(starts.grid):
        # What is nowhere is in hand, or cannot be had. The agent has nothing in hand of which there is another one.
        needed = {i: visit for i, visit in enumerate(found[b][:n]) if visit.faced.any()}
        for i, visit in needed.items():
            behind[b] ^= 1 << i
            marks[b, i] = visit.marks
            clauses[b, i, visit.clause] = visit.clause >= 0
        steps[b] = steps_left(grid, env.shape[1], needed, n)
    return Errand(steps, marks, clauses, behind, starts.grid)


def steps_left(grid: np.ndarray, width: int, needed: dict[int, Visit], n: int) -> np.ndarray:
    """(K, C, 4): the fewest steps of an errand, found by improving them until none changes."""
    sets, cells = np.arange(2**n)[:, None], np.arange(grid.size)
    shut = np.isin(kind_of(grid), (WALL, LAVA)) | np.zeros(sets.shape, bool)
    for i, visit in needed.items():
        shut |= visit.opens & (sets >> i & 1 == 0)
    after, price = sets | np.zeros(grid.size, int), np.full(shut.shape, FAR)
    for i, visit in needed.items():
        new = visit.faced & (sets >> i & 1 == 0) & ~(shut & (visit.steps > 0))
        after, price = after | new << i, np.where(new, np.minimum(price, visit.steps), price)
    front = np.clip(cells[:, None] + np.array([1, width, -1, -width]), 0, grid.size - 1)
    enter, after, price = np.where(shut, FAR, 1)[:, front], after[:, front], price[:, front]
    must = sum(1 << i for i, visit in needed.items() if not np.any(visit.opens))
    best, new = None, np.where(sets & must == must, 0, FAR)[..., None] + np.zeros(enter.shape, np.int32)
    while not np.array_equal(best, new):
        best = new
        turned = 1 + np.minimum(np.roll(best, 1, 2), np.roll(best, -1, 2))
        walked, visited = enter + best[:, front, np.arange(4)], price + best[after, cells[:, None], np.arange(4)]
        new = np.minimum(np.minimum(best, turned), np.minimum(walked, visited))
    return best


def bound(errand: Errand, state: Any, level: Any) -> Any:
    """Steps that are left in a state at least."""
    behind = jnp.any(errand.marks[level] & (state.grid != errand.grid[level]), 1)
    if hasattr(state, "done"):
        behind |= jnp.any(errand.clauses[level] & state.done, 1)
    bits = jnp.sum(behind << np.arange(behind.size), dtype=jnp.int32) | errand.behind[level]
    return errand.steps[level, bits, state.position, state.direction]


# ---- the search


class Rows(NamedTuple):
    """States, the levels they are of, and their numbers."""

    state: Any
    level: Any
    number: Any


def hashed(state: Any, level: Any) -> tuple[Any, Any]:
    """Two numbers of 32 bits for the level and all of a state that matters."""
    leaves = jax.tree.leaves(state.replace(time=jnp.minimum(state.time, 1)))
    words = jnp.concatenate([jnp.ravel(x).astype(jnp.uint32) for x in [level, *leaves]])
    salt = np.random.default_rng(0).integers(2**32, size=(2, words.size), dtype=np.uint32)

    def mixed(x):
        x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
        return x ^ x >> 15

    return tuple(jnp.sum(mixed(mixed(words * np.uint32(0x9E3779B1) + s)), dtype=jnp.uint32) for s in salt)


class Table:
    """A set of numbers of 64 bits other than 0, which takes whole arrays."""

    def __init__(self, most: int) -> None:
        self.slots = np.zeros(1 << (2 * most).bit_length(), np.uint64)

    def new(self, numbers: np.ndarray, store: bool = True) -> np.ndarray:
        """Which of these numbers, no two of them equal, are not in the set. Then they are, with `store`."""
        new, left, last = np.zeros(numbers.size, bool), np.arange(numbers.size), np.uint64(self.slots.size - 1)
        slot = numbers & last
        while left.size:
            there = self.slots[slot[left]]
            free = left[there == 0]
            if store:
                self.slots[slot[free]] = numbers[free]
                free = free[self.slots[slot[free]] == numbers[free]]  # of several in one slot one stays
            new[free] = True
            left = left[(there != numbers[left]) & ~new[left]]
            slot[left] = slot[left] + np.uint64(1) & last
        return new


class Queue:
    """Rows by an integer, the least of them first, and among these the latest."""

    def __init__(self) -> None:
        self.parts: dict[int, list[Rows]] = {}

    def put(self, rows: Rows, order: np.ndarray) -> None:
        for x in np.unique(order):
            self.parts.setdefault(int(x), []).append(jax.tree.map(lambda leaf, here=order == x: leaf[here], rows))

    def take(self) -> tuple[int, Rows]:
        """At most CHUNK rows of one integer, and this."""
        least, taken, size = min(self.parts), [], 0
        while self.parts[least] and size < CHUNK:
            taken.append(self.parts[least].pop())
            size += taken[-1].level.size
        rows = jax.tree.map(lambda *x: np.concatenate(x), *taken)
        if size > CHUNK:
            self.parts[least].append(jax.tree.map(lambda x: x[CHUNK:], rows))
        if not self.parts[least]:
            del self.parts[least]
        return least, jax.tree.map(lambda x: x[:CHUNK], rows)


def optimum(id: str) -> dict | None:
    """The best `returns` on LEVELS starts, the `steps` to them (-1: there is no way), and how many `states` it took.

    None, with the reason printed, where steps are random or rewarded otherwise, or where MOST states are not enough.
    """
    env, params = jaxrl.make(id)
    keys, levels = jax.random.split(jax.random.key(0), LEVELS), np.arange(LEVELS)
    reset = jax.jit(jax.vmap(lambda key: env.reset(key, params)[1]), compiler_options=ONCE)
    starts = jax.tree.map(np.asarray, reset(keys))
    errand, actions = jax.device_put(errands(env, starts)), np.arange(env.action_space(params).n)
    first = np.asarray(jax.jit(jax.vmap(bound, (None, 0, 0)), compiler_options=ONCE)(errand, starts, levels))

    def step(errand, key, state, level, action):
        ts = env.step(key, state, action, params)
        left = bound(errand, ts.state, level)
        return ts.state, hashed(ts.state, level), ts.reward, ts.terminated, ts.truncated, ts.state.time + left

    batch = jax.jit(jax.vmap(jax.vmap(step, (None, None, None, None, 0)), (None, None, 0, 0, None)))

    def stepped(states, levels, key=keys[0]):
        """What all actions lead to, state by state."""
        n, padded = levels.size, np.resize(np.arange(levels.size), CHUNK)
        found = batch(errand, key, jax.tree.map(lambda x: x[padded], states), levels[padded], actions)
        return jax.tree.map(lambda x: np.asarray(x)[:n].reshape(n * actions.size, *x.shape[2:]), found)

    if not all(map(np.array_equal, *(jax.tree.leaves(stepped(starts, levels, key)) for key in keys[:2]))):
        return print(f"{id}: steps are random")

    best, returns, seen, queue = np.full(LEVELS, FAR), np.zeros(LEVELS), Table(2 * MOST), Queue()
    stepped_states = reached = 0
    # In the order of how much the bound of all steps has risen since the start, the levels are searched side by side.
    queue.put(Rows(starts, levels, 1 + levels.astype(np.uint64)), 0 * levels)
    while queue.parts:
        risen, rows = queue.take()
        now = np.unique(rows.number, return_index=True)[1]
        now = now[risen + first[rows.level[now]] < best[rows.level[now]]]
        now = now[seen.new(rows.number[now])]
        if not now.size:
            continue
        stepped_states += now.size
        states, (high, low), reward, terminated, truncated, least = stepped(
            jax.tree.map(lambda x, now=now: x[now], rows.state), rows.level[now]
        )
        levels = np.repeat(rows.level[now], actions.size)
        if np.any((reward != 0) & ~terminated) or np.any(reward < 0):
            return print(f"{id}: not only success has a reward")
        for i in np.flatnonzero(reward):
            if states.time[i] < best[levels[i]]:
                best[levels[i]], returns[levels[i]] = states.time[i], reward[i]
        numbers = high.astype(np.uint64) << np.uint64(32) | low
        going = np.flatnonzero(~terminated & ~truncated & (least < best[levels]))
        if np.any((least - first[levels])[going] < risen):
            raise AssertionError(f"{id}: the bound fell along a path")
        # A state is stepped once, when it comes first, but waits once for each time at which it may.
        going = going[seen.new(numbers[going], store=False)]
        timed = numbers[going] ^ np.uint64(0x9E3779B97F4A7C15) * states.time[going].astype(np.uint64)
        timed, once = np.unique(timed, return_index=True)
        going = going[once[seen.new(timed)]]
        reached += going.size
        if reached > MOST:
            return print(f"{id}: {MOST} states were not enough for {np.sum(best == FAR)} of {LEVELS} starts")
        rows = Rows(jax.tree.map(lambda x, going=going: x[going], states), levels[going], numbers[going])
        queue.put(rows, (least - first[levels])[going])
    return {"returns": returns, "steps": np.where(best == FAR, -1, best), "states": stepped_states}
