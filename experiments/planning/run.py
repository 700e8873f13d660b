"""How well does planning through the dynamics do, without learning? MPPI, CEM and iLQR at their default settings.

    python experiments/planning/run.py [--seeds 10]

Writes results.json and pendulum.png beside this file and prints the table of README.md. Times are the process's own CPU
time, of all threads, so that a busy machine does not matter much.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import matplotlib
import numpy as np

import jaxrl
from jaxrl.exact.planning import cem, control, ilqr, mppi
from jaxrl.host.plotting import COLORS
from jaxrl.host.run.run_folder import environment_of_run

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
TASKS = {"Pendulum-v1": 200, "CartPoleSwingUp-v0": 500, "Reacher-v0": 50}  # steps of an episode


def solved(env_id, states, gap, terminated):
    """Share of episodes: on the track and upright within 0.2 rad for the last half; 2 cm for Reacher's last fifth."""
    if env_id == "Reacher-v0":
        return float((gap[:, -TASKS[env_id] // 5 :] < 0.02).all(1).mean())
    upright = (angle(states.theta)[:, TASKS[env_id] // 2 :] < 0.2).all(1)
    return float((upright & ~np.asarray(terminated).any(1)).mean())


def angle(theta):
    """Distance from upright [rad]."""
    return np.abs((np.asarray(theta) + np.pi) % (2 * np.pi) - np.pi)


def measure(env_id, make_planner, seeds):
    env, params = jaxrl.make(env_id)
    planner = make_planner(env)

    def run(keys):  # one episode after the other, as a controller runs
        return jax.lax.map(lambda key: control(env, planner, key, params, TASKS[env_id]), keys)

    keys, begin = jax.random.split(jax.random.key(0), seeds), time.process_time()
    program = jax.jit(run).lower(keys).compile()
    compiled = time.process_time()
    out = jax.block_until_ready(program(keys))
    seconds = time.process_time() - compiled
    gap = np.sqrt((np.asarray(out.obs)[..., -2:] ** 2).sum(-1))  # in Reacher fingertip minus target
    return out, {
        "returns": np.asarray(out.reward.sum(1), float).round(2).tolist(),
        "solved": solved(env_id, out.state, gap, out.terminated),
        "cpu_ms_a_decision": round(1e3 * seconds / seeds / TASKS[env_id], 2),
        "compile_cpu_seconds": round(compiled - begin, 1),
    }


def table(results):
    header = "| task | planner | mean return | lowest | highest | solved | CPU ms a decision | compile CPU s |"
    lines = [header, "|" + "---|" * 8]
    for env_id, rows in results.items():
        for name, row in rows.items():
            r = np.array(row["returns"])
            cells = [env_id, name, f"{r.mean():.1f}", f"{r.min():.1f}", f"{r.max():.1f}", f"{row['solved']:.0%}"]
            cells += [str(row["cpu_ms_a_decision"]), str(row["compile_cpu_seconds"])]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    args, results = parser.parse_args(), {}
    for env_id in TASKS:
        for make_planner in (mppi, cem, ilqr):
            out, row = measure(env_id, make_planner, args.seeds)
            results.setdefault(env_id, {})[make_planner.__name__] = row
            if (env_id, make_planner) == ("Pendulum-v1", mppi):
                figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
                axes.plot(angle(out.state.theta).T, color=COLORS[0], alpha=0.6, lw=1)
                axes.axhline(0.2, color="0.5", ls=":")
                axes.set(
                    xlabel="step",
                    ylabel="|angle from upright| [rad]",
                    title=f"Pendulum-v1 under MPPI, {args.seeds} seeds",
                )
                figure.savefig(HERE / "pendulum.png", dpi=120)
    run = environment_of_run()
    made = {"date": run["started"][:10], "jax": run["versions"]["jax"], "cores": run["processors"]}
    (HERE / "results.json").write_text(json.dumps({"made": made, **results}, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
