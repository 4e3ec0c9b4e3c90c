"""The known-answer test: generated inputs must give the outputs that the compiler computed.

Programs of codes give every bit. Programs of floats give numbers within the tolerances that their
blob holds beside the numbers.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.checks import SAMPLE_BYTES
from npuabi.enums import DType
from npuabi.generator import codes, sample_places, samples
from npufw.boot import Image, Port
from npufw.engine import Engine

__all__ = ["SelfTest", "generated_inputs", "output_crc", "selftest"]

_FLOATS = (DType.F16, DType.F32)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """CRC-32 of the outputs: what the compiler's reference gave, and what this run gave.

    Of floats ``samples`` outputs were compared, and ``worst`` is the largest difference in parts of
    its tolerance.
    """

    expected: int
    given: int
    samples: int = 0
    worst: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every bit agrees, or every sample lies within its tolerance."""
        return self.worst <= 1 if self.samples else self.expected == self.given

    def as_dict(self) -> dict[str, Any]:
        """Return what was found for JSON."""
        near = {"samples": self.samples, "worst": self.worst} if self.samples else {}
        return {"expected": f"{self.expected:#010x}", "given": f"{self.given:#010x}", **near}

    @property
    def text(self) -> str:
        """What was found, in words."""
        if self.samples:
            return f"{self.samples} outputs, the worst is off by {self.worst:.2g} of its tolerance"
        wanted = "" if self.passed else f", expected {self.expected:#010x}"
        return f"outputs have CRC {self.given:#010x}{wanted}"


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
    outputs = list(engine.run(generated_inputs(engine.image)).values())
    engine.states = kept
    answer = engine.image.program.known_answer
    return SelfTest(
        expected=answer.output_crc,
        given=output_crc(outputs),
        samples=answer.samples,
        worst=_worst(outputs, engine.image) if answer.samples else 0.0,
    )


def _worst(outputs: Sequence[NDArray[Any]], image: Image) -> float:
    """Return the largest difference of a sample in parts of its tolerance."""
    answer = image.program.known_answer
    given = np.concatenate([array.reshape(-1).astype(np.float64) for array in outputs])
    raw = image.program.constants[answer.offset :][: answer.samples * SAMPLE_BYTES]
    table = np.frombuffer(raw, "<f4").reshape(-1, 2).astype(np.float64)
    found = given[sample_places(answer.samples, len(given))]
    expected, tolerance = table.T
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    with np.errstate(all="ignore"):
        parts = np.where(same, 0.0, np.abs(found - expected) / tolerance)
    # What is no number is off by more than any tolerance.
    return float(np.nan_to_num(parts, nan=np.inf).max())


def _generated(port: Port, seed: int, std: float) -> NDArray[Any]:
    count = math.prod(port.shape)
    if port.entry.dtype not in _FLOATS:
        return codes(seed, count, port.entry.dtype).reshape(port.shape)
    # A std that the dtype cannot hold gives infinities, which the run refuses as it does a user's.
    with np.errstate(over="ignore"):
        values = samples(seed, count, std=std).astype(port.entry.dtype.numpy)
    return values.reshape(port.shape)
