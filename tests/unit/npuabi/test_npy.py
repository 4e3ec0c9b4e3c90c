"""Array files are hostile: whatever their bytes are, an array or an NpzError comes out."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuabi.npz import NpzError, array_header, read_arrays

PLAIN = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n"
DTYPES = ["<f4", ">f4", "<f2", "<f8", "|i1", "|u1", ">i2", "<u8", "|b1", "<c8", "<U3", "|S5", "|V4"]
DTYPES += ["<M8[s]", "<g"]
SHAPES = ["(-1,)", "(-1, -2)", "(2.0,)", "(True,)", "2", "[2]", "None", "('a',)", "(0, 10**30)"]
SHAPES += [
    f"(0, {10**30})",
    f"({2**40}, {2**40})",
    f"({'1, ' * 70})",
    f"({'9' * 5000},)",
    "(" * 900,
]
NO_DTYPES = ["'spam'", "'<f99'", "'f4,f4'", "'0f4'", "'(0x)f4'", "'<f4,(9,9)f4'", "[('a', '<f4')]"]
NO_DTYPES += ["7", "'|S999999999'", "'O'", "''", "None", "'<f4\\x00'"]


def npy(text: str, data: bytes = bytes(8), version: tuple[int, int] = (1, 0)) -> bytes:
    raw = text.encode("latin-1")
    length = struct.pack("<H" if version == (1, 0) else "<I", len(raw))
    return b"\x93NUMPY" + bytes(version) + length + raw + data


def with_shape(shape: str) -> str:
    return PLAIN.replace("(2,)", shape)


def with_dtype(dtype: str) -> str:
    return PLAIN.replace("'<f4'", dtype)


def refusal(folder: Path, raw: bytes, name: str = "a.npy") -> str:
    (folder / name).write_bytes(raw)
    with pytest.raises(NpzError) as caught:
        read_arrays(folder / name)
    return str(caught.value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_what_numpy_saves_is_read(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    for array in (np.zeros(shape, dtype), np.zeros(shape, dtype, order="F")):
        np.save(tmp_path / "a.npy", array)
        found = read_arrays(tmp_path / "a.npy")[""]
        assert (found.shape, found.dtype) == (array.shape, array.dtype)
        assert found.tobytes() == array.tobytes()


def test_a_header_of_version_2_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(npy(PLAIN, version=(2, 0)))
    assert read_arrays(tmp_path / "a.npy")[""].shape == (2,)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_that_no_array_has_is_refused(tmp_path: Path, shape: str) -> None:
    assert len(refusal(tmp_path, npy(with_shape(shape)))) < 300


@pytest.mark.parametrize("dtype", NO_DTYPES)
def test_a_dtype_that_is_no_plain_one_is_refused(tmp_path: Path, dtype: str) -> None:
    assert len(refusal(tmp_path, npy(with_dtype(dtype)))) < 300


def test_text_elements_of_any_size_cannot_exhaust_the_host(tmp_path: Path) -> None:
    text = "{'descr': '|S100000', 'fortran_order': False, 'shape': (200000,), }\n"
    assert "more than" in refusal(tmp_path, npy(text))


def test_any_damage_to_a_header_is_an_array_or_a_refusal() -> None:
    rng = random.Random(1)
    for _ in range(4000):
        raw = bytearray(npy(PLAIN))
        for _ in range(rng.choice([1, 1, 2, 4])):
            raw[rng.randrange(len(raw) - 8)] = rng.choice(
                [*b"()[]{},:'\"0129-#\\\n", rng.randrange(256)]
            )
        try:
            array_header(io.BytesIO(raw), "it")
        except NpzError:
            continue


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_numpy_does_not_write_are_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive:
        archive.writestr("x.npy", npy(PLAIN))
    with pytest.raises(NpzError, match="not as numpy does"):
        read_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_any_damage_to_an_archive_is_arrays_or_a_refusal(tmp_path: Path, save: Any) -> None:
    stream, rng = io.BytesIO(), random.Random(2)
    save(stream, x=np.ones(2, "f4"), y=np.ones((2, 2), "i4"))
    for _ in range(2000):
        raw = bytearray(stream.getvalue())
        for _ in range(rng.choice([1, 1, 2, 4])):
            place = rng.randrange(len(raw))
            raw[place] = rng.choice(
                [0, 255, raw[place] ^ 1 << rng.randrange(8), rng.randrange(256)]
            )
        (tmp_path / "a.npz").write_bytes(raw)
        try:
            read_arrays(tmp_path / "a.npz")
        except NpzError:
            continue
