"""Who satisfies a formula of signal temporal logic, and how fast does it decide?

    python experiments/stl_control/run.py [--seeds 10] [--system car]

TGPO against PPO that is rewarded by robustness; a network that plans, trained through smooth robustness, against the
cross-entropy method. Writes results.json and results.png beside this file and prints the tables of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import learned
import numpy as np
import planners
from episodes import Episodes, system_of
from systems import SYSTEMS, T

from jaxrl.exact.planning import CEMConfig, cem
from jaxrl.host.plotting import bars
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import iqm, told

HERE = Path(__file__).parent
TESTS, CEM_TESTS = 64, 2  # episodes a seed
CEM = {"CEM 128 x 3": CEMConfig(horizon=T), "CEM 512 x 40": CEMConfig(T, 512, 32, 40)}
PLAN_STEPS = {"point": 1000, "car": 1000, "drone": 400}  # of gradient
PLANS = {"network": False, "network, checked": True}
LEARNED = {"PPO, robustness": ("robustness", False), "TGPO": ("grounded", True)}


def milliseconds(decide, *args) -> float:
    """CPU time of the process a call, jitted; median of 7 times so many calls as take 20 ms."""
    decide, taken = jax.jit(decide), []
    jax.block_until_ready(decide(*args))
    begin = time.perf_counter()
    jax.block_until_ready(decide(*args))
    calls = max(1, int(0.02 / (time.perf_counter() - begin)))
    for _ in range(7):
        begin = time.process_time()
        for _ in range(calls):
            jax.block_until_ready(decide(*args))
        taken.append((time.process_time() - begin) / calls)
    return 1e3 * float(np.median(taken))


def shares(robustness) -> list[float]:
    return np.mean(np.asarray(robustness) > 0, -1).tolist()


def planned(name: str, keys) -> dict:
    """Every seed's satisfaction, and the time of the first decision of an episode."""
    env, rows = Episodes(name), {}
    places = system_of(name).starts(jax.random.key(1), TESTS)
    weights, _ = jax.jit(jax.vmap(lambda key: planners.train(key, env, PLAN_STEPS[name])))(keys)
    start, one = env.begun(places[0], planners.NO_TIMES), jax.tree.map(lambda x: x[0], weights)
    old = jnp.zeros((T, system_of(name).actions))
    once = jax.jit(jax.vmap(lambda w: planners.open_loop(env, w, places)))(weights)
    rows["network, once"] = {"satisfied": shares(once)}
    for arm, checked in PLANS.items():
        play = jax.jit(jax.vmap(lambda w, checked=checked: planners.predictive_control(env, w, places, checked)))
        taken = milliseconds(
            lambda w, s, old, checked=checked: planners.decide(env, w, s, old, checked), one, start, old
        )
        rows[arm] = {"satisfied": shares(play(weights)), "ms": taken}
    for arm, config in CEM.items():
        planner = cem(env, config)
        play = jax.jit(lambda key, planner=planner: planners.cem_control(env, planner, key, places[:CEM_TESTS]))
        taken = milliseconds(planner.plan, keys[0], planner.init(), start, env.default_params)
        some = keys[:2] if name == "drone" and config is CEM["CEM 512 x 40"] else keys  # 11 s an episode
        rows[arm] = {"satisfied": shares(jnp.stack([play(key) for key in some])), "ms": taken}
    return rows


def trained(name: str, reward: str, guided: bool, keys) -> dict:
    """Every seed's satisfaction by the greedy policy after thirds of the training."""
    env, places = Episodes(name, reward), system_of(name).starts(jax.random.key(1), TESTS)
    rho = jax.jit(jax.vmap(lambda key: learned.train(key, env, guided, places)))(keys)
    *early, final = np.moveaxis(np.mean(np.asarray(rho) > 0, -1), 1, 0).tolist()
    return {"satisfied": final, "early": early}


def table(systems: dict) -> None:
    print("| system | arm | satisfied, IQM | 95 % interval | after a third, two thirds | ms a decision |")
    print("|" + "---|" * 6)
    for name, rows in systems.items():
        for arm, row in rows.items():
            early = ", ".join(f"{iqm(share):.2f}" for share in row.get("early", ()))
            took = f"{row['ms']:.3f}" if "ms" in row else ""
            print(f"| {name} | {arm} | {told(row['satisfied'], cells=True)} | {early} | {took} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--system", choices=SYSTEMS, help="this one; the others stay as results.json has them")
    args = parser.parse_args()
    where, keys = environment_of_run(), jax.random.split(jax.random.key(0), args.seeds)
    stored = HERE / "results.json"
    results = json.loads(stored.read_text()) if args.system and stored.exists() else {"minutes": {}, "systems": {}}
    results["where"] = {key: where[key] for key in ("started", "device", "processors", "versions")}
    for name in [args.system] if args.system else SYSTEMS:
        begin, rows = time.perf_counter(), {}
        for arm, settings in LEARNED.items():
            rows[arm] = trained(name, *settings, keys)
            table({name: rows})
        results["systems"][name] = rows | planned(name, keys)
        results["minutes"][name] = round((time.perf_counter() - begin) / 60, 1)
        stored.write_text(json.dumps(results, indent=1) + "\n")
    table(results["systems"])
    rows = ((name, *row) for name, rows in results["systems"].items() for row in rows.items())
    shown = {f"{name}: {arm}": row["satisfied"] for name, arm, row in rows}
    bars(shown, HERE / "results.png", "share of episodes that satisfy the formula")


if __name__ == "__main__":
    main()
