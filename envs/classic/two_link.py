"""A planar arm of two links with a motor in each joint: the physics of Acrobot, DoublePendulum and Reacher.

Manipulator equations (Spong, Hutchinson and Vidyasagar 2006, "Robot Modeling and Control", section 7.4), `M(q) q_acc +
h(q, q_dot) + g(q) + damping q_dot = torque`, with q_1 measured from hanging straight down and q_2 relative to the
first link, both counter-clockwise positive. Each link has a mass, a centre of mass at `com` from its joint and a
moment of inertia about that centre. Checked through Acrobot against Gymnasium.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
from jaxtyping import Array, Float

from jaxrl.math import fence, sincos

Scalar = Float[Array, ""]
Motion = tuple[Scalar, Scalar, Scalar, Scalar]
"""q_1, q_2 [rad], q_1_dot, q_2_dot [rad/s]."""


@runtime_checkable
class Arm(Protocol):
    """What the equations read of an environment's `Params`; each may be a field or a property."""

    @property
    def mass_1(self) -> Any: ...  # kg
    @property
    def mass_2(self) -> Any: ...  # kg
    @property
    def length_1(self) -> Any: ...  # m
    @property
    def com_1(self) -> Any: ...  # m, from the joint
    @property
    def com_2(self) -> Any: ...  # m, from the joint
    @property
    def inertia_1(self) -> Any: ...  # kg m^2, about the centre of mass
    @property
    def inertia_2(self) -> Any: ...  # kg m^2
    @property
    def gravity(self) -> Any: ...  # m/s^2
    @property
    def damping(self) -> Any: ...  # N m s, viscous, in each joint


def mass_matrix(
    cos_2: Float[Array, "*batch"], arm: Arm
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"], Float[Array, "*batch"]]:
    """Entries (1, 1), (1, 2), (2, 2) of the symmetric inertia matrix [kg m^2]."""
    m_22 = arm.mass_2 * arm.com_2**2 + arm.inertia_2
    coupling = arm.mass_2 * arm.length_1 * arm.com_2 * cos_2
    m_12 = m_22 + coupling
    m_11 = arm.mass_1 * arm.com_1**2 + arm.inertia_1 + arm.mass_2 * arm.length_1**2 + m_12 + coupling
    return m_11, m_12, m_22


def derivative(motion: Motion, torque_1: Scalar, torque_2: Scalar, arm: Arm) -> Motion:
    """Time derivative of the motion under joint torques [N m]."""
    q_1, q_2, w_1, w_2 = motion
    (sin_1, cos_1), (sin_2, cos_2) = sincos(q_1), sincos(q_2)
    m_11, m_12, m_22 = mass_matrix(cos_2, arm)
    h = arm.mass_2 * arm.length_1 * arm.com_2 * sin_2
    weight_2 = arm.mass_2 * arm.com_2 * arm.gravity * (sin_1 * cos_2 + cos_1 * sin_2)
    weight_1 = (arm.mass_1 * arm.com_1 + arm.mass_2 * arm.length_1) * arm.gravity * sin_1 + weight_2
    net_1 = torque_1 - arm.damping * w_1 + h * w_2 * (w_2 + 2 * w_1) - weight_1
    net_2 = torque_2 - arm.damping * w_2 - h * w_1**2 - weight_2
    scale = 1 / (m_11 * m_22 - m_12**2)
    return w_1, w_2, (m_22 * net_1 - m_12 * net_2) * scale, (m_11 * net_2 - m_12 * net_1) * scale


def energy(motion: Motion, arm: Arm) -> Scalar:
    """Kinetic and potential energy [J]; conserved without torque and damping."""
    q_1, q_2, w_1, w_2 = motion
    (sin_1, cos_1), (sin_2, cos_2) = sincos(q_1), sincos(q_2)
    m_11, m_12, m_22 = mass_matrix(cos_2, arm)
    height_1 = -(arm.mass_1 * arm.com_1 + arm.mass_2 * arm.length_1) * cos_1
    height_2 = -arm.mass_2 * arm.com_2 * (cos_1 * cos_2 - sin_1 * sin_2)
    return 0.5 * m_11 * w_1**2 + m_12 * w_1 * w_2 + 0.5 * m_22 * w_2**2 + arm.gravity * (height_1 + height_2)


def rk4(field: Callable[[Motion], Motion], motion: Motion, dt: Scalar) -> Motion:
    """One step of the classical fourth-order Runge-Kutta method."""

    def ahead(slope: Motion, h: Any) -> Motion:
        return jax.tree.map(lambda x, k: x + h * k, motion, slope)

    k_1 = field(motion)
    k_2 = fence(field(ahead(k_1, dt / 2)))  # one kernel for all four stages computes the first ones over and over
    k_3 = field(ahead(k_2, dt / 2))
    k_4 = field(ahead(k_3, dt))
    return jax.tree.map(lambda x, a, b, c, d: x + dt / 6 * (a + 2 * b + 2 * c + d), motion, k_1, k_2, k_3, k_4)


def move(motion: Motion, torque_1: Scalar, torque_2: Scalar, arm: Arm, dt: Scalar) -> Motion:
    """The motion `dt` [s] later under constant torques, by one Runge-Kutta step."""
    return rk4(lambda m: derivative(m, torque_1, torque_2, arm), motion, dt)
