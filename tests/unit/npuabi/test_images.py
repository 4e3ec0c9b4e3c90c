"""Images as arrays: each step against numpy, and hostile files refused before they cost memory."""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from npuabi.images import check_images, image_files, is_image, read_images
from npuabi.preprocess import ImageError, Preprocess, load_preprocess

MODELS = Path(__file__).parents[3] / "models"
RAW = Preprocess(scale=1.0, dtype="uint8")
Array = NDArray[Any]


def codes(*shape: int) -> Array:
    return np.random.default_rng(7).integers(0, 256, shape).astype(np.uint8)


def saved(folder: Path, array: Array, name: str = "x.png") -> Path:
    Image.fromarray(array).save(folder / name)
    return folder / name


def read(path: Path, **fields: Any) -> Array:
    recipe = Preprocess(where="p.toml", **{"scale": 1.0, "dtype": "uint8", **fields})
    return np.asarray(read_images([path], recipe)[0])


def test_channels_come_first_last_turned_round_or_as_one(tmp_path: Path) -> None:
    array = codes(5, 7, 3)
    path = saved(tmp_path, array)
    np.testing.assert_array_equal(read(path), array.transpose(2, 0, 1))
    np.testing.assert_array_equal(read(path, layout="nhwc"), array)
    np.testing.assert_array_equal(read(path, colour="bgr", layout="nhwc"), array[:, :, ::-1])
    grey = read(path, colour="grey")
    assert grey.shape == (1, 5, 7)
    assert np.abs(grey[0] - array @ [0.299, 0.587, 0.114]).max() <= 0.51


def test_numbers_are_scaled_shifted_and_divided_a_channel(tmp_path: Path) -> None:
    array = codes(4, 4, 3)
    path = saved(tmp_path, array)
    mean, std = (0.5, 0.25, 0.125), (2.0, 0.5, 0.25)
    expected = (array / 255 - mean) / std
    found = read(path, scale=1 / 255, mean=mean, std=std, dtype="float32", layout="nhwc")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    # bgr: mean and std stand in the order of the array's channels.
    turned = read(path, colour="bgr", mean=(0.0, 0.0, 100.0), dtype="float32")
    np.testing.assert_array_equal(turned[2], array[:, :, 0] - 100.0)


def test_whole_numbers_are_rounded_and_held_in_the_range_of_their_type(tmp_path: Path) -> None:
    path = saved(tmp_path, np.array([[0, 1, 3, 255]], np.uint8))
    found = read(path, colour="grey", scale=0.5, mean=(-10.0,), dtype="int8")
    assert found.tolist() == [[[10, 10, 12, 127]]]


@pytest.mark.parametrize(
    ("size", "expected"), [(6, (6, 15)), ((6, 4), (6, 4)), (3, (3, 7)), (4, (4, 10))]
)
def test_a_resize_sets_the_shorter_side_or_both(
    size: int | tuple[int, int], expected: tuple[int, int], tmp_path: Path
) -> None:
    path = saved(tmp_path, codes(4, 10))
    assert read(path, colour="grey", resize=size).shape == (1, *expected)


def test_each_mode_of_resizing_is_what_its_name_says(tmp_path: Path) -> None:
    array = codes(6, 8)
    path = saved(tmp_path, array)
    small: dict[str, Any] = {"colour": "grey", "resize": (3, 4)}
    box = read(path, mode="box", **small)[0]
    mean = array.reshape(3, 2, 4, 2).mean(axis=(1, 3))
    assert np.abs(box - mean).max() <= 1.01  # rounded along each axis
    nearest = read(path, mode="nearest", **small)[0]
    np.testing.assert_array_equal(nearest, array[1::2, 1::2])
    flat = saved(tmp_path, np.full((6, 8), 77, np.uint8), "flat.png")
    assert np.all(read(flat, mode="bilinear", **small) == 77)


def test_a_crop_is_taken_around_the_centre(tmp_path: Path) -> None:
    array = codes(9, 12)
    path = saved(tmp_path, array)
    found = read(path, colour="grey", crop=(3, 6))
    np.testing.assert_array_equal(found[0], array[3:6, 3:9])
    with pytest.raises(ImageError, match=r"12x9 here, smaller than the crop of 12x10: .*p\.toml"):
        read(path, crop=(10, 12))


def test_a_photo_is_turned_as_its_camera_noted(tmp_path: Path) -> None:
    array = codes(4, 6)
    note = Image.Exif()
    note[0x0112] = 6  # turned by a quarter
    Image.fromarray(array).save(tmp_path / "x.png", exif=note)
    np.testing.assert_array_equal(read(tmp_path / "x.png", colour="grey")[0], np.rot90(array, -1))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_every_kind_of_8_bit_image_is_read(mode: str, tmp_path: Path) -> None:
    path = tmp_path / ("x.jpg" if mode == "CMYK" else "x.png")
    Image.fromarray(codes(3, 5, 3)).convert(mode).save(path)
    assert read(path).shape == (3, 3, 5)


def test_the_digit_is_the_test_image_that_it_is_said_to_be() -> None:
    recipe = load_preprocess(MODELS / "digits.toml")
    with np.load(MODELS / "digits_test.npz") as test:
        assert test["labels"][253] == 7
        expected = test["image"][253:254]
    np.testing.assert_array_equal(read_images([MODELS / "digit.png"], recipe), expected)


def test_a_folder_is_read_in_the_order_of_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/a.png", "c.PNG", "a.bmp"):
        saved(tmp_path, codes(2, 2), name)
    (tmp_path / "notes.txt").write_text("no image")
    found = image_files(tmp_path)
    assert [p.relative_to(tmp_path).as_posix() for p in found] == ["a.bmp", "b/a.png", "c.PNG"]
    assert read_images(found, RAW).shape == (3, 3, 2, 2)
    assert is_image("x.JPEG")
    assert not is_image("x.npz")


def png(width: int, height: int) -> bytes:
    """Return a PNG that claims a size and holds one row of nothing."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        checked = kind + body
        return struct.pack(">I", len(body)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(bytes(64))
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", data), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is no image of PNG, JPEG"),
        (b"GIF89a", "is no"),
        (png(100_000, 100_000), "pixels"),
        (png(2**31 - 1, 2), "pixels"),
        (png(1 << 14, 1 << 13), "is 16384x8192, expected 1 to 67,108,864 pixels"),
        (png(0, 5), "is no"),
        (png(300, 300), "is no sound image"),
        (png(300, 300)[:50], "is no sound image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "is no image of"),
    ],
)
def test_a_file_that_is_no_sound_image_is_refused(raw: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(raw)
    with pytest.raises(ImageError, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_every_cut_of_an_image_is_read_or_refused(tmp_path: Path) -> None:
    raw = saved(tmp_path, codes(9, 9, 3)).read_bytes()
    Image.fromarray(codes(9, 9, 3)).save(tmp_path / "x.jpg")
    jpeg = (tmp_path / "x.jpg").read_bytes()
    for whole in (raw, jpeg):
        for end in range(0, len(whole) - 20, 7):
            (tmp_path / "cut.png").write_bytes(whole[:end])
            with pytest.raises(ImageError):
                read(tmp_path / "cut.png")


def test_sizes_are_bounded_behind_a_resize_too(tmp_path: Path) -> None:
    path = saved(tmp_path, codes(1, 9000))
    with pytest.raises(ImageError, match="would be resized to 9000000x1000"):
        read(path, resize=1000)
    path.write_bytes(png(8192, 8192))
    with pytest.raises(ImageError, match="no sound image"):
        read(path)


def test_what_does_not_fit_together_is_named(tmp_path: Path) -> None:
    first, second = saved(tmp_path, codes(2, 2)), saved(tmp_path, codes(2, 3), "y.png")
    with pytest.raises(ImageError, match=r"y\.png becomes \(3, 2, 3\), the images before"):
        read_images([first, second], RAW)
    with pytest.raises(ImageError, match="at most 22369621 fit"):
        read_images([first] * (1 << 25), RAW)
    with pytest.raises(ImageError, match=r"z\.png: no such file"):
        check_images([first, tmp_path / "z.png"])
    with pytest.raises(ImageError, match="holds no images"):
        image_files(MODELS.parent / "docs")
    Image.fromarray(np.full((2, 2), 40_000, np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(ImageError, match="more than 8 bits"):
        read(tmp_path / "deep.png")


def test_a_missing_pillow_is_said_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path, codes(2, 2))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImageError, match=r"pip install 'npu-toolchain\[images\]'"):
        read(path)
