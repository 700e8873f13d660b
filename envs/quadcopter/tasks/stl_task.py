"""Tasks that are formulas of signal temporal logic: places to visit in their windows of time, and safety throughout.

    for all k: eventually(there_k & on_time_k)   and   always(clear & inside)

`stl.monitor` evaluates the conjuncts while the drone flies; the task's robustness, positive where it is fulfilled, is
the least of them, cut off at +-`most` [m]. Samples are taken at control steps, the first at the start. An episode ends
when the last window closes, or when the drone is not safe.

| `reward` | each step | return |
|---|---|---|
| `conjuncts` | the change of the sum of all conjuncts' robustness | its sum, less that of the first sample |
| `running` | the change of their least, the robustness so far | the robustness, less that of the first sample |
| `final` | the robustness at the end, else 0 | the robustness |

A conjunct's robustness so far is -`most` until its window opens, so `running` says nothing before all are open. It
depends on the past: all are observed.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Key

from jaxrl.environment import Transition, pytree, require_positive, strongly_typed
from jaxrl.exact import stl

from .. import dynamics
from ..dynamics import Drone
from .task import FlightParams, QuadcopterTask, State

REWARDS = ("conjuncts", "running", "final")


@pytree
class SpecifiedParams(FlightParams):
    max_steps: jax.Array = 200
    arena: jax.Array = (3.0, 3.0, 3.0)  # m: |x|, |y| and z have to stay below, and z above 0
    most: jax.Array = 8.0  # m, where the robustness of a conjunct is cut off


class Progress(NamedTuple):
    """The task's own part of the state."""

    layout: Any
    watches: Any  # the monitors' carries: of the visits, with a leading axis K, and of safety
    visits: Array  # (K,) m, robustness so far
    safety: Array  # m, likewise

    @property
    def robustness(self) -> Array:
        """Of the whole task so far [m]."""
        return jnp.minimum(jnp.min(self.visits), self.safety)


# ---- predicates that tasks share; a signal has `position` (T, 3), `time` (T,) in control steps, and what they need


@stl.predicate
def on_time(signal: Any) -> Float[Array, " T"]:
    """Whether a window is open, of any robustness."""
    time = signal["time"]
    return jnp.where((time >= signal["open"]) & (time <= signal["close"]), jnp.inf, -jnp.inf)


@stl.predicate
def inside(signal: Any) -> Float[Array, " T"]:
    """The distance to the arena's nearest wall, from inside [m]."""
    position, (x, y, z) = signal["position"], (signal["arena"][..., i] for i in range(3))
    walls = (x - jnp.abs(position[..., 0]), y - jnp.abs(position[..., 1]), position[..., 2], z - position[..., 2])
    return jnp.minimum(jnp.minimum(walls[0], walls[1]), jnp.minimum(walls[2], walls[3])) - signal["radius"]


# ---- the task


@dataclasses.dataclass(frozen=True)
class SpecifiedTask(QuadcopterTask):
    """A task writes `generated`, `starts_at`, `visits`, `hazards`, `deadline`, and two formulas."""

    action: str = "velocity"
    substeps: int = 5
    reward: str = "conjuncts"

    visit: ClassVar[stl.Formula]
    avoid: ClassVar[stl.Formula]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reward not in REWARDS:
            raise ValueError(f"{self.id}: reward={self.reward!r}; it is one of {', '.join(REWARDS)}.")

    # ---- what a task writes

    def generated(self, key: Key[Array, ""], params: Any) -> Any:
        """The layout of an episode: drawn, or the level's."""
        raise NotImplementedError

    def starts_at(self, layout: Any) -> Float[Array, "3"]:
        """[m]"""
        raise NotImplementedError

    def visits(self, layout: Any, position: Float[Array, "3"], time: Integer[Array, ""], params: Any) -> dict:
        """A sample of the signal of each of K visits: leaves (K, ...)."""
        raise NotImplementedError

    def hazards(self, layout: Any, position: Float[Array, "3"], time: Integer[Array, ""], params: Any) -> dict:
        """A sample of the signal of safety."""
        raise NotImplementedError

    def deadline(self, layout: Any) -> Integer[Array, ""]:
        """When the last window closes [control steps]."""
        raise NotImplementedError

    # ---- what this class makes of it

    @property
    def default_params(self) -> Any:
        params = super().default_params
        own = {f.name for f in dataclasses.fields(params)} - {f.name for f in dataclasses.fields(FlightParams)}
        tuples = {name: jnp.asarray(getattr(params, name)) for name in own if isinstance(getattr(params, name), tuple)}
        return strongly_typed(params.replace(**tuples))

    def start(self, key: Key[Array, ""], params: Any) -> tuple[Drone, Progress]:
        layout = self.generated(key, params)
        drone = dynamics.at_rest(params.model, tuple(self.starts_at(layout)))
        dtype = drone.position[0].dtype
        signal = jax.eval_shape(lambda: self.visits(layout, jnp.zeros(3, dtype), jnp.int32(0), params))
        number = jax.tree.leaves(signal)[0].shape[0]
        visits = jax.tree.map(lambda x: jnp.broadcast_to(x, (number, *x.shape)), stl.monitor(self.visit).init(dtype))
        watches = visits, stl.monitor(self.avoid).init(dtype)
        return drone, self.watched(layout, watches, drone, jnp.int32(0), params)

    def watched(self, layout: Any, watches: Any, drone: Drone, time: Integer[Array, ""], params: Any) -> Progress:
        """The progress after one more sample."""
        position = jnp.stack(drone.position)
        visits, safety = watches
        visits, there = jax.vmap(stl.monitor(self.visit).update)(visits, self.visits(layout, position, time, params))
        safety, safe = stl.monitor(self.avoid).update(safety, self.hazards(layout, position, time, params))
        there, safe = (jnp.clip(x, -params.most, params.most).astype(position.dtype) for x in (there, safe))
        return Progress(layout, (visits, safety), there, safe)

    def judge(self, state: State, action: Float[Array, "A"], drone: Drone, params: Any) -> Transition:
        old, time = state.goal, state.time + 1
        new = self.watched(old.layout, old.watches, drone, time, params)
        over = (time >= self.deadline(old.layout)) | (new.safety <= 0)
        visited, kept = jnp.sum(new.visits - old.visits), new.safety - old.safety
        if self.reward == "conjuncts":
            reward = visited + kept
        elif self.reward == "running":
            reward = new.robustness - old.robustness
        else:
            reward = jnp.where(over, new.robustness, 0)
        info = {
            "robustness": new.robustness,
            "success": over & (new.robustness > 0),
            "visited": jnp.sum(new.visits > 0, dtype=jnp.int32),
            "unsafe": new.safety <= 0,
        }
        return Transition(new, reward, over, jnp.bool_(False), info)

    def as_levels(self) -> Self:
        """The same task whose params are the level."""
        raise NotImplementedError

    def validate(self, params: Any) -> None:
        super().validate(params)
        require_positive(self, params, "arena", "most")


def with_layout(level: Any, params: Any, layout: Any) -> Any:
    """The `level` class with what `params` say of flight, and `layout`."""
    shared = {f.name: getattr(params, f.name) for f in dataclasses.fields(level) if f.name != "layout"}
    return level(**shared, layout=layout)


def settings(env: SpecifiedTask) -> dict[str, Any]:
    """The static settings of `env` but its id."""
    return {f.name: getattr(env, f.name) for f in dataclasses.fields(env) if f.name != "id"}


def check(ok: Bool[np.ndarray, "..."] | Any, what: str) -> None:
    """Raise ValueError that says `what`, unless all is `ok`."""
    if not np.all(ok):
        raise ValueError(what)


def draw_ball(scene: Any, center: Any, radius: Any, color: Any) -> None:
    """The outline of a ball."""
    scene.canvas.circle(scene.project(center), max(float(radius), scene.span / 200), color, outline=scene.span / 200)


def draw_box(scene: Any, center: Any, half: Any, color: Any) -> None:
    """The edges of a box with sides 2 `half`."""
    scene.box(np.asarray(center) - np.asarray(half), np.asarray(center) + np.asarray(half), color)
