"""What passes know beside the graph, and what they tell the user.

Invariant: a pass reads its inputs here and from its own fields, nowhere else; so a compilation is
a function of graph, passes and context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from npuabi.enums import Precision, Rounding
from npuabi.progress import Progress, silent
from npuabi.target import Target, load_target
from npuc.diagnostics import Diagnostic
from npuc.ir.core import Array

__all__ = ["PassContext"]


@dataclass(kw_only=True)
class PassContext:
    """The options of one compilation and the notes of its passes."""

    target: Target = field(default_factory=lambda: load_target("edge"))
    rounding: Rounding = Rounding.DOUBLE
    precision: Precision = Precision.INT8
    """Of every float op that ``keep`` does not name."""
    keep: Mapping[str, Precision] = field(default_factory=dict)
    """Precisions of single ops, by the name of a result."""
    level: int = 2
    """The -O level: tiling, placement and order only, never a number."""
    folder: Path = field(default_factory=Path)
    """Where the graph's files lie."""
    calibration: Mapping[str, Array] | None = None
    """Arrays by input name; the first axis runs over samples."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Dims that the user binds, by input name."""
    percentile: float = 100.0
    """Share of the calibration values that a range covers, in percent; 100 is min and max."""
    no_fuse: bool = False
    """Leave every op on its own; for study, as it changes numbers."""
    sram_limit: int | None = None
    """Bytes of SRAM that may be used; None for all."""
    sram_needed: int | None = None
    """The least budget in bytes with which ``tile`` would do what it did last."""
    fused: dict[str, str] = field(default_factory=dict)
    """By a result's name: that of the op that absorbed its op, or that its op is a part of."""
    decisions: dict[str, list[str]] = field(default_factory=dict)
    """By a result's name: what passes decided about its op, in words, for ``npuc why``."""
    stored: dict[str, str] = field(default_factory=dict)
    """By a graph output's name: that of the value before the conversion at the edge."""
    ports: dict[str, str] = field(default_factory=dict)
    """By a graph output's name: that under which the host knows it, where it is another."""
    origins: dict[str, str] = field(default_factory=dict)
    """By a float value's name: where its quantisation parameters come from, in words."""
    notes: list[Diagnostic] = field(default_factory=list)
    progress: Progress = silent
    """Told of passes and, as ``calibrate``, of samples."""

    @property
    def sram_bytes(self) -> int:
        """Bytes of SRAM that the compiler may use."""
        return min(self.target.sram_bytes, self.sram_limit or self.target.sram_bytes)

    def decide(self, name: str, text: str) -> None:
        """Remember what was decided about the op that gives *name*."""
        self.decisions.setdefault(name, []).append(text)

    def note_fusion(self, absorbed: str, survivor: str) -> None:
        """Remember that what gave *absorbed* is now part of the op whose result is *survivor*."""
        if absorbed != survivor:
            self.fused[absorbed] = survivor
