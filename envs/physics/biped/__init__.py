"""A planar biped on a track of stumps: rigid bodies, joint motors and contacts, as MuJoCo computes them.

A hull, two thighs and two shanks in the x-z plane; lengths, densities, joint ranges and motors are Box2D's of
Gymnasium's BipedalWalker. The equations are MuJoCo's (Todorov 2014, "Convex and analytically-invertible dynamics with
contacts and constraints"): generalised coordinates q = (x, z, pitch, hip, knee, hip, knee), soft contacts with a
pyramid of friction, soft joint limits, semi-implicit Euler with joint damping taken implicitly. `mjcf` writes the same
body as a MuJoCo model; the two agree to rounding.

The acceleration minimises Gauss's convex function

    1/2 (a - a_smooth)' M (a - a_smooth) + 1/2 sum_i D_i min(J_i a - r_i, 0)^2

over rows of contacts and limits, by Newton steps. In absolute angles neither leg knows of the other, so M and the
Hessian have the shape of an arrow and elimination from the feet up fills nothing in: a solution is a few dozen
products, elementwise in a batch, without a factorisation from a library.

Limbs are capsules. The lower end of each touches the ground and a face of a stump, its length two corners of stumps:
the deepest, of all stumps that it reaches. MuJoCo's own collisions find the same or nearby points.
"""

from ..planar.scalars import turned
from .arrow import multiply, product, solve
from .body import (
    FOOT,
    HIP,
    HULL,
    JOINT_WEIGHTS,
    LEG,
    MASS,
    RANGES,
    SCALE,
    SHANK_RADIUS,
    THIGH_RADIUS,
    TRUNK,
    WEIGHTS,
    Physics,
    Track,
    absolute,
    bias,
    inertia,
    limbs,
)
from .contacts import RADII, touches, window
from .mjcf import mjcf
from .step import advance, motors

__all__ = [
    "FOOT",
    "HIP",
    "HULL",
    "JOINT_WEIGHTS",
    "LEG",
    "MASS",
    "RADII",
    "RANGES",
    "SCALE",
    "SHANK_RADIUS",
    "THIGH_RADIUS",
    "TRUNK",
    "WEIGHTS",
    "Physics",
    "Track",
    "absolute",
    "advance",
    "bias",
    "inertia",
    "limbs",
    "mjcf",
    "motors",
    "multiply",
    "product",
    "solve",
    "touches",
    "turned",
    "window",
]
