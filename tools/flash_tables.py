"""The decision table of the boot loader, the layout's records and the flash model, for the docs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

from npuabi.markdown import table
from npufw.flash.decisions import BOOT_RULES, HEADER_RULES, PAIR_RULES
from npufw.flash.layout import Hint

__all__ = ["FLASH_REGIONS"]


def _shown(value: object) -> str:
    if value is None:
        return "any"
    if isinstance(value, tuple):
        return " or ".join(getattr(v, "name", "none").lower() for v in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _rules(rules: Sequence[object], names: dict[str, str]) -> str:
    rows = []
    for rule in rules:
        shown = [_shown(getattr(rule, f.name)) for f in fields(rule)]  # type: ignore[arg-type]
        rows.append(tuple(shown))
    heads = [names.get(f.name, f.name) for f in fields(rules[0])]  # type: ignore[arg-type]
    return table(heads, rows)


def _headers() -> str:
    return _rules(HEADER_RULES, {"valid": "valid flag", "result": "header", "why": "when"})


def _pairs() -> str:
    names = {"a": "copy A", "b": "copy B", "result": "to do", "why": "what that is"}
    return _rules(PAIR_RULES, names)


def _boots() -> str:
    names = {"a": "A verifies", "b": "B verifies", "result": "boots", "why": "because"}
    return _rules(BOOT_RULES, names)


def _hint() -> str:
    rows = [(at, wire.size, f"`{name}`", wire.doc) for at, name, wire in Hint.rows()]
    return table(["offset", "bytes", "field", "meaning"], rows)


FLASH_REGIONS: dict[str, Callable[[], str]] = {
    "flash-headers": _headers,
    "flash-pairs": _pairs,
    "flash-boots": _boots,
    "flash-hint": _hint,
}
"""What makes each generated region of docs/gates/6-ota.md."""
