"""What is searched, and by whom: tasks with areas that pay, and learners with their settings."""

from typing import Any

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.algos import cma_me, map_elites, novelty_search, serene, stax, taxons
from jaxrl.quality_diversity import elites

LEARNERS: dict[str, Any] = {
    "random": (map_elites, {}, {}),
    "cma_es": (cma_me, {"num_emitters": 1}, {}),
    "novelty_search": (novelty_search, {}, {}),
    "map_elites": (map_elites, {}, {}),
    "cma_me": (cma_me, {"num_emitters": 5}, {}),
    "cma_mae": (cma_me, {"num_emitters": 5, "soft": True}, {"lowest_fitness": -1.0}),  # no reward is below 0
    "serene": (serene, {}, {}),
    "taxons": (taxons, {}, {}),
    "taxons_by_novelty": (taxons, {}, {"surprise_share": 0.0}),
    "random_codes": (taxons, {"trained": False}, {"surprise_share": 0.0}),
    "stax": (stax, {}, {}),
}


STEPS = {"maze": 250, "slow_maze": 2000, "far_sight": 250, "curling": 500, "arm": 250, "half_cheetah": 200}
LAST_ONE: dict[str, Any] = {"num_frames": 1}
# Settings of learners on a task. TAXONS' paper has the last image; ten readings along the way tell how it turned, too.
OF_TASK: dict[str, Any] = {
    "far_sight": dict.fromkeys(("taxons", "taxons_by_novelty", "random_codes", "stax"), LAST_ONE),
}


def task(name: str, steps: int):
    """`(env, params, descriptor, hidden)`, SERENE's. In the maze its robot has 2,000 steps; with fewer the wheels
    are as much faster, at most kheperax's 0.025."""
    if name == "curling":
        env, params = jaxrl.make("Curling-v0")
        return env, params.replace(max_steps=jnp.int32(steps)), ("ball x", "ball y"), (5, 5, 5)
    if name == "arm":
        env, params = jaxrl.make("RedundantArm-v0")
        return env, params.replace(max_steps=jnp.int32(steps)), ("tip x", "tip y"), (5, 5)
    if name == "half_cheetah":
        env, params = jaxrl.make("SparseHalfCheetah-v0")
        return env, params.replace(max_steps=jnp.int32(steps)), ("x",), (5, 5)
    env, params = jaxrl.make("HardMaze-v0")
    params = params.replace(max_steps=jnp.int32(steps), max_speed=jnp.float32(min(0.025, 40 / 3 / steps)))
    if name == "far_sight":
        params = params.replace(laser_range=jnp.float32(1.0))
    return env, params, ("x", "y"), (5, 5)


def climbed(algo, state, anew):
    """A generation of CMA-ES on the reward alone; it restarts at the network `anew` where all members paid the same."""
    state, rollout = algo.collect(state)
    archive, _ = elites.insert(state.archive, rollout.population, rollout.fitness, rollout.descriptor)
    emitter = jax.tree.map(lambda x: x[0], state.search.emitters)
    order, number = jnp.argsort(-rollout.fitness), jnp.int32(len(rollout.fitness) // 2)
    told = cma_me.tell(emitter, state.search.noise, order, number)
    over = cma_me.exhausted(told, rollout.fitness, jnp.zeros_like(order, bool))
    begun = cma_me.fresh(anew, state.hyper.sigma, "full")
    emitter = jax.tree.map(lambda x, y: jnp.where(over, x, y), begun, told)
    key, draw_key = jax.random.split(state.key)
    z = jax.random.normal(draw_key, rollout.population.shape)
    emitters = jax.tree.map(lambda x: x[None], emitter)
    search = state.search._replace(emitters=emitters, noise=z, restarts=state.search.restarts + over)
    return state.replace(key=key, population=cma_me.ask(emitter, z), search=search, archive=archive)
