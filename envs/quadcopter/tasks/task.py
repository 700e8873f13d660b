"""What every quadcopter task shares: a drone in the loop of an action level, disturbed, with noisy sensors.

A task writes `start`, `judge` and, where it has them, `target` and `features`. One step holds the action for
`substeps` physics steps; a swarm is the same code on scalars that have become `(M,)` arrays.

| observation | components | frame, unit |
|---|---|---|
| position minus the target's | 3 | world, m |
| rotation matrix, by rows | 9 | body to world |
| velocity minus the target's | 3 | world, m/s |
| body rates | 3 | body, rad/s |
| the task's features | | |
| the last `history` actions, oldest first | 4 each | 1 |

With `noise` the first 18 are measured with normal errors. With `privileged` the observation is a dict
`{"obs": ..., "privileged": ...}` whose second part, without errors, is these 18, the disturbing force [N] and torque
[N m], the rotors' speed from -1 to 1, with `gusts` the wind [m/s, world] and with `battery` its charge. Actions:
`control/actions.py`.

`gusts=True` adds Dryden turbulence (`../wind.py`, one for all drones of a task, held for a control step) to the mean
wind; `battery=True` slows the rotors as the battery sags (`../battery.py`). Both are numbers of `params`.

An action that is not finite ends the episode as `info["invalid"]`, and so does a state that overflows; in a swarm that
says whose it was, and the others fly that step as they would.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.environment import (
    Environment,
    Hints,
    Transition,
    pytree,
    require_non_negative,
    require_positive,
    strongly_typed,
)
from jaxrl.math import fence, rough_normals
from jaxrl.spaces import Box, Dict
from jaxrl.telemetry import Curve, Plane, Quantity, named

from .. import checks, dynamics, models, rotations, wind
from ..battery import Battery, discharge, voltage_ratio
from ..control import actions
from ..dynamics import Drone, Physics, Surroundings
from ..scene import Scene


@pytree
class FlightParams:
    """What the parameters of every task begin with."""

    max_steps: jax.Array = 500
    model: Any = models.CRAZYFLIE
    dt: jax.Array = 0.01  # s, of a physics step
    scales: Any = None  # of an action level with a loop; None: `actions.default_scales`
    force_std: jax.Array = 0.0  # of a force that lasts an episode, in weights, each axis of the world
    torque_std: jax.Array = 0.0  # m, of a torque that lasts an episode, in weights, each axis of the body
    wind: jax.Array = (0.0, 0.0, 0.0)  # m/s, the mean in the world; for physics with drag
    turbulence: Any = None  # wind.Dryden; with `gusts`
    battery: Any = None  # battery.Battery; with `battery`
    start_charge: jax.Array = (0.3, 1.0)  # of the battery, least and most
    ranges: Any = None  # models.Ranges, for the level functions of `models`; None: theirs
    position_noise: jax.Array = 0.001  # m, standard deviations of the sensors
    rotation_noise: jax.Array = 0.001  # of each entry of the matrix
    velocity_noise: jax.Array = 0.002  # m/s
    rate_noise: jax.Array = 0.002  # rad/s


@pytree
class State:
    time: jax.Array  # steps since reset
    drone: Any  # dynamics.Drone of scalars; of (M,) in a swarm
    goal: Any  # the task's own
    control: Any  # what the inner loops of the action level remember
    force: Any  # 3 scalars, N, in the world
    torque: Any  # 3 scalars, N m, in the body
    history: jax.Array  # (history * A,) the last actions, oldest first
    pending: jax.Array  # (latency, A) actions on their way, the next first
    gust: Any = None  # wind.Gust; with `gusts`
    charge: Any = None  # of the battery, from 0 to 1; with `battery`


@dataclasses.dataclass(frozen=True)
class QuadcopterTask(Environment):
    """Static settings of every task; a task's own come after."""

    Params = FlightParams
    physics: Physics = dynamics.L2F
    action: str = "rpm"
    substeps: int = 1  # physics steps a control step
    history: int = 0  # actions in the observation
    latency: int = 0  # control steps before an action reaches the motors
    noise: bool = False
    privileged: bool = False
    gusts: bool = False
    battery: bool = False
    static_ranges = {"substeps": (1, 1000), "history": (0, 1000), "latency": (0, 1000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.check_physics(self.physics, self.id)
        if self.action not in actions.SIZES:
            raise ValueError(f"{self.id}: action={self.action!r}; it is one of {', '.join(actions.SIZES)}.")
        if self.gusts and self.physics.drag == "none":
            raise ValueError(f"{self.id}: gusts=True needs physics with drag; the wind acts on nothing else.")

    # ---- what a task writes

    def start(self, key: Key[Array, ""], params: Any) -> tuple[Drone, Any]:
        """The drone and the task's own state at the start of an episode."""
        raise NotImplementedError

    def judge(self, state: State, action: Float[Array, "*agents A"], drone: Drone, params: Any) -> Transition:
        """`Transition(goal, reward, terminated, truncated, info)` after `action` moved `state.drone` to `drone`."""
        raise NotImplementedError

    def target(self, state: State, params: Any) -> tuple[Any, Any]:
        """Position [m] and velocity [m/s] that the observation is relative to."""
        return (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)

    def features(self, state: State, params: Any) -> Any:
        """More to observe: `num_features` scalars, or an array with them on the last axis."""
        return ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Of the features, `x [m]`; for several drones those of one."""
        return ()

    aims = (True, False)
    """Whether the target's position and velocity are where the drone should be, and not only where it measures from."""
    downwash = False  # a setting of tasks with several drones: those above take thrust from those below
    num_features = 0
    sensors = (3, 9, 3, 3)
    """How many components of `measured` are a position, an attitude, a velocity and rates: each has its own noise."""
    measured_names = (
        *(f"{axis} - target [m]" for axis in "xyz"),
        *(f"R_{row}{column}" for row in "123" for column in "123"),
        *(f"v_{axis} - target [m/s]" for axis in "xyz"),
        *(f"rate_{axis} [rad/s]" for axis in ("roll", "pitch", "yaw")),
    )

    def scene(self, state: State, params: Any) -> Scene:
        """What a picture shows but the drones: the arena, goals, references. Host only."""
        return Scene((0.0, 0.0, 1.0), 4.0)

    # ---- what the base class makes of it

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return actions.NAMES[self.action]

    @property
    def observation_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        past = [
            name for back in range(self.history, 0, -1) for name in named(actions.NAMES[self.action], f"{back} ago: ")
        ]
        return (*self.measured_names, *self.feature_names, *past)

    def measures(self, params: Any) -> dict[str, dict[str, str]]:
        """What the ends of an action are, and of past ones in the observation."""
        model = params.model if np.ndim(params.model.max_rpm) == 0 else jax.tree.map(lambda x: x[0], params.model)
        said = dict(zip(actions.NAMES[self.action], actions.ends(self.action, model, params.scales), strict=False))
        past = {name: said.get(name.partition(" ago: ")[2], "") for name in self.observation_names if " ago: " in name}
        return {"obs": {name: end for name, end in past.items() if end}, "action": said}

    def telemetry(self, state: State, params: Any) -> dict[str, Quantity]:
        """Where the drone is, how it moves and turns, and how fast its rotors are; of several, each entry (M,)."""
        drone, (position, velocity) = state.drone, self.target(state, params)
        at, to = self.aims
        roll_pitch_yaw = zip(("roll", "pitch", "yaw"), rotations.euler(drone.quaternion), drone.body_rates, strict=True)
        of_axes = list(zip("xyz", drone.position, position, drone.velocity, velocity, strict=True))
        turning = {name: (angle, rate) for name, angle, rate in roll_pitch_yaw}

        def aimed(x, target, wanted):
            return Quantity(x, jnp.broadcast_to(target, jnp.shape(x)) if wanted else None)

        return {
            **{f"{axis} [m]": aimed(x, target, at) for axis, x, target, _, _ in of_axes},
            **{f"v_{axis} [m/s]": aimed(v, target, to) for axis, _, _, v, target in of_axes},
            **{f"{name} [rad]": Quantity(angle) for name, (angle, _) in turning.items()},
            **{f"rate_{name} [rad/s]": Quantity(rate) for name, (_, rate) in turning.items()},
            **{f"rotor {i} [rpm]": Quantity(n, high=params.model.max_rpm) for i, n in enumerate(drone.rpm, 1)},
        }

    def planes(self, telemetry: dict[str, Quantity], params: Any) -> list[Plane]:
        """The flight from above and from the side."""
        found = []
        for title, (a, b) in (("From above", "xy"), ("From the side", "xz")):
            (x, x_wanted, *_), (y, y_wanted, *_) = telemetry[f"{a} [m]"], telemetry[f"{b} [m]"]
            drones = [""] if x.ndim == 1 else [f" {i}" for i in range(1, x.shape[1] + 1)]
            columns = [None if v is None else v.reshape(len(v), -1).T for v in (x, y, x_wanted, y_wanted)]
            curves = []
            for i, name in enumerate(drones):
                along, up, along_wanted, up_wanted = (None if v is None else v[i] for v in columns)
                curves.append(Curve(f"drone{name}", along, up, "path"))
                if along_wanted is not None and up_wanted is not None:
                    still = np.ptp(along_wanted) == 0 and np.ptp(up_wanted) == 0
                    kept = slice(1) if still else slice(None)
                    style = "dots" if still else "dash"
                    curves.append(Curve(f"target{name}", along_wanted[kept], up_wanted[kept], style))
            found.append(Plane(title, f"{a} [m]", f"{b} [m]", curves, equal=True))
        return found

    @property
    def default_params(self) -> Any:
        return strongly_typed(
            self.Params(
                scales=actions.default_scales(self.action),
                turbulence=wind.Dryden() if self.gusts else None,
                battery=Battery() if self.battery else None,
            )
        )

    @property
    def hints(self) -> Hints:  # pyright: ignore[reportIncompatibleVariableOverride]
        # `fly` has fenced the state
        return Hints(deterministic=not (self.noise or self.gusts), noiseless=not self.noise, fenced=False)

    @property
    def agents(self) -> tuple[int, ...]:
        """The shape of what is a scalar of one drone."""
        return (self.num_agents,) if self.num_agents > 1 else ()

    def initial(self, key: Array, params: Any) -> State:
        start_key, disturb_key, gust_key, charge_key = jax.random.split(key, 4)
        drone, goal = self.start(start_key, params)
        drone = drone._replace(rpm=dynamics.within_limits(params.model, drone.rpm))
        normals = jax.random.normal(disturb_key, (6, *self.agents))
        weight = params.model.weight
        action = jnp.zeros((*self.agents, actions.SIZES[self.action]))
        gust = charge = None
        if self.gusts:
            gust = wind.init(jax.random.normal(gust_key, (5,)), params.turbulence)
        if self.battery:
            unit = jax.random.uniform(charge_key, self.agents)
            charge = params.start_charge[0] + unit * (params.start_charge[1] - params.start_charge[0])
        return State(
            time=jnp.int32(0),
            drone=drone,
            goal=goal,
            control=actions.initial_carry(self.action, self.agents),
            force=tuple(params.force_std * weight * normals[i] for i in range(3)),
            torque=tuple(params.torque_std * weight * normals[i] for i in range(3, 6)),
            history=jnp.concatenate([action] * self.history, -1) if self.history else action[..., :0],
            pending=jnp.stack([action] * self.latency) if self.latency else action[None][:0],
            gust=gust,
            charge=charge,
        )

    def transition(self, key: Array, state: State, action: Float[Array, "*agents A"], params: Any) -> Transition:
        valid = jnp.all(jnp.isfinite(action), -1)
        # Fences: what an action is made of would else be made anew for each number of the new state.
        action = fence(jnp.where(valid[..., None], jnp.clip(action, -1, 1), 0).astype(state.history.dtype))
        applied, pending = action, state.pending
        if self.latency:
            applied, pending = pending[0], jnp.concatenate([pending[1:], action[None]])
        drone, control = self.fly(state, applied, params)
        # Squares, since observations and rewards have products of two: what overflows in them has overflowed here.
        finite = fence(jnp.isfinite(8 * sum(x * x for field in drone for x in field)))
        drone = jax.tree.map(lambda new, old: jnp.where(finite, new, old), drone, state.drone)
        goal, reward, terminated, truncated, info = self.judge(state, action, drone, params)
        invalid = ~(valid & finite)
        history = (
            jnp.concatenate([state.history, action], -1)[..., action.shape[-1] :] if self.history else state.history
        )
        period = self.substeps * params.dt
        gust, charge = state.gust, state.charge
        if self.gusts:
            gust = wind.step(gust, jax.random.normal(key, (5,)), params.turbulence, period)[0]
        if self.battery:
            charge = discharge(charge, drone.rpm, params.model, params.battery, period)
        state = state.replace(
            drone=drone, goal=goal, control=control, history=history, pending=pending, gust=gust, charge=charge
        )
        anyone = jnp.any(invalid)
        info = {**info, "invalid": invalid if self.num_agents > 1 else anyone}
        return Transition(state, reward, terminated | anyone, truncated, info)

    def fly(self, state: State, action: Float[Array, "*agents A"], params: Any) -> tuple[Drone, Any]:
        """The drone and the inner loops' memory after `substeps` physics steps."""

        model, scales = params.model, params.scales
        seen = actions.loop_model(model, self.physics)
        held, control = actions.hold(
            self.action, action, state.control, state.drone, seen, scales, self.substeps * params.dt
        )
        if self.action in actions.HELD_LOOPS:  # otherwise the loop runs for each number that the physics gives
            held, control = fence((held, control))

        def body(_, carry):
            drone, control = carry
            command, control = actions.command(self.action, held, control, drone, seen, scales, params.dt)
            command, control = fence((self.supplied(command, state, drone, params), control))
            around = self.surroundings(state, drone, params)
            return dynamics.step(model, drone, command, params.dt, self.physics, around), control

        carry = state.drone, control
        if self.substeps > 1:
            return jax.lax.fori_loop(0, self.substeps, body, carry)
        # Otherwise all that reads the new state would fly again.
        return fence(body(0, carry))

    def supplied(self, command: Any, state: State, drone: Drone, params: Any) -> Any:
        """What the battery's voltage makes of a rotor speed command (4,) [rpm]."""
        if not self.battery:
            return command
        ratio = voltage_ratio(state.charge, drone.rpm, params.model, params.battery)
        return tuple(ratio * n for n in command)

    def wind_at(self, state: State, params: Any) -> Any:
        """Mean wind and gust (3,) [m/s], in the world; the gust's first component is along the mean wind."""
        mean = tuple(params.wind)
        if not self.gusts:
            return mean
        still = (mean[0] == 0) & (mean[1] == 0)  # where arctan2 has no derivative
        heading = jnp.arctan2(mean[1], jnp.where(still, 1, mean[0]))
        return rotations.add(mean, wind.in_world(wind.gust(state.gust, params.turbulence), heading))

    def surroundings(self, state: State, drone: Drone, params: Any) -> Surroundings:
        """What acts on the drone from outside."""
        around = self.wind_at(state, params) if self.physics.drag != "none" else None
        loss = dynamics.downwash(params.model, jnp.stack(drone.position, -1)) if self.downwash else None
        return Surroundings(state.force, state.torque, around, loss)

    def measured(self, state: State, params: Any) -> list:
        """The scalars that sensors see: 18 but for tasks with other `sensors`."""
        drone = state.drone
        position, velocity = self.target(state, params)
        rows = rotations.matrix(drone.quaternion)
        return [
            *rotations.add(drone.position, position, -1),
            *rows[0],
            *rows[1],
            *rows[2],
            *rotations.add(drone.velocity, velocity, -1),
            *drone.body_rates,
        ]

    def observe(self, key: Array, state: State, params: Any) -> Any:
        exact = jnp.stack(self.measured(state, params), -1)
        seen = exact
        if self.noise:
            spread = (params.position_noise, params.rotation_noise, params.velocity_noise, params.rate_noise)
            scale = jnp.repeat(jnp.stack(spread), jnp.array(self.sensors), total_repeat_length=sum(self.sensors))
            seen = exact + scale * rough_normals(key, exact.shape).astype(exact.dtype)
        parts = [seen]
        if self.num_features:
            features = self.features(state, params)
            parts.append(jnp.stack(features, -1) if isinstance(features, tuple) else features)
        if self.history:
            parts.append(state.history)
        obs = jnp.concatenate(parts, -1) if len(parts) > 1 else seen
        if not self.privileged:
            return obs
        scale = 2 / params.model.max_rpm
        hidden = [*state.force, *state.torque, *(scale * n - 1 for n in state.drone.rpm)]
        if self.gusts:
            hidden += [jnp.broadcast_to(x, self.agents) for x in self.wind_at(state, params)]
        if self.battery:
            hidden.append(state.charge)
        return {"obs": obs, "privileged": jnp.concatenate([exact, jnp.stack(hidden, -1)], -1)}

    def observation_space(self, params: Any) -> Any:
        measured = sum(self.sensors)
        size = measured + self.num_features + self.history * actions.SIZES[self.action]
        box = Box(-jnp.inf, jnp.inf, (size,))
        hidden = measured + 10 + 3 * self.gusts + self.battery
        return Dict({"obs": box, "privileged": Box(-jnp.inf, jnp.inf, (hidden,))}) if self.privileged else box

    def action_space(self, params: Any) -> Box:
        return Box(-1.0, 1.0, (actions.SIZES[self.action],))

    def render(self, state: State, params: Any) -> np.ndarray:
        return self.picture(self.scene(state, params), state, params)

    def render_episode(self, states: State, params: Any) -> list[np.ndarray]:
        flown = np.stack([np.asarray(x) for x in states.drone.position], -1)
        frames = []
        for t in range(len(flown)):
            state = jax.tree.map(lambda x, t=t: x[t], states)
            scene = self.scene(state, params)
            scene.trails(flown[: t + 1])
            frames.append(self.picture(scene, state, params))
        return frames

    def picture(self, scene: Scene, state: State, params: Any) -> np.ndarray:
        """`scene` with all drones, the time and, of one drone, where it is. Host only."""
        scene.drones(state.drone)
        at = np.asarray(state.drone.position)
        where = "   at ({:.2f}, {:.2f}, {:.2f}) m".format(*at) if at.shape == (3,) else ""
        scene.canvas.caption(f"t = {int(state.time) * self.substeps * float(params.dt):.2f} s{where}")
        return scene.image()

    def validate(self, params: Any) -> None:
        checks.check_model(params.model, self.id)
        blown = self.gusts or bool(np.any(np.asarray(params.wind) != 0))
        checks.check_fit(params.model, self.physics, self.id, wind=blown, downwash=self.downwash, battery=self.battery)
        if params.ranges is not None:
            models.check_ranges(params.ranges, self.id)
        require_positive(self, params, "dt", "max_steps")
        noises = (f"{name}_noise" for name in ("position", "rotation", "velocity", "rate"))
        require_non_negative(self, params, "force_std", "torque_std", *noises)
        given = {"gusts": params.turbulence, "battery": params.battery}
        for name, value in given.items():
            if getattr(self, name) != (value is not None):
                raise ValueError(f"{self.id}: {name}={getattr(self, name)} and its numbers in params: {value}.")
        if self.gusts:
            for name in ("sigma", "length", "airspeed"):
                require_positive(self, params.turbulence, name)
        if self.battery:
            for name in ("full", "empty", "resistance", "capacity", "efficiency"):
                require_positive(self, params.battery, name)
            low, high = (np.asarray(x) for x in params.start_charge)
            if not np.all((low >= 0) & (low <= high) & (high <= 1)):
                raise ValueError(f"{self.id}: start_charge={params.start_charge} must be 0 <= least <= most <= 1.")
