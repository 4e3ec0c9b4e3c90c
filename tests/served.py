"""Small models for the runtime's tests, compiled once a process, and what they give."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Space
from npuc.driver import Options, compile_graph
from npuc.frontend.text import parse_text
from npufw.boot import Image, boot
from npufw.engine import Engine
from npufw.faults import Hook, Machine, Moment, Phase
from npurt import Outputs

__all__ = ["Gate", "Served", "Sick", "equal", "served"]

_DENSE = """graph @dense(%x: tensor<1x4xf32>) {
  %w = const random(seed = SEED, std = 0.5) : tensor<3x4xf32>
  %y = dense(%x, %w)
  return %y
}"""
_CONV = """graph @conv(%x: tensor<1x3x6x6xf32>) {
  %w = const random(seed = SEED, std = 0.5) : tensor<4x3x3x3xf32>
  %c = conv2d(%x, %w)
  %y = relu(%c)
  return %c, %y
}"""
_FRAMES = """graph @frames(%x: tensor<1x4xf32>) {
  %s = state "sum" init = splat(0.0) : tensor<1x4xf32>
  %y = add(%s, %x)
  update "sum", %y
  return %y
}"""
_TEXTS = {"dense": _DENSE, "conv": _CONV, "frames": _FRAMES}

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Served:
    """A compiled model with inputs and, for each, the outputs of an engine of its own."""

    blob: bytes
    image: Image
    inputs: list[Arrays]
    outputs: list[Arrays]


@cache
def served(kind: str, *, precision: str = "fp32", seed: int = 1, count: int = 16) -> Served:
    """Return the model *kind* with weights of *seed* and *count* inputs."""
    calibrate = "random" if precision == "int8" else None
    options = Options(precision=precision, calibrate=calibrate)
    made = compile_graph(parse_text(_TEXTS[kind].replace("SEED", str(seed))), options)
    image = boot(made.blob, made.target)
    source = np.random.Generator(np.random.PCG64(seed))
    shape = image.inputs[0].shape
    inputs = [{"x": source.normal(size=shape).astype(np.float32)} for _ in range(count)]
    return Served(made.blob, image, inputs, [Engine(image).run(each) for each in inputs])


def equal(outputs: Outputs | Arrays, expected: Arrays) -> bool:
    """Return whether all outputs agree bit by bit."""
    return list(outputs) == list(expected) and all(
        outputs[name].tobytes() == expected[name].tobytes() for name in expected
    )


class Gate(Hook):
    """Holds a core before every TOA until it is opened; *reached* says that it waits."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def at(self, machine: Machine, moment: Moment) -> None:
        if moment.phase is Phase.TOA_READS:
            self.reached.set()
            assert self._open.wait(60)

    def open(self) -> None:
        """Let the core go on, from now on without a stop."""
        self._open.set()


class Sick(Hook):
    """A core that computes wrongly, or raises, in the runs *bad*, counted from 0."""

    def __init__(self, bad: Iterable[int] | None = None, *, raises: bool = False) -> None:
        self._bad = None if bad is None else set(bad)
        self._raises = raises
        self.runs = -1

    def at(self, machine: Machine, moment: Moment) -> None:
        if moment.phase is Phase.RUN_STARTS:
            self.runs += 1
        bad = self._bad is None or self.runs in self._bad
        if moment.phase is Phase.RUN_ENDS and bad:
            if self._raises:
                raise RuntimeError("a fault of the core")
            machine.memory.spaces[Space.ARENA][:] ^= 0x55
