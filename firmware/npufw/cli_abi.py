"""The commands of ``npufw`` about the ABI, ``explain`` and ``migrate``, and an option of others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from npuabi.commands import Refusal

if TYPE_CHECKING:
    from npuabi.schemas import Version
    from npufw.version import VersionRegister

__all__ = ["FIRMWARE_VERSION", "explain", "migrate"]


def _version(_: click.Context, __: click.Parameter, text: str | None) -> Version | None:
    from npufw.version import parse_version

    try:
        return None if text is None else parse_version(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _register(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> VersionRegister | None:
    from npufw.version import VersionRegister

    version = _version(context, parameter, text)
    return None if version is None else VersionRegister(version)


FIRMWARE_VERSION = click.option(
    "--firmware-version",
    "register",
    metavar="X.Y",
    callback=_register,
    help="Emulate firmware of this ABI version, which knows no newer one; default: this one.",
)
"""The option of commands that load a blob on a device; gives them its version register or None."""


@click.command()
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(code: str | None, as_json: bool) -> None:
    """Explain the error CODE, a name or number, or list all codes.

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


@click.command()
@click.argument("old", type=click.Path(allow_dash=True))
@click.option("-o", "--output", required=True, metavar="NEW", help="The blob to write.")
@click.option(
    "--to", "version", metavar="X.Y", callback=_version, help="ABI version; default: this one."
)
@click.option("--target", help="Target file, where the blob is for one that is not known.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def migrate(
    old: str, output: str, version: Version | None, target: str | None, as_json: bool
) -> None:
    """Write the blob OLD in the layouts of another ABI version.

    It computes the same. A blob of an older version becomes one of this; with --to a blob becomes
    one that older firmware takes, if it needs nothing that came later.

    \b
    Examples:
      npufw migrate old.bin -o new.bin
      npufw migrate digits.bin -o for-old-devices.bin --to 0.1
    """
    from npuabi.files import refuse_overwriting, write_atomically
    from npuabi.migrate import migrate as migrated
    from npufw.boot import device_of
    from npufw.hostfiles import read_blob_file

    if output == "-" and as_json:
        raise click.UsageError("--output - and --json both write to standard output")
    raw = read_blob_file(old)
    refuse_overwriting(output, [old])
    made = migrated(raw, device_of(raw, target), version)
    for event in made.events:
        click.echo(f"healed: {event.text} ({event.code.name.lower()})", err=True)
    if made.unsigned:
        click.echo("note: the signature is dropped: compile again with --sign", err=True)
    write_atomically(output, made.blob)
    before, after = (f"{major}.{minor}" for major, minor in (made.before, made.after))
    if as_json:
        found = {"schema": 1, "blob": output, "bytes": len(made.blob), "from": before, "to": after}
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    click.echo(f"{output}: {len(made.blob):,} bytes, ABI {before} to {after}", err=output == "-")
