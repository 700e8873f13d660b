"""What does ReinFlow make of a cloned flow? A point robot before a wall, with a goal behind it on either side.

    python experiments/two_goals/run.py [--only ARM ...]

Writes results.json beside this file after each arm; what it holds already is not run again.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from two_goals import TwoGoals, guided

import jaxrl
from jaxrl.algos import bc, ddpm_bc, flow_bc, reinflow
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
SEEDS, EPISODES = 10, 128  # of which a score is the mean
CLONING_STEPS, STEPS = 1000, 30 * 16 * 64  # gradient steps; environment steps
SIZES = dict(hidden=(32, 32))
CLONING = dict(num_updates=100, batch_size=128)
HYPER = reinflow.Hyper(learning_rate=1e-3, critic_learning_rate=3e-3, clip_eps=0.05, ent_coef=0.0, warmup_steps=2048)
ARMS = ("BC", "DDPM, 10 steps", "flow, 1 step", "flow, 4 steps")
ONLY_CLONED = {"BC": bc, "DDPM, 10 steps": ddpm_bc}
ENV = TwoGoals()
PARAMS = ENV.default_params


def score(algo, policy, key):
    """The shares of episodes that end at a goal, and at the left one."""

    def paid(params, key):
        return jaxrl.evaluate(algo, policy, key, ENV, params, num_episodes=EPISODES).returns.mean()

    any_key, left_key = jax.random.split(key)
    return jnp.stack([paid(PARAMS, any_key), paid(PARAMS.replace(right=jnp.float32(0)), left_key)])


def program(arm, data):
    """A function of a key that clones, scores, and where the clone is a flow improves it and scores it again."""
    hyper = dict(learning_rate=3e-3)
    if arm in ONLY_CLONED:
        rule = ONLY_CLONED[arm]
        algo = rule.make(ENV, rule.Config(**SIZES, **CLONING), replay=data)

        def run(key):
            train_key, key = jax.random.split(key)
            state, _ = jaxrl.train(algo, train_key, CLONING_STEPS, rule.Hyper(**hyper))
            return {"cloned": score(algo, algo.policy(state), key)}

        return run
    steps = dict(num_flow_steps=int(arm.split()[1]))
    clone = flow_bc.make(ENV, flow_bc.Config(**SIZES, **CLONING, **steps), replay=data)
    algo = reinflow.make(ENV, reinflow.Config(**SIZES, **steps, num_steps=64))

    def run(key):
        keys = jax.random.split(key, 4)
        cloned, _ = jaxrl.train(clone, keys[0], CLONING_STEPS, flow_bc.Hyper(**hyper))
        state = reinflow.start(algo, cloned, keys[1], HYPER, PARAMS)
        state, log = jax.lax.scan(lambda state, _: algo.update(state), state, length=STEPS // algo.steps_per_update)
        before, after = score(clone, clone.policy(cloned), keys[2]), score(algo, algo.policy(state), keys[3])
        return {"cloned": before, "improved": after, "curve": log["episode_return"]}

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=ARMS, default=ARMS)
    args = parser.parse_args()
    path = HERE / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    data, of_guide = guided(0)
    results |= {"guide": of_guide, "steps of the guide": data.size}
    for arm in args.only:
        began = time.process_time()
        if arm in results:
            continue
        found = jax.jit(jax.vmap(program(arm, data)))(jax.random.split(jax.random.key(0), SEEDS))
        row = {name: x.tolist() for name, x in found.items()}
        results |= {arm: row | {"cpu_seconds": time.process_time() - began}, **environment_of_run()}
        path.write_text(json.dumps(results) + "\n")
        print(arm, {name: [y[0] for y in x] for name, x in row.items() if name != "curve"}, flush=True)


if __name__ == "__main__":
    main()
