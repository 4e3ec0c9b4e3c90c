"""What the gates are shown on: the packaged digits network, or a user's blob and data."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from npuabi.errors import ErrorCode
from npuabi.npz import NpzError, read_arrays
from npufw.boot import boot, device_of
from npufw.errors import FirmwareError
from npufw.evaluate import split_labels
from npufw.gates.base import Subject
from npufw.hostfiles import read_blob_file

__all__ = ["load_subject"]


def load_subject(blob: str | None = None, data: str | None = None) -> Subject:
    """Return the subject of *blob* and *data*; without them the digits network and its test images.

    Raises AbiError for a blob that does not load and for data that does not fit it.
    """
    here = resources.files("npufw") / "gates"
    with resources.as_file(here / "digits.bin") as own, resources.as_file(here / "digits.npz") as x:
        raw = own.read_bytes() if blob is None else read_blob_file(blob)
        path = Path(x if data is None else data)
        try:
            arrays = read_arrays(path)
        except NpzError as error:
            raise FirmwareError(ErrorCode.INPUT_FILE, str(error)) from error
    image = boot(raw, device_of(raw, None))
    names = [port.name for port in image.inputs]
    inputs, labels = split_labels(arrays, "labels", names, str(path))
    return Subject(raw=raw, image=image, inputs=inputs, labels=labels)
