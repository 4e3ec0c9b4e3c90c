"""The command ``npufw gates``: the seven failures, each without and with its defence."""

from __future__ import annotations

import json
import sys

import click

__all__ = ["gates"]


@click.command()
@click.argument("blob", required=False, type=click.Path(allow_dash=True))
@click.option("--data", metavar="X.npz", help="Inputs by name and integer labels, for BLOB.")
@click.option("--gate", "numbers", multiple=True, type=click.IntRange(1, 7), help="Only this one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def gates(blob: str | None, data: str | None, numbers: tuple[int, ...], as_json: bool) -> None:
    """Show that the firmware survives what fails in the field.

    Each is shown twice on a classifier: with its defence off, where the symptom must appear, and
    with it on, where it must not. Without BLOB the digits network that comes with npufw is used.
    The exit code is 1 when one of them does not hold.

    \b
    Examples:
      npufw gates
      npufw gates --gate 1 --gate 7
      npufw gates mine.bin --data test.npz --json
    """
    from npuabi.progress import progress_bar
    from npufw.gates import GATES
    from npufw.gates.base import Shown
    from npufw.gates.report import print_gate
    from npufw.gates.subject import load_subject

    if (blob is None) != (data is None):
        raise click.UsageError("BLOB and --data go together")
    subject = load_subject(blob, data)
    rows: list[dict[str, object]] = []
    passed = True
    with progress_bar() as progress:
        for gate in GATES:
            if numbers and gate.number not in numbers:
                continue
            shown: Shown = gate.show(subject, progress)
            passed &= shown.passed
            rows.append(gate.as_dict(shown))
            if not as_json:
                print_gate(gate, shown)
    if as_json:
        click.echo(json.dumps({"schema": 1, "gates": rows}, indent=2, ensure_ascii=False))
    sys.exit(0 if passed else 1)
