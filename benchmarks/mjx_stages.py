"""What a task's step on MJX costs as `envs/physics/on_mjx.py` writes it, and as MJX does: compiling and running.

    python benchmarks/mjx_stages.py [--ids Hopper-v5 Ant-v5] [--envs 16]

MJX writes Runge-Kutta's stages as four copies of the dynamics, ours are a loop over one; accelerations are found by
`envs/physics/solver.py`, not by `mjx.solve`, which is most of the difference in running. Programs are compiled without
a cache, then take turns: CPU-time medians of `--repeats` runs after one that is not counted. Writes
results/mjx_stages.json.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from mujoco import mjx

import jaxrl
from jaxrl.envs.physics import on_mjx
from jaxrl.envs.physics.task import State, compiled
from jaxrl.host.run.run_folder import environment_of_run

OUT = Path(__file__).parent / "results" / "mjx_stages.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", nargs="+", default=["Hopper-v5", "Ant-v5"])
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    results = json.loads(OUT.read_text()) if OUT.exists() else {}
    print("| id | compiles, s: ours | MJX's | steps/s: ours | MJX's |\n|" + "---|" * 5)
    for id in args.ids:
        env, params = jaxrl.make(id, engine="mjx")
        base = on_mjx.put(compiled(env.file))

        def ours(state, control, env=env, params=params):
            moved = env.advance(state, control, params.model)
            return state.replace(qpos=moved.qpos, qvel=moved.qvel, qacc=moved.qacc)

        def theirs(state, control, env=env, params=params, base=base):
            m = on_mjx.with_numbers(base, params.model)
            data = mjx.make_data(m).replace(qpos=state.qpos, qvel=state.qvel, qacc_warmstart=state.qacc, ctrl=control)
            data = jax.lax.scan(lambda d, _: (mjx.step(m, d), None), data, length=env.frame_skip)[0]
            return state.replace(qpos=data.qpos, qvel=data.qvel, qacc=data.qacc)

        still = jnp.zeros((args.envs, *params.model["dof_damping"].shape))
        state = State(jnp.zeros(args.envs, jnp.int32), jnp.tile(params.model["qpos0"], (args.envs, 1)), still, still)
        controls = jax.random.uniform(jax.random.key(0), (args.length, args.envs, *env.action_space(params).shape))
        programs, compiling = {}, {}
        for name, step in (("ours", ours), ("mjx", theirs)):

            def run(state, controls, step=step):
                return jax.lax.scan(lambda s, u: (jax.vmap(step)(s, u), None), state, controls)[0]

            begin = time.process_time()
            programs[name] = jax.jit(run).lower(state, controls).compile()
            compiling[name] = time.process_time() - begin
        seconds = {name: [] for name in programs}
        for _ in range(args.repeats + 1):
            for name, program in programs.items():
                begin = time.process_time()
                jax.block_until_ready(program(state, controls))
                seconds[name].append(time.process_time() - begin)
        rate = {name: args.envs * args.length / float(np.median(x[1:])) for name, x in seconds.items()}
        results[f"{id}/{args.envs}"] = {"steps_per_s": rate, "compile": compiling}
        results["where"] = environment_of_run()
        OUT.write_text(json.dumps(results, indent=1) + "\n")
        print(f"| {id} | {compiling['ours']:.0f} | {compiling['mjx']:.0f} | {rate['ours']:,.0f} | {rate['mjx']:,.0f} |")


if __name__ == "__main__":
    main()
