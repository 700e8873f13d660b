"""CVRP-v0: capacitated vehicle routing; serve all customers from a depot on the shortest routes, one customer a step.

The state is the rest of the problem, as in BQ-NCO (Drakulic, Michel, Mai, Sors and Andreoli 2023, "BQ-NCO: bisimulation
quotienting for efficient neural combinatorial optimization", arXiv:2301.03313): where one is, what the vehicle still
has, and the customers that are left. Driving to the depot is part of the way to the next customer, so a solution has as
many steps as customers.

| observation | range | |
|---|---|---|
| `customers` (num_customers, 3) | 0 to 1 | x, y, demand / capacity of the customers that are left, 0 for all others |
| `origin`, `depot` (2,) | 0 to 1 | x and y of where one is, and of the depot |
| `load` | 0 to 1 | what the vehicle has, / capacity |
| `action_mask` (2 num_customers,) | 0, 1 | what can be done |

Action: i, straight to customer i; num_customers + i, to customer i by way of the depot, where the vehicle is filled
(not where one is there already). Reward: minus the way; after the last customer minus the way to the depot, too.
Terminates when none is left, and with what cannot be done, at -`penalty`.

Instances are those of Nazari et al. (2018, arXiv:1802.04240): places uniform in the unit square, demands uniform in 1
to 9, capacity 20, 30, 40 and 50 for 10, 20, 50 and 100 customers; other numbers have that of the next larger of these,
or 50. An episode draws its own (`params.fresh`); a level is the params with an instance: `generate`, `mutate` (one
customer is another), `optimal_value` (exact, by `jaxrl.exact.routing.routes`, up to 10; None in the kit of more).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Key

from jaxrl.canvas import BLUE, GREEN, GREY, INK, ORANGE, RED, WHITE, Canvas
from jaxrl.environment import NO_LIMIT, Environment, Hints, Levels, Transition, pytree, strongly_typed
from jaxrl.exact.routing import MAX_CUSTOMERS, distances, routes
from jaxrl.spaces import Box, Dict, Discrete

LARGEST = 9  # demand
CAPACITIES = {10: 20, 20: 30, 50: 40}  # by the most customers; 50 for more


@pytree
class Params:
    places: jax.Array  # (n + 1, 2) x and y in the unit square, the depot first
    demands: jax.Array  # (n,) int32
    capacity: jax.Array  # int32
    fresh: jax.Array = True  # each episode draws its own places and demands
    penalty: jax.Array = 10.0  # for what cannot be done
    max_steps: jax.Array = NO_LIMIT


@pytree
class State:
    time: jax.Array  # steps since reset
    places: jax.Array  # (n + 1, 2)
    demands: jax.Array  # (n,) int32
    left: jax.Array  # (n,) bool
    order: jax.Array  # (n,) int32, the step in which each was served, negative after the depot; only drawn
    origin: jax.Array  # int32, row of `places`
    load: jax.Array  # int32


def length(a: Float[Array, "*n 2"], b: Float[Array, "*n 2"]) -> Float[Array, "*n"]:
    """The way from a to b."""
    return jnp.sqrt((a[..., 0] - b[..., 0]) ** 2 + (a[..., 1] - b[..., 1]) ** 2)


def possible(state: State) -> Bool[Array, " actions"]:
    """Which actions can be taken."""
    straight = state.left & (state.demands <= state.load)
    return jnp.concatenate([straight, state.left & (state.origin > 0)])


def draw(key: Key[Array, ""], n: int, dtype: jnp.dtype) -> tuple[Float[Array, "places 2"], Integer[Array, " n"]]:
    """Places and demands of an instance."""
    place_key, demand_key = jax.random.split(key)
    return (
        jax.random.uniform(place_key, (n + 1, 2), dtype),
        jax.random.randint(demand_key, (n,), 1, LARGEST + 1, jnp.int32),
    )


def greedy(obs: dict[str, Array]) -> Integer[Array, ""]:
    """The nearest customer whom the vehicle has enough for; by way of the depot where there is none."""
    places = obs["customers"][:, :2]
    straight, by_depot = (length(places, jnp.broadcast_to(obs[name], places.shape)) for name in ("origin", "depot"))
    way = jnp.concatenate([straight, 10 + by_depot])
    return jnp.argmin(jnp.where(obs["action_mask"], way, jnp.inf)).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class CVRP(Environment):
    num_customers: int = 20
    id: str = dataclasses.field(default="CVRP-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"num_customers": (1, 10_000)}

    @property
    def default_params(self) -> Params:
        places, demands = draw(jax.random.key(0), self.num_customers, jnp.dtype(jnp.result_type(float)))
        capacity = next((c for n, c in CAPACITIES.items() if self.num_customers <= n), 50)
        return strongly_typed(Params(places, demands, jnp.int32(capacity)))

    @property
    def levels(self) -> Levels | None:
        """The level kit, without `optimal_value` where that is out of reach."""
        kit: Any = super().levels
        return kit if self.num_customers <= MAX_CUSTOMERS else kit._replace(optimal_value=None)

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """An instance of the distribution, which every episode plays."""
        places, demands = draw(key, self.num_customers, params.places.dtype)
        return params.replace(places=places, demands=demands, fresh=jnp.bool_(False))

    def mutate(self, key: Key[Array, ""], params: Params) -> Params:
        """One customer is another."""
        which_key, new_key = jax.random.split(key)
        which = jnp.arange(self.num_customers) == jax.random.randint(which_key, (), 0, self.num_customers)
        places, demands = draw(new_key, 1, params.places.dtype)
        moved = jnp.where(which[:, None], places[1], params.places[1:])
        return params.replace(
            places=jnp.concatenate([params.places[:1], moved]),
            demands=jnp.where(which, demands, params.demands),
            fresh=jnp.bool_(False),
        )

    def optimal_value(self, params: Params) -> Float[Array, ""]:
        """The best return of a level, exactly. Raises ValueError for too many customers."""
        return -routes(distances(params.places), params.demands, params.capacity)

    def initial(self, key: Array, params: Params) -> State:
        drawn, given = draw(key, self.num_customers, params.places.dtype), (params.places, params.demands)
        places, demands = (jnp.where(params.fresh, x, y) for x, y in zip(drawn, given, strict=True))
        n = self.num_customers
        return State(
            jnp.int32(0), places, demands, jnp.ones(n, bool), jnp.zeros(n, jnp.int32), jnp.int32(0), params.capacity
        )

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        n, places = self.num_customers, state.places
        action = action.astype(jnp.int32)
        valid = jnp.any(possible(state) & (jnp.arange(2 * n) == action))
        by_depot, customer = action >= n, action % n
        here, there, depot = places[state.origin], places[customer + 1], places[0]
        way = jnp.where(by_depot, length(here, depot) + length(depot, there), length(here, there))
        chosen = (jnp.arange(n) == customer) & valid
        left = state.left & ~chosen
        load = jnp.where(by_depot, params.capacity, state.load) - state.demands[customer]
        home = jnp.where(left.any(), 0, length(there, depot))
        after = state.replace(
            left=left,
            order=jnp.where(chosen, jnp.where(by_depot, -1, 1) * (state.time + 1), state.order),
            origin=jnp.where(valid, customer + 1, state.origin),
            load=jnp.where(valid, load, state.load),
        )
        reward = jnp.where(valid, -way - home, -params.penalty)
        return Transition(after, reward, ~left.any() | ~valid, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> dict[str, Array]:
        places, capacity = state.places.astype(jnp.float32), params.capacity.astype(jnp.float32)
        rows = jnp.concatenate([places[1:], (state.demands / capacity)[:, None].astype(jnp.float32)], 1)
        return {
            "customers": jnp.where(state.left[:, None], rows, 0),
            "origin": places[state.origin],
            "depot": places[0],
            "load": state.load.astype(jnp.float32) / capacity,
            "action_mask": possible(state),
        }

    def observation_space(self, params: Params) -> Dict:
        n = self.num_customers
        places = {"customers": Box(0, 1, (n, 3)), "origin": Box(0, 1, (2,)), "depot": Box(0, 1, (2,))}
        return Dict({**places, "load": Box(0, 1, ()), "action_mask": Box(0, 1, (2 * n,), jnp.bool_)})

    def action_space(self, params: Params) -> Discrete:
        return Discrete(2 * self.num_customers)

    def validate(self, params: Params) -> None:
        n, places, demands = self.num_customers, np.asarray(params.places), np.asarray(params.demands)
        if places.shape[-2:] != (n + 1, 2) or np.any((places < 0) | (places > 1)):
            raise ValueError(f"{self.id}: places {places.shape} must be ({n + 1}, 2), all in [0, 1].")
        if demands.shape[-1:] != (n,) or np.any(demands < 1):
            raise ValueError(f"{self.id}: demands {demands.shape} must be ({n},) of integers from 1 on.")
        most = np.maximum(demands.max(-1), np.where(params.fresh, LARGEST, 0))
        if np.any(np.asarray(params.capacity) < most):
            raise ValueError(f"{self.id}: capacity={params.capacity} must be at least the largest demand, {most}.")

    def render(self, state: State, params: Params) -> np.ndarray:
        canvas = Canvas(400, 430, 1.1, (0.5, 0.54), WHITE)
        places, left = np.asarray(state.places, float), np.asarray(state.left)
        order = np.asarray(state.order)
        colors = (BLUE, GREEN, ORANGE, RED)
        here, route = 0, 0
        for i in sorted(np.flatnonzero(order), key=lambda i: abs(order[i])):
            if order[i] < 0:
                canvas.line([tuple(places[here]), tuple(places[0])], 0.008, colors[route % 4])
                here, route = 0, route + 1
            canvas.line([tuple(places[here]), tuple(places[i + 1])], 0.008, colors[route % 4])
            here = i + 1
        if not left.any():
            canvas.line([tuple(places[here]), tuple(places[0])], 0.008, colors[route % 4])
        for i, demand in enumerate(np.asarray(state.demands)):
            canvas.circle(tuple(places[i + 1]), 0.010 + 0.002 * float(demand), GREY if left[i] else BLUE)
        x, y = places[0]
        canvas.rectangle((x - 0.025, y - 0.025), (x + 0.025, y + 0.025), INK)
        canvas.caption(f"{left.sum()} customers are left, load {int(state.load)} of {int(params.capacity)}")
        return canvas.image()
