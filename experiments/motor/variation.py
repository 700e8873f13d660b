"""Does a learner that has seen many motors control the currents of one that it has not seen better than a tuned PI?

    python experiments/motor/variation.py [--only pi ppo adr] [--seeds 10]

Drives of levels.py about `Cont-CC-PMSM-v0`: every number is between half and twice its default. A policy sees speed,
currents and voltages of the last three steps and nothing of the motor's numbers. The PI controllers have their own
motor's numbers for decoupling and, tuned, four gains that CMA-ES found for this motor on the task itself. All are
judged on the same motors with the same references; learners saw none of them. `apg` and `ppo` train on motors of the
whole range, `adr` is PPO under a curriculum whose ranges begin at the default motor and widen as it succeeds. Adds to
variation.json; `--table` prints the table of README.md.
"""

import argparse
import functools
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from evosax.algorithms import CMA_ES
from judge import classical, judge, learnt

import jaxrl
from jaxrl.algos import adr, apg, ppo
from jaxrl.curriculum import attach
from jaxrl.environment import strongly_typed
from jaxrl.envs.motor import controllers, levels
from jaxrl.run_folder import environment_of_run
from jaxrl.wrappers import FrameStack

PATH = Path(__file__).with_name("variation.json")
SPREAD, MOTORS, STEPS = 2.0, 64, 4000
GAMMA, LEARNING = 0.7, 64  # steps of an episode in training
ENV, PARAMS = jaxrl.make("Cont-CC-PMSM-v0", dq_actions=True, observed=("omega", "i_sd", "i_sq", "u_sd", "u_sq"))
STACK = FrameStack(ENV, 3)
SIZE = levels.dimensions(PARAMS)
PPO = ppo.Config(
    num_envs=128, num_steps=LEARNING, num_minibatches=16, hidden=(128, 128), normalize_obs=True, clip_value=False
)
APG = apg.Config(num_envs=128, num_steps=8, hidden=(128, 128), critic=False)


def at(params, x):
    """The motor of a point of the unit box; the middle is the default."""
    return levels.scaled(params, (2 * x - 1) * jnp.log(SPREAD))


def pi_error(x, params, key, num_envs, steps):
    """Of the PI controller with exp(x) times the gains of the symmetric optimum, on one motor."""
    gains, scale = controllers.make(ENV).tune(params), jnp.exp(x)
    gains = gains.replace(
        current_p=tuple(k * g for k, g in zip(scale[:2], gains.current_p, strict=True)),
        current_i=tuple(k * g for k, g in zip(scale[2:], gains.current_i, strict=True)),
    )
    several = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_envs, *jnp.shape(x))), params)
    return judge(ENV, several, *classical(ENV, None, gains), key, num_envs, steps)


def tuned(params, key, generations=60, population=12):
    """CMA-ES's last mean, for fresh references of the task in every generation."""
    strategy = CMA_ES(population, jnp.zeros(4))
    settings = strategy.default_params.replace(std_init=0.5)

    def generation(state, key):
        ask_key, run_key, tell_key = jax.random.split(key, 3)
        x, state = strategy.ask(ask_key, state, settings)
        cost = jax.vmap(lambda x: -pi_error(x, params, run_key, 8, 1000)["reward"].mean())(x)
        return strategy.tell(tell_key, x, cost, state, settings)[0], None

    start_key, run_key = jax.random.split(key)
    start = strategy.init(start_key, jnp.zeros(4), settings)
    return jax.lax.scan(generation, start, jax.random.split(run_key, generations))[0].mean


def algorithm(name):
    """`(algorithm, hyper)`."""
    shared = {"gamma": GAMMA, "learning_rate": 2e-3 if name == "apg" else 1e-3}
    if name == "adr":
        student = ppo.make(jaxrl.vectorize(STACK, PPO.num_envs, batched_params=True), PPO)
        wide = adr.Hyper(widen_at=-0.9, narrow_at=-2.0, step=0.05, num_returns=64.0)
        return attach(student, adr.make(at, adr.Config(dimensions=SIZE), wide)), ppo.Hyper(**shared, ent_coef=0.0)

    def level_fn(key, params):
        return at(params, jax.random.uniform(key, (SIZE,)))

    if name == "ppo":
        return ppo.make(jaxrl.vectorize(STACK, PPO.num_envs, level_fn=level_fn), PPO), ppo.Hyper(**shared, ent_coef=0.0)
    return apg.make(jaxrl.vectorize(STACK, APG.num_envs, level_fn=level_fn), APG), apg.Hyper(**shared)


def trained(key, name, steps, motors, judge_key):
    """Figures of a policy on each motor, and how wide the curriculum has become."""
    algo, hyper = algorithm(name)
    params = strongly_typed(PARAMS.replace(max_steps=LEARNING, gamma=GAMMA))
    state, _ = jaxrl.train(algo, key, steps, strongly_typed(hyper.replace(anneal_steps=steps)), params)
    figures = judge(STACK, motors, *learnt(algo, algo.policy(state)), judge_key, MOTORS, STEPS)
    return figures, jnp.mean(state.curriculum.high - state.curriculum.low) if name == "adr" else jnp.ones(())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=["pi", "apg", "ppo", "adr"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=6_000_000)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if args.table:
        return table()
    motors = jax.vmap(functools.partial(at, PARAMS))(jax.random.uniform(jax.random.key(99), (MOTORS, SIZE)))
    levels.validate(motors)
    judge_key = jax.random.key(7)
    for name in args.only:
        begin, rows = time.perf_counter(), {}
        if name == "pi":
            gains = jax.jit(jax.vmap(tuned))(motors, jax.random.split(jax.random.key(5), MOTORS))
            figures = jax.jit(jax.vmap(lambda x, p: jax.tree.map(jnp.mean, pi_error(x, p, judge_key, 1, STEPS))))
            rows = {"PI": [figures(0 * gains, motors)], "PI, tuned for each motor": [figures(gains, motors)]}
            several = jax.jit(lambda: judge(ENV, motors, *classical(ENV, "mpc"), judge_key, MOTORS, STEPS))
            rows["predictive, knows its motor"] = [several()]
            steps = 0
        else:
            steps, program = args.steps, jax.jit(functools.partial(trained, name=name, steps=args.steps))
            rows[name] = []
            for seed in range(args.seeds):
                figures, width = program(jax.random.key(seed), motors=motors, judge_key=judge_key)
                rows[name].append({**figures, "width": width})
                print(name, seed, float(figures["error"].mean()), float(width), flush=True)
        seconds, where = round(time.perf_counter() - begin, 1), environment_of_run()
        results = json.loads(PATH.read_text()) if PATH.exists() else {}
        for who, seeds in rows.items():
            seeds = [{k: np.round(np.asarray(x, float), 6).tolist() for k, x in row.items()} for row in seeds]
            results[who] = {"seeds": seeds, "steps": steps, "seconds": seconds, "date": where["started"][:10]}
        PATH.write_text(json.dumps(results) + "\n")
    table()


def table():
    results = json.loads(PATH.read_text())
    bar = np.array(results["PI, tuned for each motor"]["seeds"][0]["error"])
    print("| by | steps | seeds | error, mean (worst seed) | median motor | below tuned PI | limits passed in 1000 |")
    print("|---|---|---|---|---|---|---|")
    for who, row in results.items():
        error, passed = (np.array([seed[k] for seed in row["seeds"]]) for k in ("error", "passed"))
        better = f"{(error.mean(0) < bar).sum()} of {MOTORS} motors"
        worst = f" ({error.mean(1).max():.4f})" if len(error) > 1 else ""
        count, steps = (len(error), f"{row['steps']:,}") if row["steps"] else ("", "")
        print(
            f"| {who} | {steps} | {count} | {error.mean():.4f}{worst} | {np.median(error.mean(0)):.4f} | {better} | "
            f"{passed.mean():.3f} |"
        )


if __name__ == "__main__":
    main()
