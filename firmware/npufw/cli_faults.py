"""The command ``npufw faults``, and the options of commands that run a program with faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

import click

__all__ = ["fault_options", "faults", "telling_refusals"]

F = TypeVar("F", bound=Callable[..., Any])


def fault_options(command: F) -> F:
    """Add the options of faults and defences to *command*, which takes them as one ``plan``."""

    @click.option(
        "--fault",
        "specs",
        multiple=True,
        metavar="SPEC",
        help='What goes wrong: "MODEL:FIELD=VALUE,..." or a TOML file; see "npufw faults".',
    )
    @click.option(
        "--without",
        multiple=True,
        metavar="GATE",
        help='Leave out a defence, such as "ripple"; they are on where there is a fault.',
    )
    @click.option(
        "--temperature",
        type=click.FloatRange(-55, 150),
        metavar="C",
        help="The chip has C degrees Celsius: short for --fault heat:celsius=C.",
    )
    @click.option(
        "--die",
        metavar="EFUSE",
        help="The die whose eFuse array is in this file, calibrated by its table; "
        'see "npufw calibrate".',
    )
    @wraps(command)
    def planned(
        *args: Any,
        specs: tuple[str, ...],
        without: tuple[str, ...],
        temperature: float | None,
        die: str | None,
        **named: Any,
    ) -> Any:
        from npufw.fault_plan import plan_of

        if temperature is not None:
            specs = (*specs, f"heat:celsius={temperature}")
        return command(*args, plan=plan_of(specs, without, die), **named)

    return cast(F, planned)


@contextmanager
def telling_refusals(*, as_json: bool, err: bool) -> Iterator[None]:
    """Print what led to the refusal of a job with faults, on standard error with *err*."""
    from npufw.fault_plan import JobRefused

    try:
        yield
    except JobRefused as refused:
        if as_json:
            click.echo(json.dumps(refused.as_dict(), indent=2, ensure_ascii=False))
        else:
            for line in refused.lines():
                click.echo(line, err=err)
        raise


@click.command()
@click.argument("name", required=False, metavar="[MODEL]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def faults(name: str | None, as_json: bool) -> None:
    """List the faults that --fault takes.

    With MODEL its fields, too. A TOML file holds a table [[fault]] for each fault, with its model
    and fields.

    \b
    Examples:
      npufw faults
      npufw faults flips
      npufw run digits.bin --fault flips:rate=1e-6,seed=7
      npufw run digits.bin --fault flip:region=weights,bits=2 --without ripple
    """
    from npuabi.errors import ErrorCode
    from npufw.errors import FirmwareError
    from npufw.fault_models import MODELS

    if name is not None and name not in MODELS:
        text = f"there is no model {name!r}: expected one of {', '.join(MODELS)}"
        raise FirmwareError(ErrorCode.FAULT_SPEC, text)
    chosen = [model for model in MODELS.values() if name in (None, model.name)]
    if as_json:
        rows = [model.as_dict() for model in chosen]
        click.echo(json.dumps({"schema": 1, "models": rows}, indent=2, ensure_ascii=False))
        return
    for model in chosen:
        click.echo(f"{model.name:12} {model.title} (defence: {model.gate})")
        if name is None:
            continue
        for field in model.fields:
            default = "required" if field.default is None else f"default {field.shown_default}"
            click.echo(f"  {field.name:10} {field.help}; {field.range}; {default}")
        click.echo(f"  for example: --fault {model.example}")
