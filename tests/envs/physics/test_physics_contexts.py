"""Contexts of MuJoCo tasks against MuJoCo's own step after the same writes into its model."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrl
from jaxrl.envs.physics import planar
from jaxrl.envs.physics.contexts import CONTEXTS, at_point, sloped
from jaxrl.envs.physics.task import planned

START = np.array([0.0, 1.24, 0.02, -0.1, -0.2, 0.1]), np.array([0.3, -0.5, 0.1, 0.2, -0.4, 0.3])


def stepped(model: Any, count: int) -> Any:
    """MuJoCo's data after steps of a converged solver."""
    model.opt.tolerance, model.opt.iterations, model.opt.ls_iterations = 0.0, 100, 100
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = *START, (0.5, -0.3, 0.2)
    mujoco.mj_step(model, data, count)
    return data


@pytest.mark.slow
@pytest.mark.light
def test_slope_and_factors():
    """The hopper on a hill, heavier and on less grip: 4 steps, with its foot on the ground, to 1e-9."""
    with jax.enable_x64(True):
        env: Any = jaxrl.make("Hopper-v5")[0]
        model = mujoco.MjModel.from_xml_path(str(Path(planar.__file__).parents[1] / "mjcf" / env.file))
        angle = 0.15
        model.opt.gravity[:] = -9.81 * np.sin(angle), 0.0, -9.81 * np.cos(angle)
        for field in (model.body_mass, model.body_inertia):
            field *= np.sqrt(2)
        model.geom_friction *= 0.5
        data = stepped(model, 4)
        assert data.ncon > 0
        params = at_point(sloped(env.default_params, angle), ("mass", "friction"), jnp.array([0.75, 0.0]))
        action, still = jnp.array([0.5, -0.3, 0.2]), jnp.zeros(6)
        plan = planned(env.file)
        moved = jax.jit(lambda m, q, v: planar.advance(plan, m, q, v, still, action, 4, 8))(params.model, *START)
        np.testing.assert_allclose(moved.qpos, data.qpos, atol=1e-9)
        np.testing.assert_allclose(moved.qvel, data.qvel, atol=1e-9)


def test_middle_is_the_task():
    params = jaxrl.make("HalfCheetah-v5")[1]
    same = at_point(params, tuple(CONTEXTS), jnp.full(len(CONTEXTS), 0.5))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), same.model, params.model)
    up, down = (at_point(params, ("slope",), jnp.array([x])).model["gravity"] for x in (1.0, 0.0))
    np.testing.assert_allclose(up, 9.81 * np.array([-np.sin(0.2), 0, -np.cos(0.2)]), rtol=1e-5)
    np.testing.assert_allclose(down, up * np.array([-1, 1, 1]), rtol=1e-5)


def test_names():
    params = jaxrl.make("Hopper-v5")[1]
    with pytest.raises(ValueError, match="'wind' is no context; there are gravity, mass, friction, gear, slope"):
        at_point(params, ("wind",), jnp.zeros(1))
    with pytest.raises(ValueError, match=r"1 contexts .* for a point of shape \(2,\)"):
        at_point(params, ("mass",), jnp.zeros(2))
    with pytest.raises(ValueError, match="the point .30.0. is not in the unit box"):
        at_point(params, ("mass",), jnp.array([30.0]))
    with pytest.raises(ValueError, match="contexts are of the tasks on MuJoCo models"):
        at_point(jaxrl.make("Brax-reacher", backend="spring")[1], ("mass",), jnp.array([0.5]))
