"""Where in an image faults can hit: tensors by what reads them, rows of the descriptor table.

Invariant: a site's bytes are those that its reader uses; lanes beyond the channels, which nobody
does, are none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Layout, Opcode, Space, Unit
from npuabi.geometry import LANES
from npuabi.program import symbol_at
from npuabi.records import OpParams, TensorDescriptor
from npufw.boot import Image
from npufw.kernels.base import OPERANDS, Step
from npufw.kernels.params import conv_words
from npufw.memory import geometry_of

__all__ = ["REGIONS", "Site", "addresses", "name_of", "octets_of", "sites"]

REGIONS = {
    "weights": "weights in SRAM",
    "activations": "activations in SRAM, and outputs in DDR",
    "parameters": "biases, multipliers, tables in SRAM",
    "bias": "biases of layers in SRAM",
    "requant": "multipliers, shifts, zero points and tables in SRAM",
    "constants": "weights and parameters in DDR",
    "arena": "inputs, outputs and spilled activations in DDR",
    "header": "the descriptor table's header",
    "descriptor": "the descriptors of a TOA and of its tensors",
}
"""What a fault can be aimed at."""

_LAYERS = frozenset({Opcode.CONV, Opcode.DEPTHWISE})
_OPERANDS_OF = {
    "weights": ("weights",),
    "parameters": ("parameters",),
    "bias": ("parameters",),
    "requant": ("parameters",),
    "activations": ("input", "residual"),
}


@dataclass(frozen=True, slots=True)
class Site:
    """Bytes that *step* reads, or the host where there is none; *tensor* is None for its rows."""

    region: str
    step: Step | None
    tensor: TensorDescriptor | None = None


def sites(image: Image, region: str, op: str = "") -> list[Site]:
    """Return the sites of *region*, those of one op where *op* names it.

    Raises ValueError when there is none.
    """
    found = [site for site in _all(image, region) if not op or op in _names(image, site)]
    if not found:
        whose = f" of {op!r}" if op else ""
        raise ValueError(f"the program has no {region}{whose}")
    return found


def _all(image: Image, region: str) -> Iterator[Site]:
    if region == "header":
        yield Site(region, None)
        return
    for step in image.steps:
        if region == "descriptor":
            yield Site(region, step)
            continue
        yield from (Site(region, step, tensor) for tensor in _operands(step, region))
    if region in ("activations", "arena"):
        yield from (Site(region, None, port.tensor) for port in image.outputs)


def _operands(step: Step, region: str) -> Iterator[TensorDescriptor]:
    if region in ("constants", "arena"):
        if step.toa.unit is Unit.DMA_IN and step.input.space.name.lower() == region:
            yield step.input
        return
    for name in _OPERANDS_OF[region]:
        tensor = step.tensors[OPERANDS.index(name)]
        if tensor is None or tensor.space is not Space.SRAM:
            continue
        if region not in ("bias", "requant") or len(_part(step, tensor, region)):
            yield tensor


def _names(image: Image, site: Site) -> set[str]:
    names = {name_of(image, site.tensor)} if site.tensor is not None else set()
    if site.step is not None:
        program = image.program
        names.add(symbol_at(program.symbols, program.sources[site.step.toa.op].symbol))
    return names


def name_of(image: Image, tensor: TensorDescriptor) -> str:
    """Return the name that the blob gives *tensor*."""
    return symbol_at(image.program.symbols, tensor.symbol)


def octets_of(site: Site) -> NDArray[np.int64]:
    """Return which bytes of the site's tensor its reader uses, counted in the order of elements."""
    tensor = site.tensor
    if tensor is None:
        raise ValueError("rows of the table are no tensor")
    if site.region in ("bias", "requant") and site.step is not None:
        return _part(site.step, tensor, site.region)
    whole = np.arange(_size(tensor), dtype=np.int64)
    if tensor.layout is not Layout.NCHW16C:
        return whole
    counts, size = geometry_of(tensor).counts, tensor.dtype.size
    lanes = whole // size % LANES
    bricks = whole // (size * LANES * counts[2] * counts[3]) % counts[1]
    channels = bricks * LANES + lanes - tensor.lane
    return whole[(channels >= 0) & (channels < tensor.dims[1])]


def _part(step: Step, tensor: TensorDescriptor, region: str) -> NDArray[np.int64]:
    """Return the bytes of a parameters tensor that are biases, or those that are not."""
    whole = np.arange(_size(tensor), dtype=np.int64)
    layer = step.toa.opcode in _LAYERS
    words = conv_words(step.output.dims[1], step.input.dtype) if layer else 0
    if not layer or words * 4 != len(whole):
        return whole if region == "requant" else whole[:0]
    head, row = OpParams.SIZE, LANES * 4
    rows = (words * 4 - head) // row // -(-step.output.dims[1] // LANES)
    biased = max(1, rows - 2)
    is_bias = (whole >= head) & ((whole - head) // row % rows < biased)
    return whole[is_bias] if region == "bias" else whole[~is_bias]


def _size(tensor: TensorDescriptor) -> int:
    geometry = geometry_of(tensor)
    return int(np.prod(geometry.counts)) * geometry.inner_bytes


def addresses(tensor: TensorDescriptor, octets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where bytes of *tensor*, counted in the order of its elements, lie in its space."""
    geometry = geometry_of(tensor)
    places = np.unravel_index(octets, (*geometry.counts, geometry.inner_bytes))
    found = np.full(len(octets), tensor.base, np.int64)
    for index, stride in zip(places, (*tensor.strides, 1), strict=True):
        found += index * stride
    return found
