"""The benchmark's bounds: counted from the graph as published."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.frontend.text import parse_file
from tools.bench import Row, sums

MODELS = Path(__file__).parents[3] / "models"


# shared anchors: 12.5 and 1814 million MACs; exactly, by layer, from the published shapes.
@pytest.mark.parametrize(("name", "macs"), [("resnet8", 12_501_632), ("resnet18", 1_814_073_344)])
def test_the_sums_of_the_published_networks_are_counted(name: str, macs: int) -> None:
    assert sum(product.macs for product in sums(parse_file(MODELS / f"{name}.txt"))) == macs


def test_a_depthwise_convolution_counts_once_a_channel() -> None:
    _, depthwise, *_ = sums(parse_file(MODELS / "digits.txt"))
    assert (depthwise.groups, depthwise.rows, depthwise.depth, depthwise.columns) == (24, 64, 9, 1)


def test_ratios_say_who_is_better() -> None:
    row = Row(what="x", unit="ms", us=4.0, peer=2.0, bound=1.0)
    assert row.ratio == 2.0
    assert row.of_bound == 0.25
    assert Row(what="x", unit="ms", us=4.0).ratio is None
