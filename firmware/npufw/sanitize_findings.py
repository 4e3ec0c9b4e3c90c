"""What the sanitizer finds: kinds, accesses, and findings that many TOAs of the same ops share.

Invariant: a finding names every descriptor that takes part in it, with its op and source line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from npuabi.container import symbol_at
from npuabi.errors import ErrorCode
from npuabi.records import NO_TENSOR
from npufw.boot import Image
from npufw.kernels.base import OPERANDS
from npufw.sanitize_pieces import Extent

__all__ = [
    "HOST_READS",
    "HOST_WRITES",
    "OUTPUT",
    "Access",
    "Finding",
    "Findings",
    "Kind",
    "bytes_text",
]

HOST_WRITES = -1
"""The position of the host that writes the first input, before the ring; others stand below."""
HOST_READS = 1 << 32
"""The position of the host that reads the outputs, after the ring."""

_MOST = 100
OUTPUT = OPERANDS.index("output")
"""The operand that is written; the host writes inputs through it too."""


class Kind(Enum):
    """A kind of finding and what it means."""

    UNINITIALISED = "uninitialised", "a TOA reads bytes that nobody has written before it"
    OVERWRITE = "overwrite", "bytes are overwritten before the first read of who wrote them"
    USE_AFTER_FREE = "use_after_free", "bytes are read again after another tensor reused them"
    OUT_OF_BOUNDS = "out_of_bounds", "a tensor reaches into another one, or beyond its memory"
    STALE = "stale", "a read mixes a slot's new bytes with what an older write left in it"
    MISMATCH = "mismatch", "writer and reader of a tensor disagree on how it lies in memory"
    RACE = "race", "TOAs share bytes, one writes, and no waits order them"
    LOST = "lost", "a TOA waits for another whose bytes neither it nor anybody else reads"
    MISALIGNED = "misaligned", "a base that its record, its layout or the DMA does not allow"
    REFUSED = "refused", "any other rule of boot that a record breaks"

    def __init__(self, word: str, meaning: str) -> None:
        self.word = word
        self.meaning = meaning


@dataclass(frozen=True, slots=True)
class Access:
    """A TOA at a ring position, or the host, that touches a tensor through an operand."""

    position: int
    operand: int
    tensor: int

    @property
    def writes(self) -> bool:
        """Whether it writes the tensor."""
        return self.operand == OUTPUT


@dataclass(slots=True)
class Finding:
    """One fault: its kind and text, who takes part (the one that shows it first), which bytes.

    ``times`` counts the findings of this kind between operands of the same ops, this one included.
    ``code`` is why boot refuses it.
    """

    kind: Kind
    text: str
    accesses: tuple[Access, ...]
    extent: Extent | None
    code: ErrorCode | None = None
    times: int = 1


@dataclass(slots=True)
class Findings:
    """Findings about *image*, grouped; more than 100 groups are counted and not kept."""

    image: Image
    kept: list[Finding] = field(default_factory=list)
    dropped: int = 0
    _groups: dict[object, Finding] = field(default_factory=dict)

    def add(
        self,
        kind: Kind,
        text: str,
        accesses: Sequence[Access],
        extent: Extent | None = None,
        *,
        code: ErrorCode | None = None,
        group: object = None,
    ) -> None:
        """Add a finding; *group*, by default the ops and operands, says which are one."""
        key = (kind, self.group_of(accesses)) if group is None else group
        if not self.again(key):
            made = Finding(kind, text, tuple(accesses), extent, code)
            self._groups[key] = made
            self.kept.append(made)

    def again(self, group: object) -> bool:
        """Count one more finding of *group*; False when there is none and it has a place."""
        known = self._groups.get(group)
        if known is not None:
            known.times += 1
        elif len(self.kept) == _MOST:
            self.dropped += 1
        else:
            return False
        return True

    def group_of(self, accesses: Sequence[Access]) -> tuple[object, ...]:
        """Return what is the same for alike accesses of a program: ops and operands."""
        return tuple((self._op(access), access.operand) for access in accesses)

    def _op(self, access: Access) -> int:
        if not 0 <= access.position < HOST_READS:
            return -1
        return self.image.steps[access.position].toa.op

    def who(self, access: Access) -> str:
        """Return ``TOA 9 (conv %joined, digits.txt:27:13)``, or ``the host``."""
        facts = self.facts(access)
        if facts["toa"] is None:
            return "the host"
        place = f", {facts['file']}:{facts['line']}:{facts['column']}" if facts["file"] else ""
        return f"TOA {facts['toa']} ({facts['opcode']} %{facts['op']}{place})"

    def reads(self, access: Access, extent: Extent) -> str:
        """Return ``TOA 9 (...) reads 16 bytes of sram at 0x200 as r1``."""
        return f"{self.who(access)} reads {bytes_text(extent)} as {self.name(access.tensor)}"

    def name(self, tensor: int) -> str:
        """Return the name of a tensor as texts show it."""
        if tensor == NO_TENSOR:
            return ""
        record = self.image.program.tensors[tensor]
        return symbol_at(self.image.program.symbols, record.symbol) or f"tensor {tensor}"

    def facts(self, access: Access) -> dict[str, Any]:
        """Return what JSON says about an access."""
        program, tensor = self.image.program, self.name(access.tensor)
        if not 0 <= access.position < HOST_READS:
            return {"toa": None, "tensor": tensor}
        toa = self.image.steps[access.position].toa
        source = program.sources[toa.op]
        names = {k: symbol_at(program.symbols, getattr(source, k)) for k in ("symbol", "file")}
        return {
            "toa": self.image.steps[access.position].index,
            "ring": access.position,
            "opcode": toa.opcode.name.lower(),
            "operand": OPERANDS[access.operand],
            "tensor": tensor,
            "op": names["symbol"],
            "file": names["file"],
            "line": source.line,
            "column": source.column,
        }

    def summary(self) -> str:
        """Return how many there are: ``1 race, 2 uninitialised``."""
        counts = Counter(finding.kind.word for finding in self.kept)
        return ", ".join(f"{count} {word}" for word, count in counts.items())

    def lines(self) -> Iterator[str]:
        """Yield the findings for people."""
        for finding in self.kept:
            times = f" ({finding.times} times)" if finding.times > 1 else ""
            yield f"{finding.kind.word}{times}: {finding.text}"
        if self.dropped:
            yield f"and {self.dropped} more"

    def as_list(self) -> list[dict[str, Any]]:
        """Return the findings for JSON."""
        return [
            {
                "kind": finding.kind.word,
                "times": finding.times,
                "code": finding.code.name.lower() if finding.code else None,
                "text": finding.text,
                "bytes": _bytes(finding.extent),
                "toas": [self.facts(access) for access in finding.accesses],
            }
            for finding in self.kept
        ]


def bytes_text(extent: Extent) -> str:
    """Return ``16 bytes of sram at 0x200``, or between which addresses they lie."""
    text = f"{extent.count:,} bytes of {extent.space.name.lower()}"
    if extent.count == extent.end - extent.first:
        return f"{text} at 0x{extent.first:x}"
    return f"{text} between 0x{extent.first:x} and 0x{extent.end:x}"


def _bytes(extent: Extent | None) -> dict[str, Any] | None:
    if extent is None:
        return None
    space = extent.space.name.lower()
    return {"space": space, "first": extent.first, "end": extent.end, "count": extent.count}
