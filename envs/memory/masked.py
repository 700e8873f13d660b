"""Masked: control tasks of which positions alone are seen, or velocities alone, so that the rest has to be inferred.

POBAX (Tao et al. 2025, github taodav/pobax, commit a5e1d62) has `<task>-P-v0` and `<task>-V-v0`, POPGym (Morad et al.
2023) the same of CartPole and Pendulum. Everything but the observation is that of the task of the name.

| task | positions, `-P-v0` | velocities, `-V-v0` |
|---|---|---|
| `Acrobot-v1` | cosine and sine of both angles | both angular velocities |
| `CartPole-v1` | cart's position, pole's angle | both velocities |
| `HalfCheetah-v5` | the first 8 numbers | the other 9 |
| `Hopper-v5` | the first 5 numbers | the other 6 |
| `MountainCar-v0` | position | velocity |
| `Pendulum-v1` | cosine and sine of the angle | angular velocity |
| `Walker2d-v5` | the first 8 numbers | the other 9 |

POBAX's `HalfCheetah-P-v0` shows numbers 0 to 3 and 8 to 12 of Brax's observation, and `-V-v0` the others, which mixes
positions and velocities; here they are apart. Its walkers are Brax's, ours MuJoCo's of Gymnasium.
"""

from __future__ import annotations

import dataclasses

from jaxrl import registry
from jaxrl.environment import Environment
from jaxrl.wrappers.vectors import Observed

from .ids import PARTS

SHOWN = {
    "Acrobot-v1": ((0, 1, 2, 3), (4, 5)),
    "CartPole-v1": ((0, 2), (1, 3)),
    "HalfCheetah-v5": (tuple(range(8)), tuple(range(8, 17))),
    "Hopper-v5": (tuple(range(5)), tuple(range(5, 11))),
    "MountainCar-v0": ((0,), (1,)),
    "Pendulum-v1": ((0, 1), (2,)),
    "Walker2d-v5": (tuple(range(8)), tuple(range(8, 17))),
}
"""Where the positions and the velocities stand in the observation."""


@dataclasses.dataclass(frozen=True)
class Masked(Observed):
    """The task `name` with the observation's `part`, "positions" or "velocities"."""

    env: Environment = dataclasses.field(init=False)
    indices: tuple[int, ...] = dataclasses.field(default=(), init=False)
    name: str = "CartPole-v1"
    part: str = "positions"

    def __post_init__(self) -> None:
        parts = tuple(PARTS.values())
        for field, value, known in (("name", self.name, tuple(SHOWN)), ("part", self.part, parts)):
            if value not in known:
                raise ValueError(f"Masked: {field}={value!r} must be one of {', '.join(map(repr, known))}.")
        # The task is imported here and not before: the walkers need what others do not.
        object.__setattr__(self, "env", registry.make(self.name)[0])
        object.__setattr__(self, "indices", SHOWN[self.name][parts.index(self.part)])
        super().__post_init__()
