"""Text that reaches a terminal: names, messages and file names from files that nobody trusts.

Invariant: what ``visible`` returns moves no cursor, changes no colour and reorders no line.
"""

from __future__ import annotations

import re

__all__ = ["UNPRINTABLE", "visible"]

UNPRINTABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, marks that turn the direction of text, lone surrogates.

Stated here and not taken from ``str.isprintable``, which changes with Python's Unicode tables: a
blob must not be sound under one Python and refused by another.
"""

_IN_A_MESSAGE = re.compile(rf"(?!\n){UNPRINTABLE.pattern}")


def visible(text: str) -> str:
    """Return a message of one line or more with a mark for each unprintable character."""
    return _IN_A_MESSAGE.sub("\ufffd", text)
