"""What the compiler tells its users: located errors, several in one run.

SourceError
 └─ CompileError          the only exception that the compiler raises for bad input
"""

from __future__ import annotations

from npuabi.diagnostics import UNKNOWN, Diagnostic, Location, SourceError

__all__ = ["UNKNOWN", "CompileError", "Diagnostic", "Location"]


class CompileError(SourceError):
    """Input that cannot be compiled, with every diagnostic that was found."""
