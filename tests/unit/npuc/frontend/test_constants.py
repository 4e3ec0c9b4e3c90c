"""Weight files: what is read, and what each bad file is told."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from npuabi.inside import resolve_inside
from npuc.diagnostics import CompileError
from npuc.frontend.constants import read_array
from npuc.frontend.text import check_constants, parse_text
from npuc.ir.core import Array
from npuc.ir.types import TensorType

PAIR = TensorType((2,))


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def npy(array: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def header(text: str) -> bytes:
    """Return an npy header of version 1.0 with no data."""
    raw = text.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(raw)) + raw


def refusal(folder: Path, name: str, key: str | None = None, tensor: TensorType = PAIR) -> str:
    try:
        read_array(folder, name, key, tensor)
    except ValueError as error:
        return str(error)
    pytest.fail("the file was read")


def stored(folder: Path, raw: bytes, name: str = "w.npy") -> str:
    (folder / name).write_bytes(raw)
    return refusal(folder, name)


@pytest.mark.parametrize("compressed", [False, True])
def test_an_npz_gives_its_array(tmp_path: Path, compressed: bool) -> None:
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / "w.npz", w=f32(1.5, -2), v=f32(0, 0))
    np.testing.assert_array_equal(read_array(tmp_path, "w.npz", "w", PAIR), [1.5, -2])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype="<f4").reshape(2, 3)),
    ],
    ids=["big-endian", "fortran"],
)
def test_byte_order_and_element_order_are_converted(tmp_path: Path, array: Array) -> None:
    (tmp_path / "w.npy").write_bytes(npy(array))
    made = read_array(tmp_path, "w.npy", None, TensorType((2, 3)))
    np.testing.assert_array_equal(made, [[0, 1, 2], [3, 4, 5]])
    assert made.dtype == np.dtype("<f4")
    assert made.flags.c_contiguous


def test_a_scalar_and_an_empty_array_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", s=np.float32(2.5), e=np.zeros((0, 3), np.float32))
    assert read_array(tmp_path, "w.npz", "s", TensorType(())).shape == ()
    assert read_array(tmp_path, "w.npz", "e", TensorType((0, 3))).shape == (0, 3)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../w.npy", "leaves the text's folder"),
        ("a/../../w.npy", "leaves the text's folder"),
        ("/etc/passwd", "leaves the text's folder"),
        ("C:/w.npy", "is no file name"),
        ("a\\w.npy", "is no file name"),
        ("", "is no file name"),
        ("a\0b", "is no file name"),
        ("none.npy", "no file 'none.npy' in the text's folder"),
        ("inner", "is not a regular file"),
        ("w.npy/x", "cannot be read"),
        (f"{'n' * 300}.npy", "cannot be read"),
    ],
)
def test_a_name_that_is_no_file_beside_the_graph_is_refused(
    tmp_path: Path, name: str, words: str
) -> None:
    """C35."""
    folder = tmp_path / "graph"
    (folder / "inner").mkdir(parents=True)
    for place in (tmp_path, folder):
        (place / "w.npy").write_bytes(npy(f32(1, 2)))
    assert words in refusal(folder, name)


def test_links_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    """C35: a hard link has no other side to look at, so none is taken."""
    folder = tmp_path / "graph"
    folder.mkdir()
    outside = tmp_path / "w.npy"
    outside.write_bytes(npy(f32(1, 2)))
    (folder / "soft.npy").symlink_to(outside)
    (folder / "folder").symlink_to(tmp_path)
    os.link(outside, folder / "hard.npy")
    assert "link that leaves" in refusal(folder, "soft.npy")
    assert "link that leaves" in refusal(folder, "folder/w.npy")
    assert "hard link" in refusal(folder, "hard.npy")


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "w.npy").write_bytes(npy(f32(1, 2)))
    (tmp_path / "soft.npy").symlink_to("w.npy")
    assert resolve_inside(tmp_path, "soft.npy") == (tmp_path / "w.npy").resolve()


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.npy")
    assert "not a regular file" in refusal(tmp_path, "w.npy")


def test_a_missing_file_or_key_is_told_with_the_nearest(tmp_path: Path) -> None:
    np.savez(tmp_path / "weights.npz", kernel=f32(1, 2))
    assert "did you mean 'weights.npz'" in refusal(tmp_path, "weight.npz", "kernel")
    assert "no key 'kernle', did you mean 'kernel': it has kernel" in refusal(
        tmp_path, "weights.npz", "kernle"
    )
    assert "needs a key: it has kernel" in refusal(tmp_path, "weights.npz")


def test_an_npy_has_no_key(tmp_path: Path) -> None:
    (tmp_path / "w.npy").write_bytes(npy(f32(1, 2)))
    assert "is no .npz, so it has no key 'w'" in refusal(tmp_path, "w.npy", "w")


def test_another_shape_or_dtype_is_told_with_both_sides(tmp_path: Path) -> None:
    assert "has the shape 3, the type states 2" in stored(tmp_path, npy(f32(1, 2, 3)))
    text = stored(tmp_path, npy(np.array([1, 2], np.float64)))
    assert "holds float64, the type states float32: convert it with" in text


def test_a_value_that_is_not_finite_is_told_with_its_index(tmp_path: Path) -> None:
    assert "value [1] is nan, and 1 in all" in stored(tmp_path, npy(f32(1, np.nan)))
    assert "value [0] is -inf, and 2 in all" in stored(tmp_path, npy(f32(-np.inf, -np.inf)))


def test_pickled_objects_are_never_read(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "exploded"),)

    bomb = np.empty(2, object)
    bomb[:] = [Bomb(), Bomb()]
    np.save(tmp_path / "w.npy", bomb, allow_pickle=True)
    assert "pickled" in refusal(tmp_path, "w.npy")
    assert "no sound npy" in stored(tmp_path, pickle.dumps(Bomb()))
    assert not (tmp_path / "exploded").exists()


BAD_HEADERS = {
    "empty": b"",
    "magic": b"\x93NUMPY\x09\x00\x00\x00",
    "not a dict": header("[]\n"),
    "nested": header("(" * 9000 + "\n"),
    "unary": header("-" * 9000 + "1\n"),
    "long": header("{" + " " * 60000 + "}\n"),
    "digits": header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'9' * 5000},)}}\n"),
    "dtype": header("{'descr': 'spam', 'fortran_order': False, 'shape': (2,)}\n"),
}


@pytest.mark.parametrize("raw", BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_a_header_that_is_no_npy_header_is_refused(tmp_path: Path, raw: bytes) -> None:
    assert "is no sound npy array" in stored(tmp_path, raw)


@pytest.mark.parametrize("shape", ["(1099511627776,)", "(-2,)", "(2, 0)", "(2.0,)", "(True, 2)"])
def test_the_shape_of_a_header_is_checked_before_data_is_read(tmp_path: Path, shape: str) -> None:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n"
    assert "w.npy" in stored(tmp_path, header(text))


@pytest.mark.parametrize(("size", "word"), [(7, "fewer"), (9, "more")])
def test_data_of_another_length_is_refused(tmp_path: Path, size: int, word: str) -> None:
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}\n"
    assert f"{word} data bytes than the 8" in stored(tmp_path, header(text) + bytes(size))


def test_a_zip_bomb_costs_no_more_than_the_stated_type(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", npy(f32(1, 2)) + bytes(1 << 28))
    assert "more data bytes than the 8" in refusal(tmp_path, "w.npz", "w")


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", w=f32(1, 2))
    sound = (tmp_path / "w.npz").read_bytes()
    place = sound.index(f32(1, 2).tobytes())
    flipped = sound[:place] + b"\xff" + sound[place + 1 :]
    for raw in (b"", sound[: len(sound) // 2], flipped):
        (tmp_path / "w.npz").write_bytes(raw)
        assert "is no sound .npz" in refusal(tmp_path, "w.npz", "w")


def test_every_cut_and_flip_of_an_npz_is_refused_or_harmless(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "w.npz", w=f32(1, 2))
    sound = (tmp_path / "w.npz").read_bytes()
    damaged = [sound[:n] for n in range(len(sound))]
    damaged += [sound[:n] + bytes([sound[n] ^ 0x41]) + sound[n + 1 :] for n in range(len(sound))]
    for raw in damaged:
        (tmp_path / "w.npz").write_bytes(raw)
        try:
            found = read_array(tmp_path, "w.npz", "w", PAIR)
        except ValueError:
            continue
        np.testing.assert_array_equal(found, [1, 2])


def test_a_bad_file_is_told_at_its_line_when_the_graph_is_read(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "graph @g(%x: tensor<2xf32>) {",
            '  %a = const file("none.npz", "a") : tensor<2xf32>',
            '  %b = const file("../b.npz", "b") : tensor<2xf32>',
            "  %y = add(%x, %a)",
            "  return %y",
            "}",
        ]
    )
    with pytest.raises(CompileError) as caught:
        parse_text(text, folder=tmp_path)
    places = [(d.location.line, d.location.column) for d in caught.value.diagnostics]
    assert places == [(2, 14), (3, 14)]


def test_nan_weights_are_all_told_at_their_lines(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", a=f32(1, np.nan), b=f32(np.inf, 1))
    text = "\n".join(
        [
            "graph @g(%x: tensor<2xf32>) {",
            '  %a = const file("w.npz", "a") : tensor<2xf32>',
            '  %b = const file("w.npz", "b") : tensor<2xf32>',
            "  %y = add(%a, %b)",
            "  return %y",
            "}",
        ]
    )
    graph = parse_text(text, folder=tmp_path)
    with pytest.raises(CompileError) as caught:
        check_constants(graph)
    assert [d.location.line for d in caught.value.diagnostics] == [2, 3]
