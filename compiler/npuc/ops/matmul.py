"""matmul: ONNX MatMul, numpy's rule for stacks of matrices.

Two activations multiply in the arrays, the second one's columns in the place of weights. By a
constant matrix it becomes a dense layer (the pass matmul_to_dense). Quantised as LiteRT's
BATCH_MATMUL, as ONNX Runtime's QLinearMatMul for EVEN: one scale for all sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from npuabi.enums import Rounding
from npuabi.records import OpParams
from npuc.ir.core import Array, Op, Value, op, operand
from npuc.ir.types import Quant, TensorType, Type
from npuc.npu import tasks
from npuc.npu.builder import Builder, op_params
from npuc.npu.matrices import columns_in_place, read_rows, rows_target
from npuc.ops.example import floats
from npuc.ops.limits import COMMON
from npuc.ops.quantised import (
    check_results,
    is_quantised,
    quant_of,
    require_activation,
    require_dtypes,
)
from npuc.ops.shapes import Shape, broadcast, text
from npuc.reference import matmul_codes, matmul_needs_wide, matmul_scale, multipliers

__all__ = ["MatMul"]


@op("matmul")
class MatMul(Op):
    """Multiply stacks of matrices: (..., M, K) by (..., K, N); the dims before broadcast."""

    LIMITS = COMMON

    a: Value = operand("rows, (..., M, K)")
    b: Value = operand("columns, (..., K, N)")

    def infer(self) -> Sequence[Type]:
        """Return (..., M, N)."""
        a, b = self.a.tensor, self.b.tensor
        require_dtypes(self.a, self.b)
        for value in (self.a, self.b):
            if value.tensor.rank < 2:
                got = f"%{value.name} is {text(value.tensor.shape)}"
                raise ValueError(f"operands have at least 2 dims, {got}: reshape it to a matrix")
        _check_depth(a.shape, b.shape)
        batch = broadcast(a.shape[:-2], b.shape[:-2])
        return [TensorType((*batch, a.shape[-2], b.shape[-1]), a.dtype, None, a.layout)]

    def verify(self) -> None:
        """Check element types and parameters."""
        check_results(self)
        require_activation(self.a, self.b, self.result)

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the products; exact on codes."""
        a, b = map(np.asarray, operands)
        if not is_quantised(self.a):
            return (np.matmul(a.astype(np.float64), b.astype(np.float64)),)
        pair = ((a, quant_of(self.a)), (b, quant_of(self.b)))
        dtype = self.a.tensor.dtype
        return (matmul_codes(pair, quant_of(self.result), rounding, dtype),)

    def stacks(self) -> bool:
        """Return whether the first dim is a batch of both operands."""
        return self.a.tensor.rank == self.b.tensor.rank > 2

    def wants_rows(self) -> bool:
        """Return True: the arrays read rows of K and of columns."""
        return True

    def lower(self, builder: Builder) -> None:
        """Append a matmul task; the other way round when all lies transposed."""
        first, second = self.a, self.b
        found = columns_in_place(builder, self.a, self.b, self.result)
        if found is not None:
            # Y' = B' A': what lies as columns of K is the input, what lies as rows the weights.
            columns, rows, target = found
            first, second = self.b, self.a
            self._task(builder, first, second, [rows, target, columns])
            return
        into = rows_target(builder, self.result)
        left, right = read_rows(builder, self, first), read_rows(builder, self, second)
        self._task(builder, first, second, [left, into.matrix, right])
        into.finish(builder, self)

    def _task(self, builder: Builder, first: Value, second: Value, buffers: list[Value]) -> None:
        source, output, columns = buffers
        params, wide = op_params(), False
        if is_quantised(first):
            params = self._params(builder.rounding, quant_of(first), quant_of(second))
            pair = quant_of(first), quant_of(second)
            wide = matmul_needs_wide(self.a.tensor.dims[-1], *pair, self.a.tensor.dtype)
        operands = [source, output, builder.params(params), columns]
        builder.task(tasks.MatMul, self, operands, wide=wide)

    def _params(self, rounding: Rounding, first: Quant, second: Quant) -> OpParams:
        target = quant_of(self.result)
        multiplier, shift = multipliers([matmul_scale(first, second, target, rounding)], rounding)
        return op_params(
            input_zero_point=first.zero_point,
            residual_zero_point=second.zero_point,
            output_zero_point=target.zero_point,
            input_multiplier=int(multiplier[0]),
            input_shift=int(shift[0]),
            input_scale=first.scale,
            output_scale=target.scale,
        )

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield ranks 2 to 4, one element, tails of a tile, broadcast batches."""
        pairs: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
            ((2, 3, 19, 33), (2, 3, 33, 17)),
            ((1, 1), (1, 1)),
            ((5, 33), (33, 18)),
            ((2, 7, 21), (2, 21, 5)),
            ((1, 2, 3, 4), (4, 6)),
            ((2, 1, 3, 20), (3, 20, 17)),
        )
        for a, b in pairs:
            yield cls([floats("a", *a), floats("b", *b)])


def _check_depth(a: Shape, b: Shape) -> None:
    if None not in (a[-1], b[-2]) and a[-1] != b[-2]:
        shapes = f"{text(a)} and {text(b)}"
        raise ValueError(f"rows of {a[-1]} do not meet columns of {b[-2]}: shapes are {shapes}")
