"""StumpWalker-v0: a planar biped walks over stumps whose mean height and spacing are parameters, hence a level.

The stump tracks of Portelas, Colas, Hofmann and Oudeyer (2019), "Teacher algorithms for curriculum learning of Deep RL
in continuously parameterized environments" (arXiv:1910.07224), on Gymnasium's BipedalWalker; sizes, motors, reward and
observation are theirs. They simulate in Box2D, here the physics is MuJoCo's (`biped/`), so returns are alike, not
equal. Each episode draws its track: from x = 9.33 m on, stumps 0.47 m wide, `stump_spacing` apart and
`max(N(stump_height, height_std), least_height)` high, in units of 14/30 m.

| observation | scale | range |
|---|---|---|
| hull: angle, angular velocity | rad, 1/25 rad/s | |
| hull: velocity of the centre of mass, x and z | 0.12 and 0.08 m/s | |
| each leg: hip angle and speed, knee angle + 1 and speed, shank on the track | rad, 4 and 6 rad/s | the last 0 or 1 |
| ten lidar rays from the hull's origin, from straight down to 77 degrees ahead | share of 5.33 m | [0, 1] |

Action: hip, knee, hip, knee in [-1, 1], clipped: direction of the motor and share of its torque, 80 N m at rest falling
to 0 at 4 (hip) or 6 rad/s (knee). Reward, of a step of 1/50 s:

    130/30 dx - 5 d|angle| - 0.028 sum |action|,   or -100 if the hull touches the track or x < 0

which ends the episode, as passing x = 88.67 m does. Time limit 2,000 steps.

Other than in the reference: motors there give their full torque up to the speed; legs have round ends here; the hull is
looked at after each step, not in between; a walker starts on its feet, its legs 0.05 rad to either side and its knees
at the limit, pushed by up to 5 N for one step as a whole.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from jaxrl.environment import Environment, Hints, Transition, pytree, require_non_negative, require_positive
from jaxrl.math import fence, sincos
from jaxrl.spaces import Box
from jaxrl.telemetry import Quantity

from . import biped
from .biped import HULL, LEG, SCALE, Physics, Track

STEP = 14 / SCALE
"""A terrain step [m]: the width of a stump, and the unit of heights."""

START, FINISH, END = 20 * STEP, 190 * STEP, 200 * STEP
"""Where stumps begin, where the episode is won, and where stumps stop [m]."""

LEAST_SPACING = 0.01
MOST_STUMPS = math.ceil((END - START) / (STEP + LEAST_SPACING))
RANGE = 160 / SCALE
"""Of the lidar [m]."""

FPS = 50


@pytree
class Params:
    max_steps: jax.Array = 2000
    stump_height: jax.Array = 0.5  # mean, in steps of 14/30 m; the paper's tasks are 0 to 3
    stump_spacing: jax.Array = 4.0  # m, at least 0.01; the paper's tasks are 0 to 6
    height_std: jax.Array = 0.1  # steps
    least_height: jax.Array = 0.05  # steps; a stump that is not above 0 is none
    physics: Any = Physics()
    forward: jax.Array = 130 / SCALE  # reward a metre
    upright: jax.Array = 5.0  # a rad
    effort: jax.Array = 0.028  # a motor at full torque and step
    fall: jax.Array = 100.0
    push: jax.Array = 5.0  # N, the largest at the start


FLAT = Params().replace(stump_height=-1.0, height_std=0.0, least_height=-1.0)
"""Without stumps."""


@pytree
class State:
    time: jax.Array  # steps since reset
    qpos: jax.Array  # (7,) x, z [m], pitch, hip, knee, hip, knee [rad]: MuJoCo's, of `biped.mjcf`
    qvel: jax.Array  # (7,) their rates
    qacc: jax.Array  # (7,) the last accelerations: a first guess of the next
    track: Track


def draw_track(key: Key[Array, ""], params: Params) -> Track:
    """The track of an episode."""
    heights = params.stump_height + params.height_std * jax.random.normal(key, (MOST_STUMPS,))
    heights = STEP * jnp.maximum(heights, params.least_height)
    spacing = jnp.maximum(params.stump_spacing, LEAST_SPACING)
    start, width = jnp.full_like(spacing, START), jnp.full_like(spacing, STEP)
    exists = start + jnp.arange(MOST_STUMPS) * (spacing + width) < END
    return Track(jnp.where(exists & (heights > 0), heights, -1.0).astype(heights.dtype), spacing, start, width)


def hull(qpos: Float[Array, "7"]) -> tuple[Float[Array, "5"], Float[Array, "5"]]:
    """x and z of the hull's corners [m]."""
    x, z = biped.turned(sincos(qpos[2]), tuple(jnp.asarray(HULL, qpos.dtype).T))  # pyright: ignore[reportArgumentType]
    return qpos[0] + x, qpos[1] + z


def hull_touches(qpos: Float[Array, "7"], track: Track) -> Bool[Array, ""]:
    """Whether the hull is on the ground or on a stump: where any edge is below a stump's top, above the stump."""
    x, z = fence(hull(qpos))
    left, height = biped.window(track, jnp.min(x), 6)  # the hull is 2.2 m long
    a, b, c, d = (e[:, None] for e in (x, z, jnp.roll(x, -1), jnp.roll(z, -1)))
    low, high = jnp.maximum(jnp.minimum(a, c), left), jnp.minimum(jnp.maximum(a, c), left + track.width)
    run = jnp.where(jnp.abs(c - a) < 1e-6, 1e-6, c - a)  # of an upright edge, whose ends its neighbours share

    def rise(at: Any) -> Any:
        return b + (d - b) * jnp.clip((at - a) / run, 0.0, 1.0)

    return jnp.any((low <= high) & (jnp.minimum(rise(low), rise(high)) < height)) | (jnp.min(z) < 0)


def lidar(x: Float[Array, ""], z: Float[Array, ""], track: Track) -> Float[Array, "10"]:
    """How far rays from (x, z) go before they meet the track, as a share of `RANGE`; they point down and ahead."""
    angles = 1.5 * np.arange(10) / 10
    right = jnp.asarray(np.maximum(np.sin(angles), 1e-9), x.dtype)[:, None] * RANGE
    fall = jnp.asarray(np.cos(angles), x.dtype)[:, None] * RANGE
    left, height = biped.window(track, x, 13)
    enter, leave = (left - x) / right, (left + track.width - x) / right
    share = jnp.maximum(jnp.maximum(enter, (z - height) / fall), 0.0)  # beyond the near side and below the top
    share = jnp.min(jnp.where(share <= leave, share, 1.0), 1)
    return jnp.clip(jnp.minimum(share, z / fall[:, 0]), 0.0, 1.0)


def reward_terms(
    before: Float[Array, "7"],
    after: Float[Array, "7"],
    action: Float[Array, "4"],
    lost: Bool[Array, ""],
    params: Params,
) -> dict[str, Float[Array, ""]]:
    """What the reward is the sum of, from qpos before and after the step; after a fall nothing else counts."""
    terms = {
        "reward/forward": params.forward * (after[0] - before[0]),
        "reward/upright": -params.upright * (jnp.abs(after[2]) - jnp.abs(before[2])),
        "reward/effort": -params.effort * jnp.sum(jnp.abs(action)),
    }
    terms = {name: jnp.where(lost, 0.0, x).astype(x.dtype) for name, x in terms.items()}
    return {**terms, "reward/fall": jnp.where(lost, -params.fall, 0.0).astype(after.dtype)}


@dataclasses.dataclass(frozen=True)
class StumpWalker(Environment):
    """`substeps` of 1/50 s (at least two, or contacts are too stiff) and Newton's `iterations` for the forces."""

    substeps: int = 4
    iterations: int = 6
    id: str = dataclasses.field(default="StumpWalker-v0", kw_only=True)
    Params = Params
    hints = Hints(noiseless=True)
    observation_names = (
        "pitch [rad]",
        "pitch_dot / 25 [rad/s]",
        "0.12 x_dot [m/s]",
        "0.08 z_dot [m/s]",
        *(
            f"{name} {leg}{unit}"
            for leg in (1, 2)
            for name, unit in (
                ("hip", " [rad]"),
                ("hip_dot / 4", " [rad/s]"),
                ("1 + knee", " [rad]"),
                ("knee_dot / 6", " [rad/s]"),
                ("shank on the track", ""),
            )
        ),
        *(f"lidar ray {ray}" for ray in range(1, 11)),
    )
    action_names = ("hip 1", "knee 1", "hip 2", "knee 2")
    static_ranges = {"substeps": (2, 1000), "iterations": (1, 1000)}

    def initial(self, key: Key[Array, ""], params: Params) -> State:
        track_key, push_key = jax.random.split(key)
        hips, knee = np.array([-0.05, 0.05]), biped.RANGES[1][1]
        reach = LEG * np.cos(hips) + biped.FOOT * np.cos(hips + knee)
        height = biped.HIP + float(np.max(reach)) + biped.SHANK_RADIUS
        qpos = jnp.array([START / 2, height, 0.0, hips[0], knee, hips[1], knee])
        push = params.push * jax.random.uniform(push_key, minval=-1.0) / (FPS * biped.MASS)
        still = jnp.zeros_like(qpos)
        return State(jnp.int32(0), qpos, still.at[0].set(push), still, draw_track(track_key, params))

    def transition(self, key: Array, state: State, action: Float[Array, "4"], params: Params) -> Transition:
        action = jnp.clip(action, -1, 1)
        motion = (state.qpos, state.qvel, state.qacc)
        qpos, qvel, qacc = biped.advance(
            *motion, action, state.track, params.physics, 1 / FPS, self.substeps, self.iterations
        )
        lost = hull_touches(qpos, state.track) | (qpos[0] < 0)
        won = qpos[0] > FINISH
        terms = reward_terms(state.qpos, qpos, action, lost, params)
        reward: Any = sum(terms.values())
        state = state.replace(qpos=qpos, qvel=qvel, qacc=qacc)
        return Transition(state, reward, lost | won, jnp.bool_(False), {"success": won & ~lost, **terms})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "24"]:
        q, v = state.qpos, state.qvel
        x, z = biped.turned(sincos(q[2]), biped.TRUNK.com)
        absolute = biped.absolute(q)
        touch = biped.touches(biped.limbs(absolute, [sincos(a) for a in absolute[2:]]), state.track)
        ground = jnp.any(touch.distance[:, 1] < 0, -1).astype(q.dtype)
        hull = [q[2], 2 / FPS * v[2], 6 / FPS * (v[0] - z * v[2]), 4 / FPS * (v[1] + x * v[2])]
        legs = [
            [q[3 + n], v[3 + n] / 4, q[4 + n] + 1, v[4 + n] / 6, ground[n // 2]]
            for n in (0, 2)
        ]  # fmt: skip
        return jnp.concatenate([jnp.stack(hull + legs[0] + legs[1]), lidar(q[0], q[1], state.track)])

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        q, v = state.qpos, state.qvel
        joints = ("hip 1", "knee 1", "hip 2", "knee 2")
        return {
            "x [m]": Quantity(q[0]),
            "z [m]": Quantity(q[1]),
            "x_dot [m/s]": Quantity(v[0]),
            "z_dot [m/s]": Quantity(v[1]),
            "pitch [rad]": Quantity(q[2]),
            **{f"{name} [rad]": Quantity(q[3 + i]) for i, name in enumerate(joints)},
        }

    def observation_space(self, params: Params) -> Box:
        return Box(-jnp.inf, jnp.inf, (24,))

    def action_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (4,))

    def validate(self, params: Params) -> None:
        require_non_negative(self, params, "stump_spacing", "height_std", "push", "fall", "effort", "upright")
        for name in ("stump_height", "least_height", "forward"):
            if not np.all(np.isfinite(np.asarray(getattr(params, name)))):
                raise ValueError(f"{self.id}: {name}={getattr(params, name)} must be finite.")
        require_positive(self, params.physics, "friction", "hip_speed", "knee_speed")
        require_non_negative(self, params.physics, "gravity", "torque")

    def render(self, state: State, params: Params) -> np.ndarray:
        from .drawing import draw_walker

        return draw_walker(state)
