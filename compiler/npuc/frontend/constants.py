"""Weight files: arrays of ``.npz`` and ``.npy`` files in the graph's own folder.

Invariant: a file is never trusted. Its place is checked before it is opened, an array's header
before its data is read, and no more bytes are read than the stated type needs; nothing is ever
unpickled. All refusals are ValueError with a text for the user.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np

from npuabi.inside import resolve_inside
from npuabi.npz import ArrayHeader, array_header, array_of, array_stream
from npuc.ir.core import Array
from npuc.ir.types import TensorType

__all__ = ["check_array", "read_array", "refuse_non_finite"]


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
