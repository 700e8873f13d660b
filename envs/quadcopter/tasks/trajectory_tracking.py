"""Quadcopter-TrajectoryTracking-v0: follow a path that is given as a function of time.

`path=` is one of `paths.PATHS`: `circle`, `figure_eight` (learning-to-fly's), `upright_eight` (crazyflow's),
`lissajous` (RLtools'), `waypoints` (a closed spline) or `random`, a smooth one drawn at each reset. The path's numbers
are `params.path`, so a path is a level (`paths.generate`, `paths.mutate`, `paths.validate`):
`TrajectoryTracking(path="random").as_levels()` is the task whose params hold one of the random paths.

| observation | components | unit |
|---|---|---|
| position minus the reference, rotation matrix, velocity minus its, body rates (`task.py`) | 18 | |
| the reference 1, ..., `lookahead` times `spacing` later, minus the position | 3 each | m |
| the last `history` actions, oldest first | A each | 1 |

The first differences are clipped to `clip_position` and `clip_velocity`, as learning-to-fly does to let a policy that
hovers follow a path: with `action="rpm", history=32, lookahead=0` such a policy sees here what it knows.

Actions: collective thrust and body rates (`action=` has others). Reward after the step exp(-2 |p - reference|), as
crazyflow's Figure8; -1 where a coordinate is `arena` off, which ends the episode. It starts near a point of the path, a
random one or (`anywhere=0`) the first, with about its velocity. Time limit 10 s. `info["success"]`: within `reached`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.environment import Transition, pytree, require_non_negative, require_positive, strongly_typed
from jaxrl.math import fence

from .. import dynamics, rotations
from ..courses import paths
from ..courses.paths import PATHS, Path, RandomPaths
from ..dynamics import Drone
from ..scene import Scene
from .task import FlightParams, QuadcopterTask, State


@pytree
class Params(FlightParams):
    max_steps: jax.Array = 1000
    path: Any = PATHS["figure_eight"]  # a Path, or RandomPaths
    anywhere: jax.Array = 1.0  # 1: starts at any time of the path; 0: at its beginning; between: in its first part
    start_position: jax.Array = 0.1  # m, largest distance from the path along each axis
    start_velocity: jax.Array = 0.2  # m/s, likewise
    spacing: jax.Array = 0.1  # s, between the points ahead
    arena: jax.Array = 1.0  # m, largest error of a coordinate
    clip_position: jax.Array = 0.6  # m
    clip_velocity: jax.Array = 5.0  # m/s
    reached: jax.Array = 0.1  # m
    crash: jax.Array = 1.0  # what losing the path costs


class Goal(NamedTuple):
    path: Any  # that was drawn; () where params have it
    begin: Any  # s, the path's time at the start
    points: Any  # (1 + lookahead, 3) m: the reference, and those ahead
    velocity: Any  # (3,) m/s, of the reference


def reward(position: Any, reference: Any) -> Float[Array, "*batch"]:
    """exp(-2 distance), distance in m."""
    return jnp.exp(-2 * rotations.norm(rotations.add(position, reference, -1)))


def _generate(key: Array, params: Params) -> Params:
    return params.replace(path=paths.generate(key, params.path))


def _mutate(key: Array, level: Params) -> Params:
    return level.replace(path=paths.mutate(key, level.path))


@dataclasses.dataclass(frozen=True)
class TrajectoryTracking(QuadcopterTask):
    id: str = dataclasses.field(default="Quadcopter-TrajectoryTracking-v0", kw_only=True)
    Params = Params
    aims = (True, True)

    action: str = "body_rates"
    path: str = "figure_eight"
    lookahead: int = 5  # points of the path ahead
    static_ranges = {"lookahead": (0, 1000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path not in (*PATHS, "level"):
            raise ValueError(f"{self.id}: path={self.path!r}; it is one of {', '.join(PATHS)}.")

    @property
    def num_features(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 3 * self.lookahead

    @property
    def default_params(self) -> Params:
        path = paths.generate(jax.random.key(0), PATHS["random"]) if self.path == "level" else PATHS[self.path]
        return strongly_typed(super().default_params.replace(path=path))

    def as_levels(self) -> Self:
        """The task whose params hold the path: itself, but for random ones."""
        return dataclasses.replace(self, path="level") if self.path == "random" else self

    @property
    def generate(self) -> Callable[..., Params] | None:
        """`(key, params) -> level`, the task of one random path; None where there are none."""
        return _generate if self.path == "random" else None

    @property
    def mutate(self) -> Callable[..., Params] | None:
        """`(key, level) -> level`, its random path changed a little; None where there are none."""
        return _mutate if self.path in ("random", "level") else None

    # ---- the reference

    def flown(self, state: State, params: Params) -> Path:
        """The path of this episode."""
        return state.goal.path if isinstance(params.path, RandomPaths) else params.path

    def now(self, state: State, params: Params) -> Any:
        """The path's time [s]."""
        return state.goal.begin + state.time * (self.substeps * params.dt)

    def references(self, path: Path, time: Any, params: Params) -> tuple[Any, Any]:
        """`points` and `velocity` of `Goal`; fenced, so that they are not made anew for each number that reads them."""
        times = time + params.spacing * jnp.arange(self.lookahead + 1)
        return fence((paths.position(path, times), paths.velocity(path, time)))

    def target(self, state: State, params: Params) -> tuple[Any, Any]:
        goal = state.goal
        return tuple(goal.points[0, i] for i in range(3)), tuple(goal.velocity[i] for i in range(3))

    # ---- the task

    def start(self, key: Key[Array, ""], params: Params) -> tuple[Drone, Any]:
        path_key, key = jax.random.split(key)
        drawn = paths.generate(path_key, params.path) if isinstance(params.path, RandomPaths) else ()
        path: Any = params.path if isinstance(drawn, tuple) else drawn
        u = jax.random.uniform(key, (7,))
        begin = params.anywhere * u[6] * path.period
        spread = 2 * u - 1
        points, velocity = self.references(path, begin, params)
        drone = dynamics.at_rest(params.model, tuple(points[0] + params.start_position * spread[:3]))
        drone = drone._replace(velocity=tuple(velocity + params.start_velocity * spread[3:6]))
        return drone, Goal(drawn, begin, points, velocity)

    def measured(self, state: State, params: Params) -> list:
        seen = super().measured(state, params)
        seen[:3] = [jnp.clip(x, -params.clip_position, params.clip_position) for x in seen[:3]]
        seen[12:15] = [jnp.clip(x, -params.clip_velocity, params.clip_velocity) for x in seen[12:15]]
        return seen

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"{axis} of point {k} - {axis} [m]" for k in range(1, self.lookahead + 1) for axis in "xyz")

    def features(self, state: State, params: Params) -> Float[Array, "F"]:
        return (state.goal.points[1:] - jnp.stack(state.drone.position)).reshape(-1)

    def judge(self, state: State, action: Float[Array, "A"], drone: Drone, params: Params) -> Transition:
        time = self.now(state, params) + self.substeps * params.dt
        points, velocity = self.references(self.flown(state, params), time, params)
        reference = tuple(points[0, i] for i in range(3))
        error = rotations.add(drone.position, reference, -1)
        distance = rotations.norm(error)
        worst = jnp.maximum(jnp.maximum(jnp.abs(error[0]), jnp.abs(error[1])), jnp.abs(error[2]))
        lost = worst > params.arena
        gain = jnp.where(lost, -params.crash, reward(drone.position, reference))
        info = {"distance": distance, "success": distance < params.reached}
        goal = state.goal._replace(points=points, velocity=velocity)
        return Transition(goal, gain, lost, jnp.bool_(False), info)

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "spacing", "arena", "clip_position", "clip_velocity", "reached")
        require_non_negative(self, params, "anywhere", "start_position", "start_velocity")
        paths.validate(params.path, self.id)

    def scene(self, state: State, params: Params) -> Scene:
        path = self.flown(state, params)
        points = np.asarray(paths.position(path, jnp.linspace(0, 1, 200) * path.period))
        middle = ((points.min(0) + points.max(0)) / 2).tolist()
        span = max(2.0, 1.6 * float(np.max(points.max(0) - points.min(0))))
        scene = Scene(middle, span, float(points[:, 2].min()) - 0.2 * span)
        scene.path(points)
        scene.mark([float(x) for x in self.target(state, params)[0]])
        return scene
