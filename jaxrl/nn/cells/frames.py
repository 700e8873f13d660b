"""Frame stacking as a cell: the last inputs side by side, the memory that others are compared with."""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.nn.cells.window_attention import ages_of
from jaxrl.nn.networks import Dense, orthogonal


class Frames(NamedTuple):
    """The last `window` inputs, oldest first."""

    inputs: Array  # (*batch, window, features)
    length: Array  # (*batch,), int32: how many of the last ones are of this episode


class FrameStack(nn.Module):
    """tanh(W [x[t-window], ..., x[t]] + b) of inputs that are projected to `features`; zeros before the episode.

    Mnih et al. (2015) for images. Carry: `Frames`.
    """

    features: int
    window: int = 32

    def initial_carry(self, batch_shape: tuple[int, ...]) -> Frames:
        """The carry before an episode: no inputs. Raises ValueError for a window below 1."""
        if self.window < 1:
            raise ValueError(f"frames: window={self.window} must be at least 1.")
        zeros = jnp.zeros((*batch_shape, self.window, self.features))
        return Frames(zeros, jnp.zeros(batch_shape, jnp.int32))

    @nn.compact
    def __call__(
        self, carry: Any, inputs: Float[Array, "T *batch features"], start: Bool[Array, "T *batch"]
    ) -> tuple[Any, Float[Array, "T *batch hidden"]]:
        window = self.window
        x = Dense(self.features, kernel_init=orthogonal(), name="inputs")(inputs)
        all_inputs = jnp.concatenate([jnp.moveaxis(carry.inputs, -2, 0), x])
        ages = ages_of(carry.length, start)
        seen = jnp.arange(len(x))[:, None] + jnp.arange(window + 1)
        stack = jnp.moveaxis(all_inputs[seen], 1, -2)  # (T, *batch, window + 1, features)
        stack = jnp.where((window - jnp.arange(window + 1) <= ages[..., None])[..., None], stack, 0)
        stack = stack.reshape(*x.shape[:-1], -1)
        y = jnp.tanh(Dense(self.features, kernel_init=orthogonal(), name="stack")(stack))
        carry = Frames(jnp.moveaxis(all_inputs[-window:], 0, -2), jnp.minimum(ages[-1] + 1, window))
        return carry, y
