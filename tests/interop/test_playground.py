"""`from_playground` on the real package, where it is installed; `test_brax.py` has a fake like its environments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("brax", exc_type=ImportError)

from jaxrl.interop.playground import from_playground

KEY = jax.random.key(0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_real_playground():
    pytest.importorskip("mujoco_playground", exc_type=ImportError)
    env, params = from_playground("CartpoleBalance", impl="jax")
    assert env.id == "CartpoleBalance" and int(params.max_steps) == 1000
    obs, state = jax.jit(env.reset)(KEY, params)
    step = jax.jit(env.step)
    for _ in range(3):
        ts = step(KEY, state, jnp.array([0.3]), params)
        inner = env.env.step(state.env, jnp.array([0.3]))
        np.testing.assert_allclose(ts.obs, inner.obs, atol=1e-5)
        state = ts.state
    assert env.observation_space(params).contains(ts.obs) and not ts.truncated
    assert step(KEY, state.replace(time=jnp.int32(999)), jnp.array([0.3]), params).truncated
