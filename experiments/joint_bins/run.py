"""Do bins that know each other find what single dimensions do not? ARSQ and CQN on a bandit that is exclusive or.

    python experiments/joint_bins/run.py [--only LEARNER ...]

Writes results.json beside this file after each learner, and prints what the greedy actions are paid.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import ridge

import jaxrl
from jaxrl.algos import arsq, cqn
from jaxrl.host import statistics
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
SEEDS, STEPS = 10, 1500  # gradient steps, on new pulls at random each time
SIZES = dict(batch_size=128, hidden=(32, 32), num_updates=50)
LEARNERS = {
    "CQN": (cqn, dict(num_outputs=11), dict(v_min=0.0, v_max=1.0)),
    "ARSQ": (arsq, {}, dict(alpha=0.03)),
}


def pulled(learner, keys):
    """`(paid, action)` of the greedy action after learning, for each key."""
    module, config, hyper = LEARNERS[learner]
    algo = module.make(ridge.Ridge(), module.Config(**SIZES, **config), replay=ridge.PULLS)
    hyper = module.Hyper(learning_rate=1e-3, **hyper)

    def score(key):
        train_key, act_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, STEPS, hyper)
        action, _ = algo.act(algo.policy(state), act_key, jnp.ones(1), greedy=True)
        return ridge.reward(action), action

    return jax.jit(jax.vmap(score))(keys)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=LEARNERS, default=list(LEARNERS))
    args = parser.parse_args()
    path = HERE / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for learner in args.only:
        began = time.process_time()
        paid, action = pulled(learner, jax.random.split(jax.random.key(0), SEEDS))
        row = {"paid": paid.tolist(), "actions": action.tolist(), "cpu_seconds": time.process_time() - began}
        results |= {learner: row, **environment_of_run()}
        path.write_text(json.dumps(results) + "\n")
        print(f"| {learner} | {statistics.told(paid, '.3f', np.mean)} | {(paid > 0.5).sum()} |", flush=True)


if __name__ == "__main__":
    main()
