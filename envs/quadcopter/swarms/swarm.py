"""What swarm tasks share: M drones that see, touch and blow on one another.

Every agent has the base class's 18 numbers of itself (`tasks/task.py`), then

| observation | components | frame, unit |
|---|---|---|
| 1 for the first drone, the leader, else 0 | 1 | |
| partner's position and velocity minus one's own | 6 | world, m and m/s; only in tasks with partners |
| the same of the `neighbors` nearest others, nearest first | 6 each | world, m and m/s |

Observations, actions and rewards have a leading axis M, and `terminated` is of the whole swarm. With `shared_reward`
everyone earns the mean. With `downwash` drones above take thrust from those below (`dynamics.downwash`, at every
physics step). Two drones touch when their spheres of `model.radius` do, looked at once a control step; `collisions`
says what follows: `ignore`, `penalty` (`collision_penalty` from each that touches), or `terminate` (that, and the end).

Weights shared by all agents: `jaxrl.wrappers.agents_as_slots`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from jaxrl.environment import Transition, pytree, require_non_negative, require_positive

from .. import dynamics, models
from ..dynamics import Drone, Physics
from ..scene import Scene
from ..tasks.task import FlightParams, QuadcopterTask, State

COLLISIONS = ("ignore", "penalty", "terminate")


@pytree
class SwarmParams(FlightParams):
    """As gym-pybullet-drones flies its swarms: CF2X at 240 Hz, 5 s, on a row of take-off points."""

    max_steps: jax.Array = 240
    model: Any = models.CF2X
    dt: jax.Array = 1 / 240
    start_spacing: jax.Array = 0.1588  # m, from a take-off point to the next, along x and y
    start_height: jax.Array = 0.1125  # m
    start_spread: jax.Array = 0.0  # m, largest error of each coordinate
    collision_penalty: jax.Array = 1.0  # of each drone that touches another, each step


def separations(position: Any) -> tuple[Float[Array, "M M"], ...]:
    """[i, j]: from drone i to drone j, along each axis."""
    return tuple(x[None, :] - x[:, None] for x in position)


def distances_squared(position: Any) -> Float[Array, "M M"]:
    """Between all drones, infinite from each to itself."""
    x, y, z = separations(position)
    return x * x + y * y + z * z + jnp.where(jnp.eye(len(x), dtype=bool), jnp.inf, 0)


def touching(position: Any, radius: Any) -> Bool[Array, " M"]:
    """Whether each drone's sphere of `radius` [m] meets another's."""
    return jnp.any(distances_squared(position) < (2 * radius) ** 2, 1)


def nearest(position: Any, velocity: Any, k: int) -> tuple[Float[Array, " M"], ...]:
    """Relative position and velocity, 6 k scalars, of the `k` drones nearest to each, nearest first."""
    index = jax.lax.top_k(-distances_squared(position), k)[1]
    sorted_ = [jnp.take_along_axis(x, index, 1) for x in (*separations(position), *separations(velocity))]
    return tuple(x[:, j] for j in range(k) for x in sorted_)


@dataclasses.dataclass(frozen=True)
class Swarm(QuadcopterTask):
    """A task writes `rewards`, and `partners` and `target` where it has them."""

    Params = SwarmParams

    physics: Physics = dynamics.GPD_DYN.replace(floor="contact")
    action: str = "rpm_band"
    substeps: int = 5
    num_agents: int = 4  # pyright: ignore[reportIncompatibleVariableOverride]
    neighbors: int | None = None  # nearest drones in the observation of each; None: all others
    downwash: bool = False
    collisions: str = "ignore"
    shared_reward: bool = False
    static_ranges = {"num_agents": (2, 100), "neighbors": (0, 99)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbors is not None and self.neighbors >= self.num_agents:
            raise ValueError(
                f"{self.id}: neighbors={self.neighbors} must be from 0 to {self.num_agents - 1}, all the others."
            )
        if self.collisions not in COLLISIONS:
            raise ValueError(f"{self.id}: collisions={self.collisions!r}; it is one of {', '.join(COLLISIONS)}.")

    # ---- what a task writes

    has_partners = False
    aims = (False, False)

    def partners(self, x: Float[Array, " M"]) -> Float[Array, " M"]:
        """`x` of each drone's partner, from `x` of the drones."""
        return x

    def rewards(self, state: State, drone: Drone, params: Any) -> Float[Array, " M"]:
        """Of each drone, after the step that led to `drone`."""
        raise NotImplementedError

    def crashed(self, state: State, drone: Drone, params: Any) -> Bool[Array, " M"]:
        """What ends the episode beside collisions."""
        return jnp.zeros(self.num_agents, bool)

    # ---- what is made of it

    @property
    def others(self) -> int:
        """Neighbours in an observation."""
        return self.num_agents - 1 if self.neighbors is None else self.neighbors

    @property
    def num_features(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1 + 6 * self.has_partners + 6 * self.others

    def start(self, key: Key[Array, ""], params: Any) -> tuple[Drone, Any]:
        index = jnp.arange(self.num_agents, dtype=jnp.result_type(float))
        return self.standing(key, index * params.start_spacing, index * params.start_spacing, params), ()

    def standing(self, key: Key[Array, ""], x: Any, y: Any, params: Any) -> Drone:
        """The swarm at rest over these take-off points, each off by up to `start_spread`; rotors at hover speed."""
        error = params.start_spread * jax.random.uniform(key, (3, self.num_agents), minval=-1.0, maxval=1.0)
        zero = jnp.zeros_like(error[0])
        position = (x + error[0], y + error[1], params.start_height + error[2])
        return Drone(
            position, (zero + 1, zero, zero, zero), (zero,) * 3, (zero,) * 3, (zero + params.model.hover_rpm,) * 4
        )

    def judge(self, state: State, action: Float[Array, "M A"], drone: Drone, params: Any) -> Transition:
        reward = self.rewards(state, drone, params)
        collided = touching(drone.position, params.model.radius)
        crashed = self.crashed(state, drone, params)
        if self.collisions != "ignore":
            reward = reward - jnp.where(collided, params.collision_penalty, 0)
        if self.collisions == "terminate":
            crashed = crashed | collided
        if self.shared_reward:
            reward = jnp.broadcast_to(jnp.mean(reward), reward.shape)
        info = {"collided": collided}
        return Transition(state.goal, reward, jnp.any(crashed), jnp.bool_(False), info)

    @property
    def feature_names(self) -> tuple[str, ...]:
        of = [f"{v}{axis}{unit}" for v, unit in (("", " [m]"), ("v_", " [m/s]")) for axis in "xyz"]
        partner = [f"partner {name}" for name in of] if self.has_partners else []
        return ("leader", *partner, *(f"neighbour {k} {name}" for k in range(1, self.others + 1) for name in of))

    def features(self, state: State, params: Any) -> tuple:
        position, velocity = state.drone.position, state.drone.velocity
        leader = (jnp.arange(self.num_agents) == 0).astype(position[0].dtype)
        partner = tuple(self.partners(x) - x for x in (*position, *velocity)) if self.has_partners else ()
        return leader, *partner, *(nearest(position, velocity, self.others) if self.others else ())

    def validate(self, params: Any) -> None:
        super().validate(params)
        require_positive(self, params, "start_spacing")
        require_non_negative(self, params, "start_spread", "collision_penalty")

    def scene(self, state: State, params: Any) -> Scene:
        scene = Scene(center=(0.0, 0.0, 0.8), span=4.0)
        for point in self.marks(state, params):
            scene.mark(point)
        return scene

    def marks(self, state: State, params: Any) -> list[Any]:
        """Points [m] that a picture shows."""
        return []
