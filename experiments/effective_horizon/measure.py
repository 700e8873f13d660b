"""Exact analysis of one MDP, and the learning curves of many at once."""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from tasks import HORIZON, view

from jaxrl.exact import effective_horizon
from jaxrl.exact.solvers import backward_induction


def analyse(name, limit, mdp):
    """Exact numbers of one MDP of its own number of actions."""
    found = effective_horizon.effective_horizon(mdp, limit)
    return {
        "name": name,
        "T": limit,
        "min_k": int(found.min_k),
        "horizon": float(found.horizon),
        "horizon_k": int(found.k),
        "log10_gorp_steps": float(np.log10(limit**2) + found.horizon * np.log10(mdp.num_actions)),
        "planning_window": int(effective_horizon.planning_window(mdp, limit)),
        "log10_covering_steps": float(np.log10(limit * effective_horizon.covering_length(mdp, limit))),
        "random": float(mdp.initial @ effective_horizon.random_values(mdp, limit)[0].mean(-1)),
        "optimal": float(mdp.initial @ backward_induction(mdp, limit)[0][0]),
    }


def greedy_value(algo, state, limit):
    """The exact value of the greedy policy, from its actions in all states at all times."""
    mdp = state.env_params.mdp
    index, times = jnp.meshgrid(jnp.arange(mdp.num_states), jnp.arange(HORIZON))
    act = partial(algo.act, algo.policy(state), jax.random.key(0), greedy=True)
    carry = times if algo.name in ("gorp", "sqirl") else ()
    action, _ = act(view(index, times), carry)

    def step(value, inputs):
        action, t = inputs
        q = mdp.expected_reward() + mdp.expect(value)
        return jnp.where(t < limit, jnp.take_along_axis(q, action[:, None], 1)[:, 0], 0), None

    value, _ = jax.lax.scan(step, jnp.zeros(mdp.num_states), (action, jnp.arange(HORIZON)), reverse=True)
    return mdp.initial @ value


def curve(algo, hyper, updates, every, params, key):
    """The greedy policy's value after every `every` of `updates` updates."""

    def segment(state, _):
        state, _ = jax.lax.scan(lambda s, _: (algo.update(s)[0], None), state, length=every)
        return state, greedy_value(algo, state, params.max_steps)

    return jax.lax.scan(segment, algo.init(key, hyper, params), length=updates // every)[1]


def curves(algo, hyper, updates, every, params, seeds):
    """Curves (MDPs, seeds, points), all MDPs and seeds in one program; seconds with compiling."""
    begin = time.perf_counter()
    run = jax.vmap(jax.vmap(partial(curve, algo, hyper, updates, every), (None, 0)), (0, None))
    return np.asarray(jax.jit(run)(params, jax.random.split(jax.random.key(0), seeds))), time.perf_counter() - begin


def first_step(values, rows, steps_per_point):
    """Steps until the value is the optimum's, up to 0.1 % (stochastic: 5 %) of its lead over chance; else infinity."""
    best, chance = (np.array([r[name] for r in rows])[:, None, None] for name in ("optimal", "random"))
    near = np.array([0.001 if r["deterministic"] else 0.05 for r in rows])[:, None, None]
    reached = values >= best - near * (best - chance) - 1e-6
    return np.where(reached.any(-1), (reached.argmax(-1) + 1) * steps_per_point, np.inf)
