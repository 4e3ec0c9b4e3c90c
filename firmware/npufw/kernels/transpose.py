"""TRANSPOSE: the same elements with dims in another order; pads[k] is the input's dim for dim k."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from npuabi.enums import DType, Opcode, Precision, Unit
from npuabi.errors import ErrorCode
from npufw.kernels.base import Arrays, Fault, Kernel, Step, dims_text, operand_is
from npufw.kernels.layout import load
from npufw.kernels.vector import ACTIVATIONS, one_dtype

__all__ = ["TRANSPOSE"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    # A copy: the output is written later, and may overlap the input.
    return load(arrays.input, step.input).transpose(step.toa.pads).copy(order="C")


def _permutation(step: Step) -> Fault:
    order = step.toa.pads
    if sorted(order) != [0, 1, 2, 3]:
        return ErrorCode.BAD_WINDOW, f"pads are dims 0 to 3 in some order, got {order}"
    turned = tuple(step.input.dims[dim] for dim in order)
    if turned != step.output.dims:
        sides = f"input {dims_text(step.input)}, output {dims_text(step.output)}"
        return ErrorCode.BAD_DIMS, f"{sides}: the input's dims in order {order} are {turned}"
    return None


TRANSPOSE = Kernel(
    opcode=Opcode.TRANSPOSE,
    unit=Unit.VECTOR,
    required=frozenset({"input", "output"}),
    run=_run,
    rules=(
        operand_is("input", frozenset(DType), ACTIVATIONS),
        operand_is("output", frozenset(DType), ACTIVATIONS),
        one_dtype,
        _permutation,
    ),
    precisions=frozenset(Precision),
)
