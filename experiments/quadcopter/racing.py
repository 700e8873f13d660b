"""Does a learnt policy fly a track faster than the tuned geometric controller? PPO on Quadcopter-GateRacing-v0.

    python experiments/quadcopter/racing.py [--tracks circle loop] [--seeds 3] [--steps 24000000]

A policy a track, from the task's own observation: no map, only the next two gates. It is judged greedily on 100 flights
of three laps from rest before the first gate, each off by up to 0.3 m; a lap time is that of the third lap. The
geometric controller's (`racing_baseline.json`) starts on its curve at full speed. Writes racing.json and prints the
table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import ppo
from jaxrl.environment import strongly_typed
from jaxrl.envs.quadcopter.courses.tracks import TRACKS
from jaxrl.host.run_folder import environment_of_run

HERE = Path(__file__).parent
CONFIG = ppo.Config(num_envs=512, num_steps=64, num_minibatches=32, normalize_obs=True, clip_value=False)
# Of each half of the training, in which the learning rate falls to zero. First progress leads to the gates; but a
# tighter line is slower and sooner round, so then only gates count, at what they were worth in all.
PHASES = {"learning_rate": [1e-3, 5e-4], "progress": [1.0, 0.0], "gate": [1.0, 5.0]}
FLIGHTS, LAPS = 100, 3


def recipe(total_steps):
    """`(algo, train, race)` of any track."""
    env, params = jaxrl.make("Quadcopter-GateRacing-v0")
    algo = ppo.make(env, CONFIG)
    updates = total_steps // 2 // algo.steps_per_update

    def train(key, track):
        def update(state, _):
            state, metrics = algo.update(state)
            return state, metrics["episode_return"]

        def phase(state, now):
            hyper, task = state.hyper.replace(learning_rate=now["learning_rate"]), state.env_params
            task = task.replace(weights=task.weights.replace(progress=now["progress"], gate=now["gate"]))
            state = state.replace(hyper=hyper, env_params=task, step=jnp.int32(0))
            return jax.lax.scan(update, state, None, updates)

        task = strongly_typed(params.replace(track=track, start_anywhere=0.8))
        hyper = strongly_typed(ppo.Hyper(anneal_steps=updates * algo.steps_per_update, ent_coef=0.0))
        phases = {name: jnp.array(values) for name, values in PHASES.items()}
        state, returns = jax.lax.scan(phase, algo.init(key, hyper, task), phases)
        return algo.policy(state), returns.ravel()

    def race(policy, key, track):
        """The third lap's time [s] of one flight; 0 for who does not fly it."""
        task = strongly_typed(params.replace(track=track, start_anywhere=0.0, max_steps=1500))
        reset_key, key = jax.random.split(key)
        obs, state = env.reset(reset_key, task)

        def step(carry, key):
            obs, state, alive, lap = carry
            act_key, step_key = jax.random.split(key)
            action, _ = algo.act(policy, act_key, obs, (), greedy=True)
            ts = env.step(step_key, state, action, task)
            alive = alive & ~ts.terminated
            lap = jnp.where((lap == 0) & alive & (ts.info["laps"] >= LAPS), ts.info["lap_time"], lap)
            return (ts.obs, ts.state, alive, lap), None

        start = obs, state, jnp.bool_(True), jnp.float32(0)
        return jax.lax.scan(step, start, jax.random.split(key, 1500))[0][-1]

    return algo, train, race


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tracks", nargs="+", default=list(TRACKS), choices=list(TRACKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24_000_000)
    args = parser.parse_args()
    path = HERE / "racing.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    baseline = json.loads((HERE / "racing_baseline.json").read_text())
    _, train, race = recipe(args.steps)
    first = strongly_typed(TRACKS["circle"])
    begin = time.perf_counter()
    train = jax.jit(train).lower(jax.random.key(0), first).compile()
    race = jax.jit(jax.vmap(race, (None, 0, None)))
    print(f"compiled in {time.perf_counter() - begin:.1f} s", flush=True)
    for name in args.tracks:
        track = strongly_typed(TRACKS[name])
        rows = []
        for seed in range(args.seeds):
            begin = time.perf_counter()
            policy, returns = jax.block_until_ready(train(jax.random.key(seed), track))
            seconds = time.perf_counter() - begin
            lap = np.asarray(race(policy, jax.random.split(jax.random.key(seed), FLIGHTS), track))
            flown = lap > 0
            row = {"lap": np.median(lap[flown]) if flown.any() else np.inf, "flown": flown.mean(), "seconds": seconds}
            rows.append({key: round(float(value), 4) for key, value in row.items()})
            shown = np.round(np.asarray(returns)[:: max(1, len(returns) // 8)], 1)
            print(name, seed, rows[-1], "returns", shown, flush=True)
        results[name] = {"steps": args.steps, "geometric": baseline[name]["lap_time"], "seeds": rows}
        results["where"] = environment_of_run()
        path.write_text(json.dumps(results, indent=1) + "\n")
    print("| track | geometric lap [s] | learnt lap of the fastest seed [s] | each seed's | its flights |")
    print("|" + "---|" * 5)
    for name in [name for name in TRACKS if name in results]:
        rows = sorted(results[name]["seeds"], key=lambda row: row["lap"])
        laps = ", ".join(f"{row['lap']:.2f}" for row in rows)
        geometric, best = results[name]["geometric"], rows[0]
        print(f"| {name} | {geometric:.2f} | {best['lap']:.2f} | {laps} | {best['flown']:.0%} |")


if __name__ == "__main__":
    main()
