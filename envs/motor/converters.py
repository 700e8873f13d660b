"""Power converters: half bridges that connect each motor terminal to the upper or lower rail of the DC link.

| key | action | output, of the supply voltage |
|---|---|---|
| Finite-1QC | 0 off, 1 on | the action; 1 against the current |
| Finite-2QC | 0 both off, 1 upper, 2 lower | 0 or 1; off: by the sign of the current |
| Finite-4QC | 0, 3 short, 1 forward, 2 backward | -1, 0, 1 |
| Finite-B6C | the bits of 0..7 are the upper switches of phases a, b, c | +-1/2 each |
| Cont-1QC, Cont-2QC | duty [0, 1] | 0 to 1 |
| Cont-4QC | [-1, 1] | -1 to 1 |
| Cont-B6C | [-1, 1] each phase | +-1/2 each |
| None-n | none | the supply's n voltages |

`Multi` puts several next to each other. Voltages of a B6 bridge are against the middle of the link.

*Interlocking*: for a dead time after a half bridge changes, both switches are off and its diodes conduct, so the sign
of the current decides. Averaged over a control step the voltage is lower in the direction of the current, by the share
of the dead time in the step. gym-electric-motor has the finite half bridge off for the whole control step, and gives
both legs of a continuous four quadrant converter the same sign, so that their losses cancel: `upstream=True`.

*Modulation* of a continuous B6 bridge: `clip` cuts each duty (gym-electric-motor); `space_vector` first shifts all
three so that the largest and the smallest are equally far from the rails, 15 % more voltage before it cuts; `hexagon`
also shortens the vector to what the bridge can do, keeping its direction.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp

MODULATIONS = ("clip", "space_vector", "hexagon")
OFF, UPPER, LOWER = 0, 1, 2
"""What a finite half bridge does."""


@dataclasses.dataclass(frozen=True)
class Converter:
    """Static. `command` makes of an action what each half bridge does, `voltage` of that the output."""

    finite: ClassVar[bool] = False
    outputs: ClassVar[int] = 1  # voltages; as many currents flow out
    half_bridges: ClassVar[int] = 1
    sizes: ClassVar[tuple[int, ...]] = ()  # finite: how many actions
    low: ClassVar[tuple[float, ...]] = ()  # continuous: the least action; the most is 1
    both_currents: ClassVar[bool] = True  # whether they may be negative
    both_voltages: ClassVar[bool] = True
    reset_voltage: ClassVar[float] = 0.0  # what gym-electric-motor reports before the first step
    reach: ClassVar[float] = 1.0  # the most voltage, of the supply's
    locks: ClassVar[bool] = True  # has two switches in a half bridge

    @property
    def each(self) -> tuple[Converter, ...]:
        """The converters next to each other of which it is made: itself alone, but for a `Multi`."""
        return (self,)

    @property
    def num_actions(self) -> int:
        return len(self.sizes) if self.finite else len(self.low)

    @property
    def resting(self) -> tuple[float, ...]:
        """`reset_voltage` of each output."""
        return (self.reset_voltage,) * self.outputs

    @property
    def reaches(self) -> tuple[float, ...]:
        """`reach` of each output."""
        return (self.reach,) * self.outputs

    def command(self, action: tuple) -> tuple:
        """What each half bridge does: a duty in [0, 1], or OFF, UPPER or LOWER."""
        raise NotImplementedError

    def bridge_currents(self, currents: tuple) -> tuple:
        """Out of each half bridge [A], of the currents out of the converter."""
        return currents

    def join(self, voltages: tuple) -> tuple:
        """Outputs of half bridges' voltages."""
        return voltages

    def voltage(self, command: tuple, currents: tuple, dead: Any, upstream: bool) -> tuple:
        """Outputs, of the supply voltage. `dead`: interlocking time of continuous half bridges, of tau; or None."""
        currents = self.upstream_currents(currents) if upstream else self.bridge_currents(currents)
        if self.finite:
            return self.join(tuple(connected(c, i) for c, i in zip(command, currents, strict=True)))
        return self.join(tuple(average(d, i, dead) for d, i in zip(command, currents, strict=True)))

    def upstream_currents(self, currents: tuple) -> tuple:
        """What gym-electric-motor takes for the currents of the half bridges when it makes their voltage."""
        return self.bridge_currents(currents)

    def supply_current(self, command: tuple, currents: tuple, dead: Any) -> Any:
        """What is drawn from the link [A]."""
        currents = self.bridge_currents(currents)
        if self.finite:
            return sum(i * connected(c, i) for c, i in zip(command, currents, strict=True))
        return sum(i * share(d, i, dead) for d, i in zip(command, currents, strict=True))


def connected(state: Any, current: Any) -> Any:
    """Whether a half bridge's output is on the upper rail: 0.0 or 1.0, by its diodes where both switches are off."""
    return ((state == UPPER) | ((state == OFF) & (current < 0))).astype(current.dtype)


def average(duty: Any, current: Any, dead: Any) -> Any:
    """A half bridge's mean output, of the supply voltage."""
    return duty if dead is None else jnp.clip(duty - jnp.sign(current) * dead, 0, 1)


def share(duty: Any, current: Any, dead: Any) -> Any:
    """The mean of the current that comes from the upper rail, of the current."""
    return duty if dead is None else duty + dead * ((current < 0) - duty)


@dataclasses.dataclass(frozen=True)
class Finite1QC(Converter):
    finite = True
    sizes = (2,)
    both_currents = both_voltages = False
    locks = False

    def command(self, action: tuple) -> tuple:
        return ((action[0] == 1).astype(jnp.int32),)

    def supply_current(self, command: tuple, currents: tuple, dead: Any) -> Any:
        return jnp.where(command[0] == UPPER, currents[0], 0)


@dataclasses.dataclass(frozen=True)
class Finite2QC(Converter):
    finite = True
    sizes = (3,)
    both_voltages = False

    def command(self, action: tuple) -> tuple:
        return action


class _FourQuadrants:
    half_bridges = 2

    def bridge_currents(self, currents: tuple) -> tuple:
        return currents[0], -currents[0]

    def join(self, voltages: tuple) -> tuple:
        return (voltages[0] - voltages[1],)


@dataclasses.dataclass(frozen=True)
class Finite4QC(_FourQuadrants, Converter):
    finite = True
    sizes = (4,)

    def command(self, action: tuple) -> tuple:
        return 1 + action[0] // 2, 1 + action[0] % 2


class _B6:
    outputs = 3
    half_bridges = 3
    reset_voltage = -0.5
    reach = 0.5

    def join(self, voltages: tuple) -> tuple:
        return tuple(v - 0.5 for v in voltages)


@dataclasses.dataclass(frozen=True)
class FiniteB6C(_B6, Converter):
    finite = True
    sizes = (8,)

    def command(self, action: tuple) -> tuple:
        return tuple(LOWER - (action[0] // bit) % 2 for bit in (4, 2, 1))


@dataclasses.dataclass(frozen=True)
class Cont1QC(Converter):
    low = (0.0,)
    both_currents = both_voltages = False
    locks = False

    def command(self, action: tuple) -> tuple:
        return (jnp.clip(action[0], 0, 1),)

    def voltage(self, command: tuple, currents: tuple, dead: Any, upstream: bool) -> tuple:
        return (jnp.where(currents[0] >= 0, command[0], 1),)

    def supply_current(self, command: tuple, currents: tuple, dead: Any) -> Any:
        return command[0] * currents[0]


@dataclasses.dataclass(frozen=True)
class Cont2QC(Converter):
    low = (0.0,)
    both_voltages = False

    def command(self, action: tuple) -> tuple:
        return (jnp.clip(action[0], 0, 1),)


@dataclasses.dataclass(frozen=True)
class Cont4QC(_FourQuadrants, Converter):
    low = (-1.0,)

    def command(self, action: tuple) -> tuple:
        half = 0.5 * jnp.clip(action[0], -1, 1)
        return 0.5 + half, 0.5 - half

    def upstream_currents(self, currents: tuple) -> tuple:
        return currents[0], currents[0]


@dataclasses.dataclass(frozen=True)
class ContB6C(_B6, Converter):
    modulation: str = "clip"
    low = (-1.0, -1.0, -1.0)

    def __post_init__(self) -> None:
        if self.modulation not in MODULATIONS:
            raise ValueError(
                f"ContB6C: modulation={self.modulation!r}; it is one of {', '.join(map(repr, MODULATIONS))}."
            )

    def command(self, action: tuple) -> tuple:
        half = tuple(0.5 * a for a in action)
        if self.modulation != "clip":
            high = jnp.maximum(jnp.maximum(half[0], half[1]), half[2])
            low = jnp.minimum(jnp.minimum(half[0], half[1]), half[2])
            half = tuple(h - 0.5 * (high + low) for h in half)
            if self.modulation == "hexagon":
                shorter = 1 / jnp.maximum(high - low, 1)
                half = tuple(h * shorter for h in half)
        return tuple(0.5 + jnp.clip(h, -0.5, 0.5) for h in half)


@dataclasses.dataclass(frozen=True)
class NoConverter(Converter):
    """The supply's voltages as they are."""

    phases: int = 1
    half_bridges = 0
    locks = False

    @property
    def outputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.phases

    def command(self, action: tuple) -> tuple:
        return ()

    def voltage(self, command: tuple, currents: tuple, dead: Any, upstream: bool) -> tuple:
        return (1.0,) * self.phases

    def supply_current(self, command: tuple, currents: tuple, dead: Any) -> Any:
        return currents[0]


@dataclasses.dataclass(frozen=True)
class Multi(Converter):
    """Several converters, each with its own outputs and actions, on one supply."""

    parts: tuple[Converter, ...] = ()

    def __post_init__(self) -> None:
        if not self.parts or len({part.finite for part in self.parts}) != 1:
            raise ValueError(f"Multi: parts={self.parts} must be all finite or all continuous, and at least one.")

    @property
    def each(self) -> tuple[Converter, ...]:
        return self.parts

    @property
    def finite(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.parts[0].finite

    @property
    def outputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return sum(part.outputs for part in self.parts)

    @property
    def half_bridges(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return sum(part.half_bridges for part in self.parts)

    @property
    def sizes(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return sum((part.sizes for part in self.parts), ())

    @property
    def low(self) -> tuple[float, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return sum((part.low for part in self.parts), ())

    @property
    def both_currents(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return any(part.both_currents for part in self.parts)

    @property
    def both_voltages(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return any(part.both_voltages for part in self.parts)

    @property
    def resting(self) -> tuple[float, ...]:
        return sum((part.resting for part in self.parts), ())

    @property
    def reaches(self) -> tuple[float, ...]:
        return sum((part.reaches for part in self.parts), ())

    @property
    def locks(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return any(part.locks for part in self.parts)

    def command(self, action: tuple) -> tuple:
        pieces = cut(action, [part.num_actions for part in self.parts])
        return sum((part.command(piece) for part, piece in zip(self.parts, pieces, strict=True)), ())

    def voltage(self, command: tuple, currents: tuple, dead: Any, upstream: bool) -> tuple:
        return sum((part.voltage(c, i, dead, upstream) for part, c, i in self._parts(command, currents)), ())

    def supply_current(self, command: tuple, currents: tuple, dead: Any) -> Any:
        return sum(part.supply_current(c, i, dead) for part, c, i in self._parts(command, currents))

    def _parts(self, command: tuple, currents: tuple) -> list[tuple[Converter, tuple, tuple]]:
        commands = cut(command, [part.half_bridges for part in self.parts])
        flows = cut(currents, [part.outputs for part in self.parts])
        return list(zip(self.parts, commands, flows, strict=True))


def cut(values: tuple, lengths: list[int]) -> list[tuple]:
    """`values` in pieces of these lengths."""
    pieces = []
    for length in lengths:
        pieces.append(tuple(values[:length]))
        values = values[length:]
    return pieces


def interlock(command: tuple, before: tuple, locked: Any, upstream: bool) -> tuple[tuple, tuple, tuple, Any]:
    """Finite half bridges with a dead time: what they do during it and after it, what they were told last, and whether
    any waits at all.

    A half bridge waits, where `locked` is true, when it changes from one switch to the other. In gym-electric-motor it
    then stays off for the rest of the control step, too, and does not wait again at the next.
    """
    waits = [locked & (new != OFF) & (old != OFF) & (new != old) for new, old in zip(command, before, strict=True)]
    during = tuple(jnp.where(w, OFF, c) for w, c in zip(waits, command, strict=True))
    any_waits = waits[0]
    for w in waits[1:]:
        any_waits = any_waits | w
    return (during, during, during, any_waits) if upstream else (during, command, command, any_waits)


KEYS: dict[str, Any] = {
    "Finite-1QC": Finite1QC(),
    "Finite-2QC": Finite2QC(),
    "Finite-4QC": Finite4QC(),
    "Finite-B6C": FiniteB6C(),
    "Cont-1QC": Cont1QC(),
    "Cont-2QC": Cont2QC(),
    "Cont-4QC": Cont4QC(),
    "Cont-B6C": ContB6C(),
    "None-1": NoConverter(1),
    "None-3": NoConverter(3),
}
"""gym-electric-motor's names."""


def find(key: str | Converter) -> Converter:
    """The converter of a key; several joined by `+` are a `Multi`. Raises ValueError for an unknown one."""
    if isinstance(key, Converter):
        return key
    parts = []
    for name in key.split("+"):
        if name not in KEYS:
            raise ValueError(f"converter={name!r}; it is one of {', '.join(KEYS)}, or several joined by '+'.")
        parts.append(KEYS[name])
    return parts[0] if len(parts) == 1 else Multi(tuple(parts))


def voltage_radius(converter: Converter, dq_actions: bool) -> float:
    """The longest voltage vector in every direction that a three-phase converter makes, of the supply's voltage."""
    three = converter.each[0]
    shares = not dq_actions or getattr(three, "modulation", "clip") != "clip"
    return 1 / math.sqrt(3) if shares else 0.5
