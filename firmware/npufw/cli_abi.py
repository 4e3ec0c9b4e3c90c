"""The commands of ``npufw`` about the ABI: ``explain``."""

from __future__ import annotations

import json

import click

from npuabi.commands import Refusal

__all__ = ["explain"]


@click.command()
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(code: str | None, as_json: bool) -> None:
    """Explain the error CODE, by name or number; without one list all codes.

    \b
    Examples:
      npufw explain record_crc
      npufw explain 0x22
      npufw explain
    """
    from npuabi.errors import ErrorCode
    from npuabi.explain import as_dict, code_named, lines

    try:
        chosen = list(ErrorCode) if code is None else [code_named(code)]
    except LookupError as error:
        raise Refusal(f"error: {error.args[0]}") from None
    if as_json:
        found = {"schema": 1, "codes": [as_dict(each) for each in chosen]}
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    elif code is None:
        for each in chosen:
            click.echo(f"0x{each:02x}  {each.name.lower():<24}{each.text}")
    else:
        for line in lines(chosen[0]):
            click.echo(line)
