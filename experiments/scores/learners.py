"""What a learner gets on an id: some seeds trained with settings of jaxrl/recipes.toml, and evaluated."""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl import registry
from jaxrl.environment import NO_LIMIT, strongly_typed
from jaxrl.evaluation import evaluate
from jaxrl.host.cli.experiment import ENDLESS
from jaxrl.wrappers import agents_as_slots, wrapped

EPISODES = 128
FEWEST, MOST, SECONDS = 3, 10, 45
"""Seeds of a row; after so many seconds of training no further one begins."""


class Learned(NamedTuple):
    returns: np.ndarray  # of each seed, the mean of its episodes
    lengths: np.ndarray  # the same of their lengths
    seconds: float  # of one seed, without compiling
    compiled: float  # seconds


def learned(
    id: str, name: str, settings: registry.Tuned, cap: int, seeds: tuple[int, int] = (FEWEST, MOST), first: int = 0
) -> Learned:
    """Full episodes, cut after `cap` steps, of final policies as the algorithm is deployed; of a learner that forgets
    after each episode, as bandits' do, the episodes that it learned in. The seeds are `first` and those after it.
    """
    module = registry.get_algo(name)
    env, params = jaxrl.make(id, **settings.env)
    env = wrapped(env, settings.wrap)
    params, config = strongly_typed(params), module.Config(**settings.config)
    if int(np.max(np.asarray(params.max_steps))) == NO_LIMIT and cap == ENDLESS:
        params = params.replace(max_steps=jnp.full_like(params.max_steps, cap))
    venv: Any = env
    if env.num_agents > 1:
        venv = agents_as_slots(jaxrl.vectorize(env, config.num_envs // env.num_agents))
    algo, hyper = module.make(venv, config), module.Hyper(**settings.hyper)

    def run(key):
        train_key, eval_key = jax.random.split(jax.random.fold_in(jax.random.key(0), key))
        state, metrics = jaxrl.train(algo, train_key, settings.total_steps, hyper, params)
        if getattr(config, "forget", False):
            episodes = metrics["episodes"]
            of = metrics["episode_return"], metrics["episode_length"]
            return jnp.stack([jnp.where(episodes > 0, x, 0).sum() / episodes.sum() for x in of])
        stats = evaluate(algo, algo.policy(state), eval_key, env, params, num_episodes=EPISODES, max_steps=cap)
        return jnp.stack([stats.returns.mean(), stats.lengths.mean()])

    begin = time.perf_counter()
    program = jax.jit(run).lower(0).compile()
    compiled, found = time.perf_counter() - begin, []
    begin = time.perf_counter()
    while len(found) < seeds[1] and (len(found) < seeds[0] or time.perf_counter() - begin < SECONDS):
        found.append(np.asarray(program(first + len(found)), float))
    return Learned(*np.transpose(found), (time.perf_counter() - begin) / len(found), compiled)
