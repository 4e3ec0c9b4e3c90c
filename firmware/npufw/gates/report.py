"""Gates for people: a heading, then what was seen without and with the defence."""

from __future__ import annotations

import click

from npufw.gates.base import Figures, Gate, Shown

__all__ = ["print_gate"]

_WIDTH = 10
_UNITS = {
    "bytes": "bytes",
    "c": "degC",
    "cycles": "cycles",
    "hours": "h",
    "mib": "MiB",
    "ms": "ms",
    "ns": "ns",
    "percent": "%",
    "points": "points",
    "ratio": "x",
    "s": "s",
    "share": "%",
    "us": "us",
}
"""How a figure's unit is written, by the last word of its key."""


def print_gate(gate: Gate, shown: Shown) -> None:
    """Print one gate's lines."""
    verdict = click.style("pass", fg="green") if shown.passed else click.style("FAIL", fg="red")
    click.echo(f"gate {gate.number}, {gate.name}: {verdict}")
    click.echo(f"  {'fault':{_WIDTH}} {gate.fault}")
    click.echo(f"  {'defence':{_WIDTH}} {gate.defence}")
    _figures("without", shown.undefended)
    _figures("with", shown.defended)
    _figures("costs", shown.surcharge)


def _figures(name: str, figures: Figures) -> None:
    parts = [_figure(key, value) for key, value in figures.items()]
    click.echo(f"  {name:{_WIDTH}} {', '.join(parts) if parts else 'nothing'}")


def _figure(key: str, value: int | float | str) -> str:
    """Return a figure in words; the unit is the key's last word."""
    *words, last = key.split("_")
    if isinstance(value, str) or not words or last not in _UNITS:
        return f"{key.replace('_', ' ')} {_number(value)}"
    name = " ".join(words)
    if last == "share":
        return f"{name} {_number(value * 100)} %"
    return f"{name} {_number(value)} {_UNITS[last]}"


def _number(value: int | float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
