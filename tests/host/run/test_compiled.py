"""A loop of `fit` in one process compiles once: for equal algorithms, whatever the numbers are."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import ppo
from jaxrl.host.run.compiled import contents, kept
from jaxrl.host.run.fit import fit

CONFIG = ppo.Config(num_envs=2, num_steps=8, hidden=(8,), num_epochs=1, num_minibatches=1)
STEPS = 6 * 16


@contextlib.contextmanager
def compilations():
    """How many programs XLA compiled within."""
    found, on = [], [True]

    def listen(event, seconds, **_):
        if on[0] and event == "/jax/core/compile/backend_compile_duration":
            found.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        on[0] = False


def run(seed=0, **settings):
    env, params = jaxrl.make("CartPole-v1")
    algo = ppo.make(env, CONFIG)
    given = {"eval_every": STEPS, "eval_episodes": 2, "eval_max_steps": 10, "env_params": params, "progress": False}
    return fit(algo, jax.random.key(seed), STEPS, **{**given, **settings})


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("num_seeds", [None, 2])
def test_a_second_fit_with_other_numbers_compiles_nothing(num_seeds):
    first = run(num_seeds=num_seeds, hyper=ppo.Hyper(learning_rate=1e-3))
    with compilations() as found:
        second = run(1, num_seeds=num_seeds, hyper=ppo.Hyper(learning_rate=1e-4))
        again = run(num_seeds=num_seeds, hyper=ppo.Hyper(learning_rate=1e-3))
    assert not found
    assert not np.array_equal(first.metrics["loss"], second.metrics["loss"])
    for one, other in zip(*(jax.tree.leaves(x.state.weights) for x in (first, again)), strict=True):
        assert np.array_equal(one, other)


def test_other_params_of_the_environment_are_not_taken_for_the_same():
    env, params = jaxrl.make("CartPole-v1")
    run()
    short = run(env_params=params.replace(max_steps=jnp.int32(3)))
    assert np.nanmax(short.metrics["episode_length"]) <= 3 and short.evaluations[-1]["return"] <= 3
    assert env == jaxrl.make("CartPole-v1")[0]


def test_contents_tell_numbers_apart_by_type_shape_and_bits():
    values = [1, 1.0, True, np.float32(1), jnp.ones(()), jnp.ones(1), jnp.int32(1), 0.0, -0.0, jax.random.key(0)]
    assert len({contents({"x": x}) for x in values}) == len(values)
    assert contents({"x": jnp.nan}) == contents({"x": jnp.nan}) and contents({"x": 1}) != contents({"y": 1})


def test_what_cannot_be_hashed_is_made_anew():
    @kept
    def make(x):
        return object()

    assert make([1]) is not make([1]) and make((1,)) is make((1,))
