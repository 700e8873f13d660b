"""What a compiled program does, read from the text of its scheduled HLO: kernels, loops, conditionals, collectives.

A kernel is an instruction of the entry, or of the body of a loop or branch, that computes an array: a fusion, a
convolution, a copy, a custom call. What a fusion holds is part of it. Single numbers, tuples, constants, bitcasts and
the asynchronous copies that a TPU overlaps with its work are none.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter

BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16, "c64": 64, "c128": 128}  # others carry their width in the name
COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)
HOST = ("infeed", "outfeed", "send", "recv")
_FREE = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "add-dependency", "iota"),
    *("while", "conditional", "call", "partition-id", "replica-id", "opt-barrier", "copy-start", "copy-done"),
    *("async-start", "async-update", "async-done", "domain"),
}
_FREE_CALLS = {"AllocateBuffer", "AssumeGatherIndicesInBound", "ConcatBitcast", "Sharding"}


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    rest: str  # operands and attributes, as they are written
    root: bool

    def called(self, attribute: str) -> str | None:
        """The computation that an attribute names."""
        found = re.search(rf"\b{attribute}=(%[\w.\-]+)", self.rest)
        return found.group(1) if found else None


Computations = dict[str, dict[str, Instruction]]


@dataclasses.dataclass(frozen=True)
class Loop:
    """A `while` of the program."""

    name: str  # where it comes from, as jax traced it
    rounds: int | None  # None: not known before it runs; at most so many where the first count is not a constant
    depth: int  # loops around it
    kernels: int  # a round, loops in it by their rounds (once where these are unknown)
    cycles: float  # the same, of kernels for which the compiler estimates them


@dataclasses.dataclass(frozen=True)
class Collective:
    """An exchange between devices."""

    opcode: str
    bytes: int  # of its operands, a device
    times: int  # it runs in the program, loops of unknown length counted once
    depth: int  # loops around it
    name: str


@dataclasses.dataclass(frozen=True)
class Contents:
    """What is in a program."""

    kernels: int  # written
    kernels_run: int  # times the rounds of the loops around them; a conditional's dearest branch
    cycles: float
    unestimated: dict[str, int]  # kernels by opcode, run, for which the compiler gives no cycles
    loops: tuple[Loop, ...]
    conditionals: int
    collectives: tuple[Collective, ...]
    host_transfers: tuple[str, ...]


def contents(text: str) -> Contents:
    """What a program holds, from the text of a compiled executable."""
    computations, entry = parse(text)
    walk = _Walk(computations)
    cost = walk.cost(entry, 1, 0)
    # A computation may be called twice; what is written is counted once.
    written = sum(_is_kernel(line) for name in walk.seen for line in computations[name].values())
    return Contents(
        kernels=written,
        kernels_run=cost.kernels,
        cycles=cost.cycles,
        unestimated=dict(cost.unestimated),
        loops=tuple(walk.loops),
        conditionals=walk.conditionals,
        collectives=tuple(walk.collectives),
        host_transfers=tuple(walk.host_transfers),
    )


def parse(text: str) -> tuple[Computations, str]:
    """`(computations by name, the entry's name)`."""
    computations: Computations = {}
    entry, current = "", None
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?(%[\w.\-]+) .*\{$", line):
            current = computations.setdefault(head.group(2), {})
            entry = head.group(2) if head.group(1) else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (found := _LINE.match(line)):
            root, name, shape, opcode, rest = found.groups()
            inside = rest[: _closing(rest)]
            operands = tuple(re.findall(r"%[\w.\-]+", inside))
            current[name] = Instruction(name, shape, opcode, operands, rest, root is not None)
    if not entry:
        raise ValueError("this is not the text of a compiled program: it has no ENTRY.")
    return computations, entry


_LINE = re.compile(r"\s+(ROOT )?(%[\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")


def _closing(rest: str) -> int:
    """Where the parenthesis that was open before `rest` closes."""
    depth = 1
    for i, character in enumerate(rest):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return i
    return len(rest)


def bytes_of(shape: str) -> int:
    """The bytes of an array, or of all arrays of a tuple, without what tiling pads."""
    total = 0
    for kind, dimensions in re.findall(r"\b([a-z]\w*?)\[([\d,<=]*)\]", shape):
        width = BITS.get(kind) or int((re.search(r"[a-z](\d+)", kind) or [0, 0])[1])
        total += math.ceil(math.prod(int(d.strip("<=")) for d in dimensions.split(",") if d) * width / 8)
    return total


def _is_kernel(line: Instruction) -> bool:
    if line.opcode in _FREE or line.opcode.endswith("-done"):
        return False
    if line.opcode == "custom-call":
        return re.search(r'custom_call_target="([^"]*)"', line.rest + '"')[1] not in _FREE_CALLS  # type: ignore[index]
    # One number, also as an array, is the scalar unit's.
    return line.opcode == "fusion" or any(
        re.search(r"[02-9]|1\d", dims) for dims in re.findall(r"\[([^\]]*)\]", line.shape)
    )


@dataclasses.dataclass
class _Cost:
    kernels: int = 0
    cycles: float = 0.0
    unestimated: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, other: _Cost, times: int = 1) -> None:
        self.kernels += times * other.kernels
        self.cycles += times * other.cycles
        self.unestimated.update({op: times * n for op, n in other.unestimated.items()})


class _Walk:
    """Adds up a computation and what it calls."""

    def __init__(self, computations: Computations) -> None:
        self.computations = computations
        self.seen: set[str] = set()
        self.loops: list[Loop] = []
        self.conditionals = 0
        self.collectives: list[Collective] = []
        self.host_transfers: list[str] = []

    def cost(self, name: str, times: int, depth: int) -> _Cost:
        """Of one run of a computation, which runs so many times and is in so many loops."""
        total = _Cost()
        lines = self.computations[name]
        self.seen.add(name)
        for line in lines.values():
            base = line.opcode.removesuffix("-start")
            if line.opcode == "while":
                total.add(*self._loop(line, lines, times, depth))
            elif line.opcode == "conditional":
                self.conditionals += 1
                branches = [self.cost(branch, times, depth) for branch in _branches(line)]
                total.add(max(branches, key=lambda cost: (cost.cycles, cost.kernels)))
            elif line.opcode in ("call", "async-start") and (inside := line.called("to_apply") or line.called("calls")):
                total.add(self.cost(inside, times, depth))
            elif _is_kernel(line):
                total.add(_own_cost(line))
            if base in COLLECTIVES:
                size = sum(bytes_of(lines[operand].shape) for operand in line.operands if operand in lines)
                self.collectives.append(Collective(base, size, times, depth, _origin(line)))
            if base in HOST or _calls_back(line):
                self.host_transfers.append(f"{line.opcode}: {_origin(line)}")
        return total

    def _loop(self, line: Instruction, lines: dict[str, Instruction], times: int, depth: int) -> tuple[_Cost, int]:
        condition, body = line.called("condition"), line.called("body")
        assert condition is not None and body is not None, line.name
        rounds = _rounds(line, lines, self.computations)
        at = len(self.loops)
        a_round = self.cost(body, times * (rounds or 1), depth + 1)
        a_round.add(self.cost(condition, times * (rounds or 1), depth + 1))
        self.loops.insert(at, Loop(_origin(line), rounds, depth, a_round.kernels, a_round.cycles))
        return a_round, 1 if rounds is None else rounds


def _own_cost(line: Instruction) -> _Cost:
    found = re.search(r'"estimated_cycles":"(\d+)"', line.rest)
    return _Cost(1, float(found[1]), Counter()) if found else _Cost(1, 0.0, Counter([line.opcode]))


def _branches(line: Instruction) -> list[str]:
    if found := re.search(r"branch_computations=\{([^}]*)\}", line.rest):
        return re.findall(r"%[\w.\-]+", found[1])
    return [name for key in ("true_computation", "false_computation") if (name := line.called(key))]


def _origin(line: Instruction) -> str:
    found = re.search(r'op_name="([^"]*)"', line.rest)
    return found[1] if found else line.name


def _calls_back(line: Instruction) -> bool:
    return line.opcode == "custom-call" and re.search(r'custom_call_target="[^"]*callback', line.rest) is not None


def _rounds(line: Instruction, lines: dict[str, Instruction], computations: Computations) -> int | None:
    """Of a loop, as the compiler says, or where its condition compares a counter with a constant.

    The TPU compiler does not write it down. A counter from a constant on in steps of a constant, as `scan` makes, gives
    the number; one that starts elsewhere is counted from 0.
    """
    if known := re.search(r'"known_trip_count":\{"n":"(\d+)"', line.rest):
        return int(known[1])
    condition, body = (computations[str(line.called(name))] for name in ("condition", "body"))
    compare = next(x for x in condition.values() if x.root)
    if compare.opcode != "compare" or "direction=LT" not in compare.rest:
        return None
    counter, bound = (condition[operand] for operand in compare.operands)
    end, at = _constant(bound, condition), _index(counter, condition)
    if end is None or at is None:
        return None
    root = next(x for x in body.values() if x.root)
    step = _step(body[root.operands[at]], at, body) if root.opcode == "tuple" else None
    if not step:
        return None
    start = lines.get(line.operands[0])
    first = _constant(lines[start.operands[at]], lines) if start is not None and start.opcode == "tuple" else None
    return max(0, math.ceil((end - (first or 0)) / step))


def _source(line: Instruction, lines: dict[str, Instruction]) -> Instruction:
    """What was copied."""
    while line.opcode in ("copy", "bitcast") and line.operands[0] in lines:
        line = lines[line.operands[0]]
    return line


def _constant(line: Instruction, lines: dict[str, Instruction]) -> int | None:
    line = _source(line, lines)
    found = re.match(r"(-?\d+)\)", line.rest)
    return int(found[1]) if line.opcode == "constant" and found else None


def _index(line: Instruction, lines: dict[str, Instruction]) -> int | None:
    line = _source(line, lines)
    found = re.search(r"\bindex=(\d+)", line.rest)
    return int(found[1]) if line.opcode == "get-tuple-element" and found else None


def _step(line: Instruction, at: int, lines: dict[str, Instruction]) -> int | None:
    """What a loop's body adds to the element `at` of its tuple: a constant, or None."""
    line = _source(line, lines)
    if line.opcode != "add":
        return None
    parts = [lines[operand] for operand in line.operands]
    steps = [_constant(part, lines) for part in parts]
    ours = [_index(part, lines) == at for part in parts]
    return next((step for step, other in zip(steps, reversed(ours), strict=True) if step is not None and other), None)
