"""relu6: relu that ends at 6, as TFLite has it; ONNX writes it as Clip."""

from __future__ import annotations

from typing import ClassVar

from npuc.ir.core import op
from npuc.ops.relu import Relu

__all__ = ["Relu6"]


@op("relu6")
class Relu6(Relu):
    """Hold every element between 0 and 6; quantised, also rescale to the result's parameters."""

    RANGE: ClassVar[tuple[float, float]] = (0.0, 6.0)
