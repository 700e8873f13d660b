"""Taxi: fetch a passenger and bring them where they want to go.

Dietterich (2000), "Hierarchical reinforcement learning with the MAXQ value function decomposition"; the tables are
those of Gymnasium's `Taxi-v4`, with its options `is_rainy` and `fickle_passenger` (here `rainy`, `fickle`).

The observation is `((row * 5 + column) * 5 + passenger) * 4 + destination`, below 500: the taxi's cell on a 5 x 5 grid
with walls, where the passenger is (0 red, 1 green, 2 yellow, 3 blue, 4 in the taxi) and wants to go. Episodes start
with the passenger at one of the four places, the destination another. Actions: 0 south, 1 north, 2 east, 3 west, 4
pick up, 5 drop off. Reward: -1 a step, -10 for a pick-up or drop-off that is not possible, 20 for delivering the
passenger, which ends the episode. A passenger can be put down at every place. The time limit is 200 steps.

In rain a move that is not blocked goes straight with `rainy_probability` = 0.8, else to one of the sides at equal
chance. A fickle passenger decides at the start of an episode, with `fickle_probability` = 0.3 and in secret, to change
the destination on the first move in the taxi; the state's index is then 500 + the observation until that happens.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.canvas import BLUE, GREEN, INK, RED, Color
from jaxrl.environment import Hints, pytree
from jaxrl.exact.mdp import Outcomes, TabularEnvironment, TabularState
from jaxrl.spaces import Discrete

from ..checks import require_probability, require_shape
from .drawing import draw_grid

SIZE, IN_TAXI = 5, 4
YELLOW: Color = (226, 190, 54)
WALLS = (  # between a cell and the one to its east
    (False, True, False, False),
    (False, True, False, False),
    (False, False, False, False),
    (True, False, True, False),
    (True, False, True, False),
)
PLACES = ((0, 0), (0, 4), (4, 0), (4, 3))  # red, green, yellow, blue


@pytree
class Params:
    walls: jax.Array  # (5, 4) bool, between each cell and the one to its east
    places: jax.Array  # (4, 2) int32, row and column of each place
    max_steps: jax.Array
    step_reward: jax.Array
    illegal_reward: jax.Array
    delivery_reward: jax.Array
    rainy_probability: jax.Array  # of going straight in rain
    fickle_probability: jax.Array  # of an episode with a change of mind


def encode(row: Array, column: Array, passenger: Array, destination: Array) -> Integer[Array, "*K"]:
    """The number of a state."""
    return (((row * SIZE + column) * 5 + passenger) * 4 + destination).astype(jnp.int32)


def decode(state: Integer[Array, "*K"]) -> tuple[Array, Array, Array, Array]:
    """(row, column, passenger, destination) of a state or observation."""
    return state // 100 % SIZE, state // 20 % SIZE, state // 4 % 5, state % 4


def drive(row: Array, column: Array, direction: Array, walls: Bool[Array, "5 4"]) -> tuple[Array, Array]:
    """Where a move south, north, east or west leads: nowhere through walls and over the border."""
    gap = jnp.clip(column - jnp.where(direction == 3, 1, 0), 0, SIZE - 2)
    sideways = jnp.where(walls[row, gap], 0, jnp.where(direction == 2, 1, jnp.where(direction == 3, -1, 0)))
    down = jnp.where(direction == 0, 1, jnp.where(direction == 1, -1, 0))
    return jnp.clip(row + down, 0, SIZE - 1), jnp.clip(column + sideways, 0, SIZE - 1)


def action_mask(state: Integer[Array, ""], params: Params) -> Bool[Array, "6"]:
    """Which actions change the state (Gymnasium's `info["action_mask"]`), of a state or an observation."""
    row, column, passenger, destination = decode(state)
    move = jnp.arange(4)
    to_row, to_column = jax.vmap(drive, (None, None, 0, None))(row, column, move, params.walls)
    here = (params.places[:, 0] == row) & (params.places[:, 1] == column)
    pick_up = jnp.any(here & (jnp.arange(4) == passenger))
    drop_off = (passenger == IN_TAXI) & jnp.any(here)
    return jnp.concatenate([(to_row != row) | (to_column != column), jnp.stack([pick_up, drop_off])])


@dataclasses.dataclass(frozen=True)
class Taxi(TabularEnvironment):
    id: str = dataclasses.field(default="Taxi-v4", kw_only=True)
    rainy: bool = False
    fickle: bool = False
    num_actions: int = dataclasses.field(default=6, init=False)
    Params = Params
    action_names = ("action, 0 south, 1 north, 2 east, 3 west, 4 pick up, 5 drop off",)

    @property
    def num_states(self) -> int:
        return 1000 if self.fickle else 500

    @property
    def hints(self) -> Hints:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Hints(deterministic=not (self.rainy or self.fickle))

    @property
    def default_params(self) -> Params:
        numbers = (jnp.array(x, float) for x in (-1.0, -10.0, 20.0, 0.8, 0.3))
        return Params(jnp.array(WALLS), jnp.array(PLACES, jnp.int32), jnp.int32(200), *numbers)

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        row, column, passenger, destination = decode(state)
        moves = action < 4
        here = (params.places[:, 0] == row) & (params.places[:, 1] == column)  # (4,)
        in_taxi = passenger == IN_TAXI
        picks = (action == 4) & jnp.any(here & (jnp.arange(4) == passenger))
        drops = (action == 5) & in_taxi & jnp.any(here)
        delivers = drops & jnp.any(here & (jnp.arange(4) == destination))
        there = jnp.where(delivers, destination, jnp.argmax(here))
        passenger = jnp.where(picks, IN_TAXI, jnp.where(drops, there, passenger))
        legal = jnp.where(delivers, params.delivery_reward, params.step_reward)
        reward = jnp.where(moves | picks | drops, legal, params.illegal_reward)

        way, probability = self._ways(row, column, action, params)
        to_row, to_column = jax.vmap(drive, (None, None, 0, None))(row, column, way, params.walls)
        if self.fickle:
            # Each way splits into the three other destinations, the same one thrice where nobody changes their mind.
            to_row, to_column, probability = (jnp.repeat(x, 3) for x in (to_row, to_column, probability / 3))
            pending = state >= 500
            changes = pending & in_taxi & ((to_row != row) | (to_column != column))
            other = (destination + 1 + jnp.arange(len(to_row)) % 3) % 4
            destination = jnp.where(changes, other, destination)
            next_state = encode(to_row, to_column, passenger, destination) + jnp.where(pending & ~changes, 500, 0)
        else:
            next_state = encode(to_row, to_column, passenger, destination)
        shape = probability.shape
        return Outcomes(
            probability,
            next_state.astype(jnp.int32),
            jnp.broadcast_to(reward, shape),
            jnp.broadcast_to(delivers, shape),
        )

    def _ways(self, row: Array, column: Array, action: Array, params: Params) -> tuple[Array, Array]:
        """Directions that an action may drive to, and their probabilities; 4 and 5 drive nowhere."""
        if not self.rainy:
            return action[None], jnp.ones_like(params.rainy_probability)[None]
        to_row, to_column = drive(row, column, action, params.walls)
        # A blocked move does not drift either.
        drifts = (to_row != row) | (to_column != column)
        sides = jnp.where(action < 2, jnp.array([2, 3]), jnp.array([0, 1]))
        side = (1 - params.rainy_probability) / 2
        way = jnp.concatenate([action[None], jnp.where(drifts, sides, action)])
        return way, jnp.stack([params.rainy_probability, side, side])

    def initial_distribution(self, params: Params) -> Float[Array, " S"]:
        _, _, passenger, destination = decode(jnp.arange(500))
        dtype = params.fickle_probability.dtype
        uniform = ((passenger != IN_TAXI) & (passenger != destination)).astype(dtype) / 300
        if not self.fickle:
            return uniform
        return jnp.concatenate([uniform * (1 - params.fickle_probability), uniform * params.fickle_probability])

    def initial(self, key: Array, params: Params) -> TabularState:
        """One of the 300 first states by its number: cheaper than the distribution over all of them."""
        uniform = jax.random.uniform(key, (2,))
        start = jnp.floor(uniform[0] * 300).astype(jnp.int32)
        passenger = start // 3 % 4
        index = encode(start // 60, start // 12 % 5, passenger, (passenger + 1 + start % 3) % 4)
        if self.fickle:
            index = index + jnp.where(uniform[1] < params.fickle_probability, 500, 0)
        return TabularState(jnp.int32(0), index.astype(jnp.int32))

    def observe(self, key: Array, state: TabularState, params: Params) -> Integer[Array, ""]:
        return state.index % 500

    def observation_space(self, params: Params) -> Discrete:
        return Discrete(500)

    def validate(self, params: Params) -> None:
        require_shape(self, params, "walls", SIZE, SIZE - 1)
        require_shape(self, params, "places", 4, 2)
        require_probability(self, params, "rainy_probability", "fickle_probability")
        places = np.asarray(params.places)
        cells = places.reshape(-1, 4, 2) @ [SIZE, 1]
        if places.min() < 0 or places.max() >= SIZE or any(len(set(c)) < 4 for c in cells.tolist()):
            raise ValueError(f"{self.id}: places={params.places} must be four different cells of {SIZE} x {SIZE}.")

    def render(self, state: TabularState, params: Params) -> np.ndarray:
        row, column, passenger, destination = (int(x) for x in decode(jnp.asarray(state.index)))
        colours = dict(zip((np.asarray(params.places) @ [SIZE, 1]).tolist(), (RED, GREEN, YELLOW, BLUE), strict=True))
        gaps = np.argwhere(np.asarray(params.walls)).astype(float).tolist()
        walls = [((r, c + 1), (r + 1, c + 1)) for r, c in gaps]
        waits = [] if passenger == IN_TAXI else [np.asarray(params.places)[passenger].astype(float).tolist()]
        discs = [(r, c, 0.4, INK) for r, c in waits]
        names = ("red", "green", "yellow", "blue")
        caption = f"t = {int(state.time)}   to {names[destination]}" + "   passenger aboard" * (passenger == IN_TAXI)
        return draw_grid(SIZE, SIZE, colours, row * SIZE + column, caption, discs, walls)
