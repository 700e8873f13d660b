"""The compiled part of `fit`: many updates in one call, of one seed or several, and where they diverged."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, check_hyper, check_key
from jaxrl.environment import pytree, strongly_typed
from jaxrl.host.run import sharding
from jaxrl.host.run.compiled import Contents, Static, contents, kept
from jaxrl.host.run.run_folder import description, tree_values
from jaxrl.nesting import complete_hyper

MAX_UPDATES_PER_CALL = 512


@pytree
class Watch:
    """Where the first NaN or infinity was seen."""

    update: jax.Array  # int32, -1: nowhere
    leaves: jax.Array  # bool, which of the watched leaves


class Program:
    """The compiled part: `run(carry, first, count)` makes `count` updates and returns their metrics."""

    def __init__(
        self,
        algo: Algorithm,
        key: Array,
        num_seeds: int | None,
        hyper: Any,
        env_params: Any,
        mesh: Mesh | None = None,
    ) -> None:
        self.algo, self.num_seeds, self.env_params, self.mesh = algo, num_seeds, env_params, mesh
        if mesh is not None:
            sharding.check(mesh, algo, num_seeds)
        check_key(key)
        hyper = complete_hyper(algo, hyper)
        check_hyper(hyper)  # `init` sees it traced
        self.hyper = strongly_typed(hyper)
        self.keys = key if num_seeds is None or key.ndim else jax.random.split(key, num_seeds)
        shape = () if num_seeds is None else (num_seeds,)
        if self.keys.shape != shape:
            raise ValueError(f"key has shape {key.shape}; num_seeds={num_seeds} needs one key, or shape {shape}.")
        # What has no default of its own, as a learned rule, is shared by all seeds.
        defaults = {path: x.shape for path, x in jax.tree_util.tree_leaves_with_path(strongly_typed(algo.hyper()))}
        batched = jax.tree_util.tree_map_with_path(lambda p, x: x.shape != defaults.get(p, x.shape), self.hyper)
        for path, x in jax.tree_util.tree_leaves_with_path(self.hyper):
            name, alone = jax.tree_util.keystr(path), defaults.get(path, x.shape)
            if x.shape != alone and num_seeds is None:
                raise ValueError(
                    f"hyper{name} is batched, but this is a single run: say num_seeds, or jax.vmap(train)."
                )
            if x.shape not in (alone, shape + alone):
                raise ValueError(
                    f"hyper{name} has shape {x.shape}; num_seeds={num_seeds} needs {alone} or {shape + alone}."
                )
        self.axes = jax.tree.map(lambda each: 0 if each else None, batched)
        axes = Static.of(self.axes)
        self.begin = _begin(algo, num_seeds, axes, contents(env_params), mesh, None)
        state, watch = jax.eval_shape(self.begin, self.keys, self.hyper)
        self.names = ["loss", *(jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(state.weights))]
        self.at = None
        if mesh is not None:  # what the host reads, metrics and where updates diverged, is whole on every device
            whole = sharding.replicated(mesh)
            self.at = sharding.shardings(mesh, algo, state, num_seeds), jax.tree.map(lambda _: whole, watch)
            self.begin = _begin(algo, num_seeds, axes, contents(env_params), mesh, Static.of(self.at))
        at = None if self.at is None else Static.of(self.at)
        self.jitted = _updates(
            algo, num_seeds is not None, mesh, at, MAX_UPDATES_PER_CALL
        )  # `run` before it is compiled
        self.afresh, self.merged = _mending(at)

    def start(self) -> tuple[Any, Watch]:
        return self.begin(*sharding.everywhere((self.keys, self.hyper), self.mesh))

    def shapes(self) -> Any:
        """Shapes of the carry's leaves, with where they lie on the mesh."""
        shapes = jax.eval_shape(self.begin, self.keys, self.hyper)
        if self.mesh is None:
            return shapes
        return jax.tree.map(lambda x, at: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=at), shapes, self.at)

    def identity(self) -> dict[str, Any]:
        return {**description(self.algo, self.num_seeds), "hyper": tree_values(self.hyper)}

    def compile(self, carry: Any) -> float:
        """Seconds it took."""
        begin = time.perf_counter()
        self.run = self.jitted.lower(carry, 0, 1).compile()
        return time.perf_counter() - begin

    def call(self, carry: Any, first: int, count: int) -> tuple[Any, dict[str, Array]]:
        """`run`, and each seed that diverged in it brought to just before the update that broke it.

        With the same program, so that its last good state does not depend on how updates were grouped into calls.
        """
        (state, watch), rows = self.run(carry, first, count)
        for seed in np.flatnonzero(np.asarray(watch.update) > first) if self.num_seeds is not None else ():
            (again, _), _ = self.run(self.afresh(state, watch), first, int(watch.update[seed]) - first)
            state = self.merged(again, state, seed)
        return (state, watch), rows

    def diverged(self, carry: Any) -> dict[int, str]:
        update, leaves = np.atleast_1d(carry[1].update), np.atleast_2d(carry[1].leaves)
        return {
            int(seed): f"NaN or infinity in update {update[seed]}, first in {self.names[int(np.argmax(leaves[seed]))]}"
            for seed in np.flatnonzero(update >= 0)
        }

    def without_diverged(self, carry: Any, first: int, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Rows of frozen seeds are empty after the update that broke them: what ran there is not part of the run."""
        update = np.asarray(carry[1].update)
        over = (update >= 0) & (first + np.arange(len(rows["loss"])).reshape(-1, *[1] * update.ndim) > update)
        empty = {k: np.nan if np.issubdtype(v.dtype, np.floating) else 0 for k, v in rows.items()}
        return {k: np.where(over, np.asarray(empty[k], v.dtype), v) for k, v in rows.items()}


# ---- what is compiled: made anew for another algorithm only, so that a loop of `fit` in one process compiles once


@kept
def _begin(
    algo: Algorithm, num_seeds: int | None, axes: Static, env_params: Contents, mesh: Mesh | None, at: Static | None
) -> Any:
    """Jitted `(keys, hyper) -> carry`, the states before the first update; `axes` are those of seeds in `hyper`."""

    def one(key: Array, hyper: Any) -> Any:
        return algo.init(key, hyper, env_params.tree)

    def begin(keys: Array, hyper: Any) -> tuple[Any, Watch]:
        each = one if num_seeds is None else sharding.independent(one, mesh, (0, axes.tree), 0)
        state = each(keys, hyper)
        shape = () if num_seeds is None else (num_seeds,)
        watched = 1 + len(jax.tree.leaves(state.weights))
        return state, Watch(jnp.full(shape, -1), jnp.zeros((*shape, watched), bool))

    return jax.jit(begin) if at is None else jax.jit(begin, out_shardings=at.tree)


@kept
def _updates(algo: Algorithm, several: bool, mesh: Mesh | None, at: Static | None, most: int) -> Any:
    """Jitted `(carry, first, count) -> (carry, rows)`, which makes `count` updates of one seed or of `several`; at
    `most` so many.
    """
    one = functools.partial(_updates_of_one, algo, most)
    each = sharding.independent(one, mesh, (0, None, None), (0, 1)) if several else one

    def run(carry: Any, first: Array, count: Array) -> tuple[Any, dict[str, Array]]:
        with _context(mesh):
            after, rows = each(carry, first, count)
        if several:  # a seed that diverged is as it was before this call; the others go on
            fine = after[1].update < 0
            state = jax.tree.map(lambda new, old: _where(fine, new, old), after[0], carry[0])
            after = (state, after[1])
        return after, rows

    where: Any = None if at is None or mesh is None else (at.tree, sharding.replicated(mesh))
    return jax.jit(run, donate_argnums=0, out_shardings=where)


@kept
def _mending(at: Static | None) -> tuple[Any, Any]:
    """Jitted `_afresh` and `_merged`."""
    where = None if at is None else at.tree
    return jax.jit(_afresh, out_shardings=where), jax.jit(_merged, out_shardings=None if where is None else where[0])


def _context(mesh: Mesh | None) -> Any:
    """In which `rollout.spread` knows the mesh, while a program is traced."""
    return contextlib.nullcontext() if mesh is None else jax.sharding.use_abstract_mesh(mesh.abstract_mesh)


def _updates_of_one(algo: Algorithm, most: int, carry: Any, first: Array, count: Array) -> tuple[Any, dict[str, Array]]:
    metrics = jax.eval_shape(algo.update, carry[0])[1]
    rows = {k: jnp.zeros((most, *x.shape), x.dtype) for k, x in metrics.items()}

    def body(i, loop):
        state, watch, rows = loop
        state, metrics = algo.update(state)
        finite = jnp.stack([jnp.isfinite(x).all() for x in (metrics["loss"], *jax.tree.leaves(state.weights))])
        for name in ("gradient_steps", "learned"):  # where there was nothing to learn from, the loss is NaN
            finite = finite.at[0].set(finite[0] | (metrics.get(name, 1) == 0))
        new = (watch.update < 0) & ~finite.all()
        watch = Watch(jnp.where(new, first + i, watch.update), jnp.where(new, ~finite, watch.leaves))
        return state, watch, {k: rows[k].at[i].set(x) for k, x in metrics.items()}

    state, watch, rows = jax.lax.fori_loop(0, count, body, (*carry, rows))
    return (state, watch), rows


def abstract_update(
    algo: Algorithm, mesh: Mesh, num_seeds: int | None = None, hyper: Any = None, env_params: Any = None
) -> tuple[Any, tuple[Any, ...]]:
    """`(jitted, arguments)` of the program that `fit` runs on this mesh, of shapes alone.

    `jitted.lower(*arguments).compile()` needs none of the mesh's devices to be here: they may be a topology's.
    """
    program = Program(algo, jax.random.key(0), num_seeds, hyper, env_params, mesh)
    count = jax.ShapeDtypeStruct((), jnp.int32, sharding=sharding.replicated(mesh))
    return program.jitted, (program.shapes(), count, count)


def _afresh(state: Any, watch: Watch) -> tuple[Any, Watch]:
    """A copy in which nothing has diverged."""
    return jax.tree.map(jnp.copy, state), Watch(jnp.full_like(watch.update, -1), jnp.zeros_like(watch.leaves))


def _merged(new: Any, old: Any, seed: Array) -> Any:
    """The seed of the one among the others of the other."""
    return jax.tree.map(lambda new, old: _where(jnp.arange(new.shape[0]) == seed, new, old), new, old)


def _where(mask: Array, new: Array, old: Array) -> Array:
    return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - 1)), new, old)
