"""Compile a program for a machine that is not here, and report what its compiler says of it."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from jaxrl.host.ahead.hlo import Collective, Contents, Loop, contents
from jaxrl.host.ahead.targets import target_of, topology_devices


class DoesNotFitError(ValueError):
    """A program needs more memory than a device of the target has; `needed` and `available` are bytes."""

    def __init__(self, target: str, needed: int, available: int) -> None:
        self.needed, self.available = needed, available
        needs = (
            f"it needs {_size(needed)} a device" if needed else "the compiler does not say what it needs of a device"
        )
        super().__init__(
            f"{target}: the program does not fit: {needs}, which has "
            f"{_size(available)} for it. Fewer --seeds or --config.num-envs, or more chips."
        )


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes a device."""

    arguments: int
    outputs: int
    aliased: int  # outputs that lie where donated arguments did
    temporaries: int
    code: int
    peak: int  # as the compiler planned it; 0 where it does not say
    available: int  # what a program may have there

    @property
    def needed(self) -> int:
        """The larger of the compiler's peak and the sum of the parts."""
        return max(self.peak, self.arguments + self.outputs - self.aliased + self.temporaries) + self.code


@dataclasses.dataclass(frozen=True)
class Report:
    """What the compiler says of a program; all figures are one device's.

    `estimated_seconds`: the compiler's cycles of each kernel times the rounds of the loops around it, a loop of unknown
    length counted once, over the clock. `optimal_seconds`: its cost model's, of one pass through every loop's body.
    Both are None where it gives none. docs/accelerators.md says what they leave out.
    """

    target: str
    devices: int
    compile_seconds: float
    memory: Memory
    flops: float | None  # of one pass through every loop's body, as the next two
    bytes_accessed: float | None
    optimal_seconds: float | None
    estimated_seconds: float | None
    seconds_a_cycle: float | None
    kernels: int  # written
    kernels_run: int  # with the rounds of loops
    unestimated: dict[str, int]  # of these, by opcode, what `estimated_seconds` leaves out
    loops: tuple[Loop, ...]
    conditionals: int
    collectives: tuple[Collective, ...]
    host_transfers: tuple[str, ...]

    @property
    def unknown_loops(self) -> tuple[Loop, ...]:
        """Those whose number of rounds is known only when they run."""
        return tuple(loop for loop in self.loops if loop.rounds is None)

    def seconds_of(self, loop: Loop) -> float | None:
        """One round of a loop, estimated."""
        return None if self.seconds_a_cycle is None else loop.cycles * self.seconds_a_cycle

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` makes the report of them again."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Report:
        parts = {"memory": Memory(**values["memory"]), "host_transfers": tuple(values["host_transfers"])}
        parts["loops"] = tuple(Loop(**loop) for loop in values["loops"])
        parts["collectives"] = tuple(Collective(**each) for each in values["collectives"])
        return cls(**{**values, **parts})


def compile_for(function: Callable[..., Any], arguments: tuple[Any, ...], target: str, sharding: Any = None) -> Report:
    """Compile `function(*arguments)` for `target`, as in "tpu-v5e", "tpu-v5e:4x4", "h100:8".

    The plug-in of the target must be installed (the extras `tpu` and `cuda`), its device need not be
    there. Start Python with JAX_PLATFORMS=cpu: without it jax itself looks for the device first.

    Args:
        function: jitted with what belongs to it (donation, static arguments, shardings of outputs), or plain.
        arguments: arrays, `jax.ShapeDtypeStruct`s or Python numbers, in pytrees; nothing is allocated. Those that have
            a sharding over `topology_devices(target)` keep it.
        sharding: of the others: one for all, or a pytree of them that is a prefix of `arguments`. Default: all on the
            target's first device.

    Raises ValueError for an unknown target, MissingPluginError, and DoesNotFitError.
    """
    kind, chips = target_of(target)
    devices = topology_devices(target)
    sharding = SingleDeviceSharding(devices[0]) if sharding is None else sharding
    lowered = _jitted(function).lower(*_placed(arguments, sharding))
    begin = time.perf_counter()
    try:
        compiled = lowered.compile(compiler_options=dict(kind.compiler_options))
    except jax.errors.JaxRuntimeError as error:
        needed = _exceeded(str(error))
        if needed is None:
            raise
        raise DoesNotFitError(target, needed, kind.memory) from None
    seconds = time.perf_counter() - begin
    stats = compiled.memory_analysis()
    assert stats is not None
    memory = Memory(
        arguments=stats.argument_size_in_bytes,
        outputs=stats.output_size_in_bytes,
        aliased=stats.alias_size_in_bytes,
        temporaries=stats.temp_size_in_bytes,
        code=stats.generated_code_size_in_bytes,
        peak=stats.peak_memory_in_bytes,
        available=kind.memory,
    )
    if memory.needed > kind.memory:
        raise DoesNotFitError(target, memory.needed, kind.memory)
    cost = compiled.cost_analysis() or {}
    inside = contents(compiled.as_text() or "")
    return Report(
        target=target,
        devices=math.prod(chips),
        compile_seconds=seconds,
        memory=memory,
        flops=cost.get("flops"),
        bytes_accessed=cost.get("bytes accessed"),
        optimal_seconds=cost.get("optimal_seconds"),
        estimated_seconds=None if kind.clock is None else inside.cycles / kind.clock,
        seconds_a_cycle=None if kind.clock is None else 1 / kind.clock,
        **_counts(inside),
    )


def _counts(inside: Contents) -> dict[str, Any]:
    return {f.name: getattr(inside, f.name) for f in dataclasses.fields(inside) if f.name != "cycles"}


def _jitted(function: Any) -> Any:
    return function if hasattr(function, "lower") else jax.jit(function)


def _placed(arguments: tuple[Any, ...], sharding: Any) -> tuple[Any, ...]:
    """The arguments as shapes, with their own shardings or these."""

    def shape(x: Any, default: Sharding) -> jax.ShapeDtypeStruct:
        own = x.sharding if isinstance(x, jax.ShapeDtypeStruct) else None
        weak = isinstance(x, bool | int | float | complex) or bool(getattr(x, "weak_type", False))
        dtype = x.dtype if hasattr(x, "dtype") else jnp.result_type(x)
        return jax.ShapeDtypeStruct(np.shape(x), dtype, sharding=own or default, weak_type=weak)

    def of_all(default: Sharding, part: Any) -> Any:
        return jax.tree.map(lambda x: shape(x, default), part)

    if isinstance(sharding, Sharding):
        return of_all(sharding, arguments)
    return jax.tree.map(of_all, sharding, arguments, is_leaf=lambda x: isinstance(x, Sharding))


def _exceeded(message: str) -> int | None:
    """Bytes that a compiler says a program needs when it refuses it for that; None for other refusals."""
    if "RESOURCE_EXHAUSTED" not in message:
        return None
    found = re.search(r"(?:Used|HLO temporaries \(|required[^(]*\()\s*([\d.]+)([KMGT]?)", message)
    units = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
    return int(float(found[1]) * 2 ** units[found[2]]) if found else 0


def _size(number: int | float) -> str:
    """Bytes, readably."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            break
        number /= 1024
    return f"{number:.0f} bytes" if unit == "bytes" else f"{number:,.2f} {unit}"
