"""The known-answer test: generated inputs must give the outputs that the compiler computed."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType
from npuabi.generator import codes, samples
from npufw.boot import Image, Port
from npufw.engine import Engine

__all__ = ["SelfTest", "generated_inputs", "output_crc", "selftest"]

_FLOATS = (DType.F16, DType.F32)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """CRC-32 of the outputs: what the compiler's reference gave, and what this run gave."""

    expected: int
    given: int

    @property
    def passed(self) -> bool:
        """Whether every bit agrees."""
        return self.expected == self.given


def generated_inputs(image: Image) -> dict[str, NDArray[Any]]:
    """Return one compiled batch from the documented generator; input i uses seed + i."""
    answer = image.program.known_answer
    return {
        port.name: _generated(port, answer.seed + index, answer.std)
        for index, port in enumerate(image.inputs)
    }


def output_crc(outputs: Sequence[NDArray[Any]]) -> int:
    """Return the CRC-32 over all *outputs* in order, dense, row-major and little-endian."""
    crc = 0
    for array in outputs:
        dense = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        crc = zlib.crc32(dense.tobytes(), crc)
    return crc


def selftest(engine: Engine) -> SelfTest:
    """Run the known-answer test on *engine*, from reset states; its own states are kept."""
    kept = engine.states
    engine.reset()
    outputs = engine.run(generated_inputs(engine.image))
    engine.states = kept
    return SelfTest(
        expected=engine.image.program.known_answer.output_crc,
        given=output_crc(list(outputs.values())),
    )


def _generated(port: Port, seed: int, std: float) -> NDArray[Any]:
    count = math.prod(port.shape)
    if port.entry.dtype not in _FLOATS:
        return codes(seed, count, port.entry.dtype).reshape(port.shape)
    # A std that the dtype cannot hold gives infinities, which the run refuses as it does a user's.
    with np.errstate(over="ignore"):
        values = samples(seed, count, std=std).astype(port.entry.dtype.numpy)
    return values.reshape(port.shape)
