"""SRAM and arena over time, drawn in text.

Invariant: what is drawn are bytes between their writing and their last reading, on the timeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npuabi.container import symbol_at
from npuabi.enums import Direction, Space
from npuabi.records import TensorDescriptor
from npufw.boot import Image

__all__ = ["Life", "draw_map", "lives"]

_COLUMNS = 64
_SHADES = " .:*#"
_OUTPUT = 4


@dataclass(slots=True)
class Life:
    """Bytes of one tensor from the cycle that wrote them to the last that read them."""

    name: str
    base: int
    end: int
    start_cycle: float
    end_cycle: float


def lives(image: Image, space: Space) -> list[Life]:
    """Return the lives of *space*'s tensors in the order of their writing.

    Inputs of the network live from the start, outputs to the end.
    """
    done = _port_lives(image, Direction.INPUT, space)
    open_lives = list(done)
    for step, slot in zip(image.steps, image.timeline.slots, strict=True):
        for tensor in step.tensors[:_OUTPUT]:
            if tensor is not None and tensor.space is space:
                _read(open_lives, tensor, slot.end)
        output = step.tensors[_OUTPUT]
        if output is None or output.space is not space:
            continue
        life = _life(image, output, slot.start, slot.end)
        kept = [o for o in open_lives if not (life.base <= o.base and o.end <= life.end)]
        open_lives = [*kept, life]
        done.append(life)
    for port in image.outputs:
        if port.tensor.space is space:
            _read(open_lives, port.tensor, image.timeline.cycles)
    return done


def _port_lives(image: Image, direction: Direction, space: Space) -> list[Life]:
    ports = image.inputs if direction is Direction.INPUT else image.outputs
    return [_life(image, p.tensor, 0, 0) for p in ports if p.tensor.space is space]


def _life(image: Image, tensor: TensorDescriptor, start: float, end: float) -> Life:
    name = symbol_at(image.program.symbols, tensor.symbol)
    return Life(name, tensor.base, tensor.base + tensor.extent, start, end)


def _read(open_lives: Sequence[Life], tensor: TensorDescriptor, cycle: float) -> None:
    first, last = tensor.base, tensor.base + tensor.extent
    for life in open_lives:
        if life.base < last and first < life.end:
            life.end_cycle = max(life.end_cycle, cycle)


def draw_map(image: Image) -> Iterator[str]:
    """Yield the lines: a row a bank, shaded by the part in use; then a bar an arena tensor."""
    cycles = max(1, image.timeline.cycles)
    target = image.target
    yield f"SRAM: {target.banks} banks of {target.bank_kib} KiB over {cycles:,} cycles"
    yield f"(a column is {cycles / _COLUMNS:,.0f} cycles; '.' up to a quarter in use, '#' full)"
    sram = lives(image, Space.SRAM)
    for bank in range(target.banks):
        yield f"  bank {bank:>3} |{_bank_row(sram, bank, target.bank_bytes, cycles)}|"
    yield f"arena: {image.program.header.arena_bytes:,} bytes"
    for life in lives(image, Space.ARENA):
        bar = "".join("#" if _alive(life, i, cycles) else " " for i in range(_COLUMNS))
        place = f"0x{life.base:06x}..0x{life.end:06x}"
        yield f"  {place} |{bar}| {life.name}".rstrip()


def _alive(life: Life, column: int, cycles: int) -> bool:
    begin, end = column * cycles / _COLUMNS, (column + 1) * cycles / _COLUMNS
    return life.start_cycle < end and life.end_cycle > begin


def _bank_row(sram: Sequence[Life], bank: int, size: int, cycles: int) -> str:
    low, high = bank * size, (bank + 1) * size
    inside = [o for o in sram if o.base < high and o.end > low]
    return "".join(
        _shade([(max(o.base, low), min(o.end, high)) for o in inside if _alive(o, i, cycles)], size)
        for i in range(_COLUMNS)
    )


def _shade(ranges: list[tuple[int, int]], size: int) -> str:
    used, reached = 0, 0
    for start, end in sorted(ranges):
        used += max(0, end - max(start, reached))
        reached = max(reached, end)
    if not used:
        return _SHADES[0]
    return _SHADES[max(1, used * (len(_SHADES) - 1) // size)]
