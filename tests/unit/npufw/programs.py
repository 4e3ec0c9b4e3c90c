"""Small whole programs, made by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Direction, DType, Layout, Opcode, Space, Unit
from npuabi.fixedpoint import multiplier_of
from npuabi.target import Target
from tests.builders import EDGE, Builder, params, params_words

__all__ = ["SHAPE", "Rescaler", "codes", "expected", "rescaler"]

SHAPE = (2, 5, 3, 7)
"""What :func:`rescaler` takes and gives: int8, a batch of 2."""


@dataclass
class Rescaler:
    """The builder of a program that halves codes, and the indices of what it holds."""

    builder: Builder
    tensors: dict[str, int]
    toas: dict[str, int]


def codes(runs: int = 1, seed: int = 0) -> NDArray[Any]:
    """Return an input of *runs* compiled batches."""
    shape = (SHAPE[0] * runs, *SHAPE[1:])
    rng = np.random.default_rng(seed)
    return np.asarray(rng.integers(-128, 128, shape), np.int8)


def expected(x: NDArray[Any]) -> NDArray[Any]:
    """Return x / 2, ties up, at least -10: what the program computes."""
    half: NDArray[Any] = np.floor(x / 2 + 0.5)
    return np.asarray(np.maximum(half, -10), np.int8)


def rescaler(*, target: Target = EDGE, skip: str = "") -> Rescaler:
    """Build input -> bricks -> RESCALE by one half -> output; TOA *skip* does not wait."""
    b = Builder(target=target)
    multiplier, shift = multiplier_of(0.5, b.rounding)
    words = params_words(params(input_multiplier=multiplier, input_shift=shift))
    nchw: dict[str, Any] = {"layout": Layout.NCHW}
    row: dict[str, Any] = {"dims": (1, 1, 1, 64), "dtype": DType.U8, **nchw}
    t = {
        "x": b.tensor(SHAPE, space=Space.ARENA, name="x", **nchw),
        "y": b.tensor(SHAPE, space=Space.ARENA, name="y", **nchw),
        "head": b.constant(words.tobytes(), name="head"),
        "plain": b.tensor(SHAPE, name="plain", **nchw),
        "bricks": b.tensor(SHAPE, name="bricks"),
        "half": b.tensor(SHAPE, name="half"),
        "done": b.tensor(SHAPE, name="done", **nchw),
        "raw": b.tensor(name="words", **row),
    }
    t["words"] = b.alias(t["raw"], dims=(1, 1, 1, 16), dtype=DType.I32, name="words", **nchw)
    b.port(Direction.INPUT, "x", SHAPE, t["x"])
    b.port(Direction.OUTPUT, "y", SHAPE, t["y"])

    def waits(name: str, *pairs: tuple[Unit, int]) -> dict[str, Any]:
        return {"op": "y", "waits": () if name == skip else pairs}

    toas = {
        "head": b.toa(Opcode.DMA_IN, input=t["head"], output=t["raw"], op="y"),
        "load": b.toa(Opcode.DMA_IN, input=t["x"], output=t["plain"], op="y"),
        "pack": b.toa(
            Opcode.COPY,
            input=t["plain"],
            output=t["bricks"],
            **waits("pack", (Unit.DMA_IN, 2)),
        ),
        "rescale": b.toa(
            Opcode.RESCALE,
            input=t["bricks"],
            parameters=t["words"],
            output=t["half"],
            clamp=(-10, 127),
            op="y",
        ),
        "unpack": b.toa(Opcode.COPY, input=t["half"], output=t["done"], op="y"),
        "save": b.toa(
            Opcode.DMA_OUT, input=t["done"], output=t["y"], **waits("save", (Unit.VECTOR, 3))
        ),
    }
    return Rescaler(b, t, toas)
