"""A wrapper of starts: episodes that begin in stored states."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxrl.environment import NO_LIMIT, is_concrete, pytree, strongly_typed
from jaxrl.wrappers.base import AddsParams


@pytree
class StartParams:
    """Params with the states in which episodes start, so that a level can be a state; see `FromStates.starting`."""

    env: Any  # the wrapped environment's params
    states: Any  # its states, leading axis K
    weights: jax.Array  # (K,) relative probability of each state
    share: jax.Array  # probability of starting in one of them; else `env` draws the start
    limit: jax.Array = NO_LIMIT  # time limit while share > 0, if lower than the environment's

    @property
    def max_steps(self) -> Array:
        # numpy for concrete params: under a trace `evaluate` still sees whether there is a limit.
        with jax.ensure_compile_time_eval() if is_concrete(self) else contextlib.nullcontext():
            return jnp.where(self.share > 0, jnp.minimum(self.limit, self.env.max_steps), self.env.max_steps)


@dataclasses.dataclass(frozen=True)
class FromStates(AddsParams):
    """Episodes start in stored states, `params.states`, with the clock at zero; otherwise everything is as in `env`.

        starts = FromStates(env)
        params = starts.starting(env_params, states)  # leading axis K
        obs, state = starts.reset(key, params)  # one of the K states

    With the default params (`share` 0) it behaves as `env`. Levels for `curriculum.attach` have K = 1.
    """

    Params = StartParams

    @property
    def default_params(self) -> StartParams:
        params = self.env.default_params
        one = jax.tree.map(lambda x: x[None], self.env.initial(jax.random.key(0), params))
        return strongly_typed(self.starting(params, one, share=0.0))

    def starting(
        self, params: Any, states: PyTree, weights: Any = None, share: Any = 1.0, limit: Any = NO_LIMIT
    ) -> StartParams:
        """The wrapped environment's `params` with starts in `states` (leading axis K), by `weights` if given."""
        weights = jnp.ones(len(jax.tree.leaves(states)[0])) if weights is None else weights
        return StartParams(params, states, weights, jnp.asarray(share, jnp.result_type(float)), jnp.int32(limit))

    def initial(self, key: Array, params: StartParams) -> Any:
        key, env_key = jax.random.split(key)
        which, stored = jax.random.uniform(key, (2,))
        cdf = jnp.cumsum(params.weights)
        i = jnp.minimum(jnp.searchsorted(cdf, which * cdf[-1], side="right"), len(cdf) - 1)
        state = jax.tree.map(lambda x: x[i], params.states)
        state = state.replace(time=jnp.zeros_like(state.time))
        own = self.env.initial(env_key, params.env)
        return jax.tree.map(lambda x, y: jnp.where(stored < params.share, x, y), state, own)

    def validate(self, params: StartParams) -> None:
        """Raises ValueError also for objects that are no states of `env`, and for invalid weights or shares."""
        self.env.validate(params.env)
        wanted = jax.eval_shape(self.env.initial, jax.random.key(0), self.env.default_params)
        if jax.tree.structure(params.states) != jax.tree.structure(wanted):
            raise ValueError(f"FromStates: states are {type(params.states).__name__}, not states of {self.id}.")
        leading = jnp.shape(params.weights)
        for (path, y), x in zip(
            jax.tree_util.tree_leaves_with_path(wanted), jax.tree.leaves(params.states), strict=True
        ):
            if (x.shape, x.dtype) != ((*leading, *y.shape), y.dtype):
                raise ValueError(
                    f"FromStates: states{jax.tree_util.keystr(path)} is {x.dtype} {x.shape}; {leading} states of "
                    f"{self.id} need {y.dtype} {(*leading, *y.shape)}."
                )
        weights, share, limit = (np.asarray(x) for x in (params.weights, params.share, params.limit))
        if np.any(weights < 0) or not np.all(np.isfinite(weights)) or np.any(weights.sum(-1) <= 0):
            raise ValueError(f"FromStates: weights={weights} must be finite, none below 0 and some above.")
        if not np.all((share >= 0) & (share <= 1)):
            raise ValueError(f"FromStates: share={share} must be from 0 to 1.")
        if np.any(limit < 1):
            raise ValueError(f"FromStates: limit={limit} must be at least 1.")
