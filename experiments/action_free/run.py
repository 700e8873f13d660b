"""What are trajectories without actions worth? SS-ORL on Pendulum-v1.

    python experiments/action_free/run.py [--seeds 10]

Writes results.json and results.png beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import jaxrl
from jaxrl.actors import Actor
from jaxrl.algos import iql, td3_bc
from jaxrl.data import datasets
from jaxrl.data.transitions import Transition
from jaxrl.evaluation import evaluate
from jaxrl.host.data.recording import recorded
from jaxrl.host.plotting import bars
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told
from jaxrl.nn.networks import MLP
from jaxrl.nn.optim import optimizer_of

HERE = Path(__file__).parent
EPISODES, LABELLED, LENGTH = 100, 10, 200
INVERSE_STEPS, INVERSE_BATCH = 3_000, 128  # gradient steps of the inverse model
SIZES = {"num_updates": 4_000, "batch_size": 64, "hidden": (64, 64), "normalize_obs": False}
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


INVERSE = MLP((64, 64), 2, "relu")
"""Of an observation and the change to the next one: mean and logarithm of the deviation of the action between."""


def inverse_inputs(obs, next_obs):
    return jnp.concatenate([obs, 10 * (next_obs - obs)], -1)


def inverse_model(key, obs, action, next_obs):
    """Weights by maximum likelihood of the actions (in units of the box)."""
    key, init_key = jax.random.split(key)
    inputs = inverse_inputs(obs, next_obs)
    flat, unravel = ravel_pytree(INVERSE.init(init_key, inputs[:1]))
    adam = optimizer_of("adam")

    def step(carry, key):
        rows = jax.random.randint(key, (INVERSE_BATCH,), 0, len(obs))

        def loss(weights):
            mean, log_std = jnp.split(INVERSE.apply(weights, inputs[rows]), 2, -1)
            log_std = jnp.clip(log_std, -4, 1)
            return jnp.mean(((action[rows] - mean) / jnp.exp(log_std)) ** 2 / 2 + log_std)

        return adam.descend(*carry, jax.grad(loss)(unravel(carry[0])), 1e-3, 10.0)[:2], None

    carry = flat, adam.init(unravel(flat), 1e-3)
    return unravel(jax.lax.scan(step, carry, jax.random.split(key, INVERSE_STEPS))[0][0])


def sets(key):
    """Transitions of each arm, all of one size, and what is known of them."""
    data_key, few_key, model_key = jax.random.split(key, 3)
    d = mixed_episodes(data_key)
    full = Transition(d.obs, d.action / 2, d.reward, d.terminated, d.next_obs)
    by_episode = jax.tree.map(lambda x: x.reshape(EPISODES, LENGTH, *x.shape[1:]), full)
    total = by_episode.reward.sum(1)
    worse_half = jnp.argsort(total)[: EPISODES // 2]
    labelled = jax.random.permutation(few_key, worse_half)[:LABELLED]
    few = jax.tree.map(lambda x: x[labelled].reshape(-1, *x.shape[2:]), by_episode)
    weights = inverse_model(model_key, few.obs, few.action, few.next_obs)
    guess = jnp.clip(INVERSE.apply(weights, inverse_inputs(full.obs, full.next_obs))[:, :1], -1, 1)
    known = jnp.zeros(EPISODES, bool).at[labelled].set(True).repeat(LENGTH)[:, None]
    proxies = full._replace(action=jnp.where(known, full.action, guess))
    many = jax.tree.map(lambda x: jnp.tile(x, (EPISODES // LABELLED, *[1] * (x.ndim - 1))), few)
    error = jnp.sqrt(jnp.sum(jnp.where(known, 0, guess - full.action) ** 2) / jnp.sum(~known))
    about = {"error of proxies": error, "return, all": total.mean(), "return, labelled": total[labelled].mean()}
    return {"all labelled": full, "a tenth labelled, alone": many, "proxies for the rest": proxies}, about


def score(learner, key, transitions):
    """The mean return of 32 greedy episodes after training on these transitions."""
    algo, hyper = LEARNERS[learner]
    key, eval_key = jax.random.split(key)
    state, _ = algo.learn(algo.init(key, hyper, PARAMS).replace(replay=transitions))
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
    transitions = jax.tree.map(lambda *x: jnp.concatenate(x), *arms.values())
    print("| learner | data | return, IQM | 95 % interval |\n|---|---|---|---|", flush=True)
    for learner in LEARNERS:
        run = jax.jit(
            lambda keys, transitions, learner=learner: jax.lax.map(lambda x: score(learner, *x), (keys, transitions))
        )
        found = np.asarray(run(jnp.tile(keys, len(arms)), transitions), float).reshape(len(arms), seeds)
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
