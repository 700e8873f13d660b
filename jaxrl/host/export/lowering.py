"""From a function to its program.

The function's jaxpr, in which the weights are constants, is lowered once. All that only moves numbers about (reshape,
slice, broadcast, transpose, padding, convolution patches) becomes an array of positions in a buffer, found by applying
the primitive to the positions themselves. So whatever network can be written with the primitives of `ELEMENTWISE`,
`REDUCTIONS` and `_LAYOUT`, products and scans can be exported; another primitive raises NotImplementedError with
its name, if the outputs depend on it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.host.export.operations import ELEMENTWISE, REDUCTIONS
from jaxrl.host.export.program import Buffer, Elementwise, Join, Product, Program, Reduce, Value


@dataclasses.dataclass(frozen=True)
class Unknown:
    """What a primitive that has no lowering would give: an error only if an output needs it."""

    primitive: str


_FLOATS_ONLY = {"abs", "rem", "round"}
_BOOLS_ONLY = {"and", "not", "or", "xor"}

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
        if name in REDUCTIONS:
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
        if name not in ELEMENTWISE or (name in _FLOATS_ONLY and kind != "f") or (name in _BOOLS_ONLY and kind != "b"):
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
        if "ft_in" in params:  # jax 0.12: what goes in is told as trees
            held, carried, _ = (len(tree.vals) for tree in params["ft_in"].unpack())
        else:
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
