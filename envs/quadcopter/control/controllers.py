"""Controllers of a quadcopter, as pure functions of scalars with a carry: baselines, and inner loops of action levels.

    carry = X_init()
    rpm, carry = X(carry, drone, setpoint, gains, model, dt)            rotor speeds (4,) [rpm] for the next dt [s]

| controller | setpoint | source |
|---|---|---|
| `body_rates_loop` | `Rates` | PI on body rates, allocation that gives up yaw first |
| `attitude_loop` | `Attitude` | tilt before yaw (Brescianini and D'Andrea 2018), then `body_rates_loop` |
| `velocity_loop` | `Setpoint` | PI on velocity, then `attitude_loop` |
| `position_loop` | `Setpoint` | P on position, then `velocity_loop` |
| `se3` | `Setpoint` | geometric tracking (Lee, Leok and McClamroch 2010) |
| `lqr` | `Setpoint` | linear-quadratic regulator about hover, linearised by autodiff |
| `dslpid` | `Setpoint` | gym-pybullet-drones' PID |
| `mellinger` | `Setpoint` | crazyflow's Mellinger controller, in its three stages |
| `ctbr` | `Setpoint` | gym-pybullet-drones' outer loop for Betaflight: gives `Rates`, not rotor speeds |

Each is in the file of its name, the four loops in `cascade.py`; here they are all under one name. Frames and units are
those of `../dynamics.py`. All but `dslpid` and `mellinger` ask for accelerations and take mass, inertia and rotors from
the model, so one set of gains flies every airframe (`lqr_gains` finds the regulator's); those two have gains in units
of their airframe, and `dslpid_gains` and `mellinger_gains` for others. Every gain is a leaf. A swarm is the same code
on scalars that have become `(M,)` arrays.
"""

from __future__ import annotations

from .allocation import allocate, allocation, rotor_speeds
from .cascade import (
    Cascade,
    CascadeGains,
    attitude_loop,
    attitude_of,
    attitude_rates,
    body_rates_loop,
    cascade_init,
    position_loop,
    velocity_loop,
)
from .ctbr import CTBRGains, ctbr, ctbr_init
from .dslpid import DSLPID, DSLPIDGains, dslpid, dslpid_gains, dslpid_init
from .errors import rotation_error
from .lqr import LQR_Q, LQR_R, LQRGains, linearise, lqr, lqr_gains, lqr_init, riccati
from .mellinger import (
    MELLINGER,
    Mellinger,
    MellingerGains,
    Wrench,
    mellinger,
    mellinger_attitude,
    mellinger_gains,
    mellinger_init,
    mellinger_state,
    mellinger_wrench,
)
from .pwm import mixer
from .se3 import SE3Gains, se3, se3_init
from .setpoints import Attitude, Rates, Setpoint

__all__ = [
    "Attitude",
    "CTBRGains",
    "Cascade",
    "CascadeGains",
    "DSLPID",
    "DSLPIDGains",
    "LQRGains",
    "LQR_Q",
    "LQR_R",
    "MELLINGER",
    "Mellinger",
    "MellingerGains",
    "Rates",
    "SE3Gains",
    "Setpoint",
    "Wrench",
    "allocate",
    "allocation",
    "attitude_loop",
    "attitude_of",
    "attitude_rates",
    "body_rates_loop",
    "cascade_init",
    "ctbr",
    "ctbr_init",
    "dslpid",
    "dslpid_gains",
    "dslpid_init",
    "linearise",
    "lqr",
    "lqr_gains",
    "lqr_init",
    "mellinger",
    "mellinger_attitude",
    "mellinger_gains",
    "mellinger_init",
    "mellinger_state",
    "mellinger_wrench",
    "mixer",
    "position_loop",
    "riccati",
    "rotation_error",
    "rotor_speeds",
    "se3",
    "se3_init",
    "velocity_loop",
]
