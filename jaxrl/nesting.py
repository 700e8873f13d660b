"""An algorithm around another one: a curriculum, a population or an adaptive replay ratio around a learner.

The outer algorithm is made by `around(inner, name, settings, init=..., ...)` and is an `Algorithm` itself. Its states
are `OuterState`s, which hold the state of the inner algorithm as their field `inner`. The settings of the outer
algorithm are one more field of the inner algorithm's `Hyper`: `with_settings` makes such a class, `join_hyper` adds the
field to a `Hyper` and `split_hyper` takes it off again.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.algorithm import PUBLIC, Algorithm, field, with_field
from jaxrl.environment import Replaceable, pytree


class OuterState(Replaceable):
    """The state of an algorithm that stands around another: the state of the inner algorithm is its field `inner`.

    The fields that every state has (`algorithm.PUBLIC`) and that a subclass does not define are read from `inner`, and
    `replace` changes them there. Subclasses are pytrees.
    """

    inner: Any
    SETTINGS: ClassVar[tuple[str, str] | None] = None
    """Where the settings of the outer algorithm are: the name of their field of `hyper`, and their dotted path in this
    state, as `("curriculum", "curriculum.hyper")`. None: it has none."""

    @property
    def hyper(self) -> Any:
        """The settings of the inner algorithm, with those of the outer one as one more field."""
        name, path = self.SETTINGS or ("", "")
        outer = field(self, path) if path else None
        return self.inner.hyper if outer is None else join_hyper(self.inner.hyper, name, outer)

    def __getattr__(self, name: str) -> Any:
        if name in PUBLIC and not hasattr(type(self), name):  # else a property of this class failed
            return getattr(self.inner, name)
        raise AttributeError(f"{type(self).__name__} has no field {name!r}.")

    def replace(self, **changes: Any) -> Self:
        """A copy with fields of this state, or public fields of the inner state, changed."""
        if "hyper" in changes and self.SETTINGS is not None:
            name, path = self.SETTINGS
            hyper, outer = split_hyper(changes.pop("hyper"), name)
            changed = self.replace(**changes) if changes else self
            changed = changed.replace(inner=changed.inner.replace(hyper=hyper))
            return changed if outer is None else with_field(changed, path, outer)
        here = {field.name for field in dataclasses.fields(self)}  # pyright: ignore[reportArgumentType]
        of_inner = {name: changes.pop(name) for name in PUBLIC if name in changes and name not in here}
        if of_inner:
            changes["inner"] = changes.get("inner", self.inner).replace(**of_inner)
        return super().replace(**changes)


def around(inner: Algorithm, name: str, settings: tuple[Any, ...], **functions: Any) -> Algorithm:
    """The Algorithm called `name` that stands around `inner`; its states are `OuterState`s.

    Args:
        settings: static settings of the outer algorithm. They are part of a run's identity, as `config` is, which
            remains that of `inner`.
        functions: what the outer algorithm does itself, by the names of `Algorithm`: `init`, `collect`, `learn`, and
            `hyper` where it has settings. `policy`, `restart` and `slots` are those of `inner` unless given.
    """

    def restart(state: Any, key: Array, env_params: Any, mask: Array) -> Any:
        return state.replace(inner=inner.restart(state.inner, key, env_params, mask))

    given = {
        "policy": lambda state: inner.policy(state.inner),
        "restart": restart,
        "slots": tuple(f"inner.{path}" for path in inner.slots),
        **functions,
    }
    return inner._replace(name=f"{inner.name}+{name}", around=(*inner.around, name, *settings), **given)


# ---- settings of the outer algorithm: one more field of the inner algorithm's Hyper


@functools.cache
def _with_one_more(hyper: type, name: str) -> type:
    body = {"__annotations__": {name: Any}, name: None, "__module__": hyper.__module__, "__doc__": hyper.__doc__}
    return pytree(type("Hyper", (hyper,), {**body, "__qualname__": hyper.__qualname__, "_outer": name}))


def with_settings(make_hyper: Callable[..., Any], name: str, settings: Any) -> Callable[..., Any]:
    """`Algorithm.hyper` of an outer algorithm, made of the inner one's: it takes one more field, `name`, whose default
    is `settings`.

        hyper = with_settings(student.hyper, "curriculum", plr.Hyper())
        hyper(gamma=0.9).curriculum.staleness
    """
    return functools.partial(
        _with_one_more(type(make_hyper()), name), **{**getattr(make_hyper, "keywords", {}), name: settings}
    )


def join_hyper(inner: Any, name: str, outer: Any) -> Any:
    """The settings `inner` with one more field, `name`, that holds the settings `outer`.

    hyper = join_hyper(ppo.Hyper(), "curriculum", plr.Hyper())
    hyper.gamma, hyper.curriculum.staleness
    """
    values = {field.name: getattr(inner, field.name) for field in dataclasses.fields(inner)}
    return _with_one_more(type(inner), name)(**values, **{name: outer})


def split_hyper(hyper: Any, name: str, default: Any = None) -> tuple[Any, Any]:
    """`(inner, outer)`: the settings without the field `name`, and that field, in the dtypes of `default`.

        inner, outer = split_hyper(hyper, "curriculum")  # a ppo.Hyper and a plr.Hyper
        inner, outer = split_hyper(ppo.Hyper(), "curriculum", plr.Hyper())  # without the field: `outer` is the default

    Raises TypeError for a field of another class than `default`.
    """
    if getattr(hyper, "_outer", None) != name:
        return hyper, default
    outer, cls = getattr(hyper, name), type(hyper).__bases__[0]
    if default is not None:
        outer = cast_settings(name, outer, default)
    return cls(**{field.name: getattr(hyper, field.name) for field in dataclasses.fields(cls)}), outer


def cast_settings(name: str, settings: Any, default: Any) -> Any:
    """The settings that stand in the field `name` of a Hyper, in the dtypes of their default.

    Raises TypeError for settings of another class than the default.
    """
    if type(settings) is not type(default):
        found, wanted = (f"{type(x).__module__}.{type(x).__qualname__}" for x in (settings, default))
        raise TypeError(f"hyper.{name} is a {found}, not a {wanted}.")
    return jax.tree.map(lambda x, like: jnp.asarray(x, jnp.result_type(like)), settings, default)


def complete_hyper(algo: Algorithm, hyper: Any) -> Any:
    """All settings of `algo`: those of `hyper`, and the defaults for every outer algorithm that `hyper` leaves out.

    None stands for the defaults of all. A Hyper of an unrelated algorithm is returned as it is: `init` refuses it.
    """
    defaults = algo.hyper()
    if hyper is None:
        return defaults
    if not issubclass(type(defaults), type(hyper)):
        return hyper
    return algo.hyper(**{field.name: getattr(hyper, field.name) for field in dataclasses.fields(hyper)})
