"""LettuceGreenhouse-v0: grow lettuce for 40 days under weather that changes, and pay for heat and carbon dioxide.

Van Henten (2003), "Sensitivity analysis of an optimal control problem in greenhouse climate management", Biosystems
Engineering 85(3), 355-364. Dry weight X_d of the crop, and of the air carbon dioxide X_c, temperature X_T and water
vapour X_h change, under controls U and weather V, by

    dX_d/dt =  c_alpha_beta phot - c_resp_d X_d 2^(X_T / 10 - 2.5)
    dX_c/dt = (-phot + c_resp_c X_d 2^(X_T / 10 - 2.5) + U_c - (U_v + c_leak) (X_c - V_c)) / c_cap_c
    dX_T/dt = (U_q + c_rad_q V_rad - (c_cap_q_v U_v + c_ai_ou) (X_T - V_T)) / c_cap_q
    dX_h/dt = (transp - (U_v + c_leak) (X_h - V_h)) / c_cap_h
    phot    = (1 - exp(-c_pl_d X_d)) a b / (a + b),   a = c_rad_phot V_rad,
              b = (-c_co2_1 X_T^2 + c_co2_2 X_T - c_co2_3) (X_c - c_gamma)
    transp  = (1 - exp(-c_pl_d X_d)) c_v_pl_ai (c_v_1 / (c_r (X_T + 273.15)) exp(c_v_2 X_T / (X_T + c_v_3)) - X_h)

A step is 15 minutes: `substeps` steps of Runge and Kutta's fourth order, with weather and action held. Below 3 and
above 42 degrees a factor of b is negative, as the other is below c_gamma of carbon dioxide, and phot has a pole; here
it is 0 there.

The weather is ours, with noise of its own. Radiation: a share 0.25 + 0.5 s of what arrives above the air, for a share s
of sunshine (Allen et al. 1998, FAO-56, equations 21 to 24 and 35). Temperature: a mean of year and day. The logit of s
and the temperature's departure from its mean are Ornstein-Uhlenbeck processes. Defaults are about those of a Dutch
winter; `generate` draws another season and climate.

| observation | unit |
|---|---|
| X_d / 0.1 | kg of dry weight a square metre |
| X_c / 1e-3 | kg a cubic metre |
| X_T / 20, V_T / 20 | degrees Celsius, in the greenhouse and outside |
| relative humidity | share of saturation, in the greenhouse |
| V_rad / 500 | W a square metre |
| sin, cos of the hour | 2 pi hour / 24 |
| share of the season that is over | 0 to 1 |

Action: carbon dioxide, ventilation, heating, each a share of the largest, in [0, 1], clipped. Reward, in Dutch guilders
a square metre as in the paper: `price` times the growth of X_d, less what carbon dioxide and heat cost; and less a
price, which is ours, of each degree and each percent of relative humidity beyond bounds. These are what public code of
controllers for this model has: 10 to 15 degrees in the dark, 15 to 20 in the light, at most 70 %. Scores:
docs/scores.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.environment import Environment, Transition, pytree, require_non_negative, require_positive
from jaxrl.spaces import Box
from jaxrl.telemetry import Quantity

Scalar = Float[Array, ""]

STEP = 900.0  # s
DAY = 86_400.0  # s
ABSOLUTE = 273.15  # K at 0 degrees Celsius
SOLAR_CONSTANT = 1367.0  # W/m^2


@pytree
class Params:
    max_steps: jax.Array = 40 * 96  # 40 days

    # The crop and the air (Van Henten 2003, table of notation).
    c_alpha_beta: jax.Array = 0.544  # yield
    c_resp_d: jax.Array = 2.65e-7  # 1/s, respiration, as dry matter
    c_resp_c: jax.Array = 4.87e-7  # 1/s, respiration, as carbon dioxide
    c_pl_d: jax.Array = 53.0  # m^2/kg, canopy
    c_rad_phot: jax.Array = 3.55e-9  # kg/J, light use
    c_co2_1: jax.Array = 5.11e-6  # m/s/K^2, diffusion into leaves
    c_co2_2: jax.Array = 2.3e-4  # m/s/K
    c_co2_3: jax.Array = 6.29e-4  # m/s
    c_gamma: jax.Array = 5.2e-5  # kg/m^3, compensation point
    c_cap_c: jax.Array = 4.1  # m, height of the air, for carbon dioxide
    c_cap_h: jax.Array = 4.1  # m, for vapour
    c_cap_q: jax.Array = 30_000.0  # J/m^2/K
    c_cap_q_v: jax.Array = 1290.0  # J/m^3/K, of ventilated air
    c_leak: jax.Array = 0.75e-4  # m/s
    c_ai_ou: jax.Array = 6.1  # W/m^2/K, through the cover
    c_rad_q: jax.Array = 0.2  # share of radiation that heats
    c_v_pl_ai: jax.Array = 3.6e-3  # m/s, transpiration
    c_v_1: jax.Array = 9348.0  # J/m^3, vapour pressure at the leaves
    c_v_2: jax.Array = 17.4
    c_v_3: jax.Array = 239.0  # degrees Celsius
    c_v_4: jax.Array = 10_998.0  # J/m^3, at saturation
    c_r: jax.Array = 8314.0  # J/K/kmol

    # What can be done, and what it is worth.
    max_co2: jax.Array = 1.2e-6  # kg/m^2/s
    max_ventilation: jax.Array = 7.5e-3  # m/s
    max_heat: jax.Array = 150.0  # W/m^2
    price: jax.Array = 16.0  # guilders a kg of dry weight
    price_heat: jax.Array = 6.35e-9  # guilders a J
    price_co2: jax.Array = 0.42  # guilders a kg
    price_degree: jax.Array = 0.05  # guilders a degree and day out of bounds
    price_humidity: jax.Array = 0.01  # guilders a percent of relative humidity and day
    dark_low: jax.Array = 10.0  # degrees Celsius
    dark_high: jax.Array = 15.0
    light_low: jax.Array = 15.0
    light_high: jax.Array = 20.0
    max_humidity: jax.Array = 0.7  # share of saturation
    light: jax.Array = 10.0  # W/m^2 from which on it is light

    # The weather.
    start_day: jax.Array = 20.0  # of the year, from 1 on
    latitude: jax.Array = 52.0  # degrees
    mean_temperature: jax.Array = 10.0  # degrees Celsius, of the year
    season: jax.Array = 7.5  # degrees, amplitude of the year, warmest on day 205
    daily: jax.Array = 3.0  # degrees, amplitude of the day, warmest at 15 hours
    weather_sigma: jax.Array = 3.0  # degrees, standard deviation of the departure from these means
    weather_days: jax.Array = 2.0  # days in which it is forgotten
    sunshine: jax.Array = 0.35  # share of sunshine in the median
    sun_sigma: jax.Array = 1.5  # standard deviation of the share's logit
    sun_days: jax.Array = 0.5
    humidity_outside: jax.Array = 0.85  # share of saturation
    co2_outside: jax.Array = 7.2e-4  # kg/m^3

    # The first state, and the ranges that `generate` draws from.
    initial_weight: jax.Array = 2.7e-3  # kg/m^2
    initial_temperature: jax.Array = 15.0  # degrees Celsius
    initial_humidity: jax.Array = 0.7  # share of saturation
    any_day: jax.Array = 365.0  # start_day is drawn from 1 to this
    climate_sigma: jax.Array = 1.5  # degrees, standard deviation of the mean temperature


@pytree
class State:
    time: jax.Array  # quarters of an hour since planting
    weight: jax.Array  # X_d, kg/m^2
    co2: jax.Array  # X_c, kg/m^3
    temperature: jax.Array  # X_T, degrees Celsius
    vapour: jax.Array  # X_h, kg/m^3
    warmth: jax.Array  # degrees, departure of the weather from its mean
    sun: jax.Array  # departure of the logit of sunshine


class Weather(NamedTuple):
    """Outside: V_rad (W/m^2), V_T (degrees Celsius), V_h and V_c (kg/m^3)."""

    radiation: Array
    temperature: Array
    vapour: Array
    co2: Array


class Controls(NamedTuple):
    """U_c (kg/m^2/s), U_v (m/s), U_q (W/m^2)."""

    co2: Array
    ventilation: Array
    heat: Array


class Flows(NamedTuple):
    """Of carbon dioxide and vapour in kg/m^2/s, of heat in W/m^2; out of the air where the name says so."""

    photosynthesis: Array  # out of the air
    respired: Array  # carbon dioxide
    respired_weight: Array  # dry weight
    co2_out: Array
    sun: Array
    heat_out: Array
    transpiration: Array
    vapour_out: Array


def vapour_pressure(temperature: Scalar, scale: Scalar, params: Params) -> Scalar:
    """Concentration of vapour (kg/m^3) at a temperature: at saturation for scale c_v_4, at the leaves for c_v_1."""
    p = params
    curve = jnp.exp(p.c_v_2 * temperature / (temperature + p.c_v_3))
    return scale * curve / (p.c_r * (temperature + ABSOLUTE))


def relative_humidity(state: State, params: Params) -> Scalar:
    return state.vapour / vapour_pressure(state.temperature, params.c_v_4, params)


def flows(state: State, controls: Controls, weather: Weather, params: Params) -> Flows:
    """What moves between crop, air and outside (Van Henten 2003, equations 6 to 11)."""
    p, s = params, state
    canopy = 1 - jnp.exp(-p.c_pl_d * s.weight)
    light = p.c_rad_phot * weather.radiation
    conductance = -p.c_co2_1 * s.temperature**2 + p.c_co2_2 * s.temperature - p.c_co2_3
    supply = jnp.maximum(conductance, 0) * jnp.maximum(s.co2 - p.c_gamma, 0)
    limited = light * supply / jnp.where(light + supply > 0, light + supply, 1)
    warm = s.weight * 2 ** (0.1 * s.temperature - 2.5)
    exchange = controls.ventilation + p.c_leak
    return Flows(
        photosynthesis=canopy * limited,
        respired=p.c_resp_c * warm,
        respired_weight=p.c_resp_d * warm,
        co2_out=exchange * (s.co2 - weather.co2),
        sun=p.c_rad_q * weather.radiation,
        heat_out=(p.c_cap_q_v * controls.ventilation + p.c_ai_ou) * (s.temperature - weather.temperature),
        transpiration=canopy * p.c_v_pl_ai * (vapour_pressure(s.temperature, p.c_v_1, p) - s.vapour),
        vapour_out=exchange * (s.vapour - weather.vapour),
    )


def derivative(state: State, controls: Controls, weather: Weather, params: Params) -> Float[Array, "4"]:
    """Of weight, carbon dioxide, temperature and vapour, a second (equations 2 to 5)."""
    p, f = params, flows(state, controls, weather, params)
    return jnp.stack(
        [
            p.c_alpha_beta * f.photosynthesis - f.respired_weight,
            (f.respired + controls.co2 - f.photosynthesis - f.co2_out) / p.c_cap_c,
            (controls.heat + f.sun - f.heat_out) / p.c_cap_q,
            (f.transpiration - f.vapour_out) / p.c_cap_h,
        ]
    )


def with_climate(state: State, x: Float[Array, "4"]) -> State:
    return state.replace(weight=x[0], co2=x[1], temperature=x[2], vapour=x[3])


def dynamics(state: State, controls: Controls, weather: Weather, params: Params, substeps: int = 6) -> State:
    """Crop and air 15 minutes later, weather and controls held."""
    h = STEP / substeps

    def slope(x):
        return derivative(with_climate(state, x), controls, weather, params)

    def step(x, _):
        k1 = slope(x)
        k2 = slope(x + h / 2 * k1)
        k3 = slope(x + h / 2 * k2)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(x + h * k3)), None

    begin = jnp.stack([state.weight, state.co2, state.temperature, state.vapour])
    return with_climate(state, jax.lax.scan(step, begin, length=substeps)[0])


def hour_of(state: State) -> Scalar:
    """Of the day; planting is at midnight."""
    return (state.time % 96) * (STEP / 3600)


def weather(state: State, params: Params) -> Weather:
    """Outside, at the state's time."""
    p = params
    day = p.start_day + state.time * (STEP / DAY)
    of_year = 2 * jnp.pi * day / 365
    hour_angle = 2 * jnp.pi * (hour_of(state) - 12) / 24
    declination = 0.409 * jnp.sin(of_year - 1.39)
    latitude = jnp.deg2rad(p.latitude)
    elevation = jnp.sin(latitude) * jnp.sin(declination)
    elevation += jnp.cos(latitude) * jnp.cos(declination) * jnp.cos(hour_angle)
    above = SOLAR_CONSTANT * (1 + 0.033 * jnp.cos(of_year)) * jnp.maximum(elevation, 0)
    share = jax.nn.sigmoid(jnp.log(p.sunshine / (1 - p.sunshine)) + state.sun)
    temperature = p.mean_temperature + p.season * jnp.cos(of_year - 2 * jnp.pi * 205 / 365)
    temperature += p.daily * jnp.cos(2 * jnp.pi * (hour_of(state) - 15) / 24) + state.warmth
    vapour = p.humidity_outside * vapour_pressure(temperature, p.c_v_4, p)
    return Weather((0.25 + 0.5 * share) * above, temperature, vapour, p.co2_outside)


def bounds(radiation: Scalar, params: Params) -> tuple[Scalar, Scalar]:
    """`(lowest, highest)` temperature that costs nothing."""
    light = radiation >= params.light
    low = jnp.where(light, params.light_low, params.dark_low)
    return low, jnp.where(light, params.light_high, params.dark_high)


def rewards(state: State, new: State, controls: Controls, outside: Weather, params: Params) -> dict[str, Scalar]:
    """Guilders of a step; out of bounds is what the new state is, by the light of the step."""
    p = params
    low, high = bounds(outside.radiation, p)
    degrees = jnp.maximum(low - new.temperature, 0) + jnp.maximum(new.temperature - high, 0)
    percent = 100 * jnp.maximum(relative_humidity(new, p) - p.max_humidity, 0)
    return {
        "reward/growth": p.price * (new.weight - state.weight),
        "reward/heat": -p.price_heat * controls.heat * STEP,
        "reward/co2": -p.price_co2 * controls.co2 * STEP,
        "reward/climate": -(p.price_degree * degrees + p.price_humidity * percent) * (STEP / DAY),
    }


def grower(state: State, params: Params, co2: float = 1.2e-3, band: float = 2.0) -> Float[Array, "3"]:
    """A grower's usual rules: proportional heating and ventilation in a band around the bounds of the temperature,
    ventilation against humidity, and carbon dioxide up to a concentration (kg/m^3) while it is light and the vents
    are closed."""
    outside = weather(state, params)
    low, high = bounds(outside.radiation, params)
    heat = jnp.clip((low - state.temperature) / band + 0.5, 0, 1)
    too_warm = (state.temperature - high) / band + 0.5
    too_damp = 10 * (relative_humidity(state, params) - params.max_humidity)
    ventilation = jnp.clip(jnp.maximum(too_warm, too_damp), 0, 1)
    wanted = (outside.radiation >= params.light) & (state.co2 < co2)
    return jnp.stack([jnp.where(wanted, 1 - ventilation, 0), ventilation, heat])


def _forgets(x: Scalar, days: Scalar, sigma: Scalar, noise: Scalar) -> Scalar:
    """An Ornstein-Uhlenbeck process a step later, exactly."""
    kept = jnp.exp(-STEP / DAY / days)
    return kept * x + sigma * jnp.sqrt(1 - kept**2) * noise


@dataclasses.dataclass(frozen=True)
class LettuceGreenhouse(Environment):
    substeps: int = 6  # of Runge and Kutta in a step
    id: str = dataclasses.field(default="LettuceGreenhouse-v0", kw_only=True)
    Params = Params
    static_ranges = {"substeps": (1, 900)}
    observation_names = (
        "dry weight", "CO2", "temperature", "temperature outside", "relative humidity", "radiation",
        "sin hour", "cos hour", "share of the season",
    )  # fmt: skip
    action_names = ("CO2", "ventilation", "heat")

    def initial(self, key: Array, params: Params) -> State:
        noise = jax.random.normal(key, (2,))
        temperature = params.initial_temperature
        return State(
            time=jnp.int32(0),
            weight=params.initial_weight,
            co2=params.co2_outside,
            temperature=temperature,
            vapour=params.initial_humidity * vapour_pressure(temperature, params.c_v_4, params),
            warmth=params.weather_sigma * noise[0],
            sun=params.sun_sigma * noise[1],
        )

    def transition(self, key: Array, state: State, action: Float[Array, "3"], params: Params) -> Transition:
        p = params
        share = jnp.clip(action, 0, 1).astype(state.weight.dtype)
        controls = Controls(p.max_co2 * share[0], p.max_ventilation * share[1], p.max_heat * share[2])
        outside = weather(state, p)
        new = dynamics(state, controls, outside, p, self.substeps)
        noise = jax.random.normal(key, (2,), state.weight.dtype)
        new = new.replace(
            warmth=_forgets(state.warmth, p.weather_days, p.weather_sigma, noise[0]),
            sun=_forgets(state.sun, p.sun_days, p.sun_sigma, noise[1]),
        )
        terms = rewards(state, new, controls, outside, p)
        reward = sum(terms.values(), jnp.zeros_like(new.weight))
        return Transition(new, reward, jnp.bool_(False), jnp.bool_(False), terms)

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "9"]:
        outside, hour = weather(state, params), 2 * jnp.pi * hour_of(state) / 24
        return jnp.stack(
            [
                state.weight / 0.1,
                state.co2 / 1e-3,
                state.temperature / 20,
                outside.temperature / 20,
                relative_humidity(state, params),
                outside.radiation / 500,
                jnp.sin(hour),
                jnp.cos(hour),
                (state.time / params.max_steps).astype(state.weight.dtype),
            ]
        )

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """Another season, and a warmer or colder climate."""
        day_key, climate_key = jax.random.split(key)
        day = jax.random.uniform(day_key, dtype=params.start_day.dtype)
        colder = params.climate_sigma * jax.random.normal(climate_key, dtype=params.start_day.dtype)
        return params.replace(
            start_day=1 + (params.any_day - 1) * day, mean_temperature=params.mean_temperature + colder
        )

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        outside = weather(state, params)
        low, high = bounds(outside.radiation, params)
        return {
            "dry weight [kg/m2]": Quantity(state.weight),
            "temperature [C]": Quantity(state.temperature, low=low, high=high),
            "outside [C]": Quantity(outside.temperature),
            "relative humidity": Quantity(relative_humidity(state, params), high=params.max_humidity),
            "CO2 [g/m3]": Quantity(1000 * state.co2),
            "radiation [W/m2]": Quantity(outside.radiation),
        }

    def observation_space(self, params: Params) -> Box:
        return Box(-jnp.inf, jnp.inf, (9,))

    def action_space(self, params: Params) -> Box:
        return Box(0.0, 1.0, (3,))

    def validate(self, params: Params) -> None:
        p: Any = jax.tree.map(np.asarray, params)
        names = [x.name for x in dataclasses.fields(Params)]
        signed = ("max_steps", "latitude", "mean_temperature", "initial_temperature", "season", "daily")
        bound = ("dark_low", "dark_high", "light_low", "light_high")
        positive = ("c_cap_c", "c_cap_h", "c_cap_q", "c_ai_ou", "c_r", "c_v_1", "c_v_4", "initial_weight")
        positive += ("weather_days", "sun_days")
        require_positive(self, params, *positive)
        require_non_negative(self, params, *(x for x in names if x not in (*signed, *bound, *positive)))
        for name in ("sunshine", "max_humidity", "initial_humidity", "humidity_outside"):
            share = getattr(p, name)
            if not np.all((share > 0) & (share < 1)):
                raise ValueError(f"{self.id}: {name}={share} must be above 0 and below 1.")
        for low, high in (bound[:2], bound[2:]):
            if not np.all(getattr(p, low) <= getattr(p, high)):
                raise ValueError(f"{self.id}: {low}={getattr(p, low)} is above {high}={getattr(p, high)}.")
        # Within these the curve of saturation is finite, and the integration stable.
        if not np.all(p.c_v_2 <= 30):
            raise ValueError(f"{self.id}: c_v_2={p.c_v_2} must be at most 30.")
        if not np.all(p.c_v_3 >= 150):
            raise ValueError(f"{self.id}: c_v_3={p.c_v_3} must be at least 150.")
        outside = np.max(np.abs(p.mean_temperature) + np.abs(p.season) + np.abs(p.daily) + 5 * p.weather_sigma)
        if not outside <= 100:
            raise ValueError(f"{self.id}: the weather is up to {outside:.3g} degrees from zero outside; at most 100.")
        gained = np.max((p.max_heat + p.c_rad_q * SOLAR_CONSTANT) / p.c_ai_ou)
        hottest = max(outside + gained, np.max(np.abs(p.initial_temperature)))
        if not hottest <= 200:
            raise ValueError(f"{self.id}: it is up to {hottest:.3g} degrees in the greenhouse; at most 200.")
        step, exchange = STEP / self.substeps, p.max_ventilation + p.c_leak
        rates = {
            "c_cap_c": exchange / p.c_cap_c,
            "c_cap_h": (exchange + p.c_v_pl_ai) / p.c_cap_h,
            "c_cap_q": (p.c_cap_q_v * p.max_ventilation + p.c_ai_ou) / p.c_cap_q,
        }
        for name, rate in rates.items():
            if not np.all(step * rate <= 1):
                raise ValueError(
                    f"{self.id}: {name}={getattr(p, name)}: the air changes within {1 / np.max(rate):.3g} s, a step of "
                    f"integration is {step:.3g} s: more substeps than {self.substeps} do."
                )
