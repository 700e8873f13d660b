"""DigitsBandit-bsuite: name the digit in a noisy picture; one guess an episode.

Stands in for the experiments `mnist`, `mnist_noise` and `mnist_scale` of Osband et al. (2020), without a download: the
question (generalisation over inputs, without state) is the same, the pictures are not, so scores are not comparable
with bsuite's. A 7 x 5 glyph of one of the ten digits is placed at random on a board of 12 x 12, and every pixel is
inverted with probability `flip`. Observation: (12, 12), 0 or 1; all 0 after the guess. Action: the digit. Reward: +1 if
right, -1 if not. Ends after one step. `info["regret"]`: 2 for a wrong guess.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree, strongly_typed
from jaxrl.spaces import Box, Discrete

SIZE = 12
GLYPH_SHAPE = (7, 5)
# One digit a row, seven rows of five pixels each, as hexadecimal digits pairs below 0x20.
GLYPHS = """
0e 11 13 15 19 11 0e
04 0c 04 04 04 04 0e
0e 11 01 02 04 08 1f
1f 02 04 02 01 11 0e
02 06 0a 12 1f 02 02
1f 10 1e 01 01 11 0e
06 08 10 1e 11 11 0e
1f 01 02 04 08 08 08
0e 11 11 0e 11 11 0e
0e 11 11 0f 01 02 0c
"""


def glyphs() -> np.ndarray:
    """The ten digits, (10, 7, 5), 0 or 1."""
    rows = np.array([[int(row, 16) for row in line.split()] for line in GLYPHS.split("\n") if line])
    return (rows[..., None] >> np.arange(GLYPH_SHAPE[1])[::-1]) & 1


@pytree
class Params:
    glyphs: jax.Array  # (10, 7, 5) pixels of each digit
    flip: jax.Array = 0.05  # probability of an inverted pixel
    max_steps: jax.Array = NO_LIMIT


@pytree
class State:
    time: jax.Array  # steps since reset
    label: jax.Array  # int32, the digit shown
    picture: jax.Array  # (12, 12)


@dataclasses.dataclass(frozen=True)
class DigitsBandit(Environment):
    id: str = dataclasses.field(default="DigitsBandit-bsuite", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True, reset="dense")

    @property
    def default_params(self) -> Params:
        return strongly_typed(Params(jnp.asarray(glyphs(), float)))

    def initial(self, key: Array, params: Params) -> State:
        u = jax.random.uniform(key, (SIZE * SIZE + 3,), params.flip.dtype)
        height, width = GLYPH_SHAPE
        choices = jnp.array([len(params.glyphs), SIZE - height + 1, SIZE - width + 1])
        # Rounding could bring the product up to the number of choices.
        label, top, left = jnp.minimum((u[:3] * choices).astype(jnp.int32), choices - 1)
        board = jnp.zeros((SIZE, SIZE), params.glyphs.dtype)
        board = jax.lax.dynamic_update_slice(board, params.glyphs[label], (top, left))
        flipped = u[3:].reshape(SIZE, SIZE) < params.flip
        return State(jnp.int32(0), label, jnp.where(flipped, 1 - board, board))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        right = action.astype(jnp.int32) == state.label
        reward = jnp.where(right, 1, -1).astype(state.picture.dtype)
        return Transition(state, reward, jnp.bool_(True), jnp.bool_(False), {"regret": 1 - reward})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "12 12"]:
        return jnp.where(state.time == 0, state.picture, 0)

    def observation_space(self, params: Params) -> Box:
        return Box(0.0, 1.0, (SIZE, SIZE))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(10)

    def validate(self, params: Params) -> None:
        if np.shape(params.glyphs)[-3:] != (10, *GLYPH_SHAPE):
            raise ValueError(f"{self.id}: glyphs {np.shape(params.glyphs)}; there are 10 of {GLYPH_SHAPE}.")
        pixels = np.asarray(params.glyphs)
        if not np.all((pixels >= 0) & (pixels <= 1)):
            raise ValueError(
                f"{self.id}: glyphs has pixels from {pixels.min():g} to {pixels.max():g}; they are from 0 to 1."
            )
        if not np.all((np.asarray(params.flip) >= 0) & (np.asarray(params.flip) <= 1)):
            raise ValueError(f"{self.id}: flip={params.flip} must be from 0 to 1.")
