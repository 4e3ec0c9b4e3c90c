"""Compose graph text line by line.

Invariant: every value is defined once, before its use; the text is that of design section 5, with
one op a line and result types only where the grammar wants them (constants, arguments).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["GraphText", "tensor"]

Attribute = int | float | str | Sequence[float]


def tensor(*dims: int) -> str:
    """Return the type of a float32 tensor with these dims."""
    return f"tensor<{'x'.join(map(str, dims))}xf32>"


@dataclass(kw_only=True)
class GraphText:
    """The text of one graph with one input, written from the top."""

    name: str
    comment: str
    argument: str
    dims: tuple[int, ...]
    calibration: str
    lines: list[str] = field(default_factory=list)

    def constant(self, name: str, source: str, *dims: int) -> str:
        """Add a constant made by *source*, e.g. ``splat(1.0)``; return its name."""
        self.lines.append(f"  %{name} = const {source} : {tensor(*dims)}")
        return name

    def file(self, name: str, *dims: int) -> str:
        """Add a constant that is stored under its own name in the graph's npz."""
        return self.constant(name, f'file("{self.name}.npz", "{name}")', *dims)

    def op(self, result: str, op: str, *operands: str, **attributes: Attribute) -> str:
        """Add one op; return the name of its result."""
        names = ", ".join(f"%{operand}" for operand in operands)
        pairs = ", ".join(f"{k} = {_attribute(v)}" for k, v in attributes.items())
        self.lines.append(f"  %{result} = {op}({names})" + (f" {{{pairs}}}" if pairs else ""))
        return result

    def blank(self) -> None:
        """Set the next lines apart from those above."""
        self.lines.append("")

    def finish(self, result: str) -> str:
        """Return the whole text of a graph that returns *result*."""
        comment = [f"// {line}" for line in self.comment.splitlines()]
        head = (
            f"graph @{self.name}(%{self.argument}: {tensor(*self.dims)})"
            f' attributes {{calibration = "{self.calibration}"}} {{'
        )
        return "\n".join([*comment, head, *self.lines, f"  return %{result}", "}", ""])


def _attribute(value: Attribute) -> str:
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return f'"{value}"'
    return f"[{', '.join(map(str, value))}]"
