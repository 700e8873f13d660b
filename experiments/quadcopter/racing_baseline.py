"""How fast is the classical pilot? The SE(3) controller's gains and lap time, tuned for each track by CMA-ES.

    python experiments/quadcopter/racing_baseline.py [--tracks circle loop] [--generations 100] [--population 32]

Tunes 14 numbers as logarithms: three natural frequencies and damping ratios each of position and attitude, the motors'
bandwidth, and the time scale of the reference. A candidate flies three laps of `gate_racing.geometric_lap`; its cost is
the last one's time, or for who crashes 100 s less a second a gate. Prints a table and writes racing_baseline.json.
Needs evosax.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from evosax.algorithms import CMA_ES
from jax.flatten_util import ravel_pytree

from jaxrl.environment import strongly_typed
from jaxrl.envs.quadcopter.control.se3 import SE3Gains
from jaxrl.envs.quadcopter.courses import tracks
from jaxrl.envs.quadcopter.tasks import gate_racing
from jaxrl.host.run.run_folder import environment_of_run

FIRST_TIME_SCALE = 7.0  # s
FLAT, UNRAVEL = ravel_pytree(jax.tree.map(jnp.log, strongly_typed((SE3Gains(), FIRST_TIME_SCALE))))
RACER = strongly_typed(gate_racing.RACER)


def settings_of(x):
    """`(gains, time scale)` of a point of the search."""
    return jax.tree.map(jnp.exp, UNRAVEL(x))


@jax.jit
def lap(gains, time_scale, track, curve):
    flown = gate_racing.geometric_lap(track, gains, time_scale, RACER, curve=curve, duration=22.0, laps=3)
    return flown._replace(position=())


def cost(x, track, curve):
    flown = lap(*settings_of(x), track, curve)
    return jnp.where(flown.valid, flown.lap_time, 100.0 - flown.passed)


def course(name):
    """Track of a name, and the smoothest curve through its gates."""
    return strongly_typed((tracks.TRACKS[name], tracks.smoothest_curve(tracks.TRACKS[name])))


def flown(name, settings):
    """Three laps on a track by settings as racing_baseline.json has them, in a program that flies nothing else."""
    gains = SE3Gains(**{field: jnp.asarray(x, jnp.float32) for field, x in settings["gains"].items()})
    return jax.device_get(lap(gains, jnp.float32(settings["time_scale"]), *course(name)))


def tune(key, track, curve, generations, population):
    """`(best point, its cost, best cost after each generation)`."""
    strategy = CMA_ES(population, FLAT)
    params = strategy.default_params.replace(std_init=0.15)
    init_key, run_key = jax.random.split(key)

    def generation(carry, key):
        state, best, least = carry
        ask_key, tell_key = jax.random.split(key)
        x, state = strategy.ask(ask_key, state, params)
        costs = jax.vmap(cost, (0, None, None))(x, track, curve)
        state, _ = strategy.tell(tell_key, x, costs, state, params)
        i = jnp.argmin(costs)
        best, least = jax.tree.map(lambda a, b: jnp.where(costs[i] < least, a, b), (x[i], costs[i]), (best, least))
        return (state, best, least), least

    carry = strategy.init(init_key, FLAT, params), FLAT, jnp.float32(jnp.inf)
    (_, best, least), history = jax.lax.scan(generation, carry, jax.random.split(run_key, generations))
    return best, least, history


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tracks", nargs="+", default=list(tracks.TRACKS), choices=list(tracks.TRACKS))
    parser.add_argument("--generations", type=int, default=100)
    parser.add_argument("--population", type=int, default=32)
    args = parser.parse_args()
    path = Path(__file__).with_name("racing_baseline.json")
    results = json.loads(path.read_text()) if path.exists() else {}
    run = environment_of_run()
    results["made"] = {"date": run["started"][:10], "jax": run["versions"]["jax"], "cores": run["processors"]}
    search = jax.jit(tune, static_argnums=(3, 4))
    print("| track | untuned, 7 s a lap | tuned lap [s] | time scale [s] | generations to within 1 % | seconds |")
    print("|---|---|---|---|---|---|")
    for name in args.tracks:
        track, curve = course(name)
        start = time.perf_counter()
        out = search(jax.random.key(0), track, curve, args.generations, args.population)
        best, least, history = jax.device_get(out)
        seconds = time.perf_counter() - start
        # Not rounded: whoever flies these settings again is to have this lap.
        gains, time_scale = jax.tree.map(lambda x: np.asarray(x, float).tolist(), settings_of(best))
        settings = {"time_scale": time_scale, "gains": vars(gains)}
        alone = flown(name, settings)
        near = int(np.argmax(history < 1.01 * least)) + 1
        first = lap(*settings_of(FLAT), track, curve)
        untuned = f"{first.lap_time:.2f}" if first.valid else f"crash after {first.passed} gates"
        if not alone.valid:
            raise RuntimeError(f"{name}: the best settings crash after {alone.passed} gates when they fly alone.")
        results[name] = {"lap_time": round(float(alone.lap_time), 4), **settings}
        path.write_text(json.dumps(results, indent=1) + "\n")
        print(f"| {name} | {untuned} | {least:.3f} | {time_scale:.3f} | {near} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
