"""max: ONNX Max; the largest of tensors that broadcast."""

from __future__ import annotations

import numpy as np

from npuc.ir.core import Array, op
from npuc.npu.tasks import Maximum
from npuc.ops.extremes import Extreme

__all__ = ["Max"]


@op("max")
class Max(Extreme):
    """The largest of the tensors, element by element; quantised codes are copied as they are."""

    TASK = Maximum

    def chosen(self, a: Array, b: Array) -> Array:
        return np.asarray(np.maximum(a, b))
