"""Reference generators: what a measured quantity should be, in units of its limit.

| class | signal | drawn anew every 500 to 2000 steps |
|---|---|---|
| `Constant` | one value | |
| `Wiener`, `Laplace` | a random walk | its width |
| `Sine`, `Sawtooth`, `Triangle`, `Step` | a wave about an offset | amplitude, frequency, offset, phase, and its shape |
| `Ramp` | straight lines to set points, at a bounded rate | the set point |
| `Recorded` | samples that are given, a driving cycle say | |
| `Switched` | one of several of these, for 100 to 10,000 steps each | |

The kinds and their distributions are gym-electric-motor's, but for `Ramp` and `Recorded`. A drive has a tuple of them,
one for each quantity that it names in `MotorDrive.referenced`, each with a state of its own: that is its "multiple"
generator, and an empty tuple its "zero" one. `low` and `high` are the margins within which a reference stays; those of
a task's default references are its own.

Each is a pytree of its numbers with

    start(words, tau) -> state             at the start of an episode, from `start_words` random words
    step(words, state, tau) -> state       at each control step, from `words` of them
    value(state) -> scalar                 what is shown, and what the next step is judged by
    resume(words, value, tau) -> state     where another one left off at `value`, from `start_words` of them

`tau` is the control step [s]. A word is a uint32; an environment draws all of a step in one call.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.environment import Replaceable, pytree
from jaxrl.math import sincos


def uniform(word: Any, dtype: Any) -> Any:
    """In [0, 1), of 24 bits of a random word."""
    return (word >> 8).astype(dtype) * 2.0**-24


def halves(word: Any, dtype: Any) -> tuple[Any, Any]:
    """Two numbers in (0, 1), of 16 bits each."""
    return ((word >> 16).astype(dtype) + 0.5) * 2.0**-16, ((word & 0xFFFF).astype(dtype) + 0.5) * 2.0**-16


def normal(word: Any, dtype: Any) -> Any:
    """A standard normal number of one random word (Box and Muller), at most 4.9 from zero."""
    first, second = halves(word, dtype)
    return jnp.sqrt(-2 * jnp.log(first)) * sincos(2 * math.pi * second)[1]


def length(unit: Any, low: Any, high: Any) -> Any:
    """A whole number of steps in [low, high), at least one, by a number in (0, 1)."""
    return jnp.maximum(jnp.floor(low + unit * (high - low)).astype(jnp.int32), 1)


class Reference(Replaceable):
    """Base."""

    start_words: ClassVar[int] = 0
    words: ClassVar[int] = 0

    def start(self, words: Any, tau: Any) -> Any:
        raise NotImplementedError

    def step(self, words: Any, state: Any, tau: Any) -> Any:
        return state

    def value(self, state: Any) -> Any:
        raise NotImplementedError

    def resume(self, words: Any, value: Any, tau: Any) -> Any:
        return self.start(words, tau)

    def validate(self, who: str) -> None:
        """Raise ValueError for numbers that make no sense. Host only."""


def _ordered(who: str, reference: Any, *names: str, above: float = -math.inf) -> None:
    """Raise ValueError where a range's lower end is above its upper one, or is not above `above`."""
    for name in names:
        prefix = f"{name}_" if name else ""
        low, high = np.asarray(getattr(reference, f"{prefix}low")), np.asarray(getattr(reference, f"{prefix}high"))
        if not np.all(low <= high):
            raise ValueError(f"{who}: reference {prefix}low={low} must not be above {prefix}high={high}.")
        if above > -math.inf and not np.all(low > above):
            raise ValueError(f"{who}: reference {prefix}low={low} must be above {above:g}.")


@pytree
class Constant(Reference):
    target: jax.Array = 0.5

    def start(self, words: Any, tau: Any) -> Any:
        return jnp.asarray(self.target, jnp.result_type(float))

    def value(self, state: Any) -> Any:
        return state

    def validate(self, who: str) -> None:
        if not np.all(np.isfinite(np.asarray(self.target))):
            raise ValueError(f"{who}: reference target={self.target} must be finite.")


@pytree
class Walk(Reference):
    """Base of the random walks in [low, high] whose width is drawn anew, log-uniformly, every so many steps.

    State: value, width, steps left.
    """

    low: jax.Array = -1.0
    high: jax.Array = 1.0
    sigma_low: jax.Array = 1e-3
    sigma_high: jax.Array = 1e-1
    steps_low: jax.Array = 500.0
    steps_high: jax.Array = 2000.0

    start_words = 2
    words = 2

    def increment(self, word: Any, dtype: Any) -> Any:
        """A random number that `sigma` scales."""
        raise NotImplementedError

    def start(self, words: Any, tau: Any) -> Any:
        return self.resume(words, 0.0, tau)

    def resume(self, words: Any, value: Any, tau: Any) -> Any:
        value = jnp.asarray(value, jnp.result_type(float))
        return self.step(words[:2], (value, jnp.zeros_like(value), jnp.int32(0)), tau)

    def step(self, words: Any, state: Any, tau: Any) -> Any:
        value, sigma, left = state
        over = left <= 0
        width, steps = halves(words[0], value.dtype)
        log_low, log_high = jnp.log(self.sigma_low), jnp.log(self.sigma_high)
        sigma = jnp.where(over, jnp.exp(log_low + width * (log_high - log_low)), sigma)
        left = jnp.where(over, length(steps, self.steps_low, self.steps_high), left) - 1
        value = jnp.clip(value + sigma * self.increment(words[1], value.dtype), self.low, self.high)
        return value, sigma, left

    def value(self, state: Any) -> Any:
        return state[0]

    def validate(self, who: str) -> None:
        _ordered(who, self, "")
        if not np.all((np.asarray(self.sigma_low) > 0) & (np.asarray(self.sigma_low) <= np.asarray(self.sigma_high))):
            raise ValueError(
                f"{who}: reference sigma_low={self.sigma_low} must be positive and not above "
                f"sigma_high={self.sigma_high}."
            )
        _ordered(who, self, "steps", above=0.0)


@pytree
class Wiener(Walk):
    """Normal increments of standard deviation sigma, from anywhere in [start_low, start_high]."""

    start_low: jax.Array = -1.0
    start_high: jax.Array = 1.0

    start_words = 3

    def increment(self, word: Any, dtype: Any) -> Any:
        return normal(word, dtype)

    def start(self, words: Any, tau: Any) -> Any:
        unit = uniform(words[2], jnp.result_type(float))
        return self.resume(words, self.start_low + unit * (self.start_high - self.start_low), tau)

    def validate(self, who: str) -> None:
        super().validate(who)
        _ordered(who, self, "start")


@pytree
class Laplace(Walk):
    """Increments of Laplace's distribution of scale sigma, from zero."""

    def increment(self, word: Any, dtype: Any) -> Any:
        exponential = -jnp.log(((word & 0xFFFFFF).astype(dtype) + 0.5) * 2.0**-24)
        return jnp.where(word >> 31 == 0, exponential, -exponential)


@pytree
class Ramp(Reference):
    """Set points, uniform in [low, high] and drawn anew every so many steps, which it moves to at a bounded rate.

    What a drive is asked in earnest: a speed or a position cannot jump. It starts anywhere in [start_low, start_high].
    State: value, set point, steps left.
    """

    low: jax.Array = -1.0
    high: jax.Array = 1.0
    rate: jax.Array = 1.0  # 1/s
    steps_low: jax.Array = 500.0
    steps_high: jax.Array = 2000.0
    start_low: jax.Array = 0.0
    start_high: jax.Array = 0.0

    start_words = 2
    words = 1

    def start(self, words: Any, tau: Any) -> Any:
        unit = uniform(words[1], jnp.result_type(float))
        return self.resume(words, self.start_low + unit * (self.start_high - self.start_low), tau)

    def resume(self, words: Any, value: Any, tau: Any) -> Any:
        value = jnp.asarray(value, jnp.result_type(float))
        return value, *self._draw(words[0], value.dtype)

    def _draw(self, word: Any, dtype: Any) -> tuple[Any, Any]:
        """A set point and its steps."""
        point, steps = halves(word, dtype)
        return self.low + point * (self.high - self.low), length(steps, self.steps_low, self.steps_high)

    def step(self, words: Any, state: Any, tau: Any) -> Any:
        value, target, left = state
        drawn, steps = self._draw(words[0], value.dtype)
        target, left = jnp.where(left <= 0, drawn, target), jnp.where(left <= 0, steps, left) - 1
        return value + jnp.clip(target - value, -self.rate * tau, self.rate * tau), target, left

    def value(self, state: Any) -> Any:
        return state[0]

    def validate(self, who: str) -> None:
        _ordered(who, self, "", "start")
        _ordered(who, self, "steps", above=0.0)
        if not np.all(np.isfinite(np.asarray(self.rate)) & (np.asarray(self.rate) > 0)):
            raise ValueError(f"{who}: reference rate={self.rate} must be finite and positive.")


class Wave(NamedTuple):
    """A wave's state."""

    value: Any
    amplitude: Any
    frequency: Any  # Hz
    offset: Any
    phase: Any  # in [0, 1) of a period
    shape: Any  # in [0, 1): what tells a triangle from another
    index: Any  # steps since this was drawn
    length: Any  # steps until the next is


@pytree
class Periodic(Reference):
    """Base of the waves: amplitude x shape + offset, within [low, high], all drawn anew every so many steps.

    The amplitude is uniform in its range as far as that is within half of high - low; the offset in its range as far as
    the wave stays within [-high, high].
    """

    low: jax.Array = -1.0
    high: jax.Array = 1.0
    amplitude_low: jax.Array = 0.0
    amplitude_high: jax.Array = math.inf
    frequency_low: jax.Array = 1.0  # Hz
    frequency_high: jax.Array = 10.0
    offset_low: jax.Array = -math.inf
    offset_high: jax.Array = math.inf
    steps_low: jax.Array = 500.0
    steps_high: jax.Array = 2000.0

    start_words = 3
    words = 3

    def shape(self, wave: Wave, tau: Any) -> Any:
        """In [-1, 1]."""
        raise NotImplementedError

    @property
    def floor(self) -> Any:
        """What the wave's lowest point is not to be below, where its offset is drawn."""
        return -self.high

    def start(self, words: Any, tau: Any) -> Any:
        zero = jnp.zeros((), jnp.result_type(float))
        none = jnp.int32(0)
        return self.step(words, Wave(zero, zero, zero, zero, zero, zero, none, none), tau)

    def step(self, words: Any, state: Wave, tau: Any) -> Wave:
        units = [unit for word in words for unit in halves(word, state.value.dtype)]
        drawn = self.draw(units)
        over = state.index + 1 >= state.length
        wave = Wave(*(jnp.where(over, new, old) for new, old in zip(drawn, state, strict=True)))
        wave = wave._replace(index=jnp.where(over, 0, state.index + 1))
        value = wave.amplitude * self.shape(wave, tau) + wave.offset
        return wave._replace(value=jnp.clip(value, self.low, self.high))

    def draw(self, units: list[Any]) -> Wave:
        """A wave of six numbers in (0, 1)."""
        low, high = self.low, self.high

        def between(unit, low, high):
            return low + unit * (high - low)

        most = (high - low) / 2
        amplitude = between(units[0], jnp.clip(self.amplitude_low, 0, most), jnp.clip(self.amplitude_high, 0, most))
        frequency = between(units[1], self.frequency_low, self.frequency_high)
        ends = (jnp.clip(end, low, high) for end in (self.offset_low, self.offset_high))
        offset = between(units[2], *(jnp.clip(end, self.floor + amplitude, high - amplitude) for end in ends))
        steps = length(units[5], self.steps_low, self.steps_high)
        zero = jnp.zeros_like(amplitude)
        return Wave(zero, amplitude, frequency, offset, units[3], units[4], jnp.int32(0), steps)

    def value(self, state: Wave) -> Any:
        return state.value

    def validate(self, who: str) -> None:
        _ordered(who, self, "", "offset", "amplitude")
        _ordered(who, self, "frequency", "steps", above=0.0)
        if not np.all(np.asarray(self.amplitude_low) >= 0):
            raise ValueError(f"{who}: reference amplitude_low={self.amplitude_low} must not be negative.")


def turns(wave: Wave, tau: Any) -> Any:
    """Periods since the last one began, in [0, 1)."""
    return jnp.mod(wave.phase + wave.frequency * (wave.index * tau), 1)


@pytree
class Sine(Periodic):
    def shape(self, wave: Wave, tau: Any) -> Any:
        return sincos(2 * math.pi * turns(wave, tau))[0]


@pytree
class Sawtooth(Periodic):
    """Rises from -1 to 1 in a period, and falls at once."""

    def shape(self, wave: Wave, tau: Any) -> Any:
        return 2 * turns(wave, tau) - 1


@pytree
class Triangle(Periodic):
    """Rises from -1 to 1 in a uniformly drawn part of a period, and falls in the rest."""

    def shape(self, wave: Wave, tau: Any) -> Any:
        now, width = turns(wave, tau), wave.shape
        return jnp.where(now < width, 2 * now / width - 1, (1 + width - 2 * now) / (1 - width))


@pytree
class Step(Periodic):
    """-1, then 1, in a period; the low part has the triangular distribution on (0, 1).

    As in gym-electric-motor the phase is a rotation of what is drawn for these steps, so the end meets the beginning
    somewhere among them, and the offset is such that the wave stays within [low, high].
    """

    @property
    def floor(self) -> Any:
        return self.low

    def shape(self, wave: Wave, tau: Any) -> Any:
        unit = wave.shape
        rise, fall = jnp.sqrt(unit / 2), 1 - jnp.sqrt((1 - unit) / 2)  # the distribution's inverse
        shift = jnp.floor(wave.phase / (wave.frequency * tau)).astype(jnp.int32)
        index = jnp.mod(wave.index - shift, wave.length)
        now = jnp.mod(wave.frequency * (index * tau), 1)
        return jnp.sign(now - jnp.where(unit < 0.5, rise, fall))


@pytree
class Recorded(Reference):
    """Samples that are given, `interval` seconds apart, with straight lines between; after the last comes the first.

    An episode starts anywhere in [start_low, start_high] seconds of the record. State: value, where that was [samples],
    steps.
    """

    values: jax.Array = (0.0,)  # (K,)
    interval: jax.Array = 1.0  # s
    start_low: jax.Array = 0.0  # s
    start_high: jax.Array = 0.0

    start_words = 1

    def start(self, words: Any, tau: Any) -> Any:
        dtype = jnp.result_type(float)
        seconds = self.start_low + uniform(words[0], dtype) * (self.start_high - self.start_low)
        begin = jnp.asarray(seconds / self.interval, dtype)
        return self._at(begin), begin, jnp.int32(0)

    def step(self, words: Any, state: Any, tau: Any) -> Any:
        _, begin, steps = state
        # Not the sum of many small steps, which would round each time.
        return self._at(begin + (steps + 1) * (tau / self.interval)), begin, steps + 1

    def _at(self, position: Any) -> Any:
        values = jnp.asarray(self.values, jnp.result_type(float))
        whole = jnp.floor(position)
        index, part = whole.astype(jnp.int32), position - whole
        here, there = (values[jnp.mod(i, values.shape[0])] for i in (index, index + 1))
        return here + part * (there - here)

    def value(self, state: Any) -> Any:
        return state[0]

    def validate(self, who: str) -> None:
        values = np.asarray(self.values)
        if values.ndim < 1 or values.shape[-1] < 1 or not np.all(np.isfinite(values)):
            raise ValueError(
                f"{who}: reference values of shape {values.shape} must be (K,) finite numbers, K at least 1."
            )
        if not np.all(np.asarray(self.interval) > 0):
            raise ValueError(f"{who}: reference interval={self.interval} must be positive.")
        _ordered(who, self, "start")
        if not np.all(np.asarray(self.start_low) >= 0):
            raise ValueError(f"{who}: reference start_low={self.start_low} must not be negative.")


@pytree
class Switched(Reference):
    """One of several generators for so many steps, then another or the same one anew, each with its probability.

    A random walk goes on from the value that was shown last. State: value, which one, steps left, and their states.
    """

    generators: Any = ()
    probabilities: Any = None  # a number for each; None: equal ones
    steps_low: jax.Array = 100.0
    steps_high: jax.Array = 10_000.0

    # Only one is ever seen, so all of them can have the same random words.
    @property
    def start_words(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1 + max(generator.start_words for generator in self.generators)

    @property
    def words(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return max(self.start_words, 1 + max(generator.words for generator in self.generators))

    def _choose(self, word: Any) -> tuple[Any, Any]:
        """Which one, and for how many steps."""
        which, steps = halves(word, jnp.result_type(float))
        weights = self.probabilities or (1 / len(self.generators),) * len(self.generators)
        below, index = 0.0, jnp.int32(0)
        for weight in weights[:-1]:
            below = below + weight
            index = index + (which >= below).astype(jnp.int32)
        return index, length(steps, self.steps_low, self.steps_high) - 1

    def _join(self, index: Any, left: Any, states: tuple) -> Any:
        shown = [generator.value(state) for generator, state in zip(self.generators, states, strict=True)]
        value = shown[0]
        for i, other in enumerate(shown[1:], 1):
            value = jnp.where(index == i, other, value)
        return value, index, left, states

    def start(self, words: Any, tau: Any) -> Any:
        states = tuple(generator.start(words[1 : 1 + generator.start_words], tau) for generator in self.generators)
        return self._join(*self._choose(words[0]), states)

    def resume(self, words: Any, value: Any, tau: Any) -> Any:
        states = tuple(
            generator.resume(words[1 : 1 + generator.start_words], value, tau) for generator in self.generators
        )
        return self._join(*self._choose(words[0]), states)

    def step(self, words: Any, state: Any, tau: Any) -> Any:
        value, index, left, states = state
        states = tuple(
            generator.step(words[1 : 1 + generator.words], own, tau)
            for generator, own in zip(self.generators, states, strict=True)
        )
        on, anew = self._join(index, left - 1, states), self.resume(words, value, tau)
        return jax.tree.map(lambda new, old: jnp.where(left <= 0, new, old), anew, on)

    def value(self, state: Any) -> Any:
        return state[0]

    def validate(self, who: str) -> None:
        if not self.generators:
            raise ValueError(f"{who}: a switched reference needs at least one generator.")
        for generator in self.generators:
            generator.validate(who)
        _ordered(who, self, "steps", above=0.0)
        if self.probabilities is None:
            return
        if len(self.probabilities) != len(self.generators):
            raise ValueError(
                f"{who}: {len(self.probabilities)} probabilities for {len(self.generators)} switched references."
            )
        given = [np.asarray(p) for p in self.probabilities]
        if not all(np.all(p >= 0) for p in given) or not np.allclose(sum(given), 1, rtol=0, atol=1e-5):
            raise ValueError(f"{who}: probabilities={self.probabilities} must not be negative and must have the sum 1.")
