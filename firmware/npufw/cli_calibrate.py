"""The command ``npufw calibrate``: what a tester does to each die before it leaves the factory."""

from __future__ import annotations

import json

import click

from npuabi.commands import RealFile

__all__ = ["calibrate"]


@click.command()
@click.argument("efuse", type=RealFile())
@click.option("--die", "seed", type=click.IntRange(0, (1 << 48) - 1), required=True, metavar="SEED",
              help="Which die to emulate.")  # fmt: skip
@click.option("--spread", type=click.Choice(["uniform", "normal", "corners"]), default="uniform",
              show_default=True, help="Of its columns' gains.")  # fmt: skip
@click.option("--limit", type=click.IntRange(0, 50), default=18, show_default=True,
              help="Of the gains, in percent.")  # fmt: skip
@click.option("--target", default="edge", show_default=True, help="Target: name or TOML file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def calibrate(efuse: str, seed: int, spread: str, limit: int, target: str, as_json: bool) -> None:
    """Calibrate an emulated die: blow its table into EFUSE.

    Each core runs the test pattern. The file is made when there is none; a table that is in it
    stays, for fuses are blown once. "npufw run --die EFUSE" then runs on that die.

    \b
    Examples:
      npufw calibrate die7.fuses --die 7
      npufw run digits.bin --input models/digits_test.npz --die die7.fuses
      npufw run digits.bin --input models/digits_test.npz --die die7.fuses --without variation
    """
    from pathlib import Path

    from npuabi.files import write_atomically
    from npuabi.target import load_target
    from npufw.defences.calibration import calibrate as blow
    from npufw.dies import read_fuse_file
    from npufw.efuse import GAIN_STEP, Table, read_efuse, rows_of
    from npufw.fault_models.die import Die, Spread

    device = load_target(target)
    die = Die(seed=seed, spread=Spread[spread.upper()], limit_percent=limit, cores=device.cores)
    fuses = blow(die, device, read_fuse_file(efuse) if Path(efuse).exists() else None)
    table: Table | None = read_efuse(rows_of(fuses), len(fuses), device.cores).table
    write_atomically(efuse, fuses)
    if table is None:
        return
    trimmed = die.gain * (1 + table.gains * GAIN_STEP)
    found = {
        "schema": 1,
        "die": f"{die.id:016x}",
        "bytes": len(fuses),
        "cores": device.cores,
        "gain_before": float(abs(die.gain - 1).max()),
        "gain_after": float(abs(trimmed - 1).max()),
        "fuses_blown": int.from_bytes(fuses, "little").bit_count(),
    }
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(
        f"{efuse}: die {found['die']}, {device.cores} cores, {len(fuses)} bytes, "
        f"{found['fuses_blown']} fuses blown"
    )
    click.echo(
        f"largest gain error {found['gain_before']:.2%} before, {found['gain_after']:.3%} trimmed"
    )
