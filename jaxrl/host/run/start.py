"""A run that begins from the state of another one: what of it goes on, and what begins anew.

What was learned goes on: weights, statistics, optimisers, replays, the state of a curriculum. Settings, keys and the
count of steps, by which schedules and warm-ups go, are those of the new run, and its environments begin new episodes.

An algorithm may begin from runs of another one, too: `BEGINS_FROM` of its module names them and the settings that both
share, and its function `start(algo, state, key)` makes a state of what they have learned (ReinFlow, of a flow's clone).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Key

from jaxrl import registry
from jaxrl.algorithm import SLOTS, Algorithm, names_of
from jaxrl.host.run import sharding
from jaxrl.host.run.compiled import Static, kept
from jaxrl.nesting import OuterState, complete_hyper

WEIGHTS = (
    "weights",
    "target_weights",
    "target",
    "normalizer",
    "bonus_normalizer",
    "reward_scaler",
    "bonus_scaler",
    "search",
)
"""Fields of states that hold networks and the statistics by which their inputs and targets are scaled."""


class Part(NamedTuple):
    """A state, or the state of the algorithm inside of an outer one, and its dotted path: "", "inner." and so on."""

    state: Any
    path: str


class Start:
    """The state that a run of `algo` begins from.

    Args:
        given: the state of another run, or what `load` returned of it.
        weights_only: of the state only the fields `WEIGHTS` go on.
        key: of the run, for what an algorithm that begins from another one has and that one has not.

    Raises ValueError for a state of another algorithm or of another number of seeds, unless that is one.
    """

    def __init__(
        self, given: Any, algo: Algorithm, num_seeds: int | None, weights_only: bool, key: Key[Array, ""]
    ) -> None:
        self.algo, self.weights_only = algo, weights_only
        self.told: dict[str, Any] = {"weights_only": weights_only}
        if hasattr(given, "policy") and hasattr(given, "updates"):  # `load.Run`
            one, other = (name.split("+")[0] for name in (given.algo.name, algo.name))
            self.told |= {"folder": str(given.folder), "update": given.updates, "algorithm": given.algo.name}
            given = given.state
            if one != other:
                self.told["weights"] = _digest(given.weights)
                given = _begun_from(one, given, algo, num_seeds, key)
                self.weights_only = self.told["weights_only"] = True  # the rest is as it begins
        if not hasattr(given, "hyper") or not hasattr(given, "weights"):
            raise ValueError(
                f"start is a {type(given).__name__}, not the state of an algorithm or what `load` returns."
            )
        target = jax.eval_shape(lambda key: algo.init(key), jax.random.key(0))
        pairs = [(here, there) for here in _parts(target) for there in _parts(given)]
        alike = [(here, there) for here, there in pairs if type(here.state) is type(there.state)]
        if not alike:
            raise ValueError(
                f"start is a {_class(given)}, and states of {algo.name} are a {_class(target)}: a state goes on with "
                "its algorithm."
            )
        self.here, self.there = alike[0]
        self.axis_here, self.axis_there = target.key.ndim, given.key.ndim
        if self.axis_there > self.axis_here:
            _check_seeds(given.key.shape[0], num_seeds)
        self.told.setdefault("weights", _digest(self.there.state.weights))

    @property
    def hyper(self) -> Any:
        """The settings of the state."""
        return complete_hyper(self.algo, self.there.state.hyper)

    def plan(self, shapes: Any, num_seeds: int | None) -> dict[str, Any]:
        """Which leaves of a new state, whose `shapes` are given, are those of this one: its leaves by their names.

        Raises ValueError for the first leaf of another shape. Fields that depend on the number of environments, as a
        replay, begin anew where that differs.
        """
        seeds, own = 0 if num_seeds is None else 1, self.axis_there - self.axis_here
        new = _named(_part_at(shapes, self.here.path))
        old = _named(self.there.state)
        other_envs = _num_envs(new, seeds) != _num_envs(old, own)
        taken, wrong = {}, {}
        afresh: set[Any] = set()
        for name in [*new, *(name for name in old if name not in new)]:
            if not self._goes_on(name):
                continue
            told = [_shape(old.get(name), own), _shape(new.get(name), seeds)]
            if other_envs and self._slot(name):  # also of equal shape: rows of a replay are by environments
                afresh.add(self._slot(name))
            elif told[0] == told[1]:
                taken[name] = old[name]
            elif other_envs and (part := self._per_environment(name)):
                afresh.add(part)
            else:
                wrong[name] = told
        for name, (there, here) in wrong.items():
            words = [shape or "not there" for shape in (there, here)]
            hint = "" if self.weights_only or _field(name) in WEIGHTS else " Its weights alone may fit: weights_only."
            raise ValueError(f"start does not fit: its leaf {name} is {words[0]}, and here it is {words[1]}.{hint}")
        if afresh:
            self.told["afresh"] = sorted(afresh)
        return {name: x for name, x in taken.items() if not any(f"{name}.".startswith(f"{part}.") for part in afresh)}

    def _goes_on(self, name: str) -> bool:
        """Whether this leaf of a state is of what was learned."""
        if _field(name) in ("key", "step", "updates", "hyper", *SLOTS) or _settings_of(self.there.state, name):
            return False
        return not self.weights_only or (_field(name) in WEIGHTS and not self._slot(name))

    def _slot(self, name: str) -> str | None:
        """The part of a state, by its path, that a leaf is in and that belongs to environments."""
        slots = [path.removeprefix(self.here.path) for path in self.algo.slots if path.startswith(self.here.path)]
        return next((path for path in slots if f"{name}.".startswith(f"{path}.")), None)

    def _per_environment(self, name: str) -> str | None:
        """The part of a state that a leaf is in, where its shape may depend on the number of environments."""
        learned = _field(name) in WEIGHTS or "optimizer" in _field(name)
        return None if learned else name[: name.index(_field(name))] + _field(name)

    def carry(self, program: Any) -> Any:
        """The first carry of a program of `algo`: its own, with what goes on of the state."""
        state, watch = program.start()
        num_seeds, mesh = program.num_seeds, program.mesh
        taken = self.plan(program.shapes()[0], num_seeds)
        if num_seeds is not None and self.axis_there == self.axis_here:  # each seed begins from the same state
            taken = {name: jnp.broadcast_to(x, (num_seeds, *x.shape)) for name, x in taken.items()}
        at = None if program.at is None else Static.of(program.at[0])
        begun = _begun(self.algo, self.here.path, num_seeds is not None, mesh, at)
        return begun(state, sharding.everywhere(taken, mesh)), watch


def _digest(weights: Any) -> str:
    return hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(weights))).hexdigest()[:16]


def begins_from(algo_name: str) -> dict[str, tuple[str, ...]]:
    """Of the algorithms from whose runs this one begins, the settings that both share. Empty for one of your own."""
    return getattr(registry.get_algo(algo_name), "BEGINS_FROM", {}) if algo_name in registry.list_algos() else {}


def _begun_from(name: str, given: Any, algo: Algorithm, num_seeds: int | None, key: Key[Array, ""]) -> Any:
    """The state of `algo` that begins from `given`, a state of the algorithm `name`; of several seeds each has its own.

    Raises ValueError where it does not begin from such runs.
    """
    if name not in begins_from(algo.name):
        raise ValueError(f"start is a run of {name}, and this is {algo.name}: a state goes on with its algorithm.")
    begun, several = functools.partial(registry.get_algo(algo.name).start, algo), given.key.ndim > 0
    if several:
        _check_seeds(given.key.shape[0], num_seeds)
    if num_seeds is None:
        return begun(given, key)
    return jax.vmap(begun, (0 if several else None, 0))(given, jax.random.split(key, num_seeds))


def _check_seeds(seeds: int, num_seeds: int | None) -> None:
    if seeds != num_seeds:
        raise ValueError(
            f"start has {seeds} seeds and num_seeds={num_seeds}: take one of them, as `load(folder, seed=0)`, or as "
            "many."
        )


@kept
def _begun(algo: Algorithm, path: str, several: bool, mesh: Mesh | None, at: Static | None) -> Any:
    """Jitted `(state, taken) -> state`, whose leaves below `path` are those that were taken, by their names there."""

    def one(state: Any, taken: dict[str, Any]) -> Any:
        leaves, structure = jax.tree.flatten(state)
        named = zip(names_of(state), leaves, strict=True)
        leaves = [taken.get(name.removeprefix(path), x) if name.startswith(path) else x for name, x in named]
        begun = structure.unflatten(leaves)
        if not any(_field(name) in ("env_state", "obs") for name in names_of(state)):
            return begun  # as of a rule's learner, whose agents live on
        # What was learned may remember the last episode, as a replay does: it is told that others begin.
        everywhere = jnp.ones(algo.venv.num_envs, bool)
        return algo.restart(begun, jax.random.fold_in(state.key, 0), begun.env_params, everywhere)

    begun = sharding.independent(one, mesh, (0, 0), 0) if several else one
    return jax.jit(begun, out_shardings=None if at is None else at.tree)


def _parts(state: Any) -> Iterator[Part]:
    """The state itself, then those of the algorithms inside it."""
    path = ""
    yield Part(state, path)
    while isinstance(state, OuterState):
        state, path = state.inner, f"{path}inner."
        yield Part(state, path)


def _part_at(state: Any, path: str) -> Any:
    return next(part.state for part in _parts(state) if part.path == path)


def _named(state: Any) -> dict[str, Any]:
    return dict(zip(names_of(state), jax.tree.leaves(state), strict=True))


def _field(name: str) -> str:
    """The field of a state that a leaf is in, of the algorithm inside of all others."""
    while name.startswith("inner."):
        name = name.removeprefix("inner.")
    return name.split(".")[0]


def _shape(x: Any, skip: int) -> str | None:
    """Dtype and shape of a leaf, without its axis of seeds; None where there is none."""
    return None if x is None else f"{x.dtype}{list(x.shape[skip:])}"


def _num_envs(leaves: dict[str, Any], skip: int) -> int | None:
    """The length of the axis of environments of a state's observations."""
    return next((x.shape[skip] for name, x in leaves.items() if _field(name) == "obs" and x.ndim > skip), None)


def _settings_of(state: Any, name: str) -> bool:
    """Whether a leaf is of the settings of an outer algorithm."""
    for part in _parts(state):
        settings = getattr(part.state, "SETTINGS", None)
        if settings is not None and f"{name}.".startswith(f"{part.path}{settings[1]}."):
            return True
    return False


def _class(state: Any) -> str:
    return f"{type(state).__qualname__} of {type(state).__module__}"
