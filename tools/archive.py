"""Write npz files whose bytes depend on the arrays alone.

Invariant: members stand in the given order under one fixed date, so that equal arrays give equal
files (numpy's own writer stamps the time of day).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["write_npz"]

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date that a zip member can bear
PERMISSIONS = 0o644 << 16


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write *arrays* to *path*, compressed; members are little-endian and in C order."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(_member(f"{name}.npy"), _encode(array), compresslevel=9)


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # the same on every host
    info.external_attr = PERMISSIONS
    return info


def _encode(array: NDArray[Any]) -> bytes:
    out = io.BytesIO()
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    np.lib.format.write_array(out, plain, version=(1, 0), allow_pickle=False)
    return out.getvalue()
