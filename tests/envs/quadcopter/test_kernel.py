"""Many drones in one kernel: the same flight as a scan of steps, and it lowers for a GPU."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.environment import strongly_typed
from jaxrl.envs.quadcopter import dynamics, kernel, models

N, STEPS = 130, 3  # not a whole number of blocks
CASES = {
    "l2f": (models.CRAZYFLIE, dynamics.L2F, 0.01),
    "l2f euler": (models.CRAZYFLIE, dynamics.L2F.replace(integrator="euler"), 0.01),
    "gpd": (models.CF2X, dynamics.GPD_DYN, 1 / 240),
    "crazyflow": (models.CRAZYFLOW_0_4["cf21B_500"], dynamics.CRAZYFLOW_0_4, 0.002),
    "crazyflow rk4": (
        models.CRAZYFLOW_0_4["cf21B_500"],
        dynamics.CRAZYFLOW_0_4.replace(integrator="exponential_rk4"),
        0.002,
    ),
}


def flight(name: str):
    model, physics, dt = CASES[name]
    model = strongly_typed(model)
    x = jax.random.uniform(jax.random.key(0), (21, N), minval=-1.0, maxval=1.0)
    rows = tuple(x[i] for i in range(21))
    quaternion = tuple(q / jnp.linalg.norm(x[3:7], axis=0) for q in rows[3:7])
    rpm = tuple(model.hover_rpm * (1 + 0.1 * w) for w in rows[13:17])
    command = tuple(model.hover_rpm * (1 + 0.1 * w) for w in rows[17:])
    drone = dynamics.Drone(rows[:3], quaternion, rows[7:10], rows[10:13], rpm)
    force = tuple(0.01 * w for w in rows[:3])
    return model, drone, command, dt, STEPS, physics, dynamics.Surroundings(force=force)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["l2f", "l2f euler", "gpd", "crazyflow"])
def test_kernel_flies_as_the_scan(name):
    model, drone, command, dt, steps, physics, around = flight(name)

    def both(model, drone, command, around):
        arguments = (model, drone, command, dt, steps, physics, around)
        return kernel.coast(*arguments), kernel.in_kernel(*arguments, interpret=True)

    scanned, flown = jax.jit(both)(model, drone, command, around)
    for a, b, before in zip(*map(jax.tree.leaves, (scanned, flown, drone)), strict=True):
        assert a.shape == (N,)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        assert not np.array_equal(a, before)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_kernel_lowers_for_a_gpu(name):
    model, drone, command, dt, steps, physics, around = flight(name)
    coast = jax.jit(
        lambda model, drone, command, around: kernel.coast(model, drone, command, dt, steps, physics, around)
    )
    allowed = jax.export.DisabledSafetyCheck.custom_call("__gpu$xla.gpu.triton")
    exported = jax.export.export(coast, platforms=["cuda"], disabled_checks=[allowed])(model, drone, command, around)
    assert ("triton" in exported.mlir_module()) == (physics.integrator != "exponential_rk4")  # whose fence it lacks


def test_scalars_are_spread():
    model, drone, _, dt, steps, physics, _ = flight("l2f euler")

    @jax.jit
    def heights(model, drone, command):
        return kernel.coast(model, drone, command, dt, steps, physics).position[2]

    each = tuple(jnp.full(N, model.hover_rpm) for _ in range(4))
    np.testing.assert_array_equal(heights(model, drone, (model.hover_rpm,) * 4), heights(model, drone, each))


def test_only_one_model_that_fits():
    model, drone, command, dt, steps, physics, _ = flight("l2f euler")
    for wrong, shape in (
        (model.replace(mass=jnp.full(N, 0.03)), r"mass has shape \(130,\), not \(\)"),
        (model.replace(inertia=jnp.ones((N, 3))), r"inertia has shape \(130, 3\), not \(3,\)"),
        (model.replace(thrust=(0.0, 0.0, jnp.full(N, 3e-10))), r"thrust has shape \(3, 130\)"),
    ):
        with pytest.raises(ValueError, match=shape):
            kernel.coast(wrong, drone, command, dt, steps, physics)
    with pytest.raises(ValueError, match="dt has shape"):
        kernel.coast(model, drone, command, jnp.full(N, 0.01), steps, physics)
    with pytest.raises(ValueError, match="coast: .*spin_up"):
        kernel.coast(models.CF2X, drone, command, dt, steps, physics)
    tuples = model.replace(thrust=tuple(model.thrust))
    np.testing.assert_array_equal(
        kernel.coast(tuples, drone, command, dt, steps, physics).position[2],
        kernel.coast(model, drone, command, dt, steps, physics).position[2],
    )
    two = jax.tree.map(lambda x: jnp.stack([x, x]), model)
    heights = jax.vmap(lambda model: kernel.coast(model, drone, command, dt, steps, physics).position[2])(two)
    assert heights.shape == (2, N)
