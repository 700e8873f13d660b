"""Networks of other libraries, as `network=`, `actor=` and `critic=` take them: flax nnx, equinox, pairs of functions.

    ppo.make(env, config, network=neural.Nnx(Torso))                      # Torso(rngs)
    ppo.make(env, config, network=neural.Equinox(Torso))                  # Torso(key)
    ppo.make(env, config, network=neural.Functions(init, apply, actor=actor, critic=critic))

Modules of flax.linen need no adapter. An adapter is static, and hashed by what it was made of: make it once, outside of
functions that are called again, so that algorithms made with it share their compiled programs. Weights are a pytree of
arrays: checkpoints, meta-gradients and seeds know no difference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree


class _Adapter:
    """Calls as flax.linen's, for which a library needs `init` and `outputs` only."""

    def outputs(self, weights: PyTree, method: str | None, *inputs: Any) -> Any:
        raise NotImplementedError

    def apply(
        self, weights: PyTree, *inputs: Any, method: str | None = None, rngs: Any = None, mutable: Any = False
    ) -> Any:
        """The outputs; with `mutable` a pair of them and of what was sown, which is nothing."""
        outputs = self.outputs(weights, method, *inputs)
        return (outputs, {}) if mutable else outputs


@dataclasses.dataclass(frozen=True)
class Nnx(_Adapter):
    """A module of flax.nnx, by what builds it; a method is called by its name, as PPO's `actor` and `critic`.

    Raises TypeError for a module that keeps more than parameters (statistics of a batch norm, keys of dropout): no
    algorithm would carry it from one update to the next.
    """

    build: Callable[[Any], Any]  # (nnx.Rngs) -> nnx.Module

    def init(self, key: jax.Array, *inputs: Any) -> PyTree:
        from flax import nnx

        module = _built(self.build, nnx.Rngs(key), nnx.Module)
        _, weights, rest = nnx.split(module, nnx.Param, ...)
        if kept := sorted(".".join(map(str, path)) for path, _ in nnx.to_flat_state(rest)):
            raise TypeError(
                f"{_named(self.build)} keeps {', '.join(kept)} beside its parameters, which no update would carry: a "
                "constant is made in __call__."
            )
        return nnx.to_pure_dict(weights)

    def outputs(self, weights: PyTree, method: str | None, *inputs: Any) -> Any:
        from flax import nnx

        module = nnx.eval_shape(lambda: self.build(nnx.Rngs(0)))
        state = nnx.state(module, nnx.Param)
        nnx.replace_by_pure_dict(state, weights)
        nnx.update(module, state)
        return _method(module, method)(*inputs)


@dataclasses.dataclass(frozen=True)
class Equinox(_Adapter):
    """A module of equinox, by what builds it from a key. Such modules are written for one observation; they are mapped
    over the axes before it, of which there may be any number.

    Raises TypeError for what is no module, as a pair with its state (`eqx.nn.make_with_state`), and for arrays that are
    no floats: no algorithm would carry or learn them.
    """

    build: Callable[[jax.Array], Any]  # (key) -> equinox.Module
    axes: int = 1  # of one observation, of its first array if there are several; 3 of an image

    def init(self, key: jax.Array, *inputs: Any) -> PyTree:
        import equinox as eqx

        module = _built(self.build, key, eqx.Module)
        weights, rest = eqx.partition(module, eqx.is_inexact_array)
        again = eqx.filter(eqx.filter_eval_shape(self.build, jax.random.key(0)), lambda x: False)
        try:
            same = jax.tree.structure(eqx.filter(module, lambda x: False)) == jax.tree.structure(again)
        except ValueError:  # of arrays, which are neither equal nor not
            same = False
        if not same:
            raise TypeError(
                f"{_named(self.build)} has other static fields each time that it is built: they may hold functions "
                "that are defined at the top of a module, but no lambda of __init__ and no array."
            )
        if kept := [x.dtype.name for x in jax.tree.leaves(rest) if eqx.is_array(x)]:
            raise TypeError(f"{_named(self.build)} keeps {', '.join(kept)} arrays beside its parameters.")
        return weights

    def outputs(self, weights: PyTree, method: str | None, *inputs: Any) -> Any:
        import equinox as eqx

        shapes = eqx.filter_eval_shape(self.build, jax.random.key(0))
        static = eqx.filter(shapes, lambda x: not isinstance(x, jax.ShapeDtypeStruct))
        called = _method(eqx.combine(weights, static), method)
        for _ in range(jax.tree.leaves(inputs)[0].ndim - self.axes):
            called = jax.vmap(called)
        return called(*inputs)


@dataclasses.dataclass(frozen=True)
class Functions(_Adapter):
    """Plain functions: `init(key, *inputs)` returns weights, and `function(weights, *inputs)` outputs for inputs with
    any leading axes; `actor` and `critic` are those parts alone, which algorithms with one network for both call.
    """

    init: Callable[..., Any]
    function: Callable[..., Any]
    actor: Callable[..., Any] | None = None
    critic: Callable[..., Any] | None = None

    def outputs(self, weights: PyTree, method: str | None, *inputs: Any) -> Any:
        called = self.function if method is None else getattr(self, method, None)
        if called is None:
            raise TypeError(f"Functions: the algorithm calls {method!r}; give it as {method}=FUNCTION.")
        return called(weights, *inputs)


def _built(build: Callable[[Any], Any], source: Any, kind: type) -> Any:
    """The module that is built. Raises TypeError for one in the place of what builds it, and for all else."""
    if isinstance(build, kind):
        raise TypeError(f"{type(build).__name__} is a module; give what builds it, as its class.")
    module = build(source)
    if not isinstance(module, kind):
        raise TypeError(f"{_named(build)} returns no {kind.__module__}.{kind.__name__} but a {type(module).__name__}.")
    return module


def _method(module: Any, name: str | None) -> Callable[..., Any]:
    if name is not None and not hasattr(module, name):
        raise TypeError(f"{type(module).__name__} has no {name}, which the algorithm calls.")
    return getattr(module, name or "__call__")


def _named(build: Any) -> str:
    return getattr(build, "__name__", repr(build))
