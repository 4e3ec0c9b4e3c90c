"""Images as arrays: decoded by Pillow, with distrust, and preprocessed.

Invariant: an image's size is checked before its pixels are decoded, and so is the size that a
resize asks for; refusals are ImageError with one text for the user. Pillow is imported here alone,
when an image is read. Its resampling rounds to whole codes, and how may differ by one between its
versions; everything behind it is exact.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.npz import MAX_FILE_ELEMENTS
from npuabi.preprocess import ImageError, Preprocess
from npuabi.progress import Progress, silent

__all__ = ["MAX_PIXELS", "check_images", "image_files", "is_image", "read_images"]

MAX_PIXELS = 1 << 26
"""Of an image, as it is and resized."""

_MOST_KEPT = 1 << 24
"""Pixels of an image behind resize and crop: they become float64."""

Image = Any
"""PIL.Image.Image: an extra, so that the type cannot be named."""

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "WEBP")
_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".webp")
_DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
"""Modes of more than 8 bits a channel, which Pillow would cut off and not scale."""

_BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    IndexError,
    KeyError,
    OverflowError,
    struct.error,
)
"""What Pillow's decoders raise for bytes that are no sound image."""


def is_image(path: str | Path) -> bool:
    """Return whether *path* is named as an image."""
    return Path(path).suffix.lower() in _SUFFIXES


def image_files(folder: Path) -> list[Path]:
    """Return the images in *folder* and below, sorted by their path.

    Raises ImageError when there are none.
    """
    found = [path for path in folder.rglob("*") if is_image(path) and path.is_file()]
    if not found:
        kinds = " ".join(_SUFFIXES)
        raise ImageError(f"{folder} holds no images, that is files named {kinds}")
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def check_images(paths: Iterable[Path]) -> None:
    """Raise ImageError unless each of *paths* begins as an image of a size that can be read."""
    for path in paths:
        with _opened(path):
            pass


def read_images(
    paths: Sequence[Path], recipe: Preprocess, *, progress: Progress = silent
) -> NDArray[Any]:
    """Return the images as one array, (N, C, H, W) or (N, H, W, C) as *recipe* says.

    Raises ImageError for an image that cannot be read, for images that differ in size, and when
    they hold more than MAX_FILE_ELEMENTS numbers together.
    """
    stacked: NDArray[Any] | None = None
    for index, path in enumerate(paths):
        array = _read(path, recipe)
        if stacked is None:
            if array.size * len(paths) > MAX_FILE_ELEMENTS:
                most = MAX_FILE_ELEMENTS // array.size
                text = f"{len(paths)} images like {path}, at most {most} fit: give fewer"
                raise ImageError(text)
            stacked = np.empty((len(paths), *array.shape), array.dtype)
        if array.shape != stacked.shape[1:]:
            sizes = f"{array.shape}, the images before {stacked.shape[1:]}"
            text = f"{path} becomes {sizes}: make them alike with resize and crop"
            raise ImageError(f"{text} in {recipe.where}")
        stacked[index] = array
        progress("images", index + 1, len(paths))
    if stacked is None:
        raise ImageError("there are no images")
    return stacked


def _read(path: Path, recipe: Preprocess) -> NDArray[Any]:
    with _opened(path) as image:
        kept = _cropped(_resized(_coloured(image, recipe), recipe, path), recipe, path)
        _check_size(path, kept.size, "becomes", _MOST_KEPT)
        codes = np.asarray(kept)
    codes = codes.reshape(*codes.shape[:2], recipe.channels)
    if recipe.colour == "bgr":
        codes = codes[:, :, ::-1]
    real = (codes * recipe.scale - np.array(recipe.mean)) / np.array(recipe.std)
    values = _converted(real, np.dtype(recipe.dtype))
    return np.ascontiguousarray(values.transpose(2, 0, 1)) if recipe.layout == "nchw" else values


def _converted(real: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return numbers as *dtype*: whole ones rounded half to even and held within its range."""
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    held = np.clip(real if dtype.kind == "f" else np.rint(real), limits.min, limits.max)
    return np.asarray(held, dtype)


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    """Yield the image at *path*, its header read and its size checked."""
    pillow = _pillow()
    try:
        with warnings.catch_warnings():
            # Sizes are checked below; a warning would be a second message.
            warnings.simplefilter("ignore")
            known = [name for name in _FORMATS if name in pillow.OPEN]
            with pillow.open(path, formats=known) as image:
                _check_size(path, image.size, "is")
                if image.mode in _DEEP:
                    text = f"has more than 8 bits a channel ({image.mode}): save it with 8"
                    raise ImageError(f"{path} {text}")
                yield image
    except ImageError:
        raise
    except FileNotFoundError:
        raise ImageError(f"{path}: no such file") from None
    except pillow.DecompressionBombError as error:
        raise ImageError(f"{path} is larger than {MAX_PIXELS:,} pixels") from error
    except pillow.UnidentifiedImageError as error:
        raise ImageError(f"{path} is no image of {', '.join(_FORMATS)}") from error
    except _BROKEN as error:
        raise ImageError(f"{path} is no sound image: {error}") from error


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        text = "reading images needs Pillow: pip install 'npu-toolchain[images]'"
        raise ImageError(text) from error
    Image.init()
    return Image


def _check_size(path: Path, size: tuple[int, int], verb: str, most: int = MAX_PIXELS) -> None:
    width, height = size
    if width < 1 or height < 1 or width * height > most:
        raise ImageError(f"{path} {verb} {width}x{height}, expected 1 to {most:,} pixels")


def _coloured(image: Image, recipe: Preprocess) -> Image:
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(image)
    return upright.convert("L" if recipe.colour == "grey" else "RGB")


def _resized(image: Image, recipe: Preprocess, path: Path) -> Image:
    if recipe.resize is None:
        return image
    width, height = image.size
    if isinstance(recipe.resize, int):
        # The longer side is cut to a whole number, as torchvision does it.
        shorter = min(width, height)
        wide, high = (int(recipe.resize * side / shorter) for side in (width, height))
    else:
        high, wide = recipe.resize
    _check_size(path, (wide, high), "would be resized to")
    mode = getattr(_pillow().Resampling, recipe.mode.upper())
    return image.resize((wide, high), mode)


def _cropped(image: Image, recipe: Preprocess, path: Path) -> Image:
    if recipe.crop is None:
        return image
    (width, height), (high, wide) = image.size, recipe.crop
    if wide > width or high > height:
        text = f"{path} is {width}x{height} here, smaller than the crop of {wide}x{high}"
        raise ImageError(f"{text}: resize it first in {recipe.where}")
    left, top = round((width - wide) / 2), round((height - high) / 2)
    return image.crop((left, top, left + wide, top + high))
