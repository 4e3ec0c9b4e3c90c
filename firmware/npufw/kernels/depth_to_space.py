"""DEPTH_TO_SPACE: channels become the pixels of blocks; kernel is the block's rows, columns.

With block (p, q) and C output channels, out[n, c, h * p + i, w * q + j] = in[n, k, h, w], where
k = (i * q + j) * C + c for groups = 0 (ONNX's DCR) and k = (c * p + i) * q + j for 1 (CRD).
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from npuabi.enums import DType, Opcode, Precision, Unit
from npuabi.errors import ErrorCode
from npufw.kernels.base import Arrays, Fault, Kernel, Step, dims_text, operand_is
from npufw.kernels.layout import load
from npufw.kernels.vector import ACTIVATIONS, one_dtype

__all__ = ["DEPTH_TO_SPACE", "block_fits"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    values = load(arrays.input, step.input)
    (p, q), (n, c, _, _) = step.toa.kernel, step.output.dims
    h, w = step.input.dims[2:]
    if step.toa.groups == 0:
        turned = values.reshape(n, p, q, c, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        turned = values.reshape(n, c, p, q, h, w).transpose(0, 1, 4, 2, 5, 3)
    return turned.reshape(step.output.dims).copy(order="C")


def block_fits(deep: Any, wide: Any, block: tuple[int, ...]) -> Fault:
    """Return what is wrong unless *wide* is *deep* with its blocks unfolded."""
    p, q = block
    if min(block) < 1:
        return ErrorCode.BAD_WINDOW, f"kernel is the block's rows and columns, got {block}"
    n, c, h, w = wide.dims
    if deep.dims != (n, c * p * q, h // p, w // q) or h % p or w % q:
        text = f"{dims_text(deep)} and {dims_text(wide)} are no blocks of {p} x {q}"
        return ErrorCode.BAD_DIMS, text
    return None


def _block(step: Step) -> Fault:
    if step.toa.groups not in (0, 1):
        return ErrorCode.BAD_WINDOW, f"groups is 0 or 1, got {step.toa.groups}"
    return block_fits(step.input, step.output, step.toa.kernel)


DEPTH_TO_SPACE = Kernel(
    opcode=Opcode.DEPTH_TO_SPACE,
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
