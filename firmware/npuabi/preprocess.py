"""How an image becomes an array: a TOML file that people write, checked key by key.

Invariant: a Preprocess that was read is sound; every refusal is an ImageError that names file and
key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npuabi.tomltext import read_toml

__all__ = ["CHANNELS", "DTYPES", "MODES", "ImageError", "Preprocess", "load_preprocess"]

CHANNELS = {"rgb": 3, "bgr": 3, "grey": 1}
"""Colours by their number of channels."""

MODES = ("nearest", "bilinear", "box")
LAYOUTS = ("nchw", "nhwc")
DTYPES = ("float32", "float16", "int8", "uint8", "int16")

_MAX_BYTES = 1 << 16
_MAX_SIDE = 1 << 14
_SMALLEST = 1e-30
_SHOWN = 60


class ImageError(ValueError):
    """An image, or the file that says how to read it, cannot be used; the text is for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocess:
    """The steps from an image's bytes to numbers, in this order.

    ``resize`` is the length of the shorter side, or (height, width); ``crop`` is (height, width)
    around the centre. Then a number is (code * scale - mean) / std, a channel at a time; ``mean``
    and ``std`` hold one number, or one a channel in the order of ``colour``.
    """

    resize: int | tuple[int, int] | None = None
    mode: str = "bilinear"
    crop: tuple[int, int] | None = None
    colour: str = "rgb"
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: str = "nchw"
    dtype: str = "float32"
    where: str = field(default="", compare=False)

    @property
    def channels(self) -> int:
        """Channels of the array."""
        return CHANNELS[self.colour]


def load_preprocess(path: str | Path) -> Preprocess:
    """Return what the TOML file at *path* says. Raises ImageError, OSError."""
    with Path(path).open("rb") as stream:
        raw = stream.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise ImageError(f"{path}: a preprocess file has at most {_MAX_BYTES} bytes")
    try:
        return parse_preprocess(raw.decode(), str(path))
    except UnicodeDecodeError as error:
        raise ImageError(f"{path}: not UTF-8 text at byte {error.start}") from error


def parse_preprocess(text: str, where: str) -> Preprocess:
    """Return what TOML *text* says; *where* names the file in errors."""
    try:
        values = read_toml(text)
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
        raise ImageError(f"{where}: {_cut(str(error))}") from error
    table = values.pop("resize", {})
    if not isinstance(table, dict):
        raise ImageError(f"{where}: resize is a table with size and mode, got {_short(table)}")
    found = _checked(where, "", values, _KEYS)
    resize = _checked(where, "resize.", table, _RESIZE_KEYS)
    if table and "size" not in resize:
        raise ImageError(f"{where}: resize has no size")
    made = Preprocess(
        resize=resize.get("size"), mode=resize.get("mode", "bilinear"), where=where, **found
    )
    for key in ("mean", "std"):
        count = len(getattr(made, key))
        if count not in (1, made.channels):
            text = f"{key} has {count} numbers, expected 1 or {made.channels} for {made.colour}"
            raise ImageError(f"{where}: {text}")
    return made


def _checked(
    where: str, prefix: str, values: Mapping[str, Any], keys: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    """Return the values in the form that Preprocess holds."""
    unknown = [key for key in values if key not in keys]
    if unknown:
        known = ", ".join((*keys, "resize")) if not prefix else ", ".join(keys)
        text = f"unknown key {prefix}{_cut(unknown[0])}, there are {known}"
        raise ImageError(f"{where}: {text}")
    found = {}
    for key, value in values.items():
        try:
            found[key] = keys[key](value)
        except ValueError as error:
            raise ImageError(f"{where}: {prefix}{key} {error}, got {_short(value)}") from None
    return found


def _side(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= _MAX_SIDE:
        raise ValueError(f"is a whole number from 1 to {_MAX_SIDE}, or [height, width]")
    return value


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, list) and len(value) == 2:
        return _side(value[0]), _side(value[1])
    side = _side(value)
    return side, side


def _size(value: Any) -> int | tuple[int, int]:
    return _pair(value) if isinstance(value, list) else _side(value)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not -1e30 <= value <= 1e30:
        raise ValueError("is a number, or a list of one a channel")
    return float(value)


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(_number(v) for v in (value if isinstance(value, list) else [value]))


def _above_0(value: Any) -> float:
    if type(value) not in (int, float) or not _SMALLEST <= value <= 1e30:
        raise ValueError("is a number above 0")
    return float(value)


def _deviations(value: Any) -> tuple[float, ...]:
    found = _numbers(value)
    if min(found, default=0.0) < _SMALLEST:
        raise ValueError("is a number above 0, or a list of one a channel")
    return found


def _word(*words: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in words:
            raise ValueError(f"is {', '.join(words[:-1])} or {words[-1]}")
        return str(value)

    return check


_RESIZE_KEYS: dict[str, Callable[[Any], Any]] = {"size": _size, "mode": _word(*MODES)}
_KEYS: dict[str, Callable[[Any], Any]] = {
    "crop": _pair,
    "colour": _word(*CHANNELS),
    "scale": _above_0,
    "mean": _numbers,
    "std": _deviations,
    "layout": _word(*LAYOUTS),
    "dtype": _word(*DTYPES),
}


def _short(value: object) -> str:
    """Return a value for a message; Python writes no number of thousands of digits."""
    try:
        return _cut(repr(value))
    except ValueError:
        return "a number of thousands of digits"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
