"""``--fault SPEC``: a short form or a TOML file, to faults and back to the text that replays them.

    model[:field=value[,field=value ...]]         flips:space=sram,rate=1e-6,seed=7
    FILE.toml                                     [[fault]] tables with "model" and the fields

Invariant: ``parse(str(fault))`` is the fault again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuabi.errors import ErrorCode
from npuabi.tomltext import read_toml
from npufw.boot import Image
from npufw.errors import FirmwareError
from npufw.fault_models import MODELS
from npufw.fault_models.base import FaultModel, Field, Value, Values
from npufw.faults import Hook

__all__ = ["Fault", "read_faults"]

_MAX_BYTES = 1 << 18
_MOST_SHOWN = 120
_WORDS = {"yes": True, "true": True, "no": False, "false": False}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A model and a value for each of its fields."""

    model: FaultModel
    values: Values

    def __str__(self) -> str:
        pairs = ((field.name, self.values[field.name]) for field in self.model.fields)
        text = ",".join(f"{name}={_text(value)}" for name, value in pairs if value != "")
        return f"{self.model.name}:{text}" if text else self.model.name

    def hook(self, image: Image) -> Hook:
        """Return the hook that does it on *image*; FirmwareError FAULT_SPEC if it does not fit."""
        try:
            return self.model.make(image, self.values)
        except ValueError as error:
            raise _bad(str(self), str(error)) from error


def read_faults(specs: Sequence[str]) -> list[Fault]:
    """Return the faults of all *specs*, in their order.

    Raises FirmwareError FAULT_SPEC, which says what is wrong and what was expected.
    """
    return [fault for spec in specs for fault in _read(spec)]


def _read(spec: str) -> list[Fault]:
    name, _, rest = spec.partition(":")
    if spec.endswith(".toml") and name not in MODELS:
        return _read_file(Path(spec))
    given: dict[str, Any] = {}
    for part in rest.split(",") if rest else ():
        key, equals, value = part.partition("=")
        if not equals:
            raise _bad(spec, f"{part!r} is no field=value")
        if key in given:
            raise _bad(spec, f"{key} is given twice")
        given[key] = value
    return [_fault(spec, name, given)]


def _read_file(path: Path) -> list[Fault]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise _bad(str(path), f"the file has more than {_MAX_BYTES} bytes")
        tables = read_toml(raw.decode())
    except OSError as error:
        raise _bad(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # no UTF-8, no TOML, a number of thousands of digits
        raise _bad(str(path), f"no TOML: {_short(str(error))}") from error
    rows = tables.pop("fault", None)
    if tables or not (isinstance(rows, list) and rows) or not all(map(_is_table, rows)):
        raise _bad(str(path), "expected [[fault]] tables and nothing else")
    return [_of_table(f"{path}, fault {i}", row) for i, row in enumerate(rows, start=1)]


def _is_table(row: object) -> bool:
    return isinstance(row, dict)


def _of_table(where: str, row: dict[str, Any]) -> Fault:
    given = dict(row)
    name = given.pop("model", None)
    if not isinstance(name, str):
        raise _bad(where, "there is no model")
    return _fault(where, name, given)


def _fault(where: str, name: str, given: Mapping[str, Any]) -> Fault:
    model = MODELS.get(name)
    if model is None:
        raise _bad(where, f"there is no model {name!r}: expected one of {', '.join(MODELS)}")
    for key in given:
        if model.field(key) is None:
            names = ", ".join(field.name for field in model.fields)
            raise _bad(where, f"{name} has no field {key!r}: expected {names}")
    return Fault(model=model, values={f.name: _value(where, f, given) for f in model.fields})


def _value(where: str, field: Field, given: Mapping[str, Any]) -> Value:
    if field.name not in given:
        if field.default is None:
            raise _bad(where, f"{field.name} is missing: {field.range}")
        return field.default
    raw = given[field.name]
    value = _converted(field, raw)
    if value is None or not _within(field, value):
        raise _bad(where, f"{field.name} is {_shown(raw)}: expected {field.range}")
    if isinstance(value, str) and "," in value:
        raise _bad(where, f"{field.name} is {_shown(raw)}: a comma begins the next field")
    return value


def _converted(field: Field, raw: Any) -> Value | None:
    if field.kind is bool:
        return raw if isinstance(raw, bool) else _WORDS.get(str(raw).lower())
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return None
    try:
        return int(str(raw), 0) if field.kind is int else field.kind(raw)
    except (ValueError, OverflowError):  # no number, or one of hundreds of digits
        return None


def _within(field: Field, value: Value) -> bool:
    if isinstance(value, str):
        return not field.choices or value in field.choices
    return isinstance(value, bool) or field.low <= value <= field.high


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return repr(value) if isinstance(value, float) else str(value)


def _shown(raw: object) -> str:
    try:
        return _short(repr(raw))
    except (ValueError, RecursionError):  # a number of thousands of digits
        return "a number too long to show"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _bad(where: str, text: str) -> FirmwareError:
    return FirmwareError(ErrorCode.FAULT_SPEC, f"--fault {where}: {text}")
