"""Mutated images of fuses and of flash: refused with a code, or exactly what was stored.

A trial is a function of its id. Fuses are blown late or not read, rows cut, added, moved; flash has
flipped bits, lost sectors, sectors of one slot in the other. CRCs are left alone, so whatever is
taken must be the table, the key or the model that was there.
"""

from __future__ import annotations

import random
from functools import cache

import numpy as np

from npuabi.sections import SECTOR_BYTES
from npufw.efuse import (
    ROW_BYTES,
    Efuse,
    FuseState,
    Table,
    read_efuse,
    rows_of,
    size_for,
    with_key,
    with_table,
)
from npufw.flash.layout import device_of_image, image_of_device
from npufw.flash.update import boot_device
from npufw.pattern import COLUMNS
from tools.campaigns.base import Campaign
from tools.campaigns.fuzzing import Verdict, counted, judged
from tools.campaigns.ota_harness import bench, verifier

__all__ = ["FUZZ_FLASH", "FUZZ_FUSES", "flash_trial", "fuse_trial"]

_CORES = 3
_DESCRIPTORS = 8


# --- fuses --------------------------------------------------------------------------------------


@cache
def fuses() -> tuple[bytes, ...]:
    """Return arrays: with table and key, with a table, with a key, blank."""
    source = np.random.Generator(np.random.PCG64(7))
    codes = source.integers(-2000, 2000, (2, _CORES, COLUMNS), dtype=np.int64)
    blank = bytes(size_for(_CORES))
    keyed = with_key(blank, bytes(range(32)))
    table = Table(die=1234, gains=codes[0], offsets=codes[1])
    return with_table(keyed, table), with_table(blank, table), keyed, blank


@cache
def stored(array: int) -> Efuse:
    """Return what an array holds."""
    return _read(fuses()[array])


def _read(raw: bytes) -> Efuse:
    return read_efuse(rows_of(raw), len(raw), _CORES)


def fuse_trial(number: int) -> Verdict:
    """Return what became of array *number*."""
    rng = random.Random(number)
    array = rng.randrange(len(fuses()))
    raw = bytearray(fuses()[array])
    for _ in range(rng.choice((1, 1, 2, 4))):
        kind = rng.randrange(5)
        if kind < 3 and raw:
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        elif kind == 3:
            size = rng.choice((0, 1, ROW_BYTES, ROW_BYTES * rng.randrange(40), rng.randrange(999)))
            raw = raw[:size].ljust(size, rng.choice((b"\0", b"\xff")))
        else:
            start, at = (ROW_BYTES * rng.randrange(2 + _CORES) for _ in range(2))
            raw[at : at + ROW_BYTES] = fuses()[array][start : start + ROW_BYTES]
    if raw == fuses()[array]:
        return "unchanged", ""
    return judged(lambda: _taken(array, bytes(raw)))


def _taken(array: int, raw: bytes) -> Verdict:
    found, was = _read(raw), stored(array)
    if found.state is FuseState.BLANK:
        lost = raw[:ROW_BYTES].strip(b"\0") or raw[2 * ROW_BYTES :].strip(b"\0")
        return "blank", "fuses that are blown are taken for blank" if lost else ""
    if was.table is None or found.table is None:
        return "taken", "a table where there was none"
    same = (
        found.table.die == was.table.die
        and np.array_equal(found.table.gains, was.table.gains)
        and np.array_equal(found.table.offsets, was.table.offsets)
        and found.key == was.key
    )
    return "taken", "" if same else "another table or key"


FUZZ_FUSES = Campaign(
    name="fuzz-fuses",
    title="fuses that are blown late or not read, rows cut, added and moved",
    short=2_000,
    long=1_000_000,
    run=lambda ids, progress: counted(ids, progress, "arrays", fuse_trial),
    group="fuzz",
)


# --- flash --------------------------------------------------------------------------------------


@cache
def image() -> bytes:
    """Return the image of a device with two models."""
    return image_of_device(bench(_DESCRIPTORS).device())


def flash_trial(number: int) -> Verdict:
    """Return what became of image *number*."""
    rng = random.Random(number)
    raw = bytearray(image())
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        _harm(rng, raw)
    return judged(lambda: _booted(bytes(raw)))


def _harm(rng: random.Random, raw: bytearray) -> None:
    sectors = len(raw) // SECTOR_BYTES or 1
    start, at = (SECTOR_BYTES * rng.randrange(sectors) for _ in range(2))
    kind = rng.randrange(8)
    if kind < 3:
        place = rng.randrange(max(len(raw), 1))
        raw[place : place + 1] = bytes([rng.randrange(256)])
    elif kind < 5:
        raw[at : at + SECTOR_BYTES] = rng.choice((b"\0", b"\xff")) * SECTOR_BYTES
    elif kind < 7:
        size = rng.choice((64, 128, SECTOR_BYTES))
        raw[at : at + size] = raw[start : start + size]
    elif rng.random() < 0.3:
        size = rng.choice((0, 1, len(raw) - 1, len(raw) - 8192, len(raw) + 8192, len(raw) + 7))
        raw[:] = raw[:size].ljust(size, b"\xff")


def _booted(raw: bytes) -> Verdict:
    rig, looker = bench(_DESCRIPTORS), verifier()
    device = device_of_image(raw)
    first = boot_device(device, looker)
    if first.blob not in (rig.older, rig.old):
        return "booted", "a model that was never stored"
    again = boot_device(device, looker)
    if again.blob != first.blob:
        return "booted", "the second boot takes another model"
    return f"booted, {'newer' if first.blob == rig.old else 'older'}", ""


FUZZ_FLASH = Campaign(
    name="fuzz-flash",
    title="flash images with lost and moved sectors, flipped bytes and odd lengths",
    short=100,
    long=100_000,
    run=lambda ids, progress: counted(ids, progress, "images", flash_trial),
    group="fuzz",
)
