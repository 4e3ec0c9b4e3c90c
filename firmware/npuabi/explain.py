"""Error codes explained: found by number or name; as text, as JSON, as the page docs/errors.md."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from typing import Any

from npuabi.errors import ErrorCode
from npuabi.markdown import table

__all__ = ["GROUPS", "as_dict", "code_named", "errors_page", "lines"]

GROUPS = {
    0x00: "Records",
    0x10: "Container",
    0x20: "ABI policy",
    0x30: "Descriptors",
    0x40: "Host input and checks",
    0x50: "Faults while running",
    0x60: "Flash and update",
    0x70: "eFuse and signatures",
    0x80: "Device memory",
}
"""What the codes of a group are about, by the group's first number."""


def code_named(word: str) -> ErrorCode:
    """Return the code of that name or number (``known_answer``, ``0x46`` or ``70``).

    Raises LookupError, which says what comes near, for a code that there is not.
    """
    names = {code.name.lower(): code for code in ErrorCode}
    numbers = {int(code): code for code in ErrorCode}
    name = word.strip().lower().replace("-", "_")
    found = names.get(name) or numbers.get(_number(name))
    if found is None:
        near = difflib.get_close_matches(name, names, n=3)
        hint = f"did you mean {' or '.join(near)}" if near else "npufw explain lists all"
        raise LookupError(f"no error code is {word!r}: {hint}")
    return found


def _number(word: str) -> int:
    try:
        return int(word, 0)
    except ValueError:
        return -1


def lines(code: ErrorCode) -> Iterator[str]:
    """Yield what there is to say of *code*, for people."""
    yield f"{code.name.lower()} (0x{code:02x}, {int(code)}): {code.text}"
    yield f"  causes   {code.causes}"
    yield f"  help     {code.remedy}"
    yield f"  see      {code.page}"


def as_dict(code: ErrorCode) -> dict[str, Any]:
    """Return what there is to say of *code*, for JSON."""
    return {
        "code": int(code),
        "name": code.name.lower(),
        "text": code.text,
        "causes": code.causes,
        "help": code.remedy,
        "page": code.page,
    }


def errors_page() -> str:
    """Return docs/errors.md: every code, group by group."""
    blocks = [
        "# Error codes",
        "Every refusal of the firmware names its code. A code's number never changes its meaning;"
        " `npufw explain CODE` prints a row of these tables. This page is generated.",
    ]
    for first, title in GROUPS.items():
        codes = [code for code in ErrorCode if code & ~0xF == first]
        if codes:
            rows = [
                (f"0x{c:02x}", f"`{c.name.lower()}`", c.text, c.causes, c.remedy, _link(c.page))
                for c in codes
            ]
            heads = ("code", "name", "what happened", "likely causes", "what helps", "see")
            blocks += [f"## {title}", table(heads, rows)]
    return "\n\n".join(blocks) + "\n"


def _link(page: str) -> str:
    path = os.path.relpath(page, "docs")
    return f"[{path.split('#')[0].removesuffix('.md')}]({path})"
