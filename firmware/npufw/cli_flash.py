"""The commands ``npufw flash``: a flash image with two models in it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from npuabi.commands import RealFile

if TYPE_CHECKING:
    from npufw.flash.commands import Bench
    from npufw.flash.update import Booted

__all__ = ["flash"]

_IMAGE = click.argument("image", type=RealFile())
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_TARGET = click.option(
    "--target", default="edge", show_default=True, help="Target of the device: name or TOML file."
)
_DIE = click.option(
    "--die",
    metavar="EFUSE",
    help="The die's eFuse array: where a key is fused, models signed with it boot alone.",
)
_CHIP = (
    _TARGET,
    _DIE,
    click.option(
        "--write-unit",
        type=click.Choice(["1", "4", "8", "64", "256"]),
        default="256",
        show_default=True,
        help="Bytes that the chip programs at once.",
    ),
    click.option(
        "--cut",
        metavar="N[:BYTES]",
        help="Cut power in the N-th erase or program, behind BYTES of its unit.",
    ),
    click.option(
        "--fault",
        "faults",
        multiple=True,
        metavar="KIND@SECTOR[:N]",
        help="A bad sector, from operation N on: program-error, erase-error, read-error, "
        "program-nothing or erase-nothing.",
    ),
)


@click.group()
def flash() -> None:
    """Keep two models in flash, whatever happens to the power.

    IMAGE is a file of raw bytes, or Intel HEX when its name ends in .hex, .ihex or .ihx. The chip
    erases sectors of 4 KiB to 0xFF; programming only clears bits.
    """


def _on_chip(command: Callable[..., None]) -> Callable[..., None]:
    """Give *command* the options of a chip; it gets a Bench of its image as ``bench``."""

    @functools.wraps(command)
    def made(
        image: str,
        target: str,
        die: str | None,
        write_unit: str,
        cut: str | None,
        faults: tuple[str, ...],
        **others: Any,
    ) -> None:
        from npufw.flash.commands import Bench, parse_cut, parse_fault

        try:
            where = None if cut is None else parse_cut(cut)
            cells = tuple(map(parse_fault, faults))
        except ValueError as error:
            raise click.UsageError(
                f"--cut takes N or N:BYTES, --fault KIND@SECTOR: {error}"
            ) from error
        bench = Bench(image, target, write_unit=int(write_unit), cut=where, faults=cells, die=die)
        command(bench=bench, **others)

    for option in reversed(_CHIP):
        made = option(made)
    return made


def _print_json(values: dict[str, Any]) -> None:
    click.echo(json.dumps({"schema": 1, **values}, indent=2, ensure_ascii=False))


def _tell(bench: Bench, booted: Booted, *, as_json: bool, err: bool = False) -> None:
    chip = bench.device.flash
    for note in bench.notes:
        click.echo(note, err=True)
    if as_json:
        _print_json(
            {
                "image": bench.path,
                "slot": booted.slot.name,
                "generation": booted.generation,
                "bytes": len(booted.blob),
                "why": booted.rule.why,
                "events": list(booted.events),
                "operations": chip.operations,
                "erases": chip.erases,
                "bytes_programmed": chip.bytes_programmed,
            }
        )
        return
    for event in booted.events:
        click.echo(event, err=True)
    size = f"{len(booted.blob):,} bytes"
    where = f"slot {booted.slot.name}, generation {booted.generation}"
    click.echo(f"boots {where}, {size}: {booted.rule.why}", err=err)
    programmed = f"{chip.bytes_programmed:,} bytes programmed"
    click.echo(
        f"flash: {chip.operations:,} operations, {chip.erases} erases, {programmed}", err=err
    )


@flash.command()
@_IMAGE
@click.option(
    "--slot",
    "slot_kib",
    type=click.IntRange(4, 1 << 20),
    default=1024,
    show_default=True,
    help="KiB of each of the two slots.",
)
@click.option("--force", is_flag=True, help="Erase an image that is there.")
@_JSON
def init(image: str, slot_kib: int, force: bool, as_json: bool) -> None:
    """Make IMAGE, erased, with two slots.

    \b
    Examples:
      npufw flash init device.img
      npufw flash init device.hex --slot 128
    """
    from npufw.flash.commands import init as make

    made = make(image, slot_kib, force=force)
    if as_json:
        _print_json(made)
        return
    click.echo(f"{image}: two slots of {made['slot_bytes']:,} bytes, erased")


@flash.command()
@_IMAGE
@click.argument("blob", type=click.Path(allow_dash=True))
@_on_chip
@_JSON
def write(bench: Bench, blob: str, as_json: bool) -> None:
    """Update IMAGE to BLOB: it goes to the spare slot, is read back, and then becomes the newest.

    What the firmware refuses is not written. When power is cut, or a sector fails, what booted
    before still boots.

    \b
    Examples:
      npufw flash write device.img digits.bin
      npufw flash write device.img digits.bin --cut 30
      npufw flash write device.img digits.bin --fault program-nothing@3
    """
    from npufw.hostfiles import read_blob_file

    _tell(bench, bench.write(read_blob_file(blob)), as_json=as_json)


@flash.command()
@_IMAGE
@_on_chip
@click.option("-o", "--output", metavar="BLOB", help="Write the model that boots; - is stdout.")
@_JSON
def boot(bench: Bench, output: str | None, as_json: bool) -> None:
    """Boot IMAGE: say which slot is taken and why, and heal what is bad of it.

    \b
    Examples:
      npufw flash boot device.img
      npufw flash boot device.img -o now.bin
    """
    from npuabi.files import refuse_overwriting, write_atomically

    if output == "-" and as_json:
        raise click.UsageError("--output - and --json both write to standard output")
    if output is not None:
        refuse_overwriting(output, [bench.path])
    booted = bench.boot()
    if output is not None:
        write_atomically(output, booted.blob)
    _tell(bench, booted, as_json=as_json, err=output == "-")


@flash.command()
@_IMAGE
@_on_chip
@_JSON
def rollback(bench: Bench, as_json: bool) -> None:
    """Give up the newest model of IMAGE for the older one, which has to verify.

    \b
    Example:
      npufw flash rollback device.img
    """
    _tell(bench, bench.roll_back(), as_json=as_json)


@flash.command()
@_IMAGE
@_TARGET
@_DIE
@_JSON
def commit(image: str, target: str, die: str | None, as_json: bool) -> None:
    """Raise the anti-rollback counter of IMAGE to the security version of the model that boots.

    Fuses are blown: from then on no model of a lower version boots or is written.

    \b
    Example:
      npufw flash commit device.img
    """
    from npufw.flash.commands import Bench
    from npufw.flash.commands import commit as raise_counter

    made = raise_counter(Bench(image, target, die=die))
    if as_json:
        _print_json({"image": image, **made})
        return
    click.echo(f"anti-rollback counter: {made['before']} -> {made['counter']}")


@flash.command()
@_IMAGE
@_TARGET
@_DIE
@_JSON
def status(image: str, target: str, die: str | None, as_json: bool) -> None:
    """Say what is in the slots of IMAGE and which one boots; change nothing.

    \b
    Example:
      npufw flash status device.img
    """
    from npufw.flash.commands import Bench
    from npufw.flash.commands import status as look

    found = look(Bench(image, target, die=die))
    if as_json:
        _print_json(found)
        return
    for name, slot in found["slots"].items():
        words = [f"slot {name}: {slot['state']}"]
        if "generation" in slot:
            words.append(f"generation {slot['generation']}, {slot['bytes']:,} bytes")
        click.echo(", ".join(words) + (f" ({slot['why']})" if slot["why"] else ""))
    click.echo(f"hint: {found['hint'] or 'none'}; anti-rollback counter: {found['counter']}")
    boots = f"slot {found['boots']}" if found["boots"] else "nothing"
    click.echo(f"boots: {boots} ({found['why']})")


@flash.command()
@_IMAGE
@_TARGET
def dump(image: str, target: str) -> None:
    """Show where things lie in IMAGE, and its headers byte by byte.

    \b
    Example:
      npufw flash dump device.img
    """
    from npufw.flash.commands import Bench
    from npufw.flash.commands import dump as show

    for block in show(Bench(image, target).device):
        click.echo(block)
