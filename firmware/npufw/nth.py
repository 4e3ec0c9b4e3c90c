"""Fail the n-th: the counter behind tests that let every call of a kind fail, one after the other.

failing = Nth(3)                     # the third call alone
failing = Nth(3, forever=True)       # the third and all after it
if failing(): raise ...
failing.reached                      # False: the run has no third call, the loop is done
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Nth"]


@dataclass(slots=True)
class Nth:
    """Counts calls from 1; true at the *n*-th, and after it too when it is *forever*."""

    n: int
    forever: bool = False
    calls: int = 0

    def __call__(self) -> bool:
        """Count a call and return whether it fails."""
        self.calls += 1
        return self.calls == self.n or (self.forever and self.calls > self.n)

    @property
    def reached(self) -> bool:
        """Whether any call failed."""
        return self.calls >= self.n
