"""Tasks given as formulas: their geometry, their levels, and flights judged again from the recorded positions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.quadcopter import dynamics
from jaxrl.envs.quadcopter.tasks import reach_avoid, timed_gates
from jaxrl.envs.quadcopter.tasks.reach_avoid import ReachAvoid
from jaxrl.envs.quadcopter.tasks.timed_gates import TimedGates
from jaxrl.exact import stl

FLIGHTS = 32


def toward(state, point):
    """Velocity commands of 3 m/s at most."""
    return jnp.append(jnp.clip(0.7 * (point - jnp.stack(state.drone.position)), -1, 1), 0.0)


def to_the_goal(state):
    return toward(state, state.goal.layout.goal)


def through_the_gates(state):
    """Out of the last gate straight on, to a point before the next, then into it."""
    layout, visits, position = state.goal.layout, state.goal.visits, jnp.stack(state.drone.position)
    index = jnp.minimum(jnp.sum((layout.window[:, 1] < state.time) | (visits > 0.05)), len(visits) - 1)
    normals = jnp.stack([jnp.cos(layout.yaw), jnp.sin(layout.yaw), jnp.zeros_like(layout.yaw)], -1)
    away = position - layout.center
    along = jnp.sum(away * normals, -1)
    aside = jnp.sum(jnp.square(away - along[:, None] * normals), -1)
    last = jnp.maximum(index - 1, 0)
    approach = layout.center[index] - jnp.where(aside[index] < 0.15**2, 0.0, 0.4) * normals[index]
    leaving = (index > 0) & (along[last] < 0.3)
    return toward(state, jnp.where(leaving, layout.center[last] + 0.6 * normals[last], approach))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def fly(env, pilot, steps, levels):
    def one(level):
        _, first = env.reset(jax.random.key(0), level)

        def body(state, _):
            ts = env.step(jax.random.key(0), state, pilot(state), level)
            seen = jnp.stack(ts.state.drone.position), ts.reward, ts.terminated, ts.info, ts.state.goal.visits
            return ts.state, (*seen, ts.state.goal.safety)

        return first, jax.lax.scan(body, first, None, steps)[1]

    return jax.vmap(one)(levels)


@pytest.fixture(scope="module")
def avoided():
    """Levels, of which the second half has its obstacles far below the floor, and flights straight to the goal."""
    env = ReachAvoid(obstacles=3)
    params = env.default_params
    levels = jax.vmap(lambda k: reach_avoid.generate(k, params, 3))(jax.random.split(jax.random.key(0), FLIGHTS))
    second = jnp.arange(FLIGHTS) >= FLIGHTS // 2
    center = levels.layout.center - jnp.where(second, 50.0, 0.0)[:, None, None] * jnp.array([0, 0, 1.0])
    levels = levels.replace(layout=levels.layout.replace(center=center))
    return env, levels, fly(env.as_levels(), to_the_goal, 130, levels)


@pytest.fixture(scope="module")
def gated():
    env = TimedGates()
    params = env.default_params
    levels = jax.vmap(lambda k: timed_gates.generate(k, params))(jax.random.split(jax.random.key(1), FLIGHTS))
    return env, levels, fly(env.as_levels(), through_the_gates, 190, levels)


def ends(flight):
    """The index of the step that ended each episode."""
    return np.argmax(np.asarray(flight[2]), 1)


# ---- reach and avoid


@pytest.mark.slow
def test_straight_flights_arrive_where_nothing_is_in_the_way(avoided):
    _, levels, (_, flight) = avoided
    end = ends(flight)
    success = np.asarray(flight[3]["success"])[np.arange(FLIGHTS), end]
    assert success[FLIGHTS // 2 :].all()
    assert 0 < success[: FLIGHTS // 2].sum() < FLIGHTS // 2  # and where something is, some do
    unsafe = np.asarray(flight[3]["unsafe"])[np.arange(FLIGHTS), end]
    np.testing.assert_array_equal(end + 1 == np.asarray(levels.layout.window[:, 1]), ~unsafe)
    assert not np.any(success & unsafe)


@functools.partial(jax.jit, static_argnums=0)
def judged_again(env, levels, first, positions):
    """The conjuncts' robustness (flights, K + 1) from the recorded flights, by `stl.rho` on whole signals."""

    def one(level, first, positions):
        track = jnp.concatenate([jnp.stack(first.drone.position)[None], positions])
        times = jnp.arange(len(track), dtype=jnp.int32)
        visits = jax.vmap(lambda p, t: env.visits(level.layout, p, t, level), out_axes=1)(track, times)
        hazards = jax.vmap(lambda p, t: env.hazards(level.layout, p, t, level))(track, times)
        values = jax.vmap(lambda signal: stl.rho(env.visit, signal)[0])(visits)
        return jnp.clip(jnp.append(values, stl.rho(env.avoid, hazards)[0]), -level.most, level.most)

    return jax.vmap(one)(levels, first, positions)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["avoided", "gated"])
def test_the_record_has_the_robustness_that_the_monitor_gave(task, request):
    env, levels, (first, flight) = request.getfixturevalue(task)
    positions, rewards, _, info, visits, safety = flight
    values = np.asarray(judged_again(env, levels, first, positions))
    np.testing.assert_allclose(visits[:, -1], values[:, :-1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(safety[:, -1], values[:, -1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(info["robustness"][:, -1], values.min(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(info["visited"][:, -1], (values[:, :-1] > 0).sum(1))
    np.testing.assert_array_equal(info["success"][:, -1], values.min(1) > 0)
    # The rewards add up to the change of the conjuncts' sum.
    change = values.sum(1) - first.goal.visits.sum(1) - first.goal.safety
    np.testing.assert_allclose(rewards.sum(1), change, rtol=1e-4, atol=1e-4)


@functools.partial(jax.jit, static_argnums=0)
def walked(env, level, points):
    """The first progress, the rewards and the last transition of a drone that is put on one point after the other."""
    _, state = env.reset(jax.random.key(0), level)

    def body(state, point):
        new = env.judge(state, jnp.zeros(4), dynamics.at_rest(level.model, tuple(point)), level)
        return state.replace(time=state.time + 1, goal=new.state), new._replace(state=())

    moves = jax.lax.scan(body, state, jnp.asarray(points))[1]
    return state.goal, moves.reward, jax.tree.map(lambda x: x[-1], moves)


def a_level(env):
    level = env.default_params
    layout = level.layout.replace(
        start=jnp.array([-2.0, 0.0, 1.5]),
        goal=jnp.array([2.0, 0.0, 1.5]),
        goal_radius=jnp.float32(0.4),
        window=jnp.array([2, 4], jnp.int32),
        center=jnp.array([[0.0, 1.0, 1.5]]),
        half=jnp.zeros((1, 3)),
        radius=jnp.array([0.5]),
    )
    return level.replace(layout=layout)


WALK = [(0.0, 0.0, 1.5), (1.9, 0.0, 1.5), (1.9, 0.0, 1.5), (2.5, 0.0, 1.5)]


@pytest.mark.slow
def test_rewards_of_a_walk_by_hand():
    """Nearest to the sphere at 0.5 - 0.06 m; at times 2 and 3, while the window is open, 0.3 m deep in the goal."""
    most, clearance = 8.0, 0.5 - 0.06
    for kind, wanted in (
        ("final", [0, 0, 0, 0.3]),
        ("running", [0, 0.3 + most, 0, 0]),
        ("conjuncts", [clearance - 0.94, 0.3 + most, 0, 0]),
    ):
        env = ReachAvoid(obstacles=1, reward=kind).as_levels()
        first, rewards, last = walked(env, a_level(env), WALK)
        np.testing.assert_allclose(first.safety, 1 - 0.06, rtol=1e-5)  # the wall of x = -3
        np.testing.assert_allclose(rewards, wanted, atol=1e-5)
        assert bool(last.terminated) and bool(last.info["success"])
        np.testing.assert_allclose(last.info["robustness"], 0.3, rtol=1e-5)


@pytest.mark.slow
def test_too_early_is_no_visit_and_a_touch_ends_the_episode():
    env = ReachAvoid(obstacles=1).as_levels()
    level = a_level(env)
    early = [(2.0, 0.0, 1.5), *[(-1.0, 0.0, 1.5)] * 3]
    _, _, last = walked(env, level, early)
    assert bool(last.terminated) and not bool(last.info["success"]) and not bool(last.info["unsafe"])
    np.testing.assert_allclose(last.info["robustness"], 0.4 - 3, rtol=1e-5)
    for touching in ((0.0, 0.45, 1.5), (2.95, 0.0, 1.5), (0.0, 0.0, 0.05)):
        _, _, last = walked(env, level, [touching] * 4)
        assert bool(last.terminated) and bool(last.info["unsafe"]) and not bool(last.info["success"])


def test_clearance_is_the_distance_to_the_nearest_obstacle():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(3, 3))
    half = np.array([[0.5, 0.2, 0.7], [0, 0, 0], [0.3, 0.3, 0]])
    radius = np.array([0.0, 0.6, 0.1])
    layout = {"center": jnp.asarray(centers), "half": jnp.asarray(half), "radius": jnp.asarray(radius)}
    points = rng.normal(size=(50, 3)) * 2
    found = reach_avoid.clearance(jnp.asarray(points, jnp.float32), layout)
    nearest = np.clip(points[:, None], centers - half, centers + half)  # of each box
    outside = np.linalg.norm(points[:, None] - nearest, axis=-1) - radius
    free = (outside > 0).all(1)
    assert free.sum() > 20
    np.testing.assert_allclose(found[free], outside.min(1)[free], atol=1e-5)
    assert np.all(np.asarray(found)[~free] < 1e-6)
    inside = jnp.array([centers[0] + [0.45, 0, 0]], jnp.float32)
    alone = jax.tree.map(lambda x: x[:1], layout)
    np.testing.assert_allclose(reach_avoid.clearance(inside, alone), -0.05, atol=1e-6)


@pytest.mark.slow
def test_generated_and_mutated_reach_avoid_levels_are_valid():
    params = ReachAvoid().default_params
    keys = jax.random.split(jax.random.key(2), 200)
    levels = jax.jit(jax.vmap(lambda k: reach_avoid.generate(k, params)))(keys)
    reach_avoid.validate(levels)
    mutate = jax.jit(jax.vmap(reach_avoid.mutate))
    changed = levels
    for i in range(5):
        changed = mutate(jax.random.split(jax.random.key(i), 200), changed)
        reach_avoid.validate(changed)
    for name in ("start", "goal", "center", "radius", "window"):
        assert np.any(np.asarray(getattr(changed.layout, name)) != np.asarray(getattr(levels.layout, name))), name
    assert np.any(levels.layout.radius > 0) and np.any(levels.layout.half[..., 0] > 0)
    assert np.any(levels.layout.start[:, 0] > 0) and np.any(levels.layout.start[:, 0] < 0)
    opened, closed = levels.layout.window[:, 0], levels.layout.window[:, 1]
    assert 0 <= opened.min() < 5 and 35 < opened.max() <= 40 and 90 <= closed.min() and closed.max() <= 130


# ---- gates


@pytest.mark.slow
def test_a_pilot_that_knows_the_gates_is_in_time(gated):
    _, levels, (_, flight) = gated
    end = ends(flight)
    info = jax.tree.map(lambda x: np.asarray(x)[np.arange(FLIGHTS), end], flight[3])
    assert info["success"].mean() > 0.6 and info["visited"].mean() > 2.4
    np.testing.assert_array_equal(end + 1 == np.asarray(levels.layout.window[:, -1, 1]), ~info["unsafe"])
    np.testing.assert_array_equal(info["success"], (info["visited"] == 3) & ~info["unsafe"])


def test_distance_to_a_frame_is_sound():
    """Against points on the bars: never more than the true distance, and that away from the corners."""
    gate = {"center": jnp.array([[[0.5, -0.2, 1.5]]]), "yaw": jnp.array([[0.7]])}
    signal = {"half": jnp.array([0.4]), "bar": jnp.array([0.05]), "radius": jnp.array([0.06]), "gates": gate}
    along = np.linspace(-1, 1, 401)
    ring = 0.45 * np.concatenate([np.stack([along, s + 0 * along], -1) for s in (-1, 1)])
    ring = np.concatenate([ring, ring[:, ::-1]])
    side = np.array([-np.sin(0.7), np.cos(0.7), 0])
    bars = np.array([0.5, -0.2, 1.5]) + ring[:, :1] * side + ring[:, 1:] * np.array([0, 0, 1])
    points = np.random.default_rng(0).normal(size=(60, 3)) * 0.6 + [0.5, -0.2, 1.5]
    signal = jax.tree.map(lambda x: jnp.repeat(x, len(points), 0), signal)
    found = np.asarray(timed_gates.clear.value(signal | {"position": jnp.asarray(points, jnp.float32)}))
    true = np.linalg.norm(points[:, None] - bars, axis=-1).min(1) - 0.11
    assert np.all(found <= true + 1e-4)
    flat = np.abs((points - [0.5, -0.2, 1.5]) @ np.stack([side, [0, 0, 1]], -1))
    plain = (flat.min(1) < 0.45) | (flat.max(1) < 0.45)
    assert plain.sum() > 30
    np.testing.assert_allclose(found[plain], true[plain], atol=1e-4)


@pytest.mark.slow
def test_gates_are_visited_in_their_windows_only():
    env = TimedGates(gates=2, reward="final").as_levels()
    level = env.default_params
    centers = jnp.array([[-1.0, 0.0, 1.5], [1.0, 0.0, 1.5]])
    layout = timed_gates.Layout(
        jnp.array([-2.0, 0.0, 1.5]), centers, jnp.array([0.0, 0.5]), jnp.array([[1, 2], [4, 5]], jnp.int32)
    )
    level = level.replace(layout=layout)
    first, second, between = (-1.1, 0.0, 1.5), (1.0, 0.1, 1.5), (0.0, 0.0, 1.5)
    _, rewards, last = walked(env, level, [between, first, between, second, between])
    assert bool(last.terminated) and bool(last.info["success"]) and int(last.info["visited"]) == 2
    deep = min(0.25 - 0.1, 0.25 - 0.1 * np.sin(0.5), 0.4 - 0.06 - 0.1 * np.cos(0.5))
    clear = 0.45 - 0.1 * np.cos(0.5) - 0.11  # of the second gate's bar
    np.testing.assert_allclose(rewards, [0, 0, 0, 0, min(deep, clear)], atol=1e-5)
    _, _, last = walked(env, level, [between, between, first, second, between])
    assert not bool(last.info["success"]) and int(last.info["visited"]) == 1


@pytest.mark.slow
def test_the_next_gate_is_observed():
    env = TimedGates(gates=2)
    levels = env.as_levels()
    level = levels.default_params
    _, state = jax.jit(levels.reset)(jax.random.key(0), level)
    observe = jax.jit(levels.observe)
    layout, position = level.layout, jnp.stack(state.drone.position)
    for time, k in ((0, 0), (int(layout.window[0, 1]), 0), (int(layout.window[0, 1]) + 1, 1), (10_000, 1)):
        obs = observe(jax.random.key(0), state.replace(time=jnp.int32(time)), level)
        np.testing.assert_allclose(obs[:3], position - layout.center[k], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(obs[24:26], (layout.window[k] - time) * 0.05, rtol=1e-5)
        np.testing.assert_allclose(obs[27:30], layout.center[1] - position, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_generated_and_mutated_gates_are_valid():
    for gates in (1, 4):
        params = TimedGates(gates=gates).default_params
        keys = jax.random.split(jax.random.key(3), 100)
        levels = jax.jit(jax.vmap(lambda k, p=params, g=gates: timed_gates.generate(k, p, g)))(keys)
        timed_gates.validate(levels)
        mutate, changed = jax.jit(jax.vmap(timed_gates.mutate)), levels
        for i in range(5):
            changed = mutate(jax.random.split(jax.random.key(i), 100), changed)
            timed_gates.validate(changed)
        for name in ("start", "center", "yaw", "window"):
            assert np.any(np.asarray(getattr(changed.layout, name)) != np.asarray(getattr(levels.layout, name))), name


# ---- bad input


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match="reward='sparse'; it is one of conjuncts, running, final"):
        ReachAvoid(reward="sparse")
    with pytest.raises(ValueError, match="obstacles=-1"):
        ReachAvoid(obstacles=-1)
    with pytest.raises(ValueError, match="gates=0"):
        TimedGates(gates=0)
    env = ReachAvoid()
    params = env.default_params
    for change, match in (
        ({"opens": jnp.array([50, 100])}, "must be before closes"),
        ({"closes": jnp.array([90, 300])}, "within max_steps=200"),
        ({"radius": jnp.array([0.5, 0.2])}, "radius=.* must be 0 <= a <= b"),
        ({"margin": jnp.float32(0.01)}, "must exceed the drone's radius"),
        ({"most": jnp.float32(0.0)}, "most=0.0 must be finite and positive"),
    ):
        with pytest.raises(ValueError, match=match):
            env.validate(params.replace(**change))
    gates = TimedGates()
    with pytest.raises(ValueError, match="above twice the width"):
        gates.validate(gates.default_params.replace(width=jnp.int32(20)))
    with pytest.raises(ValueError, match="more than max_steps=100"):
        gates.validate(gates.default_params.replace(max_steps=jnp.int32(100)))


@pytest.mark.slow
@pytest.mark.light
def test_levels_that_nobody_can_fly_are_refused():
    good = a_level(ReachAvoid(obstacles=1).as_levels())
    reach_avoid.validate(good)
    layout = good.layout
    for change, match in (
        ({"window": jnp.array([4, 2], jnp.int32)}, "must be 0 <= open <= close"),
        ({"window": jnp.array([4, 900], jnp.int32)}, "closes after max_steps"),
        ({"goal": jnp.array([2.99, 0.0, 1.0])}, "goal=.* is not in the arena"),
        ({"center": layout.start[None]}, "start=.* is in an obstacle"),
        ({"radius": -layout.radius}, "must not be negative"),
    ):
        with pytest.raises(ValueError, match=match):
            reach_avoid.validate(good.replace(layout=layout.replace(**change)))
    with pytest.raises(ValueError, match="does not fit obstacles=2"):
        ReachAvoid(obstacles=2).as_levels().validate(good)
    level = TimedGates().as_levels().default_params
    layout = level.layout
    for change, match in (
        ({"window": layout.window[::-1]}, "without overlap"),
        ({"start": layout.center[0] + jnp.array([0.0, 0.0, 0.45])}, "in the frame of a gate"),
        ({"center": layout.center + 3}, "(?s)center=.* is not in the arena"),
    ):
        with pytest.raises(ValueError, match=match):
            timed_gates.validate(level.replace(layout=layout.replace(**change)))


def test_settings_reach_the_level_environment():
    env = ReachAvoid(obstacles=2, reward="final", substeps=2, history=3).as_levels()
    assert (env.obstacles, env.reward, env.substeps, env.history) == (2, "final", 2, 3)
    assert hash(TimedGates(gates=4).as_levels()) == hash(TimedGates(gates=4).as_levels())
