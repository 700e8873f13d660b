"""Five learners in two checkouts of this repository, in turns: seconds to compile and seconds of training.

    python benchmarks/learners.py BEFORE AFTER --rounds 4

BEFORE and AFTER are folders of checkouts; both run with this interpreter's packages, each measurement in a process of
its own. Prints a row a learner: medians, and what AFTER takes as a share of BEFORE.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
import warnings

UPDATES = {"ppo": 20, "ppo_rnn": 8, "dqn": 6_000, "sac": 1_500, "iql": 1_200}
"""Updates of a measurement: 0.5 to 5 seconds on two cores."""


def imported(*names):
    """The first of the modules that this checkout has."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(f"none of {names}")


def module_of(name):
    """The module of a learner, in whichever folder of `jaxrl.algos` the checkout keeps it."""
    return imported(
        *(f"jaxrl.algos.{folder}{name}" for folder in ("", "on_policy.", "deep_q.", "actor_critic.", "offline."))
    )


def learner(name):
    """`(module, algorithm, env_params)`."""
    import jax
    import jax.numpy as jnp

    import jaxrl

    module = module_of(name)
    env, params = jaxrl.make("Pendulum-v1" if name in ("sac", "iql") else "CartPole-v1")
    if name.startswith("ppo"):
        return module, module.make(env, module.Config(num_envs=64, num_steps=128)), params
    if name != "iql":
        return module, module.make(env, module.Config()), params
    data, n = imported("jaxrl.data.datasets", "jaxrl.replay.datasets"), 20_000
    keys = jax.random.split(jax.random.key(0), 4)
    obs, next_obs = jax.random.normal(keys[0], (2, n, 3))
    action = jax.random.uniform(keys[1], (n, 1), minval=-2, maxval=2)
    last = jnp.arange(n) % 200 == 199
    dataset = data.Dataset(obs, action, jax.random.normal(keys[2], (n,)), last & False, last, next_obs)
    stored = data.stored(dataset, env.action_space(params))
    argument = "memory" if data.__name__ == "jaxrl.replay.datasets" else "replay"
    return module, module.make(env, module.Config(), **{argument: stored}), params


def measured(name):
    """`(seconds to compile, least seconds of three)` of UPDATES updates."""
    import jax

    module, algo, params = learner(name)
    hyper = module.Hyper(learning_starts=500) if name in ("dqn", "sac") else module.Hyper()
    state = jax.jit(algo.init)(jax.random.key(0), hyper, params)

    def body(state, _):
        return algo.update(state)[0], ()

    start = time.perf_counter()
    run = jax.jit(lambda state: jax.lax.scan(body, state, None, length=UPDATES[name])[0]).lower(state).compile()
    compiled = time.perf_counter() - start
    jax.block_until_ready(run(state))
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(run(state))
        seconds.append(time.perf_counter() - start)
    return compiled, min(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", help="BEFORE AFTER")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument(
        "--here", action="store_true", help="one measurement of the checkout in the present folder, as JSON"
    )
    args = parser.parse_args()
    if args.here:
        warnings.simplefilter("ignore")
        # An editable install would find modules that this checkout lacks in the other one.
        sys.meta_path = [x for x in sys.meta_path if "__editable__" not in getattr(x, "__module__", "")]
        print(json.dumps({name: measured(name) for name in UPDATES}))
        return
    if len(args.checkouts) != 2:
        parser.error("give two checkouts, BEFORE and AFTER.")
    rows = {root: [] for root in args.checkouts}
    for i in range(2 * args.rounds):
        for root in args.checkouts[:: -1 if i % 2 else 1]:
            environment = {**os.environ, "PYTHONPATH": os.path.abspath(root)}
            command = [sys.executable, os.path.abspath(__file__), "--here"]
            rows[root].append(json.loads(subprocess.check_output(command, cwd=root, env=environment).splitlines()[-1]))
    print(
        "| learner | compile, before | after | share | train, before | after | share |\n|---|---|---|---|---|---|---|"
    )
    for name in UPDATES:
        cells = []
        for i in range(2):
            before, after = (statistics.median(row[name][i] for row in rows[root]) for root in args.checkouts)
            cells += [f"{before:.2f} s", f"{after:.2f} s", f"{after / before:.2f}"]
        print("| " + " | ".join([name, *cells]) + " |")


if __name__ == "__main__":
    main()
