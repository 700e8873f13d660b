"""The MDPs of the study, each (MDP, T) with 2 or 4 actions, and the environment that they all run in."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.bsuite.deep_sea import DeepSea
from jaxrl.envs.tabular.chains.chain import Chain
from jaxrl.envs.tabular.chains.delayed_chain import DelayedChain
from jaxrl.envs.tabular.chains.river_swim import RiverSwim
from jaxrl.envs.tabular.chains.two_step_tree import TwoStepTree
from jaxrl.envs.tabular.garnet import garnet
from jaxrl.envs.tabular.grids.cliff_walking import CliffWalking
from jaxrl.envs.tabular.grids.frozen_lake import FrozenLake
from jaxrl.envs.tabular.grids.two_goal_grid import TwoGoalGrid
from jaxrl.exact.mdp import MDP, Table, sticky, tabulate
from jaxrl.spaces import Dict, Discrete

ACTIONS = 4
HORIZON = 20  # the longest

MAZES = {
    "empty 5x5": ("S....", ".....", ".....", ".....", "....G"),
    "four rooms 7x7": ("S..#...", "...#...", ".......", "##.#.##", "...#...", ".......", "...#..G"),
    "corridor 5x5": ("S....", "####.", ".....", ".####", "....G"),
    "detour 6x6": ("S.....", ".####.", ".#..#.", ".#.##.", ".#....", ".####G"),
}


def listed(initial, *columns):
    """An MDP of one outcome a pair from (S, A) columns: next state, reward, terminated."""
    next_state, reward, terminated = (np.asarray(x)[..., None] for x in columns)
    start = np.zeros(len(next_state), np.float32)
    start[initial] = 1
    ones = np.ones(next_state.shape, np.float32)
    return MDP(ones, next_state.astype(np.int32), reward.astype(np.float32), terminated.astype(bool), start)


def maze(lines, shaped=False):
    """Up, right, down, left; 1 at G, the end. `shaped` adds 0.1 for each step nearer to G, in Manhattan distance."""
    tiles = np.array([list(line) for line in lines])
    rows, columns = tiles.shape
    goal = np.argwhere(tiles == "G")[0]
    next_state, bonus = np.zeros((2, tiles.size, 4))
    for s in range(tiles.size):
        for a, way in enumerate(((-1, 0), (0, 1), (1, 0), (0, -1))):
            here = np.array(divmod(s, columns))
            to = np.clip(here + way, 0, [rows - 1, columns - 1])
            to = here if tiles[tuple(to)] == "#" else to
            next_state[s, a] = to[0] * columns + to[1]
            bonus[s, a] = 0.1 * (np.abs(here - goal).sum() - np.abs(to - goal).sum())
    end = next_state == goal[0] * columns + goal[1]
    return listed(int(np.flatnonzero(tiles == "S")[0]), next_state, end + shaped * bonus, end)


def lock(length, actions, forgiving=False):
    """Of `length` digits, 1 for the last; a wrong one ends the episode or, `forgiving`, leads back to the start."""
    digits = np.random.default_rng(length).integers(0, actions, (length, 1))
    s, right = np.arange(length)[:, None], np.arange(actions) == digits
    last = s == length - 1
    forward = np.where(last, s, s + 1)
    return listed(0, np.where(right, forward, 0), right & last, (right & last) | (~right & (not forgiving)))


def ours(env, limit, **params):
    return tabulate(env, env.default_params.replace(**params)), limit


def tasks():
    """Name -> (MDP, T). Those whose every probability is 1 are deterministic."""
    out = {name: (maze(lines), 20) for name, lines in MAZES.items()}
    out |= {f"{name}, shaped": (maze(MAZES[name], True), 20) for name in list(MAZES)[:3]}
    out |= {f"lock {n}, {a} actions": (lock(n, a), n) for n, a in ((3, 4), (5, 4), (5, 2), (10, 2))}
    out |= {f"forgiving lock {n}, {a} actions": (lock(n, a, True), 20) for n, a in ((3, 4), (4, 2), (6, 2))}
    out |= {f"deep sea {n}": ours(DeepSea(n), n) for n in (4, 6, 8)}
    out["cliff walking 3x5"] = ours(CliffWalking(3, 5), 10, fall_reward=-10.0)
    out["cliff walking 4x6"] = ours(CliffWalking(4, 6), 20, fall_reward=-10.0)
    out["frozen lake 4x4"] = ours(FrozenLake(slippery=False), 10)
    out["frozen lake 8x8"] = ours(FrozenLake(8, 8, slippery=False), 20)
    out["two goals 5x5"] = ours(TwoGoalGrid(), 10)
    out["two goals 7x7"] = ours(TwoGoalGrid(7), 20)
    out["chain 5"] = ours(Chain(), 20, slip=jnp.float32(0))
    out["two-step tree"] = ours(TwoStepTree(), 10)
    out["delayed chain 5"] = ours(DelayedChain(5), 10, length=jnp.int32(5))
    out["delayed chain 15"] = ours(DelayedChain(15), 20, length=jnp.int32(15))
    for seed, branching in ((0, 1), (1, 1), (2, 2), (3, 4)):
        out[f"garnet {seed}, branching {branching}"] = garnet(jax.random.key(seed), 20, 4, branching), 10
    out["river swim"] = ours(RiverSwim(), 20)
    out["slippery frozen lake 4x4"] = ours(FrozenLake(), 20)
    out["chain 5, slips"] = ours(Chain(), 20)
    return out


def uniform_shape(mdp, states=64, outcomes=4):
    """Padded by states out of reach and outcomes of probability 0; rewards divided by the largest."""
    mdp = jax.tree.map(np.asarray, mdp)
    S, _, K = mdp.probability.shape
    S, K = states - S, outcomes - K
    table = [np.pad(x, ((0, S), (0, 0), (0, K))) for x in jax.tree.leaves(mdp.replace(initial=None))]
    table[0][states - S :, :, 0] = 1
    table[2] = table[2] / np.abs(table[2]).max()
    return MDP(*map(jnp.asarray, table), initial=jnp.asarray(np.pad(mdp.initial, (0, S))))


def four_actions(mdp):
    """Two actions, each twice: what a random policy does stays the same."""
    return jax.tree.map(lambda x: jnp.concatenate([x] * (ACTIONS // x.shape[1]), 1) if x.ndim > 1 else x, mdp)


def study():
    """`(names, horizons, sticky, deterministic, mdps)`: each deterministic task without and with sticky actions."""
    rows = []
    for name, (mdp, limit) in tasks().items():
        certain = bool(np.all((mdp.probability == 0) | (mdp.probability == 1)))
        mdp = uniform_shape(mdp)
        rows.append((name, limit, certain, sticky(mdp, 0.0), sticky(four_actions(mdp), 0.0)))
        if certain:
            rows.append((f"{name}, sticky", limit, False, sticky(mdp, 0.25), sticky(four_actions(mdp), 0.25)))
    return rows


@dataclasses.dataclass(frozen=True)
class Seen(Table):
    """A sticky table whose agent sees state, previous action and time apart."""

    def observe(self, key, state, params):
        return view(state.index, state.time)

    def observation_space(self, params):
        states = self.num_states // (ACTIONS + 1)
        return Dict({"state": Discrete(states), "previous": Discrete(ACTIONS + 1), "time": Discrete(HORIZON)})


def view(index, time):
    """The observation of a state's index at a time."""
    state, previous = index // (ACTIONS + 1), index % (ACTIONS + 1)
    return {"state": state, "previous": previous, "time": jnp.minimum(time, HORIZON - 1)}
