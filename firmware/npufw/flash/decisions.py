"""The decision table of the boot loader, as data: which slot boots, and what is healed before.

Rows are read from above; the first that fits decides. None fits anything. The code walks these
rows, the docs draw them, and a test proves that every state has a row and every row a state.

    HEADER_RULES  what four fields of a table header say, each as the update found or left it
    PAIR_RULES    two copies of a table in one slot
    BOOT_RULES    two slots and the hint
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Protocol, TypeVar

from npufw.flash.layout import Slot

__all__ = [
    "BOOT_RULES",
    "HEADER_RULES",
    "PAIR_RULES",
    "BootRule",
    "Choice",
    "CopyState",
    "Field",
    "Header",
    "HeaderRule",
    "Newer",
    "Pair",
    "PairRule",
    "boot_choice",
    "header_state",
    "newer_of",
    "pair_state",
]

_HALF_RANGE = 1 << 31


class Field(StrEnum):
    """What stands in a field of a header while a slot is updated."""

    OLD = auto()
    NEW = auto()
    ERASED = auto()
    GARBAGE = auto()


class Header(StrEnum):
    """What a header is. OLD is whole, but stands over records of the new model."""

    NEW = auto()
    OLD = auto()
    BAD = auto()


class CopyState(StrEnum):
    """Whether a copy of the table holds in every byte."""

    WHOLE = auto()
    BAD = auto()


class Pair(StrEnum):
    """What is to be done with the two copies of a slot before it may boot."""

    SOUND = auto()
    HEAL_A = auto()
    HEAL_B = auto()
    MERGE = auto()


class Newer(StrEnum):
    """Which slot has the newer generation."""

    A = auto()
    B = auto()
    NEITHER = auto()


class Choice(StrEnum):
    """What boots."""

    A = auto()
    B = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """Fields of a header -> what it is."""

    magic: tuple[Field, ...] | None
    valid: tuple[Field, ...] | None
    generation: tuple[Field, ...] | None
    crc: tuple[Field, ...] | None
    result: Header
    why: str


@dataclass(frozen=True, slots=True)
class PairRule:
    """Two copies -> what a slot needs."""

    a: CopyState | None
    b: CopyState | None
    result: Pair
    why: str


@dataclass(frozen=True, slots=True)
class BootRule:
    """Two slots that verify or do not, their age and the hint -> what boots."""

    a: bool | None
    b: bool | None
    newer: Newer | None
    hint: tuple[Slot | None, ...] | None
    result: Choice
    why: str


_WRITTEN = (Field.OLD, Field.NEW)
"""Magic and valid flag are the same bytes in every header."""

HEADER_RULES: tuple[HeaderRule, ...] = (
    HeaderRule(_WRITTEN, _WRITTEN, (Field.NEW,), (Field.NEW,), Header.NEW,
        "the update programmed all of it"),
    HeaderRule(_WRITTEN, _WRITTEN, (Field.OLD,), (Field.OLD,), Header.OLD,
        "the erase was cut and left it; the section's CRC does not take it"),
    HeaderRule(None, None, None, None, Header.BAD,
        "magic, valid flag or CRC do not hold"),
)  # fmt: skip

PAIR_RULES: tuple[PairRule, ...] = (
    PairRule(CopyState.WHOLE, CopyState.WHOLE, Pair.SOUND, "both are whole"),
    PairRule(CopyState.WHOLE, None, Pair.HEAL_B, "B is erased and written anew from A"),
    PairRule(None, CopyState.WHOLE, Pair.HEAL_A, "A is erased and written anew from B"),
    PairRule(None, None, Pair.MERGE,
        "record by record in memory, if each is whole in one copy; flash is left alone"),
)  # fmt: skip

BOOT_RULES: tuple[BootRule, ...] = (
    BootRule(True, False, None, None, Choice.A, "only A verifies"),
    BootRule(False, True, None, None, Choice.B, "only B verifies"),
    BootRule(False, False, None, None, Choice.NONE, "error no_bootable_slot"),
    BootRule(True, True, Newer.A, None, Choice.A, "A is newer"),
    BootRule(True, True, Newer.B, None, Choice.B, "B is newer"),
    BootRule(True, True, Newer.NEITHER, (Slot.B,), Choice.B, "equal: the hint says B"),
    BootRule(True, True, Newer.NEITHER, None, Choice.A, "equal: the hint says A, or nothing"),
)


class _Rule(Protocol):
    """A row: conditions by name, and a result."""


R = TypeVar("R", bound=_Rule)


def _fits(wanted: object, found: object) -> bool:
    return wanted is None or (found in wanted if isinstance(wanted, tuple) else found == wanted)


def _first(rules: Sequence[R], state: dict[str, object]) -> R:
    """Return the first row that fits. Raises LookupError: the table has a hole."""
    for rule in rules:
        if all(_fits(getattr(rule, name), found) for name, found in state.items()):
            return rule
    raise LookupError(f"no row of the decision table fits {state}")


def header_state(magic: Field, valid: Field, generation: Field, crc: Field) -> HeaderRule:
    """Return the row for a header."""
    state: dict[str, object] = {"magic": magic, "valid": valid}
    return _first(HEADER_RULES, {**state, "generation": generation, "crc": crc})


def pair_state(a: CopyState, b: CopyState) -> PairRule:
    """Return the row for the two copies of a slot."""
    return _first(PAIR_RULES, {"a": a, "b": b})


def boot_choice(a: bool, b: bool, newer: Newer, hint: Slot | None) -> BootRule:
    """Return the row for two slots."""
    return _first(BOOT_RULES, {"a": a, "b": b, "newer": newer, "hint": hint})


def newer_of(a: int, b: int) -> Newer:
    """Return which generation is newer: serial numbers of 32 bits, which wrap.

    Equal ones, and those that lie half the range apart, have no order.
    """
    ahead = (a - b) % (2 * _HALF_RANGE)
    if ahead in (0, _HALF_RANGE):
        return Newer.NEITHER
    return Newer.A if ahead < _HALF_RANGE else Newer.B
