"""Is a task learned sooner from a reward that was designed for it? Q-learning in four rooms, by ExpRD and its peers.

    python experiments/reward_design/run.py [--seeds 40] [--steps 30000]

A 7 x 7 grid of four rooms, as in Devidze et al. (2021): every move goes astray with probability 0.1 (to another
direction, each as likely), and any move in the goal's corner pays 10 and ends. Discount 0.95. Q-learning (rate 0.5,
epsilon 0.05 throughout, zeros at the start, episodes of 30 steps at most) learns from each reward; what counts is the
exact value of its greedy policy under the task's own reward, as a share of the best there is. Writes results.json and
results.png beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

from jaxrl.algos.meta import exprd
from jaxrl.algos.tabular import q_learning
from jaxrl.exact.mdp import MDP, as_environment
from jaxrl.exact.solvers import evaluate_policy, value_iteration
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
GAMMA, HORIZONS, MAX_REWARD, POINTS = 0.95, (1, 4, 8, 16, 32), 10.0, 60
ROOMS = ["...#...", ".......", "...#...", "#.###.#", "...#...", ".......", "...#..G"]


def four_rooms() -> tuple[MDP, list[tuple[int, int]]]:
    """The task, and the cells of its states."""
    cells = [(r, c) for r, row in enumerate(ROOMS) for c, x in enumerate(row) if x != "#"]
    number = {cell: i for i, cell in enumerate(cells)}
    moves = [(-1, 0), (0, 1), (1, 0), (0, -1)]
    probability = np.full((len(cells), 4, 4), 0.1 / 3)
    next_state = np.zeros((len(cells), 4, 4), np.int32)
    for i, (r, c) in enumerate(cells):
        next_state[i] = [number.get((r + dr, c + dc), i) for dr, dc in moves]
    for a in range(4):
        probability[:, a, a] = 0.9
    goal = np.array([ROOMS[r][c] == "G" for r, c in cells])
    at_goal = np.broadcast_to(goal[:, None, None], probability.shape)
    initial = np.eye(len(cells))[number[0, 0]]
    made = MDP(probability.astype(np.float32), next_state, 10.0 * at_goal.astype(np.float32), at_goal, initial)
    return jax.tree.map(jnp.asarray, made), cells


def rewards(mdp: MDP) -> dict[str, tuple[np.ndarray, list[int], float]]:
    """Rewards (S, A), the states that were added, and how informative they are."""
    task = exprd.task_of(mdp, GAMMA, HORIZONS)
    given = np.asarray(task.reward)
    found = {"the task's own": (given, [], exprd.informativeness(task, given))}
    for states in (3, 5):
        made = exprd.design(mdp, states, GAMMA, HORIZONS, MAX_REWARD)
        found[f"ExpRD, {states} states"] = made.reward, made.states.tolist(), float(made.informativeness[-1])
    shaped = exprd.shaped(mdp, GAMMA)
    found["potential-based"] = shaped, [], exprd.informativeness(task, shaped)
    return found


def curves(mdp: MDP, reward: np.ndarray, seeds: int, steps: int) -> np.ndarray:
    """Value of the greedy policies in the first state under the task's own reward, (seeds, POINTS)."""
    other = jnp.broadcast_to(jnp.asarray(reward, jnp.float32)[..., None], mdp.reward.shape)
    env, params = as_environment(mdp.replace(reward=other), max_steps=30)
    algo = q_learning.make(env)
    hyper = q_learning.Hyper(learning_rate=0.5, gamma=GAMMA, epsilon_start=0.05, epsilon_end=0.05)

    def run(key):
        def block(state, _):
            state = jax.lax.fori_loop(0, steps // POINTS, lambda _, s: algo.update(s)[0], state)
            greedy = jnp.argmax(state.weights.q.sum(0), -1)
            return state, mdp.initial @ evaluate_policy(mdp.dense(), greedy, GAMMA)

        return jax.lax.scan(block, algo.init(key, hyper, params), length=POINTS)[1]

    return np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=30_000)
    args = parser.parse_args()
    mdp, cells = four_rooms()
    best = float(mdp.initial @ value_iteration(mdp, GAMMA).value)
    found = {}
    for name, (reward, states, value) in rewards(mdp).items():
        begin = time.perf_counter()
        share = curves(mdp, reward, args.seeds, args.steps) / best
        # The first step from which a run's policy is good; a run that never was counts as the whole length.
        good = share >= 0.95
        first = np.where(good.any(1), good.argmax(1) + 1, POINTS) * (args.steps // POINTS)
        low, high = bootstrap_interval(first, np.mean)
        dense = int((np.abs(reward).sum(1) > 1e-9).sum())
        found[name] = {
            "states": [cells[s] for s in states],
            "paying": dense,
            "informativeness": value,
            "steps_to_95": [float(first.mean()), float(low), float(high)],
            "never": int((~good.any(1)).sum()),
            "mean": share.mean(0).round(4).tolist(),
            "seconds": time.perf_counter() - begin,
        }
        cell = f"{first.mean():,.0f} ({low:,.0f} to {high:,.0f})"
        print(f"| {name} | {dense} | {value:.1f} | {cell} | {found[name]['never']} of {args.seeds} |", flush=True)
    where = {"seeds": args.seeds, "steps": args.steps, "date": time.strftime("%Y-%m-%d"), "where": environment_of_run()}
    (HERE / "results.json").write_text(json.dumps({**where, "best": best, "results": found}, indent=1) + "\n")
    figure, ax = plt.subplots(figsize=(5.5, 3.5))
    for name, row in found.items():
        ax.plot(np.linspace(args.steps / POINTS, args.steps, POINTS), row["mean"], label=name)
    ax.set(
        xlabel="environment steps", ylabel="value, share of the best", title="Q-learning in four rooms", ylim=(0, 1.02)
    )
    ax.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(HERE / "results.png", dpi=110)


if __name__ == "__main__":
    main()
