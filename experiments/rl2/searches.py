"""The best first trial of the tasks of `adapting.py`, by dynamic programming over what the policy can know.

`best_pulls`: bandits, exactly. `best_search`: rule worlds, for who sees the whole room and what is in hand, while the
policy sees 3 x 3 cells: so it is a bound that the policy may not reach.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def best_pulls(arms: int, pulls: int) -> float:
    """The largest expected sum of so many pulls of Bernoulli arms whose means are uniform and unknown.

    A state is how often each arm paid and did not. The order of the arms does not matter, so it is sorted.
    """
    pairs = [(wins, n - wins) for n in range(pulls + 1) for wins in range(n + 1)]
    number = {pair: i for i, pair in enumerate(pairs)}
    none = len(pairs)  # beyond the last pull
    won = np.array([number.get((a + 1, b), none) for a, b in pairs])
    lost = np.array([number.get((a, b + 1), none) for a, b in pairs])
    mean = np.array([(a + 1) / (a + b + 2) for a, b in pairs])
    base = (len(pairs) + 1) ** np.arange(arms)

    def changed(states: np.ndarray, arm: int, to: np.ndarray) -> np.ndarray:
        new = states.copy()
        new[:, arm] = to[states[:, arm]]
        return np.sort(new, 1) @ base

    levels = [np.zeros((1, arms), np.int64)]
    for _ in range(pulls - 1):
        codes = np.unique(np.concatenate([changed(levels[-1], i, to) for i in range(arms) for to in (won, lost)]))
        levels.append(codes[:, None] // base % (len(pairs) + 1))
    value, codes = np.zeros(1), None
    for states in reversed(levels):
        worth = []
        for arm in range(arms):
            p = mean[states[:, arm]]
            after = [
                np.zeros(1) if codes is None else value[np.searchsorted(codes, changed(states, arm, to))]
                for to in (won, lost)
            ]
            worth.append(p + p * after[0] + (1 - p) * after[1])
        value, codes = np.max(worth, 0), states @ base  # np.unique has sorted them
    return float(value[0])


def best_search(env: Any, params: Any, layouts: int = 4096, known: bool = False) -> float:
    """What the first trial of a rule world is worth to who knows the rulesets of `params` but not which of them holds
    (with `known`: also this), and sees the whole room and what is in hand: the mean over `layouts` first states."""
    world, limit, rulesets = env.env, int(params.trial_steps), params.ruleset
    count = len(rulesets.goal)
    level = jax.tree.map(lambda x: x[0], rulesets)
    keys = jax.random.split(jax.random.key(98), layouts)
    first = jax.vmap(world.initial, (0, None))(keys, params.replace(ruleset=level))
    rules = jax.vmap(lambda one: world.initial(keys[0], params.replace(ruleset=one)).rules)(rulesets)

    def after(state: Any) -> Any:
        """Of each ruleset and action."""

        def one(rules: Any, action: Any) -> Any:
            moved = world.transition(keys[0], state.replace(rules=rules), action, params)
            new = moved.state
            return (new.grid, new.position, new.direction, new.pocket), moved.terminated

        return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(rules, jnp.arange(6))

    step = jax.jit(jax.vmap(after))

    def rows(grid: Any, *rest: Any) -> np.ndarray:
        grid = np.asarray(grid).reshape(-1, grid.shape[-1])
        grid = np.where(grid >> 4 == 1, 16, grid)  # the colour of the floor does not matter
        return np.concatenate([grid, *(np.asarray(x, np.uint8).reshape(-1, 1) for x in rest)], 1)

    def names(x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(x).view(f"V{x.shape[1]}").ravel()

    # All states that any of the rulesets leads to, and where each action leads from there.
    found: dict[bytes, int] = {}
    table: list[np.ndarray] = []

    def numbered(x: np.ndarray) -> np.ndarray:
        unique, index, back = np.unique(names(x), return_index=True, return_inverse=True)
        numbers = np.empty(len(unique), np.int64)
        for i, name in enumerate(unique.tolist()):
            if name not in found:
                found[name] = len(table)
                table.append(x[index[i]])
            numbers[i] = found[name]
        return numbers[back.ravel()]

    begins = numbered(rows(first.grid, first.position, first.direction, first.pocket))
    leads, size = [], 4096
    done = 0
    while done < len(table):
        part = np.array(table[done : done + size])
        here = len(part)
        part = np.concatenate([part, np.repeat(part[-1:], size - here, 0)])
        state = jax.tree.map(lambda x: jnp.broadcast_to(x[0], (size, *x.shape[1:])), first)
        grid, position, direction, pocket = part[:, :-3], *part[:, -3:].astype(np.int32).T
        (new, ended) = step(state.replace(grid=grid, position=position, direction=direction, pocket=pocket))
        to = numbered(rows(*new)).reshape(size, count, 6)
        leads.append(np.where(np.asarray(ended), -1, to)[:here])
        done += here
    to = np.concatenate(leads)  # (states, rulesets, actions); -1: the goal

    # What may be known there: which rulesets still fit, a set as the bits of a number.
    bits = 1 << np.arange(count)
    start = np.array([[s, b] for s in begins for b in (bits if known else [bits.sum()])])
    base = 1 << count
    code = lambda s, b: s * base + b  # noqa: E731
    everything = front = np.unique(code(*start.T))

    def outcomes(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(nodes, actions, rulesets): the node after, -1 for the goal; and the chance, for one ruleset of each group
        that ends alike."""
        state, fits = codes // base, codes % base
        inside = fits[:, None] & bits > 0  # (nodes, rulesets)
        after = to[state].swapaxes(1, 2)  # (nodes, actions, rulesets)
        same = (after[..., None] == after[..., None, :]) & inside[:, None, None, :]
        leads = np.argmax(same, -1) == np.arange(count)  # the first of its group
        chance = np.where(leads & inside[:, None], same.sum(-1), 0) / inside.sum(1)[:, None, None]
        return np.where(after < 0, -1, code(after, same @ bits)), chance

    while len(front):
        nodes, chance = outcomes(front)
        new = np.unique(nodes[(chance > 0) & (nodes >= 0)])
        front = np.setdiff1d(new, everything, assume_unique=True)
        everything = np.union1d(everything, front)
    nodes, chance = outcomes(everything)
    at = np.searchsorted(everything, np.maximum(nodes, everything[0])).clip(0, len(everything) - 1)
    value = np.zeros(len(everything))
    for time in range(limit, 0, -1):
        value = (chance * np.where(nodes < 0, 1 - 0.9 * time / limit, value[at])).sum(-1).max(-1)
    return float(value[np.searchsorted(everything, code(*start.T))].mean())
