"""Random grids as data, policies in them, and pairs of segments with labels: what `run.py` learns rewards from.

A grid has 3, 6, 10 or 15 rows and 5, 6 or 10 columns, and the cells of the random MDPs that Knox et al. (2024),
"Learning optimal advantage from preferences and mistaking it for reward", generate: sheep and one goal end an episode,
coins and roadblocks lie about. Features of a step, by the cell that is reached: it ends nowhere, goal, sheep, coin,
roadblock; a move against the border costs a step and finds nothing. All grids are padded to 150 cells, so that they are
one array; the cells beyond are never reached.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.exact.mdp import MDP
from jaxrl.exact.preference_rewards import Segments
from jaxrl.exact.solvers import value_iteration

CELLS, FEATURES, ACTIONS, LENGTH, GAMMA = 150, 5, 4, 3, 0.999
EMPTY, GOAL, SHEEP, COIN, BLOCK = range(5)
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
RANDOM_REWARDS = np.array([50, -50, 1, -1, -2, 0, -10, 10, 5.0])


def grid(seed):
    """`{name: array}` of one grid: true weights, where moves lead, their features, ends and the first states."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.choice([3, 6, 10, 15]), rng.choice([5, 6, 10])
    sheep, block, coin = rng.choice([0, 0.1, 0.3]), rng.choice([0, 0.1, 0.5, 0.8]), rng.choice([0, 0.1, 0.2])
    while sheep + block >= 1:
        block = rng.choice([0, 0.1, 0.5, 0.8])
    while sheep + block + coin >= 1:
        coin = rng.choice([0, 0.1, 0.2])
    size = rows * columns
    kinds, at = np.full(size, EMPTY), 0
    order = rng.permutation(size)
    for kind, share in ((SHEEP, sheep), (BLOCK, block), (COIN, coin)):
        count = int(share * size)
        kinds[order[at : at + count]], at = kind, at + count
    kinds[rng.integers(size)] = GOAL
    goal, eaten, blocked = rng.choice([0, 1, 5, 10, 50]), rng.choice([-5, -10, -50, -100]), rng.choice([-2, -5, -10])
    cell = np.stack(np.divmod(np.arange(size), columns), 1)
    to = cell[:, None] + MOVES
    inside = ((to >= 0) & (to < (rows, columns))).all(-1)
    after = np.where(inside, to[..., 0] * columns + to[..., 1], np.arange(size)[:, None])
    ends = np.isin(kinds, (GOAL, SHEEP))
    found = np.eye(FEATURES)[kinds[after]]
    found[..., EMPTY] = ~ends[after]  # coins and roadblocks lie on a cell that costs its step, too
    found[~inside] = np.eye(FEATURES)[EMPTY]
    found[ends], after[ends] = 0, np.flatnonzero(ends)[:, None]
    pad = CELLS - size
    return {
        "weights": np.array([-1, goal, eaten, 1, blocked], np.float64),
        "after": np.concatenate([after, np.arange(size, CELLS)[:, None].repeat(ACTIONS, 1)]).astype(np.int32),
        "features": np.concatenate([found, np.zeros((pad, ACTIONS, FEATURES))]),
        "ends": np.append(ends, np.ones(pad, bool)),
        "initial": np.append(~ends, np.zeros(pad)) / (~ends).sum(),
    }


def mdp_of(grid, weights):
    """The table of a reward."""
    reward = (grid["features"] @ weights)[..., None]
    ends = jnp.broadcast_to(grid["ends"][grid["after"]][..., None] | grid["ends"][:, None, None], reward.shape)
    return MDP(jnp.ones_like(reward), grid["after"][..., None], reward, ends, grid["initial"])


def greedy(grid, weights, sweeps=20_000):
    """The best policy for a reward, whose scale is of no account, and its value."""
    scale = jnp.maximum(jnp.max(jnp.abs(weights)), 1e-9)
    found = value_iteration(mdp_of(grid, weights / scale), GAMMA, 1e-7, sweeps)
    return found.policy, found.value * scale


def successor_features(grid, policy):
    """(S, F) of a policy, by doubling: the features of 2^15 steps, after which gamma^t is 6e-15."""
    at = jnp.arange(CELLS)
    after, total, discount = grid["after"][at, policy], grid["features"][at, policy], GAMMA
    for _ in range(15):
        total, after, discount = total + discount * total[after], after[after], discount**2
    return total


def policies(key, grid, count=100):
    """Successor features (P, S, F) of the best policies for random rewards, none of them the true reward's best."""
    reward = jax.random.choice(key, jnp.asarray(RANDOM_REWARDS), (count, FEATURES))
    found = jax.lax.map(lambda w: successor_features(grid, greedy(grid, w, 400)[0]), reward, batch_size=10)
    true = successor_features(grid, greedy(grid, grid["weights"])[0])
    same = jnp.max(jnp.abs(found - true), (1, 2)) < 1e-6
    return found[jnp.where(same, jnp.argmin(same), jnp.arange(count))].astype(jnp.float32)  # another in their place


def segments(key, grid, count, crossing):
    """Pairs of segments of random actions from random states; `crossing`: an end may be followed by nothing at all."""
    start_key, action_key = jax.random.split(key)
    drawn = 2 * count if crossing else 12 * count
    first = jax.random.choice(start_key, CELLS, (drawn,), p=grid["initial"]).astype(jnp.int32)
    state, total, early = first, jnp.zeros((drawn, FEATURES)), jnp.zeros(drawn, bool)
    for t, action in enumerate(jax.random.randint(action_key, (LENGTH, drawn), 0, ACTIONS)):
        early |= grid["ends"][state]
        total, state = total + GAMMA**t * grid["features"][state, action], grid["after"][state, action]
    kept = jnp.arange(drawn) if crossing else jnp.argsort(early, stable=True)[: 2 * count]
    ended = grid["ends"][state[kept]]
    parts = (x[kept].reshape(count, 2, *x.shape[1:]) for x in (total, first, state))
    return Segments(*parts, ended.reshape(count, 2), jnp.asarray(GAMMA**LENGTH)), jnp.sum(early[kept])
