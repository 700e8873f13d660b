"""Where most levels are useless, does it pay to choose them?

    python experiments/useful_levels/run.py [--only maze13/dr ...] [--seeds 20] [--tune NAME=VALUE ...]

Every run ends once it has made its family's number of environment steps. All count: also those of SFL's looks and those
from which robust PLR does not learn. Each student is then judged twice on 1,000 solvable levels that it never saw; the
worst tenth and the worst hundredth are those of the first judgement, told by the second.

Writes results.json beside this file, seed by seed (a seed that is there is not run again), then prints README.md's
tables and draws results.png (`picture.py`). `--tune` runs seeds from 1,000 on with settings of the student, such as
learning_rate=0.002, or of the curriculum, and only prints.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import picture
from methods import METHODS, settings, student_of, under
from tasks import FAMILIES, HELD_OUT

from jaxrl.environment import strongly_typed
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run

FILE = Path(__file__).with_name("results.json")
EPISODES = 3  # of a judgement on a level
EXACT = ("maze", "car")
ONLY = {
    "alp_gmm": ("car",),
    "paired": ("maze",),
    "plr_regret": EXACT,
    "sfl_regret": EXACT,
    "solvable": (*EXACT, "nav"),
}
"""Methods that are for families of these names."""
PAIRS = [f"{family}/{name}" for family in FAMILIES for name in METHODS if family.startswith(ONLY.get(name, ""))]


def judge_of(family):
    """A function: the weights of a policy -> solved on average, in the worst tenth, in the worst hundredth."""
    student, levels = student_of(family), family.held_out()

    @jax.jit
    def judged(policy, key, levels):
        def solved(key):
            def one(level, key):
                stats = evaluate(student, policy, key, family.env, level, num_episodes=EPISODES, greedy=False)
                return (stats.returns > family.success_above).mean()

            return jax.vmap(one)(levels, jax.random.split(key, HELD_OUT))

        first, second = map(solved, jax.random.split(key))
        worst = second[jnp.argsort(first)]
        return jnp.stack([second.mean(), worst[: HELD_OUT // 10].mean(), worst[: HELD_OUT // 100].mean()])

    return lambda policy, key: judged(policy, key, levels)


def trainer_of(family, curriculum):
    """`(train, settings)`: `train(key, settings, params, steps)` is the policy, and how often the student learned."""
    algo = under(student_of(family), family, curriculum)

    @jax.jit
    def train(key, hyper, params, steps):
        def update(run):
            state, looked, learned = run
            state, metrics = algo.update(state)
            return state, looked + metrics.get("refresh_steps", 0), learned + metrics.get("learned", 1)

        start = algo.init(key, hyper, params), jnp.int32(0), jnp.int32(0)
        state, _, learned = jax.lax.while_loop(lambda run: run[0].step + run[1] < steps, update, start)
        return algo.policy(state), learned

    return train, strongly_typed(algo.hyper(**vars(family.hyper)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=PAIRS, choices=PAIRS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tune", nargs="*", metavar="NAME=VALUE")
    args = parser.parse_args()
    families, judges, trainers = {}, {}, {}
    for pair in args.only:
        name, method = pair.split("/")
        if name not in families:
            families[name] = FAMILIES[name]()
            judges[name] = judge_of(families[name])
        family, curriculum = families[name], METHODS[method].curriculum
        if (name, curriculum) not in trainers:  # methods that differ in settings only are one program
            trainers[name, curriculum] = trainer_of(family, curriculum)
        train, hyper = trainers[name, curriculum]
        hyper, params = settings(method, family, hyper, args.tune or ())
        first = 0 if args.tune is None else 1000
        for seed in range(first, first + args.seeds):
            report = json.loads(FILE.read_text()) if FILE.exists() else {}
            if str(seed) in report.get(pair, {}).get("seeds", {}):
                continue
            began = time.process_time()
            policy, learned = jax.block_until_ready(train(jax.random.key(seed), hyper, params, family.steps))
            ended = time.process_time()
            found = np.asarray(judges[name](policy, jax.random.key(5000 + seed)), float).round(4).tolist()
            print(pair, seed, found, int(learned), f"{ended - began:.1f} s", flush=True)
            if args.tune is None:
                report = json.loads(FILE.read_text()) if FILE.exists() else {}  # again: another process may have added
                row = report.setdefault(pair, {"where": environment_of_run(), "seeds": {}})
                row["seeds"][str(seed)] = {"solved": found, "updates": int(learned), "cpu": round(ended - began, 1)}
                FILE.write_text(json.dumps({p: report[p] for p in PAIRS if p in report}) + "\n")
    if args.tune is None:
        picture.main()


if __name__ == "__main__":
    main()
