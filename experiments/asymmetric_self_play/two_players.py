"""Alice and Bob (Sukhbaatar et al. 2018, arXiv:1703.05407, the variant in which Bob repeats) as tables in a maze."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl

SIZE = 21  # of the maze
MOST = 100  # steps of Alice's and of Bob's
BUDGETS = 10_000, 250_000, 500_000, 750_000  # steps of Bob's
LEARNING_RATE, EXPLORE = 0.1, 0.05  # Alice's; Bob's share of random actions
FIRST = 20  # steps after which Alice stops at first, in the mean
SETTINGS = [SIZE, MOST, list(BUDGETS), LEARNING_RATE, EXPLORE, FIRST]


def maze(number):
    """`(next_state (S, 4), distance (S,))` of the open cells of a random maze from its first one, where both begin."""
    env, params = jaxrl.make("ProcMaze-v0", size=SIZE)
    walls = np.asarray(env.levels.generate(jax.random.key(number), params).walls)
    cells = [tuple(cell) for cell in np.argwhere(~walls)]
    moves = [(-1, 0), (0, -1), (1, 0), (0, 1)]
    after = [[(row + i, column + j) for i, j in moves] for row, column in cells]
    step = np.array([[cells.index(x if x in cells else cells[n]) for x in row] for n, row in enumerate(after)])
    distance = np.where(np.arange(len(cells)) == 0, 0, np.inf)
    for depth in range(len(cells)):
        new = step[distance == depth].ravel()
        distance[new[np.isinf(distance[new])]] = depth + 1
    return jnp.asarray(step), distance


def walk_of(key, logits, step):
    """Alice's: where she stops, after how many steps, and the slope of the log-probability of what she did."""
    num_actions = step.shape[1]

    def move(carry):
        key, state, walked, _, slope = carry
        key, action_key = jax.random.split(key)
        action = jax.random.categorical(action_key, logits[state])
        goes = action < num_actions
        slope = slope.at[state].add(jax.nn.one_hot(action, num_actions + 1) - jax.nn.softmax(logits[state]))
        state = jnp.where(goes, step[state, jnp.minimum(action, num_actions - 1)], state)
        return key, state, walked + goes, goes, slope

    first = key, 0, 0, jnp.bool_(True), jnp.zeros_like(logits)
    _, goal, walked, _, slope = jax.lax.while_loop(lambda x: x[3] & (x[2] < MOST), move, first)
    return goal, walked, slope


def way_of(key, q, step, goal):
    """Bob's: how many steps he took, MOST where he did not arrive, and q by Q-learning at rate 1, -1 a step."""
    num_actions = step.shape[1]

    def move(carry):
        key, state, walked, q = carry
        key, tie_key, other_key, explore_key = jax.random.split(key, 4)
        greedy = jnp.argmax(q[goal, state] + 1e-3 * jax.random.uniform(tie_key, (num_actions,)))
        other = jax.random.randint(other_key, (), 0, num_actions)
        action = jnp.where(jax.random.uniform(explore_key) < EXPLORE, other, greedy)
        after = step[state, action]
        target = -1 + jnp.where(after == goal, 0, q[goal, after].max())
        return key, after, walked + 1, q.at[goal, state, action].set(target)

    first = key, 0, 0, q
    _, _, walked, q = jax.lax.while_loop(lambda x: (x[1] != goal) & (x[2] < MOST), move, first)
    return walked, q


def greedily(q, step):
    """Bob's steps to each cell (S,), MOST where he does not arrive."""
    cells = jnp.arange(len(step))

    def move(carry, _):
        state, walked = carry
        away = state != cells
        return (jnp.where(away, step[state, jnp.argmax(q[cells, state], -1)], state), walked + away), None

    return jax.lax.scan(move, (jnp.zeros_like(cells), jnp.zeros_like(cells)), None, MOST)[0][1]


def play(key, arm, step, distance):
    """At each of BUDGETS: Bob's steps to each cell, (B, S); the rounds until then; how far the last goals were, in a
    running mean.

    Goals are Alice's, who learns in "self-play" and is a walk of MOST steps in "random walk", or "any cell".
    """
    num_cells, num_actions = step.shape

    def one_round(carry):
        key, logits, baseline, q, taken, rounds, asked = carry
        key, alice_key, bob_key, goal_key = jax.random.split(key, 4)
        goal, walked, slope = walk_of(alice_key, logits, step)
        if arm == "any cell":
            goal = jax.random.randint(goal_key, (), 1, num_cells)
        needed, q = way_of(bob_key, q, step, goal)
        reward = jnp.maximum(0, needed - walked) / MOST
        if arm == "self-play":
            logits = logits + LEARNING_RATE * (reward - baseline) * slope
        baseline, asked = baseline + 0.01 * (reward - baseline), asked + 0.01 * (distance[goal] - asked)
        return key, logits, baseline, q, taken + needed, rounds + 1, asked

    stop = -jnp.inf if arm == "random walk" else jnp.log(num_actions / (FIRST - 1))
    logits = jnp.zeros((num_cells, num_actions + 1)).at[:, -1].set(stop)
    carry = key, logits, 0.0, jnp.zeros((num_cells, num_cells, num_actions)), 0, 0, 0.0
    shown = []
    for budget in BUDGETS:
        # An Alice who only stops where she begins would keep Bob from taking a step.
        carry = jax.lax.while_loop(lambda x, budget=budget: (x[4] < budget) & (x[5] < budget), one_round, carry)
        shown.append((greedily(carry[3], step), carry[5], carry[6]))
    return jax.tree.map(lambda *x: jnp.stack(x), *shown)
