"""Weight files: arrays of ``.npz`` and ``.npy`` files in the graph's own folder.

Invariant: a file is never trusted. Its place is checked before it is opened, an array's header
before its data is read, and no more bytes are read than the stated type needs; nothing is ever
unpickled. All refusals are ValueError with a text for the user.
"""

from __future__ import annotations

import difflib
import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

import numpy as np

from npuabi.npz import ArrayHeader, array_header, array_of, array_stream
from npuc.ir.core import Array
from npuc.ir.types import TensorType

__all__ = ["check_array", "read_array", "refuse_non_finite", "resolve_inside"]


def read_array(folder: Path, name: str, key: str | None, tensor: TensorType) -> Array:
    """Return the array of a weight file, in the type's shape and little-endian dtype.

    *key* names the array of an ``.npz``; an ``.npy`` has none. Raises ValueError.
    """
    path = resolve_inside(folder, name)
    with array_stream(path, name, key) as stream:
        header = _checked_header(stream, name, key, tensor)
        data = array_of(stream, header, repr(name))
    array = np.ascontiguousarray(data, dtype=tensor.numpy).reshape(tensor.dims)
    refuse_non_finite(array)
    return array


def check_array(folder: Path, name: str, key: str | None, tensor: TensorType) -> None:
    """Check that :func:`read_array` would find the right shape and dtype, without the data."""
    with array_stream(resolve_inside(folder, name), name, key) as stream:
        _checked_header(stream, name, key, tensor)


def refuse_non_finite(array: Array) -> None:
    """Raise ValueError with the first index of a NaN or infinity."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    index = np.unravel_index(int(np.argmin(np.isfinite(array))), array.shape)
    place = ", ".join(map(str, index))
    count = array.size - int(np.isfinite(array).sum())
    raise ValueError(f"value [{place}] is {array[index]}, and {count} in all are not finite")


def resolve_inside(folder: Path, name: str) -> Path:
    """Return the path of a regular file that really lies in *folder*; raises ValueError.

    Refused are absolute paths, ``..``, links that leave the folder and hard links, whose other
    name may lie anywhere.
    """
    pure = PurePosixPath(name)
    if not name or "\0" in name or "\\" in name or PureWindowsPath(name).drive:
        raise ValueError(f"{name!r} is no file name: write a relative path with /")
    if pure.is_absolute() or ".." in pure.parts:
        raise ValueError(f"{name!r} leaves the graph's folder: weight files lie beside the graph")
    root = folder.resolve()
    path = (root / pure).resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"{name!r} is a link that leaves the graph's folder: copy the file")
    _check_regular(path, name)
    return path


def _check_regular(path: Path, name: str) -> None:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise ValueError(f"no file {name!r} in the graph's folder{_similar(path)}") from None
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


def _checked_header(
    stream: IO[bytes], name: str, key: str | None, tensor: TensorType
) -> ArrayHeader:
    """Read the npy header and hold it against the stated type."""
    label = repr(name) if key is None else f"{key!r} of {name!r}"
    header = array_header(stream, label)
    if header.shape != tensor.dims:
        stated, found = _dims(tensor.dims), _dims(header.shape)
        raise ValueError(f"{label} has the shape {found}, the type states {stated}")
    if header.dtype.newbyteorder("<") != tensor.numpy:
        text = f"{label} holds {header.dtype.name}, the type states {tensor.numpy.name}"
        raise ValueError(f"{text}: convert it with array.astype({tensor.numpy.name!r})")
    return header


def _dims(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
