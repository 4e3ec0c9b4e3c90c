"""Random graphs, compiled: how each seed's options are drawn, and whether the outputs agree.

Options walk through all targets, levels and rounding modes with the seed, so that any run of 36
seeds meets every combination; SRAM limits are drawn. Each further 36 seeds have another precision.
Integers agree in every bit; floats lie within the tolerance that a blob's known answer gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.container import read_blob
from npuabi.enums import Precision
from npuc.diagnostics import CompileError
from npuc.driver import Compilation, Options, compile_graph
from npuc.ir.const import Const
from npuc.ir.interpreter import Alter, evaluate
from npuc.known_answer import nudge, tolerance
from npufw.asm import assemble
from npufw.boot import Image, boot, device_of
from npufw.disasm import disassemble
from npufw.engine import Engine
from tests.random_graphs import Case, random_case

__all__ = ["OVER_BUDGET", "Built", "built", "comes_back", "compiled", "differing", "off", "same"]

OVER_BUDGET = "bytes of SRAM"
"""Words of the refusal of a graph that does not fit the SRAM."""

_TARGETS = ("edge", "tiny", "edge-quad")
_ROUNDINGS = ("double", "single", "even")
_PRECISIONS = ("int8", "int16", "fp16", "fp32")
_MIXES = (("int8",), ("int16",), ("int8", "int16"), ("fp16",), ("fp32",), _PRECISIONS)
"""What ops may be computed in: the first unless one is kept in another."""
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
    case = random_case(random, ops=ops)
    precisions = _precisions(case, random, _MIXES[seed // 36 % len(_MIXES)])
    return compiled(case, **{**drawn, **precisions, **changes})


def _precisions(case: Case, random: Random, mix: Sequence[str]) -> dict[str, Any]:
    """Return a precision, and others for some ops where *mix* has several."""
    if len(mix) == 1:
        return {"precision": mix[0]}
    ops = [op for op in case.graph().ops if not isinstance(op, Const)]
    names = [value.name for op in ops for value in op.results]
    keep = {name: random.choice(mix) for name in names if random.randint(0, 2) == 0}
    return {"precision": random.choice(mix), "keep": keep}


def compiled(case: Case, **changes: Any) -> Built:
    """Return *case* compiled with fields of Options, a limit that is too low doubled.

    What is more than the whole SRAM of tiny goes to edge: some moves need all of a tensor.
    """
    options = Options(calibrate=case.calibrate, **changes)
    try:
        made = compile_graph(case.graph(), options)
    except CompileError as error:
        limit = options.sram_limit_kib
        if OVER_BUDGET not in error.diagnostics[0].text:
            raise
        if limit is None:
            if options.target != "tiny":
                raise
            return compiled(case, **{**changes, "target": "edge"})
        if limit > 100:
            return compiled(case, **{**changes, "sram_limit_kib": None})
        return compiled(case, **{**changes, "sram_limit_kib": limit * 2})
    return Built(case, options, made, boot(made.blob, made.target))


def differing(found: Built) -> dict[str, int]:
    """Return, for each output that is off, in how many elements."""
    return off(found.compilation, found.case.inputs, found.run())


def off(
    made: Compilation, inputs: Mapping[str, Array], actual: Mapping[str, Array]
) -> dict[str, int]:
    """Return in how many elements each of the *actual* outputs is off, unless in none.

    Programs on codes give the reference's bits. Others may be off by their tolerance, and a code
    that they quantise by one step more.
    """
    expected = _frames(made, inputs)
    if made.program.header.precision in (Precision.INT8, Precision.INT16):
        wrong = {name: int((actual[name] != expected[name]).sum()) for name in expected}
        return {name: count for name, count in wrong.items() if count}
    moved = _frames(made, inputs, alter=nudge())
    bounds = {name: tolerance(expected[name], moved[name], made.graph) for name in expected}
    far = {name: _far(actual[name], expected[name], bound) for name, bound in bounds.items()}
    return {name: count for name, count in far.items() if count}


def _frames(
    made: Compilation, inputs: Mapping[str, Array], alter: Alter | None = None
) -> dict[str, Array]:
    """Return the reference's outputs for the compiled batches of *inputs*, one after the other."""
    sizes = {v.name: v.tensor.dims[0] for v in made.graph.inputs if v.tensor.rank}
    runs = max((len(inputs[name]) // size for name, size in sizes.items()), default=1)
    states: dict[str, Array] = {}
    found: dict[str, list[Array]] = {}
    for run in range(runs):
        batch = {n: a[run * sizes[n] :][: sizes[n]] if n in sizes else a for n, a in inputs.items()}
        made_of = evaluate(
            made.graph, batch, made.rounding, states=states, stored=True, alter=alter
        )
        for name, array in made_of.items():
            found.setdefault(made.ports.get(name, name), []).append(array)
    return {name: _joined(arrays) for name, arrays in found.items()}


def _joined(frames: Sequence[Array]) -> Array:
    if len(frames) == 1:
        return frames[0]
    return np.concatenate(frames) if frames[0].ndim else np.stack(frames)


def _far(actual: Array, expected: Array, bound: float) -> int:
    same = (actual == expected) | ((actual != actual) & (expected != expected))
    with np.errstate(invalid="ignore"):
        distance = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    step = 1.0 if expected.dtype.kind == "i" else 0.0
    return int((~same & ~(distance <= bound + step)).sum())


def comes_back(raw: bytes) -> str:
    """Return the text of a blob for a target of the toolchain; it gives the same bytes."""
    target = device_of(raw, None)
    text = "\n".join(disassemble(read_blob(raw, target=target).program, target))
    assert assemble(text.encode()).blob == raw
    return text


def same(left: dict[str, Array], right: dict[str, Array]) -> bool:
    """Return whether two runs gave the same outputs; what is no number equals itself."""
    pairs = ((left[name], right[name]) for name in left)
    return list(left) == list(right) and all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs
    )
