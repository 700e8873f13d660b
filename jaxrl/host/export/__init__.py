"""Trained policies outside JAX: a C header without dependencies, ONNX, and StableHLO that `jax.export` reads back.

`greedy(algo, policy)` is a policy's greedy action as a function of arrays and `export` writes it to a file
(`deployed`); `to_c` (`c`), `to_onnx` (`onnx`) and `to_stablehlo` (`stablehlo`) take it, or any other function, whose
arguments and results are named by `signature`. For C and ONNX a function is lowered once (`lowering`) to a program of
four kinds of instruction (`program`); what its operations are called in either is one table (`operations`).
"""

from jaxrl.host.export.c import to_c
from jaxrl.host.export.deployed import FORMATS, Deployed, export, greedy
from jaxrl.host.export.lowering import Unknown, lower
from jaxrl.host.export.onnx import to_onnx
from jaxrl.host.export.program import Buffer, Elementwise, Join, Product, Program, Reduce, Value
from jaxrl.host.export.signature import Leaf
from jaxrl.host.export.stablehlo import load_stablehlo, to_stablehlo

__all__ = [
    "FORMATS",
    "Buffer",
    "Deployed",
    "Elementwise",
    "Join",
    "Leaf",
    "Product",
    "Program",
    "Reduce",
    "Unknown",
    "Value",
    "export",
    "greedy",
    "load_stablehlo",
    "lower",
    "to_c",
    "to_onnx",
    "to_stablehlo",
]
