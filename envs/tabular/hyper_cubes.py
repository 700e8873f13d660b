"""Hyper-cubes: a space of tasks and a student that learns them in order, for testing teachers of continuous parameters.

The toy environment of Portelas et al. (2019), "Teacher algorithms for curriculum learning of deep RL in continuously
parameterized environments" (arXiv:1910.07224), and its code. It plays the student: there is nothing to act in and
nothing to train, so that a teacher can be judged over 20,000 episodes in seconds.

The unit cube of `dimensions` dimensions is cut into `cells` per dimension. Each cell has a competence, at first 0. An
episode on a task x adds 1 to that of the cell x is in, up to 100, if the cell is unlocked: the one at the origin always
is, any other when a previous neighbour (each index its own or one less, not below 0) has competence 75 or more. The
reward is the competence after that, over 100. Coordinates of x past `dimensions` are of no use. The score of a teacher
is the share of cells with competence above 75.
"""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

MOST = 100
MASTERY = 75


@dataclasses.dataclass(frozen=True)
class HyperCubes:
    """Static settings. The state is the competence of all cells, (cells ** dimensions,), the last dimension fastest."""

    cells: int = 10
    dimensions: int = 2

    def __post_init__(self) -> None:
        if self.cells < 1 or self.dimensions < 1:
            raise ValueError(f"cells={self.cells}, dimensions={self.dimensions}: both are at least 1.")

    def initial(self) -> Int[Array, " cells"]:
        return jnp.zeros(self.cells**self.dimensions, jnp.int32)

    def episode(
        self, competence: Int[Array, " cells"], x: Float[Array, " D"]
    ) -> tuple[Int[Array, " cells"], Float[Array, ""]]:
        """One episode on the task `x`: `(competence, reward)`. Raises ValueError for an x with too few coordinates."""
        if len(x) < self.dimensions:
            raise ValueError(f"x has {len(x)} coordinates; {self.dimensions} are needed.")
        index = jnp.floor(x[: self.dimensions] * self.cells).astype(jnp.int32)
        index = jnp.clip(index, 0, self.cells - 1)
        strides = self.cells ** np.arange(self.dimensions - 1, -1, -1)
        cell = jnp.sum(index * strides)
        unlocked = cell == 0
        for back in itertools.product((0, 1), repeat=self.dimensions):
            other = jnp.sum(jnp.maximum(index - jnp.array(back), 0) * strides)
            unlocked = unlocked | ((other != cell) & (competence[other] >= MASTERY))
        now = jnp.minimum(competence[cell] + unlocked, MOST)
        return competence.at[cell].set(now), now / MOST

    def episodes(
        self, competence: Int[Array, " cells"], x: Float[Array, "n D"]
    ) -> tuple[Int[Array, " cells"], Float[Array, " n"]]:
        """One after another: `(competence, rewards)`."""
        return jax.lax.scan(self.episode, competence, x)

    def mastered(self, competence: Int[Array, " cells"]) -> Float[Array, ""]:
        """The share of cells with competence above 75."""
        return jnp.mean(competence > MASTERY)
