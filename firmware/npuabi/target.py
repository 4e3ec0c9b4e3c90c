"""Targets: the machine's numbers, read from a TOML file that compiler and firmware share.

Invariant: a field is named here once; a missing, unknown or out-of-range key is an error.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path

from npuabi.tomltext import read_toml

__all__ = ["Target", "TargetError", "load_target", "target_names"]

_MAX_BYTES = 64 << 10
_SHOWN = 200


class TargetError(ValueError):
    """A target file that cannot be used; the text says which key and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One NPU. Sizes in bytes, times in cycles; the table in design.md section 3 in numbers."""

    name: str
    cores: int
    arrays: int
    banks: int
    bank_kib: int
    ddr_mib: int
    ddr_bytes_per_cycle: int
    ddr_latency_cycles: int
    dma_burst_bytes: int
    dma_alignment: int
    row_pitch: int
    accumulator_bytes: int
    vector_lanes: int
    ring_entries: int
    fetch_cycles: int
    precision_switch_cycles: int
    waiting_descriptors: int
    clock_mhz: int

    @property
    def bank_bytes(self) -> int:
        """Bytes of one SRAM bank."""
        return self.bank_kib << 10

    @property
    def sram_bytes(self) -> int:
        """Bytes of one core's SRAM."""
        return self.banks * self.bank_bytes

    @property
    def ddr_bytes(self) -> int:
        """Bytes of DDR."""
        return self.ddr_mib << 20

    @property
    def peak_macs_per_cycle(self) -> int:
        """int8 multiply-accumulates a cycle of one core."""
        return self.arrays * 256

    @property
    def hash(self) -> int:
        """64-bit hash of the parsed values, the same for every spelling of the file."""
        text = ";".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


_LIMITS: dict[str, tuple[int, int]] = {
    "cores": (1, 64),
    "arrays": (1, 64),
    "banks": (1, 256),
    "bank_kib": (1, 4096),
    "ddr_mib": (1, 4095),
    "ddr_bytes_per_cycle": (1, 1024),
    "ddr_latency_cycles": (0, 100_000),
    "dma_burst_bytes": (16, 4096),
    "dma_alignment": (16, 4096),
    "row_pitch": (16, 4096),
    "accumulator_bytes": (1024, 1 << 20),
    "vector_lanes": (1, 1024),
    "ring_entries": (4, 65_536),
    "fetch_cycles": (0, 10_000),
    "precision_switch_cycles": (0, 100_000),
    "waiting_descriptors": (1, 16),
    "clock_mhz": (1, 10_000),
}
_POWERS_OF_TWO = ("bank_kib", "dma_burst_bytes", "dma_alignment", "row_pitch")


def target_names() -> list[str]:
    """Return the names of the targets that come with the toolchain, sorted."""
    folder = resources.files("npuabi") / "targets"
    return sorted(
        p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml")
    )


def load_target(name_or_path: str) -> Target:
    """Return the target of that name, or the one in the TOML file at that path.

    Raises TargetError when there is none, or when a key is missing, unknown or out of range.
    """
    if name_or_path in target_names():
        text = (resources.files("npuabi") / "targets" / f"{name_or_path}.toml").read_text("utf-8")
        return parse_target(text, name_or_path)
    path = Path(name_or_path)
    if not path.is_file():
        known = ", ".join(target_names())
        raise TargetError(f"no target or file {name_or_path!r}: known targets are {known}")
    if path.stat().st_size > _MAX_BYTES:
        raise TargetError(f"{path}: a target file has at most {_MAX_BYTES} bytes")
    try:
        return parse_target(path.read_text("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise TargetError(f"{path}: not UTF-8 text at byte {error.start}") from error


def parse_target(text: str, where: str) -> Target:
    """Return the target that TOML *text* states; *where* names the file in errors."""
    try:
        values = read_toml(text)
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
        raise TargetError(f"{where}: {_short(str(error))}") from error
    names = [f.name for f in fields(Target)]
    for word, keys in (
        ("missing", set(names) - set(values)),
        ("unknown", set(values) - set(names)),
    ):
        if keys:
            raise TargetError(f"{where}: {word} key {_short(', '.join(sorted(keys)))}")
    name = values["name"]
    if not isinstance(name, str) or not 0 < len(name.encode()) <= 16 or not name.isprintable():
        raise TargetError(f"{where}: name is 1 to 16 bytes of text, got {_short(repr(name))}")
    for key, (low, high) in _LIMITS.items():
        _check_number(where, key, values[key], low, high)
    return Target(**values)


def _short(value: object) -> str:
    """Return a value for a message; Python writes no number of thousands of digits."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _check_number(where: str, key: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        got = _short(repr(value) if isinstance(value, str) else value)
        raise TargetError(f"{where}: {key} is a whole number from {low} to {high}, got {got}")
    if key in _POWERS_OF_TWO and value & (value - 1):
        raise TargetError(f"{where}: {key} is a power of two, got {value}")
