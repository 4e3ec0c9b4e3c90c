"""Host arrays in and out: every mismatch is refused with what was expected and what was given.

Invariant: nothing is converted silently. Strided and read-only arrays are taken as they are; other
dtypes, byte orders and shapes, and NaN, are refused (C37).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType
from npuabi.errors import ErrorCode
from npufw.boot import Port, StateTensor
from npufw.errors import FirmwareError

__all__ = ["batches", "named_inputs", "runs_of", "state_arrays"]

_FLOATS = (DType.F16, DType.F32)


def named_inputs(ports: Sequence[Port], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise FirmwareError unless *arrays* holds each input by name and nothing else."""
    names = [port.name for port in ports]
    missing = [n for n in names if n not in arrays]
    if missing:
        text = f"input {_list(missing)} is not given; the arrays are {_list(arrays)}"
        raise FirmwareError(ErrorCode.INPUT_MISSING, text)
    unknown = [n for n in arrays if n not in names]
    if unknown:
        text = f"no input is called {_list(unknown)}; the inputs are {_list(names)}"
        raise FirmwareError(ErrorCode.INPUT_UNKNOWN, text)


def runs_of(ports: Sequence[Port], arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return how many runs *arrays* ask for: their first axis over the compiled batch.

    Raises FirmwareError: INPUT_MISSING, INPUT_UNKNOWN, INPUT_DTYPE, INPUT_SHAPE, INPUT_BATCH,
    INPUT_NOT_FINITE.
    """
    named_inputs(ports, arrays)
    counts = {port.name: _runs(port, np.asanyarray(arrays[port.name])) for port in ports}
    if len(set(counts.values())) > 1:
        text = f"the inputs ask for different numbers of runs: {counts}"
        raise FirmwareError(ErrorCode.INPUT_BATCH, text)
    return next(iter(counts.values()), 1)


def state_arrays(states: Sequence[StateTensor], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise FirmwareError unless *arrays* holds each state by name, in its dims and dtype."""
    names = [state.name for state in states]
    if sorted(names) != sorted(arrays):
        text = f"the states are {_list(names)}, given are {_list(arrays)}"
        raise FirmwareError(ErrorCode.INPUT_UNKNOWN, text)
    for state in states:
        array, dtype = arrays[state.name], np.dtype(state.tensor.dtype.numpy)
        if array.dtype != dtype or array.shape != state.tensor.dims:
            wanted = _type(state.tensor.dims, dtype)
            text = f"state {state.name!r}: expected {wanted}, got {_type(array.shape, array.dtype)}"
            remedy = "a state file belongs to one blob; begin anew with --reset"
            raise FirmwareError(ErrorCode.INPUT_SHAPE, text, remedy=remedy)


def batches(port: Port, array: NDArray[Any], runs: int) -> NDArray[Any]:
    """Return *array* as (runs, N, C, H, W) of the device, a view wherever its strides allow it."""
    return np.asarray(array).reshape(runs, *port.tensor.dims)


def _runs(port: Port, array: NDArray[Any]) -> int:
    expected = np.dtype(port.entry.dtype.numpy)
    # "<" and "=" are one order here, so equality of dtypes is equality of bytes.
    if array.dtype != expected:
        text = f"input {port.name!r}: {_given(port, array)}"
        raise FirmwareError(ErrorCode.INPUT_DTYPE, text)
    shape = port.shape
    if array.ndim != len(shape) or array.shape[1:] != shape[1:]:
        text = f"input {port.name!r}: {_given(port, array)}"
        raise FirmwareError(ErrorCode.INPUT_SHAPE, text)
    runs, rest = divmod(array.shape[0], shape[0]) if shape else (1, 0)
    if rest or not runs:
        text = f"input {port.name!r}: the first axis is a multiple of {shape[0]}: {array.shape}"
        raise FirmwareError(ErrorCode.INPUT_BATCH, text)
    if port.entry.dtype in _FLOATS and np.isnan(array).any():
        bad = np.argwhere(np.isnan(array))[0].tolist()
        text = f"input {port.name!r} is NaN at index {bad}"
        raise FirmwareError(ErrorCode.INPUT_NOT_FINITE, text)
    return runs


def _given(port: Port, array: NDArray[Any]) -> str:
    shape, dtype = port.shape, np.dtype(port.entry.dtype.numpy)
    count = int(np.prod(shape, dtype=np.int64))
    wanted = f"{_type(shape, dtype)}, {count * dtype.itemsize} bytes"
    return f"expected {wanted}, got {_type(array.shape, array.dtype)}, {array.nbytes} bytes"


def _type(shape: Sequence[int], dtype: np.dtype[Any]) -> str:
    order = " big-endian" if dtype.byteorder == ">" else ""
    return f"{'x'.join(map(str, shape)) or 'scalar'} {dtype.name}{order}"


def _list(names: Any) -> str:
    return ", ".join(repr(n) for n in names) or "none"
