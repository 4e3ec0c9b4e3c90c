"""What each model's arena wastes of its block, as a table: ``python -m tools.memory_waste``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from npuabi.markdown import table
from npuc.driver import compile
from npufw.buddy import block_bytes

__all__ = ["main", "row"]

MODELS = Path(__file__).parents[1] / "models"


def row(name: str) -> tuple[str, str, str, str]:
    """Return a model's name, the bytes of its arena and of the block, and the waste."""
    arena = compile(MODELS / f"{name}.txt").program.header.arena_bytes
    block = block_bytes(arena)
    return name, f"{arena:,}", f"{block:,}", f"{1 - arena / block:.1%}"


def main(names: Sequence[str]) -> int:
    """Print the table of the models *names*, or of all."""
    chosen = names or sorted(path.stem for path in MODELS.glob("*.txt"))
    print(table(("model", "arena bytes", "block bytes", "waste"), map(row, chosen)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
