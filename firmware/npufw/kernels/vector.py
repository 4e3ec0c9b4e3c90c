"""What the vector unit's kernels share: operand tables, the rules of parameters and dims."""

from __future__ import annotations

from npuabi.enums import DType, Layout, Precision
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import MOST_TERMS
from npufw.kernels.base import Fault, Step, dims_text
from npufw.kernels.params import HEAD_WORDS

__all__ = [
    "ACTIVATIONS",
    "BRICKS",
    "CODES",
    "EVERY",
    "F32",
    "FLOATS",
    "I8",
    "I32",
    "NUMBERS",
    "PLAIN",
    "axis_fits",
    "broadcasts",
    "head_only",
    "one_dtype",
    "one_kind",
    "same_dims",
]

I8 = frozenset({DType.I8})
I32 = frozenset({DType.I32})
F32 = frozenset({DType.F32})
NUMBERS = frozenset({DType.I8, DType.I16, DType.F16, DType.F32})
CODES = frozenset({DType.I8, DType.I16})
FLOATS = frozenset({DType.F16, DType.F32})
EVERY = frozenset(Precision)
BRICKS = frozenset({Layout.NCHW16C})
PLAIN = frozenset({Layout.NCHW})
ACTIVATIONS = frozenset({Layout.NCHW, Layout.NHWC, Layout.NCHW16C})


def axis_fits(step: Step) -> Fault:
    """Rule: kernel[0] is a dim, which on codes has no more terms than a fixed-point sum holds."""
    axis = step.toa.kernel[0]
    if axis > 3:
        return ErrorCode.BAD_WINDOW, f"kernel[0] is the axis, 0 to 3, got {axis}"
    if step.input.dtype in CODES and step.input.dims[axis] > MOST_TERMS:
        text = f"axis {axis} of {dims_text(step.input)} has more than {MOST_TERMS} elements"
        return ErrorCode.BAD_DIMS, text
    return None


def head_only(step: Step) -> Fault:
    """Rule: the parameters are at least the 16 dense words of OpParams."""
    tensor = step.operand("parameters")
    fits = tensor.dims[:3] == (1, 1, 1) and tensor.dims[3] >= HEAD_WORDS
    if not fits or tensor.strides[3] != tensor.dtype.size:
        text = f"parameters are {dims_text(tensor)}, expected (1,1,1,{HEAD_WORDS}) without gaps"
        return ErrorCode.BAD_DIMS, text
    return None


def one_dtype(step: Step) -> Fault:
    """Rule: input, residual and output have one element type."""
    found = [t.dtype for t in (step.input, step.tensors[3], step.output) if t is not None]
    if len(set(found)) > 1:
        kinds = ", ".join(dtype.text for dtype in found)
        return ErrorCode.BAD_DTYPE, f"operands have one element type, got {kinds}"
    return None


def one_kind(step: Step) -> Fault:
    """Rule: input and output are both codes or both floats."""
    if (step.input.dtype in FLOATS) == (step.output.dtype in FLOATS):
        return None
    kinds = f"{step.input.dtype.text} and {step.output.dtype.text}"
    return ErrorCode.BAD_DTYPE, f"input and output are both codes or both floats, got {kinds}"


def same_dims(step: Step) -> Fault:
    """Rule: input and output have the same dims."""
    if step.input.dims == step.output.dims:
        return None
    text = f"input is {dims_text(step.input)}, the output {dims_text(step.output)}"
    return ErrorCode.BAD_DIMS, text


def broadcasts(step: Step) -> Fault:
    """Rule: the operands' dims are the output's, or 1 where another operand has the output's."""
    others = [t for t in (step.input, step.tensors[3]) if t is not None]
    for dims in zip(step.output.dims, *(t.dims for t in others), strict=True):
        if dims[0] not in dims[1:] or any(d not in (1, dims[0]) for d in dims[1:]):
            found = " and ".join(map(dims_text, others))
            text = f"{found} do not give {dims_text(step.output)}"
            return ErrorCode.BAD_DIMS, text
    return None
