"""DMA_IN and DMA_OUT: copy inner blocks between DDR and SRAM; both sides have the same dims."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from npuabi.enums import Opcode, Precision, Space, Unit
from npuabi.errors import ErrorCode
from npuabi.records import TensorDescriptor
from npufw.kernels.base import Arrays, Fault, Kernel, Rule, Step, dims_text
from npufw.memory import geometry_of

__all__ = ["DMA_IN", "DMA_OUT"]

_GRAIN = 16
"""A DMA starts at a multiple of this many bytes."""

_SAME = ("dims", "dtype", "layout", "lane")


def _same_elements(step: Step) -> Fault:
    source, destination = step.input, step.output
    for name in _SAME:
        one, other = getattr(source, name), getattr(destination, name)
        if one != other:
            if name == "dims":
                one, other = dims_text(source), dims_text(destination)
            return ErrorCode.BAD_DIMS, f"source and destination differ in {name}: {one} and {other}"
    return None


def _starts(tensor: TensorDescriptor) -> bool:
    # A run of contiguous blocks is one transfer, so only the strides between runs are starts.
    length = geometry_of(tensor).inner_bytes
    counts = geometry_of(tensor).counts
    pairs = sorted((s, n) for n, s in zip(counts, tensor.strides, strict=True) if n > 1)
    for stride, count in pairs:
        if stride == length:
            length *= count
        elif stride % _GRAIN:
            return False
    return tensor.base % _GRAIN == 0


def _aligned(step: Step) -> Fault:
    for word, tensor in (("source", step.input), ("destination", step.output)):
        if tensor.base % _GRAIN:
            text = f"the {word} starts at 0x{tensor.base:x}, no multiple of {_GRAIN}"
            return ErrorCode.MISALIGNED, text
        if tensor.space is not Space.SRAM and not _starts(tensor):
            text = f"rows of the {word} start at no multiple of {_GRAIN}: strides {tensor.strides}"
            return ErrorCode.MISALIGNED, text
    return None


def _between(sources: frozenset[Space], destination: Space) -> Rule:
    def rule(step: Step) -> Fault:
        if step.input.space in sources and step.output.space is destination:
            return None
        words = f"{step.input.space.name.lower()} to {step.output.space.name.lower()}"
        return ErrorCode.BAD_OPERANDS, f"moves {words}, which is not its direction"

    return rule


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    return arrays.input.copy()


def _dma(opcode: Opcode, unit: Unit, sources: frozenset[Space], destination: Space) -> Kernel:
    return Kernel(
        opcode=opcode,
        unit=unit,
        required=frozenset({"input", "output"}),
        run=_run,
        rules=(_between(sources, destination), _same_elements, _aligned),
        precisions=frozenset(Precision),
        raw=True,
    )


DMA_IN = _dma(Opcode.DMA_IN, Unit.DMA_IN, frozenset({Space.ARENA, Space.CONSTANTS}), Space.SRAM)
DMA_OUT = _dma(Opcode.DMA_OUT, Unit.DMA_OUT, frozenset({Space.SRAM}), Space.ARENA)
