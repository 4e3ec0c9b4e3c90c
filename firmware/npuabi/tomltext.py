"""TOML of strangers: whatever the text, a table comes back or a ValueError says why not.

Invariant: the time is linear in the text, but for one line, which is short.
"""

from __future__ import annotations

import tomllib
from typing import Any

__all__ = ["read_toml"]

_MOST_DOTS = 64
"""Of a line: tomllib takes time by the square of the parts of a key."""


def read_toml(text: str) -> dict[str, Any]:
    """Return the table in *text*. Raises ValueError."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > _MOST_DOTS:
            raise ValueError(f"line {number} has more than {_MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
