"""Can a diffusion model make a twentieth of a dataset as good as all of it? SynthER on Pendulum-v1.

    python experiments/synthetic_replay/run.py [--seeds 10]

Writes results.json and results.png beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.actors import Actor
from jaxrl.algos import iql, td3_bc
from jaxrl.data import datasets, diffusion
from jaxrl.data.transitions import Transition
from jaxrl.evaluation import evaluate
from jaxrl.host.data.recording import recorded
from jaxrl.host.plotting import bars
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told

HERE = Path(__file__).parent
EPISODES, FEW, LENGTH = 100, 5, 200
NOISE = 0.1  # of the additive noise, in deviations of each column
MODEL = diffusion.Config(num_updates=10_000, batch_size=128, learning_rate=1e-3, width=64, num_steps=32)
SIZES = {"num_updates": 5_000, "batch_size": 128, "hidden": (64, 64), "normalize_obs": False}
RATES = {"learning_rate": 1e-3, "gamma": 0.95, "tau": 0.02}
ENV, PARAMS = jaxrl.make("Pendulum-v1")
MEMORY = datasets.carried
"""Of transitions that are put into the state, so that every seed has its own."""
LEARNERS = {
    "td3_bc": (td3_bc.make(ENV, td3_bc.Config(**SIZES), replay=MEMORY), td3_bc.Hyper(alpha=5.0, **RATES)),
    "iql": (
        iql.make(ENV, iql.Config(**SIZES), replay=MEMORY),
        iql.Hyper(expectile=0.9, beta=1.0, learning_rate=1e-3, gamma=0.95),
    ),
}


def swing_up(obs):
    """Energy is raised to that of standing still upright, where a linear law takes over."""
    cos, sin, rate = obs[:, 0], obs[:, 1], obs[:, 2]
    lacking = 5 - (rate**2 / 6 + 5 * cos)
    torque = jnp.where(cos > 0.9, -10 * jnp.arctan2(sin, cos) - 2 * rate, jnp.sign(rate) * jnp.clip(lacking, -2, 2))
    return jnp.clip(torque, -2, 2)[:, None]


def mixed_episodes(key):
    """`EPISODES` of the controller, the i-th of which acts at random in a share i / EPISODES of its steps."""
    share = jnp.arange(EPISODES)[:, None] / EPISODES

    def act(key, env_state, obs, env_params, carry):
        which, uniform = jax.random.uniform(key, (2, EPISODES, 1))
        return jnp.where(which < share, 4 * uniform - 2, swing_up(obs)), carry

    return recorded(ENV, PARAMS, Actor(act), key, EPISODES, LENGTH)


def as_rows(d):
    return jnp.concatenate([d.obs, d.action, d.reward[:, None], d.next_obs], 1)


def as_transitions(rows):
    obs, action, reward, next_obs = jnp.split(rows, (3, 4, 5), 1)
    return Transition(obs, jnp.clip(action / 2, -1, 1), reward[:, 0], jnp.zeros(len(rows), bool), next_obs)


def sets(key):
    """Rows of each arm, and what is known of them."""
    data_key, few_key, noise_key, model_key = jax.random.split(key, 4)
    full = as_rows(mixed_episodes(data_key))
    chosen = jax.random.permutation(few_key, EPISODES)[:FEW]
    few = full.reshape(EPISODES, LENGTH, -1)[chosen].reshape(FEW * LENGTH, -1)
    many = jnp.tile(few, (EPISODES // FEW, 1))
    noisy = many + NOISE * few.std(0) * jax.random.normal(noise_key, many.shape)
    synthetic, loss = diffusion.rows_like(model_key, few, len(full), MODEL)
    arms = {"all": full, "a twentieth": many, "with noise": noisy, "synthetic": synthetic}
    return arms, {"denoising loss": loss, **{f"error, {k}": model_error(rows) for k, rows in arms.items()}}


def model_error(rows):
    """The root mean square distance between the next observations of the rows and the true ones, in deviations."""
    obs, action, next_obs = rows[:, :3], jnp.clip(rows[:, 3], -2, 2), rows[:, 5:]
    angle = jnp.arctan2(obs[:, 1], obs[:, 0])
    rate = jnp.clip(obs[:, 2] + 0.05 * (15 * jnp.sin(angle) + 3 * action), -8, 8)
    angle = angle + 0.05 * rate
    true = jnp.stack([jnp.cos(angle), jnp.sin(angle), rate], 1)
    return jnp.sqrt(jnp.mean(((next_obs - true) / next_obs.std(0)) ** 2))


def score(learner, key, rows):
    """The mean return of 32 greedy episodes after training on these rows."""
    algo, hyper = LEARNERS[learner]
    key, eval_key = jax.random.split(key)
    state, _ = algo.learn(algo.init(key, hyper, PARAMS).replace(replay=as_transitions(rows)))
    return evaluate(algo, algo.policy(state), eval_key, ENV, PARAMS, num_episodes=32, greedy=True).returns.mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    where = environment_of_run()
    begin = time.perf_counter()
    keys = jax.random.split(jax.random.key(0), seeds)
    arms, about = jax.jit(lambda keys: jax.lax.map(sets, keys))(keys)
    about = {name: np.asarray(x, float).round(4).tolist() for name, x in about.items()}
    results = {"where": {k: where[k] for k in ("started", "device", "processors", "versions")}, "sets": about}
    rows = jnp.concatenate(list(arms.values()))
    print("| learner | data | return, IQM | 95 % interval |\n|---|---|---|---|", flush=True)
    for learner in LEARNERS:
        run = jax.jit(lambda keys, rows, learner=learner: jax.lax.map(lambda x: score(learner, *x), (keys, rows)))
        found = np.asarray(run(jnp.tile(keys, len(arms)), rows), float).reshape(len(arms), seeds)
        for arm, returns in zip(arms, found, strict=True):
            results[f"{learner}, {arm}"] = returns.round(2).tolist()
            print(f"| {learner} | {arm} | {told(returns, '.0f', cells=True)} |", flush=True)
    results["minutes"] = round((time.perf_counter() - begin) / 60, 1)
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    shown = {f"{learner}, {arm}": results[f"{learner}, {arm}"] for learner in LEARNERS for arm in arms}
    bars(shown, HERE / "results.png", "return of Pendulum-v1")
    print(f"{results['minutes']} minutes", {name: np.mean(x).round(3) for name, x in about.items()})


if __name__ == "__main__":
    main()
