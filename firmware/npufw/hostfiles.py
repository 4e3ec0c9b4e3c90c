"""Files of the host: inputs from npz, npy and images, outputs to npz.

A network with one input also takes an ``.npy``, or an npz of one array, whatever its name.
"""

from __future__ import annotations

import io
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.errors import ErrorCode
from npuabi.images import image_files, is_image, read_images
from npuabi.npz import NpzError, read_arrays
from npuabi.preprocess import ImageError, Preprocess
from npuabi.sections import BLOB_MAGIC, MAX_BLOB_BYTES
from npufw.errors import FirmwareError

__all__ = ["named_arrays", "npz_bytes", "read_blob_file", "read_file", "read_inputs"]

_MAX_STREAM_BYTES = 1 << 30
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Every member's time, so that equal outputs are equal files."""


def read_blob_file(path: str) -> bytes:
    """Return the bytes of *path*, or of standard input for ``-``. Raises OSError.

    No more is read than a blob may have and one byte, by which boot sees that it is too long; of
    what does not begin as a blob no more than that shows.
    """
    if path == "-":
        return read_file(path, MAX_BLOB_BYTES)
    with Path(path).open("rb") as stream:
        head = stream.read(len(BLOB_MAGIC))
        return head + stream.read(MAX_BLOB_BYTES + 1 - len(head)) if head == BLOB_MAGIC else head


def read_file(path: str, limit: int) -> bytes:
    """Return the bytes of *path*, or of standard input for ``-``; at most one beyond *limit*.

    Raises OSError.
    """
    if path == "-":
        return sys.stdin.buffer.read(limit + 1)
    with Path(path).open("rb") as stream:
        return stream.read(limit + 1)


def read_inputs(
    options: Sequence[str], names: Sequence[str], recipe: Preprocess | None = None
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the arrays that ``--input`` options name, by input, and the names not used.

    An option is FILE or NAME=FILE; a file is an npz, an npy, an image, or a folder of images, which
    *recipe* turns into arrays. A file may hold more than the inputs, such as labels. Raises
    FirmwareError INPUT_FILE, INPUT_IMAGE, INPUT_UNKNOWN.
    """
    found: dict[str, NDArray[Any]] = {}
    for option in options:
        name, equals, path = option.partition("=")
        if not (path if equals else option):
            raise FirmwareError(ErrorCode.INPUT_FILE, f"--input {option!r} names no file")
        named = bool(equals) and (name in names or not Path(option).exists())
        held = _arrays(path if named else option, recipe)
        arrays = _one(name, path, held) if named else named_arrays(held, names, option)
        twice = found.keys() & arrays.keys()
        if twice:
            text = f"input {', '.join(sorted(twice))} is given twice"
            raise FirmwareError(ErrorCode.INPUT_UNKNOWN, text)
        if named and name not in names:
            text = f"no input is called {name!r}; the inputs are {', '.join(names)}"
            raise FirmwareError(ErrorCode.INPUT_UNKNOWN, text)
        found.update(arrays)
    used = {name: array for name, array in found.items() if name in names}
    return used, [name for name in found if name not in names]


def named_arrays(
    arrays: Mapping[str, NDArray[Any]], names: Sequence[str], path: str
) -> dict[str, NDArray[Any]]:
    """Return *arrays* by the network's input *names*; one array for one input needs no name."""
    if len(names) == len(arrays) == 1:
        return {names[0]: next(iter(arrays.values()))}
    if "" in arrays:
        text = f"{path} has no names, and the inputs are {', '.join(names)}: use NAME={path}"
        raise FirmwareError(ErrorCode.INPUT_UNKNOWN, text)
    return dict(arrays)


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return an npz of *arrays*, in their order; the same arrays give the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    return stream.getvalue()


def _one(name: str, path: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    if len(arrays) != 1:
        text = f"{path} holds {_list(arrays)}, and NAME=FILE takes a file of one array"
        help_ = "give --input FILE where the arrays have the inputs' names"
        raise FirmwareError(ErrorCode.INPUT_FILE, text, remedy=help_)
    return {name: next(iter(arrays.values()))}


def _arrays(path: str, recipe: Preprocess | None) -> dict[str, NDArray[Any]]:
    try:
        if is_image(path) or Path(path).is_dir():
            return {"": _images(Path(path), recipe)}
        return _from_stream() if path == "-" else read_arrays(Path(path))
    except ImageError as error:
        raise FirmwareError(ErrorCode.INPUT_IMAGE, str(error)) from error
    except NpzError as error:
        raise FirmwareError(ErrorCode.INPUT_FILE, str(error)) from error


def _images(path: Path, recipe: Preprocess | None) -> NDArray[Any]:
    if recipe is None:
        raise ImageError(f"{path} is no array: say how images become one with --preprocess")
    return read_images(image_files(path) if path.is_dir() else [path], recipe)


def _from_stream() -> dict[str, NDArray[Any]]:
    # A zip is read from its end, so standard input goes through a file of the right suffix.
    raw = sys.stdin.buffer.read(_MAX_STREAM_BYTES + 1)
    if len(raw) > _MAX_STREAM_BYTES:
        raise NpzError(f"standard input holds more than {_MAX_STREAM_BYTES} bytes")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stdin.npz" if raw[:2] == b"PK" else "stdin.npy")
        path.write_bytes(raw)
        return read_arrays(path, "standard input")


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "no arrays"
