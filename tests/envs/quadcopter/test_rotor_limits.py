"""No action, mass, task or latency turns rotors faster than their motors can, or slower than they may."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.envs.quadcopter import dynamics, models
from jaxrl.envs.quadcopter.control import actions
from jaxrl.envs.quadcopter.simulate import simulate

IDS = tuple(i for i in jaxrl.list_envs() if i.startswith("Quadcopter-"))
LEVELS = tuple(actions.SIZES)
MASSES = jnp.array([0.5, 0.9, 1.0, 1.3, 2.8, 20.0])  # of the nominal one; those from 2.8 on cannot hover
STEPS = 24
# What `hold` makes of an action is a speed at these levels; the loops of the others allocate thrusts.
SPEEDS = ("rpm", "rpm_band", "one_d_rpm", "thrust")
PAIRS = [("Quadcopter-GpdHover-v0", level) for level in SPEEDS]
PAIRS += [(i, level) for i in IDS for level in LEVELS if (i, level) not in PAIRS]


def turned(name, level, **settings):
    """`(rotor speeds (masses, STEPS + 1, 4, ...), model)` under the two extremes, random actions and none finite."""
    env, params = jaxrl.make(name, action=level, **settings)
    model = params.model.replace(min_rpm=jnp.asarray(0.1, params.model.max_rpm.dtype) * params.model.max_rpm)
    shape = (STEPS, *(env.agents if env.num_agents > 1 else ()), *env.action_space(params).shape)
    drawn = jax.random.uniform(jax.random.key(1), shape, minval=-3.0, maxval=3.0)
    given = drawn.at[:6].set(1.0).at[6:12].set(-1.0).at[-1].set(jnp.nan)

    def fly(share):
        lived = params.replace(model=model.replace(mass=share * model.mass))
        _, first = env.reset(jax.random.key(0), lived)

        def body(state, action):
            state = env.step(jax.random.key(2), state, action, lived).state
            return state, jnp.stack(state.drone.rpm)

        return jnp.concatenate([jnp.stack(first.drone.rpm)[None], jax.lax.scan(body, first, given)[1]])

    return np.asarray(jax.jit(jax.vmap(fly))(MASSES)), model


@pytest.mark.slow(but_first=len(SPEEDS))
@pytest.mark.light
@pytest.mark.parametrize(("name", "level"), PAIRS)
def test_rotors_stay_within_what_the_motors_can_turn(name, level):
    settings = {} if name == "Quadcopter-Payload-v0" else {"latency": 2}
    speeds, model = turned(name, level, **settings)
    assert np.all(np.isfinite(speeds))
    assert speeds.max() <= model.max_rpm
    assert speeds.min() >= model.min_rpm


@pytest.mark.slow
@pytest.mark.light
def test_a_battery_turns_rotors_no_slower_than_they_may():
    speeds, model = turned("Quadcopter-Hover-v0", "rpm", battery=True)
    assert speeds.max() <= model.max_rpm and speeds.min() >= model.min_rpm


@pytest.mark.parametrize("level", ["rpm_band", "one_d_rpm"])
def test_a_crazyflie_of_77_grams_falls(level):
    """60 g of thrust carry no 77 g: HoverAviary with 50 g more (gym-pybullet-drones, issue 225)."""
    env, params = jaxrl.make("Quadcopter-GpdHover-v0", action=level)
    with pytest.warns(UserWarning, match="cannot hover"):
        params = params.replace(model=params.model.replace(mass=0.077), start=(0.0, 0.0, 1.0))
        env.validate(params)

    @jax.jit
    def height(params):
        _, state = env.reset(jax.random.key(0), params)
        action = jnp.ones(env.action_space(params).shape)

        def body(_, state):
            return env.step(jax.random.key(0), state, action, params).state

        return jax.lax.fori_loop(0, 30, body, state).drone.position[2]

    # A second at the most thrust that there is.
    lift = float(params.model.max_thrust) / 0.077 - 9.81
    np.testing.assert_allclose(height(params) - 1.0, 0.5 * lift, rtol=0.02)
    assert lift < -2


def test_commands_of_ones_own_turn_rotors_at_the_nearer_limit():
    model = models.CF2X.replace(min_rpm=2000.0)
    fly = jax.jit(lambda rpm: simulate(model, rpm, physics=dynamics.GPD_DYN, dt=0.004, steps=5))
    for command, end in ((1e5, float(model.max_rpm)), (-5.0, 2000.0)):
        jax.tree.map(np.testing.assert_array_equal, fly(np.full(4, command)), fly(np.full(4, end)))
