"""GridWorld: GROOVE's transitions, values and level distributions; exact values by brute force; laws of the levels."""

import functools
import itertools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrl.envs.grid import sampling
from jaxrl.envs.grid.grid_world import grid_world, levels
from jaxrl.envs.grid.grid_world.grid_world import GridWorld, generate, mutate, optimal_value, validate
from jaxrl.envs.grid.maze import levels as maze_levels
from jaxrl.testing.golden import golden
from jaxrl.vector_env import vectorize

KEY = jax.random.key(0)
CASES = ("dense", "sparse", "longer", "long_dense", "small", "medium", "debug", "rand_small", "rand_dense", "rand_all")
TABULAR = CASES[:7]
draw_levels = jax.jit(jax.vmap(generate, (0, None)))


@functools.cache
def data():
    return golden("grid_world")


def case(name):
    return {k.removeprefix(f"{name}_"): v for k, v in data().items() if k.startswith(f"{name}_")}


def level_of(c):
    """The recorded level, its cells numbered as here."""
    size = c["sizes"][0]
    number = lambda pairs: jnp.asarray(pairs.astype(np.int32) @ [size, 1], jnp.int32)  # noqa: E731
    return grid_world.Level(
        max_steps=jnp.int32(c["max_steps"]),
        lifetime=jnp.int32(1),
        grid_size=jnp.int32(c["grid_size"]),
        walls=jnp.asarray(c["walls"]),
        start=number(c["start"]),
        num_objects=jnp.int32(c["n_objs"]),
        object_types=jnp.asarray(c["types"], jnp.int32),
        object_cells=number(c["cells"]),
        reward=jnp.asarray(c["reward"]),
        p_terminate=jnp.asarray(c["p_terminate"]),
        p_respawn=jnp.asarray(c["p_respawn"]),
    ), number


# ---- agreement with GROOVE's code


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("name", CASES)
def test_steps_are_the_reference(name):
    """Every recorded step with the reference's own draws, through `transition` itself."""
    c = case(name)
    level, number = level_of(c)
    env = GridWorld(family=name)
    assert env.sizes == tuple(c["sizes"]) and env.observation == ("tabular" if name in TABULAR else "maps")
    env.validate(level)
    cells = number(c["object"]) if env.moving else jnp.zeros((len(c["action"]), 0), jnp.int32)
    present = jax.vmap(grid_world.packed)(jnp.asarray(c["exists"]))
    states = grid_world.State(jnp.zeros(len(cells), jnp.int32), number(c["position"]), present, cells)

    u = np.concatenate([c["u_respawn"], c["u_end"][:, None]], 1)
    bits = (u * 2**24).astype(np.uint32) << 8
    if env.moving:
        bits = np.concatenate([bits, np.asarray(number(c["drawn"])).astype(np.uint32)], 1)
    with (
        mock.patch.object(jax.random, "bits", lambda key, shape, dtype: key),
        mock.patch.object(grid_world, "distinct", lambda bits, allowed: bits.astype(jnp.int32)),
    ):
        out = jax.vmap(env.transition, (0, 0, 0, None))(jnp.asarray(bits), states, jnp.asarray(c["action"]), level)
    np.testing.assert_array_equal(out.state.position, number(c["next_position"]))
    np.testing.assert_array_equal(
        jax.vmap(grid_world.bits_of, (0, None))(out.state.present, env.max_objects), c["next_exists"]
    )
    np.testing.assert_allclose(out.reward, c["reward_got"], atol=1e-6)
    np.testing.assert_array_equal(out.terminated, c["ended"])
    assert (np.asarray(out.reward) != 0).sum() > 5
    if env.moving:
        used = np.arange(env.max_objects) < c["n_objs"]  # the others are nowhere
        np.testing.assert_array_equal(np.asarray(out.state.cells)[:, used], number(c["next_object"])[:, used])
        assert (c["next_object"] != c["object"]).any()
    if "obs" in c:
        obs = jax.vmap(env.observe, (None, 0, None))(KEY, states.replace(time=states.time + 7), level)
        seen = np.unpackbits(c["obs"], axis=1, count=obs.shape[1] - 1)
        np.testing.assert_array_equal(obs[:, :-1], seen)
        np.testing.assert_allclose(obs[:, -1], 0.007, rtol=1e-6)


@pytest.mark.slow(but_first=2)
@pytest.mark.parametrize("name", TABULAR)
def test_values_are_the_reference(name):
    c = case(name)
    level, _ = level_of(c)
    values = jax.jit(grid_world.optimal_values)(level, jnp.int32(c["value_steps"]))
    known = np.isfinite(c["values"])
    outside = np.arange(c["sizes"][0]) >= c["grid_size"]
    known[:, outside], known[:, :, outside] = False, False
    assert known.any(axis=(1, 2)).sum() == 2 ** c["n_objs"]
    ours = np.asarray(values).reshape(known.shape)
    np.testing.assert_allclose(ours[known], c["values"][known], rtol=2e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["small", "all", "labyrinth"])
def test_levels_come_as_often_as_the_reference_draws_them(family):
    theirs = {k.removeprefix(f"levels_{family}_"): v for k, v in data().items() if k.startswith(f"levels_{family}_")}
    env = GridWorld(family=family)
    ours = draw_levels(jax.random.split(KEY, 3000), env.distribution)
    used = np.arange(env.max_objects) < ours.num_objects[:, None]
    assert (np.asarray(ours.object_cells)[~used] >= 0).all()
    pairs = {
        "n_objs": ours.num_objects,
        "grid_size": ours.grid_size,
        "walls": ours.walls.sum((1, 2)),
        "max_steps": ours.max_steps,
    }
    for name, mine in pairs.items():
        assert stats.ks_2samp(np.asarray(mine), theirs[name]).pvalue > 1e-3, name
    for name in ("reward", "p_terminate", "p_respawn"):
        for kind in range(env.num_types):
            mine = np.asarray(getattr(ours, name))[:, kind].astype(np.float16)
            assert stats.ks_2samp(mine, theirs[name][:, kind]).pvalue > 1e-3, (name, kind)
    start = np.stack(np.divmod(np.asarray(ours.start), env.max_grid), 1)
    for axis in range(2):
        assert stats.ks_2samp(start[:, axis], theirs["start"][:, axis]).pvalue > 1e-3


# ---- exact values


def tiny(key, grid=3, slots=2, steps=3):
    """A random 3 x 3 level, drawn without the kit."""
    rng = np.random.default_rng(key)
    walls = rng.random((grid, grid)) < 0.2
    free = rng.permutation(np.flatnonzero(~walls))
    return grid_world.Level(
        jnp.int32(steps), jnp.int32(1), jnp.int32(grid), jnp.asarray(walls), jnp.int32(free[0]), jnp.int32(slots),
        jnp.asarray(rng.integers(2, size=slots), jnp.int32), jnp.asarray(free[1 : slots + 1], jnp.int32),
        *(jnp.asarray(x, jnp.float32) for x in (rng.uniform(-1, 1, 2), rng.random(2), rng.random(2))),
    )  # fmt: skip


def expectimax(level, position, present, steps, discount):
    """Brute force: every action, every draw of every object, to the end."""
    if steps == 0:
        return 0.0
    walls, size = np.asarray(level.walls), int(level.grid_size)
    cells, types = np.asarray(level.object_cells), np.asarray(level.object_types)
    best = -np.inf
    for dr, dc in ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)):
        r, c = position[0] + dr, position[1] + dc
        if not (0 <= r < size and 0 <= c < size) or walls[r, c]:
            r, c = position
        value, end = 0.0, 0.0
        collected = [p and cell == r * size + c for p, cell in zip(present, cells, strict=True)]
        for i, got in enumerate(collected):
            value += got * float(level.reward[types[i]])
            end += got * float(level.p_terminate[types[i]])
        for back in itertools.product((False, True), repeat=len(cells)):
            chance, after = 1.0, []
            for i, comes in enumerate(back):
                p = float(level.p_respawn[types[i]])
                chance *= p if comes else 1 - p
                after.append((present[i] or comes) and not collected[i])
            value += (1 - end) * discount * chance * expectimax(level, (r, c), after, steps - 1, discount)
        best = max(best, value)
    return best


@pytest.mark.parametrize("seed", range(6))
def test_optimal_value_by_brute_force(seed):
    level = tiny(seed)
    discount = 1.0 if seed % 2 else 0.7
    brute = expectimax(jax.device_get(level), divmod(int(level.start), 3), [True, True], 3, discount)
    ours = jitted_value(level, jnp.float32(discount))
    assert float(ours) == pytest.approx(brute, abs=1e-5)


jitted_value = jax.jit(optimal_value)


@pytest.mark.slow
def test_no_policy_beats_the_optimal_value_and_the_greedy_one_reaches_it():
    env = GridWorld(family="debug", observation="index")
    lvs = draw_levels(jax.random.split(jax.random.key(5), 6), env.distribution)
    lvs = lvs.replace(p_respawn=lvs.p_respawn + 0.3, max_steps=jnp.full(6, 8))

    def mean_return(level, key, greedy):
        values = jax.lax.scan(
            lambda v, _: (jnp.max(grid_world.action_values(v, level), 0),) * 2,
            jnp.zeros((4, 16), jnp.float32), None, 8,
        )[1]  # fmt: skip
        values = jnp.concatenate([jnp.zeros((1, 4, 16)), values])

        def episode(key):
            reset_key, key = jax.random.split(key)
            _, state = env.reset(reset_key, level)

            def body(carry, inputs):
                state, going, total = carry
                key, t = inputs
                q = grid_world.action_values(values[7 - t], level)[:, state.present, state.position]
                action = jnp.where(greedy, jnp.argmax(q), jax.random.randint(key, (), 0, 5))
                ts = env.step(jax.random.fold_in(key, 1), state, action, level)
                return (ts.state, going & ~ts.terminated, total + going * ts.reward), None

            steps = (jax.random.split(key, 8), jnp.arange(8))
            return jax.lax.scan(body, (state, jnp.bool_(True), 0.0), steps)[0][2]

        returns = jax.vmap(episode)(jax.random.split(key, 2000))
        return returns.mean(), returns.std() / 2000**0.5

    run = jax.jit(jax.vmap(mean_return, (0, 0, None)))
    keys = jax.random.split(KEY, 6)
    best = jax.jit(jax.vmap(optimal_value))(lvs)
    mean, error = run(lvs, keys, True)
    np.testing.assert_allclose(mean, best, atol=float(4.5 * jnp.max(error)) + 1e-5)
    mean, error = run(lvs, keys, False)
    assert np.all(mean < best + 4.5 * error) and np.any(mean < best - 0.1)


@pytest.mark.slow
def test_a_level_in_larger_arrays_is_the_same_level():
    small, large = GridWorld(family="small"), GridWorld(family="small", max_grid=7, max_objects=4, num_types=4)
    level = generate(KEY, small.distribution)
    cells = lambda x: x // 6 * 7 + x % 6  # noqa: E731
    padded = level.replace(
        walls=jnp.pad(level.walls, ((0, 1), (0, 1)), constant_values=True),
        start=cells(level.start),
        object_cells=jnp.pad(cells(level.object_cells), (0, 1)),
        object_types=jnp.pad(level.object_types, (0, 1), constant_values=3),
        **{k: jnp.pad(getattr(level, k), (0, 1), constant_values=1) for k in ("reward", "p_terminate", "p_respawn")},
    )
    large.validate(padded)
    assert float(jitted_value(padded, 1.0)) == pytest.approx(float(jitted_value(level, 1.0)), rel=1e-5)
    assert large.observation_space(padded).shape == (7 * 7 * 2**4 + 1,)


# ---- laws of the levels and of moving objects


@pytest.mark.slow(but_first=8)
@pytest.mark.parametrize("family", list(levels.FAMILIES))
def test_every_family_draws_levels_that_are_valid(family):
    env = GridWorld(family=family)
    distribution = env.distribution
    need = levels.FAMILIES[family]
    assert distribution.walls.shape == (len(need.kinds), env.max_grid, env.max_grid)
    if family in ("dense", "long_dense", "rand_small", "mazes"):  # each compiles
        validate(env.default_params)
        assert env.default_params.max_steps <= max(k.max_steps[1] for k in need.kinds)
    for kind, walls in zip(need.kinds, np.asarray(distribution.walls), strict=True):
        if kind.walls:  # hexadecimal rows: as wide as the grid, and the way round they are published
            assert len(kind.walls.split()) == kind.grid_size[0]
            assert walls.any()


def test_mazes_are_the_hold_outs():
    walls = GridWorld(family="mazes").distribution.walls
    np.testing.assert_array_equal(walls[:8], maze_levels.holdouts().wall_map)
    corridor = np.asarray(walls[8])
    assert corridor[6, 1:12].all() and corridor[1:12, 1::2].all() and corridor.sum() == 6 * 11 + 5
    drawn = draw_levels(jax.random.split(KEY, 400), GridWorld(family="mazes").distribution)
    assert len(np.unique(np.asarray(drawn.walls).reshape(400, -1), axis=0)) == 9


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("family", ["small", "all", "tabular", "mazes"])
def test_drawn_and_mutated_levels_are_valid(family):
    env = GridWorld(family=family)
    lvs = draw_levels(jax.random.split(jax.random.key(1), 1000), env.distribution)
    env.validate(lvs)
    used = np.arange(env.max_objects) < lvs.num_objects[:, None]
    on_start = np.asarray(lvs.object_cells == lvs.start[:, None]) & used
    assert not on_start.any()
    changed = jax.jit(jax.vmap(mutate))(jax.random.split(jax.random.key(2), 1000), lvs)
    env.validate(changed)
    differs = np.stack(
        [
            np.asarray(changed.start != lvs.start),
            np.asarray(changed.object_cells != lvs.object_cells).any(1),
            np.asarray(changed.walls != lvs.walls).any((1, 2)),
        ]
    )
    assert differs.sum(0).max() == 1 and (differs.sum(1) > 230).all()
    if family == "tabular":
        which = np.bincount(np.asarray(lvs.grid_size), minlength=14)
        assert which[9] > 120 and which[13] > 120 and which[11] > 450


@pytest.mark.slow
def test_distinct_is_uniform_over_sequences():
    allowed = jnp.asarray([True, False, True, True, False, True])
    bits = jax.random.bits(KEY, (24_000, 3), jnp.uint32)
    drawn = np.asarray(jax.vmap(sampling.distinct, (0, None))(bits, allowed))
    kinds, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(kinds) == 24 and {*kinds.ravel()} == {0, 2, 3, 5}
    assert stats.chisquare(counts).pvalue > 1e-3
    few = np.asarray(sampling.distinct(bits[0], jnp.asarray([False, True, True, False, False, False])))
    assert {*few[:2]} == {1, 2} and few[2] == 6


@pytest.mark.slow
def test_moving_objects_appear_on_free_cells_only_and_on_all_of_them():
    env = GridWorld(family="rand_small")
    level = env.default_params.replace(p_respawn=jnp.ones(2), p_terminate=jnp.zeros(2))
    venv = vectorize(env, 64)

    @jax.jit
    def run(key):
        _, first = venv.reset(key, level)

        def body(v, key):
            action = jax.random.randint(key, (64,), 0, 5)
            ts = venv.step(key, v, action, level)
            return ts.state, (v.env, ts.state.env, ts.reward)

        return jax.lax.scan(body, first, jax.random.split(key, 3000))[1]

    before, after, reward = jax.device_get(run(KEY))
    there = (after.present[..., None] >> np.arange(4)) & 1 == 1
    assert (np.abs(reward) <= 1).all() and (reward != 0).mean() > 0.02  # no two objects on a cell
    new = there & ((before.present[..., None] >> np.arange(4)) & 1 == 0)
    walls = np.asarray(level.walls).ravel()
    where = after.cells[new]
    assert not walls[where].any()
    assert not (after.cells == after.position[..., None])[new].any()
    counts = np.bincount(where, minlength=49)
    assert (counts[~walls] > 0.5 * counts.sum() / 47).all()
    sorted_cells = np.sort(after.cells.reshape(-1, 4), 1)
    assert (np.diff(sorted_cells) > 0).all()


@pytest.mark.slow
def test_a_new_level_in_each_episode():
    env = GridWorld(family="small")
    venv = vectorize(env, 32, level_fn=generate)
    obs, vstate = jax.jit(venv.reset)(KEY, env.distribution)
    assert obs.shape == (32, 6 * 6 * 8 + 1)
    assert len(np.unique(np.asarray(vstate.params.start))) > 5
    validate(vstate.params)
    ts = jax.jit(venv.step)(KEY, vstate, jnp.zeros(32, jnp.int32), env.distribution)
    assert env.observation_space(vstate.params).shape == ts.obs.shape[1:]


# ---- bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": jnp.int32(121)}, "start=.*cells of the grid"),
        ({"grid_size": jnp.int32(5)}, "object_cells=.*cells of the grid of size 5"),
        ({"grid_size": jnp.int32(12)}, "grid_size=12 must be from 1 to 11"),
        ({"walls": jnp.zeros((11, 11), bool).at[0, 0].set(True)}, "start=.*wall"),
        ({"walls": jnp.zeros((11, 11), bool).at[1, 3].set(True)}, "object_cells=.*wall"),
        ({"object_cells": jnp.int32([5, 5, 7, 8])}, "share a cell"),
        ({"object_types": jnp.int32([0, 0, 0, 3])}, "object_types=.*from 0 to 2"),
        ({"p_terminate": jnp.float32([0, 1.5, 0])}, "p_terminate=.*from 0 to 1"),
        ({"num_objects": jnp.int32(5)}, "num_objects=5 must be from 0 to 4"),
        ({"max_steps": jnp.int32(0)}, "max_steps=0"),
        ({"reward": jnp.float32([1, jnp.nan, 0])}, "finite"),
        ({"walls": jnp.zeros((13, 13), bool)}, "walls .*size 11"),
        ({"reward": jnp.zeros(2)}, "reward .*size 3"),
    ],
)
def test_bad_levels(change, message):
    env = GridWorld()
    with pytest.raises(ValueError, match=message):
        env.reset(KEY, env.default_params.replace(**change))


def test_bad_settings():
    with pytest.raises(ValueError, match="family='dens'"):
        GridWorld(family="dens")
    with pytest.raises(ValueError, match="max_grid=4 does not hold"):
        GridWorld(family="small", max_grid=4)
    with pytest.raises(ValueError, match="observation='onehot'"):
        GridWorld(observation="onehot")


@pytest.mark.slow
def test_picture():
    for family in ("long_dense", "rand_small"):
        env = GridWorld(family=family)
        _, state = env.reset(KEY, env.default_params)
        frame = env.render(state, env.default_params)
        assert frame.shape == (400, 400, 3) and len(np.unique(frame.reshape(-1, 3), axis=0)) > 5
