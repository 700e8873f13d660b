"""Contextual tasks: which numbers of an environment a context multiplies, and the student that all methods share."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.algos import ppo
from jaxrl.environment import strongly_typed
from jaxrl.envs.physics.task import scaled
from jaxrl.wrappers.base import Wrapper


@dataclasses.dataclass(frozen=True)
class Scaled(Wrapper):
    """Rewards times a number, so that values are of the size of 1 to 100 without a running scale, which scores of
    levels would not know."""

    factor: float

    def transition(self, key, state, action, params):
        moved = self.env.transition(key, state, action, params)
        return moved._replace(reward=moved.reward * self.factor)


class Task(NamedTuple):
    id: str
    box: dict[str, tuple[float, float]]  # factors, from and to; log-uniform
    steps: int  # of a method, in all
    config: ppo.Config
    hyper: ppo.Hyper
    low: float  # returns that count as 0 and 1 to teachers and MBTL
    high: float
    passed: float  # return of a success, for SFL
    reward: float = 1.0  # factor in training
    max_steps: int | None = None
    episodes: int = 4  # of a test on a context
    sources: int = 3  # policies of MBTL
    plain_levels: int = 64  # SFL's look: levels and steps on each; 0: not run
    look_steps: int = 0


BODY = {"body_mass": (0.6, 1.6), "gravity": (0.6, 1.5), "geom_friction": (0.5, 2.0), "actuator_gear": (0.6, 1.6)}
RUN = ppo.Config(num_envs=16, num_steps=128, num_epochs=6, num_minibatches=16, normalize_obs=True, clip_value=False)
RUNNER = ppo.Hyper(learning_rate=1e-3, ent_coef=0.0)
SMALL = ppo.Config(num_envs=16, num_steps=128, num_minibatches=8)
SWING = ppo.Config(
    num_envs=32, num_steps=64, num_epochs=5, num_minibatches=16, activation="silu", clip_value=False, normalize_obs=True
)
SWINGER = ppo.Hyper(learning_rate=1e-3, gamma=0.95, ent_coef=0.0, max_grad_norm=10.0)
CUT: dict[str, Any] = {"low": 0.0, "high": 1000.0, "passed": 500.0, "reward": 0.1, "max_steps": 500, "episodes": 1}
LOOK = {"plain_levels": 32, "look_steps": 500}
TASKS = {
    "cartpole": Task(
        "CartPole-v1",
        {"length": (0.2, 5.0), "mass_pole": (0.2, 5.0), "gravity": (0.4, 2.5)},
        300_000,
        SMALL,
        ppo.Hyper(learning_rate=1e-3),
        low=0.0,
        high=500.0,
        passed=475.0,
        look_steps=500,
    ),
    "pendulum": Task(
        "Pendulum-v1",
        {"mass": (0.5, 2.0), "length": (0.5, 2.0), "gravity": (0.5, 2.0)},
        300_000,
        SWING,
        SWINGER,
        low=-1600.0,
        high=0.0,
        passed=-300.0,
        reward=0.1,
        look_steps=400,
    ),
    "hopper": Task("Hopper-v5", BODY, 250_000, RUN, RUNNER, **CUT, **LOOK),
    "walker": Task("Walker2d-v5", BODY, 200_000, RUN, RUNNER, **CUT, **LOOK),
}


class Contexts:
    """Points of the unit box as levels of a task: `level(params, x)`, `draw(key, params)`, `mutate(key, level)`."""

    def __init__(self, task: Task):
        env, params = jaxrl.make(task.id)
        if task.max_steps:
            params = params.replace(max_steps=task.max_steps)
        self.task, self.plain, self.params = task, env, strongly_typed(params)
        self.env = Scaled(env, task.reward) if task.reward != 1 else env
        self.low, self.high = jnp.log(jnp.array(list(task.box.values()))).T
        self.dimensions = len(task.box)

    def level(self, params: Any, x: jax.Array) -> Any:
        factors = dict(zip(self.task.box, jnp.exp(self.low + x * (self.high - self.low)), strict=True))
        if not hasattr(params, "model"):
            return params.replace(**{name: getattr(params, name) * f for name, f in factors.items()})
        if "body_mass" in factors:
            factors["body_inertia"] = factors["body_mass"]
        return scaled(params, **factors)

    def draw(self, key: jax.Array, params: Any) -> Any:
        return self.level(params, jax.random.uniform(key, (self.dimensions,)))

    def where(self, level: Any) -> jax.Array:
        """The point of a level."""
        inside, base = (getattr(p, "model", None) or vars(p) for p in (level, self.params))
        factors = []
        for name in self.task.box:
            largest = jnp.argmax(jnp.abs(base[name]))
            factors.append(jnp.ravel(inside[name])[largest] / jnp.ravel(base[name])[largest])
        return (jnp.log(jnp.stack(factors)) - self.low) / (self.high - self.low)

    def mutate(self, key: jax.Array, level: Any) -> Any:
        """A step of standard deviation 0.1 of the box in each direction."""
        x = self.where(level) + 0.1 * jax.random.normal(key, (self.dimensions,))
        return self.level(self.params, jnp.clip(x, 0, 1))
