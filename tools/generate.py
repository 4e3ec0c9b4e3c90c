"""Write the pages and files that are derived from code, or check that they are current.

``python -m tools.generate [--check]``. Invariant: what a person would keep in step by hand is made
here from its one declaration; ``--check`` fails when a committed page differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import npuc
from npuabi import explain, render
from npuc.support_text import ops_page
from tools.flash_tables import FLASH_REGIONS
from tools.machine_tables import MACHINE_REGIONS
from tools.reference import COMPILER_REGIONS
from tools.regions import filled
from tools.runtime_tables import RUNTIME_REGIONS

__all__ = ["FILES", "PAGES", "REGIONS", "main", "stale"]

ROOT = Path(__file__).parents[1]
REGIONS = {**COMPILER_REGIONS, **FLASH_REGIONS, **MACHINE_REGIONS, **RUNTIME_REGIONS}
"""What makes each marked region of a hand-written page, by its name."""


def _with_regions(name: str) -> Callable[[], str]:
    return lambda: filled((ROOT / name).read_text(encoding="utf-8"), REGIONS)


PAGES: dict[str, Callable[[], str]] = {
    "docs/abi.md": render.markdown,
    "docs/errors.md": explain.errors_page,
    "docs/gates/6-ota.md": _with_regions("docs/gates/6-ota.md"),
    "docs/guide.md": _with_regions("docs/guide.md"),
    "docs/ir.md": _with_regions("docs/ir.md"),
    "docs/machine.md": _with_regions("docs/machine.md"),
    "docs/npuabi.h": render.c_header,
    "docs/ops.md": ops_page,
    "docs/runtime-load.md": _with_regions("docs/runtime-load.md"),
    "docs/runtime.md": _with_regions("docs/runtime.md"),
}
"""What makes each page, by its path in the repository."""


def _digits_blob() -> bytes:
    return npuc.compile(ROOT / "models" / "digits.txt").blob


def _digits_data() -> bytes:
    return (ROOT / "models" / "digits_test.npz").read_bytes()


FILES: dict[str, Callable[[], bytes]] = {
    "firmware/npufw/gates/digits.bin": _digits_blob,
    "firmware/npufw/gates/digits.npz": _digits_data,
}
"""What makes each file that is no page: what ``npufw gates`` is shown on, for it never compiles."""


def stale(root: Path = ROOT) -> list[str]:
    """Return the pages and files below *root* that are missing or differ from what is made."""
    return [name for name, make in _makers().items() if _read(root / name) != make()]


def _makers() -> dict[str, Callable[[], bytes]]:
    return {name: partial(_encoded, make) for name, make in PAGES.items()} | FILES


def _encoded(make: Callable[[], str]) -> bytes:
    return make().encode()


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def main() -> int:
    """Write every page; with --check write nothing and return 1 when one is stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say what is stale")
    if parser.parse_args().check:
        return _report(stale())
    for name, make in _makers().items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make())
    return 0


def _report(names: list[str]) -> int:
    for name in names:
        print(f"{name} is stale; run: make generate", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
