"""ProcMaze, OpenGrid, ButtonGrid, PanFlute: the reference's trajectories, laws of the mazes, exact values, chance."""

import functools
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.tabular.generalization import button_grid, pan_flute, proc_maze
from jaxrl.testing.golden import golden
from jaxrl.vector_env import vectorize

KEY = jax.random.key(0)
MOVES = [(0, 0), (-1, 0), (0, -1), (1, 0), (0, 1)]


@functools.cache
def data():
    return dict(golden("model_generalization"))


def column(name, prefix, dtype=jnp.int32):
    return jnp.asarray(data()[f"{prefix}_{name}"].astype(dtype))


def unpacked(rows, *shape):
    return jnp.asarray(np.unpackbits(rows, axis=-1, count=int(np.prod(shape))).reshape(-1, *shape).astype(bool))


def without_chance(env):
    params = env.default_params
    name = "teleport_probability" if hasattr(params, "teleport_probability") else "spontaneous_probability"
    return params.replace(**{name: jnp.float32(0)})


@functools.partial(jax.jit, static_argnums=0)
def step_rows(env, states, actions, params):
    observe = jax.vmap(env.observe, (None, 0, None))
    ts = jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(KEY, len(actions)), states, actions, params)
    return observe(KEY, states, params), ts


# ---- agreement with the authors' code


@pytest.mark.parametrize("n", [1, 2, 5])
def test_pan_flute_is_the_reference(n):
    env = pan_flute.PanFlute(n)
    prefix = f"pan_flute_{n}"
    cells, action = column("cells", prefix, bool), column("action", prefix)
    states = pan_flute.State(jnp.zeros(len(action), jnp.int32), cells)
    obs, ts = step_rows(env, states, action, without_chance(env))
    np.testing.assert_array_equal(obs, cells)
    np.testing.assert_array_equal(ts.reward, data()[f"{prefix}_reward"])
    assert data()[f"{prefix}_reward"].sum() > 5
    next_cells, last = data()[f"{prefix}_next_cells"].astype(bool), pan_flute.layout(n)[2]
    np.testing.assert_array_equal(ts.state.cells[:300], next_cells[:300])
    # Then with chance: either the same, or with all last cells on.
    without, spontaneous = np.asarray(ts.state.cells[300:]), next_cells[300:]
    same, filled = (without == spontaneous).all(-1), ((without | last) == spontaneous).all(-1)
    assert (same | filled).all() and filled.sum() > 300 / n**2 * 0.3
    assert float(env.default_params.spontaneous_probability) == pytest.approx(float(data()[f"{prefix}_probability"]))


@pytest.mark.slow
@pytest.mark.parametrize("g", [3, 10])
def test_button_grid_is_the_reference(g):
    env = button_grid.ButtonGrid(g)
    prefix = f"button_grid_{g}"
    rows = [column(name, prefix) for name in ("position", "buttons")] + [column("on", prefix, bool)]
    states = button_grid.State(jnp.zeros(len(rows[0]), jnp.int32), *rows)
    obs, ts = step_rows(env, states, column("action", prefix), without_chance(env))
    np.testing.assert_array_equal(obs, unpacked(data()[f"{prefix}_obs"], 3 * g * g))
    np.testing.assert_array_equal(ts.reward, data()[f"{prefix}_reward"])
    going = data()[f"{prefix}_reward"] == 0
    assert g > 3 or (~going).sum() > 10
    np.testing.assert_array_equal(ts.state.position[going], data()[f"{prefix}_next_position"][going])
    np.testing.assert_array_equal(ts.state.on[going], data()[f"{prefix}_next_on"][going])
    np.testing.assert_array_equal(ts.state.buttons[going], states.buttons[going])
    assert not ts.state.on[~going].any() and not ts.terminated.any()
    assert float(env.default_params.spontaneous_probability) == pytest.approx(float(data()[f"{prefix}_probability"]))


@pytest.mark.parametrize("g", [3, 6])
def test_maze_is_the_reference(g):
    env = proc_maze.ProcMaze(g)
    prefix = f"maze_{g}"
    walls = unpacked(data()[f"{prefix}_walls"], g, g)
    position, goal = column("position", prefix), column("goal", prefix)
    states = proc_maze.State(jnp.zeros(len(goal), jnp.int32), walls, goal, position)
    obs, ts = step_rows(env, states, column("action", prefix), without_chance(env))
    np.testing.assert_array_equal(obs, unpacked(data()[f"{prefix}_obs"], 4 * g * g))
    np.testing.assert_array_equal(ts.state.position, data()[f"{prefix}_next_position"])
    np.testing.assert_array_equal(ts.terminated, data()[f"{prefix}_terminated"])
    np.testing.assert_array_equal(ts.reward, -1)
    assert data()[f"{prefix}_terminated"].sum() > {3: 10, 6: 1}[g]
    assert float(env.default_params.teleport_probability) == pytest.approx(float(data()[f"{prefix}_probability"]))


def test_open_grid_is_the_reference():
    env = proc_maze.OpenGrid(4)
    position = column("position", "open_grid_4")
    n = len(position)
    states = proc_maze.State(jnp.zeros(n, jnp.int32), jnp.zeros((n, 4, 4), bool), jnp.full(n, 15), position)
    obs, ts = step_rows(env, states, column("action", "open_grid_4"), without_chance(env))
    np.testing.assert_array_equal(obs, unpacked(data()["open_grid_4_obs"], 16))
    np.testing.assert_array_equal(ts.state.position, data()["open_grid_4_next_position"])
    np.testing.assert_array_equal(ts.terminated, data()["open_grid_4_terminated"])
    assert float(env.default_params.teleport_probability) == pytest.approx(float(data()["open_grid_4_probability"]))


def two_samples(a, b):
    """Chi-square of two samples of counts per kind, and its degrees of freedom."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    expected_a = (a + b) * a.sum() / (a.sum() + b.sum())
    return np.sum((a - expected_a) ** 2 / expected_a) * (a.sum() + b.sum()) / b.sum(), len(a) - 1


@functools.cache
def drawn(g, count):
    params = proc_maze.ProcMaze(g).default_params
    keys = jax.random.split(jax.random.key(3), count)
    return jax.jit(jax.vmap(lambda key: proc_maze.generate(key, params, g)))(keys)


def test_mazes_come_as_often_as_the_reference_draws_them():
    """All 3 x 3 mazes by name; of larger ones the number of open cells and where they are."""
    ours = np.packbits(np.asarray(drawn(3, 20_000).walls).reshape(20_000, -1), -1)
    kinds, which = np.unique(np.concatenate([ours, data()["maze_3_drawn"]]), axis=0, return_inverse=True)
    counts = [np.bincount(part, minlength=len(kinds)) for part in np.split(which.ravel(), 2)]
    statistic, freedom = two_samples(*counts)
    assert freedom > 10 and statistic < freedom + 4 * np.sqrt(2 * freedom), (statistic, freedom)

    theirs = np.asarray(unpacked(data()["maze_6_drawn"], 6, 6))
    mine = np.asarray(drawn(6, 2_000).walls)
    sizes = [np.bincount((~w).sum((1, 2)), minlength=37) for w in (mine, theirs)]
    common = sizes[0] + sizes[1] > 20
    statistic, freedom = two_samples(sizes[0][common], sizes[1][common])
    assert statistic < freedom + 4 * np.sqrt(2 * freedom), (statistic, freedom)
    # 36 cells, standard error 0.016.
    np.testing.assert_allclose(mine.mean(0), theirs.mean(0), atol=0.06)


# ---- laws of the mazes


def ways(walls, cell):
    """Independent breadth-first search: distances from `cell` by dict."""
    found, queue = {tuple(cell): 0}, deque([tuple(cell)])
    while queue:
        at = queue.popleft()
        for move in MOVES[1:]:
            to = at[0] + move[0], at[1] + move[1]
            if all(0 <= x < len(walls) for x in to) and not walls[to] and to not in found:
                found[to] = found[at] + 1
                queue.append(to)
    return found


@pytest.mark.parametrize("g", [2, 3, 6, 10])
def test_open_cells_are_a_tree_that_cannot_grow(g):
    levels = drawn(g, 20_000 if g == 3 else 2_000)
    open_ = ~np.asarray(levels.walls)[:300]
    sides = (open_[:, 1:] & open_[:, :-1]).sum((1, 2)) + (open_[:, :, 1:] & open_[:, :, :-1]).sum((1, 2))
    np.testing.assert_array_equal(sides, open_.sum((1, 2)) - 1)  # as many edges as a tree has
    padded = np.pad(open_, ((0, 0), (1, 1), (1, 1))).astype(int)
    around = padded[:, 2:, 1:-1] + padded[:, :-2, 1:-1] + padded[:, 1:-1, 2:] + padded[:, 1:-1, :-2]
    assert not np.any(~open_ & (around == 1))
    for i in range(30):
        start, goal = divmod(int(levels.start[i]), g), divmod(int(levels.goal[i]), g)
        reached = ways(~open_[i], goal)
        assert len(reached) == open_[i].sum() and start in reached  # connected, hence a tree


@pytest.mark.slow
def test_optimal_value_is_that_of_value_iteration():
    """Against a NumPy search without teleports, and value iteration over all cells with them."""
    levels = jax.tree.map(lambda x: x[:40], drawn(6, 2_000))
    plain = jax.vmap(proc_maze.optimal_value)(levels.replace(teleport_probability=jnp.zeros(40)))
    p, discount = 0.05, 0.9
    levels = levels.replace(teleport_probability=jnp.full(40, p))
    with_teleports = jax.vmap(proc_maze.optimal_value, (0, None))(levels, discount)
    for i in range(40):
        walls, goal = np.asarray(levels.walls[i]), divmod(int(levels.goal[i]), 6)
        start, found = divmod(int(levels.start[i]), 6), ways(walls, goal)
        assert float(plain[i]) == -1 - found[start]
        value = {cell: 0.0 for cell in found}
        for _ in range(150):
            value = {
                cell: -1.0
                if cell == goal
                else -1
                + discount * p * value[goal]
                + discount * (1 - p) * max(value.get((cell[0] + m[0], cell[1] + m[1]), -np.inf) for m in MOVES)
                for cell in found
            }
        assert float(with_teleports[i]) == pytest.approx(value[start], rel=1e-5)


def test_mutated_levels_are_playable_neighbours():
    levels = jax.tree.map(lambda x: x[:500], drawn(6, 2_000))
    children = jax.jit(jax.vmap(proc_maze.mutate))(jax.random.split(KEY, 500), levels)
    proc_maze.validate(children)
    changed = {
        "walls": np.asarray(children.walls ^ levels.walls).sum((1, 2)),
        "start": np.asarray(children.start != levels.start).astype(int),
        "goal": np.asarray(children.goal != levels.goal).astype(int),
    }
    total = sum(changed.values())
    assert total.max() == 1 and all((count > 0).mean() > 0.1 for count in changed.values())
    assert (children.walls & ~levels.walls).any() and (~children.walls & levels.walls).any()


@pytest.mark.slow
def test_levels_are_params():
    env = proc_maze.ProcMaze(4)
    levels = env.as_levels()
    level = proc_maze.generate(KEY, env.default_params, 4)
    _, state = levels.reset(KEY, level)
    np.testing.assert_array_equal(state.walls, level.walls)
    assert int(state.position) == int(level.start) and int(state.goal) == int(level.goal)
    venv = vectorize(levels, 3, level_fn=functools.partial(proc_maze.generate, size=4))
    _, vstate = venv.reset(KEY, level)
    assert len(np.unique(np.asarray(vstate.env.walls), axis=0)) > 1


@pytest.mark.slow
def test_bad_levels_and_settings():
    level = proc_maze.generate(KEY, proc_maze.ProcMaze(4).default_params, 4)
    walled = level.replace(walls=jnp.ones((4, 4), bool).at[0, 0].set(False).at[3, 3].set(False))
    apart = walled.replace(start=jnp.int32(0), goal=jnp.int32(15))
    assert float(proc_maze.optimal_value(apart)) == -np.inf and not proc_maze.solvable(apart)
    with pytest.raises(ValueError, match="no way from the start"):
        proc_maze.validate(apart)
    with pytest.raises(ValueError, match="goal=1 is a wall"):
        proc_maze.validate(apart.replace(goal=jnp.int32(1)))
    with pytest.raises(ValueError, match="start=16 must be a cell of 0 .. 15"):
        proc_maze.validate(apart.replace(start=jnp.int32(16)))
    with pytest.raises(ValueError, match="size=1 must be from 2"):
        proc_maze.ProcMaze(1)
    with pytest.raises(ValueError, match="num_buttons=5 must be from 1"):
        button_grid.ButtonGrid(2, 5)
    for env in (proc_maze.OpenGrid(3), button_grid.ButtonGrid(3), pan_flute.PanFlute(2)):
        with pytest.raises(ValueError, match="probability=1.5 must be from 0 to 1"):
            env.reset(KEY, jax.tree.map(lambda x: x * 0 + 1.5 if x.dtype == jnp.float32 else x, env.default_params))


# ---- chance and timing


def test_chance_has_its_frequency():
    """40,000 steps of each with probability 0.3: six standard errors are 0.014. Nothing else changes the state then."""
    n, p = 40_000, jnp.float32(0.3)
    keys, stay = jax.random.split(KEY, n), jnp.int32(0)

    def frequency(env, state, happened):
        name = "spontaneous_probability" if hasattr(env.default_params, "spontaneous_probability") else None
        params = env.default_params.replace(**{name or "teleport_probability": p})
        step = jax.jit(jax.vmap(lambda key: happened(env.step(key, state, stay, params).state)))
        return float(jnp.mean(step(keys)))

    walls = jnp.zeros((4, 4), bool)
    maze = proc_maze.State(jnp.int32(0), walls, jnp.int32(9), jnp.int32(2))
    assert abs(frequency(proc_maze.ProcMaze(4), maze, lambda s: s.position == 9) - 0.3) < 0.014
    buttons = button_grid.State(jnp.int32(0), jnp.int32(5), jnp.asarray([5, 1, 2]), jnp.zeros(3, bool))
    assert abs(frequency(button_grid.ButtonGrid(4), buttons, lambda s: s.on.all()) - 0.3) < 0.014
    pipes = pan_flute.State(jnp.int32(0), jnp.zeros(6, bool))
    assert abs(frequency(pan_flute.PanFlute(3), pipes, lambda s: pan_flute.together(s.cells, 3)) - 0.3) < 0.014


def test_button_grid_pays_a_step_late_and_starts_anew():
    env = button_grid.ButtonGrid(4, 2)
    params = without_chance(env)
    state = button_grid.State(jnp.int32(0), jnp.int32(0), jnp.asarray([1, 4]), jnp.asarray([True, False]))
    step = jax.jit(env.step)
    for action, on, reward in [(0, (1, 0), 0), (1, (1, 0), 0), (3, (1, 1), 0), (4, (0, 0), 1), (0, (0, 0), 0)]:
        ts = step(KEY, state, jnp.int32(action), params)
        assert tuple(np.asarray(ts.state.on, int)) == on and float(ts.reward) == reward
        state = ts.state
    done = state.replace(on=jnp.ones(2, bool))
    starts = jax.jit(jax.vmap(lambda key: env.step(key, done, jnp.int32(0), params).state))
    after = starts(jax.random.split(KEY, 30_000))
    counts = np.bincount(np.asarray(after.position), minlength=16)
    pairs = np.sort(np.asarray(after.buttons), 1)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    pair_counts = np.unique(pairs, axis=0, return_counts=True)[1]
    assert len(pair_counts) == 120
    for seen in (counts, pair_counts):
        freedom = len(seen) - 1
        statistic = np.sum((seen - seen.mean()) ** 2 / seen.mean())
        assert abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)


@pytest.mark.slow
def test_pan_flute_best_play():
    """Without chance: the longest pipe first, and N notes for each chord. Table and simulator agree."""
    n = 3
    env = pan_flute.PanFlute(n)
    params = without_chance(env)
    _, state = env.reset(KEY, params)
    rewards = []
    step = jax.jit(env.step)
    for t in range(10):
        ts = step(KEY, state, jnp.int32(n - 1 - t % n), params)
        rewards.append(float(ts.reward))
        state = ts.state
    assert rewards == [0, 0, 0, 1, 0, 0, 1, 0, 0, 1]

    table = jax.jit(pan_flute.tabulate, static_argnums=1)(params, n)
    discount, value = 0.9, np.zeros(64)
    for _ in range(300):
        value = np.max(np.asarray(table.expected_reward() + discount * table.expect(jnp.asarray(value))), -1)
    assert value[0] == pytest.approx(discount**3 / (1 - discount**3), rel=1e-4)

    chance = params.replace(spontaneous_probability=jnp.float32(0.25))
    table = pan_flute.tabulate(chance, n)
    cells = (np.arange(64)[:, None] >> np.arange(6)) % 2 == 1
    states = pan_flute.State(jnp.zeros(64, jnp.int32), jnp.asarray(cells))
    for action in range(n):
        _, ts = step_rows(env, states, jnp.full(64, action), chance)
        index = np.asarray(ts.state.cells) @ (1 << np.arange(6))
        assert np.all((np.asarray(table.next_state)[:, action] == index[:, None]).any(-1))
        np.testing.assert_array_equal(ts.reward, table.reward[:, action, 0])
    with pytest.raises(ValueError, match="at most 5 pipes"):
        pan_flute.tabulate(params, 6)


@pytest.mark.slow
@pytest.mark.light
def test_pictures():
    for env in (proc_maze.ProcMaze(4), button_grid.ButtonGrid(4)):
        picture = env.render(env.reset(KEY, env.default_params)[1], env.default_params)
        assert picture.shape == (400, 400, 3) and len(np.unique(picture.reshape(-1, 3), axis=0)) > 3
