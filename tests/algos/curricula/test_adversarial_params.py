"""Gradients in the dynamics' parameters against closed forms, the worst of a box against a grid, students trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Environment, Transition
from jaxrl.algos import apg, ppo
from jaxrl.algos.curricula import adversarial_params as adversarial
from jaxrl.curriculum.teaching import ranges
from jaxrl.environment import Hints, pytree, strongly_typed
from jaxrl.spaces import Box
from jaxrl.testing.assertions import assert_no_key_reuse

KEY = jax.random.key(0)


@pytree
class LinearParams:
    a: jax.Array = 0.9
    b: jax.Array = 0.5
    max_steps: jax.Array = 100


@pytree
class LinearState:
    time: jax.Array
    x: jax.Array


class Linear(Environment):
    """x' = a x + b u from x = 1, reward -x^2 of the state before."""

    Params = LinearParams
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return LinearState(jnp.int32(0), jnp.ones(()))

    def transition(self, key, state, action, params):
        x = params.a * state.x + params.b * action[0]
        return Transition(state.replace(x=x), -(state.x**2), jnp.bool_(False), jnp.bool_(False), {})

    def observe(self, key, state, params):
        return state.x[None]

    def observation_space(self, params):
        return Box(-jnp.inf, jnp.inf, (1,))

    def action_space(self, params):
        return Box(-10.0, 10.0, (1,))


ENV = Linear(id="Linear")
PARAMS = ENV.default_params
BOX = ranges(PARAMS, {"a": (0.0, 1.2), "b": (-1.0, 1.0)})
SMALL = dict(num_envs=4, num_steps=8, num_minibatches=1, hidden=(8,))
STUDENT = ppo.make(jaxrl.vectorize(ENV, 4, level_fn=adversarial.Drawn(BOX)), ppo.Config(**SMALL))
# u = -k x, k being the policy.
CONTROL = STUDENT._replace(act=lambda policy, key, obs, carry=(), greedy=False: (-policy * obs, carry))
CONFIG = adversarial.Config(num_adversaries=4, num_episodes=2, num_steps=12, num_moves=20)


def closed_form(k, a, b, T=12):
    return -np.sum((a - b * k) ** (2 * np.arange(T)))


def test_returns_and_gradients_of_a_linear_system():
    def value(params):
        return adversarial.mean_return(KEY, CONTROL, jnp.float32(0.8), ENV, params, CONFIG)

    np.testing.assert_allclose(value(PARAMS), closed_form(0.8, 0.9, 0.5), rtol=1e-5)
    slope = jax.grad(value, allow_int=True)(PARAMS)
    c, t = 0.9 - 0.5 * 0.8, np.arange(1, 12)
    np.testing.assert_allclose(slope.a, -np.sum(2 * t * c ** (2 * t - 1)), rtol=1e-4)
    np.testing.assert_allclose(slope.b, 0.8 * np.sum(2 * t * c ** (2 * t - 1)), rtol=1e-4)
    h = 1e-5
    for name, at in (("a", 0.9), ("b", 0.5)):
        more, less = ({"a": 0.9, "b": 0.5} | {name: at + s} for s in (h, -h))
        finite = (closed_form(0.8, **more) - closed_form(0.8, **less)) / (2 * h)
        np.testing.assert_allclose(getattr(slope, name), finite, rtol=1e-4)


def test_episodes_that_end_count_no_further():
    limited = PARAMS.replace(max_steps=jnp.int32(5))
    value = adversarial.mean_return(KEY, CONTROL, jnp.float32(0.8), ENV, limited, CONFIG)
    np.testing.assert_allclose(value, closed_form(0.8, 0.9, 0.5, 5), rtol=1e-5)


def test_a_step_by_hand():
    x, slope = jnp.array([0.5, 0.5, 0.95, 0.01, 0.3]), jnp.array([2.0, -1e-9, -4.0, 4.0, 0.0])
    np.testing.assert_allclose(adversarial.descended(x, slope, 0.1), [0.4, 0.6, 1, 0, 0.3])
    np.testing.assert_allclose(adversarial.descended(x[:2], jnp.array([jnp.nan, -jnp.inf]), 0.1), x[:2])


@pytest.mark.parametrize("k", [0.5, -0.7, 3.0])
def test_the_worst_params_are_the_grids(k):
    worst = adversarial.worst_params(KEY, CONTROL, jnp.float32(k), ENV, PARAMS, BOX, CONFIG)
    a, b = np.meshgrid(np.linspace(0, 1.2, 41), np.linspace(-1, 1, 41))
    grid = np.vectorize(lambda a, b: closed_form(k, a, b))(a, b)
    assert worst.episode_return <= grid.min() * (1 - 1e-4)  # returns are negative
    np.testing.assert_allclose(worst.episode_return, grid.min(), rtol=1e-3)
    near = a.ravel()[grid.argmin()], b.ravel()[grid.argmin()]
    np.testing.assert_allclose((worst.params.a, worst.params.b), near, atol=1e-3)
    again = closed_form(k, float(worst.params.a), float(worst.params.b))
    np.testing.assert_allclose(again, worst.episode_return, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.light
def test_the_worst_pendulum_is_the_grids():
    env, params = jaxrl.make("Pendulum-v1")
    box = ranges(params, {"mass": (0.7, 1.3), "length": (0.7, 1.3)})
    algo = ppo.make(env, ppo.Config(**SMALL))
    policy = jnp.array([-6.0, -2.0])  # a proportional and derivative controller, near upright
    algo = algo._replace(act=lambda p, key, obs, carry=(), greedy=False: (obs[..., 1:] @ p[:, None], carry))

    class Upright(type(env)):
        def initial(self, key, params):
            state = super().initial(key, params)
            return state.replace(theta=0.2 * state.theta / jnp.pi, theta_dot=0.1 * state.theta_dot)

    config = adversarial.Config(num_adversaries=4, num_episodes=8, num_steps=60, num_moves=25)
    worst = adversarial.worst_params(KEY, algo, policy, Upright(), params, box, config)
    _, search, judge = jax.random.split(KEY, 3)  # as worst_params does
    grid = jnp.stack(jnp.meshgrid(*[jnp.linspace(0, 1, 7)] * 2), -1).reshape(-1, 2)

    @jax.jit
    def value(episodes, x):
        return jax.vmap(lambda x: adversarial.mean_return(episodes, algo, policy, Upright(), box(params, x), config))(x)

    returns, found = value(search, grid), value(search, worst.x[None])[0]
    np.testing.assert_allclose(value(judge, worst.x[None])[0], worst.episode_return, rtol=1e-4)
    assert found <= returns.min() + 0.01 * abs(returns.min())
    assert returns.max() > 0.7 * found  # it matters
    np.testing.assert_allclose(worst.x, grid[returns.argmin()], atol=0.1)


@pytest.mark.slow
@pytest.mark.light
def test_searches_start_from_corners_and_uniform_points():
    for D, n, corners in ((2, 8, 4), (2, 20, 4), (3, 7, 3), (20, 8, 4)):
        x = np.asarray(adversarial.starts(KEY, n, D))
        at_corner = ((x == 0) | (x == 1)).all(1)
        assert x.shape == (n, D) and at_corner.sum() == corners == at_corner[:corners].sum()
        assert len(np.unique(x, axis=0)) == n and ((x >= 0) & (x <= 1)).all()


def test_levels_are_the_adversarys_points_or_uniform():
    adversary = adversarial.Adversary(PARAMS, jnp.array([[0.0, 0.5], [1.0, 1.0]]), strongly_typed(adversarial.Hyper()))
    drawn = adversarial.Drawn(BOX)
    levels = jax.vmap(drawn, (0, None))(jax.random.split(KEY, 4000), adversary)
    a = np.asarray(levels.a)
    np.testing.assert_allclose([(a == 0).mean(), (a == np.float32(1.2)).mean()], 0.25, atol=0.03)
    np.testing.assert_array_equal(np.asarray(levels.b)[a == 0], 0)
    between = a[(a > 0) & (a < np.float32(1.2))]
    np.testing.assert_allclose([between.mean(), between.std()], [0.6, 1.2 / 12**0.5], atol=0.03)
    assert drawn(KEY, PARAMS) is PARAMS and hash(drawn) == hash(adversarial.Drawn(BOX))


@pytest.mark.slow
@pytest.mark.light
def test_the_adversary_moves_to_the_worst():
    hyper = adversarial.Hyper(rate=0.1)
    algo = adversarial.make(CONTROL._replace(policy=lambda state: jnp.float32(3.0)), CONFIG, hyper)
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 32 * 30, env_params=PARAMS))(KEY)
    # |a - 3 b| is largest at a = 1.2, b = -1. Slopes alone would leave some at a = 0, b = 1.
    np.testing.assert_allclose(state.adversary.x, [(1, 0)] * 4, atol=1e-6)
    assert metrics["adversary_return"][-1] < metrics["adversary_return"][0]
    jax.tree.map(np.testing.assert_array_equal, state.env_params, state.adversary)  # episodes are played on it
    played = np.asarray(state.env_state.params.a)
    assert played.shape == (4,) and ((played >= 0) & (played <= 1.2)).all()


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("kind", ["apg", "ppo"])
def test_students(kind):
    venv = jaxrl.vectorize(ENV, 4, level_fn=adversarial.Drawn(BOX))
    module = {"apg": apg, "ppo": ppo}[kind]
    algo = adversarial.make(module.make(venv, module.Config(**SMALL)), CONFIG)
    state = jax.jit(algo.init)(KEY, env_params=PARAMS)
    update = jax.jit(algo.update)
    together, metrics = update(state)
    apart, _ = jax.jit(lambda state: algo.learn(*algo.collect(state)))(state)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), apart.weights, together.weights)
    np.testing.assert_allclose(apart.adversary.x, together.adversary.x, atol=1e-4)
    for _ in range(3):
        together, metrics = update(together)
    assert update._cache_size() == 1  # pyright: ignore[reportFunctionMemberAccess]
    assert np.isfinite(metrics["loss"]) and np.isfinite(metrics["adversary_return"])
    assert (np.asarray(together.adversary.x) != np.asarray(state.adversary.x)).all()


@pytest.mark.slow
@pytest.mark.light
def test_seeds_together_are_the_single_ones():
    algo = adversarial.make(STUDENT, CONFIG)

    def run(key):
        state, _ = jaxrl.train(algo, key, 64, env_params=PARAMS)
        return state.adversary.x

    keys = jax.random.split(KEY, 2)
    np.testing.assert_allclose(jax.jit(jax.vmap(run))(keys)[1], jax.jit(run)(keys[1]), atol=1e-3)


@pytest.mark.slow
@pytest.mark.light
def test_keys_are_used_once():
    algo = adversarial.make(STUDENT, CONFIG)
    assert_no_key_reuse(algo.update, algo.init(jax.random.key(1), env_params=PARAMS))


def test_impossible_settings():
    with pytest.raises(ValueError, match=r"vectorize\(env, 4, level_fn=Drawn\(level_at\)\)"):
        adversarial.make(ppo.make(ENV, ppo.Config(**SMALL)))
    with pytest.raises(ValueError, match="num_moves=0"):
        adversarial.Config(num_moves=0)
    for change, words in (
        ({"rate": -0.1}, "rate=-0.1.*: it must not be below 0"),
        ({"uniform_share": 1.5}, "uniform_share=1.5"),
    ):
        with pytest.raises(ValueError, match=words):
            adversarial.make(STUDENT, CONFIG, adversarial.Hyper(**change))
    with pytest.raises(ValueError, match="dimensions=3: level_at varies 2"):
        adversarial.make(STUDENT, adversarial.Config(dimensions=3))
