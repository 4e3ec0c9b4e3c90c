"""What sigmoid and tanh share: fixed parameters, and LiteRT's 16-bit kernels for i16 codes.

An i16 code is scaled to 1 / (3 * 4096), its size looks up sigmoid(i / 24) in 256 entries with a
straight line between them, and symmetry gives the other half: tanh(x) = 2 * sigmoid(2 * x) - 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuabi.enums import DType, Rounding
from npuc.ir.core import Array
from npuc.npu.builder import Builder
from npuc.npu.pointwise import lower_lookup
from npuc.ops.pointwise import Unary
from npuc.ops.quantised import quant_of
from npuc.tables import sigmoid_nodes

__all__ = ["SIGMOID", "TANH", "Squash", "SquashForm"]

_STEPS = 3.0 * 4096.0
"""Table inputs of 1."""
_LARGEST = 32767
_MOST_SHIFT = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class SquashForm:
    """How a kernel reads the table: ``bits`` of a step between entries, ``number`` in the TOA."""

    number: int
    bits: int


SIGMOID = SquashForm(number=2, bits=9)
TANH = SquashForm(number=3, bits=8)


class Squash(Unary):
    """A function whose i16 codes follow LiteRT's LOGISTIC or TANH."""

    FORM: ClassVar[SquashForm]

    def on_codes(self, q: Array, rounding: Rounding) -> Array:
        """Return the codes of the function at i8 or i16 codes *q*."""
        if self.x.tensor.dtype is not DType.I16:
            return super().on_codes(q, rounding)
        multiplier, shift = _input_scale(quant_of(self.x).scale)
        x = (q.astype(np.int64) * multiplier + ((1 << shift) >> 1)) >> shift
        return _squashed(x, self.FORM)

    def lower(self, builder: Builder) -> None:
        """Append what every function appends; for i16 codes a lookup of the sigmoid."""
        if self.x.tensor.dtype is not DType.I16:
            return super().lower(builder)
        multiplier, shift = _input_scale(quant_of(self.x).scale)
        return lower_lookup(
            builder,
            self,
            self.x,
            sigmoid_nodes(),
            self.result,
            form=self.FORM.number,
            input_multiplier=multiplier,
            input_shift=-shift,
        )


def _input_scale(scale: float) -> tuple[int, int]:
    """Return the multiplier, below 2^15, and the right shift that bring a code to table steps."""
    real = scale * _STEPS
    if scale == 1 / 4096:
        return int(_STEPS / 4096), 0
    shift = 0
    while real <= _LARGEST / 2 and shift < _MOST_SHIFT:
        real, shift = real * 2, shift + 1
    return math.floor(min(real, _LARGEST)), shift


def _squashed(x: Array, form: SquashForm) -> Array:
    """Return i16 codes of *x* in table steps."""
    table = sigmoid_nodes().astype(np.int64)
    place, rest = np.divmod(np.abs(x), 1 << form.bits)
    low = np.minimum(place, 254)
    value = (table[low] << form.bits) + rest * (table[low + 1] - table[low])
    if form is SIGMOID:
        value = np.where(place >= 255, 0x7FFF << 10, value)
        value = np.where(x >= 0, value + 512, (1 << 25) - value + 511)
        return np.asarray(value >> 10, np.int16)
    value = np.where(place >= 255, 0xFFFF << 8, value) - (1 << 23)
    value = np.where(x >= 0, value + 128, 127 - value)
    return np.asarray(value >> 8, np.int16)
