"""The greenhouse: against GreenLight's simulation, what is conserved, equilibria, the weather, the rewards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make
from jaxrl.envs.classic import lettuce_greenhouse as greenhouse
from jaxrl.envs.classic.lettuce_greenhouse import Controls, State, Weather
from jaxrl.evaluation import episodes
from jaxrl.testing import golden

KEY = jax.random.key(0)


def states_of(rows):
    """States from rows of weight, carbon dioxide, temperature and vapour."""
    weight, co2, temperature, vapour = jnp.asarray(rows).T
    zeros = jnp.zeros(len(rows))
    return State(jnp.zeros(len(rows), jnp.int32), weight, co2, temperature, vapour, zeros, zeros)


def controls_of(*values):
    return Controls(*jnp.array(values))


def weather_of(*values):
    return Weather(*jnp.array(values))


def climate(state):
    return np.stack([state.weight, state.co2, state.temperature, state.vapour], -1)


@pytest.mark.parametrize("which", ["released", "mended"])
def test_a_quarter_of_an_hour_is_greenlights(which):
    """The equations to 1e-10 with a hundred steps of integration; the six of the task cost at most 1e-4."""
    data = golden("lettuce_greenhouse")
    state, inputs, after = (data[f"{which}_{name}"] for name in ("state", "inputs", "after"))
    with jax.enable_x64(True):
        params = make("LettuceGreenhouse-v0")[1]
        outside, controls = Weather(*inputs.T[:4]), Controls(*inputs.T[4:])
        for substeps, tolerance in ((100, 1e-9), (6, 1e-4)):

            @jax.jit
            @jax.vmap
            def run(state, controls, outside, substeps=substeps):
                return greenhouse.dynamics(state, controls, outside, params, substeps)

            got = climate(run(states_of(state), controls, outside))
            np.testing.assert_allclose(got, after, rtol=tolerance, atol=tolerance * 1e-3)
    assert np.abs(after / state - 1).max() > 0.5  # the states move


def test_carbon_is_conserved_where_nothing_is_let_in_or_out():
    """Carbon dioxide of the air, and of what the crop is made of: respiration costs 1 / c_alpha_beta of its weight."""
    with jax.enable_x64(True):
        params = make("LettuceGreenhouse-v0")[1].replace(c_leak=0.0, c_resp_c=2.65e-7 / 0.544)
        state = states_of([[0.1, 2e-3, 22.0, 1e-2], [0.2, 1e-3, 12.0, 1e-2]])
        none = jnp.zeros(2)
        outside = Weather(jnp.array([300.0, 0.0]), none, none, none)  # by day and by night

        def carbon(state):
            return params.c_cap_c * state.co2 + state.weight / params.c_alpha_beta

        run = jax.jit(jax.vmap(greenhouse.dynamics, (0, 0, 0, None)))
        new = run(state, Controls(none, none, none), outside, params)
        np.testing.assert_allclose(carbon(new), carbon(state), rtol=1e-13)
        assert new.weight[0] > state.weight[0] and new.weight[1] < state.weight[1]
        # What is supplied is what is there more.
        supplied = run(state, Controls(jnp.full(2, 1e-6), none, none), outside, params)
        np.testing.assert_allclose(carbon(supplied) - carbon(state), 900 * 1e-6, rtol=1e-9)


def test_heat_and_vapour_settle_where_what_comes_in_goes_out():
    with jax.enable_x64(True):
        params = make("LettuceGreenhouse-v0")[1].replace(c_resp_c=0.0, c_resp_d=0.0, c_alpha_beta=0.0)
        controls, outside = controls_of(0.0, 2e-3, 100.0), weather_of(200.0, 5.0, 5e-3, 7e-4)
        state = jax.tree.map(lambda x: x[0], states_of([[0.1, 1e-3, 10.0, 1e-2]]))
        day = jax.jit(
            lambda s: jax.lax.fori_loop(0, 96, lambda _, s: greenhouse.dynamics(s, controls, outside, params), s)
        )
        state = day(state)
        warmer = (100 + 0.2 * 200) / (1290 * 2e-3 + 6.1)
        np.testing.assert_allclose(state.temperature, 5 + warmer, rtol=1e-9)
        canopy = (1 - np.exp(-53 * 0.1)) * 3.6e-3
        leaves = (
            9348 / 8314 / (state.temperature + 273.15) * np.exp(17.4 * state.temperature / (state.temperature + 239))
        )
        exchange = 2e-3 + 0.75e-4
        np.testing.assert_allclose(state.vapour, (canopy * leaves + exchange * 5e-3) / (canopy + exchange), rtol=1e-9)


@pytest.mark.parametrize(("temperature", "co2"), [(45.0, 1e-3), (0.0, 1e-3), (20.0, 1e-5), (20.0, 5.2e-5)])
def test_no_growth_where_the_papers_formula_has_a_pole(temperature, co2):
    params = make("LettuceGreenhouse-v0")[1]
    state = jax.tree.map(lambda x: x[0], states_of([[0.1, co2, temperature, 1e-2]]))
    closed = controls_of(0.0, 0.0, 0.0)

    def slope(weight, co2, temperature, radiation):
        now = state.replace(weight=weight, co2=co2, temperature=temperature)
        return greenhouse.derivative(now, closed, weather_of(radiation, 10.0, 5e-3, 7e-4), params)

    for radiation in (0.0, 500.0):
        assert greenhouse.flows(state, closed, weather_of(radiation, 10.0, 5e-3, 7e-4), params).photosynthesis == 0
        of = state.weight, state.co2, state.temperature, jnp.float32(radiation)
        assert all(np.isfinite(x).all() for x in jax.jacfwd(slope, (0, 1, 2, 3))(*of))


def test_the_sun_is_that_of_the_almanac():
    """At noon 52 degrees north: 61.4 degrees above the horizon in midsummer, 14.6 in midwinter; 16.5 and 7.5 hours of
    day, without refraction; the share of sunshine moves radiation between a quarter and three quarters of it."""
    params = make("LettuceGreenhouse-v0")[1]
    times = jnp.arange(96 * 4) / 4  # quarters of quarters
    state = jax.tree.map(lambda x: x[0], states_of([[0.1, 1e-3, 18, 1e-2]]))

    def radiation(day, sun):
        p = params.replace(start_day=jnp.float32(day) - 0.5)
        return jax.vmap(lambda t: greenhouse.weather(state.replace(time=t, sun=jnp.float32(sun)), p).radiation)(times)

    for day, sine, hours in ((172, np.sin(np.deg2rad(61.4)), 16.5), (355, np.sin(np.deg2rad(14.6)), 7.5)):
        clear, dark = radiation(day, 20.0), radiation(day, -20.0)
        above = 1367 * (1 + 0.033 * np.cos(2 * np.pi * day / 365))
        np.testing.assert_allclose(clear.max(), 0.75 * above * sine, rtol=0.01)
        np.testing.assert_allclose(dark.max(), 0.25 * above * sine, rtol=0.01)
        assert abs((clear > 0).mean() * 24 - hours) < 0.15


def test_the_weather_has_the_moments_that_params_say():
    env, params = make("LettuceGreenhouse-v0")

    @jax.jit
    @jax.vmap
    def season(key):
        reset_key, key = jax.random.split(key)
        _, state = env.reset(reset_key, params)
        first = state

        def step(state, key):
            return env.transition(key, state, jnp.full(3, 0.2), params).state.replace(time=state.time + 1), None

        return first, jax.lax.scan(step, state, jax.random.split(key, 192))[0]  # two days

    first, last = season(jax.random.split(KEY, 4000))
    for name, sigma, days in (("warmth", 3.0, 2.0), ("sun", 1.5, 0.5)):
        a, b = (np.asarray(getattr(s, name)) for s in (first, last))
        np.testing.assert_allclose([a.std(), b.std()], sigma, rtol=0.05)
        assert abs(np.corrcoef(a, b)[0, 1] - np.exp(-2 / days)) < 0.05
    assert abs(np.corrcoef(last.warmth, last.sun)[0, 1]) < 0.05


def test_rewards_by_hand():
    """A warm, damp night: guilders of growth, heat, carbon dioxide, and of what is out of bounds."""
    _, params = make("LettuceGreenhouse-v0")
    state, new = (
        jax.tree.map(lambda x: x[0], states_of([row])) for row in ([0.1, 1e-3, 18, 0.0], [0.1005, 1e-3, 18, 0.0])
    )
    new = new.replace(vapour=0.8 * greenhouse.vapour_pressure(new.temperature, params.c_v_4, params))
    terms = greenhouse.rewards(state, new, controls_of(1e-6, 0.0, 100.0), weather_of(0.0, 5.0, 5e-3, 7e-4), params)
    by_hand = {
        "reward/growth": 16 * 0.0005,
        "reward/heat": -6.35e-9 * 100 * 900,
        "reward/co2": -0.42 * 1e-6 * 900,
        "reward/climate": -(0.05 * 3 + 0.01 * 10) * 900 / 86400,
    }
    assert terms.keys() == by_hand.keys()
    for name, value in by_hand.items():
        np.testing.assert_allclose(terms[name], value, rtol=2e-3, err_msg=name)
    day = greenhouse.rewards(state, new, controls_of(0.0, 0.0, 0.0), weather_of(100.0, 5.0, 5e-3, 7e-4), params)
    np.testing.assert_allclose(day["reward/climate"], -0.01 * 10 * 900 / 86400, rtol=2e-3)  # 18 degrees are right


def test_the_growers_rules_earn_more_than_doing_nothing():
    env, params = make("LettuceGreenhouse-v0")
    params = params.replace(max_steps=jnp.int32(96 * 5), initial_weight=jnp.float32(0.05))

    def returns(act):
        run = jax.jit(lambda key: episodes(act, (), key, env, params, num_episodes=16, max_steps=None).returns)
        return run(KEY)

    def rules(key, state, obs, params, carry):
        return jax.vmap(greenhouse.grower, (0, None))(state, params), carry

    def nothing(key, state, obs, params, carry):
        return jnp.zeros((16, 3)), carry

    grown, idle = returns(rules), returns(nothing)
    assert (grown > idle).all()


def test_levels_are_other_seasons_in_other_climates():
    env, params = make("LettuceGreenhouse-v0")
    drawn = jax.jit(jax.vmap(env.generate, (0, None)))(jax.random.split(KEY, 2000), params)
    day, mean = np.asarray(drawn.start_day), np.asarray(drawn.mean_temperature)
    assert 1 <= day.min() < 5 and 360 < day.max() <= 365
    np.testing.assert_allclose([mean.mean(), mean.std()], [10, 1.5], atol=0.15)
    assert abs(np.corrcoef(day, mean)[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sunshine": 1.0}, "sunshine=1.0 must be above 0 and below 1"),
        ({"dark_low": 16.0}, "dark_low=16.0 is above dark_high=15.0"),
        ({"c_cap_q": 0.0}, "c_cap_q"),
        ({"max_heat": -1.0}, "max_heat"),
        ({"c_cap_q": 100.0}, "c_cap_q=100.0: the air changes within 6.34 s, a step of integration is 150 s"),
        ({"c_v_pl_ai": 1.0}, "c_cap_h=4.*: the air changes within 4.07 s"),
        ({"mean_temperature": 150.0}, "is up to 176 degrees from zero outside; at most 100"),
        ({"max_heat": 3000.0}, "up to .* degrees in the greenhouse; at most 200"),
        ({"c_v_2": 100.0}, "c_v_2=100.0 must be at most 30"),
        ({"c_v_3": 1.0}, "c_v_3=1.0 must be at least 150"),
    ],
)
def test_params_that_cannot_be(change, message):
    env, params = make("LettuceGreenhouse-v0")
    with pytest.raises(ValueError, match=message):
        env.reset(KEY, params.replace(**{name: jnp.float32(x) for name, x in change.items()}))
