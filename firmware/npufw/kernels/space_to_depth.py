"""SPACE_TO_DEPTH: the pixels of a block become channels; kernel is the block's rows, columns.

With block (p, q) and C input channels, out[n, (i * q + j) * C + c, h, w] = in[n, c, h * p + i,
w * q + j].
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from npuabi.enums import DType, Opcode, Precision, Unit
from npufw.kernels.base import Arrays, Fault, Kernel, Step, operand_is
from npufw.kernels.depth_to_space import block_fits
from npufw.kernels.layout import load
from npufw.kernels.vector import ACTIVATIONS, one_dtype

__all__ = ["SPACE_TO_DEPTH"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    values = load(arrays.input, step.input)
    (p, q), (n, _, h, w) = step.toa.kernel, step.output.dims
    blocks = values.reshape(n, step.input.dims[1], h, p, w, q)
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(step.output.dims).copy(order="C")


def _block(step: Step) -> Fault:
    return block_fits(step.output, step.input, step.toa.kernel)


SPACE_TO_DEPTH = Kernel(
    opcode=Opcode.SPACE_TO_DEPTH,
    unit=Unit.VECTOR,
    required=frozenset({"input", "output"}),
    run=_run,
    rules=(
        operand_is("input", frozenset(DType), ACTIVATIONS),
        operand_is("output", frozenset(DType), ACTIVATIONS),
        one_dtype,
        _block,
    ),
    precisions=frozenset(Precision),
)
