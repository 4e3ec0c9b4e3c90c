"""Markdown made from declarations: tables, and docstrings as prose."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

__all__ = ["cleaned", "sentence", "table"]


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; a bar inside a cell is escaped."""
    lines = [" | ".join(titles), " | ".join("---" for _ in titles)]
    lines += [" | ".join(str(cell).replace("|", r"\|") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def cleaned(doc: str | None) -> str:
    """Return a docstring as Markdown: paragraphs on one line each, code in single quotes."""
    parts = inspect.cleandoc(doc or "").replace("``", "`").split("\n\n")
    return "\n\n".join(part.replace("\n", " ") for part in parts)


def sentence(doc: str | None) -> str:
    """Return the first sentence of a docstring, without the name that it may begin with."""
    first = re.split(r"(?<=[.]) ", cleaned(doc).split("\n\n")[0])[0]
    first = re.sub(r"^[a-z_0-9]+: ", "", first).rstrip(".")
    # Formulas such as y = x / 2 keep their letters.
    return first[:1].upper() + first[1:] if first[1:2].isalpha() else first
