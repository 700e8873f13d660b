"""Airframes of the accepted simulators, and random ones.

Each is a `dynamics.Model` instance: a user adds one the same way. `MODELS` has them by name. Numbers:
gym-pybullet-drones' URDF files (commit 90b178a, 2026-05), learning-to-fly (2025-05), RLtools (commit 9acdf5c,
2026-02), crazyflow 0.1.0 (2026-04) and 0.4.0 (2026-10). Models of RLtools' later library have throttles for speeds:
their "rpm" goes from 0 to 1.

Two distributions over airframes: `randomize`, around a model, and `foundation`, of RAPTOR's thousand quadcopters. With
`randomized` or `any_quadcopter` as the `level_fn` of a vectorised task every episode draws its own, in `params.ranges`:

    venv = jaxrl.vectorize(env, 64, level_fn=models.randomized)
    obs, state = venv.reset(key, params.replace(ranges=models.Ranges(mass=1.3)))
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.environment import pytree

from .checks import vector
from .dynamics import Model

X = np.array([1.0, -1.0, -1.0, 1.0])  # rotors front right, back right, back left, front left
Y = np.array([-1.0, -1.0, 1.0, 1.0])
SPIN = (-1.0, 1.0, -1.0, 1.0)


def _model(**numbers: Any) -> Model:
    leaves: dict[str, Any] = {name: np.asarray(x) if np.ndim(x) else x for name, x in numbers.items()}
    return Model(**leaves)


# ---- gym-pybullet-drones


def _gpd(mass, inertia, kf, km, thrust_to_weight, propeller_radius, x, y, spin=SPIN) -> Model:
    return _model(
        mass=mass,
        inertia=inertia,
        rotor_x=x,
        rotor_y=y,
        rotor_spin=spin,
        thrust=(0.0, 0.0, kf),
        torque=(0.0, 0.0, km),
        max_rpm=math.sqrt(thrust_to_weight * mass * 9.8 / (4 * kf)),
        rotor_drag=(9.1785e-7, 9.1785e-7, 10.311e-7),
        propeller_radius=propeller_radius,
        ground_effect=11.36859,
        downwash=(2267.18, 0.16, -0.11),
        gravity=9.8,
    )


def _cf2(inertia, x, y) -> Model:
    return _gpd(0.027, inertia, 3.16e-10, 7.94e-12, 2.25, 0.0231348, x, y)


def _racer(x, y) -> Model:
    spin = (1.0, -1.0, 1.0, -1.0)
    return _gpd(0.830, (3.113e-3, 3.113e-3, 3.113e-3), 8.47e-9, 2.13e-11, 4.17, 0.127, x, y, spin)


_ARM = 0.0397 / math.sqrt(2)
CF2X = _cf2((1.4e-5, 1.4e-5, 2.17e-5), _ARM * X, _ARM * Y)
"""gym-pybullet-drones' Crazyflie, rotors at the corners, as its explicit dynamics has it."""
CF2X_LINKS = CF2X.replace(rotor_x=0.028 * X, rotor_y=0.028 * Y)
"""The same as its PyBullet has it: the URDF puts the rotors 0.3 % closer in."""
CF2P = _cf2((2.3951e-5, 2.3951e-5, 3.2347e-5), (0.0397, 0.0, -0.0397, 0.0), (0.0, 0.0397, 0.0, -0.0397))
"""gym-pybullet-drones' Crazyflie, rotors on the axes."""
_ARM = 0.109 / math.sqrt(2)
RACER = _racer(_ARM * X, -_ARM * Y)
"""gym-pybullet-drones' racing drone, as its explicit dynamics has it."""
RACER_LINKS = _racer(0.085 * X, -0.0675 * Y)
"""The same as its PyBullet has it: the URDF's frame is longer than wide."""


# ---- learning-to-fly and RLtools


def _first_order(up: float, down: float) -> dict[str, Any]:
    """Motors with these time constants [s]."""
    return {"spin_up": (1 / up, 0.0), "spin_down": (1 / down, 0.0)}


CRAZYFLIE = _model(
    mass=0.027,
    inertia=(3.85e-6, 3.85e-6, 5.9675e-6),
    rotor_x=0.028 * X,
    rotor_y=0.028 * Y,
    rotor_spin=SPIN,
    thrust=(0.0, 0.0, 3.16e-10),
    torque=0.005964552 * np.array([0.0, 0.0, 3.16e-10]),
    max_rpm=21702.0,
    **_first_order(0.15, 0.15),
)
"""learning-to-fly's Crazyflie, the one it was trained on."""


def _rltools(mass, inertia, x, y, thrust, thrust_to_torque, up, down, spin=(-1.0, -1.0, 1.0, 1.0)) -> Model:
    # Rotors front right, back left, front left, back right but for the Crazyflie.
    return _model(
        mass=mass,
        inertia=inertia,
        rotor_x=x,
        rotor_y=y,
        rotor_spin=spin,
        thrust=thrust,
        torque=thrust_to_torque * np.array(thrust),
        max_rpm=1.0,
        **_first_order(up, down),
    )


_FRONT = np.array([1.0, -1.0, 1.0, -1.0])
_LEFT = np.array([-1.0, 1.0, 1.0, -1.0])
CRAZYFLIE_RLTOOLS = _rltools(
    0.0306,
    (9.416556729130406e-6, 9.644051701582312e-6, 1.745951732253285e-5),
    0.028 * X,
    0.028 * Y,
    (0.00352526, 0.01437313, 0.09223048),
    4.665e-3,
    0.05545454545454546,
    0.24939393939393945,
    SPIN,
)
"""RLtools' Crazyflie, identified with its decks: slower, and slower still to slow down."""
_ARM = 0.25 / math.sqrt(2)
X500_SIM = _rltools(
    2.0,
    (0.0216666666666666, 0.0216666666666666, 0.04),
    _ARM * _FRONT,
    _ARM * _LEFT,
    (0.0, 0.0, 8.74),
    0.11697849233439939,
    0.03,
    0.03,
)
"""RLtools' X500 as PX4 simulates it."""
X500_REAL = _rltools(
    2.0,
    # The source's first entry has a typing error; its inverse, given beside it, has not.
    (0.021705, 0.021304, 0.039396244),
    _ARM * _FRONT,
    _ARM * _LEFT,
    (0.0, 0.0, 15.926119900619797),
    0.10847,
    0.054,
    0.054,
)
"""RLtools' X500 as identified."""
_ARM = 0.17 / math.sqrt(2)
FLIGHTMARE = _rltools(
    0.73,
    (0.00791, 0.00791, 0.0123),
    _ARM * _FRONT,
    _ARM * _LEFT,
    (-1.7689986848125325, 11.50824315802381, 11.968428150335603),
    0.016,
    0.02,
    0.02,
)
"""RLtools' model of Flightmare's quadcopter."""
ARPL = _rltools(
    0.782,
    (1.7665e-3, 1.3766e-3, (1.7665e-3 + 1.3766e-3) / 2 * 1.879),
    0.0775 * _FRONT,
    0.0981 * _LEFT,
    (-0.5300192490953086, 8.971435376396558, -0.8911788522090669),
    0.005964552,
    0.033,
    0.033,
)
"""RLtools' model of the quadcopter of New York University's ARPL."""


# ---- crazyflow


def _crazyflow(mass, inertia, arm, a1, a2, b1, b2, spin_up, spin_down, drag, least, most, radius, propeller) -> Model:
    def rpm(thrust):
        return (math.sqrt(a1 * a1 + 4 * a2 * thrust) - a1) / (2 * a2)

    return _model(
        mass=mass,
        inertia=inertia,
        rotor_x=arm * X,
        rotor_y=arm * Y,
        rotor_spin=SPIN,
        thrust=(0.0, a1, a2),
        torque=(0.0, b1, b2),
        max_rpm=rpm(most),
        min_rpm=rpm(least),
        spin_up=spin_up,
        spin_down=spin_down,
        body_drag=(drag[0], drag[0], drag[1]),
        propeller_radius=radius,
        propeller_inertia=propeller,
    )


CRAZYFLOW_0_1 = {
    "cf2x_L250": _crazyflow(
        0.0319,
        (16.8e-6, 16.8e-6, 29.8e-6),
        0.03253,
        -5.382196214637237e-7,
        2.4582929831265485e-10,
        1.410454111996297e-9,
        1.4592584373980652e-12,
        (7.355623702172756, 0.0),
        (0.0, 0.00024443862952110715),
        (0.01471782, 0.01277641),
        0.012817578393224994,
        0.12,
        0.02355,
        34.52e-9,
    ),
    "cf2x_P250": _crazyflow(
        0.0318,
        (16.8e-6, 16.8e-6, 29.8e-6),
        0.03253,
        -3.6200226530383495e-7,
        1.6060924304100328e-10,
        -2.2665265829562245e-9,
        1.1149485566919186e-12,
        (5.172596691828673, 8.14774234381285e-5),
        (0.0, 0.0002095253491455741),
        (0.01351483, 0.01677452),
        0.012817578393224994,
        0.12,
        0.0234,
        26.97e-9,
    ),
    "cf2x_T350": _crazyflow(
        0.0379,
        (16.8e-6, 16.8e-6, 29.8e-6),
        0.03253,
        -7.167227176573658e-7,
        2.9401303690194613e-10,
        5.815894847811497e-10,
        1.331813874166509e-12,
        (11.374753209400291, 0.0),
        (0.0, 0.00037867688499079635),
        (0.01556697, 0.02191672),
        0.01922636758983749,
        0.18,
        0.0254,
        38.93e-9,
    ),
    "cf21B_500": _crazyflow(
        0.04338,
        (25e-6, 28e-6, 49e-6),
        0.035355,
        -3.133427287299859e-7,
        4.407354891648379e-10,
        1.65886356219615e-9,
        2.4693477924534137e-12,
        (13.996001897562685, 0.00011093207920685363),
        (5.933168530682111, 0.00031951312393561264),
        (0.02149163, 0.02359736),
        0.02136263065537499,
        0.2,
        0.0275,
        38.93e-9,
    ),
}
"""crazyflow's four Crazyflies as of 0.1.0 (2026-04), first principles."""


def _changed(name: str, mass: float, drag: tuple[float, float], **changes: Any) -> Model:
    drag_ = np.array([drag[0], drag[0], drag[1]])
    return CRAZYFLOW_0_1[name].replace(mass=mass, body_drag=drag_, **changes)


CRAZYFLOW_0_4 = {
    "cf2x_L250": _changed("cf2x_L250", 0.0328, (0.014953790232821078, 0.013900090000325344)),
    "cf2x_P250": CRAZYFLOW_0_1["cf2x_P250"],
    "cf2x_T350": _changed(
        "cf2x_T350", 0.0379, (0.015203241038199845, 0.02204579179094129), inertia=np.array([15.7e-6, 17.1e-6, 30.0e-6])
    ),
    "cf21B_500": _changed("cf21B_500", 0.0434, (0.021643637770852733, 0.02477138502714662)),
}
"""The same as of 0.4.0 (2026-10): other masses, drag and one inertia."""

MODELS: dict[str, Model] = {
    "cf2x": CF2X,
    "cf2x_links": CF2X_LINKS,
    "cf2p": CF2P,
    "racer": RACER,
    "racer_links": RACER_LINKS,
    "crazyflie": CRAZYFLIE,
    "crazyflie_rltools": CRAZYFLIE_RLTOOLS,
    "x500_sim": X500_SIM,
    "x500_real": X500_REAL,
    "flightmare": FLIGHTMARE,
    "arpl": ARPL,
    **CRAZYFLOW_0_4,
    **{f"{name}_0.1.0": model for name, model in CRAZYFLOW_0_1.items()},
}
"""Every airframe by name. crazyflow's are those of 0.4.0 unless the name says 0.1.0."""


# ---- random airframes


@pytree
class Ranges:
    """Of `randomize`: each quantity is multiplied by a number between 1 / range and range, 1 leaves it alone."""

    mass: jax.Array = 1.2
    inertia: jax.Array = 1.2  # of all axes together, so that a solid stays one
    thrust: jax.Array = 1.2  # and the yaw torque with it
    motor_lag: jax.Array = 1.2  # time constants
    arm: jax.Array = 1.1


@pytree
class FoundationRanges:
    """Of `foundation`: RAPTOR's, each from least to most, uniform unless said otherwise."""

    thrust_to_weight: jax.Array = (1.5, 5.0)
    mass: jax.Array = (0.02, 5.0)  # kg, its cube root uniform
    torque_to_inertia: jax.Array = (40.0, 1200.0)  # rad/s^2 about x, of the two rotors of one side
    size: jax.Array = (-0.1, 0.1)  # mean and standard deviation of the arm's part that the mass does not say
    thrust_to_torque: jax.Array = (0.005, 0.05)  # m
    spin_up: jax.Array = (0.03, 0.1)  # s, time constant
    spin_down: jax.Array = (0.03, 0.3)  # s
    force: jax.Array = 0.3  # of the surplus of thrust: the most that the disturbing force is drawn from


def check_ranges(ranges: Any, who: str) -> None:
    """Raise ValueError for `Ranges` or `FoundationRanges` of which some airframe cannot be. Host only; may be batched.

    Others, of a `level_fn` of one's own, are not looked at.
    """
    if not isinstance(ranges, Ranges | FoundationRanges):
        return
    for name, value in vars(ranges).items():
        value = vector(value)
        if isinstance(ranges, Ranges):
            right, rule = value > 0, "positive"
        elif name == "size":
            right, rule = value[..., 1] >= 0, "a mean and a deviation that is not negative"
        elif name == "force":
            right, rule = value >= 0, "not negative"
        else:
            right, rule = (value[..., 0] > 0) & (value[..., 0] <= value[..., 1]), "positive, the least before the most"
        if not (np.all(np.isfinite(value)) and np.all(right)):
            raise ValueError(f"{who}: ranges.{name}={value} must be finite and {rule}.")


def _times(tree: Any, factor: Any) -> Any:
    return jax.tree.map(lambda x: x * factor, tree)


def randomize(key: Key[Array, ""], model: Model, ranges: Ranges) -> Model:
    """An airframe like `model`, the logarithm of each quantity in `ranges` uniform."""
    spread = jnp.stack([ranges.mass, ranges.inertia, ranges.thrust, ranges.motor_lag, ranges.arm])
    mass, inertia, thrust, lag, arm = spread ** jax.random.uniform(key, (5,), minval=-1.0)
    return model.replace(
        mass=model.mass * mass,
        inertia=_times(model.inertia, inertia),
        thrust=_times(model.thrust, thrust),
        torque=_times(model.torque, thrust),
        spin_up=_times(model.spin_up, 1 / lag),
        spin_down=_times(model.spin_down, 1 / lag),
        rotor_x=_times(model.rotor_x, arm),
        rotor_y=_times(model.rotor_y, arm),
    )


def foundation(key: Key[Array, ""], model: Model, ranges: FoundationRanges) -> tuple[Model, Float[Array, ""]]:
    """Any quadcopter at all, with the shape of `model`'s thrust curve and frame, and the standard deviation of the
    force that disturbs it [weights].

    The distribution of RAPTOR (Eschmann, Albani and Loianno 2025, "A foundation policy for quadrotor control") as
    RLtools has it: size goes with the cube root of the mass, inertia follows from the torque that turns it. As coded
    upstream the deviation in size has a mean of -0.1 and the disturbance lacks a factor of gravity.
    """
    u = jax.random.uniform(key, (9,))

    def between(i, bounds):
        return bounds[0] + (bounds[1] - bounds[0]) * u[i]

    thrust_to_weight = between(0, ranges.thrust_to_weight)
    mass = between(1, tuple(jnp.cbrt(x) for x in ranges.mass)) ** 3
    normal = jnp.sqrt(-2 * jnp.log1p(-u[2])) * jnp.cos(2 * math.pi * u[3])
    deviation = ranges.size[0] + ranges.size[1] * normal
    arm = jnp.cbrt(mass / model.mass) * jnp.where(deviation < 0, 1 / (1 - deviation), 1 + deviation)
    thrust = _times(model.thrust, thrust_to_weight / model.thrust_to_weight * mass / model.mass)
    torque = jnp.abs(model.rotor_x[0]) * arm * math.sqrt(2) * thrust_to_weight * mass * model.gravity / 4
    inertia = torque / between(4, ranges.torque_to_inertia)
    up, down = between(6, ranges.spin_up), between(7, ranges.spin_down)
    drawn = model.replace(
        mass=mass,
        inertia=_times(model.inertia, inertia / model.inertia[0]),
        thrust=thrust,
        torque=_times(thrust, between(5, ranges.thrust_to_torque)),
        spin_up=jnp.stack([1 / up, jnp.zeros_like(up)]),
        spin_down=jnp.stack([1 / down, jnp.zeros_like(down)]),
        rotor_x=_times(model.rotor_x, arm),
        rotor_y=_times(model.rotor_y, arm),
    )
    force = u[8] * ranges.force * jnp.maximum(thrust_to_weight - 1, 0) * thrust_to_weight / 3
    return drawn, force / model.gravity


def randomized(key: Key[Array, ""], params: Any) -> Any:
    """A task's params with an airframe of `randomize`, around theirs: a `level_fn`."""
    return params.replace(model=randomize(key, params.model, _ranges(params, Ranges)))


def any_quadcopter(key: Key[Array, ""], params: Any) -> Any:
    """A task's params with an airframe and a disturbing force of `foundation`: a `level_fn`."""
    model, force = foundation(key, params.model, _ranges(params, FoundationRanges))
    return params.replace(model=model, force_std=force)


def _ranges(params: Any, kind: type) -> Any:
    ranges = kind() if params.ranges is None else params.ranges
    if not isinstance(ranges, kind):
        raise ValueError(f"params.ranges={ranges!r}; this level function draws from models.{kind.__name__}.")
    return ranges
