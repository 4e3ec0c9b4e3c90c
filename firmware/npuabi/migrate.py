"""Blobs rewritten for another ABI version: read with the layouts of theirs, written with others.

Timing of temperature bands, which an older version cannot say, is left out and made anew.

Invariant: constants, names and the known answer stay as they are, so the blob computes the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from npuabi.bands import BASE_BAND, band_sets, limits, sample_taps
from npuabi.container import read_blob, write_blob_as
from npuabi.enums import Section, Unit
from npuabi.errors import AbiError, ErrorCode
from npuabi.policy import GEOMETRY, GEOMETRY_SINCE, Abi, own_abi
from npuabi.program import Event, Program
from npuabi.schemas import Version
from npuabi.target import Target

__all__ = ["Migrated", "migrate"]


BANDS_SINCE: Version = (0, 2)
"""The first version whose blobs hold the timing of temperature bands."""


@dataclass(frozen=True, kw_only=True)
class Migrated:
    """The blob made, the versions it came from and has, and what was healed while reading.

    ``unsigned`` says that a signature was dropped, which held for the old layouts only.
    """

    blob: bytes
    before: Version
    after: Version
    events: tuple[Event, ...]
    unsigned: bool


def migrate(
    raw: bytes, target: Target, version: Version | None = None, abi: Abi | None = None
) -> Migrated:
    """Return the blob *raw*, which is for *target*, as one of *version*; by default of ours.

    *abi* knows the versions, all of ours by default.

    Raises AbiError: what ``read_blob`` refuses, ABI_MAJOR or ABI_MINOR for a *version* that we do
    not know, BAD_FIELD or BAD_SECTION_TABLE for a program that an older version cannot say.
    """
    abi = abi or own_abi()
    after = abi.version if version is None else version
    if after not in abi.schemas:
        known = ", ".join(f"{major}.{minor}" for major, minor in sorted(abi.schemas))
        code = ErrorCode.ABI_MINOR if after[0] == abi.version[0] else ErrorCode.ABI_MAJOR
        raise AbiError(code, f"ABI {after[0]}.{after[1]} is not known here; {known} are")
    loaded = read_blob(raw, target=target, abi=abi)
    stated: dict[str, Any] = {
        name: getattr(target, name) if after >= GEOMETRY_SINCE else 0 for name in GEOMETRY
    }
    header = replace(
        loaded.program.header,
        abi_major=after[0],
        abi_minor=after[1],
        schema_hash=abi.schemas[after].hash,
        **stated,
    )
    schema = abi.schemas[after]
    program = replace(loaded.program, header=header)
    if after != loaded.version:
        # What was signed are the bytes in the layouts of their version.
        program = replace(program, signatures=())
    if Section.BANDS not in schema.sections:
        program = _untimed(program)
    elif loaded.version < BANDS_SINCE:
        program = _timed(program, target)
    blob = write_blob_as(program, schema)
    return Migrated(
        blob=blob,
        before=loaded.version,
        after=after,
        events=loaded.events,
        unsigned=len(program.signatures) < len(loaded.program.signatures),
    )


def _untimed(program: Program) -> Program:
    """Return *program* without what it says of temperatures."""
    toas = tuple(replace(toa, sample_taps=0) for toa in program.toas)
    return replace(program, toas=toas, bands=())


def _timed(program: Program, target: Target) -> Program:
    """Return *program* with the timing that the compiler would have given it."""
    taps = sample_taps(limits(BASE_BAND)[1])
    toas = tuple(replace(t, sample_taps=taps if t.unit is Unit.MAC else 0) for t in program.toas)
    return replace(program, toas=toas, bands=band_sets(target))
