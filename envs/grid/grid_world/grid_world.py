"""GridWorld-v0: collect what pays, leave what does not, and it all comes back. The level is the params.

Oh et al. (2020), "Discovering Reinforcement Learning Algorithms" (LPG), NeurIPS, arXiv:2007.08794; the rules and the
level distributions are those of GROOVE's code (Jackson et al. 2023, arXiv:2310.02782).

A grid with walls and up to N objects, each of one of K types. Walking onto a present object collects it: its type's
reward, an end of the episode with its type's `p_terminate`, and it is gone. Every step each absent object comes back
with its type's `p_respawn`, also under the agent, who collects it by not moving; one just collected does not come back
in the same step.

Actions: 0 up, 1 down, 2 left, 3 right, 4 stay; a wall or the border stops a move.

| `observation` | objects come back | shape, P = max_grid^2 cells |
|---|---|---|
| `tabular` | where they were | (P 2^N + 1,): one of (position, which objects are there), and the time / 1000 |
| `index` | where they were | an integer, position + P (bits of the objects that are there) |
| `maps` | on a random free cell | (P + K P + 1,): the position, a map a type, and the time / 1000 |

Ends: as drawn at a collection. With `maps` an object appears on no wall, not on the agent, and not where another object
is or was last; at the start of an episode all are on random cells, too.

The exact value of the best policy of a level whose objects stay is `optimal_value`, by backward induction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.canvas import BLUE, GREEN, GREY, INK, ORANGE, PALE, RED, WHITE, Canvas
from jaxrl.environment import Environment, Hints, Transition, pytree
from jaxrl.spaces import Box, Discrete

from ..sampling import distinct
from . import levels as grid_world_levels
from .levels import FAMILIES, Distribution, Level, distribution, generate, mutate, unit, validate

__all__ = [
    "FAMILIES",
    "Distribution",
    "GridWorld",
    "Level",
    "distribution",
    "generate",
    "mutate",
    "optimal_value",
    "validate",
]

OBSERVATIONS = ("tabular", "index", "maps")


@pytree
class State:
    time: jax.Array  # steps since reset
    position: jax.Array  # int32, row * G + column
    present: jax.Array  # int32, bit i: object i is there
    cells: jax.Array  # (N,) int32, where each object is or was last; (0,) where they keep to the level's cells


# ---- rules


def move(position: Integer[Array, ""], action: Integer[Array, ""], level: Level) -> Integer[Array, ""]:
    """Where one action leads."""
    size = level.walls.shape[-1]
    action = action.astype(jnp.int32)
    row, column = position // size, position % size
    new_row = row + (action == 1) - (action == 0)
    new_column = column + (action == 3) - (action == 2)
    inside = (new_row >= 0) & (new_row < level.grid_size) & (new_column >= 0) & (new_column < level.grid_size)
    new = new_row * size + new_column
    # A comparison with every cell: under vmap, indexing is a gather, which nothing fuses with.
    wall = jnp.any(level.walls.reshape(-1) & (jnp.arange(size * size) == new))
    return jnp.where(inside & ~wall, new, position)


def bits_of(present: Integer[Array, ""], slots: int) -> Bool[Array, " slots"]:
    """The objects that are there, of their bits."""
    return (present >> jnp.arange(slots)) & 1 == 1


def of_slots(rule: Float[Array, " K"], level: Level) -> Float[Array, " N"]:
    """A number of each type, for each object; 0 for slots not in use."""
    slots, types = level.object_types.shape[-1], rule.shape[-1]
    mine = level.object_types[:, None] == jnp.arange(types)
    used = jnp.arange(slots) < level.num_objects
    return jnp.sum(jnp.where(mine & used[:, None], rule, 0), axis=-1)


def free_cells(position: Integer[Array, ""], cells: Integer[Array, " N"], level: Level) -> Bool[Array, " P"]:
    """Where an object may appear: in the grid, on no wall, not on the agent, not where an object is or was last."""
    size, slots = level.walls.shape[-1], cells.shape[-1]
    number = jnp.arange(size * size, dtype=jnp.int32)
    inside = (number // size < level.grid_size) & (number % size < level.grid_size)
    used = jnp.arange(slots) < level.num_objects
    held = jnp.any((number == cells[:, None]) & used[:, None], axis=0)
    return inside & ~level.walls.reshape(-1) & ~held & (number != position)


def collect(
    position: Integer[Array, ""],
    present: Bool[Array, " N"],
    cells: Integer[Array, " N"],
    respawn: Bool[Array, " N"],
    level: Level,
) -> tuple[Bool[Array, " N"], Float[Array, ""], Float[Array, ""]]:
    """The agent at its new `position`: which objects are there next, the reward, the probability that this is the end.

    `respawn`: the draw of each object, which counts where it is absent.
    """
    collected = present & (cells == position)
    used = jnp.arange(cells.shape[-1]) < level.num_objects
    reward = jnp.sum(jnp.where(collected, of_slots(level.reward, level), 0))
    p_end = jnp.sum(jnp.where(collected, of_slots(level.p_terminate, level), 0))
    return (present | respawn) & ~collected & used, reward, p_end


def state_index(position: Integer[Array, ""], present: Integer[Array, ""], level: Level) -> Integer[Array, ""]:
    """The number of a state of a level whose objects stay: position + P * present."""
    return position + level.walls.shape[-1] ** 2 * present


# ---- exact values


def action_values(
    values: Float[Array, "masks P"], level: Level, discount: float | Float[Array, ""] = 1.0
) -> Float[Array, "5 masks P"]:
    """Expected return of each action in each state (objects present, position), if the states after it are worth this.

    Objects come back independently of each other, so the expectation over them is one pass over `values` an object.
    """
    slots, size = level.object_cells.shape[-1], level.walls.shape[-1]
    number = jnp.arange(size * size)
    at = number == level.object_cells[:, None]  # (N, P); rules of slots not in use are 0
    p_respawn, reward, p_end = (of_slots(x, level) for x in (level.p_respawn, level.reward, level.p_terminate))
    used = jnp.arange(slots) < level.num_objects
    masks = jnp.arange(2**slots)[:, None]  # (masks, 1)

    after = values
    gain = ends = jnp.zeros_like(values)
    for i in range(slots):
        # Bit i of the mask as an axis of its own.
        absent, present = jnp.moveaxis(after.reshape(2 ** (slots - 1 - i), 2, 2**i, -1), 1, 0)
        went = jnp.where(at[i] & used[i], absent, present)
        after = jnp.stack([absent + p_respawn[i] * (present - absent), went], 1).reshape(values.shape)
        collected = at[i] & (masks >> i & 1 == 1)
        gain, ends = gain + jnp.where(collected, reward[i], 0), ends + jnp.where(collected, p_end[i], 0)
    arrive = (gain + (1 - ends) * discount * after).reshape(-1, size, size)

    row, column = jnp.mgrid[:size, :size]
    free = ~level.walls & (row < level.grid_size) & (column < level.grid_size)
    results = []
    for shift, axis in ((1, 0), (-1, 0), (1, 1), (-1, 1)):
        to = jnp.roll(arrive, shift, axis + 1)
        border = (row, column)[axis] == (0 if shift == 1 else size - 1)
        results.append(jnp.where(jnp.roll(free, shift, axis) & ~border, to, arrive))
    return jnp.stack([*results, arrive]).reshape(5, *values.shape)


def optimal_values(
    level: Level, steps: Integer[Array, ""] | int, discount: float | Float[Array, ""] = 1.0
) -> Float[Array, "masks P"]:
    """The best expected return in each state (objects present, position) with `steps` steps to go.

    Backward induction. Numbers of walls and of cells outside the grid mean nothing.
    """
    masks, cells = 2 ** level.object_cells.shape[-1], level.walls.shape[-1] ** 2
    values = jnp.zeros((masks, cells), level.reward.dtype)
    return jax.lax.fori_loop(0, steps, lambda _, values: jnp.max(action_values(values, level, discount), 0), values)


def optimal_value(level: Level, discount: float | Float[Array, ""] = 1.0) -> Float[Array, ""]:
    """The expected return of the best policy of an episode, its time limit included, where objects keep their cells."""
    values = optimal_values(level, level.max_steps, discount)
    return values[(1 << level.num_objects) - 1, level.start]


# ---- the task


@dataclasses.dataclass(frozen=True)
class GridWorld(Environment):
    """Static: the sizes that hold the levels, 0 or "" for those of the `family`, whose default level is the default.

    `vectorize(env, n, level_fn=generate)` with `env.distribution` as params plays a new level in each episode.
    """

    id: str = dataclasses.field(default="GridWorld-v0", kw_only=True)
    family: str = "dense"
    max_grid: int = 0
    max_objects: int = 0
    num_types: int = 0
    observation: str = ""

    Params = Level
    hints = Hints(noiseless=True, fenced=False)
    action_names = ("action, 0 up, 1 down, 2 left, 3 right, 4 stay",)
    static_ranges = {"max_grid": (0, 31), "max_objects": (0, 16), "num_types": (0, 100)}

    def __post_init__(self) -> None:
        super().__post_init__()
        distribution(self.family, self.max_grid, self.max_objects, self.num_types)  # its own errors are clear
        family = FAMILIES[self.family]
        for name in ("max_grid", "max_objects", "num_types", "observation"):
            object.__setattr__(self, name, getattr(self, name) or getattr(family, name))
        if self.observation not in OBSERVATIONS:
            raise ValueError(f"{self.id}: observation={self.observation!r}: choose one of {', '.join(OBSERVATIONS)}.")

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.max_grid, self.max_objects, self.num_types

    @property
    def default_params(self) -> Level:
        return grid_world_levels.default_level(self.family, *self.sizes)

    @property
    def distribution(self) -> Distribution:
        """The family's levels, in this environment's sizes: params for `generate`."""
        return distribution(self.family, *self.sizes)

    @property
    def moving(self) -> bool:
        """Whether objects come back on random cells."""
        return self.observation == "maps"

    def generate(self, key: Array, params: Distribution | Level) -> Level:
        """A level of a distribution; of a level as params, of the family's own."""
        return generate(key, params if isinstance(params, Distribution) else self.distribution)

    def mutate(self, key: Array, level: Level) -> Level:
        return mutate(key, level)

    def as_levels(self) -> GridWorld:
        """The task whose params are the level: this one."""
        return self

    @property
    def optimal_value(self) -> Callable[..., Array] | None:
        """`optimal_value` of levels; None where objects change their cells, so that it is not known."""
        return None if self.moving else optimal_value

    def initial(self, key: Array, params: Level) -> State:
        slots = self.max_objects
        present = jnp.arange(slots) < params.num_objects
        cells = jnp.zeros(0, jnp.int32)
        if self.moving:
            nowhere = jnp.full(slots, -1, jnp.int32)
            bits = jax.random.bits(key, (slots,), jnp.uint32)
            cells = distinct(bits, free_cells(params.start, nowhere, params))
            present, cells = present & (cells < self.max_grid**2), jnp.where(cells < self.max_grid**2, cells, 0)
        return State(jnp.int32(0), jnp.asarray(params.start, jnp.int32), packed(present), cells)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Level) -> Transition:
        slots = self.max_objects
        bits = jax.random.bits(key, (slots + 1 + slots * self.moving,), jnp.uint32)
        u = unit(bits[: slots + 1], params.reward)
        position = move(state.position, action, params)
        before = bits_of(state.present, slots)
        respawn = u[:slots] < of_slots(params.p_respawn, params)
        cells = state.cells
        if self.moving:
            appears = respawn & ~before
            new = distinct(bits[slots + 1 :], free_cells(position, cells, params))
            respawn = respawn & (new < self.max_grid**2)
            cells_next = jnp.where(appears & respawn, new, cells)
        else:
            cells_next, cells = cells, params.object_cells
        present, reward, p_end = collect(position, before, cells, respawn, params)
        state = state.replace(position=position, present=packed(present), cells=cells_next)
        return Transition(state, reward, u[slots] < p_end, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Level) -> Array:
        cells, slots = self.max_grid**2, self.max_objects
        dtype = params.reward.dtype
        if not self.moving:
            index = state_index(state.position, state.present, params)
            if self.observation == "index":
                return index
            seen = (jnp.arange(cells * 2**slots) == index).astype(dtype)
        else:
            number = jnp.arange(cells)
            here = bits_of(state.present, slots)[:, None] & (state.cells[:, None] == number)  # (N, P)
            mine = params.object_types == jnp.arange(self.num_types)[:, None]  # (K, N)
            maps = jnp.any(mine[:, :, None] & here, axis=1)
            seen = jnp.concatenate([number == state.position, maps.reshape(-1)]).astype(dtype)
        return jnp.concatenate([seen, (state.time.astype(dtype) * 0.001)[None]])

    def observation_space(self, params: Level) -> Box | Discrete:
        cells = self.max_grid**2
        if self.observation == "index":
            return Discrete(cells * 2**self.max_objects)
        length = cells * (2**self.max_objects if self.observation == "tabular" else 1 + self.num_types) + 1
        return Box(0.0, jnp.maximum(1.0, 0.001 * params.max_steps), (length,))

    def action_space(self, params: Level) -> Discrete:
        return Discrete(5)

    def validate(self, params: Level) -> None:
        shapes = {"walls": self.max_grid, "object_cells": self.max_objects, "reward": self.num_types}
        for name, size in shapes.items():
            if np.shape(getattr(params, name))[-1] != size:
                shape = np.shape(getattr(params, name))
                raise ValueError(f"{self.id}: {name} {shape} does not have this environment's size {size}.")
        validate(params)

    def render(self, state: State, params: Level) -> np.ndarray:
        """Objects are discs, green if they pay and red if they cost, labelled with their type; absent ones are rings.

        The dot in one is how likely collecting it ends the episode.
        """
        size, walls = int(params.grid_size), np.asarray(params.walls)
        cells = np.asarray(state.cells if self.moving else params.object_cells)
        canvas = Canvas(400, 400, span=size + 0.4, center=((size - 1) / 2, -(size - 1) / 2), background=GREY)
        for row, column in np.ndindex(size, size):
            colour = INK if walls[row, column] else PALE
            canvas.rectangle((column - 0.48, -row - 0.48), (column + 0.48, -row + 0.48), colour)
        for i in range(int(params.num_objects)):
            kind = int(params.object_types[i])
            at = (float(cells[i] % self.max_grid), -float(cells[i] // self.max_grid))
            colour = GREEN if float(params.reward[kind]) > 0 else RED
            if int(state.present) >> i & 1:
                canvas.circle(at, 0.36, colour)
                canvas.circle(at, 0.3 * float(params.p_terminate[kind]) ** 0.5, INK)
                canvas.text((at[0] - 0.1, at[1]), str(kind), WHITE, size=max(9, 130 // size))
            elif not self.moving:
                canvas.circle(at, 0.36, colour, outline=0.05)
        row, column = divmod(int(state.position), self.max_grid)
        points = [(column - 0.26, -row - 0.26), (column + 0.26, -row - 0.26), (float(column), -row + 0.3)]
        canvas.polygon(points, BLUE)
        canvas.line([*points, points[0]], 0.05, ORANGE)
        return canvas.image()


def packed(present: Bool[Array, " N"]) -> Integer[Array, ""]:
    """The objects that are there, as bits."""
    return jnp.sum(jnp.where(present, 1 << jnp.arange(present.shape[-1]), 0), dtype=jnp.int32)
