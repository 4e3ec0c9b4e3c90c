"""Where the values of a quantised graph lie on the device: a part of a named buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Layout, Space
from npuabi.geometry import Geometry
from npuc.ir.const import Const
from npuc.ir.core import Array, Graph, Value
from npuc.npu.regions import geometry, root_of
from npuc.npu.tasks import BufferOp, buffer_type
from npuc.passes.context import PassContext
from npuc.passes.lower import builder_of

__all__ = ["Part", "Place", "Places", "parts_of", "places_of"]


@dataclass(frozen=True, slots=True)
class Place:
    """A buffer of the planned program: its name, space, first byte and bytes."""

    name: str
    space: Space
    base: int
    extent: int


Places = Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Part:
    """The part of buffer ``root`` that holds a value, from byte ``offset`` on."""

    root: str
    offset: int
    geometry: Geometry

    def elements(self, held: NDArray[np.uint8]) -> Array:
        """Return the value's N, C, H, W elements from the bytes of its buffer."""
        view: Array = self.geometry.view(held, self.offset)
        if self.geometry.layout is not Layout.NCHW16C:
            return view
        n, bricks, h, w, lanes = view.shape
        lane, channels = self.geometry.lane, self.geometry.dims[1]
        flat = view.transpose(0, 1, 4, 2, 3).reshape(n, bricks * lanes, h, w)
        return flat[:, lane : lane + channels]


def places_of(planned: Graph) -> Places:
    """Return every buffer of an L3 graph that is placed."""
    return {place.name: place for place in _places(planned)}


def _places(planned: Graph) -> Iterator[Place]:
    for op in planned.ops:
        if not isinstance(op, BufferOp):
            continue
        buffer = buffer_type(op.result)
        base = buffer.place.offset
        if base is not None:
            yield Place(op.result.name, buffer.place.space, base, geometry(buffer).extent)


def parts_of(graph: Graph, context: PassContext) -> dict[Value, Part]:
    """Return where each value of a quantised *graph* lies; constants are left out."""
    builder = builder_of(graph, context)
    values = [*graph.arguments, *(v for op in graph.ops for v in op.results)]
    return {
        value: _part(builder.read(value)) for value in values if not isinstance(value.owner, Const)
    }


def _part(buffer: Value) -> Part:
    root, offset = root_of(buffer)
    return Part(root.name, offset, geometry(buffer_type(buffer)))
