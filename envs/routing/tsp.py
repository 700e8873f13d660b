"""TSP-v0: the travelling salesman's shortest closed tour through all cities, one city a step.

The state is the rest of the problem, as in BQ-NCO (Drakulic, Michel, Mai, Sors and Andreoli 2023, "BQ-NCO: bisimulation
quotienting for efficient neural combinatorial optimization", arXiv:2301.03313): the way from where one is, through the
cities that are left, to where the tour began. The cities between are forgotten.

| observation | range | |
|---|---|---|
| `cities` (num_cities, 2) | 0 to 1 | x and y of the cities that are left, 0 for all others |
| `origin`, `destination` (2,) | 0 to 1 | x and y of where one is, and where the tour ends |
| `action_mask` (num_cities,) | 0, 1 | the cities that are left |

Action: the next city. Reward: minus the way to it, and from the last city minus the way to the destination, too. The
tour begins in city 0. Terminates when none is left, and with a city that is not left, at -`penalty`.

Cities are uniform in the unit square. An episode draws its own (`params.fresh`); a level is the params with cities:
`generate`, `mutate` (one city moves), `optimal_value` (exact, by `jaxrl.exact.routing.held_karp`, up to 20 cities;
None in the kit of more).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Key

from jaxrl.canvas import BLUE, GREY, INK, ORANGE, WHITE, Canvas
from jaxrl.environment import NO_LIMIT, Environment, Hints, Levels, Transition, pytree, strongly_typed
from jaxrl.exact.routing import MAX_CITIES, distances, held_karp
from jaxrl.spaces import Box, Dict, Discrete


@pytree
class Params:
    cities: jax.Array  # (n, 2) x and y in the unit square
    fresh: jax.Array = True  # each episode draws its own cities
    penalty: jax.Array = 10.0  # for a city that is not left
    max_steps: jax.Array = NO_LIMIT


@pytree
class State:
    time: jax.Array  # steps since reset
    cities: jax.Array  # (n, 2)
    left: jax.Array  # (n,) bool, cities to be visited
    order: jax.Array  # (n,) int32, when each city was visited; only drawn
    origin: jax.Array  # int32, the city where one is


def length(a: Float[Array, "*n 2"], b: Float[Array, "*n 2"]) -> Float[Array, "*n"]:
    """The way from a to b."""
    return jnp.sqrt((a[..., 0] - b[..., 0]) ** 2 + (a[..., 1] - b[..., 1]) ** 2)


def greedy(obs: dict[str, Array]) -> Integer[Array, ""]:
    """The nearest city that is left."""
    way = length(obs["cities"], jnp.broadcast_to(obs["origin"], obs["cities"].shape))
    return jnp.argmin(jnp.where(obs["action_mask"], way, jnp.inf)).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class TSP(Environment):
    num_cities: int = 20
    id: str = dataclasses.field(default="TSP-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"num_cities": (2, 10_000)}

    @property
    def default_params(self) -> Params:
        return strongly_typed(Params(jax.random.uniform(jax.random.key(0), (self.num_cities, 2))))

    @property
    def levels(self) -> Levels | None:
        """The level kit, without `optimal_value` where that is out of reach."""
        kit: Any = super().levels
        return kit if self.num_cities <= MAX_CITIES else kit._replace(optimal_value=None)

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """Cities uniform in the unit square, which every episode plays."""
        cities = jax.random.uniform(key, (self.num_cities, 2), params.cities.dtype)
        return params.replace(cities=cities, fresh=jnp.bool_(False))

    def mutate(self, key: Key[Array, ""], params: Params) -> Params:
        """One city moves anywhere."""
        which_key, new_key = jax.random.split(key)
        which = jnp.arange(self.num_cities) == jax.random.randint(which_key, (), 0, self.num_cities)
        place = jax.random.uniform(new_key, (2,), params.cities.dtype)
        cities = jnp.where(which[:, None], place, params.cities)
        return params.replace(cities=cities, fresh=jnp.bool_(False))

    def optimal_value(self, params: Params) -> Float[Array, ""]:
        """The best return of a level, exactly: minus the shortest tour. Raises ValueError for too many cities."""
        return -held_karp(distances(params.cities))[0]

    def initial(self, key: Array, params: Params) -> State:
        drawn = jax.random.uniform(key, (self.num_cities, 2), params.cities.dtype)
        cities, number = jnp.where(params.fresh, drawn, params.cities), jnp.arange(self.num_cities)
        return State(jnp.int32(0), cities, number > 0, jnp.zeros(self.num_cities, jnp.int32), jnp.int32(0))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        action = action.astype(jnp.int32)
        chosen = (jnp.arange(self.num_cities) == action) & state.left
        valid, left = chosen.any(), state.left & ~chosen
        cities, over = state.cities, ~left.any()
        way = length(cities[state.origin], cities[action])
        home = jnp.where(over, length(cities[action], cities[0]), 0)
        after = state.replace(
            left=left,
            order=jnp.where(chosen, state.time + 1, state.order),
            origin=jnp.where(valid, action, state.origin),
        )
        reward = jnp.where(valid, -way - home, -params.penalty)
        return Transition(after, reward, over | ~valid, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> dict[str, Array]:
        cities = state.cities.astype(jnp.float32)
        return {
            "cities": jnp.where(state.left[:, None], cities, 0),
            "origin": cities[state.origin],
            "destination": cities[0],
            "action_mask": state.left,
        }

    def observation_space(self, params: Params) -> Dict:
        n = self.num_cities
        places = {"cities": Box(0, 1, (n, 2)), "origin": Box(0, 1, (2,)), "destination": Box(0, 1, (2,))}
        return Dict({**places, "action_mask": Box(0, 1, (n,), jnp.bool_)})

    def action_space(self, params: Params) -> Discrete:
        return Discrete(self.num_cities)

    def validate(self, params: Params) -> None:
        cities = np.asarray(params.cities)
        if cities.shape[-2:] != (self.num_cities, 2) or np.any((cities < 0) | (cities > 1)):
            raise ValueError(f"{self.id}: cities {cities.shape} must be ({self.num_cities}, 2), all in [0, 1].")

    def render(self, state: State, params: Params) -> np.ndarray:
        canvas = Canvas(400, 430, 1.1, (0.5, 0.54), WHITE)
        left, places = np.asarray(state.left), [(float(x), float(y)) for x, y in np.asarray(state.cities)]
        tour = [i for i in np.argsort(state.order, kind="stable") if not left[i]]
        way = [*tour, 0] if not left.any() else tour
        for a, b in zip(way[:-1], way[1:], strict=True):
            canvas.line([places[a], places[b]], 0.008, BLUE)
        for i, place in enumerate(places):
            canvas.circle(place, 0.018 if i else 0.026, INK if not i else GREY if left[i] else BLUE)
        canvas.circle(places[int(state.origin)], 0.03, ORANGE, 0.006)
        total = sum(math.dist(places[a], places[b]) for a, b in zip(way[:-1], way[1:], strict=True))
        canvas.caption(f"{left.sum()} cities are left, way so far {total:.2f}")
        return canvas.image()
