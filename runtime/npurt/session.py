"""A session: one model on one core, for programs that run one thing after the other.

Invariant: a run has the core for itself; threads that call at once run in turn.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Self

from numpy.typing import NDArray

from npufw.boot import boot, device_of
from npufw.engine import Engine
from npurt.errors import ServiceClosed
from npurt.models import Blob, read

__all__ = ["Session"]


class Session:
    """A model ready to run: *blob* is its bytes or the path of its file.

    *target* is the name or file of the device, by default the blob's own. States of the model are
    kept from run to run. Raises AbiError, TargetError, OSError.
    """

    def __init__(self, blob: Blob, *, target: str | None = None) -> None:
        raw = read(blob)
        self._engine: Engine | None = Engine(boot(raw, device_of(raw, target)))
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the outputs for *inputs*, arrays by name; the first axis may be N batches.

        Raises FirmwareError, which says what was expected and what was given; ServiceClosed.
        """
        with self._lock:
            return self._ready().run(inputs)

    def reset(self) -> None:
        """Put the first values of all states in place: the next run is the first frame."""
        with self._lock:
            self._ready().reset()

    def close(self) -> None:
        """Give the model's memory back; a run that is on its way is waited for."""
        with self._lock:
            self._engine = None

    def _ready(self) -> Engine:
        if self._engine is None:
            raise ServiceClosed("the session was closed")
        return self._engine
