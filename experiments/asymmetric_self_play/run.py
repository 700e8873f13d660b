"""Does a player who is paid for the other's trouble propose better goals than a random walk? Alice and Bob in a maze.

    python experiments/asymmetric_self_play/run.py

Writes results.json beside this file and prints the table of README.md.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told

HERE = Path(__file__).parent
SEEDS, LOOKS = 5, 50
SIZE = 21  # of the maze
MOST = 100  # steps of Alice's and of Bob's
LEARNING_RATE, EXPLORE = 0.1, 0.05  # Alice's; Bob's share of random actions
FIRST = 20  # steps after which Alice stops at first, in the mean
ROUNDS = {"self-play": 15_000, "random walk": 100_000, "any cell": 12_500}
"""Rounds in which Bob takes 750,000 steps, by who proposes the goals: Alice, who learns; a walk of MOST random steps;
a draw among all cells, which nobody would know beforehand.
"""
BUDGETS = 250_000, 500_000, 750_000  # steps of Bob's


def maze():
    """`(next_state (S, 4), start, distance (S,))` of the open cells of a random maze, from its first one."""
    env, params = jaxrl.make("ProcMaze-v0", size=SIZE)
    walls = np.asarray(env.levels.generate(jax.random.key(0), params).walls)
    cells = [tuple(cell) for cell in np.argwhere(~walls)]
    moves = [(-1, 0), (0, -1), (1, 0), (0, 1)]
    after = [[(row + i, column + j) for i, j in moves] for row, column in cells]
    step = np.array([[cells.index(x if x in cells else cells[n]) for x in row] for n, row in enumerate(after)])
    distance = np.where(np.arange(len(cells)) == 0, 0, np.inf)
    for depth in range(len(cells)):
        new = step[distance == depth].ravel()
        distance[new[np.isinf(distance[new])]] = depth + 1
    return jnp.asarray(step), 0, distance


def play(key, arm, step, start, distance):
    """After each of LOOKS parts of the rounds: Bob's steps to each cell (LOOKS, S), greedily, MOST where he does not
    arrive; the steps of his learning in that part (LOOKS,); how far away its goals were, in the mean (LOOKS,).
    """
    num_states, num_actions = step.shape

    def alice(key, logits):
        """Where she stops, after how many steps, and the slope of the log-probability of all that she did."""

        def move(carry, key):
            state, walked, going, slope = carry
            action = jax.random.categorical(key, logits[state])
            moves = going & (action < num_actions)
            taken = jax.nn.one_hot(action, num_actions + 1) - jax.nn.softmax(logits[state])
            slope = slope.at[state].add(going * taken)
            state = jnp.where(moves, step[state, jnp.minimum(action, num_actions - 1)], state)
            return (state, walked + moves, moves, slope), None

        first = start, 0, jnp.bool_(True), jnp.zeros_like(logits)
        return jax.lax.scan(move, first, jax.random.split(key, MOST))[0]

    def bob(key, q, goal):
        """Steps until he is there, and what he has learned: Q-learning, -1 a step, from values of 0."""

        def move(carry, key):
            state, walked, q = carry
            keys = jax.random.split(key)
            greedy = jnp.argmax(q[goal, state] + 1e-3 * jax.random.uniform(keys[0], (num_actions,)))
            other = jax.random.randint(keys[1], (), 0, num_actions)
            action = jnp.where(jax.random.uniform(key) < EXPLORE, other, greedy)
            after, away = step[state, action], state != goal
            target = -1 + jnp.where(after == goal, 0, q[goal, after].max())
            q = q.at[goal, state, action].set(jnp.where(away, target, q[goal, state, action]))
            return (jnp.where(away, after, state), walked + away, q), None

        return jax.lax.scan(move, (start, 0, q), jax.random.split(key, MOST))[0]

    def one_round(carry, key):
        logits, baseline, q = carry
        keys = jax.random.split(key, 3)
        goal, walked, _, slope = alice(keys[0], logits)
        if arm == "any cell":
            goal = jax.random.randint(keys[2], (), 1, num_states)
        _, needed, q = bob(keys[1], q, goal)
        reward = jnp.maximum(0, needed - walked) / MOST
        if arm == "self-play":
            logits = logits + LEARNING_RATE * (reward - baseline) * slope
        return (logits, baseline + 0.01 * (reward - baseline), q), (needed, goal)

    def judged(q):
        def move(carry, _):
            state, walked = carry
            away = state != jnp.arange(num_states)
            action = jnp.argmax(q[jnp.arange(num_states), state], -1)
            return (jnp.where(away, step[state, action], state), walked + away), None

        first = jnp.full(num_states, start), jnp.zeros(num_states, int)
        return jax.lax.scan(move, first, None, MOST)[0][1]

    def part(carry, key):
        carry, (needed, goal) = jax.lax.scan(one_round, carry, jax.random.split(key, ROUNDS[arm] // LOOKS))
        return carry, (judged(carry[2]), needed.sum(), distance[goal].mean())

    stop = -jnp.inf if arm == "random walk" else jnp.log(num_actions / (FIRST - 1))
    logits = jnp.zeros((num_states, num_actions + 1)).at[:, -1].set(stop)
    q = jnp.zeros((num_states, num_states, num_actions))
    return jax.lax.scan(part, (logits, 0.0, q), jax.random.split(key, LOOKS))[1]


def main():
    step, start, distance = maze()
    far = np.arange(len(step)) != start
    print(f"{len(step)} cells, the farthest after {distance.max():.0f} steps\n")
    print("| goals | " + " | ".join(f"{budget:,} steps" for budget in BUDGETS), end=" | ")
    print("rounds until then | distance of goals in the first part, in the last |\n|" + "---|" * (len(BUDGETS) + 3))
    found = {}
    for arm, rounds in ROUNDS.items():
        run = jax.jit(lambda key, arm=arm: play(key, arm, step, start, jnp.asarray(distance)))
        seeds = [run(jax.random.fold_in(jax.random.key(0), seed)) for seed in range(SEEDS)]
        steps, needed, asked = (np.stack(x) for x in zip(*seeds, strict=True))
        best = (steps == distance)[..., far].mean(-1)  # the share of cells that he reaches by a shortest way
        at = [[np.searchsorted(np.cumsum(x), budget) for budget in BUDGETS] for x in needed]
        if np.max(at) >= LOOKS:
            raise SystemExit(f"{arm}: Bob took {needed.sum(1).min():,} steps in {rounds:,} rounds.")
        row = {"shortest": [x[i].round(4).tolist() for x, i in zip(best, at, strict=True)]}
        row["rounds"] = [(i[-1] + 1) * rounds // LOOKS for i in np.array(at).tolist()]
        row["asked"] = [[float(x[0].round(1)), float(x[i[-1]].round(1))] for x, i in zip(asked, at, strict=True)]
        found[arm] = row
        cells = [arm, *map(told, np.transpose(row["shortest"])), f"{np.mean(row['rounds']):,.0f}"]
        cells += ["{:.0f}, {:.0f}".format(*np.mean(row["asked"], 0))]
        print("| " + " | ".join(cells) + " |", flush=True)
    found["where"] = environment_of_run()
    (HERE / "results.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
