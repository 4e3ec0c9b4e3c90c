"""What stands between the accumulators and the requantiser sees the sums of every MAC op, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import npuc
from npuabi.enums import ToaFlag, Unit
from npufw.boot import boot
from npufw.engine import Engine
from npufw.faults import Hook, Machine, Moment
from npufw.selftest import generated_inputs
from tests.builders import EDGE

OPS = {
    "conv": "conv2d(%x, %w) {pads = [1, 1, 1, 1]}",
    "depthwise": "conv2d(%x, %d) {pads = [1, 1, 1, 1], group = 16}",
    "matmul": "matmul(%x, %x)",
}


def text(op: str) -> str:
    return f"""graph @g(%x: tensor<1x16x8x8xf32>) {{
  %w = const random(seed = 1, mean = 0.0, std = 0.2) : tensor<24x16x3x3xf32>
  %d = const random(seed = 2, mean = 0.0, std = 0.4) : tensor<16x1x3x3xf32>
  %y = {op}
  return %y
}}"""


class Negates(Hook):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def summed(self, machine: Machine, moment: Moment, sums: NDArray[Any]) -> NDArray[Any]:
        assert moment.step is not None
        assert (sums == np.rint(sums)).all()
        self.seen.append(moment.step.index)
        return -sums


@pytest.mark.parametrize("name", OPS)
def test_the_stage_gets_whole_numbers_of_each_writing_mac_toa(name: str, tmp_path: Path) -> None:
    graph = tmp_path / "g.txt"
    graph.write_text(text(OPS[name]), encoding="utf-8")
    image = boot(npuc.compile(graph, calibrate="random").blob, EDGE)
    inputs = generated_inputs(image)
    stage = Negates()
    ((plain,), (turned,)) = (
        Engine(image, hooks=hooks).run(inputs).values() for hooks in ((), (stage,))
    )
    writing = [
        step.index
        for step in image.steps
        if step.toa.unit is Unit.MAC and step.toa.flags & ToaFlag.WRITE
    ]
    assert sorted(stage.seen) == sorted(writing)
    assert (plain != turned).any()
    twice = Engine(image, hooks=(Negates(), Negates())).run(inputs)
    assert (plain == next(iter(twice.values()))).all()
