"""Families of levels of which most, drawn at random, are useless, each with what its levels are worth."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.algos import ppo
from jaxrl.algos.curricula import sfl
from jaxrl.environment import Environment, pytree, strongly_typed
from jaxrl.envs.classic import mountain_car
from jaxrl.envs.grid.maze import kit
from jaxrl.envs.grid.rule_world.rulesets import Config
from jaxrl.wrappers.base import Wrapper

HELD_OUT = 1000  # levels on which students are judged, all of them solvable, of rule worlds perhaps not in time


@pytree
class Drawn:
    """What a level function gets: the params of the distribution, and whether it draws solvable levels only."""

    params: Any
    solvable_only: jax.Array


class Family(NamedTuple):
    title: str
    env: Environment  # its params are a level
    draw: Callable[[jax.Array, Any], Any]  # (key, params) -> level
    draw_solvable: Callable[[jax.Array, Any], Any]
    params: Any  # of the distribution
    optimal_value: Callable[[Any], jax.Array] | None  # of a level; 0 where it cannot be solved; None: not known
    mutate: Callable[[jax.Array, Any], Any]  # (key, level) -> level
    level_at: (
        Callable[[Any, jax.Array], Any] | None
    )  # (params, point of the unit box) -> level; None: levels are no box
    config: ppo.Config
    hyper: ppo.Hyper
    steps: int  # of a run, all of them counted
    look: sfl.Config
    editor: Any = None  # an environment in which PAIRED's designer builds levels; its params
    design: Any = None
    success_above: float = 0.0  # an episode succeeds whose return is higher

    def level(self, key: jax.Array, drawn: Drawn) -> Any:
        """The level function of all methods."""
        return jax.lax.cond(drawn.solvable_only, self.draw_solvable, self.draw, key, drawn.params)

    def held_out(self) -> Any:
        """Solvable levels that are the same for all methods and seeds."""
        keys = jax.random.split(jax.random.key(123), HELD_OUT)
        return jax.jit(jax.vmap(self.draw_solvable, (0, None)))(keys, self.params)


# ---- mazes with so many walls that few have a way to the goal


def maze(size: int, walls: int, max_steps: int, steps: int, look: sfl.Config, learning_rate: float = 1e-3) -> Family:
    """Mazes of size x size cells of which `walls` are drawn, with replacement, to be walls."""
    task, params = jaxrl.make("Maze-v0", height=size, width=size)
    solvable = jaxrl.make("Maze-v0", height=size, width=size, solvable=True)[0]
    editor, design = jaxrl.make("MazeEditor-v0", height=size, width=size, num_walls=walls)
    return Family(
        f"mazes, {size} x {size}",
        task.as_levels(),
        task.generate,
        solvable.generate,
        strongly_typed(params.replace(walls=walls, max_steps=max_steps)),
        kit.optimal_value,
        task.mutate,
        None,
        ppo.Config(num_envs=32, num_steps=128, num_epochs=2, num_minibatches=4, hidden=(64, 64)),
        ppo.Hyper(learning_rate=learning_rate, gamma=0.98),
        steps,
        look,
        editor,
        strongly_typed(design.replace(level_max_steps=max_steps)),
    )


# ---- cars of which few have the power to leave their valley in time


@dataclasses.dataclass(frozen=True)
class Flag(Wrapper):
    """MountainCar with the reward of mazes: 1 - 0.9 t / max_steps for arriving with step t, which ends it, else 0."""

    def transition(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Any:
        moved = self.env.transition(key, state, action, params)
        return moved._replace(reward=jnp.where(moved.terminated, kit.success_reward(state.time, params.max_steps), 0.0))


BOX = {"force": (2e-5, 3e-3), "gravity": (5e-4, 2.5e-2)}  # uniform in their logarithms; 0.001 and 0.0025 in Gymnasium
LOW, HIGH = jnp.log(jnp.array(list(BOX.values()))).T
MOST = 200  # steps of an episode


def car_at(params: Any, x: jax.Array) -> Any:
    force, gravity = jnp.exp(LOW + x * (HIGH - LOW))
    return params.replace(force=force, gravity=gravity)


def draw_car(key: jax.Array, params: Any) -> Any:
    return car_at(params, jax.random.uniform(key, (2,)))


def nudged_car(key: jax.Array, level: Any) -> Any:
    """A step of standard deviation 0.1 of the box in both directions."""
    x = (jnp.log(jnp.stack([level.force, level.gravity])) - LOW) / (HIGH - LOW)
    return car_at(level, jnp.clip(x + 0.1 * jax.random.normal(key, (2,)), 0, 1))


def fewest_steps(level: Any) -> jax.Array:
    """Steps from rest at the bottom, whence it takes longest: of pushing right throughout, or along the velocity, which
    adds the most energy, whichever is faster; MOST + 1 if neither arrives."""

    def arrival(along):
        def step(carry, _):
            state, steps, there = carry
            push = jnp.where(along & (state.velocity < 0), -level.force, level.force)
            state = mountain_car.dynamics(state, push, level)
            return (state, steps + ~there, there | mountain_car.at_goal(state, level)), None

        bottom = mountain_car.State(jnp.int32(0), jnp.float32(-jnp.pi / 6), jnp.float32(0))
        (_, steps, there), _ = jax.lax.scan(step, (bottom, jnp.int32(0), jnp.bool_(False)), None, MOST)
        return jnp.where(there, steps, MOST + 1)

    return jnp.min(jax.vmap(arrival)(jnp.array([False, True])))


def car_value(level: Any) -> jax.Array:
    steps = fewest_steps(level)
    return jnp.where(steps <= MOST, kit.success_reward(steps - 1, MOST), 0.0)


def draw_solvable_car(key: jax.Array, params: Any) -> Any:
    def again(carry):
        key, _ = carry
        key, draw_key = jax.random.split(key)
        return key, draw_car(draw_key, params)

    return jax.lax.while_loop(lambda carry: fewest_steps(carry[1]) > MOST, again, again((key, params)))[1]


def car(steps: int, look: sfl.Config) -> Family:
    env, params = jaxrl.make("MountainCar-v0")
    return Family(
        "cars",
        Flag(env),
        draw_car,
        draw_solvable_car,
        strongly_typed(params.replace(max_steps=MOST)),
        car_value,
        nudged_car,
        car_at,
        ppo.Config(num_envs=32, num_steps=100, num_epochs=2, num_minibatches=2, hidden=(32, 32), normalize_obs=True),
        ppo.Hyper(learning_rate=2e-3, gamma=0.99, ent_coef=0.01),
        steps,
        look,
    )


# ---- rule worlds of three depths: the goal and the rules are told, what is to be made of what is to be learned


def rules(steps: int, look: sfl.Config) -> Family:
    """One room of 7 x 7 cells. Half of the tiles that rules make are there from the start, so a task needs 0 to 6
    rules, and the deeper ones are rare."""
    env, params = jaxrl.make(
        "XLand-MiniGrid-R1-9x9", size=7, rulesets=Config(2, 0.5, 0, 1), meta=False, mission="rules"
    )
    return Family(
        "rule worlds",
        env.as_levels(),
        env.generate,
        env.generate,  # all can be solved
        strongly_typed(params.replace(max_steps=60, trial_steps=60)),
        None,
        env.mutate,
        None,
        ppo.Config(num_envs=32, num_steps=128, num_epochs=2, num_minibatches=4, hidden=(128, 128)),
        ppo.Hyper(learning_rate=1e-3, gamma=0.98, ent_coef=0.01),
        steps,
        look,
    )


# ---- a robot with a lidar among walls


def navigation(steps: int, look: sfl.Config) -> Family:
    """`JaxNav-v0`, whose maps are up to 60 % walls; one arrives who gets more than 2 of the 4 for the goal."""
    task, params = jaxrl.make("JaxNav-v0", actions="discrete", lidar_beams=32)
    solvable = dataclasses.replace(task, solvable=True)
    return Family(
        "navigation",
        task.as_levels(),
        task.generate,
        solvable.generate,
        strongly_typed(params.replace(max_steps=200)),
        None,
        task.mutate,
        None,
        ppo.Config(num_envs=64, num_steps=128, num_epochs=4, num_minibatches=4, hidden=(64, 64)),
        ppo.Hyper(learning_rate=1e-3, gamma=0.99, ent_coef=0.01),
        steps,
        look,
        success_above=2.0,
    )


# SFL's buffer has about as many levels as those of a look that can be solved.
LOOK = sfl.Config(32, 256, 200, 256, 30)
FAMILIES = {
    "maze13": lambda: maze(13, 134, 100, 250_000, LOOK),
    "maze13_fast": lambda: maze(13, 134, 100, 250_000, LOOK, 2e-3),
    "maze13_long": lambda: maze(13, 134, 100, 2_500_000, LOOK, 2e-3),
    "maze17": lambda: maze(17, 230, 150, 500_000, sfl.Config(16, 256, 300, 256, 30), 2e-3),
    "car": lambda: car(400_000, sfl.Config(32, 128, 400, 128, 45)),
    "rules": lambda: rules(1_000_000, sfl.Config(64, 256, 120, 256, 40)),
    "nav": lambda: navigation(2_000_000, sfl.Config(64, 256, 400, 256, 30)),
}
