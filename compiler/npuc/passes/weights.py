"""Int8 weights and integer biases of a convolution, and what is worth a warning about them.

A channel's scale is max|w| / 127, except where
- the bias would leave half of the sums' range: the scale is raised until it fits (C07);
- all weights are zero: the scale is chosen so that one unit of bias is 1/256 of an output step.

A channel is noted (C33) when its weights keep less than 30 dB of signal to rounding noise, or when
the largest swing that the input allows, sum|w| * the input's range, is below 32 output steps: a
uniform signal of n steps keeps 20 * log10(n) dB, which is 30 dB at 32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from npuabi.enums import DType
from npuc.ir.core import Array
from npuc.ir.types import Quant
from npuc.passes.parameters import (
    SMALLEST_SCALE,
    bias_codes,
    bias_limit,
    channel_quant,
    least_scale,
    weight_codes,
)
from npuc.transposed import filters_of, scales_of, weights_of

__all__ = [
    "MINIMUM_DB",
    "MINIMUM_STEPS",
    "Layer",
    "QuantisedLayer",
    "quantise_transposed",
    "quantise_weights",
]

MINIMUM_DB = 30.0
MINIMUM_STEPS = 32
_BIAS_STEPS = 256
_BIAS_BITS = {DType.I8: 32, DType.I16: 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A float layer: weights (O, ...), bias (O) or None, scales of its input and output."""

    weights: Array
    bias: Array | None
    input_scale: float
    output_scale: float
    frozen: Quant | None = None
    dtype: DType = DType.I8
    """Element type of the activations: i8 or i16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedLayer:
    """Codes, their parameters, and texts for the user."""

    weights: Array
    bias: Array | None
    quant: Quant
    notes: tuple[str, ...]


def quantise_weights(layer: Layer) -> QuantisedLayer:
    """Return the int8 form of *layer*; frozen parameters are kept unless the bias does not fit."""
    chosen = _per_channel(layer) if layer.frozen is not None else channel_quant(layer.weights)
    filled = _filled(layer, chosen)
    quant = _raised(layer, filled)
    codes = weight_codes(layer.weights, quant)
    bias = None
    if layer.bias is not None:
        bias = bias_codes(layer.bias, layer.input_scale, quant, layer.dtype)
    notes = (*_raise_notes(layer, filled, quant), *_loss_notes(layer, codes, quant))
    return QuantisedLayer(weights=codes, bias=bias, quant=quant, notes=notes)


def quantise_transposed(layer: Layer, group: int) -> QuantisedLayer:
    """Return the int8 form of a transposed convolution, whose weights are (C, O / group, ...).

    Scales are along axis 1, one an output channel. Those of several groups have no axis of their
    own: each group then has one scale, along axis 0 at each of its inputs, unless the frozen ones
    could be kept.
    """
    shape, frozen = layer.weights.shape, layer.frozen
    filters = filters_of(layer.weights, group)
    given = None if frozen is None else _along_outputs(frozen, shape, group)
    flat = replace(layer, weights=filters, frozen=given)
    made = quantise_weights(flat)
    if group == 1:
        quant = replace(made.quant, axis=1)
    elif frozen is not None and made.quant == given:
        quant = frozen
    else:
        shared = np.reshape(made.quant.scales, (group, -1)).max(axis=1)
        made = quantise_weights(replace(flat, frozen=_repeated(shared, shape[1])))
        quant = _repeated(shared, shape[0] // group)
    return replace(made, weights=weights_of(made.weights, group), quant=quant)


def _along_outputs(frozen: Quant, shape: tuple[int, ...], group: int) -> Quant:
    if any(frozen.zero_points):
        raise ValueError("weights have zero point 0, requantise them symmetrically")
    scales = scales_of(frozen, shape, group)
    return Quant(scales, (0,) * len(scales), axis=0)


def _repeated(scales: Array, times: int) -> Quant:
    found = tuple(np.repeat(scales, times).tolist())
    return Quant(found, (0,) * len(found), axis=0)


def _per_channel(layer: Layer) -> Quant:
    """Spread frozen parameters over the channels; ValueError where the NPU cannot hold them."""
    frozen = layer.frozen
    channels = len(layer.weights)
    if frozen is None or frozen.axis not in (None, 0):
        raise ValueError(f"weights are quantised along axis 0 or as a whole, got {frozen}")
    if any(frozen.zero_points):
        raise ValueError("weights have zero point 0, requantise them symmetrically")
    scales = frozen.scales * channels if len(frozen.scales) == 1 else frozen.scales
    if len(scales) != channels:
        raise ValueError(f"weights of {channels} channels have {len(scales)} scales")
    return Quant(scales, (0,) * channels, axis=0)


def _filled(layer: Layer, quant: Quant) -> Quant:
    """Give channels without weights a scale that leaves the bias its precision."""
    spare = float(np.float32(layer.output_scale / (layer.input_scale * _BIAS_STEPS)))
    return replace(quant, scales=tuple(s or max(spare, SMALLEST_SCALE) for s in quant.scales))


def _raised(layer: Layer, quant: Quant) -> Quant:
    """Raise the scales whose bias would not fit."""
    if layer.bias is None:
        return quant
    units, limit = layer.input_scale * np.asarray(quant.scales), bias_limit(layer.dtype)
    tight = np.abs(layer.bias) > units * limit
    scales = list(quant.scales)
    for channel in np.flatnonzero(tight):
        scales[channel] = least_scale(float(layer.bias[channel]), layer.input_scale, limit)
    return replace(quant, scales=tuple(scales))


def _raise_notes(layer: Layer, before: Quant, after: Quant) -> Iterator[str]:
    pairs = enumerate(zip(before.scales, after.scales, strict=True))
    raised = [(c, old, new) for c, (old, new) in pairs if old != new]
    if raised:
        channel, old, new = raised[0]
        bits = _BIAS_BITS[layer.dtype]
        yield (
            f"the weight scale of {_channels([c for c, *_ in raised])} is raised"
            f" (channel {channel}: {old:.5g} to {new:.5g}) so that the bias fits int{bits}"
        )


def _loss_notes(layer: Layer, codes: Array, quant: Quant) -> Iterator[str]:
    flat = np.asarray(layer.weights, np.float64).reshape(len(codes), -1)
    scales = np.asarray(quant.scales)
    error = flat - codes.reshape(len(codes), -1) * scales[:, None]
    signal, noise = (flat**2).sum(axis=1), (error**2).sum(axis=1)
    lossy = np.flatnonzero(signal < noise * 10 ** (MINIMUM_DB / 10))
    if len(lossy):
        yield f"the weights of {_channels(lossy)} keep less than {MINIMUM_DB:g} dB in int8"
    codes_used = 1 << 8 * layer.dtype.size
    steps = (codes_used - 1) * layer.input_scale / layer.output_scale
    swing = np.abs(flat).sum(axis=1) * steps
    flat_out = np.flatnonzero((swing < MINIMUM_STEPS) & (signal > 0))
    if len(flat_out):
        yield (
            f"{_channels(flat_out)} of the result: fewer than {MINIMUM_STEPS} of {codes_used} codes"
            " are used, since other channels are much larger"
        )


def _channels(found: Array | list[int]) -> str:
    """Name one channel, or the first of several."""
    first = f"channel {int(found[0])}"
    return first if len(found) == 1 else f"{len(found)} channels ({first} first)"
