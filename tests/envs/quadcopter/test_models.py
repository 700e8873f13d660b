"""The airframes: their numbers, what they imply, the distributions over them, and what draws from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxrl
from jaxrl.algos import ppo
from jaxrl.environment import strongly_typed
from jaxrl.envs.quadcopter import checks, dynamics, models
from jaxrl.envs.quadcopter.models import FoundationRanges, Ranges
from jaxrl.envs.quadcopter.tasks.hover import Hover
from jaxrl.vector_env import vectorize

N = 4000
KEYS = jax.random.split(jax.random.key(0), N)
LIGHT = models.CRAZYFLIE


@pytest.fixture(scope="module")
def around():
    """Airframes of `randomize`."""
    ranges = Ranges(mass=1.5, inertia=1.4, thrust=1.3, motor_lag=2.0, arm=1.1)
    return ranges, jax.jit(jax.vmap(lambda key: models.randomize(key, LIGHT, ranges)))(KEYS)


@pytest.fixture(scope="module")
def any_kind():
    """Airframes of `foundation`, and their disturbances."""
    return jax.jit(jax.vmap(lambda key: models.foundation(key, models.CRAZYFLIE_RLTOOLS, FoundationRanges())))(KEYS)


def uniform(sample, low, high):
    """Kolmogorov and Smirnov do not object; nothing is outside."""
    sample = np.asarray(sample)
    assert low - 1e-5 * abs(low) <= sample.min() and sample.max() <= high * (1 + 1e-5)
    assert stats.kstest((sample - low) / (high - low), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("name", models.MODELS)
def test_models_are_sound(name):
    """They hover within their rotors' range, roll left when the left rotors slow, yaw by reaction."""
    model = models.MODELS[name]
    checks.check_model(model, name)
    assert 1.2 < model.thrust_to_weight < 13
    assert float(model.min_rpm) < float(model.hover_rpm) < float(model.max_rpm)
    np.testing.assert_allclose(dynamics.rotor_thrusts(model, (model.hover_rpm,)), model.weight / 4, rtol=1e-5)
    np.testing.assert_allclose([sum(model.rotor_x), sum(model.rotor_y), sum(model.rotor_spin)], 0, atol=1e-9)
    for push, sign in ((model.rotor_y, 1), (model.rotor_x, -1)):
        thrusts = 1.0 + 0.1 * np.sign(push)
        _, torque = dynamics.wrench(model, tuple(thrusts), (0.0,) * 4)
        turned = torque[0] if sign == 1 else torque[1]
        assert sign * turned > 0
    assert {leaf.dtype for leaf in jax.tree.leaves(strongly_typed(model))} == {jnp.dtype("float32")}


def test_rltools_hovers_where_it_says():
    """The throttles that its source states, of the models where they follow from its thrust curve."""
    stated = {"x500_sim": 0.749141384950337, "x500_real": 0.5549636212401485}
    for name, throttle in stated.items():
        np.testing.assert_allclose(models.MODELS[name].hover_rpm, throttle, rtol=1e-5)


def test_thrust_to_rpm_inverts_the_curve():
    """Also where it bends down (arpl) or starts below zero; zero, and a finite derivative, where there is no thrust."""
    for model in models.MODELS.values():
        rpm = np.linspace(0.3, 1, 8) * model.max_rpm
        thrusts = dynamics.rotor_thrusts(model, tuple(rpm))
        got = [dynamics.thrust_to_rpm(model, thrust) for thrust in thrusts]
        np.testing.assert_allclose(got, rpm, rtol=1e-4)
    assert dynamics.thrust_to_rpm(models.CF2X, 0.0) == 0
    assert dynamics.thrust_to_rpm(models.CF2X, -1.0) == 0
    for thrust in (0.0, -1.0, 0.1):
        assert np.isfinite(jax.grad(lambda t: dynamics.thrust_to_rpm(models.CF2X, t))(thrust))


def test_thrust_to_rpm_of_other_curves():
    """A straight line has an inverse, also where its bend is next to none; a falling one has none."""
    for a0 in (0.0, -0.01):
        straight = LIGHT.replace(thrust=(a0, 1e-5, 0.0))
        np.testing.assert_allclose(dynamics.thrust_to_rpm(straight, 0.1 + a0), 1e4, rtol=1e-6)
        np.testing.assert_allclose(jax.grad(lambda t, m=straight: dynamics.thrust_to_rpm(m, t))(0.1), 1e5, rtol=1e-6)
        assert dynamics.thrust_to_rpm(straight, a0 - 0.1) == 0
    np.testing.assert_allclose(LIGHT.replace(thrust=(0.0, 1e-5, 0.0)).hover_rpm, 0.027 * 9.81 / 4e-5, rtol=1e-6)
    bent = LIGHT.replace(thrust=(0.0, 1e-5, 1e-16))  # the difference of two roots would have no digits left
    np.testing.assert_allclose(dynamics.thrust_to_rpm(bent, 0.1), 1e4, rtol=1e-6)
    for thrust in ((0.0, -1e-5, 0.0), (0.1, 0.0, 0.0), (0.2, -1e-5, -1e-10)):
        model = LIGHT.replace(thrust=thrust)
        assert dynamics.thrust_to_rpm(model, 0.1) == 0
        assert np.isfinite(jax.grad(lambda t, m=model: dynamics.thrust_to_rpm(m, t))(0.1))


def test_versions_of_crazyflow_differ_where_they_should():
    for name, old in models.CRAZYFLOW_0_1.items():
        new = models.CRAZYFLOW_0_4[name]
        changed = {f for f in old.__dataclass_fields__ if np.any(np.asarray(getattr(old, f)) != getattr(new, f))}
        expected = {
            "cf2x_L250": {"mass", "body_drag"},
            "cf2x_P250": set(),
            "cf2x_T350": {"inertia", "body_drag"},
            "cf21B_500": {"mass", "body_drag"},
        }
        assert changed == expected[name]
        assert models.MODELS[name] is new and models.MODELS[f"{name}_0.1.0"] is old


def test_randomize_is_log_uniform(around):
    ranges, drawn = around
    factors = {
        "mass": drawn.mass / LIGHT.mass,
        "inertia": drawn.inertia[:, 2] / LIGHT.inertia[2],
        "thrust": drawn.thrust[:, 2] / LIGHT.thrust[2],
        "motor_lag": LIGHT.spin_up[0] / drawn.spin_up[:, 0],
        "arm": drawn.rotor_x[:, 0] / LIGHT.rotor_x[0],
    }
    logs = {name: np.log(factor) / np.log(getattr(ranges, name)) for name, factor in factors.items()}
    for log in logs.values():
        uniform(log, -1.0, 1.0)
    assert np.max(np.abs(np.corrcoef(list(logs.values())) - np.eye(5))) < 0.06
    # What must scale together does: a solid stays one, yaw torque follows thrust, slowing follows speeding up.
    np.testing.assert_allclose(drawn.inertia / LIGHT.inertia, np.tile(factors["inertia"], (3, 1)).T, rtol=1e-6)
    np.testing.assert_allclose(drawn.torque[:, 2] / drawn.thrust[:, 2], 0.005964552, rtol=1e-6)
    np.testing.assert_allclose(drawn.spin_down, drawn.spin_up, rtol=1e-6)
    np.testing.assert_allclose(drawn.rotor_y, drawn.rotor_x * np.array([-1.0, 1.0, -1.0, 1.0]), rtol=1e-6)


def test_ranges_of_one_change_nothing_and_carry_gradients():
    same = models.randomize(KEYS[0], LIGHT, Ranges(1.0, 1.0, 1.0, 1.0, 1.0))
    for got, expected in zip(jax.tree.leaves(same), jax.tree.leaves(LIGHT), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    gradient = jax.grad(lambda ranges: models.randomize(KEYS[0], LIGHT, ranges).mass)(strongly_typed(Ranges()))
    assert np.isfinite(gradient.mass) and gradient.mass != 0


def test_foundation_has_the_stated_marginals(any_kind):
    ranges = FoundationRanges()
    drawn, force = any_kind
    ratio = jax.vmap(lambda model: model.thrust_to_weight)(drawn)
    uniform(ratio, *ranges.thrust_to_weight)
    uniform(np.cbrt(drawn.mass), *np.cbrt(ranges.mass))
    uniform(1 / drawn.spin_up[:, 0], *ranges.spin_up)
    uniform(1 / drawn.spin_down[:, 0], *ranges.spin_down)
    uniform(drawn.torque[:, 2] / drawn.thrust[:, 2], *ranges.thrust_to_torque)
    one = ratio * drawn.mass * 9.81 / 4
    torque = np.abs(drawn.rotor_x[:, 0]) * np.sqrt(2) * one
    uniform(torque / drawn.inertia[:, 0], *ranges.torque_to_inertia)
    share = force * 9.81 / (0.3 * (ratio - 1) * ratio / 3)
    uniform(share, 0.0, 1.0)
    base = models.CRAZYFLIE_RLTOOLS
    size = drawn.rotor_x[:, 0] / base.rotor_x[0] / np.cbrt(drawn.mass / base.mass)
    deviation = np.where(size < 1, 1 - 1 / size, size - 1)
    assert stats.kstest(deviation, stats.norm(-0.1, 0.1).cdf).pvalue > 1e-3
    checks.check_model(drawn)  # each is a solid that can hover


LEVELS = [(models.randomized, Ranges(mass=1.4)), (models.any_quadcopter, FoundationRanges(mass=(0.02, 1.0)))]


@pytest.mark.slow
@pytest.mark.parametrize(("level_fn", "ranges"), LEVELS)
def test_levels_of_a_task_randomise_it(level_fn, ranges):
    """As a `level_fn` whose ranges are leaves: every slot and every episode has its own airframe."""
    env = Hover(history=0, noise=False)
    params = strongly_typed(env.default_params.replace(max_steps=jnp.int32(3), ranges=ranges))
    venv = vectorize(env, 4, level_fn=level_fn)
    _, state = jax.jit(venv.reset)(jax.random.key(0), params)
    first = state.params
    step = jax.jit(venv.step)
    for i in range(3):
        _, state, reward, *_ = step(jax.random.key(i), state, jnp.zeros((4, 4)), params)
        assert np.all(np.isfinite(reward))
    for masses in (first.model.mass, np.concatenate([first.model.mass, state.params.model.mass])):
        assert len(np.unique(masses)) == len(masses)
    assert (level_fn is models.any_quadcopter) == bool(np.any(first.force_std != params.force_std))


@pytest.mark.slow
@pytest.mark.parametrize(("level_fn", "ranges"), LEVELS)
def test_algorithms_train_on_random_airframes(level_fn, ranges):
    """With the ranges by default, and with a batch of others in one program."""
    env = Hover(history=0, noise=False)
    config = ppo.Config(num_envs=4, num_steps=8, num_epochs=1, num_minibatches=1)
    algo = ppo.make(vectorize(env, 4, level_fn=level_fn), config)
    state, _ = jaxrl.train(algo, jax.random.key(0), 64)
    assert len(np.unique(state.env_state.params.model.mass)) == 4
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(algo.policy(state)))
    narrow = ranges.replace(mass=1.0) if level_fn is models.randomized else ranges.replace(mass=(0.5, 0.5))
    both = jax.tree.map(lambda *x: jnp.stack(x), *(strongly_typed(r) for r in (ranges, narrow)))

    def masses_of(ranges):
        params = env.default_params.replace(ranges=ranges)
        return jaxrl.train(algo, jax.random.key(0), 32, None, params)[0].env_state.params.model.mass

    wide, same = jax.jit(jax.vmap(masses_of))(both)
    assert np.ptp(wide) > 1e-4
    np.testing.assert_allclose(same, 0.027 if level_fn is models.randomized else 0.5, rtol=1e-5)


def test_bad_ranges_are_refused():
    for ranges, message in (
        (Ranges(mass=-1.3), r"Drone: ranges.mass=-1.3 must be finite and positive"),
        (Ranges(arm=0.0), "ranges.arm"),
        (Ranges(thrust=np.nan), "ranges.thrust"),
        (Ranges(inertia=np.array([1.2, -1.0])), "ranges.inertia"),
        (FoundationRanges(mass=(5.0, 0.02)), r"ranges.mass=.* the least before the most"),
        (FoundationRanges(spin_up=(0.0, 0.1)), "ranges.spin_up"),
        (FoundationRanges(spin_up=(np.array([0.1, 0.1]), np.array([0.2, -0.2]))), "ranges.spin_up"),
        (FoundationRanges(size=(-0.1, -0.1)), "ranges.size=.* a mean and a deviation"),
        (FoundationRanges(force=-1.0), "ranges.force=-1.0 .* not negative"),
    ):
        with pytest.raises(ValueError, match=message):
            models.check_ranges(ranges, "Drone")
    for ranges in (Ranges(), FoundationRanges(), FoundationRanges(force=0.0), {"of my own": 1.0}):
        models.check_ranges(ranges, "Drone")
        models.check_ranges(strongly_typed(ranges), "Drone")
    env = Hover(history=0, noise=False)
    params = env.default_params
    algo = ppo.make(vectorize(env, 4, level_fn=models.randomized), ppo.Config(num_envs=4, num_steps=8))
    for wrong, message in (
        (params.replace(ranges=Ranges(mass=-1.3)), "ranges.mass"),
        (params.replace(model=params.model.replace(mass=-1.0)), "mass=-1.0"),
        (params.replace(ranges=FoundationRanges()), "draws from models.Ranges"),
    ):
        with pytest.raises(ValueError, match=message):
            jaxrl.train(algo, jax.random.key(0), 32, None, wrong)
