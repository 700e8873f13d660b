"""Who acts in a task beside a learner: a trained policy, a controller of the library, a function of yours.

    expert = actors.of_policy(algo, policy)   # trained: `algo.policy(state)`, or of `zoo.load(NAME)`
    expert = actors.scripted(env)             # the controller that the environment's family has
    expert = actors.of_function(act)          # act(obs) -> action, of one observation, in the environment's units

They record datasets (`host.data.recording`) and are the experts of `dagger`, `hg_dagger` and `rlif`. `value` is what an
action is worth where its actor goes on after it, by rollouts in the environment itself.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl.algorithm import Algorithm
from jaxrl.calls import recorded
from jaxrl.environment import Environment
from jaxrl.evaluation import actor
from jaxrl.math import stock_keys


@dataclasses.dataclass(frozen=True, eq=False)
class Actor:
    """Who acts. Leaves have a leading axis N of environments but for those of the params."""

    act: Callable[..., tuple[Any, Any]]  # (key, env_state, obs, env_params, carry) -> (action, carry)
    carry: Any = ()  # what it remembers at the start of an episode, of one environment
    value: Callable[..., Any] | None = None  # (key, env_state, obs, action, env_params, carry) -> (N,); None: rollouts

    def carries(self, num_envs: int) -> Any:
        """What it remembers at the start of `num_envs` episodes."""
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_envs, *jnp.shape(x))), self.carry)


@recorded
def of_policy(algo: Algorithm, policy: Any, greedy: bool | None = None) -> Actor:
    """A policy that acts in the task it was trained on; `greedy` as `evaluate` takes it."""
    return Actor(functools.partial(actor(algo, algo.venv.env, greedy), policy), algo.initial_carry(()))


@recorded
def of_function(act: Callable[[Any], Any]) -> Actor:
    """`act(obs) -> action` of one observation, in the environment's units. For a run folder to say it, it has a name in
    a module."""

    def of_all(key, env_state, obs, env_params, carry):
        return jax.vmap(act)(obs), carry

    return Actor(of_all)


@recorded
def scripted(env: Environment) -> Actor:
    """The controller that the environment's family has for it, in its `control/scripted.py`.

    Raises ValueError where there is none, naming the ids that have one.
    """
    having = _families_with_controllers()
    package, _, inside = type(env).__module__.partition("jaxrl.envs.")
    family = "" if package else inside.partition(".")[0]
    if family not in having:
        ids = ", ".join(id for module in having.values() for id in module.IDS)
        raise ValueError(f"{env.id} has no scripted controller; these have: {ids}.")
    carry, act = having[family].scripted(env)

    def of_all(key, env_state, obs, env_params, carry):
        return jax.vmap(act, (None, 0, 0))(env_params, env_state, carry)

    return Actor(of_all, carry)


def _families_with_controllers() -> dict[str, ModuleType]:
    folder = importlib.import_module("jaxrl.envs").__path__
    having = {}
    for family in (module.name for module in pkgutil.iter_modules(folder)):
        package = f"jaxrl.envs.{family}.control"
        if importlib.util.find_spec(package) and importlib.util.find_spec(f"{package}.scripted"):
            having[family] = importlib.import_module(f"{package}.scripted")
    return having


def value(
    who: Actor,
    env: Environment,
    key: Key[Array, ""],
    env_state: Any,
    action: Any,
    env_params: Any,
    carry: Any,
    gamma: Float[Array, ""] | float,
    horizon: int,
) -> Float[Array, " N"]:
    """The discounted return of `horizon` steps that begin with `action` (N, ...), after which `who` acts.

    A step that ends the task is the last one that counts; a time limit cuts nothing. `carry` is what `who` remembers
    after it was asked in this state.
    """

    def step(carried: Any, key: Array) -> tuple[Any, None]:
        state, action, carry, going, total = carried
        env_key, act_key = jax.random.split(key)
        keys = jax.random.split(env_key, going.shape[0])
        ts = stock_keys(jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, env_params))
        total, going = total + going * ts.reward, jnp.where(ts.terminated, 0, going * gamma)
        action, carry = who.act(act_key, ts.state, ts.obs, env_params, carry)
        return (ts.state, action, carry, going, total), None

    zeros = jnp.zeros(env_state.time.shape, jnp.result_type(float))
    start = env_state, action, carry, zeros + 1, zeros
    return jax.lax.scan(step, start, jax.random.split(key, horizon))[0][-1]
