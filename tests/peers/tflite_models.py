"""Writes int8 TFLite models of one op (or a few), and runs LiteRT's reference kernels on them.

Tensors are NHWC, as the format has them; the tests turn them. Every operator code fills the
deprecated field too, so that old readers accept the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from npuc.ir.core import Array
from npuc.ir.types import Quant

_REASON = "the peers extra is not installed"
flatbuffers = pytest.importorskip("flatbuffers", reason=_REASON)
schema = pytest.importorskip("ai_edge_litert.schema_py_generated", reason=_REASON)
interpreters = pytest.importorskip("ai_edge_litert.interpreter", reason=_REASON)

__all__ = ["ACTIVATIONS", "Node", "Tensor", "options", "run", "schema", "write"]

ACTIVATIONS: dict[str, tuple[int, tuple[float, float] | None]] = {
    "none": (schema.ActivationFunctionType.NONE, None),
    "relu": (schema.ActivationFunctionType.RELU, (0.0, float("inf"))),
    "relu6": (schema.ActivationFunctionType.RELU6, (0.0, 6.0)),
}
"""Fused activations: TFLite's enum value and our clamp."""

_TYPES = {
    np.dtype(np.float32): schema.TensorType.FLOAT32,
    np.dtype(np.int8): schema.TensorType.INT8,
    np.dtype(np.uint8): schema.TensorType.UINT8,
    np.dtype(np.int16): schema.TensorType.INT16,
    np.dtype(np.int32): schema.TensorType.INT32,
    np.dtype(np.int64): schema.TensorType.INT64,
}


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor of the model; *data* makes it a constant. ``quant.axis`` counts TFLite's dims."""

    shape: Sequence[int]
    dtype: type[np.generic] = np.int8
    quant: Quant | None = None
    data: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Node:
    """One operator: its code, its options table, and the indices of its tensors."""

    code: int
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: Any = None


def options(kind: str, **fields: Any) -> Any:
    """Return the options table *kind* (``Conv2DOptions``) with *fields* in the schema's names."""
    table = getattr(schema, kind + "T")()
    for name, value in fields.items():
        if not hasattr(table, name):
            raise AttributeError(f"{kind} has no field {name}")
        setattr(table, name, value)
    return table


def write(
    tensors: Sequence[Tensor], nodes: Sequence[Node], inputs: Sequence[int], outputs: Sequence[int]
) -> bytes:
    """Return the model's bytes."""
    model = schema.ModelT()
    model.version = 3
    codes = sorted({node.code for node in nodes})
    model.operatorCodes = [_code(code) for code in codes]
    model.buffers = [schema.BufferT(), *(_buffer(tensor) for tensor in tensors)]
    graph = schema.SubGraphT()
    graph.tensors = [_tensor(tensor, index) for index, tensor in enumerate(tensors)]
    graph.inputs, graph.outputs = list(inputs), list(outputs)
    graph.operators = [_operator(node, codes) for node in nodes]
    model.subgraphs = [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def run(model: bytes, inputs: Sequence[Array]) -> list[Array]:
    """Return the outputs of LiteRT's reference kernels; ValueError or RuntimeError on refusal."""
    reference = interpreters.OpResolverType.BUILTIN_REF
    interpreter = interpreters.Interpreter(
        model_content=model, experimental_op_resolver_type=reference
    )
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def _code(code: int) -> Any:
    made = schema.OperatorCodeT()
    made.builtinCode, made.deprecatedBuiltinCode, made.version = code, min(code, 127), 1
    return made


def _buffer(tensor: Tensor) -> Any:
    made = schema.BufferT()
    if tensor.data is not None:
        dense = np.ascontiguousarray(tensor.data, tensor.dtype)
        made.data = np.frombuffer(dense.tobytes(), np.uint8)
    return made


def _tensor(tensor: Tensor, index: int) -> Any:
    made = schema.TensorT()
    made.name, made.shape = f"t{index}", list(tensor.shape)
    made.type, made.buffer = _TYPES[np.dtype(tensor.dtype)], index + 1
    if tensor.quant is not None:
        made.quantization = schema.QuantizationParametersT()
        made.quantization.scale = list(tensor.quant.scales)
        made.quantization.zeroPoint = list(tensor.quant.zero_points)
        made.quantization.quantizedDimension = tensor.quant.axis or 0
    return made


def _operator(node: Node, codes: Sequence[int]) -> Any:
    made = schema.OperatorT()
    made.opcodeIndex = codes.index(node.code)
    made.inputs, made.outputs = list(node.inputs), list(node.outputs)
    if node.options is not None:
        kind = type(node.options).__name__.removesuffix("T")
        made.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
        made.builtinOptions = node.options
    return made
