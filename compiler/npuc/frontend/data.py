"""Constants of graph text: from ``random(seed = 7)`` to the data of a ``const`` op.

Invariant: each kind of data is one row of a table: its names, their kinds and its constructor.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from npuc.frontend.syntax import Attribute, DataText, Issue, Literal, Word
from npuc.ir.const import Data, Dense, Elided, File, Random, Splat
from npuc.ir.types import TensorType

__all__ = ["build_data"]

_MAX_NESTING = 16
_GOT = "got"


def build_data(text: DataText, tensor: TensorType, folder: Path) -> Data:
    """Return the data that *text* states for a constant of that type; raises Issue."""
    kind = text.kind.text
    if kind == "dense" and text.body is not None:
        return Dense(_dense(text.body, tensor))
    builder = _BUILDERS.get(kind)
    if builder is None:
        close = difflib.get_close_matches(kind, _KINDS, 1)
        hint = f", did you mean {close[0]}" if close else ""
        known = ", ".join(_KINDS)
        raise Issue(text.kind.column, f"unknown data {kind!r}{hint}: there are {known}")
    return builder(text, tensor, folder)


def _file(text: DataText, _: TensorType, folder: Path) -> Data:
    values = _positional(text, "a file name and a key", low=1, high=2)
    if not all(isinstance(v, str) for v in values):
        raise Issue(text.kind.column, 'file takes strings, as in file("x.npz", "w")')
    name, key = (*values, None)[:2]
    return File(name=str(name), key=None if key is None else str(key), folder=folder)


def _splat(text: DataText, _: TensorType, __: Path) -> Data:
    (value,) = _positional(text, "one number", low=1, high=1)
    if isinstance(value, bool | str | tuple):
        raise Issue(text.kind.column, f"splat takes one number, got {value!r}")
    return Splat(value)


def _random(text: DataText, _: TensorType, __: Path) -> Data:
    fields: dict[str, Literal] = {}
    for item in text.items:
        if not isinstance(item, Attribute) or item.name.text not in ("seed", "mean", "std"):
            raise Issue(_column(item), "random takes seed = 7, mean = 0.0 and std = 1.0")
        if item.name.text in fields:
            raise Issue(_column(item), f"{item.name.text} is given twice")
        fields[item.name.text] = item.literal
    seed = fields.pop("seed", None)
    if seed is None or type(seed.value) is not int:
        raise Issue(text.kind.column, "random needs a whole number as seed, as in seed = 7")
    return Random(seed=seed.value, **{name: _number(v) for name, v in fields.items()})


def _hex(text: DataText, tensor: TensorType, _: Path) -> Data:
    (digits,) = _positional(text, "a string of hex digits", low=1, high=1)
    try:
        raw = bytes.fromhex(str(digits))
    except ValueError as error:
        raise Issue(text.kind.column, "hex takes a string of pairs of hex digits") from error
    expected = tensor.elements * tensor.dtype.size
    if len(raw) != expected:
        raise Issue(text.kind.column, f"hex holds {len(raw)} bytes, {tensor} has {expected}")
    return Dense(np.frombuffer(raw, tensor.numpy).reshape(tensor.dims))


def _elided(text: DataText, _: TensorType, __: Path) -> Data:
    (digest,) = _positional(text, "one string", low=1, high=1)
    return Elided(str(digest))


_BUILDERS: dict[str, Callable[[DataText, TensorType, Path], Data]] = {
    "elided": _elided,
    "file": _file,
    "hex": _hex,
    "random": _random,
    "splat": _splat,
}
_KINDS = sorted([*_BUILDERS, "dense"])


def _column(item: Literal | Attribute) -> int:
    return item.name.column if isinstance(item, Attribute) else item.column


def _number(literal: Literal) -> float:
    if isinstance(literal.value, bool | str | tuple):
        raise Issue(literal.column, f"expected a number, got {literal.value!r}")
    return float(literal.value)


def _positional(text: DataText, wanted: str, *, low: int, high: int) -> list[Any]:
    values = [item.value for item in text.items if isinstance(item, Literal)]
    if len(values) != len(text.items) or not low <= len(values) <= high:
        raise Issue(text.kind.column, f"{text.kind.text} takes {wanted}")
    return values


def _dense(body: Word, tensor: TensorType) -> np.ndarray[Any, np.dtype[Any]]:
    """Return nested lists as an array of float64 or int64; numbers are those of JSON."""
    column, nested = body.column, _nested(body)
    try:
        values = np.asarray(nested)
    except ValueError as error:
        raise Issue(column, "rows of unequal length: every list of a dim has one length") from error
    if values.dtype.kind not in "iuf" or values.dtype == np.uint64:
        raise Issue(column, "expected numbers that fit into 64 bits")
    if values.shape != tensor.dims:
        stated = "x".join(map(str, tensor.dims)) or "scalar"
        found = "x".join(map(str, values.shape)) or "scalar"
        raise Issue(column, f"the numbers have the shape {found}, the type states {stated}")
    return values


def _nested(body: Word) -> Any:
    raw = np.frombuffer(body.text.encode(), np.uint8)
    steps = (raw == ord("[")).astype(np.int64) - (raw == ord("]"))
    if steps.cumsum().max() > _MAX_NESTING:
        raise Issue(body.column, f"lists are nested deeper than {_MAX_NESTING}")
    try:
        return json.loads(body.text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        place = body.column + error.pos
        raise Issue(place, "expected numbers in brackets, as in [[1.0, 0.5]]") from error
    except ValueError as error:
        # Python's own text, of a number with too many digits, is no help to a user.
        reason = error if str(error).startswith(_GOT) else "one has thousands of digits"
        raise Issue(body.column, f"dense takes finite numbers: {reason}") from error


def _refuse(name: str) -> float:
    raise ValueError(f"{_GOT} {name}")
