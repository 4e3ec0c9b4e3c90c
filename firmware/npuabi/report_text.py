"""A program's costs as a table for people; ``npuc compile`` and ``npufw profile`` print it."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.table import Table

from npuabi.report import LayerCost, ProgramCost

__all__ = ["print_costs"]

_TABLE_WIDTH = 400
_MOST_ROWS = 500
_COLUMNS = (
    ("op", "left"),
    ("kind", "left"),
    ("MACs", "right"),
    ("cycles", "right"),
    ("of all", "right"),
    ("utilisation", "right"),
    ("dataflow", "left"),
    ("bound", "left"),
)


def print_costs(cost: ProgramCost, file: IO[str] | None = None) -> None:
    """Print *cost* to *file* (standard output): a row an op (500 at most), the totals,
    and the stalls.
    """
    # A narrow terminal wraps a row; it must not lose the ends of numbers.
    console = Console(file=file, highlight=False, width=_TABLE_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, side in _COLUMNS:
        table.add_column(title, justify="right" if side == "right" else "left", no_wrap=True)
    for layer in cost.layers[:_MOST_ROWS]:
        table.add_row(*_row(layer, cost.cycles))
    with console.capture() as capture:
        console.print(table)
        if len(cost.layers) > _MOST_ROWS:
            rest = len(cost.layers) - _MOST_ROWS
            console.print(f"and {rest:,} more ops: --json lists all", markup=False)
        for line in _totals(cost):
            console.print(line, markup=False, soft_wrap=True)
    # Without the blanks that fill the last column.
    for line in capture.get().splitlines():
        console.file.write(line.rstrip() + "\n")


def _row(layer: LayerCost, cycles: int) -> tuple[str, ...]:
    share = layer.cycles / cycles if cycles else 0.0
    return (
        layer.name,
        layer.op,
        f"{layer.macs:,}",
        f"{layer.cycles:,}",
        f"{share:.1%}",
        f"{layer.mac_utilisation:.1%}" if layer.macs else "",
        layer.dataflow,
        layer.bound,
    )


def _totals(cost: ProgramCost) -> list[str]:
    stalls = ", ".join(f"{name} {count:,}" for name, count in cost.stalls.items())
    return [
        "",
        f"{cost.cycles:,} cycles, {cost.time_ms:.3f} ms on {cost.target}; {cost.macs:,} MACs, "
        f"{cost.mac_utilisation:.1%} of peak ({cost.precision}, rounding {cost.rounding})",
        f"SRAM {cost.sram_peak_bytes:,} bytes at the peak, DDR traffic {cost.ddr_bytes:,}, "
        f"arena {cost.arena_bytes:,}; {cost.descriptors} descriptors",
        f"stall cycles: {stalls}",
    ]
