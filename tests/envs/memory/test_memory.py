"""Tasks that need memory: agreement with POPGym, POBAX and Memory-RL, closed forms, random starts, masked parts."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.envs.memory import battleship, compass_world, count_recall, rock_sample, tmaze
from jaxrl.envs.memory.cards import face
from jaxrl.envs.memory.ids import CARDS, LEVELS, MASKED
from jaxrl.envs.memory.masked import SHOWN
from jaxrl.testing.golden import golden
from jaxrl.wrappers import Observed

KEY = jax.random.key(0)
GAMES = [f"{game}{level}-v0" for game in CARDS for level in LEVELS]


@functools.cache
def stored():
    return golden("memory")


def case(name):
    return {key.removeprefix(name + "/"): x for key, x in stored().items() if key.startswith(name + "/")}


def zeros(data):
    return jnp.zeros(len(data["action"]), jnp.int32)


# ---- what the references do


@pytest.mark.parametrize("id", [pytest.param(id, marks=[pytest.mark.slow] * ("Medium" in id)) for id in GAMES])
def test_card_games_are_popgyms(id):
    """Whole episodes on the cards that POPGym drew, in float64."""
    data = case(id)
    env, params = jaxrl.make(id)
    kind = getattr(env, "kind", "suits")
    values = {
        name: face(jnp.asarray(data[name]), kind).astype(jnp.int8) for name in ("cards", "queries") if name in data
    }

    def play(values, actions):
        state = env.initial(KEY, params).replace(**values)
        if "queries" in values:
            state = count_recall.start(values["cards"], values["queries"], env.num_values)

        def step(state, action):
            ts = env.step(KEY, state, action, params)
            return ts.state, (ts.obs, ts.reward, ts.terminated, ts.info["success"])

        return env.observe(KEY, state, params), jax.lax.scan(step, state, actions)[1]

    with jax.enable_x64(True):
        first, (obs, reward, terminated, success) = jax.jit(jax.vmap(play))(values, data["action"].astype(int))
    np.testing.assert_array_equal(np.concatenate([first[:, None], obs], 1), data["obs"])
    np.testing.assert_allclose(reward, data["reward"], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(terminated, data["end"])
    np.testing.assert_array_equal(success, data["reward"] > 0)
    assert terminated[:, -1].all() and not terminated[:, :-1].any()
    assert 0 < np.mean(data["reward"] > 0) < 1


@pytest.mark.parametrize("length", [1, 5])
def test_t_maze_is_pobaxs(length):
    data = case(f"tmaze_{length}")
    env, params = jaxrl.make("TMaze-v0", length=length)

    def as_state(prefix):
        return tmaze.State(
            zeros(data), *(jnp.asarray(data[f"{prefix}/{f}"], jnp.int32) for f in ("grid_idx", "goal_dir"))
        )

    ts = jax.jit(jax.vmap(lambda s, a: env.step(KEY, s, a, params)))(as_state("before"), data["action"])
    np.testing.assert_array_equal(ts.state.place, as_state("after").place)
    np.testing.assert_array_equal(ts.obs, data["obs"])
    np.testing.assert_allclose(ts.reward, data["reward"], rtol=1e-6)
    np.testing.assert_array_equal(ts.terminated, data["end"])
    np.testing.assert_array_equal(ts.info["success"], data["reward"] > 1)
    assert len(np.unique(data["reward"])) == 3 and len(np.unique(data["first_obs"], axis=0)) == 2


@pytest.mark.parametrize("name", ["passive", "active"])
def test_late_t_mazes_are_memory_rls(name):
    data = case(name)
    length, oracle = (6, 0) if name == "passive" else (5, 1)
    env, params = jaxrl.make(f"TMaze{name.title()}-v0", length=length)
    assert int(params.oracle) == oracle

    def play(goal, actions):
        state = env.initial(KEY, params).replace(goal=goal)

        def step(state, action):
            ts = env.step(KEY, state, action, params)
            return ts.state, (ts.obs, ts.reward, ts.terminated, ts.info["success"])

        return env.observe(KEY, state, params), jax.lax.scan(step, state, actions)[1]

    first, (obs, reward, terminated, success) = jax.jit(jax.vmap(play))(
        data["goal"].astype(np.int32), data["action"].astype(np.int32)
    )
    np.testing.assert_array_equal(np.concatenate([first[:, None], obs], 1), data["obs"])
    np.testing.assert_allclose(reward, data["reward"], rtol=1e-6)
    np.testing.assert_array_equal(terminated, data["end"])
    np.testing.assert_array_equal(success, data["reward"] == 1)
    assert 0 < np.mean(success[:, -1]) < 1 and data["reward"].min() < 0
    assert float(env.optimal_value(params)) == 1 == np.max(data["reward"].sum(1))


@pytest.mark.parametrize("size", [3, 5, 10])
def test_battleship_is_pobaxs(size):
    data = case(f"battleship_{size}")
    env, params = jaxrl.make("Battleship-v0" if size == 10 else f"Battleship-{size}x{size}-v0")
    n, cells = len(data["action"]), size * size
    ships = data["before/board"].reshape(n, cells) > 0
    tried = data["before/hits_misses"].reshape(n, cells) > 0
    state = battleship.State(zeros(data), jnp.asarray(ships), jnp.asarray(tried), zeros(data) - 1, zeros(data) > 0)
    ts = jax.jit(jax.vmap(lambda s, a: env.step(KEY, s, a, params)))(state, data["action"])
    np.testing.assert_array_equal(ts.state.tried, data["after/hits_misses"].reshape(n, cells) > 0)
    np.testing.assert_array_equal(ts.obs["obs"][:, :1], data["obs"])
    np.testing.assert_array_equal(ts.obs["obs"][:, 1:].argmax(1), data["action"])
    np.testing.assert_array_equal(ts.obs["action_mask"], data["mask"])
    np.testing.assert_array_equal(ts.reward, data["reward"])
    np.testing.assert_array_equal(ts.terminated, data["end"])
    assert data["end"].sum() > 1 and np.any(tried[np.arange(n), data["action"]])
    assert (ships.sum(1) == sum(env.ship_lengths)).all()


@pytest.mark.parametrize(("size", "rocks"), [(5, 5), (7, 8)])
def test_rock_sample_is_pobaxs(size, rocks):
    data = case(f"rocksample_{size}")
    env, params = jaxrl.make(f"RockSample-{size}-{rocks}-v0")
    params = params.replace(rocks=jnp.asarray(data["rocks"], jnp.int32))
    env.validate(params)
    state = rock_sample.State(
        zeros(data),
        jnp.asarray(data["before/position"], jnp.int32),
        jnp.asarray(data["before/rock_morality"] > 0),
        zeros(data)[:, None],
    )
    reading = data["obs"][:, 2 * size :]
    # The reading is random: what the sensor showed there is given here.
    shown = (reading > 0) == state.good

    @jax.jit
    @jax.vmap
    def step(state, action, shown):
        after = rock_sample.dynamics(state, action, shown, (size, size), params)
        left = after.place[1] == size - 1
        return (
            after,
            sum(rock_sample.reward(state, action, left, params).values()),
            left,
            env.observe(KEY, after, params),
        )

    after, reward, left, obs = step(state, data["action"].astype(np.int32), shown)
    np.testing.assert_array_equal(after.place, data["after/position"])
    np.testing.assert_array_equal(after.good, data["after/rock_morality"] > 0)
    np.testing.assert_array_equal(obs, data["obs"])
    np.testing.assert_array_equal(reward, data["reward"])
    np.testing.assert_array_equal(left, data["end"])
    assert {-10, 0, 10} <= set(data["reward"].tolist()) and np.any(reading < 0) and np.any(reading > 0)


def test_the_sensors_accuracy_is_pobaxs_and_what_is_drawn():
    data = case("rock_accuracy")
    places = jnp.stack([jnp.arange(31), jnp.zeros(31, jnp.int32)], 1)
    ours = rock_sample.accuracy(jnp.zeros(2, jnp.int32), places, jnp.float32(20))
    np.testing.assert_allclose(ours, np.interp(np.arange(31), data["distance"], data["probability"]), rtol=1e-6)
    env, params = jaxrl.make("RockSample-5-5-v0")
    params = params.replace(half_distance=jnp.float32(2.0))
    state = env.initial(KEY, params)
    keys = jax.random.split(KEY, 4000)
    for rock in range(5):
        step = jax.vmap(
            lambda k, a=rock_sample.CHECK + rock: env.step(k, state, jnp.int32(a), params).state.reading[a - 5]
        )
        right = np.mean((np.asarray(step(keys)) > 0) == bool(state.good[rock]))
        expected = float(rock_sample.accuracy(state.place, params.rocks, params.half_distance)[rock])
        assert abs(right - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000) + 1e-9


def test_compass_world_is_pobaxs():
    data = case("compass")
    env, params = jaxrl.make("CompassWorld-v0")
    state = compass_world.State(zeros(data), *data["before"].astype(np.int32).T)
    ts = jax.jit(jax.vmap(lambda s, a: env.step(KEY, s, a, params)))(state, data["action"])
    np.testing.assert_array_equal(np.stack([ts.state.row, ts.state.column, ts.state.heading], 1), data["after"])
    np.testing.assert_array_equal(ts.obs, data["obs"])
    np.testing.assert_array_equal(ts.reward, data["reward"])
    np.testing.assert_array_equal(ts.terminated, data["end"])
    assert set(np.nonzero(data["obs"])[1].tolist()) == {0, 1, 2, 3, 4}


# ---- closed forms


def test_what_a_t_maze_is_worth_with_and_without_memory():
    """All policies of the last observation alone, and one that remembers, against the closed form."""
    env, params = jaxrl.make("TMaze-v0", length=3)
    kinds = jnp.array([[1.0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])  # the cue, the corridor, the junction

    def played(goal, choose):
        def step(carry, _):
            state, cue, running = carry
            obs = env.observe(KEY, state, params)
            cue = cue | (obs[0] > 0)
            ts = env.step(KEY, state, choose(obs, cue), params)
            return (ts.state, cue, running & ~ts.terminated), running * ts.reward

        first = env.initial(KEY, params).replace(goal=goal)
        return jax.lax.scan(step, (first, jnp.bool_(False), jnp.bool_(True)), None, length=40)[1].sum()

    def forgetful(table):
        def choose(obs, cue):
            return table[jnp.argmax(jnp.all(kinds == obs, 1))]

        return (played(jnp.int32(0), choose) + played(jnp.int32(1), choose)) / 2

    tables = jnp.array(list(itertools.product(range(4), repeat=3)), jnp.int32)
    assert float(jax.jit(jax.vmap(forgetful))(tables).max()) == pytest.approx(2.0)  # it stays where it sees the cue
    assert float(forgetful(jnp.array([2, 2, 0]))) == pytest.approx((4 - 0.1) / 2)

    def mindful(obs, cue):
        return jnp.where(obs[2] > 0, cue.astype(jnp.int32), 2)

    assert float(played(jnp.int32(0), mindful)) == float(played(jnp.int32(1), mindful)) == 4
    assert float(env.optimal_value(params)) == 4
    assert float(env.optimal_value(params, 0.9)) == pytest.approx(4 * 0.9**4)
    assert float(env.optimal_value(params.replace(max_steps=jnp.int32(4)))) == 0


def shots(size, length):
    """The least expected number of shots at one ship, by dynamic programming over what was tried and hit."""
    places = np.concatenate([battleship.covers(size, size, length, down) for down in (True, False)])
    fleets = [sum(1 << int(c) for c in np.flatnonzero(cells)) for cells in places]

    @functools.cache
    def least(tried, hits):
        left = [f for f in fleets if f & tried == hits]
        if all(f & ~tried == 0 for f in left):
            return 0.0
        best = np.inf
        for cell in range(size * size):
            bit = 1 << cell
            if tried & bit:
                continue
            hit = sum(bool(f & bit) for f in left) / len(left)
            cost = 1.0
            cost += hit * least(tried | bit, hits | bit) if hit else 0
            cost += (1 - hit) * least(tried | bit, hits) if hit < 1 else 0
            best = min(best, cost)
        return best

    return least(0, 0)


def test_what_the_smallest_battleship_is_worth():
    """The return is the number of cells + 1 less the shots, of which the best policy needs 4.5 on 3 x 3 cells."""
    assert shots(3, 2) == pytest.approx(4.5)


def test_ships_lie_on_every_place_as_often():
    keys = jax.random.split(KEY, 12_000)
    fleets = np.asarray(jax.vmap(lambda k: battleship.fleet(k, 3, 3, (2,)))(keys))
    places, counts = np.unique(fleets, axis=0, return_counts=True)
    assert len(places) == 12 and np.all(np.abs(counts - 1000) < 4.5 * np.sqrt(1000))
    whole = np.asarray(jax.vmap(lambda k: battleship.fleet(k, 10, 10, (5, 4, 3, 2)))(keys[:2000]))
    assert (whole.sum(1) == 14).all()
    # A wide board: one direction alone has places for the long ship.
    narrow = np.asarray(jax.vmap(lambda k: battleship.fleet(k, 1, 6, (3,)))(keys[:100]))
    assert (narrow.sum(1) == 3).all()


def test_popgyms_answers_that_count_are_worth_1_together():
    """In its rewards, which ours equal in the test of trajectories: of each game the best return is 1."""
    for id in GAMES:
        env = jaxrl.make(id)[0]
        n = env.num_cards
        steps, counted = {"A": (2 * n - 1, n), "C": (n - 1, n - 1)}.get(id[0], (n - 1, n - getattr(env, "k", 1)))
        data = case(id)
        assert data["reward"].shape[1] == steps
        assert np.all(np.count_nonzero(data["reward"], 1) == counted)
        np.testing.assert_allclose(np.abs(data["reward"]).sum(1), 1)


# ---- starts and programs


def test_starts_are_random():
    """What has to be remembered is drawn at each reset, at the stated chances."""
    n = 4096
    keys = jax.random.split(jax.random.key(1), n)

    def states(id):
        env, params = jaxrl.make(id)
        return jax.jit(jax.vmap(lambda k: env.reset(k, params)[1]))(keys)

    def share(x, expected):
        assert abs(float(np.mean(x)) - expected) < 4.5 * np.sqrt(expected * (1 - expected) / np.size(x))

    share(np.asarray(states("TMaze-v0").goal) == 1, 0.5)
    share(np.asarray(states("TMazePassive-v0").goal) == 1, 0.5)
    rover = states("RockSample-5-5-v0")
    for rock in range(5):
        share(np.asarray(rover.good)[:, rock], 0.5)
    cells, counts = np.unique(np.asarray(rover.place), axis=0, return_counts=True)
    assert len(cells) == 20 and cells[:, 1].max() == 3 and counts.min() > 0.6 * n / 20
    compass = states("CompassWorld-v0")
    poses, counts = np.unique(np.stack([compass.row, compass.column, compass.heading], 1), axis=0, return_counts=True)
    assert len(poses) == 143 and [1, 1, 3] not in poses.tolist() and counts.max() < 3 * n / 143
    cards = np.asarray(states("RepeatFirstEasy-v0").cards)
    for suit in range(4):
        share(cards[:, 0] == suit, 0.25)
        assert (np.sum(cards == suit, 1) == 13).all()
    both = states("CountRecallEasy-v0")
    share(np.asarray(both.cards)[:, 0] == np.asarray(both.queries)[:, 0], 0.5)


@pytest.mark.parametrize(
    "id", ["TMaze-v0", "TMazeActive-v0", "Battleship-5x5-v0", "RockSample-5-5-v0", "CompassWorld-v0"]
)
def test_a_batch_is_a_loop_and_params_do_not_compile_again(id):
    env, params = jaxrl.make(id)
    traces = []

    def run(key, params):
        traces.append(1)
        reset_key, act_key, step_key = jax.random.split(key, 3)
        space = env.action_space(params)

        def step(state, keys):
            ts = env.step(keys[1], state, space.sample(keys[0]), params)
            return ts.state, (ts.obs, ts.reward, ts.terminated, ts.truncated)

        keys = jnp.stack([jax.random.split(act_key, 12), jax.random.split(step_key, 12)], 1)
        return jax.lax.scan(step, env.reset(reset_key, params)[1], keys)[1]

    alone, keys = jax.jit(run), jax.random.split(KEY, 3)
    together = jax.jit(jax.vmap(run, (0, None)))(keys, params)
    traces.clear()
    for i, key in enumerate(keys):
        jax.tree.map(lambda a, b, i=i: np.testing.assert_array_equal(a[i], b), together, alone(key, params))
    changed = {"TMaze-v0": {"length": 10_000}, "TMazeActive-v0": {"length": 7, "oracle": 2}}.get(id, {"max_steps": 5})
    alone(keys[0], params.replace(**{name: jnp.int32(x) for name, x in changed.items()}))
    assert len(traces) == 1


def test_rocks_are_levels():
    env, params = jaxrl.make("RockSample-7-8-v0")
    levels = env.levels
    assert levels is not None and levels.generate is not None and levels.mutate is not None
    drawn = jax.jit(jax.vmap(lambda k: levels.generate(k, params)))(jax.random.split(KEY, 200))
    env.validate(drawn)
    assert len(np.unique(np.asarray(drawn.rocks).reshape(-1, 2), axis=0)) == 42
    changed = jax.jit(jax.vmap(levels.mutate))(jax.random.split(KEY, 200), drawn)
    env.validate(changed)
    moved = np.any(np.asarray(changed.rocks) != np.asarray(drawn.rocks), -1).sum(-1)
    assert set(moved.tolist()) == {0, 1}
    published = jaxrl.make("RockSample-7-8-v0", columns=8)[1]
    assert published.start.tolist() == [3, 0] and published.rocks.shape == (8, 2)


# ---- refusals


@pytest.mark.parametrize(
    ("id", "settings", "params", "message"),
    [
        ("TMaze-v0", {}, {"length": 0}, "length=0 must be from 1"),
        ("TMazePassive-v0", {}, {"oracle": -1}, "oracle=-1 must be from 0"),
        ("RepeatPreviousEasy-v0", {"k": 52}, {}, "k=52.*below 52"),
        ("CountRecallEasy-v0", {"kind": "jokers"}, {}, "kind='jokers' must be one of 'colors', 'suits', 'ranks'"),
        ("Battleship-v0", {"ship_lengths": (11,)}, {}, "from 1 to 10"),
        ("Battleship-v0", {"ship_lengths": (10,) * 6}, {}, "at most half"),
        ("RockSample-5-5-v0", {"num_rocks": 21}, {}, "at most 20 rocks"),
        ("RockSample-5-5-v0", {}, {"start": [0, 4]}, r"start=\[0, 4\]"),
        ("RockSample-5-5-v0", {}, {"rocks": [[0, 0]] * 5}, "no two may be in one cell"),
        ("RockSample-5-5-v0", {}, {"rocks": [[0, i] for i in range(5)]}, "must lie in rows and columns"),
        ("CartPole-P-v0", {"part": "angles"}, {}, "part='angles' must be one of"),
        ("CartPole-P-v0", {"name": "Acrobot-v9"}, {}, "name='Acrobot-v9' must be one of"),
    ],
)
def test_refusals(id, settings, params, message):
    with pytest.raises(ValueError, match=message):
        env, default = jaxrl.make(id, **settings)
        env.validate(default.replace(**{name: jnp.asarray(x) for name, x in params.items()}))


# ---- masked observations


def test_observed():
    inner, params = jaxrl.make("CartPole-v1")
    env = Observed(inner, (2, 0))
    obs, state = env.reset(KEY, params)
    np.testing.assert_array_equal(obs, inner.observe(KEY, state, params)[jnp.array([2, 0])])
    assert env.observation_names == tuple(inner.observation_names[i] for i in (2, 0))
    np.testing.assert_allclose(env.observation_space(params).high, [0.41887903, 4.8], rtol=1e-6)
    for wrong in ((), (4,), (-1,)):
        with pytest.raises(ValueError, match="must be some, from 0 to 3"):
            Observed(inner, wrong)
    with pytest.raises(ValueError, match="it takes numbers of a vector"):
        Observed(jaxrl.make("FrozenLake-v1")[0], (0,))


def test_masked_tasks_show_one_part_each():
    for name, id in MASKED.items():
        inner, params = jaxrl.make(id)
        parts = SHOWN[id]
        size = inner.observation_space(params).shape[0]
        assert sorted(parts[0] + parts[1]) == list(range(size)), id
        for part, where in zip("PV", parts, strict=True):
            env, own = jaxrl.make(f"{name}-{part}-v0")
            assert env.observation_space(own).shape == (len(where),) and env.indices == where
            assert env.id == f"{name}-{part}-v0" and jax.tree.structure(own) == jax.tree.structure(params)
        names = inner.observation_names
        if names:  # the velocities are named so in every task that names its numbers
            is_velocity = ["/s" in n or "vel" in n for n in names]
            assert tuple(np.flatnonzero(is_velocity)) == parts[1], names


def test_who_never_moves_in_the_passive_maze_loses_the_penalty():
    env, params = jaxrl.make("TMazePassive-v0")

    def still(params):
        def step(state, _):
            ts = env.step(KEY, state, jnp.int32(2), params)
            return ts.state, ts.reward

        return jax.lax.scan(step, env.initial(KEY, params), None, length=11)[1].sum()

    assert float(still(params)) == pytest.approx(-1.0)
