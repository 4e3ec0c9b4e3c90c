"""Cycles of passes and of TOAs: the published pass formula, and each TOA as ``simulate`` takes it.

Invariant: a Work follows from the TOA's records and the target alone, so compiler and firmware
agree on every cycle. docs/timing.md explains the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuabi.costs import (
    STREAM_WORDS_PER_CYCLE,
    Cost,
    Operand,
    Operands,
    cost_of,
    operand_of,
)
from npuabi.enums import Mode, Opcode, Precision, ToaFlag, Unit
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import NO_TENSOR, TensorDescriptor, Toa
from npuabi.target import Target

__all__ = ["Waits", "Work", "macs_of", "pass_cycles", "waits_of", "work_of", "works_of"]

_WAIT_FLAGS = (
    (Unit.DMA_IN, ToaFlag.WAIT_DMA_IN),
    (Unit.DMA_OUT, ToaFlag.WAIT_DMA_OUT),
    (Unit.MAC, ToaFlag.WAIT_MAC),
    (Unit.VECTOR, ToaFlag.WAIT_VECTOR),
)
_WAIT_MODULUS = 1 << 16
_ANY_WAIT = sum(int(flag) for _, flag in _WAIT_FLAGS)

Waits = tuple[int | None, int | None, int | None, int | None]
"""For DMA-in, DMA-out, MAC and vector: TOAs that the unit must have finished, or None."""

_NO_WAITS: Waits = (None, None, None, None)


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)


def pass_cycles(mode: Mode, m: int, k: int, n: int, rows: int = 16, columns: int = 16) -> int:
    """Return cycles of an (m x k) by (k x n) product, passes not overlapped, sums unbounded.

    The published formula that SCALE-Sim reproduces: WEIGHT_STATIONARY
    ``ceil(k/R) * ceil(n/C) * (2R + C + m - 2) - 1``, OUTPUT_STATIONARY
    ``ceil(m/R) * ceil(n/C) * (R + C + k - 2) - 1``. Raises ValueError on any other mode.
    """
    if mode is Mode.WEIGHT_STATIONARY:
        return _ceil(k, rows) * _ceil(n, columns) * (2 * rows + columns + m - 2) - 1
    if mode is Mode.OUTPUT_STATIONARY:
        return _ceil(m, rows) * _ceil(n, columns) * (rows + columns + k - 2) - 1
    raise ValueError(f"mode {mode.name} has no pass formula: give a stationary mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One TOA as the timing model sees it. All times in cycles, words of 16 bytes.

    ``bank_words`` are (bank, words) summed over all streams, ``ddr_bytes`` whole bursts.
    """

    unit: Unit
    waits: Waits
    compute_cycles: int
    latency_cycles: int
    bank_words: tuple[tuple[int, int], ...]
    stream_cycles: int
    ddr_bytes: int
    setup_cycles: int
    precision: Precision
    op: int
    macs: int

    @property
    def body_cycles(self) -> int:
        """Cycles after the start latency when nothing else runs."""
        banks = max((words for _, words in self.bank_words), default=0)
        return max(1, self.compute_cycles, self.stream_cycles, banks)

    @property
    def alone_cycles(self) -> int:
        """Cycles from start to end when nothing else runs."""
        return self.latency_cycles + self.body_cycles


def work_of(toa: Toa, tensors: Sequence[TensorDescriptor], target: Target) -> Work:
    """Return the Work of one TOA by itself, its waits as the record has them.

    Raises AbiError: BAD_FIELD when an operand is missing or names no tensor.
    """
    return _Program(tensors, target).work(toa, _raw_waits(toa))


def works_of(
    tensors: Sequence[TensorDescriptor], toas: Sequence[Toa], target: Target
) -> list[Work]:
    """Return the Works of a program; *toas* in ring order, waits resolved to absolute counts.

    Raises AbiError: BAD_FIELD as ``work_of``, and when a wait names a TOA that does not come
    earlier in the ring.
    """
    program = _Program(tensors, target)
    return [program.work(toa, waits) for toa, waits in zip(toas, waits_of(toas), strict=True)]


def waits_of(toas: Sequence[Toa]) -> list[Waits]:
    """Return the absolute counts that each TOA waits for, None where it waits for none.

    *toas* stand in ring order. Raises AbiError: BAD_FIELD when a wait names a TOA that does not
    come earlier in the ring.
    """
    seen = dict.fromkeys(Unit, 0)
    waits = []
    for index, toa in enumerate(toas):
        waits.append(_resolve(index, toa, seen) if toa.flags & _ANY_WAIT else _NO_WAITS)
        seen[toa.unit] += 1
    return waits


def macs_of(toa: Toa, tensors: Sequence[TensorDescriptor]) -> int:
    """Return the multiply-accumulates of *toa*: logical channels and taps, no padding lanes."""
    if toa.opcode not in (Opcode.CONV, Opcode.DEPTHWISE, Opcode.MATMUL):
        return 0
    outputs, taps = 1, toa.kernel[0] * toa.kernel[1]
    for extent in _tensor(toa, tensors, 4).dims:
        outputs *= extent
    inputs = _tensor(toa, tensors, 0).dims[1] if toa.opcode is not Opcode.DEPTHWISE else 1
    return outputs * taps * inputs


def _tensor(toa: Toa, tensors: Sequence[TensorDescriptor], slot: int) -> TensorDescriptor:
    index = toa.tensors[slot]
    if index >= len(tensors):
        text = f"{toa.opcode.name} names tensor {index}: the table has {len(tensors)}"
        raise AbiError(ErrorCode.BAD_FIELD, text)
    return tensors[index]


def _resolve(index: int, toa: Toa, seen: dict[Unit, int]) -> Waits:
    """The largest count that earlier TOAs of the unit can reach and the 16-bit field allows."""
    counts: list[int | None] = []
    for (unit, flag), field in zip(_WAIT_FLAGS, toa.waits, strict=True):
        if not toa.flags & flag:
            counts.append(None)
            continue
        count = seen[unit] - (seen[unit] - field) % _WAIT_MODULUS
        if count < 0:
            text = (
                f"toa {index} waits until {unit.name} has finished {field}, but only "
                f"{seen[unit]} of its TOAs come earlier in the ring: a wait names earlier TOAs"
            )
            raise AbiError(ErrorCode.BAD_FIELD, text)
        counts.append(count)
    return counts[0], counts[1], counts[2], counts[3]


class _Program:
    """A tensor table and a target, with what was already worked out for each tensor."""

    def __init__(self, tensors: Sequence[TensorDescriptor], target: Target) -> None:
        self.tensors = tensors
        self.target = target
        self._operands: dict[int, Operand] = {}

    def work(self, toa: Toa, waits: Waits) -> Work:
        operands = Operands(*[self._operand(toa, slot) for slot in range(len(toa.tensors))])
        cost = cost_of(toa, operands, self.target)
        bank_words, stream_cycles = _traffic(operands, cost)
        return Work(
            unit=toa.unit,
            waits=waits,
            compute_cycles=cost.compute_cycles,
            latency_cycles=self.target.ddr_latency_cycles if cost.ddr_bytes else 0,
            bank_words=bank_words,
            stream_cycles=stream_cycles,
            ddr_bytes=cost.ddr_bytes,
            setup_cycles=toa.setup_cycles,
            precision=toa.precision,
            op=toa.op,
            macs=macs_of(toa, self.tensors),
        )

    def _operand(self, toa: Toa, slot: int) -> Operand | None:
        index = toa.tensors[slot]
        if index == NO_TENSOR:
            return None
        known = self._operands.get(index)
        if known is None:
            known = operand_of(_tensor(toa, self.tensors, slot), self.target)
            self._operands[index] = known
        return known


def _traffic(operands: Operands, cost: Cost) -> tuple[tuple[tuple[int, int], ...], int]:
    """Words of each bank, and the cycles of the slowest stream."""
    banks: dict[int, int] = {}
    slowest = 0
    for operand, words in zip(operands, cost.words, strict=True):
        if operand is None or not operand.banks or not words:
            continue
        _share(banks, operand, words)
        ports = min(STREAM_WORDS_PER_CYCLE, len(operand.banks))
        slowest = max(slowest, _ceil(words, ports))
    return tuple(sorted(banks.items())), slowest


def _raw_waits(toa: Toa) -> Waits:
    pairs = zip(_WAIT_FLAGS, toa.waits, strict=True)
    a, b, c, d = (field if toa.flags & flag else None for (_, flag), field in pairs)
    return a, b, c, d


def _share(banks: dict[int, int], operand: Operand, words: int) -> None:
    """Add *words* to the banks in proportion to the bytes there; the parts sum exactly."""
    whole = sum(held for _, held in operand.banks)
    begin = reached = 0
    for bank, held in operand.banks:
        reached += held
        end = words * reached // whole
        banks[bank] = banks.get(bank, 0) + end - begin
        begin = end
