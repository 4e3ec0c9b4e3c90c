"""The compiler: graph text in, a blob of 64-byte descriptors out.

``npuc.compile(path, ...)`` gives a Compilation with the blob, its costs and the quantised graph;
errors are CompileError. Both are loaded on first use, so that ``import npuc`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from npuabi import __version__

if TYPE_CHECKING:
    from npuc.diagnostics import CompileError
    from npuc.driver import Compilation, Options, compile

__all__ = ["Compilation", "CompileError", "Options", "__version__", "compile"]

_HOMES = {"CompileError": "npuc.diagnostics"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'npuc' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "npuc.driver")), name)
