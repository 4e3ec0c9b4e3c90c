"""npz files that depend on their arrays alone."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from tools.archive import write_npz
from tools.layers import Array


def test_numpy_reads_back_what_was_written(tmp_path: Path) -> None:
    arrays: dict[str, Array] = {
        "b": np.arange(6, dtype=np.float32).reshape(2, 3),
        "a": np.array([1, -2], np.int64),
        "turned": np.arange(6).reshape(2, 3).T,
    }
    write_npz(tmp_path / "x.npz", arrays)
    with np.load(tmp_path / "x.npz", allow_pickle=False) as read:
        assert read.files == ["b", "a", "turned"]
        for name, array in arrays.items():
            assert read[name].dtype == array.dtype
            np.testing.assert_array_equal(read[name], array)


def test_no_member_bears_the_time_of_day(tmp_path: Path) -> None:
    write_npz(tmp_path / "x.npz", {"x": np.zeros(3)})
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        assert [member.date_time for member in archive.infolist()] == [(1980, 1, 1, 0, 0, 0)]


def test_byte_order_of_the_host_does_not_show(tmp_path: Path) -> None:
    write_npz(tmp_path / "little.npz", {"x": np.arange(3, dtype="<i4")})
    write_npz(tmp_path / "big.npz", {"x": np.arange(3, dtype=">i4")})
    assert (tmp_path / "little.npz").read_bytes() == (tmp_path / "big.npz").read_bytes()
