"""Knapsack-v0: take the most valuable items that fit, one a step.

The state is the rest of the problem, as in BQ-NCO (Drakulic, Michel, Mai, Sors and Andreoli 2023, "BQ-NCO: bisimulation
quotienting for efficient neural combinatorial optimization", arXiv:2301.03313): the items that still fit, and the
capacity that is left. What was taken, and in which order, is forgotten, as it changes nothing any more.

| observation | range | |
|---|---|---|
| `items` (num_items, 2) | 0 to 1 | value and weight of the items that can be taken, 0 for all others |
| `capacity` | 0 to max_capacity / 1000 | what is left |
| `action_mask` (num_items,) | 0, 1 | the items that can be taken |

Action: the item. Reward: its value. Terminates when no item that is left fits, and with an item that cannot be taken,
for which there is no reward. Values, weights and capacity are integers, thousandths of their unit.

Instances are BQ-NCO's: values and weights uniform in 1 to 998, capacity 250 for each item, at most 25,000. An episode
draws its own (`params.fresh`); a level is the params with an instance: `generate`, `mutate` (one item is another),
`optimal_value` (exact, by `jaxrl.exact.routing.knapsack`).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Key

from jaxrl.canvas import BLUE, GREEN, GREY, INK, PALE, WHITE, Canvas
from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree, strongly_typed
from jaxrl.exact.routing import knapsack
from jaxrl.spaces import Box, Dict, Discrete

UNIT = 1000
LARGEST = 998  # of values and weights, in thousandths


@pytree
class Params:
    values: jax.Array  # (n,) int32, thousandths
    weights: jax.Array  # (n,) int32, thousandths
    capacity: jax.Array  # int32, thousandths
    fresh: jax.Array = True  # each episode draws its own values and weights
    max_steps: jax.Array = NO_LIMIT


@pytree
class State:
    time: jax.Array  # steps since reset
    values: jax.Array  # (n,) int32, thousandths
    weights: jax.Array  # (n,) int32
    taken: jax.Array  # (n,) bool
    left: jax.Array  # int32, capacity


def draw(key: Key[Array, ""], num_items: int) -> tuple[Integer[Array, " n"], Integer[Array, " n"]]:
    """Values and weights of an instance."""
    both = jax.random.randint(key, (2, num_items), 1, LARGEST + 1, jnp.int32)
    return both[0], both[1]


def possible(state: State) -> Bool[Array, " n"]:
    """The items that are left and fit."""
    return ~state.taken & (state.weights <= state.left)


def greedy(obs: dict[str, Array]) -> Integer[Array, ""]:
    """The item with most value for its weight."""
    value, weight = obs["items"][:, 0], obs["items"][:, 1]
    return jnp.argmax(jnp.where(obs["action_mask"], value / jnp.maximum(weight, 1e-6), -1)).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class Knapsack(Environment):
    num_items: int = 50
    max_capacity: int = 25_000  # thousandths
    id: str = dataclasses.field(default="Knapsack-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"num_items": (1, 100_000), "max_capacity": (1, 10_000_000)}

    @property
    def default_params(self) -> Params:
        capacity = min(250 * self.num_items, self.max_capacity)
        values, weights = draw(jax.random.key(0), self.num_items)
        return strongly_typed(Params(values, weights, jnp.int32(capacity)))

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """An instance of BQ-NCO's distribution, which every episode plays."""
        values, weights = draw(key, self.num_items)
        return params.replace(values=values, weights=weights, fresh=jnp.bool_(False))

    def mutate(self, key: Key[Array, ""], params: Params) -> Params:
        """One item is another."""
        which_key, new_key = jax.random.split(key)
        which = jnp.arange(self.num_items) == jax.random.randint(which_key, (), 0, self.num_items)
        values, weights = draw(new_key, 1)
        return params.replace(
            values=jnp.where(which, values, params.values),
            weights=jnp.where(which, weights, params.weights),
            fresh=jnp.bool_(False),
        )

    def optimal_value(self, params: Params) -> Float[Array, ""]:
        """The best return of a level, exactly."""
        best, _ = knapsack(params.values, params.weights, params.capacity, self.max_capacity)
        return best / UNIT

    def initial(self, key: Array, params: Params) -> State:
        drawn, given = draw(key, self.num_items), (params.values, params.weights)
        values, weights = (jnp.where(params.fresh, x, y) for x, y in zip(drawn, given, strict=True))
        return State(jnp.int32(0), values, weights, jnp.zeros(self.num_items, bool), params.capacity)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        chosen = (jnp.arange(self.num_items) == action) & possible(state)
        left = state.left - jnp.sum(jnp.where(chosen, state.weights, 0), dtype=jnp.int32)
        after = state.replace(taken=state.taken | chosen, left=left)
        reward = jnp.sum(jnp.where(chosen, state.values, 0)).astype(jnp.float32) / UNIT
        return Transition(after, reward, ~possible(after).any() | ~chosen.any(), jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> dict[str, Array]:
        mask = possible(state)
        items = jnp.where(mask[:, None], jnp.stack([state.values, state.weights], 1), 0)
        scaled = items.astype(jnp.float32) / UNIT
        return {"items": scaled, "capacity": state.left.astype(jnp.float32) / UNIT, "action_mask": mask}

    def observation_space(self, params: Params) -> Dict:
        n = self.num_items
        return Dict(
            {
                "items": Box(0, 1, (n, 2)),
                "capacity": Box(0, self.max_capacity / UNIT, ()),
                "action_mask": Box(0, 1, (n,), jnp.bool_),
            }
        )

    def action_space(self, params: Params) -> Discrete:
        return Discrete(self.num_items)

    def validate(self, params: Params) -> None:
        n = self.num_items
        for name in ("values", "weights"):
            x = np.asarray(getattr(params, name))
            if x.shape[-1:] != (n,) or np.any((x < 1) | (x > UNIT)):
                raise ValueError(f"{self.id}: {name} {x.shape} must be ({n},) of integers from 1 to {UNIT}.")
        capacity = np.asarray(params.capacity)
        if np.any((capacity < 1) | (capacity > self.max_capacity)):
            raise ValueError(f"{self.id}: capacity={capacity} must be from 1 to max_capacity={self.max_capacity}.")
        if np.any(np.asarray(params.weights).min(-1) > capacity):
            raise ValueError(f"{self.id}: capacity={capacity}: no item fits, so there is nothing to do.")

    def render(self, state: State, params: Params) -> np.ndarray:
        """A box for each item, as wide as its weight and as high as its value; those taken stand on the right."""
        canvas = Canvas(480, 360, 2.4, (1.2, 0.9), WHITE)
        mask, taken = np.asarray(possible(state)), np.asarray(state.taken)
        across = int(np.ceil(np.sqrt(self.num_items * 1.6)))
        size = min(2.3 / across, 1.42 / -(-self.num_items // across))
        for i, (value, weight) in enumerate(zip(state.values / UNIT, state.weights / UNIT, strict=True)):
            x, y = 0.06 + i % across * size, 1.62 - (i // across + 1) * size
            color = GREEN if taken[i] else BLUE if mask[i] else PALE
            canvas.rectangle((x, y), (x + 0.85 * size * float(weight), y + 0.85 * size * float(value)), color)
        share = float(state.left) / float(params.capacity)
        canvas.rectangle((0.06, 0.05), (2.34, 0.12), GREY)
        canvas.rectangle((0.06, 0.05), (0.06 + 2.28 * (1 - share), 0.12), INK)
        total = float(np.sum(np.where(taken, state.values, 0))) / UNIT
        canvas.caption(
            f"value {total:.3f}, capacity left {float(state.left) / UNIT:.3f}; wide is heavy, high is valuable"
        )
        return canvas.image()
