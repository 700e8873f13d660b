"""MazeEditor: levels built by hand, against a loop on the host, and what its designer sees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.envs.grid.maze.editor import NOWHERE, MazeEditor, level
from jaxrl.envs.grid.maze.kit import Level, from_ascii, to_ascii, validate

KEY = jax.random.key(0)
CASES = {
    "walls_first": MazeEditor(height=3, width=4, num_walls=5, noise_dim=2),
    "goal_first": MazeEditor(height=3, width=4, num_walls=5, noise_dim=2, goal_first=True),
}


def built(env, actions, key=KEY):
    """All states of an episode, (T + 1,), and its steps."""
    params = env.default_params
    obs, state = env.reset(key, params)

    def step(state, action):
        ts = env.step(KEY, state, action, params)
        return ts.state, ts

    _, ts = jax.lax.scan(step, state, jnp.asarray(actions, jnp.int32))
    return jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), (obs, state), (ts.obs, ts.state)), ts


BUILT = jax.jit(built, static_argnums=0)


def row(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


def test_walls_goal_and_agent_in_the_order_of_minimax():
    # A wall twice on one cell is one wall; the goal takes the place of one, the agent of another.
    (obs, states), ts = BUILT(CASES["walls_first"], [0, 5, 5, 6, 11, 6, 11])
    facing = ">v<^"[int(states.level.agent_dir[-1])]
    assert to_ascii(row(states.level, -1)) == f"#...\n.#G.\n...{facing}"
    made = level(row(states, -1))
    assert isinstance(made, Level) and made.max_steps == 250
    validate(made)
    np.testing.assert_array_equal(ts.terminated, [False] * 6 + [True])
    assert not ts.truncated.any() and not ts.reward.any()
    np.testing.assert_array_equal(states.time, np.arange(8))
    assert (states.level.goal_pos[:6] == NOWHERE).all() and (states.level.agent_pos[:7] == NOWHERE).all()


def test_walls_leave_goal_and_agent_alone_where_those_came_first():
    (_, states), _ = BUILT(CASES["goal_first"], [6, 11, 6, 11, 0, 5, 5])
    facing = ">v<^"[int(states.level.agent_dir[-1])]
    assert to_ascii(row(states.level, -1)) == f"#...\n.#G.\n...{facing}"
    assert (states.level.agent_pos[1] == NOWHERE).all() and states.level.agent_pos[2].tolist() == [3, 2]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_agent_on_the_goal_goes_to_an_empty_cell_each_equally_likely(name):
    actions = [0, 1, 2, 4, 5, 3, 3] if name == "walls_first" else [3, 3, 0, 1, 2, 4, 5]
    keys = jax.random.split(KEY, 3000)
    levels = jax.jit(jax.vmap(lambda key: built(CASES[name], actions, key)[0][1].level))(keys)
    last = jax.device_get(row(jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), levels), -1))
    validate(last)
    cells = last.agent_pos[:, 0] + 4 * last.agent_pos[:, 1]
    counts = np.bincount(cells, minlength=12)
    # With goal first, walls come later: the cells they are meant for were still empty when the agent was placed.
    empty = [6, 7, 8, 9, 10, 11] if name == "walls_first" else [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]
    np.testing.assert_array_equal(np.flatnonzero(counts), empty)
    np.testing.assert_allclose(counts[empty] / 3000, 1 / len(empty), atol=0.03)
    directions = np.bincount(last.agent_dir, minlength=4) / 3000
    np.testing.assert_allclose(directions, 0.25, atol=0.04)


def test_random_episodes_against_a_loop_on_the_host():
    rng = np.random.default_rng(0)
    for i in range(40):
        name = ("walls_first", "goal_first")[i % 2]
        env, actions = CASES[name], rng.integers(0, 12, 7)
        (_, states), _ = BUILT(env, actions, jax.random.key(i))
        order = ["wall"] * 5 + ["goal", "agent"] if name == "walls_first" else ["goal", "agent"] + ["wall"] * 5
        walls, goal, agent = set(), None, None
        for what, cell in zip(order, actions.tolist(), strict=True):
            if what == "wall":
                walls |= {cell} - {goal, agent}
            elif what == "goal":
                goal = cell
                walls -= {cell}
            else:
                x, y = states.level.agent_pos[-1].tolist()
                agent = cell if cell != goal else x + 4 * y
                assert agent != goal and (cell != goal or agent not in walls)
                walls -= {agent}
        made = jax.device_get(row(states.level, -1))
        assert set(np.flatnonzero(made.wall_map)) == walls
        assert made.goal_pos.tolist() == [goal % 4, goal // 4] and made.agent_pos.tolist() == [agent % 4, agent // 4]
        validate(made)


@pytest.mark.slow
@pytest.mark.light
def test_what_the_designer_sees():
    (obs, states), _ = BUILT(CASES["walls_first"], [0, 5, 5, 6, 10, 6, 11])
    # As Maze shows the same level from above, with the outer wall around it.
    task = jaxrl.make("Maze-v0", height=3, width=4, view="full")[0].as_levels()
    shown = task.reset(KEY, level(row(states, -1)))[0]["image"]
    image = np.asarray(obs["image"][-1])
    assert image.shape == (6, 5, 3)
    np.testing.assert_array_equal(image[1:-1, 1:-1], shown)
    edge = np.ones((6, 5), bool)
    edge[1:-1, 1:-1] = False
    assert (image[edge] == [2, 5, 0]).all()
    assert (np.asarray(obs["image"][0])[1:-1, 1:-1] == [1, 0, 0]).all()
    np.testing.assert_array_equal(obs["time"], np.arange(8))
    assert (obs["noise"] == obs["noise"][0]).all() and len(np.unique(obs["noise"][0])) == 2
    other = BUILT(CASES["walls_first"], [0] * 7, jax.random.key(1))[0][0]["noise"][0]
    assert (np.asarray(other) != obs["noise"][0]).all()  # the noise is no constant, and not zero


def test_sizes_are_those_of_minimax():
    env, params = jaxrl.make("MazeEditor-v0")
    assert env.num_steps == 62 and env.action_space(params).n == 169
    spaces = env.observation_space(params).spaces
    assert spaces["image"].shape == (15, 15, 3) and spaces["noise"].shape == (50,) and spaces["time"].n == 63
    task = jaxrl.make("Maze-v0")[0].as_levels()
    like = jax.tree.map(lambda x: (x.shape, x.dtype), task.default_params)
    state = jax.eval_shape(env.reset, KEY, params)[1]
    assert jax.tree.leaves(jax.tree.map(lambda x: (x.shape, x.dtype), level(state))) == jax.tree.leaves(like)


@pytest.mark.slow
def test_slots_that_end_together_restart_together():
    env = CASES["walls_first"]
    venv = jaxrl.vectorize(env, 3)
    params = env.default_params

    @jax.jit
    def run(key):
        obs, state = venv.reset(key, params)
        step = lambda state, key: (lambda ts: (ts.state, ts.terminated))(  # noqa: E731
            venv.step(key, state, jnp.array([0, 1, 2]), params)
        )
        return obs, state, jax.lax.scan(step, state, jax.random.split(key, 14))

    _, first, (last, terminated) = run(KEY)
    np.testing.assert_array_equal(terminated, np.repeat((np.arange(14) % 7 == 6)[:, None], 3, 1))
    assert (last.env.time == 0).all() and not last.env.level.wall_map.any()
    assert (np.asarray(last.env.noise) != first.env.noise).all()  # a new episode, new noise


def test_render_shows_what_is_there():
    (_, states), _ = BUILT(CASES["walls_first"], [0, 5, 5, 6, 10, 6, 11])
    env = CASES["walls_first"]
    facing = ">v<^"[int(states.level.agent_dir[-1])]
    from jaxrl.envs.grid.maze.kit import draw

    drawn = draw(from_ascii(f"#...\n.#G.\n..#{facing}"))
    np.testing.assert_array_equal(env.render(row(states, -1), env.default_params), drawn)
    assert (env.render(row(states, 0), env.default_params) != drawn).any()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"num_walls": 168}, "num_walls=168 must be from 0 to 167"),
        ({"num_walls": -1}, "num_walls=-1"),
        ({"height": 1, "width": 1, "num_walls": 0}, "1 x 1 cells; there must be two"),
        ({"noise_dim": -1}, "noise_dim=-1 must be from 0 to"),
    ],
)
def test_refuses_settings(settings, says):
    with pytest.raises(ValueError, match=says):
        jaxrl.make("MazeEditor-v0", **settings)


def test_refuses_params():
    env, params = jaxrl.make("MazeEditor-v0")
    with pytest.raises(ValueError, match="level_max_steps=0 must be at least 1"):
        env.reset(KEY, params.replace(level_max_steps=jnp.int32(0)))
