"""MiniGrid and BabyAI: golden episodes of `minigrid` (tests/golden/make_minigrid.py), generators, levels, pictures."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxrl import make
from jaxrl.envs.grid import drawing
from jaxrl.envs.grid.minigrid.dynamic_obstacles import DynamicObstacles, wander
from jaxrl.envs.grid.tiles import (
    BALL,
    BLUE,
    DOOR,
    GREEN_GOAL,
    GREY_WALL,
    KEY,
    LAVA,
    LOCKED,
    NOTHING,
    WALL,
    Level,
    color_of,
    kind_of,
    pack,
    state_of,
    to_ascii,
)
from jaxrl.envs.grid.views import _gathered, _selected
from jaxrl.spaces import MultiDiscrete
from jaxrl.testing.golden import golden
from tests.golden.level_statistics import statistics

# One id of each class; the others are slow tests.
QUICK = [
    f"MiniGrid-{id}"
    for id in (
        *("DistShift1-v0", "DoorKey-5x5-v0", "Dynamic-Obstacles-5x5-v0", "Empty-8x8-v0", "Fetch-5x5-N2-v0"),
        *("FourRooms-v0", "GoToDoor-5x5-v0", "GoToObject-6x6-N2-v0", "LavaCrossingS9N1-v0", "LavaGapS5-v0"),
        *("LockedRoom-v0", "MemoryS7-v0", "MultiRoom-N2-S4-v0", "Playground-v0", "PutNear-6x6-N2-v0"),
        *("RedBlueDoors-6x6-v0", "KeyCorridorS3R1-v0", "Unlock-v0", "UnlockPickup-v0", "BlockedUnlockPickup-v0"),
        "ObstructedMaze-1Dlhb-v0",
    )
]


def by_id(name: str) -> dict[str, dict[str, np.ndarray]]:
    """id -> what was kept of it."""
    ids: dict[str, dict[str, np.ndarray]] = {}
    for path, x in golden(name).items():
        id, key = path.split("|")
        ids.setdefault(id, {})[key] = x
    return ids


GOLDEN = by_id("minigrid")
COUNTS = by_id("minigrid_levels")


def marked(ids, quick):
    return [id if id in quick else pytest.param(id, marks=pytest.mark.slow) for id in ids]


@functools.cache
def draw(id: str) -> Level:
    """4,096 levels of an id's generator."""
    env, params = make(id)
    levels = jax.jit(jax.vmap(env.generate, (0, None)))(jax.random.split(jax.random.key(7), 4096), params)
    return jax.tree.map(np.asarray, levels)


# ---- episodes


class Injected(DynamicObstacles):
    """Obstacles go where the action says: one of nine cells around each."""

    def action_space(self, params):
        return MultiDiscrete((3, *[9] * self.num_obstacles))

    def transition(self, key, state, action, params):
        balls = state.target + (action[1:] // 3 - 1) * self.size + action[1:] % 3 - 1
        return self.advance(state, action[0], balls, params)


@pytest.mark.slow(but_first=2)
@pytest.mark.parametrize("id", marked(GOLDEN, QUICK))
def test_plays_as_the_reference(id, episodes):
    kept, env = GOLDEN[id], make(id)[0]
    if "moves" in kept:
        env = Injected(**{field.name: getattr(env, field.name) for field in dataclasses.fields(env)})
        kept = {**kept, "actions": np.concatenate([kept["actions"][..., None], kept["moves"]], -1).astype(np.int32)}
    env = env.as_levels()
    numbers, last = jnp.asarray(kept["numbers"]), 3 + len(env.missions)
    max_steps, position, direction = numbers[:, :3].T
    levels = Level(max_steps, jnp.asarray(kept["grid"]), position, direction, numbers[:, 3:last], numbers[:, last:])
    env.validate(levels)
    assert np.all(max_steps == env.time_limit), f"{id}: time limit {env.time_limit}, not {max_steps[0]}"
    episodes.compare(env, episodes.player(env)(levels, jnp.asarray(kept["actions"])), levels.mission, kept)


def test_obstacles_wander_as_described():
    """Exact probabilities of where two balls go, the second after the first."""
    env, _ = make("MiniGrid-Dynamic-Obstacles-5x5-v0")
    grid = np.full((5, 5), GREY_WALL)
    grid[1:-1, 1:-1] = NOTHING
    grid[3, 3], grid[1, 2], grid[2, 2] = GREEN_GOAL, pack(BALL, BLUE), pack(BALL, BLUE)
    state = env.start(Level(*(jnp.asarray(x, jnp.int32) for x in (100, grid, 6, 0, (0,), (7, 12)))))

    def ways(ball: int, others: set[int]) -> list[int]:
        around = [ball + 5 * i + j for i in (-1, 0, 1) for j in (-1, 0, 1)]
        open_cells = {6, 7, 8, 11, 12, 13, 16, 17} - {6} - others
        return [cell for cell in around if cell in open_cells and cell != ball]

    exact = {}
    for first in ways(7, {12}):
        seconds = ways(12, {first})
        exact |= {(first, second): 1 / len(ways(7, {12})) / len(seconds) for second in seconds}
    bits = jax.random.bits(jax.random.key(1), (8192, 2), jnp.uint32)
    moved = np.asarray(jax.jit(jax.vmap(wander, (0, None, None)), static_argnums=2)(bits, state, 5))
    found = np.array([np.sum(np.all(moved == pair, 1)) for pair in exact])
    assert found.sum() == len(moved)  # nothing else
    assert scipy.stats.chisquare(found, 8192 * np.array(list(exact.values()))).pvalue > 1e-3
    # A ball that cannot move stays.
    walls = np.where(np.isin(np.arange(25), (6, 7, 12, 18)), grid.reshape(-1), GREY_WALL)
    stuck = state.replace(grid=jnp.append(jnp.asarray(walls, jnp.int32), GREY_WALL))
    assert wander(bits[0], stuck, 5).tolist() == [7, 12]


def test_a_collision_is_with_what_was_ahead():
    env, _ = make("MiniGrid-Dynamic-Obstacles-5x5-v0")
    env = env.as_levels()
    level = env.level("########## \n ##>>Ab..## \n ##..Ab..## \n ##....Gg## \n ##########", (0,), (7, 12))
    state, advance = env.start(level), jax.jit(env.advance)
    away = advance(state, jnp.int32(2), jnp.array([8, 13]), level)
    assert float(away.reward) == -1 and bool(away.terminated) and int(away.state.position) == 7
    turned = advance(state, jnp.int32(1), jnp.array([8, 11]), level)
    assert float(turned.reward) == 0 and not bool(turned.terminated) and int(turned.state.direction) == 1
    late = advance(state.replace(direction=jnp.int32(1)), jnp.int32(2), jnp.array([8, 11]), level)
    assert float(late.reward) == 0 and not bool(late.terminated) and int(late.state.position) == 6


# ---- generators


def counted(levels: Level) -> dict[str, np.ndarray]:
    """The statistics of levels."""
    numbers = (levels.grid, levels.position, levels.direction, levels.mission, levels.target)
    return statistics(*(np.asarray(x) for x in numbers))


def surprise(ours: np.ndarray, theirs: np.ndarray, sizes: tuple[int, int]) -> float:
    """The smaller p-value of two that two generators' counts of levels, of `sizes` levels, are of one distribution: of
    the most different count, and, where each level is counted once, of all together."""
    size = max(len(ours), len(theirs))
    a, b = (np.pad(x.astype(float), (0, size - len(x))) for x in (ours, theirs))
    p = (a + b) / sum(sizes)
    sd = np.sqrt(p * (1 - p) * (1 / sizes[0] + 1 / sizes[1]))
    z = np.abs(a / sizes[0] - b / sizes[1]) / np.where(sd > 0, sd, 1)
    worst = min(1.0, float(2 * scipy.stats.norm.sf(z.max()) * max(1, np.sum(sd > 0))))
    if (a.sum(), b.sum()) != sizes:
        return worst
    rare = a + b < 20
    table = np.array([[*x[~rare], x[rare].sum()] for x in (a, b)])
    table = table[:, table.sum(0) > 0]
    return min(worst, float(scipy.stats.chi2_contingency(table).pvalue)) if table.shape[1] > 1 else worst


SLOW_COUNTS = ("KeyCorridor", "MultiRoom-N6", "ObstructedMaze", "Playground", "SimpleCrossing")
QUICK_COUNTS = [id for id in COUNTS if not any(name in id for name in SLOW_COUNTS)]


@pytest.mark.slow
@pytest.mark.parametrize("id", marked(COUNTS, QUICK_COUNTS))
def test_generates_as_the_reference(id):
    levels = draw(id)
    make(id)[0].as_levels().validate(jax.tree.map(lambda x: x[:64], levels))
    ours = counted(levels)
    sizes = len(levels.position), int(COUNTS[id]["direction"].sum())
    assert set(ours) == set(COUNTS[id])
    p = {name: surprise(ours[name], COUNTS[id][name], sizes) for name in ours}
    wrong = {name: f"{x:.1e}" for name, x in p.items() if x < 1e-5}
    assert not wrong, f"{id}: these differ in distribution, with such p-values: {wrong}"


def test_views_are_the_same_on_every_platform():
    shape, size = (5, 6), 7
    grid = jnp.arange(31, dtype=jnp.int32) + 100
    position, direction = (jnp.asarray(x.reshape(-1)) for x in np.mgrid[:30, :4])

    def seen(how):
        return jax.vmap(lambda p, d: how(shape, size, grid, p, d))

    by_table, by_sums = jax.jit(lambda p, d: (seen(_gathered)(p, d), seen(_selected)(p, d)))(position, direction)
    np.testing.assert_array_equal(by_table, by_sums)
    assert len(np.unique(by_table, axis=0)) == 120


def test_a_wrong_generator_is_found():
    """A key that avoids the corner, and an agent that looks right three times of ten."""
    levels, sizes = draw("MiniGrid-DoorKey-8x8-v0"), (4096, 4000)
    kept = COUNTS["MiniGrid-DoorKey-8x8-v0"]
    ours = counted(levels)
    off = np.asarray(kind_of(levels.grid[:, 1, 1]) != KEY)
    fewer = counted(jax.tree.map(lambda x: x[off], levels))
    assert surprise(ours["key at"], kept["key at"], sizes) > 1e-5
    assert surprise(fewer["key at"], kept["key at"], (int(off.sum()), sizes[1])) < 1e-5
    turned = ours["direction"] + np.array([240, -80, -80, -80])
    assert surprise(ours["direction"], kept["direction"], sizes) > 1e-5 > surprise(turned, kept["direction"], sizes)


def solvable(levels: Level) -> np.ndarray:
    """Whether each level's goals and targets can be reached, walking onto nothing that lies about but keys, which are
    picked up, and unlocking doors with these."""
    grid, position = levels.grid, levels.position
    count, height, width = grid.shape
    kind, color = kind_of(grid), color_of(grid)
    locked = (kind == DOOR) & (state_of(grid) == LOCKED)
    lies = (kind >= KEY) & (kind < 8)
    shut = locked.copy()
    while True:
        reached = np.zeros(grid.shape, bool)
        reached.reshape(count, -1)[np.arange(count), position] = True
        free = ~((kind == WALL) | (kind == LAVA) | (lies & (kind != KEY)) | shut)
        for _ in range(height * width):
            on = np.pad(reached & free, ((0, 0), (1, 1), (1, 1)))
            new = reached | on[:, :-2, 1:-1] | on[:, 2:, 1:-1] | on[:, 1:-1, :-2] | on[:, 1:-1, 2:]
            if np.array_equal(new, reached):
                break
            reached = new
        keys = [np.any(reached & (kind == KEY) & (color == c), (1, 2)) for c in range(6)]
        opens = locked & np.stack(keys, 1)[np.arange(count)[:, None, None], np.minimum(color, 5)]
        if not np.any(shut & opens):
            break
        shut &= ~opens
    wanted = kind == 8
    for i in range(levels.target.shape[1]):
        wanted |= np.arange(height * width).reshape(height, width) == levels.target[:, i, None, None]
    return np.all(reached | ~wanted, (1, 2))


@pytest.mark.slow(but_first=3)
@pytest.mark.parametrize("id", marked(COUNTS, QUICK_COUNTS))
def test_levels_can_be_solved(id):
    levels = jax.tree.map(lambda x: x[:512], draw(id))
    share = np.mean(solvable(levels))
    assert share == 1 or (share > 0.9 and "Obstacles" in id), f"{id}: {share:.1%} can be solved"


@pytest.mark.slow
def test_rooms_of_multiroom_are_joined_by_doors():
    levels = draw("MiniGrid-MultiRoom-N4-S5-v1")
    assert np.all(np.sum(kind_of(levels.grid) == DOOR, (1, 2)) == 3)
    walled_up = levels.replace(grid=np.where(kind_of(levels.grid) == DOOR, GREY_WALL, levels.grid))
    assert not np.any(solvable(jax.tree.map(lambda x: x[:256], walled_up)))


# ---- the level kit


@pytest.mark.slow
@pytest.mark.parametrize("id", marked(COUNTS, ["MiniGrid-GoToDoor-8x8-v0", "MiniGrid-MultiRoom-N4-S5-v1"]))
def test_mutants_are_valid(id):
    env = make(id)[0].as_levels()
    first = levels = jax.tree.map(lambda x: jnp.asarray(x[:64]), draw(id))
    mutate = jax.jit(jax.vmap(env.mutate))
    for i in range(8):
        levels = mutate(jax.random.split(jax.random.key(i), 64), levels)
    env.validate(levels)
    changed = np.any(np.asarray(levels.grid) != np.asarray(first.grid), (1, 2))
    assert np.mean(changed) > 0.5 and np.all(np.sum(np.asarray(levels.grid != first.grid), (1, 2)) <= 8)
    assert np.mean(np.asarray(levels.direction != first.direction)) > 0.5
    assert np.mean(np.asarray(levels.position != first.position)) > 0.5


TEXT = ("MiniGrid-DoorKey-8x8-v0", "MiniGrid-GoToDoor-8x8-v0", "MiniGrid-Dynamic-Obstacles-Random-6x6-v0")


# What is in a box is not shown.
@pytest.mark.parametrize("id", marked([id for id in COUNTS if "Obstructed" not in id], TEXT))
def test_levels_as_text(id):
    env, levels = make(id)[0].as_levels(), draw(id)
    for i in range(2):
        level = jax.tree.map(lambda x, i=i: x[i], levels)
        text = to_ascii(level.grid, int(level.position), int(level.direction))
        back = env.level(text, tuple(level.mission.tolist()), tuple(level.target.tolist()))
        for name in Level.__dataclass_fields__:
            np.testing.assert_array_equal(getattr(back, name), getattr(level, name), err_msg=name)


@pytest.mark.slow
def test_a_level_is_the_params():
    env, _ = make("MiniGrid-DoorKey-5x5-v0")
    levels = env.as_levels()
    text = "##########\n##>>##..##\n##KyLy..##\n##..##Gg##\n##########"
    level = levels.level(text)
    step = jax.jit(levels.step)
    obs, state = levels.reset(jax.random.key(0), level)
    assert int(state.position) == 6 and int(level.max_steps) == 250
    reward = 0.0
    for action in (1, 3, 2, 0, 5, 2, 2, 1, 2):  # down to the key, pick it up, through the door, to the goal
        obs, state, reward, terminated, _, _ = step(jax.random.key(0), state, action, level)
    assert bool(terminated) and float(reward) == pytest.approx(1 - 0.9 * 9 / 250)
    assert obs["image"].shape == (7, 7, 3)


BAD = {
    "unknown tile 'Xx' at row 1, column 2": "##########\n##>>XxGg##\n##########",
    "lines of": "########\n##>>##\n########",
    "2 agents": "########\n##>><<##\n########",
    r"the grid is \(3, 5\), the task's \(5, 5\)": "##########\n##>>..Gg##\n##########",
    "walk up to the border": "##########\n##>>....##\n##........\n##....Gg##\n##########",
}


@pytest.mark.parametrize("message", BAD)
def test_bad_levels(message):
    with pytest.raises(ValueError, match=message):
        make("MiniGrid-Empty-5x5-v0")[0].level(BAD[message])


def test_bad_numbers_of_levels():
    env = make("MiniGrid-GoToDoor-8x8-v0")[0].as_levels()
    good = jax.tree.map(lambda x: jnp.asarray(x[0]), draw("MiniGrid-GoToDoor-8x8-v0"))
    env.validate(good)
    wrong = {
        "inside a wall": good.replace(position=jnp.int32(0)),
        r"position=64 must be a cell of 0 .. 63": good.replace(position=jnp.int32(64)),
        "direction=4": good.replace(direction=jnp.int32(4)),
        r"mission=\[6\]; each number is from 0 and below \(6,\)": good.replace(mission=jnp.array([6])),
        r"mission has shape \(2,\); it is 1": good.replace(mission=jnp.array([0, 0])),
        r"target has shape \(0,\); it is 1": good.replace(target=jnp.zeros(0, jnp.int32)),
        "max_steps=0": good.replace(max_steps=jnp.int32(0)),
        "no known kind": good.replace(grid=good.grid.at[2, 2].set(pack(12))),
    }
    for message, level in wrong.items():
        with pytest.raises(ValueError, match=message):
            env.validate(level)
        with pytest.raises(ValueError, match=message):
            env.reset(jax.random.key(0), level)
    obstacles = make("MiniGrid-Dynamic-Obstacles-Random-6x6-v0")[0].as_levels()
    level = jax.tree.map(lambda x: jnp.asarray(x[0]), draw("MiniGrid-Dynamic-Obstacles-Random-6x6-v0"))
    with pytest.raises(ValueError, match="must be the cells of the blue balls"):
        obstacles.validate(level.replace(target=level.target + 1))


@pytest.mark.parametrize(
    ("id", "settings"),
    [
        ("MiniGrid-LavaCrossingS9N1-v0", {"size": 8}),
        ("MiniGrid-LavaCrossingS9N1-v0", {"num_crossings": 7}),
        ("MiniGrid-LavaCrossingS9N1-v0", {"obstacle": "water"}),
        ("MiniGrid-DistShift1-v0", {"strip": 6}),
        ("MiniGrid-LavaGapS5-v0", {"size": 4}),
        ("MiniGrid-MemoryS7-v0", {"size": 8}),
        ("MiniGrid-MultiRoom-N6-v0", {"num_rooms": 0}),
        ("MiniGrid-MultiRoom-N6-v0", {"largest": 3}),
        ("MiniGrid-Fetch-5x5-N2-v0", {"num_objects": 9}),
        ("MiniGrid-GoToDoor-5x5-v0", {"size": 4}),
        ("MiniGrid-GoToObject-6x6-N2-v0", {"num_objects": 16}),
        ("MiniGrid-PutNear-6x6-N2-v0", {"num_objects": 1}),
        ("MiniGrid-PutNear-8x8-N3-v0", {"num_objects": 5}),
        ("MiniGrid-DoorKey-5x5-v0", {"size": 4}),
        ("MiniGrid-Empty-5x5-v0", {"size": 4}),
        ("MiniGrid-KeyCorridorS3R1-v0", {"room_size": 2}),
        ("MiniGrid-RedBlueDoors-6x6-v0", {"size": 3}),
        ("MiniGrid-Dynamic-Obstacles-5x5-v0", {"num_obstacles": 8}),
    ],
)
def test_bad_settings(id, settings):
    name, value = next(iter(settings.items()))
    with pytest.raises(ValueError, match=f"{id}: {name}='?{value}"):
        make(id, **settings)


# ---- pictures


def test_pictures_show_the_state():
    env, params = make("MiniGrid-DoorKey-8x8-v0")
    text = (
        "################\n##>>..##....  ##\n##....Ly......##\n##Ky..##......##\n"
        "##....##......##\n##....##......##\n##....##....Gg##\n################"
    ).replace("  ", "..")
    level = env.level(text)
    state = env.start(level)
    picture = env.render(state, params)
    assert picture.shape == (256, 256, 3) and picture.dtype == np.uint8

    def tile(picture, row, column):
        return picture[32 * row : 32 * row + 32, 32 * column : 32 * column + 32].astype(int)

    lit = drawing.field_of_view(state, env.shape, 7, False)
    assert lit[1, 1] and lit[1, 3] and not lit[1, 4]  # up to the wall, not behind it
    for row, column in itertools.product(range(8), range(8)):
        ground = tile(picture, row, column)[4, 4].sum() > 3 * 30
        if level.grid[row, column] == NOTHING and (row, column) != (1, 1):
            assert ground == lit[row, column]
    agents = [tile(env.render(state.replace(direction=jnp.int32(d)), params), 1, 1) for d in range(4)]
    for d in range(4):  # right, down, left, up: clockwise
        reds = agents[d][..., 0] - agents[d][..., 2]
        np.testing.assert_allclose(reds, np.rot90(agents[0][..., 0] - agents[0][..., 2], -d), atol=60)
    carried = tile(env.render(state.replace(carrying=jnp.int32(pack(KEY, 4))), params), 1, 1)
    assert np.any(carried[16:, 16:] != agents[0][16:, 16:]) and np.all(carried[:16, :16] == agents[0][:16, :16])
    doors = [
        tile(env.render(state.replace(grid=state.grid.at[19].set(pack(DOOR, 4, s))), params), 2, 3) for s in range(3)
    ]
    assert all(np.any(a != b) for a, b in itertools.combinations(doors, 2))
    plain = dataclasses.replace(env, view="full").render(state, params)
    assert tile(plain, 1, 2)[4, 4].sum() < 3 * 30  # nothing is lit where all is seen
    assert np.any(tile(plain, 3, 1) != tile(plain, 4, 1)) and np.all(tile(plain, 4, 1) == tile(plain, 5, 1))


def test_contact_sheet():
    env, levels = make("MiniGrid-Fetch-6x6-N2-v0")[0].as_levels(), draw("MiniGrid-Fetch-6x6-N2-v0")
    sheet = drawing.contact_sheet(env, levels, columns=3, max_levels=5)
    assert sheet.shape == (2 * 208, 3 * 208, 3)
    first = jax.tree.map(lambda x: x[0], levels)
    np.testing.assert_array_equal(sheet[8:200, 8:200], env.render(env.start(first), first))
    assert np.all(sheet[208:, 416:] == 255)
    with pytest.raises(ValueError, match=r"a batch has \(levels,\)"):
        drawing.contact_sheet(env, first)


@pytest.mark.slow
@pytest.mark.light
def test_walls_hide_what_is_behind_them_unless_told_otherwise():
    for id, default in (("MiniGrid-DoorKey-5x5-v0", False), ("MiniGrid-Empty-5x5-v0", True)):
        assert make(id)[0].see_through_walls is default
        assert make(id, see_through_walls=default)[0] == make(id)[0] != make(id, see_through_walls=not default)[0]
    env, params = make("MiniGrid-DoorKey-5x5-v0")
    clear = make(env.id, see_through_walls=True)[0]
    assert clear.as_levels().see_through_walls and not env.as_levels().see_through_walls
    _, state = env.reset(jax.random.key(0), params)
    hidden, seen = (
        np.asarray(each.observe(jax.random.key(0), state, params)["image"][..., 0]) for each in (env, clear)
    )
    assert (hidden != seen).any() and (hidden[hidden != seen] == 0).all()
