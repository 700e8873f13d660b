"""Does a learner that has seen many motors control the currents of one that it has not seen better than a tuned PI?

    python experiments/motor/variation.py [--only pi ppo adr] [--seeds 10]

Drives of levels.py about `Cont-CC-PMSM-v0`: every number is between half and twice its default. The PI controllers have
their own motor's numbers for decoupling and for their gains (the magnitude optimum), or, tuned, four gains that CMA-ES
found for this motor on the task itself. `apg` has the motor's numbers, too; `apg blind` sees the last four steps
instead. Both are trained by gradients through the drive (policy.py: the network), on motors drawn from the whole range.
`adr` is PPO under a curriculum whose ranges begin at the default motor and widen as it succeeds, `ppo` is without it.
All are judged on the same motors with the same references; learners saw none of them. Voltages are on the rotor's axes,
each up to half of the link's; "all voltage" is the plain task, where a controller has a circle of 0.577 of the link's.
Adds to variation.json; page.py prints the table.
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
from judge import classical, judge, learnt, several
from policy import ENV, PARAMS, Informed, Scheduled

import jaxrl
from jaxrl.algos import apg, ppo
from jaxrl.algos.curricula import adr
from jaxrl.curriculum.attachment import attach
from jaxrl.environment import strongly_typed
from jaxrl.envs.motor import levels
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.wrappers import FrameStack

PATH = Path(__file__).with_name("variation.json")
SPREAD, MOTORS, STEPS = 2.0, 64, 4000
GAMMA, LEARNING = 0.85, 64  # steps of an episode in training
SIZE = levels.dimensions(PARAMS)
PLAIN = jaxrl.make("Cont-CC-PMSM-v0")[0]
PPO = ppo.Config(
    num_envs=128, num_steps=LEARNING, num_minibatches=16, hidden=(128, 128), normalize_obs=True, clip_value=False
)
APG = apg.Config(num_envs=128, num_steps=8, critic=False)


def at(params, x):
    """The motor of a point of the unit box; the middle is the default."""
    return levels.scaled(params, (2 * x - 1) * jnp.log(SPREAD))


def tuned(env, params, key, generations=60, population=12):
    """CMA-ES's last mean of the gains' logarithms, for fresh references of the task in every generation."""
    strategy = CMA_ES(population, jnp.zeros(4))
    settings = strategy.default_params.replace(std_init=0.5)

    def cost(x, key):
        act, carry = classical(env, "pi", 8, several(x, 8))
        return -judge(env, several(params, 8), act, carry, key, 1000)["reward"].mean()

    def generation(state, key):
        ask_key, run_key, tell_key = jax.random.split(key, 3)
        x, state = strategy.ask(ask_key, state, settings)
        costs = jax.vmap(cost, (0, None))(x, run_key)
        return strategy.tell(tell_key, x, costs, state, settings)[0], None

    start_key, run_key = jax.random.split(key)
    start = strategy.init(start_key, jnp.zeros(4), settings)
    return jax.lax.scan(generation, start, jax.random.split(run_key, generations))[0].mean


def algorithm(name):
    """`(algorithm, hyper)`."""
    env = FrameStack(ENV, 4) if name == "apg blind" else Informed(ENV)

    def level_fn(key, params):
        return at(params, jax.random.uniform(key, (SIZE,)))

    if name.startswith("apg"):
        venv = jaxrl.vectorize(env, APG.num_envs, level_fn=level_fn)
        network = Scheduled(0 if name == "apg blind" else 5)
        return apg.make(venv, APG, network=network), apg.Hyper(gamma=GAMMA, learning_rate=3e-3)
    hyper = ppo.Hyper(gamma=GAMMA, learning_rate=1e-3, ent_coef=0.0)
    if name == "ppo":
        return ppo.make(jaxrl.vectorize(env, PPO.num_envs, level_fn=level_fn), PPO), hyper
    student = ppo.make(jaxrl.vectorize(env, PPO.num_envs, batched_params=True), PPO)
    wide = adr.Hyper(widen_at=-1.6, narrow_at=-3.0, num_returns=64.0)
    return attach(student, adr.make(at, adr.Config(dimensions=SIZE), wide)), hyper


def trained(key, name, steps, motors, judge_key):
    """Figures of a policy on each motor, and how wide the curriculum has become."""
    algo, hyper = algorithm(name)
    params = strongly_typed(PARAMS.replace(max_steps=LEARNING, gamma=GAMMA))
    state, _ = jaxrl.train(algo, key, steps, strongly_typed(hyper.replace(anneal_steps=steps)), params)
    figures = judge(algo.venv.env, motors, *learnt(algo, algo.policy(state), MOTORS), judge_key, STEPS)
    return figures, jnp.mean(state.curriculum.high - state.curriculum.low) if name == "adr" else jnp.ones(())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=["pi", "apg", "apg blind", "ppo", "adr"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=4_000_000)
    args = parser.parse_args()
    motors = jax.vmap(functools.partial(at, PARAMS))(jax.random.uniform(jax.random.key(99), (MOTORS, SIZE)))
    levels.validate(motors)
    judge_key = jax.random.key(7)
    for name in args.only:
        begin, rows = time.perf_counter(), {}
        if name == "pi":
            keys = jax.random.split(jax.random.key(5), MOTORS)
            for env, note in ((ENV, ""), (PLAIN, ", all voltage")):
                gains = jax.jit(jax.vmap(functools.partial(tuned, env)))(motors, keys)
                for who, method, scales in (
                    ("PI", "pi", None),
                    ("PI, tuned for each motor", "pi", gains),
                    ("predictive", "mpc", None),
                ):
                    act, carry = classical(env, method, MOTORS, scales)
                    judged = jax.jit(lambda e=env, a=act, c=carry: judge(e, motors, a, c, judge_key, STEPS))
                    rows[who + note] = [judged()]
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


if __name__ == "__main__":
    main()
