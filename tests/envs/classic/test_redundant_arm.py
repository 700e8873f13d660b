"""The redundant arm: SERENE's own episodes to the last step, and what ends one and pays."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make
from jaxrl.envs.classic import redundant_arm
from jaxrl.testing import golden

KEY = jax.random.key(0)


def test_episodes_are_serenes():
    """In double precision, so that one that ends at a wall ends at the same step; with larger areas, that pay."""
    data = golden("redundant_arm")
    with jax.enable_x64(True):
        env, params = make("RedundantArm-v0")
        params = params.replace(areas=jnp.asarray(data["areas"]))

        @jax.jit
        @jax.vmap
        def episode(actions):
            _, state = env.reset(KEY, params)

            def step(carry, action):
                state, over = carry
                ts = env.step(KEY, state, action, params)
                state = jax.tree.map(lambda new, old: jnp.where(over, old, new), ts.state, state)
                x, y = redundant_arm.joints(state.angle, params.length)
                out = (
                    state.angle,
                    jnp.stack([x[-1], y[-1]]),
                    ts.terminated & ~over,
                    ~over,
                    jnp.where(over, 0, ts.reward),
                )
                return (state, over | ts.terminated), out

            return state.angle, jax.lax.scan(step, (state, jnp.bool_(False)), jnp.repeat(actions, 50, 0))[1]

        first, (angle, tip, stopped, live, reward) = jax.device_get(episode(data["action"]))
    np.testing.assert_array_equal(live, data["live"])
    np.testing.assert_array_equal(stopped, data["stopped"])
    assert 4 < stopped.sum() < 12
    np.testing.assert_allclose(reward.sum(1), data["reward"], atol=1e-9)
    assert 4 < (data["reward"] > 0).sum() < 12
    angle = np.concatenate([first[:, None], angle], 1)[:, ::10]
    np.testing.assert_allclose(angle, data["angle"], atol=1e-9)
    np.testing.assert_allclose(tip, data["tip"], atol=1e-9)


def state_at(angle, speed=0.0):
    angle = jnp.asarray(angle, jnp.float32)
    return redundant_arm.State(jnp.int32(0), angle, jnp.full_like(angle, speed))


def bent(first, each=0.0):
    """All angles equal but the first: straight, or an arc."""
    return np.r_[first, np.full(19, each)]


@pytest.mark.parametrize(
    ("angle", "speed", "allowed"),
    [
        (bent(-math.pi / 4, 0.05), 0.0, True),
        (bent(0.0), 0.0, False),  # straight up: through the wall, and out
        (bent(-math.pi / 4, 0.05), 1.1, False),  # too fast
        (bent(-math.pi / 4, 0.7), 0.0, False),  # a ring, through itself
        (bent(math.pi / 4), 0.0, False),  # to the upper left, 1 long: out of the square
    ],
)
def test_what_is_possible(angle, speed, allowed):
    params = make("RedundantArm-v0")[1]
    params = params.replace(length=jnp.float32(0.4) if allowed or speed else params.length)
    assert redundant_arm.possible(jnp.asarray(angle, jnp.float32), state_at(angle, speed), params) == allowed


def test_a_step_by_hand_and_what_it_pays():
    env, params = make("RedundantArm-v0")
    _, state = env.reset(KEY, params)
    np.testing.assert_allclose([state.angle[0], state.angle[-1]], [math.pi / 5, math.pi / 20], rtol=1e-6)
    x, y = redundant_arm.joints(state.angle, params.length)
    tip = jnp.stack([x[-1], y[-1], jnp.float32(0.5)])
    params = params.replace(areas=jnp.stack([tip + jnp.array([2.0, 0, 0]), tip]), max_steps=jnp.int32(2))
    ts = env.step(KEY, state, jnp.ones(20), params)
    # Speeds 0, dt / 2, dt and so 3/2 dt^2 of angle in two substeps.
    np.testing.assert_allclose(ts.state.angle - state.angle, 1.5e-4, rtol=0.01)
    np.testing.assert_allclose(ts.state.speed, 0.01, rtol=0.01)
    assert ts.reward == 0 and ts.info["area"] == 2 and not ts.truncated
    ts = env.step(KEY, ts.state, jnp.ones(20), params)
    assert 0.9 < ts.reward <= 1 and ts.truncated and not ts.terminated
    fast = state.replace(speed=jnp.full(20, 2.0))
    ts = env.step(KEY, fast, jnp.zeros(20), params)
    np.testing.assert_array_equal(ts.state.angle, state.angle)
    assert ts.terminated and ts.reward > 0.99


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(length=-1.0), "length"),
        (dict(walls=jnp.zeros((3, 3))), r"walls has shape \(3, 3\)"),
        (dict(areas=jnp.zeros((1, 3))), "areas: a radius of"),
    ],
)
def test_impossible_arms_are_refused(changes, message):
    env, params = make("RedundantArm-v0")
    with pytest.raises(ValueError, match=message):
        env.validate(params.replace(**changes))
    with pytest.raises(ValueError, match="num_joints=5"):
        redundant_arm.RedundantArm(num_joints=5)
