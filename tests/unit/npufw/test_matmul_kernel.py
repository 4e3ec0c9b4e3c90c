"""MATMUL against sums and rounding one number at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.enums import DType, Mode, Opcode, Precision, Rounding, ToaFlag, Unit
from npuabi.errors import ErrorCode
from npuabi.fixedpoint import multiplier_of
from npufw.errors import FirmwareError
from npufw.kernels.base import Sums
from tests.builders import params, params_words
from tests.unit.npufw.bench import Call, operand, requantise, words

Array = NDArray[Any]
FIELDS: dict[str, Any] = {"unit": Unit.MAC, "mode": Mode.WEIGHT_STATIONARY}


class Case:
    """Random products of 1 to 40 terms; either side may serve several batches."""

    def __init__(self, seed: int, dtype: DType = DType.I8) -> None:
        rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.rounding = list(Rounding)[seed % 3]
        n, h, m, k, o = (int(v) for v in rng.integers(1, (4, 4, 20, 41, 35)))
        one = [int(rng.integers(0, 3) == 0) for _ in range(4)]
        left = (1 if one[0] else n, k, 1 if one[1] else h, m)
        right = (1 if one[2] else n, o, 1 if one[3] else h, k)
        self.out = (max(left[0], right[0]), o, max(left[2], right[2]), m)
        limits = np.iinfo(dtype.numpy)
        self.a, self.b = (
            rng.integers(limits.min, limits.max + 1, s).astype(dtype.numpy) for s in (left, right)
        )
        self.za, self.zb, self.zy = (int(z) for z in rng.integers(-128, 128, 3))
        self.real = float(np.exp(rng.uniform(-9, -4)))
        if dtype is DType.I16:
            self.za = self.zb = self.zy = 0
            self.real /= 1 << 14

    def head(self) -> Any:
        multiplier, shift = multiplier_of(self.real, self.rounding)
        return words(
            params_words(
                params(
                    input_zero_point=self.za,
                    residual_zero_point=self.zb,
                    output_zero_point=self.zy,
                    input_multiplier=multiplier,
                    input_shift=shift,
                )
            )
        )

    def call(self, terms: slice = slice(None), **more: Any) -> Call:
        operands = {
            "input": operand(self.a[:, terms], dtype=self.dtype),
            "residual": operand(self.b[..., terms], dtype=self.dtype),
            "parameters": self.head(),
            "output": operand(self.out, dtype=self.dtype),
        }
        fields = {**FIELDS, **more}
        if self.dtype is DType.I16:
            fields["precision"] = Precision.INT16
            fields["flags"] = ToaFlag.CLEAR | ToaFlag.WRITE | ToaFlag.WIDE
        return Call(Opcode.MATMUL, operands, rounding=self.rounding, **fields)

    def expected(self, place: tuple[int, ...]) -> int:
        n, o, h, m = place
        row = self.a[n % len(self.a), :, h % self.a.shape[2], m]
        column = self.b[n % len(self.b), o, h % self.b.shape[2]]
        total = sum(
            (int(p) - self.za) * (int(q) - self.zb) for p, q in zip(row, column, strict=True)
        )
        factor = multiplier_of(self.real, self.rounding)
        narrowed = self.dtype is DType.I16 and self.rounding is not Rounding.EVEN
        code = narrow(total, factor) if narrowed else requantise(total, *factor, self.rounding)
        return min(90, max(-100, code + self.zy))


def narrow(acc: int, factor: tuple[int, int]) -> int:
    """Return LiteRT's rescaling of 64-bit sums: a multiplier of 16 bits, one rounding."""
    multiplier, shift = factor
    reduced = 0x7FFF if multiplier >= 0x7FFF0000 else (multiplier + (1 << 15)) >> 16
    return (acc * reduced + (1 << (14 - shift))) >> (15 - shift)


@pytest.mark.parametrize("dtype", [DType.I8, DType.I16])
@pytest.mark.parametrize("seed", range(12))
def test_codes_equal_the_loop(seed: int, dtype: DType) -> None:
    case = Case(seed, dtype)
    result = case.call(clamp=(-100, 90)).run()
    assert result is not None
    for place in np.ndindex(*case.out):
        assert result[place] == case.expected(place), place


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])
def test_ranges_of_k_add_up(seed: int) -> None:
    case, sums = Case(seed), Sums()
    depth = case.a.shape[1]
    cut = depth // 2
    assert 0 < cut < depth
    assert np.prod(case.out) <= 1024
    first = case.call(slice(cut), flags=ToaFlag.CLEAR, sums=sums)
    assert first.run() is None
    second = case.call(slice(cut, None), flags=ToaFlag.WRITE, sums=sums).run()
    whole = case.call().run()
    assert whole is not None
    assert np.array_equal(np.asarray(second), whole)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
def test_floats_add_in_float32_and_round_once(dtype: DType) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.normal(size=s).astype(dtype.numpy) for s in ((2, 300, 1, 5), (1, 20, 1, 300)))
    kinds = {"input": operand(a, dtype=dtype), "residual": operand(b, dtype=dtype),
             "output": operand((2, 20, 1, 5), dtype=dtype)}  # fmt: skip
    call = Call(
        Opcode.MATMUL,
        {**kinds, "parameters": words(params_words(params()))},
        precision=Precision.FP32 if dtype is DType.F32 else Precision.FP16,
        clamp=(0, 0),
        **FIELDS,
    )
    found = np.asarray(call.run(), np.float64)
    left, right = a.astype(np.float64), b.astype(np.float64)
    exact = np.einsum("nkhm,nohk->nohm", left, np.broadcast_to(right, (2, *right.shape[1:])))
    size = np.einsum("nkhm,ohk->nohm", abs(left), abs(right[0]))
    half = np.spacing(abs(exact).astype(dtype.numpy)).astype(np.float64) / 2
    assert (abs(found - exact) <= 4 * 300 * 2.0**-24 * size + half).all()


def test_dims_that_do_not_multiply_are_refused() -> None:
    case = Case(3)
    case.b = case.b[..., :-1]
    with pytest.raises(FirmwareError, match=r"times .* is not") as caught:
        case.call().run()
    assert caught.value.code is ErrorCode.BAD_DIMS
