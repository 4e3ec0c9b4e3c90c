"""Weight files: arrays of ``.npz`` and ``.npy`` files in the graph's own folder.

Invariant: a file is never trusted. Its place is checked before it is opened, an array's header
before its data is read, and no more bytes are read than the stated type needs; nothing is ever
unpickled. All refusals are ValueError with a text for the user.
"""

from __future__ import annotations

import difflib
import math
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

import numpy as np

from npuc.ir.core import Array
from npuc.ir.types import TensorType

__all__ = ["check_array", "read_array", "refuse_non_finite", "resolve_inside"]

_KEYS_SHOWN = 12
_CHUNK_BYTES = 1 << 24
_BAD_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
_BAD_HEADER = (ValueError, TypeError, KeyError, RecursionError, MemoryError, OverflowError)


def read_array(folder: Path, name: str, key: str | None, tensor: TensorType) -> Array:
    """Return the array of a weight file, in the type's shape and little-endian dtype.

    *key* names the array of an ``.npz``; an ``.npy`` has none. Raises ValueError.
    """
    with _opened(folder, name, key) as stream:
        header = _checked_header(stream, name, key, tensor)
        data = _read_exactly(stream, header.data_bytes, name)
    flat = np.frombuffer(data, header.dtype)
    shaped = flat.reshape(tensor.dims[::-1]).T if header.fortran else flat.reshape(tensor.dims)
    array = np.ascontiguousarray(shaped, dtype=tensor.numpy).reshape(tensor.dims)
    refuse_non_finite(array)
    return array


def check_array(folder: Path, name: str, key: str | None, tensor: TensorType) -> None:
    """Check that :func:`read_array` would find the right shape and dtype, without the data."""
    with _opened(folder, name, key) as stream:
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


@contextmanager
def _opened(folder: Path, name: str, key: str | None) -> Iterator[IO[bytes]]:
    """Yield the stream of one npy array, positioned at its magic."""
    path = resolve_inside(folder, name)
    try:
        with path.open("rb") as stream:
            if path.suffix == ".npz":
                with zipfile.ZipFile(stream) as archive, _member(archive, name, key) as member:
                    yield member
            elif key is not None:
                raise ValueError(f"{name!r} is no .npz, so it has no key {key!r}")
            else:
                yield stream
    except _BAD_ARCHIVE as error:
        raise ValueError(f"{name!r} is no sound .npz: {error}") from error
    except OSError as error:
        raise ValueError(f"{name!r} cannot be read: {error.strerror or error}") from error


def _member(archive: zipfile.ZipFile, name: str, key: str | None) -> IO[bytes]:
    keys = [n.removesuffix(".npy") for n in archive.namelist()]
    if key is None:
        raise ValueError(f"{name!r} needs a key: it has {_listed(keys)}")
    if key not in keys:
        close = difflib.get_close_matches(key, keys, 1)
        hint = f", did you mean {close[0]!r}" if close else ""
        raise ValueError(f"{name!r} has no key {key!r}{hint}: it has {_listed(keys)}")
    return archive.open(archive.namelist()[keys.index(key)])


def _listed(keys: list[str]) -> str:
    shown = ", ".join(keys[:_KEYS_SHOWN]) or "no arrays"
    return shown + (f" and {len(keys) - _KEYS_SHOWN} more" if len(keys) > _KEYS_SHOWN else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    fortran: bool

    @property
    def data_bytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


def _checked_header(stream: IO[bytes], name: str, key: str | None, tensor: TensorType) -> _Header:
    """Read the npy header and hold it against the stated type."""
    label = repr(name) if key is None else f"{key!r} of {name!r}"
    header = _header(stream, label)
    if header.dtype.hasobject:
        raise ValueError(f"{label} holds pickled Python objects, which are never read")
    if header.shape != tensor.dims:
        stated, found = _dims(tensor.dims), _dims(header.shape)
        raise ValueError(f"{label} has the shape {found}, the type states {stated}")
    if header.dtype.newbyteorder("<") != tensor.numpy:
        text = f"{label} holds {header.dtype.name}, the type states {tensor.numpy.name}"
        raise ValueError(f"{text}: convert it with array.astype({tensor.numpy.name!r})")
    return header


def _dims(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _header(stream: IO[bytes], label: str) -> _Header:
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        version = np.lib.format.read_magic(stream)
        if version not in readers:
            raise ValueError(f"npy version {version[0]}.{version[1]} is unknown")
        shape, fortran, dtype = readers[version](stream)
    except _BAD_HEADER as error:
        raise ValueError(f"{label} is no sound npy array: {error}") from error
    return _Header(shape=tuple(map(int, shape)), dtype=dtype, fortran=bool(fortran))


def _read_exactly(stream: IO[bytes], count: int, name: str) -> bytearray:
    """Return *count* bytes and check that the stream ends there, so that a zip's CRC is checked."""
    data = bytearray()
    while chunk := stream.read(min(_CHUNK_BYTES, count + 1 - len(data))):
        data += chunk
    if len(data) != count:
        word = "more" if len(data) > count else "fewer"
        raise ValueError(f"{name!r} holds {word} data bytes than the {count} that its header says")
    return data
