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

        _, weights, rest = nnx.split(self.build(nnx.Rngs(key)), nnx.Param, ...)
        if kept := {type(variable).__name__ for _, variable in nnx.to_flat_state(rest)}:
            raise TypeError(f"{_named(self.build)} keeps {', '.join(sorted(kept))} beside its parameters.")
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

        module = self.build(key)
        if not isinstance(module, eqx.Module):
            raise TypeError(f"{_named(self.build)} returns no equinox.Module but a {type(module).__name__}.")
        weights, rest = eqx.partition(module, eqx.is_inexact_array)
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


class Functions(_Adapter):
    """Plain functions: `init(key, *inputs)` returns weights, and `apply(weights, *inputs)` outputs for inputs with any
    leading axes, as `jax.example_libraries.stax` and haiku's `transform` have them.

    Args:
        methods: further functions with the arguments of `apply`, by the names under which an algorithm calls them, as
            PPO's `actor` and `critic`.
    """

    def __init__(self, init: Callable[..., Any], apply: Callable[..., Any], **methods: Callable[..., Any]):
        self.init = init
        self.methods: dict[str | None, Callable[..., Any]] = {None: apply, **methods}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Functions) and (self.init, self.methods) == (other.init, other.methods)

    def __hash__(self) -> int:
        return hash((self.init, *self.methods.items()))

    def outputs(self, weights: PyTree, method: str | None, *inputs: Any) -> Any:
        if method not in self.methods:
            raise TypeError(f"Functions: the algorithm calls {method!r}; give it as {method}=FUNCTION.")
        return self.methods[method](weights, *inputs)


def _method(module: Any, name: str | None) -> Callable[..., Any]:
    if name is not None and not hasattr(module, name):
        raise TypeError(f"{type(module).__name__} has no {name}, which the algorithm calls.")
    return getattr(module, name or "__call__")


def _named(build: Any) -> str:
    return getattr(build, "__name__", repr(build))
