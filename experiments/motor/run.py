"""How well do learners control electric drives, beside the classical controllers?

    python experiments/motor/run.py [--only ppo/Cont-CC-PMSM-v0 controllers] [--seeds 10]

Trains each algorithm of recipes.py on each of its tasks and judges the greedy policies as the controllers and random
actions: 16 drives, 4000 control steps each, the same references for all. Adds to results.json; page.py has the table.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from judge import classical, judge, learnt, several
from recipes import ALGORITHMS, GAMMA, SETTINGS, SHORT_SIGHTED

import jaxrl
from jaxrl.environment import strongly_typed
from jaxrl.host.run.run_folder import environment_of_run

PATH = Path(__file__).with_name("results.json")
DRIVES, STEPS = 16, 4000
TOGETHER = ("ppo", "pqn")  # whose seeds train faster in one program


def discount(name, task):
    shortest = SHORT_SIGHTED.get(name, 1.0) if "-SC-" not in task else 1.0
    return min(GAMMA.get(task, 0.9), shortest)


def budget(name, task):
    return ALGORITHMS[name][0] * (2 if "-SC-" in task else 1)


def judged(env, params, act, carry):
    return jax.tree.map(jnp.mean, judge(env, several(params, DRIVES), act, carry, jax.random.key(0), STEPS))


def train(name, task):
    """A function from a key to the figures of the policy that it trains."""
    env, params = jaxrl.make(task, **SETTINGS[task])
    _, config, settings = ALGORITHMS[name]
    steps = budget(name, task)
    module = jaxrl.get_algo(name)
    algo = module.make(env, module.Config(**config))
    hyper = module.Hyper(**settings, gamma=discount(name, task))
    if hasattr(hyper, "anneal_steps"):
        hyper = hyper.replace(anneal_steps=steps)
    # A passed limit costs the worst reward for ever, as in the task, but for the short-sighted no more than they see.
    hyper, own = strongly_typed((hyper, params.replace(gamma=min(discount(name, task), 0.9))))

    def one(key):
        state, _ = jaxrl.train(algo, key, steps, hyper, own)
        return judged(env, params, *learnt(algo, algo.policy(state), DRIVES))

    return one


def controllers(task):
    """Of the classical controllers and of random actions, on the plain task: there they have all of the bridge's
    voltage, which rotor-axis actions leave to them only in part."""
    env, params = jaxrl.make(task)
    space = env.action_space(params)
    acts = {"random": (lambda key, params, state, obs, carry: (space.sample(key), carry), ())}
    for method in ("pi", "mpc") if task.startswith("Cont") else ("hysteresis", "mpc"):
        acts[method] = classical(env, method, DRIVES)
    return {name: jax.jit(lambda a=a: judged(env, params, *a))() for name, a in acts.items()}


def rounded(figures):
    return {name: round(float(x), 6) for name, x in figures.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    jobs = [(n, t) for t in SETTINGS for n in (("dqn", "pqn") if t.startswith("Finite") else ("ppo", "sac", "td3"))]
    for name, task in [("controllers", t) for t in SETTINGS] + jobs:
        if args.only and not {name, task, f"{name}/{task}"} & set(args.only):
            continue
        begin, rows = time.perf_counter(), {}
        if name == "controllers":
            rows = {f"{who}/{task}": {"seeds": [rounded(x)], "steps": 0} for who, x in controllers(task).items()}
        else:
            one, keys = train(name, task), [jax.random.key(seed) for seed in range(args.seeds)]
            if name in TOGETHER:
                together = jax.device_get(jax.jit(jax.vmap(one))(jnp.stack(keys)))
                seeds = [jax.tree.map(lambda x, i=i: x[i], together) for i in range(args.seeds)]
            else:
                program = jax.jit(one)
                seeds = [program(key) for key in keys]
            rows[f"{name}/{task}"] = {"seeds": [rounded(x) for x in seeds], "steps": budget(name, task)}
        results = json.loads(PATH.read_text()) if PATH.exists() else {}  # another process may have written
        where, seconds = environment_of_run(), round(time.perf_counter() - begin, 1)
        results |= {key: {**row, "seconds": seconds, "date": where["started"][:10]} for key, row in rows.items()}
        PATH.write_text(json.dumps(results, indent=1) + "\n")
        print(name, task, {k: np.mean([s["error"] for s in r["seeds"]]) for k, r in rows.items()}, seconds, flush=True)


if __name__ == "__main__":
    main()
