"""The firmware's refusals: the ABI's codes, with the place in the program.

AbiError
 └─ FirmwareError
"""

from __future__ import annotations

from npuabi.errors import AbiError, ErrorCode

__all__ = ["FirmwareError"]


class FirmwareError(AbiError):
    """A program or host array that the firmware does not take.

    The detail ends with what would help: *remedy*, or else that of the code.
    """

    def __init__(self, code: ErrorCode, detail: str, *, remedy: str = "") -> None:
        super().__init__(code, f"{detail}; {remedy or code.remedy}")
