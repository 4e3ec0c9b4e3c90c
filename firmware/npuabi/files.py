"""Output files that appear whole or not at all.

Invariant: at every moment the path holds the old content or the new one, never a part; an
interrupt or a full disk leaves no other file behind.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
from pathlib import Path

__all__ = ["write_atomically"]


def write_atomically(path: str | Path, data: bytes) -> None:
    """Write *data* to *path*, or to standard output for ``-``.

    The bytes go to a new file in the same folder, to the disk, and then take the name. A path that
    is a device or a pipe is written directly. Raises OSError, and leaves the old file alone.
    """
    if str(path) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    final = Path(os.path.realpath(path))
    mode = _mode(final)
    if mode is not None and not stat.S_ISREG(mode):
        final.write_bytes(data)
        return
    _replace(final, data, mode)


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _replace(final: Path, data: bytes, mode: int | None) -> None:
    temporary = final.parent / f".npu-{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), stat.S_IMODE(mode))
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)
