"""Golden episodes and levels of `minigrid` 3.2.0: `python tests/golden/make_minigrid.py [episodes|levels] [ids ...]`.

Needs minigrid and gymnasium, not jaxrl. Writes minigrid.npz and minigrid_levels.npz, keeping the ids not named.

Episodes: an id has 20 seeds of 500 actions. In even seeds half of them are random, the others have an effect on the
cell ahead, so that doors, keys and boxes are met; in odd seeds most are the next step of a plan to solve the task.
After an end the reference is reset to the same seed. Kept per id: `grid`, the layouts; `numbers`, for each seed time
limit, position, direction, mission, target; `text`, the missions; `actions`; `ends`, seeds, steps and 1 for terminated
+ 2 for truncated, and the `rewards` there; `crc`, a CRC-32 of every 125 observations (image, then direction); `moves`
of obstacles. Each id has a success, and a failure where its task knows any.

Levels: of 4,000 seeds, the counts that `level_statistics` makes.
"""

from __future__ import annotations

import sys
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

import gymnasium
import minigrid  # noqa: F401
import numpy as np
from level_statistics import statistics
from minigrid.core.constants import COLOR_TO_IDX, DIR_TO_VEC, OBJECT_TO_IDX

SEEDS, STEPS, BLOCK, LEVELS = 20, 500, 125, 4000
LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)
Cells = set[tuple[int, int]]
Aim = tuple[Cells, int]


def pack(cell) -> int:
    """A `WorldObj`, or None, as kind | colour << 8 | state << 16."""
    if cell is None:
        return OBJECT_TO_IDX["empty"]
    kind, color, state = cell.encode()
    if cell.contains is not None:
        assert cell.contains.type == "key"
        state = 16 * (COLOR_TO_IDX[cell.contains.color] + 1)
    return kind | color << 8 | state << 16


def layout(env) -> tuple[np.ndarray, int, int]:
    """`(grid (height, width), position, direction)`."""
    grid = np.array([[pack(env.grid.get(x, y)) for x in range(env.width)] for y in range(env.height)], np.int32)
    return grid, cell(env, env.agent_pos), int(env.agent_dir)


def cell(env, place) -> int:
    """Row * width + column of (x, y)."""
    x, y = (int(i) for i in place)
    return y * env.width + x


# ---- what is played


def action_of(rng: np.random.Generator, env) -> int:
    """At random, or something that has an effect."""
    if rng.random() < 0.5:
        return int(rng.integers(env.action_space.n))
    ahead = env.grid.get(*env.front_pos)
    if ahead is None:
        useful = [0, 1, 2, 2, 2, 4] if env.carrying else [0, 1, 2, 2, 2]
    elif ahead.type in ("goal", "lava", "floor"):
        useful = [0, 1, 2]
    elif ahead.type == "door":
        useful = [2, 2, 2, 0, 5] if ahead.is_open else [5, 5, 0]
    elif ahead.type in ("key", "ball", "box"):
        useful = [3, 3, 3, 5, 0, 1, 6]
    else:
        useful = [0, 1]
    return int(rng.choice([a for a in useful if a < env.action_space.n]))


def opens(env, door) -> bool:
    """Whether the agent can come through."""
    held = env.carrying
    return not door.is_locked or (held is not None and held.type == "key" and held.color == door.color)


def step_towards(env, aim: Aim) -> int | None:
    """The first action on a shortest way onto one of the cells, or up to one and then the action of the aim, if that is
    not `FORWARD`; doors are opened. None where there is no way."""
    cells, final = aim

    def enter(at: tuple[int, int]) -> bool:
        if not (0 <= at[0] < env.width and 0 <= at[1] < env.height):
            return False
        there = env.grid.get(*at)
        if there is None or there.type == "floor" or (final == FORWARD and at in cells):
            return True
        return there.type == "door" and opens(env, there)

    start = (*(int(i) for i in env.agent_pos), int(env.agent_dir))
    first: dict[tuple[int, int, int], int] = {start: -1}
    queue = deque([start])
    while queue:
        x, y, d = here = queue.popleft()
        ahead = (x + int(DIR_TO_VEC[d][0]), y + int(DIR_TO_VEC[d][1]))
        if ahead in cells and (final != FORWARD or enter(ahead)):
            action = first[here] if here != start else final
            break
        ways = [(LEFT, (x, y, (d - 1) % 4)), (RIGHT, (x, y, (d + 1) % 4))]
        for a, there in ways + ([(FORWARD, (*ahead, d))] if enter(ahead) else []):
            if there not in first:
                first[there] = a if here == start else first[here]
                queue.append(there)
    else:
        return None
    front = env.grid.get(*env.front_pos)
    closed = action == FORWARD and front is not None and front.type == "door" and not front.is_open
    return TOGGLE if closed else action


def cells_of(env, *kinds: str) -> Cells:
    """Where there are objects of a kind."""
    places = [(x, y) for x in range(env.width) for y in range(env.height)]
    return {p for p in places if (thing := env.grid.get(*p)) is not None and thing.type in kinds}


def to_goal(env) -> list[Aim]:
    """Onto the goal, else to a key."""
    return [(cells_of(env, "goal"), FORWARD), (cells_of(env, "key"), PICKUP)]


def to_match(env) -> list[Aim]:
    return [({tuple(int(i) for i in env.success_pos)}, FORWARD)]


def to_fetch(env) -> list[Aim]:
    wanted = (env.targetType, env.targetColor)
    return [({p for p in cells_of(env, wanted[0]) if env.grid.get(*p).color == wanted[1]}, PICKUP)]


def to_target(env) -> list[Aim]:
    return [({tuple(int(i) for i in env.target_pos)}, DONE)]


def to_put(env) -> list[Aim]:
    if env.carrying is None:
        things = cells_of(env, env.move_type)
        return [({p for p in things if env.grid.get(*p).color == env.moveColor}, PICKUP)]
    x, y = (int(i) for i in env.target_pos)
    around = {(x + i, y + j) for i in (-1, 0, 1) for j in (-1, 0, 1)}
    return [({p for p in around if env.grid.get(*p) is None}, DROP)]


def to_open(env) -> list[Aim]:
    color = "blue" if env.red_door.is_open else "red"
    return [({p for p in cells_of(env, "door") if env.grid.get(*p).color == color}, TOGGLE)]


def to_object(env) -> list[Aim]:
    """Pick up what is asked for: put away what blocks doors, get keys, out of boxes if need be, open the doors."""
    doors = cells_of(env, "door")
    if env.carrying is None:
        target = getattr(env, "obj", None)
        wanted = {p for p in cells_of(env, "ball", "box") if env.grid.get(*p) is target}
        boxes = {p for p in cells_of(env, "box") if env.grid.get(*p).contains is not None}
        blocking = {(x, y) for x, y in cells_of(env, "ball") if any(abs(x - u) + abs(y - v) == 1 for u, v in doors)}
        return [(wanted, PICKUP), (blocking, PICKUP), (cells_of(env, "key"), PICKUP), (boxes, TOGGLE)]
    locked = {p for p in doors if env.grid.get(*p).is_locked and opens(env, env.grid.get(*p))}
    free = {(x, y) for x in range(env.width) for y in range(env.height) if env.grid.get(x, y) is None}
    apart = {(x, y) for x, y in free if all(abs(x - u) + abs(y - v) > 1 for u, v in doors)}
    return [(locked, TOGGLE), (apart, DROP)]


def chosen(rng: np.random.Generator, env, aims: Callable | None) -> int:
    """Mostly the next step of the first aim that can be reached."""
    if aims is not None and rng.random() < 0.85:
        for aim in aims(env):
            action = step_towards(env, aim)
            if action is not None:
                return action
    return action_of(rng, env)


def record(id: str, task: Callable, aims: Callable | None = None) -> dict[str, np.ndarray]:
    """Everything kept of one id. `task(env)`: the mission and the target, as numbers; `aims(env)`: what a plan leads
    to, tried in order."""
    actions, crcs = np.zeros((SEEDS, STEPS), np.uint8), np.zeros((SEEDS, STEPS // BLOCK), np.uint32)
    grids, numbers, texts, ends, rewards, moves = [], [], [], [], [], []
    for seed in range(SEEDS):
        env = gymnasium.make(id, disable_env_checker=True).unwrapped
        obs, _ = env.reset(seed=seed)
        rng = np.random.default_rng([seed, zlib.crc32(id.encode())])
        (grid, *where), (mission, target), seen = layout(env), task(env), b""
        grids.append(grid)
        numbers.append((env.max_steps, *where, *mission, *target))
        texts.append(obs["mission"])
        for t in range(STEPS):
            action = chosen(rng, env, aims if seed % 2 else None)
            before = [ball.cur_pos for ball in getattr(env, "obstacles", ())]
            obs, reward, terminated, truncated, _ = env.step(action)
            after = [ball.cur_pos for ball in getattr(env, "obstacles", ())]
            moves += [3 * (b[1] - a[1] + 1) + b[0] - a[0] + 1 for a, b in zip(before, after, strict=True)]
            actions[seed, t] = action
            seen += obs["image"].tobytes() + bytes([int(obs["direction"])])
            if t % BLOCK == BLOCK - 1:
                crcs[seed, t // BLOCK], seen = zlib.crc32(seen), b""
            if terminated or truncated:
                ends.append((seed, t, terminated + 2 * truncated))
                rewards.append(reward)
                env.reset(seed=seed)
    arrays = {
        "grid": np.array(grids, np.int32),
        "numbers": np.array(numbers, np.int32),
        "text": np.array(texts),
        "actions": actions,
        "crc": crcs,
        "ends": np.array(ends, np.int16).reshape(-1, 3).T,
        "rewards": np.array(rewards, np.float32),
    }
    return arrays | ({"moves": np.array(moves, np.uint8).reshape(SEEDS, STEPS, -1)} if moves else {})


def levels(id: str, task: Callable) -> dict[str, np.ndarray]:
    """What is counted over the levels of an id."""
    env = gymnasium.make(id, disable_env_checker=True).unwrapped
    drawn = []
    for seed in range(LEVELS):
        env.reset(seed=seed)
        drawn.append((*layout(env), *task(env)))
    return statistics(*(np.array(x, np.int32) for x in zip(*drawn, strict=True)))


def write(name: str, recorded: dict[str, dict[str, np.ndarray]]) -> None:
    """Add the ids to <name>.npz, one array `id|name` each."""
    path = Path(__file__).with_name(f"{name}.npz")
    kept = dict(np.load(path)) if path.exists() else {}
    arrays = {key: x for key, x in kept.items() if key.split("|")[0] not in recorded}
    for id, parts in recorded.items():
        arrays |= {f"{id}|{key}": x for key, x in parts.items()}
    np.savez_compressed(path, **dict(sorted(arrays.items())))


# ---- what each task asks for: the numbers of our mission and target


def nothing(env) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """One mission, no target."""
    return (0,), ()


def locked_room(env) -> tuple[tuple[int, ...], tuple[int, ...]]:
    words = env.mission.replace(",", "").split()
    return tuple(COLOR_TO_IDX[words[i]] for i in (2, 6, 10)), ()


def memory(env) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (0,), (cell(env, env.success_pos), cell(env, env.failure_pos))


def fetch(env) -> tuple[tuple[int, ...], tuple[int, ...]]:
    wordings = ["get a", "go get a", "fetch a", "go fetch a", "you must fetch a"]
    wording = wordings.index(env.mission.rsplit(" ", 2)[0])
    return (wording, COLOR_TO_IDX[env.targetColor], OBJECT_TO_IDX[env.targetType]), ()


def go_to_door(env) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (COLOR_TO_IDX[env.target_color],), (cell(env, env.target_pos),)


def go_to_object(env) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (COLOR_TO_IDX[env.target_color], OBJECT_TO_IDX[env.targetType]), (cell(env, env.target_pos),)


def put_near(env) -> tuple[tuple[int, ...], tuple[int, ...]]:
    named = (env.moveColor, env.move_type, env.target_color, env.target_type)
    numbers = (COLOR_TO_IDX[named[0]], OBJECT_TO_IDX[named[1]], COLOR_TO_IDX[named[2]], OBJECT_TO_IDX[named[3]])
    return numbers, (cell(env, env.target_pos),)


def red_blue_doors(env) -> tuple[tuple[int, ...], tuple[int, ...]]:
    doors = {env.grid.get(*p).color: cell(env, p) for p in cells_of(env, "door")}
    return (0,), (doors["red"], doors["blue"])


def unlock_pickup(env) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (COLOR_TO_IDX[env.obj.color], OBJECT_TO_IDX[env.obj.type]), ()


def obstructed_maze(env) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (COLOR_TO_IDX[env.obj.color],), ()


def dynamic_obstacles(env) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (0,), tuple(cell(env, ball.cur_pos) for ball in env.obstacles)


# Ids, what they ask for, what solves them, and whether it can be failed.
FAMILIES: list[tuple[list[str], Callable, Callable | None, bool]] = [
    ([f"Empty-{n}-v0" for n in ("5x5", "6x6", "8x8", "16x16", "Random-5x5", "Random-6x6")], nothing, to_goal, False),
    ([f"DoorKey-{n}-v0" for n in ("5x5", "6x6", "8x8", "16x16")], nothing, to_goal, False),
    (["FourRooms-v0"], nothing, to_goal, False),
    ([f"LavaCrossing{n}-v0" for n in ("S9N1", "S9N2", "S9N3", "S11N5")], nothing, to_goal, True),
    ([f"SimpleCrossing{n}-v0" for n in ("S9N1", "S9N2", "S9N3", "S11N5")], nothing, to_goal, False),
    (["DistShift1-v0", "DistShift2-v0"], nothing, to_goal, True),
    ([f"LavaGap{n}-v0" for n in ("S5", "S6", "S7")], nothing, to_goal, True),
    (["LockedRoom-v0"], locked_room, to_goal, False),
    ([f"Memory{n}-v0" for n in ("S7", "S9", "S11", "S13", "S13Random", "S17Random")], memory, to_match, True),
    ([f"MultiRoom-{n}" for n in ("N2-S4-v0", "N4-S5-v0", "N4-S5-v1", "N6-v0")], nothing, to_goal, False),
    ([f"Fetch-{n}-v0" for n in ("5x5-N2", "6x6-N2", "8x8-N3")], fetch, to_fetch, True),
    ([f"GoToDoor-{n}-v0" for n in ("5x5", "6x6", "8x8")], go_to_door, to_target, True),
    (["GoToObject-6x6-N2-v0", "GoToObject-8x8-N2-v0"], go_to_object, to_target, True),
    (["PutNear-6x6-N2-v0", "PutNear-8x8-N3-v0"], put_near, to_put, True),
    (["RedBlueDoors-6x6-v0", "RedBlueDoors-8x8-v0"], red_blue_doors, to_open, True),
    (
        [f"Dynamic-Obstacles-{n}-v0" for n in ("5x5", "6x6", "8x8", "16x16", "Random-5x5", "Random-6x6")],
        dynamic_obstacles,
        to_goal,
        True,
    ),
    (["Playground-v0"], nothing, None, False),
    (["Unlock-v0"], nothing, to_object, False),
    (["UnlockPickup-v0", "BlockedUnlockPickup-v0"], unlock_pickup, to_object, False),
    ([f"KeyCorridor{n}-v0" for n in ("S3R1", "S3R2", "S3R3", "S4R3", "S5R3", "S6R3")], unlock_pickup, to_object, False),
    (
        [f"ObstructedMaze-{n}-v0" for n in ("1Dl", "1Dlh", "1Dlhb", "2Dl", "2Dlh", "2Dlhb", "1Q", "2Q", "Full")]
        + [f"ObstructedMaze-{n}-v1" for n in ("2Dlhb", "1Q", "2Q", "Full")],
        obstructed_maze,
        to_object,
        False,
    ),
]
TASKS = {f"MiniGrid-{id}": family for ids, *family in FAMILIES for id in ids}
# Their levels are counted: the smallest of each kind in which every choice of the generator is open.
COUNTED = [
    f"MiniGrid-{id}"
    for id in (
        *("Empty-Random-6x6-v0", "DoorKey-8x8-v0", "FourRooms-v0", "LavaCrossingS11N5-v0", "SimpleCrossingS9N2-v0"),
        *("LavaGapS7-v0", "LockedRoom-v0", "MemoryS13Random-v0", "MultiRoom-N4-S5-v1", "MultiRoom-N6-v0"),
        *("Fetch-6x6-N2-v0", "GoToDoor-8x8-v0", "GoToObject-6x6-N2-v0", "PutNear-8x8-N3-v0", "RedBlueDoors-6x6-v0"),
        *("Dynamic-Obstacles-Random-6x6-v0", "Playground-v0", "Unlock-v0", "BlockedUnlockPickup-v0"),
        *("KeyCorridorS4R3-v0", "ObstructedMaze-1Dlhb-v0", "ObstructedMaze-2Dlhb-v0", "ObstructedMaze-2Q-v1"),
    )
]


def episodes(id: str) -> dict[str, np.ndarray]:
    """`record` of an id; raises AssertionError where the actions miss a success or failure."""
    task, aims, fails = TASKS[id]
    kept = record(id, task, aims)
    reward, terminated = kept["rewards"], kept["ends"][2] % 2 > 0
    print(id, len(reward), "ends,", np.sum(reward > 0), "successes,", np.sum(terminated & (reward <= 0)), "failures")
    assert np.any(reward > 0) == (aims is not None), f"{id}: no success"
    assert np.any(terminated & (reward <= 0)) == fails, f"{id}: failures"
    return kept


def main() -> None:
    what, *ids = sys.argv[1:] or ["all"]
    if what in ("episodes", "all"):
        write("minigrid", {id: episodes(id) for id in ids or TASKS})
    if what in ("levels", "all"):
        write("minigrid_levels", {id: levels(id, TASKS[id][0]) for id in ids or COUNTED})


if __name__ == "__main__":
    main()
