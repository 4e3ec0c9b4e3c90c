"""Random graphs, compiled: how each seed's options are drawn, and whether the bits agree.

Options walk through all targets, levels and rounding modes with the seed, so that any run of 36
seeds meets every combination; SRAM limits are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.container import read_blob
from npuc.diagnostics import CompileError
from npuc.driver import Compilation, Options, compile_graph
from npufw.asm import assemble
from npufw.boot import Image, boot, device_of
from npufw.disasm import disassemble
from npufw.engine import Engine
from tests.random_graphs import Case, random_case

__all__ = ["OVER_BUDGET", "Built", "built", "comes_back", "compiled", "differing", "same"]

OVER_BUDGET = "bytes of SRAM"
"""Words of the refusal of a graph that does not fit the SRAM."""

_TARGETS = ("edge", "tiny", "edge-quad")
_ROUNDINGS = ("double", "single", "even")
_LIMITS_KIB = (None, 2, 3, 4, 6, 8, 12, 16, 24, 48)
Array = NDArray[Any]


@dataclass(frozen=True)
class Built:
    """A case and what became of it under some options."""

    case: Case
    options: Options
    compilation: Compilation
    image: Image

    def run(self) -> dict[str, Array]:
        """Return the emulator's outputs."""
        return Engine(self.image).run(self.case.inputs)


def built(seed: int, *, ops: int = 7, **changes: Any) -> Built:
    """Return the compiled random graph of *seed*; *changes* are fields of Options.

    A limit that a graph does not fit is raised until it does.
    """
    random = Random(seed)
    drawn: dict[str, Any] = {
        "rounding": _ROUNDINGS[seed % 3],
        "level": seed // 3 % 4,
        "target": _TARGETS[seed // 12 % 3],
        "sram_limit_kib": random.choice(_LIMITS_KIB),
    }
    return compiled(random_case(random, ops=ops), **{**drawn, **changes})


def compiled(case: Case, **changes: Any) -> Built:
    """Return *case* compiled with fields of Options, a limit that is too low doubled."""
    options = Options(calibrate=case.calibrate, **changes)
    try:
        made = compile_graph(case.graph(), options)
    except CompileError as error:
        limit = options.sram_limit_kib
        if limit is None or limit > 100 or OVER_BUDGET not in error.diagnostics[0].text:
            raise
        return compiled(case, **{**changes, "sram_limit_kib": limit * 2})
    return Built(case, options, made, boot(made.blob, made.target))


def differing(found: Built) -> dict[str, int]:
    """Return, for each output that differs from the reference, in how many elements."""
    expected, actual = found.compilation.reference(found.case.inputs), found.run()
    wrong = {name: int((actual[name] != expected[name]).sum()) for name in expected}
    return {name: count for name, count in wrong.items() if count}


def comes_back(raw: bytes) -> str:
    """Return the text of a blob for a target of the toolchain; it gives the same bytes."""
    target = device_of(raw, None)
    text = "\n".join(disassemble(read_blob(raw, target=target).program, target))
    assert assemble(text.encode()).blob == raw
    return text


def same(left: dict[str, Array], right: dict[str, Array]) -> bool:
    """Return whether two runs gave the same outputs."""
    return list(left) == list(right) and all(np.array_equal(left[n], right[n]) for n in left)
