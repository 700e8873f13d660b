"""XLand-MiniGrid's environments as jaxrl's: `from_xminigrid`, or `make("xminigrid:MiniGrid-Empty-5x5")`.

Needs the `xminigrid` package (the extra `xminigrid`). Lost: rendering, and the benchmarks of rulesets by name,
which are downloaded: give one of their rulesets as leaves, `params.replace(ruleset=...)`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.environment import Transition, pytree, strongly_typed
from jaxrl.interop.foreign import (
    Adapted,
    Held,
    TheirState,
    kept,
    named,
    refuse_training,
    space_of,
    with_key,
)
from jaxrl.spaces import Box, Dict, Discrete, Space


@pytree
class XminigridParams:
    max_steps: jax.Array  # of which the reward is a fraction, too
    ruleset: Any = None  # XLand's goal, rules and first tiles; None of MiniGrid's tasks


@dataclasses.dataclass(frozen=True)
class FromXminigrid(Adapted):
    """Made by `from_xminigrid`."""

    own: Held = Held(None)  # XLand-MiniGrid's EnvParams

    Params = XminigridParams

    @property
    def default_params(self) -> XminigridParams:
        own = self.own.thing
        return strongly_typed(XminigridParams(jnp.int32(own.max_steps), getattr(own, "ruleset", None)))

    def theirs(self, params: XminigridParams) -> Any:
        """XLand-MiniGrid's params, with the leaves of ours."""
        ruleset = {} if params.ruleset is None else {"ruleset": params.ruleset}
        return self.own.thing.replace(max_steps=params.max_steps, **ruleset)

    def initial(self, key: Array, params: XminigridParams) -> TheirState:
        ts = self.env.reset(self.theirs(params), key)
        return strongly_typed(TheirState(jnp.int32(0), ts.replace(observation=None), named(ts.observation)))

    def transition(self, key: Array, state: TheirState, action: Array, params: XminigridParams) -> Transition:
        before = with_key(state.env, key).replace(observation=state.obs)
        ts = self.env.step(self.theirs(params), before, action.astype(jnp.int32))
        env, obs = kept((ts.replace(observation=None), named(ts.observation)), (state.env, state.obs))
        reward, terminated = jnp.asarray(ts.reward, jnp.result_type(float)), ts.last() & (ts.discount == 0)
        return Transition(state.replace(env=env, obs=obs), reward, terminated, ts.last() & ~terminated, {})

    def observation_space(self, params: XminigridParams) -> Space:
        from xminigrid.core.constants import NUM_COLORS, NUM_TILES

        seen = jax.eval_shape(lambda key: self.initial(key, params).obs, jax.random.key(0))
        tiles = jnp.asarray([NUM_TILES - 1, NUM_COLORS - 1])

        def view(x: Any) -> Box:
            return Box(0, jnp.broadcast_to(tiles, x.shape), x.shape, x.dtype)

        if isinstance(seen, dict):  # of its wrappers
            return Dict({name: view(x) if name == "img" else space_of(x) for name, x in seen.items()})
        return view(seen) if seen.shape[-1:] == (2,) else space_of(seen)

    def action_space(self, params: XminigridParams) -> Discrete:
        return Discrete(int(self.env.num_actions(self.own.thing)))


def from_xminigrid(env: Any, params: Any, id: str | None = None) -> tuple[FromXminigrid, XminigridParams]:
    """`(env, params)` of the pair that `xminigrid.make` returns.

    Its time limit and the ruleset are leaves of `params`, all else is static. Its wrappers that change what is observed
    are taken. Raises ValueError for those that reset, TypeError for what is no environment of XLand-MiniGrid.
    """
    if lacking := [name for name in ("default_params", "num_actions", "step") if not hasattr(env, name)]:
        raise TypeError(f"from_xminigrid: {env!r:.60} is no such environment: it has no {', no '.join(lacking)}.")
    refuse_training(env, "from_xminigrid")
    adapted = FromXminigrid(Held(env), Held(params), id=id or type(env).__name__)
    return adapted, adapted.default_params


def names() -> list[str]:
    """Ids that are registered with XLand-MiniGrid."""
    import xminigrid

    return sorted(xminigrid.registered_environments())


def by_name(name: str) -> tuple[FromXminigrid, XminigridParams]:
    """`(env, params)` of one of `names()`."""
    import xminigrid

    return from_xminigrid(*xminigrid.make(name), id=name)
