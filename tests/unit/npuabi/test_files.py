"""Output files: whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from npuabi.files import refuse_overwriting, write_atomically


def test_a_new_file_gets_the_usual_mode(tmp_path: Path) -> None:
    path = tmp_path / "out"
    write_atomically(path, b"abc")
    other = tmp_path / "other"
    other.write_bytes(b"")
    assert path.read_bytes() == b"abc"
    assert path.stat().st_mode == other.stat().st_mode


def test_an_old_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write_atomically(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_full_disk_or_an_interrupt_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")

    def fail(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_is_not_there_is_an_error_of_the_path_that_was_given(tmp_path: Path) -> None:
    path = tmp_path / "none" / "out"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(path, b"")
    assert caught.value.filename == str(path)


def test_a_full_device_is_named() -> None:
    with pytest.raises(OSError, match="'/dev/full'"):
        write_atomically("/dev/full", b"x")


def test_a_file_that_is_read_is_not_overwritten_by_any_name(tmp_path: Path) -> None:
    path, other = tmp_path / "in", tmp_path / "other"
    path.write_bytes(b"")
    other.symlink_to("in")
    for output in (path, other, tmp_path / "." / "in"):
        with pytest.raises(OSError, match="name another output"):
            refuse_overwriting(output, ["edge", path])
    for harmless in ("-", str(tmp_path / "new"), "/dev/null", str(tmp_path)):
        refuse_overwriting(harmless, [path, "/dev/null", tmp_path])


def test_a_device_is_written_and_not_replaced() -> None:
    write_atomically(os.devnull, b"abc")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_dash_is_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_atomically("-", b"\x00abc")
    assert capfdbinary.readouterr().out == b"\x00abc"
