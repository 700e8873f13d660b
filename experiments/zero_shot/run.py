"""Zero-shot policies from little data: FB against VC-FB and MC-FB in Darkroom, any cell being the goal.

    python experiments/zero_shot/run.py [--seeds 10]

Writes results.json and results.png beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import fb
from jaxrl.data.transitions import Transition
from jaxrl.exact.mdp import tabulate
from jaxrl.host.plotting import bars
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told
from jaxrl.replay.ring import Replay, take

HERE = Path(__file__).parent
SIZE, LIMIT, EPISODE, GOALS, UPDATES, GAMMA = 6, 50, 10, 16, 3000, 0.9
ARMS = {"FB": ("none", 0.0), "VC-FB": ("value", 0.5), "MC-FB": ("measure", 0.5)}  # kind and weight of the penalty
DATA = {"narrow": (1000, 3), "little": (150, 5), "broad": (2000, 5)}  # steps, and actions that a cell ever sees


def dataset(seed: int, steps: int, known: int, next_state: np.ndarray) -> Transition:
    """Episodes from random cells, in each of which `known` of the five actions are ever taken, at even chances.

    Rewards are given later, by task.
    """
    rng = np.random.default_rng(seed)
    taken = np.argsort(rng.random(next_state.shape), 1)[:, :known]
    choice, obs, at = rng.integers(0, known, steps), rng.integers(0, len(next_state), steps), 0
    action = np.zeros(steps, int)
    for t in range(steps):
        obs[t] = at = at if t % EPISODE else obs[t]
        action[t] = taken[at, choice[t]]
        at = next_state[at, action[t]]
    obs, action = obs.astype(np.int32), action.astype(np.int32)
    return Transition(obs, action, np.zeros(steps, np.float32), np.zeros(steps, bool), next_state[obs, action])


def returns(policy, goal, next_state):
    """Of a policy (S,), over all first cells: the steps of LIMIT that end in the goal."""

    def step(at, _):
        at = next_state[at, policy[at]]
        return at, jnp.mean(at == goal)

    return jnp.sum(jax.lax.scan(step, jnp.arange(len(next_state)), length=LIMIT)[1])


def from_data_alone(data, goal, next_state):
    """The single task's best: dynamic programming over the pairs that the data has."""
    seen = jnp.zeros(next_state.shape, bool).at[data.obs, data.action].set(True)
    reward = (next_state == goal).astype(float)

    def sweep(_, q):
        value = jnp.where(seen.any(1), jnp.max(jnp.where(seen, q, -1), 1), 0)
        return reward + GAMMA * value[next_state]

    q = jax.lax.fori_loop(0, 200, sweep, jnp.zeros(next_state.shape))
    return jnp.argmax(jnp.where(seen, q, -1), 1)


def measure(arm: str, seeds: int, steps: int, known: int) -> tuple[dict, dict]:
    env = jaxrl.make("Darkroom-v0", size=SIZE)[0]
    params = env.default_params
    next_state = np.asarray(tabulate(env, params).next_state[..., 0])
    each = [dataset(seed, steps, known, next_state) for seed in range(seeds)]
    goals = [np.random.default_rng(seed).choice(np.unique(d.next_obs), GOALS) for seed, d in enumerate(each)]
    data, goals = jax.tree.map(lambda *x: jnp.stack(x), *each), jnp.asarray(goals)

    def sample(key, items, n):
        return take(items, jax.random.randint(key, (n,), 0, steps))

    # Each seed's data is put into its state, where any reward can be given to it.
    memory = Replay(lambda item: jax.tree.map(jnp.asarray, each[0]), None, sample)
    kind, weight = ARMS[arm]
    config = fb.Config(
        num_updates=UPDATES, batch_size=64, size=36, num_forward=1, hidden=(64,), conservative=kind, num_labelled=4000
    )
    algo = fb.make(env, config, replay=memory)
    hyper = fb.Hyper(gamma=GAMMA, learning_rate=2e-3, tau=0.05, conservative_weight=weight)
    table, cells = jnp.asarray(next_state), jnp.arange(SIZE * SIZE)

    def run(key, data, goals):
        state = algo.init(key, hyper, params)
        state, metrics = algo.update(state.replace(replay=data))

        def score(goal):
            rewarded = data._replace(reward=(data.next_obs == goal).astype(jnp.float32))
            policy = algo.policy(state.replace(replay=rewarded))
            x, y = jnp.abs(cells // SIZE - goal // SIZE), jnp.abs(cells % SIZE - goal % SIZE)
            best = jnp.mean(LIMIT + 1 - jnp.maximum(x + y, 1))
            own = returns(algo.act(policy, key, cells, greedy=True)[0], goal, table)
            alone = returns(from_data_alone(data, goal, table), goal, table)
            return jnp.stack([own, alone]) / best

        return jax.vmap(score)(goals).mean(0), metrics["q_value"]

    begin = time.perf_counter()
    (scores, q) = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds), data, goals)
    own, alone = np.asarray(scores, float).round(4).T.tolist()
    seconds = round(time.perf_counter() - begin, 1)
    coverage = np.mean([len(np.unique(d.obs * 5 + d.action)) / (SIZE * SIZE * 5) for d in each]).round(3)
    row = {
        "scores": own,
        "q_value": np.asarray(q, float).round(3).tolist(),
        "seconds": seconds,
        "pairs": float(coverage),
    }
    return row, {"scores": alone, "pairs": float(coverage)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    where, rows = environment_of_run(), {}
    keep = {key: where[key] for key in ("started", "device", "processors", "versions")}
    print("| data | pairs seen | learner | score, IQM | 95 % interval | Q |\n" + "|---" * 6 + "|")
    for kind, (steps, known) in DATA.items():
        for arm in ARMS:
            rows[f"{kind}, {arm}"], alone = measure(arm, args.seeds, steps, known)
        rows[f"{kind}, one task"] = alone
        for name in (*ARMS, "one task"):
            row = rows[f"{kind}, {name}"]
            q = f"{np.mean(row['q_value']):.1f}" if "q_value" in row else ""
            cells = f"{row['pairs']:.0%}", name, told(row["scores"], ".3f", cells=True), q
            print(f"| {kind} | " + " | ".join(cells) + " |", flush=True)
        (HERE / "results.json").write_text(json.dumps({"where": keep, "rows": rows}, indent=1) + "\n")
    bars({n: r["scores"] for n, r in rows.items()}, HERE / "results.png", "share of the best return, mean of 16 goals")


if __name__ == "__main__":
    main()
