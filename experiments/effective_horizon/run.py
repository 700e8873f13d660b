"""Does the effective horizon say how many steps PPO and DQN need? Exact analysis of our tabular MDPs against training.

    python experiments/effective_horizon/run.py [--steps 30000] [--seeds 3] [--picture]

Writes results.json, table.md and results.png beside this file; `--picture` makes only the latter two again.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from measure import analyse, curves, first_step
from picture import report
from tasks import ACTIONS, HORIZON, Seen, study

from jaxrl.algos import dqn, ppo
from jaxrl.algos.tabular import gorp
from jaxrl.exact.mdp import TableParams
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
PPO = ppo.Config(num_envs=8, num_steps=20, num_minibatches=2, hidden=(32,))
DQN = dqn.Config(num_envs=8, num_steps=4, num_updates=2, batch_size=64, buffer_size=8000, hidden=(32,))
GORPS = [(1, 4), (1, 64), (2, 4), (2, 64), (3, 4)]  # (k, m), tried on the deterministic MDPs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", action="store_true")
    args = parser.parse_args()
    if not args.picture:
        rows, tables = [], []
        for name, limit, certain, mdp, four in study():
            rows.append(analyse(name, limit, mdp) | {"deterministic": certain})
            tables.append(TableParams(four, jnp.int32(limit)))
        params = jax.tree.map(lambda *x: jnp.stack(x), *tables)
        env = Seen(tables[0].mdp.num_states, ACTIONS, id="Seen")
        common = dict(gamma=1.0, learning_rate=2e-3)
        learners = {
            "ppo": (ppo.make(env, PPO), ppo.Hyper(**common, ent_coef=0.01), 8),
            "dqn": (
                dqn.make(env, DQN),
                dqn.Hyper(**common, learning_starts=500, exploration_steps=args.steps // 4, target_period=250),
                40,
            ),
        }
        seconds = {}
        for name, (algo, hyper, every) in learners.items():
            updates = args.steps // algo.steps_per_update // every * every
            values, seconds[name] = curves(algo, hyper, updates, every, params, args.seeds)
            for row, steps in zip(rows, first_step(values, rows, every * algo.steps_per_update), strict=True):
                row[name] = [float(x) if np.isfinite(x) else None for x in steps]
        sure = [i for i, row in enumerate(rows) if row["deterministic"]]
        for k, m in GORPS:
            algo = gorp.make(env, gorp.Config(HORIZON, k, m))
            values, seconds[f"gorp {k} {m}"] = curves(
                algo, gorp.Hyper(), HORIZON, HORIZON, jax.tree.map(lambda x: x[np.array(sure)], params), args.seeds
            )
            for i, hit in zip(sure, np.isfinite(first_step(values, [rows[i] for i in sure], 1)), strict=True):
                if hit.mean() > 0.5:
                    costs = rows[i].setdefault("gorp", [])
                    costs.append(rows[i]["T"] ** 2 * ACTIONS**k * m)
        result = {"steps": args.steps, "seeds": args.seeds, "seconds": seconds, **environment_of_run(), "rows": rows}
        (HERE / "results.json").write_text(json.dumps(result, indent=1))
    report(json.loads((HERE / "results.json").read_text()), HERE)


if __name__ == "__main__":
    main()
