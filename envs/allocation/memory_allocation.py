"""MemoryAllocation-v0: give each buffer of a program its place in a memory that is only so large.

The problems are those of Moffitt (2023), "MiniMalloc: a lightweight memory allocator for hardware-accelerated machine
learning", ASPLOS. Buffer i takes `size[i]` of memory from time `lower[i]` until before `upper[i]`, and buffers that are
there at the same time must not overlap. Wang et al. (2023), "Optimizing memory mapping using deep reinforcement
learning", arXiv:2305.07440, made a game of such problems in which a buffer may also stay in a slower memory; here, as
in MiniMalloc, all must fit.

An action is the next buffer. It is put on top of those that are there already while it is,

    offset[i] = max(offset[j] + size[j] for placed j with lower[j] < upper[i] and lower[i] < upper[j]),  or 0.

Nothing is lost by this rule: push all buffers of a solution down as far as they go, and take them in the order of
their offsets; each then lies on one that came before. Offsets only grow, so when some buffer has no room left above
those that it would lie on, no order mends it, and the episode ends.

| observation | range | |
|---|---|---|
| `buffers` (n, 5) | 0 to 1 | lower and upper, shares of all time; size and offset, shares of the memory; is it placed |
| `action_mask` (n,) | 0, 1 | the buffers that are not placed |

The offset of a buffer that is not placed is the one that it would have now. Reward: the buffer's share of all buffers'
size times duration, so that a return of 1 is a solution. Terminates with all buffers placed, or one that cannot be any
more; a buffer that is placed already ends the episode without reward.

`problem` is one of MiniMalloc's eleven, A to K, of 154 to 454 buffers in a memory of 1,048,576, each with a solution.
Without it an episode draws its own (`params.fresh`): all of time and memory, cut into `num_buffers` rectangles, so that
there is a solution, in a memory that is `params.slack` larger. A level is the params with a problem: `generate`,
`mutate` (one buffer is smaller), `optimal_value`. Results: docs/envs/allocation.md.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Key

from jaxrl.canvas import BLUE, GREEN, INK, PALE, WHITE, Canvas
from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree, strongly_typed
from jaxrl.spaces import Box, Dict, Discrete

LENGTH = 1024
"""Of time and memory of the problems that are drawn."""

CAPACITY = 1_048_576
"""Of MiniMalloc's problems."""


@pytree
class Params:
    lower: jax.Array  # (n,) int32, first time
    upper: jax.Array  # (n,) int32, the time after the last
    size: jax.Array  # (n,) int32
    capacity: jax.Array  # int32
    fresh: jax.Array = True  # each episode draws its own problem
    slack: jax.Array = 0.05  # of what is drawn: memory beyond what is needed, as a share
    max_steps: jax.Array = NO_LIMIT


@pytree
class State:
    time: jax.Array  # steps since reset
    lower: jax.Array  # (n,) int32
    upper: jax.Array  # (n,) int32
    size: jax.Array  # (n,) int32
    capacity: jax.Array  # int32
    offset: jax.Array  # (n,) int32, of those that are placed; of the others that they would have now
    placed: jax.Array  # (n,) bool


@functools.cache
def problems() -> dict[str, np.ndarray]:
    """MiniMalloc's eleven problems (Apache-2.0, commit 9f5cf81): rows of lower, upper, size."""
    with np.load(Path(__file__).with_name("minimalloc.npz")) as arrays:
        return dict(arrays)


def overlaps(lower: Integer[Array, " n"], upper: Integer[Array, " n"], i: Integer[Array, ""]) -> Bool[Array, " n"]:
    """The buffers that are there at some time at which buffer i is, itself included."""
    return (lower < upper[i]) & (lower[i] < upper)


def feasible(state: State) -> Bool[Array, ""]:
    """Whether each buffer that is not placed yet has room above what it would lie on."""
    return jnp.all(state.placed | (state.offset + state.size <= state.capacity))


def solves(
    lower: Integer[Array, " n"],
    upper: Integer[Array, " n"],
    size: Integer[Array, " n"],
    offset: Integer[Array, " n"],
    capacity: Integer[Array, ""] | int,
) -> Bool[Array, ""]:
    """Whether offsets are a solution: within the memory, and no two buffers at the same time and place."""
    both = (lower[:, None] < upper) & (lower < upper[:, None])
    both &= (offset[:, None] < offset + size) & (offset < (offset + size)[:, None])
    inside = (offset >= 0) & (offset + size <= capacity)
    return jnp.all(inside) & ~jnp.any(both & ~jnp.eye(len(size), dtype=bool))


def pieces(key: Key[Array, ""], num_buffers: int) -> Integer[Array, "n 4"]:
    """First time, offset, duration and size of buffers that fill a memory of LENGTH over a time of LENGTH.

    The rectangle of all time and memory is cut in two, in a random direction between a quarter and three quarters, and
    again one of the rectangles that there are, drawn by its area.
    """

    def step(boxes, inputs):
        key, count = inputs
        which_key, axis_key, place_key = jax.random.split(key, 3)
        lengths = boxes[:, 2:]
        area = jnp.prod(lengths.astype(float), 1)
        can = (jnp.arange(num_buffers) < count) & (lengths.max(1) > 1)
        i = jax.random.categorical(which_key, jnp.where(can, jnp.log(jnp.maximum(area, 1)), -jnp.inf))
        other = lengths[i] > 1  # a side of one cannot be cut
        axis = jnp.where(other.all(), jax.random.randint(axis_key, (), 0, 2), jnp.argmax(other))
        length = lengths[i, axis]
        share = jax.random.uniform(place_key, minval=0.25, maxval=0.75)
        first = jnp.clip(jnp.round(share * length).astype(jnp.int32), 1, length - 1)
        new = boxes[i].at[axis].add(first).at[axis + 2].set(length - first)
        return boxes.at[i, axis + 2].set(first).at[count].set(new), None

    cut_key, order_key = jax.random.split(key)
    whole = jnp.zeros((num_buffers, 4), jnp.int32).at[0].set(jnp.array([0, 0, LENGTH, LENGTH], jnp.int32))
    inputs = jax.random.split(cut_key, num_buffers)[1:], jnp.arange(1, num_buffers)
    return jax.random.permutation(order_key, jax.lax.scan(step, whole, inputs)[0])


def draw(key: Key[Array, ""], num_buffers: int) -> tuple[Integer[Array, " n"], ...]:
    """`(lower, upper, size)` of a problem that has a solution in a memory of LENGTH."""
    lower, _, duration, size = pieces(key, num_buffers).T
    return lower, lower + duration, size


def largest_first(obs: dict[str, Array]) -> Integer[Array, ""]:
    """The largest of the buffers that are not placed."""
    return jnp.argmax(jnp.where(obs["action_mask"], obs["buffers"][:, 2], -1)).astype(jnp.int32)


def lowest_first(obs: dict[str, Array]) -> Integer[Array, ""]:
    """The buffer that would lie lowest now, of several the largest: it leaves the fewest holes."""
    _, _, size, offset, _ = obs["buffers"].T
    offset = jnp.where(obs["action_mask"], offset, jnp.inf)
    return jnp.argmax(jnp.where(offset == jnp.min(offset), size, -1)).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class MemoryAllocation(Environment):
    num_buffers: int = 24  # of the problems that are drawn
    problem: str = ""  # a letter from A to K: one of MiniMalloc's
    id: str = dataclasses.field(default="MemoryAllocation-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"num_buffers": (1, 1000)}

    def __post_init__(self) -> None:
        if self.problem not in ("", *problems()):
            raise ValueError(f"{self.id}: problem={self.problem!r}; there are {', '.join(problems())}, or none.")
        if self.problem:
            object.__setattr__(self, "num_buffers", len(problems()[self.problem]))
        super().__post_init__()

    @property
    def default_params(self) -> Params:
        if self.problem:
            lower, upper, size = jnp.asarray(problems()[self.problem]).T
            return strongly_typed(Params(lower, upper, size, jnp.int32(CAPACITY), fresh=jnp.bool_(False)))
        lower, upper, size = draw(jax.random.key(0), self.num_buffers)
        return strongly_typed(Params(lower, upper, size, jnp.int32(LENGTH)))

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """A problem with a solution, which every episode plays."""
        lower, upper, size = draw(key, self.num_buffers)
        capacity = self._drawn_capacity(params)
        return params.replace(lower=lower, upper=upper, size=size, capacity=capacity, fresh=jnp.bool_(False))

    def mutate(self, key: Key[Array, ""], params: Params) -> Params:
        """One buffer is smaller, by up to half."""
        which_key, share_key = jax.random.split(key)
        which = jnp.arange(self.num_buffers) == jax.random.randint(which_key, (), 0, self.num_buffers)
        smaller = jnp.ceil(params.size * jax.random.uniform(share_key, minval=0.5)).astype(params.size.dtype)
        return params.replace(size=jnp.where(which, smaller, params.size), fresh=jnp.bool_(False))

    def optimal_value(self, params: Params) -> Float[Array, ""]:
        """1: there is a solution, of MiniMalloc's problems and of what `generate` and `mutate` make."""
        return jnp.ones(())

    def _drawn_capacity(self, params: Params) -> Integer[Array, ""]:
        return jnp.ceil(LENGTH * (1 + params.slack)).astype(params.capacity.dtype)

    def initial(self, key: Array, params: Params) -> State:
        drawn = *draw(key, self.num_buffers), self._drawn_capacity(params)
        given = params.lower, params.upper, params.size, params.capacity
        lower, upper, size, capacity = (jnp.where(params.fresh, x, y) for x, y in zip(drawn, given, strict=True))
        none = jnp.zeros(self.num_buffers, jnp.int32)
        return State(jnp.int32(0), lower, upper, size, capacity, none, none.astype(bool))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        action = action.astype(jnp.int32)  # a wide index, whatever kind of integer it came as
        s, new = state, ~state.placed[action]
        top = s.offset[action] + s.size[action]
        above = overlaps(s.lower, s.upper, action) & ~s.placed & (jnp.arange(self.num_buffers) != action)
        after = s.replace(
            offset=jnp.where(new & above, jnp.maximum(s.offset, top), s.offset),
            placed=s.placed.at[action].set(True),
        )
        area = s.size.astype(float) * (s.upper - s.lower)
        reward = jnp.where(new, area[action] / jnp.sum(area), 0)
        return Transition(after, reward, ~new | ~feasible(after) | after.placed.all(), jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> dict[str, Array]:
        s = state
        times, sizes = (
            jnp.stack([s.lower, s.upper], 1) / jnp.max(s.upper),
            jnp.stack([s.size, s.offset], 1) / s.capacity,
        )
        rows = jnp.concatenate([times, sizes, s.placed[:, None]], 1).astype(jnp.float32)
        return {"buffers": jnp.clip(rows, 0, 1), "action_mask": ~s.placed}

    def observation_space(self, params: Params) -> Dict:
        n = self.num_buffers
        return Dict({"buffers": Box(0, 1, (n, 5)), "action_mask": Box(0, 1, (n,), jnp.bool_)})

    def action_space(self, params: Params) -> Discrete:
        return Discrete(self.num_buffers)

    def validate(self, params: Params) -> None:
        n, lower, upper = self.num_buffers, np.asarray(params.lower), np.asarray(params.upper)
        size, capacity = np.asarray(params.size), np.asarray(params.capacity)
        for name, x in (("lower", lower), ("upper", upper), ("size", size)):
            if x.shape[-1:] != (n,):
                raise ValueError(f"{self.id}: {name} has shape {x.shape}; it must be ({n},).")
        if np.any(lower < 0) or np.any(lower >= upper):
            raise ValueError(f"{self.id}: lower must be from 0 to below upper: a buffer is there at some time.")
        if np.any(size < 1) or np.any(size > capacity[..., None]):
            raise ValueError(f"{self.id}: size must be from 1 to capacity={capacity}: else a buffer cannot be placed.")
        if np.any(capacity > 2**30):
            raise ValueError(f"{self.id}: capacity={capacity} must be at most {2**30}: offsets are kept in 32 bits.")
        slack = np.asarray(params.slack)
        if not np.all((slack >= 0) & (slack <= 1)):
            raise ValueError(f"{self.id}: slack={slack} must be from 0 to 1.")

    def render(self, state: State, params: Params) -> np.ndarray:
        """Time to the right, memory upwards: buffers that are placed, and those that have no room any more."""
        canvas = Canvas(480, 360, 2.4, (1.2, 0.9), WHITE)
        wide, high, left, bottom = 2.28 / float(np.max(state.upper)), 1.5 / float(state.capacity), 0.06, 0.06
        canvas.rectangle((left, bottom), (left + 2.28, bottom + 1.5), PALE)
        lost = ~np.asarray(state.placed) & (np.asarray(state.offset + state.size) > state.capacity)
        for i in np.flatnonzero(np.asarray(state.placed) | lost):
            x = left + wide * float(state.lower[i]), left + wide * float(state.upper[i])
            y = bottom + high * float(state.offset[i]), bottom + high * float(state.offset[i] + state.size[i])
            canvas.rectangle((x[0], y[0]), (x[1], min(y[1], 1.75)), INK)
            edge = min(0.006, (x[1] - x[0]) / 4, (y[1] - y[0]) / 4)
            color = BLUE if lost[i] else GREEN
            canvas.rectangle((x[0] + edge, y[0] + edge), (x[1] - edge, min(y[1], 1.75) - edge), color)
        canvas.caption(f"{int(np.sum(state.placed))} of {self.num_buffers} buffers placed; time to the right")
        return canvas.image()
