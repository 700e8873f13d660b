"""How well do the classical controllers do on all 60 of gym-electric-motor's tasks?

    python experiments/motor/baselines.py [--seeds 8] [--steps 4000] [--only Cont-CC] [--method hysteresis]

Default parameters; episodes go on until a constraint is violated, then another begins. Writes baselines.json beside
this file (not with `--only` or `--method`) and prints the table of docs/envs/motor.md: mean reward a step, and in
parentheses how often an episode ended.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.envs.motor import tasks
from jaxrl.envs.motor.control import controllers
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
COLUMNS = [f"{control}-{task}" for control in tasks.CONTROLS for task in tasks.TASKS]


def measure(env_id: str, method: str | None, seeds: int, steps: int) -> dict:
    """Mean rewards a step (seeds,) and ends of episodes (seeds,)."""
    env, params = jaxrl.make(env_id)
    venv, controller = jaxrl.vectorize(env, seeds), controllers.make(env, method)
    act = jax.vmap(controller.act, (None, 0, 0, None))

    @jax.jit
    def run(key, params):
        gains = controller.tune(params)
        start_key, key = jax.random.split(key)
        _, vstate = venv.reset(start_key, params)
        carry = jax.tree.map(lambda x: jnp.broadcast_to(x, (seeds, *x.shape)), controller.init())

        def step(loop, key):
            vstate, carry = loop
            action, carry = act(params, vstate.env, carry, gains)
            _, vstate, reward, terminated, _, _ = venv.step(key, vstate, action, params)
            return (vstate, carry), (reward, terminated)

        _, (rewards, ends) = jax.lax.scan(step, (vstate, carry), jax.random.split(key, steps))
        return rewards.mean(0), ends.sum(0)

    rewards, ends = run(jax.random.key(0), params)
    return {"reward": np.asarray(rewards, float).round(6).tolist(), "ends": np.asarray(ends).tolist()}


def table(rows: dict[str, dict]) -> str:
    lines = ["| motor | " + " | ".join(COLUMNS) + " |", "|---" * (1 + len(COLUMNS)) + "|"]
    for motor in tasks.MOTORS:
        found = [rows.get(f"{column}-{motor}-v0") for column in COLUMNS]
        cells = [f"{np.mean(r['reward']):#.2g} ({sum(r['ends'])})" if r else "" for r in found]
        lines.append(f"| `{motor}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--only", default="", help="ids with this in them")
    parser.add_argument("--method", default=None, help="of controllers.make; each task's usual one unless given")
    args = parser.parse_args()
    rows = {}
    for env_id in tasks.IDS:
        if args.only not in env_id:
            continue
        rows[env_id] = row = measure(env_id, args.method, args.seeds, args.steps)
        print(f"{env_id:26s} {np.mean(row['reward']):9.5f} {np.std(row['reward']):.5f} {row['ends']}", flush=True)
    print(table(rows))
    if not args.only and not args.method:
        results = {"seeds": args.seeds, "steps": args.steps, **environment_of_run(), "rows": rows}
        (HERE / "baselines.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
