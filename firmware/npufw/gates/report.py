"""Gates for people: a heading, then what was seen without and with the defence."""

from __future__ import annotations

import click

from npufw.gates.base import Figures, Gate, Shown

__all__ = ["print_gate"]

_WIDTH = 10


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
    parts = [f"{key.replace('_', ' ')} {_number(value)}" for key, value in figures.items()]
    click.echo(f"  {name:{_WIDTH}} {', '.join(parts) if parts else 'nothing'}")


def _number(value: int | float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
