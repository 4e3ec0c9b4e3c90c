"""min: ONNX Min; the smallest of tensors that broadcast."""

from __future__ import annotations

import numpy as np

from npuc.ir.core import Array, op
from npuc.npu.tasks import Minimum
from npuc.ops.extremes import Extreme

__all__ = ["Min"]


@op("min")
class Min(Extreme):
    """The smallest of the tensors, element by element; quantised codes are copied as they are."""

    TASK = Minimum

    def chosen(self, a: Array, b: Array) -> Array:
        return np.asarray(np.minimum(a, b))
