"""A program as an ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxrl import extras
from jaxrl.host.export.lowering import lower
from jaxrl.host.export.operations import ELEMENTWISE, REDUCTIONS
from jaxrl.host.export.program import Buffer, Elementwise, Join, Product, Program, Reduce, Value
from jaxrl.host.export.signature import Leaf, signature_of


def _onnx() -> Any:
    """The package's `helper`."""
    try:
        from onnx import helper
    except ImportError as error:
        raise ImportError(f"export: ONNX needs a package that is not installed: {extras.install('onnx')}") from error
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
        make = ELEMENTWISE[operation][1]
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
        tensor, operator = self.tensor(value, value.shape), REDUCTIONS[instruction.operation][1]
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

    signature = signature_of(function, examples, outputs)
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
