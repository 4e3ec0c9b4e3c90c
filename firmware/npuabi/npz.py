"""numpy's ``.npz`` and ``.npy`` files, read with distrust.

Invariant: an array's header is checked before its data is read, no more bytes are read than the
header says and the limit allows, and nothing is ever unpickled. Refusals are NpzError, a
ValueError with a text for the user. Archives are stored or deflated, as numpy writes them: the
other methods' readers can be told to take gigabytes.
"""

from __future__ import annotations

import difflib
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from npuabi.npy import ArrayHeader, NpzError, array_header

__all__ = [
    "MAX_FILE_BYTES",
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

MAX_FILE_BYTES = 8 * MAX_FILE_ELEMENTS
"""Bytes of those elements: a dtype of text may have any size."""

_KEYS_SHOWN = 12
_MAX_KEYS = 4096
_CHUNK_BYTES = 1 << 24
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BAD_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    UnicodeDecodeError,
)
"""What zipfile raises for bytes that are no archive."""


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


def array_keys(path: Path, name: str | None = None) -> list[str]:
    """Return the names of the arrays of an ``.npz``; messages call it *name*, or its path."""
    called = repr(name or str(path))
    try:
        with zipfile.ZipFile(path) as archive:
            keys = [n.removesuffix(".npy") for n in archive.namelist()]
    except _BAD_ARCHIVE as error:
        raise NpzError(f"{called} is no sound .npz: {error}") from error
    except OSError as error:
        raise NpzError(f"{called} cannot be read: {error.strerror or error}") from error
    if len(keys) > _MAX_KEYS or len(set(keys)) < len(keys):
        raise NpzError(f"{called} has {len(keys)} arrays, some of the same name or too many")
    return keys


def read_arrays(path: Path, name: str | None = None) -> dict[str, NDArray[Any]]:
    """Return every array of an ``.npz`` by its name, or the one of an ``.npy`` under ``""``.

    Messages call the file *name*, or its path. Raises NpzError, also when they
    hold more than MAX_FILE_ELEMENTS together.
    """
    called = name or str(path)
    keys = array_keys(path, called) if path.suffix == ".npz" else [None]
    arrays: dict[str, NDArray[Any]] = {}
    elements = octets = 0
    for key in keys:
        label = repr(called) if key is None else f"{key!r} of {called!r}"
        with array_stream(path, called, key) as stream:
            header = array_header(stream, label)
            elements += math.prod(header.shape)
            octets += header.data_bytes
            if elements > MAX_FILE_ELEMENTS or octets > MAX_FILE_BYTES:
                limit = f"{MAX_FILE_ELEMENTS} elements or {MAX_FILE_BYTES >> 20} MiB"
                raise NpzError(f"{label} makes more than {limit} in the file")
            arrays[key or ""] = array_of(stream, header, label)
    return arrays


def array_of(stream: IO[bytes], header: ArrayHeader, label: str) -> NDArray[Any]:
    """Return the array whose *header* was read from *stream*."""
    data = _read_exactly(stream, header.data_bytes, label)
    flat: NDArray[Any] = np.ndarray((math.prod(header.shape),), header.dtype, buffer=data)
    if header.fortran:
        return flat.reshape(header.shape[::-1]).T
    return flat.reshape(header.shape)


def _member(archive: zipfile.ZipFile, name: str, key: str | None) -> IO[bytes]:
    keys = [n.removesuffix(".npy") for n in archive.namelist()]
    if key is None:
        raise NpzError(f"{name!r} needs a key: it has {_listed(keys)}")
    if key not in keys:
        close = difflib.get_close_matches(key, keys, 1)
        hint = f", did you mean {close[0]!r}" if close else ""
        raise NpzError(f"{name!r} has no key {key!r}{hint}: it has {_listed(keys)}")
    info = archive.infolist()[keys.index(key)]
    if info.compress_type not in _METHODS:
        raise NpzError(f"{key!r} of {name!r} is compressed, but not as numpy does: save it again")
    return archive.open(info)


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
