"""Reading the tables behind the head of a parameters tensor: positions, and weights of taps.

The values come from memory at run time, so they are held against their ranges here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.errors import ErrorCode
from npufw.errors import FirmwareError
from npufw.kernels.base import Fault, Step, dims_text
from npufw.kernels.params import HEAD_WORDS

__all__ = ["positions", "table_words", "words_behind_head"]

NOWHERE = -1
"""The position that stands for no element of the input."""


def words_behind_head(step: Step, count: int) -> Fault:
    """Return what is wrong unless the parameters are the head and *count* more dense words."""
    tensor, words = step.operand("parameters"), HEAD_WORDS + count
    if tensor.dims != (1, 1, 1, words) or tensor.strides[3] != tensor.dtype.size:
        text = f"parameters are {dims_text(tensor)}, expected (1,1,1,{words}) without gaps"
        return ErrorCode.BAD_DIMS, text
    return None


def table_words(words: NDArray[Any], sizes: Sequence[int]) -> list[NDArray[np.int64]]:
    """Return the tables of *sizes* words each that follow the head, in order."""
    tail = words.reshape(-1)[HEAD_WORDS:].astype(np.int64)
    return np.split(tail, np.cumsum(sizes))[:-1]


def positions(table: NDArray[np.int64], extent: int, step: Step, *, least: int) -> None:
    """Raise FirmwareError BAD_INDEX unless all of *table* lies in *least* .. extent - 1."""
    low, high = int(table.min()), int(table.max())
    if low < least or high >= extent:
        wrong = low if low < least else high
        text = f"{step.where}: parameters: position {wrong} is outside {least} to {extent - 1}"
        raise FirmwareError(ErrorCode.BAD_INDEX, text)
