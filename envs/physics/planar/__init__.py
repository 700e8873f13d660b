"""Bodies in a plane, as MuJoCo computes them: plain equations written out from its compiled model.

MuJoCo's engine for accelerators, MJX, works on arrays of bodies in space. Where every joint turns about one direction
or slides across it, a body has three numbers in place of six and a tree of a few bodies is some hundred operations,
which `step` writes out for the model at hand: elementwise in a batch, without factorisations from a library, gathers
or loops over contacts. The equations are MuJoCo's (Todorov 2014, "Convex and analytically-invertible dynamics with
contacts and constraints"; its documentation, chapter Computation): generalised coordinates, armature, springs and
dampers of joints, motors, limits of joints as soft constraints, soft contacts with a pyramid of friction; semi-
implicit Euler with implicit damping, or Runge-Kutta of order 4.

A `Plan` holds what of a model is structure, and is static; its numbers are a dict of leaves under MuJoCo's names
(`body_mass`, `geom_friction`, `actuator_gear`, ...), so that they can be varied, batched and differentiated. Like
MuJoCo itself after a write into its model, nothing that was derived from a number at compile time (`body_invweight0`)
follows.

The acceleration minimises Gauss's convex function

    1/2 (a - a_smooth)' M (a - a_smooth) + 1/2 sum_i D_i min(J_i a - r_i, 0)^2

over rows of contacts and limits, by Newton steps with one secant each until the solution is exact. What a contact adds
to the Hessian is, like inertia, a matrix of its link that is summed up the tree. Ordered by the tree, M and the Hessian
fill nothing in when eliminated from the leaves (Featherstone 2008, chapter 6).

Vectors of the plane are pairs; motions are triples (turning, moving along the first axis, along the second) about the
origin of the tree's first body, so that a walker far from the world's origin loses no digits.
"""

from .compile import Plan, Round, name_of, numbers, plan
from .equations import frames
from .newton import ends
from .scalars import Numbers, plus
from .step import Moved, advance, place

__all__ = [
    "Moved",
    "Numbers",
    "Plan",
    "Round",
    "advance",
    "ends",
    "frames",
    "name_of",
    "numbers",
    "place",
    "plan",
    "plus",
]
