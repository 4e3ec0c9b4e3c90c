"""What records of one tensor must agree on.

Writer and reader agree on element type and scale. They may see the dims in two ways, for a matrix's
rows may be written plainly and read as bricks; but then all TOAs of the reading op see them in that
way: through the same layout and strides, at parts whose rows do not wrap.
"""

from __future__ import annotations

from npuabi.enums import DType
from npuabi.records import NO_TENSOR, TensorDescriptor
from npufw.memory import geometry_of
from npufw.sanitize_findings import OUTPUT, Access, Findings, Kind

__all__ = ["Views", "values_differ"]


class Views:
    """How the TOAs of each op see the tensors that they read."""

    def __init__(self, findings: Findings) -> None:
        self._findings, self._image = findings, findings.image
        self._tensors = findings.image.program.tensors
        self._odd: list[tuple[Access, Access]] = []
        self._verdicts: dict[tuple[int, int], str] = {}

    def check(self, access: Access, writer: Access) -> None:
        """Look at a TOA's read of what *writer* wrote under the same name."""
        if self._difference(access.tensor, writer.tensor):
            self._odd.append((access, writer))

    def report(self) -> None:
        """Report reads that see a tensor neither as its writer does nor as others of their op."""
        views: dict[object, list[Access]] = {}
        for position, step in enumerate(self._image.steps) if self._odd else ():
            for operand, tensor in enumerate(step.toa.tensors[:OUTPUT]):
                if tensor != NO_TENSOR:
                    access = Access(position, operand, tensor)
                    views.setdefault(self._view(access), []).append(access)
        for access, writer in self._odd:
            alike = views[self._view(access)]
            for other in (*alike[:2], alike[-1]):
                difference = self._difference(access.tensor, other.tensor)
                if difference:
                    self._add(access, writer, other, difference)
                    break

    def _view(self, access: Access) -> tuple[object, ...]:
        """Return what is the same for the TOAs that must see a tensor alike.

        That is what they write, too: an op may read a tensor in two ways, as a product of a tensor
        with itself does.
        """
        toa, record = self._image.steps[access.position].toa, self._tensors[access.tensor]
        slot = self._tensors[toa.tensors[OUTPUT]].symbol
        return toa.op, toa.opcode, access.operand, record.symbol, record.space, slot

    def _difference(self, one: int, other: int) -> str:
        key = one, other
        if key not in self._verdicts:
            self._verdicts[key] = _views_differ(self._tensors[one], self._tensors[other])
        return self._verdicts[key]

    def _add(self, access: Access, writer: Access, other: Access, difference: str) -> None:
        who = self._findings.who
        text = (
            f"{who(access)} reads {self._findings.name(access.tensor)} with {difference} of "
            f"{who(other)}, which belongs to the same op; {who(writer)} wrote it"
        )
        self._findings.add(Kind.MISMATCH, text, (access, other, writer))


def values_differ(written: TensorDescriptor, read: TensorDescriptor) -> str:
    """Return how two records differ about what an element is worth; "" when they agree.

    Raw bytes (u8) agree with everything.
    """
    if DType.U8 in (written.dtype, read.dtype):
        return ""
    if written.dtype is not read.dtype:
        return f"dtype {read.dtype.text}, not {written.dtype.text}"
    one, other = ((t.scale, t.zero_point) for t in (read, written))
    return "" if one == other else f"scale and zero point {one}, not {other}"


def _views_differ(one: TensorDescriptor, other: TensorDescriptor) -> str:
    """Return in what *one* sees the tensor otherwise than *other*; "" when both see it alike.

    Raw bytes (u8) are seen alike by all.
    """
    if DType.U8 in (one.dtype, other.dtype):
        return ""
    if one.layout is not other.layout:
        return f"layout {one.layout.name.lower()}, not the {other.layout.name.lower()}"
    counts = zip(geometry_of(one).counts, geometry_of(other).counts, strict=True)
    strides = zip(one.strides, other.strides, strict=True)
    if any(a > 1 and b > 1 and s != t for (a, b), (s, t) in zip(counts, strides, strict=True)):
        return f"strides {one.strides}, not the {other.strides}"
    return "" if _rows_agree(one, other) else "rows that begin at other places than those"


def _rows_agree(one: TensorDescriptor, other: TensorDescriptor) -> bool:
    """Return whether both may be parts of one tensor, whose rows, planes and images do not wrap.

    All that lies below a stride must fit between two multiples of it, counted from some place
    that suits both: the start of one of them.
    """
    counts = geometry_of(one).counts, geometry_of(other).counts
    steps = [
        (one.strides[dim] if a > 1 else other.strides[dim], a, b)
        for dim, (a, b) in enumerate(zip(*counts, strict=True))
        if max(a, b) > 1
    ]
    mine = theirs = geometry_of(one).inner_bytes
    levels = []
    for stride, my_count, their_count in sorted(steps):
        levels.append((stride, mine, theirs))
        mine, theirs = mine + (my_count - 1) * stride, theirs + (their_count - 1) * stride
    ahead = {other.base - one.base}
    for stride, mine, theirs in reversed(levels):
        rest = {distance % stride for distance in ahead}
        ahead = {d for d in rest if d + theirs <= stride}
        ahead |= {d - stride for d in rest if d >= mine}
    return bool(ahead)
