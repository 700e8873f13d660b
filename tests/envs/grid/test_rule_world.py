"""Rule worlds: xminigrid's trajectories, laws of trials, solvable rulesets, a benchmark without repetitions."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.grid.rule_world import benchmarks, rule_world, rules, rulesets, search
from jaxrl.envs.grid.rule_world import rooms as layouts
from jaxrl.envs.grid.rule_world.rules import Ruleset
from jaxrl.testing.golden import golden
from jaxrl.vector_env import vectorize

KEY = jax.random.key(0)
LAYOUTS = ("R1-9x9", "R2-9x9", "R4-9x9", "R6-13x13", "R9-16x16")
GREY_WALL, NOTHING = 2 << 4 | 6, 1 << 4 | 7
RED_BALL, BLUE_KEY, PINK_HEX, GREEN_GOAL = (3, 1), (7, 3), (11, 11), (6, 2)


@functools.cache
def data(layout):
    return {key.removeprefix(f"{layout}_"): x for key, x in golden("rule_world").items() if key.startswith(layout)}


def weights(n):
    return np.random.Generator(np.random.PCG64(n)).integers(0, 1 << 31, n, np.uint32) * 2 + 1


def ruleset(goal=(), rules=(), objects=()):
    rows = [[*row, *[0] * (7 - len(row))] for row in rules] or [[0] * 7]
    goal = [*goal, *[0] * (5 - len(goal))]
    return Ruleset(*(jnp.asarray(x, jnp.uint8) for x in (goal, rows, objects or [(0, 0)])))


def flat(*parts):
    return tuple(int(x) for part in parts for x in np.ravel(part))


def at(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


NAMES = ("trivial-1m", "small-1m", "medium-1m", "high-1m")
NUMBERS = np.array([999, 4_321, 77_777, 500_000, 654_321, 999_999, *range(194)])


@functools.cache
def facts(name):
    """`(ruleset, fingerprint, depth, needed rules, needed tiles)` of 200 of a benchmark."""
    bench = benchmarks.benchmark(name)

    def look(index):
        task = bench.ruleset(index)
        return task, benchmarks.fingerprint(task), rulesets.depth(task), *rulesets.needed_tiles(task)

    return jax.device_get(jax.jit(jax.vmap(look))(jnp.asarray(NUMBERS)))


def drawn(name):
    return facts(name)[0]


def codes(tiles):
    return tiles[..., 0].astype(int) << 4 | tiles[..., 1]


# ---- agreement with xminigrid


@functools.cache
def player(size):
    """Steps of a batch of tasks; no layout matters until a reset."""
    env = rule_world.RuleWorld("R1", size, "small", meta=False, params_are_level=True)
    grid_weights, image_weights = jnp.asarray(weights(size**2)), jnp.asarray(weights(25))

    def step(state, action, level):
        ts = env.step(KEY, state, action, level)
        s, image = ts.state, rules.packed(ts.obs["image"])
        sums = [
            jnp.sum(x.astype(jnp.uint32) * w, dtype=jnp.uint32)
            for x, w in ((s.grid[:-1], grid_weights), (image.reshape(-1), image_weights))
        ]
        return s, (s.position, s.direction, s.pocket, ts.terminated, *sums, ts.reward, image)

    return jax.jit(lambda state, actions, level: jax.lax.scan(lambda s, a: jax.vmap(step)(s, a, level), state, actions))


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_trajectories_are_the_reference_s(layout):
    want = data(layout)
    n, size = want["grid"].shape[:2]
    env = rule_world.RuleWorld(layout[:2], size, "small", meta=False, params_are_level=True)
    tasks = Ruleset(*(jnp.asarray(want[name]) for name in ("goal", "rules", "objects")))
    env.validate(env.level(tasks))
    limit = jnp.full(n, 3 * size**2)
    level, zero = rule_world.Level(limit, limit, tasks), jnp.zeros(n, jnp.int32)
    grid = jnp.pad(jnp.asarray(want["grid"]).reshape(n, -1), ((0, 0), (0, 1)))
    objects = rules.packed(tasks.objects).astype(jnp.uint8)
    words = rules.take_apart(tasks.rules).words()
    start = (jnp.asarray(want[name], jnp.int32) for name in ("position", "direction"))
    state = rule_world.State(zero, zero, jnp.zeros((n, 2), jnp.uint32), grid, *start, zero, tasks.goal, words, objects)

    last, rows = player(size)(state, jnp.asarray(want["action"].T), level)
    names = ("positions", "directions", "pocket", "reached", "grid_sum", "image_sum")
    for name, got in zip(names, rows, strict=False):
        np.testing.assert_array_equal(np.asarray(got).T, want[name], err_msg=name)
    # From jax 0.12 on product and difference are rounded once, where the reference and jax before it round twice.
    atol = 1.2e-7 if (0, 10) <= jax.__version_info__ < (0, 12) else 2.4e-7
    np.testing.assert_allclose(np.asarray(rows[-2]).T, want["reward"], atol=atol)
    np.testing.assert_array_equal(np.asarray(last.grid)[:, :-1].reshape(n, size, size), want["last_grid"])
    np.testing.assert_array_equal(rows[-1][-1], want["last_image"])


def test_golden_runs_have_every_goal_and_rule():
    runs = [data(layout) for layout in LAYOUTS]
    reached = np.concatenate([want["goal"][want["reached"].any(1), 0] for want in runs])
    assert set(reached.tolist()) == set(range(1, 15))
    assert set(np.concatenate([want["rules"][..., 0].ravel() for want in runs]).tolist()) == set(range(12))
    assert sum(len(want["goal"]) for want in runs) >= 100


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rooms_are_the_reference_s(layout):
    grids = data(layout)["grid"].reshape(len(data(layout)["grid"]), -1)
    rooms = layouts.rooms(layout[:2], data(layout)["grid"].shape[1])
    is_door = grids >> 4 == 9
    np.testing.assert_array_equal(
        (grids == GREY_WALL) | is_door, np.tile(rooms.grid[:-1] == GREY_WALL, (len(grids), 1))
    )
    assert (is_door.sum(1) == len(rooms.doors)).all() and np.isin(grids[is_door] & 15, range(1, 7)).all()
    for choices in rooms.doors:
        assert (is_door[:, choices].sum(1) == 1).all()
        assert is_door[:, choices].any(0).mean() > 0.6  # all of them are doors at times


# ---- trials


@functools.partial(jax.jit, static_argnums=0)
def start(env, params):
    return env.reset(KEY, params)


@functools.cache
def hold_world(layout="R4", size=9, **settings):
    """Hold the red ball; a key turns into a ball in hand."""
    env = rule_world.RuleWorld(layout, size, "trivial", params_are_level=True, **settings)
    task = ruleset(flat(1, RED_BALL), [flat(1, BLUE_KEY, RED_BALL)], [RED_BALL, BLUE_KEY, PINK_HEX, GREEN_GOAL])
    return env, env.level(task), jax.jit(env.step)


def facing(state, cell, size, tile):
    """The agent left of a cell with a tile, looking at it."""
    grid = state.grid.at[cell].set(tile[0] << 4 | tile[1]).at[cell - 1].set(NOTHING)
    return state.replace(grid=grid, position=jnp.int32(cell - 1), direction=jnp.int32(1))


def test_a_goal_starts_a_trial():
    env, level, step = hold_world()
    _, state = start(env, level)
    state = facing(state.replace(time=jnp.int32(7), trial_time=jnp.int32(4)), 2 * 9 + 3, 9, BLUE_KEY)
    ts = step(KEY, state, jnp.int32(3), level)
    assert bool(ts.info["trial_ended"]) and bool(ts.info["success"]) and not ts.terminated and not ts.truncated
    assert float(ts.reward) == pytest.approx(1 - 0.9 * 5 / 243)
    new = ts.state
    assert int(new.time) == 8 and int(new.trial_time) == 0 and int(new.pocket) == 0
    tiles = np.asarray(new.grid)
    assert sorted(tiles[(tiles >> 4 > 2) & (tiles >> 4 != 9)]) == sorted(np.asarray(new.objects))
    assert tiles[int(new.position)] == NOTHING and (tiles >> 4 == 9).sum() == 4
    assert not np.array_equal(new.seed, state.seed)
    # Any key leads to the same trial, another seed to another one.
    same = step(jax.random.key(5), state, jnp.int32(3), level).state
    np.testing.assert_array_equal(same.grid, new.grid)
    other = step(KEY, state.replace(seed=state.seed + 1), jnp.int32(3), level).state
    assert not np.array_equal(other.grid, new.grid)


def test_a_trial_has_its_time():
    env, level, step = hold_world()
    level = level.replace(trial_steps=jnp.int32(10))
    _, state = start(env, level)
    for t in range(1, 22):
        ts = step(KEY, state, jnp.int32(1), level)
        assert bool(ts.info["trial_ended"]) == (t % 10 == 0) and float(ts.reward) == 0 and not ts.info["success"]
        assert bool(np.array_equal(ts.state.grid, state.grid)) == (t % 10 != 0)
        state = ts.state
    assert int(state.time) == 21 and int(state.trial_time) == 1


def test_without_meta_the_goal_ends_the_episode():
    env, level, step = hold_world(meta=False)
    level = level.replace(trial_steps=jnp.int32(10))
    _, state = start(env, level)
    before = facing(state.replace(time=jnp.int32(4), trial_time=jnp.int32(4)), 2 * 9 + 3, 9, RED_BALL)
    ts = step(KEY, before, jnp.int32(3), level)
    assert ts.terminated and not ts.truncated and float(ts.reward) == pytest.approx(1 - 0.9 * 5 / 10)
    assert int(ts.state.pocket) == 3 << 4 | 1  # as it was reached
    ts = step(KEY, before.replace(trial_time=jnp.int32(9)), jnp.int32(1), level)
    assert ts.truncated and not ts.terminated


@pytest.mark.slow
def test_batches_do_what_single_steps_do():
    """Rules and trials are computed for few entries at a time: alone, in a batch, in a batch of batches."""
    env, level, step = hold_world()
    level = level.replace(trial_steps=jnp.int32(5))
    states = jax.jit(jax.vmap(lambda key: env.reset(key, level)[1]))(jax.random.split(KEY, 40))
    states = states.replace(trial_time=jnp.arange(40) % 5)
    many = jax.jit(jax.vmap(env.step, (None, 0, 0, None)))
    nested = jax.jit(jax.vmap(jax.vmap(env.step, (None, 0, 0, None)), (None, 0, None, None)))
    folded = jax.tree.map(lambda x: x.reshape(2, 20, *x.shape[1:]), states)
    rng, changed = np.random.default_rng(0), 0
    for _ in range(6):
        actions = jnp.asarray(rng.integers(0, 6, 20))
        ts = many(KEY, states, jnp.tile(actions, 2), level)
        folded = nested(KEY, folded, actions, level).state
        assert all(
            np.array_equal(x.reshape(-1, *x.shape[2:]), y)
            for x, y in zip(jax.tree.leaves(folded), jax.tree.leaves(ts.state), strict=True)
        )
        for i in (0, 13, 39):
            alone = step(KEY, at(states, i), actions[i % 20], level)
            for x, y in zip(jax.tree.leaves(alone), jax.tree.leaves(at(ts, i)), strict=True):
                np.testing.assert_array_equal(x, y)
        changed += int(ts.info["trial_ended"].sum())
        states = ts.state
    assert changed >= 40


@pytest.mark.slow
def test_rules_act_in_their_order():
    """ball -> key -> hex in one step where the rules stand in that order, in two where they do not."""
    env = rule_world.RuleWorld("R1", 5, "trivial", params_are_level=True)
    chain = [flat(2, RED_BALL, BLUE_KEY), flat(2, BLUE_KEY, PINK_HEX)]
    step = jax.jit(env.step)
    for ordered, tiles in ((chain, (PINK_HEX,)), (chain[::-1], (BLUE_KEY, PINK_HEX))):
        level = env.level(ruleset((0,), ordered, [RED_BALL]))
        state = facing(start(env, level)[1], 12, 5, RED_BALL)
        for shape, color in tiles:
            state = step(KEY, state, jnp.int32(0), level).state  # it cannot enter, but a step forward it is
            assert int(state.grid[12]) == shape << 4 | color


def test_places_are_uniform():
    """6,000 trials of two objects and the agent on nine cells: every cell, and every pair of cells, as often."""
    layout, n = layouts.rooms("R1", 5), 6000
    objects = jnp.asarray([0x31, 0x42], jnp.uint8)
    bits = jax.random.bits(KEY, (n, layouts.num_words(layout, 2)), jnp.uint32)
    grid, position, direction, _ = jax.jit(jax.vmap(lambda bits: layouts.places(bits, objects, layout)))(bits)
    cells = [np.argmax(np.asarray(grid) == tile, 1) for tile in (0x31, 0x42)] + [np.asarray(position)]
    assert all(np.isin(where, layout.floor).all() for where in cells)
    kinds = np.unique(np.stack(cells), axis=1, return_counts=True)[1]
    assert len(kinds) == 9 * 8 * 7
    for counts in (kinds, np.bincount(direction)):
        freedom, statistic = len(counts) - 1, np.sum((counts - counts.mean()) ** 2 / counts.mean())
        assert abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)


@pytest.mark.slow
def test_what_is_seen():
    env, level, _ = hold_world(mission="rules", show_trials=True)
    obs, state = start(env, level)
    space = env.observation_space(level)
    assert space.contains(obs) and obs["mission"].shape == (12,) and int(obs["trial_start"]) == 1
    np.testing.assert_array_equal(obs["mission"], [*flat(1, RED_BALL), 0, 0, *flat(1, BLUE_KEY, RED_BALL), 0, 0])
    later = env.observe(KEY, state.replace(trial_time=jnp.int32(3)), level)
    assert int(later["trial_start"]) == 0
    goal = dataclasses.replace(env, mission="goal")
    np.testing.assert_array_equal(goal.observe(KEY, state, level)["mission"], obs["mission"][:5])
    hidden = dataclasses.replace(env, mission="hidden", show_trials=False)
    assert set(hidden.observe(KEY, state, level)) == {"image", "direction"}
    # A ball two cells ahead, for each direction; the agent is in the last row and does not see what it carries.
    for direction, ahead in enumerate((-18, 2, 18, -2)):
        view = state.replace(
            grid=state.grid.at[20].set(NOTHING).at[20 + ahead].set(0x31),
            position=jnp.int32(20),
            direction=jnp.int32(direction),
            pocket=jnp.int32(0x42),
        )
        image = np.asarray(env.observe(KEY, view, level)["image"])
        assert image[2, 2].tolist() == [3, 1] and image[4, 2].tolist() == [1, 7]


# ---- rulesets


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("name", NAMES)
def test_drawn_rulesets(name):
    tasks, _, depth, main, tiles = facts(name)
    config = rulesets.CONFIGS[name[:-3]]
    rules.validate(tasks)
    assert tasks.rules.shape[1:] == (config.num_rules, 7) and tasks.objects.shape[1:] == (config.num_objects, 2)
    assert depth.max() == config.depth and (depth == config.depth).mean() > 0.7
    kind = tasks.rules[..., 0]
    distractors = ((kind > 0) & ~main).sum(1)
    assert set(distractors.tolist()) == set(range(config.distractor_rules + 1))
    two = (kind >= 3) & (kind <= 7)
    a, b, c = (codes(tasks.rules[..., i : i + 2]) for i in (1, 3, 5))
    product, objects = np.where(two, c, b), codes(tasks.objects)
    for i in range(len(depth)):
        inputs = [*a[i][main[i]], *b[i][main[i] & two[i]]]
        assert len(set(inputs)) == len(inputs)
        # Each needed tile is made once or lies there once.
        needed = np.flatnonzero(tiles[i])
        assert sorted([*product[i][main[i]], *objects[i][np.isin(objects[i], needed)]]) == needed.tolist()
    # Goal tiles take no directions.
    assert not (kind[a >> 4 == rules.GOAL] > 3).any()


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("name", NAMES)
def test_drawn_rulesets_can_be_solved(name):
    plans = [search.solve(at(drawn(name), i)) for i in range(25)]
    assert all(plan is not None for plan in plans)
    config = rulesets.CONFIGS[name[:-3]]
    assert max(len(plan.steps) for plan in plans if plan) > 2 * config.depth


def test_search_finds_traps():
    hold = flat(1, RED_BALL)
    trap = [flat(2, RED_BALL, PINK_HEX)]
    assert search.solve(ruleset(hold, [], [RED_BALL])).steps == ["take red ball"]
    assert search.solve(ruleset(hold, trap, [RED_BALL])) is None  # whoever comes near has a hex
    sided = [flat(8, RED_BALL, PINK_HEX)]
    assert search.solve(ruleset(hold, sided, [RED_BALL])) is not None  # from another side it stays a ball
    assert search.solve(ruleset(hold, [flat(3, BLUE_KEY, PINK_HEX, RED_BALL)], [BLUE_KEY, PINK_HEX])).steps[-1] == (
        "take red ball"
    )
    assert search.solve(ruleset(hold, [flat(3, BLUE_KEY, PINK_HEX, RED_BALL)], [BLUE_KEY])) is None
    assert search.solve(ruleset(flat(11, GREEN_GOAL), [], [GREEN_GOAL])) is not None
    assert search.solve(ruleset(flat(2, RED_BALL), [], [RED_BALL])) is None  # nobody can stand on it
    assert search.solve(ruleset(flat(2, GREEN_GOAL), [], [GREEN_GOAL])) is not None
    with pytest.raises(ValueError, match="asks for a place"):
        search.solve(ruleset((6, 1, 1)))


@pytest.mark.slow
def test_mutations_are_sound():
    tasks = drawn("medium-1m")
    mutate, mutated = jax.jit(jax.vmap(rulesets.mutate)), tasks
    for i in range(4):
        mutated = jax.device_get(mutate(jax.random.split(jax.random.key(i), 200), mutated))
        rules.validate(mutated)
    pairs = zip(jax.tree.leaves(mutated), jax.tree.leaves(tasks), strict=True)
    assert all((x.shape, x.dtype) == (y.shape, y.dtype) for x, y in pairs)
    assert all(search.solve(at(mutated, i)) is not None for i in range(60))
    # Every kind of change occurs.
    needed = jax.jit(jax.vmap(rulesets.needed_tiles))
    before, after = (np.asarray(needed(x)[0]).sum(1) for x in (tasks, mutated))
    count = [(x.rules[..., 0] > 0).sum(1) - m for x, m in ((tasks, before), (mutated, after))]
    assert (after > before).any()
    assert (count[1] > count[0]).any() and (count[1] < count[0]).any()
    assert (mutated.goal != tasks.goal).any() and (mutated.goal[:, 1:] == tasks.goal[:, 1:]).all()
    assert (mutated.objects != tasks.objects).any()


# ---- the benchmark


@pytest.mark.slow
def test_benchmarks_are_as_committed():
    """The same rulesets on every machine and under every jax."""
    for name in NAMES:
        assert len(benchmarks.benchmark(name)) == 1_000_000
        _, prints, *_ = facts(name)
        assert len(np.unique(prints, axis=0)) == len(NUMBERS)
        assert int(np.bitwise_xor.reduce(prints[:, 0])) == FINGERPRINTS[name], name


FINGERPRINTS = {
    "trivial-1m": 693530488,
    "small-1m": 3160711156,
    "medium-1m": 2767305908,
    "high-1m": 2974331176,
}


@pytest.mark.slow
def test_repeated_draws_are_skipped():
    bench = benchmarks.benchmark("trivial-1m")
    skipped = np.asarray(bench.skipped)
    numbers = skipped + np.arange(skipped.size)  # of the candidates that repeat an earlier one
    assert 1000 < skipped.size < 20_000 and (np.diff(numbers) > 0).all()
    print_of = jax.jit(jax.vmap(lambda i: benchmarks.fingerprint(benchmarks.candidate("trivial-1m", i))))
    taken = jax.jit(jax.vmap(lambda i: benchmarks.fingerprint(bench.ruleset(i))))
    # The first two thousand rulesets are the candidates without those, in order.
    kept = np.setdiff1d(np.arange(2000 + np.sum(numbers < 2100)), numbers)[:2000]
    np.testing.assert_array_equal(taken(jnp.arange(2000)), print_of(jnp.asarray(kept)))
    middle = int(numbers[skipped.size // 2])  # and around a repeated one far on
    index = middle - skipped.size // 2
    around = jnp.asarray([middle - 1, middle + 1]) if middle + 1 not in numbers and middle - 1 not in numbers else None
    if around is not None:
        np.testing.assert_array_equal(taken(jnp.asarray([index - 1, index])), print_of(around))


@pytest.mark.slow
def test_benchmark_parts():
    bench = benchmarks.benchmark("small-1m")
    train, test = bench.split(0.9)
    assert (len(train), len(test)) == (900_000, 100_000)
    pick = jax.jit(lambda i, j: (bench.ruleset(i), test.ruleset(i - 900_000), bench.ruleset(899_999), train.ruleset(j)))
    parts = [jnp.concatenate([x.ravel() for x in jax.tree.leaves(task)]) for task in pick(900_123, 10**9)]
    np.testing.assert_array_equal(parts[0], parts[1])
    np.testing.assert_array_equal(parts[2], parts[3])
    batch = jax.jit(jax.vmap(lambda key: test.sample(key).goal))(jax.random.split(KEY, 5))
    assert len(np.unique(batch, axis=0)) > 1
    with pytest.raises(ValueError, match="both parts of 1000000"):
        bench.split(1.0)
    with pytest.raises(ValueError, match="choose one of trivial-1m, small-1m"):
        benchmarks.benchmark("small")


def test_fingerprints_tell_rulesets_apart():
    task = ruleset(flat(4, RED_BALL, BLUE_KEY), [flat(2, PINK_HEX, RED_BALL)], [PINK_HEX, BLUE_KEY, (0, 0)])
    swapped = task.replace(objects=task.objects[::-1])
    fingerprint = jax.jit(benchmarks.fingerprint)
    np.testing.assert_array_equal(fingerprint(task), fingerprint(swapped))
    for i in range(5):
        other = task.replace(goal=task.goal.at[i].add(1))
        assert not np.array_equal(fingerprint(task), fingerprint(other))


# ---- bad input, words, pictures, batches


def test_errors():
    good = ruleset(flat(1, RED_BALL), [flat(2, BLUE_KEY, RED_BALL)], [BLUE_KEY])
    bad = {
        "a goal of kind 15": good.replace(goal=good.goal.at[0].set(15)),
        "a rule of kind 12": good.replace(rules=good.rules.at[0, 0].set(12)),
        r"goal tile \[13, 1\]": good.replace(goal=good.goal.at[1].set(13)),
        "goal tile 'grey wall'": ruleset(flat(1, (2, 6)), [], [BLUE_KEY]),
        "input of a rule 'grey wall' may not be one of empty, wall": ruleset((0,), [flat(2, (2, 6), RED_BALL)]),
        r"product \[3, 12\]": ruleset((0,), [flat(2, RED_BALL, (3, 12))]),
        "the goal's place is outside of the 9 x 9": ruleset((6, 9, 1)),
        "rules has shape": good.replace(rules=good.rules[:, :6]),
        "goal is float32": good.replace(goal=good.goal.astype(jnp.float32)),
    }
    env = rule_world.RuleWorld("R4", 9, "trivial", params_are_level=True)
    for message, task in bad.items():
        with pytest.raises(ValueError, match=message):
            env.reset(KEY, env.level(task))
    crowd = ruleset((0,), [], [RED_BALL] * 36)
    with pytest.raises(ValueError, match="36 objects and the agent do not fit on 36 cells"):
        env.reset(KEY, env.level(crowd))
    with pytest.raises(ValueError, match="trial_steps=0 must be at least 1"):
        env.reset(KEY, env.level(good).replace(trial_steps=jnp.int32(0)))
    for settings, message in (
        ({"layout": "R3"}, "choose one of R1, R2"),
        ({"layout": "R4", "size": 10}, "has no size=10"),
        ({"layout": "R9", "size": 15}, "7, 10, 13"),
        ({"layout": "R6", "size": 7}, "R6: from 9"),
        ({"rulesets": "huge"}, "choose one of trivial, small"),
        ({"rulesets": rulesets.Config(4, 0.1, 0, 0)}, "depth is from 0 to 3"),
        ({"mission": "all"}, "'hidden', 'goal' or 'rules'"),
        ({"view_size": 4}, "view_size=4 must be odd"),
        ({"view_size": 1}, "view_size=1 must be from 3 to 29"),
    ):
        with pytest.raises(ValueError, match=message):
            rule_world.RuleWorld(**settings)


def test_words():
    task = ruleset(
        flat(8, RED_BALL, BLUE_KEY), [flat(1, PINK_HEX, RED_BALL), flat(5, (4, 5), GREEN_GOAL, (1, 7))], [PINK_HEX]
    )
    assert rules.describe(task).splitlines() == [
        "goal: put blue key right of red ball",
        "rule: pink hex in hand -> red ball",
        "rule: green goal right of yellow square -> nothing",
        "objects: pink hex",
    ]
    assert rules.describe(ruleset(flat(5, RED_BALL, (3, 4)))).splitlines()[0] == "goal: red ball at (3, 4)"
    assert rules.describe(ruleset((6, 3, 4))).splitlines()[0] == "goal: stand at (3, 4)"
    assert rules.describe(ruleset(flat(12, RED_BALL))).splitlines()[0] == "goal: stand left of red ball"


def test_pictures():
    env, level, _ = hold_world()
    _, state = start(env, level)
    picture = env.render(state, level)
    assert picture.shape == (288, 288, 3) and picture.dtype == np.uint8
    row, column = np.arange(13)[:, None], np.arange(12)[None, :]
    shown = rule_world.RuleWorld("R9", 16, "trivial")
    grid = jnp.zeros((16, 16), jnp.uint8).at[:13, :12].set(jnp.asarray(row << 4 | column, jnp.uint8))
    state = state.replace(grid=jnp.append(grid.reshape(-1), 0).astype(jnp.uint8), position=jnp.int32(255))
    tiles = (
        shown.render(state, shown.default_params)
        .reshape(16, 32, 16, 32, 3)
        .swapaxes(1, 2)[:13, :12]
        .reshape(-1, 32 * 32 * 3)
    )
    assert len(np.unique(tiles, axis=0)) >= 12 * 12 + 1  # all empties but the coloured floors differ from each other


@pytest.mark.slow
def test_a_batch_of_tasks():
    """Every slot its own ruleset, a new one each episode."""
    env = rule_world.RuleWorld("R1", 5, rulesets.Config(1, 0.3, 0, 0), params_are_level=True)
    params = rule_world.Params(jnp.int32(4), jnp.int32(4))
    venv = vectorize(env, 8, level_fn=env.generate)
    _, state = jax.jit(venv.reset)(KEY, params)
    first = state.params.ruleset.goal
    step = jax.jit(venv.step)
    for t in range(4):
        ts = step(jax.random.fold_in(KEY, t), state, jnp.ones(8, jnp.int32), params)
        state = ts.state
    assert bool(ts.truncated.all()) and not bool(ts.terminated.any())
    assert np.any(np.asarray(state.params.ruleset.goal) != np.asarray(first))
    np.testing.assert_array_equal(state.env.goal, state.params.ruleset.goal)


# ---- search in the world itself


def play_to_the_goal(env, task, steps, width=6000, key=KEY):
    """Whether a search over states of the world, best first by how many needed rules are still to be used, reaches the
    goal: `width` states of every length, none twice."""
    level = env.level(task)
    _, state = env.reset(key, level)
    rule, used = rules.take_apart(task.rules), rulesets.needed_tiles(task)[0]

    def missing(state):
        present = jnp.zeros(256, bool).at[state.grid].set(True).at[state.pocket].set(True)
        cost = jnp.where(present, 0, 1000).at[0].set(0)
        for _ in range(4):
            new = jnp.where(used, 1 + cost[rule.a] + cost[rule.b], 1000)
            cost = cost.at[rule.product].min(new.astype(cost.dtype))
        return cost[rules.packed(task.goal[1:3])] + cost[rules.packed(task.goal[3:5])]

    @jax.jit
    def expand(states):
        def one(state, action):
            grid, position, direction, pocket, reached = rule_world.move(state, action, env.size)
            new = state.replace(grid=grid, position=position, direction=direction, pocket=pocket)
            numbers = jnp.concatenate([grid[:-1].astype(jnp.uint32), jnp.stack([position, direction, pocket])])
            mark = [jnp.sum(numbers.astype(jnp.uint32) * jnp.asarray(weights(n)[: numbers.size])) for n in (999, 998)]
            return new, reached, missing(new), jnp.stack(mark)

        return jax.vmap(lambda s: jax.vmap(lambda a: one(s, a))(jnp.arange(6)))(states)

    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (width, *x.shape)), state)
    seen, live, rng = np.zeros(0, np.uint64), 1, np.random.default_rng(0)
    for _ in range(steps):
        new, reached, left, mark = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), expand(states))
        if np.asarray(reached)[: 6 * live].any():
            return True
        mark = np.asarray(mark)[: 6 * live].astype(np.uint64)
        mark = mark[:, 0] << np.uint64(32) | mark[:, 1]
        _, first = np.unique(mark, return_index=True)
        first = first[~np.isin(mark[first], seen)]
        if not len(first):
            return False
        order = first[np.lexsort((rng.random(len(first)), np.asarray(left)[first]))][:width]
        seen, live = np.union1d(seen, mark[order]), len(order)
        rows = np.resize(order, width)
        states = jax.tree.map(lambda x, rows=rows: x[rows], new)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trivial-1m", "small-1m", "medium-1m"])
def test_drawn_rulesets_are_solved_in_the_world(name):
    """Without distractors that only slow the search down: strays stay, their rules too."""
    env = rule_world.RuleWorld("R1", 7, "small", params_are_level=True)
    solved = [play_to_the_goal(env, at(jax.tree.map(jnp.asarray, drawn(name)), i), 150) for i in range(6)]
    assert all(solved), solved


@pytest.mark.slow
def test_a_trap_is_one_in_the_world():
    env = rule_world.RuleWorld("R1", 7, "small", params_are_level=True)
    trap = ruleset(flat(1, RED_BALL), [flat(2, RED_BALL, PINK_HEX)], [RED_BALL])
    free = ruleset(flat(1, RED_BALL), [flat(8, RED_BALL, PINK_HEX)], [RED_BALL])
    key = jax.random.key(3)
    _, state = env.reset(key, env.level(trap))
    ball = int(jnp.argmax(state.grid == (3 << 4 | 1)))
    assert abs(ball - int(state.position)) not in (1, 7)  # who starts beside it can take it
    assert [play_to_the_goal(env, task, 60, key=key) for task in (trap, free)] == [False, True]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_drawn_rulesets_can_be_solved(name):
    draw = jax.jit(jax.vmap(lambda key: rulesets.generate(key, name[:-3])))
    tasks = jax.device_get(draw(jax.random.split(jax.random.key(1), 1000)))
    assert all(search.solve(at(tasks, i)) is not None for i in range(1000))
