"""Curling: contacts against closed forms, what they may never do, and what is paid."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl import make
from jaxrl.envs.classic import curling

KEY = jax.random.key(0)
ENV, PARAMS = make("Curling-v0")


def ball_at(x, y, vx=0.0, vy=0.0, spin=0.0):
    return curling.Ball(*map(jnp.float32, (x, y, vx, vy, spin)))


def arm_at(angle_1, angle_2, speed_1=0.0, speed_2=0.0):
    return curling.Arm(*map(jnp.float32, (angle_1, angle_2, speed_1, speed_2)))


ASIDE = arm_at(-1.2, -1.5)
"""Folded to the lower right."""
dynamics = jax.jit(curling.dynamics)


def energy(ball, radius, u=(0.0, 0.0)):
    """Of a unit mass, as seen from a surface that moves at `u`."""
    return ((ball.vx - u[0]) ** 2 + (ball.vy - u[1]) ** 2) / 2 + radius**2 * ball.spin**2 / 4


def test_a_free_ball_slows_down_by_the_closed_form():
    steps = 90
    state = curling.State(jnp.int32(0), ball_at(-1.0, 0.5, 0.9, -0.3, 2.0), ASIDE)
    run = jax.jit(
        lambda s: jax.lax.scan(lambda s, _: (curling.dynamics(s, jnp.zeros(2), PARAMS), None), s, None, steps)[0]
    )
    after, t = run(state).ball, steps / 60
    left = math.exp(-1.1 * t)
    np.testing.assert_allclose(
        [after.vx, after.vy, after.spin], [0.9 * left, -0.3 * left, 2 * math.exp(-2 * t)], rtol=1e-4
    )
    way = (1 - left) / 1.1
    np.testing.assert_allclose([after.x, after.y], [-1 + 0.9 * way, 0.5 - 0.3 * way], rtol=1e-4)


@pytest.mark.parametrize(("speed", "bounce"), [(3.0, 0.9), (0.8, 0.0)])
def test_a_wall_reflects_by_the_closed_form(speed, bounce):
    """Straight at the right wall: drag takes `damping` times the way off a speed, so the time of the hit is known."""
    state = curling.State(jnp.int32(0), ball_at(1.29, 0.0, speed), ASIDE)
    after, h = dynamics(state, jnp.zeros(2), PARAMS).ball, 1 / 60
    at_wall = speed - 1.1 * 0.01
    since = h - math.log(speed / at_wall) / 1.1
    back = bounce * at_wall
    np.testing.assert_allclose(after.x, 1.3 - back * (1 - math.exp(-1.1 * since)) / 1.1, atol=2e-6)
    np.testing.assert_allclose(after.vx, -back * math.exp(-1.1 * since), atol=2e-6)
    assert after.vy == 0 and after.spin == 0


def test_a_slanting_ball_rolls_off_a_wall_or_slips():
    """Sticking friction makes the rim still, a third of the slip going into the speed; Coulomb's bounds it."""
    params = PARAMS.replace(wall_friction=jnp.float32(10.0))
    still = jnp.float32(0)
    after = curling.hit(
        ball_at(0, 1.31, 0.6, 2), jnp.float32(0.01), (still, jnp.float32(-1)), (still, still), 10.0, params
    )
    np.testing.assert_allclose([after.vx, after.vy, after.spin], [0.4, -1.8, 0.4 / 0.15], rtol=1e-5)
    np.testing.assert_allclose(after.vx - 0.15 * after.spin, 0, atol=1e-6)  # of the rim at the wall above
    after = curling.hit(
        ball_at(0, 1.31, 9, 2), jnp.float32(0.01), (still, jnp.float32(-1)), (still, still), 0.5, params
    )
    np.testing.assert_allclose(9 - after.vx, 0.5 * 1.9 * 2, rtol=1e-5)


def test_an_arm_hits_as_its_surface_moves():
    """Upright and turning at 1 rad/s, its middle line meets the ball at 1.7 m from the shoulder: at rest 1.9 x 1.7."""
    arm, params = arm_at(0.0, 0.0, 1.0, 0.0), PARAMS
    parts = curling.links(arm, params)
    np.testing.assert_allclose([parts[1].x, parts[1].y, parts[1].vx, parts[1].vy], [0, -0.5, -1, 0], atol=1e-6)
    after = curling.off_link(ball_at(-0.19, 0.2), parts[1], params.replace(link_friction=jnp.float32(0)))
    np.testing.assert_allclose([after.vx, after.vy], [-1.9 * 1.7, 0], atol=1e-5)
    np.testing.assert_allclose(after.x, -0.19 - 1.9 * 0.01, atol=1e-6)
    slow = curling.off_link(ball_at(-0.19, 0.2), curling.links(arm_at(0.0, 0.0, 0.5, 0.0), params)[1], params)
    np.testing.assert_allclose(slow.vx, -0.5 * 1.7, atol=1e-5)  # below bounce_speed it is carried along


def drawn(seed, count=512):
    """States that may be: arms among walls, and balls as fast as they get, away from these."""
    rng = np.random.default_rng(seed)
    most = np.asarray(PARAMS.most_angle)
    arms = curling.Arm(*(rng.uniform(-a, a, 8 * count).astype(np.float32) for a in (most[0], most[1], 1, 1)))
    speed, course = 12 * rng.uniform(0, 1, 8 * count) ** 0.5, rng.uniform(-np.pi, np.pi, 8 * count)
    x, y, spin = (rng.uniform(-a, a, 8 * count) for a in (1.3, 1.3, 50))
    parts = (x, y, speed * np.cos(course), speed * np.sin(course), spin)
    balls = curling.Ball(*(np.asarray(part, np.float32) for part in parts))
    kept = np.flatnonzero(legal(balls, arms))[:count]
    assert len(kept) == count
    actions = rng.choice([-1.0, -0.3, 1.0], (count, 2)).astype(np.float32)
    return jax.tree.map(lambda x: x[kept], (balls, arms)), actions


@jax.jit
@jax.vmap
def legal(ball, arm):
    parts = curling.links(arm, PARAMS)
    apart = jnp.minimum(*(curling.from_link(ball, link)[2] for link in parts))
    inside = jnp.maximum(jnp.abs(ball.x), jnp.abs(ball.y)) <= 1.3 + 1e-6
    return curling.among_walls(arm.angle_1, arm.angle_2, PARAMS) & (apart >= 0.2 - 1.1e-4) & inside


@jax.jit
@jax.vmap
def contacts(ball, arm):
    """Energies before and after each contact of a ball where it may be, and of one within what it hits."""
    found = []
    for link in curling.links(arm, PARAMS):
        nx, ny, distance = curling.from_link(ball, link)
        near = ball.replace(x=ball.x - (distance - 0.19) * nx, y=ball.y - (distance - 0.19) * ny)
        x, y = near.x - 0.14 * nx - link.x, near.y - 0.14 * ny - link.y
        surface = link.vx - link.rate * y, link.vy + link.rate * x
        after = curling.off_link(near, link, PARAMS)
        found.append((energy(near, 0.15, surface), energy(after, 0.15, surface)))
    out = ball.replace(x=1.5 * ball.x, y=1.5 * ball.y)
    found.append((energy(out, 0.15), energy(curling.off_walls(out, PARAMS), 0.15)))
    return jnp.asarray(found)


@jax.jit
@jax.vmap
def beside(ball, arm):
    """Of the ball along and across each link's middle line, in its own axes."""
    found = []
    for link in curling.links(arm, PARAMS):
        length = jnp.sqrt(link.along_x**2 + link.along_y**2)
        x, y = ball.x - link.x, ball.y - link.y
        along, across = x * link.along_x + y * link.along_y, y * link.along_x - x * link.along_y
        found.append((along / length**2, across / length))
    return jnp.asarray(found)


step = jax.jit(jax.vmap(functools.partial(curling.dynamics, params=PARAMS)))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**31))
def test_no_contact_makes_energy_and_nothing_passes_through_a_link(seed):
    (balls, arms), actions = drawn(seed)
    energies = np.asarray(contacts(balls, arms))
    assert np.all(energies[..., 1] <= energies[..., 0] * (1 + 1e-5) + 1e-5)
    assert np.any(energies[..., 1] < 0.99 * energies[..., 0])
    state = curling.State(np.zeros(len(actions), np.int32), balls, arms)
    for _ in range(3):
        before, state = state, step(state, actions)
        assert np.all(legal(state.ball, state.arm))
        old, new = (np.asarray(beside(s.ball, s.arm)) for s in (before, state))
        within = np.all([(s[..., 0] > 0) & (s[..., 0] < 1) for s in (old, new)], 0)
        assert not np.any(within & (old[..., 1] * new[..., 1] < 0)), "a ball is on the other side of a link"


def test_a_ball_that_cannot_leave_stops_the_arm_and_is_let_go():
    """Between the left wall and the upper link, which turns against it."""
    state = curling.State(jnp.int32(0), ball_at(-1.3, -0.1), arm_at(0.9, -0.9))
    assert legal(*jax.tree.map(lambda x: x[None], (state.ball, state.arm)))[0]
    run = jax.jit(lambda s, u: jax.lax.scan(lambda s, _: (curling.dynamics(s, u, PARAMS), None), s, None, 60)[0])
    held = run(state, jnp.array([1.0, -1.0]))
    assert legal(*jax.tree.map(lambda x: x[None], (held.ball, held.arm)))[0]
    away = run(held, jnp.array([-1.0, 0.0]))
    np.testing.assert_allclose(away.arm.speed_1, -1, atol=1e-4)
    assert held.arm.angle_1 - away.arm.angle_1 > 0.9


def test_joints_stop_at_their_ends_and_at_walls():
    state = curling.State(jnp.int32(0), ball_at(-0.5, 1.2), arm_at(0.0, 0.0))
    run = jax.jit(lambda s, u: jax.lax.scan(lambda s, _: (curling.dynamics(s, u, PARAMS), None), s, None, 240)[0])
    out = run(state, jnp.array([-1.0, 0.0]))  # straight, to the right: the tip meets the wall first
    np.testing.assert_allclose(math.sin(-out.arm.angle_1) * 1.85, 1.4, atol=0.02)
    assert out.arm.speed_1 == 0
    folded = run(state, jnp.array([0.0, -1.0]))
    np.testing.assert_allclose(folded.arm.angle_2, -0.9 * math.pi, rtol=1e-6)


def test_the_last_step_pays_for_the_place():
    _, state = ENV.reset(KEY, PARAMS)
    np.testing.assert_allclose(ENV.observe(KEY, state, PARAMS), [-0.5, 0.2, 0, 0, 0, 0])
    params = PARAMS.replace(max_steps=jnp.int32(2))
    state = state.replace(ball=ball_at(0.8, 0.6))
    ts = ENV.step(KEY, state, jnp.zeros(2), params)
    assert ts.reward == 0 and ts.info["area"] == 1 and not ts.truncated
    ts = ENV.step(KEY, ts.state, jnp.zeros(2), params)
    np.testing.assert_allclose(ts.reward, 0.5, rtol=1e-5)
    assert ts.truncated and not ts.terminated
    low = state.replace(ball=ball_at(0.75, -0.8), time=jnp.int32(1))
    ts = ENV.step(KEY, low, jnp.zeros(2), params)
    np.testing.assert_allclose(ts.reward, 0.75, rtol=1e-5)
    assert ts.info["area"] == 2
    ts = ENV.step(KEY, state.replace(ball=ball_at(0.0, 1.0), time=jnp.int32(1)), jnp.zeros(2), params)
    assert ts.reward == 0 and ts.info["area"] == 0 and ts.truncated


def test_params_may_be_batched():
    ENV.validate(jax.tree.map(lambda x: jnp.stack([x, x, x]), PARAMS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(radius=-1.0), "radius"),
        (dict(restitution=1.2), "restitution=1.2 must be in"),
        (dict(joint_speed=20.0), "could pass through the ball"),
        (dict(areas=jnp.zeros((1, 3))), "areas: a radius of"),
        (dict(start=jnp.zeros(3)), r"start has shape \(3,\)"),
        (dict(start=jnp.zeros(4)), "the ball would be in a wall or in the arm"),
        (dict(start=jnp.array([-1.4, 0.2, 0, 0])), "the ball would be in a wall or in the arm"),
        (dict(start=jnp.array([-0.5, 0.2, -1.2, 0])), "the arm would be in a wall"),
    ],
)
def test_impossible_tables_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ENV.validate(PARAMS.replace(**changes))
