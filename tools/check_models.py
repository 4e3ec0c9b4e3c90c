"""Whether every model gives the same numbers at every level: ``make check-all``.

``python -m tools.check_models [--short] [--precision P] [MODEL ...]``. For each model and precision
the quantised graph's reference is computed once; then each -O level and target must give its
numbers, tensor by tensor, from the tasks (L3) and from the blob (L4), in which the sanitizer must
find nothing.
--short leaves out models of 50 million MACs and more, the float precisions, and most pairs of level
and target. A target that a model does not fit is said so.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from npuabi.target import load_target
from npuc.check.inputs import choose_inputs
from npuc.check.levels import Compiled, compiled, float_graph, recompiled, run_levels
from npuc.check.report import Report, report_of
from npuc.diagnostics import CompileError
from npuc.driver import Options
from npuc.frontend.source import load_source
from npuc.frontend.text import parse_file
from npufw.sanitize import sanitize_blob
from tools.bench import sums

__all__ = [
    "ALL",
    "MOST_MACS",
    "SHORT",
    "Finding",
    "Pair",
    "check_model",
    "main",
    "models",
]

MODELS = Path(__file__).parents[1] / "models"
MOST_MACS = 50_000_000
"""MACs below which a model is checked in the short form."""

Pair = tuple[str, int]
"""A target and an -O level."""

_PAIRS = tuple(
    (target, level) for target in ("edge", "edge-quad", "tiny") for level in (2, 0, 1, 3)
)
ALL: dict[str, tuple[Pair, ...]] = dict.fromkeys(("int8", "int16", "fp16", "fp32"), _PAIRS)
SHORT: dict[str, tuple[Pair, ...]] = {
    "int8": (("edge", 2), ("edge", 0), ("edge", 1), ("edge", 3), ("edge-quad", 2), ("tiny", 2)),
    "int16": (("edge", 2), ("tiny", 0)),
}
"""By precision. The first pair computes the reference; levels and targets change no number."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one model, precision, target and level gave; ``refusal`` when it was not compiled.

    ``faults`` are the sanitizer's lines.
    """

    model: str
    precision: str
    pair: Pair
    report: Report | None = None
    faults: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether the levels agree and the sanitizer found nothing, or nothing was compiled."""
        return self.report is None or (self.report.agrees and not self.faults)

    def __str__(self) -> str:
        target, level = self.pair
        where = f"{self.model} {self.precision} {target} -O{level}"
        if self.report is None:
            return f"{where}: does not fit: {self.refusal}"
        if self.is_sound:
            return f"{where}: {len(self.report.rows)} tensors agree"
        parted = [f"{p.level} parts at {p.op} %{p.name}" for p in self.report.partings]
        return f"{where}: {'; '.join([*parted, *self.faults, self.report.stopped or ''])}"


def models(most_macs: int | None = None) -> list[Path]:
    """Return the graph texts of the models, those with at most that many MACs."""
    found = sorted(MODELS.glob("*.txt"))
    return [path for path in found if most_macs is None or _macs(path) < most_macs]


def _macs(path: Path) -> int:
    """Return the multiply-accumulates of a model's convolutions and dense layers."""
    return sum(product.macs for product in sums(parse_file(path)))


def check_model(path: Path, precision: str, pairs: Sequence[Pair]) -> Iterator[Finding]:
    """Yield what each pair of target and level gives; the first must fit."""
    target, level = pairs[0]
    source = load_source(path)
    options = Options(target=target, level=level, precision=precision)
    inputs = choose_inputs(float_graph(source, options), source, options, ()).first
    made = compiled(source, options)
    first = run_levels(made, inputs)
    found = Finding(model=path.stem, precision=precision, pair=pairs[0])
    yield replace(found, report=report_of(first), faults=_faults(made))
    for pair in pairs[1:]:
        try:
            again = recompiled(made, load_target(pair[0]), pair[1])
        except CompileError as error:
            yield replace(found, pair=pair, refusal=error.diagnostics[0].text)
            continue
        report = report_of(run_levels(again, inputs, above=first))
        yield replace(found, pair=pair, report=report, faults=_faults(again))


def _faults(made: Compiled) -> tuple[str, ...]:
    return tuple(sanitize_blob(made.compilation.blob, made.compilation.target).lines())


def main() -> int:
    """Print a line for each model, precision, target and level; return 1 when one differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help="names of models; all of them if none is given")
    parser.add_argument("--short", action="store_true", help="small models, few pairs")
    parser.add_argument("--precision", action="append", choices=list(ALL), help="only these")
    chosen = parser.parse_args()
    bad = 0
    for path in models(MOST_MACS if chosen.short else None):
        if chosen.models and path.stem not in chosen.models:
            continue
        for precision, pairs in (SHORT if chosen.short else ALL).items():
            if chosen.precision and precision not in chosen.precision:
                continue
            start = time.monotonic()
            for finding in check_model(path, precision, pairs):
                print(f"{finding} ({time.monotonic() - start:.1f} s)", flush=True)
                start = time.monotonic()
                bad += not finding.is_sound
    print(f"{bad} differ" if bad else "all agree")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
