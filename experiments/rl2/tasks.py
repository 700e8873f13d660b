"""The families of tasks of `adapting.py`: what is hidden in each, what could be earned, and how long a policy learns.

A trial is an episode. A task is four trials in which the same thing is hidden. Where the goal pays, it pays
1 - 0.9 t / limit with step t, and ends the trial.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from worlds import Worlds

from jaxrl import Environment, Transition, pytree
from jaxrl.environment import Hints
from jaxrl.envs.bandits.stochastic import BernoulliBandit
from jaxrl.envs.grid.maze import kit
from jaxrl.envs.grid.maze.maze import Maze, Params, generate
from jaxrl.envs.grid.rule_world.rule_world import Level, RuleWorld
from jaxrl.envs.grid.rule_world.rules import BALL, HEX, HOLD, KEY, PYRAMID, SQUARE, STAR, WALL, Ruleset
from jaxrl.envs.tabular.grids.darkroom import Darkroom
from jaxrl.spaces import Box, Dict, Discrete
from jaxrl.wrappers.base import Wrapper

# ---- rooms


@pytree
class RoomParams:
    max_steps: jax.Array = 20
    goal: jax.Array = 0  # int32, cell


@pytree
class RoomState:
    time: jax.Array
    cell: jax.Array  # int32, row * width + column


@dataclasses.dataclass(frozen=True)
class Room(Environment):
    """A room in which nothing is seen but the cell where one is. The goal is one of some cells.

    Actions: up, right, down, left; a wall stops a move. Episodes start in the middle.
    """

    id: str = dataclasses.field(default="Room", kw_only=True)
    height: int = 5
    width: int = 5
    goals: tuple[int, ...] = (0,)
    Params = RoomParams
    hints = Hints(deterministic=True)

    @property
    def start(self) -> int:
        return self.height // 2 * self.width + self.width // 2

    def generate(self, key, params):
        return params.replace(goal=jax.random.choice(key, jnp.asarray(self.goals, jnp.int32)))

    def initial(self, key, params):
        return RoomState(jnp.int32(0), jnp.int32(self.start))

    def transition(self, key, state, action, params):
        row = state.cell // self.width + (action == 2) - (action == 0)
        column = state.cell % self.width + (action == 1) - (action == 3)
        row, column = jnp.clip(row, 0, self.height - 1), jnp.clip(column, 0, self.width - 1)
        cell = (row * self.width + column).astype(jnp.int32)
        found = cell == params.goal
        reward = jnp.where(found, 1 - 0.9 * (state.time + 1) / params.max_steps, 0.0)
        return Transition(state.replace(cell=cell), reward, found, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return state.cell

    def observation_space(self, params):
        return Discrete(self.height * self.width)

    def action_space(self, params):
        return Discrete(4)

    def optimal_value(self, params):
        """What is earned by going straight to the goal."""
        rows = jnp.abs(params.goal // self.width - self.start // self.width)
        columns = jnp.abs(params.goal % self.width - self.start % self.width)
        return 1 - 0.9 * (rows + columns) / params.max_steps


# ---- mazes


@dataclasses.dataclass(frozen=True)
class Mazes(Wrapper):
    """A maze of which one sees the cell where one is, the direction, and what is in the few cells ahead.

    Actions: turn left, turn right, forward.
    """

    def observe(self, key, state, params):
        obs = self.env.observe(key, state, params)
        kinds = obs["image"][..., 0, None] == np.array([1, 2, 8], np.uint8)  # empty, wall, goal
        height, width = self.env.shape
        cell = (state.y * width + state.x == np.arange(height * width)).astype(jnp.uint8)
        return {"seen": jnp.append(kinds.reshape(-1).astype(jnp.uint8), cell), "direction": obs["direction"]}

    def observation_space(self, params):
        cells = self.env.view_size**2 * 3 + self.env.shape[0] * self.env.shape[1]
        return Dict({"seen": Box(0, 1, (cells,), jnp.uint8), "direction": Discrete(4)})

    def action_space(self, params):
        return Discrete(3)


def draw_maze(key, level):
    """A maze with a way, and the time limit of `level`."""
    height, width = level.wall_map.shape
    return generate(key, Params(level.max_steps, jnp.int32(10), jnp.bool_(False)), height, width, solvable=True)


# ---- rule worlds


@dataclasses.dataclass(frozen=True)
class Things(Worlds):
    """Rule worlds in which every thing has a shape of its own: shapes are seen, floor as zeros, and colours are not."""

    def observe(self, key, state, params):
        obs = self.env.observe(key, state, params)
        return {**obs, "image": (obs["image"][..., :1] == np.array(SEEN)).reshape(-1).astype(jnp.uint8)}

    def observation_space(self, params):
        spaces = self.env.observation_space(params).spaces
        return Dict({**spaces, "image": Box(0, 1, (self.env.view_size**2 * len(SEEN),), jnp.uint8)})


SEEN = (WALL, BALL, SQUARE, PYRAMID, HEX, KEY, STAR)
XLAND = {"gamma": 0.99, "gae_lambda": 0.95, "ent_coef": 0.02}  # discounts as xland-minigrid's
THINGS = ((BALL, 1), (SQUARE, 2), (PYRAMID, 3), (HEX, 4))  # shape, colour
WANTED, BETWEEN = (STAR, 5), (KEY, 6)


def one_rule(choices: int) -> Ruleset:
    """The goal is to hold a star. One of the things that lie about turns into one when it is picked up; which is
    hidden."""
    things = THINGS[:choices]
    goal = np.tile(np.array([HOLD, *WANTED, 0, 0], np.uint8), (choices, 1))
    rules = np.array([[[1, *thing, *WANTED, 0, 0]] for thing in things], np.uint8)
    return Ruleset(*map(jnp.asarray, (goal, rules, np.tile(np.array(things, np.uint8), (choices, 1, 1)))))


def two_rules() -> Ruleset:
    """The goal is to hold a star. One of three things turns into a key when it is picked up; the key turns another of
    them into a star when it is laid next to it. Which two is hidden."""
    things = THINGS[:3]
    pairs = [(a, b) for a in things for b in things if a != b]
    goal = np.tile(np.array([HOLD, *WANTED, 0, 0], np.uint8), (len(pairs), 1))
    rules = np.array([[[1, *a, *BETWEEN, 0, 0], [3, *BETWEEN, *b, *WANTED]] for a, b in pairs], np.uint8)
    return Ruleset(*map(jnp.asarray, (goal, rules, np.tile(np.array(things, np.uint8), (len(pairs), 1, 1)))))


# ---- the table


class Task(NamedTuple):
    """`env` and `params` as `wrappers.Trials` takes them, with the function that draws a task."""

    env: Environment
    params: Any
    steps: int  # that a policy learns from
    draw: Callable[[Any, Any], Any] | None = None  # None: env.generate
    best: Callable[[Any], Any] | None = None  # of a task: what a trial is worth to who knows what is hidden
    first: float | None = None  # what the first trial is worth, on average, to the best search
    limit: int = 20  # steps of a trial
    per: float = 1.0  # returns are divided by it
    config: dict[str, Any] = {}  # what differs from SHAPE
    hyper: dict[str, float] = {}  # what differs from HYPER
    begin: Any = None  # the params of the first half of the steps; None: `params`


def room(height: int, width: int, goals: tuple[int, ...], limit: int, visits: Any, steps: int) -> Task:
    """`visits`: with which steps the shortest search enters the goals."""
    env = Room(height, width, goals)
    params = RoomParams(jnp.int32(limit), jnp.int32(goals[0]))
    first = 1 - 0.9 * float(np.mean(visits)) / limit
    return Task(env, params, steps, best=env.optimal_value, first=first, limit=limit)


def rule_world(rulesets: Ruleset, limit: int, steps: int, begin: int = 0) -> Task:
    """`begin`: the steps of a trial in the first half of learning. A rollout has 24 steps whatever the limit is."""
    env = Things(RuleWorld(layout="R1", size=5, view_size=3, meta=False, params_are_level=True))
    params, short = (Level(jnp.int32(n), jnp.int32(n), rulesets) for n in (limit, begin or limit))
    config = {"num_steps": 24}
    return Task(env, params, steps, limit=limit, config=config, hyper=XLAND, begin=short if begin else None)


def tasks() -> dict[str, Task]:
    maze = Maze(height=7, width=7, solvable=True, view_size=3).as_levels()
    dark = Darkroom()
    pulls = BernoulliBandit(arms=5)
    return {
        "corridor, 2 ends": room(1, 5, (0, 4), 20, (2, 6), 300_000),
        "room, 4 corners": room(5, 5, (0, 4, 20, 24), 20, (4, 8, 12, 16), 1_000_000),
        "room, 24 cells": room(5, 5, tuple(i for i in range(25) if i != 12), 32, range(1, 25), 1_500_000),
        "Darkroom-v0": Task(
            dark,
            dark.default_params,
            3_000_000,
            best=dark.optimal_value,
            first=50.5,
            limit=100,
            config={"num_epochs": 4, "shared": False, "num_steps": 50},
            hyper={"gamma": 0.97, "anneal_steps": 3_000_000, "ent_coef": 0.02},
        ),
        "bandits, 5 arms": Task(
            pulls,
            pulls.default_params.replace(max_steps=jnp.int32(25)),
            3_000_000,
            best=lambda params: 25 * params.mean.max(),
            limit=25,
            per=25.0,
            config={"num_epochs": 4, "shared": False},
            hyper={
                "learning_rate": 3e-3,
                "anneal_steps": 3_000_000,
                "gamma": 0.99,
                "gae_lambda": 0.3,
                "ent_coef": 0.003,
            },
        ),
        "mazes": Task(
            Mazes(maze),
            maze.default_params.replace(max_steps=jnp.int32(40)),
            3_000_000,
            draw=draw_maze,
            best=kit.optimal_value,
            limit=40,
            hyper=XLAND,
        ),
        "one rule, 2 things": rule_world(one_rule(2), 6, 1_500_000),
        "one rule, 15 steps": rule_world(one_rule(2), 15, 3_000_000),
        "one rule, 6, then 15": rule_world(one_rule(2), 15, 3_000_000, begin=6),
        "two rules": rule_world(two_rules(), 30, 3_000_000),
    }
