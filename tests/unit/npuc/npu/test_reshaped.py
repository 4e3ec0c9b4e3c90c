"""Views in another shape enumerate the same bytes, by address arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from npuabi.enums import DType, Layout, Rounding
from npuabi.target import load_target
from npuc.ir.core import Graph, Value
from npuc.ir.types import TensorType
from npuc.npu.builder import Builder
from npuc.npu.regions import root_of
from npuc.npu.reshaped import reshaped
from npuc.npu.tasks import buffer_type
from tests.builders import addresses

EDGE = load_target("edge")


@dataclass(frozen=True)
class Record:
    """What addresses() reads of a tensor descriptor."""

    base: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    layout: Layout | None
    lane: int


def places(value: Value) -> Any:
    buffer = buffer_type(value)
    tensor = buffer.tensor
    offset = root_of(value)[1]
    record: Any = Record(
        offset, tensor.dims, buffer.strides, tensor.dtype, tensor.layout, buffer.lane
    )
    return addresses(record).ravel()


def drawn(random: Random, elements: int) -> tuple[int, ...]:
    dims: list[int] = []
    for _ in range(random.randint(0, 3)):
        dims.append(random.choice([d for d in range(1, elements + 1) if elements % d == 0]))
        elements //= dims[-1]
    dims.insert(random.randint(0, len(dims)), elements)
    return tuple(dims)


def activation(random: Random, name: str, shape: tuple[int, ...], dtype: DType) -> Value:
    plain = [Layout.NCHW] if len(shape) > 2 else []
    layout = random.choice([Layout.NCHW16C, *plain])
    return Value(name, TensorType(shape, dtype, layout=layout))


def seen(old: Value, new: Value) -> tuple[Value, Value | None]:
    builder = Builder(Graph("g"), EDGE, Rounding.DOUBLE)
    source = builder.result_of(old)
    return source, reshaped(source, builder.type_of(new))


def test_a_view_enumerates_the_same_bytes_in_order() -> None:
    random, found = Random(0), 0
    for _ in range(900):
        elements = random.choice((16, 32, 48, 64, 96, 33, 34, 17, 128, 60, 768, 132))
        dtype = random.choice((DType.I8, DType.I16, DType.F32))
        old, new = (activation(random, n, drawn(random, elements), dtype) for n in "ab")
        source, view = seen(old, new)
        if view is not None:
            found += 1
            assert np.array_equal(places(source), places(view)), (old, new)
    assert found > 200


def test_heads_are_cut_from_rows_without_a_copy() -> None:
    rows = TensorType((1, 50, 64), DType.I8, layout=Layout.NCHW)
    heads = TensorType((1, 50, 4, 16), DType.I8, layout=Layout.NCHW)
    flat = TensorType((50, 64), DType.I8, layout=Layout.NCHW16C)
    for old, new in ((rows, heads), (heads, rows), (rows, flat), (flat, heads)):
        assert seen(Value("a", old), Value("b", new))[1] is not None


def test_bricks_of_other_channels_need_a_copy() -> None:
    old = TensorType((1, 32, 2, 2), DType.I8, layout=Layout.NCHW16C)
    new = TensorType((1, 16, 4, 2), DType.I8, layout=Layout.NCHW16C)
    assert seen(Value("a", old), Value("b", new))[1] is None
