"""What differs in one op between two programs.

Invariant: a fact that follows from another cut into stripes is not reported beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npufw.diff_facts import Dims, OpFacts

_FOLLOW_PRECISION = ("dtype", "zero_point", "scale", "clamp", "flags", "parameters dims")
"""Fields that another precision changes by itself."""

__all__ = ["Change", "op_changes", "placement_changes"]


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that differs: what, its value before and after, and in how much of the op."""

    what: str
    before: str
    after: str
    note: str = ""

    def __str__(self) -> str:
        values = f" {self.before} -> {self.after}" if self.before or self.after else ""
        return f"{self.what}{values}{self.note}"


def op_changes(a: OpFacts, b: OpFacts) -> Iterator[Change]:
    """Yield what differs in what an op does, and in which stripes and banks."""
    if a.kind != b.kind:
        yield Change("op", a.kind or "none", b.kind or "none")
    for what, one, other in (
        ("opcode", _words(a.cuts), _words(b.cuts)),
        ("mode", a.mode, b.mode),
        ("precision", _words(a.precisions), _words(b.precisions)),
    ):
        if one != other and (what != "opcode" or _computes(a) != _computes(b)):
            yield Change(what, one, other)
    yield from _stripes(a, b)
    yield from _banks(a.banks, b.banks)
    yield from _settings(a, b)
    yield from _constants(a, b)


def _words(words: Iterable[str]) -> str:
    return "+".join(words) or "none"


def _computes(facts: OpFacts) -> set[str]:
    return {opcode for opcode in facts.cuts if not opcode.startswith("dma_")}


def _stripes(a: OpFacts, b: OpFacts) -> Iterator[Change]:
    if len(a.stripes) != len(b.stripes):
        yield Change("stripes", str(len(a.stripes)), str(len(b.stripes)))
    elif a.stripes != b.stripes:
        yield Change("stripes", *_first_of(a.stripes, b.stripes))
    for what in ("partial_sums", "loads", "stores"):
        one, other = getattr(a, what), getattr(b, what)
        if one != other:
            yield Change(what.replace("_", " "), str(one), str(other))


def _first_of(a: Sequence[Dims], b: Sequence[Dims]) -> tuple[str, str]:
    """Return the first stripes that differ, with their count."""
    pair = next(pair for pair in zip(a, b, strict=True) if pair[0] != pair[1])
    one, other = (f"{len(a)} of {'x'.join(map(str, dims))}" for dims in pair)
    return one, other


def _banks(a: Mapping[str, set[int]], b: Mapping[str, set[int]]) -> Iterator[Change]:
    if a == b:
        return
    one, other = (set().union(*banks.values()) for banks in (a, b))
    if one != other:
        yield Change("banks", _ranges(one), _ranges(other))
        return
    for role in sorted(a.keys() | b.keys()):
        if a.get(role, set()) != b.get(role, set()):
            yield Change(f"banks of {role}", _ranges(a.get(role, ())), _ranges(b.get(role, ())))


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ``0-3,7``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"


def _settings(a: OpFacts, b: OpFacts) -> Iterator[Change]:
    """Yield fields that differ: TOA by TOA where both cut alike, else those of a whole op."""
    for opcode in (word for word in a.values if word in b.values):
        one, other = a.values[opcode], b.values[opcode]
        alike = a.cuts.get(opcode) == b.cuts.get(opcode)
        for name in {**one, **other}:
            before, after = one.get(name, []), other.get(name, [])
            if before == after:
                continue
            what = name if not opcode.startswith("dma_") else f"{opcode} {name}"
            if a.precisions != b.precisions and what.endswith(_FOLLOW_PRECISION):
                continue
            if alike and len(before) == len(after):
                yield _each(what, before, after)
            elif len(set(before)) == len(set(after)) == 1 and before[0] != after[0]:
                if not name.endswith("dims"):
                    yield Change(what, before[0], after[0])
            elif not before or not after:
                yield Change(what, (before or ["none"])[0], (after or ["none"])[0])


def _each(what: str, before: Sequence[str], after: Sequence[str]) -> Change:
    pairs = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    note = "" if len(pairs) == len(before) else f" in {len(pairs)} of {len(before)} TOAs"
    if len(set(pairs)) > 1:
        note = f", and otherwise{note}" if note else ", and otherwise"
    return Change(what, *pairs[0], note)


def _constants(a: OpFacts, b: OpFacts) -> Iterator[Change]:
    one, other = a.constant_bytes(), b.constant_bytes()
    if one == other:
        return
    shared = a.parameters if a.precisions == b.precisions else {}
    for name, before in shared.items():
        after = b.parameters.get(name, [])
        if set(before) != set(after) and len(set(before)) == len(set(after)) == 1:
            yield Change(f"parameters {name}", before[0], after[0])
    if len(one) != len(other):
        yield Change("bytes of constants", f"{len(one):,}", f"{len(other):,}")
        return
    count = int(np.count_nonzero(np.frombuffer(one, "u1") != np.frombuffer(other, "u1")))
    yield Change(f"constants differ in {count:,} of {len(one):,} bytes", "", "")


def placement_changes(a: OpFacts, b: OpFacts) -> Iterator[tuple[str, Change]]:
    """Yield what a compilation moves about, each with its group: addresses, waits, cycles."""
    for role in (word for word in a.places if word in b.places):
        pairs = zip(a.places[role], b.places[role], strict=False)
        moved = [pair for pair in pairs if pair[0] != pair[1]]
        if moved:
            yield "addresses", Change(f"{role} at", *moved[0])
    if a.cuts != b.cuts:
        return
    if a.waits != b.waits:
        count = sum(one != other for one, other in zip(a.waits, b.waits, strict=True))
        yield "waits", Change(f"other waits in {count} of {len(a.waits)} TOAs", "", "")
    if a.cycles != b.cycles:
        cycles = (f"{sum(f.cycles):,}" for f in (a, b))
        yield "cycles", Change("cycles of its TOAs", *cycles)
