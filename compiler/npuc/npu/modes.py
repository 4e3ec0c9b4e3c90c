"""How a MAC array walks a stripe: the cheaper of output- and weight-stationary."""

from __future__ import annotations

from npuabi.costs import (
    STREAM_WORDS_PER_CYCLE,
    ConvShape,
    conv_cost,
    matmul_cost,
    matmul_shape,
)
from npuabi.enums import Layout, Mode
from npuabi.geometry import LANES
from npuabi.precision import register_of
from npuabi.target import Target
from npuc.npu.tasks import Conv, Depthwise, MatMul, Task

__all__ = ["choose_mode"]


def choose_mode(task: Task, target: Target, *, best: bool) -> str:
    """Return the mode's name for one stripe; output-stationary unless *best* is asked for."""
    if isinstance(task, Depthwise):
        return Mode.DEPTHWISE.name.lower()
    if not isinstance(task, Conv | MatMul):
        return Mode.NONE.name.lower()
    modes = (Mode.OUTPUT_STATIONARY, Mode.WEIGHT_STATIONARY)
    chosen = min(modes, key=lambda m: _cycles(m, task, target)) if best else modes[0]
    return chosen.name.lower()


def _cycles(mode: Mode, task: Conv | MatMul, target: Target) -> int:
    cycles, *words = (
        _conv(mode, task, target) if isinstance(task, Conv) else _matmul(mode, task, target)
    )
    return max(cycles, -(-max(words) // STREAM_WORDS_PER_CYCLE))


def _conv(mode: Mode, task: Conv, target: Target) -> tuple[int, int, int]:
    n, outputs, h, w = task.output.tensor.dims
    source = task.inputs[0].tensor
    depth = source.dims[1]
    if source.layout is Layout.NCHW16C:
        depth = -(-depth // LANES) * LANES
    kh, kw = task.attributes["kernel"]
    weights = task.named("weights")
    shape = ConvShape(
        pixels=n * h * w,
        terms=kh * kw * depth,
        outputs=outputs,
        input_bytes=source.dtype.size,
        weight_bytes=1 if weights is None else weights.tensor.dtype.size,
        precision=register_of(task.UNIT, [source.dtype, None, None, None, None]),
        wide=task.attributes["wide"],
    )
    return conv_cost(mode, shape, target)


def _matmul(mode: Mode, task: MatMul, target: Target) -> tuple[int, int, int]:
    source, output, _, second = (value.tensor for value in task.inputs)
    batches, rows, terms, columns = matmul_shape(source.dims, second.dims, output.dims)
    size = source.dtype.size
    shape = ConvShape(
        pixels=rows,
        terms=terms,
        outputs=columns,
        input_bytes=size,
        weight_bytes=size,
        precision=register_of(task.UNIT, [source.dtype, None, None, None, None]),
        wide=task.attributes["wide"],
    )
    return matmul_cost(mode, batches, shape, target)
