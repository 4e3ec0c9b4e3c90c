"""NORM against rows gathered one element at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.enums import DType, Layout, Opcode, Precision, Rounding
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import real_words
from npufw.errors import FirmwareError
from tests.builders import params, params_words
from tests.unit.npufw.bench import Call, operand, words

Array = NDArray[Any]
PRECISION = {
    DType.I8: Precision.INT8,
    DType.I16: Precision.INT16,
    DType.F16: Precision.FP16,
    DType.F32: Precision.FP32,
}
LAYOUTS = [Layout.NCHW, Layout.NHWC, Layout.NCHW16C]


class Case:
    """Random rows of some axes, in one of the layouts; gamma and beta along some axes."""

    def __init__(self, seed: int, dtype: DType) -> None:
        rng = np.random.default_rng(seed)
        self.dtype, self.rounding = dtype, list(Rounding)[seed % 3]
        self.mask = int(rng.integers(1, 16))
        self.groups = int(rng.integers(1, 5)) if self.mask & 2 else 1
        n, c, h, w = (int(v) for v in rng.integers(1, (4, 12, 6, 9)))
        self.dims = (n, c * self.groups, h, w)
        self.epsilon = float(rng.choice([0.0, 1e-5, 0.3]))
        self.x = numbers(rng, self.dims, dtype)
        varies = [int(v) for v in rng.integers(0, 2, 3)]
        across = tuple(d if v else 1 for d, v in zip(self.dims[1:], varies, strict=True))
        self.affine = rng.normal(0.5, 0.7, (2, *across)).astype(np.float32)
        self.zero = int(rng.integers(-9, 9)) if dtype is DType.I8 else 0
        step = 1 if dtype is DType.I8 else 1 / 256
        self.source, self.target = np.float32(0.05 * step), np.float32(0.03 * step)
        self.layout = LAYOUTS[seed % 3]

    def call(self, **more: Any) -> Call:
        head = params(
            input_zero_point=self.zero,
            output_zero_point=self.zero,
            input_scale=float(self.source),
            output_scale=float(self.target),
        )
        tail = np.array(real_words(self.epsilon), np.int32)
        stored = {"dtype": self.dtype, "layout": self.layout}
        operands = {
            "input": operand(self.x, **stored),
            "residual": operand(self.affine, dtype=DType.F32),
            "parameters": words(np.concatenate([params_words(head), tail])),
            "output": operand(self.dims, **stored),
        }
        fields = {"kernel": (self.mask, 0), "groups": self.groups, **more}
        return Call(
            Opcode.NORM,
            operands,
            rounding=self.rounding,
            precision=PRECISION[self.dtype],
            **fields,
        )

    def rows(self) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
        """Return the places of each row."""
        found: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for place in np.ndindex(*self.dims):
            group = place[1] // (self.dims[1] // self.groups)
            kept = [-1 if self.mask >> axis & 1 else at for axis, at in enumerate(place)]
            found.setdefault((*kept, group if self.mask & 2 else -1), []).append(place)
        return found

    def scales(self, place: tuple[int, ...]) -> tuple[float, float]:
        at = tuple(i if n > 1 else 0 for i, n in zip(place[1:], self.affine.shape[1:], strict=True))
        return float(self.affine[(0, *at)]), float(self.affine[(1, *at)])


def numbers(rng: np.random.Generator, dims: tuple[int, ...], dtype: DType) -> Array:
    if dtype in (DType.F16, DType.F32):
        return rng.normal(0.3, 1.0, dims).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    return rng.integers(limits.min, limits.max + 1, dims).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [DType.I8, DType.I16])
@pytest.mark.parametrize("seed", range(15))
def test_codes_equal_the_loop(seed: int, dtype: DType) -> None:
    case = Case(seed, dtype)
    result = case.call().run()
    assert result is not None
    limits = np.iinfo(dtype.numpy)
    for places in case.rows().values():
        codes = [int(case.x[p]) for p in places]
        n, total = len(codes), sum(codes)
        power = n * sum(q * q for q in codes) - total * total
        scale = float(case.source)
        root = math.sqrt(float(power) + case.epsilon * n * n / (scale * scale))
        inverse = 1 / root if root > 0 else 0.0
        for place, code in zip(places, codes, strict=True):
            gamma, beta = (v / float(case.target) for v in case.scales(place))
            steps = float(n * code - total) * inverse * gamma + beta
            away = int(math.copysign(math.floor(abs(steps) + 0.5), steps))
            whole = round(steps) if case.rounding is Rounding.EVEN else away
            assert result[place] == min(max(whole + case.zero, limits.min), limits.max), place


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
@pytest.mark.parametrize("seed", range(6))
def test_floats_stay_within_the_stated_bound(seed: int, dtype: DType) -> None:
    case = Case(seed, dtype)
    result = case.call().run()
    assert result is not None
    for places in case.rows().values():
        row = np.array([float(case.x[p]) for p in places])
        centred = row - row.mean()
        spread = math.sqrt((centred**2).mean() + case.epsilon)
        if spread < 1e-3:
            continue
        units = centred / spread
        for place, unit in zip(places, units, strict=True):
            gamma, beta = case.scales(place)
            exact = unit * gamma + beta
            size = abs(row).max() / spread * abs(gamma) + abs(beta)
            half = float(np.spacing(abs(np.array(exact, dtype.numpy)))) / 2
            bound = (4 * len(row) + 16) * 2.0**-24 * size + half
            assert abs(float(result[place]) - exact) <= bound, place


@pytest.mark.parametrize("seed", range(3))
def test_sums_that_leave_float32_are_no_warning(seed: int) -> None:
    case = Case(seed, DType.F32)
    case.x[...] = np.where(case.x > 0, 3e38, -3e38)
    result = case.call().run()  # a warning would end it
    assert result is not None
    assert result.shape == case.dims


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"kernel": (0, 0)}, ErrorCode.BAD_WINDOW),
        ({"kernel": (16, 0)}, ErrorCode.BAD_WINDOW),
        ({"kernel": (8, 0), "groups": 2}, ErrorCode.BAD_WINDOW),
        ({"kernel": (2, 0), "groups": 0}, ErrorCode.BAD_WINDOW),
    ],
)
def test_rows_that_make_no_sense_are_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    with pytest.raises(FirmwareError) as caught:
        Case(1, DType.I8).call(**fields).run()
    assert caught.value.code is code
