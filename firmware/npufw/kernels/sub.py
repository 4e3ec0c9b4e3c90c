"""SUB: the difference of two tensors of codes, each with its own scale; a dim of 1 is repeated.

Both operands are shifted left and scaled to a common scale, subtracted, and scaled to the output's,
as in ADD (LiteRT).
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from npuabi.enums import Opcode, Precision, Unit
from npuabi.fixedpoint import apply
from npufw.kernels.base import Arrays, Kernel, Step
from npufw.kernels.pairs import centred, code_rules, held, no_even

__all__ = ["SUB"]


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    params, x, y = centred(step, arrays)
    mode, left = step.rounding, params.left_shift
    first = apply(x << left, params.input_multiplier, params.input_shift, mode)
    second = apply(y << left, params.residual_multiplier, params.residual_shift, mode)
    rest = apply(first - second, params.output_multiplier, params.output_shift, mode)
    return held(rest, step, params)


SUB = Kernel(
    opcode=Opcode.SUB,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "residual", "output"}),
    run=_run,
    rules=code_rules(no_even),
    precisions=frozenset({Precision.INT8, Precision.INT16}),
)
