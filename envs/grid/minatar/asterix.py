"""Asterix-MinAtar: gather gold and keep clear of enemies, both of which cross the screen from its sides.

Young and Tian (2019), arXiv:1903.03176; rules of package `minatar` 1.0.15. In each of the rows 1 .. 8 there is at most
one enemy or piece of gold; a new one, gold with probability 1/3, appears in a free row every `spawn_speed` steps. All
move one cell every `move_speed` steps. Every `ramp_interval` + 2 steps `spawn_speed` falls by one, and `move_speed`
every second time, both down to 1.

| observation plane, 10 x 10 boolean | |
|---|---|
| 0 player, 1 enemy, 3 gold | where they are |
| 2 trail | the cell behind each enemy and piece of gold |

Actions: 0 stay, 1 left, 2 up, 3 right, 4 down (and 5 fire, which does nothing, without `minimal_actions`). With
`sticky_action_prob` the last action is repeated instead. Reward: 1 for gold. Ends: where an enemy meets the player.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import NO_LIMIT, Transition, pytree
from jaxrl.math import choose

from .common import DOWN, EMPTY, LEFT, RIGHT, UP, MinAtar, bit, happens, unpack


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    sticky_action_prob: jax.Array = 0.1
    ramping: jax.Array = True
    ramp_interval: jax.Array = 100  # steps
    init_spawn_speed: jax.Array = 10  # steps from one entity to the next
    init_move_interval: jax.Array = 5  # steps from one move of the entities to the next


@pytree
class State:
    time: jax.Array  # steps since reset
    last_action: jax.Array  # among all six
    player_x: jax.Array
    player_y: jax.Array  # 1 .. 8
    x: jax.Array  # (8,) of the entity in row i + 1; EMPTY where there is none
    right: jax.Array  # (8,) bool: it moves right
    gold: jax.Array  # (8,) bool: it is gold, not an enemy
    spawn_speed: jax.Array
    spawn_timer: jax.Array
    move_speed: jax.Array
    move_timer: jax.Array
    ramp_timer: jax.Array
    ramp_index: jax.Array  # how often the game has become harder


class Draws(NamedTuple):
    """What chance decides in one step."""

    sticky: jax.Array  # bool: the last action is repeated
    right: jax.Array  # bool: a new entity starts on the left and moves right
    gold: jax.Array  # bool: it is gold
    slot: jax.Array  # its row - 1; 8 where all rows are taken


def draw(key: Array, state: State, params: Params) -> Draws:
    """The random outcomes of one step."""
    first, second = jax.random.bits(key, (2,), jnp.uint32)
    slot = choose(second << 16, state.x < 0)
    gold = happens(second >> 16 << 16, 1 / 3)
    return Draws(happens(first, params.sticky_action_prob), (first & 1) == 1, gold, slot)


def start(params: Params) -> State:
    """The state in which every episode begins."""
    number = jnp.int32
    return State(
        time=number(0),
        last_action=number(0),
        player_x=number(5),
        player_y=number(5),
        x=jnp.full(8, EMPTY, jnp.int32),
        right=jnp.zeros(8, bool),
        gold=jnp.zeros(8, bool),
        spawn_speed=params.init_spawn_speed,
        spawn_timer=params.init_spawn_speed,
        move_speed=params.init_move_interval,
        move_timer=params.init_move_interval,
        ramp_timer=params.ramp_interval,
        ramp_index=number(0),
    )


def dynamics(
    state: State, action: Integer[Array, ""], draws: Draws, params: Params
) -> tuple[State, Float[Array, ""], Bool[Array, ""]]:
    """One step under one of all six actions: `(state, reward, terminated)`, the clock left alone."""
    action = jnp.where(draws.sticky, state.last_action, action)
    slots = jnp.arange(8)

    spawns = state.spawn_timer == 0
    new = spawns & (slots == draws.slot)
    x = jnp.where(new, jnp.where(draws.right, 0, 9), state.x)
    right = jnp.where(new, draws.right, state.right)
    gold = jnp.where(new, draws.gold, state.gold)
    spawn_timer = jnp.where(spawns, state.spawn_speed, state.spawn_timer) - 1

    player_x = jnp.clip(state.player_x + (action == RIGHT) - (action == LEFT), 0, 9)
    player_y = jnp.clip(state.player_y + (action == DOWN) - (action == UP), 1, 8)

    # The player may meet an entity where it was, and again where it moves to; gold is gone after the first.
    same_row = slots + 1 == player_y
    met = same_row & (x == player_x)
    x = jnp.where(met & gold, EMPTY, x)
    moves = state.move_timer == 0
    moved = jnp.where(right, x + 1, x - 1)
    moved = jnp.where((moved >= 0) & (moved <= 9), moved, EMPTY)
    x = jnp.where(moves, moved, x)
    met_again = same_row & (x == player_x)
    x = jnp.where(met_again & gold, EMPTY, x)
    met = met | met_again
    move_timer = jnp.where(moves, state.move_speed, state.move_timer) - 1

    ramps = params.ramping & ((state.spawn_speed > 1) | (state.move_speed > 1))
    harder = ramps & (state.ramp_timer < 0)
    state = state.replace(
        last_action=action,
        player_x=player_x,
        player_y=player_y,
        x=x,
        right=right,
        gold=gold,
        spawn_speed=state.spawn_speed - (harder & (state.spawn_speed > 1)),
        spawn_timer=spawn_timer,
        move_speed=state.move_speed - (harder & (state.move_speed > 1) & (state.ramp_index % 2 == 1)),
        move_timer=move_timer,
        ramp_timer=jnp.where(harder, params.ramp_interval, state.ramp_timer - ramps),
        ramp_index=state.ramp_index + harder,
    )
    return state, jnp.any(met & gold).astype(jnp.result_type(float)), jnp.any(met & ~gold)


def observe(state: State) -> Bool[Array, "10 10 4"]:
    """The four planes."""
    player = jnp.where(jnp.arange(10) == state.player_y, bit(state.player_x), 0)
    entity = bit(state.x)
    trail = bit(jnp.where(state.right, state.x - 1, state.x + 1))
    others = jnp.stack([jnp.where(state.gold, 0, entity), trail, jnp.where(state.gold, entity, 0)], -1)
    return unpack(jnp.concatenate([player[:, None], jnp.pad(others, ((1, 1), (0, 0)))], -1))


@dataclasses.dataclass(frozen=True)
class Asterix(MinAtar):
    id: str = dataclasses.field(default="Asterix-MinAtar", kw_only=True)
    Params = Params
    minimal = (0, 1, 2, 3, 4)
    channels = {"player": (86, 180, 233), "enemy": (213, 62, 79), "trail": (84, 88, 110), "gold": (240, 200, 60)}
    hints = MinAtar.hints._replace(reset="dense")  # every episode starts alike

    def initial(self, key: Array, params: Params) -> State:
        return start(params)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        draws = draw(key, state, params)
        state, reward, terminated = dynamics(state, self.full_action(action), draws, params)
        return Transition(state, reward, terminated, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Bool[Array, "10 10 4"]:
        return observe(state)

    def validate(self, params: Params) -> None:
        super().validate(params)
        self.check_positive(params, "init_spawn_speed", "init_move_interval")
