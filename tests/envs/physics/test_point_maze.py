"""The point mazes against stored steps and episodes of OGBench's, and their task by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.envs.physics import point_maze
from jaxrl.envs.physics.maze_walker import collector, distances, in_corridor
from jaxrl.envs.physics.point_maze import AGAIN, STAY, place
from jaxrl.testing.golden import golden

GOLDEN = golden("point_maze")
KEY = jax.random.key(0)
ENV, PARAMS = jaxrl.make("PointMazeMedium-v0")
STEP = jax.jit(ENV.step)  # one program for all tests of the medium maze
TELEPORT, TELEPORT_PARAMS = jaxrl.make("PointMazeTeleport-v0")


def at(x, y, goal=(0.0, 0.0)):
    return point_maze.State(jnp.int32(3), *(jnp.float32(z) for z in (x, y, *goal)))


def test_mazes():
    """Walls, tasks, portals and exits."""
    for maze in point_maze.MAPS:
        params = jaxrl.make(f"PointMaze{maze.title()}-v0")[1]
        np.testing.assert_array_equal(params.walls, GOLDEN[f"{maze}/walls"])
        np.testing.assert_allclose(place(np.asarray(params.tasks)), GOLDEN[f"{maze}/tasks"])
        assert len(params.portals) == 2 * (maze == "teleport")
    np.testing.assert_allclose(params.portals, GOLDEN["teleport/portals"])
    np.testing.assert_allclose(params.exits, GOLDEN["teleport/exits"])
    assert GOLDEN["teleport/near"] == point_maze.NEAR_PORTAL


def test_steps():
    """1,600 steps, a quarter of them at walls and corners, equal OGBench's to 1e-12."""
    with jax.enable_x64(True):
        names = ("xy", "action", "goal_xy", "next_xy", "success", "contacts")
        stored = {n: np.concatenate([GOLDEN[f"{maze}/{n}"] for maze in point_maze.MAPS]) for n in names}
        size = np.max([GOLDEN[f"{maze}/walls"].shape for maze in point_maze.MAPS], 0)
        # All mazes in one program: smaller ones are filled up with walls.
        walls = [GOLDEN[f"{maze}/walls"] for maze in point_maze.MAPS]
        walls = [np.pad(w, [(0, size[i] - w.shape[i]) for i in (0, 1)], constant_values=True) for w in walls]
        walls = jnp.asarray(np.repeat(walls, len(stored["xy"]) // len(walls), 0))
        params = jax.tree.map(lambda x: x.astype(float) if x.dtype == jnp.float32 else x, ENV.default_params)

        def step(xy, goal, action, walls):
            state = point_maze.State(jnp.int32(0), xy[0], xy[1], goal[0], goal[1])
            return ENV.step(KEY, state, action, params.replace(walls=walls))

        inputs = (jnp.asarray(stored[n]) for n in ("xy", "goal_xy", "action"))
        found = jax.device_get(jax.jit(jax.vmap(step))(*inputs, walls))
    np.testing.assert_allclose(found.obs["position"], stored["next_xy"], atol=1e-12)
    np.testing.assert_array_equal(found.info["success"], stored["success"])
    assert np.sum(stored["contacts"] > 1) > 350 and np.sum(stored["contacts"] > 2) >= 15  # the floor is one
    assert 0 < stored["success"].mean() < 1


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("recipe", ["navigate", "stitch"])
def test_collected(recipe):
    """Episodes recorded by the recipe: goals reached, speed and places as of OGBench's, within sampling."""
    params, act = collector(ENV, recipe)
    ENV.validate(params)
    count, length = {"navigate": 100, "stitch": 500}[recipe], int(params.max_steps)

    def episode(key):
        reset_key, key = jax.random.split(key)
        state = ENV.reset(reset_key, params)[1]

        def step(state, key):
            act_key, key = jax.random.split(key)
            ts = ENV.step(key, state, act(act_key, state), params)
            moved = jnp.hypot(ts.state.x - state.x, ts.state.y - state.y)
            return ts.state, (ts.reward, moved, jnp.stack(point_maze.cell_of(state.x, state.y)))

        return jax.lax.scan(step, state, jax.random.split(key, length))[1]

    reward, moved, cells = jax.jit(jax.vmap(episode))(jax.random.split(KEY, count))
    for ours, name in ((np.asarray(reward.sum(1)), "successes"), (np.asarray(moved.mean(1)), "moved")):
        theirs = GOLDEN[f"medium/{recipe}/{name}"]
        error = np.hypot(ours.std() / np.sqrt(len(ours)), theirs.std() / np.sqrt(len(theirs)))
        assert abs(ours.mean() - theirs.mean()) < 3 * error, (name, ours.mean(), theirs.mean(), error)
    share = np.zeros(PARAMS.walls.shape)
    np.add.at(share, tuple(np.asarray(cells).reshape(-1, 2).T), 1 / (count * length))
    assert np.abs(share - GOLDEN[f"medium/{recipe}/cells"]).sum() < 0.2  # two halves of theirs differ by 0.1


def test_ends():
    """At the goal an episode ends, stays, or goes on to another goal."""
    near, still = at(0.1, 0.0), jnp.zeros(2)
    ts = STEP(KEY, near, still, PARAMS)
    assert ts.terminated and ts.reward == 1 and ts.info["success"]
    assert not STEP(KEY, at(1.2, 0.0), still, PARAMS).terminated
    ts = STEP(KEY, near, still, PARAMS.replace(at_goal=jnp.int32(STAY)))
    assert not ts.terminated and ts.reward == 1 and ts.state.goal_x == 0
    ts = STEP(KEY, near, still, PARAMS.replace(at_goal=jnp.int32(AGAIN)))
    assert not ts.terminated and ts.reward == 1 and ts.state.goal_x > 5


def test_tasks_are_drawn_by_weight():
    params = PARAMS.replace(weights=jnp.array([0.0, 1.0, 0.0, 3.0, 0.0]))
    state = jax.vmap(ENV.initial, (0, None))(jax.random.split(KEY, 500), params)
    starts = np.stack([state.x, state.y], 1)
    middles = place(np.array([(6, 1), (6, 5)]))
    off = np.abs(starts[:, None] - middles).max(2)
    assert (off.min(1) <= 1).all() and off.min(1).max() > 0.9
    assert abs(np.mean(off[:, 1] <= 1) - 0.75) < 0.07


def test_portals():
    """A ball that a step brings to a portal is at an exit when the next one begins, each as often."""
    step = jax.jit(jax.vmap(partial(TELEPORT.step, action=jnp.zeros(2), params=TELEPORT_PARAMS), (0, None)))
    portal = np.asarray(TELEPORT_PARAMS.portals[0])
    keys = jax.random.split(KEY, 300)
    x = np.asarray(step(keys, at(*(portal + (1.0, 1.0)))).state.x)
    exits = np.asarray(TELEPORT_PARAMS.exits)[:, 0]
    assert set(x.tolist()) == set(exits.tolist())
    assert min(np.mean(x == e) for e in exits) > 0.25
    assert np.all(np.asarray(step(keys, at(*(portal + (1.2, 1.2)))).state.x) == portal[0] + np.float32(1.2))
    new = at(*portal).replace(time=jnp.int32(0))  # where an episode begins, no step brought the ball
    assert np.all(np.asarray(step(keys, new).state.x) == portal[0])


def test_ways():
    walls = np.array([[block == "#" for block in row] for row in ("#####", "#   #", "# # #", "#  ##", "#####")])
    steps = distances(walls, (1, 1))
    np.testing.assert_array_equal(steps[~walls], [0, 1, 2, 1, 3, 2, 3])
    assert np.isinf(steps[walls]).all()
    assert [in_corridor(walls, c) for c in ((1, 2), (2, 1), (1, 1), (2, 3))] == [True, True, False, False]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"step": 0.3}, "step=0.3"),
        ({"noise": 2.0}, "noise=2.0"),
        ({"goal_radius": 0.0}, "goal_radius"),
        ({"weights": np.zeros(5)}, "not all 0"),
        ({"at_goal": 3}, "at_goal=3"),
        ({"walls": np.zeros((8, 8), bool)}, "rim"),
        ({"tasks": np.array([[(1, 1), (1, 3)]] * 5)}, "in a wall"),
        ({"tasks": np.array([[(1, 1), (9, 3)]] * 5)}, "in a wall"),
        ({"tasks": np.array([[(1, 1), (1, 2)]])}, "a weight of each"),
        ({"tasks": np.ones((5, 2, 2))}, "float64"),
        ({"portals": np.zeros((1, 2))}, "no exits"),
        ({"walls": np.stack([PARAMS.walls, np.ones((8, 8), bool)])}, "in a wall"),
    ],
)
def test_bad_params(change, line):
    with pytest.raises(ValueError, match=line):
        ENV.validate(PARAMS.replace(**change))


@pytest.mark.slow
@pytest.mark.light
def test_slopes():
    """Of a wall's push and of a free ball, also where its middle is on a cell's border."""
    for x, walls, slope in ((0.0, PARAMS.walls, 1.0), (2.0, jnp.zeros((8, 8), bool), 1.0)):
        found = jax.grad(lambda x, walls=walls: point_maze.settled(x, jnp.float32(0), walls)[0])(jnp.float32(x))
        np.testing.assert_allclose(found, slope, rtol=1e-6)


def test_bad_names():
    with pytest.raises(ValueError, match="huge"):
        jaxrl.make("PointMazeMedium-v0", maze="huge")
    with pytest.raises(ValueError, match="explore"):
        collector(ENV, "explore")
    with pytest.raises(ValueError, match="one maze"):
        collector(ENV, "stitch", PARAMS.replace(walls=jnp.stack([PARAMS.walls] * 2)))
