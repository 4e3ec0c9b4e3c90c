"""Error codes of the firmware and their texts, stated once.

    AbiError
     └─ npufw.errors.FirmwareError (the firmware's own, with the same codes)

A code is part of the ABI: its number never changes its meaning.
"""

from __future__ import annotations

from enum import IntEnum, unique

__all__ = ["AbiError", "ErrorCode"]


@unique
class ErrorCode(IntEnum):
    """What was refused. ``text`` says it in words, ``remedy`` what would help."""

    SHORT_RECORD = 0x01
    RECORD_CRC = 0x02
    BAD_FIELD = 0x03

    @property
    def text(self) -> str:
        """What happened, in words."""
        return _TEXTS[self][0]

    @property
    def remedy(self) -> str:
        """What would help."""
        return _TEXTS[self][1]


_TEXTS: dict[ErrorCode, tuple[str, str]] = {
    ErrorCode.SHORT_RECORD: ("a record is cut short", "copy the blob again from its source"),
    ErrorCode.RECORD_CRC: ("a record's CRC does not match", "copy the blob again from its source"),
    ErrorCode.BAD_FIELD: ("a field holds a value that the ABI does not know", "compile again"),
}


class AbiError(Exception):
    """Bytes that break the contract; carries the code and the facts."""

    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(f"{code.name.lower()} (0x{code:02x}): {detail}")
        self.code = code
        self.detail = detail
