"""Output files that appear whole or not at all.

Invariant: at every moment the path holds the old content or the new one, never a part; an
interrupt or a full disk leaves no other file behind.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["refuse_overwriting", "write_atomically"]


def refuse_overwriting(path: str | Path, sources: Iterable[str | Path]) -> None:
    """Raise OSError when *path*, to be written, is one of the files that are read, by any name.

    A device, such as a terminal, is no file in this sense.
    """
    if str(path) == "-":
        return
    for source in sources:
        if os.path.isfile(path) and os.path.exists(source) and os.path.samefile(path, source):
            raise OSError(errno.EEXIST, f"it is read as {source}: name another output", str(path))


def write_atomically(path: str | Path, data: bytes, *, new_mode: int | None = None) -> None:
    """Write *data* to *path*, or to standard output for ``-``.

    The bytes go to a new file in the same folder, to the disk, and then take the name. A path that
    is a device or a pipe is written directly. Where there was no file, the new one's permissions
    are *new_mode*. Raises OSError, which names *path*, and leaves the old file alone.
    """
    try:
        _write(path, data, new_mode)
    except OSError as error:
        # The name of the temporary file would tell nobody anything; a closed pipe has none.
        if error.errno is not None and not isinstance(error, BrokenPipeError):
            error.filename = "standard output" if str(path) == "-" else str(path)
        raise


def _write(path: str | Path, data: bytes, new_mode: int | None) -> None:
    if str(path) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    final = Path(os.path.realpath(path))
    mode = _mode(final)
    if mode is not None and not stat.S_ISREG(mode):
        final.write_bytes(data)
        return
    _replace(final, data, new_mode if mode is None else mode)


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
