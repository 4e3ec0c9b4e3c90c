"""The file that says how an image becomes an array: every key is checked, with one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuabi.preprocess import ImageError, Preprocess, load_preprocess, parse_preprocess

EVERY_KEY = """
colour = "bgr"
scale = 0.5
mean = [1, 2.5, 3]
std = 4
crop = [20, 30]
layout = "nhwc"
dtype = "int8"
[resize]
size = 40
mode = "nearest"
"""


def test_every_key_arrives() -> None:
    assert parse_preprocess(EVERY_KEY, "p.toml") == Preprocess(
        resize=40,
        mode="nearest",
        crop=(20, 30),
        colour="bgr",
        scale=0.5,
        mean=(1.0, 2.5, 3.0),
        std=(4.0,),
        layout="nhwc",
        dtype="int8",
    )


def test_an_empty_file_is_the_defaults() -> None:
    assert parse_preprocess("", "p.toml") == Preprocess()
    assert parse_preprocess("[resize]\nsize = [3, 5]", "p.toml").resize == (3, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = 'rgba'", "colour is rgb, bgr or grey, got 'rgba'"),
        ("color = 'rgb'", "unknown key color, there are crop, colour"),
        ("crop = 0", "crop is a whole number from 1 to 16384, or [height, width], got 0"),
        ("crop = true", "crop is a whole number"),
        ("crop = [1, 2, 3]", "crop is a whole number"),
        ("crop = 1e3", "crop is a whole number"),
        ("crop = 99999999999999", "crop is a whole number"),
        ("scale = 0", "scale is a number above 0, got 0"),
        ("scale = inf", "scale is a number above 0, got inf"),
        ("mean = 'x'", "mean is a number, or a list of one a channel, got 'x'"),
        ("mean = nan", "mean is a number, or a list of one a channel, got nan"),
        ("mean = [1, 2]", "mean has 2 numbers, expected 1 or 3 for rgb"),
        ("mean = []", "mean has 0 numbers, expected 1 or 3"),
        ("std = [1, 0, 1]", "std is a number above 0"),
        ("std = [1, 1, 1]\ncolour = 'grey'", "std has 3 numbers, expected 1 or 1 for grey"),
        ("layout = 'hwc'", "layout is nchw or nhwc, got 'hwc'"),
        ("dtype = 'float64'", "dtype is float32, float16, int8, uint8 or int16"),
        ("dtype = ['float32']", "dtype is float32"),
        ("resize = 224", "resize is a table with size and mode, got 224"),
        ("[resize]\nmode = 'box'", "resize has no size"),
        ("[resize]\nsize = 9\nmode = 'lanczos'", "resize.mode is nearest, bilinear or box"),
        ("[resize]\nsize = -1", "resize.size is a whole number from 1 to 16384"),
        ("[resize]\nsize = 9\nkeep = 1", "unknown key resize.keep, there are size, mode"),
        ("crop = 224\ncrop = 224", "p.toml: "),
        ("crop = " + "9" * 5000, "p.toml: "),
        ("crop = " + "[" * 5000 + "]" * 5000, "p.toml: nested too deeply"),
    ],
)
def test_a_wrong_key_or_value_is_named(text: str, message: str) -> None:
    with pytest.raises(ImageError) as caught:
        parse_preprocess(text, "p.toml")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_file_that_is_no_text_or_too_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_bytes(b"crop = \xff")
    with pytest.raises(ImageError, match="not UTF-8 text at byte 7"):
        load_preprocess(path)
    path.write_bytes(b"#" * 70_000)
    with pytest.raises(ImageError, match="at most 65536 bytes"):
        load_preprocess(path)
