"""Generated parts of hand-written pages.

A part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. Invariant: text outside
the marks is never touched, and a mark names a maker that exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

__all__ = ["filled"]

Makers = Mapping[str, Callable[[], str]]

_REGION = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str, makers: Makers) -> str:
    """Return *text* with every region made anew; raises ValueError for an unknown name."""

    def make(region: re.Match[str]) -> str:
        if region[2] not in makers:
            raise ValueError(f"no region {region[2]!r}: there are {', '.join(sorted(makers))}")
        return f"{region[1]}{makers[region[2]]().strip()}\n{region[3]}"

    return _REGION.sub(make, text)
