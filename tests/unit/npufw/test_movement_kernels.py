"""The kernels that move elements, against loops over single ones; tables that lie are refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.enums import DType, Layout, Opcode, Precision, Rounding
from npuabi.errors import AbiError, ErrorCode
from tests.builders import params, params_words
from tests.unit.npufw.bench import Call, operand, words

Array = NDArray[Any]
LAYOUTS = [Layout.NCHW, Layout.NHWC, Layout.NCHW16C]
KINDS = {
    DType.I8: Precision.INT8,
    DType.I16: Precision.INT16,
    DType.F16: Precision.FP16,
    DType.F32: Precision.FP32,
}


def numbers(rng: np.random.Generator, dtype: DType, *shape: int) -> Array:
    return rng.integers(-100, 100, shape).astype(dtype.numpy)


def tabled(tables: list[Array], **fields: Any) -> Any:
    head = params_words(params(**fields))
    return words(np.concatenate([head, *(np.asarray(t, np.int32).ravel() for t in tables)]))


def remap(x: Array, tables: list[list[int]], **more: Any) -> Call:
    kind = {"dtype": more.pop("dtype", DType.I8)}
    layouts = more.pop("layouts", (Layout.NCHW16C, Layout.NCHW16C))
    fields = more.pop("fields", {})
    dims = tuple(len(t) for t in tables)
    operands = {
        "input": operand(x, layout=layouts[0], **kind),
        "parameters": tabled([np.array(t) for t in tables], **fields),
        "output": operand(dims, layout=layouts[1], **kind),
    }
    return Call(Opcode.REMAP, operands, precision=KINDS[kind["dtype"]], **{"groups": 1, **more})


@pytest.mark.parametrize("seed", range(16))
def test_remap_takes_elements_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype = list(KINDS)[seed % 4]
    x = numbers(rng, dtype, *(int(rng.integers(1, high)) for high in (3, 37, 9, 9)))
    tables = [rng.integers(-1, n, int(rng.integers(1, 20))).tolist() for n in x.shape]
    fill = np.array([-7.5 if dtype in (DType.F16, DType.F32) else -7]).astype(dtype.numpy)
    bits = int.from_bytes(fill.tobytes().ljust(4, b"\0"), "little", signed=True)
    layouts = LAYOUTS[seed % 3], LAYOUTS[seed // 3 % 3]
    call = remap(x, tables, dtype=dtype, layouts=layouts, fields={"input_multiplier": bits})
    found = call.run()
    assert found is not None
    for at in product(*(range(len(t)) for t in tables)):
        place = tuple(t[i] for t, i in zip(tables, at, strict=True))
        assert found[at] == (fill[0] if -1 in place else x[place])


def test_remap_of_whole_bricks_may_drop_swap_and_fill_them() -> None:
    x = numbers(np.random.default_rng(3), DType.I8, 1, 40, 2, 2)
    channels = [*range(16, 32), *[-1] * 16, *range(8)]
    call = remap(x, [[0], channels, [1, 0], [0]], groups=0, fields={"input_multiplier": 5})
    found = call.run()
    assert found is not None
    expected = np.concatenate([x[:, 16:32], np.full((1, 16, 2, 2), 5, np.int8), x[:, :8]], axis=1)
    assert np.array_equal(found, expected[:, :, ::-1, :1])


@pytest.mark.parametrize(
    ("tables", "groups", "code"),
    [
        ([[0], [0, 1], [0], [2]], 1, ErrorCode.BAD_INDEX),
        ([[0], [0, -2], [0], [0]], 1, ErrorCode.BAD_INDEX),
        ([[0], [1, 0], [0], [0]], 0, ErrorCode.BAD_INDEX),
        ([[0], [0, 1], [0], [0]], 2, ErrorCode.BAD_WINDOW),
    ],
)
def test_remap_refuses_positions_that_lie(tables: Any, groups: int, code: ErrorCode) -> None:
    call = remap(np.zeros((1, 2, 2, 2), np.int8), tables, groups=groups)
    with pytest.raises(AbiError) as caught:
        call.run()
    assert caught.value.code is code


def test_remap_of_whole_bricks_takes_bricks_only() -> None:
    plain = (Layout.NCHW, Layout.NCHW16C)
    call = remap(np.zeros((1, 2, 2, 2), np.int8), [[0], [0, 1], [0], [0]], groups=0, layouts=plain)
    with pytest.raises(AbiError) as caught:
        call.run()
    assert caught.value.code is ErrorCode.BAD_LAYOUT


@pytest.mark.parametrize("seed", range(12))
def test_transpose_puts_each_element_where_its_indices_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype = list(KINDS)[seed % 4]
    x = numbers(rng, dtype, *(int(rng.integers(1, high)) for high in (19, 35, 7, 18)))
    order = tuple(int(i) for i in rng.permutation(4))
    dims = tuple(x.shape[i] for i in order)
    operands = {
        "input": operand(x, dtype=dtype, layout=LAYOUTS[seed % 3]),
        "output": operand(dims, dtype=dtype, layout=LAYOUTS[seed // 3 % 3]),
    }
    found = Call(Opcode.TRANSPOSE, operands, pads=order, precision=KINDS[dtype]).run()
    assert found is not None
    for at in product(*map(range, dims)):
        place = [0] * 4
        for dim, origin in enumerate(order):
            place[origin] = at[dim]
        assert found[at] == x[tuple(place)]


@pytest.mark.parametrize(
    ("pads", "dims", "code"),
    [
        ((0, 1, 2, 2), (1, 2, 3, 4), ErrorCode.BAD_WINDOW),
        ((0, 1, 2, 3), (1, 2, 4, 3), ErrorCode.BAD_DIMS),
    ],
)
def test_transpose_refuses_what_is_no_order(pads: Any, dims: Any, code: ErrorCode) -> None:
    operands = {"input": operand(np.zeros((1, 2, 3, 4), np.int8)), "output": operand(dims)}
    with pytest.raises(AbiError) as caught:
        Call(Opcode.TRANSPOSE, operands, pads=pads).run()
    assert caught.value.code is code


@pytest.mark.parametrize("seed", range(9))
def test_blocks_unfold_and_fold_element_by_element(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, c, h, w, p, q = (int(rng.integers(1, high)) for high in (3, 19, 4, 4, 4, 4))
    deep, wide = (n, c * p * q, h, w), (n, c, h * p, w * q)
    x = numbers(rng, DType.I8, *deep)
    first = seed % 2
    opened = Call(Opcode.DEPTH_TO_SPACE, {"input": operand(x), "output": operand(wide)},
                  kernel=(p, q), groups=first).run()  # fmt: skip
    assert opened is not None
    for at in product(*map(range, wide)):
        (row, i), (column, j) = divmod(at[2], p), divmod(at[3], q)
        channel = (at[1] * p + i) * q + j if first else (i * q + j) * c + at[1]
        assert opened[at] == x[at[0], channel, row, column]
    if first:
        return
    closed = Call(Opcode.SPACE_TO_DEPTH, {"input": operand(opened), "output": operand(deep)},
                  kernel=(p, q)).run()  # fmt: skip
    assert np.array_equal(np.asarray(closed), x)


@pytest.mark.parametrize("opcode", [Opcode.DEPTH_TO_SPACE, Opcode.SPACE_TO_DEPTH])
@pytest.mark.parametrize(("kernel", "code"), [((0, 2), ErrorCode.BAD_WINDOW),
                                              ((2, 3), ErrorCode.BAD_DIMS)])  # fmt: skip
def test_blocks_that_do_not_fit_are_refused(opcode: Opcode, kernel: Any, code: ErrorCode) -> None:
    operands = {"input": operand(np.zeros((1, 4, 4, 4), np.int8)), "output": operand((1, 4, 4, 4))}
    with pytest.raises(AbiError) as caught:
        Call(opcode, operands, kernel=kernel).run()
    assert caught.value.code is code


class Scaling:
    """A random resize: positions and weights of each axis, and their sums one by one."""

    def __init__(self, seed: int, dtype: DType, rounding: Rounding) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype, self.rounding = dtype, rounding
        self.x = numbers(self.rng, dtype, *(int(self.rng.integers(1, h)) for h in (3, 20, 7, 7)))
        self.taps = tuple(int(self.rng.integers(1, 5)) for _ in range(2))
        self.size = tuple(int(self.rng.integers(1, 9)) for _ in range(2))
        self.whole = rounding is not Rounding.EVEN and dtype in (DType.I8, DType.I16)
        self.places = [
            self.rng.integers(0, self.x.shape[2 + i], (self.taps[i], self.size[i])) for i in (0, 1)
        ]
        self.weights = [self.drawn(self.places[i].shape) for i in (0, 1)]

    def drawn(self, shape: tuple[int, ...]) -> Array:
        if self.whole:
            return self.rng.integers(-300, 1100, shape)
        return self.rng.normal(0.4, 0.3, shape).astype(np.float32)

    def call(self, groups: int) -> Call:
        tables = []
        for places, weights in zip(self.places, self.weights, strict=True):
            tables += [places, weights if self.whole else weights.view(np.int32)]
        fields = {"input_zero_point": 3, "input_scale": 0.037, "input_shift": 10,
                  "output_shift": 9}  # fmt: skip
        operands = {
            "input": operand(self.x, dtype=self.dtype),
            "parameters": tabled(tables, **(fields if self.dtype.numpy[1] == "i" else {})),
            "output": operand((*self.x.shape[:2], *self.size), dtype=self.dtype),
        }
        more: dict[str, Any] = {"kernel": self.taps, "groups": groups}
        precision = KINDS[self.dtype]
        return Call(Opcode.RESIZE, operands, rounding=self.rounding, precision=precision, **more)

    def expected(self, n: int, c: int, y: int, x: int, groups: int) -> Any:
        plane = self.x[n, c]
        rows = [(self.places[0][k, y], self.weights[0][k, y]) for k in range(self.taps[0])]
        columns = [(self.places[1][k, x], self.weights[1][k, x]) for k in range(self.taps[1])]
        limits = np.iinfo(np.int8 if self.dtype is DType.I8 else np.int16)
        if self.whole:
            exact = sum(int(wr) * int(wc) * int(plane[i, j]) for i, wr in rows for j, wc in columns)
            rounded = (abs(exact) + (1 << 18)) >> 19
            return min(max(rounded if exact >= 0 else -rounded, limits.min), limits.max)
        coded = self.dtype in (DType.I8, DType.I16)
        scale, zero = np.float32(0.037), np.float32(3)
        real = (plane.astype(np.float32) - zero) * scale if coded else plane.astype(np.float32)
        total = np.float32(0)
        for i, down in rows:
            if groups:
                row = np.float32(0)
                for j, across in columns:
                    row += across * real[i, j]
                total += down * row
            else:
                for j, across in columns:
                    total += (down * across) * real[i, j]
        if not coded:
            return total.astype(self.dtype.numpy)
        return np.clip(np.rint(total / scale) + zero, limits.min, limits.max)


@pytest.mark.parametrize("groups", [0, 1])
@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("dtype", KINDS)
def test_resize_adds_weighted_taps_in_its_order(
    dtype: DType, rounding: Rounding, groups: int
) -> None:
    for seed in range(3):
        case = Scaling(seed, dtype, rounding)
        found = case.call(groups).run()
        assert found is not None
        for at in product(*map(range, found.shape)):
            n, c, y, x = at
            assert found[at] == case.expected(n, c, y, x, groups)


def test_resize_refuses_weights_and_shifts_that_lie() -> None:
    case = Scaling(1, DType.F32, Rounding.DOUBLE)
    case.weights[0][0, 0] = np.inf
    with pytest.raises(AbiError, match="not finite"):
        case.call(0).run()
    case = Scaling(1, DType.I8, Rounding.DOUBLE)
    case.places[1][0, 0] = case.x.shape[3]
    with pytest.raises(AbiError, match="outside 0 to"):
        case.call(0).run()
    with pytest.raises(AbiError, match="groups is 0 or 1"):
        Scaling(1, DType.I8, Rounding.DOUBLE).call(2).run()
