"""The compiled part of `fit`: many updates in one call, of one seed or several, and where they diverged."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, check_hyper, complete
from jaxrl.environment import pytree, strongly_typed
from jaxrl.host.run_folder import description, tree_values

MAX_UPDATES_PER_CALL = 512


@pytree
class Watch:
    """Where the first NaN or infinity was seen."""

    update: jax.Array  # int32, -1: nowhere
    leaves: jax.Array  # bool, which of the watched leaves


class Program:
    """The compiled part: `run(carry, first, count)` makes `count` updates and returns their metrics."""

    def __init__(self, algo: Algorithm, key: Array, num_seeds: int | None, hyper: Any, env_params: Any) -> None:
        self.algo, self.num_seeds, self.env_params = algo, num_seeds, env_params
        hyper = complete(algo, hyper)
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
        self.init = jax.jit(self._init)  # traced once, for shapes and start
        state = jax.eval_shape(self.init, self.keys, self.hyper)
        self.names = ["loss", *(jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(state.weights))]

    def _init(self, keys: Array, hyper: Any) -> Any:
        if self.num_seeds is None:
            return self.algo.init(keys, hyper, self.env_params)
        return jax.vmap(lambda k, h: self.algo.init(k, h, self.env_params), (0, self.axes))(keys, hyper)

    def start(self) -> tuple[Any, Watch]:
        shape = () if self.num_seeds is None else (self.num_seeds,)
        watch = Watch(jnp.full(shape, -1), jnp.zeros((*shape, len(self.names)), bool))
        return self.init(self.keys, self.hyper), watch

    def shapes(self) -> Any:
        return jax.eval_shape(self.start)

    def identity(self) -> dict[str, Any]:
        return {**description(self.algo, self.num_seeds), "hyper": tree_values(self.hyper)}

    @property
    def jitted(self) -> Any:
        """`run` before it is compiled; its carry is donated."""
        return jax.jit(self._run, donate_argnums=0)

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
            fresh = jax.tree.map(jnp.copy, state), Watch(jnp.full_like(watch.update, -1), jnp.zeros_like(watch.leaves))
            (again, _), _ = self.run(fresh, first, int(watch.update[seed]) - first)
            this = jnp.arange(self.num_seeds) == seed
            state = jax.tree.map(lambda new, old, this=this: _where(this, new, old), again, state)
        return (state, watch), rows

    def _run(self, carry: Any, first: Array, count: Array) -> tuple[Any, dict[str, Array]]:
        one = self._run_one if self.num_seeds is None else jax.vmap(self._run_one, (0, None, None), (0, 1))
        after, rows = one(carry, first, count)
        if self.num_seeds is not None:  # a seed that diverged is as it was before this call; the others go on
            fine = after[1].update < 0
            state = jax.tree.map(lambda new, old: _where(fine, new, old), after[0], carry[0])
            after = (state, after[1])
        return after, rows

    def _run_one(self, carry: Any, first: Array, count: Array) -> tuple[Any, dict[str, Array]]:
        metrics = jax.eval_shape(self.algo.update, carry[0])[1]
        rows = {k: jnp.zeros((MAX_UPDATES_PER_CALL, *x.shape), x.dtype) for k, x in metrics.items()}

        def body(i, loop):
            state, watch, rows = loop
            state, metrics = self.algo.update(state)
            finite = jnp.stack([jnp.isfinite(x).all() for x in (metrics["loss"], *jax.tree.leaves(state.weights))])
            for name in ("gradient_steps", "learned"):  # where there was nothing to learn from, the loss is NaN
                finite = finite.at[0].set(finite[0] | (metrics.get(name, 1) == 0))
            new = (watch.update < 0) & ~finite.all()
            watch = Watch(jnp.where(new, first + i, watch.update), jnp.where(new, ~finite, watch.leaves))
            return state, watch, {k: rows[k].at[i].set(x) for k, x in metrics.items()}

        state, watch, rows = jax.lax.fori_loop(0, count, body, (*carry, rows))
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


def _where(mask: Array, new: Array, old: Array) -> Array:
    return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - 1)), new, old)
