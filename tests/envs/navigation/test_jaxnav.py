"""JaxNav: stored steps of the authors' code, lidar and collisions against NumPy, levels against scipy's search."""

import math
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, dijkstra

import jaxrl
from jaxrl.envs.navigation import jaxnav
from jaxrl.envs.navigation.jaxnav import (
    UNREACHABLE,
    Level,
    Params,
    collides,
    distances,
    generate,
    is_solvable,
    shortest,
)
from jaxrl.testing.golden import golden

GOLDEN = golden("jaxnav")
KEY = jax.random.key(0)
ENV, PARAMS = jaxrl.make("JaxNav-v0")
LEVELS = ENV.as_levels()
MAPS = jnp.asarray(GOLDEN["wall_map"])
SPACING = 6 / 119


def at(walls, pose, goal, velocity=None, robot=PARAMS.robot):
    """A level and its first state, with another velocity."""
    level = Level(walls, pose, goal, PARAMS.max_steps, robot)
    state = LEVELS.initial(KEY, level)
    return level, state if velocity is None else state.replace(v=velocity[0], w=velocity[1])


@jax.jit
@partial(jax.vmap, in_axes=(0, 0, 0, 0, 0))
@partial(jax.vmap, in_axes=(None, 0, 0, None, 0))
def stepped(walls, pose, velocity, goal, action):
    level, state = at(walls, pose, goal, velocity)
    return LEVELS.step(KEY, state, action, level)


def test_steps():
    """Each step of the stored episodes, from the state that the authors' code was in."""
    arrays = (GOLDEN["pose"][:, :-1], GOLDEN["velocity"][:, :-1], GOLDEN["goal"], GOLDEN["action"])
    ts = jax.device_get(stepped(MAPS, *(jnp.asarray(x) for x in arrays)))
    live = GOLDEN["live"]
    pose = np.stack([ts.state.x, ts.state.y, ts.state.theta], -1)
    np.testing.assert_allclose(pose[live], GOLDEN["pose"][:, 1:][live], rtol=0, atol=2e-6)
    velocity = np.stack([ts.state.v, ts.state.w], -1)
    np.testing.assert_allclose(velocity[live], GOLDEN["velocity"][:, 1:][live], rtol=0, atol=1e-6)
    np.testing.assert_allclose(ts.obs[..., 200:][live], GOLDEN["rest"][:, 1:][live], rtol=0, atol=2e-6)
    np.testing.assert_allclose(ts.reward[live], GOLDEN["reward"][live], rtol=0, atol=2e-6)
    terms = sum(x for name, x in ts.info.items() if name.startswith("reward/"))
    np.testing.assert_allclose(ts.reward, terms, rtol=0, atol=1e-6)
    for name in ("success", "collision"):
        np.testing.assert_array_equal(ts.info[name][live], GOLDEN[name][live])
        assert GOLDEN[name].sum() >= 8
    np.testing.assert_array_equal(ts.terminated, ts.info["success"] | ts.info["collision"])
    off = sample(ts.obs[..., :200] + 0.5) - GOLDEN["lidar"][:, 1:]
    assert_samples(off[live])


def sample(part):
    """The number of the sample, of 120, at a part of the lidar's range."""
    return np.rint(np.asarray(part) * 119).astype(int)


def assert_samples(off):
    """Equal but for corners that samples pass over, where exact beams are shorter, and one sample of rounding."""
    assert np.mean(off == 0) > 0.995 and off.max() <= 1 and np.mean(off == 1) < 1e-4


def test_poses():
    """Collisions and lidar anywhere on the stored maps, also within walls."""

    @jax.jit
    @jax.vmap
    def look(walls, pose):
        state = at(walls, pose, jnp.ones(2))[1]
        return collides(pose[0], pose[1], pose[2], PARAMS.robot.half_width, state.rows), state.ranges

    collision, ranges = look(MAPS[GOLDEN["pose_level"]], jnp.asarray(GOLDEN["poses"]))
    np.testing.assert_array_equal(collision, GOLDEN["pose_collision"])
    assert 0.2 < np.mean(collision) < 0.8
    off = sample(np.asarray(ranges) / 6) - GOLDEN["pose_lidar"]
    assert_samples(off)
    assert np.mean(np.asarray(ranges) == 0) > 0.05


def test_discrete_actions():
    env, params = jaxrl.make("JaxNav-v0", actions="discrete")
    fast = params.replace(robot=params.robot.replace(max_v_acc=jnp.float32(1e3), max_w_acc=jnp.float32(1e3)))
    state = env.reset(KEY, params)[1]
    ts = jax.jit(jax.vmap(partial(env.step, KEY, state, params=fast)))(jnp.arange(15))
    np.testing.assert_allclose(np.stack([ts.state.v, ts.state.w], 1), GOLDEN["discrete"], atol=1e-6)


# ---- lidar and collisions against NumPy

SHAPE = (9, 8)  # height, width
EXACT = PARAMS.robot.replace(lidar_spacing=jnp.float32(0))


def marched(walls, x, y, angle, limit, step=1e-3):
    """How far a beam goes, by small steps of it: exact to a step but where it cuts a corner by less."""
    length = np.arange(0, limit, step)
    column, row = np.floor(x + length * math.cos(angle)), np.floor(y + length * math.sin(angle))
    hits = walls[np.clip(row, 0, walls.shape[0] - 1).astype(int), np.clip(column, 0, walls.shape[1] - 1).astype(int)]
    return length[np.argmax(hits)] if hits.any() else limit


def corner_distance(x, y, angle, limit):
    """How near [m] a beam of that length comes to a corner of the grid."""
    corners = np.stack(np.meshgrid(np.arange(SHAPE[1] + 1), np.arange(SHAPE[0] + 1)), -1).reshape(-1, 2) - (x, y)
    along = np.clip(corners @ (math.cos(angle), math.sin(angle)), 0, limit)
    return np.linalg.norm(corners - along[:, None] * (math.cos(angle), math.sin(angle)), axis=1).min()


@jax.jit
def beams_of(walls, pose):
    rows, columns = jaxnav.words(walls), jaxnav.words(walls.T)
    return jaxnav.lidar(pose[0], pose[1], pose[2], rows, columns, EXACT, 37, 6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 0.7))
def test_lidar_is_that_of_a_ray_marcher(seed, share):
    rng = np.random.default_rng(seed)
    walls = np.pad(rng.random((SHAPE[0] - 2, SHAPE[1] - 2)) < share, 1, constant_values=True)
    pose = rng.uniform((1, 1, -np.pi), (SHAPE[1] - 1, SHAPE[0] - 1, np.pi)).astype(np.float32)
    found = np.asarray(beams_of(jnp.asarray(walls), jnp.asarray(pose)))
    x, y, theta = pose.astype(float)
    for range_, angle in zip(found, theta + np.linspace(-np.pi, np.pi, 37), strict=True):
        true = marched(walls, x, y, angle, 6.0)
        assert abs(range_ - true) < 2e-3 or corner_distance(x, y, angle, 6.0) < 2e-3, (range_, true, angle)


def test_lidar_along_the_axes():
    """Beams that are parallel to lines of the grid, and on a line."""
    walls = np.pad(np.zeros((7, 6), bool), 1, constant_values=True)
    for pose, expected in (
        ((3.5, 4.25, 0.0), (2.5, 3.25, 3.5, 3.75, 2.5)),
        ((3.0, 4.0, 0.0), (2.0, 3.0, 4.0, 4.0, 2.0)),
    ):
        x, y, theta = (jnp.float32(z) for z in pose)
        rows, columns = (jaxnav.words(jnp.asarray(z)) for z in (walls, walls.T))
        found = jaxnav.lidar(x, y, theta, rows, columns, EXACT, 5, 6)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def touching(walls, x, y, theta, half):
    """Whether any of a grid of points of the square is in a wall, and how near to a wall it is where none is [m]."""
    side = np.linspace(-half, half, 101)
    u, v = (z.ravel() for z in np.meshgrid(side, side))
    c, s = math.cos(theta), math.sin(theta)
    px, py = x + c * u - s * v, y + s * u + c * v
    inside = walls[np.floor(py).astype(int), np.floor(px).astype(int)].any()
    rows, columns = np.nonzero(walls)
    dx = np.maximum(np.abs(px[:, None] - columns - 0.5) - 0.5, 0)
    dy = np.maximum(np.abs(py[:, None] - rows - 0.5) - 0.5, 0)
    return inside, np.hypot(dx, dy).min() if len(rows) else np.inf


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.05, 0.35))
def test_collisions_are_those_of_points_of_the_square(seed, half):
    rng = np.random.default_rng(seed)
    walls = np.pad(rng.random((4, 4)) < 0.4, 1, constant_values=True)
    x, y, theta = rng.uniform((1, 1, -np.pi), (5, 5, np.pi))
    inside, gap = touching(walls, x, y, theta, half)
    rows = jaxnav.words(jnp.asarray(walls))
    found = bool(collides(jnp.float32(x), jnp.float32(y), jnp.float32(theta), jnp.float32(half), rows))
    assert found == inside or gap < 0.02


# ---- levels


@pytest.mark.parametrize("shape", [(11, 11), (5, 4), (32, 32), (32, 3)])
def test_words(shape):
    walls = np.random.default_rng(0).random(shape) < 0.5
    rows = jaxnav.words(jnp.asarray(walls))
    np.testing.assert_array_equal(jaxnav.wall_map_of(rows, shape[1]), walls)
    assert np.all(jaxnav.words_at(rows, jnp.array([-1, shape[0]])) == jaxnav.OUTSIDE)


def ways(walls):
    """scipy's graph of free cells that are side by side."""
    cells = np.arange(walls.size).reshape(walls.shape)
    pairs = [(cells[:-1][~walls[:-1] & ~walls[1:]], cells[1:][~walls[:-1] & ~walls[1:]])]
    pairs.append((cells[:, :-1][~walls[:, :-1] & ~walls[:, 1:]], cells[:, 1:][~walls[:, :-1] & ~walls[:, 1:]]))
    a, b = (np.concatenate(x) for x in zip(*pairs, strict=True))
    return coo_array((np.ones(len(a)), (a, b)), (walls.size, walls.size)).tocsr()


@jax.jit
def many(keys, fill):
    return jax.vmap(lambda key: generate(key, PARAMS.replace(fill=fill)))(keys)


@pytest.mark.parametrize("fill", [0.0, 0.3, 0.6, 1.0])
def test_generated(fill):
    """As many walls as there may be; starts and goals on free cells, apart; solvable where scipy's search says so."""
    levels = jax.device_get(many(jax.random.split(KEY, 300), jnp.float32(fill)))
    walls = levels.wall_map
    assert walls[:, [0, -1]].all() and walls[:, :, [0, -1]].all()
    number = walls[:, 1:-1, 1:-1].sum((1, 2))
    most = max(min(math.floor(np.float32(fill) * 81), 80), 1)
    assert number.max() <= most - 1 and (fill == 0 or (number.max() > 0.9 * most and number.min() <= 0.1 * most))
    assert abs(number.mean() - (most - 1) / 2) < 0.1 * most + 1e-9
    n, cell = np.arange(300), lambda place: tuple(np.floor(place[:, :2]).astype(int).T[::-1])
    start, goal = cell(levels.start), cell(levels.goal)
    assert not walls[(n, *start)].any() and not walls[(n, *goal)].any()
    assert np.all((start[0] != goal[0]) | (start[1] != goal[1]))
    np.testing.assert_array_equal(levels.start[:, :2] % 1, 0.5)
    np.testing.assert_array_equal(levels.goal % 1, 0.5)
    theta = levels.start[:, 2]
    assert np.all(np.abs(theta) <= np.pi) and abs(theta.mean()) < 0.4 and theta.std() > 1.6
    ours = np.asarray(jax.jit(jax.vmap(distances))(jnp.asarray(walls), jnp.asarray(levels.goal)))
    solvable = np.asarray(jax.jit(jax.vmap(is_solvable))(levels))
    for i in range(0, 300, 3):
        lengths = dijkstra(ways(walls[i]), False, indices=goal[0][i] * 11 + goal[1][i]).reshape(11, 11)
        np.testing.assert_array_equal(np.where(ours[i] == UNREACHABLE, np.inf, ours[i]), lengths)
        assert solvable[i] == np.isfinite(lengths[start[0][i], start[1][i]])
    share = solvable.mean()
    assert share == 1 if fill == 0 else share > 0.9 if fill == 0.3 else 0.3 < share < 0.9 or fill == 1


@pytest.mark.slow
@pytest.mark.light
def test_walls_are_equally_likely():
    walls = np.asarray(many(jax.random.split(KEY, 4000), jnp.float32(0.6)).wall_map)[:, 1:-1, 1:-1]
    share = walls.mean(0)
    assert np.all(np.abs(share - 23.5 / 81) < 5 * np.sqrt(0.25 / 4000))


def test_shortest_is_that_of_the_authors():
    level = Level(MAPS, jnp.asarray(GOLDEN["start"]), jnp.asarray(GOLDEN["goal"]), PARAMS.max_steps, PARAMS.robot)
    axes: Any = Level(*cast(Any, (0, 0, 0, None, None)))
    found = np.asarray(jax.vmap(shortest, (axes,))(level))
    np.testing.assert_array_equal(np.where(found == UNREACHABLE, -1, found), GOLDEN["shortest"])
    assert np.sum(GOLDEN["shortest"] < 0) >= 2 and GOLDEN["shortest"].max() >= 9


SOLVABLE, _ = jaxrl.make("JaxNav-v0", solvable=True)
solvable_levels = jax.jit(jax.vmap(SOLVABLE.generate, (0, None)))


def test_solvable():
    """The goal is equally likely on all that can be reached from a start that has a neighbour, and nowhere else."""
    levels = solvable_levels(jax.random.split(KEY, 400), PARAMS.replace(fill=jnp.float32(0.9)))
    assert np.asarray(jax.vmap(is_solvable)(levels)).all()
    SOLVABLE.as_levels().validate(levels)
    ranks = []
    for level in (jax.tree.map(lambda x, i=i: np.asarray(x[i]), levels) for i in range(400)):
        part = connected_components(ways(level.wall_map), False)[1].reshape(11, 11)
        (x, y), (u, v) = np.floor(level.start[:2]).astype(int), np.floor(level.goal).astype(int)
        reached = np.flatnonzero((part == part[y, x]).ravel())
        reached = reached[reached != y * 11 + x]
        if len(reached) > 4:
            ranks.append(np.searchsorted(reached, v * 11 + u) / (len(reached) - 1))
    assert len(ranks) > 100 and abs(np.mean(ranks) - 0.5) < 0.06


@pytest.mark.slow
@pytest.mark.light
def test_small_maps_have_a_way():
    """Of 3 x 3 cells within the rim five can be walls and the others apart: then another map is drawn."""
    env, params = jaxrl.make("JaxNav-v0", height=5, width=5, solvable=True)
    levels = jax.jit(jax.vmap(env.generate, (0, None)))(
        jax.random.split(KEY, 2000), params.replace(fill=jnp.float32(1))
    )
    assert np.asarray(jax.vmap(is_solvable)(levels)).all()


def test_solvable_levels_can_be_driven():
    """A driver that turns on the spot and goes from middle to middle of cells reaches the goal of every solvable level,
    without a touch; of the others `is_solvable` says that no way is wide enough."""
    count = 64
    levels = solvable_levels(jax.random.split(KEY, count), PARAMS)
    levels = levels.replace(max_steps=jnp.full(count, 4000))

    def drive(level):
        ways = distances(level.wall_map, level.goal)

        def step(carry, _):
            state, ended, success, (x, y) = carry
            near = jnp.hypot(state.x - x - 0.5, state.y - y - 0.5) < 0.1
            around = jnp.array([[1, 0], [0, 1], [-1, 0], [0, -1]]) + jnp.stack([x, y])
            best = around[jnp.argmin(ways[around[:, 1], around[:, 0]])]
            go_on = near & (ways[y, x] > 0)
            x, y = jnp.where(go_on, best[0], x), jnp.where(go_on, best[1], y)
            turn = jnp.arctan2(y + 0.5 - state.y, x + 0.5 - state.x) - state.theta
            turn = jnp.arctan2(jnp.sin(turn), jnp.cos(turn))
            action = jnp.stack([jnp.where(jnp.abs(turn) < 0.1, 0.3, 0.0), jnp.clip(2 * turn, -0.5, 0.5)])
            ts = LEVELS.step(KEY, state, action, level)
            success |= ~ended & ts.info["success"] & ~ts.info["collision"]
            state = jax.tree.map(lambda old, new: jnp.where(ended, old, new), state, ts.state)
            return (state, ended | ts.terminated, success, (x, y)), None

        state = LEVELS.initial(KEY, level)
        cell = tuple(jnp.floor(z).astype(jnp.int32) for z in (state.x, state.y))
        return jax.lax.scan(step, (state, jnp.bool_(False), jnp.bool_(False), cell), None, 2500)[0][2]

    assert np.asarray(jax.jit(jax.vmap(drive))(levels)).all()


def test_mutate():
    levels = solvable_levels(jax.random.split(KEY, 400), PARAMS)
    fullest = jnp.argmax(levels.wall_map.sum((1, 2)))
    level = jax.tree.map(lambda x: x[fullest], levels)
    found = jax.jit(jax.vmap(lambda key: LEVELS.mutate(key, level)))(jax.random.split(KEY, 600))
    LEVELS.validate(found)
    walls, before = np.asarray(found.wall_map), np.asarray(level.wall_map)
    flipped, moved = (walls != before).sum((1, 2)), np.any(np.asarray(found.goal) != np.asarray(level.goal), 1)
    assert flipped.max() == 1 and not np.any((flipped == 1) & moved)
    assert 150 < flipped.sum() < 250 and 120 < moved.sum() < 250
    assert np.any(walls & ~before) and np.any(~walls & before)  # walls are opened, too
    twenty = jax.jit(lambda key: LEVELS.mutate(key, level, 20))(KEY)
    assert np.sum(np.asarray(twenty.wall_map) != before) > 1


def test_text():
    env = jaxrl.make("JaxNav-v0", height=5, width=6)[0]
    level = env.level("######\n#...G#\n#.##.#\n#<...#\n######")
    np.testing.assert_allclose(level.start, [1.5, 1.5, -math.pi], atol=1e-6)
    np.testing.assert_array_equal(level.goal, [4.5, 3.5])
    assert np.asarray(level.wall_map)[2].tolist() == [True, False, True, True, False, True]
    assert shortest(level) == 5 and env.as_levels().describe(level)["walls"] == 2
    obs, state = env.as_levels().reset(KEY, level)
    assert obs.shape == (204,) and state.ranges[0] == pytest.approx(math.ceil(3.5 / SPACING) * SPACING, abs=1e-5)
    with pytest.raises(ValueError, match="one robot"):
        env.level("######\n#....#\n#....#\n#>...#\n######")
    with pytest.raises(ValueError, match="wall_map is bool"):
        env.level("#####\n#>.G#\n#####")


@pytest.mark.slow
@pytest.mark.light
def test_one_alone_is_one_of_many():
    levels = many(jax.random.split(KEY, 5), jnp.float32(0.6))
    axes: Any = Level(*cast(Any, (0, 0, 0, 0, 0)))
    actions = jax.vmap(LEVELS.action_space(LEVELS.default_params).sample)(jax.random.split(KEY, 5))
    together = jax.jit(jax.vmap(lambda level, a: LEVELS.step(KEY, LEVELS.initial(KEY, level), a, level), (axes, 0)))(
        levels, actions
    )
    one = jax.jit(lambda level, a: LEVELS.step(KEY, LEVELS.initial(KEY, level), a, level))
    for i in range(5):
        alone = one(jax.tree.map(lambda x, i=i: x[i], levels), actions[i])
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_allclose(a, b[i], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"half_width": 0.4}, "half_width=0.4"),
        ({"lidar_range": 7.0}, "lidar_cells=6"),
        ({"dt": 1.0}, "could pass a wall"),
        ({"min_v": 1.0}, "min_v=1.0 must be below"),
        ({"min_v": -2.0}, "min_v=-2.0 must be at least"),
        ({"goal_radius": 0.0}, "goal_radius"),
        ({"lidar_spacing": -0.1}, "lidar_spacing"),
    ],
)
def test_refused(change, line):
    robot = PARAMS.robot.replace(**{name: jnp.float32(x) for name, x in change.items()})
    with pytest.raises(ValueError, match=line):
        ENV.reset(KEY, PARAMS.replace(robot=robot))


def test_refused_levels():
    level = LEVELS.default_params
    with pytest.raises(ValueError, match="rim has no gap"):
        LEVELS.validate(level.replace(wall_map=level.wall_map.at[0, 3].set(False)))
    with pytest.raises(ValueError, match="start=.* in or at a wall"):
        LEVELS.validate(level.replace(start=jnp.array([1.1, 1.5, 0.0])))
    with pytest.raises(ValueError, match="goal=.* in or at a wall"):
        LEVELS.validate(level.replace(goal=jnp.array([0.5, 1.5])))
    with pytest.raises(ValueError, match="fill=1.5"):
        ENV.validate(PARAMS.replace(fill=jnp.float32(1.5)))
    with pytest.raises(ValueError, match="'grid'; it is"):
        jaxrl.make("JaxNav-v0", actions="grid")
    walls = np.ones((11, 11), bool)
    walls[1, 1], walls[9, 9] = False, False
    apart = level.replace(wall_map=jnp.asarray(walls), start=jnp.array([1.5, 1.5, 0.0]), goal=jnp.array([9.5, 9.5]))
    LEVELS.validate(apart)
    with pytest.raises(ValueError, match="no way leads to the goal in 1 of 1"):
        SOLVABLE.as_levels().validate(apart)


def test_params_are_typed():
    assert isinstance(PARAMS, Params) and isinstance(LEVELS.default_params, Level)
    assert float(jaxrl.make("JaxNav-v0", lidar_cells=4)[1].robot.lidar_range) == 4.0
