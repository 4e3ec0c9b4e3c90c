"""The version register: which ABI version a device's firmware has, read at load and at each run.

    bit 31 ... 24 23 ... 16 15 ... 8 7 ... 0
        major     minor     ~major   ~minor

Invariant: a program runs only under the version that its blob was checked against. A register whose
halves do not agree is refused, so no single flipped bit is a version.
"""

from __future__ import annotations

from npuabi.errors import ErrorCode
from npuabi.policy import own_abi
from npuabi.schemas import Version
from npufw.errors import FirmwareError

__all__ = ["VersionRegister", "parse_version"]

_HALF = 0xFFFF


class VersionRegister:
    """The register of a device with firmware of *version*; this code's own by default."""

    def __init__(self, version: Version | None = None) -> None:
        self.bits = 0
        self.write(own_abi().version if version is None else version)

    def write(self, version: Version) -> None:
        """Hold *version*, as an update of the firmware does. Raises ValueError beyond 255.255."""
        major, minor = version
        if not (0 <= major <= 255 and 0 <= minor <= 255):
            raise ValueError(f"a version is 0.0 to 255.255, got {major}.{minor}")
        half = major << 8 | minor
        self.bits = half << 16 | half ^ _HALF

    def read(self) -> Version:
        """Return the version. Raises FirmwareError VERSION_CHANGED when a bit has flipped."""
        half = self.bits >> 16
        if half ^ (self.bits & _HALF) != _HALF:
            text = f"the version register holds {self.bits:#010x}, whose halves do not agree"
            raise FirmwareError(ErrorCode.VERSION_CHANGED, text)
        return half >> 8, half & 0xFF

    def confirm(self, version: Version) -> None:
        """Refuse to go on unless the register still holds *version*: FirmwareError."""
        now = self.read()
        if now != version:
            text = f"the blob was checked by ABI {_dotted(version)}, now it is {_dotted(now)}"
            raise FirmwareError(ErrorCode.VERSION_CHANGED, text)


def parse_version(text: str) -> Version:
    """Return the version that ``X.Y`` states. Raises ValueError."""
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal() and len(text) < 10):
        raise ValueError(f"a version is two numbers such as 0.1, got {text!r}")
    version = int(major), int(minor)
    VersionRegister(version)
    return version


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
