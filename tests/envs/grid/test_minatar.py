"""MinAtar against the `minatar` package draw for draw (golden), our own draws in distribution, corner cases by hand."""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.grid.minatar import asterix, breakout, freeway, seaquest, space_invaders
from jaxrl.envs.grid.minatar.common import DOWN, EMPTY, FIRE, FULL, LEFT, RIGHT, STAY, UP
from jaxrl.testing.golden import golden

GAMES = {
    "asterix": (asterix, asterix.Asterix()),
    "breakout": (breakout, breakout.Breakout()),
    "freeway": (freeway, freeway.Freeway()),
    "seaquest": (seaquest, seaquest.Seaquest()),
    "space_invaders": (space_invaders, space_invaders.SpaceInvaders()),
}
NO_STICK = {"sticky": jnp.bool_(False)}


@pytest.fixture(scope="module")
def data():
    return golden("minatar")


def begin(game, draws, params, sizes):
    """The first state, from the draws of a restart."""
    module = GAMES[game][0]
    if game == "breakout":
        return module.start(draws["from_right"])
    if game == "freeway":
        return module.start(draws["speeds"], params)
    return module.start(params, *sizes) if game == "seaquest" else module.start(params)


def replay(game, env, params, draws, starts, action):
    """Play all runs (T, R) with the reference's draws: observations, those after a restart, rewards, terminals."""
    module = GAMES[game][0]
    sizes = (env.max_enemies, env.max_divers, env.max_bullets) if game == "seaquest" else ()
    key = jax.random.key(0)

    def one(params, draws, starts, action):
        state = begin(game, {k: v[0] for k, v in starts.items()}, params, sizes)

        def body(state, inputs):
            action, draws, start = inputs
            state, reward, terminated = module.dynamics(state, action, module.Draws(**draws), params)
            state = state.replace(time=state.time + 1)
            final_obs = env.observe(key, state, params)
            fresh = begin(game, start, params, sizes)
            state = jax.tree.map(lambda new, old: jnp.where(terminated, new, old), fresh, state)
            return state, (final_obs, env.observe(key, state, params), reward, terminated)

        later = {k: v[1:] for k, v in starts.items()}
        return env.observe(key, state, params), jax.lax.scan(body, state, (action, draws, later))[1]

    return jax.jit(jax.vmap(one, (0, 1, 1, 1)))(params, draws, starts, action)


def to_draws(arrays):
    return {k: jnp.asarray(v if v.dtype == bool else v.astype(np.int32)) for k, v in arrays.items()}


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("group", ["default", "varied"])
@pytest.mark.parametrize("game", GAMES)
def test_every_step_of_the_reference(data, game, group):
    _, env = GAMES[game]
    prefix = f"{game}/{group}/"
    found = {k.removeprefix(prefix): v for k, v in data.items() if k.startswith(prefix)}
    runs = found["action"].shape[1]
    params = {k.removeprefix("params/"): jnp.asarray(v) for k, v in found.items() if k.startswith("params/")}
    params = {k: v if v.dtype == bool else v.astype(getattr(env.default_params, k).dtype) for k, v in params.items()}
    params = jax.tree.map(lambda x: jnp.broadcast_to(x, (runs,)), env.default_params).replace(**params)
    if game == "seaquest" and group == "varied":
        with pytest.raises(ValueError, match=r"max_enemies=32: make the environment with max_enemies=\d\d"):
            env.validate(params)
        sizes = seaquest.crowd(params)
        env = seaquest.Seaquest(True, sizes["max_enemies"], sizes["max_divers"], sizes["max_bullets"])
    env.validate(params)
    starts = to_draws({k.removeprefix("start_"): v for k, v in found.items() if k.startswith("start_")})
    draws = to_draws({k: found[k] for k in GAMES[game][0].Draws._fields})
    first, outputs = replay(game, env, params, draws, starts, jnp.asarray(found["action"], jnp.int32))
    final_obs, obs, reward, terminated = jax.tree.map(np.asarray, outputs)

    np.testing.assert_array_equal(reward.T, found["reward"])
    np.testing.assert_array_equal(terminated.T, found["terminal"])
    assert found["terminal"].any() or (game, group) == ("freeway", "default")
    for run in range(runs):
        crc = zlib.crc32(np.asarray(first[run]).tobytes())
        for t in range(final_obs.shape[1]):
            crc = zlib.crc32(final_obs[run, t].tobytes(), crc)
            assert crc & 0xFFFF == found["checksum"][t, run], f"run {run}: another observation at step {t}"
            if terminated[run, t]:
                crc = zlib.crc32(obs[run, t].tobytes(), crc)


# ---- our own draws


def many_draws(game, state=None, n=20_000):
    module, env = GAMES[game]
    state = env.initial(jax.random.key(0), env.default_params) if state is None else state
    keys = jax.random.split(jax.random.key(1), n)
    draws = jax.jit(jax.vmap(lambda key: module.draw(key, state, env.default_params)))(keys)
    return {k: np.asarray(v) for k, v in draws._asdict().items()}


def near(values, probability, what):
    """Within five standard errors."""
    error = 5 * np.sqrt(probability * (1 - probability) / len(values))
    assert abs(np.mean(values) - probability) < error, (what, np.mean(values), probability)


def independent(a, b, what):
    assert abs(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1]) < 5 / np.sqrt(np.size(a)), what


@pytest.mark.slow
def test_draws_have_the_probabilities_of_the_reference():
    state = asterix.start(asterix.Asterix().default_params)
    state = state.replace(x=jnp.array([3, EMPTY, 0, EMPTY, EMPTY, 9, EMPTY, 1]))
    found = many_draws("asterix", state)
    near(found["sticky"], 0.1, "sticky")
    near(found["right"], 0.5, "right")
    near(found["gold"], 1 / 3, "gold")
    np.testing.assert_array_equal(np.unique(found["slot"]), [1, 3, 4, 6])
    for slot in (1, 3, 4, 6):
        near(found["slot"] == slot, 0.25, f"slot {slot}")
    independent(found["gold"], found["slot"], "gold and slot")
    independent(found["sticky"], found["right"], "sticky and right")
    full = many_draws("asterix", state.replace(x=jnp.arange(8)), 100)
    np.testing.assert_array_equal(full["slot"], 8)

    found = many_draws("freeway")
    near(found["sticky"], 0.1, "sticky")
    for speed in (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5):
        near(np.ravel(found["speeds"] == speed), 0.1, f"speed {speed}")
        for car in range(8):
            near(found["speeds"][:, car] == speed, 0.1, f"speed {speed} of car {car}")
    for car in range(1, 8):
        independent(found["speeds"][:, car], found["speeds"][:, car - 1], "cars")
        independent(abs(found["speeds"][:, car]), abs(found["speeds"][:, car - 1]), "cars")
    independent(found["sticky"], found["speeds"][:, 7], "sticky and speeds")

    found = many_draws("seaquest")
    near(found["sticky"], 0.1, "sticky")
    near(found["enemy_is_sub"], 1 / 3, "submarine")
    for who in ("enemy", "diver"):
        near(found[f"{who}_right"], 0.5, who)
        for row in range(1, 9):
            near(found[f"{who}_y"] == row, 1 / 8, f"{who} in row {row}")
    names = list(found)
    for i, name in enumerate(names):
        for other in names[:i]:
            independent(found[name], found[other], f"{name} and {other}")

    for game in ("breakout", "space_invaders"):
        near(many_draws(game)["sticky"], 0.1, game)
    env = breakout.Breakout()
    starts = jax.vmap(lambda key: env.initial(key, env.default_params).ball_x)(
        jax.random.split(jax.random.key(2), 2000)
    )
    near(np.asarray(starts) == 9, 0.5, "side of the ball")


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("game", GAMES)
def test_a_batch_is_a_loop(game):
    _, env = GAMES[game]
    params = env.default_params

    def run(key):
        def body(state, keys):
            ts = env.step(keys[0], state, env.action_space(params).sample(keys[1]), params)
            return ts.state, (ts.obs, ts.reward, ts.terminated)

        obs, state = env.reset(key, params)
        return obs, jax.lax.scan(body, state, jax.random.split(key, (40, 2)))

    keys = jax.random.split(jax.random.key(3), 3)
    batch, single = jax.jit(jax.vmap(run))(keys), jax.jit(run)
    for i in range(3):
        jax.tree.map(lambda b, s, i=i: np.testing.assert_array_equal(b[i], s), batch, single(keys[i]))


# ---- by hand


def step(game, state, action, params=None, **draws):
    module, env = GAMES[game]
    params = env.default_params if params is None else params
    zeros = {name: jnp.zeros((8,) if name == "speeds" else (), jnp.int32) for name in module.Draws._fields}
    return module.dynamics(state, jnp.int32(action), module.Draws(**{**zeros, **NO_STICK, **draws}), params)


@pytest.mark.slow
@pytest.mark.light
def test_asterix_walls_gold_and_sticky_actions():
    params = asterix.Asterix().default_params
    state = asterix.start(params)
    for _ in range(9):
        state, _, _ = step("asterix", state, UP)
    assert int(state.player_y) == 1 and int(state.last_action) == UP
    state, _, _ = step("asterix", state, LEFT, sticky=jnp.bool_(True))  # goes on up
    assert int(state.player_x) == 5 and int(state.last_action) == UP
    # Gold and enemy beside the player, about to move; the gold comes to it, the enemy leaves it.
    x = jnp.full(8, EMPTY).at[0].set(4)
    state = state.replace(
        x=x, spawn_timer=jnp.int32(9), right=jnp.ones(8, bool), gold=jnp.ones(8, bool), move_timer=jnp.int32(0)
    )
    after, reward, terminated = step("asterix", state, STAY)
    assert (float(reward), bool(terminated), int(after.x[0])) == (1.0, False, EMPTY)
    after, reward, terminated = step("asterix", state.replace(gold=~state.gold), STAY)
    assert (float(reward), bool(terminated)) == (0.0, True)
    after, reward, terminated = step("asterix", state.replace(x=x.at[0].set(5)), STAY)
    assert (float(reward), int(after.x[0])) == (1.0, EMPTY)  # once, before it moves


def test_breakout_new_wall_and_lost_ball():
    state = breakout.start(jnp.bool_(False)).replace(
        ball_x=jnp.int32(4), ball_y=jnp.int32(8), bricks=jnp.zeros(3, jnp.int32), paddle=jnp.int32(4)
    )
    after, reward, terminated = step("breakout", state, STAY)
    assert not terminated and int(after.dy) == -1 and int(after.dx) == 1  # under its old column: up
    np.testing.assert_array_equal(after.bricks, FULL)
    after, _, terminated = step("breakout", state, RIGHT)
    assert not terminated and int(after.dy) == -1 and int(after.dx) == -1  # under its new column: back
    after, reward, terminated = step("breakout", state, LEFT)
    assert terminated and float(reward) == 0 and int(after.ball_y) == 9
    # A ball that came through a hole strikes one brick, not the next.
    state = state.replace(ball_y=jnp.int32(4), dy=jnp.int32(-1), bricks=jnp.full(3, FULL, jnp.int32))
    after, reward, _ = step("breakout", state, STAY)
    assert float(reward) == 1 and int(after.ball_y) == 4 and int(after.bricks[2]) == FULL & ~(1 << 5)
    after, reward, _ = step("breakout", state.replace(strike=jnp.bool_(True)), STAY)
    assert float(reward) == 0 and int(after.ball_y) == 3 and int(after.bricks[2]) == FULL


def test_freeway_top_and_time():
    params = freeway.Freeway().default_params
    state = freeway.start(jnp.full(8, 5), params).replace(y=jnp.int32(1), move_timer=jnp.int32(0))
    speeds = jnp.array([1, -2, 3, -4, 5, -1, 2, -3])
    after, reward, terminated = step("freeway", state, UP, speeds=speeds)
    assert float(reward) == 1 and int(after.y) == 9 and not terminated
    np.testing.assert_array_equal(after.car_speed, speeds)
    assert not step("freeway", state.replace(time=jnp.int32(2499)), UP, speeds=speeds)[2]
    assert step("freeway", state.replace(time=jnp.int32(2500)), UP, speeds=speeds)[2]
    hit, _, _ = step("freeway", state.replace(car_x=jnp.full(8, 4)), STAY)
    assert int(hit.y) == 9


@pytest.mark.slow
def test_seaquest_surface():
    params = seaquest.Seaquest().default_params
    state = seaquest.start(params).replace(y=jnp.int32(1), surfaced=jnp.bool_(False), oxygen=jnp.int32(119))
    assert step("seaquest", state, UP)[2]  # with no diver
    after, reward, terminated = step("seaquest", state.replace(divers_on_board=jnp.int32(3)), UP)
    assert (float(reward), bool(terminated), int(after.divers_on_board), int(after.oxygen)) == (0, False, 2, 200)
    full, reward, terminated = step("seaquest", state.replace(divers_on_board=jnp.int32(6)), UP)
    assert (float(reward), bool(terminated), int(full.divers_on_board)) == (5.0, False, -1)
    assert int(full.spawn_speed) == 19 and int(full.move_speed) == 5 and int(full.ramp_index) == 1
    down, _, _ = step("seaquest", full, DOWN)
    again, reward, terminated = step("seaquest", down, UP)  # below zero: neither an end nor a reward
    assert (float(reward), bool(terminated), int(again.divers_on_board)) == (0, False, -2)
    assert int(again.spawn_speed) == 18 and int(again.move_speed) == 4
    planes = np.asarray(seaquest.observe(again, params))
    assert planes[9, :, 7].all() and not planes[:, :, 8].any()
    planes = np.asarray(seaquest.observe(again.replace(divers_on_board=jnp.int32(4), oxygen=jnp.int32(39)), params))
    np.testing.assert_array_equal(np.flatnonzero(planes[9, :, 8]), [5, 6, 7, 8])
    np.testing.assert_array_equal(np.flatnonzero(planes[9, :, 7]), [0])
    assert step("seaquest", down.replace(oxygen=jnp.int32(0)), STAY)[2]


@pytest.mark.slow
def test_seaquest_one_bullet_takes_one_enemy_and_fish_first():
    params = seaquest.Seaquest().default_params
    state = seaquest.start(params).replace(x=jnp.int32(2), y=jnp.int32(4), right=jnp.bool_(True))
    crowd = state.enemies.replace(
        x=state.enemies.x.at[:3].set(3), y=state.enemies.y.at[:3].set(4), timer=jnp.full(32, 3), next=jnp.int32(3)
    )
    state = state.replace(enemies=crowd, enemy_is_sub=jnp.arange(32) == 0, enemy_shot_timer=jnp.full(32, 9))
    gone = []
    for _ in range(3):
        state, reward, _ = step("seaquest", state.replace(shot_timer=jnp.int32(0)), FIRE)
        state = state.replace(enemies=state.enemies.replace(timer=jnp.full(32, 3)))
        assert float(reward) == 1
        gone.append(np.flatnonzero(np.asarray(state.enemies.x[:3]) == EMPTY).tolist())
    assert gone == [[1], [1, 2], [0, 1, 2]]  # the oldest fish, the next, then the submarine
    assert seaquest.crowd(params) == {"max_enemies": 30, "max_divers": 2, "max_bullets": 2}


@pytest.mark.slow
@pytest.mark.light
def test_space_invaders_waves_and_the_nearest_alien():
    state = space_invaders.start(space_invaders.SpaceInvaders().default_params)
    one = jnp.zeros(10, jnp.int32).at[3].set(1 << 5)
    state = state.replace(aliens=one, bullets=jnp.zeros(10, jnp.int32).at[4].set(1 << 5))
    after, reward, terminated = step("space_invaders", state, STAY)
    assert float(reward) == 1 and not terminated and int(after.move_interval) == 11
    np.testing.assert_array_equal(after.aliens, [0b11111100] * 4 + [0] * 6)
    after, _, _ = step("space_invaders", state.replace(move_interval=jnp.int32(6)), STAY)
    assert int(after.move_interval) == 6
    columns = jnp.zeros(10, jnp.int32).at[0].set(0b1010001000).at[1].set(0b1000001000)
    for x, row, column in ((5, 1, 3), (6, 0, 7), (9, 1, 9), (0, 1, 3)):
        expected = np.zeros(10)
        expected[row] = 1 << column
        np.testing.assert_array_equal(space_invaders.lowest_of_nearest(columns, jnp.int32(x)), expected)


@pytest.mark.slow
def test_actions_and_settings():
    for game, minimal in {"asterix": 5, "breakout": 3, "freeway": 3, "seaquest": 6, "space_invaders": 4}.items():
        env = GAMES[game][1]
        params = env.default_params
        assert env.action_space(params).n == minimal
        full = type(env)(minimal_actions=False)
        assert full.action_space(params).n == 6
        assert [int(full.full_action(jnp.int32(a))) for a in range(6)] == list(range(6))
        assert tuple(int(env.full_action(jnp.int32(a))) for a in range(minimal)) == env.minimal
        with pytest.raises(ValueError, match="sticky_action_prob=1.5 must be from 0 to 1"):
            env.validate(params.replace(sticky_action_prob=jnp.float32(1.5)))
        picture = env.render(env.reset(jax.random.key(0), params)[1], params)
        assert picture.shape == (160, 160, 3) and len(np.unique(picture.reshape(-1, 3), axis=0)) >= 3
    with pytest.raises(ValueError, match="init_spawn_speed=0 must be at least 1"):
        asterix.Asterix().validate(asterix.Asterix().default_params.replace(init_spawn_speed=jnp.int32(0)))
    with pytest.raises(ValueError, match="max_divers=0 must be from 1 to"):
        seaquest.Seaquest(max_divers=0)
