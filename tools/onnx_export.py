"""Write a float graph as ONNX, so that peers can run the very same network.

Invariant: an op becomes one ONNX node with the same attributes; an attribute that ONNX passes as an
operand becomes a constant. Needs the package ``onnx`` (extra ``peers``), imported when called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npuc.ir.const import Const
from npuc.ir.core import Graph, Op, Value

__all__ = ["to_onnx"]

OPSET = 21  # that of our ops' attributes; onnx and onnxruntime both have it
IR_VERSION = 10

NODES = {
    "add": "Add",
    "avg_pool2d": "AveragePool",
    "batch_norm": "BatchNormalization",
    "clip": "Clip",
    "concat": "Concat",
    "conv2d": "Conv",
    "conv_transpose2d": "ConvTranspose",
    "dense": "Gemm",
    "depth_to_space": "DepthToSpace",
    "expand": "Expand",
    "flatten": "Flatten",
    "gather": "Gather",
    "gelu": "Gelu",
    "global_avg_pool": "GlobalAveragePool",
    "identity": "Identity",
    "layer_norm": "LayerNormalization",
    "matmul": "MatMul",
    "max_pool2d": "MaxPool",
    "pad": "Pad",
    "relu": "Relu",
    "relu6": "Clip",
    "reshape": "Reshape",
    "resize": "Resize",
    "slice": "Slice",
    "softmax": "Softmax",
    "space_to_depth": "SpaceToDepth",
    "split": "Split",
    "squeeze": "Squeeze",
    "tile": "Tile",
    "transpose": "Transpose",
    "unsqueeze": "Unsqueeze",
}
AS_OPERANDS: dict[str, tuple[tuple[str, type[np.generic]], ...]] = {
    "clip": (("min", np.float32), ("max", np.float32)),
    "expand": (("shape", np.int64),),
    "gather": (("indices", np.int64),),
    "pad": (("pads", np.int64), ("constant_value", np.float32), ("axes", np.int64)),
    "relu6": (("min", np.float32), ("max", np.float32)),
    "reshape": (("shape", np.int64),),
    "resize": (("roi", np.float32), ("scales", np.float32), ("sizes", np.int64)),
    "slice": (("starts", np.int64), ("ends", np.int64), ("axes", np.int64), ("steps", np.int64)),
    "split": (("split", np.int64),),
    "squeeze": (("axes", np.int64),),
    "tile": (("repeats", np.int64),),
    "unsqueeze": (("axes", np.int64),),
}
"""Attributes of ours that ONNX takes as operands, in order, after the tensors."""

EXTRA: dict[str, Mapping[str, float]] = {"dense": {"transB": 1}, "relu6": {"min": 0.0, "max": 6.0}}
"""Attributes that the ONNX op needs and ours does not have."""

OURS = {"resize": ("litert_scale",), "gather": ("indices_shape",)}
"""Attributes that change integer arithmetic only, or the shape of another."""


def to_onnx(graph: Graph) -> Any:
    """Return *graph*, as it was parsed, as an ``onnx.ModelProto``.

    Raises ValueError, with the op's name, for one that has no float ONNX op of the same meaning.
    """
    from onnx import helper

    exporter = _Exporter()
    for op in graph.ops:
        exporter.add(op)
    inputs = [_info(value) for value in graph.arguments]
    outputs = [_info(value) for value in graph.outputs]
    body = helper.make_graph(exporter.nodes, graph.name, inputs, outputs, exporter.constants)
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(body, opset_imports=[opset], ir_version=IR_VERSION)


class _Exporter:
    """The nodes and constants of one model, in order."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, op: Op) -> None:
        """Add *op* as a constant or as a node."""
        from onnx import helper

        if isinstance(op, Const):
            self._constant(op.result.name, op.value())
            return
        if op.NAME not in NODES:
            raise ValueError(f"{op.NAME} has no float ONNX op: export the graph as it was parsed")
        if op.NAME == "dense" and op.inputs[0].tensor.rank != 2:
            self._dense_rows(op)
            return
        moved = AS_OPERANDS.get(op.NAME, ())
        attributes = {**op.attributes, **EXTRA.get(op.NAME, {})}
        operands = ["" if v is None else v.name for v in op.operands]
        operands += [self._operand(op, name, attributes.get(name), dtype) for name, dtype in moved]
        while operands and not operands[-1]:
            operands.pop()
        left_out = {name for name, _ in moved} | set(OURS.get(op.NAME, ()))
        kept = {k: v for k, v in attributes.items() if v is not None and k not in left_out}
        results = [value.name for value in op.results]
        self.nodes.append(helper.make_node(NODES[op.NAME], operands, results, **kept))

    def _dense_rows(self, op: Op) -> None:
        """Add a dense layer on rows of rank 3, which Gemm does not take, as MatMul and Add."""
        from onnx import helper

        rows, weights, *bias = (value.name for value in op.inputs)
        name = op.result.name
        turned, product = f"{name}.weights", f"{name}.product" if bias else name
        self.nodes.append(helper.make_node("Transpose", [weights], [turned], perm=[1, 0]))
        self.nodes.append(helper.make_node("MatMul", [rows, turned], [product]))
        if bias:
            self.nodes.append(helper.make_node("Add", [product, *bias], [name]))

    def _operand(self, op: Op, name: str, value: Any, dtype: type[np.generic]) -> str:
        if value is None:
            return ""
        constant = f"{op.results[0].name}.{name}"
        array = np.asarray(value, dtype)
        shape = op.attributes.get(f"{name}_shape")
        self._constant(constant, array if shape is None else array.reshape(shape))
        return constant

    def _constant(self, name: str, array: Any) -> None:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.array(array), name))


def _info(value: Value) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(value.name, TensorProto.FLOAT, value.tensor.shape)
