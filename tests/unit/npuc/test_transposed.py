"""Phases of a transposed convolution against sums written out; weights turned and turned back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.ir.types import Quant
from npuc.transposed import Axis, filters_of, scales_of, weights_of


def spread(axis: Axis, x: list[int], w: list[int]) -> list[int]:
    """Return the results along one axis, by the definition."""
    out = [0] * axis.full(len(x))
    for i, value in enumerate(x):
        for k, weight in enumerate(w):
            out[i * axis.stride + k * axis.dilation] += value * weight
    return out[axis.begin : len(out) - axis.end]


def by_phases(axis: Axis, x: list[int], w: list[int]) -> list[int]:
    """Return the same by the phases' convolutions, as the arrays compute them."""
    out = [0] * (axis.output(len(x)) or 0)
    seen = []
    for phase in axis.phases(len(x)):
        assert min(phase.start, phase.before, phase.behind) >= 0 < phase.size
        part = x[phase.start : phase.start + phase.size]
        padded = [0] * phase.before + part + [0] * phase.behind
        taps = [w[k] for k in phase.taps] or [0]
        reach = (len(taps) - 1) * phase.dilation
        assert len(padded) - reach == phase.count
        for t in range(phase.count):
            at = phase.first + t * axis.stride
            seen.append(at)
            out[at] = sum(v * padded[t + k * phase.dilation] for k, v in enumerate(taps))
    assert sorted(seen) == list(range(len(out)))
    return out


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_the_phases_make_every_result_once(data: st.DataObject) -> None:
    kernel, stride, dilation, extent = (data.draw(st.integers(1, high)) for high in (6, 5, 4, 9))
    free = Axis(kernel=kernel, stride=stride, dilation=dilation)
    begin = data.draw(st.integers(0, 8))
    end = data.draw(st.integers(0, 8))
    more = data.draw(st.integers(0, max(stride, dilation) - 1))
    if begin + end >= free.full(extent) + more:
        begin = end = 0
    axis = Axis(kernel=kernel, stride=stride, dilation=dilation, begin=begin, end=end, more=more)
    x, w = list(range(1, extent + 1)), [10**k for k in range(kernel)]
    assert by_phases(axis, x, w) == spread(axis, x, w)


@pytest.mark.parametrize("group", [1, 2, 3])
def test_weights_become_filters_and_come_back(group: int) -> None:
    weights = np.arange(6 * 4 * 2 * 3).reshape(6, 4, 2, 3)
    filters = filters_of(weights, group)
    assert filters.shape == (4 * group, 6 // group, 2, 3)
    for channel in range(6):
        for out in range(4):
            which, inside = divmod(channel, 6 // group)
            found = filters[which * 4 + out, inside]
            assert (found == weights[channel, out]).all()
    assert (weights_of(filters, group) == weights).all()


def test_scales_are_named_by_output_channel() -> None:
    point = (0, 0)
    assert scales_of(Quant.per_tensor(0.5, 0), (4, 2), 2) == (0.5,) * 4
    assert scales_of(Quant((0.1, 0.2), point, 1), (4, 2), 2) == (0.1, 0.2, 0.1, 0.2)
    by_group = Quant((0.1, 0.1, 0.2, 0.2), (0,) * 4, 0)
    assert scales_of(by_group, (4, 3), 2) == (0.1,) * 3 + (0.2,) * 3
    with pytest.raises(ValueError, match="the same for all inputs of a group"):
        scales_of(Quant((0.1, 0.3, 0.2, 0.2), (0,) * 4, 0), (4, 3), 2)
    with pytest.raises(ValueError, match="2 scales along axis 0"):
        scales_of(Quant((0.1, 0.2), point, 0), (4, 2), 2)
