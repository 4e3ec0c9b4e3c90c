"""The benchmark's bounds: counted from the graph as published."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.frontend.text import parse_file
from tools.bench import Row, sums

MODELS = Path(__file__).parents[3] / "models"


# The published counts, in millions 12.5, 1814, 4089, 569, 301, 7.5, 2.7 and 0.26; exactly, by
# layer, from the published shapes.
@pytest.mark.parametrize(
    ("name", "macs"),
    [
        ("resnet8", 12_501_632),
        ("resnet18", 1_814_073_344),
        ("resnet50", 4_089_184_256),
        ("mobilenet_v1", 568_740_352),
        ("mobilenet_v2", 300_774_272),
        ("mobilenet_v1_025_96", 7_489_664),
        ("ds_cnn", 2_656_768),
        ("autoencoder", 264_192),
        # Attention: 4 x 32 x 64 x 64 + 2 x 32 x 32 x 64; feed-forward: 2 x 32 x 64 x 256.
        ("transformer", 1_703_936),
        ("unet", 27_492_352),
    ],
)
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
