"""Records with valid CRCs and wrong values are refused with a code, or run; nothing else."""

from __future__ import annotations

import random
from dataclasses import replace
from enum import IntFlag
from typing import Any

import pytest

from npuabi.container import Program, write_blob
from npuabi.enums import DType, Layout, Mode, Opcode, ToaFlag, Unit
from npuabi.errors import AbiError
from npuabi.wire import Field
from npufw.boot import boot
from npufw.engine import Engine
from tests.builders import EDGE
from tests.unit.npufw.programs import codes, rescaler

_LIMITS = {"<u1": (0, 255), "<u2": (0, 65535), "<u4": (0, 2**32 - 1), "<i2": (-32768, 32767)}


def program() -> Program:
    """The rescaler, with a convolution and a pool between packing and rescaling."""
    made = rescaler()
    b, bricks = made.builder, made.tensors["bricks"]
    words = b.tensor((1, 1, 1, 64), dtype=DType.I32, layout=Layout.NCHW)
    weights = b.tensor((5, 5, 3, 3), layout=Layout.OIHW16I16O)
    out, pooled = b.tensor((2, 5, 3, 7)), b.tensor((2, 5, 2, 4))
    window: dict[str, Any] = {"kernel": (3, 3), "pads": (1, 1, 1, 1)}
    b.toa(
        Opcode.CONV,
        input=bricks,
        weights=weights,
        parameters=words,
        output=out,
        mode=Mode.WEIGHT_STATIONARY,
        waits=[(Unit.VECTOR, 1)],
        **window,
    )
    b.toa(Opcode.MAX_POOL, input=out, output=pooled, stride=(2, 2), **window)
    return b.build()


def value_of(rng: random.Random, field: Field, value: Any) -> Any:
    if field.enum is not None:
        if issubclass(field.enum, IntFlag):
            return ToaFlag(rng.randrange(256))
        return rng.choice(list(field.enum))
    low, high = _LIMITS[field.numpy]
    near = max(low, min(high, int(value) + rng.choice([-16, -1, 1, 2, 16, 64])))
    return rng.choice([near, low, high, rng.randint(low, high), rng.choice([0, 1, 2, 3, 4, 8, 16])])


def damaged(rng: random.Random) -> Program:
    made = program()
    for _ in range(rng.choice([1, 1, 2, 3])):
        kind = rng.choice(["tensors", "toas"])
        records = list(getattr(made, kind))
        index = rng.randrange(len(records))
        fields = {
            n: f
            for n, f in records[index].FIELDS.items()
            if f.role == "value" and n not in ("symbol", "op", "scale")
        }
        name = rng.choice(sorted(fields))
        value = getattr(records[index], name)
        if isinstance(value, tuple):
            at = rng.randrange(len(value))
            new = list(value)
            new[at] = value_of(rng, fields[name], value[at])
            value = tuple(new)
        else:
            value = value_of(rng, fields[name], value)
        records[index] = replace(records[index], **{name: value})
        changes: dict[str, Any] = {kind: tuple(records)}
        made = replace(made, **changes)
    return made


@pytest.mark.parametrize("seed", range(5))
def test_damaged_records_never_crash_boot_or_engine(seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    for _ in range(50):
        try:
            Engine(boot(write_blob(damaged(rng)), EDGE)).run({"x": codes()})
        except AbiError:
            refused += 1
    assert refused > 10
