"""Seaquest-MinAtar: a submarine shoots fish and enemy submarines, rescues divers, and must surface for oxygen.

Young and Tian (2019), arXiv:1903.03176; rules of package `minatar` 1.0.15. Enemies and divers cross the rows 1 .. 8
from the sides; a row's enemies all go one way. One in three is a submarine, which shoots. Oxygen falls by one each step
under water. At the surface (row 0) it is filled, at the price of a diver, and the game becomes harder: enemies
appear one step sooner, down to 1, and every second time move one step sooner, down to 2. Six divers are all set ashore
for a reward, the tenths of oxygen left. As in the package, that leaves their number at -1, not 0, with which surfacing
does not end the game; it may fall further.

| observation plane, 10 x 10 boolean | |
|---|---|
| 0 submarine front, 1 submarine back, 2 friendly bullet, 4 enemy bullet, 5 fish, 6 enemy submarine, 9 diver | where |
| 3 trail | the cell behind each fish, enemy submarine and diver |
| 7 oxygen gauge | tenths left, on the bottom row from the left |
| 8 diver gauge | number of divers, on the bottom row leftwards from column 8 |

Actions: 0 stay, 1 left, 2 up, 3 right, 4 down, 5 fire. With `sticky_action_prob` the last action is repeated instead.
Reward: 1 for an enemy shot, and at the surface with six divers. Ends: an enemy or its bullet meets the submarine, no
oxygen is left, or it surfaces with no diver.

The package's lists are rings here, in which the newest entity takes the place of the one `max_*` before it. They hold
all that can be at the default timings (30 enemies, 2 divers, 2 bullets); `validate` refuses timings that need more.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import NO_LIMIT, Transition, pytree

from .common import DOWN, EMPTY, FIRE, FULL, LEFT, RIGHT, SIZE, UP, MinAtar, bit, happens, unpack

MOST_DIVERS = 6  # on board
SLOWEST = 2  # move interval, below which the game moves no faster


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    sticky_action_prob: jax.Array = 0.1
    ramping: jax.Array = True
    max_oxygen: jax.Array = 200  # steps under water
    init_spawn_speed: jax.Array = 20  # steps from one enemy to the next
    diver_spawn_speed: jax.Array = 30  # steps from one diver to the next
    init_move_interval: jax.Array = 5  # steps that enemies wait between moves
    diver_move_interval: jax.Array = 5  # steps that divers wait between moves
    shot_cool_down: jax.Array = 5  # steps from one shot of the submarine to the next
    enemy_shot_interval: jax.Array = 10  # steps that enemy submarines wait between shots


@pytree
class Movers:
    """A ring of entities that cross the screen."""

    x: jax.Array  # (n,) column; EMPTY where there is none
    y: jax.Array  # (n,) row
    right: jax.Array  # (n,) bool: it moves right
    timer: jax.Array  # (n,) steps until it moves
    next: jax.Array  # where the next one goes


@pytree
class State:
    time: jax.Array  # steps since reset
    last_action: jax.Array  # among all six
    x: jax.Array  # of the submarine's front
    y: jax.Array
    right: jax.Array  # bool: it faces right
    surfaced: jax.Array  # bool: it was at the surface already
    oxygen: jax.Array  # steps left
    divers_on_board: jax.Array  # -1 and less after a full load
    shot_timer: jax.Array
    bullets: Movers  # the submarine's; their timers stay 0
    enemies: Movers  # fish and submarines
    enemy_is_sub: jax.Array  # (n,) bool
    enemy_shot_timer: jax.Array  # (n,) steps until it shoots
    enemy_bullets: jax.Array  # (10,) bit x of entry y set where one goes left, bit 10 + x where right
    divers: Movers
    spawn_speed: jax.Array  # steps from one enemy to the next
    spawn_timer: jax.Array
    diver_timer: jax.Array  # steps until a diver appears
    move_speed: jax.Array  # steps that enemies wait between moves
    ramp_index: jax.Array  # how often the game has become harder


class Draws(NamedTuple):
    """What chance decides in one step."""

    sticky: jax.Array  # bool: the last action is repeated
    enemy_right: jax.Array  # bool: a new enemy starts on the left and moves right
    enemy_is_sub: jax.Array  # bool
    enemy_y: jax.Array  # 1 .. 8
    diver_right: jax.Array  # bool: a new diver starts on the left and moves right
    diver_y: jax.Array  # 1 .. 8


def draw(key: Array, state: State, params: Params) -> Draws:
    """The random outcomes of one step."""
    first, second = jax.random.bits(key, (2,), jnp.uint32)
    sticky = happens(first, params.sticky_action_prob)  # the 24 high bits
    rows = (first & 7).astype(jnp.int32) + 1, ((first >> 3) & 7).astype(jnp.int32) + 1
    return Draws(sticky, (first & 64) != 0, happens(second, 1 / 3), rows[0], (first & 128) != 0, rows[1])


def nobody(n: int) -> Movers:
    """A ring without entities."""
    return Movers(
        jnp.full(n, EMPTY, jnp.int32),
        jnp.zeros(n, jnp.int32),
        jnp.zeros(n, bool),
        jnp.zeros(n, jnp.int32),
        jnp.int32(0),
    )


def start(params: Params, max_enemies: int = 32, max_divers: int = 2, max_bullets: int = 2) -> State:
    """The state in which every episode begins."""
    number = jnp.int32
    return State(
        time=number(0),
        last_action=number(0),
        x=number(5),
        y=number(0),
        right=jnp.bool_(False),
        surfaced=jnp.bool_(True),
        oxygen=params.max_oxygen,
        divers_on_board=number(0),
        shot_timer=number(0),
        bullets=nobody(max_bullets),
        enemies=nobody(max_enemies),
        enemy_is_sub=jnp.zeros(max_enemies, bool),
        enemy_shot_timer=jnp.zeros(max_enemies, jnp.int32),
        enemy_bullets=jnp.zeros(SIZE, jnp.int32),
        divers=nobody(max_divers),
        spawn_speed=params.init_spawn_speed,
        spawn_timer=params.init_spawn_speed,
        diver_timer=params.diver_spawn_speed,
        move_speed=params.init_move_interval,
        ramp_index=number(0),
    )


# ---- entities


def add(ring: Movers, where: Bool[Array, ""], x: Array, y: Array, right: Array, timer: Array) -> tuple[Movers, Array]:
    """`ring` with one more where `where`, and the mask of its place."""
    n = ring.x.shape[0]
    new = where & (jnp.arange(n) == ring.next)
    return Movers(
        jnp.where(new, x, ring.x),
        jnp.where(new, y, ring.y),
        jnp.where(new, right, ring.right),
        jnp.where(new, timer, ring.timer),
        jnp.where(where, jnp.where(ring.next == n - 1, 0, ring.next + 1), ring.next),
    ), new


def ages(ring: Movers) -> Integer[Array, " n"]:
    """0 the newest, n - 1 the oldest."""
    n = ring.x.shape[0]
    age = ring.next - 1 - jnp.arange(n)
    return jnp.where(age < 0, age + n, age)


def advance(ring: Movers, interval: Array | int) -> Movers:
    """Those that are due go on a cell, or leave; the others wait."""
    due = ring.timer == 0
    x = jnp.where(ring.right, ring.x + 1, ring.x - 1)
    x = jnp.where((x >= 0) & (x <= 9), x, EMPTY)
    return ring.replace(x=jnp.where(due, x, ring.x), timer=jnp.where(due, interval, ring.timer - 1))


def at(ring: Movers, x: Array, y: Array) -> Bool[Array, " n"]:
    """Which of them are in the cell."""
    return (ring.x == x) & (ring.y == y)


def shoot(
    bullets: Movers, enemies: Movers, targets: Bool[Array, " n"], rank: Integer[Array, " n"]
) -> tuple[Movers, Movers, Array]:
    """Each bullet on cells of `targets` takes the one of highest `rank` with it. Also returned: the number shot."""
    same = (bullets.x[:, None] == enemies.x) & (bullets.y[:, None] == enemies.y) & (targets & (enemies.x >= 0))
    ranks = jnp.where(same, rank, -1)
    best = jnp.max(ranks, 1)
    hits = best >= 0
    shot = jnp.any(same & (ranks == best[:, None]), 0)
    bullets = bullets.replace(x=jnp.where(hits, EMPTY, bullets.x))
    return bullets, enemies.replace(x=jnp.where(shot, EMPTY, enemies.x)), jnp.sum(hits, dtype=jnp.int32)


def by_row(y: Integer[Array, " n"], bits: Integer[Array, " n"]) -> Integer[Array, "10"]:
    """The union of `bits` in each row."""
    rows = jnp.where(jnp.arange(SIZE)[:, None] == y, bits, 0)
    return jax.lax.reduce(rows, jnp.int32(0), jax.lax.bitwise_or, (1,))


# ---- the game


def dynamics(
    state: State, action: Integer[Array, ""], draws: Draws, params: Params
) -> tuple[State, Float[Array, ""], Bool[Array, ""]]:
    """One step under one of all six actions: `(state, reward, terminated)`, the clock left alone."""
    action = jnp.where(draws.sticky, state.last_action, action)
    enemies, bullets, divers = state.enemies, state.bullets, state.divers

    # Newcomers. An enemy is not let into a row where one goes the other way.
    spawns = state.spawn_timer == 0
    against = jnp.any((enemies.x >= 0) & (enemies.y == draws.enemy_y) & (enemies.right != draws.enemy_right))
    x = jnp.where(draws.enemy_right, 0, 9)
    enemies, new = add(enemies, spawns & ~against, x, draws.enemy_y, draws.enemy_right, state.move_speed)
    is_sub = jnp.where(new, draws.enemy_is_sub, state.enemy_is_sub)
    enemy_shot_timer = jnp.where(new, params.enemy_shot_interval, state.enemy_shot_timer)
    spawn_timer = jnp.where(spawns, state.spawn_speed, state.spawn_timer)

    diver_spawns = state.diver_timer == 0
    x = jnp.where(draws.diver_right, 0, 9)
    divers, _ = add(divers, diver_spawns, x, draws.diver_y, draws.diver_right, params.diver_move_interval)
    diver_timer = jnp.where(diver_spawns, params.diver_spawn_speed, state.diver_timer)

    # The submarine.
    fires = (action == FIRE) & (state.shot_timer == 0)
    bullets, _ = add(bullets, fires, state.x, state.y, state.right, jnp.int32(0))
    shot_timer = jnp.where(fires, params.shot_cool_down, state.shot_timer)
    x = jnp.clip(state.x + (action == RIGHT) - (action == LEFT), 0, 9)
    y = jnp.clip(state.y + (action == DOWN) - (action == UP), 0, 8)
    right = (action == RIGHT) | (state.right & (action != LEFT))

    # Its bullets move and shoot the oldest fish of their cell, or else the oldest submarine.
    bullets = advance(bullets, 0)
    n = enemies.x.shape[0]
    age = ages(enemies)
    bullets, enemies, shot = shoot(bullets, enemies, enemies.x >= 0, jnp.where(is_sub, age, age + n))

    # Divers come on board, where they are or where they move to: the newest first, while there is room.
    moved = advance(divers, params.diver_move_interval)
    boards = at(divers, x, y) | at(moved, x, y)
    diver_age = ages(divers)
    newer = jnp.sum(boards & (diver_age < diver_age[:, None]), 1)
    boards &= newer < MOST_DIVERS - state.divers_on_board
    divers = moved.replace(x=jnp.where(boards, EMPTY, moved.x))
    on_board = state.divers_on_board + jnp.sum(boards, dtype=jnp.int32)

    # Enemies move, and may meet the submarine before or after, or a bullet: then submarines go first, the newest first.
    met = jnp.any(at(enemies, x, y))
    moves = (enemies.x >= 0) & (enemies.timer == 0)
    shooters = is_sub & (enemies.x >= 0) & (enemy_shot_timer == 0)
    enemy_shot_timer = jnp.where(enemy_shot_timer == 0, params.enemy_shot_interval, enemy_shot_timer - 1)
    enemies = advance(enemies, state.move_speed)
    meet = at(enemies, x, y)
    met |= jnp.any(meet)
    muzzle = jnp.where(shooters, bit(enemies.x), 0)  # also of one that is shot now
    rank = n - 1 - age
    bullets, enemies, shot_moving = shoot(bullets, enemies, moves & ~meet, jnp.where(is_sub, n + rank, rank))

    # Their bullets. Two in one cell are as one.
    flying = state.enemy_bullets | by_row(enemies.y, muzzle << jnp.where(enemies.right, SIZE, 0))
    submarine = jnp.where(jnp.arange(SIZE) == y, bit(x), 0)
    met |= jnp.any((flying | flying >> SIZE) & submarine != 0)
    flying = (flying & FULL) >> 1 | ((flying >> SIZE) << 1 & FULL) << SIZE
    met |= jnp.any((flying | flying >> SIZE) & submarine != 0)

    # Oxygen and surface.
    met |= state.oxygen <= 0
    under_water = y > 0
    arrives = ~under_water & ~state.surfaced
    lost = met | (arrives & (on_board == 0))
    refills = arrives & (on_board != 0)
    ashore = refills & (on_board == MOST_DIVERS)
    prize = jnp.where(ashore, state.oxygen * 10 // params.max_oxygen, 0)
    on_board = jnp.where(ashore, 0, on_board) - refills
    harder = refills & params.ramping & ((state.spawn_speed > 1) | (state.move_speed > SLOWEST))

    state = state.replace(
        last_action=action,
        x=x,
        y=y,
        right=right,
        surfaced=~under_water & (state.surfaced | refills),
        oxygen=jnp.where(refills, params.max_oxygen, state.oxygen - under_water),
        divers_on_board=on_board,
        shot_timer=shot_timer - (shot_timer > 0),
        bullets=bullets,
        enemies=enemies,
        enemy_is_sub=is_sub,
        enemy_shot_timer=enemy_shot_timer,
        enemy_bullets=flying,
        divers=divers,
        spawn_speed=state.spawn_speed - (harder & (state.spawn_speed > 1)),
        spawn_timer=spawn_timer - (spawn_timer > 0),
        diver_timer=diver_timer - (diver_timer > 0),
        move_speed=state.move_speed - (harder & (state.move_speed > SLOWEST) & (state.ramp_index % 2 == 1)),
        ramp_index=state.ramp_index + harder,
    )
    return state, (shot + shot_moving + prize).astype(jnp.result_type(float)), lost


def observe(state: State, params: Params) -> Bool[Array, "10 10 10"]:
    """The ten planes."""
    row = jnp.arange(SIZE)
    submarine = jnp.where(row == state.y, 1, 0)
    back = jnp.where(state.right, state.x - 1, state.x + 1)
    # Two or three planes in one word of thirds, so that entities are gathered by row only once.
    enemies, divers = state.enemies, state.divers
    entity = bit(enemies.x) << jnp.where(state.enemy_is_sub, SIZE, 0) | bit(behind(enemies)) << 2 * SIZE
    enemy_rows = by_row(enemies.y, entity)
    diver_rows = by_row(divers.y, bit(divers.x) | bit(behind(divers)) << 2 * SIZE)
    tenths = jnp.maximum(state.oxygen, 0) * 10 // params.max_oxygen
    saved = jnp.clip(state.divers_on_board, 0, MOST_DIVERS)
    planes = [
        submarine * bit(state.x),
        submarine * bit(back),
        by_row(state.bullets.y, bit(state.bullets.x)),
        (enemy_rows | diver_rows) >> 2 * SIZE,
        state.enemy_bullets | state.enemy_bullets >> SIZE,
        enemy_rows,
        enemy_rows >> SIZE,
        jnp.where(row == 9, (1 << tenths) - 1, 0),
        jnp.where(row == 9, (1 << 9) - (1 << 9 - saved), 0),
        diver_rows,
    ]
    return unpack(jnp.stack(planes, -1))


def behind(ring: Movers) -> Integer[Array, " n"]:
    """The columns of their trails."""
    return jnp.where(ring.right, ring.x - 1, ring.x + 1)


def crowd(params: Params) -> dict[str, int]:
    """The most enemies, divers and bullets that can be on the screen at once. Host only; leaves may be batched."""
    values = {f.name: np.asarray(getattr(params, f.name), np.int64) for f in dataclasses.fields(params)[2:]}
    ramping, move, spawn = values["ramping"], values["init_move_interval"], values["init_spawn_speed"]

    def alive(interval, every):  # crossing takes ten moves, each after `interval` steps of waiting and one of moving
        return int(np.max(-(-10 * (interval + 1) // every)))

    enemies = alive(move, spawn)
    fastest = np.where(ramping, np.minimum(move, SLOWEST), move)
    for ramp in range(1, 2 * int(np.max(move))):
        slower = np.maximum(np.where(ramping, move - (ramp - 1) // 2, move), fastest)  # of the ramp before
        enemies = max(enemies, alive(slower, np.where(ramping, np.maximum(spawn - ramp, 1), spawn)))
    return {
        "max_enemies": max(enemies, alive(fastest, np.where(ramping, 1, spawn))),
        "max_divers": alive(values["diver_move_interval"], values["diver_spawn_speed"]),
        # A bullet starts beside the submarine and is gone within nine steps.
        "max_bullets": int(np.max(8 // values["shot_cool_down"])) + 1,
    }


@dataclasses.dataclass(frozen=True)
class Seaquest(MinAtar):
    max_enemies: int = 32
    max_divers: int = 2
    max_bullets: int = 2
    id: str = dataclasses.field(default="Seaquest-MinAtar", kw_only=True)
    Params = Params
    minimal = (0, 1, 2, 3, 4, 5)
    channels = {
        "sub_front": (86, 180, 233),
        "sub_back": (52, 116, 160),
        "friendly_bullet": (250, 250, 250),
        "trail": (70, 76, 104),
        "enemy_bullet": (240, 170, 60),
        "enemy_fish": (120, 200, 120),
        "enemy_sub": (213, 62, 79),
        "oxygen_gauge": (150, 215, 225),
        "diver_gauge": (250, 220, 90),
        "diver": (250, 220, 90),
    }
    # `unpack` fences what the observation is made of: once is enough here.
    hints = MinAtar.hints._replace(reset="dense", fenced=False)
    static_ranges = {"max_enemies": (1, 1000), "max_divers": (1, 1000), "max_bullets": (1, 1000)}

    def initial(self, key: Array, params: Params) -> State:
        return start(params, self.max_enemies, self.max_divers, self.max_bullets)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        draws = draw(key, state, params)
        state, reward, terminated = dynamics(state, self.full_action(action), draws, params)
        return Transition(state, reward, terminated, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Bool[Array, "10 10 10"]:
        return observe(state, params)

    def validate(self, params: Params) -> None:
        super().validate(params)
        names = [f.name for f in dataclasses.fields(params) if f.name.startswith(("max_ox", "init", "diver", "shot"))]
        self.check_positive(params, *names)
        for name, needed in crowd(params).items():
            if getattr(self, name) < needed:
                raise ValueError(
                    f"{self.id}: these params can bring {needed} at once where there is room for "
                    f"{name}={getattr(self, name)}: make the environment with {name}={needed}."
                )
