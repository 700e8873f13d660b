"""Signal temporal logic: formulas over signals, how robustly a signal satisfies them, and monitors for a step.

    reach = predicate(lambda s: 0.2 - jnp.linalg.norm(s["position"] - GOAL, axis=-1))     # true where positive
    clear = predicate(lambda s: jnp.linalg.norm(s["position"] - POLE, axis=-1) - 0.5)
    task = eventually(reach, 0, 50) & always(clear)
    rho(task, signal)[0]                                                                  # > 0: satisfied

A signal is a pytree of arrays with time as the first axis, of T samples; time is counted in samples. The robustness of
a formula f at time t (Donze and Maler 2010, "Robust satisfaction of temporal logic over real-valued signals"):

    predicate   its value                      ~f       -rho(f, t)
    f & g       min(rho(f, t), rho(g, t))      f | g    max(rho(f, t), rho(g, t))
    always(f, a, b)        min of rho(f, s) for s in [t + a, t + b]
    eventually(f, a, b)    max of it
    until(f, g, a, b)      max over s in [t + a, t + b] of min(rho(g, s), min of rho(f, r) for r in [t, s])

No end b: to the end of the signal. A window is cut at the signal's end, and an empty one is no witness: `eventually`
and `until` are then -inf, `always` +inf. A positive robustness means that the formula holds, a negative one that it
does not, and no change of the predicates' values by less than its size alters that. With a `temperature`, max(x, y)
becomes temperature log(exp(x / temperature) + exp(y / temperature)), likewise min (Pant, Abbas and Mangharam 2017,
"Smooth operator"; Leung, Arechiga and Pavone 2020, "Back-propagation through signal temporal logic specifications"):
every sample then has a derivative, and the sign may be wrong within `smoothing_error`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

Signal = PyTree
Join = Callable[[Any, Any], Any]

# ---- formulas


class Formula:
    """What `predicate` and the operators below make: hashable, equal where built alike of the same predicates."""

    def __and__(self, other: Formula) -> Formula:
        return ~(~self | ~other)

    def __or__(self, other: Formula) -> Formula:
        parts = (f.parts if isinstance(f, Or) else (f,) for f in (self, other))
        return Or(tuple(part for some in parts for part in some))

    def __invert__(self) -> Formula:
        return self.part if isinstance(self, Not) else Not(self)


@dataclasses.dataclass(frozen=True)
class Predicate(Formula):
    """`value(signal) -> (T,)`: true where positive, at each sample for itself."""

    value: Callable[[Signal], Array]


@dataclasses.dataclass(frozen=True)
class Not(Formula):
    part: Formula


@dataclasses.dataclass(frozen=True)
class Or(Formula):
    parts: tuple[Formula, ...]


@dataclasses.dataclass(frozen=True)
class Eventually(Formula):
    part: Formula
    start: int = 0
    end: int | None = None

    def __post_init__(self) -> None:
        _check_window("eventually or always", self.start, self.end)


@dataclasses.dataclass(frozen=True)
class Until(Formula):
    held: Formula
    part: Formula
    start: int = 0
    end: int | None = None

    def __post_init__(self) -> None:
        _check_window("until", self.start, self.end)


def _check_window(who: str, start: Any, end: Any) -> None:
    if not isinstance(start, int) or not isinstance(end, int | None) or start < 0 or (end is not None and end < start):
        raise ValueError(f"{who}: the window [{start}, {end}] needs integers 0 <= start <= end, or None as its end.")


def predicate(value: Callable[[Signal], Array]) -> Predicate:
    """A predicate, also as a decorator. `value(signal) -> (T,)` is positive where it is true.

    Two predicates are equal if their functions are the same object: define them once, in a module. Integers become
    floats; a truth value has no size, so it is refused.
    """
    return Predicate(value)


def implies(f: Formula, g: Formula) -> Formula:
    """~f | g."""
    return ~f | g


def eventually(f: Formula, start: int = 0, end: int | None = None) -> Formula:
    """`f` at some time from `start` to `end` samples ahead, both included; None: the signal's end."""
    return Eventually(f, start, end)


def always(f: Formula, start: int = 0, end: int | None = None) -> Formula:
    """`f` at all times from `start` to `end` samples ahead, both included; None: the signal's end."""
    return ~Eventually(~f, start, end)


def until(f: Formula, g: Formula, start: int = 0, end: int | None = None) -> Formula:
    """`g` at some time from `start` to `end` samples ahead, and `f` from now to then, both included."""
    return Until(f, g, start, end)


def predicates(formula: Formula) -> tuple[Predicate, ...]:
    """The predicates of a formula, each once."""
    if isinstance(formula, Predicate):
        return (formula,)
    return tuple(dict.fromkeys(p for part in _children(formula) for p in predicates(part)))


def horizon(formula: Formula, length: int | None = None) -> int | None:
    """How many samples ahead the robustness looks: None for as far as there are, or less than `length` if given."""
    ahead = [horizon(part, length) for part in _children(formula)]
    if isinstance(formula, Eventually | Until):
        end = formula.end if formula.end is not None or length is None else length - 1
        ahead = [None if h is None or end is None else h + end for h in ahead]
    known = [h for h in ahead if h is not None]
    longest = max(known, default=0) if len(known) == len(ahead) else None
    return longest if length is None or longest is None else min(longest, length - 1)


def _children(formula: Formula) -> tuple[Formula, ...]:
    match formula:
        case Not(part) | Eventually(part):
            return (part,)
        case Or(parts):
            return parts
        case Until(held, part):
            return (held, part)
    return ()


# ---- robustness


def rho(formula: Formula, signal: Signal, temperature: Any = None) -> Float[Array, " T"]:
    """The robustness of `formula` at each time of a signal of (T, ...) leaves; [0] is the signal's own.

    Windows are joined of blocks of 1, 2, 4, ... samples: O(T log T) for each temporal operator, exact and smooth.

    Args:
        temperature: None for min and max; otherwise positive, in the unit of the predicates' values.

    Raises ValueError for a predicate that does not give one number a sample.
    """
    return _robustness(formula, _values(formula, signal), _greater(temperature))


def satisfied(formula: Formula, signal: Signal) -> Bool[Array, " T"]:
    """Whether `formula` holds at each time; a predicate does where its value is positive."""
    signs = {p: jnp.where(value > 0, 1.0, -1.0) for p, value in _values(formula, signal).items()}
    return _robustness(formula, signs, jnp.maximum) > 0


def smoothing_error(formula: Formula, length: int, temperature: float) -> float:
    """A bound of |rho(..., temperature) - rho(...)| wherever the two are finite, over signals of `length` samples."""

    def error(formula: Formula) -> float:
        inner = max((error(part) for part in _children(formula)), default=0.0)
        match formula:
            case Or(parts):
                return inner + math.log(len(parts))
            case Eventually(_, start, end) | Until(_, _, start, end):
                width = max((length - 1 if end is None else min(end, length - 1)) - start + 1, 1)
                if isinstance(formula, Eventually):
                    return inner + math.log(width)
                joins = width.bit_length() + width.bit_count() - 2  # on the longest way to one sample
                return inner + (2 * joins + 2) * math.log(2) + math.log(start + 1)
        return inner

    return temperature * error(formula)


def _values(formula: Formula, signal: Signal) -> dict[Formula, Array]:
    length = jnp.shape(jax.tree.leaves(signal)[0])[0]
    values: dict[Formula, Array] = {}
    for p in predicates(formula):
        values[p] = jnp.asarray(p.value(signal))
        if values[p].shape != (length,):
            raise ValueError(f"{p} has shape {values[p].shape}; a signal of {length} samples needs ({length},).")
        if values[p].dtype == jnp.bool_:
            raise ValueError(f"{p} gives truth values; it needs numbers, positive where true: a margin, or +1 and -1.")
        if not jnp.issubdtype(values[p].dtype, jnp.floating):
            values[p] = values[p].astype(jnp.result_type(float))  # integers have no infinity for an empty window
    return values


def _greater(temperature: Any) -> Join:
    if temperature is None:
        return jnp.maximum

    def soft(x: Array, y: Array) -> Array:
        # Not jnp.logaddexp: its derivative where both are -inf, as beyond the signal's end, is NaN.
        gap = jnp.where(x == y, 0, x - y)
        return jnp.maximum(x, y) + temperature * jnp.log1p(jnp.exp(-jnp.abs(gap) / temperature))

    return soft


def _lesser(greater: Join) -> Join:
    return lambda x, y: -greater(-x, -y)


def _robustness(formula: Formula, known: Mapping[Formula, Array], greater: Join) -> Array:
    """The robustness (T,) of `formula` from that of all its predicates, or of other parts of it."""
    if formula in known:
        return known[formula]

    def of(part: Formula) -> Array:
        return _robustness(part, known, greater)

    match formula:
        case Not(part):
            return -of(part)
        case Or(parts):
            return functools.reduce(greater, map(of, parts))
        case Eventually(part, start, end):
            return _window(_of_one(greater), (of(part),), (-jnp.inf,), start, end)[0]
        case Until(held, part, start, end):
            return _until(of(held), of(part), start, end, greater)
    raise TypeError(f"{formula!r} is not a formula: build it of stl.predicate and the operators of this module.")


def _until(held: Array, part: Array, start: int, end: int | None, greater: Join) -> Array:
    """By the maps x -> min(p, max(q, x)) that a sample takes the rest's value through: they compose to such a map."""
    lesser = _lesser(greater)

    def compose(first: tuple[Array, ...], then: tuple[Array, ...]) -> tuple[Array, ...]:
        return lesser(first[0], greater(first[1], then[0])), greater(first[1], then[1])

    width = None if end is None else end - start
    value = lesser(*_window(compose, (held, part), (jnp.inf, -jnp.inf), 0, width))
    if start == 0:
        return value
    before = _window(_of_one(lesser), (held,), (jnp.inf,), 0, start - 1)[0]
    return lesser(before, _ahead((value,), (-jnp.inf,), start)[0])


def _of_one(join: Join) -> Join:
    return lambda x, y: (join(x[0], y[0]),)


def _ahead(values: tuple[Array, ...], beyond: tuple[float, ...], steps: int) -> tuple[Array, ...]:
    """What is `steps` later; `beyond` after the end."""
    steps = min(steps, values[0].shape[0])
    return tuple(jnp.concatenate([v[steps:], jnp.full(steps, e, v.dtype)]) for v, e in zip(values, beyond, strict=True))


def _window(
    join: Join,
    values: tuple[Array, ...],
    empty: tuple[float, ...],
    start: int,
    end: int | None,
) -> tuple[Array, ...]:
    """For each t, the values from t + start to t + end joined in order. `join` is associative, `empty` neutral."""
    length = values[0].shape[0]
    width = (length - 1 if end is None else min(end, length - 1)) - start + 1
    total = None
    block, size, taken = values, 1, start
    while size <= width:
        if width & size:
            part = _ahead(block, empty, taken)
            total = part if total is None else join(total, part)
            taken += size
        if 2 * size <= width:
            block = join(block, _ahead(block, empty, size))
        size *= 2
    return tuple(jnp.full_like(v, e) for v, e in zip(values, empty, strict=True)) if total is None else total


# ---- monitors


class Monitor(NamedTuple):
    """A formula's robustness at time 0, sample by sample: pure functions for the inside of a step."""

    init: Callable[..., Watch]
    """`init(dtype) -> carry`, before the first sample."""
    update: Callable[[Watch, Signal], tuple[Watch, Array]]
    """`update(carry, sample) -> (carry, robustness)`: one sample, without the time axis, and the robustness () of the
    samples so far, which is that of the signal when it was the last."""


class Watch(NamedTuple):
    """A monitor's carry, of fixed size."""

    time: Array  # int32, samples so far
    best: tuple[Array, ...]  # for each temporal part, the greatest value of what no later sample can change
    held: tuple[Array, ...]  # of `until`, the least value of what has to hold, likewise
    past: tuple[tuple[Array, ...], ...]  # of each part's predicates, the values that its operands still need


def monitor(formula: Formula, temperature: Any = None, length: int | None = None) -> Monitor:
    """What evaluates `formula` at time 0 while the samples come: after each, `rho(formula, samples so far)[0]`.

    A temporal operator that is in no other one costs a comparison a step: its window is at fixed times. One around
    others keeps, for each predicate, as many samples as those look ahead (Deshmukh et al. 2017, "Robust online
    monitoring of signal temporal logic"), and evaluates them anew each step.

    Args:
        temperature: as in `rho`; the smooth values are within `smoothing_error` of the exact ones, like its own.
        length: the most samples there can be. Needed only where an operator without end is inside another one, whose
            cost is then that of `rho` over so many samples, at each step.

    Raises ValueError for such an operator without `length`.
    """
    greater = _greater(temperature)
    lesser = _lesser(greater)
    parts = tuple(dict.fromkeys(_temporal_parts(formula)))
    if length is None and any(horizon(child) is None for part in parts for child in _children(part)):
        raise ValueError(
            f"{formula} has an operator without end inside another one: give it an end, or tell how many samples there "
            "are at most (length=)."
        )
    ahead = [max((horizon(child, length) or 0 for child in _children(part)), default=0) for part in parts]
    untils = [part for part in parts if isinstance(part, Until)]

    def init(dtype: Any = None) -> Watch:
        dtype = jnp.result_type(float) if dtype is None else dtype
        worst = jnp.full((), -jnp.inf, dtype)
        past = ((jnp.zeros(h, dtype),) * len(predicates(part)) * (h > 0) for part, h in zip(parts, ahead, strict=True))
        return Watch(jnp.int32(0), (worst,) * len(parts), (-worst,) * len(untils), tuple(past))

    def update(carry: Watch, sample: Signal) -> tuple[Watch, Array]:
        now = _values(formula, jax.tree.map(lambda x: jnp.asarray(x)[None], sample))
        best, held, past, known = [], [], [], {}
        for i, part in enumerate(parts):
            mine = predicates(part)
            recent: dict[Formula, Array] = {p: now[p] for p in mine}
            if ahead[i]:
                recent = {p: jnp.concatenate([old, now[p]]) for p, old in zip(mine, carry.past[i], strict=True)}
            past.append(tuple(values[1:] for values in recent.values()) if ahead[i] else ())
            times = carry.time + jnp.arange(-ahead[i], 1, dtype=jnp.int32)
            start, end = (part.start, part.end) if isinstance(part, Eventually | Until) else (0, 0)
            child = part.part if isinstance(part, Eventually | Until) else part
            value = _robustness(child, recent, greater)
            if isinstance(part, Until):
                hold = jnp.where(times >= 0, _robustness(part.held, recent, greater), jnp.inf)
                before = carry.held[len(held)]
                hold = jax.lax.associative_scan(lesser, jnp.concatenate([before[None], hold]))[1:]
                held.append(hold[0])
                value = lesser(value, hold)
            inside = times >= start if end is None else (times >= start) & (times <= end)
            value = jnp.where(inside, value, -jnp.inf)
            best.append(greater(carry.best[i], value[0]))
            all_of_it = _window(_of_one(greater), (value,), (-jnp.inf,), 0, None)[0]
            known[part] = greater(carry.best[i], all_of_it[0])
        return Watch(carry.time + 1, tuple(best), tuple(held), tuple(past)), _robustness(formula, known, greater)

    return Monitor(init, update)


def _temporal_parts(formula: Formula) -> tuple[Formula, ...]:
    """The largest parts that are no negation or disjunction: their values at time 0 make up the formula's."""
    if isinstance(formula, Not | Or):
        return tuple(part for child in _children(formula) for part in _temporal_parts(child))
    return (formula,)
