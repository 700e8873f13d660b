"""The behaviour suite: agreement with the package bsuite step by step, its settings and its scores."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.environment import strongly_typed
from jaxrl.envs.bsuite import (
    bandit,
    cartpole,
    cartpole_swingup,
    catch,
    deep_sea,
    digits_bandit,
    discounting_chain,
    memory_chain,
    mountain_car,
    scoring,
    umbrella_chain,
)
from jaxrl.envs.bsuite.logged import Results, log_points, logged, results
from jaxrl.envs.bsuite.perturbed import PerturbedReward
from jaxrl.envs.bsuite.sweep import EXPERIMENTS, sweep
from jaxrl.exact.mdp import tabulate
from jaxrl.testing.golden import golden

KEY = jax.random.key(0)


@functools.cache
def reference(case):
    data = golden("bsuite_cartpole") | golden("bsuite_envs")
    return {name.split("/")[1]: x for name, x in data.items() if name.startswith(case + "/")}


# ---- steps


def pole(module):
    return lambda s: module.State(jnp.round(s["state"][4] * 100).astype(jnp.int32), *s["state"][:4])


def car(s):
    return mountain_car.State(s["timestep"].astype(int), s["position"], s["velocity"])


def chain(s):
    return discounting_chain.State(s["timestep"].astype(int), s["context"].astype(int))


def memory(s):
    return memory_chain.State(s["timestep"].astype(int), s["context"].astype(int), s["query"].astype(int))


def ball(s):
    return catch.State(s["ball_y"].astype(int), *(s[n].astype(int) for n in ("ball_x", "ball_y", "paddle_x")))


def diver(s):
    return deep_sea.State(s["row"].astype(int), s["row"].astype(int), s["column"].astype(int))


# case: environment, settings of params, reference attributes -> state, totals that the regret adds up to
CASES = {
    "bandit": (bandit.Bandit(), {}, lambda s: bandit.State(jnp.int32(0)), "total_regret"),
    "catch": (catch.Catch(), {}, ball, "total_regret"),
    "cartpole": (cartpole.CartPole(), {}, pole(cartpole), None),
    "cartpole_random": (cartpole.CartPole(), {}, pole(cartpole), None),
    "swingup": (cartpole_swingup.CartPoleSwingup(), {}, pole(cartpole), None),
    "swingup_balance": (cartpole_swingup.CartPoleSwingup(), {"max_time": 0.505, "x_good": 0.05}, pole(cartpole), None),
    "mountain_car": (mountain_car.MountainCar(), {}, car, None),
    "mountain_car_random": (mountain_car.MountainCar(), {"episode_length": 300}, car, None),
    "discounting_chain_0": (discounting_chain.DiscountingChain(), {}, chain, None),
    "discounting_chain_3": (
        discounting_chain.DiscountingChain(),
        {"rewards": discounting_chain.bsuite_rewards(3)},
        chain,
        None,
    ),
    "memory_1_1": (memory_chain.MemoryLength(1), {"memory_length": 1}, memory, "total_regret"),
    "memory_2_10": (memory_chain.MemorySize(10), {}, memory, "total_regret"),
    "memory_7_3": (memory_chain.MemoryLength(3), {"memory_length": 7}, memory, "total_regret"),
    "deep_sea_1": (deep_sea.DeepSea(1), {}, diver, "total_bad_episodes"),
    "deep_sea_6": (deep_sea.DeepSea(6), {}, diver, "total_bad_episodes"),
    "deep_sea_10": (deep_sea.DeepSea(10), {}, diver, "total_bad_episodes"),
}


@pytest.mark.slow(but_first=3)
@pytest.mark.parametrize("case", CASES)
def test_steps_are_bsuites(case):
    """Single steps from the reference's states, in float64: next state, observation, reward, end and regret."""
    data = reference(case)
    env, settings, as_state, totals = CASES[case]
    with jax.enable_x64(True):
        params = strongly_typed(env.default_params.replace(**settings))
        before = {n: data[n] for n in data if "next_" + n in data}
        after = {n: data["next_" + n] for n in before}
        n = len(data["action"])
        states = jax.vmap(as_state)(before) if before else jax.tree.map(lambda x: x[None].repeat(n), as_state({}))
        # The clock is ours in every environment; bsuite's Catch and DeepSea have none beside the row.
        wanted = jax.vmap(as_state)(after) if after else states.replace(time=states.time + 1)
        ts = jax.jit(jax.vmap(lambda s, a: env.step(KEY, s, a, params)))(states, data["action"])
        first_obs = jax.vmap(lambda s: env.observe(KEY, s, params))(jax.tree.map(lambda x: x[data["first"]], states))
        wanted, ts, first_obs = jax.device_get((wanted, ts, first_obs))
    for field in dataclasses.fields(wanted):
        ours, theirs = getattr(ts.state, field.name), getattr(wanted, field.name)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12, err_msg=field.name)
    np.testing.assert_allclose(ts.obs, data["obs"], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(first_obs, data["first_obs"], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(ts.reward, data["reward"], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(ts.terminated, data["last"])
    assert data["last"].sum() >= 1 and not ts.truncated.any()
    if totals:
        ends = data["last"]
        np.testing.assert_allclose(np.cumsum(ts.info["regret"])[ends], data[totals][ends], atol=1e-9)


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("length,bits", [(1, 0), (5, 3), (20, 20)])
def test_umbrella_steps_are_bsuites(length, bits):
    """With the reference's coins: the reward of a step that is not the last, and the distractors it shows."""
    data = reference(f"umbrella_{length}_{bits}")
    env = umbrella_chain.Umbrella(bits)
    params = strongly_typed(umbrella_chain.Params(chain_length=length))

    def states(prefix, distractors):
        time, need, have = (jnp.asarray(data[prefix + n], int) for n in ("timestep", "need_umbrella", "has_umbrella"))
        return umbrella_chain.State(time, need == 1, have == 1, distractors > 0)

    before = states("", jnp.zeros((len(data["action"]), bits)))
    after = states("next_", data["obs"][:, 0, 3:])
    follow = jax.jit(jax.vmap(lambda s, a, coin: umbrella_chain.step(s, a, coin, params)))
    have, reward, end = follow(before, data["action"], data["reward"] > 0)
    np.testing.assert_array_equal(have, after.have)
    np.testing.assert_array_equal(reward, data["reward"])
    np.testing.assert_array_equal(end, data["last"])
    # The rewards of last steps do not depend on the coin.
    np.testing.assert_array_equal(follow(before, data["action"], data["reward"] < 0)[1][end], data["reward"][end])
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    ts = step(jax.random.split(KEY, len(have)), before, data["action"], params)
    np.testing.assert_array_equal(ts.state.have, have)
    np.testing.assert_array_equal(ts.terminated, end)
    np.testing.assert_allclose(np.cumsum(ts.info["regret"])[end], data["total_regret"][end])
    obs = jax.vmap(env.observe, (None, 0, None))(KEY, after, params)
    np.testing.assert_allclose(obs, data["obs"], atol=1e-7)
    np.testing.assert_array_equal(ts.obs[:, 0, 3:], ts.state.distractors)
    if bits == 20:  # fair coins, all of them anew
        assert abs(float(ts.reward[~end].mean())) < 0.2 and abs(float(ts.obs[:, 0, 3:].mean()) - 0.5) < 0.03


def test_stochastic_deep_sea_steps_are_bsuites():
    """With the reference's slips and noise."""
    data = reference("deep_sea_6_stochastic")
    env = deep_sea.DeepSeaStochastic(6)
    with jax.enable_x64(True):
        params = env.default_params
        states = jax.vmap(diver)({n: jnp.asarray(data[n]) for n in ("row", "column")})
        right = jax.vmap(env.goes_right, (0, 0, None))(states, data["action"], params)
        slips, noise = data["rand"] <= params.slip, np.nan_to_num(data["randn"])
        out = jax.device_get(jax.vmap(env.after_chance, (0, 0, 0, 0, None))(states, right, slips, noise, params))
    np.testing.assert_array_equal(right, ~np.isnan(data["rand"]))  # bsuite draws only for steps to the right
    np.testing.assert_array_equal(out.state.column, data["next_column"])
    np.testing.assert_array_equal(out.state.row, data["next_row"])
    np.testing.assert_allclose(out.reward, data["reward"], atol=1e-12)
    np.testing.assert_array_equal(out.terminated, data["last"])
    ends = data["last"]
    np.testing.assert_allclose(np.cumsum(out.info["regret"])[ends], data["total_bad_episodes"][ends])
    corner = (data["row"] == 5) & np.isin(data["column"], (0, 5))
    np.testing.assert_array_equal(corner, ~np.isnan(data["randn"]))


def test_stochastic_deep_sea_chances():
    """Slips of 1 / N and standard normal noise in the corners, from one draw."""
    env = deep_sea.DeepSeaStochastic(4)
    params = env.default_params.replace(action_mapping=jnp.ones((4, 4), jnp.int32))
    state = deep_sea.State(jnp.int32(3), jnp.int32(3), jnp.int32(0))
    ts = jax.jit(jax.vmap(lambda key: env.step(key, state, jnp.int32(1), params)))(jax.random.split(KEY, 20_000))
    slipped = ts.state.column == 0
    noise = np.asarray(ts.reward) + 0.01 / 4
    assert abs(float(slipped.mean()) - 0.25) < 0.012
    assert abs(noise.mean()) < 0.03 and abs(noise.std() - 1) < 0.02 and abs(np.mean(noise**4) - 3) < 0.2
    assert abs(np.corrcoef(noise, slipped)[0, 1]) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("cls", [deep_sea.DeepSea, deep_sea.DeepSeaStochastic])
def test_deep_sea_is_its_table(cls):
    """Every cell and action: what is listed is what happens, given the slip."""
    env = cls(4, "index")
    params = env.default_params
    mdp = tabulate(env, params)
    cell, action = (x.ravel() for x in jnp.meshgrid(jnp.arange(16), jnp.arange(2), indexing="ij"))
    states = deep_sea.State(cell // 4, cell // 4, cell % 4)
    right = jax.vmap(env.goes_right, (0, 0, None))(states, action, params)
    for k in range(mdp.probability.shape[-1]):
        out = jax.vmap(lambda s, r, k=k: env.after_chance(s, r, k == 1, 0, params))(states, right)
        obs = jax.vmap(env.observe, (None, 0, None))(KEY, out.state, params)
        np.testing.assert_array_equal(obs, mdp.next_state[cell, action, k])
        np.testing.assert_allclose(out.reward, mdp.reward[cell, action, k], atol=1e-7)
        np.testing.assert_array_equal(out.terminated, mdp.terminated[cell, action, k])
    np.testing.assert_allclose(mdp.probability.sum(-1), 1)
    assert env.observation_space(params).n == 16


def test_tasks_are_bsuites():
    data = golden("bsuite_envs")
    np.testing.assert_array_equal([bandit.bsuite_rewards(seed) for seed in range(20)], data["bandit_rewards"])
    np.testing.assert_array_equal(deep_sea.bsuite_mapping(6), data["deep_sea_mapping_6"])
    np.testing.assert_array_equal(deep_sea.bsuite_mapping(50), data["deep_sea_mapping_50"])


@pytest.mark.slow
def test_first_states():
    """Ranges and frequencies of what bsuite draws at a reset."""
    keys = jax.random.split(KEY, 8000)

    def draw(env, params=None):
        return jax.jit(jax.vmap(env.reset, (0, None)))(keys, env.default_params if params is None else params)[1]

    frequency = np.bincount(draw(catch.Catch()).ball_x, minlength=5) / len(keys)
    np.testing.assert_allclose(frequency, 0.2, atol=0.02)
    pole = draw(cartpole_swingup.CartPoleSwingup())
    assert np.abs(pole.x).max() <= 0.05 and np.abs(pole.theta - np.pi).max() <= 0.0501 and pole.x.std() > 0.028
    position = draw(mountain_car.MountainCar()).position
    assert position.min() >= -0.6 and position.max() <= -0.4 and abs(position.mean() + 0.5) < 0.003
    memory = draw(memory_chain.MemorySize(40))
    np.testing.assert_allclose(memory.context.mean(0), 0.5, atol=0.03)
    np.testing.assert_allclose(np.bincount(memory.query, minlength=40) / len(keys), 1 / 40, atol=0.008)
    assert np.abs(np.corrcoef(memory.context.T) - np.eye(40)).max() < 0.06
    umbrella = draw(umbrella_chain.Umbrella(40))
    assert abs(umbrella.need.mean() - 0.5) < 0.02 and abs(umbrella.have.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(umbrella.need, umbrella.have)[0, 1]) < 0.04


@pytest.mark.slow
def test_observations_at_the_end_stay_in_their_spaces():
    """After the last step, where a fraction of time compiled to a product could leave [0, 1]."""
    for env, time in (
        (discounting_chain.DiscountingChain(), 100),
        (mountain_car.MountainCar(), 1000),
        (memory_chain.MemoryLength(), 11),
        (umbrella_chain.Umbrella(), 20),
    ):
        params, (_, state) = env.default_params, env.reset(KEY, env.default_params)
        obs = jax.jit(env.observe)(KEY, state.replace(time=jnp.int32(time)), params)
        assert env.observation_space(params).contains(obs), env.id


@pytest.mark.slow
def test_digits_can_be_told_apart():
    """The nearest glyph under all shifts is right nearly always; clean pictures are 7 x 5 blocks of the board."""
    env = digits_bandit.DigitsBandit()
    params = env.default_params
    obs, state = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(KEY, 600), params)
    pictures = np.asarray(obs)
    templates = np.zeros((10, 6, 8, 12, 12))
    for top in range(6):
        for left in range(8):
            templates[:, top, left, top : top + 7, left : left + 5] = digits_bandit.glyphs()
    distance = np.abs(pictures[:, None] - templates.reshape(1, -1, 12, 12)).sum((2, 3))
    guess = distance.argmin(1) // (6 * 8)
    assert (guess == state.label).mean() > 0.97
    assert 0.04 < distance.min(1).mean() / 144 < 0.06
    assert np.bincount(state.label, minlength=10).min() > 35
    ts = jax.jit(jax.vmap(env.step, (None, 0, 0, None)))(KEY, state, jnp.asarray(guess), params)
    np.testing.assert_array_equal(ts.reward, np.where(guess == state.label, 1, -1))
    assert ts.terminated.all() and not ts.obs.any()


# ---- experiments


def test_sweep_is_bsuites():
    theirs = {
        name.replace("mnist", "digits"): json.loads(str(x))
        for name, x in golden("bsuite_sweep").items()
        if name != "bsuite"
    }
    assert set(theirs) == set(EXPERIMENTS)
    for name, row in EXPERIMENTS.items():
        assert row.num_episodes == theirs[name]["num_episodes"]
        assert set(row.tags) == set(theirs[name]["tags"])
        ours = [dict(zip(row.settings, values, strict=True)) for values in zip(*row.settings.values(), strict=True)]
        fixed = {"mapping_seed": 42} if name.startswith("deep_sea") else {}
        fixed |= {"n_distractor": 20} if name == "umbrella_length" else {}
        settings = [{k: v for k, v in (s | fixed).items() if k != "seed"} for s in ours]
        assert settings == [{k: v for k, v in s.items() if k != "seed"} for s in theirs[name]["settings"]], name


def test_sweep_makes_the_tasks():
    assert [t.env.size for t in sweep("deep_sea")] == list(range(10, 51, 2))
    np.testing.assert_array_equal(sweep("deep_sea")[2].params.action_mapping, deep_sea.bsuite_mapping(14))
    assert float(sweep("deep_sea_stochastic")[0].params.slip) == pytest.approx(0.1)
    np.testing.assert_allclose(sweep("bandit_noise")[5].params.env.rewards, bandit.bsuite_rewards(1), rtol=1e-6)
    assert float(sweep("bandit_noise")[5].params.noise_scale) == pytest.approx(0.3)
    assert float(sweep("catch_scale")[19].params.reward_scale) == 1000
    assert float(sweep("cartpole_swingup")[19].params.height) == pytest.approx(0.95)
    assert float(sweep("cartpole_swingup")[19].params.x_good) == pytest.approx(0.05)
    assert np.argmax(sweep("discounting_chain")[7].params.rewards) == 2
    assert [int(t.params.memory_length) for t in sweep("memory_len")][-1] == 100
    assert sweep("memory_size")[-1].env.num_bits == 40 and int(sweep("memory_size")[0].params.memory_length) == 2
    assert sweep("umbrella_distract")[-1].env.n_distractor == 100
    assert int(sweep("umbrella_length")[-1].params.chain_length) == 100
    with pytest.raises(ValueError, match="there are bandit"):
        sweep("mnist")


@pytest.mark.slow(but_first=16)
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_scores_are_bsuites(experiment):
    name = experiment.replace("digits", "mnist")
    data = {k: x for k, x in golden("bsuite_scores").items() if k.startswith(name + "/")}
    for i in range(3):
        columns = [data[f"{name}/{i}/{field}"].astype(float) for field in Results._fields[1:]]
        log = Results(data[f"{name}/{i}/episode"].astype(int), *columns)
        expected = float(data[f"{name}/{i}/score"])
        assert scoring.score(experiment, log) == pytest.approx(expected, abs=1e-9, nan_ok=True), i
        # Twice the same runs is the same score.
        twice = Results(log.episode, *(x.repeat(2, 0) for x in log[1:]))
        assert scoring.score(experiment, twice) == pytest.approx(expected, abs=1e-9, nan_ok=True), i


def test_score_refuses_wrong_runs():
    log = Results(np.arange(1, 3), *np.zeros((4, 7, 2)))
    with pytest.raises(ValueError, match="7 runs; it has 20 settings"):
        scoring.score("bandit", log)
    with pytest.raises(ValueError, match="there are bandit"):
        scoring.score("mnist", log)
    with pytest.raises(ValueError, match="No run has finished"):
        scoring.score("bandit", Results(np.arange(1, 3), *np.full((4, 20, 2), np.nan)))


def test_by_tag():
    tags = scoring.by_tag({"bandit": 1.0, "catch": 0.5, "deep_sea_stochastic": 0.0})
    assert tags == {"basic": 0.75, "credit_assignment": 0.5, "exploration": 0.0, "noise": 0.0}


def test_log_points():
    np.testing.assert_array_equal(
        log_points(100), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100]
    )


@pytest.mark.slow
def test_perturbed_and_logged():
    """The agent sees noisy, scaled rewards; the log has both sums, regret and best episode, as counted by hand."""
    env = PerturbedReward(catch.Catch(rows=4))
    params = strongly_typed(env.default_params.replace(noise_scale=0.5, reward_scale=10.0))
    venv = logged(env, 3, 20)
    _, vstate = venv.reset(KEY, params)

    def body(vstate, key):
        ts = venv.step(key, vstate, jnp.array([0, 1, 2]), params)
        return ts.state, (ts.reward, ts.info["raw_reward"], ts.info["regret"], ts.terminated)

    vstate, (reward, raw, regret, end) = jax.jit(lambda s: jax.lax.scan(body, s, jax.random.split(KEY, 45)))(vstate)
    log = results(vstate)
    np.testing.assert_array_equal(log.episode, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20])
    for e, column in ((1, 0), (2, 1), (12, 10), (14, 11)):  # episodes of three steps
        assert np.all(np.cumsum(end, 0)[3 * e - 1] == e)
        np.testing.assert_allclose(log.total_return[:, column], np.sum(reward[: 3 * e], 0), rtol=1e-5)
        np.testing.assert_allclose(log.raw_return[:, column], np.sum(raw[: 3 * e], 0))
        np.testing.assert_allclose(log.regret[:, column], e - np.sum(raw[: 3 * e], 0))
        np.testing.assert_allclose(log.best_episode[:, column], np.maximum(np.max(raw[: 3 * e], 0), 0))
    assert np.isnan(log.total_return[:, 12:]).all()
    noise = np.asarray(reward) / 10 - np.asarray(raw)
    assert abs(noise.std() - 0.5) < 0.1 and len(np.unique(noise)) == noise.size


@pytest.mark.parametrize(
    "make",
    [
        lambda: catch.Catch(rows=1),
        lambda: deep_sea.DeepSea(observation="board"),
        lambda: deep_sea.DeepSea(0),
        lambda: memory_chain.MemoryLength(0),
        lambda: umbrella_chain.Umbrella(-1),
        lambda: bandit.Bandit().validate(bandit.Params(jnp.zeros(3))),
        lambda: cartpole.CartPole().validate(cartpole.Params(length=-1.0)),
        lambda: deep_sea.DeepSea(3).validate(deep_sea.Params(jnp.full((3, 3), 2))),
        lambda: deep_sea.DeepSeaStochastic(1).validate(deep_sea.StochasticParams(jnp.zeros((1, 1)), slip=1.5)),
        lambda: digits_bandit.DigitsBandit().validate(digits_bandit.Params(jnp.zeros((10, 7, 5)), flip=2.0)),
        lambda: mountain_car.MountainCar().validate(mountain_car.Params(episode_length=0)),
        lambda: memory_chain.MemoryLength().validate(memory_chain.Params(memory_length=0)),
        lambda: umbrella_chain.Umbrella().validate(umbrella_chain.Params(chain_length=0)),
        lambda: discounting_chain.DiscountingChain().validate(
            discounting_chain.Params(jnp.ones(4), jnp.ones(5, jnp.int32))
        ),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(ValueError):
        make()
