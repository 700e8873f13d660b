"""Do edits and the choice of the best sample make a cloned diffusion learn sooner? EXPO before a wall with two goals.

    python experiments/expo/run.py [--only ARM ...]

Goes on where it stopped. Prints, for README.md: steps to 0.8, seeds that got there, the end, CPU seconds, by arm.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import edac, expo
from jaxrl.data import datasets
from jaxrl.host import statistics
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.replay.ring import uniform

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "two_goals"))
from two_goals import TwoGoals, guided  # noqa: E402

SEEDS, STEPS, EVERY, EPISODES, ENOUGH = 10, 4_000, 200, 50, 0.8
SIZES = dict(hidden=(64, 64), batch_size=64, num_critics=4, num_target_critics=2, layer_norm=True, buffer_size=STEPS)
# A temperature of 1, the default, would outweigh returns of at most 1 for most of so few steps.
RATES = dict(learning_rate=1e-3, alpha=0.01, alpha_learning_rate=1e-3, gamma=0.95, tau=0.01, learning_starts=EVERY)
BASE = dict(num_diffusion_steps=5)
ARMS = {
    "EXPO, 8 samples, 8 edits": dict(num_samples=8, num_edits=8),
    "no edits: 8 samples": dict(num_samples=8, num_edits=0),
    "1 sample, 1 edit": dict(num_samples=1, num_edits=1),
    "neither: 1 sample": dict(num_samples=1, num_edits=0),
    "RLPD": None,
}
ENV = TwoGoals()
PARAMS = ENV.default_params


def program(arm, data):
    """A function of a key: the shares of episodes that end at a goal, at the start and after every `EVERY` steps."""
    stored = datasets.stored(data, ENV.action_space(PARAMS), gamma=RATES["gamma"])
    given = dict(replay=datasets.mixed(stored, uniform(STEPS)))
    if ARMS[arm] is None:
        config = edac.Config(**SIZES, diverse=False, mean_actor=True, soft_targets=False)
        algo, hyper = edac.make(ENV, config, **given), edac.Hyper(**RATES, target_entropy=-1.0)
    else:
        config = expo.Config(**SIZES, **BASE, **ARMS[arm])
        algo, hyper = expo.make(ENV, config, **given), expo.Hyper(**RATES, edit_scale=0.3)

    def score(state, key):
        policy = algo.policy(state)
        return jaxrl.evaluate(algo, policy, key, ENV, PARAMS, num_episodes=EPISODES, max_steps=24).returns.mean()

    def chunk(state, key):
        state, _ = jax.lax.scan(lambda s, _: algo.update(s), state, length=EVERY)
        return state, score(state, key)

    def run(key):
        keys = jax.random.split(key, STEPS // EVERY + 2)
        state = algo.init(keys[0], hyper, PARAMS)
        return jnp.concatenate([score(state, keys[1])[None], jax.lax.scan(chunk, state, keys[2:])[1]])

    return run


def steps_to(curves):
    """Steps until the mean of three evaluations is at least 0.8, by seed; infinite where it never is."""
    smooth = np.lib.stride_tricks.sliding_window_view(np.asarray(curves), 3, 1).mean(-1)
    return EVERY * np.where((smooth >= ENOUGH).any(1), (smooth >= ENOUGH).argmax(1) + 2, np.inf)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=ARMS, default=list(ARMS))
    only = parser.parse_args().only
    path = HERE / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    data, of_guide = guided(0, episodes=40, noise=1.0)
    results |= {"guide": of_guide, "steps of the guide": data.size}
    for arm in [arm for arm in only if arm not in results]:
        began = time.process_time()
        curves = jax.jit(jax.vmap(program(arm, data)))(jax.random.split(jax.random.key(0), SEEDS))
        results |= {arm: {"curves": np.round(np.asarray(curves, float), 2).tolist()}, **environment_of_run()}
        results[arm]["cpu_seconds"] = time.process_time() - began
        path.write_text(json.dumps(results) + "\n")
    for arm in filter(results.get, ARMS):
        curves = np.array(results[arm]["curves"])
        reached, final = steps_to(curves), curves[:, -3:].mean(1)
        low, high = statistics.bootstrap_interval(final, np.mean)
        row = np.median(reached), np.isfinite(reached).sum(), final.mean(), low, high, results[arm]["cpu_seconds"]
        print(f"| {arm} " + "| {:.0f} | {} | {:.2f} ({:.2f} to {:.2f}) | {:.0f} |".format(*row))


if __name__ == "__main__":
    main()
