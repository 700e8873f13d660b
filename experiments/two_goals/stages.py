"""Does a policy that learns in the latent space of a flow keep two ways? GoRL and PPO on the point robot of run.py.

    python experiments/two_goals/stages.py [--only ARM ...]

Goes on where it stopped: stages.json has what is done. Prints, for README.md: episodes that end at a goal, and at the
rarer one, seeds with 0.9 of the former and 0.2 of the latter, CPU seconds, by arm.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from two_goals import TwoGoals

import jaxrl
from jaxrl.algos import gorl, ppo
from jaxrl.host import statistics
from jaxrl.host.run.run_folder import environment_of_run

FILE = Path(__file__).with_name("stages.json")
SEEDS, EPISODES, UPDATES = 10, 200, 239  # the fourth stage has no end
ROLLOUT = dict(num_envs=16, num_steps=64, num_epochs=5, num_minibatches=4)
RATES = dict(learning_rate=1e-3, gamma=0.95, ent_coef=0.01)
FITTED = dict(refit_steps=1000, num_flow_steps=5, hidden=(64, 64), encoder_hidden=(32, 32))
FITS = dict(decoder_learning_rate=3e-3, critic_learning_rate=1e-3)
ARMS = {"PPO": None, "GoRL": 60, "GoRL, short stages": 8}  # updates a stage


class Near(TwoGoals):
    """It starts closer to the wall than in run.py, so that normal actions find a goal now and then."""

    def initial(self, key, params):
        state = super().initial(key, params)
        return state.replace(place=state.place + jnp.array([0.0, 0.4]))


ENV = Near()
PARAMS = ENV.default_params


def program(arm):
    """A function of a key: the shares of episodes that end at a goal, and at the left one; the curve of returns."""
    if arm == "PPO":
        algo, hyper = ppo.make(ENV, ppo.Config(**ROLLOUT, hidden=(64, 64))), ppo.Hyper(**RATES)
    else:
        algo = gorl.make(
            ENV, gorl.Config(**ROLLOUT, **FITTED, stage_updates=ARMS[arm], refit_rollouts=min(10, ARMS[arm]))
        )
        hyper = gorl.Hyper(**RATES, **FITS)

    def paid(policy, params, key):
        return jaxrl.evaluate(algo, policy, key, ENV, params, num_episodes=EPISODES, greedy=False).returns.mean()

    def run(key):
        train_key, any_key, left_key = jax.random.split(key, 3)
        state, log = jaxrl.train(algo, train_key, UPDATES * algo.steps_per_update, hyper, PARAMS)
        policy = algo.policy(state)
        left = paid(policy, PARAMS.replace(right=jnp.float32(0)), left_key)
        return {"goal": paid(policy, PARAMS, any_key), "left": left, "curve": log["episode_return"]}

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=ARMS, default=list(ARMS))
    only = parser.parse_args().only
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    for arm in [arm for arm in only if arm not in results]:
        began = time.process_time()
        found = jax.jit(jax.vmap(program(arm)))(jax.random.split(jax.random.key(0), SEEDS))
        results |= {
            arm: {name: np.round(np.asarray(x, float), 3).tolist() for name, x in found.items()},
            **environment_of_run(),
        }
        results[arm]["cpu_seconds"] = time.process_time() - began
        FILE.write_text(json.dumps(results) + "\n")
    for arm in filter(results.get, ARMS):
        goal, left = (np.array(results[arm][name]) for name in ("goal", "left"))
        rarer, (low, high) = np.maximum(np.minimum(left, goal - left), 0), statistics.bootstrap_interval(goal, np.mean)
        both = np.sum((rarer >= 0.2) & (goal >= 0.9))
        print(
            f"| {arm} | {goal.mean():.2f} ({low:.2f} to {high:.2f}) | {rarer.mean():.2f} | {both} of {len(goal)} |",
            end=" ",
        )
        print(f"{results[arm]['cpu_seconds']:.0f}")


if __name__ == "__main__":
    main()
