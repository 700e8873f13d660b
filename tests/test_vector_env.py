"""The vectorised environment against a plain loop over `env.step`, for every reset strategy."""

import dataclasses
import sys
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrl import Environment, Transition, make, pytree, vectorize
from jaxrl.environment import strongly_typed
from jaxrl.math import light_key
from jaxrl.spaces import Box, Discrete
from jaxrl.testing.assertions import assert_no_key_reuse, assert_stock_keys

STRATEGIES = ("dense", "sparse")
LONG = 300


@pytree
class DriftParams:
    max_steps: jax.Array = 4
    gain: jax.Array = 0.3
    start: jax.Array = 0.5
    noise: jax.Array = 0.0


@pytree
class DriftState:
    time: jax.Array
    x: jax.Array


@dataclasses.dataclass(frozen=True)
class Drift(Environment):
    """Smooth one-dimensional dynamics whose start depends on params, with observation and process noise."""

    id: str = dataclasses.field(default="Drift", kw_only=True)
    Params = DriftParams

    def initial(self, key, params):
        return DriftState(jnp.int32(0), params.start + 0.1 * jax.random.normal(key))

    def transition(self, key, state, action, params):
        x = state.x + params.gain * jnp.tanh(action - jnp.sin(state.x)) + params.noise * jax.random.normal(key)
        return Transition(state.replace(x=x), x * x, x > 1e6, jnp.bool_(False), {"reward/square": x * x})

    def observe(self, key, state, params):
        return jnp.stack([state.x, params.gain]) + params.noise * jax.random.normal(key, (2,))

    def observation_space(self, params):
        return Box(-jnp.inf, jnp.inf, (2,))

    def action_space(self, params):
        return Box(-1.0, 1.0)


class Reuse(Drift):
    """What the check for key reuse must find."""

    def initial(self, key, params):
        return DriftState(jnp.int32(0), jax.random.uniform(key) + jax.random.normal(key))


@pytree
class TeamState:
    time: jax.Array
    count: jax.Array  # (M,)


@pytree
class TeamParams:
    max_steps: jax.Array = 3


@dataclasses.dataclass(frozen=True)
class Team(Environment):
    """Two agents; each is paid its own action."""

    Params = TeamParams
    num_agents = 2

    def initial(self, key, params):
        return TeamState(jnp.int32(0), jnp.zeros(2))

    def transition(self, key, state, action, params):
        reward = action.astype(jnp.float32)
        return Transition(state.replace(count=state.count + reward), reward, jnp.bool_(False), jnp.bool_(False), {})

    def observe(self, key, state, params):
        return state.count[:, None]

    def observation_space(self, params):
        return Box(0.0, 10.0, (1,))

    def action_space(self, params):
        return Discrete(4)


@cache
def rollout(venv, steps):
    """Jitted: `steps` random actions. Returns the first and last (obs, vstate), the actions; TimeSteps, (T, N, ...)."""

    @jax.jit
    def run(key, params):
        reset_key, key = jax.random.split(key)
        first = venv.reset(reset_key, params)
        space = venv.env.action_space(venv.env.default_params)

        def step(carry, key):
            _, vstate = carry
            action_key, step_key = jax.random.split(key)
            action = jax.vmap(space.sample)(jax.random.split(action_key, venv.num_envs))
            ts = venv.step(step_key, vstate, action, params)
            return (ts.obs, ts.state), (action, ts)

        last, (action, ts) = jax.lax.scan(step, first, jax.random.split(key, steps))
        return first, last, action, ts

    return run


def before(first, ts):
    """Environment states (T, N, ...) from which each step was made."""
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b[:-1]]), first[1].env, ts.state.env)


@cache
def cartpole(reset):
    return vectorize(make("CartPole-v1")[0], 32, reset)


@pytest.mark.parametrize("reset", STRATEGIES)
def test_agrees_with_a_loop_over_env_step(reset):
    venv = cartpole(reset)
    params = venv.default_params.replace(max_steps=jnp.int32(25))
    first, last, action, ts = rollout(venv, LONG)(jax.random.key(0), params)
    np.testing.assert_array_equal(ts.obs[-1], last[0])
    action, ts = jax.tree.map(np.asarray, (action, ts))
    states = before(first, ts)
    step, observe = jax.jit(venv.env.step), jax.jit(venv.env.observe)
    key = jax.random.key(1)
    finished_count = {"terminated": 0, "truncated": 0}
    for n in (0, 13, 31):
        total, length = 0.0, 0
        for t in range(60):
            got = jax.tree.map(lambda x, t=t, n=n: x[t, n], ts._replace(state=ts.state.env))
            want = step(key, jax.tree.map(lambda x, t=t, n=n: x[t, n], states), action[t, n], params)
            for name in ("reward", "terminated", "truncated"):
                assert getattr(got, name) == getattr(want, name), name
            np.testing.assert_allclose(got.info["final_obs"], want.obs, rtol=1e-6, atol=1e-6)
            total, length = total + float(want.reward), length + 1
            assert got.info["episode_return"] == total and got.info["episode_length"] == length
            np.testing.assert_array_equal(got.obs, observe(key, got.state, params))
            if want.terminated or want.truncated:
                finished_count["terminated"] += bool(want.terminated)
                finished_count["truncated"] += bool(want.truncated)
                total, length = 0.0, 0
                assert got.state.time == 0 and np.all(np.abs(got.obs) <= 0.05)
            else:
                jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-6), got.state, want.state)
    assert min(finished_count.values()) > 0, finished_count


@pytest.mark.parametrize("reset", STRATEGIES)
def test_starts_and_lengths_have_the_distribution_of_plain_resets(reset):
    venv = cartpole(reset)
    first, _, _, ts = rollout(venv, LONG)(jax.random.key(2), venv.default_params)
    finished = np.asarray(ts.terminated | ts.truncated)
    starts = np.concatenate([np.asarray(first[0]), np.asarray(ts.obs)[finished]])
    assert len(starts) > 300
    for component in starts.T:
        assert stats.kstest(component, stats.uniform(-0.05, 0.1).cdf).pvalue > 1e-3
    np.testing.assert_allclose(np.corrcoef(starts.T), np.eye(4), atol=0.15)
    # Episodes are as long as those of a loop that never shares or selects anything.
    lengths = np.asarray(ts.info["episode_length"])[finished]
    np.testing.assert_array_equal(lengths, np.asarray(ts.info["episode_return"])[finished])
    assert stats.ks_2samp(lengths, reference_lengths()).pvalue > 1e-3
    assert len(np.unique(starts, axis=0)) == len(starts), "two episodes began alike"


@cache
def reference_lengths():
    """Lengths of independent random episodes, of which next to none is longer than 200 steps."""
    env, params = make("CartPole-v1")

    @jax.jit
    @jax.vmap
    def episode(key):
        reset_key, key = jax.random.split(key)

        def step(carry, key):
            state, length, done = carry
            ts = env.step(key, state, jax.random.randint(key, (), 0, 2), params)
            return (ts.state, length + ~done, done | ts.terminated), None

        start = env.reset(reset_key, params)[1], jnp.int32(0), jnp.bool_(False)
        return jax.lax.scan(step, start, jax.random.split(key, 200))[0][1]

    return np.asarray(episode(jax.random.split(jax.random.key(3), 1000)))


@pytest.mark.slow
def test_noise_is_independent_between_slots_steps_and_uses():
    venv, noise = vectorize(Drift(), 64, "sparse"), 0.5
    params = Drift().default_params.replace(noise=jnp.float32(noise), max_steps=jnp.int32(5))
    first, _, action, ts = rollout(venv, 40)(jax.random.key(4), params)
    x = before(first, ts).x
    # final_obs is made from the state before any reset.
    process = ts.info["reward/square"] ** 0.5 - jnp.abs(x + params.gain * jnp.tanh(action - jnp.sin(x)))
    sensor = ts.info["final_obs"][..., 1] - params.gain
    sensor = np.asarray(sensor) / noise
    assert stats.kstest(sensor.ravel(), "norm").pvalue > 1e-3
    assert len(np.unique(sensor)) > 0.99 * sensor.size
    assert abs(np.corrcoef(sensor[:-1].ravel(), sensor[1:].ravel())[0, 1]) < 0.08
    assert abs(np.corrcoef(sensor[:, :-1].ravel(), sensor[:, 1:].ravel())[0, 1]) < 0.08
    assert abs(np.corrcoef(sensor.ravel(), np.asarray(process).ravel())[0, 1]) < 0.08


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_every_chunk_size_restarts_exactly_the_finished_slots(chunk):
    venv = vectorize(Drift(), 3, "sparse", batched_params=True, chunk=chunk)
    for limit in ([1, 2, 3], [2, 2, 2], [1, 9, 1], [99, 99, 99]):
        params = venv.default_params.replace(max_steps=jnp.array(limit, jnp.int32), gain=jnp.arange(3.0))
        first, _, action, ts = rollout(venv, 6)(jax.random.key(5), params)
        times = np.array([[(t + 1) % m for m in limit] for t in range(6)])
        np.testing.assert_array_equal(ts.state.env.time, times)
        np.testing.assert_array_equal(ts.truncated, times == 0)
        np.testing.assert_array_equal(ts.obs[..., 1], np.broadcast_to(np.arange(3.0), (6, 3)))
        x = before(first, ts).x
        moved = x + params.gain * jnp.tanh(action - jnp.sin(x))
        restarted = np.asarray(ts.truncated)
        np.testing.assert_allclose(ts.obs[..., 0][~restarted], moved[~restarted], rtol=1e-5)
        assert len(np.unique(np.asarray(ts.obs[..., 0])[restarted])) == restarted.sum()


@pytest.mark.slow
@pytest.mark.parametrize("num_envs", [256, 300])
def test_large_batches_restart_exactly_the_finished_slots(num_envs):
    venv = vectorize(Drift(), num_envs, "sparse", batched_params=True)
    limit = jax.random.randint(jax.random.key(6), (num_envs,), 1, 6)
    params = venv.default_params.replace(max_steps=limit)
    _, _, _, ts = rollout(venv, 6)(jax.random.key(7), params)
    times = np.arange(1, 7)[:, None] % np.asarray(limit)
    np.testing.assert_array_equal(ts.state.env.time, times)
    starts = np.asarray(ts.obs[..., 0])[times == 0]
    assert len(np.unique(starts)) == len(starts)


@pytest.mark.parametrize("reset", ["dense", "sparse"])
def test_batched_params_give_each_slot_its_own_level(reset):
    env = Drift()
    venv = vectorize(env, 6, reset, batched_params=True)
    params = venv.default_params.replace(gain=jnp.linspace(0.1, 0.6, 6), start=10.0 * jnp.arange(6))
    first, _, action, ts = rollout(venv, 9)(jax.random.key(8), params)
    np.testing.assert_array_equal(ts.obs[..., 1], np.broadcast_to(params.gain, (9, 6)))
    np.testing.assert_array_equal(first[0][:, 1], params.gain)
    starts = np.asarray(ts.state.env.x)[np.asarray(ts.truncated)].reshape(2, 6)
    np.testing.assert_allclose(starts, np.broadcast_to(params.start, (2, 6)), atol=0.5)
    states = before(first, ts)
    for n in range(6):
        row = jax.tree.map(lambda p, n=n: p[n], params)
        state = jax.tree.map(lambda s, n=n: s[2, n], states)
        want = env.step(jax.random.key(0), state, action[2, n], row)
        np.testing.assert_allclose(ts.reward[2, n], want.reward, rtol=1e-5)


def spread_gain(key, params):
    """The level function of these tests: a gain between 0 and the distribution's."""
    return params.replace(gain=params.gain * jax.random.uniform(key))


@pytest.mark.parametrize(("reset", "batched"), [("dense", False), ("sparse", False), ("sparse", True)])
def test_level_fn_draws_a_level_for_every_episode(reset, batched):
    venv = vectorize(Drift(), 6, reset, level_fn=spread_gain, batched_params=batched)
    params = venv.default_params
    widest = 10.0 ** jnp.arange(6) if batched else jnp.full(6, 0.3)
    params = params.replace(gain=widest if batched else widest[0])
    first, _, action, ts = rollout(venv, 12)(jax.random.key(9), params)
    gain = np.concatenate([first[1].params.gain[None], ts.state.params.gain])
    np.testing.assert_array_equal(ts.obs[..., 1], gain[1:])
    changed = gain[1:] != gain[:-1]
    np.testing.assert_array_equal(changed, ts.truncated)
    assert np.all((gain > 0) & (gain < np.asarray(widest)))
    assert len(np.unique(gain)) == 6 + int(ts.truncated.sum())
    # The step runs on the slot's level, not on the distribution's params.
    x = before(first, ts).x
    moved = x + gain[:-1] * jnp.tanh(action - jnp.sin(x))
    np.testing.assert_allclose(ts.info["final_obs"][..., 0], moved, rtol=1e-5)
    assert np.std(gain / np.asarray(widest)) > 0.1


def test_restart_touches_masked_slots_only_and_does_not_recompile():
    venv = vectorize(Drift(), 5, "sparse", batched_params=True)
    traces = []

    @jax.jit
    def restart(key, vstate, params, mask):
        traces.append("restart")
        return venv.restart(key, vstate, params, mask)

    @jax.jit
    def step(key, vstate, action, params):
        traces.append("step")
        return venv.step(key, vstate, action, params)

    params = venv.default_params
    obs, vstate = venv.reset(jax.random.key(0), params)
    ts = step(jax.random.key(1), vstate, jnp.ones(5), params)
    for seed, mask in enumerate(([1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1])):
        mask = np.array(mask, bool)
        new = params.replace(gain=params.gain * (seed + 2), start=params.start + 100)
        obs, vstate = restart(jax.random.key(10 + seed), ts.state, new, mask)
        np.testing.assert_array_equal(vstate.env.time, np.where(mask, 0, ts.state.env.time))
        np.testing.assert_array_equal(vstate.episode_return, np.where(mask, 0, ts.state.episode_return))
        np.testing.assert_array_equal(vstate.env.x[~mask], ts.state.env.x[~mask])
        assert np.all(vstate.env.x[mask] > 50) and len(np.unique(vstate.env.x)) == 5
        np.testing.assert_allclose(obs[:, 0], vstate.env.x)
        np.testing.assert_allclose(obs[:, 1], new.gain)
        step(jax.random.key(20 + seed), vstate, jnp.ones(5), new)
    assert sorted(traces) == ["restart", "step"]


@pytest.mark.slow
def test_restart_with_level_fn_draws_new_levels_in_masked_slots():
    venv = vectorize(Drift(), 4, level_fn=spread_gain)
    params = venv.default_params
    _, vstate = venv.reset(jax.random.key(0), params)
    mask = jnp.array([True, False, False, True])
    obs, after = jax.jit(venv.restart)(jax.random.key(1), vstate, params, mask)
    np.testing.assert_array_equal(after.params.gain != vstate.params.gain, mask)
    np.testing.assert_array_equal(obs[:, 1], after.params.gain)


@pytest.mark.parametrize("reset", STRATEGIES)
def test_state_keeps_its_structure_and_dtypes(reset):
    for settings in ({}, {"level_fn": spread_gain}):
        venv = vectorize(Drift(), 4, reset, **settings)
        params = venv.default_params
        first = jax.eval_shape(venv.reset, jax.random.key(0), params)
        ts = jax.eval_shape(venv.step, jax.random.key(0), first[1], jnp.zeros(4), params)
        assert jax.tree.structure((ts.obs, ts.state)) == jax.tree.structure(first)
        for a, b in zip(jax.tree.leaves((ts.obs, ts.state)), jax.tree.leaves(first), strict=True):
            assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)


@pytest.mark.slow
@pytest.mark.parametrize("reset", STRATEGIES)
def test_vmap_over_seeds_equals_a_loop(reset):
    venv = vectorize(Drift(), 4, reset)
    run = rollout(venv, 10)
    keys = jax.random.split(jax.random.key(11), 2)
    together = jax.jit(jax.vmap(run, (0, None)))(keys, venv.default_params)
    for i, key in enumerate(keys):
        alone = run(key, venv.default_params)
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            if jnp.issubdtype(b.dtype, jnp.floating):
                np.testing.assert_allclose(a[i], b, rtol=1e-5, atol=1e-6)
            else:
                np.testing.assert_array_equal(a[i], b)


def total_reward(venv, steps):
    def run(params, actions):
        _, vstate = venv.reset(jax.random.key(12), params)

        def step(vstate, inputs):
            key, action = inputs
            ts = venv.step(key, vstate, action, params)
            return ts.state, ts.reward + 0.1 * ts.obs.sum(-1) + 0.2 * ts.info["final_obs"][..., 0]

        return jax.lax.scan(step, vstate, (jax.random.split(jax.random.key(13), steps), actions))[1]

    return run


def central_difference(f, x, eps=1e-5):
    """Gradient of a function of one array, (scalar -> any shape) or (array -> scalar)."""
    x = np.asarray(x, np.float64)
    grad = [
        (np.asarray(f(jnp.asarray(x + shift))) - np.asarray(f(jnp.asarray(x - shift)))) / (2 * eps)
        for shift in eps * np.eye(x.size).reshape(-1, *x.shape)
    ]
    return np.reshape(grad, x.shape) if x.ndim else grad[0]


@pytest.mark.slow
@pytest.mark.parametrize("reset", STRATEGIES)
def test_gradients_through_steps_and_resets_match_finite_differences(reset):
    with jax.enable_x64(True):
        venv = vectorize(Drift(), 2, reset)
        params = strongly_typed(DriftParams(max_steps=3))
        actions = jnp.linspace(-1, 1, 10).reshape(5, 2)
        rewards = total_reward(venv, 5)

        @jax.jit
        @partial(jax.value_and_grad, argnums=(0, 1))
        def total(actions, start):
            return rewards(params.replace(start=start), actions).sum()

        half = jnp.asarray(0.5)
        by_action, by_start = total(actions, half)[1]
        np.testing.assert_allclose(by_action, central_difference(lambda a: total(a, half)[0], actions), rtol=1e-6)
        assert np.all(by_action != 0), "actions before and after the reset count"
        everything = central_difference(lambda start: total(actions, start)[0], half)
        if reset == "sparse":  # starts made by its loop count as constants: smaller, by what they contribute
            assert abs(by_start) < 0.9 * abs(everything)
        else:
            np.testing.assert_allclose(by_start, everything, rtol=1e-6)


def test_auto_is_sparse_on_cpus_and_dense_without_its_derivative_elsewhere(monkeypatch):
    def one_step(reset):
        venv = vectorize(Drift(), 4, reset)
        _, vstate = venv.reset(jax.random.key(0), venv.default_params.replace(max_steps=1))

        def reward(start, vstate):
            params = venv.default_params.replace(start=start, max_steps=1)
            for key in jax.random.split(jax.random.key(1)):  # the second step begins where the reset put it
                ts = venv.step(key, vstate, jnp.zeros(4), params)
                vstate = ts.state
            return ts.reward.sum(), (ts.obs, ts.info["final_obs"])

        return jax.jit(jax.value_and_grad(reward, has_aux=True)), (0.5, vstate)

    (auto, at), (sparse, _), (dense, _) = map(one_step, ("auto", "sparse", "dense"))
    tpu = str(auto.trace(*at).lower(lowering_platforms=("tpu",)).as_text())
    cpu = str(auto.trace(*at).lower(lowering_platforms=("cpu",)).as_text())
    for op in ("stablehlo.while", "stablehlo.scatter"):
        assert op in cpu and op not in tpu

    (_, on_cpu), slope = auto(*at)
    (_, by_sparse), _ = sparse(*at)
    close = partial(np.testing.assert_allclose, rtol=1e-6)  # other fusions round otherwise; starts differ by tenths
    jax.tree.map(close, on_cpu, by_sparse)
    monkeypatch.setattr(sys.modules["jaxrl.vector_env"], "on_cpu", lambda cpu, elsewhere, *args: elsewhere(*args))
    (_, elsewhere), same_slope = one_step("auto")[0](*at)
    (_, by_dense), steeper = dense(*at)
    jax.tree.map(close, elsewhere, by_dense)
    assert slope == same_slope == 0 and steeper != 0


@pytest.mark.slow
def test_derivatives_of_all_orders_pass_sparse_resets():
    """Also reverse mode over reverse mode through a scan, for which a rule of the first order would not do."""
    with jax.enable_x64(True):
        params = strongly_typed(DriftParams(max_steps=3))
        actions = jnp.linspace(-1, 1, 10).reshape(5, 2)

        def later(reset, push):
            rewards = total_reward(vectorize(Drift(), 2, reset), 5)
            return rewards(params, actions + push)[3:].sum()

        half = jnp.asarray(0.5)
        grad = jax.jit(jax.grad(partial(later, "sparse")))
        second = jax.jit(jax.grad(jax.grad(partial(later, "sparse"))))(half)
        np.testing.assert_allclose(second, central_difference(grad, half), rtol=1e-6)
        assert second != 0


@pytest.mark.parametrize("reset", STRATEGIES)
def test_no_key_is_used_twice(reset):
    def everything(env, settings, key):
        keys = jax.random.split(key, 4)
        venv = vectorize(env, 4, reset, **settings)
        params, space = venv.default_params, venv.env.action_space(venv.env.default_params)
        _, vstate = venv.reset(keys[0], params)
        action = jax.vmap(space.sample)(jax.random.split(keys[1], 4))
        ts = venv.step(keys[2], vstate, action, params)
        return venv.restart(keys[3], ts.state, params, jnp.ones(4, bool))

    settings = {} if reset == "dense" else {"level_fn": spread_gain}
    assert_no_key_reuse(partial(everything, Drift(), settings), jax.random.key(0))
    assert_no_key_reuse(partial(everything, make("CartPole-v1")[0], {}), jax.random.key(1))
    with pytest.raises(jax.errors.KeyReuseError):
        assert_no_key_reuse(partial(everything, Reuse(), settings), jax.random.key(2))


@dataclasses.dataclass(frozen=True)
class Keyed(Drift):
    """Carries a key of its own in its state and draws from it."""

    def initial(self, key, params):
        return KeyedState(jnp.int32(0), jax.random.normal(key), jax.random.fold_in(key, 1))

    def transition(self, key, state, action, params):
        x, key = state.x + jax.random.normal(state.key), jax.random.split(key)[0]
        return Transition(state.replace(x=x, key=key), x, jnp.bool_(False), jnp.bool_(False), {"with": key})


@pytree
class KeyedState:
    time: jax.Array
    x: jax.Array
    key: jax.Array


@pytest.mark.parametrize(("generator", "make_key"), [("hash", light_key), ("threefry", lambda key: key)])
def test_a_steps_random_numbers_are_those_of_its_generator(generator, make_key):
    """As documented: slots split a key of the generator, and each calls `reset` or `step` with its own."""
    env, key = Drift(), jax.random.key(4)
    params = env.default_params.replace(noise=jnp.float32(0.2))
    venv = vectorize(env, 4, "dense", generator=generator)
    _, vstate = venv.reset(key, params)
    ts = jax.jit(venv.step)(key, vstate, jnp.zeros(4), params)

    keys = jax.random.split(jax.random.split(make_key(key))[0], 4)
    _, states = jax.vmap(env.reset, (0, None))(keys, params)
    jax.tree.map(np.testing.assert_array_equal, vstate.env, states)
    alone = jax.vmap(env.step, (0, 0, 0, None))(keys, states, jnp.zeros(4), params)
    np.testing.assert_allclose(ts.obs, alone.obs, rtol=1e-6, atol=1e-7)  # a sum near 0 rounds as its terms


def test_a_contract_takes_the_users_kind_of_key_and_threefrys_alone():
    rbg = jax.random.key(0, impl="rbg")
    assert_stock_keys({"own": rbg, "stock": jax.random.key(1)}, rbg, "state")
    with pytest.raises(AssertionError, match="state.*light.*store the user's kind of key"):
        assert_stock_keys({"light": light_key(rbg)}, rbg, "state")


@pytest.mark.parametrize("reset", STRATEGIES)
def test_keys_in_a_state_are_jaxs_own(reset):
    env, key = Keyed(), jax.random.key(5)
    params = env.default_params
    venv = vectorize(env, 3, reset)

    @jax.jit
    def run(vstate):
        def step(vstate, key):
            ts = venv.step(key, vstate, jnp.zeros(3), params)
            assert ts.info["with"].dtype == key.dtype
            return ts.state, ts.reward

        return jax.lax.scan(step, vstate, jax.random.split(key, 12))

    _, vstate = venv.reset(key, params)
    assert vstate.env.key.dtype == key.dtype
    _, vstate = venv.restart(key, vstate, params, jnp.array([True, False, True]))
    last, reward = run(vstate)
    assert last.env.key.dtype == key.dtype and np.ptp(reward) > 0
    jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(key, 3), last.env, jnp.zeros(3), params)


@pytest.mark.slow
def test_several_agents_have_their_own_rewards():
    venv = vectorize(Team(id="Team"), 3, "sparse")
    _, vstate = venv.reset(jax.random.key(0), venv.default_params)
    action = jnp.array([[0, 1], [2, 3], [1, 1]])
    for t in range(1, 5):
        ts = venv.step(jax.random.key(t), vstate, action, venv.default_params)
        vstate = ts.state
        assert ts.reward.shape == (3, 2) and ts.truncated.shape == (3,)
        np.testing.assert_array_equal(ts.info["episode_return"], action * (t if t < 4 else 1))
    with pytest.raises(ValueError, match=r"shape \(\).*needs \(2,\)"):
        venv.step(jax.random.key(0), vstate, action[:, 0], venv.default_params)


def test_all_slots_can_finish_at_every_step():
    params = make("CartPole-v1")[1]
    venv = cartpole("sparse")
    first, _, _, ts = rollout(venv, LONG)(jax.random.key(15), params.replace(max_steps=jnp.int32(1)))
    assert np.all(ts.truncated) and not np.any(ts.terminated)
    np.testing.assert_array_equal(ts.state.env.time, 0)
    np.testing.assert_array_equal(ts.info["episode_length"], 1)
    assert len(np.unique(np.asarray(ts.obs).reshape(-1, 4), axis=0)) == 32 * LONG


def test_equal_arguments_make_equal_and_hashable_values():
    env = Drift()
    assert vectorize(env, 4) == vectorize(Drift(), 4) and hash(vectorize(env, 4)) == hash(vectorize(Drift(), 4))
    assert vectorize(env, 4) != vectorize(env, 5)
    assert vectorize(env, 4).reset_strategy == env.hints.reset
    assert vectorize(env, 4, "dense").reset_strategy == "dense"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_envs": 0}, r"num_envs=0.*at least 1"),
        ({"reset": "lazy"}, r"reset='lazy'.*auto, dense, sparse"),
        ({"chunk": 0}, r"chunk=0.*1 to 4"),
        ({"chunk": 5}, r"chunk=5.*1 to 4"),
        ({"generator": "rbg"}, r"generator='rbg'.*hash, threefry"),
    ],
)
def test_impossible_combinations_are_refused_when_built(arguments, message):
    with pytest.raises(ValueError, match=message):
        vectorize(Drift(), **{"num_envs": 4, **arguments})


def test_params_without_the_batch_axis_are_refused():
    venv = vectorize(Drift(), 3, batched_params=True)
    with pytest.raises(ValueError, match=r"params\.max_steps has shape \(\).*must be 3"):
        venv.reset(jax.random.key(0), Drift().default_params)
    five = jax.tree.map(lambda x: jnp.broadcast_to(x, 5), Drift().default_params)
    with pytest.raises(ValueError, match=r"shape \(5,\).*must be 3"):
        jax.jit(venv.reset)(jax.random.key(0), five)
