"""What a TOA's precision register must say: the precision of the tensors that it computes on.

Compiler and firmware share this rule. A conversion has the narrower of its two precisions; a DMA
moves bytes and is set to int8, so that it never waits for a switch.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuabi.enums import DType, Precision, Unit

__all__ = ["register_of"]

_PRECISION = {
    DType.I8: Precision.INT8,
    DType.U8: Precision.INT8,
    DType.I16: Precision.INT16,
    DType.I32: Precision.FP32,
    DType.I64: Precision.FP32,
    DType.F16: Precision.FP16,
    DType.F32: Precision.FP32,
}
"""By element type; integers of 32 bits and more move at the rate of fp32."""


def register_of(unit: Unit, dtypes: Sequence[DType | None]) -> Precision:
    """Return the register of a TOA whose tensors have *dtypes*, None where it has no such operand.

    They are in the order of its ``tensors``: weights and parameters do not count.
    """
    if unit in (Unit.DMA_IN, Unit.DMA_OUT):
        return Precision.INT8
    source, _, _, residual, output = dtypes
    held = (_PRECISION[d] for d in (source, residual, output) if d is not None)
    return min(held, default=Precision.INT8)
