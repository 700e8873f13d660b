"""A program as a C99 header without dependencies."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.host.export.lowering import lower
from jaxrl.host.export.operations import ELEMENTWISE, REDUCTIONS
from jaxrl.host.export.program import Buffer, Elementwise, Product, Program, Reduce, Value
from jaxrl.host.export.signature import Leaf, Signature, signature_of

_C_TYPES = {
    np.dtype(name): c
    for name, c in {
        "float32": "float",
        "float64": "double",
        "bool": "uint8_t",
        **{f"{u}int{n}": f"{u}int{n}_t" for u in ("", "u") for n in (8, 16, 32, 64)},
    }.items()
}


# Of C99 and of C++20, as the header serves both.
_C_KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
    concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default delete
    do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
    requires restrict return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while
    xor xor_eq _Bool _Complex _Imaginary""".split()
)
_MATH_H = frozenset(
    f"{word}{suffix}"
    for suffix in ("", "f", "l")
    for word in """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim
    floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf
    nan nearbyint nextafter nexttoward pow remainder remquo rint round scalbln scalbn sin sinh sqrt tan tanh tgamma
    trunc""".split()
)


def _check_names(name: str, arguments: Sequence[str]) -> None:
    """Raise ValueError for a name that C does not allow, or that the header needs."""
    for word in (name, *arguments):
        allowed = re.fullmatch(r"[A-Za-z_]\w*", word, re.ASCII) and word not in (*_C_KEYWORDS, *_C_TYPES.values())
        ours = re.fullmatch(r"[bdijk]|at|best|sum|worst|v\d+", word)
        if not allowed or ours or (word == name and (word in _MATH_H or word in arguments)):
            raise ValueError(f"export: {word!r} cannot be a name in the C header; choose another.")


def _c_type(dtype: Any) -> str:
    if dtype not in _C_TYPES:
        raise NotImplementedError(f"export: C has no {dtype}. Use float32, float64, integers or bool.")
    return _C_TYPES[dtype]


def _literal(x: Any) -> str:
    """A number of numpy as C, to the last bit."""
    if x.dtype.kind != "f":
        return str(int(x))
    if not np.isfinite(x):
        return "NAN" if np.isnan(x) else ("INFINITY" if x > 0 else "-INFINITY")
    text = np.format_float_positional(x, trim="0") if 1e-4 <= abs(x) < 1e6 or x == 0 else repr(float(str(x)))
    return text + ("f" if x.dtype == np.float32 else "")


def _times(i: str, n: int) -> str:
    """C for i * n."""
    return i if n == 1 or i == "0" else f"({i}) * {n}" if " " in i else f"{i} * {n}"


def _plus(a: str | int, b: str) -> str:
    """C for a + b."""
    return b if a in (0, "0") else str(a) if b == "0" else f"{a} + {b}"


class _C:
    """The text of a program: constants, and statements of the body."""

    def __init__(self, name: str, program: Program) -> None:
        self.name, self.program = name, program
        self.constants: dict[Any, str] = {}
        self.definitions: list[str] = []
        self.helpers: dict[str, str] = {}
        self.body: list[str] = []
        self.names: dict[Buffer, str] = {}
        self.constant_bytes = self.local_bytes = 0
        self.lazy: dict[Buffer, Elementwise] = {}  # written where it is used, once
        uses = Counter(v.buffer for i in program.instructions for v in i.operands)
        uses.update(v.buffer for v in program.outputs)
        users = {v.buffer: (i, v) for i in program.instructions for v in i.operands}
        users |= {v.buffer: (None, v) for v in program.outputs}
        for instruction in program.instructions:
            user, value = users[instruction.out]
            if isinstance(instruction, Elementwise) and uses[instruction.out] == 1 and value.whole:
                if user is None or (isinstance(user, Elementwise) and self.mentions(user, value) == 1):
                    self.lazy[instruction.out] = instruction

    @staticmethod
    def mentions(instruction: Elementwise, value: Value) -> int:
        """How often the C of an operation names an operand."""
        return ELEMENTWISE[instruction.operation][0].count(f"{{{instruction.operands.index(value)}}}")

    def constant(self, data: np.ndarray, kind: str = "w") -> str:
        """The name of a static array."""
        key = data.dtype, data.tobytes()
        if key not in self.constants:
            name = f"{self.name}_{kind}{len(self.constants)}"
            numbers = [_literal(x) for x in data.ravel()]
            lines = [", ".join(numbers[i : i + 8]) for i in range(0, len(numbers), 8)]
            head = f"static const {_c_type(data.dtype)} {name}[{data.size}] = {{ /* {np.squeeze(data).shape} */"
            self.definitions.append(head + "\n    " + ",\n    ".join(lines) + "};")
            self.constants[key] = name
            self.constant_bytes += data.nbytes
        return self.constants[key]

    def position(self, index: np.ndarray, i: str) -> str:
        """C for index[i]."""
        index, n = index.ravel(), index.size
        first, count = int(index[0]), np.arange(n)
        if np.all(index == first):
            return str(first)
        step = int(index[1]) - first
        if np.array_equal(index, first + step * count):
            return _plus(first, _times(i, step))
        for repeat in (int(np.argmax(index != first)), int(index.max()) - first + 1):
            if repeat > 1 and np.array_equal(index, first + count // repeat):
                return _plus(first, f"{i} / {repeat}")
            if repeat > 1 and np.array_equal(index, first + count % repeat):
                return _plus(first, f"{i} % {repeat}")
        dtype = np.uint8 if index.max() < 2**8 else np.uint16 if index.max() < 2**16 else np.int32
        return f"{self.constant(index.astype(dtype), 'index')}[{i}]"

    def element(self, value: Value, i: str) -> str:
        """C for the i-th number of a value; `i` is an expression."""
        buffer, index = value.buffer, value.index.ravel()
        if buffer.data is not None:
            data = buffer.data[index]
            if np.all(data == data[0]):
                return _literal(data[0])
            return f"{self.constant(data.reshape(value.shape))}[{i}]"
        if buffer in self.lazy:
            return self.expression(self.lazy[buffer], i)
        return f"{self.names[buffer]}[{self.position(index, i)}]"

    def expression(self, instruction: Elementwise, i: str) -> str:
        template = ELEMENTWISE[instruction.operation][0]
        operands = [self.element(v, i) for v in instruction.operands]
        for n, text in enumerate(operands):
            enclosed = re.search(rf"[(,] ?\{{{n}\}}[,)]", template)
            negative = text[0] == "-" and f"-{{{n}}}" in template
            if (negative or " " in re.sub(r"\[.*?\]", "", text)) and not enclosed:
                operands[n] = f"({text})"
        dtype = instruction.operands[-1].buffer.dtype
        return self.fill(template, operands, dtype, _c_type(instruction.out.dtype))

    def fill(self, template: str, operands: list[str], dtype: np.dtype, result: str) -> str:
        kind, words = _c_type(dtype), {"f": "f" if dtype == np.float32 else "", "T": result}
        for word, sign in (("max", ">"), ("min", "<")):
            words[word] = f"{self.name}_{word}_{kind}"
            if f"{{{word}}}" in template:
                nan = " || a != a" if dtype.kind == "f" else ""  # as JAX: NaN if either is
                self.helpers[words[word]] = (
                    f"static inline {kind} {words[word]}({kind} a, {kind} b) {{ return a {sign} b{nan} ? a : b; }}"
                )
        return template.format(*operands, **words)

    def loop(self, n: int, i: str, statements: Callable[[str], list[str]]) -> list[str]:
        """The statements, made for an index, n times."""
        if n == 1:
            return statements("0")
        body = statements(i)
        head = f"for (int {i} = 0; {i} < {n}; {i}++)"
        return [f"{head} {body[0]}"] if len(body) == 1 else [f"{head} {{", *(f"    {line}" for line in body), "}"]

    def store(self, target: str, start: int, value: Value, dtype: np.dtype) -> list[str]:
        """target[start + i] = value[i] for all i; the target is of `dtype`."""
        if value.buffer.data is not None:
            value = Value(Buffer(dtype, value.buffer.size, value.buffer.data.astype(dtype)), value.index)
        cast = "" if dtype == value.buffer.dtype else f"({_c_type(dtype)})"

        def statement(i: str) -> list[str]:
            text = self.element(value, i)
            text = f"{cast}({text})" if cast and " " in text else cast + text
            return [f"{target}[{_plus(start, i)}] = {text};"]

        return self.loop(value.index.size, "i", statement) if value.index.size else []

    def declare(self, buffer: Buffer) -> str:
        name = self.names[buffer] = f"v{len(self.names)}"
        self.local_bytes += buffer.size * buffer.dtype.itemsize
        self.body.append(f"{_c_type(buffer.dtype)} {name}[{buffer.size}];")
        return name

    def contiguous(self, value: Value) -> Callable[[str], str]:
        """From an expression of a position in the value to C, cheap in an inner loop."""
        index = value.index.ravel()
        if value.buffer.data is not None:
            name, start = self.constant(value.buffer.data[index].reshape(value.shape)), 0
        elif np.array_equal(index, index[0] + np.arange(index.size)):
            name, start = self.names[value.buffer], int(index[0])
        else:
            copy = Buffer(value.buffer.dtype, index.size)
            name, start = self.declare(copy), 0
            self.body += self.store(name, 0, value, copy.dtype)
        return lambda i: f"{name}[{_plus(start, i)}]"

    def write(self) -> None:
        for instruction in self.program.instructions:
            out = instruction.out
            if out in self.lazy:
                continue
            if isinstance(instruction, Product):
                self.product(instruction)
            elif isinstance(instruction, Reduce):
                self.reduce(instruction)
            elif isinstance(instruction, Elementwise):
                name = self.declare(out)
                self.body += self.loop(
                    out.size, "i", lambda i, n=name, x=instruction: [f"{n}[{i}] = {self.expression(x, i)};"]
                )
            else:
                name, start = self.declare(out), 0
                for value in instruction.operands:
                    self.body += self.store(name, start, value, out.dtype)
                    start += value.index.size

    def product(self, instruction: Product) -> None:
        a, b = instruction.operands
        (batch, m, inner), n = a.shape, b.shape[1]
        left, right = self.contiguous(a), self.contiguous(b)
        name, T = self.declare(instruction.out), _c_type(instruction.out.dtype)

        def element(b: str, i: str, j: str) -> list[str]:
            row, column = _plus(_times(b, m), i), _plus(_times(b, n), j)

            def add(k: str) -> list[str]:
                return [f"sum += {left(_plus(_times(row, inner), k))} * {right(_plus(_times(column, inner), k))};"]

            return [f"{T} sum = 0;", *self.loop(inner, "k", add), f"{name}[{_plus(_times(row, n), j)}] = sum;"]

        def block(lines: list[str]) -> list[str]:
            return ["{", *(f"    {line}" for line in lines), "}"] if batch * m * n == 1 else lines

        self.body += block(
            self.loop(batch, "b", lambda b: self.loop(m, "i", lambda i: self.loop(n, "j", lambda j: element(b, i, j))))
        )

    def reduce(self, instruction: Reduce) -> None:
        (value,) = instruction.operands
        outer, inner = value.shape
        x, operation = self.contiguous(value), instruction.operation
        name, dtype = self.declare(instruction.out), value.buffer.dtype
        T, template = _c_type(dtype), REDUCTIONS[operation][0]

        def row(i: str) -> list[str]:
            first, this = x(_times(i, inner)), x(_plus(_times(i, inner), "k"))
            if operation.startswith("arg"):
                nan = f" || ({this} != {this} && best == best)" if dtype.kind == "f" else ""  # as JAX: the first NaN
                step = f"if ({this} {template} best{nan}) {{ best = {this}; at = k; }}"
                at, result = [f"{_c_type(instruction.out.dtype)} at = 0;"], "at"
            else:
                step, at, result = self.fill(template, [this], dtype, T), [], "best"
            loop = f"for (int k = 1; k < {inner}; k++) {step}"
            return [f"{T} best = {first};", *at, loop, f"{name}[{i}] = {result};"]

        lines = self.loop(outer, "i", row)
        self.body += ["{", *(f"    {line}" for line in lines), "}"] if outer == 1 else lines


def to_c(
    function: Callable[..., Any],
    *examples: Any,
    name: str = "policy",
    outputs: Sequence[str] = ("action",),
    names: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """A self-contained C99 header: constant weights, no allocation, nothing but math.h and stdint.h.

    It defines `static inline void NAME(const float *obs, float *action)` with a pointer for each parameter of the
    function and each output, their sizes as macros `NAME_OBS_SIZE`, and `static inline float NAME_check(void)`, which
    compares the target with JAX on one stored input. The arrays of an argument lie one after the other, as the header's
    comment says; it is of integers if they all are, else of floats. An output `next_x` may be written over the input
    `x`, and `NAME_initial_x` is the example of that.

    Args:
        function: of arrays or pytrees of arrays; returns one output, or a tuple if `outputs` names several.
        examples: one for each parameter, without batch axes.
        name: of the C function and the prefix of all else.
        names: what each number of an array is, for the comment: by the array's name, as `obs` or `obs.position`.

    Raises ValueError for a name that C does not allow, NotImplementedError for an unsupported primitive or dtype.
    """
    signature = signature_of(function, examples, outputs)
    arguments = list(dict.fromkeys(leaf.argument for leaf in (*signature.inputs, *signature.outputs)))
    _check_names(name, arguments)
    program = lower(signature.call, *signature.examples)
    c = _C(name, program)
    leaves = (*signature.inputs, *signature.outputs)
    kinds = {a: np.dtype(jnp.result_type(*(x.dtype for x in leaves if x.argument == a))) for a in arguments}
    read = {v.buffer for i in program.instructions for v in i.operands} | {v.buffer for v in program.outputs}
    unread, sizes = set(arguments[: len(examples)]), Counter()
    for leaf, value in zip(signature.inputs, program.inputs, strict=True):
        if value.buffer in read:  # copied, so that outputs may be written over inputs
            unread.discard(leaf.argument)
            target, start, kind = c.declare(value.buffer), sizes[leaf.argument], kinds[leaf.argument]
            cast = "" if leaf.dtype in (kind, bool) else f"({_c_type(leaf.dtype)})"
            test = " != 0" if leaf.dtype.kind == "b" != kind.kind else ""
            c.body += c.loop(
                value.buffer.size,
                "i",
                lambda i, leaf=leaf, target=target, start=start, cast=cast, test=test: [
                    f"{target}[{i}] = {cast}{leaf.argument}[{_plus(start, i)}]{test};"
                ],
            )
        sizes[leaf.argument] += value.buffer.size
    c.write()
    for leaf, value in zip(signature.outputs, program.outputs, strict=True):
        c.body += c.store(leaf.argument, sizes[leaf.argument], value, kinds[leaf.argument])
        sizes[leaf.argument] += value.index.size
    c.body += [f"(void){argument};" for argument in sorted(unread)]
    return _header(c, signature, arguments, len(examples), kinds, sizes, names or {})


def _example(signature: Signature, states: list[str]) -> tuple[list[np.ndarray], list[Array]]:
    """An input and what JAX makes of it: random numbers, and `states` as a first step left them."""
    generator = np.random.default_rng(0)

    def draw(leaf: Leaf, example: Array) -> np.ndarray:
        if leaf.argument in states or leaf.dtype.kind not in "fb":
            return np.asarray(example)
        numbers = generator.standard_normal(leaf.shape) if leaf.dtype.kind == "f" else np.ones(leaf.shape)
        return numbers.astype(leaf.dtype)

    given = [draw(leaf, x) for leaf, x in zip(signature.inputs, signature.examples, strict=True)]
    call = jax.jit(signature.call)
    with jax.default_matmul_precision("highest"):  # a GPU's default is less than float32
        results = call(*given)
        if states:  # the second step of an episode remembers the first
            after = dict(zip([leaf.name for leaf in signature.outputs], results, strict=True))
            given = [
                np.asarray(after.get(f"next_{leaf.name}", x)) for leaf, x in zip(signature.inputs, given, strict=True)
            ]
            results = call(*given)
    return given, list(results)


def _header(
    c: _C,
    signature: Signature,
    arguments: list[str],
    count: int,
    kinds: dict[str, np.dtype],
    sizes: Counter[str],
    names: Mapping[str, Sequence[str]],
) -> str:
    """The whole text around the body."""
    name, guard = c.name, f"{c.name.upper()}_H"
    states = [a for a in arguments[:count] if f"next_{a}" in arguments[count:]]
    given, results = _example(signature, states)

    def flat(argument: str, leaves: list[Leaf], values: Any) -> np.ndarray:
        parts = [np.ravel(x) for leaf, x in zip(leaves, values, strict=True) if leaf.argument == argument]
        return np.concatenate(parts).astype(kinds[argument])

    def array(label: str, data: np.ndarray) -> str:
        numbers = ", ".join(_literal(x) for x in data)
        return f"static const {_c_type(data.dtype)} {name}_{label}[{data.size}] = {{{numbers}}};"

    parameters = [f"{'const ' if i < count else ''}{_c_type(kinds[a])} *{a}" for i, a in enumerate(arguments)]
    layout, starts = [], Counter()
    for leaf in (*signature.inputs, *signature.outputs):
        start, size = starts[leaf.argument], math.prod(leaf.shape)
        layout.append(f" *   {leaf.argument}[{start}..{start + size - 1}]  {leaf.name}, {leaf.dtype} {leaf.shape}")
        if len(said := names.get(leaf.name, ())) == size:
            numbers = (f" *     {leaf.argument}[{start + i}]  {word}" for i, word in enumerate(said))
            layout += [number.replace("*/", "* /").replace("/*", "/ *") for number in numbers]
        starts[leaf.argument] += size
    calls = ", ".join(arguments)
    lines = [
        f"/* {name}: exported by jaxrl, JAX {jax.__version__}. C99; include it in one source file, link with -lm.",
        " *",
        *layout,
        " *",
        *(f" *   {_c_type(kinds[a])} {a}[{name.upper()}_{a.upper()}_SIZE];" for a in arguments),
        *(f" *   copy {name}_initial_{a} to {a} before an episode; next_{a} may be {a} itself" for a in states),
        f" *   {name}({calls});",
        " *",
        f" * Constants {c.constant_bytes:,} bytes, local arrays {c.local_bytes:,} bytes.",
        " *",
        f" * {name}_check() runs a stored input and returns the largest distance from JAX: about 1e-6.",
        " */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <math.h>",
        "#include <stdint.h>",
        "",
        *(f"#define {name.upper()}_{a.upper()}_SIZE {sizes[a]}" for a in arguments),
        "",
        *c.definitions,
        *(array(f"initial_{a}", flat(a, signature.inputs, signature.examples)) for a in states),
        "",
        *c.helpers.values(),
        "",
        f"static inline void {name}({', '.join(parameters)}) {{",
        *(f"    {line}" for line in c.body),
        "}",
        "",
        *(array(f"check_{a}", flat(a, signature.inputs, given)) for a in arguments[:count]),
        *(array(f"check_{a}", flat(a, signature.outputs, results)) for a in arguments[count:]),
        "",
        f"static inline float {name}_check(void) {{",
        "    float worst = 0;",
        *(f"    {_c_type(kinds[a])} {a}[{sizes[a]}];" for a in arguments[count:]),
        f"    {name}({', '.join(f'{name}_check_{a}' if i < count else a for i, a in enumerate(arguments))});",
        *(
            f"    for (int i = 0; i < {sizes[a]}; i++) {{ float d = fabsf((float)({a}[i] - {name}_check_{a}[i]));"
            " if (!(d <= worst)) worst = d; }"
            for a in arguments[count:]
        ),
        "    return worst;",
        "}",
        "",
        f"#endif /* {guard} */",
        "",
    ]
    return "\n".join(lines)
