"""numpy's ``.npz`` and ``.npy`` files, read with distrust.

Invariant: an array's header is checked before its data is read, no more bytes are read than the
header says and the limit allows, and nothing is ever unpickled. Refusals are NpzError, a
ValueError with a text for the user.
"""

from __future__ import annotations

import difflib
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MAX_FILE_ELEMENTS",
    "ArrayHeader",
    "NpzError",
    "array_header",
    "array_keys",
    "array_of",
    "array_stream",
    "read_arrays",
]

MAX_FILE_ELEMENTS = 1 << 28
"""Elements that all arrays of one file may hold together."""

_KEYS_SHOWN = 12
_MAX_KEYS = 4096
_CHUNK_BYTES = 1 << 24
_BAD_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
_BAD_HEADER = (
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)
"""What numpy's header reader, which evaluates a literal, raises for bytes that are none."""

_REASON_SHOWN = 80


class NpzError(ValueError):
    """A file of arrays that cannot be read; the text says what and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayHeader:
    """What an npy header says of its array."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    fortran: bool

    @property
    def data_bytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


@contextmanager
def array_stream(path: Path, name: str, key: str | None) -> Iterator[IO[bytes]]:
    """Yield the stream of one npy array, positioned at its magic; *name* is for messages.

    *key* names the array of an ``.npz``; an ``.npy`` has none.
    """
    try:
        with path.open("rb") as stream:
            if path.suffix == ".npz":
                with zipfile.ZipFile(stream) as archive, _member(archive, name, key) as member:
                    yield member
            elif key is not None:
                raise NpzError(f"{name!r} is no .npz, so it has no key {key!r}")
            else:
                yield stream
    except _BAD_ARCHIVE as error:
        raise NpzError(f"{name!r} is no sound .npz: {error}") from error
    except OSError as error:
        raise NpzError(f"{name!r} cannot be read: {error.strerror or error}") from error


def array_keys(path: Path) -> list[str]:
    """Return the names of the arrays of an ``.npz``."""
    try:
        with zipfile.ZipFile(path) as archive:
            keys = [n.removesuffix(".npy") for n in archive.namelist()]
    except _BAD_ARCHIVE as error:
        raise NpzError(f"{str(path)!r} is no sound .npz: {error}") from error
    except OSError as error:
        raise NpzError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    if len(keys) > _MAX_KEYS or len(set(keys)) < len(keys):
        raise NpzError(f"{str(path)!r} has {len(keys)} arrays, some of the same name or too many")
    return keys


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return every array of an ``.npz`` by its name, or the one of an ``.npy`` under ``""``.

    Raises NpzError, also when they hold more than MAX_FILE_ELEMENTS together.
    """
    keys = array_keys(path) if path.suffix == ".npz" else [None]
    arrays: dict[str, NDArray[Any]] = {}
    left = MAX_FILE_ELEMENTS
    for key in keys:
        label = repr(str(path)) if key is None else f"{key!r} of {str(path)!r}"
        with array_stream(path, str(path), key) as stream:
            header = array_header(stream, label)
            left -= math.prod(header.shape)
            if left < 0:
                raise NpzError(f"{label} makes more than {MAX_FILE_ELEMENTS} elements in the file")
            arrays[key or ""] = array_of(stream, header, label)
    return arrays


def array_of(stream: IO[bytes], header: ArrayHeader, label: str) -> NDArray[Any]:
    """Return the array whose *header* was read from *stream*."""
    flat = np.frombuffer(_read_exactly(stream, header.data_bytes, label), header.dtype)
    if header.fortran:
        return flat.reshape(header.shape[::-1]).T
    return flat.reshape(header.shape)


def array_header(stream: IO[bytes], label: str) -> ArrayHeader:
    """Return the npy header at *stream*; refuse pickled objects. *label* is for messages."""
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
        reason = str(error).split("\n", 1)[0][:_REASON_SHOWN]
        raise NpzError(f"{label} is no sound npy array: {reason}") from error
    found = ArrayHeader(shape=tuple(map(int, shape)), dtype=dtype, fortran=bool(fortran))
    if found.dtype.hasobject:
        raise NpzError(f"{label} holds pickled Python objects, which are never read")
    return found


def _member(archive: zipfile.ZipFile, name: str, key: str | None) -> IO[bytes]:
    keys = [n.removesuffix(".npy") for n in archive.namelist()]
    if key is None:
        raise NpzError(f"{name!r} needs a key: it has {_listed(keys)}")
    if key not in keys:
        close = difflib.get_close_matches(key, keys, 1)
        hint = f", did you mean {close[0]!r}" if close else ""
        raise NpzError(f"{name!r} has no key {key!r}{hint}: it has {_listed(keys)}")
    return archive.open(archive.namelist()[keys.index(key)])


def _listed(keys: list[str]) -> str:
    shown = ", ".join(keys[:_KEYS_SHOWN]) or "no arrays"
    return shown + (f" and {len(keys) - _KEYS_SHOWN} more" if len(keys) > _KEYS_SHOWN else "")


def _read_exactly(stream: IO[bytes], count: int, label: str) -> bytearray:
    """Return *count* bytes and check that the stream ends there, so that a zip's CRC is checked."""
    data = bytearray()
    while chunk := stream.read(min(_CHUNK_BYTES, count + 1 - len(data))):
        data += chunk
    if len(data) != count:
        word = "more" if len(data) > count else "fewer"
        raise NpzError(f"{label} holds {word} data bytes than the {count} that its header says")
    return data
