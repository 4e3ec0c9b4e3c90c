"""What differs between two blobs, by meaning: op by op of the source, not byte by byte.

Invariant: programs that differ are never reported as equal. What a compilation moves about anyway
(addresses, waits, cycles of single TOAs) is counted, and shown when asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from npuabi.container import Program, symbol_at
from npuabi.enums import Direction
from npuabi.records import TableHeader, TensorDescriptor, Toa
from npuabi.target import Target
from npufw.asm_form import PARTS, Part, fields_of
from npufw.asm_lines import Label
from npufw.asm_show import shown
from npufw.diff_facts import PLACEMENT, OpFacts, ops_of
from npufw.diff_ops import Change, op_changes, placement_changes

__all__ = ["Difference", "OpDifference", "compare"]

_COUNTS = ("tensor_count", "toa_count", "constant_bytes", "table_crc", "cycles")
"""Fields of the table header that are totals here."""

_Pairs = Sequence[tuple[OpFacts, OpFacts]]


@dataclass(frozen=True, slots=True)
class OpDifference:
    """What differs in one op of the source."""

    name: str
    op: str
    line: int
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        where = f"{self.op} {self.name} (line {self.line})"
        return f"{where}: {'; '.join(map(str, self.changes))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """All that differs between programs a and b; ``hidden`` counts ops by what is not shown."""

    equal: bool
    changes: tuple[Change, ...] = ()
    ops: tuple[OpDifference, ...] = ()
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    reordered: tuple[str, ...] = ()
    hidden: Mapping[str, int] = field(default_factory=dict)
    totals: tuple[Change, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the difference for JSON."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yield the difference for people."""
        if self.equal:
            yield "the programs are equal"
            return
        yield from map(str, self.changes)
        yield from map(str, self.ops)
        for word, names in (("a", self.only_a), ("b", self.only_b)):
            yield from (f"only in {word}: {name}" for name in names)
        if self.reordered:
            yield f"in another order: {', '.join(self.reordered)}"
        if self.hidden:
            counts = ", ".join(f"{what} of {_ops(n)}" for what, n in self.hidden.items())
            yield f"not shown: {counts} (--addresses shows them)"
        told = (self.changes, self.ops, self.only_a, self.only_b, self.reordered, self.hidden)
        if not any(told):
            yield "no op differs: only the order of records or names does, or bytes nobody reads"
        yield "; ".join(f"{t.what} {t.before}" if t.before == t.after else str(t)
                        for t in self.totals)  # fmt: skip


def _ops(count: int) -> str:
    return f"{count} op" if count == 1 else f"{count} ops"


def compare(
    a: tuple[Program, Target], b: tuple[Program, Target], *, addresses: bool = False
) -> Difference:
    """Return what differs from program a to b, each with its target.

    With *addresses* the ops' changes hold what is only counted otherwise.
    """
    if a[0] == b[0]:
        return Difference(equal=True)
    before, after = ops_of(*a), ops_of(*b)
    shared = [label for label in before if label in after]
    pairs = [(before[label], after[label]) for label in shared]
    changes = (*_header(a[0], b[0]), *_lists(a[0], b[0]), *_source_map(pairs))
    only_a = tuple(_named(before[label]) for label in before if label not in after)
    only_b = tuple(_named(after[label]) for label in after if label not in before)
    reordered = tuple(map(str, _moved(pairs)))
    return Difference(
        equal=False,
        changes=changes,
        ops=_op_differences(pairs, placed=addresses),
        only_a=only_a,
        only_b=only_b,
        reordered=reordered,
        hidden={} if addresses else _hidden(pairs),
        totals=tuple(_totals(a[0], b[0])),
    )


def _op_differences(pairs: _Pairs, *, placed: bool) -> tuple[OpDifference, ...]:
    found = []
    for a, b in pairs:
        changes = list(op_changes(a, b))
        changes += [change for _, change in placement_changes(a, b)] if placed else []
        if changes:
            found.append(OpDifference(str(a.label), a.kind or "op", a.line, tuple(changes)))
    return tuple(found)


def _hidden(pairs: _Pairs) -> dict[str, int]:
    """Return in how many ops placement differs, by what."""
    groups = [{group for group, _ in placement_changes(a, b)} for a, b in pairs]
    return dict(sorted(Counter(g for group in groups for g in group).items()))


def _named(facts: OpFacts) -> str:
    return f"{facts.kind or 'op'} {facts.label} (line {facts.line})"


# --- what is not an op's ------------------------------------------------------------------------


def _header(a: Program, b: Program) -> Iterator[Change]:
    for part in PARTS.values():
        if part.many:
            continue
        ((one,), (other,)) = part.of(a), part.of(b)
        for name, wire in fields_of(part.kind).items():
            values = getattr(one, name), getattr(other, name)
            if values[0] != values[1] and (part.kind is not TableHeader or name not in _COUNTS):
                yield Change(f"{part.keyword} {name}", *(shown(name, wire, v) for v in values))


def _lists(a: Program, b: Program) -> Iterator[Change]:
    """Yield what differs in the records that stand apart from ops: the interface."""
    for part in PARTS.values():
        if not part.many or part.labelled or part.kind is Toa:
            continue
        one, other = _by_name(part, a), _by_name(part, b)
        for name in {**one, **other}:
            if name not in other or name not in one:
                yield Change(f"{part.keyword} {name}".strip(), *_presence(name in one))
                continue
            for key in one[name]:
                if one[name][key] != other[name].get(key):
                    what = f"{part.keyword} {name}".strip() + f": {key}"
                    yield Change(what, one[name][key], other[name].get(key, "none"))
        if list(one) != list(other) and one.keys() == other.keys():
            yield Change(f"{part.keyword} order", ", ".join(one), ", ".join(other))


def _presence(first: bool) -> tuple[str, str]:
    return ("there", "gone") if first else ("missing", "there")


def _by_name(part: Part, program: Program) -> dict[str, dict[str, str]]:
    """Return the fields of each record by its name; of a tensor that it names, what it is."""
    found: dict[str, dict[str, str]] = {}
    for record in part.of(program):
        fields: dict[str, str] = {}
        name = ""
        for key, wire in fields_of(part.kind).items():
            value = getattr(record, key)
            if wire.points == "symbols":
                name = str(Label(symbol_at(program.symbols, value)))
            elif wire.points == "tensors":
                tensor = program.tensors[value]
                fields |= {
                    f"{key} {n}": shown(n, w, getattr(tensor, n))
                    for n, w in fields_of(TensorDescriptor).items()
                    if n not in PLACEMENT
                }
            else:
                fields[key] = shown(key, wire, value)
        words = [fields[k] for k, w in fields_of(part.kind).items() if w.enum is Direction]
        found[" ".join([*words, name])] = fields
    return found


def _source_map(pairs: _Pairs) -> Iterator[Change]:
    moved = [a for a, b in pairs if (a.file, a.line, a.column) != (b.file, b.line, b.column)]
    if moved:
        yield Change(f"source map: places of {_ops(len(moved))}", "", "")


def _moved(pairs: _Pairs) -> list[Label]:
    """Return the fewest ops without which both programs begin their ops in one order."""
    running = sorted((p for p in pairs if min(p[0].first, p[1].first) >= 0),
                     key=lambda p: p[0].first)  # fmt: skip
    last: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, (_, other) in enumerate(running):
        at = bisect_left(last, other.first)
        last[at : at + 1], ends[at : at + 1] = [other.first], [index]
        before.append(ends[at - 1] if at else -1)
    kept: set[int] = set()
    index = ends[-1] if ends else -1
    while index >= 0:
        kept.add(index)
        index = before[index]
    return [pair[0].label for i, pair in enumerate(running) if i not in kept]


def _totals(a: Program, b: Program) -> Iterator[Change]:
    for what, one, other in (
        ("TOAs", len(a.toas), len(b.toas)),
        ("tensors", len(a.tensors), len(b.tensors)),
        ("bytes of constants", len(a.constants), len(b.constants)),
        ("cycles", a.header.cycles, b.header.cycles),
    ):
        yield Change(what, f"{one:,}", f"{other:,}")
