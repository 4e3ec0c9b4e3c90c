"""The options of a compilation on the command line, stated once for every command that compiles."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from npuc.driver import Options

__all__ = ["PRECISIONS", "compile_options", "parse_keep", "parse_shapes", "part"]

PRECISIONS = ("auto", "int8", "int16", "fp16", "fp32")
_ROUNDINGS = ("double", "single", "even")
Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def parse_shapes(
    _: click.Context, __: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    """Return dims by input name from options of the form ``NAME=AxBxC``; for click."""
    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, _equals, text = value.removeprefix("%").partition("=")
        dims = text.split("x")
        if not name or not all(d.isascii() and d.isdigit() and len(d) < 11 for d in dims):
            raise click.BadParameter(f"{value!r} is not of the form image=1x3x32x32")
        if name in shapes:
            raise click.BadParameter(f"{name} is given twice")
        shapes[name] = tuple(map(int, dims))
    return shapes


def parse_keep(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Return precisions by result name from options of the form ``NAME=int16``; for click."""
    kept: dict[str, str] = {}
    for value in values:
        name, _equals, precision = value.removeprefix("%").rpartition("=")
        if not name or not precision:
            raise click.BadParameter(f"{value!r} is not of the form conv1=int16")
        if name in kept:
            raise click.BadParameter(f"{name} is given twice")
        kept[name] = precision
    return kept


_OPTIONS: dict[str, Decorator] = {
    "target": click.option(
        "--target", default="edge", show_default=True, help="Target name or TOML file."
    ),
    "precision": click.option(
        "--precision",
        type=click.Choice(PRECISIONS),
        default="auto",
        show_default=True,
        help="Of the arithmetic; auto: int8 for a quantised graph or with samples, else fp16.",
    ),
    "keep": click.option(
        "--keep",
        multiple=True,
        metavar="NAME=PRECISION",
        callback=parse_keep,
        help="Another precision for the op whose result is %NAME; may be repeated.",
    ),
    "rounding": click.option(
        "--rounding",
        type=click.Choice(_ROUNDINGS),
        default="double",
        show_default=True,
        help="Whose bits: LiteRT's reference, its single-rounding builds, or ONNX Runtime.",
    ),
    "calibrate": click.option(
        "--calibrate",
        metavar="X.npz|FOLDER|random",
        help="Samples that fix the ranges of codes; default: the graph's calibration attribute.",
    ),
    "preprocess": click.option(
        "--preprocess", metavar="FILE.toml", help="How the images of --calibrate become arrays."
    ),
    "percentile": click.option(
        "--percentile",
        type=click.FloatRange(50, 100, min_open=True),
        default=100.0,
        show_default=True,
        help="Share of each sample's values that a range covers, in percent.",
    ),
    "shapes": click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME=AxBxC",
        callback=parse_shapes,
        help="Dims of a dynamic input.",
    ),
    "level": click.option(
        "-O",
        "level",
        type=click.Choice(["0", "1", "2", "3"]),
        default="2",
        show_default=True,
        help="Effort of tiling, placement and order; never changes a number.",
    ),
    "sram_limit_kib": click.option(
        "--sram-limit",
        "sram_limit_kib",
        type=click.IntRange(1),
        metavar="KIB",
        help="Use at most this much SRAM.",
    ),
    "no_fuse": click.option(
        "--no-fuse", is_flag=True, help="Leave ops unfused; for study, changes numbers."
    ),
}
"""By the name of the argument, which is that of the field of Options but for ``no_fuse``."""


def part(name: str) -> Decorator:
    """Return one of the options, for a command that takes only some."""
    return _OPTIONS[name]


def compile_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give *command* all the options of a compilation; it gets them as ``options``."""

    @functools.wraps(command)
    def collected(**arguments: Any) -> None:
        command(options=_collected(arguments), **arguments)

    made: Callable[..., None] = collected
    for option in reversed(_OPTIONS.values()):
        made = option(made)
    return made


def _collected(arguments: dict[str, Any]) -> Options:
    """Take the options of a compilation out of a command's arguments."""
    from npuc.driver import Options

    taken = {name: arguments.pop(name) for name in _OPTIONS}
    fuse = not taken.pop("no_fuse")
    return Options(**{**taken, "level": int(taken["level"]), "fuse": fuse})
