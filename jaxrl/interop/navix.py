"""Navix's environments as jaxrl's: `from_navix`, or `make("navix:Navix-Empty-5x5-v0")`.

Needs the `navix` package (the extra `navix`). Lost: its params (Navix keeps its numbers in the object, but for
the time limit), and what is drawn ahead for pictures, which are drawn at every step where they are the observation.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.environment import Transition, strongly_typed
from jaxrl.interop.foreign import Adapted, Held, TheirParams, TheirState, box, kept, with_key
from jaxrl.spaces import Discrete, Space


@dataclasses.dataclass(frozen=True)
class FromNavix(Adapted):
    """Made by `from_navix`."""

    @property
    def default_params(self) -> TheirParams:
        return strongly_typed(TheirParams(max_steps=jnp.int32(self.env.max_steps)))

    def initial(self, key: Array, params: TheirParams) -> TheirState:
        ts = self.env.reset(key)
        return strongly_typed(TheirState(jnp.int32(0), ts.state.replace(cache=None), ts.observation))

    def transition(self, key: Array, state: TheirState, action: Array, params: TheirParams) -> Transition:
        from navix.environments.environment import StepType, Timestep
        from navix.rendering.cache import RenderingCache

        # The picture of the walls, of 3 kB a cell, is no part of the state: it follows from the grid, and XLA draws it
        # only where an observation shows it.
        own = with_key(state.env, key).replace(cache=RenderingCache.init(state.env.grid))
        before = Timestep(
            t=state.time,
            observation=state.obs,
            action=jnp.int32(0),
            reward=jnp.zeros(()),
            step_type=StepType.TRANSITION,
            state=own,
        )
        env = self.env.replace(max_steps=params.max_steps)
        ts = env.step(before, action.astype(jnp.int32))
        own, obs = kept((ts.state.replace(cache=None), ts.observation), (state.env, state.obs))
        reward = jnp.asarray(ts.reward, jnp.result_type(float))
        ended = ts.is_termination(), ts.is_truncation()
        return Transition(state.replace(env=own, obs=obs), reward, *ended, {})

    def observation_space(self, params: TheirParams) -> Space:
        space = self.env.observation_space
        return box(space.shape, space.dtype, np.asarray(space.minimum), np.asarray(space.maximum))

    def action_space(self, params: TheirParams) -> Discrete:
        return Discrete(len(self.env.action_set))


def from_navix(env: Any, id: str | None = None) -> tuple[FromNavix, TheirParams]:
    """`(env, params)` of a Navix environment, without its auto-reset.

    `params.max_steps` is its time limit, and a leaf. Raises TypeError for what is no environment of Navix, as one of
    its wrappers.
    """
    if lacking := [name for name in ("action_set", "disable_autoreset", "replace") if not hasattr(env, name)]:
        raise TypeError(f"from_navix: {env!r:.60} is no Navix environment: it has no {', no '.join(lacking)}.")
    env = env.replace(disable_autoreset=True)
    adapted = FromNavix(Held(env), id=id or type(env).__name__)
    return adapted, adapted.default_params


def names() -> list[str]:
    """Ids that are registered with Navix."""
    import navix

    return sorted(navix.registry())


def by_name(name: str) -> tuple[FromNavix, TheirParams]:
    """`(env, params)` of one of `names()`."""
    import navix

    return from_navix(navix.make(name), id=name)
