"""The tasks on MuJoCo models: against stored steps of Gymnasium's of the same id, MuJoCo's own step, MJX, and by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrl
from jaxrl.environment import strongly_typed
from jaxrl.envs.physics import planar
from jaxrl.envs.physics.task import compiled, planned, scaled
from jaxrl.testing.golden import golden

GOLDEN = golden("gymnasium_mujoco")
IDS = sorted({name.split("/")[0] for name in GOLDEN} - {"versions"})
KEY = jax.random.key(0)


def stored(id: str, name: str) -> np.ndarray:
    return GOLDEN[f"{id}/{name}"]


@pytest.mark.parametrize("id", IDS)
def test_model(id):
    """Every number of the model is that of Gymnasium's file."""
    env: Any = jaxrl.make(id)[0]
    model = compiled(env.file)
    for name in (name.removeprefix(f"{id}/model/") for name in GOLDEN if name.startswith(f"{id}/model/")):
        ours = getattr(model.opt, name) if name in ("gravity", "timestep") else getattr(model, name)
        np.testing.assert_allclose(ours, stored(id, f"model/{name}"), atol=1e-10, err_msg=name)
    assert env.frame_skip == stored(id, "frame_skip")


def replayed(id: str, **settings: Any) -> Any:
    """Time steps, from the states that Gymnasium reached, in float64."""
    with jax.enable_x64(True):
        env: Any = jaxrl.make(id, **settings)[0]
        params = env.default_params
        _, state = env.reset(KEY, params)

        def step(qpos, qvel, qacc, action):
            return env.step(KEY, state.replace(qpos=qpos, qvel=qvel, qacc=qacc), action, params)

        inputs = (jnp.asarray(stored(id, x)) for x in ("qpos", "qvel", "qacc", "action"))
        return jax.device_get(jax.jit(jax.vmap(step))(*inputs))


def check(id: str, steps: Any, tolerance: float) -> None:
    rates = stored(id, "next_qvel")
    size = 1 + np.abs(rates).max(1, keepdims=True)
    np.testing.assert_allclose(steps.state.qpos, stored(id, "next_qpos"), atol=tolerance)
    np.testing.assert_allclose(steps.state.qvel / size, rates / size, atol=tolerance)
    np.testing.assert_allclose(steps.obs, stored(id, "obs"), rtol=10 * tolerance, atol=10 * tolerance)
    np.testing.assert_allclose(steps.reward, stored(id, "reward"), rtol=10 * tolerance, atol=10 * tolerance)
    np.testing.assert_array_equal(steps.terminated, stored(id, "terminated"))


@pytest.mark.parametrize("id", [id if "Pendulum" in id else pytest.param(id, marks=pytest.mark.slow) for id in IDS])
def test_steps(id):
    """Single steps of 150 equal Gymnasium's to 1e-9."""
    check(id, replayed(id, iterations=8), 1e-9)
    assert stored(id, "constrained").sum() >= (10 if "Walker" in id or "H" in id[:1] else 0)
    assert stored(id, "terminated").any() == (id not in ("HalfCheetah-v5", "Reacher-v5"))
