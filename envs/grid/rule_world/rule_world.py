"""XLand-MiniGrid: worlds whose rules have to be found out, in rooms that are new in each trial.

Nikulin et al. (2024), "XLand-MiniGrid: Scalable Meta-Reinforcement Learning Environments in JAX", NeurIPS,
arXiv:2312.12044; mechanics of `xminigrid` 0.9.1. What is to be done and which tiles turn into which others is data, a
`Ruleset` (see `rules`), drawn anew for each episode. It cannot be seen, it shows in what happens; so an episode is a
series of trials: whenever the goal is reached, doors, objects and agent are put to new places, and the ruleset stays.
`as_levels()` is the task whose params hold the ruleset.

| action | | effect |
|---|---|---|
| 0 | forward | onto floor, a goal tile, an open door |
| 1, 2 | turn right, left | |
| 3 | pick up | a ball, square, pyramid, key, hex or star ahead, if nothing is carried; black floor is left |
| 4 | put down | what is carried, onto floor ahead |
| 5 | toggle | opens and closes a door ahead; a locked one opens with its key in hand |

Then the rules act, in their order, each on what those before it have left: those of a tile in hand after action 3,
those of a tile next to the agent after 0 (with a direction: also after 4), those of two tiles after 4, where one of
them is ahead. Then the goal is looked at, after the same actions; those of places after all.

| observation | | |
|---|---|---|
| `image` | (n, n, 2) uint8 | shape and colour of the cells before the agent, who is in the middle of the last row; |
| | | it sees through walls, but not what it carries; (0, 0) is outside of the grid |
| `direction` | int32 | 0 up, 1 right, 2 down, 3 left |
| `mission` | (5,) or (5 + 7 R,) int32 | with `mission="goal"`: the goal; with `"rules"`: also the rules |
| `trial_start` | int32 | with `show_trials`: 1 in the first state of a trial |

Reward: 1 - 0.9 t / trial_steps for the goal at step t of the trial, else 0. A trial ends without reward after
`trial_steps`, 3 size^2 by default, as an episode does. `info`: `trial_ended`, and `success` where by the goal.
With `meta=False` an episode is one trial: the goal terminates it, `trial_steps` truncates.
Layouts: 1, 2, 4, 6 or 9 rooms, closed doors of random colours between them, at random places but in R6.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer, PyTree, UInt32

from jaxrl.environment import Environment, Hints, Transition, pytree, strongly_typed
from jaxrl.math import fast_key, random_words
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete

from ..engine import success_reward
from ..views import view_table
from .rooms import LAYOUTS, Grid, Index, num_words, places, rooms
from .rules import (
    AGENT_AT,
    CLOSED,
    COLORS,
    FLOOR,
    GOAL,
    GOALS,
    HOLD,
    KEY,
    LOCKED,
    NEAR,
    NOTHING,
    ON,
    OPEN,
    PICKABLE,
    RULES,
    SHAPES,
    TILE_AT,
    TILES,
    Rule,
    Ruleset,
    of_words,
    packed,
    put_together,
    take_apart,
    unpacked,
    validate,
)
from .rulesets import Config, config_of, generate, mutate

FORWARD, TURN_RIGHT, TURN_LEFT, PICK_UP, PUT_DOWN, TOGGLE = range(6)
_WALKABLE = sum(1 << shape for shape in (FLOOR, GOAL, OPEN))
_PICKABLE = sum(1 << shape for shape in PICKABLE)
_LANES = np.uint32(0x01010101)  # four tiles in a word: up, right, down, left from the low byte on
Lanes = UInt32[Array, ""]
Code = UInt32[Array, ""]  # a packed tile


@pytree
class Params:
    max_steps: jax.Array  # of an episode
    trial_steps: jax.Array  # of a trial


@pytree
class Level:
    """A task as params."""

    max_steps: jax.Array
    trial_steps: jax.Array
    ruleset: Ruleset


@pytree
class State:
    time: jax.Array  # steps since reset
    trial_time: jax.Array  # steps since the trial began
    seed: jax.Array  # (2,) uint32, of the next trial's places
    grid: jax.Array  # (size^2 + 1,) uint8
    position: jax.Array  # int32, row * size + column
    direction: jax.Array  # int32, 0 up, 1 right, 2 down, 3 left
    pocket: jax.Array  # int32, the packed tile that is carried; 0 for nothing
    goal: jax.Array  # (5,) uint8
    rules: jax.Array  # (R,) uint32, see `Rule.words`
    objects: jax.Array  # (K,) uint8, packed: what each trial begins with


# ---- mechanics


def rarely(fn: Callable[[PyTree], PyTree], mask: Bool[Array, ""], operand: PyTree, otherwise: PyTree) -> PyTree:
    """`fn(operand)` where `mask`, else `otherwise`. In a batch, `fn` is computed for few entries at a time until none
    is left, so it costs in proportion to how many there are; nested batches count as one."""

    @jax.custom_batching.custom_vmap
    def one(mask, operand, otherwise):
        return jax.lax.cond(mask, lambda: fn(operand), lambda: otherwise)

    @jax.custom_batching.custom_vmap
    def many(mask, operand, otherwise):
        # One of every 16 neighbours a round, so that no sum over the batch has to find them.
        n, blocks = mask.size, -(-mask.size // 16)
        first = np.arange(blocks) * 16

        def body(carry):
            current, left = carry
            at = jnp.argmax(left, 1)
            rows = jnp.where(jnp.any(left, 1), first + at, n)
            new = jax.vmap(fn)(jax.tree.map(lambda x: x.at[rows].get(mode="clip"), operand))
            current = jax.tree.map(lambda x, y: x.at[rows].set(y, mode="drop"), current, new)
            return current, left & (np.arange(16) != at[:, None])

        left = jnp.pad(mask, (0, blocks * 16 - n)).reshape(blocks, 16)
        return jax.lax.while_loop(lambda carry: carry[1].any(), body, (otherwise, left))[0]

    def batched(function, flatten):
        def rule(n, in_batched, *args):
            def full(x, is_batched):
                x = x if is_batched else jnp.broadcast_to(x, (n, *x.shape))
                return x.reshape(-1, *x.shape[2:]) if flatten else x

            shape = (n, *args[0].shape[in_batched[0] :])
            out = many(*(jax.tree.map(full, x, b) for x, b in zip(args, in_batched, strict=True)))
            out = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), out) if flatten else out
            return out, jax.tree.map(lambda _: True, out)

        function.def_vmap(rule)

    batched(one, False)
    batched(many, True)
    return one(mask, operand, otherwise)


def ahead_of(position: Index, direction: Index, size: int) -> Index:
    """The cell that an agent faces."""
    down = jnp.where(direction == 2, size, 0) - jnp.where(direction == 0, size, 0)
    return position + down + jnp.where(direction == 1, 1, 0) - jnp.where(direction == 3, 1, 0)


def around(cell: Index, size: int) -> Integer[Array, "4"]:
    """The cells above, right of, below and left of one; size^2 beyond the first or last row."""
    cells = cell + np.array([-size, 1, size, -1], np.int32)
    return jnp.where((cells >= 0) & (cells < size * size), cells, size * size)


def _lane(direction: Any) -> Lanes:
    return jnp.uint32(255) << (8 * (direction & 3)).astype(jnp.uint32)


def _equal(lanes: Lanes, code: Code) -> Lanes:
    """255 in every lane that holds `code`, 0 in the others."""
    x = lanes ^ code * _LANES
    low = np.uint32(0x7F7F7F7F)
    zero = ~(((x & low) + low) | x | low)
    return (zero >> 7) * np.uint32(255)


class Near(NamedTuple):
    """All that rules and goals look at: the tiles around the agent and around the cell ahead, and what is carried.

    The cell ahead is a lane of the first word; the agent's own cell is a lane of the second.
    """

    agent: Lanes
    ahead: Lanes
    pocket: Code


def _pair(near: Near, a: Code, b: Code, kind: Code, every: int, first: int, direction: Index) -> Lanes:
    """Lanes around the cell ahead whose tile makes a pair a, b with the one ahead: on any side if the kind is `every`,
    b above a for `first`, and so on."""
    any_side, sided = kind == every, (kind >= first) & (kind < first + 4)
    anywhere = jnp.where(any_side, ~jnp.uint32(0), 0)
    sides = [anywhere | jnp.where(sided, _lane(kind - first + turn), 0) for turn in (0, 2)]
    is_a, is_b = (_equal(near.agent, x) & _lane(direction) != 0 for x in (a, b))
    return jnp.where(is_a, _equal(near.ahead, b) & sides[0], 0) | jnp.where(is_b, _equal(near.ahead, a) & sides[1], 0)


def matches(
    near: Near, rule: Rule, action: Integer[Array, ""], direction: Index
) -> tuple[Bool[Array, ""], Lanes, Lanes]:
    """What a rule takes: `(the tile in hand, lanes around the agent, lanes around the cell ahead)`."""
    kind, a, b, _ = rule
    held = (kind == 1) & (action == PICK_UP) & (near.pocket == a)
    beside = (kind == 2) & (action == FORWARD)
    sided = (kind >= 8) & ((action == FORWARD) | (action == PUT_DOWN))
    lanes = jnp.where(beside, ~jnp.uint32(0), jnp.where(sided, _lane(kind), 0)) & _equal(near.agent, a)
    pair = jnp.where(action == PUT_DOWN, _pair(near, a, b, kind, 3, 4, direction), 0)
    return held, lanes, pair


def apply_rules(near: Near, rules: UInt32[Array, " R"], action: Integer[Array, ""], direction: Index) -> Near:
    """What the rules make of it, one after the other."""

    def step(near: Near, word: Array) -> tuple[Near, None]:
        rule = of_words(word)
        held, lanes, pair = matches(near, rule, action, direction)
        laid = jnp.where(pair != 0, _lane(direction), 0)
        agent = (near.agent & ~lanes) | (lanes & rule.product * _LANES)
        agent = (agent & ~laid) | (laid & np.uint32(NOTHING) * _LANES)
        ahead = (near.ahead & ~pair) | (pair & rule.product * _LANES)
        return Near(agent, ahead, jnp.where(held, rule.product, near.pocket)), None

    return jax.lax.scan(step, near, rules)[0]


def goal_reached(
    goal: Integer[Array, "5"],
    near: Near,
    grid: Grid,
    position: Index,
    action: Integer[Array, ""],
    direction: Index,
    size: int,
) -> Bool[Array, ""]:
    """Whether the goal holds after an action and the rules."""
    goal = goal.astype(jnp.int32)
    kind = goal[0]
    a, b = (packed(goal[i : i + 2]).astype(jnp.uint32) for i in (1, 3))
    stepped, laid = action == FORWARD, action == PUT_DOWN
    seen = _equal(near.agent, a)
    pair = _pair(near, a, b, kind.astype(jnp.uint32), TILES, 7, direction)
    at = grid.at[goal[3] * size + goal[4]].get(mode="clip")
    return (
        ((kind == HOLD) & (action == PICK_UP) & (near.pocket == a))
        | ((kind == ON) & stepped & (_equal(near.ahead, a) & _lane(direction + 2) != 0))
        | ((kind == NEAR) & stepped & (seen != 0))
        | ((kind >= 11) & (stepped | laid) & (seen & _lane(kind - 11) != 0))
        | (laid & (pair != 0))
        | ((kind == TILE_AT) & (at == a))
        | ((kind == AGENT_AT) & (position == goal[1] * size + goal[2]))
    )


def move(
    state: State, action: Integer[Array, ""], size: int
) -> tuple[Grid, Index, Index, Integer[Array, ""], Bool[Array, ""]]:
    """`(grid, position, direction, pocket, goal reached)` after one action and all rules."""
    action = action.astype(jnp.int32)
    front = ahead_of(state.position, state.direction, size)
    cell = state.grid.at[front].get(mode="promise_in_bounds").astype(jnp.int32)
    shape, color, held = cell >> 4, cell & 15, state.pocket

    entered = (action == FORWARD) & (_WALKABLE >> shape & 1 == 1)
    taken = (action == PICK_UP) & (_PICKABLE >> shape & 1 == 1) & (held >> 4 == 0)
    laid = (action == PUT_DOWN) & (shape == FLOOR) & (held >> 4 != 0)
    unlocked = (shape == LOCKED) & (held == (KEY << 4 | color))
    door = jnp.where(unlocked | (shape == CLOSED), OPEN, jnp.where(shape == OPEN, CLOSED, shape))
    new = jnp.where(action == TOGGLE, door << 4 | color, cell)
    new = jnp.where(taken, NOTHING, jnp.where(laid, held, new))
    pocket = jnp.where(taken, cell, jnp.where(laid, 0, held))
    turn = jnp.where(action == TURN_RIGHT, 1, 0) - jnp.where(action == TURN_LEFT, 1, 0)
    position = jnp.where(entered, front, state.position)
    direction = state.direction + turn & 3

    grid = jnp.where(jnp.arange(state.grid.size) == front, new.astype(jnp.uint8), state.grid)
    cells = jnp.concatenate([around(position, size), around(ahead_of(position, direction, size), size)])
    tiles = grid.at[cells].get(mode="promise_in_bounds").astype(jnp.uint32)
    words = tiles << np.tile(np.arange(0, 32, 8, dtype=np.uint32), 2)
    near = Near(jnp.sum(words[:4], dtype=jnp.uint32), jnp.sum(words[4:], dtype=jnp.uint32), pocket.astype(jnp.uint32))

    # Rules act seldom. If none does on what is there now, none does after the others either.
    taken = jax.vmap(matches, (None, 0, None, None))(near, of_words(state.rules), action, direction)
    active = functools.reduce(lambda x, y: x | y, (jnp.any(x != 0) for x in taken))

    def by_rules(now: Any) -> tuple[Near, Grid]:
        near, rules, grid, cells, action, direction = now
        near = apply_rules(near, rules, action, direction)
        tiles = jnp.stack([near.agent, near.ahead])[:, None] >> np.arange(0, 32, 8, dtype=np.uint32) & 255
        return near, grid.at[cells].set(tiles.reshape(-1).astype(jnp.uint8), mode="promise_in_bounds")

    operand = (near, state.rules, grid, cells, action, direction)
    near, grid = rarely(by_rules, active, operand, (near, grid))
    reached = goal_reached(state.goal, near, grid, position, action, direction, size)
    return grid, position, direction, near.pocket.astype(jnp.int32), reached


# ---- the task


@functools.cache
def _sight(size: int, view_size: int) -> Integer[np.ndarray, "states cells"]:
    """`view_table` for our directions and the order of our `image`, row by row."""
    table = view_table(size, size, view_size).reshape(4, size * size, view_size, view_size)
    return table[[3, 0, 1, 2]].swapaxes(-1, -2).reshape(4 * size * size, view_size**2)


@dataclasses.dataclass(frozen=True)
class RuleWorld(Environment):
    """`layout` with `size` x `size` cells; `rulesets` is a name of `rulesets.CONFIGS` or a `Config`."""

    id: str = dataclasses.field(default="XLand-MiniGrid-R4-13x13", kw_only=True)
    layout: str = "R4"
    size: int = 13
    rulesets: str | Config = "trivial"
    meta: bool = dataclasses.field(default=True, kw_only=True)
    mission: str = dataclasses.field(default="hidden", kw_only=True)
    show_trials: bool = dataclasses.field(default=False, kw_only=True)
    view_size: int = dataclasses.field(default=5, kw_only=True)
    params_are_level: bool = dataclasses.field(default=False, kw_only=True)  # params are a Level

    # Deterministic but for the reset: the seed of the next trial is in the state. A v5e's compiler expects 1.4 ms of a
    # step of 4,096 XLand-R1-9x9 with sparse resets, 4 ms with dense ones.
    hints = Hints(deterministic=True, reset="sparse")
    action_names = ("action, 0 forward, 1 turn right, 2 turn left, 3 pick up, 4 put down, 5 toggle",)
    static_ranges = {"size": (5, 100), "view_size": (3, 29)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout not in LAYOUTS:
            raise ValueError(f"{self.id}: layout={self.layout!r}; choose one of {', '.join(LAYOUTS)}.")
        if self.mission not in ("hidden", "goal", "rules"):
            raise ValueError(f"{self.id}: mission={self.mission!r}; it is 'hidden', 'goal' or 'rules'.")
        if self.view_size % 2 == 0:
            raise ValueError(f"{self.id}: view_size={self.view_size} must be odd.")
        self._check_room(config_of(self.rulesets).num_objects)

    def _check_room(self, num_objects: int) -> None:
        floor = len(rooms(self.layout, self.size).floor)
        if num_objects + 1 > floor:
            raise ValueError(f"{self.id}: {num_objects} objects and the agent do not fit on {floor} cells of floor.")

    @property
    def Params(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """`Level` with `levels`, else `Params`."""
        return Level if self.params_are_level else Params

    @property
    def default_params(self) -> Any:
        limit = jnp.int32(3 * self.size**2)
        params = strongly_typed(Params(limit, limit))
        return self.generate(jax.random.key(0), params) if self.params_are_level else params

    def as_levels(self) -> Self:
        """The same task whose params are the `Level`. The default level is one draw of the generator."""
        return dataclasses.replace(self, params_are_level=True)

    # ---- level kit

    def generate(self, key: Array, params: Params | Level) -> Level:
        """Draw a ruleset, with the limits of `params`."""
        return self.level(generate(key, self.rulesets), params)

    def level(self, ruleset: Ruleset, params: Params | Level | None = None) -> Level:
        """The level of a ruleset, with the limits of `params` or the default ones."""
        if params is None:
            limit = jnp.int32(3 * self.size**2)
            return Level(limit, limit, ruleset)
        return Level(params.max_steps, params.trial_steps, ruleset)

    def mutate(self, key: Array, level: Level) -> Level:
        """A neighbour of `level`; see `rulesets.mutate`."""
        return level.replace(ruleset=mutate(key, level.ruleset))

    def validate(self, params: Params | Level) -> None:
        for name in ("max_steps", "trial_steps"):
            if np.any(np.asarray(getattr(params, name)) < 1):
                raise ValueError(f"{self.id}: {name}={getattr(params, name)} must be at least 1.")
        if isinstance(params, Level):
            validate(params.ruleset, self.size)
            self._check_room(np.shape(params.ruleset.objects)[-2])

    # ---- the protocol

    def initial(self, key: Array, params: Params | Level) -> State:
        layout = rooms(self.layout, self.size)
        if isinstance(params, Level):
            ruleset = params.ruleset
        else:
            ruleset_key, key = jax.random.split(key)
            ruleset = generate(ruleset_key, self.rulesets)
        bits = random_words(key, (num_words(layout, ruleset.objects.shape[0]),))
        objects, zero = packed(ruleset.objects).astype(jnp.uint8), jnp.int32(0)
        grid, position, direction, seed = places(bits, objects, layout)
        rules = take_apart(ruleset.rules).words()
        return State(zero, zero, seed, grid, position, direction, zero, ruleset.goal, rules, objects)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params | Level) -> Transition:
        grid, position, direction, pocket, reached = move(state, action, self.size)
        clock = state.trial_time + 1
        late = clock >= params.trial_steps
        reward = jnp.where(reached, success_reward(state.trial_time, params.trial_steps), 0)
        info = {"trial_ended": reached | late, "success": reached}
        if self.meta:
            now = (grid, position, direction, state.seed, pocket, clock)
            new = rarely(self._new_trial, reached | late, (state.seed, state.objects), now)
            grid, position, direction, seed, pocket, clock = new
            state = state.replace(seed=seed)
            reached = late = jnp.bool_(False)
        state = state.replace(grid=grid, position=position, direction=direction, pocket=pocket, trial_time=clock)
        return Transition(state, reward, reached, late, info)

    def _new_trial(self, operand: tuple[Array, Array]) -> tuple[Array, ...]:
        seed, objects = operand
        layout = rooms(self.layout, self.size)
        key = fast_key(jax.random.wrap_key_data(seed, impl="threefry2x32"))
        bits = random_words(key, (num_words(layout, objects.shape[0]),))
        return *places(bits, objects, layout), jnp.int32(0), jnp.int32(0)

    def observe(self, key: Array, state: State, params: Params | Level) -> dict[str, Array]:
        table = jnp.asarray(_sight(self.size, self.view_size))
        rows = table.at[state.direction * self.size**2 + state.position].get(mode="promise_in_bounds")
        image = unpacked(state.grid.at[rows.astype(jnp.int32)].get(mode="promise_in_bounds"))
        obs = {"image": image.reshape(self.view_size, self.view_size, 2), "direction": state.direction}
        if self.mission != "hidden":
            parts = [state.goal, put_together(of_words(state.rules)).reshape(-1)]
            obs["mission"] = jnp.concatenate(parts[: 1 + (self.mission == "rules")]).astype(jnp.int32)
        if self.show_trials:
            obs["trial_start"] = (state.trial_time == 0).astype(jnp.int32)
        return obs

    def observation_space(self, params: Params | Level) -> Dict:
        image = Box(0, max(len(SHAPES), len(COLORS)) - 1, (self.view_size, self.view_size, 2), jnp.uint8)
        spaces: dict[str, Any] = {"image": image, "direction": Discrete(4)}
        if self.mission != "hidden":
            pair = (len(SHAPES), len(COLORS))
            numbers = (len(GOALS), *2 * (max(pair[0], self.size), max(pair[1], self.size)))  # two may be a place
            if self.mission == "rules":
                rules = params.ruleset.rules.shape[-2] if isinstance(params, Level) else self._config.num_rules
                numbers += (len(RULES), *3 * pair) * rules
            spaces["mission"] = MultiDiscrete(numbers)
        if self.show_trials:
            spaces["trial_start"] = Discrete(2)
        return Dict(spaces)

    @property
    def _config(self) -> Config:
        return config_of(self.rulesets)

    def action_space(self, params: Params | Level) -> Discrete:
        return Discrete(6)

    def render(self, state: State, params: Params | Level) -> np.ndarray:
        from .drawing import draw_state

        table = _sight(self.size, self.view_size)
        return draw_state(state, self.size, table[int(state.direction) * self.size**2 + int(state.position)])
