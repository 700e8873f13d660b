"""A function as StableHLO, which `jax.export` reads back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import Array

from jaxrl.host.export.signature import signature_of


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
    signature = signature_of(function, examples, outputs)

    def call(inputs: dict[str, Any]) -> dict[str, Any]:
        results = jax.vmap(signature.call)(*(inputs[leaf.name] for leaf in signature.inputs))
        return {leaf.name: x for leaf, x in zip(signature.outputs, results, strict=True)}

    (batch,) = jax.export.symbolic_shape("batch")
    shapes = {leaf.name: jax.ShapeDtypeStruct((batch, *leaf.shape), leaf.dtype) for leaf in signature.inputs}
    return bytes(jax.export.export(jax.jit(call), platforms=platforms)(shapes).serialize())


def load_stablehlo(data: bytes) -> Callable[[dict[str, Any]], dict[str, Array]]:
    """What `to_stablehlo` wrote, as a compiled function from named batches to named batches, as an ONNX session's."""
    return jax.jit(jax.export.deserialize(bytearray(data)).call)
