"""Accelerations of a model on MJX under its constraints: the least of Gauss's function, by Newton's method.

    (a - a_smooth)' M (a - a_smooth) / 2 + sum over rows of s(J a - r)

where s of an equality is D x^2 / 2, of a limit or an edge of a pyramid of friction that where x < 0 and else nothing,
and of a joint's or a tendon's friction that of an equality up to a largest force (MuJoCo's documentation,
"Computation", "Constraint solver"). In a batch MJX evaluates the function 150 times for the length of each step,
whether they are needed or not, which was nine tenths of an ant's time. Here a step is taken as it is where the same
rows act at its end, which makes it exact and the last, or where what is left is below rounding. Elliptic cones and the
other algorithms of MuJoCo's option `solver` are left to MJX.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.math import precise

QUICK = 8
"""Steps with a length from one look along them, which nearly always suffice; those after it search."""
SEARCHES = 40
"""Evaluations of a search, which halve a step at least: a largest force may be reached within a millionth of it."""
MOST = 100
"""Steps, which MuJoCo's option `iterations` may raise. Random rows with weights of up to 1e9 times the inertia needed
27 at most in float64; float32 does not resolve weights beyond 1e6, and its steps may go on to the last."""
ROUNDED = 1e3
"""Relative accuracy asked for, in units of a dtype's rounding."""


class Problem(NamedTuple):
    """To find accelerations, v of them, under N rows."""

    inertia: Float[Array, "v v"]
    force: Float[Array, "v"]  # M a_smooth
    jacobian: Float[Array, "N v"]
    weight: Float[Array, "N"]  # D
    target: Float[Array, "N"]  # r
    both: Any  # (N,) bools, known as the program is written: rows that pull and push
    most: Float[Array, "N"]  # the largest force of those


def slopes(problem: Problem, x: Float[Array, "N"]) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
    """ds/dx of rows that miss their targets by `x`, which is less their force; and d2s/dx2."""
    slope = problem.weight * x
    beyond = problem.both & (jnp.abs(slope) >= problem.most)
    acts = (problem.both | (x < 0)) & ~beyond
    slope = jnp.where(acts, slope, jnp.where(beyond, jnp.sign(x) * problem.most, 0.0))
    return slope, jnp.where(acts, problem.weight, 0.0)


def solution(matrix: Float[Array, "v v"], vector: Float[Array, "v *k"]) -> Float[Array, "v *k"]:
    """Gauss and Jordan's elimination, without pivots: the matrix is positive. A round takes the first row left.

    For 14 coordinates as fast as LAPACK's Cholesky, whose batched calls can deadlock on a CPU (`docs/decisions.md`)."""

    def eliminated(carry: Any, _: None) -> tuple[Any, None]:
        left, x = carry
        row, here = left[0, 1:] / left[0, 0], x[0] / left[0, 0]
        x = jnp.concatenate([x[1:] - jnp.tensordot(left[1:, 0], here, 0), here[None]])
        left = jnp.concatenate([left[1:, 1:] - left[1:, :1] * row, row[None]])
        return (jnp.pad(left, ((0, 0), (0, 1))), x), None

    return jax.lax.scan(eliminated, (matrix, vector), None, length=len(vector))[0][1]


def full_step(problem: Problem, a: Float[Array, "v"]) -> Float[Array, "v"]:
    """From `a` to the least of the quadratic that Gauss's function is about it."""
    slope, stiff = slopes(problem, problem.jacobian @ a - problem.target)
    hessian = problem.inertia + (problem.jacobian * stiff[:, None]).T @ problem.jacobian
    return -solution(hessian, problem.inertia @ a - problem.force + slope @ problem.jacobian)


def newton_step(
    problem: Problem, mobility: Float[Array, "v v"], a: Float[Array, "v"], search: bool
) -> tuple[Float[Array, "v"], Bool[Array, ""]]:
    """The accelerations after a step, its length from one look along it or by `search`; whether others are needed.
    `mobility` is the inverse of the inertia."""
    x = problem.jacobian @ a - problem.target
    slope, stiff = slopes(problem, x)
    inertial, step = problem.inertia @ a - problem.force, full_step(problem, a)
    change, push = problem.jacobian @ step, problem.inertia @ step

    def along(share: Any) -> tuple[Any, Any]:
        """The function's first and second derivative along the step, after a share of it."""
        slope, stiff = slopes(problem, x + share * change)
        return step @ (inertial + share * push) + slope @ change, step @ push + stiff @ change**2

    # The slope left at the step's end is of rows that began or ceased to act. The function is at least as convex as its
    # inertial part, so this slope in the norm of the mobility bounds how far the end is from the least, in the
    # inertia's. It is compared with the end itself in that norm, and what acts there.
    ended, stiff_there = slopes(problem, x + change)
    turned = (stiff == 0) & (jnp.sign(slope) != jnp.sign(ended))  # a largest force, now the other way
    other = (stiff != stiff_there) | turned
    left = jnp.where(other, ended - slope - stiff * change, 0.0) @ problem.jacobian
    energy = (a + step) @ (inertial + problem.force + push) + ended @ (x + change)
    small = (ROUNDED * float(jnp.finfo(a.dtype).eps)) ** 2
    more = left @ mobility @ left > small * energy  # NaN compares as False, and ends the steps

    if not search:
        first, second = along(1.0)
        share = 1 - first / second
        share = jnp.where(share > 0, share, 0.5)
    else:  # Newton steps between a falling and a rising slope

        def nearer(_: Any, carry: Any) -> Any:
            share, low, high = carry
            first, second = along(share)
            low, high = jnp.where(first < 0, share, low), jnp.where(first < 0, high, share)
            new, middle = share - first / second, jnp.where(jnp.isinf(high), 2 * share, 0.5 * (low + high))
            return jnp.where((new > low) & (new < high), new, middle), low, high

        start = jnp.ones_like(energy), jnp.zeros_like(energy), jnp.full_like(energy, jnp.inf)
        share = jax.lax.fori_loop(0, SEARCHES, nearer, start)[0]
    return a + jnp.where(more, share, 1.0) * step, more


def least(problem: Problem, guess: Float[Array, "v"], most: int = MOST) -> Float[Array, "v"]:
    """The accelerations at the least of Gauss's function, by Newton steps from a first guess until they are exact, at
    most `most`. Their derivatives, of any order, are those of the least itself, not of the steps towards it."""
    both = problem.both

    def steps(problem: Problem, guess: Array) -> Array:
        problem = problem._replace(both=both)
        mobility = solution(problem.inertia, jnp.eye(len(guess), dtype=guess.dtype))
        carry = guess, jnp.bool_(True), jnp.int32(0)
        for search, until in ((False, min(QUICK, most)), (True, most)):

            def onwards(carry: Any, search: bool = search) -> Any:
                return *newton_step(problem, mobility, carry[0], search), carry[2] + 1

            carry = jax.lax.while_loop(lambda carry, until=until: carry[1] & (carry[2] < until), onwards, carry)
        return carry[0]

    def differentiable(problem: Problem, guess: Array) -> Array:
        # A step more from there, whose derivatives are the least's, as the function is quadratic about it.
        a = jax.lax.stop_gradient(steps(*jax.lax.stop_gradient((problem, guess))))
        return a + full_step(problem._replace(both=both), a)

    found = jax.custom_jvp(steps)
    found.defjvp(lambda primals, tangents: jax.jvp(differentiable, primals, tangents))
    return found(problem._replace(both=None), guess)


@precise
def solve(m: Any, data: Any) -> Any:
    """As `mjx.solve`: data with `qacc`, `qfrc_constraint` and the rows' forces."""
    from mujoco import mjx

    if m.opt.cone != mjx.ConeType.PYRAMIDAL or m.opt.solver != mjx.SolverType.NEWTON:
        return mjx.solve(m, data)
    rows, index = data._impl, np.arange(data._impl.nefc)
    both = index < rows.ne + rows.nf
    problem = Problem(
        mjx.full_m(m, data),
        data.qfrc_smooth,
        rows.efc_J,
        rows.efc_D,
        rows.efc_aref,
        both,
        jnp.where(both & (index >= rows.ne), rows.efc_frictionloss, jnp.inf),
    )
    cold = m.opt.disableflags & mjx.DisableBit.WARMSTART
    a = least(problem, data.qacc_smooth if cold else data.qacc_warmstart, max(MOST, m.opt.iterations))
    force = -slopes(problem, problem.jacobian @ a - problem.target)[0]
    return data.tree_replace({"qacc": a, "qfrc_constraint": force @ problem.jacobian, "_impl.efc_force": force})
