"""The firmware's refusals: the ABI's codes, with the place in the program.

AbiError
 └─ FirmwareError
"""

from __future__ import annotations

from npuabi.errors import AbiError, ErrorCode

__all__ = ["FirmwareError"]


class FirmwareError(AbiError):
    """A program or host array that the firmware does not take; the detail ends with a remedy."""

    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(code, f"{detail}; {code.remedy}")
