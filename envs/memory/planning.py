"""Tasks of this family as finite POMDPs, for `jaxrl.exact.pomdp`: what the best use of memory is worth.

Each function returns the POMDP and what an episode starts in: observed states and beliefs, the first observation being
counted in. Time limits are left out.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.exact.pomdp import Pomdp

from . import compass_world
from .compass_world import CompassWorld
from .rock_sample import CHECK, SAMPLE, Params, RockSample, accuracy


class Planned(NamedTuple):
    """A POMDP and its starts: observed states (R,), and beliefs (R, Y) whose rows sum to the chance of each."""

    pomdp: Pomdp
    roots: np.ndarray
    beliefs: np.ndarray


def rock_sample(env: RockSample, params: Params) -> Planned:
    """The rover's cell is observed, which rocks are good is hidden. Exponential in the number of rocks."""
    k, width = env.num_rocks, env.columns - 1
    cells = list(itertools.product(range(env.rows), range(width)))
    goods = np.array(list(itertools.product((False, True), repeat=k)))
    rocks = [tuple(rock) for rock in np.asarray(params.rocks).tolist()]
    places = jnp.array(cells)
    chance = np.asarray(jax.vmap(lambda p: accuracy(p, params.rocks, params.half_distance))(places), float)
    good, bad, leaving = (float(x) for x in (params.good_reward, params.bad_reward, params.exit_reward))
    hidden, actions = len(goods), CHECK + k
    reward = np.zeros((len(cells), actions, hidden))
    successor = np.tile(np.arange(len(cells))[:, None, None], (1, actions, 2))
    kernel = np.zeros((len(cells), actions, 2, hidden, hidden))  # of good, and of bad or nothing
    powers = 2 ** np.arange(k)[::-1]
    for x, (row, column) in enumerate(cells):
        for a, (down, right) in enumerate(((-1, 0), (0, 1), (1, 0), (0, -1))):
            to = min(max(row + down, 0), env.rows - 1), max(column + right, 0)
            if to[1] == width:
                reward[x, a] = leaving
            else:
                successor[x, a] = to[0] * width + to[1]
                kernel[x, a, 1] = np.eye(hidden)
        after = goods.copy()
        if (row, column) in rocks:
            rock = rocks.index((row, column))
            reward[x, SAMPLE] = np.where(goods[:, rock], good, bad)
            after[:, rock] = False
        kernel[x, SAMPLE, 1, np.arange(hidden), after @ powers] = 1
        for rock in range(k):
            seen = np.where(goods[:, rock], chance[x, rock], 1 - chance[x, rock])
            kernel[x, CHECK + rock, 0] = np.diag(seen)
            kernel[x, CHECK + rock, 1] = np.diag(1 - seen)
    start = np.asarray(params.start)
    where = [x for x, cell in enumerate(cells) if np.all((start < 0) | (start == cell))]
    return Planned(
        Pomdp(reward, successor, kernel), np.array(where), np.full((len(where), hidden), 1 / hidden / len(where))
    )


def compass(env: CompassWorld, params: compass_world.Params) -> Planned:
    """Place and heading are hidden: all states but the goal, which ends the episode."""
    inner = range(1, env.size - 1)
    table = np.array([s for s in itertools.product(inner, inner, range(4)) if s != (1, 1, compass_world.WEST)])
    number = {tuple(state): n for n, state in enumerate(table.tolist())}
    state = compass_world.State(jnp.zeros(len(table), jnp.int32), *jnp.asarray(table, jnp.int32).T)
    seen = np.asarray(jax.vmap(lambda s: compass_world.colours(s, env.size))(state))
    reward, kernel = np.zeros((1, 3, len(table))), np.zeros((1, 3, 5, len(table), len(table)))
    for action in range(3):
        to = jax.vmap(lambda s, a=action: compass_world.dynamics(s, jnp.int32(a), env.size))(state)
        shown = np.asarray(jax.vmap(lambda s: compass_world.colours(s, env.size))(to))
        for n, key in enumerate(np.stack([to.row, to.column, to.heading], 1).tolist()):
            if shown[n, 4]:
                reward[0, action, n] = float(params.goal_reward)
            else:
                kernel[0, action, _colour(shown[n]), n, number[tuple(key)]] = 1
    first = np.array([_colour(s) for s in seen])
    beliefs = np.stack([(first == o) / len(table) for o in range(5)])
    pomdp = Pomdp(reward, np.zeros((1, 3, 5), int), kernel)
    return Planned(pomdp, np.zeros(5, int), beliefs)


def _colour(seen: np.ndarray) -> int:
    """0 to 3 for orange to blue, 4 for none."""
    return int(np.argmax(seen[:4])) if seen[:4].any() else 4
