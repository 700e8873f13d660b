"""What MuJoCo's compiler derives of masses and of coordinates at rest, as a pure function of the model's numbers.

    params = env.with_constants(scaled(params, body_mass=1.3, body_inertia=1.3))

MuJoCo scales the softness of a contact, of a joint's limit and of its friction by inverse masses at the coordinates
`qpos0`: `body_invweight0`, `dof_invweight0` and `tendon_invweight0`. A write into a compiled model leaves them as they
were, in MuJoCo as here, until `mj_setConst` computes them again. This is its part that the engines here read, with

    A = J M^-1 J'      M = sum over bodies of m Jp' Jp + Jr' I Jr, and armature, at qpos0

where J are Jacobians of a body's centre of mass (Jp of its place, Jr of its turning): a body has the means of the two
diagonals of A; a degree of freedom its entry of M^-1, the mean over the three that move or turn a free or ball joint; a
fixed tendon its A. `actuator_acc0`, of muscles, is read by none of the engines.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.exact.planning.linear_quadratic import solve_positive
from jaxrl.math import precise

from .planar import Numbers

FREE, BALL, SLIDE, HINGE = range(4)
"""MuJoCo's `mjtJoint`."""


def _product(a: Float[Array, "4"], b: Float[Array, "4"]) -> Float[Array, "4"]:
    """Of quaternions, w first."""
    w, v, x, u = a[0], a[1:], b[0], b[1:]
    return jnp.concatenate([(w * x - jnp.sum(v * u))[None], w * u + x * v + jnp.cross(v, u)])


def _matrix(quaternion: Float[Array, "4"]) -> Float[Array, "3 3"]:
    w, x, y, z = quaternion / jnp.sqrt(jnp.sum(quaternion**2))
    return jnp.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _tendons(model: Any) -> np.ndarray:
    """(tendons, dofs) the Jacobian of fixed tendons, which is constant; zeros for others."""
    import mujoco

    jacobian = np.zeros((model.ntendon, model.nv))
    for i in range(model.ntendon):
        for k in range(model.tendon_adr[i], model.tendon_adr[i] + model.tendon_num[i]):
            if model.wrap_type[k] == mujoco.mjtWrap.mjWRAP_JOINT:
                jacobian[i, model.jnt_dofadr[model.wrap_objid[k]]] = model.wrap_prm[k]
    return jacobian


def _jacobians(model: Any, numbers: Numbers) -> tuple[Float[Array, "b 3 v"], Float[Array, "b 3 v"], list[Array]]:
    """Of every body, at `qpos0`: those of its centre of mass and of its turning, and its axes of inertia."""
    kind = numbers["qpos0"].dtype
    places, turns = [jnp.zeros(3, kind)], [jnp.asarray([1.0, 0.0, 0.0, 0.0], kind)]
    # Of each degree of freedom: its axis, a point that a turning leaves where it is (None of a slide).
    moving: list[tuple[Array, Array | None]] = []
    above: list[tuple[int, ...]] = [()]  # the degrees of freedom that move a body
    centres, frames = [places[0]], [jnp.eye(3, dtype=kind)]
    for body in range(1, model.nbody):
        parent = int(model.body_parentid[body])
        place = places[parent] + _matrix(turns[parent]) @ numbers["body_pos"][body]
        turn = _product(turns[parent], jnp.asarray(model.body_quat[body], kind))
        joints = range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body])
        mine = []
        for joint in joints:
            at, what = int(model.jnt_qposadr[joint]), int(model.jnt_type[joint])
            if what == FREE:
                place, turn = numbers["qpos0"][at : at + 3], numbers["qpos0"][at + 3 : at + 7]
            axes = _matrix(turn)
            anchor = place + axes @ numbers["jnt_pos"][joint]
            if what == FREE:
                mine += [(axis, None) for axis in jnp.eye(3, dtype=kind)]
            if what in (FREE, BALL):
                mine += [(axis, anchor) for axis in axes.T]
            else:
                axis = axes @ jnp.asarray(model.jnt_axis[joint], kind)
                mine.append((axis, None if what == SLIDE else anchor))
        above.append((*above[parent], *range(len(moving), len(moving) + len(mine))))
        moving += mine
        places.append(place)
        turns.append(turn)
        centres.append(place + _matrix(turn) @ numbers["body_ipos"][body])
        frames.append(_matrix(_product(turn, jnp.asarray(model.body_iquat[body], kind))))

    def column(body: int, dof: int) -> tuple[Array, Array]:
        axis, anchor = moving[dof]
        none = jnp.zeros(3, kind)
        if dof not in above[body]:
            return none, none
        return (axis, none) if anchor is None else (jnp.cross(axis, centres[body] - anchor), axis)

    columns = [[column(body, dof) for dof in range(model.nv)] for body in range(model.nbody)]
    of_place, of_turning = (jnp.stack([jnp.stack([c[i] for c in row], 1) for row in columns]) for i in (0, 1))
    return of_place, of_turning, frames


@precise
def derived(model: Any, numbers: Numbers) -> dict[str, Float[Array, "..."]]:
    """`body_invweight0` (bodies, 2), `dof_invweight0` (dofs,) and `tendon_invweight0` (tendons,) of other numbers.

    `model` is the `mujoco.MjModel` that says how bodies hang together. Pure in `numbers`; vmap it for batched ones.
    Raises ValueError, when traced, for a model with armature of tendons.
    """
    if np.any(model.tendon_armature):
        raise ValueError("the model has a tendon with armature, whose constants are not written here.")
    of_place, of_turning, frames = _jacobians(model, numbers)
    turning = jnp.einsum("bij,bik->bjk", jnp.stack(frames), of_turning)  # in the axes of inertia
    mass = jnp.einsum("b,biv,biw->vw", numbers["body_mass"], of_place, of_place)
    mass += jnp.einsum("bi,biv,biw->vw", numbers["body_inertia"], turning, turning)
    mass += jnp.diag(numbers["dof_armature"])
    inverse, _ = solve_positive(mass, jnp.eye(model.nv, dtype=mass.dtype))
    both = jnp.stack([of_place, of_turning], 1)
    of_bodies = jnp.einsum("bkiv,vw,bkiw->bk", both, inverse, both) / 3  # of the world 0: it has no columns
    diagonal = jnp.diagonal(inverse)
    # A body that MuJoCo calls simple, on slides alone along the world's axes, has the inverse of its mass, whatever the
    # armature, and so have its slides: `body_simple` is 2.
    slid = np.asarray(model.body_simple) == 2
    free = 1 / jnp.where(slid, numbers["body_mass"], 1)
    of_bodies = jnp.where(slid[:, None], jnp.stack([free, jnp.zeros_like(free)], 1), of_bodies)
    of_slides = np.asarray(model.dof_bodyid)
    diagonal = jnp.where(slid[of_slides], free[of_slides], diagonal)
    of_dofs = []
    for joint in range(model.njnt):
        at, what = int(model.jnt_dofadr[joint]), int(model.jnt_type[joint])
        for start in {FREE: (at, at + 3), BALL: (at,)}.get(what, ()):
            of_dofs.append(jnp.full(3, jnp.mean(diagonal[start : start + 3])))
        if what in (SLIDE, HINGE):
            of_dofs.append(diagonal[at : at + 1])
    out = {"body_invweight0": of_bodies, "dof_invweight0": jnp.concatenate(of_dofs)}
    if model.ntendon:
        tendons = jnp.asarray(_tendons(model), mass.dtype)
        out["tendon_invweight0"] = jnp.einsum("tv,vw,tw->t", tendons, inverse, tendons)
    return out


def with_constants(model: Any, numbers: Numbers) -> Numbers:
    """The numbers with the constants that follow from them, those that are among them.

    Constants come out in the numbers' own dtype; gradients pass through them.
    """
    found = jax.tree.map(jnp.asarray, numbers)
    return {**numbers, **{name: x for name, x in derived(model, found).items() if name in numbers}}
