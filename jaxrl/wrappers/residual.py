"""A wrapper in which an agent corrects another policy: what is done is the base's action and a bounded correction.

Silver et al. (2018), "Residual policy learning", and Johannink et al. (2019), "Residual reinforcement learning for
robot control". The base is any function of weights and observation, say a cloned policy or a classical controller; its
weights and the bound are leaves of params, so neither is trained and both may differ from run to run:

    base = lambda policy, obs: cloned.act(policy, key, obs, (), greedy=True)[0]
    task = Residual(env, base)
    params = task.on(env_params, cloned.policy(state), scale=0.2)
    algo = sac.make(task)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import Levels, Transition, pytree, strongly_typed
from jaxrl.spaces import Box
from jaxrl.wrappers.base import KeepsObservation, WrapperState


@pytree
class ResidualParams:
    env: Any  # the wrapped environment's params
    base: Any  # the base policy's weights
    scale: jax.Array = 0.1  # the largest correction, as a share of half the box's width

    @property
    def max_steps(self) -> Array:
        return self.env.max_steps


@dataclasses.dataclass(frozen=True)
class Residual(KeepsObservation):
    """Actions in [-1, 1] are corrections of `base(params.base, obs)` by up to `params.scale` of half the action's box.

    The sum is clipped to the box. The base is asked of the observation that the agent sees, noise included. At scale 0,
    or of actions 0, what is done is the base's action alone. Raises ValueError where the action space is no Box with
    two ends; `validate` raises it for a scale below 0.
    """

    base: Callable[[Any, Any], Any]  # (weights, obs) -> action

    Params = ResidualParams

    def __post_init__(self) -> None:
        super().__post_init__()
        space = self.env.action_space(self.env.default_params)
        if not isinstance(space, Box) or not np.all(np.isfinite(space.low) & np.isfinite(space.high)):
            raise ValueError(f"Residual: {self.id} acts in {space}; only actions in a Box with two ends are corrected.")

    @property
    def default_params(self) -> ResidualParams:
        return self.on(self.env.default_params, ())

    def on(self, params: Any, base: Any, scale: Any = 0.1) -> ResidualParams:
        """The wrapped environment's `params` with a base policy of these weights."""
        return strongly_typed(ResidualParams(params, base, scale))

    def done(self, obs: Any, action: Float[Array, "*batch"], params: ResidualParams) -> Float[Array, "*batch"]:
        """What is done where `obs` is seen and `action` is the correction."""
        box: Any = self.env.action_space(params.env)
        half = 0.5 * (box.high - box.low)
        # A correction is within [-1, 1], whatever a learner's action is.
        return jnp.clip(self.base(params.base, obs) + params.scale * half * jnp.clip(action, -1, 1), box.low, box.high)

    def transition(self, key: Array, state: WrapperState, action: Any, params: ResidualParams) -> Transition:
        return self.after(key, state, self.done(state.memory, action, params), params)

    def action_space(self, params: ResidualParams) -> Box:
        box: Any = self.env.action_space(params.env)
        return Box(-1.0, 1.0, box.shape, box.dtype)

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return ()

    @property
    def levels(self) -> Levels | None:
        return self.levels_inside()

    def validate(self, params: ResidualParams) -> None:
        super().validate(params)
        scale = np.asarray(params.scale)
        if not np.all(scale >= 0):
            raise ValueError(f"Residual: scale={scale} must be at least 0, where the base acts alone.")
