"""A progress bar on standard error, for people only: on a terminal, for work that takes its time.

Invariant: nothing is written to a file or a pipe, and nothing is left on the screen.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

__all__ = ["Progress", "progress_bar", "silent"]

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many steps of it are done, and of how many."""


def silent(name: str, done: int, total: int) -> None:
    """Show nothing."""


@contextmanager
def progress_bar(*, after_s: float = 1.0) -> Iterator[Progress]:
    """Yield what shows progress on a terminal once the work has lasted *after_s* seconds."""
    if not sys.stderr.isatty():
        yield silent
        return
    bar = _Bar(time.monotonic() + after_s)
    try:
        yield bar.show
    finally:
        bar.close()


class _Bar:
    """One line that names the step at work."""

    def __init__(self, begin: float) -> None:
        self._begin = begin
        self._rich: RichProgress | None = None

    def show(self, name: str, done: int, total: int) -> None:
        """Draw the line, unless it is too early."""
        if self._rich is None:
            if time.monotonic() < self._begin:
                return
            self._rich = _started()
        (task,) = self._rich.task_ids
        self._rich.update(task, description=name, completed=done, total=total)

    def close(self) -> None:
        """Wipe the line."""
        if self._rich is not None:
            self._rich.stop()


def _started() -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn())
    rich = Progress(*columns, console=Console(stderr=True), transient=True)
    rich.add_task("")
    rich.start()
    return rich
