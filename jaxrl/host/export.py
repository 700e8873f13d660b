"""Trained policies outside JAX: a C header without dependencies, ONNX, and StableHLO that `jax.export` reads back.

`greedy(algo, policy)` is a policy's greedy action as a function of arrays; `to_c`, `to_onnx` and `to_stablehlo` take
it, or any other function. For C and ONNX the function's jaxpr, in which the weights are constants, is lowered once to a
program of four kinds of instruction (`Elementwise`, `Product`, `Reduce`, `Join`). All that only moves numbers about
(reshape, slice, broadcast, transpose, padding, convolution patches) becomes an array of positions in a buffer,
found by applying the primitive to the positions themselves. So whatever network can be written with the primitives of
`_ELEMENTWISE`, `_REDUCTIONS` and `_LAYOUT`, products and scans can be exported; another primitive raises
NotImplementedError with its name, if the outputs depend on it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxrl.algorithm import Algorithm
from jaxrl.environment import visible
from jaxrl.spaces import Dict, Space, Tuple

FORMATS = {"c": ".h", "onnx": ".onnx", "stablehlo": ".stablehlo"}


class Deployed(NamedTuple):
    """A function with what exporters ask about it: `to_c(*deployed.arguments, outputs=deployed.outputs)`."""

    function: Callable[..., Any]
    examples: tuple[Any, ...]
    outputs: tuple[str, ...]


def greedy(algo: Algorithm, policy: PyTree) -> Deployed:
    """What acts after training: `obs -> action`, or with memory `(obs, carry) -> (action, next_carry)`.

    `obs` is one observation (of several agents: of one), without batch axes and without its privileged part; `policy`
    is `algo.policy(state)` of one seed. The examples are an observation of zeros and the carry before an episode.
    """
    env = algo.venv.env
    obs = jax.eval_shape(env.reset, jax.random.key(0), env.default_params)[0]
    whole = _zeros(env.observation_space(env.default_params), obs)

    def act(obs: Any, carry: Any = ()) -> Any:
        # Normalisers know the privileged part, no actor uses it.
        obs = {**whole, **obs} if isinstance(obs, dict) else obs
        action, carry = algo.act(policy, jax.random.key(0), obs, carry, greedy=True)
        return (action, carry) if jax.tree.leaves(carry) else action

    carry = algo.initial_carry()
    if jax.tree.leaves(carry):
        return Deployed(act, (visible(whole), carry), ("action", "next_carry"))
    return Deployed(act, (visible(whole),), ("action",))


def _zeros(space: Space, obs: Any) -> Any:
    """One member of `space`. Its dtypes are the observation's: in float64 that of a space is another."""
    if isinstance(space, Dict):
        return {name: _zeros(s, obs[name]) for name, s in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_zeros(s, x) for s, x in zip(space.spaces, obs, strict=True))
    return jnp.zeros(space.shape, obs.dtype)


def export(algo: Algorithm, policy: PyTree, path: str | Path, format: str = "c", name: str = "policy") -> Path:
    """Write the greedy policy to `path` in one of `FORMATS`; returns the path.

    Raises ValueError for an unknown format, ImportError without the packages of ONNX or StableHLO,
    NotImplementedError for a network with a primitive that the format has not.
    """
    if format not in FORMATS:
        raise ValueError(f"format={format!r} is unknown; use one of {', '.join(FORMATS)}.")
    deployed, path = greedy(algo, policy), Path(path)
    write = {"c": functools.partial(to_c, name=name), "onnx": to_onnx, "stablehlo": to_stablehlo}[format]
    content = write(deployed.function, *deployed.examples, outputs=deployed.outputs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# ---- what goes in and out


class Leaf(NamedTuple):
    """One array of an argument or a result."""

    argument: str
    name: str  # the argument's, and the path in it
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclasses.dataclass(frozen=True)
class _Signature:
    """The function on flat lists of arrays, and the names of these."""

    call: Callable[..., list[Array]]
    examples: list[Array]
    inputs: list[Leaf]
    outputs: list[Leaf]


def _signature(function: Callable[..., Any], examples: tuple[Any, ...], outputs: Sequence[str]) -> _Signature:
    parameters = list(inspect.signature(function).parameters)
    if not examples or len(examples) > len(parameters):
        raise ValueError(f"export: {len(examples)} examples for a function of {len(parameters)} parameters.")
    leaves, tree = jax.tree.flatten(jax.tree.map(jnp.asarray, examples))

    def results(*leaves: Any) -> tuple[Any, ...]:
        out = function(*tree.unflatten(leaves))
        out = (out,) if len(outputs) == 1 else tuple(out)
        if len(out) != len(outputs):
            raise ValueError(f"export: the function returns {len(out)} results, outputs names {len(outputs)}.")
        return out

    def named(names: Sequence[str], trees: Any) -> list[Leaf]:
        return [
            Leaf(
                name, name + "".join(f".{jax.tree_util.keystr((key,), simple=True)}" for key in path), x.shape, x.dtype
            )
            for name, tree in zip(names, trees, strict=True)
            for path, x in jax.tree_util.tree_leaves_with_path(tree)
        ]

    shapes = jax.eval_shape(results, *leaves)
    return _Signature(
        lambda *leaves: jax.tree.leaves(results(*leaves)),
        leaves,
        named(parameters[: len(examples)], tree.unflatten(leaves)),
        named(outputs, shapes),
    )


# ---- the program


@dataclasses.dataclass(eq=False)
class Buffer:
    """A flat array: constant `data`, an input, or what one instruction writes."""

    dtype: np.dtype
    size: int
    data: np.ndarray | None = None


@dataclasses.dataclass(eq=False)
class Value:
    """An array whose element i is element `index[i]` of a buffer."""

    buffer: Buffer
    index: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.index.shape

    @property
    def whole(self) -> bool:
        """Whether it is the buffer, all of it, in order."""
        return self.index.size == self.buffer.size and np.array_equal(self.index.ravel(), np.arange(self.buffer.size))


@dataclasses.dataclass(eq=False)
class Elementwise:
    """out[i] = operation(operands[0][i], ...), a key of `_ELEMENTWISE`; operands have one shape."""

    out: Buffer
    operation: str
    operands: list[Value]


@dataclasses.dataclass(eq=False)
class Product:
    """out[b, m, n] = sum over k of operands[0][b, m, k] operands[1][b, n, k]."""

    out: Buffer
    operands: list[Value]


@dataclasses.dataclass(eq=False)
class Reduce:
    """out[m] = operation over k of operands[0][m, k], a key of `_REDUCTIONS`."""

    out: Buffer
    operation: str
    operands: list[Value]


@dataclasses.dataclass(eq=False)
class Join:
    """The operands, flat, one after the other."""

    out: Buffer
    operands: list[Value]


@dataclasses.dataclass(frozen=True)
class Unknown:
    """What a primitive that has no lowering would give: an error only if an output needs it."""

    primitive: str


@dataclasses.dataclass
class Program:
    """`outputs` of `inputs`, by `instructions` in order; only those that the outputs need."""

    inputs: list[Value]
    outputs: list[Value]
    instructions: list[Any]


# primitive or own operation: (C, where {f} is the suffix of the dtype's functions and {T} the type of the result;
# the ONNX operator, or a function of (make a node, operands...), or None where ONNX has none)
_ELEMENTWISE: dict[str, tuple[str, Any]] = {
    "abs": ("fabs{f}({0})", "Abs"),
    "acos": ("acos{f}({0})", "Acos"),
    "acosh": ("acosh{f}({0})", "Acosh"),
    "add": ("{0} + {1}", "Add"),
    "and": ("{0} & {1}", "And"),
    "asin": ("asin{f}({0})", "Asin"),
    "asinh": ("asinh{f}({0})", "Asinh"),
    "atan": ("atan{f}({0})", "Atan"),
    "atan2": ("atan2{f}({0}, {1})", None),
    "atanh": ("atanh{f}({0})", "Atanh"),
    "cbrt": ("cbrt{f}({0})", None),
    "ceil": ("ceil{f}({0})", "Ceil"),
    "convert_element_type": ("({T}){0}", None),  # ONNX's Cast needs the type
    "cos": ("cos{f}({0})", "Cos"),
    "cosh": ("cosh{f}({0})", "Cosh"),
    "div": ("{0} / {1}", "Div"),
    "eq": ("{0} == {1}", "Equal"),
    "erf": ("erf{f}({0})", "Erf"),
    "erfc": ("erfc{f}({0})", lambda node, x: node("Sub", 1, node("Erf", x))),
    "exp": ("exp{f}({0})", "Exp"),
    "exp2": ("exp2{f}({0})", lambda node, x: node("Pow", 2, x)),
    "expm1": ("expm1{f}({0})", lambda node, x: node("Sub", node("Exp", x), 1)),
    "floor": ("floor{f}({0})", "Floor"),
    "ge": ("{0} >= {1}", "GreaterOrEqual"),
    "gt": ("{0} > {1}", "Greater"),
    "is_finite": ("isfinite({0})", lambda node, x: node("Not", node("Or", node("IsNaN", x), node("IsInf", x)))),
    "le": ("{0} <= {1}", "LessOrEqual"),
    "log": ("log{f}({0})", "Log"),
    "log1p": ("log1p{f}({0})", lambda node, x: node("Log", node("Add", 1, x))),
    "logistic": ("1 / (1 + exp{f}(-{0}))", "Sigmoid"),
    "lt": ("{0} < {1}", "Less"),
    "max": ("{max}({0}, {1})", "Max"),
    "min": ("{min}({0}, {1})", "Min"),
    "mul": ("{0} * {1}", "Mul"),
    "ne": ("{0} != {1}", lambda node, x, y: node("Not", node("Equal", x, y))),
    "neg": ("-{0}", "Neg"),
    "not": ("!{0}", "Not"),
    "or": ("{0} | {1}", "Or"),
    "pow": ("pow{f}({0}, {1})", "Pow"),
    "rem": ("fmod{f}({0}, {1})", lambda node, x, y: node("Mod", x, y, fmod=1)),
    "round": ("rint{f}({0})", "Round"),
    "rsqrt": ("1 / sqrt{f}({0})", lambda node, x: node("Reciprocal", node("Sqrt", x))),
    "select": ("{0} ? {1} : {2}", "Where"),
    "sign": ("({0} > 0) - ({0} < 0)", "Sign"),
    "sin": ("sin{f}({0})", "Sin"),
    "sinh": ("sinh{f}({0})", "Sinh"),
    "sqrt": ("sqrt{f}({0})", "Sqrt"),
    "sub": ("{0} - {1}", "Sub"),
    "tan": ("tan{f}({0})", "Tan"),
    "tanh": ("tanh{f}({0})", "Tanh"),
    "xor": ("{0} ^ {1}", "Xor"),
}
_FLOATS_ONLY = {"abs", "rem", "round"}
_BOOLS_ONLY = {"and", "not", "or", "xor"}

# primitive: (C, that changes `best` by element {0} at position k; the ONNX operator)
_REDUCTIONS: dict[str, tuple[str, str]] = {
    "reduce_sum": ("best += {0};", "ReduceSum"),
    "reduce_prod": ("best *= {0};", "ReduceProd"),
    "reduce_max": ("best = {max}(best, {0});", "ReduceMax"),
    "reduce_min": ("best = {min}(best, {0});", "ReduceMin"),
    "reduce_and": ("best &= {0};", "ReduceMin"),
    "reduce_or": ("best |= {0};", "ReduceMax"),
    "argmax": (">", "ArgMax"),
    "argmin": ("<", "ArgMin"),
}

# primitive: which operands hold the numbers that it moves, None for all; the others must be constant
_LAYOUT: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("concatenate", "stack")),
    **dict.fromkeys(("broadcast_in_dim", "dynamic_slice", "expand_dims", "gather", "reshape", "rev"), (0,)),
    **dict.fromkeys(("slice", "split", "squeeze", "tile", "transpose"), (0,)),
    **dict.fromkeys(("dynamic_update_slice", "pad"), (0, 1)),
    "scatter": (0, 2),
}
_UNCHANGED = {"copy", "copy_p", "device_put", "optimization_barrier", "stop_gradient"}
_CALLS = {
    "checkpoint": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "remat2": "jaxpr",
}


class _Lowering:
    """An interpreter of jaxprs: what depends on inputs becomes instructions, all else is computed here and now."""

    def __init__(self) -> None:
        self.instructions: list[Any] = []

    def run(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs), strict=True))

        def read(x: Any) -> Any:
            return x.val if hasattr(x, "val") else known[x]

        for equation in jaxpr.eqns:
            known.update(zip(equation.outvars, self.equation(equation, list(map(read, equation.invars))), strict=True))
        return list(map(read, jaxpr.outvars))

    def equation(self, equation: Any, inputs: list[Any]) -> list[Any]:
        primitive, params = equation.primitive, equation.params
        name, shapes = primitive.name, [v.aval for v in equation.outvars]
        unknown = [x for x in inputs if isinstance(x, Unknown)]
        if unknown and name not in _CALLS:
            return unknown[:1] * len(shapes)
        if name in _CALLS:
            inner = params[_CALLS[name]]
            return self.run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), inputs)
        if not any(isinstance(x, Value) for x in inputs):
            out = primitive.bind(*inputs, **params)
            return list(out) if primitive.multiple_results else [out]
        if name in _UNCHANGED:
            return inputs
        if name == "scan":
            return self.scan(inputs, params)
        if name in _LAYOUT:
            return self.layout(primitive, inputs, params) or [Unknown(name)] * len(shapes)
        (aval,) = shapes if len(shapes) == 1 else (None,)
        out = None if aval is None else self.single(name, inputs, params, aval.shape, np.dtype(aval.dtype))
        return [Unknown(name)] * len(shapes) if out is None else [out]

    def single(self, name: str, inputs: list[Any], params: dict[str, Any], shape: Any, dtype: np.dtype) -> Any:
        """The only result of a primitive, None if there is no lowering."""
        apply = functools.partial(self.elementwise, shape=shape, dtype=dtype)
        kind = self.value(inputs[0]).buffer.dtype.kind
        if name in _REDUCTIONS:
            return self.reduce(name, inputs[0], params["axes"], shape, dtype)
        if name in ("dot_general", "conv_general_dilated"):
            lhs, rhs = inputs
            multiply = self.product if name == "dot_general" else self.convolution
            return multiply(lhs, rhs, params, shape, dtype)
        if name == "square":
            return apply("mul", *inputs * 2)
        if name == "integer_pow":
            return self.integer_pow(inputs[0], params["y"], apply)
        if name == "clamp":
            low, x, high = inputs
            return apply("min", apply("max", x, low), high)
        if name == "add_any":
            return apply("add", *inputs)
        if name == "select_n":
            which, *cases = inputs
            out = cases[-1]
            for i in reversed(range(len(cases) - 1)):
                at = self.value(which)
                chosen = at if kind == "b" else self.elementwise("eq", at, np.int32(i), shape=at.shape, dtype=bool)
                out = apply("select", chosen, out, cases[i]) if kind == "b" else apply("select", chosen, cases[i], out)
            return out
        if name == "convert_element_type" and dtype.kind == "b":
            return apply("ne", inputs[0], np.zeros((), self.value(inputs[0]).buffer.dtype))
        if name == "round" and int(params["rounding_method"]) != 1:  # half away from zero
            return None
        if name not in _ELEMENTWISE or (name in _FLOATS_ONLY and kind != "f") or (name in _BOOLS_ONLY and kind != "b"):
            return None
        return apply(name, *inputs)

    def value(self, x: Any) -> Value:
        if isinstance(x, Value):
            return x
        x = np.asarray(x)
        return Value(Buffer(x.dtype, x.size, x.ravel()), np.arange(x.size).reshape(x.shape))

    def elementwise(self, operation: str, *operands: Any, shape: Any, dtype: Any) -> Value:
        values = [self.value(x) for x in operands]
        values = [Value(v.buffer, np.broadcast_to(v.index, shape)) for v in values]
        out = Buffer(np.dtype(dtype), math.prod(shape))
        self.instructions.append(Elementwise(out, operation, values))
        return Value(out, np.arange(out.size).reshape(shape))

    def integer_pow(self, x: Any, y: int, apply: Callable[..., Value]) -> Value:
        out, power, left = None, x, abs(y)
        while left:
            if left & 1:
                out = power if out is None else apply("mul", out, power)
            left >>= 1
            power = apply("mul", power, power) if left else power
        one = np.ones((), self.value(x).buffer.dtype)
        out = apply("mul", one, one) if out is None else out
        return apply("div", one, out) if y < 0 else out

    def join(self, operands: list[Any]) -> tuple[Buffer, list[np.ndarray]]:
        """One buffer that holds all operands, and where each of them is in it."""
        values = [self.value(x) for x in operands]
        if all(v.buffer is values[0].buffer for v in values):
            return values[0].buffer, [v.index for v in values]
        starts = np.cumsum([0, *(v.index.size for v in values)])
        out = Buffer(values[0].buffer.dtype, int(starts[-1]))
        self.instructions.append(Join(out, values))
        return out, [np.arange(i, i + v.index.size).reshape(v.shape) for i, v in zip(starts, values, strict=False)]

    def layout(self, primitive: Any, inputs: list[Any], params: dict[str, Any]) -> list[Value] | None:
        moved = _LAYOUT[primitive.name] or range(len(inputs))
        if any(isinstance(x, Value) for i, x in enumerate(inputs) if i not in moved):
            return None
        buffer, indices = self.join([inputs[i] for i in moved])
        operands = list(inputs)
        for i, index in zip(moved, indices, strict=True):
            operands[i] = jnp.asarray(index, jnp.int32)
        out = primitive.bind(*operands, **params)
        out = [np.asarray(x) for x in (out if primitive.multiple_results else [out])]
        if any(np.any(x < 0) for x in out):  # what lay outside and was filled in
            return None
        return [Value(buffer, x) for x in out]

    def reduce(self, name: str, x: Value, axes: Sequence[int], shape: Any, dtype: np.dtype) -> Value:
        index = np.moveaxis(x.index, axes, range(x.index.ndim - len(axes), x.index.ndim))
        out = Buffer(dtype, math.prod(shape))
        self.instructions.append(Reduce(out, name, [Value(x.buffer, index.reshape(out.size, -1))]))
        return Value(out, np.arange(out.size).reshape(shape))

    def product(self, lhs: Any, rhs: Any, params: dict[str, Any], shape: Any, dtype: np.dtype) -> Value:
        def arrange(x: Value, contracted: Sequence[int], batch: Sequence[int]) -> Value:
            """(B, free, K)."""
            free = [i for i in range(len(x.shape)) if i not in (*contracted, *batch)]
            sizes = [math.prod(x.shape[i] for i in axes) for axes in (batch, free, contracted)]
            return Value(x.buffer, x.index.transpose(*batch, *free, *contracted).reshape(sizes))

        (left, right), (left_batch, right_batch) = params["dimension_numbers"]
        a, b = arrange(self.value(lhs), left, left_batch), arrange(self.value(rhs), right, right_batch)
        swap = a.buffer.data is not None  # a constant is the second
        operands = [b, a] if swap else [a, b]
        out = Buffer(dtype, math.prod(shape))
        self.instructions.append(Product(out, operands))
        index = np.arange(out.size).reshape(a.shape[0], operands[0].shape[1], operands[1].shape[1])
        return Value(out, (index.swapaxes(1, 2) if swap else index).reshape(shape))

    def convolution(self, x: Any, kernel: Any, params: dict[str, Any], shape: Any, dtype: np.dtype) -> Value | None:
        """Its patches, found by convolving positions, times the kernel as a matrix."""
        if params["feature_group_count"] != 1 or params["batch_group_count"] != 1:
            return None
        numbers, zero = params["dimension_numbers"], np.zeros((), self.value(x).buffer.dtype)
        kernel, (buffer, (index, pad)) = self.value(kernel), self.join([x, zero])
        # Axes (N, C, ...) and (O, I, ...); a position is one more than its number, so that the border's 0 is free.
        index = index.transpose(numbers.lhs_spec)
        weights = kernel.index.transpose(numbers.rhs_spec)
        patches = jax.lax.conv_general_dilated_patches(
            jnp.asarray(index + 1, jnp.float64 if jax.config.jax_enable_x64 else jnp.float32),
            weights.shape[2:],
            *(params[key] for key in ("window_strides", "padding", "lhs_dilation", "rhs_dilation")),
            precision=jax.lax.Precision.HIGHEST,
        )  # (N, C * kernel, ...)
        positions = np.moveaxis(np.rint(np.asarray(patches)).astype(np.int64), 1, -1)
        positions = np.where(positions == 0, pad, positions - 1)
        rows = Value(buffer, positions.reshape(1, -1, positions.shape[-1]))
        columns = Value(kernel.buffer, weights.reshape(1, weights.shape[0], -1))
        out = Buffer(dtype, math.prod(shape))
        self.instructions.append(Product(out, [rows, columns]))
        result = np.moveaxis(np.arange(out.size).reshape(*positions.shape[:-1], -1), -1, 1)  # (N, O, ...)
        return Value(out, result.transpose(np.argsort(numbers.out_spec)))

    def scan(self, inputs: list[Any], params: dict[str, Any]) -> list[Any]:
        body, length = params["jaxpr"], params["length"]
        held, carried = params["num_consts"], params["num_carry"]
        consts, carry, sequences = inputs[:held], inputs[held : held + carried], inputs[held + carried :]
        rows: list[Any] = [None] * length
        for t in reversed(range(length)) if params["reverse"] else range(length):
            now = [Value(x.buffer, np.asarray(x.index[t])) if isinstance(x, Value) else x[t] for x in sequences]
            out = self.run(body.jaxpr, body.consts, [*consts, *carry, *now])
            carry, rows[t] = out[:carried], out[carried:]
        return [*carry, *map(self.stack, zip(*rows, strict=True))]

    def stack(self, values: Sequence[Any]) -> Any:
        for x in values:
            if isinstance(x, Unknown):
                return x
        if not any(isinstance(x, Value) for x in values):
            return jnp.stack(values)
        buffer, indices = self.join(list(values))
        return Value(buffer, np.stack(indices))


def lower(function: Callable[..., Any], *examples: Any) -> Program:
    """The program of a function of arrays like `examples` that returns an array or a sequence of arrays.

    Raises NotImplementedError for a primitive that has no lowering and that an output depends on.
    """
    closed, lowering = jax.make_jaxpr(function)(*examples), _Lowering()
    sizes = [(np.dtype(v.aval.dtype), v.aval.shape) for v in closed.jaxpr.invars]
    inputs = [Value(Buffer(d, math.prod(s)), np.arange(math.prod(s)).reshape(s)) for d, s in sizes]
    outputs = lowering.run(closed.jaxpr, closed.consts, inputs)
    for x in outputs:
        if isinstance(x, Unknown):
            raise NotImplementedError(
                f"export: the function uses the primitive {x.primitive!r} in a way that has no counterpart in C and "
                "ONNX here. Write it with other operations, or export to StableHLO."
            )
    outputs, instructions = [lowering.value(x) for x in outputs], []
    needed = {v.buffer for v in outputs}
    for instruction in reversed(lowering.instructions):
        if instruction.out in needed:
            needed |= {v.buffer for v in instruction.operands}
            instructions.append(instruction)
    return Program(inputs, outputs, instructions[::-1])


# ---- C

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
        return _ELEMENTWISE[instruction.operation][0].count(f"{{{instruction.operands.index(value)}}}")

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
        template = _ELEMENTWISE[instruction.operation][0]
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
        T, template = _c_type(dtype), _REDUCTIONS[operation][0]

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
    function: Callable[..., Any], *examples: Any, name: str = "policy", outputs: Sequence[str] = ("action",)
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

    Raises ValueError for a name that C does not allow, NotImplementedError for an unsupported primitive or dtype.
    """
    signature = _signature(function, examples, outputs)
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
    return _header(c, signature, arguments, len(examples), kinds, sizes)


def _header(
    c: _C, signature: _Signature, arguments: list[str], count: int, kinds: dict[str, np.dtype], sizes: Counter[str]
) -> str:
    """The whole text around the body."""
    name, guard = c.name, f"{c.name.upper()}_H"
    generator = np.random.default_rng(0)
    states = [a for a in arguments[:count] if f"next_{a}" in arguments[count:]]

    def draw(leaf: Leaf, example: Array) -> np.ndarray:
        if leaf.argument in states or leaf.dtype.kind not in "fb":
            return np.asarray(example)
        numbers = generator.standard_normal(leaf.shape) if leaf.dtype.kind == "f" else np.ones(leaf.shape)
        return numbers.astype(leaf.dtype)

    sample = {leaf.name: draw(leaf, x) for leaf, x in zip(signature.inputs, signature.examples, strict=True)}
    call, names = jax.jit(signature.call), [leaf.name for leaf in signature.outputs]
    for _ in range(2 if states else 1):  # the second step of an episode remembers the first
        given = list(sample.values())
        with jax.default_matmul_precision("highest"):  # a GPU's default is less than float32
            results = dict(zip(names, call(*given), strict=True))
        sample = {k: np.asarray(results.get(f"next_{k}", x)) for k, x in sample.items()}

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
        *(array(f"check_{a}", flat(a, signature.outputs, results.values())) for a in arguments[count:]),
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


# ---- ONNX


def _onnx() -> Any:
    """The package's `helper`."""
    try:
        from onnx import helper
    except ImportError as error:
        raise ImportError("export: ONNX needs a package that is not installed: pip install 'jaxrl[onnx]'.") from error
    return helper


class _Onnx:
    """The graph of a program. A leading batch axis, of any size, is added to all that is not constant."""

    def __init__(self, program: Program, inputs: list[Leaf], outputs: list[Leaf]) -> None:
        helper = _onnx()
        self.helper, self.nodes, self.initializers = helper, [], []
        self.constants: dict[Any, str] = {}
        self.tensors: dict[Buffer, tuple[str, tuple[int, ...]]] = {}  # the name, and the shape behind the batch axis
        for leaf, value in zip(inputs, program.inputs, strict=True):
            self.tensors[value.buffer] = leaf.name, leaf.shape
        for instruction in program.instructions:
            self.tensors[instruction.out] = getattr(self, type(instruction).__name__.lower())(instruction)
        for leaf, value in zip(outputs, program.outputs, strict=True):
            tensor = self.tensor(value, value.shape)
            if value.buffer.data is not None:
                batch = self.node("Shape", inputs[0].name, start=0, end=1)
                sizes = self.node("Concat", batch, self.constant(np.array(leaf.shape, np.int64)), axis=0)
                tensor = self.node("Expand", tensor, sizes)
            self.nodes.append(helper.make_node("Identity", [tensor], [leaf.name]))

    def constant(self, data: Any) -> str:
        data = np.asarray(data)
        key = data.dtype, data.shape, data.tobytes()
        if key not in self.constants:
            from onnx import numpy_helper

            self.constants[key] = f"constant_{len(self.constants)}"
            self.initializers.append(numpy_helper.from_array(data, self.constants[key]))
        return self.constants[key]

    def node(self, operator: str, *operands: str, **attributes: Any) -> str:
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, list(operands), [name], **attributes))
        return name

    def reshape(self, tensor: str, shape: tuple[int, ...]) -> str:
        return self.node("Reshape", tensor, self.constant(np.array((-1, *shape), np.int64)))

    def tensor(self, value: Value, shape: tuple[int, ...]) -> str:
        """The name of a tensor (batch, *shape), or of a constant (*shape), with the value's numbers."""
        if value.buffer.data is not None:
            return self.constant(value.buffer.data[value.index].reshape(shape))
        name, now = self.tensors[value.buffer]
        if not value.whole:
            name, now = self.reshape(name, (value.buffer.size,)), (value.index.size,)
            name = self.node("Gather", name, self.constant(value.index.ravel().astype(np.int64)), axis=1)
        return name if now == shape else self.reshape(name, shape)

    def elementwise(self, instruction: Elementwise) -> tuple[str, tuple[int, ...]]:
        shape, operation = instruction.operands[0].shape, instruction.operation
        operands = []
        for value in instruction.operands:
            numbers = np.unique(np.zeros(0) if value.buffer.data is None else value.buffer.data[value.index])
            operands.append(self.constant(numbers[0]) if len(numbers) == 1 else self.tensor(value, shape))
        dtype = instruction.operands[-1].buffer.dtype

        def node(operator: str, *inputs: Any, **attributes: Any) -> str:
            names = [self.constant(np.asarray(x, dtype)) if isinstance(x, int) else x for x in inputs]
            return self.node(operator, *names, **attributes)

        if operation == "convert_element_type":
            return self.cast(operands[0], instruction.out.dtype), shape
        make = _ELEMENTWISE[operation][1]
        if make is None:
            raise NotImplementedError(f"export: ONNX has no operator for the primitive {operation!r}.")
        return node(make, *operands) if isinstance(make, str) else make(node, *operands), shape

    def cast(self, tensor: str, dtype: np.dtype) -> str:
        return self.node("Cast", tensor, to=self.helper.np_dtype_to_tensor_dtype(dtype))

    def product(self, instruction: Product) -> tuple[str, tuple[int, ...]]:
        a, b = instruction.operands
        (batch, m, k), n = a.shape, b.shape[1]
        if b.buffer.data is not None and batch == 1:  # a layer: (m, k) or (k) times a matrix
            rows = () if m == 1 else (m,)
            weights = Value(b.buffer, b.index[0].T)
            return self.node("MatMul", self.tensor(a, (*rows, k)), self.tensor(weights, (k, n))), (*rows, n)
        right = Value(b.buffer, b.index.swapaxes(1, 2))
        return self.node("MatMul", self.tensor(a, (batch, m, k)), self.tensor(right, (batch, k, n))), (batch, m, n)

    def reduce(self, instruction: Reduce) -> tuple[str, tuple[int, ...]]:
        (value,) = instruction.operands
        tensor, operator = self.tensor(value, value.shape), _REDUCTIONS[instruction.operation][1]
        if operator.startswith("Arg"):
            tensor = self.node(operator, tensor, axis=2, keepdims=0)
        else:
            tensor = self.cast(tensor, np.dtype(np.int32)) if value.buffer.dtype == bool else tensor
            tensor = self.node(operator, tensor, self.constant(np.array([2], np.int64)), keepdims=0)
        return self.cast(tensor, instruction.out.dtype), (value.shape[0],)

    def join(self, instruction: Join) -> tuple[str, tuple[int, ...]]:
        batch, parts = None, []
        for value in instruction.operands:
            tensor = self.tensor(value, (value.index.size,))
            if value.buffer.data is not None:
                other = next(v for v in instruction.operands if v.buffer.data is None)
                batch = batch or self.node("Shape", self.tensors[other.buffer][0], start=0, end=1)
                size = self.constant(np.array([value.index.size], np.int64))
                tensor = self.node("Expand", tensor, self.node("Concat", batch, size, axis=0))
            parts.append(tensor)
        return self.node("Concat", *parts, axis=1), (instruction.out.size,)


def to_onnx(function: Callable[..., Any], *examples: Any, outputs: Sequence[str] = ("action",)) -> bytes:
    """A serialised ONNX model (opset 18) of the function on batches: every array gains a leading axis `batch`.

    Inputs and outputs are called as the function's parameters and `outputs`; the arrays in a pytree `carry.hidden` and
    so on. Arguments as of `to_c`.

    Raises NotImplementedError for an unsupported primitive, ImportError without the package `onnx`.
    """
    helper = _onnx()
    from onnx import checker

    signature = _signature(function, examples, outputs)
    program = lower(signature.call, *signature.examples)
    graph = _Onnx(program, signature.inputs, signature.outputs)

    def infos(leaves: list[Leaf]) -> list[Any]:
        return [
            helper.make_tensor_value_info(x.name, helper.np_dtype_to_tensor_dtype(x.dtype), ("batch", *x.shape))
            for x in leaves
        ]

    inputs, results = infos(signature.inputs), infos(signature.outputs)
    model = helper.make_model(
        helper.make_graph(graph.nodes, "policy", inputs, results, graph.initializers),
        producer_name="jaxrl",
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=8,
    )
    checker.check_model(model)
    return model.SerializeToString()


# ---- StableHLO


def to_stablehlo(
    function: Callable[..., Any],
    *examples: Any,
    outputs: Sequence[str] = ("action",),
    platforms: Sequence[str] = ("cpu", "cuda", "tpu"),
) -> bytes:
    """The function on batches of any size as StableHLO, with the compatibility that `jax.export` guarantees.

    `load_stablehlo` makes a function of it again, without the code of the network. Arguments as of `to_c`; every
    primitive is supported. Raises ImportError without the package `flatbuffers`.
    """
    signature = _signature(function, examples, outputs)

    def call(inputs: dict[str, Any]) -> dict[str, Any]:
        results = jax.vmap(signature.call)(*(inputs[leaf.name] for leaf in signature.inputs))
        return {leaf.name: x for leaf, x in zip(signature.outputs, results, strict=True)}

    (batch,) = jax.export.symbolic_shape("batch")
    shapes = {leaf.name: jax.ShapeDtypeStruct((batch, *leaf.shape), leaf.dtype) for leaf in signature.inputs}
    return bytes(jax.export.export(jax.jit(call), platforms=platforms)(shapes).serialize())


def load_stablehlo(data: bytes) -> Callable[[dict[str, Any]], dict[str, Array]]:
    """What `to_stablehlo` wrote, as a compiled function from named batches to named batches, as an ONNX session's."""
    return jax.jit(jax.export.deserialize(bytearray(data)).call)
