"""A learner on a narrow dataset and the true dynamics as its model, for one length of rollouts."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from plane import PointInPlane, state_of

from jaxrl.algos import mopo, ravl
from jaxrl.data import datasets
from jaxrl.evaluation import evaluate
from jaxrl.nn.actor_critic import Critic
from jaxrl.nn.nets import critic_values
from jaxrl.off_policy import imagination

HORIZON = 30  # of an episode
IMAGINED = 3000  # steps an update
UPDATE = 250  # gradient steps of an update
SIZES = dict(num_updates=UPDATE, batch_size=64, buffer_size=5 * IMAGINED, hidden=(64, 64))
HYPER = dict(learning_rate=1e-3, alpha_learning_rate=1e-3, tau=0.03, alpha=0.1, gamma=0.99)
ARMS = {
    "MOPO": (mopo, dict(num_critics=2), dict(penalty=1.0)),  # the true dynamics are certain, so it is MBPO
    "RAVL": (ravl, dict(num_critics=10), dict(diversity=0.01)),
}


@functools.cache
def task():
    """`(env, params, memory, true model)`; the data are single steps of random actions where episodes begin."""
    env, rng, n = PointInPlane(), np.random.default_rng(0), 2000
    params = env.default_params
    model = imagination.of_environment(env, params, state_of)
    obs = rng.uniform(-params.start, params.start, (n, 2)).astype(np.float32)
    action = rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    after = jax.jit(model)(jax.random.key(0), jnp.asarray(obs), jnp.asarray(action))
    last = np.ones(n, bool)
    data = datasets.Dataset(obs, action, np.asarray(after.reward), ~last, last, np.asarray(after.next_obs))
    return env, params, datasets.stored(data, env.action_space(params)), model


def measure(arm, k, seeds, steps, episodes=32):
    """Critics' values as training goes on, returns, and the last values by the step of a rollout (step k: the edge)."""
    module, config, hyper = ARMS[arm]
    env, params, memory, model = task()
    config = module.Config(**SIZES, **config, horizon=k, num_rollouts=IMAGINED // k)
    algo, hyper = module.make(env, config, replay=memory, model=model), module.Hyper(**HYPER, **hyper)
    critic = Critic(env.observation_space(params), config.hidden, config.activation)
    # One after another: a vmap of it compiles slowly.
    init = jax.jit(lambda key: algo.init(key, hyper, params))
    states = jax.tree.map(lambda *x: jnp.stack(x), *[init(key) for key in jax.random.split(jax.random.key(0), seeds)])

    def by_step(state, key):
        start = params.start * jax.random.uniform(key, (episodes, 2), minval=-1.0)
        policy = algo.policy(state)

        def step(obs, key):
            action = algo.act(policy, key, obs)[0]
            value = critic_values(critic, state.weights["critic"], obs, action).min(0).mean()
            keys = jnp.broadcast_to(key, (episodes,))
            return jax.vmap(lambda *x: env.step(x[0], state_of(x[1]), x[2], params).obs)(keys, obs, action), value

        return jax.lax.scan(step, start, jax.random.split(key, HORIZON + 1))[1]

    def run(state, key):
        state, metrics = jax.lax.scan(lambda s, _: algo.update(s), state, length=steps // UPDATE)
        returns = evaluate(
            algo, algo.policy(state), key, env, params, num_episodes=episodes, max_steps=HORIZON, greedy=True
        ).returns.mean()
        return metrics["q_value"], metrics["alpha"], by_step(state, key), returns

    keys = jax.random.split(jax.random.key(1), seeds)
    begin = time.perf_counter()
    program = jax.jit(jax.vmap(run)).lower(states, keys).compile()
    compiled = time.perf_counter()
    found = zip(("q", "alpha", "by_step", "returns"), map(np.asarray, program(states, keys)), strict=True)
    row = {x: np.asarray(y, float).round(3).tolist() for x, y in found}
    return row | {"compile_s": round(compiled - begin, 1), "run_s": round(time.perf_counter() - compiled, 1)}
