"""Craftax's environments as jaxrl's: `from_craftax`, or `make("craftax:Craftax-Classic-Symbolic-v1")`.

Needs the `craftax` package (the extra `craftax`). Lost: rendering; Craftax itself stops derivatives.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.environment import NO_LIMIT, Transition, pytree, strongly_typed
from jaxrl.interop.foreign import Adapted, Held, TheirState, box, kept
from jaxrl.spaces import Discrete, Space


@pytree
class CraftaxParams:
    env: Any  # Craftax's own

    @property
    def max_steps(self) -> Array:
        """Craftax's `max_timesteps`."""
        return self.env.max_timesteps


@dataclasses.dataclass(frozen=True)
class FromCraftax(Adapted):
    """Made by `from_craftax`."""

    Params = CraftaxParams

    @property
    def default_params(self) -> CraftaxParams:
        return strongly_typed(CraftaxParams(self.env.default_params))

    def initial(self, key: Array, params: CraftaxParams) -> TheirState:
        obs, state = self.env.reset_env(key, params.env)
        return strongly_typed(TheirState(jnp.int32(0), state, obs))

    def transition(self, key: Array, state: TheirState, action: Array, params: CraftaxParams) -> Transition:
        # Achievements, and an unsigned byte for an action, are computed in 32 bits.
        obs, env, reward, _, info = self.env.step_env(key, state.env, action.astype(jnp.int32), params.env)
        # What it calls done merges the time limit in; the same question with the limit out of reach does not.
        endless = params.env.replace(max_timesteps=jnp.int32(NO_LIMIT))
        terminated = jnp.asarray(self.env.is_terminal(env, endless), bool)
        env, obs = kept((env, obs), (state.env, state.obs))
        info = {name: jnp.asarray(x, jnp.result_type(float)) for name, x in info.items() if name != "discount"}
        reward = jnp.asarray(reward, jnp.result_type(float))
        return Transition(state.replace(env=env, obs=obs), reward, terminated, jnp.bool_(False), info)

    def observation_space(self, params: CraftaxParams) -> Space:
        space = self.env.observation_space(params.env)
        return box(space.shape, space.dtype, space.low, space.high)

    def action_space(self, params: CraftaxParams) -> Discrete:
        return Discrete(int(self.env.action_space(params.env).n))


def from_craftax(env: Any, params: Any = None) -> tuple[FromCraftax, CraftaxParams]:
    """`(env, params)` of a Craftax environment, with auto-reset or without, which is not used.

    `params.env` are Craftax's own, each a leaf; `terminated` is death (in Craftax the last boss's, too) and `truncated`
    the time limit `max_timesteps`. `info` has the achievements, where an episode ends. Raises TypeError for what is no
    environment of Craftax.
    """
    if lacking := [name for name in ("reset_env", "step_env", "is_terminal") if not hasattr(env, name)]:
        raise TypeError(f"from_craftax: {env!r:.60} is no Craftax environment: it has no {', no '.join(lacking)}.")
    id = str(env.name).replace("-NoAutoReset", "")
    adapted = FromCraftax(Held(env), id=id)
    own = env.default_params if params is None else params
    return adapted, strongly_typed(CraftaxParams(own))


def names() -> list[str]:
    """The ids of Craftax, which has no list of them."""
    return [f"Craftax{kind}-{view}-v1" for kind in ("", "-Classic") for view in ("Symbolic", "Pixels")]


def by_name(name: str) -> tuple[FromCraftax, CraftaxParams]:
    """`(env, params)` of one of `names()`."""
    from craftax.craftax_env import make_craftax_env_from_name

    return from_craftax(make_craftax_env_from_name(name, auto_reset=False))
