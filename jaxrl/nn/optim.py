"""Optimisers of optax with a learning rate that may be traced and, as far as possible, finite second derivatives."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from jaxrl.environment import pytree, strongly_typed

EPS_ROOT = 1e-24
"""Added under Adam's square root, which has no derivative at zero; with this its derivatives are finite in float32.

It changes a step by less than 1e-7 learning rates. With a much smaller one (1e-28) more third derivatives overflow;
with a much larger one (1e-16) weights whose gradients are near `eps` learn at a visibly lower rate.
"""

# ---- rates and norms


def annealed(value: Array, step: Array, anneal_steps: Array) -> Array:
    """`value`, decreasing linearly to zero at `anneal_steps` environment steps; constant where `anneal_steps` is 0."""
    left = jnp.maximum(1 - step / jnp.maximum(anneal_steps, 1), 0).astype(value.dtype)
    return value * jnp.where(anneal_steps > 0, left, 1)


def safe_norm(tree: PyTree) -> Float[Array, ""]:
    """The 2-norm of all leaves together; its gradient at zero is zero, not NaN."""
    square = sum((jnp.sum(x * x) for x in jax.tree.leaves(tree)), jnp.zeros(()))
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def clip_by_global_norm(tree: PyTree, max_norm: Array | float) -> PyTree:
    """All leaves scaled by one factor, so that their common norm is at most `max_norm` (Pascanu et al. 2013).

    optax's function has a NaN derivative where all gradients are zero.
    """
    scale = jnp.minimum(1, max_norm / jnp.maximum(safe_norm(tree), 1e-12))
    return jax.tree.map(lambda x: x * scale, tree)


def polyak(old: PyTree, new: PyTree, tau: Float[Array, ""] | float) -> PyTree:
    """The Polyak average of target networks: (1 - tau) old + tau new."""
    return jax.tree.map(lambda x, y: x + tau * (y - x), old, new)


# ---- optimisers by name


def adam(
    learning_rate: Array | float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformation:
    """`optax.adam` (Kingma and Ba 2015, algorithm 1), differentiable twice where a gradient is zero."""
    return optax.adam(learning_rate, b1, b2, eps, EPS_ROOT)


def muon(learning_rate: Array | float) -> optax.GradientTransformation:
    """`optax.contrib.muon` (Jordan et al. 2024) on kernels and NAdam on all other weights, at one learning rate.

    Steps on matrices have the root mean square of Adam's (Liu et al. 2025, arXiv:2502.16982), so that one rate suits
    both. A kernel is a leaf whose name begins with `kernel` or `recurrent`; its leading axes are a batch (an ensemble).
    Not differentiable at a gradient of zero.
    """

    def matrix(path: Any, x: Any) -> Any:
        name = str(getattr(path[-1], "key", "")) if path else ""
        if not name.startswith(("kernel", "recurrent")) or x.ndim < 2:
            return None
        # Convolutions (height, width, in, out) map a whole patch.
        inputs = -2 if x.ndim < 4 else (-4, -3, -2)
        return optax.contrib.MuonDimensionNumbers(inputs, -1)

    def matrices(weights: PyTree) -> PyTree:
        return jax.tree_util.tree_map_with_path(matrix, weights)

    return optax.contrib.muon(
        learning_rate, adam_eps_root=EPS_ROOT, muon_weight_dimension_numbers=matrices, consistent_rms=0.2
    )


def _with_eps_root(transformation: Callable[..., Any]) -> Callable[..., Any]:
    def make(learning_rate: Array | float, **settings: float) -> optax.GradientTransformation:
        return transformation(learning_rate, eps_root=EPS_ROOT, **settings)

    return make


ADAMS: dict[str, Callable[..., optax.GradientTransformation]] = {
    "adam": adam,
    "adamw": _with_eps_root(optax.adamw),
    "amsgrad": _with_eps_root(optax.amsgrad),
    "nadam": _with_eps_root(optax.nadam),
    "radam": _with_eps_root(optax.radam),
}
"""Optimisers that take an algorithm's settings `b1`, `b2` and `eps`."""
ELEMENTWISE = {**ADAMS, "adagrad": optax.adagrad, "lion": optax.lion, "rmsprop": optax.rmsprop, "sgd": optax.sgd}
"""Element-wise optimisers, with optax's defaults: these work on all weights as one vector."""
OPTIMIZERS = {**ELEMENTWISE, "muon": muon}
"""All optimisers by name, as functions of the learning rate."""


@pytree
class OptimizerState:
    count: jax.Array  # steps taken
    inner: Any  # optax's state


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An optax optimiser whose learning rate may be traced: a leaf, or annealed.

    The transformation is built again at each step with that step's rate; its state does not depend on the rate.
    """

    transformation: Any  # learning rate -> optax.GradientTransformation; or one whose rate is fixed
    settings: tuple[tuple[str, float], ...] = ()  # further arguments of `transformation`
    flat: bool = False  # work on all weights as one vector
    name: str = ""  # the key in `OPTIMIZERS`; "" for an optimiser that is not in that table

    def at(self, learning_rate: Array | float) -> optax.GradientTransformation:
        """The transformation with this learning rate."""
        if isinstance(self.transformation, optax.GradientTransformation):
            return self.transformation
        return self.transformation(learning_rate, **dict(self.settings))

    def init(self, weights: PyTree, learning_rate: Array | float) -> OptimizerState:
        """The state before the first step."""
        weights = ravel_pytree(weights)[0] if self.flat else weights
        return OptimizerState(jnp.int32(0), strongly_typed(self.at(learning_rate).init(weights)))

    def change(
        self, flat: Float[Array, " P"], state: OptimizerState, grads: PyTree, learning_rate: Array | float
    ) -> tuple[Float[Array, " P"], OptimizerState]:
        """`(update, state)`: the update is added to the flattened weights. `grads` has the structure of the weights."""
        gradient, unravel = ravel_pytree(grads)
        transformation = self.at(learning_rate)
        if self.flat:
            change, inner = transformation.update(gradient, state.inner, flat)
        else:
            change, inner = transformation.update(grads, state.inner, unravel(flat))
        return ravel_pytree(change)[0], OptimizerState(state.count + 1, inner)

    def descend(
        self,
        flat: Float[Array, " P"],
        state: OptimizerState,
        grads: PyTree,
        learning_rate: Array | float,
        max_grad_norm: Array | float = jnp.inf,
    ) -> tuple[Float[Array, " P"], OptimizerState, Float[Array, ""]]:
        """`(flattened weights, state, gradient norm)` after one step; the norm is that before clipping.

        `grads` has the structure of the weights and is clipped to the global norm `max_grad_norm`.
        """
        gradient, unravel = ravel_pytree(grads)
        norm = safe_norm(gradient)
        clipped = clip_by_global_norm(gradient, max_grad_norm)
        change, state = self.change(flat, state, clipped if self.flat else unravel(clipped), learning_rate)
        return flat + change, state, norm


OptimizerLike = str | Optimizer | optax.GradientTransformation | Callable[..., optax.GradientTransformation]
"""The argument `optimizer` of an algorithm's `make`, which `optimizer_of` turns into an `Optimizer`."""


def optimizer_of(optimizer: OptimizerLike, **adam: float) -> Optimizer:
    """The `Optimizer` of a name in `OPTIMIZERS`, a function of the learning rate, or an optax transformation.

    A function is called with the algorithm's learning rate at each step (annealed, possibly traced). A transformation
    keeps its own rate and schedule; the algorithm's `learning_rate` is then unused. Both see the weights as a tree.
    `Optimizer(f, flat=True)` passes them to `f(learning_rate)` as one vector, as element-wise optimisers given by name
    get them: on a CPU a kernel for every matrix and moment costs more than its arithmetic.

    Args:
        adam: the algorithm's settings of Adam, used for the names in `ADAMS`.

    Raises ValueError for an unknown name (it names the nearest one) and TypeError for any other object.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            near = difflib.get_close_matches(optimizer.lower(), OPTIMIZERS, n=1, cutoff=0)
            raise ValueError(
                f"optimizer={optimizer!r} is unknown; did you mean {near[0]!r}? Known: {', '.join(sorted(OPTIMIZERS))}."
            )
        settings = tuple(sorted(adam.items())) if optimizer in ADAMS else ()
        return Optimizer(OPTIMIZERS[optimizer], settings, flat=optimizer in ELEMENTWISE, name=optimizer)
    if not callable(optimizer) and not isinstance(optimizer, optax.GradientTransformation):
        raise TypeError(
            f"optimizer={optimizer!r} is neither a name ({', '.join(sorted(OPTIMIZERS))}), an "
            "optax.GradientTransformation, nor a function of the learning rate that makes one."
        )
    return Optimizer(optimizer)
