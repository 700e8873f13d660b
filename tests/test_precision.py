"""Matrix products of simulators, solvers and indices keep float32's digits on a TPU, whose default is bfloat16.

Read off the programs as they would be handed to its compiler; nothing is compiled.
"""

import re

import jax
import jax.numpy as jnp
import pytest

import jaxrl
from jaxrl.algos.bandits import lin_ts, lin_ucb
from jaxrl.algos.tabular import ucb_vi
from jaxrl.envs.quadcopter.control.lqr import lqr_gains
from jaxrl.envs.quadcopter.models import CF2X
from jaxrl.exact import gittins, mixtures, solvers, whittle
from jaxrl.exact.mdp import DenseMDP
from jaxrl.exact.planning import noise
from jaxrl.math import precise


def products(function, *arguments):
    """`(all matrix products, those at less than full precision)` of a program lowered for a TPU."""
    text = jax.jit(function).trace(*arguments).lower(lowering_platforms=("tpu",)).as_text()
    lines = [line for line in text.splitlines() if re.search(r"stablehlo\.(dot_general|dot|convolution)\b", line)]
    return lines, [line for line in lines if "precision = [HIGHEST, HIGHEST]" not in line]


def test_what_is_looked_for_is_found():
    a = jnp.eye(3)
    assert list(map(len, products(lambda a: a @ a, a))) == [1, 1]
    assert list(map(len, products(precise(lambda a: jnp.einsum("ij,jk", a, a)), a))) == [1, 0]


def of_algorithm(module, id):
    algo = module.make(jaxrl.make(id)[0])
    return algo.update, jax.eval_shape(algo.init, jax.random.key(0))


def of_environment(id):
    env, params = jaxrl.make(id)
    venv = jaxrl.vectorize(env, 2)
    _, vstate = jax.eval_shape(venv.reset, jax.random.key(0), params)
    action = jax.eval_shape(
        lambda key: jax.vmap(env.action_space(params).sample)(key), jax.random.split(jax.random.key(0))
    )
    return venv.step, jax.random.key(0), vstate, action, params


def of_method(id, name, *arguments):
    env, params = jaxrl.make(id)
    return lambda params, *arguments: getattr(env, name)(*arguments, params), params, *arguments


CHAIN, REWARD = jnp.full((2, 3, 3), 1 / 3), jnp.ones((2, 3))
MDP = DenseMDP(jnp.full((3, 2, 3), 0.3), jnp.ones((3, 2)), jnp.full(3, 1 / 3))
POINTS = jnp.ones((5, 2))
PROGRAMS = {
    "coupled bandit": lambda: of_environment("CoupledRestlessInterventions-v0"),
    "frozen lake's value": lambda: of_method("FrozenLake-v1", "optimal_value"),
    "coupled bandit's climbs": lambda: of_method(
        "CoupledRestlessInterventions-v0", "climb_probability", jnp.ones(10, int)
    ),
    "combination lock": lambda: of_environment("CombinationLock-v0"),
    "lin_ts": lambda: of_algorithm(lin_ts, "LinearBandit-v0"),
    "lin_ucb": lambda: of_algorithm(lin_ucb, "LinearBandit-v0"),
    "ucb_vi": lambda: of_algorithm(ucb_vi, "RiverSwim-v0"),
    "value iteration": lambda: (lambda mdp: solvers.value_iteration(mdp, 0.9), MDP),
    "policy iteration": lambda: (lambda mdp: solvers.policy_iteration(mdp, 0.9), MDP),
    "linear program": lambda: (lambda mdp: solvers.linear_program(mdp, 0.9), MDP),
    "Gittins": lambda: (lambda chain: gittins.gittins_index(chain, REWARD[0], 0.9), CHAIN[0]),
    "Whittle": lambda: (lambda chain: whittle.whittle_index(chain, REWARD, 0.9), CHAIN),
    "mixture": lambda: (lambda key: mixtures.sample(key, mixtures.fit_best(key, POINTS, 2, 3), 4), jax.random.key(0)),
    "noise": lambda: (lambda key: noise.whitened(noise.colored_noise(key, (4, 6, 2), 1.0), 1.0), jax.random.key(0)),
    "LQR": lambda: (lqr_gains, CF2X),
}


@pytest.mark.slow(but_first=3)
@pytest.mark.light
@pytest.mark.parametrize("name", PROGRAMS)
def test_products_outside_networks_are_of_full_precision(name):
    every, rough = products(*PROGRAMS[name]())
    assert every and not rough, rough
