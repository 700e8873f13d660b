"""The best first trials that experiments/rl2 prints beside its policies, against shorter ways to the same numbers."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture(scope="module")
def study(of_study):
    return of_study("rl2", "searches", "tasks")


@cache
def pulled(state: tuple, left: int) -> float:
    """The best sum of `left` more pulls, by recursion over (wins, losses) of each arm."""

    def after(i: int, won: bool) -> tuple:
        wins, losses = state[i]
        return (*state[:i], (wins + won, losses + (not won)), *state[i + 1 :])

    if not left:
        return 0.0
    chances = [(wins + 1) / (wins + losses + 2) for wins, losses in state]
    return max(
        p * (1 + pulled(after(i, True), left - 1)) + (1 - p) * pulled(after(i, False), left - 1)
        for i, p in enumerate(chances)
    )


def in_parts(function: Any, states: Any, size: int = 4096) -> Any:
    """A jitted function of `size` states, of any number of them."""
    number = len(jax.tree.leaves(states)[0])

    def part(begin: int) -> Any:
        rows = np.minimum(np.arange(begin, begin + size), number - 1)
        return function(jax.tree.map(lambda x: np.asarray(x)[rows], states))

    parts = [part(begin) for begin in range(0, number, size)]
    return jax.tree.map(lambda *x: np.concatenate(x)[:number], *parts)


def known_rules(env: Any, params: Any, layouts: int) -> float:
    """What a trial is worth to who knows the rules and sees the whole room: searched breadth first from `layouts` first
    states."""
    world, limit = env.env, int(params.trial_steps)
    keys = jax.random.split(jax.random.key(98), layouts)
    levels = jax.vmap(env.generate, (0, None))(keys, params)

    def after(state):
        moved = jax.vmap(lambda action: world.transition(keys[0], state, action, params))(jnp.arange(6))
        return moved.state.replace(trial_time=jnp.zeros(6, jnp.int32)), moved.terminated

    states, which, step = jax.vmap(world.initial)(keys, levels), np.arange(layouts), jax.jit(jax.vmap(after))
    fewest, seen = np.full(layouts, limit / 0.9), np.empty(0, "V33")
    for time in range(1, limit + 1):
        states, found = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), in_parts(step, states))
        which = np.repeat(which, 6)
        fewest[which[found]] = time
        names = [which.astype(">u4").view(np.uint8).reshape(-1, 4), states.grid]
        names += [np.asarray(x, np.uint8)[:, None] for x in (states.position, states.direction, states.pocket)]
        names = np.ascontiguousarray(np.concatenate(names, 1)).view("V33").ravel()
        new = np.unique(names, return_index=True)[1]
        new = new[~np.isin(names[new], seen) & ~np.isin(which[new], which[found])]
        if not len(new):
            break
        seen, which = np.concatenate([seen, names[new]]), which[new]
        states = jax.tree.map(lambda x, rows=new: x[rows], states)
    return float(np.mean(1 - 0.9 * fewest / limit))


@pytest.mark.parametrize(("arms", "pulls"), [(1, 3), (2, 2), (2, 5), (3, 4)])
def test_best_pulls_of_bandits(study, arms, pulls):
    assert study[0].best_pulls(arms, pulls) == pytest.approx(pulled(((0, 0),) * arms, pulls))


def test_two_pulls_of_two_arms(study):
    # The first pays 1/2; if it paid it pays 2/3 again, if not the other one pays 1/2.
    assert study[0].best_pulls(2, 2) == pytest.approx(1 / 2 + 1 / 2 * 2 / 3 + 1 / 2 * 1 / 2)


def test_the_best_search_of_a_rule_world_is_a_walk_to_the_thing_where_the_rule_is_known(study):
    searches, tasks = study
    task = tasks.tasks()["one rule, 2 things"]
    one = task.params.replace(ruleset=jax.tree.map(lambda x: x[:1], task.params.ruleset))
    found = searches.best_search(task.env, one, 8)
    assert found == pytest.approx(known_rules(task.env, one, 8), abs=1e-6)
    assert searches.best_search(task.env, task.params, 8) < searches.best_search(task.env, task.params, 8, known=True)


@pytest.mark.parametrize(("name", "size"), [("corridor, 2 ends", 1), ("room, 4 corners", 5), ("room, 24 cells", 5)])
def test_no_round_of_a_room_is_shorter(study, name, size):
    """Searched breadth first over (cell, goals seen): the smallest mean step with which goals are entered."""
    task = study[1].tasks()[name]
    room, limit = task.env, task.limit
    if len(room.goals) > 4:  # a new cell with each step cannot be beaten
        assert task.first == pytest.approx(1 - 0.9 * np.arange(1, 25).mean() / limit)
        return

    @cache
    def lost(cell: int, seen: frozenset, left: int) -> float:
        """Steps still waited for, over all goals not seen."""
        if not left or len(seen) == len(room.goals):
            return 0.0
        waiting, best = len(room.goals) - len(seen), np.inf
        row, column = divmod(cell, room.width)
        for down, right in ((-1, 0), (0, 1), (1, 0), (0, -1)):
            if 0 <= row + down < room.height and 0 <= column + right < room.width:
                new = (row + down) * room.width + column + right
                best = min(best, lost(new, seen | ({new} & set(room.goals)), left - 1))
        return waiting + best

    total = lost(room.start, frozenset(), limit)
    assert task.first == pytest.approx(1 - 0.9 * total / len(room.goals) / limit)


def test_darkroom_search(study):
    # A step enters one cell at most, and a goal entered with step t pays 101 - t; staying at first looks at the start.
    task = study[1].tasks()["Darkroom-v0"]
    assert task.first == np.mean(101 - np.arange(1, 101))
    assert float(jnp.mean(jax.vmap(lambda goal: task.best(task.params.replace(goal=goal)))(jnp.arange(100)))) == (
        pytest.approx(np.mean([101 - max(i // 10 + i % 10, 1) for i in range(100)]))
    )
