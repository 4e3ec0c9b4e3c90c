"""An observer that fills every byte of memory that nobody will read, before and after each TOA.

Lanes beyond the channels, gaps, freed tensors and memory not yet written all count. A program
whose results change under it reads what it must not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Space
from npuabi.records import TensorDescriptor
from npufw.engine import Engine
from tests.builders import addresses

__all__ = ["Poisoner"]

_SPACES = (Space.SRAM, Space.ARENA)


class Poisoner:
    """Set as ``engine.observe``; *fill* is written over all dead bytes at each event."""

    def __init__(self, engine: Engine, fill: int = 0x7F) -> None:
        self._memory = engine.memory.spaces
        self._fill = fill
        self._octets: dict[int, NDArray[np.int64]] = {}
        self._dead: list[dict[Space, NDArray[np.uint8]]] = []
        self._next = 0
        self._prepare(engine)
        engine.observe = self

    def __call__(self, index: int, phase: str) -> None:
        """Poison; the order of events is the same in every run."""
        for space, packed in self._dead[self._next].items():
            memory = self._memory[space]
            dead = np.unpackbits(packed, count=len(memory)).view(np.bool_)
            memory[dead] = self._fill
        self._next = (self._next + 1) % len(self._dead)

    def _prepare(self, engine: Engine) -> None:
        """Walk the events backwards, as a compiler does for liveness."""
        live = {space: np.zeros(len(self._memory[space]), bool) for space in _SPACES}
        for port in engine.image.outputs:
            self._mark(live, port.tensor, True)
        masks = []
        for position, begins in reversed(engine.events):
            tensors = engine.image.steps[position].tensors
            if begins:
                # Observed before the TOA reads: its inputs are live.
                for tensor in tensors[:4]:
                    self._mark(live, tensor, True)
                masks.append(self._packed(live))
            else:
                # Observed after the TOA has written.
                masks.append(self._packed(live))
                self._mark(live, tensors[4], False)
        self._dead = masks[::-1]

    def _packed(self, live: dict[Space, NDArray[np.bool_]]) -> dict[Space, NDArray[np.uint8]]:
        return {space: np.packbits(~held) for space, held in live.items()}

    def _mark(self, live: dict[Space, Any], tensor: TensorDescriptor | None, state: bool) -> None:
        if tensor is None or tensor.space not in live:
            return
        octets = self._octets.get(id(tensor))
        if octets is None:
            octets = addresses(tensor)[..., None] + np.arange(tensor.dtype.size)
            self._octets[id(tensor)] = octets
        live[tensor.space][octets] = state
