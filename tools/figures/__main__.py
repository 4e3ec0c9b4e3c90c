"""Draw the figures that the command line names, or all: ``python -m tools.figures [NAME ...]``."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

from tools import figures

PAGES = Path(__file__).parents[2] / "docs" / "gates"


def main() -> int:
    """Draw; return the exit code."""
    known = [m.name for m in pkgutil.iter_modules(figures.__path__) if not m.name.startswith("_")]
    names = sys.argv[1:] or known
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no figure {unknown[0]!r}: there are {', '.join(known)}", file=sys.stderr)
        return 1
    for name in names:
        path = PAGES / f"{name}.svg"
        importlib.import_module(f"tools.figures.{name}").draw(path)
        print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
