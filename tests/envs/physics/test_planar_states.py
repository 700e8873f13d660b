"""The planar solver from random states deep in contacts, against MuJoCo in C; and its derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.envs.physics import planar
from jaxrl.envs.physics.task import planned
from jaxrl.testing.golden import golden

GOLDEN = golden("planar_states")
IDS = sorted({name.split("/")[0] for name in GOLDEN} - {"versions"})


def stored(id: str, *names: str) -> list[np.ndarray]:
    return [GOLDEN[f"{id}/{name}"] for name in names]


def step(id: str) -> Any:
    """A step of the model, from rest as the first guess, as a task's start has it: qpos, qvel, control, numbers."""
    env: Any = jaxrl.make(id)[0]
    plan, model = planned(env.file), env.default_params.model

    def moved(qpos, qvel, control, changed):
        start = jnp.asarray(qpos), jnp.asarray(qvel), jnp.zeros_like(qpos), jnp.asarray(control)
        return planar.advance(plan, model | changed, *start, 1, env.iterations)

    return moved, model


def far(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Of every state, the largest error over 1 + the largest value."""
    return (np.abs(found - wanted).max(1)) / (1 + np.abs(wanted).max(1))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", IDS)
def test_accelerations(id):
    """By default the solver is exact in all of 300 states; four Newton steps left 24 of the half-cheetah's far off."""
    with jax.enable_x64(True):
        one, _ = step(id)
        moved = jax.jit(jax.vmap(lambda q, v, u: one(q, v, u, {})))(*stored(id, "qpos", "qvel", "ctrl"))
        moved = jax.device_get(moved)
    qacc, qpos, qvel = stored(id, "qacc", "next_qpos", "next_qvel")
    assert far(moved.qacc, qacc).max() < 1e-10
    assert far(moved.qvel, qvel).max() < 1e-10
    assert far(moved.qpos, qpos).max() < 1e-10


@pytest.mark.slow
@pytest.mark.light
def test_gradients():
    """Through the hopper's contacts they are those of central differences."""
    states = [x[:24] for x in stored("Hopper-v5", "qpos", "qvel", "ctrl")]
    rng, small = np.random.default_rng(0), 1e-5
    ways = [rng.normal(size=x.shape) for x in states]
    with jax.enable_x64(True):
        one, _ = step("Hopper-v5")

        def energy(q, v, u):
            return jnp.sum(one(q, v, u, {}).qvel ** 2)

        both = jax.jit(jax.vmap(jax.value_and_grad(energy, (0, 1, 2))))
        slopes, ahead, behind = jax.device_get(
            [both(*(x + t * y for x, y in zip(states, ways, strict=True))) for t in (0.0, small, -small)]
        )
    wanted = (ahead[0] - behind[0]) / (2 * small)
    found = sum((x * y).sum(1) for x, y in zip(slopes[1], ways, strict=True))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7 * np.abs(wanted).max())


@pytest.mark.slow
@pytest.mark.light
def test_second_derivatives():
    """Where a cart presses against its rail's end they are those of central differences of the first, too."""
    small = 1e-5
    with jax.enable_x64(True):
        one, _ = step("InvertedPendulum-v5")

        def rate(t):
            return one(jnp.array([1.01 + 0.1 * t, 0.2 + t]), jnp.array([2.0 + t, 1.0 - t]), jnp.array([t]), {}).qvel[0]

        slope = jax.jit(jax.vmap(jax.grad(rate)))
        low, high = slope(jnp.array([-small, small]))
        free = jax.jit(jax.grad(lambda t: rate(t - 20.0)))(0.0)  # away from the rail's end
        twice = jax.jit(jax.grad(jax.grad(rate)))(0.0)
        low, high, free, twice = map(float, (low, high, free, twice))
    np.testing.assert_allclose(twice, (high - low) / (2 * small), rtol=1e-6)
    assert abs(low - free) > 1e-2
