"""LOOKUP: a function of one code, from a table behind the OpParams head; kernel[0] is the form.

1, I8: 256 bytes, the entry of code q at q mod 256. 1, I16: 513 int16 entries in 257 words, for the
codes -32768 + 128 i; between them value = base + ((next - base) * (q mod 128) + 64 >> 7). 2 and 3,
I16: sigmoid and tanh from 256 uint16 multiples of 2^-16 in 128 words, sigmoid(i / 24), for the size
of the code scaled by the input multiplier; a straight line between them, symmetry below zero. The
forms for I16 are LiteRT's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Opcode, Precision, Unit
from npuabi.errors import ErrorCode
from npuabi.records import OpParams
from npufw.kernels.base import Arrays, Fault, Kernel, Step, dims_text, operand_is
from npufw.kernels.layout import load
from npufw.kernels.params import HEAD_WORDS, head
from npufw.kernels.vector import ACTIVATIONS, CODES, I32, PLAIN, head_only, one_dtype, same_dims

__all__ = ["LOOKUP"]

Ints = NDArray[np.int64]

_PLAIN, _SIGMOID, _TANH = 1, 2, 3
_TABLES = {
    (_PLAIN, DType.I8): (64, "<i1"),
    (_PLAIN, DType.I16): (257, "<i2"),
    (_SIGMOID, DType.I16): (128, "<u2"),
    (_TANH, DType.I16): (128, "<u2"),
}
"""Words and element type of the table, by form and dtype."""
_FULL = 255


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    form = step.toa.kernel[0]
    count, kind = _TABLES[form, step.input.dtype]
    words = arrays.parameters.reshape(-1)[HEAD_WORDS : HEAD_WORDS + count]
    table = np.frombuffer(words.astype("<i4").tobytes(), kind)
    codes = load(arrays.input, step.input)
    if step.input.dtype is DType.I8:
        return table[codes.astype(np.int8, copy=False).view(np.uint8)]
    if form == _PLAIN:
        return _between(table.astype(np.int64), codes.astype(np.int64))
    scaled = _scaled(codes.astype(np.int64), head(arrays.parameters, step.where))
    return (_sigmoid if form == _SIGMOID else _tanh)(table.astype(np.int64), scaled)


def _between(table: Ints, codes: Ints) -> NDArray[np.int16]:
    place, rest = (codes >> 7) + 256, codes & 127
    base = table[place]
    return np.asarray(base + (((table[place + 1] - base) * rest + 64) >> 7), np.int16)


def _scaled(codes: Ints, params: OpParams) -> Ints:
    right = max(0, -params.input_shift)
    return (codes * params.input_multiplier + ((1 << right) >> 1)) >> right


def _line(table: Ints, size: Ints, bits: int, full: int) -> Ints:
    place = size >> bits
    low = np.minimum(place, _FULL - 1)
    rest = size & ((1 << bits) - 1)
    return np.where(
        place >= _FULL, full, (table[low] << bits) + rest * (table[low + 1] - table[low])
    )


def _sigmoid(table: Ints, x: Ints) -> NDArray[np.int16]:
    value = _line(table, np.abs(x), 9, 0x7FFF << 10)
    both = np.where(x < 0, (1 << 25) - 1 - value, value) + (1 << 9)
    return np.asarray(both >> 10, np.int16)


def _tanh(table: Ints, x: Ints) -> NDArray[np.int16]:
    value = _line(table, np.abs(x), 8, 0xFFFF << 8) - (1 << 23)
    both = np.where(x < 0, -1 - value, value) + (1 << 7)
    return np.asarray(both >> 8, np.int16)


def _table_fits(step: Step) -> Fault:
    form, dtype = step.toa.kernel[0], step.input.dtype
    if (form, dtype) not in _TABLES:
        return (
            ErrorCode.BAD_WINDOW,
            f"kernel[0] is the form, there is no form {form} of {dtype.text}",
        )
    tensor, words = step.operand("parameters"), HEAD_WORDS + _TABLES[form, dtype][0]
    if tensor.dims[3] < words:
        text = f"parameters are {dims_text(tensor)}, the table takes (1,1,1,{words})"
        return ErrorCode.BAD_DIMS, text
    return None


LOOKUP = Kernel(
    opcode=Opcode.LOOKUP,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "output"}),
    run=_run,
    rules=(
        operand_is("input", CODES, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", CODES, ACTIVATIONS),
        one_dtype,
        same_dims,
        head_only,
        _table_fits,
    ),
    precisions=frozenset({Precision.INT8, Precision.INT16}),
)
