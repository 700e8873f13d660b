"""How much of MiniMalloc's problems do rules place, and how much does PPO?

python experiments/memory_allocation/run.py [--steps 500000] [--seeds 3]
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.algos import ppo
from jaxrl.envs.allocation import memory_allocation
from jaxrl.evaluation import episodes, evaluate
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
RULES = {"largest first": memory_allocation.largest_first, "lowest first": memory_allocation.lowest_first}
IDS = ("MemoryAllocation-v0", *(f"MemoryAllocation-{name}-v0" for name in memory_allocation.problems()))


def judged(returns) -> list[float]:
    """Mean return, and the share of problems that are solved."""
    return [round(float(returns.mean()), 4), round(float((returns > 1 - 1e-4).mean()), 4)]


def by_rule(id: str, rule) -> list[float]:
    env, params = jaxrl.make(id)

    def act(key, state, obs, params, carry):
        return jax.vmap(rule)(obs), carry

    how = {"num_episodes": 1024 if params.fresh else 1, "max_steps": env.num_buffers}
    return judged(jax.jit(lambda key: episodes(act, (), key, env, params, **how).returns)(jax.random.key(0)))


def by_ppo(id: str, steps: int, seeds: int) -> list[float]:
    env, params = jaxrl.make(id)
    algo = ppo.make(env, ppo.Config(num_envs=32, num_steps=128, hidden=(256, 256)))

    @jax.jit
    def run(key):
        state, _ = jaxrl.train(algo, key, steps, ppo.Hyper(anneal_steps=steps), params)
        how = {"num_episodes": 256, "max_steps": env.num_buffers, "greedy": True}
        return evaluate(algo, algo.policy(state), key, env, params, **how).returns

    return judged(jnp.stack([run(key) for key in jax.random.split(jax.random.key(1), seeds)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500_000, help="of PPO, a seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ppo", nargs="*", default=["MemoryAllocation-v0"], help="the tasks that PPO learns")
    args = parser.parse_args()
    rows = {id: {name: by_rule(id, rule) for name, rule in RULES.items()} for id in IDS}
    for id in args.ppo:
        rows[id]["PPO"] = by_ppo(id, args.steps, args.seeds)
    print("| task | " + " | ".join([*RULES, "PPO"]) + " |\n|" + "---|" * 4)
    for id, row in rows.items():
        cells = [f"{row[name][0]:.3f} ({row[name][1]:.0%})" if name in row else "" for name in (*RULES, "PPO")]
        print(f"| `{id}` | " + " | ".join(cells) + " |")
    told = {"rows": rows, "steps": args.steps, "seeds": args.seeds, "where": environment_of_run()}
    (HERE / "results.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
