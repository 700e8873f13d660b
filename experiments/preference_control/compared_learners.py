"""Preferences of the two tasks' data, by regret or by return, and what CPL, P-IQL and cloning make of them."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle

import jaxrl
from jaxrl.algos import cpl, p_iql
from jaxrl.data import preferences

STEPS, PAIRS, LENGTH, UPDATES, EPISODES = 20_000, 2_000, 16, 4_000, 50
SHARES = {"Pendulum": 0.5, "point maze": 0.5, "point maze, more of the oracle": 0.75}
"""Of steps of the data in which the oracle acts."""
SMALL = dict(num_updates=100, batch_size=32, hidden=(64, 64))
LEARNERS = {
    "cpl": (cpl, cpl.Hyper(learning_rate=3e-4, cloning_steps=1_000, warmup_steps=100)),
    "p_iql": (p_iql, p_iql.Hyper(learning_rate=3e-4, reward_steps=1_500)),
    "cloning": (cpl, cpl.Hyper(learning_rate=3e-4, cloning_steps=UPDATES)),
}


def compared(task, labels, pairs=PAIRS):
    """So many preferences of the task's data, error-free, by minus the regret or by the return."""
    steps, values = oracle.data(task, STEPS, SHARES[task], 0)
    first = preferences.uniform_queries(np.random.default_rng(0), steps, pairs, LENGTH)
    by = (oracle.GAMMA, values) if labels == "regret" else (1.0, None)
    score, apart = (of(steps, first, LENGTH, *by) for of in (preferences.scores, preferences.rounding))
    label = np.asarray(preferences.labels(jax.random.key(0), jnp.asarray(score, jnp.float32), rounding=apart))
    return preferences.Preferences(steps, first, label, LENGTH)


def judged_on(task):
    """The task of evaluations: of the maze from its far end alone."""
    made = oracle.TASKS[task]() if task == "Pendulum" else oracle.maze("first")
    return made.env, made.params


def learned(task, labels, name, seeds):
    """Mean returns, a seed each."""
    module, hyper = LEARNERS[name]
    env, params = judged_on(task)
    replay = preferences.stored(compared(task, labels), env.action_space(params))
    algo = module.make(env, module.Config(**SMALL), replay=replay)

    @jax.jit
    @jax.vmap
    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, UPDATES, hyper, params)
        found = jaxrl.evaluate(algo, algo.policy(state), eval_key, env, params, num_episodes=EPISODES)
        return found.returns.mean(), found.lengths.mean()

    return run(jax.random.split(jax.random.key(1), seeds))
