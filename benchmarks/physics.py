"""Steps a second of the tasks on MuJoCo models: planar equations, MuJoCo in C with a thread a core, and MJX.

    python benchmarks/physics.py [--ids Hopper-v5 ...] [--envs 16 256 2048] [--no-mjx]

Random controls, without observation, reward or reset, so that engines are compared and nothing else. C is
`mujoco.rollout`, which steps many data in threads without Python. Wall-clock medians of `--repeats` runs after one that
is not counted; ratios against C at the same number of environments. Writes results/physics.json.
"""

import argparse
import json
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import rollout

import jaxrl
from jaxrl.envs.physics.task import State, compiled
from jaxrl.host.run.run_folder import environment_of_run

IDS = (
    *("InvertedPendulum-v5", "InvertedDoublePendulum-v5", "DMCartpoleSwingup-v0", "Reacher-v5"),
    *("Hopper-v5", "HalfCheetah-v5", "Walker2d-v5", "Ant-v5"),
)
OUT = Path(__file__).parent / "results" / "physics.json"


def median(run, steps, repeats):
    run()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return steps / float(np.median(seconds))


def ours(id, engine, num_envs, length, repeats):
    """(steps a second, seconds of compiling)."""
    env, params = jaxrl.make(id, engine=engine)

    def run(state, key):
        def step(state, key):
            controls = jax.vmap(env.action_space(params).sample)(jax.random.split(key, num_envs))
            moved = jax.vmap(lambda s, u: env.advance(s, u, params.model))(state, controls)
            return state.replace(qpos=moved.qpos, qvel=moved.qvel, qacc=moved.qacc), None

        return jax.lax.scan(step, state, jax.random.split(key, length))[0]

    rest, still = (jnp.tile(params.model[name], (num_envs, 1)) for name in ("qpos0", "dof_damping"))
    still = jnp.zeros_like(still)
    state = State(jnp.zeros(num_envs, jnp.int32), rest, still, still)
    begin = time.perf_counter()
    program = jax.jit(run).lower(state, jax.random.key(0)).compile()
    compiling = time.perf_counter() - begin
    return median(
        lambda: jax.block_until_ready(program(state, jax.random.key(1))), num_envs * length, repeats
    ), compiling


def in_c(id, num_envs, length, repeats):
    env = jaxrl.make(id)[0]
    model, threads = compiled(env.file), len(os.sched_getaffinity(0))
    data = [mujoco.MjData(model) for _ in range(threads)]
    size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    start = np.zeros((num_envs, size))
    mujoco.mj_getState(model, data[0], start[0], mujoco.mjtState.mjSTATE_FULLPHYSICS)
    start[:] = start[0]
    low, high = model.actuator_ctrlrange.T
    rng = np.random.default_rng(0)
    controls = np.repeat(rng.uniform(low, high, (num_envs, length, model.nu)), env.frame_skip, 1)
    with rollout.Rollout(nthread=threads) as pool:
        return median(lambda: pool.rollout(model, data, start, controls), num_envs * length, repeats)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", nargs="+", default=IDS, choices=IDS, metavar="ID")
    parser.add_argument("--envs", nargs="+", type=int, default=[16, 256, 2048])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-mjx", action="store_true")
    args = parser.parse_args()
    results = json.loads(OUT.read_text()) if OUT.exists() else {}
    print("| id | environments | C, steps/s | planar, steps/s | ratio | compiles, s | MJX, steps/s | compiles, s |")
    print("|" + "---|" * 8)
    for id in args.ids:
        for num_envs in args.envs:
            length = max(5, 20_000 // num_envs)
            c = in_c(id, num_envs, length, args.repeats)
            row, cells = {"c": c}, [f"{c:,.0f}", "", "", ""]
            flat = "planar" in jaxrl.make(id)[0].engines
            if flat:
                planar, compiling = ours(id, "planar", num_envs, length, args.repeats)
                row |= {"planar": planar, "compile": compiling}
                cells[1:] = f"{planar:,.0f}", f"{planar / c:.1f}", f"{compiling:.1f}"
            if not args.no_mjx and (not flat or num_envs == args.envs[len(args.envs) // 2]):
                few = (5, 1) if flat else (max(5, length // 10), args.repeats)
                row["mjx"], row["mjx_compile"] = ours(id, "mjx", num_envs, *few)
                cells[2] = cells[2] or f"{row['mjx'] / c:.2f}"
            kept = results.get(f"{id}/{num_envs}", {}) if args.no_mjx else {}
            measured = {name: float(f"{x:.4g}") for name, x in row.items()}
            results[f"{id}/{num_envs}"] = {**kept, **measured, "where": environment_of_run()}
            cells += [f"{row['mjx']:,.0f}", f"{row['mjx_compile']:.0f}"] if "mjx" in row else ["", ""]
            print(f"| {id} | {num_envs} | " + " | ".join(cells) + " |", flush=True)
        OUT.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
