"""The header of numpy's ``.npy`` format, read with distrust and without numpy's own reader.

    magic  version  length  text
    6      2        2 or 4  a Python literal: {'descr': '<f4', 'fortran_order': False,
                            'shape': (1, 3), }

Invariant: whatever the bytes are, the result is an ArrayHeader that an array can have or an
NpzError, a ValueError with a text for the user; nothing is ever unpickled.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

__all__ = ["ArrayHeader", "NpzError", "array_header"]

_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4}
_MAX_HEADER_BYTES = 10_000
_MAX_RANK = 32
_MAX_SPREAD_BYTES = 1 << 62
_KEYS = {"descr", "fortran_order", "shape"}
_PLAIN = re.compile(r"[<>|=]?[?biufcmMSUVO][0-9]{0,9}(\[[0-9a-zA-Z]{1,9}\])?")
"""A dtype of one number or text an element; records and sub-arrays have other spellings."""

_NO_LITERAL = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)
_SHOWN = 40


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


def array_header(stream: IO[bytes], label: str) -> ArrayHeader:
    """Return the npy header at *stream*; refuse pickled objects. *label* is for messages."""
    try:
        fields = _fields(_text(stream))
        found = ArrayHeader(
            shape=_shape(fields["shape"]),
            dtype=_dtype(fields["descr"]),
            fortran=_flag(fields["fortran_order"]),
        )
    except ValueError as error:
        raise NpzError(f"{label} is no sound npy array: {error}") from error
    if _spread(found) > _MAX_SPREAD_BYTES:
        raise NpzError(f"{label} has dims that no array can have: {_short(str(found.shape))}")
    if found.dtype.hasobject:
        raise NpzError(f"{label} holds pickled Python objects, which are never read")
    return found


def _spread(header: ArrayHeader) -> int:
    """Return the bytes that dims of 0 taken as 1 would need: numpy multiplies all of them."""
    return math.prod(max(n, 1) for n in header.shape) * header.dtype.itemsize


def _text(stream: IO[bytes]) -> str:
    """Return the header's literal; raises ValueError, as all that follow."""
    start = stream.read(len(_MAGIC) + 2)
    if start[:-2] != _MAGIC:
        raise ValueError("it does not begin as an npy array does")
    version = start[-2], start[-1]
    if version not in _LENGTH_BYTES:
        raise ValueError(f"npy version {version[0]}.{version[1]} is unknown")
    count = int.from_bytes(_exactly(stream, _LENGTH_BYTES[version]), "little")
    if count > _MAX_HEADER_BYTES:
        raise ValueError(f"its header has {count} bytes, the limit is {_MAX_HEADER_BYTES}")
    return _exactly(stream, count).decode("latin-1")


def _exactly(stream: IO[bytes], count: int) -> bytes:
    raw = stream.read(count)
    if len(raw) != count:
        raise ValueError("its header is cut short")
    return raw


def _fields(text: str) -> dict[str, Any]:
    try:
        # Stripped, as ast would take leading blanks for an indent.
        fields = ast.literal_eval(text.strip())
    except _NO_LITERAL as error:
        raise ValueError(f"its header is no literal: {_short(text)}") from error
    if not isinstance(fields, dict) or set(fields) != _KEYS:
        raise ValueError(f"its header states no {', '.join(sorted(_KEYS))}: {_short(text)}")
    return fields


def _shape(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"its shape is no tuple of whole numbers: {_short(str(shape))}")
    if len(shape) > _MAX_RANK:
        raise ValueError(f"it has {len(shape)} dims, the limit is {_MAX_RANK}")
    return shape


def _dtype(descr: object) -> np.dtype[np.generic]:
    if not isinstance(descr, str) or not _PLAIN.fullmatch(descr):
        raise ValueError(f"its dtype is no plain one: {_short(str(descr))}")
    try:
        return np.dtype(descr)
    except (TypeError, ValueError) as error:
        raise ValueError(f"its dtype is unknown: {_short(descr)}") from error


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"its fortran_order is True or False, got {_short(str(value))}")
    return value


def _short(text: str) -> str:
    return repr(text[:_SHOWN]) + ("..." if len(text) > _SHOWN else "")
