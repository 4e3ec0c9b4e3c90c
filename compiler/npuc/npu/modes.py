"""How a MAC array walks a stripe: the cheaper of output- and weight-stationary."""

from __future__ import annotations

from npuabi.costs import STREAM_WORDS_PER_CYCLE, ConvShape, conv_cost
from npuabi.enums import Layout, Mode
from npuabi.geometry import LANES
from npuabi.target import Target
from npuc.npu.tasks import Conv, Depthwise, Task

__all__ = ["choose_mode"]


def choose_mode(task: Task, target: Target, *, best: bool) -> str:
    """Return the mode's name for one stripe; output-stationary unless *best* is asked for."""
    if isinstance(task, Depthwise):
        return Mode.DEPTHWISE.name.lower()
    if not isinstance(task, Conv):
        return Mode.NONE.name.lower()
    modes = (Mode.OUTPUT_STATIONARY, Mode.WEIGHT_STATIONARY)
    chosen = min(modes, key=lambda m: _cycles(m, task, target)) if best else modes[0]
    return chosen.name.lower()


def _cycles(mode: Mode, task: Conv, target: Target) -> int:
    n, outputs, h, w = task.output.tensor.dims
    source = task.inputs[0].tensor
    depth = source.dims[1]
    if source.layout is Layout.NCHW16C:
        depth = -(-depth // LANES) * LANES
    kh, kw = task.attributes["kernel"]
    shape = ConvShape(
        pixels=n * h * w, terms=kh * kw * depth, outputs=outputs, wide=task.attributes["wide"]
    )
    cycles, *words = conv_cost(mode, shape, target)
    return max(cycles, -(-max(words) // STREAM_WORDS_PER_CYCLE))
