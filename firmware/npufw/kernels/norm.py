"""NORM: rows brought to mean 0 and variance 1, then scaled by gamma and shifted by beta.

kernel[0] is the set of axes that make up a row (bit 0 is N, bit 3 W), groups cuts C into that many
rows. The residual holds gamma, then beta, along N; its other dims are the input's or 1. Two int32
words behind the OpParams are epsilon as float64.

With n codes q a row, S their sum, Q the sum of their squares, all exact: d = n * q - S, r = 1 /
sqrt(n * Q - S^2 + epsilon * n^2 / scale^2), out = round(d * r * (gamma / output scale) + beta /
output scale) + zp, each step in float64; r is 0 where the root is. Halves go away from zero, to
even with EVEN. Floats do the textbook's steps in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Opcode, Precision, Rounding, Unit
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import real_of, round_half_away
from npufw.kernels.base import Arrays, Fault, Kernel, Step, dims_text, operand_is
from npufw.kernels.layout import load
from npufw.kernels.params import HEAD_WORDS, head, positive_scale
from npufw.kernels.vector import ACTIVATIONS, F32, I32, NUMBERS, PLAIN, head_only, same_dims

__all__ = ["NORM"]

_EPSILON_WORDS = 2


def _run(step: Step, arrays: Arrays) -> NDArray[Any]:
    values = load(arrays.input, step.input)
    affine = load(arrays.residual, step.operand("residual")).astype(np.float32)
    tail = arrays.parameters.reshape(-1)[HEAD_WORDS : HEAD_WORDS + _EPSILON_WORDS]
    epsilon = float(real_of(int(tail[0]), int(tail[1])))
    if step.input.dtype in (DType.I8, DType.I16):
        return _codes(values, affine, epsilon, step, arrays)
    # A sum may leave float32: its row holds infinities, or no number.
    with np.errstate(over="ignore", invalid="ignore"):
        rows, axes = _rows(values.astype(np.float32), step)
        centred = rows - rows.mean(axis=axes, keepdims=True, dtype=np.float32)
        squares = (centred * centred).mean(axis=axes, keepdims=True, dtype=np.float32)
        unit = centred * _inverse(np.sqrt(squares + np.float32(epsilon)))
        result = unit.reshape(values.shape) * affine[:1] + affine[1:]
        return np.asarray(result, arrays.output.dtype)


def _codes(
    values: NDArray[Any], affine: NDArray[np.float32], epsilon: float, step: Step, arrays: Arrays
) -> NDArray[Any]:
    params = head(arrays.parameters, step.where)
    into, out = (float(positive_scale(s, step)) for s in (params.input_scale, params.output_scale))
    rows, axes = _rows(values.astype(np.int64), step)
    n = rows.size // rows.sum(axis=axes).size
    total = rows.sum(axis=axes, keepdims=True)
    power = n * (rows**2).sum(axis=axes, keepdims=True) - total**2
    inverse = _inverse(np.sqrt(power.astype(np.float64) + epsilon * n * n / (into * into)))
    unit = ((n * rows - total).astype(np.float64) * inverse).reshape(values.shape)
    steps = unit * (affine[:1] / np.float64(out)) + affine[1:] / np.float64(out)
    whole = np.rint(steps) if step.rounding is Rounding.EVEN else round_half_away(steps)
    limits = np.iinfo(values.dtype)
    codes = np.clip(whole + params.output_zero_point, limits.min, limits.max)
    return np.asarray(codes, values.dtype)


def _rows(values: NDArray[Any], step: Step) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Return the values with C in groups, N, G, C / G, H, W, and the axes of a row there."""
    n, c, h, w = values.shape
    groups = step.toa.groups
    axes = tuple((0, 2, 3, 4)[axis] for axis in range(4) if step.toa.kernel[0] >> axis & 1)
    return values.reshape(n, groups, c // groups, h, w), axes


def _inverse(root: NDArray[Any]) -> NDArray[Any]:
    one = root.dtype.type(1)
    return np.asarray(np.divide(one, root, out=np.zeros_like(root), where=root > 0))


def _mask(step: Step) -> Fault:
    mask, groups = step.toa.kernel[0], step.toa.groups
    if not 0 < mask < 16:
        return ErrorCode.BAD_WINDOW, f"kernel[0] is a set of axes, 1 to 15, got {mask}"
    cut = groups > 1 and not mask & 2
    if cut or groups < 1 or step.input.dims[1] % groups:
        text = f"{groups} groups do not cut the channels of {dims_text(step.input)} into rows"
        return ErrorCode.BAD_WINDOW, text
    return None


def _affine(step: Step) -> Fault:
    (two, *rest), (_, *dims) = step.operand("residual").dims, step.input.dims
    fits = two == 2 and all(given in (1, n) for given, n in zip(rest, dims, strict=True))
    if not fits:
        text = f"gamma and beta are {dims_text(step.operand('residual'))}"
        return ErrorCode.BAD_DIMS, f"{text} beside {dims_text(step.input)}"
    return None


def _epsilon(step: Step) -> Fault:
    words = HEAD_WORDS + _EPSILON_WORDS
    if step.operand("parameters").dims[3] < words:
        text = f"parameters are {dims_text(step.operand('parameters'))}, expected (1,1,1,{words})"
        return ErrorCode.BAD_DIMS, text
    return None


def _same_dtype(step: Step) -> Fault:
    if step.input.dtype is step.output.dtype:
        return None
    kinds = f"input is {step.input.dtype.text}, the output {step.output.dtype.text}"
    return ErrorCode.BAD_DTYPE, kinds


NORM = Kernel(
    opcode=Opcode.NORM,
    unit=Unit.VECTOR,
    required=frozenset({"input", "parameters", "residual", "output"}),
    run=_run,
    rules=(
        operand_is("input", NUMBERS, ACTIVATIONS),
        operand_is("residual", F32, ACTIVATIONS),
        operand_is("parameters", I32, PLAIN),
        operand_is("output", NUMBERS, ACTIVATIONS),
        _same_dtype,
        same_dims,
        head_only,
        _epsilon,
        _mask,
        _affine,
    ),
    precisions=frozenset(Precision),
)
