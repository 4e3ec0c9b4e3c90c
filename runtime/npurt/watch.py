"""The thread that looks for what nobody else would notice: passed deadlines and stalled cores.

Invariant: it calls nothing of the application, so that no callback can delay it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Watch"]


class Watch:
    """Calls *look* again and again, at the latest when the seconds that it returned are over."""

    def __init__(self, name: str, look: Callable[[], float]) -> None:
        self._look = look
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Have *look* called soon."""
        self._wake.set()

    def stop(self) -> None:
        """End, and wait for it."""
        self._stopped = True
        self._wake.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stopped:
            seconds = self._look()
            self._wake.wait(seconds)
            self._wake.clear()
