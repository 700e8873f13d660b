"""Snake, 2048, Minesweeper, Sokoban: Jumanji's steps; chance; levels that can be solved; bad input."""

import functools
import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrl.envs.grid.combinatorial import game_2048, minesweeper, snake
from jaxrl.envs.grid.sokoban import sokoban
from jaxrl.testing.golden import golden
from jaxrl.vector_env import vectorize

KEY = jax.random.key(0)


@functools.cache
def data():
    return golden("combinatorial")


def recorded(prefix):
    return {k.removeprefix(f"{prefix}_"): v for k, v in data().items() if k.startswith(f"{prefix}_")}


def keys(n):
    return jax.random.split(KEY, n)


def played(env, states, actions, params):
    """One step of every row, and what was seen before it."""
    observe = jax.jit(jax.vmap(env.observe, (None, 0, None)))
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    return observe(KEY, states, params), step(keys(len(actions)), states, actions, params)


# ---- Snake


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "columns"), [(5, 4), (12, 12)])
def test_snake_is_the_reference(rows, columns):
    r = recorded(f"snake_{rows}x{columns}")
    env = snake.Snake(rows, columns)
    cell = lambda pair: jnp.asarray(pair.astype(np.int32) @ [columns, 1], jnp.int32)  # noqa: E731
    time = jnp.zeros(len(r["action"]), jnp.int32)
    states = snake.State(
        time, jnp.asarray(r["body"], jnp.int32), cell(r["head"]), jnp.asarray(r["length"], jnp.int32), cell(r["fruit"])
    )
    obs, ts = played(env, states, jnp.asarray(r["action"]), env.default_params)
    np.testing.assert_array_equal(obs["action_mask"], r["mask"])
    weights = np.arange(rows * columns * 5) % 7919 + 1.0
    np.testing.assert_allclose(np.asarray(obs["grid"], np.float64).reshape(len(time), -1) @ weights, r["grid"], 1e-6)
    np.testing.assert_array_equal(ts.reward, r["reward"])
    np.testing.assert_array_equal(ts.terminated, r["ended"])
    alive = r["mask"][np.arange(len(time)), r["action"]]
    assert alive.mean() > 0.9 and (rows > 5 or (~alive).sum() > 3)
    np.testing.assert_array_equal(ts.state.body[alive], r["next_body"][alive])
    np.testing.assert_array_equal(ts.state.head[alive], cell(r["next_head"])[alive])
    np.testing.assert_array_equal(ts.state.body[~alive], r["body"][~alive])  # the reference's is out of the board
    ate = r["reward"] > 0
    np.testing.assert_array_equal(ts.state.fruit[~ate], states.fruit[~ate])
    full = np.asarray(ts.state.length) == rows * columns
    assert rows > 5 or full.sum() > 2
    new = np.asarray(ts.state.fruit)
    assert (new[full] == rows * columns).all()
    assert (np.asarray(ts.state.body).reshape(len(time), -1)[ate & ~full, new[ate & ~full]] == 0).all()


def test_snake_puts_fruit_anywhere():
    env = snake.Snake(3, 4)
    _, states = jax.jit(jax.vmap(env.reset, (0, None)))(keys(6000), env.default_params)
    pairs = np.asarray(states.head * 12 + states.fruit)
    counts = np.bincount(pairs, minlength=144).reshape(12, 12)
    assert (counts.diagonal() == 0).all() and stats.chisquare(counts[~np.eye(12, dtype=bool)]).pvalue > 1e-3
    body = jnp.zeros((3, 4), jnp.int32).at[0].set(jnp.array([1, 2, 3, 0]))
    one = snake.State(jnp.int32(0), body, jnp.int32(2), jnp.int32(3), jnp.int32(3))
    fruit = jax.jit(jax.vmap(lambda key: env.step(key, one, 1, env.default_params).state.fruit))(keys(4000))
    counts = np.bincount(np.asarray(fruit), minlength=12)
    assert (counts[:4] == 0).all() and stats.chisquare(counts[4:]).pvalue > 1e-3


# ---- 2048


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 4])
def test_2048_is_the_reference(size):
    r = recorded(f"game_2048_{size}")
    env = game_2048.Game2048(size)
    time = jnp.zeros(len(r["action"]), jnp.int32)
    states = game_2048.State(time, jnp.asarray(r["board"], jnp.int32))
    obs, ts = played(env, states, jnp.asarray(r["action"]), env.default_params)
    np.testing.assert_array_equal(obs["action_mask"], r["mask"])
    np.testing.assert_array_equal(ts.reward, r["reward"])
    slid, _ = jax.jit(jax.vmap(game_2048.slide))(states.board, jnp.asarray(r["action"]))
    changed = r["mask"][np.arange(len(time)), r["action"]]
    assert changed.sum() > 300 and (~changed).sum() > 3
    for after in (r["next_board"], np.asarray(ts.state.board)):
        new = after != slid
        np.testing.assert_array_equal(new.sum((1, 2)), changed)  # one new tile, of 2 or 4, on an empty cell
        assert np.isin(after[new], (1, 2)).all() and (np.asarray(slid)[new] == 0).all()
    _, then = played(env, states.replace(board=jnp.asarray(r["next_board"], jnp.int32)), time, env.default_params)
    over = ~np.asarray(jax.vmap(game_2048.can_move)(jnp.asarray(r["next_board"], jnp.int32))).any(1)
    np.testing.assert_array_equal(over, r["ended"])
    np.testing.assert_array_equal(then.terminated[over], True)


@pytest.mark.slow
def test_2048_new_tiles():
    env = game_2048.Game2048()
    params = env.default_params.replace(four_probability=jnp.float32(0.25))
    _, states = jax.jit(jax.vmap(env.reset, (0, None)))(keys(8000), params)
    board = np.asarray(states.board).reshape(-1, 16)
    assert ((board > 0).sum(1) == 1).all()
    assert stats.chisquare((board > 0).sum(0)).pvalue > 1e-3
    assert stats.binomtest(int((board == 2).sum()), 8000, 0.25).pvalue > 1e-3


def test_2048_by_hand():
    board = jnp.int32([[1, 1, 1, 0], [2, 0, 2, 3], [1, 1, 1, 1], [0, 0, 0, 4]])
    left, made = game_2048.slide(board, jnp.int32(3))
    np.testing.assert_array_equal(left, [[2, 1, 0, 0], [3, 3, 0, 0], [2, 2, 0, 0], [4, 0, 0, 0]])
    assert int(made) == 4 + 8 + 4 + 4
    right, _ = game_2048.slide(board, jnp.int32(1))
    np.testing.assert_array_equal(right, [[0, 0, 1, 2], [0, 0, 3, 3], [0, 0, 2, 2], [0, 0, 0, 4]])


# ---- Minesweeper


def test_minesweeper_is_the_reference():
    r = recorded("minesweeper")
    env = minesweeper.MinesweeperLevel(6, 8)
    params = env.default_params
    time = jnp.zeros(len(r["action"]), jnp.int32)
    states = minesweeper.State(time, jnp.asarray(r["mines"]), jnp.asarray(r["opened"]))
    action = r["action"].astype(int) @ [8, 1]
    obs, ts = played(env, states, jnp.asarray(action), params)
    np.testing.assert_array_equal(obs["board"], r["board"])
    np.testing.assert_array_equal(obs["action_mask"], r["board"].reshape(len(time), -1) == -1)
    np.testing.assert_array_equal(obs["num_mines"], 7)
    np.testing.assert_array_equal(ts.obs["board"], r["next_board"])
    np.testing.assert_array_equal(ts.reward, r["reward"])
    np.testing.assert_array_equal(ts.terminated, r["ended"])
    won = (r["next_board"] >= 0).sum((1, 2)) == 41
    assert r["ended"].sum() > 15 and (won & r["ended"] & (r["reward"] > 0)).sum() > 1


def test_minesweeper_levels():
    params = minesweeper.Minesweeper().default_params.replace(num_mines=jnp.int32(6))
    make = jax.jit(jax.vmap(lambda key: minesweeper.generate(key, params, 4, 5)))
    levels = make(keys(4000))
    minesweeper.validate(levels)
    mines = np.asarray(levels.mines).reshape(-1, 20)
    assert (mines.sum(1) == 6).all()
    assert abs(mines.mean(0) - 0.3).max() < 0.035
    changed = np.asarray(jax.jit(jax.vmap(minesweeper.mutate))(keys(4000), levels).mines).reshape(-1, 20)
    assert (changed.sum(1) == 6).all() and ((changed != mines).sum(1) == 2).all()
    none = minesweeper.generate(KEY, params.replace(num_mines=jnp.int32(0)), 4, 5)
    assert not none.mines.any()
    with pytest.raises(ValueError, match="without mine"):
        minesweeper.validate(levels.replace(mines=jnp.ones((4, 5), bool)))
    env = minesweeper.Minesweeper(4, 5)
    with pytest.raises(ValueError, match="num_mines=20 must be from 0 to 19"):
        env.reset(KEY, params.replace(num_mines=jnp.int32(20)))
    with pytest.raises(ValueError, match="not 4 x 5"):
        env.as_levels().reset(KEY, env.as_levels().default_params.replace(mines=jnp.zeros((5, 5), bool)))


# ---- Sokoban


@pytest.mark.slow
def test_sokoban_is_the_reference():
    r = recorded("sokoban")
    env = sokoban.SokobanLevel()
    n = len(r["action"])
    unpack = lambda x: jnp.asarray(np.unpackbits(x, axis=1, count=100).reshape(n, 10, 10).astype(bool))  # noqa: E731
    cell = lambda pair: jnp.asarray(pair.astype(np.int32) @ [10, 1], jnp.int32)  # noqa: E731
    walls, targets, boxes = (unpack(r[name]) for name in ("walls", "targets", "boxes"))
    levels = jax.vmap(lambda *x: env.default_params.replace(walls=x[0], targets=x[1], boxes=x[2], player=x[3]))(
        walls, targets, boxes, cell(r["player"])
    )
    states = jax.vmap(sokoban.started)(levels)
    obs, ts = played(env, states, jnp.asarray(r["action"]), env.default_params)
    np.testing.assert_array_equal(ts.obs[..., :3], jnp.stack([walls, targets, unpack(r["next_boxes"])], -1))
    np.testing.assert_array_equal(ts.state.player, cell(r["next_player"]))
    np.testing.assert_allclose(ts.reward, r["reward"], atol=1e-6)
    np.testing.assert_array_equal(ts.terminated, r["ended"])
    kinds, counts = np.unique(np.round(r["reward"], 1), return_counts=True)
    np.testing.assert_allclose(kinds, [-1.1, -0.1, 0.9, 10.9], atol=1e-6)
    assert counts.min() > 10
    np.testing.assert_array_equal(obs[..., 2], boxes)
    np.testing.assert_array_equal(np.asarray(obs[..., 3]).reshape(n, -1).argmax(1), cell(r["player"]))
    assert (np.asarray(obs[..., 3]).sum((1, 2)) == 1).all()


def solve(text, most=200_000):
    """Pushes of a shortest solution by A* over pushes; None where there is none. Independent of the environment."""
    grid = text.splitlines()
    floor = {(r, c) for r, line in enumerate(grid) for c, s in enumerate(line) if s != "#"}
    where = lambda symbols: {(r, c) for r, line in enumerate(grid) for c, s in enumerate(line) if s in symbols}  # noqa: E731
    targets, boxes, player = where(".*+"), frozenset(where("$*")), min(where("@+"))
    moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
    # Pushes from each cell to the nearest target, found by pulling from the targets: dead cells are missing.
    ways, queue = dict.fromkeys(targets, 0), list(targets)
    for cell in queue:
        for dr, dc in moves:
            near, far = (cell[0] + dr, cell[1] + dc), (cell[0] + 2 * dr, cell[1] + 2 * dc)
            if near in floor and far in floor and near not in ways:
                ways[near] = ways[cell] + 1
                queue.append(near)

    def walk(start, boxes):
        seen, queue = {start}, [start]
        for r, c in queue:
            for dr, dc in moves:
                to = (r + dr, c + dc)
                if to in floor and to not in boxes and to not in seen:
                    seen.add(to)
                    queue.append(to)
        return seen

    def guess(boxes):
        return sum(ways[box] for box in boxes) if all(box in ways for box in boxes) else None

    if guess(boxes) is None:
        return None
    heap, done, number = [(guess(boxes), 0, 0, boxes, player)], set(), 0
    while heap and number < most:
        _, _, pushes, boxes, player = heapq.heappop(heap)
        if boxes == targets:
            return pushes
        here = walk(player, boxes)
        if (boxes, min(here)) in done:
            continue
        done.add((boxes, min(here)))
        for r, c in boxes:
            for dr, dc in moves:
                to = (r + dr, c + dc)
                if (r - dr, c - dc) in here and to in ways and to not in boxes:
                    after = boxes - {(r, c)} | {to}
                    number += 1
                    heapq.heappush(heap, (pushes + 1 + guess(after), number, pushes + 1, after, (r, c)))
    return None


@functools.cache
def drawn(size, boxes, count):
    params = sokoban.Sokoban().default_params
    make = jax.jit(jax.vmap(lambda key: sokoban.generate(key, params, size, size, boxes, 40)))
    return jax.device_get(make(keys(count)))


def row(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "boxes", "count", "solved"), [(7, 2, 256, 40), (10, 4, 64, 8)])
def test_sokoban_levels_can_be_solved(size, boxes, count, solved):
    levels = drawn(size, boxes, count)
    sokoban.validate(levels)
    assert (levels.boxes.sum((1, 2)) == boxes).all() and (levels.targets.sum((1, 2)) == boxes).all()
    assert (levels.walls[:, [0, -1]]).all() and levels.walls[:, :, [0, -1]].all()
    assert (levels.boxes & levels.targets).any((1, 2)).mean() < 0.02
    assert size < 10 or 28 < (~levels.walls).sum((1, 2)).mean() < 35  # Boxoban's unfiltered ones have 31.7
    assert len(np.unique(levels.walls.reshape(count, -1), axis=0)) > 0.9 * count
    pushes = [solve(sokoban.to_text(row(levels, i))) for i in range(solved)]
    assert None not in pushes
    assert np.mean(pushes) > 2 * boxes  # not trivial


@pytest.mark.slow
def test_sokoban_mutations_can_be_solved():
    levels = drawn(7, 2, 256)
    changed = jax.device_get(jax.jit(jax.vmap(sokoban.mutate))(keys(256), levels))
    sokoban.validate(changed)
    opened, moved = (changed.walls != levels.walls).sum((1, 2)), (changed.boxes != levels.boxes).sum((1, 2))
    assert {*opened} == {0, 1} and {*moved} == {0, 2} and not (opened * moved).any()
    assert (opened > 0).mean() > 0.35 and (moved > 0).mean() > 0.2
    for i in np.flatnonzero(moved)[:20]:
        assert solve(sokoban.to_text(row(changed, i))) is not None


BOXOBAN = """; 0
#####
#@$.#
#####

; 1
######
# *  #
#+$  #
######
"""


@pytest.mark.slow
def test_sokoban_text():
    levels = sokoban.parse(BOXOBAN)
    assert levels.walls.shape == (2, 4, 6) and levels.max_steps.shape == (2,)
    assert sokoban.to_text(row(levels, 1)) == "######\n# *  #\n#+$  #\n######"
    assert sokoban.to_text(row(levels, 0)) == "######\n#@$.##\n######\n######"
    env = sokoban.SokobanLevel(4, 6)
    _, state = env.reset(KEY, row(levels, 0))
    ts = env.step(KEY, state, 1, row(levels, 0))
    assert float(ts.reward) == pytest.approx(10.9) and ts.terminated and not ts.truncated
    venv = vectorize(env, 2, batched_params=True)  # every slot its own level
    obs, _ = venv.reset(KEY, levels)
    assert obs.shape == (2, 4, 6, 4)


SETS = """Title: A set of levels
Author: Someone

    #####
    #---#
    #@$.#
    #####
Title: Second
Comment:
#####
#this is no level#
Comment-End:

\t###
\t#.#
\t#$###
\t#p_o#
\t#_b_#
\t#####
Solution: uUddrL
; 3
5#|#@$.#|5#
2(2#)#|#@-2(.)#|#-2$-#|6#
"""


def test_sokoban_level_sets():
    """The whole convention of XSB files: titles, comments, floors, tabs, letters, runs, rows ended by |."""
    levels = sokoban.parse(SETS)
    drawn = [sokoban.to_text(row(levels, i)) for i in range(4)]
    assert levels.walls.shape == (4, 6, 9 + 4)
    first, second, third, fourth = ([line.strip("#") for line in text.splitlines()] for text in drawn)
    assert [line for line in first if line] == ["   ", "@$."]
    assert [line for line in second if line] == [".", "$", "@ .", " $ "]
    assert [line for line in third if line] == ["@$."]
    assert [line for line in fourth if line] == ["@ ..", " $$ "]
    same = sokoban.parse("#####\n#@$.#\n#####")
    packed = sokoban.parse("5#|#@$.#|5#|")
    jax.tree.map(np.testing.assert_array_equal, packed, same)
    jax.tree.map(
        np.testing.assert_array_equal, sokoban.parse("  #####\r\n__#@$.#\r\n--#####\r\n").player, jnp.array([10])
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text has none"),
        ("Title: nothing\nAuthor: nobody\n", "the text has none"),
        ("99999999999#|#@$.#", "line 1: 99999999999 times '#' is more than 1000 symbols"),
        ("\n900(900(900(#)))", "line 2: .* is more than 1000 symbols"),
        ("5#|#@$x#|5#", "line 1: unknown symbol 'x'"),
        ("####\n#@x#\n####", "line 2: unknown symbol 'x'"),
        ("####\n# $.#\n####", "line 1: the level has 0 players"),
        ("####\n#@@$.#\n####", "line 1: the level has 2 players"),
        ("#####\n#@$ #\n#####", r"\[1\] boxes for \[0\] targets"),
        ("#####\n#@  #\n#####", r"\[0\] boxes for \[0\] targets"),
        ("#####\n#@* #\n#####", "already"),
    ],
)
def test_sokoban_bad_text(text, message):
    with pytest.raises(ValueError, match=message):
        sokoban.parse(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"player": jnp.int32(0)}, "player=0 stands in a wall or a box"),
        ({"player": jnp.int32(100)}, "player=100 must be a cell"),
        ({"walls": jnp.ones((10, 10), bool)}, "in walls"),
        ({"walls": jnp.ones((10, 9), bool)}, "not 10 x 10"),
    ],
)
def test_sokoban_bad_levels(change, message):
    env = sokoban.SokobanLevel()
    with pytest.raises(ValueError, match=message):
        env.reset(KEY, env.default_params.replace(**change))


def test_bad_settings():
    for make, message in (
        (lambda: snake.Snake(1, 5), "rows=1"),
        (lambda: game_2048.Game2048(6), "size=6"),
        (lambda: minesweeper.Minesweeper(5, 1), "columns=1"),
        (lambda: sokoban.Sokoban(rows=40), "rows=40"),
        (lambda: sokoban.Sokoban(6, 6, 5), "num_boxes=5 must be from 1 to 4"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.slow
def test_pictures():
    for env in (snake.Snake(4, 6), game_2048.Game2048(), minesweeper.Minesweeper(4, 5), sokoban.SokobanLevel()):
        _, state = env.reset(KEY, env.default_params)
        ts = env.step(KEY, state, 0, env.default_params)
        frame = env.render(ts.state, env.default_params)
        assert frame.dtype == np.uint8 and len(np.unique(frame.reshape(-1, 3), axis=0)) > 4
