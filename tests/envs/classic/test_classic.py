"""Classic control: agreement with Gymnasium, laws of physics, gradients, bad parameters, pictures."""

import functools
import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.environment import strongly_typed
from jaxrl.envs.classic import cartpole, cartpole_swing_up, double_pendulum, pendulum, point_mass, reacher, two_link
from jaxrl.spaces import Box

GOLDEN = Path(__file__).parents[2] / "golden"
REFERENCE_IDS = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"]
CONTINUOUS_IDS = [
    "CartPoleContinuous-v0",
    "CartPoleSwingUp-v0",
    "DoublePendulum-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "PointMass-v0",
    "Reacher-v0",
]
ALL_IDS = [*CONTINUOUS_IDS, "Acrobot-v1", "CartPole-v1", "MountainCar-v0"]
KEY = jax.random.key(0)


@functools.cache
def golden(env_id):
    with np.load(GOLDEN / f"classic_{env_id}.npz") as data:
        return dict(data)


def module(env):
    return importlib.import_module(type(env).__module__)


def as_state(env, row, time=0):
    """A Gymnasium state as one of ours: the same numbers in the same order."""
    return module(env).State(jnp.int32(time), *row)


def as_row(state):
    return jnp.stack([getattr(state, name) for name in state.__dataclass_fields__ if name != "time"])


@functools.cache
def stepper(env_id, dtype):
    """Jitted, vmapped (state rows, actions) -> (next state rows, observations, rewards, terminated) in `dtype`."""
    env, params = jaxrl.make(env_id)

    def step(row, action):
        ts = env.step(KEY, as_state(env, row), action.reshape(env.action_space(params).shape), params)
        return as_row(ts.state), ts.obs, ts.reward, ts.terminated

    return jax.jit(jax.vmap(step))


def run_steps(env_id, states, actions, dtype):
    with jax.enable_x64(dtype == np.float64):
        actions = actions if actions.dtype.kind in "iu" else actions.astype(dtype)
        return jax.device_get(stepper(env_id, dtype)(states.astype(dtype), actions))


# ---- agreement with Gymnasium


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("env_id", REFERENCE_IDS)
def test_transitions_are_gymnasiums(env_id):
    data = golden(env_id)
    assert len(data["state"]) >= 10_000
    states, _, rewards, terminated = run_steps(env_id, data["state"], data["action"], np.float64)
    # The reference rounds MountainCarContinuous' state to float32.
    tolerance = 1e-7 if env_id == "MountainCarContinuous-v0" else 1e-10
    np.testing.assert_allclose(states, data["next_state"], rtol=0, atol=tolerance)
    np.testing.assert_allclose(rewards, data["reward"], rtol=0, atol=1e-10)
    np.testing.assert_array_equal(terminated, data["terminated"])


@pytest.mark.parametrize("env_id", REFERENCE_IDS)
def test_trajectories_are_gymnasiums(env_id):
    """200 steps on our own states, put back on the reference's only where an episode ended."""
    data = golden(env_id)
    state = data["run_state"][0].astype(float)
    for t, action in enumerate(data["run_action"]):
        # Rounding errors, of 1e-16 (6e-8 in the float32 reference), grow: a swinging acrobot is chaotic.
        tolerance = 1e-6 if t >= 100 or env_id == "MountainCarContinuous-v0" else 1e-10
        state, obs, reward, terminated = run_steps(env_id, state, action, np.float64)
        np.testing.assert_allclose(state, data["run_next_state"][t], rtol=0, atol=tolerance, err_msg=f"step {t}")
        np.testing.assert_allclose(obs, data["run_next_obs"][t], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(reward, data["run_reward"][t], rtol=0, atol=1e-9)
        np.testing.assert_array_equal(terminated, data["run_terminated"][t])
        state = np.where(terminated[:, None], data["run_state"][t + 1], state)


@pytest.mark.optimised
@pytest.mark.parametrize("env_id", REFERENCE_IDS)
def test_float32_steps_stay_close(env_id):
    """What users run, with the fast sine and cosine: single steps from states on real trajectories."""
    data = golden(env_id)
    flat = {name: data[f"run_{name}"].reshape(-1, *data[f"run_{name}"].shape[2:]) for name in ("action", "next_state")}
    states = data["run_state"][:-1].reshape(-1, data["run_state"].shape[-1])
    states, _, rewards, _ = run_steps(env_id, states, flat["action"], np.float32)
    np.testing.assert_allclose(states, flat["next_state"], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(rewards, data["run_reward"].reshape(-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("env_id", REFERENCE_IDS)
def test_spaces_and_time_limit_are_gymnasiums(env_id):
    data = golden(env_id)
    env, params = jaxrl.make(env_id)
    assert int(params.max_steps) == data["max_steps"]
    obs_space, action_space = env.observation_space(params), env.action_space(params)
    np.testing.assert_allclose(np.broadcast_to(obs_space.low, obs_space.shape), data["obs_low"], rtol=1e-6)
    np.testing.assert_allclose(np.broadcast_to(obs_space.high, obs_space.shape), data["obs_high"], rtol=1e-6)
    if "num_actions" in data:
        assert action_space.n == data["num_actions"]
    else:
        np.testing.assert_array_equal(np.broadcast_to(action_space.low, action_space.shape), data["action_low"])
        np.testing.assert_array_equal(np.broadcast_to(action_space.high, action_space.shape), data["action_high"])


@pytest.mark.parametrize("env_id", ["Acrobot-v1", "MountainCar-v0"])
def test_unsigned_actions(env_id):
    """0 - 1 of a small unsigned action is not 255."""
    data = {name: golden(env_id)[name][:10] for name in ("state", "action", "next_state")}
    assert data["action"].min() == 0
    states, _, _, _ = run_steps(env_id, data["state"], data["action"].astype(np.uint8), np.float64)
    np.testing.assert_allclose(states, data["next_state"], rtol=0, atol=1e-10)


def test_full_throttle_cart_pole_is_cart_pole():
    data = golden("CartPole-v1")
    states, _, rewards, terminated = run_steps(
        "CartPoleContinuous-v0", data["state"], (2.0 * data["action"] - 1)[:, None], np.float64
    )
    np.testing.assert_allclose(states, data["next_state"], rtol=0, atol=1e-10)
    np.testing.assert_array_equal(rewards, data["reward"])
    np.testing.assert_array_equal(terminated, data["terminated"])


# ---- physics


def cart_pole_energy(state, params):
    """Cart and uniform pole of half-length `length` [J]."""
    _, pole, length = params.mass_cart, params.mass_pole, params.length
    kinetic = 0.5 * params.total_mass * state.x_dot**2 + 2 / 3 * pole * length**2 * state.theta_dot**2
    kinetic += pole * length * state.x_dot * state.theta_dot * jnp.cos(state.theta)
    return kinetic + pole * params.gravity * length * jnp.cos(state.theta)


def arm_energy(state, params):
    return two_link.energy((state.theta_1, state.theta_2, state.theta_1_dot, state.theta_2_dot), params)


NO_FORCE = jnp.float32(0.0)
# id: start, unforced dynamics, energy, seconds, changes to the parameters, order of the integrator
PASSIVE = {
    "CartPole-v1": ((0.0, 0.3, 2.5, 0.5), lambda s, p: cartpole.dynamics(s, NO_FORCE, p), cart_pole_energy, 2, {}, 1),
    "CartPoleSwingUp-v0": (
        (0.0, 0.3, 2.5, 0.5),
        lambda s, p: cartpole_swing_up.dynamics(s, NO_FORCE, p),
        cart_pole_energy,
        2,
        {},
        1,
    ),
    "Pendulum-v1": ((2.0, 0.5), lambda s, p: pendulum.dynamics(s, NO_FORCE, p), pendulum.energy, 2, {}, 1),
    # 0.2 s is coarse: start slow, or the steps are not yet in the range where the order shows.
    "Acrobot-v1": (
        (0.8, -0.5, 0.3, 0.2),
        lambda s, p: importlib.import_module("jaxrl.envs.classic.acrobot").dynamics(s, NO_FORCE, p),
        arm_energy,
        2,
        {"dt": 0.1},
        4,
    ),
    "DoublePendulum-v0": (
        (1.2, -0.5, 1.0, 0.5),
        lambda s, p: double_pendulum.dynamics(s, (NO_FORCE, NO_FORCE), p),
        arm_energy,
        1,
        {"damping": 0.0},
        4,
    ),
    "Reacher-v0": (
        (0.3, 1.0, 4.0, -3.0, 0.1, 0.1),
        lambda s, p: reacher.dynamics(s, (NO_FORCE, NO_FORCE), p),
        arm_energy,
        1,
        {"damping": 0.0},
        4,
    ),
}


@pytest.mark.slow(but_first=4)
@pytest.mark.parametrize("env_id", PASSIVE)
def test_energy_and_order_without_forces(env_id):
    """Energy is conserved as the step shrinks, and halving the step divides the error by 2 to the order."""
    start, dynamics, energy, seconds, changes, order = PASSIVE[env_id]
    with jax.enable_x64():
        env, params = jaxrl.make(env_id)
        params = params.replace(**{name: jnp.asarray(value) for name, value in changes.items()})
        steps = round(seconds / float(params.dt))

        @jax.jit
        def end(count):
            fine = params.replace(dt=params.dt * steps / count)
            first = as_state(env, jnp.asarray(start))
            last = jax.lax.fori_loop(0, count, lambda _, s: dynamics(s, fine), first)
            return as_row(last), jnp.abs(energy(last, fine) / energy(first, fine) - 1)

        (coarse, _), (middle, _), (fine, drift) = (end(jnp.int32(steps * factor)) for factor in (16, 32, 64))
        measured = float(jnp.log2(jnp.abs(coarse - middle).max() / jnp.abs(middle - fine).max()))
    assert float(drift) < (4e-3 if order == 1 else 1e-11)
    assert abs(measured - order) < 0.15, measured


def test_swinging_cart_pole_keeps_its_energy():
    """Why SwingUp does not use CartPole's explicit step: 500 steps without force."""
    env, params = jaxrl.make("CartPoleSwingUp-v0")
    first = as_state(env, jnp.asarray([0.0, 0.0, np.pi + 0.5, 0.0]))

    def gain(dynamics):
        last = jax.lax.fori_loop(0, 500, lambda _, s: dynamics(s, NO_FORCE, params), first)
        bottom = params.mass_pole * params.gravity * params.length
        return (cart_pole_energy(last, params) + bottom) / (cart_pole_energy(first, params) + bottom)

    assert 0.9 < gain(cartpole_swing_up.dynamics) < 1.1
    assert gain(cartpole.dynamics) > 1.5


def test_two_link_power_balance():
    """dE/dt is what the torques put in less what friction takes out: also checks the shoulder's motor."""
    with jax.enable_x64():
        arm = reacher.Params(gravity=2.0, mass_1=0.7, mass_2=0.4, length_1=0.8, length_2=0.5, damping=0.1)
        arm = strongly_typed(arm)
        rng = np.random.default_rng(0)
        motion = tuple(rng.normal(size=(4, 100)) * 3)
        torque_1, torque_2 = rng.normal(size=(2, 100))

        def power(motion, torque_1, torque_2):
            slope = two_link.derivative(motion, torque_1, torque_2, arm)
            return jax.jvp(lambda m: two_link.energy(m, arm), (motion,), (slope,))[1]

        _, _, w_1, w_2 = motion
        expected = torque_1 * w_1 + torque_2 * w_2 - 0.1 * (w_1**2 + w_2**2)
        motion, torque_1, torque_2 = jax.tree.map(jnp.asarray, (motion, torque_1, torque_2))
        np.testing.assert_allclose(jax.jit(jax.vmap(power))(motion, torque_1, torque_2), expected, atol=1e-10)


def test_double_pendulum_motors():
    def push(actuation, action):
        env, params = jaxrl.make("DoublePendulum-v0", actuation=actuation)
        params = params.replace(damping=jnp.float32(0))
        assert env.action_space(params).shape == (len(action),)
        state = as_state(env, jnp.zeros(4))
        return as_row(env.step(KEY, state, jnp.asarray(action), params).state)[2:]

    shoulder, elbow = push("shoulder", [1.0]), push("elbow", [1.0])
    assert shoulder[0] > 0 > shoulder[1] and elbow[1] > 0 > elbow[0]
    np.testing.assert_array_equal(push("both", [1.0, 0.0]), shoulder)
    np.testing.assert_array_equal(push("both", [0.0, 1.0]), elbow)
    np.testing.assert_array_equal(push("both", [0.0, 7.0]), elbow)  # clipped
    with pytest.raises(ValueError, match="actuation='knee' must be one of elbow, shoulder, both"):
        jaxrl.make("DoublePendulum-v0", actuation="knee")


def test_point_mass_is_exact_and_truncates_outside():
    env, params = jaxrl.make("PointMass-v0")
    state = as_state(env, jnp.asarray([0.0, 0.5, 0.2, -0.1, 1.0, 0.0]))
    action = jnp.asarray([0.5, -0.25])
    step = jax.jit(lambda s: env.step(KEY, s, action, params))
    first = step(state)
    # Of the state before the step: 1^2 + 0.5^2 from the goal, 0.05 of squared speed.
    assert float(first.reward) == pytest.approx(-(1.25 + 0.1 * 0.05 + 0.01 * 0.3125), rel=1e-6)
    assert float(first.reward) == pytest.approx(
        sum(float(v) for k, v in first.info.items() if k.startswith("reward/")), rel=1e-6
    )
    for _ in range(20):
        state = step(state).state
    np.testing.assert_allclose(as_row(state)[:4], [0.7, 0.15, 1.2, -0.6], rtol=1e-5)
    assert not bool(first.truncated)
    outside = step(as_state(env, jnp.asarray([1.99, 0.0, 1.0, 0.0, 0.0, 0.0])))
    assert bool(outside.truncated) and not bool(outside.terminated)
    assert bool(point_mass.success(as_state(env, jnp.asarray([0.01, 0.0, 0.0, 0.05, 0.0, 0.02]))))
    assert not bool(point_mass.success(as_state(env, jnp.asarray([0.01, 0.0, 0.0, 0.15, 0.0, 0.02]))))


def test_reacher_reaches():
    env, params = jaxrl.make("Reacher-v0")
    straight = as_state(env, jnp.asarray([0.0, 0.0, 0.0, 0.0, 0.20, 0.0]))
    still = env.step(KEY, straight, jnp.zeros(2), params)
    assert float(still.reward) == pytest.approx(-0.01, abs=1e-6) and bool(still.info["success"])
    np.testing.assert_allclose(still.obs, [1, 1, 0, 0, 0.2, 0, 0, 0, 0.01, 0], atol=1e-6)
    there = straight.replace(target_x=jnp.float32(0.21))
    slopes = jax.grad(lambda s: reacher.distance(s, params), allow_int=True)(there)
    assert np.isfinite(as_row(slopes)).all()
    _, states = jax.vmap(env.reset, (0, None))(jax.random.split(KEY, 2000), params)
    radius = np.hypot(states.target_x, states.target_y)
    assert radius.max() <= 0.2 and abs(np.mean(radius < 0.1) - 0.25) < 0.04  # uniform over the disc


def test_swing_up_reward_and_end():
    env, params = jaxrl.make("CartPoleSwingUp-v0")
    _, start = env.reset(KEY, params)
    assert float(cartpole_swing_up.reward(start, params)) < 0.01
    upright = as_state(env, jnp.zeros(4))
    assert float(cartpole_swing_up.reward(upright, params)) == 1.0
    assert not bool(env.step(KEY, start, jnp.zeros(1), params).terminated)
    assert bool(env.step(KEY, upright.replace(x=jnp.float32(2.41)), jnp.zeros(1), params).terminated)


# ---- gradients


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("env_id", CONTINUOUS_IDS)
def test_gradients_through_200_steps(env_id):
    """Against central differences in float64, along a random direction of the actions, start and parameters at once."""
    with jax.enable_x64():
        env, params = jaxrl.make(env_id)
        size = env.action_space(params).shape
        _, state = env.reset(jax.random.key(3), params)
        obs_weight = jax.random.normal(jax.random.key(4), env.observation_space(params).shape)
        params = params.replace(max_steps=jnp.int32(1000))
        leaves = [name for name in params.__dataclass_fields__ if name != "max_steps"]
        point = {
            # Gentle: actions inside their limits, and a pole or car that does not reach a wall or the goal.
            "actions": 0.05 * jax.random.normal(jax.random.key(5), (200, *size)),
            "start": as_row(state),
            "params": {name: getattr(params, name) for name in leaves},
        }

        def objective(point):
            changed = params.replace(**point["params"])

            def step(state, action):
                ts = env.step(KEY, state, action, changed)
                return ts.state, ts.reward + ts.obs @ obs_weight

            _, values = jax.lax.scan(step, as_state(env, point["start"]), point["actions"])
            return jnp.mean(values)

        value_and_grad = jax.jit(jax.value_and_grad(objective))
        _, gradient = value_and_grad(point)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
        assert np.abs(gradient["actions"]).max() > 0 and np.abs(gradient["start"]).max() > 0

        for part in point:
            rng = np.random.default_rng(6)
            direction = jax.tree.map(jnp.zeros_like, point)
            direction[part] = jax.tree.map(
                lambda x, rng=rng: jnp.asarray(rng.choice([-1.0, 1.0], x.shape)) * (jnp.abs(x) + 0.01), point[part]
            )
            along = sum(jax.tree.leaves(jax.tree.map(jnp.vdot, gradient, direction)))
            h = 1e-7 if "CartPole" in env_id else 1e-6
            moved = [jax.tree.map(lambda x, d, s=s: x + s * d, point, direction) for s in (h, -h)]
            (ahead, _), (behind, _) = map(value_and_grad, moved)
            np.testing.assert_allclose(along, (ahead - behind) / (2 * h), rtol=1e-4, atol=1e-7, err_msg=part)


# ---- every environment


@pytest.mark.parametrize("env_id", ALL_IDS)
def test_validate_refuses_unphysical(env_id):
    env, params = jaxrl.make(env_id)
    env.validate(params)
    env.validate(jax.tree.map(lambda x: jnp.broadcast_to(x, (3,)), params))  # batched
    bad = {
        "PointMass-v0": ("mass", "dt", "arena", "start"),
        "MountainCar-v0": ("force", "max_speed"),
        "MountainCarContinuous-v0": ("force", "max_speed"),
        "Pendulum-v1": ("mass", "length", "dt", "max_torque", "max_speed"),
    }.get(env_id, ("dt", "length", "x_max") if "CartPole" in env_id else ("mass_1", "length_2", "dt"))
    for name in bad:
        with pytest.raises(ValueError, match=name):
            env.reset(KEY, params.replace(**{name: jnp.float32(-1.0)}))
        with pytest.raises(ValueError, match=name):
            env.validate(params.replace(**{name: jnp.asarray([1.0, 0.0])}))
    if "MountainCar" in env_id:
        with pytest.raises(ValueError, match="goal_position=0.(7|69).* must be below max_position"):
            env.reset(KEY, params.replace(goal_position=jnp.float32(0.7)))


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("env_id", ALL_IDS)
def test_observations_stay_in_their_space(env_id):
    env, params = jaxrl.make(env_id)
    action_space = env.action_space(params)
    top = action_space.high * jnp.ones(action_space.shape) if isinstance(action_space, Box) else action_space.n - 1

    def episode(key):
        def step(state, _):
            ts = env.step(KEY, state, jnp.asarray(top), params)
            return ts.state, (env.observation_space(params).contains(ts.obs), ts.terminated | ts.truncated)

        obs, state = env.reset(key, params)
        return env.observation_space(params).contains(obs), jax.lax.scan(step, state, None, 500)[1]

    first, (inside, done) = jax.jit(jax.vmap(episode))(jax.random.split(KEY, 8))
    before_end = np.cumsum(np.roll(done, 1, axis=1), axis=1) == 0
    assert first.all() and np.all(np.asarray(inside)[before_end])


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ALL_IDS)
def test_render(env_id):
    env, params = jaxrl.make(env_id)
    pictures = []
    for seed in (0, 1):
        _, state = env.reset(jax.random.key(seed), params)
        row = as_row(state) * (1 if seed == 0 else 3)
        picture = env.render(as_state(env, row), params)
        assert picture.dtype == np.uint8 and picture.shape[-1] == 3 and picture.shape[0] == 400
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20
        pictures.append(picture)
    assert (pictures[0] != pictures[1]).any(axis=-1).sum() > 200
