"""Small tables with a reward linear in features: random ones, and a grid with a small reward near, a large one far."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrl.exact.mdp import DenseMDP

GAMMA = 0.9
SIDE = 4  # of the grid
RESTART = 0.05  # chance of a step of the grid to begin again
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


class Task(NamedTuple):
    mdp: DenseMDP  # with the true reward
    features: jnp.ndarray  # (S, A, F)
    tau: float = 1.0  # temperature of the policy that acts


def random_table(seed, states=20, actions=3, features=8, branches=3):
    """Transitions to a few states of each pair, normal features, and a true reward of deviation 1."""
    rng = np.random.default_rng(seed)
    transition = np.zeros((states, actions, states))
    for s, a in np.ndindex(states, actions):
        transition[s, a, rng.choice(states, branches, replace=False)] = rng.dirichlet(np.ones(branches))
    x, w = rng.normal(size=(states, actions, features)), rng.normal(size=features)
    return of_arrays(transition, x, w / (x @ w).std(), np.ones(states) / states)


def grid(seed):
    """A feature for each cell. Amid one side it starts; a near corner pays 1, a far one 3, other cells noise of 0.2."""
    rng, cells = np.random.default_rng(seed), SIDE * SIDE
    transition, start = np.zeros((cells, 4, cells)), np.eye(cells)[SIDE // 2]
    for s, a in np.ndindex(cells, 4):
        to = np.clip(np.array(divmod(s, SIDE)) + MOVES[a], 0, SIDE - 1)
        transition[s, a] = RESTART * start
        transition[s, a, to[0] * SIDE + to[1]] += 1 - RESTART
    true = 0.2 * rng.normal(size=cells)
    true[rng.choice([0, SIDE - 1])], true[cells - 1 - rng.choice([0, SIDE - 1])] = 1, 3  # corners
    return of_arrays(transition, np.repeat(np.eye(cells)[:, None], 4, 1), true, start)


def of_arrays(transition, features, weights, initial):
    transition, features, reward, initial = (
        jnp.asarray(x, jnp.float32) for x in (transition, features, features @ weights, initial)
    )
    return Task(DenseMDP(transition, reward, initial), features)


TASKS = {
    "random": random_table,
    "grid": grid,
    "random, sharp": lambda seed: random_table(seed)._replace(tau=0.3),
}
