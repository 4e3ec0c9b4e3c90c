"""Which blobs a firmware takes: version, schema, target and features, as a table of rules.

The rules hold before any record is decoded and before anything is allocated, and each refusal
names both sides and the remedy. Same major; blob minor at most ours; the schema of that version;
the same target, number by number; no feature that we lack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from npuabi.errors import AbiError, ErrorCode
from npuabi.records import TableHeader
from npuabi.schemas import ABI_MAJOR, ABI_MINOR, Schema, Version, own_schema, released
from npuabi.target import Target

__all__ = [
    "FEATURES",
    "GEOMETRY",
    "GEOMETRY_SINCE",
    "SCHEMAS",
    "Abi",
    "abi_of",
    "check",
    "check_version",
    "own_abi",
]

FEATURES: dict[int, Version] = {}
"""Bits of the optional features that this code knows, with the version that each came with; there
are none yet."""

SCHEMAS: dict[Version, int] = {
    (0, 1): 0x27419909D044DA8C,
    (0, 2): 0x5ADF308CD7871F01,
}
"""Schema hash of every version; a test proves the newest, and files in versions/ the others."""

GEOMETRY = (
    "cores",
    "arrays",
    "banks",
    "bank_kib",
    "ddr_mib",
    "dma_alignment",
    "row_pitch",
    "vector_lanes",
)
"""The target's numbers that a table header states, by their name in both."""

GEOMETRY_SINCE: Version = (0, 2)
"""The first version whose table headers state them."""


@dataclass(frozen=True, kw_only=True)
class Abi:
    """What one firmware knows: its version, the schemas that it reads, its features."""

    version: Version
    schemas: Mapping[Version, Schema]
    features: int = 0

    @property
    def text(self) -> str:
        """The version as people write it."""
        return _dotted(self.version)

    def hash_of(self, version: Version) -> int:
        """Return the hash of that version's schema, 0 for one that is not known."""
        # Ours is computed, so that an edited record with an unbumped version is refused.
        schema = self.schemas.get(version)
        return 0 if schema is None else schema.hash


def own_abi() -> Abi:
    """Return what this code knows."""
    return abi_of((ABI_MAJOR, ABI_MINOR))


def abi_of(version: Version) -> Abi:
    """Return what a firmware of *version* knows: of what we know, what is not newer than that."""
    known = {**released(), (ABI_MAJOR, ABI_MINOR): own_schema()}
    return Abi(
        version=version,
        schemas={v: schema for v, schema in known.items() if v[0] == version[0] and v <= version},
        features=sum(bit for bit, since in FEATURES.items() if since <= version),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One condition on a table header, a target and a firmware, and what to say without it."""

    code: ErrorCode
    holds: Callable[[TableHeader, Target, Abi], bool]
    detail: Callable[[TableHeader, Target, Abi], str]


_RULES: tuple[Rule, ...] = (
    Rule(
        code=ErrorCode.SCHEMA_HASH,
        holds=lambda h, t, a: h.schema_hash == a.hash_of(_version(h)) != 0,
        detail=lambda h, t, a: (
            f"the blob's schema of ABI {_dotted(_version(h))} is {h.schema_hash:016x},"
            f" this firmware (ABI {a.text}) has {a.hash_of(_version(h)):016x} for it"
        ),
    ),
    Rule(
        code=ErrorCode.TARGET_NAME,
        holds=lambda h, t, a: h.target == t.name.encode(),
        detail=lambda h, t, a: f"the blob is for target {_text(h.target)}, the device is {t.name}",
    ),
    Rule(
        code=ErrorCode.GEOMETRY,
        holds=lambda h, t, a: _version(h) < GEOMETRY_SINCE or not _other_numbers(h, t),
        detail=lambda h, t, a: (
            f"the blob is for {_listed(_other_numbers(h, t), h)},"
            f" the device {t.name} has {_listed(_other_numbers(h, t), t)}"
        ),
    ),
    Rule(
        code=ErrorCode.TARGET_HASH,
        holds=lambda h, t, a: h.target_hash == t.hash,
        detail=lambda h, t, a: (
            f"the blob's target {_text(h.target)} has hash {h.target_hash:016x},"
            f" the device's {t.name} has {t.hash:016x}"
        ),
    ),
    Rule(
        code=ErrorCode.UNKNOWN_FEATURE,
        holds=lambda h, t, a: not h.features & ~a.features,
        detail=lambda h, t, a: (
            f"the blob uses features {h.features:#x}, this firmware knows {a.features:#x}"
        ),
    ),
)


def check_version(version: Version, abi: Abi) -> None:
    """Refuse a blob of that *version*: AbiError ABI_MAJOR or ABI_MINOR."""
    versions = f"the blob has ABI {_dotted(version)}, this firmware ABI {abi.text}"
    if version[0] != abi.version[0]:
        raise _refusal(ErrorCode.ABI_MAJOR, versions)
    if version > abi.version:
        raise _refusal(ErrorCode.ABI_MINOR, versions)


def check(header: TableHeader, target: Target, abi: Abi) -> None:
    """Refuse a blob with *header* on *target* and a firmware with *abi* unless every rule holds.

    Raises AbiError: ABI_MAJOR, ABI_MINOR, SCHEMA_HASH, TARGET_NAME, GEOMETRY, TARGET_HASH,
    UNKNOWN_FEATURE.
    """
    check_version(_version(header), abi)
    for rule in _RULES:
        if not rule.holds(header, target, abi):
            raise _refusal(rule.code, rule.detail(header, target, abi))


def _refusal(code: ErrorCode, detail: str) -> AbiError:
    return AbiError(code, f"{detail}; {code.remedy}")


def _version(header: TableHeader) -> Version:
    return header.abi_major, header.abi_minor


def _other_numbers(header: TableHeader, target: Target) -> list[str]:
    return [name for name in GEOMETRY if getattr(header, name) != getattr(target, name)]


def _listed(names: list[str], side: TableHeader | Target) -> str:
    return ", ".join(f"{name} {getattr(side, name)}" for name in names)


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
