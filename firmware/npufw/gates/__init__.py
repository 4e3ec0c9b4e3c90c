"""The seven gates, in their order; a gate is one file here and one line below."""

from __future__ import annotations

from npufw.gates import camera, drift, fragmentation, heat, ripple, update, variation
from npufw.gates.base import Gate

__all__ = ["GATES"]

GATES: tuple[Gate, ...] = (
    heat.GATE,
    ripple.GATE,
    fragmentation.GATE,
    drift.GATE,
    camera.GATE,
    update.GATE,
    variation.GATE,
)
