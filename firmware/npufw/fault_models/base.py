"""What a fault model is: a name, the fields of its spec, and how a hook is made of their values.

Invariant: a field says its type, unit and range once; parser, help and docs all read it here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from npufw.boot import Image
from npufw.faults import Hook

__all__ = ["SEED", "FaultModel", "Field", "Value", "Values"]

Value = int | float | str | bool
Values = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of a spec. A field without a *default* must be given.

    *kind* is int, float, bool or str; numbers lie in *low* to *high*, both included, texts are one
    of *choices* if there are any.
    """

    name: str
    kind: type[int] | type[float] | type[bool] | type[str]
    help: str
    default: Value | None = None
    unit: str = ""
    low: float = 0
    high: float = float("inf")
    choices: tuple[str, ...] = ()

    @property
    def range(self) -> str:
        """The values it takes, in words."""
        if self.choices:
            return ", ".join(self.choices)
        if self.kind is bool:
            return "yes, no"
        if self.kind is str:
            return "text"
        kind = "whole number" if self.kind is int else "number"
        unit = f" {self.unit}" if self.unit else ""
        low, high = f"{self.low:g}", f"{self.high:g}"
        return f"{kind}, {low} to {high}{unit}" if high != "inf" else f"{kind} from {low}{unit}"

    @property
    def shown_default(self) -> str:
        """The default as a spec has it."""
        if isinstance(self.default, bool):
            return "yes" if self.default else "no"
        return str(self.default) or "none"


@dataclass(frozen=True, kw_only=True)
class FaultModel:
    """One kind of fault: *make* gives its hook for an image and the values of its fields.

    *make* raises ValueError for values that do not fit the image. *gate* is the defence that
    answers it, as ``--without`` names it. There is one of a *single* model at most; it does nothing
    without what it *needs*, another model or the option ``--die``.
    """

    name: str
    title: str
    gate: str
    fields: tuple[Field, ...]
    make: Callable[[Image, Values], Hook]
    example: str
    single: bool = False
    needs: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the model for JSON."""
        fields = [
            {"name": f.name, "range": f.range, "default": f.default, "help": f.help}
            for f in self.fields
        ]
        return {
            "name": self.name,
            "title": self.title,
            "gate": self.gate,
            "fields": fields,
            "example": self.example,
        }

    def field(self, name: str) -> Field | None:
        """Return the field of that name."""
        return next((f for f in self.fields if f.name == name), None)


SEED = Field(name="seed", kind=int, default=0, help="of PCG64; the same gives the same")
