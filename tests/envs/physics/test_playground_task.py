"""MuJoCo Playground's tasks through the adapter, against Playground's own steps where the package is installed."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.envs.physics.playground_task import PlaygroundTask
from jaxrl.envs.physics.task import scaled

KEY = jax.random.key(0)
there = importlib.util.find_spec("mujoco_playground") is not None
installed = pytest.mark.skipif(not there, reason='needs pip install "jaxrl[playground]"')


@pytest.mark.skipif(there, reason="the package is installed")
def test_the_error_names_the_command():
    with pytest.raises(ImportError, match=r'Playground-CheetahRun: .*pip install "jaxrl\[playground\]"'):
        _ = PlaygroundTask("CheetahRun").default_params


def test_what_cannot_run_is_named():
    for settings in ((("impl", "warp"),), (("vision", True),)):
        with pytest.raises(ValueError, match="impl='jax', without vision"):
            PlaygroundTask(settings=settings)


def check_parity(name, steps):
    """Given the model's numbers as arguments, not as constants that the compiler folds, all is equal."""
    env = PlaygroundTask(name)
    params = env.default_params

    @jax.jit
    def both(params, actions):
        own, reset_key = env.under(params.model), jax.random.split(KEY)[0]
        start, (obs, state) = own.reset(jax.random.key_data(reset_key)), env.reset(KEY, params)

        def step(carry, action):
            theirs, ts = own.step(carry[0], action), env.step(KEY, carry[1], action, params)
            found = (ts.obs, ts.reward, ts.terminated, ts.info)
            return (theirs, ts.state), (found, (theirs.obs, theirs.reward, theirs.done > 0, theirs.metrics))

        return (obs, start.obs), jax.lax.scan(step, (start, state), actions)[1]

    actions = jax.random.uniform(KEY, (steps, env.env.action_size), minval=-1.0)
    (ours, theirs), (found, wanted) = jax.device_get(both(params, actions))
    np.testing.assert_array_equal(ours, theirs)
    assert found[3].keys() == wanted[3].keys() and not found[2].any()
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), found, wanted)


@pytest.mark.slow
@installed
@pytest.mark.parametrize("name", ["PendulumSwingup", "CartpoleBalance"])
def test_parity(name):
    check_parity(name, 1000)


@pytest.mark.slow
@installed
def test_masses_differ_within_a_batch_and_starts_are_fresh():
    env = PlaygroundTask("PendulumSwingup")
    params = env.default_params.replace(max_steps=jnp.int32(5))
    with pytest.raises(ValueError, match="'mass' is no number of the model; it has .*body_mass"):
        scaled(params, mass=2.0)
    with pytest.raises(ValueError, match="'gravity'.*must be finite"):
        env.validate(scaled(params, gravity=jnp.nan))
    factors = jnp.array([1.0, 2.0])
    start = jax.jit(env.reset)(KEY, params)[1]
    step = jax.jit(jax.vmap(lambda x: env.step(KEY, start, jnp.ones(1), scaled(params, body_mass=x)).obs))
    light, heavy = step(factors)
    assert not np.allclose(light, heavy, atol=1e-6)

    venv = jaxrl.vectorize(env, 3)
    obs, state = jax.jit(venv.reset)(KEY, params)

    @jax.jit
    def run(state):
        def body(state, key):
            ts = venv.step(key, state, jnp.zeros((3, 1)), params)
            return ts.state, (ts.obs, ts.terminated, ts.truncated)

        return jax.lax.scan(body, state, jax.random.split(KEY, 15))[1]

    seen, terminated, truncated = map(np.asarray, run(state))
    assert not terminated.any() and (truncated.sum(0) == 3).all()
    starts = np.concatenate([np.asarray(obs), seen[truncated]])
    assert len(np.unique(starts, axis=0)) == len(starts)
    assert env.render(jax.device_get(start), params).shape == (320, 320, 3)
