"""SpaceInvaders-MinAtar: shoot a block of aliens that comes down and shoots back.

Young and Tian (2019), arXiv:1903.03176; rules of package `minatar` 1.0.15. The cannon fires at most every
`shot_cool_down` steps. The aliens move a cell sideways every min(number of aliens, `enemy_move_interval`) steps, and
down, turning round, where they would leave the screen; every `enemy_shot_interval` steps the lowest alien of the column
nearest to the cannon (of two as near, the left one) fires. Bullets move one cell a step. With the last alien gone a new
wave of 24 appears, whose move interval is one shorter, down to 6.

| observation plane, 10 x 10 boolean | |
|---|---|
| 0 cannon (bottom row), 1 alien, 4 friendly bullet, 5 enemy bullet | where they are |
| 2 alien left, 3 alien right | the aliens again, in the plane of the direction in which they move |

Actions: 0 stay, 1 left, 2 right, 3 fire; without `minimal_actions` 0 stay, 1 left, 3 right, 5 fire, and 2 up, 4 down,
which do nothing. With `sticky_action_prob` the last action is repeated instead. Reward: 1 for an alien shot. Ends: a
bullet or an alien reaches the cannon, or the aliens are to move down from the bottom row.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import NO_LIMIT, Transition, pytree

from .common import FIRE, LEFT, RIGHT, MinAtar, bit, happens, unpack

FEWEST = 6  # steps between moves, below which waves become no faster


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    sticky_action_prob: jax.Array = 0.1
    ramping: jax.Array = True
    shot_cool_down: jax.Array = 5  # steps from one shot of the cannon to the next
    enemy_move_interval: jax.Array = 12  # most steps from one move of the aliens to the next, in the first wave
    enemy_shot_interval: jax.Array = 10  # steps from one shot of the aliens to the next


@pytree
class State:
    time: jax.Array  # steps since reset
    last_action: jax.Array  # among all six
    x: jax.Array  # of the cannon
    aliens: jax.Array  # (10,) bit x of entry y set where one is
    bullets: jax.Array  # (10,) the cannon's
    enemy_bullets: jax.Array  # (10,)
    right: jax.Array  # bool: the aliens move right
    shot_timer: jax.Array
    move_interval: jax.Array
    alien_move_timer: jax.Array
    alien_shot_timer: jax.Array
    ramp_index: jax.Array  # how often the game has become harder


class Draws(NamedTuple):
    """What chance decides in one step."""

    sticky: jax.Array  # bool: the last action is repeated


def draw(key: Array, state: State, params: Params) -> Draws:
    """The random outcomes of one step."""
    return Draws(happens(jax.random.bits(key, (), jnp.uint32), params.sticky_action_prob))


def wave() -> Integer[Array, "10"]:
    """24 aliens, as rows of bits."""
    return jnp.where(jnp.arange(10) < 4, jnp.int32(0b0011111100), 0)


def start(params: Params) -> State:
    """The state in which every episode begins."""
    number = jnp.int32
    return State(
        time=number(0),
        last_action=number(0),
        x=number(5),
        aliens=wave(),
        bullets=jnp.zeros(10, jnp.int32),
        enemy_bullets=jnp.zeros(10, jnp.int32),
        right=jnp.bool_(False),
        shot_timer=number(0),
        move_interval=params.enemy_move_interval,
        alien_move_timer=params.enemy_move_interval,
        alien_shot_timer=params.enemy_shot_interval,
        ramp_index=number(0),
    )


def lowest_of_nearest(aliens: Integer[Array, "10"], x: Integer[Array, ""]) -> Integer[Array, "10"]:
    """The lowest alien of the column nearest to `x`, as rows of bits; of two as near, the left one's."""
    cells = jnp.arange(10, dtype=jnp.int32)
    held = jnp.any((aliens[:, None] >> cells) & 1 == 1, 0)
    distance = jnp.min(jnp.where(held, 2 * jnp.abs(cells - x) + (cells > x), 99))
    column = bit(jnp.where(distance % 2 == 1, x + distance // 2, x - distance // 2))
    lowest = jnp.max(jnp.where(aliens & column != 0, cells, -1))
    return jnp.where(cells == lowest, column, 0)


def dynamics(
    state: State, action: Integer[Array, ""], draws: Draws, params: Params
) -> tuple[State, Float[Array, ""], Bool[Array, ""]]:
    """One step under one of all six actions: `(state, reward, terminated)`, the clock left alone."""
    action = jnp.where(draws.sticky, state.last_action, action)
    fires = (action == FIRE) & (state.shot_timer == 0)
    shot_timer = jnp.where(fires, params.shot_cool_down, state.shot_timer)
    x = jnp.clip(state.x + (action == RIGHT) - (action == LEFT), 0, 9)
    cannon = bit(x)

    # A bullet leaves the bottom row, where it is fired, in the same step.
    bullets = jnp.append(state.bullets[1:], 0) | jnp.where((jnp.arange(10) == 8) & fires, cannon, 0)
    enemy_bullets = jnp.append(0, state.enemy_bullets[:-1])

    aliens = state.aliens
    moves = state.alien_move_timer == 0
    number = jnp.sum(jax.lax.population_count(aliens), dtype=jnp.int32)
    columns = jax.lax.reduce(aliens, jnp.int32(0), jax.lax.bitwise_or, (0,))
    at_edge = jnp.where(state.right, columns >> 9, columns) & 1 == 1
    turns = moves & at_edge
    sideways = jnp.where(state.right, aliens << 1, aliens >> 1)
    moved = jnp.where(at_edge, jnp.roll(aliens, 1), sideways)
    aliens = jnp.where(moves, moved, aliens)
    terminated = (enemy_bullets[9] | state.aliens[9] | aliens[9]) & cannon != 0
    terminated |= turns & (state.aliens[9] != 0)

    shoots = state.alien_shot_timer == 0
    enemy_bullets |= jnp.where(shoots, lowest_of_nearest(aliens, x), 0)

    killed = aliens & bullets
    aliens, bullets = aliens & ~killed, bullets & ~killed
    cleared = jnp.all(aliens == 0)
    harder = cleared & params.ramping & (state.move_interval > FEWEST)

    move_timer = jnp.where(moves, jnp.minimum(number, state.move_interval), state.alien_move_timer)
    shot_interval = jnp.where(shoots, params.enemy_shot_interval, state.alien_shot_timer)
    state = state.replace(
        last_action=action,
        x=x,
        aliens=jnp.where(cleared, wave(), aliens),
        bullets=bullets,
        enemy_bullets=enemy_bullets,
        right=state.right ^ turns,
        shot_timer=shot_timer - (shot_timer > 0),
        move_interval=state.move_interval - harder,
        alien_move_timer=move_timer - 1,
        alien_shot_timer=shot_interval - 1,
        ramp_index=state.ramp_index + harder,
    )
    return state, jnp.sum(jax.lax.population_count(killed)).astype(jnp.result_type(float)), terminated


def observe(state: State) -> Bool[Array, "10 10 6"]:
    """The six planes."""
    cannon = jnp.where(jnp.arange(10) == 9, bit(state.x), 0)
    left, right = jnp.where(state.right, 0, state.aliens), jnp.where(state.right, state.aliens, 0)
    return unpack(jnp.stack([cannon, state.aliens, left, right, state.bullets, state.enemy_bullets], -1))


@dataclasses.dataclass(frozen=True)
class SpaceInvaders(MinAtar):
    id: str = dataclasses.field(default="SpaceInvaders-MinAtar", kw_only=True)
    Params = Params
    minimal = (0, 1, 3, 5)
    channels = {
        "cannon": (86, 180, 233),
        "alien": (213, 62, 79),
        "alien_left": (120, 200, 120),
        "alien_right": (170, 130, 220),
        "friendly_bullet": (250, 250, 250),
        "enemy_bullet": (240, 170, 60),
    }
    hints = MinAtar.hints._replace(reset="dense")  # every episode starts alike

    def initial(self, key: Array, params: Params) -> State:
        return start(params)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        draws = draw(key, state, params)
        state, reward, terminated = dynamics(state, self.full_action(action), draws, params)
        return Transition(state, reward, terminated, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Bool[Array, "10 10 6"]:
        return observe(state)

    def validate(self, params: Params) -> None:
        super().validate(params)
        self.check_positive(params, "shot_cool_down", "enemy_move_interval", "enemy_shot_interval")
