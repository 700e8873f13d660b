"""A learner on a narrow dataset and the true dynamics as its model, for one length of rollouts."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from box import PointInBox, state_of

import jaxrl
from jaxrl.algos.offline import mopo, ravl
from jaxrl.envs.classic.pendulum import State as PendulumState
from jaxrl.evaluation import evaluate
from jaxrl.replay import datasets, model_based

IMAGINED = 3000  # steps an update
UPDATE = 250  # gradient steps of an update
SIZES = dict(num_updates=UPDATE, batch_size=64, buffer_size=5 * IMAGINED, hidden=(32, 32))
HYPER = dict(learning_rate=1e-3, alpha_learning_rate=1e-3, tau=0.01, alpha=0.1, gamma=0.95)
ARMS = {
    "MOPO": (mopo, dict(num_critics=2), dict(penalty=1.0)),  # the true dynamics are certain, so it is MBPO
    "RAVL": (ravl, dict(num_critics=5), dict(diversity=0.1)),
}


def pendulum_state(obs):
    return PendulumState(jnp.int32(0), jnp.arctan2(obs[1], obs[0]), obs[2])


@functools.cache
def task(name):
    """`(env, params, memory, true model, horizon)`; the data are single steps of random actions in few states."""
    rng, n = np.random.default_rng(0), 2000
    if name == "box":
        env = PointInBox()
        params, horizon = env.default_params, 30
        model = model_based.of_environment(env, params, state_of(params))
        obs = rng.uniform(-0.2, 0.2, (n, 2))  # where episodes begin
        action = rng.uniform(-1, 1, (n, 2))
    else:
        env, params = jaxrl.make("Pendulum-v1")
        horizon = 200
        model = model_based.of_environment(env, params, pendulum_state)
        theta, speed = rng.uniform(-0.3, 0.3, n) + (np.pi if name == "hanging" else 0), rng.uniform(-1, 1, n)
        obs, action = np.stack([np.cos(theta), np.sin(theta), speed], 1), rng.uniform(-2, 2, (n, 1))
    obs, action = obs.astype(np.float32), action.astype(np.float32)
    after = jax.jit(model)(jax.random.key(0), jnp.asarray(obs), jnp.asarray(action))
    last = np.ones(n, bool)
    data = datasets.Dataset(obs, action, np.asarray(after.reward), ~last, last, np.asarray(after.next_obs))
    return env, params, datasets.stored(data, env.action_space(params)), model, horizon


def learner(arm, name, k):
    module, config, hyper = ARMS[arm]
    env, params, memory, model, _ = task(name)
    config = module.Config(**SIZES, **config, horizon=k, num_rollouts=IMAGINED // k)
    return module.make(env, config, memory, model), module.Hyper(**HYPER, **hyper)


@functools.cache
def begun(arm, name, seeds):
    """First states of all seeds, one after another: a vmap of it compiles slowly. They do not depend on k."""
    algo, hyper = learner(arm, name, 1)
    init = jax.jit(lambda key: algo.init(key, hyper, task(name)[1]))
    return jax.tree.map(lambda *x: jnp.stack(x), *[init(key) for key in jax.random.split(jax.random.key(0), seeds)])


def measure(arm, name, k, seeds, steps, episodes=32, **changes):
    env, params, _, _, horizon = task(name)
    algo, _ = learner(arm, name, k)
    states = begun(arm, name, seeds)
    hyper = states.hyper.replace(**{x: jnp.full(seeds, v, jnp.float32) for x, v in changes.items()})

    def run(state, key):
        state, metrics = jax.lax.scan(lambda s, _: algo.update(s), state, length=steps // UPDATE)
        returns = evaluate(algo, algo.policy(state), env, params, key, episodes, horizon, greedy=True).returns.mean()
        return metrics["q_value"], metrics["next_q_value"], metrics["alpha"], returns

    keys = jax.random.split(jax.random.key(1), seeds)
    begin = time.perf_counter()
    program = jax.jit(jax.vmap(run)).lower(states.replace(hyper=hyper), keys).compile()
    compiled = time.perf_counter()
    q, next_q, alpha, returns = map(np.asarray, program(states.replace(hyper=hyper), keys))
    row = {"q": q, "next_q": next_q, "alpha": alpha, "returns": returns}
    row = {x: np.asarray(y, float).round(3).tolist() for x, y in row.items()}
    return row | {"compile_s": round(compiled - begin, 1), "run_s": round(time.perf_counter() - compiled, 1)}
