"""Maze: parity with jaxued, the level kit against brute force, hold-out levels and families."""

import functools
import sys
from collections import Counter, deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.environment import strongly_typed
from jaxrl.envs.grid.maze.kit import (
    TILES,
    UNREACHABLE,
    Level,
    distances,
    draw,
    draw_levels,
    from_ascii,
    from_picture,
    is_solvable,
    optimal_value,
    shortest,
    to_ascii,
    to_tiles,
    validate,
)
from jaxrl.envs.grid.maze.levels import (
    HOLDOUTS,
    Corridor,
    Crossing,
    FourRooms,
    Holdout,
    PerfectMaze,
    carved,
    holdout,
    holdouts,
)
from jaxrl.envs.grid.maze.maze import Maze, Params, generate, mutate
from jaxrl.testing.golden import golden

KEY = jax.random.key(0)
DATA = golden("maze")
CASES = {
    "default": Maze(),
    "holdouts": Maze(),
    "oblong": Maze(height=7, width=10, view_size=3),
    "wide_view": Maze(height=5, width=4, view_size=7),
    "full_view": Maze(height=6, width=9, view="full"),
}
SMALL = """
    >.#.
    .#..
    ...G
"""


def rows_of(levels):
    """The levels of a batch, on the host."""
    levels = jax.device_get(levels)
    return [jax.tree.map(lambda x, i=i: x[i], levels) for i in range(len(levels.agent_dir))]


@functools.cache
def drawn(height, width, walls, count, solvable=False, sample=False):
    params = strongly_typed(Params(walls=walls, sample_n_walls=sample))
    keys = jax.random.split(jax.random.key(walls), count)
    return jax.jit(jax.vmap(lambda key: generate(key, params, height, width, solvable)))(keys)


# ---- parity


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("case", CASES)
def test_steps_observations_and_distances_are_those_of_jaxued(case):
    env = CASES[case].as_levels()
    data = {name.partition("/")[2]: x for name, x in DATA.items() if name.startswith(f"{case}/")}
    names = ("agent_pos", "agent_dir", "goal_pos", "max_steps")
    levels = Level(jnp.asarray(data["wall_map"]), *(jnp.asarray(data[name], jnp.int32) for name in names))
    env.validate(levels)

    @jax.jit
    @jax.vmap
    def play(level, actions):
        first_obs, first = env.reset(KEY, level)

        def step(state, action):
            ts = env.step(KEY, state, action, level)
            done = ts.terminated | ts.truncated
            state = jax.tree.map(lambda a, b: jnp.where(done, a, b), first, ts.state)
            return state, (ts.obs, ts.reward, done, ts.terminated)

        obs, *rest = jax.lax.scan(step, first, actions)[1]
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first_obs, obs), *rest

    obs, reward, done, terminated = play(levels, jnp.asarray(data["action"]))
    image = data["image"].swapaxes(2, 3) if case == "full_view" else data["image"]  # there, jaxued's is [y, x]
    np.testing.assert_array_equal(obs["image"], image)
    np.testing.assert_array_equal(obs["direction"], data["direction"])
    np.testing.assert_allclose(reward, data["reward"], rtol=1e-6)
    np.testing.assert_array_equal(done, data["done"])
    np.testing.assert_array_equal(terminated, data["reward"] > 0)
    assert data["reward"].max() > 0.5, "the data hold successes"
    steps = np.where(data["min_steps"] == 65535, UNREACHABLE, data["min_steps"].astype(np.int64))
    np.testing.assert_array_equal(jax.jit(jax.vmap(distances))(levels), steps)


def test_time_runs_out():
    env = Maze(height=3, width=4).as_levels()
    level = from_ascii(SMALL, max_steps=3)
    _, state = env.reset(KEY, level)
    for t, action in enumerate((0, 6, 4)):
        _, state, reward, terminated, truncated, _ = env.step(KEY, state, action, level)
        assert (float(reward), bool(terminated), bool(truncated)) == (0.0, False, t == 2)


# ---- the search, against brute force


def brute_force_steps(level):
    """Fewest actions into the goal by a forward breadth-first search; None where there are none."""
    walls, goal = np.asarray(level.wall_map), tuple(int(n) for n in level.goal_pos)
    start = (int(level.agent_pos[0]), int(level.agent_pos[1]), int(level.agent_dir))
    queue, seen = deque([(start, 0)]), {start}
    while queue:
        (x, y, direction), steps = queue.popleft()
        dx, dy = ((1, 0), (0, 1), (-1, 0), (0, -1))[direction]
        u, v = x + dx, y + dy
        if (u, v) == goal:
            return steps + 1
        inside = 0 <= u < walls.shape[1] and 0 <= v < walls.shape[0]
        ahead = (u, v, direction) if inside and not walls[v, u] else (x, y, direction)
        for new in (ahead, (x, y, (direction + 1) % 4), (x, y, (direction - 1) % 4)):
            if new not in seen:
                seen.add(new)
                queue.append((new, steps + 1))
    return None


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize(("height", "width", "walls", "count"), [(5, 6, 14, 300), (9, 40, 150, 30), (1, 7, 2, 60)])
def test_shortest_ways_and_solvability_are_those_of_a_brute_force_search(height, width, walls, count):
    levels = drawn(height, width, walls, count)
    steps, solvable = jax.jit(jax.vmap(lambda level: (shortest(level), is_solvable(level))))(levels)
    expected = [brute_force_steps(level) for level in rows_of(levels)]
    assert None in expected and len(set(expected)) > 5, "some cannot be solved, and ways differ"
    np.testing.assert_array_equal(steps, [UNREACHABLE if n is None else n for n in expected])
    np.testing.assert_array_equal(solvable, [n is not None for n in expected])
    table = np.asarray(jax.jit(jax.vmap(distances))(levels))
    rows = (np.arange(count), levels.agent_dir, levels.agent_pos[:, 1], levels.agent_pos[:, 0])
    np.testing.assert_array_equal(table[rows], steps)


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_optimal_value_is_that_of_backward_induction(discount):
    """Over all states and clocks, with the environment's own rewards; some time limits are too short."""
    levels = drawn(5, 6, 14, 300).replace(max_steps=jnp.arange(300, dtype=jnp.int32) % 12 + 3)
    values = jax.jit(jax.vmap(lambda level: optimal_value(level, discount)))(levels)
    expected = []
    for level in rows_of(levels)[:60]:
        walls = np.pad(level.wall_map, 1, constant_values=True)
        value = np.zeros((4, *walls.shape))
        for time in reversed(range(int(level.max_steps))):
            turned = np.maximum(np.roll(value, 1, 0), np.roll(value, -1, 0))
            best = discount * np.maximum(turned, value)
            for direction, (dx, dy) in enumerate(((1, 0), (0, 1), (-1, 0), (0, -1))):
                x, y = level.goal_pos + 1
                ahead = np.roll(discount * value[direction], (-dy, -dx), (0, 1))
                best[direction] = np.maximum(best[direction], np.where(walls, 0, ahead))
                best[direction, y - dy, x - dx] = 1 - 0.9 * (time + 1) / level.max_steps
            value = np.where(walls, 0, best)
        expected.append(value[level.agent_dir, level.agent_pos[1] + 1, level.agent_pos[0] + 1])
    np.testing.assert_allclose(values[:60], expected, atol=1e-6)
    assert 0.0 in expected and max(expected) > 0.5


def test_optimal_value_is_what_the_best_play_earns():
    level = from_ascii(SMALL, max_steps=50)
    assert int(shortest(level)) == 7  # right, forward, forward, left, forward, forward, forward
    env, total = Maze(height=3, width=4).as_levels(), 0.0
    _, state = env.reset(KEY, level)
    for t, action in enumerate((1, 2, 2, 0, 2, 2, 2)):
        _, state, reward, terminated, _, _ = env.step(KEY, state, action, level)
        total += 0.99**t * float(reward)
    assert bool(terminated) and (int(state.x), int(state.y)) == (2, 2)  # it stays before the goal
    np.testing.assert_allclose(total, optimal_value(level, 0.99), rtol=1e-6)
    assert total > 0.8


# ---- drawing levels


@pytest.mark.slow
@pytest.mark.parametrize("walls", [0, 25, 60])
def test_walls_are_drawn_with_replacement_and_all_else_from_what_is_free(walls):
    levels = drawn(13, 13, walls, 2000)
    validate(levels)
    number = np.asarray(levels.wall_map.sum((1, 2)))
    assert number.max() <= walls
    chance = 1 - (1 - 1 / 169) ** walls
    np.testing.assert_allclose(number.mean(), 169 * chance, atol=0.2)
    np.testing.assert_allclose(levels.wall_map.mean(0), chance, atol=6 * np.sqrt(chance / 2000))
    for at in (levels.agent_pos, levels.goal_pos):
        counts = np.bincount(np.asarray(at[:, 1] * 13 + at[:, 0]), minlength=169)
        assert np.sum((counts - 2000 / 169) ** 2) / (2000 / 169) < 168 + 5 * np.sqrt(2 * 168)
    np.testing.assert_allclose(np.bincount(levels.agent_dir), 500, atol=100)
    solvable = np.mean(jax.jit(jax.vmap(is_solvable))(levels))
    np.testing.assert_allclose(solvable, {0: 1, 25: 0.995, 60: 0.85}[walls], atol=0.006 if walls < 60 else 0.04)


def test_the_number_of_walls_can_be_drawn_too():
    number = np.asarray(drawn(9, 9, 20, 2000, sample=True).wall_map.sum((1, 2)))
    assert number.min() == 0
    np.testing.assert_allclose(np.mean(number == 0), 1 / 21, atol=0.02)
    np.testing.assert_allclose(number.mean(), np.mean([81 * (1 - (1 - 1 / 81) ** n) for n in range(21)]), atol=0.6)


@pytest.mark.slow
def test_solvable_levels_are_drawn_where_asked_for():
    any_, only = drawn(6, 6, 20, 300), drawn(6, 6, 20, 300, solvable=True)
    solved = jax.jit(jax.vmap(is_solvable))
    assert 0.05 < np.mean(solved(any_)) < 0.9
    assert np.all(solved(only))
    assert len({to_ascii(level) for level in rows_of(only)}) > 290


def test_walls_is_a_leaf():
    walls = jnp.arange(0, 150, 30)
    params = jax.vmap(lambda n: strongly_typed(Params()).replace(walls=n))(walls)
    levels = jax.jit(jax.vmap(lambda p: generate(KEY, p)))(params)
    number = np.asarray(levels.wall_map.sum((1, 2)))
    assert number[0] == 0 and np.all(np.diff(number) > 10)


@pytest.mark.slow
def test_an_edit_is_nothing_a_wall_or_the_goal():
    level = from_ascii(SMALL)
    edited = jax.jit(jax.vmap(lambda key: mutate(key, level)))(jax.random.split(KEY, 3000))
    validate(edited)
    kinds = Counter()
    for new in rows_of(edited):
        walls = int(np.sum(new.wall_map != level.wall_map))
        moved = bool(np.any(new.goal_pos != level.goal_pos))
        kinds[walls, moved] += 1
        assert to_tiles(new)[0, 0] == TILES.index(">")
    assert set(kinds) == {(0, False), (1, False), (0, True)}
    np.testing.assert_allclose([n / 3000 for n in kinds.values()], 1 / 3, atol=0.05)
    flips = np.mean(np.asarray(edited.wall_map) != np.asarray(level.wall_map), 0)
    np.testing.assert_allclose(flips, np.where(np.isin(to_tiles(level), (2, 3)), 0, 1 / 30), atol=0.015)
    spots = Counter(tuple(int(n) for n in new.goal_pos) for new in rows_of(edited))
    assert len(spots) == 9, "the goal and eight free cells"


def test_many_edits_keep_a_level_playable():
    levels = drawn(5, 6, 14, 300)
    edited = jax.jit(jax.vmap(lambda key, level: mutate(key, level, 20)))(jax.random.split(KEY, 300), levels)
    validate(edited)
    assert np.mean(np.asarray(edited.wall_map) != np.asarray(levels.wall_map)) > 0.1
    full = from_ascii("####\n#>G#\n####")
    assert jax.jit(lambda key: Maze().mutate(key, full, 5))(KEY).wall_map.shape == (3, 4)


# ---- other platforms


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("settings", [{}, {"height": 7, "width": 40, "view_size": 7}, {"height": 40, "width": 30}])
def test_mazes_are_the_same_on_every_platform(settings, monkeypatch):
    """Drawn, walked and seen; the last is too large to be drawn at once."""
    env = Maze(**settings)
    params = strongly_typed(Params(walls=60, sample_n_walls=True))

    def play(key):
        draw_key, key = jax.random.split(key)
        obs, state = env.reset(draw_key, params)

        def step(state, action):
            ts = env.step(key, state, action, params)
            return ts.state, (ts.obs, ts.reward)

        return obs, jax.lax.scan(step, state, jax.random.randint(key, (60,), 0, 3))

    keys = jax.random.split(KEY, 40)
    here = jax.jit(jax.vmap(play))(keys)
    for module in ("jaxrl.math", "jaxrl.envs.grid.maze.maze"):
        monkeypatch.setattr(sys.modules[module], "on_cpu", lambda cpu, elsewhere, *args: elsewhere(*args))
    elsewhere = jax.jit(jax.vmap(lambda key: play(key)))(keys)
    jax.tree.map(np.testing.assert_array_equal, here, elsewhere)
    assert len(np.unique(here[1][0].free, axis=0)) == 40


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", ["Maze-v0", "MiniGrid-FourRooms-v0", "MiniGrid-DoorKey-8x8-v0"])
def test_accelerators_run_no_loops_gathers_scatters_or_fences(id):
    env, params = jaxrl.make(id)
    venv = jaxrl.vectorize(env, 8)
    state = jax.eval_shape(venv.reset, KEY, params)[1]
    step = jax.jit(venv.step).trace(KEY, state, jnp.zeros(8, jnp.int32), params)
    text = {to: str(step.lower(lowering_platforms=(to,)).as_text()) for to in ("tpu", "cuda", "cpu")}
    # The last stands for fences, whose conditional it is that holds one.
    for op in ("stablehlo.while", "stablehlo.gather", "stablehlo.scatter", "stablehlo.optimization_barrier"):
        assert op not in text["tpu"] and op not in text["cuda"], op
        assert op in text["cpu"], f"{op} would be found"


# ---- bad levels


def changed(**leaves):
    return from_ascii(SMALL).replace(**{name: jnp.asarray(x) for name, x in leaves.items()})


@pytest.mark.parametrize(
    ("level", "message"),
    [
        (changed(agent_pos=[2, 0]), r"agent_pos=\[2 0\] is a wall"),
        (changed(goal_pos=[1, 1]), r"goal_pos=\[1 1\] is a wall"),
        (changed(goal_pos=[0, 0]), "starts on the goal"),
        (changed(agent_pos=[4, 0]), r"agent_pos=\[4 0\] is outside; x is below 4, y below 3"),
        (changed(goal_pos=[0, -1]), "outside"),
        (changed(agent_dir=4), "agent_dir=4 must be from 0 to 3"),
        (changed(agent_dir=[0, 1]), r"agent_dir has shape \(2,\)"),
        (changed(goal_pos=[1]), "goal_pos has shape"),
        (changed(wall_map=np.zeros((3, 4))), "boolean"),
        (changed(max_steps=0), "max_steps=0 must be at least 1"),
        (from_ascii(">#G"), "no way leads to the goal in 1 of 1"),
    ],
)
def test_levels_that_cannot_be_played_are_refused(level, message):
    with pytest.raises(ValueError, match=message):
        validate(level, solvable=True)


def test_the_wrong_one_of_a_batch_is_named():
    levels = jax.tree.map(lambda x: jnp.stack([x] * 3), from_ascii(SMALL))
    validate(levels, solvable=True)
    with pytest.raises(ValueError, match=r"agent_pos=\[1 1\] is a wall"):
        validate(levels.replace(agent_pos=levels.agent_pos.at[1].set(1)))


def test_an_environment_refuses_levels_and_params_that_do_not_fit():
    env = Maze(height=3, width=4, solvable=True).as_levels()
    level = env.level(SMALL)
    assert int(level.max_steps) == 250
    with pytest.raises(ValueError, match=r"wall_map is \(3, 4\), the task's \(13, 13\)"):
        Maze().as_levels().reset(KEY, level)
    with pytest.raises(ValueError, match="no way"):
        env.level(">#..\n.#..\n.#.G")
    with pytest.raises(ValueError, match="no way"):  # its params are no argument of the traced function
        cut = from_ascii(">#..\n.#..\n.#.G")
        jax.jit(lambda key: env.reset(key, cut))(KEY)
    Maze(height=3, width=4).level(">#..\n.#..\n.#.G")
    with pytest.raises(ValueError, match="walls=168 must be from 0 to 167"):
        Maze().reset(KEY, Maze().default_params.replace(walls=jnp.int32(168)))
    with pytest.raises(ValueError, match="max_steps"):
        Maze().reset(KEY, Maze().default_params.replace(max_steps=jnp.int32(0)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Maze(view_size=4), "view_size=4 must be odd"),
        (lambda: Maze(view="whole"), "'partial' or 'full'"),
        (lambda: Maze(height=1, width=1), "1 x 1 cells"),
        (lambda: Holdout(name="Labyrinth3"), "no hold-out maze 'Labyrinth3'"),
        (lambda: PerfectMaze(size=12), "size=12 must be odd"),
        (lambda: Crossing(crossings=9), "crossings=9 must be from 1 to size - 1 = 8"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# ---- text and pictures


def test_text_and_pictures_are_read_back():
    for level in rows_of(drawn(5, 6, 14, 300))[:40]:
        text = to_ascii(level)
        for back in (from_ascii(text, int(level.max_steps)), from_picture(draw(level), int(level.max_steps))):
            for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(level), strict=True):
                np.testing.assert_array_equal(a, b)
                assert a.dtype == b.dtype
    assert to_ascii(from_ascii(SMALL)) == ">.#.\n.#..\n...G"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (">.G\n.x.", r"unknown tile 'x' at x=1, y=1; a tile is one of \.#G>v<\^"),
        (">.G\n..", "line 1 has 2 characters, the first has 3"),
        ("..G\n...", "there is one agent, not 0"),
        (">.G\n..v", r"one agent, not 2, at \(x, y\) \[\(0, 0\), \(2, 1\)\]"),
        (">..\n...", "there is one goal, not 0"),
        ("", "there is one agent, not 0"),
    ],
)
def test_text_that_is_no_level_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        from_ascii(text)


def test_pictures_that_are_no_level_are_refused():
    picture = draw(from_ascii(SMALL))
    with pytest.raises(ValueError, match="pixels; tiles are 32 x 32"):
        from_picture(picture[1:])
    picture[40, 80] = 7
    with pytest.raises(ValueError, match="tile at x=1, y=0 of the picture"):
        from_picture(picture)


def test_a_batch_is_drawn_on_one_sheet():
    sheet = draw_levels(jax.tree.map(lambda x: x[:5], holdouts()), columns=3, pixels=8)
    side = 15 * 8 + 8
    assert sheet.shape == (2 * side, 3 * side, 3)
    np.testing.assert_array_equal(sheet[side:, 2 * side :], 255)  # a sixth there is not


def test_a_state_is_drawn_with_what_the_agent_sees():
    env = Maze(height=3, width=4).as_levels()
    level = env.level(SMALL)
    _, state = env.reset(KEY, level)
    lit, plain = (
        env.render(state, level),
        Maze(height=3, width=4, view="full", params_are_level=True).render(state, level),
    )
    np.testing.assert_array_equal(plain, draw(level))
    changed_tiles = np.any(lit != plain, -1).reshape(5, 32, 6, 32).any((1, 3))
    np.testing.assert_array_equal(changed_tiles, np.repeat([True, False], [4, 1])[:, None] & (np.arange(6) > 0))


# ---- hold-outs and families


def test_the_holdouts_are_those_of_jaxued():
    assert len(HOLDOUTS) == 8
    for i, name in enumerate(HOLDOUTS):
        assert to_ascii(holdout(name)) == str(DATA[f"prefabs/{name}"])
        assert to_ascii(rows_of(holdouts())[i]) == to_ascii(holdout(name))
    validate(holdouts(), solvable=True)
    _, state = Holdout(name="Labyrinth2").reset(KEY, Holdout().default_params)
    assert (int(state.x), int(state.y), int(state.direction)) == (0, 0, 0)


@functools.cache
def family(env, count=60):
    params = env.default_params
    levels = jax.jit(jax.vmap(lambda key: env.generate(key, params)))(jax.random.split(KEY, count))
    env.as_levels().validate(levels)
    validate(levels, solvable=True)
    assert len({to_ascii(level) for level in rows_of(levels)}) >= 10
    return levels


@pytest.mark.slow
def test_a_perfect_maze_is_a_tree():
    levels = family(PerfectMaze(size=15))
    rooms = 8 * 8
    free = ~np.asarray(levels.wall_map)
    assert np.all(free[:, ::2, ::2]) and not np.any(free[:, 1::2, 1::2])
    np.testing.assert_array_equal(free.sum((1, 2)), 2 * rooms - 1)  # as many gaps as a tree has edges ...
    steps = np.asarray(jax.jit(jax.vmap(distances))(levels)).min(1)
    np.testing.assert_array_equal(steps < UNREACHABLE, free)  # ... and all is one piece


def test_a_very_large_perfect_maze_has_a_way():
    env = PerfectMaze(size=101)
    level = jax.jit(lambda key: env.generate(key, env.default_params))(KEY)
    assert int(jax.jit(shortest)(level)) < int(level.max_steps)


def test_the_depth_first_walk_has_its_own_distribution():
    """All 15 trees of 2 x 3 rooms, against as many walks in plain Python."""
    rows, columns, count = 2, 3, 6000
    bits = jax.random.bits(KEY, (count, 2 * rows * columns - 1), jnp.uint32)
    ours = Counter(x.tobytes() for x in np.asarray(jax.jit(jax.vmap(lambda b: carved(b, rows, columns)))(bits)))
    rng, theirs = np.random.default_rng(0), Counter()
    for _ in range(count):
        walls = np.ones((2 * rows - 1, 2 * columns - 1), bool)
        stack = [(2 * rng.integers(rows), 2 * rng.integers(columns))]
        walls[stack[0]] = False
        while stack:
            y, x = stack[-1]
            new = [(y + v, x + u) for v, u in ((0, 2), (2, 0), (0, -2), (-2, 0))]
            new = [(v, u) for v, u in new if 0 <= v < 2 * rows and 0 <= u < 2 * columns and walls[v, u]]
            if not new:
                stack.pop()
                continue
            v, u = new[rng.integers(len(new))]
            walls[(y + v) // 2, (x + u) // 2] = walls[v, u] = False
            stack.append((v, u))
        theirs[walls.tobytes()] += 1
    assert set(ours) == set(theirs)
    chi2 = sum((ours[tree] - theirs[tree]) ** 2 / (ours[tree] + theirs[tree]) for tree in ours)
    assert chi2 < len(ours) - 1 + 4 * np.sqrt(2 * len(ours)), ours


@pytest.mark.slow
def test_corridors_have_the_goal_in_a_dead_end():
    levels = family(Corridor())
    assert {tuple(p) for p in np.asarray(levels.goal_pos).tolist()} == {
        (x, y) for x in (2, 4, 6, 8, 10) for y in (5, 7)
    }
    assert Corridor(size=19).generate(KEY, Corridor(size=19).default_params).wall_map.sum() == 9 * 17 + 8


@pytest.mark.slow
def test_four_rooms_have_a_gap_in_each_wall():
    walls = np.asarray(family(FourRooms()).wall_map)
    for gaps in (~walls[:, 8, :8], ~walls[:, 8, 9:], ~walls[:, :8, 8], ~walls[:, 9:, 8]):
        np.testing.assert_array_equal(gaps.sum(1), 1)
        assert len(set(gaps.argmax(1).tolist())) == 8
    assert np.all(walls.sum((1, 2)) == 33 - 4)


@pytest.mark.slow
def test_crossings_leave_a_way_without_detours():
    levels = family(Crossing())
    walls = np.asarray(levels.wall_map)
    assert not np.any(walls[:, ::2, ::2])
    assert np.all((walls.sum(1) == 8).sum(1) + (walls.sum(2) == 8).sum(1) == 5)  # from side to side but for a gap
    steps = np.asarray(jax.jit(jax.vmap(distances))(levels)).min(1)[:, 0, 0]
    assert np.all((steps >= 17) & (steps <= 32))  # 16 cells and the turns between them


@pytest.mark.slow
def test_levels_are_drawn_for_each_slot_of_a_batch():
    env = Maze(height=5, width=6)
    venv = jaxrl.vectorize(env.as_levels(), 4, level_fn=env.generate)
    params = env.default_params.replace(walls=jnp.int32(6))
    obs, vstate = jax.jit(venv.reset)(KEY, params)
    assert obs["image"].shape == (4, 5, 5, 3)
    validate(vstate.params)
    assert len({to_ascii(level) for level in rows_of(vstate.params)}) == 4
