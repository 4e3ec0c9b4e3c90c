"""Files that a text names: regular files in the text's own folder, and nothing else.

Invariant: a file's place is checked before it is opened. Refusals are ValueError with a text for
the user.
"""

from __future__ import annotations

import difflib
import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath

__all__ = ["resolve_inside"]


def resolve_inside(folder: Path, name: str) -> Path:
    """Return the path of a regular file that really lies in *folder*; raises ValueError.

    Refused are absolute paths, ``..``, links that leave the folder and hard links, whose other
    name may lie anywhere.
    """
    pure = PurePosixPath(name)
    if not name or "\0" in name or "\\" in name or PureWindowsPath(name).drive:
        raise ValueError(f"{name!r} is no file name: write a relative path with /")
    if pure.is_absolute() or ".." in pure.parts:
        raise ValueError(f"{name!r} leaves the text's folder: files that it names lie beside it")
    root = folder.resolve()
    path = (root / pure).resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"{name!r} is a link that leaves the text's folder: copy the file")
    _check_regular(path, name)
    return path


def _check_regular(path: Path, name: str) -> None:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise ValueError(f"no file {name!r} in the text's folder{_similar(path)}") from None
    except OSError as error:
        raise ValueError(f"{name!r} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{name!r} is not a regular file")
    if status.st_nlink > 1:
        raise ValueError(f"{name!r} is a hard link, which may leave the folder: copy the file")


def _similar(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    close = difflib.get_close_matches(path.name, sorted(os.listdir(path.parent)), 1)
    return f", did you mean {close[0]!r}" if close else ""
