"""How much of MiniMalloc's problems do rules place?

python experiments/memory_allocation/run.py
"""

import json
from pathlib import Path

import jax

import jaxrl
from jaxrl.envs.allocation import memory_allocation
from jaxrl.evaluation import episodes
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
RULES = {"largest first": memory_allocation.largest_first, "lowest first": memory_allocation.lowest_first}
IDS = ("MemoryAllocation-v0", *(f"MemoryAllocation-{name}-v0" for name in memory_allocation.problems()))


def judged(id: str, rule) -> list[float]:
    """Mean return, and the share that is solved: an episode with a step for each buffer placed them all."""
    env, params = jaxrl.make(id)

    def act(key, state, obs, params, carry):
        return jax.vmap(rule)(obs), carry

    how = {"num_episodes": 1024 if params.fresh else 1, "max_steps": env.num_buffers}
    stats = jax.jit(lambda key: episodes(act, (), key, env, params, **how))(jax.random.key(0))
    return [round(float(stats.returns.mean()), 4), round(float((stats.lengths == env.num_buffers).mean()), 4)]


def main() -> None:
    rows = {id: {name: judged(id, rule) for name, rule in RULES.items()} for id in IDS}
    print("| task | " + " | ".join(RULES) + " |\n|" + "---|" * (len(RULES) + 1))
    for id, row in rows.items():
        print(f"| `{id}` | " + " | ".join(f"{placed:.3f} ({solved:.0%})" for placed, solved in row.values()) + " |")
    told = {"rows": rows, "where": environment_of_run()}
    (HERE / "results.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
