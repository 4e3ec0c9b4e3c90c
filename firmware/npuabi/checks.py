"""Rules that a program keeps inside itself: every index, name, count and wait points at something.

The writer and the reader both run them, so that a blob that was written can be read. Geometry and
what an opcode demands are the firmware's to check, not here.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from npuabi.bands import BANDS, fits, limits
from npuabi.enums import ToaFlag, Unit
from npuabi.errors import AbiError, ErrorCode
from npuabi.program import Program
from npuabi.records import NO_TENSOR
from npuabi.text import UNPRINTABLE

__all__ = [
    "CHUNK_BYTES",
    "MAX_INTERFACES",
    "MAX_SAMPLES",
    "MAX_SIGNATURES",
    "MAX_SOURCES",
    "MAX_SYMBOL_BYTES",
    "MAX_TENSORS",
    "MAX_TOAS",
    "SAMPLE_BYTES",
    "check_chunks",
    "check_limits",
    "check_program",
    "chunk_crcs",
]

CHUNK_BYTES = 4096
MAX_TENSORS = MAX_TOAS = 1 << 18
MAX_SOURCES = 1 << 16
MAX_INTERFACES = 1 << 10
MAX_SYMBOL_BYTES = 1 << 24
MAX_SAMPLES = 1 << 12
MAX_SIGNATURES = 1
SAMPLE_BYTES = 8
"""A float32 number and its tolerance."""

_WAITS = (
    (Unit.DMA_IN, ToaFlag.WAIT_DMA_IN),
    (Unit.DMA_OUT, ToaFlag.WAIT_DMA_OUT),
    (Unit.MAC, ToaFlag.WAIT_MAC),
    (Unit.VECTOR, ToaFlag.WAIT_VECTOR),
)
_WAIT_MODULUS = 1 << 16


def check_limits(counts: Iterable[tuple[str, int, int]]) -> None:
    """Refuse counts above their limits, (what, count, limit): AbiError BAD_COUNT."""
    for what, count, limit in counts:
        if count > limit:
            raise AbiError(ErrorCode.BAD_COUNT, f"{count} {what}, at most {limit}")


def chunk_crcs(constants: bytes) -> NDArray[np.uint32]:
    """Return the CRC-32 of each 4 KiB of *constants*; the last chunk may be shorter."""
    view = memoryview(constants)
    starts = range(0, len(constants), CHUNK_BYTES)
    return np.array([zlib.crc32(view[i : i + CHUNK_BYTES]) for i in starts], "<u4")


def check_chunks(constants: bytes, stated: bytes) -> None:
    """Refuse *constants* unless each chunk has its *stated* CRC: AbiError BAD_COUNT, CHUNK_CRC."""
    crcs = chunk_crcs(constants)
    if len(stated) != crcs.nbytes:
        detail = f"{len(stated)} bytes of chunk CRCs, {len(constants)} bytes need {crcs.nbytes}"
        raise AbiError(ErrorCode.BAD_COUNT, detail)
    bad = np.flatnonzero(crcs != np.frombuffer(stated, "<u4"))
    if bad.size:
        where = f"constants at {int(bad[0]) * CHUNK_BYTES}"
        raise AbiError(ErrorCode.CHUNK_CRC, f"{where}: {bad.size} chunks of {crcs.size} are bad")


def check_program(program: Program) -> None:
    """Refuse a program that contradicts itself.

    Raises AbiError: BAD_COUNT, BAD_FIELD, BAD_INDEX, BAD_SYMBOL, BAD_RING, BAD_WAIT.
    """
    for rule in _RULES:
        rule(program)


def _counts(program: Program) -> None:
    header = program.header
    for what, said, has in (
        ("tensors", header.tensor_count, len(program.tensors)),
        ("TOAs", header.toa_count, len(program.toas)),
        ("bytes of constants", header.constant_bytes, len(program.constants)),
    ):
        if said != has:
            detail = f"the table header says {said} {what}, the program has {has}"
            raise AbiError(ErrorCode.BAD_COUNT, detail)
    check_limits(
        (
            ("tensors", len(program.tensors), MAX_TENSORS),
            ("TOAs", len(program.toas), MAX_TOAS),
            ("sources", len(program.sources), MAX_SOURCES),
            ("interface tensors", len(program.interface), MAX_INTERFACES),
            ("states", len(program.states), MAX_INTERFACES),
            ("band sets", len(program.bands), BANDS),
            ("signatures", len(program.signatures), MAX_SIGNATURES),
            ("bytes of symbols", len(program.symbols), MAX_SYMBOL_BYTES),
        )
    )


def _samples(program: Program) -> None:
    answer = program.known_answer
    check_limits((("samples of the known answer", answer.samples, MAX_SAMPLES),))
    end = answer.offset + answer.samples * SAMPLE_BYTES
    if answer.samples and end > len(program.constants):
        detail = f"the known answer ends at {end}, the constants at {len(program.constants)}"
        raise AbiError(ErrorCode.BAD_INDEX, detail)


def _names(program: Program) -> None:
    symbols = program.symbols
    if symbols[:1] != b"\0" or symbols[-1:] != b"\0":
        raise AbiError(ErrorCode.BAD_SYMBOL, "symbols begin with the empty name and end with a NUL")
    try:
        names = symbols.decode().replace("\0", "")
    except UnicodeDecodeError as error:
        detail = f"symbols are no UTF-8 text at byte {error.start}"
        raise AbiError(ErrorCode.BAD_SYMBOL, detail) from error
    unprintable = UNPRINTABLE.search(names)
    if unprintable is not None:
        detail = f"a name holds the control character {unprintable.group()!a}"
        raise AbiError(ErrorCode.BAD_SYMBOL, detail)
    starts = {0, *(np.flatnonzero(np.frombuffer(symbols, np.uint8) == 0)[:-1] + 1).tolist()}
    _inside("tensor", [t.symbol for t in program.tensors], starts)
    _inside("interface tensor", [i.symbol for i in program.interface], starts)
    _inside("state", [s.symbol for s in program.states], starts)
    for place in ("symbol", "kind", "file"):
        _inside(f"source {place}", [getattr(s, place) for s in program.sources], starts)


def _inside(what: str, offsets: Sequence[int], starts: set[int]) -> None:
    for index, offset in enumerate(offsets):
        if offset not in starts:
            detail = f"{what} {index}: no name begins at offset {offset} of the symbols"
            raise AbiError(ErrorCode.BAD_SYMBOL, detail)


def _indices(program: Program) -> None:
    count = len(program.tensors)
    for index, entry in enumerate(program.interface):
        if entry.tensor >= count:
            detail = f"interface tensor {index}: tensor {entry.tensor} of {count}"
            raise AbiError(ErrorCode.BAD_INDEX, detail)
    for index, state in enumerate(program.states):
        if max(state.tensor, state.initial) >= count:
            detail = f"state {index}: tensors {state.tensor} and {state.initial} of {count}"
            raise AbiError(ErrorCode.BAD_INDEX, detail)
    for index, toa in enumerate(program.toas):
        if toa.op >= len(program.sources):
            detail = f"TOA {index}: op {toa.op} of {len(program.sources)}"
            raise AbiError(ErrorCode.BAD_INDEX, detail)
        for tensor in toa.tensors:
            if tensor >= count and tensor != NO_TENSOR:
                raise AbiError(ErrorCode.BAD_INDEX, f"TOA {index}: tensor {tensor} of {count}")


def _shapes(program: Program) -> None:
    for index, entry in enumerate(program.interface):
        if entry.rank > 4 or 0 in entry.shape or set(entry.shape[entry.rank :]) - {1}:
            detail = f"interface tensor {index}: rank {entry.rank} with shape {entry.shape}"
            raise AbiError(ErrorCode.BAD_COUNT, detail)


def _ring(program: Program) -> None:
    count = len(program.toas)
    if len(program.ring) != count or set(program.ring) != set(range(count)):
        detail = f"{len(program.ring)} ring entries do not hold each of {count} TOAs once"
        raise AbiError(ErrorCode.BAD_RING, detail)


def _waits(program: Program) -> None:
    issued = dict.fromkeys(Unit, 0)
    for index in program.ring:
        toa = program.toas[index]
        for (unit, flag), wait in zip(_WAITS, toa.waits, strict=True):
            if toa.flags & flag and wait > issued[unit] < _WAIT_MODULUS:
                detail = f"TOA {index} waits for {wait} TOAs of {unit.name}, {issued[unit]} precede"
                raise AbiError(ErrorCode.BAD_WAIT, detail)
        issued[toa.unit] += 1


def _bands(program: Program) -> None:
    """Sets stand in the order of their bands, and a hotter one's timing is never shorter."""
    before = (-1, (-(1 << 15),) * len(Unit), -(1 << 15))
    for index, entry in enumerate(program.bands):
        where = f"band set {index} (band {entry.band})"
        if not before[0] < entry.band < BANDS or (entry.low, entry.high) != limits(entry.band):
            detail = f"{where}: {entry.low} to {entry.high} degC is not the next band"
            raise AbiError(ErrorCode.BAD_INDEX, detail)
        grown = all(a <= b for a, b in zip(before[1], entry.setup, strict=True))
        if not grown or entry.sample < before[2]:
            detail = f"{where}: a hotter band's timing is shorter than a cooler one's"
            raise AbiError(ErrorCode.BAD_FIELD, detail)
        if not fits(entry, program.toas):
            detail = f"{where}: its differences take a TOA's timing out of its field"
            raise AbiError(ErrorCode.BAD_FIELD, detail)
        before = (entry.band, entry.setup, entry.sample)


_RULES: tuple[Callable[[Program], None], ...] = (
    _counts,
    _samples,
    _names,
    _indices,
    _shapes,
    _ring,
    _waits,
    _bands,
)
