"""Flash images as files: raw bytes, or Intel HEX where the name ends in .hex, .ihex or .ihx.

An Intel HEX file leaves out what is erased, apart from the last bytes, which give the length.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from npuabi.commands import Refusal
from npuabi.errors import ErrorCode
from npuabi.files import write_atomically
from npufw.errors import FirmwareError
from npufw.flash.layout import ONE_TIME_BYTES, Device, device_of_image, image_of_device
from npufw.flash.nor import FlashModel
from npufw.hostfiles import read_file

__all__ = ["read_image", "write_image"]

_HEX = (".hex", ".ihex", ".ihx")
_MAX_BYTES = (1 << 31) + (1 << 20)
_MAX_HEX_BYTES = 1 << 28
"""A line of Intel HEX can name any address: a short file must not ask for gigabytes."""

_END = b":00000001FF"
_ERASED = 0xFF
_STEP = 16
"""Bytes of a line of Intel HEX; a line that is all erased is left out."""


def read_image(path: str, model: FlashModel) -> Device:
    """Return the device in a file. Raises FirmwareError FLASH_IMAGE, OSError, Refusal."""
    raw = read_file(path, _MAX_BYTES)
    return device_of_image(_from_hex(raw) if _is_hex(path) else raw, model)


def write_image(path: str, device: Device) -> None:
    """Write the device to a file, whole or not at all. Raises OSError, Refusal."""
    raw = image_of_device(device)
    write_atomically(path, _to_hex(raw) if _is_hex(path) else raw)


def _is_hex(path: str) -> bool:
    return Path(path).suffix.lower() in _HEX


def _intelhex() -> Any:
    try:
        import intelhex
    except ImportError as error:
        text = "Intel HEX files need intelhex: pip install 'npu-toolchain[flash]'"
        raise Refusal(f"error: {text}") from error
    return intelhex


def _from_hex(raw: bytes) -> bytes:
    intelhex = _intelhex()
    if not raw.rstrip().upper().endswith(_END):
        raise FirmwareError(ErrorCode.FLASH_IMAGE, "Intel HEX that does not end in its last record")
    image = intelhex.IntelHex()
    try:
        image.loadhex(io.StringIO(raw.decode("ascii")))
        last = image.maxaddr()
    except (intelhex.IntelHexError, UnicodeDecodeError) as error:
        raise FirmwareError(ErrorCode.FLASH_IMAGE, f"no Intel HEX: {error}") from error
    if last is None or last >= _MAX_HEX_BYTES:
        detail = f"Intel HEX without data, or with more than {_MAX_HEX_BYTES} bytes"
        raise FirmwareError(ErrorCode.FLASH_IMAGE, detail)
    found = np.full(last + 1, _ERASED, np.uint8)
    for start, end in image.segments():
        found[start:end] = np.frombuffer(image.gets(start, end - start), np.uint8)
    return found.tobytes()


def _to_hex(raw: bytes) -> bytes:
    if len(raw) > _MAX_HEX_BYTES:
        text = f"Intel HEX holds at most {_MAX_HEX_BYTES} bytes here, the image has {len(raw)}"
        raise Refusal(f"error: {text}; name a file of raw bytes")
    image = _intelhex().IntelHex()
    whole = len(raw) // _STEP * _STEP
    lines = np.frombuffer(raw[:whole], np.uint8).reshape(-1, _STEP)
    kept = np.flatnonzero((lines != _ERASED).any(axis=1)).tolist()
    for line in kept:
        image.puts(line * _STEP, lines[line].tobytes())
    image.puts(len(raw) - ONE_TIME_BYTES, raw[-ONE_TIME_BYTES:])
    stream = io.StringIO()
    image.write_hex_file(stream)
    return stream.getvalue().encode("ascii")
