"""The constants of a program as text: parameters as numbers, all else as bytes.

Invariant: where parameters lie is found from what DMA brings to SRAM; a head that would not come
back to the bit is written as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from npuabi.container import Program
from npuabi.enums import Opcode, Precision, Space
from npuabi.errors import AbiError
from npuabi.records import NO_TENSOR, FloatParams, OpParams, TensorDescriptor
from npuabi.wire import Record
from npufw.asm_form import HEADS, Facts
from npufw.asm_show import Names, clauses
from npufw.kernels.base import OPERANDS

__all__ = ["Parameters", "constant_lines", "parameter_head", "parameter_places"]

_DATA_BYTES = 32
_WORDS = 8
_OUTPUT = OPERANDS.index("output")
_PARAMETERS = OPERANDS.index("parameters")
_FLOATS = (Precision.FP16, Precision.FP32)


class Parameters(NamedTuple):
    """Where a parameters tensor ends in the constants, and whether its TOA computes on floats."""

    end: int
    real: bool


def constant_lines(program: Program, names: Names, facts: Facts) -> Iterator[str]:
    """Yield the constants, a block for each tensor."""
    titles: dict[int, list[str]] = {}
    for index, tensor in enumerate(program.tensors):
        if tensor.space is Space.CONSTANTS and tensor.base < len(program.constants):
            title = f"{names.label('tensors', index)}, {tensor.extent} bytes"
            titles.setdefault(tensor.base, []).append(title)
    numbers = parameter_places(program)
    ends = (place.end for place in numbers.values())
    edges = sorted({0, len(program.constants), *titles, *numbers, *ends})
    for start, end in pairwise(edges):
        for title in titles.get(start, ()):
            yield f"// {start:#x}: {title}"
        raw = program.constants[start:end]
        head = parameter_head(raw, numbers[start]) if start in numbers else None
        if head is None or len(raw) % 4:
            yield from _data(raw)
        else:
            yield from _numbers(head, raw[head.SIZE :], names, facts)


def parameter_places(program: Program) -> dict[int, Parameters]:
    """Return the parameters in the constants, by their first byte, as DMA brings them to SRAM."""
    loaded: dict[int, TensorDescriptor] = {}
    found: dict[int, Parameters] = {}
    for index in program.ring:
        toa = program.toas[index]
        tensors = [None if i == NO_TENSOR else program.tensors[i] for i in toa.tensors]
        output, parameters = tensors[_OUTPUT], tensors[_PARAMETERS]
        if toa.opcode is Opcode.DMA_IN and tensors[0] is not None and output is not None:
            loaded[output.base] = tensors[0]
        source = loaded.get(parameters.base) if parameters is not None else None
        if parameters is None or source is None or source.space is not Space.CONSTANTS:
            continue
        end = source.base + min(parameters.extent, source.extent)
        known = found.get(source.base, Parameters(0, False))
        if known.end < end <= len(program.constants):
            found[source.base] = Parameters(end, toa.precision in _FLOATS)
    return found


def parameter_head(raw: bytes, place: Parameters) -> Record | None:
    """Return the head of the parameters *raw*, or None where the bytes are no head."""
    kinds = (FloatParams, OpParams) if place.real else (OpParams,)
    for kind in kinds:
        try:
            head = kind.decode(raw[: kind.SIZE])
        except AbiError:
            continue
        if head.encode() == raw[: kind.SIZE]:
            return head
    return None


def _numbers(head: Record, rest: bytes, names: Names, facts: Facts) -> Iterator[str]:
    keyword = next(word for word, kind in HEADS.items() if isinstance(head, kind))
    words = list(clauses(head, names, facts)) or [f"{next(iter(head.FIELDS))} 0"]
    yield f"{keyword}: {', '.join(words)}"
    reals = np.frombuffer(rest, "<f4")
    floats = isinstance(head, FloatParams) and not np.isnan(reals).any()
    values = [str(v) for v in (reals if floats else np.frombuffer(rest, "<i4").tolist())]
    for start in range(0, len(values), _WORDS):
        line = ", ".join(values[start : start + _WORDS])
        yield f"{'floats' if floats else 'words'}: {line}"


def _data(raw: bytes) -> Iterator[str]:
    for start in range(0, len(raw), _DATA_BYTES):
        yield f"data: {raw[start : start + _DATA_BYTES].hex()}"
