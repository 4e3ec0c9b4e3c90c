"""Which blobs this firmware takes: version, target, schema and features, as a table of rules.

The rules hold before any record is decoded and before anything is allocated, and each refusal
names both sides and the remedy. Same major; blob minor at most ours; the schema of that version;
the same target; no feature that we lack.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from npuabi import enums
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import RECORDS, TableHeader
from npuabi.target import Target

__all__ = [
    "ABI_MAJOR",
    "ABI_MINOR",
    "FEATURES",
    "SCHEMAS",
    "check",
    "check_version",
    "schema_hash",
    "schema_text",
]

ABI_MAJOR, ABI_MINOR = 0, 1
"""The version that this code writes. Major 0: the layout may still change freely."""

FEATURES = 0
"""Bits of the optional features that this code knows; there are none yet."""

SCHEMAS: dict[tuple[int, int], int] = {
    (0, 1): 0x27419909D044DA8C,
}
"""Schema hash of every version ever released; a test proves the newest."""


def schema_text() -> str:
    """Return all that the schema hash covers: records, offsets, types and enum members."""
    return "\n".join((*_record_lines(), *_enum_lines()))


def _record_lines() -> Iterator[str]:
    for kind in RECORDS:
        yield f"record {kind.__name__} {kind.SIZE}"
        for offset, name, wire in kind.rows():
            enum = wire.enum.__name__ if wire.enum else "-"
            yield f"{offset} {name} {wire.ctype} {wire.count} {wire.role} {enum}"


def _enum_lines() -> Iterator[str]:
    for name in sorted(enums.__all__):
        yield f"enum {name}"
        yield from (f"{member.name} {member.value}" for member in getattr(enums, name))


@cache
def schema_hash() -> int:
    """Return the 64-bit hash of the schema that this code has (first bytes of a SHA-256)."""
    return int.from_bytes(hashlib.sha256(schema_text().encode()).digest()[:8], "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One condition on a table header and a target, and what to say when it does not hold."""

    code: ErrorCode
    holds: Callable[[TableHeader, Target], bool]
    detail: Callable[[TableHeader, Target], str]


def _known_schema(major: int, minor: int) -> int | None:
    # Ours is computed, so that an edited record with an unbumped version is refused.
    return (
        schema_hash() if (major, minor) == (ABI_MAJOR, ABI_MINOR) else SCHEMAS.get((major, minor))
    )


_RULES: tuple[Rule, ...] = (
    Rule(
        code=ErrorCode.SCHEMA_HASH,
        holds=lambda h, t: h.schema_hash == _known_schema(h.abi_major, h.abi_minor),
        detail=lambda h, t: (
            f"the blob's schema of ABI {h.abi_major}.{h.abi_minor} is {h.schema_hash:016x},"
            f" this firmware (ABI {ABI_MAJOR}.{ABI_MINOR}) has"
            f" {_known_schema(h.abi_major, h.abi_minor) or 0:016x} for it"
        ),
    ),
    Rule(
        code=ErrorCode.TARGET_NAME,
        holds=lambda h, t: h.target == t.name.encode(),
        detail=lambda h, t: f"the blob is for target {_text(h.target)}, the device is {t.name}",
    ),
    Rule(
        code=ErrorCode.TARGET_HASH,
        holds=lambda h, t: h.target_hash == t.hash,
        detail=lambda h, t: (
            f"the blob's target {_text(h.target)} has hash {h.target_hash:016x},"
            f" the device's {t.name} has {t.hash:016x}"
        ),
    ),
    Rule(
        code=ErrorCode.UNKNOWN_FEATURE,
        holds=lambda h, t: not h.features & ~FEATURES,
        detail=lambda h, t: (
            f"the blob uses features {h.features:#x}, this firmware knows {FEATURES:#x}"
        ),
    ),
)


def check_version(major: int, minor: int) -> None:
    """Refuse a blob of ABI *major*.*minor*: AbiError ABI_MAJOR or ABI_MINOR."""
    versions = f"the blob has ABI {major}.{minor}, this firmware ABI {ABI_MAJOR}.{ABI_MINOR}"
    if major != ABI_MAJOR:
        raise _refusal(ErrorCode.ABI_MAJOR, versions)
    if minor > ABI_MINOR:
        raise _refusal(ErrorCode.ABI_MINOR, versions)


def check(header: TableHeader, target: Target) -> None:
    """Refuse a blob with *header* on *target* unless every rule holds.

    Raises AbiError: ABI_MAJOR, ABI_MINOR, SCHEMA_HASH, TARGET_NAME, TARGET_HASH, UNKNOWN_FEATURE.
    """
    check_version(header.abi_major, header.abi_minor)
    for rule in _RULES:
        if not rule.holds(header, target):
            raise _refusal(rule.code, rule.detail(header, target))


def _refusal(code: ErrorCode, detail: str) -> AbiError:
    return AbiError(code, f"{detail}; {code.remedy}")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
